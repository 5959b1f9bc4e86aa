"""One block of ours in a TOML file of another program, between two comments that mark it."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentmem.errors import Conflict, InvalidInput

__all__ = ["at", "block", "parsed", "table", "with_block", "without_block"]

_BEGIN: Final = "# agentmem: written by agentmem mcp install, taken out by agentmem mcp uninstall"
_END: Final = "# agentmem: end"
_BLOCK: Final = re.compile(rf"{re.escape(_BEGIN)}\r?\n.*?{re.escape(_END)}(?:\r?\n|\Z)", re.DOTALL)


def parsed(text: str) -> dict[str, Any]:
    """What a TOML text says.

    Raises:
        InvalidInput: It is no TOML.
    """
    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInput(f"It is not TOML: {error}") from None


def block(path: Sequence[str], values: Mapping[str, str | Sequence[str]]) -> str:
    """A table of texts and lists of texts, between its marks."""
    return f"{_BEGIN}\n{table(path, values)}{_END}\n"


def table(path: Sequence[str], values: Mapping[str, str | Sequence[str]]) -> str:
    """A table of texts and lists of texts."""
    return "".join([f"[{'.'.join(path)}]\n", *(f"{name} = {_text(value)}\n" for name, value in values.items())])


def _text(value: str | Sequence[str]) -> str:
    if isinstance(value, str):
        # The escapes of JSON are escapes of TOML; DEL alone has to be escaped in TOML and is not in JSON.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return f"[{', '.join(map(_text, value))}]"


def with_block(text: str, path: Sequence[str], new: str, *, ours: bool) -> str:
    """The text with a block: in the place of the one there was, else at the end.

    Args:
        text: The file.
        path: The table that the block makes.
        new: The block.
        ours: Whether the table that is there was written by us.

    Raises:
        Conflict: The table is there and was not written by us.
        InvalidInput: The text is no TOML, or has a form to which no table can be added.
    """
    before = parsed(text)
    there, held = at(before, path), _BLOCK.search(text)
    if held is None and ours and there is not None:
        raise Conflict(f"The table {'.'.join(path)} is there and its marks are not")
    if there is not None and not ours:
        raise Conflict(f"There is a table {'.'.join(path)} that agentmem did not write")
    newline = "\r\n" if "\r\n" in text else "\n"
    new = new.replace("\n", newline)
    if held is not None:
        changed = text[: held.start()] + new + text[held.end() :]
    else:
        gap = "" if not text.strip() else newline if text.endswith("\n") else newline * 2
        changed = text + gap + new
    try:
        after = parsed(changed)
    except InvalidInput as error:
        raise InvalidInput(f"No table {'.'.join(path)} can be added to it", why=error.what) from None
    _same(_without(before, path), _without(after, path))
    return changed


def without_block(text: str, path: Sequence[str]) -> str:
    """The text without our block, unchanged if it has none.

    Raises:
        InvalidInput: The text is no TOML, or what is not ours stands inside the block.
    """
    before, held = parsed(text), _BLOCK.search(text)
    if held is None:
        return text
    head, tail = text[: held.start()], text[held.end() :]
    for gap in ("\r\n\r\n", "\n\n"):
        if head.endswith(gap):
            head = head[: -len(gap) // 2]
            break
    changed = head + tail
    _same(_without(before, path), parsed(changed))
    return changed


def at(value: Any, path: Sequence[str]) -> Any:
    """The value at a path, None where there is none.

    Raises:
        InvalidInput: Something on the way is no table.
    """
    for name in path:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise InvalidInput(f"{'.'.join(path[:-1])} is no table")
        value = value.get(name)
    return value


def _without(value: dict[str, Any], path: Sequence[str]) -> dict[str, Any]:
    """The values without one table, and without tables that only held it."""
    name, *rest = path
    kept = dict(value)
    if not rest:
        kept.pop(name, None)
    elif isinstance(kept.get(name), dict):
        kept[name] = _without(kept[name], rest)
        if not kept[name]:
            del kept[name]
    return kept


def _same(before: dict[str, Any], after: dict[str, Any]) -> None:
    if repr(before) != repr(_pruned(after, before)):  # NaN is not itself
        raise InvalidInput("It can't be changed as text: what is not agentmem's would change too")


def _pruned(after: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """Without empty tables that `before` has not: an empty table and none are the same here."""
    return {name: value for name, value in after.items() if value != {} or name in before}
