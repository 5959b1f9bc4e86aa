"""What the tests of the engine's file share: a small schema of three versions, and looking at a directory's bytes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from agentmem.engine.database import Database, Migration
from agentmem.engine.pages import first_page

KEY = bytes(range(32))
ONE = Migration(
    1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY, b TEXT) STRICT", "INSERT INTO t (b) VALUES ('one')")
)
TWO = Migration(2, "second", ("ALTER TABLE t ADD COLUMN c TEXT", "UPDATE t SET c = b || '!'"))
THREE = Migration(
    3, "third", ("CREATE TABLE u (a INTEGER PRIMARY KEY, d TEXT) STRICT", "INSERT INTO u SELECT a, c FROM t")
)
EMPTY = hashlib.sha256(b"").hexdigest()
SCHEMA = (ONE, TWO, THREE)


def opened(path: Path, **options: object) -> Database:
    options.setdefault("key", KEY)
    options.setdefault("schema", SCHEMA)
    return Database.open(path, **options)  # type: ignore[arg-type]


def digests(path: Path) -> dict[str, str]:
    """Every file in the directory by its digest. Only while no store in it is open."""
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in sorted(path.parent.iterdir())}


def rows(database: Database, sql: str = "SELECT * FROM u") -> list[tuple[object, ...]]:
    with database.read() as connection:
        return connection.execute(sql).fetchall()


def row_count(database: Database) -> int:
    with database.read() as connection:
        found: int = connection.execute("SELECT count(*) FROM t").get  # type: ignore[assignment]
    return found


def add(database: Database, count: int = 1, size: int = 500) -> None:
    with database.write() as connection:
        for _ in range(count):
            connection.execute("INSERT INTO t (b) VALUES (?)", (os.urandom(size // 2).hex(),))


def salt_of(path: Path) -> bytes:
    return first_page(path)[:16]
