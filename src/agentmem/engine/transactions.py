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
from agentmem.engine.faults import (
    ANOTHER_TASK,
    ANOTHER_THREAD,
    INTERRUPTED,
    OUT_OF_ORDER,
    another_tasks,
    entered_twice,
    not_entered,
    not_kept,
    rethrow,
    translated,
)
from agentmem.engine.pool import Pool
from agentmem.engine.sessions import ReadSession, WriteSession
from agentmem.engine.stays import Held, Stay, Tip
from agentmem.errors import IoFailed, ReadOnly, StorageWarning

__all__ = ["ReadBlock", "WriteBlock", "opened_for_reading"]

HELD_SECONDS: Final = 5.0


class WriteBlock(Held):
    """One write transaction, or a savepoint of the one this thread is in. A generator would cost more than BEGIN."""

    __slots__ = ("_connection", "_durable", "_owner", "_pool", "_session")

    _connection: Connection
    _session: WriteSession

    def __init__(self, pool: Pool, owner: object, *, durable: bool = False) -> None:
        """Begin nothing yet.

        Args:
            pool: The connections.
            owner: Kept alive to the end of the block, since the pool closes when it goes.
            durable: Its commit is synced to disk, also where the file was opened for less.
        """
        self.hold = self.stay = None  # as Held does, without the call
        self._durable = durable
        self._pool = pool
        self._owner = owner

    def __enter__(self) -> Connection:
        if self.stay is not None and self.going_on:
            raise entered_twice()
        pool = self._pool
        outer = pool.inside()
        try:
            self._connection = self._begin(pool) if outer is None else self._nest(pool, outer)
        except BaseException as error:
            if (typed := translated(error, pool.opening.path)) is not None:
                raise typed from error
            raise
        return self._connection

    def _begin(self, pool: Pool) -> Connection:
        if pool.opening.read_only:
            raise opened_for_reading(pool.opening.path)
        session = self._session = WriteSession(pool)
        stay = self.stay = Stay(self, session)
        session.stays.append(stay)
        pool.writing_take(session, pool.opening.busy_timeout)
        try:
            pool.writing = session
            connection = pool.write_begin(durable=self._durable)
        except BaseException:
            session.end()
            raise
        stay.began = monotonic()
        return connection

    def _nest(self, pool: Pool, outer: Stay) -> Connection:
        session, connection = pool.writing, pool.writer
        assert session is not None  # `outer` is of it
        if not outer.of_this_task():
            raise another_tasks()
        if session.spoilt:
            raise not_kept(session.spoilt)
        if connection is None or not connection.in_transaction:
            raise _rolled_back(pool.opening.path)
        self._session = session
        stay = self.stay = Stay(self, session)
        # A name for each level tells afterwards whether an interrupted one was released.
        stay.savepoint = f"agentmem{len(session.stays)}"
        session.stays.append(stay)
        try:
            connection.execute("SAVEPOINT " + stay.savepoint)
        except BaseException:
            session.savepoint_end(stay)
            raise
        return connection

    @property
    def outer_tip(self) -> Tip | None:
        """What `tell` was given in the block around this one."""
        stays = self._session.stays
        return stays[-2].tip if len(stays) > 1 else None

    def tell(self, tip: Tip) -> None:
        """Have somebody told how the block ended, whatever ends it."""
        assert self.stay is not None  # set on entering
        self.stay.tip = tip

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave(error)

    def leave(self, error: BaseException | None) -> None:
        """What `__exit__` does.

        Raises:
            Conflict: It is not open, or left as none may be; nothing is kept. Not where an error passes already.
        """
        stay = self.stay
        if stay is None:
            raise not_entered()
        session = self._session
        if session.inherited():
            return
        fault = self._fault(session, stay)
        if fault:
            session.spoil(stay, fault)
            if error is None:
                raise not_kept(session.spoilt)
        elif len(session.stays) > 1:
            self._savepoint_leave(session, stay, failed=error is not None)
        else:
            self._end(session, stay, failed=error is not None)
        self.stay = None
        if error is not None:
            typed = translated(error, self._pool.opening.path)
            if typed is not None:
                raise typed from error

    def _fault(self, session: WriteSession, stay: Stay) -> str:
        """Why it may not be left here and now; empty where it may."""
        if stay.thread != get_ident():
            return ANOTHER_THREAD
        stays = session.stays
        if not stays or stays[-1] is not stay:
            session.innermost()
            if stay not in stays:
                return session.spoilt or INTERRUPTED
            if stays[-1] is not stay:
                return OUT_OF_ORDER
        if not stay.of_this_task():
            return ANOTHER_TASK
        if len(stays) > 1 and not stays[-2].alive():
            return INTERRUPTED
        return session.spoilt

    def _savepoint_leave(self, session: WriteSession, stay: Stay, *, failed: bool) -> None:
        connection = self._connection
        gone = not connection.in_transaction
        if not failed and not gone:
            connection.execute("RELEASE " + stay.savepoint)
            stay.released = True
        session.savepoint_end(stay)
        if gone and not failed:
            raise _rolled_back(self._pool.opening.path)

    def _end(self, session: WriteSession, stay: Stay, *, failed: bool) -> None:
        pool, connection = self._pool, self._connection
        grown = ""
        try:
            if not failed:
                if not connection.in_transaction:
                    raise _rolled_back(pool.opening.path)
                pool.commit(connection, stay.began)
                grown = pool.growth.after_commit(pool, connection)
        except apsw.Error as error:
            rethrow(error, pool.opening.path)
        finally:
            session.end()
        if grown:
            warnings.warn(grown, StorageWarning, stacklevel=3)
        _held_warn(stay.began, "write", "no other writer could go on")


