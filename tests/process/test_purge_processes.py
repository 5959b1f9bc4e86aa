"""Purges beside other processes: their caches, the log that their reading keeps, writers, kills and forks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import agentmem
from agentmem import Store, text
from agentmem.records import likeness, rarity

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "past"))

from decrypted import search
from written import SECRET, surround

KEY = bytes(range(32))
HERE = str(Path(__file__).parents[1] / "unit" / "past")

# A child never has the word in a variable that lives on: it would be found there.
PRELUDE = """
import gc, json, os, sys, weakref
from agentmem import Held, NotFound, Store
path, drow = sys.argv[1:3]
def word():
    return drow[::-1]
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    return sys.stdin.readline().strip()
def remembered():
    "Where in the memory that Python's collector knows the word stands, as types of containers."
    gc.collect()
    found = set()
    for each in gc.get_objects():
        if isinstance(each, dict):
            inside = [*each, *each.values()]
        elif isinstance(each, (list, tuple, set, frozenset)):
            inside = list(each)
        else:
            continue
        if any(isinstance(one, str) and word() in one for one in inside):
            found.add(type(each).__name__)
    return sorted(found)
store = Store.open(path, project="acme", key=bytes(range(32)), author="child", run=str(os.getpid()), busy_timeout=120)
say("ready")
wait()
"""


class Child:
    """A Python process with the store open; it waits to be told to go on and says what it did, line by line."""

    def __init__(self, path: Path, script: str, word: str = SECRET) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith("AGENTMEM_KEY")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, str(path), word[::-1]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env | {"PYTHONPATH": os.pathsep.join((str(Path(agentmem.__file__).parents[1]), HERE))},
        )
        assert self.said() == ["ready"]

    def said(self) -> list[Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        found: list[Any] = json.loads(line)
        return found

    def go(self, line: str = "") -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def end(self, code: int = 0) -> list[Any]:
        """Wait for its end; what it said since, line by line."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self.process.stdin.close()
        lines = self.process.stdout.readlines()
        err = self.process.stderr.read()
        assert self.process.wait(timeout=300) == code, err
        return [json.loads(line) for line in lines]


@pytest.fixture
def child(path: Path) -> Iterator[Callable[..., Child]]:
    """Starts a process with a script; those that still run at the end are stopped."""
    started: list[Child] = []

    def start(script: str, *more: str) -> Child:
        started.append(Child(path, script, *more))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.wait()
        for pipe in (each.process.stdin, each.process.stdout, each.process.stderr):
            if pipe is not None:
                pipe.close()


def meta(store: Store) -> dict[str, str]:
    with store.database.read() as connection:
        return dict(connection.execute("SELECT name, value FROM meta WHERE name IN ('epoch', 'purge')"))


# The write-ahead log that another process reads


READER = """
with store.database.read(long=True) as connection:
    connection.execute("SELECT count(*) FROM event").fetchall()
    say("reading")
    wait()
say("ended")
wait()
{then}
"""


def pending(opened: Callable[..., Store], child: Callable[..., Child], then: str) -> tuple[Child, Store]:
    """A store after a purge beside a child that reads, and the child."""
    store = opened()
    surround(store)
    note = store.notes.add("fact", f"It is {SECRET}")
    reader = child(READER.format(then=then))
    reader.go()
    assert reader.said() == ["reading"]
    receipt = store.forget(note)
    assert receipt.wal_pending
    assert "write-ahead log" not in receipt.cleaned
    assert "free pages" not in receipt.cleaned
    assert store.find(SECRET).hits == ()
    assert store.stats().purge_pending
    assert "purge" in meta(store)
    return reader, store


def test_a_purge_beside_a_reader_is_finished_by_the_next_writer(
    path: Path, tmp_path: Path, opened: Callable[..., Store], child: Callable[..., Child]
) -> None:
    """The receipt says that it is pending, and the text is there; once the reader ended any process's write ends it."""
    reader, store = pending(opened, child, "store.notes.add('fact', 'Another')\nsay('written')\nwait()")
    for number in range(3):
        store.notes.add("fact", f"Meanwhile {number}")  # nor does any write while the reader goes on
    assert "purge" in meta(store)
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ("pages",)
    reader.go()
    assert reader.said() == ["ended"]
    reader.go()
    assert reader.said() == ["written"]
    assert search(path, KEY, tmp_path, SECRET).places == ()
    reader.go()
    reader.end()
    store = opened()
    assert meta(store) == {"epoch": "1"}
    assert store.verify(replay=True).problems == ()


