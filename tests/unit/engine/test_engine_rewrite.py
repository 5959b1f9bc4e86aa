"""Writing every page anew, and letting go of what connections remember."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable

import pytest

from agentmem import Conflict, ReadOnly, Store


def test_a_rewrite_changes_no_row(store: Store) -> None:
    """Ids, chain and index are as before; the empty pages are gone."""
    for number in range(50):
        store.notes.add("fact", f"Number {number}", body="text " * 500, similar=False)
    with store.database.write() as connection:
        connection.execute("CREATE TABLE scratch (x)")
        connection.execute("INSERT INTO scratch VALUES (zeroblob(1000000))")
        connection.execute("DROP TABLE scratch")
    notes, head, free = store.notes.list(), store.log.head(), store.stats().free_pages
    assert free > 200
    assert store.database.rewrite()
    assert store.stats().free_pages == 0
    assert (store.notes.list(), store.log.head()) == (notes, head)
    assert store.find("number 7").hits
    assert store.verify(replay=True, head=head).problems == ()


def test_a_rewrite_waits_for_a_writer_and_not_for_a_reader(opened: Callable[..., Store]) -> None:
    """Beside a writer it says that it was not done; a reader goes on with what it saw."""
    store, other = opened(), opened()
    store.notes.add("fact", "One")
    with other.database.write():
        assert not store.database.rewrite()
    with other.database.read() as reader:
        before = reader.execute("SELECT title FROM note").fetchall()
        assert store.database.rewrite()
        assert reader.execute("SELECT title FROM note").fetchall() == before == [("One",)]


def test_a_rewrite_is_refused_where_it_cannot_be(opened: Callable[..., Store]) -> None:
    """Inside a transaction, and of a file opened for reading."""
    store = opened()
    with store.database.write(), pytest.raises(Conflict):
        store.database.rewrite()
    with pytest.raises(ReadOnly):
        opened(read_only=True).database.rewrite()


def test_no_connection_outlives_the_call_to_let_go(store: Store) -> None:
    """Idle ones are closed at once, the writer is another one, one in use is closed at the end of its block."""
    store.notes.add("fact", "One")
    store.notes.list()
    pool = store.database._pool
    before = [weakref.ref(each) for each in (pool.writer, *pool.idle) if each is not None]
    assert len(before) == 2
    store.database.drop_pages()
    assert [each() for each in before] == [None, None]
    with store.database.read() as reader:
        used = weakref.ref(reader)
        dropping = threading.Thread(target=store.database.drop_pages)
        dropping.start()
        dropping.join()
        assert reader.execute("SELECT title FROM note").fetchall() == [("One",)]
        del reader
    assert used() is None
    with store.database.write() as writer:
        used = weakref.ref(writer)
        store.database.drop_pages()
        writer.execute("UPDATE meta SET value = value")
        del writer
    assert used() is None
    assert store.notes.list()[0].title == "One"
    store.close()
    assert store.database.wal_bytes() == 0
