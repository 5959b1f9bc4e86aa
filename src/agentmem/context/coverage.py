"""Coverage: of the entities a scope covers, how many have each check, and which lack it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from agentmem.records.base import View
from agentmem.records.entities import declarations, matching
from agentmem.types import Scope

_DONE: Final = "mark.result <> 'error'"


@frozen
class CheckLeft:
    """One check over the entities of a scope: `left` have no mark of it, or an `error`.

    `type`, `where` and `check` say which; `total` is how many entities there are, `failed` how many failed it.
    """

    type: str
    where: str | None
    check: str
    total: int
    left: int
    failed: int


@frozen
class Missing:
    """One entity of a scope, and the checks it lacks."""

    id: int
    type: str
    key: str
    origin: str
    checks: tuple[str, ...]


def of_scope(view: View, scope: Scope) -> tuple[CheckLeft, ...]:
    """The coverage of a scope, by check. Without checks of its own those declared for the type count.

    A declaration with a filter counts over the entities of the scope that match it.
    """
    if scope.checks:
        return _covered(view, scope.type, scope.where, None, scope.checks)
    found: list[CheckLeft] = []
    for declared in declarations(view, scope.type):
        found += _covered(view, scope.type, scope.where, declared.where, declared.names)
    return tuple(found)


def of_project(view: View, type: str | None = None) -> tuple[CheckLeft, ...]:
    """The coverage of everything that is declared as expected in the project."""
    found: list[CheckLeft] = []
    for declared in declarations(view, type):
        found += _covered(view, declared.type, None, declared.where, declared.names)
    return tuple(found)


def _covered(
    view: View, type: str, where: str | None, filter: str | None, checks: Sequence[str]
) -> tuple[CheckLeft, ...]:
    shown = " and ".join(part for part in (where, filter) if part) or None
    if shown is None:
        total, counts = _whole_type(view, type)
    else:
        total, counts = _filtered(view, type, where, filter)
    found = []
    for check in checks:
        results = counts.get(check, {})
        done = sum(number for result, number in results.items() if result != "error")
        found.append(CheckLeft(type, shown, check, total, total - done, results.get("fail", 0)))
    return tuple(found)


def _whole_type(view: View, type: str) -> tuple[int, dict[str, dict[str, int]]]:
    row = view.row(
        "SELECT count(*) FROM entity WHERE project = ? AND type = ? AND key IS NOT NULL", (view.project, type)
    )
    sql = "SELECT name, result, count(*) FROM mark WHERE project = ? AND type = ? GROUP BY name, result"
    return (row[0] if row else 0), _by_check(view.rows(sql, (view.project, type)))


def _filtered(view: View, type: str, where: str | None, filter: str | None) -> tuple[int, dict[str, dict[str, int]]]:
    rows, bound = both(view, type, where, filter)
    total = view.row(f"SELECT count(*) {rows}", bound)
    sql = f"SELECT name, result, count(*) FROM mark WHERE entity IN (SELECT e.id {rows}) GROUP BY name, result"
    return (total[0] if total else 0), _by_check(view.rows(sql, bound))


def both(view: View, type: str, where: str | None, filter: str | None) -> tuple[str, list[Any]]:
    """`FROM … WHERE …` for the entities of a type that match two stored conditions."""
    (rows, bound), _ = matching(view, type, where, stored=True)
    if filter is None:
        return rows, bound
    (further, values), _ = matching(view, type, filter, stored=True)
    return f"{rows} AND e.id IN (SELECT e.id {further})", [*bound, *values]


def _by_check(rows: Sequence[tuple[Any, ...]]) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for name, result, number in rows:
        counts.setdefault(name, {})[result] = number
    return counts


def missing(view: View, covered: Sequence[CheckLeft], limit: int) -> tuple[Missing, ...]:
    """The first entities that lack any of the checks of one type and condition, in the order they were added."""
    if not covered:
        return ()
    first, names = covered[0], [one.check for one in covered]
    rows, bound = both(view, first.type, first.where, None)
    lacking = " OR ".join(
        f"NOT EXISTS (SELECT 1 FROM mark WHERE mark.entity = e.id AND mark.name = ? AND {_DONE})" for _ in names
    )
    sql = f"SELECT e.id, e.key, e.origin {rows} AND ({lacking}) ORDER BY e.id LIMIT ?"
    found = view.rows(sql, [*bound, *names, limit])
    there = f"SELECT name FROM mark WHERE entity = ? AND {_DONE}"
    return tuple(
        Missing(row[0], first.type, row[1], row[2], _absent(names, view.rows(there, (row[0],)))) for row in found
    )


def _absent(names: Sequence[str], there: Sequence[tuple[Any, ...]]) -> tuple[str, ...]:
    present = {name for (name,) in there}
    return tuple(name for name in names if name not in present)
