"""Links: typed, directed edges between two notes, or free ones between two entities."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import apsw

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded, shown
from agentmem.log.kinds import EventKind
from agentmem.records import claims, subjects, validate
from agentmem.records.base import Namespace, Unit, View
from agentmem.records.refs import identify
from agentmem.records.standing import standing
from agentmem.types import LINK_KINDS, UNTRUSTED, Event, Link, LinkKind, Ref, Written

_COLUMNS = "src, dst, kind, seq, author, run, origin"


class Links(Namespace):
    """`store.links`: add, remove, list."""

    __slots__ = ()

    def add(self, src: Ref, kind: LinkKind | str, dst: Ref, *, request_id: str | None = None) -> Written:
        """Link two notes or two entities: `src kind dst`. A link that is there already changes nothing.

        `answers` closes the question `dst` in the same transaction. `depends_on` must not close a circle.

        Raises:
            InvalidInput: Unknown kind between notes, a note and an entity, or a record with itself.
            Conflict: A circle of `depends_on` or `supersedes`.
        """
        return self._binding.run(
            "links.add", {"src": src, "kind": kind, "dst": dst}, request_id, lambda unit: add(unit, src, kind, dst)
        )

    def remove(self, src: Ref, kind: LinkKind | str, dst: Ref, *, request_id: str | None = None) -> Written:
        """Take a link away. `changed` of the answer is empty if there was none."""

        def command(unit: Unit) -> Written:
            source, target, of = _ends(unit, src, kind, dst)
            claims.guard(unit, source)
            if unit.row("SELECT 1 FROM link WHERE src = ? AND kind = ? AND dst = ?", (source, kind, target)) is None:
                return Written(source, standing(unit, of, source).revision, transit=unit.transit)
            project = standing(unit, of, source).project
            event = unit.append(f"{of}.unlinked", {"dst": target, "kind": kind}, record=source, project=project)
            return Written(source, event.seq, ("links",), transit=unit.transit)

        return self._binding.run("links.remove", {"src": src, "kind": kind, "dst": dst}, request_id, command)

    def list(self, ref: Ref, *, kind: str | None = None, limit: int = limits.PAGE, after: int = 0) -> tuple[Link, ...]:
        """The links from and to a record, oldest first.

        Args:
            ref: A note or an entity.
            kind: Links of this kind only.
            limit: At most so many.
            after: Only those written after this seq: the `seq` of the last link of the page before.
        """
        validate.cursor(after, "after")
        wanted = None if kind is None else validate.token(kind, "link kind")
        with self._binding.reading() as view:
            found, _ = identify(view, ref)
            return of_record(view, found, kind=wanted, limit=validate.page(limit), after=after)


def of_record(view: View, record: int, *, kind: str | None, limit: int, after: int = 0) -> tuple[Link, ...]:
    """The links from and to a record, oldest first."""
    also = "" if kind is None else "AND kind = ?3"
    apart = view.binding.subject is not None
    sql = f"""
    SELECT * FROM (
        SELECT {_COLUMNS} FROM link WHERE src = ?1 {also} UNION SELECT {_COLUMNS} FROM link WHERE dst = ?1 {also}
    ) WHERE seq > ?2 ORDER BY seq LIMIT {-1 if apart else limit}
    """
    values = [record, after] if kind is None else [record, after, kind]
    found = [Link(*row) for row in view.rows(sql, values)]
    if apart:
        unseen = subjects.hidden(view, {end for link in found for end in (link.src, link.dst)})
        found = [link for link in found if link.src not in unseen and link.dst not in unseen][:limit]
    return tuple(found)


def add(unit: Unit, src: Ref, kind: str, dst: Ref) -> Written:
    """The command behind `store.links.add`."""
    source, target, of = _ends(unit, src, kind, dst)
    claims.guard(unit, source)
    if unit.row("SELECT 1 FROM link WHERE src = ? AND kind = ? AND dst = ?", (source, kind, target)) is not None:
        return Written(source, standing(unit, of, source).revision, transit=unit.transit)
    if of == "note" and kind in ("depends_on", "supersedes") and reaches(unit, target, source, kind):
        raise Conflict(
            f"#{target} {kind} #{source} already, directly or by others", why=f"{kind} must not go in a circle"
        )
    project = standing(unit, of, source).project
    event = unit.append(f"{of}.linked", {"dst": target, "kind": kind}, record=source, project=project)
    if kind == "answers" and of == "note":
        _close_question(unit, target)
    return Written(source, event.seq, ("links",), transit=unit.transit)


def add_several(unit: Unit, src: int, given: Iterable[tuple[str, Ref]]) -> None:
    """Links of a note that is just being written."""
    for kind, target in pairs(given):
        add(unit, src, kind, target)


def pairs(given: Iterable[tuple[str, Ref]]) -> list[tuple[str, Ref]]:
    """The links of a new note: pairs of a kind and a target."""
    if not isinstance(given, Collection):
        raise InvalidInput("links must be a list of pairs", why="A link is its kind and the record it points at")
    found = validate.batch(given, "links")
    if len(found) > limits.LINKS_PER_WRITE:
        raise LimitExceeded(f"{len(found)} links at once, {limits.LINKS_PER_WRITE} at most")
    for pair in found:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise InvalidInput(
                f"{shown(pair)} is no link", why="A link is a pair: its kind and the record it points at"
            )
    return found


def _ends(unit: Unit, src: Ref, kind: str, dst: Ref) -> tuple[int, int, str]:
    (source, source_type), (target, target_type) = identify(unit, src), identify(unit, dst)
    if source_type != target_type or source_type not in ("note", "entity"):
        raise InvalidInput(
            f"#{source} is of type {source_type}, #{target} of type {target_type}",
            why="A link joins two notes or two entities",
            next="To attach a note to an entity give about=" if "note" in (source_type, target_type) else "",
        )
    if source == target:
        raise InvalidInput(f"#{source} cannot be linked with itself")
    if source_type == "note":
        validate.choice(kind, "link kind", LINK_KINDS)
    else:
        validate.token(kind, "link kind")
    if kind == "answers" and source_type == "note":
        row = unit.row("SELECT kind FROM note WHERE id = ?", (target,))
        if row is not None and row[0] != "question":
            raise InvalidInput(f"#{target} is a {row[0]}", why="`answers` points at a question")
    return source, target, source_type


def reaches(unit: Unit, start: int, goal: int, kind: str) -> bool:
    """Whether links of a kind lead from one note to another."""
    sql = """
    WITH RECURSIVE onward (id) AS (
        VALUES (?1) UNION SELECT link.dst FROM onward JOIN link ON link.src = onward.id AND link.kind = ?3
    ) SELECT 1 FROM onward WHERE id = ?2
    """
    return unit.row(sql, (start, goal, kind)) is not None


def _close_question(unit: Unit, question: int) -> None:
    """An answer closes its question, unless the question is trusted and whoever answers is not."""
    row = unit.row("SELECT status, project, origin FROM note WHERE id = ?", (question,))
    if unit.actor.origin in UNTRUSTED and row is not None and row[2] not in UNTRUSTED:
        return
    if row is not None and row[0] == "open":
        claims.guard(unit, question)
        unit.append("note.changed", {"set": {"status": "done"}}, record=question, project=row[1])


def _apply_linked(connection: apsw.Connection, event: Event) -> None:
    if event.payload is not None:
        connection.execute(
            f"INSERT INTO link ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                event.record,
                event.payload["dst"],
                event.payload["kind"],
                event.seq,
                event.payload.get("author", event.author),
                event.payload.get("run", event.run),
                event.payload.get("origin", event.origin),
            ),
        )
    _touch(connection, event)


def _apply_unlinked(connection: apsw.Connection, event: Event) -> None:
    if event.payload is not None:
        connection.execute(
            "DELETE FROM link WHERE src = ? AND kind = ? AND dst = ?",
            (event.record, event.payload["kind"], event.payload["dst"]),
        )
    _touch(connection, event)


def _touch(connection: apsw.Connection, event: Event) -> None:
    values: tuple[Any, ...]
    if event.type == "note":
        sql = "UPDATE note SET revision = ?1, changed = ?1, touched = ?1 WHERE id = ?2"
        values = (event.seq, event.record)
    else:
        sql, values = "UPDATE entity SET revision = ? WHERE id = ?", (event.seq, event.record)
    connection.execute(sql, values)


EVENTS = (
    EventKind("note.linked", "note", _apply_linked),
    EventKind("note.unlinked", "note", _apply_unlinked),
    EventKind("entity.linked", "entity", _apply_linked),
    EventKind("entity.unlinked", "entity", _apply_unlinked),
)
PROJECTIONS = ("link",)
