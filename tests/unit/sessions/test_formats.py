"""Formats of model APIs: whatever a window holds is a request that the API takes."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem.errors import InvalidInput
from agentmem.harness.formats import (
    anthropic_messages,
    openai_messages,
    tools_for_anthropic,
    tools_for_openai,
)
from agentmem.harness.responses import openai_responses, tools_for_responses
from agentmem.records import vocabulary

sys.path.insert(0, str(Path(__file__).parent))
from session_bodies import BLOCKS, OBJECT, TEXT, tagged

NAME = re.compile("[A-Za-z0-9_-]{1,64}")


@frozen
class Event:
    """An event as a window has it."""

    id: int
    type: str
    body: dict[str, Any] | None


def said(of: str, text: str, at: int = 1) -> Event:
    return Event(at, of, {"content": [{"type": "text", "text": text}]})


THOUGHT = st.sampled_from(
    [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {}},
        {"type": "reasoning", "id": "rs", "encrypted_content": "e", "summary": []},
        {"type": "reasoning_content", "text": "well"},
    ]
)
SAID = st.lists(tagged(**{of: BLOCKS[of] for of in ("text", "image", "document", "redacted")}), max_size=3)
SPOKEN = st.lists(tagged(**{of: BLOCKS[of] for of in ("text", "redacted")}), max_size=3)
SEEN = st.lists(tagged(**BLOCKS), max_size=3)
CALLED = {"agent.tool_use": "agent.tool_result", "agent.custom_tool_use": "user.custom_tool_result",
          "agent.mcp_tool_use": "agent.mcp_tool_result"}  # fmt: skip


@st.composite
def conversations(draw: Any) -> list[Event]:
    """Events of any kind in any order, each call with its result somewhere after it."""
    found: list[Event] = []
    open_calls: list[Event] = []

    def add(of: str, body: dict[str, Any]) -> None:
        found.append(Event(len(found) + 1, of, vocabulary.checked(of, body)))

    def answer() -> None:
        call = open_calls.pop(draw(st.integers(0, len(open_calls) - 1)))
        of, name = vocabulary.result_of(call.type)
        add(of, {name: call.id, "content": draw(SEEN), "is_error": draw(st.booleans())})

    for step in draw(
        st.lists(st.sampled_from(["user", "agent", "think", "call", "answer", "system", "other"]), max_size=14)
    ):
        match step:
            case "user":
                add("user.message", {"content": draw(SAID)})
            case "agent":
                add("agent.message", {"content": draw(SPOKEN)})
            case "system":
                add("system.message", {"content": draw(TEXT)})
            case "think":
                add("agent.thinking", {"content": draw(st.lists(THOUGHT, min_size=1, max_size=2))})
            case "call":
                of = draw(st.sampled_from(sorted(CALLED)))
                server = {"mcp_server_name": "s"} if of == "agent.mcp_tool_use" else {}
                add(
                    of,
                    {
                        "name": draw(st.sampled_from(["look", "a.b c", "看", "x" * 200])),
                        "input": draw(OBJECT),
                        **server,
                    },
                )
                open_calls.append(found[-1])
            case "answer" if open_calls:
                answer()
            case "other":
                add("user.interrupt", {})
                add("session.status_running", {})
                add("x.state", {"n": 1})
    while open_calls:
        answer()
    return found


def texts(events: list[Event], *kinds: str) -> Iterator[str]:
    """The texts of blocks that must not be lost."""
    for event in events:
        if event.body is not None and event.type.startswith(kinds) and event.type != "agent.thinking":
            for block in event.body.get("content", ()):
                if block["type"] == "text" and block["text"].strip():
                    yield block["text"]


def strings(value: Any) -> Iterator[str]:
    """Every text of a value of JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part)


def calls_of(events: list[Event]) -> list[int]:
    return [event.id for event in events if event.type in vocabulary.CALLS]


