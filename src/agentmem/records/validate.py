"""Checks of arguments at the boundary: each returns the accepted value or raises a typed error.

Titles and labels are one line without control or bidirectional characters, since they are later
read inside lines. Bodies may hold anything that is text, except NUL and lone surrogates: rendering
makes control characters visible.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final

from agentmem import limits
from agentmem.errors import UNSEEN, InvalidInput, LimitExceeded, shown
from agentmem.types import ORIGINS, Origin

# C0, DEL, C1, bidirectional controls, line and paragraph separators, surrogates, noncharacters of the BMP.
_ODD = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufff9-\ufffb\ufffe\uffff]"
)
NOT_TEXT: Final = re.compile("[\x00\ud800-\udfff]")
"""What no text of a record holds: NUL, and halves of surrogate pairs."""
_UNSEEN = re.compile(f"[{UNSEEN}]")
_LABEL_MARKS = frozenset("._-/@:+~")
_TOKEN_MARKS = frozenset("._-/+")


def line(text: object, name: str, most: int) -> str:
    """One line of text, trimmed: not empty, at most `most` characters, no control or bidi characters."""
    if type(text) is not str:
        raise InvalidInput(f"{name} must be text, not {type(text).__name__}")
    text = text.strip()
    if not text:
        raise InvalidInput(f"{name} is empty")
    if len(text) > most:
        raise LimitExceeded(
            f"{name} has {len(text)} characters, {most} at most", next="Shorten it; a note's body takes the rest"
        )
    # `isprintable` is false for every odd character, and fast.
    if not text.isprintable():
        odd = _ODD.search(text)
        if odd is not None:
            raise InvalidInput(
                f"{name} contains the character U+{ord(odd[0]):04X}",
                why=f"At position {odd.start() + 1}; it is one line without control or bidirectional characters",
                next="Remove it" if name != "title" else "Put text of several lines into the body",
            )
    return text


def optional_line(text: object, name: str, most: int) -> str | None:
    """As `line`, or None."""
    return None if text is None else line(text, name, most)


def text(value: object, name: str, most: int) -> str:
    """Text of any number of lines, kept verbatim: at most `most` bytes of UTF-8, no NUL, no lone surrogate."""
    if type(value) is not str:
        raise InvalidInput(f"{name} must be text, not {type(value).__name__}")
    odd = NOT_TEXT.search(value)
    if odd is not None:
        raise InvalidInput(f"{name} contains U+{ord(odd[0]):04X} at position {odd.start() + 1}", why="It is not text")
    if len(value) * 4 > most:
        size = len(value.encode())
        if size > most:
            raise LimitExceeded(f"{name} has {size} bytes, {most} at most", next="Split it into several notes")
    return value


def written(value: object, name: str, most: int) -> str:
    """As `text`, and not blank."""
    accepted = text(value, name, most)
    if not accepted.strip():
        raise InvalidInput(f"{name} is blank")
    return accepted


def label(value: object, name: str, most: int = limits.LABEL_CHARS) -> str:
    """A label: letters and digits of any script and `. _ - / @ : + ~`."""
    return _marked_word(value, name, most, _LABEL_MARKS)


def project(value: object, *, everywhere: bool = False) -> str:
    """The name of a project; with `everywhere` also `"*"` for all of them."""
    return "*" if everywhere and type(value) is str and value == "*" else label(value, "project", limits.PROJECT_CHARS)


def optional_label(value: object, name: str) -> str | None:
    """As `label`, or None."""
    return None if value is None else label(value, name)


def token(value: object, name: str) -> str:
    """A short name such as an entity's type or a check: letters and digits of any script and `. _ - / +`."""
    return _marked_word(value, name, limits.TOKEN_CHARS, _TOKEN_MARKS)


def _marked_word(value: object, name: str, most: int, marks: frozenset[str]) -> str:
    if type(value) is not str:
        raise InvalidInput(f"{name} must be text, not {type(value).__name__}")
    if not value:
        raise InvalidInput(f"{name} is empty")
    if len(value) > most:
        raise LimitExceeded(f"{name} has {len(value)} characters, {most} at most")
    if not (value.isascii() and value.isalnum()):
        for character in value:
            fits = character.isalnum() or character in marks or _combining(character)
            if not fits or _UNSEEN.match(character):
                raise InvalidInput(
                    f"{name} contains {character!a}",
                    why=f"Allowed are letters, digits and {' '.join(sorted(marks))}",
                )
    return value


def _combining(character: str) -> bool:
    """Vowel signs and accents are part of words in many scripts; `isalnum` is false for them."""
    import unicodedata

    return unicodedata.category(character) in ("Mn", "Mc")


