"""Undo: new events that set each field back to what it was before an event.

An undo is refused where a later event set the same field, or where something stands on what would go; it names these
events. A later event that was itself taken back stands in nobody's way. The events of a run or request are taken back
from the newest to the oldest, so that none of them blocks another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded, NotFound, UndoBlocked, shown
from agentmem.log.canonical import plain
from agentmem.log.ledger import COLUMNS, decode
from agentmem.past.blocking import in_one_project, on_record, reappearing, restoring
from agentmem.past.event_kinds import CREATIONS, FORGOTTEN, REMOVALS, RESTATED, is_claim, undoes
from agentmem.past.folding import Scratch, State, events_of
from agentmem.past.footprint import EXISTENCE, Field, as_set, fields_set, meets, sets_text
from agentmem.past.revisions import states
from agentmem.records import claims, entity_rows, validate
from agentmem.records.base import Binding, Unit
from agentmem.records.standing import origin_of, project_of
from agentmem.types import UNTRUSTED, Event, Origin, Undone


class _RolledBackError(Exception):
    """Ends a dry run."""


def undo(
    binding: Binding,
    given: int | Iterable[int] | None,
    *,
    request: str | None,
    run: str | None,
    dry_run: bool,
    request_id: str | None,
) -> Undone:
    """The command behind `store.undo`."""
    if given is None and request is None and run is None:
        raise InvalidInput("Name what to undo", next="Give the seqs of events, or request=, or run=")
    if request is not None and run is not None:
        raise InvalidInput("request= and run= exclude each other", next="Give one of them")
    seqs = [] if given is None else _seqs(given)
    if request is not None:
        validate.label(request, "request", limits.REQUEST_ID_CHARS)
    validate.optional_label(run, "run")
    if binding.actor.origin in UNTRUSTED:
        raise InvalidInput(f"Text from {binding.actor.origin} undoes nothing", next="Undo as a user or an agent")

    def command(unit: Unit) -> Undone:
        label = ("request", request) if run is None else ("run", run)
        written = [] if label[1] is None else _written_under(unit, *label)
        chosen = {event.seq: event for event in (*written, *_events(unit, seqs))}
        ordered = [chosen[seq] for seq in sorted(chosen, reverse=True)]
        return _Undoing(unit, ordered, named=frozenset(seqs)).done()

    if not dry_run:
        arguments = {"events": seqs, "request": request, "run": run}
        return binding.run("undo", arguments, request_id, command)
    found: list[Undone] = []
    try:
        with binding.ledger.transaction() as tx:
            found.append(command(Unit(binding, tx)))
            raise _RolledBackError
    except _RolledBackError:
        (planned,) = found
        return Undone(planned.ids, changed=planned.changed, undone=planned.undone, passed_over=planned.passed_over)


def _seqs(given: int | Iterable[int]) -> list[int]:
    several = [given] if isinstance(given, int) else validate.batch(given, "events")
    for seq in several:
        validate.whole(seq, "event", 1, limits.INT_MAX)
    if not several:
        raise InvalidInput("No event to undo")
    return sorted(set(several), reverse=True)


def _events(unit: Unit, seqs: Iterable[int]) -> list[Event]:
    """The events of these seqs, the newest first."""
    found = []
    for seq in seqs:
        row = unit.row(f"SELECT {COLUMNS} FROM event WHERE seq = ?", (seq,))
        if row is None:
            raise NotFound(f"There is no event {seq}", next=f"The last one is {unit.seq}")
        found.append(decode(unit.connection, unit.binding.ledger.kinds, row))
    return found


def _written_under(unit: Unit, column: str, label: str | None) -> list[Event]:
    """The events of the project under a label of their header, the newest first."""
    sql = f"SELECT {COLUMNS} FROM event WHERE project = ? AND {column} = ? ORDER BY seq DESC LIMIT ?"
    rows = unit.rows(sql, (unit.known_project, label, limits.UNDO_EVENTS + 1))
    if not rows:
        raise NotFound(f"Nothing was written under the {column} {shown(label)} in this project")
    if len(rows) > limits.UNDO_EVENTS:
        raise LimitExceeded(
            f"The {column} wrote more than {limits.UNDO_EVENTS} events", next="Undo events by their seqs"
        )
    return [decode(unit.connection, unit.binding.ledger.kinds, row) for row in rows]


class _Undoing:
    """One undo at work.

    Args:
        unit: The transaction.
        chosen: The events to take back, the newest first.
        named: Those that were named one by one: where one cannot be undone it is an error. Others are passed over then.
    """

    def __init__(self, unit: Unit, chosen: list[Event], *, named: frozenset[int]) -> None:
        self._unit = unit
        self._kinds = unit.binding.ledger.kinds
        self._named = named
        self._chosen = chosen
        self._of_record: dict[int, list[Event]] = {}
        self._of_record_standing: dict[int, _Standing] = {}
        self._going: Set[int] = frozenset()
        self._before: dict[int, State | None] = {}
        self._undone: list[int] = []
        self._events: list[int] = []
        self._passed: list[int] = []

    def done(self) -> Undone:
        """Take them all back, or raise."""
        paired = self._paired()
        self._passed += sorted(paired, reverse=True)
        wanted = [event for event in self._chosen if event.seq not in paired and self._concerns(event)]
        self._refuse_blocked(wanted, paired)
        self._load(wanted)
        for event in wanted:
            # Once more: a redo that was just taken back leaves an undo by somebody else in force.
            if event.seq not in self._named and self._taken_back_by(event) is not None:
                self._passed.append(event.seq)
            else:
                self._undo(event)
        undone = set(self._undone)
        for event in wanted:
            if event.seq in undone:
                in_one_project(self._unit, event)
        records = dict.fromkeys(event.record for event in wanted if event.seq in undone)
        return Undone(
            tuple(records), changed=len(records), undone=tuple(self._undone), events=tuple(self._events),
            passed_over=tuple(self._passed), transit=self._unit.transit,
        )  # fmt: skip

    def _paired(self) -> set[int]:
        """Events of a run or request that it took back itself, with what did so: neither has an effect left."""
        chosen = {event.seq for event in self._chosen} - self._named
        paired: set[int] = set()
        for event in self._chosen:
            target = undoes(event)
            if (
                event.seq in chosen
                and target in chosen
                and event.seq not in paired
                and self._taken_back_by(event) is None
            ):
                paired |= {event.seq, target}
        return paired

    def _concerns(self, event: Event) -> bool:
        """Whether an undo concerns the event at all; says why not, where it was named."""
        by = self._taken_back_by(event)
        why = ""
        if is_claim(event.kind):
            why = "A claim is given back with release, not undone"
        elif event.type in _SPOKEN and not _moved(event):
            why = "What was said in a session stays said"
        elif event.type == "project" and not event.kind.endswith(REMOVALS) and self._holds_sessions(event):
            why = "Its sessions stay"
        elif event.kind.endswith(FORGOTTEN) or (event.kind.endswith(RESTATED) and undoes(event) is None):
            why = "A purge cannot be undone"
        elif self._purged(event.record):
            why = f"#{event.record} was purged"
        elif by is not None and event.seq not in self._named:
            self._passed.append(event.seq)
            return False
        if not why:
            return True
        if event.seq in self._named:
            raise InvalidInput(f"Event {event.seq} ({event.kind}) cannot be undone", why=why)
        self._passed.append(event.seq)
        return False

    def _holds_sessions(self, event: Event) -> bool:
        """Whether sessions are in a project that would not be there any more."""
        ends = EXISTENCE in (fields_set(event) or ())
        return ends and self._unit.row("SELECT 1 FROM session WHERE project = ?", (event.record,)) is not None

    def _purged(self, record: int) -> bool:
        return any(event.kind.endswith(FORGOTTEN) for event in self._events_of(record))

    def _taken_back_by(self, event: Event) -> int | None:
        """The undo that took an event back and still stands."""
        return self._standing(event.record).taken.get(event.seq)

    def _standing(self, record: int) -> _Standing:
        if record not in self._of_record_standing:
            self._of_record_standing[record] = _Standing.of(self._events_of(record))
        return self._of_record_standing[record]

    def _events_of(self, record: int) -> list[Event]:
        """All events of a record in order, those of this undo too."""
        if record not in self._of_record:
            self._of_record[record] = list(events_of(self._unit, self._kinds, record))
        return self._of_record[record]

    def _load(self, wanted: list[Event]) -> None:
        """What each record was right before each of the events."""
        by_record: dict[int, list[int]] = {}
        for event in wanted:
            by_record.setdefault(event.record, []).append(event.seq)
        with Scratch(self._kinds) as scratch:
            for record, seqs in by_record.items():
                self._before.update(states(self._unit, self._kinds, record, seqs, scratch=scratch))

    def _refuse_blocked(self, wanted: list[Event], paired: Set[int]) -> None:
        """Find all that stands on these events, and what stands on that: undone together with them nothing does.

        Raises:
            UndoBlocked: Something does. Names every event that would have to go as well.
        """
        self._going = going = {event.seq for event in wanted} | paired
        needed: dict[int, Event] = {}
        queue = list(wanted)
        while queue and len(needed) < _NEEDED:
            for seq in self._blocking(queue.pop()):
                if seq not in going and seq not in needed:
                    (needed[seq],) = _events(self._unit, [seq])
                    queue.append(needed[seq])
        if needed:
            raise _blocked(wanted, [needed[seq] for seq in sorted(needed)])

    def _blocking(self, event: Event) -> list[int]:
        """The events that stand on one."""
        touched = fields_set(event)
        blocking = self._later(event, touched)
        if touched is not None and EXISTENCE in touched and not event.kind.endswith(REMOVALS):
            blocking += on_record(self._unit, event.type, event.record)
        return blocking

    def _undo(self, event: Event) -> None:
        if event.payload is None:
            raise UndoBlocked(
                f"Event {event.seq} was erased", why="What it did is not known any more", events=(event.seq,)
            )
        before = self._before[event.seq]
        if before is not None and not before.known:
            raise UndoBlocked(
                f"What #{event.record} was before event {event.seq} is not known any more",
                why="Earlier text of it was purged",
                events=(event.seq,),
            )
        claims.guard_whole(self._unit, event.type, event.record)
        kind, payload = self._reverse(event, before)
        self._append(event, kind, payload)

    def _later(self, event: Event, touched: Set[Field] | None) -> list[int]:
        """Later events of the record, not to be undone now, that set a field this one set and were not taken back."""
        standing = self._standing(event.record)
        if (by := standing.taken.get(event.seq)) is not None:
            raise Conflict(f"Event {event.seq} was undone by event {by} already")
        later = [each for each in standing.active if each.seq > event.seq]
        # An undo of something earlier than this event is a change like any other.
        later += [each for each, target in standing.undoers if target < event.seq < each.seq]
        return [each.seq for each in later if each.seq not in self._going and meets(fields_set(each), touched)]

    def _append(self, event: Event, kind: str, payload: dict[str, Any]) -> None:
        now = project_of(self._unit, event.type, event.record)
        # Not screened for credentials: it is text of the log.
        made = self._unit.tx.append(
            kind,
            {**payload, "undoes": event.seq},
            record=event.record,
            project=event.project if now is None else now,
            actor=self._unit.actor,
            session=event.record if event.type == "session" else self._unit.actor.session,
        )
        self._undone.append(event.seq)
        self._events.append(made.seq)
        self._events_of(event.record).append(made)
        if undoes(event) is not None:  # what it had taken back may be in force again
            self._of_record_standing.pop(event.record, None)

    def _reverse(self, event: Event, before: State | None) -> tuple[str, dict[str, Any]]:
        """The kind and payload of the event that takes one back."""
        of, kind = event.type, event.kind
        if kind == "item.added":
            return "item.removed", {}
        if kind.endswith((*CREATIONS, RESTATED)):
            return f"{of}.withdrawn", self._touching(event)
        if before is None:
            raise AssertionError(f"event {event.seq} changes a record that was not there")
        if kind.endswith(REMOVALS):
            return f"{of}.restated", self._stated(event, before)
        if kind.endswith(".linked"):
            payload = event.payload or {}
            return f"{of}.unlinked", {"dst": payload["dst"], "kind": payload["kind"]}
        reverse = _REVERSE.get(kind, _set_back)
        made = reverse(event, before)
        if reverse is _set_back:
            self._trust(event, before, made[1])
        restoring(self._unit, event, made[1])
        return made

    def _trust(self, event: Event, before: State, payload: dict[str, Any]) -> None:
        """Have the record be trusted no more than the text it comes to have: what it had before, and what came since."""
        current = origin_of(self._unit, event.type, event.record)
        if current is None:
            return
        standing = self._standing(event.record)
        since = [each for each in standing.active if each.seq > event.seq and each.seq not in self._going]
        least: Origin = before.row["origin"]
        for each in since:
            if sets_text(each):
                least = validate.less_trusted(least, each.origin)
        for each, target in standing.undoers:  # whose text it brought back is told by what the record is now
            if target < event.seq < each.seq and sets_text(each):
                least = validate.less_trusted(least, current)
        given = payload.setdefault("set", {})
        lowers = sets_text(event) and validate.less_trusted(current, least) != current
        if "origin" in given or lowers:
            given["origin"] = least
            if event.type == "note" and (lowers or least != before.row["origin"]):
                given |= {"confirmed_at": None, "confirmed_by": None}

    def _stated(self, event: Event, before: State) -> dict[str, Any]:
        reappearing(self._unit, event, before.row)
        state = {
            name: value for name, value in before.row.items() if name not in ("id", "revision", "changed", "touched")
        }
        if event.type == "entity":
            state["marks"] = {name: list(mark.values()) for name, mark in before.marks.items()}
        made: dict[str, Any] = {"state": state, **self._touching(event, before.row)}
        if copies := self._copies(event.record):
            made["copies"] = copies
        return made

    def _copies(self, record: int) -> list[list[Any]]:
        """The places in other stores that a record came from, which went with it."""
        payloads = [event.payload for event in self._events_of(record) if event.payload is not None]
        places = [payload["copied"] for payload in payloads if "copied" in payload]
        return [*places, *(place for payload in payloads for place in payload.get("copies", ()))]

    def _touching(self, event: Event, row: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The note whose summary goes stale by a record's coming or going."""
        column = {"note": "parent", "item": "note", "summary": "note"}.get(event.type)
        if column is None:
            return {}
        if row is None:
            found = self._unit.row(f"SELECT {column} FROM {event.type} WHERE id = ?", (event.record,))
            above = None if found is None else found[0]
        else:
            above = row[column]
        return {} if above is None else {"touched": [[above, self._unit.tx.next]]}


