"""The sections of `resume(task)`: what a worker on one task must know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agentmem.context import left as lefts
from agentmem.context import lines, work
from agentmem.context.budget import Line, Section
from agentmem.context.since import changed_lines
from agentmem.records import claims, note_rows, reports, tree
from agentmem.records.base import View
from agentmem.types import Checkpoint, Claim

_LISTED: Final = 60  # lines read for a section
FAILED: Final = "id, title, origin, why, basis, substr(body, 1, 2000)"
_SORTED: Final = 500  # facts among which the surest are chosen


def head(view: View, task: int) -> list[Line]:
    """The task, the chain of goals above it, pinned notes."""
    note = note_rows.load(view, task)
    tags = f" [{' '.join(note.tags)}]" if note.tags else ""
    text = f"#{task} {note.kind} [{note.status}]{lines.inline(tags)} {lines.inline(note.title, note.origin)}"
    found = [Line(f"{text}: {lines.inline(note.body, note.origin)}" if note.body else text, text, f"get({task})", 200)]
    if note.entity is not None:
        entity = view.row("SELECT type, key, status, origin FROM entity WHERE id = ?", (note.entity,))
        if entity is not None:
            found.append(Line(f"about {entity[0]}:{lines.inline(entity[1], entity[3])} [{entity[2]}]"))
    chain = tree.ancestors(view, task)
    for above in reversed(chain):
        row = view.row("SELECT kind, title, origin, status FROM note WHERE id = ?", (above,))
        if row is not None:
            found.append(lines.record(above, row[1], origin=row[2], before=f"in {row[0]} [{row[3]}]"))
    scope = [task, *chain]
    pinned = view.rows(
        f"SELECT id, title, origin, why, basis FROM note WHERE parent IN ({', '.join('?' * len(scope))})"
        " AND pinned = 1 AND status <> 'dropped' AND title IS NOT NULL ORDER BY position, id",
        scope,
    )
    return found + [
        lines.record(row[0], row[1], origin=row[2], before="pinned:", why=row[3], basis=row[4]) for row in pinned
    ]


def sections(view: View, task: int) -> list[Section]:
    """All sections but the head, in the order and with the shares of the design."""
    row = view.row("SELECT root, project, entity FROM note WHERE id = ?", (task,))
    assert row is not None  # ids come from refs
    root, project, entity = row
    chain = tree.ancestors(view, task)
    gathered = lefts.gather(view, task, listed=_LISTED)
    left, left_total = lefts.work_lines(gathered)
    failed, failed_total = _failed(view, task, root, entity, chain)
    questions = _questions(view, task, root)
    blocked = _blocked(view, gathered, task)
    return [
        Section("where", "where it stands:", 0.2, _where(view, task, root, chain), more=f"log.read(project={project})"),
        Section("left", "left, the next first:", 0.2, left, left_total, f"left(task={task})"),
        Section("failed", "failed, do not repeat:", 0.15, failed, failed_total, "recall(…, kind='attempt')"),
        Section("questions", "open questions and blocks:", 0.05, blocked + questions,
                more=f"notes.list(kind='question', under={root})"),
        Section("decisions", "decisions in force:", 0.07, _decisions(view, task, chain, project),
                more=f"notes.list(kind='decision', under={root})"),
        Section("lessons", "lessons:", 0.03, _lessons(view, task, chain, project), more="notes.list(kind='lesson')"),
        Section("results", "results:", 0.07, _results(view, task, chain), more=f"task_summary({chain[0] if chain else task})"),
        Section("facts", "facts:", 0.03, _facts(view, task, root), more=f"notes.list(kind='fact', under={task})"),
    ]  # fmt: skip


def _where(view: View, task: int, root: int, chain: Sequence[int]) -> list[Line]:
    """The last checkpoint at or above the task, what others changed since, what is in flight."""
    found: list[Line] = []
    checkpoint = None
    for note in (task, *chain):
        checkpoint = reports.latest_checkpoint(view, note)
        if checkpoint is not None:
            found.append(checkpoint_line(checkpoint))
            break
    beneath = view.row(
        f"{tree.BENEATH} SELECT {', '.join('checkpoint.' + name for name in reports.CHECKPOINT_COLUMNS.split(', '))}"
        " FROM checkpoint WHERE task IN (SELECT id FROM beneath WHERE level > 0) AND checkpoint.id > ?2"
        " AND text IS NOT NULL ORDER BY checkpoint.id DESC LIMIT 1",
        (task, checkpoint.id if checkpoint else 0),
    )
    if beneath is not None:
        found.append(checkpoint_line(Checkpoint(*beneath)))
    found += in_flight(view, "note.root = ?", (root,), first=task)
    found += [claim_line(claim) for claim in claims.live(view, run=view.binding.actor.run)]
    if checkpoint is not None:
        found += changed_lines(view, task, checkpoint.id, others_than=checkpoint.run, limit=20)
    return found


def checkpoint_line(checkpoint: Checkpoint) -> Line:
    """A checkpoint; it may be longer than other lines."""
    of = f" of #{checkpoint.task}" if checkpoint.task is not None else ""
    by = f" by {checkpoint.author}" if checkpoint.author else ""
    when = lines.minute(checkpoint.at) if checkpoint.dated is None else lines.day(checkpoint.dated)
    text = lines.inline(checkpoint.text, checkpoint.origin)
    return Line(f"checkpoint{of} {when}{by}: {text}", ref=f"get({checkpoint.id})", limit=250)


def in_flight(view: View, where: str, values: Sequence[Any], *, first: int | None = None) -> list[Line]:
    """Opened attempts and active steps; those beneath the task `first` before the others of its goal."""
    sql = f"""
    SELECT id, kind, title, origin, parent FROM note
    WHERE {where} AND shut = 0 AND title IS NOT NULL AND status = 'active' AND kind IN ('attempt', 'step')
    ORDER BY (parent IS ?) DESC, (kind = 'attempt') DESC, id DESC LIMIT 20
    """
    found = []
    for row in view.rows(sql, (*values, first)):
        if row[0] != first:
            before = "trying:" if row[1] == "attempt" else "active:"
            found.append(lines.record(row[0], row[2], origin=row[3], before=before))
    return found


def claim_line(claim: Claim) -> Line:
    """A claim of one's own."""
    return Line(f"claimed: #{claim.record} until {lines.minute(claim.expires_at)}")


