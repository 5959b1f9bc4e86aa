"""Which table or index a page belongs to, and whether the schema is the one that the migrations make."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Final

import apsw
from attrs import frozen

from agentmem.engine.database import Database
from agentmem.engine.migrations import SCHEMA
from agentmem.errors import AgentMemError
from agentmem.records.kinds import FUNCTIONS

__all__ = ["Hit", "hits", "schema_differences"]

# What can't be made anew from the log: the log itself, its texts, and what says which store it is. Claims end by
# themselves, and a request that is not remembered is at worst done twice.
_ROOTS: Final = frozenset(("event", "blob", "meta", "request", "sqlite_schema"))
_SCHEMA_ROWS: Final = "SELECT type, name, tbl_name, sql FROM sqlite_schema"
_NAMES: Final = "SELECT name, tbl_name, type FROM sqlite_schema WHERE rootpage > 0 ORDER BY rootpage"


@frozen
class Hit:
    """What damaged pages belong to.

    Attributes:
        names: The tables and indexes, for people.
        derived: Whether all of it can be made anew from the log.
        told: Whether it is known at all.
    """

    names: tuple[str, ...]
    derived: bool
    told: bool


def hits(database: Database, damaged: Iterable[int]) -> Hit:
    """Walk each tree and see which of them reach damaged pages.

    Each is walked in a read transaction of its own: after a page that fails every other seems to, to the end of it.
    """
    lost = frozenset(damaged)
    try:
        with database.read(long=True) as connection:
            rows: list[tuple[Any, ...]] = connection.execute(_NAMES).fetchall()
            trees = [("sqlite_schema", "sqlite_schema", "table"), *rows]
    except (AgentMemError, apsw.Error):
        return Hit(("sqlite_schema",), derived=False, told=False)
    found: dict[str, None] = {}
    roots = False
    for name, table, kind in trees:
        if _reaches(database, name, lost):
            found[f"{name} (an index)" if kind == "index" else _told(name)] = None
            # The texts are looked up by their index; of all others an index is made anew.
            roots = roots or table == "blob" or (name in _ROOTS and kind == "table")
    return Hit(tuple(found), not roots, told=True)


def _reaches(database: Database, name: str, lost: frozenset[int]) -> bool:
    try:
        with database.read(long=True) as connection:
            pages = connection.execute("SELECT pageno FROM dbstat WHERE name = ?", (name,))
            return any(number in lost for (number,) in pages)
    except (AgentMemError, apsw.Error):
        return True


def _told(name: str) -> str:
    return "the full-text index" if name.startswith("search_") else f"the table {name}"


def schema_differences(connection: apsw.Connection) -> list[str]:
    """The names of what is missing, changed or not of ours in the schema of an open file."""
    # A trigger may have the name of a table, and a forged row any name: so whole rows are compared.
    rows: list[tuple[Any, ...]] = connection.execute(
        f"{_SCHEMA_ROWS} WHERE NOT (type = 'table' AND name IN ('sqlite_stat1', 'sqlite_stat4'))"
    ).fetchall()
    return sorted({str(row[1]) for row in frozenset(rows) ^ _wanted()})


@cache
def _wanted() -> frozenset[tuple[Any, ...]]:
    scratch = apsw.Connection(":memory:")
    try:
        for function in FUNCTIONS:
            scratch.create_scalar_function(function.name, function.call, function.args, deterministic=True)
        for migration in SCHEMA:
            for statement in migration.script:
                scratch.execute(statement)
        rows: list[tuple[Any, ...]] = scratch.execute(_SCHEMA_ROWS).fetchall()
    finally:
        scratch.close()
    return frozenset(rows)
