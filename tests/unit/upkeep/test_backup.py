"""Backups: one snapshot of what is committed, checked before it has its name, whole or absent."""

from __future__ import annotations

import builtins
import io
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlcipher3
from damage import KEY, behind, contents, filled, flip, names, trees
from decrypted import image, needles

from agentmem import (
    Conflict,
    Corrupt,
    InvalidInput,
    Store,
    StoreExists,
    StoreMissing,
    WrongKey,
)
from agentmem.engine.keys import default_key_file

SIDES = ("-wal", "-shm", "-journal")


@pytest.fixture
def copy(path: Path) -> Path:
    """Where a backup goes."""
    return path.with_name("copy.db")


def opened_copy(copy: Path, **options: Any) -> Store:
    return Store.open(copy, **({"project": "acme", "key": KEY, "create": False} | options))


def test_a_backup_holds_all_that_is_committed(path: Path, copy: Path) -> None:
    """Log, tables and what is operational are those of the store; it says how many events, up to which head."""
    head = filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        made = store.backup(copy)
        operational = contents(store, ("meta", "request", "lease"))
        whole = contents(store)
    assert (made.path, made.bytes, made.events, made.head) == (copy, copy.stat().st_size, head.seq, head)
    with opened_copy(copy) as other:
        assert contents(other) == whole
        assert contents(other, ("meta", "request", "lease")) == operational
        assert other.verify(replay=True, independent=True, head=head).problems == ()


def test_what_waits_in_the_write_ahead_log_is_in_it(store: Store, copy: Path) -> None:
    """Nothing need have been written back into the file itself."""
    notes = [store.notes.add("fact", f"Fact {number}").id for number in range(20)]
    assert store.database.wal_bytes() > 0
    store.backup(copy)
    with opened_copy(copy) as other:
        assert [note.id for note in other.notes.list(kind="fact")] == notes


def test_it_can_be_read_by_stock_sqlcipher_alone(path: Path, copy: Path) -> None:
    """Another build of SQLite and SQLCipher opens it with the same key, and every page is authentic."""
    head = filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        store.backup(copy)
    connection = sqlcipher3.connect(str(copy))
    connection.execute(f"PRAGMA key = \"x'{KEY.hex()}'\"")
    assert connection.execute("SELECT max(seq) FROM event").fetchone() == (head.seq,)
    assert connection.execute("PRAGMA cipher_integrity_check").fetchall() == []
    connection.close()


@pytest.mark.parametrize("other", [bytes(32), "another passphrase"])
def test_it_may_have_another_key(store: Store, copy: Path, other: bytes | str) -> None:
    """With a key of its own it opens with that alone, and says that it has one."""
    store.notes.add("fact", "Here")
    made = store.backup(copy, key=other)
    assert not made.key_same
    with pytest.raises(WrongKey):
        opened_copy(copy)
    with opened_copy(copy, key=other) as found:
        assert found.verify(replay=True).problems == ()