def _failed(view: View, task: int, root: int, entity: int | None, chain: Sequence[int]) -> tuple[list[Line], int]:
    """Failed attempts, the nearest first: on the same entity, of the same step, beneath it, of the same goal."""
    columns = f"{FAILED}, parent, entity"
    kind = "kind = 'attempt' AND status = 'failed' AND title IS NOT NULL"
    rows = view.rows(f"SELECT {columns} FROM note WHERE root = ? AND {kind} ORDER BY id DESC LIMIT 200", (root,))
    rows += view.rows(
        f"SELECT {columns} FROM note WHERE parent = ? AND {kind} ORDER BY id DESC LIMIT {_LISTED}", (task,)
    )
    if entity is not None:
        rows += view.rows(
            f"SELECT {columns} FROM note WHERE entity = ? AND {kind} ORDER BY id DESC LIMIT {_LISTED}", (entity,)
        )
    unique = {row[0]: row for row in rows}
    near: dict[int | None, int] = {task: 1}
    if chain:
        near |= {above: 3 + distance for distance, above in enumerate(chain)}
        inside = {
            found
            for (found,) in view.rows(f"{tree.BENEATH} SELECT id FROM beneath WHERE level > 0 LIMIT 2000", (task,))
        }
    else:
        inside = set()

    def distance(row: tuple[Any, ...]) -> tuple[int, int]:
        if entity is not None and row[7] == entity:
            return 0, -row[0]
        return (2 if row[6] in inside else near.get(row[6], 99)), -row[0]

    ordered = sorted(unique.values(), key=distance)
    total = max(len(ordered), count(view, f"root = ? AND {kind}", (root,)))
    return [failed_line(row) for row in ordered[:_LISTED]], total


def failed_line(row: Sequence[Any]) -> Line:
    """A failed attempt with why; a row of `FAILED`."""
    return lines.record(row[0], row[1], origin=row[2], why=row[3], basis=row[4], body=row[5], limit=90)


def failed_of_project(view: View) -> list[Line]:
    """The latest failed attempts of the project, those of unfinished tasks first."""
    sql = f"""
    SELECT {FAILED} FROM note
    WHERE project = ? AND kind = 'attempt' AND status = 'failed' AND title IS NOT NULL
    ORDER BY id DESC LIMIT {_LISTED}
    """
    return [failed_line(row) for row in view.rows(sql, (view.project,))]


def count(view: View, where: str, values: Sequence[Any]) -> int:
    """How many notes; exact up to `limits.COUNT_EXACT`, that and one beyond."""
    row = view.row(f"SELECT count(*) FROM (SELECT 1 FROM note WHERE {where} LIMIT {work.BOUND + 1})", values)
    return row[0] if row else 0


def _questions(view: View, task: int, root: int) -> list[Line]:
    sql = f"""
    SELECT id, title, origin, basis, substr(body, 1, 2000) FROM note
    WHERE root = ? AND kind = 'question' AND status = 'open' AND title IS NOT NULL
    ORDER BY (parent IS ?) DESC, id DESC LIMIT {_LISTED}
    """
    return [
        lines.record(row[0], row[1], origin=row[2], basis=row[3], body=row[4]) for row in view.rows(sql, (root, task))
    ]


