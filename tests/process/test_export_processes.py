"""Exports and imports beside other processes, and when they are killed."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import processes
import pytest

from agentmem import Busy, Store

KEY = bytes(range(32))
PRELUDE = """
import json, sys
from agentmem import Store, Conflict, Busy
path, target = sys.argv[1:3]
store = Store.open(path, project="acme", key=bytes(range(32)), busy_timeout=120, durability="normal")
def say(*words):
    print(json.dumps(words), flush=True)
def wait(*_):
    sys.stdin.readline()
say("ready"); wait()
"""
EXPORT = 'say(store.export(target, progress=lambda done, total: (say("at", done), wait())).resumed)'
IMPORT = 'say(store.import_(target, progress=lambda done, total: (say("at", done), wait())).added)'


class Child(processes.Child):
    """A Python process with a store open; it waits to be told to go on, at every step of its export or import."""

    def __init__(self, path: Path, target: Path, script: str) -> None:
        super().__init__(PRELUDE + script, path, target)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def last(self) -> list[Any]:
        """Let it go on to its end; what it said last."""
        found: list[Any] = self.end("\n" * 1000)[-1]
        return found


@pytest.fixture
def child() -> Iterator[Callable[[Path, Path, str], Child]]:
    """Starts a process with a script, which waits at its beginning."""
    started: list[Child] = []

    def start(path: Path, target: Path, script: str) -> Child:
        started.append(Child(path, target, script))
        assert started[-1].said() == ["ready"]
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def opened(path: Path) -> Store:
    return Store.open(path, project="acme", key=KEY, durability="normal", busy_timeout=120)


def fill(store: Store, records: int, name: str = "h") -> None:
    with store.transaction():
        for start in range(0, records, 5000):
            store.entities.put_many("host", keys=[f"{name}{n}" for n in range(start, min(start + 5000, records))])


def events(store: Store) -> list[tuple[Any, ...]]:
    with store.database.read() as connection:
        return connection.execute("SELECT * FROM event ORDER BY seq").fetchall()


def test_an_export_that_is_killed_goes_on(tmp_path: Path, child: Callable[..., Child]) -> None:
    """Nothing has the name before it is whole; the next export keeps what was written, and both make the same file."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 3500)
        store.export(tmp_path / "whole.jsonl")
        exporter = child(tmp_path / "a.db", tmp_path / "log.jsonl", EXPORT)
        for done in (1000, 2000):
            exporter.go()
            assert exporter.said() == ["at", done]
        exporter.kill()
        assert not (tmp_path / "log.jsonl").exists()
        kept = (tmp_path / ".log.jsonl.partial").read_bytes().count(b"\n")
        assert kept > 1000
        done = store.export(tmp_path / "log.jsonl")
        assert done.resumed >= 1000
        assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()


def test_an_import_that_is_killed_goes_on(tmp_path: Path, child: Callable[..., Child]) -> None:
    """The store it leaves is sound and holds a beginning of the log; the next import brings the rest."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 5000)
        store.export(tmp_path / "log.jsonl")
        importer = child(tmp_path / "b.db", tmp_path / "log.jsonl", IMPORT)
        importer.go()
        total = store.log.head().seq
        while (said := importer.said()[1]) <= total:
            importer.go()
        importer.kill()
        with opened(tmp_path / "b.db") as other:
            reached = other.log.head().seq
            assert reached == said - total
            (problem,) = other.verify(replay=True).problems
            assert "was not finished" in problem
            assert other.import_(tmp_path / "log.jsonl").added == total - reached
            assert events(other) == events(store)
            assert other.verify(replay=True, head=store.log.head()).problems == ()


def test_an_export_beside_writers_is_the_log_of_one_moment(tmp_path: Path, child: Callable[..., Child]) -> None:
    """What is written meanwhile waits for the next export; nobody waits for this one."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 2500)
        head = store.log.head()
        exporter = child(tmp_path / "a.db", tmp_path / "log.jsonl", EXPORT)
        exporter.go()
        assert exporter.said() == ["at", 1000]
        fill(store, 500, "late")
        assert store.database.checkpoint()
        exporter.last()
        with opened(tmp_path / "b.db") as other:
            assert other.import_(tmp_path / "log.jsonl").head == head
            assert other.verify(replay=True).problems == ()


