"""`resume`: everything needed to go on after the context was lost, inside a budget of tokens.

The sections and their shares are those of the table in `docs/concepts.md`. It works without any
checkpoint having been written, and says of each section what it left out and which call fetches it.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from attrs import frozen

from agentmem.context import left as lefts
from agentmem.context import lines, since, task_sections
from agentmem.context.answer import Answer, nonzero
from agentmem.context.budget import Fitted, Line, Section, fit
from agentmem.context.lines import Lines, remembering
from agentmem.context.reach import as_json
from agentmem.context.reach import reach as reach_of
from agentmem.context.tokens import Counter
from agentmem.context.work import Task, count_goals, count_left, in_force, rules
from agentmem.engine.migrations import LEFT
from agentmem.records import claims, reports, subjects
from agentmem.records.base import View
from agentmem.records.sql import qualified
from agentmem.types import UNTRUSTED, Checkpoint

_LISTED: Final = 60  # lines read for a section
_GOALS: Final = 40
_RECENT: Final = 100  # events of notes that tell which trees were written in last


@frozen
class Resume(Answer):
    """The way back into the work.

    Attributes:
        task: The task asked about, None for the project.
        seq: The end of the log when this was read: give it as `since=` the next time.
        text: The answer, within the budget.
        tokens: Of the text, by the counter.
        budget: In tokens.
        shown: How many lines of each section are in the text.
        omitted: How many lines of each section the budget left out.
    """

    task: int | None
    seq: int
    text: str
    tokens: int
    budget: int
    shown: dict[str, int]
    omitted: dict[str, int]


def resume(
    view: View,
    task: int | None,
    *,
    after: int | None,
    budget: int,
    counter: Counter,
    news: tuple[str, ...] = (),
) -> Resume:
    """The answer of `store.resume`."""
    if task is not None:
        subjects.refuse_hidden(view, task, "note")
    counter = remembering(counter)
    seq = view.seq
    head = [Line(line, limit=90) for line in news]  # their texts are escaped already
    if after is not None:
        sections = since.sections(view, task, after)
        head.append(Line(f"changes since {after}, up to {seq}"))
        fitted = fit(head, sections, budget=budget, counter=counter, more=since.call(view, after))
    elif task is None:
        head += _project_head(view, seq)
        sections = _project_sections(view)
        fitted = fit(head, sections, budget=budget, counter=counter, head_share=0.1, more="resume(budget=…)")
    else:
        head += task_sections.head(view, task)
        sections = task_sections.sections(view, task)
        fitted = fit(head, sections, budget=budget, counter=counter, more=f"resume({task}, budget=…)")
    return _answer(task, seq, fitted)


def _answer(task: int | None, seq: int, fitted: Fitted) -> Resume:
    return Resume(task, seq, fitted.text, fitted.tokens, fitted.budget, nonzero(fitted.shown), nonzero(fitted.omitted))


def _project_head(view: View, seq: int) -> list[Line]:
    found = [Line(f"project {lines.inline(view.binding.project)}, at {seq}{lines.unknown(view)}", limit=120)]
    pinned = view.rows(
        "SELECT id, title, origin, basis FROM note INDEXED BY note_pinned"
        " WHERE project = ? AND parent IS NULL AND pinned = 1 AND status <> 'dropped' AND title IS NOT NULL"
        f" {subjects.of_notes(view)} ORDER BY position",
        (view.project,),
    )
    return found + [lines.record(row[0], row[1], origin=row[2], before="pinned:", basis=row[3]) for row in pinned]


def _project_sections(view: View) -> list[Section]:
    where, told = _where(view)
    goals, goals_total = _goals(view, told)
    found = lefts.gather(view, None, listed=_LISTED, goals=False, named=False)
    left, left_total = lefts.work_lines(found, within=True)
    questions = _top(view, "question", "open")
    return [
        Section("where", "where it stands:", 0.2, where, more=_log(view)),
        Section("goals", "goals:", 0.1, goals, goals_total, "notes.list(kind='goal')"),
        Section("left", "left, the next first:", 0.17, left, left_total, "left()"),
        Section("failed", "failed, do not repeat:", 0.15, task_sections.failed_of_project(view),
                task_sections.count(view, "project = ? AND kind = 'attempt' AND status = 'failed'", (view.project,)),
                "notes.list(kind='attempt', status='failed')"),
        Section("questions", "open questions:", 0.07, questions,
                task_sections.count(view, "project = ? AND kind = 'question' AND status = 'open'", (view.project,)),
                "notes.list(kind='question', status='open')"),
        Section("decisions", "decisions in force:", 0.11, _in_force(view, "decision"),
                _active(view, "decision"), "notes.list(kind='decision')"),
        Section("lessons", "lessons:", 0.07, _in_force(view, "lesson"), _active(view, "lesson"), "notes.list(kind='lesson')"),
        task_sections.unconfirmed(view, reach_of(view, None)),
        Section("results", "results:", 0.08, _results(view), more="task_summary(…)"),
        Section("facts", "facts:", 0.05, task_sections.facts(view, "note INDEXED BY note_sure WHERE project = ?", view.project),
                task_sections.count(view, "project = ? AND kind = 'fact' AND status = 'active'",
                (view.project,)), "notes.list(kind='fact')"),
    ]  # fmt: skip


def _log(view: View) -> str:
    """The call that gives all that happened; a view of a subject does not read the log."""
    return "log.read(newest_first=True)" if view.binding.subject is None else ""


def _goals(view: View, told: int | None) -> tuple[Lines, int]:
    """Unfinished goals, those worked on last first, each with what is left of it and its checkpoint if it was not told."""
    late = _recent_roots(view)
    goals = _unfinished_goals(view, late)
    recent = [root for root in late if root in goals]
    order = list(dict.fromkeys([*recent, *goals]))
    order.sort(key=lambda goal: (goals[goal].status != "active" and goal not in recent[:3], goals[goal].priority))
    wanted = [goals[goal] for goal in order[:_GOALS]]
    return Lines(wanted, partial(_goal_line, view, told)), max(count_goals(view), len(wanted))


def _unfinished_goals(view: View, late: list[int]) -> dict[int, Task]:
    """The first active and open ones, those with a priority, those written in last."""
    columns = "id, kind, title, status, origin, tags, parent, open_items"
    goal = f"kind = 'goal' AND title IS NOT NULL {subjects.of_notes(view)}"
    found: dict[int, Task] = {}
    for status in ("active", "open"):
        sql = f"SELECT {columns} FROM note WHERE project = ? AND {goal} AND status = ? ORDER BY id LIMIT {2 * _GOALS}"
        found |= {row[0]: Task(*row) for row in view.rows(sql, (view.project, status))}
    tagged = (
        f"SELECT {columns} FROM note INDEXED BY note_tagged WHERE project = ? AND {LEFT} AND tags <> '[]' AND {goal}"
    )
    found |= {row[0]: Task(*row) for row in view.rows(f"{tagged} AND root = id LIMIT {2 * _GOALS}", (view.project,))}
    named = f"SELECT {columns} FROM note WHERE id IN (SELECT value FROM json_each(?)) AND {LEFT} AND {goal}"
    return found | {row[0]: Task(*row) for row in view.rows(named, (as_json(late),))}


def _goal_line(view: View, told: int | None, task: Task) -> Line:
    tasks, items = count_left(view, task.id)
    remains = [lines.counted(tasks - 1, "step")] if tasks > 1 else []
    remains += [lines.counted(items, "item")] if items else []
    after = f"[left: {', '.join(remains)}]" if remains else "[nothing noted as left]"
    checkpoint = reports.latest_checkpoint(view, task.id)
    if checkpoint is not None and checkpoint.id != told:
        when = lines.day(checkpoint.dated or checkpoint.at)
        after += f" checkpoint {when}: {lines.inline(checkpoint.text, checkpoint.origin)}"
    mark = "[active]" if task.status == "active" else ""
    body = view.row("SELECT substr(body, 1, 1000) FROM note WHERE id = ?", (task.id,))
    text = body[0] if body else None
    return lines.record(task.id, task.title, origin=task.origin, before=mark, after=after, body=text, limit=90)


def _recent_roots(view: View) -> list[int]:
    """The trees written in last, the latest first."""
    sql = f"""
    SELECT note.root FROM (
        SELECT record, seq FROM event WHERE project = ? AND type = 'note' ORDER BY seq DESC LIMIT {_RECENT}
    ) AS latest JOIN note ON note.id = latest.record ORDER BY latest.seq DESC
    """
    return list(dict.fromkeys(root for (root,) in view.rows(sql, (view.project,))))


def _where(view: View) -> tuple[list[Line], int | None]:
    """The project's checkpoint, the latest of its tasks and that one's id, what is in flight."""
    found, told = [], None
    own = reports.latest_checkpoint(view, None)
    if own is not None and own.author == reports.BOOKMARK:
        own = None  # told below
    if own is not None:
        found.append(task_sections.checkpoint_line(own))
    latest = view.rows(
        f"SELECT {reports.CHECKPOINT_COLUMNS} FROM checkpoint INDEXED BY checkpoint_tasks"
        f" WHERE project = ? AND task IS NOT NULL AND text IS NOT NULL {subjects.of_checkpoints(view)}"
        " ORDER BY id DESC LIMIT 20",
        (view.project,),
    )
    if latest:
        newest = [Checkpoint(*row) for row in latest]
        checkpoint = next((one for one in newest if one.origin not in UNTRUSTED), newest[0])
        if own is None or checkpoint.id > own.id:
            found.append(task_sections.checkpoint_line(checkpoint))
            told = checkpoint.id
    found += task_sections.bookmark(view, max(told or 0, own.id if own is not None else 0))
    found += task_sections.in_flight(view, reach_of(view, None))
    found += [task_sections.claim_line(claim) for claim in claims.live(view) if claim.mine]
    return found, told


def _top(view: View, kind: str, status: str) -> Lines:
    sql = f"""
    SELECT id, title, origin, basis, substr(body, 1, 2000) FROM note
    WHERE project = ? AND kind = '{kind}' AND status = '{status}' AND title IS NOT NULL {subjects.of_notes(view)}
    ORDER BY id DESC LIMIT {_LISTED}
    """
    return Lines(view.rows(sql, (view.project,)), task_sections.question_line)


def _in_force(view: View, kind: str) -> Lines:
    """Those that bound the work first, then the newest."""
    top = in_force(view, kind, "note.project = ? AND note.parent IS NULL", (view.project,), _LISTED)
    further = in_force(view, kind, "note.project = ? AND note.parent IS NOT NULL", (view.project,), _LISTED)
    first = rules(view, "note.project = ?", (view.project,), _LISTED) if kind == "decision" else []
    return Lines(
        list(dict.fromkeys([*first, *sorted([*top, *further], key=lambda row: -row[0])])), task_sections.note_line
    )


def _active(view: View, kind: str) -> int:
    """How many are in force, those that something supersedes among them; exact up to a thousand."""
    where = f"project = ? AND kind = '{kind}' AND status = 'active'"
    untrusted = view.number(
        f"SELECT count(*) FROM note INDEXED BY note_untrusted WHERE {where} AND origin IN ('import', 'tool', 'web')"
        f" {subjects.of_notes(view)}",
        (view.project,),
    )
    return max(task_sections.count(view, where, (view.project,), beyond=untrusted) - untrusted, 0)


def _results(view: View) -> Lines:
    """The latest summaries of the project."""
    columns = qualified(reports.SUMMARY_COLUMNS, "summary")
    sql = f"""
    SELECT note.title, note.origin, {columns} FROM summary INDEXED BY summary_revision
    CROSS JOIN note ON note.id = summary.note
    WHERE note.project = ? AND coalesce(work, result) IS NOT NULL {subjects.of_notes(view)}
    ORDER BY summary.revision DESC LIMIT 20
    """
    return Lines(view.rows(sql, (view.project,)), partial(task_sections.result_line, view))
