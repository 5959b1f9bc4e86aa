"""From what a caller names a record by to its id: an id, `"57"`, a value with an id, `"type:key"`, `"14.3"`."""

from __future__ import annotations

import re
from typing import Final

from agentmem import limits
from agentmem.errors import Closed, Corrupt, InvalidInput, NotFound, shown
from agentmem.log.ledger import refuse_void
from agentmem.records.base import Source
from agentmem.records.validate import nearest
from agentmem.types import Checkpoint, Entity, HasId, Item, Note, RecordType, Ref, Summary

_ID = re.compile(r"#?([1-9][0-9]{0,18})", re.ASCII)
_ITEM = re.compile(r"#?([1-9][0-9]{0,18})\.([1-9][0-9]{0,9})", re.ASCII)
_ENTITY = re.compile(r"([^\s:]{1,48}):(.+)", re.DOTALL)


def identify(source: Source, ref: Ref) -> tuple[int, RecordType]:
    """The id of the record that `ref` names, and its type.

    Raises:
        NotFound: There is none, or it was purged; a number that is an event's says whose.
        InvalidInput: It is no way to name a record.
        Closed: It was read or made in a transaction that was rolled back.
        OutOfReach: It is about another subject than the view.
    """
    found: tuple[int, RecordType] | None = None
    if type(ref) is int:
        found = _by_id(source, ref)
    elif isinstance(ref, str):
        found = _by_text(source, ref)
    elif isinstance(ref, HasId):
        refuse_void(ref)
        if type(ref.id) is int:
            if isinstance(ref, _Read):
                _refuse_undone(source, ref)
            found = _by_id(source, ref.id)
    if found is not None:
        if source.binding.subject is not None:
            from agentmem.records.subjects import refuse_hidden

            refuse_hidden(source, *found)
        return found
    raise InvalidInput(
        f"{shown(ref)} names no record", next="Give an id, a record, 'type:key' for an entity, '14.3' for an item"
    )


_Read = Note | Entity | Item | Summary | Checkpoint
_EVENT = "SELECT record, at FROM event WHERE seq = ?"


def _refuse_undone(source: Source, value: _Read) -> None:
    """Refuse a value that was read in a transaction which was rolled back: its id may now be another record's.

    Its revision must be an event of the record, and what never changes of a record must be as it is.
    """
    seq = value.id if isinstance(value, Checkpoint) else value.revision
    event = source.row(_EVENT, (seq,)) if type(seq) is int and 0 < seq <= limits.INT_MAX else None
    if event is None and source.binding.ledger.past:
        return  # read later than this view of the past looks
    same = event is not None and event[0] == value.id
    if same and event is not None:
        match value:
            case Note() | Entity():
                same = source.row(_EVENT, (value.id,)) == (value.id, value.created_at)
            case Item():
                row = source.row("SELECT note, number, revision, text FROM item WHERE id = ?", (value.id,))
                same = row is not None and row[:2] == (value.note, value.number)
                same = same and row is not None and (row[2] != seq or row[3] in (value.text, None))
            case Summary() | Checkpoint():
                same = event[1] == value.at
    if not same:
        raise Closed(
            f"The value of #{value.id} is of a transaction that was rolled back, or of another store",
            why="Its id may by now belong to another record",
            next="Read the record again",
        )


def note_id(source: Source, ref: Ref, *, kinds: tuple[str, ...] = ()) -> int:
    """The id of the note that `ref` names.

    Args:
        source: Where to look.
        ref: Names a note.
        kinds: The kinds it may be of; any if empty.
    """
    found, kind = identify(source, ref)
    if kind != "note":
        raise InvalidInput(f"{_shown(ref)} is not a note but a record of type {kind}")
    if kinds:
        row = source.row("SELECT kind FROM note WHERE id = ?", (found,))
        if row is not None and row[0] not in kinds:
            raise InvalidInput(f"#{found} is a {row[0]}", why="Wanted here: " + " or ".join(kinds))
    return found


def entity_id(source: Source, ref: Ref) -> int:
    """The id of the entity that `ref` names."""
    found, kind = identify(source, ref)
    if kind != "entity":
        raise InvalidInput(f"{_shown(ref)} is not an entity but a record of type {kind}")
    return found


def item_id(source: Source, ref: Ref) -> int:
    """The id of the checklist item that `ref` names."""
    found, kind = identify(source, ref)
    if kind != "item":
        raise InvalidInput(
            f"{_shown(ref)} is not a checklist item but a record of type {kind}",
            next="Write '14.3' for item 3 of note 14",
        )
    return found


def session_id(source: Source, ref: Ref) -> int:
    """The id of the session that `ref` names."""
    found, kind = identify(source, ref)
    if kind != "session":
        raise InvalidInput(f"{_shown(ref)} is not a session but a record of type {kind}")
    return found


def _by_text(source: Source, ref: str) -> tuple[int, RecordType]:
    text = ref.strip()
    if whole := _ID.fullmatch(text):
        return _by_id(source, int(whole[1]))
    if part := _ITEM.fullmatch(text):
        note, number = int(part[1]), int(part[2])
        sql = "SELECT id, removed FROM item WHERE note = ? AND number = ?"
        row = source.row(sql, (note, number)) if note <= limits.INT_MAX else None
        if row is None:
            raise NotFound(f"There is no item {text}", next=f"See the checklist of note {part[1]}")
        if row[1]:
            raise _off_list(source, row[0], f"Item {text}")
        return row[0], "item"
    if named := _ENTITY.fullmatch(text):
        return _by_key(source, named[1], named[2]), "entity"
    raise InvalidInput(f"{shown(ref)} names no record", next="Give an id, 'type:key' for an entity, '14.3' for an item")


