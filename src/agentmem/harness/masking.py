r"""Masking: the secrets that a text holds are found, also encoded, and replaced by their names.

A text is read in several ways, as bytes of UTF-8: as it stands; without white space, so that what was split over lines is
whole; and with percent signs, escapes of JSON and Python, or entities of HTML undone, also one within the other. In each
reading three things are looked for: the secret itself, its base64 at each of the three places where it may begin in a longer
text, and its hex digits. All of this is a search for fixed strings: no text, however it is made, makes it slow. Where
something is found, its place is followed back through what was undone, so that nothing else of the text changes.

What is not found: a secret that was encrypted, compressed, hashed, reversed, or written in pieces with other text between
them. This guards against accidents, not against a program that means to leak.
"""

from __future__ import annotations

import base64
import re
import threading
from collections.abc import Iterator
from typing import Any, Final, NoReturn

from agentmem.errors import InvalidInput
from agentmem.harness.encodings import BETWEEN, BLANKS, SAME, Reading, Span, readings, utf8

__all__ = ["ENCODED_FROM", "SHORTEST", "Masker"]

SHORTEST: Final = 4
"""A secret of fewer bytes, white space aside, is refused: it stands in ordinary text by chance."""

ENCODED_FROM: Final = 8
"""A secret of fewer bytes, white space aside, is looked for only as it stands."""

# Where a text was cut in the middle of a secret, a piece of so many bytes of the secret, its base64 or its hex digits.
_PIECE: Final = 6
_BASE64_PIECE: Final = 8
_HEX_PIECE: Final = 12
_TOKEN_MOST: Final = 12  # bytes of the longest escape, which a cut may have left a part of
_PERIOD_MOST: Final = 256

_URL_SAFE: Final = bytes.maketrans(b"-_", b"+/")
_BASE64: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")
_HALF_BEGUN: Final = re.compile(
    rb"&#?[0-9A-Za-z]{0,8}|(?:\xed[\xa0-\xaf][\x80-\xbf])?(?:[%\\uUx0]{0,3}[{]?[0-9A-Fa-f]{0,8}|%[0-9A-Fa-f]{2}%?)"
)
_HALF_ENDED: Final = re.compile(
    rb"[0-9A-Fa-f]{0,2}(?:[nrtbfv\"'/uUx{]|#x?)?[0-9A-Fa-f]{0,8}[;}]?(?:\xed[\xb0-\xbf][\x80-\xbf])?|[A-Za-z]{1,8};"
    rb"|[0-9A-Fa-f]{0,4}%[0-9A-Fa-f]{2}"
)


class _Secret:
    """A secret, and what it is looked for as: itself, without white space, its base64 at each place, its hex digits."""

    __slots__ = ("bare", "cores", "digits", "name", "plain", "until")

    def __init__(self, name: str, value: str, until: int | None) -> None:
        self.name, self.until = name, until
        self.plain = utf8(value)
        bare = BLANKS(self.plain)
        longer = len(bare) >= ENCODED_FROM
        self.bare = bare if longer else b""
        self.cores = tuple(_core(self.plain, before) for before in range(3)) if longer else ()
        self.digits = self.plain.hex().encode() if longer else b""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A secret is not copied, pickled or sent anywhere")


def _core(data: bytes, before: int) -> tuple[bytes, bool, bool]:
    """What of the base64 of a secret is the same whatever stands beside it, where it begins so many bytes into a group.

    Returns:
        It, and whether the character before it and the one after it have bits of the secret too.
    """
    whole = base64.b64encode(b"\0" * before + data)
    first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
    return whole[first:last], before > 0, (before + len(data)) % 3 > 0


