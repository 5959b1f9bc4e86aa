"""The events of a window as the turns of a conversation, whatever the API: who speaks, what is called, what came of it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from attrs import define, field

from agentmem.errors import InvalidInput
from agentmem.records import vocabulary

__all__ = ["Spoken", "Turn", "called", "told", "turns"]

_HEARD: Final = frozenset(("user.message", "system.message", "agent.thread_message_received"))
_SAID: Final = frozenset(("agent.message", "agent.thread_message_sent"))
_GOES_ON: Final = "(The conversation goes on.)"
_INTERRUPTED: Final = "(The user interrupted.)"
_NO_NAME: Final = re.compile("[^A-Za-z0-9_-]")
_NAME_CHARS: Final = 64


class Spoken(Protocol):
    """An event of a session, as far as a model is shown it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def type(self) -> str:
        """Its type."""

    @property
    def body(self) -> Mapping[str, Any] | None:
        """What it says."""


@define
class Turn:
    """What one side says before the other speaks again.

    Attributes:
        role: `user` or `assistant`.
        results: Of a user: the results of all calls of the turn before, by call; they stand first.
        thoughts: Of an assistant: blocks of its provider, unchanged; they stand first.
        blocks: What is said.
        calls: Of an assistant: its calls, as the event and its body; they stand last.
        tail: Of the last turn: what stands at its end.
    """

    role: str
    results: dict[int, Mapping[str, Any]] = field(factory=dict)
    thoughts: list[dict[str, Any]] = field(factory=list)
    blocks: list[dict[str, Any]] = field(factory=list)
    calls: list[tuple[int, Mapping[str, Any]]] = field(factory=list)
    tail: str = ""


def turns(events: Iterable[Spoken], tail: str = "") -> list[Turn]:
    """The turns of a conversation: user and assistant by turns, the user first and last.

    Results of calls stand right after the calls; what was said meanwhile stands after them. Blank texts are left out, and
    thoughts that led to nothing.

    Args:
        events: In order; calls with their results.
        tail: What stands at the end of the last turn.

    Raises:
        InvalidInput: A call without its result, a result without its call, or two results of a call.
    """
    made = _Turns()
    for event in events:
        if event.body is not None:
            made.add(event, event.body)
    found = made.closed()
    if not found or found[0].role != "user":
        found.insert(0, Turn("user", blocks=[_text(_GOES_ON)] if found or not tail.strip() else []))
    if found[-1].role != "user":
        found.append(Turn("user", blocks=[] if tail.strip() else [_text(_GOES_ON)]))
    if tail.strip():
        found[-1].tail = tail
    return found


class _Turns:
    """The turns of the events so far."""

    def __init__(self) -> None:
        self.found: list[Turn] = []
        self.places: dict[int, int] = {}  # of a call: its turn
        self.thoughts: list[dict[str, Any]] = []

    def add(self, event: Spoken, body: Mapping[str, Any]) -> None:
        of = event.type
        if of in _HEARD:
            self._heard(_shown(body["content"]))
        elif of == "user.interrupt":
            self._heard([_text(_INTERRUPTED)])
        elif of in _SAID:
            if blocks := _shown(body["content"]):
                self._spoken().blocks += blocks
        elif of == "agent.thinking":
            self.thoughts += [dict(block) for block in body.get("content", ())]
        elif of in vocabulary.CALLS:
            self._spoken().calls.append((event.id, body))
            self.places[event.id] = len(self.found) - 1
        elif of in vocabulary.RESULTS:
            self._answered(event.id, vocabulary.refers(of, body), body)

    def closed(self) -> list[Turn]:
        """The turns, once each call was found to have its result."""
        for place, turn in enumerate(self.found):
            after = self.found[place + 1] if place + 1 < len(self.found) else Turn("user")
            missing = [call for call, _ in turn.calls if call not in after.results]
            if missing:
                raise InvalidInput(
                    f"Call #{missing[0]} has no result among the events", next="Take the events of a window"
                )
            if turn.calls:
                after.results = {call: after.results[call] for call, _ in turn.calls}
        return self.found

    def _heard(self, blocks: list[dict[str, Any]]) -> None:
        if blocks:
            self.thoughts.clear()
            self._turn("user").blocks += blocks

    def _spoken(self) -> Turn:
        turn = self._turn("assistant")
        turn.thoughts += self.thoughts
        self.thoughts.clear()
        return turn

    def _turn(self, role: str) -> Turn:
        if not self.found or self.found[-1].role != role:
            self.found.append(Turn(role))
        return self.found[-1]

    def _answered(self, event: int, call: int | None, body: Mapping[str, Any]) -> None:
        place = None if call is None else self.places.get(call)
        if call is None or place is None:
            raise InvalidInput(
                f"#{event} is the result of call #{call}, which is not among the events before it",
                next="Take the events of a window",
            )
        if place + 1 == len(self.found):
            self.found.append(Turn("user"))
        results = self.found[place + 1].results
        if call in results:
            raise InvalidInput(f"#{event} is a second result of call #{call}")
        results[call] = body


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _shown(content: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The blocks of a message that say something; what was taken out says so."""
    found = [_text("[redacted]") if block["type"] == "redacted" else dict(block) for block in content]
    return [block for block in found if block["type"] != "text" or block["text"].strip()]


def told(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The blocks of a result that say something."""
    return _shown(result.get("content") or ())


def called(call: Mapping[str, Any]) -> str:
    """The name of a called tool, as each API accepts it: a model may have made it up, and is told of it ever after."""
    return _NO_NAME.sub("_", str(call["name"]))[:_NAME_CHARS] or "_"
