"""The queries behind `left` and `resume`: open tasks, items, what blocks what. Each is bounded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.records import tree
from agentmem.records.base import View
from agentmem.types import TASK_KINDS, UNFINISHED, UNTRUSTED

BOUND: Final = limits.COUNT_EXACT

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


def open_tasks(view: View, root: int | None, *, beneath: int | None = None, limit: int = BOUND) -> list[Task]:
    """Unfinished goals and steps with no closed task above them.

    Args:
        view: Where to read.
        root: Those of one tree; of the whole project if None.
        beneath: Only those beneath this note, itself left out, in the order of the tree.
        limit: At most so many.
    """
    if beneath is not None:
        sql = f"""
        {tree.BENEATH}, numbered AS (SELECT id, row_number() OVER () AS turn FROM beneath WHERE id <> ?1 LIMIT {BOUND * 5})
        SELECT {_BRIEF} FROM numbered JOIN note USING (id)
        WHERE note.shut = 0 AND kind IN ('goal', 'step') AND status IN ('open', 'active') AND title IS NOT NULL
        ORDER BY turn LIMIT {limit}
        """
        return [Task(*row) for row in view.rows(sql, (beneath,))]
    sql = f"""
    SELECT {_BRIEF} FROM note
    WHERE project = ? {"" if root is None else "AND root = ?"}
      AND shut = 0 AND kind IN ('goal', 'step') AND status IN ('open', 'active') AND title IS NOT NULL
    ORDER BY {"root, id" if root is None else "id"} LIMIT {limit}
    """
    return [Task(*row) for row in view.rows(sql, (view.project,) if root is None else (view.project, root))]


def count_open(view: View) -> dict[int, tuple[int, int]]:
    """For each tree of the project with anything left: unfinished goals and steps, unticked items."""
    tasks = """
    SELECT root, count(*) FROM note
    WHERE project = ? AND shut = 0 AND kind IN ('goal', 'step') AND status IN ('open', 'active') GROUP BY root
    """
    items = """
    SELECT root, sum(open_items) FROM note
    WHERE project = ? AND shut = 0 AND open_items > 0 AND status NOT IN ('done', 'failed', 'dropped') GROUP BY root
    """
    found: dict[int, tuple[int, int]] = {root: (number, 0) for root, number in view.rows(tasks, (view.project,))}
    for root, number in view.rows(items, (view.project,)):
        found[root] = (found.get(root, (0, 0))[0], number)
    return found


def open_items(
    view: View, *, root: int | None = None, beneath: int | None = None, limit: int = BOUND
) -> tuple[list[tuple[int, int, str, str]], int]:
    """Unticked items that count as left: note, number, text, origin; and how many there are in all."""
    counts = "note.shut = 0 AND note.open_items > 0 AND note.status NOT IN ('done', 'failed', 'dropped')"
    if beneath is not None:
        prefix, where, values = tree.BENEATH, "note.id IN (SELECT id FROM beneath)", [beneath]
    elif root is not None:
        prefix, where, values = "", "note.project = ? AND note.root = ?", [view.project, root]
    else:
        prefix, where, values = "", "note.project = ?", [view.project]
    total = view.row(f"{prefix} SELECT coalesce(sum(open_items), 0) FROM note WHERE {where} AND {counts}", values)
    sql = f"""
    {prefix} SELECT item.note, item.number, item.text, item.origin
    FROM note JOIN item ON item.note = note.id
    WHERE {where} AND {counts} AND item.done = 0 AND item.removed = 0
    ORDER BY note.root, note.position, note.id, item.position LIMIT {limit}
    """
    return view.rows(sql, values), (total[0] if total else 0)


def items_of(view: View, notes: Sequence[int], limit: int) -> list[tuple[int, int, str, str]]:
    """The unticked items of these notes, in the order of the notes: note, number, text, origin."""
    sql = """
    SELECT note, number, text, origin FROM item
    WHERE note = ? AND done = 0 AND removed = 0 ORDER BY position, id LIMIT ?
    """
    found: list[tuple[int, int, str, str]] = []
    for note in notes:
        if len(found) >= limit:
            break
        found += view.rows(sql, (note, limit - len(found)))
    return found


def count_goals(view: View) -> int:
    """How many unfinished goals the project has."""
    sql = "SELECT count(*) FROM note WHERE project = ? AND kind = 'goal' AND status IN ('open', 'active') AND title IS NOT NULL"
    row = view.row(sql, (view.project,))
    return row[0] if row else 0


def closed_unticked(
    view: View, *, root: int | None = None, beneath: int | None = None
) -> list[tuple[int, str, str, int]]:
    """Closed tasks with unticked items in or beneath them: the uppermost of each, title, origin, how many."""
    if beneath is not None:
        where, values = f"note.id IN ({tree.BENEATH} SELECT id FROM beneath)", [beneath]
    elif root is not None:
        where, values = "note.project = ? AND note.root = ?", [view.project, root]
    else:
        where, values = "note.project = ?", [view.project]
    sql = f"""
    SELECT note.id, note.open_items, note.root FROM note
    WHERE {where} AND note.open_items > 0 AND (note.shut = 1 OR note.status IN ('done', 'failed', 'dropped'))
    LIMIT {BOUND}
    """
    totals: dict[int, int] = {}
    for found, number, _ in view.rows(sql, values):
        top = _uppermost_closed(view, found)
        totals[top] = totals.get(top, 0) + number
    named = []
    for top, number in totals.items():
        row = view.row("SELECT title, origin FROM note WHERE id = ?", (top,))
        if row is not None:
            named.append((top, row[0] or "", row[1], number))
    return sorted(named, key=lambda one: -one[3])


def _uppermost_closed(view: View, found: int) -> int:
    top, note = found, found
    for above in tree.ancestors(view, note):
        row = view.row("SELECT kind, status FROM note WHERE id = ?", (above,))
        if row is not None and row[0] in TASK_KINDS and row[1] not in UNFINISHED:
            top = above
    return top


def blockers(view: View, notes: Iterable[int]) -> dict[int, list[int]]:
    """For each note that waits: what it depends on that is not settled.

    Settled are done, dropped, answered, worked and superseded ones, and facts, decisions and lessons at once.
    """
    wanted = list(notes)
    found: dict[int, list[int]] = {}
    for start in range(0, len(wanted), 500):
        part = wanted[start : start + 500]
        sql = f"""
        SELECT link.src, link.dst FROM link JOIN note ON note.id = link.dst
        WHERE link.kind = 'depends_on' AND link.src IN ({", ".join("?" * len(part))})
          AND note.kind NOT IN ('fact', 'decision', 'lesson') AND note.status NOT IN ('done', 'dropped', 'worked')
          AND NOT EXISTS (SELECT 1 FROM link AS newer JOIN note AS heir ON heir.id = newer.src
                          WHERE newer.dst = note.id AND newer.kind = 'supersedes' AND heir.status <> 'dropped')
        """
        for waiting, blocking in view.rows(sql, part):
            found.setdefault(waiting, []).append(blocking)
    return found


def next_first(tasks: Sequence[Task], blocked: dict[int, list[int]]) -> list[Task]:
    """Tasks in the order to take them: active before open, by priority, as they stand; blocked and parents of others last."""
    parents = {task.parent for task in tasks}
    places = {task.id: place for place, task in enumerate(tasks)}
    return sorted(
        tasks,
        key=lambda task: (
            task.id in blocked,
            task.id in parents and not task.open_items,
            task.status != "active",
            task.priority,
            places[task.id],
        ),
    )


_SUPERSEDED = """
EXISTS (SELECT 1 FROM link JOIN note AS heir ON heir.id = link.src
        WHERE link.dst = note.id AND link.kind = 'supersedes' AND heir.status <> 'dropped')
"""
NOTE_LINE: Final = "note.id, note.title, note.origin, note.basis, note.why, note.parent, note.entity, substr(note.body, 1, 2000)"


def in_force(view: View, kind: str, where: str, values: Sequence[Any], limit: int) -> list[tuple[Any, ...]]:
    """Active notes of a kind that nothing supersedes, trusted ones only: rows of `NOTE_LINE`, newest first."""
    untrusted = ", ".join(f"'{origin}'" for origin in sorted(UNTRUSTED))
    sql = f"""
    SELECT {NOTE_LINE} FROM note
    WHERE {where} AND note.kind = '{kind}' AND note.status = 'active' AND note.title IS NOT NULL
      AND note.origin NOT IN ({untrusted}) AND NOT {_SUPERSEDED}
    ORDER BY note.id DESC LIMIT {limit}
    """
    return view.rows(sql, values)
