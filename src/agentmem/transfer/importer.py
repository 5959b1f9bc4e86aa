"""Import: a folder of logs becomes records, in one transaction; a second import changes what changed.

A note is known again by its source: the name of the folder, path, headings, ordinal. What the import
itself wrote carries the run label `RUN`: a record whose last change is by anybody else was worked on
here since, and is never overwritten.
"""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter as Tally
from collections.abc import Callable, Sequence
from os import PathLike
from typing import Any, Final, TypeAlias

from attrs import frozen

from agentmem import limits
from agentmem.context.answer import Answer
from agentmem.context.escape import one_line
from agentmem.context.left import gather
from agentmem.context.resume import resume
from agentmem.context.tokens import Counter
from agentmem.records import checklists, cleaning, entity_writes, note_writes, reports, scopes
from agentmem.records.base import Binding, Unit
from agentmem.records.moves import move
from agentmem.records.note_writes import NewNote
from agentmem.transfer.markdown import read_folder
from agentmem.transfer.markdown.match import Known, match
from agentmem.transfer.markdown.types import Plan, PlannedEntity, PlannedNote, SourceKey
from agentmem.types import STATUSES, UNSET, Json, Origin

RUN: Final = "import"
Progress: TypeAlias = Callable[[int, int], None]


@frozen
class Imported(Answer):
    """What an import did.

    Attributes:
        files: Files that were read.
        created: New records, by kind.
        changed: Records that were there and changed, by kind.
        unchanged: Records that were there and did not.
        kept: Notes that were changed here since the last import, and so were left alone though their source changed too.
        dropped: Notes whose source is gone; their status is `dropped` now.
        report: One line for each thing a person should know: broken, skipped, cut, left out.
        folder_tokens: Of all the files, by the store's counter.
        resume_tokens: Of what `resume` gives for the project now.
        left: Open steps, items and missing marks in the project.
        failed: Failed attempts in the project.
        decided: Decisions in force in the project.
        text: All this for people; its last line is the outcome in one.
    """

    files: int
    created: dict[str, int]
    changed: dict[str, int]
    unchanged: int
    kept: tuple[int, ...]
    dropped: tuple[int, ...]
    report: tuple[str, ...]
    folder_tokens: int
    resume_tokens: int
    left: int
    failed: int
    decided: int
    text: str


