"""What answers of models have in common, made fit for the log: whatever an API sends, it does not stop a session."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agentmem.errors import InvalidInput, shown
from agentmem.harness.reply import ToolCall
from agentmem.log.canonical import canonical
from agentmem.records.validate import NOT_TEXT

__all__ = ["call", "count", "items", "kept", "mapping", "said", "word"]

_WORD_CHARS: Final = 256
_BROKEN_CHARS: Final = 20_000


def mapping(value: Any) -> Mapping[str, Any]:
    """An object of an SDK, or its JSON, as a mapping.

    Raises:
        InvalidInput: It is neither.
    """
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    found = dump() if callable(dump) else None
    if not isinstance(found, Mapping):
        raise InvalidInput(f"{shown(value)} is no answer of a model", why="It is an object of the SDK, or its JSON")
    return found


def items(value: Any) -> list[Mapping[str, Any]]:
    """The objects of a list; none of what is no list."""
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return []
    return [mapping(each) for each in value if isinstance(each, Mapping) or hasattr(each, "model_dump")]


def count(value: Any) -> int:
    """A number of tokens; 0 for what is none."""
    return value if type(value) is int and 0 < value < 2**53 else 0


def word(value: Any) -> str | None:
    """A short text of one line, such as an id; None for what is none."""
    return value if isinstance(value, str) and value.isprintable() and 0 < len(value.strip()) <= _WORD_CHARS else None


def said(*texts: Any) -> tuple[dict[str, Any], ...]:
    """Blocks of text, without blank ones."""
    return tuple({"type": "text", "text": _clean(text)} for text in texts if isinstance(text, str) and text.strip())


def kept(blocks: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Blocks that go back to the provider unchanged, without fields that are null; those that no log can hold are left out."""
    found = []
    for block in blocks:
        bare = {name: value for name, value in block.items() if value is not None}
        if _loggable(bare):
            found.append(bare)
    return tuple(found)


def call(name: Any, given: Any, provider_id: Any, *, cut: bool = False) -> ToolCall:
    """A call of a tool.

    Args:
        name: Its name.
        given: Its input: an object, or the JSON of one.
        provider_id: Its id there.
        cut: Whether the model was cut off while it wrote it: what is there of the input must not be taken for all of it.
    """
    named = _line(name) if isinstance(name, str) else "?"
    value = _parsed(given) if isinstance(given, str) else given
    value = {} if value is None else value
    if not cut and isinstance(value, Mapping) and _loggable(dict(value)):
        return ToolCall(named, dict(value), word(provider_id))
    written = given if isinstance(given, str) else _spelled(given)
    return ToolCall(named, {}, word(provider_id), broken=_clean(written[:_BROKEN_CHARS]))


def _parsed(text: str) -> Any:
    """The value of a JSON text, the text itself where it is none. No text at all is an empty object."""
    try:
        return json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text


def _loggable(value: Any) -> bool:
    try:
        canonical([[[value]]])  # as deep as it stands in the event of the log
    except InvalidInput:
        return False
    return True


def _spelled(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=repr)
    except (ValueError, RecursionError):
        return shown(value)


def _line(text: str) -> str:
    """A name that a model made up, as one line."""
    printable = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text[:_WORD_CHARS])
    return printable.strip() or "?"


def _clean(text: str) -> str:
    """A text that the log takes: no NUL, no half of a surrogate pair."""
    return NOT_TEXT.sub("\N{REPLACEMENT CHARACTER}", text)
