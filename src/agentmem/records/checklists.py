"""Checklists: the ordered items of one note. Item 3 of note 14 is `14.3` for ever."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import apsw

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, NotFound, shown
from agentmem.log.kinds import EventKind
from agentmem.records import claims, tree, validate
from agentmem.records.base import Namespace, Row, Source, Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import identify, item_id, note_id
from agentmem.records.standing import standing
from agentmem.types import Event, Item, Ref, Written, WrittenMany

COLUMNS: Final = "id, note, number, text, done, done_by, done_at, origin, revision"


class Checklists(Namespace):
    """`store.checklists`: add, done, undone, edit, move, remove, items."""

    __slots__ = ()

    def add(self, note: Ref, *texts: str, done: bool = False, request_id: str | None = None) -> WrittenMany:
        """Add items at the end of a note's checklist, all or none."""
        validate.flag(done, "done")

        def command(unit: Unit) -> WrittenMany:
            found = note_id(unit, note)
            ids = add(unit, found, [(text, done) for text in texts])
            return WrittenMany(tuple(ids), created=len(ids), transit=unit.transit)

        return self._binding.run("checklists.add", {"note": note, "texts": texts, "done": done}, request_id, command)

    def done(self, note: Ref, *items: int | Ref, request_id: str | None = None) -> WrittenMany:
        """Tick items; one that is ticked already keeps who ticked it.

        Args:
            note: The note.
            items: Numbers within its checklist, or items.
            request_id: Makes a retry safe.
        """
        return self._tick("checklists.done", note, items, True, request_id)

    def undone(self, note: Ref, *items: int | Ref, request_id: str | None = None) -> WrittenMany:
        """Take ticks back."""
        return self._tick("checklists.undone", note, items, False, request_id)

    def _tick(
        self, verb: str, note: Ref, items: tuple[int | Ref, ...], done: bool, request_id: str | None
    ) -> WrittenMany:
        def command(unit: Unit) -> WrittenMany:
            ids = [_of_note(unit, note, item) for item in items]
            changed = sum(tick(unit, found, done) for found in ids)
            return WrittenMany(tuple(ids), changed=changed, unchanged=len(ids) - changed, transit=unit.transit)

        return self._binding.run(verb, {"note": note, "items": items}, request_id, command)

    def edit(
        self, item: Ref, text: str, *, expected_revision: int | None = None, request_id: str | None = None
    ) -> Written:
        """Change an item's text."""
        arguments = {"item": item, "text": text, "expected_revision": expected_revision}
        return self._binding.run(
            "checklists.edit", arguments, request_id, lambda unit: edit(unit, item, text, expected_revision)
        )

    def move(
        self, item: Ref, *, before: Ref | None = None, after: Ref | None = None, request_id: str | None = None
    ) -> Written:
        """Place an item before or after another of its list; at the end if neither is given."""
        arguments = {"item": item, "before": before, "after": after}
        return self._binding.run(
            "checklists.move", arguments, request_id, lambda unit: _move(unit, item, before, after)
        )

    def remove(self, note: Ref, *items: int | Ref, request_id: str | None = None) -> WrittenMany:
        """Take items off the list. Their numbers are never given again, their texts stay in the log."""

        def command(unit: Unit) -> WrittenMany:
            ids = [_of_note(unit, note, item) for item in items]
            for found in dict.fromkeys(ids):
                remove(unit, found)
            changed = len(set(ids))
            return WrittenMany(tuple(ids), changed=changed, unchanged=len(ids) - changed, transit=unit.transit)

        return self._binding.run("checklists.remove", {"note": note, "items": items}, request_id, command)

    def items(
        self, note: Ref, *, done: bool | None = None, limit: int = limits.PAGE_MAX, after: Ref | None = None
    ) -> tuple[Item, ...]:
        """The items of a note in order.

        Args:
            note: The note.
            done: Only ticked ones, or only others.
            limit: At most so many.
            after: Continue after this item.
        """
        validate.page(limit)
        if done is not None:
            validate.flag(done, "done")
        with self._binding.reading() as view:
            last = None if after is None else item_id(view, after)
            return of_note(view, note_id(view, note), done=done, limit=limit, after=last)


