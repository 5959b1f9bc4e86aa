"""The doctor: what is wrong with a file, whether the data is safe, what to do; and what a repair makes anew."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest
from damage import KEY, behind, blank, contents, copies, cut, filled, flip, names, trees

from agentmem import InvalidInput, StorageWarning, Store
from agentmem.engine.connection import cipher_set, connection_bare
from agentmem.engine.pages import raw_key_of
from agentmem.engine.wal import wal_read
from agentmem.upkeep.diagnosis import Diagnosis, Severity

ALL = ("key", "pages", "wal", "surroundings", "structure", "schema", "chain", "replay", "index", "purge")


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
        (nothing, "no_file", False),
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


@pytest.mark.parametrize(
    ("tree", "named"),
    [
        ("note_parent", "note_parent (an index)"),
        ("event_record", "event_record (an index)"),
        ("note", "the table note"),
        ("entity", "the table entity"),
        ("search_data", "the full-text index"),
        ("search_content", "the full-text index"),
        ("lease", "the table lease"),
    ],
)
@pytest.mark.parametrize("how", [flip, blank])
def test_damage_to_what_is_derived_is_repaired(
    path: Path, tree: str, named: str, how: Callable[[Path, int], None]
) -> None:
    """It says what the page belongs to and that the data is safe; a repair makes a new file of the same log, and keeps the
    old one under another name."""
    head = filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        whole = contents(store)
        requests = contents(store, ("request",))
    how(path, trees(path)[tree][-1])
    broken = path.read_bytes()
    found = examined(path)
    assert "page_damaged" in codes(found)
    assert named in found.text
    assert found.safe
    assert found.head == head
    mended = examined(path, repair=True)
    assert mended.findings == ()
    assert mended.head == head
    assert any("kept as" in each for each in mended.repaired)
    assert path.with_name(path.name + ".damaged").read_bytes() == broken
    assert names(path.parent) == {path.name, path.name + ".damaged"}
    with Store.open(path, project="acme", key=KEY) as store:
        assert contents(store) == whole
        assert contents(store, ("request",)) == requests
        assert len(store.claims()) == (tree != "lease")
        assert len(store.find("fact", limit=5)) == 5


@pytest.mark.parametrize("tree", ["event", "blob", "meta", "request"])
def test_damage_to_the_log_is_not_repaired(path: Path, tree: str) -> None:
    """What can't be made anew is at risk, which is said; a repair refuses and changes no byte."""
    filled(path)
    flip(path, trees(path)[tree][-1])
    before = path.read_bytes()
    found = examined(path)
    assert not found.safe
    assert f"the table {tree}" in found.text
    again = examined(path, repair=True)
    assert "repair_refused" in codes(again)
    assert again.repaired == ()
    assert path.read_bytes() == before
    assert names(path.parent) == {path.name}


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