class ReadBlock(Held):
    """One read transaction, or a share in the one this thread is in."""

    __slots__ = ("_alone", "_long", "_owner", "_pool", "_session")

    def __init__(self, pool: Pool, owner: object, *, long: bool = False, alone: bool = False) -> None:
        """Begin nothing yet.

        Args:
            pool: The connections.
            owner: Kept alive to the end of the block.
            long: It is meant to take long: no warning that it did.
            alone: Share nothing: see what is committed, also inside this thread's own write.
        """
        self.hold = self.stay = None
        self._pool = pool
        self._long = long
        self._alone = alone
        self._owner = owner
        self._session: ReadSession | None = None

    def __enter__(self) -> Connection:
        if self.stay is not None and self.going_on:
            raise entered_twice()
        pool = self._pool
        if not self._alone:
            if pool.writing is not None and pool.writer is not None:
                outer = pool.inside()
                # What another task has written and not committed is not for this one to see.
                if outer is not None and outer.of_this_task():
                    return pool.writer
            shared = pool.local.session
            if shared is not None and shared.box and shared.alive():
                return self._share(shared)
        return self._begin(pool)

    def _share(self, session: ReadSession) -> Connection:
        self._session = session
        self.stay = Stay(self, session)
        session.stays.append(self.stay)
        return session.box[0]

    def _begin(self, pool: Pool) -> Connection:
        session = self._session = ReadSession(pool)
        stay = self.stay = Stay(self, session)
        session.stays.append(stay)
        if not self._alone:
            left, pool.local.session = pool.local.session, session
            if left is not None:
                left.lost()
        try:
            connection = pool.read_begin(session)
        except BaseException as error:
            session.leave(stay)
            if (typed := translated(error, pool.opening.path)) is not None:
                raise typed from error
            raise
        stay.began = monotonic()
        return connection

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, stay = self._session, self.stay
        if session is not None and stay is not None:
            session.leave(stay)
            self.stay = self._session = None
            if not self._long and stay is session.stays[0]:
                _held_warn(stay.began, "read", "the write-ahead log could not be cut")
        if error is not None:
            typed = translated(error, self._pool.opening.path)
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
