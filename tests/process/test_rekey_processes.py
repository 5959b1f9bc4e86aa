"""Another key for a store that other processes have open, and a rekey that the system will not let finish."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import processes
import pytest

import agentmem
from agentmem import KeyChanged, Store, WrongKey
from agentmem.engine.keys import KeySource

KEY = bytes(range(32))
OTHER = bytes(range(100, 132))
PASSPHRASE = "correct horse battery staple"
PRELUDE = """
import json, os, sys
from pathlib import Path
from agentmem import AgentMemError, Store
KEY, OTHER = bytes(range(32)), bytes(range(100, 132))
path = sys.argv[1]
def opened(**options):
    return Store.open(path, **({"project": "acme", "key": KEY, "busy_timeout": 60} | options))
def add(store, title):
    return store.notes.add("fact", title, similar=False)
def say(*words):
    print(json.dumps(words), flush=True)
def wait():
    sys.stdin.readline()
"""


class Child(processes.Child):
    """A Python process running a script; it says what it did and waits to be told to go on."""

    def __init__(self, script: str, path: Path, env: dict[str, str]) -> None:
        super().__init__(PRELUDE + script, path, env=env)


@pytest.fixture
def child(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Child]]:
    """Starts scripts. Neither they nor the test find a key of the machine."""
    for name in list(os.environ):
        if name.startswith("AGENTMEM_KEY"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    env = {**os.environ, "PYTHONPATH": str(Path(agentmem.__file__).parents[1])}
    started: list[Child] = []

    def start(script: str) -> Child:
        started.append(Child(script, path, env))
        return started[-1]

    yield start
    for each in started:
        each.process.kill()
        each.process.communicate()


def titles(store: Store) -> list[str | None]:
    return [event.payload["title"] for event in store.log.read(kinds=["note.added"], limit=500) if event.payload]


GOES_ON = """
store = opened({options})
add(store, "before")
store.database.data_version()
say("ready"); wait()
say(len(store.notes.list()))
add(store, "after"); store.database.data_version(); store.resume(); store.find("after"); store.verify(independent=True)
say(store.database.key_source.value)
wait(); store.close()
"""


@pytest.mark.parametrize(
    ("options", "source"),
    [
        ("key=lambda: (Path(path).parent / 'now').read_bytes()", "argument"),
        ("key=None", "store_file"),
    ],
    ids=["callable", "searched"],
)
def test_a_process_that_finds_the_new_key_goes_on(
    child: Callable[[str], Child], path: Path, tmp_path: Path, options: str, source: str
) -> None:
    """TRAPS 4: a process with a callable, or whose key is searched for, goes on after another one changed the key."""
    (tmp_path / "now").write_bytes(KEY)
    key = KEY if source == "argument" else None
    with Store.open(path, project="acme", key=key) as store:
        other = child(GOES_ON.format(options=options))
        assert other.said() == ["ready"]
        if source == "argument":
            (tmp_path / "now").write_bytes(OTHER)
            made = store.rekey(OTHER)
        else:
            made = store.rekey()
        assert (made.changed, made.source, made.problems) == (True, source, ())
        other.go()
        assert other.said() == [1]
        assert other.said() == [source]
        assert titles(store) == ["before", "after"]
        other.go()
        other.end()
        assert store.verify(replay=True, independent=True)


def test_a_process_with_a_fixed_key_is_told(child: Callable[[str], Child], path: Path) -> None:
    """TRAPS 4: with a key that was given once, every verb of an open store is KeyChanged, and nothing is written."""
    other = child("""
store = opened()
goal = store.notes.add("goal", "Goal")
store.find("goal"); store.database.data_version()
verbs = {
    "notes.add": lambda: add(store, "lost"), "notes.list": lambda: store.notes.list(), "resume": store.resume,
    "get": lambda: store.get(goal), "find": lambda: store.find("goal"), "left": store.left, "verify": store.verify,
    "stats": store.stats, "entities.put": lambda: store.entities.put("host", "a"), "claim": lambda: store.claim([goal]),
    "checkpoint": lambda: store.checkpoint("text"), "log.read": store.log.read, "log.head": store.log.head,
    "watch": lambda: next(store.watch(timeout=0.01), None), "rekey": lambda: store.rekey(bytes(32)),
    "transaction": lambda: store.transaction().__enter__(),
}
say("ready"); wait()
told = {}
for name, verb in verbs.items():
    try:
        verb()
        told[name] = "nothing"
    except AgentMemError as error:
        told[name] = error.code
say(told)
store.close()
""")
    assert other.said() == ["ready"]
    with Store.open(path, project="acme", key=KEY) as store:
        head = store.log.head()
        store.rekey(OTHER)
        other.go()
        (told,) = other.said()
        assert len(told) == 16
        assert set(told.values()) == {"key_changed"}, told
        other.end()
        assert store.log.head() == head
        assert store.verify(independent=True)
    with pytest.raises(WrongKey), Store.open(path, project="acme", key=KEY):
        pass


def test_a_reader_of_another_process_keeps_the_log(child: Callable[[str], Child], path: Path) -> None:
    """While another process reads, pages under the former key wait in the log, which is told; once it ends they go."""
    with Store.open(path, project="acme", key=KEY) as store:
        for number in range(200):
            store.notes.add("fact", f"Fact {number}", similar=False)
        other = child("""
