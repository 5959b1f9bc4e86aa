"""Summaries of finished work, and the tree of notes: `task_summary` and `graph`."""

from __future__ import annotations

from typing import Any, Final

from attrs import frozen

from agentmem.context import lines
from agentmem.context.answer import Answer, nonzero
from agentmem.context.budget import Line, Section, fit
from agentmem.context.tokens import Counter
from agentmem.errors import NotFound
from agentmem.records import links, reports, subjects, tree
from agentmem.records.base import View
from agentmem.records.sql import qualified
from agentmem.types import CLOSED, Link, Summary

_PARTS: Final = 500  # goals and steps walked; the count is exact beyond it
_SUMMARY_TOKENS: Final = 400
_PART_TOKENS: Final = 120


@frozen
class Part:
    """A goal or step beneath the task, with its summary if it has one."""

    id: int
    level: int
    title: str
    status: str
    summary: Summary | None


@frozen
class TaskSummary(Answer):
    """What a task and its parts come to.

    Attributes:
        task: Its id.
        summary: Its own summary, None if there is none yet.
        parts: The goals and steps beneath, depth first, whatever stands between them; `parts_total` in all.
        without: Ids of finished parts that have no summary.
        open_items: Unticked items beneath that count as left.
        text: All of it within the budget; nothing is outside it.
        tokens: Of the text, by the counter.
        omitted: How many lines of each section the budget left out.
    """

    task: int
    summary: Summary | None
    parts: tuple[Part, ...]
    parts_total: int
    without: tuple[int, ...]
    open_items: int
    text: str
    tokens: int
    omitted: dict[str, int]


def task_summary(view: View, task: int, *, budget: int, counter: Counter) -> TaskSummary:
    """The answer of `store.task_summary`."""
    title, status, origin = view.one("SELECT title, status, origin FROM note WHERE id = ?", (task,))
    own = reports.summary_of(view, task)
    parts, total = _parts(view, task)
    left = view.number(
        f"{tree.BENEATH} SELECT coalesce(sum(open_items), 0) FROM beneath JOIN note USING (id)"
        f" WHERE shut = 0 AND status NOT IN ('done', 'failed', 'dropped') {subjects.of_notes(view)}",
        (task,),
    )
    without = tuple(part.id for part in parts if part.summary is None and part.status in CLOSED)
    head = [Line(f"#{task} [{status}] {lines.inline(title, origin)}", limit=120)]
    if own is not None:
        head += summary_lines(own, limit=_SUMMARY_TOKENS)
    shown = [_part_line(part) for part in parts]
    missing = (
        [Line("finished without a summary: " + ", ".join(f"#{part}" for part in without), limit=120)] if without else []
    )
    notes = [Line(f"{lines.counted(left, 'unticked item')} beneath: left(task={task})")] if left else []
    fitted = fit(
        head,
        [
            Section("parts", "parts:", 0.6, shown, total, f"task_summary({task}, budget=…)"),
            Section("gaps", "", 0.2, missing + notes, more=f"left(task={task})"),
        ],
        budget=budget,
        counter=counter,
        head_share=0.4,
        more=f"graph({task})",
    )
    return TaskSummary(
        task, own, tuple(parts), total, without, left, fitted.text, fitted.tokens, nonzero(fitted.omitted)
    )


def _parts(view: View, task: int) -> tuple[list[Part], int]:
    columns = qualified(reports.SUMMARY_COLUMNS, "summary")
    sql = f"""
    {tree.BENEATH}, numbered AS (SELECT id, level, row_number() OVER () AS turn FROM beneath WHERE id <> ?1)
    SELECT note.id, numbered.level, note.title, note.status, note.origin, {columns}
    FROM numbered JOIN note USING (id) LEFT JOIN summary ON summary.note = note.id
    WHERE note.kind IN ('goal', 'step') AND note.title IS NOT NULL {subjects.of_notes(view)} ORDER BY turn
    """
    rows = view.rows(sql, (task,))
    parts = []
    for row in rows[:_PARTS]:
        written = row[5:]
        summary = None
        if written[0] is not None and (written[2] is not None or written[3] is not None):
            summary = reports.summary(view, written)
        parts.append(Part(row[0], row[1], lines.inline(row[2], row[4]), row[3], summary))
    return parts, len(rows)