def test_a_repair_needs_the_file_alone(path: Path) -> None:
    """What others write meanwhile would be in the old file: it is refused while anybody has it open, here or elsewhere."""
    filled(path)
    flip(path, trees(path)["note_parent"][-1])
    before = path.read_bytes()
    with Store.open(path, project="acme", key=KEY, read_only=True):
        assert "busy" in codes(examined(path, repair=True))
    script = """
import sys
from agentmem import Store
with Store.open(sys.argv[1], project="acme", key=bytes(range(32)), read_only=True):
    print("open", flush=True)
    sys.stdin.readline()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        assert "busy" in codes(examined(path, repair=True))
        process.communicate("\n")
    assert path.read_bytes() == before
    assert examined(path, repair=True).sound


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


# What is derived differs from the log


DIFFERENCES = pytest.mark.parametrize(
    ("sql", "code"),
    [
        ("UPDATE note SET title = 'Another' WHERE id = 5", "replay_differs"),
        ("DELETE FROM note WHERE id = 6", "replay_differs"),
        ("INSERT INTO link VALUES (2, 3, 'uses', 4, NULL, NULL, 'agent')", "replay_differs"),
        ("UPDATE entity SET attrs = '{}'", "replay_differs"),
        ("UPDATE blob SET uses = uses + 1", "replay_differs"),
        ("INSERT INTO blob VALUES (zeroblob(32), 'left over', 1)", "replay_differs"),
        ("DELETE FROM search WHERE rowid = 5", "index_differs"),
        ("INSERT INTO search (rowid, title, body, extra) VALUES (99999, 'stray', '', '')", "index_differs"),
        ("UPDATE search SET title = 'other words' WHERE rowid = 8", "index_differs"),
        ("UPDATE search_content SET c0 = 'other words' WHERE id = 9", "index_differs"),
        ("DELETE FROM search_data WHERE id > 10", "index_differs"),
        ("UPDATE meta SET value = 'older' WHERE name = 'analyser'", "index_differs"),
        ("DROP INDEX note_parent", "schema_differs"),
        ("DROP TRIGGER note_search_update", "schema_differs"),
        ("CREATE TABLE another (a)", "schema_differs"),
    ],
)


@DIFFERENCES
def test_what_differs_from_the_log_is_found_and_made_anew(path: Path, sql: str, code: str) -> None:
    """Tables, texts, index, schema: after a repair all are what the log says, and the log is what it was."""
    head = filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        whole, claims = contents(store), store.claims()
    behind(path, sql)
    found = examined(path)
    assert code in codes(found)
    assert found.safe
    assert not found.sound
    mended = examined(path, repair=True)
    assert mended.findings == ()
    assert mended.repaired
    assert mended.head == head
    with Store.open(path, project="acme", key=KEY) as store:
        assert contents(store) == whole
        assert store.claims() == claims
        assert store.verify(replay=True, independent=True, head=head).problems == ()
        assert store.notes.add("goal", "Move to the queue", request_id="first").repeated
        assert len(store.find("fact", limit=5)) == 5


@pytest.mark.parametrize("sql", ["UPDATE event SET payload = '{}' WHERE seq = 5", "DELETE FROM event WHERE seq > 5"])
def test_a_broken_chain_is_never_made_anything_of(path: Path, sql: str) -> None:
    """The tables may hold the only trace of what the log lost: a repair leaves them alone."""
    filled(path)
    behind(path, sql, "DELETE FROM search WHERE rowid = 3")
    before = path.read_bytes()
    found = examined(path, repair=True)
    assert {"chain_broken", "repair_refused"} <= codes(found)
    assert found.repaired == ()
    assert not found.safe
    assert path.read_bytes() == before


def test_other_processes_go_on_after_a_repair_in_place(path: Path) -> None:
    """What is open sees the mended tables, and writes to them."""
    filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        assert store.notes.get(5).title != "Another"
        with store.database.write() as connection:
            connection.execute("UPDATE note SET title = 'Another' WHERE id = 5")
        assert store.notes.get(5).title == "Another"
        assert examined(path, repair=True).sound
        assert store.notes.get(5).title != "Another"
        store.notes.update(5, title="By its own verb")
        assert store.verify(replay=True).problems == ()


# What lies around


def test_left_overs_of_dead_processes_are_taken_away(path: Path) -> None:
    """Only those: not of living ones, not fresh ones, not links, not what merely looks alike."""
    filled(path, 20)
    dead = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    gone = f".{path.name}.{int(dead.stdout)}-{'ab' * 8}.tmp"
    old = [gone, gone + "-wal", f".{gone}.{int(dead.stdout)}-{'cd' * 8}.tmp"]
    kept = {
        f".{path.name}.{os.getpid()}-{'ab' * 8}.tmp",
        f".{path.name}.{int(dead.stdout)}-{'ab' * 7}.tmp",
        f".other.{int(dead.stdout)}-{'ab' * 8}.tmp",
        gone + ".txt",
    }
    for name in (*old, *kept):
        path.with_name(name).write_bytes(b"left")
        os.utime(path.with_name(name), (1, 1))
    fresh = f".{path.name}.{int(dead.stdout)}-{'ef' * 8}.tmp"
    path.with_name(fresh).write_bytes(b"just now")
    link = f".{path.name}.{int(dead.stdout)}-{'aa' * 8}.tmp"
    path.with_name(link).symlink_to(path)
    found = examined(path)
    assert codes(found) == {"leftover_files"}
    assert found.sound
    mended = examined(path, repair=True)
    assert len(mended.repaired) == len(old)
    assert codes(mended) == set()
    assert names(path.parent) == {path.name, fresh, link, *kept}


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
