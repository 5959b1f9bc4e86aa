"""One connection to the encrypted file: the cipher, the check of the key, the pragmas, and errors in our own terms.

The format is SQLCipher 4 (https://www.zetetic.net/sqlcipher/design/): pages of 4096 bytes; the first 16 bytes of the
file are the salt; each page ends with 16 bytes of IV and 64 of HMAC-SHA512 over content, IV and the page's number.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, cast

import apsw
from attrs import field, frozen

from agentmem.engine.files import lock_holders, size_of
from agentmem.engine.keys import RawKey, stretch
from agentmem.errors import (
    AgentMemError,
    Busy,
    CipherMissing,
    Corrupt,
    DiskFull,
    IoFailed,
    NewerFile,
    NotAStore,
    ReadOnly,
    WrongKey,
)

__all__ = [
    "APPLICATION_ID",
    "Opening",
    "SqlFunction",
    "cipher_check",
    "connect",
    "connection_bare",
    "encrypted_check",
    "first_page",
    "key_fits",
    "newer_file",
    "number_of",
    "page_authentic",
    "plain_check",
    "raw_key_of",
    "translated",
]

APPLICATION_ID: Final = 0x61676D65  # "agme": SQLite's own mark of whose file it is, a positive 32-bit integer
PLAIN_HEADER: Final = b"SQLite format 3\0"
PAGE_BYTES: Final = 4096

_CACHE_KIB: Final = {"writer": 32 * 1024, "reader": 8 * 1024, "watcher": 256}  # one writer and four readers: 64 MiB
_WAL_KEPT_BYTES: Final = 16 * 1024 * 1024
_WAL_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_WRITE_LOCK_BYTE: Final = 120  # WAL_WRITE_LOCK in the -shm file (https://www.sqlite.org/walformat.html)
_BASE_VFS: Final = "win32" if os.name == "nt" else "unix"  # without the cipher on top: raw bytes

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
    """

    path: Path
    key: RawKey | None = field(repr=False)
    read_only: bool
    immutable: bool
    durability: Literal["full", "normal"]
    busy_timeout: float
    functions: tuple[SqlFunction, ...]
    version: int


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


def first_page(path: Path) -> bytes:
    """The first 4096 bytes of the file as they lie on disk.

    Read through SQLite's own file layer, below the cipher: an `open()` of ours, once closed, would drop the POSIX locks
    of every connection this process has to the file.
    """
    return _raw_read(path, PAGE_BYTES, 0, apsw.SQLITE_OPEN_MAIN_DB)


def page_authentic(page: bytes, number: int, raw: RawKey) -> bool:
    """Whether the HMAC of a page is right under a key.

    Args:
        page: 4096 bytes as on disk or in a frame of the WAL.
        number: The page's number, from 1.
        raw: Key and salt.
    """
    if len(page) != PAGE_BYTES:
        return False
    mac_salt = bytes(byte ^ 0x3A for byte in raw.salt)
    mac_key = hashlib.pbkdf2_hmac("sha512", raw.key, mac_salt, 2, 32)
    begin = 16 if number == 1 else 0
    signed = page[begin : PAGE_BYTES - 64] + number.to_bytes(4, "little")
    return hmac.compare_digest(hmac.digest(mac_key, signed, "sha512"), page[PAGE_BYTES - 64 :])


def raw_key_of(path: Path, material: bytes | str) -> RawKey:
    """The raw key and salt of an existing encrypted file, checked against its first page. Changes no byte.

    Raises:
        NotAStore: The file is empty, too short, or not encrypted.
        WrongKey: The page is not authentic under the key.
    """
    seen = b""
    while True:
        page = first_page(path)
        encrypted_check(path, page)
        raw = stretch(material, page[:16])
        if key_fits(path, page, raw):
            return raw
        # A checkpoint of another process may be half done with the page: only the same bytes twice are a verdict.
        if page == seen:
            raise wrong_key(path)
        seen = page


def wrong_key(path: Path) -> WrongKey:
    """The error for a first page that does not decrypt."""
    return WrongKey(
        f"{path} could not be opened: wrong key or damaged first page",
        next="Check where the key comes from with agentmem key where; agentmem doctor tells the two causes apart.",
    )


def key_fits(path: Path, page: bytes, raw: RawKey) -> bool:
    """Whether a key is that of the file: by its first page, or by a first page that still waits in the WAL.

    The WAL counts because a new key is written there first.
    """
    if page_authentic(page, 1, raw):
        return True
    wal = path.with_name(path.name + "-wal")
    total = size_of(wal)
    if total < _WAL_HEADER_BYTES:
        return False
    header = _raw_read(wal, _WAL_HEADER_BYTES, 0, apsw.SQLITE_OPEN_WAL)
    step = _FRAME_HEADER_BYTES + PAGE_BYTES
    for at in range(_WAL_HEADER_BYTES, total - step + 1, step):
        frame = _raw_read(wal, _FRAME_HEADER_BYTES, at, apsw.SQLITE_OPEN_WAL)
        # Frames of an earlier round of the WAL carry other salts than its header.
        if frame[:4] != b"\0\0\0\1" or frame[8:16] != header[16:24]:
            continue
        if page_authentic(_raw_read(wal, PAGE_BYTES, at + _FRAME_HEADER_BYTES, apsw.SQLITE_OPEN_WAL), 1, raw):
            return True
    return False


