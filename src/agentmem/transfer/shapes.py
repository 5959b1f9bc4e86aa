"""What the payload of each kind of event may hold.

`apply` rests on what commands wrote and checks nothing. The events of a file were written by whoever wrote the file, so
each is held against this first: no field that the kind does not have, and in each what a command could have put there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

from agentmem import limits
from agentmem.errors import InvalidInput, NewerFile, shown
from agentmem.log.canonical import canonical, plain
from agentmem.records import note_rows, scopes, sessions, validate, vocabulary
from agentmem.records.whole import STATE
from agentmem.types import ALL_STATUSES, CHECK_RESULTS, LINK_KINDS, NOTE_KINDS, ORIGINS, STATUSES, Event, Scope

__all__ = ["checked"]

Check: TypeAlias = Callable[[Any], bool]
Fields: TypeAlias = Mapping[str, Check]


def checked(event: Event) -> None:
    """Refuse a payload that no command writes; one that was erased has nothing to refuse.

    Args:
        event: Its payload as the current version of the kind spells it.

    Raises:
        InvalidInput: A field is missing, or is not what it can be.
        NewerFile: It has a field that this version does not know.
    """
    if event.payload is None:
        return
    kind = event.kind
    fields = _KINDS[kind] if kind in _KINDS else _OF_ALL[kind.removeprefix(f"{event.type}.")](event.type)
    _each(event.payload, {**fields, **_ANYWHERE}, kind)
    for name in _NEEDED.get(kind, ()):
        if name not in event.payload:
            raise InvalidInput(f"{kind} has no {name}")
    if kind.endswith((".linked", ".unlinked")) and event.type == "note":
        _choice(event.payload["kind"], "kind", LINK_KINDS)
    if kind == "message.added":
        _spoken(event.payload)
    if kind == "note.added":
        validate.choice(event.payload["status"], "status", _statuses(event.payload["kind"]))


def _spoken(payload: Mapping[str, Any]) -> None:
    """Refuse an event of a session that could not have been appended."""
    of, body = payload["type"], payload["body"]
    if canonical(vocabulary.checked(of, body)) != canonical(body):
        raise InvalidInput(f"The body of {of} is not as it is stored")
    if vocabulary.refers(of, body) != payload.get("target"):
        raise InvalidInput(f"{of} answers another event than it says")
    if "key" in payload and not vocabulary.key_allowed(of):
        raise InvalidInput(f"{of} has a key")


def _statuses(kind: str) -> tuple[str, ...]:
    return STATUSES[kind]


def _choice(value: object, name: str, allowed: Iterable[str]) -> None:
    validate.choice(value, name, tuple(allowed))


def _each(given: Mapping[str, Any], fields: Fields, where: str) -> None:
    for name, value in given.items():
        check = fields.get(name)
        if check is None:
            raise NewerFile(f"{where} has a field {shown(name)}, unknown to this version", next="Upgrade agentmem")
        try:
            sound = check(value)
        except InvalidInput as error:
            raise InvalidInput(f"{name} of {where}: {error.what}", why=error.why) from None
        if not sound:
            raise InvalidInput(f"{name} of {where} is {shown(value)}")


# Values


def _optional(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _line(most: int) -> Check:
    return lambda value: bool(validate.line(value, "it", most) == value)


def _text(most: int) -> Check:
    return lambda value: bool(validate.text(value, "it", most) == value)


def _label(value: Any) -> bool:
    return bool(validate.label(value, "it") == value)


def _project(value: Any) -> bool:
    return bool(validate.project(value) == value)


def _token(value: Any) -> bool:
    return bool(validate.token(value, "it") == value)


def _one_of(allowed: tuple[str, ...]) -> Check:
    return lambda value: type(value) is str and value in allowed


def _flag(value: Any) -> bool:
    return type(value) is bool


def _bit(value: Any) -> bool:
    return type(value) is int and value in (0, 1)


def _time(value: Any) -> bool:
    return type(value) is int and limits.TIME_LEAST <= value <= limits.TIME_MOST


def _id(value: Any) -> bool:
    return type(value) is int and value > 0


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _confidence(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= 1


def _tags(value: Any) -> bool:
    return type(value) is list and list(validate.tags(value)) == value


def _tokens(value: Any) -> bool:
    return type(value) is list and list(validate.tokens(value, "it")) == value


def _names(value: Any) -> bool:
    return type(value) is list and all(type(each) is str for each in value)


def _scope(value: Any) -> bool:
    if type(value) is not dict or not value.keys() <= {"type", "where", "checks"} or "type" not in value:
        return False
    checks = value.get("checks", [])
    return type(checks) is list and note_rows.scope_json(scopes.checked(note_rows.scope_of(value))) == value


def _where(value: Any) -> bool:
    if value == "":
        return True
    return type(value) is str and scopes.checked(Scope("any", value)).where == value


def _attrs(value: Any) -> bool:
    if type(value) is not dict or len(value) > limits.ATTRS_PER_ENTITY:
        return False
    named = all(name and len(name) <= limits.ATTR_NAME_CHARS and name.isprintable() for name in value)
    written = canonical(value)
    return named and len(written.encode()) <= limits.ATTRS_BYTES and not _holds_nul(value)


def _holds_nul(value: Any) -> bool:
    """U+0000 ends a text in SQLite's JSON."""
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any("\0" in name or _holds_nul(part) for name, part in value.items())
    return isinstance(value, list) and any(map(_holds_nul, value))


