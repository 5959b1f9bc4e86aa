"""What belongs to a record that is to go: all beneath it, what hangs on it, and what points at it from elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from attrs import field, frozen

from agentmem.past import folding
from agentmem.records import tree
from agentmem.records.base import Source
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
    """The records with all beneath them: subtrees, checklist items, summaries, checkpoints; undone ones too."""
    found = Closure()
    for record, of in starts:
        if of == "project":
            _project(source, found, record)
        else:
            _take(source, found, of, record)
    _hanging(source, found)
    for record, of, hangs_on in _withdrawn(source):
        # Oldest first, so that one beneath another is found after it.
        if any(above in found for above in hangs_on):
            found.add(of, record)
    return found


def _take(source: Source, found: Closure, of: RecordType, record: int) -> None:
    if of in ("note", "entity"):
        table: tree.Table = "note" if of == "note" else "entity"
        for (beneath,) in source.rows(f"{tree.beneath(table)} SELECT id FROM beneath", (record,)):
            found.add(of, beneath)
    found.add(of, record)


def _project(source: Source, found: Closure, project: int) -> None:
    tables: tuple[RecordType, ...] = ("note", "entity", "checks", "checkpoint")
    for of in tables:
        for (record,) in source.rows(f"SELECT id FROM {of} WHERE project = ?", (project,)):
            found.add(of, record)
    sql = "SELECT DISTINCT record, type FROM event WHERE project = ? AND kind LIKE '%.withdrawn'"
    for record, of in source.rows(sql, (project,)):
        if source.row(f"SELECT 1 FROM {of} WHERE id = ?", (record,)) is None:
            found.add(of, record)
    found.add("project", project)


def _hanging(source: Source, found: Closure) -> None:
    hangs: tuple[tuple[RecordType, str], ...] = (("item", "note"), ("summary", "note"), ("checkpoint", "task"))
    notes = list(found.of.get("note", ()))
    for of, column in hangs:
        for (record,) in _in(source, f"SELECT id FROM {of} WHERE {column} IN", notes):
            found.add(of, record)


def _in(source: Source, sql: str, records: list[int], values: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The rows of a query that ends with `… IN`, for any number of records."""
    for start in range(0, len(records), _BATCH):
        part = records[start : start + _BATCH]
        yield from source.rows(f"{sql} ({', '.join('?' * len(part))})", (*part, *values))


def _withdrawn(source: Source) -> Iterator[tuple[int, RecordType, tuple[int, ...]]]:
    """Records whose creation was undone: their text is in the log still. With what they once belonged to."""
    rows = source.rows("SELECT DISTINCT record, type FROM event WHERE kind LIKE '%.withdrawn' ORDER BY record")
    for record, of in rows:
        if source.row(f"SELECT 1 FROM {of} WHERE id = ?", (record,)) is None:
            yield record, of, tuple(_belonged(events_of(source, record)))


def _belonged(events: Iterable[Event]) -> Iterator[int]:
    for event in events:
        for given in () if event.payload is None else (event.payload, event.payload.get("set", {})):
            for name in ("parent", "note", "task"):
                if given.get(name) is not None:
                    yield given[name]


def events_of(source: Source, record: int) -> list[Event]:
    """Every event of a record, in order."""
    return list(folding.events_of(source, source.binding.ledger.kinds, record))


def pointing(source: Source, found: Closure) -> list[tuple[str, int, int, str]]:
    """What points at the records from elsewhere: `("entity", note, entity, "")`, `("link", src, dst, kind)`."""
    pointers: list[tuple[str, int, int, str]] = []
    for note, entity in _in(source, "SELECT id, entity FROM note WHERE entity IN", list(found.of.get("entity", ()))):
        if note not in found:
            pointers.append(("entity", note, entity, ""))
    ends = [*found.of.get("note", ()), *found.of.get("entity", ())]
    for src, dst, kind in _in(source, "SELECT src, dst, kind FROM link WHERE dst IN", ends):
        if src not in found:
            pointers.append(("link", src, dst, kind))
    return pointers
