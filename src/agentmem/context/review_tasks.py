"""What a review says of the work: tasks that lie still, questions, open attempts, missing and stale summaries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.context import lines, work
from agentmem.context.reach import as_json
from agentmem.context.review_parts import Ask, Finding, Key, Part, Told, by_id, of_status, told
from agentmem.engine.migrations import ITEMS_CLOSED, LEFT, SHUT
from agentmem.log.canonical import plain
from agentmem.records import note_rows
from agentmem.records.entities import matching
from agentmem.types import TASK_KINDS

_TREES: Final = 5000  # trees with unfinished tasks that are looked at
_TASKS_MOST: Final = 5000  # unfinished tasks in those where something happened lately
_TOUCHED: Final = 10_000  # notes of these trees that changed lately
_WALKED: Final = 10_000  # notes beneath tasks or summaries


# Stalled


@frozen
class _Tree:
    """A tree with unfinished tasks: how many, whether its root is one, the seq of its last change."""

    root: int
    tasks: int
    open: int
    last: int


@frozen
class _Still:
    """A task that lies still: its tree, the unfinished tasks beneath it, all that is beneath it."""

    root: int
    tasks: int
    beneath: tuple[int, ...] | None


def stalled(ask: Ask) -> Part:
    """Unfinished goals and steps at and beneath which nothing happened for long, the uppermost ones, oldest trees first.

    What happened is a change of content, a checklist item, an attempt, a summary, a checkpoint, a claim that is held
    or was taken lately, a change of an entity of their scope. The task's own time does not count alone.
    """
    trees, bounded = _trees(ask)
    lately = _seeds(ask) if trees else set()
    roots = {root for (root,) in ask.view.rows(_ROOTS, (as_json(lately),))} if lately else set()
    found: dict[Key, _Still] = {}
    walked: list[int] = []
    for tree in trees:
        if tree.last > ask.seq or tree.root in roots or ask.reach.nodes is not None or not tree.open:
            walked.append(tree.root)
        else:
            found[tree.root, tree.root] = _Still(tree.root, tree.tasks - 1, None)
    within, complete = _still_within(ask, walked, lately)
    found |= within
    partly = "" if complete and not bounded else "a part of the tasks"

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        one_of = {int(task): found[root, task] for root, task in page}
        last = _last_changes(ask, one_of)
        for one in told(ask.view, one_of):
            number, at = one_of[one.id].tasks, last.get(one.id, one.updated_at)
            also = f", {lines.counted(number, 'unfinished task')} beneath" if number else ""
            yield one.finding("stalled", f"last changed {lines.day(at)}{also}", at=at, number=number)

    title = f"goals and steps with nothing new beneath for {ask.days}"
    return ask.part("stalled", title, sorted(found), findings, looked_at=partly)


_ROOTS: Final = "SELECT DISTINCT root FROM note WHERE id IN (SELECT value FROM json_each(?))"


def _trees(ask: Ask) -> tuple[list[_Tree], bool]:
    """The trees with unfinished tasks that are old enough, and whether there are more of them."""
    where, values = ask.reach.condition()
    sql = f"""
    SELECT found.*, (SELECT max(touched) FROM note INDEXED BY note_touched WHERE note.root = found.root) FROM (
        SELECT root, count(*), max(id = root) FROM note INDEXED BY note_left
        WHERE {where} AND {LEFT} AND id <= ? GROUP BY root ORDER BY root LIMIT {_TREES + 1}
    ) AS found
    """
    rows = ask.view.rows(sql, [*values, ask.seq])
    return [_Tree(*row) for row in rows[:_TREES]], len(rows) > _TREES


def _seeds(ask: Ask) -> set[int]:
    """Notes where something happened lately that does not touch them: a checkpoint, a claim, work on their scope."""
    view, project = ask.view, ask.reach.project
    found = {task for (task,) in view.rows(_CHECKPOINTS, (project, ask.seq))}
    found |= {note for (note,) in view.rows(_CLAIMED, (view.now, ask.before))}
    return found | _scoped(ask)


_CHECKPOINTS: Final = f"""
SELECT DISTINCT task FROM (
    SELECT task FROM checkpoint INDEXED BY checkpoint_tasks
    WHERE project = ? AND task IS NOT NULL AND id > ? ORDER BY id DESC LIMIT {_TOUCHED}
)
"""
_CLAIMED: Final = """
SELECT coalesce(item.note, lease.record) FROM lease LEFT JOIN item ON item.id = lease.record
WHERE lease.expires_at > ? OR lease.taken_at > ?
"""

_SCOPES: Final = 100
_ENTITY_EVENTS: Final = 1000  # of the latest events, those about entities
_ENTITIES: Final = 2000  # of a type, up to which each is looked at where the log since then is longer than that


def _scoped(ask: Ask) -> set[int]:
    """Unfinished tasks with a scope of which an entity changed lately, or may have: then it is not called still."""
    view, (where, values) = ask.view, ask.reach.condition()
    sql = f"""
    SELECT id, scope FROM note INDEXED BY note_scope
    WHERE {where} AND scope IS NOT NULL AND {LEFT} ORDER BY id LIMIT {_SCOPES}
    """
    scopes = view.rows(sql, values)
    if not scopes:
        return set()
    latest = view.rows(_LATEST, (ask.reach.project, ask.seq))
    changed = as_json({record for record, of in latest if of == "entity"})
    found = set()
    for note, stored in scopes:
        scope = note_rows.scope_of(plain(stored))
        (rows, bound), _ = matching(view, scope.type, scope.where, stored=True)
        if view.row(f"SELECT 1 {rows} AND e.id IN (SELECT value FROM json_each(?)) LIMIT 1", [*bound, changed]):
            found.add(note)
        elif len(latest) == _ENTITY_EVENTS:
            many = view.number(_MANY, (ask.reach.project, scope.type)) > _ENTITIES
            if many or view.row(f"SELECT 1 {rows} AND e.revision > ? LIMIT 1", [*bound, ask.seq]):
                found.add(note)
    return found


_LATEST: Final = f"""
SELECT record, type FROM event WHERE project = ? AND seq > ? ORDER BY seq DESC LIMIT {_ENTITY_EVENTS}
"""
_MANY: Final = f"SELECT count(*) FROM (SELECT 1 FROM entity WHERE project = ? AND type = ? LIMIT {_ENTITIES + 1})"


def _still_within(ask: Ask, roots: Sequence[int], lately: set[int]) -> tuple[dict[Key, _Still], bool]:
    """The uppermost tasks that lie still in trees that do not as a whole, and whether all were looked at."""
    if not roots:
        return {}, True
    changed = ask.view.rows(_CHANGED, (as_json(roots), ask.seq))
    complete = len(changed) < _TOUCHED
    if not complete:  # of which trees all changes are known
        roots = roots[: roots.index(changed[-1][0])]
    tasks: dict[int, int] = dict(ask.view.rows(_TASKS, (as_json(roots), ask.reach.project, ask.seq)))
    if ask.reach.nodes is not None:
        inside = {node.id for node in ask.reach.nodes}
        tasks = {task: root for task, root in tasks.items() if task in inside}
    beneath, walked = beneath_each(ask, tasks)
    complete = complete and walked and len(tasks) < _TASKS_MOST
    fresh = lately | {note for _, note in changed}
    still = {task: notes for task, notes in beneath.items() if fresh.isdisjoint(notes)}
    lower = {note for task, notes in still.items() for note in notes if note != task}
    return {
        (tasks[task], task): _Still(tasks[task], sum(note in still for note in notes) - 1, tuple(notes))
        for task, notes in still.items()
        if task not in lower
    }, complete


# The root is no candidate: it is fresh where its tree is.
_TASKS: Final = f"""
SELECT note.id, note.root FROM json_each(?) AS wanted
CROSS JOIN note INDEXED BY note_left ON note.project = ? AND note.root = wanted.value
WHERE {LEFT} AND note.id <= ? AND note.id <> note.root LIMIT {_TASKS_MOST}
"""
_CHANGED: Final = f"""
SELECT note.root, note.id FROM json_each(?) AS wanted
CROSS JOIN note INDEXED BY note_touched ON note.root = wanted.value AND note.touched > ? LIMIT {_TOUCHED}
"""


def beneath_each(ask: Ask, notes: Iterable[int]) -> tuple[dict[int, list[int]], bool]:
    """Each of some notes with all beneath it, by one index alone; and False where it was too much to do so for all."""
    found: dict[int, list[int]] = {}
    rows = ask.view.rows(_WALK, (as_json(notes),))
    for top, note in rows:
        found.setdefault(top, []).append(note)
    if len(rows) == _WALKED:
        del found[rows[-1][0]]
    return found, len(rows) < _WALKED


# One after the other, so that all but the last are whole where it ends early.
_WALK: Final = f"""
WITH RECURSIVE beneath (top, id) AS (
    SELECT value, value FROM json_each(?)
    UNION ALL
    SELECT beneath.top, note.id FROM beneath JOIN note INDEXED BY note_parent ON note.parent = beneath.id
    ORDER BY 1 LIMIT {_WALKED}
) SELECT top, id FROM beneath
"""


def _last_changes(ask: Ask, tasks: dict[int, _Still]) -> dict[int, int]:
    """When something at or beneath each of a few tasks changed last, by an index of each tree."""
    seqs: dict[int, int] = {}
    trees: dict[int, dict[int, int]] = {}
    for task, one in tasks.items():
        if one.beneath is None:
            seqs[task] = ask.view.number(
                "SELECT max(touched) FROM note INDEXED BY note_touched WHERE root = ?", (task,)
            )
            continue
        if one.root not in trees:
            sql = f"""
            SELECT id, touched FROM note INDEXED BY note_touched WHERE root = ? AND touched <= ?
            ORDER BY touched DESC LIMIT {_TOUCHED}
            """
            trees[one.root] = dict(ask.view.rows(sql, (one.root, ask.seq)))
        touched = trees[one.root]
        seqs[task] = max((touched.get(note, 0) for note in one.beneath), default=0)
    sql = "SELECT seq, at FROM event WHERE seq IN (SELECT value FROM json_each(?))"
    times: dict[int, int] = dict(ask.view.rows(sql, (as_json(seqs.values()),)))
    return {task: times[seq] for task, seq in seqs.items() if seq in times}


# Questions and attempts


def questions(ask: Ask) -> Part:
    """Open questions, the oldest first."""

    def make(one: Told) -> Finding:
        beneath = ", beneath a closed task" if one.shut else ""
        return one.finding("question", f"asked {lines.day(one.created_at)}{beneath}", at=one.created_at)

    return by_id(ask, "questions", "open questions, the oldest first", [("question", "open")], make)


_RUNS: Final = """
SELECT DISTINCT run FROM (SELECT run, at FROM event WHERE project = ? ORDER BY seq DESC LIMIT 500) WHERE at > ?
UNION SELECT run FROM lease WHERE expires_at > ?
"""


def attempts(ask: Ask) -> Part:
    """Attempts that were opened long ago and not closed. A run that wrote none of the latest 500 events seems over."""
    view = ask.view
    alive = {run for (run,) in view.rows(_RUNS, (ask.reach.project, ask.before, view.now))} | {view.binding.actor.run}

    def make(one: Told) -> Finding:
        opened = f"opened {lines.day(one.created_at)}"
        if one.run is None:
            return one.finding("open", opened, at=one.created_at)
        over = one.run not in alive
        remark = f"{opened}, its run {lines.inline(one.run)} {'seems over' if over else 'goes on'}"
        return one.finding("abandoned" if over else "open", remark, at=one.created_at)

    return by_id(ask, "attempts", f"attempts open for {ask.days}", [("attempt", "active")], make, until=ask.seq)


# Closed tasks


_CLOSED: Final = 20_000  # closed tasks of one kind and status that are looked at


def unsummarized(ask: Ask) -> Part:
    """Goals, then steps, that are done or failed and have no summary. What was dropped needs none."""
    keys: list[Key] = []
    bounded = False
    for turn, kind in enumerate(("goal", "step")):
        for status in ("done", "failed"):
            rows, bound = of_status(ask.reach, kind, status)
            closed = [note for (note,) in ask.view.rows(f"SELECT id FROM {rows} ORDER BY id LIMIT {_CLOSED}", bound)]
            bounded = bounded or len(closed) == _CLOSED
            if closed:
                keys += [(turn, note) for note in sorted({*closed} - _summed_up(ask, closed[0], closed[-1]))]

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for one in told(ask.view, [int(key[1]) for key in page]):
            yield one.finding("no_summary", f"closed {lines.day(one.updated_at)}", at=one.updated_at)

    partly = f"the oldest {_CLOSED} of a kind" if bounded else ""
    return ask.part("unsummarized", "closed without a summary", sorted(keys), findings, looked_at=partly)


def _summed_up(ask: Ask, first: int, last: int) -> set[int]:
    """The notes from one to another that have a summary."""
    sql = "SELECT note FROM summary INDEXED BY summary_note WHERE note BETWEEN ? AND ?"
    return {note for (note,) in ask.view.rows(sql, (first, last))}


_NAMED: Final = 3  # closed tasks that a line names


def unfinished(ask: Ask) -> Part:
    """Closed tasks with unticked items or unfinished tasks beneath; of a project one line for each tree."""
    items: dict[int, int]
    tasks: dict[int, int]
    if ask.reach.task is not None:
        items = work.by_uppermost_closed(ask.view, work.items_closed(ask.view, ask.reach))
        tasks = work.by_uppermost_closed(ask.view, work.tasks_shut(ask.view, ask.reach))
    else:
        items = dict(ask.view.rows(_ITEMS_BY_TREE, (ask.reach.project,)))
        tasks = dict(ask.view.rows(_TASKS_BY_TREE, (ask.reach.project,)))

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for one in told(ask.view, [int(key[0]) for key in page]):
            parts = [lines.counted(tasks[one.id], "unfinished task")] if one.id in tasks else []
            parts += [lines.counted(items[one.id], "unticked item")] if one.id in items else []
            number = tasks.get(one.id, 0) + items.get(one.id, 0)
            closed = () if one.status in work.CLOSED else _closed_in(ask, one.id)
            of = f" closed {', '.join(f'#{task}' for task in closed)}" if closed else " it"
            yield one.finding("unfinished", f"{' and '.join(parts)} in or beneath{of}", others=closed, number=number)

    keys: list[Key] = [(note,) for note in sorted(items.keys() | tasks.keys())]
    return ask.part("unfinished", "closed with something open beneath", keys, findings)


_ITEMS_BY_TREE: Final = f"""
SELECT root, sum(open_items) FROM note INDEXED BY note_closed WHERE project = ? AND {ITEMS_CLOSED} GROUP BY root
"""
_TASKS_BY_TREE: Final = f"""
SELECT root, count(*) FROM note INDEXED BY note_shut WHERE project = ? AND {SHUT} GROUP BY root
"""
_SOME: Final = f"""
SELECT id FROM note INDEXED BY note_closed WHERE project = ?1 AND root = ?2 AND {ITEMS_CLOSED}
UNION SELECT id FROM note INDEXED BY note_shut WHERE project = ?1 AND root = ?2 AND {SHUT} LIMIT {_NAMED}
"""


def _closed_in(ask: Ask, root: int) -> tuple[int, ...]:
    """Some closed tasks of a tree that is not over, with something open in or beneath them."""
    some = ask.view.rows(_SOME, (ask.reach.project, root))
    return tuple(sorted(work.by_uppermost_closed(ask.view, [(note, 1) for (note,) in some])))


# Stale summaries


_SUMMARIES: Final = 150  # looked at in one answer, the latest first: each costs a look at its note


def stale(ask: Ask) -> Part:
    """Summaries beneath whose task something changed later, the latest first."""
    before = -int(ask.place[0]) if ask.place else limits.INT_MAX
    rows = ask.view.rows(*_summaries(ask, before))
    more = len(rows) > _SUMMARIES
    del rows[_SUMMARIES:]
    old, complete = _stale(ask, rows)
    wanted: list[Key] = [(-revision,) for revision, note, _ in rows if note in old]
    summed = {-revision: note for revision, note, _ in rows}

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for one in told(ask.view, [summed[int(key[0])] for key in page]):
            yield one.finding("stale", "something beneath changed after its summary", at=one.updated_at)

    looked = "" if not more and before == limits.INT_MAX else f"{len(rows)} summaries"
    looked = looked if complete else "a part of the summaries"
    beyond = (-rows[-1][0],) if more else None
    return ask.cut("stale", "stale summaries", wanted, findings, len(wanted), beyond, looked_at=looked)


def _summaries(ask: Ask, before: int) -> tuple[str, list[Any]]:
    """The query for summaries earlier than one: revision, note, root of the note; the latest first."""
    columns, order = (
        "summary.revision, summary.note, note.root",
        f"ORDER BY summary.revision DESC LIMIT {_SUMMARIES + 1}",
    )
    if ask.reach.root is None:
        sql = f"""
        SELECT {columns} FROM summary INDEXED BY summary_revision CROSS JOIN note ON note.id = summary.note
        WHERE summary.revision < ? AND note.project = ? {order}
        """
        return sql, [before, ask.reach.project]
    bound: int | str | None
    notes, bound = "note.root = ? AND note.kind IN ('goal', 'step')", ask.reach.root
    if ask.reach.nodes is not None:
        notes = "note.id IN (SELECT value FROM json_each(?))"
        bound = ask.reach.listed(lambda node: node.kind in TASK_KINDS)
    sql = f"""
    SELECT {columns} FROM note CROSS JOIN summary INDEXED BY summary_note ON summary.note = note.id
    WHERE {notes} AND summary.revision < ? {order}
    """
    return sql, [bound, before]


def _stale(ask: Ask, rows: Sequence[tuple[Any, ...]]) -> tuple[set[int], bool]:
    """The notes whose summary is stale, and whether all were looked at. Reads nothing but two indexes."""
    least: dict[int, int] = {}
    for revision, _, root in rows:
        least[root] = min(revision, least.get(root, revision))
    touched: dict[int, int] = {}
    newest: dict[int, int] = {}
    for root, revision in least.items():
        later = ask.view.rows(_LATER, (root, revision))
        touched.update(later)
        newest[root] = max((seq for _, seq in later), default=0)
    changed = [(note, revision, root) for revision, note, root in rows if newest[root] > revision]
    found = {note for note, _, root in changed if note == root}
    inner = {note: revision for note, revision, root in changed if note != root}
    beneath, complete = beneath_each(ask, inner)
    for task, notes in beneath.items():
        if any(touched.get(note, 0) > inner[task] for note in notes):
            found.add(task)
    return found, complete and len(touched) < _TOUCHED


_LATER: Final = f"""
SELECT id, touched FROM note INDEXED BY note_touched WHERE root = ? AND touched > ? ORDER BY touched DESC LIMIT {_TOUCHED}
"""
