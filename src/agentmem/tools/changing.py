"""Further verbs that write: links, order, checklists, declarations, undo; and those that end records or make files."""

from __future__ import annotations

from typing import Any, Final

from agentmem.context.lines import inline
from agentmem.records.note_writes import NewNote
from agentmem.store import Store
from agentmem.tools import lines, writing
from agentmem.tools.arguments import Schema, flag, ref, strings, text, whole
from agentmem.tools.looking import as_json
from agentmem.tools.tool import Reply
from agentmem.tools.verbs import verb
from agentmem.types import UNSET, Receipt, Written

__all__ = ["CHANGING", "ENDING"]

_REQUEST: Final = text("makes a retry safe")
_REVISION: Final = whole("refuse if it was changed since")


def _one(done: Written) -> Reply:
    said = "repeated" if done.repeated else f"changed: {', '.join(done.changed)}" if done.changed else "nothing changed"
    text_of = lines.joined([f"#{done.id} {said}", *lines.remarks(done.notices, done.similar)])
    return Reply(text_of, {"id": done.id, "revision": done.revision, "changed": list(done.changed)})


def _link(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.links.add(args["src"], args["kind"], args["dst"], request_id=args.get("request_id")))


def _unlink(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.links.remove(args["src"], args["kind"], args["dst"], request_id=args.get("request_id")))


def _move(store: Store, args: dict[str, Any]) -> Reply:
    given = {
        name: args[name] for name in ("before", "after", "first", "expected_revision", "request_id") if name in args
    }
    parent = None if args.get("root") else args.get("parent", UNSET)
    return _one(store.notes.move(args["note"], parent=parent, **given))


def _add(store: Store, args: dict[str, Any]) -> Reply:
    """One note with a request id, which the tool for many has no room for."""
    given = dict(args)
    request = given.pop("request_id", None)
    note: NewNote = writing.new_note(store, given)
    values = {name: getattr(note, name) for name in writing.NEW}
    return _one(store.notes.add(note.kind, note.title, request_id=request, **values))


def _confirm(store: Store, args: dict[str, Any]) -> Reply:
    given = {name: args[name] for name in ("confidence", "basis", "expected_revision", "request_id") if name in args}
    return _one(store.confirm(args["record"], **given))


def _item_edit(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.checklists.edit(args["item"], args["text"], expected_revision=args.get("expected_revision")))


def _item_move(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.checklists.move(args["item"], before=args.get("before"), after=args.get("after")))


def _item_remove(store: Store, args: dict[str, Any]) -> Reply:
    items = (int(item) if item.isascii() and item.isdigit() else item for item in args["items"])
    return writing.many(store.checklists.remove(args["note"], *items))


def _rename(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.entities.rename(args["entity"], args["key"], expected_revision=args.get("expected_revision")))


def _unmark(store: Store, args: dict[str, Any]) -> Reply:
    return writing.many(
        store.entities.unmark(args["type"], args["keys"], args["names"], request_id=args.get("request_id"))
    )


def _expect(store: Store, args: dict[str, Any]) -> Reply:
    params = writing.names(args.get("params", {}))
    return _one(store.entities.expect(args["type"], args["checks"], where=args.get("where"), **params))


def _undo(store: Store, args: dict[str, Any]) -> Reply:
    given = {name: args[name] for name in ("request", "run", "dry_run", "request_id") if name in args}
    done = store.undo([int(seq) for seq in args["events"]] if "events" in args else None, **given)
    said = f"{len(done.undone)} events taken back"
    return Reply(
        lines.joined([said, *lines.remarks(done.notices)]),
        {"undone": list(done.undone), "events": list(done.events), "ids": list(done.ids)},
    )


def _project_rename(store: Store, args: dict[str, Any]) -> Reply:
    return _one(store.projects.rename(args["name"], request_id=args.get("request_id")))


def _index(store: Store, args: dict[str, Any]) -> Reply:
    done = store.wait_for_index(float(args.get("seconds", 30)))
    return Reply("all is embedded" if done else "not done yet", {"done": done})


def _wrote(name: str, said: str, run: Any, arguments: dict[str, Schema], *required: str, **more: Any) -> Any:
    return verb(name, said, run, arguments, required=required, **more)


