"""The harness: it runs a session until that waits, from the log alone, and tells what became of each call."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Store
from agentmem.errors import ApprovalNeeded, Conflict, Held, InvalidInput, NotFound
from agentmem.harness.executor import Executor
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall, Usage
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call
from agentmem.store.sessions import Session


def scripted(*replies: Reply | str | Exception) -> Callable[[ModelRequest], Reply | str]:
    """A model that answers with these, one after the other."""
    waiting = list(replies)

    def model(request: ModelRequest) -> Reply | str:
        one = waiting.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    return model


def call(name: str, **input: Any) -> Reply:
    return Reply.of("", ToolCall(name, input))


@tool(idempotent=True)
def look(order: int) -> str:
    """Look an order up."""
    return f"order {order} was shipped"


@tool(permission="ask", expires=60)
def refund(order: int) -> str:
    """Refund an order."""
    return f"refunded {order}"


@tool
def broken() -> str:
    """Fail."""
    raise ZeroDivisionError("nothing to divide by")


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.start(title="case")
    session.append("user.message", "Where is my order?")
    return session


def types(session: Session) -> list[str]:
    return [event.type for event in session.events(limit=1000)]


def test_a_session_runs_until_the_model_has_said_its_last(store: Store, session: Session) -> None:
    """Calls run, results go back, the answer ends the turn; a second wake has nothing to do."""
    harness = Harness(store, scripted(call("look", order=4711), "It was shipped."), [look])
    woken = harness.wake(session)
    assert (woken.status, woken.stop_reason, woken.turns, woken.text) == ("idle", "end_turn", 2, "It was shipped.")
    assert "order 4711 was shipped" in [event.text for event in session.events()]
    head = store.log.head()
    assert harness.wake(session).turns == 0
    assert store.log.head() == head
    session.append("user.message", "Thanks")
    assert Harness(store, scripted("Welcome"), [look]).wake(session).text == "Welcome"


def test_what_a_tool_raises_is_a_result(store: Store, session: Session) -> None:
    """So are an unknown tool, a bad input, and input that is no JSON."""
    replies = [
        call("broken"),
        call("lock", order=1),
        call("look", ordre=1),
        Reply.of("", ToolCall("look", {}, broken="{not json")),
        "I give up",
    ]
    woken = Harness(store, scripted(*replies), [look, broken]).wake(session)
    assert woken.stop_reason == "end_turn"
    results = [event.text for event in session.events(types=("agent.tool_result",))]
    assert "ZeroDivisionError: nothing to divide by" in results[0]
    assert "Did you mean look?" in results[1]
    assert "Did you mean order?" in results[2]
    assert "no JSON" in results[3]


def test_a_call_waits_for_a_person_and_runs_once_it_is_allowed(store: Store, session: Session) -> None:
    """In another harness, whenever that is; denied, the agent is told why; never without an answer."""
    woken = Harness(store, scripted(call("refund", order=1)), [refund]).wake(session)
    assert (woken.stop_reason, len(woken.waiting)) == ("requires_action", 1)
    assert Harness(store, scripted(), [refund]).wake(session).turns == 0
    session.confirm(woken.waiting[0], "allow", by="alice")
    assert Harness(store, scripted("Done"), [refund]).wake(session).text == "Done"
    assert [event.text for event in session.events(types=("agent.tool_result",))] == ["refunded 1"]
    session.append("user.message", "again")
    woken = Harness(store, scripted(call("refund", order=2)), [refund]).wake(session)
    session.confirm(woken.waiting[0], "deny", message="too often")
    Harness(store, scripted("Sorry"), [refund]).wake(session)
    assert "too often" in session.events(types=("agent.tool_result",))[-1].text


def test_a_request_that_nobody_answers_lapses(store: Store, session: Session, clock: Any) -> None:
    """It counts as denied, and the session is ready when that is so."""
    Harness(store, scripted(call("refund", order=1)), [refund]).wake(session)
    assert store.sessions.ready() == ()
    clock.advance(seconds=61)
    assert [each.why for each in store.sessions.ready()] == ["due"]
    Harness(store, scripted("Nobody was there"), [refund]).wake(session)
    assert "in time" in session.events(types=("agent.tool_result",))[-1].text


def test_an_allowance_lapses_too(store: Store, session: Session, clock: Any) -> None:
    """What was allowed for a minute does not run a day later."""
    woken = Harness(store, scripted(call("refund", order=1)), [refund]).wake(session)
    session.confirm(woken.waiting[0], "allow", seconds=60)
    clock.advance(seconds=86_400)
    Harness(store, scripted("too late"), [refund]).wake(session)
    assert "lapsed" in session.events(types=("agent.tool_result",))[-1].text


def test_calls_run_side_by_side_and_some_alone(store: Store, session: Session) -> None:
    """Two that wait for each other end; each has its own result."""
    both = threading.Barrier(2)

    @tool
    def meet(name: str) -> str:
        """Wait for the other."""
        both.wait(30)
        return f"met {name}"

    reply = Reply.of("", ToolCall("meet", {"name": "a"}), ToolCall("meet", {"name": "b"}))
    Harness(store, scripted(reply, "done"), [meet]).wake(session)
    calls = {event.id: event.body for event in session.events(types=("agent.tool_use",))}
    for result in session.events(types=("agent.tool_result",)):
        body = calls[result.target or 0]
        assert body is not None
        assert result.text == f"met {body['input']['name']}"


def test_a_tool_that_takes_too_long_is_told_to_stop(store: Store, session: Session) -> None:
    """What it says then, soon enough, is its result; the session goes on."""
    stopped = threading.Event()

    @tool(seconds=0.05)
    def slow(asked: Call) -> str:
        """Take long."""
        asked.cancelled.wait(30)
        stopped.set()
        return "too late"

    woken = Harness(store, scripted(call("slow"), "went on"), [slow]).wake(session)
    assert stopped.wait(30)
    assert woken.text == "went on"
    (result,) = session.events(types=("agent.tool_result",))
    assert result.text == "too late"


def test_a_failing_model_is_asked_again(store: Store, session: Session) -> None:
    """As often as it may be; each failure is in the log; then the session waits."""
    replies = (OSError("down"), OSError("down"), "up again")
    woken = Harness(store, scripted(*replies), retry_seconds=0).wake(session)
    assert (woken.text, woken.stop_reason) == ("up again", "end_turn")
    assert types(session).count("session.error") == 2
    session.append("user.message", "more")
    woken = Harness(store, scripted(*[OSError("down")] * 3), retries=2, retry_seconds=0).wake(session)
    assert woken.stop_reason == "retries_exhausted"
    assert store.sessions.ready() == ()


def test_what_a_model_must_not_give_is_an_error_of_the_request(store: Store, session: Session) -> None:
    """A reply that is none is tried again like any failure, and told."""
    woken = Harness(store, lambda request: 3, retries=0).wake(session)  # type: ignore[arg-type,return-value]
    assert woken.stop_reason == "retries_exhausted"
    assert "A model gives a Reply" in session.events(types=("session.error",))[0].text


def test_limits_end_a_wake(store: Store, session: Session) -> None:
    """Turns and tokens; the next wake goes on."""
    forever = [Reply.of("", ToolCall("look", {"order": at})) for at in range(5)]
    woken = Harness(store, scripted(*forever), [look], max_turns=3).wake(session)
    assert (woken.stop_reason, woken.turns) == ("budget_reached", 3)
    spent = [Reply((), (ToolCall("look", {"order": 1}),), usage=Usage(60, 50))] * 3
    session.append("user.message", "go on")
    woken = Harness(store, scripted(*spent), [look], max_tokens=200).wake(session)
    assert (woken.stop_reason, woken.usage.total) == ("budget_reached", 220)


def test_a_refusal_ends_the_turn(store: Store, session: Session) -> None:
    """It is the reason why the session is idle."""
    reply = Reply(({"type": "text", "text": "I will not"},), stop_reason="refusal")
    assert Harness(store, scripted(reply)).wake(session).stop_reason == "refusal"


def test_one_harness_at_a_time(store: Store, session: Session) -> None:
    """A second is told who holds it, in the same process too; afterwards it is free."""
    begun, go_on = threading.Event(), threading.Event()

    def model(request: ModelRequest) -> str:
        begun.set()
        assert go_on.wait(30)
        return "done"

    first = Harness(store.acting(author="first"), model)
    thread = threading.Thread(target=first.wake, args=(session.id,))
    thread.start()
    assert begun.wait(30)
    with pytest.raises(Held, match="first"):
        Harness(store, scripted("no")).wake(session)
    assert Harness(store, scripted("no")).work() == []
    go_on.set()
    thread.join()
    assert session.holder() is None
    assert session.status == "idle"


def test_an_interrupt_ends_the_turn(store: Store, session: Session) -> None:
    """What has not begun is not run; what runs is told to stop; the agent is not asked again."""
    ran: list[str] = []

    @tool(parallel=False)
    def first(asked: Call) -> str:
        """Run while the user interrupts."""
        session.append("user.interrupt")
        ran.append("first")
        assert asked.cancelled.wait(30)
        return "stopped"

    @tool(parallel=False)
    def second() -> str:
        """Not to be run."""
        ran.append("second")
        return "second"

    reply = Reply.of("", ToolCall("first"), ToolCall("second"))
    woken = Harness(store, scripted(reply, "never said"), [first, second]).wake(session)
    assert woken.stop_reason == "end_turn"
    assert ran == ["first"]
    results = [event.text for event in session.events(types=("agent.tool_result",))]
    assert any("interrupted" in text for text in results)
    assert store.sessions.ready() == ()
    session.append("user.message", "what now?")
    assert Harness(store, scripted("Nothing"), [second]).wake(session).text == "Nothing"


def test_a_timer_wakes_the_session(store: Store, session: Session, clock: Any) -> None:
    """When the time has come the agent is told so, once."""

    @tool
    def remind(minutes: int, asked: Call) -> str:
        """Set a timer."""
        at = clock.now + minutes * 60_000_000
        asked.store.sessions.get(asked.session).append("agentmem.timer", {"at": at, "note": "look again"})
        return "set"

    Harness(store, scripted(call("remind", minutes=10), "later"), [remind]).wake(session)
    assert store.sessions.ready() == ()
    clock.advance(seconds=601)
    assert [each.why for each in store.sessions.ready()] == ["due"]
    seen: list[str] = []

    def model(request: ModelRequest) -> str:
        seen.append(request.window.events[-1].text)
        return "looked"

    assert Harness(store, model, [remind]).wake(session).text == "looked"
    assert "look again" in seen[0]
    assert store.sessions.ready() == ()


def test_a_coroutine_function_is_a_model_too(store: Store, session: Session) -> None:
    """Called by the plain wake and by the one for asyncio, where it runs in the caller's loop."""

    async def model(request: ModelRequest) -> Reply:
        await asyncio.sleep(0)
        return Reply.of(f"in {id(asyncio.get_running_loop())}")

    harness = Harness(store, model)
    assert harness.wake(session).text.startswith("in ")
    session.append("user.message", "again")

    async def main() -> None:
        woken = await harness.wake_async(session)
        assert woken.text == f"in {id(asyncio.get_running_loop())}"

    asyncio.run(main())


