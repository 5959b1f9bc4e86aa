"""Embedding beside other work: what was written gets its vectors in the background, never in a command.

`meta` says which embedder made the vectors (`embedder`) and up to which event all texts have theirs (`embedded`), so
that any process may go on. One process works at a time: it says so in `embedding`, for so long as a batch may take. A
text that changes loses its vectors by triggers, and the event that changed it brings it here again.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import apsw

from agentmem.engine.database import Database
from agentmem.errors import AgentMemError, EmbedderFailed
from agentmem.recall import checked, passages
from agentmem.recall.filters import named
from agentmem.records import indexed
from agentmem.records.base import Source

if TYPE_CHECKING:
    from agentmem.recall.embedder import Embedder

_EVENTS: Final = 256  # read in one piece
_BATCH: Final = 16  # windows embedded at once, so that a stop does not wait long
_SLICE_SECONDS: Final = 1.0  # after which what is done is written: a process that ends, or is killed, keeps it
_HELD_SECONDS: Final = 30.0
_DIGITS: Final = 19  # of the largest number of an event
_META: Final = "SELECT name, value FROM meta WHERE name IN ('embedder', 'embedded', 'embedding', 'epoch')"
_PENDING_MOST: Final = 1001  # shown as 1000+
RECENT: Final = 16  # events that are looked through for each of the newest records
# `NOT INDEXED`: by the log itself, else the index on records is read whole to find the few distinct ones.
_TEXTED: Final = (
    "FROM event NOT INDEXED WHERE seq > ? AND type IN ('note', 'entity', 'item', 'checkpoint', 'summary', 'message')"
)
_PENDING: Final = f"SELECT count(*) FROM (SELECT DISTINCT record {_TEXTED} LIMIT ?)"
_NEWEST: Final = f"""
SELECT record {_TEXTED} AND NOT EXISTS (SELECT 1 FROM vector WHERE vector.record = event.record)
GROUP BY record ORDER BY max(seq) DESC LIMIT ?
"""
_INSERT: Final = "INSERT INTO vector (record, begin, finish, scale, code) VALUES (?, ?, ?, ?, ?)"

# Record, begin, finish, scale, code.
_Row: TypeAlias = tuple[int, int, int, float, bytes]


def state(connection: apsw.Connection) -> dict[str, str]:
    """What `meta` says of the vectors; `epoch` is the number of purges."""
    rows: list[tuple[Any, ...]] = connection.execute(_META).fetchall()
    return dict(rows)


def upto(found: dict[str, str]) -> int:
    """Up to which event all texts have their vectors, of what `state` gave; 0 where that is damaged."""
    value = found.get("embedded", "0")
    return int(value) if value.isascii() and value.isdigit() and len(value) < _DIGITS else 0


def pending(connection: apsw.Connection) -> int:
    """How many records changed since all texts had their vectors, counted up to 1,001."""
    after = upto(state(connection))
    (number,) = connection.execute(_PENDING, (after, _PENDING_MOST)).fetchone() or (0,)
    return int(number)


def newest(source: Source, most: int) -> list[int]:
    """The records that changed last and have no vectors yet, the latest first."""
    after = upto(state(source.connection))
    recent = max(after, source.number("SELECT max(seq) FROM event") - RECENT * most)
    return [record for (record,) in source.rows(_NEWEST, (recent, most))]


def reached(connection: apsw.Connection) -> tuple[int, int]:
    """Up to which event all texts have their vectors, and the last event there is."""
    (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM event").fetchone() or (0,)
    return upto(state(connection)), int(last)


class Worker:
    """Embeds what is pending in a thread of its own, which ends when there is nothing left."""

    def __init__(self, database: Database, settle: Callable[[], Embedder | None]) -> None:
        """Make one.

        Args:
            database: The open file.
            settle: Gives the embedder, in the thread; None where there is nothing for it to do.
        """
        self.database = database
        self._settle = settle
        self.failed: AgentMemError | None = None
        self._token = secrets.token_hex(8)
        self._holding = False
        self._stop = threading.Event()
        self._lock = threading.Lock()
        # Not by `Thread.join`: before Python 3.13 an interrupt of that has the thread pass for ended.
        self._idle = threading.Event()
        self._idle.set()
        self._thread: threading.Thread | None = None

    @property
    def stopped(self) -> bool:
        """Whether it was ended for good."""
        return self._stop.is_set()

    def start(self) -> bool:
        """Begin, unless it is at work already. Whether it began now."""
        with self._lock:
            if self._stop.is_set() or not self._idle.is_set():
                return False
            self._thread = threading.Thread(target=self._run, name="agentmem-embed", daemon=True)
            self._idle.clear()
            try:
                self._thread.start()
            except (RuntimeError, MemoryError) as error:  # the system has no room for another thread
                self.failed = EmbedderFailed("Nothing is embedded: no thread can be started", why=str(error),
                                             next="The next recall tries again; until then it goes by words")  # fmt: skip
                self._idle.set()
            return True

    def end(self) -> None:
        """Have it end after the batch at work. It does not begin again."""
        self._stop.set()

    def stop(self) -> None:
        """The same, and wait for that."""
        self.end()
        self.join(None)

    def join(self, timeout: float | None) -> bool:
        """Wait for its end. Whether it is at work no more."""
        return self._thread is threading.current_thread() or self._idle.wait(timeout)

    def forked(self) -> None:
        """In the child of a fork, where the thread is not; what the parent holds it does not hold."""
        stopped = self._stop.is_set()
        self._lock = threading.Lock()
        self._stop, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        if stopped:
            self._stop.set()
        self._thread = None
        self._token = secrets.token_hex(8)
        self._holding = False

    def _run(self) -> None:
        try:
            model = self._settle()
            # Once in any case: processes that recall and end at once would leave all of it to each other for ever.
            while model is not None and self._step(model) and not self._stop.is_set():
                pass
            self.failed = None
        except AgentMemError as error:
            # Recall says so, `stats` too; what is done is kept, and the next start goes on.
            self.failed = error
        finally:
            try:
                self._let_go()
            finally:
                self._idle.set()

    def _step(self, model: Embedder) -> bool:
        """Embed the texts of some events. Whether there are more."""
        with self.database.read() as connection:
            before = state(connection)
            if before.get("embedder", model.id) != model.id:
                return False
            after = upto(before)
            events: list[tuple[Any, ...]] = connection.execute(
                "SELECT seq, record FROM event WHERE seq > ? ORDER BY seq LIMIT ?", (after, _EVENTS)
            ).fetchall()
            if not events:
                return False
            last: Any = connection.execute("SELECT max(seq) FROM event").fetchone()
            first: dict[int, int] = {}
            for seq, record in events:
                first.setdefault(record, seq)
            texts = sorted(_texts(connection, set(first)), key=lambda text: first[text[0]])
        held = self._hold()
        if held is None:
            return not self._stop.wait(1.0)
        if held != before.get("embedded", "0"):
            return True  # another did these while this one read them
        rows, ended = self._embedded(model, texts)
        end = events[-1][0] if ended is None else first[ended] - 1
        if end == after:
            return False  # stopped before anything was done
        return self._store(model, before, rows, end=end, seen=last[0])

    def _embedded(self, model: Embedder, texts: Sequence[tuple[int, str, str]]) -> tuple[list[_Row], int | None]:
        """The rows of these texts one after another, as many as a slice of time has room for, and at least one.

        Returns:
            The rows, and the record at which it ended, of which there is none among them; None where all are done.
        """
        import numpy as np

        from agentmem.recall.codes import quantise

        rows: list[_Row] = []
        windows = passages.windows(model, texts)
        begun, until = False, time.monotonic() + _SLICE_SECONDS
        while part := list(itertools.islice(windows, _BATCH)):
            stopped = begun and self._stop.is_set()
            begun = True
            if stopped or time.monotonic() > until:
                done = [row for row in rows if row[0] != part[0].record]
                if done or stopped:
                    return done, part[0].record
            made = checked.embedded_apart(model, [piece.text for piece in part])
            part = [piece for piece, vector in zip(part, made, strict=True) if vector is not None]
            vectors = [vector for vector in made if vector is not None]
            if not vectors:
                continue
            codes, scales = quantise(np.stack(vectors))
            rows += [
                (piece.record, piece.begin, piece.finish, float(scale), code.tobytes())
                for piece, code, scale in zip(part, codes, scales, strict=True)
            ]
        return rows, None

    def _store(self, model: Embedder, before: dict[str, str], rows: Sequence[_Row], *, end: int, seen: int) -> bool:
        """Write the rows of records that did not change meanwhile. Whether to go on."""
        with self.database.write() as connection:
            now = state(connection)
            if now.get("embedder", model.id) != model.id:
                return False
            same = all(now.get(name) == before.get(name) for name in ("embedded", "epoch"))
            if not same:
                return True  # a purge came between, or another process did the same: from where it is now
            records = {row[0] for row in rows}
            left_out = _changed(connection, records, seen) | _with_vectors(connection, records)
            connection.executemany(_INSERT, [row for row in rows if row[0] not in left_out])
            _set(connection, "embedder", model.id)
            _set(connection, "embedded", str(end))
            _set(connection, "embedding", self._mine())
        return True

    def _mine(self) -> str:
        return f"{self._token} {time.time() + _HELD_SECONDS:.0f}"

    def _hold(self) -> str | None:
        """Say that this process is at work, for so long as a slice may take.

        Returns:
            The mark up to which all have their vectors now; None where another is at work.
        """
        with self.database.write() as connection:
            now = state(connection)
            if _held_by_other(now.get("embedding", ""), self._token):
                return None
            self._holding = True
            _set(connection, "embedding", self._mine())
            return now.get("embedded", "0")

    def _let_go(self) -> None:
        if not self._holding:
            return
        self._holding = False
        try:
            with self.database.write() as connection:
                connection.execute("DELETE FROM meta WHERE name = 'embedding' AND value LIKE ? || ' %'", (self._token,))
        except AgentMemError:
            return  # the file was closed, or is busy: it lapses by itself


def _held_by_other(claim: str, token: str) -> bool:
    """Whether another worker's claim is in force.

    One that ends later than any can is of a clock that went wrong; one without a time is damaged, and nobody's.
    """
    holder, _, until = claim.partition(" ")
    known = until.isascii() and until.isdigit() and len(until) < _DIGITS
    return holder not in ("", token) and known and 0 < int(until) - time.time() <= _HELD_SECONDS + 1


def choose(database: Database, model: Embedder) -> None:
    """Have all vectors made anew by another embedder. No record is touched."""
    with database.write() as connection:
        if state(connection).get("embedder") != model.id:
            indexed.vectors_forget(connection)  # with the claim of whoever was making the former ones
            _set(connection, "embedder", model.id)


def _texts(connection: apsw.Connection, records: set[int]) -> list[tuple[int, str, str]]:
    return passages.texts(connection, sorted(records - _with_vectors(connection, records)), spoken=True)


def _changed(connection: apsw.Connection, records: set[int], after: int) -> set[int]:
    """Which of these records an event after this one changed."""
    sql = "SELECT DISTINCT record FROM event WHERE record IN (SELECT value FROM json_each(?)) AND seq > ?"
    return {int(record) for (record,) in connection.execute(sql, (named(records), after))}


def _with_vectors(connection: apsw.Connection, records: set[int]) -> set[int]:
    """Which of these records have vectors."""
    sql = "SELECT DISTINCT record FROM vector WHERE record IN (SELECT value FROM json_each(?))"
    return {int(record) for (record,) in connection.execute(sql, (named(records),))}


def _set(connection: apsw.Connection, name: str, value: str) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", (name, value))