def test_a_purge_by_another_process_begins_an_export_anew(tmp_path: Path, child: Callable[..., Child]) -> None:
    """The text was in the file when it was purged, and is not in it when it is finished."""
    with opened(tmp_path / "a.db") as store:
        secret = store.notes.add("fact", "xyzzy-secret")
        fill(store, 2500)
        exporter = child(tmp_path / "a.db", tmp_path / "log.jsonl", EXPORT)
        exporter.go()
        assert exporter.said() == ["at", 1000]
        assert b"xyzzy" in (tmp_path / ".log.jsonl.partial").read_bytes()
        store.forget(secret)
        exporter.last()
        assert b"xyzzy" not in (tmp_path / "log.jsonl").read_bytes()


def test_two_exports_to_one_name_do_not_mix(tmp_path: Path, child: Callable[..., Child]) -> None:
    """The second is refused while the first goes on, in this process and in another."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 2500)
        exporter = child(tmp_path / "a.db", tmp_path / "log.jsonl", EXPORT)
        exporter.go()
        assert exporter.said() == ["at", 1000]
        with pytest.raises(Busy, match="going on"):
            store.export(tmp_path / "log.jsonl")
        exporter.last()

        def again(done: int, total: int) -> None:
            with pytest.raises(Busy, match="going on"):
                store.export(tmp_path / "two.jsonl")

        store.export(tmp_path / "two.jsonl", progress=again)
        assert (tmp_path / "two.jsonl").read_bytes() == (tmp_path / "log.jsonl").read_bytes()


def test_two_imports_of_one_log_meet(tmp_path: Path, child: Callable[..., Child]) -> None:
    """Whichever writes a part, the other goes on after it; the store is the exported one in the end."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 5000)
        store.export(tmp_path / "log.jsonl")
        total = store.log.head().seq
        pair = [child(tmp_path / "b.db", tmp_path / "log.jsonl", IMPORT) for _ in range(2)]
        added = [0, 0]
        for each in pair:
            each.go()
        turn = 0
        while None in added or sum(added) < total:
            said = pair[turn].said()
            if said[0] != "at":
                added[turn] = said[0]
                if sum(added) == total:
                    break
            else:
                pair[turn].go()
            turn = 1 - turn if added[1 - turn] == 0 else turn
        assert sum(added) == total
        with opened(tmp_path / "b.db") as other:
            assert events(other) == events(store)
            assert other.verify(replay=True).problems == ()


def test_a_process_with_the_empty_file_open_takes_the_id_over(tmp_path: Path, child: Callable[..., Child]) -> None:
    """What it writes after the import is of the log that came in, and its chain holds."""
    script = (
        'store.notes.add("fact", "written here"); say(store.log.head().store); store.verify(replay=True) or exit(1)'
    )
    with opened(tmp_path / "a.db") as store:
        fill(store, 10)
        store.export(tmp_path / "log.jsonl")
        beside = [
            child(tmp_path / "b.db", tmp_path / "x", prefix + script) for prefix in ("", "store.notes.list();wait();")
        ]
        beside[1].go()
        with opened(tmp_path / "b.db") as other:
            other.import_(tmp_path / "log.jsonl")
            for each in beside:
                assert each.last() == [store.log.head().store]
            assert other.log.head().seq == store.log.head().seq + 2
            assert other.verify(replay=True, head=store.log.head()).problems == ()


@pytest.mark.parametrize("moments", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_at_any_step_nothing_half_has_the_name(
    tmp_path: Path, child: Callable[..., Child], moments: int
) -> None:
    """Killed between any two pages, again and again, an export ends as the whole log or is not there."""
    with opened(tmp_path / "a.db") as store:
        fill(store, 1000 * moments + 500)
        store.export(tmp_path / "whole.jsonl")
        for _ in range(moments):
            exporter = child(tmp_path / "a.db", tmp_path / "log.jsonl", EXPORT)
            exporter.go()
            exporter.said()
            exporter.kill()
            assert not (tmp_path / "log.jsonl").exists()
        store.export(tmp_path / "log.jsonl")
        assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
