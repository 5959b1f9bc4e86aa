"""Migrations: older files become current ones, newer ones are left alone; functions for the schema."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from engine_files import (
    EMPTY,
    ONE,
    SCHEMA,
    THREE,
    TWO,
    digests,
    opened,
    rows,
)

from agentmem.engine.database import Migration, SqlFunction
from agentmem.errors import InvalidInput, NewerFile


@pytest.mark.parametrize("earlier", [1, 2, 3])
def test_every_earlier_version_is_brought_up_to_date(path: Path, earlier: int) -> None:
    """A file of each earlier version ends with the same tables as a new one."""
    opened(path, schema=SCHEMA[:earlier]).close()
    with opened(path) as database:
        assert rows(database) == [(1, "one!")]
        assert rows(database, "PRAGMA user_version") == [(3,)]


def test_a_failed_migration_leaves_the_last_good_version(path: Path) -> None:
    """Each migration is one transaction: the second fails, the first one's file stays and opens as it was."""
    opened(path, schema=(ONE,)).close()
    broken = Migration(2, "broken", ("ALTER TABLE t ADD COLUMN c TEXT", "INSERT INTO nowhere VALUES (1)"))
    with pytest.raises(apsw.SQLError, match="nowhere"):
        opened(path, schema=(ONE, broken))
    with opened(path, schema=(ONE,)) as database:
        assert rows(database, "SELECT * FROM t") == [(1, "one")]
        assert rows(database, "PRAGMA user_version") == [(1,)]


@pytest.mark.parametrize("options", [{}, {"read_only": True}])
def test_a_newer_file_is_left_alone(path: Path, options: dict[str, object]) -> None:
    """A file of a later version is NewerFile, and not a byte of it changes."""
    opened(path).close()
    before = digests(path)
    with pytest.raises(NewerFile, match="later version"):
        opened(path, schema=SCHEMA[:2], **options)
    after = digests(path)
    # Reading leaves an empty -wal beside the file, and memory shared between readers.
    assert after.pop("store.db-wal", EMPTY) == EMPTY
    after.pop("store.db-shm", None)
    assert after == before


def test_an_older_process_writes_nothing_after_a_migration(path: Path) -> None:
    """TRAPS 8: a store still open with the older schema gets NewerFile on every transaction, and nothing is written."""
    with opened(path, schema=(ONE,)) as older:
        with older.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('before')")
        opened(path, schema=SCHEMA).close()
        with pytest.raises(NewerFile), older.write() as connection:
            connection.execute("INSERT INTO t (b) VALUES ('after')")
        with pytest.raises(NewerFile), older.read():
            pass
    with opened(path) as database:
        assert rows(database, "SELECT b FROM t") == [("one",), ("before",)]


def test_a_schema_with_a_gap_is_refused(path: Path) -> None:
    """Migrations are numbered 1, 2, 3, …."""
    for schema in ((TWO,), (ONE, THREE), (ONE, ONE)):
        with pytest.raises(InvalidInput, match="numbered"):
            opened(path, schema=schema)


def test_functions_work_in_triggers_of_an_untrusted_schema(path: Path) -> None:
    """TRAPS 20: functions are innocuous and deterministic, so triggers and indexes may call them."""
    schema = (
        Migration(
            1,
            "trigger",
            (
                "CREATE TABLE t (a TEXT) STRICT",
                "CREATE TABLE log (a TEXT) STRICT",
                "CREATE TRIGGER t_in AFTER INSERT ON t BEGIN INSERT INTO log VALUES (shout(new.a)); END",
                "CREATE INDEX t_shout ON t (shout(a))",
            ),
        ),
    )
    functions = [SqlFunction("shout", str.upper, 1)]
    with opened(path, schema=schema, functions=functions) as database:
        with database.write() as connection:
            connection.execute("INSERT INTO t VALUES ('quiet')")
        assert rows(database, "SELECT a, shout('x') FROM log") == [("QUIET", "X")]
    with (
        opened(path, schema=schema) as without,
        pytest.raises(apsw.SQLError, match="shout"),
        without.write() as connection,
    ):
        connection.execute("INSERT INTO t VALUES ('quiet')")
