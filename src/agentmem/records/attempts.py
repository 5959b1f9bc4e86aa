"""Attempts: opened before the try, closed with an outcome and why. Opening names the earlier ones like it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve

from agentmem import limits, text
from agentmem.errors import Conflict, InvalidInput, NotFound
from agentmem.log.canonical import canonical
from agentmem.records import claims, note_rows, rarity, subjects, validate
from agentmem.records.base import Namespace, Row, Unit, View
from agentmem.records.likeness import words_of
from agentmem.records.note_writes import NewNote, add, expect
from agentmem.records.refs import entity_id, note_id
from agentmem.types import OUTCOMES, Earlier, Opened, Outcome, Ref, Written

EARLIER: Final = 5  # named at most
_CANDIDATES: Final = 200
# What each thing shared adds to the nearness; what is said counts by its likeness, in words or in meaning.
_ENTITY, _TASK, _SAID = 0.4, 0.1, 0.5
_NEAR: Final = 0.25
_WORDS_ASKED: Final = 12
# By meaning alone an attempt is near from a cosine of 0.42 on. Tried with 60 of 163 attempts said in other words, of which
# words alone find none: 26 are found, each as one of the two nearest, and in 3 openings of the 60 something else is as
# near. From 0.45 on these are 17 and 1, from 0.4 on 30 and 6, from 0.35 on 43 and 16.
_COSINE_OF_ALL: Final = 0.84
_COSINE_LEAST: Final = 0.35  # below it counts nothing, whatever else is shared
_MEANT: Final = 3  # named at most that would not be near without it: those at something else grow with the store
_COLUMNS: Final = "note.id, note.title, note.status, note.why, note.entity, note.parent, note.origin, note.body"


class Attempts(Namespace):
    """`store.attempts`: open, close, earlier, failed_like."""

    __slots__ = ()

    def open(
        self,
        what: str,
        *,
        about: Ref | None = None,
        task: Ref | None = None,
        body: str = "",
        tags: Sequence[str] = (),
        request_id: str | None = None,
    ) -> Opened:
        """Say what is about to be tried, before trying it.

        Args:
            what: One line.
            about: The entity it is tried on.
            task: The note it belongs to; the actor's task if not given.
            body: Anything more.
            tags: Tags.
            request_id: Makes a retry safe.

        Returns:
            The attempt; `earlier` names at most `EARLIER` attempts like it, failed ones first, with why they ended so. Like
            it are those on the same entity, of the same task, with the same words, or of the same meaning; see `recall` for
            where there is none.
        """
        line = validate.line(what, "what", limits.TITLE_CHARS)
        # Before the transaction: nobody who wants to write is to wait for a model.
        cosines = self._alike(line, task)

        def command(unit: Unit) -> Opened:
            parent = unit.actor.task if task is None else note_id(unit, task)
            entity = subjects.given(unit, None if about is None else entity_id(unit, about), parent)
            found = nearest(unit, line, entity, parent, cosines)
            new = NewNote("attempt", what, body=body, parent=parent, about=entity, tags=tags)
            made = add(unit, new, similar=False)
            return Opened(made.id, made.revision, made.changed, earlier=found, transit=unit.transit)

        arguments = {"what": what, "about": about, "task": task, "body": body, "tags": tags}
        opened = self._binding.run("attempts.open", arguments, request_id, command)
        return self._recalled(opened, cosines) if opened.repeated and not opened.gone else opened

    def _recalled(self, opened: Opened, cosines: Mapping[int, float]) -> Opened:
        """A repeated opening with the earlier attempts as they are now: a retry needs them as the first call did."""
        with self._binding.reading() as view:
            note = note_rows.load(view, opened.id)
            found = nearest(view, note.title or "", note.entity, note.parent, cosines, before=opened.id)
            return evolve(opened, earlier=found)

    def _alike(self, what: str, task: Ref | None) -> Mapping[int, float]:
        """The attempts like one in meaning, of the project that it goes to; nothing if the command is to refuse the task."""
        with self._binding.reading() as view:
            try:
                parent = self._binding.actor.task if task is None else note_id(view, task)
            except (InvalidInput, NotFound):
                return {}
            return _alike(view, what, parent)

    def close(
        self,
        attempt: Ref,
        outcome: Outcome,
        *,
        why: str = "",
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Say how an attempt ended.

        Args:
            attempt: The one that was opened.
            outcome: `worked`, `failed` or `unclear`.
            why: The reason, for whoever thinks of trying it again. A failed one needs it.
            expected_revision: The revision the caller has seen.
            request_id: Makes a retry safe.

        Raises:
            InvalidInput: A failed attempt without a reason.
            Conflict: It was closed before with another outcome or reason; `notes.update` changes it all the same.
        """
        arguments = {"attempt": attempt, "outcome": outcome, "why": why, "expected_revision": expected_revision}
        return self._binding.run(
            "attempts.close", arguments, request_id, lambda unit: _close(unit, attempt, outcome, why, expected_revision)
        )

    def earlier(self, what: str, *, about: Ref | None = None, task: Ref | None = None) -> tuple[Earlier, ...]:
        """The attempts like this one, without opening it."""
        with self._binding.reading() as view:
            entity = None if about is None else entity_id(view, about)
            parent = None if task is None else note_id(view, task)
            line = validate.line(what, "what", limits.TITLE_CHARS)
            return nearest(view, line, entity, parent, _alike(view, line, parent))

    def failed_like(self, command: str, *, limit: int = 1) -> tuple[Earlier, ...]:
        """The failed attempts that a command would repeat, by words alone: to be asked before it is run.

        Rather none than a wrong one: an attempt is named if it is written as this command, or if its title tells the same and
        no host, address, path, number, identifier or option differs. `earlier` finds more, for somebody who looks.

        Args:
            command: What is about to be run, of any length; its beginning counts.
            limit: At most so many, the nearest first.
        """
        from agentmem.records.commands import failed_like

        with self._binding.reading() as view:
            return failed_like(view, command, limit)


