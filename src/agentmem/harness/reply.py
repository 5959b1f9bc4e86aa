"""What a model answers, whatever its API: texts, calls of tools, thoughts, why it stopped, what it used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

__all__ = ["Reply", "ToolCall", "Usage"]


@frozen
class Usage:
    """Tokens of one request, as the provider counts them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_input_tokens: int = 0
    cache_creation_input_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cache_read_input_tokens + other.cache_read_input_tokens,
            self.cache_creation_input_tokens + other.cache_creation_input_tokens,
        )

    @property
    def total(self) -> int:
        """All tokens that went in and came out."""
        return self.input_tokens + self.output_tokens + self.cache_read_input_tokens + self.cache_creation_input_tokens


@frozen
class ToolCall:
    """A call that a model asks for.

    Attributes:
        name: The tool.
        input: Its input.
        provider_id: The provider's own id of the call.
        broken: The input as the model wrote it, where that was no JSON.
    """

    name: str
    input: Mapping[str, Any] = field(factory=dict)
    provider_id: str | None = None
    broken: str | None = None


@frozen
class Reply:
    """What a model answered.

    Attributes:
        content: Text blocks, `{"type": "text", "text": …}`.
        calls: The calls that it asks for, in order.
        thinking: Blocks of thought as the provider gave them: they go back to it unchanged.
        stop_reason: `end_turn`, `tool_use`, `max_tokens`, `refusal`, or another word of the provider's.
        usage: What it used.
        model: The model that answered.
    """

    content: tuple[Mapping[str, Any], ...] = ()
    calls: tuple[ToolCall, ...] = ()
    thinking: tuple[Mapping[str, Any], ...] = ()
    stop_reason: str = "end_turn"
    usage: Usage = Usage()
    model: str | None = None

    @classmethod
    def of(cls, text: str, *calls: ToolCall) -> Reply:
        """A reply of a text, and of calls."""
        content: tuple[Mapping[str, Any], ...] = ({"type": "text", "text": text},) if text else ()
        return cls(content, calls, stop_reason="tool_use" if calls else "end_turn")
