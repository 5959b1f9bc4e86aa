"""`recall`: what was written, by words and by meaning, the best first; see `agentmem.recall.ranking` for the order.

Candidates come from both sides, each narrowed while it is searched, and each candidate gets both scores: what only one
side found is never dropped for that. What stands beside the best is looked at too. Then come what supersedes them, the
limit below which nothing is relevant, and repeats, shown once.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentmem import limits, text
from agentmem.recall import chains, filters, passages, ranking, repeats, words
from agentmem.recall.filters import Match, Narrowed
from agentmem.recall.meaning import Asked, Meaning, State
from agentmem.recall.vectors import Near
from agentmem.records import validate
from agentmem.records.base import View
from agentmem.types import Brief

__all__ = ["Recalled", "RecalledHit", "Why", "recall"]

_CANDIDATES: Final = 48  # of each side, or three times what is asked for
_WIDENED: Final = 24  # of the best, at least: a smaller answer is the beginning of a larger one
_LONG_CHARS: Final = 600  # of a window, from which on its nearest part is looked for
_PART_CHARS: Final = 200
_PLACED: Final = 3  # hits for which it is, so that no answer waits long
_FAR: Final = 32  # events between two neighbours at most
_FOLDED: Final = 2  # times the limit, of which repeats are sought
_ROUNDS: Final = 3  # each of four times as many, while repeats take the places
_BESIDE_LEAST: Final = 1.5  # times the score by itself, from which the neighbour is named
_DAY: Final = 86_400_000_000


@frozen
class Why:
    """What speaks for a hit.

    Attributes:
        words: How much of the query it holds: 1 for all of it once, more in its title; 0 for none.
        meaning: Its cosine with the query; None where meaning did not take part.
        matched: The words of the query that it holds, themselves or in another form, in their order.
        beside: The record before or after it that speaks for it more than itself; None for none.
        supersedes: The hit that it supersedes, by which it was found; None where it was found by itself.
        in_task: Whether it was lifted because it belongs to the task.
    """

    words: float
    meaning: float | None
    matched: tuple[str, ...] = ()
    beside: int | None = None
    supersedes: int | None = None
    in_task: bool = False


@frozen
class RecalledHit:
    """One record that was recalled.

    Attributes:
        score: More is better; comparable within one answer only.
        record: The record.
        snippet: The place of its text that answers, as it was written, not escaped. Empty where the title is all.
        why: What speaks for it.
        superseded_by: What superseded it in the end; None where it is in force.
        contradicted_by: The records that contradict it.
        repeats: Records that say the same, which are not shown.
        project: The id of its project.
    """

    score: float
    record: Brief
    snippet: str
    why: Why
    superseded_by: int | None = None
    contradicted_by: tuple[int, ...] = ()
    repeats: tuple[int, ...] = ()
    project: int = 0

    @property
    def id(self) -> int:
        """The id of the record."""
        return self.record.id


@frozen
class Recalled:
    """What was found.

    Attributes:
        query: What was asked.
        hits: The best first; empty where nothing is relevant.
        more: How many further records of those looked at are relevant.
        meaning: Whether meaning took part.
        because: A sentence for where it did not, or did in part.
        pending: How many records wait to be embedded, counted up to 1,001; by words these are found already.
    """

    query: str
    hits: tuple[RecalledHit, ...]
    more: int
    meaning: State
    because: str
    pending: int


@frozen
class _Seen:
    """A candidate with both of its scores."""

    words: words.Held
    near: Near | None

    @property
    def cosine(self) -> float:
        return 0.0 if self.near is None else self.near.cosine

    @property
    def base(self) -> float:
        return ranking.base(self.words.score, self.cosine)

    @property
    def relevant(self) -> bool:
        return ranking.relevant(self.words.score, None if self.near is None else self.near.cosine)


def recall(view: View, meaning: Meaning, query: str, to: Narrowed, *, task: int | None, limit: int) -> Recalled:
    """The answer of `store.recall`, without its text."""
    parsed = text.query(validate.text(query, "query", 4 * limits.QUERY_CHARS))
    asked = meaning.ask(view, query)
    to = filters.known(view, to)
    search = _Search(view, meaning, asked, words.Weighted(view, parsed.units, to.project), to)
    most, part = max(_CANDIDATES, 3 * limit), max(_FOLDED * limit, 16)
    for _ in range(_ROUNDS):
        cut = search.begin(parsed.significant(), most)
        search.widen(max(2 * limit, _WIDENED))
        scored = search.scored()
        ranked = _ordered(view, search, scored[:part], task)
        folded = repeats.fold(ranked, _text_of, _kind_of)
        # Repeats by the dozen must not stand in the way of what says something else.
        if len(folded) >= min(limit, len(ranked)) or not (cut or part < len(scored)):
            break
        most, part = 4 * most, 4 * part
    shown = folded[:limit]
    texts = {record: rest for record, _, rest in passages.texts(view.connection, [one.match.id for one, _ in shown])}
    places = _places(meaning, asked, [one for one, _ in shown], texts)
    hits = tuple(
        _hit(
            one,
            tuple(other.match.id for other in others),
            parsed,
            places.get(one.match.id) or texts.get(one.match.id, ""),
        )
        for one, others in shown
    )
    told = {record for hit in hits for record in (hit.id, *hit.repeats)}
    more = len(({one.record for one in scored} | {one.match.id for one in ranked}) - told)
    return Recalled(query, hits, more, asked.state, _because(asked), asked.pending)


class _Search:
    """The candidates of one search."""

    def __init__(self, view: View, meaning: Meaning, asked: Asked, by_words: words.Weighted, to: Narrowed) -> None:
        self.view = view
        self.meaning = meaning
        self.asked = asked
        self.by_words = by_words
        self.to = to
        self.seen: dict[int, _Seen] = {}
        self.beside: dict[int, tuple[int | None, int | None]] = {}

    def begin(self, units: Sequence[text.Unit], most: int) -> bool:
        """The candidates of both sides. Whether there may be more than these."""
        worded = words.candidates(self.view, units, self.to, most)
        near = self.meaning.nearest(self.view, self.asked, self.to, most, ranking.MEANING_SOUGHT)
        self._add([*worded, *near], near)
        return max(len(worded), len(near)) >= most

    def add(self, records: Iterable[int]) -> None:
        """These records too, as far as they pass."""
        new = [record for record in dict.fromkeys(records) if record not in self.seen]
        if new:
            self._add(filters.passing_ids(self.view, new, self.to), {})

    def _add(self, records: Iterable[int], known: Mapping[int, Near]) -> None:
        wanted = list(dict.fromkeys(records))
        held = self.by_words.scores(self.view, wanted)
        nears = dict(known) | self.meaning.cosines(self.view, self.asked, [one for one in wanted if one not in known])
        for record in wanted:
            if record in held or record in nears:
                self.seen[record] = _Seen(held.get(record, words.NOTHING), nears.get(record))

    def widen(self, most: int) -> None:
        """What stands beside the best."""
        best = sorted(self.seen, key=lambda record: (-self.seen[record].base, -record))[:most]
        found = _beside(self.view, best)
        self.add(record for pair in found.values() for record in pair if record is not None)
        for record, (before, after) in found.items():
            self._place(record, before, after)
            if before is not None:
                self._place(before, None, record)
            if after is not None:
                self._place(after, record, None)

    def _place(self, record: int, before: int | None, after: int | None) -> None:
        known = self.beside.get(record, (None, None))
        self.beside[record] = before or known[0], after or known[1]

    def scored(self) -> list[_Scored]:
        """The relevant candidates, the best first."""
        scored = [one for one in map(self._scored, self.seen) if one is not None]
        least = ranking.BESIDE_BEST * max((one.score for one in scored), default=0.0)
        return sorted([one for one in scored if one.score >= least], key=lambda one: (-one.score, -one.record))

    def _scored(self, record: int) -> _Scored | None:
        """A candidate with its score; None for what is not relevant, neither by itself nor in company."""
        one = self.seen[record]
        pair = [self.seen.get(other or 0) for other in self.beside.get(record, ())]
        if not any(pair) or not ranking.touched(one.words.score, one.cosine):
            return _Scored(record, one.base, None) if one.relevant else None
        before, after = pair
        held = self.by_words.together(one.words, *(other.words if other else words.NOTHING for other in pair))
        near = ranking.together(one.cosine, before.cosine if before else 0.0, after.cosine if after else 0.0)
        known = None if one.near is None else one.near.cosine
        if not one.relevant and not ranking.relevant(held.score, known):
            return None
        score = ranking.base(held.score, near)
        return _Scored(record, score, self._better(record, pair) if score > _BESIDE_LEAST * one.base else None)

    def _better(self, record: int, pair: Sequence[_Seen | None]) -> int | None:
        """The neighbour with the higher score by itself."""
        bases = [0.0 if other is None else other.base for other in pair]
        return self.beside[record][bases.index(max(bases))]


@frozen
class _Scored:
    """A relevant candidate. `beside` is the neighbour that speaks for it more than it does itself."""

    record: int
    score: float
    beside: int | None


_BESIDE_SQL: Final = """
SELECT note.id,
       (SELECT max(other.id) FROM note AS other
        WHERE other.id < note.id AND other.id >= note.id - ?2 AND +other.parent = note.parent),
       (SELECT min(other.id) FROM note AS other
        WHERE other.id > note.id AND other.id <= note.id + ?2 AND +other.parent = note.parent)
