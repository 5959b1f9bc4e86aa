"""Notes: what an agent sets out to do, tries, finds, decides, asks and learns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from agentmem import limits
from agentmem.records import note_rows, subjects, tree, validate
from agentmem.records.base import Namespace, Unit, View
from agentmem.records.moves import move
from agentmem.records.note_writes import NewNote, add, placed, update
from agentmem.records.refs import entity_id, note_id
from agentmem.types import (
    ALL_STATUSES,
    NOTE_KINDS,
    UNSET,
    Note,
    NoteKind,
    Ref,
    Scope,
    Status,
    Unset,
    Written,
    WrittenMany,
)


class Notes(Namespace):
    """`store.notes`: add, update, move, get, list."""

    __slots__ = ()

    def add(
        self,
        kind: NoteKind,
        title: str,
        *,
        body: str = "",
        status: Status | None = None,
        parent: Ref | None = None,
        tags: Sequence[str] = (),
        pin: bool = False,
        confidence: float | None = None,
        basis: str | None = None,
        about: Ref | None = None,
        why: str | None = None,
        scope: Scope | None = None,
        links: Sequence[tuple[str, Ref]] = (),
        dated: int | None = None,
        source: str | None = None,
        similar: bool = True,
        request_id: str | None = None,
    ) -> Written:
        """Write a note.

        Args:
            kind: What it is.
            title: One line, `TITLE_CHARS` at most.
            body: Anything more, `BODY_BYTES` at most.
            status: One the kind may have; its default otherwise.
            parent: The note it stands beneath; it takes that note's project. A goal has none.
            tags: `p0` to `p3` is a priority.
            pin: Show it first beneath its parent.
            confidence: 0 to 1.
            basis: What it rests on, one line.
            about: The entity it is about.
            why: Of an attempt: why it ended as it did.
            scope: Of a task: the entities and checks it covers; see `store.scope`.
            links: Pairs of link kind and target.
            dated: When it was true or written elsewhere, microseconds; the log has its own time.
            source: Where it was imported from, one line.
            similar: Look for notes with much the same title; they are named in the answer, nothing is merged.
            request_id: Makes a retry safe.

        Raises:
            InvalidInput: An argument is not acceptable.
            NotFound: Parent, entity or a link's target does not exist.
        """
        new = NewNote(
            kind, title, body=body, status=status, parent=parent, tags=tags, pin=pin, confidence=confidence,
            basis=basis, about=about, why=why, scope=scope, links=links, dated=dated, source=source,
        )  # fmt: skip
        validate.flag(similar, "similar")
        arguments = {} if request_id is None else {"note": new}
        return self._binding.run("notes.add", arguments, request_id, lambda unit: add(unit, new, similar=similar))

    def add_many(self, notes: Iterable[NewNote], *, request_id: str | None = None) -> WrittenMany:
        """Write notes in one transaction, all or none; `limits.BATCH` at most."""
        given = validate.batch(notes, "notes")

        def command(unit: Unit) -> WrittenMany:
            made: list[int] = []
            for new in given:
                made.append(add(unit, placed(new, made), similar=False).id)
            return WrittenMany(tuple(made), created=len(made), transit=unit.transit)

        return self._binding.run("notes.add_many", {"notes": given}, request_id, command)

    def update(
        self,
        note: Ref,
        *,
        title: str | Unset = UNSET,
        body: str | Unset = UNSET,
        append: str | Unset = UNSET,
        status: Status | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET,
        pin: bool | Unset = UNSET,
        confidence: float | None | Unset = UNSET,
        basis: str | None | Unset = UNSET,
        about: Ref | None | Unset = UNSET,
        why: str | None | Unset = UNSET,
        scope: Scope | None | Unset = UNSET,
        dated: int | None | Unset = UNSET,
        source: str | None | Unset = UNSET,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Change a note. What is `UNSET` stays; `None` clears. A change of nothing leaves no event.

        `append` adds to the body after a newline. To place a note elsewhere use `move`.

        Raises:
            Conflict: `expected_revision` is not the current one; `current` of the error is.
            Held: Somebody else claims the note.
        """
        changes = {
            "title": title, "body": body, "append": append, "status": status, "tags": tags, "pin": pin,
            "confidence": confidence, "basis": basis, "about": about, "why": why, "scope": scope,
            "dated": dated, "source": source,
        }  # fmt: skip
        given = {name: value for name, value in changes.items() if not isinstance(value, Unset)}
        return self._binding.run(
            "notes.update",
            {"note": note, "expected_revision": expected_revision, **given},
            request_id,
            lambda unit: update(unit, note, given, expected_revision),
        )

    def update_many(
        self,
        notes: Iterable[Ref],
        *,
        status: Status | Unset = UNSET,
        tags: Sequence[str] | Unset = UNSET,
        pin: bool | Unset = UNSET,
        request_id: str | None = None,
    ) -> WrittenMany:
        """Change several notes in the same way, all or none."""
        refs = validate.batch(notes, "notes")
        changes = {"status": status, "tags": tags, "pin": pin}
        given = {name: value for name, value in changes.items() if not isinstance(value, Unset)}

        def command(unit: Unit) -> WrittenMany:
            done = [update(unit, ref, given, None) for ref in refs]
            changed = sum(1 for one in done if one.changed)
            ids = tuple(one.id for one in done)
            return WrittenMany(ids, changed=changed, unchanged=len(ids) - changed, transit=unit.transit)

        return self._binding.run("notes.update_many", {"notes": refs, **given}, request_id, command)

    def move(
        self,
        note: Ref,
        *,
        parent: Ref | None | Unset = UNSET,
        before: Ref | None = None,
        after: Ref | None = None,
        first: bool = False,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Place a note elsewhere, with all that lies beneath it.

        Args:
            note: What moves.
            parent: Beneath which note; None makes it a root; unset keeps the parent.
            before: Directly before this sibling.
            after: Directly after this sibling.
            first: Before all siblings. The default is after all of them.
            expected_revision: The revision the caller has seen.
            request_id: Makes a retry safe.

        Raises:
            Conflict: Beneath itself, or a stale revision.
            LimitExceeded: The tree would grow too deep.
        """
        validate.flag(first, "first")
        arguments = {"note": note, "parent": parent, "before": before, "after": after, "first": first}
        return self._binding.run(
            "notes.move",
            {**arguments, "expected_revision": expected_revision},
            request_id,
            lambda unit: move(unit, note, parent, before, after, first, expected_revision),
        )

    def get(self, note: Ref) -> Note:
        """A note in full.

        Raises:
            NotFound: There is none, or it was purged.
        """
        with self._binding.reading() as view:
            return note_rows.load(view, note_id(view, note))

    def list(
        self,
        *,
        kind: NoteKind | None = None,
        status: Status | None = None,
        parent: Ref | None | Unset = UNSET,
        under: Ref | None = None,
        about: Ref | None = None,
        tag: str | None = None,
        limit: int = limits.PAGE,
        after: int = 0,
    ) -> tuple[Note, ...]:
        """Notes of the project in the order they were written.

        Args:
            kind: Of this kind.
            status: In this status.
            parent: The children of a note in their order, pinned ones first; None for those without parent.
            under: Anywhere beneath a note.
            about: About this entity.
            tag: With this tag.
            limit: At most so many.
            after: Continue after the note of this id.
        """
        validate.page(limit)
        validate.cursor(after, "after")
        with self._binding.reading() as view:
            return _list(view, kind, status, parent, under, about, tag, limit, after)


def _list(
    view: View,
    kind: str | None,
    status: str | None,
    parent: Ref | None | Unset,
    under: Ref | None,
    about: Ref | None,
    tag: str | None,
    limit: int,
    after: int,
) -> tuple[Note, ...]:
    conditions: list[str] = ["title IS NOT NULL"]
    values: list[Any] = []
    prefix, order = "", "id"
    if under is not None:
        prefix = tree.BENEATH
        values.append(note_id(view, under))
        conditions.append("id IN (SELECT id FROM beneath WHERE level > 0)")
    if isinstance(parent, Unset) or parent is None:
        # Of all notes the first are wanted in the order of the table: by the index of the project all would be sorted.
        whole = parent is not None and kind is None and under is None and about is None
        conditions.append("+project = ?" if whole else "project = ?")
        values.append(view.project)
        if parent is None:
            conditions.append("parent IS NULL")
        conditions.append("id > ?")
        values.append(after)
    else:
        conditions.append("parent = ?")
        values.append(note_id(view, parent))
        order = "pinned DESC, position, id"
        if after:
            conditions.append(
                "(NOT pinned, position, id) > (SELECT NOT pinned, position, id FROM note AS last WHERE last.id = ?)"
            )
            values.append(after)
    if kind is not None:
        conditions.append("kind = ?")
        values.append(validate.choice(kind, "kind", NOTE_KINDS))
    if status is not None:
        conditions.append("status = ?")
        values.append(validate.choice(status, "status", ALL_STATUSES))
    if about is not None:
        conditions.append("entity = ?")
        values.append(entity_id(view, about))
    if tag is not None:
        conditions.append("EXISTS (SELECT 1 FROM json_each(note.tags) WHERE value = ?)")
        values.append(validate.label(tag, "tag", limits.TAG_CHARS))
    sql = (
        f"{prefix} SELECT {note_rows.COLUMNS} FROM note WHERE {' AND '.join(conditions)} {subjects.of_notes(view)}"
        f" ORDER BY {order} LIMIT {limit}"
    )
    return tuple(note_rows.note(row) for row in view.rows(sql, values))
