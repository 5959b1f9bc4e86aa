"""How often is too often: a bucket that fills with time."""

from __future__ import annotations

import math
from collections.abc import Callable

__all__ = ["Bucket"]


class Bucket:
    """A bucket of tokens, of which each request takes one.

    Args:
        rate: Tokens that come in a second.
        burst: How many it holds; it begins full.
        clock: Seconds that never go back.
    """

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._held = float(burst)
        self._at = clock()

    def take(self) -> int:
        """Take a token. 0 where there was one, else the seconds after which there is one again."""
        now = self._clock()
        self._held = min(self._burst, self._held + (now - self._at) * self._rate)
        self._at = now
        if self._held >= 1:
            self._held -= 1
            return 0
        return max(1, math.ceil((1 - self._held) / self._rate))
