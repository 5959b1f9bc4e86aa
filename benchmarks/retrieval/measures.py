"""What a ranking is worth: recall, MRR, nDCG with binary gain; evidence within a budget of tokens."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

RETRIEVED = 20
MEASURES = ("R@5", "R@10", "MRR", "nDCG@10")


def measured(ranked: Sequence[int], relevant: Sequence[int]) -> dict[str, float]:
    """The measures of one ranking, of which the first `RETRIEVED` count."""
    wanted = set(relevant)
    places = [place for place, one in enumerate(ranked[:RETRIEVED], 1) if one in wanted]
    gain = sum(1 / math.log2(place + 1) for place in places if place <= 10)
    ideal = sum(1 / math.log2(place + 1) for place in range(1, min(len(wanted), 10) + 1))
    return {
        "R@5": sum(place <= 5 for place in places) / len(wanted),
        "R@10": sum(place <= 10 for place in places) / len(wanted),
        "MRR": 1 / places[0] if places else 0.0,
        "nDCG@10": gain / ideal,
    }


def share(shown: Iterable[int], relevant: Sequence[int]) -> float:
    """How much of the evidence is among what was shown."""
    return len(set(relevant) & set(shown)) / len(set(relevant))


@dataclass(frozen=True)
class Answered:
    """What came of one question: its measures by name."""

    half: str
    category: str
    values: dict[str, float]


def mean(answers: Iterable[Answered]) -> dict[str, float]:
    """Means over questions, in percent; of the measures that all of them have."""
    rows = [one.values for one in answers]
    if not rows:
        return {}
    named = [name for name in rows[0] if all(name in row for row in rows)]
    return {name: round(100 * statistics.fmean(row[name] for row in rows), 2) for name in named}
