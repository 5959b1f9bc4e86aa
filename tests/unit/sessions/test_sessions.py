"""Sessions: begun, appended to, read, forked, archived; what is refused leaves nothing behind."""

from __future__ import annotations

import threading

import pytest

from agentmem import Store
from agentmem.errors import Conflict, Held, InvalidInput, LimitExceeded, NotFound, OutOfReach, RequestMismatch
from agentmem.session_types import SessionEvent, SessionInfo


@pytest.fixture
def goal(store: Store) -> int:
    return store.notes.add("goal", "Answer the customers").id


def test_a_session_is_a_record_with_all_that_was_said_of_it(store: Store, goal: int) -> None:
    """What was given is what is read, by its id as by its handle."""
    store.entities.put("customer", "A")
    session = store.sessions.start(
        title="Case 1",
        task=goal,
        agent={"name": "support", "version": "3"},
        about="customer:A",
        metadata={"shop": "eu"},
    )
    info = session.info
    assert isinstance(store.get(session), SessionInfo)
    assert store.get(session.id) == info == store.sessions.get(str(session.id)).info
    assert (info.title, info.task, info.agent, info.metadata) == (
        "Case 1",
        goal,
        {"name": "support", "version": "3"},
        {"shop": "eu"},
    )
    assert info.about == store.entities.get("customer:A").id
    assert (info.status, info.stop_reason, info.archived_at) == ("idle", None, None)


def test_a_name_alone_is_an_agent(store: Store) -> None:
    """The short form of an agent is its name."""
    assert store.sessions.start(agent="support").info.agent == {"name": "support"}


@pytest.mark.parametrize(
    "given",
    [
        {"agent": {"version": "1"}}, {"agent": 3}, {"agent": ""}, {"metadata": {"a": 1}}, {"metadata": ["a"]},
        {"metadata": {str(at): "x" for at in range(17)}}, {"title": "two\nlines"}, {"metadata": {"a": "x" * 513}},
    ],
)  # fmt: skip
def test_a_session_that_is_not_as_it_should_be_is_not_begun(store: Store, given: dict[str, object]) -> None:
    """Bad fields are typed errors, and no event is written."""
    head = store.log.head()
    with pytest.raises(InvalidInput):
        store.sessions.start(**given)  # type: ignore[arg-type]
    assert store.log.head() == head


def test_events_come_back_in_order_with_what_they_say(store: Store) -> None:
    """A text stands for the content of a message; results name their calls."""
    session = store.sessions.start()
    asked = session.append("user.message", "Where is my order?")
    made = session.extend(
        [
            ("agent.message", "I look"),
            ("agent.tool_use", {"name": "orders", "input": {"id": 4711}}),
            ("agent.tool_result", {"tool_use_id": -2, "content": "shipped"}),
        ]
    )
    events = session.events()
    assert [event.id for event in events] == [asked.id, *made.ids]
    assert [event.type for event in events] == ["user.message", "agent.message", "agent.tool_use", "agent.tool_result"]
    assert events[0].body == {"content": [{"type": "text", "text": "Where is my order?"}]}
    assert events[2].text == 'orders {"id":4711}'
    assert events[3].target == events[2].id
    assert events[3].origin == "tool"
    assert isinstance(store.get(asked), SessionEvent)


def test_pages_go_on_where_the_one_before_ended(store: Store) -> None:
    """Forwards and backwards, by type or all."""
    session = store.sessions.start()
    made = [session.append("user.message" if at % 3 else "agent.message", f"turn {at}").id for at in range(20)]
    first = session.events(limit=7)
    rest = session.events(after=first[-1].id)
    assert [event.id for event in (*first, *rest)] == made
    back = session.events(newest_first=True, limit=7)
    older = session.events(newest_first=True, until=back[-1].id - 1)
    assert [event.id for event in (*back, *older)] == made[::-1]
    assert [event.id for event in session.events(types=("agent.message",))] == made[::3]


@pytest.mark.parametrize(
    ("type", "body"),
    [
        ("user.massage", "x"), ("x.", {}), ("agent.tool_result", {"tool_use_id": 1, "content": "x"}),
        ("user.message", {"content": [{"type": "text"}]}), ("user.message", {"text": "x"}), ("user.message", {}),
        ("agent.tool_use", {"name": "a", "input": [1]}), ("agent.tool_use", {"name": "a", "input": {"n": float("nan")}}),
        ("user.message", {"content": [{"type": "text", "text": "x\0"}]}), ("session.status_idle", {}),
        ("user.message", "\ud800"), (3, {}), ("x.note", [1]),
    ],
)  # fmt: skip
def test_an_event_that_is_not_as_it_should_be_is_refused(store: Store, type: str, body: object) -> None:
    """A typed error, and nothing of the call is kept."""
    session = store.sessions.start()
    head = store.log.head()
    with pytest.raises(InvalidInput):
        session.extend([("user.message", "fine"), (type, body)])
    assert store.log.head() == head


