"""The vault in a file of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
import traceback
from pathlib import Path

import pytest

from agentmem import Store
from agentmem.engine.database import Database
from agentmem.errors import (
    Closed,
    Conflict,
    InvalidInput,
    KeyMissing,
    NotAStore,
    NotFound,
    ReadOnly,
    StoreMissing,
    WrongKey,
)
from agentmem.harness.file_vault import _SCHEMA, FileVault
from agentmem.harness.vault import GrantRequest

sys.path.insert(0, str(Path(__file__).parents[1] / "past"))

from decrypted import image

SECRET = "sk_live_51H8xWq+/=zz"
KEY = b"v" * 32


def ask(credential: str) -> GrantRequest:
    return GrantRequest(credential, "tool", 1, {}, 300)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "secrets.vault"


def traces(path: Path, scratch: Path) -> bytes:
    """What the file and its write-ahead log hold, decrypted, with every unused part of a page; also while it is open."""
    copy = scratch / "copied.vault"
    # By another process: to close a file in this one would drop the locks that SQLite has on it.
    script = "import shutil, sys; shutil.copy(sys.argv[1], sys.argv[2]); shutil.copy(sys.argv[1] + '-wal', sys.argv[2] + '-wal')"
    subprocess.run([sys.executable, "-c", script, str(path), str(copy)], check=True)
    found = image(copy, KEY)
    assert b"CREATE TABLE credential" in found  # else it was not decrypted
    return found


def test_it_keeps_credentials(path: Path) -> None:
    """Add, replace, list with notes, give, remove; also after it was closed and opened again."""
    with FileVault.open(path, key=KEY) as vault:
        assert vault.ids() == []
        vault.add("prod-stripe", "the former value")
        vault.add("prod-stripe", SECRET, note="of the shop")
        vault.add("ci", "line one\nline two\n")
    with FileVault.open(path, key=KEY, create=False) as vault:
        assert vault.ids() == ["ci", "prod-stripe"]
        assert vault.notes() == {"ci": None, "prod-stripe": "of the shop"}
        found = vault.secret(ask("prod-stripe"))
        assert (found.value, found.expires_at) == (SECRET, None)
        assert vault.secret(ask("ci")).value == "line one\nline two\n"
        vault.remove("ci")
        assert vault.ids() == ["prod-stripe"]
        for call in (lambda: vault.secret(ask("ci")), lambda: vault.remove("ci")):
            with pytest.raises(NotFound):
                call()
        with pytest.raises(NotFound, match="Did you mean prod-stripe"):
            vault.secret(ask("prod-strip"))
    with pytest.raises(Closed):
        vault.ids()


def test_the_file_is_encrypted(path: Path) -> None:
    """Nothing of id, note or value stands in it or beside it, also while it is open."""
    with FileVault.open(path, key=KEY) as vault:
        vault.add("prod-stripe", SECRET, note="of the shop")
        for each in path.parent.iterdir():
            data = each.read_bytes()
            assert not any(part in data for part in (b"prod-stripe", SECRET.encode(), b"of the shop", b"SQLite format"))


def test_only_its_key_opens_it(path: Path) -> None:
    """Another is refused, and none is, without a byte changed."""
    FileVault.open(path, key=KEY).close()
    before = path.read_bytes()
    for key in (b"w" * 32, "a passphrase"):
        with pytest.raises(WrongKey):
            FileVault.open(path, key=key)
    assert path.read_bytes() == before


def test_keys_are_found_as_those_of_stores(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """From the environment; without one an existing vault is not opened, and no key is made for it."""
    monkeypatch.setenv("AGENTMEM_KEY", "a passphrase of the vault")
    with FileVault.open(path) as vault:
        vault.add("a", SECRET)
    monkeypatch.delenv("AGENTMEM_KEY")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    with pytest.raises(KeyMissing):
        FileVault.open(path)
    with FileVault.open(path, key="a passphrase of the vault") as vault:
        assert vault.secret(ask("a")).value == SECRET


def test_a_memory_and_a_vault_are_never_one_file(path: Path, tmp_path: Path) -> None:
    """Each refuses the other's file and leaves it as it is."""
    memory = tmp_path / "memory.db"
    with Store.open(memory, project="p", key=KEY) as store:
        store.notes.add("fact", "A fact")
    with FileVault.open(path, key=KEY) as vault:
        vault.add("a", SECRET)
    before = memory.read_bytes(), path.read_bytes()
    with pytest.raises(NotAStore, match="no vault"):
        FileVault.open(memory, key=KEY)
    with pytest.raises(NotAStore):
        Store.open(path, project="p", key=KEY)
    assert (memory.read_bytes(), path.read_bytes()) == before
    with FileVault.open(path, key=KEY) as vault:
        assert vault.ids() == ["a"]


def test_a_missing_one_is_made_only_if_asked(path: Path) -> None:
    """And one that is read only is never written to."""
    with pytest.raises(StoreMissing):
        FileVault.open(path, key=KEY, create=False)
    with FileVault.open(path, key=KEY) as vault:
        vault.add("a", SECRET)
    with FileVault.open(path, key=KEY, read_only=True) as vault:
        assert vault.secret(ask("a")).value == SECRET
        for call in (lambda: vault.add("b", SECRET), lambda: vault.remove("a")):
            with pytest.raises(ReadOnly):
                call()


