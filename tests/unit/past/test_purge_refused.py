"""What stops a purge: claims, transactions, text from elsewhere, what names no record. And what a purge never does silently."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decrypted import search
from written import SECRET, family, surround

from agentmem import Closed, Conflict, Held, InvalidInput, NotFound, ReadOnly, Store

KEY = bytes(range(32))


def test_w3_claims_beneath_a_forgotten_record_hold(store: Store) -> None:
    """Forgetting an entity recursively checked the claim of the root only, and claimed children were deleted."""
    ids = family(store)
    child = store.entities.put("port", "443", parent=ids["host"]).id
    bob = store.acting(author="bob", run="r2")
    for record, forgotten in ((child, ids["host"]), (ids["item"], ids["goal"]), (ids["step"], ids["goal"])):
        bob.claim(record)
        head = store.log.head()
        for dry_run in (True, False):
            with pytest.raises(Held, match="bob"):
                store.forget(forgotten, dry_run=dry_run)
            with pytest.raises(Held, match="bob"):
                store.forget(project="acme", dry_run=dry_run)
        assert store.log.head() == head
        bob.release(record)
    bob.claim(ids["step"])
    assert ids["step"] in bob.forget(ids["goal"]).ids
    assert child in store.forget(ids["host"]).ids


def test_claims_of_what_points_at_a_forgotten_record_hold(store: Store) -> None:
    """It would be changed, and its holder does not expect that."""
    ids = family(store)
    bob = store.acting(author="bob", run="r2")
    bob.claim(ids["other"])
    for dry_run in (True, False):
        with pytest.raises(Held, match="bob"):
            store.forget(ids["host"], dry_run=dry_run)
    bob.release(ids["other"])
    store.claim(ids["beside"])
    assert store.forget(ids["host"]).detached == (ids["goal"], ids["other"], ids["beside"])


def test_a_claimed_record_is_not_redacted_by_another(store: Store) -> None:
    """Nor is a dry run of it."""
    note = store.notes.add("fact", "It is known")
    store.notes.update(note, title="It was known")
    store.acting(run="r2").claim(note)
    for dry_run in (True, False):
        with pytest.raises(Held):
            store.redact(note, dry_run=dry_run)


def test_w7_what_pointed_at_a_forgotten_record_changes_by_an_event(store: Store) -> None:
    """Forgetting an entity silently set a pointer of notes to null, without revision or journal."""
    ids = family(store)
    before = store.notes.get(ids["other"])
    store.acting(author="bob", run="r2").forget(ids["host"])
    after = store.notes.get(ids["other"])
    assert after.entity is None
    assert after.revision > before.revision
    (changed,) = store.log.read(record=ids["other"], after=before.revision)
    assert (changed.kind, changed.payload, changed.author) == ("note.changed", {"set": {"entity": None}}, "bob")
    (unlinked,) = store.log.read(record=ids["beside"], kinds=["entity.unlinked"])
    assert unlinked.payload == {"dst": ids["host"], "kind": "near"}
    assert store.entities.get(ids["beside"]).revision == unlinked.seq
    assert store.links.list(ids["beside"]) == ()


def test_d6_an_edited_text_ends_with_its_redaction_in_log_and_wal(
    path: Path, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """The WAL was emptied after purges only, and edits left secrets in it. Here an edit keeps its past on purpose."""
    store = opened()
    surround(store)
    note = store.notes.add("fact", f"It is {SECRET}")
    store.notes.update(note, title="It is known")
    assert store.database.wal_bytes() > 100_000
    store.redact(note)
    assert store.database.wal_bytes() < 20_000
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


def test_a_purge_inside_a_transaction_is_refused(store: Store) -> None:
    """It could not be finished there, and a rollback would bring back what was said to be gone."""
    note = store.notes.add("fact", f"It is {SECRET}")
    with store.transaction():
        store.notes.update(note, body="More")
        with pytest.raises(Conflict, match="transaction"):
            store.forget(note)
        with pytest.raises(Conflict, match="transaction"):
            store.redact(note)
        assert store.forget(note, dry_run=True).ids == (note.id,)
    assert store.notes.get(note).body == "More"


@pytest.mark.parametrize("origin", ["web", "tool", "import"])
def test_text_from_elsewhere_purges_nothing(store: Store, origin: str) -> None:
    """An injected instruction must not erase its traces."""
    note = store.notes.add("fact", "It is known")
    store.notes.update(note, body="More")
    foreign = store.acting(origin=origin)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=origin):
        foreign.forget(note)
    with pytest.raises(InvalidInput, match=origin):
        foreign.redact(note)
    assert store.notes.get(note).body == "More"


def test_a_store_opened_for_reading_purges_nothing(opened: Callable[..., Store]) -> None:
    """It says so; what a purge would do can be asked."""
    note = opened().notes.add("fact", "It is known").id
    reader = opened(read_only=True)
    with pytest.raises(ReadOnly):
        reader.forget(note)
    with pytest.raises(ReadOnly):
        reader.redact(note)
    assert reader.forget(note, dry_run=True).ids == (note,)
    assert reader.notes.get(note).title == "It is known"


def test_what_names_no_record_is_refused(store: Store) -> None:
    """Nothing, several ways at once, an event that made no record, a stranger's value, a condition without a type."""
    note = store.notes.add("fact", "It is known")
    changed = store.notes.update(note, body="More").revision
    for given in (0, -1, 10**30, changed, "host:a", f"{note.id}.1", note.id + 100):
        with pytest.raises(NotFound):
            store.forget(given)
        with pytest.raises(NotFound):
            store.redact(given)
    for given in (True, None, 1.5, "", object(), [None], [[note.id]], b"1", {"id": note.id}):
        with pytest.raises(InvalidInput):
            store.forget(given)  # type: ignore[arg-type]
    for options in (
        {},
        {"project": "acme", "type": "host"},
        {"type": ""},
        {"project": ""},
        {"dry_run": 1, "refs": note},
    ):
        with pytest.raises(InvalidInput):
            store.forget(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="type="):
        store.forget(note, where="key = 'a'")
    with pytest.raises(InvalidInput, match="type="):
        store.forget(note, nmae="a")
    with pytest.raises(NotFound):
        store.forget(project="nowhere")
    with pytest.raises(InvalidInput):
        store.forget(type="host", where="key = :missing")
    assert store.notes.get(note).title == "It is known"
    assert store.forget([]).ids == ()
    assert store.forget(type="nothing").ids == ()