class _Import:
    """One import at work."""

    def __init__(self, unit: Unit, plan: Plan, progress: Progress | None) -> None:
        self.unit = unit
        self.plan = plan
        self.progress = progress
        self.root = plan.root.name
        self.ids: dict[SourceKey, int] = {}
        self.untouched: set[int] = set()
        self.created: Tally[str] = Tally()
        self.changed: Tally[str] = Tally()
        self.unchanged = 0
        self.kept: list[int] = []
        self.dropped: list[int] = []
        self.done = 0

    def run(self) -> None:
        """Write it all."""
        known, self.untouched = self._known()
        found = match(self.plan.notes, known)
        for note in _chronological(self.plan.notes):
            self._note(note, found.known.get(note.source))
            self._step()
        for record in found.gone:
            self._gone(record.id)
        self._entities()
        for summary in self.plan.summaries:
            self._summary(self.ids.get(summary.of), summary.work, summary.result)
            self._step()
        for checkpoint in self.plan.checkpoints:
            task = None if checkpoint.task is None else self.ids.get(checkpoint.task)
            self._checkpoint(checkpoint.text, task, _microseconds(checkpoint.dated))
            self._step()

    def _step(self) -> None:
        self.done += 1
        if self.progress is not None:
            plan = self.plan
            total = len(plan.notes) + len(plan.entities) + len(plan.summaries) + len(plan.checkpoints)
            self.progress(self.done, total)

    def _source(self, key: SourceKey) -> str:
        return json.dumps(
            [self.root, key.path, list(key.headings), key.ordinal], ensure_ascii=False, separators=(",", ":")
        )

    def _known(self) -> tuple[list[Known], set[int]]:
        """The notes of earlier imports of this folder, and the ids of those that nobody changed since."""
        prefix = json.dumps(self.root, ensure_ascii=False)
        sql = """
        SELECT note.id, note.source, note.kind, note.digest, event.run IS ?
        FROM note JOIN event ON event.seq = note.changed
        WHERE note.project = ? AND note.source >= ? AND note.source < ? AND note.title IS NOT NULL
        """
        low, high = f"[{prefix},", f"[{prefix}-"  # "-" is the character after ","
        known, untouched = [], set()
        for found, source, kind, digest, ours in self.unit.rows(sql, (RUN, self.unit.known_project, low, high)):
            _, path, headings, ordinal = json.loads(source)
            known.append(Known(found, SourceKey(path, tuple(headings), ordinal), kind, digest or ""))
            if ours:
                untouched.add(found)
        return known, untouched

    def _note(self, note: PlannedNote, known: Known | None) -> None:
        parent = None if note.parent is None else self.ids.get(note.parent)
        if known is None:
            self.ids[note.source] = self._create(note, parent)
            self.created[note.kind] += 1
            return
        self.ids[note.source] = known.id
        if known.source != note.source:
            note_writes.update(self.unit, known.id, {"source": self._source(note.source)}, None)
        if known.digest == note.digest:
            self.unchanged += 1
        elif known.id not in self.untouched:
            self.kept.append(known.id)
        else:
            self._change(note, known.id, parent)
            self.changed[note.kind] += 1

    def _create(self, note: PlannedNote, parent: int | None) -> int:
        new = NewNote(
            note.kind,
            _line(note.title),
            body=note.body,
            status=_status(note),
            parent=parent,
            tags=note.tags[: limits.TAGS_PER_NOTE],
            why=note.why or None if note.kind == "attempt" else None,
            basis=_basis(note),
            dated=_microseconds(note.dated),
            source=self._source(note.source),
            digest=note.digest,
        )
        found = note_writes.add(self.unit, new, similar=False).id
        checklists.add(self.unit, found, ((_line(item.text), item.done) for item in note.checklist))
        self.created["item"] += len(note.checklist)
        return found

    def _change(self, note: PlannedNote, found: int, parent: int | None) -> None:
        given: dict[str, Any] = {
            "title": _line(note.title),
            "body": note.body,
            "status": _status(note),
            "tags": note.tags[: limits.TAGS_PER_NOTE],
            "basis": _basis(note),
            "dated": _microseconds(note.dated),
            "digest": note.digest,
        }
        if note.kind == "attempt":
            given["why"] = note.why or None
        note_writes.update(self.unit, found, given, None)
        row = self.unit.row("SELECT parent FROM note WHERE id = ?", (found,))
        if row is not None and row[0] != parent:
            move(self.unit, found, parent, None, None, False, None)
        self._items(note, found)

    def _items(self, note: PlannedNote, found: int) -> None:
        """Bring the checklist to what the source says; an item that somebody ticked or edited here stays."""
        present: dict[str | None, list[int]] = {}
        for item in checklists.of_note(self.unit, found, limit=limits.ITEMS_PER_CHECKLIST):
            present.setdefault(item.text, []).append(item.id)
        fresh = []
        for planned in note.checklist:
            text = _line(planned.text)
            there = present.get(text)
            if not there:
                fresh.append((text, planned.done))
            elif self._ours(item_id := there.pop(0)) and checklists.tick(self.unit, item_id, planned.done):
                self.changed["item"] += 1
        for item_id in (one for rest in present.values() for one in rest if self._ours(one)):
            checklists.remove(self.unit, item_id)
            self.changed["item"] += 1
        checklists.add(self.unit, found, fresh)
        self.created["item"] += len(fresh)

    def _ours(self, record: int) -> bool:
        """Whether the last change of a record was by an import."""
        row = self.unit.row("SELECT run FROM event WHERE record = ? ORDER BY seq DESC LIMIT 1", (record,))
        return row is not None and row[0] == RUN

    def _gone(self, found: int) -> None:
        """A note whose source is no longer there: dropped, unless it was worked on here, or cannot be."""
        row = self.unit.row("SELECT kind, status FROM note WHERE id = ?", (found,))
        if row is None or "dropped" not in STATUSES[row[0]] or row[1] == "dropped":
            return
        if not self._ours(found):
            self.kept.append(found)
            return
        note_writes.update(self.unit, found, {"status": "dropped"}, None)
        self.dropped.append(found)

    def _entities(self) -> None:
        checks: dict[str, set[str]] = {}
        for planned in self.plan.entities:
            attrs: dict[str, Json | None] = dict(planned.attrs)
            if planned.needs:
                attrs["needs"] = self._needs(planned)
                checks.setdefault(planned.type, set()).update(planned.needs)
            row = entity_writes.Row(planned.key, attrs=attrs, status=planned.status or UNSET)
            done = entity_writes.put(self.unit, planned.type, row)
            tally = self.created if done.changed == ("created",) else self.changed if done.changed else None
            if tally is None:
                self.unchanged += 1
            else:
                tally[planned.type] += 1
            if planned.checks:
                entity_writes.mark(self.unit, done.id, entity_writes.accepted(planned.checks, None))
            self._step()
        for type, names in checks.items():
            for name in sorted(names):
                self._expect(type, name)

    def _needs(self, planned: PlannedEntity) -> list[str]:
        """The checks that an entity needs: of this folder, and of folders that were imported before."""
        row = self.unit.row(
            "SELECT attrs ->> '$.needs' FROM entity WHERE project = ? AND type = ? AND key = ?",
            (self.unit.known_project, planned.type, planned.key),
        )
        try:
            known = json.loads(row[0]) if row is not None and isinstance(row[0], str) else []
        except ValueError:
            known = []
        named = [name for name in known if isinstance(name, str)] if isinstance(known, list) else []
        return sorted({*named, *planned.needs})

    def _expect(self, type: str, name: str) -> None:
        """A column of results is a check that the rows of its tables need, and no others.

        A declaration that is there stays as it is: somebody may have withdrawn it.
        """
        quoted = name.replace("'", "''")
        scope = scopes.make(type, f"attrs.needs contains '{quoted}'", (name,), {})
        there = self.unit.row(
            "SELECT 1 FROM checks WHERE project = ? AND type = ? AND filter = ?",
            (self.unit.known_project, scope.type, scope.where or ""),
        )
        if there is None:
            entity_writes.declare(self.unit, scope.type, scope.checks, scope.where or "")

    def _summary(self, note: int | None, work: str, result: str) -> None:
        if note is None:
            return
        there = reports.summary_of(self.unit, note)
        if there is not None and not self._ours(there.id):
            self.kept.append(note)
            return
        row = self.unit.row("SELECT project FROM note WHERE id = ?", (note,))
        wanted = {"work": work, "result": result, "confidence": None, "basis": None}
        if row is not None and (there is None or (there.work or "", there.result or "") != (work, result)):
            reports.write_summary(self.unit, note, row[0], wanted, (), ())
            (self.created if there is None else self.changed)["summary"] += 1

    def _checkpoint(self, text: str, task: int | None, dated: int | None) -> None:
        sql = "SELECT 1 FROM checkpoint WHERE project = ? AND task IS ? AND text = ? LIMIT 1"
        if self.unit.row(sql, (self.unit.known_project, task, text)) is None:
            reports.checkpoint(self.unit, text, task, dated)
            self.created["checkpoint"] += 1


