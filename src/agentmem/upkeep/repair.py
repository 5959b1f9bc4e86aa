"""What is derived, made anew from the log: projections and full-text index in place, broken trees by a new file.

The log is never touched, and where its chain is not whole nothing is made of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from agentmem.engine.connection import Connection, cipher_set, close_quietly, connection_bare
from agentmem.engine.database import Database
from agentmem.engine.faults import rethrow, translated
from agentmem.engine.files import beside, directory_fsync, io_failed, size_of, temporary_beside
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.schema import remove_set
from agentmem.errors import AgentMemError, Busy, Corrupt, IoFailed, shown
from agentmem.log import blobs
from agentmem.log.ledger import events
from agentmem.records import indexed
from agentmem.records.cleaning import epoch_raise
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Head
from agentmem.upkeep.copies import store_id
from agentmem.upkeep.diagnosis import Finding, Severity, of_error
from agentmem.upkeep.proof import Proven
from agentmem.upkeep.rebuild import EVENT_COLUMNS, Material, build
from agentmem.upkeep.surroundings import take_away

if TYPE_CHECKING:
    from agentmem.upkeep.doctor import Examination

__all__ = ["mend"]

_ROWS: Final = 500
# What `meta` says of what the new file makes itself, or of vectors, which it does not have.
_MADE_ANEW: Final = ("store", "analyser", "analyser_next", *indexed.VECTORS_META)


def mend(seen: Examination) -> tuple[list[str], list[Finding]]:
    """Make anew what an examination found broken, where the log is whole, and take away what killed processes left.

    Returns:
        What was done, and what was refused.
    """
    if not seen.path.parent.is_dir():
        return [], []
    done, refused = take_away(seen.path), []
    damaged = seen.scan is not None and bool(seen.scan.lost or seen.scan.rest)
    barred = seen.head is None and any(finding.code == "unreadable" for finding in seen.findings)
    if not (damaged or barred or seen.structure or seen.replayed or seen.index or seen.vectors):
        return done, []
    if seen.head is None or seen.proven is None or (damaged and (seen.hit is None or not seen.hit.derived)):
        what = "Nothing was made anew: it would be made of the log, and that is not whole."
        safe = all(finding.safe for finding in seen.findings)
        return done, [Finding("repair_refused", Severity.FAULT, what, safe, next="Use Store.salvage.")]
    try:
        if damaged or seen.structure:
            done += _file_anew(seen.path, seen.proven, seen.head)
        else:
            done += _tables_anew(seen)
    except AgentMemError as error:
        refused.append(of_error(error, safe=True))
    return done, refused


# In place


def _tables_anew(seen: Examination) -> list[str]:
    """Projections, the index or the vectors alone, in one transaction of the open file."""
    assert seen.proven is not None  # asked for by the caller
    found = seen.proven.found
    done = []
    with (
        Database.open(
            seen.path, schema=SCHEMA, functions=FUNCTIONS, key=None if found is None else found.material, create=False,
            encrypted=found is not None,
        ) as database,
        database.write() as connection,
    ):  # fmt: skip
        if seen.replayed or seen.index:
            _index_emptied(connection)
            if seen.replayed:
                _projections_anew(connection)
                _texts_recounted(connection)
                done.append("replayed the log into the tables")
            else:
                _index_filled(connection)
            indexed.set_maker(connection)
            done.append("made the full-text index anew")
        if seen.replayed or seen.vectors:
            indexed.vectors_forget(connection)
            done.append("let go of the vectors, which whoever opens the store with a model makes anew")
        epoch_raise(connection)
    return done


def _index_emptied(connection: apsw.Connection) -> None:
    """The index as the migrations make it: a broken one can't be emptied row by row."""
    connection.execute("DROP TABLE search")
    for migration in SCHEMA:
        for sql in migration.script:
            if sql.startswith(("CREATE VIRTUAL TABLE search ", "INSERT INTO search ")):
                connection.execute(sql)


def _projections_anew(connection: apsw.Connection) -> None:
    for table in KINDS.projections:
        connection.execute(f"DELETE FROM {table}")
    # The triggers fill the index.
    for event in events(connection, KINDS):
        KINDS.apply(connection, event)


def _texts_recounted(connection: apsw.Connection) -> None:
    connection.execute("UPDATE blob SET uses = 0")
    for (payload,) in connection.execute("SELECT payload FROM event WHERE substr(payload, 1, 1) = '@'").fetchall():
        for hashed in blobs.named(str(payload)):
            connection.execute("UPDATE blob SET uses = uses + 1 WHERE hash = ?", (hashed,))
    connection.execute("DELETE FROM blob WHERE uses = 0")


