"""How far a question reaches: the whole project, one tree, or what lies beneath one note."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Final

from attrs import frozen

from agentmem.records import subjects
from agentmem.records.base import View
from agentmem.types import TASK_KINDS, UNFINISHED

WALKED: Final = 5000  # notes looked at beneath one that is no root


@frozen
class Node:
    """A note met on a walk down. `shut` says that a closed task stands above it."""

    id: int
    level: int
    kind: str
    status: str
    shut: bool


@frozen
class Reach:
    """What a question is about.

    Attributes:
        project: Its id.
        root: The tree, None for the whole project.
        task: The note asked about, None for the project.
        nodes: The note and what lies beneath it in the order of the tree, at most `WALKED`; None where the whole tree
            is meant, which indexes answer however large it is.
        subject: The entity that all of it is about, if it is about anything; None where every subject is seen.
    """

    project: int
    root: int | None
    task: int | None
    nodes: tuple[Node, ...] | None
    subject: int | None = None

    def condition(self, table: str = "note") -> tuple[str, list[int]]:
        """The condition on `project` and `root` that the partial indexes of notes begin with, and its values."""
        seen = subjects.of_notes_about(self.subject, table)
        if self.root is None:
            return f"{table}.project = ? {seen}".rstrip(), [self.project]
        return f"{table}.project = ? AND {table}.root = ? {seen}".rstrip(), [self.project, self.root]

    def listed(self, wanted: Callable[[Node], bool]) -> str:
        """The ids of the walked notes that are wanted, as JSON."""
        return as_json(node.id for node in self.nodes or () if wanted(node))


def as_json(ids: Iterable[int]) -> str:
    """Ids as a JSON array, for `json_each`."""
    return json.dumps(list(ids))


def reach(view: View, task: int | None) -> Reach:
    """What a question about a task, or about the project, reaches."""
    subject = view.binding.subject
    if task is None:
        return Reach(view.project, None, None, None, subject)
    project, root, shut = view.one("SELECT project, root, shut FROM note WHERE id = ?", (task,))
    return Reach(project, root, task, None if root == task else _walked(view, task, bool(shut)), subject)


# Reads nothing but the index, so it does not matter how large the notes are.
_WALK: Final = f"""
WITH RECURSIVE beneath (id, level, place, kind, status) AS (
    SELECT id, 0, 0.0, kind, status FROM note WHERE id = ?1
    UNION ALL
    SELECT note.id, level + 1, note.position, note.kind, note.status
    FROM beneath JOIN note INDEXED BY note_parent ON note.parent = beneath.id
    ORDER BY 2 DESC, 3, 1
)
SELECT id, level, kind, status FROM beneath LIMIT {WALKED}
"""


def _walked(view: View, task: int, shut: bool) -> tuple[Node, ...]:
    found = []
    below: list[bool] = [shut]  # by level: whether a closed task stands above the notes there
    for note, level, kind, status in view.rows(_WALK, (task,)):
        del below[level + 1 :]
        found.append(Node(note, level, kind, status, below[level]))
        below.append(below[level] or (kind in TASK_KINDS and status not in UNFINISHED))
    unseen = subjects.hidden(view, [node.id for node in found])
    return tuple(node for node in found if node.id not in unseen) if unseen else tuple(found)