class _DryRun(Exception):
    """Rolls a dry run back, and carries out what would have come of it."""

    def __init__(self, found: Imported) -> None:
        super().__init__()
        self.found = found


def run(
    binding: Binding,
    path: str | PathLike[str],
    *,
    origin: Origin,
    entities: Sequence[str],
    dry_run: bool,
    budget: int,
    counter: Counter,
    progress: Progress | None,
) -> Imported:
    """Read a file or folder and write what it holds, in one transaction, all or nothing.

    Args:
        binding: Where to write.
        path: What to read.
        origin: `agent` for one's own logs, `import` for others'.
        entities: Types of things whose tables and lists become entities.
        dry_run: Take everything back at the end.
        budget: Of the resume that is measured, in tokens.
        counter: Tokens of a text.
        progress: Called with records done and records in all.
    """
    plan = read_folder(path, entities=entities)
    folder_tokens = sum(counter(text) for text in plan.raw_texts())
    try:
        with binding.ledger.transaction() as tx:
            cleaning.obey(binding.ledger, tx.connection)
            work = _Import(Unit(binding.acting(run=RUN, origin=origin), tx), plan, progress)
            work.run()
            found = _outcome(binding, work, folder_tokens, budget, counter, dry_run=dry_run)
            if dry_run:
                raise _DryRun(found)
            return found
    except _DryRun as ended:
        return ended.found


