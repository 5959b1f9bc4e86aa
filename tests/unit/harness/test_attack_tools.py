"""Tools and clients that do what they should not: nothing runs twice, no wake breaks, the loser of a lease writes nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Store
from agentmem.errors import AgentMemError, Busy, Closed, Conflict, NotFound
from agentmem.harness import keeper
from agentmem.harness.executor import Executor
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness
from agentmem.harness.reply import Reply, ToolCall
from agentmem.harness.request import ModelRequest
from agentmem.harness.toolset import Call
from agentmem.store.sessions import Session


def scripted(*replies: Reply | str) -> Callable[[ModelRequest], Reply | str]:
    """A model that answers with these, one after the other."""
    waiting = list(replies)
    return lambda request: waiting.pop(0)


def call(*names: str) -> Reply:
    return Reply.of("", *(ToolCall(name) for name in names))


@tool(idempotent=True)
def plain() -> str:
    """Do nothing."""
    return "plain"


@pytest.fixture
def session(store: Store) -> Session:
    session = store.sessions.start()
    session.append("user.message", "go")
    return session


def results(session: Session) -> list[str]:
    return [event.text for event in session.events(types=("agent.tool_result",), limit=1000)]


def own(asked: Call) -> Session:
    found: Session = asked.store.sessions.get(asked.session)
    return found


def test_a_tool_that_answers_its_own_call(store: Store, session: Session) -> None:
    """Its own words stand, what it returns is too late, and the wake goes on."""

    @tool
    def hasty(asked: Call) -> str:
        """Write the result first."""
        own(asked).append("agent.tool_result", {"tool_use_id": asked.event, "content": "mine"})
        return "late"

    assert Harness(store, scripted(call("hasty"), "end"), [hasty]).wake(session).text == "end"
    assert results(session) == ["mine"]


def test_a_client_that_answers_a_call_which_is_about_to_run(store: Store, session: Session) -> None:
    """It is not run any more, nor does the wake break."""
    ran: list[str] = []

    @tool(parallel=False)
    def first() -> str:
        """Run while somebody answers the second."""
        (second,) = [event.id for event in session.events(types=("agent.tool_use",)) if event.text.startswith("second")]
        session.append("user.tool_result", {"tool_use_id": second, "content": "by hand"})
        return "done"

    @tool(parallel=False)
    def second() -> str:
        """Not to be run."""
        ran.append("second")
        return "ran"

    assert Harness(store, scripted(call("first", "second"), "end"), [first, second]).wake(session).text == "end"
    assert ran == []
    assert results(session) == ["done"]


def test_a_tool_that_wakes_its_own_session(store: Store, session: Session) -> None:
    """It is told that it is held; another session it may wake."""
    other = store.sessions.start()
    other.append("user.message", "hello")

    @tool
    def recursive(asked: Call) -> str:
        """Wake both."""
        inner = Harness(asked.store, scripted("inner"))
        assert inner.wake(other).text == "inner"
        return inner.wake(asked.session).text

    assert Harness(store, scripted(call("recursive"), "end"), [recursive]).wake(session).text == "end"
    assert "claimed by" in results(session)[0]
    assert other.holder() is None


@pytest.mark.parametrize("what", ["archive", "forget", "give_back"])
def test_a_tool_that_puts_an_end_to_its_own_session(store: Store, session: Session, what: str) -> None:
    """The wake says what is the matter, and leaves nothing that a worker would run for ever."""

    @tool
    def harsh(asked: Call) -> str:
        """End it."""
        getattr(own(asked), what)()
        return "ended"

    harness = Harness(store, scripted(call("harsh"), "end"), [harsh])
    with pytest.raises((Conflict, NotFound)):
        harness.wake(session)
    assert len(store.sessions.ready()) == (what == "give_back")
    if what == "archive":
        session.change(archived=False)
    if what != "forget":
        assert session.holder() is None
        assert Harness(store, scripted("end"), [harsh]).wake(session).text == "end"
        assert len(results(session)) == 1


def test_a_tool_that_asks_for_more_in_its_own_session(store: Store, session: Session) -> None:
    """The model is not asked before that is answered too."""

    @tool
    def asking(asked: Call) -> str:
        """Have the caller do something, and call a tool."""
        own(asked).append("agent.custom_tool_use", {"name": "theirs", "input": {}})
        own(asked).append("agent.tool_use", {"name": "plain", "input": {}})
        return "asked"

    woken = Harness(store, scripted(call("asking"), "end"), [asking, plain]).wake(session)
    assert (woken.stop_reason, len(woken.waiting), woken.turns) == ("requires_action", 1, 1)
    assert results(session) == ["asked", "plain"]


def test_a_tool_that_forks_and_appends_to_its_own_session(store: Store, session: Session) -> None:
    """Both are as they should be; the fork does not run the call."""
    forks: list[Session] = []

    @tool
    def splitting(asked: Call) -> str:
        """Fork here."""
        forks.append(own(asked).fork())
        own(asked).append("x.note", {"text": "forked"}, key="note")
        return "forked"

    Harness(store, scripted(call("splitting"), "end"), [splitting]).wake(session)
    assert session.state()["note"].text == "forked"
    assert Harness(store, scripted("other end"), [splitting]).wake(forks[0]).text == "other end"
    assert len(forks) == 1
    assert store.verify(replay=True)


def test_one_of_many_calls_fails_ours(store: Store, session: Session) -> None:
    """The others end and have their results; the error is told; a later wake reports what is not known."""
    ran: list[str] = []
    both = threading.Barrier(2)

    @tool
    def good() -> str:
        """Do it."""
        both.wait(30)
        ran.append("good")
        return "good"

    @tool
    def archiving(asked: Call) -> str:
        """Put the session away."""
        both.wait(30)
        while not ran or len(results(session)) < 1:
            time.sleep(0.001)
        own(asked).archive()
        return "archived"

    with pytest.raises(Conflict, match="archived"):
        Harness(store, scripted(call("good", "archiving")), [good, archiving]).wake(session)
    session.change(archived=False)
    assert Harness(store, scripted("end"), [good, archiving]).wake(session).text == "end"
    assert ran == ["good"]
    assert results(session)[0] == "good"
    assert "unknown" in results(session)[1]


def test_a_call_that_has_its_result_or_is_of_another_session_is_not_run(store: Store, session: Session) -> None:
    """By its number either: nothing is done, not only nothing written."""
    ran: list[int] = []

    @tool(idempotent=True)
    def counted() -> str:
        """Count."""
        ran.append(1)
        return "counted"

    executor = Executor([counted])
    session.using(executor).execute("counted")
    event = session.events(types=("agent.tool_use",))[0].id
    with pytest.raises(Conflict):
        executor.run_call(session, event)
    asked = session.append("agent.tool_use", {"name": "counted", "input": {}}).id
    with pytest.raises(Conflict):
        executor.run_call(session.fork(), asked)
    assert ran == [1]


def test_a_lease_that_lapsed_and_was_taken_runs_nothing_twice(store: Store, session: Session, clock: Any) -> None:
    """Whoever slept through its lease runs nothing that another has run since, and writes nothing."""
    ran: list[str] = []

    @tool(parallel=False)
    def pay(asked: Call) -> str:
        """Pay once."""
        ran.append(asked.key)
        return "paid"

    @tool(parallel=False, idempotent=True)
    def sleep(asked: Call) -> str:
        """Sleep while another takes over, the first time."""
        if asked.attempt == 1:
            clock.advance(seconds=3600)
            Harness(store, scripted("the other ended it"), [sleep, pay]).wake(session)
        return "slept"

    with pytest.raises(Conflict):
        Harness(store, scripted(call("sleep", "pay"), "never"), [sleep, pay]).wake(session)
    assert len(ran) == 1
    assert sorted(results(session)) == ["paid", "slept"]
    assert session.holder() is None
    assert session.status == "idle"
    assert store.sessions.ready() == ()


def test_a_lease_that_lapsed_is_not_taken_anew(
    store: Store, session: Session, clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What renews it notices that it had lapsed: the run ends, as another may have run the session in between."""
    monkeypatch.setattr(keeper, "_LOOK_SECONDS", 0.01)
    told = threading.Event()

    def model(request: ModelRequest) -> str:
        clock.advance(seconds=3600)
        assert request.cancelled.wait(30)
        told.set()
        return "too late"

    with pytest.raises(Conflict, match="no longer held"):
        Harness(store, model, lease_seconds=3).wake(session)
    assert told.is_set()
    assert session.holder() is None
    assert [event.text for event in session.events(types=("agent.message",))] == []
    assert [each.why for each in store.sessions.ready()] == ["broken"]


