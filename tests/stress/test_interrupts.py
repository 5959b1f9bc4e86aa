"""Interrupts at every instruction: nothing acknowledged is lost, nothing is half there, and the store goes on."""

from __future__ import annotations

import ctypes
import dis
import random
import signal
import sys
import threading
import time
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


def every_instruction(
    run: Callable[[], Any], step: int, files: tuple[str, ...] = ENGINE
) -> Iterator[tuple[list[BaseException], str]]:
    """Run again and again, each time stopped at a later instruction; (what stopped it, if it was stopped, and where).

    While the list is not cleared, the traceback keeps alive what the stopped frames had.
    """
    at = 1
    while True:
        stopped: list[BaseException] = []
        with Injector(at, files=files) as injector:
            try:
                run()
            except Stopped as error:
                stopped.append(error)
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
    made: list[Any] = []
    count = 0
    head = other.log.head().seq
    for stopped, where in every_instruction(lambda: write(store, made), step):
        count += 1
        was_stopped = bool(stopped)
        if not keep:
            stopped.clear()
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
    # Later Pythons tell a tracer of single instructions only where code runs twice in one tracing.
    assert count > (200 if sys.version_info < (3, 12) else 20) / step
    assert store.verify(replay=True)


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_a_read_stopped_anywhere(pair: tuple[Store, Store], step: int) -> None:
    """At whatever instruction a read is stopped, the next one sees the newest state, and no reader is lost."""
    store, other = pair
    count = 0
    for _, where in every_instruction(store.log.head, step):
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
    assert count > 30 / step


@pytest.mark.parametrize("step", [53, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("read", [lambda store: store.notes.list(), lambda store: store.resume().text])
def test_an_answer_stopped_anywhere(pair: tuple[Store, Store], read: Callable[[Store], object], step: int) -> None:
    """At whatever instruction of the whole library an answer is stopped, the next one sees the newest state."""
    store, other = pair
    goal = store.notes.add("goal", "Second")
    for number, (stopped, where) in enumerate(every_instruction(lambda: read(store), step, files=("",))):
        stopped.clear()
        other.notes.update(goal, title=f"Now {number}")
        assert store.notes.get(goal).title == f"Now {number}", where
        assert store.notes.update(goal, body=f"Then {number}").changed == ("body",), where
        assert other.notes.get(goal).body == f"Then {number}", where


@pytest.mark.parametrize("seconds", [1.0, pytest.param(30.0, marks=pytest.mark.slow)])
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no interval timer")
def test_a_storm_of_signals(pair: tuple[Store, Store], seconds: float) -> None:
    """Signals whose handler raises, at random moments of writes and reads, lose nothing that was acknowledged."""
    store, other = pair
    chance = random.Random(5)
    armed = [False]

    def stop(_: int, frame: FrameType | None) -> None:
        # Not in what the interpreter calls where nobody can catch it, as it drops an object.
        if armed[0] and frame is not None and frame.f_code.co_filename.startswith(SOURCE):
            armed[0] = False
            raise Stopped

    before = signal.signal(signal.SIGALRM, stop)
    try:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            head = other.log.head().seq
            made: list[Any] = []
            try:
                armed[0] = True
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.002))
                if chance.random() < 0.3:
                    store.notes.list()
                else:
                    chance.choice([command, grouped, nested])(store, made)
                armed[0] = False
            except Stopped:
                pass
            armed[0] = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            after = store.notes.add("fact", "After", similar=False)
            new = titles(other, head)
            assert new in (["After"], [TITLES[0], "After"], [*TITLES, "After"])
            assert not made or (len(new) == len(made) + 1 and other.notes.get(made[0].id).title == TITLES[0])
            assert other.log.head().seq == after.id
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert store.verify(replay=True)


def test_an_exception_set_from_another_thread(pair: tuple[Store, Store]) -> None:
    """PyThreadState_SetAsyncExc into threads that write: what they were told is there is there, and others go on."""
    store, other = pair
    told: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            try:
                told.append(store.notes.add("fact", "Told", similar=False).id)
            except Stopped:
                continue

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    raiser = ctypes.pythonapi.PyThreadState_SetAsyncExc
    for number in range(200):
        thread = threads[number % 2]
        raiser(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Stopped))
        for _ in range(chance.randrange(3)):
            other.notes.add("fact", "Beside", similar=False)
    stop.set()
    for thread in threads:
        thread.join()
    there = {event.record for event in other.log.read(limit=1000, kinds=("note.added",))}
    after = 0
    while page := other.log.read(after=after, limit=1000):
        there |= {event.record for event in page}
        after = page[-1].seq
    assert told
    assert set(told) <= there
    assert other.notes.add("fact", "Last", similar=False).id > max(told)
    assert store.verify(replay=True)


def read_together(store: Store, barrier: threading.Barrier) -> None:
    try:
        with store._shared.database.read():
            barrier.wait(10)
    except BaseException:
        barrier.abort()
        raise
