"""Notes in the file: how their events apply, and how a row becomes a value."""

from __future__ import annotations

from typing import Any, Final

import apsw

from agentmem.log.canonical import canonical, plain
from agentmem.log.kinds import EventKind
from agentmem.records.base import Row, Source
from agentmem.types import Event, Note, Scope

COLUMNS: Final = (
    "id, project, kind, title, body, status, tags, parent, pinned, confidence, basis, entity, why, scope, dated, source, "
    "origin, confirmed_at, confirmed_by, author, run, created_at, updated_at, revision"
)

# The fields an event may set, in the column of the same name. `tags` and `scope` are kept as canonical JSON.
FIELDS: Final = frozenset(
    ("title", "body", "status", "tags", "parent", "position", "pinned", "confidence", "basis", "entity", "why", "scope",
     "dated", "source", "digest", "origin", "confirmed_at", "confirmed_by", "project")
)  # fmt: skip
# A summary stays fresh under a change of nothing but these. `origin` alone is changed by a confirmation.
_NOT_CONTENT: Final = frozenset(("confirmed_at", "confirmed_by", "position", "digest", "source", "origin", "project"))


def note(row: Row) -> Note:
    """The note of a row of `COLUMNS`."""
    tags = () if row[6] == "[]" else tuple(plain(row[6]))
    scope = None if row[13] is None else scope_of(plain(row[13]))
    fields: Row = (*row[:4], row[4] or "", row[5], tags, row[7], bool(row[8]), *row[9:13], scope, *row[14:])
    return Note(*fields)


def scope_of(value: dict[str, Any]) -> Scope:
    """The scope of its JSON form."""
    return Scope(value["type"], value.get("where"), tuple(value.get("checks", ())))


def scope_json(scope: Scope) -> dict[str, Any]:
    """The JSON form of a scope; what is not given is left out."""
    found: dict[str, Any] = {"type": scope.type}
    if scope.where is not None:
        found["where"] = scope.where
    if scope.checks:
        found["checks"] = list(scope.checks)
    return found


def load(source: Source, found: int) -> Note:
    """The note of this id, which exists."""
    return note(source.one(f"SELECT {COLUMNS} FROM note WHERE id = ?", (found,)))


_ADD = """
INSERT INTO note (id, project, kind, title, body, status, tags, parent, root, position, pinned, confidence, basis,
                  entity, why, scope, dated, source, digest, origin, author, run, created_at, updated_at, revision,
                  changed, touched, shut)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""


def _apply_added(connection: apsw.Connection, event: Event) -> None:
    # An erased creation leaves a stub, so that what points at it still points at something.
    payload: dict[str, Any] = {"kind": "fact", "status": "dropped"} if event.payload is None else event.payload
    get, seq, at = payload.get, event.seq, event.at
    parent = get("parent")
    root, shut = (seq, 0) if parent is None else _beneath(connection, parent)
    tags, scope = get("tags"), get("scope")
    connection.execute(
        _ADD,
        (
            seq, event.project, payload["kind"], get("title"), get("body"), payload["status"],
            canonical(tags) if tags else "[]", parent, root, get("position", float(seq)), int(get("pinned", False)),
            get("confidence"), get("basis"), get("entity"), get("why"), None if scope is None else canonical(scope),
            get("dated"), get("source"), get("digest"), event.origin, event.author, event.run, at, at, seq, seq, seq, shut,
        ),
    )  # fmt: skip


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    if event.payload is None:
        connection.execute(
            "UPDATE note SET revision = ?1, changed = ?1, touched = ?1, updated_at = ?2 WHERE id = ?3",
            (event.seq, event.at, event.record),
        )
        return
    values: dict[str, Any] = event.payload["set"]
    if "parent" in values:
        # A summary of the old parent goes stale although nothing beneath it changed.
        connection.execute(
            "UPDATE note SET touched = ? WHERE id = (SELECT parent FROM note WHERE id = ?)", (event.seq, event.record)
        )
    columns = [name for name in values if name in FIELDS]
    bound = [_column(name, values[name]) for name in columns]
    settings = [f"{name} = ?" for name in columns]
    if not _NOT_CONTENT.issuperset(columns):
        settings += ["changed = ?", "touched = ?", "updated_at = ?"]
        bound += [event.seq, event.seq, event.at]
    sql = f"UPDATE note SET {', '.join([*settings, 'revision = ?'])} WHERE id = ?"
    connection.execute(sql, [*bound, event.seq, event.record])
    if "parent" in values or "status" in values:
        descend(connection, event.record)


def _column(name: str, value: Any) -> Any:
    if name == "tags":
        return canonical(value)
    if name == "scope":
        return None if value is None else canonical(value)
    return int(value) if type(value) is bool else value


# A goal or step that is over shuts what lies beneath it: nothing there counts as left.
_SHUTS = "({note}.shut OR ({note}.kind IN ('goal', 'step') AND {note}.status IN ('done', 'failed', 'dropped')))"


def _beneath(connection: apsw.Connection, parent: int) -> tuple[int, int]:
    """`root` and `shut` of a note beneath this one."""
    sql = f"SELECT root, {_SHUTS.format(note='note')} FROM note WHERE id = ?"
    return connection.execute(sql, (parent,)).fetchone() or (parent, 0)


_DESCEND = """
WITH RECURSIVE beneath (id, root, shut) AS (
    VALUES (?1, ?2, ?3)
    UNION ALL
    SELECT child.id, beneath.root,
           beneath.shut OR (above.kind IN ('goal', 'step') AND above.status IN ('done', 'failed', 'dropped'))
    FROM beneath JOIN note AS above ON above.id = beneath.id JOIN note AS child ON child.parent = beneath.id
)
UPDATE note SET root = beneath.root, shut = beneath.shut FROM beneath
WHERE note.id = beneath.id AND (note.root <> beneath.root OR note.shut <> beneath.shut)
"""


def descend(connection: apsw.Connection, record: int) -> None:
    """Compute `root` and `shut` anew for a note and all beneath it."""
    row = connection.execute("SELECT parent FROM note WHERE id = ?", (record,)).fetchone()
    root, shut = (record, 0) if row is None or row[0] is None else _beneath(connection, row[0])
    connection.execute(_DESCEND, (record, root, shut))


EVENTS = (
    EventKind("note.added", "note", _apply_added, creates=True),
    EventKind("note.changed", "note", _apply_changed),
)
PROJECTIONS = ("note",)
