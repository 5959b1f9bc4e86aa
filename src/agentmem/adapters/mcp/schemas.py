"""JSON Schemas without references: several clients do not follow them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["inlined"]


def inlined(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which every reference to `$defs` is replaced by what it refers to.

    Raises:
        ValueError: A definition refers to itself, or to nothing.
    """
    found = _inlined(schema, schema.get("$defs", {}), ())
    assert isinstance(found, dict)
    found.pop("$defs", None)
    return found


def _inlined(part: Any, definitions: Mapping[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(part, list):
        return [_inlined(each, definitions, within) for each in part]
    if not isinstance(part, Mapping):
        return part
    named = part.get("$ref")
    if isinstance(named, str):
        name = named.removeprefix("#/$defs/")
        if name in within or name not in definitions:
            raise ValueError(
                f"The schema refers to {named}, which {'is within itself' if name in within else 'is not there'}"
            )
        beside = {key: each for key, each in part.items() if key != "$ref"}
        return _inlined({**definitions[name], **beside}, definitions, (*within, name))
    return {key: _inlined(each, definitions, within) for key, each in part.items() if key != "$defs"}
