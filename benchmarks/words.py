"""Text with the frequencies of real notes, made from a seed: nothing is read from anywhere.

Two fifths of the words of a text are English function words; the others follow the Zipf–Mandelbrot law
f(rank) ∝ 1 / (rank + 20) over a vocabulary of pronounceable words with English endings, so that the commonest word of
content stands in about a fifth of the notes of 60 words, and half the vocabulary in a handful of them.
"""

from __future__ import annotations

import bisect
import itertools
import random
import re

VOCABULARY = 30_000
MANDELBROT = 20
FUNCTION_WORDS = re.findall(
    r"\w+",
    "the of to and in a is that for on with as it was by at from be this are not or an but which when if then all "
    "after before has had will can no so we they there been",
)
FUNCTION_SHARE = 0.4

_ONSETS = re.findall(r"\w+", "b bl c ch cl cr d dr f fl g gr h j k l m n p pl pr qu r s sc sh sl sp st str t tr v w")
_VOWELS = re.findall(r"\w+", "a e i o u ai ea ee oa ou")
_CODAS = ["", "", "", "n", "r", "s", "t", "l", "m", "nd", "st", "ck", "rt", "mp"]
_ENDINGS = ["", "", "", "ing", "ed", "s", "er", "tion", "able", "ment", "ly"]


class Words:
    """One vocabulary, the same for every seed, and texts of it."""

    def __init__(self, seed: int = 1) -> None:
        self.random = random.Random(0)
        self.vocabulary = self._vocabulary()
        self.random = random.Random(seed)
        weights = [1 / (rank + MANDELBROT) for rank in range(1, VOCABULARY + 1)]
        self._cumulative = list(itertools.accumulate(weights))

    def _vocabulary(self) -> list[str]:
        found: dict[str, None] = {}
        pick = self.random.choice
        while len(found) < VOCABULARY:
            syllables = "".join(pick(_ONSETS) + pick(_VOWELS) for _ in range(self.random.choice((1, 1, 2))))
            found[syllables + pick(_CODAS) + pick(_ENDINGS)] = None
        return list(found)

    def content(self) -> str:
        """One word of content."""
        return self.vocabulary[bisect.bisect(self._cumulative, self.random.random() * self._cumulative[-1])]

    def word(self) -> str:
        """One word."""
        return self.random.choice(FUNCTION_WORDS) if self.random.random() < FUNCTION_SHARE else self.content()

    def text(self, words: int) -> str:
        """So many words, with a full stop now and then."""
        found = [self.word() for _ in range(words)]
        for place in range(9, words, 12):
            found[place] += "."
        return " ".join(found)

    def title(self, words: int = 8) -> str:
        """So many words, the first in upper case."""
        return self.text(words).capitalize().replace(".", "")

    def of_rank(self, first: int, last: int) -> str:
        """A word of a rank, from 0 for the commonest."""
        return self.vocabulary[self.random.randrange(first, last)]
