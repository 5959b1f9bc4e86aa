"""How a record stands just now, whatever its type: its project, revision and origin."""

from __future__ import annotations

from typing import Final

from attrs import frozen

from agentmem.records.base import Source
from agentmem.types import Origin, RecordType

_OF: Final = {
    "note": "SELECT project, revision, origin FROM note WHERE id = ?",
    "entity": "SELECT project, revision, origin FROM entity WHERE id = ?",
    "session": "SELECT project, revision, origin FROM session WHERE id = ?",
    "message": "SELECT project, id, origin FROM message WHERE id = ?",
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
    """The project, revision and origin of a note, entity, item, summary, session or event of one that exists."""
    return Standing(*source.one(_OF[of], (record,)))


def project_of(source: Source, of: RecordType, record: int) -> int | None:
    """The id of the project that a record of any type belongs to now; None where it is no more."""
    if of == "project":
        return record
    if of in ("item", "summary"):
        row = source.row(
            f"SELECT note.project FROM {of} AS own JOIN note ON note.id = own.note WHERE own.id = ?", (record,)
        )
    else:
        row = source.row(f"SELECT project FROM {of} WHERE id = ?", (record,))
    return None if row is None else int(row[0])


_ORIGINAL: Final = ("note", "entity", "item", "summary", "checkpoint", "checks", "session", "message")


def origin_of(source: Source, of: str, record: int) -> Origin | None:
    """The origin of a record of any type; None for one that has none, or is no more."""
    row = source.row(f"SELECT origin FROM {of} WHERE id = ?", (record,)) if of in _ORIGINAL else None
    return None if row is None else row[0]