TAIL = st.sampled_from(["", "  ", "now it is noon"])


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=conversations(), head=st.sampled_from(["", "You help."]), tail=TAIL)
def test_any_conversation_is_a_request_of_anthropic(events: list[Event], head: str, tail: str) -> None:
    """Roles alternate from user to user, each call has its result at once, nothing is blank, no text is lost."""
    found = anthropic_messages(events, head=head, tail=tail)
    messages = found["messages"]
    roles = [message["role"] for message in messages]
    assert roles == ["user" if at % 2 == 0 else "assistant" for at in range(len(roles))]
    assert len(roles) % 2 == 1
    asked: list[str] = []
    called: list[str] = []
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert results == asked
        assert kinds[: len(results)] == ["tool_result"] * len(results)
        asked = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        called += asked
        assert kinds[len(kinds) - len(asked) :] == ["tool_use"] * len(asked)
        ours = [kind for kind in kinds if kind in ("text", "tool_use")]
        assert message["role"] == "user" or kinds[len(kinds) - len(ours) :] == ours != []
        assert not {"reasoning", "reasoning_content", "redacted"} & set(kinds)
        for block in message["content"]:
            assert block["type"] != "text" or block["text"].strip()
            assert block["type"] != "tool_use" or NAME.fullmatch(block["name"])
    assert called == [f"toolu_{call}" for call in calls_of(events)]
    everything = list(strings(messages))
    assert all(text in everything for text in texts(events, "user.", "agent.", "system."))
    assert not tail.strip() or messages[-1]["content"][-1] == {"type": "text", "text": tail}
    assert ("system" in found) == bool(head)
    assert json.dumps(found).count('"cache_control"') <= 4
    assert anthropic_messages(events, head=head, tail=tail) == found


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=conversations(), tail=TAIL)
def test_any_conversation_is_a_request_of_openai(events: list[Event], tail: str) -> None:
    """Each call is answered right after it, in order; arguments are JSON; a user ends it; no text is lost."""
    messages = openai_messages(events, head="You help.", tail=tail)
    assert messages[0] == {"role": "system", "content": "You help."}
    waiting: list[str] = []
    for message in messages[1:]:
        if message["role"] == "tool":
            assert message["tool_call_id"] == waiting.pop(0)
            assert isinstance(message["content"], str)
            continue
        assert waiting == []
        assert message["content"] or message.get("tool_calls")
        for call in message.get("tool_calls", ()):
            waiting.append(call["id"])
            assert NAME.fullmatch(call["function"]["name"])
            assert isinstance(json.loads(call["function"]["arguments"]), dict)
    assert waiting == []
    assert messages[-1]["role"] in ("user", "tool")
    everything = "\n".join(strings(messages))
    assert all(text in everything for text in texts(events, "user.", "agent.", "system."))
    assert tail.strip() in "".join(strings(messages[-1]))
    assert calls_of(events) == [int(call["id"][5:]) for message in messages for call in message.get("tool_calls", ())]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=conversations(), tail=TAIL)
def test_any_conversation_is_a_request_of_openai_responses(events: list[Event], tail: str) -> None:
    """Each call has one output after it, thoughts that are whole go back, no text is lost."""
    found = openai_responses(events, head="You help.", tail=tail)
    assert found["instructions"] == "You help."
    calls = [item["call_id"] for item in found["input"] if item["type"] == "function_call"]
    outputs = [item["call_id"] for item in found["input"] if item["type"] == "function_call_output"]
    assert calls == outputs == [f"call_{call}" for call in calls_of(events)]
    assert all(
        item["type"] in ("message", "function_call", "function_call_output", "reasoning") for item in found["input"]
    )
    everything = "\n".join(strings(found))
    assert all(text in everything for text in texts(events, "user.", "agent.", "system."))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(events=conversations(), tail=TAIL)
def test_the_sdk_takes_the_request(events: list[Event], tail: str) -> None:
    """Messages and blocks have the fields that the SDK's types of a request say, and no others."""
    pydantic = pytest.importorskip("pydantic")
    types = pytest.importorskip("anthropic.types")
    global _ADAPTER  # noqa: PLW0603  # made once: it takes a second
    _ADAPTER = _ADAPTER or pydantic.TypeAdapter(list[types.MessageParam])
    messages = anthropic_messages(events, tail=tail)["messages"]
    for message in messages:
        message["content"] = [
            block for block in message["content"] if block["type"] in ("text", "tool_use", "tool_result")
        ]
        for block in message["content"]:
            if block["type"] == "tool_result":
                block["content"] = [part for part in block.get("content", ()) if part["type"] == "text"]
    found = _ADAPTER.validate_python(messages)
    assert len(found) == len(messages)


_ADAPTER: Any = None


@pytest.mark.parametrize("form", [anthropic_messages, openai_messages, openai_responses])
def test_a_call_apart_from_its_result_is_refused(form: Callable[[list[Event]], Any]) -> None:
    """A call without its result, a result without its call, before it, or twice is an error, not a request."""
    call = Event(1, "agent.tool_use", {"name": "look", "input": {}})
    result = Event(2, "agent.tool_result", {"tool_use_id": 1})
    assert form([call, result])
    for events in ([call], [result], [result, call], [call, result, result]):
        with pytest.raises(InvalidInput):
            form(events)


def test_what_was_said_while_a_call_waited_stands_after_its_result() -> None:
    """A call that waited for days: its result is next to it, the talk meanwhile follows."""
    events = [
        said("user.message", "refund it", 1),
        Event(2, "agent.tool_use", {"name": "refund", "input": {}}),
        Event(3, "agent.tool_use", {"name": "look", "input": {}}),
        Event(4, "agent.tool_result", {"tool_use_id": 3, "content": [{"type": "text", "text": "found"}]}),
        said("user.message", "well?", 5),
        said("agent.message", "I wait for an approval", 6),
        Event(7, "agent.tool_result", {"tool_use_id": 2, "content": [{"type": "text", "text": "paid"}]}),
    ]
    messages = anthropic_messages(events, tail="noon")["messages"]
    assert [[block["type"] for block in message["content"]] for message in messages] == [
        ["text"], ["tool_use", "tool_use"], ["tool_result", "tool_result", "text"], ["text"], ["text"],
    ]  # fmt: skip
    assert [block["tool_use_id"] for block in messages[2]["content"][:2]] == ["toolu_2", "toolu_3"]


