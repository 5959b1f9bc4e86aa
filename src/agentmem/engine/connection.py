"""One connection to the encrypted file: the cipher, the proof of the key, and the pragmas."""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, cast

import apsw
from attrs import field, frozen

from agentmem.engine.faults import moved, newer_file, not_ours, translated, wrong_key
from agentmem.engine.files import Identity, beside, same_file, size_of
from agentmem.engine.keys import RawKey
from agentmem.engine.pages import APPLICATION_ID
from agentmem.errors import CipherMissing, ReadOnly

__all__ = [
    "SPILL",
    "Connection",
    "Opening",
    "Role",
    "SqlFunction",
    "cipher_check",
    "cipher_set",
    "close_quietly",
    "connect",
    "connection_bare",
    "number_of",
    "pragmas_set",
]

_CACHE_KIB: Final = {"writer": 16 * 1024, "reader": 32 * 1024, "watcher": 256}
_HAS_MOVED: Final = apsw.SQLITE_FCNTL_HAS_MOVED
_WAL_KEPT_BYTES: Final = 16 * 1024 * 1024

SPILL: Final = apsw.SQLITE_DBSTATUS_CACHE_SPILL
"""For `Connection.status`: how often a page was written to the WAL before its transaction committed, since a reset."""

Role = Literal["writer", "reader", "watcher"]


@frozen
class SqlFunction:
    """A Python function that SQL may call, registered on every connection as deterministic and innocuous.

    Innocuous, because triggers call it and the schema is not trusted; so it must have no side effect.

    Attributes:
        name: The name in SQL.
        call: Takes SQL values, returns one.
        args: The number of arguments, -1 for any.
    """

    name: str
    call: Callable[..., Any]
    args: int


@frozen
class Opening:
    """All that is needed to open one more connection to the same file.

    Attributes:
        path: The file, absolute and without symbolic links.
        key: The raw key, None for a plain file.
        read_only: Take no write lock.
        immutable: Believe that nobody writes: no locks, no WAL.
        durability: `full` syncs each commit.
        busy_timeout: In seconds.
        functions: Registered on every connection.
        version: The number of the last migration this program knows.
        identities: Which files were opened first, the database, its WAL and the index of that; None before.
    """

    path: Path
    key: RawKey | None = field(repr=False)
    read_only: bool
    immutable: bool
    durability: Literal["full", "normal"]
    busy_timeout: float
    functions: tuple[SqlFunction, ...]
    version: int
    identities: tuple[Identity | None, Identity | None, Identity | None] = (None, None, None)


class Connection(apsw.Connection):
    """A connection that knows how it was opened, so that one with a replaced key is told from the others."""

    opening: Opening | None = None
    era: object = None  # see `Pool.era`
    syncs: bool = False  # each commit, where the file was opened to sync none
    _moved: array[int] | None = None
    _moved_at: int = 0

    def has_moved(self) -> bool:
        """Whether the path leads to another file than this connection has open, or to none. Asks SQLite: 1.4 µs."""
        if self._moved is None:
            told = array("i", [0])
            # In this order: an interrupt in between must not leave SQLite a null pointer to write to.
            self._moved_at = told.buffer_info()[0]
            self._moved = told
        # Where the system can't tell (Windows, where an open file can't be moved away) the answer stays 0.
        self.file_control("main", _HAS_MOVED, self._moved_at)
        return self._moved[0] != 0


def cipher_check() -> None:
    """Refuse an `apsw` without SQLite3 Multiple Ciphers, which would write plain files.

    Raises:
        CipherMissing: Plain `apsw` is installed over the package `apsw-sqlite3mc`.
    """
    if not hasattr(apsw, "mc_version"):
        raise CipherMissing(
            "The module apsw has no encryption in it",
            why="The package apsw is installed beside apsw-sqlite3mc, both offer a module apsw, and the plain one won",
            next="Uninstall both, then install apsw-sqlite3mc alone.",
        )


def connect(opening: Opening, role: Role) -> Connection:
    """Open a connection, prove that header and key agree, and set its pragmas. Only then may SQL run on it.

    Args:
        opening: What to open and how.
        role: Sets the share of the cache, and whether it may write.

    Raises:
        AgentMemError: See `translated`; `WrongKey` where the schema does not decrypt.
        StoreMissing, StoreReplaced: The path no longer leads to the file that was opened first.
    """
    if opening.identities[0] is not None and not same_file(opening.path, opening.identities[0]):
        raise moved(opening.path)
    try:
        connection = _connected(opening, role)
        connection.opening = opening
    except apsw.NotADBError:
        # `from None`: the traceback of the cause holds the text of the key pragma.
        raise wrong_key(opening.path) from None
    except apsw.Error as error:
        typed = translated(error, opening.path)
        if typed is None:
            raise
        raise typed from None
    return connection


