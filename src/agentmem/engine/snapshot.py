"""Copies of a live file, and the second opinion of stock SQLCipher on one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import apsw

from agentmem.engine.connection import Connection, cipher_set, connection_bare
from agentmem.engine.faults import no_directory, rethrow
from agentmem.engine.files import (
    beside,
    file_fsync,
    io_failed,
    private_file_make,
    publish,
    size_of,
    temporary_beside,
)
from agentmem.engine.keys import SALT_BYTES, RawKey, stretch
from agentmem.engine.pool import Pool
from agentmem.engine.schema import remove_set
from agentmem.engine.transactions import ReadBlock
from agentmem.errors import AgentMemError, Corrupt, DiskFull, IoFailed, StoreExists

__all__ = ["Amend", "Inspect", "backup_to", "free_check", "second_opinion", "sound_check", "taken"]

Amend: TypeAlias = Callable[[apsw.Connection], None]
"""Changes a copy before it is checked, inside a transaction that is committed afterwards; no trigger runs, no view is read."""

Inspect: TypeAlias = Callable[[Any], None]
"""Looks at a finished copy through a connection of stock SQLCipher (DB-API, reading only); raises where it is not sound."""

_SIDES = ("-wal", "-shm", "-journal")


def backup_to(
    pool: Pool,
    target: Path,
    material: bytes | str | None,
    *,
    amend: Amend | None = None,
    inspect: Inspect | None = None,
) -> None:
    """Copy the committed state to a new file with SQLite's backup API, in one step, and check it before it gets its name.

    One step, since a copy in parts starts again with every commit of a writer beside it. A key never goes into SQL text
    that names a file. The read transaction on the source ends with the copy: the checks hold up nobody.

    Args:
        pool: The source.
        target: The new file; it appears whole, checked and durable, or not at all.
        material: The copy's key; None for the source's own (or none, for a plain file).
        amend: Changes the copy.
        inspect: Checks it beyond its pages and structure.

    Raises:
        StoreExists: There is something at `target`, or a file beside it that SQLite would take for the copy's.
        Corrupt: The source can't be read, or the copy is not sound.
        DiskFull: There is no room for the copy.
    """
    free_check(target)
    raw = None if material is None else stretch(material, os.urandom(SALT_BYTES))
    temporary = temporary_beside(target)
    try:
        raw = _copy(pool, temporary, raw)
        if amend is not None:
            _amend(temporary, raw, amend)
        sound_check(temporary, raw, inspect)
        file_fsync(temporary)
        if not publish(temporary, target):
            raise taken(target)
    except AgentMemError:  # some of ours are OSErrors too
        raise
    except OSError as error:
        raise io_failed(f"No copy can be made at {target}", error) from error
    finally:
        remove_set(temporary)


def free_check(target: Path) -> None:
    """Refuse a name for a new database that is taken, or that has left-overs of another database beside it.

    SQLite would take a write-ahead log or journal that it finds there for the new file's, and write it into it.

    Raises:
        StoreExists: Names what is there.
        StoreMissing: There is no such directory.
    """
    if os.path.lexists(target):
        raise taken(target)
    try:
        directory = target.parent.is_dir()
    except OSError as error:
        raise io_failed(f"{target} cannot be looked at", error) from error
    if not directory:
        raise no_directory(target)
    for suffix in _SIDES:
        side = beside(target, suffix)
        if os.path.lexists(side):
            raise StoreExists(
                f"There is already a file at {side}",
                why="It was left by another database of that name, and SQLite would take it for a part of the new one",
                next="Choose another name, or find out what it belongs to and move it elsewhere.",
            )


def taken(target: Path) -> StoreExists:
    """The error for a name that is to be a new file's and is another's."""
    return StoreExists(f"There is already something at {target}", next="Choose another name for the copy.")


def _copy(pool: Pool, temporary: Path, raw: RawKey | None) -> RawKey | None:
    """Copy to a file that is not there yet; return the copy's key, by default the one the source has just now."""
    with ReadBlock(pool, pool, long=True, alone=True) as source:
        raw = raw or pool.opening.key
        try:
            os.close(private_file_make(temporary))
        except OSError as error:
            raise io_failed(f"No copy can be made in {temporary.parent}", error) from error
        with _written(temporary, raw) as target:
            try:
                with target.backup("main", source, "main") as backup:
                    while not backup.step(-1):
                        pass
            except apsw.FullError:
                raise
            except apsw.Error as error:
                rethrow(error, pool.opening.path)
    return raw


