"""How a record stands just now, whatever its type: its project, revision and origin."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from agentmem.records.base import Source
from agentmem.types import Origin

_OF: Final = {
    "note": "SELECT project, revision, origin FROM note WHERE id = ?",
    "entity": "SELECT project, revision, origin FROM entity WHERE id = ?",
    "item": """
    SELECT note.project, item.revision, item.origin FROM item JOIN note ON note.id = item.note WHERE item.id = ?
    """,
    "summary": """
    SELECT note.project, summary.revision, summary.origin
    FROM summary JOIN note ON note.id = summary.note WHERE summary.id = ?
    """,
}


@frozen
class Standing:
    """Where a record belongs now: the header of its creation says where it was then."""

    project: int
    revision: int
    origin: Origin


def standing(source: Source, of: str, record: int) -> Standing:
    """The project, revision and origin of a note, entity, item or summary that exists."""
    return Standing(*source.one(_OF[of], (record,)))
