"""Checkpoints and summaries: where the work stands, and what a finished task comes to."""

from __future__ import annotations

from typing import Any, Final

import apsw

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.log.kinds import EventKind
from agentmem.records import claims, note_rows, subjects, tree, validate
from agentmem.records.base import Row, Source, Unit
from agentmem.records.note_writes import expect, left_beneath
from agentmem.records.refs import note_id
from agentmem.records.standing import standing
from agentmem.types import CLOSED, TASK_KINDS, UNFINISHED, UNTRUSTED, Checkpoint, Event, Ref, Status, Summary, Written

CHECKPOINT_COLUMNS: Final = "id, project, task, text, dated, author, run, origin, at"
SUMMARY_COLUMNS: Final = "id, note, work, result, confidence, basis, author, origin, at, revision"
BOOKMARK: Final = "bookmark"
"""The author of checkpoints that hooks write by themselves: they stand behind those that somebody wrote."""
_LOOKED_AT: Final = 20  # checkpoints among which a trusted one is looked for
_NAMED: Final = 8  # parts without a summary that a notice names


def checkpoint(unit: Unit, given: str, task: Ref | None, dated: int | None = None) -> Written:
    """Write where the work stands, for a task or for the whole project."""
    text = validate.written(given, "text", limits.CHECKPOINT_BYTES)
    found = unit.actor.task if task is None else note_id(unit, task)
    payload: dict[str, Any] = {"text": text}
    if dated is not None:
        payload["dated"] = validate.time(dated, "dated")
    if found is None:
        project = unit.project
    else:
        subjects.refuse_hidden(unit, found, "note")
        payload["task"] = found
        project = note_rows.load(unit, found).project
    event = unit.append("checkpoint.written", payload, project=project)
    return Written(event.seq, event.seq, ("created",), transit=unit.transit)


def checkpoints(
    source: Source, task: int | None, *, limit: int, before: int = limits.INT_MAX
) -> tuple[Checkpoint, ...]:
    """The checkpoints of a task, of the project without a task if None, written before an id, newest first."""
    sql = f"""
    SELECT {CHECKPOINT_COLUMNS} FROM checkpoint
    WHERE project = ? AND task IS ? AND id < ? AND text IS NOT NULL {subjects.of_checkpoints(source)}
    ORDER BY id DESC LIMIT ?
    """
    project = source.known_project if task is None else standing(source, "note", task).project
    return tuple(Checkpoint(*row) for row in source.rows(sql, (project, task, before, limit)))


def latest_checkpoint(source: Source, task: int | None) -> Checkpoint | None:
    """The last checkpoint of a task, of the project without a task if None.

    One that somebody wrote comes before bookmarks, a trusted one before those from elsewhere.
    """
    latest = checkpoints(source, task, limit=_LOOKED_AT)
    trusted = [one for one in latest if one.origin not in UNTRUSTED]
    written = [one for one in trusted if one.author != BOOKMARK]
    if not written and len(latest) == _LOOKED_AT:  # there may be a bookmark for each turn of weeks
        sql = f"""
        SELECT {CHECKPOINT_COLUMNS} FROM checkpoint
        WHERE project = ? AND task IS ? AND author IS NOT ? AND origin NOT IN ('import', 'tool', 'web') AND text IS NOT NULL
          {subjects.of_checkpoints(source)}
        ORDER BY id DESC LIMIT 1
        """
        written = [Checkpoint(*row) for row in source.rows(sql, (latest[0].project, task, BOOKMARK))]
    return next(iter([*written, *trusted, *latest]), None)


def later_bookmark(source: Source, after: int) -> Checkpoint | None:
    """The last bookmark of the project, if it is later than a checkpoint, or any event."""
    sql = f"""
    SELECT {CHECKPOINT_COLUMNS} FROM checkpoint
    WHERE project = ? AND task IS NULL AND id > ? AND text IS NOT NULL {subjects.of_checkpoints(source)}
    ORDER BY id DESC LIMIT 1
    """
    row = source.row(sql, (source.known_project, after))
    found = None if row is None else Checkpoint(*row)
    return found if found is not None and found.author == BOOKMARK else None


