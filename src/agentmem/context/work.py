"""The queries behind `left` and `resume`: open tasks, items, what blocks what. Each is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.context.reach import Node, Reach, as_json
from agentmem.engine.migrations import ITEMS_CLOSED, ITEMS_LEFT, LEFT, RULES
from agentmem.records import subjects
from agentmem.records.base import View
from agentmem.types import TASK_KINDS, UNFINISHED, UNTRUSTED

BOUND: Final = limits.COUNT_EXACT
CLOSED: Final = ("done", "failed", "dropped")

_BRIEF: Final = "note.id, note.kind, note.title, note.status, note.origin, note.tags, note.parent, note.open_items"


@frozen
class Task:
    """A goal or step that is not finished, in one row."""

    id: int
    kind: str
    title: str
    status: str
    origin: str
    tags: str
    parent: int | None
    open_items: int

    @property
    def priority(self) -> int:
        """0 to 3 by its tag; 2 without one."""
        for number in range(4):
            if f'"p{number}"' in self.tags or f'"P{number}"' in self.tags:
                return number
        return 2


def open_tasks(view: View, reach: Reach, *, limit: int, goals: bool = True) -> list[Task]:
    """Unfinished goals and steps with no closed task above them, the task asked about left out, as they stand.

    Of a project these are not all: the first of each tree, those in work and those with a priority, so that the ones
    to take next are among them.

    Args:
        view: Where to read.
        reach: Of what.
        limit: At most so many of each sort.
        goals: Goals too.
    """
    if reach.nodes is not None:
        wanted = reach.listed(lambda node: node.level > 0 and not node.shut and _unfinished(node))
        sql = (
            f"SELECT {_BRIEF} FROM json_each(?) AS wanted CROSS JOIN note ON note.id = wanted.value ORDER BY wanted.key"
        )
        return [Task(*row) for row in view.rows(f"{sql} LIMIT {BOUND}", (wanted,))]
    if reach.root is not None:
        sql = f"""
        SELECT {_BRIEF}, note.position FROM note INDEXED BY note_left
        WHERE project = ? AND root = ? AND {LEFT} AND note.id <> ? AND title IS NOT NULL {subjects.of_notes(view)}
        ORDER BY note.id LIMIT {BOUND}
        """
        return _as_they_stand(view, view.rows(sql, (reach.project, reach.root, reach.root)))
    seen = subjects.of_notes(view)
    some = f"AND {LEFT} AND title IS NOT NULL {seen}" + ("" if goals else " AND kind = 'step'")
    of = f"SELECT {_BRIEF}, note.root FROM note INDEXED BY"
    searches = [
        f"{of} note_left WHERE project = ? {some} ORDER BY root, note.id",
        f"{of} note_tagged WHERE project = ? {some} AND tags <> '[]' ORDER BY root, note.id",
        f"{of} note_flight WHERE project = ? AND kind = 'step' AND shut = 0 AND status = 'active' {_FLIGHT} {seen}"
        " ORDER BY note.id",
    ]
    if goals:
        active = "project = ? AND kind = 'goal' AND status = 'active'"
        searches.append(f"{of} note_project WHERE {active} {seen} ORDER BY note.id")
    rows = {row[0]: row for sql in searches for row in view.rows(f"{sql} LIMIT {limit}", (reach.project,))}
    return [Task(*row[:-1]) for row in sorted(rows.values(), key=lambda row: (row[-1], row[0]))]


_FLIGHT: Final = "AND kind IN ('attempt', 'step') AND title IS NOT NULL"


def _unfinished(node: Node) -> bool:
    return node.kind in TASK_KINDS and node.status in UNFINISHED


def _as_they_stand(view: View, rows: Sequence[tuple[Any, ...]]) -> list[Task]:
    """Tasks of one tree, rows of `_BRIEF` and position, in the order of the tree."""
    places: dict[int, tuple[int | None, float]] = {row[0]: (row[6], row[8]) for row in rows}
    missing = {parent for parent, _ in places.values() if parent is not None} - places.keys()
    while missing:
        sql = "SELECT id, parent, position FROM note WHERE id IN (SELECT value FROM json_each(?))"
        fetched = {note: (parent, place) for note, parent, place in view.rows(sql, (as_json(missing),))}
        places |= fetched
        missing = {parent for parent, _ in fetched.values() if parent is not None} - places.keys()
    paths: dict[int, tuple[tuple[float, int], ...]] = {}

    def path(note: int) -> tuple[tuple[float, int], ...]:
        if note not in paths:
            parent, place = places[note]
            paths[note] = (*(path(parent) if parent in places else ()), (place, note))
        return paths[note]

    return [Task(*row[:8]) for row in sorted(rows, key=lambda row: path(row[0]))]


def count_tasks(view: View, reach: Reach, *, goals: bool = True) -> int:
    """How many unfinished goals and steps there are, the task asked about left out."""
    if reach.nodes is not None:
        return sum(node.level > 0 and not node.shut and _unfinished(node) for node in reach.nodes)
    where, values = reach.condition()
    row = view.row(f"SELECT count(*) FROM note INDEXED BY note_left WHERE {where} AND {LEFT}", values)
    own = None
    if reach.task is not None:
        own = view.row(f"SELECT 1 FROM note WHERE id = ? AND {LEFT}", (reach.task,))
    total = (row[0] if row else 0) - (own is not None)
    return total if goals else total - count_goals(view)


def count_left(view: View, root: int) -> tuple[int, int]:
    """Of one tree: unfinished goals and steps, unticked items."""
    tasks = view.row(
        f"SELECT count(*) FROM note INDEXED BY note_left WHERE project = ? AND root = ? AND {LEFT} {subjects.of_notes(view)}",
        (view.project, root),
    )
    return (tasks[0] if tasks else 0), _count_items(view, Reach(view.project, root, root, None, view.binding.subject))


def open_items(view: View, reach: Reach, *, limit: int) -> tuple[list[tuple[int, int, str, str]], int]:
    """Unticked items that count as left: note, number, text, origin; and how many there are in all."""
    if reach.nodes is None:
        where, values = reach.condition()
        sql = f"""
        SELECT id FROM note INDEXED BY note_items WHERE {where} AND {ITEMS_LEFT} ORDER BY root, position, id LIMIT {limit}
        """
        return items_of(view, [note for (note,) in view.rows(sql, values)], limit), _count_items(view, reach)
    open_ones = reach.listed(lambda node: not node.shut and node.status not in CLOSED)
    found = view.rows(f"{_ITEMS} LIMIT ?", (open_ones, limit))
    return found, len(found) if len(found) < limit else sum(number for _, number in _unticked(view, open_ones))


def _count_items(view: View, reach: Reach) -> int:
    where, values = reach.condition()
    row = view.row(
        f"SELECT coalesce(sum(open_items), 0) FROM note INDEXED BY note_items WHERE {where} AND {ITEMS_LEFT}", values
    )
    return row[0] if row else 0


def _unticked(view: View, notes: str) -> list[tuple[int, int]]:
    """Of these notes, a JSON array, those with unticked items, and how many."""
    sql = """
    SELECT item.note, count(*) FROM json_each(?) AS wanted CROSS JOIN item INDEXED BY item_open ON item.note = wanted.value
    WHERE item.done = 0 AND item.removed = 0 GROUP BY item.note
    """
    return [(note, number) for note, number in view.rows(sql, (notes,))]


def texts_of(view: View, notes: Sequence[int]) -> dict[int, str]:
    """The beginnings of the bodies of a few notes, those that have one."""
    sql = f"SELECT id, substr(body, 1, 1000) FROM note WHERE id IN ({', '.join('?' * len(notes))}) AND body <> ''"
    return dict(view.rows(sql, notes)) if notes else {}


def items_of(view: View, notes: Sequence[int], limit: int) -> list[tuple[int, int, str, str]]:
    """The unticked items of these notes, in the order of the notes: note, number, text, origin."""
    return view.rows(f"{_ITEMS} LIMIT ?", (as_json(notes), limit)) if notes else []


_ITEMS: Final = """
SELECT item.note, item.number, item.text, item.origin
FROM json_each(?) AS wanted CROSS JOIN item INDEXED BY item_open ON item.note = wanted.value
WHERE item.done = 0 AND item.removed = 0 ORDER BY wanted.key, item.position, item.id
"""


def count_goals(view: View) -> int:
    """How many unfinished goals the project has."""
    sql = f"""
    SELECT count(*) FROM note
    WHERE project = ? AND kind = 'goal' AND status IN ('open', 'active') {subjects.of_notes(view)}
    """
    row = view.row(sql, (view.project,))
    return row[0] if row else 0


def count_closed(view: View, reach: Reach) -> int:
    """How many unticked items are in or beneath closed tasks: they do not count as left."""
    if reach.nodes is not None:
        return sum(
            number for _, number in _unticked(view, reach.listed(lambda node: node.shut or node.status in CLOSED))
        )
    where, values = reach.condition()
    row = view.row(
        f"SELECT coalesce(sum(open_items), 0) FROM note INDEXED BY note_closed WHERE {where} AND {ITEMS_CLOSED}", values
    )
    return row[0] if row else 0


def closed_unticked(view: View, reach: Reach) -> list[tuple[int, str, str, int]]:
    """Closed tasks with unticked items in or beneath them: the uppermost of each, title, origin, how many."""
    totals = by_uppermost_closed(view, items_closed(view, reach))
    sql = f"SELECT id, title, origin FROM note WHERE id IN (SELECT value FROM json_each(?)) {subjects.of_notes(view)}"
    named = [(top, title or "", origin, totals[top]) for top, title, origin in view.rows(sql, (as_json(totals),))]
    return sorted(named, key=lambda one: (-one[3], one[0]))


# Where the whole tree is over, its root is the uppermost closed task of them all.
_TOLD: Final = "iif(top.kind IN ('goal', 'step') AND top.status IN ('done', 'failed', 'dropped'), top.id, note.id)"


def items_closed(view: View, reach: Reach) -> list[tuple[int, int]]:
    """Unticked items in or beneath closed tasks, counted by their note or by the root of a tree that is over."""
    if reach.nodes is not None:
        return _unticked(view, reach.listed(lambda node: node.shut or node.status in CLOSED))
    where, values = reach.condition("note")
    sql = f"""
    SELECT {_TOLD} AS told, sum(note.open_items)
    FROM note INDEXED BY note_closed JOIN note AS top ON top.id = note.root
    WHERE {where} AND note.open_items > 0 AND (note.shut = 1 OR note.status IN ('done', 'failed', 'dropped'))
    GROUP BY told LIMIT {BOUND}
    """
    return [(note, number) for note, number in view.rows(sql, values)]


def tasks_shut(view: View, reach: Reach) -> list[tuple[int, int]]:
    """Unfinished goals and steps beneath closed tasks, counted as `items_closed` counts items."""
    if reach.nodes is not None:
        return [(node.id, 1) for node in reach.nodes if node.shut and _unfinished(node)]
    where, values = reach.condition("note")
    sql = f"""
    SELECT {_TOLD} AS told, count(*)
    FROM note INDEXED BY note_shut JOIN note AS top ON top.id = note.root
    WHERE {where} AND note.shut = 1 AND note.kind IN ('goal', 'step') AND note.status IN ('open', 'active')
    GROUP BY told LIMIT {BOUND}
    """
    return [(note, number) for note, number in view.rows(sql, values)]


def by_uppermost_closed(view: View, counted: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Numbers by note added up for the uppermost closed task at or above each."""
    tops = _uppermost_closed(view, [note for note, _ in counted])
    totals: dict[int, int] = {}
    for note, number in counted:
        totals[tops[note]] = totals.get(tops[note], 0) + number
    return totals


