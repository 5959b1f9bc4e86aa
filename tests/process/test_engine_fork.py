"""After a fork parent and child each have sound connections of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import agentmem
from agentmem.engine.database import Database, Migration

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")

KEY = bytes(range(32))
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT",)),)
PRELUDE = """
import os, sys, threading, traceback
from agentmem.engine.database import Database, Migration
from agentmem.errors import AgentMemError, Busy, Conflict
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT",)),)
path = sys.argv[1]
database = Database.open(path, schema=SCHEMA, key=bytes(range(32)), busy_timeout=600)
def add(text):
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES (?)", (text,))
def texts():
    with database.read() as connection:
        return [row[0] for row in connection.execute("SELECT b FROM t ORDER BY a")]
def forked(run):
    # The child says how it went by its exit status, and never runs the parent's lines.
    pid = os.fork()
    if pid == 0:
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return pid
def joined(pid):
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status == 0, status
def locks():
    inodes = {os.stat(path + suffix).st_ino for suffix in ("", "-shm")}
    lines = [line.split() for line in open("/proc/locks")]
    mine = [(int(line[5].split(":")[2]), line[6]) for line in lines if line[4] == str(os.getpid())]
    return {each for each in mine if each[0] in inodes}
"""


def run(path: Path, script: str) -> str:
    """Run a script in a process of its own, which forks; return what it printed."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_KEY")}
    env["PYTHONPATH"] = str(Path(agentmem.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + script, str(path)],
        capture_output=True,
        text=True,
        env=env,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def kept(path: Path) -> list[str]:
    with Database.open(path, schema=SCHEMA, key=KEY) as database:
        assert database.independent_check() == []
        with database.read() as connection:
            return [row[0] for row in connection.execute("SELECT b FROM t ORDER BY a")]


def test_a_child_reads_and_writes(tmp_path: Path) -> None:
    """TRAPS 6: a forked child sees what the parent wrote and writes itself; both go on."""
    path = tmp_path / "s.db"
    run(
        path,
        """
add("parent 1"); texts(); database.data_version()
def child():
    assert texts() == ["parent 1"]
    add("child 1")
    assert not database.in_write()
joined(forked(child))
assert texts() == ["parent 1", "child 1"]
add("parent 2")
""",
    )
    assert kept(path) == ["parent 1", "child 1", "parent 2"]
    assert [each.name for each in tmp_path.iterdir()] == ["s.db"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of locks in /proc/locks")
def test_a_child_holds_real_locks(tmp_path: Path) -> None:
    """A child's connections hold locks the kernel knows, the same as the parent's; inherited ones have no force."""
    run(
        tmp_path / "s.db",
        """
add("x"); texts()
mine = locks()
assert mine
def child():
    texts(); add("y")
    assert locks() == mine, (locks(), mine)
joined(forked(child))
assert locks() == mine
""",
    )


def test_a_childs_writes_outlive_the_parent(tmp_path: Path) -> None:
    """What a child acknowledged stays, though the parent closed, checkpointed and ended in between."""
    path = tmp_path / "s.db"
    run(
        path,
        """
add("parent")
closed_r, closed_w = os.pipe()
done_r, done_w = os.pipe()
def child():
    os.close(closed_w)
    add("before")
    os.write(done_w, b"1")
    assert os.read(closed_r, 1) == b""
    add("after")
pid = forked(child)
os.close(closed_r)
os.read(done_r, 1)
database.checkpoint()
database.close()
os.close(closed_w)
joined(pid)
""",
    )
    assert kept(path) == ["parent", "before", "after"]


def test_a_fork_inside_a_write_leaves_it_to_the_parent(tmp_path: Path) -> None:
    """A child forked inside the parent's open write has no part in it: it sees committed state, and waits to write."""
    path = tmp_path / "s.db"
    out = run(
        path,
        """
add("committed")
read_r, read_w = os.pipe()
def child():
    assert not database.in_write()
    assert texts() == ["committed"]
    os.write(1, b"read ")
    os.write(read_w, b"1")
    add("child")
    os.write(1, b"written")
with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES ('parent 1')")
    pid = forked(child)
    os.read(read_r, 1)
    connection.execute("INSERT INTO t (b) VALUES ('parent 2')")
joined(pid)
""",
    )
    assert out == "read written"
    assert kept(path) == ["committed", "parent 1", "parent 2", "child"]


def test_a_child_may_leave_the_parents_blocks(tmp_path: Path) -> None:
    """A child that goes on behind the blocks it was forked in ends nothing there, and works after them."""
    path = tmp_path / "s.db"
    run(
        path,
        """
add("committed")
read_r, read_w = os.pipe()
with database.read() as reader:
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('parent')")
        pid = os.fork()
        if pid == 0:
            assert texts() == ["committed"]
            os.write(read_w, b"1")
        else:
            os.read(read_r, 1)
if pid == 0:
    add("child")
    assert texts() == ["committed", "parent", "child"]
    database.close()
    os._exit(0)
joined(pid)
""",
    )
    assert kept(path) == ["committed", "parent", "child"]


def test_a_fork_waits_for_other_threads(tmp_path: Path) -> None:
    """A fork beside writing and reading threads gives the child sound connections, every time."""
    path = tmp_path / "s.db"
    out = run(
        path,
        """
stop = threading.Event()
def write(name):
    number = 0
    while not stop.is_set():
        add(f"{name}-{number}"); texts(); database.data_version()
        number += 1
threads = [threading.Thread(target=write, args=(name,)) for name in "abc"]
for thread in threads: thread.start()
for number in range(15):
    joined(forked(lambda: (texts(), add(f"child-{number}"), database.data_version())))
stop.set()
for thread in threads: thread.join()
print(len(texts()))
""",
    )
    texts = kept(path)
    assert len(texts) == int(out)
    assert [text for text in texts if text.startswith("child")] == [f"child-{number}" for number in range(15)]


def test_a_fork_inside_a_spilled_write_is_refused_in_the_child(tmp_path: Path) -> None:
    """After a fork inside a write too large for memory the child can't use the file and says so; the parent goes on."""
    path = tmp_path / "s.db"
    run(
        path,
        """
add("committed")
def child():
    again = lambda: Database.open(path, schema=SCHEMA, key=bytes(range(32)))
    for use in (texts, lambda: add("x"), database.data_version, again):
        try:
            use()
        except Conflict as error:
            assert "forked" in str(error)
        else:
            raise AssertionError("used")
    database.close()
with database.write() as connection:
    connection.execute("PRAGMA cache_size = 10").fetchall()
    connection.executemany("INSERT INTO t (b) VALUES (?)", (("x" * 2000,) for _ in range(500)))
    joined(forked(child))
    connection.executemany("INSERT INTO t (b) VALUES (?)", (("y" * 2000,) for _ in range(500)))
""",
    )
    texts = kept(path)
    assert (len(texts), texts[0]) == (1001, "committed")


def test_a_fork_beside_a_thread_that_never_lets_go(tmp_path: Path) -> None:
    """A fork that other threads' blocks outlast leaves the parent unharmed; the child refuses the file."""
    path = tmp_path / "s.db"
    run(
        path,
        """
import agentmem.engine.forks as forks
forks.FORK_WAIT_SECONDS = 0.05
add("committed")
inside, leave = threading.Barrier(3), threading.Event()
def hold(block):
    with block() as connection:
        connection.execute("SELECT * FROM t").fetchall()
        inside.wait(); leave.wait()
threads = [threading.Thread(target=hold, args=(block,)) for block in (database.write, database.read)]
for thread in threads: thread.start()
inside.wait()
def child():
    import gc
    gc.collect()
    try:
        texts()
    except Conflict:
        return
    raise AssertionError("used")
joined(forked(child))
pid = os.fork()
if pid == 0:
    sys.exit(0)
joined(pid)
leave.set()
for thread in threads: thread.join()
add("parent")
joined(forked(lambda: add("child")))
""",
    )
    assert kept(path) == ["committed", "parent", "child"]


def test_forks_of_forks(tmp_path: Path) -> None:
    """A child of a child works as its parent does."""
    path = tmp_path / "s.db"
    run(
        path,
        """
add("0")
def level(depth):
    add(str(depth))
    if depth < 4:
        joined(forked(lambda: level(depth + 1)))
    assert len(texts()) == 5
level(1)
""",
    )
    assert kept(path) == ["0", "1", "2", "3", "4"]


def test_a_closed_store_forks_silently(tmp_path: Path) -> None:
    """A fork after close, and a child that never uses the store, work without a word."""
    run(
        tmp_path / "s.db",
        """
joined(forked(lambda: None))
database.close()
joined(forked(lambda: database.close()))
pid = os.fork()
if pid == 0:
    sys.exit(0)
joined(pid)
""",
    )


def test_multiprocessing_by_fork(tmp_path: Path) -> None:
    """A pool of forked workers uses the parent's store."""
    path = tmp_path / "s.db"
    run(
        path,
        """
import multiprocessing
add("parent")
with multiprocessing.get_context("fork").Pool(4) as pool:
    pool.map(add, [str(number) for number in range(40)])
assert len(texts()) == 41
""",
    )
    assert len(kept(path)) == 41
