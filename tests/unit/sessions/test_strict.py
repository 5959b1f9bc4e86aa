"""The public form of sessions: the SDK's own types and client read what we give, and what others give comes in."""

from __future__ import annotations

import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import Store
from agentmem.errors import InvalidInput
from agentmem.records import vocabulary
from agentmem.store.sessions import Session
from agentmem.transfer.session_strict import FOREIGN, from_strict, public_id, strict

sys.path.insert(0, str(Path(__file__).parent))
from session_bodies import EVENTS, PUBLIC, bodies

STORE = "0123456789abcdef0123456789abcdef"
FRAME = {"id", "type", "processed_at"}


@frozen
class Logged:
    """An event as the log has it."""

    id: int
    type: str
    body: dict[str, Any] | None
    at: int = 1_750_000_000_123_456


def lines(*events: tuple[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The public form of these events, as JSON has it."""
    logged = [Logged(at, of, vocabulary.checked(of, body)) for at, (of, body) in enumerate(events, 1)]
    return list(json.loads(json.dumps(list(strict(STORE, logged)))))


@pytest.fixture(scope="module")
def parse() -> Callable[[dict[str, Any]], Any]:
    """A line by the types of the SDK: strictly, and with no field that they do not have."""
    pydantic = pytest.importorskip("pydantic")
    of_event = pytest.importorskip("anthropic.types.beta.sessions.beta_managed_agents_session_event")
    adapter = pydantic.TypeAdapter(of_event.BetaManagedAgentsSessionEvent)

    def extras(value: Any) -> Iterator[str]:
        if isinstance(value, pydantic.BaseModel):
            yield from value.model_extra or ()
            for name in type(value).model_fields:
                yield from extras(getattr(value, name))
        elif isinstance(value, list):
            for each in value:
                yield from extras(each)

    def parsed(line: dict[str, Any]) -> Any:
        adapter.validate_python(line)
        found = adapter.validate_json(json.dumps(line), strict=True)
        assert list(extras(found)) == []
        assert found.type == line["type"]
        return found

    return parsed


@pytest.mark.parametrize("of", sorted(PUBLIC))
def test_the_sdk_reads_every_public_type(of: str, parse: Callable[[dict[str, Any]], Any]) -> None:
    """Whatever a public event may hold here, its public form is what the SDK's type says."""

    @settings(max_examples=40, deadline=None)
    @given(body=bodies(of))
    def check(body: dict[str, Any]) -> None:
        (line,) = lines((of, body))
        assert not line.keys() & set(vocabulary.TYPES[of].ours)
        parse(line)

    check()


def test_the_types_are_those_of_the_sdk() -> None:
    """The public types here are all of the SDK's, and no others."""
    pytest.importorskip("anthropic")
    from typing import get_args

    from anthropic.types.beta.sessions.beta_managed_agents_session_event import BetaManagedAgentsSessionEvent

    models = get_args(get_args(BetaManagedAgentsSessionEvent)[0])
    assert {get_args(model.model_fields["type"].annotation)[0] for model in models} == set(PUBLIC)


def test_references_go_by_public_ids() -> None:
    """What an event is about is named as that one is."""
    first, second, third = lines(
        ("agent.tool_use", {"name": "look", "input": {}}),
        ("agent.tool_result", {"tool_use_id": 1, "content": "seen"}),
        ("session.status_idle", {"stop_reason": {"type": "requires_action", "event_ids": [1]}}),
    )
    assert first["id"] == second["tool_use_id"] == "sevt_01234567_1"
    assert third["stop_reason"]["event_ids"] == [first["id"]]
    assert first["processed_at"] == "2025-06-15T15:06:40.123456Z"


def test_what_is_ours_is_left_out_and_counted() -> None:
    """Events of ours, of the caller and purged ones are not there; how many were left out is told."""
    events = [
        Logged(1, "agentmem.timer", {"at": 5}),
        Logged(2, "x.state", {"n": 1}),
        Logged(3, "x.state", {"n": 2}),
        Logged(4, "user.message", None),
        Logged(5, "session.status_running", {}),
    ]
    dropped: Counter[str] = Counter()
    assert [line["type"] for line in strict(STORE, events, dropped)] == ["session.status_running"]
    assert dropped == {"agentmem.timer": 1, "x.state": 2, "user.message": 1}


def test_what_a_result_lacks_in_the_form_is_added(parse: Callable[[dict[str, Any]], Any]) -> None:
    """A block that was taken out is a text, a source that says nothing of citations has none."""
    source = {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "u"}]}
    for of, name in (("agent.tool_result", "tool_use_id"), ("user.custom_tool_result", "custom_tool_use_id")):
        (line,) = lines((of, {name: 1, "content": [{"type": "redacted"}, source]}))
        assert line["content"] == [{"type": "text", "text": "[redacted]"}, {**source, "citations": {"enabled": False}}]
        parse(line)


