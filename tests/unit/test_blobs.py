"""Long texts of the log: stored once, read back whole, gone with the last event that has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem import Store
from agentmem.limits import BLOB_CHARS
from agentmem.log import blobs
from agentmem.log.canonical import canonical

LONG = "A long text. " * 400
OTHER = "长文本 " * BLOB_CHARS


def kept(store: Store) -> list[tuple[Any, ...]]:
    with store.database.read() as connection:
        return connection.execute("SELECT text, uses FROM blob ORDER BY text").fetchall()


def payloads(store: Store) -> list[str]:
    with store.database.read() as connection:
        return [row[0] for row in connection.execute("SELECT payload FROM event WHERE payload IS NOT NULL")]


def test_a_long_text_is_stored_once_whoever_writes_it(store: Store) -> None:
    """Two notes with the same body have it once in the log, and each reads it whole."""
    first = store.notes.add("fact", "One", body=LONG)
    second = store.notes.add("fact", "Two", body=LONG, basis="The same")
    assert kept(store) == [(LONG, 2)]
    assert max(map(len, payloads(store))) < 1000
    for note in (first, second):
        event = store.log.get(note.id)
        assert event is not None
        assert event.payload is not None
        assert event.payload["body"] == LONG
    assert store.verify(replay=True).problems == ()


def test_a_short_text_stays_in_its_event(store: Store) -> None:
    """Only long ones are worth a row of their own."""
    store.notes.add("fact", "One", body="x" * (BLOB_CHARS - 1))
    assert kept(store) == []


def test_a_text_goes_with_the_last_event_that_has_it(store: Store) -> None:
    """A purge of one of two records leaves the other's text; the purge of both leaves none."""
    first = store.notes.add("fact", "One", body=LONG)
    second = store.notes.add("fact", "Two", body=LONG)
    store.forget(first)
    assert kept(store) == [(LONG, 1)]
    assert store.notes.get(second).body == LONG
    store.notes.update(second, body="short")
    store.redact(second)
    assert kept(store) == []


def test_what_is_rolled_back_leaves_no_text(store: Store) -> None:
    """The text goes with the transaction."""
    with pytest.raises(KeyError), store.transaction():
        store.notes.add("fact", "One", body=LONG)
        raise KeyError
    assert kept(store) == []


def test_a_caller_s_object_that_looks_like_a_reference_is_kept_as_it_is(store: Store) -> None:
    """Attributes may have any name, also the one that stands for a long text."""
    attrs = {"$blob": "00" * 32, "nested": {"$blob": "ff"}, "long": LONG}
    host = store.entities.put("host", "a", attrs=attrs)
    assert store.entities.get(host).attrs == attrs
    event = store.log.get(host.id)
    assert event is not None
    assert event.payload is not None
    assert event.payload["attrs"] == attrs
    assert store.verify(replay=True).problems == ()


def test_long_texts_deep_inside_a_value_come_back(store: Store) -> None:
    """In lists and objects, several in one payload."""
    attrs = {"log": [LONG, {"more": OTHER[: BLOB_CHARS + 5]}, LONG], "n": 1}
    host = store.entities.put("host", "a", attrs=attrs)
    event = store.log.get(host.id)
    assert event is not None
    assert event.payload is not None
    assert event.payload["attrs"] == attrs
    assert sorted(uses for _, uses in kept(store)) == [1, 1]
    store.forget(host)
    assert kept(store) == []


TEXTS = st.sampled_from((LONG, OTHER, "short", "@", "$blob", '{"$blob":"00"}'))
VALUES = st.recursive(
    st.one_of(TEXTS, st.integers(-5, 5), st.none(), st.booleans()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(("a", "b", "$blob")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(payload=st.dictionaries(st.sampled_from(("set", "body", "$blob")), VALUES, max_size=3))
def test_whatever_is_stored_comes_back(payload: dict[str, Any]) -> None:
    """Any payload, with and without long texts; released, nothing of it is left."""
    import apsw

    connection = apsw.Connection(":memory:")
    connection.execute("CREATE TABLE blob (hash BLOB PRIMARY KEY, text TEXT NOT NULL, uses INTEGER NOT NULL)")
    stored = blobs.stored(connection, payload, canonical(payload))
    assert blobs.whole(connection, stored) == payload
    blobs.release(connection, stored)
    assert connection.execute("SELECT * FROM blob").fetchall() == []
