"""Events that concern a record as a whole: it is stated anew, taken back, made part of another, or forgotten.

`restated` holds the whole state of a record, so that what was written before may be erased, or a creation that was
taken back is there again. `withdrawn` takes a creation back. `merged` makes a record a part of another. `forgotten` is
the last event of a purged record.

A change of one record may leave a trace on a note that it stood beneath: `touched`, which makes a summary stale. Once
the change is erased a replay knows nothing of it, so these events carry the traces too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import apsw

from agentmem.log.kinds import EventKind
from agentmem.records import checklists, note_rows
from agentmem.types import Event, RecordType

# The columns of a record's state; those that are missing are made by `apply` out of others.
STATE: Final[Mapping[str, tuple[str, ...]]] = {
    "note": (
        "project", "kind", "title", "body", "status", "tags", "parent", "position", "pinned", "confidence", "basis",
        "entity", "why", "scope", "dated", "source", "digest", "origin", "confirmed_at", "confirmed_by", "author", "run",
        "created_at", "updated_at", "changed", "touched",
    ),
    "entity": (
        "project", "type", "key", "status", "attrs", "parent", "confidence", "origin", "author", "run", "created_at",
        "updated_at",
    ),
    "item": ("note", "number", "text", "done", "done_by", "done_at", "position", "origin", "removed"),
    "summary": ("note", "work", "result", "confidence", "basis", "author", "run", "origin", "at"),
    "checkpoint": ("project", "task", "text", "dated", "author", "run", "origin", "at"),
    "checks": ("project", "type", "filter", "names", "origin"),
    "project": ("name", "created_at"),
    # How a session stands is told by its events.
    "session": (
        "project", "title", "task", "agent", "entity", "metadata", "parent", "forked_from", "forked_at", "archived_at",
        "compacted", "origin", "author", "run", "created_at", "updated_at",
    ),
}  # fmt: skip
# Fields of a payload, of what it sets, and of a state that name another record: that record's type.
POINTS: Final[Mapping[str, Mapping[str, RecordType]]] = {
    "note": {"parent": "note", "entity": "entity", "project": "project"},
    "entity": {"parent": "entity", "project": "project"},
    "item": {"note": "note"},
    "summary": {"note": "note"},
    "checkpoint": {"task": "note", "project": "project"},
    "checks": {"project": "project"},
    "project": {},
    "session": {
        "task": "note", "entity": "entity", "parent": "session", "forked_from": "session", "compacted": "message",
        "project": "project",
    },
    "message": {"target": "message"},
}  # fmt: skip
_UNREVISED: Final = frozenset(("checkpoint",))
# Columns that say which event came last, set to the event where the state does not say otherwise.
_LATEST: Final = ("changed", "touched")
_MARK: Final = "name, result, value, detail, at, seq, author, run, origin"


def state(connection: apsw.Connection, of: str, record: int) -> dict[str, Any] | None:
    """The whole state of a record as it stands, None where it has no row; of an entity with its marks."""
    columns = STATE[of]
    row = connection.execute(f"SELECT {', '.join(columns)} FROM {of} WHERE id = ?", (record,)).fetchone()
    if row is None:
        return None
    found: dict[str, Any] = dict(zip(columns, row, strict=True))
    if of == "entity":
        rows = connection.execute(f"SELECT {_MARK} FROM mark WHERE entity = ? ORDER BY name", (record,))
        found["marks"] = {name: list(rest) for name, *rest in rows}
    return found


def _apply_restated(connection: apsw.Connection, event: Event) -> None:
    of, record = event.type, event.record
    if event.payload is None:
        if of not in _UNREVISED:
            connection.execute(f"UPDATE {of} SET revision = ? WHERE id = ?", (event.seq, record))
        return
    given = event.payload["state"]
    names = [name for name in STATE[of] if name in given]
    values = [given[name] for name in names]
    if of == "note":
        late = [name for name in _LATEST if name not in given]
        names += ["root", "shut", *late]
        values += [record, 0, *(event.seq for _ in late)]
    if of not in _UNREVISED:
        names.append("revision")
        values.append(event.seq)
    if of == "session":
        connection.execute(_SESSION_STUB, (record, given["project"], given["origin"], event.at))
        settings = ", ".join(f"{name} = ?" for name in names)
        connection.execute(f"UPDATE session SET {settings} WHERE id = ?", [*values, record])
        connection.execute("UPDATE message SET project = ? WHERE session = ?", (given["project"], record))
    else:
        marks = ", ".join("?" * (len(names) + 1))
        settings = ", ".join(f"{name} = excluded.{name}" for name in names)
        connection.execute(
            f"INSERT INTO {of} (id, {', '.join(names)}) VALUES ({marks}) ON CONFLICT (id) DO UPDATE SET {settings}",
            [record, *values],
        )
    match of:
        case "note":
            note_rows.descend(connection, record)
            checklists.count(connection, record)
        case "item":
            checklists.count(connection, given["note"])
        case "entity":
            _restate_marks(connection, record, given)
    _touch(connection, event.payload)


# A session has columns that its events keep, which are not part of its own state and may not be null.
_SESSION_STUB: Final = """
INSERT INTO session (id, project, metadata, status, settled, asked, last, origin, created_at, updated_at, revision)
VALUES (?1, ?2, '{}', 'idle', 0, 0, ?1, ?3, ?4, ?4, ?1) ON CONFLICT (id) DO NOTHING
"""


def _restate_marks(connection: apsw.Connection, entity: int, given: Mapping[str, Any]) -> None:
    connection.execute("DELETE FROM mark WHERE entity = ?", (entity,))
    sql = f"INSERT INTO mark (entity, {_MARK}, project, type) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    for name, rest in given.get("marks", {}).items():
        connection.execute(sql, (entity, name, *rest, given["project"], given["type"]))


# A forgotten item leaves its number behind for as long as its note is there: `14.3` never names another.
_NUMBER_KEPT: Final = """
UPDATE item SET note = ?, number = ?, text = NULL, done = 0, done_by = NULL, done_at = NULL, position = id, origin = ?,
                removed = 1, revision = ?
