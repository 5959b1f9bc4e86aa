"""What happened to records: the log read as changes, each with what was before and after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, NotFound
from agentmem.log import blobs
from agentmem.log.canonical import canonical
from agentmem.log.kinds import Kinds
from agentmem.log.ledger import COLUMNS, decode
from agentmem.past.event_kinds import RESTATED, undoes
from agentmem.past.fields import FieldChange, converted, differences, label, origins, shortened
from agentmem.past.folding import Scratch, State, events_of
from agentmem.records import tree, validate
from agentmem.records.base import Source, View
from agentmem.records.refs import identify, recorded
from agentmem.types import Event, Origin, RecordType, Ref

VALUE_CHARS: Final = 500
"""Of a longer value a list of changes has the beginning; `revision` and `diff` have it whole."""

_LABEL_CHARS: Final = 120
# Up to so many records their events are fetched one record after the other, above that by reading the log in order.
_FEW: Final = 2000


@frozen
class Change:
    """One event as a change of its record.

    Attributes:
        seq: The event.
        at: Its time, microseconds.
        kind: What kind of event it was, past tense.
        record: The record's id.
        type: The record's type.
        label: What the record was called after it: title, key or text, cut; None where that was purged.
        fields: What it changed, `VALUE_CHARS` of each value at most.
        author: Who, a label.
        run: In which run, a label.
        task: In which task's name.
        origin: Where the text of the event came from.
        trust: The least trusted of what `label` and `fields` quote.
        request: The id of the request it was written under.
        erased: Whether its content was purged: that it was, when, and by whom is all that is left.
        undoes: The event that it takes back.
        undone_by: The event that takes it back.
    """

    seq: int
    at: int
    kind: str
    record: int
    type: RecordType
    label: str | None
    fields: tuple[FieldChange, ...]
    author: str | None
    run: str | None
    task: int | None
    origin: Origin
    trust: Origin
    request: str | None
    erased: bool
    undoes: int | None
    undone_by: int | None


@frozen
class Asked:
    """Which changes are asked for. Bounds exclude: `after` < seq < `before`."""

    record: int | None = None
    type: RecordType | None = None
    deep: bool = False
    under: int | None = None
    under_of: tree.Table = "note"
    projects: tuple[int, ...] = ()
    session: int | None = None
    author: str | None = None
    run: str | None = None
    claims: bool = True
    after: int = 0
    before: int = limits.INT_MAX
    newest_first: bool = False
    limit: int = limits.PAGE


@frozen
class Changes:
    """One page of changes, and how many follow it, counted to `limits.COUNT_EXACT`."""

    changes: tuple[Change, ...]
    left: int


def locate(source: Source, ref: Ref) -> tuple[int, RecordType]:
    """The record that `ref` names and its type, also one that is no more; an entity also by a key that it once had.

    Raises:
        NotFound: There never was one.
    """
    try:
        return recorded(source, ref)
    except NotFound:
        of, colon, key = ref.partition(":") if isinstance(ref, str) else ("", "", "")
        found = _once_named(source, of.strip(), key.strip()) if colon else None
        if found is None:
            raise
        return found, "entity"


# A long text among the attributes has the payload stored in parts, the key still in sight.
_ONCE_NAMED: Final = """
SELECT record, kind, version, payload FROM event
WHERE project = ? AND kind IN ('entity.added', 'entity.changed', 'entity.restated') AND instr(payload, ?)
ORDER BY seq DESC
"""


def _once_named(source: Source, of: str, key: str) -> int | None:
    """The last entity of a type that ever had this key."""
    kinds = source.binding.ledger.kinds
    for record, kind, version, text in source.rows(_ONCE_NAMED, (source.known_project, canonical(key))):
        payload = kinds.upcast(kind, version, blobs.whole(source.connection, text))
        if key in (part.get("key") for part in (payload, payload.get("set", {}), payload.get("state", {}))):
            created = source.row("SELECT kind, version, payload FROM event WHERE seq = ?", (record,))
            if created is None or created[2] is None:
                continue
            if kinds.upcast(created[0], created[1], blobs.whole(source.connection, created[2])).get("type") == of:
                return int(record)
    return None


def asked(
    view: View,
    *,
    ref: Ref | None,
    deep: bool,
    under: Ref | None,
    author: str | None,
    run: str | None,
    session: Ref | None,
    everywhere: bool,
    after: int,
    before: int | None,
    newest_first: bool,
    limit: int,
) -> Asked:
    """What a caller asks for, checked; without a record, subtree or session the project's, or with `everywhere` all.

    Raises:
        InvalidInput: A part is not acceptable.
        NotFound: There never was such a record.
    """
    if ref is not None and under is not None:
        raise InvalidInput("ref and under= exclude each other", next="under= has the record itself too")
    record, of = (None, None) if ref is None else locate(view, ref)
    root, root_of = (None, "note") if under is None else identify(view, under)
    if root_of not in ("note", "entity"):
        raise InvalidInput(f"#{root} is of type {root_of}", why="Beneath notes and entities there can be others")
    alone = record is None and root is None and session is None
    return Asked(
        record=record, type=of, deep=deep and of == "note", under=root,
        under_of="entity" if root_of == "entity" else "note",
        projects=_projects(view) if alone and not everywhere else (),
        session=None if session is None else _session(view, session),
        author=validate.optional_label(author, "author"), run=validate.optional_label(run, "run"),
        after=validate.cursor(after, "after"),
        before=limits.INT_MAX if before is None else validate.cursor(before, "before"),
        newest_first=newest_first, limit=validate.page(limit),
    )  # fmt: skip


def _session(view: View, session: Ref) -> int:
    """The session that is meant, be it purged: what was done in it stays."""
    if type(session) is int:
        return validate.cursor(session, "session")
    found, of = recorded(view, session)
    if of != "session":
        raise InvalidInput(f"#{found} is not a session but a record of type {of}")
    return found


_MERGED: Final = """
WITH RECURSIVE part (id) AS (
    VALUES (?1)
    UNION
    SELECT event.record FROM part JOIN event ON event.project = part.id AND event.kind = 'project.merged'
)
SELECT id FROM part WHERE id = ?1 OR NOT EXISTS (SELECT 1 FROM project WHERE project.id = part.id) ORDER BY id
"""


def _projects(view: View) -> tuple[int, ...]:
    """The project of a view and those that became part of it, whose records' history is its own."""
    return tuple(found for (found,) in view.rows(_MERGED, (view.project,)))


