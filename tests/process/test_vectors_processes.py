"""Vectors beside other processes: two that embed one file, kills, forks, the end of the interpreter, readers, purges."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import SOURCE, Child

from agentmem import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "recall"))

from toy import Toy
from vector_rows import held, meta, wanted

RECALL = str(Path(__file__).parents[1] / "unit" / "recall")

# `path` is the file; `say` tells the parent something, `wait` waits to be told to go on; `begun` is set once `Slow`
# embeds what stood in the file.
PRELUDE = f"""
import gc, json, os, signal, sys, threading, time
sys.path.insert(0, {RECALL!r})
from agentmem import Store
from vector_rows import Forgetful, held
path = sys.argv[1]
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    return sys.stdin.readline().strip()
def opened(**options):
    given = {{"project": "acme", "key": bytes(range(32)), "durability": "normal", "embedder": Forgetful()}}
    return Store.open(path, **(given | options))
begun = threading.Event()
class Slow(Forgetful):
    def embed(self, texts):
        if len(texts) > 1:
            begun.set()
            time.sleep(0.01)
        return super().embed(texts)
"""

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def child(path: Path, script: str, *more: object) -> Child:
    return Child(PRELUDE + script, path, *more)


def facts(store: Store, number: int) -> list[int]:
    with store.transaction():
        return [store.notes.add("fact", f"Observation {one}", similar=False).id for one in range(number)]


def ran(path: Path, script: str) -> tuple[str, str]:
    """What a process printed on stdout and stderr; it has to end with 0."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_")}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, str(path)], capture_output=True, text=True, timeout=300, check=False,
        env=env | {"PYTHONPATH": SOURCE},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.parametrize("number", [600, pytest.param(5000, marks=pytest.mark.slow)])
def test_processes_that_embed_one_file_make_each_vector_once(
    path: Path, opened: Callable[..., Store], number: int
) -> None:
    """Four at once: none fails, all say that it is whole, and no vector is there twice."""
    store = opened(embedder=None)
    facts(store, number)
    script = "store = opened()\nsay('ready')\nwait()\nsay(store.wait_for_index(), len(held(store)))\nstore.close()"
    children = [child(path, script) for _ in range(4)]
    for each in children:
        assert each.said() == ["ready"]
    for each in children:
        each.go()
    assert [each.end() for each in children] == [[[True, number]]] * 4
    assert held(store) == wanted(store, Toy())
    assert store.verify(replay=True).problems == ()
    assert meta(store, "embedding") is None


KILLED = """
class Slow(Forgetful):
    def embed(self, texts):
        say("at work", len(texts))
        if len(texts) > 1:
            wait()
        return super().embed(texts)
store = opened(embedder=Slow())
store.wait_for_index()
"""


@pytest.mark.parametrize("batches", [1, 4])
def test_a_worker_that_is_killed_leaves_a_sound_file(path: Path, opened: Callable[..., Store], batches: int) -> None:
    """Its claim lapses by itself, the file is sound, and another process finishes the work with no vector twice."""
    store = opened(embedder=Toy())
    facts(store, 100)
    slow = child(path, KILLED)
    assert slow.said() == ["at work", 1]
    for batch in range(batches):
        assert slow.said() == ["at work", 16]
        if batch < batches - 1:
            slow.go()
    slow.process.send_signal(signal.SIGKILL)
    slow.process.communicate()
    assert store.verify(replay=True, independent=True).problems == ()
    assert meta(store, "embedding") is not None
    assert not store.wait_for_index(0.2)  # the claim is in force
    with store.database.write() as connection:
        connection.execute("UPDATE meta SET value = substr(value, 1, 17) || '1' WHERE name = 'embedding'")
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert store.verify(replay=True).problems == ()


@pytest.mark.parametrize(
    "kills", [pytest.param(6, marks=pytest.mark.slow), pytest.param(60, marks=pytest.mark.slow), 2]
)
def test_kills_at_any_moment_of_embedding(path: Path, opened: Callable[..., Store], kills: int) -> None:
    """Process after process is killed somewhere in its slices and writes; what they did is kept, nothing is there twice."""
    store = opened(embedder=Toy())
    facts(store, 40 * kills)
    script = """
from agentmem.recall import embedding
embedding._SLICE_SECONDS, embedding._BATCH, embedding._HELD_SECONDS = 0.0, 2, -1.0
store = opened()
threading.Thread(target=lambda: (wait(), os.kill(os.getpid(), signal.SIGKILL)), daemon=True).start()
say("ready")
store.wait_for_index()
say("done")
wait()
"""
    for number in range(kills):
        victim = child(path, script)
        assert victim.said() == ["ready"]
        before = len(held(store))
        while number % 2 and len(held(store)) == before and store.stats().waiting:  # every second one as it goes on
            pass
        victim.go()
        victim.process.communicate()
        rows = held(store)
        assert len({(record, begin) for record, begin, *_ in rows}) == len(rows)
        assert store.verify().problems == ()
    with store.database.write() as connection:
        connection.execute("DELETE FROM meta WHERE name = 'embedding'")
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())