def test_a_purge_beside_a_reader_is_finished_by_the_same_process(
    path: Path, tmp_path: Path, opened: Callable[..., Store], child: Callable[..., Child]
) -> None:
    """By its next write, or a second purge, after the reader ended."""
    reader, store = pending(opened, child, "")
    other = store.notes.add("fact", "Another")
    reader.go()
    assert reader.said() == ["ended"]
    assert not store.forget(other).wal_pending
    assert meta(store) == {"epoch": "2"}
    assert not store.stats().purge_pending
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()
    reader.go()
    reader.end()


def test_a_purge_beside_a_reader_is_finished_by_the_next_opening(
    path: Path, tmp_path: Path, opened: Callable[..., Store], child: Callable[..., Child]
) -> None:
    """Without any write: who opens the file for writing finishes it, who opens it for reading changes nothing."""
    reader, store = pending(opened, child, "")
    store.close()
    reader.go()
    assert reader.said() == ["ended"]
    with opened(read_only=True) as reading:
        assert "purge" in meta(reading)
    with opened() as store:
        assert "purge" not in meta(store)
    assert search(path, KEY, tmp_path, SECRET).places == ()
    reader.go()
    reader.end()


# The purging process is killed

KILLED = """
def die(frame, event, argument):
    if event == "call" and frame.f_code.co_name == {where!r} and "agentmem" in frame.f_code.co_filename:
        os.kill(os.getpid(), 9)
sys.setprofile(die)
store.forget({note})
"""


@pytest.mark.parametrize("where", ["finish", "rewrite", "checkpoint"])
@pytest.mark.parametrize("by", ["opening", "an open store"])
def test_a_killed_purge_is_finished_by_others(
    path: Path, tmp_path: Path, opened: Callable[..., Store], child: Callable[..., Child], where: str, by: str
) -> None:
    """Killed between the commit and the end of the cleaning: the record is gone, its traces go with the next process."""
    store = opened()
    surround(store)
    note = store.notes.add("fact", f"It is {SECRET}").id
    store.close()
    if by == "an open store":
        store = opened()
        assert store.find(SECRET).hits[0].id == note
    killed = child(KILLED.format(where=where, note=note))
    killed.go()
    killed.end(code=-signal.SIGKILL)
    if by == "opening":
        assert search(path, KEY, tmp_path, SECRET).places == ("pages",)
        store = opened()
    else:
        assert "purge" in meta(store)
        store.notes.add("fact", "Another")
    assert meta(store) == {"epoch": "1"}
    assert store.find(SECRET).hits == ()
    assert store.verify(replay=True).problems == ()
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


# What other processes remember

REMEMBERS = """
from agentmem import text
from agentmem.records import likeness, rarity
from agentmem.transfer.markdown.roles import read_heading
from agentmem.transfer.markdown.status import split_marker
from agentmem.transfer.markdown.words import plain
database = store.database
def filled():
    word_ = word()
    return [
        any(word_ in tokens for tokens in text._chunks),
        word_ in likeness._seen.get(database, {{}}),
        word_ in rarity._known.get(database, {{}}),
        any(memo.cache_info().currsize for memo in (read_heading, split_marker, plain)),
    ]
note = store.notes.list(kind="fact")[-1].id
past = store.at(note)
past.notes.get(note).title
hits = len(store.find(word() + " release"))
store.notes.add("fact", "It may be " + word())  # and its title is compared with others
read_heading("What " + word() + " means")
split_marker("It is " + word())
pools = [database._pool, past.database._pool]
before = [weakref.ref(each) for pool in pools for each in (pool.writer, *pool.idle) if each is not None]
say(hits, filled(), bool(remembered()), len(before), note)
wait()
{verb}
say(filled(), remembered(), len(store.find(word())), len([1 for each in before if each() is not None]))
try:
    say(past.notes.get(note).title)
except NotFound as error:
    say(error.code)
"""
VERBS = {
    "find": "store.find('release')",
    "notes.get": "store.notes.get(store.notes.list(limit=1)[0])",
    "resume": "store.resume()",
    "left": "store.left()",
    "stats": "store.stats()",
    "claims": "store.claims()",
    "log.read": "store.log.read()",
    "entities.query": "store.entities.query('host')",
    "notes.add": "store.notes.add('fact', 'Another')",
    "checkpoint": "store.checkpoint('Halfway')",
    "claim": "store.claim(store.notes.list(limit=1)[0])",
    "a transaction": "with store.transaction():\n    store.checkpoint('Halfway')",
}


