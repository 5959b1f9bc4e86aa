"""Merging the full-text index whole, so that no segment keeps a term that no record has any more.

FTS5 takes a deleted term out of the index only where it merges into the oldest segment, and that is the one of the
topmost level of its structure record. Where all segments happen to stand on one level below that, `optimize` merges
them as if there were older ones, and keeps the term with its mark of deletion (fts5_index.c, `fts5IndexOptimizeStruct`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import apsw

__all__ = ["merge_whole"]

_STRUCTURE: Final = "SELECT block FROM search_data WHERE id = 10"
_ATTEMPTS: Final = 3


def merge_whole(connection: apsw.Connection) -> None:
    """Inside a write transaction: leave one segment that holds what the rows of the index say and nothing else.

    A single segment would be left as it is: so a row is added before and deleted after. Where the merge does not reach
    the topmost level, which only a small index does again and again, the index is made anew from its rows.
    """
    for _ in range(_ATTEMPTS):
        connection.execute("INSERT INTO search (rowid, title, body, extra) VALUES (-1, 'a', '', '')")
        connection.execute("INSERT INTO search (search) VALUES ('optimize')")
        whole = _one_oldest(connection)
        connection.execute("DELETE FROM search WHERE rowid = -1")
        if whole:
            return
    connection.execute("INSERT INTO search (search) VALUES ('rebuild')")


def _one_oldest(connection: apsw.Connection) -> bool:
    """Whether the index is one segment on the topmost level.

    The structure record: four bytes of a cookie; the numbers of levels, of segments and of writes; then for each level
    the number of segments that are being merged and of all, and for each segment three numbers. All are varints.
    """
    row = connection.execute(_STRUCTURE).fetchone()
    if row is None:
        return False
    numbers = _varints(row[0][4:])
    levels, segments, _ = next(numbers), next(numbers), next(numbers)
    on_top = 0
    for _ in range(levels):
        next(numbers)
        on_top = next(numbers)
        for _ in range(3 * on_top):
            next(numbers)
    return segments == 1 and on_top == 1


def _varints(data: bytes) -> Iterator[int]:
    """The variable-length integers of SQLite one after the other."""
    value = length = 0
    for byte in data:
        length += 1
        if length == 9:
            yield value << 8 | byte
        elif byte & 0x80:
            value = value << 7 | byte & 0x7F
            continue
        else:
            yield value << 7 | byte
        value = length = 0
