"""The commands that write entities, marks and expected checks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import field, frozen

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded, shown
from agentmem.log.canonical import canonical, plain
from agentmem.records import claims, entity_rows, subjects, tree, validate
from agentmem.records.base import Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import entity_id
from agentmem.records.standing import standing
from agentmem.types import CHECK_RESULTS, UNSET, CheckResult, Entity, Json, Ref, Unset, Written

# U+0000 as JSON spells it, not a backslash followed by the same letters.
_NUL: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


@frozen
class Row:
    """One entity of `entities.put_many`: its key and what is its own."""

    key: str
    attrs: Mapping[str, Json | None] | None = field(default=None, kw_only=True)
    status: str | Unset = field(default=UNSET, kw_only=True)
    parent: Ref | None | Unset = field(default=UNSET, kw_only=True)
    confidence: float | None | Unset = field(default=UNSET, kw_only=True)


@frozen
class Result:
    """The result of a check, with a value of any JSON and one line of detail."""

    result: CheckResult
    value: Json | Unset = field(default=UNSET, kw_only=True)
    detail: str | None = field(default=None, kw_only=True)


def put(unit: Unit, kind: str, row: Row, expected: int | None = None) -> Written:
    """Add an entity or change it: absent fields stay, attrs are merged name by name, None removes one."""
    kind = validate.token(kind, "type")
    key = validate.line(row.key, "key", limits.KEY_CHARS)
    found = unit.row(
        f"SELECT {entity_rows.COLUMNS} FROM entity WHERE project = ? AND type = ? AND key = ?",
        (unit.known_project, kind, key),
    )
    if found is None:
        if expected is not None:
            raise Conflict(f"There is no {kind}:{key} yet", why="A revision of it was expected", current=0)
        return _add(unit, kind, key, row)
    subjects.refuse_hidden(unit, found[0], "entity")
    return _change(unit, entity_rows.entity(found, {}), row, expected)


def _add(unit: Unit, kind: str, key: str, row: Row) -> Written:
    payload: dict[str, Any] = {"type": kind, "key": key}
    attrs, _ = _attrs(row.attrs)
    if attrs:
        payload["attrs"] = _sized(attrs)
    if not isinstance(row.status, Unset):
        payload["status"] = validate.token(row.status, "status")
    if not isinstance(row.confidence, Unset) and row.confidence is not None:
        payload["confidence"] = validate.confidence(row.confidence)
    project = unit.project
    parent = None if isinstance(row.parent, Unset) else row.parent
    if parent is None:
        parent = unit.binding.subject  # else its maker would not see it
    if parent is not None:
        payload["parent"] = _parent(unit, parent, project, None)
    event = unit.append("entity.added", payload, project=project)
    return Written(event.seq, event.seq, ("created",), transit=unit.transit)


def _change(unit: Unit, entity: Entity, row: Row, expected: int | None) -> Written:
    expect(entity.revision, expected, entity.id)
    wanted: dict[str, Any] = {}
    if not isinstance(row.status, Unset):
        wanted["status"] = validate.token(row.status, "status")
    if not isinstance(row.confidence, Unset):
        wanted["confidence"] = validate.confidence(row.confidence)
    if not isinstance(row.parent, Unset):
        wanted["parent"] = None if row.parent is None else _parent(unit, row.parent, entity.project, entity.id)
    changes = {name: value for name, value in wanted.items() if getattr(entity, name) != value}
    given, dropped = _attrs(row.attrs)
    removed = sorted(name for name in dropped if name in entity.attrs)
    added = {
        name: value
        for name, value in given.items()
        if name not in entity.attrs or canonical(value) != canonical(entity.attrs[name])
    }
    if not (changes or added or removed):
        return Written(entity.id, entity.revision, transit=unit.transit)
    claims.guard(unit, entity.id)
    names = (*sorted(changes), *(f"attrs.{name}" for name in sorted({*added, *removed})))
    if added:
        _sized({**{name: value for name, value in entity.attrs.items() if name not in removed}, **added})
        changes |= unit.lowered(entity.origin)
    payload: dict[str, Any] = {}
    if changes:
        payload["set"] = changes
    if added:
        payload["attrs"] = added
    if removed:
        payload["removed"] = removed
    event = unit.append("entity.changed", payload, record=entity.id, project=entity.project)
    if "parent" in changes:
        subjects.refuse_hidden(unit, entity.id, "entity")
    return Written(entity.id, event.seq, names, transit=unit.transit)


def _attrs(given: object) -> tuple[dict[str, Json], list[str]]:
    """The attributes to set and the names to remove."""
    if given is None:
        return {}, []
    if not isinstance(given, Mapping):
        raise InvalidInput(f"attrs must be an object of names and values, not {type(given).__name__}")
    kept, dropped = {}, []
    for name, value in given.items():
        if type(name) is not str or not name or len(name) > limits.ATTR_NAME_CHARS or not name.isprintable():
            raise InvalidInput(
                f"{shown(name)} is no name of an attribute", why=f"1 to {limits.ATTR_NAME_CHARS} printable characters"
            )
        if value is None:
            dropped.append(name)
        else:
            kept[name] = value
    return kept, dropped


def _sized(attrs: dict[str, Json]) -> dict[str, Json]:
    if len(attrs) > limits.ATTRS_PER_ENTITY:
        raise LimitExceeded(f"{len(attrs)} attributes, {limits.ATTRS_PER_ENTITY} at most")
    written = canonical(attrs)
    if _NUL.search(written):
        raise InvalidInput("An attribute holds U+0000", why="It ends a text in SQLite's JSON")
    size = len(written.encode())
    if size > limits.ATTRS_BYTES:
        raise LimitExceeded(
            f"The attributes have {size} bytes, {limits.ATTRS_BYTES} at most",
            next="Put text into a note about the entity",
        )
    return attrs


def lacking(record: int, mine: str, theirs: str) -> dict[str, Json]:
    """The attributes that an entity would get from another that becomes one with it.

    Args:
        record: The entity that stays.
        mine: Its attributes, as canonical JSON.
        theirs: Those of the other.

    Raises:
        LimitExceeded: It would have more than one may have.
    """
    now = plain(mine)
    found = {name: value for name, value in plain(theirs).items() if name not in now}
    try:
        _sized({**now, **found})
    except LimitExceeded as error:
        raise LimitExceeded(
            f"Entity #{record} would have more attributes than one may have",
            why=error.what,
            next="Say collisions='keep_both'",
        ) from None
    return found


def _parent(unit: Unit, ref: Ref, project: int, child: int | None) -> int:
    """The id of a parent: of the same project, not beneath the child, not too deep."""
    parent = entity_id(unit, ref)
    if standing(unit, "entity", parent).project != project:
        raise InvalidInput(f"Entity #{parent} is in another project", why="Parent and children stay in one project")
    above = [parent, *tree.ancestors(unit, parent, "entity")]
    if child is not None and child in above:
        raise Conflict(f"Entity #{parent} lies beneath #{child}", why="An entity cannot come beneath itself")
    levels = len(above) + 1 + (0 if child is None else tree.height(unit, child, "entity"))
    if levels > limits.TREE_LEVELS:
        raise LimitExceeded(f"The tree of entities would have more than {limits.TREE_LEVELS} levels")
    return parent


def rename(unit: Unit, ref: Ref, key: str, expected: int | None) -> Written:
    """Give an entity another key."""
    found = entity_id(unit, ref)
    entity = entity_rows.load(unit, found)
    expect(entity.revision, expected, found)
    key = validate.line(key, "key", limits.KEY_CHARS)
    if key == entity.key:
        return Written(found, entity.revision, transit=unit.transit)
    taken = unit.row(
        "SELECT id FROM entity WHERE project = ? AND type = ? AND key = ?", (entity.project, entity.type, key)
    )
    if taken is not None:
        raise Conflict(f"There is {entity.type}:{key} already, #{taken[0]}")
    claims.guard(unit, found)
    changes = {"key": key} | unit.lowered(entity.origin)
    event = unit.append("entity.changed", {"set": changes}, record=found, project=entity.project)
    return Written(found, event.seq, ("key",), transit=unit.transit)


def accepted(results: object, detail: str | None) -> dict[str, dict[str, Any]]:
    """The results of checks by name as an event holds them.

    Raises:
        InvalidInput: Not a mapping of check names to results.
    """
    if not isinstance(results, Mapping) or not results:
        raise InvalidInput("results must name at least one check", next='For instance {"authz": "pass"}')
    if len(results) > limits.CHECKS_PER_DECLARATION:
        raise LimitExceeded(f"{len(results)} checks at once, {limits.CHECKS_PER_DECLARATION} at most")
    shared = validate.optional_line(detail, "detail", limits.DETAIL_CHARS)
    marks: dict[str, dict[str, Any]] = {}
    for name, given in results.items():
        one = given if isinstance(given, Result) else Result(given)
        mark: dict[str, Any] = {"result": validate.choice(one.result, f"result of {shown(name)}", CHECK_RESULTS)}
        if not isinstance(one.value, Unset) and one.value is not None:
            size = len(canonical(one.value).encode())
            if size > limits.MARK_BYTES:
                raise LimitExceeded(
                    f"The value of {shown(name)} has {size} bytes, {limits.MARK_BYTES} at most",
                    next="Put text into a note about the entity",
                )
            mark["value"] = one.value
        own = validate.optional_line(one.detail, "detail", limits.DETAIL_CHARS) or shared
        if own is not None:
            mark["detail"] = own
        marks[validate.token(name, "check")] = mark
    return marks


def mark(unit: Unit, entity: int, marks: Mapping[str, Mapping[str, Any]]) -> bool:
    """Record results on one entity; says whether any differs from the current ones."""
    current = {
        row[0]: row[1:] for row in unit.rows("SELECT name, result, value, detail FROM mark WHERE entity = ?", (entity,))
    }
    fresh = {}
    for name, given in marks.items():
        value = None if "value" not in given else canonical(given["value"])
        if current.get(name) != (given["result"], value, given.get("detail")):
            fresh[name] = dict(given)
    if not fresh:
        return False
    claims.guard(unit, entity)
    unit.append("entity.marked", {"marks": fresh}, record=entity, project=standing(unit, "entity", entity).project)
    return True


def unmark(unit: Unit, entity: int, names: Sequence[str]) -> bool:
    """Take marks back: the checks count as never run again."""
    there = {row[0] for row in unit.rows("SELECT name FROM mark WHERE entity = ?", (entity,))}
    gone = [name for name in names if name in there]
    if not gone:
        return False
    claims.guard(unit, entity)
    unit.append("entity.unmarked", {"names": gone}, record=entity, project=standing(unit, "entity", entity).project)
    return True


def undeclared(unit: Unit, types: Iterable[str], names: Iterable[str]) -> tuple[str, ...]:
    """A notice for each check that no declaration of its type names, with the nearest that one does."""
    notices = []
    for kind in sorted(set(types)):
        sql = "SELECT DISTINCT value FROM checks, json_each(checks.names) WHERE checks.project = ? AND checks.type = ?"
        declared = [found for (found,) in unit.rows(sql, (unit.known_project, kind))]
        for name in names:
            if declared and name not in declared:
                near = validate.nearest(name, declared, likeness=0.5)
                hint = f"; did you mean {near}?" if near else "; declared are " + ", ".join(sorted(declared)[:8])
                notices.append(f"check {name} is not declared for {kind}{hint}")
    return tuple(notices)


def declare(unit: Unit, kind: str, names: Sequence[str], where: str) -> Written:
    """Set which checks the entities of a type that match `where` (canonical, or empty) are expected to have."""
    found = unit.row(
        f"SELECT {entity_rows.CHECKS_COLUMNS} FROM checks WHERE project = ? AND type = ? AND filter = ?",
        (unit.known_project, kind, where),
    )
    if found is not None:
        now = entity_rows.expected(found)
        if now.names == tuple(names):
            return Written(now.id, now.revision, transit=unit.transit)
        changes = {"names": list(names), **unit.lowered(now.origin)}
        event = unit.append("checks.changed", {"set": changes}, record=now.id, project=now.project)
        return Written(now.id, event.seq, ("names",), transit=unit.transit)
    payload: dict[str, Any] = {"type": kind, "names": list(names)}
    if where:
        payload["where"] = where
    event = unit.append("checks.declared", payload, project=unit.project)
    return Written(event.seq, event.seq, ("created",), transit=unit.transit)
