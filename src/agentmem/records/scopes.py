"""Scopes: which entities and checks a task covers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded
from agentmem.records import validate
from agentmem.types import Scope


def make(type: str, where: str | None, checks: Sequence[str], parameters: Mapping[str, Any]) -> Scope:
    """A scope of checked parts; the parameters of `where` become literals in it.

    Raises:
        WhereError: `where` does not parse.
        InvalidInput: A part is not acceptable.
    """
    kind = validate.token(type, "type")
    if isinstance(checks, str):
        raise InvalidInput("checks must be a list of names")
    names = tuple(dict.fromkeys(validate.token(name, "check") for name in checks))
    if len(names) > limits.CHECKS_PER_DECLARATION:
        raise LimitExceeded(f"{len(names)} checks, {limits.CHECKS_PER_DECLARATION} at most")
    if where is None:
        if parameters:
            raise InvalidInput("Parameters without a where=", why="Unknown: " + ", ".join(sorted(parameters)))
        return Scope(kind, None, names)
    from agentmem.records.where import ENTITY_FIELDS, parse

    return Scope(kind, parse(where, ENTITY_FIELDS, parameters).canonical, names)


def checked(scope: object) -> Scope:
    """A scope a caller gave, its parts checked."""
    if not isinstance(scope, Scope):
        raise InvalidInput("scope must be a Scope", next="Make it with store.scope(type, where=…, checks=…)")
    made = make(scope.type, None, scope.checks, {})
    if scope.where is None:
        return made
    from agentmem.records.where import ENTITY_FIELDS, parse_canonical

    return evolve(made, where=parse_canonical(scope.where, ENTITY_FIELDS).canonical)