def test_the_beginning_of_a_request_stays_as_the_conversation_goes_on() -> None:
    """Up to the mark of the cache, the next request has what this one had: only then does a cache hold."""
    events = [
        said("user.message", f"question {at}", at) if at % 2 else said("agent.message", f"answer {at}", at)
        for at in range(1, 8)
    ]

    def prefix(until: int, tail: str) -> tuple[list[Any], int]:
        found = anthropic_messages(events[:until], head="head", tail=tail)
        blocks = [block for message in found["messages"] for block in message["content"]]
        marks = [at for at, block in enumerate(blocks) if block.pop("cache_control", None)]
        return blocks, marks[-1]

    now, mark = prefix(5, "it is noon")
    later, later_mark = prefix(7, "it is one")
    assert later[: mark + 1] == now[: mark + 1]
    assert later_mark > mark == len(now) - 2


def test_thoughts_go_back_to_whom_they_came_from() -> None:
    """Blocks of a provider stand first in their turn, unchanged, and no other provider is sent them."""
    thoughts = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "reasoning_content", "text": "well"},
        {"type": "reasoning", "id": "r", "encrypted_content": "e", "summary": []},
        {"type": "reasoning", "id": "q", "summary": []},
    ]
    events = [
        said("user.message", "hi"),
        Event(2, "agent.thinking", {"content": thoughts}),
        said("agent.message", "hello", 3),
    ]
    anthropic = anthropic_messages(events)["messages"][1]["content"]
    assert anthropic == [thoughts[0], {"type": "text", "text": "hello"}]
    assert openai_messages(events)[1] == {"role": "assistant", "content": "hello", "reasoning_content": "well"}
    assert openai_responses(events)["input"][1] == thoughts[2]


def test_a_thought_that_led_to_nothing_is_left_out() -> None:
    """Thoughts belong to what was said after them, not to the next turn."""
    thought = Event(1, "agent.thinking", {"content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]})
    messages = anthropic_messages([thought, said("user.message", "hi", 2), said("agent.message", "hello", 3)])[
        "messages"
    ]
    assert [block["type"] for message in messages for block in message["content"]] == ["text"] * 3


def test_images_reach_every_api() -> None:
    """An image of a user or of a result is sent in the form of each API."""
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
    events = [
        Event(1, "user.message", {"content": [image, {"type": "text", "text": "what is it?"}]}),
        Event(2, "agent.tool_use", {"name": "zoom", "input": {}}),
        Event(3, "agent.tool_result", {"tool_use_id": 2, "content": [{"type": "text", "text": "here"}, image]}),
    ]
    part = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = openai_messages(events)
    assert messages[0]["content"] == [part, {"type": "text", "text": "what is it?"}]
    assert messages[2]["content"].startswith("here")
    assert messages[3]["content"] == [{"type": "text", "text": "An image in the result of call_2:"}, part]
    assert anthropic_messages(events)["messages"][2]["content"][0]["content"][1] == image
    assert json.dumps(openai_responses(events)).count("data:image/png;base64,AAAA") == 2


def test_a_call_that_failed_says_so_to_every_api() -> None:
    """Where an API has no field for it, the text begins with it."""
    events = [
        Event(1, "agent.tool_use", {"name": "look", "input": {}}),
        Event(
            2,
            "agent.tool_result",
            {"tool_use_id": 1, "is_error": True, "content": [{"type": "text", "text": "no such order"}]},
        ),
    ]
    assert anthropic_messages(events)["messages"][2]["content"][0]["is_error"] is True
    assert openai_messages(events)[2]["content"] == "[error] no such order"


@pytest.mark.parametrize(
    "events", [[], [said("user.message", " ")], [Event(1, "user.message", None)], [Event(1, "agent.thinking", {})]]
)
def test_a_request_is_never_empty(events: list[Event]) -> None:
    """With nothing to show there is a message all the same: no API takes none."""
    for tail in ("", "noon"):
        assert anthropic_messages(events, tail=tail)["messages"][-1]["content"]
        assert openai_messages(events, tail=tail)[-1]["content"]


def test_tools_take_the_form_of_each_api() -> None:
    """Name, description and schema, and nothing else."""
    schema = {"type": "object", "properties": {"order": {"type": "integer"}}}
    given_tools = [{"name": "look", "description": "Look.", "input_schema": schema, "permission": "ask"}]
    assert tools_for_anthropic(given_tools) == [{"name": "look", "description": "Look.", "input_schema": schema}]
    assert tools_for_openai(given_tools) == [
        {"type": "function", "function": {"name": "look", "description": "Look.", "parameters": schema}}
    ]
    assert tools_for_responses(given_tools)[0]["parameters"] == schema