def _uppermost_closed(view: View, notes: Sequence[int]) -> dict[int, int]:
    """For each note the uppermost closed task at or above it; the note itself where there is none."""
    known: dict[int, tuple[int | None, bool]] = {}
    missing = set(notes)
    while missing:
        sql = "SELECT id, parent, kind, status FROM note WHERE id IN (SELECT value FROM json_each(?))"
        rows = view.rows(sql, (as_json(missing),))
        known |= {row[0]: (row[1], row[2] in TASK_KINDS and row[3] not in UNFINISHED) for row in rows}
        missing = {row[1] for row in rows if row[1] is not None} - known.keys()
    tops = {}
    for note in notes:
        top, above = note, known.get(note, (None, False))[0]
        while above in known:
            parent, over = known[above]
            if over:
                top = above
            above = parent
        tops[note] = top
    return tops


# Untrusted text takes the place of untrusted text only: neither its note nor its link overrules a trusted one.
# Of one subject a decision is in force that was superseded for another.
_SUPERSEDED: Final = """
EXISTS (SELECT 1 FROM link JOIN note AS heir ON heir.id = link.src
        WHERE link.dst = note.id AND link.kind = 'supersedes' AND heir.status <> 'dropped'
          AND (note.origin IN ('import', 'tool', 'web')
               OR (heir.origin NOT IN ('import', 'tool', 'web') AND link.origin NOT IN ('import', 'tool', 'web')))
          {seen})
"""


