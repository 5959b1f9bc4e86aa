"""Processes killed with SIGKILL while they purge: a purge is whole or did not happen, and once finished leaves no trace."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from attrs import define, field

import agentmem
from agentmem import Store

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "past"))

from decrypted import search
from written import surround

KEY = bytes(range(32))
PURGER = """
import os, random, sys
from agentmem import Store
path, name = sys.argv[1:]
chance = random.Random(name)
store = Store.open(path, project="acme", key=bytes(range(32)), author=name, run=name, busy_timeout=60)
def told(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def word():
    return "".join(chance.choice("bcdfghjklmnpqrstvwxz") for _ in range(14))
own = []
while True:
    text = word()
    told("writing", text)
    with store.transaction():
        goal = store.notes.add("goal", f"Goal {text}", body=f"{text} " * chance.randrange(300), similar=False).id
        step = store.notes.add("step", f"Step {text}", parent=goal, similar=False).id
        store.checklists.add(step, f"Item {text}", f"Another {text}")
        store.entities.put("host", text, attrs={"password": text})
    told("wrote", text, goal)
    own.append((text, goal))
    if chance.randrange(2):
        edited, goal = chance.choice(own)
        store.notes.update(goal, body=f"{edited} " * chance.randrange(300))
    if len(own) > 2:
        text, goal = own.pop(chance.randrange(len(own)))
        told("purging", text, goal)
        store.forget([goal, f"host:{text}"])
        told("purged", text, goal)
"""


@define
class Told:
    """What the processes said before they were killed, by word."""

    wrote: dict[str, int] = field(factory=dict)
    writing: set[str] = field(factory=set)
    purging: set[str] = field(factory=set)
    purged: set[str] = field(factory=set)

    def take(self, line: bytes) -> str:
        what, text, *rest = line.decode().split()
        if what == "wrote":
            self.wrote[text] = int(rest[0])
        else:
            getattr(self, what).add(text)
        return what


def lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    assert process.stdout is not None
    for line in process.stdout:
        if line.endswith(b"\n"):
            yield line


def killed(path: Path, name: str, told: Told, chance: random.Random) -> None:
    """Start a process and kill it at some moment after it said that it begins its n-th purge."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("AGENTMEM_KEY")}
    env |= {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
    process = subprocess.Popen([sys.executable, "-c", PURGER, str(path), name], stdout=subprocess.PIPE, env=env)
    wanted = chance.randrange(1, 6)
    said = lines(process)
    for line in said:
        wanted -= told.take(line) == "purging"
        if not wanted:
            break
    for _ in range(chance.randrange(400_000)):
        pass  # some milliseconds, so that every part of a purge is hit
    process.kill()
    for line in said:
        told.take(line)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def examine(path: Path, scratch: Path, told: Told) -> int:
    """Look at a store after kills; how many purges were cut short and had happened."""
    with Store.open(path, project="acme", key=KEY) as store:
        found = store.verify(replay=True)
        assert found.problems == ()
        assert not store.stats().purge_pending
        there = {text: parts(store, text) for text in (*told.wrote, *told.writing)}
    gone = {text for text, kinds in there.items() if not kinds}
    for text, kinds in there.items():
        assert kinds in (set(), {"goal", "step", "item", "entity"}), f"{text} is there in part"
    assert told.purged <= gone
    assert gone <= told.purged | told.purging | (told.writing - told.wrote.keys())
    assert told.wrote.keys() - told.purging <= there.keys() - gone
    if gone:
        assert search(path, KEY, scratch, *gone).places == ()
    if living := there.keys() - gone:
        assert "pages" in search(path, KEY, scratch, *living).places
    return len(gone & told.purging - told.purged)


def parts(store: Store, text: str) -> set[str]:
    return {hit.kind if hit.type in ("note", "item") else hit.type for hit in store.find(text, limit=20).hits}


@pytest.mark.parametrize("kills", [12, pytest.param(200, marks=pytest.mark.slow)], ids=["12-kills", "200-kills"])
def test_a_killed_purge_is_whole_or_did_not_happen(tmp_path: Path, kills: int) -> None:
    """Chain and replay verify, no trace of what is gone is left once the file was opened again, the rest is found."""
    chance = random.Random(kills)
    told, path = Told(), tmp_path / "work.db"
    for number in range(kills):
        if number % 10 == 0:  # a new file now and then: each is searched whole
            told, path = Told(), tmp_path / f"work-{number}.db"
            with Store.open(path, project="acme", key=KEY) as store:
                surround(store)
        killed(path, f"p{number}", told, chance)
        if number % 3 == 2 or number == kills - 1:
            examine(path, tmp_path, told)
    assert told.purging
