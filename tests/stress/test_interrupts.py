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
OPTIONS: dict[str, Any] = {"project": "acme", "encrypted": False, "durability": "normal", "busy_timeout": 0.3}


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """The store that is interrupted, and another opening of its file to look at it from outside."""
    with Store.open(tmp_path / "s.db", **OPTIONS) as store, Store.open(tmp_path / "s.db", **OPTIONS) as other:
        store.notes.add("goal", "First")
        yield store, other


def titles(store: Store, after: int) -> list[str]:
    return [event.payload["title"] for event in store.log.read(after=after) if event.payload]


def command(store: Store, made: list[Any]) -> None:
    made.append(store.notes.add("fact", TITLES[0], similar=False))


def grouped(store: Store, made: list[Any]) -> None:
    with store.transaction():
        own = [store.notes.add("fact", title, similar=False) for title in TITLES]
    made += own


def caught_inside(store: Store, made: list[Any]) -> None:
    """A group in which a command is stopped, and the block goes on."""
    own = []
    with store.transaction():
        for title in TITLES:
            try:
                own.append(store.notes.add("fact", title, similar=False))
            except Stopped:
                continue
    made += own


def undone(store: Store, made: list[Any]) -> None:
    try:
        with store.transaction():
            store.notes.add("fact", TITLES[0], similar=False)
            raise LookupError
    except LookupError:
        return


def nested(store: Store, made: list[Any]) -> None:
    with store.transaction():
        made_here = [store.notes.add("fact", TITLES[0], similar=False)]
        undone(store, made)
        with store.transaction():
            made_here.append(store.notes.add("fact", TITLES[1], similar=False))
    made += made_here


def every_instruction(run: Callable[[], Any], step: int) -> Iterator[tuple[BaseException | None, str]]:
    """Run again and again, each time stopped at a later instruction; (what stopped it, where)."""
    at = 1
    while True:
        stopped = None
        with Injector(at, files=ENGINE) as injector:
            try:
                run()
            except Stopped as error:
                stopped = error
        yield stopped, f"{at}: {injector.where}"
        if not injector.where:
            return
        at += step


@pytest.mark.parametrize("step", [7, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("keep", [False, True], ids=["", "traceback kept"])
@pytest.mark.parametrize("write", [command, grouped, nested, caught_inside, undone])
def test_a_write_stopped_anywhere(
    pair: tuple[Store, Store], write: Callable[[Store, list[Any]], None], keep: bool, step: int
) -> None:
    """At whatever instruction a write is stopped, it is all there or not at all, and the next command commits."""
    store, other = pair
    kept: list[Any] = []
    made: list[Any] = []
    count = 0
    head = other.log.head().seq
    for stopped, where in every_instruction(lambda: write(store, made), step):
        count += 1
        was_stopped = stopped is not None
        kept[:] = [stopped] if keep else []
        del stopped
        # Whatever was stopped holds no lock any more: another opening writes before this one is used again.
        other.notes.add("fact", "Foreign", similar=False)
        new = titles(other, head)[:-1]
        whole = TITLES[:1] if write in (command, undone) else TITLES
        if write is caught_inside:
            assert [title for title in TITLES if title in new] == new, where
            assert len(new) >= len(made), where
        elif was_stopped and not made:
            assert new in ([], list(whole)), where
            assert write is not undone or new == [], where
        else:
            assert new == ([] if write is undone else list(whole)), where
        for each in made:
            assert (each.void, each.provisional) == (False, False), where
            assert other.notes.get(each.id).title in new, where
        assert not store._shared.database.in_write(), where
        after = store.notes.add("fact", "After", similar=False)
        assert (after.void, after.provisional) == (False, False), where
        assert titles(other, head) == [*new, "Foreign", "After"], where
        assert titles(store, head) == [*new, "Foreign", "After"], where
        head = other.log.head().seq
        assert head == after.id
        made.clear()
    assert count > 600 / step
    assert store.verify(replay=True)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_read_stopped_anywhere(pair: tuple[Store, Store], step: int) -> None:
    """At whatever instruction a read is stopped, the next one sees the newest state, and no reader is lost."""
    store, other = pair
    count = 0
    for _, where in every_instruction(lambda: store.log.head(), step):
        count += 1
        written = other.notes.add("fact", "Newer", similar=False)
        assert store.log.head().seq == written.id, where
        if count % 5 == 0:
            # As many threads as there are readers, all at once.
            barrier = threading.Barrier(4)
            threads = [threading.Thread(target=read_together, args=(store, barrier)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert not barrier.broken, where
    assert count > 100 / step


def read_together(store: Store, barrier: threading.Barrier) -> None:
    try:
        with store._shared.database.read():
            barrier.wait(10)
    except BaseException:
        barrier.abort()
        raise