def _superseded(view: View) -> str:
    return _SUPERSEDED.format(seen=subjects.of_notes(view, "heir"))


def blockers(view: View, notes: Iterable[int]) -> dict[int, list[int]]:
    """For each note that waits: what it depends on that is not settled.

    Settled are done, dropped, answered, worked and superseded ones, and facts, decisions and lessons at once.
    """
    sql = f"""
    SELECT link.src, link.dst FROM json_each(?) AS wanted
    CROSS JOIN link ON link.src = wanted.value AND link.kind = 'depends_on'
    CROSS JOIN note ON note.id = link.dst
    WHERE note.kind NOT IN ('fact', 'decision', 'lesson') AND note.status NOT IN ('done', 'dropped', 'worked')
      AND NOT {_superseded(view)} {subjects.of_notes(view)}
    """
    found: dict[int, list[int]] = {}
    for waiting, blocking in view.rows(sql, (as_json(notes),)):
        found.setdefault(waiting, []).append(blocking)
    return found


def next_first(view: View, tasks: Sequence[Task], wanted: int) -> tuple[list[Task], dict[int, list[int]]]:
    """The tasks to take next, and what each that waits is waiting for.

    Active before open, by priority, as they stand; what is blocked, and what only holds others, last. Looked at are so
    many of the tasks that the first `wanted` are surely found.
    """
    ordered = sorted(tasks, key=lambda task: (task.status != "active", task.priority))
    blocked: dict[int, list[int]] = {}
    free: list[Task] = []
    holding: list[Task] = []
    waiting: list[tuple[bool, Task]] = []
    for start in range(0, len(ordered), wanted):
        part = ordered[start : start + wanted]
        ids = as_json(task.id for task in part)
        blocked |= blockers(view, [task.id for task in part])
        among = "parent IN (SELECT value FROM json_each(?))"
        sql = (
            f"SELECT DISTINCT parent FROM note INDEXED BY note_holds WHERE {among} AND {LEFT} {subjects.of_notes(view)}"
        )
        holds = {parent for (parent,) in view.rows(sql, (ids,))}
        for task in part:
            holder = task.id in holds and not task.open_items
            if task.id in blocked:
                waiting.append((holder, task))
            else:
                (holding if holder else free).append(task)
        if len(free) >= wanted:
            break
    waiting.sort(key=lambda pair: pair[0])
    return [*free, *holding, *(task for _, task in waiting)][:wanted], blocked


