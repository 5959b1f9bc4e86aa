"""Another key for an open file: what becomes of the file, of this process, and what is refused."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import sqlcipher3
from engine_files import KEY, add, opened, row_count, salt_of

from agentmem.engine.database import Database
from agentmem.engine.keys import KeySource, default_key_file, new_key, store_key_file, stretch
from agentmem.engine.pages import PAGE_BYTES, first_page, first_page_now, page_authentic, page_read
from agentmem.errors import (
    AgentMemError,
    Conflict,
    Corrupt,
    DiskFull,
    InvalidInput,
    IoFailed,
    KeyChanged,
    ReadOnly,
    WrongKey,
)

pytestmark = pytest.mark.usefixtures("keyring")

OTHER = bytes(range(100, 132))
PASSPHRASE = "correct horse battery staple"


# The file


@pytest.mark.parametrize("key", [OTHER, PASSPHRASE, lambda: OTHER], ids=["raw", "passphrase", "callable"])
def test_the_new_key_opens_it_and_the_former_does_not(database: Database, path: Path, key: Any) -> None:
    """After a rekey the file opens with the new key alone, with the same salt and all that was in it."""
    salt, before = salt_of(path), row_count(database)
    made = database.rekey(key)
    assert (made.changed, made.wal_pending, made.key.source) == (True, False, KeySource.ARGUMENT)
    add(database)
    assert (row_count(database), database.independent_check()) == (before + 1, [])
    database.close()
    with pytest.raises(WrongKey):
        opened(path)
    with opened(path, key=key) as again:
        assert (row_count(again), again.independent_check(), salt_of(path)) == (before + 1, [], salt)


def test_passphrase_to_raw_to_passphrase(path: Path) -> None:
    """A key of one form may follow one of the other, and the first one may come back."""
    with opened(path, key=PASSPHRASE) as database:
        add(database, 100)
        for key in (OTHER, "another passphrase", OTHER, PASSPHRASE):
            assert database.rekey(key).changed
            with opened(path, key=key) as second:
                assert row_count(second) == 101
    with opened(path, key=PASSPHRASE) as database:
        assert database.independent_check() == []


@pytest.mark.parametrize("key", [OTHER, PASSPHRASE], ids=["raw", "passphrase"])
def test_stock_sqlcipher_opens_a_copy_with_the_new_key(database: Database, path: Path, key: bytes | str) -> None:
    """TRAPS 4: stock SQLCipher opens a copy of the file with the new key and finds every page authentic."""
    database.rekey(key)
    database.close()
    copy = shutil.copy(path, path.with_name("copy.db"))
    connection = sqlcipher3.connect(str(copy))
    given = key if isinstance(key, str) else f"x'{key.hex()}'"
    connection.execute(f'PRAGMA key = "{given}"')
    assert connection.execute("PRAGMA cipher_integrity_check").fetchall() == []
    assert connection.execute("SELECT count(*) FROM t").fetchone() == (1001,)
    connection.close()


def test_nothing_is_left_under_the_former_key(database: Database, path: Path) -> None:
    """After a rekey every page of the file is under the new key, and the write-ahead log is empty."""
    with database.write() as connection:
        connection.execute("DELETE FROM t WHERE a % 3 = 0")  # free pages too
    database.rekey(OTHER)
    raw, former = stretch(OTHER, salt_of(path)), stretch(KEY, salt_of(path))
    assert database.wal_bytes() == 0
    count = database.file_bytes() // PAGE_BYTES
    assert count > 100
    for number in range(1, count + 1):
        page = page_read(path, number)
        assert page_authentic(page, number, raw)
        assert not page_authentic(page, number, former)


def test_the_journal_mode_stays(database: Database) -> None:
    """TRAPS 4: the file is in WAL mode before and after, and so is every connection."""
    database.rekey(OTHER)
    with database.write() as connection:
        assert connection.execute("PRAGMA journal_mode").get == "wal"
    with opened(database.path, key=OTHER) as again, again.read() as connection:
        assert connection.execute("PRAGMA journal_mode").get == "wal"


def test_the_same_key_again_changes_nothing(database: Database, path: Path) -> None:
    """A rekey to the key the file has says so and changes no byte."""
    database.checkpoint()
    before = page_read(path, 1)
    made = database.rekey(lambda: KEY)
    assert (made.changed, database.wal_bytes(), page_read(path, 1)) == (False, 0, before)
    with opened(path) as again:
        assert row_count(again) == 1001


def test_a_new_key_waits_in_the_log_until_a_reader_ends(database: Database, path: Path) -> None:
    """A reader of another opening keeps the log: that is told, it reads to its end, and then the log can be emptied."""
    with opened(path, busy_timeout=0.1) as second, second.read() as reading:
        assert reading.execute("SELECT count(*) FROM t").get == 1001
        made = database.rekey(OTHER)
        assert (made.changed, made.wal_pending) == (True, True)
        add(database)
        page = first_page(path)
        assert page_authentic(page, 1, stretch(KEY, page[:16]))
        assert page_authentic(first_page_now(path), 1, stretch(OTHER, page[:16]))
        with opened(path, key=OTHER) as third:
            assert row_count(third) == 1002
        assert reading.execute("SELECT count(*), sum(length(b)) FROM t").fetchone() == (1001, 1000 * 500 + 3)
    assert database.checkpoint()
    assert not database.rekey(OTHER).wal_pending
    assert page_authentic(first_page(path), 1, stretch(OTHER, page[:16]))


def test_a_damaged_page_stops_it(path: Path) -> None:
    """A page that does not decrypt is Corrupt; nothing was changed, and the former key still opens the file."""
    with opened(path) as database:
        add(database, 1000)
    data = bytearray(path.read_bytes())
    data[PAGE_BYTES * 100 + 3000] ^= 1
    path.write_bytes(data)
    with opened(path) as database:
        with pytest.raises(Corrupt):
            database.rekey(OTHER)
        add(database)
    with opened(path) as database:
        assert page_authentic(first_page(path), 1, stretch(KEY, salt_of(path)))
        with pytest.raises(WrongKey):
            opened(path, key=OTHER)


# In this process


def test_threads_read_and_write_meanwhile(database: Database) -> None:
    """While the key changes again and again, every read and write of other threads succeeds and sees whole states."""
    end, failed = threading.Event(), []
    written = [0, 0]

    def use(number: int) -> None:
        try:
            while not end.is_set():
                if number < 2:
                    add(database, 2)
                    written[number] += 2
                with database.read() as connection:
                    before = connection.execute("SELECT count(*), sum(length(b)) FROM t").fetchone()
                    assert before is not None
                    assert before[0] % 2 == 1
                    assert connection.execute("SELECT count(*), sum(length(b)) FROM t").fetchone() == before
                database.data_version()
        except BaseException as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=use, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    key = OTHER
    for _ in range(20):
        key = new_key()
        assert database.rekey(key).changed
    end.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert row_count(database) == 1001 + sum(written)
    with opened(database.path, key=key) as again:
        assert again.independent_check() == []


def test_threads_change_the_key_at_once(found: Database, path: Path) -> None:
    """Threads that rekey at the same time take turns, and the last of their keys is the one in use."""
    threads = [threading.Thread(target=lambda: [found.rekey() for _ in range(4)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(path, key=None) as again:
        assert again.key_path == found.key_path
        assert len(list(store_key_file(salt_of(path), 1).parent.iterdir())) == 16
        assert (row_count(again), row_count(found), again.independent_check()) == (1001, 1001, [])


def test_a_reader_in_a_transaction_finishes(database: Database) -> None:
    """A thread inside a read block reads its state to the end; its next block sees the newest."""
    inside, go = threading.Event(), threading.Event()
    seen: list[object] = []

    def read() -> None:
        with database.read() as connection:
            seen.append(connection.execute("SELECT count(*) FROM t").get)
            inside.set()
            go.wait(60)
            seen.append(connection.execute("SELECT count(*) FROM t WHERE length(b) = 500").get)
        seen.append(row_count(database))

    thread = threading.Thread(target=read)
    thread.start()
    assert inside.wait(60)
    assert database.rekey(OTHER).wal_pending
    add(database)
    go.set()
    thread.join()
    assert seen == [1001, 1000, 1002]
    assert database.checkpoint()


def test_the_watching_number_changes(database: Database) -> None:
    """A rekey is a commit: data_version differs after it, and then stays until the next."""
    before = database.data_version()
    database.rekey(OTHER)
    after = database.data_version()
    assert before != after == database.data_version()
    add(database)
    assert database.data_version() not in {before, after}


class Stopped(BaseException):
    """As a KeyboardInterrupt."""


def stopped_at(line: int, function: Callable[[], object], _: object = None) -> bool:
    """Run something and raise in it before the line of that number of the engine's own code; whether it got there."""
    seen = 0

    def trace(frame: FrameType, event: str, _: object) -> Any:
        nonlocal seen
        name = frame.f_code.co_filename
        if not name.endswith(
            ("engine/rekey.py", "engine/pool.py", "engine/connection.py", "engine/lookup.py", "engine/renewal.py")
        ):
            return None
        if event == "line":
            seen += 1
            if seen == line:
                raise Stopped
        return trace

    sys.settrace(trace)
    try:
        function()
    except Stopped:
        return True
    finally:
        sys.settrace(None)
    return False