@frozen
class _Standing:
    """Which events of a record are in force.

    Attributes:
        taken: By event: the undo that took it back and stands.
        active: Events that no undo took back and that are none themselves, in their order.
        undoers: The undos that stand, each with what it took back.
    """

    taken: Mapping[int, int]
    active: Sequence[Event]
    undoers: Sequence[tuple[Event, int]]

    @classmethod
    def of(cls, events: Sequence[Event]) -> _Standing:
        """Look from the newest to the oldest: an undo that was itself undone takes nothing back."""
        cancelled: set[int] = set()
        taken: dict[int, int] = {}
        undoers: list[tuple[Event, int]] = []
        for event in reversed(events):
            target = undoes(event)
            if target is not None and event.seq not in cancelled:
                taken[target] = event.seq
                undoers.append((event, target))
                cancelled |= {event.seq, target}
        return cls(taken, [event for event in events if event.seq not in cancelled], undoers)


_SPOKEN: Final = ("session", "message")


def _moved(event: Event) -> bool:
    """Whether a session went with its project, as its task and its subject did: so it comes back with them."""
    return event.kind == "session.changed" and "project" in (event.payload or {}).get("set", {})


def _blocked(wanted: Sequence[Event], blocking: Sequence[Event]) -> UndoBlocked:
    what = f"Event {wanted[0].seq} ({wanted[0].kind} #{wanted[0].record})" if len(wanted) == 1 else "These events"
    told = "; ".join(map(_told, blocking[:_TOLD]))
    more = f"; and {len(blocking) - _TOLD} more" if len(blocking) > _TOLD else ""
    return UndoBlocked(
        f"{what} cannot be undone: {len(blocking)} later event{'s' if len(blocking) > 1 else ''} would have to go as well",
        why=told + more,
        next="Undo them first, or name them together with these",
        events=tuple(event.seq for event in blocking),
    )


