"""What shows that work goes on: on stderr, at a terminal, once it lasts."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Final

from agentmem.adapters.cli.output import Output, is_terminal

_SHOWN_AFTER: Final = 0.5  # seconds: what is done sooner needs no bar


class Progress:
    """A bar that appears when the work lasts. Called with what is done and how much there is.

    Args:
        out: Says whether anything is to be shown.
        what: What goes on, as `importing`.
    """

    def __init__(self, out: Output, what: str) -> None:
        self._shown = _watched(out)
        self._what = what
        self._begun = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Note how far it is."""
        if not self._shown or (self._bar is None and time.monotonic() - self._begun < _SHOWN_AFTER):
            return
        if self._bar is None:
            self._bar, self._task = _bar(self._what, total)
        self._bar.update(self._task, completed=done, total=total)


@contextmanager
def working(out: Output, what: str) -> Iterator[None]:
    """Show how long it has been going on, while something lasts that cannot say how far it is."""
    if not _watched(out):
        yield
        return
    clock = _Clock(what)
    clock.start()
    try:
        yield
    finally:
        clock.stop()


class _Clock:
    """A line that moves, begun by a timer."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._lock = threading.Lock()
        self._over = False
        self._bar: Any = None
        self._timer = threading.Timer(_SHOWN_AFTER, self._begin)
        self._timer.daemon = True

    def start(self) -> None:
        self._timer.start()

    def stop(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._over = True
            if self._bar is not None:
                self._bar.stop()

    def _begin(self) -> None:
        with self._lock:
            if not self._over:
                self._bar, _ = _bar(self._what, None)


def _watched(out: Output) -> bool:
    return is_terminal(sys.stderr) and not out.quiet


def _bar(what: str, total: int | None) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    words = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(), words, TimeElapsedColumn()) if total is None else (
        words, BarColumn(), MofNCompleteColumn(),
    )  # fmt: skip
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    bar.start()
    return bar, bar.add_task(what, total=total)
