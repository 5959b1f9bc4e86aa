"""Import of a whole log: an empty store becomes the exported one, event for event.

The file is read twice. First it is proven and rehearsed in memory, so that nothing is kept of one that is damaged or was
never a log. Then its events are written in many transactions: an import that was interrupted goes on where it stopped, as
it does in a store that holds an earlier state of the same log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import apsw
from attrs import frozen

from agentmem import limits
from agentmem.context.answer import Answer
from agentmem.errors import Conflict, Corrupt, InvalidInput, shown
from agentmem.log import chain
from agentmem.log.ledger import Ledger
from agentmem.records import cleaning
from agentmem.records.base import Binding
from agentmem.records.kinds import KINDS
from agentmem.transfer.jsonlines import Entry, Reader
from agentmem.transfer.proof import Proof, Rehearsal, apply, decoded, texts_keep
from agentmem.types import UNTRUSTED, Head

__all__ = ["ImportedLog", "run"]

Progress: TypeAlias = Callable[[int, int], None]

_EVENTS: Final = 2000  # in one transaction
_CHARS: Final = 8_000_000  # of their payloads
_REHEARSED_CHARS: Final = 256_000_000  # of payloads that are folded in memory
_INSERT: Final = """
INSERT INTO event (seq, at, project, kind, version, type, record, session, author, run, task, origin, request,
                   payload, salt, digest, chain, session_chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_TIP: Final = "SELECT seq, chain FROM event ORDER BY seq DESC LIMIT 1"
_CHAIN: Final = "SELECT chain FROM event WHERE seq = ?"
# While only a part of a log is there: the seq of its last event. Nobody else writes then (`agentmem.records.cleaning`).
_IMPORTING: Final = "SELECT value FROM meta WHERE name = 'importing'"
_BEGUN: Final = "INSERT OR REPLACE INTO meta (name, value) VALUES ('importing', ?)"
_ENDED: Final = "DELETE FROM meta WHERE name = 'importing'"
_SESSION_CHAIN: Final = "SELECT session_chain FROM event WHERE session = ? ORDER BY seq DESC LIMIT 1"


@frozen
class ImportedLog(Answer):
    """A whole log that was imported.

    Attributes:
        path: The file.
        store: The id of the store it is, which the store it went into has now.
        head: The end of the log as the file has it.
        events: How many events the file has.
        added: How many of them were not there yet.
        erased: How many of them were purged before the export.
        records: How many records they made, purged ones too.
        projects: The names of its projects.
        dry_run: Whether it was only looked at.
        notices: What to know of it.
        text: All this for people.
    """

    path: str
    store: str
    head: Head
    events: int
    added: int
    erased: int
    records: int
    projects: tuple[str, ...]
    dry_run: bool
    notices: tuple[str, ...]
    text: str


def run(
    binding: Binding, path: Path, file: BinaryIO, *, origin: str, dry_run: bool, progress: Progress | None
) -> ImportedLog:
    """Read a whole log into an empty store, or the rest of one into a store that holds its beginning.

    Args:
        binding: The store.
        path: What to call the file.
        file: It, at its beginning.
        origin: `agent`: a log keeps who wrote what.
        dry_run: Only prove and rehearse it.
        progress: Called with events done and events in all.

    Raises:
        Corrupt: The file is damaged, or no log of a store. Nothing of it was kept.
        NewerFile: A later version wrote it.
        Conflict: The store holds something else.
        InvalidInput: `origin` is another.
    """
    ledger = binding.ledger
    if origin != "agent" or binding.actor.origin in UNTRUSTED:
        raise InvalidInput(
            "A whole log keeps where its text came from, and can't come in as untrusted",
            next="Have a project of it exported instead: store.export(path, project=...)",
        )
    if ledger.database.in_write():
        raise Conflict(
            "A whole log cannot be imported inside a transaction",
            why="It is many transactions of its own",
            next="Import it after the block",
        )
    reader = Reader(file)
    with ledger.database.read() as connection:
        cleaning.obey(ledger, connection)
        _fits(ledger, connection, reader)
    projects, proven = _rehearse(reader, progress)
    added = 0
    if not dry_run:
        file.seek(0)
        again = Reader(file, proven=proven)
        added = _Writing(ledger, again, reader, rehearsed=proven is not None, progress=progress).run()
        with ledger.database.read() as connection:
            cleaning.obey(ledger, connection)
            if proven is None:
                projects = _names(connection)
    return _answer(binding, path, reader, added, projects, dry_run=dry_run)


def _fits(ledger: Ledger, connection: apsw.Connection, reader: Reader) -> None:
    """Refuse a store with another log, before a long file is read."""
    if connection.execute(_TIP).fetchone() is not None and ledger.store != reader.header.store:
        raise _other(ledger, reader)


def _other(ledger: Ledger, reader: Reader) -> Conflict:
    return Conflict(
        "A whole log goes into an empty store only, and this one has events of its own",
        why=f"It is store {ledger.store}, the export is of store {reader.header.store}",
        next="Import it into a new store, or have a project exported, which comes in as a copy",
    )


def _rehearse(reader: Reader, progress: Progress | None) -> tuple[tuple[str, ...], bytes | None]:
    """Read the file to its end.

    Returns:
        The names of its projects, and the chain after each event; None for that where the log is too long to be folded in
        memory: its events are then proven as they are written.
    """
    total = reader.header.head.seq
    chains: bytearray | None = bytearray()
    size = 0
    with Rehearsal("log") as rehearsal:
        for entry in reader:
            size += _size(entry)
            if chains is not None and (reader.events > limits.AT_EVENTS or size > _REHEARSED_CHARS):
                chains = None
                rehearsal.close()
            if chains is not None:
                rehearsal.take(entry)
                chains += entry.chain
            if progress is not None and reader.events % _EVENTS == 0:
                progress(reader.events, 2 * max(total, reader.events))
        return ((), None) if chains is None else (_names(rehearsal.connection), bytes(chains))


def _names(connection: apsw.Connection) -> tuple[str, ...]:
    rows = connection.execute("SELECT name FROM project WHERE name IS NOT NULL ORDER BY id")
    return tuple(name for (name,) in rows)


class _Writing:
    """The second reading of a log: its events go into the store."""

    def __init__(
        self, ledger: Ledger, reader: Reader, first: Reader, *, rehearsed: bool, progress: Progress | None
    ) -> None:
        """Begin.

        Args:
            ledger: Of the store.
            reader: The file, read anew.
            first: What the first reading came to.
            rehearsed: Whether the first reading proved all of its events.
            progress: Called with events done and events in all.
        """
        self._ledger = ledger
        self._reader = reader
        self._first = first
        self._proof = None if rehearsed else Proof("log")
        self._progress = progress
        self._chain = chain.genesis(reader.header.store)
        self._sessions: dict[int, bytes] = {}
        self._added = 0

    def run(self) -> int:
        """Write what is not there yet; say how many events."""
        total = self._first.events
        for some in _batches(self._reader):
            self._batch(some)
            if self._progress is not None:
                self._progress(total + self._reader.events, 2 * total)
        if (self._reader.seq, self._reader.chain) != (self._first.seq, self._first.chain):
            raise Corrupt("The file was changed while it was read", next="Import it again into a new store")
        return self._added

    def _batch(self, some: list[Entry]) -> None:
        ledger, first = self._ledger, some[0].header[0]
        with ledger.database.write() as connection:
            cleaning.obey(ledger, connection, importing=True)
            tip = connection.execute(_TIP).fetchone()
            if tip is None:
                self._become(connection)
                tip = (0, self._chain)
            elif ledger.store != self._reader.header.store:
                raise _other(ledger, self._reader)
            self._meets(connection, some, tip)
            there = max(tip[0] - first + 1, 0)
            if self._proof is not None:
                for entry in some[:there]:
                    self._proof.seen(entry)
            self._sessions.clear()
            for entry in some[there:]:
                self._add(connection, entry)
            if some[there:]:
                self._aim(connection, some[-1].header[0])
        self._chain = some[-1].chain
        self._added += len(some[there:])

    def _aim(self, connection: apsw.Connection, last: int) -> None:
        """Note where the log ends that the store has only a part of, up to `last`, or that it has all of it."""
        row = connection.execute(_IMPORTING).fetchone()
        # Another export of this log may have been begun, that ends later.
        end = max(self._first.seq, 0 if row is None else int(row[0]))
        if last < end:
            connection.execute(_BEGUN, (str(end),))
        elif row is not None:
            connection.execute(_ENDED)

    def _become(self, connection: apsw.Connection) -> None:
        """Give the empty store the exported one's id; other processes that have it open learn of it by the epoch."""
        connection.execute("UPDATE meta SET value = ? WHERE name = 'store'", (self._reader.header.store,))
        cleaning.epoch_raise(connection)

    def _meets(self, connection: apsw.Connection, some: list[Entry], tip: tuple[int, bytes]) -> None:
        """Refuse a store that holds other events than the file does.

        Args:
            connection: Inside the transaction.
            some: What was read last.
            tip: The end of the store's log.
        """
        first, last = some[0].header[0], some[-1].header[0]
        if tip[0] >= last:
            row = connection.execute(_CHAIN, (last,)).fetchone()
            same = row == (some[-1].chain,)
        else:
            expected = self._chain if tip[0] < first else some[tip[0] - first].chain
            same = tip[0] >= first - 1 and tip[1] == expected
        if not same:
            raise Conflict(
                f"The store holds other events than the export up to event {min(last, tip[0])}",
                why="Both went on from one beginning, each in its own way",
                next="Import the export into a new store",
            )

    def _add(self, connection: apsw.Connection, entry: Entry) -> None:
        header, session, session_chain = entry.header, entry.header[7], None
        if session is not None:
            before = self._session_before(connection, session)
            session_chain = self._sessions[session] = chain.link(before, chain.header(*header), entry.digest)
        texts_keep(connection, entry)
        connection.execute(_INSERT, (*header, entry.stored, entry.salt, entry.digest, entry.chain, session_chain))
        if self._proof is None:
            KINDS.apply(connection, decoded(entry, connection))
        else:
            apply(self._proof.event(entry, connection), connection, entry.line)

    def _session_before(self, connection: apsw.Connection, session: int) -> bytes:
        known = self._sessions.get(session)
        if known is not None:
            return known
        row = connection.execute(_SESSION_CHAIN, (session,)).fetchone()
        return chain.session_genesis(self._reader.header.store, session) if row is None else row[0]


def _batches(reader: Reader) -> Iterator[list[Entry]]:
    """The events of the file, some at a time: fewer where they are long."""
    some: list[Entry] = []
    size = 0
    for entry in reader:
        some.append(entry)
        size += _size(entry)
        if len(some) == _EVENTS or size > _CHARS:
            yield some
            some, size = [], 0
    if some:
        yield some


def _size(entry: Entry) -> int:
    return len(entry.stored or "") + sum(map(len, entry.texts.values()))


def _answer(
    binding: Binding, path: Path, reader: Reader, added: int, projects: tuple[str, ...], *, dry_run: bool
) -> ImportedLog:
    head = Head(reader.header.store, reader.seq, reader.chain.hex())
    # The store may have gone on since the export.
    now = head if dry_run else binding.ledger.head()
    end = f"{now.store}:{now.seq}:{now.chain}"
    notices = ["claims and remembered requests are not part of a log, and did not come along"]
    if not reader.events:
        notices = ["the log has no events: nothing was changed"]
    elif projects and binding.project not in projects:
        notices.append(
            f"this view works in {shown(binding.project)}; the log has " + ", ".join(map(shown, projects[:8]))
        )
    if added and binding.credentials != "warn":
        notices.append(f"a log comes in as it is: credentials={binding.credentials!r} did not look at what it says")
    would = "dry run, nothing written: " if dry_run else ""
    there = reader.events - added
    lines = [
        f"{would}log of store {head.store}: {reader.events:,} events of {reader.records:,} records, {reader.erased:,} purged",
        *notices,
        "sound" if dry_run else f"{added:,} events added, {there:,} were there already; head {end}",
    ]
    return ImportedLog(
        str(path), head.store, head, reader.events, added, reader.erased, reader.records, projects, dry_run,
        tuple(notices), "\n".join(lines),
    )  # fmt: skip
