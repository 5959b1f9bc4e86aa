"""The simple methods: scores of each record for each question, [questions, records]; 0 or less is no hit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import apsw
import numpy as np

from agentmem.text import STOP_WORDS
from benchmarks.retrieval.vectors import Matrix

RANKED = 100
"""A ranking is so long at most. The measures look at its first 20, a budget of tokens at all of it."""

_HAN = re.compile(r"[㐀-鿿豈-﫿]+")


def words_of(text: str, *, without: frozenset[str] | None = None) -> list[str]:
    """The words of a query, those of `without` left out unless there are no others."""
    found = re.findall(r"\w+", text.lower())
    return [word for word in found if word not in (without or ())] or found


def bigrams(text: str) -> str:
    """Runs of Han characters as their pairs: FTS5 has no tokenizer that parts Chinese words."""
    return _HAN.sub(lambda run: f" {' '.join(_pairs(run[0]))} ", text)


def _pairs(run: str) -> Iterable[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)] or [run]


def bm25(
    queries: Sequence[str],
    texts: Sequence[str],
    *,
    stop: bool = True,
    beside: Sequence[str] | None = None,
    weight: float = 0.0,
    pairs: bool = False,
) -> Matrix:
    """FTS5 with its porter tokenizer, any of the query's words.

    Args:
        queries: What is asked.
        texts: The records.
        stop: Leave the stop words in the query.
        beside: A text that stands beside each record, a second column.
        weight: Of that column; the record's own text weighs 1.
        pairs: Part Chinese in pairs of characters, in texts and queries.
    """
    prepared = bigrams if pairs else str
    without = None if stop else frozenset(STOP_WORDS)
    scores = np.zeros((len(queries), len(texts)), np.float32)
    connection = apsw.Connection(":memory:")
    try:
        connection.execute("CREATE VIRTUAL TABLE found USING fts5(text, beside, tokenize='porter unicode61')")
        rows = zip(
            range(1, len(texts) + 1), map(prepared, texts), map(prepared, beside or [""] * len(texts)), strict=True
        )
        connection.executemany("INSERT INTO found(rowid, text, beside) VALUES (?, ?, ?)", rows)
        for row, query in enumerate(queries):
            named = [f'"{word}"' for word in words_of(prepared(query), without=without)]
            if not named:
                continue
            match = " OR ".join(named) if beside else f"text : ({' OR '.join(named)})"
            sql = "SELECT rowid - 1, -bm25(found, 1.0, ?) FROM found WHERE found MATCH ?"
            for place, score in connection.execute(sql, (weight, match)):
                scores[row, place] = max(score, 1e-9)
    finally:
        connection.close()
    return scores


def ranking(scores: Matrix, count: int = RANKED) -> list[list[int]]:
    """The places of the records, best first, those of a score of 0 left out; equal ones in the order of the records."""
    order = np.argsort(-scores, axis=1, kind="stable")[:, :count]
    return [[int(place) for place in row if scores[number, place] > 0] for number, row in enumerate(order)]


def of_ranks(parts: Iterable[Matrix], k: float, depth: int = RANKED) -> Matrix:
    """Reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009): the sum of 1 / (k + rank) over the parts.

    Args:
        parts: Scores; each gives ranks from 1 on.
        k: The constant.
        depth: So many of each part take part.
    """
    fused: Matrix = np.sum([_reciprocal(scores, k, depth) for scores in parts], axis=0, dtype=np.float32)
    return fused


def _reciprocal(scores: Matrix, k: float, depth: int) -> Matrix:
    fused = np.zeros_like(scores)
    for row, places in enumerate(ranking(scores, depth)):
        fused[row, places] = 1 / (k + np.arange(1, len(places) + 1))
    return fused


def of_scores(words: Matrix, meaning: Matrix, share: float = 0.6) -> Matrix:
    """`share` × bm25 over the best of its query + (1 − share) × cosine."""
    best = words.max(axis=1, keepdims=True)
    normal: Matrix = np.divide(words, best, out=np.zeros_like(words), where=best > 0)
    return share * normal + (1 - share) * meaning
