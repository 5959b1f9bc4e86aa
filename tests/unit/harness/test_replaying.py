"""Replay: a session again, against what its tools answered then; nothing outside is done."""

from __future__ import annotations

import pytest

from agentmem import Store
from agentmem.harness import Harness, Reply, ToolCall, replay, tool
from agentmem.harness.request import ModelRequest
from agentmem.store.sessions import Session

DONE: list[str] = []


@tool
def pay(amount: int) -> str:
    """Pay."""
    DONE.append(f"pay {amount}")
    return f"paid {amount}"


@tool(permission="ask")
def send(to: str) -> str:
    """Send."""
    DONE.append(f"send {to}")
    return f"sent {to}"


def model(request: ModelRequest) -> Reply:
    last = request.window.events[-1]
    if last.type == "user.message":
        return Reply.of("On it", ToolCall("pay", {"amount": 5}), ToolCall("send", {"to": last.text}))
    return Reply.of(f"Done: {last.text}")


@pytest.fixture
def session(store: Store) -> Session:
    DONE.clear()
    session = store.sessions.start(title="replayed")
    harness = Harness(store, model, [pay, send])
    for to in ("ana", "ben"):
        session.append("user.message", to)
        woken = harness.wake(session)
        session.confirm(woken.waiting[0], "allow" if to == "ana" else "deny", by="chef")
        harness.wake(session)
    return session


def test_the_same_model_does_the_same_and_nothing_happens(store: Store, session: Session) -> None:
    """Tools are not run, the store is not written to, no difference is found."""
    done, head = list(DONE), store.log.head()
    assert (replay(session).differences, replay(session, model).differences) == ((), ())
    assert (list(DONE), store.log.head()) == (done, head)


def test_another_model_is_told_apart_where_it_first_differs(session: Session) -> None:
    """The step is named, and calls that have no recorded outcome are listed."""

    def other(request: ModelRequest) -> Reply:
        last = request.window.events[-1]
        return Reply.of("", ToolCall("pay", {"amount": 7})) if last.type == "user.message" else model(request)

    found = replay(session, other)
    assert "step 1" in found.differences[0]
    assert found.unrecorded == ('pay {"amount":7}', 'pay {"amount":7}')