def every_checkpoint(source: Source, *, limit: int, before: int) -> tuple[Checkpoint, ...]:
    """The checkpoints of the project and of its tasks, newest first."""
    sql = f"""
    SELECT {CHECKPOINT_COLUMNS} FROM checkpoint
    WHERE project = ? AND id < ? AND text IS NOT NULL {subjects.of_checkpoints(source)} ORDER BY id DESC LIMIT ?
    """
    return tuple(Checkpoint(*row) for row in source.rows(sql, (source.known_project, before, limit)))


def summarize(
    unit: Unit,
    task: Ref,
    *,
    work: str,
    result: str,
    status: Status | None,
    confidence: float | None,
    basis: str | None,
    expected: int | None,
) -> Written:
    """Write what a task comes to and close it, in one transaction; a second summary replaces the first."""
    found = note_id(unit, task, kinds=TASK_KINDS)
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    wanted = {
        "work": validate.text(work, "work", limits.SUMMARY_BYTES),
        "result": validate.text(result, "result", limits.SUMMARY_BYTES),
        "confidence": validate.confidence(confidence),
        "basis": validate.optional_line(basis, "basis", limits.BASIS_CHARS),
    }
    if not (work.strip() or result.strip()):
        raise InvalidInput("A summary needs work= or result=")
    if status is not None:
        validate.choice(status, "status", CLOSED)
    notices = (*left_beneath(unit, found, closing=True), *_parts_without_summary(unit, found))
    closing = "done" if status is None and note.status in UNFINISHED else status
    changed: tuple[str, ...] = ()
    if closing is not None and closing != note.status:
        unit.append("note.changed", {"set": {"status": closing}}, record=found, project=note.project)
        changed = ("status",)
    return write_summary(unit, found, note.project, wanted, changed, notices)


def write_summary(
    unit: Unit, note: int, project: int, wanted: dict[str, Any], changed: tuple[str, ...], notices: tuple[str, ...]
) -> Written:
    """Add the summary of a note or replace it; last in its transaction, so that it is younger than what it sums up."""
    row = unit.row(f"SELECT {SUMMARY_COLUMNS} FROM summary WHERE note = ?", (note,))
    if row is None:
        payload = {"note": note, **{name: value for name, value in wanted.items() if value not in (None, "")}}
        event = unit.append("summary.written", payload, project=project)
        return Written(event.seq, event.seq, (*changed, "summary"), (), notices, transit=unit.transit)
    current = dict(zip(SUMMARY_COLUMNS.split(", "), row, strict=True))
    changes = {name: value for name, value in wanted.items() if (current[name] or None) != (value or None)}
    if changes:
        changes |= unit.lowered(current["origin"])
    if not changes and not changed and not stale(unit, note, current["revision"]):
        return Written(current["id"], current["revision"], (), (), notices, transit=unit.transit)
    # A repeated summary of a task that changed since says that it still holds.
    event = unit.append("summary.changed", {"set": changes}, record=current["id"], project=project)
    return Written(
        current["id"], event.seq, (*changed, *(sorted(changes) or ["summary"])), (), notices, transit=unit.transit
    )


def _parts_without_summary(unit: Unit, note: int) -> tuple[str, ...]:
    sql = f"""
    {tree.BENEATH} SELECT note.id FROM beneath JOIN note USING (id)
    WHERE id <> ?1 AND kind IN (?2, ?3) AND status NOT IN (?4, ?5)
      AND NOT EXISTS (SELECT 1 FROM summary WHERE summary.note = note.id) {subjects.of_notes(unit)}
    LIMIT {_NAMED + 1}
    """
    found = [row[0] for row in unit.rows(sql, (note, *TASK_KINDS, *UNFINISHED))]
    if not found:
        return ()
    named = ", ".join(f"#{part}" for part in found[:_NAMED]) + (" and more" if len(found) > _NAMED else "")
    return (f"closed without a summary: {named}",)


