"""A verb that is reached through `more`, or listed as a tool of its own in the full set."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from attrs import frozen

from agentmem.store import Store
from agentmem.tools import shapes
from agentmem.tools.arguments import Schema
from agentmem.tools.tool import Reply, Tool

__all__ = ["Run", "Verb", "verb"]

Run = Callable[[Store, dict[str, Any]], Reply]


@frozen
class Verb:
    """One verb of the library as models may call it.

    Attributes:
        name: Its name in the library: `notes.list`.
        said: What it does, one line.
        schema: A closed object.
        run: Calls it.
        read_only: It changes nothing.
        destructive: What it does can't be taken back: never reached through `more`.
        idempotent: Again with the same arguments it changes nothing more.
        past: It can be asked as of an earlier event.
        everywhere: Its `project` may be `*`, and it looks after that itself.
        listed: Beneath which name the full set has it; None where a listed tool does the same.
    """

    name: str
    said: str
    schema: Schema
    run: Run
    read_only: bool
    destructive: bool
    idempotent: bool
    past: bool
    everywhere: bool
    listed: str | None

    @property
    def tool(self) -> Tool:
        """The verb as a tool of its own."""
        name = self.listed or self.name.replace(".", "_")
        return Tool(name, self.said, self.schema, self.read_only, self.destructive, self.idempotent)


def verb(
    name: str,
    said: str,
    run: Run,
    arguments: Mapping[str, Schema] | None = None,
    *,
    required: tuple[str, ...] = (),
    read_only: bool = False,
    destructive: bool = False,
    idempotent: bool = False,
    past: bool = False,
    everywhere: bool = False,
    listed: bool = True,
) -> Verb:
    """A verb. Each takes `project` beside its own arguments, those that look back `at` too."""
    properties: dict[str, Schema] = dict(arguments or {})
    properties["project"] = {"type": "string"}
    if past:
        properties["at"] = {"type": "integer", "description": "as of this event"}
    return Verb(
        name, said, shapes.closed(properties, required), run, read_only, destructive, idempotent or read_only, past,
        everywhere, name.replace(".", "_") if listed else None,
    )  # fmt: skip
