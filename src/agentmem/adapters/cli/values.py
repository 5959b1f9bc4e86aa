"""The values of the store as JSON: their fields by name, times also in ISO 8601."""

from __future__ import annotations

import enum
import json
import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any, Final

_TIMES: Final = frozenset(
    ("at", "created_at", "updated_at", "confirmed_at", "dated", "done_at", "taken_at", "expires_at")
)
# What is worth having although it is computed from the fields.
_COMPUTED: Final = ("ref", "untrusted", "cut", "marks_total")
# What a terminal obeys or hides and JSON need not escape: C1, DEL, bidi, zero-width.
_HIDDEN: Final = re.compile("[\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def plain(value: Any) -> Any:
    """A value as what JSON has: attrs classes become objects, tuples lists, bytes hex, paths text."""
    if value is None or (isinstance(value, (bool, int, float, str)) and not isinstance(value, enum.Enum)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(part) for name, part in value.items()}
    if hasattr(value, "__attrs_attrs__"):
        return _fields(value)
    return [plain(part) for part in value]


def _fields(value: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for field in value.__attrs_attrs__:
        if field.name.startswith("_"):
            continue
        part = getattr(value, field.name)
        found[field.name] = plain(part)
        if field.name in _TIMES and type(part) is int and (written := iso(part)) is not None:
            found[f"{field.name}_iso"] = written
    for name in _COMPUTED:
        if name not in found and isinstance(getattr(type(value), name, None), property):
            found[name] = plain(getattr(value, name))
    return found


def iso(microseconds: int) -> str | None:
    """A time as `2026-11-30T12:00:00.000000Z`; None where the calendar has none."""
    from agentmem.types import moment

    try:
        return moment(microseconds).isoformat(timespec="microseconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def dumped(value: Any, *, ascii_only: bool = False) -> str:
    """One line of JSON in which no character hides or moves the cursor."""
    text = json.dumps(value, ensure_ascii=ascii_only, allow_nan=False, separators=(", ", ": "))
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