NOTE_LINE: Final = (
    "note.id, note.title, note.origin, note.basis, note.why, note.parent, note.entity, substr(note.body, 1, 2000)"
)


def rules(view: View, where: str, values: Sequence[Any], limit: int) -> list[tuple[Any, ...]]:
    """Decisions in force that are tagged `scope`: what the work may touch. Rows of `NOTE_LINE`, oldest first."""
    sql = f"""
    SELECT {NOTE_LINE} FROM note INDEXED BY note_rules
    WHERE {where} AND {RULES} AND note.title IS NOT NULL AND note.origin NOT IN ('import', 'tool', 'web')
      AND NOT {_superseded(view)} {subjects.of_notes(view)}
    ORDER BY note.id LIMIT {limit}
    """
    return view.rows(sql, values)


def in_force(view: View, kind: str, where: str, values: Sequence[Any], limit: int) -> list[tuple[Any, ...]]:
    """Active notes of a kind that nothing supersedes, trusted ones only: rows of `NOTE_LINE`, newest first."""
    untrusted = ", ".join(f"'{origin}'" for origin in sorted(UNTRUSTED))
    sql = f"""
    SELECT {NOTE_LINE} FROM note
    WHERE {where} AND note.kind = '{kind}' AND note.status = 'active' AND note.title IS NOT NULL
      AND note.origin NOT IN ({untrusted}) AND NOT {_superseded(view)} {subjects.of_notes(view)}
    ORDER BY note.id DESC LIMIT {limit}
    """
    return view.rows(sql, values)