def _json(check: Check) -> Check:
    """A value that stands in a column as canonical JSON."""

    def sound(value: Any) -> bool:
        if type(value) is not str:
            return False
        try:
            found = plain(value)
        except (ValueError, RecursionError):
            return False
        return canonical(found) == value and check(found)

    return sound


def _anything(value: Any) -> bool:
    return True


_MARK: Final[Fields] = {
    "result": _one_of(CHECK_RESULTS), "value": _anything, "detail": _optional(_line(limits.DETAIL_CHARS)), "at": _time,
    "author": _optional(_label), "run": _optional(_label), "origin": _one_of(ORIGINS),
}  # fmt: skip
_MARK_ROW: Final = (
    _one_of(CHECK_RESULTS), _optional(_json(_anything)), _optional(_line(limits.DETAIL_CHARS)), _time, _id,
    _optional(_label), _optional(_label), _one_of(ORIGINS),
)  # fmt: skip


def _marks(value: Any) -> bool:
    if type(value) is not dict:
        return False
    for name, mark in value.items():
        if not _token(name) or type(mark) is not dict or "result" not in mark:
            return False
        _each(mark, _MARK, f"mark {name}")
    return True


def _mark_rows(value: Any) -> bool:
    return type(value) is dict and all(
        _token(name)
        and type(row) is list
        and len(row) == len(_MARK_ROW)
        and all(check(part) for check, part in zip(_MARK_ROW, row, strict=True))
        for name, row in value.items()
    )


def _touched(value: Any) -> bool:
    return type(value) is list and all(type(pair) is list and len(pair) == 2 and all(map(_id, pair)) for pair in value)


def _agent(value: Any) -> bool:
    return type(value) is dict and bool(sessions.agent_of(value) == value)


def _metadata(value: Any) -> bool:
    return type(value) is dict and sessions.metadata_of(value) == value


def _object(value: Any) -> bool:
    return type(value) is dict


def _event_type(value: Any) -> bool:
    return bool(vocabulary.known(value) == value)


def _hash(value: Any) -> bool:
    return type(value) is str and len(value) == 64 and value.isascii() and value.isalnum()


def _copied(value: Any) -> bool:
    return type(value) is list and len(value) == 2 and type(value[0]) is str and len(value[0]) == 32 and _id(value[1])


def _copies(value: Any) -> bool:
    return type(value) is list and all(map(_copied, value))


def _set(fields: Fields, clearable: str = "", *, empty: bool = False) -> Check:
    """The fields that a change sets, each to what it may be; those that may be cleared to nothing, too.

    Args:
        fields: What each field may be.
        clearable: Names of those that may be nothing.
        empty: Whether the change may set no field at all.
    """
    names = clearable.split()
    either = {name: _optional(check) if name in names else check for name, check in fields.items()}

    def sound(value: Any) -> bool:
        if type(value) is not dict:
            return False
        _each(value, either, "the change")
        return empty or bool(value)

    return sound


def _but(fields: Fields, fixed: str) -> Fields:
    """The fields without those that never change."""
    return {name: check for name, check in fields.items() if name not in fixed.split()}


# Records