def _by_key(source: Source, kind: str, key: str) -> int:
    project = source.known_project
    row = source.row("SELECT id FROM entity WHERE project = ? AND type = ? AND key = ?", (project, kind, key.strip()))
    if row is not None:
        return int(row[0])
    seen = ""
    if source.binding.subject is not None:  # a hint names nothing that the view does not see
        from agentmem.records.subjects import condition

        seen = condition(source, "entity.id")
    some = f"SELECT key FROM entity WHERE project = ? AND type = ? {seen} LIMIT 500"
    keys = [found for (found,) in source.rows(some, (project, kind)) if found is not None]
    if near := nearest(key, keys):
        hint = f"Did you mean {kind}:{near}?"
    elif keys:
        hint = "List what there is with entities.query"
    else:
        every = f"SELECT DISTINCT type FROM entity WHERE project = ? {seen} LIMIT 20"
        types = [found for (found,) in source.rows(every, (project,))]
        hint = "Types there are: " + ", ".join(types) if types else "Add it with entities.put"
    raise NotFound(f"There is no entity {shown(f'{kind}:{key.strip()}')}", next=hint)


# What no record of a type is without; where it is missing the row is the stub of one whose text was purged, as a view of
# an earlier moment has it.
_TEXT: Final = {
    "note": "title", "entity": "key", "item": "text", "checkpoint": "text", "summary": "coalesce(work, result)",
    "checks": "names", "project": "name", "session": "id",
    "message": "nullif(gone, 1)",
}  # fmt: skip


def _by_id(source: Source, number: int) -> tuple[int, RecordType]:
    row = (
        source.row("SELECT record, type, payload IS NULL, kind FROM event WHERE seq = ?", (number,))
        if 0 < number <= limits.INT_MAX
        else None
    )
    if row is None:
        raise NotFound(f"There is no record #{shown(number)}")
    record, kind, erased, event = row
    if record != number:
        raise NotFound(
            f"#{number} is no record", why=f"Event {number} ({event}) changed record #{record}", next=f"Use #{record}"
        )
    removed, text = "removed" if kind == "item" else "0", _TEXT[kind]
    there = source.row(f"SELECT {removed}, {text} IS NULL FROM {kind} WHERE id = ?", (number,))
    if there is None or there[1]:
        raise gone(source, number, erased=bool(erased) or there is not None)
    if there[0]:
        raise _off_list(source, number, f"Item #{number}")
    return number, kind


def _off_list(source: Source, item: int, name: str) -> NotFound:
    """Why an item is not on its list: its creation was undone, or it was removed, by the last event of its own."""
    last = source.row(
        "SELECT seq, payload ->> '$.undoes' FROM event WHERE record = ? AND kind = 'item.removed' ORDER BY seq DESC LIMIT 1",
        (item,),
    )
    if last is None:
        return NotFound(f"{name} was removed from its checklist")
    if last[1] == item:
        return NotFound(
            f"{name} is no more: its creation was undone by event {last[0]}",
            next=f"To have it again undo event {last[0]}",
        )
    return NotFound(
        f"{name} was removed from its checklist by event {last[0]}", next=f"To have it again undo event {last[0]}"
    )


def gone(source: Source, number: int, *, erased: bool = False) -> NotFound:
    """Why a record that once was is there no more.

    Raises:
        Corrupt: It should be there: the table lacks it and no event says why.
    """
    last = source.row("SELECT seq, kind FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (number,))
    if erased or last is None or last[1].endswith(".forgotten"):
        return NotFound(f"#{number} was purged", why="Its text is gone for good")
    if last[1].endswith(".merged"):
        return NotFound(
            f"#{number} is part of another {last[1].partition('.')[0]} now", why=f"Event {last[0]} merged it"
        )
    if not last[1].endswith(".withdrawn"):
        raise Corrupt(
            f"#{number} is in the log but not in its table",
            next="Run verify(replay=True), and restore the latest backup that verifies",
        )
    return NotFound(
        f"#{number} is no more: its creation was undone by event {last[0]}",
        next=f"To have it again undo event {last[0]}",
    )


def recorded(source: Source, ref: Ref) -> tuple[int, RecordType]:
    """The id and type of a record that is there, was removed, undone or purged: whatever the log knows.

    Raises:
        NotFound: There never was one.
    """
    number = ref if type(ref) is int else None
    if isinstance(ref, str) and (whole := _ID.fullmatch(ref.strip())):
        number = int(whole[1])
    if isinstance(ref, HasId) and not isinstance(ref, str) and type(ref.id) is int:
        refuse_void(ref)
        number = ref.id
    if number is not None and 0 < number <= limits.INT_MAX:
        row = source.row("SELECT record, type FROM event WHERE seq = ?", (number,))
        if row is not None and row[0] == number:
            if isinstance(ref, _Read) and not _was_purged(source, number):
                _refuse_undone(source, ref)
            return number, row[1]
    if isinstance(ref, str) and (part := _ITEM.fullmatch(ref.strip())):
        note, number = int(part[1]), int(part[2])
        sql = "SELECT id FROM item WHERE note = ? AND number = ?"
        row = source.row(sql, (note, number)) if note <= limits.INT_MAX else None
        if row is not None:
            return row[0], "item"
    return identify(source, ref)


def _was_purged(source: Source, record: int) -> bool:
    row = source.row("SELECT kind FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (record,))
    return row is not None and row[0].endswith(".forgotten")


def _shown(ref: Ref) -> str:
    return f"#{ref.id}" if isinstance(ref, HasId) else shown(ref)
