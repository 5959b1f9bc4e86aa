"""The arguments of a call, checked against the closed schema of its tool.

Models write `"10"` for 10, one value for a list of one, and now and then a list or an object as a text of JSON. What can
only mean one thing is taken as that; everything else is an error that names the place, what is known there, and the
nearest name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentmem.errors import InvalidInput, shown
from agentmem.records.validate import nearest

__all__ = ["array", "checked", "flag", "number", "ref", "strings", "text", "whole"]

Schema = Mapping[str, Any]

_WHOLE: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_LARGEST: Final = 2**63
_FLAGS: Final = {"true": True, "false": False}


def text(said: str = "") -> Schema:
    """The schema of a text."""
    return _described({"type": "string"}, said)


def ref(said: str = "") -> Schema:
    """The schema of what names a record: `57`, `14.3`, `endpoint:GET /x`. A number is taken too."""
    return text(said)


def whole(said: str = "") -> Schema:
    """The schema of a whole number."""
    return _described({"type": "integer"}, said)


def number(said: str = "") -> Schema:
    """The schema of a number."""
    return _described({"type": "number"}, said)


def flag(said: str = "") -> Schema:
    """The schema of yes or no."""
    return _described({"type": "boolean"}, said)


def array(of: Schema, said: str = "") -> Schema:
    """The schema of a list."""
    return _described({"type": "array", "items": of}, said)


def strings(said: str = "") -> Schema:
    """The schema of a list of texts."""
    return array({"type": "string"}, said)


def _described(schema: dict[str, Any], said: str) -> Schema:
    return {**schema, "description": said} if said else schema


def checked(tool: str, schema: Schema, given: object) -> dict[str, Any]:
    """The arguments of a call as its schema has them.

    Args:
        tool: The name of the tool, for messages.
        schema: A closed object.
        given: What the caller sent.

    Raises:
        InvalidInput: An unknown or missing name, or a value of another type.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(f"The arguments of {tool} are no object", next=_known(schema))
    return _object(tool, schema, given)


def _object(place: str, schema: Schema, given: Mapping[Any, Any]) -> dict[str, Any]:
    properties: Mapping[str, Schema] | None = schema.get("properties")
    if properties is None:
        return {_name(place, name): part for name, part in given.items()}
    found: dict[str, Any] = {}
    for name, part in given.items():
        of = properties.get(name) if isinstance(name, str) else None
        if of is None:
            near = nearest(name, properties) if isinstance(name, str) else None
            hint = f"Did you mean {near}? " if near else ""
            raise InvalidInput(f"{place} has no argument {shown(name)}", next=hint + _known(schema))
        if part is None:
            continue  # models send null for what they leave out
        found[name] = _value(f"{place}.{name}", of, part)
    for name in schema.get("required", ()):
        if name not in found:
            raise InvalidInput(f"{place} needs {name}", next=_known(schema))
    return found


def _name(place: str, name: object) -> str:
    if not isinstance(name, str):
        raise InvalidInput(f"{place} has the name {shown(name)}, which is no text")
    return name


def _known(schema: Schema) -> str:
    properties = schema.get("properties")
    if not properties:
        return "It takes none" if properties is not None else ""
    needed = schema.get("required", ())
    return "It takes " + ", ".join(name if name in needed else f"{name}?" for name in properties)


def _value(place: str, schema: Schema, given: Any) -> Any:
    wanted = schema.get("type")
    match wanted:
        case "string":
            found = _string(place, given)
            if (allowed := schema.get("enum")) is not None and found not in allowed:
                near = nearest(found, allowed)
                hint = f"Did you mean {near}? " if near else ""
                raise InvalidInput(f"{place} is {shown(found)}", next=f"{hint}It is one of {', '.join(allowed)}")
            return found
        case "integer":
            return _integer(place, given)
        case "number":
            return _number(place, given)
        case "boolean":
            if isinstance(given, str):
                given = _FLAGS.get(given.strip().lower(), given)
            if not isinstance(given, bool):
                raise _of_type(place, "true or false", given)
            return given
        case "array":
            return [
                _value(f"{place}[{at}]", schema["items"], part) for at, part in enumerate(_list(place, schema, given))
            ]
        case "object":
            found = _parsed(given, "{")
            if not isinstance(found, Mapping):
                raise _of_type(place, "an object", given)
            return _object(place, schema, found)
        case _:
            return given


def _string(place: str, given: Any) -> str:
    if isinstance(given, str):
        return given
    if type(given) is int:
        return str(given)
    hint = 'Write it in quotes, as "14.3"' if type(given) is float else ""
    raise _of_type(place, "a text", given, hint)


def _integer(place: str, given: Any) -> int:
    if isinstance(given, str) and _WHOLE.fullmatch(given.strip()):
        return int(given)
    if type(given) is float and given.is_integer() and abs(given) < 2**53:
        return int(given)
    if type(given) is not int:
        raise _of_type(place, "a whole number", given)
    return given


def _number(place: str, given: Any) -> float | int:
    if isinstance(given, str):
        try:
            given = float(given)
        except ValueError:
            raise _of_type(place, "a number", given) from None
    if type(given) not in (int, float) or (type(given) is int and abs(given) > _LARGEST):
        raise _of_type(place, "a number", given)
    found: float | int = given
    return found


def _list(place: str, schema: Schema, given: Any) -> Sequence[Any]:
    found = _parsed(given, "[")
    if isinstance(found, (list, tuple)):
        return found
    if isinstance(found, (str, int, float, Mapping)) and not isinstance(found, bool):
        return [found]  # one value stands for a list of one
    raise _of_type(place, "a list", given)


def _parsed(given: Any, opening: str) -> Any:
    """A text of JSON as what it says, if it begins like it."""
    if isinstance(given, str) and given.lstrip().startswith(opening):
        try:
            return json.loads(given)
        except (ValueError, RecursionError):
            return given
    return given


def _of_type(place: str, wanted: str, given: Any, hint: str = "") -> InvalidInput:
    return InvalidInput(f"{place} is {wanted}, not {shown(given)}", next=hint)
