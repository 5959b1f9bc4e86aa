"""Several processes on one store: writing, claiming, summing up, watching, at once."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest

from agentmem import Event, Store

PRELUDE = """
import json, sys
from agentmem import Store, Held, Conflict
path, name = sys.argv[1:3]
store = Store.open(path, project="acme", key=bytes(range(32)), author=name, run=name, busy_timeout=120)
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    sys.stdin.readline()
say("ready"); wait()
"""


class Child(processes.Child):
    """A Python process with the store open; it waits to be told to go on and says what it did, line by line."""

    def __init__(self, path: Path, name: str, script: str) -> None:
        super().__init__(PRELUDE + script, path, name)


@pytest.fixture
def children(path: Path) -> Iterator[Callable[[str, int], list[Child]]]:
    """Starts so many processes with one script, all waiting at its beginning."""
    started: list[Child] = []

    def start(script: str, number: int) -> list[Child]:
        fresh = [Child(path, f"p{each}", script) for each in range(number)]
        started.extend(fresh)
        for child in fresh:
            assert child.said() == ["ready"]
        return fresh

    yield start
    for child in started:
        child.process.kill()
        child.process.communicate()


def together(children: list[Child]) -> list[list[Any]]:
    """Let all go at once; what each said."""
    for child in children:
        child.go()
    return [child.end() for child in children]


WRITE = """
writes = {writes}
for number in range(writes):
    if number % 3 == 0:
        note = store.notes.add("fact", f"{{name}} {{number}}", similar=False)
    elif number % 3 == 1:
        store.entities.put("host", "shared", attrs={{name: number}})
    else:
        with store.transaction():
            store.checklists.add(note, "One item")
            store.checklists.done(note, 1)
say("done")
"""


@pytest.mark.parametrize("writes", [60, pytest.param(500, marks=pytest.mark.slow)])
def test_eight_processes_write_one_store(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]], writes: int
) -> None:
    """Everything written is there once, nothing of another's update is lost, and chain and replay verify."""
    store = opened()
    store.notes.add("goal", "Begin")
    assert together(children(WRITE.format(writes=writes), 8)) == [[["done"]]] * 8
    titles: list[str] = []
    after = 0
    while page := store.notes.list(kind="fact", limit=1000, after=after):
        titles += [note.title or "" for note in page]
        after = page[-1].id
    expected = sorted(f"p{child} {number}" for child in range(8) for number in range(0, writes, 3))
    assert sorted(titles) == expected
    last = max(number for number in range(writes) if number % 3 == 1)
    assert store.entities.get("host:shared").attrs == {f"p{child}": last for child in range(8)}
    items = store.stats().records["item"]
    assert items == 8 * len(range(2, writes, 3))
    found = store.verify(replay=True)
    assert found.problems == ()
    per_child = len(range(0, writes, 3)) + len(range(1, writes, 3)) + 2 * len(range(2, writes, 3))
    assert found.events == 2 + 8 * per_child


CLAIM = """
for host in json.loads({hosts!r}):
    try:
        store.claim([host], seconds=3600)
        say(host, "mine")
    except Held as error:
        say(host, str(error))
"""