_LABELS: Final[Fields] = {"author": _optional(_label), "run": _optional(_label)}
_NOTE: Final[Fields] = {
    "kind": _one_of(NOTE_KINDS), "title": _line(limits.TITLE_CHARS), "body": _text(limits.BODY_BYTES),
    "status": _one_of(ALL_STATUSES), "tags": _tags, "parent": _id, "position": _number, "pinned": _flag,
    "confidence": _confidence, "basis": _line(limits.BASIS_CHARS), "entity": _id, "why": _text(limits.WHY_BYTES),
    "scope": _scope, "dated": _time, "source": _line(limits.BODY_BYTES), "digest": _label, "origin": _one_of(ORIGINS),
    "confirmed_at": _time, "confirmed_by": _label, "project": _id,
}  # fmt: skip
_ENTITY: Final[Fields] = {
    "type": _token, "key": _line(limits.KEY_CHARS), "status": _token, "parent": _id, "confidence": _confidence,
    "origin": _one_of(ORIGINS), "project": _id,
}  # fmt: skip
_ITEM: Final[Fields] = {
    "note": _id, "number": _id, "text": _line(limits.ITEM_CHARS), "done": _flag, "done_by": _label, "done_at": _time,
    "position": _number, "origin": _one_of(ORIGINS), "removed": _flag,
}  # fmt: skip
_SUMMARY: Final[Fields] = {
    "note": _id, "work": _text(limits.SUMMARY_BYTES), "result": _text(limits.SUMMARY_BYTES), "confidence": _confidence,
    "basis": _line(limits.BASIS_CHARS), "origin": _one_of(ORIGINS), "author": _label, "run": _label, "at": _time,
}  # fmt: skip
_CHECKPOINT: Final[Fields] = {
    "text": _text(limits.CHECKPOINT_BYTES), "task": _id, "dated": _time, "project": _id,
}  # fmt: skip
_CHECKS: Final[Fields] = {"type": _token, "where": _where, "names": _tokens, "project": _id}
_SESSION: Final[Fields] = {
    "title": _line(limits.TITLE_CHARS), "task": _id, "agent": _agent, "entity": _id, "metadata": _metadata, "parent": _id,
}  # fmt: skip
_FORKED: Final[Fields] = {"forked_from": _id, "forked_at": _id, "compacted": _id}
_LINK: Final[Fields] = {"dst": _id, "kind": _token, "origin": _one_of(ORIGINS), **_LABELS}
_COPIED: Final[Fields] = {"copied": _copied}
_CLEARABLE: Final = (
    "body parent confidence basis entity why scope dated source digest confirmed_at confirmed_by done_by done_at work "
    "result author run"
)
# What any event may say beside.
_ANYWHERE: Final[Fields] = {"undoes": _id}

_KINDS: Final[Mapping[str, Fields]] = {
    "project.created": {"name": _project, **_COPIED},
    "project.changed": {"set": _set({"name": _project})},
    "note.added": {**_NOTE, **_COPIED},
    "note.changed": {"set": _set(_but(_NOTE, "kind"), _CLEARABLE)},
    "entity.added": {**_ENTITY, "attrs": _attrs, **_COPIED},
    "entity.changed": {"set": _set(_but(_ENTITY, "type"), _CLEARABLE, empty=True), "attrs": _attrs, "removed": _names},
    "entity.marked": {"marks": _marks, "removed": _tokens},
    "entity.unmarked": {"names": _tokens},
    "checks.declared": {**_CHECKS, **_COPIED},
    "checks.changed": {"set": _set({**_but(_CHECKS, "type where"), "origin": _one_of(ORIGINS)})},
    "item.added": {**_ITEM, **_COPIED},
    "item.changed": {"set": _set(_but(_ITEM, "note number"), _CLEARABLE)},
    "item.removed": {},
    "item.forgotten": {"touched": _touched, "note": _id, "number": _id},
    "checkpoint.written": {**_CHECKPOINT, **_COPIED},
    "checkpoint.changed": {"set": _set({"project": _id})},
    "summary.written": {**_SUMMARY, **_COPIED},
    # One that says again what the summary says has nothing to set.
    "summary.changed": {"set": _set(_but(_SUMMARY, "note"), _CLEARABLE, empty=True)},
    "session.created": {**_SESSION, **_FORKED, "chain": _hash, "dated": _time, **_COPIED},
    "session.changed": {
        "set": _set(
            {**_SESSION, "archived_at": _time, "project": _id, "origin": _one_of(ORIGINS)},
            "title task agent parent archived_at",
        )
    },
    "message.added": {
        "type": _event_type,
        "body": _object,
        "key": _label,
        "target": _id,
        "dated": _time,
        **_COPIED,
    },
    "message.forgotten": {"type": _event_type, "target": _id, "permission": _one_of(("allow", "ask"))},
}
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    "project.created": ("name",), "project.changed": ("set",),
    "note.added": ("kind", "title", "status"), "note.changed": ("set",), "note.linked": ("dst", "kind"),
    "note.unlinked": ("dst", "kind"),
    "entity.added": ("type", "key"), "entity.marked": ("marks",), "entity.unmarked": ("names",),
    "entity.linked": ("dst", "kind"), "entity.unlinked": ("dst", "kind"),
    "checks.declared": ("type", "names"), "checks.changed": ("set",),
    "item.added": ("note", "number", "text"), "item.changed": ("set",),
    "checkpoint.written": ("text",), "checkpoint.changed": ("set",),
    "summary.written": ("note",), "summary.changed": ("set",),
    "session.changed": ("set",), "message.added": ("type", "body"), "message.forgotten": ("type",),
    "project.merged": ("into",), "entity.merged": ("into",), "checks.merged": ("into",),
    **{f"{of}.restated": ("state",) for of in STATE},
}  # fmt: skip

