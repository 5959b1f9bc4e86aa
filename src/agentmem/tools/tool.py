"""What a tool is, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from agentmem.errors import AgentMemError

__all__ = ["Reply", "Tool"]


@frozen
class Tool:
    """One verb as a tool for models.

    Attributes:
        name: What it is called by.
        description: What it does, for a model that sees it the first time.
        schema: JSON Schema of its arguments: a closed object, nothing to resolve in it, no union with null.
        read_only: It changes nothing.
        destructive: What it does can't be taken back.
        idempotent: Called again with the same arguments it changes nothing more.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False


@frozen
class Reply:
    """What a tool answers.

    Attributes:
        text: For a model: lines, nothing that it said itself.
        data: For a program, as JSON: ids, counts, cursors. Empty where the text is all there is.
        error: What went wrong; its parts are the text then.
    """

    text: str
    data: Mapping[str, Any] = field(factory=dict)
    error: AgentMemError | None = None
