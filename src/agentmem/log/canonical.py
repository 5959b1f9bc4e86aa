"""Canonical JSON: the one spelling of a value, over which digests and no-op checks are made.

UTF-8, sorted keys, no spaces, integers within ±(2^63-1), finite floats in their shortest form, -0.0
as 0.0, no surrogates, at most `limits.JSON_DEPTH` levels. Two values are the same if and only if
their canonical bytes are: `True`, `1` and `1.0` are three values.
"""

from __future__ import annotations

import json
import math
from typing import Any

from agentmem.errors import InvalidInput, LimitExceeded, shown
from agentmem.limits import INT_MAX, JSON_DEPTH

_encode = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode


def canonical(value: Any) -> str:
    """The canonical JSON text of a value.

    Args:
        value: None, bool, int, float, str, list, tuple, or dict with str keys; nested.

    Raises:
        InvalidInput: A float that is not finite, a lone surrogate, a key that is no str, another type.
        LimitExceeded: An integer beyond 64 bits, or more than `JSON_DEPTH` levels.
    """
    text = _encode(_checked(value, 0))
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise surrogate(error) from None
    return text


def surrogate(error: UnicodeEncodeError) -> InvalidInput:
    """The error for half of a surrogate pair, which is no text: neither UTF-8 nor SQLite takes it."""
    return InvalidInput(
        "A text contains half of a surrogate pair", why=f"Code unit {error.object[error.start]!a} stands alone"
    )


def plain(text: str) -> Any:
    """The value of a canonical JSON text."""
    return json.loads(text)


def _checked(value: Any, depth: int) -> Any:
    """The value with -0.0 as 0.0 and tuples as lists, once every part of it was found acceptable."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is int:
        if not -INT_MAX <= value <= INT_MAX:
            raise LimitExceeded(f"The integer {shown(value)} does not fit 64 bits", next="Store it as text")
        return value
    if kind is float:
        if not math.isfinite(value):
            raise InvalidInput(f"{value} is not a finite number", next="Store null or text in its place")
        return value + 0.0
    if depth >= JSON_DEPTH:
        raise LimitExceeded(f"A value is nested more than {JSON_DEPTH} levels deep")
    if kind is dict:
        for key in value:
            if type(key) is not str:
                raise InvalidInput(f"An object has the key {shown(key)}", why="Names in JSON are text")
        return {key: _checked(part, depth + 1) for key, part in value.items()}
    if kind is list or kind is tuple:
        return [_checked(part, depth + 1) for part in value]
    raise InvalidInput(
        f"A value of type {kind.__name__} cannot be kept", next="Use null, true or false, numbers, text, lists, objects"
    )
