"""The trees of notes and of entities: ancestors, depth, order among siblings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded
from agentmem.records.base import Source, Unit
from agentmem.records.standing import standing

Table: TypeAlias = Literal["note", "entity"]


def beneath(table: Table, *, bounded: bool = False) -> str:
    """The common table `beneath (id, level, place)`: record `?1` and all beneath it, depth first in the order of siblings.

    Args:
        table: Which tree. Entities have no order of their own; they stand as they were added.
        bounded: No more than `?2` levels beneath.
    """
    return f"""
    WITH RECURSIVE beneath (id, level, place) AS (
        VALUES (?1, 0, 0.0)
        UNION ALL
        SELECT {table}.id, level + 1, {"note.position" if table == "note" else "0.0"}
        FROM beneath JOIN {table} ON {table}.parent = beneath.id {"WHERE level < ?2" if bounded else ""}
        ORDER BY 2 DESC, 3, 1
    )
    """


BENEATH: Final = beneath("note")


def ancestors(source: Source, record: int, table: Table = "note") -> list[int]:
    """The ids of the notes or entities above one, the nearest first."""
    # A cycle cannot be, and the bound keeps a damaged file from looping.
    sql = f"""
    WITH RECURSIVE above (id, level) AS (
        SELECT parent, 1 FROM {table} WHERE id = ?1 AND parent IS NOT NULL
        UNION ALL
        SELECT {table}.parent, level + 1 FROM above JOIN {table} ON {table}.id = above.id
        WHERE {table}.parent IS NOT NULL AND level < 100
    ) SELECT id FROM above ORDER BY level
    """
    return [found for (found,) in source.rows(sql, (record,))]


def height(source: Source, record: int, table: Table = "note") -> int:
    """How many levels lie beneath a note or entity; 0 for a leaf."""
    return source.number(f"{beneath(table)} SELECT max(level) FROM beneath", (record,))


def admit(unit: Unit, parent: int) -> tuple[int, int]:
    """Check that a leaf may be put beneath `parent`.

    Returns:
        The parent's project and root.

    Raises:
        LimitExceeded: The tree would have more than `TREE_LEVELS` levels.
    """
    project, root, above = unit.one("SELECT project, root, parent FROM note WHERE id = ?", (parent,))
    if above is not None and len(ancestors(unit, parent)) + 2 > limits.TREE_LEVELS:
        raise LimitExceeded(f"The tree beneath #{root} would have more than {limits.TREE_LEVELS} levels")
    return project, root


def admit_move(unit: Unit, note: int, kind: str, parent: int | None, project: int) -> None:
    """Check that a note and what lies beneath it may be put beneath `parent`.

    Raises:
        InvalidInput: A goal beneath something, or another project.
        Conflict: Beneath itself.
        LimitExceeded: Too deep.
    """
    if parent is None:
        return
    if kind == "goal":
        raise InvalidInput("A goal has no parent", next="Use a step beneath the other goal")
    if standing(unit, "note", parent).project != project:
        raise InvalidInput(f"#{parent} is in another project", why="Parent and children stay in one project")
    above = ancestors(unit, parent)
    if parent == note or note in above:
        raise Conflict(f"#{parent} lies beneath #{note}", why="A note cannot come beneath itself")
    if len(above) + 2 + height(unit, note) > limits.TREE_LEVELS:
        raise LimitExceeded(f"The tree would have more than {limits.TREE_LEVELS} levels")


def place_between(before: float | None, after: float) -> float | None:
    """A position strictly between two, None if floating point has none left; without `before` one that comes first."""
    if before is None:
        return after - 1.0
    middle = before + (after - before) / 2
    return middle if before < middle < after else None


def place_at(unit: Unit, kind: str, siblings: Sequence[tuple[int, float]], index: int, project: int) -> float:
    """A position before the index-th of the siblings, or after them all.

    Args:
        unit: Where to write.
        kind: The kind of event that moves a sibling: where floating point has no room left, the fewer side moves.
        siblings: Their ids and positions, in order, without the one that is to be placed.
        index: How many of them come before.
        project: Of them all.
    """
    if index == len(siblings):
        # Every position is below the next seq, so this comes last, and what is added later after it.
        return float(unit.tx.next)
    place = place_between(siblings[index - 1][1] if index else None, siblings[index][1])
    if place is not None:
        return place
    # The fewer side makes room by a whole step. One step up stays below the seq that the first of these events takes.
    step, moved = (-1.0, siblings[:index]) if 2 * index <= len(siblings) else (1.0, siblings[index:])
    for sibling, position in moved:
        unit.append(kind, {"set": {"position": position + step}}, record=sibling, project=project)
    return siblings[index][1] + (-0.5 if step < 0 else 0.5)
