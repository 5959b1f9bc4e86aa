"""Processes killed with SIGKILL while they write records: nothing acknowledged is lost, and the log stays whole."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import agentmem
from agentmem import Store

KEY = bytes(range(32))
WRITER = """
import os, random, sys
from agentmem import Store
path, name = sys.argv[1:]
store = Store.open(path, project="acme", key=bytes(range(32)), author=name, run=name, busy_timeout=60)
chance = random.Random(name)
def told(*ids):
    os.write(1, (" ".join(map(str, ids)) + "\\n").encode())  # the acknowledgement, after the call returned
goal = store.notes.add("goal", f"Goal of {name}", similar=False)
told(goal.id)
number = 0
while True:
    number += 1
    match chance.randrange(6):
        case 0 | 1:
            body = "x" * chance.randrange(3000)
            told(store.notes.add("step", f"{name} {number}", parent=goal, body=body, similar=False).id)
        case 2:
            keys = [f"{name}-{number}-{each}" for each in range(chance.randrange(1, 30))]
            told(*store.entities.put_many("host", keys=keys).ids)
        case 3:
            told(*store.checklists.add(goal, f"Item {number}", "Another").ids)
        case 4:
            with store.transaction():
                note = store.notes.add("fact", f"{name} {number}", parent=goal, similar=False)
                store.links.add(note, "supports", goal)
                entity = store.entities.put("host", f"{name}-{number}")
                store.entities.mark("host", [entity], {"tls": "pass"})
                store.claim([entity])
            told(note.id, entity.id)
        case 5:
            told(store.summarize(goal, result=f"{name} {number}").id)
"""


def killed_round(path: Path, round_number: int, chance: random.Random) -> dict[str, list[int]]:
    """Start two writers and kill each after some acknowledgements; the ids that each had acknowledged."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_KEY")}
    env |= {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
    names = [f"w{round_number}-{number}" for number in range(2)]
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), name], stdout=subprocess.PIPE, env=env)
        for name in names
    ]
    acknowledged = {}
    for name, process in zip(names, started, strict=True):
        assert process.stdout is not None
        lines = []
        # Killed anywhere between the last line read and wherever it has got to since: at any step of a write.
        for _ in range(chance.randrange(1, 25)):
            lines.append(process.stdout.readline())
        process.kill()
        lines += process.stdout.read().splitlines(keepends=True)
        process.stdout.close()
        process.wait()
        acknowledged[name] = [int(found) for line in lines if line.endswith(b"\n") for found in line.split()]
    return acknowledged


@pytest.mark.parametrize("rounds", [10, pytest.param(150, marks=pytest.mark.slow)], ids=["20-kills", "300-kills"])
def test_a_kill_loses_no_acknowledged_record(tmp_path: Path, rounds: int) -> None:
    """Every acknowledged record is there, each transaction whole or not at all, and chain and replay verify."""
    chance = random.Random(rounds)
    total = 0
    for round_number in range(rounds):
        path = tmp_path / f"work-{round_number // 10}.db"  # a new file now and then: each is verified whole
        acknowledged = killed_round(path, round_number, chance)
        total += sum(map(len, acknowledged.values()))
        with Store.open(path, project="acme", key=KEY) as store:
            with store.database.read() as connection:
                made = dict(connection.execute("SELECT seq, author FROM event WHERE seq = record"))
                for name, ids in acknowledged.items():
                    assert ids
                    lost = [found for found in ids if made.get(found) != name]
                    assert lost == [], f"{name} was told of {lost}"
                # A fact is written in one transaction with its link, its entity, the mark and the claim.
                facts = connection.execute(
                    "SELECT note.title, (SELECT count(*) FROM link WHERE src = note.id) FROM note WHERE kind = 'fact'"
                ).fetchall()
                marked = {
                    key for (key,) in connection.execute("SELECT key FROM entity JOIN mark ON mark.entity = entity.id")
                }
                assert {title.replace(" ", "-") for title, _ in facts} == marked
                assert all(links == 1 for _, links in facts)
                assert connection.execute("SELECT count(*) FROM lease").fetchall() == [(len(facts),)]
            found = store.verify(replay=True, independent=round_number % 5 == 0)
            assert found.problems == (), json.dumps(found.problems)
    assert total > rounds