def summary_of(source: Source, note: int) -> Summary | None:
    """The current summary of a note, None if it has none or it was purged."""
    row = source.row(f"SELECT {SUMMARY_COLUMNS} FROM summary WHERE note = ?", (note,))
    if row is None or (row[2] is None and row[3] is None):
        return None
    return summary(source, row)


def summary(source: Source, row: Row) -> Summary:
    """The summary of a row of `SUMMARY_COLUMNS`."""
    fields: Row = (*row, stale(source, row[1], row[9]))
    return Summary(*fields)


_NEWER: Final = 32  # notes touched later, up to which these are followed upwards
_TOUCHED: Final = f"""
SELECT id FROM note INDEXED BY note_touched WHERE root = ?1 AND touched > ?2 ORDER BY touched DESC LIMIT {_NEWER + 1}
"""
_ABOVE_THEM: Final = f"""
WITH RECURSIVE above (id) AS (
    SELECT * FROM ({_TOUCHED})
    UNION
    SELECT note.parent FROM above JOIN note USING (id) WHERE note.parent IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM above WHERE id = ?3)
"""
_BENEATH_IT: Final = f"{tree.BENEATH} SELECT EXISTS (SELECT 1 FROM beneath JOIN note USING (id) WHERE touched > ?2)"


def stale(source: Source, note: int, revision: int) -> bool:
    """Whether anything beneath a note, now or then, changed after its summary of this revision.

    Claims and confirmations do not count. The cost grows with what changed later, where that is little, else with the
    tree.
    """
    root = source.number("SELECT root FROM note WHERE id = ?", (note,))
    newer = source.rows(_TOUCHED, (root, revision))
    if root == note or not newer:
        return bool(newer)
    if len(newer) <= _NEWER:
        return bool(source.number(_ABOVE_THEM, (root, revision, note)))
    return bool(source.number(_BENEATH_IT, (note, revision)))


def _apply_checkpoint(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {} if event.payload is None else event.payload
    connection.execute(
        f"INSERT INTO checkpoint ({CHECKPOINT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (event.seq, event.project, payload.get("task"), payload.get("text"), payload.get("dated"),
         event.author, event.run, event.origin, event.at),
    )  # fmt: skip


def _apply_written(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {"note": -event.seq} if event.payload is None else event.payload
    connection.execute(
        "INSERT INTO summary (id, note, work, result, confidence, basis, author, run, origin, at, revision)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            event.seq, payload["note"], payload.get("work"), payload.get("result"), payload.get("confidence"),
            payload.get("basis"), event.author, event.run, event.origin, event.at, event.seq,
        ),
    )  # fmt: skip
    connection.execute("UPDATE note SET touched = ? WHERE id = ?", (event.seq, payload["note"]))


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    values: dict[str, Any] = {} if event.payload is None else event.payload["set"]
    names = [name for name in ("work", "result", "confidence", "basis", "origin") if name in values]
    settings = [f"{name} = ?" for name in names] + ["author = ?", "run = ?", "at = ?", "revision = ?"]
    get = values.get
    made = (get("author", event.author), get("run", event.run), get("at", event.at))
    bound = [*(values[name] for name in names), *made, event.seq, event.record]
    connection.execute(f"UPDATE summary SET {', '.join(settings)} WHERE id = ?", bound)
    touch = "UPDATE note SET touched = ? WHERE id = (SELECT note FROM summary WHERE id = ?)"
    connection.execute(touch, (event.seq, event.record))


def _apply_moved(connection: apsw.Connection, event: Event) -> None:
    if event.payload is not None:
        project = event.payload["set"]["project"]
        connection.execute("UPDATE checkpoint SET project = ? WHERE id = ?", (project, event.record))


EVENTS = (
    EventKind("checkpoint.written", "checkpoint", _apply_checkpoint, creates=True),
    EventKind("checkpoint.changed", "checkpoint", _apply_moved),
    EventKind("summary.written", "summary", _apply_written, creates=True),
    EventKind("summary.changed", "summary", _apply_changed),
)
PROJECTIONS = ("checkpoint", "summary")
