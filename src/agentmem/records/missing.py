"""How many marks the scope of a task still lacks: what a task that closes leaves undone."""

from __future__ import annotations

from typing import Any

from agentmem.log.canonical import plain
from agentmem.records import note_rows, subjects, tree
from agentmem.records.base import Unit, View
from agentmem.types import Scope

_SCOPES = 20  # scopes beneath a task that are counted


def marks_missing(source: Unit | View, task: int) -> int:
    """The marks missing in the scopes of a task and of what lies beneath it, closed or not."""
    sql = f"""
    {tree.BENEATH} SELECT note.scope FROM beneath JOIN note USING (id)
    WHERE scope IS NOT NULL {subjects.of_notes(source)} LIMIT {_SCOPES}
    """
    scopes = [note_rows.scope_of(plain(scope)) for (scope,) in source.rows(sql, (task,))]
    return sum(missing(source, scope) for scope in scopes)


def missing(source: Unit | View, scope: Scope) -> int:
    """The marks a scope lacks: of its own checks, or of those declared for its type."""
    if scope.checks:
        return sum(_lacking(source, scope, None, check) for check in scope.checks)
    sql = "SELECT filter, names FROM checks WHERE project = ? AND type = ? AND names <> '[]'"
    declared = source.rows(sql, (source.known_project, scope.type))
    return sum(_lacking(source, scope, where or None, check) for where, names in declared for check in plain(names))


def _lacking(source: Unit | View, scope: Scope, where: str | None, check: str) -> int:
    from agentmem.records.entities import matching

    rows, _ = matching(source, scope.type, scope.where, stored=True)
    bound: list[Any] = [*rows.bindings]
    sql = f"SELECT count(*) {rows.text}"
    if where is not None:
        further, _ = matching(source, scope.type, where, stored=True)
        sql += f" AND e.id IN (SELECT e.id {further.text})"
        bound += further.bindings
    sql += " AND NOT EXISTS (SELECT 1 FROM mark WHERE mark.entity = e.id AND mark.name = ? AND mark.result <> 'error')"
    row = source.row(sql, [*bound, check])
    return 0 if row is None else int(row[0])
