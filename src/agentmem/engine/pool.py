"""The connections one process has to one file: a single writer behind a lock and a few readers."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from threading import get_ident
from time import monotonic
from typing import Final, TypeVar

import apsw
import attrs

from agentmem.engine.connection import Connection, Opening, Role, connect, number_of
from agentmem.engine.faults import newer_file, rethrow
from agentmem.engine.forks import GATE
from agentmem.engine.pages import raw_key_of
from agentmem.engine.schema import user_version
from agentmem.errors import Busy, Closed, Conflict, KeyChanged, KeyMissing, WrongKey

__all__ = ["READERS", "Pool", "Reader", "close_quietly", "closed"]

READERS: Final = 4
_SPILL: Final = apsw.SQLITE_DBSTATUS_CACHE_SPILL
_UNDECIPHERED: Final = (apsw.NotADBError, apsw.CorruptError, WrongKey)

T = TypeVar("T")


class Reader(threading.local):
    """What one thread is reading with: a connection and how many `read()` blocks are open on it."""

    connection: Connection | None = None
    depth: int = 0
    began: float = 0.0


class Pool:
    """The connections of one process to one file.

    Attributes:
        opening: How a connection is opened.
        owner: The thread inside a write transaction, by `get_ident`, 0 for none. Set and cleared by that thread alone.
        writer: The one connection that writes; guarded by `lock`, as is `committing`.
        local: The reading of each thread.
    """

    def __init__(
        self,
        opening: Opening,
        first: Connection,
        key_again: Callable[[], bytes | str] | None,
    ) -> None:
        """Begin with a connection that is open already.

        Args:
            opening: How it was opened.
            first: The connection, a reader for a file opened for reading, else the writer.
            key_again: Asks where the key came from once more, after another process changed it.
        """
        self.opening = opening
        self.pid = os.getpid()
        self.closed = False
        self.spoilt = False
        self.idle: list[Connection] = []
        self.writer: Connection | None = None
        self._key_again = key_again
        self._locks_make()
        if opening.read_only:
            self.idle.append(first)
        else:
            self._writer_take(first)
        GATE.watch(self)

    def _locks_make(self) -> None:
        self.lock = threading.Lock()
        self.owner = 0
        self.committing = False
        self.local = Reader()
        self._slots = threading.Semaphore(READERS)
        self._busy: set[Connection] = set()
        self._watcher: Connection | None = None
        self._watcher_lock = threading.Lock()
        self._fork_held: list[threading.Lock | threading.Semaphore] = []
        self._fork_ready = False

    # The writer

    def lock_take(self) -> None:
        """Become the one thread of this process that writes. Whoever calls it releases `lock`.

        Raises:
            Busy: Another thread kept the lock for longer than the busy timeout.
            Closed: The pool was closed.
        """
        if not self.lock.acquire(timeout=self.opening.busy_timeout):
            raise Busy(
                f"{self.opening.path} is being written to by another thread of this process",
                why="It held the write lock for longer than the busy timeout",
                next="Make transactions shorter, or open with a longer busy_timeout.",
            )
        if self.closed:
            self.lock.release()
            raise closed(self.opening)

    def write_begin(self) -> Connection:
        """Begin a write transaction, `lock` being held, and prove that the schema is still the one that was opened."""
        try:
            return self._write_begin()
        except _UNDECIPHERED as error:
            self._renew_key(self.opening, error)
            return self._write_begin()

    def _write_begin(self) -> Connection:
        connection = self.writer
        if connection is None:
            connection = self._writer_take(connect(self.opening, "writer"))
        connection.execute("BEGIN IMMEDIATE")
        try:
            self._version_check(connection)
            connection.status(_SPILL, True)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        return connection

    def _version_check(self, connection: Connection) -> None:
        """Refuse a file that another process brought to a later schema since it was opened."""
        found = user_version(connection)
        if found != self.opening.version:
            raise newer_file(self.opening.path, found, self.opening.version)

    def _writer_take(self, connection: Connection) -> Connection:
        # A statement that runs after SQLite itself rolled the transaction back would commit alone; this refuses it.
        connection.set_commit_hook(self._commit_refused)
        self.writer = connection
        return connection

    def _commit_refused(self) -> bool:
        return not self.committing

    def write_end(self, connection: Connection) -> None:
        """After a commit or rollback, before `lock` is released: let no cursor outlive the block.

        One that does keeps an old snapshot, and the next BEGIN IMMEDIATE would fail at once, whatever the timeout.
        """
        if connection.txn_state() != apsw.SQLITE_TXN_NONE:
            close_quietly(connection)
            self.writer = None

    # The readers

    def read_begin(self) -> Connection:
        """Begin a read transaction on a free reader; its snapshot is taken at once. `read_end` gives it back."""
        if not self._slots.acquire(timeout=self.opening.busy_timeout):
            raise Busy(
                f"All {READERS} readers of {self.opening.path} are in use in this process",
                why="Other threads kept them for longer than the busy timeout",
                next="Make read blocks shorter, or open with a longer busy_timeout.",
            )
        try:
            return self._renewing(self._read_begin)
        except BaseException:
            self._slots.release()
            raise

    def _read_begin(self) -> Connection:
        connection = self._reader_take()
        try:
            self._busy.add(connection)
            connection.execute("BEGIN")
            self._version_check(connection)
        except BaseException:
            self._busy.discard(connection)
            close_quietly(connection)
            raise
        return connection

    def _reader_take(self) -> Connection:
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread took the last one
                break
            if not self._outdated(connection):
                return connection
            close_quietly(connection)
        return self._side_connection("reader")

    def _outdated(self, connection: Connection) -> bool:
        """Whether a connection was opened with a key that has been replaced since."""
        return connection.opening is not self.opening

    def _side_connection(self, role: Role) -> Connection:
        connection = connect(self.opening, role)
        connection.execute("PRAGMA query_only = ON").fetchall()
        return connection

    def read_end(self, connection: Connection) -> None:
        """End the read transaction and put the reader back, or close it where the pool is closed."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # A cursor that outlived the block keeps its old snapshot; the next reader must not get it.
            if connection.txn_state() != apsw.SQLITE_TXN_NONE or self._outdated(connection):
                close_quietly(connection)
                return
            self.idle.append(connection)
            if self.closed:
                self._idle_close()
        except BaseException:
            close_quietly(connection)
            raise
        finally:
            self._busy.discard(connection)
            self._slots.release()

    def data_version(self) -> int:
        """SQLite's `data_version` as the watching connection sees it."""

        def ask() -> int:
            with self._watcher_lock:
                if self.closed:
                    raise closed(self.opening)
                if self._watcher is None:
                    self._watcher = self._side_connection("watcher")
                return number_of(self._watcher, "PRAGMA data_version")

        return self._renewing(ask)

    def checkpoint(self, wait: float) -> bool:
        """Write the WAL back and cut it.

        Args:
            wait: Seconds to wait for other threads and processes.

        Returns:
            False where a reader or writer was in the way all that time.
        """
        if not self.lock.acquire(timeout=wait):
            return False
        try:
            if self.closed:
                raise closed(self.opening)
            if self.writer is not None:
                self.writer.set_busy_timeout(round(wait * 1000))
            connection = self.write_begin()
            connection.execute("ROLLBACK")
            connection.set_busy_timeout(round(wait * 1000))
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return False
        finally:
            if self.writer is not None:
                self.writer.set_busy_timeout(round(self.opening.busy_timeout * 1000))
            self.lock.release()
        return True

    # A new key

    def _renewing(self, action: Callable[[], T]) -> T:
        """Run an action of a reader; if it meets another key, ask for the key again and run it once more."""
        opening = self.opening
        try:
            return action()
        except _UNDECIPHERED as error:
            if self.owner == get_ident():
                self._renew_key(opening, error)
            else:
                self.lock_take()
                try:
                    self._renew_key(opening, error)
                finally:
                    self.lock.release()
            return action()

    def _renew_key(self, used: Opening, cause: Exception) -> None:
        """After a page did not decrypt: go on with the new key where there is one, else say what is wrong.

        Args:
            used: What was open when it happened: another thread may have renewed the key since. `lock` is held.
            cause: What SQLite said.
        """
        if self.opening is not used:
            return
        path = used.path
        if self._key_again is None:
            rethrow(cause, path)
        try:
            fresh = attrs.evolve(used, key=raw_key_of(path, self._key_again()))
            close_quietly(connect(fresh, "watcher"))
        except (WrongKey, KeyMissing):
            raise KeyChanged(
                f"{path} no longer opens with its key",
                why="Another process gave it a new key, or its first page was damaged",
                next="Open it again with the new key.",
            ) from cause
        if fresh.key == used.key:
            rethrow(cause, path)
        self._connections_renew(fresh)

    def _connections_renew(self, fresh: Opening) -> None:
        # Closed without a checkpoint: with the old key it could not decrypt what it copies.
        self.opening = fresh
        if self.writer is not None:
            close_quietly(self.writer)
            self.writer = None
        with self._watcher_lock:
            if self._watcher is not None:
                close_quietly(self._watcher)
                self._watcher = None
        self._idle_close(quietly=True)

    # The end

    def close(self, *, wait: bool = True) -> None:
        """Close what is idle now; readers in use close when they are put back. SQLite checkpoints with the last one.

        Args:
            wait: Wait for another thread's write to end; at the end of the interpreter there is nobody to wait for.
        """
        if self.closed or self.pid != os.getpid():
            return
        if self.owner == get_ident():
            if not wait:
                return
            raise Conflict(
                "A store cannot be closed inside its own write transaction", next="Close it after the block."
            )
        if wait:
            try:
                self.lock_take()
            except Closed:  # by another thread, meanwhile
                return
        elif not self.lock.acquire(blocking=False):
            return
        try:
            self.closed = True
            self._idle_close()
            with self._watcher_lock:
                if self._watcher is not None:
                    self._watcher.close()
                    self._watcher = None
            if self.writer is not None:
                self.writer.close()
                self.writer = None
        finally:
            self.lock.release()

    def discard(self) -> None:
        """Close all without writing the WAL back, `lock` being held: for a file that is to be left alone."""
        self.closed = True
        self._idle_close(quietly=True)
        if self.writer is not None:
            close_quietly(self.writer)
            self.writer = None

    def _idle_close(self, *, quietly: bool = False) -> None:
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread took the last one
                break
            if quietly:
                close_quietly(connection)
            else:
                connection.close()

    # Forks

    def fork_prepare(self, deadline: float) -> None:
        """Before a fork: wait until no other thread is inside SQLite or a transaction, and keep it so.

        Args:
            deadline: When to give up, by `monotonic`: a thread may be waiting for the one that forks.
        """
        wanted: list[threading.Lock | threading.Semaphore] = [] if self.owner == get_ident() else [self.lock]
        wanted += [self._slots] * (READERS - (self.local.connection is not None))
        wanted.append(self._watcher_lock)
        self._fork_ready = False
        for lock in wanted:
            if not lock.acquire(timeout=max(0.0, deadline - monotonic())):
                return
            self._fork_held.append(lock)
        self._fork_ready = True

    def fork_release(self) -> None:
        """After a fork, in the parent: go on."""
        held, self._fork_held = self._fork_held, []
        for lock in held:
            lock.release()

    def fork_spoilt(self) -> bool:
        """In the child: whether what was inherited can neither be shared nor left.

        A transaction of the forking thread stays the parent's alone. If it was so large that a part of it is in the WAL
        already, closing it here would undo it in memory that the parent shares.
        """
        spilled = self.owner != 0 and self.writer is not None and self.writer.status(_SPILL)[0] > 0
        return spilled or not self._fork_ready

    def fork_enter(self, *, spoilt: bool) -> None:
        """In the child: leave the parent's connections behind and start afresh.

        Args:
            spoilt: Leave them untouched for ever; this process can't use the file.
        """
        left = [*self.idle, *self._busy]
        left += [each for each in (self._watcher, self.writer) if each is not None]
        for connection in left:
            if spoilt:
                _keep_for_ever(connection)
            else:
                close_quietly(connection)
        self.spoilt = self.spoilt or spoilt
        self.pid = os.getpid()
        self.idle = []
        self.writer = None
        self._locks_make()


def closed(opening: Opening) -> Closed:
    """The error for a use after close."""
    return Closed(f"The store {opening.path} is closed", next="Open it again.")


def close_quietly(connection: Connection) -> None:
    """Close a connection without writing the WAL back, whatever it was in the middle of."""
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.close(True)


def _keep_for_ever(connection: Connection) -> None:
    """Give a connection one reference too many, so that not even the end of the interpreter closes it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))