def test_a_busy_file_does_not_end_a_run(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what renews the lease nor the result of a tool gives up at once."""
    monkeypatch.setattr(keeper, "_LOOK_SECONDS", 0.01)
    failures = iter([True, True])
    looked = threading.Event()
    data_version = type(store.database).data_version

    def busy(self: Any) -> int:
        if threading.current_thread().name == "agentmem-session" and next(failures, False):
            raise Busy("busy")
        if next(failures, None) is None:
            looked.set()
        return data_version(self)

    monkeypatch.setattr(type(store.database), "data_version", busy)

    def model(request: ModelRequest) -> str:
        assert looked.wait(30)
        return "end"

    assert Harness(store, model).wake(session).text == "end"


def test_a_keeper_that_dies_ends_the_run(store: Store, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever killed it is raised by the wake; nothing runs on without a lease."""
    monkeypatch.setattr(keeper, "_LOOK_SECONDS", 0.01)

    def dying(self: Any) -> int:
        raise ZeroDivisionError("the keeper died")

    def model(request: ModelRequest) -> str:
        assert request.cancelled.wait(30)
        return "end"

    with monkeypatch.context() as patch:
        patch.setattr(type(store.database), "data_version", dying)
        with pytest.raises(ZeroDivisionError, match="the keeper died"):
            Harness(store, model).wake(session)


def test_a_store_that_is_closed_underneath(opened: Callable[..., Store]) -> None:
    """The wake says so; opened again, the session goes on and nothing ran twice."""
    store = opened()
    session = store.sessions.start()
    session.append("user.message", "go")
    ran: list[str] = []

    @tool
    def closing() -> str:
        """Close the store."""
        ran.append("closing")
        store.close()
        return "closed"

    with pytest.raises(Closed):
        Harness(store, scripted(call("closing")), [closing]).wake(session)
    again = opened(clock=lambda: time.time_ns() // 1000)
    assert Harness(again, scripted("end"), [closing]).wake(session.id).text == "end"
    assert ran == ["closing"]
    assert "unknown" in results(again.sessions.get(session.id))[0]


def test_a_store_that_is_only_read(opened: Callable[..., Store]) -> None:
    """A typed error, and no thread is left."""
    store = opened()
    session = store.sessions.start()
    session.append("user.message", "go")
    with pytest.raises(AgentMemError):
        Harness(opened(read_only=True), scripted("end")).wake(session.id)
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("agentmem-")] == []


def test_no_thread_is_left_after_a_wake(store: Store, session: Session) -> None:
    """Of those that hold it, run calls side by side, or run a tool."""
    many = Reply((), tuple(ToolCall("plain") for _ in range(50)))
    Harness(store, scripted(many, "end"), [plain]).wake(session)
    assert len(results(session)) == 50
    left = [
        thread for thread in threading.enumerate() if thread.name.startswith(("agentmem-session", "agentmem-tools"))
    ]
    assert left == []


def test_a_program_that_is_interrupted_tells_its_tools(store: Store, session: Session) -> None:
    """What the model raises to end the program ends the wake; what runs is told to stop, and the session can go on."""
    told = threading.Event()

    @tool(parallel=False)
    def ending(asked: Call) -> str:
        """End the program, as far as a tool can."""
        told.set()
        raise SystemExit(3)

    assert Harness(store, scripted(call("ending"), "end"), [ending]).wake(session).text == "end"
    assert results(session) == ["ending failed: SystemExit: 3"]
    session.append("user.message", "more")

    def model(request: ModelRequest) -> str:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Harness(store, model).wake(session)
    assert session.holder() is None
    assert [each.why for each in store.sessions.ready()] == ["broken"]


@pytest.mark.parametrize("text", ["x" * 17_000_000, "ü" * 12_000_000, "\x01" * 9_000_000, "\ud800\0", "𝕏" * 6_000_000])
@pytest.mark.parametrize("fails", [False, True])
def test_a_result_that_an_event_cannot_hold(store: Store, session: Session, text: str, fails: bool) -> None:
    """It is cut and cleaned, whether the tool gave or raised it; the wake goes on."""

    @tool(idempotent=True, output_chars=16_000_000)
    def large() -> str:
        """Give it."""
        if fails:
            raise ValueError(text)
        return text

    assert Harness(store, scripted(call("large"), "end"), [large]).wake(session).text == "end"
    (result,) = session.events(types=("agent.tool_result",))
    assert result.body is not None
    assert fails or ("cut" in result.body) == (len(text) > 2)
    assert text[:1].encode("utf-8", "replace").decode() in result.text


def test_a_session_whose_subject_is_gone(store: Store) -> None:
    """It sees nothing any more; no call is begun, and a worker is not kept busy by it for ever."""
    ran: list[str] = []

    @tool
    def act() -> str:
        """Do it."""
        ran.append("act")
        return "acted"

    subject = store.entities.put("customer", "A")
    session = store.sessions.start(about=subject)
    session.append("user.message", "go")

    def model(request: ModelRequest) -> Reply | str:
        if request.turn > 1:
            return "end"
        store.undo(subject.revision)
        return call("act")

    harness = Harness(store, model, [act])
    for _ in range(20):
        if not store.sessions.ready():
            break
        harness.work()
    assert store.sessions.ready() == ()
    assert session.info.stop_reason == {"type": "end_turn"}
    assert "is no more" in results(session)[0]
    assert ran == []
