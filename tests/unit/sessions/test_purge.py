"""What was said in a session and is forgotten is nowhere; what stays goes on, and replays to the same tables."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem import Conflict, Held, InvalidInput, NotFound, OutOfReach, Store
from agentmem.store.sessions import Session

sys.path.insert(0, str(Path(__file__).parents[1] / "past"))

from decrypted import search

KEY = bytes(range(32))
SECRET = "zqvxjkwyzqu"
LONG = f"{SECRET} " + "and so on " * 3000


def sound(store: Store) -> None:
    assert store.verify(replay=True).problems == ()


@pytest.fixture
def goal(store: Store) -> int:
    return store.notes.add("goal", "Answer the customers").id


def _event(type: str, body: Any, **more: Any) -> Callable[[Session], object]:
    return lambda session: session.append(type, body, **more)


def _result(session: Session) -> object:
    call = session.append("agent.tool_use", {"name": "orders", "input": {}})
    return session.append("agent.tool_result", {"tool_use_id": call.id, "content": f"It is {SECRET}"})


def _denied(session: Session) -> object:
    call = session.append("agent.tool_use", {"name": "orders", "input": {}, "permission": "ask"})
    return session.confirm(call.id, "deny", message=f"Not with {SECRET}")


def _quoted(session: Session) -> object:
    event = session.append("user.message", f"The number is {SECRET}")
    session.append("x.plan", {"text": "go on"}, key="plan")
    session.compact(budget=1000, pinned=[event.id])
    fork = session.fork()
    fork.append("user.message", "other")
    fork.compact(budget=1000, pinned=[event.id])
    return event


SAID: dict[str, Callable[[Session], object]] = {
    "a message": _event("user.message", f"The number is {SECRET}"),
    "a long message": _event("agent.message", LONG),
    "a call": _event("agent.tool_use", {"name": "pay", "input": {"card": SECRET}}),
    "a call that waits": _event("agent.tool_use", {"name": "pay", "input": {"card": SECRET}, "permission": "ask"}),
    "a result": _result,
    "a denial": _denied,
    "thinking": _event("agent.thinking", {"content": [{"type": "thinking", "thinking": SECRET}]}),
    "state": _event("x.card", {"number": SECRET}, key=f"card-{SECRET}"),
    "a request": lambda session: session.append("user.message", f"It is {SECRET}", request_id="r"),
    "what a window quotes": _quoted,
}


@pytest.fixture
def proof(path: Path, tmp_path: Path, opened: Callable[..., Store], clock: Any) -> Callable[..., None]:
    """`proof(write, purge)` shows that the secret can be found once it is written, and nowhere once it was purged."""

    def prove(write: Callable[[Store], Any], purge: Callable[[Store, Any], Any]) -> None:
        with opened(author="ana", run="r1") as store:
            given = write(store)
        assert "pages" in search(path, KEY, tmp_path, SECRET).places
        clock.advance(seconds=86_400)
        with opened(author="ana", run="r1") as store:
            purge(store, given)
            sound(store)
        assert search(path, KEY, tmp_path, SECRET).places == ()

    return prove


@pytest.mark.parametrize("name", SAID)
def test_an_event_that_was_forgotten_is_nowhere(proof: Callable[..., None], name: str) -> None:
    """Its text goes; the session goes on, with the frame of the event in its place."""

    def write(store: Store) -> Any:
        session = store.sessions.start(title="Case", task=store.notes.add("goal", "Help"))
        event = SAID[name](session)
        session.append("user.message", "and then")
        return session.id, event

    def purge(store: Store, given: Any) -> None:
        session, event = given
        before = store.sessions.get(session).event(event.id)
        assert store.forget(event.id).ids == (event.id,)
        after = store.sessions.get(session).event(event.id)
        assert (after.type, after.target, after.body, after.text) == (before.type, before.target, None, "")
        with pytest.raises(NotFound):
            store.forget(event.id)

    proof(write, purge)


@pytest.mark.parametrize("name", SAID)
def test_a_session_that_was_forgotten_is_nowhere(proof: Callable[..., None], name: str) -> None:
    """One event ends all of it: what it is, what was said, what was written under its requests."""

    def write(store: Store) -> Any:
        session = store.sessions.start(title=f"About {SECRET}", agent=f"agent {SECRET}", metadata={"card": SECRET})
        SAID[name](session)
        return session.id

    def purge(store: Store, given: Any) -> None:
        events = [event.id for event in store.sessions.get(given).events()]
        receipt = store.forget(given)
        assert set(receipt.ids) == {given, *events}
        for fork in receipt.also_found_in:  # what it is called is its own
            store.forget(fork)
        for each in (given, *events):
            with pytest.raises(NotFound):
                store.get(each)
            with pytest.raises(NotFound):
                store.forget(each)

    proof(write, purge)


def test_a_project_that_was_forgotten_takes_its_sessions(proof: Callable[..., None]) -> None:
    """With the memory goes what was said about it."""

    def write(store: Store) -> None:
        for session in (store.sessions.start(title=SECRET), store.sessions.start()):
            SAID["what a window quotes"](session)

    proof(write, lambda store, _: store.forget(project="acme"))


def test_what_a_window_quotes_of_a_note_goes_with_the_note(proof: Callable[..., None]) -> None:
    """The kept beginning of a window has the task's `resume` in it."""

    def write(store: Store) -> int:
        goal = store.notes.add("goal", "Help")
        fact = store.notes.add("fact", f"The number is {SECRET}", parent=goal)
        assert SECRET in store.sessions.start(task=goal).compact().head
        return fact.id

    proof(write, lambda store, fact: store.forget(fact))


