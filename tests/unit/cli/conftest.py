"""A store with one goal in it, by the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

# Tests of this folder import what they share from beside them.
sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("command_line")


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command line over an empty store, in a directory and a home of its own."""
    from command_line import Cli

    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)
    made = Cli(tmp_path / "work.db")
    made.run("init")
    return made


@pytest.fixture
def goal(cli: Any) -> str:
    """The id of a goal, which is 2, by `ada` in the run `r7`."""
    made: str = cli.out("add", "goal", "Check example.com", "--run", "r7", "--author", "ada")
    return made