def test_the_nearest_type_is_named(store: Store) -> None:
    """A misspelt type says which was meant."""
    with pytest.raises(InvalidInput, match=r"user\.message"):
        store.sessions.start().append("user.mesage", "x")


def test_an_event_too_large_is_refused(store: Store) -> None:
    """The limit is of the body as JSON."""
    with pytest.raises(LimitExceeded):
        store.sessions.start().append("user.message", "x" * (16 * 1024 * 1024))


def test_a_call_has_one_result(store: Store) -> None:
    """A second one is a conflict; one of another session's call, or of no call, is refused."""
    session, other = store.sessions.start(), store.sessions.start()
    call = session.append("agent.tool_use", {"name": "a", "input": {}}).id
    with pytest.raises(InvalidInput):
        other.append("agent.tool_result", {"tool_use_id": call, "content": "x"})
    session.append("agent.tool_result", {"tool_use_id": call, "content": "x"})
    with pytest.raises(Conflict):
        session.append("agent.tool_result", {"tool_use_id": call, "content": "y"})
    with pytest.raises(InvalidInput):
        session.append("agent.tool_result", {"tool_use_id": session.events()[-1].id, "content": "y"})


def test_the_state_is_the_newest_of_each_key(store: Store) -> None:
    """Own events carry keys, and no others do."""
    session = store.sessions.start()
    session.append("x.plan", {"text": "first"}, key="plan")
    session.append("x.mood", {"level": 3}, key="mood")
    session.append("x.plan", {"text": "second"}, key="plan")
    session.append("x.unkeyed", {"text": "no state"})
    assert {key: event.body for key, event in session.state().items()} == {
        "mood": {"level": 3},
        "plan": {"text": "second"},
    }
    with pytest.raises(InvalidInput, match="no key"):
        session.append("user.message", "x", key="plan")


def test_a_retry_appends_nothing(store: Store) -> None:
    """The same request id returns the first outcome; other arguments under it are refused."""
    session = store.sessions.start(request_id="s1")
    assert store.sessions.start(request_id="s1").id == session.id
    first = session.append("user.message", "once", request_id="m1")
    again = session.append("user.message", "once", request_id="m1")
    assert (again.id, again.ids, again.repeated) == (first.id, first.ids, True)
    assert len(session.events()) == 1
    with pytest.raises(RequestMismatch):
        session.append("user.message", "twice", request_id="m1")


def test_long_texts_are_stored_once_and_read_in_pieces(store: Store) -> None:
    """The same output of two calls is one text of the file; pieces join to the whole."""
    text = "".join(f"line {at}\n" for at in range(20_000))
    session = store.sessions.start()
    for _ in range(2):
        session.extend(
            [
                ("agent.tool_use", {"name": "cat", "input": {}}),
                ("agent.tool_result", {"tool_use_id": -1, "content": text}),
            ]
        )
    with store.database.read() as connection:
        assert connection.execute("SELECT count(*), max(uses) FROM blob").fetchall() == [(1, 2)]
    event = session.events()[-1].id
    piece = session.read(event)
    pieces = [piece.text]
    while piece.next is not None:
        piece = session.read(event, piece.next)
        pieces.append(piece.text)
    assert "".join(pieces) == text
    assert piece.total == len(text)
    with pytest.raises(InvalidInput):
        session.read(event, len(text) + 1)
    with pytest.raises(NotFound):
        store.sessions.start().read(event)


def test_an_archived_session_takes_nothing(store: Store) -> None:
    """It is out of the lists until it is taken out of the archive."""
    session = store.sessions.start(title="old")
    session.archive()
    with pytest.raises(Conflict, match="archived"):
        session.append("user.message", "x")
    assert store.sessions.list() == ()
    assert [info.id for info in store.sessions.list(archived=True)] == [session.id]
    session.change(archived=False)
    session.append("user.message", "x")
    assert [info.id for info in store.sessions.list()] == [session.id]


