"""What belongs to a record that is to go: all beneath it, what hangs on it, and what points at it from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import field, frozen

from agentmem.engine.migrations import GONE
from agentmem.log.canonical import canonical
from agentmem.past.event_kinds import FORGOTTEN
from agentmem.past.folding import events_of
from agentmem.records import tree
from agentmem.records.base import Source
from agentmem.records.session_rows import COMPACTED
from agentmem.types import Event, RecordType

_BATCH: Final = 500


@frozen
class Closure:
    """Records by type, each with all that belongs to it."""

    of: dict[RecordType, dict[int, None]] = field(factory=dict)

    def add(self, of: RecordType, record: int) -> bool:
        """Take a record in; whether it is new."""
        found = self.of.setdefault(of, {})
        if record in found:
            return False
        found[record] = None
        return True

    def __contains__(self, record: object) -> bool:
        return any(record in records for records in self.of.values())

    def __iter__(self) -> Iterator[int]:
        for records in self.of.values():
            yield from records

    def types(self) -> dict[str, int]:
        """How many of each type."""
        return {of: len(records) for of, records in self.of.items() if records}


def of_records(source: Source, starts: Iterable[tuple[int, RecordType]]) -> Closure:
    """The records with all beneath them: subtrees, checklist items, summaries, checkpoints; undone and merged ones too."""
    found = Closure()
    for record, of in starts:
        if of == "project":
            _project(source, found, record)
        else:
            _take(source, found, of, record)
    _hanging(source, found)
    gone = list(_rowless(source))
    # One of them may have been beneath another, older or younger than itself.
    while more := [each for each in gone if each[0] not in found and any(above in found for above in each[2])]:
        for record, of, _ in more:
            found.add(of, record)
        _hanging(source, found)
    return found


def _take(source: Source, found: Closure, of: RecordType, record: int) -> None:
    if of in ("note", "entity"):
        table: tree.Table = "note" if of == "note" else "entity"
        for (beneath,) in source.rows(f"{tree.beneath(table)} SELECT id FROM beneath", (record,)):
            found.add(of, beneath)
    if of == "session":
        for (event,) in source.rows("SELECT id FROM message WHERE session = ? AND gone = 0 ORDER BY id", (record,)):
            found.add("message", event)
    found.add(of, record)


def _project(source: Source, found: Closure, project: int) -> None:
    tables: tuple[RecordType, ...] = ("note", "entity", "checks", "checkpoint")
    for of in tables:
        for (record,) in source.rows(f"SELECT id FROM {of} WHERE project = ?", (project,)):
            found.add(of, record)
    for (record,) in source.rows("SELECT id FROM session WHERE project = ?", (project,)):
        _take(source, found, "session", record)
    sql = f"SELECT DISTINCT record, type FROM event WHERE ({GONE}) AND project = ?"
    for record, of in source.rows(sql, (project,)):
        if _gone(source, of, record):
            found.add(of, record)
    found.add("project", project)


def _hanging(source: Source, found: Closure) -> None:
    hangs: tuple[tuple[RecordType, str], ...] = (
        # Of one that was purged only the number is left.
        ("item", "text IS NOT NULL AND note"),
        ("summary", "note"),
        ("checkpoint", "task"),
    )
    notes = list(found.of.get("note", ()))
    for of, which in hangs:
        for (record,) in _in(source, f"SELECT id FROM {of} WHERE {which} IN", notes):
            found.add(of, record)


def _in(source: Source, sql: str, records: list[int], values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query that ends with `… IN`, for any number of records."""
    for start in range(0, len(records), _BATCH):
        part = records[start : start + _BATCH]
        yield from source.rows(f"{sql} ({', '.join('?' * len(part))})", (*part, *values))


def _rowless(source: Source) -> Iterator[tuple[int, RecordType, tuple[int, ...]]]:
    """Records that have no row, while their text is in the log still. With what they once belonged to."""
    rows = source.rows(f"SELECT DISTINCT record, type FROM event WHERE {GONE}")
    for record, of in rows:
        if _gone(source, of, record):
            yield record, of, tuple(_belonged(events_of(source, source.binding.ledger.kinds, record)))