def test_an_earlier_title_is_redacted(proof: Callable[..., None]) -> None:
    """What a session was called before is gone; what it is called, and how it stands, stays."""

    def write(store: Store) -> int:
        session = store.sessions.start(title=f"About {SECRET}", agent="a", metadata={"card": SECRET})
        session.append("user.message", "hello")
        session.append("session.status_running")
        session.change(title="About a card", metadata={"a": "b"})
        return session.id

    def purge(store: Store, session: int) -> None:
        before = store.sessions.get(session).info
        assert store.redact(session).ids == (session,)
        after = store.sessions.get(session).info
        assert after.title == before.title == "About a card"
        assert (after.status, after.last, after.metadata, after.agent) == (
            "running",
            before.last,
            {"a": "b"},
            {"name": "a"},
        )

    proof(write, purge)


def test_an_event_has_no_earlier_text(store: Store) -> None:
    """It never changes, so there is nothing to redact."""
    event = store.sessions.start().append("user.message", "hello")
    with pytest.raises(InvalidInput, match="event of a session"):
        store.redact(event)


@pytest.mark.parametrize("of", ["session.status_running", "session.status_idle", "agentmem.timer"])
def test_how_a_session_stands_is_not_purged_by_itself(store: Store, of: str) -> None:
    """These hold no text of people, and what comes after hangs on them."""
    body: Any = {"session.status_idle": {"stop_reason": {"type": "end_turn"}}, "agentmem.timer": {"at": 1}}.get(of)
    event = store.sessions.start().append(of, body)
    with pytest.raises(InvalidInput, match="by itself"):
        store.forget(event)


def test_a_dry_run_says_what_a_purge_would_do(store: Store, goal: int) -> None:
    """The events and heads it would erase, and what it would change."""
    session = store.sessions.start(task=goal)
    event = session.append("user.message", "hello")
    head = session.compact().cut
    planned = store.forget(event, dry_run=True)
    done = store.forget(event)
    assert planned.events == done.events == (event.id, head)
    assert planned.ids == done.ids == (event.id,)
    child = store.sessions.start(parent=session)
    planned = session.forget(dry_run=True)
    done = session.forget()
    assert planned.ids == done.ids
    assert planned.detached == done.detached == (child.id,)


def test_children_stay_and_forks_keep_what_is_their_own(store: Store) -> None:
    """A child has no parent any more; of a fork the events it began with are not there any more."""
    session = store.sessions.start(title="First")
    session.append("user.message", "hello")
    child = store.sessions.start(parent=session)
    fork = session.fork()
    fork.append("user.message", "other")
    fork.compact()
    session.forget()
    assert child.info.parent is None
    assert fork.info.forked_from == session.id
    assert [event.text for event in fork.events() if event.text] == ["other"]
    assert "hello" not in fork.window().text
    sound(store)


