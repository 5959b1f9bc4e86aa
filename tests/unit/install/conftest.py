"""Homes and projects of their own, in which clients are given agentmem."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

# Tests of this folder import what they share from beside them.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("machines")


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    """A home and a project whose names have spaces and letters of several scripts."""
    from machines import Machine

    return Machine(tmp_path)
