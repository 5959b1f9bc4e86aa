"""Whether a file is sound."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw
import attrs

from agentmem import limits
from agentmem.engine.database import Database
from agentmem.errors import InvalidInput, shown
from agentmem.log import blobs, replay
from agentmem.log.ledger import Ledger
from agentmem.records import indexed, validate
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Head

_ROWS: Final = 500  # of the index, compared in one read transaction
_INDEX_TABLES: Final = (
    "search", "search_config", "search_content", "search_data", "search_docsize", "search_idx",
)  # fmt: skip


@attrs.frozen
class Verified:
    """What `verify` found. `problems` is empty for a sound file."""

    events: int
    head: Head
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems


def accepted_head(head: object) -> Head:
    """A head as `log.head` gave it."""
    if not (isinstance(head, Head) and type(head.store) is str and type(head.chain) is str):
        raise InvalidInput(f"head is {shown(head)}", why="It is what log.head() gave, a Head")
    validate.cursor(head.seq, "head.seq")
    return head


def verify(ledger: Ledger, *, replayed: bool, independent: bool, head: Head | None) -> Verified:
    """Check the chain, the pages and the index; see `Store.verify`.

    Args:
        ledger: The log of the file.
        replayed: Fold the log and compare every projection, and what is kept of long texts.
        independent: Have stock SQLCipher check a snapshot.
        head: A head noted earlier.

    Raises:
        Corrupt: The chain is broken.
    """
    checked = ledger.check(head)
    database = ledger.database
    with database.read(long=True) as connection:
        ended = log_ended(connection)
        problems = [f"log: {ended}"] if ended else []
        problems += import_ended(connection)
        problems += index_counted(connection) + vectors_checked(connection) + pages_checked(connection)
        if replayed:
            problems += replay.differences(connection, KINDS, FUNCTIONS) + texts_counted(connection)
    problems += index_compared(database)
    if independent:
        problems += database.independent_check()
    return Verified(checked.seq, checked, tuple(problems))


def pages_checked(connection: apsw.Connection) -> list[str]:
    """What SQLite finds wrong with pages, trees and the structure of the full-text index against its own rows."""
    lines: list[str] = []
    if not _index_there(connection):
        # SQLite's check of the whole file would end at the index. What is missed: pages that belong to nothing.
        names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0").fetchall()
        found = [row for (name,) in names for row in connection.execute("SELECT * FROM pragma_quick_check(?)", (name,))]
        return ["page: FTS5 lacks its index, or a table of it", *_lines(found)]
    try:
        # FTS5 judges by what it last read of the index, and only a reading renews that.
        connection.execute("SELECT count(*) FROM search WHERE search MATCH 'a'").fetchall()
    except apsw.CorruptError as error:
        if getattr(error, "extendedresult", 0) != apsw.SQLITE_CORRUPT_VTAB:
            raise
        lines.append("FTS5 can't read its own index")
    found = connection.execute("PRAGMA quick_check(20)").fetchall()
    return [f"page: {line}" for line in lines] + _lines(found)


def _lines(found: Iterable[tuple[Any, ...]]) -> list[str]:
    """What `quick_check` says, without what is only said for people."""
    lines = [line for (told,) in found for line in str(told).splitlines()]
    return [f"page: {line}" for line in lines if line != "ok" and not line.startswith("*** in database")]


def index_counted(connection: apsw.Connection) -> list[str]:
    """Whether the full-text index was made by this analyser and holds one row for each indexed record."""
    if not _index_there(connection):
        return ["index: there is none, or it lacks a table"]
    found = ["index: made by another analyser"] if indexed.made_by_other(connection) else []
    expected = connection.execute(
        """
        SELECT (SELECT count(*) FROM note WHERE title IS NOT NULL) + (SELECT count(*) FROM entity WHERE key IS NOT NULL)
             + (SELECT count(*) FROM item WHERE text IS NOT NULL AND NOT removed)
             + (SELECT count(*) FROM checkpoint WHERE text IS NOT NULL)
             + (SELECT count(*) FROM summary WHERE coalesce(work, result) IS NOT NULL)
             + (SELECT count(*) FROM message WHERE text IS NOT NULL)
        """
    ).fetchone()
    there = connection.execute("SELECT count(*) FROM search").fetchone()
    if expected is not None and there is not None and expected != there:
        found.append(f"index: {there[0]} rows for {expected[0]} records")
    return found


def _index_there(connection: apsw.Connection) -> bool:
    """Whether there is a full-text index to read: neither its table is missing nor one of those beneath it."""
    marks = ", ".join("?" * len(_INDEX_TABLES))
    sql = f"SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND name IN ({marks})"
    return connection.execute(sql, _INDEX_TABLES).fetchall() == [(len(_INDEX_TABLES),)]


def index_compared(database: Database, *, at_most: int = 20) -> list[str]:
    """Where a row of the full-text index is not what the analyser makes of its record.

    In pieces, each a short read transaction. An index that another analyser made is passed over: it differs in every row
    and is about to be made anew.
    """
    found: list[str] = []
    after = 0
    while len(found) < at_most:
        with database.read() as connection:
            if indexed.made_by_other(connection) or not _index_there(connection):
                break
            records = indexed.piece(connection, after, _ROWS)
            last = records[-1][0] if len(records) == _ROWS else limits.INT_MAX
            sql = "SELECT rowid, title, body, extra FROM search WHERE rowid > ? AND rowid <= ?"
            rows = {row[0]: row for row in connection.execute(sql, (after, last))}
        for record in records:
            row = rows.pop(record[0], None)
            if row is None:
                found.append(f"index: #{record[0]} is missing")
            elif row != indexed.analysed(record):
                found.append(f"index: #{record[0]} has other words than its record")
        found += [f"index: #{stray} has a row and no text" for stray in rows]
        if last == limits.INT_MAX:
            break
        after = last
    return found[:at_most]


_VECTORS: Final = """
SELECT count(DISTINCT octet_length(code)), coalesce(min(octet_length(code)), 1),
       total(NOT (scale > 0 AND scale < 9e999)), total(begin < 0 OR finish < begin)
