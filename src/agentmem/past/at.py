"""A store as it was: the log up to one event, folded in memory, behind the connection every reading goes by.

TEMP tables with the names of the projections, which SQLite keeps in memory (`temp_store`), stand before those of the
file; a TEMP view stands before the log and ends at the event. So every reading works unchanged, no event is copied, and
nothing of it is written to disk. What is purged afterwards goes with the file's own payload: the fold is made anew when
the store's `epoch` was raised, after a fork, and under a new key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

import attrs
from attrs import frozen

from agentmem import limits
from agentmem.engine.connection import Connection, close_quietly, connect
from agentmem.engine.database import Database
from agentmem.engine.faults import closed
from agentmem.engine.forks import GATE
from agentmem.engine.pool import Pool
from agentmem.engine.transactions import WriteBlock
from agentmem.errors import NotFound, NotInPast, ReadOnly, shown
from agentmem.log import replay
from agentmem.log.kinds import Kinds
from agentmem.log.ledger import COLUMNS, decode
from agentmem.past.event_kinds import RESTATED, is_claim
from agentmem.records.cleaning import dropped_by
from agentmem.types import Event, RecordType

__all__ = ["Moment", "PastDatabase", "moment"]

_EMPTY: Final = ("lease", "request")  # operational tables that have no past
_KEPT: Final = "kept"  # the records that a view of one project has


@frozen
class Moment:
    """A place in the log.

    Attributes:
        seq: The last event that counts; 0 for the empty store.
        at: The time of that event, microseconds; before the first one the time that was asked for, or 0.
        project: The id of the asker's project, None where there is no such project.
        name: What that was called then.
        partial: Whether only this project is folded, the log being too long for all.
    """

    seq: int
    at: int
    project: int | None
    name: str
    partial: bool


_ID_OF: Final = "SELECT id FROM project WHERE name = ?"
_LAST: Final = "SELECT coalesce(max(seq), 0) FROM event"
# Order is seq: clocks may go back, and then a later event can have an earlier time.
_LAST_UNTIL: Final = "SELECT seq FROM event WHERE at <= ? AND seq <= ? ORDER BY seq DESC LIMIT 1"
_TIME_OF: Final = "SELECT at FROM event WHERE seq = ?"
_NAME_THEN: Final = """
SELECT coalesce(payload ->> '$.set.name', payload ->> '$.name', payload ->> '$.state.name') FROM event
WHERE record = ? AND seq <= ? AND payload IS NOT NULL ORDER BY seq DESC
"""


def moment(database: Database, project: str, *, seq: int | None, time: int | None) -> Moment:
    """The moment that a caller means, by what is committed.

    Args:
        database: The open file, or a view of its past, beyond which one cannot go.
        project: The name of the asker's project now.
        seq: The last event that counts.
        time: Instead of it: the last event with an earlier or equal time.

    Raises:
        NotFound: The log ends before that event.
    """
    past = database if isinstance(database, PastDatabase) else None
    # Of a view of the past: by the names of then, and in a log of which it may have a part only.
    with database.read(alone=past is None) as connection:
        known = connection.execute(_ID_OF, (project,)).get
        last = connection.execute(_LAST).get if past is None else past.moment.seq
    root = database if past is None else past.parent
    with root.read(alone=True) as connection:
        if time is not None:
            seq = connection.execute(_LAST_UNTIL, (time, last)).get or 0
        assert seq is not None  # one of the two is given
        if seq > last:
            raise NotFound(f"There is no event {shown(seq)}", why=f"The log ends at event {last}")
        at = connection.execute(_TIME_OF, (seq,)).get
        name = _named_then(connection, known, seq) or project
    return Moment(seq, (time or 0) if at is None else at, known, name, seq > limits.AT_EVENTS)


def _named_then(connection: Connection, project: int | None, seq: int) -> str | None:
    """What a project was called at an event; None before its creation."""
    names = connection.execute(_NAME_THEN, (project, seq))
    return next((str(found) for (found,) in names if found is not None), None)


class PastPool(Pool):
    """One reader with the fold in its TEMP tables. Threads take turns on it: a second one would hold everything twice."""

    readers = 1

    def __init__(self, parent: Pool, kinds: Kinds, moment: Moment) -> None:
        self._parent = parent
        self._followed = parent.opening
        self._kinds = kinds
        self._moment = moment
        self._folded: Connection | None = None
        self._epoch = ""
        with GATE.opening:
            # Read-only below SQL too: an event that meant a table which has no TEMP one would fail, not write.
            opening = attrs.evolve(parent.opening, read_only=True)
            super().__init__(opening, connect(opening, "reader"), parent.finders, parent.found)

    def outdated(self, connection: Connection) -> bool:
        """Also one whose fold is to be made anew; found so after a reading, it is closed."""
        return connection is not self._folded or super().outdated(connection)

    def unfold(self) -> None:
        """Have the fold made anew at the next reading. One that goes on keeps its fold to its end."""
        self._folded = None
        self.idle_close(quietly=True)

    @property
    def orphan(self) -> bool:
        """Whether the store it came from was closed."""
        return self._parent.closed

    def snapshot_begin(self, box: list[Connection]) -> Connection:
        """Begin a read transaction on the one reader, with the fold in it."""
        self._follow()
        while True:
            connection = super().snapshot_begin(box)
            try:
                epoch = connection.execute("SELECT value FROM main.meta WHERE name = 'epoch'").get or ""
                # Asked of the connection: another thread may have it unfolded just now.
                fresh = connection.execute("SELECT count(*) FROM temp.sqlite_schema").get == 0
                if not fresh and connection is self._folded and epoch == self._epoch:
                    return connection
                if fresh:
                    _fold(connection, self._kinds, self._moment)
                    connection.execute("COMMIT")  # a reading ends with a rollback, which would take the tables along
                    self._folded, self._epoch = connection, epoch
            except BaseException:
                self._drop(box, connection)
                raise
            if fresh:
                self.idle.append(box.pop())
            else:
                self._drop(box, connection)  # it holds what was purged since

    def _drop(self, box: list[Connection], connection: Connection) -> None:
        self._folded = None
        box.clear()
        close_quietly(connection)

    def _follow(self) -> None:
        """Go on with the key that the store it came from has by now."""
        opening = self._parent.opening
        if opening is not self._followed:
            self._followed = opening
            if opening.key != self.opening.key:
                self.key_replace(attrs.evolve(self.opening, key=opening.key), self._parent.found)


def _fold(connection: Connection, kinds: Kinds, moment: Moment) -> None:
    """Fill the TEMP tables of a connection, inside its read transaction."""
    connection.execute("PRAGMA query_only = OFF").fetchall()
    replay.create(connection, kinds.projections, schema="temp")
    unknown: dict[int, RecordType] = {}
    replay.apply_all(connection, kinds, _noting(_events(connection, kinds, moment), unknown))
    for record, of in unknown.items():
        for statement in _BLANK[of]:
            connection.execute(statement, (record,))
    replay.index(connection, kinds.projections, schema="temp")
    for table in _EMPTY:
        replay.create(connection, (table,), schema="temp")
        replay.index(connection, (table,), schema="temp")
    # There is no index of the words of then. What asks the index all the same gets an error, not the words of now.
    connection.execute("CREATE TABLE temp.search (title, body, extra)")
    bounds = f"seq <= {moment.seq}"
    if moment.partial:
        bounds += f" AND (type = 'project' OR record IN (SELECT record FROM temp.{_KEPT}))"
    connection.execute(f"CREATE TEMP VIEW event AS SELECT * FROM main.event WHERE {bounds}")
    connection.execute("PRAGMA query_only = ON").fetchall()


# What makes a stub of a record of which an event was erased: what it was just then is not known any more, and half of it
# would pass for the whole.
_BLANK: Final[Mapping[RecordType, tuple[str, ...]]] = {
    "note": ("UPDATE note SET title = NULL, body = NULL, why = NULL, basis = NULL, source = NULL WHERE id = ?",),
    "entity": ("UPDATE entity SET key = NULL, attrs = '{}' WHERE id = ?", "DELETE FROM mark WHERE entity = ?"),
    "item": ("UPDATE item SET text = NULL WHERE id = ?",),
    "summary": ("UPDATE summary SET work = NULL, result = NULL, basis = NULL WHERE id = ?",),
    "checkpoint": ("UPDATE checkpoint SET text = NULL WHERE id = ?",),
    "checks": ("UPDATE checks SET names = '[]' WHERE id = ?",),
    "project": (),
    "session": ("UPDATE session SET title = NULL, agent = NULL, metadata = '{}' WHERE id = ?",),
    "message": ("UPDATE message SET text = NULL, long = NULL, key = NULL WHERE id = ?",),
}


def _noting(log: Iterable[Event], unknown: dict[int, RecordType]) -> Iterator[Event]:
    """The events, those records noted on the way that rest on an erased one and were not stated anew since."""
    for event in log:
        if event.payload is None:
            if not is_claim(event.kind):
                unknown[event.record] = event.type
        elif unknown and event.kind.endswith(RESTATED):
            unknown.pop(event.record, None)
        yield event


def _events(connection: Connection, kinds: Kinds, moment: Moment) -> Iterator[Event]:
    sql = f"SELECT {COLUMNS} FROM main.event WHERE seq <= ?"
    if moment.partial:
        connection.execute(f"CREATE TABLE temp.{_KEPT} (record INTEGER PRIMARY KEY)")
        connection.execute(
            f"INSERT INTO {_KEPT} SELECT DISTINCT record FROM main.event INDEXED BY event_project WHERE project = ?",
            (moment.project,),
        )
        # The events of a session that came from another project were written there.
        connection.execute(
            f"INSERT OR IGNORE INTO {_KEPT} SELECT event.seq FROM {_KEPT} CROSS JOIN main.event"
            f" ON event.session = {_KEPT}.record WHERE event.kind = 'message.added'"
        )
        sql += f" AND (type = 'project' OR record IN (SELECT record FROM {_KEPT}))"
    for row in connection.execute(f"{sql} ORDER BY seq", (moment.seq,)):
        yield decode(connection, kinds, row)


class PastDatabase(Database):
    """A file as it was at one moment: only reading. Closing it closes nothing but the view."""

    _pool: PastPool

    def __init__(self, parent: Database, kinds: Kinds, moment: Moment) -> None:
        """Fold.

        Args:
            parent: The open file.
            kinds: The registered kinds of event.
            moment: Up to where.
        """
        self.parent = parent
        self.moment = moment
        super().__init__(PastPool(parent.ready(), kinds, moment))
        parent.views.add(self)
        try:
            with self.read(long=True):
                pass
        except BaseException:
            self.close()
            raise

    def write(self, *, durable: bool = False) -> WriteBlock:
        """Refused.

        Raises:
            ReadOnly: Always.
        """
        raise ReadOnly(
            f"This is a view of the past, of event {self.moment.seq}",
            why="What was cannot be written to",
            next="Write to the store itself.",
        )

    def data_version(self) -> int:
        """Refused: a view of the past does not change."""
        raise self._lacks("Waiting for events")

    def checkpoint(self, *, wait: float = 0.0) -> bool:
        """Refused: it is for the store itself."""
        raise self._lacks("A checkpoint of the write-ahead log")

    def snapshot_to(self, *arguments: Any, **options: Any) -> Path:
        """Refused: a copy of the file would be one of the present."""
        raise self._lacks("A copy of the file")

    def rekey(self, *arguments: Any, **options: Any) -> NoReturn:
        """Refused: it is for the store itself."""
        raise self._lacks("A new key")

    def independent_check(self) -> list[str]:
        """Refused: it is for the store itself."""
        raise self._lacks("A check of the file")

    def unfold(self) -> None:
        """Let go of what is folded, at the end of the reading where one goes on; the next folds anew. After a purge."""
        self._pool.unfold()

    def _lacks(self, what: str) -> NotInPast:
        return not_in_past(what, self.moment.seq)

    def ready(self) -> Pool:
        """The connections; a view of a store that was closed closes too."""
        if self._pool.orphan:
            self.close()
            raise closed(self.path)
        return super().ready()


@dropped_by
def _unfold(database: Database) -> None:
    """Have the views of a file let go of what was purged from it."""
    for view in list(database.views):
        view.unfold()


def not_in_past(what: str, seq: int) -> NotInPast:
    """The error for what a view of the past does not have."""
    return NotInPast(f"{what} is not possible in a view of the past, of event {seq}", next="Ask the store itself")
