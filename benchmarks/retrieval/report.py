"""From answers to figures, from figures to tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from benchmarks.retrieval.data import CHOOSE, REPORT, Collection, Space
from benchmarks.retrieval.measures import MEASURES, Answered, mean, measured, share
from benchmarks.retrieval.methods import BUDGETS, RECALL, Ranked

Figures = dict[str, dict[str, float]]

_IN_BUDGET = {budget: f"in {budget:,}" for budget in BUDGETS}
_SAMPLES = 2000


def answered(space: Space, method: Ranked, *, sessions: bool) -> list[Answered]:
    """What came of each question of a space; `sessions`: by group as well."""
    found = []
    for number, question in enumerate(space.questions):
        values: dict[str, float] = {}
        if method.places is not None:
            ranked = method.places[number]
            values = measured(ranked, question.relevant)
            if sessions:
                values |= {
                    f"session {name}": value for name, value in _by_group(space, ranked, question.relevant).items()
                }
        for budget, shown in method.shown.items():
            values[_IN_BUDGET[budget]] = share(shown[number], question.relevant)
        found.append(Answered(question.half, question.category, values))
    return found


def _by_group(space: Space, ranked: Sequence[int], relevant: Sequence[int]) -> dict[str, float]:
    """The measures of the groups: each stands where its first record stands among those retrieved."""
    number = {name: place for place, name in enumerate(dict.fromkeys(item.group for item in space.items))}
    groups = [
        list(dict.fromkeys(number[space.items[place].group] for place in places)) for places in (ranked, relevant)
    ]
    return measured(*groups)


def figures(collection: Collection, answers: Sequence[Answered]) -> Figures:
    """Means of one method: of all questions, of each half, of the main categories and theirs, of each category."""
    parts: dict[str, Callable[[Answered], bool]] = {
        "all": lambda one: True,
        CHOOSE: lambda one: one.half == CHOOSE,
        REPORT: lambda one: one.half == REPORT,
    }
    if collection.main:
        parts["main"] = lambda one: one.category in collection.main
        parts[f"main {CHOOSE}"] = lambda one: one.category in collection.main and one.half == CHOOSE
        parts[f"main {REPORT}"] = lambda one: one.category in collection.main and one.half == REPORT
    found = {name: mean(filter(chosen, answers)) for name, chosen in parts.items()}
    for category in sorted({one.category for one in answers}):
        found[f"of {category}"] = mean(one for one in answers if one.category == category)
    return found


def compared(answers: dict[str, list[Answered]], measure: str = "R@10") -> dict[str, Any] | None:
    """agentmem's recall against the best simple method: the difference in points and its 95 % interval.

    The interval is of a paired bootstrap over questions, with a seed. None where there is no recall to compare.
    """
    if RECALL not in answers:
        return None
    rows = {
        name: np.array([one.values[measure] for one in found])
        for name, found in answers.items()
        if all(measure in one.values for one in found)
    }
    own = rows.pop(RECALL)
    best = max((name for name in rows if not name.startswith("agentmem")), key=lambda name: rows[name].mean())
    difference = own - rows[best]
    drawn = np.random.default_rng(4).integers(0, len(own), (_SAMPLES, len(own)))
    low, high = np.quantile(difference[drawn].mean(axis=1), (0.025, 0.975))
    rounded = [round(100 * float(value), 2) for value in (difference.mean(), low, high)]
    return {"measure": measure, "best": best, "difference": rounded[0], "interval": rounded[1:]}


def tables(collection: Collection, found: dict[str, Figures], comparison: dict[str, Any] | None) -> str:
    """One set as Markdown."""
    records = sum(len(space.items) for space in collection.spaces)
    questions = sum(len(space.questions) for space in collection.spaces)
    parts = [f"## {collection.name}: {records:,} records, {questions:,} questions"]
    parts += ["### All questions", _main_table(found, "all", CHOOSE, REPORT)]
    if comparison is not None:
        low, high = comparison["interval"]
        parts.append(
            f"{RECALL} against the best simple method ({comparison['best']}), {comparison['measure']}: "
            f"{comparison['difference']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f})."
        )
    if collection.main:
        named = ", ".join(collection.main)
        parts += [f"### Categories {named}", _main_table(found, "main", f"main {CHOOSE}", f"main {REPORT}")]
    if collection.sessions:
        parts += ["### By session", _table(found, {name: ("all", f"session {name}") for name in MEASURES})]
    categories = [name for name in next(iter(found.values())) if name.startswith("of ")]
    parts += ["### R@10 by category", _table(found, {name.removeprefix("of "): (name, "R@10") for name in categories})]
    return "\n\n".join(parts)


def _main_table(found: dict[str, Figures], whole: str, choose: str, report: str) -> str:
    columns = {name: (whole, name) for name in MEASURES}
    columns |= {"R@10 to choose by": (choose, "R@10"), "R@10 to report": (report, "R@10")}
    columns |= {"nDCG@10 to report": (report, "nDCG@10")}
    columns |= {f"evidence {name}": (whole, name) for name in _IN_BUDGET.values()}
    return _table(found, columns)


def _table(found: dict[str, Figures], columns: dict[str, tuple[str, str]]) -> str:
    rows = []
    for name, part in found.items():
        values = [part[of].get(measure) for of, measure in columns.values()]
        if any(value is not None for value in values):
            rows.append([name, *("" if value is None else f"{value:.1f}" for value in values)])
    return markdown(["method", *columns], rows)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: names to the left, figures to the right."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
