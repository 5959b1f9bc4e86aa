"""What an event sets of its record: the fields by which later events stand in the way of an undo."""

from __future__ import annotations

from collections.abc import Set
from typing import Any, Final, TypeAlias

from agentmem.log.canonical import plain
from agentmem.past.event_kinds import CREATIONS, FORGOTTEN, REMOVALS, RESTATED, is_claim
from agentmem.types import Event

JSON_COLUMNS: Final = frozenset(("tags", "scope", "names", "agent", "metadata"))
"""Columns that hold JSON as text, `attrs` aside, which events have name by name."""

_BOOL_COLUMNS: Final = frozenset(("pinned", "done", "removed"))

Field: TypeAlias = tuple[str, ...]
"""A field of a record: its column, or `("attr", name)`, `("mark", name)`, `("link", kind, target)`."""

EXISTENCE: Final[Field] = ("existence",)
"""That the record is there at all. Every other field stands on it."""


def fields_set(event: Event) -> Set[Field] | None:
    """The fields that an event sets; None where that cannot be known, since it was erased.

    Claims set nothing. What makes a record, takes it back or states it anew sets its existence.
    """
    kind, payload = event.kind, event.payload
    if is_claim(kind):
        return frozenset()
    if kind.endswith((*CREATIONS, *REMOVALS, RESTATED, FORGOTTEN)):
        return frozenset((EXISTENCE,))
    if payload is None:
        return None
    if kind.endswith((".linked", ".unlinked")):
        return frozenset((("link", payload["kind"], str(payload["dst"])),))
    if kind == "item.removed":
        return frozenset((("removed",),))
    if kind == "entity.marked":
        return frozenset(("mark", name) for name in (*payload["marks"], *payload.get("removed", ())))
    if kind == "entity.unmarked":
        return frozenset(("mark", name) for name in payload["names"])
    attrs = (*payload.get("attrs", ()), *payload.get("removed", ()))
    return frozenset((*((name,) for name in payload.get("set", ())), *(("attr", name) for name in attrs)))


def meets(one: Set[Field] | None, other: Set[Field] | None) -> bool:
    """Whether two events set the same field; one that sets existence meets all."""
    if one is None or other is None:
        return True
    return bool(one & other) or (EXISTENCE in one and bool(other)) or (EXISTENCE in other and bool(one))


def as_set(column: str, value: Any) -> Any:
    """A column of a row as the `set` of an event has it: JSON as its value, a number that means yes or no as a bool."""
    if value is None:
        return None
    if column in JSON_COLUMNS:
        return plain(value)
    return bool(value) if column in _BOOL_COLUMNS else value


# Fields that are no text and choose none; whoever sets one does not answer for what the record says.
_NO_TEXT: Final = frozenset(
    (name,)
    for name in (
        "status", "parent", "position", "pinned", "confidence", "entity", "origin", "confirmed_at", "confirmed_by",
        "digest", "project", "done", "done_by", "done_at", "removed", "author", "run", "at", "dated",
    )
)  # fmt: skip


def sets_text(event: Event) -> bool:
    """Whether an event gives its record text, of which the record's origin has to tell."""
    if event.kind.endswith((".linked", ".unlinked", ".marked", ".unmarked")):
        return False  # links and marks have an origin of their own
    fields = fields_set(event)
    return fields is None or bool(fields - _NO_TEXT)
