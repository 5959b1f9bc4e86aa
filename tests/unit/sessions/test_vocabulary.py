"""The vocabulary of session events: every body is checked, what is accepted is stable, what is not names its place."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import Store, limits
from agentmem.errors import AgentMemError, InvalidInput, LimitExceeded
from agentmem.log.canonical import canonical, plain
from agentmem.records import vocabulary

sys.path.insert(0, str(Path(__file__).parent))
from session_bodies import EVENTS, JSON, OBJECT, OURS, PUBLIC, TEXT


@settings(max_examples=400, deadline=None)
@given(event=EVENTS)
def test_what_is_accepted_is_stable_and_canonical(event: tuple[str, dict[str, Any]]) -> None:
    """A body that was checked is checked to itself, and is what comes back from its canonical JSON."""
    of, body = event
    found = vocabulary.checked(of, body)
    assert vocabulary.checked(of, found) == found
    assert canonical(plain(canonical(found))) == canonical(found)
    assert isinstance(vocabulary.said(of, found), str)


@settings(max_examples=200, deadline=None)
@given(body=OBJECT)
def test_events_of_the_caller_hold_any_object(body: dict[str, Any]) -> None:
    """An `x.` event is any object of JSON, and says its `text` or all of it."""
    found = vocabulary.checked("x.note", body)
    assert canonical(vocabulary.checked("x.note", found)) == canonical(found) == canonical(body)
    text = body.get("text")
    assert vocabulary.said("x.note", found) == (text if isinstance(text, str) else canonical(body))


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    of=st.sampled_from([*vocabulary.TYPES, "x.n", "x.", "user.massage", "", "agentmem.no"]),
    body=st.one_of(JSON, st.binary(), st.lists(st.just(object()))),
)
def test_no_body_breaks_the_check(of: str, body: Any) -> None:
    """Whatever is given is accepted, or refused with an error of ours."""
    try:
        vocabulary.checked(of, body)
    except InvalidInput as error:
        assert error.what


@settings(max_examples=300, deadline=None)
@given(event=EVENTS, data=st.data())
def test_a_body_that_was_tampered_with_is_refused_or_stays_stable(event: tuple[str, dict[str, Any]], data: Any) -> None:
    """One value anywhere in a body replaced by any other never breaks the check."""
    of, body = event
    if not body:
        return
    name = data.draw(st.sampled_from(sorted(body)))
    try:
        found = vocabulary.checked(of, {**body, name: data.draw(JSON)})
    except InvalidInput:
        return
    assert vocabulary.checked(of, found) == found


def test_every_public_type_is_there_and_no_other() -> None:
    """The types are the public ones and those of ours."""
    assert {of for of in vocabulary.TYPES if not of.startswith(vocabulary.OURS)} == set(PUBLIC)
    for of in PUBLIC:
        assert set(vocabulary.TYPES[of].ours) == set(OURS.get(of, ())), of


def test_a_text_stands_for_one_block() -> None:
    """`content` as a text is one block of text."""
    assert vocabulary.checked("user.message", {"content": "hi"}) == {"content": [{"type": "text", "text": "hi"}]}


def test_a_field_that_is_null_is_not_stored() -> None:
    """An optional field that is null is as one that is not there, at any depth."""
    source = {"type": "url", "url": "u"}
    body = {"tool_use_id": 1, "is_error": None, "content": [{"type": "document", "title": None, "source": source}]}
    assert vocabulary.checked("agent.tool_result", body) == {
        "tool_use_id": 1, "content": [{"type": "document", "source": source}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("of", "body", "told"),
    [
        ("user.message", {"content": [{"type": "text", "text": "a"}, {"type": "text", "text": 3}]}, "content[1].text"),
        ("user.message", {"content": [{"type": "text", "txt": "a"}]}, "content[0].txt"),
        ("user.message", {"content": [{"type": "vidéo"}]}, "content[0].type"),
        ("user.message", {}, "content is missing"),
        (
            "user.message",
            {"content": [{"type": "image", "source": {"type": "url"}}]},
            "content[0].source.url is missing",
        ),
        ("agent.tool_use", {"name": "a", "input": []}, "input"),
        ("agent.tool_result", {"tool_use_id": "57"}, "tool_use_id"),
        ("agent.tool_result", {"tool_use_id": True}, "tool_use_id"),
        ("user.tool_confirmation", {"tool_use_id": 1, "result": "maybe"}, "result"),
        ("session.status_idle", {"stop_reason": {"type": "requires_action"}}, "stop_reason.event_ids is missing"),
        ("span.model_request_end", {"model_request_start_id": 1, "model_usage": {"input_tokens": -1}}, "model_usage"),
        ("user.interrupt", {"why": "x"}, "why is not a field here"),
        ("user.interrupt", [], "body"),
    ],
)
def test_an_error_names_the_place(of: str, body: Any, told: str) -> None:
    """What is wrong is told with the path to it."""
    with pytest.raises(InvalidInput) as caught:
        vocabulary.checked(of, body)
    assert told in caught.value.what


@pytest.mark.parametrize(("of", "near"), [("user.mesage", "user.message"), ("agent.tool-use", "agent.tool_use")])
def test_an_unknown_type_is_told_the_nearest(of: str, near: str) -> None:
    """A misspelled type is refused with the one that was meant."""
    with pytest.raises(InvalidInput) as caught:
        vocabulary.checked(of, {})
    assert near in caught.value.next


@pytest.mark.parametrize(
    "of", ["x.", "x", "x. a", "x.a b", "x.ä/" * 30, "x.\0", "X.a", "agentmem.none", "", None, 5, ["x.a"]]
)
def test_what_is_no_type_is_refused(of: Any) -> None:
    """A type is one of the list, or `x.` and a name."""
    with pytest.raises(InvalidInput):
        vocabulary.checked(of, {})


def test_a_field_that_is_unknown_is_told_the_nearest() -> None:
    """A misspelled field is refused with the one that was meant."""
    with pytest.raises(InvalidInput) as caught:
        vocabulary.checked("agent.tool_result", {"tool_use_id": 1, "contnet": "a"})
    assert "content" in caught.value.next


def test_no_error_repeats_a_long_value() -> None:
    """A value is shown in short, however long it is."""
    with pytest.raises(InvalidInput) as caught:
        vocabulary.checked("user.message", {"content": [{"type": "secret" * 10_000}]})
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800", 2**63, {1: 2}, {"a": b"x"}, {"a": {1}}])
def test_what_is_no_json_is_refused(value: Any) -> None:
    """No NaN, no half of a surrogate pair, no integer beyond 64 bits, no key that is no text."""
    for of, body in (("x.a", {"v": value}), ("agent.tool_use", {"name": "a", "input": {"v": value}})):
        with pytest.raises(InvalidInput):
            vocabulary.checked(of, body)


def test_a_value_nested_too_deep_is_refused() -> None:
    """More levels than `JSON_DEPTH` are refused, also far more than the stack holds."""
    for levels in (limits.JSON_DEPTH + 1, 100_000):
        value: Any = {}
        for _ in range(levels):
            value = {"a": value}
        with pytest.raises(LimitExceeded):
            vocabulary.checked("x.deep", value)
        with pytest.raises(LimitExceeded):
            vocabulary.checked("agent.tool_use", {"name": "a", "input": value})
        while value:  # taken apart piece by piece: its own destruction would need as much stack
            value = value["a"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=TEXT, value=st.one_of(TEXT, st.just("a\0b"), st.just("\x1b[2J")))
def test_the_store_takes_what_the_vocabulary_takes(store: Store, key: str, value: str) -> None:
    """What is accepted comes back from the log as it was; odd characters too."""
    session = store.sessions.start(title="any")
    body = {key: value, "text": value}
    event = session.append("x.any", body)
    assert session.event(event.id).body == body
    called = session.append("agent.tool_use", {"name": "t", "input": body})
    assert session.event(called.id).body == {"name": "t", "input": body}


def test_calls_results_and_what_they_are_about() -> None:
    """Each call has a result that refers to it, and each result is answered by its calls alone."""
    for of in vocabulary.CALLS:
        result, name = vocabulary.result_of(of)
        assert vocabulary.refers(result, {name: 57}) == 57
        assert of in vocabulary.answered_by(result)
        assert vocabulary.textual(of)
        assert vocabulary.textual(result)
    assert vocabulary.refers("user.message", {"content": []}) is None
    assert vocabulary.refers("span.model_request_end", {"model_request_start_id": 3}) == 3


def test_who_may_append_what() -> None:
    """Outside the harness: what users, systems and callers say; a key is of the caller's own events alone."""
    assert {of for of in vocabulary.TYPES if vocabulary.client(of)} == {
        "user.message", "user.interrupt", "user.tool_confirmation", "user.tool_result", "user.custom_tool_result",
        "user.define_outcome", "system.message",
    }  # fmt: skip
    assert vocabulary.client("x.anything")
    assert [of for of in vocabulary.TYPES if vocabulary.key_allowed(of)] == []
    assert vocabulary.key_allowed("x.anything")