def test_a_cancelled_wake_ends_what_it_writes_and_can_be_taken_up(store: Store, session: Session) -> None:
    """Nobody holds it afterwards; another wake goes on."""
    begun = threading.Event()

    async def model(request: ModelRequest) -> Reply:
        begun.set()
        while not request.cancelled.is_set():
            await asyncio.sleep(0.01)
        return Reply.of("half")

    async def main() -> None:
        task = asyncio.ensure_future(Harness(store, model).wake_async(session))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert session.holder() is None
    assert store.verify(replay=True)
    session.append("user.message", "go on")
    assert Harness(store, scripted("taken up")).wake(session).text == "taken up"


def test_the_request_holds_what_the_model_needs(store: Store, session: Session) -> None:
    """Instructions, the window, the tools in an order that stays."""
    seen: list[ModelRequest] = []

    def model(request: ModelRequest) -> str:
        seen.append(request)
        return "ok"

    Harness(store, model, [refund, look], instructions="Be kind").wake(session)
    assert [each["name"] for each in seen[0].tools] == ["refund", "look", "read_event"]
    assert seen[0].instructions == "Be kind"
    assert seen[0].window.events[-1].text == "Where is my order?"


def test_the_model_reads_what_its_window_cut(store: Store, session: Session) -> None:
    """By the tool that is always there."""

    @tool(idempotent=True)
    def dump() -> str:
        """Give a long text."""
        return "".join(f"line {at}\n" for at in range(20_000))

    def model(request: ModelRequest) -> Reply:
        last = request.window.events[-1]
        if last.type == "user.message":
            return call("dump")
        if request.turn == 2:
            assert last.id in request.window.shortened
            return call("read_event", event=last.id, offset=150_000, limit=20)
        return Reply.of(last.text)

    text = Harness(store, model, [dump], budget=4000).wake(session).text
    whole = "".join(f"line {at}\n" for at in range(20_000))
    assert whole[150_000:150_020] in text


