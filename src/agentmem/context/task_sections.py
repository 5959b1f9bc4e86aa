"""The sections of `resume(task)`: what a worker on one task must know."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from attrs import evolve

from agentmem.context import left as lefts
from agentmem.context import lines, work
from agentmem.context.budget import Line, Section
from agentmem.context.lines import Lines
from agentmem.context.reach import WALKED, Reach, as_json
from agentmem.context.reach import reach as reach_of
from agentmem.context.since import changed_lines
from agentmem.engine.migrations import SUREST
from agentmem.records import claims, note_rows, reports, subjects, tree
from agentmem.records.base import View
from agentmem.records.sql import qualified
from agentmem.types import Checkpoint, Claim

_TOLD: Final = 5  # facts of which more than the title is told
_TOLD_TOKENS: Final = 120
_LISTED: Final = 60  # lines read for a section
FAILED: Final = "id, title, origin, why, basis, substr(body, 1, 2000)"


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
    chain = _chain(view, task)
    for above in reversed(chain):
        row = view.row("SELECT kind, title, origin, status FROM note WHERE id = ?", (above,))
        if row is not None:
            found.append(lines.record(above, row[1], origin=row[2], before=f"in {row[0]} [{row[3]}]"))
    pinned = view.rows(
        "SELECT id, title, origin, why, basis FROM note INDEXED BY note_pinned"
        " WHERE project = (SELECT project FROM note WHERE id = ?) AND parent IN (SELECT value FROM json_each(?))"
        f" AND pinned = 1 AND status <> 'dropped' AND title IS NOT NULL {subjects.of_notes(view)} ORDER BY position, id",
        (task, as_json([task, *chain])),
    )
    return found + [
        lines.record(row[0], row[1], origin=row[2], before="pinned:", why=row[3], basis=row[4]) for row in pinned
    ]


def _chain(view: View, task: int) -> list[int]:
    """The notes above a task, the nearest first, those that the view does not see left out."""
    chain = tree.ancestors(view, task)
    unseen = subjects.hidden(view, chain)
    return [note for note in chain if note not in unseen]


def _log(view: View, project: int) -> str:
    return f"log.read(project={project})" if view.binding.subject is None else ""


def sections(view: View, task: int) -> list[Section]:
    """All sections but the head, in the order and with the shares of the design."""
    root, project, entity = view.one("SELECT root, project, entity FROM note WHERE id = ?", (task,))
    chain = _chain(view, task)
    reach = reach_of(view, task)
    gathered = lefts.gather(view, task, listed=_LISTED, named=False, reach=reach)
    left, left_total = lefts.work_lines(gathered)
    failed, failed_total = _failed(view, task, root, entity, chain, reach)
    questions = [*_blocked(view, gathered, task), *_questions(view, task, root)]
    return [
        Section("where", "where it stands:", 0.2, _where(view, task, chain, reach), more=_log(view, project)),
        Section("left", "left, the next first:", 0.2, left, left_total, f"left(task={task})"),
        Section("failed", "failed, do not repeat:", 0.15, failed, failed_total,
                f"notes.list(kind='attempt', status='failed', under={root})"),
        Section("questions", "open questions and blocks:", 0.05, questions,
                more=f"notes.list(kind='question', under={root})"),
        Section("decisions", "decisions in force:", 0.07, _decisions(view, task, chain, reach),
                more=f"notes.list(kind='decision', under={root})"),
        Section("lessons", "lessons:", 0.03, _lessons(view, task, chain, project), more="notes.list(kind='lesson')"),
        unconfirmed(view, reach),
        Section("results", "results:", 0.07, _results(view, task, chain), more=f"task_summary({chain[0] if chain else task})"),
        Section("facts", "facts:", 0.03, _facts(view, reach), more=f"notes.list(kind='fact', under={task})"),
    ]  # fmt: skip


def _where(view: View, task: int, chain: Sequence[int], reach: Reach) -> list[Line]:
    """The last checkpoint at or above the task, what others changed since, what is in flight."""
    found: list[Line] = []
    checkpoint = None
    for note in (task, *chain):
        checkpoint = reports.latest_checkpoint(view, note)
        if checkpoint is not None:
            found.append(checkpoint_line(checkpoint))
            break
    beneath = _checkpoint_beneath(view, reach, checkpoint.id if checkpoint else 0)
    if beneath is not None:
        found.append(checkpoint_line(beneath))
    found += bookmark(view, max((one.id for one in (checkpoint, beneath) if one is not None), default=0))
    found += in_flight(view, reach)
    found += [claim_line(claim) for claim in claims.live(view) if claim.mine]
    if checkpoint is not None:
        found += changed_lines(view, task, checkpoint.id, others_than=checkpoint.run, limit=20)
    return found


_LATEST: Final = 200  # checkpoints of a project looked at before the notes beneath the task are gone through


def _checkpoint_beneath(view: View, reach: Reach, after: int) -> Checkpoint | None:
    """The latest checkpoint of a note beneath the task that is later than `after`."""
    sql = f"""
    SELECT {reports.CHECKPOINT_COLUMNS} FROM checkpoint INDEXED BY checkpoint_tasks
    WHERE project = ? AND task IS NOT NULL AND id > ? {subjects.of_checkpoints(view)} ORDER BY id DESC LIMIT {_LATEST}
    """
    latest = view.rows(f"SELECT id, task, text IS NULL FROM ({sql})", (reach.project, after))
    if reach.nodes is None:
        roots = "SELECT id FROM note WHERE root = ? AND id IN (SELECT value FROM json_each(?))"
        inside = {note for (note,) in view.rows(roots, (reach.root, as_json(task for _, task, _ in latest)))}
    else:
        inside = {node.id for node in reach.nodes}
    for checkpoint, task, gone in latest:
        if task in inside and task != reach.task and not gone:
            row = view.row(f"SELECT {reports.CHECKPOINT_COLUMNS} FROM checkpoint WHERE id = ?", (checkpoint,))
            return None if row is None else Checkpoint(*row)
    return _checkpoint_by_note(view, reach, after) if len(latest) == _LATEST else None


def _checkpoint_by_note(view: View, reach: Reach, after: int) -> Checkpoint | None:
    """The same, from the notes to their checkpoints, where the project has many later ones."""
    if reach.nodes is None:
        notes = f"SELECT id FROM note INDEXED BY note_root WHERE root = ?1 AND id <> ?1 LIMIT {WALKED}"
        start: int | str | None = reach.root
    else:
        notes, start = "SELECT value AS id FROM json_each(?1)", reach.listed(lambda node: node.level > 0)
    columns = qualified(reports.CHECKPOINT_COLUMNS, "checkpoint")
    sql = f"""
    SELECT {columns} FROM ({notes}) AS wanted
    CROSS JOIN checkpoint INDEXED BY checkpoint_task ON checkpoint.project = ?2 AND checkpoint.task = wanted.id
    WHERE checkpoint.id > ?3 AND checkpoint.text IS NOT NULL {subjects.of_checkpoints(view)}
    ORDER BY checkpoint.id DESC LIMIT 1
    """
    row = view.row(sql, (start, reach.project, after))
    return None if row is None else Checkpoint(*row)


def bookmark(view: View, after: int) -> list[Line]:
    """The last bookmark of a host, if it is later than what else is told of where the work stands."""
    found = reports.later_bookmark(view, after)
    if found is None:
        return []
    return [
        Line(
            f"bookmark {lines.minute(found.at)}: {lines.inline(found.text, found.origin)}",
            ref=f"get({found.id})",
            limit=120,
        )
    ]


def checkpoint_line(checkpoint: Checkpoint) -> Line:
    """A checkpoint; it may be longer than other lines."""
    of = f" of #{checkpoint.task}" if checkpoint.task is not None else ""
    by = f" by {checkpoint.author}" if checkpoint.author else ""
    when = lines.minute(checkpoint.at) if checkpoint.dated is None else lines.day(checkpoint.dated)
    text = lines.inline(checkpoint.text, checkpoint.origin)
    return Line(f"checkpoint{of} {when}{by}: {text}", ref=f"get({checkpoint.id})", limit=250)


_IN_FLIGHT: Final = 20


def in_flight(view: View, reach: Reach) -> list[Line]:
    """Opened attempts, those right beneath the task, or the project, before the others; and steps that this run began.

    Active steps stand first in what is left.
    """
    if reach.root is None:
        scans = [
            ("note_top", "project = ? AND parent IS NULL", reach.project),
            ("note_flight", "project = ?", reach.project),
        ]
    else:
        scans = [("note_parent", "parent = ?", reach.task or 0), ("note_root", "root = ?", reach.root)]
    found: dict[int, Line] = {}
    for index, where, value in scans:
        sql = f"""
        SELECT id, title, origin FROM note INDEXED BY {index}
        WHERE {where} AND kind = 'attempt' AND status = 'active' AND shut = 0 AND kind IN ('attempt', 'step')
          AND title IS NOT NULL AND id IS NOT ? {subjects.of_notes(view)} ORDER BY id DESC LIMIT {_IN_FLIGHT - len(found)}
        """
        for row in view.rows(sql, (value, reach.task)) if len(found) < _IN_FLIGHT else ():
            found.setdefault(row[0], lines.record(row[0], row[1], origin=row[2], before="trying:"))
    for note, title, origin in _begun(view, reach):
        found.setdefault(note, lines.record(note, title, origin=origin, before="begun:"))
    return list(found.values())


_BEGUN: Final = """
WITH RECURSIVE latest (record) AS MATERIALIZED (
    SELECT DISTINCT record FROM (
        SELECT record, type, run FROM event WHERE project = ?1 ORDER BY seq DESC LIMIT 300
    ) WHERE run = ?2 AND type = 'note'
), above (id) AS (
    SELECT parent FROM note WHERE id IN (SELECT record FROM latest) AND parent IS NOT NULL
    UNION
    SELECT note.parent FROM above JOIN note USING (id) WHERE note.parent IS NOT NULL AND note.kind <> 'step'
)
SELECT note.id, note.title, note.origin FROM above JOIN note USING (id)
WHERE kind = 'step' AND status = 'open' AND shut = 0 AND title IS NOT NULL AND note.id IS NOT ?3
  AND (?4 IS NULL OR root = ?4) {seen} ORDER BY note.id DESC LIMIT 10