@pytest.mark.parametrize(
    ("of", "body", "text"),
    [
        (
            "user.message",
            {"content": [{"type": "text", "text": "a"}, {"type": "redacted"}, {"type": "text", "text": "b"}]},
            "a\nb",
        ),
        ("agent.tool_use", {"name": "look", "input": {"b": 1, "a": "ü"}}, 'look {"a":"ü","b":1}'),
        ("agent.tool_result", {"tool_use_id": 1, "content": "seen"}, "seen"),
        ("agent.tool_result", {"tool_use_id": 1}, ""),
        ("session.status_running", {}, ""),
        ("session.status_idle", {"stop_reason": {"type": "end_turn"}}, ""),
        ("agent.thinking", {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]}, ""),
        ("x.note", {"text": "t"}, "t"),
        ("x.note", {"n": 1}, '{"n":1}'),
        (
            "agent.tool_result",
            {
                "tool_use_id": 1,
                "content": [
                    {"type": "search_result", "source": "s", "title": "t", "content": [{"type": "text", "text": "u"}]},
                    {
                        "type": "document",
                        "title": "d",
                        "source": {"type": "text", "data": "x", "media_type": "text/plain"},
                    },
                    {"type": "image", "source": {"type": "file", "file_id": "f"}},
                ],
            },
            "t\ns\nu\nd\nx\n[image file]",
        ),
    ],
)
def test_what_an_event_says(of: str, body: dict[str, Any], text: str) -> None:
    """The text of an event is what a person would read of it."""
    assert vocabulary.said(of, vocabulary.checked(of, body)) == text


def test_every_error_is_typed_and_tells_what(store: Store) -> None:
    """An event too large for the log is refused with an error of ours."""
    session = store.sessions.start(title="large")
    with pytest.raises(AgentMemError):
        session.append("user.message", "a" * (limits.SESSION_EVENT_BYTES + 1))
