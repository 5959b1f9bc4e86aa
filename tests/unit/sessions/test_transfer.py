"""Sessions go with their memory: as a whole log they are the same, as a copy they say the same under other ids."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem import AgentMemError, Corrupt, NewerFile, OutOfReach, Store
from agentmem.session_types import SessionEvent
from agentmem.store.sessions import Session
from agentmem.transfer.copies import ImportedCopy

sys.path.insert(0, str(Path(__file__).parents[1] / "transfer"))

from forging import event, forged

KEY = bytes(range(32))


@pytest.fixture
def other(tmp_path: Path, clock: Any) -> Iterator[Store]:
    """An empty store, project `there`."""
    with Store.open(tmp_path / "other.db", project="there", key=KEY, durability="normal", clock=clock) as found:
        found.notes.add("fact", "So that ids differ")
        yield found


def spoken(store: Store) -> Session:
    """A session with a bit of everything, a child, a fork, and a note that rests on it."""
    goal = store.notes.add("goal", "Help")
    store.entities.put("customer", "A")
    session = store.sessions.start(title="Case", task=goal, agent="support", about="customer:A", metadata={"a": "b"})
    store.sessions.start(title="Child", parent=session)
    session.append("user.message", "Where is it? " + "long " * 3000)
    made = session.extend(
        [
            ("agent.tool_use", {"name": "orders", "input": {"id": 4711}}),
            ("agent.tool_result", {"tool_use_id": -1, "content": "shipped"}),
            ("agent.tool_use", {"name": "pay", "input": {}, "permission": "ask"}),
        ]
    )
    session.append("session.status_idle", {"stop_reason": {"type": "requires_action", "event_ids": [made.ids[2]]}})
    session.append("x.plan", {"text": "go on"}, key="plan")
    session.fork(made.ids[1], title="Fork")
    session.compact(budget=1000, pinned=[made.ids[1]])
    session.store.notes.add("fact", "It is shipped", source=f"#{made.ids[1]}")
    return session


def told(found: SessionEvent) -> tuple[object, ...]:
    return found.type, found.text, found.key, found.origin, found.author, found.run


def test_a_whole_log_brings_the_sessions_as_they_are(store: Store, tmp_path: Path, clock: Any) -> None:
    """Ids, times, states, and the chain of each session, in an empty store."""
    session = spoken(store)
    store.export(tmp_path / "log.jsonl")
    with Store.open(tmp_path / "new.db", project="acme", key=KEY, durability="normal", clock=clock) as again:
        again.import_(tmp_path / "log.jsonl")
        assert again.verify(replay=True).problems == ()
        assert again.sessions.list(archived=None) == store.sessions.list(archived=None)
        mine, theirs = session.audit(), again.sessions.get(session.id).audit()
        assert theirs.sound
        assert theirs.chain == mine.chain
        assert again.sessions.get(session.id).events() == session.events()
        assert again.sessions.get(session.id).window().text == session.window().text


def test_a_copy_says_the_same_under_other_ids(store: Store, other: Store, tmp_path: Path) -> None:
    """Calls find their results, children their parents, forks their beginnings, notes the events they rest on."""
    session = spoken(store)
    store.export(tmp_path / "copy.jsonl", project="acme")
    found = other.import_(tmp_path / "copy.jsonl")
    assert isinstance(found, ImportedCopy)
    assert found.created["session"] == 3
    assert other.verify(replay=True).problems == ()
    case, child, fork = other.sessions.list(archived=None)
    assert (case.title, case.agent, case.metadata) == ("Case", {"name": "support"}, {"a": "b"})
    assert other.get(case.about).key == "A"  # type: ignore[union-attr, arg-type]
    assert other.get(case.task).title == "Help"  # type: ignore[union-attr, arg-type]
    assert child.parent == case.id
    copied = other.sessions.get(case.id)
    events = copied.events()
    assert [told(each) for each in events[: len(session.events())]] == [told(each) for each in session.events()]
    calls = [each.id for each in events if each.type == "agent.tool_use"]
    assert [each.target for each in events if each.type == "agent.tool_result"] == calls
    assert other.sessions.get(case.id).info.stop_reason == {"type": "requires_action", "event_ids": [calls[1]]}
    assert (fork.forked_from, fork.forked_at) == (case.id, events[2].id)
    assert [told(each) for each in other.sessions.get(fork.id).events()] == [
        told(each) for each in session.events()[:3]
    ]
    (fact,) = [each for each in other.notes.list(kind="fact") if each.source]
    assert other.sessions.source(fact) == events[2]
    assert copied.audit().sound


def test_a_copy_is_run_by_nobody(store: Store, other: Store, tmp_path: Path) -> None:
    """It goes on where it came from: a call that waits there is closed here, and the copy is put away."""
    session = spoken(store)
    store.sessions.start(title="At work").append("session.status_running")
    store.export(tmp_path / "copy.jsonl", project="acme")
    assert [one.session for one in store.sessions.waiting()] == [session.id]
    other.import_(tmp_path / "copy.jsonl")
    assert other.sessions.waiting() == ()
    assert other.sessions.ready() == ()
    assert other.sessions.list() == ()
    (case, *_) = other.sessions.list(archived=None)
    again = other.sessions.get(case.id)
    again.change(archived=False)
    assert again.waiting() == ()
    assert "not run again" in again.events(newest_first=True)[0].text
    again.append("user.message", "and now?")
    assert again.window().events


def test_a_second_copy_leaves_the_first_as_it_is(store: Store, other: Store, tmp_path: Path) -> None:
    """What was said here since, and there since, is not mixed."""
    session = spoken(store)
    store.export(tmp_path / "one.jsonl", project="acme")
    other.import_(tmp_path / "one.jsonl")
    session.append("user.message", "later")
    store.export(tmp_path / "two.jsonl", project="acme")
    before = other.log.head()
    found = other.import_(tmp_path / "two.jsonl")
    assert isinstance(found, ImportedCopy)
    assert not found.created
    assert other.log.head() == before


def test_one_session_can_be_copied(store: Store, other: Store, tmp_path: Path) -> None:
    """With what it is about; as untrusted where it is from others."""
    session = spoken(store)
    store.export(tmp_path / "one.jsonl", under=session)
    found = other.import_(tmp_path / "one.jsonl", origin="import")
    assert isinstance(found, ImportedCopy)
    assert found.roots == (other.sessions.list(archived=None)[0].id,)
    (info,) = other.sessions.list(archived=None)
    assert info.origin == "import"
    assert info.task is None
    assert other.get(info.about).key == "A"  # type: ignore[union-attr, arg-type]
    assert {each.origin for each in other.sessions.get(info.id).events() if each.type == "user.message"} == {"import"}
    assert other.verify(replay=True).problems == ()


def test_what_was_purged_is_not_copied(store: Store, other: Store, tmp_path: Path) -> None:
    """Nor a result of a purged call, nor a call whose result is gone: it would be run again."""
    session = spoken(store)
    made = session.extend(
        [("agent.tool_use", {"name": "a", "input": {}}), ("agent.tool_result", {"tool_use_id": -1, "content": "x"})] * 1
        + [("agent.tool_use", {"name": "b", "input": {}}), ("agent.tool_result", {"tool_use_id": -3, "content": "y"})]
    )
    store.forget(made.ids[0])
    store.forget(made.ids[3])
    session.change(title="Case again")
    store.redact(session)
    store.export(tmp_path / "copy.jsonl", project="acme")
    other.import_(tmp_path / "copy.jsonl")
    assert other.verify(replay=True).problems == ()
    (info,) = [each for each in other.sessions.list(archived=None) if each.forked_from is None and each.parent is None]
    assert (info.title, info.agent) == ("Case again", {"name": "support"})
    names = [
        each.body["name"]
        for each in other.sessions.get(info.id).events()
        if each.type == "agent.tool_use" and each.body
    ]
    assert names == ["orders", "pay"]


def test_a_session_whose_subject_is_gone_is_not_copied(store: Store, other: Store, tmp_path: Path) -> None:
    """In the copy nothing would keep it apart."""
    store.entities.put("customer", "A")
    store.sessions.start(about="customer:A").append("user.message", "hello")
    store.forget("customer:A")
    store.notes.add("fact", "Known")
    store.export(tmp_path / "copy.jsonl", project="acme")
    other.import_(tmp_path / "copy.jsonl")
    assert other.sessions.list(archived=None) == ()


def test_an_undo_of_the_import_leaves_what_was_said(store: Store, other: Store, tmp_path: Path) -> None:
    """Sessions are not undone; without their subject they see nothing."""
    spoken(store)
    store.export(tmp_path / "copy.jsonl", project="acme")
    found = other.import_(tmp_path / "copy.jsonl")
    assert isinstance(found, ImportedCopy)
    other.undo(request=found.request)
    assert other.verify(replay=True).problems == ()
    info = other.sessions.list(archived=None)[0]
    with pytest.raises(AgentMemError, match="no more"):
        _ = other.sessions.get(info.id).store


def test_a_merge_of_projects_takes_the_sessions_along(store: Store) -> None:
    """With their events, about the entity that is left; an undo brings them back."""
    session = spoken(store)
    target = store.in_project("target")
    own = target.entities.put("customer", "A").id
    before = store.sessions.list(archived=None)
    done = target.projects.merge("acme", collisions="merge", request_id="merge")
    assert done.changed
    assert store.verify(replay=True).problems == ()
    assert [info.id for info in target.sessions.list(archived=None)] == [info.id for info in before]
    assert target.sessions.get(session.id).info.about == own
    assert [one.session for one in target.sessions.waiting()] == [session.id]
    assert target.recall("shipped", kind="message").hits
    target.undo(request="merge")
    assert store.verify(replay=True).problems == ()
    again = store.sessions.list(archived=None)
    assert [(info.id, info.about, info.project) for info in again] == [
        (info.id, info.about, info.project) for info in before
    ]


def test_no_event_of_a_session_is_undone(store: Store) -> None:
    """What was said stays said: named it is an error, of a run it is passed over."""
    session = store.sessions.start()
    event = session.append("user.message", "hello")
    note = store.notes.add("fact", "Known")
    for seq in (session.id, event.id):
        with pytest.raises(AgentMemError, match="stays said"):
            store.undo(seq)
    done = store.undo(run="r1")
    assert note.id in done.undone
    assert {session.id, event.id} <= set(done.passed_over)
    assert session.events()


Change = Callable[[list[dict[str, Any]]], None]


def _payload(kind: str, **changes: Any) -> Change:
    return lambda lines: event(lines, kind)["payload"].update(changes)


def _header(kind: str, **changes: Any) -> Change:
    return lambda lines: event(lines, kind).update(changes)


def _body(**changes: Any) -> Change:
    return lambda lines: event(lines, "message.added")["payload"]["body"].update(changes)


HOSTILE: dict[str, Change] = {
    "an unknown type": _payload("message.added", type="user.shout"),
    "another type than the body": _payload("message.added", type="agent.tool_use"),
    "a body that is no object": _payload("message.added", body=[]),
    "an unknown field of a body": _body(more=1),
    "a content that is none": _body(content=3),
    "no body": lambda lines: event(lines, "message.added")["payload"].pop("body"),
    "a key where there is none": _payload("message.added", key="k"),
    "an answer to something else": _payload("message.added", target=2),
    "an unknown field": _payload("message.added", more=1),
    "an event without a session": _header("message.added", session=None),
    "an event of what is no session": _header("message.added", session=2),
    "a session in the chain of another record": _header("session.created", session=2),
    "a session in no chain": _header("session.created", session=None),
    "a title of two lines": _payload("session.created", title="a\nb"),
    "an agent that is none": _payload("session.created", agent={"version": 1}),
    "metadata that are none": _payload("session.created", metadata={"a": 1}),
    "a task that is no note": _payload("session.created", task=1),
    "a subject that is no entity": _payload("session.created", entity=2),
    "a parent that is no session": _payload("session.created", parent=2),
    "a fork of what is no session": _payload("session.created", forked_from=2, forked_at=3),
    "a head that is no event": _payload("session.created", compacted=2),
    "a change of what it stood at": _payload("session.changed", set={"status": "running"}),
    "a change without a project": _payload("session.changed", set={"project": None}),
    "a frame of an unknown type": _payload("message.forgotten", type="user.shout"),
    "a frame with text": _payload("message.forgotten", text="x"),
    "a frame in another session": _header("message.forgotten", session=4),
    "a state without metadata": lambda lines: event(lines, "session.restated")["payload"]["state"].pop("metadata"),
    "a state with an agent that is none": lambda lines: event(lines, "session.restated")["payload"]["state"].update(agent="a"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(store: Store, tmp_path: Path, clock: Any, name: str) -> None:
    """Whatever is written in it that no command writes: a typed error, and nothing is kept."""
    goal = store.notes.add("goal", "Help")
    session = store.sessions.start(title="Case", task=goal, agent="support", metadata={"a": "b"})
    store.sessions.start()
    first = session.append("user.message", "hello")
    session.append("user.message", "more")
    session.change(title="Again")
    session.change(title="And again")
    store.export(tmp_path / "whole.jsonl")
    if name.startswith(("a frame", "a state")):
        store.forget(first)
        store.redact(session)
        (tmp_path / "whole.jsonl").unlink()
        store.export(tmp_path / "whole.jsonl")
    path = forged(tmp_path / "whole.jsonl", tmp_path / "bad.jsonl", HOSTILE[name])
    with Store.open(tmp_path / "new.db", project="acme", key=KEY, durability="normal", clock=clock) as again:
        with pytest.raises((Corrupt, NewerFile)):
            again.import_(path)
        assert again.log.head().seq == 0


def test_a_copy_that_lacks_the_subject_is_refused(store: Store, other: Store, tmp_path: Path) -> None:
    """A session that comes without what it is about would see everything."""
    spoken(store)
    store.export(tmp_path / "copy.jsonl", project="acme")

    def drop(lines: list[dict[str, Any]]) -> None:
        lines[:] = [line for line in lines if line.get("type") != "entity"]

    with pytest.raises(Corrupt, match="about"):
        other.import_(forged(tmp_path / "copy.jsonl", tmp_path / "bad.jsonl", drop))
    assert other.sessions.list(archived=None) == ()


def test_a_view_of_a_subject_exports_nothing(store: Store, tmp_path: Path) -> None:
    """A file has more than one subject in it."""
    with pytest.raises(OutOfReach):
        spoken(store).store.export(tmp_path / "x.jsonl")