store = opened()
with store.database.read() as connection:
    before = connection.execute("SELECT count(*) FROM note").get
    say("reading"); wait()
    say(before, connection.execute("SELECT count(*) FROM note WHERE title LIKE 'Fact %'").get)
say("ended"); wait()
store.close()
""")
        assert other.said() == ["reading"]
        made = store.rekey(OTHER)
        assert made.wal_pending
        assert any("write-ahead log" in notice for notice in made.notices)
        store.notes.add("fact", "Later", similar=False)
        other.go()
        assert other.said() == [200, 200]
        assert other.said() == ["ended"]
        assert store.database.checkpoint()
        assert store.database.wal_bytes() == 0
        other.go()
        other.end()
        assert store.verify(independent=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_forked_children(child: Callable[[str], Child], path: Path) -> None:
    """A child forked before a rekey goes on after it, one forked after it too, and both write."""
    other = child("""
store = opened(key=None)
add(store, "parent")
def forked(title):
    asked, ask = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(ask)
            os.read(asked, 1)
            found = len(store.notes.list()); add(store, title); store.close()
        except BaseException:
            os._exit(1)
        os._exit(0 if found else 2)
    os.close(asked)
    return pid, ask
def ended(pid, ask):
    os.write(ask, b"x")
    assert os.waitpid(pid, 0)[1] == 0
early = forked("forked before")
store.rekey()
ended(*early)
ended(*forked("forked after"))
# A rekey in a child, and the parent goes on.
pid = os.fork()
if pid == 0:
    store.rekey(); os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
add(store, "parent again")
say(bool(store.verify(independent=True)))
""")
    assert other.said() == [True]
    other.end()
    with Store.open(path, project="acme") as store:
        assert titles(store) == ["parent", "forked before", "forked after", "parent again"]
        assert store.database.key_source is KeySource.STORE_FILE


def test_two_processes_change_the_key_at_once(child: Callable[[str], Child], path: Path, tmp_path: Path) -> None:
    """Processes that rekey one store at the same time take turns: each key was made once, and the last one opens it."""
    with Store.open(path, project="acme") as store:
        store.notes.add("fact", "One", similar=False)
    script = """
store = opened(key=None)
say("ready"); wait()
for number in range(8):
    assert store.rekey().changed
    add(store, f"{os.getpid()} {number}")
say(bool(store.verify(independent=True)))
store.close()
"""
    children = [child(script) for _ in range(3)]
    for each in children:
        assert each.said() == ["ready"]
    for each in children:
        each.go()
    for each in children:
        assert each.said() == [True]
        each.end()
    directory = tmp_path / "config" / "agentmem" / "keys"
    texts = [each.read_bytes() for each in directory.iterdir()]
    assert len(set(texts)) == len(texts) == 24
    with Store.open(path, project="acme") as store:
        assert len(titles(store)) == 25
        assert store.verify(replay=True)


@pytest.mark.skipif(sys.platform == "win32", reason="it limits the size of files as POSIX systems can")
def test_a_write_that_fails_in_the_middle(child: Callable[[str], Child], path: Path) -> None:
    """A rekey that can't write to its end is rolled back: the former key goes on, and the log of SQLite shows no key."""
    other = child("""
import resource, shutil, traceback
import apsw
from agentmem.engine.keys import key_text
logged = []
apsw.config(apsw.SQLITE_CONFIG_LOG, lambda code, message: logged.append(message))
store = opened()
for number in range(100):
    store.notes.add("fact", f"Fact {number}", body=os.urandom(10_000).hex(), similar=False)
store.database.checkpoint()
with store.database.read() as connection:
    try:
        connection.execute("SELECT nothing")  # to see that the log is asked
    except apsw.SQLError:
        pass
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (store.database.file_bytes() // 2, limits[1]))
told = []
for options in ({"key": OTHER}, {"key_file": path + ".key"}):
    try:
        store.rekey(**options)
    except AgentMemError as error:
        told.append(error)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
add(store, "after")
made = Path(path + ".key").read_text().strip().removeprefix("hex:")
text = "".join(logged) + "".join("".join(traceback.format_exception(each)) for each in told)
say([each.code for each in told], [each.next for each in told])
say([secret in text for secret in (OTHER.hex(), KEY.hex(), made)], len(logged))
say(bool(store.verify(replay=True, independent=True)), store.rekey(OTHER).changed)
store.close()
""")
    codes, following = other.said()
    assert len(codes) == 2
    assert set(codes) <= {"disk_full", "io_failed"}
    assert "is not in use" in following[1]
    shown, logged = other.said()
    assert shown == [False, False, False]
    assert logged > 0
    assert other.said() == [True, True]
    other.end()
    with Store.open(path, project="acme", key=OTHER) as store:
        assert len(titles(store)) == 101
        assert store.verify(replay=True, independent=True)


