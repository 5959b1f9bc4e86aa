"""Write and read transactions of one process: what they see, what they keep, and their errors."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.engine import transactions
from agentmem.engine.database import Database, Migration
from agentmem.errors import Busy, Conflict, Corrupt, DiskFull, IoFailed, ReadOnly, StorageWarning

KEY = bytes(range(32))
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE) STRICT",)),)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with Database.open(tmp_path / "store.db", schema=SCHEMA, key=KEY, durability="normal") as opened:
        yield opened


def add(connection: apsw.Connection, text: str) -> None:
    connection.execute("INSERT INTO t (b) VALUES (?)", (text,))


def texts(database: Database) -> list[str]:
    with database.read() as connection:
        return [row[0] for row in connection.execute("SELECT b FROM t ORDER BY a")]


def test_a_block_commits_at_its_end(database: Database) -> None:
    """What a block writes is there after it, and not before for others."""
    with database.write() as connection:
        add(connection, "x")
        with ThreadPoolExecutor(1) as other:
            assert other.submit(texts, database).result() == []
    assert texts(database) == ["x"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, apsw.ConstraintError])
def test_an_exception_rolls_back_and_passes_unchanged(database: Database, error: type[BaseException]) -> None:
    """An exception of the caller's code undoes the block and comes out as it is."""
    raised = error("mine")
    with pytest.raises(error) as caught, database.write() as connection:
        add(connection, "x")
        raise raised
    assert caught.value is raised
    assert texts(database) == []


def test_errors_of_a_statement_pass_unchanged(database: Database) -> None:
    """What SQLite says about a statement or its values is the caller's to handle."""
    with pytest.raises(apsw.ConstraintError), database.write() as connection:
        add(connection, "x")
        add(connection, "x")
    with pytest.raises(apsw.SQLError), database.read() as connection:
        connection.execute("SELECT nothing FROM nowhere")
    with pytest.raises(apsw.SQLError, match="no such column"), database.read() as connection:
        connection.execute('SELECT "a string in the wrong quotes" FROM t')


def test_a_nested_block_is_undone_alone(database: Database) -> None:
    """An exception caught between two blocks undoes the inner one only; levels may be many."""
    with database.write() as connection:
        add(connection, "outer")
        with pytest.raises(LookupError), database.write() as inner:
            assert inner is connection
            add(inner, "undone")
            with database.write():
                add(connection, "undone too")
            raise LookupError
        with database.write():
            add(connection, "inner")
    assert texts(database) == ["outer", "inner"]


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.booleans(), lambda children: st.tuples(st.booleans(), st.lists(children, max_size=4)), max_leaves=12
    )
)
def test_nesting_keeps_what_no_exception_crossed(tmp_path_factory: pytest.TempPathFactory, tree: object) -> None:
    """Whatever the nesting, what stays is what was written in blocks that all ended well."""
    kept: list[str] = []
    counter = iter(range(10_000))

    def run(database: Database, node: object, into: list[str]) -> None:
        fails, children = node if isinstance(node, tuple) else (node, [])
        own: list[str] = []
        try:
            with database.write() as connection:
                own.append(str(next(counter)))
                add(connection, own[0])
                for child in children:
                    run(database, child, own)
                if fails:
                    raise LookupError
        except LookupError:
            return
        into.extend(own)

    path = tmp_path_factory.mktemp("nesting") / "store.db"
    with Database.open(path, schema=SCHEMA, key=KEY, durability="normal") as database:
        run(database, tree, kept)
        assert texts(database) == kept


def test_reading_inside_a_write_sees_it(database: Database) -> None:
    """Inside this thread's own write, read() shows what was written so far."""
    with database.write() as connection:
        add(connection, "x")
        assert texts(database) == ["x"]
        assert database.in_write()
        with database.read() as reader:
            assert reader is connection
    assert not database.in_write()


def test_in_write_is_of_this_thread(database: Database) -> None:
    """Another thread is not inside this one's write."""
    with database.write(), ThreadPoolExecutor(1) as other:
        assert other.submit(database.in_write).result() is False


def test_a_read_sees_one_state(database: Database) -> None:
    """From its beginning to its end a read sees one state, and so do the reads nested in it."""
    with database.read() as connection:
        with ThreadPoolExecutor(1) as other:
            other.submit(_write, database, "later").result()
        assert texts(database) == []
        with database.read() as nested:
            assert nested is connection
    assert texts(database) == ["later"]


def _write(database: Database, text: str) -> None:
    with database.write() as connection:
        add(connection, text)


