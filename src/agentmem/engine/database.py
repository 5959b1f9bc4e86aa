"""The encrypted file as the rest of the library sees it: write and read transactions on it, and nothing else."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol

import apsw
import attrs

from agentmem.engine.connection import Connection, Opening, SqlFunction, cipher_check, close_quietly, connect
from agentmem.engine.faults import closed, empty_file, moved, no_directory, rethrow, translated
from agentmem.engine.files import beside, file_system_check, identities, size_of
from agentmem.engine.forks import GATE, spoilt_error
from agentmem.engine.keys import SALT_BYTES, Key, KeySource, ResolvedKey, given_key, stretch
from agentmem.engine.lookup import KeyFinder, open_found
from agentmem.engine.pages import encrypted_check, first_page, plain_check, raw_key_of
from agentmem.engine.pool import Pool
from agentmem.engine.schema import Migration, create_file, migrate, schema_check
from agentmem.engine.sessions import Turn
from agentmem.engine.snapshot import Amend, Inspect, backup_to, second_opinion, taken
from agentmem.engine.transactions import ReadBlock, WriteBlock, opened_for_reading
from agentmem.errors import (
    Conflict,
    Corrupt,
    InvalidInput,
    IoFailed,
    NotAStore,
    ReadOnly,
    StoreExists,
    StoreMissing,
    WrongKey,
)

if TYPE_CHECKING:
    from agentmem.engine.rekey import NewKey

__all__ = ["Database", "Migration", "SqlFunction"]


class Dependent(Protocol):
    """What was opened on the account of an open file, such as a view of its past."""

    def close(self) -> None:
        """Close it, with the file."""

    def unfold(self) -> None:
        """Let go of what it holds of records in memory."""


class Database:
    """One open file. Safe with threads, with other processes, and after a fork."""

    def __init__(self, pool: Pool) -> None:
        """Use `open`."""
        self.path: Path = pool.opening.path
        self.read_only: bool = pool.opening.read_only
        self.snapshot: bool = pool.opening.immutable
        self._pool = pool
        self.views: weakref.WeakSet[Dependent] = weakref.WeakSet()
        # Also at the end of the interpreter, so that the WAL is written back without a `with` or a close.
        self._finalizer = weakref.finalize(self, Pool.close, pool, wait=False)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        schema: Sequence[Migration],
        functions: Sequence[SqlFunction] = (),
        key: Key | None = None,
        create: bool = True,
        must_create: bool = False,
        read_only: bool = False,
        encrypted: bool = True,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 10.0,
        on_create: Callable[[apsw.Connection], None] | None = None,
        frozen: bool = False,
    ) -> Database:
        """Open a file, made first where it is missing.

        Args:
            path: The file. Symbolic links are followed.
            schema: All migrations, numbered from 1. An older file is brought up to the last.
            functions: Python functions for SQL, registered on every connection.
            key: The key; without it the places of `agentmem.engine.keys` are asked.
            create: Make the file where it is missing.
            must_create: The file must be missing.
            read_only: Take no write lock and change nothing.
            encrypted: False opens and makes plain files, and no others.
            durability: `full` syncs each commit; `normal` may lose the last ones to a power cut, never to a crash.
            busy_timeout: Seconds to wait for other writers.
            on_create: Runs inside the transaction that makes the file, after the migrations.
            frozen: Believe that nobody writes: no lock is taken, no file is made beside it, and it may lie anywhere. For
                `read_only` alone.

        Raises:
            CipherMissing: `apsw` has no encryption in it.
            NetworkFileSystem: The file lies where its locks can't be trusted.
            StoreMissing, StoreExists: The file, or its directory, is or is not there.
            NotAStore: The file is empty, another program's, or not encrypted (or encrypted) as asked.
            KeyMissing, WrongKey: No key, or not the file's. No byte was changed.
            NewerFile: A later version wrote it. No byte was changed.
            ReadOnly: It can't be opened the way it was asked for.
            Busy: Another process held the write lock.
            StoreReplaced: This process still has the file open that was at the path before.
        """
        migrations = schema_check(schema)
        _options_check(durability, busy_timeout)
        if key is not None and not encrypted:
            raise InvalidInput("A key was given together with encrypted=False", next="Leave one of them out.")
        cipher_check()
        real = _real_path(path)
        if not frozen:
            file_system_check(real)
        existing = _existing_check(real, create=create and not read_only, must_create=must_create)
        if existing and encrypted:
            encrypted_check(real, first_page(real))
        finders = (KeyFinder(real, key),) if encrypted else ()
        found = None
        if finders:
            # What a caller's function does to find the key is no business of the lock below.
            found = finders[0].named() if existing else finders[0].for_new()
        opening = Opening(
            path=real,
            key=None,
            read_only=read_only,
            immutable=frozen and read_only,
            durability=durability,
            busy_timeout=busy_timeout,
            functions=tuple(functions),
            version=len(migrations),
        )
        GATE.check(real)
        with GATE.opening:
            if not existing:
                raw = stretch(found.material, os.urandom(SALT_BYTES)) if found is not None else None
                won = create_file(attrs.evolve(opening, key=raw), migrations, on_create)
                if must_create and not won:
                    raise _exists(real)
            opening, connection, found = _first_connection(opening, finders, found)
            # Whatever is opened later must be these very files.
            opening = attrs.evolve(opening, identities=identities(real))
            connection.opening = opening
            if connection.has_moved():
                close_quietly(connection)
                raise moved(real)
            pool = Pool(opening, connection, finders, found)
        _migrated(pool, connection, migrations)
        return cls(pool)

    @property
    def key_source(self) -> KeySource | None:
        """Where the key was found; None for a plain file."""
        return None if self._pool.found is None else self._pool.found.source

    @property
    def key_path(self) -> Path | None:
        """The key file, where the key came from one."""
        return None if self._pool.found is None else self._pool.found.path

    @property
    def key_made(self) -> bool:
        """Whether this opening made the default key file."""
        return self._pool.found is not None and self._pool.found.made

    def __enter__(self) -> Database:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self.close()

    def write(self, *, durable: bool = False) -> WriteBlock:
        """A write transaction on the one writer: committed at the end of the block, rolled back by an exception.

        Nested, it is a savepoint of the outer one: an exception that is caught between the two undoes the inner alone.
        Errors of SQLite about the file become ours, in the block too; all others pass as they are.

        Args:
            durable: The commit is synced to disk, also where the file was opened with less durability. A nested block is
                as durable as the outermost.

        Raises:
            Busy: Another thread or process held the write lock for longer than the busy timeout.
            ReadOnly: The file was opened for reading.
            NewerFile: Another process brought the file to a later schema. Nothing was written.
            KeyChanged: Another process gave it a new key, and ours can't be had again.
            StoreMissing, StoreReplaced: The path does not lead to the open file any more. Nothing was written.
            Conflict: Another asyncio task of this thread is inside a write, or blocks were left in another thread, task
                or order than they were entered. Nothing of it was kept.
        """
        return WriteBlock(self.ready(), self, durable=durable)

    def read(self, *, long: bool = False, alone: bool = False) -> ReadBlock:
        """A read transaction: one state of the file from the beginning of the block to its end.

        Nested ones share it. Inside this thread's own `write()` it is the writer, so that own writes are seen.

        Args:
            long: It is meant to take long, as a check of the whole file does: no warning that it did.
            alone: Share no transaction: what is committed by now is seen, and nothing of this thread's own `write()`.
        """
        return ReadBlock(self.ready(), self, long=long, alone=alone)

    def in_write(self) -> bool:
        """Whether this thread is inside its own `write()`."""
        return self._pool.inside() is not None

    def data_version(self) -> int:
        """A number that changes with every commit to the file, by another process or by this one.

        Only compared for equality, only within this process, and not across a fork.
        """
        try:
            return self.ready().data_version()
        except apsw.Error as error:
            rethrow(error, self.path)

    def wal_bytes(self) -> int:
        """The size of the write-ahead log, by `stat`."""
        return size_of(beside(self.path, "-wal"))

    def file_bytes(self) -> int:
        """The size of the file at the path, by `stat`; 0 where there is none any more."""
        return size_of(self.path)

    def checkpoint(self, *, wait: float = 0.0) -> bool:
        """Write the WAL back into the file and cut it to nothing.

        Args:
            wait: Seconds to wait for readers and writers, of this process and of others.

        Returns:
            True if the WAL is empty now; False where somebody still needs it or writes.
        """
        pool = self.ready()
        if self.read_only:
            raise opened_for_reading(self.path)
        if pool.inside() is not None:
            raise Conflict("A checkpoint cannot run inside a write transaction", next="Run it after the block.")
        try:
            return pool.checkpoint(wait)
        except apsw.Error as error:
            rethrow(error, self.path)

    def rewrite(self, *, wait: float = 0.0) -> bool:
        """Write every page anew, so that none has left-overs in its unused part; then they are in the WAL twice.

        Where a row moves to another page, SQLite leaves a copy in what is then the unused part of the first one, also
        with `secure_delete`. It takes about the size of the file in memory and as much in the WAL.

        Args:
            wait: Seconds to wait for other writers. Readers are in nobody's way.

        Returns:
            False where somebody wrote all that time.
        """
        pool = self.ready()
        if self.read_only:
            raise opened_for_reading(self.path)
        if pool.inside() is not None:
            raise Conflict("A file cannot be rewritten inside a write transaction", next="Do it after the block.")
        try:
            return pool.rewrite(wait)
        except apsw.Error as error:
            rethrow(error, self.path)

    def drop_pages(self) -> None:
        """Let go of the decrypted pages and statements that connections of this process keep."""
        self.ready().drop_pages()

    def snapshot_to(
        self,
        target: str | os.PathLike[str],
        *,
        key: Key | None = None,
        amend: Amend | None = None,
        inspect: Inspect | None = None,
    ) -> Path:
        """Copy the committed state into a new, durable file, checked, whole or not at all.

        Args:
            target: The new file.
            key: The copy's key, the same as this file's by default.
            amend: Changes the copy before it is checked.
            inspect: Checks more of the copy than its pages and structure.

        Returns:
            Where the copy is, without symbolic links.

        Raises:
            StoreExists: There is something at `target`, or a file beside it that SQLite would take for a part of it.
            InvalidInput: A key for the copy of a plain file.
            Corrupt: The file can't be read, or the copy is not sound.
            DiskFull: There is no room for it.
        """
        if os.path.lexists(target):
            raise taken(Path(target))
        pool = self.ready()
        material = None
        if key is not None:
            if pool.opening.key is None:
                raise InvalidInput("The copy of a plain store is plain", next="Leave the key out.")
            material = given_key(key)
        real = _real_path(target)
        backup_to(pool, real, material, amend=amend, inspect=inspect)
        return real

    def rekey(
        self, key: Key | None = None, *, key_file: str | os.PathLike[str] | None = None, keyring: bool = False
    ) -> NewKey:
        """Encrypt the file anew with another key; a kill at any moment leaves it with exactly one of the two.

        Other processes that have it open go on where they find the new key by themselves, else they get `KeyChanged`.
        Without any argument a new raw key goes into a key file of this store in the user's configuration directory. No
        key is ever removed: the former one opens the copies made before.

        Args:
            key: 32 bytes, a passphrase or a callable; the caller keeps it.
            key_file: Where to put a new raw key. There must be nothing yet.
            keyring: Put a new raw key into the operating system's keyring.

        Raises:
            InvalidInput: A plain store, more than one of the arguments, or no acceptable key.
            ReadOnly: The file was opened for reading.
            Conflict: This thread is inside a transaction; or there is something at `key_file`.
            DiskFull: Less is free than the file's size. Nothing was changed.
            MissingExtra: The package `keyring` is not installed.
            Busy: Another thread or process held the write lock for longer than the busy timeout.
            KeyChanged: Another process gave it a new key, and that can't be had.
            IoFailed, Corrupt: The new key could not be stored, or a page could not be read or written.
        """
        from agentmem.engine.rekey import rekey

        pool = self.ready()
        try:
            return rekey(pool, key=key, key_file=None if key_file is None else _real_path(key_file), keyring=keyring)
        except apsw.Error as error:
            rethrow(error, self.path)

    def independent_check(self) -> list[str]:
        """Have stock SQLCipher, another build, check a snapshot: the HMAC of every page, then the structure.

        Returns:
            What is wrong, one sentence each; nothing for a sound file.
        """
        return second_opinion(self.ready())

    def close(self) -> None:
        """Close the file and all views of it. Done twice it is done once. Readers of other threads close as they finish."""
        for view in list(self.views):
            view.close()
        self._pool.close()

    def ready(self) -> Pool:
        """The connections, for views of the past beside this module.

        Raises:
            Closed: The file was closed.
            Conflict: This process is a fork that cannot use them.
        """
        pool = self._pool
        if pool.pid != os.getpid():
            raise Conflict(
                "The process was forked in a way Python does not know of", next="Open the store again in this process."
            )
        if pool.spoilt:
            raise spoilt_error(self.path)
        if pool.closed:
            raise closed(pool.opening.path)
        return pool


def _migrated(pool: Pool, connection: Connection, migrations: tuple[Migration, ...]) -> None:
    """Bring the file to the current schema. Where that fails, close it without writing its WAL back."""
    with Turn(pool, pool.opening.busy_timeout):
        try:
            pool.refusing.clear()
            migrate(connection, pool.opening, migrations)
        except BaseException as error:
            pool.discard()
            if (typed := translated(error, pool.opening.path)) is not None:
                raise typed from error
            raise


def _options_check(durability: str, busy_timeout: float) -> None:
    if durability not in {"full", "normal"}:
        raise InvalidInput(f"durability is {durability!r}", why="It is full or normal")
    if not 0 <= busy_timeout <= 86_400:
        raise InvalidInput(f"busy_timeout is {busy_timeout}", why="It is from 0 to 86,400 seconds")


def _real_path(path: str | os.PathLike[str]) -> Path:
    """The absolute path without symbolic links; SQLite takes it as UTF-8."""
    try:
        real = os.path.realpath(os.fspath(path))
        real.encode()
    except ValueError as error:
        raise InvalidInput(f"{path!r} cannot be the path of a store", why="It holds a NUL or is no Unicode") from error
    return Path(real)


def _exists(path: Path) -> StoreExists:
    return StoreExists(f"There is already a file at {path}", next="Open it instead, or choose another path.")


def _existing_check(path: Path, *, create: bool, must_create: bool) -> bool:
    """Whether a regular file is there, and whether that is as it should be."""
    try:
        status = path.stat()
    except FileNotFoundError:
        if path.parent.is_dir() and create:
            return False
        if path.parent.is_dir():
            raise StoreMissing(f"There is no file at {path}", next="Correct the path, or let it be made.") from None
        raise no_directory(path) from None
    except OSError as error:
        raise IoFailed(f"{path} cannot be looked at", why=error.strerror or "") from error
    if must_create:
        raise _exists(path)
    if not path.is_file():
        raise NotAStore(f"{path} is not a regular file", next="Choose another path.")
    if status.st_size == 0:
        raise empty_file(path)
    return True


def _first_connection(
    opening: Opening, finders: tuple[KeyFinder, ...], found: ResolvedKey | None
) -> tuple[Opening, Connection, ResolvedKey | None]:
    """Prove header and key without SQL, then open; read-only where nothing can be written, as a snapshot.

    Args:
        opening: How.
        finders: How the key of an encrypted file is found.
        found: The one that was named, or that a new file was just made with.
    """
    if not finders:
        plain_check(opening.path)
        return (*_connection(opening), None)
    if found is not None:
        try:
            fresh = attrs.evolve(opening, key=raw_key_of(opening.path, found.material))
            return (*_connection(fresh), found)
        except WrongKey:
            # Else another process was first to make the file, with another key of the places that are searched.
            if finders[0].names_one():
                raise
    (fresh, connection), found, _ = open_found(opening, finders, _connection)
    return fresh, connection, found


def _connection(opening: Opening) -> tuple[Opening, Connection]:
    if opening.read_only:
        return _reading_connection(opening)
    return opening, connect(opening, "writer")


def _reading_connection(opening: Opening) -> tuple[Opening, Connection]:
    """A reader. In a directory where SQLite can't make its shared memory, a snapshot, if the WAL holds nothing."""
    frozen = attrs.evolve(opening, immutable=True)
    if opening.immutable or os.access(opening.path.parent, os.W_OK):
        return opening, connect(opening, "reader")
    wal = beside(opening.path, "-wal")
    if beside(opening.path, "-shm").exists():
        try:
            return opening, connect(opening, "reader")
        except (IoFailed, ReadOnly, Corrupt):
            if size_of(wal):
                raise
    if size_of(wal):
        raise ReadOnly(
            f"{opening.path} cannot be read here: changes wait in its write-ahead log",
            why="Its directory can't be written to, and reading them needs a shared-memory file beside it",
            next="Open it once where its directory can be written to, which writes the changes back.",
        )
    return frozen, connect(frozen, "reader")