def _index_filled(connection: apsw.Connection) -> None:
    after = 0
    while rows := indexed.piece(connection, after, _ROWS):
        connection.executemany(indexed.INSERT, [indexed.analysed(row) for row in rows])
        after = rows[-1][0]


# By a new file


def _file_anew(path: Path, proven: Proven, head: Head) -> list[str]:
    """A new file of the same log, key and name; the broken one is kept under another.

    Nobody else may have the file open, and nobody can open it meanwhile: what they wrote would be in the old file.
    """
    connection = _alone(path, proven)
    temporary = temporary_beside(path)
    try:
        made, broken = build(temporary, proven.raw, _material(connection))
        if broken is not None or made != head:
            raise Corrupt(
                "The log could not be read to its end, so nothing was made anew",
                why="" if broken is None else broken.what,
                next="Use Store.salvage.",
            )
        kept = _swap(path, temporary)
    except apsw.SQLError as error:
        raise Corrupt(
            "A table that can't be made anew from the log is missing or changed",
            why=str(error),
            next="Use Store.salvage.",
        ) from error
    except apsw.Error as error:
        rethrow(error, path)
    except AgentMemError:
        raise
    except OSError as error:
        raise io_failed(f"{path} could not be made anew", error) from error
    finally:
        close_quietly(connection)
        remove_set(temporary)
    return [f"made a new file of the log, under the old name; the broken one is kept as {shown(kept.name)}"]


def _alone(path: Path, proven: Proven) -> Connection:
    """A connection that no other can be beside, not even a reader: WAL mode with an exclusive lock on the file itself.

    Raises:
        Busy: Somebody has the file open.
    """
    connection = connection_bare(str(path), apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        if proven.raw is not None:
            cipher_set(connection, proven.raw)
        # Before the first reading: later it would leave the others their shared memory.
        connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("ROLLBACK")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        if size_of(beside(path, "-wal")):
            raise IoFailed("The write-ahead log could not be written back")
    except (apsw.BusyError, apsw.LockedError) as error:
        close_quietly(connection)
        raise Busy(
            f"{path} is in use, so it cannot be made anew",
            why="Whatever others write meanwhile would be in the old file",
            next="Close it everywhere, in this process too, and repair again.",
        ) from error
    except BaseException as error:
        close_quietly(connection)
        typed = translated(error, path)
        if typed is not None:
            raise typed from error
        raise
    return connection


def _material(connection: Connection) -> Material:
    def rows(sql: str) -> list[tuple[Any, ...]]:
        return connection.execute(sql).fetchall()

    # First of all: after a page that fails every other seems to, until no statement is open any more.
    leases = _leases(connection)
    return Material(
        store=store_id(connection),
        meta={name: value for name, value in rows("SELECT name, value FROM meta") if name not in _MADE_ANEW},
        texts=_texts(connection),
        events=_events(connection),
        requests=rows("SELECT project, id, arguments, result, at FROM request"),
        leases=leases,
    )


def _leases(connection: Connection) -> list[tuple[Any, ...]]:
    """The claims in force. Where their table is what is damaged they have ended."""
    try:
        return connection.execute("SELECT record, holder, run, secret, taken_at, expires_at FROM lease").fetchall()
    except (apsw.CorruptError, apsw.SQLError):  # the latter where there is no such table
        return []


def _texts(connection: Connection) -> Iterator[str]:
    for (text,) in connection.execute("SELECT text FROM blob"):
        yield str(text)


def _events(connection: Connection) -> Iterator[tuple[Any, ...]]:
    yield from connection.execute(f"SELECT {', '.join(EVENT_COLUMNS)} FROM event NOT INDEXED ORDER BY seq")


def _swap(path: Path, temporary: Path) -> Path:
    """Give the new file the name, at once and durably; the old one gets another first.

    The old one's empty WAL goes before, while nobody can open the file: SQLite would take it for the new one's.
    """
    for suffix in ("-wal", "-shm"):
        beside(path, suffix).unlink(missing_ok=True)
    kept = _free_name(path)
    os.link(path, kept)
    try:
        os.replace(temporary, path)
    except OSError:
        kept.unlink()  # the second name of a file that keeps its first
        raise
    directory_fsync(path.parent)
    return kept


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        name = path.with_name(f"{path.name}.damaged" + (f"-{number}" if number > 1 else ""))
        if not os.path.lexists(name):
            return name
        number += 1
