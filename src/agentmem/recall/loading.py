"""Loading a model beside a fork.

A lock of Python's imports that another thread holds at a fork stays held in the child, whose first import of the same
package then waits for ever. So a fork waits for what is being loaded.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["FORK_WAIT_SECONDS", "alone"]

FORK_WAIT_SECONDS: Final = 5.0
"""How long a fork waits: an embedder of others may take for ever."""


class _Loading:
    """The lock of what is being loaded. Python is asked to tell of forks with the first use, not on import."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held = False
        self._watching = False

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Load something, while no fork begins."""
        if not self._watching and hasattr(os, "register_at_fork"):
            self._watching = True
            os.register_at_fork(before=self._before, after_in_parent=self._in_parent, after_in_child=self._in_child)
        with self._lock:
            yield

    def _before(self) -> None:
        self._held = self._lock.acquire(timeout=FORK_WAIT_SECONDS)

    def _in_parent(self) -> None:
        if self._held:
            self._held = False
            self._lock.release()

    def _in_child(self) -> None:
        if not self._held:  # by a thread that is not here
            self._lock = threading.RLock()
        self._in_parent()


alone: Final = _Loading().alone
