"""The log of one open file: transactions that append events, and reading.

An event is appended and applied to the projections in one transaction. Commands nest: inside an
open transaction of the same thread each one is a savepoint, so that a command that fails undoes
itself and no other.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, TypeAlias

import apsw

from agentmem.engine.database import Database
from agentmem.engine.faults import entered_twice, not_entered
from agentmem.engine.stays import Held
from agentmem.engine.transactions import WriteBlock
from agentmem.errors import Closed, Conflict, InvalidInput, shown
from agentmem.limits import INT_MAX
from agentmem.log import blobs, chain
from agentmem.log.canonical import canonical
from agentmem.log.check import ChainCheck, check_some
from agentmem.log.kinds import Kinds
from agentmem.types import Actor, Event, Head, Transit

Clock: TypeAlias = Callable[[], int]

_INSERT = """
INSERT INTO event (seq, at, project, kind, version, type, record, session, author, run, task, origin, request,
                   payload, salt, digest, chain, session_chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
COLUMNS = """
seq, at, project, kind, version, type, record, session, author, run, task, origin, request, payload, digest, chain
"""
_LAST = "SELECT seq, chain FROM event ORDER BY seq DESC LIMIT 1"
_LAST_OF_SESSION = "SELECT session_chain FROM event WHERE session = ? ORDER BY seq DESC LIMIT 1"
_SALT_BYTES = 16


def system_clock() -> int:
    """The time now, in microseconds since 1970 UTC."""
    return time.time_ns() // 1000


_CLOCK_MOST = 2**53  # microseconds on either side of 1970: the year 2255


def _sound(clock: Clock) -> Clock:
    """The clock of a caller, each answer of it checked: what it says is written into the log for ever."""

    def now() -> int:
        at = clock()
        if type(at) is not int or not -_CLOCK_MOST <= at <= _CLOCK_MOST:
            raise InvalidInput(
                f"The clock says {shown(at)}",
                why=f"It gives whole microseconds since 1970 UTC, within ±{_CLOCK_MOST}",
                next="Open the store with another clock=, or with none",
            )
        return at

    return now


class _Tip:
    """The end of the log as one open transaction sees it. Outlives the transaction, to say what became of it."""

    __slots__ = ("_outer", "chain", "request", "seq", "transit")

    request: str | None
    transit: Transit

    def __init__(self, outer: _Tip | None, seq: int, last: bytes) -> None:
        self._outer = outer
        self.seq = seq
        self.chain = last
        self.request = None if outer is None else outer.request
        self.transit = Transit(None if outer is None else outer.transit)

    def settle(self, *, kept: bool) -> None:
        """The block has ended: what it appended is the outer one's now, or gone."""
        self.transit.settle(committed=kept)
        if kept and self._outer is not None:
            self._outer.seq, self._outer.chain = self.seq, self.chain


class Reach(Protocol):
    """What a command may write. Both raise for what it may not."""

    def before(
        self, kind: str, of: str, record: int | None, payload: Mapping[str, Any], session: int | None = None
    ) -> None:
        """Look at an event before it is applied."""

    def after(self, event: Event) -> None:
        """Look at what an event made."""


class Transaction(Held):
    """One open write transaction, or a savepoint inside one. May be entered again once it was left.

    Attributes:
        connection: The writer connection, for the statements of commands.
        reach: What may be written here, None for anything; asked about every event.
    """

    __slots__ = ("_block", "_durable", "_ledger", "_tip", "connection", "reach")

    connection: apsw.Connection
    reach: Reach | None
    _tip: _Tip

    def __init__(self, ledger: Ledger, *, durable: bool = False) -> None:
        super().__init__()
        self._ledger = ledger
        self._durable = durable
        self._block: WriteBlock | None = None
        self.reach = None

    def __enter__(self) -> Transaction:
        if self.going_on:
            raise entered_twice()
        ledger = self._ledger
        block = self._block = ledger.database.write(durable=self._durable)
        block.hold = self.hold
        self.connection = block.__enter__()
        try:
            self.stay = block.stay
            self._begin(ledger, block)
        except BaseException as error:
            block.leave(error)
            raise
        return self

    def _begin(self, ledger: Ledger, block: WriteBlock) -> None:
        outer = block.outer_tip
        if isinstance(outer, _Tip):
            tip = _Tip(outer, outer.seq, outer.chain)
        else:
            seq, last = self.connection.execute(_LAST).fetchone() or (0, ledger.genesis)
            tip = _Tip(None, seq, last)
        self._tip = tip
        block.tell(tip)

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        block = self._block
        if block is None:
            raise not_entered()
        block.leave(error)

    @property
    def transit(self) -> Transit:
        """Shared by every value that is made here; says later what became of them."""
        return self._tip.transit

    @property
    def seq(self) -> int:
        """The seq of the last event of the log, as this transaction sees it."""
        return self._tip.seq

    @property
    def now(self) -> int:
        """The time now, in microseconds."""
        return self._ledger.clock()

    @property
    def next(self) -> int:
        """The seq, and so the id, that the next event will have."""
        return self._tip.seq + 1

    def under_request(self, request: str | None) -> None:
        """Have the events that follow carry this request id."""
        self._tip.request = request

    def append(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        project: int,
        actor: Actor,
        record: int | None = None,
        session: int | None = None,
    ) -> Event:
        """Append an event and apply it.

        Args:
            kind: A registered kind, past tense.
            payload: Resolved values only; becomes canonical JSON.
            project: The record's project now.
            actor: Who writes.
            record: The record concerned; None for a kind that creates one, whose id is the new seq.
            session: The session the event belongs to, if any.

        Raises:
            InvalidInput: The payload has a value that canonical JSON refuses.
        """
        known = self._ledger.kinds.by_name[kind]
        if self.reach is not None:
            self.reach.before(kind, known.type, record, payload, session)
        text = blobs.stored(self.connection, payload, canonical(payload))
        tip = self._tip
        seq = tip.seq + 1
        if record is None:
            if not known.creates:
                raise AssertionError(f"{kind} concerns a record that exists")
            record = seq
        at = self._ledger.clock()
        salt = os.urandom(_SALT_BYTES)
        digest = chain.digest(salt, text)
        head = chain.header(
            seq, at, project, kind, known.version, known.type, record, session,
            actor.author, actor.run, actor.task, actor.origin, tip.request,
        )  # fmt: skip
        linked = chain.link(tip.chain, head, digest)
        session_chain = None if session is None else chain.link(self._session_chain(session), head, digest)
        row = (
            seq, at, project, kind, known.version, known.type, record, session,
            actor.author, actor.run, actor.task, actor.origin, tip.request,
            text, salt, digest, linked, session_chain,
        )  # fmt: skip
        self.connection.execute(_INSERT, row)
        fields: tuple[Any, ...] = (*row[:13], payload, digest, linked)
        event = Event(*fields)
        self._ledger.kinds.apply(self.connection, event)
        tip.seq, tip.chain = seq, linked
        if self.reach is not None:
            self.reach.after(event)
        return event

    def _session_chain(self, session: int) -> bytes:
        row = self.connection.execute(_LAST_OF_SESSION, (session,)).fetchone()
        return chain.session_genesis(self._ledger.store, session) if row is None else row[0]


class Ledger:
    """The log of one open file.

    Attributes:
        database: The file.
        kinds: The registered kinds of event.
        store: The id of the store, 32 hex digits.
        clock: The time, microseconds since 1970 UTC.
        genesis: The chain before the first event.
        past: Whether the log is looked at as it was: what is missing at its end may come later.
        epoch: The number of purges that this process obeyed last; None before its first look at the file.
        unclean: The purge whose cleaning is not finished, as `meta` has it; None for none.
        tried: When this process last tried to finish it, by `monotonic`.
        wrote: Called after each command that was committed; weak, so that an open file ends with its last user.
        alike: Says which attempts are like a text in meaning: called with a view, the text and the id of a project,
            answers cosines by id. Weak too; None where texts have no meaning.
    """

    def __init__(self, database: Database, kinds: Kinds, store: str, clock: Clock = system_clock) -> None:
        self.database = database
        self.kinds = kinds
        self.store = store
        self.clock = clock if clock is system_clock else _sound(clock)
        self.genesis = chain.genesis(store)
        self.past = False
        self.epoch: int | None = None
        self.unclean: str | None = None
        self.tried = 0.0
        self.wrote: weakref.WeakMethod[Callable[[], None]] | None = None
        self.alike: weakref.WeakMethod[Callable[[Any, str, int], dict[int, float]]] | None = None

    def identify(self, connection: apsw.Connection) -> None:
        """Read anew which store it is: a log that was restored into an empty store brings its id with it."""
        row = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
        if row is not None and row[0] != self.store:
            self.store = row[0]
            self.genesis = chain.genesis(self.store)

    def transaction(self, *, durable: bool = False) -> Transaction:
        """A write transaction as a context manager; inside one of this thread, a savepoint.

        Args:
            durable: Its commit is synced to disk, also where the file was opened with less durability.

        Raises:
            Busy: Somebody else held the write lock for longer than the busy timeout.
            ReadOnly: The file was opened for reading.
            Conflict: Another asyncio task of this thread is inside a transaction; or, on leaving, it is left in another
                thread, task or order than it was entered, and nothing of it was kept.
            StoreMissing, StoreReplaced: The file was deleted, moved or replaced.
        """
        return Transaction(self, durable=durable)

    def head(self) -> Head:
        """The end of the log: (store id, seq, chain)."""
        with self.database.read() as connection:
            self.identify(connection)
            seq, last = connection.execute(_LAST).fetchone() or (0, self.genesis)
            return Head(self.store, seq, last.hex())

    def read(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        record: int | None = None,
        session: int | None = None,
        project: int | None = None,
        kinds: tuple[str, ...] = (),
        newest_first: bool = False,
        limit: int = 100,
    ) -> list[Event]:
        """Events in the order of the log, those with `after` < seq <= `until`, at most `limit`.

        With `newest_first` the order is reversed: continue with `until=` the last seq less one.
        """
        conditions, values = ["seq > ?"], [after]
        filters = (("seq <= ?", until), ("record = ?", record), ("session = ?", session), ("project = ?", project))
        for condition, value in filters:
            if value is not None:
                conditions.append(condition)
                values.append(value)
        sql = f"SELECT {COLUMNS} FROM event WHERE {' AND '.join(conditions)}"
        bound: list[Any] = list(values)
        if kinds:
            sql += f" AND kind IN ({', '.join('?' * len(kinds))})"
            bound.extend(kinds)
        sql += f" ORDER BY seq {'DESC' if newest_first else 'ASC'} LIMIT ?"
        with self.database.read() as connection:
            rows = connection.execute(sql, [*bound, limit]).fetchall()
            return [decode(connection, self.kinds, row) for row in rows]

    def get(self, seq: int) -> Event | None:
        """The event of this seq, None if there is none."""
        with self.database.read() as connection:
            row = connection.execute(f"SELECT {COLUMNS} FROM event WHERE seq = ?", (seq,)).fetchone()
            return None if row is None else decode(connection, self.kinds, row)

    def check(self, head: Head | None = None) -> Head:
        """Compute the chain anew over all stored bytes.

        In pieces, each a short read transaction, so that the write-ahead log can be cut meanwhile: the log only grows,
        and a purge leaves what the chain is made of. What is written after the beginning is not looked at.

        Args:
            head: A head noted earlier; the log must still contain exactly it.

        Returns:
            The head of what was checked.

        Raises:
            Corrupt: An event is missing or was changed; names the first.
            Conflict: `head` is of another store.
        """
        until = self.head().seq
        if head is not None and head.store != self.store:
            raise Conflict("The head is of another store", why=f"It names store {head.store}, this is {self.store}")
        check = ChainCheck(self.store, head)
        more = True
        while more:
            with self.database.read(long=True) as connection:
                more = check_some(check, connection, until)
        return check.end()


def decode(connection: apsw.Connection, kinds: Kinds, row: tuple[Any, ...]) -> Event:
    """The event of a row of `COLUMNS`, its payload whole and as the current version spells it."""
    payload = None if row[13] is None else kinds.upcast(row[3], row[4], blobs.whole(connection, row[13]))
    fields: tuple[Any, ...] = (*row[:13], payload, row[14], row[15])
    return Event(*fields)


def events(connection: apsw.Connection, kinds: Kinds, *, until: int | None = None) -> Iterator[Event]:
    """Every event in order, for a replay, up to and with `until`."""
    sql = f"SELECT {COLUMNS} FROM event WHERE seq <= ? ORDER BY seq"
    for row in connection.execute(sql, (INT_MAX if until is None else until,)):
        yield decode(connection, kinds, row)


def refuse_void(value: object) -> None:
    """Refuse a value whose transaction was rolled back: its id may by now belong to another record.

    Raises:
        Closed: It was.
    """
    if getattr(value, "void", False):
        raise Closed(
            "The record was never written",
            why="The transaction it was made in was rolled back",
            next="Write it again and use the new value",
        )
