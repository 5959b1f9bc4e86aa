"""Notes like one that is being written: named in the answer, never merged."""

from __future__ import annotations

from itertools import combinations
from typing import Final

from agentmem import text
from agentmem.errors import InvalidInput
from agentmem.records.base import Unit
from agentmem.types import Brief

SIMILAR: Final = 3  # named at most
_NEAR: Final = 0.6  # likeness of two titles from which they are named
_CANDIDATES: Final = 20
_LONGEST: Final = 4  # words of a title of which a near one has at least two

_FIND: Final = """
SELECT note.id, note.kind, note.status, note.title, note.origin
FROM search JOIN note ON note.id = search.rowid
WHERE search MATCH ? AND note.project = ? AND note.title IS NOT NULL
LIMIT ?
"""


def similar(unit: Unit, project: int, title: str) -> tuple[Brief, ...]:
    """At most `SIMILAR` notes of the project with much the same title, the likest first."""
    found: dict[int, tuple[float, Brief]] = {}
    for match in _matches(title):
        for row in unit.rows(_FIND, (f"title : ({match})", project, _CANDIDATES)):
            near = text.likeness(title, row[3])
            if near >= _NEAR:
                found[row[0]] = (near, Brief(row[0], "note", row[1], row[2], row[3], row[4]))
        if len(found) >= SIMILAR:
            break
    ranked = sorted(found.values(), key=lambda pair: (-pair[0], pair[1].id))
    return tuple(brief for _, brief in ranked[:SIMILAR])


def words_of(title: str) -> tuple[text.Unit, ...]:
    """What a title can be found by; nothing for one of punctuation only."""
    try:
        return text.query(title).significant()
    except InvalidInput:
        return ()


def _matches(title: str) -> list[str]:
    """The searches to make, from strict to loose: all its words, then any two of the longest."""
    units = words_of(title)
    if not units:
        return []
    strict = " AND ".join(unit.exact() for unit in units)
    if len(units) < 3:
        return [strict]
    longest = sorted(units, key=lambda unit: -len(unit.text))[:_LONGEST]
    pairs = [f"({one.exact()} AND {other.exact()})" for one, other in combinations(longest, 2)]
    return [strict, " OR ".join(pairs)]