def _blocked(view: View, gathered: lefts.Gathered, task: int) -> list[Line]:
    """What the task, and the steps beneath it, wait for."""
    waiting = dict(gathered.blocked) | work.blockers(view, [task])
    found = []
    for note, blocking in waiting.items():
        for other in blocking:
            row = view.row("SELECT title, origin, status FROM note WHERE id = ?", (other,))
            if row is not None:
                found.append(Line(f"#{note} waits for #{other} [{row[2]}] {lines.inline(row[0], row[1])}"))
    return found[:_LISTED]


def note_line(row: Sequence[Any]) -> Line:
    """A decision or lesson: a row of `work.NOTE_LINE`."""
    return lines.record(row[0], row[1], origin=row[2], basis=row[3], why=row[4], body=row[7])


def _decisions(view: View, task: int, chain: Sequence[int], project: int) -> list[Line]:
    """Those of the task and of every goal above it, those it uses, the project's, then those deeper beneath it."""
    found: dict[int, tuple[Any, ...]] = {}
    for note in (task, *chain):
        for row in work.in_force(view, "decision", "note.parent = ?", (note,), _LISTED):
            found.setdefault(row[0], row)
    used = "note.id IN (SELECT dst FROM link WHERE src = ? AND kind = 'uses')"
    top = "note.project = ? AND note.parent IS NULL"
    deeper = f"note.id IN ({tree.BENEATH} SELECT id FROM beneath WHERE level > 1 LIMIT 2000)"
    for where, value in ((used, task), (top, project), (deeper, task)):
        for row in work.in_force(view, "decision", where, (value,), _LISTED):
            found.setdefault(row[0], row)
    return [note_line(row) for row in found.values()]


def _lessons(view: View, task: int, chain: Sequence[int], project: int) -> list[Line]:
    found: dict[int, tuple[Any, ...]] = {}
    for note in (task, *chain):
        for row in work.in_force(view, "lesson", "note.parent = ?", (note,), _LISTED):
            found.setdefault(row[0], row)
    for row in work.in_force(view, "lesson", "note.project = ? AND note.parent IS NULL", (project,), _LISTED):
        found.setdefault(row[0], row)
    return [note_line(row) for row in found.values()]


def _results(view: View, task: int, chain: Sequence[int]) -> list[Line]:
    """The summaries of the task's own finished parts, and of its neighbours."""
    columns = ", ".join(f"summary.{name}" for name in reports.SUMMARY_COLUMNS.split(", "))
    sql = f"""
    SELECT note.title, note.origin, {columns} FROM summary JOIN note ON note.id = summary.note
    WHERE note.parent = ? AND note.id <> ? AND coalesce(work, result) IS NOT NULL ORDER BY note.position LIMIT {_LISTED}
    """
    rows = view.rows(sql, (task, task))
    if chain:
        rows += view.rows(sql, (chain[0], task))
    return [result_line(view, row) for row in rows]


def result_line(view: View, row: Sequence[Any]) -> Line:
    """What a finished part came to: a row of its title, its origin and the columns of its summary."""
    stale = reports.stale(view, row[3], row[11])
    summary = reports.summary(tuple(row[2:]), stale)
    mark = " (stale)" if stale else ""
    head = f"#{summary.note} {lines.inline(row[0], row[1])}{mark}"
    text = lines.inline(summary.result or summary.work, summary.origin)
    return Line(f"{head}: {text}", head, f"task_summary({summary.note})", 90)


def _facts(view: View, task: int, root: int) -> list[Line]:
    if task == root:
        return facts(view, "root = ? AND kind = 'fact' AND status = 'active'", (root,))
    beneath = f"id IN ({tree.BENEATH} SELECT id FROM beneath LIMIT 2000) AND kind = 'fact' AND status = 'active'"
    return facts(view, beneath, (task,))


def facts(view: View, where: str, values: Sequence[Any]) -> list[Line]:
    """Active facts, the surest first, then the newest; imported ones as their files have them; untrusted ones quoted."""
    sql = f"""
    SELECT id, title, origin, basis, confidence, substr(body, 1, 2000) FROM (
        SELECT id, title, origin, basis, confidence, body, run FROM note
        WHERE {where} AND title IS NOT NULL ORDER BY id DESC LIMIT {_SORTED}
    ) ORDER BY coalesce(confidence, 0.5) DESC, run IS 'import', iif(run IS 'import', id, -id) LIMIT {_LISTED}
    """
    found = []
    for row in view.rows(sql, values):
        after = f"[{row[4]:.2g}]" if row[4] is not None else ""
        found.append(lines.record(row[0], row[1], origin=row[2], basis=row[3], after=after, body=row[5]))
    return found
