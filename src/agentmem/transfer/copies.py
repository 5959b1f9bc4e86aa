"""Import of a copy: the records of a file become new ones of the project, with new ids and all that is between them.

One transaction: all or nothing. The file is read twice, first to be proven and folded in memory under its own ids, so
that it is known how everything ends. What was copied before is known by the table `copied` and left as it is.
"""

from __future__ import annotations

import secrets
from collections import Counter as Tally
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

from attrs import evolve, frozen

from agentmem.context.answer import Answer
from agentmem.errors import Conflict, Corrupt, shown
from agentmem.limits import KEY_CHARS
from agentmem.past.merging import Policy
from agentmem.records import claims, cleaning, validate, whole
from agentmem.records.base import Binding, Source, Unit
from agentmem.transfer.copied_sessions import put_away
from agentmem.transfer.jsonlines import Header, Reader, damaged
from agentmem.transfer.proof import Rehearsal, decoded
from agentmem.transfer.renumber import Renumbering, changes, creation
from agentmem.transfer.uniting import unite
from agentmem.types import UNTRUSTED, Actor, Collision, Event, Origin, RecordType

__all__ = ["ImportedCopy", "run"]

Progress: TypeAlias = Callable[[int, int], None]

_NAMED: Final = 5
_STEP: Final = 500
_NO_PLACE: Final = (".forgotten", ".claim.taken", ".claim.taken_over", ".claim.released")


@frozen
class ImportedCopy(Answer):
    """Records that were copied from another store, or from another place of this one.

    Attributes:
        path: The file.
        store: The id of the store they come from.
        created: New records, by type.
        unchanged: Records that were copied before, and were left as they are.
        events: How many events were written.
        roots: The records here that stand for those the export was asked for.
        collisions: Entities that were in the project already, and what became of each.
        dropped: How many references to records that the file does not have were left out.
        request: The request id that all of these events have: `undo(request=)` takes the import back.
        dry_run: Whether all of it was taken back at the end.
        notices: What to know of it.
        text: All this for people.
    """

    path: str
    store: str
    created: Mapping[str, int]
    unchanged: int
    events: int
    roots: tuple[int, ...]
    collisions: tuple[Collision, ...]
    dropped: int
    request: str | None
    dry_run: bool
    notices: tuple[str, ...]
    text: str


class _DryRun(Exception):
    """Rolls a dry run back, and carries out what would have come of it."""

    def __init__(self, found: ImportedCopy) -> None:
        super().__init__()
        self.found = found


def run(
    binding: Binding,
    path: Path,
    file: BinaryIO,
    *,
    origin: Origin,
    collisions: Policy,
    dry_run: bool,
    progress: Progress | None,
) -> ImportedCopy:
    """Copy the records of a file into the view's project.

    Args:
        binding: Where to.
        path: What to call the file.
        file: It, at its beginning.
        origin: `agent` keeps where each text came from; `import` makes all of it untrusted.
        collisions: What to do about entities whose type and key are there already.
        dry_run: Take everything back at the end.
        progress: Called with events done and events in all.

    Raises:
        Corrupt: The file is damaged, or its events are none that a store can have.
        NewerFile: A later version wrote it.
        Conflict: An entity is there already and `collisions` is `refuse`; or the records were copied into another project.
        Held: An entity that would be changed is claimed by somebody else.
    """
    floor: Origin = "user" if origin == "agent" else origin
    if binding.actor.origin in UNTRUSTED:
        floor = validate.less_trusted(floor, binding.actor.origin)
    with Rehearsal("copy") as rehearsal:
        plan = _plan(Reader(file), rehearsal)
        try:
            with binding.ledger.transaction() as tx:
                cleaning.obey(binding.ledger, tx.connection)
                file.seek(0)
                unit = Unit(binding, tx)
                work = _Copying(unit, plan, rehearsal, floor, collisions)
                work.run(Reader(file, proven=plan.chains), progress)
                found = _answer(path, plan, work, dry_run=dry_run)
                if dry_run:
                    raise _DryRun(found)
                return found
        except _DryRun as ended:
            return ended.found


