"""What is forgotten is nowhere: after each way to write it, in every decrypted page, table, index and log."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decrypted import Search, image, search, windows
from written import CHINESE, LONG_WORD, SECRET, WRITES, surround

from agentmem import Result, Store

KEY = bytes(range(32))
TEXTS = {"a word": SECRET, "Chinese": CHINESE, "a very long word": LONG_WORD}


@pytest.fixture
def proof(
    path: Path,
    tmp_path: Path,
    opened: Callable[..., Store],
    clock: Any,
    searched: list[int],
) -> Callable[..., Search]:
    """`proof(write, purge, *texts)` writes, shows that the search finds the texts, purges, and shows that none is found.

    `write` gives what `purge` is called with, beside the store. The answer is the search before the purge.
    """

    def prove(write: Callable[[Store], Any], purge: Callable[[Store, Any], Any], *texts: str) -> Search:
        store = opened(author="ana", run="r1")
        surround(store)
        given = write(store)
        surround(store.in_project("other"))
        store.close()
        before = search(path, KEY, tmp_path, *texts)
        assert "pages" in before.places
        clock.advance(seconds=86_400)  # claims lapse
        store = opened(author="ana", run="r1")
        purge(store, given)
        assert store.verify(replay=True).problems == ()
        store.close()
        after = search(path, KEY, tmp_path, *texts)
        assert after.places == ()
        searched.append(after.bytes)
        return before

    return prove


def forgotten(store: Store, ref: Any) -> None:
    receipt = store.forget(ref)
    assert receipt.ids
    assert not receipt.wal_pending
    assert "write-ahead log" in receipt.cleaned


# Where the text stands in no row of the index: it was changed or taken back, or the index does not have the field.
NOT_INDEXED = {
    "source",
    "scope of a step",
    "earlier title",
    "earlier body",
    "removed item",
    "earlier text of an item",
    "replaced summary",
    "changed attribute",
    "removed attribute",
    "value of a mark",
    "detail of a mark",
    "replaced mark",
    "mark taken away",
    "renamed entity",
    "kind of a link of entities",
    "earlier body of 200 KB",
    "undone text",
    "undone note",
    "undone notes beneath",
    "note that is there again",
    "text after a redaction",
    "expected checks",
    "entity merged into another",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("write", WRITES)
def test_a_forgotten_text_is_nowhere(write: str, text: str, proof: Callable[..., Search]) -> None:
    """After each way to write it: found in pages and log before, and where it is indexed in the index; nowhere after."""
    before = proof(lambda store: WRITES[write](store, text), forgotten, text)
    assert {"event", "pages"} <= {*before.places, *(("event",) if "blob" in before.places else ())}
    if write not in NOT_INDEXED | {"text after a redaction"}:
        assert {"vocabulary", "leaves", "search_content"} <= {*before.places}


def test_a_long_text_of_two_notes_stays_for_the_other(
    opened: Callable[..., Store], proof: Callable[..., Search]
) -> None:
    """A body stored once for two notes outlives the first purge, whole, and goes with the second."""
    body = f"A line of {SECRET} in it\n" * 8000

    def write(store: Store) -> tuple[int, int]:
        return store.notes.add("fact", "One", body=body).id, store.notes.add("fact", "Two", body=body).id

    def purge(store: Store, notes: tuple[int, int]) -> None:
        assert store.forget(notes[0]).also_found_in == (notes[1],)
        assert store.notes.get(notes[1]).body == body
        assert store.verify(replay=True).problems == ()
        forgotten(store, notes[1])

    assert "blob" in proof(write, purge, SECRET).places


def test_forgetting_a_project_takes_its_names(proof: Callable[..., Search]) -> None:
    """Its name, its earlier name, those of projects merged into it, and all they held."""
    names = ["zqvxjkone", "wyqvxzjtwo", "kqxzvjwyx"]

    def write(store: Store) -> str:
        begun = store.in_project(names[1])
        goal = begun.notes.add("goal", f"Goal {SECRET}").id
        begun.entities.expect("host", ["tls"])
        begun.projects.rename(names[0])
        renamed, merged = store.in_project(names[0]), store.in_project(names[2])
        merged.entities.put("host", "a", attrs={"password": SECRET})
        merged.entities.expect("host", ["tls", "dns"])
        renamed.entities.put("host", "a")
        renamed.projects.merge(names[2], collisions="merge")
        renamed.undo(renamed.checkpoint(f"Halfway {SECRET}").id)
        assert renamed.notes.get(goal)
        return names[0]

    def purge(store: Store, name: str) -> None:
        receipt = store.forget(project=name)
        assert receipt.types == {"note": 1, "entity": 2, "checks": 2, "checkpoint": 1, "project": 2}
        with pytest.raises(LookupError):
            store.projects.get(name)

    proof(write, purge, SECRET, *names)


def test_statistics_keep_no_key(path: Path, tmp_path: Path, opened: Callable[..., Store]) -> None:
    """A person's ANALYZE copies keys into sqlite_stat4; a purge clears it."""
    store = opened()
    surround(store)
    store.entities.put_many("host", keys=[f"{SECRET}-{number}" for number in range(100)])
    with store.database.write() as connection:
        connection.execute("ANALYZE")
    store.close()
    assert "sqlite_stat4" in search(path, KEY, tmp_path, SECRET).places
    store = opened()
    assert len(store.forget(type="host", where="key startswith :begin", begin=SECRET).ids) == 100
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


