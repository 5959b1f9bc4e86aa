"""A path in a directory of its own, and no key of the caller's around."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

# Tests of this folder import what they share from beside them.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("engine_files")


@pytest.fixture(autouse=True)
def no_key_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("AGENTMEM_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "dir").mkdir()
    return tmp_path / "dir" / "store.db"