WHERE id = ?
"""


def _apply_gone(connection: apsw.Connection, event: Event) -> None:
    of, record = event.type, event.record
    note = None
    if of in ("item", "summary"):
        row = connection.execute(f"SELECT note FROM {of} WHERE id = ?", (record,)).fetchone()
        note = None if row is None else row[0]
    if event.payload is not None and "number" in event.payload:
        connection.execute(
            _NUMBER_KEPT, (event.payload["note"], event.payload["number"], event.origin, event.seq, record)
        )
    else:
        connection.execute(f"DELETE FROM {of} WHERE id = ?", (record,))
    if of == "note" and event.kind.endswith(".forgotten"):
        connection.execute("DELETE FROM item WHERE note = ? AND text IS NULL", (record,))
    if of in ("note", "entity"):
        connection.execute("DELETE FROM link WHERE src = ?", (record,))
    if of == "entity":
        connection.execute("DELETE FROM mark WHERE entity = ?", (record,))
    if event.payload is None or "into" not in event.payload:
        connection.execute("DELETE FROM copied WHERE record = ?", (record,))
    if of == "item" and note is not None:
        checklists.count(connection, note)
    if event.payload is not None:
        if "into" in event.payload:
            sql = "UPDATE copied SET record = ? WHERE record = ?"
            connection.execute(sql, (event.payload["into"], record))
        if of == "item" and "note" in event.payload:
            checklists.count(connection, event.payload["note"])
        _touch(connection, event.payload)


def _touch(connection: apsw.Connection, payload: Mapping[str, Any]) -> None:
    for note, seq in payload.get("touched", ()):
        connection.execute("UPDATE note SET touched = max(touched, ?) WHERE id = ?", (seq, note))


def _kinds(of: RecordType, *gone: str) -> tuple[EventKind, ...]:
    restated = EventKind(f"{of}.restated", of, _apply_restated)
    return restated, *(EventKind(f"{of}.{word}", of, _apply_gone) for word in ("forgotten", *gone))


EVENTS: Final = (
    *_kinds("project", "withdrawn", "merged"),
    *_kinds("note", "withdrawn"),
    *_kinds("entity", "withdrawn", "merged"),
    *_kinds("item"),  # whose number is never given again: the undo of its creation removes it from its list
    *_kinds("checkpoint", "withdrawn"),
    *_kinds("summary", "withdrawn"),
    *_kinds("checks", "withdrawn", "merged"),
    EventKind("session.restated", "session", _apply_restated),
)
PROJECTIONS: Final = ("copied",)