@pytest.mark.parametrize("verb", VERBS)
def test_another_process_forgets_with_its_next_verb(
    path: Path, opened: Callable[..., Store], child: Callable[..., Child], verb: str
) -> None:
    """Memos of words and titles, views of the past, and the connections with their pages and statements."""
    store = opened()
    surround(store)
    store.notes.add("fact", f"It is {SECRET}")
    other = child(REMEMBERS.format(verb=VERBS[verb]))
    other.go()
    hits, filled, found, connections, note = other.said()
    assert (hits, filled, found, connections) == (1, [True] * 4, True, 3)
    store.forget([hit.id for hit in store.find(SECRET, limit=50).hits])
    other.go()
    assert other.said() == [[False] * 4, [], 0, 0]
    assert other.end() == [["not_found"]]
    assert note


OVERTAKEN = """
import threading
from agentmem import text
from agentmem.records import rarity
def filled():
    return [any(word() in tokens for tokens in text._chunks), word() in rarity._known.get(store.database, {{}})]
view_of = store._binding.reading()
with view_of as view:
    view.rows("SELECT count(*) FROM event")
    say("reading")
    wait()
    another = threading.Thread(target=store.stats)  # this process knows of the purge by now
    another.start()
    another.join()
    text.analyse(view.one("SELECT title FROM note WHERE id = ?", ({note},))[0])
    rarity.counts(view, [word()])
    say(filled())
say(filled())
"""


def test_a_reading_that_a_purge_overtook_leaves_nothing_in_caches(
    path: Path, opened: Callable[..., Store], child: Callable[..., Child]
) -> None:
    """A cache emptied before the delete was refilled by a reader of the older state (mnemosyne PR #961)."""
    store = opened()
    note = store.notes.add("fact", f"It is {SECRET}").id
    other = child(OVERTAKEN.format(note=note))
    other.go()
    assert other.said() == ["reading"]
    assert store.forget(note).wal_pending
    other.go()
    assert other.said() == [[True, True]]
    assert other.end() == [[[False, False]]]


def test_a_reading_of_the_purging_process_leaves_nothing_in_caches(opened: Callable[..., Store]) -> None:
    """The same among threads of one process, without any further verb."""
    store = opened()
    note = store.notes.add("fact", f"It is {SECRET}").id
    with store._binding.reading() as view:
        view.rows("SELECT count(*) FROM event")
        purging = threading.Thread(target=store.forget, args=(note,))
        purging.start()
        purging.join()
        text.analyse(view.one("SELECT title FROM note WHERE id = ?", (note,))[0])
        rarity.counts(view, [SECRET])
        assert any(SECRET in tokens for tokens in text._chunks)
        assert SECRET in rarity._known[store.database]
    assert not any(SECRET in tokens for tokens in text._chunks)
    assert SECRET not in rarity._known.get(store.database, {})


# Others that write, purge, fork

WRITER = """
import random
chance = random.Random(word())
own = []
for number in range({writes}):
    own.append(store.notes.add("fact", f"{{word()}} of number {{number}}", body=(word() + " ") * chance.randrange(200)).id)
    if number % 3 == 2:
        store.notes.update(chance.choice(own), body=(word() + " ") * chance.randrange(200))
    if number % 5 == 4:
        gone = own.pop(chance.randrange(len(own)))
        try:
            store.forget(gone)
        except NotFound:
            pass
say("done")
wait()
while own:
    store.forget(own.pop())
say("gone")
wait()
store.notes.add("fact", "The end")
"""


