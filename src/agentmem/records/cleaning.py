"""What a purge asks of every process that has the file open: to drop what it remembers, and to empty the WAL.

Each purge raises the `epoch` in `meta`; every command and reading looks at it first, and where it changed drops the
caches of this process. The row `purge` is there for as long as the write-ahead log could not be emptied, because a
reader somewhere still needed it: every later writer tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import apsw

from agentmem import text
from agentmem.engine.database import Database
from agentmem.log.ledger import Ledger

_PAUSE_SECONDS: Final = 0.5  # between two attempts to empty the WAL
_STATE: Final = "SELECT name, value FROM meta WHERE name IN ('epoch', 'purge')"

_drops: Final[list[Callable[[Database], None]]] = []


def dropped_by(drop: Callable[[Database], None]) -> Callable[[Database], None]:
    """Have a function called that empties a cache of this process, whenever something was purged."""
    _drops.append(drop)
    return drop


def obey(ledger: Ledger, connection: apsw.Connection) -> None:
    """Drop what this process remembers of the file, if something was purged since it looked last."""
    found = _state(connection)
    ledger.unclean = found.get("purge")
    epoch = found.get("epoch", "0")
    if ledger.epoch != epoch:
        if ledger.epoch is not None:
            drop_caches(ledger.database)
            ledger.identify(connection)
        ledger.epoch = epoch


def _state(connection: apsw.Connection) -> dict[str, str]:
    rows: list[tuple[Any, ...]] = connection.execute(_STATE).fetchall()
    return dict(rows)


def drop_caches(database: Database) -> None:
    """Drop what this process remembers of the text of a file: memos of words, pages of idle connections."""
    text.forget_words()
    for drop in _drops:
        drop(database)
    database.drop_pages()


def begin(ledger: Ledger, connection: apsw.Connection, seq: int) -> None:
    """Inside the transaction of a purge: raise the epoch, and say that the WAL is to be emptied."""
    epoch = str(int(_state(connection).get("epoch", "0")) + 1)
    for name, value in (("epoch", epoch), ("purge", str(seq))):
        connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
    ledger.unclean = str(seq)


def finish(ledger: Ledger, *, wait: float = 0.0) -> bool:
    """After a purge was committed, by whomever: empty the WAL.

    Args:
        ledger: Of the file.
        wait: Seconds to wait for readers and writers.

    Returns:
        Whether nothing is pending any more.
    """
    pending = ledger.unclean
    if pending is None:
        return True
    database = ledger.database
    if database.in_write():
        return False
    now = time.monotonic()
    if not wait and now - ledger.tried < _PAUSE_SECONDS:
        return False
    ledger.tried = now
    if not database.checkpoint(wait=wait):
        return False
    with database.write() as connection:
        # A purge that came between has a value of its own, and its own pages in the WAL.
        connection.execute("DELETE FROM meta WHERE name = 'purge' AND value = ?", (pending,))
    ledger.unclean = None
    return True
