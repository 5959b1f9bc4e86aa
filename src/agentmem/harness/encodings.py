r"""Ways to read a text: with what was encoded undone, and each place known where it stood in the text itself.

All is done to bytes of UTF-8, by fixed patterns that no text makes slow.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Final

from attrs import frozen

__all__ = ["BETWEEN", "BLANKS", "SAME", "Reading", "Span", "Step", "readings", "utf8"]

Span = tuple[int, int, str]  # the begin and end of a piece of a text, and the name of what it is a piece of


@frozen(repr=False, eq=False)
class Step:
    """One thing that is undone in a text.

    Attributes:
        hint: Without these bytes there is nothing to undo.
        pattern: What is replaced.
        by: What it stands for.
        unit: Bytes of the text for one of the result, where that is the same in all of a match; else 0.
        removes: Bytes that are left out, where a text has no white space but that of ASCII.
    """

    hint: bytes
    pattern: re.Pattern[bytes]
    by: Callable[[re.Match[bytes]], bytes]
    unit: int = 0
    removes: bytes = b""

    def __call__(self, text: bytes) -> bytes:
        """The text with it undone."""
        if self.removes and (text.isascii() or _RARE_BLANK.search(text) is None):
            return text.translate(None, self.removes)
        return self.pattern.sub(self.by, text) if self.hint in text else text

    def places(self, text: bytes, wanted: Iterable[int]) -> dict[int, tuple[int, int]]:
        """Where bytes of the result, given in ascending order, stand in `text`."""
        found: dict[int, tuple[int, int]] = {}
        pending = iter(wanted)
        place = next(pending, None)
        size = last = 0  # of the result so far; the end of the match before
        for match in self.pattern.finditer(text):
            begin, end = match.span()
            while place is not None and place < size + begin - last:
                found[place] = (last + place - size, last + place - size + 1)
                place = next(pending, None)
            if place is None:
                return found
            size += begin - last
            made = (end - begin) // self.unit if self.unit else len(self.by(match))
            while place is not None and place < size + made:
                at = begin + (place - size) * self.unit
                found[place] = (at, at + self.unit) if self.unit else (begin, end)
                place = next(pending, None)
            size += made
            last = end
        while place is not None:
            found[place] = (last + place - size, last + place - size + 1)
            place = next(pending, None)
        return found


def _percent(found: re.Match[bytes]) -> bytes:
    return bytes.fromhex(found[0].replace(b"%", b"").decode())


def _entity(found: re.Match[bytes]) -> bytes:
    return utf8(html.unescape(found[0].decode()))


class _Escapes(dict[bytes, bytes]):
    r"""What escapes stand for; of `\xe9` the byte, as `repr` of bytes means it, or else the character."""

    def __init__(self, *, of_bytes: bool) -> None:
        super().__init__()
        self._of_bytes = of_bytes

    def __missing__(self, token: bytes) -> bytes:
        if len(self) >= _ESCAPES_KEPT:
            self.clear()
        self[token] = made = _escape(token, of_bytes=self._of_bytes)
        return made

    def __call__(self, found: re.Match[bytes]) -> bytes:
        return self[found[0]]


_ESCAPES_KEPT: Final = 4096
_SIMPLE: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"v": b"\v", b"a": b"\a", b"\n": b""}


def _escape(token: bytes, *, of_bytes: bool) -> bytes:
    kind, rest = token[1:2], token[2:]
    if len(token) == 2 and kind not in b"01234567":
        return _SIMPLE.get(kind, kind)
    if len(token) == 12:  # a pair of surrogates
        high, low = int(rest[:4], 16), int(rest[6:], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + low - 0xDC00).encode()
    number = int(rest.strip(b"{}"), 16) if kind in b"uUx" else int(token[1:], 8)
    if of_bytes and kind not in b"uU":
        return bytes((number & 0xFF,))
    return utf8(chr(number)) if number <= 0x10FFFF else b""


def utf8(text: str) -> bytes:
    """The bytes of a text, also of one with lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def _removed(_: re.Match[bytes]) -> bytes:
    return b""


