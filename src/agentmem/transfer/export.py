"""Export as JSON Lines: the whole log, lossless, or the records of a project or beneath one record, to be copied elsewhere.

The log is read in pages, each a short read transaction, so that a long export keeps no write-ahead log from being cut:
the log only grows. What a purge meanwhile took away must not be in the file, so then it is begun anew. The file is made
under a hidden name; a whole log that was interrupted goes on from there the next time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import attrs
from attrs import evolve, frozen

from agentmem.context.answer import Answer
from agentmem.context.escape import one_line
from agentmem.errors import AgentMemError, Conflict, Corrupt, InvalidInput, NotFound, shown
from agentmem.log import blobs, chain
from agentmem.past.closure import of_records
from agentmem.records import vocabulary
from agentmem.records.base import Binding, Source, View
from agentmem.records.refs import identify
from agentmem.transfer.jsonlines import Header, Reader, Writer
from agentmem.transfer.partial import Partial
from agentmem.types import Head, RecordType, Ref

__all__ = ["Exported", "Progress", "export"]

Progress: TypeAlias = Callable[[int, int], None]

_PAGE: Final = 1000  # events in one read transaction
_TRIES: Final = 3
_ROW: Final = """
seq, at, project, kind, version, type, record, session, author, run, task, origin, request, payload, salt, digest, chain
"""
_AFTER: Final = f"SELECT {_ROW} FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {_PAGE}"
_HEAD: Final = "SELECT seq, chain FROM event ORDER BY seq DESC LIMIT 1"
_CHAIN: Final = "SELECT chain FROM event WHERE seq = ?"
_META: Final = "SELECT name, value FROM meta WHERE name IN ('store', 'epoch')"
_TEXT: Final = "SELECT text FROM blob WHERE hash = ?"

UNENCRYPTED: Final = "the file is not encrypted: whoever can read it can read all that is in it"
# Claims are void elsewhere; what was purged has nothing to copy; the project is the one it is copied into.
_LEFT_OUT: Final = "kind LIKE '%.claim.%' OR kind LIKE '%.forgotten' OR type = 'project'"


@frozen
class Exported(Answer):
    """An export that was made.

    Attributes:
        path: The file.
        bytes: Its size.
        what: `log`: all of the store, to be had again as it is; `copy`: some records, to be copied into any store.
        head: The end of the store's log at that time, to be noted elsewhere.
        events: How many events the file has.
        erased: How many of them were purged: the file has their headers only.
        records: How many records they made; of a copy, how many it has.
        resumed: How many events were there already, of an export that had been interrupted.
        notices: What to know of it.
        text: All this for people.
    """

    path: Path
    bytes: int
    what: str
    head: Head
    events: int
    erased: int
    records: int
    resumed: int
    notices: tuple[str, ...]
    text: str

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return attrs.asdict(self) | {"path": str(self.path)}


class _PurgedError(Exception):
    """Something was purged while the log was read."""


def export(
    binding: Binding,
    path: str | os.PathLike[str],
    *,
    under: Ref | None,
    project: str | None,
    progress: Progress | None,
) -> Exported:
    """The command behind `store.export`."""
    if under is not None and project is not None:
        raise InvalidInput("under= and project= exclude each other", next="Name what to export in one way")
    if binding.ledger.database.in_write():
        raise Conflict(
            "An export cannot be made inside a transaction",
            why="It holds what is committed, so nothing of the transaction",
            next="Make it after the block",
        )
    target = Path(os.path.abspath(path))
    for _ in range(_TRIES):
        try:
            whole = under is None and project is None
            with Partial(target, resumable=whole) as partial:
                if whole:
                    return _Log(binding, partial, progress).run()
                return _Copy(binding, partial, progress).run(under, project)
        except _PurgedError:
            continue
    raise Conflict(
        "Records were purged again and again while the log was read",
        why="An export must not hold what was purged",
        next="Export when no purge is going on",
    )


class _Exporting:
    """One export at work."""

    def __init__(self, binding: Binding, partial: Partial, progress: Progress | None) -> None:
        self._binding = binding
        self._partial = partial
        self._progress = progress
        self._writer = Writer(partial.file.write)
        self._epoch = ""

    def _begin(self, view: View) -> tuple[str, Head]:
        """The store's id and the end of its log; from now on, what is purged makes it begin anew."""
        known: dict[str, str] = dict(view.rows(_META))
        self._epoch = known.get("epoch", "0")
        seq, last = view.row(_HEAD) or (0, chain.genesis(known["store"]))
        return known["store"], Head(known["store"], seq, last.hex())

    def _unpurged(self, source: Source) -> None:
        known: dict[str, str] = dict(source.rows(_META))
        if known.get("epoch", "0") != self._epoch:
            self._partial.resumable = False  # it has text that is purged by now
            raise _PurgedError

    def _texts(self, source: Source, rows: Sequence[tuple[Any, ...]]) -> dict[bytes, str]:
        """The long texts that these events use and the file does not have yet."""
        found: dict[bytes, str] = {}
        for row in rows:
            if row[13] is not None and row[13].startswith("@"):
                for hashed in blobs.named(row[13]) - self._writer.texts - found.keys():
                    text = source.row(_TEXT, (hashed,))
                    if text is None:
                        raise Corrupt(f"A long text of event {row[0]} is missing", next="Run agentmem doctor")
                    found[hashed] = text[0]
        return found

    def _write(self, row: tuple[Any, ...], texts: dict[bytes, str]) -> bytes:
        """Write an event after the texts it is first to use; gives the chain of the file after it."""
        seq, payload, salt, digest = row[0], row[13], row[14], row[15]
        if payload is not None:
            if salt is None or chain.digest(salt, payload) != digest:
                raise Corrupt(
                    f"The payload of event {seq} does not match its digest",
                    next="Run agentmem doctor, or restore the latest backup that verifies",
                )
            for hashed in sorted(blobs.named(payload) & texts.keys()) if texts else ():
                self._writer.text(hashed, texts.pop(hashed))
        return self._writer.event(row[:13], payload, salt, digest)

    def _step(self, total: int) -> None:
        if self._progress is not None:
            self._progress(self._writer.events, total)

    def _done(self, what: str, head: Head, records: int, resumed: int, notices: tuple[str, ...]) -> Exported:
        self._writer.end()
        self._partial.publish()
        writer, path = self._writer, self._partial.target
        size = path.stat().st_size
        lines = [
            f"{one_line(str(path))}: {writer.events:,} events of {records:,} records, {writer.erased:,} purged, {size:,} bytes",
            *notices,
            f"head {head.store}:{head.seq}:{head.chain}",
        ]
        return Exported(
            path, size, what, head, writer.events, writer.erased, records, resumed, notices, "\n".join(lines)
        )