def _close(unit: Unit, ref: Ref, outcome: str, why: str, expected: int | None) -> Written:
    found = note_id(unit, ref, kinds=("attempt",))
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    status = validate.choice(outcome, "outcome", OUTCOMES)
    reason = validate.text(why, "why", limits.WHY_BYTES).strip()
    if status == "failed" and not (reason or note.why):
        raise InvalidInput("A failed attempt needs why=", why="Whoever thinks of trying it again reads nothing else")
    changes: dict[str, Any] = {}
    if note.status != status:
        changes["status"] = status
    if reason and reason != note.why:
        changes["why"] = reason
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    if note.status != "active":
        raise Conflict(
            f"Attempt #{found} was closed before: {note.status}",
            next="Open a new attempt for a new try, or correct this one with notes.update",
            current=note.revision,
        )
    if "why" in changes:
        origin = validate.less_trusted(note.origin, unit.actor.origin)
        if origin != note.origin:
            changes["origin"] = origin
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    return Written(found, event.seq, tuple(sorted(changes)), transit=unit.transit)


def nearest(
    source: Unit | View,
    what: str,
    entity: int | None,
    task: int | None,
    cosines: Mapping[int, float],
    *,
    before: int = limits.INT_MAX,
) -> tuple[Earlier, ...]:
    """The attempts of the project like this one, failed ones first.

    Args:
        source: Where to look.
        what: What is tried.
        entity: On what.
        task: For what.
        cosines: Attempts like it in meaning, by id.
        before: The id below which they are.
    """
    near, meant = [], 0
    scored = [
        (*_nearness(row, what, entity, task, cosines.get(row[0], 0.0)), row)
        for row in _candidates(source, what, entity, task, cosines, before)
    ]
    for score, without, same, row in sorted(scored, key=lambda one: (-one[0], -one[3][0])):
        meant += without < _NEAR <= score
        if without >= _NEAR or (score >= _NEAR and meant <= _MEANT):
            near.append(Earlier(row[0], row[1], row[2], row[3] or "", round(score, 3), same, row[6]))
    near.sort(key=lambda one: one.status != "failed")
    return tuple(near[:EARLIER])


def _project(source: Unit | View, task: int | None) -> int:
    """The project that an attempt goes to."""
    above = None if task is None else source.row("SELECT project FROM note WHERE id = ?", (task,))
    return source.known_project if above is None else above[0]


def _alike(view: View, what: str, task: int | None) -> dict[int, float]:
    """The cosines of attempts like this one in meaning; nothing where that can't be had, then words are all there is."""
    alike = view.binding.ledger.alike
    ask = None if alike is None else alike()
    found = {} if ask is None else ask(view, what, _project(view, task))
    return {record: cosine for record, cosine in found.items() if cosine >= _COSINE_LEAST}


def _candidates(
    source: Unit | View, what: str, entity: int | None, task: int | None, cosines: Mapping[int, float], before: int
) -> Iterable[Row]:
    """The attempts that share anything with this one; rows of `_COLUMNS`."""
    project = _project(source, task)
    found: dict[int, Row] = {}
    conditions = "note.project = ? AND note.kind = 'attempt' AND note.title IS NOT NULL AND note.id < ?"
    conditions = f"{conditions} {subjects.of_notes(source)}".rstrip()

    def gather(sql: str, *values: Any) -> None:
        for row in source.rows(f"SELECT {_COLUMNS} {sql} LIMIT {_CANDIDATES}", values):
            found[row[0]] = row

    if entity is not None:
        gather(
            f"FROM note INDEXED BY note_entity WHERE note.entity = ? AND {conditions} ORDER BY note.id DESC",
            entity,
            project,
            before,
        )
    if task is not None:
        gather(
            f"FROM note INDEXED BY note_parent WHERE note.parent = ? AND {conditions} ORDER BY note.id DESC",
            task,
            project,
            before,
        )
    # Common words find too many to be worth it: they count where a rarer one, or all of them, are there.
    rare, common = rarity.split(source, words_of(what)[:_WORDS_ASKED])
    words = text.any_of(rare) if rare else " AND ".join(unit.exact() for unit in common)
    if words:
        gather(
            f"FROM search CROSS JOIN note ON note.id = search.rowid WHERE search MATCH ? AND {conditions} ORDER BY search.rank",
            words,
            project,
            before,
        )
    if cosines:
        listed = canonical(sorted(cosines))
        gather(f"FROM note WHERE note.id IN (SELECT value FROM json_each(?)) AND {conditions}", listed, project, before)
    return found.values()


def _nearness(
    row: Row, what: str, entity: int | None, task: int | None, cosine: float
) -> tuple[float, float, tuple[str, ...]]:
    """How near an attempt is, how near without meaning, and what it shares."""
    same, score = [], 0.0
    if entity is not None and row[4] == entity:
        same.append("entity")
        score += _ENTITY
    if task is not None and row[5] == task:
        same.append("task")
        score += _TASK
    words = text.likeness(what, row[1])
    meaning = min(cosine / _COSINE_OF_ALL, 1.0) if cosine >= _COSINE_LEAST else 0.0
    if words > 0:
        same.append("words")
    if meaning > words:
        same.append("meaning")
    return score + _SAID * max(words, meaning), score + _SAID * words, tuple(same)
