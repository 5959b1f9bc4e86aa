"""Notes like one that is being written: named in the answer, never merged.

A note is looked for by the rarest words of the title, so that the cost hardly grows with the store: a title that differs
from another by one word holds two of its three rarest, or one of two pairs. Among titles of nothing but common words the
latest records only are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from agentmem import text
from agentmem.errors import InvalidInput
from agentmem.records import rarity
from agentmem.records.base import Unit
from agentmem.types import Brief

SIMILAR: Final = 3  # named at most
_NEAR: Final = 0.6  # likeness of two titles from which they are named
_CANDIDATES: Final = 20  # titles compared
_LATEST: Final = 2000  # records looked at for a title of common words
# A title is read in full only if it shares this part of the index tokens: of these a word has one or two.
_PERHAPS: Final = 0.4

_FIND: Final = f"""
SELECT rowid, title FROM search WHERE search MATCH ? AND rowid > ? ORDER BY rowid DESC LIMIT {_CANDIDATES}
"""
_BRIEF: Final = """
SELECT id, kind, status, title, origin FROM note WHERE id = ? AND project = ? AND title IS NOT NULL
"""


def similar(unit: Unit, project: int, title: str) -> tuple[Brief, ...]:
    """At most `SIMILAR` notes of the project with much the same title, the likest first."""
    search = _search(unit, title)
    if search is None:
        return ()
    mine = set(text.analyse(title).split())
    found: list[tuple[float, Brief]] = []
    for record, tokens in unit.rows(_FIND, search):
        theirs = tokens.split()
        if 2 * len(mine.intersection(theirs)) < _PERHAPS * (len(mine) + len(theirs)):
            continue
        row = unit.row(_BRIEF, (record, project))
        if row is not None:
            near = text.likeness(title, row[3])
            if near >= _NEAR:
                found.append((near, Brief(row[0], "note", row[1], row[2], row[3], row[4])))
    found.sort(key=lambda pair: (-pair[0], pair[1].id))
    return tuple(brief for _, brief in found[:SIMILAR])


def words_of(title: str) -> tuple[text.Unit, ...]:
    """What a title can be found by; nothing for one of punctuation only."""
    try:
        return text.query(title).significant()
    except InvalidInput:
        return ()


def _search(unit: Unit, title: str) -> tuple[str, int] | None:
    """What to look for, and after which record; None where nothing in the index can be like the title."""
    units = words_of(title)
    tokens = [one for one in map(rarity.token, units) if one is not None]
    if not tokens:
        return (f"title : {units[0].exact()}", _recent(unit)) if units else None
    counted = rarity.counts(unit, tokens)
    rare = rarity.rarest_first(counted)
    # Long words tell more; nothing is known of how common they are.
    common = sorted((one for one, number in counted.items() if number >= rarity.COMMON), key=len, reverse=True)
    wanted = _of_these([f'"{one}"' for one in rare[:4]], [f'"{one}"' for one in common[:4]])
    return None if wanted is None else (f"title : ({wanted})", 0 if rare else _recent(unit))


def _of_these(rare: Sequence[str], common: Sequence[str]) -> str | None:
    """The expression that a title with one word less, or another, still matches; FTS5 opens each word anew."""
    match [*rare], [*common]:
        case [one, two, three, four], _:
            return f"({one} AND {two}) OR ({three} AND {four})"
        case [one, two, three], _:
            return f"({one} AND ({two} OR {three})) OR ({two} AND {three})"
        case [one, two], [other, *_]:
            return f"({one} AND {two}) OR (({one} OR {two}) AND {other})"
        case [one], [other, another, *_]:
            return f"{one} AND ({other} OR {another})"
        case [], [one, two, three, four]:
            return f"({one} AND {two}) OR ({three} AND {four})"
        case [], []:
            return None
        case _:
            return " OR ".join([*rare, *common])


def _recent(unit: Unit) -> int:
    return max(unit.tx.seq - _LATEST, 0)
