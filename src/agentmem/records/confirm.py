"""Confirming a record: somebody looked at it again and says that it holds."""

from __future__ import annotations

from typing import Any

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.log.canonical import canonical
from agentmem.records import claims, note_rows, validate
from agentmem.records.base import Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import note_id
from agentmem.types import Ref, Unset, Written


def confirm(
    unit: Unit, ref: Ref, confidence: float | None | Unset, basis: str | None | Unset, expected: int | None
) -> Written:
    """Say that a note still holds, with a new confidence or basis if given.

    A person's confirmation (origin `user`) lifts an untrusted note out: its text counts as checked.
    """
    found = note_id(unit, ref)
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    if unit.actor.origin not in ("user", "agent"):
        raise InvalidInput(f"Text from {unit.actor.origin} confirms nothing", next="Confirm as a user or an agent")
    wanted: dict[str, Any] = {"confirmed_at": unit.now, "confirmed_by": unit.actor.author}
    if not isinstance(confidence, Unset):
        wanted["confidence"] = validate.confidence(confidence)
    if not isinstance(basis, Unset):
        wanted["basis"] = validate.optional_line(basis, "basis", limits.BASIS_CHARS)
    changes = {name: value for name, value in wanted.items() if canonical(value) != canonical(getattr(note, name))}
    if unit.actor.origin == "user" and note.untrusted:
        changes["origin"] = "user"
    elif "basis" in changes and (origin := validate.less_trusted(note.origin, unit.actor.origin)) != note.origin:
        changes["origin"] = origin
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    return Written(found, event.seq, tuple(sorted(changes)), transit=unit.transit)