"""


def _begun(view: View, reach: Reach) -> list[Any]:
    """Open steps beneath which this run wrote: in progress though nobody marked them so. The latest 300 events count."""
    run = view.binding.actor.run
    if run is None:
        return []
    return view.rows(_BEGUN.format(seen=subjects.of_notes(view)), (reach.project, run, reach.task, reach.root))


def claim_line(claim: Claim) -> Line:
    """A claim of one's own."""
    return Line(f"claimed: #{claim.record} until {lines.minute(claim.expires_at)}")


def _failed(
    view: View, task: int, root: int, entity: int | None, chain: Sequence[int], reach: Reach
) -> tuple[Sequence[Line], int]:
    """Failed attempts, the nearest first: on the same entity, of the same step, beneath it, of the same goal."""
    columns = f"{FAILED}, parent, entity"
    kind = f"kind = 'attempt' AND status = 'failed' AND title IS NOT NULL {subjects.of_notes(view)}"
    rows = view.rows(f"SELECT {columns} FROM note WHERE root = ? AND {kind} ORDER BY id DESC LIMIT 200", (root,))
    rows += view.rows(
        f"SELECT {columns} FROM note WHERE parent = ? AND {kind} ORDER BY id DESC LIMIT {_LISTED}", (task,)
    )
    if entity is not None:
        rows += view.rows(
            f"SELECT {columns} FROM note WHERE entity = ? AND {kind} ORDER BY id DESC LIMIT {_LISTED}", (entity,)
        )
    unique = {row[0]: row for row in rows}
    near: dict[int | None, int] = {task: 1, **{above: 3 + distance for distance, above in enumerate(chain)}}
    inside = {node.id for node in reach.nodes or () if node.level > 0}

    def distance(row: tuple[Any, ...]) -> tuple[int, int]:
        if entity is not None and row[7] == entity:
            return 0, -row[0]
        return (2 if row[6] in inside else near.get(row[6], 99)), -row[0]

    ordered = sorted(unique.values(), key=distance)
    total = max(len(ordered), count(view, f"root = ? AND {kind}", (root,)))
    return Lines(ordered[:_LISTED], failed_line), total


