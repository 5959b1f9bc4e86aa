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

from agentmem.engine.files import Identity, identities
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
        self._preparing: list[Pool] = []
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
        self._preparing = list(self._pools)
        for pool in self._preparing:
            pool.fork_prepare(deadline)

    def _in_parent(self) -> None:
        for pool in self._preparing:
            pool.fork_release()
        self._preparing = []
        if self._held:
            self._held = False
            with contextlib.suppress(RuntimeError):  # the interrupt came before it was held
                self.opening.release()

    def _in_child(self) -> None:
        self._spoilt |= {pool.opening.path for pool in self._preparing if pool.fork_spoilt()}
        for pool in self._preparing:
            # Two pools of one file share SQLite's table of locks, so they are spoilt together.
            pool.fork_enter(spoilt=pool.opening.path in self._spoilt)
        self._preparing = []
        self._held = False
        self.opening = threading.RLock()


def spoilt_error(path: Path) -> Conflict:
    """The error for a file that this process can't use because of when it was forked."""
    return Conflict(
        f"This process was forked in the middle of a transaction on {path} that it can neither share nor leave",
        next="Fork outside transactions, or start processes by spawn.",
    )


GATE: Final = ForkGate()
