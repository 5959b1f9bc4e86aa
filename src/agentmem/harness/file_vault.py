"""A vault in a file of its own: encrypted as a store is, never the file of the memory."""

from __future__ import annotations

import os
import secrets
from types import TracebackType
from typing import Any, Final

import apsw

from agentmem.engine.database import Database
from agentmem.engine.keys import Key
from agentmem.engine.schema import Migration
from agentmem.errors import AgentMemError, IoFailed, NewerFile, NotAStore, shown
from agentmem.harness.vault import GrantRequest, Secret, missing, unframed
from agentmem.log.ledger import system_clock
from agentmem.records import validate

__all__ = ["FileVault"]

# `meta` has no row `store`, by which a file of a memory is told.
_SCHEMA: Final = (
    Migration(
        1,
        "vault",
        (
            "CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID",
            """
            CREATE TABLE credential (
                id TEXT PRIMARY KEY,
                value TEXT NOT NULL,
                note TEXT,
                changed_at INTEGER NOT NULL
            ) STRICT, WITHOUT ROWID
            """,
        ),
    ),
)
_NOTE_CHARS: Final = 500
_CLEAN_SECONDS: Final = 2.0


def _marked(connection: apsw.Connection) -> None:
    connection.execute("INSERT INTO meta (name, value) VALUES ('vault', '1')")


class FileVault:
    """Credentials in an encrypted file. Thread-safe; several processes may have it open.

    ```py
    with FileVault.open("secrets.vault", key="correct horse battery staple") as vault:
        vault.add("prod-stripe", value)
    ```
    """

    def __init__(self, database: Database) -> None:
        """Use `open`."""
        self._database = database

    @classmethod
    def open(
        cls, path: str | os.PathLike[str], *, key: Key | None = None, create: bool = True, read_only: bool = False
    ) -> FileVault:
        """Open a vault; a new file is made where there is none.

        Args:
            path: The file.
            key: 32 bytes, a passphrase, or a callable that gives one; looked for as that of a store otherwise. Give it
                another than the memory has.
            create: Make the file where it is missing.
            read_only: Change nothing.

        Raises:
            WrongKey: The key does not open it.
            KeyMissing: The file exists and no key was found.
            NotAStore: It is another file than a vault, also one of a memory.
            StoreMissing: There is none and `create` is false.
            NewerFile: A later version wrote it.
        """
        given = validate.path(path)
        try:
            database = Database.open(
                given, schema=_SCHEMA, key=key, create=create, read_only=read_only, on_create=_marked
            )
        except NewerFile:
            # Of a memory, which has more migrations, or of a later vault: it can't be told without opening it.
            raise NewerFile(
                f"{shown(given)} is a vault of a later version, or the file of a memory",
                next="Give the path of a vault, or update agentmem",
            ) from None
        try:
            with database.read() as connection:
                mark = connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'credential'").fetchone()
                if mark is None:
                    raise NotAStore(
                        f"{shown(given)} is no vault",
                        why="It is the file of a memory",
                        next="Give the vault a file of its own",
                    )
            vault = cls(database)
            if not read_only:
                vault._clean(wait=0.0)
        except BaseException:
            database.close()
            raise
        return vault

    def close(self) -> None:
        """Close the file. Closing twice is fine."""
        self._database.close()

    def __enter__(self) -> FileVault:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<FileVault {shown(str(self._database.path))}>"

    def add(self, credential: str, value: str, *, note: str | None = None) -> None:
        """Keep a credential, or replace it; the former value is overwritten, as with `remove`.

        Args:
            credential: Its id, a label.
            value: The secret.
            note: A line for people, such as who owns it. It is no secret.

        Raises:
            InvalidInput: The id is no label, the value no text, or the note no line.
            ReadOnly: The vault was opened for reading.
        """
        secret = Secret(value)
        del value
        name = validate.label(credential, "credential")
        told = validate.optional_line(note, "note", _NOTE_CHARS)
        problem: BaseException | None = None
        try:
            with self._database.write() as connection:
                known = connection.execute("SELECT 1 FROM credential WHERE id = ?", (name,)).fetchone()
                connection.execute(
                    "INSERT OR REPLACE INTO credential (id, value, note, changed_at) VALUES (?, ?, ?, ?)",
                    (name, secret.value, told, system_clock()),
                )
                if known is not None:
                    _unclean(connection)
        except AgentMemError as error:
            problem = unframed(error)
        except apsw.Error as error:  # its frames show what was bound
            problem = IoFailed("The vault could not be written to", why=type(error).__name__)
        if problem is not None:
            raise problem
        self._clean(wait=_CLEAN_SECONDS)

    def remove(self, credential: str) -> None:
        """Take a credential out.

        What it stood in is overwritten and the write-ahead log emptied; where another process reads meanwhile, by whoever
        opens or changes the vault next. Copies of the file, and what a disk keeps by itself, are out of reach.

        Raises:
            NotFound: There is none of this id.
            ReadOnly: The vault was opened for reading.
        """
        name = validate.label(credential, "credential")
        with self._database.write() as connection:
            if connection.execute("SELECT 1 FROM credential WHERE id = ?", (name,)).fetchone() is None:
                raise missing(name, _ids(connection))
            connection.execute("DELETE FROM credential WHERE id = ?", (name,))
            _unclean(connection)
        self._clean(wait=_CLEAN_SECONDS)

    def ids(self) -> list[str]:
        """The ids, sorted."""
        with self._database.read() as connection:
            return _ids(connection)

    def notes(self) -> dict[str, str | None]:
        """The note of each credential, by id."""
        with self._database.read() as connection:
            rows: list[Any] = connection.execute("SELECT id, note FROM credential ORDER BY id").fetchall()
            return dict(rows)

    def secret(self, request: GrantRequest) -> Secret:
        """The credential of the id.

        Raises:
            NotFound: There is none of this id.
        """
        with self._database.read() as connection:
            for (value,) in connection.execute("SELECT value FROM credential WHERE id = ?", (request.credential,)):
                return Secret(str(value))
            known = _ids(connection)
        raise missing(request.credential, known)

    def _clean(self, *, wait: float) -> None:
        """Take away what former values left in the file: the unused parts of pages, and the write-ahead log.

        Args:
            wait: Seconds to wait for readers and writers, for each of the two.
        """
        with self._database.read(alone=True) as connection:
            pending = connection.execute("SELECT value FROM meta WHERE name = 'unclean'").fetchone()
        if pending is None:
            return
        if self._database.rewrite(wait=wait) and self._database.checkpoint(wait=wait):
            with self._database.write() as connection:
                # Not where another value was removed meanwhile, which has a mark of its own.
                connection.execute("DELETE FROM meta WHERE name = 'unclean' AND value = ?", pending)


def _ids(connection: apsw.Connection) -> list[str]:
    return [str(name) for (name,) in connection.execute("SELECT id FROM credential ORDER BY id")]


def _unclean(connection: apsw.Connection) -> None:
    connection.execute("INSERT OR REPLACE INTO meta (name, value) VALUES ('unclean', ?)", (secrets.token_hex(8),))
