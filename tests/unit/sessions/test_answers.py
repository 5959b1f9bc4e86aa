"""Answers of model APIs: whatever comes is a reply that the log takes, or an error of ours."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import Store
from agentmem.errors import InvalidInput
from agentmem.harness.formats import from_anthropic, from_openai
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall, Usage
from agentmem.harness.request import ModelRequest

sys.path.insert(0, str(Path(__file__).parent))
from session_bodies import JSON

MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x", "stop_reason": "tool_use", "stop_sequence": None,
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "我来看看 🙂", "citations": None},
        {"type": "tool_use", "id": "toolu_9", "name": "look", "input": {"order": 4711}},
    ],
    "usage": {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": None, "cache_creation_input_tokens": 7},
}  # fmt: skip
READ = Reply(
    ({"type": "text", "text": "我来看看 🙂"},),
    (ToolCall("look", {"order": 4711}, "toolu_9"),),
    ({"type": "thinking", "thinking": "hm", "signature": "s"},),
    "tool_use",
    Usage(10, 5, 0, 7),
    "claude-x",
)


def test_a_message_of_anthropic_is_a_reply() -> None:
    """Texts, calls, thoughts, the reason of the end, what was used: from JSON, and from the SDK's object."""
    assert from_anthropic(MESSAGE) == READ
    types = pytest.importorskip("anthropic.types")
    assert from_anthropic(types.Message.model_validate(MESSAGE)) == READ


def test_a_call_that_was_cut_off_is_not_run() -> None:
    """What a model was stopped in the middle of must not be taken for all that it meant."""
    cut = from_anthropic({**MESSAGE, "stop_reason": "max_tokens"}).calls[0]
    assert (cut.input, json.loads(cut.broken or "")) == ({}, {"order": 4711})
    whole = from_anthropic({**MESSAGE, "stop_reason": "max_tokens", "content": MESSAGE["content"][::-1]}).calls[0]
    assert whole.broken is None


def completion(message: dict[str, Any], finish: str | None = "stop", **rest: Any) -> dict[str, Any]:
    return {
        "id": "c",
        "object": "chat.completion",
        "model": "gpt-x",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **rest,
    }


def call_of(arguments: Any, name: Any = "look") -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_9", "type": "function", "function": {"name": name, "arguments": arguments}}],
    }


def test_a_completion_of_openai_is_a_reply() -> None:
    """The same of a chat completion; what came out of a cache is counted apart."""
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 80}}
    found = from_openai(completion({**call_of('{"order": 4711}'), "content": "我来看看 🙂"}, "tool_calls", usage=usage))
    assert found == Reply(
        ({"type": "text", "text": "我来看看 🙂"},), (ToolCall("look", {"order": 4711}, "call_9"),), (), "tool_use",
        Usage(20, 5, 80), "gpt-x",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("finish", "stop"),
    [("stop", "end_turn"), ("length", "max_tokens"), ("content_filter", "refusal"), (None, "end_turn"), ("odd", "odd")],
)
def test_reasons_have_one_name(finish: str | None, stop: str) -> None:
    """Why a model stopped is told in the same words, whatever the API."""
    assert from_openai(completion({"role": "assistant", "content": "a"}, finish)).stop_reason == stop


