"""Inputs of tools, checked against their JSON Schema.

The keywords that say what a value is: type, enum, const, properties, required, additionalProperties, items,
prefixItems, uniqueItems, anyOf, oneOf, allOf, local `$ref`, and bounds of numbers, lengths and counts. Others are hints
to the model. `pattern` and `patternProperties` are too: an expression of somebody else's could run for ever.

Objects are closed: what a schema does not name is refused unless it says `additionalProperties`, so that a misspelt
field is an error the model can mend and not one that is silently left out.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from agentmem.errors import InvalidInput, LimitExceeded, shown
from agentmem.limits import JSON_DEPTH
from agentmem.log.canonical import canonical
from agentmem.records.validate import did_you_mean

__all__ = ["Schema", "accepts", "checked", "copied", "well_formed"]

Schema = Mapping[str, Any]

_TYPES: Final = ("string", "integer", "number", "boolean", "array", "object", "null")
_STEPS: Final = 1_000_000
_BRANCHES: Final = ("allOf", "anyOf", "oneOf")
_BOUNDS: Final[Mapping[str, tuple[str, Callable[[float, float], bool]]]] = {
    "minimum": ("at least", operator.ge),
    "maximum": ("at most", operator.le),
    "exclusiveMinimum": ("more than", operator.gt),
    "exclusiveMaximum": ("less than", operator.lt),
}
_SIZES: Final = (
    (str, "minLength", "maxLength", "characters"),
    (list, "minItems", "maxItems", "entries"),
    (dict, "minProperties", "maxProperties", "fields"),
)
_KINDS: Final = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


def checked(place: str, schema: Schema, given: Any) -> dict[str, Any]:
    """An input as a fresh value that its schema accepts.

    A null for a field that is not required and takes no null is left out: models write it for what they do not give.

    Args:
        place: How messages name the input: the tool's name.
        schema: A schema that is `well_formed`.
        given: What the model wrote.

    Raises:
        InvalidInput: A value of another type, an unknown or a missing field; it names the place and the nearest name.
    """
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"The input of {place} is {shown(given)}", why="It is an object", next=_known(schema, schema)
        )
    found: dict[str, Any] = _Check(schema).value(place, schema, copied(given), True)
    return found


def copied(value: Any) -> Any:
    """A copy of a value of JSON that shares nothing with it; names keep their order.

    Raises:
        InvalidInput: It is none: a number that is not finite, half a surrogate pair, a name that is no text.
    """
    if isinstance(value, Mapping):
        value = dict(value)
    canonical(value)
    return _copy(value)


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copy(part) for name, part in value.items()}
    return [_copy(part) for part in value] if isinstance(value, (list, tuple)) else value


def accepts(root: Schema, schema: Schema, value: Any) -> bool:
    """Whether a schema takes a value of plain JSON; `root` is where its references lead."""
    try:
        _Check(root).value("value", schema, copied(value), True)
    except InvalidInput:
        return False
    return True


def well_formed(name: str, schema: Any) -> dict[str, Any]:
    """A schema of an object, copied.

    Raises:
        InvalidInput: It is no schema, not one of an object, or a reference in it leads nowhere.
    """
    try:
        found = copied(schema)
    except InvalidInput as error:
        raise InvalidInput(f"The schema of {name} is no JSON", why=error.what) from None
    if not isinstance(found, dict) or found.get("type") != "object":
        raise InvalidInput(f"The schema of {name} is not one of an object", next='Give it "type": "object"')
    _walk(name, found, found)
    return found


def _walk(name: str, root: Schema, schema: Any) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        raise InvalidInput(f"The schema of {name} holds {shown(schema)} where a schema is due")
    if "$ref" in schema:
        _resolved(name, root, schema["$ref"])
    types = schema.get("type", [])
    for each in [types] if isinstance(types, str) else types if isinstance(types, list) else [types]:
        if each not in _TYPES:
            raise InvalidInput(f"The schema of {name} has the type {shown(each)}", why=f"Known are {', '.join(_TYPES)}")
    required = schema.get("required", [])
    if not isinstance(required, list) or not all(isinstance(each, str) for each in required):
        raise InvalidInput(f"The schema of {name} has required={shown(required)}", why="It is a list of names")
    for key, of in (("enum", list), *((branch, list) for branch in _BRANCHES), ("properties", dict)):
        if key in schema and not isinstance(schema[key], of):
            raise InvalidInput(f"The schema of {name} has {key}={shown(schema[key])}")
    for bound in (*_BOUNDS, *(key for _, least, most, _ in _SIZES for key in (least, most))):
        if type(schema.get(bound, 0)) not in (int, float):
            raise InvalidInput(f"The schema of {name} has {bound}={shown(schema[bound])}", why="It is a number")
    for part in _parts(schema):
        _walk(name, root, part)


def _parts(schema: Schema) -> Iterator[Any]:
    for key in ("properties", "$defs", "definitions"):
        part = schema.get(key)
        if isinstance(part, dict):
            yield from part.values()
    for key in (*_BRANCHES, "prefixItems"):
        part = schema.get(key)
        if isinstance(part, list):
            yield from part
    items = schema.get("items", True)
    yield from items if isinstance(items, list) else [items]
    yield schema.get("additionalProperties", True)


def _resolved(name: str, root: Schema, reference: Any) -> Schema:
    at: Any = root
    if isinstance(reference, str) and reference[:1] == "#":
        for step in filter(None, reference[1:].split("/")):
            key = step.replace("~1", "/").replace("~0", "~")
            at = at.get(key) if isinstance(at, Mapping) else None
        if isinstance(at, Mapping):
            return at
    raise InvalidInput(
        f"The schema of {name} refers to {shown(reference)}", why="There is no such place in it; none elsewhere is read"
    )


class _Check:
    """One check against one schema: `root` is where its references lead."""

    def __init__(self, root: Schema) -> None:
        self._root = root
        self._depth = self._steps = 0

    def value(self, place: str, schema: Any, value: Any, closed: bool) -> Any:
        """The value as the schema has it. `closed` says that it alone names the fields that are known."""
        if schema is True:
            return value
        if schema is False:
            raise InvalidInput(f"{place} may not be given")
        self._depth += 1
        self._steps += 1
        if self._depth > 4 * JSON_DEPTH or self._steps > _STEPS:  # references may lead in a circle, branches multiply
            raise LimitExceeded(f"{place} is too much to check")
        try:
            return self._value(place, schema, value, closed)
        finally:
            self._depth -= 1

    def _value(self, place: str, schema: Schema, value: Any, closed: bool) -> Any:
        own = "properties" in schema or "additionalProperties" in schema
        value = _typed(place, schema, value)
        _among(place, schema, value)
        if "$ref" in schema:
            value = self.value(place, _resolved(place, self._root, schema["$ref"]), value, closed and not own)
        parts = schema.get("allOf", ())
        for part in parts:
            value = self.value(place, part, value, closed and not own and len(parts) == 1)
        for branch in ("anyOf", "oneOf"):
            if branch in schema:
                value = self._one_of(place, schema[branch], value, closed and not own and not parts)
        if isinstance(value, dict):
            return self._object(place, schema, value, closed)
        if isinstance(value, list):
            return self._list(place, schema, value)
        return value

    def _one_of(self, place: str, options: Sequence[Any], value: Any, closed: bool) -> Any:
        """What the first that fits makes of it: more than one that fits is no error that a model could mend."""
        problems: list[InvalidInput] = []
        for option in options:
            try:
                return self.value(place, option, value, closed)
            except LimitExceeded:
                raise
            except InvalidInput as error:
                problems.append(error)
        # The option that got furthest into the value is the one that was meant.
        raise max(problems, key=lambda error: error.what.count("."), default=InvalidInput(f"{place} may not be given"))

    def _object(self, place: str, schema: Schema, value: dict[str, Any], closed: bool) -> dict[str, Any]:
        properties: Mapping[str, Any] = schema.get("properties", {})
        required = schema.get("required", ())
        others = schema.get("additionalProperties")
        if "patternProperties" in schema:
            others = True
        free = not closed or "$ref" in schema or (others is None and "properties" not in schema)
        found: dict[str, Any] = {}
        for name, part in value.items():
            inside = f"{place}.{name}" if name.isidentifier() else f"{place}[{shown(name)}]"
            if name in properties:
                if part is None and name not in required and not self._takes_null(properties[name]):
                    continue
                found[name] = self.value(inside, properties[name], part, True)
            elif others is not None and others is not False:
                found[name] = self.value(inside, others, part, True)
            elif others is False or (not free and name not in _named(self._root, schema)):
                raise _unknown(place, self._root, schema, name)
            else:
                found[name] = part
        for name in required:
            if name not in found:
                raise InvalidInput(f"{place} needs {name}", next=_known(self._root, schema))
        return found

    def _takes_null(self, schema: Any) -> bool:
        try:
            self.value("value", schema, None, True)
        except InvalidInput:
            return False
        return True

    def _list(self, place: str, schema: Schema, value: list[Any]) -> list[Any]:
        first: Sequence[Any] = schema.get("prefixItems", ())
        items = schema.get("items", True)
        if isinstance(items, list):  # the older word for prefixItems
            first, items = items, True
        found = [
            self.value(f"{place}[{at}]", first[at] if at < len(first) else items, part, True)
            for at, part in enumerate(value)
        ]
        if schema.get("uniqueItems") is True and len({canonical(part) for part in found}) < len(found):
            raise InvalidInput(f"{place} holds the same entry twice")
        return found


def _typed(place: str, schema: Schema, value: Any) -> Any:
    """The value, once it is of a type that the schema names and within its bounds. 3.0 is the whole number 3."""
    wanted = schema.get("type")
    types = [wanted] if isinstance(wanted, str) else list(wanted or ())
    if types and not any(_is(each, value) for each in types):
        kinds = " or ".join(_KINDS[each] for each in types)
        raise InvalidInput(f"{place} is {shown(value)}", why=f"It is {kinds}")
    if type(value) is float and "integer" in types and "number" not in types:
        value = int(value)
    if type(value) in (int, float):
        for key, (words, holds) in _BOUNDS.items():
            if key in schema and not holds(value, schema[key]):
                raise InvalidInput(f"{place} is {shown(value)}", why=f"It is {words} {schema[key]}")
    for kind, least, most, unit in _SIZES:
        if isinstance(value, kind):
            if len(value) < schema.get(least, 0):
                raise InvalidInput(f"{place} has {len(value)} {unit}, {schema[least]} at least")
            if len(value) > schema.get(most, len(value)):
                raise InvalidInput(f"{place} has {len(value)} {unit}, {schema[most]} at most")
    return value


def _is(kind: str, value: Any) -> bool:
    match kind:
        case "string":
            return type(value) is str
        case "integer":
            return type(value) is int or (type(value) is float and value.is_integer() and abs(value) < 2**53)
        case "number":
            return type(value) in (int, float)
        case "boolean":
            return type(value) is bool
        case "array":
            return type(value) is list
        case "object":
            return type(value) is dict
        case _:
            return value is None


def _among(place: str, schema: Schema, value: Any) -> None:
    allowed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if allowed is None or any(_same(value, each) for each in allowed):
        return
    raise InvalidInput(
        f"{place} is {shown(value)}",
        why="Allowed are " + ", ".join(each if isinstance(each, str) else canonical(each) for each in allowed),
        next=did_you_mean(value, [each for each in allowed if isinstance(each, str)]),
    )


def _same(one: Any, other: Any) -> bool:
    """Whether two values are the same in JSON Schema: 1 and 1.0 are, 1 and true are not."""
    if type(one) in (int, float) and type(other) in (int, float):
        return bool(one == other)
    return canonical(one) == canonical(other)


def _named(root: Schema, schema: Any) -> dict[str, None]:
    """The names of fields that a schema knows, also by its branches and references; in their order."""
    found: dict[str, None] = {}
    seen: set[int] = set()
    waiting = [schema]
    while waiting:
        part = waiting.pop(0)
        if not isinstance(part, Mapping) or id(part) in seen:
            continue
        seen.add(id(part))
        found |= dict.fromkeys(part.get("properties", ()))
        waiting += [_resolved("it", root, part["$ref"])] if "$ref" in part else []
        waiting += [each for branch in _BRANCHES for each in part.get(branch, ())]
    return found


def _known(root: Schema, schema: Schema) -> str:
    names = _named(root, schema)
    required = schema.get("required", ())
    return "It takes " + (", ".join(name if name in required else f"{name}?" for name in names) or "no fields")


def _unknown(place: str, root: Schema, schema: Schema, name: str) -> InvalidInput:
    hint = did_you_mean(name, _named(root, schema))
    return InvalidInput(f"{place} has no field {shown(name)}", next=f"{hint} {_known(root, schema)}".lstrip())
