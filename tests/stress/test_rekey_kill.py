"""Rekeys killed with SIGKILL at random moments, beside a process that writes and one that reads."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import agentmem
from agentmem import Store, WrongKey
from agentmem.engine.database import Database
from agentmem.engine.keys import default_key_file, key_file_read
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.pages import first_page
from agentmem.records.kinds import FUNCTIONS

REKEY = """
import os, sys
from agentmem import Store
store = Store.open(sys.argv[1], project="acme", busy_timeout=60)
os.write(1, b"open\\n")
sys.stdin.readline()
store.rekey()
os.write(1, b"done\\n")
sys.stdin.readline()
"""
WRITER = """
import os, sys
from agentmem import Store
store = Store.open(sys.argv[1], project="acme", busy_timeout=60)
number = 0
while True:
    number += 1
    with store.transaction():
        first = store.notes.add("fact", f"Pair {number}", similar=False)
        store.notes.add("fact", f"Pair {number}", body="x" * (number % 3000), similar=False)
    os.write(1, f"{first.id}\\n".encode())  # the acknowledgement, after the transaction
    if sys.stdin.readline() != "on\\n":
        break
store.close()
"""
READER = """
import os, sys
from agentmem import Store
store = Store.open(sys.argv[1], project="acme", busy_timeout=60)
while True:
    with store.database.read() as connection:
        found = connection.execute("SELECT count(*), count(DISTINCT title) FROM note WHERE kind = 'fact'").fetchone()
        assert found[0] == 2 * found[1], found
        events = connection.execute("SELECT count(*), max(seq) FROM event").fetchone()
        assert events[0] == events[1], events
    store.database.data_version()
    os.write(1, b"read\\n")
    if sys.stdin.readline() != "on\\n":
        break
store.close()
"""


class Child:
    def __init__(self, script: str, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(agentmem.__file__).parents[1])},
        )

    def line(self) -> bytes:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), self.process.communicate()[1].decode()
        return line

    def tell(self, text: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + b"\n")
        self.process.stdin.flush()

    def turn(self) -> bytes:
        """What it says about the turn it was told to take before, and on with the next."""
        line = self.line()
        self.tell(b"on")
        return line

    def end(self) -> None:
        self.line()
        self.tell(b"end")
        assert self.process.wait(600) == 0, self.process.communicate()[1].decode()


@pytest.fixture
def children(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Child]]:
    """Those that are killed at the end. Neither they nor the test find a key of the machine."""
    for name in list(os.environ):
        if name.startswith("AGENTMEM_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    started: list[Child] = []
    yield started
    for each in started:
        each.process.kill()
        each.process.communicate()


def killed_rekey(path: Path, children: list[Child], seconds: float) -> bool:
    """Begin a rekey in a process of its own and kill that after so long; whether it had returned."""
    child = Child(REKEY, path)
    children.append(child)
    assert child.line() == b"open\n"
    child.tell(b"")
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.process.wait(seconds)  # it does not end by itself: this is the random moment
    child.process.kill()
    out, err = child.process.communicate()
    assert err == b"", err.decode()
    return out == b"done\n"


def keys_stored() -> dict[Path, bytes]:
    """Every key there is, by its file."""
    found = {}
    for each in (default_key_file(), *default_key_file().parent.glob("keys/*.key")):
        key = key_file_read(each)
        assert isinstance(key, bytes)  # never a half-written one
        found[each] = key
    return found


def opening_keys(path: Path, keys: dict[Path, bytes]) -> list[Path]:
    """The files of the keys that open the store. Read-only: nothing is written back in between."""
    found = []
    for each, key in keys.items():
        with (
            contextlib.suppress(WrongKey),
            Database.open(path, schema=SCHEMA, functions=FUNCTIONS, key=key, read_only=True) as database,
        ):
            with database.read() as connection:
                connection.execute("SELECT count(*) FROM event").fetchall()
            found.append(each)
    return found


@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_a_killed_rekey_leaves_exactly_one_key(path: Path, children: list[Child], kills: int) -> None:
    """TRAPS 4: of all keys exactly one opens the store: the old or the new; nothing acknowledged is lost, the salt stays."""
    chance = random.Random(kills)
    with Store.open(path, project="acme") as store:
        goal = store.notes.add("goal", "Filler", similar=False)
        for number in range(300):
            store.notes.add("step", f"Filler {number}", parent=goal, body=chance.randbytes(6000).hex(), similar=False)
    salt = first_page(path)[:16]
    writer, reader = Child(WRITER, path), Child(READER, path)
    children += [writer, reader]
    acknowledged: list[int] = []
    outcome: Counter[str] = Counter()
    (current,) = opening_keys(path, keys_stored())
    longest = 0.3
    for number in range(kills):
        acknowledged.append(int(writer.turn()))
        reader.turn()
        before = keys_stored()
        returned = killed_rekey(path, children, chance.uniform(0, longest))
        # So that about half of them are cut: the machine may be slow or fast, and other tests run beside.
        longest *= 0.8 if returned else 1.1
        after = keys_stored()
        new = after.keys() - before.keys()
        assert len(new) <= 1
        (opens,) = opening_keys(path, after)
        assert opens in {current, *new}
        assert not returned or opens != current
        outcome[
            "none made" if not new else "the old" if opens == current else "the new" if not returned else "done"
        ] += 1
        current = opens
        assert first_page(path)[:16] == salt
        with Store.open(path, project="acme") as store:
            assert store.database.key_path == current
            assert store.verify(replay=number % 10 == 9, independent=number % 10 == 9).problems == ()
            with store.database.read() as connection:
                ids = {seq for (seq,) in connection.execute("SELECT id FROM note")}
            assert ids.issuperset(acknowledged)
    for child in (writer, reader):
        child.end()
    assert len(acknowledged) == kills
    sys.stdout.write(f"Which key opened it after a kill: {dict(outcome)}\n")
    assert outcome["none made"] < kills
    with Store.open(path, project="acme") as store:
        assert store.verify(replay=True, independent=True).problems == ()


def test_each_key_is_met(path: Path, children: list[Child]) -> None:
    """A rekey killed before its commit leaves the old key, one killed after it the new one."""
    with Store.open(path, project="acme") as store:
        store.notes.add("goal", "Goal", similar=False)
    (old,) = opening_keys(path, keys_stored())
    for number, (place, committed) in enumerate((("_encrypt", False), ("key_replace", True))):
        # It kills itself where that function of the engine is entered.
        child = Child(
            f"""
import os, signal, sys
from agentmem import Store
store = Store.open(sys.argv[1], project="acme")
def trace(frame, event, _):
    if frame.f_code.co_name == {place!r}:
        os.kill(os.getpid(), signal.SIGKILL)
sys.settrace(trace)
store.rekey()
""",
            path,
        )
        children.append(child)
        assert child.process.wait(600) == -9
        keys = keys_stored()
        assert len(keys) == number + 2
        (opens,) = opening_keys(path, keys)
        assert (opens != old) == committed
        with Store.open(path, project="acme") as store:
            assert store.database.key_path == opens
            assert store.verify(replay=True, independent=True)
