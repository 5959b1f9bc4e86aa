"""What can be had from a damaged file: its log, as far as the chain holds, becomes a new store.

The events are read from whatever pages are sound, without the trees above them, so that a damaged first page, inner page
or index loses nothing. What comes after the first gap can't be a part of a log; it is written down beside it if asked.
"""

from __future__ import annotations

import json
import os
import re
from array import array
from collections.abc import Iterator
from contextlib import ExitStack
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TextIO

import attrs
from attrs import frozen

from agentmem.engine.connection import connect
from agentmem.engine.faults import no_directory
from agentmem.engine.files import beside, file_system_check, io_failed, private_file_make, publish, temporary_beside
from agentmem.engine.keys import SALT_BYTES, Key, RawKey, given_key, stretch
from agentmem.engine.leaves import Leaves
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.scan import Scan, runs, scan
from agentmem.engine.schema import remove_set
from agentmem.engine.snapshot import free_check, taken
from agentmem.errors import AgentMemError, Corrupt, InvalidInput
from agentmem.log import blobs, chain
from agentmem.types import Head
from agentmem.upkeep.copies import real_path
from agentmem.upkeep.proof import Proven, ends_early, prove, salt_of
from agentmem.upkeep.rebuild import EVENT_COLUMNS, Material, build, opening_of

__all__ = ["Salvaged", "salvage"]

# Only these are looked for: all else is made of them anew. `pair` reads the indexes whose entries are two numbers of
# events or records: they tell of events that are not there any more.
_TABLES: Final = ("event", "meta", "blob", "request")
_PAIR: Final = "CREATE TABLE pair (a ANY, b ANY, c ANY, PRIMARY KEY (a, b, c)) WITHOUT ROWID"
_EVENT: Final = """
typeof(at) = 'integer' AND typeof(kind) = 'text' AND typeof(type) = 'text' AND typeof(record) = 'integer'
AND typeof(origin) = 'text' AND typeof(digest) = 'blob' AND length(digest) = 32 AND typeof(chain) = 'blob' AND length(chain) = 32
"""
_SEQS: Final = f"SELECT seq FROM event WHERE {_EVENT}"
_ROWS: Final = f"SELECT {', '.join(EVENT_COLUMNS)} FROM event WHERE seq BETWEEN ? AND ? AND {_EVENT} ORDER BY seq"
_META: Final = "SELECT name, value FROM meta WHERE typeof(name) = 'text' AND typeof(value) = 'text'"
# The index of the hashes is one of those that can't be relied on.
_TEXTS: Final = """
SELECT hash, CAST(text AS BLOB) FROM blob NOT INDEXED WHERE typeof(hash) = 'blob' AND length(hash) = 32 AND typeof(text) = 'text'
"""
_REQUESTS: Final = """
SELECT project, id, arguments, result, at FROM request
WHERE typeof(project) = 'integer' AND typeof(id) = 'text' AND typeof(arguments) = 'blob' AND typeof(result) = 'text'
AND typeof(at) = 'integer'
"""
_LAST: Final = """
SELECT max(max(a), max(b)) FROM pair WHERE typeof(a) = 'integer' AND typeof(b) = 'integer' AND typeof(c) = 'null'
"""
_STORE: Final = re.compile(r"[0-9a-f]{32}")
_REQUEST_KEY: Final = re.compile(r"[0-9a-f]{64}")


@frozen
class Salvaged:
    """What was had from a damaged file.

    Attributes:
        path: The new store.
        events: How many events its log has, from the first on without a gap.
        head: The end of its log.
        first_lost: The first event that could not be read; None where nothing tells of any that is missing.
        why: What was wrong with it, in a sentence; empty where nothing is missing.
        last_known: The last event that anything in the file tells of.
        later: How many events after the first lost one could be read. They are not in the new store.
        remainder: The file that those were written to, if it was asked for.
        pages_damaged: How many pages of the damaged file could not be read.
        notices: What to know of it.
    """

    path: Path
    events: int
    head: Head
    first_lost: int | None
    why: str
    last_known: int
    later: int
    remainder: Path | None
    pages_damaged: int
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        found = attrs.asdict(self)
        return found | {"path": str(self.path), "remainder": None if self.remainder is None else str(self.remainder)}