@frozen
class _Plan:
    """What a file comes to.

    Attributes:
        header: Its first line.
        events: How many events it has.
        types: The type of each record.
        stated: Of each record whose creation was erased, the first event that states it anew.
        placed: Whether any record was put elsewhere among its siblings than last.
        chains: The chain after each event.
    """

    header: Header
    events: int
    types: Mapping[int, RecordType]
    stated: Mapping[int, Event]
    placed: bool
    chains: bytes


def _plan(reader: Reader, rehearsal: Rehearsal) -> _Plan:
    if reader.header.what != "copy":
        raise AssertionError("a whole log is no copy")
    types: dict[int, RecordType] = {}
    stated: dict[int, Event] = {}
    made: set[int] = set()
    placed = False
    chains = bytearray()
    for entry in reader:
        chains += entry.chain
        event = rehearsal.take(entry)
        if event.payload is None or event.type == "project" or event.kind.endswith(_NO_PLACE):
            raise damaged(entry.line, f"{event.kind} has no place in a copy")
        types.setdefault(event.record, event.type)
        placed = placed or any("position" in event.payload.get(part, {}) for part in ("set", "state"))
        if event.record == event.seq:
            made.add(event.record)
        elif event.record not in made and "state" in event.payload:
            made.add(event.record)
            stated[event.record] = event
    if len(made) < len(types):
        (record, *_) = types.keys() - made
        raise damaged(reader.line, f"The file changes {types[record]} #{record}, and does not make it")
    for of in set(types.values()):
        there = {record for (record,) in rehearsal.connection.execute(f"SELECT id FROM {of}")}
        for record, its in types.items():
            if its == of and record not in there:
                raise damaged(reader.line, f"The file takes {of} #{record} back, which has no place in a copy then")
    return _Plan(reader.header, reader.events, types, stated, placed, bytes(chains))