FROM note WHERE note.id IN (SELECT value FROM json_each(?1)) AND note.parent IS NOT NULL
UNION ALL
SELECT message.id,
       (SELECT max(other.id) FROM message AS other
        WHERE other.id < message.id AND other.id >= message.id - ?2 AND other.session = message.session
          AND other.text IS NOT NULL),
       (SELECT min(other.id) FROM message AS other
        WHERE other.id > message.id AND other.id <= message.id + ?2 AND other.session = message.session
          AND other.text IS NOT NULL)
FROM message WHERE message.id IN (SELECT value FROM json_each(?1))
"""


def _beside(view: View, notes: Sequence[int]) -> dict[int, tuple[int | None, int | None]]:
    """What was written just before and just after each note beneath the same parent, each event in the same session."""
    return {row[0]: (row[1], row[2]) for row in view.rows(_BESIDE_SQL, (filters.named(notes), _FAR))}


@frozen
class _Ranked:
    """A candidate with its record and its place."""

    match: Match
    seen: _Seen
    score: float
    beside: int | None = None
    superseded_by: int | None = None
    supersedes: int | None = None
    contradicted_by: tuple[int, ...] = ()
    in_task: bool = False


def _ordered(view: View, search: _Search, scored: Sequence[_Scored], task: int | None) -> list[_Ranked]:
    """The best candidates in their order, what was superseded below its successor."""
    places = {one.record: one for one in scored}
    later = chains.successors(view, places)
    search.add(later.values())
    for end in later.values():
        if end in search.seen and end not in places:
            places[end] = _Scored(end, 0.0, None)
    against = chains.contradicted(view, places)
    matches = {match.id: match for match in filters.passing(view, list(places), search.to)}
    mine = _beneath(view, matches, task)
    ranked: dict[int, _Ranked] = {}
    for record, match in matches.items():
        found = _Ranked(
            match, search.seen[record], places[record].score, places[record].beside,
            contradicted_by=against.get(record, ()), in_task=record in mine,
        )  # fmt: skip
        ranked[record] = evolve(found, score=_weighed(view, found))
    for record, end in later.items():
        if record not in ranked:
            continue
        old = ranked[record]
        if end in ranked and ranked[end].score < old.score:
            ranked[end] = evolve(ranked[end], score=old.score, supersedes=record)
        ranked[record] = evolve(old, score=old.score * ranking.OVERRULED, superseded_by=end)
    return sorted(ranked.values(), key=lambda one: (-one.score, -one.match.changed, one.match.id))


def _weighed(view: View, found: _Ranked) -> float:
    match, score = found.match, found.score
    if match.status == "dropped":
        score *= ranking.OVERRULED
    if found.in_task:
        score *= ranking.TASK
    return ranking.tied(score, age_days=(view.now - match.changed) / _DAY, confidence=match.confidence)


_WITHIN: Final = """
WITH RECURSIVE above (start, id, level) AS (
    SELECT note.id, note.id, 0 FROM note WHERE note.id IN (SELECT value FROM json_each(?1))
    UNION ALL
    SELECT above.start, note.parent, level + 1 FROM above JOIN note ON note.id = above.id
    WHERE note.parent IS NOT NULL AND level < ?3
)
SELECT DISTINCT start FROM above WHERE id = ?2
"""


def _beneath(view: View, matches: Mapping[int, Match], task: int | None) -> set[int]:
    """Which of these records belong to a task: notes beneath it, what belongs to these, entities that they are about."""
    if task is None:
        return set()
    notes = {record: record if match.type == "note" else match.above for record, match in matches.items()}
    asked = filters.named({note for note in notes.values() if note is not None})
    within = {start for (start,) in view.rows(_WITHIN, (asked, task, limits.TREE_LEVELS))}
    found = {record for record, note in notes.items() if note in within}
    entities = [record for record, match in matches.items() if match.type == "entity"]
    rows: Iterable[tuple[Any, ...]] = view.rows(
        "SELECT DISTINCT entity FROM note WHERE entity IN (SELECT value FROM json_each(?)) AND root = "
        "(SELECT root FROM note WHERE id = ?)",
        (filters.named(entities), task),
    )
    return found | {entity for (entity,) in rows}


def _hit(one: _Ranked, others: tuple[int, ...], query: text.Query, body: str) -> RecalledHit:
    match, held, near = one.match, one.seen.words, one.seen.near
    why = Why(
        round(held.score, 3),
        None if near is None else round(near.cosine, 3),
        tuple(unit.text for unit, whole in zip(query.units, held.whole, strict=False) if whole and not unit.stop),
        one.beside,
        one.supersedes,
        one.in_task,
    )
    brief = Brief(match.id, match.type, match.kind, match.status, match.title, match.origin)
    return RecalledHit(
        round(one.score, 6), brief, text.snippet(body, query), why, one.superseded_by, one.contradicted_by, others,
        match.project,
    )  # fmt: skip


def _places(meaning: Meaning, asked: Asked, shown: Sequence[_Ranked], texts: Mapping[int, str]) -> dict[int, str]:
    """Of the hits that hold no word of the query the windows that are nearest to it; of long ones the nearest part."""
    windows = {
        one.match.id: texts[one.match.id][one.seen.near.begin : one.seen.near.finish]
        for one in shown
        if one.seen.near is not None and not one.seen.words.score and one.match.id in texts
    }
    parts = {
        record: passages.parts(window, _PART_CHARS)
        for record, window in [pair for pair in windows.items() if len(pair[1]) > _LONG_CHARS][:_PLACED]
    }
    pieces = [windows[record][begin:finish] for record, spans in parts.items() for begin, finish in spans]
    cosines = iter(meaning.likeness(asked, pieces))
    for record, spans in parts.items():
        best = max(zip(itertools.islice(cosines, len(spans)), spans, strict=False), default=(0.0, (0, 0)))
        windows[record] = windows[record][best[1][0] :]
    return windows


def _because(asked: Asked) -> str:
    if asked.state != "used":
        return asked.why
    if not asked.whole:
        number = str(asked.pending) if asked.pending <= limits.COUNT_EXACT else f"{limits.COUNT_EXACT}+"
        return f"{number} records wait to be embedded, by words they are found; wait_for_index() embeds them"
    return ""


def _text_of(one: _Ranked) -> str:
    match = one.match
    return f"{match.title}\n{match.body}" if match.type == "note" else ""


def _kind_of(one: _Ranked) -> Hashable:
    """What must be equal in repeats beside the text. Nothing but notes is ever one; tasks only beneath the same parent."""
    match = one.match
    if match.type != "note":
        return match.id
    above = match.above if match.kind in ("goal", "step", "attempt", "question") else None
    return match.kind, match.status, match.project, match.entity, match.origin, one.superseded_by, above