def test_a_backup_says_where_its_key_is(
    path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The key is never in the copy: what to keep beside it is told, a default key file above all."""
    told = {}
    with Store.open(path, project="acme") as store:
        told["default"] = store.backup(copy).notices[0]
        told["own"] = store.backup(tmp_path / "own.db", key=KEY).notices[0]
    with Store.open(tmp_path / "given.db", project="acme", key=KEY) as store:
        told["argument"] = store.backup(tmp_path / "given copy.db").notices[0]
    monkeypatch.setenv("AGENTMEM_KEY", "a passphrase")
    with Store.open(tmp_path / "env.db", project="acme") as store:
        told["environment"] = store.backup(tmp_path / "env copy.db").notices[0]
    with Store.open(tmp_path / "plain.db", project="acme", encrypted=False) as store:
        told["plain"] = store.backup(tmp_path / "plain copy.db").notices[0]
    assert str(default_key_file()) in told["default"]
    assert "keep a copy of that file somewhere else" in told["default"]
    assert "the key that was given for it" in told["own"]
    assert "the store was opened with" in told["argument"]
    assert "AGENTMEM_KEY" in told["environment"]
    assert "not encrypted" in told["plain"]
    assert not any("a passphrase" in each or KEY.hex() in each for each in told.values())


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_it_is_private_and_durable(store: Store, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner alone may read it, whatever the umask; file and directory are synced before it has its name, and after."""
    store.notes.add("fact", "Here")
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def watched(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, copy.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watched)
    mask = os.umask(0)
    try:
        store.backup(copy)
    finally:
        os.umask(mask)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert (copy.stat().st_ino, False) in synced
    assert (copy.parent.stat().st_ino, True) in synced


def test_nothing_is_ever_replaced(store: Store, path: Path, copy: Path) -> None:
    """A name that is taken is refused: by a file, by a link to nothing, by the store itself; so is a missing directory."""
    copy.write_text("mine")
    path.with_name("dangling").symlink_to(path.with_name("nowhere"))
    for name in (copy.name, path.name, "dangling"):
        with pytest.raises(StoreExists):
            store.backup(path.with_name(name))
    with pytest.raises(StoreMissing):
        store.backup(path.with_name("nowhere") / "copy.db")
    assert copy.read_text() == "mine"
    assert names(path.parent) == {copy.name, "dangling", path.name, path.name + "-wal", path.name + "-shm"}


@pytest.mark.parametrize("side", SIDES)
def test_a_name_with_left_overs_beside_it_is_refused(store: Store, copy: Path, side: str) -> None:
    """SQLite would take them for the copy's own; what is in the way is named and stays."""
    left = copy.with_name(copy.name + side)
    left.write_bytes(b"left")
    with pytest.raises(StoreExists, match=left.name):
        store.backup(copy)
    assert left.read_bytes() == b"left"
    assert not copy.exists()


@pytest.mark.parametrize("key", [b"short", "", "x'00'"])
def test_a_bad_key_is_refused(store: Store, copy: Path, key: bytes | str) -> None:
    """A key of no accepted form makes no copy; nor does any key for the copy of a plain store."""
    with pytest.raises(InvalidInput):
        store.backup(copy, key=key)
    with (
        Store.open(copy.with_name("plain.db"), project="acme", encrypted=False) as plain,
        pytest.raises(InvalidInput),
    ):
        plain.backup(copy, key=KEY)
    assert not copy.exists()


def test_within_a_transaction_it_is_refused(store: Store, copy: Path) -> None:
    """It would hold nothing of the transaction, which its caller might think it does, and keep all writers waiting."""
    with store.transaction():
        store.notes.add("fact", "Not yet")
        with pytest.raises(Conflict, match="inside a transaction"):
            store.backup(copy)
    assert not copy.exists()
    assert store.backup(copy).events == store.log.head().seq


def test_beside_the_transaction_of_another_thread_it_holds_what_is_committed(store: Store, copy: Path) -> None:
    """It neither waits for the writer nor sees what it has not committed."""
    store.notes.add("fact", "Before")
    inside, done = threading.Event(), threading.Event()

    def write() -> None:
        with store.transaction():
            store.notes.add("fact", "Meanwhile")
            inside.set()
            assert done.wait(60)

    thread = threading.Thread(target=write)
    thread.start()
    assert inside.wait(60)
    try:
        store.backup(copy)
    finally:
        done.set()
        thread.join()
    with opened_copy(copy) as other:
        assert [note.title for note in other.notes.list(kind="fact")] == ["Before"]


def test_a_store_opened_for_reading_can_be_backed_up(path: Path, copy: Path) -> None:
    """No write lock is needed."""
    head = filled(path)
    with Store.open(path, project="acme", key=KEY, read_only=True) as store:
        assert store.backup(copy).head == head


# What is not sound is not kept


@pytest.mark.parametrize("tree", ["event", "note", "search_data", "note_parent", "sqlite_schema"])
def test_a_damaged_page_makes_no_backup(path: Path, copy: Path, tree: str) -> None:
    """Whatever it belongs to: the error is typed, and nothing is left behind."""
    filled(path)
    flip(path, trees(path)[tree][-1])
    before = names(path.parent)
    with pytest.raises(Corrupt), Store.open(path, project="acme", key=KEY) as store:
        store.backup(copy)
    assert names(path.parent) - {path.name + side for side in SIDES} == before


@pytest.mark.parametrize(
    "sql",
    [
        "UPDATE event SET payload = '{}' WHERE seq = 5",
        "DELETE FROM event WHERE seq = 5",
        "DELETE FROM event WHERE seq = (SELECT max(revision) FROM note)",
        "DELETE FROM event WHERE seq >= (SELECT max(revision) FROM note)",
        "UPDATE blob SET text = text || '.'",
        "DELETE FROM blob",
        "DELETE FROM meta WHERE name = 'store'",
    ],
)
def test_a_broken_log_makes_no_backup(path: Path, copy: Path, sql: str) -> None:
    """Pages that are all authentic are not enough: the chain is computed anew on the copy, by another build of SQLite."""
    filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        with store.database.write() as connection:
            connection.execute(sql)
        with pytest.raises(Corrupt):
            store.backup(copy)
    assert names(path.parent) == {path.name}


def test_contents_against_the_schema_make_no_backup(path: Path, copy: Path) -> None:
    """Structure is checked too."""
    filled(path)
    behind(
        path,
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET sql = replace(sql, 'basis TEXT', 'basis TEXT NOT NULL') WHERE name = 'note'",
        "PRAGMA writable_schema = OFF",
    )
    with Store.open(path, project="acme", key=KEY) as store, pytest.raises(Corrupt, match="NULL"):
        store.backup(copy)
    assert not copy.exists()


# What a purge takes away


def test_a_copy_carries_no_remains_of_a_purge(path: Path, copy: Path, tmp_path: Path) -> None:
    """Also where a reader elsewhere keeps the write-ahead log from being emptied: the copy is made of pages, and free ones
    are blank."""
    secret = "hunter2password correcthorse batterystaple"
    with Store.open(path, project="acme", key=KEY) as store:
        note = store.notes.add("fact", "What is to go", body=f"{secret} {'and more ' * 2000}{secret}")
        store.notes.add("fact", "What stays", body="unmistakable staying")
        reader = Store.open(path, project="acme", key=KEY, read_only=True)
        with reader.database.read(long=True) as connection:
            connection.execute("SELECT count(*) FROM note").fetchall()
            store.forget(note)
            with store.database.read() as own:
                assert own.execute("SELECT count(*) FROM meta WHERE name = 'purge'").fetchall() == [(1,)]
            assert store.database.wal_bytes() > 0
            store.backup(copy)
        reader.close()
    found = image(copy, KEY)
    assert b"unmistakable staying" in found
    assert [needle for needle in needles(secret) if needle in found] == []


# Reports of others


def torn(path: Path) -> Path:
    """A database and its WAL copied one after the other while the store is in use: the copies are of two moments."""
    copied = path.with_name("torn.db")
    with Store.open(path, project="acme", key=KEY, durability="normal") as store:
        store.notes.add("goal", "First")
        assert store.database.checkpoint()
        cp(path, copied)
        with store.transaction():
            for number in range(300):
                store.notes.add("fact", f"Fact {number}", body="between the two copies " * 20, similar=False)
        assert store.database.checkpoint()
        store.notes.add("fact", "Last")
        cp(path.with_name(path.name + "-wal"), copied.with_name(copied.name + "-wal"))
    return copied


def cp(source: Path, target: Path) -> None:
    """By another process: a file that is open here must not be opened by anything but SQLite."""
    subprocess.run([sys.executable, "-c", "import shutil, sys; shutil.copy(*sys.argv[1:])", source, target], check=True)


def test_neotoma_2075_database_and_log_copied_apart_are_not_taken_for_a_backup(path: Path) -> None:
    """Both files are there and of a good size, which is all that was looked at: here what they hold is, and is refused."""
    copied = torn(path)
    assert copied.stat().st_size > 0
    assert copied.with_name(copied.name + "-wal").stat().st_size > 0
    with pytest.raises(Corrupt):
        Store.restore(copied, path.with_name("restored.db"), key=KEY)
    assert not path.with_name("restored.db").exists()
    found = Store.doctor(copied, key=KEY)
    assert not found.sound
    assert not found.safe


def test_openclaw_148796_a_backup_is_one_file_and_needs_nothing_beside_it(path: Path, tmp_path: Path) -> None:
    """It opens alone, elsewhere, with all that was acknowledged, while the file itself lacks what waits in the WAL."""
    away = tmp_path / "away"
    away.mkdir()
    with Store.open(path, project="acme", key=KEY) as store:
        store.notes.add("goal", "First")
        assert store.database.checkpoint()
        last = store.notes.add("fact", "Only in the WAL")
        cp(path, away / "main alone.db")
        head = store.backup(path.with_name("copy.db")).head
        shutil.move(path.with_name("copy.db"), away / "moved.db")
    with opened_copy(away / "moved.db") as found:
        assert found.get(last).title == "Only in the WAL"
        assert found.verify(head=head)
    with opened_copy(away / "main alone.db") as lacking, pytest.raises(Corrupt, match="before the noted head"):
        lacking.verify(head=head)


def test_the_live_file_is_read_by_sqlite_alone(path: Path, copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """TRAPS 3: a backup, a check or an examination of an open store opens neither its file nor its WAL in Python."""
    filled(path)
    seen: list[str] = []

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def opening(file: Any, *args: Any, **kwargs: Any) -> Any:
            seen.append(str(file))
            return original(file, *args, **kwargs)

        return opening

    for module, name in ((builtins, "open"), (io, "open"), (os, "open")):
        monkeypatch.setattr(module, name, watched(getattr(module, name)))
    with Store.open(path, project="acme", key=KEY) as store:
        store.notes.add("fact", "Waits in the WAL")
        store.backup(copy)
        assert store.verify(replay=True, independent=True)
        assert Store.doctor(path, key=KEY)
        assert Store.salvage(path, path.with_name("salvaged.db"), key=KEY).first_lost is None
        assert Store.restore(path, path.with_name("restored.db"), key=KEY).events == store.log.head().seq
    assert seen
    assert not {str(path) + side for side in ("", *SIDES)} & set(seen)
