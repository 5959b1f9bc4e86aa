"""What narrows a search: the same conditions for words and for meaning, and how a record is read once it was found.

Conditions are part of a search, never applied after a cut: candidates are taken in the order of their score and
filtered in that order until there are enough.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentmem import limits, text
from agentmem.engine.session_tables import MESSAGE_TEXT
from agentmem.errors import InvalidInput
from agentmem.records import subjects, tree, validate
from agentmem.records.base import View
from agentmem.records.refs import identify
from agentmem.types import NOTE_KINDS, ORIGINS, Origin, RecordType, Ref

_SMALL: Final = 20_000  # records that are listed so that a search looks at them alone
_FEW: Final = 2_000  # records of one subject that are listed for the same
_SHARE: Final = 16  # a project with more than one in so many events is not: to filter what was found costs less
TYPES: Final = (*NOTE_KINDS, "entity", "item", "checkpoint", "summary", "message")

_JOINS: Final = """
LEFT JOIN note ON note.id = {of}
LEFT JOIN entity ON entity.id = {of}
LEFT JOIN item ON item.id = {of}
LEFT JOIN checkpoint ON checkpoint.id = {of}
LEFT JOIN summary ON summary.id = {of}
LEFT JOIN message ON message.id = {of}
LEFT JOIN session ON session.id = message.session
LEFT JOIN note AS owner ON owner.id = coalesce(item.note, summary.note, checkpoint.task)
"""
_TABLES: Final = _JOINS.format(of="best.id")
VECTOR_TABLES: Final = _JOINS.format(of="vector.record")  # the same for the record of a vector
PROJECT: Final = "coalesce(note.project, entity.project, owner.project, checkpoint.project, message.project)"
_STATUS: Final = "coalesce(note.status, entity.status, CASE item.done WHEN 1 THEN 'done' WHEN 0 THEN 'open' END)"
_ORIGIN: Final = "coalesce(note.origin, entity.origin, item.origin, checkpoint.origin, summary.origin, message.origin)"
# An item or an event of a session has neither author nor time of its own: those of the event that made it.
_AUTHOR: Final = """
coalesce(note.author, entity.author, checkpoint.author, summary.author,
         (SELECT author FROM event WHERE seq = best.id))
"""
_WRITTEN: Final = "coalesce(note.created_at, entity.created_at, (SELECT at FROM event WHERE seq = best.id))"
_CHANGED: Final = """
coalesce(note.updated_at, entity.updated_at, checkpoint.at, summary.at, item.done_at,
         (SELECT at FROM event WHERE seq = best.id))
