"""The worker that embeds in the background: in slices, one process at a time, beside everything else."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from toy import Gated, Toy
from vector_rows import held, meta, raw, wanted, written

from agentmem import Conflict, Store
from agentmem.recall import embedding
from agentmem.store import shared

KEY = bytes(range(32))
WORKER = "agentmem-embed"


@pytest.fixture(autouse=True)
def _embeds_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a test would pass for a process that has been writing for long, and be embedded beside."""
    monkeypatch.setattr(shared, "_SETTLED_SECONDS", math.inf)


class Acting(Toy):
    """One that does something, once, in the middle of its work on a text that has a word."""

    def __init__(self, word: str, act: Callable[[], object]) -> None:
        super().__init__()
        self.word = word
        self.act: Callable[[], object] | None = act

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        act = self.act
        if act is not None and threading.current_thread().name == WORKER and any(self.word in text for text in texts):
            self.act = None
            act()
        return super().embed(texts)


def facts(store: Store, number: int, *, body: str = "") -> list[int]:
    return [store.notes.add("fact", f"Observation {one}", body=body, similar=False).id for one in range(number)]


def end_worker(store: Store) -> None:
    """As `close` does, without waiting for it."""
    worker = store._shared.meaning._worker
    assert worker is not None
    worker._stop.set()


def workers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == WORKER]


# Slices