def test_what_is_no_credential_is_refused(path: Path) -> None:
    """An id that is no label, a value that is no text, a note of two lines: nothing is written."""
    with FileVault.open(path, key=KEY) as vault:
        for credential, value, note in (
            ("a b", SECRET, None), ("", SECRET, None), ("a", "", None), ("a", " ", None), ("a", "x\0y", None),
            ("a", b"bytes", None), ("a", "x" * 70_000, None), ("a", SECRET, "two\nlines"),
        ):  # fmt: skip
            with pytest.raises(InvalidInput):
                vault.add(credential, value, note=note)  # type: ignore[arg-type]
        assert vault.ids() == []


@pytest.mark.parametrize("how", ["remove", "replace"])
def test_a_value_that_went_is_overwritten(path: Path, tmp_path: Path, how: str) -> None:
    """No page of the file has a trace of it, and the write-ahead log is empty; the others are whole."""
    with FileVault.open(path, key=KEY) as vault:
        for number in range(60):
            vault.add(f"id{number}", f"{SECRET}{number:04}" * 12)
        for number in range(0, 60, 2):
            if how == "remove":
                vault.remove(f"id{number}")
            else:
                vault.add(f"id{number}", "short, but a value")
        assert len(vault.ids()) == (30 if how == "remove" else 60)
        assert vault.secret(ask("id1")).value == f"{SECRET}0001" * 12
        left = traces(path, tmp_path)
    for number in range(60):
        assert (f"{SECRET}{number:04}".encode() in left) == bool(number % 2)


def test_what_a_reader_was_in_the_way_of_is_done_later(path: Path, tmp_path: Path) -> None:
    """The value is gone for all at once; its bytes go with the next opening or change."""
    with FileVault.open(path, key=KEY) as vault, Database.open(path, schema=_SCHEMA, key=KEY) as other:
        vault.add("a", SECRET)
        with other.read() as connection:
            connection.execute("SELECT * FROM credential").fetchall()
            vault.remove("a")
            assert vault.ids() == []
            assert SECRET.encode() in traces(path, tmp_path)
        with FileVault.open(path, key=KEY):
            assert SECRET.encode() not in traces(path, tmp_path)


def test_an_error_of_the_database_shows_no_value(path: Path) -> None:
    """What SQLite was given stands in the frames of its errors: they are not passed on."""
    with FileVault.open(path, key=KEY) as vault:
        with vault._database.write() as connection:
            connection.execute("DROP TABLE credential").fetchall()
            connection.execute("CREATE TABLE credential (id, note, changed_at, value CHECK (value = ''))").fetchall()
        with pytest.raises(OSError) as caught:
            vault.add("a", SECRET)
    walked = traceback.walk_tb(caught.value.__traceback__)
    frames = traceback.StackSummary.extract(walked, capture_locals=True)
    assert not any(SECRET in str(frame.locals) for frame in frames if frame.filename != __file__)
    assert caught.value.__context__ is None
    assert SECRET not in f"{caught.value} {caught.value!r}"


def test_threads_share_one(path: Path) -> None:
    """Each finds what each added."""
    with FileVault.open(path, key=KEY) as vault:

        def work(name: int) -> None:
            for number in range(5):
                vault.add(f"{name}-{number}", SECRET)
                assert vault.secret(ask(f"{name}-{number}")).value == SECRET

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(vault.ids()) == 20


WRITER = f"""
import sys
from agentmem.harness.file_vault import FileVault
vault = FileVault.open(sys.argv[1], key={KEY!r})
for number in range(int(sys.argv[3])):
    name = f"{{sys.argv[2]}}-{{number}}"
    vault.add(name, "value of " + name)
    if number % 3 == 2:
        vault.remove(f"{{sys.argv[2]}}-{{number - 1}}")
    print(number, flush=True)
print("done", flush=True)
sys.stdin.read()
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_two_processes_share_one(path: Path) -> None:
    """What one adds, the other and we find; also the very first ones, which made the file at the same time."""
    with writer(path, "a", 12) as one, writer(path, "b", 12) as two:
        for each in (one, two):
            each.communicate("")
    with FileVault.open(path, key=KEY) as vault:
        expected = {f"{name}-{number}" for name in "ab" for number in range(12) if number % 3 != 1}
        assert set(vault.ids()) == expected
        assert vault.secret(ask("b-11")).value == "value of b-11"


@pytest.mark.parametrize("after", [0, 1, 4, 7])
def test_a_writer_that_is_killed_loses_nothing(path: Path, after: int) -> None:
    """What was acknowledged is there, what was not is there whole or not at all, and the vault opens."""
    with writer(path, "a", 100_000) as child:
        assert child.stdout is not None
        for _ in range(after + 1):
            child.stdout.readline()
        child.kill()
    with FileVault.open(path, key=KEY) as vault:
        found = vault.ids()
        for number in range(after + 1):
            if number % 3 != 1:
                assert f"a-{number}" in found
        assert all(vault.secret(ask(name)).value == f"value of {name}" for name in found)
        vault.add("later", SECRET)
        with vault._database.read() as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_it_describes_itself_without_a_value(path: Path) -> None:
    """By its path."""
    with FileVault.open(path, key=KEY) as vault:
        vault.add("a", SECRET)
        assert path.name in repr(vault)
        assert SECRET not in f"{vault!r} {vars(vault)}"
        with pytest.raises((TypeError, Conflict)):
            __import__("pickle").dumps(vault)
