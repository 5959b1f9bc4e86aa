"""Vectors of texts, computed once a run, or once for many where a folder to keep them in is given."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float32]
Embed = Callable[[Sequence[str]], Matrix]

_PART = 512


class Vectors:
    """Unit vectors by text.

    Args:
        embed: Gives rows of unit length.
        id: Which model it is; what was kept by another is not used.
        directory: Where to keep the vectors from run to run.
    """

    def __init__(self, embed: Embed, id: str, directory: Path | None = None) -> None:
        self._embed = embed
        self._path = (
            None if directory is None else directory / f"vectors-{hashlib.sha256(id.encode()).hexdigest()[:12]}.npz"
        )
        self._known: dict[str, npt.NDArray[np.float32]] = {}
        if self._path is not None and self._path.exists():
            with np.load(self._path) as kept:
                self._known = dict(zip(kept["keys"].tolist(), kept["rows"], strict=True))

    def of(self, texts: Sequence[str]) -> Matrix:
        """The vectors of texts, one a row."""
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32] for text in texts]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._known}
        wanted = list(missing.items())
        for begin in range(0, len(wanted), _PART):
            part = wanted[begin : begin + _PART]
            rows = self._embed([text for _, text in part])
            self._known.update((key, row) for (key, _), row in zip(part, rows, strict=True))
        return np.stack([self._known[key] for key in keys])

    def keep(self) -> None:
        """Write what is known to the folder, if there is one."""
        if self._path is not None and self._known:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(self._path, keys=np.array(list(self._known)), rows=np.stack(list(self._known.values())))