def test_of_several_one_that_is_wrong_stops_all(store: Store) -> None:
    """All or none."""
    one, other = store.notes.add("fact", "One"), store.notes.add("fact", "Other")
    with pytest.raises(NotFound):
        store.forget([one, 999])
    store.forget(other)
    with pytest.raises(NotFound, match="purged"):
        store.forget([one, other])
    assert store.notes.get(one).title == "One"
    assert store.forget([one, one.id, f"#{one.id}", store.notes.get(one)]).ids == (one.id,)


def test_a_value_of_a_rolled_back_transaction_purges_nothing(
    store: Store, undone: Callable[[Store], Any], opened: Callable[..., Store], tmp_path: Path
) -> None:
    """Its id may be another record's by now; the same of a value that another store gave."""
    kept = []
    with undone(store):
        written = store.notes.add("fact", "Never written")
        kept = [written, store.notes.get(written)]
    record = store.notes.add("fact", "Another that has the id")
    assert record.id == written.id
    with Store.open(tmp_path / "other.db", project="acme", key=KEY) as other:
        other.notes.add("goal", "First")
        kept.append(other.notes.get(other.notes.add("fact", "In another store").id - 1))
    for value in kept:
        with pytest.raises(Closed):
            store.forget(value)
        with pytest.raises(Closed):
            store.redact(value)
    assert store.notes.get(record).title == "Another that has the id"