def test_of_eight_processes_exactly_one_gets_the_claim(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """For each of twenty hosts one process wins and the others are told which; what it says is what the store says."""
    store = opened()
    ids = store.entities.put_many("host", keys=[f"h{number}" for number in range(20)]).ids
    said = together(children(CLAIM.format(hosts=json.dumps(list(ids))), 8))
    winners = {}
    for child, lines in enumerate(said):
        for host, answer in lines:
            if answer == "mine":
                assert host not in winners
                winners[host] = f"p{child}"
    assert winners.keys() == set(ids)
    assert {claim.record: claim.run for claim in store.claims()} == winners
    for lines in said:
        for host, answer in lines:
            assert answer == "mine" or f"claimed by {winners[host]} until" in answer
    assert store.verify(replay=True).problems == ()


NEXT = """
while (taken := store.claim(type="host", n=3, seconds=3600).ids):
    say(*taken)
"""


def test_the_next_free_one_is_given_to_one_process(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """Eight processes that take three at a time share a hundred hosts: each is given once, none is left."""
    store = opened()
    ids = store.entities.put_many("host", keys=[f"h{number}" for number in range(100)]).ids
    said = together(children(NEXT, 8))
    taken = [host for lines in said for line in lines for host in line]
    assert sorted(taken) == list(ids)


SUMMARIZE = """
for goal in json.loads({goals!r}):
    say(store.summarize(goal, result=f"By {{name}}").id)
"""


def test_w1_processes_that_sum_up_one_task_leave_one_summary(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """Two processes at once left an orphan and an error. Ours: one summary a task, and all name the same."""
    store = opened()
    goals = [store.notes.add("goal", f"Goal {number}", similar=False).id for number in range(5)]
    said = together(children(SUMMARIZE.format(goals=json.dumps(goals)), 4))
    assert len({json.dumps(lines) for lines in said}) == 1
    assert store.stats().records["summary"] == len(goals)
    assert {note.status for note in store.notes.list(kind="goal")} == {"done"}
    assert store.verify(replay=True).problems == ()


EDIT = """
done = 0
while done < 25:
    note = store.notes.get({note})
    try:
        store.notes.update(note, body=str(int(note.body) + 1), expected_revision=note.revision)
        done += 1
    except Conflict as error:
        assert error.current > note.revision
"""


def test_an_expected_revision_loses_no_update(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """Four processes that read, add one and write count to a hundred: a stale write is refused, never lost."""
    store = opened()
    note = store.notes.add("fact", "Counter", body="0")
    together(children(EDIT.format(note=note.id), 4))
    assert store.notes.get(note).body == "100"


REQUEST = """
for number in range(20):
    say(store.notes.add("fact", f"Request {number}", similar=False, request_id=f"q{number}").id)
"""


def test_w9_one_request_of_many_processes_is_done_once(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """A retry by another process, at the same time even, gets the first one's record."""
    store = opened()
    said = together(children(REQUEST.replace("{{", "{").replace("}}", "}"), 4))
    assert len({json.dumps(lines) for lines in said}) == 1
    assert len(store.notes.list(kind="fact")) == 20


TALK = """
for number in range(30):
    store.notes.add("fact", f"Number {number}", similar=False)
    store.in_project("other").notes.add("fact", "Elsewhere", similar=False)
store.notes.add("lesson", "The end")
"""


def test_watch_sees_the_events_of_another_process(
    opened: Callable[..., Store], children: Callable[[str, int], list[Child]]
) -> None:
    """In order, none missing, none twice, none of another project, as they are committed."""
    store = opened()
    store.notes.add("goal", "Begin")
    (child,) = children(TALK, 1)
    watched = store.watch(timeout=120)
    child.go()
    seen: list[Event] = []
    for event in watched:
        seen.append(event)
        if event.payload is not None and event.payload["kind"] == "lesson":
            break
    child.end()
    assert [event.payload and event.payload["title"] for event in seen] == [
        *(f"Number {each}" for each in range(30)),
        "The end",
    ]
    assert [event.seq for event in seen] == sorted(event.seq for event in seen)
    assert {event.author for event in seen} == {"p0"}


def test_watch_filters_by_kind_and_begins_where_it_is_told(opened: Callable[..., Store]) -> None:
    """After a seq, only some kinds; it ends when nothing comes for so long."""
    store = opened()
    goal = store.notes.add("goal", "Begin")
    store.entities.put("host", "a")
    store.notes.update(goal, status="active")
    seen = list(store.watch(after=0, kinds=["note.added", "note.changed"], timeout=0))
    assert [event.kind for event in seen] == ["note.added", "note.changed"]
    assert list(store.watch(timeout=0)) == []


def test_watch_sees_no_event_of_a_transaction_before_its_commit(opened: Callable[..., Store], undone: Any) -> None:
    """Neither early nor at all where it was rolled back; several watchers see the same."""
    store, watcher = opened(), opened()
    store.notes.add("goal", "Begin")
    after = store.log.head().seq
    with undone(store):
        store.notes.add("fact", "Lost")
        assert list(watcher.watch(after=after, timeout=0)) == []
    begun = threading.Event()
    seen: list[list[str]] = []

    def watch() -> None:
        found = watcher.watch(after=after, timeout=60)
        begun.set()
        seen.append([event.payload["title"] for _, event in zip(range(2), found, strict=False) if event.payload])

    threads = [threading.Thread(target=watch) for _ in range(2)]
    for thread in threads:
        thread.start()
    begun.wait()
    with store.transaction():
        store.notes.add("fact", "One")
        store.notes.add("fact", "Two")
    for thread in threads:
        thread.join()
    assert seen == [["One", "Two"]] * 2
