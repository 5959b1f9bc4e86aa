"""The tail of a window: what changed since its head was made, who is waited for, and what the last message asks for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentmem import limits
from agentmem.context import lines
from agentmem.context.budget import Line, Section, fit
from agentmem.context.news import news
from agentmem.context.tokens import Counter
from agentmem.context.window_head import state_lines
from agentmem.errors import InvalidInput
from agentmem.recall import filters
from agentmem.recall.meaning import Meaning
from agentmem.recall.places import places
from agentmem.recall.recall import recall
from agentmem.records import session_reads
from agentmem.records.base import View
from agentmem.records.session_rows import Segment, load_event, load_session
from agentmem.session_types import SessionEvent

_PLACES: Final = 6
_MEANT: Final = 3


def tail(
    view: View,
    session: int,
    segments: Sequence[Segment],
    *,
    after: int,
    shortened: Sequence[int],
    late: Sequence[SessionEvent],
    since: int,
    asked: str,
    meaning: Meaning | None,
    budget: int,
    counter: Counter,
) -> str:
    """What stands after the recent events, in at most `budget` tokens; empty for nothing, or no room.

    Args:
        view: Where to read.
        session: The session.
        segments: It, and what it goes on from.
        after: The older part ends with this event.
        shortened: Recent events that are not whole.
        late: Recent results of calls that are not recent.
        since: The head was made at this event.
        asked: The last message of a user, by which places of the older part are looked for.
        meaning: The meaning of texts, None to go without.
        budget: In tokens.
        counter: Tokens of a text.
    """
    if budget < limits.BUDGET_MIN:
        return ""
    info = load_session(view, session)
    waiting = [
        Line(f"#{one.event} {lines.inline(one.tool)} waits for a {one.wants}", ref=f"read_event({one.event})")
        for one in session_reads.waiting(view, session=session)
    ]
    sections = [
        Section("state", "state since:", 0.3, *state_lines(view, segments, after=since), more="session.state()"),
        Section(
            "answers",
            "answers to earlier calls, the latest first:",
            0.5,
            [_answer(view, each) for each in reversed(late)],
        ),
        Section("waiting", "waiting:", 0.1, waiting),
        Section("earlier", "earlier, on this:", 0.5, _recalled(view, segments, after, shortened, asked, meaning)),
    ]
    told = [] if info.task is None or info.task != view.binding.actor.task else news(view, info.task, since)
    head = [Line(line, limit=90) for line in told]
    if not head and not any(section.count for section in sections):
        return ""
    return fit(head, sections, budget=budget, counter=counter, head_share=0.15).text


def _answer(view: View, result: SessionEvent) -> Line:
    body = {} if result.target is None else load_event(view, result.target).body or {}
    told = f" {lines.inline(str(body['name']))}" if "name" in body else ""
    text = lines.inline(result.text, result.origin)
    return Line(f"#{result.id} result of #{result.target}{told}: {text}", ref=f"read_event({result.id})", limit=300)


def _recalled(
    view: View,
    segments: Sequence[Segment],
    after: int,
    shortened: Sequence[int],
    asked: str,
    meaning: Meaning | None,
) -> list[Line]:
    """Places of the older part, and of what had to be shortened, that the last message asks for."""
    if not (after or shortened) or not asked:
        return []
    to = filters.of_session(segments, after, also=shortened)
    try:
        found = places(view, asked, to, limit=_PLACES)
        meant = recall(view, meaning, asked, to, task=None, limit=_MEANT).hits if meaning is not None else ()
    except InvalidInput:  # nothing in it can be searched for
        return []
    told = {place.id for place in found}
    answers = [(place.id, place.snippet, place.origin) for place in found]
    # By meaning too, where no word is the same.
    answers += [(hit.id, hit.snippet, hit.record.origin) for hit in meant if hit.id not in told and not hit.why.matched]
    return [
        Line(f"#{event} {lines.inline(snippet, origin)}", ref=f"read_event({event})", limit=160)
        for event, snippet, origin in answers
    ]