def test_an_error_of_another_kind_is_an_unknown_one() -> None:
    """An error that the form lacks, or that lacks what the form wants, keeps its message."""
    errors = [
        {"type": "tool_error", "message": "m", "mcp_server_name": "s"},
        {"type": "mcp_connection_failed_error", "message": "m"},
        {
            "type": "mcp_connection_failed_error",
            "message": "m",
            "mcp_server_name": "s",
            "retry_status": {"type": "retrying"},
        },
    ]
    found = [line["error"] for line in lines(*(("session.error", {"error": error}) for error in errors))]
    unknown = {"type": "unknown_error", "message": "m", "retry_status": {"type": "terminal"}}
    assert found == [unknown, unknown, errors[2]]


@settings(max_examples=200, deadline=None)
@given(events=st.lists(EVENTS, max_size=6))
def test_what_goes_out_comes_in(events: list[tuple[str, dict[str, Any]]]) -> None:
    """The way there and back gives the same public form again, whatever it refers to."""
    sent = lines(*events)
    ids: dict[str, int] = {}

    def resolve(there: str) -> int:
        return ids.setdefault(there, int(there.rpartition("_")[2]))

    found = [Logged(resolve(read.original), read.type, read.body, read.at or 0) for read in from_strict(sent, resolve)]
    back = {line["id"]: line for line in strict(STORE, found)}
    for line, event in zip(sent, found, strict=True):
        if event.type == FOREIGN:
            assert event.body == {"event": line}
        else:
            assert back[line["id"]] == line


def test_what_is_unknown_is_kept_whole() -> None:
    """Another type, another field, a reference that leads nowhere: the event is there as it was."""
    foreign = [
        {"id": "a", "type": "agent.dream", "content": [1], "processed_at": "2026-01-01T00:00:00Z"},
        {"id": "b", "type": "user.message", "content": "hi", "mood": "good"},
        {"id": "c", "type": "user.message", "content": [{"type": "hologram"}]},
        {"id": "d", "type": "agent.tool_result", "tool_use_id": "elsewhere"},
        {"id": "e", "type": "agent.tool_use", "name": "n", "input": {}, "permission": "ask"},
        {"id": "f", "type": "agentmem.timer", "at": 1},
        {"id": "g", "type": "agent.tool_result", "tool_use_id": 7},
        {"type": "x.own", "a": 1},
    ]
    found = list(from_strict(foreign, {}.get))
    assert [(read.type, read.body) for read in found] == [(FOREIGN, {"event": event}) for event in foreign]
    assert [read.original for read in found] == [*"abcdefg", ""]
    assert [read.at for read in found] == [1_767_225_600_000_000, *[None] * 7]


@pytest.mark.parametrize(
    ("told", "at"),
    [
        ("2026-01-01T00:00:00.000001Z", 1_767_225_600_000_001),
        ("2026-01-01T01:00:00+01:00", 1_767_225_600_000_000),
        *((told, None) for told in ("2026-01-01T00:00:00", "yesterday", 5, None)),
    ],
)
def test_the_time_of_others_is_read(told: Any, at: int | None) -> None:
    """A time with its zone is read to the microsecond; what is none is none."""
    (read,) = from_strict([{"id": "a", "type": "session.deleted", "processed_at": told}], {}.get)
    assert (read.type, read.at) == ("session.deleted", at)


@pytest.mark.parametrize(
    "event", [None, 5, "user.message", [], {}, {"type": 5}, {"type": "agent.dream", "n": float("nan")}]
)
def test_what_is_no_event_is_refused(event: Any) -> None:
    """A line that is no event of any kind is an error, not an event."""
    with pytest.raises(InvalidInput):
        list(from_strict([event], {}.get))


def taken_in(session: Session, events: list[Any]) -> list[Any]:
    """The events appended to a session, each as it was read."""
    ids: dict[str, int] = {}
    found = []
    for read in from_strict(events, ids.get):
        ids[read.original] = session.append(read.type, read.body).id
        found.append(read)
    return found