def test_what_a_slice_did_is_kept(opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the slices are, all texts get the same vectors, each text is embedded a few times at most."""
    monkeypatch.setattr(embedding, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(embedding, "_BATCH", 3)
    model = Toy()
    store = opened(embedder=model)
    written(store)
    facts(store, 20)
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert len(model.seen) < 3 * len(held(store))


def test_a_worker_that_is_stopped_keeps_what_it_did(
    opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Texts that were done have their vectors in the file, and the next process goes on with the others alone."""
    monkeypatch.setattr(embedding, "_BATCH", 4)
    store = opened(embedder=None)
    ids = facts(store, 10)
    store.close()
    stopped = opened(embedder=Acting("Observation 5", lambda: end_worker(stopped)))
    assert not stopped.wait_for_index()
    done = {record for record, *_ in held(stopped)}
    assert done == set(ids[:8])  # two batches
    assert int(meta(stopped, "embedded") or 0) == ids[7]
    assert meta(stopped, "embedding") is None
    stopped.close()
    model = Toy()
    again = opened(embedder=model)
    assert again.wait_for_index()
    assert model.seen == ["ready", "Observation 8", "Observation 9"]
    assert held(again) == wanted(again, Toy())


def test_a_text_that_was_half_done_is_done_anew(opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop in the middle of a long text keeps none of its windows: a record has all of them or none."""
    monkeypatch.setattr(embedding, "_BATCH", 2)
    store = opened(embedder=None)
    short, long = facts(store, 1) + facts(store, 1, body="What was seen at that time. " * 300)
    store.close()
    stopped = opened(embedder=Acting("seen at", lambda: end_worker(stopped)))
    assert not stopped.wait_for_index()
    assert {record for record, *_ in held(stopped)} == {short}
    stopped.close()
    again = opened(embedder=Toy())
    assert again.wait_for_index()
    assert len([record for record, *_ in held(again) if record == long]) > 5
    assert held(again) == wanted(again, Toy())


# What happens between its reading and its writing


def test_a_text_that_is_forgotten_meanwhile_gets_no_vector(opened: Callable[..., Store]) -> None:
    """Nothing of it is written, the others get theirs, and nothing waits after that."""
    store = opened(embedder=Acting("secret", lambda: store.forget(ids[1])))
    ids = [
        store.notes.add("fact", title, similar=False).id for title in ("Plain words", "A secret word", "Other words")
    ]
    assert store.wait_for_index()
    assert {record for record, *_ in held(store)} == {ids[0], ids[2]}
    assert store.stats().waiting == 0
    assert store.verify(replay=True).problems == ()


@pytest.mark.parametrize("purge", ["redact", "forget of another"])
def test_a_purge_meanwhile_has_the_texts_looked_at_again(opened: Callable[..., Store], purge: str) -> None:
    """What stays is embedded as it is after the purge."""

    def act() -> object:
        if purge == "redact":
            return store.redact(host, attr="password")
        return store.forget(other)

    store = opened(embedder=Acting("secret", act))
    other = store.notes.add("fact", "Something else").id
    host = store.entities.put("host", "a", attrs={"password": "secret word", "os": "debian"}).id
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert not any(b"secret" in code for *_, code in held(store))


def test_a_text_that_changes_meanwhile_gets_the_vector_of_the_later(opened: Callable[..., Store]) -> None:
    """The vector of the earlier text is not written."""
    store = opened(embedder=Acting("earlier", lambda: store.notes.update(note, title="The later text")))
    note = store.notes.add("fact", "The earlier text").id
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())


def test_vectors_of_another_embedder_meanwhile_stay(opened: Callable[..., Store]) -> None:
    """A store that was opened with another embedder has all made anew; the worker of the first writes nothing more."""

    def act() -> None:
        assert other.wait_for_index()

    first = opened(embedder=Acting("Observation 3", act))
    facts(first, 2)
    assert first.wait_for_index()
    facts(first, 5)
    other = opened(embedder=Toy("other", 64))
    first.wait_for_index()
    assert {len(code) for *_, code in held(other)} == {64}
    assert held(other) == wanted(other, Toy("other", 64))
    assert other.verify().problems == ()


# One process at a time


def test_another_worker_is_waited_for(opened: Callable[..., Store]) -> None:
    """While another's claim is in force nothing is embedded here; once it lapsed, it is."""
    model = Toy()
    store = opened(embedder=model)
    facts(store, 3)
    raw(store, "INSERT INTO meta VALUES ('embedding', ?)", f"another {time.time() + 20:.0f}")
    assert not store.wait_for_index(0.3)
    assert model.seen == ["ready"]
    raw(store, "UPDATE meta SET value = ? WHERE name = 'embedding'", f"another {time.time() - 1:.0f}")
    assert store.wait_for_index(60)
    assert held(store) == wanted(store, Toy())
    assert meta(store, "embedding") is None


def test_a_claim_of_a_clock_that_went_wrong_is_not_in_force(opened: Callable[..., Store]) -> None:
    """One that ends later than any can, as in a copy that is opened where it is earlier, holds up nobody."""
    store = opened(embedder=Toy())
    facts(store, 3)
    raw(store, "INSERT INTO meta VALUES ('embedding', ?)", f"another {time.time() + 86_400:.0f}")
    assert store.wait_for_index(60)
    assert held(store) == wanted(store, Toy())


def test_two_stores_of_one_file_embed_each_text_once(opened: Callable[..., Store]) -> None:
    """No vector is there twice, whoever made it."""
    models = [Toy(), Toy()]
    stores = [opened(embedder=model) for model in models]
    facts(stores[0], 300)
    threads = [threading.Thread(target=store.wait_for_index) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(store.wait_for_index() for store in stores)
    assert held(stores[0]) == wanted(stores[0], Toy())
    assert sum(len(model.seen) for model in models) <= 302  # with two trials of the embedder


# Its end


def test_close_waits_for_the_batch_at_work(opened: Callable[..., Store]) -> None:
    """No worker outlives the store; what it did not finish the next store does."""
    model = Gated()
    store = opened(embedder=model)
    facts(store, 40)
    assert not store.wait_for_index(0)
    assert model.waits.wait(60)
    closing = threading.Thread(target=store.close)
    closing.start()
    model.open.set()
    closing.join()
    assert workers() == []
    again = opened(embedder=Toy())
    assert again.wait_for_index()
    assert held(again) == wanted(again, Toy())


def test_a_worker_that_is_stopped_at_once_does_one_batch(
    opened: Callable[..., Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon a process ends after its recall, it leaves less to the next, not all of it for ever."""
    monkeypatch.setattr(embedding, "_BATCH", 4)
    store = opened(embedder=None)
    ids = facts(store, 10)
    for done in (4, 8, 10):
        worker = embedding.Worker(store._shared.database, Toy)
        worker._stop.set()
        worker._run()
        assert {record for record, *_ in held(store)} == set(ids[:done])
    assert int(meta(store, "embedded") or 0) == ids[-1]
    assert meta(store, "embedding") is None


def test_a_close_that_is_refused_leaves_all_as_it_was(opened: Callable[..., Store]) -> None:
    """Inside a transaction a store is not closed: its worker works on, and a purge still empties its memory."""
    store = opened(embedder=Toy())
    secret, *_ = facts(store, 3)
    with store.transaction():
        store.recall("observation 0")
        with pytest.raises(Conflict):
            store.close()
    assert store.wait_for_index()
    store.forget(secret)
    assert not store._shared.meaning._queries
    facts(store, 1)
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())


def test_a_closed_store_begins_no_work(opened: Callable[..., Store]) -> None:
    """Also where one of its views is told to; the error is that of a closed store."""
    store = opened(embedder=Toy())
    facts(store, 3)
    assert store.wait_for_index()
    meaning = store._shared.meaning
    store.close()
    assert not meaning.work()
    assert workers() == []


def test_a_store_that_is_dropped_is_not_kept_by_its_worker(opened: Callable[..., Store], path: Path) -> None:
    """The worker ends by itself, and what is left of the store goes."""
    import gc
    import weakref

    store = Store.open(path, project="acme", key=KEY, durability="normal", embedder=Toy())
    facts(store, 3)
    assert store.wait_for_index()
    gone = weakref.ref(store._shared.meaning)
    del store
    gc.collect()
    assert gone() is None
    assert workers() == []


# Beside others


@pytest.mark.parametrize("rounds", [12, pytest.param(150, marks=pytest.mark.slow)])
def test_threads_recall_while_others_write_and_the_worker_works(opened: Callable[..., Store], rounds: int) -> None:
    """8 threads recall while 2 write: no error, each finds its own note at once by meaning, and all is whole at the end."""
    store = opened(embedder=Toy())
    facts(store, 50)
    begin = threading.Barrier(10)

    def write(name: str) -> None:
        begin.wait()
        for number in range(rounds):
            note = store.notes.add("fact", f"The car {name}{number} is here", similar=False).id
            found = [hit.id for hit in store.recall(f"automobile {name}{number}", limit=3)]
            assert note in found, (note, found)
            if number % 3 == 0:
                store.notes.update(note, title=f"The boat {name}{number} is here")
            if number % 5 == 0:
                store.forget(note)

    def read() -> None:
        begin.wait()
        for number in range(rounds):
            answer = store.recall(f"observation {number % 50}")
            assert answer.meaning == "used"
            assert answer.hits
            store.wait_for_index(0)

    with ThreadPoolExecutor(10) as pool:
        done = [pool.submit(read) for _ in range(8)] + [pool.submit(write, name) for name in "ab"]
        for each in done:
            each.result()
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    store.recall("observation")
    index = store._shared.meaning._index
    assert index is not None
    assert len(index.codes) == len(held(store))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_worker_in_a_child_has_a_claim_of_its_own(opened: Callable[..., Store]) -> None:
    """After a fork parent and child are two processes: each waits while the other works."""
    store = opened(embedder=Toy())
    facts(store, 2)
    assert store.wait_for_index()
    worker = store._shared.meaning._worker
    assert worker is not None
    before = worker._token
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, worker._token.encode())
        os._exit(0)
    os.waitpid(child, 0)
    told = os.read(reading, 100).decode()
    os.close(reading)
    os.close(writing)
    assert told not in ("", before)
    assert worker._token == before