def test_a_direct_call_is_logged_before_and_after(store: Store, session: Session) -> None:
    """`execute(name, input) -> str`, whatever the tool does."""
    executor = Executor([look, broken, refund])
    worker = session.using(executor)
    assert worker.execute("look", {"order": 1}) == "order 1 was shipped"
    assert types(session)[-3:] == ["agent.tool_use", "agentmem.tool_started", "agent.tool_result"]
    assert "ZeroDivisionError" in worker.execute("broken")
    head = store.log.head()
    with pytest.raises(NotFound):
        worker.execute("lock")
    with pytest.raises(InvalidInput):
        worker.execute("look", {"order": "x"})
    assert store.log.head() == head
    with pytest.raises(ApprovalNeeded) as asked:
        worker.execute("refund", {"order": 1})
    with pytest.raises(ApprovalNeeded):
        executor.run_call(session, asked.value.event)
    session.confirm(asked.value.event, "allow")
    assert executor.run_call(session, asked.value.event) == "refunded 1"
    with pytest.raises(Conflict):
        executor.run_call(session, asked.value.event)
    with pytest.raises(InvalidInput, match="no tools"):
        session.execute("look", {"order": 1})


def test_an_archived_session_is_not_woken(store: Store, session: Session) -> None:
    """It says so, and stays as it is."""
    session.archive()
    with pytest.raises(Conflict, match="archived"):
        Harness(store, scripted("x")).wake(session)


