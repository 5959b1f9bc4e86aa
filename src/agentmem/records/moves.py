"""Placing notes: beneath another parent, before or after a sibling.

A position is a number. A new note's is its seq, above all earlier ones; a place between two siblings
is the middle of theirs, and where floating point has no middle left the siblings are spaced anew.
"""

from __future__ import annotations

from typing import Any

from agentmem.errors import InvalidInput
from agentmem.records import claims, note_rows, subjects, tree
from agentmem.records.base import Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import note_id
from agentmem.types import Ref, Unset, Written


def move(
    unit: Unit,
    ref: Ref,
    parent: Ref | None | Unset,
    before: Ref | None,
    after: Ref | None,
    first: bool,
    expected: int | None,
) -> Written:
    """The command behind `store.notes.move`."""
    found = note_id(unit, ref)
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    if sum((before is not None, after is not None, bool(first))) > 1:
        raise InvalidInput("before=, after= and first= exclude each other")
    target = note.parent if isinstance(parent, Unset) else None if parent is None else note_id(unit, parent)
    neighbour = before if before is not None else after
    beside = None if neighbour is None else note_rows.load(unit, note_id(unit, neighbour))
    if beside is not None:
        if beside.id == found:
            raise InvalidInput("A note cannot be placed beside itself")
        if isinstance(parent, Unset):
            target = beside.parent
        elif beside.parent != target:
            raise InvalidInput(f"#{beside.id} is not beneath that parent")
        if beside.project != note.project:
            raise InvalidInput(f"#{beside.id} is in another project", why="Siblings stay in one project")
    tree.admit_move(unit, found, note.kind, target, note.project)
    siblings = _siblings(unit, note.project, target, found)
    index = _index(siblings, None if beside is None else beside.id, before is not None, first)
    changes: dict[str, Any] = {}
    if target != note.parent:
        changes["parent"] = target
    if changes or index != _ahead(unit, found, siblings):
        changes["position"] = tree.place_at(unit, "note.changed", siblings, index, note.project)
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    was = subjects.subject_of(unit, found) if "parent" in changes and unit.binding.subject is not None else None
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    subjects.refuse_loosened(unit, found, was)
    return Written(found, event.seq, tuple(sorted(changes)), transit=unit.transit)


def _siblings(unit: Unit, project: int, parent: int | None, without: int) -> list[tuple[int, float]]:
    """The ids and positions of the notes beneath a parent, in order, but one."""
    if parent is None:
        sql = "SELECT id, position FROM note WHERE project = ? AND parent IS NULL AND id <> ? ORDER BY position, id"
        return unit.rows(sql, (project, without))
    sql = "SELECT id, position FROM note WHERE parent = ? AND id <> ? ORDER BY position, id"
    return unit.rows(sql, (parent, without))


def _index(siblings: list[tuple[int, float]], beside: int | None, before: bool, first: bool) -> int:
    """How many of the siblings come before the place asked for."""
    if beside is None:
        return 0 if first else len(siblings)
    return [found for found, _ in siblings].index(beside) + (0 if before else 1)


def _ahead(unit: Unit, found: int, siblings: list[tuple[int, float]]) -> int:
    """How many of the siblings come before the note as it stands."""
    (position,) = unit.one("SELECT position FROM note WHERE id = ?", (found,))
    return sum((place, other) < (position, found) for other, place in siblings)
