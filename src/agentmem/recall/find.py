"""`find`: search by words over everything that has text. All words, else prefixes, else any; the answer says which."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, Literal, TypeAlias

from attrs import frozen

from agentmem import limits, text
from agentmem.errors import InvalidInput, shown
from agentmem.recall import filters
from agentmem.recall.filters import Narrowed
from agentmem.records import rarity, validate
from agentmem.records.base import View
from agentmem.types import Origin, RecordType

# A word in the title counts four times one in the body, one in tags twice.
RANK: Final = "bm25(search, 4.0, 1.0, 2.0)"


@frozen
class Hit:
    """One record that was found.

    `score` is the bm25 of SQLite's FTS5 with its sign turned: more is better, comparable within one answer only.
    `snippet` is a piece of the original text, not escaped.
    """

    id: int
    type: RecordType
    kind: str
    status: str | None
    title: str
    snippet: str
    score: float
    origin: Origin


@frozen
class Found:
    """What a search found, the best first.

    `matched` says how: `all` words, words beginning like `prefix`, `any` of them, or `none`. `after`
    continues the list; None at its end.
    """

    matched: Literal["all", "prefix", "any", "none"]
    hits: tuple[Hit, ...]
    after: str | None

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


def find(view: View, query: str, to: Narrowed, *, limit: int, after: str | None) -> Found:
    """The answer of `store.find`."""
    parsed = text.query(validate.text(query, "query", 4 * limits.QUERY_CHARS))
    validate.page(limit)
    begun, score, last = _cursor(after)
    for step in _STEPS:
        if begun is not None and step != begun:
            continue
        match = _match(view, parsed, step)
        rows = [] if match is None else _rows(view, match, to, limit + 1, score, last)
        if rows or begun is not None:
            more = f"{step}:{rows[limit - 1][1]!r}:{rows[limit - 1][0].id}" if len(rows) > limit else None
            return Found(step, tuple(_hit(*row, parsed) for row in rows[:limit]), more)
    return Found("none", (), None)


_Step: TypeAlias = Literal["all", "prefix", "any"]
_STEPS: Final[tuple[_Step, ...]] = ("all", "prefix", "any")


def _match(view: View, query: text.Query, step: _Step) -> str | None:
    """The FTS5 expression of a step; None where nothing can match it."""
    units = query.significant()
    match step:
        case "all":
            # A word that stands nowhere: no need to go through the others' records.
            tokens = [unit.phrases[-1] for unit in units if unit.phrases and " " not in unit.phrases[-1]]
            return None if len(units) > 1 and 0 in rarity.counts(view, tokens).values() else query.all()
        case "prefix":
            return query.prefix()
        case "any":
            return _any(view, units)


def _any(view: View, units: Sequence[text.Unit]) -> str:
    """Any of the units. Where some are not common, a record needs one of these; the common ones add to its score."""
    rare, common = rarity.split(view, units)
    if not rare or not common:
        return text.any_of(units)
    needed = text.any_of(rare)
    return f"({needed}) OR (({needed}) AND ({text.any_of(common)}))"


# Of the candidates as many as are wanted are looked at first; each further part is so many times larger.
_GROWTH: Final = 4
_PART: Final = 4000


def _rows(
    view: View, match: str, to: Narrowed, limit: int, score: float | None, last: int
) -> list[tuple[filters.Match, float]]:
    """The best records with their scores, which are compared rounded, so that a cursor holds.

    Candidates come in the order of their score and are filtered in that order until there are enough: none is cut
    before it was filtered, and only the best are read.
    """
    beyond, bound = ("", [match]) if score is None else ("WHERE (score, id) > (?, ?)", [match, score, last])
    sql = f"""
    SELECT id, score FROM (SELECT rowid AS id, round({RANK}, 9) AS score FROM search WHERE search MATCH ?) {beyond}
    ORDER BY score, id
    """
    found: list[tuple[filters.Match, float]] = []
    part = limit
    ranked = view.connection.execute(sql, bound)
    try:
        while len(found) < limit:
            best = dict(islice(ranked, part))
            passed = filters.passing(view, list(best), to, limit - len(found))
            found += [(one, best[one.id]) for one in passed]
            if len(best) < part:
                break
            part = min(part * _GROWTH, _PART)
    finally:
        ranked.close()
    return found


def _hit(found: filters.Match, score: float, query: text.Query) -> Hit:
    shown = text.snippet(found.body, query)
    return Hit(found.id, found.type, found.kind, found.status, found.title, shown, -score, found.origin)


def _cursor(after: str | None) -> tuple[str | None, float | None, int]:
    """Step, score and id of the last hit of the page before."""
    if after is None:
        return None, None, 0
    try:
        step, score, last = (after if isinstance(after, str) else "").split(":")
        place = float(score), int(last)
        if step not in ("all", "prefix", "any") or not math.isfinite(place[0]) or not 0 <= place[1] <= limits.INT_MAX:
            raise ValueError(step)
        return step, *place
    except ValueError:
        raise InvalidInput(
            f"{shown(after)} is no cursor of a search", next="Give the `after` of the page before"
        ) from None
