"""Replay: the log folded into empty tables gives the same projections, row for row.

A fold builds the tables without triggers and without the full-text index, and all indexes but those that `apply` itself
reads by only once the tables are full: so a hundred thousand events take about a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final, cast

import apsw
from attrs import frozen

from agentmem.engine.connection import SqlFunction
from agentmem.engine.migrations import SCHEMA
from agentmem.log.kinds import Kinds
from agentmem.log.ledger import events
from agentmem.types import Event

# What apply functions read by, beside primary keys: children of a note, items of a note, links to a record, events of a
# session and answers to one of them. Where one is missing each event reads a whole table, and the time of a fold grows with
# the square of the log.
_READ_BY_APPLY: Final = frozenset(
    ("note_parent", "item_open", "link_dst", "summary_note", "copied_record", "message_session", "message_target")
)


@frozen
class Table:
    """One table of the schema as SQL that makes it, in the database that `{schema}` stands for.

    Attributes:
        name: Its name.
        columns: The names of its columns, in order.
        make: The table itself.
        early: The indexes that a fold reads by.
        late: All others.
    """

    name: str
    columns: tuple[str, ...]
    make: str
    early: tuple[str, ...]
    late: tuple[str, ...]


@cache
def tables() -> dict[str, Table]:
    """Every ordinary table of the current schema, by name, as the migrations leave it."""
    scratch = apsw.Connection(":memory:")
    try:
        for migration in SCHEMA:
            for statement in migration.script:
                scratch.execute(statement)
        listed = scratch.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
        made = cast("list[tuple[str, str, str, str]]", listed.fetchall())
        indexes = [(table, name, _placed(sql)) for type, name, table, sql in made if type == "index"]
        found = {}
        for name, sql in [(name, sql) for type, name, _, sql in made if type == "table" and _HEAD.match(sql)]:
            columns = tuple(row[1] for row in scratch.execute(f"PRAGMA table_info({name})"))
            own = [(index, sql) for table, index, sql in indexes if table == name]
            early = tuple(sql for index, sql in own if index in _READ_BY_APPLY)
            late = tuple(sql for index, sql in own if index not in _READ_BY_APPLY)
            found[name] = Table(name, columns, _placed(sql), early, late)
    finally:
        scratch.close()
    return found


_HEAD: Final = re.compile(r"CREATE (TABLE|INDEX|UNIQUE INDEX) ")


def _placed(sql: str) -> str:
    """The statement with a place for the name of the database before the name of what it makes."""
    return _HEAD.sub(lambda head: head[0] + "{schema}.", sql.replace("{", "{{").replace("}", "}}"), count=1)


def create(target: apsw.Connection, names: Iterable[str], *, schema: str = "main") -> None:
    """Make these tables, empty, with the indexes that a fold reads by."""
    for name in names:
        table = tables()[name]
        for statement in (table.make, *table.early):
            target.execute(statement.format(schema=schema))


def apply_all(target: apsw.Connection, kinds: Kinds, log: Iterable[Event]) -> None:
    """Apply events in their order."""
    apply = kinds.apply
    for event in log:
        apply(target, event)


def index(target: apsw.Connection, names: Iterable[str], *, schema: str = "main") -> None:
    """Make the other indexes of these tables: queries name the index they go by."""
    for name in names:
        for statement in tables()[name].late:
            target.execute(statement.format(schema=schema))


def empty(kinds: Kinds, functions: tuple[SqlFunction, ...] = ()) -> apsw.Connection:
    """A database in memory, never on disk, with the projections of these kinds, empty."""
    target = apsw.Connection(":memory:")
    target.execute("PRAGMA temp_store = MEMORY")
    for function in functions:
        target.create_scalar_function(function.name, function.call, function.args, deterministic=True)
    create(target, kinds.projections)
    return target


def fold(
    source: apsw.Connection,
    kinds: Kinds,
    functions: tuple[SqlFunction, ...],
    *,
    until: int | None = None,
    indexed: bool = True,
) -> apsw.Connection:
    """A database in memory, never on disk, with the projections that the log of `source` makes.

    Args:
        source: A connection inside a read transaction.
        kinds: The registered kinds.
        functions: The SQL functions that queries on it may call.
        until: The last seq to fold; all if None.
        indexed: Make the indexes that queries go by.
    """
    target = empty(kinds, functions)
    try:
        target.execute("BEGIN")
        apply_all(target, kinds, events(source, kinds, until=until))
        if indexed:
            index(target, kinds.projections)
        target.execute("COMMIT")
    except BaseException:
        target.close()
        raise
    return target


def differences(
    source: apsw.Connection, kinds: Kinds, functions: tuple[SqlFunction, ...], *, at_most: int = 20
) -> list[str]:
    """Where the stored projections differ from what the log says, a sentence each; empty if nowhere.

    Args:
        source: A connection inside a read transaction.
        kinds: The registered kinds.
        functions: The SQL functions that the tables need.
        at_most: How many to name.
    """
    target = fold(source, kinds, functions, indexed=False)
    found: list[str] = []
    try:
        for table in kinds.projections:
            found.extend(_differences(source, target, table, at_most - len(found)))
            if len(found) >= at_most:
                break
    finally:
        target.close()
    return found


def _differences(source: apsw.Connection, target: apsw.Connection, table: str, at_most: int) -> list[str]:
    told = source.execute(f"PRAGMA table_info({table})").fetchall()
    columns = [str(row[1]) for row in told]
    order = ", ".join([str(row[1]) for row in told if row[5]] or ["rowid"])
    sql = f"SELECT {', '.join(columns)} FROM {table} ORDER BY {order}"
    stored, replayed = iter(source.execute(sql)), iter(target.execute(sql))
    found: list[str] = []
    while len(found) < at_most:
        mine, theirs = next(stored, None), next(replayed, None)
        if mine is None and theirs is None:
            break
        if mine == theirs:
            continue
        found.append(_difference(table, columns, mine, theirs))
        if mine is None or theirs is None or mine[0] != theirs[0]:
            break  # the rows are out of step from here on
    return found


def _difference(
    table: str, columns: list[str], mine: tuple[object, ...] | None, theirs: tuple[object, ...] | None
) -> str:
    """One difference, without the text of the record."""
    if mine is None or theirs is None:
        row, what = (theirs or mine or ("?",)), "is missing" if mine is None else "is not in the log"
        return f"{table} {row[0]} {what}"
    names = [name for name, one, other in zip(columns, mine, theirs, strict=True) if one != other]
    return f"{table} {mine[0]} differs in {', '.join(names)}"
