"""The events of one store as events of another: other ids, the same records.

A copied event says the same of other ids. Seqs that it names stand for events of the first store: each becomes that of
the last copied event up to it, so that what was later stays later. A place among siblings is a number between the seqs of
their creations: it becomes the number in the same part of the way between the new ones.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from typing import Any, Final

from agentmem.log.canonical import plain
from agentmem.past.footprint import as_set
from agentmem.records import validate, vocabulary
from agentmem.records.session_rows import COMPACTED
from agentmem.records.whole import POINTS
from agentmem.types import UNTRUSTED, Event, Origin, RecordType

__all__ = ["Renumbering", "changes", "creation"]

_SEQS: Final = ("changed", "touched")  # columns of a state that name events
_MARK_SEQ, _MARK_ORIGIN = 4, 7  # places in the row of a mark
_EVENT: Final = re.compile(r"#?([1-9][0-9]{0,18})", re.ASCII)
_DATED: Final = frozenset(("note.added", "checkpoint.written", "session.created", "message.added"))


class Renumbering:
    """Which record and which event here stands for which of the file.

    Attributes:
        to: The record here of each record of the file.
        keys: The key that an entity of the file has here.
        events: Of what is in `to` the events of sessions.
        project: Where the records go.
    """

    def __init__(self, store: str, project: int, floor: Origin) -> None:
        """Begin.

        Args:
            store: The id of the store that the file is of.
            project: Where the records go.
            floor: No text is more trusted than this.
        """
        self.to: dict[int, int] = {}
        self.keys: dict[int, str] = {}
        self._store = store
        self.project = project
        self._floor: Origin = floor
        self.events: dict[int, int] = {}
        self._old: list[int] = []
        self._new: list[int] = []

    def took(self, old: int, new: int) -> None:
        """An event of the file was written here."""
        self._old.append(old)
        self._new.append(new)

    def origin(self, given: Origin) -> Origin:
        """Where a text comes from, no more trusted than all of the file."""
        return validate.less_trusted(given, self._floor)

    def payload(self, event: Event, upcoming: int) -> dict[str, Any] | None:
        """What an event of the file says here.

        Args:
            event: It, with a payload.
            upcoming: The seq that it will have here.

        Returns:
            The payload; None where nothing is left to say.
        """
        given = dict(event.payload or {})
        for name in ("copied", "copies"):  # where it came from before is of no concern here
            given.pop(name, None)
        of, kind = event.type, event.kind
        here = _Here(self, event, upcoming)
        given.pop("chain", None)  # what a fork began with has another chain here
        if "undoes" in given:
            undone = self._exactly(given.pop("undoes"))
            if undone is not None:
                given["undoes"] = undone
        if "touched" in given:
            given["touched"] = [[self.to[note], here.seq(seq)] for note, seq in given["touched"] if note in self.to]
        if kind.endswith((".linked", ".unlinked")):
            if given["dst"] not in self.to:
                return None
            given["dst"] = self.to[given["dst"]]
            self._lower(given)
        elif kind == "entity.marked":
            given["marks"] = {name: self._mark(mark, event.at) for name, mark in given["marks"].items()}
        elif "state" in given:
            given["state"] = self.state(event.type, event.record, given["state"], here)
            given["copied"] = [self._store, event.record]
        elif "set" in given:
            fields = here.fields(given["set"], cleared=True)
            if of == "item" and fields.get("done"):
                fields.setdefault("done_at", event.at)
            if given["set"] and not fields and not given.keys() & {"attrs", "removed"}:
                return None
            given["set"] = fields
        elif event.record == event.seq:
            if kind == "message.added":
                spoken = here.spoken(given)
                if spoken is None:
                    return None
                given = spoken
            else:
                given = here.fields(given, cleared=False)
            if of == "entity":
                given["key"] = self.keys[event.record]
            if kind in _DATED:
                given.setdefault("dated", event.at)
            given["copied"] = [self._store, event.record]
        return given

    def state(self, of: RecordType, record: int, given: Mapping[str, Any], here: _Here) -> dict[str, Any]:
        """A whole row of the file as a row here."""
        row = here.fields(given, cleared=True)
        for name in _SEQS:
            if name in given:
                row[name] = here.seq(given[name])
        if "project" in given:
            row["project"] = self.project
        if of == "entity":
            row["key"] = self.keys[record]
            row["marks"] = {name: self._mark_row(mark, here) for name, mark in given.get("marks", {}).items()}
        if of in ("note", "checkpoint") and given.get("dated") is None:
            row["dated"] = given.get("created_at", given.get("at"))
        return row

    def _mark(self, mark: Mapping[str, Any], at: int) -> dict[str, Any]:
        made = {"at": at, **mark}
        self._lower(made)
        return made

    def _mark_row(self, mark: list[Any], here: _Here) -> list[Any]:
        made = list(mark)
        made[_MARK_SEQ] = here.seq(mark[_MARK_SEQ])
        made[_MARK_ORIGIN] = self.origin(mark[_MARK_ORIGIN])
        return made

    def _lower(self, given: dict[str, Any]) -> None:
        if "origin" in given:
            given["origin"] = self.origin(given["origin"])
        if self._floor in UNTRUSTED:
            # Whoever confirmed it did so for another store.
            for name in ("confirmed_at", "confirmed_by"):
                given.pop(name, None)

    def _exactly(self, old: int) -> int | None:
        place = bisect_right(self._old, old) - 1
        return self._new[place] if place >= 0 and self._old[place] == old else None


class _Here:
    """One event on its way: what its numbers become."""

    def __init__(self, numbers: Renumbering, event: Event, upcoming: int) -> None:
        self._numbers = numbers
        self._event = event
        self._upcoming = upcoming

    def seq(self, old: int) -> int:
        """The event here that stands for one of the file, or the last one before it that was copied."""
        numbers = self._numbers
        if old >= self._event.seq:
            return self._upcoming
        place = bisect_right(numbers._old, old) - 1
        return numbers._new[place] if place >= 0 else min(numbers._new[:1], default=self._upcoming)

    def fields(self, given: Mapping[str, Any], *, cleared: bool) -> dict[str, Any]:
        """Fields of a payload or a row with the ids of here.

        Args:
            given: The fields.
            cleared: What points at a record that is not here becomes nothing, instead of being left out.
        """
        made = dict(given)
        for name in POINTS[self._event.type]:
            if name == "project":
                made.pop(name, None)
            elif made.get(name) is not None:
                there = self._numbers.to.get(made[name])
                if there is None and not cleared:
                    del made[name]
                else:
                    made[name] = there
        if self._event.type == "entity":
            made.pop("key", None)
        if "position" in made:
            made["position"] = self._position(made["position"])
        if "forked_at" in made:
            self._forked(made)
        if self._event.type == "note" and made.get("source"):
            made["source"] = self._source(made["source"])
        self._numbers._lower(made)
        return made

    def _forked(self, made: dict[str, Any]) -> None:
        """A fork of what is not here begins with nothing."""
        if made.get("forked_from") is None or made["forked_at"] is None:
            made.pop("forked_from", None)
            del made["forked_at"]
        else:
            made["forked_at"] = self.seq(made["forked_at"])

    def _source(self, source: str) -> str:
        """The event of a session that a note rests on."""
        named = _EVENT.fullmatch(source)
        there = None if named is None else self._numbers.events.get(int(named[1]))
        return source if there is None else f"#{there}"

    def spoken(self, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """An event of a session with the ids of here; None where it answers one that is not here."""
        events = self._numbers.events
        body, made = dict(given["body"]), dict(given)
        for name in vocabulary.REFERENCES:
            if name in body:
                if body[name] not in events:
                    return None
                body[name] = events[body[name]]
        if isinstance(body.get("stop_reason"), dict) and "event_ids" in body["stop_reason"]:
            waits = body["stop_reason"]["event_ids"]
            body["stop_reason"] = {
                **body["stop_reason"],
                "event_ids": [events[each] for each in waits if each in events],
            }
        if given["type"] == COMPACTED:
            # Its head names what there is by the ids of the file.
            body = {}
        if given["type"] == "x.summary" and type(body.get("until")) is int:
            body["until"] = self.seq(body["until"])
        if "target" in made:
            made["target"] = events[made["target"]]
        return {**made, "body": body}

    def _position(self, old: float) -> float:
        numbers = self._numbers
        place = bisect_right(numbers._old, old) - 1
        if place < 0:
            first = min(numbers._old[:1], default=self._event.seq)
            return float(min(numbers._new[:1], default=self._upcoming)) + (old - first)
        low, new_low = numbers._old[place], numbers._new[place]
        high, new_high = self._event.seq, self._upcoming
        if place + 1 < len(numbers._old):
            high, new_high = numbers._old[place + 1], numbers._new[place + 1]
        if old >= high:
            return float(new_high)
        return new_low + (old - low) / (high - low) * (new_high - new_low)


def creation(of: str, state: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The event that makes a record whose own creation was erased, out of the state it was stated anew in.

    Nothing that points at another record: the state itself follows later, and has it.

    Returns:
        The kind and its payload, as the file would have had them.
    """
    row = {name: value for name, value in state.items() if value is not None}
    match of:
        case "note":
            names = "kind title status body confidence basis why dated source digest"
            made = _of(row, names) | {"tags": plain(row["tags"]), "pinned": bool(row["pinned"])}
            if "scope" in row:
                made["scope"] = plain(row["scope"])
            return "note.added", made
        case "entity":
            return "entity.added", _of(row, "type key status confidence") | {"attrs": plain(row["attrs"])}
        case "item":
            return "item.added", _of(row, "note number text") | {"done": bool(row["done"])}
        case "summary":
            return "summary.written", _of(row, "note work result confidence basis")
        case "checkpoint":
            return "checkpoint.written", _of(row, "task text dated")
        case "session":
            made = _of(row, "title task entity parent forked_from forked_at compacted")
            return "session.created", made | {name: plain(row[name]) for name in ("agent", "metadata") if name in row}
        case _:
            where = {"where": row["filter"]} if row["filter"] else {}
            return "checks.declared", {"type": row["type"], "names": plain(row["names"]), **where}


