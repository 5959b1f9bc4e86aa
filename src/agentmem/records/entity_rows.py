"""Entities, marks and expected checks in the file: how their events apply, and how a row becomes a value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import apsw

from agentmem.log.canonical import canonical, plain
from agentmem.log.kinds import EventKind
from agentmem.records.base import Row, Source
from agentmem.types import Entity, Event, ExpectedChecks, Mark

COLUMNS: Final = (
    "id, project, type, key, status, attrs, parent, confidence, origin, author, run, created_at, updated_at, revision"
)
MARK_COLUMNS: Final = "entity, name, result, value, detail, at, seq, author, run, origin"
CHECKS_COLUMNS: Final = "id, project, type, filter, names, origin, revision"
FIELDS: Final = frozenset(("key", "status", "parent", "confidence", "origin", "project"))


def entity(row: Row, checks: Mapping[str, str]) -> Entity:
    """The entity of a row of `COLUMNS` and its current results."""
    fields: Row = (*row[:5], plain(row[5]), checks, *row[6:])
    return Entity(*fields)


def results(source: Source, entities: Sequence[int]) -> dict[int, dict[str, str]]:
    """The current results of each entity, by check."""
    found: dict[int, dict[str, str]] = {number: {} for number in entities}
    for start in range(0, len(entities), 500):
        part = entities[start : start + 500]
        sql = f"SELECT entity, name, result FROM mark WHERE entity IN ({', '.join('?' * len(part))})"
        for number, name, result in source.rows(sql, part):
            found[number][name] = result
    return found


def load(source: Source, found: int) -> Entity:
    """The entity of this id, which exists."""
    row = source.one(f"SELECT {COLUMNS} FROM entity WHERE id = ?", (found,))
    return entity(row, results(source, [found])[found])


def mark(row: Row) -> Mark:
    """The mark of a row of `MARK_COLUMNS`."""
    fields: Row = (*row[:3], None if row[3] is None else plain(row[3]), *row[4:])
    return Mark(*fields)


def mark_again(result: str, value: str | None, detail: str | None, at: int, *whose: str | None) -> dict[str, Any]:
    """A mark as an event states it once more: with its own time, author, run and origin (`whose`), not those of the event.

    Args:
        result: What the check gave.
        value: Canonical JSON.
        detail: One line.
        at: When it was marked.
        whose: Author, run and origin.
    """
    author, run, origin = whose
    found: dict[str, Any] = {"result": result, "at": at, "author": author, "run": run, "origin": origin}
    if value is not None:
        found["value"] = plain(value)
    if detail is not None:
        found["detail"] = detail
    return found


def expected(row: Row) -> ExpectedChecks:
    """The declaration of a row of `CHECKS_COLUMNS`; an empty filter is none."""
    return ExpectedChecks(row[0], row[1], row[2], row[3] or None, tuple(plain(row[4])), row[5], row[6])


def _apply_added(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {"type": "erased"} if event.payload is None else event.payload
    get = payload.get
    connection.execute(
        f"INSERT INTO entity ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.seq, event.project, payload["type"], get("key"), get("status", "new"), canonical(get("attrs", {})),
            get("parent"), get("confidence"), event.origin, event.author, event.run, event.at, event.at, event.seq,
        ),
    )  # fmt: skip


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    columns: list[str] = ["revision = ?", "updated_at = ?"]
    bound: list[Any] = [event.seq, event.at]
    if event.payload is not None:
        for name, value in event.payload.get("set", {}).items():
            if name in FIELDS:
                columns.append(f"{name} = ?")
                bound.append(value)
        added, removed = event.payload.get("attrs", {}), event.payload.get("removed", [])
        if added or removed:
            row = connection.execute("SELECT attrs FROM entity WHERE id = ?", (event.record,)).fetchone()
            attrs = {} if row is None else plain(row[0])
            attrs.update(added)
            for name in removed:
                attrs.pop(name, None)
            columns.append("attrs = ?")
            bound.append(canonical(attrs))
        if "project" in event.payload.get("set", {}):
            sql = "UPDATE mark SET project = ? WHERE entity = ?"
            connection.execute(sql, (event.payload["set"]["project"], event.record))
    connection.execute(f"UPDATE entity SET {', '.join(columns)} WHERE id = ?", [*bound, event.record])


# An update where there is one: what a REPLACE takes away no trigger sees.
_MARK = f"""
INSERT INTO mark ({MARK_COLUMNS}, project, type)
SELECT id, ?, ?, ?, ?, ?, ?, ?, ?, ?, project, type FROM entity WHERE id = ?
ON CONFLICT (entity, name) DO UPDATE SET
    result = excluded.result, value = excluded.value, detail = excluded.detail, at = excluded.at, seq = excluded.seq,
    author = excluded.author, run = excluded.run, origin = excluded.origin, project = excluded.project,
    type = excluded.type
"""


def _apply_marked(connection: apsw.Connection, event: Event) -> None:
    if event.payload is not None:
        for name, given in event.payload["marks"].items():
            value = None if "value" not in given else canonical(given["value"])
            connection.execute(
                _MARK,
                (name, given["result"], value, given.get("detail"), given.get("at", event.at), event.seq,
                 given.get("author", event.author), given.get("run", event.run), given.get("origin", event.origin),
                 event.record),
            )  # fmt: skip
        for name in event.payload.get("removed", ()):
            connection.execute("DELETE FROM mark WHERE entity = ? AND name = ?", (event.record, name))
    _touch(connection, event)


def _apply_unmarked(connection: apsw.Connection, event: Event) -> None:
    if event.payload is not None:
        for name in event.payload["names"]:
            connection.execute("DELETE FROM mark WHERE entity = ? AND name = ?", (event.record, name))
    _touch(connection, event)


def _touch(connection: apsw.Connection, event: Event) -> None:
    connection.execute(
        "UPDATE entity SET revision = ?, updated_at = ? WHERE id = ?", (event.seq, event.at, event.record)
    )


def _apply_declared(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {"type": "erased", "names": []} if event.payload is None else event.payload
    connection.execute(
        f"INSERT INTO checks ({CHECKS_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            event.seq,
            event.project,
            payload["type"],
            payload.get("where", ""),
            canonical(payload["names"]),
            event.origin,
            event.seq,
        ),
    )


def _apply_redeclared(connection: apsw.Connection, event: Event) -> None:
    values: dict[str, Any] = {} if event.payload is None else event.payload["set"]
    if "names" in values:
        connection.execute("UPDATE checks SET names = ? WHERE id = ?", (canonical(values["names"]), event.record))
    if "origin" in values:
        connection.execute("UPDATE checks SET origin = ? WHERE id = ?", (values["origin"], event.record))
    if "project" in values:
        connection.execute("UPDATE checks SET project = ? WHERE id = ?", (values["project"], event.record))
    connection.execute("UPDATE checks SET revision = ? WHERE id = ?", (event.seq, event.record))


EVENTS = (
    EventKind("entity.added", "entity", _apply_added, creates=True),
    EventKind("entity.changed", "entity", _apply_changed),
    EventKind("entity.marked", "entity", _apply_marked),
    EventKind("entity.unmarked", "entity", _apply_unmarked),
    EventKind("checks.declared", "checks", _apply_declared, creates=True),
    EventKind("checks.changed", "checks", _apply_redeclared),
)
PROJECTIONS = ("entity", "mark", "checks")
