"""What the blocks of one thread share: one transaction on one connection, ended exactly once whatever happens."""

from __future__ import annotations

from threading import get_ident
from types import TracebackType
from typing import TYPE_CHECKING

import apsw

from agentmem.engine.connection import Connection, close_quietly
from agentmem.engine.stays import Held, Stay

if TYPE_CHECKING:
    from agentmem.engine.pool import Pool

__all__ = ["ReadSession", "Turn", "WriteSession"]


class WriteSession:
    """A write transaction of one thread, or its right to one, and the blocks nested in it.

    Attributes:
        stays: The blocks, the outermost first.
        spoilt: Why nothing of it may be committed any more; empty while all is well.
    """

    __slots__ = ("_places", "pool", "spoilt", "stays", "thread")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.thread = get_ident()
        self.stays: list[Stay] = []
        self.spoilt = ""
        self._places = pool.writing_places

    def alive(self) -> bool:
        """Whether any of its blocks goes on."""
        return any(stay.alive() for stay in self.stays)

    def inherited(self) -> bool:
        """Whether this process was forked inside it: it is the parent's, and here there is nothing to end."""
        return self._places is not self.pool.writing_places

    def gone(self, stay: Stay) -> None:
        """A block is over without its end having run."""
        if not self.inherited():
            if self.thread == get_ident():
                self.innermost()
            else:
                self.lost()

    def innermost(self) -> Stay | None:
        """The innermost block that goes on, those above it ended as failed; None where there is none. For its thread."""
        stays = self.stays
        if stays and stays[-1].alive():
            return stays[-1]
        with self.pool.mending:
            while stays and not stays[-1].alive():
                if len(stays) > 1:
                    self.savepoint_end(stays[-1])
                elif not self._ended():
                    stays.clear()
        return stays[-1] if stays else None

    def _ended(self) -> bool:
        """End it where it has not been; whether it was this call that did."""
        if not self._places.holds(self):
            return False
        self.end()
        return True

    def lost(self) -> None:
        """End it if none of its blocks goes on. For any thread."""
        with self.pool.mending:
            if self.alive() or self.inherited() or not self._places.holds(self):
                return
            try:
                self.end()
            except apsw.ThreadingViolationError:
                return  # its own thread is about to find out

    def savepoint_end(self, stay: Stay) -> None:
        """Undo the innermost block, unless it was released, and tell which it was. May be done again."""
        connection = self.pool.writer
        if connection is None or not connection.in_transaction:
            kept = False
        else:
            kept = stay.released or not self._undo(connection, stay)
        if stay.tip is not None:
            stay.tip.settle(kept=kept)
        if self.stays and self.stays[-1] is stay:
            self.stays.pop()
        stay.leave()

    @staticmethod
    def _undo(connection: Connection, stay: Stay) -> bool:
        """Roll back to a savepoint and forget it; False where it was released already, or never made."""
        try:
            connection.execute("ROLLBACK TO " + stay.savepoint)
        except apsw.SQLError:  # there is none of the name
            return stay.undone
        stay.undone = True
        connection.execute("RELEASE " + stay.savepoint)
        return True

    def end(self) -> None:
        """Roll back what was not committed, tell the blocks what is kept, and give the place back. May be done again.

        The place goes last: until then no other thread changes what tells whether it was committed.
        """
        pool = self.pool
        kept = pool.write_end()
        for stay in reversed(self.stays):
            if stay.tip is not None:
                stay.tip.settle(kept=kept)
        if pool.writing is self:
            pool.writing = None
        self._places.free(self)
        for stay in self.stays:
            stay.leave()
        self.stays.clear()

    def spoil(self, stay: Stay, why: str) -> None:
        """A block was left as none may be: nothing of the transaction is kept, and every block still in it will say so."""
        self.spoilt = self.spoilt or why
        for each in self.stays:
            if each.tip is not None:
                each.tip.settle(kept=False)
        stay.leave()
        if self.thread != get_ident():
            self.lost()
            return
        connection = self.pool.writer
        if connection is not None and connection.in_transaction and self._places.holds(self):
            connection.execute("ROLLBACK")
        if stay in self.stays and len(self.stays) > 1:
            self.stays.remove(stay)
        self.innermost()


class ReadSession:
    """A read transaction of one thread and the blocks that share it.

    Attributes:
        box: The connection, while there is one: taken out and put back whole.
    """

    __slots__ = ("_places", "box", "pool", "stays", "thread")

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.thread = get_ident()
        self.stays: list[Stay] = []
        self.box: list[Connection] = []
        self._places = pool.reading_places

    def alive(self) -> bool:
        """Whether any of its blocks goes on."""
        return any(stay.alive() for stay in self.stays)

    def gone(self, stay: Stay) -> None:
        """A block is over without its end having run."""
        self.lost()

    def leave(self, stay: Stay) -> None:
        """A block ends in order; with the last one the transaction ends."""
        last = len(self.stays) == 1 or not any(each.alive() for each in self.stays if each is not stay)
        if last and self._places is self.pool.reading_places and self._places.holds(self):
            self.end()
        stay.leave()

    def lost(self) -> None:
        """End it if none of its blocks goes on. For any thread."""
        if self.alive() or self._places is not self.pool.reading_places:
            return
        with self.pool.mending:
            if not self._places.holds(self):
                return
            try:
                self.end()
            except apsw.ThreadingViolationError:
                return  # its own thread is about to find out

    def end(self) -> None:
        """End the transaction and put the connection back. May be done again."""
        pool, box = self.pool, self.box
        if box and not self._rolled_back(box[0]):
            close_quietly(box.pop())
        if box:
            # Out of the one and into the other: two sessions with one connection would mix their transactions.
            pool.idle.append(box.pop())
        if pool.closed:
            pool.idle_close()
        self._places.free(self)

    def _rolled_back(self, connection: Connection) -> bool:
        """End the transaction; whether the next reader may have the connection."""
        try:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            # A cursor that outlived the block keeps its old snapshot; the next reader must not get it.
            return connection.txn_state() == apsw.SQLITE_TXN_NONE and not self.pool.outdated(connection)
        except apsw.ThreadingViolationError:
            raise
        except apsw.Error:
            return False


class Turn(Held):
    """The writer for this thread alone, without a transaction: `with Turn(pool, wait):`."""

    __slots__ = ("_closing", "_pool", "_session", "_wait")

    def __init__(self, pool: Pool, wait: float, *, closing: bool = False) -> None:
        """Wait so many seconds for other threads; a closed pool is refused unless it is to be closed."""
        super().__init__()
        self._pool = pool
        self._wait = wait
        self._closing = closing
        self._session = WriteSession(pool)

    def __enter__(self) -> None:
        session = self._session
        self.stay = Stay(self, session)
        session.stays.append(self.stay)
        self._pool.writing_take(session, self._wait, closing=self._closing)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._session.end()
