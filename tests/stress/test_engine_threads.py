"""Threads and processes on one file at once, for longer than a unit test."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import agentmem
from agentmem.engine.database import Database, Migration

KEY = bytes(range(32))
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, worker TEXT, number INTEGER) STRICT",)),)
SCRIPT = f"""
import os, sys, threading
from agentmem.engine.database import Database, Migration
SCHEMA = (Migration(1, "first", {SCHEMA[0].script!r}),)
path, process, threads, writes = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
database = Database.open(path, schema=SCHEMA, key=bytes(range(32)), durability="normal", busy_timeout=120)
failed = []
def work(name):
    try:
        for number in range(writes):
            with database.write() as connection:
                connection.execute("INSERT INTO t (worker, number) VALUES (?, ?)", (name, number))
            with database.read() as connection:
                seen = connection.execute("SELECT count(*) FROM t WHERE worker = ?", (name,)).get
                assert seen == number + 1, (seen, number)
            if number % 20 == 0:
                database.data_version(), database.checkpoint()
    except BaseException as error:
        failed.append(repr(error))
all_threads = [threading.Thread(target=work, args=(f"{{process}}-{{number}}",)) for number in range(threads)]
for thread in all_threads: thread.start()
for thread in all_threads: thread.join()
sys.exit("; ".join(failed) or 0)
"""


@pytest.mark.parametrize(
    ("processes", "threads", "writes"), [(3, 4, 40), pytest.param(6, 8, 200, marks=pytest.mark.slow)]
)
def test_threads_in_processes_lose_nothing(tmp_path: Path, processes: int, threads: int, writes: int) -> None:
    """Threads of several processes that write, read their own writes and checkpoint keep every row."""
    path = tmp_path / "s.db"
    env = os.environ | {"PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(path), str(number), str(threads), str(writes)],
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        for number in range(processes)
    ]
    for each in running:
        _, err = each.communicate()
        assert (each.returncode, err) == (0, "")
    with Database.open(path, schema=SCHEMA, key=KEY) as database:
        with database.read() as connection:
            assert connection.execute("SELECT count(*) FROM t").get == processes * threads * writes
        assert database.independent_check() == []


def test_opening_and_closing_beside_use(tmp_path: Path) -> None:
    """Stores of one file opened and closed in some threads leave those of other threads working."""
    path = tmp_path / "s.db"
    with Database.open(path, schema=SCHEMA, key=KEY, durability="normal") as database:
        stop = threading.Event()

        def open_and_close() -> int:
            times = 0
            while not stop.is_set():
                with Database.open(path, schema=SCHEMA, key=KEY) as other, other.read() as connection:
                    connection.execute("SELECT count(*) FROM t").fetchall()
                times += 1
            return times

        with ThreadPoolExecutor(3) as pool:
            openers = [pool.submit(open_and_close) for _ in range(3)]
            try:
                for number in range(300):
                    with database.write() as connection:
                        connection.execute("INSERT INTO t (worker, number) VALUES ('main', ?)", (number,))
            finally:
                stop.set()
            assert all(each.result() for each in openers)
        with database.read() as connection:
            assert connection.execute("SELECT count(*) FROM t").get == 300
        assert database.independent_check() == []


def test_a_store_closed_under_its_threads(tmp_path: Path) -> None:
    """Threads in the middle of work get Closed from a close in another thread, and what was acknowledged is kept."""
    from agentmem.errors import Closed

    path = tmp_path / "s.db"
    database = Database.open(path, schema=SCHEMA, key=KEY, durability="normal")
    working = threading.Barrier(5)

    def work(name: int) -> int:
        written = 0
        try:
            while True:
                with database.write() as connection:
                    connection.execute("INSERT INTO t (worker, number) VALUES (?, ?)", (str(name), written))
                written += 1
                with database.read() as connection:
                    connection.execute("SELECT count(*) FROM t").fetchall()
                if written == 10:
                    working.wait()
        except Closed:
            return written

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, name) for name in range(4)]
        working.wait()
        database.close()
        written = sum(each.result() for each in workers)
    with Database.open(path, schema=SCHEMA, key=KEY) as again, again.read() as connection:
        assert connection.execute("SELECT count(*) FROM t").get == written
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]
