"""Sessions that were copied: they go on where they came from, and nothing of them is run here as well."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from attrs import evolve

from agentmem.errors import Corrupt
from agentmem.records import sessions
from agentmem.records.base import Source, Unit
from agentmem.records.session_rows import lineage, load_session
from agentmem.session_types import SessionInfo
from agentmem.transfer.renumber import Renumbering

__all__ = ["put_away"]

_NOT_RUN: Final = (
    "This call had no result where the conversation was copied. Whether it ran is not known here; it was not run again."
)


def put_away(unit: Unit, file: Source, numbers: Renumbering, copied: Iterable[int]) -> int:
    """Close the calls of copied sessions that have no result, and archive the sessions.

    Args:
        unit: Where to write.
        file: The records of the file as everything ends, under their own ids.
        numbers: What stands here for what of the file.
        copied: The sessions of the file.

    Returns:
        How many events were written.

    Raises:
        Corrupt: The file does not have what a session is about: it would be kept apart from nothing.
    """
    events = 0
    for record in copied:
        here = numbers.to[record]
        actor = evolve(unit.actor, session=here, origin=numbers.origin(unit.actor.origin))
        speaking = unit.acting(actor)
        info = load_session(speaking, here)
        changes: dict[str, Any] = {}
        if (about := _about(file, numbers, record)) != info.about:
            changes["entity"] = about
        if info.archived_at is None:
            events += _closed(speaking, info)
            changes["archived_at"] = unit.now
        if changes:
            speaking.append("session.changed", {"set": changes}, record=here, project=info.project, session=here)
            events += 1
    return events


def _about(file: Source, numbers: Renumbering, session: int) -> int | None:
    """What a session of the file is about at last, as a record here."""
    (entity,) = file.one("SELECT entity FROM session WHERE id = ?", (session,))
    if entity is None:
        return None
    if file.row("SELECT 1 FROM entity WHERE id = ?", (entity,)) is None or entity not in numbers.to:
        raise Corrupt(f"The export has session #{session}, and not what it is about", next="Export again")
    return numbers.to[entity]


def _closed(unit: Unit, info: SessionInfo) -> int:
    if info.status == "terminated":
        return 0
    segments = lineage(unit, info.id)
    calls = [each for each in sessions.open_calls(unit, info.id) if sessions.unanswered(unit, segments, each.id)]
    for call in calls:
        sessions.append(unit, info.id, [sessions.unknown_result(call, _NOT_RUN)])
    return len(calls)