def _gone(source: Source, of: RecordType, record: int) -> bool:
    """Whether a record whose creation was undone once, or that was merged, is not there now, and was not purged since."""
    if source.row(f"SELECT 1 FROM {of} WHERE id = ?", (record,)) is not None:
        return False
    (last,) = source.one("SELECT kind FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (record,))
    return not last.endswith(FORGOTTEN)


def _belonged(events: Iterable[Event]) -> Iterator[int]:
    for event in events:
        payload = event.payload or {}
        for given in (payload, payload.get("set", {}), payload.get("state", {})):
            for name in ("parent", "note", "task", "into"):
                if given.get(name) is not None:
                    yield given[name]


def pointing(source: Source, found: Closure) -> list[tuple[str, int, int, str]]:
    """What points at the records from elsewhere: `("entity", note, entity, "")`, `("link", src, dst, kind)`.

    Of a session: `("task", session, note, "")`, `("parent", session, session, "")`, `("subject", session, entity, "")`.
    """
    pointers: list[tuple[str, int, int, str]] = []
    for note, entity in _in(source, "SELECT id, entity FROM note WHERE entity IN", list(found.of.get("entity", ()))):
        if note not in found:
            pointers.append(("entity", note, entity, ""))
    ends = [*found.of.get("note", ()), *found.of.get("entity", ())]
    for src, dst, kind in _in(source, "SELECT src, dst, kind FROM link WHERE dst IN", ends):
        if src not in found:
            pointers.append(("link", src, dst, kind))
    for what, column, of in _OF_SESSIONS:
        for session, target in _in(
            source, f"SELECT id, {column} FROM session WHERE {column} IN", [*found.of.get(of, ())]
        ):
            if session not in found:
                pointers.append((what, session, target, ""))
    return pointers


_OF_SESSIONS: Final[tuple[tuple[str, str, RecordType], ...]] = (
    ("task", "task", "note"), ("parent", "parent", "session"), ("subject", "entity", "entity"),
)  # fmt: skip


# The heads of windows that quote notes and entities: a session without a task and a subject sees none of them.
_QUOTING: Final = f"""
SELECT message.id FROM session CROSS JOIN message ON message.session = session.id
WHERE session.project IN (SELECT value FROM json_each(?1)) AND (session.task IS NOT NULL OR session.entity IS NOT NULL)
    AND message.type = '{COMPACTED}' AND message.gone = 0 AND message.id > ?2
"""
# Those of a session, and of its forks and theirs.
_FORKED: Final = f"""
WITH RECURSIVE fork (id) AS (
    VALUES (?1) UNION SELECT session.id FROM fork JOIN session ON session.forked_from = fork.id
)
SELECT message.id FROM fork CROSS JOIN message ON message.session = fork.id
WHERE message.type = '{COMPACTED}' AND message.gone = 0 AND message.id > ?2
"""


def heads(source: Source, found: Closure) -> list[int]:
    """The kept heads of windows that may quote one of the records: made of other texts, as the index is, and made anew.

    An excerpt in one of them is no whole text, so looking for texts does not find it.
    """
    quoting: dict[int, None] = {}
    others = [record for of, records in found.of.items() if of not in ("session", "message") for record in records]
    if others:
        projects = {project for (project,) in _in(source, "SELECT DISTINCT project FROM event WHERE record IN", others)}
        sql = "SELECT 1 FROM session LIMIT 1"
        if source.row(sql) is not None:
            quoting |= dict.fromkeys(
                row[0] for row in source.rows(_QUOTING, (canonical(sorted(projects)), min(others)))
            )
    spoken: dict[int, int] = {session: session for session in found.of.get("session", ())}
    events = list(found.of.get("message", ()))
    for event, session in _in(source, "SELECT id, session FROM message WHERE id IN", events):
        spoken[session] = min(event, spoken.get(session, event))
    for session, first in spoken.items():
        quoting |= dict.fromkeys(row[0] for row in source.rows(_FORKED, (session, first)))
    return sorted(each for each in quoting if each not in found)
