"""Recorded runs of agents as events of a session, and back: `.traj` files, as SWE-agent and others write them.

What was said, done and seen is there as messages, calls and results, to be read and searched as in any session. All else of
the file, and the order of everything, is in one last event; a text that an event has stands in it only as that event's place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeGuard

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.records.validate import NOT_TEXT

__all__ = ["TRAJECTORY", "trajectory_events", "trajectory_of"]

TRAJECTORY: Final = "x.trajectory"
_TOOL: Final = "action"
# Shorter ones are not worth a place.
_SHARED_CHARS: Final = 32
_PLACE: Final = "$"


def trajectory_events(data: Any) -> list[tuple[str, dict[str, Any]]]:
    """The events of a run: type and body of each.

    A result names its call as its place among these events, -1 for the first of them, which is what an append takes for
    events of one call.

    Args:
        data: The JSON of the file, as Python has it.
    """
    events: list[tuple[str, dict[str, Any]]] = []
    whole = data if isinstance(data, Mapping) else {}
    for role, text in _opening(whole.get("history")):
        events.append(("system.message" if role == "system" else "user.message", _said(text)))
    steps = whole.get("trajectory")
    for step in steps if isinstance(steps, list) else ():
        if isinstance(step, Mapping):
            _add_step(events, step)
    places: dict[str, int] = {}
    for place, (of, body) in enumerate(events):
        text = _text_of(of, body)
        if len(text) >= _SHARED_CHARS:
            places.setdefault(text, place)
    # As ASCII it takes any text that JSON does, halves of surrogate pairs too.
    events.append((TRAJECTORY, {"json": json.dumps(_folded(data, places))}))
    return events


def trajectory_of(events: Iterable[tuple[str, Mapping[str, Any]]]) -> Any:
    """The JSON of a run: the same value, with the names of each object in the same order.

    Args:
        events: Type and body of each event that `trajectory_events` gave, in order; ids of calls may be those of a log.

    Raises:
        InvalidInput: They are not all of them.
    """
    found = list(events)
    if not found or found[-1][0] != TRAJECTORY:
        raise InvalidInput("There is no recorded run", why=f"Its last event is of type {TRAJECTORY}")
    try:
        return _unfolded(json.loads(found[-1][1]["json"]), found)
    except (IndexError, KeyError, TypeError) as error:
        raise InvalidInput("An event of the recorded run is missing", why="Its texts stand in the others") from error


def _opening(history: Any) -> list[tuple[str, str]]:
    """What was said before the agent first spoke."""
    found = []
    for message in history if isinstance(history, list) else ():
        role, text = (message.get("role"), message.get("content")) if isinstance(message, Mapping) else (None, None)
        if role not in ("system", "user"):
            break
        if _fits(text) and text.strip():
            found.append((role, text))
    return found


def _add_step(events: list[tuple[str, dict[str, Any]]], step: Mapping[str, Any]) -> None:
    thought, action, observation = step.get("thought"), step.get("action"), step.get("observation")
    if _fits(thought) and thought.strip():
        events.append(("agent.message", _said(thought)))
    if _fits(action):
        events.append(("agent.tool_use", {"name": _TOOL, "input": {"action": action}}))
        call = len(events)
        seen = observation if _fits(observation) else ""
        events.append(("agent.tool_result", {"tool_use_id": -call, **_said(seen)}))


def _fits(text: Any) -> TypeGuard[str]:
    return isinstance(text, str) and not NOT_TEXT.search(text) and len(text) * 6 < limits.SESSION_EVENT_BYTES


def _said(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


def _text_of(of: str, body: Mapping[str, Any]) -> str:
    """The text that an event was made of."""
    return str(body["input"]["action"] if of == "agent.tool_use" else body["content"][0]["text"])


def _folded(value: Any, places: Mapping[str, int]) -> Any:
    """The value with each text that an event has as that event's place."""
    if isinstance(value, str):
        place = places.get(value)
        return value if place is None else {_PLACE: place}
    if isinstance(value, list):
        return [_folded(each, places) for each in value]
    if isinstance(value, Mapping):
        inside = {name: _folded(each, places) for name, each in value.items()}
        return {_PLACE: inside} if _PLACE in inside else inside
    return value


def _unfolded(value: Any, events: list[tuple[str, Mapping[str, Any]]]) -> Any:
    if isinstance(value, list):
        return [_unfolded(each, events) for each in value]
    if not isinstance(value, dict):
        return value
    inside = value
    if len(value) == 1 and _PLACE in value:
        inside = value[_PLACE]
        if isinstance(inside, int):
            return _text_of(*events[inside])
    return {name: _unfolded(each, events) for name, each in inside.items()}