def item(row: Row) -> Item:
    """The item of a row of `COLUMNS`."""
    fields: Row = (*row[:4], bool(row[4]), *row[5:])
    return Item(*fields)


def of_note(
    source: Source, note: int, *, done: bool | None = None, limit: int = limits.PAGE_MAX, after: int | None = None
) -> tuple[Item, ...]:
    """The items of a note in order."""
    sql = f"SELECT {COLUMNS} FROM item WHERE note = ? AND removed = 0"
    values: list[Any] = [note]
    if done is not None:
        sql += " AND done = ?"
        values.append(int(done))
    if after is not None:
        sql += " AND (position, id) > (SELECT position, id FROM item WHERE id = ?)"
        values.append(after)
    return tuple(item(row) for row in source.rows(f"{sql} ORDER BY position, id LIMIT ?", [*values, limit]))


def add(unit: Unit, note: int, entries: Iterable[tuple[str, bool]]) -> list[int]:
    """Add items at the end of a note's checklist; each is a text and whether it is ticked."""
    claims.guard(unit, note)
    project = standing(unit, "note", note).project
    number, present = unit.one(
        "SELECT coalesce(max(number), 0), count(*) FILTER (WHERE removed = 0) FROM item WHERE note = ?", (note,)
    )
    ids = []
    for given, done in entries:
        number += 1
        payload = {"note": note, "number": number, "text": validate.line(given, "item", limits.ITEM_CHARS)}
        if validate.flag(done, "done"):
            payload["done"] = True
        ids.append(unit.append("item.added", payload, project=project).seq)
    if present + len(ids) > limits.ITEMS_PER_CHECKLIST:
        raise LimitExceeded(
            f"The checklist would have {present + len(ids)} items, {limits.ITEMS_PER_CHECKLIST} at most"
        )
    return ids


def tick(unit: Unit, found: int, done: bool) -> bool:
    """Tick an item or take the tick back; says whether that changed anything."""
    (now,) = unit.one("SELECT done FROM item WHERE id = ?", (found,))
    if bool(now) == done:
        return False
    unit.append("item.changed", {"set": {"done": done}}, record=found, project=_guarded(unit, found))
    return True


def remove(unit: Unit, found: int) -> None:
    """Take an item off its list."""
    unit.append("item.removed", {}, record=found, project=_guarded(unit, found))


def edit(unit: Unit, ref: Ref, given: str, expected: int | None) -> Written:
    """Change an item's text."""
    found = item_id(unit, ref)
    now, origin, revision = unit.one("SELECT text, origin, revision FROM item WHERE id = ?", (found,))
    text = validate.line(given, "item", limits.ITEM_CHARS)
    expect(revision, expected, found)
    if text == now:
        return Written(found, revision, transit=unit.transit)
    changes = {"text": text} | unit.lowered(origin)
    event = unit.append("item.changed", {"set": changes}, record=found, project=_guarded(unit, found))
    return Written(found, event.seq, ("text",), transit=unit.transit)


def _move(unit: Unit, ref: Ref, before: Ref | None, after: Ref | None) -> Written:
    if before is not None and after is not None:
        raise InvalidInput("before= and after= exclude each other")
    found = item_id(unit, ref)
    owner = _note_of(unit, found)
    sql = "SELECT id, position FROM item WHERE note = ? AND removed = 0 ORDER BY position, id"
    everyone = unit.rows(sql, (owner,))
    others = [row for row in everyone if row[0] != found]
    neighbour = before if before is not None else after
    index = len(others)
    if neighbour is not None:
        beside = item_id(unit, neighbour)
        order = [row[0] for row in others]
        if beside not in order:
            raise InvalidInput(f"Item #{beside} is not another item of note #{owner}")
        index = order.index(beside) + (after is not None)
    if [row[0] for row in everyone].index(found) == index:
        return Written(found, standing(unit, "item", found).revision, transit=unit.transit)
    project = _guarded(unit, found)
    place = tree.place_at(unit, "item.changed", others, index, project)
    event = unit.append("item.changed", {"set": {"position": place}}, record=found, project=project)
    return Written(found, event.seq, ("position",), transit=unit.transit)


