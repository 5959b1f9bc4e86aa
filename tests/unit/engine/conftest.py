"""A path in a directory of its own, and no key of the caller's around."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmem.engine.database import Database

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


@pytest.fixture
def database(path: Path) -> Iterator[Database]:
    """A file of some 200 pages, opened with `KEY`."""
    from engine_files import add, opened

    with opened(path) as database:
        add(database, 1000)
        yield database


@pytest.fixture
def found(path: Path) -> Iterator[Database]:
    """The same, its key searched for: it is the default one."""
    from engine_files import add, opened

    with opened(path, key=None) as database:
        add(database, 1000)
        yield database


@pytest.fixture
def keyring(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[str, str], str]:
    """A keyring of the operating system that is empty."""
    entries: dict[tuple[str, str], str] = {}
    module = types.ModuleType("keyring")
    module.get_password = lambda service, user: entries.get((service, user))  # type: ignore[attr-defined]
    module.set_password = lambda service, user, text: entries.update({(service, user): text})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "keyring", module)
    return entries
