"""Placing notes: beneath another parent, before or after a sibling.

A position is a number. A new note's is its seq, above all earlier ones; a place between two siblings
is the middle of theirs, and where floating point has no middle left the siblings are spaced anew.
"""

from __future__ import annotations

from typing import Any

from agentmem.errors import InvalidInput
from agentmem.records import claims, note_rows, tree
from agentmem.records.base import Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import identify, note_id
from agentmem.types import Note, Ref, Unset, Written


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
    if neighbour is not None:
        beside = note_rows.load(unit, note_id(unit, neighbour))
        if beside.id == found:
            raise InvalidInput("A note cannot be placed beside itself")
        if isinstance(parent, Unset):
            target = beside.parent
        elif beside.parent != target:
            raise InvalidInput(f"#{beside.id} is not beneath that parent")
        if beside.project != note.project:
            raise InvalidInput(f"#{beside.id} is in another project", why="Siblings stay in one project")
    tree.admit_move(unit, found, note.kind, target, note.project)
    changes: dict[str, Any] = {}
    if target != note.parent:
        changes["parent"] = target
    siblings = _siblings(unit, note.project, target, found)
    place = _place(unit, siblings, neighbour, before is not None, first)
    if place is None or not _already(unit, found, note, target, siblings, place):
        if place is None:
            place = _respaced(unit, note.project, siblings, neighbour, before is not None)
        changes["position"] = place
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    return Written(found, event.seq, tuple(sorted(changes)), transit=unit.transit)


def _siblings(unit: Unit, project: int, parent: int | None, without: int) -> list[tuple[int, float]]:
    """The ids and positions of the notes beneath a parent, in order, but one."""
    if parent is None:
        sql = "SELECT id, position FROM note WHERE project = ? AND parent IS NULL AND id <> ? ORDER BY position, id"
        return unit.rows(sql, (project, without))
    sql = "SELECT id, position FROM note WHERE parent = ? AND id <> ? ORDER BY position, id"
    return unit.rows(sql, (parent, without))


def _place(
    unit: Unit, siblings: list[tuple[int, float]], neighbour: Ref | None, before: bool, first: bool
) -> float | None:
    """A position for the place asked for, None if floating point has none left there."""
    if neighbour is None:
        # Every position is below the next seq, so this comes last, and what is added later after it.
        return siblings[0][1] - 1.0 if first and siblings else float(unit.tx.next)
    index = [found for found, _ in siblings].index(identify(unit, neighbour)[0])
    low = index - 1 if before else index
    lower = siblings[low][1] if low >= 0 else None
    upper = siblings[low + 1][1] if low + 1 < len(siblings) else None
    if upper is None:
        return float(unit.tx.next)
    return tree.place_between(lower, upper)


def _already(
    unit: Unit, found: int, note: Note, target: int | None, siblings: list[tuple[int, float]], place: float
) -> bool:
    """Whether the note stands at that place in the order already."""
    if target != note.parent:
        return False
    row = unit.row("SELECT position FROM note WHERE id = ?", (found,))
    assert row is not None  # the note was loaded
    ahead_now = sum(1 for other, position in siblings if (position, other) < (row[0], found))
    ahead_then = sum(1 for _, position in siblings if position < place)
    return ahead_now == ahead_then


def _respaced(
    unit: Unit, project: int, siblings: list[tuple[int, float]], neighbour: Ref | None, before: bool
) -> float:
    """Give the siblings whole positions again, each by its own event, and return the place between them."""
    assert neighbour is not None  # only a place between two can lack room
    index = [found for found, _ in siblings].index(identify(unit, neighbour)[0]) + (0 if before else 1)
    lowest = siblings[0][1]
    spaced = [lowest - 2.0 * (len(siblings) - order) for order in range(len(siblings))]
    for (sibling, _), position in zip(siblings, spaced, strict=True):
        unit.append("note.changed", {"set": {"position": position}}, record=sibling, project=project)
    return spaced[index - 1] + 1.0
