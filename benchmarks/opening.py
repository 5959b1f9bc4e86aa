"""Opening a large file with a raw key."""

from __future__ import annotations

from benchmarks.corpus import corpus, opened
from benchmarks.measure import Figure, Times
from benchmarks.run import Setting


def figures(setting: Setting) -> list[Figure]:
    """Open to usable, the file in the cache of the system; and open with the first answer."""
    found = []
    for shape in ("lifelike", "untouched"):
        path = corpus(setting.directory, shape, setting.notes, setting.goals)
        opens, answers = Times(), Times()
        for _ in range(setting.rounds(40)):
            stores = []
            opens.time(lambda: stores.append(opened(path)))  # noqa: B023
            answers.time(stores[0].resume)
            stores[0].close()
        found.append(
            Figure("open", f"{setting.notes} notes, {shape}, raw key", opens.median, "ms", 10, more=opens.spread)
        )
        found.append(Figure("open", f"then the first resume(), {shape}", answers.median, "ms", more=answers.spread))
    return found
