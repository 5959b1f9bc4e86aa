"""Wakes in an event loop: cancelled at every point, many at once, in a loop that is closing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading

import pytest

from agentmem import Store
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call
from agentmem.store.sessions import Session


def begun(store: Store) -> Session:
    session = store.sessions.start()
    session.append("user.message", "go")
    return session


def at_rest(store: Store, session: Session) -> None:
    """Nobody holds it, nothing renews its lease, and it can go on, or has ended its turn."""
    assert session.holder() is None
    assert [thread for thread in threading.enumerate() if thread.name == "agentmem-session"] == []
    ready = [each.session for each in store.sessions.ready()]
    assert ready == [session.id] or session.status == "idle"


def test_many_wakes_at_once_do_not_starve_their_models(store: Store) -> None:
    """Each model needs a thread of the loop's own few: wakes take none of them."""
    sessions = [begun(store) for _ in range(40)]

    async def model(request: ModelRequest) -> str:
        return await asyncio.to_thread(lambda: "from a thread")

    async def main() -> None:
        harness = Harness(store, model)
        async with asyncio.timeout(60):
            woken = await asyncio.gather(*(harness.wake_async(session) for session in sessions))
        assert {each.text for each in woken} == {"from a thread"}

    asyncio.run(main())


def test_a_coroutine_that_does_not_look_is_cancelled(store: Store) -> None:
    """When its wake is, and when the user interrupts; the wake does not wait for what would take for ever."""
    session = begun(store)
    cancelled: list[str] = []
    asked = asyncio.Event()

    async def model(request: ModelRequest) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append("cancelled")
            raise
        return "never"

    async def main() -> None:
        harness = Harness(store, model)
        task = asyncio.ensure_future(harness.wake_async(session))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        asked.clear()
        task = asyncio.ensure_future(harness.wake_async(session))
        await asked.wait()
        session.append("user.interrupt")
        assert (await task).stop_reason == "end_turn"

    asyncio.run(main())
    assert len(cancelled) == 2
    at_rest(store, session)


@pytest.mark.parametrize("times", [1, 3])
def test_a_wake_that_is_cancelled_more_than_once_still_ends_first(store: Store, times: int) -> None:
    """Nothing is written behind the back of whoever cancelled it, however often."""
    session = begun(store)
    running, go_on = threading.Event(), threading.Event()

    @tool(seconds=30)
    def slow(asked: Call) -> str:
        """Take long."""
        running.set()
        assert asked.cancelled.wait(30)
        assert go_on.wait(30)
        return "stopped"

    async def main() -> None:
        harness = Harness(store, lambda request: Reply.of("", ToolCall("slow")), [slow])
        task = asyncio.ensure_future(harness.wake_async(session))
        while not running.is_set():
            await asyncio.sleep(0.001)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        at_rest(store, session)

    asyncio.run(main())
    head = store.log.head()
    assert Harness(store, lambda request: "end", [slow]).wake(session).text == "end"
    assert store.log.head() != head
    assert [event.text for event in session.events(types=("agent.tool_result",))] == ["stopped"]


def test_a_loop_that_closes_ends_the_wakes_in_it(store: Store) -> None:
    """Left behind by the main coroutine they are cancelled; when `run` returns, none writes any more."""
    session = begun(store)
    asked = threading.Event()

    async def model(request: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    tasks: list[asyncio.Task[object]] = []

    async def main() -> None:
        tasks.append(asyncio.ensure_future(Harness(store, model).wake_async(session)))
        while not asked.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    at_rest(store, session)
    assert [each.session for each in store.sessions.ready()] == [session.id]
    assert Harness(store, lambda request: "end").wake(session).text == "end"


def test_a_loop_that_is_closed_without_a_word(store: Store) -> None:
    """A wake that nobody waits for any more ends by itself, and can be taken up."""
    session = begun(store)
    asked = threading.Event()

    async def model(request: ModelRequest) -> str:
        asked.set()
        await asyncio.Event().wait()
        return "never"

    loop = asyncio.new_event_loop()
    woken = threading.Event()

    def wake() -> None:
        Harness(store, model)._wake(session, loop)
        woken.set()

    async def main() -> None:
        threading.Thread(target=wake, name="agentmem-wake", daemon=True).start()
        while not asked.is_set():
            await asyncio.sleep(0.001)

    loop.run_until_complete(main())
    for task in asyncio.all_tasks(loop):  # so that the test itself leaves none
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)
    loop.close()
    assert woken.wait(30)
    while session.holder() is not None or any(one.name == "agentmem-wake" for one in threading.enumerate()):
        pass
    at_rest(store, session)
    assert [each.session for each in store.sessions.ready()] == [session.id]


@pytest.mark.parametrize("steps", range(0, 60, 6))
def test_a_wake_cancelled_at_any_moment_can_be_taken_up(store: Store, steps: int) -> None:
    """Whichever step of the loop that is; then it ends as if nothing had been, and no call runs twice."""
    session = begun(store)
    ran: list[str] = []

    @tool
    def pay(asked: Call) -> str:
        """Pay."""
        ran.append(asked.key)
        return "paid"

    async def model(request: ModelRequest) -> Reply:
        await asyncio.sleep(0)
        last = request.window.events[-1]
        return Reply.of("", ToolCall("pay")) if last.type == "user.message" else Reply.of("end")

    async def main() -> None:
        task = asyncio.ensure_future(Harness(store, model, [pay]).wake_async(session))
        for _ in range(steps):
            await asyncio.sleep(0.002 if steps % 4 else 0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        at_rest(store, session)

    asyncio.run(main())
    harness = Harness(store, model, [pay])
    while store.sessions.ready():
        harness.work()
    assert session.info.stop_reason == {"type": "end_turn"}
    assert len(ran) == len(set(ran)) == 1
    assert session.events(newest_first=True, types=("agent.message",), limit=1)[0].text == "end"


def test_a_wake_has_the_context_of_its_caller(store: Store) -> None:
    """As any other work that is handed to a thread."""
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    session = begun(store)

    async def main() -> None:
        who.set("ana")
        assert (await Harness(store, lambda request: who.get()).wake_async(session)).text == "ana"

    asyncio.run(main())


def test_what_a_model_raises_to_cancel_itself_is_a_failed_request(store: Store) -> None:
    """It ends the request and not the program that runs the session."""
    session = begun(store)
    failures = [True]

    async def model(request: ModelRequest) -> str:
        if failures:
            failures.pop()
            raise asyncio.CancelledError
        return "end"

    assert Harness(store, model, retry_seconds=0).wake(session).text == "end"
