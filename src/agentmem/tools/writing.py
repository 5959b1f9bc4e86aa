"""The tools that write: attempt, note, update, track, mark, summarize, checkpoint."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any, Final

from agentmem.errors import InvalidInput, LimitExceeded, shown
from agentmem.records.entity_writes import Result, Row
from agentmem.records.note_writes import NewNote, placed
from agentmem.store import Store
from agentmem.tools import lines, shapes
from agentmem.tools.arguments import checked
from agentmem.tools.tool import Reply
from agentmem.types import UNSET, Brief, Earlier, Entity, Item, Note, Outcome, Ref, Scope, Unset, Written, WrittenMany

__all__ = [
    "NEW",
    "NOTE_ALONE",
    "attempt",
    "checkpoint",
    "many",
    "mark",
    "moment",
    "names",
    "new_note",
    "note",
    "summarize",
    "track",
    "update",
]

_NOTES: Final = 500  # of one call
_SIMILAR: Final = 20  # notes of a call up to which similar ones are looked for
_REFS: Final = 1000


def attempt(store: Store, args: Mapping[str, Any]) -> Reply:
    """Open an attempt, close one, or write down one that is over."""
    what, found, outcome = args.get("what"), args.get("id"), args.get("outcome")
    if (what is None) == (found is None):
        raise InvalidInput(
            "Give what, before trying, or id with outcome, after it",
            next='{"what": "…", "about": "…", "task": "…"}, later {"id": "31", "outcome": "failed", "why": "…"}',
        )
    if found is not None:
        if outcome is None:
            raise InvalidInput("How did it end?", next="outcome is worked, failed or unclear; a failed one needs why")
        if unfit := sorted({"about", "task"} & args.keys()):
            raise InvalidInput(f"{unfit[0]} belongs to the opening of an attempt", next="Leave it out")
        closed = store.attempts.close(found, outcome, why=args.get("why", ""))
        return _outcome(closed)
    if outcome is not None:
        return _over(store, what or "", outcome, args)
    if "why" in args:
        raise InvalidInput("why belongs to an outcome", next="Give outcome too, or leave why out until it is over")
    opened = store.attempts.open(what or "", about=args.get("about"), task=args.get("task"))
    return _tried(opened, "open", opened.earlier)


def _over(store: Store, what: str, outcome: Outcome, args: Mapping[str, Any]) -> Reply:
    """An attempt that nobody opened, written down when it is over."""
    about, task, why = args.get("about"), args.get("task", store.actor.task), args.get("why")
    if outcome == "failed" and not why:
        raise InvalidInput("A failed attempt needs why", why="Whoever thinks of trying it again reads nothing else")
    earlier = store.attempts.earlier(what, about=about, task=task)
    made = store.notes.add("attempt", what, status=outcome, why=why, about=about, parent=task, similar=False)
    return _tried(made, outcome, earlier)


def _tried(made: Written, status: str, earlier: Sequence[Earlier]) -> Reply:
    text = lines.joined([f"#{made.id} {status}", *lines.remarks(made.notices, earlier=earlier)])
    return Reply(text, {"id": made.id, "earlier": [one.id for one in earlier]})


def note(store: Store, args: Mapping[str, Any]) -> Reply:
    """Write notes, all or none, each in the name of whose words it is."""
    given = args["notes"]
    if not given:
        raise InvalidInput("No notes were given", next='notes is a list: [{"kind": "fact", "title": "…"}]')
    if len(given) > _NOTES:
        raise LimitExceeded(f"{len(given)} notes at once, {_NOTES} at most", next="Write the others in another call")
    made: list[int] = []
    said: list[str] = []
    with store.transaction():
        for at, one in enumerate(given):
            fields = checked(f"notes[{at}]", shapes.NOTE, one)
            if store.limit is not None and fields["kind"] != "goal":  # nothing else could be meant
                fields.setdefault("parent", str(store.limit))
            written, items = _note(store, fields, made, similar=len(given) <= _SIMILAR)
            made.append(written.id)
            said += [f"#{written.id}{items}", *lines.remarks(written.notices, written.similar)]
    if len(said) == len(made):
        said = [" ".join(said)]
    return Reply("\n".join(said), {"ids": made})


def _note(store: Store, fields: dict[str, Any], made: Sequence[int], *, similar: bool) -> tuple[Written, str]:
    items: Sequence[str] = fields.pop("items", ())
    view = store.acting(origin=fields.pop("origin")) if "origin" in fields else store
    new = placed(new_note(store, fields), made)
    values = {name: getattr(new, name) for name in NEW}
    written = view.notes.add(new.kind, new.title, similar=similar, **values)
    if not items:
        return written, ""
    view.checklists.add(written, *items)
    return written, f" with {written.id}.1" + (f" to {written.id}.{len(items)}" if len(items) > 1 else "")


def new_note(store: Store, given: Mapping[str, Any]) -> NewNote:
    """A note to be written, from its fields as models give them."""
    fields = dict(given)
    return NewNote(fields.pop("kind"), fields.pop("title"), **_fields(store, fields))


NOTE_ALONE: Final = {name: of for name, of in shapes.NOTE["properties"].items() if name not in ("items", "origin")}
"""The fields of a note that is written by itself."""

NEW: Final = (
    *("body", "status", "parent", "tags", "pin", "confidence", "basis", "about", "why", "scope", "links", "dated"),
    "source",
)


def _fields(store: Store, fields: dict[str, Any]) -> dict[str, Any]:
    """Fields of a note as the library takes them."""
    found = dict(fields)
    if "scope" in found:
        found["scope"] = _scope(store, found["scope"])
    if "dated" in found:
        found["dated"] = moment(found["dated"])
    if "links" in found:
        found["links"] = _links(found["links"])
    return found


def _scope(store: Store, given: Mapping[str, Any]) -> Scope:
    params = given.get("params", {})
    return store.scope(given["type"], where=given.get("where"), checks=given.get("checks", ()), **names(params))


def names(params: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `:name` in a where, none of which is a name of the verb's own."""
    taken = _TAKEN & params.keys()
    if taken:
        raise InvalidInput(f"params names {shown(min(taken))}, which is no free name")
    return dict(params)


