"""What is no more, as those see it who knew it before."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentmem import NotFound, Store


def undone(store: Store, note: int) -> None:
    store.undo(note)


def purged(store: Store, note: int) -> None:
    store.forget(note)


ENDS = pytest.mark.parametrize("end", [undone, purged])


@ENDS
def test_work_on_a_task_that_is_no_more_is_told_so(store: Store, end: Callable[[Store, int], None]) -> None:
    """Whoever acts for it gets a typed error from every verb that needs it, and nothing is written."""
    goal = store.notes.add("goal", "One")
    worker = store.acting(run="w", task=goal)
    end(store, goal.id)
    head = store.log.head()
    for call in (
        lambda: worker.checkpoint("Here"),
        lambda: worker.attempts.open("Try"),
        worker.resume,
        worker.left,
        lambda: worker.notes.add("step", "Next", parent=goal),
        lambda: worker.notes.update(goal, title="Two"),
        lambda: worker.checklists.add(goal, "one"),
        lambda: worker.summarize(goal, work="w"),
        lambda: worker.claim(goal),
        lambda: worker.task_summary(goal),
        lambda: worker.graph(goal),
    ):
        with pytest.raises(NotFound, match=f"#{goal.id}"):
            call()
    assert store.log.head() == head


@ENDS
def test_a_reader_of_what_changed_hears_of_what_is_gone(store: Store, end: Callable[[Store, int], None]) -> None:
    """By its number, without its text; what came and went in between is not told."""
    note = store.notes.add("decision", "Use the old queue")
    seen = store.log.head().seq
    end(store, note.id)
    brief = store.notes.add("decision", "Made and taken back")
    end(store, brief.id)
    text = store.resume(since=seen).text
    assert "undone, merged or purged:" in text
    assert f"#{note.id}" in text
    assert f"#{brief.id}" not in text
    assert "old queue" not in text


@ENDS
def test_a_remembered_request_says_that_its_record_is_gone(store: Store, end: Callable[[Store, int], None]) -> None:
    """Repeated, it writes nothing anew."""
    note = store.notes.add("fact", "One", request_id="q")
    end(store, note.id)
    head = store.log.head()
    again = store.notes.add("fact", "One", request_id="q")
    assert (again.id, again.repeated, again.gone) == (note.id, True, True)
    assert store.log.head() == head
