"""The doctor: what is wrong with a file, whether the data is safe, what to do; and what a repair makes anew."""

from __future__ import annotations

import os
import random
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from damage import KEY, behind, blank, contents, copies, cut, filled, flip, names, trees

from agentmem import Corrupt, InvalidInput, StorageWarning, Store
from agentmem.engine.connection import cipher_set, connection_bare
from agentmem.engine.pages import raw_key_of
from agentmem.engine.wal import wal_read
from agentmem.upkeep.diagnosis import Diagnosis, Severity

ALL = ("key", "pages", "wal", "surroundings", "structure", "schema", "chain", "replay", "index", "vectors", "purge")


def codes(found: Diagnosis) -> set[str]:
    return {finding.code for finding in found.findings if finding.severity is not Severity.NOTE}


def examined(path: Path, **options: object) -> Diagnosis:
    return Store.doctor(path, **({"key": KEY} | options))  # type: ignore[arg-type]


# Sound files


def test_a_sound_file_has_no_findings(path: Path) -> None:
    """Everything was looked at, the head is that of the log, and not a byte or name has changed."""
    head = filled(path)
    before = path.read_bytes()
    found = examined(path)
    assert found.findings == ()
    assert (found.sound, found.safe, bool(found), found.head) == (True, True, True, head)
    assert set(found.examined) == set(ALL)
    assert "Nothing is wrong." in found.text
    assert path.read_bytes() == before
    assert names(path.parent) == {path.name}


def test_a_plain_store_is_examined_too(path: Path) -> None:
    """It says that it is plain; there are no HMACs to check."""
    head = filled(path, key=None)
    found = Store.doctor(path)
    assert [finding.code for finding in found.findings] == ["not_encrypted"]
    assert found.sound
    assert found.head == head


def test_a_file_in_use_is_examined(store: Store, path: Path) -> None:
    """Beside a writer in the middle of a transaction: it is told who has it open, and what waits in the log."""
    store.notes.add("goal", "Committed")
    with store.transaction():
        store.notes.add("goal", "Not yet")
        found = examined(path)
    told = {finding.code: finding for finding in found.findings}
    assert found.sound
    assert set(told) == {"in_use", "wal_waiting"}
    assert f"pid {os.getpid()} (this process)" in told["in_use"].what
    assert "write lock is held" in told["in_use"].what


def test_the_answer_is_plain_data(path: Path) -> None:
    """As JSON it says the same."""
    filled(path)
    flip(path, trees(path)["note"][-1])
    found = examined(path)
    told = found.to_dict()
    assert told["sound"] is False
    assert told["safe"] is True
    assert told["head"]["seq"] == found.head.seq if found.head else False
    assert told["findings"][0] == {
        "code": found.findings[0].code,
        "severity": "fault",
        "what": found.findings[0].what,
        "safe": True,
        "next": found.findings[0].next,
    }


# Files that do not open


def nothing(path: Path) -> None:
    path.unlink()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def short(path: Path) -> None:
    path.write_bytes(b"short")


