"""Purge: what is forgotten or redacted is gone from tables, index, log, free pages and write-ahead log.

`forget` ends records. `redact` takes away earlier texts of one that stays. Both are one transaction: events that say what
happened, then the payloads they make needless are erased. The full-text index keeps a deleted term until the segment it
stands in is merged into the oldest; so all segments are merged into one, see `past.index_merge`. After the commit all
pages are written anew and the write-ahead log is emptied, see `records.cleaning`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from attrs import evolve

from agentmem.errors import Conflict, InvalidInput, NotFound
from agentmem.log.canonical import canonical, plain
from agentmem.log.erase import erase
from agentmem.past.closure import Closure, heads, of_records, pointing
from agentmem.past.elsewhere import also_found, texts_gone, texts_of
from agentmem.past.event_kinds import FORGOTTEN, REMOVALS, RESTATED, is_claim
from agentmem.past.folding import events_of
from agentmem.past.index_merge import merge_whole
from agentmem.records import claims, cleaning, refs, validate, whole
from agentmem.records.base import Binding, Source, Unit, View
from agentmem.records.beneath import Reach
from agentmem.records.entities import matching
from agentmem.records.projects import project_named
from agentmem.records.session_rows import frame, unsettled
from agentmem.records.standing import project_of, standing
from agentmem.types import UNTRUSTED, Event, Receipt, RecordType, Ref

CLEANED: Final = (
    "log", "tables", "full-text index", "vectors", "long texts", "claims", "arguments of requests", "statistics",
    "free pages", "write-ahead log", "caches",
)  # fmt: skip
_CLEANED_LAST: Final = ("free pages", "write-ahead log")
SURVIVES: Final = (
    "headers of the events: kinds, times, labels of author and run, request ids",
    "of single events of sessions: their types, and which event they answered",
    "copies made earlier: backups, exports, copies of the disk or of memory",
    "the same words in other sentences: whole texts are looked for, so find the words yourself",
)
_WAIT_SECONDS: Final = 2.0  # for others to finish, before the cleaning of pages and WAL is left to the next writer

# What is purged first stands on what is purged after.
_ORDER: Final[tuple[RecordType, ...]] = (
    "message", "session", "item", "summary", "checkpoint", "note", "entity", "checks", "project",
)  # fmt: skip


def forget(
    binding: Binding,
    given: Iterable[Ref] | None,
    *,
    project: str | None,
    type: str | None,
    where: str | None,
    parameters: Mapping[str, Any],
    dry_run: bool,
    request_id: str | None,
) -> Receipt:
    """The command behind `store.forget`."""
    named = None if given is None else list(given)
    chosen = sum((named is not None, project is not None, type is not None))
    if chosen != 1:
        raise InvalidInput("Name what to forget in one way", next="Give records, or project=, or type= with where=")
    if type is None and (where is not None or parameters):
        raise InvalidInput("where= and its parameters need type=", why="They choose among the entities of a type")

    def starts(source: Unit | View) -> list[tuple[int, RecordType]]:
        if named is not None:
            return [_no_project(*refs.recorded(source, ref)) for ref in named]
        if project is not None:
            return [(project_named(source, project), "project")]
        (rows, bound), _ = matching(source, validate.token(type, "type"), where, parameters)
        return [(record, "entity") for (record,) in source.rows(f"SELECT e.id {rows} ORDER BY e.id", bound)]

    def plan(source: Unit | View) -> Closure:
        begun = starts(source)
        for record, of in begun:
            _refuse_purged(source, record)
            if of == "message":
                _refuse_settling(source, record)
        found = of_records(source, begun)
        for of, records in found.of.items():
            for record in records:
                if not _goes_whole(source, found, of, record):
                    _refuse_held(source, binding, of, record)
        return found

    if dry_run:
        with binding.reading() as view:
            return _planned(view, plan(view))
    arguments = {
        "refs": None if named is None else list(named), "project": project, "type": type, "where": where,
        "parameters": dict(parameters),
    }  # fmt: skip
    return _purged(binding, "forget", arguments, request_id, lambda unit: _forget(unit, plan(unit)))


def redact(
    binding: Binding, ref: Ref, *, attr: str | None, check: str | None, dry_run: bool, request_id: str | None
) -> Receipt:
    """The command behind `store.redact`."""
    if attr is not None and check is not None:
        raise InvalidInput("attr= and check= exclude each other")

    def plan(source: Unit | View) -> tuple[int, RecordType, list[int]]:
        record, of = refs.recorded(source, ref)
        _refuse_purged(source, record)
        if of == "message":
            raise InvalidInput(f"#{record} is an event of a session", why="It never changed, so it has no earlier text")
        _refuse_held(source, binding, of, record)
        if of != "entity" and (attr is not None or check is not None):
            raise InvalidInput(f"#{record} is of type {of}", why="attr= and check= are of entities")
        events = [event for event in _events(source, record) if _mentions(event, attr, check)]
        if attr is None and check is None and whole.state(source.connection, of, record) is not None:
            # The last statement of every field is what stays; a record never changed has no earlier text.
            events = events if len(events) > 1 else []
        return record, of, [event.seq for event in events]

    if dry_run:
        with binding.reading() as view:
            record, of, seqs = plan(view)
            return _redaction_planned(view, record, of, seqs, attr, check)
    arguments = {"ref": ref, "attr": attr, "check": check}
    return _purged(binding, "redact", arguments, request_id, lambda unit: _redact(unit, *plan(unit), attr, check))


def _purged(
    binding: Binding,
    verb: str,
    arguments: Mapping[str, Any],
    request_id: str | None,
    command: Callable[[Unit], Receipt],
) -> Receipt:
    """Run a purge, then empty the write-ahead log."""
    ledger = binding.ledger
    if ledger.database.in_write():
        raise Conflict(
            f"{verb} cannot run inside a transaction",
            why="What it erases stays in the write-ahead log until the transaction is over",
            next="Call it after the block",
        )
    if binding.actor.origin in UNTRUSTED:
        raise InvalidInput(f"Text from {binding.actor.origin} purges nothing", next="Purge as a user or an agent")
    receipt = binding.run(verb, arguments, request_id, command)
    pending = not cleaning.finish(ledger, wait=_WAIT_SECONDS)
    cleaned = tuple(each for each in receipt.cleaned if not (pending and each in _CLEANED_LAST))
    return evolve(receipt, wal_pending=pending, cleaned=cleaned, head=ledger.head())


def _refuse_held(source: Unit | View, binding: Binding, of: RecordType, record: int) -> None:
    """Refuse what another run holds, by itself or by its note."""
    for each in (record, *claims.keepers(source, of, record)):
        claims.refuse(source, each, run=binding.actor.run, now=source.now)


def _no_project(record: int, of: RecordType) -> tuple[int, RecordType]:
    """Refuse that a number which happens to be a project's ends all that is in it."""
    if of == "project":
        raise InvalidInput(f"#{record} is a project", next="If all of it is meant, name it with project=")
    return record, of


