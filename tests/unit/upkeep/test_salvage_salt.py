"""Salvage of a file whose first 16 bytes are lost, without which no key fits: a backup of the store has the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from damage import KEY, contents, filled, names

from agentmem import InvalidInput, Store, StoreMissing, WrongKey
from agentmem.engine.pages import PAGE_BYTES


@pytest.fixture
def target(path: Path) -> Path:
    """Where the new store goes."""
    return path.with_name("salvaged.db")


@pytest.mark.parametrize("own_key", [KEY, "a passphrase of some length"])
def test_the_salt_can_be_taken_from_a_backup(path: Path, target: Path, own_key: bytes | str) -> None:
    """A first page of zeros, or one without its first 16 bytes, loses nothing where a backup of the store is there."""
    filled(path, 40, key=own_key)
    with Store.open(path, project="acme", key=own_key) as store:
        backup = store.backup(path.with_name("backup.db")).path
        store.notes.add("fact", "After the backup")
        whole, head = contents(store), store.log.head()
    with path.open("r+b") as file:
        file.write(bytes(16 if own_key is KEY else PAGE_BYTES))
    with pytest.raises(WrongKey):
        Store.salvage(path, target, key=own_key)
    told = Store.doctor(path, key=own_key)
    assert [finding.code for finding in told.findings] == ["wrong_key"]
    assert "salt_from" in told.text
    assert not told.safe
    made = Store.salvage(path, target, key=own_key, salt_from=backup)
    assert (made.head, made.first_lost) == (head, None)
    assert any("first page" in notice for notice in made.notices)
    with Store.open(target, project="acme", key=own_key, create=False) as store:
        assert store.verify(replay=True, independent=True, head=head).problems == ()
        assert contents(store) == whole


def test_a_salt_of_another_file_is_refused(path: Path, target: Path) -> None:
    """Of another store: no page is authentic with it. Of a plain file, an empty one, none: there is no salt."""
    filled(path, 10)
    filled(path.with_name("other.db"), 10)
    filled(path.with_name("plain.db"), 10, key=None)
    path.with_name("short.db").write_bytes(b"short")
    before = names(path.parent)
    for name, error in (
        ("other.db", WrongKey),
        ("plain.db", InvalidInput),
        ("short.db", InvalidInput),
        ("none.db", StoreMissing),
    ):
        with pytest.raises(error):
            Store.salvage(path, target, key=KEY, salt_from=path.with_name(name))
    with pytest.raises(InvalidInput, match="no salt"):
        Store.salvage(path.with_name("plain.db"), target, salt_from=path)
    assert names(path.parent) == before
