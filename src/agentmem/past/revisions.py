"""The revisions of a record: what it was before and after each event of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from attrs import frozen

from agentmem.errors import NotFound
from agentmem.log.kinds import Kinds
from agentmem.past.event_kinds import FORGOTTEN, is_claim
from agentmem.past.fields import FieldChange, differences, origins
from agentmem.past.folding import Scratch, State, events_of
from agentmem.records import reports, validate
from agentmem.records.base import Source, View
from agentmem.records.load import load
from agentmem.types import Event, Origin, RecordType, Summary

if TYPE_CHECKING:
    from agentmem.session_types import Record

__all__ = ["Differing", "Revision", "State", "at_event", "difference", "states"]


def states(
    source: Source, kinds: Kinds, record: int, seqs: Iterable[int], *, scratch: Scratch | None = None
) -> dict[int, State | None]:
    """The whole state of one record right before each of the given events of it, in one pass over its events.

    Args:
        source: Where the log is read.
        kinds: The registered kinds.
        record: Its id.
        seqs: Events of the record; one that is not the record's has no entry in the answer.
        scratch: Used for the fold, where many records are asked for one after the other; made anew if None.

    Returns:
        By event: the state; None where the record did not exist just then, as before its creation. `known` of a state
        is false where it rests on an event that was erased.
    """
    if scratch is None:
        with Scratch(kinds) as own:
            return states(source, kinds, record, seqs, scratch=own)
    scratch.clear()
    wanted = set(seqs)
    found: dict[int, State | None] = {}
    for event in events_of(source, kinds, record, until=max(wanted, default=0)):
        if event.seq in wanted:
            found[event.seq] = scratch.state(event.type, record)
        scratch.apply(event)
    return found


@frozen
class Revision:
    """One record as it was at one moment.

    Attributes:
        seq: The event that made it so: the last of the record until then.
        state: The state.
        value: The same as a typed value.
    """

    seq: int
    state: State
    value: Record


def at_event(view: View, record: int, of: RecordType, seq: int) -> Revision:
    """A record as it was right after event `seq`, whosever event that is.

    Of a session what was set of it: how it stood, and its last event, is told by its events.

    Raises:
        NotFound: The log ends before it, the record was not there at that moment, or what it was then was purged.
    """
    if validate.cursor(seq, "seq") > view.seq:
        raise NotFound(f"There is no event {seq}", why=f"The log ends at event {view.seq}")
    last: Event | None = None
    with Scratch(view.binding.ledger.kinds) as scratch:
        for event in events_of(view, view.binding.ledger.kinds, record, until=seq):
            scratch.apply(event)
            if not is_claim(event.kind):
                last = event
        if last is None:
            raise NotFound(f"#{record} did not exist at event {seq}", why=f"Event {record} created it")
        state = scratch.state(of, record)
        if state is None:
            raise _gone(last, seq)
        if not state.known:
            raise NotFound(
                f"What #{record} was at event {seq} was purged", next=f"See revisions({record}) for what is left"
            )
        # An event of a session never changes, and what it says stands in the log alone.
        source = view if of == "message" else Source(view.binding, scratch.connection)
        return Revision(last.seq, state, _value(source, record, of))


def _gone(last: Event, seq: int) -> NotFound:
    if last.kind.endswith(FORGOTTEN):
        return NotFound(f"#{last.record} was purged", why=f"By event {last.seq}")
    if last.payload is not None and "into" in last.payload:
        return NotFound(
            f"#{last.record} was not there at event {seq}",
            why=f"Event {last.seq} made it part of #{last.payload['into']}",
        )
    return NotFound(f"#{last.record} was not there at event {seq}", why=f"Event {last.seq} took it back")


def _value(source: Source, record: int, of: RecordType) -> Record:
    """The record as the tables of one fold have it; of a summary nothing is known beneath it, so it is not stale."""
    if of == "summary":
        return Summary(*source.one(f"SELECT {reports.SUMMARY_COLUMNS} FROM summary WHERE id = ?", (record,)), False)  # type: ignore[call-arg]
    return load(source, record, of)


@frozen
class Differing:
    """What differs between two revisions of a record, and the least trusted origin of what it quotes."""

    fields: tuple[FieldChange, ...]
    trust: Origin


_TRUSTED: Final[Origin] = "user"


def difference(before: State, after: State) -> Differing:
    """What differs between two states of a record, whichever is the older."""
    fields = differences(before, after)
    trust = _TRUSTED
    for found in (*origins(before, fields), *origins(after, fields)):
        trust = validate.less_trusted(trust, found)
    return Differing(fields, trust)