def _told(event: Event) -> str:
    """An event in a few words: which, what it did to which record, and whose it is."""
    whose = [f"{name} {shown(label)}" for name, label in (("by", event.author), ("run", event.run)) if label]
    return " ".join((f"{event.seq} {event.kind} #{event.record}", *whose))


_NEEDED: Final = 1000  # events that stand in the way, up to which they are looked for
_TOLD: Final = 8


def _set_back(event: Event, before: State) -> tuple[str, dict[str, Any]]:
    payload = event.payload or {}
    made: dict[str, Any] = {}
    given = payload.get("set", {})
    if given:
        names = dict.fromkeys(given)
        if "done" in names:
            names |= dict.fromkeys(("done_by", "done_at"))
        if event.type == "summary":
            names |= dict.fromkeys(("author", "run", "at"))
        made["set"] = {name: as_set(name, before.row[name]) for name in names if name in before.row}
    elif event.type == "summary":
        made["set"] = {name: before.row[name] for name in ("author", "run", "at")}
    attrs = (*payload.get("attrs", ()), *payload.get("removed", ()))
    if attrs:
        earlier = plain(before.row["attrs"])
        if kept := {name: earlier[name] for name in attrs if name in earlier}:
            made["attrs"] = kept
        if gone := [name for name in attrs if name not in earlier]:
            made["removed"] = gone
    return f"{event.type}.changed", made