@pytest.mark.parametrize("every", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_an_interrupt_anywhere_leaves_it_usable(path: Path, every: int) -> None:
    """An interrupt at any line leaves this opening going on in every thread, and new ones with exactly one of the keys."""
    current, expected = KEY, 1
    with opened(path, busy_timeout=5) as database:
        line = random.Random(every).randrange(1, every + 1)  # which lines: others with another step
        while stopped_at(line, lambda: database.rekey(candidate), candidate := new_key()):
            expected += 1
            add(database)
            database.data_version()
            assert row_count(database) == expected
            current = one_of(path, current, candidate, expected)
            line += every
        assert expected > 200 / every
        database.drop_pages()  # so that the other thread needs a connection of its own
        counts: list[int] = []
        other = threading.Thread(target=lambda: counts.append(row_count(database)), daemon=True)
        other.start()
        other.join(30)
        assert counts == [expected]
        assert database.independent_check() == []
        assert database.checkpoint()
    assert one_of(path, current, candidate, expected) == candidate


def one_of(path: Path, former: bytes, new: bytes, expected: int) -> bytes:
    """The one of two keys that opens a file with so many rows; the other is refused."""
    fits = []
    for key in (former, new):
        with contextlib.suppress(WrongKey), opened(path, key=key) as database:
            assert row_count(database) == expected
            fits.append(key)
    assert len(fits) == 1
    return fits[0]


def test_an_interrupt_leaves_a_store_that_finds_its_key(path: Path) -> None:
    """Wherever a rekey into a key file of the store was interrupted, every opening finds the key that holds."""
    with opened(path, key=None, busy_timeout=5) as database:
        for expected, line in enumerate(range(7, 400, 41), 2):
            stopped_at(line, database.rekey)
            add(database)
            with opened(path, key=None) as second:
                assert row_count(second) == row_count(database) == expected
        assert database.independent_check() == []


# What is refused


def test_where_no_rekey_may_be(database: Database, path: Path, tmp_path: Path) -> None:
    """TRAPS 4: inside a transaction, for reading or with two places it is refused, no key is made and no page written."""
    database.checkpoint()
    with database.write(), pytest.raises(Conflict, match="inside a transaction"):
        database.rekey()
    with database.read(), pytest.raises(Conflict, match="inside a transaction"):
        database.rekey(key_file=tmp_path / "k")
    with opened(path, read_only=True) as reader, pytest.raises(ReadOnly):
        reader.rekey()
    for options in (
        {"key": OTHER, "keyring": True},
        {"key": OTHER, "key_file": "k"},
        {"key_file": "k", "keyring": True},
    ):
        with pytest.raises(InvalidInput, match="exclude each other"):
            database.rekey(**options)  # type: ignore[arg-type]
    for key in (b"short", "", "x'00'"):
        with pytest.raises(InvalidInput):
            database.rekey(key)
    assert database.wal_bytes() == 0
    assert sorted(each.name for each in tmp_path.iterdir()) == ["dir"]


def test_a_plain_store_has_no_key(path: Path) -> None:
    """A plain store is refused and stays plain."""
    with opened(path, key=None, encrypted=False) as database:
        with pytest.raises(InvalidInput, match="plain"):
            database.rekey(OTHER)
        assert row_count(database) == 1


def test_a_full_disk_is_told_before_anything_is_changed(
    database: Database, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TRAPS 4: with less free than the file's size it is DiskFull, and neither a key nor a page was written."""
    database.checkpoint()
    usage = shutil.disk_usage(path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=database.file_bytes()))
    with pytest.raises(DiskFull, match="free disk"):
        database.rekey()
    assert database.wal_bytes() == 0
    assert not default_key_file().parent.exists()
    assert not database.rekey(KEY).changed
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=2 * database.file_bytes() + 2**21))
    assert database.rekey().changed


