"""The blocks that `Database.write()` and `Database.read()` give: a transaction from the first line to the last."""

from __future__ import annotations

import warnings
from pathlib import Path
from threading import get_ident
from time import monotonic
from types import TracebackType
from typing import Final

import apsw

from agentmem.engine.connection import Connection
from agentmem.engine.faults import rethrow, translated
from agentmem.engine.pool import Pool, Reader
from agentmem.errors import IoFailed, ReadOnly, StorageWarning

__all__ = ["ReadBlock", "WriteBlock", "opened_for_reading"]

HELD_SECONDS: Final = 5.0


class WriteBlock:
    """One write transaction, or a savepoint of the one this thread is in. A generator would cost more than BEGIN."""

    __slots__ = ("_began", "_connection", "_nested", "_owner", "_pool")

    _connection: Connection

    def __init__(self, pool: Pool, owner: object) -> None:
        """Begin nothing yet.

        Args:
            pool: The connections.
            owner: Kept alive to the end of the block, since the pool closes when it goes.
        """
        self._pool = pool
        self._owner = owner

    def __enter__(self) -> Connection:
        pool = self._pool
        self._nested = pool.owner == get_ident()
        if self._nested:
            self._connection = _savepoint(pool)
            return self._connection
        if pool.opening.read_only:
            raise opened_for_reading(pool.opening.path)
        pool.lock_take()
        try:
            self._connection = pool.write_begin()
            # From here on this thread owns the transaction; nothing below may fail.
            pool.owner = get_ident()
        except BaseException as error:
            pool.lock.release()
            if (typed := translated(error, pool.opening.path)) is not None:
                raise typed from error
            raise
        self._began = monotonic()
        return self._connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pool = self._pool
        if pool.owner != get_ident():
            # A child forked inside the block: the transaction is the parent's, and here there is nothing to end.
            return
        if self._nested:
            _savepoint_end(pool, self._connection, failed=error is not None)
        else:
            self._end(pool, failed=error is not None)
        if error is not None:
            typed = translated(error, pool.opening.path)
            if typed is not None:
                raise typed from error

    def _end(self, pool: Pool, *, failed: bool) -> None:
        connection = self._connection
        try:
            if failed:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
            elif not connection.in_transaction:
                raise _rolled_back(pool.opening.path)
            else:
                _commit(pool, connection)
        finally:
            try:
                pool.write_end(connection)
            finally:
                pool.owner = 0
                pool.lock.release()
        _held_warn(self._began, "write", "no other writer could go on")


def _savepoint(pool: Pool) -> Connection:
    connection = pool.writer
    if connection is None or not connection.in_transaction:
        raise _rolled_back(pool.opening.path)
    # One name for all of them: SQLite takes the innermost, and the statement stays prepared.
    connection.execute("SAVEPOINT agentmem")
    return connection


def _savepoint_end(pool: Pool, connection: Connection, *, failed: bool) -> None:
    if connection.in_transaction:
        if failed:
            connection.execute("ROLLBACK TO agentmem")
        connection.execute("RELEASE agentmem")
    elif not failed:
        raise _rolled_back(pool.opening.path)


def _commit(pool: Pool, connection: Connection) -> None:
    pool.committing = True
    try:
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if (typed := translated(error, pool.opening.path)) is not None:
            raise typed from error
        raise
    finally:
        pool.committing = False


class ReadBlock:
    """One read transaction, or a share in the one this thread is in."""

    __slots__ = ("_local", "_long", "_owner", "_pool")

    def __init__(self, pool: Pool, owner: object, *, long: bool = False) -> None:
        """Begin nothing yet; `owner` is kept alive to the end of the block; a `long` one does not warn."""
        self._pool = pool
        self._long = long
        self._owner = owner
        self._local: Reader | None = None

    def __enter__(self) -> Connection:
        pool = self._pool
        if pool.owner == get_ident() and pool.writer is not None:
            return pool.writer
        local = pool.local
        connection = local.connection
        if connection is None:
            try:
                connection = local.connection = pool.read_begin()
            except apsw.Error as error:
                rethrow(error, pool.opening.path)
            local.began = monotonic()
        local.depth += 1
        self._local = local
        return connection

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        local, pool = self._local, self._pool
        # In a child forked inside the block `pool.local` is another one, and here there is nothing to end.
        if local is not None and local is pool.local:
            local.depth -= 1
            connection = local.connection
            if local.depth == 0 and connection is not None:
                local.connection = None
                pool.read_end(connection)
                if not self._long:
                    _held_warn(local.began, "read", "the write-ahead log could not be cut")
        if error is not None:
            typed = translated(error, pool.opening.path)
            if typed is not None:
                raise typed from error


def _held_warn(began: float, verb: str, effect: str) -> None:
    held = monotonic() - began
    if held > HELD_SECONDS:
        warnings.warn(
            f"A {verb} transaction was open for {held:.1f} s; meanwhile {effect}", StorageWarning, stacklevel=3
        )


def _rolled_back(path: Path) -> IoFailed:
    return IoFailed(
        f"The transaction on {path} was rolled back by an error that was caught inside it",
        next="Do not go on in a block after a disk error; nothing of it was kept.",
    )


def opened_for_reading(path: Path) -> ReadOnly:
    """The error for a write to a file that was opened for reading."""
    return ReadOnly(f"{path} was opened for reading", next="Open it without read_only.")
