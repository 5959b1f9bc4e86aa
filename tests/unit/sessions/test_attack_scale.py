"""What is read of a long session, or beside one, costs as much as of a short one: counted in steps of the database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentmem import Store
from agentmem.store.sessions import Session


def steps(store: Store, work: Callable[[], Any]) -> int:
    """How many hundreds of steps SQLite makes for some work that is done within one view."""
    counted = [0]

    def one() -> bool:
        counted[0] += 1
        return False

    work()  # what is made at the first time only
    with store._binding.reading() as view:
        view.connection.set_progress_handler(one, 100)
        try:
            work()
        finally:
            view.connection.set_progress_handler(None)
    return counted[0]


def worked(session: Session, turns: int) -> None:
    """So many calls of tools with their results, without a word of a user."""
    for _ in range(turns // 250):
        entries: list[tuple[str, dict[str, Any]]] = []
        for at in range(250):
            entries.append(("agent.tool_use", {"name": "f", "input": {"n": at}}))
            entries.append(("agent.tool_result", {"tool_use_id": -len(entries), "content": "some words of a result"}))
        session.extend(entries)


def test_the_way_back_into_a_project_does_not_lead_through_its_conversations(store: Store) -> None:
    """However much was said since its notes were written."""
    store.notes.add("goal", "Answer the customers")
    session = store.sessions.start()
    worked(session, 250)
    before = steps(store, store.resume)
    worked(session, 3000)
    assert steps(store, store.resume) < 1.5 * before + 20


def test_a_window_does_not_take_longer_with_each_call(store: Store) -> None:
    """With a kept head, whatever is behind it: it looks for the last message of a user, and counts on from the head."""
    session = store.sessions.start()
    session.append("user.message", "?")  # nothing to search for: that takes what the words take
    worked(session, 1000)
    session.compact(budget=4000)
    before = steps(store, lambda: session.window(budget=4000))
    worked(session, 5000)
    session.compact(budget=4000)
    assert steps(store, lambda: session.window(budget=4000)) < 1.5 * before + 20


def test_few_of_very_long_events_are_read_for_a_new_head(store: Store) -> None:
    """The newest that can be shown, not the thousands that there may be; what was called stays with what came of it."""
    session = store.sessions.start()
    session.append("user.message", "go")
    for at in range(150):
        entries = [
            ("agent.tool_use", {"name": "f", "input": {"n": at}}),
            ("agent.tool_result", {"tool_use_id": -1, "content": f"{at} line of output\n" * 5000}),
        ]
        session.extend(entries)
    window = session.compact(budget=2000)
    assert [event.type for event in window.events[-2:]] == ["agent.tool_use", "agent.tool_result"]
    assert window.left_out + len(window.events) == 301
    assert window.tokens <= 2000
