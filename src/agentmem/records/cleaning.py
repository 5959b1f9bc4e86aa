"""What a purge asks of every process that has the file open: to drop what it remembers, and to finish the cleaning.

Each purge raises the `epoch` in `meta`; every command and reading looks at it first, and where it rose drops the caches
of this process. A reading that began before the purge may fill a cache from its own, older state of the file after that;
so it looks again at its end.

The row `purge` is there until no page holds anything of what was purged: first all pages are written anew, since SQLite
leaves copies of rows that moved in the unused parts of pages; then the write-ahead log is emptied. Where another writer
or reader is in the way, or the purging process is killed, every later writer tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import apsw

from agentmem import text
from agentmem.engine.database import Database
from agentmem.errors import AgentMemError, Conflict
from agentmem.log.ledger import Ledger

_PAUSE_SECONDS: Final = 0.5  # between two attempts to finish
_STATE: Final = "SELECT name, value FROM meta WHERE name IN ('epoch', 'purge', 'importing')"
_REWRITTEN: Final = " rewritten"  # after the seq in `purge`: only the write-ahead log is to be emptied

_drops: Final[list[Callable[[Database], None]]] = []


def dropped_by(drop: Callable[[Database], None]) -> Callable[[Database], None]:
    """Have a function called that empties a cache of this process, whenever something was purged."""
    _drops.append(drop)
    return drop


def obey(ledger: Ledger, connection: apsw.Connection, *, importing: bool = False) -> int:
    """Drop what this process remembers of the file, if something was purged since it looked last.

    Args:
        ledger: Of the file.
        connection: Inside a transaction.
        importing: It is the import of a whole log that asks, which alone may write to a store that has only a part of one.

    Returns:
        The number of purges that the transaction of `connection` sees.

    Raises:
        Conflict: A write, and the import of a whole log has not come to its end.
    """
    found = _state(connection)
    if "importing" in found and not importing and ledger.database.in_write():
        raise Conflict(
            f"The store has only a part of the log that is being imported, which ends at event {found['importing']}",
            why="An event that is written now would never be in that log",
            next="Import the same export once more: it goes on where it stopped",
        )
    ledger.unclean = found.get("purge")
    epoch = int(found.get("epoch", "0"))
    known = ledger.epoch
    if known is None or epoch > known:
        ledger.epoch = epoch
        if known is not None:
            drop_caches(ledger.database)
        # Also the first time: an empty store may have become another between its opening and this look.
        ledger.identify(connection)
    return epoch


def leave(ledger: Ledger, epoch: int) -> None:
    """At the end of a reading that saw so many purges: if it was overtaken by one, drop what it put into caches."""
    if ledger.epoch is not None and epoch < ledger.epoch:
        drop_caches(ledger.database)


def _state(connection: apsw.Connection) -> dict[str, str]:
    rows: list[tuple[Any, ...]] = connection.execute(_STATE).fetchall()
    return dict(rows)


def drop_caches(database: Database) -> None:
    """Drop what this process remembers of the text of a file: memos of words, pages and statements of connections."""
    text.forget_words()
    for drop in _drops:
        drop(database)
    database.drop_pages()


def begin(ledger: Ledger, connection: apsw.Connection, seq: int) -> None:
    """Inside the transaction of a purge: raise the epoch, and say that there is cleaning to finish."""
    epoch_raise(connection)
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('purge', ?)", (str(seq),))
    ledger.unclean = str(seq)


def epoch_raise(connection: apsw.Connection) -> None:
    """Inside a write transaction: have every process that has the file open drop what it remembers of it."""
    epoch = str(int(_state(connection).get("epoch", "0")) + 1)
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('epoch', ?)", (epoch,))


def finish(ledger: Ledger, *, wait: float = 0.0) -> bool:
    """After a purge was committed, by whomever: write all pages anew and empty the write-ahead log.

    What cannot be done now stays pending, whatever the reason: an error here would pass for one of the command that was
    committed before, and the next command meets what is wrong with the file itself.

    Args:
        ledger: Of the file.
        wait: Seconds to wait for readers and writers, for each of the two. Without, one attempt in half a second.

    Returns:
        Whether nothing is pending any more.
    """
    if ledger.unclean is None and not wait:
        return True
    if ledger.database.in_write():
        return False
    now = time.monotonic()
    if not wait and now - ledger.tried < _PAUSE_SECONDS:
        return False
    ledger.tried = now
    try:
        return _finished(ledger, wait)
    except (AgentMemError, apsw.NoMemError):
        return False


def _finished(ledger: Ledger, wait: float) -> bool:
    database = ledger.database
    # Not in a transaction that this thread may be reading in, which may not know of the purge.
    with database.read(alone=True) as connection:
        obey(ledger, connection)
        pending = _state(connection).get("purge")
    if pending is None:
        return True
    if not pending.endswith(_REWRITTEN):
        if not database.rewrite(wait=wait):
            return False
        with database.write() as connection:
            # A purge that came between has a value of its own, and its own rows in the pages.
            done = pending + _REWRITTEN
            connection.execute("UPDATE meta SET value = ? WHERE name = 'purge' AND value = ?", (done, pending))
        pending = done
    if not database.checkpoint(wait=wait):
        return False
    with database.write() as connection:
        connection.execute("DELETE FROM meta WHERE name = 'purge' AND value = ?", (pending,))
        ledger.unclean = _state(connection).get("purge")
    return True