class _Log(_Exporting):
    """The export of a whole log."""

    def run(self) -> Exported:
        """Write all of it, or the rest of it."""
        with self._binding.reading() as view:
            store, head = self._begin(view)
        header = Header("log", store, head, int(self._epoch))
        found = self._interrupted(header)
        if found is None:
            self._partial.cut(0)
            self._writer.header(header)
        else:
            self._partial.cut(found.offset)
            self._writer.goes_on(found)
        resumed = self._writer.events
        while self._page(head):
            self._step(head.seq)
        self._step(head.seq)
        return self._done("log", head, self._writer.records, resumed, (UNENCRYPTED, _LEFT))

    def _page(self, head: Head) -> bool:
        """Write the next page; whether more may follow."""
        with self._binding.reading() as view:
            self._unpurged(view)
            rows = view.rows(_AFTER, (self._writer.seq, head.seq))
            texts = self._texts(view, rows)
        for row in rows:
            if row[0] != self._writer.seq + 1:
                raise Corrupt(f"Event {self._writer.seq + 1} is missing from the log", next="Run agentmem doctor")
            if self._write(row, texts) != row[16]:
                raise Corrupt(f"The chain is broken at event {row[0]}", next="Run agentmem doctor")
        return len(rows) == _PAGE

    def _interrupted(self, header: Header) -> Reader | None:
        """What is there of an export of this very log, proven line by line; None where it is to begin anew."""
        file = self._partial.file
        file.seek(0)
        try:
            reader = Reader(file)
        except AgentMemError:
            return None
        if evolve(reader.header, head=header.head) != header:
            return None
        try:
            for _ in reader:
                pass
        except AgentMemError:
            pass  # it was cut off where the interrupt came; what stands before is sound
        with self._binding.reading() as view:
            same = view.row(_CHAIN, (reader.seq,)) == (reader.chain,)
        return reader if same and reader.seq <= header.head.seq else None


_LEFT: Final = "claims and remembered requests are not in it"


class _Copy(_Exporting):
    """The export of some records."""

    def run(self, under: Ref | None, project: str | None) -> Exported:
        """Write their events."""
        with self._binding.reading() as view:
            store, head = self._begin(view)
            chosen = _chosen(view, under, project)
            seqs = _seqs(view, chosen.records, head.seq)
        self._partial.cut(0)
        self._writer.header(Header("copy", store, head, int(self._epoch), chosen.project, chosen.roots))
        for start in range(0, max(len(seqs), 1), _PAGE):
            self._page(seqs[start : start + _PAGE])
            self._step(len(seqs))
        notices = (UNENCRYPTED, *_of(chosen))
        return self._done("copy", head, len(chosen.records), 0, notices)

    def _page(self, seqs: list[int]) -> None:
        with self._binding.reading() as view:
            self._unpurged(view)
            marks = ", ".join("?" * len(seqs))
            rows = view.rows(f"SELECT {_ROW} FROM event WHERE seq IN ({marks}) ORDER BY seq", seqs)
            texts = self._texts(view, rows)
        for row in rows:
            self._write(row, texts)