def _of_note(unit: Unit, note: Ref, given: int | Ref) -> int:
    """The id of an item of this note: its number, or the item itself."""
    owner = note_id(unit, note)
    if type(given) is int:
        sql = "SELECT id FROM item WHERE note = ? AND number = ? AND removed = 0"
        row = unit.row(sql, (owner, given)) if 0 < given <= limits.INT_MAX else None
        if row is None:
            raise NotFound(f"Note #{owner} has no item {shown(given)}", next=_numbers(unit, owner))
        return int(row[0])
    found, _ = identify(unit, given)
    if _note_of(unit, item_id(unit, given)) != owner:
        raise InvalidInput(f"Item #{found} is not of note #{owner}")
    return found


def _numbers(unit: Unit, note: int) -> str:
    numbers = [row[0] for row in unit.rows("SELECT number FROM item WHERE note = ? AND removed = 0 LIMIT 20", (note,))]
    return "It has " + ", ".join(map(str, numbers)) if numbers else "It has no checklist"


def _note_of(unit: Unit, found: int) -> int:
    """The note of an item."""
    return unit.number("SELECT note FROM item WHERE id = ?", (found,))


def _guarded(unit: Unit, found: int) -> int:
    """The project of an item, once nobody else is found to hold it or its note."""
    claims.guard(unit, found)
    claims.guard(unit, _note_of(unit, found))
    return standing(unit, "item", found).project


def _apply_added(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {"note": 0, "number": event.seq} if event.payload is None else event.payload
    done = bool(payload.get("done", False))
    connection.execute(
        "INSERT INTO item (id, note, number, text, done, done_by, done_at, position, origin, removed, revision)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?)",
        (
            event.seq, payload["note"], payload["number"], payload.get("text"), int(done),
            event.author if done else None, event.at if done else None, float(event.seq), event.origin, event.seq,
        ),
    )  # fmt: skip
    connection.execute(
        "UPDATE note SET open_items = open_items + ?, touched = ? WHERE id = ?",
        (int(not done), event.seq, payload["note"]),
    )


def count(connection: apsw.Connection, note: int) -> None:
    """Count the open items of a note anew."""
    connection.execute(
        """
        UPDATE note SET open_items = (SELECT count(*) FROM item WHERE item.note = note.id AND done = 0 AND removed = 0)
        WHERE id = ?
        """,
        (note,),
    )


_TOUCH = "UPDATE note SET touched = ? WHERE id = (SELECT note FROM item WHERE id = ?)"
_COUNT = """
UPDATE note SET open_items = (SELECT count(*) FROM item WHERE item.note = note.id AND done = 0 AND removed = 0),
                touched = ?
WHERE id = (SELECT note FROM item WHERE id = ?)
"""


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    values: dict[str, Any] = {} if event.payload is None else event.payload["set"]
    columns: list[str] = ["revision = ?"]
    bound: list[Any] = [event.seq]
    for name in ("text", "position", "origin"):
        if name in values:
            columns.append(f"{name} = ?")
            bound.append(values[name])
    if "removed" in values:
        columns.append("removed = ?")
        bound.append(int(values["removed"]))
    if "done" in values:
        done = bool(values["done"])
        columns += ["done = ?", "done_by = ?", "done_at = ?"]
        # Whoever takes an untick back gives the tick its first maker again.
        bound += [
            int(done),
            values.get("done_by", event.author if done else None),
            values.get("done_at", event.at if done else None),
        ]
    connection.execute(f"UPDATE item SET {', '.join(columns)} WHERE id = ?", [*bound, event.record])
    counted = "done" in values or "removed" in values
    connection.execute(_COUNT if counted else _TOUCH, (event.seq, event.record))


def _apply_removed(connection: apsw.Connection, event: Event) -> None:
    connection.execute("UPDATE item SET removed = 1, revision = ? WHERE id = ?", (event.seq, event.record))
    connection.execute(_COUNT, (event.seq, event.record))


EVENTS = (
    EventKind("item.added", "item", _apply_added, creates=True),
    EventKind("item.changed", "item", _apply_changed),
    EventKind("item.removed", "item", _apply_removed),
)
PROJECTIONS = ("item",)