"""


@frozen
class Narrowed:
    """What a search is narrowed to.

    Attributes:
        where: The conditions, on the tables that stand for a candidate.
        values: Their parameters.
        project: The project, None for all.
        others: Whether anything but the project is asked.
        notes: SQL for the ids of the only notes that may pass, themselves or by what belongs to them, where an index
            knows these; `bound` are its parameters.
        alone: Whether these are the only records: what belongs to them does not pass.
        beside: The id of an entity that may pass with these notes, and the events of sessions about it.
        only: The ids of the only records that may pass, see `known`; None where they are not known.
        everything: Whether every record with text is known to pass.
    """

    where: str
    values: tuple[Any, ...]
    project: int | None
    others: bool
    notes: str | None = None
    bound: tuple[Any, ...] = ()
    alone: bool = False
    beside: int | None = None
    only: frozenset[int] | None = None
    everything: bool = False


@frozen
class Match:
    """A record that passed, with what an answer shows of it.

    Attributes:
        id: Its id.
        type: Its type.
        kind: Of a note its kind, of an entity its type, else the type of the record.
        status: Its status; of an item `open` or `done`; None where it has none.
        title: Its one line; of an item with its number, of a checkpoint or summary that of its task.
        body: The rest of its text, as it was written.
        origin: Where that came from; of a checkpoint or summary the less trusted of its own and that of its task.
        project: The id of its project.
        confidence: From 0 to 1, None where nobody said.
        changed: When it was changed last, in microseconds.
        entity: The entity it is about.
        above: Its parent, or the note it belongs to.
    """

    id: int
    type: RecordType
    kind: str
    status: str | None
    title: str
    body: str
    origin: Origin
    project: int
    confidence: float | None
    changed: int
    entity: int | None
    above: int | None


def narrowed(
    view: View,
    *,
    kind: str | None = None,
    status: str | None = None,
    under: Ref | None = None,
    about: Ref | None = None,
    tag: str | None = None,
    author: str | None = None,
    origin: str | None = None,
    since: Any = None,
    until: Any = None,
    everywhere: bool = False,
) -> Narrowed:
    """Validate what a caller narrows a search to; see `Store.find` for the arguments."""
    narrowing = _Narrowing(view, everywhere)
    status = None if status is None else validate.token(status, "status")
    if kind is not None:
        narrowing.kind(kind, status)
    if tag is not None:
        narrowing.tag(tag)
    if under is not None:
        narrowing.under(under)
    if about is not None:
        narrowing.about(about)
    plain: tuple[tuple[str, Any], ...] = (
        (f"{_STATUS} = ?", status),
        (f"{_AUTHOR} = ?", validate.optional_label(author, "author")),
        (f"{_ORIGIN} = ?", None if origin is None else validate.choice(origin, "origin", ORIGINS)),
        (f"{_CHANGED} >= ?", None if since is None else validate.moment(since, "since")),
        (f"{_WRITTEN} <= ?", None if until is None else validate.moment(until, "until")),
    )
    for condition, value in plain:
        if value is not None:
            narrowing.add(condition, value)
    return narrowing.done()


def of_session(segments: Sequence[tuple[int, int]], until: int, *, also: Iterable[int] = ()) -> Narrowed:
    """The events of a session, and of what it goes on from, up to and with a place; and some of its later ones."""
    later = named(also)
    each = " OR ".join("(message.session = ? AND message.id <= ?)" for _ in segments)
    values = [value for session, last in segments for value in (session, min(last, until))]
    listed = " UNION ALL ".join(
        "SELECT id FROM message WHERE session = ? AND id <= ? AND text IS NOT NULL" for _ in segments
    )
    return Narrowed(
        f"({each} OR message.id IN (SELECT value FROM json_each(?)))", (*values, later), None, True,
        f"{listed} UNION ALL SELECT value FROM json_each(?)", (*values, later), alone=True,
    )  # fmt: skip


class _Narrowing:
    """The conditions as they come together."""

    def __init__(self, view: View, everywhere: bool) -> None:
        self.view = view
        self.project = None if everywhere else view.project
        self.conditions: list[str] = []
        self.values: list[Any] = []
        self.notes: tuple[str, tuple[Any, ...]] | None = None
        self.alone = False
        self.beside: int | None = None

    def add(self, condition: str, *values: Any) -> None:
        self.conditions.append(condition)
        self.values += values

    def kind(self, kind: str, status: str | None) -> None:
        self.alone = True
        if validate.choice(kind, "kind", TYPES) not in NOTE_KINDS:
            self.add(f"{kind}.id IS NOT NULL")
            self.notes = f"SELECT id FROM {kind}{' WHERE text IS NOT NULL' if kind == 'message' else ''}", ()
            return
        self.add("note.kind = ?", kind)
        if self.project is not None:
            sql, bound = "SELECT id FROM note WHERE project = ? AND kind = ?", (self.project, kind)
            self.notes = (sql, bound) if status is None else (f"{sql} AND status = ?", (*bound, status))

    def tag(self, tag: str) -> None:
        tag = validate.label(tag, "tag", limits.TAG_CHARS)
        self.add("EXISTS (SELECT 1 FROM json_each(coalesce(note.tags, owner.tags)) WHERE value = ?)", tag)
        tokens = text.analyse(tag).split()
        if tokens:
            match = " AND ".join(f'"{token}"' for token in tokens)
            self.known("SELECT rowid FROM search WHERE search MATCH ?", f"extra : ({match})")

    def known(self, sql: str, *bound: Any) -> None:
        """Only these notes pass, and what belongs to them."""
        self.notes, self.alone = (sql, bound), False

    def under(self, ref: Ref) -> None:
        found, of = identify(self.view, ref)
        if of != "note":
            raise InvalidInput(f"#{found} is of type {of}", why="under= takes a note")
        beneath = f"{tree.BENEATH.replace('?1', '?')} SELECT id FROM beneath"
        self.known(beneath, found)
        self.add(f"coalesce(note.id, owner.id) IN ({beneath})", found)

    def about(self, ref: Ref) -> None:
        found, of = identify(self.view, ref)
        if of != "entity":
            raise InvalidInput(f"#{found} is of type {of}", why="about= takes an entity")
        self.known("SELECT id FROM note WHERE entity = ?", found)
        self.beside = found
        self.add("coalesce(note.entity, owner.entity, entity.id, session.entity) = ?", found)

    def done(self) -> Narrowed:
        if self.view.binding.subject is not None:
            self.add(*subjects.seen(self.view.binding.subject))
        conditions, values = self.conditions, self.values
        others = bool(conditions)
        if self.project is not None:
            conditions, values = [f"{PROJECT} = ?", *conditions], [self.project, *values]
        notes, bound = self.notes or (None, ())
        where = " AND ".join(conditions) or "TRUE"
        return Narrowed(where, tuple(values), self.project, others, notes, bound, self.alone, self.beside)


def _vacuous(view: View, to: Narrowed) -> bool:
    """Whether every record with text passes: nothing is asked but a project, and it is the only one."""
    return not to.others and (
        to.project is None or (not several_projects(view) and to.project == view.known_project > 0)
    )


def known(view: View, to: Narrowed) -> Narrowed:
    """The same, with what is known of it: that all pass, or the only records that may, where an index has them.

    A search that looks at thousands of candidates need not read each of them then.
    """
    if _vacuous(view, to):
        return evolve(to, everything=True)
    if view.binding.subject is not None and to.project is not None:
        few = subjects.among(view, _FEW)
        if few is not None:
            return evolve(to, only=frozenset(few))
    if to.notes is None:
        found = None if to.project is None else _of_project(view, to.project, min(_SMALL, view.seq // _SHARE))
    else:
        found = _only_records(view, to, _SMALL)
    return to if found is None else evolve(to, only=frozenset(found))


_ALL: Final = " UNION ALL ".join(
    f"SELECT id FROM {table}" for table in ("note", "entity", "item", "checkpoint", "summary", "message")
)


def scanned(view: View, to: Narrowed) -> Narrowed:
    """The same with the ids of all records that pass, found by going over all of them."""
    rows = view.rows(f"SELECT best.id FROM ({_ALL}) AS best {_TABLES} WHERE {to.where}", to.values)
    return evolve(to, only=frozenset([record for (record,) in rows]))


def passing_ids(view: View, ids: Sequence[int], to: Narrowed, most: int = -1) -> list[int]:
    """As `passing`, the ids alone."""
    if to.everything:
        return list(ids) if most < 0 else list(ids[:most])
    if to.only is not None:
        ids = [one for one in ids if one in to.only]
    if not ids:
        return []
    sql = f"""
    SELECT best.id FROM (SELECT value AS id, key AS place FROM json_each(?)) AS best {_TABLES}
    WHERE {to.where} ORDER BY best.place LIMIT ?
    """
    return [record for (record,) in view.rows(sql, [named(ids), *to.values, most])]


def passing(view: View, ids: Sequence[int], to: Narrowed, most: int = -1) -> list[Match]:
    """Those of these records that pass, in their order, `most` at most. What has no text is no record to find."""
    sql = f"""
    SELECT best.id, note.kind, note.status, note.title, concat_ws(char(10), note.body, note.why, note.basis),
           entity.type, entity.status, entity.key, entity.attrs,
           item.note || '.' || item.number, item.text,
           checkpoint.text, concat_ws(char(10), summary.result, summary.work), owner.title,
           {_ORIGIN}, {PROJECT}, coalesce(note.confidence, entity.confidence, summary.confidence), {_CHANGED},
           coalesce(note.entity, owner.entity, session.entity), coalesce(note.parent, owner.id, entity.parent),
           item.done, summary.id, owner.origin, message.type, {MESSAGE_TEXT.format(row="message")}, message.session
    FROM (SELECT value AS id, key AS place FROM json_each(?)) AS best {_TABLES}
    WHERE {to.where} ORDER BY best.place LIMIT ?
    """
    rows = view.rows(sql, [named(ids), *to.values, most])
    return [found for found in map(_found, rows) if found is not None]


def _found(row: tuple[Any, ...]) -> Match | None:
    """The record of a row; None for one that has no text any more."""
    kind, type_, number, checkpoint = row[1], row[5], row[9], row[11]
    shared = (row[14], row[15], row[16], row[17], row[18], row[19])
    if kind is not None:
        return Match(row[0], "note", kind, row[2], row[3] or "", row[4], *shared) if row[3] is not None else None
    if type_ is not None:
        attrs = "" if row[8] == "{}" else row[8]
        return Match(row[0], "entity", type_, row[6], row[7], attrs, *shared) if row[7] is not None else None
    if number is not None:
        status = "done" if row[20] else "open"
        return Match(row[0], "item", "item", status, f"{number} {row[10]}", row[10], *shared) if row[10] else None
    if row[22] is not None and row[13]:  # the title of another record stands in the line
        shared = (validate.less_trusted(row[14], row[22]), *shared[1:])
    if checkpoint is not None:
        of = f"checkpoint of {row[13]}" if row[13] else "checkpoint"
        return Match(row[0], "checkpoint", "checkpoint", None, of, checkpoint, *shared)
    if row[21] is not None:
        of = f"summary of {row[13]}" if row[13] else "summary"
        return Match(row[0], "summary", "summary", None, of, row[12], *shared)
    if row[24]:
        return Match(row[0], "message", row[23], None, f"session {row[25]}", row[24], *shared)
    return None


def _only_records(view: View, to: Narrowed, most: int) -> list[int] | None:
    """The ids of the only records that may pass, where an index knows them and they are not more than `most`."""
    if to.notes is None:
        return None
    notes = [found for (found,) in view.rows(f"SELECT * FROM ({to.notes}) LIMIT ?", [*to.bound, most + 1])]
    if len(notes) > most:
        return None
    if to.alone:
        return notes
    listed = named(notes)
    found: list[int] = [*notes, *([] if to.beside is None else [to.beside])]
    if to.beside is not None:
        sql = "SELECT message.id FROM session JOIN message ON message.session = session.id WHERE entity = ? LIMIT ?"
        found += [record for (record,) in view.rows(sql, (to.beside, most + 1))]
    for table, column in (("item", "note"), ("summary", "note"), ("checkpoint", "task")):
        sql = f"SELECT id FROM {table} WHERE {column} IN (SELECT value FROM json_each(?)) LIMIT ?"
        found += [record for (record,) in view.rows(sql, (listed, most + 1))]
    return found if len(found) <= most else None


_OF_PROJECT: Final = """
SELECT id FROM note WHERE project = ?1
UNION ALL SELECT id FROM entity WHERE project = ?1
UNION ALL SELECT id FROM checkpoint WHERE project = ?1
UNION ALL SELECT id FROM message WHERE project = ?1 AND text IS NOT NULL
UNION ALL SELECT item.id FROM note JOIN item ON item.note = note.id WHERE note.project = ?1
UNION ALL SELECT summary.id FROM note JOIN summary ON summary.note = note.id WHERE note.project = ?1
LIMIT ?2
"""


def _of_project(view: View, project: int, most: int) -> list[int] | None:
    """The records of a project, where they are not more than `most`."""
    found = [record for (record,) in view.rows(_OF_PROJECT, (project, most + 1))]
    return found if len(found) <= most else None


def named(ids: Iterable[int]) -> str:
    """Ids as the JSON list that queries take."""
    return json.dumps(list(ids))


def several_projects(view: View) -> bool:
    """Whether the store has more than one project."""
    return view.number("SELECT count(*) FROM (SELECT 1 FROM project LIMIT 2)") > 1


def in_project(view: View, records: Sequence[int], project: int) -> int:
    """How many of these records are in a project."""
    sql = f"SELECT count(*) FROM (SELECT value AS id FROM json_each(?)) AS best {_TABLES} WHERE {PROJECT} = ?"
    return view.number(sql, (named(records), project))
