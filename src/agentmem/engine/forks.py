"""What a fork does to open connections, and how a child gets sound ones.

SQLite keeps, per process and inode, a table of the POSIX locks it holds. A forked child inherits the table but not the
locks: a connection opened there beside the inherited ones would believe in locks it hasn't got, and its acknowledged
writes would go once the parent checkpoints; after a fork inside a write transaction it would wait for ever. So the
child first closes the inherited connections without a checkpoint, which empties the table (POSIX locks being per
process, the parent's stay), and opens its own when it needs them. Before the fork, threads in the middle of SQLite are
waited for, because a mutex held at that moment stays held in the child.
"""

from __future__ import annotations

import contextlib
import os
import threading
import weakref
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from agentmem.engine.connection import SPILL, Connection, close_quietly
from agentmem.engine.files import Identity, identities
from agentmem.engine.stays import Place
from agentmem.errors import Conflict, StoreReplaced

if TYPE_CHECKING:
    from agentmem.engine.pool import Pool

__all__ = ["FORK_WAIT_SECONDS", "GATE", "ForkGate", "spoilt_error"]

FORK_WAIT_SECONDS: Final = 5.0


class ForkGate:
    """Knows every pool of the process. Python is asked to tell of forks when the first file is opened, not on import.

    Attributes:
        opening: Held while a connection exists that no pool knows of yet.
    """

    def __init__(self) -> None:
        self.opening = threading.RLock()
        self._pools: weakref.WeakSet[Pool] = weakref.WeakSet()
        self._stilled: list[_Stilled] = []
        self._spoilt: set[Path] = set()
        self._held = False
        self._watching = False

    def watch(self, pool: Pool) -> None:
        """Know of a pool at the next fork."""
        self._pools.add(pool)
        if not self._watching and hasattr(os, "register_at_fork"):
            self._watching = True
            os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)

    def check(self, path: Path) -> None:
        """Refuse a file that this process inherited in the middle of a transaction.

        Raises:
            Conflict: See `ForkGate`.
            StoreReplaced: The process has the file open that was at the path before, and its WAL is still there.
        """
        if path in self._spoilt:
            raise spoilt_error(path)
        for pool in self._open():
            if pool.opening.path == path and pool.writer is not None and pool.has_moved() and pool.wal_ours():
                raise StoreReplaced(
                    f"This process still has the former file at {path} open",
                    why="Its write-ahead log lies there and would be taken for the new file's",
                    next="Close the store of the former file first.",
                )

    def others(self, pool: Pool) -> bool:
        """Whether this process has the path of a pool open a second time."""
        return any(each is not pool and each.opening.path == pool.opening.path for each in self._open())

    def has(self, identity: Identity) -> bool:
        """Whether a file is a database that this process has open, or one of the files beside it."""
        return any(identity in identities(each.opening.path) for each in self._open())

    def _open(self) -> list[Pool]:
        return [each for each in list(self._pools) if not each.closed]

    def _before(self) -> None:
        deadline = monotonic() + FORK_WAIT_SECONDS
        # Written down first: an interrupt in between must not leave it held for ever.
        self._held = True
        self._held = self.opening.acquire(timeout=FORK_WAIT_SECONDS)
        self._stilled = [_Stilled(pool) for pool in list(self._pools)]
        for each in self._stilled:
            each.take(deadline)

    def _in_parent(self) -> None:
        for each in self._stilled:
            each.release()
        self._stilled = []
        if self._held:
            self._held = False
            with contextlib.suppress(RuntimeError):  # the interrupt came before it was held
                self.opening.release()

    def _in_child(self) -> None:
        self._spoilt |= {each.path for each in self._stilled if each.spoilt()}
        for each in self._stilled:
            # Two pools of one file share SQLite's table of locks, so they are spoilt together.
            each.leave_behind(spoilt=each.path in self._spoilt)
        self._stilled = []
        self._held = False
        self.opening = threading.RLock()


class _Stilled:
    """A pool that is kept still for a fork: no other thread is inside SQLite or a transaction."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._places: list[Place] = []
        self._ready = False

    @property
    def path(self) -> Path:
        """The file."""
        return self._pool.opening.path

    def take(self, deadline: float) -> None:
        """Before a fork: wait until it is still, and keep it so.

        Args:
            deadline: When to give up, by `monotonic`: a thread may be waiting for the one that forks.
        """
        pool = self._pool
        wanted = [] if pool.inside() is not None else [pool.writing_places]
        reading = pool.local.session
        wanted += [pool.reading_places] * (pool.readers - (reading is not None and reading.alive()))
        for places in wanted:
            self._places.append(Place())
            if not places.take(self._places[-1], max(0.0, deadline - monotonic())):
                return
        self._ready = pool.watcher_lock.acquire(timeout=max(0.0, deadline - monotonic()))

    def release(self) -> None:
        """After a fork, in the parent: go on."""
        pool = self._pool
        for place in self._places:
            pool.writing_places.free(place)
            pool.reading_places.free(place)
        with contextlib.suppress(RuntimeError):  # it was not reached
            pool.watcher_lock.release()

    def spoilt(self) -> bool:
        """In the child: whether what was inherited can neither be shared nor left.

        A transaction of the forking thread stays the parent's alone. If it was so large that a part of it is in the WAL
        already, closing it here would undo it in memory that the parent shares.
        """
        pool = self._pool
        spilled = pool.writing is not None and pool.writer is not None and pool.writer.status(SPILL)[0] > 0
        return spilled or not self._ready

    def leave_behind(self, *, spoilt: bool) -> None:
        """In the child: leave the parent's connections behind and start afresh.

        Args:
            spoilt: Leave them untouched for ever; this process can't use the file.
        """
        for connection in self._pool.connections():
            if spoilt:
                _keep_for_ever(connection)
            else:
                close_quietly(connection)
        self._pool.fork_enter(spoilt=spoilt)


def _keep_for_ever(connection: Connection) -> None:
    """Give a connection one reference too many, so that not even the end of the interpreter closes it."""
    import ctypes

    ctypes.pythonapi.Py_IncRef(ctypes.py_object(connection))


def spoilt_error(path: Path) -> Conflict:
    """The error for a file that this process can't use because of when it was forked."""
    return Conflict(
        f"This process was forked in the middle of a transaction on {path} that it can neither share nor leave",
        next="Fork outside transactions, or start processes by spawn.",
    )


GATE: Final = ForkGate()
