"""What each term of agentmem's ranking is worth: the same questions to the same stores, with one term changed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from agentmem.recall import ranking, recall, words
from benchmarks.retrieval.data import CHOOSE, REPORT, Collection
from benchmarks.retrieval.measures import Answered, mean, measured
from benchmarks.retrieval.stores import filled

_Change = tuple[ModuleType, str, Any]

CHANGES: Final[dict[str, tuple[_Change, ...]]] = {
    "as it is": (),
    "without meaning": ((ranking, "_MEANING", 0.0), (ranking, "_BASE_LEAST", 0.0)),
    "meaning weighs half": ((ranking, "_MEANING", 0.5),),
    "meaning weighs twice": ((ranking, "_MEANING", 2.0),),
    "words to the power of 1": ((ranking, "_STEEP", 1.0),),
    "words to the power of 2": ((ranking, "_STEEP", 2.0),),
    "without the record before": ((ranking, "HELD_BEFORE", 0.0), (ranking, "_MEANT_BEFORE", 0.0)),
    "without the record after": ((ranking, "HELD_AFTER", 0.0), (ranking, "_MEANT_AFTER", 0.0)),
    "without the words of either": ((ranking, "HELD_BEFORE", 0.0), (ranking, "HELD_AFTER", 0.0)),
    "without the meaning of either": ((ranking, "_MEANT_BEFORE", 0.0), (ranking, "_MEANT_AFTER", 0.0)),
    "without either": (
        (ranking, "HELD_BEFORE", 0.0),
        (ranking, "HELD_AFTER", 0.0),
        (ranking, "_MEANT_BEFORE", 0.0),
        (ranking, "_MEANT_AFTER", 0.0),
    ),
    "a word in the title counts once": ((words, "_TITLE", 1.0),),
    "length of no account": ((ranking, "_B", 0.0),),
    "length as in BM25": ((ranking, "_B", 0.75),),
    "another form of a word counts as much": ((words, "_STEM", 1.0),),
    "parts of a compound count nothing": ((words, "_PARTS", 0.0),),
    "stop words count nothing": ((ranking, "STOP", 0.0),),
    "what is far below the best too": ((ranking, "BESIDE_BEST", 0.0),),
    "no limit of relevance": (
        (ranking, "_BASE_LEAST", 0.0),
        (ranking, "_WORDS_LEAST", 0.0),
        (ranking, "BESIDE_BEST", 0.0),
    ),
    "twice the candidates": ((recall, "_CANDIDATES", 120),),
}


def ablated(collection: Collection, directory: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Means on each half by name of the change. LoCoMo's are of its main categories."""
    answers: dict[str, list[Answered]] = {name: [] for name in CHANGES}
    for space in collection.spaces:
        asked = [one for one in space.questions if not collection.main or one.category in collection.main]
        with filled(space, directory) as store:
            for name, changes in CHANGES.items():
                with _changed(changes):
                    for one in asked:
                        found = measured(store.recalled(one.text), one.relevant)
                        answers[name].append(Answered(one.half, one.category, found))
    return {
        name: {half: mean(one for one in rows if one.half == half) for half in (CHOOSE, REPORT)}
        for name, rows in answers.items()
    }


@contextmanager
def _changed(changes: tuple[_Change, ...]) -> Iterator[None]:
    """Constants of the ranking at other values, for this process and the time of the block."""
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