# Columns that the history of the record here decides.
_OWN: Final = frozenset(
    ("project", "created_at", "updated_at", "changed", "touched", "number", "filter", "type", "kind")
)
_OF_SESSION: Final = frozenset(("forked_from", "forked_at", "compacted", "author", "run"))


def changes(of: str, now: Mapping[str, Any], then: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events that bring a record from one state to another.

    Args:
        of: Its type.
        now: What it is, as `agentmem.records.whole.state` gives it.
        then: What it is to be.
    """
    own = _OWN | _OF_SESSION if of == "session" else _OWN
    names = [name for name in then if name in now and name not in own and now[name] != then[name]]
    fields = {name: as_set(name, then[name]) for name in names if name not in ("attrs", "marks")}
    if fields.keys() & {"done_by", "done_at"}:  # who ticked an item, and when, is set with the tick
        fields = {"done": bool(then["done"]), "done_by": then["done_by"], "done_at": then["done_at"], **fields}
    payload: dict[str, Any] = {"set": fields} if fields else {}
    if "attrs" in names:
        old, new = plain(now["attrs"]), plain(then["attrs"])
        payload["attrs"] = {name: new[name] for name in new if name not in old or old[name] is not new[name]}
        payload["removed"] = sorted(old.keys() - new.keys())
    if payload and of != "checkpoint":
        yield f"{of}.changed", payload
    if "marks" in names:
        made = {}
        for name, row in then["marks"].items():
            if _without_seq(now["marks"].get(name)) != _without_seq(row):
                made[name] = {part: row[place] for place, part in _MARK.items() if row[place] is not None}
                if "value" in made[name]:
                    made[name]["value"] = plain(made[name]["value"])
        yield "entity.marked", {"marks": made, "removed": sorted(now["marks"].keys() - then["marks"].keys())}


_MARK: Final = {0: "result", 1: "value", 2: "detail", 3: "at", 5: "author", 6: "run", 7: "origin"}


def _without_seq(row: list[Any] | None) -> list[Any] | None:
    return None if row is None else [*row[:_MARK_SEQ], *row[_MARK_SEQ + 1 :]]


def _of(row: Mapping[str, Any], names: str) -> dict[str, Any]:
    return {name: row[name] for name in names.split() if name in row}
