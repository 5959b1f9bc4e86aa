"""Restoring: a backup becomes a new store that goes on from there, never over anything, never beside left-overs."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

import apsw
import pytest
from damage import KEY, contents, copies, filled, flip, foreign, names, trees

from agentmem import (
    Corrupt,
    InvalidInput,
    KeyMissing,
    NetworkFileSystem,
    NotAStore,
    Store,
    StoreExists,
    StoreMissing,
    WrongKey,
)

SIDES = ("-wal", "-shm", "-journal")


@pytest.fixture
def backup(path: Path, tmp_path: Path) -> Path:
    """A backup of a filled store, in a directory of its own."""
    filled(path)
    (tmp_path / "away").mkdir()
    with Store.open(path, project="acme", key=KEY) as store:
        return store.backup(tmp_path / "away" / "copy.db").path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Where it is restored to."""
    return tmp_path / "restored.db"


def test_a_restored_store_is_the_one_that_was_backed_up(path: Path, backup: Path, target: Path) -> None:
    """Log, tables and ids are the same, and it goes on with the next number."""
    with Store.open(path, project="acme", key=KEY) as store:
        whole, head = contents(store), store.log.head()
    made = Store.restore(backup, target, key=KEY)
    assert (made.path, made.events, made.head, made.bytes) == (target, head.seq, head, target.stat().st_size)
    with Store.open(target, project="acme", key=KEY, create=False) as restored:
        assert contents(restored) == whole
        assert restored.verify(replay=True, independent=True, head=head).problems == ()
        assert restored.notes.add("fact", "Later").id == head.seq + 1


def test_requests_are_remembered(backup: Path, target: Path) -> None:
    """A retry of what was done before the backup is still answered by what it did, and writes nothing."""
    made = Store.restore(backup, target, key=KEY)
    with Store.open(target, project="acme", key=KEY) as restored:
        again = restored.notes.add("goal", "Move to the queue", request_id="first")
        assert again.repeated
        assert restored.log.head() == made.head


def test_claims_are_void(backup: Path, target: Path) -> None:
    """TRAPS 14: their holders do not know of this file; the answer says how many there were, the backup keeps them."""
    made = Store.restore(backup, target, key=KEY)
    assert made.claims_void == 1
    assert any("1 claims" in notice for notice in made.notices)
    with Store.open(target, project="acme", key=KEY) as restored:
        assert restored.claims() == ()
        restored.acting(run="another").claim([2])
    with Store.open(backup, project="acme", key=KEY, read_only=True) as kept:
        assert len(kept.claims()) == 1


def test_caches_of_the_source_do_not_hold(backup: Path, target: Path) -> None:
    """The number that caches obey is a later one than the source's."""
    Store.restore(backup, target, key=KEY)
    epochs = []
    for each in (backup, target):
        with Store.open(each, project="acme", key=KEY, read_only=True) as store, store.database.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone()
            epochs.append(0 if row is None else int(str(row[0])))
    assert epochs[1] > epochs[0]


def test_an_older_copy_is_found_by_a_noted_head(path: Path, backup: Path, target: Path) -> None:
    """What was written after the backup is not in it; a head that was noted tells."""
    with Store.open(path, project="acme", key=KEY) as store:
        store.notes.add("fact", "After the backup")
        noted = store.log.head()
    Store.restore(backup, target, key=KEY)
    with Store.open(target, project="acme", key=KEY) as restored:
        assert restored.verify().problems == ()
        with pytest.raises(Corrupt, match="before the noted head"):
            restored.verify(head=noted)


@pytest.mark.parametrize("new_key", [bytes(32), "another passphrase"])
def test_it_may_get_another_key(backup: Path, target: Path, new_key: bytes | str) -> None:
    """The restored file opens with the new key alone, the backup with its own."""
    made = Store.restore(backup, target, key=KEY, new_key=new_key)
    assert not made.key_same
    with pytest.raises(WrongKey):
        Store.open(target, project="acme", key=KEY)
    with Store.open(target, project="acme", key=new_key) as restored:
        assert restored.verify(replay=True).problems == ()


def test_a_plain_store_stays_plain(path: Path, target: Path) -> None:
    """A plain source needs no key, and takes none."""
    head = filled(path, key=None)
    with pytest.raises(InvalidInput):
        Store.restore(path, target, new_key=KEY)
    with pytest.raises(InvalidInput):
        Store.restore(path, target, key=KEY)
    assert not target.exists()
    assert Store.restore(path, target).head == head
    with Store.open(target, project="acme", encrypted=False) as restored:
        assert restored.verify(replay=True).problems == ()