def test_a_write_inside_a_read_sees_the_newest_state(database: Database) -> None:
    """TRAPS 6: a write begun inside a read never fails for a snapshot that is old, and reads inside it see it."""
    with database.read():
        with ThreadPoolExecutor(1) as other:
            other.submit(_write, database, "first").result()
        with database.write() as connection:
            assert texts(database) == ["first"]
            add(connection, "second")
        assert texts(database) == []
    assert texts(database) == ["first", "second"]


def test_a_failed_read_gives_its_reader_back(database: Database) -> None:
    """Exceptions in read blocks, more than there are readers, leave all of them free."""
    for _ in range(10):
        with pytest.raises(LookupError), database.read():
            raise LookupError
    assert texts(database) == []


def test_no_cursor_outlives_its_block(database: Database) -> None:
    """TRAPS 6: a cursor kept beyond its block ends with it, and later blocks see and write the newest state."""
    for number in range(200):
        _write(database, f"{number} " + "x" * 500)
    for block in (database.read, database.write):
        with block() as connection:
            cursor = connection.execute("SELECT b FROM t")
            assert next(cursor)
        with Database.open(database.path, schema=SCHEMA, key=KEY) as other:
            _write(other, f"by the other after {block.__name__}")
        assert texts(database)[-1] == f"by the other after {block.__name__}"
        _write(database, f"after {block.__name__}")
        assert texts(database)[-1] == f"after {block.__name__}"
        with pytest.raises(apsw.Error):
            list(cursor)


def test_data_version_changes_with_every_commit(database: Database) -> None:
    """data_version changes with a commit of this process and stays the same without one."""
    seen = [database.data_version()]
    for text in ("x", "y"):
        assert database.data_version() == seen[-1]
        _write(database, text)
        seen.append(database.data_version())
    with pytest.raises(LookupError), database.write() as connection:
        add(connection, "z")
        raise LookupError
    assert database.data_version() == seen[-1]
    assert len(set(seen)) == 3


def test_a_checkpoint_empties_the_wal(database: Database) -> None:
    """checkpoint cuts the WAL to nothing, and says False while a reader still needs it."""
    _write(database, "x")
    assert database.wal_bytes() > 0
    with ThreadPoolExecutor(1) as other, database.read():
        other.submit(_write, database, "y").result()
        assert other.submit(database.checkpoint).result() is False
    assert database.checkpoint() is True
    assert database.wal_bytes() == 0
    assert texts(database) == ["x", "y"]
    with database.write(), pytest.raises(Conflict):
        database.checkpoint()


def test_no_close_inside_its_own_write(database: Database) -> None:
    """Closing inside one's own transaction is refused, and the transaction goes on."""
    with database.write() as connection:
        add(connection, "x")
        with pytest.raises(Conflict):
            database.close()
    assert texts(database) == ["x"]


def test_close_inside_a_read_ends_with_the_block(tmp_path: Path) -> None:
    """A read block outlives close: it reads to its end, and then the last connection closes."""
    database = Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY)
    _write(database, "x")
    with database.read() as connection:
        database.close()
        assert connection.execute("SELECT b FROM t").get == "x"
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


# Threads


def test_many_threads_lose_nothing(database: Database) -> None:
    """TRAPS 6: eight threads that write, nest, fail and read on one store keep exactly what they committed."""
    ready = threading.Barrier(8)

    def work(worker: int) -> list[str]:
        kept = []
        ready.wait()
        for number in range(60):
            text = f"{worker}-{number}"
            try:
                with database.write() as connection:
                    add(connection, text)
                    if number % 5 == 4:
                        raise LookupError
            except LookupError:
                continue
            kept.append(text)
            with database.read() as connection:
                assert connection.execute("SELECT count(*) FROM t WHERE b = ?", (text,)).get == 1
        return kept

    with ThreadPoolExecutor(8) as pool:
        kept = [text for texts_of_one in pool.map(work, range(8)) for text in texts_of_one]
    assert sorted(texts(database)) == sorted(kept)
    assert database.independent_check() == []


def test_another_threads_write_is_waited_for_and_named(tmp_path: Path) -> None:
    """A thread that waits longer than the busy timeout gets Busy, which says that it is a thread of this process."""
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY, busy_timeout=0.05) as database:
        with database.write(), ThreadPoolExecutor(1) as other, pytest.raises(Busy, match="another thread"):
            other.submit(_write, database, "x").result()
        _write(database, "y")
        assert texts(database) == ["y"]


def test_a_second_opening_in_one_process_is_told_apart(tmp_path: Path) -> None:
    """Two stores of one file wait for each other like two processes, and Busy says that both are in this one."""
    path = tmp_path / "s.db"
    with (
        Database.open(path, schema=SCHEMA, key=KEY) as first,
        Database.open(path, schema=SCHEMA, key=KEY, busy_timeout=0.05) as second,
        first.write(),
    ):
        with pytest.raises(Busy) as caught:
            _write(second, "x")
        if sys.platform == "linux":
            assert "this process" in str(caught.value)


