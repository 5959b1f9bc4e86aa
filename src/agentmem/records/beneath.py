"""What a view may write that is limited to what lies beneath a note.

Checked where events are appended, so that no verb can forget it: once before an event is applied, against what it
concerns as it stands and where it would put it, and of an entity that is to be once more after, against what it became.
Both lie in the transaction of the command, and a refusal takes all of it back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NoReturn

from agentmem import limits
from agentmem.errors import OutOfReach
from agentmem.log.canonical import plain
from agentmem.log.ledger import COLUMNS, decode
from agentmem.records import note_rows, tree
from agentmem.records.base import Source, Unit, View
from agentmem.records.session_rows import COMPACTED
from agentmem.records.sql import Sql
from agentmem.types import Event, Scope

__all__ = ["Reach", "refuse", "within"]

# Of the note itself: how its work stands, not what it is, where it stands and what it covers. Trust follows the text.
_OWN_FIELDS: Final = frozenset(
    ("status", "body", "tags", "why", "confidence", "basis", "origin", "confirmed_at", "confirmed_by")
)
# Links that change what their target counts for: one closes a question, the other takes a note out of force.
_RULING: Final = ("answers", "supersedes")
# Where a record belongs: the field that names its note.
_PLACE: Final = {"note": "parent", "item": "note", "checkpoint": "task", "summary": "note"}
_ENTITY_KINDS: Final = frozenset(("added", "changed", "marked", "unmarked", "linked", "unlinked"))
_ENTITY_UNDONE: Final = frozenset(("withdrawn", "restated"))


class Reach:
    """The check of one command, or of one plan of it, in a view that is limited to a note."""

    __slots__ = ("_limit", "_scope", "_source")

    def __init__(self, source: Unit | View, limit: int) -> None:
        self._source, self._limit = source, limit
        self._scope: tuple[Scope, Sql] | None = None

    def before(
        self, kind: str, of: str, record: int | None, payload: Mapping[str, Any], session: int | None = None
    ) -> None:
        """Refuse an event that concerns what is out of reach.

        Args:
            kind: Of the event.
            of: The type of record it concerns.
            record: Its id, None for one that is to be made.
            payload: What the event says.
            session: The session that it belongs to.

        Raises:
            OutOfReach: It does.
        """
        verb = kind.partition(".")[2]
        stated = payload.get("state") or payload.get("set") or {}
        self._same_project(stated)
        match of:
            case "note":
                self._note(verb, record, payload, stated)
            case "item" | "checkpoint" | "summary":
                self._part(of, record, payload, stated)
            case "entity":
                self._entity(verb, record, payload)
            case "session":
                self._session(verb, record, payload)
            case "message":
                self._message(verb, session, payload)
            case _:
                self._refuse(f"{kind} concerns all of the store or of a project")

    def after(self, event: Event) -> None:
        """Refuse an event that made something out of reach.

        Raises:
            OutOfReach: It did.
        """
        if event.kind in ("entity.added", "entity.restated"):
            self._in_scope(event.record)

    def _same_project(self, stated: Mapping[str, Any]) -> None:
        row = self._source.row("SELECT project FROM note WHERE id = ?", (self._limit,))
        if row is None:
            self._refuse(f"#{self._limit} is no more")
        if row[0] != self._source.known_project or stated.get("project", row[0]) != row[0]:
            self._refuse(f"This is another project than that of #{self._limit}")

    def _note(self, verb: str, record: int | None, payload: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        if record is None:
            self._placed(payload.get("parent"))
        elif record == self._limit:
            self._own(verb, payload, stated)
        else:
            self._inside(record)
            if "parent" in stated:
                self._placed(stated["parent"])
        if verb in ("linked", "unlinked") and payload["kind"] in _RULING:
            self._inside(payload["dst"])

    def _own(self, verb: str, payload: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        """The note itself."""
        if verb != "changed":
            if not (verb in ("linked", "unlinked") or verb.startswith("claim.")):
                self._refuse(f"#{self._limit} itself stays as it is")
        elif unfit := sorted(stated.keys() - _OWN_FIELDS):
            self._refuse(f"{unfit[0]} of #{self._limit} is for whoever gave the task")
        elif stated.get("confirmed_at") is not None and "undoes" not in payload:
            self._refuse(f"#{self._limit} is confirmed by whoever gave the task")

    def _part(self, of: str, record: int | None, payload: Mapping[str, Any], stated: Mapping[str, Any]) -> None:
        """An item, a checkpoint or a summary goes with its note."""
        place = _PLACE[of]
        note = payload.get(place) if record is None else self._place(of, record)
        if note is None:
            self._refuse(f"This {of} belongs to no note")
        self._reached(note)
        if place in stated:
            self._reached(stated[place])

    def _entity(self, verb: str, record: int | None, payload: Mapping[str, Any]) -> None:
        undone = verb in _ENTITY_UNDONE and "undoes" in payload
        if not (undone or verb in _ENTITY_KINDS or verb.startswith("claim.")):
            self._refuse("Entities are ended by whoever gave the task")
        # One that is not there yet, or not again, is looked at when it is.
        if record is not None and not (verb == "restated" and self._place("entity", record) is None):
            self._in_scope(record)

    def _session(self, verb: str, record: int | None, payload: Mapping[str, Any]) -> None:
        """A session is begun for the note or beneath it, and held by who runs it."""
        if record is None:
            self._worked_on(payload.get("task"), "A session without a task is beneath nothing")
        elif verb.startswith("claim."):
            self._spoken(record)
        else:
            self._refuse("Sessions are changed and ended by whoever gave the task")

    def _message(self, verb: str, session: int | None, payload: Mapping[str, Any]) -> None:
        """An event of such a session, but no answer to a call that waits for a person."""
        if verb == "forgotten" and payload.get("type") == COMPACTED:
            return  # it quotes what is purged, and is made anew
        if verb != "added" or session is None:
            self._refuse("Events of sessions are ended by whoever gave the task")
        if payload.get("type") == "user.tool_confirmation":
            self._refuse("A call of a tool is allowed or denied by a person")
        self._spoken(session)

    def _spoken(self, session: int) -> None:
        row = self._source.row("SELECT task FROM session WHERE id = ?", (session,))
        self._worked_on(None if row is None else row[0], f"Session #{session} has no task")

    def _worked_on(self, task: int | None, what: str) -> None:
        if task is None:
            self._refuse(what)
        self._reached(task)

    def _in_scope(self, entity: int) -> None:
        scope, rows = self._covered()
        if self._source.row(f"SELECT 1 {rows.text} AND e.id = ?", [*rows.bindings, entity]) is None:
            where = f" where {scope.where}" if scope.where else ""
            self._refuse(f"Entity #{entity} is not in the scope of #{self._limit}: {scope.type}{where}")

    def _covered(self) -> tuple[Scope, Sql]:
        """The scope of the note, or the nearest one above it: nothing that is written beneath widens it."""
        if self._scope is not None:
            return self._scope
        from agentmem.records.entities import matching

        for note in (self._limit, *tree.ancestors(self._source, self._limit)):
            row = self._source.row("SELECT scope FROM note WHERE id = ?", (note,))
            if row is not None and row[0] is not None:
                scope = note_rows.scope_of(plain(row[0]))
                rows, _ = matching(self._source, scope.type, scope.where, stored=True)
                self._scope = scope, rows
                return self._scope
        raise refuse(f"#{self._limit} has no scope, so no entity is part of it", self._limit)

    def _placed(self, parent: int | None) -> None:
        if parent is None:
            self._refuse("A note without a parent is beneath nothing")
        self._reached(parent)

    def _reached(self, note: int) -> None:
        """The note itself, or beneath it."""
        if note != self._limit:
            self._inside(note)

    def _inside(self, note: int) -> None:
        """Beneath the note, or there at last: of what was taken back, or goes with what it stood beneath."""
        at = note
        for _ in range(limits.TREE_LEVELS):
            above = tree.ancestors(self._source, at)
            if self._limit in above:
                return
            top = above[-1] if above else at
            if self._source.row("SELECT 1 FROM note WHERE id = ?", (top,)) is not None:
                break
            last = self._place("note", top)
            if last == self._limit:
                return
            if last is None:
                break
            at = last
        self._refuse(f"#{note} is not beneath #{self._limit}")

    def _place(self, of: str, record: int) -> int | None:
        """The note that a record belongs to; of one that has no row any more the one it belonged to at last."""
        if of == "entity":
            return self._source.number("SELECT id FROM entity WHERE id = ?", (record,)) or None
        place = _PLACE[of]
        row = self._source.row(f"SELECT {place} FROM {of} WHERE id = ?", (record,))
        if row is not None:
            return None if row[0] is None else int(row[0])
        kinds = self._source.binding.ledger.kinds
        for found in self._source.rows(f"SELECT {COLUMNS} FROM event WHERE record = ? ORDER BY seq DESC", (record,)):
            payload = decode(self._source.connection, kinds, found).payload or {}
            for given in (payload.get("state"), payload.get("set"), payload):
                if given and place in given:
                    return None if given[place] is None else int(given[place])
        return None

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