# Nothing shows a key


def test_no_key_is_shown(found: Database, path: Path) -> None:
    """No key, new or former, is in a value's repr, an error with its traceback, a trace of SQL, or a file's name."""
    shown: list[str] = []
    with found.write() as connection:
        connection.exec_trace = lambda cursor, sql, bindings: shown.append(sql) or True  # type: ignore[func-returns-value]
    with found.read() as connection:
        connection.exec_trace = lambda cursor, sql, bindings: shown.append(sql) or True  # type: ignore[func-returns-value]
    former = default_key_file().read_text().strip().removeprefix("hex:")
    made = found.rekey()
    assert made.key.path is not None
    new = made.key.path.read_text().strip().removeprefix("hex:")
    add(found)
    shown.append(repr(made))
    found.rekey(PASSPHRASE)
    with opened(path, key=PASSPHRASE) as second:
        shown.append(repr(second.rekey(OTHER)))
    with pytest.raises(KeyChanged) as caught:
        row_count(found)
    shown += traceback.format_exception(caught.value)
    shown += [str(each) for each in path.parents[1].rglob("*")]
    text = "".join(shown)
    for secret in (former, new, PASSPHRASE, OTHER.hex(), repr(OTHER)[2:30], repr(bytes.fromhex(new))[2:30]):
        assert secret not in text


def test_an_error_of_the_places_is_of_the_package(database: Database, tmp_path: Path) -> None:
    """Where the directory of key files can't be made or used, the error is ours and nothing was changed."""
    (tmp_path / "config").write_text("in the way")
    with pytest.raises(AgentMemError) as caught:
        database.rekey()
    assert isinstance(caught.value, IoFailed)
    assert row_count(database) == 1001
