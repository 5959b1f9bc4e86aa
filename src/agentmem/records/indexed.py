"""What the full-text index holds of each record: the same as its triggers put there, asked for by id.

The vectors of the same texts are made anew by whoever has a model; here they are only let go of.
"""

from __future__ import annotations

from typing import Any, Final

import apsw

from agentmem import text
from agentmem.engine.migrations import MARKS_TOLD
from agentmem.engine.session_tables import MESSAGE_TEXT

__all__ = ["INSERT", "TEXTLESS", "VECTORS_META", "analysed", "made_by_other", "piece", "set_maker", "vectors_forget"]

VECTORS_META: Final = ("embedded", "embedding")
"""The rows of `meta` that say how far the texts have vectors, and who is making them."""

# What the triggers of each table put into the index, for ids in a range.
_SOURCES: Final = (
    "SELECT id, title, concat_ws(char(10), body, why, basis), tags FROM note WHERE title IS NOT NULL",
    f"""
    SELECT id, key, concat_ws(char(10), attrs, {MARKS_TOLD.replace("$", "entity.")}), concat_ws(' ', type, status)
    FROM entity WHERE key IS NOT NULL
    """,
    "SELECT id, text, '', '' FROM item WHERE text IS NOT NULL AND NOT removed",
    "SELECT id, '', text, '' FROM checkpoint WHERE text IS NOT NULL",
    "SELECT id, '', concat_ws(char(10), result, work, basis), '' FROM summary WHERE coalesce(work, result) IS NOT NULL",
    f"SELECT id, '', {MESSAGE_TEXT.format(row='message')}, '' FROM message WHERE text IS NOT NULL",
)
TEXTLESS: Final = """
SELECT record FROM (SELECT DISTINCT record FROM vector)
WHERE NOT EXISTS (SELECT 1 FROM note WHERE id = record AND title IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM entity WHERE id = record AND key IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM item WHERE id = record AND text IS NOT NULL AND NOT removed)
  AND NOT EXISTS (SELECT 1 FROM checkpoint WHERE id = record AND text IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM summary WHERE id = record AND coalesce(work, result) IS NOT NULL)
  AND NOT EXISTS (SELECT 1 FROM message WHERE id = record AND text IS NOT NULL)
"""
"""Records with vectors that have no text."""
INSERT: Final = "INSERT INTO search (rowid, title, body, extra) VALUES (?, ?, ?, ?)"


def piece(connection: apsw.Connection, after: int, most: int) -> list[tuple[Any, ...]]:
    """The next indexed records by id, whatever table they are of: id and the texts of the three columns, not analysed.

    Args:
        connection: Any.
        after: Only later ids.
        most: At most so many.
    """
    found: list[tuple[Any, ...]] = []
    for source in _SOURCES:
        found += connection.execute(f"{source} AND id > ? ORDER BY id LIMIT ?", (after, most)).fetchall()
    return sorted(found)[:most]


def analysed(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """The row of the index for a row of `piece`."""
    return (row[0], *(text.analyse(part or "") for part in row[1:]))


def made_by_other(connection: apsw.Connection) -> bool:
    """Whether another analyser made any part of the index."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'analyser'").fetchone()
    return row is None or row[0] != text.FINGERPRINT


def set_maker(connection: apsw.Connection) -> None:
    """Note that all of the index was made by the analyser of this process."""
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('analyser', ?)", (text.FINGERPRINT,))
    connection.execute("DELETE FROM meta WHERE name = 'analyser_next'")


def vectors_forget(connection: apsw.Connection) -> None:
    """Let go of all vectors, and of what says that texts have theirs: else they would never be made again."""
    connection.execute("DELETE FROM vector")
    connection.execute(f"DELETE FROM meta WHERE name IN ({', '.join('?' * len(VECTORS_META))})", VECTORS_META)