def test_a_session_goes_on_without_its_task(store: Store, goal: int) -> None:
    """The task is purged, the conversation is not."""
    session = store.sessions.start(task=goal)
    assert store.forget(goal).detached == (session.id,)
    assert session.info.task is None
    session.append("user.message", "hello")
    assert session.window().events
    sound(store)


def test_a_session_whose_subject_is_purged_sees_nothing(store: Store) -> None:
    """It is not kept apart from nothing because nobody knows from what: it is put away, and stays so."""
    store.entities.put("customer", "A")
    store.entities.put("customer", "B")
    store.notes.add("fact", "B pays late", about="customer:B")
    session = store.sessions.start(about="customer:A")
    child = store.sessions.start(parent=session)
    session.append("user.message", "hello")
    receipt = store.forget("customer:A")
    assert {session.id, child.id} <= set(receipt.detached)
    again = store.sessions.get(session.id)
    assert again.info.archived_at is not None
    assert [event.text for event in again.events()] == ["hello"]
    assert "late" not in again.window().text
    for refused in (
        lambda: again.store, lambda: again.change(archived=False), again.fork, lambda: store.sessions.start(parent=again),
        lambda: again.append("user.message", "x"), lambda: store.sessions.start(about="customer:B", parent=again),
    ):  # fmt: skip
        with pytest.raises((Conflict, OutOfReach)):
            refused()
    sound(store)
    again.forget()
    sound(store)


def test_a_subject_that_is_there_again_is_one_again(store: Store) -> None:
    """While its creation is taken back the session sees nothing; afterwards it sees what it saw."""
    entity = store.entities.put("customer", "A").id
    session = store.sessions.start(about=entity)
    undone = store.undo(entity)
    with pytest.raises(Conflict):
        _ = session.store
    store.undo(undone.events)
    assert session.store.recall("anything").hits == ()


def test_who_runs_a_session_keeps_it(store: Store) -> None:
    """While somebody else is at work neither the session nor an event of it is purged."""
    session = store.sessions.start()
    event = session.append("user.message", "hello")
    store.acting(run="other").sessions.get(session.id).hold()
    for ref in (session, event):
        with pytest.raises(Held):
            store.forget(ref)
        with pytest.raises(Held):
            store.forget(ref, dry_run=True)


def test_calls_keep_their_results_by_their_frames(store: Store) -> None:
    """Which call has a result, and which waits for whom, is told by what stays of purged events."""
    session = store.sessions.start()
    made = session.extend(
        [
            ("agent.tool_use", {"name": "a", "input": {}}), ("agent.tool_result", {"tool_use_id": -1, "content": "x"}),
            ("agent.tool_use", {"name": "b", "input": {}, "permission": "ask"}),
            ("agent.tool_use", {"name": "c", "input": {}, "permission": "ask"}),
        ]
    )  # fmt: skip
    session.confirm(made.ids[3], "allow")
    for each in reversed(made.ids):
        store.forget(each)
        sound(store)
    with store.database.read() as connection:
        rows = connection.execute("SELECT id, open, asks FROM message WHERE type = 'agent.tool_use'").fetchall()
    assert rows == [(made.ids[0], 0, 0), (made.ids[2], 1, 1), (made.ids[3], 1, 0)]


def test_the_receipt_names_what_says_the_same(store: Store) -> None:
    """The text stands in a note, in an event of another session: those are named, words of tools are not."""
    text = "The order number is 4711-0815"
    session, other = store.sessions.start(), store.sessions.start()
    call = {"name": "look_up_orders", "input": {"number": text}}
    event = session.append("agent.tool_use", call)
    fact = store.notes.add("fact", text)
    said = other.append("user.message", f"{text}, I think")
    other.append("agent.tool_use", {"name": "look_up_orders", "input": {}})
    assert store.forget(event).also_found_in == (fact.id, said.id)


def test_a_request_of_a_purged_event_is_gone(store: Store) -> None:
    """A retry is told so, and appends nothing."""
    session = store.sessions.start()
    session.extend([("user.message", "a"), ("user.message", "b")], request_id="one")
    last = session.events()[-1]
    store.forget(last.id)
    with store.database.read() as connection:
        assert connection.execute("SELECT arguments FROM request WHERE id = 'one'").fetchall() == [(b"",)]