_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9A-Fa-f]{2}\\u[dD][c-fC-F][0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,6}\}|U[0-9A-Fa-f]{8}"
    rb"|x[0-9A-Fa-f]{2}|[0-7]{1,3}|[\s\S])"
)
# White space of Unicode, and what is as invisible.
_RARE: Final = (
    rb"\xc2[\x85\xa0\xad]|\xe1\x9a\x80|\xe2(?:\x80[\x80-\x8f\xa8-\xaf]|\x81[\x9f-\xa4])|\xe3\x80\x80|\xef\xbb\xbf"
)
_RARE_BLANK: Final = re.compile(_RARE)
_BLANK: Final = re.compile(rb"(?:[ \t-\r\x1c-\x1f]|" + _RARE + rb")+")
BLANKS: Final = Step(b"", _BLANK, _removed, removes=b" \t\n\v\f\r\x1c\x1d\x1e\x1f")
_PERCENTS: Final = Step(b"%", re.compile(rb"(?:%[0-9A-Fa-f]{2})+"), _percent, unit=3)
_PLUSES: Final = Step(b"+", re.compile(rb"\++"), _removed)
_ESCAPES: Final = Step(b"\\", _ESCAPE, _Escapes(of_bytes=False))
_BYTES: Final = Step(b"\\", _ESCAPE, _Escapes(of_bytes=True))
_ENTITIES: Final = Step(b"&", re.compile(rb"&(?:#[0-9]{1,7}|#[xX][0-9A-Fa-f]{1,6}|[A-Za-z]{2,8});"), _entity)
BETWEEN: Final = Step(b"", re.compile(rb"\\x|0[xX]|[:,;._\-]+"), _removed)
"""What stands between hex digits."""
SAME: Final = Step(b"", re.compile(rb"(?!)"), _removed)
"""Undoes nothing: for a reading whose bytes were only written otherwise, each in its place."""

# What else is read of the text: with escapes undone before white space is left out, since a backslash may stand before it.
_ESCAPED: Final = ((_ESCAPES,), (_ESCAPES, _ESCAPES), (_ESCAPES, _ESCAPES, _ESCAPES), (_ESCAPES, _PERCENTS),
                   (_ESCAPES, _ESCAPES, _PERCENTS), (_ESCAPES, _ENTITIES))  # fmt: skip
# And of the text without white space.
_UNDONE: Final = ((_ESCAPES,), (_PERCENTS,), (_PERCENTS, _PERCENTS), (_PERCENTS, _ESCAPES), (_ENTITIES,),
                  (_ENTITIES, _PERCENTS), (_ENTITIES, _ESCAPES))  # fmt: skip
_SPACED: Final = ((_PLUSES, _PERCENTS), (_PLUSES, _PERCENTS, _ESCAPES))  # where a secret has white space
_WIDE: Final = ((_BYTES,), (_BYTES, _PERCENTS))  # where it is not of ASCII


class Reading:
    """A text as it is read: what was undone in which other reading."""

    __slots__ = ("_of", "_step", "data")

    def __init__(self, data: bytes, of: Reading | None = None, step: Step | None = None) -> None:
        self.data, self._of, self._step = data, of, step

    def undone(self, step: Step) -> Reading:
        """The reading in which one more thing is undone; this one, where there is nothing to undo."""
        data = step(self.data)
        return self if data == self.data else Reading(data, self, step)

    def back(self, spans: Iterable[Span]) -> list[Span]:
        """Where pieces of this reading stand in the text itself."""
        found, reading = list(spans), self
        while found and reading._of is not None and reading._step is not None:
            wanted = sorted({place for begin, end, _ in found for place in (begin, end - 1)})
            places = reading._step.places(reading._of.data, wanted)
            found = [(places[begin][0], places[end - 1][1], name) for begin, end, name in found]
            reading = reading._of
        return found


def readings(text: Reading, *, spaced: bool, wide: bool) -> Iterator[tuple[Reading, bool]]:
    """The ways in which a text is read, all without white space; and whether hex digits are looked for in it."""
    bare = text.undone(BLANKS)
    yield bare, True
    seen = {bare.data}
    chains = [(text, steps) for steps in _ESCAPED] + [(bare, steps) for steps in _UNDONE]
    if spaced:
        chains += [(bare, steps) for steps in _SPACED]
    if wide:
        chains += [(bare, steps) for steps in _WIDE]
    known: dict[tuple[int, tuple[Step, ...]], Reading] = {}
    for start, steps in chains:
        reading = start
        for number, step in enumerate(steps):
            key = (id(start), steps[: number + 1])
            reading = known.get(key) or known.setdefault(key, reading.undone(step))
        done = bare if reading is start else reading.undone(BLANKS)
        if done.data not in seen:
            seen.add(done.data)
            yield done, steps == (_ESCAPES,)
