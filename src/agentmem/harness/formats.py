"""From a window to the requests of model APIs, and from their answers to replies: plain functions, nothing is sent.

The forms are those of Anthropic's Messages API and of OpenAI's chat completions, which others speak too; for OpenAI's
Responses see `agentmem.harness.responses`. Roles alternate, the user is first and last, each call of a tool is followed at
once by its result, whatever was said in between stands after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentmem.errors import InvalidInput, shown
from agentmem.harness import answers
from agentmem.harness.reply import Reply, Usage
from agentmem.harness.turns import Spoken, Turn, called, told, turns
from agentmem.records import vocabulary

__all__ = [
    "anthropic_messages", "block_text", "from_anthropic", "from_openai", "image_url", "openai_messages", "result_text", "seen",
    "tools_for_anthropic", "tools_for_openai",
]  # fmt: skip

# Thoughts as OpenAI's APIs and those like it give them; no other takes them back.
_OF_OPENAI: Final = ("reasoning", "reasoning_content")
_CUT_OFF: Final = ("max_tokens", "model_context_window_exceeded")


# Anthropic


def anthropic_messages(events: Iterable[Spoken], *, head: str = "", tail: str = "") -> dict[str, Any]:
    """`system` and `messages` for the Messages API.

    The head is marked as what a cache may keep, and so is the last block before the tail: from call to call only what was
    said since is new. Without a head there is no `system`.

    Args:
        events: In order; calls with their results.
        head: What stands before them.
        tail: What stands after them, as the last block of the last turn.

    Raises:
        InvalidInput: A call without its result, or a result without its call.
    """
    messages: list[dict[str, Any]] = []
    for turn in turns(events, tail):
        content = [_anthropic_result(call, body) for call, body in turn.results.items()]
        content += [block for block in turn.thoughts if block.get("type") not in _OF_OPENAI]
        content += turn.blocks
        content += [
            {"type": "tool_use", "id": f"toolu_{call}", "name": called(body), "input": dict(body["input"])}
            for call, body in turn.calls
        ]
        messages.append({"role": turn.role, "content": content})
    last = messages[-1]["content"]
    if last:
        last[-1] = _cached(last[-1])
    if tail.strip():
        last.append({"type": "text", "text": tail})
    system = {"system": [_cached({"type": "text", "text": head})]} if head.strip() else {}
    return {**system, "messages": messages}


def _cached(block: dict[str, Any]) -> dict[str, Any]:
    return {**block, "cache_control": {"type": "ephemeral"}}


def _anthropic_result(call: int, body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"toolu_{call}"}
    if content := told(body):
        found["content"] = content
    if body.get("is_error"):
        found["is_error"] = True
    return found


def tools_for_anthropic(definitions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools as the Messages API takes them.

    Args:
        definitions: `name`, `description` and `input_schema` of each.
    """
    return [
        {"name": each["name"], "description": each.get("description", ""), "input_schema": dict(each["input_schema"])}
        for each in definitions
    ]


