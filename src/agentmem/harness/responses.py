"""OpenAI's Responses API: a window as its input, its answer as a reply. Nothing is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from agentmem.harness import answers
from agentmem.harness.formats import block_text, image_url, result_text, seen
from agentmem.harness.reply import Reply, Usage
from agentmem.harness.turns import Spoken, Turn, called, turns

__all__ = ["from_responses", "openai_responses", "tools_for_responses"]


def openai_responses(events: Iterable[Spoken], *, head: str = "", tail: str = "") -> dict[str, Any]:
    """`instructions` and `input` for the Responses API.

    Thoughts go back only where they are whole in themselves: ask for them with `include=["reasoning.encrypted_content"]`.

    Args:
        events: In order; calls with their results.
        head: What stands before them. Without one there are no `instructions`.
        tail: What stands after them, at the end of the last message.

    Raises:
        InvalidInput: A call without its result, or a result without its call.
    """
    found: list[dict[str, Any]] = []
    for turn in turns(events, tail):
        found += _assistant(turn) if turn.role == "assistant" else _user(turn)
    return {**({"instructions": head} if head.strip() else {}), "input": found}


def _assistant(turn: Turn) -> list[dict[str, Any]]:
    found = [block for block in turn.thoughts if block.get("type") == "reasoning" and block.get("encrypted_content")]
    if turn.blocks:
        parts = [{"type": "output_text", "text": block_text(block)} for block in turn.blocks]
        found.append({"type": "message", "role": "assistant", "content": parts})
    for call, body in turn.calls:
        arguments = json.dumps(body["input"], ensure_ascii=False)
        found.append({"type": "function_call", "call_id": f"call_{call}", "name": called(body), "arguments": arguments})
    return found


def _user(turn: Turn) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"type": "function_call_output", "call_id": f"call_{call}", "output": result_text(body)}
        for call, body in turn.results.items()
    ]
    parts = [_part(block) for block in (*seen(turn), *turn.blocks)]
    if turn.tail:
        parts.append({"type": "input_text", "text": turn.tail})
    if parts:
        found.append({"type": "message", "role": "user", "content": parts})
    return found


def _part(block: Mapping[str, Any]) -> dict[str, Any]:
    url = image_url(block)
    if url is None:
        return {"type": "input_text", "text": block_text(block)}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def tools_for_responses(definitions: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Tools as the Responses API takes them.

    Args:
        definitions: `name`, `description` and `input_schema` of each.
    """
    return [
        {
            "type": "function",
            "name": each["name"],
            "description": each.get("description", ""),
            "parameters": dict(each["input_schema"]),
            "strict": False,
        }
        for each in definitions
    ]


def from_responses(response: Any) -> Reply:
    """The reply of a response: an object of the SDK, or its JSON. `from_openai` takes it too.

    Raises:
        InvalidInput: It is no response.
    """
    found = answers.mapping(response)
    output = answers.items(found.get("output"))
    why = answers.mapping(found.get("incomplete_details") or {}).get("reason")
    cut = output[-1] if output and why == "max_output_tokens" else None
    parts = [part for item in output if item.get("type") == "message" for part in answers.items(item.get("content"))]
    refused = any(part.get("type") == "refusal" for part in parts) or why == "content_filter"
    calls = [
        answers.call(item.get("name"), item.get("arguments"), item.get("call_id"), cut=item is cut)
        for item in output
        if item.get("type") == "function_call"
    ]
    ended = "max_tokens" if why == "max_output_tokens" else "tool_use" if calls else "end_turn"
    usage = answers.mapping(found.get("usage") or {})
    asked = answers.count(usage.get("input_tokens"))
    cached = answers.count(answers.mapping(usage.get("input_tokens_details") or {}).get("cached_tokens"))
    return Reply(
        content=answers.said(*(part.get("text") or part.get("refusal") for part in parts)),
        calls=tuple(calls),
        thinking=answers.kept(item for item in output if item.get("type") == "reasoning"),
        stop_reason="refusal" if refused else ended,
        usage=Usage(max(asked - cached, 0), answers.count(usage.get("output_tokens")), min(cached, asked)),
        model=answers.word(found.get("model")),
    )