def changes(view: View, kinds: Kinds, asked: Asked) -> Changes:
    """One page of changes."""
    wanted, values = _wanted(view, asked)
    conditions, bound = _conditions(asked)
    few = bool(wanted) and view.number(f"{wanted} SELECT count(*) FROM wanted", values) <= _FEW
    if wanted:
        # A plus keeps SQLite from going by that column's index.
        conditions.append(f"{'' if few else '+'}event.record IN (SELECT id FROM wanted)")
    column, order = "+event.seq" if few else "event.seq", "DESC" if asked.newest_first else "ASC"
    sql = f"FROM event WHERE {column} > ? AND {column} < ? AND {' AND '.join(['1', *conditions])}"
    rows = view.rows(
        f"{wanted} SELECT {COLUMNS} {sql} ORDER BY seq {order} LIMIT ?",
        [*values, asked.after, asked.before, *bound, asked.limit],
    )
    page = [decode(view.connection, kinds, row) for row in rows]
    left = 0
    if len(page) == asked.limit:
        beyond = (asked.after, page[-1].seq) if asked.newest_first else (page[-1].seq, asked.before)
        count = f"{wanted} SELECT count(*) FROM (SELECT 1 {sql} LIMIT {limits.COUNT_EXACT})"
        left = view.number(count, [*values, *beyond, *bound])
    return Changes(_told(view, kinds, page), left)


