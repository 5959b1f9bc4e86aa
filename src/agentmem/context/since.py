"""What changed after a seq: the log read by record, one line each, what matters first."""

from __future__ import annotations

from typing import Any, Final

from agentmem.context import lines
from agentmem.context.budget import Line, Section
from agentmem.context.reach import reach
from agentmem.records import subjects
from agentmem.records.base import View
from agentmem.types import TASK_KINDS

_EVENTS: Final = 5000  # events looked at, the latest
_LISTED: Final = 60

_CHANGED: Final = f"""
SELECT record, type, min(seq) AS first, max(seq) AS last FROM (
    SELECT seq, record, type FROM event
    WHERE project = ?1 AND seq > ?2 AND kind NOT LIKE '%.claim.%' AND type <> 'message' ORDER BY seq DESC LIMIT {_EVENTS}
) GROUP BY record ORDER BY last DESC
"""

# Name, title, share and kinds of note.
_SECTIONS: Final = (
    ("decisions", "decisions:", 0.2, ("decision",)),
    ("tasks", "goals and steps:", 0.25, TASK_KINDS),
    ("attempts", "attempts:", 0.2, ("attempt",)),
    ("questions", "questions:", 0.1, ("question",)),
    ("lessons", "lessons:", 0.05, ("lesson",)),
    ("facts", "facts:", 0.1, ("fact",)),
)


def sections(view: View, task: int | None, after: int) -> list[Section]:
    """The changes after a seq, of the project or beneath one task, by kind."""
    notes, entities, gone = _changed(view, task, after)
    more = call(view, after)
    found = []
    for name, title, share, kinds in _SECTIONS:
        rows = [row for row in notes if row[1] in kinds]
        found.append(Section(name, title, share, [_line(row) for row in rows[:_LISTED]], len(rows), more))
    by_type = [Line(f"{type}: {lines.counted(number, 'entity', 'entities')} changed") for type, number in entities]
    found.append(Section("entities", "entities:", 0.1, by_type, more=more))
    # Who read them before is to know that they no longer hold.
    listed = [Line(" ".join(f"#{record}" for record in gone[:_LISTED]))] if gone else []
    return [*found, Section("gone", "undone, merged or purged:", 0.05, listed, more=more)]


def call(view: View, after: int) -> str:
    """The call that gives all of it; a view of a subject does not read the log."""
    return f"log.read(after={after})" if view.binding.subject is None else f"resume(since={after}, budget=…)"


def changed_lines(view: View, task: int, after: int, *, others_than: str | None, limit: int) -> list[Line]:
    """What other runs changed in a task's tree after a seq, one line a note, the latest first."""
    root = view.number("SELECT root FROM note WHERE id = ?", (task,))
    found: list[Line] = []
    for note, seq in view.rows(_TOUCHED.format(seen=subjects.of_notes(view)), (root, after)):
        by = view.row("SELECT run FROM event WHERE seq = ?", (seq,))
        if others_than is not None and by is not None and by[0] == others_than:
            continue
        told = view.row("SELECT id, kind, status, title, origin, why FROM note WHERE id = ?", (note,))
        if told is not None and told[3] is not None:
            found.append(_line((*told, note > after), word="changed:"))
            if len(found) == limit:
                break
    return found


# The latest notes of a tree that changed, themselves, by an item or by their summary.
_TOUCHED: Final = """
SELECT id, touched FROM note INDEXED BY note_touched WHERE root = ? AND touched > ? {seen} ORDER BY touched DESC LIMIT 40
"""


def _changed(
    view: View, task: int | None, after: int
) -> tuple[list[tuple[Any, ...]], list[tuple[str, int]], list[int]]:
    """Notes that changed: id, kind, status, title, origin, why, new or not; entities, counted by type; notes that are gone."""
    of = reach(view, task)
    inside = None if of.nodes is None else {node.id for node in of.nodes}
    notes: dict[int, tuple[Any, ...]] = {}
    types: dict[str, int] = {}
    gone: list[int] = []
    thing = f"SELECT type FROM entity WHERE id = ? {subjects.condition(view, 'entity.id')}"
    told = f"SELECT id, kind, status, title, origin, why, root FROM note WHERE id = ? {subjects.of_notes(view)}"
    for record, type, first, _ in view.rows(_CHANGED, (of.project, after)):
        if type == "entity" and task is None:
            row = view.row(thing, (record,))
            if row is not None:
                types[row[0]] = types.get(row[0], 0) + 1
            continue
        if type == "session" and record <= after and task is None and view.binding.subject is None:
            gone += [] if view.row("SELECT 1 FROM session WHERE id = ?", (record,)) else [record]
        note = _note_of(view, record, type)
        if note is None or note in notes:
            continue
        row = view.row(told, (note,))
        if row is None and note <= after and view.binding.subject is None:  # what is gone is about nobody knows whom
            gone.append(note)
        if row is None or row[3] is None:
            continue
        if (inside is not None and note not in inside) or of.root not in (None, row[6]):
            continue
        notes[note] = (*row[:6], first == note)
    return list(notes.values()), sorted(types.items()), gone


def _note_of(view: View, record: int, type: str) -> int | None:
    """The note that a change of this record shows at."""
    if type == "note":
        return record
    if type in ("item", "summary"):
        row = view.row(f"SELECT note FROM {type} WHERE id = ?", (record,))
        return None if row is None else row[0]
    return None


def _line(row: tuple[Any, ...], word: str = "") -> Line:
    mark = "new" if row[6] else "now"
    before = f"{word} {row[1]} [{mark} {row[2]}]" if word else f"[{mark} {row[2]}]"
    return lines.record(row[0], row[3], origin=row[4], before=before, why=row[5])
