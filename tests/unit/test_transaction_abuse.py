"""Transactions left as none may be: out of order, in another task or thread. An error says so, and nothing is lost unsaid."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentmem import Conflict, Store
from agentmem.log.ledger import Transaction


def titles(store: Store) -> list[str]:
    return sorted(note.title or "" for note in store.notes.list())


def usable(store: Store, other: Store) -> None:
    """The store goes on: what it says is written is seen by another opening, which can write too."""
    written = store.notes.add("fact", "Afterwards", similar=False)
    assert not written.provisional
    assert other.notes.get(written).title == "Afterwards"
    other.notes.add("fact", "By another", similar=False)
    assert store.log.head() == other.log.head()
    assert store.verify(replay=True)


@pytest.fixture
def other(opened: Callable[..., Store]) -> Store:
    """Another opening of the file, which does not wait for long."""
    return opened(busy_timeout=0.05)


def in_thread(call: Callable[[], Any]) -> list[BaseException]:
    """Run in another thread; what it raised."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except Conflict as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised


# One object


def test_a_transaction_is_not_entered_inside_itself(store: Store, other: Store) -> None:
    """Entering the same object twice is a Conflict, and the first entry goes on."""
    transaction = store.transaction()
    with transaction:
        store.notes.add("fact", "Kept")
        with pytest.raises(Conflict, match="entered already"), transaction:
            pass
        store.notes.add("fact", "Kept too")
    assert titles(store) == ["Kept", "Kept too"]
    usable(store, other)


def test_a_transaction_may_be_used_again_when_it_is_over(store: Store) -> None:
    """The same object, one block after the other, is two transactions."""
    transaction = store.transaction()
    for title in ("One", "Two"):
        with transaction:
            store.notes.add("fact", title)
    assert titles(store) == ["One", "Two"]


def test_leaving_what_was_never_entered(store: Store, other: Store) -> None:
    """Leaving without having entered, or a second time, is a Conflict."""
    transaction = store.transaction()
    with pytest.raises(Conflict, match="not open"):
        transaction.__exit__(None, None, None)
    with transaction:
        store.notes.add("fact", "Kept")
    with pytest.raises(Conflict, match="not open"):
        transaction.__exit__(None, None, None)
    assert titles(store) == ["Kept"]
    usable(store, other)


def test_an_exit_stack_holds_a_transaction(store: Store, other: Store) -> None:
    """Entered through an ExitStack, or a generator, a transaction lives as long as that does."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(store.transaction())
        gc.collect()
        store.notes.add("fact", "In a stack")
        assert titles(other) == []
    assert titles(other) == ["In a stack"]

    @contextlib.contextmanager
    def grouped() -> Iterator[None]:
        with store.transaction():
            yield

    with grouped():
        gc.collect()
        store.notes.add("fact", "In a generator")
        assert titles(other) == ["In a stack"]
    assert titles(other) == ["In a generator", "In a stack"]


def test_a_transaction_that_is_dropped_is_undone(store: Store, other: Store) -> None:
    """Entered by hand and forgotten, a transaction is rolled back at once, and the store closes."""
    transaction = store.transaction()
    transaction.__enter__()
    written = store.notes.add("fact", "Forgotten")
    del transaction
    assert written.void
    other.notes.add("fact", "By another")
    assert titles(store) == ["By another"]
    store.close()


# Order


def test_leaving_the_outer_before_the_inner(store: Store, other: Store) -> None:
    """Blocks left in the wrong order keep nothing, and each of them says so."""
    outer, inner = store.transaction(), store.transaction()
    outer.__enter__()
    first = store.notes.add("fact", "Outer")
    inner.__enter__()
    second = store.notes.add("fact", "Inner")
    with pytest.raises(Conflict, match="still open"):
        outer.__exit__(None, None, None)
    assert first.void
    assert second.void
    with pytest.raises(Conflict, match="Nothing of this transaction was kept"):
        store.notes.add("fact", "In what is left of it")
    with pytest.raises(Conflict, match="Nothing of this transaction was kept"):
        inner.__exit__(None, None, None)
    assert titles(store) == []
    usable(store, other)


def test_a_middle_block_left_too_early(store: Store, other: Store) -> None:
    """One block left out of order undoes the whole transaction; the outermost, left in order, says so too."""
    middle, inner = store.transaction(), store.transaction()

    def run() -> None:
        with store.transaction():
            store.notes.add("fact", "Outer")
            middle.__enter__()
            inner.__enter__()
            with pytest.raises(Conflict, match="still open"):
                middle.__exit__(None, None, None)
            with pytest.raises(Conflict):
                inner.__exit__(None, None, None)

    with pytest.raises(Conflict, match="Nothing of this transaction was kept"):
        run()
    assert titles(store) == []
    usable(store, other)


def test_an_error_that_passes_is_not_replaced(store: Store, other: Store) -> None:
    """What was raised in a block left out of order comes out as it is."""
    outer, inner = store.transaction(), store.transaction()
    outer.__enter__()
    inner.__enter__()
    raised = KeyError("mine")
    outer.__exit__(KeyError, raised, None)
    with pytest.raises(Conflict):
        inner.__exit__(None, None, None)
    usable(store, other)


# Tasks


def test_two_tasks_cannot_share_a_transaction(store: Store, other: Store) -> None:
    """A task that writes while another holds a transaction over an await gets Conflict; the other's is whole."""

    async def hold(begun: asyncio.Event, go_on: asyncio.Event) -> None:
        with store.transaction():
            store.notes.add("fact", "Held one")
            begun.set()
            await go_on.wait()
            store.notes.add("fact", "Held two")

    async def disturb(begun: asyncio.Event, go_on: asyncio.Event) -> None:
        await begun.wait()
        with pytest.raises(Conflict, match="await"), store.transaction():
            pass
        with pytest.raises(Conflict, match="await"):
            store.notes.add("fact", "Disturbing")
        assert titles(store) == []  # what is not committed is the other task's alone
        go_on.set()

    async def main() -> None:
        events = asyncio.Event(), asyncio.Event()
        await asyncio.gather(hold(*events), disturb(*events))

    asyncio.run(main())
    assert titles(store) == ["Held one", "Held two"]
    usable(store, other)