def tags(values: object) -> tuple[str, ...]:
    """Tags without repeats, in the order given."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Collection):
        raise InvalidInput("tags must be a list of text", next='For one tag write ["name"]')
    found = dict.fromkeys(label(value, "tag", limits.TAG_CHARS) for value in values)
    if len(found) > limits.TAGS_PER_NOTE:
        raise LimitExceeded(f"{len(found)} tags, {limits.TAGS_PER_NOTE} at most")
    return tuple(found)


def confidence(value: object) -> float | None:
    """A number from 0 to 1, or None."""
    if value is None:
        return None
    return float(number(value, "confidence", 0, 1))


def choice(value: object, name: str, allowed: Sequence[str]) -> str:
    """One of a closed set of words; the error names them and the nearest."""
    if type(value) is str and value in allowed:
        return value
    raise InvalidInput(
        f"{name} is {shown(value)}", why="Allowed are " + ", ".join(allowed), next=did_you_mean(value, allowed)
    )


def nearest(word: str, known: Iterable[str], *, likeness: float = 0.7) -> str | None:
    """The known word most like this one, for a hint; case does not count.

    Args:
        word: What was given.
        known: What there is.
        likeness: The least ratio of `difflib` that counts, 0 to 1.
    """
    import difflib

    by_fold = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(word[: limits.KEY_CHARS].casefold(), by_fold, 1, likeness)
    return by_fold[near[0]] if near else None


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """A question for the nearest known word, as the `next` of an error; empty where nothing is near."""
    near = nearest(word, known) if isinstance(word, str) else None
    return "" if near is None else f"Did you mean {near}?"


def flag(value: object, name: str) -> bool:
    """True or False, nothing that merely counts as one."""
    if type(value) is not bool:
        raise InvalidInput(f"{name} must be true or false, not {shown(value)}")
    return value


def whole(value: object, name: str, least: int, most: int) -> int:
    """An integer within bounds."""
    if type(value) is not int or not least <= value <= most:
        raise InvalidInput(f"{name} is {shown(value)}", why=f"It is a whole number from {least} to {most}")
    return value


def number(value: object, name: str, least: float, most: float) -> float:
    """A whole or broken number within bounds; no NaN."""
    if not (isinstance(value, int | float) and type(value) in (int, float) and least <= value <= most):
        raise InvalidInput(f"{name} is {shown(value)}", why=f"It is a number from {least:g} to {most:g}")
    return value


def seconds(value: object, name: str) -> float:
    """A time to wait."""
    return number(value, name, 0, limits.WAIT_SECONDS_MAX)


def duration(value: object, name: str) -> int:
    """A length of time, a `timedelta` or days, in microseconds; a hundred years at most."""
    from datetime import timedelta

    days = value / timedelta(days=1) if isinstance(value, timedelta) else value
    return round(number(days, name, 0, 36_525) * 86_400_000_000)


def time(value: object, name: str) -> int:
    """Microseconds since 1970 UTC, within the years 1 to 9999."""
    return whole(value, name, limits.TIME_LEAST, limits.TIME_MOST)


def moment(value: object, name: str) -> int:
    """A time, as an aware `datetime` or in microseconds since 1970 UTC, in the latter."""
    import datetime

    if isinstance(value, datetime.datetime):
        if value.tzinfo is None:
            raise InvalidInput(
                f"{name}={shown(value)} has no time zone", next="Give it one: datetime.now(datetime.UTC)"
            )
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return (value - epoch) // datetime.timedelta(microseconds=1)
    if type(value) is not int:
        raise InvalidInput(
            f"{name} must be a datetime or whole microseconds since 1970 UTC, not {shown(value)}",
            next="Give a datetime with a time zone: datetime.fromisoformat('2026-11-30T00:00:00+00:00')",
        )
    return time(value, name)


def cursor(value: object, name: str) -> int:
    """A place in the log, or an id that a list continues after."""
    return whole(value, name, 0, limits.INT_MAX)


def optional_cursor(value: object, name: str) -> int | None:
    """As `cursor`, or None."""
    return None if value is None else cursor(value, name)


def path(value: object, name: str = "path") -> str:
    """The path of a file or folder: text, or what `os.fspath` makes text of."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(given, str) and given and "\0" not in given:
        with suppress(UnicodeEncodeError):
            os.fsencode(given)
            return given
    raise InvalidInput(f"{name} is {shown(value)}", why="It is a path: text that is not empty and holds no NUL")


def callable_(value: object, name: str) -> Callable[..., Any]:
    """A function."""
    if not callable(value):
        raise InvalidInput(f"{name} is {shown(value)}", why="It is a function")
    return value


def page(limit: object) -> int:
    """The length of one page of a list."""
    return whole(limit, "limit", 1, limits.PAGE_MAX)


def batch(values: Iterable[Any], name: str) -> list[Any]:
    """A list of at most `limits.BATCH` things given at once."""
    if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
        raise InvalidInput(f"{name} must be a list", next="For one write a list of one")
    found = list(islice(values, limits.BATCH + 1))
    if len(found) > limits.BATCH:
        raise LimitExceeded(
            f"More than {limits.BATCH} {name} at once", next="Use several calls inside store.transaction()"
        )
    return found


def tokens(values: Iterable[Any], name: str) -> tuple[str, ...]:
    """A list of short names, `limits.CHECKS_PER_DECLARATION` at most, without repeats, in the order given."""
    found = tuple(dict.fromkeys(token(value, name) for value in batch(values, f"{name} names")))
    if len(found) > limits.CHECKS_PER_DECLARATION:
        raise LimitExceeded(f"{len(found)} {name} names, {limits.CHECKS_PER_DECLARATION} at most")
    return found


def less_trusted(one: Origin, other: Origin) -> Origin:
    """The less trusted of two origins."""
    return one if ORIGINS.index(one) >= ORIGINS.index(other) else other