# The source is only read


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_the_source_may_be_read_only(backup: Path, target: Path) -> None:
    """Nothing is made beside it, nothing of it changes."""
    before = backup.read_bytes(), backup.stat().st_mtime_ns
    backup.chmod(0o400)
    backup.parent.chmod(0o500)
    try:
        Store.restore(backup, target, key=KEY)
        assert names(backup.parent) == {backup.name}
    finally:
        backup.parent.chmod(0o700)
    assert (backup.read_bytes(), backup.stat().st_mtime_ns) == before
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


def test_the_source_may_be_in_use(path: Path, target: Path) -> None:
    """What is committed is taken, also from the write-ahead log; what a transaction has not committed is not."""
    with Store.open(path, project="acme", key=KEY, durability="normal") as store:
        store.notes.add("goal", "Committed")
        head = store.log.head()
        with store.transaction():
            store.notes.add("goal", "Not yet")
            assert Store.restore(path, target, key=KEY).head == head
        assert store.verify(replay=True).problems == ()


@pytest.mark.skipif(sys.platform != "linux", reason="mounts are listed in /proc on Linux alone")
def test_the_source_may_lie_on_a_network(backup: Path, target: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup that nobody has open is read without a lock; the new file must lie where locks hold."""
    real = Path.read_text
    network = backup.parent

    def read_text(self: Path, *args: Any, **kwargs: Any) -> str:
        if str(self) == "/proc/self/mountinfo":
            return f"27 1 254:0 / / rw - ext4 a rw\n28 27 0:5 / {network} rw - nfs4 b rw\n"
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)
    Store.restore(backup, target, key=KEY)
    assert {finding.code for finding in Store.doctor(backup, key=KEY).findings} >= {"network_file_system"}
    with pytest.raises(NetworkFileSystem):
        Store.restore(target, network / "other.db", key=KEY)
    assert names(network) == {backup.name}


# Refusals


def test_nothing_is_ever_replaced(path: Path, backup: Path, target: Path) -> None:
    """Not a file, not a link to nothing, not a store that is open, not the source itself."""
    target.write_text("mine")
    target.with_name("dangling").symlink_to(target.with_name("nowhere"))
    with Store.open(path, project="acme", key=KEY) as store:
        for name in (target, target.with_name("dangling"), path, backup):
            with pytest.raises(StoreExists):
                Store.restore(backup, name, key=KEY)
        assert store.verify(replay=True).problems == ()
    assert target.read_text() == "mine"
    with pytest.raises(StoreMissing):
        Store.restore(backup, target.with_name("nowhere") / "restored.db", key=KEY)


@pytest.mark.parametrize("side", SIDES)
def test_left_overs_of_another_file_are_named_and_stay(backup: Path, target: Path, side: str) -> None:
    """A write-ahead log, its index or a journal at the name: refused, and neither touched nor believed."""
    left = target.with_name(target.name + side)
    left.write_bytes(b"of another file")
    with pytest.raises(StoreExists, match=left.name):
        Store.restore(backup, target, key=KEY)
    assert left.read_bytes() == b"of another file"
    assert not target.exists()


def test_a_stale_log_would_be_written_into_the_restored_file(path: Path, backup: Path, target: Path) -> None:
    """Why they are refused: the log of a later time of the same store, put beside its backup, is read as its own."""
    store = Store.open(path, project="acme", key=KEY, durability="normal")
    with store.transaction():
        for number in range(50):
            store.notes.add("fact", f"After the backup {number}", similar=False)
    store.database._pool.discard()  # as a killed process leaves it: the log is not written back
    stale = target.with_name(target.name + "-wal")
    shutil.copy(path.with_name(path.name + "-wal"), stale)
    with pytest.raises(StoreExists, match=stale.name):
        Store.restore(backup, target, key=KEY)
    shutil.copy(backup, target)
    with Store.open(target, project="acme", key=KEY) as mixed, mixed.database.read() as connection:
        (last,) = connection.execute("SELECT max(seq) FROM event").fetchone() or (0,)
    with Store.open(backup, project="acme", key=KEY, read_only=True) as kept:
        assert int(str(last)) > kept.log.head().seq


@pytest.mark.parametrize("tree", ["event", "note", "search_data", "meta"])
def test_a_damaged_backup_is_refused(backup: Path, target: Path, tree: str) -> None:
    """Any page that is not authentic is found before there is a file at the name."""
    flip(backup, trees(backup)[tree][-1])
    with pytest.raises(Corrupt):
        Store.restore(backup, target, key=KEY)
    assert names(target.parent) & {target.name, target.name + "-wal"} == set()
    assert not any(name.endswith(".tmp") for name in names(target.parent))


def test_a_cut_backup_is_refused(backup: Path, target: Path) -> None:
    """An interrupted download is no backup, whether it ends within a page or between two."""
    size = backup.stat().st_size
    for cut in (size - 4096, size // 2 // 4096 * 4096, size // 2 + 17, 4096):
        (shorter,) = copies(backup, f"cut {cut}.db")
        os.truncate(shorter, cut)
        with pytest.raises(Corrupt):
            Store.restore(shorter, target, key=KEY)
    assert not target.exists()


def test_a_wrong_or_missing_key_changes_nothing(backup: Path, target: Path) -> None:
    """Neither file nor key is made."""
    with pytest.raises(WrongKey):
        Store.restore(backup, target, key=bytes(32))
    with pytest.raises(KeyMissing):
        Store.restore(backup, target)
    assert not target.exists()
    assert names(backup.parent) == {backup.name}


def test_what_is_no_backup_is_refused(target: Path, tmp_path: Path) -> None:
    """A missing, an empty, a short file, a folder."""
    with pytest.raises(StoreMissing):
        Store.restore(tmp_path / "nothing.db", target, key=KEY)
    (tmp_path / "empty.db").touch()
    (tmp_path / "short.db").write_bytes(b"short")
    for name in ("empty.db", "short.db"):
        with pytest.raises(NotAStore):
            Store.restore(tmp_path / name, target, key=KEY)
    with pytest.raises(NotAStore):
        Store.restore(tmp_path, target, key=KEY)
    assert not target.exists()


@pytest.mark.parametrize(
    ("statements", "named"),
    [
        (("CREATE TRIGGER evil AFTER UPDATE ON meta BEGIN DELETE FROM note; END",), "evil"),
        (("CREATE TRIGGER evil AFTER INSERT ON meta BEGIN DELETE FROM note; END",), "evil"),
        (("CREATE TRIGGER meta AFTER UPDATE ON meta BEGIN DELETE FROM note; END",), "meta"),
        (("CREATE VIEW more AS SELECT * FROM event",), "more"),
        (("DROP TABLE lease", "CREATE VIEW lease AS SELECT 1 AS record"), "lease"),
        (("DROP INDEX note_parent",), "note_parent"),
        (("DROP TABLE lease",), "lease"),
    ],
)
def test_a_source_with_a_foreign_schema_is_refused(
    path: Path, target: Path, statements: tuple[str, ...], named: str
) -> None:
    """Its triggers and views would go on to act in the new store: it is named, and nothing is left behind."""
    filled(path, 10, key=None)
    foreign(path, *statements)
    before = names(path.parent)
    with pytest.raises(Corrupt, match=named) as refused:
        Store.restore(path, target)
    assert "doctor" in refused.value.next
    assert "Store.salvage" in refused.value.next
    assert names(path.parent) == before


def test_no_trigger_of_a_copy_runs_while_it_is_amended(path: Path, target: Path) -> None:
    """Whatever the source declares, only the amendment itself writes to the copy."""
    filled(path, 10, key=None)
    foreign(path, "CREATE TRIGGER evil AFTER UPDATE ON meta BEGIN DELETE FROM note; END")

    def amend(connection: apsw.Connection) -> None:
        connection.execute("UPDATE meta SET value = value")

    with Store.open(path, project="acme", encrypted=False, read_only=True) as store:
        store.database.snapshot_to(target, amend=amend)
    with Store.open(target, project="acme", encrypted=False) as copy:
        assert len(copy.notes.list()) > 0


def test_a_key_for_a_plain_source_is_refused_in_words_of_restore(path: Path, target: Path) -> None:
    """The advice names no argument that restore does not have."""
    filled(path, 10, key=None)
    with pytest.raises(InvalidInput, match="not encrypted") as refused:
        Store.restore(path, target, key=KEY)
    assert "encrypted=False" not in str(refused.value)
    assert refused.value.next == "Leave the key out."
    assert not target.exists()
