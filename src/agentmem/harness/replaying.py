"""Replay: a session run again against what its tools answered then, for tests. Nothing is done outside, nothing is written.

What people said and allowed comes from the record, at the same place between the turns; the model is asked anew, or is the
recorded one. Each call is answered by what the same tool answered to the same input; one that was never made is told so.
"""

from __future__ import annotations

import os
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen

from agentmem import limits
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall, Usage
from agentmem.harness.request import Model, ModelRequest
from agentmem.harness.toolset import Call, Tool, named
from agentmem.log.canonical import canonical
from agentmem.records import vocabulary
from agentmem.session_types import SessionEvent
from agentmem.store import Store
from agentmem.store.sessions import Session

__all__ = ["Recorded", "Replayed", "replay"]

NOT_RECORDED = "This call was not made in the session that is replayed; there is no outcome of it."


@frozen
class Replayed:
    """What a replay came to.

    Attributes:
        events: The events of the replay, with ids of its own.
        differences: Where the agent did otherwise than then, a sentence each: calls and last words, in order; empty for
            nowhere.
        unrecorded: The calls that were not made then: tool and input as canonical JSON.
    """

    events: tuple[SessionEvent, ...]
    differences: tuple[str, ...]
    unrecorded: tuple[str, ...]


class Recorded:
    """What is recorded of a session: what was said to the agent, what it said, and what its tools answered.

    Args:
        session: The session; it is only read.
    """

    def __init__(self, session: Session) -> None:
        self.events = tuple(_all(session))
        self.title = session.info.title
        self._answers: dict[str, deque[SessionEvent]] = {}
        results = {event.target: event for event in self.events if event.type in vocabulary.RESULTS}
        for call in self.events:
            if call.type in vocabulary.CALLS and call.body is not None and call.id in results:
                self._answers.setdefault(_asked(call.body), deque()).append(results[call.id])
        self.calls = [call for call in self.events if call.type in vocabulary.CALLS and call.body is not None]
        self.unrecorded: list[str] = []

    def tools(self) -> list[Tool]:
        """A tool for each name that was called: it answers what was answered then, and does nothing."""
        # A model may have called what no tool can be named; such a call is answered by that again.
        called = dict.fromkeys(str(call.body["name"]) for call in self.calls if call.body)
        names = [name for name in called if named(name)]
        asking = {str(call.body["name"]) for call in self.calls if call.body and call.body.get("permission") == "ask"}
        return [
            Tool(
                name, "Recorded", {"type": "object", "additionalProperties": True}, self._answered, idempotent=True,
                permission="ask" if name in asking else "allow", parallel=False, output_chars=16_000_000,
            )
            for name in names
        ]  # fmt: skip

    def _answered(self, call: Call) -> str:
        waiting = self._answers.get(_asked({"name": call.tool, "input": call.input}))
        if not waiting:
            self.unrecorded.append(f"{call.tool} {canonical(call.input)}")
            return NOT_RECORDED
        # Asked more often than then, a tool gives its last answer again.
        return (waiting.popleft() if len(waiting) > 1 else waiting[0]).text

    def model(self) -> Model:
        """A model that says what was said then, turn by turn, whatever it is asked: for tests of tools."""
        replies = deque(self._replies())

        def recorded(request: ModelRequest) -> Reply:
            return replies.popleft() if replies else Reply.of("")

        return recorded

    def _replies(self) -> Iterable[Reply]:
        """What the model answered, request by request."""
        content: list[Mapping[str, Any]] = []
        calls: list[ToolCall] = []
        open_ = False
        for event in self.events:
            body = event.body or {}
            if event.type == "span.model_request_end":
                if open_:
                    yield _reply(content, calls)
                content, calls, open_ = [], [], not body.get("is_error", False)
            elif open_ and event.type == "agent.message":
                content += body["content"]
            elif open_ and event.type in vocabulary.CALLS:
                calls.append(ToolCall(body["name"], body["input"], body.get("provider_id"), body.get("broken")))
        if open_:
            yield _reply(content, calls)


def _reply(content: list[Mapping[str, Any]], calls: list[ToolCall]) -> Reply:
    return Reply(tuple(content), tuple(calls), (), "tool_use" if calls else "end_turn", Usage())


def _asked(body: Mapping[str, Any]) -> str:
    return canonical([body["name"], dict(body["input"])])


def _all(session: Session) -> Iterable[SessionEvent]:
    after = 0
    while page := session.events(after=after, limit=limits.PAGE_MAX):
        yield from page
        after = page[-1].id


def replay(
    session: Session, model: Model | None = None, *, budget: int = limits.WINDOW_DEFAULT, turns: int = 200
) -> Replayed:
    """Run a session again against its recorded outcomes.

    Args:
        session: The session; it is only read.
        model: What answers; the recorded one if none is given.
        budget: Tokens of a window.
        turns: Answers of the model between two words of the user.

    Returns:
        What was done, and where that differs from then.
    """
    recorded = Recorded(session)
    with tempfile.TemporaryDirectory(prefix="agentmem-replay-") as folder:
        path = Path(folder) / "replay.db"
        with Store.open(path, project="replay", key=os.urandom(32), durability="normal", embedder=None) as store:
            other = store.sessions.start(title=recorded.title)
            harness = Harness(
                store, recorded.model() if model is None else model, recorded.tools(), budget=budget, max_turns=turns,
                retries=0,
            )  # fmt: skip
            _told(recorded, other, harness)
            events = tuple(_all(other))
    return Replayed(events, tuple(_differences(recorded.events, events)), tuple(recorded.unrecorded))


def _told(recorded: Recorded, other: Session, harness: Harness) -> None:
    """Say and allow what was said and allowed then, and let the agent go on in between."""
    decisions = deque(event.body for event in recorded.events if event.type == "user.tool_confirmation" and event.body)
    said: list[SessionEvent] = []
    for event in recorded.events:
        if event.body is not None and (event.type in ("user.message", "system.message") or event.type.startswith("x.")):
            said.append(event)
        elif event.type == "session.status_running" and said:
            _said(other, said)
            said = []
            _run(other, harness, decisions)
    if said:
        _said(other, said)
        _run(other, harness, decisions)


def _said(other: Session, events: Iterable[SessionEvent]) -> None:
    for event in events:
        if event.body is not None:
            other.append(event.type, event.body, key=event.key, origin=event.origin)


def _run(other: Session, harness: Harness, decisions: deque[dict[str, Any]]) -> None:
    woken = harness.wake(other)
    while woken.waiting and decisions:
        for call in woken.waiting:
            decided = decisions.popleft() if decisions else {"result": "deny"}
            result: Any = decided["result"]
            other.confirm(call, result, message=decided.get("deny_message"), by=decided.get("by"))
        woken = harness.wake(other)


def _differences(then: Iterable[SessionEvent], now: Iterable[SessionEvent]) -> Iterable[str]:
    one, other = _done(then), _done(now)
    for number, (former, later) in enumerate(zip(one, other, strict=False), 1):
        if former != later:
            yield f"step {number}: {later} instead of {former}"
            return
    for missing in one[len(other) :]:
        yield f"step {len(other) + 1}: nothing instead of {missing}"
        return
    for more in other[len(one) :]:
        yield f"step {len(one) + 1}: {more} more than then"
        return


def _done(events: Iterable[SessionEvent]) -> list[str]:
    kept = ("agent.message", *vocabulary.CALLS)
    return [
        f"{event.type.partition('.')[2]} {event.text[:200]!r}" for event in events if event.type in kept and event.text
    ]
