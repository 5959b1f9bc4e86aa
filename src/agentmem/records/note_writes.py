"""The commands that write notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import evolve, field, frozen

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, NotFound, shown
from agentmem.log.canonical import canonical
from agentmem.records import claims, likeness, links, note_rows, scopes, subjects, tree, validate
from agentmem.records.base import Unit
from agentmem.records.missing import marks_missing
from agentmem.records.refs import entity_id, note_id
from agentmem.records.standing import standing
from agentmem.types import (
    NOTE_KINDS,
    STATUSES,
    TASK_KINDS,
    UNFINISHED,
    UNTRUSTED,
    Note,
    NoteKind,
    Ref,
    Scope,
    Status,
    Written,
)


@frozen
class NewNote:
    """One note to be written by `notes.add_many`. Fields as the arguments of `notes.add`.

    `digest` is for imports: of the content the note was made from, to tell later whether its source changed.
    `parent` and the targets of `links` may be `"$1"`, `"$2"`, …: the first, second note of the same call.
    """

    kind: NoteKind
    title: str
    body: str = field(default="", kw_only=True)
    status: Status | None = field(default=None, kw_only=True)
    parent: Ref | None = field(default=None, kw_only=True)
    tags: Sequence[str] = field(default=(), kw_only=True)
    pin: bool = field(default=False, kw_only=True)
    confidence: float | None = field(default=None, kw_only=True)
    basis: str | None = field(default=None, kw_only=True)
    about: Ref | None = field(default=None, kw_only=True)
    why: str | None = field(default=None, kw_only=True)
    scope: Scope | None = field(default=None, kw_only=True)
    links: Sequence[tuple[str, Ref]] = field(default=(), kw_only=True)
    dated: int | None = field(default=None, kw_only=True)
    source: str | None = field(default=None, kw_only=True)
    digest: str | None = field(default=None, kw_only=True)


def add(unit: Unit, new: NewNote, *, similar: bool) -> Written:
    """The command behind `store.notes.add`."""
    payload, project = _payload(unit, new)
    alike = likeness.similar(unit, project, payload["title"]) if similar else ()
    event = unit.append("note.added", payload, project=project)
    revision = event.seq
    if new.links != ():
        links.add_several(unit, event.seq, new.links)
        revision = standing(unit, "note", event.seq).revision
    return Written(event.seq, revision, ("created",), alike, (), transit=unit.transit)


def _payload(unit: Unit, new: NewNote) -> tuple[dict[str, Any], int]:
    """The payload of a new note, its defaults left out, and its project."""
    kind = validate.choice(new.kind, "kind", NOTE_KINDS)
    status = STATUSES[kind][0] if new.status is None else validate.choice(new.status, "status", STATUSES[kind])
    payload: dict[str, Any] = {"kind": kind, "title": validate.line(new.title, "title", limits.TITLE_CHARS)}
    payload["status"] = status
    if new.body != "":
        payload["body"] = validate.text(new.body, "body", limits.BODY_BYTES)
    if new.tags != () and (tags := validate.tags(new.tags)):
        payload["tags"] = list(tags)
    if new.pin is not False:
        payload["pinned"] = validate.flag(new.pin, "pin")
    if new.confidence is not None:
        payload["confidence"] = validate.confidence(new.confidence)
    if new.basis is not None:
        payload["basis"] = validate.line(new.basis, "basis", limits.BASIS_CHARS)
    if new.why is not None:
        payload["why"] = _why(kind, new.why)
    if new.scope is not None:
        payload["scope"] = _scope(unit, kind, new.scope)
    if new.dated is not None:
        payload["dated"] = validate.time(new.dated, "dated")
    if new.source is not None:
        payload["source"] = validate.line(new.source, "source", limits.BODY_BYTES)
    if new.digest is not None:
        payload["digest"] = validate.label(new.digest, "digest")
    if new.about is not None:
        payload["entity"] = entity_id(unit, new.about)
    project = _project(unit, kind, new.parent, payload)
    about = subjects.given(unit, payload.get("entity"), payload.get("parent"))
    if about is not None:
        payload["entity"] = about
    return payload, project


def _project(unit: Unit, kind: str, parent: Ref | None, payload: dict[str, Any]) -> int:
    """The project of a new note: its parent's, if it has one. Puts the parent into the payload."""
    if parent is None:
        project = unit.project
    elif kind == "goal":
        raise InvalidInput("A goal has no parent", next="Use a step beneath the other goal")
    else:
        above = payload["parent"] = note_id(unit, parent)
        project, _ = tree.admit(unit, above)
    if "entity" in payload:
        _same_project(unit, payload["entity"], project)
    return project