@frozen
class _Chosen:
    """The records of a copy, by type; those asked for; the project they are in."""

    records: dict[int, str]
    roots: tuple[int, ...]
    project: str


def _chosen(view: View, under: Ref | None, project: str | None) -> _Chosen:
    if under is None:
        row = view.row("SELECT id FROM project WHERE name = ?", (project,))
        if row is None:
            raise NotFound(f"There is no project {shown(project)}", next="See projects.list()")
        start: tuple[int, RecordType] = (row[0], "project")
        roots: tuple[int, ...] = ()
    else:
        start = identify(view, under)
        roots = (start[0],)
        if start[1] not in ("note", "entity", "session"):
            raise InvalidInput(
                f"#{start[0]} is of type {start[1]}",
                why="Exported are notes, entities and sessions, with all beneath them and what belongs to them",
                next="Name the note it belongs to, or a project",
            )
    found = of_records(view, (start,))
    records: dict[int, str] = {}
    for of, several in found.of.items():
        if of not in ("project", "message"):
            records |= dict.fromkeys(_there(view, of, list(several)), of)
    records |= dict.fromkeys(_spoken(view, [each for each, of in records.items() if of == "session"]), "message")
    about = "SELECT DISTINCT entity FROM note WHERE entity IS NOT NULL AND id IN"
    for entity in list(_rows_of(view, about, [each for each, of in records.items() if of == "note"])):
        records.setdefault(entity, "entity")
    about = "SELECT DISTINCT entity FROM session WHERE entity IS NOT NULL AND id IN"
    for entity in list(_rows_of(view, about, [each for each, of in records.items() if of == "session"])):
        records.setdefault(entity, "entity")
    return _Chosen(records, roots, _project_of(view, start))


def _project_of(view: View, start: tuple[int, RecordType]) -> str:
    record, of = start
    if of != "project":
        (record,) = view.one(f"SELECT project FROM {of} WHERE id = ?", (record,))
    return str(view.one("SELECT name FROM project WHERE id = ?", (record,))[0])


def _there(view: View, of: str, records: list[int]) -> Iterator[int]:
    """Those of the records that are there: one that was taken back is not copied, nor is a purged item's number.

    An item off its list outlives a note that was taken back.
    """
    return _rows_of(view, f"SELECT id FROM {of} WHERE {_ALSO.get(of, '')}id IN", records)


_ALSO: Final = {
    "item": "text IS NOT NULL AND note IN (SELECT id FROM note) AND ",
    # What such a session may see can't be told any more, and in a copy it would be told even less.
    "session": "(entity IS NULL OR entity IN (SELECT id FROM entity)) AND ",
}
_PURGED_RESULT: Final = f"""
message.type IN ({", ".join(f"'{of}'" for of in sorted(vocabulary.CALLS))}) AND message.open = 0 AND NOT EXISTS (
    SELECT 1 FROM message AS result WHERE result.target = message.id AND result.gone = 0
    AND result.session = message.session AND result.type IN ({", ".join(f"'{of}'" for of in sorted(vocabulary.RESULTS))}))
"""


def _spoken(view: View, sessions: list[int]) -> Iterator[int]:
    """The events of sessions that a copy has: no call whose result was purged, which would wait for one there."""
    return _rows_of(view, f"SELECT id FROM message WHERE gone = 0 AND NOT ({_PURGED_RESULT}) AND session IN", sessions)


def _rows_of(view: View, sql: str, records: list[int]) -> Iterator[int]:
    """The first column of a query that ends with `… IN`, for any number of records."""
    for start in range(0, len(records), _PAGE):
        part = records[start : start + _PAGE]
        for row in view.rows(f"{sql} ({', '.join('?' * len(part))})", part):
            yield row[0]


def _seqs(view: View, records: dict[int, str], until: int) -> list[int]:
    """The events of the records that a copy is made of, in order."""
    sql = f"SELECT seq FROM event WHERE payload IS NOT NULL AND seq <= {until} AND NOT ({_LEFT_OUT}) AND record IN"
    return sorted(_rows_of(view, sql, list(records)))


def _of(chosen: _Chosen) -> tuple[str, ...]:
    if not chosen.roots:
        return ("an import of it is a copy: its records get new ids, and who wrote them when is kept",)
    return (
        "an import of it is a copy: its records get new ids, and who wrote them when is kept",
        "entities that a scope covers are in it only where a note is about them",
    )
