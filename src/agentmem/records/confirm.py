"""Confirming a record: somebody looked at it again and says that it holds."""

from __future__ import annotations

from typing import Any, Final

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.log.canonical import canonical
from agentmem.records import claims, note_rows, validate
from agentmem.records.base import Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import identify
from agentmem.records.standing import standing
from agentmem.types import UNTRUSTED, Ref, Unset, Written

# Records that are no notes and have an origin.
_LIFTED: Final = ("entity", "item", "summary")


def confirm(
    unit: Unit, ref: Ref, confidence: float | None | Unset, basis: str | None | Unset, expected: int | None
) -> Written:
    """Say that a record still holds, a note with a new confidence or basis if given.

    A person's confirmation (origin `user`) lifts an untrusted record out: its text counts as checked.
    """
    found, of = identify(unit, ref)
    if of in _LIFTED:
        if not (isinstance(confidence, Unset) and isinstance(basis, Unset)):
            raise InvalidInput(f"#{found} is of type {of}", why="confidence= and basis= are of notes here")
        return _lift(unit, found, of, expected)
    if of != "note":
        raise InvalidInput(f"#{found} is of type {of}, of which there is nothing to confirm")
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    _trusted(unit)
    wanted: dict[str, Any] = {"confirmed_at": unit.now, "confirmed_by": unit.actor.author}
    if not isinstance(confidence, Unset):
        wanted["confidence"] = validate.confidence(confidence)
    if not isinstance(basis, Unset):
        wanted["basis"] = validate.optional_line(basis, "basis", limits.BASIS_CHARS)
    changes = {name: value for name, value in wanted.items() if canonical(value) != canonical(getattr(note, name))}
    if unit.actor.origin == "user" and note.untrusted:
        changes["origin"] = "user"
    elif "basis" in changes:
        changes |= unit.lowered(note.origin)
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    return Written(found, event.seq, tuple(sorted(changes)), transit=unit.transit)


def _lift(unit: Unit, found: int, of: str, expected: int | None) -> Written:
    """Have a person's word make an untrusted entity, item or summary count as checked; an agent's changes nothing."""
    now = standing(unit, of, found)
    expect(now.revision, expected, found)
    _trusted(unit)
    if unit.actor.origin != "user" or now.origin not in UNTRUSTED:
        return Written(found, now.revision, transit=unit.transit)
    claims.guard(unit, found)
    event = unit.append(f"{of}.changed", {"set": {"origin": "user"}}, record=found, project=now.project)
    return Written(found, event.seq, ("origin",), transit=unit.transit)


def _trusted(unit: Unit) -> None:
    if unit.actor.origin in UNTRUSTED:
        raise InvalidInput(f"Text from {unit.actor.origin} confirms nothing", next="Confirm as a user or an agent")
