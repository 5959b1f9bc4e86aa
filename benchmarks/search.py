"""`find` by words over 100,000 notes, on a stated mix of rare and common words."""

from __future__ import annotations

from agentmem import Store
from agentmem.recall.find import Found
from benchmarks.corpus import corpus, opened
from benchmarks.measure import Figure, series
from benchmarks.run import Setting
from benchmarks.words import Words

# Name of a kind of query: its words as (first rank, last rank) of the vocabulary, and its part of the mix in percent.
# Rank 0 to 29 stands in a tenth to a fifth of all notes, 300 to 2,000 in a hundredth to a thousandth, 8,000 and above
# in a few dozen.
COMMON, MIDDLE, RARE = (0, 30), (300, 2000), (8000, 30000)
MIX = {
    "1 rare": ([RARE], 10),
    "1 middle": ([MIDDLE], 10),
    "1 common": ([COMMON], 5),
    "2 middle": ([MIDDLE, MIDDLE], 15),
    "common and rare": ([COMMON, RARE], 15),
    "common and middle": ([COMMON, MIDDLE], 10),
    "2 common, 1 rare": ([COMMON, COMMON, RARE], 15),
    "3 common": ([COMMON, COMMON, COMMON], 5),
    "5 of all kinds": ([COMMON, MIDDLE, MIDDLE, RARE, RARE], 10),
    "3 rare": ([RARE, RARE, RARE], 5),
}


def figures(setting: Setting) -> list[Figure]:
    """The median of the mix, and of each kind of query by itself."""
    found: list[Figure] = []
    words = Words(seed=setting.notes * 7 + setting.goals)  # the vocabulary of the corpus
    queries = [
        (name, " ".join(words.of_rank(*rank) for rank in ranks))
        for name, (ranks, part) in MIX.items()
        for _ in range(setting.scaled(part * 2))
    ]
    words.random.shuffle(queries)
    for shape in ("lifelike", "untouched"):
        with opened(corpus(setting.directory, shape, setting.notes, setting.goals)) as store:
            store.find(queries[0][1])
            first = series([lambda query=query: store.find(query) for _, query in queries])
            again = series([lambda query=query: store.find(query) for _, query in queries])
            found.append(Figure("find", f"the mix, {setting.notes} notes, {shape}", again.median, "ms", 10,
                                more=again.spread | {"first time": round(first.median, 2)}))  # fmt: skip
            if shape == "lifelike":
                found += _by_kind(store, queries)
    return found


def _by_kind(store: Store, queries: list[tuple[str, str]]) -> list[Figure]:
    found = []
    for kind in MIX:
        asked = [query for name, query in queries if name == kind]
        times = series([lambda query=query: store.find(query) for query in asked], rounds=2)
        steps = [_step(store.find(query)) for query in asked]
        more = times.spread | {step: steps.count(step) for step in dict.fromkeys(steps)}
        found.append(Figure("find", kind, times.median, "ms", more=more))
    return found


def _step(found: Found) -> str:
    return found.matched