def crowded(store: Store, number: int, seed: int) -> dict[str, tuple[int, int]]:
    """Notes and entities of random sizes, edited in random order: by the word that each pair of them has, their ids."""
    chance = random.Random(seed)
    words = [f"zqx{each:05d}vjk" for each in range(number)]
    chance.shuffle(words)
    with store.transaction():
        notes = {
            word: store.notes.add("fact", f"Title {word}", body=f"{word} " * chance.randrange(60), similar=False).id
            for word in sorted(words)
        }
    with store.transaction():
        hosts = {
            word: store.entities.put("host", word, attrs={"text": word * chance.randrange(1, 20)}).id for word in words
        }
        for word in words:
            store.entities.mark("host", [word], {"tls": Result("fail", value=word, detail=f"It is {word}")})
    with store.transaction():
        for word in chance.sample(words, number // 2):
            store.notes.update(notes[word], body=f"{word} " * chance.randrange(60))
    return {word: (notes[word], hosts[word]) for word in words}


@pytest.mark.parametrize("seed", range(3))
def test_rows_that_moved_leave_no_copy(
    path: Path, opened: Callable[..., Store], seed: int, searched: list[int]
) -> None:
    """SQLite leaves copies of rows in the unused parts of pages when it parts or joins pages: they go too.

    With secure_delete alone a word in two of a hundred was found after the purge of sixty notes among four hundred.
    """
    store = opened()
    pairs = crowded(store, 400, seed)
    store.close()
    gone = random.Random(seed).sample(sorted(pairs), 60)
    before = image(path, KEY)
    assert all(word.encode() in before for word in gone)
    store = opened()
    store.forget([record for word in gone for record in pairs[word]])
    kept = sorted(set(pairs) - set(gone))
    assert all(store.find(word, limit=5).hits for word in kept[:40])
    assert store.verify(replay=True).problems == ()
    store.close()
    after = image(path, KEY)
    traces = {part for word in gone for part in windows(word, size=11) if part in after}
    assert traces == set()
    assert all(word.encode() in after for word in kept)
    searched.append(len(after))


def test_a_purge_between_others_leaves_the_rest_as_it_was(opened: Callable[..., Store]) -> None:
    """What is found, listed and read of the records that stay is the same before and after."""
    store = opened()
    pairs = crowded(store, 60, 7)
    gone = sorted(pairs)[::3]
    kept = [word for word in sorted(pairs) if word not in gone]

    def seen() -> list[object]:
        found = []
        for word in kept:
            note, host = pairs[word]
            found += [store.notes.get(note), store.entities.get(host), store.entities.marks(host)]
            found.append(sorted(hit.id for hit in store.find(word).hits))
        return found

    before = seen()
    store.forget([record for word in gone for record in pairs[word]])
    assert seen() == before
    assert [store.find(word).hits for word in gone] == [()] * len(gone)


@pytest.mark.parametrize("before", [1, 10, 100])
@pytest.mark.parametrize("after", [1, 128, 150, 300])
def test_a_text_replaced_by_many_of_its_words_goes_from_the_index(
    path: Path, tmp_path: Path, opened: Callable[..., Store], before: int, after: int
) -> None:
    """FTS5's secure-delete kept the earlier entry of such a row, which outlived the row and broke the index."""
    store = opened()
    note = store.notes.add("fact", "What is known", body=f"{SECRET} " * before)
    for number in range(3):
        store.notes.add("fact", f"Another {number} {SECRET}", similar=False)
    store.notes.update(note, body=f"{SECRET} " * after)
    store.notes.update(store.notes.add("fact", f"{SECRET} ends").id, title="It ends", body=f"{SECRET} " * after)
    assert store.verify(replay=True).problems == ()
    store.forget([note.id + number for number in range(4)])
    assert store.verify(replay=True).problems == ()
    assert [hit.title for hit in store.find(SECRET).hits] == ["It ends"]
    store.forget(store.find(SECRET).hits[0].id)
    assert store.verify(replay=True).problems == ()
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


def test_purged_text_gives_its_space_back(store: Store) -> None:
    """Deleted vectors kept theirs, even after a VACUUM (sqlite-vec#54); here the file is as small as what is left."""
    store.notes.add("fact", "What stays")
    store.checkpoint("Begun")
    store.forget(store.notes.add("fact", "Something").id)
    small = store.database.file_bytes()
    chance = random.Random(1)
    with store.transaction():
        goal = store.notes.add("goal", "Many").id
        for number in range(100):
            body = "".join(chance.choice("abcdefgh ") for _ in range(20_000))
            store.notes.add("fact", f"Number {number}", body=body, parent=goal, similar=False)
    assert store.database.checkpoint(wait=5)
    assert store.database.file_bytes() > small + 4_000_000
    store.forget(goal)
    assert store.database.file_bytes() < small + 50_000
    assert store.stats().free_pages == 0


@pytest.mark.parametrize("number", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_many_notes_are_forgotten_at_once(
    path: Path, tmp_path: Path, opened: Callable[..., Store], number: int, searched: list[int]
) -> None:
    """In one transaction, with one receipt, more than one statement has room for."""
    store = opened()
    with store.transaction():
        goal = store.notes.add("goal", "Many").id
        for each in range(number):
            store.notes.add("fact", f"{SECRET} {each}", parent=goal, body=f"Of {SECRET} number {each}", similar=False)
    kept = store.notes.add("fact", "What stays").id
    receipt = store.forget(goal)
    assert receipt.types == {"note": number + 1}
    assert len(receipt.events) == len(receipt.digests) == number + 1
    assert [note.id for note in store.notes.list()] == [kept]
    assert store.verify(replay=True).problems == ()
    store.close()
    after = search(path, KEY, tmp_path, SECRET)
    assert after.places == ()
    searched.append(after.bytes)
