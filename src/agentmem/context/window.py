"""The window of a session: what the next call of a model needs, within a budget of tokens.

It has three parts, in this order:

- the *head*: the session, its state, pinned events, the task's `resume`, and what is left of the older part. It stays the
  same, byte for byte, until it has to be made anew, and is kept in the log for that: the cache of a provider hits.
- the *recent events*, whole, in order; only ever appended to between two heads. A call never stands there without its
  result, nor the reverse. An event too large for its share is shortened, and says how to read on.
- the *tail*: what changed since the head was made, and places of the older part that the last message asks for.

When the recent events outgrow the budget, a new head is made and the older of them go into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentmem import limits
from agentmem.context import window_events as shape
from agentmem.context import window_head as heads
from agentmem.context import window_tail as tails
from agentmem.context.answer import Answer
from agentmem.context.lines import remembering
from agentmem.context.tokens import Counter, cut
from agentmem.errors import InvalidInput, shown
from agentmem.recall.meaning import Meaning
from agentmem.records import session_reads, validate, vocabulary
from agentmem.records.base import View
from agentmem.records.session_rows import COMPACTED, Segment, lineage, load_event
from agentmem.session_types import SessionEvent

__all__ = ["COMPACTED", "Window", "kept", "window"]

_HEAD_SHARE: Final = 0.35
_RECENT_SHARE: Final = 0.3  # of a new window, so that it has room to grow
_TAIL_SHARE: Final = 0.12
_EVENT_SHARE: Final = 0.2  # of one event while it stands among others


@frozen
class Window(Answer):
    """What the next call of a model needs.

    Attributes:
        session: The session.
        seq: Its last event when this was read.
        head: What stands before the recent events; the same from call to call.
        events: The recent events. One in `shortened` has not all of its text.
        tail: What stands after them, made anew each time; empty for nothing.
        text: All of it as one text, within the budget.
        tokens: Of the text, by the counter.
        budget: In tokens.
        after: The recent events are those after this one.
        cut: The event of the log that holds the head; None where it is not kept.
        fresh: Whether the head was made anew by this call: `Session.compact` keeps it.
        pinned: The events that were asked to be in it.
        shortened: Events that are not whole.
        left_out: How many earlier events stand in no part of it; `session.read` has them.
    """

    session: int
    seq: int
    head: str
    events: tuple[SessionEvent, ...]
    tail: str
    text: str
    tokens: int
    budget: int
    after: int
    cut: int | None
    fresh: bool
    pinned: tuple[int, ...]
    shortened: tuple[int, ...]
    left_out: int


def window(
    view: View,
    session: int,
    *,
    budget: int,
    pinned: Sequence[int],
    counter: Counter,
    asked: str,
    meaning: Meaning | None,
) -> Window:
    """The answer of `Session.window`."""
    if type(budget) is not int or not limits.WINDOW_MIN <= budget <= limits.BUDGET_MAX:
        raise InvalidInput(
            f"budget={shown(budget)} is out of range",
            why=f"It is in tokens, from {limits.WINDOW_MIN} to {limits.BUDGET_MAX}",
            next=f"Leave it out for {limits.WINDOW_DEFAULT}",
        )
    segments = lineage(view, session)
    chosen = tuple(validate.cursor(each, "pinned") for each in validate.batch(pinned, "pinned"))
    if len(chosen) > limits.PINNED_EVENTS:
        raise InvalidInput(f"{len(chosen)} pinned events, {limits.PINNED_EVENTS} at most")
    for each in chosen:
        session_reads.in_lineage(view, segments, each)
    made = _Made(view, session, segments, budget, chosen, remembering(counter), asked, meaning)
    return made.again() or made.anew()


def kept(found: Window) -> dict[str, Any]:
    """The body of the event that keeps a head in the log."""
    return {
        "head": found.head, "after": found.after, "budget": found.budget, "pinned": list(found.pinned),
        "left_out": found.left_out,
    }  # fmt: skip


class _Made:
    """One window as it is made."""

    def __init__(
        self,
        view: View,
        session: int,
        segments: Sequence[Segment],
        budget: int,
        pinned: tuple[int, ...],
        counter: Counter,
        asked: str,
        meaning: Meaning | None,
    ) -> None:
        self.view, self.session, self.segments = view, session, segments
        self.budget, self.pinned, self.counter = budget, pinned, counter
        self.asked, self.meaning = asked, meaning
        self.tail_room = max(int(budget * _TAIL_SHARE), limits.BUDGET_MIN)

    def again(self) -> Window | None:
        """With the head that is in the log, None where there is none that fits."""
        row = self.view.row("SELECT compacted FROM session WHERE id = ?", (self.session,))
        if row is None or row[0] is None:
            return None
        event = load_event(self.view, row[0])
        body = event.body or {}
        if not body.keys() >= {"head", "after"} or tuple(body.get("pinned", ())) != self.pinned:
            return None
        head, after = body["head"], body["after"]
        room = self.budget - self.counter(head + "\n") - self.tail_room
        found = self._recent(after, room) if after <= event.id else None
        if found is None:
            return None
        recent, late = found
        return self._put_together(head, recent, after, late, self._left_out(after), cut=event.id, since=event.id)

    def _left_out(self, after: int) -> int:
        """How many events come before a place, counted from that of the last head: of a long session that is soon done."""
        row = self.view.row("SELECT compacted FROM session WHERE id = ?", (self.session,))
        body = {} if row is None or row[0] is None else load_event(self.view, row[0]).body or {}
        begun, counted = (body["after"], body["left_out"]) if body.keys() >= {"after", "left_out"} else (0, 0)
        if begun > after:
            begun = counted = 0
        return counted + session_reads.counted(self.view, self.segments, after, shape.SHOWN, after=begun)

    def _recent(self, after: int, room: int) -> tuple[shape.Recent, list[SessionEvent]] | None:
        """The events after a place, and results of calls before it; None if they do not fit."""
        found = session_reads.events(
            self.view, self.segments, after=after, types=shape.SHOWN, limit=shape.READ_MOST + 1
        )
        if len(found) > shape.READ_MOST:
            return None
        whole = shape.closed(found)
        recent: shape.Recent | None = shape.shaped(whole, self._event_room(), self.counter)
        if recent is not None and recent.cost > room:
            recent = shape.begun(whole, room, self._most(self._room()), self._event_room(), self.counter)
        return None if recent is None else (recent, shape.late(found, recent.events))

    def _room(self) -> int:
        """Of the recent events of a window whose head is as large as it may be."""
        return self.budget - self._head_room() - self.tail_room

    def _head_room(self) -> int:
        return max(int(self.budget * _HEAD_SHARE), limits.BUDGET_MIN)

    def _most(self, room: int) -> int:
        return min(room, int(self.budget * _RECENT_SHARE))

    def _event_room(self) -> int:
        return int(self.budget * _EVENT_SHARE)

    def anew(self) -> Window:
        """With a new head."""
        newest, everything = session_reads.latest(
            self.view, self.segments, types=shape.SHOWN, limit=shape.READ_MOST,
            chars=self.budget * shape.CHARS_PER_TOKEN, each=self._event_room() * shape.CHARS_PER_TOKEN,
        )  # fmt: skip
        whole = shape.closed(newest)
        # Everything, if that leaves room to grow; else the latest of it.
        room = self._room()
        recent = shape.shaped(whole, self._event_room(), self.counter)
        if not everything or recent.cost > room * 0.8:
            recent = shape.latest(whole, self._most(room), self._event_room(), self.counter)
        after = recent.events[0].id - 1 if recent.events else self._last_told(newest)
        left_out = self._left_out(after)
        head = heads.head(
            self.view, self.session, self.segments, after=after, left_out=left_out, pinned=self.pinned, recent=recent.events,
            budget=self._head_room(), counter=self.counter,
        )  # fmt: skip
        late = shape.late([event for event in newest if event.id > after], recent.events)
        return self._put_together(head, recent, after, late, left_out, cut=None, since=self.view.seq)

    def _last_told(self, newest: Sequence[SessionEvent]) -> int:
        """The last event that is no call still to be answered: what comes before it goes with what is older."""
        answered = {event.target for event in newest if event.type in vocabulary.RESULTS}
        told = (event.id for event in newest if event.type not in vocabulary.CALLS or event.id in answered)
        return max(told, default=0)

    def _put_together(
        self,
        head: str,
        recent: shape.Recent,
        after: int,
        late: Sequence[SessionEvent],
        left_out: int,
        *,
        cut: int | None,
        since: int,
    ) -> Window:
        room = self.budget - self.counter(head + "\n") - recent.cost
        tail = tails.tail(
            self.view, self.session, self.segments, after=after, shortened=recent.shortened, late=late, since=since,
            asked=self.asked, meaning=self.meaning, budget=min(room, self.tail_room), counter=self.counter,
        )  # fmt: skip
        found = Window(
            self.session, self.view.number("SELECT last FROM session WHERE id = ?", (self.session,)), head, recent.events,
            tail, "", 0, self.budget, after, cut, cut is None, self.pinned, recent.shortened, left_out,
        )  # fmt: skip
        return _measured(found, self.counter)


def _measured(found: Window, counter: Counter) -> Window:
    """The window with its text. By a counter that is not subadditive a part may have to go: the tail first."""
    lines = [shape.rendered(event) for event in found.events]
    text = "\n".join(part for part in (found.head, *lines, found.tail) if part)
    tokens = counter(text)
    if tokens <= found.budget:
        return evolve(found, text=text, tokens=tokens)
    if found.tail:
        return _measured(evolve(found, tail=""), counter)
    if found.events:
        further = found.left_out + len(found.events)
        return _measured(evolve(found, events=(), after=found.events[-1].id, left_out=further), counter)
    head = cut(found.head, found.budget, counter)
    return evolve(found, head=head, text=head, tokens=counter(head))
