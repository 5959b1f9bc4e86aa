"""What a review takes for likely duplicates. They are proposed, never merged.

The latest few hundred records are compared with each other and, where this section is asked for alone, with all older
ones that share two of their rarest words. Rare is what is rare among the records that are looked at, so no word is
counted in the index. A pair is told only if it has the same kind and place, and nothing that distinguishes the texts
differs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Final

from attrs import frozen

from agentmem import limits, text
from agentmem.context import lines
from agentmem.context.reach import as_json
from agentmem.context.review_parts import Ask, Finding, Key, Pairs, Part, of_status
from agentmem.past.at import PastDatabase
from agentmem.records.likeness import tokens_of

_RECORDS: Final = 200  # looked at in one answer, the latest first
_ENTITIES: Final = 2000  # of a project, up to which all keys are compared
_OTHERS: Final = 2000  # entities passed over that may be of other projects
_CANDIDATES: Final = 40  # compared with one record
_RARE: Final = 4  # words of a title that it is looked for by
_COMMON: Final = 10  # records of those looked at in which a word is called common
_NEAR: Final = 0.85  # likeness of two titles
_PERHAPS: Final = 0.7  # of their tokens, below which the titles are not compared
_BODY_CHARS: Final = 2000
_NAMED: Final = 3  # older ones that a line names

_ALIKE: Final[Pairs] = (
    *(("goal", "open"), ("goal", "active"), ("step", "open"), ("step", "active"), ("question", "open")),
    *(("fact", "active"), ("decision", "active"), ("lesson", "active")),
)


@frozen
class _Note:
    """What is compared of a note."""

    id: int
    kind: str
    title: str
    status: str
    origin: str
    parent: int | None
    entity: int | None
    body: str


@frozen
class _Entity:
    """What is compared of an entity."""

    id: int
    type: str
    key: str
    status: str
    origin: str

    @property
    def plain(self) -> tuple[str, str]:
        """What two entities share that differ in case, spaces and a slash at the end only."""
        return self.type, "".join(self.key.casefold().split()).rstrip("/")


def duplicates(ask: Ask) -> Part:
    """Records much like an older one, the latest first."""
    below = -int(ask.place[0]) if ask.place else limits.INT_MAX
    notes = _latest_notes(ask, below)
    entities, every = _entities(ask, below)
    latest = sorted([*notes, *([] if every else [one.id for one in entities])], reverse=True)
    end = latest[_RECORDS - 1] if len(latest) >= _RECORDS else 0
    groups: dict[int, list[int]] = {}
    found_notes = _pairs_of_notes(ask, [note for note in notes if note >= end])
    shown: dict[int, _Note | _Entity] = {one.id: one for pair in found_notes for one in pair}
    pairs: list[tuple[int, int]] = [(newer.id, older.id) for newer, older in found_notes]
    for one, other in _pairs_of_entities(ask, entities, every=every):
        if end <= one.id < below:
            shown |= {one.id: one, other.id: other}
            pairs.append((one.id, other.id))
    for newer, older in sorted(pairs, reverse=True):
        groups.setdefault(newer, []).append(older)
    keys: list[Key] = [(-newer,) for newer in groups]

    def findings(page: Sequence[Key]) -> Iterator[Finding]:
        for key in page:
            yield _finding(shown, -int(key[0]), groups[-int(key[0])])

    looked = f"{'the latest' if not ask.place else 'earlier'} {_RECORDS} records" if end or ask.place else ""
    if looked and not _widely(ask):
        looked += " among each other"
    beyond: Key | None = (-end,) if end else None
    return ask.cut(
        "duplicates", "likely duplicates of older ones", sorted(keys), findings, len(keys), beyond, looked_at=looked
    )


def _finding(shown: dict[int, _Note | _Entity], newer: int, older: list[int]) -> Finding:
    named = ", ".join(_named(shown[one]) for one in older[:_NAMED])
    more = f" and {len(older) - _NAMED} more" if len(older) > _NAMED else ""
    one = shown[newer]
    remark = f"much like {named}{more}"
    if isinstance(one, _Entity):
        ref = f"{one.type}:{one.key}"
        return Finding("duplicate", ref, one.id, "entity", one.status, one.key, one.origin, remark, tuple(older))
    return Finding("duplicate", str(one.id), one.id, one.kind, one.status, one.title, one.origin, remark, tuple(older))


def _named(one: _Note | _Entity) -> str:
    if isinstance(one, _Entity):
        return f"#{one.id} {one.type}:{lines.inline(one.key, one.origin)}"
    return f"#{one.id} {lines.inline(one.title, one.origin)}"


# Notes


def _latest_notes(ask: Ask, below: int) -> list[int]:
    """The latest notes that are open or in force, the latest first."""
    parts, values = [], []
    for kind, status in _ALIKE:
        rows, bound = of_status(ask.reach, kind, status)
        parts.append(f"SELECT * FROM (SELECT id FROM {rows} AND id < ? ORDER BY id DESC LIMIT {_RECORDS})")
        values += [*bound, below]
    sql = f"{' UNION ALL '.join(parts)} ORDER BY 1 DESC LIMIT {_RECORDS}"
    return [note for (note,) in ask.view.rows(sql, values)]


_NOTES: Final = f"""
SELECT note.id, kind, title, status, origin, note.parent, entity, substr(coalesce(body, ''), 1, {_BODY_CHARS})
FROM json_each(?) AS wanted CROSS JOIN note ON note.id = wanted.value WHERE title IS NOT NULL AND project = ?
"""


def _notes(ask: Ask, wanted: Iterable[int]) -> dict[int, _Note]:
    rows = ask.view.rows(_NOTES, (as_json(wanted), ask.reach.project))
    return {row[0]: _Note(*row) for row in rows if (row[1], row[3]) in _ALIKE}


def _pairs_of_notes(ask: Ask, latest: Sequence[int]) -> list[tuple[_Note, _Note]]:
    """Each of the latest notes with every older one much like it."""
    notes = _notes(ask, latest)
    words = {note.id: tokens_of(note.title) for note in notes.values()}
    candidates = _sharing(words)
    if _widely(ask):
        # Of the text, since that is where the index has the words from.
        texts = ({*words[note.id], *text.analyse(note.body).split()} for note in notes.values())
        spread = Counter(word for of_note in texts for word in of_note)
        for note, of_note in words.items():
            rare = [word for word in sorted(of_note, key=spread.__getitem__) if spread[word] <= _COMMON][:_RARE]
            if rare:
                rows = ask.view.rows(_FIND, (_shared(rare, len(of_note)), note, _CANDIDATES))
                candidates.setdefault(note, set()).update(older for (older,) in rows)
    known = notes | _notes(ask, {older for found in candidates.values() for older in found} - notes.keys())
    tokens = {note.id: frozenset(text.analyse(note.title).split()) for note in known.values()}
    pairs = [
        (notes[newer], known[older])
        for newer, found in candidates.items()
        for older in found
        if older in known and _alike(notes[newer], known[older], tokens[newer], tokens[older])
    ]
    linked = _linked(ask, pairs)
    return [pair for pair in pairs if (pair[0].id, pair[1].id) not in linked]


def _widely(ask: Ask) -> bool:
    """Whether the index is asked for older records, which takes its time. A view of the past has no index."""
    return ask.alone and not isinstance(ask.view.binding.ledger.database, PastDatabase)


_FIND: Final = "SELECT rowid FROM search WHERE search MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?"


def _shared(rare: Sequence[str], words: int) -> str:
    """The expression for titles with two of these words; with the one there is of a title that has no more."""
    quoted = [f'"{word}"' for word in rare]
    if len(quoted) == 1 or words == 2:
        return f"title : ({' AND '.join(quoted)})"
    # FTS5 pays for each word it names.
    pairs = (f"({word} AND ({' OR '.join(quoted[place:])}))" for place, word in enumerate(quoted[:-1], 1))
    return f"title : ({' OR '.join(pairs)})"


def _sharing(words: dict[int, list[str]]) -> dict[int, set[int]]:
    """Of each of these records the older ones among them that share a word that is not common among them."""
    having: dict[str, list[int]] = {}
    for record in sorted(words):
        for word in words[record]:
            having.setdefault(word, []).append(record)
    found: dict[int, set[int]] = {}
    for records in having.values():
        if len(records) <= _COMMON:
            for older, newer in combinations(records, 2):
                found.setdefault(newer, set()).add(older)
    return found


def _alike(one: _Note, other: _Note, mine: frozenset[str], theirs: frozenset[str]) -> bool:
    if one.kind != other.kind or one.entity != other.entity:
        return False
    if one.kind in ("goal", "step") and one.parent != other.parent:
        return False
    if 2 * len(mine & theirs) < _PERHAPS * (len(mine) + len(theirs)):
        return False
    if text.distinguished(one.title, other.title) or text.likeness(one.title, other.title) < _NEAR:
        return False
    return not (one.body and other.body and text.distinguished(one.body, other.body))


def _linked(ask: Ask, pairs: Sequence[tuple[_Note, _Note]]) -> set[tuple[int, int]]:
    """Those of the pairs that somebody has linked: what they are to each other is known."""
    sql = """
    SELECT wanted.value ->> 0, wanted.value ->> 1 FROM json_each(?) AS wanted
    WHERE EXISTS (SELECT 1 FROM link WHERE src = wanted.value ->> 0 AND dst = wanted.value ->> 1)
       OR EXISTS (SELECT 1 FROM link WHERE src = wanted.value ->> 1 AND dst = wanted.value ->> 0)
    """
    listed = "[" + ",".join(f"[{one.id},{other.id}]" for one, other in pairs) + "]"
    return {(one, other) for one, other in ask.view.rows(sql, (listed,))}


# Entities

_OF: Final = "SELECT id, type, key, status, origin FROM entity"


def _entities(ask: Ask, below: int) -> tuple[list[_Entity], bool]:
    """All entities of the project if these are few, else the latest; and whether it is all of them."""
    if ask.reach.root is not None:
        return [], True
    view, project = ask.view, ask.reach.project
    rows = view.rows(f"{_OF} WHERE project = ? AND key IS NOT NULL LIMIT {_ENTITIES + 1}", (project,))
    every = len(rows) <= _ENTITIES
    if not every:
        latest = f"SELECT * FROM entity WHERE id < ? ORDER BY id DESC LIMIT {_OTHERS}"
        sql = f"{_OF.replace('FROM entity', f'FROM ({latest})')} WHERE project = ? AND key IS NOT NULL LIMIT {_RECORDS}"
        rows = view.rows(sql, (below, project))
    return [_Entity(*row) for row in rows], every


def _pairs_of_entities(ask: Ask, entities: Sequence[_Entity], *, every: bool) -> Iterator[tuple[_Entity, _Entity]]:
    """Each entity with every older one of its type whose key differs in case, spaces and a slash at the end only."""
    known = {one.id: one for one in entities}
    if not every and _widely(ask):
        known |= _entities_like(ask, entities)
    same: dict[tuple[str, str], list[_Entity]] = {}
    for one in known.values():
        same.setdefault(one.plain, []).append(one)
    own = {one.id for one in entities}
    for group in same.values():
        for older, newer in combinations(sorted(group, key=lambda one: one.id), 2):
            if newer.id in own:
                yield newer, older


def _entities_like(ask: Ask, entities: Sequence[_Entity]) -> dict[int, _Entity]:
    """Older entities that share the rarest word of one of these."""
    words = {one.id: tokens_of(one.key) for one in entities}
    spread = Counter(word for of_key in words.values() for word in of_key)
    found: set[int] = set()
    for one in entities:
        if words[one.id]:
            rarest = min(words[one.id], key=spread.__getitem__)
            if spread[rarest] <= _COMMON:
                rows = ask.view.rows(_FIND, (f'title : "{rarest}"', one.id, _CANDIDATES))
                found.update(older for (older,) in rows)
    sql = f"{_OF} WHERE id IN (SELECT value FROM json_each(?)) AND project = ? AND key IS NOT NULL"
    return {row[0]: _Entity(*row) for row in ask.view.rows(sql, (as_json(found), ask.reach.project))}


__all__ = ["duplicates"]
