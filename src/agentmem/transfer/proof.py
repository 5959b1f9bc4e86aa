"""The events of a file held against what a store itself would have written, before they change anything.

Whoever wrote the file could compute a chain too. So what an event concerns must be there and of its type, what it points
at too, its payload must be one that a command writes (`shapes`), and no note or entity may come beneath itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any, Final, get_args

import apsw

from agentmem.errors import Corrupt, InvalidInput
from agentmem.log import blobs, replay
from agentmem.log.kinds import EventKind
from agentmem.records.kinds import KINDS
from agentmem.records.whole import POINTS
from agentmem.transfer import shapes
from agentmem.transfer.jsonlines import Entry, What, damaged
from agentmem.types import Event, RecordType

__all__ = ["Proof", "Rehearsal", "apply", "decoded", "pointing", "texts_keep"]

_TYPES: Final[tuple[str, ...]] = get_args(RecordType)
_ABOVE: Final = """
WITH RECURSIVE above (id, level) AS (
    VALUES (?1, 1) UNION ALL
    SELECT {table}.parent, level + 1 FROM above JOIN {table} USING (id) WHERE {table}.parent IS NOT NULL AND level < ?2
) SELECT id FROM above
"""
_LEVELS: Final = 100  # above what a command lets a tree grow to


def pointing(event: Event) -> Iterator[tuple[RecordType, int]]:
    """The records that an event's payload names, with the type each must have."""
    payload = event.payload or {}
    points = POINTS[event.type]
    for given in (payload, payload.get("set", {}), payload.get("state", {})):
        for name, of in points.items():
            if given.get(name) is not None:
                yield of, given[name]
    for name in ("dst", "into"):
        if name in payload:
            yield event.type, payload[name]
    for note, _ in payload.get("touched", ()):
        yield "note", note


class Proof:
    """Knows which records a file has made so far.

    Args:
        what: A whole log names no record that is not in it; a copy may.
    """

    def __init__(self, what: What) -> None:
        self._whole = what == "log"
        # By seq, one byte each: a long log has millions.
        self._codes = bytearray(1)
        self._types: dict[int, str] = {}

    def seen(self, entry: Entry) -> None:
        """Note what an event makes."""
        record, of = entry.header[6], entry.header[5]
        if self._whole:
            self._codes.append(_TYPES.index(of) + 1 if record == entry.header[0] else 0)
        else:
            self._types.setdefault(record, of)

    def event(self, entry: Entry, connection: apsw.Connection) -> Event:
        """The event of a line, its payload whole, once it was found to be one that a store can have.

        Args:
            entry: The line.
            connection: Where the long texts are.

        Raises:
            Corrupt: It is none.
            NewerFile: A later version wrote it.
        """
        known = KINDS.get(entry.header[3])
        event = decoded(entry, connection)
        self.seen(entry)
        try:
            self._header_check(event, known)
            shapes.checked(event)
            for of, record in pointing(event):
                self._there(of, record)
            if event.kind == "message.forgotten":
                _same_session(event, connection)
        except InvalidInput as error:
            raise damaged(entry.line, f"{error.what}. {error.why}" if error.why else error.what) from error
        return event

    def _header_check(self, event: Event, known: EventKind) -> None:
        if event.type != known.type or (known.creates and event.record != event.seq):
            raise InvalidInput(f"{event.kind} does not concern #{event.record} as a {event.type}")
        if not known.creates and event.record == event.seq:
            raise InvalidInput(f"{event.kind} makes no record")
        if self._type(event.record) != event.type:
            raise InvalidInput(f"There is no {event.type} #{event.record}")
        if self._whole and self._type(event.project) != "project":
            raise InvalidInput(f"There is no project #{event.project}")
        self._session_check(event)

    def _session_check(self, event: Event) -> None:
        """An event of a session, or of one of its own events, is in its chain; memory may be in that of one."""
        of, session = event.type, event.session
        if (of == "session" and session != event.record) or (of == "message" and session is None):
            raise InvalidInput(f"{event.kind} belongs to no session")
        if session is not None:
            self._there("session", session)

    def _there(self, of: str, record: int) -> None:
        found = self._type(record)
        if found != of and (self._whole or found is not None):
            raise InvalidInput(f"There is no {of} #{record}")

    def _type(self, record: int) -> str | None:
        if not self._whole:
            return self._types.get(record)
        code = self._codes[record] if record < len(self._codes) else 0
        return _TYPES[code - 1] if code else None