def salvage(
    path: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    key: Key | None,
    new_key: Key | None,
    remainder: str | os.PathLike[str] | None,
    head: Head | None,
    salt_from: str | os.PathLike[str] | None = None,
) -> Salvaged:
    """Make a new store of what can be read of a damaged one; see `Store.salvage`."""
    source, target = real_path(path), real_path(to)
    rest = _rest_check(remainder, target)
    free_check(Path(to) if os.path.lexists(to) else target)
    file_system_check(target)
    proven = prove(source, key, salt=None if salt_from is None else salt_of(real_path(salt_from)))
    raw = _new_raw(proven, new_key)
    with ExitStack() as stack:
        _hold(stack, source, proven)
        found = scan(source, proven.raw)
        short = proven.first_page and ends_early(source, proven.raw, found)
        leaves = stack.enter_context(Leaves(source, proven.raw, found, _declared(), target))
        log = _Found(leaves)
        log.read()
        temporary = temporary_beside(target)
        try:
            made, broken = build(temporary, raw, log.material(head))
            first = made.seq + 1 if broken is not None or log.last > made.seq else None
            later = _remainder(log, made.seq, rest)
            if first == 1:
                raise Corrupt(
                    "No log begins in the file, so there is nothing to make a store of",
                    why="" if broken is None else broken.what,
                    next=f"{later} later events can be read: have them written down with remainder=.",
                )
            if not publish(temporary, target):
                raise taken(target)
        finally:
            remove_set(temporary)
    return Salvaged(
        path=target,
        events=made.seq,
        head=made,
        first_lost=first,
        why="" if first is None else broken.what if broken is not None else f"Event {first} is missing from the log",
        last_known=max(log.last, made.seq),
        later=later,
        remainder=rest,
        pages_damaged=len(found.damaged),
        notices=tuple(_notices(found, proven, made, first, head, short=short)),
    )


def _rest_check(remainder: str | os.PathLike[str] | None, target: Path) -> Path | None:
    """Where the remainder goes, refused where that can't be."""
    if remainder is None:
        return None
    rest = real_path(remainder)
    # SQLite would take what has the name of a write-ahead log or journal for a part of the new store.
    if rest in (target, *(beside(target, suffix) for suffix in ("-wal", "-shm", "-journal"))):
        raise InvalidInput(
            "The remainder would have the name of the new store, or of a file that belongs to it",
            next="Give remainder= a name of its own.",
        )
    if os.path.lexists(remainder):
        raise taken(rest)
    if not rest.parent.is_dir():
        raise no_directory(rest)
    return rest


def _new_raw(proven: Proven, new_key: Key | None) -> RawKey | None:
    """The key and salt of the new file. With the same key also the same salt, by which the key files of a store are found."""
    if new_key is None:
        return proven.raw
    if proven.raw is None:
        raise InvalidInput("What is had from a plain store is plain", next="Leave new_key out.")
    return stretch(given_key(new_key), os.urandom(SALT_BYTES))


def _declared() -> dict[str, str]:
    script = [sql for migration in SCHEMA for sql in migration.script]
    wanted = {name: sql for name in _TABLES for sql in script if _makes(sql, name)}
    return wanted | {"pair": _PAIR}


def _makes(sql: str, name: str) -> bool:
    return sql.split("(", maxsplit=1)[0].split() == ["CREATE", "TABLE", name]


def _hold(stack: ExitStack, path: Path, proven: Proven) -> None:
    """Keep others from beginning the WAL anew while it is read, where it opens at all."""
    if not path.with_name(path.name + "-wal").exists():
        return
    opening = attrs.evolve(opening_of(path, proven.raw), read_only=True)
    try:
        connection = connect(opening, "reader")
    except AgentMemError:
        return  # what does not open nobody else can open either
    stack.callback(connection.close, True)
    connection.execute("BEGIN")
    connection.execute("SELECT 1 FROM sqlite_schema").fetchall()