def another_program(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE t (a)")
    connection.commit()
    connection.close()


def noise(path: Path) -> None:
    path.write_bytes(os.urandom(40_960))


def first_page(path: Path) -> None:
    flip(path, 1)


def salt(path: Path) -> None:
    flip(path, 1, at=3)


def inner_schema(path: Path) -> None:
    flip(path, trees(path)["sqlite_schema"][-1])


def half_page(path: Path) -> None:
    cut(path, path.stat().st_size // 2 + 100)


def whole_page(path: Path) -> None:
    cut(path, path.stat().st_size - 4096 * 3)


def newer(path: Path) -> None:
    behind(path, "PRAGMA user_version = 99")


@pytest.mark.parametrize(
    ("damage", "code", "safe"),
    [
        (nothing, "no_file", True),
        (emptied, "empty_file", False),
        (short, "not_a_store", False),
        (another_program, "not_a_store", False),
        (noise, "wrong_key", True),
        (salt, "wrong_key", True),
        (first_page, "first_page_damaged", True),
        (inner_schema, "page_damaged", False),
        (half_page, "file_cut", False),
        (whole_page, "unreadable", False),
        (newer, "newer_file", True),
    ],
)
def test_a_file_that_does_not_open_is_examined(
    path: Path, damage: Callable[[Path], None], code: str, safe: bool
) -> None:
    """Whatever bars the way is a finding with what to do, never an exception, and the file stays as it is."""
    filled(path, 60)
    damage(path)
    before = path.read_bytes() if path.exists() else None
    found = examined(path)
    assert code in codes(found)
    assert not found.sound
    assert found.safe is safe
    assert found.head is None
    assert all(finding.next for finding in found.findings if finding.severity is Severity.FAULT)
    assert (path.read_bytes() if path.exists() else None) == before
    again = examined(path, repair=True)
    assert code in codes(again)
    assert (path.read_bytes() if path.exists() else None) == before


def test_a_wrong_key_is_told_from_a_damaged_first_page(path: Path) -> None:
    """TRAPS 2: by the other pages, which are authentic under the right key alone."""
    filled(path, 20)
    flip(path, 1)
    assert codes(examined(path, key=bytes(32))) == {"wrong_key"}
    assert codes(examined(path)) == {"first_page_damaged", "page_damaged"}


def test_a_missing_key_is_a_finding(path: Path) -> None:
    """No key is made, and the data is safe."""
    filled(path, 20)
    found = Store.doctor(path)
    assert codes(found) == {"key_missing"}
    assert found.safe


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_key_file_that_others_may_read_is_a_finding(
    path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With what to do about it."""
    filled(path, 20)
    (tmp_path / "key").write_text("hex:" + KEY.hex())
    (tmp_path / "key").chmod(0o644)
    monkeypatch.setenv("AGENTMEM_KEY_FILE", str(tmp_path / "key"))
    found = Store.doctor(path)
    assert codes(found) == {"invalid_input"}
    assert "0644" in found.text
    (tmp_path / "key").chmod(0o600)
    assert Store.doctor(path).sound


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX")
def test_a_file_that_others_may_open_is_told(path: Path) -> None:
    """As a note: it is encrypted."""
    filled(path, 20)
    path.chmod(0o644)
    found = examined(path)
    assert [finding.code for finding in found.findings] == ["file_open"]
    assert found.sound


# Damaged pages


def test_where_the_log_breaks_off_is_told(path: Path) -> None:
    """Up to which event it is whole."""
    head = filled(path)
    flip(path, trees(path)["event"][-1])
    text = examined(path).text
    match = re.search(r"The log is whole up to event (\d+) and no further", text)
    assert match is not None
    assert 0 < int(match[1]) < head.seq


def test_a_page_in_several_places_is_told(path: Path) -> None:
    """Numbers and count of all pages that fail."""
    filled(path)
    pages = sorted(page for pages in trees(path).values() for page in pages[-1:])[:12]
    flip(path, *pages)
    text = examined(path).text
    assert f"{len(pages)} of " in text
    assert str(pages[0]) in text


# The write-ahead log


def killed(path: Path, *, facts: int = 30) -> Path:
    """Leave a write-ahead log as a killed process does; return it."""
    store = Store.open(path, project="acme", key=KEY, durability="normal")
    for number in range(facts):
        store.notes.add("fact", f"Only in the log {number}", similar=False)
    store.database._pool.discard()
    return path.with_name(path.name + "-wal")


def test_a_log_of_a_killed_process_is_sound(path: Path) -> None:
    """Its frames are read as SQLite will: everything acknowledged counts, and so does a torn end that never was."""
    filled(path, 20)
    wal = killed(path)
    head = examined(path).head
    assert examined(path).sound
    with wal.open("ab") as file:
        file.write(os.urandom(3000))
    found = examined(path)
    assert found.sound
    assert found.head == head


def test_what_is_read_of_the_log_is_what_sqlite_reads(path: Path) -> None:
    """Wherever it is cut or changed, the pages after the last commit are as many as SQLite then finds."""
    filled(path, 20)
    wal = killed(path, facts=12)
    whole = wal.read_bytes()
    raw = raw_key_of(path, KEY)
    (main,) = copies(path, "main.db")
    frames = (len(whole) - 32) // 4120
    for frame in range(0, frames, max(1, frames // 8)):
        for how in ("cut", "flip"):
            data = bytearray(whole)
            place = 32 + frame * 4120 + 2000
            if how == "cut":
                del data[place:]
            else:
                data[place] ^= 1
            (copy,) = copies(main, "copy.db")
            copy.with_name("copy.db-wal").write_bytes(data)
            copy.with_name("copy.db-shm").unlink(missing_ok=True)
            seen = wal_read(copy, raw)
            connection = connection_bare(str(copy), apsw.SQLITE_OPEN_READWRITE)
            cipher_set(connection, raw)
            count = connection.execute("PRAGMA page_count").get
            connection.close()
            assert count == (seen.page_count or main.stat().st_size // 4096)


def test_a_frame_that_fails_in_the_middle_of_the_log_is_found(path: Path) -> None:
    """SQLite passes over all commits behind it in silence; the doctor does not."""
    filled(path, 20)
    wal = killed(path)
    data = bytearray(wal.read_bytes())
    data[32 + 4120 * 3 + 500] ^= 1
    wal.write_bytes(data)
    found = examined(path)
    assert "wal_broken" in codes(found)
    assert not found.safe
    data[10] ^= 1
    wal.write_bytes(data)
    assert "wal_damaged" in codes(examined(path))


def grown(store: Store) -> None:
    """Let the write-ahead log grow beyond what is usual."""
    with store.database.write() as connection:
        connection.execute("CREATE TABLE filler (bytes)")
        connection.execute("INSERT INTO filler VALUES (zeroblob(70000000))")


def test_a_large_log_names_who_keeps_it(path: Path) -> None:
    """Who reads, and for how long nothing was written back."""
    filled(path, 20)
    with Store.open(path, project="acme", key=KEY, durability="normal") as store:
        reader = Store.open(path, project="acme", key=KEY, read_only=True)
        with reader.database.read(long=True) as connection:
            connection.execute("SELECT count(*) FROM note").fetchall()
            with pytest.warns(StorageWarning, match="has grown"):
                grown(store)
            found = examined(path)
        reader.close()
        told = {finding.code: finding for finding in found.findings}["wal_large"]
        assert f"pid {os.getpid()}" in told.what
        assert "wait to be written back" in told.what
        assert told.safe


# What lies around


def test_a_pending_purge_is_told(path: Path) -> None:
    """With who reads; the next write finishes it."""
    with Store.open(path, project="acme", key=KEY) as store:
        note = store.notes.add("fact", "To go")
        reader = Store.open(path, project="acme", key=KEY, read_only=True)
        with reader.database.read(long=True) as connection:
            connection.execute("SELECT count(*) FROM note").fetchall()
            store.forget(note)
            found = examined(path)
        reader.close()
        assert "purge_pending" in codes(found)
        assert f"pid {os.getpid()}" in found.text
        assert "the disk had no room" in found.text
        assert "nothing is lost" in found.text
        assert store.database.checkpoint(wait=10)


def test_no_finding_tells_to_delete_or_overwrite(path: Path) -> None:
    """Somebody may follow it to the letter."""
    filled(path, 60)
    texts = []
    for damage in (first_page, inner_schema, half_page, newer, noise, emptied, nothing):
        (copy,) = copies(path, f"{damage.__name__}.db")
        damage(copy)
        texts.append(examined(copy, repair=True).text)
    assert not re.search(r"\brm\b|\bdelete\b|\bremove\b|\boverwrite\b|\bunlink\b|\bmv\b|--force", " ".join(texts))


def test_bad_arguments_are_refused(path: Path) -> None:
    """A path and a flag are what they are elsewhere; a bad key is a finding."""
    filled(path, 20)
    with pytest.raises(InvalidInput):
        Store.doctor("")
    with pytest.raises(InvalidInput):
        examined(path, repair=1)
    assert codes(examined(path, key=b"short")) == {"invalid_input"}


@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 200), marks=pytest.mark.slow)], ids=["6", "194"])
def test_whatever_is_damaged_it_says_no_more_than_is_true(tmp_path: Path, seeds: range) -> None:
    """Random bytes of file and write-ahead log: never an exception; what it calls safe is whole, after a repair too."""
    base = tmp_path / "base.db"
    filled(base, 120)
    wal = killed(base, facts=25).read_bytes()
    main = base.read_bytes()
    with Store.open(base, project="acme", key=KEY) as store:
        whole, head = contents(store), store.log.head()
    for seed in seeds:
        chance = random.Random(seed)
        path = tmp_path / f"{seed}.db"
        path.write_bytes(main)
        path.with_name(path.name + "-wal").write_bytes(wal)
        pages = len(main) // 4096
        flip(
            path,
            *(chance.randrange(2, pages + 1) for _ in range(chance.choice((0, 1, 2, 9)))),
            at=chance.randrange(4096),
        )
        if chance.random() < 0.3:
            blank(path, chance.randrange(2, pages + 1))
        if chance.random() < 0.2:
            cut(path, len(main) - chance.randrange(1, 100_000))
        if chance.random() < 0.4:
            data = bytearray(wal)
            data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.with_name(path.name + "-wal").write_bytes(data)
        found = examined(path)
        mended = examined(path, repair=True)
        assert not (found.safe and found.head not in (head, None))
        if mended.sound:
            with Store.open(path, project="acme", key=KEY) as store:
                assert store.verify(replay=True, independent=True).problems == ()
                if found.safe:
                    assert contents(store) == whole
                events = contents(store, ("event",))["event"]
                assert sorted(events) == sorted(whole["event"])[: len(events)]


def test_a_damaged_file_is_sent_to_the_doctor(path: Path) -> None:
    """An error of a damaged page names what tells how far the damage goes, which is not the check that met it."""
    filled(path, 100)
    flip(path, *trees(path)["event"])
    with Store.open(path, project="acme", key=KEY, read_only=True) as store, pytest.raises(Corrupt) as met:
        store.verify()
    assert "agentmem doctor" in met.value.next
    assert "agentmem verify" not in str(met.value)


def test_a_path_where_nothing_ever_was_puts_nothing_at_risk(tmp_path: Path) -> None:
    """A mistyped name, a directory; but a write-ahead log without its file does."""
    for mistyped in (tmp_path / "wrok.db", tmp_path / "none" / "work.db", tmp_path):
        found = Store.doctor(mistyped)
        assert (found.sound, found.safe) == (False, True)
        assert "at risk" not in found.text
    (tmp_path / "wrok.db-wal").write_bytes(bytes(100))
    assert not Store.doctor(tmp_path / "wrok.db").safe
