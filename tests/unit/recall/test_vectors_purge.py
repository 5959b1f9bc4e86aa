"""A purge takes the vectors of what it purges: a vector tells much of its text to who has the model."""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from vector_rows import Forgetful, held, wanted

from agentmem import Receipt, Store
from agentmem.store import shared

sys.path.insert(0, str(Path(__file__).parents[1] / "past"))

from decrypted import image, search
from written import SECRET, WRITES, surround

KEY = bytes(range(32))
PART = 16  # bytes of a code that are looked for: half a row is a trace too


@pytest.fixture(autouse=True)
def _embeds_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow machine a test would pass for a process that has been writing for long, and be embedded beside."""
    monkeypatch.setattr(shared, "_SETTLED_SECONDS", math.inf)


def parts(codes: Iterable[bytes]) -> set[bytes]:
    """Every part of some codes."""
    return {code[at : at + PART] for code in codes for at in range(len(code) - PART + 1)}


def found(path: Path, codes: Iterable[bytes]) -> bool:
    """Whether a part of any of the codes is on a decrypted page or in the write-ahead log. The store must be closed."""
    whole, sought = image(path, KEY), parts(codes)
    assert sought
    return any(whole[at : at + PART] in sought for at in range(len(whole) - PART + 1))


def of(store: Store, records: Iterable[int]) -> set[bytes]:
    """The codes of some records."""
    wanted = set(records)
    return {code for record, _, _, code in held(store) if record in wanted}


def store_of(opened: Callable[..., Store]) -> Store:
    return opened(author="ana", run="r1", embedder=Forgetful())


# What is left of these has no text that is embedded.
NO_VECTOR = {"removed item", "undone note", "expected checks"}


@pytest.mark.parametrize("write", WRITES)
def test_the_vectors_of_a_forgotten_text_are_nowhere(
    write: str, path: Path, tmp_path: Path, opened: Callable[..., Store], clock: Any
) -> None:
    """After each way to write it: on pages before, nowhere after; all other texts have theirs still."""
    store = store_of(opened)
    surround(store)
    given = WRITES[write](store, SECRET)
    assert store.wait_for_index()
    before = held(store)
    codes = {code for *_, code in before}
    if write != "claimed note":  # while the claim is in force not even the plan is told
        codes = of(store, store.forget(given, dry_run=True).ids)  # type: ignore[arg-type]
    store.close()
    assert (write in NO_VECTOR) == (not codes), write
    assert not codes or found(path, codes)
    clock.advance(seconds=86_400)  # claims lapse
    store = store_of(opened)
    receipt = store.forget(given)  # type: ignore[arg-type]
    assert "vectors" in receipt.cleaned
    assert of(store, receipt.ids) == set()
    kept = {code for *_, code in held(store)}
    gone = {code for record, _, _, code in before if record in set(receipt.ids)} - kept
    assert store.verify(replay=True).problems == ()
    store.close()
    assert not gone or not found(path, gone)
    assert search(path, KEY, tmp_path, SECRET).places == ()
    store = store_of(opened)
    assert store.wait_for_index()
    assert held(store) == wanted(store, Forgetful())


def test_the_vector_of_an_earlier_text_goes_with_a_redaction(path: Path, opened: Callable[..., Store]) -> None:
    """That of the text that stays is made again; what free pages kept of the earlier one is gone."""
    store = store_of(opened)
    surround(store)
    note = store.notes.add("fact", f"The password is {SECRET}").id
    assert store.wait_for_index()
    first = of(store, [note])
    store.close()
    assert found(path, first)
    store = store_of(opened)
    store.notes.update(note, title="The password is kept elsewhere")
    assert store.wait_for_index()
    assert of(store, [note]).isdisjoint(first)
    store.redact(note)
    store.close()
    assert not found(path, first)
    store = store_of(opened)
    assert store.wait_for_index()
    assert len(of(store, [note])) == 1
    assert held(store) == wanted(store, Forgetful())


@pytest.mark.parametrize("what", ["attr", "check"])
def test_the_vector_of_an_entity_goes_with_what_is_redacted_of_it(
    path: Path, opened: Callable[..., Store], what: str
) -> None:
    """An attribute or a detail that stood in its text."""
    from agentmem import Result

    store = store_of(opened)
    host = store.entities.put("host", "a", attrs={"os": "debian", "login": SECRET if what == "attr" else "ana"}).id
    store.entities.mark("host", [host], {"tls": Result("fail", detail=SECRET if what == "check" else "old cipher")})
    assert store.wait_for_index()
    first = of(store, [host])
    receipt: Receipt = store.redact(host, **({"attr": "login"} if what == "attr" else {"check": "tls"}))  # type: ignore[arg-type]
    assert receipt.ids == (host,)
    assert of(store, [host]) == set()
    store.close()
    assert not found(path, first)


@pytest.mark.parametrize("seed", range(2))
def test_many_vectors_that_moved_leave_no_copy(path: Path, opened: Callable[..., Store], seed: int) -> None:
    """Rows of vectors lie many to a page and move as others come and go: no part of those that go is left."""
    store = store_of(opened)
    chance = random.Random(seed)
    with store.transaction():
        ids = [
            store.notes.add("fact", f"Fact {number} of {chance.random()}", body="word " * chance.randrange(900),
                            similar=False).id
            for number in range(200)
        ]  # fmt: skip
    assert store.wait_for_index()
    for note in chance.sample(ids, 60):
        store.notes.update(note, body=f"other {chance.random()}")
    assert store.wait_for_index()
    gone = chance.sample(ids, 40)
    codes = of(store, gone)
    store.forget(gone)
    kept = held(store)
    store.close()
    assert not found(path, codes - {code for *_, code in kept})
    store = store_of(opened)
    assert held(store) == kept == wanted(store, Forgetful())


def test_memory_forgets_too(opened: Callable[..., Store]) -> None:
    """Neither queries nor what was just written nor codes of what was purged stay in this process, or in another view."""
    store, other = store_of(opened), store_of(opened)
    note = store.notes.add("fact", f"The password is {SECRET}").id
    assert [hit.id for hit in store.recall(f"password {SECRET}")] == [note]
    assert [hit.id for hit in other.recall(f"password {SECRET}")] == [note]
    assert store.wait_for_index()
    store.recall("password")
    other.recall("password")
    meanings = [each._shared.meaning for each in (store, other)]
    assert meanings[0]._fresh
    assert all(any(SECRET in query for query in each._queries) for each in meanings)
    store.forget(note)
    assert other.recall("elsewhere").hits == ()  # any reading of it learns of the purge
    for each in meanings:
        assert not each._fresh
        assert not [query for query in each._queries if SECRET in query]
        assert each._index is None or len(each._index.codes) == 0
    assert store.recall(f"password {SECRET}").hits == ()