def plain_check(path: Path) -> None:
    """Refuse a file that is no plain store of ours, by its first bytes, before any SQL could roll back its journal.

    Raises:
        NotAStore: The file is empty, encrypted, no SQLite database, or another program's.
    """
    page = first_page(path)
    _empty_check(path, page)
    if page[:16] != PLAIN_HEADER:
        raise NotAStore(
            f"{path} is encrypted, or no SQLite database",
            next="Open it without encrypted=False.",
        )
    if page[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise not_ours(path)


def not_ours(path: Path) -> NotAStore:
    """The error for a database whose `application_id` is not ours."""
    return NotAStore(
        f"{path} is a database of another program",
        why="It does not carry agentmem's application_id",
        next="Choose another path; the file was left as it is.",
    )


def newer_file(path: Path, found: int, known: int) -> NewerFile:
    """The error for a file with more migrations than this program knows."""
    return NewerFile(
        f"{path} was written by a later version of agentmem",
        why=f"Its schema has number {found}, this version knows {known}; nothing was written",
        next="Upgrade agentmem, or open another file.",
    )


def _empty_check(path: Path, page: bytes) -> None:
    if not page:
        raise NotAStore(
            f"{path} is empty",
            why="A store is never empty: the file was cut, or made by something else",
            next="Restore it from a backup, or choose another path.",
        )


def encrypted_check(path: Path, page: bytes) -> None:
    """Refuse a file that can't be an encrypted store, by its first page, before any key is asked for.

    Raises:
        NotAStore: The file is empty, plain or too short.
    """
    _empty_check(path, page)
    if page[:16] == PLAIN_HEADER:
        raise NotAStore(f"{path} is not encrypted", next="If it is to be a plain store, open it with encrypted=False.")
    if len(page) < PAGE_BYTES:
        raise NotAStore(f"{path} is shorter than one page, so it is no store", next="Restore it from a backup.")


def _raw_read(path: Path, count: int, at: int, kind: int) -> bytes:
    try:
        handle = apsw.VFSFile(_BASE_VFS, str(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])
        try:
            return bytes(handle.xRead(count, at))
        finally:
            handle.xClose()
    except apsw.Error as error:
        raise translated(error, path) or error from error


def connect(opening: Opening, role: Role) -> apsw.Connection:
    """Open a connection, prove that header and key agree, and set its pragmas. Only then may SQL run on it.

    Args:
        opening: What to open and how.
        role: Sets the share of the cache, and whether it may write.

    Raises:
        AgentMemError: See `translated`; `WrongKey` where the schema does not decrypt.
    """
    try:
        connection = _connected(opening, role)
    except apsw.NotADBError:
        # `from None`: the traceback of the cause holds the text of the key pragma.
        raise wrong_key(opening.path) from None
    except apsw.Error as error:
        raise translated(error, opening.path) or error from None
    return connection


def _connected(opening: Opening, role: Role) -> apsw.Connection:
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
        if proven and not size_of(opening.path.with_name(opening.path.name + "-wal")):
            # There is nothing to write back, and a usual close takes the empty -wal and -shm away.
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        connection.close()
        raise
    return connection


def connection_bare(name: str, flags: int) -> apsw.Connection:
    """A connection that no hook of the application has run SQL on.

    `apsw.connection_hooks` run as it is made, before there is a key; without one, SQL on an encrypted file with a WAL
    can end in the loss of the WAL.
    """
    with _hooks_lock:
        hooks = apsw.connection_hooks
        if not hooks:
            return apsw.Connection(name, flags=flags)
        apsw.connection_hooks = []
        try:
            return apsw.Connection(name, flags=flags)
        finally:
            apsw.connection_hooks = hooks


_hooks_lock = threading.RLock()


def cipher_set(connection: apsw.Connection, raw: RawKey) -> None:
    """Choose SQLCipher 4 and give the raw key. Reads nothing but the salt, proves nothing yet."""
    connection.execute("PRAGMA cipher = 'sqlcipher'").fetchall()
    connection.execute("PRAGMA legacy = 4").fetchall()
    # Not cached, so that the statement does not keep the key in memory.
    connection.execute(f'PRAGMA key = "{raw.pragma_value()}"', can_cache=False).fetchall()


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


def translated(error: BaseException, path: Path) -> AgentMemError | None:
    """An error of SQLite about the file in our own terms; None for what is about a statement or its values."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return busy(path)
        case apsw.NotADBError() | apsw.CorruptError():
            return Corrupt(
                f"{path} is damaged",
                why=_text(error),
                next="Run agentmem verify to see how far, and restore a backup to another path.",
            )
        case apsw.ReadOnlyError():
            return ReadOnly(f"{path} cannot be written to", why=_text(error), next="Open it without read_only.")
        case apsw.FullError():
            return DiskFull(
                f"No space is left for a write to {path}", next="Make room on the disk; what was acknowledged is safe."
            )
        case apsw.IOError() | apsw.CantOpenError():
            return IoFailed(f"The system could not read, write or open a file of {path}", why=_text(error))
        case _:
            return None


def _text(error: BaseException) -> str:
    code = getattr(error, "extendedresult", None)
    name = apsw.mapping_extended_result_codes.get(code) if isinstance(code, int) else None
    return f"SQLite says: {error}" + (f" ({name})" if isinstance(name, str) else "")


def busy(path: Path) -> Busy:
    """The error for a write lock that did not come free in time, with who holds it where the system tells."""
    holders = write_lock_holders(path)
    named = " and ".join(str(pid) for pid in holders)
    return Busy(
        f"{path} is being written to by another process" + (f" (pid {named})" if named else ""),
        why="It held the write lock for longer than the busy timeout",
        next="Try again, or open with a longer busy_timeout.",
    )


def write_lock_holders(path: Path) -> tuple[int, ...]:
    """The pids that hold the write lock of the file. Empty where the system does not tell (all but Linux)."""
    try:
        inode = path.with_name(path.name + "-shm").stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return ()
    return lock_holders(locks, inode=inode, offset=_WRITE_LOCK_BYTE)
