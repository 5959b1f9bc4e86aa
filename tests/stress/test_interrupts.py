"""Interrupts at every instruction of writes and reads: nothing acknowledged is lost, nothing is half there, and the store goes on."""

# ruff: noqa: PT012  (what is interrupted is all of a statement)

from __future__ import annotations

import ctypes
import dis
import gc
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import agentmem
from agentmem import Store

SOURCE = str(Path(agentmem.__file__).parent)
TITLES = ("Written one", "Written two")


class Stopped(BaseException):
    """What is raised, as a KeyboardInterrupt would be."""


class Injector:
    """Raises `Stopped` at one instruction, counted from the start, of the library's Python code."""

    def __init__(self, at: int, *, files: tuple[str, ...]) -> None:
        self.at = at
        self.files = files
        self.seen = 0
        self.where = ""

    def __enter__(self) -> Injector:
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _called(self, frame: FrameType, event: str, _: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(SOURCE) or not name.endswith(self.files):
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        self._count(frame)
        return self._step

    def _step(self, frame: FrameType, event: str, _: object) -> Any:
        if event == "opcode" and frame.f_lasti not in leaving_locks(frame.f_code):
            self._count(frame)
        return self._step

    def _count(self, frame: FrameType) -> None:
        self.seen += 1
        if self.seen == self.at:
            self.where = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} at {frame.f_lasti}"
            raise Stopped


_known: dict[CodeType, frozenset[int]] = {}


def leaving_locks(code: CodeType) -> frozenset[int]:
    """The instructions that call `__exit__` of a `with` statement, up to the call.

    They follow one another without the interpreter looking for signals. A tracer could raise there, a signal can't.
    """
    if code not in _known:
        found: set[int] = set()
        listed = list(dis.get_instructions(code))
        for index in range(len(listed) - 2):
            if all(each.opname == "LOAD_CONST" and each.argval is None for each in listed[index : index + 3]):
                after = iter(listed[index:])
                for each in after:
                    found.add(each.offset)
                    if each.opname.startswith("CALL"):
                        break
        _known[code] = frozenset(found)
    return _known[code]


ENGINE = ("engine/transactions.py", "engine/sessions.py", "engine/stays.py", "engine/pool.py", "log/ledger.py")


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """The store that is interrupted, and another opening of its file to look at it from outside."""
    options: dict[str, Any] = {"project": "acme", "encrypted": False, "durability": "normal", "busy_timeout": 0.3}
    with Store.open(tmp_path / "s.db", **options) as store, Store.open(tmp_path / "s.db", **options) as other:
        store.notes.add("goal", "First")
        yield store, other


def titles(store: Store) -> list[str]:
    return [event.payload["title"] for event in store.log.read(limit=1000) if "title" in (event.payload or {})]


def command(store: Store) -> list[Any]:
    return [store.notes.add("fact", TITLES[0], similar=False)]


def grouped(store: Store) -> list[Any]:
    with store.transaction():
        return [store.notes.add("fact", title, similar=False) for title in TITLES]


def caught_inside(store: Store) -> list[Any]:
    """A group in which one command is interrupted and the block goes on."""
    made = []
    with store.transaction():
        for title in TITLES:
            try:
                made.append(store.notes.add("fact", title, similar=False))
            except Stopped:
                continue
    return made


def failing(store: Store) -> list[Any]:
    try:
        with store.transaction():
            store.notes.add("fact", TITLES[0], similar=False)
            raise LookupError
    except LookupError:
        return []


def every_instruction(run: Callable[[], Any], files: tuple[str, ...], step: int = 1) -> Iterator[tuple[Any, Any, str]]:
    """Run again and again, each time stopped at the next instruction; (answer, what it was stopped by, where)."""
    at = 1
    while True:
        answer = stopped = None
        with Injector(at, files=files) as injector:
            try:
                answer = run()
            except Stopped as error:
                stopped = error
        yield answer, stopped, f"{at}: {injector.where}"
        if not injector.where:
            return
        at += step


@pytest.mark.parametrize("keep", [False, True], ids=["", "traceback kept"])
@pytest.mark.parametrize("write", [command, grouped, caught_inside, failing])
def test_a_write_interrupted_anywhere(pair: tuple[Store, Store], write: Callable[[Store], list[Any]], keep: bool) -> None:
    """At whatever instruction a write is stopped, it is all there or not at all, and the next command commits."""
    store, other = pair
    kept: list[Any] = []
    expected = titles(other)
    count = 0
    for made, stopped, where in every_instruction(lambda: write(store), ENGINE):
        count += 1
        if keep:
            kept[:] = [stopped]
        stopped = None if stopped is None else True
        # Another opening can write at once: whatever was interrupted holds no lock.
        foreign = other.notes.add("fact", f"Foreign {count}", similar=False)
        found = titles(other)
        new = found[len(expected) : -1]
        if stopped:
            assert new in ([], [TITLES[0]] if write is command else list(TITLES)), where
        else:
            assert len(new) == len(made), where
            assert all(not each.void and not each.provisional for each in made), where
        after = store.notes.add("fact", f"After {count}", similar=False)
        assert not after.provisional, where
        assert after.id > foreign.id
        assert titles(other) == [*expected, *new, f"Foreign {count}", f"After {count}"], where
        assert titles(store) == titles(other), where
        expected = titles(other)
        if count % 20 == 0:
            other.entities.put("host", f"h{count}")  # keeps the log of the other kinds going
        if len(expected) > 200:
            expected = restart(pair)
            store, other = pair
    assert count > 200
    assert store.verify(replay=True)


def restart(pair: tuple[Store, Store]) -> list[str]:
    return titles(pair[1])
