"""What each weight is worth: the simple fusions over a range of weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.retrieval import scores
from benchmarks.retrieval.data import CHOOSE, REPORT, Collection
from benchmarks.retrieval.measures import Answered, mean, measured
from benchmarks.retrieval.methods import Signals
from benchmarks.retrieval.report import markdown
from benchmarks.retrieval.vectors import Matrix, Vectors

_SHARES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_BESIDE = (0.0, 0.2, 0.3, 0.4, 0.5, 0.6)


def sweep(collection: Collection, vectors: Vectors) -> dict[str, dict[str, dict[str, float]]]:
    """Means on each half by name of the variant. LoCoMo's are of its main categories."""
    every = [Signals(space, vectors) for space in collection.spaces]
    found = {}
    for name, matrix in _variants(collection):
        answers = [
            Answered(question.half, question.category, measured(ranked, question.relevant))
            for signals in every
            for question, ranked in zip(signals.space.questions, scores.ranking(matrix(signals)), strict=True)
            if not collection.main or question.category in collection.main
        ]
        found[name] = {half: mean(one for one in answers if one.half == half) for half in (CHOOSE, REPORT)}
    return found


def _variants(collection: Collection) -> Iterator[tuple[str, Callable[[Signals], Matrix]]]:
    for share in _SHARES:
        yield f"words {share:g}, cosine {1 - share:.1g}", partial(_fused, share=share)
    for words in _BESIDE if collection.ordered else ():
        for cosine in (0.0, 0.3, 0.5):
            name = f"words 0.6, cosine 0.4, of the turn before {words:g} and {cosine:g}"
            yield name, partial(Signals.beside, words=words, cosine=cosine)


def _fused(signals: Signals, share: float) -> Matrix:
    return scores.of_scores(signals.words, signals.windows, share)


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    """The variants as Markdown."""
    header = ["variant", "R@10 to choose by", "nDCG@10 to choose by", "R@10 to report", "nDCG@10 to report"]
    rows = [
        [name, *(f"{halves[half][measure]:.1f}" for half in (CHOOSE, REPORT) for measure in ("R@10", "nDCG@10"))]
        for name, halves in found.items()
    ]
    return markdown(header, rows)