# In a row: other spellings than in an event, and columns that events have no name for.
_ROWS: Final[Mapping[str, Fields]] = {
    "note": {
        **_NOTE, "tags": _json(_tags), "scope": _json(_scope), "pinned": _bit, **_LABELS, "created_at": _time,
        "updated_at": _time, "changed": _id, "touched": _id,
    },
    "entity": {**_ENTITY, "attrs": _json(_attrs), **_LABELS, "created_at": _time, "updated_at": _time, "marks": _mark_rows},
    "item": {**_ITEM, "done": _bit, "removed": _bit},
    "summary": _SUMMARY,
    "checkpoint": {**_CHECKPOINT, **_LABELS, "origin": _one_of(ORIGINS), "at": _time},
    "checks": {**_CHECKS, "filter": _where, "names": _json(_tokens), "origin": _one_of(ORIGINS)},
    "project": {"name": _project, "created_at": _time},
    "session": {
        **_SESSION, **_FORKED, "agent": _json(_agent), "metadata": _json(_metadata), "project": _id, "archived_at": _time,
        "origin": _one_of(ORIGINS), **_LABELS, "created_at": _time, "updated_at": _time,
    },
}  # fmt: skip
# What a row is never without.
_FULL: Final[Mapping[str, tuple[str, ...]]] = {
    "note": ("project", "kind", "title", "status", "tags", "position", "pinned", "origin", "created_at", "updated_at"),
    "entity": ("project", "type", "key", "status", "attrs", "origin", "created_at", "updated_at"),
    "item": ("note", "number", "text", "done", "position", "origin", "removed"),
    "summary": ("note", "origin", "at"),
    "checkpoint": ("project", "text", "origin", "at"),
    "checks": ("project", "type", "filter", "names", "origin"),
    "project": ("name", "created_at"),
    "session": ("project", "metadata", "origin", "created_at", "updated_at"),
}


def _state(of: str) -> Check:
    fields = {name: _optional(check) for name, check in _ROWS[of].items()}

    def sound(value: Any) -> bool:
        if type(value) is not dict:
            return False
        _each(value, fields, f"the state of a {of}")
        return all(value.get(name) is not None for name in _FULL[of])

    return sound


_STATES: Final[Mapping[str, Check]] = {of: _state(of) for of in _ROWS}

# Kinds that several types of records have, by what follows the type.
_OF_ALL: Final[Mapping[str, Callable[[str], Fields]]] = {
    "linked": lambda of: _LINK,
    "unlinked": lambda of: _LINK,
    "claim.taken": lambda of: {"holder": _optional(_label), "expires_at": _time},
    "claim.taken_over": lambda of: {"holder": _optional(_label), "expires_at": _time},
    "claim.released": lambda of: {"lapsed": _flag},
    "restated": lambda of: {"state": _STATES[of], "touched": _touched, "copies": _copies, **_COPIED},
    "withdrawn": lambda of: {"touched": _touched},
    "forgotten": lambda of: {"touched": _touched, **({"note": _id, "number": _ITEM["number"]} if of == "item" else {})},
    "merged": lambda of: {"into": _id},
}
