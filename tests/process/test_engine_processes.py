"""Several processes on one file: making it, writing to it, migrating it, changing its key, and leaving it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import agentmem
from agentmem.engine.database import Database, Migration
from agentmem.errors import Busy, Corrupt, KeyChanged, NewerFile

KEY = bytes(range(32))
SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT",)),)
PRELUDE = f"""
import os, sys
from agentmem.engine.database import Database, Migration
KEY = bytes(range(32))
SCHEMA = {[(m.number, m.name, m.script) for m in SCHEMA]!r}
SCHEMA = tuple(Migration(*each) for each in SCHEMA)
path = sys.argv[1]
def say(*words):
    print(*words, flush=True)
def wait():
    sys.stdin.readline()
"""


class Child:
    """A Python process running a script; it is told to go on, and asked, line by line."""

    def __init__(self, script: str, path: Path, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + script, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self) -> str:
        """Wait for its end; return what it said since, or fail with what it complained of."""
        out, err = self.process.communicate(timeout=900)
        assert self.process.returncode == 0, err
        return out.strip()


class Children:
    def __init__(self, path: Path, env: Mapping[str, str]) -> None:
        self.path = path
        self.env = env
        self.started: list[Child] = []

    def __call__(self, script: str) -> Child:
        child = Child(script, self.path, self.env)
        self.started.append(child)
        return child


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "dir").mkdir()
    return tmp_path / "dir" / "store.db"


@pytest.fixture
def child(path: Path, tmp_path: Path) -> Iterator[Children]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_KEY")}
    env |= {"PYTHONPATH": str(Path(agentmem.__file__).parents[1]), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    env |= {"HOME": str(tmp_path)}
    children = Children(path, env)
    yield children
    for each in children.started:
        each.process.kill()
        each.process.communicate()


def opened(path: Path, **options: object) -> Database:
    options.setdefault("key", KEY)
    options.setdefault("schema", SCHEMA)
    return Database.open(path, **options)  # type: ignore[arg-type]


def count(database: Database) -> int:
    with database.read() as connection:
        found: int = connection.execute("SELECT count(*) FROM t").get  # type: ignore[assignment]
    return found


# Making one file


MAKE = """
import random
say("ready"); wait()
def made(connection):
    connection.execute("INSERT INTO t (b) VALUES ('identity')")
database = Database.open(path, schema=SCHEMA, on_create=made, busy_timeout=600, {key})
with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES (?)", (str(os.getpid()),))
say(database.key_made)
"""


def made_together(child: Children, processes: int, key: str) -> list[str]:
    """Start processes, let them go at once, return what each said."""
    children = [child(MAKE.format(key=key)) for _ in range(processes)]
    for each in children:
        assert each.line() == "ready", each.end()
    for each in children:
        each.go()
    return [each.end() for each in children]


@pytest.mark.parametrize(
    ("key", "processes"),
    [
        ("key=KEY", 50),
        ("key=None", 50),
        ("key='a passphrase'", 12),  # each of them stretches it twice
        ("encrypted=False", 12),
        pytest.param("key=KEY", 160, marks=pytest.mark.slow),
        pytest.param("key=None", 160, marks=pytest.mark.slow),
        pytest.param("key='a passphrase'", 160, marks=pytest.mark.slow),
    ],
)
def test_many_processes_make_one_file(child: Children, path: Path, tmp_path: Path, key: str, processes: int) -> None:
    """TRAPS 1: every one of many processes that make and open one new file at once succeeds, and it is made once."""
    said = made_together(child, processes, key)
    assert len(said) == processes
    assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    if key == "key=None":
        # TRAPS 2: one default key file, made by exactly one of them.
        assert said.count("True") == 1
        config = tmp_path / "config" / "agentmem"
        assert [each.name for each in config.iterdir()] == ["key"]
        argument: dict[str, object] = {"key": bytes.fromhex((config / "key").read_text().strip().removeprefix("hex:"))}
    elif key == "encrypted=False":
        argument = {"encrypted": False, "key": None}
    else:
        argument = {"key": KEY if "KEY" in key else "a passphrase"}
    with opened(path, **argument) as database:
        with database.read() as connection:
            texts = [row[0] for row in connection.execute("SELECT b FROM t ORDER BY a")]
        assert texts[0] == "identity"
        assert texts.count("identity") == 1
        assert len(texts) == processes + 1
        assert database.independent_check() == []


# Writing to one file


def test_two_processes_lose_no_write(child: Children, path: Path) -> None:
    """TRAPS 6: two processes that read and then write in one transaction keep a counter exact."""
    opened(path).close()
    script = """
database = Database.open(path, schema=SCHEMA, key=KEY, durability="normal", busy_timeout=60)
say("ready"); wait()
for _ in range(300):
    with database.write() as connection:
        seen = connection.execute("SELECT coalesce(max(a), 0) FROM t").get
        connection.execute("INSERT INTO t (a, b) VALUES (?, 'x')", (seen + 1,))
