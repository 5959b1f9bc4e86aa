"""Coverage: of the entities a scope covers, how many have each check, and which lack it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from agentmem.records import subjects
from agentmem.records.base import View
from agentmem.records.entities import declarations, matching
from agentmem.records.sql import Sql
from agentmem.records.validate import less_trusted
from agentmem.types import Origin, Scope

_DONE: Final = "mark.result <> 'error'"


@frozen
class CheckLeft:
    """One check over the entities of a scope: `left` have no mark of it, or an `error`.

    `type`, `where` and `check` say which; `total` is how many entities there are, `failed` how many failed it;
    `origin` is of the scope or declaration.
    """

    type: str
    where: str | None
    check: str
    total: int
    left: int
    failed: int
    origin: Origin = "agent"


@frozen
class Missing:
    """One entity of a scope, and the checks it lacks."""

    id: int
    type: str
    key: str
    origin: str
    checks: tuple[str, ...]


def of_scope(view: View, scope: Scope, origin: Origin) -> tuple[CheckLeft, ...]:
    """The coverage of a scope of this origin, by check. Without checks of its own those declared for the type count.

    A declaration with a filter counts over the entities of the scope that match it.
    """
    if scope.checks:
        return _covered(view, scope.type, scope.where, None, scope.checks, origin)
    found: list[CheckLeft] = []
    for declared in declarations(view, scope.type):
        least = less_trusted(origin, declared.origin)
        found += _covered(view, scope.type, scope.where, declared.where, declared.names, least)
    return tuple(found)


def of_project(view: View, type: str | None = None) -> tuple[CheckLeft, ...]:
    """The coverage of everything that is declared as expected in the project."""
    found: list[CheckLeft] = []
    for declared in declarations(view, type):
        found += _covered(view, declared.type, None, declared.where, declared.names, declared.origin)
    return tuple(found)


def _covered(
    view: View, type: str, where: str | None, filter: str | None, checks: Sequence[str], origin: Origin
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
        found.append(CheckLeft(type, shown, check, total, total - done, results.get("fail", 0), origin))
    return tuple(found)


def _whole_type(view: View, type: str) -> tuple[int, dict[str, dict[str, int]]]:
    seen = subjects.condition(view, "entity.id")
    sql = f"SELECT count(*) FROM entity WHERE project = ? AND type = ? AND key IS NOT NULL {seen}"
    total = view.number(sql, (view.project, type))
    seen = subjects.condition(view, "mark.entity")
    sql = f"SELECT name, result, count(*) FROM mark WHERE project = ? AND type = ? {seen} GROUP BY name, result"
    return total, _by_check(view.rows(sql, (view.project, type)))


def _filtered(view: View, type: str, where: str | None, filter: str | None) -> tuple[int, dict[str, dict[str, int]]]:
    rows, bound = both(view, type, where, filter)
    total = view.number(f"SELECT count(*) {rows}", bound)
    sql = f"SELECT name, result, count(*) FROM mark WHERE entity IN (SELECT e.id {rows}) GROUP BY name, result"
    return total, _by_check(view.rows(sql, bound))


def both(view: View, type: str, where: str | None, filter: str | None) -> Sql:
    """`FROM … WHERE …` for the entities of a type that match two stored conditions."""
    (rows, bound), _ = matching(view, type, where, stored=True)
    if filter is None:
        return Sql(rows, bound)
    (further, values), _ = matching(view, type, filter, stored=True)
    return Sql(f"{rows} AND e.id IN (SELECT e.id {further})", [*bound, *values])


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
