"""Single records folded in memory: what one record was at any event of its own.

Only the record's own events are applied, by the same `apply` that wrote the tables. What a table keeps of a record for
others' sake, such as where its tree begins, is therefore not part of a `State`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.engine.session_tables import SEARCHED_CHARS
from agentmem.log import replay
from agentmem.log.kinds import Kinds
from agentmem.log.ledger import COLUMNS, decode
from agentmem.past.event_kinds import RESTATED, is_claim
from agentmem.records import vocabulary
from agentmem.records.base import Source
from agentmem.types import Event

# Columns that depend on other records, or on the events of others.
_OF_OTHERS: Final[Mapping[str, frozenset[str]]] = {
    "note": frozenset(("root", "shut", "open_items", "touched")),
    "session": frozenset(("status", "stop", "due", "settled", "asked", "last")),
    "message": frozenset(("open", "asks", "gone", "long")),
}
_MARK_KEY: Final = frozenset(("entity", "name", "project", "type"))
_LINK_KEY: Final = frozenset(("src", "kind", "dst"))


@frozen
class State:
    """The whole state of one record at one moment.

    Attributes:
        row: Its row by column, as the table keeps it: `tags`, `scope`, `attrs` and `names` are canonical JSON. Without
            the columns that depend on other records.
        marks: Of an entity, its marks by the name of the check: result, value (canonical JSON), detail, at, seq, author,
            run, origin.
        links: The links from it by (kind, target): seq, author, run, origin.
        known: False where an event was erased that the state rests on: what is here is then not all there was.
    """

    row: Mapping[str, Any]
    marks: Mapping[str, Mapping[str, Any]]
    links: Mapping[tuple[str, int], Mapping[str, Any]]
    known: bool = True


class Scratch:
    """Empty projections in memory, in which one record after another is folded. Use it as a context manager."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self.connection = replay.empty(kinds)
        self._known = True

    def __enter__(self) -> Scratch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.connection.close()

    def clear(self) -> None:
        """Forget what was folded, before another record."""
        for table in self._kinds.projections:
            self.connection.execute(f"DELETE FROM {table}")
        self._known = True

    def apply(self, event: Event) -> None:
        """Apply the record's next event."""
        self._kinds.apply(self.connection, event)
        if event.kind == "message.added" and event.payload is not None:
            # There are no long texts beside the tables here: this one stands in its row.
            text = vocabulary.said(event.payload["type"], event.payload["body"])[:SEARCHED_CHARS]
            sql = "UPDATE message SET text = ?, long = NULL WHERE id = ? AND long IS NOT NULL"
            self.connection.execute(sql, (text, event.seq))
        if event.payload is None:
            self._known = self._known and is_claim(event.kind)
        elif event.kind.endswith(RESTATED):
            self._known = True

    def state(self, of: str, record: int) -> State | None:
        """The record as it stands, None where it has no row: not yet, or not any more."""
        row = self._first(of, "id", record)
        if row is None:
            return None
        for name in _OF_OTHERS.get(of, ()):
            del row[name]
        marks = {each["name"]: _without(each, _MARK_KEY) for each in self._all("mark", "entity", record)}
        links = {(each["kind"], each["dst"]): _without(each, _LINK_KEY) for each in self._all("link", "src", record)}
        return State(row, marks if of == "entity" else {}, links if of in ("note", "entity") else {}, self._known)

    def _first(self, table: str, column: str, record: int) -> dict[str, Any] | None:
        return next(iter(self._all(table, column, record)), None)

    def _all(self, table: str, column: str, record: int) -> list[dict[str, Any]]:
        names = _columns(table)
        rows = self.connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {column} = ?", (record,))
        return [dict(zip(names, row, strict=True)) for row in rows]


def _without(row: dict[str, Any], keys: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in keys}


def _columns(table: str) -> tuple[str, ...]:
    return replay.tables()[table].columns


def events_of(source: Source, kinds: Kinds, record: int, *, until: int = limits.INT_MAX) -> Iterator[Event]:
    """The events of one record in order, up to and with `until`."""
    sql = f"SELECT {COLUMNS} FROM event WHERE record = ? AND seq <= ? ORDER BY seq"
    for row in source.rows(sql, (record, until)):
        yield decode(source.connection, kinds, row)
