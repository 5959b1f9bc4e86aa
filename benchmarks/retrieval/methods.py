"""Every method on one space: a name, the rankings of its questions, what it shows within a budget."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np

from agentmem.context.tokens import count_tokens
from benchmarks.retrieval import scores
from benchmarks.retrieval.data import Collection, Space
from benchmarks.retrieval.stores import Filled, filled
from benchmarks.retrieval.vectors import Matrix, Vectors

BUDGETS: Final = (512, 2048)
RECALL: Final = "agentmem recall"
FITTED: Final = "agentmem recall, its own text"

# Of the record before, beside each record: weight of its words and of its cosine. Best R@10 of LoCoMo's categories 1-4 on
# the half to choose by, of the pairs that `--ablate` lists.
BESIDE_WORDS: Final = 0.4
BESIDE_COSINE: Final = 0.3

_WINDOW_CHARS: Final = 800
_WINDOW_STEP: Final = 600


@dataclass
class Ranked:
    """What a method gave: a ranking a question, and what stands in each budget. Either may be missing."""

    places: list[list[int]] | None
    shown: dict[int, list[list[int]]] = field(default_factory=dict)


@dataclass
class Signals:
    """What the simple methods are made of, computed when first asked for."""

    space: Space
    vectors: Vectors

    @cached_property
    def queries(self) -> list[str]:
        return [question.text for question in self.space.questions]

    @cached_property
    def texts(self) -> list[str]:
        return [item.text for item in self.space.items]

    @cached_property
    def chinese(self) -> bool:
        """Whether parting Chinese words changes anything."""
        return any(scores.bigrams(text) != text for text in self.queries)

    @cached_property
    def every_word(self) -> Matrix:
        return scores.bm25(self.queries, self.texts)

    @cached_property
    def words(self) -> Matrix:
        return scores.bm25(self.queries, self.texts, stop=False, pairs=self.chinese)

    @cached_property
    def asked(self) -> Matrix:
        return self.vectors.of(self.queries)

    @cached_property
    def cosine(self) -> Matrix:
        return self.asked @ self.vectors.of(self.texts).T

    @cached_property
    def dated(self) -> Matrix:
        return self.asked @ self.vectors.of([item.dated for item in self.space.items]).T

    @cached_property
    def windows(self) -> Matrix:
        """The best cosine of any piece of a long text."""
        pieces, owners = [], []
        for place, text in enumerate(self.texts):
            for piece in _windows(text):
                pieces.append(piece)
                owners.append(place)
        best = np.full((len(self.queries), len(self.texts)), -1, np.float32)
        np.maximum.at(best.T, owners, self.vectors.of(pieces) @ self.asked.T)
        return best

    def before(self, matrix: Matrix) -> Matrix:
        """The scores of the record before each, 0 where there is none."""
        places = [self.space.previous(place) for place in range(len(self.texts))]
        shifted = np.zeros_like(matrix)
        for place, previous in enumerate(places):
            if previous is not None:
                shifted[:, place] = matrix[:, previous]
        return shifted

    def beside(self, words: float, cosine: float, share: float = 0.6) -> Matrix:
        """Score fusion where the record before each is a second field and a second vector, at these weights."""
        places = [self.space.previous(place) for place in range(len(self.texts))]
        previous = ["" if place is None else self.texts[place] for place in places]
        matched = scores.bm25(
            self.queries, self.texts, stop=False, beside=previous, weight=words, pairs=self.chinese
        )  # fmt: skip
        return scores.of_scores(matched, self.cosine + cosine * self.before(self.cosine), share)


def _windows(text: str) -> Iterator[str]:
    begin = 0
    while True:
        end = begin + _WINDOW_CHARS
        yield text[begin:end]
        if end >= len(text):
            return
        begin = text.rfind(" ", begin + 1, begin + _WINDOW_STEP) + 1 or begin + _WINDOW_STEP


def simple(collection: Collection, signals: Signals) -> dict[str, Callable[[], Matrix]]:
    """The methods that agentmem has to beat, by name."""
    found: dict[str, Callable[[], Matrix]] = {"BM25 (FTS5 porter, OR)": lambda: signals.every_word}
    parted = ", Chinese in pairs" if signals.chinese else ""
    found[f"BM25 without stop words{parted}"] = lambda: signals.words
    found["MiniLM"] = lambda: signals.cosine
    if collection.sessions:
        found["MiniLM, the session's date in the text"] = lambda: signals.dated
    if any(len(text) > _WINDOW_CHARS for text in signals.texts):
        found["MiniLM, best window"] = lambda: signals.windows
    best = signals.windows if "MiniLM, best window" in found else signals.cosine
    found["rank fusion, k = 60"] = lambda: scores.of_ranks((signals.words, best), 60)
    found["rank fusion, k = 10"] = lambda: scores.of_ranks((signals.words, best), 10)
    found["score fusion, 0.6 words + 0.4 cosine"] = lambda: scores.of_scores(signals.words, best)
    if collection.ordered:
        found["score fusion, the turn before beside each"] = lambda: signals.beside(BESIDE_WORDS, BESIDE_COSINE)
    return found


def every(collection: Collection, space: Space, vectors: Vectors, directory: Path) -> Iterator[tuple[str, Ranked]]:
    """All methods, the simple ones first."""
    signals = Signals(space, vectors)
    costs = [count_tokens(_line(place, text)) for place, text in enumerate(signals.texts)]
    for name, matrix in simple(collection, signals).items():
        yield name, _with_budgets(scores.ranking(matrix()), costs)
    with filled(space, directory) as store:
        yield "agentmem find (words)", _with_budgets([store.found(query) for query in signals.queries], costs)
        yield from _recall(store, signals.queries, costs)


def _recall(store: Filled, queries: list[str], costs: list[int]) -> Iterator[tuple[str, Ranked]]:
    deep: list[list[int]] = []
    fitted: dict[int, list[list[int]]] = {}
    for budget in BUDGETS:
        answers = [store.shown(query, budget) for query in queries]
        deep = [hits for hits, _ in answers]
        fitted[budget] = [lines for _, lines in answers]
    yield RECALL, Ranked([store.recalled(query) for query in queries], _with_budgets(deep, costs).shown)
    yield FITTED, Ranked(None, fitted)


def _with_budgets(ranked: list[list[int]], costs: list[int]) -> Ranked:
    return Ranked(ranked, {budget: [fitting(places, costs, budget) for places in ranked] for budget in BUDGETS})


def fitting(places: list[int], costs: list[int], budget: int) -> list[int]:
    """The first of a ranking that fit a budget, each printed whole in one line, until one does not fit."""
    shown, spent = [], 0
    for place in places:
        spent += costs[place]
        if spent > budget:
            break
        shown.append(place)
    return shown


def _line(place: int, text: str) -> str:
    return f"#{place + 1} {' '.join(text.split())}\n"