def failed_line(row: Sequence[Any]) -> Line:
    """A failed attempt with why; a row of `FAILED`."""
    return lines.record(row[0], row[1], origin=row[2], why=row[3], basis=row[4], body=row[5], limit=90)


def failed_of_project(view: View) -> Lines:
    """The latest failed attempts of the project, those of unfinished tasks first."""
    sql = f"""
    SELECT {FAILED} FROM note
    WHERE project = ? AND kind = 'attempt' AND status = 'failed' AND title IS NOT NULL {subjects.of_notes(view)}
    ORDER BY id DESC LIMIT {_LISTED}
    """
    return Lines(view.rows(sql, (view.project,)), failed_line)


def count(view: View, where: str, values: Sequence[Any], *, beyond: int = 0) -> int:
    """How many notes; exact up to `limits.COUNT_EXACT` and so many `beyond` it, that and one above."""
    most = work.BOUND + beyond + 1
    seen = subjects.of_notes(view)
    return view.number(f"SELECT count(*) FROM (SELECT 1 FROM note WHERE {where} {seen} LIMIT {most})", values)


def _questions(view: View, task: int, root: int) -> Lines:
    sql = f"""
    SELECT id, title, origin, basis, substr(body, 1, 2000) FROM note
    WHERE root = ? AND kind = 'question' AND status = 'open' AND title IS NOT NULL {subjects.of_notes(view)}
    ORDER BY (parent IS ?) DESC, id DESC LIMIT {_LISTED}
    """
    return Lines(view.rows(sql, (root, task)), question_line)


