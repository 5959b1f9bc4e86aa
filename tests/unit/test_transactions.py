"""Grouping commands: all or none, nested by savepoints, one state for each answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Closed, InvalidInput, NewNote, NotFound, Store


def counted(store: Store) -> int:
    """The number of events."""
    return store.log.head().seq


def test_a_transaction_keeps_all_or_none(store: Store, undone: Any) -> None:
    """An exception in the block undoes every command of it."""
    store.notes.add("goal", "Before")
    head = store.log.head()
    with undone(store):
        goal = store.notes.add("goal", "Lost")
        store.checklists.add(goal, "Lost too")
        store.entities.put("host", "a")
    assert store.log.head() == head
    assert [note.title for note in store.notes.list()] == ["Before"]
    assert store.verify(replay=True)


def test_an_error_passes_through_a_transaction(store: Store) -> None:
    """What was raised in the block is what the caller gets."""

    def fail() -> None:
        with store.transaction():
            store.notes.add("goal", "Lost")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert store.notes.list() == ()


def test_own_writes_are_seen_inside_and_by_nobody_else(store: Store, opened: Callable[..., Store]) -> None:
    """Reading inside the transaction sees it; another opening of the file does not before the commit."""
    other = opened()
    with store.transaction():
        goal = store.notes.add("goal", "Seen")
        assert store.notes.get(goal).title == "Seen"
        assert store.left().steps_total == 1
        assert store.find("seen").hits[0].id == goal.id
        assert other.notes.list() == ()
    assert [note.title for note in other.notes.list()] == ["Seen"]


def test_a_command_that_fails_undoes_itself_and_no_other(store: Store) -> None:
    """An error caught inside the block leaves what came before and what comes after."""
    with store.transaction():
        goal = store.notes.add("goal", "Kept")
        with pytest.raises(InvalidInput):
            store.notes.add_many([NewNote("step", "Half", parent=goal), NewNote("step", "")])
        with pytest.raises(NotFound):
            store.notes.add("step", "Linked", links=[("supports", goal), ("supports", 10**6)])
        store.notes.add("step", "Kept too", parent=goal)
    assert [note.title for note in store.notes.list()] == ["Kept", "Kept too"]
    assert counted(store) == 3  # the project and two notes
    assert store.verify(replay=True)


def test_transactions_nest_by_savepoints(store: Store, undone: Any) -> None:
    """An inner block that fails takes back its own commands; an outer one takes back the inner's too."""
    with store.transaction():
        store.notes.add("goal", "Outer")
        with undone(store):
            store.notes.add("goal", "Inner")
            with store.transaction():
                store.notes.add("goal", "Innermost")
        with store.transaction():
            store.notes.add("goal", "Second")
    assert [note.title for note in store.notes.list()] == ["Outer", "Second"]
    assert store.verify(replay=True)


def test_all_of_a_transaction_stands_together_in_the_log(store: Store, opened: Callable[..., Store]) -> None:
    """No event of another writer comes between those of one transaction."""
    other = opened(author="bob", busy_timeout=60)
    begun = threading.Event()

    def write() -> None:
        begun.wait()
        other.notes.add("fact", "From elsewhere")

    thread = threading.Thread(target=write)
    thread.start()
    with store.transaction():
        store.notes.add("goal", "One")
        begun.set()
        for number in range(20):
            store.notes.add("fact", f"Number {number}")
    thread.join()
    authors = [event.author for event in store.log.read()]
    assert authors == ["ana"] * 22 + ["bob"]
    assert store.verify(replay=True)


def test_views_share_a_transaction(store: Store, undone: Any) -> None:
    """A block spans projects and actors: they are views of one file."""
    with undone(store):
        store.in_project("beta").notes.add("goal", "Elsewhere")
        store.acting(author="bob").notes.add("goal", "By bob")
    assert store.projects.list() == ()


def test_threads_write_one_after_the_other(store: Store) -> None:
    """Eight threads on one store lose nothing and break nothing."""

    def write(name: int) -> None:
        view = store.acting(author=f"t{name}")
        for number in range(10):
            with view.transaction():
                note = view.notes.add("fact", f"{name} {number}", similar=False)
                view.notes.update(note, append="More")

    threads = [threading.Thread(target=write, args=(name,)) for name in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({note.title for note in store.notes.list()}) == 80
    assert store.verify(replay=True)


def test_w10_an_answer_is_one_state_of_the_file(store: Store, opened: Callable[..., Store]) -> None:
    """An answer made of several queries may mix two states where another process writes in between. Ours never does."""
    goal = store.notes.add("goal", "Swap")
    step = store.notes.add("step", "Either this is open", parent=goal)
    store.checklists.add(goal, "or this is not ticked", done=True)
    other = opened(busy_timeout=60)
    stop = threading.Event()

    def swap() -> None:
        open_now = False
        while not stop.is_set():
            with other.transaction():
                other.notes.update(step, status="open" if open_now else "dropped")
                (other.checklists.done if open_now else other.checklists.undone)(goal, 1)
            open_now = not open_now

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        seen = {(answer.steps_total, answer.items_total) for answer in (store.left(goal) for _ in range(150))}
    finally:
        stop.set()
        thread.join()
    assert seen <= {(1, 0), (0, 1)}


def test_a_closed_store_says_so(store: Store) -> None:
    """Every use after closing is one clear error; closing twice is fine."""
    store.close()
    store.close()
    with pytest.raises(Closed):
        store.notes.add("fact", "Late")
    with pytest.raises(Closed):
        store.left()