"""
    children = [child(script), child(script)]
    for each in children:
        each.line()
    for each in children:
        each.go()
    for each in children:
        each.end()
    with opened(path) as database:
        assert count(database) == 600
        assert database.independent_check() == []


def test_a_commit_elsewhere_changes_data_version(child: Children, path: Path) -> None:
    """data_version notices a commit of another process, and only a commit."""
    with opened(path) as database:
        other = child("""
database = Database.open(path, schema=SCHEMA, key=KEY)
say("ready"); wait()
with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES ('x')")
say("written"); wait()
""")
        other.line()
        before = database.data_version()
        assert database.data_version() == before
        other.go()
        assert other.line() == "written"
        assert database.data_version() != before
        other.go()
        other.end()


HOLD = """
database = Database.open(path, schema=SCHEMA, key=KEY)
with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES ('held')")
    say("held"); wait()
"""


HOLD_AFTER_COMMIT = HOLD.replace(
    "with database",
    """with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES ('kept')")
with database""",
)


def test_busy_names_the_holder(child: Children, path: Path) -> None:
    """TRAPS 3, 6: a write lock held elsewhere is Busy after the timeout, naming the pid where the system tells."""
    with opened(path, busy_timeout=0.05) as database:
        other = child(HOLD)
        assert other.line() == "held"
        with pytest.raises(Busy) as caught, database.write():
            pass
        if sys.platform == "linux":
            assert str(other.process.pid) in str(caught.value)
        assert count(database) == 0  # readers go on
        other.go()
        other.end()
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        assert count(database) == 2


def test_a_write_lock_goes_with_its_process(child: Children, path: Path) -> None:
    """A killed holder leaves neither its lock nor its transaction."""
    with opened(path) as database:
        other = child(HOLD)
        assert other.line() == "held"
        other.process.kill()
        other.process.wait()
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        assert count(database) == 1


def test_opening_a_second_time_keeps_the_write_lock(child: Children, path: Path) -> None:
    """TRAPS 3: opening, failing to open, copying and closing beside a write transaction leaves its lock in force."""
    with opened(path) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('first')")
            opened(path).close()
            with pytest.raises(Exception, match="wrong key"):
                opened(path, key="wrong")
            with pytest.raises(Exception, match="encrypted"):
                opened(path, key=None, encrypted=False)
            database.snapshot_to(path.with_name("copy.db"))
            database.independent_check()
            other = child("""
from agentmem.errors import Busy
database = Database.open(path, schema=SCHEMA, key=KEY, busy_timeout=0.05)
try:
    with database.write() as connection:
        connection.execute("INSERT INTO t (b) VALUES ('stolen')")
except Busy:
    say("busy")
""")
            assert other.end() == "busy"
            connection.execute("INSERT INTO t (b) VALUES ('second')")
        assert count(database) == 2


def test_a_store_that_is_never_closed_is_written_back(child: Children, path: Path) -> None:
    """A process that ends without close leaves one file with everything in it, and complains of nothing."""
    for keep in (
        "",
        "import builtins; builtins.kept = database\n",
        "import threading; threading.kept = [database, database.read()]\n",
    ):
        other = child(f"""
import warnings; warnings.simplefilter("error")
database = Database.open(path, schema=SCHEMA, key=KEY)
with database.write() as connection:
    connection.execute("INSERT INTO t (b) VALUES ('x')")
with database.read() as connection:
    connection.execute("SELECT * FROM t").fetchall()
database.data_version()
{keep}
""")
        _, err = other.process.communicate(timeout=60)
        assert (other.process.returncode, err) == (0, "")
        assert [each.name for each in path.parent.iterdir()] == ["store.db"]
    with opened(path) as database:
        assert count(database) == 3


def test_a_wrong_key_beside_a_crash_changes_no_byte(child: Children, path: Path) -> None:
    """TRAPS 2: with a WAL left by a killed process, a wrong key or none leaves the file and the WAL byte for byte."""
    other = child(HOLD_AFTER_COMMIT)
    assert other.line() == "held"
    other.process.kill()
    other.process.wait()

    def digests() -> dict[str, str]:
        return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in path.parent.iterdir()}

    before = digests()
    assert path.with_name("store.db-wal").stat().st_size > 0
    refused = child("""
from agentmem.errors import AgentMemError
wrong = bytes(32)
for options in ({"key": wrong}, {"key": "no"}, {"key": None}, {"encrypted": False}, {"key": wrong, "read_only": True}):
    try:
        Database.open(path, schema=SCHEMA, **options)
    except AgentMemError as error:
        say(error.code)
""")
    assert refused.end().split() == ["wrong_key", "wrong_key", "key_missing", "not_a_store", "wrong_key"]
    assert digests() == before
    with opened(path) as database:
        assert count(database) == 1


def test_a_newer_file_beside_a_crash_changes_no_byte(child: Children, path: Path) -> None:
    """A newer file with a WAL left by a killed process is refused, file and WAL byte for byte the same."""
    other = child(f"SCHEMA += (Migration(2, 'later', ('CREATE TABLE later (a INT)',)),)\n{HOLD_AFTER_COMMIT}")
    assert other.line() == "held"
    other.process.kill()
    other.process.wait()
    names = [path, path.with_name("store.db-wal")]
    before = [each.read_bytes() for each in names]
    with pytest.raises(NewerFile):
        opened(path)
    assert [each.read_bytes() for each in names] == before


def test_many_processes_migrate_once(child: Children, path: Path) -> None:
    """Processes that find the same old file at once migrate it once, and all of them open it."""
    opened(path).close()
    script = """
