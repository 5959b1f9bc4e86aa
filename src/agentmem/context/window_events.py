"""The recent events of a window: which belong together, how one that is too large is shortened, how one reads as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentmem.context.tokens import Counter, cut
from agentmem.log.canonical import canonical
from agentmem.records import vocabulary
from agentmem.session_types import SessionEvent

SHOWN: Final = (
    "user.message", "user.tool_result", "user.custom_tool_result", "user.tool_confirmation", "user.interrupt",
    "system.message", "agent.message", "agent.thinking", "agent.tool_use", "agent.tool_result", "agent.mcp_tool_use",
    "agent.mcp_tool_result", "agent.custom_tool_use", "agent.thread_message_received", "agent.thread_message_sent",
)  # fmt: skip
"""The types that a model is shown as they are: what was said, called and answered."""

READ_MOST: Final = 2000
_LEAST: Final = 24  # tokens of an event that is shown at all
_FAIR: Final = 80  # what each of a turn gets, less says too little where something else can be shown
CHARS_PER_TOKEN: Final = 16  # what is longer is too long without being counted


@frozen
class Recent:
    """Recent events as they are shown.

    Attributes:
        events: In order; some shortened.
        shortened: The ids of these.
        cost: In tokens, as text.
    """

    events: tuple[SessionEvent, ...]
    shortened: tuple[int, ...]
    cost: int


def closed(events: Sequence[SessionEvent]) -> list[SessionEvent]:
    """The events without calls that have no result among them, and without results whose call is not among them."""
    there = [event for event in events if event.body is not None]
    calls = {event.id for event in there if event.type in vocabulary.CALLS}
    answered = {event.target for event in there if event.type in vocabulary.RESULTS}
    both = calls & answered
    return [
        event
        for event in there
        if (event.type not in vocabulary.CALLS or event.id in both)
        and (event.type not in vocabulary.RESULTS or event.target in both)
        and (event.type != "user.tool_confirmation" or event.target in both)
    ]


def groups(events: Sequence[SessionEvent]) -> list[list[SessionEvent]]:
    """The events in the smallest parts that keep each call together with its result, and a turn of the agent whole."""
    ends: dict[int, int] = {}
    places = {event.id: place for place, event in enumerate(events)}
    for place, event in enumerate(events):
        if event.type in vocabulary.RESULTS and event.target in places:
            ends[places[event.target]] = place
    found: list[list[SessionEvent]] = []
    part: list[SessionEvent] = []
    until = -1
    for place, event in enumerate(events):
        part.append(event)
        until = max(until, ends.get(place, -1))
        going_on = place + 1 < len(events) and _of_one_turn(event, events[place + 1])
        if place >= until and not going_on:
            found.append(part)
            part = []
    if part:
        found.append(part)
    return found


def _of_one_turn(one: SessionEvent, other: SessionEvent) -> bool:
    """Whether two neighbours are said by the agent in one breath: thoughts, words and calls."""
    said = ("agent.thinking", "agent.message", *vocabulary.CALLS)
    return one.type in said and other.type in said and one.type != "agent.message"


def shaped(events: Sequence[SessionEvent], most: int, counter: Counter) -> Recent:
    """The events, each at most so many tokens long."""
    found, shortened, cost = [], [], 0
    for event in events:
        shown, own = _fitted(event, most, counter)
        if shown is not event:
            shortened.append(event.id)
        found.append(shown)
        cost += own
    return Recent(tuple(found), tuple(shortened), cost)


def begun(events: Sequence[SessionEvent], room: int, first_room: int, most: int, counter: Counter) -> Recent | None:
    """As `shaped`, with the first group as `latest` shortened it when it stood alone; None where that is no less."""
    parts = groups(events)
    if not parts:
        return None
    first = shaped(parts[0], most, counter)
    if first.cost <= first_room:
        return None
    first = shaped(parts[0], _each(parts[0], first_room), counter)
    rest = shaped(events[len(parts[0]) :], most, counter)
    if first.cost + rest.cost > room:
        return None
    return Recent(first.events + rest.events, first.shortened + rest.shortened, first.cost + rest.cost)


def _each(part: Sequence[SessionEvent], room: int) -> int:
    return max(room // len(part) - 1, _LEAST)


def latest(events: Sequence[SessionEvent], room: int, most: int, counter: Counter) -> Recent:
    """The latest events that fit, in whole groups; the last group shortened as much as it needs, or nothing.

    A call that was answered late holds all that was said meanwhile together with it: then what fits is shown without it.
    """
    chosen: list[Recent] = []
    spent = 0
    for part in reversed(groups(events)):
        made = shaped(part, most, counter)
        if spent + made.cost > room:
            if not chosen:
                made = _crowded(part, room, most, counter)
                if made.cost <= room:
                    chosen.append(made)
            break
        chosen.append(made)
        spent += made.cost
    chosen.reverse()
    # A model is asked by a user: an answer without its question goes with what is older.
    return Recent(
        tuple(event for part in chosen for event in part.events),
        tuple(event for part in chosen for event in part.shortened),
        sum(part.cost for part in chosen),
    )


def _crowded(part: Sequence[SessionEvent], room: int, most: int, counter: Counter) -> Recent:
    """Of a group that has no room: its last events without calls answered late, else all of it, shortened."""
    if _each(part, room) < _FAIR:
        place, spent = len(part), 0
        while place > 0:
            _, own = _fitted(part[place - 1], most, counter)
            if spent + own > room:
                break
            spent += own
            place -= 1
        found = shaped(closed(part[place:]), most, counter)
        if found.events:
            return found
    return shaped(part, _each(part, room), counter)


def late(events: Sequence[SessionEvent], told: Sequence[SessionEvent]) -> list[SessionEvent]:
    """The results that are not told because their calls came long before them."""
    shown = {event.id for event in told}
    calls = {event.id for event in events if event.type in vocabulary.CALLS}
    return [
        event
        for event in events
        if event.type in vocabulary.RESULTS
        and event.body is not None
        and event.id not in shown
        and event.target not in calls
    ]


def _fitted(event: SessionEvent, most: int, counter: Counter) -> tuple[SessionEvent, int]:
    """The event in at most so many tokens, and what it costs."""
    long = len(event.text) > most * CHARS_PER_TOKEN  # hundreds of MB take long to be counted
    own = most + 1 if long else cost(event, counter)
    if own <= most:
        return event, own
    if "input" in (event.body or {}) and _crowd((event.body or {})["input"], most) >= most:
        shown = evolve(event, body=_bare(event))
        return shown, cost(shown, counter)
    room = most
    for _ in range(8):
        shown = evolve(event, body=_shortened(event, max(room, 1), counter))
        own = cost(shown, counter)
        if own <= most:
            return shown, own
        room = room * 3 // 4 - 4
        if room < 1:
            break
    shown = evolve(event, body=_bare(event))
    return shown, cost(shown, counter)


def cost(event: SessionEvent, counter: Counter) -> int:
    """What an event costs as text."""
    return counter(rendered(event) + "\n")


def rendered(event: SessionEvent) -> str:
    """An event as text: its number, its type, what it says."""
    body = event.body or {}
    after = f" of #{event.target}" if event.target is not None else ""
    said = vocabulary.said(event.type, body)
    if event.type == "agent.thinking":
        said = canonical(body.get("content", []))
    elif event.type == "user.tool_confirmation":
        said = " ".join(filter(None, (body.get("result"), body.get("deny_message"))))
    return f"#{event.id} {event.type}{after}: {said}"


def _ending(event: SessionEvent) -> str:
    return f"… [#{event.id} has {len(event.text)} characters in all: read_event({event.id}, offset) has the rest]"


def _shortened(event: SessionEvent, room: int, counter: Counter) -> dict[str, Any]:
    """The body with its long texts cut."""
    ending = _ending(event)
    body = dict(event.body or {})
    if "content" in body and event.type != "agent.thinking":
        text = cut(event.text, max(room - counter(ending), 1), counter, ending=lambda _: ending)
        body["content"] = [{"type": "text", "text": text or ending}]
    if "input" in body:
        body["input"] = _cut_strings(body["input"], max(room * 2, 40))
    return body


def _cut_strings(value: Any, most: int) -> Any:
    """A value of JSON whose texts have at most so many characters."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}… [{len(value)} characters in all]"
    if isinstance(value, dict):
        return {name: _cut_strings(part, most) for name, part in value.items()}
    if isinstance(value, list):
        return [_cut_strings(part, most) for part in value]
    return value


def _crowd(value: Any, most: int) -> int:
    """How many parts a value of JSON has, counted up to `most`: so many can't be shortened by cutting texts."""
    if isinstance(value, (dict, list)):
        parts = value.values() if isinstance(value, dict) else value
        found = 1
        for part in parts:
            found += _crowd(part, most)
            if found >= most:
                break
        return found
    return 1


def _bare(event: SessionEvent) -> dict[str, Any]:
    """The least that an event can be shown as."""
    body = dict(event.body or {})
    if "content" in body:
        body["content"] = (
            [] if event.type == "agent.thinking" else [{"type": "text", "text": f"[cut: read_event({event.id})]"}]
        )
    if "input" in body:
        body["input"] = {"cut": f"read_event({event.id})"}
    return body
