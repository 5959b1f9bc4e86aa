"""`find`: search by words over everything that has text. All words, else prefixes, else any; the answer says which."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from attrs import frozen

from agentmem import limits, text
from agentmem.errors import InvalidInput, shown
from agentmem.records import rarity, tree, validate
from agentmem.records.base import View
from agentmem.records.refs import identify
from agentmem.types import NOTE_KINDS, Origin, RecordType, Ref

_TYPES: Final = (*NOTE_KINDS, "entity", "item", "checkpoint", "summary")
# A word in the title counts four times one in the body, one in tags twice.
_RANK: Final = "bm25(search, 4.0, 1.0, 2.0)"


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


def find(
    view: View,
    query: str,
    *,
    kind: str | None,
    status: str | None,
    under: Ref | None,
    about: Ref | None,
    tag: str | None,
    everywhere: bool,
    limit: int,
    after: str | None,
) -> Found:
    """The answer of `store.find`."""
    parsed = text.query(validate.text(query, "query", 4 * limits.QUERY_CHARS))
    validate.page(limit)
    where, values = _filter(view, kind, status, under, about, tag, everywhere)
    begun, score, last = _cursor(after)
    for step in _STEPS:
        if begun is not None and step != begun:
            continue
        match = _match(view, parsed, step)
        rows = [] if match is None else _rows(view, match, where, values, limit + 1, score, last)
        if rows or begun is not None:
            more = f"{step}:{rows[limit - 1][1]!r}:{rows[limit - 1][0]}" if len(rows) > limit else None
            return Found(step, tuple(_hit(row, parsed) for row in rows[:limit]), more)
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


_TABLES: Final = """
LEFT JOIN note ON note.id = best.id
LEFT JOIN entity ON entity.id = best.id
LEFT JOIN item ON item.id = best.id
LEFT JOIN checkpoint ON checkpoint.id = best.id
LEFT JOIN summary ON summary.id = best.id
LEFT JOIN note AS owner ON owner.id = coalesce(item.note, summary.note, checkpoint.task)
"""
# Of the candidates as many as are wanted are looked at first; each further part is so many times larger.
_GROWTH: Final = 4
_PART: Final = 4000


def _rows(
    view: View, match: str, where: str, values: list[Any], limit: int, score: float | None, last: int
) -> list[tuple[Any, ...]]:
    """The best rows: id and score first, then what a hit needs. The score is compared rounded, so that a cursor holds.

    Candidates come in the order of their score and are filtered in that order until there are enough: none is cut
    before it was filtered, and only the best are read.
    """
    beyond, bound = ("", [match]) if score is None else ("WHERE (score, id) > (?, ?)", [match, score, last])
    sql = f"""
    SELECT id, score FROM (SELECT rowid AS id, round({_RANK}, 9) AS score FROM search WHERE search MATCH ?) {beyond}
    ORDER BY score, id
    """
    found: list[tuple[Any, ...]] = []
    part = limit
    ranked = view.connection.execute(sql, bound)
    try:
        while len(found) < limit:
            best = list(islice(ranked, part))
            found += _filtered(view, best, where, values, limit - len(found))
            if len(best) < part:
                break
            part = min(part * _GROWTH, _PART)
    finally:
        ranked.close()
    return found


def _filtered(
    view: View, best: list[tuple[Any, ...]], where: str, values: list[Any], limit: int
) -> list[tuple[Any, ...]]:
    """The first of these candidates that pass, in their order, with what a hit needs."""
    scores = dict(best)
    sql = f"""
    SELECT best.id, note.kind, note.status, note.title,
           concat_ws(char(10), note.body, note.why, note.basis), note.origin,
           entity.type, entity.status, entity.key, entity.attrs, entity.origin,
           item.note || '.' || item.number, item.done, item.text, item.origin,
           checkpoint.task, checkpoint.text, checkpoint.origin,
           summary.note, concat_ws(char(10), summary.result, summary.work), summary.origin, owner.title
    FROM (SELECT value AS id, key AS place FROM json_each(?)) AS best {_TABLES}
    WHERE {where} ORDER BY best.place LIMIT ?
    """
    rows = view.rows(sql, [json.dumps(list(scores)), *values, limit])
    return [(row[0], scores[row[0]], *row[1:]) for row in rows]


def _hit(row: tuple[Any, ...], query: text.Query) -> Hit:
    found, score = row[0], -row[1]
    if row[2] is not None:
        shown = text.snippet(f"{row[4]}\n{row[5]}" if row[5] else row[4] or "", query)
        return Hit(found, "note", row[2], row[3], row[4] or "", shown, score, row[6])
    if row[7] is not None:
        attrs = "" if row[10] == "{}" else row[10]
        return Hit(found, "entity", row[7], row[8], row[9] or "", text.snippet(attrs, query), score, row[11])
    if row[12] is not None:
        status = "done" if row[13] else "open"
        return Hit(
            found, "item", "item", status, f"{row[12]} {row[14]}", text.snippet(row[14] or "", query), score, row[15]
        )
    if row[17] is not None:
        of = f"checkpoint of {row[22]}" if row[22] else "checkpoint"
        return Hit(found, "checkpoint", "checkpoint", None, of, text.snippet(row[17], query), score, row[18])
    of = f"summary of {row[22]}" if row[22] else "summary"
    return Hit(found, "summary", "summary", None, of, text.snippet(row[20] or "", query), score, row[21] or "agent")


def _filter(
    view: View,
    kind: str | None,
    status: str | None,
    under: Ref | None,
    about: Ref | None,
    tag: str | None,
    everywhere: bool,
) -> tuple[str, list[Any]]:
    """The conditions on candidates; they are part of the search, never applied after a cut."""
    conditions: list[str] = ["TRUE"]
    values: list[Any] = []
    if not everywhere:
        conditions.append("coalesce(note.project, entity.project, owner.project, checkpoint.project) = ?")
        values.append(view.project)
    if kind is not None:
        validate.choice(kind, "kind", _TYPES)
        if kind in NOTE_KINDS:
            conditions.append("note.kind = ?")
            values.append(kind)
        else:
            conditions.append(f"{kind}.id IS NOT NULL")
    if status is not None:
        conditions.append(
            "coalesce(note.status, entity.status, CASE item.done WHEN 1 THEN 'done' WHEN 0 THEN 'open' END) = ?"
        )
        values.append(validate.token(status, "status"))
    if under is not None:
        found, of = identify(view, under)
        if of != "note":
            raise InvalidInput(f"#{found} is of type {of}", why="under= takes a note")
        conditions.append(f"coalesce(note.id, owner.id) IN ({tree.BENEATH.replace('?1', '?')} SELECT id FROM beneath)")
        values.append(found)
    if about is not None:
        found, of = identify(view, about)
        if of != "entity":
            raise InvalidInput(f"#{found} is of type {of}", why="about= takes an entity")
        conditions.append("coalesce(note.entity, owner.entity, entity.id) = ?")
        values.append(found)
    if tag is not None:
        conditions.append("EXISTS (SELECT 1 FROM json_each(coalesce(note.tags, owner.tags)) WHERE value = ?)")
        values.append(validate.label(tag, "tag", limits.TAG_CHARS))
    return " AND ".join(conditions), values


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
