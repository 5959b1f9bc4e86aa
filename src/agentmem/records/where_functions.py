"""The SQL functions that a compiled `where` calls, apart from the compiler: every opening needs them, few a `where`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final


def _fold(text: object) -> str | None:
    """Text without its case, as Unicode folds it; null for anything else."""
    return text.casefold() if isinstance(text, str) else None


SQL_FUNCTIONS: Final[Mapping[str, Callable[[object], str | None]]] = {"am_fold": _fold}
"""What the engine registers, by name: one argument, deterministic, innocuous."""