def test_tools_write_into_the_memory_in_the_sessions_name(store: Store) -> None:
    """What the agent notes carries the session, its task and its subject."""
    goal = store.notes.add("goal", "Support")
    store.entities.put("customer", "A")
    session = store.sessions.start(task=goal, about="customer:A")
    session.append("user.message", "remember this")

    @tool
    def note(text: str, asked: Call) -> str:
        """Note a fact."""
        return f"#{asked.store.notes.add('fact', text).id}"

    Harness(store, scripted(call("note", text="likes tea"), "noted"), [note]).wake(session)
    (found,) = store.notes.list(kind="fact")
    (event,) = store.log.read(record=found.id)
    assert event.session == session.id
    assert event.task == goal.id


@pytest.mark.parametrize(
    "reply",
    [
        Reply((), (ToolCall("\x1b"),)), Reply(({"type": "text", "text": "a\0"},)),
        Reply(({"type": "text", "text": "x"},), stop_reason=""), Reply((), (ToolCall("look", {"order": float("nan")}),)),
        Reply(({"type": "picture"},)), Reply((), (ToolCall("look", {}, provider_id=" "),)),
    ],
)  # fmt: skip
def test_a_reply_that_the_log_cannot_hold_is_a_failed_request(store: Store, session: Session, reply: Reply) -> None:
    """It is told in the log, and the model is asked again; the wake goes on."""
    woken = Harness(store, scripted(reply, "better now"), [look], retry_seconds=0).wake(session)
    assert woken.stop_reason == "end_turn"
    assert woken.text == "better now"
    (failed,) = session.events(types=("session.error",))
    assert "[invalid_input]" in failed.text


def test_a_turn_that_the_provider_paused_goes_on(store: Store, session: Session) -> None:
    """It is asked again until the turn has ended."""
    paused = Reply(({"type": "text", "text": "so far"},), stop_reason="pause_turn")
    assert Harness(store, scripted(paused, "the rest")).wake(session).text == "the rest"


def test_a_turn_that_was_broken_off_goes_on_when_it_is_woken_by_name(store: Store, session: Session) -> None:
    """After an outage, or a limit; a worker's loop leaves it alone, so that it spends nothing by itself."""
    harness = Harness(store, scripted(OSError("down"), call("look", order=1), "done"), [look], retries=0, max_turns=1)
    woken = harness.wake(session)
    assert (woken.stop_reason, woken.error) == ("retries_exhausted", "OSError: down")
    assert harness.work() == []
    assert harness.wake(session).stop_reason == "budget_reached"
    assert harness.work() == []
    assert harness.wake(session).text == "done"
    assert harness.wake(session).turns == 0


def test_a_word_of_the_system_wakes_a_session(store: Store, session: Session) -> None:
    """As one of the user does."""
    harness = Harness(store, scripted("first", "second"))
    harness.wake(session)
    session.append("system.message", "The warehouse is closed today")
    assert [each.why for each in store.sessions.ready()] == ["answered"]
    assert [woken.text for woken in harness.work()] == ["second"]
    assert store.sessions.ready() == ()
