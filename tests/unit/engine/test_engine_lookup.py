"""Where the new key of a file goes, and how the key of each file is found among those there are."""

from __future__ import annotations

import os
import stat
import sys
import traceback
from pathlib import Path

import pytest
from engine_files import KEY, add, digests, opened, row_count, salt_of

from agentmem.engine.database import Database
from agentmem.engine.keys import KeySource, default_key_file, key_text, store_key_file
from agentmem.errors import (
    Conflict,
    InvalidInput,
    IoFailed,
    KeyChanged,
    KeyMissing,
    MissingExtra,
    WrongKey,
)

pytestmark = pytest.mark.usefixtures("keyring")

OTHER = bytes(range(100, 132))


def test_a_store_gets_a_key_file_of_its_own(found: Database, path: Path) -> None:
    """Without any argument the new key goes to a private file named by the salt, and the next opening finds it there."""
    default = default_key_file().read_bytes()
    made = found.rekey()
    assert made.former is not None
    assert (made.former.source, made.key.source) == (KeySource.DEFAULT_FILE, KeySource.STORE_FILE)
    assert made.key.path == store_key_file(salt_of(path), 1) == default_key_file().parent / "keys" / made.key.path.name
    assert made.key.path.name == salt_of(path).hex() + ".key"
    if os.name == "posix":
        assert stat.S_IMODE(made.key.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(made.key.path.parent.stat().st_mode) == 0o700
    assert default_key_file().read_bytes() == default
    found.close()
    with opened(path, key=None) as again:
        assert (again.key_source, again.key_path, row_count(again)) == (KeySource.STORE_FILE, made.key.path, 1001)
        assert not again.key_made


def test_other_stores_keep_the_default_key(found: Database, path: Path) -> None:
    """The default key file guards other stores as before, and new ones are made with it."""
    with opened(path.with_name("other.db"), key=None) as other:
        found.rekey()
        assert row_count(other) == 1
    for name in ("other.db", "third.db"):
        with opened(path.with_name(name), key=None) as other:
            assert other.key_source is KeySource.DEFAULT_FILE


def test_copies_made_before_are_opened_by_the_former_keys(found: Database, path: Path) -> None:
    """Every copy opens without a word about its key, however often the original got another one since."""
    copies = []
    for number in range(4):
        copy = path.with_name(f"copy{number}.db")
        found.snapshot_to(copy)
        copies.append((copy, found.key_path))
        assert found.rekey().changed
    assert len({key_path for _, key_path in copies}) == 4
    for copy, key_path in copies:
        assert salt_of(copy) == salt_of(path)
        with opened(copy, key=None) as database:
            assert (row_count(database), database.key_path) == (1001, key_path)


def test_no_key_file_is_ever_touched_again(found: Database) -> None:
    """Each rekey adds a key file; those before it keep their names and their bytes."""
    directory = default_key_file().parent
    known: dict[Path, bytes] = {}
    for _ in range(12):
        found.rekey()
        now = {each: each.read_bytes() for each in sorted(directory.rglob("*")) if each.is_file()}
        assert now.items() >= known.items()
        assert len(now) == (len(known) + 1 if known else 2)
        known = now
    names = {each.name.removeprefix(salt_of(found.path).hex()) for each in known}
    assert names == {"key", ".key"} | {f".{number}.key" for number in range(2, 13)}


def test_a_key_that_was_stored_and_never_used_is_passed_over(found: Database, path: Path) -> None:
    """A crash between the storing of a key and its use leaves the file opening with the former one."""
    found.close()
    unused = store_key_file(salt_of(path), 1)
    unused.parent.mkdir(mode=0o700)
    unused.write_text(key_text(OTHER) + "\n")
    unused.chmod(0o600)
    with opened(path, key=None) as database:
        assert (database.key_source, row_count(database)) == (KeySource.DEFAULT_FILE, 1001)
        made = database.rekey()
        assert made.key.path == store_key_file(salt_of(path), 2)
    assert unused.read_text() == key_text(OTHER) + "\n"


def test_an_unreadable_key_matters_only_if_no_other_fits(found: Database, path: Path) -> None:
    """A malformed key file beside the right one is passed over; where none fits, it is what the error names."""
    found.rekey()
    found.close()
    right = store_key_file(salt_of(path), 1)
    wrong = store_key_file(salt_of(path), 2)
    wrong.write_text("hex:0\n")
    wrong.chmod(0o600)
    with opened(path, key=None) as database:
        assert database.key_path == right
    right.rename(right.with_suffix(".kept"))
    before = digests(path)
    with pytest.raises(InvalidInput, match="begins hex:"):
        opened(path, key=None)
    wrong.rename(wrong.with_suffix(".kept"))
    with pytest.raises(WrongKey):
        opened(path, key=None)
    default_key_file().rename(default_key_file().with_suffix(".kept"))
    with pytest.raises(KeyMissing, match=right.name):
        opened(path, key=None)
    assert digests(path) == before


def test_a_locked_keyring_matters_only_if_no_other_key_fits(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the keyring locked, a key file that fits opens the store; where none does, the error is about the keyring."""
    with opened(path, key=None) as database:
        database.rekey()

    def locked(service: str, user: str) -> str | None:
        raise RuntimeError("locked")

    monkeypatch.setattr(sys.modules["keyring"], "get_password", locked)
    with opened(path, key=None) as database:
        assert database.key_source is KeySource.STORE_FILE
        own = database.key_path
    assert own is not None
    own.rename(own.with_suffix(".kept"))
    with pytest.raises(KeyMissing, match="keyring"):
        opened(path, key=None)
    with pytest.raises(KeyMissing, match="keyring"):
        opened(path.with_name("new.db"), key=None)


def test_a_named_key_file(database: Database, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key file that is named is made, private, and opens the store where AGENTMEM_KEY_FILE names it."""
    made = database.rekey(key_file=tmp_path / "my.key")
    assert (made.key.source, made.key.path) == (KeySource.KEY_FILE, tmp_path / "my.key")
    if os.name == "posix":
        assert stat.S_IMODE((tmp_path / "my.key").stat().st_mode) == 0o600
    database.close()
    with pytest.raises(KeyMissing):
        opened(path, key=None)
    monkeypatch.setenv("AGENTMEM_KEY_FILE", str(tmp_path / "my.key"))
    with opened(path, key=None) as again:
        assert (row_count(again), again.key_source) == (1001, KeySource.ENVIRONMENT_FILE)


def test_a_named_key_file_must_be_new(database: Database, path: Path, tmp_path: Path) -> None:
    """What is at the path of a new key file is left as it is, and so is the store."""
    (tmp_path / "my.key").write_text("mine")
    for name, error in (
        ("my.key", Conflict),
        ("no/where.key", IoFailed),
        ("dir", Conflict),
        ("dir/store.db", Conflict),
    ):
        with pytest.raises(error):
            database.rekey(key_file=tmp_path / name)
    assert (tmp_path / "my.key").read_text() == "mine"
    with opened(path) as again:
        assert row_count(again) == 1001


def test_the_keyring_holds_a_key_of_the_store(
    database: Database, path: Path, keyring: dict[tuple[str, str], str]
) -> None:
    """A key goes to the keyring under the store's salt, is found there, and one that follows leaves it there."""
    assert database.rekey(keyring=True).key.source is KeySource.KEYRING
    salt = salt_of(path).hex()
    assert list(keyring) == [("agentmem", salt)]
    copy = path.with_name("copy.db")
    database.snapshot_to(copy)
    first = dict(keyring)
    with opened(path, key=None) as second:
        assert second.key_source is KeySource.KEYRING
        assert second.rekey(keyring=True).changed
        assert list(keyring) == [("agentmem", salt), ("agentmem", salt + ".2")]
        assert keyring.items() >= first.items()
        assert second.rekey().key.source is KeySource.STORE_FILE
        assert second.rekey(keyring=True).key.source is KeySource.KEYRING
    for name, count in ((path, 1001), (copy, 1001)):
        with opened(name, key=None) as again:
            assert (again.key_source, row_count(again)) == (KeySource.KEYRING, count)


def test_the_default_entry_of_the_keyring_is_a_candidate(path: Path, keyring: dict[tuple[str, str], str]) -> None:
    """The keyring's default entry guards new stores, and still opens one whose new key was never used."""
    keyring["agentmem", "default"] = key_text(OTHER)
    with opened(path, key=None) as database:
        assert database.key_source is KeySource.KEYRING
    keyring["agentmem", salt_of(path).hex()] = key_text(KEY)
    with opened(path, key=None) as database:
        assert row_count(database) == 1
    with opened(path, key=OTHER) as database:
        assert row_count(database) == 1


def test_a_keyring_that_does_not_keep_a_key_changes_nothing(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch, keyring: dict[tuple[str, str], str]
) -> None:
    """A key that can't be read back from the keyring is never used, and is in no error."""
    told: list[str] = []

    def refuse(service: str, user: str, text: str) -> None:
        told.append(text)
        raise RuntimeError(f"cannot keep {text}")

    module = sys.modules["keyring"]
    for setter in (refuse, lambda *entry: told.append(entry[2])):
        monkeypatch.setattr(module, "set_password", setter)
        with pytest.raises(IoFailed, match="keyring") as caught:
            database.rekey(keyring=True)
        assert told[-1] not in "".join(traceback.format_exception(caught.value))
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(MissingExtra, match="keyring"):
        database.rekey(keyring=True)
    assert len(told) == 2
    with opened(path) as again:
        assert row_count(again) == 1001


def test_the_store_goes_on_with_where_its_key_is_now(found: Database, path: Path, tmp_path: Path) -> None:
    """The opening that changed the key follows the next change by another one, if that can be found without being told."""
    found.rekey(OTHER)
    with opened(path, key=OTHER) as second:
        second.rekey()
        with pytest.raises(KeyChanged):
            row_count(found)
    with opened(path, key=None) as third, opened(path, key=None) as fourth:
        third.rekey()
        assert fourth.rekey().changed
        assert row_count(third) == row_count(fourth) == 1001
        assert third.key_path == fourth.key_path == store_key_file(salt_of(path), 3)


def test_the_environment_is_not_asked_for_what_was_put_elsewhere(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With AGENTMEM_KEY set, the opening that put the key into a file goes on with that; a new one gets WrongKey."""
    monkeypatch.setenv("AGENTMEM_KEY", key_text(KEY))
    with opened(path, key=None) as database:
        database.rekey()
        add(database)
        assert database.key_source is KeySource.STORE_FILE
        with pytest.raises(WrongKey):
            opened(path, key=None)
        monkeypatch.delenv("AGENTMEM_KEY")
        with opened(path, key=None) as second:
            second.rekey()
            assert row_count(second) == 2
        monkeypatch.setenv("AGENTMEM_KEY", key_text(KEY))
        assert row_count(database) == 2
