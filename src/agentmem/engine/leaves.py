"""The rows of a damaged file, read page by page where the tree above the pages can't be relied on.

A work copy is made of the raw pages under a first page of our own, with the images of the write-ahead log in their
places. Its schema declares the tables that are looked for, and for each page in turn says that they begin there: SQLite
itself then decrypts and decodes the page, and follows the chains of long values. What is no leaf of such a table is an
error or shows by its values; the caller decides by those.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import apsw

from agentmem.engine.connection import Connection, cipher_set, close_quietly, connection_bare
from agentmem.engine.faults import rethrow
from agentmem.engine.files import beside, io_failed, private_file_make, size_of, temporary_beside
from agentmem.engine.keys import RawKey
from agentmem.engine.pages import PAGE_BYTES, RawFile
from agentmem.engine.scan import LOCK_PAGE, Scan
from agentmem.engine.schema import remove_set
from agentmem.engine.wal import Wal

__all__ = ["Leaves"]

_CHUNK: Final = 256 * PAGE_BYTES
# A page that the file ends in is read as if zeros followed, and no HMAC is asked of it: what comes may be no text.
_BROKEN: Final = (apsw.CorruptError, apsw.NotADBError, apsw.IOError, apsw.FormatError, UnicodeDecodeError)


class Leaves:
    """The pages of a damaged file, each to be read as if tables began there: `with Leaves(…) as leaves:`."""

    def __init__(self, path: Path, raw: RawKey | None, found: Scan, tables: Mapping[str, str], near: Path) -> None:
        """Make nothing yet.

        Args:
            path: The damaged file.
            raw: Its key and salt, None for a plain file.
            found: What is wrong with it.
            tables: By name, the SQL that makes each table that is looked for.
            near: The work copy is made beside this file, encrypted with the same key, and taken away at the end.
        """
        self._path, self._raw, self._scan, self._tables = path, raw, found, tables
        self._copy = temporary_beside(near)
        self._connection: Connection | None = None
        self.pages = max(found.pages, found.wal.page_count)

    def __enter__(self) -> Leaves:
        """Make the work copy."""
        try:
            self._frame()
            self._fill()
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        """Take the work copy away."""
        if self._connection is not None:
            close_quietly(self._connection)
            self._connection = None
        remove_set(self._copy)

    def numbers(self) -> Iterator[int]:
        """The pages that can be read, but the first, in order."""
        lost = frozenset(self._scan.lost)
        yield from (number for number in range(2, self.pages + 1) if number not in lost and number != LOCK_PAGE)

    @contextmanager
    def at(self, page: int) -> Iterator[Connection]:
        """A connection on which all tables begin at a page, to the end of the block."""
        connection = self._connection
        assert connection is not None  # entered
        connection.execute("BEGIN")
        try:
            connection.execute("UPDATE sqlite_schema SET rootpage = ? WHERE type = 'table'", (page,))
            connection.execute("PRAGMA writable_schema = RESET").fetchall()
            yield connection
        finally:
            connection.execute("ROLLBACK")
            connection.execute("PRAGMA writable_schema = ON").fetchall()

    def leaf(self, connection: Connection, table: str) -> bool:
        """Inside `at`: whether the page is a leaf of a tree of the table's sort."""
        try:
            row = connection.execute("SELECT pagetype FROM dbstat WHERE name = ? LIMIT 1", (table,)).fetchone()
        except _BROKEN:
            return False
        return row is not None and row[0] == "leaf"

    @staticmethod
    def rows(connection: Connection, sql: str, values: tuple[Any, ...] = ()) -> tuple[list[tuple[Any, ...]], bool]:
        """Inside `at`: the rows of a query up to the first that can't be read, and whether that was all."""
        found: list[tuple[Any, ...]] = []
        try:
            for row in connection.execute(sql, values):
                found.append(row)  # noqa: PERF402  # those before an error are kept
        except _BROKEN:
            return found, False
        return found, True

    # The work copy

    def _frame(self) -> None:
        """A sound database with the same key and salt, the tables that are looked for, and as many pages."""
        try:
            os.close(private_file_make(self._copy))
            connection = connection_bare(str(self._copy), apsw.SQLITE_OPEN_READWRITE)
            try:
                self._cipher(connection)
                for pragma in ("journal_mode = OFF", "synchronous = OFF", "temp_store = MEMORY"):
                    connection.execute(f"PRAGMA {pragma}").fetchall()
                for sql in self._tables.values():
                    connection.execute(sql)
                connection.execute("CREATE TABLE filler (bytes BLOB)")
                # As many pages as there are to be: SQLite reads none behind the number that the first page tells.
                for _ in range(0, self.pages, 1024):
                    connection.execute("INSERT INTO filler VALUES (zeroblob(?))", (1024 * PAGE_BYTES,))
            finally:
                connection.close()
        except apsw.Error as error:
            rethrow(error, self._copy)
        except OSError as error:
            raise io_failed(f"No work copy can be made in {self._copy.parent}", error) from error

    def _fill(self) -> None:
        """The raw pages of the damaged file in place of the empty ones, newer images of its WAL over them."""
        try:
            with self._copy.open("r+b") as copy, RawFile(self._path) as source:
                at = PAGE_BYTES
                while chunk := source.read(_CHUNK, at):
                    copy.seek(at)
                    copy.write(chunk)
                    at += len(chunk)
                self._overlay(copy, self._scan.wal)
        except OSError as error:
            raise io_failed(f"No work copy can be made in {self._copy.parent}", error) from error

    def _overlay(self, copy: Any, wal: Wal) -> None:
        if not wal.pages or not size_of(beside(self._path, "-wal")):
            return
        with RawFile(beside(self._path, "-wal"), wal=True) as log:
            for number, place in wal.pages.items():
                if number > 1:
                    copy.seek((number - 1) * PAGE_BYTES)
                    copy.write(log.read(PAGE_BYTES, place))

    def _open(self) -> None:
        try:
            connection = self._connection = connection_bare(str(self._copy), apsw.SQLITE_OPEN_READWRITE)
            self._cipher(connection)
            connection.execute("PRAGMA journal_mode = MEMORY").fetchall()
            connection.execute("PRAGMA temp_store = MEMORY").fetchall()
            connection.execute("PRAGMA writable_schema = ON").fetchall()
        except apsw.Error as error:
            rethrow(error, self._copy)

    def _cipher(self, connection: Connection) -> None:
        if self._raw is not None:
            cipher_set(connection, self._raw)