class _Copying:
    """One import at work.

    Attributes:
        numbers: What stands here for what of the file.
        created: New records, by type.
        unchanged: How many were copied before.
        events: How many events were written.
        met: What was there already.
        request: The label of all these events.
    """

    def __init__(self, unit: Unit, plan: _Plan, rehearsal: Rehearsal, floor: Origin, collisions: Policy) -> None:
        self._unit = unit
        self._plan = plan
        self._scratch = Source(unit.binding, rehearsal.connection)
        self._collisions = collisions
        self._units: dict[tuple[Any, ...], Unit] = {}
        self._left: set[int] = set()
        self._merging: dict[int, tuple[RecordType, int]] = {}
        self._floor = floor
        self.numbers = Renumbering(plan.header.store, unit.known_project, floor)
        self.created: Tally[str] = Tally()
        self.unchanged = 0
        self.events = 0
        self.met: list[Collision] = []
        self.request: str | None = None

    def run(self, reader: Reader, progress: Progress | None) -> None:
        """Write all that is not here yet."""
        self._known()
        self._meet()
        if not (self._plan.types.keys() - self._left or self._merging):
            return
        self.numbers.project = self._unit.project
        self.request = f"import-{secrets.token_hex(4)}"
        self._unit.tx.under_request(self.request)
        try:
            self._copy_all(reader, progress)
            spoken = [each for each, of in self._plan.types.items() if of == "session" and each not in self._left]
            self.events += put_away(self._unit, self._scratch, self.numbers, spoken)
            self.events += unite(self._unit, self._scratch, self.numbers, self._merging)
            if self._plan.placed:
                self._order()
        finally:
            self._unit.tx.under_request(None)
        if not self.events:
            self.request = None  # there is nothing to take back by it

    def _copy_all(self, reader: Reader, progress: Progress | None) -> None:
        waiting = sorted((record for record in self._plan.stated if record not in self._left), reverse=True)
        for entry in reader:
            event = _apart(decoded(entry, self._scratch.connection))
            while waiting and waiting[-1] < event.seq:
                self._stand_in(self._plan.stated[waiting.pop()])
            if event.record not in self._left:
                self._copy(event)
            if progress is not None and reader.events % _STEP == 0:
                progress(reader.events, self._plan.events)

    # What is here already

    def _known(self) -> None:
        """The records that were copied before stay as they are."""
        unit, types = self._unit, self._plan.types
        rows = unit.rows("SELECT seq, record FROM copied WHERE store = ?", (self._plan.header.store,))
        for record, here in rows:
            of = types.get(record)
            # An item whose note was taken back is still there, off its list.
            also = "AND EXISTS (SELECT 1 FROM note WHERE note.id = item.note)" if of == "item" else ""
            if of is None or unit.row(f"SELECT 1 FROM {of} WHERE id = ? {also}", (here,)) is None:
                continue
            self._stays(record, here)
            self.unchanged += 1
            if of in ("note", "entity", "checks", "checkpoint", "session"):
                (project,) = unit.one(f"SELECT project FROM {of} WHERE id = ?", (here,))
                if project != unit.known_project:
                    row = unit.row("SELECT name FROM project WHERE id = ?", (project,))
                    raise Conflict(
                        f"The records were copied into project {shown(row and row[0])} already, {of} #{record} as #{here}",
                        next="Import the file there",
                    )
        # A session that was copied before goes on by itself: what was said since, there, is no part of it.
        for record, session in self._scratch.rows("SELECT id, session FROM message"):
            if session in self._left:
                self._left.add(record)
        # A task that was copied before and has been summed up here keeps that.
        for record, note in self._scratch.rows("SELECT id, note FROM summary"):
            if record not in self._left and note in self._left:
                row = unit.row("SELECT id FROM summary WHERE note = ?", (self.numbers.to[note],))
                if row is not None:
                    self._stays(record, row[0])
                    self.unchanged += 1

    def _stays(self, record: int, here: int) -> None:
        self.numbers.to[record] = here
        if self._plan.types[record] == "message":
            self.numbers.events[record] = here
        self._left.add(record)

    def _meet(self) -> None:
        """Find the entities and declarations that are in the project too, and decide what becomes of them."""
        met = [*self._entities_met(), *self._checks_met()]
        if met and self._collisions == "refuse":
            named = ", ".join(f"{each.type}:{each.key}" for each in met[:_NAMED])
            more = f" and {len(met) - _NAMED} more" if len(met) > _NAMED else ""
            raise Conflict(
                f"The project has what the export brings already: {named}{more}",
                next="Say collisions='merge' to add what is new to those that are here, or 'keep_both'",
            )
        self.met = met

    def _entities_met(self) -> Iterator[Collision]:
        unit, keys = self._unit, self.numbers.keys
        rows = self._scratch.rows("SELECT id, type, key FROM entity ORDER BY id")
        own = {(kind, key) for _, kind, key in rows}
        if len(own) < len(rows):
            raise Corrupt("The export has two entities of one type and key", next="Export again")
        for record, kind, key in rows:
            if record in self._left:
                continue
            keys[record] = key
            here = unit.row(_ENTITY, (unit.known_project, kind, key))
            if here is None:
                continue
            outcome = ""
            if self._collisions == "merge":
                self._stays(record, here[0])
                self._merging[record] = ("entity", here[0])
                outcome = "merged"
            elif self._collisions == "keep_both":
                keys[record] = self._fresh(kind, key, own)
                own.add((kind, keys[record]))
                outcome = f"kept as {keys[record]}"
            yield Collision(kind, key, here[0], record, outcome)

    def _fresh(self, kind: str, key: str, own: set[tuple[str, str]]) -> str:
        """Another key, that neither the project nor the file has."""
        number, fresh = 1, key
        while (kind, fresh) in own or self._unit.row(_ENTITY, (self._unit.known_project, kind, fresh)) is not None:
            ending = " (copy)" if number == 1 else f" (copy {number})"
            fresh, number = key[: KEY_CHARS - len(ending)] + ending, number + 1
        return fresh

    def _checks_met(self) -> Iterator[Collision]:
        unit = self._unit
        for record, kind, condition, names in self._scratch.rows("SELECT id, type, filter, names FROM checks"):
            if record in self._left:
                continue
            here = unit.row(_CHECKS, (unit.known_project, kind, condition))
            if here is None:
                continue
            self._stays(record, here[0])
            if here[1] == names:
                self.unchanged += 1
                continue
            if self._collisions == "merge":
                self._merging[record] = ("checks", here[0])
            outcome = "merged" if self._collisions == "merge" else "those that are here stay"
            yield Collision(kind, condition or "checks", here[0], record, outcome)

    # Writing

    def _stand_in(self, stated: Event) -> None:
        """Make a record whose own creation was erased; the event that states it anew follows in its place."""
        state = (stated.payload or {})["state"]
        kind, payload = creation(stated.type, state)
        origin = state.get("origin", stated.origin)
        labels = {"author": state.get("author", stated.author), "run": state.get("run", stated.run)}
        at = state.get("created_at", state.get("at", stated.at))
        self._copy(
            evolve(stated, kind=kind, seq=stated.record, at=at, payload=payload, origin=origin, task=None, **labels)
        )

    def _copy(self, event: Event) -> None:
        """Append one event of the file under the ids of here."""
        numbers, unit = self.numbers, self._unit
        payload = numbers.payload(event, unit.tx.next)
        if payload is None:
            return
        if "state" in payload:
            now = whole.state(unit.connection, event.type, numbers.to[event.record])
            if now is not None:
                self._bring(event, now, payload["state"])
                return
        creates = event.record == event.seq
        if creates and event.type in ("item", "summary"):
            self._hang(event, payload)
        record = None if creates else numbers.to[event.record]
        session = self._session(event)
        made = self._by(event).append(event.kind, payload, record=record, project=unit.project, session=session)
        numbers.took(event.seq, made.seq)
        self.events += 1
        if creates:
            numbers.to[event.record] = made.seq
            self.created[event.type] += 1
            if event.type == "message":
                numbers.events[event.record] = made.seq

    def _session(self, event: Event) -> int | None:
        """The session here that an event belongs to."""
        if event.type == "session" and event.record == event.seq:
            return self._unit.tx.next
        there = None if event.session is None else self.numbers.to.get(event.session)
        if there is None and event.type == "message":
            raise Corrupt(f"The export has event #{event.record} without its session", next="Export again")
        return there

    def _bring(self, event: Event, now: dict[str, Any], then: dict[str, Any]) -> None:
        """Have a record that was stated anew be so here: by changes, so that they can be taken back."""
        here = self.numbers.to[event.record]
        last = None
        for kind, payload in changes(event.type, now, then):
            unit = self._by(event)
            last = unit.append(kind, payload, record=here, project=unit.project, session=self._session(event))
            self.events += 1
        if last is not None:
            self.numbers.took(event.seq, last.seq)

    def _hang(self, event: Event, payload: dict[str, Any]) -> None:
        """See to what an item or a summary hangs on: it must be here, and in nobody else's hands."""
        note = (event.payload or {})["note"]
        if "note" not in payload:
            raise Corrupt(f"The export has a {event.type} of #{note}, and not #{note}", next="Export again")
        if note in self._left:
            claims.guard(self._unit, payload["note"])
            if event.type == "item":
                # Its number may have been given here since.
                sql = "SELECT coalesce(max(number), 0) + 1 FROM item WHERE note = ?"
                payload["number"] = self._unit.number(sql, (payload["note"],))

    def _by(self, event: Event) -> Unit:
        """The unit of work in the name of whoever wrote the event."""
        task = None if event.task is None else self.numbers.to.get(event.task)
        actor = (event.author, event.run, task, self.numbers.origin(event.origin))
        found = self._units.get(actor)
        if found is None:
            found = self._units[actor] = self._unit.acting(Actor(*actor))
        return found

    # The order among siblings

    def _order(self) -> None:
        """Put siblings right whose places are so near to each other that no number fits between their new ones."""
        for of, above in (("note", "parent"), ("item", "note")):
            rows = self._scratch.rows(f"SELECT {above}, id FROM {of} ORDER BY {above}, position, id")
            groups: dict[int | None, list[int]] = {}
            for parent, record in rows:
                if record not in self._left:
                    groups.setdefault(self.numbers.to.get(parent), []).append(self.numbers.to[record])
            for wanted in groups.values():
                if len(wanted) > 1:
                    self._line_up(of, wanted)

    def _line_up(self, of: str, wanted: list[int]) -> None:
        sql = f"SELECT position FROM {of} WHERE id = ?"
        last: tuple[float, int] | None = None
        moving = False
        for record in wanted:
            place = (self._unit.one(sql, (record,))[0], record)
            moving = moving or (last is not None and place < last)
            if moving:
                place = (float(self._unit.tx.next), record)
                self._unit.append(
                    f"{of}.changed", {"set": {"position": place[0]}}, record=record, project=self._unit.project
                )
                self.events += 1
            last = place


