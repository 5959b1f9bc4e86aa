"""Timing: medians and percentiles of repeated calls, one row of the table for each figure."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Figure:
    """One row of the table.

    `target` is the number to hold, None where there is none; `least` says that it is a lower bound.
    """

    theme: str
    what: str
    value: float
    unit: str
    target: float | None = None
    least: bool = False
    more: dict[str, float] = field(default_factory=dict)

    @property
    def held(self) -> str:
        """Whether the target is met."""
        if self.target is None:
            return ""
        return "yes" if (self.value >= self.target if self.least else self.value <= self.target) else "NO"

    def to_dict(self) -> dict[str, Any]:
        """The row as JSON."""
        return asdict(self) | {"held": self.held}


@dataclass
class Times:
    """Milliseconds of repeated calls.

    `cpu` is what this thread computed: on a busy machine it says more than the time that passed.
    """

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def time(self, call: Callable[[], Any]) -> None:
        """Make one call and note its time."""
        computed, begun = time.thread_time_ns(), time.perf_counter_ns()
        call()
        self.wall.append((time.perf_counter_ns() - begun) / 1e6)
        self.cpu.append((time.thread_time_ns() - computed) / 1e6)

    @property
    def median(self) -> float:
        """Of the time that passed."""
        return statistics.median(self.wall)

    @property
    def cpu_median(self) -> float:
        """Of the time computed."""
        return statistics.median(self.cpu)

    @property
    def spread(self) -> dict[str, float]:
        """What a row says beside its median."""
        ordered = sorted(self.wall)
        p95 = ordered[min(int(len(ordered) * 0.95), len(ordered) - 1)]
        return {"p95": round(p95, 3), "cpu": round(self.cpu_median, 3), "n": len(ordered)}


def series(calls: Iterable[Callable[[], Any]], rounds: int = 1) -> Times:
    """Times of the calls, all of them in turn, several times."""
    wanted, times = list(calls), Times()
    for _ in range(rounds):
        for call in wanted:
            times.time(call)
    return times


def table(figures: Sequence[Figure]) -> str:
    """The figures as text."""
    rows = [("what", "measured", "to reach", "held", "beside it")]
    for one in figures:
        aim = "" if one.target is None else f"{'>=' if one.least else '<='} {one.target:g} {one.unit}"
        beside = ", ".join(f"{name} {value:g}" for name, value in one.more.items())
        rows.append((f"{one.theme}: {one.what}", f"{one.value:.3g} {one.unit}" if one.value < 1000
                     else f"{one.value:.0f} {one.unit}", aim, one.held, beside))  # fmt: skip
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