class Masker:
    """Knows secrets, and masks them in texts. Thread-safe; it shows nothing of what it knows."""

    __slots__ = ("_lock", "_secrets")

    def __init__(self) -> None:
        self._secrets: tuple[_Secret, ...] = ()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<Masker of {len(self._secrets)} secrets>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("A masker holds secrets, and is not copied, pickled or sent anywhere")

    def add(self, value: str, name: str, *, until: int | None = None) -> None:
        """Have a secret masked from now on.

        Args:
            value: The secret.
            name: What stands in its place: `[masked: <name>]`.
            until: When it may be forgotten, in the unit that `forget` is given; None for never.

        Raises:
            InvalidInput: It is shorter than 4 bytes, white space aside: it would be found in ordinary text.
        """
        if len(BLANKS(utf8(value))) < SHORTEST:
            raise InvalidInput(
                f"The secret {name} has fewer than {SHORTEST} characters",
                why="It could not be told from ordinary text, and so not be masked",
                next="Use a longer one",
            )
        with self._lock:
            made = _Secret(name, value, until)
            known = next((each for each in self._secrets if each.plain == made.plain), None)
            if known is None:
                self._secrets = (*self._secrets, made)
            elif known.until is not None:
                known.until = None if until is None else max(until, known.until)

    def forget(self, now: int) -> None:
        """Let go of the secrets that were to be kept until an earlier time."""
        with self._lock:
            if any(each.until is not None and each.until < now for each in self._secrets):
                self._secrets = tuple(each for each in self._secrets if each.until is None or each.until >= now)

    def found(self, text: str) -> bool:
        """Whether a text holds a secret."""
        secrets = self._secrets
        return any(True for _ in _found(secrets, Reading(utf8(text)))) if secrets else False

    def mask(self, text: str, *, cut_start: bool = False, cut_end: bool = False) -> str:
        """A text with each secret replaced by `[masked: <name>]`; nothing else of it changes.

        What may be part of how the secret is written goes with it: a backslash right before it.

        Args:
            text: The text.
            cut_start: It was cut at its beginning, so that the end of a secret may stand there: six characters or more of
                one are masked too.
            cut_end: The same of the beginning of a secret, at the end of the text.
        """
        secrets = self._secrets
        if not secrets or not text:
            return text
        whole = Reading(utf8(text))
        spans = [span for reading, found in _found(secrets, whole) for span in reading.back(found)]
        if cut_start or cut_end:
            spans += _pieces(secrets, whole.data, cut_start, cut_end)
        return _replaced(text, whole.data, spans) if spans else text

    def mask_json(self, value: Any) -> Any:
        """A value of JSON with its texts and names masked, and whole numbers of eight digits or more that are a secret."""
        if not self._secrets or value is None or isinstance(value, bool):
            return value
        if isinstance(value, str):
            return self.mask(value)
        if isinstance(value, dict):
            done: dict[Any, Any] = {}
            for name, part in value.items():
                done[_unlike(self.mask(name) if isinstance(name, str) else name, done)] = self.mask_json(part)
            return done
        if isinstance(value, list | tuple):
            return [self.mask_json(part) for part in value]
        if isinstance(value, int):
            digits = str(value).encode()
            return next((f"[masked: {each.name}]" for each in self._secrets if each.bare == digits), value)
        return value


def _unlike(name: Any, others: dict[Any, Any]) -> Any:
    """A name as it is, or numbered where two are alike once they are masked."""
    if name not in others or not isinstance(name, str):
        return name
    number = 2
    while f"{name} ({number})" in others:
        number += 1
    return f"{name} ({number})"


def _found(secrets: tuple[_Secret, ...], text: Reading) -> Iterator[tuple[Reading, list[Span]]]:
    """The secrets in a text: readings, and where in them something was found."""
    spans = [span for each in secrets for span in _all(text.data, each.plain, each.name)]
    if spans:
        yield text, spans
    longer = [each for each in secrets if each.bare]
    if not longer:
        return
    for reading, hexed in readings(text, **_kinds(longer)):
        spans = [span for each in longer for span in _all(reading.data, each.bare, each.name)]
        spans += _in_base64(longer, reading.data)
        if spans:
            yield reading, spans
        if hexed:
            joined = reading.undone(BETWEEN)
            data = joined.data.lower()
            spans = [span for each in longer for span in _all(data, each.digits, each.name)]
            if spans:
                yield joined, spans


def _kinds(secrets: list[_Secret]) -> dict[str, bool]:
    return {
        "spaced": any(each.bare != each.plain for each in secrets),
        "wide": not all(each.plain.isascii() for each in secrets),
    }


def _in_base64(secrets: list[_Secret], data: bytes) -> Iterator[Span]:
    data = data.translate(_URL_SAFE)
    for each in secrets:
        for core, before, after in each.cores:
            for begin, end, name in _all(data, core, each.name):
                more = after and end < len(data) and data[end] in _BASE64
                yield begin - (before and begin > 0 and data[begin - 1] in _BASE64), end + more, name


