"""The write-ahead log kept small: cut after a commit where it has grown large, and whoever prevents that is named.

A reader needs the log as it was when it began, so none of what came later can be written back before it ends. SQLite
tries after each commit and never waits; readers that always overlap could keep the log for ever. So where it is large,
a commit waits for a moment now and then until those that read just now have ended: those that begin meanwhile are no
obstacle. A reader that goes on for longer is one that somebody should know of.
"""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

import apsw

from agentmem.engine.connection import Connection
from agentmem.engine.files import beside, size_of, wal_readers

if TYPE_CHECKING:
    from agentmem.engine.pool import Pool

__all__ = ["LARGE_BYTES", "Growth"]

LARGE_BYTES: Final = 64 * 1024 * 1024
# How long a commit waits, longer after each time in vain; and it waits for a twentieth of the time at most.
_WAIT_SECONDS: Final = 0.05
_WAIT_SECONDS_MOST: Final = 0.4
_SPARED: Final = 20
_WARN_SECONDS: Final = 60.0

# When this process last warned, by `monotonic`, whatever the file.
_warned: Final[list[float]] = []


class Growth:
    """The write-ahead log of one open file."""

    def __init__(self, path: Path) -> None:
        """Look at nothing yet."""
        self._path = path
        self._wal = str(beside(path, "-wal"))
        self._wait = _WAIT_SECONDS
        self._next = 0.0

    def after_commit(self, pool: Pool, connection: Connection) -> str:
        """Where the log is large, try to cut it; with the writer's place held and no transaction open.

        Returns:
            What to warn of once the place is given back: that somebody prevents it, at most once a minute in this
            process. Mostly nothing.
        """
        try:
            large = os.stat(self._wal).st_size > LARGE_BYTES  # 1.5 µs
        except OSError:
            return ""
        if not large or monotonic() < self._next:
            return ""
        wait, self._wait = self._wait, min(2 * self._wait, _WAIT_SECONDS_MOST)
        self._next = monotonic() + _SPARED * wait
        pool.hurried = True  # first, so that the timeout is put back also after an interrupt
        connection.set_busy_timeout(round(wait * 1000))
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except (apsw.BusyError, apsw.LockedError):
            return self._warning(f"{self._holders()}, so that it cannot be cut; have that reading ended")
        except apsw.Error as error:
            # What was committed is safe in it, so the commit has not failed.
            return self._warning(f"it cannot be written back: {error}")
        self._wait = _WAIT_SECONDS
        return ""

    def _warning(self, why: str) -> str:
        now = monotonic()
        if _warned and now - _warned[0] < _WARN_SECONDS:
            return ""
        _warned[:] = (now,)
        size = size_of(Path(self._wal)) // (1024 * 1024)
        return f"The write-ahead log of {self._path} has grown to {size} MiB: {why}"

    def _holders(self) -> str:
        """Who reads, as far as the system tells."""
        pids = wal_readers(self._path)
        named = [f"pid {pid}" + (" (this process)" if pid == os.getpid() else "") for pid in pids if pid > 0]
        if not named:
            return "a process has been reading for long"
        return f"{' and '.join(named)} {'have' if len(named) > 1 else 'has'} been reading for long"
