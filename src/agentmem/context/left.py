"""`left`: what is not done, computed as scope minus marks, plus open steps and items; never narrated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from attrs import evolve, frozen

from agentmem.context import coverage, lines, work
from agentmem.context.answer import Answer, nonzero
from agentmem.context.budget import Fitted, Line, Section, fit
from agentmem.context.coverage import CheckLeft, Missing
from agentmem.context.lines import Lines, remembering
from agentmem.context.reach import Reach
from agentmem.context.reach import reach as reach_of
from agentmem.context.tokens import Counter
from agentmem.log.canonical import plain
from agentmem.records import note_rows, subjects
from agentmem.records.base import View
from agentmem.records.missing import missing
from agentmem.types import Scope

_LISTED: Final = 200  # entries read for each list; the totals are exact beyond it
_TOLD: Final = 3  # steps of which more than the title is told
_TOLD_TOKENS: Final = 100
_CLOSED_SCOPES: Final = 10  # the latest closed tasks whose scopes are looked at again
_SCOPES: Final = 30  # scopes computed in one answer


@frozen
class Step:
    """An unfinished goal or step. `blocked_by` names what it waits for."""

    id: int
    kind: str
    title: str
    origin: str
    status: str
    open_items: int
    blocked_by: tuple[int, ...]


@frozen
class OpenItem:
    """An unticked checklist item; `ref` names it."""

    ref: str
    text: str
    origin: str


@frozen
class ScopeLeft:
    """What is left of the scope of one task."""

    task: int
    title: str
    origin: str
    scope: Scope
    checks: tuple[CheckLeft, ...]
    missing: tuple[Missing, ...]


@frozen
class Left(Answer):
    """What is not done.

    Attributes:
        task: The task asked about, None for the project.
        steps: Unfinished goals and steps, the next one first; `steps_total` of them in all.
        items: Unticked checklist items; `items_total` of them in all.
        scopes: The coverage of each scope of an unfinished task.
        expected: The coverage of the declared checks, where no task was asked about.
        closed: Closed tasks with unticked items beneath, which do not count as left: id, title, how many.
        text: All of it within the budget.
        tokens: Of the text, by the counter.
        omitted: How many lines of each section the budget left out.
    """

    task: int | None
    steps: tuple[Step, ...]
    steps_total: int
    items: tuple[OpenItem, ...]
    items_total: int
    scopes: tuple[ScopeLeft, ...]
    expected: tuple[CheckLeft, ...]
    closed: tuple[tuple[int, str, int], ...]
    text: str
    tokens: int
    omitted: dict[str, int]

    @property
    def marks_total(self) -> int:
        """How many marks are missing: over scopes, or over what is expected where there is no scope."""
        found = [check for scope in self.scopes for check in scope.checks] or list(self.expected)
        return sum(check.left for check in found)

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.steps_total or self.items_total or self.marks_total)

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return super().to_dict() | {"marks_total": self.marks_total}


@frozen
class Gathered:
    """What `left` rests on, before it is fitted: also a section of `resume`."""

    steps: tuple[work.Task, ...]
    steps_total: int
    blocked: dict[int, list[int]]
    items: tuple[tuple[int, int, str, str], ...]
    items_total: int
    scopes: tuple[ScopeLeft, ...]
    expected: tuple[CheckLeft, ...]
    closed: tuple[tuple[int, str, str, int], ...]
    closed_total: int
    texts: dict[int, str]
    unscoped: tuple[tuple[int, str, str, int], ...]


def gather(
    view: View,
    task: int | None,
    *,
    type: str | None = None,
    listed: int = _LISTED,
    goals: bool = True,
    named: bool = True,
    reach: Reach | None = None,
) -> Gathered:
    """Read what is left of a task, or of the project.

    Args:
        view: Where to read.
        task: The task; the project if None.
        type: Only the coverage of this type.
        listed: At most so many entries in each list.
        goals: False without the project's goals, where these are told elsewhere.
        named: False without the names of closed tasks with unticked items, where their number is enough.
        reach: What `task` reaches, where it is known.
    """
    if task is not None:
        subjects.refuse_hidden(view, task, "note")
    reach = reach_of(view, task) if reach is None else reach
    tasks = work.open_tasks(view, reach, limit=min(max(4 * listed, 200), work.BOUND), goals=goals)
    steps, blocked = work.next_first(view, tasks, listed)
    items = work.items_of(view, [step.id for step in steps if step.open_items], listed)
    further, items_total = work.open_items(view, reach, limit=listed)
    items = list(dict.fromkeys([*items, *further]))[:listed]
    return Gathered(
        tuple(steps),
        max(work.count_tasks(view, reach, goals=goals), len(steps)),
        blocked,
        tuple(items),
        items_total,
        _scopes(view, reach, type, listed),
        coverage.of_project(view, type) if task is None else (),
        tuple(work.closed_unticked(view, reach)) if named else (),
        work.count_closed(view, reach),
        work.texts_of(view, [step.id for step in steps[:_TOLD]]),
        _closed_scopes(view, reach),
    )


def _closed_scopes(view: View, reach: Reach) -> tuple[tuple[int, str, str, int], ...]:
    """Closed tasks whose scope still lacks marks: id, title, origin, how many. They do not count as left."""
    where, values = reach.condition()
    sql = f"""
    SELECT id, title, origin, scope FROM note INDEXED BY note_scope
    WHERE {where} AND scope IS NOT NULL AND (shut = 1 OR status IN ('done', 'failed', 'dropped')) AND title IS NOT NULL
    ORDER BY id DESC LIMIT {_CLOSED_SCOPES}
    """
    inside = None if reach.nodes is None else {node.id for node in reach.nodes}
    found = []
    for note, title, origin, scope in view.rows(sql, values):
        if inside is None or note in inside:
            lacking = missing(view, note_rows.scope_of(plain(scope)))
            if lacking:
                found.append((note, title, origin, lacking))
    return tuple(found)


def _scopes(view: View, reach: Reach, type: str | None, listed: int) -> tuple[ScopeLeft, ...]:
    """The coverage of the scopes of unfinished tasks: of the task and those beneath it, or of the project."""
    where, values = reach.condition()
    sql = f"""
    SELECT id, title, origin, scope FROM note INDEXED BY note_scope
    WHERE {where} AND scope IS NOT NULL AND shut = 0 AND kind IN ('goal', 'step')
      AND (status IN ('open', 'active') OR id = ?) AND title IS NOT NULL ORDER BY id
    """
    inside = None if reach.nodes is None else {node.id for node in reach.nodes}
    rows = [row for row in view.rows(sql, (*values, reach.task)) if inside is None or row[0] in inside]
    found = []
    for note, title, origin, scope in rows[:_SCOPES]:
        covers = note_rows.scope_of(plain(scope))
        if type is None or covers.type == type:
            checks = coverage.of_scope(view, covers, origin)
            lacking = _missing(view, checks, listed)
            found.append(ScopeLeft(note, title, origin, covers, checks, lacking))
    return tuple(found)


def _missing(view: View, checks: tuple[CheckLeft, ...], listed: int) -> tuple[Missing, ...]:
    """The first entities that lack a check, for each condition of the coverage."""
    by_condition: dict[str | None, list[CheckLeft]] = {}
    for check in checks:
        if check.left:
            by_condition.setdefault(check.where, []).append(check)
    found: list[Missing] = []
    for group in by_condition.values():
        found += coverage.missing(view, group, listed - len(found)) if listed > len(found) else ()
    return tuple(found)


def left(
    view: View,
    task: int | None,
    *,
    type: str | None,
    limit: int,
    budget: int,
    counter: Counter,
    news: tuple[str, ...] = (),
) -> Left:
    """The answer of `store.left`."""
    found = gather(view, task, type=type, listed=limit)
    head = [Line(line, limit=90) for line in news]  # their texts are escaped already
    head += [Line(_headline(view, task, found), limit=120)]
    fitted = fit(head, sections(found, task), budget=budget, counter=remembering(counter), more=call(task))
    return _answer(found, task, fitted)


def call(task: int | None) -> str:
    """The call that gives it all."""
    return "left()" if task is None else f"left(task={task})"


def _headline(view: View, task: int | None, found: Gathered) -> str:
    parts = []
    if found.steps_total:
        parts.append(lines.counted(found.steps_total, "step"))
    if found.items_total:
        parts.append(lines.counted(found.items_total, "item"))
    checks = [check for scope in found.scopes for check in scope.checks] or list(found.expected)
    if missing := sum(check.left for check in checks):
        parts.append(f"{lines.counted(missing, 'mark')} of {sum(check.total for check in checks)}")
    of = f"project {lines.inline(view.binding.project)}"
    if task is not None:
        row = view.row("SELECT title, origin FROM note WHERE id = ?", (task,))
        of = f"#{task} {lines.inline(row[0], row[1])}" if row else f"#{task}"
    unknown = lines.unknown(view) if task is None else ""
    return f"left of {of}: {', '.join(parts) if parts else 'nothing'}{unknown}"


def sections(found: Gathered, task: int | None, *, share: float = 1.0) -> list[Section]:
    """Counts by type and check first, then steps and items, the next first."""
    counts = [count_line(check, scope.task) for scope in found.scopes for check in scope.checks]
    if not counts:
        counts = [count_line(check, None) for check in found.expected]
    steps = Lines(found.steps, lambda step: step_line(step, found.blocked.get(step.id, ()), within=task is None))
    items = Lines(found.items, item_line)
    lacking = Lines([one for scope in found.scopes for one in scope.missing], missing_line)
    closed = [
        *(Line(f"#{one[0]} {lines.inline(one[1], one[2])}: closed with {one[3]} unticked") for one in found.closed),
        *map(unscoped_line, found.unscoped),
    ]
    more = call(task)
    return [
        Section("coverage", "coverage:", 0.2 * share, counts, more=more),
        Section("steps", "steps, the next first:", 0.3 * share, steps, found.steps_total, more),
        Section("items", "items:", 0.25 * share, items, found.items_total, more),
        Section("entities", "entities:", 0.2 * share, lacking, more=more),
        Section("closed", "not counted:", 0.05 * share, closed, more=more),
    ]


def work_lines(found: Gathered, *, within: bool = False) -> tuple[Lines, int]:
    """One list for a section of `resume`: coverage, then each step, the next first, with its items right beneath it.

    Returns:
        The lines, and how many there would be of all steps and items.
    """
    checks: list[tuple[CheckLeft, int | None]] = [
        (check, scope.task) for scope in found.scopes for check in scope.checks
    ]
    checks = checks or [(check, None) for check in found.expected]
    counts = [partial(count_line, check, task) for check, task in checks if check.left]
    listed = {step.id for step in found.steps}
    of_step: dict[int, list[Callable[[], Line]]] = {}
    others: list[Callable[[], Line]] = []
    for row in found.items:
        (of_step.setdefault(row[0], []) if row[0] in listed else others).append(partial(item_line, row))
    # A goal or step that only holds others is told by them; what can be done comes first.
    holding = {step.parent for step in found.steps} - of_step.keys()
    listing: list[Callable[[], Line]] = []
    for step in sorted(found.steps, key=lambda step: step.id in holding):
        body = found.texts.get(step.id)
        listing.append(partial(step_line, step, found.blocked.get(step.id, ()), within=within, body=body))
        listing += of_step.get(step.id, ())
    lacking = [partial(missing_line, one) for scope in found.scopes for one in scope.missing]
    last: list[Callable[[], Line]] = [partial(_closed_line, found.closed_total)] if found.closed_total else []
    last += [partial(unscoped_line, row) for row in found.unscoped]
    total = len(counts) + found.steps_total + found.items_total + len(lacking) + len(last)
    return Lines([*counts, *listing, *others, *lacking, *last], lambda make: make()), total


def unscoped_line(row: tuple[int, str, str, int]) -> Line:
    """A closed task whose scope lacks marks."""
    return Line(
        f"#{row[0]} {lines.inline(row[1], row[2])}: closed with {lines.counted(row[3], 'mark')} of its scope missing"
    )


def _closed_line(number: int) -> Line:
    return Line(f"closed with {lines.counted(number, 'unticked item')}, not counted as left")


def item_line(row: tuple[int, int, str, str]) -> Line:
    """An unticked item: a row of note, number, text, origin."""
    return Line(f"{row[0]}.{row[1]} {lines.inline(row[2], row[3])}", ref=f"get({row[0]}.{row[1]})")


def missing_line(one: Missing) -> Line:
    """`host:db1 lacks tls, login`."""
    return Line(f"{one.type}:{lines.inline(one.key, one.origin)} lacks {', '.join(one.checks)}")


def count_line(check: CheckLeft, task: int | None) -> Line:
    """`endpoint × authz: 12 of 200 left, 3 failed`."""
    # An imported check is expected where the entity says that it needs it: its name says that already.
    told = check.where is None or check.where == f"attrs.needs contains '{check.check}'"
    which = "" if told else f" where {lines.inline(check.where, check.origin)}"
    failed = f", {check.failed} failed" if check.failed else ""
    of = f"#{task} " if task is not None else ""
    return Line(f"{of}{check.type}{which} × {check.check}: {check.left} of {check.total} left{failed}")


def step_line(step: work.Task, blocked_by: Any = (), *, within: bool = False, body: str | None = None) -> Line:
    """`#12 [active] title (3 items, in #2) blocked by #9`; `within` names the note it stands beneath."""
    known = [lines.counted(step.open_items, "item")] if step.open_items else []
    if within and step.parent is not None:
        known.append(f"in #{step.parent}")
    after = f"({', '.join(known)})" if known else ""
    if blocked_by:
        after += f"{' ' if after else ''}blocked by {', '.join(f'#{other}' for other in blocked_by)}"
    marks = [
        mark
        for mark in (step.status if step.status == "active" else "", f"p{step.priority}" if step.priority != 2 else "")
        if mark
    ]
    before = f"[{' '.join(marks)}]" if marks else ""
    line = lines.record(step.id, step.title, origin=step.origin, before=before, after=after, body=body)
    return evolve(line, short=None, limit=_TOLD_TOKENS) if body else line


def _answer(found: Gathered, task: int | None, fitted: Fitted) -> Left:
    steps = tuple(
        Step(one.id, one.kind, one.title, one.origin, one.status, one.open_items, tuple(found.blocked.get(one.id, ())))
        for one in found.steps
    )
    return Left(
        task,
        steps,
        found.steps_total,
        tuple(OpenItem(f"{note}.{number}", text, origin) for note, number, text, origin in found.items),
        found.items_total,
        found.scopes,
        found.expected,
        tuple((top, title, number) for top, title, _, number in found.closed),
        fitted.text,
        fitted.tokens,
        nonzero(fitted.omitted),
    )


__all__ = ["CheckLeft", "Gathered", "Left", "Missing", "OpenItem", "ScopeLeft", "Step", "gather", "left"]