def test_one_task_after_the_other(store: Store, other: Store) -> None:
    """Tasks whose transactions await nothing, or that take turns, work as functions do."""

    async def write(name: str) -> None:
        for number in range(3):
            with store.transaction(), store.transaction():
                store.notes.add("fact", f"{name} {number}", similar=False)
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(write(name) for name in "abc"))

    asyncio.run(main())
    assert len(titles(store)) == 9
    usable(store, other)


def test_leaving_in_another_task(store: Store, other: Store) -> None:
    """A transaction entered in one task and left in another keeps nothing and says so."""
    written: list[Any] = []

    async def enter(transaction: Transaction) -> None:
        transaction.__enter__()
        written.append(store.notes.add("fact", "Entered elsewhere"))

    async def leave(transaction: Transaction) -> None:
        with pytest.raises(Conflict, match="another asyncio task"):
            transaction.__exit__(None, None, None)

    async def main() -> None:
        transaction = store.transaction()
        first = asyncio.create_task(enter(transaction))
        await first
        await asyncio.create_task(leave(transaction))

    asyncio.run(main())
    assert written[0].void
    assert titles(store) == []
    usable(store, other)


def test_a_loop_inside_a_transaction(store: Store, other: Store) -> None:
    """A transaction around a whole event loop takes in what its tasks write one after the other."""

    async def main() -> None:
        store.notes.add("fact", "In a task")

    with store.transaction():
        asyncio.run(main())
        assert titles(other) == []
    assert titles(other) == ["In a task"]
    usable(store, other)


# Threads


def test_a_generator_finalised_in_another_thread(store: Store, other: Store) -> None:
    """Its transaction is undone there and then, and both threads can write at once."""
    written: list[Any] = []

    def generate() -> Iterator[None]:
        with store.transaction():
            written.append(store.notes.add("fact", "Begun"))
            yield

    generator = generate()
    next(generator)
    assert in_thread(generator.close) == []  # GeneratorExit passes: it is no end in order that could fail
    assert written[0].void
    other.notes.add("fact", "By another")
    assert in_thread(lambda: store.notes.add("fact", "In the other thread")) == []
    usable(store, other)
    assert "Begun" not in titles(store)


def test_a_block_that_ends_in_another_thread(store: Store, other: Store) -> None:
    """A generator that is run to its end elsewhere raises Conflict there, and its values are void."""
    written: list[Any] = []

    def generate() -> Iterator[None]:
        with store.transaction():
            written.append(store.notes.add("fact", "Begun"))
            yield

    generator = generate()
    next(generator)
    (raised,) = in_thread(lambda: next(generator, None))
    assert isinstance(raised, Conflict)
    assert "another thread" in str(raised)
    assert written[0].void
    usable(store, other)


def test_leaving_by_hand_in_another_thread(store: Store, other: Store) -> None:
    """Conflict in the other thread; in its own, the transaction is over and the next command stands alone."""
    transaction = store.transaction()
    transaction.__enter__()
    written = store.notes.add("fact", "Begun")
    (raised,) = in_thread(lambda: transaction.__exit__(None, None, None))
    assert isinstance(raised, Conflict)
    assert written.void
    usable(store, other)
    with pytest.raises(Conflict):
        transaction.__exit__(None, None, None)
    usable(store, other)
