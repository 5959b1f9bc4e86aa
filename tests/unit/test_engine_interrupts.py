"""Blocks that never came to their end, and files that went away while they were open."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

import agentmem
from agentmem.engine.database import Database, Migration
from agentmem.engine.stays import Place, Places
from agentmem.errors import Conflict, StoreMissing, StoreReplaced

KEY = bytes(range(32))
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE) STRICT",)),)
POSIX = pytest.mark.skipif(os.name == "nt", reason="an open file can't be moved away here")


def opened(path: Path, **options: Any) -> Database:
    return Database.open(path, schema=SCHEMA, **({"key": KEY, "durability": "normal", "busy_timeout": 0.1} | options))


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    with opened(tmp_path / "s.db") as database:
        yield database


def add(database: Database, text: str) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES (?)", (text,))


def texts(database: Database) -> list[str]:
    with database.read() as connection:
        return [row[0] for row in connection.execute("SELECT b FROM t ORDER BY a")]


class Stopped(BaseException):
    """As a KeyboardInterrupt."""


def stop_at_leaving(function: Any) -> Any:
    """A trace that raises on the entry of `_leave`: no line of it runs, as when a signal arrives there."""

    def trace(frame: Any, event: str, _: object) -> None:
        if frame.f_code.co_name == "_leave":
            sys.settrace(None)
            raise Stopped

    sys.settrace(trace)
    try:
        function()
    except Stopped as error:
        return error
    finally:
        sys.settrace(None)
    raise AssertionError("not stopped")


# Blocks


def test_a_write_whose_end_never_ran(database: Database, tmp_path: Path) -> None:
    """It is undone at once, though the traceback keeps the block alive, and anybody may write."""
    kept = stop_at_leaving(lambda: add(database, "stopped"))
    assert not database.in_write()
    with opened(tmp_path / "s.db") as other:
        add(other, "by another")
    thread = threading.Thread(target=add, args=(database, "in a thread"))
    thread.start()
    thread.join()
    add(database, "after")
    assert texts(database) == ["by another", "in a thread", "after"]
    assert isinstance(kept, Stopped)


def test_an_inner_write_whose_end_never_ran(database: Database) -> None:
    """It is undone alone, and the outer block goes on."""
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('outer')")
        kept = stop_at_leaving(lambda: add(database, "inner"))
        add(database, "second")
    assert texts(database) == ["outer", "second"]
    assert isinstance(kept, Stopped)


def test_a_read_whose_end_never_ran(database: Database) -> None:
    """Its reader is given back, however often, and the next read sees the newest state."""
    kept = []
    for number in range(10):
        kept.append(stop_at_leaving(lambda: texts(database)))
        add(database, str(number))
        assert texts(database) == [str(each) for each in range(number + 1)]
    assert len(kept) == 10


def test_a_closed_store_has_no_open_files_after_an_interrupt(tmp_path: Path) -> None:
    """Closing after an interrupted write and read closes all: no file is left beside the store."""
    with opened(tmp_path / "s.db") as database:
        add(database, "x")
        kept = [stop_at_leaving(lambda: add(database, "y")), stop_at_leaving(lambda: texts(database))]
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]
    assert len(kept) == 2


# Places


class Absent(Place):
    """A holder that is not there any more."""

    def __init__(self, places: Places) -> None:
        self.places = places

    def alive(self) -> bool:
        return False

    def lost(self) -> None:
        self.places.free(self)


def test_places_of_holders_that_are_gone_are_taken() -> None:
    """A holder that went without a word is found by the next that wants its place."""
    places = Places(2)
    assert places.take(Absent(places), 0)
    assert places.take(Absent(places), 0)
    first, second, third = Place(), Place(), Place()
    assert places.take(first, 0)
    assert places.take(second, 0)
    assert not places.take(third, 0)
    places.free(first)
    assert places.take(third, 0)
    assert places.holds(third)
    assert not places.holds(first)


def test_who_waits_first_is_served_first() -> None:
    """Waiters come in the order of their waiting, and none is passed over by who comes later."""
    places = Places(1)
    place = Place()
    assert places.take(place, 0)
    order: list[int] = []
    waiting = [threading.Event() for _ in range(5)]

    def wait(number: int) -> None:
        mine = Place()
        waiting[number].set()
        assert places.take(mine, 60)
        order.append(number)
        places.free(mine)

    threads = [threading.Thread(target=wait, args=(number,)) for number in range(5)]
    for number, thread in enumerate(threads):
        thread.start()
        waiting[number].wait()
        while len(places._queue) <= number:
            time.sleep(0)  # only lets it run: what is waited for is its place in the queue
    places.free(place)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


# Files


@POSIX
def test_a_deleted_file_takes_no_write(database: Database) -> None:
    """A write to a file that was deleted is StoreMissing, not an acknowledgement; reads go on, and close is clean."""
    add(database, "x")
    assert texts(database) == ["x"]
    database.path.unlink()
    with pytest.raises(StoreMissing, match="deleted or moved"):
        add(database, "into nothing")
    assert texts(database) == ["x"]
    assert database.file_bytes() == 0
    with pytest.raises(StoreMissing):
        database.checkpoint()
    database.close()
    assert all(each.stat().st_size == 0 for each in database.path.parent.glob("*-wal"))
    with opened(database.path) as fresh:
        assert texts(fresh) == []


@POSIX
def test_a_moved_file_keeps_what_was_acknowledged(database: Database, tmp_path: Path) -> None:
    """What was written before a move is in the file that was moved, once the store is closed."""
    add(database, "x")
    os.rename(database.path, tmp_path / "moved.db")
    with pytest.raises(StoreMissing):
        add(database, "y")
    database.close()
    with opened(tmp_path / "moved.db") as moved:
        assert texts(moved) == ["x"]
        assert moved.independent_check() == []


@POSIX
def test_a_file_put_back_is_written_again(database: Database, tmp_path: Path) -> None:
    """The path counts, not its history."""
    os.rename(database.path, tmp_path / "away")
    with pytest.raises(StoreMissing):
        add(database, "x")
    os.rename(tmp_path / "away", database.path)
    add(database, "y")
    assert texts(database) == ["y"]


@POSIX
@pytest.mark.parametrize("encrypted", [True, False])
def test_a_replaced_file_is_left_as_it_is(tmp_path: Path, encrypted: bool) -> None:
    """A write to a file that was replaced is StoreReplaced, and the new file is whole, alone and as it was."""
    path, fresh = tmp_path / "s.db", tmp_path / "fresh.db"
    options = {"key": KEY} if encrypted else {"key": None, "encrypted": False}
    with opened(fresh, **options) as database:
        add(database, "new")
    with opened(path, **options) as database:
        for number in range(50):
            add(database, f"old {number} " + "x" * 500)
        os.replace(fresh, path)
        with pytest.raises(StoreReplaced, match="another file"):
            add(database, "lost")
        # In this process a second opening would share locks with the first.
        with pytest.raises(StoreReplaced, match="still has the former file"):
            opened(path, **options)
    with opened(path, **options) as database:
        assert texts(database) == ["new"]
        assert database.independent_check() == []
        add(database, "newer")
        assert texts(database) == ["new", "newer"]
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


@POSIX
def test_a_new_files_log_is_not_touched(tmp_path: Path) -> None:
    """Where another process has begun to use a new file, closing the former one takes nothing from beside it."""
    path = tmp_path / "s.db"
    script = """
