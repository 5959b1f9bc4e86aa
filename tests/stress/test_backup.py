"""Backups taken again and again under four writers: each opens, verifies, and holds all that was acknowledged before."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

import pytest

import agentmem
from agentmem import Store

KEY = bytes(range(32))
WRITER = """
import os, random, sys
from agentmem import Store
path, name = sys.argv[1:]
store = Store.open(path, project="acme", key=bytes(range(32)), author=name, run=name, busy_timeout=120)
chance = random.Random(name)
goal = store.notes.add("goal", f"Goal of {name}", similar=False)
number = 0
while True:
    number += 1
    match chance.randrange(4):
        case 0 | 1:
            made = store.notes.add("fact", f"{name} {number}", parent=goal, body="x " * chance.randrange(6000), similar=False)
            found = [made.id]
        case 2:
            found = store.entities.put_many("host", keys=[f"{name}-{number}-{each}" for each in range(5)]).ids
        case 3:
            with store.transaction():
                note = store.notes.add("step", f"{name} {number}", parent=goal, similar=False)
                found = [note.id, *store.checklists.add(note, "One", "Two").ids]
    os.write(1, (" ".join(map(str, found)) + "\\n").encode())  # the acknowledgement, after the call returned
"""


class Writer:
    """A process that writes, and all that it was told is written."""

    def __init__(self, path: Path, name: str) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith("AGENTMEM_KEY")}
        env |= {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
        self.name = name
        self.acknowledged: list[int] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, env=env
        )
        assert self.process.stdout is not None
        self.first = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self._reader.start()

    def _read(self, lines: IO[bytes]) -> None:
        for line in lines:
            if line.endswith(b"\n"):
                self.acknowledged += map(int, line.split())
                self.first.set()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.mark.parametrize("files", [1, pytest.param(20, marks=pytest.mark.slow)], ids=["5-backups", "100-backups"])
def test_backups_under_four_writers(tmp_path: Path, files: int) -> None:
    """All open, all verify, restored too, and none lacks what was acknowledged before it began."""
    for number in range(files):  # a new file now and then: each backup is verified whole, and the writers never rest
        directory = tmp_path / str(number)
        directory.mkdir()
        backed_up(directory, 5)
        assert sorted(each.name for each in directory.iterdir()) == ["work.db"]


def backed_up(directory: Path, times: int) -> None:
    """Back up so many times under four writers."""
    path = directory / "work.db"
    with Store.open(path, project="acme", key=KEY) as store:
        writers = [Writer(path, f"w{number}") for number in range(4)]
        try:
            assert all(writer.first.wait(120) for writer in writers)
            head = store.log.head()
            for number in range(times):
                before = {writer.name: list(writer.acknowledged) for writer in writers}
                key = None if number % 3 else os.urandom(32)
                copy = store.backup(directory / "copy.db", key=key)
                assert copy.head.seq >= head.seq
                restored = Store.restore(copy.path, directory / "restored.db", key=key or KEY, new_key=KEY)
                assert restored.head == copy.head
                with Store.open(restored.path, project="acme", key=KEY, create=False) as found:
                    problems = found.verify(replay=True, independent=number == 0, head=head).problems
                    assert problems == ()
                    with found.database.read() as connection:
                        made = dict(connection.execute("SELECT seq, author FROM event"))
                    for name, ids in before.items():
                        assert [each for each in ids if made.get(each) != name] == []
                head = copy.head
                for each in (copy.path, restored.path):
                    each.unlink()
            assert store.verify(head=head).problems == ()
        finally:
            for writer in writers:
                writer.end()
        assert all(writer.acknowledged for writer in writers)
