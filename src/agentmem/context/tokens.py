"""How many tokens a text costs, from above, without a vocabulary.

A tokenizer's count depends on its vocabulary of megabytes. What a budget needs is a bound: here each byte of the UTF-8
text adds a weight that depends on its class and on the class of the byte before it. The weights are the smallest whose
sum is at least the count of the dearest of seven current vocabularies, on a corpus of prose, code, logs, JSON, names,
digests and thirty languages (a linear program, see `scripts/calibrate_tokens.py`), and a margin for other texts.
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable
from typing import Final

from agentmem.context.token_weights import BYTE_CLASSES, UNITS, WEIGHTS
from agentmem.errors import InvalidInput, shown

__all__ = ["CLASS_OF_BYTE", "Counter", "check", "count_tokens", "cut"]

Counter = Callable[[str], int]
"""Tokens of a text. Budgets hold by any; they are used well by one that is subadditive and monotone."""

CLASS_OF_BYTE: Final = bytes(
    next(index for index, members in enumerate(BYTE_CLASSES) if byte in members) for byte in range(256)
)


def _pair_table() -> bytes:
    """Weights by the number that two neighbouring class bytes make when read as one native 16-bit integer."""
    after = [bytes.fromhex(row) for row in WEIGHTS.split()]
    if sys.byteorder == "big":
        after = [bytes(column) for column in zip(*after, strict=True)]
    return b"".join(row.ljust(256, b"\0") for row in after)


_OF_PAIR: Final = _pair_table()
# At the start of a text a byte costs what it costs after the worst neighbour. With weights that are never negative this
# makes the count subadditive: joining two texts can only lower what the first byte of the second costs.
_OF_FIRST: Final = bytes(max(bytes.fromhex(row)) for row in WEIGHTS.split())


def count_tokens(text: str) -> int:
    """An upper estimate of the tokens of `text` in the dearest current family of models.

    Exactly true are: nothing costs nothing; a longer text never costs less than its beginning; two texts joined never
    cost more than the two apart.

    On text as people and programs write it the estimate is 1.05 to 1.5 times the dearest count, 1.2 in English and
    code. Of texts it was not fitted to it was too low for five in a thousand, of those of 200 tokens or more for two in
    a thousand, by 2 percent at most. Not bounded are strings that nobody writes: random and periodic ones, where two
    thirds to a third of the dearest count may be all that is estimated, and random characters of rare scripts.
    """
    if not text:
        return 0
    classes = text.encode("utf-8", "surrogatepass").translate(CLASS_OF_BYTE)
    pairs = memoryview(classes)
    even = pairs[: len(classes) & ~1].cast("H")
    odd = pairs[1 : 1 + ((len(classes) - 1) & ~1)].cast("H")
    weight = _OF_PAIR.__getitem__
    units = _OF_FIRST[classes[0]] + sum(map(weight, even)) + sum(map(weight, odd))
    return -(-units // UNITS)


_TRIAL: Final = "What an agent has to know in order to go on with its work. " * 4


def check(counter: Counter) -> None:
    """Try a counter that is not our own.

    Raises:
        InvalidInput: It does not answer with finite numbers, 0 or more, or with nothing for a long text.
    """
    for text in ("a", _TRIAL):
        count: object = counter(text)
        number = count if isinstance(count, int | float) and not isinstance(count, bool) else -1
        if not (0 <= number <= sys.maxsize) or (text is _TRIAL and not number):
            raise InvalidInput(
                f"The counter gives {shown(count)} for {len(text)} characters",
                why="It gives the tokens of a text, a finite number: 0 or more, and more than 0 for a long text",
                next="Open the store with another counter=, or with none",
            )


# How far back a cut looks for the border of a word, in characters.
_WORD_CHARS: Final = 24
# How many characters a cut steps back at most so as not to part a letter from its marks.
_MARK_CHARS: Final = 64


def _ellipsis(kept: str) -> str:
    return "…"


def cut(text: str, limit: int, counter: Counter = count_tokens, *, ending: Callable[[str], str] = _ellipsis) -> str:
    """The longest beginning of `text` that costs at most `limit` tokens with its ending.

    A text that fits is returned as it is. Otherwise the cut is made between lines or words where one of these is near,
    and never between a letter and its marks or within an emoji sequence.

    Args:
        text: What to shorten.
        limit: Tokens, by `counter`.
        counter: Tokens of a text, monotone in its beginnings.
        ending: What comes after the part that was kept, given that part.

    Returns:
        The shortened text, or an empty one if not even the ending fits.
    """
    # Not counted whole where its beginning is too long already: the text may be much longer than the limit.
    high = max(limit, 1) * 8
    while high < len(text) and counter(text[:high]) <= limit:
        high *= 2
    if high >= len(text) and counter(text) <= limit:
        return text
    low, high = 0, min(high, len(text))
    while low < high:
        middle = (low + high + 1) // 2
        kept = text[:middle]
        low, high = (middle, high) if counter(kept + ending(kept)) <= limit else (low, middle - 1)
    size, back = _border(text, low), 1
    while size > 0:
        kept = text[:size].rstrip()
        shortened = kept + ending(kept)
        if kept and counter(shortened) <= limit:
            return shortened
        # The ending may cost more after this border than after the place before it.
        size, back = _border(text, max(0, size - back)), back * 2
    only = ending("")
    return only if counter(only) <= limit else ""


def _border(text: str, size: int) -> int:
    """The end of the last line or word at or a little before `size`, else of the last letter."""
    if size >= len(text) or text[size].isspace():
        return size
    start = max(size - _WORD_CHARS, size // 2)
    for place in range(size, start, -1):
        if text[place - 1].isspace():
            return place
    return _whole_letter(text, size)


def _whole_letter(text: str, size: int) -> int:
    """`size`, or the nearest place before it that parts no letter from its marks and no emoji sequence."""
    place = size
    while 0 < place < len(text) and _clings(text[place - 1], text[place]):
        place -= 1
        if size - place > _MARK_CHARS:
            return size
    return place


def _clings(before: str, after: str) -> bool:
    if after.isascii():
        return False
    return (
        before == "\u200d"
        or after == "\u200d"
        or unicodedata.category(after) in ("Mn", "Mc", "Me")
        or "\U0001f3fb" <= after <= "\U0001f3ff"
        or ("\U0001f1e6" <= after <= "\U0001f1ff" and "\U0001f1e6" <= before <= "\U0001f1ff")
        or "\U000e0020" <= after <= "\U000e007f"
    )
