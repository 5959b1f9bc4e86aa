"""The tree of notes: ancestors, depth, order among siblings."""

from __future__ import annotations

from typing import Final

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded
from agentmem.records.base import Unit, View

# The notes above one, the nearest first. A cycle cannot be, and the bound keeps a damaged file from looping.
ABOVE: Final = """
WITH RECURSIVE above (id, level) AS (
    SELECT parent, 1 FROM note WHERE id = ?1 AND parent IS NOT NULL
    UNION ALL
    SELECT note.parent, level + 1 FROM above JOIN note ON note.id = above.id
    WHERE note.parent IS NOT NULL AND level < 100
)
"""
# A note and all beneath it, depth first in the order of siblings.
BENEATH: Final = """
WITH RECURSIVE beneath (id, level, place) AS (
    VALUES (?1, 0, 0.0)
    UNION ALL
    SELECT note.id, level + 1, note.position FROM beneath JOIN note ON note.parent = beneath.id
    ORDER BY 2 DESC, 3, 1
)
"""


def ancestors(source: Unit | View, note: int) -> list[int]:
    """The ids of the notes above one, the nearest first."""
    return [found for (found,) in source.rows(f"{ABOVE} SELECT id FROM above ORDER BY level", (note,))]


def height(source: Unit | View, note: int) -> int:
    """How many levels lie beneath a note; 0 for a leaf."""
    sql = """
    WITH RECURSIVE beneath (id, level) AS (
        VALUES (?1, 0) UNION ALL SELECT note.id, level + 1 FROM beneath JOIN note ON note.parent = beneath.id
    ) SELECT max(level) FROM beneath
    """
    row = source.row(sql, (note,))
    return row[0] if row else 0


def admit(unit: Unit, parent: int) -> tuple[int, int]:
    """Check that a leaf may be put beneath `parent`.

    Returns:
        The parent's project and root.

    Raises:
        LimitExceeded: The tree would have more than `TREE_LEVELS` levels.
    """
    row = unit.row("SELECT project, root, parent FROM note WHERE id = ?", (parent,))
    assert row is not None  # ids come from refs
    if row[2] is not None and len(ancestors(unit, parent)) + 2 > limits.TREE_LEVELS:
        raise LimitExceeded(f"The tree beneath #{row[1]} would have more than {limits.TREE_LEVELS} levels")
    return row[0], row[1]


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
    there = unit.row("SELECT project FROM note WHERE id = ?", (parent,))
    assert there is not None  # ids come from refs
    if there[0] != project:
        raise InvalidInput(f"#{parent} is in another project", why="Parent and children stay in one project")
    above = ancestors(unit, parent)
    if parent == note or note in above:
        raise Conflict(f"#{parent} lies beneath #{note}", why="A note cannot come beneath itself")
    if len(above) + 2 + height(unit, note) > limits.TREE_LEVELS:
        raise LimitExceeded(f"The tree would have more than {limits.TREE_LEVELS} levels")


def place_between(before: float | None, after: float | None) -> float | None:
    """A position strictly between two, None if floating point has none left. One of them may be open."""
    if before is None:
        assert after is not None  # callers know at least one neighbour
        return after - 1.0
    if after is None:
        return before + 1.0
    middle = before + (after - before) / 2
    return middle if before < middle < after else None