def _apart(event: Event) -> Event:
    """The event, without what a record was part of for a time: that is not in the file, which has it taken back again."""
    if not event.kind.endswith(".merged"):
        return event
    rest = {name: value for name, value in (event.payload or {}).items() if name != "into"}
    return evolve(event, kind=f"{event.type}.withdrawn", payload=rest)


_ENTITY: Final = "SELECT id FROM entity WHERE project = ? AND type = ? AND key = ?"
_CHECKS: Final = "SELECT id, names FROM checks WHERE project = ? AND type = ? AND filter = ?"
# What points out of the file, as everything ends.
_OUTSIDE: Final = """
SELECT (SELECT count(*) FROM note WHERE parent IS NOT NULL AND parent NOT IN (SELECT id FROM note))
     + (SELECT count(*) FROM note WHERE entity IS NOT NULL AND entity NOT IN (SELECT id FROM entity))
     + (SELECT count(*) FROM entity WHERE parent IS NOT NULL AND parent NOT IN (SELECT id FROM entity))
     + (SELECT count(*) FROM checkpoint WHERE task IS NOT NULL AND task NOT IN (SELECT id FROM note))
     + (SELECT count(*) FROM session WHERE task IS NOT NULL AND task NOT IN (SELECT id FROM note))
     + (SELECT count(*) FROM session WHERE parent IS NOT NULL AND parent NOT IN (SELECT id FROM session))
     + (SELECT count(*) FROM session WHERE forked_from IS NOT NULL AND forked_from NOT IN (SELECT id FROM session))
     + (SELECT count(*) FROM link WHERE dst NOT IN (SELECT id FROM note UNION ALL SELECT id FROM entity))
"""