def test_a_commit_that_a_power_cut_tore(child: Callable[[str], Child], path: Path) -> None:
    """A rekey whose pages are not all in the log, though its commit is, never was: the former key is found and opens it."""
    other = child("""
store = opened(key=None)
for number in range(50):
    add(store, f"Fact {number}")
store.database.checkpoint()
with opened(key=None).database.read() as connection:
    connection.execute("SELECT count(*) FROM event").fetchall()
    assert store.rekey().wal_pending
    os._exit(0)  # nothing is written back
""")
    other.end()
    log = path.with_name(path.name + "-wal")
    torn = bytearray(log.read_bytes())
    with Store.open(path, project="acme", read_only=True) as store:
        assert store.database.key_source is KeySource.STORE_FILE
    torn[len(torn) // 2] ^= 1
    log.write_bytes(torn)
    path.with_name(path.name + "-shm").unlink()
    with Store.open(path, project="acme") as store:
        assert store.database.key_source is KeySource.DEFAULT_FILE
        assert len(titles(store)) == 50
        assert store.rekey().changed
        assert store.verify(replay=True, independent=True)


FULL = """
import subprocess
place = sys.argv[1] + ".small"
os.mkdir(place)
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", place], stderr=subprocess.DEVNULL).returncode:
    say("no mount"); sys.exit()
path = place + "/work.db"
store = opened()
for number in range(100):
    store.notes.add("fact", f"Fact {number}", body=os.urandom(10_000).hex(), similar=False)
store.database.checkpoint()
size = store.database.file_bytes()
filler = Path(place, "filler")
with open(filler, "wb") as file:
    stat = os.statvfs(place)
    os.posix_fallocate(file.fileno(), 0, stat.f_bavail * stat.f_frsize - size // 2)
try:
    store.rekey()
except AgentMemError as error:
    say(error.code, store.database.wal_bytes(), Path(os.environ["XDG_CONFIG_HOME"], "agentmem", "keys").exists())
os.unlink(filler)
say(store.rekey().changed, bool(store.verify(independent=True)))
store.close()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it mounts a small file system in a namespace of its own")
def test_a_disk_too_full(path: Path, child: Callable[[str], Child]) -> None:
    """TRAPS 4: on a disk with less room than the file's size nothing is begun, no key is made; with room it goes on."""
    script = "import os, sys\nos.execvp('unshare', ['unshare', '-rm', sys.executable, '-c', sys.argv[2], sys.argv[1]])"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), PRELUDE + FULL],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(agentmem.__file__).parents[1])},
        check=False,
    )
    if "unshare" in done.stderr or "no mount" in done.stdout:
        pytest.skip("this system lets no user mount a file system")
    assert done.returncode == 0, done.stderr
    assert [json.loads(line) for line in done.stdout.splitlines()] == [["disk_full", 0, False], [True, True]]


def test_a_store_changes_its_key_and_says_what_to_know(
    child: Callable[[str], Child], path: Path, tmp_path: Path
) -> None:
    """The answer says where the key is, that it is all there is, and that the former one opens what was copied before."""
    with Store.open(path, project="acme") as store:
        store.notes.add("fact", "One", similar=False)
        made = store.rekey()
        assert made.path is not None
        assert (made.to_dict()["path"], made.source) == (str(made.path), "store_file")
        where, former = made.notices
        assert str(made.path) in where
        assert "loses all" in where
        assert str(tmp_path / "config" / "agentmem" / "key") in former
        assert "backups" in former
        named = store.rekey(key_file=tmp_path / "my.key")
        assert "AGENTMEM_KEY_FILE" in named.notices[-1]
        os.environ["AGENTMEM_KEY"] = PASSPHRASE
        try:
            given = store.rekey(PASSPHRASE)
        finally:
            del os.environ["AGENTMEM_KEY"]
        assert "AGENTMEM_KEY is set" in given.notices[-1]
        again = store.rekey(PASSPHRASE)
        assert (again.changed, len(again.notices)) == (False, 1)
        assert store.verify(replay=True, independent=True)
        text = repr((made, named, given, again)) + str([each.to_dict() for each in (made, named, given, again)])
        for file in (made.path, tmp_path / "my.key"):
            assert file.read_text().strip().removeprefix("hex:") not in text
        assert PASSPHRASE not in text


def test_two_stores_in_one_process(path: Path) -> None:
    """A second opening in the same process is told as another process would be, and the first goes on."""
    with Store.open(path, project="acme", key=KEY) as store, Store.open(path, project="acme", key=KEY) as second:
        store.notes.add("fact", "One", similar=False)
        assert titles(second) == ["One"]
        store.rekey(OTHER)
        with pytest.raises(KeyChanged):
            second.notes.add("fact", "Lost", similar=False)
        with pytest.raises(KeyChanged):
            second.resume()
        store.notes.add("fact", "Two", similar=False)
        assert titles(store) == ["One", "Two"]
    with Store.open(path, project="acme", key=OTHER) as store:
        assert titles(store) == ["One", "Two"]
        assert store.verify(replay=True, independent=True)
