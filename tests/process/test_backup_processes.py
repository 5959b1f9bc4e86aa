"""Backups and restores among several processes: taken beside writers, at once, and killed in the middle."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest

from agentmem import Store, StoreExists

KEY = bytes(range(32))
PRELUDE = """
import json, sys
from agentmem import Store, StoreExists, Corrupt
path, target = sys.argv[1:3]
store = Store.open(path, project="acme", key=bytes(range(32)), durability="normal", busy_timeout=120)
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    sys.stdin.readline()
say("ready"); wait()
"""


class Child(processes.Child):
    """A Python process with the store open; it waits to be told to go on and says what it did, line by line."""

    def __init__(self, path: Path, target: Path, script: str) -> None:
        super().__init__(PRELUDE + script, path, target)


@pytest.fixture
def child(path: Path) -> Iterator[Callable[[str, Path], Child]]:
    """Starts a process with a script, waiting at its beginning."""
    started: list[Child] = []

    def start(script: str, target: Path) -> Child:
        fresh = Child(path, target, script)
        started.append(fresh)
        assert fresh.said() == ["ready"]
        return fresh

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


BACKUP = """
try:
    say("made", store.backup(target).head.seq)
except StoreExists:
    say("taken")
"""


def test_of_several_backups_to_one_name_one_gets_it(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], tmp_path: Path
) -> None:
    """The others are refused, the file is whole, and nothing else is left."""
    opened().notes.add("goal", "Here")
    target = tmp_path / "copy.db"
    children = [child(BACKUP, target) for _ in range(4)]
    for each in children:
        each.go()
    said = [each.end() for each in children]
    assert sorted(line[0] for lines in said for line in lines) == ["made", "taken", "taken", "taken"]
    with Store.open(target, project="acme", key=KEY) as copy:
        assert copy.verify(replay=True, independent=True).problems == ()
    assert not [each.name for each in tmp_path.iterdir() if each.name.endswith(".tmp")]


def test_a_backup_waits_for_no_writer_and_no_writer_for_it(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], tmp_path: Path
) -> None:
    """Another process is inside a transaction all the time, and one writes all the time: neither is in the way."""
    store = opened()
    store.notes.add("goal", "Before")
    script = """
with store.transaction():
    store.notes.add("goal", "Not yet")
    say("inside"); wait()
say("done")
"""
    writer = child(script, tmp_path / "none")
    writer.go()
    assert writer.said() == ["inside"]
    made = store.backup(tmp_path / "copy.db")
    with Store.open(made.path, project="acme", key=KEY) as copy:
        assert [note.title for note in copy.notes.list()] == ["Before"]
    writer.go()
    assert writer.end() == [["done"]]
    assert len(store.notes.list()) == 2


ENDLESS = """
number = 0
while True:
    number += 1
    say(store.backup(f"{target}-{number}").head.seq)
"""


def test_a_killed_backup_leaves_no_file_of_its_name(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], tmp_path: Path
) -> None:
    """Whenever it is killed: each file that has its name is whole; what is left over is found, and a repair takes it."""
    store = opened()
    with store.transaction():
        for number in range(400):
            store.notes.add("fact", f"Fact {number}", body="something seen " * 60, similar=False)
    for round_number in range(6):
        target = tmp_path / f"copy-{round_number}.db"
        process = child(ENDLESS, target)
        process.go()
        for _ in range(round_number % 3):
            process.said()
        process.process.kill()
        process.process.wait()
        for made in tmp_path.glob(f"copy-{round_number}.db-*"):
            if made.suffix.startswith(".db-") and made.name.rpartition("-")[2].isdecimal():
                with Store.open(made, project="acme", key=KEY, read_only=True) as copy:
                    assert copy.verify(replay=True).events == store.log.head().seq
    assert store.verify(replay=True, independent=True).problems == ()
    left = [each for each in tmp_path.iterdir() if ".tmp" in each.name]
    for each in left:
        os.utime(each, (1, 1))
        # The temporaries stand beside the name that they were to get.
        name = each.name.lstrip(".").split(".db-")[0] + ".db-" + each.name.split(".db-")[1].split(".")[0]
        Store.doctor(tmp_path / name, key=KEY, repair=True)
    assert not [each.name for each in tmp_path.iterdir() if ".tmp" in each.name]


def test_a_restore_beside_a_living_store_leaves_it_alone(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], path: Path, tmp_path: Path
) -> None:
    """Refused at its own name; elsewhere it is another file, and both go on."""
    store = opened()
    store.notes.add("goal", "Here")
    copy = store.backup(tmp_path / "copy.db")
    script = """