def _refuse_purged(source: Source, record: int) -> None:
    last = source.row("SELECT kind, type FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (record,))
    if last is None:
        return
    # An event goes with its session, and has no last event of its own then.
    whole = last[1] == "message" and source.row("SELECT 1 FROM message WHERE id = ?", (record,)) is None
    if whole or last[0].endswith(FORGOTTEN):
        raise NotFound(f"#{record} was purged already")


def _refuse_settling(source: Source, event: int) -> None:
    """Refuse an event by which its session stands as it does."""
    (of,) = source.one("SELECT type FROM message WHERE id = ?", (event,))
    if not unsettled(of):
        raise InvalidInput(
            f"#{event} ({of}) cannot be purged by itself",
            why="How its session stands, and until when it waits, hangs on it",
            next="It goes with its session",
        )


def _goes_whole(source: Source, found: Closure, of: RecordType, record: int) -> bool:
    """Whether a record is an event that goes with its session."""
    if of != "message":
        return False
    (session,) = source.one("SELECT session FROM message WHERE id = ?", (record,))
    return session in found.of.get("session", ())


def _planned(view: View, found: Closure) -> Receipt:
    """What a purge would do."""
    records = list(found)
    if not records:
        return Receipt((), dry_run=True, head=view.binding.ledger.head())
    quoting = heads(view, found)
    events = [event for record in records for event in _events(view, record)]
    written = [event for event in events if _erased(event)]
    written += [event for record in quoting for event in _events(view, record) if _erased(event)]
    detached = dict.fromkeys(record for _, record, _, _ in pointing(view, found))
    for record in detached:
        claims.refuse(view, record, run=view.binding.actor.run, now=view.now)
    _refuse_unreached(view, found, detached)
    return Receipt(
        tuple(records), changed=len(records), types=found.types(), events=tuple(event.seq for event in written),
        digests=tuple(event.digest.hex() for event in written), detached=tuple(detached),
        also_found_in=also_found(view, [*records, *quoting], texts_of(events)), survives=SURVIVES, dry_run=True,
        head=view.binding.ledger.head(),
    )  # fmt: skip


def _refuse_unreached(view: View, found: Closure, detached: Iterable[int]) -> None:
    """Refuse in a plan what a view that is limited to a note could not do."""
    if view.binding.limit is None:
        return
    reach = Reach(view, view.binding.limit)
    for of, records in found.of.items():
        for record in records:
            reach.before(f"{of}{FORGOTTEN}", of, record, {})
    for record in detached:
        (of,) = view.one("SELECT type FROM event WHERE seq = ?", (record,))
        reach.before(f"{of}.changed", of, record, {})


def _redaction_planned(
    view: View, record: int, of: RecordType, seqs: list[int], attr: str | None, check: str | None
) -> Receipt:
    """What a redaction would do."""
    if not seqs:
        return Receipt((), dry_run=True, head=view.binding.ledger.head())
    if view.binding.limit is not None:
        Reach(view, view.binding.limit).before(f"{of}{RESTATED}", of, record, {})
    chosen = set(seqs)
    erased = [event for event in _events(view, record) if event.seq in chosen]
    now = _redacted(whole.state(view.connection, of, record), attr, check)
    return Receipt(
        (record,), changed=1, types={of: 1}, events=tuple(event.seq for event in erased),
        digests=tuple(event.digest.hex() for event in erased),
        also_found_in=_still_found(view, record, erased, now, attr, check), survives=SURVIVES, dry_run=True,
        head=view.binding.ledger.head(),
    )  # fmt: skip


def _forget(unit: Unit, found: Closure) -> Receipt:
    records = list(found)
    if not records:
        return Receipt((), transit=unit.transit)
    quoting = heads(unit, found)
    events = {record: _events(unit, record) for record in records}
    texts = texts_of(event for each in events.values() for event in each)
    elsewhere = also_found(unit, [*records, *quoting], texts)
    detached = _detach(unit, found)
    for of in _ORDER:
        for record in sorted(found.of.get(of, ()), reverse=True):
            if _goes_whole(unit, found, of, record):
                continue
            payload: dict[str, Any] = frame(unit, record) if of == "message" else {}
            if touched := _traces(unit, of, record, events[record], found):
                payload["touched"] = touched
            if of == "item":
                note, number = unit.one("SELECT note, number FROM item WHERE id = ?", (record,))
                if note not in found and unit.row("SELECT 1 FROM note WHERE id = ?", (note,)):
                    payload |= {"note": note, "number": number}
            unit.append(
                f"{of}{FORGOTTEN}", payload, record=record, project=_project_at_last(unit, of, record, events[record]),
                session=_session_of(unit, of, record),
            )  # fmt: skip
    seqs = [event.seq for each in events.values() for event in each if _erased(event)]
    erased = erase(unit.connection, [*seqs, *_heads_forgotten(unit, quoting)])
    _clean(unit, [*records, *quoting])
    return Receipt(
        tuple(records), changed=len(records), types=found.types(), events=tuple(seq for seq, _ in erased),
        digests=tuple(digest.hex() for _, digest in erased), detached=detached, also_found_in=elsewhere, cleaned=CLEANED,
        survives=SURVIVES, transit=unit.transit,
    )  # fmt: skip


def _erased(event: Event) -> bool:
    """Whether a purge of the record erases the event. What it was merged into stays: a replay needs it."""
    return event.payload is not None and not event.kind.endswith(".merged")


def _redact(unit: Unit, record: int, of: RecordType, seqs: list[int], attr: str | None, check: str | None) -> Receipt:
    if not seqs:
        return Receipt((), transit=unit.transit)
    events = _events(unit, record)
    now = _redacted(whole.state(unit.connection, of, record), attr, check)
    chosen = set(seqs)
    quoting = heads(unit, Closure({of: {record: None}}))
    elsewhere = _still_found(unit, record, [event for event in events if event.seq in chosen], now, attr, check)
    if now is not None:
        payload: dict[str, Any] = {"state": now}
        if touched := _traces(unit, of, record, events, None):
            payload["touched"] = touched
        if copies := unit.rows("SELECT store, seq FROM copied WHERE record = ? ORDER BY store, seq", (record,)):
            payload["copies"] = [list(place) for place in copies]
        # Not screened for credentials: it is what the record says already.
        unit.tx.append(
            f"{of}{RESTATED}",
            payload,
            record=record,
            project=_project_at_last(unit, of, record, events),
            actor=unit.actor,
            session=_session_of(unit, of, record),
        )
    erased = erase(unit.connection, [*seqs, *_heads_forgotten(unit, quoting)])
    _clean(unit, [record, *quoting])
    return Receipt(
        (record,), changed=1, types={of: 1}, events=tuple(seq for seq, _ in erased),
        digests=tuple(digest.hex() for _, digest in erased), also_found_in=elsewhere, cleaned=CLEANED, survives=SURVIVES,
        transit=unit.transit,
    )  # fmt: skip


def _session_of(unit: Unit, of: RecordType, record: int) -> int | None:
    """The session whose chain an event of a purge belongs to; None where that is whoever purges."""
    if of != "message":
        return record if of == "session" else None
    (session,) = unit.one("SELECT session FROM message WHERE id = ?", (record,))
    return int(session)


def _heads_forgotten(unit: Unit, quoting: Iterable[int]) -> list[int]:
    """End the heads that may quote what goes, and give the events to erase."""
    for head in quoting:
        (project,) = unit.one("SELECT project FROM message WHERE id = ?", (head,))
        within = _session_of(unit, "message", head)
        unit.append(f"message{FORGOTTEN}", frame(unit, head), record=head, project=project, session=within)
    return list(quoting)


def _still_found(
    source: Source, record: int, erased: list[Event], now: dict[str, Any] | None, attr: str | None, check: str | None
) -> tuple[int, ...]:
    """Records that hold what a redaction takes away; the record itself, where another field of it does."""
    gone, here = texts_gone(erased, now, attr=attr, check=check)
    found = also_found(source, [record], gone)
    return tuple(sorted((record, *found))) if here else found


def _redacted(state: dict[str, Any] | None, attr: str | None, check: str | None) -> dict[str, Any] | None:
    """The state of a record without what a redaction takes from it as it stands."""
    if state is not None and attr is not None:
        state["attrs"] = canonical({name: value for name, value in plain(state["attrs"]).items() if name != attr})
    if state is not None and check is not None and check in state["marks"]:
        result, _, _, *rest = state["marks"][check]
        state["marks"][check] = [result, None, None, *rest]
    return state


# Kinds without text of the record: what it is linked to is none.
_TEXTLESS: Final = (".linked", ".unlinked", *REMOVALS, FORGOTTEN)


def _mentions(event: Event, attr: str | None, check: str | None) -> bool:
    """Whether an event holds text that a redaction takes away: of an attribute, of a check, or any."""
    payload = event.payload
    if payload is None or is_claim(event.kind) or event.kind.endswith(_TEXTLESS):
        return False
    state = payload.get("state", {})
    if attr is not None:
        return attr in payload.get("attrs", {}) or attr in plain(state.get("attrs", "{}"))
    if check is not None:
        return check in payload.get("marks", {}) or check in state.get("marks", {})
    return True


def _project_at_last(unit: Unit, of: RecordType, record: int, events: list[Event]) -> int:
    """Where the record belongs now; of one that is no more, where it was at last."""
    found = project_of(unit, of, record)
    return events[-1].project if found is None else found


def _detach(unit: Unit, found: Closure) -> tuple[int, ...]:
    """Change by events what points at the records from elsewhere."""
    changed: dict[int, None] = {}
    for what, record, target, kind in pointing(unit, found):
        claims.guard(unit, record)
        changed[record] = None
        if what == "entity":
            project = standing(unit, "note", record).project
            unit.append("note.changed", {"set": {"entity": None}}, record=record, project=project)
        elif what in ("task", "parent", "subject"):
            _session_detached(unit, record, what)
        else:
            (of,) = unit.one("SELECT type FROM event WHERE seq = ?", (record,))
            project = standing(unit, of, record).project
            unit.append(f"{of}.unlinked", {"dst": target, "kind": kind}, record=record, project=project)
    return tuple(changed)


def _session_detached(unit: Unit, session: int, what: str) -> None:
    """A session goes on without its task or parent. One whose subject goes is put away, and stays apart by its number."""
    project, archived = unit.one("SELECT project, archived_at FROM session WHERE id = ?", (session,))
    changes: dict[str, Any] = {what: None}
    if what == "subject":
        if archived is not None:
            return
        changes = {"archived_at": unit.now}
    unit.append("session.changed", {"set": changes}, record=session, project=project, session=session)


def _traces(
    unit: Unit, of: RecordType, record: int, events: list[Event], found: Closure | None
) -> list[tuple[int, int]]:
    """The notes that events of a record touched, with the last seq each: a replay without them would not know.

    Where the record goes (`found`), the note it stands beneath or on is touched by its going.
    """
    traces: dict[int, int] = {}
    if of == "note":
        parent = None
        for event in events:
            given = {} if event.payload is None else event.payload.get("set", event.payload)
            traces.update(_old_traces(event))
            if "parent" in given and given["parent"] != parent:
                if parent is not None:
                    traces[parent] = event.seq
                parent = given["parent"]
            elif event.payload is not None and "state" in event.payload:
                parent = event.payload["state"]["parent"]
        row = unit.row("SELECT parent FROM note WHERE id = ?", (record,))
        if found is not None and row is not None and row[0] is not None:
            traces[row[0]] = unit.tx.next
    elif of in ("item", "summary"):
        for event in events:
            traces.update(_old_traces(event))
        row = unit.row(f"SELECT note FROM {of} WHERE id = ?", (record,))
        if row is not None:
            last = max(event.seq for event in events if not is_claim(event.kind) and not event.kind.endswith(RESTATED))
            traces[row[0]] = max(traces.get(row[0], 0), unit.tx.next if found is not None else last)
    return sorted((note, seq) for note, seq in traces.items() if found is None or note not in found)


def _events(source: Source, record: int) -> list[Event]:
    """Every event of a record, in order."""
    return list(events_of(source, source.binding.ledger.kinds, record))


def _old_traces(event: Event) -> dict[int, int]:
    return {} if event.payload is None else dict(event.payload.get("touched", ()))


def _clean(unit: Unit, records: list[int]) -> None:
    """Clear what is no projection: claims, arguments of requests, the index, vectors, statistics; have others do the same."""
    connection = unit.connection
    gone = set(records)
    # Triggers did so where a row went or its text was set; the event of this purge has the text that stays embedded again.
    connection.executemany("DELETE FROM vector WHERE record = ?", [(record,) for record in records])
    for record in records:
        if unit.row("SELECT 1 FROM event WHERE record = ? AND kind LIKE '%.forgotten'", (record,)):
            connection.execute("DELETE FROM lease WHERE record = ?", (record,))
    for project, request, result in unit.rows("SELECT project, id, result FROM request"):
        kept = plain(result)
        if gone.intersection((*kept.get("ids", ()), *kept.get("all", ()), kept.get("id"))):
            connection.execute("UPDATE request SET arguments = x'' WHERE project = ? AND id = ?", (project, request))
    merge_whole(connection)
    for (table,) in unit.rows("SELECT name FROM sqlite_schema WHERE name IN ('sqlite_stat1', 'sqlite_stat4')"):
        connection.execute(f"DELETE FROM {table}")
    cleaning.begin(unit.binding.ledger, connection, unit.seq)