def _answer(path: Path, plan: _Plan, work: _Copying, *, dry_run: bool) -> ImportedCopy:
    to = work.numbers.to
    dropped = work._scratch.number(_OUTSIDE)
    roots = () if dry_run else tuple(to[root] for root in plan.header.roots if root in to)
    leaks = work._unit.leaks
    notices = [f"this looks like a credential: {', '.join(leaks)}; write where it is kept instead"] if leaks else []
    if dropped:
        notices.append(f"{dropped} references to records that the export does not have were left out")
    if work.created["session"]:
        notices.append("sessions come archived, their open calls closed: they go on where they came from")
    if work.request is not None and not dry_run:
        notices.append(f"to take all of it back undo the request {work.request}")
    lines = [f"copy of {len(plan.types):,} records of store {plan.header.store}"]
    if work.created:
        lines.append("new: " + ", ".join(f"{number} {of}" for of, number in sorted(work.created.items())))
    if work.unchanged:
        lines.append(f"copied before, left as they are: {work.unchanged}")
    lines += [f"{each.type}:{each.key} was here as #{each.kept}: {each.outcome}" for each in work.met[:20]]
    if len(work.met) > 20:
        lines.append(f"and {len(work.met) - 20} more of these")
    would = "dry run, nothing written: " if dry_run else ""
    lines += [*notices, f"{would}{work.events:,} events, " + (", ".join(f"#{root}" for root in roots) or "no root")]
    met = tuple(evolve(each, other=to.get(each.other, each.other)) for each in work.met)
    return ImportedCopy(
        str(path), plan.header.store, dict(work.created), work.unchanged, work.events, roots, met, dropped,
        None if dry_run else work.request, dry_run, tuple(notices), "\n".join(lines),
    )  # fmt: skip
