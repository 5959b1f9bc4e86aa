"""Lets the tests of exports import what they share from beside them, and gives them a second store."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentmem import Result, Scope, Store

sys.path.insert(0, str(Path(__file__).parent))

KEY = bytes(range(32))


@pytest.fixture
def another(tmp_path: Path, clock: Callable[[], int]) -> Iterator[Callable[..., Store]]:
    """Opens stores of other names in the same directory; `another("b")`."""
    opened: list[Store] = []

    def open_one(name: str, **options: object) -> Store:
        given = {"project": "acme", "key": KEY, "durability": "normal", "clock": clock} | options
        opened.append(Store.open(tmp_path / f"{name}.db", **given))  # type: ignore[arg-type]
        return opened[-1]

    yield open_one
    for store in opened:
        store.close()


@pytest.fixture
def log(store: Store, tmp_path: Path) -> Path:
    """An export of a store with one record of each type."""
    from forging import filled

    filled(store)
    store.export(tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


@pytest.fixture
def task(store: Store) -> int:
    """A step beneath a goal, with one of everything beneath and on it."""
    goal = store.notes.add("goal", "Check example.com")
    step = store.notes.add("step", "Look at the ports", parent=goal, body="long " * 1000, scope=Scope("host"))
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.entities.put("host", "db", parent="host:web")
    store.entities.mark("host", ["web"], {"tls": Result("pass", value=[1.3], detail="only 1.3")})
    store.entities.expect("host", ["tls"])
    first = store.notes.add("fact", "443 is open", parent=step, about="host:web")
    second = store.notes.add("fact", "8443 is open", parent=step, links=[("supports", first), ("uses", goal)])
    store.notes.move(second, before=first)
    store.checklists.add(step, "one", "two")
    store.checklists.done(step, 2)
    store.checkpoint("halfway", task=step)
    store.summarize(step, work="ports", result="two are open")
    return step.id


@pytest.fixture
def copy(store: Store, task: int, tmp_path: Path) -> Path:
    """An export of that step."""
    store.export(tmp_path / "copy.jsonl", under=task)
    return tmp_path / "copy.jsonl"


@pytest.fixture
def whole(store: Store, task: int, tmp_path: Path) -> Path:
    """An export of the project."""
    store.export(tmp_path / "project.jsonl", project="acme")
    return tmp_path / "project.jsonl"