def summary_lines(summary: Summary, *, limit: int) -> list[Line]:
    """The result and the work of a summary, the result first."""
    found = []
    mark = " (stale: something beneath changed later)" if summary.stale else ""
    if summary.result:
        found.append(
            Line(f"result{mark}: {lines.inline(summary.result, summary.origin)}", ref=f"get({summary.id})", limit=limit)
        )
        mark = ""
    if summary.work:
        found.append(
            Line(f"work{mark}: {lines.inline(summary.work, summary.origin)}", ref=f"get({summary.id})", limit=limit)
        )
    return found


def _part_line(part: Part) -> Line:
    indent = "  " * min(part.level - 1, 8)
    head = f"{indent}#{part.id} [{part.status}] {part.title}"
    if part.summary is None:
        return Line(head, ref=f"get({part.id})")
    text = part.summary.result or part.summary.work
    stale = " (stale)" if part.summary.stale else ""
    whole = f"{head}{stale}: {lines.inline(text, part.summary.origin)}"
    return Line(whole, head, f"task_summary({part.id})", _PART_TOKENS)


@frozen
class Node:
    """One record of a graph, `level` steps from its start. `title` is the text itself, of this `origin`."""

    id: int
    level: int
    kind: str
    status: str
    title: str
    origin: str
    parent: int | None


@frozen
class Graph(Answer):
    """A record with what lies beneath it and the links among these, depth first.

    `after` continues it; None at its end. `text` is the tree drawn within the budget.
    """

    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    after: int | None
    text: str
    tokens: int


def graph(
    view: View, start: int, of: tree.Table, *, depth: int, limit: int, after: int, budget: int, counter: Counter
) -> Graph:
    """The answer of `store.graph`; `after` is the last node of the page before, 0 for the first page."""
    columns = "kind, status, title, parent, origin" if of == "note" else "type, status, key, parent, origin"
    seen = subjects.of_notes(view) if of == "note" else subjects.condition(view, "entity.id")
    sql = f"{tree.beneath(of, bounded=True)} SELECT id, level, {columns} FROM beneath JOIN {of} USING (id)"
    if seen:
        sql += f" WHERE TRUE {seen}"
    rows: list[Any] = []
    waiting = bool(after)
    for row in view.connection.execute(sql, (start, depth)):
        if not waiting:
            rows.append(row)
            if len(rows) > limit:
                break
        waiting = waiting and row[0] != after
    if waiting:
        raise NotFound(f"#{after} is not beneath #{start} any more", next="Begin again without after=")
    nodes = [Node(row[0], row[1], row[2], row[3], row[4] or "", row[6], row[5]) for row in rows[:limit]]
    edges: list[Link] = []
    for node in nodes:
        edges += [edge for edge in links.of_record(view, node.id, kind=None, limit=100) if edge.src == node.id]
    tree_lines = [
        Line(
            f"{'  ' * min(node.level, 16)}#{node.id} {node.kind} [{node.status}] {lines.inline(node.title, node.origin)}"
        )
        for node in nodes
    ]
    drawn = fit(
        [],
        [
            Section("nodes", "", 0.8, tree_lines, more=f"graph({start}, after=…)"),
            Section("links", "", 0.2, [Line(f"#{edge.src} {edge.kind} #{edge.dst}") for edge in edges]),
        ],
        budget=budget,
        counter=counter,
        more=f"graph({start}, limit=…, after=…)",
    )
    return Graph(tuple(nodes), tuple(edges), nodes[-1].id if len(rows) > limit else None, drawn.text, drawn.tokens)
