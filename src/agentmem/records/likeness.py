"""Notes like one that is being written: named in the answer, never merged.

A title that differs from another by one word holds one of its two rarest words. So the titles with either are compared,
as long as these are few, and the cost hardly grows with the store. Where even the rarest words of a title stand in many
titles, those with two of its words are; among titles of nothing but common words, only the latest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final
from weakref import WeakKeyDictionary

from agentmem import text
from agentmem.engine.database import Database
from agentmem.errors import InvalidInput
from agentmem.records import cleaning, rarity, subjects
from agentmem.records.base import Unit
from agentmem.types import Brief

SIMILAR: Final = 3  # named at most
_NEAR: Final = 0.6  # likeness of two titles from which they are named
_FEW: Final = 20  # titles compared at most
_LARGE: Final = 5000  # records from which on it pays to count words before titles are read
_LATEST: Final = 2000  # records looked at for a title of common words
# A title is read in full only if it shares this part of the index tokens: of these a word has one or two.
_PERHAPS: Final = 0.4

_FIND: Final = f"SELECT rowid, ' ' || title || ' ' FROM search WHERE search MATCH ? LIMIT {_FEW + 1}"
_FIND_LATEST: Final = f"""
SELECT rowid, ' ' || title || ' ' FROM search WHERE search MATCH ? AND rowid > ? ORDER BY rowid DESC LIMIT {_FEW + 1}
"""
_BRIEF: Final = """
SELECT id, kind, status, title, origin FROM note WHERE id = ? AND project = ? AND title IS NOT NULL
"""


def similar(unit: Unit, project: int, title: str) -> tuple[Brief, ...]:
    """At most `SIMILAR` notes of the project with much the same title, the likest first."""
    mine = set(text.analyse(title).split())
    found: list[tuple[float, Brief]] = []
    brief = f"{_BRIEF} {subjects.of_notes(unit)}"
    for record, tokens in _candidates(unit, title):
        theirs = tokens.split()
        if 2 * len(mine.intersection(theirs)) < _PERHAPS * (len(mine) + len(theirs)):
            continue
        row = unit.row(brief, (record, project))
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


_UNMET: Final = _FEW + 1
_MANY: Final = 10**9
_WORDS: Final = 50_000
# For each open file: in how many titles a word stands, as far as this process knows; `_MANY` for more than `_FEW`.
# A guess that says which words to begin with: an answer is as true without it.
_seen: Final[WeakKeyDictionary[Database, dict[str, int]]] = WeakKeyDictionary()


def _candidates(unit: Unit, title: str) -> Iterable[tuple[int, str]]:
    """Records whose titles may be like this one: id and index tokens of the title."""
    seen = _seen.setdefault(unit.binding.ledger.database, {})
    if len(seen) >= _WORDS:
        seen.clear()
    tokens = tokens_of(title)
    if unit.tx.seq > _LARGE:
        return _with_two_words(unit, tokens)
    # Those known to be there, the rarest first; those not met yet; the frequent ones.
    ordered = sorted(tokens, key=lambda one: seen.get(one, _UNMET))
    found: dict[int, str] = {}  # one record may come twice
    there = 0
    for start in (0, 2):
        two = ordered[start : start + 2]
        if not two or there == 2:
            break
        rows = unit.rows(_FIND, (_titled(_any(two)),)) if seen.get(two[-1], 0) < _MANY else None
        if rows is None or len(rows) > _FEW:
            seen.update((one, _MANY) for one in two if rows and 2 * _number(rows, one) > _FEW)
            found.update(_with_two_words(unit, tokens))
            break
        found.update(rows)
        numbers = [_number(rows, one) for one in two]
        seen.update(zip(two, (max(number, 1) for number in numbers), strict=True))
        # A word that stands nowhere is the one by which the titles differ: two more are needed.
        there += sum(number > 0 for number in numbers)
    for one in tokens:
        seen.setdefault(one, 1)  # this very title will be there
    return found.items()


def tokens_of(title: str) -> list[str]:
    """One index token for each significant word of a title: the stem of a word, the whole of a compound, each bigram."""
    telling: dict[str, None] = {}
    others: dict[str, None] = {}
    for chunk in title.split():
        tokens = text.analyse(chunk).split()
        if not tokens:
            continue
        if len(tokens) > 2:
            telling.update(dict.fromkeys(tokens[:1] if chunk.isascii() else tokens[:-1]))
        elif tokens[0] in text.STOP_WORDS:
            others[tokens[-1]] = None
        else:
            telling[tokens[-1]] = None
    return list(telling or others)


def _number(rows: Sequence[tuple[Any, ...]], token: str) -> int:
    """In how many of these titles a token stands; each has a space before it and after."""
    padded = f" {token} "
    return sum([padded in row[1] for row in rows])


def _titled(wanted: str) -> str:
    return f"title : ({wanted})"


def _any(tokens: Iterable[str]) -> str:
    return " OR ".join(f'"{one}"' for one in tokens)


def _with_two_words(unit: Unit, tokens: Sequence[str]) -> list[tuple[Any, ...]]:
    """The latest titles with two of the rarer words; where all are common, of the latest records only."""
    counted = rarity.counts(unit, tokens)
    rare = rarity.rarest_first(counted)[:4]
    if len(rare) >= 2 and counted[rare[0]] + counted[rare[1]] <= 4 * _FEW:
        return unit.rows(_FIND_LATEST, (_titled(_any(rare[:2])), 0))
    # Long words tell more; nothing is known of how common they are.
    common = sorted((one for one, number in counted.items() if number >= rarity.COMMON), key=len, reverse=True)[:4]
    wanted = _of_these([f'"{one}"' for one in rare], [f'"{one}"' for one in common])
    if wanted is None:
        return []
    return unit.rows(_FIND_LATEST, (_titled(wanted), 0 if rare else max(unit.tx.seq - _LATEST, 0)))


def _of_these(rare: list[str], common: list[str]) -> str | None:
    """The expression that a title with one word less, or another, still matches. FTS5 pays for each word it names."""
    match rare, common:
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


@cleaning.dropped_by
def forget_words(database: Database) -> None:
    """Empties the memo of words of this file, for use after a purge."""
    _seen.pop(database, None)
