"""A view that is limited to a note speaks in the sessions of that note's work, and answers for nobody."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agentmem import OutOfReach, Store


@pytest.fixture
def goal(store: Store) -> int:
    return store.notes.add("goal", "Answer the customers").id


@pytest.fixture
def step(store: Store, goal: int) -> int:
    return store.notes.add("step", "Answer the first", parent=goal).id


@pytest.fixture
def worker(store: Store, step: int) -> Store:
    return store.beneath(step)


def test_it_begins_sessions_for_its_note_and_beneath(store: Store, worker: Store, step: int) -> None:
    """What it was given to do is done in conversations too."""
    deeper = worker.notes.add("step", "Look it up", parent=step)
    for task in (step, deeper.id):
        session = worker.sessions.start(task=task)
        session.append("user.message", "hello")
        session.fork()
        assert [event.text for event in store.sessions.get(session).events()] == ["hello"]


def test_it_begins_none_elsewhere(worker: Store, store: Store, goal: int) -> None:
    """Without a task, or with one that is not beneath, a session is out of reach."""
    head = store.log.head()
    for task in (None, goal):
        with pytest.raises(OutOfReach):
            worker.sessions.start(task=task)
    assert store.log.head() == head


@pytest.mark.parametrize(
    "write",
    [
        lambda session: session.append("user.message", "hello"), lambda session: session.hold(),
        lambda session: session.compact(), lambda session: session.fork(), lambda session: session.change(title="x"),
        lambda session: session.archive(), lambda session: session.forget(), lambda session: session.forget(dry_run=True),
    ],
)  # fmt: skip
def test_it_has_no_part_in_the_sessions_of_others(
    worker: Store, store: Store, goal: int, write: Callable[[object], object]
) -> None:
    """Sessions of a task above it, and those without one, it can read and nothing else."""
    for session in (store.sessions.start(task=goal), store.sessions.start()):
        session.append("user.message", "theirs")
        head = store.log.head()
        assert [event.text for event in worker.sessions.get(session.id).events()] == ["theirs"]
        with pytest.raises(OutOfReach):
            write(worker.sessions.get(session.id))
        assert store.log.head() == head


def test_it_does_not_answer_for_a_person(worker: Store, store: Store, step: int) -> None:
    """A call that waits for a person waits for one, be it in a session of its own."""
    session = worker.sessions.start(task=step)
    call = session.append("agent.tool_use", {"name": "pay", "input": {"sum": 3}, "permission": "ask"})
    with pytest.raises(OutOfReach):
        session.confirm(call.id, "allow")
    with pytest.raises(OutOfReach):
        worker.sessions.confirm(call.id, "deny")
    with pytest.raises(OutOfReach):
        session.append("user.tool_confirmation", {"tool_use_id": call.id, "result": "allow"})
    assert [one.event for one in store.sessions.waiting()] == [call.id]
    store.sessions.confirm(call.id, "allow", by="ana")
    assert store.sessions.waiting() == ()


def test_it_leaves_sessions_as_they_are(worker: Store, step: int) -> None:
    """Title, archive and end of a session are for whoever gave the task."""
    session = worker.sessions.start(task=step)
    event = session.append("user.message", "hello")
    for change in (lambda: session.change(title="x"), session.archive, session.forget, lambda: worker.forget(event)):
        with pytest.raises(OutOfReach):
            change()


def test_a_purge_within_its_reach_takes_what_windows_quote(worker: Store, store: Store, step: int) -> None:
    """The kept beginning of a window is made of other texts, and goes with them wherever it stands."""
    fact = worker.notes.add("fact", "The password is hunter2", parent=step)
    session = store.sessions.start(task=step)
    assert "hunter2" in session.compact().text
    worker.forget(fact)
    assert "hunter2" not in session.window().text
    assert all("hunter2" not in str(event.body) for event in session.events())
    assert store.verify(replay=True).problems == ()
