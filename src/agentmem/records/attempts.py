"""Attempts: opened before the try, closed with an outcome and why. Opening names the earlier ones like it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from agentmem import limits, text
from agentmem.errors import Conflict, InvalidInput
from agentmem.records import claims, note_rows, rarity, validate
from agentmem.records.base import Namespace, Unit, View
from agentmem.records.likeness import words_of
from agentmem.records.note_writes import NewNote, add, expect
from agentmem.records.refs import entity_id, note_id
from agentmem.types import OUTCOMES, Earlier, Opened, Outcome, Ref, Written

EARLIER: Final = 5  # named at most
_CANDIDATES: Final = 200
# What each thing shared adds to the nearness; words count by their likeness.
_ENTITY, _TASK, _WORDS = 0.4, 0.1, 0.5
_NEAR: Final = 0.25
_WORDS_ASKED: Final = 12


class Attempts(Namespace):
    """`store.attempts`: open, close, earlier."""

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
            The attempt; `earlier` names at most `EARLIER` attempts like it, failed ones first, with why they ended so.
        """

        def command(unit: Unit) -> Opened:
            parent = unit.actor.task if task is None else note_id(unit, task)
            entity = None if about is None else entity_id(unit, about)
            found = nearest(unit, validate.line(what, "what", limits.TITLE_CHARS), entity, parent)
            new = NewNote("attempt", what, body=body, parent=parent, about=entity, tags=tags)
            made = add(unit, new, similar=False)
            return Opened(made.id, made.revision, made.changed, earlier=found, transit=unit.transit)

        arguments = {"what": what, "about": about, "task": task, "body": body, "tags": tags}
        opened = self._binding.run("attempts.open", arguments, request_id, command)
        return self._recalled(opened) if opened.repeated and not opened.gone else opened

    def _recalled(self, opened: Opened) -> Opened:
        """A repeated opening with the earlier attempts as they are now: a retry needs them as the first call did."""
        with self._binding.reading() as view:
            note = note_rows.load(view, opened.id)
            found = nearest(view, note.title or "", note.entity, note.parent, before=opened.id)
            return evolve(opened, earlier=found)

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
            return nearest(view, validate.line(what, "what", limits.TITLE_CHARS), entity, parent)


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
    source: Unit | View, what: str, entity: int | None, task: int | None, *, before: int = limits.INT_MAX
) -> tuple[Earlier, ...]:
    """The attempts of the project like this one, older than `before`: same entity, task, words; failed ones first."""
    candidates: dict[int, tuple[Any, ...]] = {}
    columns = "note.id, note.title, note.status, note.why, note.entity, note.parent, note.origin, note.body"
    conditions = "note.project = ? AND note.kind = 'attempt' AND note.title IS NOT NULL AND note.id < ?"
    above = None if task is None else source.row("SELECT project FROM note WHERE id = ?", (task,))
    project = source.known_project if above is None else above[0]

    def gather(sql: str, *values: Any) -> None:
        for row in source.rows(f"SELECT {columns} {sql} LIMIT {_CANDIDATES}", values):
            candidates[row[0]] = row

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
    scored = [(_nearness(row, what, entity, task), row) for row in candidates.values()]
    near = [(score, same, row) for (score, same), row in scored if score >= _NEAR]
    near.sort(key=lambda one: (one[2][2] != "failed", -one[0], -one[2][0]))
    return tuple(
        Earlier(row[0], row[1], row[2], row[3] or "", round(score, 3), same, row[6])
        for score, same, row in near[:EARLIER]
    )


def _nearness(row: tuple[Any, ...], what: str, entity: int | None, task: int | None) -> tuple[float, tuple[str, ...]]:
    same, score = [], 0.0
    if entity is not None and row[4] == entity:
        same.append("entity")
        score += _ENTITY
    if task is not None and row[5] == task:
        same.append("task")
        score += _TASK
    words = text.likeness(what, row[1])
    if words > 0:
        same.append("words")
        score += _WORDS * words
    return score, tuple(same)
