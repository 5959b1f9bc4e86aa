"""The types of a session's events and what each may say: the public vocabulary of managed agents, and the caller's own.

A body is a JSON object without id, type and time. It is checked when it is appended, field by field, and stored as it was
checked; what is read later is never checked again. References to other events are whole numbers, their ids. Some fields of
public types are ours alone; an export for others leaves them out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, shown
from agentmem.log.canonical import canonical, plain
from agentmem.records import validate
from agentmem.records.session_words import CALLS, REFERENCES, RESULTS

__all__ = [
    "CALLS", "CLIENT", "OURS", "REFERENCES", "RESULTS", "TYPES", "Shape", "answered_by", "checked", "client",
    "key_allowed", "known", "refers", "result_of", "said", "textual",
]  # fmt: skip

_Check: TypeAlias = Callable[[Any, str], Any]

_ANSWERS: Final[Mapping[str, tuple[str, ...]]] = {
    "agent.tool_result": ("agent.tool_use",),
    "user.tool_result": ("agent.tool_use",),
    "agent.mcp_tool_result": ("agent.mcp_tool_use",),
    "user.custom_tool_result": ("agent.custom_tool_use",),
    "user.tool_confirmation": ("agent.tool_use", "agent.mcp_tool_use"),
    "agentmem.tool_started": ("agent.mcp_tool_use", "agent.tool_use"),
    "agentmem.timer_fired": ("agentmem.timer",),
    "span.model_request_end": ("span.model_request_start",),
    "span.outcome_evaluation_end": ("span.outcome_evaluation_start",),
    "workflow_run.phase_ended": ("workflow_run.phase_started",),
}
_OWN: Final = re.compile(r"x\.[^\W_][\w.\-/+]*")


@frozen
class Shape:
    """What the body of a type may hold: the check of each field, and which of them it must have, and which are ours."""

    fields: Mapping[str, _Check]
    required: tuple[str, ...]
    ours: tuple[str, ...] = ()


def _text(most: int = limits.SESSION_EVENT_BYTES) -> _Check:
    def checked(value: Any, place: str) -> str:
        try:
            return validate.text(value, place, most)
        except LimitExceeded as error:
            raise LimitExceeded(error.what, next="Keep it in a file and write where it is") from None

    return checked


def _word(value: Any, place: str) -> str:
    return validate.line(value, place, 256)


def _flag(value: Any, place: str) -> bool:
    return validate.flag(value, place)


def _whole(value: Any, place: str) -> int:
    return validate.whole(value, place, 0, limits.INT_MAX)


def _event(value: Any, place: str) -> int:
    return validate.whole(value, place, 1, limits.INT_MAX)


def _number(value: Any, place: str) -> float:
    return validate.number(value, place, 0, 1e15)


def _one_of(*words: str) -> _Check:
    return lambda value, place: validate.choice(value, place, words)


def _maybe(check: _Check) -> _Check:
    return lambda value, place: None if value is None else check(value, place)


def _list(check: _Check, most: int = 10_000) -> _Check:
    def checked(value: Any, place: str) -> list[Any]:
        if not isinstance(value, (list, tuple)) or len(value) > most:
            raise InvalidInput(f"{place} is {shown(value)}", why=f"It is a list of at most {most}")
        return [check(each, f"{place}[{at}]") for at, each in enumerate(value)]

    return checked


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{place} is {shown(value)}", why="It is an object")
    found: dict[str, Any] = plain(canonical(dict(value)))
    return found


def _fields(required: Mapping[str, _Check], optional: Mapping[str, _Check] | None = None) -> _Check:
    """An object with these fields and no others."""
    shape = Shape({**required, **(optional or {})}, tuple(required))
    return lambda value, place: _fitted(value, shape, place)


def _tagged(name: str, kinds: Mapping[str, _Check]) -> _Check:
    """An object whose field `name` says which of several it is."""

    def checked(value: Any, place: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{place} is {shown(value)}", why="It is an object")
        kind = validate.choice(value.get(name), f"{place}.{name}", tuple(kinds))
        rest = {field: part for field, part in value.items() if field != name}
        return {name: kind, **kinds[kind](rest, place)}

    return checked


_DATA: Final = _text()
_IMAGE: Final = _tagged(
    "type",
    {
        "base64": _fields({"data": _DATA, "media_type": _word}),
        "url": _fields({"url": _text(16_384)}),
        "file": _fields({"file_id": _word}),
    },
)
_DOCUMENT: Final = _tagged(
    "type",
    {
        "base64": _fields({"data": _DATA, "media_type": _word}),
        "text": _fields({"data": _DATA, "media_type": _one_of("text/plain")}),
        "url": _fields({"url": _text(16_384)}),
        "file": _fields({"file_id": _word}),
    },
)
_TEXT_BLOCK: Final = _fields({"text": _DATA})
_BLOCKS: Final = {
    "text": _TEXT_BLOCK,
    "image": _fields({"source": _IMAGE}),
    "document": _fields({"source": _DOCUMENT}, {"title": _maybe(_text(4096)), "context": _maybe(_text(65_536))}),
    "redacted": _fields({}),
    "search_result": _fields(
        {"source": _text(16_384), "title": _text(4096), "content": _list(_tagged("type", {"text": _TEXT_BLOCK}))},
        {"citations": _fields({"enabled": _flag})},
    ),
}


def _content(*kinds: str) -> _Check:
    """The blocks of a message; a text alone stands for one block."""
    blocks = _list(_tagged("type", {kind: _BLOCKS[kind] for kind in kinds}))

    def checked(value: Any, place: str) -> list[Any]:
        given = [{"type": "text", "text": value}] if isinstance(value, str) else value
        found: list[Any] = blocks(given, place)
        return found

    return checked


_SAID: Final = _content("text", "image", "document", "redacted")
_RESULT: Final = _maybe(_content("text", "image", "document", "search_result", "redacted"))
_SPOKEN: Final = _content("text", "redacted")
_THREAD: Final[Mapping[str, _Check]] = {"session_thread_id": _maybe(_word)}
_AGENT_THREAD: Final[Mapping[str, _Check]] = {"session_thread_id": _word, "agent_name": _word}
_USAGE: Final = _fields(
    {
        "input_tokens": _whole,
        "output_tokens": _whole,
        "cache_creation_input_tokens": _whole,
        "cache_read_input_tokens": _whole,
    },
    {"speed": _maybe(_one_of("standard", "fast"))},
)
_STOP: Final = _tagged(
    "type",
    {
        "end_turn": _fields({}),
        "requires_action": _fields({"event_ids": _list(_event)}),
        "retries_exhausted": _fields({}),
        "budget_reached": _fields({}),
        "refusal": _fields({}),
    },
)
_STOP_DETAILS: Final = _maybe(
    _tagged("type", {"refusal": _fields({}, {"category": _maybe(_word), "explanation": _maybe(_text())})})
)
_PERMISSION: Final = _maybe(_one_of("allow", "ask", "deny"))
_REASON: Final = _fields({"reason_code": _word})
_EVALUATION: Final = _maybe(
    _tagged(
        "type",
        {
            "always_allow": _fields({}),
            "always_ask": _fields({}),
            "auto": _fields(
                {"evaluated_permission": _tagged("type", {"allow": _fields({}), "ask": _REASON, "deny": _REASON})}
            ),
        },
    )
)
_PRICE: Final = _fields({"amount": _word, "currency": _one_of("USD")})
_BUDGET: Final = _maybe(_tagged("type", {"limit": _fields({"max_list_cost": _PRICE})}))
_SPENT: Final = _fields(
    {},
    {
        "active_seconds": _maybe(_number),
        "cache_creation": _maybe(
            _fields({}, dict.fromkeys(("ephemeral_1h_input_tokens", "ephemeral_5m_input_tokens"), _maybe(_whole)))
        ),
        **dict.fromkeys(("cache_read_input_tokens", "input_tokens", "output_tokens"), _maybe(_whole)),
        "list_cost": _maybe(_PRICE),
        "server_tool_use": _maybe(
            _fields({}, dict.fromkeys(("web_fetch_requests", "web_search_requests"), _maybe(_whole)))
        ),
    },
)
_RUN_ERROR: Final = _fields({"type": _word, "message": _text()})
_RUN_RESULT: Final = _tagged(
    "type", {"completed": _fields({}), "stopped": _fields({}), "error": _fields({"error": _RUN_ERROR})}
)
_PHASE: Final = _fields({"id": _word, "name": _word}, {"description": _maybe(_text())})
_CALL_OURS: Final[Mapping[str, _Check]] = {
    "permission": _one_of("allow", "ask"), "expires_at": _whole, "provider_id": _word, "broken": _text(),
}  # fmt: skip
_CALL: Final[Mapping[str, _Check]] = {"evaluated_permission": _PERMISSION, "evaluation": _EVALUATION, **_THREAD}
_ANSWER_OURS: Final[Mapping[str, _Check]] = {
    "masked": _flag, "unknown": _flag, "seconds": _number, "cut": _whole,
}  # fmt: skip
_ANSWER: Final[Mapping[str, _Check]] = {"content": _RESULT, "is_error": _maybe(_flag)}


def _shape(
    required: Mapping[str, _Check] | None = None,
    optional: Mapping[str, _Check] | None = None,
    ours: Mapping[str, _Check] | None = None,
) -> Shape:
    return Shape({**(required or {}), **(optional or {}), **(ours or {})}, tuple(required or ()), tuple(ours or ()))


_RUN: Final[Mapping[str, _Check]] = {"workflow_run_id": _word}
OURS: Final = "agentmem."
TYPES: Final[Mapping[str, Shape]] = {
    "user.message": _shape({"content": _SAID}),
    "user.interrupt": _shape(None, _THREAD),
    "user.tool_confirmation": _shape(
        {"tool_use_id": _event, "result": _one_of("allow", "deny")}, {"deny_message": _maybe(_text()), **_THREAD},
        {"by": _word, "input_hash": _word, "expires_at": _whole},
    ),
    "user.tool_result": _shape({"tool_use_id": _event}, {**_ANSWER, **_THREAD}),
    "user.custom_tool_result": _shape({"custom_tool_use_id": _event}, {**_ANSWER, **_THREAD}),
    "user.define_outcome": _shape(
        {"outcome_id": _word, "description": _text(), "rubric": _tagged("type", {
            "text": _fields({"content": _text()}), "file": _fields({"file_id": _word})})},
        {"max_iterations": _maybe(_whole)},
    ),
    "system.message": _shape({"content": _content("text")}),
    "agent.message": _shape({"content": _SPOKEN}, None, {"stop_reason": _word, "provider_id": _word}),
    "agent.thinking": _shape(None, None, {"content": _list(_object)}),
    "agent.tool_use": _shape({"name": _word, "input": _object}, _CALL, _CALL_OURS),
    "agent.tool_result": _shape({"tool_use_id": _event}, _ANSWER, _ANSWER_OURS),
    "agent.mcp_tool_use": _shape({"mcp_server_name": _word, "name": _word, "input": _object}, _CALL, _CALL_OURS),
    "agent.mcp_tool_result": _shape({"mcp_tool_use_id": _event}, _ANSWER, _ANSWER_OURS),
    "agent.custom_tool_use": _shape({"name": _word, "input": _object}, _THREAD, _CALL_OURS),
    "agent.thread_message_sent": _shape(
        {"to_session_thread_id": _word, "content": _SAID}, {"to_agent_name": _maybe(_word)}
    ),
    "agent.thread_message_received": _shape(
        {"from_session_thread_id": _word, "content": _SAID}, {"from_agent_name": _maybe(_word)}
    ),
    "agent.thread_context_compacted": _shape(
        None, None, {"head": _text(), "after": _whole, "budget": _whole, "pinned": _list(_event), "left_out": _whole}
    ),
    "session.status_running": _shape(),
    "session.status_idle": _shape({"stop_reason": _STOP}, {"stop_details": _STOP_DETAILS}, {"due": _whole}),
    "session.status_rescheduled": _shape(None, None, {"due": _whole}),
    "session.status_terminated": _shape(),
    "session.error": _shape(
        {"error": _fields({"type": _word, "message": _text()}, {"retry_status": _tagged("type", {
            "retrying": _fields({}), "exhausted": _fields({}), "terminal": _fields({})}), "mcp_server_name": _word,
            "credential_id": _word, "vault_id": _word, "repository_url": _maybe(_text(16_384))})}
    ),
    "session.updated": _shape(
        None, {"title": _maybe(_text(4096)), "metadata": _maybe(_object), "agent": _maybe(_object), "budget": _BUDGET}
    ),
    "session.usage": _shape({"usage": _SPENT}, {"budget": _BUDGET}),
    "session.deleted": _shape(),
    "session.thread_created": _shape(_AGENT_THREAD, {"workflow_run_id": _maybe(_word)}),
    "session.thread_status_running": _shape(_AGENT_THREAD),
    "session.thread_status_idle": _shape({**_AGENT_THREAD, "stop_reason": _STOP}, {"stop_details": _STOP_DETAILS}),
    "session.thread_status_rescheduled": _shape(_AGENT_THREAD),
    "session.thread_status_terminated": _shape(_AGENT_THREAD),
    "span.model_request_start": _shape(None, None, {"tokens": _whole, "seq": _whole}),
    "span.model_request_end": _shape(
        {"model_request_start_id": _event, "model_usage": _USAGE}, {"is_error": _maybe(_flag)}, {"model": _word}
    ),
    "span.outcome_evaluation_start": _shape({"outcome_id": _word, "iteration": _whole}),
    "span.outcome_evaluation_ongoing": _shape({"outcome_id": _word, "iteration": _whole}),
    "span.outcome_evaluation_end": _shape(
        {"outcome_evaluation_start_id": _event, "outcome_id": _word, "iteration": _whole, "result": _word,
         "explanation": _text(), "usage": _USAGE}
    ),
    "workflow_run.created": _shape(
        {**_RUN, "name": _word, "phases": _list(_PHASE)}, {"description": _maybe(_text())}
    ),
    "workflow_run.status_running": _shape(_RUN),
    "workflow_run.status_idle": _shape(_RUN),
    "workflow_run.status_ended": _shape({**_RUN, "result": _RUN_RESULT}),
    "workflow_run.phase_started": _shape({**_RUN, "workflow_run_phase_id": _word}),
    "workflow_run.phase_ended": _shape({**_RUN, "workflow_run_phase_id": _word, "phase_started_id": _event}),
    "workflow_run.error": _shape({"error": _RUN_ERROR}, {"workflow_run_id": _maybe(_word)}),
    "agentmem.tool_started": _shape({"tool_use_id": _event, "key": _word, "attempt": _whole}),
    "agentmem.grant": _shape(
        {"tool_use_id": _event, "credential_id": _word, "tool": _word}, {"scope": _object, "expires_at": _maybe(_whole)}
    ),
    "agentmem.timer": _shape({"at": _whole}, {"note": _text()}),
    "agentmem.timer_fired": _shape({"timer_id": _event}),
}  # fmt: skip

CLIENT: Final = frozenset(name for name in TYPES if name.startswith(("user.", "system.")))
_TEXTUAL: Final = frozenset(
    (*CALLS, *RESULTS, "user.message", "user.define_outcome", "system.message", "agent.message",
     "agent.thread_message_sent", "agent.thread_message_received")
)  # fmt: skip


def known(of: Any) -> str:
    """A type that there is, or one of the caller's own.

    Raises:
        InvalidInput: It is neither; names the nearest.
    """
    if type(of) is str and (of in TYPES or (_OWN.fullmatch(of) and len(of) <= limits.LABEL_CHARS)):
        return of
    raise InvalidInput(
        f"type is {shown(of)}",
        why=f"The types are listed in docs/sessions.md; your own are x.<name>, {limits.LABEL_CHARS} characters at most",
        next=validate.did_you_mean(of, TYPES),
    )


def checked(of: str, body: Any) -> dict[str, Any]:
    """The body of an event as it is stored.

    Raises:
        InvalidInput: An unknown type or field, a field that is missing or not acceptable; names its place.
        LimitExceeded: A text is too long, or a value nested too deep.
    """
    if known(of).startswith("x."):
        return _object(body, "body")
    return _fitted(body, TYPES[of], "")


def _fitted(value: Any, shape: Shape, place: str) -> dict[str, Any]:
    """An object with the fields of a shape."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{place or 'body'} is {shown(value)}", why="It is an object")
    within = f"{place}." if place else ""
    for name in value:
        if name not in shape.fields:
            raise InvalidInput(
                f"{within}{shown(name).strip(chr(39))} is not a field here",
                why="There are " + (", ".join(shape.fields) or "none"),
                next=validate.did_you_mean(name, shape.fields),
            )
    for name in shape.required:
        if name not in value:
            raise InvalidInput(f"{within}{name} is missing")
    found = {name: shape.fields[name](part, f"{within}{name}") for name, part in value.items()}
    return {name: part for name, part in found.items() if part is not None}


