"""Scopes: which entities and checks a task covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from agentmem.errors import InvalidInput, NotFound
from agentmem.records import subjects, validate
from agentmem.records.base import View
from agentmem.records.standing import standing
from agentmem.types import Scope


def make(type: str, where: str | None, checks: Sequence[str], parameters: Mapping[str, Any]) -> Scope:
    """A scope of checked parts; the parameters of `where` become literals in it.

    Raises:
        WhereError: `where` does not parse.
        InvalidInput: A part is not acceptable.
    """
    kind = validate.token(type, "type")
    names = validate.tokens(checks, "check")
    if where is None:
        if parameters:
            raise InvalidInput("Parameters without a where=", why="Unknown: " + ", ".join(sorted(parameters)))
        return Scope(kind, None, names)
    from agentmem.records.where import ENTITY_FIELDS, parse

    return Scope(kind, parse(where, ENTITY_FIELDS, parameters).canonical, names)


def known_type(view: View, type: str, task: int | None) -> None:
    """Refuse a type that nothing in the project of a task, or of the view, is of or asks for.

    Raises:
        NotFound: Nothing is; the nearest type is named.
    """
    kind = validate.token(type, "type")
    project = view.project if task is None else standing(view, "note", task).project
    types = _TYPES.format(entities=subjects.condition(view, "entity.id"), notes=subjects.of_notes(view))
    if view.row(f"{types} SELECT 1 FROM types WHERE type = ?2", (project, kind)) is None:
        there = [found for (found,) in view.rows(f"{types} SELECT type FROM types LIMIT 500", (project,))]
        near = validate.nearest(kind, there)
        raise NotFound(
            f"Nothing in the project is of type {kind}",
            why="No entity is, no scope covers it, no checks are declared for it",
            next=f"Did you mean {near}?" if near else "Types there are: " + ", ".join(there[:20]) if there else "",
        )


_TYPES: Final = """
WITH types (type) AS (
    SELECT DISTINCT type FROM entity WHERE project = ?1 AND key IS NOT NULL {entities}
    UNION SELECT type FROM checks WHERE project = ?1
    UNION SELECT scope ->> 'type' FROM note WHERE project = ?1 AND scope IS NOT NULL {notes}
)
"""


def checked(scope: object) -> Scope:
    """A scope a caller gave, its parts checked."""
    if not isinstance(scope, Scope):
        raise InvalidInput("scope must be a Scope", next="Make it with store.scope(type, where=…, checks=…)")
    made = make(scope.type, None, scope.checks, {})
    if scope.where is None:
        return made
    from agentmem.records.where import ENTITY_FIELDS, parse_canonical

    return evolve(made, where=parse_canonical(scope.where, ENTITY_FIELDS).canonical)