for number in range(20):
    store.notes.add("fact", f"Fact {number}", similar=False)
say("done")
"""
    writer = child(script, tmp_path / "none")
    writer.go()
    with pytest.raises(StoreExists):
        Store.restore(copy.path, path, key=KEY)
    Store.restore(copy.path, tmp_path / "restored.db", key=KEY)
    with Store.open(tmp_path / "restored.db", project="acme", key=KEY) as restored:
        restored.notes.add("fact", "Of the restored one")
        assert writer.end() == [["done"]]
        assert len(store.notes.list(kind="fact")) == 20
        assert len(restored.notes.list(kind="fact")) == 1
        assert restored.verify(replay=True).problems == ()
    assert store.verify(replay=True).problems == ()


def test_a_doctor_beside_writers_finds_nothing(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], path: Path, tmp_path: Path
) -> None:
    """While others write and the log is written back, no page in the middle of that is taken for damaged."""
    opened().notes.add("goal", "Here")
    script = """
import os, threading
stop = []
threading.Thread(target=lambda: (wait(), stop.append(1)), daemon=True).start()
number = 0
while not stop:
    number += 1
    store.notes.add("fact", f"Fact {os.getpid()} {number}", body="something seen " * (number % 200), similar=False)
    if number % 5 == 0:
        store.database.checkpoint()
say("done", number)
"""
    writers = [child(script, tmp_path / "none") for _ in range(2)]
    for each in writers:
        each.go()
    for _ in range(8):
        found = Store.doctor(path, key=KEY)
        assert found.sound, found.text
        assert found.safe
    for each in writers:
        each.go()
        assert each.end()[0][0] == "done"


REPAIR = """
import os
say("begun")
print(Store.doctor(target, key=bytes(range(32)), repair=True).text, flush=True)
"""


def test_a_killed_repair_leaves_the_old_file_or_the_new_one(
    opened: Callable[..., Store], child: Callable[[str, Path], Child], path: Path, tmp_path: Path
) -> None:
    """Whenever it is killed: what has the name is one of the two, with the whole log, and the next repair goes through."""
    store = opened()
    with store.transaction():
        for number in range(300):
            store.notes.add("fact", f"Fact {number}", body="something seen " * 60, similar=False)
    head = store.log.head()
    for round_number in range(8):
        target = tmp_path / f"{round_number}" / "broken.db"
        target.parent.mkdir()
        store.backup(target)
        with Store.open(target, project="acme", key=KEY) as copy, copy.database.write() as connection:
            connection.execute("DROP INDEX note_parent")
            connection.execute("DELETE FROM link")
        process = child(REPAIR, target)
        process.go()
        assert process.said() == ["begun"]
        for _ in range(round_number):
            # Somewhere in the middle, by what can be seen of it from outside.
            seen = len(list(target.parent.iterdir()))
            while process.process.poll() is None and len(list(target.parent.iterdir())) == seen:
                pass
        process.process.kill()
        process.process.wait()
        found = Store.doctor(target, key=KEY, repair=True)
        assert found.sound, found.text
        assert found.head == head
        with Store.open(target, project="acme", key=KEY) as copy:
            assert copy.verify(replay=True).problems == ()
