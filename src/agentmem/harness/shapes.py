"""Annotations of Python as JSON Schema, and values of JSON as what the annotations say.

Known are `str`, `int`, `float`, `bool`, `None`, `Any`, `list`, `tuple`, `set`, `dict` with text as keys, their abstract
kin, `Literal`, unions, enums, `TypedDict`, classes of attrs and dataclasses, and `Annotated[T, "description"]`.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NotRequired, Required, Union, get_args, get_origin, is_typeddict

from attrs import frozen

from agentmem.errors import InvalidInput, shown
from agentmem.harness.schema import Schema, accepts, copied

__all__ = ["Shape", "shape", "told_schema"]

_LEVELS: Final = 16
_PLAIN: Final[Mapping[Any, str]] = {str: "string", int: "integer", bool: "boolean", type(None): "null", None: "null"}
_LISTS: Final[Mapping[Any, Callable[..., Any]]] = {
    list: list,
    set: set,
    frozenset: frozenset,
    collections.abc.Sequence: list,
    collections.abc.Iterable: list,
    collections.abc.Collection: list,
    collections.abc.Set: set,
}
_DICTS: Final = (dict, collections.abc.Mapping, collections.abc.MutableMapping)


@frozen(eq=False)
class Shape:
    """What an annotation comes to: its schema, and what makes the annotated value of one that the schema accepted."""

    schema: dict[str, Any]
    build: Callable[[Any], Any]


def shape(annotation: Any, place: str, level: int = 0) -> Shape:
    """The shape of an annotation.

    Args:
        annotation: A resolved one, no text.
        place: How messages name it.
        level: How deep in another it stands.

    Raises:
        InvalidInput: JSON can't say it.
    """
    if level > _LEVELS:
        raise InvalidInput(
            f"The type of {place} is nested too deep", why="It may hold itself, which a schema here can't"
        )
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _described(shape(inside[0], place, level), inside[1:])
    if origin in (Required, NotRequired):
        return shape(inside[0], place, level)
    if annotation is Any or annotation is object:
        return Shape({}, _same)
    if annotation is float:
        return Shape({"type": "number"}, float)
    if isinstance(annotation, typing.Hashable) and annotation in _PLAIN:
        return Shape({"type": _PLAIN[annotation]}, _same)
    if origin is Literal:
        return _literal(inside, place)
    if origin in (Union, types.UnionType):
        return _union([shape(each, place, level + 1) for each in inside])
    container = origin or annotation
    if container is tuple:
        return _tuple(inside, place, level)
    if container in _LISTS:
        return _array(shape(inside[0] if inside else Any, f"{place}[]", level + 1), _LISTS[container])
    if container in _DICTS:
        return _dict(inside, place, level)
    if isinstance(annotation, type):
        return _class(annotation, place, level)
    raise _unknown(annotation, place)


def _same(value: Any) -> Any:
    return value


def _unknown(annotation: Any, place: str) -> InvalidInput:
    return InvalidInput(
        f"The type of {place} is {shown(annotation)}, which JSON can't say",
        next="Take str, int, float, bool, list, dict, Literal, an enum, a TypedDict, an attrs class or a dataclass",
    )


def _described(of: Shape, notes: tuple[Any, ...]) -> Shape:
    said = next((note for note in notes if isinstance(note, str)), None)
    return of if said is None else Shape({**of.schema, "description": said}, of.build)


def _literal(values: tuple[Any, ...], place: str) -> Shape:
    if not all(type(value) in (str, int, bool, type(None)) for value in values):
        raise InvalidInput(
            f"The type of {place} is {shown(Literal[values])}",
            why="A Literal here is of text, whole numbers, true, false and null",
        )
    return Shape({**_typed_of(values), "enum": list(values)}, _same)


def _typed_of(values: Any) -> dict[str, str]:
    names = {_PLAIN[type(value)] for value in values}
    return {"type": names.pop()} if len(names) == 1 else {}


def _union(options: list[Shape]) -> Shape:
    def build(value: Any) -> Any:
        return next(option for option in options if accepts(option.schema, option.schema, value)).build(value)

    return Shape({"anyOf": [option.schema for option in options]}, build)


def _array(of: Shape, made: Callable[..., Any], **more: Any) -> Shape:
    distinct = {"uniqueItems": True} if made in (set, frozenset) else {}
    return Shape(
        {"type": "array", "items": of.schema, **distinct, **more}, lambda value: made(of.build(part) for part in value)
    )


def _tuple(inside: tuple[Any, ...], place: str, level: int) -> Shape:
    if not inside or (len(inside) == 2 and inside[1] is Ellipsis):
        return _array(shape(inside[0] if inside else Any, f"{place}[]", level + 1), tuple)
    parts = [shape(each, f"{place}[{at}]", level + 1) for at, each in enumerate(inside)]
    schema = {"type": "array", "prefixItems": [part.schema for part in parts], "items": False}
    schema |= {"minItems": len(parts), "maxItems": len(parts)}
    return Shape(schema, lambda value: tuple(part.build(each) for part, each in zip(parts, value, strict=True)))


def _dict(inside: tuple[Any, ...], place: str, level: int) -> Shape:
    if inside and inside[0] not in (str, Any):
        raise InvalidInput(f"The keys of {place} are {shown(inside[0])}", why="Names in JSON are text")
    of = shape(inside[1] if inside else Any, f"{place}[]", level + 1)
    return Shape(
        {"type": "object", "additionalProperties": of.schema or True},
        lambda value: {name: of.build(part) for name, part in value.items()},
    )


def _class(of: type, place: str, level: int) -> Shape:
    if issubclass(of, enum.Enum):
        return _enum(of, place)
    if is_typeddict(of):
        hints = _hints(of, place)
        # What is written of a field counts more than the class's own list, which errs where annotations are postponed.
        explicit = {name: get_origin(hint) for name, hint in hints.items()}
        needed = {name for name in getattr(of, "__required_keys__", ()) if explicit.get(name) is not NotRequired}
        needed |= {name for name, origin in explicit.items() if origin is Required}
        return _object(of, {name: name for name in hints}, needed, dict, place, level)
    if dataclasses.is_dataclass(of):
        fields = [each for each in dataclasses.fields(of) if each.init]
        needed = {
            each.name
            for each in fields
            if each.default is dataclasses.MISSING and each.default_factory is dataclasses.MISSING
        }
        return _object(of, {each.name: each.name for each in fields}, needed, of, place, level)
    if "__attrs_attrs__" in vars(of):
        import attrs

        made = [each for each in vars(of)["__attrs_attrs__"] if each.init]
        needed = {each.name for each in made if each.default is attrs.NOTHING}
        return _object(of, {each.name: each.alias or each.name for each in made}, needed, of, place, level)
    raise _unknown(of, place)


def _enum(of: type[enum.Enum], place: str) -> Shape:
    """By value where the values are text or whole numbers, else by name."""
    members: dict[Any, enum.Enum] = {each.value: each for each in of if type(each.value) in (str, int)}
    if len(members) < len(of):
        members = {each.name: each for each in of}
    if not members:
        raise InvalidInput(f"The type of {place} is an enum without members", why="No value could be given")
    return Shape({**_typed_of(members), "enum": list(members)}, lambda value: members[value])


def _hints(of: type, place: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(of, include_extras=True)
    except Exception as error:  # noqa: BLE001  # annotations are any expression at all
        raise InvalidInput(
            f"The types in {of.__name__}, the type of {place}, can't be read",
            why=f"{type(error).__name__}: {shown(str(error))}",
            next="Define what they name at the top of the module",
        ) from None


def _object(of: type, names: Mapping[str, str], needed: Any, made: Callable[..., Any], place: str, level: int) -> Shape:
    """A class by its fields: `names` has what the model calls each, which is what the class takes."""
    hints = _hints(of, place)
    parts = {alias: shape(hints.get(name, Any), f"{place}.{alias}", level + 1) for name, alias in names.items()}
    schema = {
        "type": "object",
        "properties": {alias: part.schema for alias, part in parts.items()},
        "required": [alias for name, alias in names.items() if name in needed],
        "additionalProperties": False,
    }
    return Shape(copied(schema), lambda value: made(**{name: parts[name].build(part) for name, part in value.items()}))


def told_schema(parts: Mapping[str, Shape], needed: Any, defaults: Mapping[str, Any]) -> Schema:
    """The closed schema of named parts; a default that JSON can say is told."""
    properties: dict[str, Any] = {}
    for name, part in parts.items():
        properties[name] = dict(part.schema)
        if name in defaults:
            try:
                properties[name]["default"] = copied([defaults[name]])[0]
            except InvalidInput:
                continue
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in parts if name in needed],
        "additionalProperties": False,
    }