CHANGING: Final = (
    _wrote("links.add", "Link two notes or two entities; answers closes the question", _link,
           {"src": ref(), "kind": text(), "dst": ref(), "request_id": _REQUEST}, "src", "kind", "dst", idempotent=True),
    _wrote("links.remove", "Take a link away", _unlink,
           {"src": ref(), "kind": text(), "dst": ref(), "request_id": _REQUEST}, "src", "kind", "dst", idempotent=True),
    _wrote("notes.move", "Place a note elsewhere with all beneath it", _move,
           {"note": ref(), "parent": ref(), "root": flag(), "before": ref(), "after": ref(), "first": flag(),
            "expected_revision": _REVISION, "request_id": _REQUEST}, "note"),
    _wrote("notes.add", "One note, safe to retry by request_id", _add,
           {**writing.NOTE_ALONE, "request_id": _REQUEST}, "kind", "title", listed=False),
    _wrote("confirm", "Say that a record still holds", _confirm,
           {"record": ref(), "confidence": {"type": "number"}, "basis": text(), "expected_revision": _REVISION,
            "request_id": _REQUEST}, "record"),
    _wrote("checklists.edit", "Change the text of an item", _item_edit,
           {"item": ref(), "text": text(), "expected_revision": _REVISION}, "item", "text", idempotent=True),
    _wrote("checklists.move", "Place an item elsewhere in its list", _item_move,
           {"item": ref(), "before": ref(), "after": ref()}, "item"),
    _wrote("checklists.remove", "Take items off a checklist; they stay in the log", _item_remove,
           {"note": ref(), "items": strings("3 or 14.3")}, "note", "items"),
    _wrote("entities.rename", "Give an entity another key", _rename,
           {"entity": ref(), "key": text(), "expected_revision": _REVISION}, "entity", "key", idempotent=True),
    _wrote("entities.unmark", "Take marks back", _unmark,
           {"type": text(), "keys": strings(), "names": strings(), "request_id": _REQUEST}, "type", "keys", "names",
           idempotent=True),
    _wrote("entities.expect", "Declare the checks of a type, of some of its entities by where", _expect,
           {"type": text(), "checks": strings(), "where": text(), "params": {"type": "object"}}, "type", "checks",
           idempotent=True),
    _wrote("undo", "Take events back by new ones: by seq, by request, or of a whole run", _undo,
           {"events": {"type": "array", "items": {"type": "integer"}}, "request": text(), "run": text(),
            "dry_run": flag(), "request_id": _REQUEST}),
    _wrote("projects.rename", "Give the project another name", _project_rename,
           {"name": text(), "request_id": _REQUEST}, "name", idempotent=True),
    _wrote("wait_for_index", "Embed what waits, for so many seconds at most", _index, {"seconds": {"type": "number"}},
           idempotent=True),
)  # fmt: skip
"""Further verbs whose effect can be taken back."""


def _receipt(done: Receipt) -> Reply:
    types = ", ".join(f"{count} {kind}" for kind, count in done.types.items()) or "nothing"
    said = [f"{'would go' if done.dry_run else 'gone'}: {types}; {len(done.events)} events"]
    if done.also_found_in:
        said.append("the same text stands in " + ", ".join(f"#{one}" for one in done.also_found_in))
    said += [f"survives: {inline(one)}" for one in done.survives]
    if done.wal_pending:
        said.append("not cleaned yet: somebody reads; a later write does it")
    data = {
        "ids": list(done.ids),
        "types": dict(done.types),
        "also_found_in": list(done.also_found_in),
        "dry_run": done.dry_run,
    }
    return Reply(lines.joined([*said, *lines.remarks(done.notices)]), data)


def _forget(store: Store, args: dict[str, Any]) -> Reply:
    params = writing.names(args.get("params", {}))
    given = {name: args[name] for name in ("type", "where", "dry_run", "request_id") if name in args}
    return _receipt(store.forget(args.get("refs"), **given, **params))


def _redact(store: Store, args: dict[str, Any]) -> Reply:
    given = {name: args[name] for name in ("attr", "check", "dry_run", "request_id") if name in args}
    return _receipt(store.redact(args["ref"], **given))


def _project_delete(store: Store, args: dict[str, Any]) -> Reply:
    return _receipt(store.projects.delete(args["name"], dry_run=args.get("dry_run", False)))


def _project_merge(store: Store, args: dict[str, Any]) -> Reply:
    done = store.projects.merge(args["name"], collisions=args.get("collisions", "refuse"))
    said = [f"{len(done.ids)} records moved"]
    said += [f"{inline(f'{one.type}:{one.key}')} in both: {one.outcome} #{one.kept}" for one in done.collisions]
    return Reply(lines.joined([*said, *lines.remarks(done.notices)]), {"ids": list(done.ids)})


def _backup(store: Store, args: dict[str, Any]) -> Reply:
    done = store.backup(args["path"])
    return Reply(
        lines.joined([f"{done.events} events, {done.bytes} bytes", *lines.remarks(done.notices)]), {"bytes": done.bytes}
    )


def _export(store: Store, args: dict[str, Any]) -> Reply:
    done = store.export(args["path"], **({"under": args["under"]} if "under" in args else {}))
    return Reply(done.text, {"bytes": done.bytes})


def _import(store: Store, args: dict[str, Any]) -> Reply:
    given = {name: args[name] for name in ("entities", "dry_run", "collisions") if name in args}
    done = store.import_(args["path"], origin="agent" if args.get("own") else "import", **given)
    return Reply(getattr(done, "text", "") or as_json(done))


ENDING: Final = (
    _wrote("forget", "Purge records and all beneath them for good; dry_run shows first what goes", _forget,
           {"refs": strings(), "type": text(), "where": text(), "params": {"type": "object"}, "dry_run": flag(),
            "request_id": _REQUEST}, destructive=True),
    _wrote("redact", "Purge the earlier texts of a record that stays", _redact,
           {"ref": ref(), "attr": text(), "check": text(), "dry_run": flag(), "request_id": _REQUEST}, "ref", destructive=True),
    _wrote("projects.delete", "Purge a project for good", _project_delete,
           {"name": text(), "dry_run": flag()}, "name", destructive=True),
    _wrote("projects.merge", "Move all of this project into another", _project_merge,
           {"name": text(), "collisions": {"type": "string", "enum": ["refuse", "keep_both", "merge"]}}, "name",
           destructive=True),
    _wrote("backup", "A verified copy of the store in a new file", _backup, {"path": text()}, "path"),
    _wrote("export", "The store, or a part of it, as plain JSON Lines", _export, {"path": text(), "under": ref()}, "path"),
    _wrote("import", "Read a folder of Markdown or an export; own: its words are the agent's own", _import,
           {"path": text(), "own": flag(), "entities": strings(), "dry_run": flag(),
            "collisions": {"type": "string", "enum": ["refuse", "keep_both", "merge"]}}, "path"),
)  # fmt: skip
"""Verbs that end records or reach other files: tools of their own in the full set, never reached through `more`."""