def said(of: str, body: Mapping[str, Any]) -> str:
    """What an event says in words; empty for nothing."""
    if of in CALLS:
        return f"{body['name']} {canonical(body['input'])}"
    if of.startswith("x."):
        own = body.get("text")
        return own if isinstance(own, str) else canonical(body)
    if of == "user.define_outcome":
        return str(body["description"])
    if of == "session.error":
        return str(body["error"]["message"])
    content = body.get("content")
    if not isinstance(content, list) or of == "agent.thinking":
        return ""
    return "\n".join(filter(None, map(_block_said, content)))


def _block_said(block: Mapping[str, Any]) -> str:
    match block.get("type"):
        case "text":
            return str(block["text"])
        case "document":
            source = block["source"]
            told = [block.get("title"), block.get("context"), source["data"] if source["type"] == "text" else None]
            return "\n".join(filter(None, told)) or f"[document {source.get('url') or source['type']}]"
        case "image":
            return f"[image {block['source'].get('url') or block['source']['type']}]"
        case "search_result":
            parts = block.get("content")
            texts = [str(part.get("text", "")) for part in parts] if isinstance(parts, list) else []
            return "\n".join(filter(None, [str(block.get("title", "")), str(block.get("source", "")), *texts]))
        case _:
            return ""


def refers(of: str, body: Mapping[str, Any]) -> int | None:
    """The event that one is about: the call of a result, the beginning of an end; None for none."""
    return next((body[name] for name in REFERENCES if name in body), None)


def answered_by(of: str) -> tuple[str, ...]:
    """The types of event that one of this type may refer to; any if empty."""
    return _ANSWERS.get(of, ())


def result_of(of: str) -> tuple[str, str]:
    """The type of the result of a call, and the field in which that names the call."""
    match of:
        case "agent.mcp_tool_use":
            return "agent.mcp_tool_result", "mcp_tool_use_id"
        case "agent.custom_tool_use":
            return "user.custom_tool_result", "custom_tool_use_id"
        case _:
            return "agent.tool_result", "tool_use_id"


def client(of: str) -> bool:
    """Whether anybody may append an event of the type at any time, whoever runs the session."""
    return of in CLIENT or of.startswith("x.")


def textual(of: str) -> bool:
    """Whether the text of an event of the type is searched."""
    return of in _TEXTUAL or of.startswith("x.")


def key_allowed(of: str) -> bool:
    """Whether an event of the type may have a key."""
    return of.startswith("x.")
