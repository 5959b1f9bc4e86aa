"""What comes while a session is run is never lost: messages, decisions, interrupts, timers; nothing keeps a worker busy."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Store
from agentmem.errors import NotFound
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness, Woken
from agentmem.harness.replaying import replay
from agentmem.harness.reply import Reply, ToolCall
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call, Tool
from agentmem.store.sessions import Session

Said = Reply | str
Step = Said | Exception | Callable[[ModelRequest], Said]


def scripted(*replies: Step) -> Callable[[ModelRequest], Said]:
    """A model that answers with these, one after the other; a function among them is called."""
    waiting = list(replies)

    def model(request: ModelRequest) -> Said:
        one = waiting.pop(0)
        if isinstance(one, Exception):
            raise one
        return one(request) if callable(one) else one

    return model


def call(*names: str) -> Reply:
    return Reply.of("", *(ToolCall(name) for name in names))


def acting(do: Callable[[], Any], reply: Said) -> Callable[[ModelRequest], Said]:
    """A step of a model in whose middle somebody does something."""

    def step(request: ModelRequest) -> Said:
        do()
        return reply

    return step


@tool
def nothing() -> str:
    """Do nothing."""
    return "nothing"


@tool(permission="ask")
def ask() -> str:
    """Ask first."""
    return "allowed"


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.start()
    session.append("user.message", "first")
    return session


def texts(session: Session, *types: str) -> list[str]:
    return [event.text for event in session.events(types=types, limit=1000)]


def settled(store: Store, harness: Harness, most: int = 20) -> list[Woken]:
    """A worker, until nothing is ready."""
    found: list[Woken] = []
    for _ in range(most):
        if not store.sessions.ready():
            return found
        found += harness.work()
    raise AssertionError(f"always ready: {store.sessions.ready()}")


def test_a_message_that_comes_while_the_model_answers_is_answered(store: Store, session: Session) -> None:
    """In the same wake, though the model's own words come after it in the log."""
    seen: list[str] = []

    def last(request: ModelRequest) -> str:
        seen.extend(event.text for event in request.window.events)
        return "two"

    say = acting(lambda: session.append("user.message", "second"), "one")
    woken = Harness(store, scripted(say, last)).wake(session)
    assert (woken.text, woken.turns, woken.stop_reason) == ("two", 2, "end_turn")
    assert seen == ["first", "second", "one"]
    assert store.sessions.ready() == ()


def test_a_message_that_comes_while_a_tool_runs_is_answered(store: Store, session: Session) -> None:
    """With the result of the tool."""

    @tool
    def slow() -> str:
        """Run while somebody speaks."""
        session.append("user.message", "second")
        return "done"

    assert Harness(store, scripted(call("slow"), "both"), [slow]).wake(session).text == "both"
    assert store.sessions.ready() == ()


def test_a_message_between_the_window_and_the_request_is_answered(store: Store, session: Session) -> None:
    """The model is asked with all that was said before it was asked."""
    said = threading.Event()
    seen: list[list[str]] = []

    def model(request: ModelRequest) -> str:
        seen.append([event.text for event in request.window.events])
        return "ok"

    harness = Harness(store, model)
    compact = Session.compact

    def late(self: Session, **options: Any) -> Any:
        window = compact(self, **options)
        if not said.is_set():
            said.set()
            session.append("user.message", "second")
        return window

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "compact", late)
        harness.wake(session)
    assert seen == [["first", "second"]]


@pytest.mark.parametrize("end", ["budget_reached", "retries_exhausted", "refusal"])
def test_a_wake_that_ends_without_an_answer_leaves_later_messages_ready(
    store: Store, session: Session, end: str
) -> None:
    """What was said meanwhile is answered by the next wake, once, and then nothing is ready any more."""

    def say() -> None:
        session.append("user.message", "second")

    def failing(request: ModelRequest) -> str:
        say()
        raise OSError("down")

    refused = Reply(({"type": "text", "text": "no"},), stop_reason="refusal")
    first: Step = {"budget_reached": acting(say, "one"), "retries_exhausted": failing, "refusal": acting(say, refused)}[
        end
    ]
    harness = Harness(store, scripted(first, "two"), max_turns=1, retries=0)
    harness.wake(session)
    settled(store, harness)
    assert texts(session, "agent.message")[-1] == "two"
    assert session.status == "idle"
    assert store.sessions.ready() == ()


def test_a_decision_in_the_middle_of_a_wake_counts(store: Store, session: Session) -> None:
    """What was allowed while another tool ran runs in the same wake."""

    @tool(parallel=False)
    def slow() -> str:
        """Run while a person allows the other call."""
        (waiting,) = session.waiting()
        session.confirm(waiting.event, "allow")
        return "done"

    woken = Harness(store, scripted(call("ask", "slow"), "both"), [ask, slow]).wake(session)
    assert (woken.stop_reason, woken.text) == ("end_turn", "both")
    assert sorted(texts(session, "agent.tool_result")) == ["allowed", "done"]
    assert store.sessions.ready() == ()