def test_a_conversation_of_others_is_appended_here(store: Store) -> None:
    """Every event of a foreign session is taken, also where it answers twice or answers what is opaque."""
    events = [
        {"id": "1", "type": "user.message", "content": [{"type": "text", "text": "refund 4711"}], "processed_at": None},
        {
            "id": "2",
            "type": "agent.tool_use",
            "name": "refund",
            "input": {"order": 4711},
            "evaluated_permission": "ask",
        },
        {"id": "3", "type": "session.status_idle", "stop_reason": {"type": "requires_action", "event_ids": ["2", "?"]}},
        {"id": "4", "type": "user.tool_confirmation", "tool_use_id": "2", "result": "allow"},
        {"id": "5", "type": "user.tool_confirmation", "tool_use_id": "2", "result": "deny"},
        {"id": "6", "type": "agent.tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "done"}]},
        {"id": "7", "type": "agent.tool_result", "tool_use_id": "2", "content": []},
        {"id": "8", "type": "agent.tool_use", "name": "look", "input": {}, "colour": "red"},
        {"id": "9", "type": "agent.tool_result", "tool_use_id": "8"},
        {"id": "10", "type": "agent.mcp_tool_result", "mcp_tool_use_id": "2"},
        {"id": "11", "type": "agent.message", "content": [{"type": "text", "text": "It is refunded."}]},
    ]
    session = store.sessions.start(title="from elsewhere")
    found = taken_in(session, events)
    opaque = [read.original for read in found if read.type == FOREIGN]
    assert opaque == ["5", "7", "8", "9", "10"]
    assert session.info.stop_reason == {"type": "requires_action", "event_ids": [session.events()[1].id]}
    assert session.waiting() == ()
    assert store.verify()


def test_events_of_one_append_may_refer_to_each_other(store: Store) -> None:
    """Resolved to places, a whole session is taken in at once."""
    events = [
        {"id": "1", "type": "agent.tool_use", "name": "a", "input": {}, "evaluated_permission": "ask"},
        {"id": "2", "type": "session.status_idle", "stop_reason": {"type": "requires_action", "event_ids": ["1"]}},
        {"id": "3", "type": "user.tool_confirmation", "tool_use_id": "1", "result": "allow"},
        {"id": "4", "type": "agent.tool_result", "tool_use_id": "1"},
    ]
    places = {str(at): -at for at in range(1, 5)}
    session = store.sessions.start(title="at once")
    made = session.extend([(read.type, read.body) for read in from_strict(events, places.get)])
    assert [event.type for event in session.events()] == [event["type"] for event in events]
    assert session.event(made.ids[3]).target == made.ids[0]
    assert session.info.stop_reason == {"type": "requires_action", "event_ids": [made.ids[0]]}


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_no_event_that_was_read_is_refused_by_the_log(store_of: Callable[[], Store], data: Any) -> None:
    """Public events in any order, with references to any others, are all appended."""
    store = store_of()
    session = store.sessions.start(title="any")
    events = data.draw(st.lists(EVENTS.filter(lambda event: event[0] != "session.status_terminated"), max_size=8))
    names = [f"e{at}" for at in range(len(events))]
    given_events = []
    for at, (of, body) in enumerate(events):
        line = next(strict(STORE, [Logged(1, of, vocabulary.checked(of, body))]))
        for name in line.keys() & set(vocabulary.REFERENCES):
            line[name] = data.draw(st.sampled_from([*names[:at], "nowhere"]))
        given_events.append({**line, "id": names[at]})
    assert len(taken_in(session, given_events)) == len(session.events())


@pytest.fixture(scope="module")
def store_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Store]]:
    """One store for all examples."""
    with Store.open(
        tmp_path_factory.mktemp("taken") / "work.db", project="acme", key=bytes(32), durability="normal"
    ) as store:
        yield lambda: store


@contextmanager
def served(found: list[dict[str, Any]]) -> Iterator[str]:
    """A server of this machine that lists these events; its address."""

    class Listing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps({"data": found, "next_page": None}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Listing)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_sdk_lists_our_export(store: Store) -> None:
    """The SDK's own client reads a session from a server that gives the public form."""
    anthropic = pytest.importorskip("anthropic")
    session = store.sessions.start(title="case")
    session.append("user.message", "订单 4711 在哪里？")
    call = session.append("agent.tool_use", {"name": "look", "input": {"order": 4711}, "provider_id": "toolu_x"})
    session.append("agent.tool_result", {"tool_use_id": call.id, "content": "shipped", "seconds": 0.5})
    session.append("x.state", {"order": 4711}, key="order")
    session.append("agent.message", {"content": "It was shipped 🙂", "stop_reason": "end_turn"})
    found = list(strict(store.log.head().store, session.events()))
    with served(found) as address, anthropic.Anthropic(api_key="none", base_url=address, max_retries=0) as client:
        events = list(client.beta.sessions.events.list("sesn_1"))
    assert [event.type for event in events] == ["user.message", "agent.tool_use", "agent.tool_result", "agent.message"]
    assert events[2].tool_use_id == events[1].id == public_id(store.log.head().store, call.id)
    assert [event.id for event in events] == [line["id"] for line in found]
    assert events[3].content[0].text == "It was shipped 🙂"
    again = taken_in(store.sessions.start(title="copy"), events)
    assert [read.type for read in again] == [event.type for event in events]
