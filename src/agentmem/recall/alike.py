"""Attempts like one that is made, by their meaning; `records.attempts` says what that counts beside words."""

from __future__ import annotations

from typing import Final

from agentmem.errors import AgentMemError
from agentmem.recall import embedding
from agentmem.recall.meaning import FRESH, Meaning
from agentmem.records.base import View

__all__ = ["alike"]

_MOST: Final = 30
_ATTEMPTS: Final = 20_000  # the latest, that are compared
_EVENTS: Final = 512  # of which attempts without vectors are sought

# The index on notes is named: by ids alone a project of many notes and few attempts is read whole.
_LATEST: Final = """
SELECT id FROM note INDEXED BY note_project WHERE project = ? AND kind = 'attempt' AND id < ? ORDER BY id DESC LIMIT ?
"""
_WITHOUT: Final = """
SELECT note.id FROM event NOT INDEXED CROSS JOIN note ON note.id = event.record
WHERE event.seq > ? AND note.project = ? AND note.kind = 'attempt' AND note.id < ?
  AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.record = note.id)
GROUP BY note.id ORDER BY max(event.seq) DESC LIMIT ?
"""


def alike(meaning: Meaning, view: View, what: str, project: int, before: int) -> dict[int, float]:
    """The attempts of a project that are nearest to a text in meaning.

    The model is loaded only where there is an attempt to compare. It never fails: meaning is a help here, and `recall`
    says where it is missing and why.

    Args:
        meaning: That of the open file.
        view: Where to read.
        what: The text, in one line.
        project: The id of the project.
        before: Attempts with this id or a higher one are left out.

    Returns:
        At most 30 cosines by id; nothing where meaning takes no part.
    """
    attempts = [record for (record,) in view.rows(_LATEST, (project, before, _ATTEMPTS))]
    if not attempts:
        return {}
    asked = meaning.vector(view, what)
    if asked.vector is None:
        return {}
    found = meaning.among(view, asked, attempts, _MOST)
    waiting = _without_vectors(view, project, before)
    if len(waiting) == FRESH:  # more than can be embedded here, perhaps: a process that does not recall finds them too
        meaning.work()
    try:
        found |= meaning.fresh(view, asked.vector, waiting)
    except AgentMemError:
        pass  # the embedder fails now: what has vectors is compared all the same
    return {record: near.cosine for record, near in found.items()}


def _without_vectors(view: View, project: int, before: int) -> list[int]:
    """The latest attempts that wait to be embedded."""
    embedded, last = embedding.reached(view.connection)
    return [record for (record,) in view.rows(_WITHOUT, (max(embedded, last - _EVENTS), project, before, FRESH))]