def test_changes_that_change_nothing_leave_no_event(store: Store, goal: int) -> None:
    """What can be set can be cleared; the same again is no event."""
    session = store.sessions.start(title="a", task=goal, metadata={"k": "v"})
    head = store.log.head()
    assert session.change(title="a", task=goal, metadata={"k": "v"}, archived=False).changed == ()
    assert store.log.head() == head
    assert set(session.change(title=None, task=None, metadata={}).changed) == {"title", "task", "metadata"}
    assert (session.info.title, session.info.task, session.info.metadata) == (None, None, {})
    with pytest.raises(Conflict):
        session.change(title="b", expected_revision=head.seq)


def test_a_fork_goes_on_from_an_event_by_reference(store: Store) -> None:
    """It has the events before, the state of then, its own after; the first one is as it was."""
    session = store.sessions.start(title="a")
    first = session.append("user.message", "one").id
    session.append("x.plan", {"text": "then"}, key="plan")
    place = session.append("agent.message", "two").id
    session.append("x.plan", {"text": "later"}, key="plan")
    session.append("agent.message", "three")
    fork = session.fork(place, title="b")
    own = fork.append("user.message", "other").id
    assert [event.id for event in fork.events()] == [first, first + 1, place, own]
    assert fork.state()["plan"].text == "then"
    assert session.state()["plan"].text == "later"
    assert own not in [event.id for event in session.events()]
    again = fork.fork(first)
    assert [event.id for event in again.events()] == [first]
    info = fork.info
    assert (info.forked_from, info.forked_at, info.title) == (session.id, place, "b")
    with pytest.raises(NotFound):
        session.fork(own)


def test_a_fork_says_what_outside_cannot_be_undone(store: Store) -> None:
    """Calls that ran after its place are named; a call without a result there gets one that says so."""
    session = store.sessions.start()
    call = session.append("agent.tool_use", {"name": "pay", "input": {"amount": 5}}).id
    session.append("agent.tool_result", {"tool_use_id": call, "content": "paid"})
    fork = session.fork(call)
    assert fork.outside == ((call, "pay"),)
    last = fork.events()[-1]
    assert (last.type, last.target) == ("agent.tool_result", call)
    assert "not known" in last.text
    assert [event.text for event in session.events()][-1] == "paid"
    assert store.verify(replay=True)


def test_a_child_has_the_task_and_subject_of_its_parent(store: Store, goal: int) -> None:
    """A subagent's session is about the same, or about what lies beneath it."""
    store.entities.put("customer", "A")
    store.entities.put("customer", "B")
    order = store.entities.put("order", "A-1", parent="customer:A").id
    parent = store.sessions.start(task=goal, about="customer:A")
    child = store.sessions.start(parent=parent)
    assert (child.info.task, child.info.about, child.info.parent) == (goal, parent.info.about, parent.id)
    assert store.sessions.start(parent=parent, about=order).info.about == order
    with pytest.raises(OutOfReach):
        store.sessions.start(parent=parent, about="customer:B")
    assert store.sessions.list(parent=parent)[0].id == child.id


def test_what_is_written_in_a_session_names_it(store: Store, goal: int) -> None:
    """From a note one gets to the result of the tool that it rests on."""
    session = store.sessions.start(task=goal)
    call = session.append("agent.tool_use", {"name": "scan", "input": {}}).id
    result = session.append("agent.tool_result", {"tool_use_id": call, "content": "port 22 open"}).id
    note = session.store.notes.add("fact", "SSH is open", parent=goal)
    session.append("agent.tool_use", {"name": "scan", "input": {}})
    (event,) = store.log.read(record=note.id)
    assert (event.session, event.task) == (session.id, goal)
    found = store.sessions.source(note)
    assert found is not None
    assert found.id == result
    named = session.store.notes.add("fact", "Named", parent=goal, source=f"#{call}")
    named_source = store.sessions.source(named)
    assert named_source is not None
    assert named_source.id == call
    assert store.sessions.source(goal) is None


def test_recall_finds_what_was_said(store: Store) -> None:
    """Messages and results, by words, with what stands beside them."""
    session = store.sessions.start(title="a")
    said = session.append("user.message", "The parcel never reached Reykjavik").id
    hits = store.recall("Reykjavik parcel").hits
    assert [hit.id for hit in hits] == [said]
    assert store.find("reykjavik", kind="message").hits[0].id == said
    assert store.recall("Reykjavik", kind="fact").hits == ()


def test_the_holder_alone_speaks_for_the_agent(store: Store) -> None:
    """Others may write what people say meanwhile, and their own events."""
    session = store.sessions.start()
    other = store.acting(run="other").sessions.get(session)
    session.hold(seconds=60)
    holder = other.holder()
    assert holder is not None
    assert not holder.mine
    other.append("user.message", "still there?")
    other.append("x.seen", {"by": "other"})
    with pytest.raises(Held):
        other.append("agent.message", "I speak for it")
    with pytest.raises(Held):
        other.hold()
    with pytest.raises(Held):
        other.archive()
    session.give_back()
    other.append("agent.message", "now it may")


