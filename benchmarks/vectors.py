"""Nearest vectors by codes of signs: time, memory and what is found, beside numpy's float32 product with all of them.

The vectors are those of the shipped model, of windows of 8 to 20 words of real text: `../shared/data` where it is there,
and what Python's own library says of itself. Beyond as many as there are, vectors are mixed of two real ones and noise.
"""

from __future__ import annotations

import json
import random
import re
import statistics
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from agentmem.recall.codes import Codes, quantise, rescore
from agentmem.recall.embedder import shipped
from benchmarks.measure import Figure, Times, series
from benchmarks.run import Setting

Floats = npt.NDArray[np.float32]

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
REAL = 60_000  # windows that are embedded, some minutes of work the first time
CANDIDATES = 200  # rows rescored for a query
NEAREST = 10
STRINGS = re.compile(r'"""(.+?)"""', re.DOTALL)


def figures(setting: Setting) -> list[Figure]:
    """Each size by itself."""
    real = _real(setting)
    queries, real = real[: setting.scaled(100)], real[setting.scaled(100) :]
    found: list[Figure] = []
    for rows in (1_000, 10_000) if setting.quick else (10_000, 100_000, 1_000_000):
        found += _size(grown(real, rows), queries)
    return found


def _size(vectors: Floats, queries: Floats) -> list[Figure]:
    """One size, both ways."""
    parts = [quantise(vectors[start : start + 50_000]) for start in range(0, len(vectors), 50_000)]
    kept, scales = (np.concatenate(part) for part in zip(*parts, strict=True))
    codes, building = Codes(vectors.shape[1]), Times()
    ids = np.arange(len(vectors))
    building.time(lambda: codes.add(ids, ids, None, kept))

    def search(query: Floats) -> npt.NDArray[np.int64]:
        near = codes.nearest(query, CANDIDATES).ids
        return near[np.argsort(-rescore(query, kept[near], scales[near]), kind="stable")[:NEAREST]]

    def exact(query: Floats) -> npt.NDArray[np.int64]:
        return np.argpartition(-(vectors @ query), NEAREST)[:NEAREST]

    recall = statistics.mean(len(set(search(one).tolist()) & set(exact(one).tolist())) / NEAREST for one in queries)
    # One way after the other: the threads of BLAS go on spinning for a while and would take the core of what comes next.
    scans = series([lambda query=query: codes.nearest(query, CANDIDATES) for query in queries])
    by_codes = series([lambda query=query: search(query) for query in queries])
    by_hand = series([lambda query=query: exact(query) for query in queries])
    rows, large = f"{len(vectors):,}", len(vectors) >= 1_000_000
    return [
        Figure("vectors", f"nearest {NEAREST} of {rows}, scan and rescoring", by_codes.median, "ms", 25 if large else None,
               more=by_codes.spread | {"scan": round(scans.median, 3), "float32": round(by_hand.median, 3)}),
        Figure("vectors", f"recall@{NEAREST} of {rows}, {CANDIDATES} rescored", recall, "", 0.98, least=True),
        Figure("vectors", f"memory of {rows}", codes.nbytes / 1e6, "MB", 100 if large else None,
               more={"float32": round(vectors.nbytes / 1e6), "ms to add": round(building.median, 1)}),
    ]  # fmt: skip


def grown(real: Floats, rows: int) -> Floats:
    """As many vectors: the real ones, then for each more one that is mixed of two of them and noise.

    The parts are such that the nearest of a query go on growing nearer with the number of vectors as they do among the
    real ones, and that a mixed vector is as near to its source as a paraphrase is, at cosines of 0.5 to 0.9.
    """
    random_numbers = np.random.default_rng(11)
    grown = np.empty((rows, real.shape[1]), np.float32)
    grown[: len(real)] = real[:rows]
    for start in range(len(real), rows, 50_000):
        part = grown[start : start + 50_000]
        share = random_numbers.uniform(0.5, 0.85, (len(part), 1)).astype(np.float32)
        noise = (
            random_numbers.normal(0, 0.6 / real.shape[1] ** 0.5, part.shape)
            * random_numbers.uniform(0, 1, (len(part), 1)) ** 0.5
        )
        first, second = (real[random_numbers.integers(0, len(real), len(part))] for _ in range(2))
        part[:] = share * first + (1 - share) * second + noise
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return grown


def _real(setting: Setting) -> Floats:
    """Vectors of real windows, kept in the directory of the large stores."""
    number = setting.scaled(REAL) if not setting.quick else 2_000
    embedder = shipped()
    cached = setting.directory / f"windows-{number}-{re.sub(r'[^A-Za-z0-9]+', '-', embedder.id)}.npy"
    if not cached.exists():
        windows = list(dict.fromkeys(_windows()))
        random.Random(3).shuffle(windows)
        np.save(cached, embedder.embed(windows[:number]))
    vectors: Floats = np.load(cached)
    return vectors


def _windows() -> Iterator[str]:
    """Windows of 8 to 20 words, one after the other; what is mostly not English is left out, as recall does."""
    lengths = random.Random(7)
    for text in _texts():
        words, at = text.split(), 0
        while at < len(words):
            size = lengths.randint(8, 20)
            window = " ".join(words[at : at + size])[:400]
            at += size
            if len(window) > 25 and sum(letter < "\x80" for letter in window) > 0.8 * len(window):
                yield window


def _texts() -> Iterator[str]:
    """Real texts, always the same ones in the same order."""
    for path in sorted((DATA / "logs").rglob("*")):
        if path.is_file():
            yield path.read_text(encoding="utf-8", errors="replace")
    for path in sorted(DATA.glob("trajectories/*.traj")) + sorted(DATA.glob("locomo/*.json")):
        yield from _strings(json.loads(path.read_text(encoding="utf-8")))
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("**/*.py")):
        if "site-packages" not in path.parts and "test" not in path.parts:
            yield " ".join(STRINGS.findall(path.read_text(encoding="utf-8", errors="replace")))


def _strings(value: Any) -> Iterator[str]:
    """The texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _strings(one)
