"""The tool `more`: every further verb that can be taken back, by its name in the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentmem.errors import InvalidInput, NotFound, shown
from agentmem.records.validate import nearest
from agentmem.store import Store
from agentmem.tools.arguments import Schema, checked
from agentmem.tools.changing import CHANGING, ENDING
from agentmem.tools.looking import LOOKING
from agentmem.tools.tool import Reply
from agentmem.tools.verbs import Verb

__all__ = ["FURTHER", "more", "run"]

FURTHER: Final[Mapping[str, Verb]] = {one.name: one for one in (*LOOKING, *CHANGING)}

_ENDING: Final = frozenset(one.name for one in ENDING)
# Names of the library, or a model's habit, for what a listed tool does.
_LISTED: Final[Mapping[str, str]] = {
    "notes.add_many": "note", "notes.update": "update", "notes.update_many": "update", "notes.get": "get",
    "entities.get": "get", "entities.put": "track", "entities.put_many": "track", "entities.mark": "mark",
    "checklists.add": "update", "checklists.done": "update", "checklists.undone": "update", "attempts.open": "attempt",
    "attempts.close": "attempt", "release": "claim",
}  # fmt: skip
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "link": "links.add", "unlink": "links.remove", "move": "notes.move", "list": "notes.list", "notes": "notes.list",
    "groups": "entities.groups", "expect": "entities.expect", "unmark": "entities.unmark", "tree": "graph",
    "projects": "projects.list", "log": "log.read", "links": "links.list", "checklist": "checklists.items",
}  # fmt: skip


def more(store: Store, args: Mapping[str, Any]) -> Reply:
    """Call a verb; without arguments where it needs some, say which; without a verb, list them."""
    name = args.get("verb")
    if name is None:
        if "args" in args:
            raise InvalidInput("args belong to a verb", next="Give verb too; more without arguments lists the verbs")
        return Reply("\n".join(f"{one.name}: {one.said}" for one in FURTHER.values()))
    found = FURTHER.get(_OTHER_NAMES.get(name, name))
    if found is None:
        raise _unknown(name)
    given = args.get("args")
    if given is None and found.schema.get("required"):
        return Reply(_usage(found))
    return run(store, found, given or {})


def _unknown(name: str) -> NotFound:
    if name in _LISTED:
        return NotFound(f"{shown(name)} is the tool {_LISTED[name]}", next=f"Call {_LISTED[name]} itself")
    if name in _ENDING:
        return NotFound(
            f"{shown(name)} is not reached through more",
            why="It ends records or makes files, which a person should decide",
            next="A person can do it on the command line, or list it by serve --tools full",
        )
    near = nearest(name, [*FURTHER, *_OTHER_NAMES])
    hint = f"Did you mean {near}? " if near else ""
    return NotFound(f"There is no verb {shown(name)}", next=f"{hint}more without arguments lists them")


def _usage(found: Verb) -> str:
    needed = found.schema.get("required", ())
    properties: Mapping[str, Schema] = found.schema["properties"]
    parts = [f"{name}{'' if name in needed else '?'}: {_kind(of)}" for name, of in properties.items()]
    return f"{found.name}: {found.said}\nargs {{{', '.join(parts)}}}"


def _kind(of: Schema) -> str:
    if "enum" in of:
        return "|".join(of["enum"])
    kind = f"[{_kind(of['items'])}]" if of.get("type") == "array" else str(of.get("type", "any"))
    said = of.get("description")
    return f"{kind} ({said})" if said else kind


def run(store: Store, verb: Verb, given: Mapping[str, Any]) -> Reply:
    """Call a verb with arguments that are checked here; of another project, as of an earlier event."""
    args = checked(verb.name, verb.schema, given)
    project = args.pop("project", None)
    if project is not None:
        if project == "*" and verb.everywhere:
            args["project"] = "*"
        else:
            store = store.in_project(project)
    at = args.pop("at", None)
    if at is None:
        return verb.run(store, args)
    with store.at(at) as then:
        return verb.run(then, args)