class _Found:
    """What the sound pages of a damaged file hold."""

    def __init__(self, leaves: Leaves) -> None:
        self.last = 0
        self.meta: dict[str, str] = {}
        self.requests: dict[tuple[int, str], tuple[Any, ...]] = {}
        self._leaves = leaves
        self._events = array("Q")  # seq and page in one number, so that they sort
        self._texts: dict[bytes, int] = {}

    def read(self) -> None:
        """Look at every page once."""
        rows = self._leaves.rows
        for page in self._leaves.numbers():
            with self._leaves.at(page) as connection:
                self.meta.update((name, value) for name, value in rows(connection, _META)[0])
                for row in rows(connection, _REQUESTS)[0]:
                    self.requests[row[0], row[1]] = row
                told = rows(connection, _LAST)[0]
                self.last = max(self.last, *(number or 0 for (number,) in told), 0)
                if self._leaves.leaf(connection, "event"):
                    for seq in self._seqs(connection):
                        self._events.append(seq << 32 | page)
                    self._texts.update((hashed, page) for hashed, _ in rows(connection, _TEXTS)[0])
        self._events = array("Q", sorted(self._events))
        if self._events:
            self.last = max(self.last, self._events[-1] >> 32)

    def _seqs(self, connection: Any) -> list[int]:
        """The events of a page: those that can be read to the end."""
        found, whole = self._leaves.rows(connection, _SEQS)
        if not whole:
            every, _ = self._leaves.rows(connection, "SELECT seq FROM event")
            found = [row for each in every for row in self._leaves.rows(connection, f"{_SEQS} AND seq = ?", each)[0]]
        return [seq for (seq,) in found if 0 < seq < 2**32]

    def events(self, after: int = 0) -> Iterator[tuple[Any, ...]]:
        """The events after a seq that could be read, in the order of the log; of two with one seq that which is whole."""
        place, last = 0, after
        numbers = self._events
        while place < len(numbers):
            page = numbers[place] & 0xFFFFFFFF
            begin = place
            while place < len(numbers) and numbers[place] & 0xFFFFFFFF == page:
                place += 1
            lowest, highest = numbers[begin] >> 32, numbers[place - 1] >> 32
            if highest <= last:
                continue
            for row in self._rows(page, max(lowest, last + 1), highest):
                if row[0] > last and _whole(row):
                    last = row[0]
                    yield row

    def _rows(self, page: int, lowest: int, highest: int) -> list[tuple[Any, ...]]:
        with self._leaves.at(page) as connection:
            found, whole = self._leaves.rows(connection, _ROWS, (lowest, highest))
            if whole:
                return found
            seqs = range(lowest, highest + 1)
            return [row for seq in seqs for row in self._leaves.rows(connection, _ROWS, (seq, seq))[0]]

    def texts(self) -> Iterator[str]:
        """The long texts."""
        for page in sorted(set(self._texts.values())):
            with self._leaves.at(page) as connection:
                found = self._leaves.rows(connection, _TEXTS)[0]
            yield from (text.decode() for hashed, text in found if sha256(text).digest() == hashed)

    def text(self, hashed: bytes) -> str | None:
        """One long text, None where it could not be read."""
        page = self._texts.get(hashed)
        if page is None:
            return None
        with self._leaves.at(page) as connection:
            rows = self._leaves.rows(connection, f"{_TEXTS} AND hash = ?", (hashed,))[0]
        return rows[0][1].decode() if rows and sha256(rows[0][1]).digest() == hashed else None

    def material(self, head: Head | None) -> Material:
        """What the new file is made of.

        Raises:
            Corrupt: There is no event to begin with, or the id of the store is gone and no head tells it.
        """
        store = self.meta.get("store", "")
        if not _STORE.fullmatch(store):
            store = "" if head is None else head.store
        if not store:
            raise Corrupt(
                "The file has lost its identity, so its log can't be proven",
                next="Give a head that was noted earlier as head=: it names the store.",
            )
        if head is not None and head.store != store:
            raise InvalidInput("The head is of another store", why=f"It names store {head.store}, this is {store}")
        # The request key is what remembered requests are told by: without it they are worth nothing.
        own = _REQUEST_KEY.fullmatch(self.meta.get("request_key", ""))
        epoch = self.meta.get("epoch", "0")
        kept = {
            "request_key": own[0] if own else os.urandom(32).hex(),
            "epoch": str(int(epoch) + 1 if epoch.isdecimal() else 1),
        }
        requests = self.requests.values() if own else ()
        return Material(store, kept, self.texts(), self.events(), requests, noted=head, cut=True)


def _whole(row: tuple[Any, ...]) -> bool:
    """Whether the payload of an event is what its digest says, or was erased."""
    payload, digest, salt = row[13], row[14], row[16]
    return payload is None or (isinstance(salt, bytes) and chain.digest(salt, payload) == digest)


def _remainder(log: _Found, after: int, target: Path | None) -> int:
    """Count the events behind the gap; write them down, one object a line, where that is asked for."""
    if target is None:
        return sum(1 for _ in log.events(after))
    temporary = temporary_beside(target)
    try:
        count = _written_to(log, after, temporary)
        if not publish(temporary, target):
            raise taken(target)
    except AgentMemError:  # some of ours are OSErrors too
        raise
    except OSError as error:
        raise io_failed(f"{target} could not be written", error) from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def _written_to(log: _Found, after: int, path: Path) -> int:
    with os.fdopen(private_file_make(path), "w", encoding="utf-8") as file:
        count = _written(log, after, file)
        file.flush()
        os.fsync(file.fileno())
    return count


def _written(log: _Found, after: int, file: TextIO) -> int:
    count = 0
    for row in log.events(after):
        line = dict(zip(EVENT_COLUMNS, row, strict=True))
        for name in ("salt", "digest", "chain", "session_chain"):
            line[name] = None if line[name] is None else line[name].hex()
        texts = {hashed.hex(): log.text(hashed) for hashed in blobs.named(row[13] or "")}
        line["texts"] = texts
        file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")
        count += 1
    return count


def _notices(
    found: Scan, proven: Proven, made: Head, first: int | None, head: Head | None, *, short: bool
) -> Iterator[str]:
    if found.damaged:
        yield f"{len(found.damaged)} of {found.pages} pages could not be read: {runs(found.damaged)}."
    if found.rest:
        yield f"The file ends in the middle of a page, {found.rest} bytes behind the last whole one: it was cut."
    elif short:
        yield "The file ends before the last page that its first one tells of: it was cut, and later events may be missing."
    if not proven.first_page:
        yield "The first page was damaged; the log was read without it."
    if found.wal.unreachable or found.wal.header_damaged:
        yield "The write-ahead log was damaged: what was committed last may be missing."
    if first is not None:
        yield f"The log is whole up to event {made.seq}. What came later is not in the new store."
    if head is not None:
        reached = "is in it" if head.seq <= made.seq else "is later than its end"
        yield f"The head that was noted, of event {head.seq}, {reached}."
    yield "Claims are void: take them again."
