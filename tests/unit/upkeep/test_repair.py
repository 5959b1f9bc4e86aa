"""Repair: what is derived is made anew from the log, never the log, and nothing of a log that is not whole."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from damage import KEY, behind, blank, contents, cut, filled, flip, foreign, names, trees

from agentmem import Store
from agentmem.engine.pages import PAGE_BYTES
from agentmem.upkeep.diagnosis import Diagnosis, Severity


def codes(found: Diagnosis) -> set[str]:
    return {finding.code for finding in found.findings if finding.severity is not Severity.NOTE}


def examined(path: Path, **options: object) -> Diagnosis:
    return Store.doctor(path, **({"key": KEY} | options))  # type: ignore[arg-type]


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


# Left-overs


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


@pytest.mark.parametrize("table", ["search", "search_idx", "search_data", "search_config", "search_content", "lease"])
def test_a_table_that_is_missing_is_made_anew(path: Path, table: str) -> None:
    """The full-text index, a part of it, the claims: that is a finding, the data is safe, and a repair makes it again."""
    head = filled(path, 20, key=None)
    foreign(path, f"DROP TABLE {table}")
    found = Store.doctor(path)
    assert "schema_differs" in codes(found)
    assert table in found.text
    assert ("index_differs" in codes(found)) is table.startswith("search")
    assert found.safe
    mended = Store.doctor(path, repair=True)
    assert mended.sound
    assert mended.head == head
    with Store.open(path, project="acme", encrypted=False, create=False) as store:
        assert store.verify(replay=True).problems == ()
        assert store.find("Fact").hits


def test_verify_tells_that_there_is_no_index(path: Path) -> None:
    """It is one of its problems and no error of SQLite."""
    filled(path, 10, key=None)
    foreign(path, "DROP TABLE search")
    with Store.open(path, project="acme", encrypted=False, read_only=True) as store:
        assert any("index" in problem for problem in store.verify().problems)


@pytest.mark.parametrize("table", ["note", "request", "blob", "event"])
def test_a_repair_without_a_table_it_needs_is_refused_or_sound(path: Path, table: str) -> None:
    """It never raises an error of SQLite, and what it does not make anew it says."""
    filled(path, 20, key=None)
    foreign(path, f"DROP TABLE {table}")
    assert "schema_differs" in codes(Store.doctor(path))
    mended = Store.doctor(path, repair=True)
    assert mended.sound or codes(mended) & {"repair_refused", "corrupt"}


@pytest.mark.parametrize("key", [KEY, None], ids=["encrypted", "plain"])
def test_a_file_cut_at_a_page_is_told_and_not_repaired(path: Path, key: bytes | None) -> None:
    """Half of the pages are gone and all others are authentic: the first page tells of more, and a repair is refused."""
    filled(path, 100, key=key)
    cut(path, path.stat().st_size // PAGE_BYTES // 2 * PAGE_BYTES)
    before = path.read_bytes()
    found = Store.doctor(path, key=key)
    assert "file_cut" in codes(found)
    assert not found.safe
    mended = Store.doctor(path, key=key, repair=True)
    assert {"file_cut", "repair_refused"} <= codes(mended)
    assert mended.repaired == ()
    assert path.read_bytes() == before
    assert names(path.parent) == {path.name}