def _outcome(
    binding: Binding, work: _Import, folder_tokens: int, budget: int, counter: Counter, *, dry_run: bool
) -> Imported:
    with binding.reading() as view:
        resumed = resume(view, None, after=None, budget=budget, counter=counter)
        gathered = gather(view, None)
        count = "SELECT count(*) FROM note WHERE project = ?"
        counts = (
            gathered.steps_total + gathered.items_total + sum(check.left for check in gathered.expected),
            view.number(f"{count} AND kind = 'attempt' AND status = 'failed'", (view.project,)),
            view.number(f"{count} AND kind = 'decision' AND status = 'active'", (view.project,)),
        )
    plan = work.plan
    report = tuple(str(line) for line in plan.report)
    lines = [*report]
    for verb, tally in (("new", work.created), ("changed", work.changed)):
        if parts := [f"{number} {kind}" for kind, number in sorted(tally.items()) if number]:
            lines.append(f"{verb}: {', '.join(parts)}")
    if work.unchanged:
        lines.append(f"unchanged: {work.unchanged}")
    if work.kept:
        lines.append("changed here since, left alone: " + ", ".join(f"#{found}" for found in work.kept))
    if work.dropped:
        lines.append("source gone, dropped: " + ", ".join(f"#{found}" for found in work.dropped))
    would = "dry run, nothing written: " if dry_run else ""
    lines.append(
        f"{would}{folder_tokens:,} tokens in {len(plan.files)} files -> {resumed.tokens:,} tokens of resume;"
        f" {counts[0]} left, {counts[1]} failed, {counts[2]} decided"
    )
    return Imported(
        len(plan.files), dict(+work.created), dict(+work.changed), work.unchanged, tuple(work.kept),
        tuple(work.dropped), report, folder_tokens, resumed.tokens, *counts, "\n".join(lines),
    )  # fmt: skip


def _chronological(notes: tuple[PlannedNote, ...]) -> list[PlannedNote]:
    """The notes as they came about, by the date of each, else of the note above; those without any come first.

    Ids tell which of two is newer, so a decision of yesterday must not be written before one of last week. What lies
    above a note comes before it, whatever its date. Steps of one file keep its order, which is that of the work.
    """
    by_key = {note.source: note for note in notes}
    when: dict[SourceKey, int] = {}
    before: dict[SourceKey, PlannedNote | None] = {}
    last: dict[tuple[SourceKey | None, str], PlannedNote] = {}
    for note in notes:
        own = _microseconds(note.dated)
        above = limits.TIME_LEAST if note.parent is None else when[note.parent]
        when[note.source] = above if own is None else own
        if note.kind == "step":
            before[note.source] = last.get((note.parent, note.source.path))
            last[note.parent, note.source.path] = note
    ordered: dict[SourceKey, PlannedNote] = {}
    for note in sorted(notes, key=lambda note: when[note.source]):
        waiting = [note]
        while waiting:
            last_one = waiting[-1]
            needed = (before.get(last_one.source), by_key.get(last_one.parent) if last_one.parent else None)
            missing = next((one for one in needed if one is not None and one.source not in ordered), None)
            if missing is None:
                ordered[last_one.source] = waiting.pop()
            else:
                waiting.append(missing)
    return list(ordered.values())


def _status(note: PlannedNote) -> Any:
    return note.status if note.status in STATUSES[note.kind] else STATUSES[note.kind][0]


def _basis(note: PlannedNote) -> str | None:
    """Why a thing was decided stands in its basis, one line; the body has all of it."""
    if note.kind == "attempt" or not note.why:
        return None
    return _line(note.why)[: limits.BASIS_CHARS]


def _line(text: str) -> str:
    """Text of a file as one line that a title may be: control and bidirectional characters are spelled out."""
    return one_line(text)


def _microseconds(dated: dt.date | dt.datetime | None) -> int | None:
    if dated is None:
        return None
    if not isinstance(dated, dt.datetime):
        dated = dt.datetime(dated.year, dated.month, dated.day, tzinfo=dt.UTC)
    elif dated.tzinfo is None:
        dated = dated.replace(tzinfo=dt.UTC)
    return int(dated.timestamp() * 1_000_000)
