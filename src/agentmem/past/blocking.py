"""What stands on a record, and what a record needs to be there again: the reasons why an undo is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentmem.errors import Conflict, InvalidInput, LimitExceeded, UndoBlocked
from agentmem.past.event_kinds import REMOVALS, RESTATED, undoes
from agentmem.past.folding import events_of
from agentmem.records import tree
from agentmem.records.base import Source, Unit
from agentmem.records.links import reaches
from agentmem.records.whole import POINTS
from agentmem.types import Event

# Records that stand on one of a type: their own ids, with the fields by which they do.
_STANDS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "note": (
        ("SELECT id FROM note WHERE parent = ?", "parent"),
        ("SELECT id FROM item WHERE note = ? AND removed = 0", ""),
        ("SELECT id FROM summary WHERE note = ?", ""),
        ("SELECT id FROM checkpoint WHERE task = ?", ""),
        ("SELECT src FROM link WHERE dst = ?", "dst"),
    ),
    "entity": (
        ("SELECT id FROM note WHERE entity = ?", "entity"),
        ("SELECT id FROM entity WHERE parent = ?", "parent"),
        ("SELECT src FROM link WHERE dst = ?", "dst"),
    ),
    "project": (
        ("SELECT id FROM note WHERE project = ?", "project"),
        ("SELECT id FROM entity WHERE project = ?", "project"),
        ("SELECT id FROM checks WHERE project = ?", "project"),
        ("SELECT id FROM checkpoint WHERE project = ?", "project"),
    ),
}
_NAMED: Final = 20
# What only one record may have at a time.
_ALONE: Final[Mapping[str, tuple[str, ...]]] = {
    "entity": ("project", "type", "key"),
    "summary": ("note",),
    "checks": ("project", "type", "filter"),
    "project": ("name",),
}


def on_record(source: Source, of: str, record: int) -> list[int]:
    """The events by which other records stand on one."""
    found = []
    for sql, field in _STANDS.get(of, ()):
        for (other,) in source.rows(f"{sql} LIMIT {_NAMED}", (record,)):
            found.append(_since(source, other, field, record))
    return found


def _since(source: Source, record: int, field: str, target: int) -> int:
    """The event by which a record came to stand on another: the last that set the field, or that made the record be there."""
    kinds = source.binding.ledger.kinds
    for event in reversed(list(events_of(source, kinds, record))):
        payload = event.payload or {}
        given = {**payload, **payload.get("set", {}), **payload.get("state", {})}
        there_again = given.get("removed") is False or (event.kind.endswith(RESTATED) and undoes(event) is not None)
        if there_again or (field and given.get(field) == target):
            return event.seq
    return record


def reappearing(unit: Unit, event: Event, row: Mapping[str, Any]) -> None:
    """Refuse that a record comes back without what it stood on, or beside another that took its place.

    Raises:
        UndoBlocked: It would.
    """
    _there(unit, event, row)
    _alone(unit, event, row)


def restoring(unit: Unit, event: Event, payload: Mapping[str, Any]) -> None:
    """Refuse that fields are set back to what cannot be any more.

    Raises:
        UndoBlocked: The payload names a record that is gone, a key that another has, or a place that is none.
    """
    given = payload.get("set", {})
    _there(unit, event, given)
    if event.kind.endswith(".unlinked"):
        _linked(unit, event, payload)
    alone = _ALONE.get(event.type, ())
    if any(name in given for name in alone):
        now = unit.one(f"SELECT id, {', '.join(alone)} FROM {event.type} WHERE id = ?", (event.record,))
        _alone(unit, event, {**dict(zip(alone, now[1:], strict=True)), **given})
    if event.type == "note" and "parent" in given:
        _place(unit, event, given["parent"])
    if event.type == "entity" and given.get("parent") is not None:
        _entity_place(unit, event, given["parent"])


# Records that stand together with one of a type, and in another project than it.
_APART: Final[Mapping[str, tuple[str, ...]]] = {
    "note": (
        "SELECT other.id FROM note AS own JOIN note AS other ON other.id = own.parent OR other.parent = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM note AS own JOIN entity AS other ON other.id = own.entity"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM note AS own JOIN checkpoint AS other ON other.task = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM note AS own JOIN session AS other ON other.task = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
    ),
    "entity": (
        "SELECT other.id FROM entity AS own JOIN session AS other ON other.entity = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM entity AS own JOIN entity AS other ON other.id = own.parent OR other.parent = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM entity AS own JOIN note AS other ON other.entity = own.id"
        " WHERE own.id = ? AND other.project <> own.project",
    ),
    "session": (
        "SELECT other.id FROM session AS own JOIN note AS other ON other.id = own.task"
        " WHERE own.id = ? AND other.project <> own.project",
        "SELECT other.id FROM session AS own JOIN entity AS other ON other.id = own.entity"
        " WHERE own.id = ? AND other.project <> own.project",
    ),
    "checkpoint": (
        "SELECT other.id FROM checkpoint AS own JOIN note AS other ON other.id = own.task"
        " WHERE own.id = ? AND other.project <> own.project",
    ),
}


def in_one_project(unit: Unit, event: Event) -> None:
    """At the end of an undo: refuse that a record was left in another project than what it stands together with.

    Raises:
        UndoBlocked: Only a part of a merge was to be taken back.
    """
    payload = event.payload or {}
    if "project" not in payload.get("set", {}) and not event.kind.endswith(REMOVALS):
        return
    for sql in _APART.get(event.type, ()):
        row = unit.row(f"{sql} LIMIT 1", (event.record,))
        if row is not None:
            raise _refused(
                event,
                f"#{event.record} would be in another project than #{row[0]}",
                why="They stand together, and a merge moved both",
                next="Undo all events of the merge together",
            )


def _there(unit: Unit, event: Event, values: Mapping[str, Any], points: Mapping[str, str] | None = None) -> None:
    """Refuse values that name a record which is gone."""
    for name, of in (POINTS.get(event.type, {}) if points is None else points).items():
        target = values.get(name)
        if target is None or unit.row(f"SELECT 1 FROM {of} WHERE id = ?", (target,)) is not None:
            continue
        row = unit.row("SELECT seq, kind FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (target,))
        again = row is not None and row[1].endswith(REMOVALS)
        raise _refused(
            event,
            f"#{target} is no more",
            why=f"It was the record's {name}",
            next=f"Undo event {row[0]} first, which took it away" if again and row is not None else "",
            events=() if row is None else (row[0],),
        )


def _alone(unit: Unit, event: Event, values: Mapping[str, Any]) -> None:
    """Refuse values that another record has by now."""
    names = _ALONE.get(event.type)
    if names is None:
        return
    condition = " AND ".join(f"{name} IS ?" for name in names)
    row = unit.row(
        f"SELECT id, revision FROM {event.type} WHERE {condition} AND id <> ?",
        (*(values[name] for name in names), event.record),
    )
    if row is not None:
        raise _refused(
            event,
            f"#{row[0]} has taken its place",
            why=f"Only one record may have this {' and '.join(names)}",
            events=(row[1],),
        )


def _linked(unit: Unit, event: Event, link: Mapping[str, Any]) -> None:
    """Refuse a link to a record that is gone, or one that would close a circle."""
    _there(unit, event, {"dst": link["dst"]}, {"dst": event.type})
    ordered = event.type == "note" and link["kind"] in ("depends_on", "supersedes")
    if ordered and reaches(unit, link["dst"], event.record, link["kind"]):
        raise _refused(event, why=f"Its {link['kind']} would close a circle")


def _place(unit: Unit, event: Event, parent: int | None) -> None:
    """Refuse a place in the tree of notes that a move could not reach either."""
    kind, project = unit.one("SELECT kind, project FROM note WHERE id = ?", (event.record,))
    try:
        tree.admit_move(unit, event.record, kind, parent, project)
    except (Conflict, LimitExceeded, InvalidInput) as error:
        raise _refused(event, error.what, why=error.why) from error


def _entity_place(unit: Unit, event: Event, parent: int) -> None:
    """Refuse a place beneath the entity itself."""
    if event.record in (parent, *tree.ancestors(unit, parent, "entity")):
        raise _refused(event, why="It would put an entity beneath itself")


def _refused(event: Event, what: str = "", *, why: str, next: str = "", events: tuple[int, ...] = ()) -> UndoBlocked:
    end = f": {what}" if what else ""
    return UndoBlocked(
        f"Event {event.seq} ({event.kind} #{event.record}) cannot be undone{end}", why=why, next=next, events=events
    )
