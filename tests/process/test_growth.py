"""The write-ahead log stays small: it is cut once a long reader has ended, and while one goes on it is named."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest

from agentmem import Store

MIB = 1024 * 1024
LARGE = 64 * MIB  # from here on a commit tries to cut it
KEPT = 16 * MIB  # what may stay after it was cut

PRELUDE = """
import json, os, sys, threading, warnings
from agentmem import Store
store = Store.open(sys.argv[1], project="acme", key=bytes(range(32)), durability="normal", busy_timeout=120)
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    sys.stdin.readline()
def grow(size):
    while store.stats().wal_bytes < size:
        store.checkpoint("grow" * 15_000)
say(os.getpid())
"""
READ = """
with store.database.read(long=True) as connection:
    connection.execute("SELECT count(*) FROM event").fetchall()
    say("reading")
    wait()
say("ended")
wait()
"""


class Child(processes.Child):
    """A Python process with the store open; it says what it did and waits to be told to go on."""

    def __init__(self, path: Path, script: str) -> None:
        super().__init__(PRELUDE + script, path)
        (self.pid,) = self.said()


@pytest.fixture
def child(path: Path) -> Iterator[Callable[[str], Child]]:
    """Starts a process with a script; those that still run at the end are stopped."""
    started: list[Child] = []

    def start(script: str) -> Child:
        started.append(Child(path, script))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def sizes_after_a_long_reader(store: Store, child: Callable[[str], Child], size: int) -> list[int]:
    """The sizes of the log after each of a few small commits, once a reader has ended beside which it grew to `size`."""
    store.checkpoint("begin")
    reader = child(READ)
    assert reader.said() == ["reading"]
    writer = child(f"warnings.simplefilter('ignore')\ngrow({size})\n")
    writer.end()
    assert store.stats().wal_bytes >= size
    reader.go()
    assert reader.said() == ["ended"]
    sizes = []
    for number in range(4):
        store.notes.add("fact", f"Small {number}")
        sizes.append(store.stats().wal_bytes)
    return sizes


def test_the_log_is_cut_by_the_next_commits_after_a_long_reader(
    opened: Callable[..., Store], child: Callable[[str], Child]
) -> None:
    """Two commits after the reader ended the log is within its limit again, though the reader's process goes on."""
    store = opened()
    sizes = sizes_after_a_long_reader(store, child, 40 * MIB)
    assert max(sizes[1:]) <= KEPT
    assert store.verify(replay=True).problems == ()


@pytest.mark.slow
def test_a_log_of_200_mb_is_cut_by_the_next_commits(
    opened: Callable[..., Store], child: Callable[[str], Child]
) -> None:
    """As large as the reports that made this a promise begin."""
    store = opened()
    assert max(sizes_after_a_long_reader(store, child, 200 * MIB)[1:]) <= KEPT
    assert store.verify(replay=True).problems == ()


WRITE = f"""
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    grow({LARGE - MIB})
    say([str(each.message) for each in caught])
    grow({LARGE + 12 * MIB})
    say([(each.category.__name__, str(each.message)) for each in caught])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only /proc/locks says who holds a lock")
def test_while_a_reader_keeps_the_log_it_is_named(opened: Callable[..., Store], child: Callable[[str], Child]) -> None:
    """One warning, not one a commit, that says how large the log is and which process reads; the writes are kept."""
    store = opened()
    store.checkpoint("begin")
    reader, idle = child(READ), child("wait()")
    assert reader.said() == ["reading"]
    writer = child(WRITE)
    assert writer.said() == [[]]
    ((name, message),) = writer.said()[0]
    writer.end()
    assert name == "StorageWarning"
    assert "64 MiB" in message
    assert f"pid {reader.pid} has been reading" in message
    assert str(idle.pid) not in message
    assert store.checkpoints(limit=1)[0].text.startswith("grow")
    assert store.stats().wal_bytes >= LARGE


OWN = f"""
reading, over = threading.Event(), threading.Event()
def read():
    with store.database.read(long=True) as connection:
        connection.execute("SELECT count(*) FROM event").fetchall()
        reading.set()
        over.wait()
thread = threading.Thread(target=read)
thread.start()
reading.wait()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    grow({LARGE + MIB})
    over.set()
    thread.join()
    say([str(each.message) for each in caught if "write-ahead log of" in str(each.message)])
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only /proc/locks says who holds a lock")
def test_a_long_reading_of_this_very_process_is_named(
    opened: Callable[..., Store], child: Callable[[str], Child]
) -> None:
    """Another thread may be the one that keeps the log."""
    opened().checkpoint("begin")
    writer = child(OWN)
    (message,) = writer.said()[0]
    assert f"pid {writer.pid} (this process) has been reading" in message
    writer.end()


OVERLAP = f"""
WORK = "WITH RECURSIVE n (i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 30000) SELECT count(*) FROM n"
turn, large, over = threading.Condition(), threading.Event(), threading.Event()
begun = [0, 0]  # how many readings each thread has begun
def read(me):
    while not over.is_set():
        with store.database.read(long=True) as connection:
            connection.execute("SELECT count(*) FROM event").fetchall()
            with turn:
                begun[me] += 1
                before = begun[1 - me]
                turn.notify_all()
            large.wait()
            connection.execute(WORK).fetchall()  # over some commits
            with turn:  # and it ends only once the other thread reads
                turn.wait_for(lambda: begun[1 - me] > before or over.is_set())
threads = [threading.Thread(target=read, args=(me,)) for me in (0, 1)]
for thread in threads:
    thread.start()
with turn:
    turn.wait_for(lambda: all(begun))
warnings.simplefilter("ignore")
grow({LARGE})  # beside the first two readings
large.set()
size = {LARGE}
while {LARGE} <= size < {1000 * MIB}:
    store.checkpoint("grow" * 15_000)
    size = store.stats().wal_bytes
over.set()
with turn:
    turn.notify_all()
for thread in threads:
    thread.join()
say(size)
"""


def test_short_readings_that_overlap_do_not_keep_the_log_for_ever(
    opened: Callable[..., Store], child: Callable[[str], Child]
) -> None:
    """At every moment somebody reads, none for long: a commit waits for those that read just now, and cuts the log."""
    opened().checkpoint("begin")
    (size,) = child(OVERLAP).end()[0]
    assert size < LARGE