def _same_session(event: Event, connection: apsw.Connection) -> None:
    row = connection.execute("SELECT session FROM message WHERE id = ?", (event.record,)).fetchone()
    if row is not None and row[0] != event.session:
        raise InvalidInput(f"#{event.record} is an event of session #{row[0]}")


def decoded(entry: Entry, connection: apsw.Connection) -> Event:
    """The event of a line, its payload whole and as the current version spells it."""
    payload = entry.payload
    if entry.stored is not None and entry.stored.startswith("@"):
        payload = blobs.whole(connection, entry.stored)
    if payload is not None:
        payload = KINDS.upcast(entry.header[3], entry.header[4], payload)
    fields: tuple[Any, ...] = (*entry.header, payload, entry.digest, entry.chain)
    return Event(*fields)


def apply(event: Event, connection: apsw.Connection, line: int) -> None:
    """Have an event of a file change the projections.

    Raises:
        Corrupt: They cannot be what it makes of them.
    """
    for of, parent in _parents(event):
        above = [row[0] for row in connection.execute(_ABOVE.format(table=of), (parent, _LEVELS))]
        if event.record in above or len(above) >= _LEVELS:
            raise damaged(line, f"Event {event.seq} puts #{event.record} beneath itself, or too deep")
    try:
        KINDS.apply(connection, event)
    except apsw.ConstraintError as error:
        raise damaged(line, f"Event {event.seq} makes a record that is there already ({error})") from error


def _parents(event: Event) -> Iterator[tuple[str, int]]:
    if event.type in ("note", "entity") and event.payload is not None:
        for given in (event.payload, event.payload.get("set", {}), event.payload.get("state", {})):
            if given.get("parent") is not None:
                yield event.type, given["parent"]


class Rehearsal:
    """The events of a file folded in memory, never on disk: what it comes to, known before anything is written.

    Use it as a context manager.

    Attributes:
        connection: The projections so far, under the ids of the file.
    """

    def __init__(self, what: What) -> None:
        self._proof = Proof(what)
        self.connection = replay.empty(KINDS)
        replay.create(self.connection, ("blob",))
        for table in KINDS.projections:
            for statement in replay.tables()[table].late:
                if statement.startswith("CREATE UNIQUE"):
                    self.connection.execute(statement.format(schema="main"))
        self.connection.execute("BEGIN")

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the memory back."""
        self.connection.close()

    def take(self, entry: Entry) -> Event:
        """Prove the next event and apply it.

        Raises:
            Corrupt: It is none that a store can have.
            NewerFile: A later version wrote it.
        """
        texts_keep(self.connection, entry)
        event = self._proof.event(entry, self.connection)
        apply(event, self.connection, entry.line)
        return event


_TEXT: Final = "INSERT OR IGNORE INTO blob (hash, text, uses) VALUES (?, ?, 0)"
_USED: Final = "UPDATE blob SET uses = uses + 1 WHERE hash = ?"


def texts_keep(connection: apsw.Connection, entry: Entry) -> None:
    """Put the long texts of an event where its payload finds them, and count that it uses them.

    Raises:
        Corrupt: A text that stands earlier in the file is not there.
    """
    for hashed, text in entry.texts.items():
        connection.execute(_TEXT, (hashed, text))
    if entry.stored is not None and entry.stored.startswith("@"):
        for hashed in blobs.named(entry.stored):
            connection.execute(_USED, (hashed,))
            if connection.changes() != 1:
                raise Corrupt("A long text of the log is missing", next="Restore the latest backup that verifies")