def question_line(row: Sequence[Any]) -> Line:
    """A question: a row of id, title, origin, basis and the beginning of the body."""
    return lines.record(row[0], row[1], origin=row[2], basis=row[3], body=row[4])


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


def _decisions(view: View, task: int, chain: Sequence[int], reach: Reach) -> Lines:
    """Those that bound the work, those of the task and every goal above it, those it uses, the project's, then deeper ones."""
    bounds = work.rules(view, "note.project = ? AND note.root = ?", (reach.project, reach.root), _LISTED)
    found: dict[int, tuple[Any, ...]] = {row[0]: row for row in bounds}
    searches: list[tuple[str, int | str | None]] = [("note.parent = ?", note) for note in (task, *chain)]
    searches.append(("note.id IN (SELECT dst FROM link WHERE src = ? AND kind = 'uses')", task))
    searches.append(("note.project = ? AND note.parent IS NULL", reach.project))
    if reach.nodes is None:
        searches.append(("note.root = ?", reach.root))
    else:
        deeper = reach.listed(lambda node: node.level > 1 and node.kind == "decision" and node.status == "active")
        searches.append(("note.id IN (SELECT value FROM json_each(?))", deeper))
    for where, value in searches:
        for row in work.in_force(view, "decision", where, (value,), _LISTED):
            found.setdefault(row[0], row)
    return Lines(list(found.values()), note_line)


