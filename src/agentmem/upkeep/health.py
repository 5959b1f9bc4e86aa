"""Whether a file is sound, and how large it is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import attrs

from agentmem import text
from agentmem.errors import InvalidInput, shown
from agentmem.log import replay
from agentmem.log.ledger import Ledger
from agentmem.records import validate
from agentmem.records.base import View
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Head


@attrs.frozen
class Verified:
    """What `verify` found. `problems` is empty for a sound file."""

    events: int
    head: Head
    problems: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.problems


@attrs.frozen
class Stats:
    """The size of a store: bytes of the file and of its write-ahead log, records by type, events."""

    path: Path
    file_bytes: int
    wal_bytes: int
    events: int
    projects: int
    records: dict[str, int]

    def to_dict(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return attrs.asdict(self) | {"path": str(self.path)}


def accepted_head(head: object) -> Head:
    """A head as `log.head` gave it."""
    if not (isinstance(head, Head) and type(head.store) is str and type(head.chain) is str):
        raise InvalidInput(f"head is {shown(head)}", why="It is what log.head() gave, a Head")
    validate.cursor(head.seq, "head.seq")
    return head


def verify(ledger: Ledger, *, replayed: bool, independent: bool, head: Head | None) -> Verified:
    """Check the chain, the index and the pages; with `replayed` the projections, with `independent` by stock SQLCipher."""
    events = ledger.check(head)
    problems: list[str] = []
    with ledger.database.read(long=True) as connection:
        # The index is read first: FTS5 judges by what it last read of it, and only a reading renews that.
        problems += _index_problems(connection)
        for (line,) in connection.execute("PRAGMA quick_check(20)").fetchall():
            if line != "ok":
                problems.append(f"page: {line}")
        if replayed:
            problems += replay.differences(connection, KINDS, FUNCTIONS)
    if independent:
        problems += ledger.database.independent_check()
    return Verified(events, ledger.head(), tuple(problems))


def stats(view: View) -> Stats:
    """The size of the store: its file and its log, records by type."""
    tables = ("note", "entity", "mark", "link", "item", "checkpoint", "summary")
    database = view.binding.ledger.database
    return Stats(
        database.path,
        database.file_bytes(),
        database.wal_bytes(),
        view.number("SELECT count(*) FROM event"),
        view.number("SELECT count(*) FROM project"),
        {table: view.number(f"SELECT count(*) FROM {table}") for table in tables},
    )


def _index_problems(connection: apsw.Connection) -> list[str]:
    """Whether the full-text index was made by this analyser and holds one row for each indexed record."""
    row = connection.execute("SELECT value FROM meta WHERE name = 'analyser'").fetchone()
    found = []
    if row is None or row[0] != text.FINGERPRINT:
        found.append("index: made by another analyser")
    expected = connection.execute(
        """
        SELECT (SELECT count(*) FROM note WHERE title IS NOT NULL) + (SELECT count(*) FROM entity WHERE key IS NOT NULL)
             + (SELECT count(*) FROM item WHERE text IS NOT NULL AND NOT removed)
             + (SELECT count(*) FROM checkpoint WHERE text IS NOT NULL)
             + (SELECT count(*) FROM summary WHERE coalesce(work, result) IS NOT NULL)
        """
    ).fetchone()
    there = connection.execute("SELECT count(*) FROM search").fetchone()
    if expected != there:
        found.append(f"index: {there} rows for {expected} records")
    return found