FROM vector
"""
_VECTORS_META: Final = "SELECT name, value FROM meta WHERE name IN ('embedder', 'embedded')"


def vectors_checked(connection: apsw.Connection, *, at_most: int = 20) -> list[str]:
    """What of the vectors belongs to no text, is no vector, or is said to be there and may not be.

    Whether a vector is that of its text only its embedder could tell; a text that changes loses its own by triggers.
    """
    found = [
        f"vectors: #{record} has some and no text"
        for (record,) in connection.execute(f"{indexed.TEXTLESS} LIMIT ?", (at_most,))
    ]
    sizes, smallest, scales, places = connection.execute(_VECTORS).fetchone() or (0, 1, 0, 0)
    if sizes > 1 or not smallest:
        found.append(f"vectors: their codes have {sizes} sizes" if sizes > 1 else "vectors: their codes are empty")
    if scales:
        found.append(f"vectors: {scales:.0f} have no size")
    if places:
        found.append(f"vectors: {places:.0f} have no place in their text")
    rows: list[tuple[Any, ...]] = connection.execute(_VECTORS_META).fetchall()
    known = dict(rows)
    if sizes and "embedder" not in known:
        found.append("vectors: nothing says which embedder made them")
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone() or (0,)
    embedded = known.get("embedded", "0")
    if not (embedded.isascii() and embedded.isdigit() and int(embedded) <= last):
        found.append("vectors: what says up to which event texts have theirs names none of the log")
    return found


def log_ended(connection: Any) -> str:
    """Whether the tables tell of events that the log does not reach: a chain that lost its end is whole by itself.

    Args:
        connection: Inside one read transaction; of any build of SQLite.

    Returns:
        What is wrong, empty if nothing is.
    """
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM event NOT INDEXED").fetchone()
    known = [connection.execute("SELECT coalesce(max(seq), 0) FROM event INDEXED BY event_record").fetchone()[0]]
    for table in ("project", "note", "entity", "item", "checks", "summary"):
        known += connection.execute(f"SELECT coalesce(max(revision), 0) FROM {table}").fetchone()
    if max(known) <= last:
        return ""
    return f"the log ends at event {last}, and the tables tell of event {max(known)}: later events are lost"


def import_ended(connection: Any) -> list[str]:
    """Whether the import of a whole log was interrupted, so that the store has only the beginning of that."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'importing'").fetchone()
    if row is None:
        return []
    return [f"log: the import of a log that ends at event {row[0]} was not finished; import the same export once more"]


def texts_counted(connection: apsw.Connection, *, at_most: int = 20) -> list[str]:
    """Where the long texts that are kept once are not those that the log uses.

    One that is counted too low would go with the purge of another event; one that nothing uses should have gone.
    """
    uses: dict[bytes, int] = {}
    for (payload,) in connection.execute("SELECT payload FROM event WHERE substr(payload, 1, 1) = '@'"):
        for hashed in blobs.named(payload):
            uses[hashed] = uses.get(hashed, 0) + 1
    found = []
    for hashed, counted in connection.execute("SELECT hash, uses FROM blob"):
        used = uses.pop(hashed, 0)
        if used != counted:
            found.append(f"text: one that {used} events use is counted {counted} times")
    found += ["text: one that an event uses is missing"] * len(uses)
    return found[:at_most]