@pytest.mark.parametrize("writes", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_processes_that_write_and_purge_at_once(
    path: Path, tmp_path: Path, opened: Callable[..., Store], child: Callable[..., Child], writes: int
) -> None:
    """Three that write, edit and purge of their own, of which two purge all they wrote: only the third's words are found."""
    store = opened()
    surround(store)
    words = [SECRET, "wyjqxvzkpqw", "kqxzvjbbwyx"]
    three = [child(WRITER.format(writes=writes), word) for word in words]
    for each in three:
        each.go()
    for each in three:
        assert each.said() == ["done"]
    for each in three[:2]:
        each.go()
    for each in three[:2]:
        assert each.said() == ["gone"]
    for each in three[:2]:
        each.go()
        each.end()
    three[2].process.kill()
    three[2].process.wait()
    assert [len(store.find(word, limit=500).hits) > 0 for word in words] == [False, False, True]
    assert store.verify(replay=True).problems == ()
    assert meta(store).keys() == {"epoch"}
    store.close()
    assert search(path, KEY, tmp_path, *words[:2]).places == ()
    assert "pages" in search(path, KEY, tmp_path, words[2]).places


PURGER = """
try:
    receipt = store.forget({note})
    say("purged", list(receipt.ids))
except NotFound as error:
    say(error.code, [])
"""


def test_of_two_processes_that_purge_one_record_one_does(
    opened: Callable[..., Store], child: Callable[..., Child]
) -> None:
    """The other is told that it was purged already, and the log has one end of it."""
    store = opened()
    for number in range(5):
        note = store.notes.add("fact", f"{SECRET} {number}", similar=False).id
        both = [child(PURGER.format(note=note)) for _ in range(2)]
        for each in both:
            each.go()
        assert sorted(each.end()[0] for each in both) == [["not_found", []], ["purged", [note]]]
        assert len(store.log.read(kinds=["note.forgotten"])) == number + 1
    assert store.verify(replay=True).problems == ()


def test_a_purge_of_a_forked_child_reaches_its_parent(path: Path, tmp_path: Path, opened: Callable[..., Store]) -> None:
    """The child purges; the parent, which had the word in its memos, loses it with its next verb."""
    store = opened()
    surround(store)
    note = store.notes.add("fact", f"It is {SECRET}").id
    store.notes.add("fact", f"It is {SECRET} here")
    store.find(f"{SECRET} release")
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            receipt = store.forget([note, note + 1])
            fresh = not any(SECRET in memo.get(store.database, {}) for memo in (likeness._seen, rarity._known))
            code = 0 if fresh and len(receipt.ids) == 2 and not receipt.wal_pending else 2
            store.close()
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert SECRET in rarity._known[store.database]
    store.stats()
    assert not any(SECRET in memo.get(store.database, {}) for memo in (likeness._seen, rarity._known))
    assert store.find(SECRET).hits == ()
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


def test_a_purge_while_the_index_is_made_anew(path: Path, tmp_path: Path, opened: Callable[..., Store]) -> None:
    """Another analyser's index is rebuilt in the background; what is purged meanwhile does not come back with it."""
    store = opened()
    with store.transaction():
        notes = [store.notes.add("fact", f"{SECRET} {number}", similar=False).id for number in range(1200)]
        kept = [store.notes.add("fact", f"Another {number}", similar=False).id for number in range(1200)]
    with store.database.write() as connection:
        connection.execute("UPDATE meta SET value = 'another' WHERE name = 'analyser'")
    store.close()
    store = opened()
    for start in range(0, 1200, 400):
        store.forget(notes[start : start + 400])
    assert store.wait_for_index(60)
    assert store.find(SECRET).hits == ()
    assert store.find("another 7").hits[0].id in kept
    assert store.verify(replay=True).problems == ()
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()
