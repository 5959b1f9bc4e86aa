"""An embedder for tests: a text is the sum of a fixed random vector for each word, words of one sense sharing theirs."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from agentmem import Store
from agentmem.text import STOP_WORDS, stems

SENSES = {
    "auth": "login authentication signin password credentials",
    "car": "car automobile vehicle",
    "fast": "fast quick rapid speedy",
    "crash": "crash outage failure collapse",
    "money": "invoice billing payment",
    "cat": "cat kitten feline",
}
SENSE = {stem: sense for sense, words in SENSES.items() for stem in stems(words)}


class Toy:
    """Deterministic; unrelated texts have a cosine near 0, texts whose words mean the same one near 1."""

    def __init__(self, id: str = "toy", dim: int = 256) -> None:
        self.id = id
        self.dim = dim
        self.seen: list[str] = []

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        self.seen += texts
        return np.stack([self._vector(text) for text in texts])

    def _vector(self, text: str) -> npt.NDArray[np.float32]:
        words = [SENSE.get(stem, stem) for stem in stems(text) if stem not in STOP_WORDS]
        total = sum((self._of(word) for word in words), np.zeros(self.dim)) if words else self._of("")
        return np.asarray(total / np.linalg.norm(total), np.float32)

    def _of(self, word: str) -> npt.NDArray[np.float64]:
        seed = hashlib.blake2b(f"{self.id} {word}".encode(), digest_size=8).digest()
        return np.random.default_rng(int.from_bytes(seed)).standard_normal(self.dim)


class Gated(Toy):
    """One that lets the thread of the background wait until the test opens it; other threads go through."""

    def __init__(self, id: str = "toy", dim: int = 256) -> None:
        super().__init__(id, dim)
        self.open = threading.Event()
        self.waits = threading.Event()

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if threading.current_thread().name == "agentmem-embed":
            self.waits.set()
            assert self.open.wait(60)
        return super().embed(texts)


def ids(answer: Any) -> list[int]:
    """The ids of the hits, the best first."""
    return [hit.id for hit in answer]


def embedded(store: Store) -> Store:
    """The store, once all that waits has its vectors."""
    assert store._shared.meaning.wait(120)
    return store


def vectors(store: Store) -> list[tuple[int, int]]:
    """Record and length in bytes of each vector in the file."""
    with store.database.read() as connection:
        rows: list[tuple[int, int]] = connection.execute(
            "SELECT record, length(code) FROM vector ORDER BY id"
        ).fetchall()
    return rows
