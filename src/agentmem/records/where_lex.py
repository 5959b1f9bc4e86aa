"""The words of a `where`, an `order` and a `group`.

Text stands in single or double quotes; a quote inside is doubled, as in SQL; a backslash is a character like any
other, so that paths and patterns mean what they show. A name after a dot that is no identifier stands in double quotes.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, WhereError, shown

__all__ = ["Token", "TokenKind", "tokens"]

_TOKEN: Final = re.compile(
    r"""
      (?P<space>\s++)
    | (?P<text>'(?:[^']|'')*+'|"(?:[^"]|"")*+")
    | (?P<number>-?[0-9]++(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.:-]))
    | (?P<parameter>:[A-Za-z_][A-Za-z0-9_]*+)
    | (?P<path>[^\W\d]\w*+(?:\.(?:[^\W\d]\w*+|"(?:[^"]|"")*+"))*+(?!\.))
    | (?P<symbol><=|>=|!=|[=<>(),-])
    """,
    re.VERBOSE,
)
_STEP: Final = re.compile(r'[^\W\d]\w*+|"(?:[^"]|"")*+"')
_BEGUN: Final = re.compile(r'(?:(?:[^\W\d]\w*+|"(?:[^"]|"")*+")\.)+')
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}")
_INSTEAD: Final = {
    "!": "Write not, or != between two sides",
    "&": "Write and",
    "|": "Write or",
    "[": "A list stands in ( )",
}


class TokenKind(Enum):
    """What a token is. `PATH` is a field, or a keyword if it is one plain word; `END` closes every source."""

    TEXT = "text"
    NUMBER = "number"
    PARAMETER = "parameter"
    PATH = "path"
    SYMBOL = "symbol"
    END = "end"


class Token(NamedTuple):
    """One token: its text as written, and its zero-based place in the source."""

    kind: TokenKind
    text: str
    start: int

    @property
    def word(self) -> str:
        """The lower-case word, if this is one plain word, else nothing."""
        return self.text.lower() if self.kind is TokenKind.PATH and "." not in self.text else ""

    @property
    def names(self) -> tuple[str, ...]:
        """The names of a path, without their quotes."""
        return tuple(unquoted(step) if step[0] == '"' else step for step in _STEP.findall(self.text))


def unquoted(text: str) -> str:
    """What stands between the quotes."""
    return text[1:-1].replace(text[0] * 2, text[0])


def tokens(source: str, *, max_chars: int = limits.WHERE_CHARS) -> list[Token]:
    """Cut a source into tokens; the last one is the end.

    Raises:
        InvalidInput: The source is not a string.
        LimitExceeded: The source is longer than `max_chars`.
        WhereError: There is a character that begins nothing, or a text without an end.
    """
    if not isinstance(source, str):
        raise InvalidInput(f"A where, order or group is a string, not {type(source).__name__}")
    if len(source) > max_chars:
        raise LimitExceeded(
            f"This where, order or group has {len(source)} characters",
            why=f"At most {max_chars} are taken",
            next="Pass long values and lists as :parameters",
        )
    try:
        source.encode()
    except UnicodeEncodeError as error:
        raise WhereError("Half a surrogate pair is no character", source=source, position=error.start) from None
    found, position = [], 0
    while position < len(source):
        match = _TOKEN.match(source, position)
        if match is None:
            raise _unreadable(source, position)
        if match.lastgroup != "space":
            found.append(Token(TokenKind(match.lastgroup), match.group(), position))
        position = match.end()
    found.append(Token(TokenKind.END, "", len(source)))
    return found


def _unreadable(source: str, position: int) -> WhereError:
    first, rest = source[position], source[position:]
    if first in "'\"":
        what, hint = "This text has no closing quote", "Close it; a quote inside text is doubled: 'it''s'"
    elif _DATE.match(rest):
        what, hint = "A date is written as text", "Put it in quotes: '2026-11-01'"
    elif first.isdigit() or first == "-":
        what, hint = "This is neither a number nor a name", "Put text in quotes; a number is written 5, -5, 0.5 or 1e6"
    elif first == ":":
        what, hint = "A parameter is a colon and a name", "Write for instance :area, and pass area="
    elif first.isalpha() or first == "_":
        what = "After a dot there is no name"
        hint = 'A name that is not letters, digits and _ stands in double quotes: attrs."X-Frame-Options"'
        begun = _BEGUN.match(rest)
        position += begun.end() - 1 if begun else 0
    else:
        what, hint = f"The character {shown(first)} has no meaning here", _INSTEAD.get(first, "Put text in quotes")
    return WhereError(what, source=source, position=position, next=hint)