def _conditions(asked: Asked) -> tuple[list[str], list[Any]]:
    parts = (
        ("event.session = ?", asked.session),
        ("event.author = ?", asked.author),
        ("event.run = ?", asked.run),
    )
    conditions = [condition for condition, value in parts if value is not None]
    bound: list[Any] = [value for _, value in parts if value is not None]
    if len(asked.projects) == 1:
        conditions.append("event.project = ?")
    elif asked.projects:
        conditions.append(f"+event.project IN ({', '.join('?' * len(asked.projects))})")
    if not asked.claims:
        conditions.append("event.kind NOT LIKE '%.claim.%'")
    return conditions, [*bound, *asked.projects]


_PARTS: Final = """
SELECT id FROM base
UNION ALL SELECT item.id FROM base JOIN item ON item.note = base.id
UNION ALL SELECT summary.id FROM base JOIN summary ON summary.note = base.id
UNION ALL SELECT checkpoint.id FROM base JOIN note USING (id)
    JOIN checkpoint ON checkpoint.task = base.id AND checkpoint.project = note.project
"""


def _wanted(view: View, asked: Asked) -> tuple[str, list[Any]]:
    """The common table `wanted` of the records whose events are asked for; nothing where all are."""
    if asked.under is not None:
        base = f"{tree.beneath(asked.under_of)}, base AS MATERIALIZED (SELECT id FROM beneath)"
        return f"{base}, wanted (id) AS MATERIALIZED ({_PARTS})", [asked.under]
    if asked.record is None:
        return "", []
    if asked.deep:
        return f"WITH base (id) AS (VALUES (?)), wanted (id) AS MATERIALIZED ({_PARTS})", [asked.record]
    return "WITH wanted (id) AS (VALUES (?))", [asked.record]


def _told(view: View, kinds: Kinds, page: Sequence[Event]) -> tuple[Change, ...]:
    """The events of a page as changes, each record folded once."""
    told: dict[int, Change] = {}
    records: dict[int, list[Event]] = {}
    for event in page:
        records.setdefault(event.record, []).append(event)
    with Scratch(kinds) as scratch:
        for record, events in records.items():
            scratch.clear()
            undone = _undone(view, kinds, record, min(event.seq for event in events))
            wanted = {event.seq for event in events}
            for event in events_of(view, kinds, record, until=max(wanted)):
                before = scratch.state(event.type, record) if event.seq in wanted else None
                scratch.apply(event)
                if event.seq in wanted:
                    after = scratch.state(event.type, record)
                    told[event.seq] = _change(event, before, after, undone.get(event.seq))
    return tuple(told[event.seq] for event in page)


_UNDOING: Final = (
    f"SELECT {COLUMNS} FROM event WHERE record = ? AND seq > ? AND instr(payload, '\"undoes\":') ORDER BY seq"
)


def _undone(view: View, kinds: Kinds, record: int, after: int) -> dict[int, int]:
    """Which events of a record were taken back, and by which."""
    found = {}
    for row in view.rows(_UNDOING, (record, after)):
        event = decode(view.connection, kinds, row)
        taken = undoes(event)
        if taken is not None:
            found[taken] = event.seq
    return found


def _change(event: Event, before: State | None, after: State | None, undone_by: int | None) -> Change:
    erased = event.payload is None
    # What states a record anew, because what was before is purged, changes nothing of it.
    anew = event.kind.endswith(RESTATED) and before is not None and not before.known
    parts = () if erased or anew else differences(before, after)
    if after is None and event.payload is not None and "into" in event.payload:
        parts = (FieldChange("into", None, event.payload["into"]),)
    trust: Origin = event.origin
    for found in (*origins(before, parts), *origins(after, parts)):
        trust = validate.less_trusted(trust, found)
    shown = after or before
    called = None if shown is None else label(event.type, shown)
    return Change(
        event.seq, event.at, event.kind, event.record, event.type,
        None if called is None else called[:_LABEL_CHARS],
        tuple(converted(part, lambda value: shortened(value, VALUE_CHARS)) for part in parts),
        event.author, event.run, event.task, event.origin, trust, event.request, erased, undoes(event), undone_by,
    )  # fmt: skip