def test_an_allowance_that_lapses_while_another_tool_runs_is_not_used(store: Store, clock: Any) -> None:
    """It is looked at again right before the call begins."""

    @tool(parallel=False)
    def long() -> str:
        """Take two minutes."""
        clock.advance(seconds=120)
        return "done"

    late = Tool("late", "Ask", {"type": "object"}, lambda asked: "ran", permission="ask", parallel=False)
    other = store.sessions.start()
    first = other.append("agent.tool_use", {"name": "long", "input": {}}).id
    second = other.append("agent.tool_use", {"name": "late", "input": {}, "permission": "ask"}).id
    other.confirm(second, "allow", seconds=60)
    Harness(store, scripted("end"), [long, late], lease_seconds=3600).wake(other)
    results = {event.target: event.text for event in other.events(types=("agent.tool_result",))}
    assert results[first] == "done"
    assert "lapsed" in results[second]


def test_an_interrupt_and_what_the_user_wants_instead(store: Store, session: Session) -> None:
    """The turn ends, its calls are closed, and the new message is answered, in one wake."""

    @tool(parallel=False)
    def slow(asked: Call) -> str:
        """Run while the user thinks again."""
        session.append("user.interrupt")
        session.append("user.message", "do that instead")
        assert asked.cancelled.wait(30)
        return "stopped"

    woken = Harness(store, scripted(call("slow", "nothing"), "that"), [slow, nothing]).wake(session)
    assert (woken.text, woken.stop_reason) == ("that", "end_turn")
    results = texts(session, "agent.tool_result")
    assert "stopped" in results
    assert any("interrupted" in text for text in results)
    assert store.sessions.ready() == ()


@pytest.mark.parametrize("again", [1, 3])
def test_an_interrupt_while_the_model_answers(store: Store, session: Session, again: int) -> None:
    """What it asks for is not run; said afterwards, a message is answered; each time."""

    def stop() -> None:
        session.append("user.interrupt")
        session.append("user.message", "again")

    steps = [acting(stop, call("nothing"))] * again
    woken = Harness(store, scripted(*steps, "end"), [nothing]).wake(session)
    assert woken.text == "end"
    assert texts(session, "agent.tool_result") == ["The user interrupted; this call was not run."] * again
    assert store.sessions.ready() == ()


def test_an_interrupt_of_a_session_that_waits(store: Store, session: Session) -> None:
    """It closes what waits for a person, though it was allowed a moment before; the model is not asked."""
    harness = Harness(store, scripted(call("ask", "ask")), [ask])
    woken = harness.wake(session)
    session.confirm(woken.waiting[0], "allow")
    session.append("user.interrupt")
    assert harness.wake(session).stop_reason == "end_turn"
    assert texts(session, "agent.tool_result") == ["The user interrupted; this call was not run."] * 2
    assert session.waiting() == ()
    assert store.sessions.ready() == ()


def test_an_interrupt_of_a_call_of_the_callers_own(store: Store, session: Session) -> None:
    """It is closed like any other."""
    session.append("agent.custom_tool_use", {"name": "theirs", "input": {}})
    session.append("user.interrupt")
    assert Harness(store, scripted()).wake(session).stop_reason == "end_turn"
    assert "interrupted" in texts(session, "user.custom_tool_result")[0]
    assert store.sessions.ready() == ()


def test_an_interrupt_before_the_model_was_asked(store: Store, session: Session) -> None:
    """It is not asked; an interrupt before the message interrupts nothing."""
    session.append("user.interrupt")
    assert Harness(store, scripted()).wake(session).turns == 0
    session.append("user.interrupt")
    session.append("user.message", "now")
    assert Harness(store, scripted("yes")).wake(session).text == "yes"
    assert store.sessions.ready() == ()


def test_an_interrupt_does_not_run_into_the_next_turn(store: Store, session: Session) -> None:
    """A wake that a crash ended after the interrupt was settled goes on with the new turn."""

    class Crash(BaseException):
        pass

    def crash() -> None:
        raise Crash

    def stop() -> None:
        session.append("user.interrupt")
        session.append("user.message", "instead")

    steps = scripted(acting(stop, "half"), call("nothing"), acting(crash, ""))
    with pytest.raises(Crash):
        Harness(store, steps, [nothing]).wake(session)
    assert [each.why for each in store.sessions.ready()] == ["broken"]
    assert Harness(store, scripted("end"), [nothing]).wake(session).text == "end"
    assert texts(session, "agent.tool_result") == ["nothing"]