_TAKEN: Final = frozenset(
    (
        "self",
        "type",
        "where",
        "checks",
        "refs",
        "project",
        "dry_run",
        "request_id",
        "order",
        "limit",
        "after",
        "total",
        "by",
        "of",
    )
)


def moment(given: str) -> int:
    """A time in ISO 8601 as microseconds since 1970 UTC; UTC where it has no offset."""
    try:
        found = datetime.datetime.fromisoformat(given.strip())
    except ValueError:
        raise InvalidInput(f"{shown(given)} is no time", next="Write 2026-11-30 or 2026-11-30T12:00") from None
    if found.tzinfo is None:
        found = found.replace(tzinfo=datetime.UTC)
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    return (found - epoch) // datetime.timedelta(microseconds=1)


def _links(given: Mapping[str, Any]) -> tuple[tuple[str, Ref], ...]:
    found: list[tuple[str, Ref]] = []
    for kind, target in given.items():
        for one in target if isinstance(target, list) else [target]:
            if type(one) is not int and not isinstance(one, str):
                raise InvalidInput(
                    f"links.{kind} is {shown(one)}", next='It is a reference or a list of them: {"answers": "9"}'
                )
            found.append((kind, str(one)))
    return tuple(found)


def update(store: Store, args: Mapping[str, Any]) -> Reply:
    """Change notes, items and entities, all or none."""
    refs: Sequence[str] = args["refs"]
    given = checked("update.set", shapes.CHANGES, args["set"])
    if not refs or not given:
        raise InvalidInput("Nothing to change", next='refs names records, set what changes: {"status": "done"}')
    if len(refs) > _REFS:
        raise LimitExceeded(f"{len(refs)} records at once, {_REFS} at most", next="Change the others in another call")
    view = store.acting(origin=given.pop("origin")) if "origin" in given else store
    done: list[Written | WrittenMany] = []
    with store.transaction():
        for ref in refs:
            found = store.get(ref)
            match found:
                case Note():
                    done += _change_note(view, found, dict(given))
                case Item():
                    done += _change_item(view, found, dict(given))
                case Entity():
                    done.append(_change_entity(view, found, dict(given)))
                case _:
                    raise InvalidInput(
                        f"{ref} is no note, checklist item or entity", next="Nothing else is changed by update"
                    )
    return _outcomes(done)


def _change_note(store: Store, note: Note, given: dict[str, Any]) -> list[Written | WrittenMany]:
    done: list[Written | WrittenMany] = []
    unfit = sorted({"text", "attrs"} & given.keys())
    if unfit:
        raise InvalidInput(f"#{note.id} is a note, which has no {unfit[0]}", next="title and body are its texts")
    clear = given.pop("clear", ())
    items, links = given.pop("items", ()), given.pop("links", None)
    place = given.pop("parent", UNSET)
    expected = given.pop("expected_revision", None)
    changes = _fields(store, given)
    for name in clear:
        if name in changes:
            raise InvalidInput(f"{name} is both set and cleared")
        if name == "parent":
            place = None
            continue
        if name not in _CLEARABLE:
            raise InvalidInput(f"{shown(name)} can't be emptied", next=f"What can: {', '.join(_CLEARABLE)}, parent")
        changes[name] = {"tags": (), "body": ""}.get(name)
    if changes or not (items or links or not isinstance(place, Unset)):
        done.append(store.notes.update(note, expected_revision=expected, **changes))
        expected = None
    if not isinstance(place, Unset):
        done.append(store.notes.move(note, parent=place, expected_revision=expected))
    if items:
        done.append(store.checklists.add(note, *items))
    for kind, target in _links(links or {}):
        done.append(store.links.add(note, kind, target))
    return done


_CLEARABLE: Final = ("body", "tags", "confidence", "basis", "about", "why", "scope", "dated", "source")
_TICKS: Final = {"done": True, "open": False}


