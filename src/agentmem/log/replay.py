"""Replay: the log folded into an empty file gives the same projections, row for row."""

from __future__ import annotations

import apsw

from agentmem.engine.connection import SqlFunction
from agentmem.engine.migrations import SCHEMA
from agentmem.log.kinds import Kinds
from agentmem.log.ledger import events


def fold(
    source: apsw.Connection, kinds: Kinds, functions: tuple[SqlFunction, ...], *, until: int | None = None
) -> apsw.Connection:
    """A database in memory, never on disk, with the projections that the log of `source` makes.

    Args:
        source: A connection inside a read transaction.
        kinds: The registered kinds.
        functions: The SQL functions that the triggers call.
        until: The last seq to fold; all if None.
    """
    target = apsw.Connection(":memory:")
    for function in functions:
        target.create_scalar_function(function.name, function.call, function.args, deterministic=True)
    target.execute("PRAGMA temp_store = MEMORY")
    target.execute("BEGIN")
    for migration in SCHEMA:
        for statement in migration.script:
            target.execute(statement)
    for event in events(source, kinds, until=until):
        kinds.get(event.kind).apply(target, event)
    target.execute("COMMIT")
    return target


def differences(
    source: apsw.Connection, kinds: Kinds, functions: tuple[SqlFunction, ...], *, at_most: int = 20
) -> list[str]:
    """Where the stored projections differ from what the log says; empty if nowhere."""
    target = fold(source, kinds, functions)
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
    columns = [row[1] for row in source.execute(f"PRAGMA table_info({table})")]
    keys = [row[1] for row in source.execute(f"PRAGMA table_info({table})") if row[5]]
    order = ", ".join(keys or ["rowid"])
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
