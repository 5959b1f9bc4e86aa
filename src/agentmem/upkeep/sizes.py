"""How large a store is: its file, its log, its tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import apsw
from attrs import asdict, frozen

from agentmem.errors import MissingExtra
from agentmem.records.base import View
from agentmem.records.projects import KindSize, kind_sizes

TABLES: Final = ("note", "entity", "mark", "link", "item", "checkpoint", "summary", "session", "message")

# Rows that stay for an undo, of what no answer has: items off their list, and what belongs to a note that was taken back.
_LIVE: Final = {
    "item": "SELECT count(*) FROM item JOIN note ON note.id = item.note WHERE item.removed = 0",
    "summary": "SELECT count(*) FROM summary JOIN note ON note.id = summary.note",
}


@frozen
class TableSize:
    """One table or index of the file, in whole pages.

    Attributes:
        name: As the schema names it.
        of: The table it is an index of; its own name for a table. What the full-text index keeps counts as `search`.
        pages: How many.
        bytes: Of these pages.
        unused: Bytes of them that hold nothing.
    """

    name: str
    of: str
    pages: int
    bytes: int
    unused: int


@frozen
class Stats:
    """The size of a store.

    Attributes:
        path: The file.
        file_bytes: Its size.
        wal_bytes: The size of its write-ahead log.
        page_bytes: The size of a page.
        pages: How many the file has.
        free_pages: How many of them are empty and used again before the file grows.
        events: The number of events.
        first_at: The time of the oldest event, None where there is none. Microseconds since 1970 UTC, as all times.
        last_at: The time of the latest event.
        projects: The number of projects.
        records: How many of each type, in the store; items that were taken off their list are left out.
        purge_pending: Something was purged, and a copy of it may still be in the write-ahead log.
        embedder: What made the vectors of the texts, None where there are none yet.
        vectors: How many there are; a long text has several.
        embedded: How many records have vectors.
        waiting: How many records changed since all had theirs, counted up to 1,001. Some may get none: they have no text, or
            one in a language that the embedder does not know.
        embedding_failed: Why nothing is embedded in this process, None where nothing is wrong.
        codes_bytes: Bytes of memory in this process for the search among vectors; None where it was not used yet.
        blobs: The number of long texts that the log keeps once, however many events have them.
        blob_bytes: Of these; None where the log was not asked for.
        log: Events and bytes of payload by project and kind, the largest first; None where it was not asked for.
        tables: Bytes by table and index, the largest first; None where it was not asked for.
    """

    path: Path
    file_bytes: int
    wal_bytes: int
    page_bytes: int
    pages: int
    free_pages: int
    events: int
    first_at: int | None
    last_at: int | None
    projects: int
    records: dict[str, int]
    purge_pending: bool
    embedder: str | None
    vectors: int
    embedded: int
    waiting: int
    embedding_failed: str | None
    codes_bytes: int | None
    blobs: int
    blob_bytes: int | None = None
    log: tuple[KindSize, ...] | None = None
    tables: tuple[TableSize, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return asdict(self) | {"path": str(self.path)}


def stats(
    view: View, *, log: bool, tables: bool, waiting: int, embedding_failed: str | None, codes_bytes: int | None
) -> Stats:
    """The size of the store; with `log` by kind of event, with `tables` by table, each of which reads all of its pages.

    What the search by meaning knows of itself is given.
    """
    database = view.binding.ledger.database
    return Stats(
        database.path,
        database.file_bytes(),
        database.wal_bytes(),
        view.number("PRAGMA page_size"),
        view.number("PRAGMA page_count"),
        view.number("PRAGMA freelist_count"),
        view.number("SELECT count(*) FROM event"),
        _time(view, "min"),
        _time(view, "max"),
        view.number("SELECT count(*) FROM project"),
        {table: view.number(_LIVE.get(table, f"SELECT count(*) FROM {table}")) for table in TABLES},
        view.row("SELECT 1 FROM meta WHERE name = 'purge'") is not None,
        embedder[0] if (embedder := view.row("SELECT value FROM meta WHERE name = 'embedder'")) else None,
        view.number("SELECT count(*) FROM vector"),
        view.number("SELECT count(DISTINCT record) FROM vector"),
        waiting,
        embedding_failed,
        codes_bytes,
        view.number("SELECT count(*) FROM blob"),
        view.number("SELECT coalesce(sum(octet_length(text)), 0) FROM blob") if log else None,
        kind_sizes(view, None) if log else None,
        _table_sizes(view) if tables else None,
    )


def _time(view: View, end: str) -> int | None:
    row = view.row(f"SELECT at FROM event WHERE seq = (SELECT {end}(seq) FROM event)")
    return None if row is None else row[0]


_TABLES: Final = """
SELECT dbstat.name, coalesce(sqlite_schema.tbl_name, dbstat.name), dbstat.pageno, dbstat.pgsize, dbstat.unused
FROM dbstat LEFT JOIN sqlite_schema ON sqlite_schema.name = dbstat.name
WHERE dbstat.aggregate = TRUE ORDER BY dbstat.pgsize DESC, dbstat.name
"""


def _table_sizes(view: View) -> tuple[TableSize, ...]:
    """What SQLite's own `dbstat` table tells (https://www.sqlite.org/dbstat.html)."""
    try:
        rows = view.rows(_TABLES)
    except apsw.SQLError as error:
        raise MissingExtra(
            "This build of SQLite cannot tell the sizes of tables", why=str(error), next="Leave tables= out"
        ) from error
    return tuple(
        TableSize(name, "search" if of.startswith("search_") else of, pages, size, unused)
        for name, of, pages, size, unused in rows
    )
