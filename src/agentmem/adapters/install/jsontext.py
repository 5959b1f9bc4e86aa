"""JSON files of other programs, changed as text: what is not ours stays byte for byte, comments and layout too."""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentmem.errors import InvalidInput, shown

__all__ = ["Document", "JsonPath", "append", "at", "parsed", "put", "remove"]

JsonPath: TypeAlias = tuple[str | int, ...]
"""The way to a value: names of members and indexes of items, from the root."""

_TOKEN: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TRAILING: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INDENT: Final = re.compile(r"\n([ \t]+)\S")
_PLAIN_INDENT: Final = "  "
_DECODER: Final = json.JSONDecoder()


@frozen
class Document:
    """A text and what it says.

    Attributes:
        text: As it is.
        masked: Of the same length: comments and commas before a closing bracket are spaces.
        trailing: Where such commas are.
        value: What the JSON says.
    """

    text: str
    masked: str
    trailing: tuple[int, ...]
    value: Any


@frozen
class _Member:
    """A member of an object, or an item of an array, whose name is its index: where it and its value begin and end."""

    name: str | int
    start: int
    value: int
    end: int


@frozen
class _Container:
    """An object or array: where its brackets are, and what is in it."""

    start: int
    end: int
    members: tuple[_Member, ...]


def parsed(text: str, *, comments: bool) -> Document:
    """Read a text that holds one JSON object.

    Args:
        text: The text, perhaps with a byte order mark.
        comments: Whether comments and trailing commas are allowed.

    Raises:
        InvalidInput: It is no such JSON.
    """
    masked, trailing = text, tuple[int, ...]()
    if comments:
        masked = _TOKEN.sub(lambda found: found[0] if found[0][0] == '"' else _blank(found[0]), masked)
        trailing = tuple(found.start() for found in _TRAILING.finditer(masked) if found[0] == ",")
        for place in trailing:
            masked = f"{masked[:place]} {masked[place + 1 :]}"
    if masked.startswith("\ufeff"):
        masked = f" {masked[1:]}"
    try:
        value = json.loads(masked, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"It is not JSON: {error.msg} in line {error.lineno}, column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"It is not JSON: {type(error).__name__}") from None
    if not isinstance(value, dict):
        raise InvalidInput("It holds no JSON object")
    return Document(text, masked, trailing, value)


def _blank(comment: str) -> str:
    return "".join(char if char in "\r\n" else " " for char in comment)


def _no_constant(name: str) -> None:
    raise ValueError(name)


def at(value: Any, path: JsonPath) -> Any:
    """The value at a path, None where there is none.

    Raises:
        InvalidInput: Something on the way is no object.
    """
    for index, name in enumerate(path):
        if isinstance(name, int):
            value = value[name]
            continue
        if not isinstance(value, dict):
            raise InvalidInput(f"{_spelled(path[:index])} is {_kind(value)}, not an object")
        if name not in value:
            return None
        value = value[name]
    return value


def put(text: str, path: JsonPath, value: Any, *, comments: bool) -> str:
    """Set the value at a path of names; objects that are missing on the way are made.

    Raises:
        InvalidInput: The text is no JSON, something on the way is no object, or a name stands there twice.
    """
    document = parsed(text, comments=comments)
    container, depth = _root(document), 0
    while True:
        found = _member(container, path[depth], path[:depth])
        if found is None:
            break
        if depth == len(path) - 1:
            rendered = _rendered(document, value, _indent_of(document, found))
            changed = text[: found.value] + rendered + text[found.end :]
            return _checked(document, changed, path, value, comments)
        if document.masked[found.value] != "{":
            at(document.value, path[: depth + 2])
        container, depth = _container(document.masked, found.value), depth + 1
    new = value
    for name in reversed(path[depth + 1 :]):
        new = {name: new}
    changed = _inserted(document, container, json.dumps(path[depth], ensure_ascii=False) + ": ", new)
    return _checked(document, changed, path, value, comments)


def append(text: str, path: JsonPath, item: Any, *, comments: bool) -> str:
    """Add an item at the end of the array at a path.

    Raises:
        InvalidInput: There is no array.
    """
    document = parsed(text, comments=comments)
    array = at(document.value, path)
    if not isinstance(array, list):
        raise InvalidInput(f"{_spelled(path)} is {_kind(array)}, not an array")
    changed = _inserted(document, _walked(document, path), "", item)
    return _checked(document, changed, path, [*array, item], comments)


def remove(text: str, path: JsonPath, *, comments: bool) -> str:
    """Take out the member or item at a path, which is there, and what only it needed: a comma, its line."""
    document = parsed(text, comments=comments)
    container = _walked(document, path[:-1])
    index = next(number for number, one in enumerate(container.members) if one.name == path[-1])
    changed = _without(document, container, index)
    expected = copy.deepcopy(document.value)
    del at(expected, path[:-1])[path[-1]]
    if parsed(changed, comments=comments).value != expected:
        raise InvalidInput("It can't be changed as text")
    return changed


def _checked(document: Document, changed: str, path: JsonPath, value: Any, comments: bool) -> str:
    """The changed text, once it says what it said before and what was to be changed, and nothing else."""
    expected = copy.deepcopy(document.value)
    inner = expected
    for name in path[:-1]:
        inner = inner[name] if isinstance(name, int) else inner.setdefault(name, {})
    inner[path[-1]] = value
    if parsed(changed, comments=comments).value != expected:
        raise InvalidInput("It can't be changed as text")
    return changed


def _root(document: Document) -> _Container:
    return _container(document.masked, _space(document.masked, 0))


def _walked(document: Document, path: JsonPath) -> _Container:
    """The container at a path, all of which is there."""
    container = _root(document)
    for depth, name in enumerate(path):
        found = _member(container, name, path[:depth])
        assert found is not None
        container = _container(document.masked, found.value)
    return container


def _member(container: _Container, name: str | int, place: JsonPath) -> _Member | None:
    found = [one for one in container.members if one.name == name]
    if len(found) > 1:
        raise InvalidInput(f"{_spelled((*place, name))} stands there twice")
    return found[0] if found else None


def _container(masked: str, start: int) -> _Container:
    """Where the members of the object or array are that begins at `start`."""
    names = masked[start] == "{"
    members: list[_Member] = []
    place = _space(masked, start + 1)
    while masked[place] not in "}]":
        begin, name = place, len(members)
        if names:
            name, place = _DECODER.raw_decode(masked, place)
            place = _space(masked, _space(masked, place) + 1)
        value = place
        place = _DECODER.raw_decode(masked, place)[1]
        members.append(_Member(name, begin, value, place))
        place = _space(masked, place)
        if masked[place] == ",":
            place = _space(masked, place + 1)
    return _Container(start, place + 1, tuple(members))


def _space(text: str, place: int) -> int:
    found = _SPACE.match(text, place)
    assert found is not None
    return found.end()


def _inserted(document: Document, container: _Container, prefix: str, value: Any) -> str:
    """The text with one more member at the end of a container."""
    text, close = document.text, container.end - 1
    inner = text[container.start + 1 : close]
    newline = _newline(text)
    if not container.members:
        if _flat(document) and not inner.strip():
            return text[: container.start + 1] + prefix + _rendered(document, value, None) + text[close:]
        base = _line_indent(text, container.start)
        indent = base + _unit(text)
        kept = inner.rstrip()
        new = f"{kept}{newline}{indent}{prefix}{_rendered(document, value, indent)}{newline}{base}"
        return text[: container.start + 1] + new + text[close:]
    last = container.members[-1]
    comma = next((place for place in document.trailing if last.end <= place < close), None)
    end = "" if comma is None else ","  # the style of the file is kept
    if "\n" not in text[container.start : container.members[0].start]:
        place = last.end if comma is None else comma + 1
        gap = ", " if comma is None else " "
        return text[:place] + gap + prefix + _rendered(document, value, None) + end + text[place:]
    indent = _line_indent(text, container.members[0].start)
    place = last.end + len(text[last.end : close].rstrip())
    new = f"{newline}{indent}{prefix}{_rendered(document, value, indent)}{end}"
    return text[: last.end] + ("," if comma is None else "") + text[last.end : place] + new + text[place:]


def _without(document: Document, container: _Container, index: int) -> str:
    """The text without one member. Comments beside it stay."""
    text, masked, one = document.text, document.masked, container.members[index]
    if len(container.members) == 1 and not text[container.start + 1 : one.start].strip():
        tail = text[one.end : container.end - 1]
        if not tail.strip():
            return text[: container.start + 1] + text[container.end - 1 :]
    cuts = [(one.start, one.end)]
    if index + 1 < len(container.members):
        comma = _space(masked, one.end)
        cuts.append((comma, comma + 1))
    elif own := [place for place in document.trailing if one.end <= place < container.end]:
        cuts.append((own[0], own[0] + 1))
    elif index:
        comma = _space(masked, container.members[index - 1].end)
        if not text[comma + 1 : one.start].strip():
            return text[:comma] + text[one.end :]
        cuts.append((comma, comma + 1))
    after = max(one.end, *(end for _, end in cuts))
    rest = text[after:]
    head = text[: one.start].rstrip(" \t")
    between = text[one.end : max(one.end, after - 1)]
    if head.endswith("\n") and not between.strip() and not rest.partition("\n")[0].strip():
        # It has its lines to itself: they go. Else what follows might end up in a comment of the line before.
        cuts.append((len(head) - (2 if head.endswith("\r\n") else 1), one.start))
    else:
        cuts.append((after, after + len(rest) - len(rest.lstrip(" \t"))))
    for begin, end in sorted(cuts, reverse=True):
        text = text[:begin] + text[end:]
    return text


def _rendered(document: Document, value: Any, indent: str | None) -> str:
    """A value as the file writes them; on one line without an indent."""
    if indent is None:
        return json.dumps(value, ensure_ascii=False)
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(document.text))
    return lines.replace("\n", _newline(document.text) + indent)


def _indent_of(document: Document, member: _Member) -> str | None:
    """The indent of a member that begins its line, None for one that does not."""
    before = document.text[: member.start]
    return _line_indent(document.text, member.start) if before.rstrip(" \t").endswith("\n") else None


def _line_indent(text: str, place: int) -> str:
    line = text[text.rfind("\n", 0, place) + 1 : place]
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = _INDENT.search(text)
    return found[1] if found else _PLAIN_INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _flat(document: Document) -> bool:
    """Whether it is all on one line, and not just because it is empty."""
    return "\n" not in document.text.strip() and bool(document.value)


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}
    return kinds.get(type(value), "a number")


def _spelled(path: JsonPath) -> str:
    return shown(".".join(map(str, path))) if path else "It"
