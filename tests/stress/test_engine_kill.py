"""Processes killed with SIGKILL while they write: no acknowledged write is lost, no file is damaged."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import agentmem
from agentmem.engine.database import Database, Migration

KEY = bytes(range(32))
SCHEMA = (
    Migration(
        1, "first", ("CREATE TABLE t (worker TEXT, number INTEGER, b TEXT, PRIMARY KEY (worker, number)) STRICT",)
    ),
)
WRITER = f"""
import os, random, sys
from agentmem.engine.database import Database, Migration
SCHEMA = (Migration(1, "first", {SCHEMA[0].script!r}),)
path, worker, create = sys.argv[1:]
database = Database.open(path, schema=SCHEMA, key=bytes(range(32)), create=create == "create", busy_timeout=60)
number = 0
while True:
    with database.write() as connection:
        for _ in range(random.choice((1, 1, 1, 20))):
            connection.execute("INSERT INTO t VALUES (?, ?, ?)", (worker, number, "x" * random.randrange(3000)))
            number += 1
    os.write(1, b"%d\\n" % number)  # the acknowledgement: so many are durable
    if random.random() < 0.05:
        database.checkpoint()
    if random.random() < 0.05:
        database.close()
        database = Database.open(path, schema=SCHEMA, key=bytes(range(32)), busy_timeout=60)
"""


def killed_round(path: Path, round_number: int, writers: int, chance: random.Random) -> dict[str, int]:
    """Start writers, kill each after a random number of acknowledgements; return what each had acknowledged."""
    env = os.environ | {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
    started = {
        f"{round_number}-{number}": subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path), f"{round_number}-{number}", "create"],
            stdout=subprocess.PIPE,
            env=env,
        )
        for number in range(writers)
    }
    acknowledged = {}
    for worker, process in started.items():
        assert process.stdout is not None
        # Killed somewhere between the last line read and wherever it has got to since: at any step of a write.
        for _ in range(chance.randrange(20)):
            process.stdout.readline()
        process.kill()
        rest = process.stdout.read().split(b"\n")
        process.stdout.close()
        process.wait()
        whole = [line for line in rest[:-1] if line]
        acknowledged[worker] = int(whole[-1]) if whole else 0
    return acknowledged


@pytest.mark.parametrize("kills", [20, pytest.param(300, marks=pytest.mark.slow)])
def test_a_kill_loses_no_acknowledged_write(tmp_path: Path, kills: int) -> None:
    """After every kill each writer's acknowledged rows are all there, without a gap, and the file is sound."""
    path = tmp_path / "s.db"
    chance = random.Random(kills)
    total, done, rounds = 0, 0, 0
    while done < kills:
        rounds += 1
        acknowledged = killed_round(path, rounds, 2, chance)
        done += len(acknowledged)
        if not path.exists():  # killed before the file was made: then nothing was acknowledged
            assert set(acknowledged.values()) == {0}
            continue
        with Database.open(path, schema=SCHEMA, key=KEY) as database:
            with database.read() as connection:
                for worker, known in acknowledged.items():
                    rows = connection.execute(
                        "SELECT count(*), coalesce(max(number) + 1, 0) FROM t WHERE worker = ?", (worker,)
                    ).get
                    assert rows[0] == rows[1] >= known
                    total += known
            if rounds % 5 == 0 or done >= kills:
                assert database.independent_check() == []
            with database.write() as connection:
                connection.execute("DELETE FROM t")
    assert total > kills
