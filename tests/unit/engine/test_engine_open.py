"""Opening a file: what is made, what is refused, and that a refusal changes no byte."""

from __future__ import annotations

import os
import shutil
import sqlite3
import stat
from pathlib import Path

import apsw
import pytest
from engine_files import KEY, ONE, SCHEMA, digests, opened, rows

from agentmem.engine import connection as connection_module
from agentmem.engine.database import Database
from agentmem.engine.keys import KeySource, default_key_file, stretch
from agentmem.engine.pages import APPLICATION_ID, FirstPage, first_page_state
from agentmem.errors import (
    CipherMissing,
    Closed,
    InvalidInput,
    KeyMissing,
    NotAStore,
    ReadOnly,
    StoreExists,
    StoreMissing,
    WrongKey,
)


def test_a_new_file_is_encrypted_and_marked_as_ours(path: Path) -> None:
    """TRAPS 2: after creation the header is not plain text; application_id and user_version are set."""
    with opened(path) as database, database.read() as connection:
        assert connection.execute("PRAGMA application_id").get == APPLICATION_ID
        assert connection.execute("PRAGMA user_version").get == 3
    assert not path.read_bytes().startswith(b"SQLite format 3")
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_new_file_is_private(path: Path) -> None:
    """The file is its owner's alone, whatever the umask."""
    old = os.umask(0)
    try:
        with opened(path) as database, database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
            modes = {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    finally:
        os.umask(old)
    assert modes == {0o600}


def test_what_is_promised_of_every_connection(path: Path) -> None:
    """Writer and readers have the pragmas of the design, whatever the build's defaults."""
    wanted = {
        "journal_mode": "wal",
        "secure_delete": 1,
        "trusted_schema": 0,
        "temp_store": 2,
        "foreign_keys": 0,
        "busy_timeout": 10_000,
        "recursive_triggers": 1,
    }
    with opened(path) as full, opened(path, durability="normal") as normal:
        for database, synchronous in ((full, 2), (normal, 1)):
            with database.write() as writer:
                found = {name: writer.execute(f"PRAGMA {name}").get for name in wanted}
                assert found == wanted
                assert writer.execute("PRAGMA synchronous").get == synchronous
            with database.read() as reader:
                assert {name: reader.execute(f"PRAGMA {name}").get for name in wanted} == wanted
                assert not reader.execute("PRAGMA mmap_size").get


def test_on_create_runs_once_in_the_making_transaction(path: Path) -> None:
    """on_create sees the migrated schema and runs for the file that is made, not when it is opened again."""
    calls: list[int] = []

    def made(connection: apsw.Connection) -> None:
        assert connection.in_transaction
        calls.append(connection.execute("SELECT count(*) FROM u").get)  # type: ignore[arg-type]
        connection.execute("INSERT INTO t (b) VALUES ('identity')")

    opened(path, on_create=made).close()
    with opened(path, on_create=made) as database:
        assert rows(database, "SELECT b FROM t") == [("one",), ("identity",)]
    assert calls == [1]


def test_a_failed_making_leaves_nothing(path: Path) -> None:
    """TRAPS 1: if making the file fails, its name is not taken and no temporary file stays."""

    def fails(connection: apsw.Connection) -> None:
        raise LookupError("in on_create")

    with pytest.raises(LookupError, match="in on_create"):
        opened(path, on_create=fails)
    assert list(path.parent.iterdir()) == []


def test_names_with_special_characters_are_names(path: Path) -> None:
    """A path is never read as a URI, also for the snapshot of a directory that can't be written to."""
    odd = path.with_name("a b?mode=memory&cipher=none#%41 'x\".db")
    opened(odd).close()
    assert [each.name for each in path.parent.iterdir()] == [odd.name]
    with opened(odd, read_only=True) as database:
        assert rows(database) == [(1, "one!")]


def test_a_symbolic_link_is_followed(path: Path) -> None:
    """The file is made and opened where the link leads."""
    real = path.with_name("real.db")
    path.symlink_to(real)
    opened(path).close()
    assert path.is_symlink()
    assert real.is_file()
    with opened(path) as database:
        assert database.path == real.resolve()


@pytest.mark.parametrize("name", ["a\0b", "\ud800"])
def test_a_path_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    """A NUL or a lone surrogate in a path is an error of ours."""
    with pytest.raises(InvalidInput):
        Database.open(str(tmp_path) + "/" + name, schema=SCHEMA, key=KEY)


@pytest.mark.parametrize("options", [{"durability": "some"}, {"busy_timeout": -1}, {"busy_timeout": float("nan")}])
def test_bad_options_are_refused(path: Path, options: dict[str, object]) -> None:
    """An option that means nothing is an error and nothing is made."""
    with pytest.raises(InvalidInput):
        opened(path, **options)
    assert not path.exists()


# What is there and what is not


def test_create_and_must_create_are_kept(path: Path) -> None:
    """create=False wants a file, must_create=True wants none, read_only never makes one."""
    with pytest.raises(StoreMissing):
        opened(path, create=False)
    with pytest.raises(StoreMissing):
        opened(path, read_only=True)
    assert not path.exists()
    opened(path, must_create=True).close()
    with pytest.raises(StoreExists):
        opened(path, must_create=True)


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """A missing parent directory is an error that names it; it is not made."""
    with pytest.raises(StoreMissing, match="nowhere"):
        opened(tmp_path / "nowhere" / "s.db")
    assert not (tmp_path / "nowhere").exists()


def test_an_empty_file_is_no_store(path: Path) -> None:
    """TRAPS 2: a file cut to nothing is an error, not a new store."""
    path.touch()
    for options in ({}, {"encrypted": False, "key": None}, {"read_only": True}):
        with pytest.raises(NotAStore, match="empty"):
            opened(path, **options)
    assert path.stat().st_size == 0


def test_a_directory_is_no_store(path: Path) -> None:
    """A directory at the path is an error of ours."""
    path.mkdir()
    with pytest.raises(NotAStore):
        opened(path)


def test_a_short_file_is_no_store(path: Path) -> None:
    """Less than a page is no store, whatever the key."""
    path.write_bytes(b"short" * 100)
    with pytest.raises(NotAStore, match="page"):
        opened(path)


def test_another_programs_file_is_left_alone(path: Path) -> None:
    """A plain SQLite file without our application_id is refused, with and without encryption, unchanged."""
    foreign = sqlite3.connect(path)
    foreign.execute("PRAGMA journal_mode = WAL")
    foreign.execute("CREATE TABLE x (a)")
    foreign.commit()
    foreign.close()
    before = digests(path)
    with pytest.raises(NotAStore, match="another program"):
        opened(path, encrypted=False, key=None)
    with pytest.raises(NotAStore, match="not encrypted"):
        opened(path)
    with pytest.raises(NotAStore, match="not encrypted"):
        opened(path, key=None)
    assert digests(path) == before


def test_an_encrypted_file_of_another_program_is_left_alone(path: Path) -> None:
    """A SQLCipher file that our key opens and that isn't ours is NotAStore, unchanged, not migrated."""
    foreign = apsw.Connection(str(path))
    connection_module.cipher_set(foreign, stretch(KEY, os.urandom(16)))
    foreign.execute("CREATE TABLE x (a)")
    foreign.close()
    before = digests(path)
    with pytest.raises(NotAStore, match="another program"):
        opened(path)
    assert digests(path) == before


def test_plain_stores_must_be_spelled_out(path: Path) -> None:
    """encrypted=False makes and opens plain files and no others; encrypted files and plain ones don't mix."""
    opened(path, encrypted=False, key=None).close()
    assert path.read_bytes().startswith(b"SQLite format 3\0")
    with pytest.raises(NotAStore, match="not encrypted"):
        opened(path)
    with opened(path, encrypted=False, key=None) as database:
        assert rows(database) == [(1, "one!")]
    with pytest.raises(InvalidInput, match="encrypted=False"):
        opened(path, encrypted=False)
    secret = path.with_name("secret.db")
    opened(secret).close()
    before = digests(path)
    with pytest.raises(NotAStore, match="encrypted"):
        opened(secret, encrypted=False, key=None)
    assert digests(path) == before


# Keys


@pytest.mark.parametrize("key", [KEY, "correct horse", lambda: KEY, lambda: "battery staple"])
def test_every_form_of_key_opens_again(path: Path, key: object) -> None:
    """What a key made, the same key opens."""
    opened(path, key=key).close()
    with opened(path, key=key) as database:
        assert rows(database) == [(1, "one!")]
        assert database.key_source is KeySource.ARGUMENT


@pytest.mark.parametrize("key", [bytes(32), "wrong", KEY.hex(), "passphrase "])
@pytest.mark.parametrize("made_with", [KEY, "passphrase"])
@pytest.mark.parametrize("options", [{}, {"read_only": True}, {"create": False}])
def test_a_wrong_key_is_wrong_key_and_changes_nothing(
    path: Path, made_with: bytes | str, key: bytes | str, options: dict[str, object]
) -> None:
    """A wrong key is WrongKey on every way to open, says what else it could be, shows no key and changes no byte."""
    opened(path, key=made_with).close()
    before = digests(path)
    with pytest.raises(WrongKey, match="wrong key or damaged first page") as caught:
        opened(path, key=key, **options)
    shown = str(caught.value.to_dict()) + repr(caught.value.__cause__) + repr(caught.value.__context__)
    assert "x'" not in shown
    assert KEY.hex() not in shown
    assert digests(path) == before


def test_a_damaged_first_page_looks_like_a_wrong_key(path: Path) -> None:
    """TRAPS 2: one flipped bit in page 1 is WrongKey, naming both causes; page 2 tells them apart."""
    opened(path).close()
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(WrongKey, match="or damaged first page"):
        opened(path)
    assert first_page_state(path, KEY) is FirstPage.DAMAGED
    assert first_page_state(path, bytes(32)) is FirstPage.WRONG_KEY
    data[100] ^= 1
    path.write_bytes(bytes(data))
    assert first_page_state(path, KEY) is FirstPage.SOUND


def test_an_existing_file_without_a_key_is_key_missing(path: Path) -> None:
    """A missing key for an existing file is KeyMissing; no key file is made and no byte changed."""
    opened(path).close()
    before = digests(path)
    with pytest.raises(KeyMissing):
        opened(path, key=None)
    assert digests(path) == before
    assert not default_key_file().exists()


def test_the_default_key_serves_every_store_of_the_user(path: Path) -> None:
    """Without a key the first store makes the default key file, says so, and the next ones use it."""
    with opened(path, key=None) as first, opened(path.with_name("two.db"), key=None) as second:
        assert (first.key_made, second.key_made) == (True, False)
        assert first.key_source is KeySource.DEFAULT_FILE
        assert first.key_path == second.key_path
    with opened(path, key=None) as again:
        assert rows(again) == [(1, "one!")]


def test_the_key_is_in_no_file_and_no_name(path: Path) -> None:
    """The key is written nowhere: not into the file set, not into a name."""
    with opened(path) as database, database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('x')")
    for each in path.parent.iterdir():
        assert KEY.hex() not in each.name
        assert KEY not in each.read_bytes()


def test_hooks_of_the_application_run_no_sql_before_the_key(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 2: no SQL before header and key agree, even where the application has connection hooks."""
    ran: list[apsw.Connection] = []

    def hook(connection: apsw.Connection) -> None:
        ran.append(connection)
        connection.execute("PRAGMA journal_mode = DELETE").fetchall()

    monkeypatch.setattr(apsw, "connection_hooks", [hook])
    opened(path).close()
    with opened(path) as database:
        assert rows(database, "PRAGMA journal_mode") == [("wal",)]
    assert ran == []
    apsw.Connection(":memory:").close()
    assert len(ran) == 1


def test_plain_apsw_is_one_clear_error(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where plain apsw shadows the encrypting one, opening says so and writes nothing."""
    monkeypatch.delattr(apsw, "mc_version")
    with pytest.raises(CipherMissing, match="no encryption"):
        opened(path)
    assert list(path.parent.iterdir()) == []


# Read-only


def test_a_read_only_store_writes_nothing(path: Path) -> None:
    """TRAPS 5: a read-only open takes no write lock, runs no DML and refuses write()."""
    opened(path).close()
    before = path.read_bytes()
    with opened(path) as writer, opened(path, read_only=True) as reader:
        assert not reader.snapshot
        with writer.write() as connection:  # the write lock is taken, and reading goes on
            connection.execute("INSERT INTO u VALUES (2, 'new')")
            assert rows(reader) == [(1, "one!")]
        assert rows(reader) == [(1, "one!"), (2, "new")]
        with pytest.raises(ReadOnly), reader.write():
            pass
        with pytest.raises(ReadOnly), reader.read() as connection:
            connection.execute("INSERT INTO u VALUES (3, 'x')")
        with pytest.raises(ReadOnly):
            reader.checkpoint()
    assert path.read_bytes() != before


def test_readers_of_a_writable_store_write_nothing(path: Path) -> None:
    """A statement that writes is refused in read(), so that every write goes through the one writer."""
    with opened(path) as database, pytest.raises(ReadOnly), database.read() as connection:
        connection.execute("INSERT INTO u VALUES (2, 'x')")


def test_an_older_file_is_not_migrated_read_only(path: Path) -> None:
    """Opened for reading, an older file is refused and stays as it is."""
    opened(path, schema=(ONE,)).close()
    with pytest.raises(ReadOnly, match="earlier version"):
        opened(path, read_only=True)
    with opened(path, schema=(ONE,)) as database:
        assert rows(database, "PRAGMA user_version") == [(1,)]


@pytest.fixture
def _unwritable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operating system says of every directory that it can't be written to; a superuser's own could be."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)


@pytest.mark.usefixtures("_unwritable")
def test_an_unwritable_directory_gives_a_snapshot(path: Path) -> None:
    """TRAPS 5: with nothing in the WAL, the file is read as it lies there, marked a snapshot, and no file is made."""
    opened(path).close()
    before = digests(path)
    with opened(path, read_only=True) as database:
        assert database.snapshot
        assert rows(database) == [(1, "one!")]
        assert {each.name for each in path.parent.iterdir()} == {"store.db"}
    assert digests(path) == before


@pytest.mark.usefixtures("_unwritable")
def test_an_unwritable_directory_with_a_wal_is_an_error(path: Path) -> None:
    """TRAPS 5: with changes in the WAL and no shared memory to read them by, it is ReadOnly, never an old state."""
    with opened(path) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO u VALUES (2, 'in the WAL')")
        copy = path.with_name("copy")
        copy.mkdir()
        # Of a file set in use; what is copied is looked at by nobody but the code under test.
        os.system(f"cp '{path}' '{path}-wal' '{copy}'")
        with pytest.raises(ReadOnly, match="write-ahead log"):
            opened(copy / path.name, read_only=True)
        assert {each.name for each in copy.iterdir()} == {"store.db", "store.db-wal"}


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="a superuser may write anywhere")
def test_an_unwritable_directory_for_real(path: Path) -> None:
    """TRAPS 5: the same on a directory whose mode forbids writing."""
    opened(path).close()
    path.parent.chmod(0o500)
    try:
        with opened(path, read_only=True) as database:
            assert database.snapshot
        with pytest.raises(ReadOnly):
            opened(path.with_name("new.db"))
    finally:
        path.parent.chmod(0o700)


# The end


def test_a_closed_store_says_so(path: Path) -> None:
    """After close every use is Closed; a second close is none."""
    database = opened(path)
    database.close()
    database.close()
    for use in (database.read, database.write, database.data_version, database.checkpoint, database.independent_check):
        with pytest.raises(Closed):
            use()


def test_close_writes_the_wal_back(path: Path) -> None:
    """After the last close there is one file, and it holds everything."""
    with opened(path) as database, database.write() as connection:
        connection.execute("INSERT INTO u VALUES (2, 'x')")
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    shutil.copy(path, path.with_name("copy.db"))
    with opened(path.with_name("copy.db")) as copy:
        assert rows(copy) == [(1, "one!"), (2, "x")]


def test_a_block_keeps_its_store_open(path: Path) -> None:
    """A store that nobody else refers to stays open to the end of the block."""
    opened(path).close()
    with opened(path).write() as connection:
        connection.execute("INSERT INTO u VALUES (2, 'x')")
    with opened(path).read() as connection:
        assert connection.execute("SELECT count(*) FROM u").get == 2