def test_too_many_readers_is_busy(tmp_path: Path) -> None:
    """TRAPS 6: more reading threads than readers wait, and get Busy after the timeout."""
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY, busy_timeout=0.05) as database:
        inside, leave = threading.Barrier(5), threading.Event()

        def hold() -> None:
            with database.read():
                inside.wait()
                leave.wait()

        with ThreadPoolExecutor(4) as pool:
            held = [pool.submit(hold) for _ in range(4)]
            inside.wait()
            try:
                with pytest.raises(Busy, match="readers"), database.read():
                    pass
            finally:
                leave.set()
            for each in held:
                each.result()
        assert texts(database) == []


# What is wrong with a transaction


def test_a_long_transaction_warns(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 6: a transaction held over the limit warns when it ends, a read as a write, nested ones once."""
    monkeypatch.setattr(transactions, "HELD_SECONDS", -1.0)
    for block in (database.write, database.read):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with block(), block():
                pass
        assert [each.category for each in seen] == [StorageWarning]


def test_a_short_transaction_does_not_warn(database: Database) -> None:
    """A usual transaction warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _write(database, "x")
        texts(database)


def test_a_commit_inside_a_block_is_refused(database: Database) -> None:
    """Nothing but the end of the block commits: a COMMIT inside fails and nothing of the block is kept."""
    with pytest.raises(apsw.ConstraintError), database.write() as connection:
        add(connection, "x")
        connection.execute("COMMIT")
    assert texts(database) == []
    _write(database, "y")
    assert texts(database) == ["y"]


def test_a_rolled_back_transaction_never_commits_its_rest(database: Database) -> None:
    """If the transaction went away under a block that caught the error, what runs after it does not commit alone."""
    with pytest.raises(IoFailed, match="rolled back"), database.write() as connection:
        add(connection, "before")
        connection.execute("ROLLBACK")  # as SQLite itself does after some disk errors
        with pytest.raises(apsw.ConstraintError):
            add(connection, "after")
    assert texts(database) == []
    with pytest.raises(IoFailed, match="rolled back"), database.write() as connection:
        connection.execute("ROLLBACK")
        with database.write():
            pass
    _write(database, "y")
    assert texts(database) == ["y"]


@pytest.mark.parametrize(
    ("raised", "typed"),
    [
        (apsw.BusyError, Busy),
        (apsw.LockedError, Busy),
        (apsw.CorruptError, Corrupt),
        (apsw.NotADBError, Corrupt),
        (apsw.ReadOnlyError, ReadOnly),
        (apsw.FullError, DiskFull),
        (apsw.IOError, IoFailed),
        (apsw.CantOpenError, IoFailed),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_errors_about_the_file_become_ours(
    database: Database, raised: type[apsw.Error], typed: type[Exception], nested: bool
) -> None:
    """What SQLite says about the file, in a write or a read, nested or not, is an error of ours with its cause."""
    for block in (database.write, database.read):
        with pytest.raises(typed) as caught:
            _raise_in(block, raised, nested=nested)
        assert isinstance(caught.value.__cause__, raised)
        assert str(database.path) in str(caught.value)
    assert texts(database) == []


def _raise_in(block: Callable[[], object], error: type[Exception], *, nested: bool) -> None:
    with block():  # type: ignore[attr-defined]
        if nested:
            with block():  # type: ignore[attr-defined]
                raise error("as SQLite would")
        raise error("as SQLite would")


def test_a_full_disk_is_disk_full(database: Database) -> None:
    """A file that can't grow is DiskFull; the block is undone and the store goes on."""
    with database.write() as connection:
        pages = connection.execute("PRAGMA page_count").get
        connection.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    with pytest.raises(DiskFull, match="No space"), database.write() as connection:
        add(connection, "x" * 100_000)
    with database.write() as connection:
        connection.execute("PRAGMA max_page_count = 1000000").fetchall()
        add(connection, "y")
    assert texts(database) == ["y"]


def test_a_damaged_page_is_corrupt(tmp_path: Path) -> None:
    """A flipped byte in any page but the first is Corrupt when it is read, and is found by the independent check."""
    path = tmp_path / "s.db"
    with Database.open(path, schema=SCHEMA, key=KEY) as database:
        for number in range(100):
            _write(database, f"{number} " + "x" * 200)
    data = bytearray(path.read_bytes())
    data[4096 + 3000] ^= 1
    path.write_bytes(bytes(data))
    with Database.open(path, schema=SCHEMA, key=KEY) as database:
        with pytest.raises(Corrupt, match="damaged"):
            texts(database)
        assert database.independent_check() != []