def from_anthropic(response: Any) -> Reply:
    """The reply of a message: an object of the SDK, or its JSON.

    Thoughts, and calls of tools that the provider itself ran, are kept to go back to it unchanged. Of a message that was cut
    off the last call is `broken`, if it ends with one: its input may not be all of it.

    Raises:
        InvalidInput: It is no message.
    """
    message = answers.mapping(response)
    content = message.get("content")
    if not isinstance(content, Sequence) or isinstance(content, str):
        raise InvalidInput(f"{shown(response)} is no message", why="It has no list content")
    blocks = answers.items(content)
    stop = answers.word(message.get("stop_reason"))
    cut = blocks[-1] if blocks and stop in _CUT_OFF else None
    calls = [
        answers.call(block.get("name"), block.get("input"), block.get("id"), cut=block is cut)
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    usage = answers.mapping(message.get("usage") or {})
    return Reply(
        content=answers.said(*(block.get("text") for block in blocks if block.get("type") == "text")),
        calls=tuple(calls),
        thinking=answers.kept(block for block in blocks if block.get("type") not in ("text", "tool_use")),
        stop_reason=stop or ("tool_use" if calls else "end_turn"),
        usage=Usage(
            answers.count(usage.get("input_tokens")),
            answers.count(usage.get("output_tokens")),
            answers.count(usage.get("cache_read_input_tokens")),
            answers.count(usage.get("cache_creation_input_tokens")),
        ),
        model=answers.word(message.get("model")),
    )


# OpenAI


def openai_messages(events: Iterable[Spoken], *, head: str = "", tail: str = "") -> list[dict[str, Any]]:
    """`messages` for chat completions.

    A tool's result is text there: an image in one follows in a message of the user, and that a call failed is said in front.

    Args:
        events: In order; calls with their results.
        head: What stands before them, as the system message.
        tail: What stands after them, at the end of the last message.

    Raises:
        InvalidInput: A call without its result, or a result without its call.
    """
    messages: list[dict[str, Any]] = [{"role": "system", "content": head}] if head.strip() else []
    for turn in turns(events, tail):
        if turn.role == "assistant":
            messages.append(_openai_assistant(turn))
            continue
        for call, body in turn.results.items():
            messages.append({"role": "tool", "tool_call_id": f"call_{call}", "content": result_text(body)})
        blocks = [*seen(turn), *turn.blocks]
        if turn.tail:
            blocks.append({"type": "text", "text": turn.tail})
        if blocks:
            messages.append({"role": "user", "content": _openai_content(blocks)})
    return messages


def _openai_assistant(turn: Turn) -> dict[str, Any]:
    found: dict[str, Any] = {"role": "assistant", "content": "\n\n".join(map(block_text, turn.blocks)) or None}
    thoughts = [str(block.get("text", "")) for block in turn.thoughts if block.get("type") == "reasoning_content"]
    if thoughts:
        found["reasoning_content"] = "\n".join(thoughts)
    if turn.calls:
        found["tool_calls"] = [
            {
                "id": f"call_{call}",
                "type": "function",
                "function": {"name": called(body), "arguments": json.dumps(body["input"], ensure_ascii=False)},
            }
            for call, body in turn.calls
        ]
    return found


def result_text(result: Mapping[str, Any]) -> str:
    """A result as a text, for an API that takes nothing else."""
    text = "\n".join(filter(None, map(block_text, told(result))))
    if not result.get("is_error"):
        return text
    return f"[error] {text}" if text else "[error]"


def seen(turn: Turn) -> list[dict[str, Any]]:
    """The images among the results of a turn, each after a line that says whose it is."""
    found: list[dict[str, Any]] = []
    for call, body in turn.results.items():
        for block in told(body):
            if image_url(block) is not None:
                found += [{"type": "text", "text": f"An image in the result of call_{call}:"}, block]
    return found


def image_url(block: Mapping[str, Any]) -> str | None:
    """Where an image is, or all of it as a `data:` URL; None for what is no such image."""
    source = block.get("source")
    if block["type"] != "image" or not isinstance(source, Mapping):
        return None
    if source["type"] == "base64":
        return f"data:{source['media_type']};base64,{source['data']}"
    return source["url"] if source["type"] == "url" else None


def block_text(block: Mapping[str, Any]) -> str:
    """A block as a text: its own, or what it is."""
    return vocabulary.said("user.message", {"content": [block]})


def _openai_content(blocks: Sequence[Mapping[str, Any]]) -> str | list[dict[str, Any]]:
    """Parts of a message; one text where there is nothing else, which every server takes."""
    parts: list[dict[str, Any]] = []
    for block in blocks:
        url = image_url(block)
        if url is None:
            parts.append({"type": "text", "text": block_text(block)})
        else:
            parts.append({"type": "image_url", "image_url": {"url": url}})
    if all(part["type"] == "text" for part in parts):
        return "\n\n".join(part["text"] for part in parts)
    return parts


def tools_for_openai(definitions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools as chat completions take them.

    Args:
        definitions: `name`, `description` and `input_schema` of each.
    """
    return [
        {
            "type": "function",
            "function": {
                "name": each["name"],
                "description": each.get("description", ""),
                "parameters": dict(each["input_schema"]),
            },
        }
        for each in definitions
    ]


_STOPS: Final = {
    "stop": "end_turn", "tool_calls": "tool_use", "function_call": "tool_use", "length": "max_tokens",
    "content_filter": "refusal",
}  # fmt: skip


def from_openai(response: Any) -> Reply:
    """The reply of a chat completion, or of the Responses API: an object of the SDK, or its JSON. Of several choices the first.

    Raises:
        InvalidInput: It is neither.
    """
    found = answers.mapping(response)
    choices = answers.items(found.get("choices"))
    if not choices:
        if isinstance(found.get("output"), Sequence):
            from agentmem.harness.responses import from_responses

            return from_responses(found)
        raise InvalidInput(f"{shown(response)} is no chat completion", why="It has no choices")
    message = answers.mapping(choices[0].get("message") or {})
    refusal = message.get("refusal")
    content = message.get("content")
    texts = [content] if isinstance(content, str) else [part.get("text") for part in answers.items(content)]
    finish = answers.word(choices[0].get("finish_reason"))
    made = answers.items(message.get("tool_calls"))
    if not made and message.get("function_call"):  # the form before tools
        made = [{"function": message["function_call"]}]
    calls = []
    for each in made:
        function = answers.mapping(each.get("function") or each.get("custom") or {})
        cut = finish == "length" and each is made[-1]
        given = function.get("arguments", function.get("input"))
        calls.append(answers.call(function.get("name"), given, each.get("id"), cut=cut))
    thought = message.get("reasoning_content")
    stop = _STOPS.get(finish, finish) if finish else None
    return Reply(
        content=answers.said(*texts, refusal),
        calls=tuple(calls),
        thinking=answers.kept(
            [{"type": "reasoning_content", "text": thought}] if isinstance(thought, str) and thought else []
        ),
        stop_reason="refusal" if refusal else stop or ("tool_use" if calls else "end_turn"),
        usage=_usage(answers.mapping(found.get("usage") or {})),
        model=answers.word(found.get("model")),
    )


def _usage(usage: Mapping[str, Any]) -> Usage:
    """What was used; what came out of the cache is counted apart, as elsewhere."""
    asked = answers.count(usage.get("prompt_tokens"))
    cached = answers.count(answers.mapping(usage.get("prompt_tokens_details") or {}).get("cached_tokens"))
    return Usage(max(asked - cached, 0), answers.count(usage.get("completion_tokens")), min(cached, asked))