def test_timers_of_the_past_and_the_far_future(store: Store, session: Session, clock: Any) -> None:
    """Those that are due fire together in the next wake; the others wait; none is lost, none fires twice."""

    @tool
    def remind(asked: Call) -> str:
        """Set three timers."""
        own = asked.store.sessions.get(asked.session)
        for at in (0, clock.now + 5_000_000, 9_000_000_000_000_000_000):
            own.append("agentmem.timer", {"at": at, "note": f"at {at}"})
        return "set"

    harness = Harness(store, scripted(call("remind"), "one", "two", "three"), [remind])
    harness.wake(session)
    assert [each.why for each in store.sessions.ready()] == ["due"]
    assert [woken.text for woken in settled(store, harness)] == ["two"]
    clock.advance(seconds=6)
    assert [woken.text for woken in settled(store, harness)] == ["three"]
    assert len(texts(session, "agentmem.timer_fired")) == 2


def test_a_request_of_the_callers_own_that_lapses_is_answered(store: Store, session: Session, clock: Any) -> None:
    """A custom call whose time is over keeps no worker busy: it has a result that says so."""
    body = {"name": "theirs", "input": {}, "expires_at": clock.now + 60_000_000}
    session.append("agent.custom_tool_use", body)
    harness = Harness(store, scripted("nobody was there"))
    assert harness.wake(session).stop_reason == "requires_action"
    assert store.sessions.ready() == ()
    clock.advance(seconds=61)
    assert [woken.stop_reason for woken in settled(store, harness)] == ["end_turn"]
    assert "in time" in texts(session, "user.custom_tool_result")[0]


def test_calls_of_a_refused_answer_are_closed(store: Store, session: Session) -> None:
    """They are not run, and none stays without a result."""
    refused = Reply((), (ToolCall("nothing"),), stop_reason="refusal")
    assert Harness(store, scripted(refused), [nothing]).wake(session).stop_reason == "refusal"
    assert "refused" in texts(session, "agent.tool_result")[0]


def test_an_error_of_ours_that_a_model_raises_is_a_failed_request(store: Store, session: Session) -> None:
    """It looked for a note that is not there; that is no reason to fail each wake for ever."""
    steps = scripted(NotFound("There is no note #9"), "found it")
    assert Harness(store, steps, retry_seconds=0).wake(session).text == "found it"


def test_an_error_that_cannot_be_told_is_told(store: Store, session: Session) -> None:
    """Its description raises; the request failed all the same."""

    class Odd(Exception):
        def __str__(self) -> str:
            raise ValueError("no description")

    assert Harness(store, scripted(Odd(), "better"), retry_seconds=0).wake(session).text == "better"


def test_very_many_calls_and_a_very_large_answer(store: Store, session: Session) -> None:
    """Two hundred calls at once are run; what the log cannot hold is a failed request, never a wake that fails."""
    ran: list[int] = []

    @tool
    def count(at: int) -> str:
        """Count."""
        ran.append(at)
        return str(at)

    many = Reply((), tuple(ToolCall("count", {"at": at}) for at in range(200)))
    huge = Reply.of("x" * 20_000_000)
    too_many = Reply((), tuple(ToolCall("count", {"at": at}) for at in range(2000)))
    half = Reply.of("a \ud800 b", ToolCall("count\ud800", {}))
    woken = Harness(store, scripted(many, huge, too_many, half, "end"), [count], retry_seconds=0).wake(session)
    assert woken.text == "end"
    assert sorted(ran) == list(range(200))
    assert len(texts(session, "session.error")) == 3


def test_a_worker_passes_over_what_cannot_be_run(store: Store, session: Session) -> None:
    """A session that was archived or purged meanwhile does not keep it from the others."""
    others = [store.sessions.start() for _ in range(3)]
    for other in others:
        other.append("user.message", "hello")

    def model(request: ModelRequest) -> str:
        if request.session == session.id:
            others[0].archive()
            others[1].forget()
        return "hi"

    assert [woken.session for woken in Harness(store, model).work()] == [session.id, others[2].id]


def test_a_call_that_nobody_was_asked_for_is_not_run(store: Store, session: Session) -> None:
    """Whoever wrote it: a tool that asks runs only what a person allowed, what is denied never runs."""
    for body in ({}, {"permission": "allow"}, {"evaluated_permission": "deny"}):
        session.append("agent.tool_use", {"name": "ask", "input": {}, **body})
    session.append("agent.tool_use", {"name": "nothing", "input": {}, "evaluated_permission": "deny"})
    asked = session.append("agent.tool_use", {"name": "nothing", "input": {}, "evaluated_permission": "ask"}).id
    woken = Harness(store, scripted("end"), [ask, nothing]).wake(session)
    assert woken.waiting == (asked,)
    assert all("not" in text or "nobody" in text for text in texts(session, "agent.tool_result"))
    assert texts(session, "agentmem.tool_started") == []


def test_a_session_with_a_tool_that_cannot_be_is_replayed(store: Store, session: Session) -> None:
    """A model called what no tool can be named; run again, the call is answered as it was."""
    Harness(store, scripted(call("do it!", "nothing"), "end"), [nothing]).wake(session)
    assert replay(session).differences == ()
