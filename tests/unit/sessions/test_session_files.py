"""A session as a file: read back it says the same; others' clients read the public form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentmem import Store
from agentmem.errors import InvalidInput
from agentmem.store.session import Session


def talked(store: Store) -> Session:
    """A session with a bit of everything."""
    session = store.sessions.start(title="Case", agent={"name": "support", "version": "2"}, metadata={"shop": "eu"})
    session.append("user.message", "订单在哪里？")
    session.extend(
        [
            ("span.model_request_start", {}),
            ("span.model_request_end", {"model_request_start_id": -1, "model_usage": {
                "input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}}),
            ("agent.message", "I look"),
            ("agent.tool_use", {"name": "orders", "input": {"id": 4711}, "permission": "ask"}),
            ("session.status_idle", {"stop_reason": {"type": "requires_action", "event_ids": [-4]}, "due": 5}),
        ]
    )  # fmt: skip
    call = session.events(types=("agent.tool_use",))[0].id
    session.confirm(call, "allow", by="alice")
    session.append("agent.tool_result", {"tool_use_id": call, "content": "shipped " * 3000})
    session.append("x.plan", {"step": 1}, key="plan")
    session.compact(budget=1000)
    session.append("agent.message", "Shipped. 🙂")
    return session


def said(session: Session) -> list[Any]:
    """What its events say, references as places."""
    events = session.events(limit=1000)
    places = {event.id: at for at, event in enumerate(events)}
    found = []
    for event in events:
        body = json.loads(json.dumps(event.body))
        for name, value in body.items():
            if name.endswith("_id") and type(value) is int:
                body[name] = places[value]
        if "stop_reason" in body:
            body["stop_reason"]["event_ids"] = [places[each] for each in body["stop_reason"]["event_ids"]]
        found.append(
            (event.type, {} if event.type == "agent.thread_context_compacted" else body, event.key, event.origin)
        )
    return found


def test_what_was_exported_comes_back(store: Store) -> None:
    """Lossless: types, bodies, keys, origins, references; title, agent and metadata; when it was said."""
    session = talked(store)
    lines = [json.dumps(line) for line in session.export()]
    copy = store.in_project("other").sessions.import_(lines)
    assert said(copy) == said(session)
    assert (copy.info.title, copy.info.agent, copy.info.metadata) == (
        "Case",
        {"name": "support", "version": "2"},
        {"shop": "eu"},
    )
    assert [event.dated for event in copy.events()] == [event.at for event in session.events()]
    assert [event.dated for event in store.sessions.import_(copy.export()).events()] == [
        event.at for event in session.events()
    ]
    assert store.verify(replay=True)


def test_long_sessions_come_back_in_pieces(store: Store) -> None:
    """References across thousands of events hold."""
    session = store.sessions.start()
    call = session.append("agent.tool_use", {"name": "slow", "input": {}}).id
    session.extend([("x.tick", {"at": at}) for at in range(1000)])
    session.extend([("x.tick", {"at": at}) for at in range(1000, 1500)])
    session.append("agent.tool_result", {"tool_use_id": call, "content": "at last"})
    copy = store.sessions.import_(session.export())
    events = copy.events(types=("agent.tool_use", "agent.tool_result"))
    assert events[1].target == events[0].id
    assert len(copy.events(limit=1000)) + len(copy.events(after=copy.events(limit=1000)[-1].id, limit=1000)) == 1502


def test_the_public_form_has_nothing_of_ours_and_comes_back(store: Store) -> None:
    """Own types and fields are left out; the rest is read back."""
    session = talked(store)
    lines = list(session.export(strict=True))
    assert not [line for line in lines if line["type"].startswith(("x.", "agentmem."))]
    assert all("permission" not in line and "due" not in line and "by" not in line for line in lines)
    copy = store.sessions.import_(lines, title="Copy", origin="import")
    assert [event.type for event in copy.events()] == [line["type"] for line in lines]
    assert {event.origin for event in copy.events()} == {"import"}
    assert [event.text for event in copy.events(types=("agent.message",))] == ["I look", "Shipped. 🙂"]


def test_what_is_unknown_is_kept_whole(store: Store) -> None:
    """A later type, a later field, a reference that leads nowhere."""
    lines = [
        {"id": "a", "type": "agent.dreamt", "content": "x"},
        {"id": "b", "type": "user.message", "content": [{"type": "text", "text": "hi"}], "mood": "fine"},
        {"id": "c", "type": "agent.tool_result", "tool_use_id": "nowhere"},
    ]
    events = store.sessions.import_(lines).events()
    assert [event.type for event in events] == ["x.foreign"] * 3
    assert [event.body for event in events] == [{"event": line} for line in lines]


@pytest.mark.parametrize(
    "lines",
    [
        [], ["{"], ["[1]"], [3], ['{"format": "agentmem session", "version": 9}'], [{"id": "a"}],
        [{"format": "agentmem session", "version": 1}, {"id": 1, "type": "user.message"}],
        [{"format": "agentmem session", "version": 1}, {"id": 1, "type": "agent.tool_result", "body": {"tool_use_id": 7}}],
        [{"format": "agentmem session", "version": 1}, {"id": 1, "type": "x", "body": {}}],
        [{"format": "agentmem session", "version": 1, "title": 5}, {"id": 1, "type": "user.message", "body": {"content": "x"}}],
    ],
)  # fmt: skip
def test_a_file_that_is_none_leaves_nothing(store: Store, lines: list[Any]) -> None:
    """All or nothing: a typed error, and no session."""
    head = store.log.head()
    with pytest.raises(InvalidInput):
        store.sessions.import_(lines)
    assert store.log.head() == head
