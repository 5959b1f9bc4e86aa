"""Vectors follow the texts: whatever becomes of a record or of the file, each text has its own after a wait, and no other."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy import Toy
from vector_rows import held, meta, raw, wanted, written

from agentmem import Result, Store
from agentmem.store import shared

sys.path.insert(0, str(Path(__file__).parents[1] / "upkeep"))

from damage import flip, trees

KEY = bytes(range(32))


@pytest.fixture(autouse=True)
def _embeds_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a test would pass for a process that has been writing for long, and be embedded beside."""
    monkeypatch.setattr(shared, "_SETTLED_SECONDS", math.inf)


@pytest.fixture
def store(opened: Callable[..., Store]) -> Store:
    """An empty store with an embedder."""
    return opened(embedder=Toy(), run="r1")


def of(store: Store, record: int) -> list[bytes]:
    return [code for found, _, _, code in held(store) if found == record]


# What changes a text: the record whose text it is, and the change.
CHANGES: dict[str, Callable[[Store, dict[str, int]], object]] = {
    "goal": lambda store, ids: store.notes.update(ids["goal"], body="Another plan"),
    "fact": lambda store, ids: store.notes.update(ids["fact"], title="The broker restarts at noon"),
    "host": lambda store, ids: store.entities.put("host", "a.example.com", attrs={"os": "alpine"}),
    "host by a mark": lambda store, ids: store.entities.mark(
        "host", [ids["host"]], {"ssh": Result("fail", detail="Root may log in")}
    ),
    "host by a changed mark": lambda store, ids: store.entities.mark("host", [ids["host"]], {"tls": "pass"}),
    "host by a mark taken away": lambda store, ids: store.entities.unmark("host", [ids["host"]], ["tls"]),
    "host by its name": lambda store, ids: store.entities.rename(ids["host"], "b.example.com"),
    "item": lambda store, ids: store.checklists.edit(ids["item"], "Read two messages"),
    "item that is removed": lambda store, ids: store.checklists.remove(ids["goal"], 1),
    "summary": lambda store, ids: store.summarize(ids["goal"], result="All of it moved"),
    "fact that is redacted": lambda store, ids: store.redact(
        store.notes.update(ids["fact"], title="The broker restarts at noon").id
    ),
    "host without an attribute": lambda store, ids: store.redact(ids["host"], attr="os"),
    "host without a detail": lambda store, ids: store.redact(ids["host"], check="tls"),
    "fact that is undone": lambda store, ids: store.undo(ids["fact"]),
    "fact that is forgotten": lambda store, ids: store.forget(ids["fact"]),
    "checkpoint that is forgotten": lambda store, ids: store.forget(ids["checkpoint"]),
    "summary that is forgotten": lambda store, ids: store.forget(ids["summary"]),
    "item that is forgotten": lambda store, ids: store.forget(ids["item"]),
    "host that is forgotten": lambda store, ids: store.forget(ids["host"]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_vector_outlives_its_text(store: Store, change: str) -> None:
    """S9: the old one is gone with the change itself, the new one is there after a wait, those of others stay."""
    ids = written(store)
    store.wait_for_index()
    record = ids[change.split(maxsplit=1)[0]]
    before = held(store)
    assert of(store, record)
    CHANGES[change](store, ids)
    assert of(store, record) == []
    others = {each[0] for each in before} - {record, ids["summary"]}
    assert [each for each in held(store) if each[0] in others] == [each for each in before if each[0] in others]
    assert store.verify(replay=True).problems == ()
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())


@pytest.mark.parametrize("mark", ["pass", Result("na")])
def test_a_routine_mark_costs_no_vector(store: Store, mark: object) -> None:
    """A mark that is not told by words leaves the vector of its entity as it is."""
    ids = written(store)
    store.wait_for_index()
    before = of(store, ids["host"])
    store.entities.mark("host", [ids["host"]], {"dns": mark, "ssh": mark})  # type: ignore[dict-item]
    assert of(store, ids["host"]) == before


def test_what_is_set_to_the_same_keeps_its_vector(store: Store) -> None:
    """A change of status, tags or parent embeds nothing again."""
    ids = written(store)
    store.wait_for_index()
    before = held(store)
    store.notes.update(ids["fact"], tags=["broker"], confidence=0.5)
    store.notes.update(ids["goal"], status="active")
    store.notes.move(ids["fact"], parent=None)
    store.checklists.done(ids["goal"], 1)
    model = Toy()
    store.close()
    with Store.open(store.path, project="acme", key=KEY, embedder=model) as again:
        assert again.wait_for_index()
        assert held(again) == before
        assert model.seen in ([], ["ready"])


def test_an_undo_of_an_undo_brings_the_vector_back(store: Store) -> None:
    """A note that was taken back has none; once it is there again it has."""
    ids = written(store)
    store.wait_for_index()
    before = of(store, ids["fact"])
    store.undo(ids["fact"])
    assert store.wait_for_index()
    assert of(store, ids["fact"]) == []
    store.undo(store.log.head().seq)
    assert store.wait_for_index()
    assert of(store, ids["fact"]) == before
    assert held(store) == wanted(store, Toy())


def test_projects_that_become_one_keep_their_vectors(store: Store) -> None:
    """A merge moves records; texts that it changes are embedded again, and all are found in the one project."""
    other = store.in_project("other")
    note = other.notes.add("fact", "The car is red").id
    other.entities.put("host", "a.example.com", attrs={"os": "alpine", "area": "lab"})
    written(store)
    assert store.wait_for_index()
    assert store.recall("automobile").hits == ()
    store.projects.merge("other", collisions="merge")
    assert store.wait_for_index()
    assert held(store) == wanted(store, Toy())
    assert [hit.id for hit in store.recall("automobile")] == [note]


# Copies of the file


def test_a_backup_and_what_is_restored_of_it_have_the_vectors(
    store: Store, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """Nothing waits in them and nothing is embedded again, and the claim of a worker is not in force in a restored file."""
    written(store)
    store.wait_for_index()
    raw(store, "INSERT OR REPLACE INTO meta VALUES ('embedding', ?)", f"another {time.time() + 25:.0f}")
    store.backup(tmp_path / "backup.db")
    restored = Store.restore(tmp_path / "backup.db", tmp_path / "restored.db", key=KEY)
    model = Toy()
    with Store.open(restored.path, project="acme", key=KEY, embedder=model) as again:
        assert held(again) == held(store)
        assert meta(again, "embedding") is None
        assert again.stats().waiting == 0
        fact = again.notes.add("fact", "Written after it").id
        assert again.wait_for_index()
        assert of(again, fact)
        assert model.seen in (["ready", "Written after it"], ["Written after it"])


def test_a_salvaged_store_gets_its_vectors(store: Store, tmp_path: Path) -> None:
    """The new file has none and says so; a wait makes them."""
    written(store)
    store.wait_for_index()
    path = store.path
    store.close()
    flip(path, trees(path)["note"][-1])
    Store.salvage(path, tmp_path / "salvaged.db", key=KEY)
    with Store.open(tmp_path / "salvaged.db", project="acme", key=KEY, embedder=Toy()) as again:
        assert held(again) == []
        assert again.wait_for_index()
        assert held(again) == wanted(again, Toy())


def test_a_log_that_is_imported_gets_its_vectors(store: Store, tmp_path: Path) -> None:
    """A whole log in an empty store, and the copy of a project in another one."""
    written(store)
    store.export(tmp_path / "log.jsonl")
    store.export(tmp_path / "part.jsonl", project="acme")
    with Store.open(tmp_path / "whole.db", project="acme", key=KEY, embedder=Toy()) as again:
        assert again.wait_for_index()
        again.import_(tmp_path / "log.jsonl")
        assert again.wait_for_index()
        assert held(again) == wanted(again, Toy())
        assert len(held(again)) > 8
    with Store.open(tmp_path / "copy.db", project="mine", key=KEY, embedder=Toy()) as again:
        again.notes.add("fact", "Mine")
        assert again.wait_for_index()
        again.import_(tmp_path / "part.jsonl")
        assert again.wait_for_index()
        assert held(again) == wanted(again, Toy())


def test_another_key_leaves_the_vectors(store: Store) -> None:
    """A rekey changes pages, no row."""
    written(store)
    store.wait_for_index()
    before = held(store)
    store.rekey(b"k" * 32)
    assert held(store) == before
    assert store.recall("broker").hits
    store.rekey(KEY)
