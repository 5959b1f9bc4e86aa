"""Bodies of session events of every type, made by Hypothesis from what the vocabulary says of each, with an own grammar."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

TEXT = st.one_of(
    st.sampled_from(["", "ok", "订单在哪里？", "🙂 здравствуйте", "a\nb\tc", "  spaced  ", '{"a": 1}', "\u202e"]),
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30),
)
WORD = st.text("abcdefgh_0123456789-", min_size=1, max_size=12)
WHOLE = st.integers(0, 2**63 - 1)
SEQ = st.integers(1, 2**63 - 1)
SCALAR = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63) + 1, 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXT,
)
JSON = st.recursive(
    SCALAR, lambda part: st.one_of(st.lists(part, max_size=3), st.dictionaries(TEXT, part, max_size=3)), max_leaves=8
)
OBJECT = st.dictionaries(TEXT, JSON, max_size=4)


def record(required: dict[str, Any] | None = None, optional: dict[str, Any] | None = None) -> Any:
    """An object with these fields; the optional ones there or not, or null."""
    return st.fixed_dictionaries(
        required or {}, optional={name: st.one_of(st.none(), made) for name, made in (optional or {}).items()}
    )


def tagged(**kinds: Any) -> Any:
    """An object whose `type` says which of these it is."""
    return st.one_of(*(made.map(lambda body, of=of: {"type": of, **body}) for of, made in kinds.items()))


EMPTY = st.just({})
SOURCES = {
    "base64": record({"data": TEXT, "media_type": WORD}),
    "url": record({"url": TEXT}),
    "file": record({"file_id": WORD}),
}
TEXT_BLOCK = tagged(text=record({"text": TEXT}))
BLOCKS = {
    "text": record({"text": TEXT}),
    "image": record({"source": tagged(**SOURCES)}),
    "document": record(
        {"source": tagged(**SOURCES, text=record({"data": TEXT, "media_type": st.just("text/plain")}))},
        {"title": TEXT, "context": TEXT},
    ),
    "redacted": EMPTY,
    "search_result": st.fixed_dictionaries(
        {"source": TEXT, "title": TEXT, "content": st.lists(TEXT_BLOCK, max_size=2)},
        optional={"citations": record({"enabled": st.booleans()})},
    ),
}


def content(*kinds: str) -> Any:
    return st.one_of(TEXT, st.lists(tagged(**{of: BLOCKS[of] for of in kinds}), max_size=4))


SAID = content("text", "image", "document", "redacted")
SPOKEN = content("text", "redacted")
ANSWER = {"content": content("text", "image", "document", "search_result", "redacted"), "is_error": st.booleans()}
THREAD = {"session_thread_id": WORD}
NAMED = {"session_thread_id": WORD, "agent_name": WORD}
PERMISSION = st.sampled_from(["allow", "ask", "deny"])
REASON = record({"reason_code": WORD})
CALL = {
    "evaluated_permission": PERMISSION,
    "evaluation": tagged(
        always_allow=EMPTY, always_ask=EMPTY,
        auto=record({"evaluated_permission": tagged(allow=EMPTY, ask=REASON, deny=REASON)}),
    ),
    **THREAD,
}  # fmt: skip
STOP = tagged(
    end_turn=EMPTY, requires_action=record({"event_ids": st.lists(SEQ, max_size=3)}), retries_exhausted=EMPTY,
    budget_reached=EMPTY, refusal=EMPTY,
)  # fmt: skip
STOP_DETAILS = tagged(refusal=record(None, {"category": st.sampled_from(["cyber", "new_kind"]), "explanation": TEXT}))
TOKENS = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
USAGE = record(dict.fromkeys(TOKENS, WHOLE), {"speed": st.sampled_from(["standard", "fast"])})
PRICE = record({"amount": WORD, "currency": st.just("USD")})
BUDGET = tagged(limit=record({"max_list_cost": PRICE}))
SPENT = record(
    None,
    {
        "active_seconds": st.floats(0, 1e9),
        "cache_creation": record(None, {"ephemeral_1h_input_tokens": WHOLE, "ephemeral_5m_input_tokens": WHOLE}),
        "list_cost": PRICE,
        "server_tool_use": record(None, {"web_fetch_requests": WHOLE}),
        **dict.fromkeys(("cache_read_input_tokens", "input_tokens", "output_tokens"), WHOLE),
    },
)
RUN = {"workflow_run_id": WORD}
RUN_ERROR = record({"type": st.sampled_from(["timeout_error", "of_another_kind"]), "message": TEXT})
RUN_RESULT = tagged(completed=EMPTY, stopped=EMPTY, error=record({"error": RUN_ERROR}))
RUBRIC = tagged(text=record({"content": TEXT}), file=record({"file_id": WORD}))
RETRY = tagged(retrying=EMPTY, exhausted=EMPTY, terminal=EMPTY)
ERROR_TYPES = ["model_overloaded_error", "mcp_connection_failed_error", "credential_host_unreachable_error",
               "repository_clone_error", "of_another_kind"]  # fmt: skip
ERROR = st.fixed_dictionaries(
    {"type": st.sampled_from(ERROR_TYPES), "message": TEXT},
    optional={
        "retry_status": RETRY,
        **dict.fromkeys(("mcp_server_name", "credential_id", "vault_id", "repository_url"), WORD),
    },
)

PUBLIC: dict[str, Any] = {
    "user.message": record({"content": SAID}),
    "user.interrupt": record(None, THREAD),
    "user.tool_confirmation": record(
        {"tool_use_id": SEQ, "result": st.sampled_from(["allow", "deny"])}, {"deny_message": TEXT, **THREAD}
    ),
    "user.tool_result": record({"tool_use_id": SEQ}, {**ANSWER, **THREAD}),
    "user.custom_tool_result": record({"custom_tool_use_id": SEQ}, {**ANSWER, **THREAD}),
    "user.define_outcome": record(
        {"outcome_id": WORD, "description": TEXT, "rubric": RUBRIC},
        {"max_iterations": WHOLE},
    ),
    "system.message": record({"content": content("text")}),
    "agent.message": record({"content": SPOKEN}),
    "agent.thinking": EMPTY,
    "agent.tool_use": record({"name": WORD, "input": OBJECT}, CALL),
    "agent.tool_result": record({"tool_use_id": SEQ}, ANSWER),
    "agent.mcp_tool_use": record({"mcp_server_name": WORD, "name": WORD, "input": OBJECT}, CALL),
    "agent.mcp_tool_result": record({"mcp_tool_use_id": SEQ}, ANSWER),
    "agent.custom_tool_use": record({"name": WORD, "input": OBJECT}, THREAD),
    "agent.thread_message_sent": record({"to_session_thread_id": WORD, "content": SAID}, {"to_agent_name": WORD}),
    "agent.thread_message_received": record({"from_session_thread_id": WORD, "content": SAID}, {"from_agent_name": WORD}),
    "agent.thread_context_compacted": EMPTY,
    "session.status_running": EMPTY,
    "session.status_idle": record({"stop_reason": STOP}, {"stop_details": STOP_DETAILS}),
    "session.status_rescheduled": EMPTY,
    "session.status_terminated": EMPTY,
    "session.error": record({"error": ERROR}),
    "session.updated": record(None, {"title": TEXT, "metadata": OBJECT, "agent": OBJECT, "budget": BUDGET}),
    "session.usage": record({"usage": SPENT}, {"budget": BUDGET}),
    "session.deleted": EMPTY,
    "session.thread_created": record(NAMED, RUN),
    "session.thread_status_running": record(NAMED),
    "session.thread_status_idle": record({**NAMED, "stop_reason": STOP}, {"stop_details": STOP_DETAILS}),
    "session.thread_status_rescheduled": record(NAMED),
    "session.thread_status_terminated": record(NAMED),
    "span.model_request_start": EMPTY,
    "span.model_request_end": record({"model_request_start_id": SEQ, "model_usage": USAGE}, {"is_error": st.booleans()}),
    "span.outcome_evaluation_start": record({"outcome_id": WORD, "iteration": WHOLE}),
    "span.outcome_evaluation_ongoing": record({"outcome_id": WORD, "iteration": WHOLE}),
    "span.outcome_evaluation_end": record(
        {
            "outcome_evaluation_start_id": SEQ, "outcome_id": WORD, "iteration": WHOLE, "result": WORD,
            "explanation": TEXT, "usage": USAGE,
        }
    ),
    "workflow_run.created": record(
        {**RUN, "name": WORD, "phases": st.lists(record({"id": WORD, "name": WORD}, {"description": TEXT}), max_size=2)},
        {"description": TEXT},
    ),
    "workflow_run.status_running": record(RUN),
    "workflow_run.status_idle": record(RUN),
    "workflow_run.status_ended": record({**RUN, "result": RUN_RESULT}),
    "workflow_run.phase_started": record({**RUN, "workflow_run_phase_id": WORD}),
    "workflow_run.phase_ended": record({**RUN, "workflow_run_phase_id": WORD, "phase_started_id": SEQ}),
    "workflow_run.error": record({"error": RUN_ERROR}, RUN),
}  # fmt: skip
"""A body of each public type, without fields of ours."""

CALL_OURS = {"permission": st.sampled_from(["allow", "ask"]), "expires_at": WHOLE, "provider_id": WORD, "broken": TEXT}
ANSWER_OURS = {"masked": st.booleans(), "unknown": st.booleans(), "seconds": st.floats(0, 1e6), "cut": WHOLE}
OURS: dict[str, dict[str, Any]] = {
    "user.tool_confirmation": {"by": WORD, "input_hash": WORD, "expires_at": WHOLE},
    "agent.message": {"stop_reason": WORD, "provider_id": WORD},
    "agent.thinking": {"content": st.lists(OBJECT, max_size=2)},
    "agent.thread_context_compacted": {
        "head": TEXT,
        "after": WHOLE,
        "budget": WHOLE,
        "pinned": st.lists(SEQ, max_size=2),
        "left_out": WHOLE,
    },
    "session.status_idle": {"due": WHOLE},
    "session.status_rescheduled": {"due": WHOLE},
    "span.model_request_start": {"tokens": WHOLE, "seq": WHOLE},
    "span.model_request_end": {"model": WORD},
    **dict.fromkeys(("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"), CALL_OURS),
    **dict.fromkeys(("agent.tool_result", "agent.mcp_tool_result"), ANSWER_OURS),
}
"""Fields of ours, by public type."""


@st.composite
def bodies(draw: Any, of: str) -> dict[str, Any]:
    """A body of a public type, with or without fields of ours."""
    extra = st.fixed_dictionaries({}, optional=OURS.get(of, {}))
    return {**draw(PUBLIC[of]), **draw(extra)}


EVENTS = st.sampled_from(sorted(PUBLIC)).flatmap(lambda of: st.tuples(st.just(of), bodies(of)))
