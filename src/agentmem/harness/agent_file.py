"""An agent as a file: who it is, what it is told, which tools it has and which of their calls a person allows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import attrs
from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, MissingExtra, NotFound, StoreMissing, shown
from agentmem.harness.toolset import Tool, Toolset
from agentmem.records import validate

__all__ = ["AgentFile"]

_FIELDS: Final = (
    "name", "version", "description", "model", "instructions", "budget", "max_turns", "max_tokens", "retries", "parallel",
    "tools",
)  # fmt: skip
_OPTIONS: Final = ("instructions", "budget", "max_turns", "max_tokens", "retries", "parallel")
_OF_TOOL: Final = ("name", "permission", "credential_id", "scope", "seconds", "expires", "parallel")
_BYTES: Final = 1024 * 1024


@frozen
class AgentFile:
    """What an agent file says.

    Attributes:
        agent: `name`, `version`, `model`, `description` as far as they are given, and `digest`: SHA-256 of the file, hex.
        options: Of the harness, by name.
        tools: What it says of each tool, by name; None where it says nothing of tools and all are the agent's.
    """

    agent: Mapping[str, Any]
    options: Mapping[str, Any]
    tools: Mapping[str, Mapping[str, Any]] | None

    @classmethod
    def read(cls, path: Any) -> AgentFile:
        """The agent file at a path, YAML or JSON.

        Raises:
            InvalidInput: It is not as it should be; names the place.
            StoreMissing: There is no such file.
            MissingExtra: It is YAML, and the extra `harness` is not installed.
        """
        place = Path(validate.path(path))
        try:
            if place.exists() and not place.is_file():
                raise InvalidInput(f"{place} is no file")
            with place.open("rb") as file:
                data = file.read(_BYTES + 1)
        except FileNotFoundError as error:
            raise StoreMissing(f"There is no agent file {place}") from error
        except InvalidInput:
            raise
        except (OSError, ValueError) as error:
            raise InvalidInput(f"The agent file {place} can't be read", why=str(error)) from error
        if len(data) > _BYTES:
            raise InvalidInput(f"{place} has more than {_BYTES} bytes")
        return cls.of(_parsed(place, data), hashlib.sha256(data).hexdigest())

    @classmethod
    def of(cls, given: Any, digest: str) -> AgentFile:
        """What an agent file with this content says."""
        found = _known(given, _FIELDS, "the file")
        if found.get("name") is None:
            raise InvalidInput("The agent file has no name", next="Begin it with name: and the agent's name")
        agent = {"name": validate.line(found.get("name"), "name", limits.LABEL_CHARS), "digest": digest}
        for name in ("version", "model", "description"):
            if found.get(name) is not None:
                agent[name] = validate.line(_word(found[name], name), name, limits.TITLE_CHARS)
        options = {name: found[name] for name in _OPTIONS if found.get(name) is not None}
        tools = found.get("tools")
        return cls(agent, options, None if tools is None else _tools(tools))

    def chosen(self, tools: Toolset | Iterable[Tool]) -> list[Tool]:
        """The tools that the file names, as it wants them, in its order; all of them where it names none.

        Raises:
            NotFound: It names one that is not among them.
        """
        given = tools if isinstance(tools, Toolset) else Toolset(tools)
        if self.tools is None:
            return list(given)
        return [_changed(given.get(name), told) for name, told in self.tools.items()]


def _parsed(place: Path, data: bytes) -> Any:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{place} is no UTF-8", why=f"Byte {error.start}") from error
    if place.suffix.lower() == ".json":
        try:
            return json.loads(text, object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"{place} is no JSON", why=str(error)) from error
    try:
        import yaml
    except ImportError as error:
        raise MissingExtra(
            "An agent file in YAML needs PyYAML", next="Install it with pip install '.[harness]', or write JSON"
        ) from error
    try:
        return yaml.load(text, _loader())  # noqa: S506  # a safe one
    except InvalidInput:
        raise
    except Exception as error:  # tags on what they do not fit raise all kinds of errors
        raise InvalidInput(f"{place} is no YAML", why=" ".join(str(error).split())) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object in which each field stands once: of two, a reader would see the one and a program the other."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InvalidInput(f"The field {shown(name)} stands there twice")
        found[name] = value
    return found


def _loader() -> type[Any]:
    import yaml

    class Loader(yaml.SafeLoader):
        """Reads what JSON could say too."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            # Few lines with aliases stand for more than memory holds. An agent file needs none.
            if self.check_event(yaml.AliasEvent):
                raise InvalidInput("The agent file has an alias", next="Write the value out where it is needed")
            return super().compose_node(parent, index)

    def mapping(loader: Any, node: Any) -> dict[Any, Any]:
        return _once(loader.construct_pairs(node, deep=True))

    Loader.add_constructor("tag:yaml.org,2002:map", mapping)
    return Loader


def _word(value: Any, name: str) -> str:
    """A text; YAML makes a number or a date of some that are not quoted."""
    if isinstance(value, (dict, list, tuple, set, bytes, bool)):
        raise InvalidInput(f"{name} is {shown(value)}", why="It is a text or a number")
    return str(value)


def _known(value: Any, fields: Iterable[str], place: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{place} is {shown(value)}", why="It is an object")
    for name in value:
        if name not in fields:
            near = validate.nearest(name, fields) if isinstance(name, str) else None
            raise InvalidInput(
                f"{shown(name)} is no field of {place}", why="There are " + ", ".join(fields),
                next=f"Did you mean {near}?" if near else "",
            )  # fmt: skip
    return value


def _tools(value: Any) -> dict[str, Mapping[str, Any]]:
    if not isinstance(value, list):
        raise InvalidInput(f"tools is {shown(value)}", why="It is a list of names, or of objects with a name")
    found: dict[str, Mapping[str, Any]] = {}
    for at, each in enumerate(value):
        told = _known({"name": each} if isinstance(each, str) else each, _OF_TOOL, f"tools[{at}]")
        name = told.get("name")
        if not isinstance(name, str) or name in found:
            raise InvalidInput(f"tools[{at}].name is {shown(name)}", why="Each tool is named once")
        found[name] = {key: part for key, part in told.items() if key != "name" and part is not None}
    return found


def _changed(tool: Tool, told: Mapping[str, Any]) -> Tool:
    renamed = {("credential" if name == "credential_id" else name): value for name, value in told.items()}
    try:
        return attrs.evolve(tool, **renamed)
    except (InvalidInput, NotFound) as error:
        raise InvalidInput(f"The agent file says of tool {tool.name}: {error.what}", why=error.why) from error
