"""What the tests of the upkeep share."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Tests of this folder import what they share from beside them, and the sight of decrypted pages from the tests of purges.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "past")]


@pytest.fixture(autouse=True)
def no_key_around(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for name in list(os.environ):
        if name.startswith("AGENTMEM_KEY"):
            monkeypatch.delenv(name)
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    monkeypatch.setenv("HOME", str(home))