def _all(data: bytes, wanted: bytes, name: str) -> Iterator[Span]:
    """Where a string stands in a text, runs in which it overlaps itself as one."""
    at = data.find(wanted)
    if at < 0:
        return
    step, size = _period(wanted), len(wanted)
    while at >= 0:
        begin = at
        while data.startswith(wanted, at + step):
            at += step
        yield begin, at + size, name
        at = data.find(wanted, at + step)


def _period(wanted: bytes) -> int:
    """The least number of bytes after which a string can begin again within itself; of a long one 1, which is never too much."""
    if len(wanted) > _PERIOD_MOST:
        return 1
    return next(step for step in range(1, len(wanted) + 1) if wanted.startswith(wanted[step:]))


def _pieces(secrets: tuple[_Secret, ...], data: bytes, cut_start: bool, cut_end: bool) -> Iterator[Span]:
    """Pieces of secrets at the ends of a text that was cut: places in it."""
    longest = max(len(each.plain) for each in secrets) * _TOKEN_MOST + 1024
    if cut_end:
        offset = max(0, len(data) - longest)
        tail = data[offset:]
        for reading, form, least, name in _forms(secrets, Reading(tail)):
            for end in _ends(reading.data):
                size = _prefix(reading.data[:end], form, least)
                if size:
                    yield offset + reading.back([(end - size, end, name)])[0][0], len(data), name
                    break
    if cut_start:
        for reading, form, least, name in _forms(secrets, Reading(data[:longest])):
            size = _suffix(reading.data, form, least)
            if size:
                yield 0, reading.back([(0, size, name)])[0][1], name


def _ends(data: bytes) -> Iterator[int]:
    """Where a text that was cut may end: at its end, and before what half an escape, or what was made of one, may be."""
    for end in range(len(data), max(-1, len(data) - _TOKEN_MOST), -1):
        if _HALF_BEGUN.fullmatch(data, end):
            yield end


def _begins(data: bytes) -> Iterator[int]:
    """The same of the beginning."""
    for begin in range(min(_TOKEN_MOST, len(data))):
        if _HALF_ENDED.fullmatch(data, 0, begin):
            yield begin


def _forms(secrets: tuple[_Secret, ...], text: Reading) -> Iterator[tuple[Reading, bytes, int, str]]:
    """The readings of a text with what a piece may be of, and how much of that counts."""
    for each in secrets:
        yield text, each.plain, _PIECE, each.name
    longer = [each for each in secrets if each.bare]
    for reading, hexed in readings(text, **_kinds(longer)) if longer else ():
        coded = Reading(reading.data.translate(_URL_SAFE), reading, SAME)
        joined = reading.undone(BETWEEN)
        digits = Reading(joined.data.lower(), joined, SAME)
        for each in longer:
            yield reading, each.bare, _PIECE, each.name
            for core, _, _ in each.cores:
                yield coded, core, _BASE64_PIECE, each.name
            if hexed:
                yield digits, each.digits, _HEX_PIECE, each.name


def _prefix(data: bytes, form: bytes, least: int) -> int:
    """How many bytes of the beginning of a form, at least so many and not all, stand at the end of a text."""
    tail = data[max(0, len(data) - len(form) + 1) :]
    at = tail.find(form[:least])
    while at >= 0:
        if form.startswith(tail[at:]):
            return len(tail) - at
        at = tail.find(form[:least], at + 1)
    return 0


def _suffix(data: bytes, form: bytes, least: int) -> int:
    """How far the end of a form reaches into a text that begins with it, or with a part of an escape and then with it."""
    for skipped in _begins(data):
        head = data[skipped : skipped + len(form) - 1]
        at = head.rfind(form[-least:])
        while at >= 0:
            if form.endswith(head[: at + least]):
                return skipped + at + least
            at = head.rfind(form[-least:], 0, at + least - 1)
    return 0


def _replaced(text: str, data: bytes, spans: list[Span]) -> str:
    """The text with the spans, in bytes, replaced; those that overlap as one, with the name of the longest."""
    merged: list[Span] = []
    longest = 0
    for begin, end, name in sorted(spans):
        if merged and begin < merged[-1][1]:
            of = name if end - begin > longest else merged[-1][2]
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]), of)
            longest = max(longest, end - begin)
        else:
            merged.append((begin, end, name))
            longest = end - begin
    parts: list[str] = []
    last = 0
    for begin, end, name in merged:
        parts += [data[last:begin].decode("utf-8", "surrogatepass"), f"[masked: {name}]"]
        last = end
    return "".join(parts) + data[last:].decode("utf-8", "surrogatepass")
