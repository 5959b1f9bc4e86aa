"""Rebuilding the full-text index after the analyser changed, piece by piece, beside other work.

The index holds text as the analyser of its day split it. With another analyser (a new version, or a
Python with another Unicode) old rows are found less well, never wrongly removed. `meta` remembers
which analyser made the index and how far a rebuild got, so that any process may go on with it.
"""

from __future__ import annotations

import threading
from typing import Any, Final

import apsw

from agentmem import text
from agentmem.engine.database import Database
from agentmem.errors import AgentMemError

_ROWS: Final = 500  # in one transaction, so that other writers wait for some 50 ms at most

# What the triggers of each table put into the index, for ids in a range.
_SOURCES: Final = (
    "SELECT id, title, concat_ws(char(10), body, why, basis), tags FROM note WHERE title IS NOT NULL",
    "SELECT id, key, attrs, concat_ws(' ', type, status) FROM entity WHERE key IS NOT NULL",
    "SELECT id, text, '', '' FROM item WHERE text IS NOT NULL AND NOT removed",
    "SELECT id, '', text, '' FROM checkpoint WHERE text IS NOT NULL",
    "SELECT id, '', concat_ws(char(10), result, work, basis), '' FROM summary WHERE coalesce(work, result) IS NOT NULL",
)
_INSERT: Final = "INSERT INTO search (rowid, title, body, extra) VALUES (?, ?, ?, ?)"


def outdated(connection: apsw.Connection) -> bool:
    """Whether another analyser made any part of the index."""
    return _meta(connection, "analyser") != text.FINGERPRINT


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
            rows = _piece(connection, after)
            for row in rows:
                connection.execute("DELETE FROM search WHERE rowid = ?", (row[0],))
                connection.execute(_INSERT, (row[0], *(text.analyse(part or "") for part in row[1:])))
            done += len(rows)
            if len(rows) < _ROWS:
                _set(connection, "analyser", text.FINGERPRINT)
                connection.execute("DELETE FROM meta WHERE name = 'analyser_next'")
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


def _piece(connection: apsw.Connection, after: int) -> list[tuple[Any, ...]]:
    """The next rows by id, whatever table they are of."""
    found: list[tuple[Any, ...]] = []
    for source in _SOURCES:
        found += connection.execute(f"{source} AND id > ? ORDER BY id LIMIT ?", (after, _ROWS)).fetchall()
    return sorted(found)[:_ROWS]


def _meta(connection: apsw.Connection, name: str) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else row[0]


def _set(connection: apsw.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