def test_a_session_of_a_rolled_back_transaction_is_void(store: Store) -> None:
    """Its handle is refused: the id may belong to another by now."""
    with pytest.raises(ZeroDivisionError), store.transaction():
        session = store.sessions.start()
        assert session.provisional
        raise ZeroDivisionError
    assert session.void
    with pytest.raises(Exception, match="never written"):
        session.append("user.message", "x")


def test_watching_brings_what_others_append(store: Store) -> None:
    """Events come as they are committed, from where one says."""
    session = store.sessions.start()
    begun = session.info.last
    thread = threading.Thread(target=lambda: [session.append("user.message", f"m{at}") for at in range(5)])
    thread.start()
    found = []
    for event in session.watch(after=begun, timeout=30):
        found.append(event.text)
        if len(found) == 5:
            break
    thread.join()
    assert found == [f"m{at}" for at in range(5)]


def test_ready_says_who_can_go_on(store: Store) -> None:
    """New, answered, due, broken; not what is held or has nothing to do."""
    new = store.sessions.start()
    new.append("user.message", "hello")
    idle = store.sessions.start()
    idle.append("user.message", "hello")
    idle.append("session.status_idle", {"stop_reason": {"type": "end_turn"}})
    broken = store.sessions.start()
    broken.append("session.status_running")
    due = store.sessions.start()
    due.append("session.status_idle", {"stop_reason": {"type": "end_turn"}, "due": 1})
    empty = store.sessions.start()
    found = {each.session: each.why for each in store.sessions.ready()}
    assert found == {new.id: "new", broken.id: "broken", due.id: "due"}
    assert empty.id not in found
    idle.append("user.message", "one more")
    assert {each.session: each.why for each in store.sessions.ready()}[idle.id] == "answered"
    new.hold()
    assert new.id not in {each.session for each in store.sessions.ready()}


def test_a_confirmation_is_bound_to_what_was_looked_at(store: Store) -> None:
    """By hash; once; not after it lapsed; with a word to the agent where it is denied."""
    session = store.sessions.start(title="refunds")
    call = session.append("agent.tool_use", {"name": "refund", "input": {"amount": 5}, "permission": "ask"}).id
    (waiting,) = store.sessions.waiting()
    assert (waiting.event, waiting.tool, waiting.input, waiting.title) == (call, "refund", {"amount": 5}, "refunds")
    with pytest.raises(Conflict, match="not the one"):
        session.confirm(call, "allow", input_hash="0" * 64)
    store.sessions.confirm(call, "deny", message="too much", by="alice", input_hash=waiting.input_hash)
    event = session.events()[-1]
    assert event.body is not None
    assert (event.body["result"], event.body["deny_message"], event.body["by"]) == ("deny", "too much", "alice")
    assert store.sessions.waiting() == ()
    with pytest.raises(Conflict):
        session.confirm(call, "allow")
    late = session.append("agent.tool_use", {"name": "refund", "input": {}, "permission": "ask", "expires_at": 1}).id
    assert store.sessions.waiting() == ()
    with pytest.raises(Conflict, match="lapsed"):
        session.confirm(late, "allow")


def test_the_audit_proves_itself(store: Store) -> None:
    """It verifies without the store, and shows each change, each gap and each cut."""
    from agentmem.log import alone

    session = store.sessions.start(title="audited")
    session.append("user.message", "long " * 2000)
    session.append("agent.message", "short")
    session.store.notes.add("fact", "written within")
    found = session.audit()
    assert found.sound
    assert "note.added" in found.text
    exported = list(found.export())
    proof = alone.verify(exported)
    assert (proof.sound, proof.events, proof.chain) == (True, found.events, found.chain)
    for place in range(1, len(exported)):
        assert not alone.verify([*exported[:place], *exported[place + 1 :]]).sound
    assert not alone.verify([line.replace("short", "shirt") for line in exported]).sound
    with pytest.raises(InvalidInput):
        alone.verify(['{"a": 1}'])


def test_what_rows_hold_is_fixed_with_the_tables() -> None:
    """The limits that are documented are those that the tables were made with."""
    from agentmem import limits
    from agentmem.engine import session_tables

    assert session_tables.SEARCHED_CHARS == limits.SESSION_INDEXED_CHARS
    assert session_tables.LONG_CHARS == limits.BLOB_CHARS
