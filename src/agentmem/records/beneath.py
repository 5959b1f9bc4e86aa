"""What a view may write that is limited to what lies beneath a note.

Checked where events are appended, so that no verb can forget it: once before an event is applied, against what it
concerns as it stands, and once after, against what it made of it. Both lie in the transaction of the command, and a
refusal takes all of it back.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NoReturn

from agentmem.errors import OutOfReach
from agentmem.log.canonical import plain
from agentmem.records import note_rows, tree
from agentmem.records.base import Source, Unit
from agentmem.types import Event, Scope

__all__ = ["Reach", "refuse", "within"]

# Of the note itself: where its work stands, not what it is, where it stands, and what it covers.
_OWN_FIELDS: Final = frozenset(
    (
        "status",
        "body",
        "tags",
        "why",
        "confidence",
        "basis",
        "confirmed_at",
        "confirmed_by",
        "origin",
        "source",
        "dated",
    )
)
# The note that a record belongs to.
_OF: Final = {"item": "note", "checkpoint": "task", "summary": "note"}
_ENTITY_KINDS: Final = ("added", "changed", "marked", "unmarked", "linked", "unlinked")


class Reach:
    """The check of one command in a view that is limited to a note."""

    __slots__ = ("_limit", "_unit")

    def __init__(self, unit: Unit, limit: int) -> None:
        self._unit, self._limit = unit, limit

    def before(self, kind: str, of: str, record: int | None, payload: dict[str, Any]) -> None:
        """Refuse an event that concerns what is out of reach.

        Args:
            kind: Of the event.
            of: The type of record it concerns.
            record: Its id, None for one that is to be made.
            payload: What the event says.

        Raises:
            OutOfReach: It does.
        """
        verb = kind.partition(".")[2]
        match of:
            case "note":
                self._note(verb, record, payload)
            case "item" | "checkpoint" | "summary":
                self._part(of, record, payload)
            case "entity":
                self._entity(verb, record)
            case _:
                self._refuse(f"{kind} concerns all of the store or of a project")

    def after(self, event: Event) -> None:
        """Refuse an event that made something out of reach.

        Raises:
            OutOfReach: It did.
        """
        if event.kind == "entity.added":
            self._entity("added", event.record)
        elif event.kind == "note.added" or (
            event.kind == "note.changed" and "parent" in (event.payload or {}).get("set", {})
        ):
            self._inside(event.record)

    def _note(self, verb: str, record: int | None, payload: dict[str, Any]) -> None:
        if record is None:
            parent = payload.get("parent")
            if parent is None:
                self._refuse("A note without a parent is beneath nothing")
            self._reached(parent)
        elif record != self._limit:
            self._inside(record)
        elif verb == "changed":
            if unfit := sorted(set(payload.get("set", {})) - _OWN_FIELDS):
                self._refuse(f"{unfit[0]} of #{record} is for whoever gave the task")
        elif not (verb in ("linked", "unlinked") or verb.startswith("claim.")):
            self._refuse(f"#{record} itself stays")

    def _part(self, of: Literal["item", "checkpoint", "summary"], record: int | None, payload: dict[str, Any]) -> None:
        """An item, a checkpoint or a summary goes with its note."""
        column = _OF[of]
        if record is None:
            note = payload.get(column)
        else:
            row = self._unit.row(f"SELECT {column} FROM {of} WHERE id = ?", (record,))
            note = None if row is None else row[0]
        if note is None:
            self._refuse(f"This {of} belongs to no note")
        self._reached(note)

    def _entity(self, verb: str, record: int | None) -> None:
        if verb not in _ENTITY_KINDS and not verb.startswith("claim."):
            self._refuse("Entities are ended by whoever gave the task")
        scope = self._scope()
        if scope is None:
            self._refuse(f"#{self._limit} has no scope, so no entity is part of it")
        if record is None:
            return  # whether a new one fits is seen once it is there
        from agentmem.records.entities import matching

        rows, _ = matching(self._unit, scope.type, scope.where, stored=True)
        if self._unit.row(f"SELECT 1 {rows.text} AND e.id = ?", [*rows.bindings, record]) is None:
            where = f" where {scope.where}" if scope.where else ""
            self._refuse(f"#{record} is not in the scope of #{self._limit}: {scope.type}{where}")

    def _scope(self) -> Scope | None:
        """The scope of the note, or the nearest one above it: nothing that is written beneath widens it."""
        for note in (self._limit, *tree.ancestors(self._unit, self._limit)):
            row = self._unit.row("SELECT scope FROM note WHERE id = ?", (note,))
            if row is not None and row[0] is not None:
                return note_rows.scope_of(plain(row[0]))
        return None

    def _reached(self, note: int) -> None:
        """The note itself, or beneath it."""
        if note != self._limit:
            self._inside(note)

    def _inside(self, note: int) -> None:
        if not within(self._unit, note, self._limit):
            self._refuse(f"#{note} is not beneath #{self._limit}")

    def _refuse(self, what: str) -> NoReturn:
        raise refuse(what, self._limit)


def within(source: Source, note: int, limit: int) -> bool:
    """Whether a note lies beneath another."""
    return limit in tree.ancestors(source, note)


def refuse(what: str, limit: int) -> OutOfReach:
    """The error of a view that is limited to a note."""
    return OutOfReach(
        what,
        why=f"This view writes only beneath #{limit}",
        next=f"Write a note beneath #{limit} about it, or leave it to whoever gave the task",
    )
