"""The arguments of a command with placeholders for what the model gave."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from attrs import frozen

from agentmem.errors import InvalidInput, shown
from agentmem.log.canonical import canonical
from agentmem.records.validate import did_you_mean

__all__ = ["Template"]

_PLACEHOLDER: Final = re.compile(r"\{\{(\w+)\}\}|\{([A-Za-z_]\w*)\}", re.ASCII)
_SHELLS: Final = re.compile(r"(?:.*/)?(?:(?:ba|da|z|k|c|tc|fi|a)?sh|pwsh|powershell|cmd)(?:\.exe)?")
_SCRIPT_FOLLOWS: Final = re.compile(r"-[a-z]*c|-command|/c", re.IGNORECASE)


@frozen
class Template:
    """The arguments of a command with their placeholders, in groups: one that misses a field is left out whole."""

    tool: str
    groups: tuple[tuple[str, ...], ...]
    grouped: frozenset[str]
    stdin: str | None

    @staticmethod
    def of(tool: str, argv: Sequence[str | Sequence[str]], stdin: str | None) -> Template:
        """A template, checked as far as it can be without the schema."""
        if isinstance(argv, str) or not isinstance(argv, Sequence) or not argv:
            raise InvalidInput(f"argv of {tool} is {shown(argv)}", why="It is a list: the program and its arguments")
        groups = tuple((each,) if isinstance(each, str) else tuple(each) for each in argv)
        flat = [part for group in groups for part in group]
        if not all(isinstance(part, str) and "\0" not in part for part in flat):
            raise InvalidInput(f"argv of {tool} holds what is no text, or NUL")
        if not isinstance(argv[0], str) or not argv[0] or _fields(argv[0]):
            raise InvalidInput(
                f"The program of {tool} is {shown(argv[0])}", why="It is fixed, and holds no placeholder"
            )
        if stdin is not None and stdin != "json" and not _bare(stdin):
            raise InvalidInput(f"stdin of {tool} is {shown(stdin)}", why='It is "json", "{field}" or None')
        if _scripted(flat):
            raise InvalidInput(
                f"The script of {tool} holds a placeholder",
                why="A shell would run what the model writes there",
                next='Write "$1" in the script and give the field as an argument: [..., "sh", "{field}"]',
            )
        loose = {field for each in argv if isinstance(each, str) for field in _fields(each)}
        grouped = {field for group in groups for part in group for field in _fields(part)} - loose
        return Template(tool, groups, frozenset(grouped), stdin)

    @property
    def fields(self) -> tuple[str, ...]:
        """The fields of the placeholders, in their order."""
        parts = [part for group in self.groups for part in group]
        parts += [self.stdin] if self.stdin is not None and self.stdin != "json" else []
        return tuple(dict.fromkeys(field for part in parts for field in _fields(part)))

    def schema(self) -> dict[str, Any]:
        """Each placeholder as a text, required unless it stands in a group."""
        return {
            "type": "object",
            "properties": {field: {"type": "string"} for field in self.fields},
            "required": [field for field in self.fields if field not in self.grouped],
            "additionalProperties": False,
        }

    def defaults(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults that a schema has for the placeholders.

        Raises:
            InvalidInput: A placeholder is no field of it, or may be missing where it can't be left out.
        """
        properties: Mapping[str, Any] = schema.get("properties", {})
        for field in self.fields:
            if field not in properties:
                raise InvalidInput(
                    f"{self.tool} has the placeholder {{{field}}}, which its schema does not know",
                    next=f"{did_you_mean(field, properties)} Write {{{{{field}}}}} for the text itself".lstrip(),
                )
            missing = field not in schema.get("required", ()) and "default" not in properties[field]
            if missing and field not in self.grouped and self.stdin != f"{{{field}}}":
                raise InvalidInput(
                    f"{self.tool} has the placeholder {{{field}}}, which may be missing",
                    next="Put its argument, with the option before it, into a list of its own, or give it a default",
                )
        return {field: properties[field]["default"] for field in self.fields if "default" in properties[field]}

    def filled(self, input: Mapping[str, Any], defaults: Mapping[str, Any], options: frozenset[str]) -> list[str]:
        """The arguments of one call.

        Raises:
            InvalidInput: A value that could be an option, or that no argument can hold.
        """
        values = self._values(input, defaults)
        found: list[str] = []
        for group in self.groups:
            if all(field in values for part in group for field in _fields(part)):
                found += [self._argument(part, values, options) for part in group]
        return found

    def _values(self, input: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, str]:
        found: dict[str, str] = {}
        for field in self.fields:
            value = input.get(field, defaults.get(field))
            if value is not None:
                found[field] = value if isinstance(value, str) else canonical(value)
        return found

    def _argument(self, part: str, values: Mapping[str, str], options: frozenset[str]) -> str:
        text = _PLACEHOLDER.sub(lambda found: f"{{{found[1]}}}" if found[1] else values[found[2]], part)
        if "\0" in text:
            raise InvalidInput(f"An argument of {self.tool} holds NUL", why="No argument of a program can")
        first = _PLACEHOLDER.match(part)
        if first is not None and first[2] and text.startswith("-") and not _fields(part) <= options:
            raise InvalidInput(
                f"{self.tool}.{first[2]} begins with '-'",
                why="The program could take it for an option",
                next="Write it another way, as ./-name for a file",
            )
        return text

    def read(self, input: Mapping[str, Any], defaults: Mapping[str, Any]) -> bytes | None:
        """What the program reads."""
        if self.stdin is None:
            return None
        if self.stdin == "json":
            return canonical(dict(input)).encode()
        return self._values(input, defaults).get(self.stdin[1:-1], "").encode()


def _scripted(flat: Sequence[str]) -> bool:
    """Whether a placeholder stands in a script for a shell: in what follows `-c` somewhere after a shell's name."""
    shell = False
    for before, part in itertools.pairwise(flat):
        shell = shell or _SHELLS.fullmatch(before) is not None
        if shell and _SCRIPT_FOLLOWS.fullmatch(before) and _fields(part):
            return True
    return False


def _fields(part: str) -> frozenset[str]:
    return frozenset(found[2] for found in _PLACEHOLDER.finditer(part) if found[2])


def _bare(part: str) -> bool:
    found = _PLACEHOLDER.fullmatch(part)
    return found is not None and bool(found[2])
