"""Copies of a live file, and the second opinion of stock SQLCipher on one."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw

from agentmem.engine.connection import Connection, cipher_set, connection_bare
from agentmem.engine.faults import no_directory, rethrow
from agentmem.engine.files import file_fsync, io_failed, private_file_make, publish, temporary_beside
from agentmem.engine.keys import SALT_BYTES, RawKey, stretch
from agentmem.engine.pool import Pool
from agentmem.engine.schema import remove_set
from agentmem.engine.transactions import ReadBlock
from agentmem.errors import Corrupt, IoFailed, StoreExists

__all__ = ["backup_to", "second_opinion"]


def backup_to(pool: Pool, target: Path, material: bytes | str | None) -> None:
    """Copy the committed state to a new file with SQLite's backup API, in one step.

    One step, since a copy in parts starts again with every commit of a writer beside it. A key never goes into SQL text
    that names a file.

    Args:
        pool: The source.
        target: The new file; it appears whole and durable, or not at all.
        material: The copy's key; None for the source's own (or none, for a plain file).
    """
    if os.path.lexists(target):
        raise _exists(target)
    if not target.parent.is_dir():
        raise no_directory(target)
    raw = None if material is None else stretch(material, os.urandom(SALT_BYTES))
    temporary = temporary_beside(target)
    try:
        _copy(pool, temporary, raw)
        file_fsync(temporary)
        if not publish(temporary, target):
            raise _exists(target)
    finally:
        remove_set(temporary)


def _exists(target: Path) -> StoreExists:
    return StoreExists(f"There is already something at {target}", next="Choose another name for the copy.")


def _copy(pool: Pool, temporary: Path, raw: RawKey | None) -> RawKey | None:
    """Copy to a file that is not there yet; return the copy's key, by default the one the source has just now."""
    with ReadBlock(pool, pool, long=True, alone=True) as source:
        return _copy_from(source, pool, temporary, raw)


def _copy_from(source: Connection, pool: Pool, temporary: Path, raw: RawKey | None) -> RawKey | None:
    try:
        raw = raw or pool.opening.key
        os.close(private_file_make(temporary))
        target = connection_bare(str(temporary), apsw.SQLITE_OPEN_READWRITE)
        try:
            if raw is not None:
                cipher_set(target, raw)
            target.execute("PRAGMA synchronous = OFF").fetchall()
            with target.backup("main", source, "main") as backup:
                while not backup.step(-1):
                    pass
        finally:
            target.close()
    except apsw.Error as error:
        rethrow(error, pool.opening.path)
    except OSError as error:
        raise io_failed(f"No copy can be made in {temporary.parent}", error) from error
    return raw


def second_opinion(pool: Pool) -> list[str]:
    """Check a snapshot with sqlcipher3, never the live file: two builds in one process break each other's locks."""
    import sqlcipher3  # type: ignore[import-untyped]

    temporary = temporary_beside(pool.opening.path)
    try:
        raw = _copy(pool, temporary, None)
        connection = sqlcipher3.connect(str(temporary))
        try:
            return _checked(connection, raw)
        except sqlcipher3.DatabaseError as error:
            return [f"sqlcipher3 cannot read the snapshot: {error}"]
        finally:
            connection.close()
    except Corrupt as error:
        return [f"The file cannot be copied: {error.why}"]
    finally:
        remove_set(temporary)


def _checked(connection: Any, raw: RawKey | None) -> list[str]:
    faults: list[str] = []
    if raw is not None:
        connection.execute(f'PRAGMA key = "{raw.pragma_value()}"')
        faults += [str(row[0]) for row in connection.execute("PRAGMA cipher_integrity_check")]
    for (line,) in connection.execute("PRAGMA quick_check"):
        if line != "ok":
            faults.append(str(line))
    if connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0] == 0:
        raise IoFailed("The snapshot came out empty")
    return faults
