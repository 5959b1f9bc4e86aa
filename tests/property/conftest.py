"""Lets the parts of the state machine of `test_replay` import each other, with readable assertions."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("replay_machine", "replay_notes", "replay_things", "commands")
