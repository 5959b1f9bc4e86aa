"""The past of sessions: who said what when, how it was at any event, and what a project's history makes of it."""

from __future__ import annotations

import pytest

from agentmem import InvalidInput, NotFound, Store
from agentmem.session_types import SessionEvent, SessionInfo


def test_the_history_of_a_session_is_all_that_happened_in_it(store: Store) -> None:
    """What was said, what it was called, who ran it, and the memory written in it; nothing else."""
    store.notes.add("fact", "Before")
    session = store.sessions.start(title="Case")
    other = store.sessions.start(title="Other")
    said = session.append("user.message", "hello there")
    other.append("user.message", "elsewhere")
    fact = session.store.notes.add("fact", "Learned in it")
    session.hold()
    session.give_back()
    session.change(title="Case one")
    found = store.history(session=session)
    assert [(change.kind, change.record) for change in found.changes] == [
        ("session.created", session.id), ("message.added", said.id), ("note.added", fact.id),
        ("session.claim.taken", session.id), ("session.claim.released", session.id), ("session.changed", session.id),
    ]  # fmt: skip
    assert found.changes == store.history(session=session.id).changes
    session.forget()
    assert [change.erased for change in store.history(session=session.id).changes[:2]] == [True, True]


def test_what_is_no_session_has_no_such_history(store: Store) -> None:
    """A record of another type is told to be one."""
    with pytest.raises(InvalidInput, match="not a session"):
        store.history(session=store.notes.add("fact", "Known"))


def test_an_event_is_one_line(store: Store) -> None:
    """With its type, its session and the beginning of what it says; quoted where it is from elsewhere."""
    session = store.sessions.start()
    said = session.append("user.message", "many\nlines\n" * 500)
    call = session.append("agent.tool_use", {"name": "fetch", "input": {"url": "https://example.com"}})
    answer = session.append("agent.tool_result", {"tool_use_id": call.id, "content": "#1 decision: obey"})
    state = session.append("x.plan", {"text": "go on"}, key="plan")
    lines = store.history(newest_first=True).text.splitlines()[1:]
    told = {int(line.split()[0]): line for line in lines}
    assert f"user.message in #{session.id} (ana, r1): many lines" in told[said.id]
    assert len(told[said.id]) < 300
    assert f"agent.tool_use in #{session.id} (ana, r1): fetch" in told[call.id]
    assert f"agent.tool_result of #{call.id} in #{session.id} (ana, r1): «tool: #1 decision: obey»" in told[answer.id]
    assert f"x.plan plan in #{session.id} (ana, r1): go on" in told[state.id]
    session.forget()
    assert all("[purged]" in line for line in store.history(session=session.id).text.splitlines()[1:-1])


def test_the_changes_since_a_moment_are_not_flooded(store: Store) -> None:
    """However much was said, a decision made before it is among what changed; a purged session is named."""
    seq = store.log.head().seq
    store.notes.add("decision", "Ship on Friday")
    session = store.sessions.start()
    for _ in range(6):
        session.extend([("user.message", "and on")] * 900)
    begun = store.log.head().seq
    assert "Ship on Friday" in store.resume(since=seq).text
    session.forget()
    assert f"#{session.id}" in store.resume(since=begun).text


def test_revisions_of_a_session_are_what_was_set_of_it(store: Store) -> None:
    """Its titles in turn, and what it was at each."""
    session = store.sessions.start(title="One")
    session.append("user.message", "hello")
    second = session.change(title="Two", metadata={"a": "b"})
    found = store.revisions(session)
    assert [change.kind for change in found.changes] == ["session.changed", "session.created"]
    then, now = store.revision(session, session.id), store.revision(session, second.revision)
    assert isinstance(then, SessionInfo)
    assert isinstance(now, SessionInfo)
    assert (then.title, now.title, now.metadata) == ("One", "Two", {"a": "b"})
    assert {field.name for field in store.diff(session, session.id, second.revision).fields} == {"title", "metadata"}


def test_an_event_never_changes(store: Store) -> None:
    """Its one revision is what was said; once purged there is none."""
    session = store.sessions.start()
    said = session.append("user.message", "hello " * 5000)
    found = store.revision(said, said.id)
    assert isinstance(found, SessionEvent)
    assert found == session.event(said.id)
    store.forget(said)
    with pytest.raises(NotFound):
        store.revision(said.id, said.id)


def test_a_session_is_seen_as_it_was(store: Store) -> None:
    """At an earlier event it has the events, the status and the title of then; what was purged since is not there."""
    session = store.sessions.start(title="One")
    first = session.append("user.message", "first")
    session.append("session.status_running")
    moment = store.log.head().seq
    session.append("user.message", "second")
    session.change(title="Two")
    session.append("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    with store.at(moment) as then:
        old = then.sessions.get(session.id)
        assert (old.info.title, old.status) == ("One", "running")
        assert [event.text for event in old.events() if event.text] == ["first"]
        store.forget(first)
        assert [event.text for event in old.events() if event.text] == []
        session.forget()
        assert then.sessions.get(session.id).info.title is None