# The end of a process


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "store.close()", "del store; gc.collect()"])
def test_an_interpreter_ends_while_the_worker_works(path: Path, opened: Callable[..., Store], end: str) -> None:
    """Without a word on stderr, by whatever end; what was done is kept and no claim is left."""
    store = opened(embedder=None)
    facts(store, 400)
    script = f"""
store = opened(embedder=Slow())
store.recall("observation 7")
begun.wait()
{end}
"""
    assert ran(path, script) == ("", "")
    assert meta(store, "embedding") is None
    assert store.verify(replay=True).problems == ()
    store.close()
    again = opened(embedder=Toy())
    assert again.wait_for_index()
    assert held(again) == wanted(again, Toy())


@pytest.mark.parametrize("end", ["", "store.close()"])
def test_an_interpreter_ends_while_the_real_model_works(path: Path, opened: Callable[..., Store], end: str) -> None:
    """The runtime and its threads go without a word too."""
    store = opened(embedder=None)
    facts(store, 200)
    store.close()
    script = f"""
from agentmem import UNSET
store = opened(embedder=UNSET)
answer = store.recall("what was seen")
say(answer.meaning)
{end}
"""
    assert ran(path, script) == ('["used"]\n', "")


# Forks


@needs_fork
def test_a_fork_while_the_worker_works(path: Path, opened: Callable[..., Store]) -> None:
    """The child recalls by meaning and embeds by itself, the parent goes on; neither says anything on stderr."""
    store = opened(embedder=None)
    facts(store, 300)
    script = """
store = opened(embedder=Slow())
store.recall("observation 7")
begun.wait()
for number in range(3):
    pid = os.fork()
    if pid == 0:
        note = store.notes.add("fact", f"The car number {number}").id
        found = [hit.id for hit in store.recall(f"automobile number {number}", limit=3)]
        assert note in found, found
        store.wait_for_index(0.5)
        store.close()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert store.wait_for_index()
say(len(held(store)))
store.close()
"""
    assert ran(path, script) == ("[303]\n", "")
    assert held(store) == wanted(store, Toy())
    assert store.verify(replay=True).problems == ()


@needs_fork
def test_a_fork_after_the_real_model_was_used(path: Path, opened: Callable[..., Store]) -> None:
    """The child loads it anew: it answers by meaning and embeds, without a word on stderr."""
    store = opened(embedder=None)
    facts(store, 30)
    store.close()
    script = """
from agentmem import UNSET
store = opened(embedder=UNSET)
assert store.recall("what was seen").meaning == "used"
pid = os.fork()
if pid == 0:
    store.notes.add("fact", "The vehicle is red")
    answer = store.recall("which colour has the car")
    assert (answer.meaning, len(answer.hits)) == ("used", 1), answer.text
    assert store.wait_for_index(60)
    store.close()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert store.wait_for_index(60)
say(store.stats().embedded)
store.close()
"""
    assert ran(path, script) == ("[31]\n", "")


# Readers


def test_a_reader_recalls_with_the_vectors_there_are_and_writes_nothing(
    path: Path, opened: Callable[..., Store]
) -> None:
    """Also what has no vector yet is found by meaning; not a byte of the file changes."""
    store = opened(embedder=Toy())
    facts(store, 30)
    assert store.wait_for_index()
    late = store.notes.add("fact", "The car is red").id
    store.close()
    before = path.read_bytes()
    script = """
with opened(read_only=True) as store:
    answer = store.recall("automobile")
    say(answer.meaning, answer.pending, [hit.id for hit in answer])
    say(store.wait_for_index(), len(held(store)))
    say([thread.name for thread in threading.enumerate()])
"""
    told = child(path, script).end()
    assert told == [["used", 1, [late]], [False, 30], [["MainThread"]]]
    assert path.read_bytes() == before


# Purges


PURGED = """
word = sys.argv[2][::-1]
store = opened()
note = int(sys.argv[3])
assert note in [hit.id for hit in store.recall(f"password {word}")]
store.wait_for_index()
store.recall("password")
say("ready")
wait()
hits = [hit.id for hit in store.recall("password")]
gc.collect()
remembered = set()
for each in gc.get_objects():
    inside = [*each, *each.values()] if isinstance(each, dict) else each if isinstance(each, (list, tuple, set)) else ()
    if any(isinstance(one, str) and word in one and one != word for one in inside):
        remembered.add(type(each).__name__)
meaning = store._shared.meaning
say(hits, sorted(remembered), 0 if meaning._index is None else len(meaning._index.codes), len(held(store)))
store.close()
"""


def test_another_process_forgets_what_was_purged(path: Path, opened: Callable[..., Store]) -> None:
    """Its queries, what it embedded by itself and its codes: all that had the word goes with its next reading."""
    store = opened(embedder=Toy())
    word = "zqvxjkwyzqu"
    facts(store, 5)
    note = store.notes.add("fact", f"The password is {word}").id
    other = child(path, PURGED, word[::-1], note)
    assert other.said() == ["ready"]
    assert note in {record for record, *_ in held(store)}
    store.forget(note)
    told: Any = other.end("\n")
    assert told == [[[], [], 5, 5]]
