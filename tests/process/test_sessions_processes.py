"""Several processes on one session: appending, answering, compacting, watching, being killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest

from agentmem import Store
from agentmem.store.sessions import Session

PRELUDE = """
import json, sys
from agentmem import Store, Conflict, InvalidInput
path, name, of = sys.argv[1:4]
store = Store.open(path, project="acme", key=bytes(range(32)), author=name, run=name, busy_timeout=120)
session = store.sessions.get(int(of))
def say(*words):
    print(json.dumps(words), flush=True)
say("ready"); sys.stdin.readline()
"""


@pytest.fixture
def children(path: Path) -> Iterator[Callable[..., list[processes.Child]]]:
    """Starts so many processes with one script on a session, all waiting at its beginning."""
    started: list[processes.Child] = []

    def start(session: Session, script: str, number: int) -> list[processes.Child]:
        fresh = [processes.Child(PRELUDE + script, path, f"p{each}", session.id) for each in range(number)]
        started.extend(fresh)
        for child in fresh:
            assert child.said() == ["ready"]
        return fresh

    yield start
    for child in started:
        child.process.kill()
        child.process.communicate()


def together(children: list[processes.Child]) -> list[list[Any]]:
    """Let all go at once; what each said."""
    for child in children:
        child.go()
    return [child.end() for child in children]


def every(session: Session) -> list[Any]:
    """All its events."""
    found: list[Any] = []
    while page := session.events(after=found[-1].id if found else 0, limit=1000):
        found += page
    return found


APPEND = """
import threading
ids = []
def work(thread):
    for number in range(40):
        made = session.extend([("user.message", f"{name} {thread} {number}"), ("x.mark", {"text": str(number)})])
        ids.append(made.ids)
threads = [threading.Thread(target=work, args=(each,)) for each in range(3)]
[each.start() for each in threads]; [each.join() for each in threads]
say(*ids)
"""


def test_processes_and_threads_append_to_one_session(
    opened: Callable[..., Store], children: Callable[..., list[processes.Child]]
) -> None:
    """All that was acknowledged is there once, by its id, in each writer's order; what one call appended stands together."""
    store = opened()
    session = store.sessions.start()
    said = together(children(session, APPEND, 4))
    events = every(session)
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    pairs = [tuple(pair) for child in said for line in child for pair in line]
    assert sorted(each for pair in pairs for each in pair) == ids
    assert all(second == first + 1 for first, second in pairs)
    for child in range(4):
        for thread in range(3):
            mine = [event.text for event in events if event.text.startswith(f"p{child} {thread} ")]
            assert mine == [f"p{child} {thread} {number}" for number in range(40)]
    assert session.audit().sound
    assert store.verify(replay=True).problems == ()


RACE = """
calls = json.loads(sys.stdin.readline())
won = []
for call in calls:
    try:
        session.append("agent.tool_result", {"tool_use_id": call, "content": name})
        won.append(call)
    except Conflict:
        pass
allowed = []
for call in json.loads(sys.stdin.readline()):
    try:
        session.confirm(call, "allow" if int(name[1:]) % 2 else "deny", by=name)
        allowed.append(call)
    except Conflict:
        pass
same = session.append("user.message", "once", request_id="the-same")
forked = session.fork(request_id="fork-once").id
session.compact(budget=1000)
say(won, allowed, same.id, forked)
"""


def test_what_can_happen_once_happens_once(
    opened: Callable[..., Store], children: Callable[..., list[processes.Child]]
) -> None:
    """One result a call, one confirmation a request, one event and one fork a request id, whoever is first."""
    store = opened()
    session = store.sessions.start()
    open_calls = session.extend([("agent.tool_use", {"name": "f", "input": {"n": n}}) for n in range(30)]).ids
    asking = [("agent.tool_use", {"name": "g", "input": {"n": n}, "permission": "ask"}) for n in range(30)]
    asks = session.extend(asking).ids
    started = children(session, RACE, 4)
    for child in started:
        child.go()
        assert child.process.stdin is not None
        child.process.stdin.write(f"{list(open_calls)}\n{list(asks)}\n")
        child.process.stdin.flush()
    said = [child.end()[0] for child in started]
    assert sorted(call for won, *_ in said for call in won) == list(open_calls)
    assert sorted(call for _, allowed, *_ in said for call in allowed) == list(asks)
    assert len({same for *_, same, _ in said}) == 1
    assert len({forked for *_, forked in said}) == 1
    results = [event.target for event in every(session) if event.type == "agent.tool_result"]
    confirmed = [event.target for event in every(session) if event.type == "user.tool_confirmation"]
    assert sorted(results) == list(open_calls)
    assert sorted(confirmed) == list(asks)
    assert session.waiting() == ()
    head = session.compact(budget=1000)
    assert session.compact(budget=1000).cut == head.cut
    assert store.verify(replay=True).problems == ()


KILLED = """
number = 0
while True:
    made = session.extend([
        ("user.message", f"{number} " + "words " * (number % 50)),
        ("agent.tool_use", {"name": "f", "input": {"n": number}}),
        ("agent.tool_result", {"tool_use_id": -2, "content": "result " * 400}),
    ])
    say(made.id); number += 1
    if number % 7 == 0:
        session.compact(budget=1000)
"""


@pytest.mark.parametrize("rounds", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_what_was_acknowledged_outlives_a_kill(
    opened: Callable[..., Store], children: Callable[..., list[processes.Child]], rounds: int
) -> None:
    """Whenever the process is killed: whole calls only, the chain sound, a window as ever."""
    store = opened()
    session = store.sessions.start()
    for each in range(rounds):
        (child,) = children(session, KILLED, 1)
        child.go()
        acknowledged = [child.said()[0] for _ in range(5 + 9 * (each % 3))]
        child.process.kill()
        child.process.wait()
        events = every(session)
        assert {event.id for event in events} >= set(acknowledged)
        spoken = [event.type for event in events if event.type != "agent.thread_context_compacted"]
        assert spoken == ["user.message", "agent.tool_use", "agent.tool_result"] * (len(spoken) // 3)
        assert session.audit().sound
        assert session.window(budget=1000).tokens <= 1000
    assert store.verify(replay=True).problems == ()


WATCH = """
found = []
say("watching")
for event in session.watch(after=0, types=("user.message",), timeout=60):
    found.append(event.id)
    if event.text == "the end":
        break
say(*found)
"""
BURST = """
for number in range(30):
    session.extend([("user.message", f"{name} {number} {each}") for each in range(50)])
say("done")
"""


def test_a_watcher_misses_nothing_of_a_burst(
    opened: Callable[..., Store], children: Callable[..., list[processes.Child]]
) -> None:
    """Thousands of events of several processes: each once, in order."""
    store = opened()
    session = store.sessions.start()
    watchers = children(session, WATCH, 1)
    writers = children(session, BURST, 2)
    for child in watchers:
        child.go()
        assert child.said() == ["watching"]
    together(writers)
    session.append("user.message", "the end")
    wanted = [event.id for event in every(session)]
    assert len(wanted) == 3001
    assert [child.end() for child in watchers] == [[wanted]]
