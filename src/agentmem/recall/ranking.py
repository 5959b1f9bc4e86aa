"""The order of what was found: one formula, whatever the text is of. `docs/recall.md` has what each term is worth.

For a query q and a record d, with the record p before it and the record n after it, beneath the same parent:

    words(q, d)    the share of what q asks for that d holds, about 1 for all of it: the sum over the units u of q of
                   idf(u) * held(u, d), over the sum of idf(u). The idf is that of BM25 (Robertson and Spärck Jones);
                   held is its saturated frequency, less for a stem than for the form itself, and less for parts.
                   In company held(u, d) is the largest of held(u, d), 0.6 * held(u, p) and 0.3 * held(u, n).
    meaning(q, d)  the cosine of q with the best window of d; 0 below 0, or where the model cannot read one of them.
                   In company 0.25 * meaning(q, p) and 0.1 * meaning(q, n) are added.
    score(q, d)    words(q, d) ** 1.5 + meaning(q, d), in company if d by itself has words of 0.1 or meaning of 0.15

Both parts are absolute: neither is divided by the best of the answer. So words that are all there weigh more than any
likeness (1 against some 0.6), words of which few are there weigh little (0.3 ** 1.5 is 0.16), and where the words of a
question stand nowhere the order is that of meaning. What is said in one message is asked for in the words of two: what
a message is about often stands in the one before.

What follows changes the order only among records that are nearly as good, or have a successor.
"""

from __future__ import annotations

import math
from typing import Final

__all__ = [
    "BESIDE_BEST", "HELD_AFTER", "HELD_BEFORE", "MEANING_SOUGHT", "OVERRULED", "STOP", "TASK", "base", "idf", "relevant",
    "saturated", "tied", "together", "touched",
]  # fmt: skip

_STEEP: Final = 1.5
_MEANING: Final = 1.0
HELD_BEFORE: Final = 0.6
HELD_AFTER: Final = 0.3
"""What a word counts that stands in the record before or after."""
_MEANT_BEFORE: Final = 0.25
_MEANT_AFTER: Final = 0.1
_TOUCHED_WORDS: Final = 0.1
_TOUCHED_MEANING: Final = 0.15
STOP: Final = 0.3
"""What a word counts that says little by itself, such as "the", beside others."""

_K1: Final = 1.2
_B: Final = 0.2
_LENGTH: Final = 100.0  # tokens of the index at which length neither helps nor harms

TASK: Final = 1.15
"""What belongs to the task that was asked for."""
OVERRULED: Final = 0.5
"""What was superseded or dropped."""
_FRESH: Final = 0.02
_SURE: Final = 0.02
_HALF_LIFE_DAYS: Final = 30.0

_WORDS_LEAST: Final = 0.1
_BASE_LEAST: Final = 0.3
MEANING_SOUGHT: Final = 0.15
"""Records less near than this are no candidates."""
BESIDE_BEST: Final = 0.3
"""Less than this part of the best score is not relevant beside it."""


def idf(records: int, holding: int) -> float:
    """How much a unit tells that stands in `holding` of so many records."""
    return math.log1p((records - min(holding, records) + 0.5) / (holding + 0.5))


def saturated(frequency: float, length: int) -> float:
    """What the frequency of a unit counts in a text of so many index tokens: 1 for one in a text of `_LENGTH`.

    More of the same tells ever less; 2.2 is the most.
    """
    return frequency * (_K1 + 1) / (frequency + _K1 * (1 - _B + _B * length / _LENGTH))


def base(words: float, meaning: float) -> float:
    """The score of a record by itself."""
    return math.pow(max(words, 0.0), _STEEP) + _MEANING * max(meaning, 0.0)


def together(own: float, before: float, after: float) -> float:
    """The meaning of a record in company."""
    return max(own, 0.0) + _MEANT_BEFORE * max(before, 0.0) + _MEANT_AFTER * max(after, 0.0)


def relevant(words: float, meaning: float | None) -> bool:
    """Whether a record is worth showing: by both of its scores, or by words where the model could not read one of two."""
    return words >= _WORDS_LEAST if meaning is None else base(words, meaning) >= _BASE_LEAST


def touched(words: float, meaning: float) -> bool:
    """Whether a record has anything to do with the query by itself, so that its neighbours may speak for it."""
    return words >= _TOUCHED_WORDS or meaning >= _TOUCHED_MEANING


def tied(score: float, *, age_days: float, confidence: float | None) -> float:
    """The score with what only decides between records that are nearly as good: 4 % at most."""
    fresh = math.exp2(-max(age_days, 0.0) / _HALF_LIFE_DAYS)
    return score * (1 + _FRESH * fresh + _SURE * ((0.5 if confidence is None else confidence) - 0.5))
