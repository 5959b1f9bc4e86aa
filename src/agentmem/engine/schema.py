"""How a store's file comes to be, and how an older one becomes a current one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
from attrs import frozen

from agentmem.engine.connection import Opening, cipher_set, connection_bare, number_of, pragmas_set
from agentmem.engine.faults import newer_file, no_directory, rethrow
from agentmem.engine.files import beside, file_fsync, io_failed, private_file_make, publish, temporary_beside
from agentmem.engine.pages import APPLICATION_ID, PAGE_BYTES, PLAIN_HEADER
from agentmem.errors import AgentMemError, Corrupt, InvalidInput, ReadOnly

__all__ = ["Migration", "create_file", "migrate", "remove_set", "schema_check", "user_version"]


@frozen
class Migration:
    """One step of the schema. Never edited once released.

    Attributes:
        number: Its place, from 1. The last one's is the file's `user_version`.
        name: What it does, for people.
        script: SQL, one statement a string.
    """

    number: int
    name: str
    script: tuple[str, ...]


def schema_check(schema: Sequence[Migration]) -> tuple[Migration, ...]:
    """Refuse a schema that is not numbered 1, 2, 3, … without a gap."""
    numbers = [migration.number for migration in schema]
    if numbers != list(range(1, len(numbers) + 1)):
        raise InvalidInput("Migrations must be numbered from 1 without a gap", why=f"They are numbered {numbers}")
    return tuple(schema)


def user_version(connection: apsw.Connection) -> int:
    """The number of the last migration the file has, as the current transaction sees it."""
    return number_of(connection, "PRAGMA user_version")


def create_file(
    opening: Opening, schema: tuple[Migration, ...], on_create: Callable[[apsw.Connection], None] | None
) -> bool:
    """Make a whole, durable store under a name of its own and then give it the real one, unless that is taken.

    Processes that each began to write at the final name would each bring a salt of their own, and most would find a
    file they can't read.

    Returns:
        Whether this call's file got the name; False where another process was first.
    """
    path = opening.path
    if not path.parent.is_dir():
        raise no_directory(path)
    temporary = temporary_beside(path)
    try:
        # Made here, so that it is private: SQLite gives -wal and -shm the same mode.
        os.close(private_file_make(temporary))
        _fill(temporary, opening, schema, on_create)
        _header_check(temporary, encrypted=opening.key is not None)
        file_fsync(temporary)
        return publish(temporary, path)
    except AgentMemError:  # some of ours are OSErrors too
        raise
    except PermissionError as error:
        raise ReadOnly(f"No file can be made in {path.parent}", why=str(error.strerror)) from error
    except OSError as error:
        raise io_failed(f"{path} could not be made", error) from error
    finally:
        remove_set(temporary)


def _fill(
    temporary: Path,
    opening: Opening,
    schema: tuple[Migration, ...],
    on_create: Callable[[apsw.Connection], None] | None,
) -> None:
    connection = connection_bare(str(temporary), apsw.SQLITE_OPEN_READWRITE)
    try:
        if opening.key is not None:
            cipher_set(connection, opening.key)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}").fetchall()
        pragmas_set(connection, opening, "writer", writes=True)
        # The whole file is synced once it is closed; until it has its name nobody can count on it.
        connection.execute("PRAGMA synchronous = OFF").fetchall()
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
        for migration in schema:
            _apply(connection, migration)
        if on_create is not None:
            on_create(connection)
        connection.execute("COMMIT")
    except (apsw.IOError, apsw.FullError, apsw.CantOpenError) as error:
        rethrow(error, opening.path)
    finally:
        connection.close()


def _header_check(temporary: Path, *, encrypted: bool) -> None:
    """Prove that what was written is what was asked for: an empty key makes SQLCipher write a plain file."""
    with temporary.open("rb") as file:
        plain = file.read(16) == PLAIN_HEADER
    if plain == encrypted:
        raise Corrupt(
            "The new file is not encrypted as it should be; it was not kept", why="The cipher did not take the key"
        )


def _apply(connection: apsw.Connection, migration: Migration) -> None:
    for statement in migration.script:
        connection.execute(statement).fetchall()
    connection.execute(f"PRAGMA user_version = {migration.number}").fetchall()


def migrate(connection: apsw.Connection, opening: Opening, schema: tuple[Migration, ...]) -> None:
    """Bring a file to the current schema, each migration in a transaction of its own.

    The version is read again inside each one: several processes may find the same old file at once.

    Raises:
        NewerFile: The file knows more migrations than `schema`; it is left alone.
        ReadOnly: The file is older and was opened for reading.
    """
    known = len(schema)
    found = user_version(connection)
    if found > known:
        raise newer_file(opening.path, found, known)
    if found < known and opening.read_only:
        raise ReadOnly(
            f"{opening.path} was written by an earlier version of agentmem and was opened for reading",
            why=f"Its schema has number {found}, this version needs {known}",
            next="Open it once for writing, which brings it up to date.",
        )
    while found < known:
        connection.execute("BEGIN IMMEDIATE")
        try:
            found = user_version(connection)
            if found < known:
                _apply(connection, schema[found])
                found += 1
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
    if found > known:
        raise newer_file(opening.path, found, known)


def remove_set(path: Path) -> None:
    """Take away a temporary database of this process and the files SQLite may have put beside it."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        try:
            beside(path, suffix).unlink(missing_ok=True)
        except OSError as error:
            if error.errno != errno.ENAMETOOLONG:  # there is no file of such a name
                raise
