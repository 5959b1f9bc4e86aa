"""Sets of types and fields of session events, that stand by themselves: every process needs them, few need all types."""

from __future__ import annotations

from typing import Final

__all__ = ["CALLS", "REFERENCES", "RESULTS"]

CALLS: Final = frozenset(("agent.tool_use", "agent.mcp_tool_use", "agent.custom_tool_use"))
RESULTS: Final = frozenset(
    ("agent.tool_result", "agent.mcp_tool_result", "user.tool_result", "user.custom_tool_result")
)
REFERENCES: Final = ("tool_use_id", "mcp_tool_use_id", "custom_tool_use_id", "model_request_start_id",
                      "outcome_evaluation_start_id", "phase_started_id", "timer_id")  # fmt: skip