def _lessons(view: View, task: int, chain: Sequence[int], project: int) -> Lines:
    found: dict[int, tuple[Any, ...]] = {}
    for note in (task, *chain):
        for row in work.in_force(view, "lesson", "note.parent = ?", (note,), _LISTED):
            found.setdefault(row[0], row)
    for row in work.in_force(view, "lesson", "note.project = ? AND note.parent IS NULL", (project,), _LISTED):
        found.setdefault(row[0], row)
    return Lines(list(found.values()), note_line)


def unconfirmed(view: View, reach: Reach) -> Section:
    """Decisions and lessons that came from elsewhere: shown, quoted, and in force for nobody."""
    where, values = reach.condition()
    rows = view.rows(
        f"""
        SELECT id, kind, title, origin, basis, substr(body, 1, 2000) FROM note INDEXED BY note_foreign
        WHERE {where} AND kind IN ('decision', 'lesson') AND status = 'active' AND origin IN ('import', 'tool', 'web')
          AND title IS NOT NULL ORDER BY id DESC LIMIT {work.BOUND + 1}
        """,
        values,
    )
    found = Lines(rows, _unconfirmed_line)
    return Section(
        "unconfirmed", "said elsewhere, confirmed by nobody:", 0.03, found, more="notes.list(kind='decision')"
    )


def _unconfirmed_line(row: Sequence[Any]) -> Line:
    return lines.record(row[0], row[2], origin=row[3], before=f"{row[1]}:", basis=row[4], body=row[5])


def _results(view: View, task: int, chain: Sequence[int]) -> Lines:
    """The summaries of the task's own finished parts, and of its neighbours."""
    columns = qualified(reports.SUMMARY_COLUMNS, "summary")
    sql = f"""
    SELECT note.title, note.origin, {columns} FROM summary JOIN note ON note.id = summary.note
    WHERE note.parent = ? AND note.kind IN ('goal', 'step') AND note.id <> ? AND coalesce(work, result) IS NOT NULL
      {subjects.of_notes(view)}
    ORDER BY note.position LIMIT {_LISTED}
    """
    rows = view.rows(sql, (task, task))
    if chain:
        rows += view.rows(sql, (chain[0], task))
    return Lines(rows, partial(result_line, view))


def result_line(view: View, row: Sequence[Any]) -> Line:
    """What a finished part came to: a row of its title, its origin and the columns of its summary."""
    summary = reports.summary(view, tuple(row[2:]))
    mark = " (stale)" if summary.stale else ""
    head = f"#{summary.note} {lines.inline(row[0], row[1])}{mark}"
    text = lines.inline(summary.result or summary.work, summary.origin)
    return Line(f"{head}: {text}", head, f"task_summary({summary.note})", 90)


def _facts(view: View, reach: Reach) -> Lines:
    if reach.nodes is None:
        return facts(view, "note INDEXED BY note_facts WHERE root = ?", reach.root)
    beneath = reach.listed(lambda node: node.kind == "fact" and node.status == "active")
    return facts(view, "note WHERE id IN (SELECT value FROM json_each(?))", beneath)


def facts(view: View, where: str, value: int | str | None) -> Lines:
    """Active facts, the surest first, then the newest; imported ones as their files have them; untrusted ones quoted."""
    sql = f"""
    SELECT id, title, origin, basis, confidence, substr(body, 1, 2000)
    FROM {where} AND kind = 'fact' AND status = 'active' AND title IS NOT NULL {subjects.of_notes(view)}
    ORDER BY {SUREST} LIMIT {_LISTED}
    """
    return Lines(list(enumerate(view.rows(sql, (value,)))), _fact_line)


def _fact_line(turn: tuple[int, Sequence[Any]]) -> Line:
    """The first few with the beginning of their texts, the others by their titles unless there is room."""
    place, row = turn
    after = f"[{row[4]:.2g}]" if row[4] is not None else ""
    line = lines.record(row[0], row[1], origin=row[2], basis=row[3], after=after, body=row[5])
    return evolve(line, short=None, limit=_TOLD_TOKENS) if place < _TOLD else line