def _same_project(unit: Unit, entity: int, project: int) -> None:
    if standing(unit, "entity", entity).project != project:
        raise InvalidInput(f"Entity #{entity} is in another project", why="A note and its entity stay in one project")


def _why(kind: str, why: str) -> str:
    if kind != "attempt":
        raise InvalidInput("why= belongs to attempts", next="Put the reason into basis= or the body")
    return validate.text(why, "why", limits.WHY_BYTES)


def _scope(unit: Unit, kind: str, scope: Scope) -> dict[str, Any]:
    if kind not in TASK_KINDS:
        raise InvalidInput("scope= belongs to goals and steps")
    return note_rows.scope_json(scopes.checked(scope))


def placed(new: object, made: Sequence[int]) -> NewNote:
    """The note with `$n` replaced by the n-th id of the call."""
    if not isinstance(new, NewNote):
        raise InvalidInput(f"{type(new).__name__} is no new note", next="Give agentmem.NewNote values")
    pairs = [(kind, _numbered(target, made)) for kind, target in links.pairs(new.links)]
    return evolve(new, parent=_numbered(new.parent, made), links=pairs)


def _numbered(ref: Any, made: Sequence[int]) -> Any:
    if not (isinstance(ref, str) and ref.startswith("$")):
        return ref
    number = ref[1:]
    if not (number.isascii() and number.isdigit() and len(number) < 10 and 1 <= int(number) <= len(made)):
        raise NotFound(f"{shown(ref)} names no earlier note of this call", why=f"{len(made)} came before it")
    return made[int(number) - 1]


def update(unit: Unit, ref: Ref, given: Mapping[str, Any], expected: int | None) -> Written:
    """The command behind `store.notes.update`; `given` has the fields that are set, by their public names."""
    found = note_id(unit, ref)
    claims.guard(unit, found)
    note = note_rows.load(unit, found)
    expect(note.revision, expected, found)
    wanted = _wanted(unit, note, given)
    changes = {name: value for name, value in wanted.items() if canonical(value) != canonical(_present(note, name))}
    if not changes:
        return Written(found, note.revision, transit=unit.transit)
    _may_rule(unit, note, changes)
    was = subjects.subject_of(unit, found) if "entity" in changes and unit.binding.subject is not None else None
    if changes.keys() & _TEXT:
        lowered = unit.lowered(note.origin)
        if note.confirmed_at is not None and (lowered or unit.actor.origin in UNTRUSTED):
            lowered |= {"confirmed_at": None, "confirmed_by": None}  # what was confirmed was another text
        changes |= lowered
    event = unit.append("note.changed", {"set": changes}, record=found, project=note.project)
    subjects.refuse_loosened(unit, found, was)
    notices = left_beneath(unit, found) if "status" in changes else ()
    return Written(found, event.seq, tuple(sorted(changes)), (), notices, transit=unit.transit)


# Fields that are text, or choose what is shown: whoever changes one answers for the record.
_TEXT = frozenset(("title", "body", "basis", "why", "tags", "scope", "source"))


def _may_rule(unit: Unit, note: Note, changes: Mapping[str, Any]) -> None:
    """Refuse that text from elsewhere takes a trusted decision or lesson out of force.

    Raises:
        InvalidInput: It would.
    """
    if (
        "status" in changes
        and note.kind in ("decision", "lesson")
        and unit.actor.origin in UNTRUSTED
        and not note.untrusted
    ):
        raise InvalidInput(
            f"Text from {unit.actor.origin} cannot drop {note.kind} #{note.id}",
            why="The record is trusted, its writer is not",
            next="Write a note about it, and let an agent or a person decide",
        )


