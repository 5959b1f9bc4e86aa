"""Front matter, read without a YAML parser: `key: value` and plain lists, or else kept as text.

The subset is strict on purpose. Anchors, tags, block scalars and nested maps are where YAML surprises, so a block
that holds any of them is not interpreted at all.
"""

from __future__ import annotations

import re
from typing import Final

from attrs import field, frozen

__all__ = ["FrontMatter", "cut_front_matter"]

_LINE: Final = re.compile(r"^([A-Za-z_\u4e00-\u9fff][\w.-]{0,63})\s*:(?:\s+(.*))?$")
_ENTRY: Final = re.compile(r"^\s*-\s+(.*)$")
_QUOTED: Final = re.compile(r"^(?:\"([^\"\\]*)\"|'([^']*)')$")
_LINES_MAX: Final = 200


@frozen
class FrontMatter:
    """The front matter of a file.

    Args:
        raw: Its lines without the fences; empty where there is none.
        values: Its keys in lower case, lists as tuples; empty where it is not of the plain kind.
        lines: How many lines of the file it took, fences included.
    """

    raw: str = ""
    values: dict[str, str | tuple[str, ...]] = field(factory=dict)
    lines: int = 0

    def get(self, *keys: str) -> str:
        """The first of these keys that has a single value, or an empty string."""
        for key in keys:
            value = self.values.get(key)
            if isinstance(value, str) and value:
                return value
        return ""

    def get_list(self, key: str) -> tuple[str, ...]:
        """The values of a key, a single one as a list of one."""
        value = self.values.get(key, ())
        return (value,) if isinstance(value, str) and value else value if isinstance(value, tuple) else ()

    def without(self, *keys: str) -> str:
        """Its lines without those of some keys; all of them where it is not of the plain kind."""
        kept: list[str] = []
        left_out = False
        for line in self.raw.split("\n"):
            pair = _LINE.match(line)
            if pair:
                left_out = pair[1].lower() in keys and pair[1].lower() in self.values
            if not left_out:
                kept.append(line)
        return "\n".join(kept).strip("\n")


def cut_front_matter(text: str) -> tuple[FrontMatter, str]:
    """The front matter and the text after it; a block that is never closed is text."""
    if not text.startswith("---\n"):
        return FrontMatter(), text
    lines = text.split("\n")
    end = next((n for n, line in enumerate(lines[1:_LINES_MAX], 1) if line.rstrip() in ("---", "...")), None)
    if end is None or (end > 1 and not any(_LINE.match(line) for line in lines[1:end])):
        return FrontMatter(), text
    inner = lines[1:end]
    return FrontMatter("\n".join(inner), _read(inner) or {}, end + 1), "\n".join(lines[end + 1 :])


def _read(lines: list[str]) -> dict[str, str | tuple[str, ...]] | None:
    values: dict[str, str | tuple[str, ...]] = {}
    open_key: str | None = None
    for line in lines:
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        entry = _ENTRY.match(line)
        if entry and open_key is not None:
            value = _scalar(entry[1])
            before = values[open_key]
            if value is None or not isinstance(before, tuple):
                return None
            values[open_key] = (*before, value)
            continue
        pair = _LINE.match(line)
        if not pair or pair[1].lower() in values:
            return None
        key = pair[1].lower()
        given = (pair[2] or "").strip()
        if not given:
            values[key], open_key = (), key
            continue
        found = _inline_list(given) if given.startswith("[") else _scalar(given)
        if found is None:
            return None
        values[key], open_key = found, None
    return values


def _scalar(text: str) -> str | None:
    """A plain or quoted value; None for anything that only a YAML parser may interpret."""
    bare = text.strip()
    quoted = _QUOTED.match(bare)
    if quoted:
        return quoted[1] if quoted[1] is not None else quoted[2]
    if bare[:1] in tuple("&*!|>{}[]%@`\"'#") or bare in ("-", "?"):
        return None
    return re.sub(r"\s+#.*$", "", bare)


def _inline_list(text: str) -> tuple[str, ...] | None:
    if not text.endswith("]") or (
        any(char in text[1:-1] for char in "[]{}\"'") and not re.fullmatch(r"\[[^\[\]{}]*\]", text)
    ):
        return None
    parts = [part.strip() for part in text[1:-1].split(",") if part.strip()]
    values = [_scalar(part) for part in parts]
    return None if None in values else tuple(value for value in values if value is not None)
