"""What a search finds by words: candidates out of the full-text index, and how much of a query each of some records holds.

FTS5 gives the candidates in the order of its bm25. Their scores are computed here, from the tokens that the index keeps
of each record: so a record that was found by meaning has one too, and a word so common that it makes no candidates still
counts. How common a word is, is counted within the project that is searched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from operator import mul
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from attrs import frozen

from agentmem import text
from agentmem.engine.database import Database
from agentmem.recall import filters, ranking
from agentmem.recall.filters import Narrowed
from agentmem.recall.find import RANK
from agentmem.records import cleaning, rarity
from agentmem.records.base import View
from agentmem.text import Unit

_TITLE: Final = 3.0  # what one in the title counts
_STEM: Final = 0.95  # another form of the word
_BEGUN: Final = 0.8  # a word that begins like it
_PARTS: Final = 0.8  # all parts of a compound, wherever they stand; of some of them the square of their share
_PIECES: Final = 4000  # candidates filtered in one piece at most
_SCORED: Final = 300  # records that are scored one by one in less time than it takes to find the best of them
_FEW: Final = 10  # with fewer candidates those by common words are looked at as well
_MUCH: Final = 2_000_000  # units times characters, beyond which the tokens of a text are listed first
_LONGEST: Final = 1000  # tokens: a longer text counts as one of so many, else its length would hide what it says


@frozen
class Held:
    """How much of a query a record holds.

    Attributes:
        score: 1 for all of it once in a text of usual length; more where it stands in the title, or again.
        each: How much it holds of each unit, by the place of the unit in the query; 0 for none.
        whole: Whether it holds each unit itself or another form of it, and not only parts of it.
    """

    score: float
    each: tuple[float, ...]
    whole: tuple[bool, ...]


NOTHING: Final = Held(0.0, (), ())


def candidates(view: View, units: Sequence[Unit], to: Narrowed, most: int) -> list[int]:
    """The best records with at least one of the rarer units, or with all of them where all are common.

    Where that gives few, those with any of the common ones too: what is common in the store may be rare in what passes.
    Where only few records may pass at all, these are the candidates.
    """
    if to.only is not None and len(to.only) <= _SCORED:
        return filters.passing_ids(view, sorted(to.only), to)
    rare, common = rarity.split(view, units)
    match = text.any_of(rare) if rare else " AND ".join(unit.exact() for unit in common)
    parts = _parts(view, units)
    match = " OR ".join(filter(None, (f"({match})" if match else "", *(f'"{part}"' for part in parts))))
    if not match:  # each word stands nowhere: perhaps what begins like it does
        begun = [unit for unit in units if unit.begins]
        return _best(view, " OR ".join(unit.prefix() for unit in begun), to, most)
    found = _best(view, match, to, most)
    if common and (len(found) < _FEW if rare and not to.everything else not found):
        found = list(dict.fromkeys([*found, *_best(view, text.any_of(common), to, most)]))[:most]
    return found


def _parts(view: View, units: Sequence[Unit]) -> list[str]:
    """The parts of compounds that stand nowhere as a whole, such as the name in `title:name`, as far as they are not common."""
    tokens = {unit: rarity.token(unit) for unit in units if len(unit.phrases) > 1 and unit.wide}
    counted = rarity.counts(view, [token for token in tokens.values() if token is not None])
    unseen = [unit for unit, token in tokens.items() if token is not None and not counted[token]]
    parts = dict.fromkeys(part for unit in unseen for part in unit.wide if part not in unit.phrases)
    return rarity.rarest_first(rarity.counts(view, parts))


def _best(view: View, match: str, to: Narrowed, most: int) -> list[int]:
    """The records that match and pass, the best first, of equals the latest."""
    if not match:
        return []
    found: list[int] = []
    part = most
    ranked = view.connection.execute(
        f"SELECT rowid FROM search WHERE search MATCH ? ORDER BY {RANK}, rowid DESC", (match,)
    )
    records = (record for (record,) in ranked if to.only is None or record in to.only)
    try:
        while len(found) < most:
            best = list(islice(records, part))
            found += filters.passing_ids(view, best, to, most - len(found))
            if len(best) < part:
                break
            part = min(part * 4, _PIECES)
    finally:
        ranked.close()
    return found


class Weighted:
    """A query's units with what each of them is worth in a project."""

    def __init__(self, view: View, units: Sequence[Unit], project: int | None) -> None:
        self.units = units
        known = _frequencies(view, units, project)
        self._terms = [_terms(unit, seen=number > 0) for unit, number in zip(units, known.holding, strict=True)]
        weighty = any(not unit.stop for unit in units)
        self._worth = [
            # What stands in more than half of all records tells little, but not nothing: else a project whose records
            # are all about one thing would have nothing relevant to it.
            ranking.idf(known.records, min(number, known.records // 2))
            * (ranking.STOP if unit.stop and weighty else 1.0)
            for unit, number in zip(units, known.holding, strict=True)
        ]
        self._all = sum(self._worth)

    def scores(self, view: View, records: Iterable[int]) -> dict[int, Held]:
        """How much of the query each of these records holds."""
        sql = "SELECT id, c0, c1, c2 FROM search_content WHERE id IN (SELECT value FROM json_each(?))"
        return {row[0]: self.held(*row[1:]) for row in view.rows(sql, (filters.named(records),))}

    def held(self, title: str, body: str, extra: str) -> Held:
        """How much of the query a record of these index tokens holds."""
        head, rest = f" {title} ", f" {body} {extra} "
        length = min(head.count(" ") + rest.count(" ") - 3, _LONGEST)
        # Each look for a term that is not there reads all of the text.
        there = {*title.split(), *rest.split()} if len(self._terms) * len(rest) > _MUCH else None

        def counted(term: str) -> float:
            if there is not None and term[-1] == " " and not there.issuperset(term.split()):
                return 0.0
            often = _TITLE * head.count(term) if term in head else 0.0
            if term in rest:
                often += rest.count(term)
            return ranking.saturated(often, length) if often else 0.0

        each, whole = [], []
        for terms in self._terms:
            best = max([worth * counted(term) for term, worth in terms.forms], default=0.0)
            whole.append(best > 0)
            if terms.parts and best < _PARTS:
                share = sum([min(counted(part), 1.0) for part in terms.parts]) / max(len(terms.parts), 2)
                best = max(best, _PARTS * share * share)
            each.append(best)
        return self._sum(each, whole) if any(each) else NOTHING

    def together(self, own: Held, before: Held, after: Held) -> Held:
        """How much of the query a record holds together with the records before and after it."""
        of = [one.each or (0.0,) * len(self.units) for one in (own, before, after)]
        return self._sum(
            [
                max(mine, ranking.HELD_BEFORE * earlier, ranking.HELD_AFTER * later)
                for mine, earlier, later in zip(*of, strict=True)
            ],
            own.whole,
        )

    def _sum(self, each: Sequence[float], whole: Iterable[bool]) -> Held:
        return Held(sum(map(mul, self._worth, each)) / self._all, tuple(each), tuple(whole))


@frozen
class _Terms:
    """What a text holds that holds a unit, as it stands between blanks.

    Attributes:
        forms: The unit itself and other forms of it, and what each counts.
        parts: The parts of a compound.
    """

    forms: list[tuple[str, float]]
    parts: list[str]


def _terms(unit: Unit, *, seen: bool) -> _Terms:
    forms: dict[str, float] = {}
    for place, phrase in enumerate(unit.phrases):
        forms.setdefault(f" {phrase} ", 1.0 if place == 0 else _STEM)
    # Of a script without stems every ending is another word; of a word that stands nowhere perhaps another one is meant.
    if not unit.phrases or not seen or not unit.text.isascii():
        for begun in unit.begins:
            forms.setdefault(f" {begun}", 1.0 if not unit.phrases else _BEGUN)
    return _Terms(list(forms.items()), [f" {part} " for part in unit.wide if part not in unit.phrases])


@frozen
class _Known:
    """How many records there are, and how many of them hold each unit."""

    records: int
    holding: list[int]


_SAMPLE: Final = 500
_GROWN: Final = 1.2  # counts of common words are good until the store has so many times as many events
# By project and token: what was counted, and the seq up to which that is good enough.
_Memo: TypeAlias = dict[tuple[int | None, str], tuple[int, int]]
# That of each open file.
_counted: Final[WeakKeyDictionary[Database, _Memo]] = WeakKeyDictionary()
_MEMO: Final = 50_000
_RECORDS: Final = "\n"  # no token: the number of all records


def _frequencies(view: View, units: Sequence[Unit], project: int | None) -> _Known:
    memo = _counted.setdefault(view.binding.ledger.database, {})
    if len(memo) >= _MEMO:
        memo.clear()
    now = view.seq
    if project is not None and not filters.several_projects(view):
        project = None
    tokens = [rarity.token(unit) for unit in units]
    few = rarity.counts(view, [token for token in tokens if token is not None])
    records = _remembered(memo, (project, _RECORDS), now, partial(_records, view, project))
    holding = []
    for token in tokens:
        if token is None:
            holding.append(records // 10)
        elif few[token] == 0:
            holding.append(0)
        else:
            holding.append(_remembered(memo, (project, token), now, partial(_holding, view, token, project)))
    return _Known(records, holding)


def _remembered(memo: _Memo, key: tuple[int | None, str], now: int, count: Callable[[], int]) -> int:
    found, until = memo.get(key, (0, -1))
    if until < now:
        found = count()
        memo[key] = found, int(now * _GROWN) + 16
    return found


def _records(view: View, project: int | None) -> int:
    if project is None:
        return view.number("SELECT count(*) FROM search_docsize")
    return view.number("SELECT count(*) FROM note WHERE project = ?", (project,)) + view.number(
        "SELECT count(*) FROM entity WHERE project = ?", (project,)
    )


def _holding(view: View, token: str, project: int | None) -> int:
    """In how many records of a project a token stands; by a sample of them where they are many."""
    match = f'"{token}"'
    everywhere = view.number("SELECT count(*) FROM search WHERE search MATCH ?", (match,))
    if project is None or not everywhere:
        return everywhere
    # By a hash, since projects are written one after the other, or in turns.
    sql = "SELECT rowid FROM search WHERE search MATCH ? AND (rowid * 2654435761 >> 16) % ? = 0"
    sample = [record for (record,) in view.rows(sql, (match, -(-everywhere // _SAMPLE)))]
    here = filters.in_project(view, sample, project)
    return round(everywhere * here / max(len(sample), 1))


@cleaning.dropped_by
def forget_words(database: Database) -> None:
    """Empties the memo of words of this file, for use after a purge."""
    _counted.pop(database, None)