def _connected(opening: Opening, role: Role) -> Connection:
    writes = role == "writer" and not opening.read_only
    flags = apsw.SQLITE_OPEN_READWRITE if not opening.read_only else apsw.SQLITE_OPEN_READONLY
    name = str(opening.path)
    if opening.immutable:
        # The only use of a URI, and no key is ever part of one.
        flags |= apsw.SQLITE_OPEN_URI
        name = opening.path.as_uri() + "?immutable=1"
    connection = connection_bare(name, flags)
    proven = False
    try:
        # Until the key is proven: a close with a wrong key could otherwise write the WAL back and remove it.
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.set_busy_timeout(round(opening.busy_timeout * 1000))
        if opening.key is not None:
            cipher_set(connection, opening.key)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        proven = True
        if opening.identities[0] is not None and not same_file(opening.path, opening.identities[0]):
            proven = False  # so that the close below leaves the other file's WAL alone
            raise moved(opening.path)
        if connection.execute("PRAGMA application_id").fetchall() != [(APPLICATION_ID,)]:
            raise not_ours(opening.path)
        found = number_of(connection, "PRAGMA user_version")
        if found > opening.version:
            raise newer_file(opening.path, found, opening.version)
        if writes and connection.readonly("main"):
            raise ReadOnly(
                f"{opening.path} cannot be written to by this user",
                next="Open it with read_only=True, or mend its mode.",
            )
        pragmas_set(connection, opening, role, writes=writes)
    except BaseException:
        if proven and not size_of(beside(opening.path, "-wal")):
            # There is nothing to write back, and a usual close takes the empty -wal and -shm away.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.close()
        raise
    return connection


def connection_bare(name: str, flags: int) -> Connection:
    """A connection that no hook of the application has run SQL on.

    `apsw.connection_hooks` run as it is made, before there is a key; without one, SQL on an encrypted file with a WAL
    can end in the loss of the WAL.
    """
    if not apsw.connection_hooks:
        # Without the lock: an interrupt on the way out of its block could leave it held, for all other threads.
        return Connection(name, flags=flags)
    with _hooks_lock:
        hooks = apsw.connection_hooks
        apsw.connection_hooks = []
        try:
            return Connection(name, flags=flags)
        finally:
            apsw.connection_hooks = hooks


_hooks_lock = threading.RLock()


def cipher_set(connection: apsw.Connection, raw: RawKey) -> None:
    """Choose SQLCipher 4 and give the raw key. Reads nothing but the salt, proves nothing yet."""
    connection.execute("PRAGMA cipher = 'sqlcipher'").fetchall()
    connection.execute("PRAGMA legacy = 4").fetchall()
    # Not cached, so that the statement does not keep the key in memory; not written into SQLite's error log if it fails.
    connection.execute(
        f'PRAGMA key = "{raw.pragma_value()}"', can_cache=False, prepare_flags=apsw.SQLITE_PREPARE_DONT_LOG
    ).fetchall()


def pragmas_set(connection: apsw.Connection, opening: Opening, role: Role, *, writes: bool) -> None:
    """Everything the engine promises of a connection, whatever the defaults of the build."""

    def run(sql: str) -> list[Any]:
        return connection.execute(sql).fetchall()

    if writes and run("PRAGMA journal_mode") != [("wal",)]:
        run("PRAGMA journal_mode = WAL")
    run(f"PRAGMA synchronous = {'FULL' if opening.durability == 'full' else 'NORMAL'}")
    run("PRAGMA secure_delete = ON")
    run("PRAGMA trusted_schema = OFF")
    run("PRAGMA temp_store = MEMORY")
    run("PRAGMA mmap_size = 0")
    run(f"PRAGMA cache_size = -{_CACHE_KIB[role]}")
    run("PRAGMA foreign_keys = OFF")
    # On in some builds only; off, a REPLACE would delete a row without firing the triggers that keep the index.
    run("PRAGMA recursive_triggers = ON")
    run(f"PRAGMA journal_size_limit = {_WAL_KEPT_BYTES}")
    if sys.platform == "darwin":
        run("PRAGMA fullfsync = ON")
        run("PRAGMA checkpoint_fullfsync = ON")
    # A mistyped column name is an error, not a string.
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DML, 0)
    connection.config(apsw.SQLITE_DBCONFIG_DQS_DDL, 0)
    for function in opening.functions:
        connection.create_scalar_function(
            function.name, function.call, function.args, deterministic=True, flags=apsw.SQLITE_INNOCUOUS
        )
    if not opening.read_only:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)


def number_of(connection: apsw.Connection, pragma: str) -> int:
    """The one integer a pragma answers with."""
    return cast("int", connection.execute(pragma).get)


def close_quietly(connection: apsw.Connection) -> None:
    """Close a connection without writing the WAL back, whatever it was in the middle of."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)
