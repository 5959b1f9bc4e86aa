"""Attempts like one that is made, by their meaning; `records.attempts` says what that counts beside words."""

from __future__ import annotations

import contextlib
import json
from typing import Final

from agentmem.errors import EmbedderFailed, ModelDamaged, ModelMissing
from agentmem.recall import embedding
from agentmem.recall.meaning import Meaning
from agentmem.records.base import View

__all__ = ["alike"]

_MOST: Final = 30
_FRESH: Final = 8  # attempts without vectors that are embedded here, the beginning of each
_ATTEMPTS: Final = 20_000  # the latest, that are compared
_EVENTS: Final = 512  # of which attempts without vectors are sought

# The index on notes is named: by ids alone a project of many notes and few attempts is read whole.
_ANY: Final = "SELECT 1 FROM note INDEXED BY note_project WHERE project = ? AND kind = 'attempt' LIMIT 1"
_ALL: Final = "SELECT json_group_array(id) FROM note INDEXED BY note_project WHERE project = ? AND kind = 'attempt'"
_WITHOUT: Final = """
SELECT note.id FROM event NOT INDEXED CROSS JOIN note ON note.id = event.record
WHERE event.seq > ? AND note.project = ? AND note.kind = 'attempt'
  AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.record = note.id)
GROUP BY note.id ORDER BY max(event.seq) DESC LIMIT ?
"""


def alike(meaning: Meaning, view: View, what: str, project: int) -> dict[int, float]:
    """The attempts of a project that are nearest to a text in meaning.

    The model is loaded only where there is an attempt to compare. It never fails: meaning is a help here, and `recall`
    says where it is missing and why.

    Args:
        meaning: That of the open file.
        view: Where to read.
        what: The text, in one line.
        project: The id of the project.

    Returns:
        At most 30 cosines by id; nothing where meaning takes no part.
    """
    if view.row(_ANY, (project,)) is None:
        return {}
    asked = meaning.vector(view, what)
    if asked.vector is None:
        return {}
    found = meaning.among(view, asked, _latest(view, project), _MOST)
    waiting = _without_vectors(view, project)
    if len(waiting) == _FRESH:  # perhaps there are more: where nobody recalls they would never be found
        meaning.work()
    with contextlib.suppress(EmbedderFailed, ModelDamaged, ModelMissing):  # what has vectors is compared all the same
        found |= meaning.fresh(view, asked.vector, waiting, most=1)[0]
    return {record: near.cosine for record, near in found.items()}


def _latest(view: View, project: int) -> list[int]:
    """The ids of the latest attempts, the latest first."""
    (listed,) = view.one(_ALL, (project,))
    # One row: of a row for each, and of SQLite's own order, the reading takes four times as long.
    return sorted(json.loads(listed), reverse=True)[:_ATTEMPTS]


def _without_vectors(view: View, project: int) -> list[int]:
    """The latest attempts that wait to be embedded."""
    embedded, last = embedding.reached(view.connection)
    return [record for (record,) in view.rows(_WITHOUT, (max(embedded, last - _EVENTS), project, _FRESH))]