def _mark_back(event: Event, before: State) -> tuple[str, dict[str, Any]]:
    payload = event.payload or {}
    names = [*payload.get("marks", ()), *payload.get("removed", ()), *payload.get("names", ())]
    marks = {name: _marked(before.marks[name]) for name in names if name in before.marks}
    made: dict[str, Any] = {"marks": marks}
    if gone := [name for name in names if name not in before.marks]:
        made["removed"] = gone
    return "entity.marked", made


def _marked(mark: Mapping[str, Any]) -> dict[str, Any]:
    return entity_rows.mark_again(*(mark[name] for name in _MARK))


_MARK: Final = ("result", "value", "detail", "at", "author", "run", "origin")


def _link_back(event: Event, before: State) -> tuple[str, dict[str, Any]]:
    payload = event.payload or {}
    link = before.links[payload["kind"], payload["dst"]]
    made = {
        "dst": payload["dst"],
        "kind": payload["kind"],
        **{name: link[name] for name in ("author", "run", "origin")},
    }
    return f"{event.type}.linked", made


def _item_back(event: Event, before: State) -> tuple[str, dict[str, Any]]:
    return "item.changed", {"set": {"removed": False}}


_REVERSE: Final[Mapping[str, Callable[[Event, State], tuple[str, dict[str, Any]]]]] = {
    "entity.marked": _mark_back,
    "entity.unmarked": _mark_back,
    "note.unlinked": _link_back,
    "entity.unlinked": _link_back,
    "item.removed": _item_back,
}
