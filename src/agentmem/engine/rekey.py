"""Another key for an open file, such that a kill at any moment leaves it opening with exactly one of the two.

SQLite's own transaction does it: `PRAGMA rekey` writes every page anew into the write-ahead log, and the commit frame is
the one moment at which the old key ends and the new one begins. The journal mode is never changed: with a rollback
journal a killed rekey can leave a file that neither key opens. The salt stays, because the file's first 16 bytes are
written only by a later checkpoint. The new key is durable before the first page is written, and no key is ever removed.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import apsw
import attrs

from agentmem.engine.connection import Connection, close_quietly, connect
from agentmem.engine.faults import translated
from agentmem.engine.files import io_failed
from agentmem.engine.keys import (
    Key,
    KeySource,
    RawKey,
    ResolvedKey,
    given_key,
    key_directory_make,
    key_file_read,
    key_file_write,
    key_text,
    new_key,
    store_key_file,
    store_key_files,
    stretch,
)
from agentmem.engine.lookup import KEYRING_SERVICE, KeyFinder, keyring_module, keyring_text, keyring_user
from agentmem.engine.pages import PAGE_BYTES
from agentmem.engine.pool import Pool
from agentmem.engine.sessions import Turn
from agentmem.engine.transactions import ReadBlock, opened_for_reading
from agentmem.errors import AgentMemError, Conflict, DiskFull, InvalidInput, IoFailed, MissingExtra

__all__ = ["NewKey", "rekey"]

_FRAME_BYTES: Final = PAGE_BYTES + 24
_SPARE_BYTES: Final = 1024 * 1024  # for the index of the WAL, and for a key file
_EMPTYING_SECONDS: Final = 1.0


@attrs.frozen
class NewKey:
    """What a rekey did.

    Attributes:
        key: The key the file has now, and where it is.
        former: The key it had before.
        changed: Whether it is another one.
        wal_pending: Pages under the former key are still in the WAL, since a reader needs them or a writer was in the way.
    """

    key: ResolvedKey
    former: ResolvedKey | None
    changed: bool
    wal_pending: bool


def rekey(pool: Pool, *, key: Key | None, key_file: Path | None, keyring: bool) -> NewKey:
    """Give the file another key; see `Database.rekey`."""
    salt = _allowed(pool, sum((key is not None, key_file is not None, keyring)))
    path = pool.opening.path
    if key is not None:
        # Asked and stretched before anybody waits for the lock.
        material = given_key(key)
        if stretch(material, salt) != pool.opening.key:
            _room_check(pool)
        found, finder = ResolvedKey(material, KeySource.ARGUMENT), KeyFinder(path, key)
    elif key_file is not None:
        _room_check(pool)
        found, finder = _to_file(key_file), KeyFinder(path, key_file=key_file)
    else:
        _room_check(pool)
        found = _to_keyring(salt) if keyring else _to_store_file(salt)
        finder = KeyFinder(path, environment=False)
    try:
        former, changed = _replace(pool, salt, found, finder)
    except AgentMemError as error:
        if key is None:
            place = "the keyring" if found.path is None else str(found.path)
            kept = f"The new key in {place} is not in use; keep it until the store has opened again."
            error.next = f"{error.next.rstrip('.')}. {kept}" if error.next else kept
        raise
    # What waits there even if nothing changed: a rekey repeated after one with the WAL pending empties it.
    pending = not pool.checkpoint(min(_EMPTYING_SECONDS, pool.opening.busy_timeout))
    return NewKey(found, former, changed, pending)


def _allowed(pool: Pool, places: int) -> bytes:
    """The salt of the file, where it may be rekeyed here and now."""
    opening = pool.opening
    if places > 1:
        raise InvalidInput("key, key_file and keyring exclude each other", next="Give one of them, or none.")
    if opening.key is None:
        raise InvalidInput(
            f"{opening.path} is a plain store and has no key", next="Import what it holds into an encrypted one."
        )
    if opening.read_only:
        raise opened_for_reading(opening.path)
    reading = pool.local.session
    if pool.inside() is not None or (reading is not None and reading.box and reading.alive()):
        raise Conflict("A file cannot get another key inside a transaction", next="Do it after the block.")
    return opening.key.salt


def _room_check(pool: Pool) -> None:
    """Refuse where the disk can't take every page a second time.

    Raises:
        DiskFull: Nothing was changed.
    """
    path = pool.opening.path
    pool.checkpoint(0.0)  # its room is free then, if nobody needs what is in it
    with ReadBlock(pool, pool) as connection:
        count = connection.execute("PRAGMA page_count").get
    assert isinstance(count, int)  # it has no other form
    wanted = count * _FRAME_BYTES + _SPARE_BYTES
    try:
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise io_failed(f"The free space beside {path} cannot be asked for", error) from error
    if free < wanted:
        raise DiskFull(
            f"Another key for {path} needs {wanted:,} bytes of free disk, and {free:,} are free",
            why="Every page is written a second time before the first one is replaced",
            next="Make room on the disk; nothing was changed.",
        )


def _replace(pool: Pool, salt: bytes, found: ResolvedKey, finder: KeyFinder) -> tuple[ResolvedKey | None, bool]:
    """Encrypt the file anew under the write lock; the key it had, and whether that was another one."""
    with Turn(pool, pool.opening.busy_timeout):
        # On a new connection: no hook or trace that a caller put on the writer sees the key.
        writer, pool.writer = pool.writer, None
        if writer is not None:
            close_quietly(writer)
        connection = pool.write_begin()
        former, opening = pool.found, pool.opening
        assert opening.key is not None  # `_allowed` saw to it
        if opening.key.salt != salt:
            raise Conflict(f"{opening.path} was given another salt meanwhile", next="Try again.")
        raw = stretch(found.material, salt)
        if raw.key == opening.key.key:
            return former, False
        # An interrupt may come between the commit and what follows it: then a page that does not decrypt leads to a
        # new search, which tries both. The last finder is the one whose key has just been proven.
        pool.finders = (finder, pool.finders[-1])
        _encrypt(connection, raw, opening.path)
        fresh = attrs.evolve(opening, key=raw)
        close_quietly(connect(fresh, "watcher"))
        pool.finders = (finder,)
        pool.key_replace(fresh, found)
    return former, True


def _encrypt(connection: Connection, raw: RawKey, path: Path) -> None:
    """Write every page anew with the new key and commit.

    Raises:
        DiskFull, IoFailed, Corrupt: All was rolled back; only after a failed sync is that not certain.
    """
    try:
        # Neither cached nor logged: SQLite would write the text of a statement that fails into the error log.
        connection.execute(
            f'PRAGMA rekey = "{raw.pragma_value()}"', can_cache=False, prepare_flags=apsw.SQLITE_PREPARE_DONT_LOG
        ).fetchall()
        # The pragma has committed the pages itself; this ends the transaction for the connection too.
        connection.execute("COMMIT")
    except apsw.Error as error:
        typed = translated(error, path)
        if typed is None:
            typed = IoFailed(f"{path} could not be encrypted anew", why=f"SQLite says: {error}")
        # `from None`: the traceback of the cause holds the text of the key pragma.
        raise typed from None


# Where a new key goes


def _to_file(path: Path) -> ResolvedKey:
    key = new_key()
    try:
        made = key_file_write(path, key)
    except OSError as error:
        raise io_failed(f"The key file {path} could not be made", error) from error
    if not made:
        raise Conflict(f"There is already something at {path}", next="Name a key file that is not there yet.")
    return _read_back(path, key, KeySource.KEY_FILE)


def _to_store_file(salt: bytes) -> ResolvedKey:
    key = new_key()
    try:
        key_directory_make(store_key_file(salt, 1).parent)
        # The former ones stay under their names: they open the copies made before, and whoever noted a path is right.
        number = max((number for number, _ in store_key_files(salt)), default=0) + 1
        while not key_file_write(store_key_file(salt, number), key):
            number += 1
    except OSError as error:
        raise io_failed(f"No key file could be made in {store_key_file(salt, 1).parent}", error) from error
    return _read_back(store_key_file(salt, number), key, KeySource.STORE_FILE)


def _read_back(path: Path, key: bytes, source: KeySource) -> ResolvedKey:
    if key_file_read(path) != key:
        raise IoFailed(f"The key file {path} does not hold what was written to it", next="The key was not changed.")
    return ResolvedKey(key, source, path)


def _to_keyring(salt: bytes) -> ResolvedKey:
    module = keyring_module()
    if module is None:
        raise MissingExtra("The package keyring is not installed", next="Install agentmem[keyring].")
    key = new_key()
    number = 1
    while keyring_text(user := keyring_user(salt, number)) is not None:
        number += 1
    try:
        module.set_password(KEYRING_SERVICE, user, key_text(key))
    except Exception as error:  # noqa: BLE001  # each backend has its own
        # `from None`: such an exception may hold what the backend was given.
        raise IoFailed("The keyring did not take the new key", why=type(error).__name__) from None
    if keyring_text(user) != key_text(key):
        raise IoFailed("The keyring does not hold what was written to it", next="The key was not changed.")
    return ResolvedKey(key, KeySource.KEYRING)