@contextmanager
def _written(temporary: Path, raw: RawKey | None) -> Iterator[Connection]:
    """A connection that fills or changes a file of our own, which is synced as a whole once it is closed."""
    try:
        connection = connection_bare(str(temporary), apsw.SQLITE_OPEN_READWRITE)
        try:
            if raw is not None:
                cipher_set(connection, raw)
            connection.execute("PRAGMA synchronous = OFF").fetchall()
            connection.execute("PRAGMA secure_delete = ON").fetchall()
            yield connection
        finally:
            connection.close()
    except apsw.FullError as error:
        raise DiskFull(
            f"No space is left for a copy in {temporary.parent}", next="Make room there, or choose another place."
        ) from error
    except apsw.Error as error:
        rethrow(error, temporary)


def _amend(temporary: Path, raw: RawKey | None, amend: Amend) -> None:
    with _written(temporary, raw) as connection:
        # The source may come from anybody: what it declares is not to run when the amendment writes.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
        connection.execute("BEGIN IMMEDIATE")
        amend(connection)
        connection.execute("COMMIT")
    if size_of(beside(temporary, "-wal")):
        raise IoFailed("The changes to the copy were not written back into it")


def second_opinion(pool: Pool) -> list[str]:
    """Check a snapshot with sqlcipher3, never the live file: two builds in one process break each other's locks."""
    temporary = temporary_beside(pool.opening.path)
    try:
        raw = _copy(pool, temporary, None)
        return _faults(temporary, raw, None)
    except Corrupt as error:
        return [f"The file cannot be copied: {error.why}"]
    finally:
        remove_set(temporary)


def sound_check(temporary: Path, raw: RawKey | None, inspect: Inspect | None = None) -> None:
    """Have stock SQLCipher, another build, check a closed file of our own: every page, the structure, what `inspect` asks.

    Args:
        temporary: The file. No connection of this process is open to it.
        raw: Its key, None for a plain one.
        inspect: Looks further.

    Raises:
        Corrupt: It is not sound.
    """
    faults = _faults(temporary, raw, inspect)
    if faults:
        raise Corrupt(
            "The copy is not sound, and was not kept",
            why=f"Stock SQLCipher says: {faults[0]}",
            next="Run agentmem doctor on the file that was copied.",
        )


def _faults(path: Path, raw: RawKey | None, inspect: Inspect | None) -> list[str]:
    import sqlcipher3  # type: ignore[import-untyped]

    try:
        # Without a WAL there is nothing to lock: so it makes no files beside the copy. No key is part of the URI.
        connection = sqlcipher3.connect(f"{path.as_uri()}?immutable=1", uri=True)
        try:
            faults = _checked(connection, raw)
            if not faults and inspect is not None:
                inspect(connection)
        finally:
            connection.close()
    except sqlcipher3.DatabaseError as error:
        return [f"sqlcipher3 cannot read the snapshot: {error}"]
    return faults


def _checked(connection: Any, raw: RawKey | None) -> list[str]:
    # It would write what it finds to the standard error output.
    connection.execute("PRAGMA cipher_log_level = NONE").fetchall()
    if raw is not None:
        connection.execute(f'PRAGMA key = "{raw.pragma_value()}"')
        faults = [str(row[0]) for row in connection.execute("PRAGMA cipher_integrity_check")]
        if faults:
            return faults  # after a page that fails, every later one seems to
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        raise IoFailed("The snapshot came out empty")
    return [str(line) for (line,) in connection.execute("PRAGMA quick_check") if line != "ok"]
