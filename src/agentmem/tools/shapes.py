"""What the objects inside arguments may hold: closed too, but not spelled out in the listed schemas, whose every word costs.

The descriptions of the tools name these fields; whoever gets one wrong is told which there are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentmem.tools.arguments import Schema, flag, number, ref, strings, text, whole
from agentmem.types import CHECK_RESULTS, NOTE_KINDS

__all__ = ["CHANGES", "NOTE", "RESULT", "ROW", "SCOPE", "closed"]


def closed(properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> Schema:
    """The schema of an object that has these properties and no others."""
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    schema["additionalProperties"] = False
    return schema


_ANY_OBJECT: Final[Schema] = {"type": "object"}

SCOPE: Final = closed({"type": text(), "where": text(), "checks": strings(), "params": _ANY_OBJECT}, ("type",))

_SHARED: Final[Mapping[str, Schema]] = {
    "title": text("one line"),
    "body": text("anything more"),
    "status": text(),
    "tags": strings("p0 to p3 is a priority"),
    "pin": flag("show it first beneath its parent"),
    "confidence": number("0 to 1"),
    "basis": text("what it rests on"),
    "about": ref("the entity it is about"),
    "why": text("of an attempt"),
    "scope": SCOPE,
    "dated": text("when it was true elsewhere, ISO 8601"),
    "source": text("where it came from"),
    "items": strings("a checklist"),
    "links": {"type": "object", "description": 'kind to reference, or to a list of them: {"answers": "9"}'},
    "parent": ref("the note it stands beneath"),
    "origin": {"type": "string", "enum": ["agent", "tool", "web", "import"], "description": "whose words these are"},
}

NOTE: Final = closed({"kind": {"type": "string", "enum": list(NOTE_KINDS)}, **_SHARED}, ("kind", "title"))
"""One note of `note`."""

CHANGES: Final = closed(
    {
        **_SHARED,
        "append": text("adds to the body"),
        "text": text("of a checklist item"),
        "attrs": {"type": "object", "description": "of an entity; null removes a name"},
        "clear": strings("fields to empty"),
        "expected_revision": whole("refuse if it was changed since"),
    }
)
"""What `update` sets."""

ROW: Final = closed(
    {"key": text(), "attrs": _ANY_OBJECT, "status": text(), "parent": ref(), "confidence": number()}, ("key",)
)
"""One row of `track`."""

RESULT: Final = closed(
    {"result": {"type": "string", "enum": list(CHECK_RESULTS)}, "value": {}, "detail": text()}, ("result",)
)
"""The result of one check, where more than a word is said of it."""