SCHEMA += (
    Migration(2, "second", ("ALTER TABLE t ADD COLUMN c TEXT", "INSERT INTO t (b) VALUES ('second')")),
    Migration(3, "third", ("INSERT INTO t (b) VALUES ('third')",)),
)
say("ready"); wait()
with Database.open(path, schema=SCHEMA, key=KEY, busy_timeout=600) as database, database.read() as connection:
    say(connection.execute("SELECT group_concat(b, ' ') FROM t").get)
"""
    children = [child(script) for _ in range(12)]
    for each in children:
        each.line()
    for each in children:
        each.go()
    assert {each.end() for each in children} == {"second third"}


# A new key


REKEY = """
import apsw
connection = apsw.Connection(path)
for statement in ("PRAGMA cipher = 'sqlcipher'", "PRAGMA legacy = 4", "PRAGMA key = \\"x'" + KEY.hex() + "'\\""):
    connection.execute(statement).fetchall()
# The salt stays: with another one neither key would open the file until a checkpoint.
salt = connection.execute("PRAGMA cipher_salt").get
connection.execute("PRAGMA rekey = \\"x'" + bytes(32).hex() + salt + "'\\"").fetchall()
say("rekeyed"); wait()
"""


def test_a_changed_key_is_asked_for_again(child: Children, path: Path) -> None:
    """TRAPS 4: after another process changed the key, a store with a callable goes on, on every kind of use."""
    current = [KEY]
    with opened(path, key=lambda: current[0]) as database:
        for number in range(50):
            with database.write() as connection:
                connection.execute("INSERT INTO t (b) VALUES (?)", (str(number) * 500,))
        count(database)
        database.data_version()
        other = child(REKEY)
        assert other.line() == "rekeyed"
        current[0] = bytes(32)
        assert count(database) == 50
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        database.data_version()
        assert database.independent_check() == []
        other.go()
        other.end()
        assert database.checkpoint()
    with opened(path, key=bytes(32)) as database:
        assert count(database) == 51
        assert database.independent_check() == []


def test_a_reader_from_before_a_changed_key_is_not_used_again(child: Children, path: Path) -> None:
    """A read block that was open while the key changed reads to its end, and the next one has the new key."""
    current = [KEY]
    with opened(path, key=lambda: current[0]) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        with database.read() as connection:
            other = child(REKEY)
            assert other.line() == "rekeyed"
            current[0] = bytes(32)
            with database.write() as writer:
                writer.execute("INSERT INTO t (b) VALUES ('y')")
            assert connection.execute("SELECT count(*) FROM t").get == 1
        assert count(database) == 2
        other.go()
        other.end()
        assert count(database) == 2
        assert database.independent_check() == []


def used(database: Database, use: str) -> None:
    match use:
        case "snapshot_to":
            database.snapshot_to(database.path.with_name("copy.db"))
        case "write" | "read":
            with getattr(database, use)():
                pass
        case _:
            getattr(database, use)()


@pytest.mark.parametrize("use", ["write", "read", "data_version", "snapshot_to", "checkpoint"])
def test_a_changed_key_is_key_changed(child: Children, path: Path, use: str) -> None:
    """TRAPS 4: where the new key is not to be had, every use is KeyChanged, and the file is sound under the new key."""
    with opened(path) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        count(database)
        other = child(REKEY)
        assert other.line() == "rekeyed"
        with pytest.raises(KeyChanged, match="no longer opens"):
            used(database, use)
        other.go()
        other.end()
    with opened(path, key=bytes(32)) as database:
        assert count(database) == 1
        assert database.independent_check() == []


def test_a_store_that_never_noticed_a_changed_key_does_no_harm(child: Children, path: Path) -> None:
    """TRAPS 4: a store with the old key that is the last to close writes nothing back that it can't decrypt."""
    with opened(path) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('x')")
        count(database)
        other = child(REKEY)
        assert other.line() == "rekeyed"
        other.go()
        other.end()
    with opened(path, key=bytes(32)) as database:
        assert count(database) == 1
        assert database.independent_check() == []


def test_a_damaged_page_is_not_taken_for_a_changed_key(child: Children, path: Path) -> None:
    """Where the key still fits, a page that does not decrypt is Corrupt, also for a key from a callable."""
    with opened(path) as database, database.write() as connection:
        for number in range(100):
            connection.execute("INSERT INTO t (b) VALUES (?)", (str(number) * 500,))
    data = bytearray(path.read_bytes())
    data[4096 + 3000] ^= 1
    path.write_bytes(bytes(data))
    with opened(path, key=lambda: KEY) as database, pytest.raises(Corrupt), database.read() as connection:
        connection.execute("SELECT sum(length(b)) FROM t").fetchall()
