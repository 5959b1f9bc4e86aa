"""`resume`, `left` and `review` at 100,000 notes, and the first two against 1,000."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentmem import Store
from benchmarks.corpus import corpus, goals_of, opened, steps_of
from benchmarks.measure import Figure, Times, series
from benchmarks.run import Setting

_TASKS = 25
_REVIEW = "review"  # looks at far more than one task needs


def figures(setting: Setting) -> list[Figure]:
    """Each form of the calls, warmed, over many tasks; the ratio to a hundredth of the notes, by time computed."""
    found = []
    for shape in ("lifelike", "untouched"):
        large = _measured(setting, shape, setting.notes, setting.goals)
        # A hundredth of the notes: in as many goals, and in goals as large.
        few = setting.notes // 100
        small = [_measured(setting, shape, few, goals) for goals in (setting.goals, max(setting.goals // 100, 2))]
        for name, times in large.items():
            if name.startswith(_REVIEW):
                aim = None if "section" in name else 50
                found.append(Figure("answer", f"{name}, {setting.notes} notes, {shape}", times.median, "ms", aim,
                                    more=times.spread))  # fmt: skip
                continue
            ratios = {
                f"× of {few} in {goals} goals": round(times.cpu_median / one[name].cpu_median, 2)
                for goals, one in zip((setting.goals, max(setting.goals // 100, 2)), small, strict=True)
            }
            found.append(Figure("answer", f"{name}, {setting.notes} notes, {shape}", times.median, "ms", 5,
                                more=times.spread | ratios))  # fmt: skip
            best = min(ratios.values())
            found.append(Figure("answer", f"{name}, {shape}, {setting.notes} against {few} notes", best, "×", 2))
    return found


def _measured(setting: Setting, shape: str, notes: int, goals: int) -> dict[str, Times]:
    with opened(corpus(setting.directory, shape, notes, goals)) as store:
        times = {}
        for name, calls in _calls(store).items():
            series(calls[:_TASKS])
            times[name] = series(calls, rounds=setting.rounds(6))
        return times


def _calls(store: Store) -> dict[str, list[Callable[[], Any]]]:
    goals, steps = goals_of(store, _TASKS), steps_of(store, _TASKS)
    return {
        "resume(budget=2000)": [lambda: store.resume(budget=2000)] * 10,
        "resume(goal)": [lambda goal=goal: store.resume(goal, budget=2000) for goal in goals],
        "resume(step)": [lambda step=step: store.resume(step, budget=2000) for step in steps],
        "left()": [store.left] * 10,
        "left(goal)": [lambda goal=goal: store.left(goal) for goal in goals],
        "left(step)": [lambda step=step: store.left(step) for step in steps],
        # Of a store written just now nothing is old; with no time at all everything is.
        "review()": [store.review] * 5,
        "review(older_than=0)": [lambda: store.review(older_than=0)] * 5,
        "review(goal)": [lambda goal=goal: store.review(goal, older_than=0) for goal in goals],
        "review(section='duplicates')": [lambda: store.review(section="duplicates")] * 2,
    }