import sys
from agentmem.engine.database import Database, Migration
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT UNIQUE) STRICT",)),)
database = Database.open(sys.argv[1], schema=SCHEMA, key=bytes(range(32)))
def add(text):
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES (?)", (text,))
add("one"); print("ready", flush=True); input(); add("two")
import os
os._exit(0)
"""
    with opened(path) as database:
        add(database, "old")
        for suffix in ("", "-wal", "-shm"):
            os.unlink(f"{path}{suffix}")
        child = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])},
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        with pytest.raises(StoreReplaced):
            add(database, "lost")
    child.communicate("go\n")
    assert child.returncode == 0
    with opened(path) as database:
        assert texts(database) == ["one", "two"]


@POSIX
def test_a_new_reader_never_opens_another_file(database: Database, tmp_path: Path) -> None:
    """A read that needs one more connection after a replacement says so, and does not mix two files."""
    add(database, "old")
    with opened(tmp_path / "fresh.db") as fresh:
        add(fresh, "new")
    os.replace(tmp_path / "fresh.db", database.path)
    with pytest.raises(StoreReplaced):
        texts(database)


@POSIX
def test_a_file_moved_inside_a_long_block(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """A block that outlasts a move is not committed."""
    from agentmem.engine import pool

    monkeypatch.setattr(pool, "_MOMENT_SECONDS", -1.0)
    away = database.path.with_name("away")
    with pytest.raises(StoreMissing), database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('x')")
        os.rename(database.path, away)
    os.rename(away, database.path)
    assert texts(database) == []


def test_a_conflict_of_blocks_is_no_error_of_sqlite(database: Database) -> None:
    """Blocks left out of order say it in our terms."""
    outer, inner = database.write(), database.write()
    outer.__enter__()
    inner.__enter__()
    with pytest.raises(Conflict):
        outer.__exit__(None, None, None)
    with pytest.raises(Conflict):
        inner.__exit__(None, None, None)
    with pytest.raises(apsw.ConstraintError), database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('x')")
        connection.execute("INSERT INTO t (b) VALUES ('x')")
    assert texts(database) == []
