"""Rebuilding the full-text index after the analyser changed, piece by piece, beside other work.

The index holds text as the analyser of its day split it. With another analyser (a new version, or a
Python with another Unicode) old rows are found less well, never wrongly removed. `meta` remembers
which analyser made the index and how far a rebuild got, so that any process may go on with it.
"""

from __future__ import annotations

import threading
from typing import Final

import apsw

from agentmem import text
from agentmem.engine.database import Database
from agentmem.errors import AgentMemError
from agentmem.records import indexed

_ROWS: Final = 500  # in one transaction, so that other writers wait for some 50 ms at most


def outdated(connection: apsw.Connection) -> bool:
    """Whether another analyser made any part of the index."""
    return indexed.made_by_other(connection)


def rebuild(database: Database, *, stop: threading.Event | None = None) -> int:
    """Make the index anew where another analyser made it; goes on where an earlier rebuild was stopped.

    Args:
        database: The open file.
        stop: Ends the rebuild after the present piece.

    Returns:
        How many rows were made anew.
    """
    done = 0
    while stop is None or not stop.is_set():
        with database.write() as connection:
            if not outdated(connection):
                return done
            begun = _meta(connection, "analyser_next")
            named, _, reached = (begun or "").partition(" ")
            after = int(reached) if named == text.FINGERPRINT and reached else 0
            rows = indexed.piece(connection, after, _ROWS)
            for row in rows:
                connection.execute("DELETE FROM search WHERE rowid = ?", (row[0],))
                connection.execute(indexed.INSERT, indexed.analysed(row))
            done += len(rows)
            if len(rows) < _ROWS:
                indexed.set_maker(connection)
            else:
                _set(connection, "analyser_next", f"{text.FINGERPRINT} {rows[-1][0]}")
    return done


def in_background(database: Database) -> threading.Thread:
    """Rebuild in a thread that does not keep the process alive."""
    thread = threading.Thread(target=_quietly, args=(database,), name="agentmem-reindex", daemon=True)
    thread.start()
    return thread


def _quietly(database: Database) -> None:
    try:
        rebuild(database)
    except AgentMemError:
        # The file was closed, or is busy or read-only: what is done is kept, and the next opening goes on.
        return


def _meta(connection: apsw.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _set(connection: apsw.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