def _change_item(store: Store, item: Item, given: dict[str, Any]) -> list[Written | WrittenMany]:
    text, status = given.pop("text", given.pop("title", None)), given.pop("status", None)
    expected = given.pop("expected_revision", None)
    if given:
        raise InvalidInput(f"{item.ref} is a checklist item, which has no {min(given)}", next="It has status and text")
    if status is not None and status not in _TICKS:
        raise InvalidInput(
            f"{item.ref} is a checklist item: {shown(status)} is no status of it", next="It is done or open"
        )
    done: list[Written | WrittenMany] = []
    if text is not None:
        done.append(store.checklists.edit(item, text, expected_revision=expected))
    if status is not None:
        tick = store.checklists.done if _TICKS[status] else store.checklists.undone
        done.append(tick(item.note, item))
    return done


def _change_entity(store: Store, entity: Entity, given: dict[str, Any]) -> Written:
    known = {"status", "attrs", "parent", "confidence", "clear", "expected_revision"}
    if unfit := sorted(given.keys() - known):
        raise InvalidInput(
            f"{entity.ref} is an entity, which has no {unfit[0]}", next=f"It has {', '.join(sorted(known))}"
        )
    for name in given.pop("clear", ()):
        if name not in ("parent", "confidence"):
            raise InvalidInput(
                f"{shown(name)} of an entity can't be emptied", next='Of attrs: {"attrs": {"name": null}}'
            )
        given[name] = None
    return store.entities.put(entity.type, entity.key or "", **given)


def track(store: Store, args: Mapping[str, Any]) -> Reply:
    """Add or change entities, all or none, and declare the checks that are expected of their type."""
    kind, checks = args["type"], args.get("checks")
    rows = [_row(at, row) for at, row in enumerate(args.get("rows", ()))]
    keys: Sequence[str] = args.get("keys", ())
    if not (rows or keys or checks is not None):
        raise InvalidInput("Nothing to track", next='Give keys: ["GET /users"], rows: [{"key", "attrs"}], or checks')
    done: WrittenMany | None = None
    notices: list[str] = []
    with store.transaction():
        if checks is not None:
            notices += store.entities.expect(kind, checks).notices
        if rows or keys:
            shared = {name: args[name] for name in ("attrs", "status") if name in args}
            done = store.entities.put_many(kind, keys=keys, rows=rows, **shared)
    if done is None:
        return Reply(lines.joined(["declared" if checks else "withdrawn", *lines.remarks(notices)]))
    return many(done, notices)


def _row(at: int, given: Any) -> Row:
    row = checked(f"rows[{at}]", shapes.ROW, given)
    return Row(row.pop("key"), **row)


def mark(store: Store, args: Mapping[str, Any]) -> Reply:
    """Record results of checks."""
    results = {name: _result(name, given) for name, given in args["results"].items()}
    done = store.entities.mark(args["type"], args["keys"], results, detail=args.get("detail"))
    return many(done)


def _result(name: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    found = checked(f"results.{name}", shapes.RESULT, given)
    return Result(found["result"], value=found.get("value", UNSET), detail=found.get("detail"))


def summarize(store: Store, args: Mapping[str, Any]) -> Reply:
    """Close a step or goal with what it came to."""
    given = {name: args[name] for name in ("work", "result", "status", "confidence", "basis") if name in args}
    done = store.summarize(args["task"], **given)
    return Reply(lines.joined([f"#{done.id}", *lines.remarks(done.notices)]), {"id": done.id})


def checkpoint(store: Store, args: Mapping[str, Any]) -> Reply:
    """Write down where the work stands."""
    done = store.checkpoint(args["text"], task=args.get("task"))
    return Reply(lines.joined([f"#{done.id}", *lines.remarks(done.notices)]), {"id": done.id})


def _outcome(done: Written) -> Reply:
    return _outcomes([done])


def _outcomes(done: Sequence[Written | WrittenMany]) -> Reply:
    """What several writes did, in a line, and what they have to say."""
    changed: dict[str, None] = {}
    notices: dict[str, None] = {}
    similar: list[Brief] = []
    records = 0
    for one in done:
        notices |= dict.fromkeys(one.notices)
        if isinstance(one, Written):
            changed |= dict.fromkeys(one.changed)
            similar += one.similar
            records += bool(one.changed)
        else:
            records += bool(one.created or one.changed)
            if one.created:
                changed["items"] = None
            if one.changed:
                changed["ticks"] = None
    said = f"changed: {', '.join(changed)}" if records else "nothing changed"
    return Reply(lines.joined([said, *lines.remarks(notices, similar)]), {"changed": list(changed)})


def many(done: WrittenMany, notices: Sequence[str] = ()) -> Reply:
    """What a write of many did: how many were created, changed, left as they were."""
    said = lines.counted(((done.created, "created"), (done.changed, "changed"), (done.unchanged, "unchanged")))
    counts = {"created": done.created, "changed": done.changed, "unchanged": done.unchanged}
    return Reply(lines.joined([said, *lines.remarks([*notices, *done.notices])]), {"ids": list(done.ids), **counts})
