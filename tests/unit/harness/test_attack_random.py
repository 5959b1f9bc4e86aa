"""Whatever clients do, and whenever: a worker comes to an end, and what it leaves is as it should be."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import Store
from agentmem.errors import AgentMemError
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call, Tool
from agentmem.store.sessions import Session

BEGIN = 1_750_000_000_000_000
SECOND = 1_000_000
ROUNDS = 60

ACTIONS = st.sampled_from(
    [
        "message", "message", "interrupt", "allow", "deny", "timer past", "timer soon", "custom", "custom lapsing", "result",
        "wait", "system", "fork", "by hand",
    ]
)  # fmt: skip
REPLIES = st.sampled_from(
    [
        "text",
        "plain",
        "ask",
        "alone",
        "several",
        "mixed",
        "refusal",
        "refusal with calls",
        "error",
        "paused",
        "unknown",
        "bad",
    ]
)


class World:
    """A session, its clock, and what clients do to it, a batch at each moment that comes."""

    def __init__(self, folder: str, batches: list[list[str]], replies: list[str]) -> None:
        self.now = BEGIN
        self.store = Store.open(
            Path(folder) / "random.db",
            project="acme",
            key=os.urandom(32),
            durability="normal",
            clock=self.clock,
            embedder=None,
        )
        self.batches, self.replies = list(batches), list(replies)
        self.session = self.store.sessions.start()
        self.begun: list[int] = []
        self.inside: Session | None = None  # as a tool that runs sees it

    def clock(self) -> int:
        self.now += 1
        return self.now

    def act(self) -> None:
        """What clients do at this moment."""
        for action in self.batches.pop(0) if self.batches else []:
            with contextlib.suppress(AgentMemError):
                self.done(action)

    def done(self, action: str) -> None:
        session = self.session
        match action:
            case "message":
                session.append("user.message", "hello")
            case "interrupt":
                session.append("user.interrupt")
            case "allow" | "deny":
                for waiting in session.waiting()[:1]:
                    session.confirm(waiting.event, "allow" if action == "allow" else "deny", seconds=30)
            case "timer past" | "timer soon":
                session.append("agentmem.timer", {"at": 0 if action == "timer past" else self.now + 20 * SECOND})
            case "custom" if self.inside is not None:
                self.inside.append("agent.custom_tool_use", {"name": "theirs", "input": {}})
            case "custom lapsing" if self.inside is not None:
                lapse = self.now + 20 * SECOND
                self.inside.append("agent.custom_tool_use", {"name": "theirs", "input": {}, "expires_at": lapse})
            case "result":
                for event in session.events(types=("agent.custom_tool_use",), limit=1000):
                    with contextlib.suppress(AgentMemError):
                        session.append("user.custom_tool_result", {"custom_tool_use_id": event.id, "content": "theirs"})
            case "by hand":
                for event in session.events(types=("agent.tool_use",), newest_first=True, limit=1):
                    session.append("user.tool_result", {"tool_use_id": event.id, "content": "by hand"})
            case "wait":
                self.now += 40 * SECOND
            case "system":
                session.append("system.message", "note")
            case "fork":
                session.fork()

    def model(self, request: ModelRequest) -> Reply | str:
        self.act()
        reply = self.replies.pop(0) if self.replies else "text"
        names = {
            "plain": ["plain"], "ask": ["ask"], "alone": ["alone"], "several": ["plain", "plain", "alone"],
            "mixed": ["ask", "plain", "alone", "ask"], "refusal with calls": ["plain", "ask"], "unknown": ["unheard"],
        }.get(reply, [])  # fmt: skip
        calls = tuple(ToolCall(name) for name in names)
        match reply:
            case "error":
                raise OSError("down")
            case "bad":
                return Reply.of("a\0")
            case "text":
                return "text"
            case "paused":
                return Reply(({"type": "text", "text": "so far"},), stop_reason="pause_turn")
            case "refusal" | "refusal with calls":
                return Reply((), calls, stop_reason="refusal")
        return Reply.of("", *calls)

    def tools(self) -> Iterator[Tool]:
        def ran(asked: Call) -> str:
            self.begun.append(asked.event)
            self.inside = asked.store.sessions.get(asked.session)
            self.act()
            self.inside = None
            return asked.tool

        def plain(asked: Call) -> str:
            """Run beside others."""
            return ran(asked)

        def alone(asked: Call) -> str:
            """Run alone."""
            return ran(asked)

        def ask(asked: Call) -> str:
            """Ask first."""
            return ran(asked)

        yield tool(plain)
        yield tool(parallel=False)(alone)
        yield tool(permission="ask", expires=60)(ask)


def worked(world: World, harness: Harness) -> None:
    """A worker until nothing is ready."""
    for _ in range(ROUNDS):
        if not world.store.sessions.ready():
            return
        harness.work()
    raise AssertionError(f"always ready: {world.store.sessions.ready()}, {world.session.info.stop_reason}")


def check(world: World) -> None:
    """What holds of every session that nobody has anything to do with."""
    session = world.session
    info = session.info
    assert session.holder() is None
    assert info.status == "idle"
    events = _all(session)
    results = [event.target for event in events if event.type.endswith("tool_result")]
    calls = [event for event in events if event.type in ("agent.tool_use", "agent.custom_tool_use")]
    open_ = [event.id for event in calls if event.id not in results]
    assert len(results) == len(set(results))
    reason: Any = info.stop_reason or {"type": "never ran"}
    if reason["type"] != "never ran":
        assert (reason["type"] == "requires_action") == bool(open_)
    if open_ and reason["type"] != "never ran":
        assert reason["event_ids"] == open_
        assert {waiting.event for waiting in session.waiting()} == set(open_)
    started = [event.target for event in events if event.type == "agentmem.tool_started"]
    assert len(started) == len(set(started))
    assert len(world.begun) == len(set(world.begun))
    assert set(started) <= set(world.begun)
    for event in events:
        later = {each.type for each in events if each.id > event.id}
        if event.type == "user.message" and not open_ and "user.interrupt" not in later:
            assert "span.model_request_start" in later
    assert world.store.verify(replay=True)


def _all(session: Session) -> list[Any]:
    found: list[Any] = []
    while page := session.events(after=found[-1].id if found else 0, limit=1000):
        found += page
    return found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(ACTIONS, max_size=3), max_size=14), st.lists(REPLIES, max_size=8), st.integers(1, 4),
    st.sampled_from([1, 8]),
)  # fmt: skip
def test_a_worker_always_comes_to_an_end(
    batches: list[list[str]], replies: list[str], turns: int, parallel: int
) -> None:
    """Nothing is ready for ever, no call is without a result that nobody is asked for, no message was not heard."""
    with tempfile.TemporaryDirectory() as folder:
        world = World(folder, batches, replies)
        harness = Harness(
            world.store, world.model, list(world.tools()), max_turns=turns, retries=1, retry_seconds=0, parallel=parallel,
            lease_seconds=3600,
        )  # fmt: skip
        rounds: list[Callable[[], None]] = [world.act, lambda: worked(world, harness)]
        try:
            while world.batches:
                for step in rounds:
                    step()
            worked(world, harness)
            check(world)
        finally:
            world.store.close()
