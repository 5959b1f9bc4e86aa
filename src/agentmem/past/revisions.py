"""The revisions of a record: what it was before and after each event of its own."""

from __future__ import annotations

from collections.abc import Iterable

from agentmem.log.kinds import Kinds
from agentmem.past.folding import Scratch, State, events_of
from agentmem.records.base import Source

__all__ = ["State", "states"]


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
