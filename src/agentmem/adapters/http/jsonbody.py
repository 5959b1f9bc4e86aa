"""The body of a request as an object of JSON: strictly, since two readers that differ are a way past a check."""

from __future__ import annotations

import json
import math
from typing import Any, Final, NoReturn

from agentmem.errors import InvalidInput

__all__ = ["DEPTH", "parsed"]

DEPTH: Final = 64
"""Objects and lists lie within each other so deep at most."""


def parsed(body: bytes) -> dict[str, Any]:
    """The object that a body is.

    Raises:
        InvalidInput: It is not UTF-8, no JSON (`NaN` and numbers beyond a float are none), no object, too deep, has a name
            twice or half a surrogate pair.
    """
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"The body is not UTF-8 at byte {error.start + 1}") from None
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_constant, parse_float=_float)
    except json.JSONDecodeError as error:
        raise InvalidInput(
            f"The body is no JSON at character {error.pos + 1}", next='Send an object of arguments, {"name": value}'
        ) from None
    except RecursionError:
        raise _too_deep() from None
    except InvalidInput:
        raise
    except ValueError:  # a whole number of thousands of digits
        raise InvalidInput("The body has a number that is too large") from None
    if not isinstance(found, dict):
        raise InvalidInput("The body is no object of JSON", next='Send an object of arguments, {"name": value}')
    _walk(found)
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInput("The body has an object with a name twice", next="Give each name once")
    return found


def _constant(_: str) -> NoReturn:
    raise InvalidInput("The body has NaN or Infinity, which JSON has not", next="Leave it out, or send null")


def _float(text: str) -> float:
    found = float(text)
    if not math.isfinite(found):
        raise InvalidInput("The body has a number that is too large")
    return found


def _too_deep() -> InvalidInput:
    return InvalidInput(f"Objects and lists of the body lie within each other more than {DEPTH} deep")


def _walk(found: Any) -> None:
    level = [found]
    for _ in range(DEPTH):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                below += value
                below += value.values()
            elif isinstance(value, list):
                below += value
            elif isinstance(value, str) and not value.isascii():
                _whole(value)
        if not below:
            return
        level = below
    if any(isinstance(value, (dict, list)) for value in level):
        raise _too_deep()


def _whole(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("The body has a text with half a surrogate pair") from None