def test_other_forms_of_a_completion_are_read() -> None:
    """A refusal, parts of a text, thoughts in a field of their own, the one call of old."""
    assert from_openai(completion({"content": None, "refusal": "No."})).stop_reason == "refusal"
    parts = from_openai(completion({"content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}))
    assert [block["text"] for block in parts.content] == ["a", "b"]
    thought = from_openai(completion({"content": "a", "reasoning_content": "hm"}))
    assert thought.thinking == ({"type": "reasoning_content", "text": "hm"},)
    old = from_openai(
        completion({"content": None, "function_call": {"name": "look", "arguments": "{}"}}, "function_call")
    )
    assert (old.calls, old.stop_reason) == ((ToolCall("look", {}),), "tool_use")


@pytest.mark.parametrize(
    "arguments",
    ['{"order": 47', "[1]", '"text"', "nonsense", "{'a': 1}", '{"a": NaN}', '{"a": 1e999}', '{"a": ' + "9" * 30 + "}",
     '{"a": ' + "9" * 5000 + "}", "[" * 100_000, '{"a":' * 40 + "1" + "}" * 40, '{"a": "\\ud800"}', 5, ["a"], "\ud800{", "\0"],
)  # fmt: skip
def test_arguments_that_are_no_json_are_kept_as_they_are(arguments: Any) -> None:
    """Broken JSON, or JSON that no log can hold, is a call with no input and the text of it."""
    (call,) = from_openai(completion(call_of(arguments), "tool_calls")).calls
    assert call.input == {}
    assert call.broken
    call.broken.encode()


@pytest.mark.parametrize("arguments", ["", "  ", None, "null", "{}", {}])
def test_no_arguments_are_an_empty_input(arguments: Any) -> None:
    """A tool that takes nothing is called with nothing."""
    assert from_openai(completion(call_of(arguments))).calls == (ToolCall("look", {}, "call_9"),)


def test_a_response_of_openai_is_a_reply() -> None:
    """The Responses API: messages, calls, reasoning that goes back, what was used."""
    reasoning = {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": "e"}
    response = {
        "object": "response", "model": "gpt-x", "status": "completed",
        "output": [
            reasoning,
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "hi", "annotations": []}]},
            {"type": "function_call", "id": "fc", "call_id": "call_9", "name": "look", "arguments": '{"order": 1}'},
        ],
        "usage": {"input_tokens": 9, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 4}},
    }  # fmt: skip
    assert from_openai(response) == Reply(
        ({"type": "text", "text": "hi"},), (ToolCall("look", {"order": 1}, "call_9"),), (reasoning,), "tool_use",
        Usage(5, 2, 4), "gpt-x",
    )  # fmt: skip
    cut = from_openai({**response, "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})
    assert (cut.stop_reason, cut.calls[0].input, cut.calls[0].broken) == ("max_tokens", {}, '{"order": 1}')


@pytest.mark.parametrize("read", [from_anthropic, from_openai])
@pytest.mark.parametrize(
    "answer",
    [None, 5, "text", [], {}, {"content": "text"}, {"choices": []}, {"choices": [None]}, {"error": {"message": "no"}}],
)
def test_what_is_no_answer_is_an_error(read: Callable[[Any], Reply], answer: Any) -> None:
    """What an API did not say is not taken for an answer."""
    with pytest.raises(InvalidInput):
        read(answer)


ODD = st.one_of(JSON, st.text(max_size=5), st.just(float("nan")), st.just({"input": float("inf")}))


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_no_answer_breaks_the_reading(data: Any) -> None:
    """An answer with anything in any of its fields is a reply, or an error of ours."""

    def damaged(value: Any) -> Any:
        if data.draw(st.integers(0, 9)) == 0:
            return data.draw(ODD)
        if isinstance(value, dict):
            return {name: damaged(part) for name, part in value.items()}
        if isinstance(value, list):
            return [damaged(part) for part in value]
        return value

    message = call_of('{"a": 1}') | {"reasoning_content": "a"}
    for read, answer in ((from_anthropic, MESSAGE), (from_openai, completion(message, usage={"prompt_tokens": 4}))):
        try:
            reply = read(damaged(answer))
        except InvalidInput:
            continue
        assert isinstance(reply, Reply)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text(st.characters(), max_size=8),
    depth=st.sampled_from([1, 26, 27, 28, 29, 30, 31, 32]),
    name=st.text(max_size=4),
)
def test_the_log_takes_whatever_was_read(store: Store, text: str, depth: int, name: str) -> None:
    """A session goes on after any answer: what its parts hold is fit for the log, and for the next request."""
    value: Any = text
    for _ in range(depth):
        value = {"a": value}
    content = [
        {"type": "thinking", "thinking": text, "signature": text, "more": value},
        {"type": "text", "text": text},
        {"type": "tool_use", "id": text, "name": name, "input": value},
    ]
    answers = [from_anthropic({"content": content, "model": text, "stop_reason": text}), Reply.of("done")]
    requests: list[ModelRequest] = []

    def model(request: ModelRequest) -> Reply:
        requests.append(request)
        return answers.pop(0)

    session = store.sessions.start(title="any")
    session.append("user.message", "hi")
    woken = Harness(store, model, retries=0).wake(session.id)
    assert (woken.stop_reason, woken.turns) == ("end_turn", 2), [event.body for event in session.events()]
    assert requests[1].anthropic()["messages"][-1]["content"][0]["type"] == "tool_result"
    assert "tool" in [message["role"] for message in requests[1].openai()["messages"]]
