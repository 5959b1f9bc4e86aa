"""Vectors in all that looks after the file: sizes, waiting, checks, repairs."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from toy import Gated, Toy
from vector_rows import held, meta, raw, wanted, written

from agentmem import Conflict, InvalidInput, Store
from agentmem.store import shared
from agentmem.upkeep.diagnosis import Severity

sys.path.insert(0, str(Path(__file__).parents[1] / "upkeep"))

from damage import flip, trees

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _embeds_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a test would pass for a process that has been writing for long, and be embedded beside."""
    monkeypatch.setattr(shared, "_SETTLED_SECONDS", math.inf)


class Broken(Toy):
    """One whose work fails."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        raise RuntimeError("out of memory")


# Sizes


def test_stats_tell_how_far_meaning_reaches(opened: Callable[..., Store]) -> None:
    """Which embedder, how many vectors of how many records, how many changed since, and the memory once it is used."""
    store = opened(embedder=Toy())
    ids = written(store)
    stats = store.stats()
    assert (stats.embedder, stats.vectors, stats.embedded, stats.codes_bytes) == (None, 0, 0, None)
    assert stats.waiting == 8
    assert store.wait_for_index()
    stats = store.stats()
    assert (stats.embedder, stats.waiting, stats.embedding_failed) == ("toy", 0, None)
    assert stats.embedded == 8
    assert stats.vectors == len(held(store)) > 8
    store.notes.update(ids["fact"], title="The broker restarts at noon")
    assert (store.stats().embedded, store.stats().waiting) == (7, 1)
    store.recall("broker")
    stats = store.stats()
    assert stats.codes_bytes is not None
    assert stats.codes_bytes >= stats.vectors * 256 / 8
    assert json.loads(json.dumps(stats.to_dict()))["embedder"] == "toy"


def test_stats_count_what_waits_up_to_a_thousand(opened: Callable[..., Store]) -> None:
    """More than 1,000 is told as 1,001, also where the store was opened without an embedder."""
    store = opened(embedder=None)
    store.entities.put_many("host", keys=[f"h{number}" for number in range(1200)])
    assert store.stats().waiting == 1001


def test_stats_tell_why_nothing_is_embedded(opened: Callable[..., Store]) -> None:
    """A failing embedder and a missing model are named; both answer by words, and waiting for them ends."""
    for embedder, told in ((Broken(), "out of memory"), ("/no/such/folder", "model")):
        store = opened(embedder=embedder)
        store.notes.add("fact", "The broker restarts", similar=False)
        assert store.stats().embedding_failed is None
        assert not store.wait_for_index()
        assert told in str(store.stats().embedding_failed)
        assert store.recall("broker restarts").hits
        assert store.stats().vectors == 0


def test_an_outage_in_the_middle_of_a_batch_loses_no_text(opened: Callable[..., Store]) -> None:
    """What failed because nothing works any more is embedded once it works again."""

    class Failing(Toy):
        well = True

        def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            if len(texts) > 1 or "Acknowledge it" in texts:
                self.well = False if len(texts) == 1 else self.well
                raise RuntimeError("too many at once")
            if not self.well:
                raise RuntimeError("gone")
            return super().embed(texts)

    store = opened(embedder=Failing())
    ids = written(store)
    assert not store.wait_for_index()
    assert "gone" in str(store.stats().embedding_failed)
    store.close()
    store = opened(embedder=Toy())
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert ids["item"] in {record for record, *_ in held(store)}


def test_a_failure_that_is_over_is_told_no_more(opened: Callable[..., Store]) -> None:
    """Once it works again everything is embedded."""

    class Mended(Toy):
        well = False

        def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            if not self.well and self.seen:
                raise RuntimeError("busy")
            return super().embed(texts)

    model = Mended()
    store = opened(embedder=model)
    written(store)
    assert not store.wait_for_index()
    assert "busy" in str(store.stats().embedding_failed)
    model.well = True
    assert store.wait_for_index()
    assert store.stats().embedding_failed is None
    assert held(store) == wanted(store, Toy())


# Waiting


def test_waiting_has_every_text_embedded(opened: Callable[..., Store]) -> None:
    """Notes, entities with their marks, items, summaries, checkpoints, each in the windows that its text has."""
    model = Toy()
    store = opened(embedder=model)
    written(store)
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    seen = len(model.seen)
    assert store.wait_for_index()
    assert len(model.seen) == seen


def test_without_an_embedder_nothing_is_waited_for(opened: Callable[..., Store]) -> None:
    """Words are all there is, and they are indexed at once."""
    store = opened(embedder=None)
    written(store)
    assert store.wait_for_index()
    assert held(store) == []
    assert meta(store, "embedded") is None


def test_a_store_for_reading_only_looks(opened: Callable[..., Store], path: Path) -> None:
    """It says whether all is embedded, and changes nothing."""
    store = opened(embedder=Toy())
    written(store)
    reader = opened(embedder=Toy(), read_only=True)
    assert not reader.wait_for_index()
    assert held(store) == []
    assert store.wait_for_index()
    assert reader.wait_for_index()


def test_waiting_inside_a_transaction_is_refused(opened: Callable[..., Store]) -> None:
    """The worker could not write before it is over."""
    store = opened(embedder=Toy())
    with store.transaction():
        store.notes.add("fact", "Noted")
        with pytest.raises(Conflict, match="inside a transaction"):
            store.wait_for_index(60)
    assert store.wait_for_index()


def test_waiting_ends_in_time(opened: Callable[..., Store]) -> None:
    """With a timeout it says that not all is done; what goes on goes on."""
    model = Gated()
    store = opened(embedder=model)
    written(store)
    assert not store.wait_for_index(0)
    assert not store.wait_for_index(0.05)
    model.open.set()
    assert store.wait_for_index()
    with pytest.raises(InvalidInput):
        store.wait_for_index(-1)
    with pytest.raises(InvalidInput):
        store.wait_for_index(progress=5)  # type: ignore[arg-type]


def test_waiting_is_for_what_was_there(opened: Callable[..., Store]) -> None:
    """Others that go on writing do not keep it for ever."""

    class Writing(Toy):
        store: Store | None = None

        def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
            if self.store is not None and texts != ["ready"]:
                self.store.notes.add("fact", f"And {len(self.seen)} more", similar=False)
            return super().embed(texts)

    model = Writing()
    store = opened(embedder=model)
    first = store.notes.add("fact", "The first").id
    model.store = store
    assert store.wait_for_index()
    model.store = None
    assert first in {row[0] for row in held(store)}


def test_progress_counts_events(opened: Callable[..., Store]) -> None:
    """From 0 to all that there were, never more."""
    model = Gated()
    store = opened(embedder=model)
    written(store)
    told: list[tuple[int, int]] = []

    def progress(done: int, total: int) -> None:
        told.append((done, total))
        model.open.set()

    assert store.wait_for_index(progress=progress)
    events = store.log.head().seq
    assert told[0] == (0, events)
    assert all(done <= total == events for done, total in told)


# Checks and repairs


STRAY = "INSERT INTO vector (record, begin, finish, scale, code) SELECT {}, 0, 0, scale, code FROM vector LIMIT 1"


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        (STRAY.format(99999), "#99999 has some and no text"),
        (STRAY.format(1), "#1 has some and no text"),
        ("UPDATE vector SET code = x'00' WHERE id = 1", "their codes have 2 sizes"),
        ("UPDATE vector SET code = x''", "their codes are empty"),
        ("UPDATE vector SET scale = 9e999 WHERE id = 2", "1 have no size"),
        ("UPDATE vector SET scale = -1.0 WHERE id < 3", "2 have no size"),
        ("UPDATE vector SET begin = 5, finish = 4 WHERE id = 1", "1 have no place"),
        ("DELETE FROM meta WHERE name = 'embedder'", "which embedder made them"),
        ("UPDATE meta SET value = '100000' WHERE name = 'embedded'", "names none of the log"),
        ("UPDATE meta SET value = 'x' WHERE name = 'embedded'", "names none of the log"),
    ],
)
def test_what_is_wrong_with_vectors_is_found_and_made_anew(
    opened: Callable[..., Store], path: Path, sql: str, told: str
) -> None:
    """`verify` and `doctor` name it, a repair lets go of all vectors and touches no record, and they are made again."""
    store = opened(embedder=Toy())
    written(store)
    store.wait_for_index()
    head = store.log.head()
    raw(store, sql)
    (problem,) = store.verify().problems
    assert told in problem
    store.close()
    (finding,) = (each for each in Store.doctor(path, key=KEY).findings if each.severity is not Severity.NOTE)
    assert (finding.code, finding.safe) == ("vectors_differ", True)
    assert told in finding.what
    mended = Store.doctor(path, key=KEY, repair=True)
    assert mended.sound
    assert any("vectors" in each for each in mended.repaired)
    assert not any("full-text" in each for each in mended.repaired)
    store = opened(embedder=Toy())
    assert held(store) == []
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert store.verify(replay=True).problems == ()
    assert store.log.head() == head


def test_a_damaged_mark_of_what_is_done_does_no_harm(opened: Callable[..., Store]) -> None:
    """Recall, sizes and the worker take it for nothing done; no vector is there twice after that."""
    store = opened(embedder=Toy())
    written(store)
    store.wait_for_index()
    raw(store, "UPDATE meta SET value = 'x' WHERE name = 'embedded'")
    assert store.stats().waiting > 0
    assert store.recall("broker").hits
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE note SET title = 'Another'",
        "UPDATE entity SET attrs = '{}'",
        "DELETE FROM search WHERE rowid = 3",
        "DROP INDEX note_parent",
        "DROP INDEX vector_record",
        "DROP TRIGGER note_vector_update",
        "DROP TABLE vector",
    ],
)
def test_after_a_repair_every_text_gets_its_vectors(opened: Callable[..., Store], path: Path, sql: str) -> None:
    """Whether tables are replayed, the index is filled or the whole file is made anew."""
    store = opened(embedder=Toy())
    written(store)
    store.wait_for_index()
    raw(store, sql)
    store.close()
    assert Store.doctor(path, key=KEY, repair=True).sound
    store = opened(embedder=Toy())
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert store.verify(replay=True).problems == ()
    assert meta(store, "embedder") == "toy"


@pytest.mark.parametrize("tree", ["vector", "vector_record", "note"])
def test_a_damaged_page_of_vectors_is_repaired(opened: Callable[..., Store], path: Path, tree: str) -> None:
    """The table and its index are derived: the file is made anew of the log, without vectors, and these are made again."""
    store = opened(embedder=Toy())
    written(store)
    store.entities.put_many("host", keys=[f"h{number}" for number in range(40)])
    store.wait_for_index()
    head = store.log.head()
    store.close()
    flip(path, trees(path)[tree][-1])
    assert Store.doctor(path, key=KEY).safe
    assert Store.doctor(path, key=KEY, repair=True).sound
    store = opened(embedder=Toy())
    assert store.log.head() == head
    assert held(store) == []
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
