"""What a review says of checks: those nobody declared, those nobody marked, scopes that cover nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from agentmem.context.review_parts import MOST, Ask, Finding, Key, Part, number
from agentmem.engine.migrations import LEFT
from agentmem.log.canonical import plain
from agentmem.records import note_rows, validate
from agentmem.records.entities import declarations
from agentmem.types import Scope

_SCOPES: Final = 200
_NEXT: Final = """
SELECT type, name FROM mark INDEXED BY mark_coverage
WHERE project = ? AND (type, name) > (?, ?) ORDER BY type, name LIMIT 1
"""


def checks(ask: Ask) -> Part:
    """Marks of checks that nothing declares, declared checks without a mark, scopes and declarations of no entity."""
    scopes = _scopes(ask)
    of_types = None if ask.reach.task is None else {scope.type for _, scope in scopes}
    declared: dict[str, dict[str, None]] = {}
    for one in declarations(ask.view, None):
        if of_types is None or one.type in of_types:
            declared.setdefault(one.type, {}).update(dict.fromkeys(one.names))
    for _, scope in scopes:
        declared.setdefault(scope.type, {}).update(dict.fromkeys(scope.checks))
    marked = _marked(ask, of_types)
    found = [*_undeclared(ask, marked, declared), *_unmarked(marked, declared), *_empty(ask, scopes, declared)]
    keys: list[Key] = [(place,) for place in range(1, len(found) + 1)]

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for key in page:
            yield found[int(key[0]) - 1]

    return ask.part("checks", "checks that do not fit", keys, findings)


def _scopes(ask: Ask) -> list[tuple[int, Scope]]:
    """The scopes of unfinished tasks."""
    where, values = ask.reach.condition()
    sql = f"""
    SELECT id, scope FROM note INDEXED BY note_scope
    WHERE {where} AND scope IS NOT NULL AND {LEFT} ORDER BY id LIMIT {_SCOPES}
    """
    inside = None if ask.reach.nodes is None else {node.id for node in ask.reach.nodes}
    rows = ask.view.rows(sql, values)
    return [(note, note_rows.scope_of(plain(scope))) for note, scope in rows if inside is None or note in inside]


def _marked(ask: Ask, types: set[str] | None) -> list[tuple[str, str]]:
    """The types and names that have marks, by leaps through the index: one look-up for each."""
    found: list[tuple[str, str]] = []
    here = ("", "")
    while len(found) < MOST:
        row = ask.view.row(_NEXT, (ask.reach.project, *here))
        if row is None:
            break
        here = (row[0], row[1])
        if types is None or here[0] in types:
            found.append(here)
    return found


_COUNT: Final = f"""
SELECT count(*) FROM (
    SELECT 1 FROM mark INDEXED BY mark_coverage WHERE project = ? AND type = ? AND name = ? LIMIT {MOST}
)
"""


def _undeclared(ask: Ask, marked: Sequence[tuple[str, str]], declared: dict[str, dict[str, None]]) -> Iterator[Finding]:
    for type, name in marked:
        known = declared.get(type, {})
        if name not in known:
            near = validate.nearest(name, known, likeness=0.5)
            many = ask.view.number(_COUNT, (ask.reach.project, type, name))
            remark = f"marked on {number(many)}, declared nowhere"
            remark += f"; the nearest declared one is {near}" if near else ""
            yield Finding("undeclared", f"{type} × {name}", None, "check", "", name, "agent", remark, number=many)


def _unmarked(marked: Sequence[tuple[str, str]], declared: dict[str, dict[str, None]]) -> Iterator[Finding]:
    there = set(marked)
    for type, names in sorted(declared.items()):
        for name in names:
            if (type, name) not in there:
                yield Finding("unmarked", f"{type} × {name}", None, "check", "", name, "agent", "never marked")


def _empty(ask: Ask, scopes: Sequence[tuple[int, Scope]], declared: dict[str, dict[str, None]]) -> Iterator[Finding]:
    sql = "SELECT 1 FROM entity INDEXED BY entity_type WHERE project = ? AND type = ? AND key IS NOT NULL LIMIT 1"
    for type in sorted(declared):
        if ask.view.row(sql, (ask.reach.project, type)) is None:
            tasks = tuple(note for note, scope in scopes if scope.type == type)
            of = f"scope of {', '.join(f'#{task}' for task in tasks[:8])}" if tasks else "checks are declared for it"
            more = f" and {len(tasks) - 8} more" if len(tasks) > 8 else ""
            yield Finding("empty", type, None, "type", "", type, "agent", f"no entity; {of}{more}", others=tasks)