def expect(current: int, expected: int | None, record: int) -> None:
    """Refuse a change that was decided on another revision.

    Raises:
        Conflict: `expected` is given and is not the current revision.
    """
    if expected is not None and validate.cursor(expected, "expected_revision") != current:
        raise Conflict(
            f"#{record} is at revision {current}, not {expected}",
            why="It was changed since it was read",
            next="Read it again and decide anew",
            current=current,
        )


def _wanted(unit: Unit, note: Note, given: Mapping[str, Any]) -> dict[str, Any]:
    """The fields as an event would set them, from the public names."""
    if "append" in given and "body" in given:
        raise InvalidInput("body= and append= exclude each other")
    wanted: dict[str, Any] = {}
    for name, value in given.items():
        match name:
            case "title":
                wanted["title"] = validate.line(value, "title", limits.TITLE_CHARS)
            case "body":
                wanted["body"] = validate.text(value, "body", limits.BODY_BYTES)
            case "append":
                added = validate.written(value, "append", limits.BODY_BYTES)
                whole = f"{note.body}\n{added}" if note.body else added
                wanted["body"] = validate.text(whole, "body", limits.BODY_BYTES)
            case "status":
                wanted["status"] = validate.choice(value, "status", STATUSES[note.kind])
            case "tags":
                wanted["tags"] = list(validate.tags(() if value is None else value))
            case "pin":
                wanted["pinned"] = validate.flag(value, "pin")
            case "confidence":
                wanted["confidence"] = validate.confidence(value)
            case "basis":
                wanted["basis"] = validate.optional_line(value, "basis", limits.BASIS_CHARS)
            case "why":
                wanted["why"] = None if value is None else _why(note.kind, value)
            case "scope":
                wanted["scope"] = None if value is None else _scope(unit, note.kind, value)
            case "dated":
                wanted["dated"] = None if value is None else validate.time(value, name)
            case "source":
                wanted["source"] = validate.optional_line(value, "source", limits.BODY_BYTES)
            case "digest":
                wanted["digest"] = validate.label(value, "digest")
            case "about":
                wanted["entity"] = None if value is None else entity_id(unit, value)
                if wanted["entity"] is not None:
                    _same_project(unit, wanted["entity"], note.project)
            case _:
                raise InvalidInput(f"A note has no field {shown(name)}")
    return wanted


def _present(note: Note, name: str) -> Any:
    """A field of a note as an event would set it."""
    value = getattr(note, name, None)  # a digest is not shown, and is set only where it differs
    if name == "scope":
        return None if value is None else note_rows.scope_json(value)
    return value


def left_beneath(unit: Unit, note: int, *, closing: bool = False) -> tuple[str, ...]:
    """One notice if a task that was just closed, or is closing, has open steps or checklist items beneath it."""
    kind, status = unit.one("SELECT kind, status FROM note WHERE id = ?", (note,))
    if kind not in TASK_KINDS or (status in UNFINISHED and not closing):
        return ()
    seen = subjects.of_notes(unit)
    lacking = _LEFT.format(
        seen=seen, owned=f"WHERE EXISTS (SELECT 1 FROM note WHERE id = item.note {seen})" if seen else ""
    )
    steps, items = unit.one(f"{tree.BENEATH} {lacking}", (note, *UNFINISHED, *TASK_KINDS))
    parts = []
    if steps:
        parts.append(f"{steps} open step{'s' if steps > 1 else ''}")
    if items:
        parts.append(f"{items} open checklist item{'s' if items > 1 else ''}")
    if marks := marks_missing(unit, note):
        parts.append(f"{marks} mark{'s' if marks > 1 else ''} of its scope missing")
    return (f"#{note} is closed with {' and '.join(parts)} beneath it",) if parts else ()


_LEFT = """
SELECT (SELECT count(*) FROM beneath JOIN note USING (id)
        WHERE id <> ?1 AND status IN (?2, ?3) AND kind IN (?4, ?5) {seen}),
       (SELECT count(*) FROM beneath JOIN item ON item.note = beneath.id AND item.done = 0 AND item.removed = 0 {owned})
"""
