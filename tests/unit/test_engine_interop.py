"""Stock SQLCipher reads what we write and we read what it writes; copies are whole, durable and verified."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import sqlcipher3
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.engine.database import Database, Migration
from agentmem.engine.keys import RawKey
from agentmem.engine.pages import APPLICATION_ID, first_page, page_authentic, raw_key_of
from agentmem.errors import Conflict, InvalidInput, StoreExists, StoreMissing, WrongKey

KEY = bytes(range(32))
SCHEMA = (
    Migration(
        1,
        "first",
        (
            "CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT",
            "CREATE VIRTUAL TABLE f USING fts5 (b)",
        ),
    ),
)


def filled(path: Path, key: bytes | str | None, rows: int = 50) -> None:
    with Database.open(path, schema=SCHEMA, key=key, encrypted=key is not None) as database, database.write() as writer:
        writer.executemany("INSERT INTO t (b) VALUES (?)", ((f"row {number} " + "x" * 300,) for number in range(rows)))
        writer.execute("INSERT INTO f SELECT b FROM t")


def count(database: Database) -> int:
    with database.read() as connection:
        found: int = connection.execute("SELECT count(*) FROM t").get  # type: ignore[assignment]
    return found


def stock(path: Path, key: bytes | str | None) -> Any:
    connection = sqlcipher3.connect(str(path))
    if isinstance(key, bytes):
        connection.execute(f"PRAGMA key = \"x'{key.hex()}'\"")
    elif key is not None:
        quoted = key.replace("'", "''")
        connection.execute(f"PRAGMA key = '{quoted}'")
    return connection


@pytest.mark.parametrize("key", [KEY, "a passphrase", "it's «quoted» 密码"])
def test_stock_sqlcipher_reads_our_file(tmp_path: Path, key: bytes | str) -> None:
    """A closed file of ours opens in stock SQLCipher with the same key or passphrase, and every page is authentic."""
    path = tmp_path / "s.db"
    filled(path, key)
    connection = stock(path, key)
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (50,)
    assert connection.execute("SELECT count(*) FROM f WHERE f MATCH 'row'").fetchone() == (50,)
    assert connection.execute("PRAGMA cipher_integrity_check").fetchall() == []
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


@pytest.mark.parametrize("key", [KEY, "a passphrase", "it's «quoted» 密码"])
def test_we_read_what_stock_sqlcipher_writes(tmp_path: Path, key: bytes | str) -> None:
    """What stock SQLCipher adds to a closed file of ours we read; so we do a file it made that carries our marks."""
    path = tmp_path / "s.db"
    filled(path, key)
    connection = stock(path, key)
    connection.execute("INSERT INTO t (b) VALUES ('by the other')")
    connection.commit()
    connection.close()
    with Database.open(path, schema=SCHEMA, key=key) as database:
        assert count(database) == 51
        assert database.independent_check() == []
    made = tmp_path / "made.db"
    connection = stock(made, key)
    for statement in SCHEMA[0].script:
        connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute("PRAGMA user_version = 1")
    connection.commit()
    connection.close()
    with Database.open(made, schema=SCHEMA, key=key) as database:
        assert count(database) == 0
        with database.write() as writer:
            assert writer.execute("PRAGMA journal_mode").get == "wal"


@settings(max_examples=15, deadline=None)
@given(key=st.binary(min_size=32, max_size=32), salt=st.binary(min_size=16, max_size=16))
def test_the_page_check_agrees_with_the_cipher(
    tmp_path_factory: pytest.TempPathFactory, key: bytes, salt: bytes
) -> None:
    """The check of a page by its HMAC accepts what the cipher wrote, for every page, and nothing else."""
    path = tmp_path_factory.mktemp("pages") / "s.db"
    filled(path, key, rows=5)
    raw = raw_key_of(path, key)
    data = path.read_bytes()
    assert first_page(path) == data[:4096]
    for number in range(1, len(data) // 4096 + 1):
        page = data[(number - 1) * 4096 : number * 4096]
        assert page_authentic(page, number, raw)
        assert not page_authentic(page, number + 1, raw)
        assert not page_authentic(page, number, RawKey(bytes(32) if key != bytes(32) else KEY, raw.salt))
        assert page_authentic(page, number, RawKey(key, salt)) == (salt == raw.salt)
        assert not page_authentic(page[:-1], number, raw)


# Copies


@pytest.mark.parametrize("source_key", [KEY, "a passphrase"])
@pytest.mark.parametrize("copy_key", [None, bytes(32), "another passphrase"])
def test_a_copy_opens_with_its_key(tmp_path: Path, source_key: bytes | str, copy_key: bytes | str | None) -> None:
    """TRAPS 7: a copy has the same key or another, opens with that one alone, and stock SQLCipher verifies it."""
    filled(tmp_path / "s.db", source_key)
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=source_key) as database:
        database.snapshot_to(tmp_path / "copy.db", key=copy_key)
    key = source_key if copy_key is None else copy_key
    with pytest.raises(WrongKey):
        Database.open(tmp_path / "copy.db", schema=SCHEMA, key=b"\xff" * 32)
    connection = stock(tmp_path / "copy.db", key)
    assert connection.execute("PRAGMA cipher_integrity_check").fetchall() == []
    connection.close()
    with Database.open(tmp_path / "copy.db", schema=SCHEMA, key=key) as copy:
        assert count(copy) == 50
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "s.db"]


def test_a_copy_holds_what_is_committed(tmp_path: Path) -> None:
    """TRAPS 7: a copy holds the committed state, also what is still in the WAL, also from inside a write block."""
    filled(tmp_path / "s.db", KEY)
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY) as database:
        with database.write() as writer:
            writer.execute("DELETE FROM t WHERE a <= 10")
        with database.write() as writer:
            writer.execute("DELETE FROM t")
            database.snapshot_to(tmp_path / "copy.db")
    with Database.open(tmp_path / "copy.db", schema=SCHEMA, key=KEY) as copy:
        assert count(copy) == 40


def test_a_copy_replaces_nothing(tmp_path: Path) -> None:
    """A copy is refused where there is something, and where there is no directory; nothing is left behind."""
    filled(tmp_path / "s.db", KEY)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "s.db")
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY) as database:
        for name in ("taken", "s.db", "dangling"):
            with pytest.raises(StoreExists):
                database.snapshot_to(tmp_path / name)
        with pytest.raises(StoreMissing):
            database.snapshot_to(tmp_path / "nowhere" / "copy.db")
        for bad in (b"short", "", "x'00'"):
            with pytest.raises(InvalidInput):
                database.snapshot_to(tmp_path / "copy.db", key=bad)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dangling", "s.db", "taken"]
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_plain_store_copies_plain(tmp_path: Path) -> None:
    """The copy of a plain store is plain; a key for it is refused."""
    filled(tmp_path / "s.db", None)
    with Database.open(tmp_path / "s.db", schema=SCHEMA, encrypted=False) as database:
        database.snapshot_to(tmp_path / "copy.db")
        with pytest.raises(InvalidInput):
            database.snapshot_to(tmp_path / "other.db", key=KEY)
        assert database.independent_check() == []
    with Database.open(tmp_path / "copy.db", schema=SCHEMA, encrypted=False) as copy:
        assert count(copy) == 50


@pytest.mark.parametrize("key", [KEY, "a passphrase", None])
def test_a_sound_file_passes_the_independent_check(tmp_path: Path, key: bytes | str | None) -> None:
    """A sound file has no faults, and the check leaves nothing behind."""
    filled(tmp_path / "s.db", key)
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=key, encrypted=key is not None) as database:
        assert database.independent_check() == []
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


def test_the_independent_check_finds_contents_against_the_schema(tmp_path: Path) -> None:
    """Authentic pages that contradict the schema are a fault too."""
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY) as database:
        with database.write() as writer:
            writer.execute("INSERT INTO t (b) VALUES (NULL)")
            writer.execute("PRAGMA writable_schema = ON").fetchall()
            writer.execute("UPDATE sqlite_schema SET sql = replace(sql, 'b TEXT', 'b TEXT NOT NULL') WHERE name = 't'")
            writer.execute("PRAGMA writable_schema = OFF").fetchall()
        assert any("NULL" in fault for fault in database.independent_check())


def test_the_live_file_is_read_by_sqlite_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 3: while a store is open, no Python code opens its file, WAL or shared memory."""
    import builtins
    import io

    filled(tmp_path / "s.db", "a passphrase")
    seen: list[str] = []

    def watched(original: Any) -> Any:
        def opening(file: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(str(file))
            return original(file, *args, **kwargs)

        return opening

    for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key="a passphrase") as database:
        with database.write() as writer:
            writer.execute("INSERT INTO t (b) VALUES ('x')")
        with Database.open(tmp_path / "s.db", schema=SCHEMA, key="a passphrase") as second:
            assert count(second) == 51
        with pytest.raises(WrongKey):
            Database.open(tmp_path / "s.db", schema=SCHEMA, key="wrong")
        database.snapshot_to(tmp_path / "copy.db")
        assert database.independent_check() == []
        assert database.checkpoint()
        database.wal_bytes()
        database.data_version()
    live = {str(tmp_path / ("s.db" + suffix)) for suffix in ("", "-wal", "-shm")}
    assert seen
    assert not live & set(seen)


def test_a_copy_within_a_write_is_possible_but_a_close_is_not(tmp_path: Path) -> None:
    """The writer's own block may take a copy; closing there is refused."""
    filled(tmp_path / "s.db", KEY)
    with Database.open(tmp_path / "s.db", schema=SCHEMA, key=KEY) as database, database.write():
        assert database.independent_check() == []
        with pytest.raises(Conflict):
            database.close()
