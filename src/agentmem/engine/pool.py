"""The connections one process has to one file: a single writer behind a lock and a few readers."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Callable
from functools import partial
from threading import get_ident
from time import monotonic
from typing import Final

import apsw

from agentmem.engine.connection import SPILL, Connection, Opening, Role, close_quietly, connect, number_of
from agentmem.engine.faults import closed, moved, newer_file
from agentmem.engine.files import identities, lock_pids, same_file
from agentmem.engine.forks import GATE
from agentmem.engine.growth import Growth
from agentmem.engine.keys import ResolvedKey
from agentmem.engine.lookup import KeyFinder
from agentmem.engine.renewal import UNDECIPHERED, renew_key, renewing
from agentmem.engine.schema import user_version
from agentmem.engine.sessions import ReadSession, Turn, WriteSession
from agentmem.engine.stays import Places, Stay
from agentmem.errors import AgentMemError, Busy, Conflict, StorageWarning

__all__ = ["READERS", "Pool"]

READERS: Final = 4
_MOMENT_SECONDS: Final = 0.01


class Reader(threading.local):
    """What one thread is reading with."""

    session: ReadSession | None = None


class Pool:
    """The connections of one process to one file.

    Attributes:
        opening: How a connection is opened.
        writing: The write transaction of one of the threads, None for none.
        writer: The one connection that writes. Only who has the place in `writing_places` touches it, `refusing` and
            `intact`.
        refusing: Empty while a commit is allowed. What asks is a hook, in C, since one in Python could be interrupted.
        intact: Not empty from BEGIN on; any rollback, SQLite's own too, empties it.
        local: The reading of each thread.
        hurried: The busy timeout of the writer is a shorter one until `write_end`.
        era: Changes whenever connections of before are to be used no more.
        mending: Held by who ends a transaction in the place of its blocks.
        watcher: The connection that is asked for `data_version`, None before the first time.
        watcher_lock: Held by who uses or replaces it.
        readers: How many may read at a time.
    """

    readers: int = READERS

    def __init__(
        self,
        opening: Opening,
        first: Connection,
        finders: tuple[KeyFinder, ...] = (),
        found: ResolvedKey | None = None,
    ) -> None:
        """Begin with a connection that is open already.

        Args:
            opening: How it was opened.
            first: The connection, a reader for a file opened for reading, else the writer.
            finders: How its key is found again, after another process changed it; none for a plain file.
            found: Its key, and where that was found.
        """
        self.opening = opening
        self.finders = finders
        self.found = found
        self.pid = os.getpid()
        self.closed = self.spoilt = False
        self.growth = Growth(opening.path)
        self.idle: list[Connection] = []
        self.writer: Connection | None = None
        self.hurried = False
        self.era = first.era = object()
        self._locks_make()
        if opening.read_only:
            self.idle.append(first)
        else:
            self._writer_take(first)
        GATE.watch(self)

    def _locks_make(self) -> None:
        self.writing: WriteSession | None = None
        self.writing_places = Places(1)
        self.reading_places = Places(self.readers)
        self.refusing: list[bool] = [True]
        self.intact: list[bool] = []
        self.local = Reader()
        self.mending = threading.RLock()
        self.watcher: Connection | None = None
        self.watcher_lock = threading.RLock()
        self._watchers = 0

    # The writer

    def inside(self) -> Stay | None:
        """The innermost block of this thread's write transaction, None where it is in none.

        A block that an interrupt ended, so that its own end did not run, is ended here.
        """
        session = self.writing
        if session is None or session.thread != get_ident():
            return None
        return session.innermost()

    def writing_take(self, session: WriteSession, wait: float, *, closing: bool = False) -> None:
        """Become the one session of this process that writes, until its `end`.

        Args:
            session: Who.
            wait: Seconds.
            closing: A closed pool will do.

        Raises:
            Busy: Another thread kept the place for longer than `wait` seconds.
            Closed: The pool was closed.
        """
        if not self.writing_places.take(session, wait):
            raise Busy(
                f"{self.opening.path} is being written to by another thread of this process",
                why="It held the write lock for longer than the busy timeout",
                next="Make transactions shorter, or open with a longer busy_timeout.",
            )
        if self.closed and not closing:
            self.writing_places.free(session)
            raise closed(self.opening.path)

    def write_begin(self, *, durable: bool = False) -> Connection:
        """Begin a write transaction, and prove that file and schema are still those that were opened.

        Args:
            durable: Its commit is synced to disk, also where the file was opened for less.

        Raises:
            StoreMissing, StoreReplaced: There is no file at the path any more, or another one.
        """
        while True:
            try:
                return self._write_begin(durable)
            except UNDECIPHERED as error:
                renew_key(self, self.opening, error)

    def _write_begin(self, durable: bool) -> Connection:
        connection = self.writer
        if connection is not None and self.outdated(connection):
            self.writer = None
            close_quietly(connection)
            connection = None
        if connection is None:
            connection = self._writer_take(connect(self.opening, "writer"))
        self.intact.clear()
        if self.opening.durability == "normal" and durable is not connection.syncs:
            connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            connection.syncs = durable
        connection.execute("BEGIN IMMEDIATE")
        self.intact.append(True)
        try:
            if connection.has_moved():
                raise moved(self.opening.path)
            self._version_check(connection)
            connection.status(SPILL, True)
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
        connection.set_commit_hook(partial(bool, self.refusing))
        connection.set_rollback_hook(self.intact.clear)
        connection.era = self.era
        self.writer = connection
        return connection

    def _writer_renew(self, left: Connection) -> None:
        """Another writer in the place of one that is to be used no more; for who has the place, outside a transaction."""
        self.writer = None
        self.hurried = False
        try:
            # Before the other is closed: with the last connection SQLite takes the WAL away.
            self._writer_take(connect(self.opening, "writer"))
        except (AgentMemError, apsw.Error):
            return  # the next write connects too, and says what is wrong
        finally:
            close_quietly(left)

    def commit(self, connection: Connection, began: float) -> None:
        """Commit what was begun at `began`, by `monotonic`.

        A block so short that it is one moment with a move of the file is not looked at twice.

        Raises:
            StoreMissing, StoreReplaced: The file was moved since the block began. It is not committed.
        """
        if monotonic() - began > _MOMENT_SECONDS and connection.has_moved():
            raise moved(self.opening.path)
        self.refusing.clear()
        connection.execute("COMMIT")

    def write_end(self) -> bool:
        """Roll back what was not committed and let no cursor outlive the block. May be done again.

        A cursor that does keeps an old snapshot, and the next BEGIN IMMEDIATE would fail at once, whatever the timeout.

        Returns:
            Whether it was committed.
        """
        self.refusing[:] = (True,)
        connection = self.writer
        if connection is None:
            return bool(self.intact)
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            spent = connection.txn_state() != apsw.SQLITE_TXN_NONE
        except apsw.ThreadingViolationError:
            raise
        except apsw.Error:
            self.intact.clear()
            spent = True
        if spent:
            close_quietly(connection)
            self.writer = None
        elif connection.era is not self.era:
            self._writer_renew(connection)
        elif self.hurried:
            connection.set_busy_timeout(round(self.opening.busy_timeout * 1000))
            self.hurried = False
        return bool(self.intact)

    # The readers

    def read_begin(self, session: ReadSession) -> Connection:
        """Begin a read transaction on a free reader; its snapshot is taken at once. The end of `session` gives it back.

        Raises:
            Busy: Other threads kept all readers for longer than the busy timeout.
        """
        if not self.reading_places.take(session, self.opening.busy_timeout):
            raise Busy(
                f"All readers of {self.opening.path} are in use in this process",
                why="Other threads kept them for longer than the busy timeout",
                next="Make read blocks shorter, or open with a longer busy_timeout.",
            )
        return renewing(self, lambda: self.snapshot_begin(session.box))

    def snapshot_begin(self, box: list[Connection]) -> Connection:
        """Begin a read transaction on an idle reader, or on one more, which is put into `box`; for who has a place."""
        self._reader_take(box)
        connection = box[0]
        try:
            connection.execute("BEGIN")
            self._version_check(connection)
        except BaseException:
            box.clear()
            close_quietly(connection)
            raise
        return connection

    def _reader_take(self, box: list[Connection]) -> None:
        while self.idle:
            try:
                box.append(self.idle.pop())
            except IndexError:  # another thread took the last one
                break
            if not self.outdated(box[0]):
                return
            close_quietly(box.pop())
        box.append(self._side_connection("reader"))

    def outdated(self, connection: Connection) -> bool:
        """Whether a connection was opened with a key that has been replaced since, or may hold what was purged since."""
        return connection.opening is not self.opening or connection.era is not self.era

    def _side_connection(self, role: Role) -> Connection:
        connection = connect(self.opening, role)
        connection.execute("PRAGMA query_only = ON").fetchall()
        connection.era = self.era
        return connection

    def data_version(self) -> int:
        """SQLite's `data_version` as the watching connection sees it."""

        def ask() -> int:
            with self.watcher_lock:
                if self.closed:
                    raise closed(self.opening.path)
                if self.watcher is not None and self.outdated(self.watcher):
                    close_quietly(self.watcher)
                    self.watcher = None
                if self.watcher is None:
                    self.watcher = self._side_connection("watcher")
                    self._watchers += 1
                # Each connection counts from a number of its own, so the numbers of two must not meet.
                return (self._watchers << 32) + number_of(self.watcher, "PRAGMA data_version")

        return renewing(self, ask)

    def checkpoint(self, wait: float) -> bool:
        """Write the WAL back and cut it.

        Args:
            wait: Seconds to wait for other threads and processes.

        Returns:
            False where a reader or writer was in the way all that time.
        """
        return self._alone(lambda connection: connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE), wait)

    def rewrite(self, wait: float) -> bool:
        """Write every page anew, through the WAL.

        Args:
            wait: Seconds to wait for other writers.

        Returns:
            False where one was in the way all that time.
        """

        def vacuum(connection: Connection) -> None:
            self.refusing.clear()
            connection.execute("VACUUM")

        return self._alone(vacuum, wait)

    def _alone(self, action: Callable[[Connection], object], wait: float) -> bool:
        """Do something with the writer outside of a transaction; False where somebody was in the way for so long."""
        try:
            with Turn(self, wait):
                self.hurried = True
                if self.writer is not None:
                    self.writer.set_busy_timeout(round(wait * 1000))
                connection = self.write_begin()
                connection.execute("ROLLBACK")
                connection.set_busy_timeout(round(wait * 1000))
                action(connection)
        except (Busy, apsw.BusyError, apsw.LockedError):
            return False
        return True

    # A new key

    def key_replace(self, fresh: Opening, found: ResolvedKey | None) -> None:
        """Go on with another key: from now on connections are opened with it, and none of the former ones is used again.

        Only for who has the place in `writing_places`. A reader in the middle of a transaction finishes.

        Args:
            fresh: How a connection is opened now.
            found: The key, and where it was found.
        """
        # An interrupt from here on is mended by who finds a connection outdated.
        self.opening = fresh
        self.found = found
        # Closed without a checkpoint: with the old key it could not decrypt what it copies.
        writer, self.writer = self.writer, None
        if writer is not None:
            close_quietly(writer)
        with self.watcher_lock:
            watcher, self.watcher = self.watcher, None
            if watcher is not None:
                close_quietly(watcher)
        self.idle_close(quietly=True)

    # The end

    def close(self, *, wait: bool = True) -> None:
        """Close what is idle now; readers in use close when they are put back. SQLite checkpoints with the last one.

        Args:
            wait: Wait for another thread's write to end; at the end of the interpreter there is nobody to wait for.
        """
        if self.pid != os.getpid() or (self.closed and self.writer is None):
            return
        if self.inside() is not None:
            if not wait:
                return
            raise Conflict(
                "A store cannot be closed inside its own write transaction", next="Close it after the block."
            )
        try:
            with Turn(self, self.opening.busy_timeout if wait else 0.0, closing=True):
                moved_away = self.has_moved()
                if moved_away:
                    self._wal_take_along()
                self._close(quietly=moved_away)
        except Busy:
            if wait:
                raise

    def discard(self) -> None:
        """Close all without writing the WAL back: for a file that is to be left alone."""
        self._close(quietly=True)

    def _close(self, *, quietly: bool) -> None:
        self.closed = True
        shut = close_quietly if quietly else Connection.close
        self.idle_close(quietly=quietly)
        with self.watcher_lock:
            if self.watcher is not None:
                shut(self.watcher)
                self.watcher = None
        # The last, so that an interrupted close is seen to be one, and can be done again.
        if self.writer is not None:
            shut(self.writer)
            self.writer = None

    def idle_close(self, *, quietly: bool = False) -> None:
        """Close the readers that nobody reads with."""
        while self.idle:
            try:
                connection = self.idle.pop()
            except IndexError:  # another thread took the last one
                break
            if quietly:
                close_quietly(connection)
            else:
                connection.close()

    def drop_pages(self) -> None:
        """Let go of what connections keep in memory: decrypted pages, and statements with the values last bound to them.

        Those in use are closed when they are put back.
        """
        self.era = object()
        self.idle_close()
        if self.inside() is not None or self.writer is None:
            return
        with contextlib.suppress(Busy), Turn(self, 0.0):
            pass  # its end renews the writer

    # A file that was moved, deleted or replaced

    def has_moved(self) -> bool:
        """Whether the path no longer leads to the file that was opened, by `stat`."""
        return not same_file(self.opening.path, self.opening.identities[0])

    def wal_ours(self) -> bool:
        """Whether the write-ahead log or its index at the path is that of the file that was opened."""
        return bool({*identities(self.opening.path)[1:]} & {*self.opening.identities[1:]} - {None})

    def _wal_take_along(self) -> None:
        """Before a close: write the WAL back into the file that was moved, wherever that is, and cut it to nothing.

        SQLite would leave it, and the next to open the path would take it for the new file's. Only where it is our own
        and nobody else uses it: else it may be the new file's already. No name is removed, for that could hit a new one.
        """
        found = identities(self.opening.path)
        if self.writer is None or found[1:] != self.opening.identities[1:] or found[2] is None:
            return
        if lock_pids(found[2]) != {os.getpid()} or GATE.others(self):
            return
        self.idle_close(quietly=True)
        try:
            self.writer.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.Error as error:
            left = f"{self.opening.path} was moved while it was open, and its write-ahead log stays behind: {error}"
            warnings.warn(left, StorageWarning, stacklevel=2)

    # Forks

    def connections(self) -> list[Connection]:
        """All that are open, those in use too."""
        found = list(self.idle)
        for session in self.reading_places.holders():
            found += session.box if isinstance(session, ReadSession) else []
        return found + [each for each in (self.watcher, self.writer) if each is not None]

    def fork_enter(self, *, spoilt: bool) -> None:
        """In the child of a fork, once the parent's connections are left behind: start afresh.

        Args:
            spoilt: This process can't use the file any more.
        """
        self.spoilt = self.spoilt or spoilt
        self.pid = os.getpid()
        self.idle = []
        self.writer = None
        self._locks_make()
