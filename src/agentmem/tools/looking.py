"""Further verbs that read: lists, searches, the past, what is worth a look, sizes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from agentmem import limits
from agentmem.context.answer import Answer
from agentmem.context.lines import inline, minute
from agentmem.store import Store
from agentmem.tools import lines, reading
from agentmem.tools.arguments import Schema, flag, number, ref, strings, text, whole
from agentmem.tools.tool import Reply
from agentmem.tools.verbs import Verb, verb
from agentmem.tools.writing import moment, names
from agentmem.types import UNSET

__all__ = ["LOOKING"]

_LIMIT: Final = whole()
_BUDGET: Final = whole("tokens")


def _answer(found: Answer, **data: Any) -> Reply:
    return Reply(found.text or "nothing", data)


def _given(args: Mapping[str, Any], *names: str) -> dict[str, Any]:
    return {name: args[name] for name in names if name in args}


def _more(shown: list[str], found: Sequence[Any], limit: int, after: Any) -> Reply:
    if len(found) == limit:
        shown.append(f"perhaps more: after {after}")
    return Reply(lines.listed(shown), {"after": after if len(found) == limit else None})


def _search_filters(args: Mapping[str, Any]) -> dict[str, Any]:
    given = _given(args, "kind", "status", "under", "about", "tag", "author", "origin", "project", "limit")
    return given | {name: moment(args[name]) for name in ("since", "until") if name in args}


_FILTERS: Final[Mapping[str, Schema]] = {
    "query": text(),
    **{name: text() for name in ("kind", "status", "tag", "author", "origin")},
    "under": ref(),
    "about": ref(),
    "since": text("ISO 8601"),
    "until": text("ISO 8601"),
    "limit": _LIMIT,
}


def _recall(store: Store, args: dict[str, Any]) -> Reply:
    found = store.recall(args["query"], budget=args.get("budget", limits.BUDGET_DEFAULT), **_search_filters(args))
    return Reply(found.text, {"ids": [hit.id for hit in found.hits], "more": found.more})


def _find(store: Store, args: dict[str, Any]) -> Reply:
    found = store.find(args["query"], after=args.get("after"), **_search_filters(args))
    shown = []
    for hit in found.hits:
        status = f" [{hit.status}]" if hit.status else ""
        snippet = f": {inline(hit.snippet, hit.origin)}" if hit.snippet and hit.snippet not in hit.title else ""
        shown.append(f"#{hit.id} {hit.kind}{status} {inline(hit.title, hit.origin)}{snippet}")
    if found.matched in ("prefix", "any"):
        shown.insert(0, {"prefix": "by beginnings of words", "any": "by any of the words"}[found.matched])
    if found.after is not None:
        shown.append(f"more: after {found.after}")
    return Reply(lines.listed(shown, "nothing found"), {"ids": [hit.id for hit in found.hits], "after": found.after})


def _resume(store: Store, args: dict[str, Any]) -> Reply:
    return _answer(store.resume(args.get("task"), **_given(args, "since", "budget")))


def _left(store: Store, args: dict[str, Any]) -> Reply:
    return _answer(store.left(args.get("task"), **_given(args, "type", "limit", "budget")))


def _get(store: Store, args: dict[str, Any]) -> Reply:
    return reading.get(store, args)


def _notes(store: Store, args: dict[str, Any]) -> Reply:
    given = _given(args, "kind", "status", "under", "about", "tag", "after")
    limit = args.get("limit", 50)
    parent = None if args.get("roots") else args.get("parent", UNSET)
    found = store.notes.list(parent=parent, limit=limit, **given)
    return _more([lines.title_line(note) for note in found], found, limit, found[-1].id if found else None)


def _children(store: Store, args: dict[str, Any]) -> Reply:
    limit = args.get("limit", 50)
    found = store.entities.children(args["entity"], limit=limit, **_given(args, "after"))
    shown = [f"#{one.id} {one.type}:{lines.entity_line(one)}" for one in found]
    return _more(shown, found, limit, found[-1].id if found else None)


def _links(store: Store, args: dict[str, Any]) -> Reply:
    limit = args.get("limit", 50)
    found = store.links.list(args["ref"], limit=limit, **_given(args, "kind", "after"))
    return _more([f"#{one.src} {one.kind} #{one.dst}" for one in found], found, limit, found[-1].seq if found else None)


def _items(store: Store, args: dict[str, Any]) -> Reply:
    limit = args.get("limit", 100)
    found = store.checklists.items(args["note"], limit=limit, **_given(args, "done", "after"))
    shown = [f"{one.ref} [{'x' if one.done else ' '}] {inline(one.text, one.origin)}" for one in found]
    return _more(shown, found, limit, found[-1].ref if found else None)


def _checkpoints(store: Store, args: dict[str, Any]) -> Reply:
    found = store.checkpoints(args.get("task"), **_given(args, "limit", "before"))
    shown = [
        f"#{one.id} {minute(one.at)}{f' of #{one.task}' if one.task else ''}{f' by {one.author}' if one.author else ''}:"
        f" {inline(one.text, one.origin)}"
        for one in found
    ]
    return Reply(lines.listed(shown), {"ids": [one.id for one in found]})


def _claims(store: Store, args: dict[str, Any]) -> Reply:
    found = store.claims(**_given(args, "mine"))
    holders = ["mine" if one.mine else f"by {one.holder or one.run or 'another run'}" for one in found]
    shown = [f"#{one.record} until {minute(one.expires_at)} {by}" for one, by in zip(found, holders, strict=True)]
    return Reply(lines.listed(shown), {"records": [one.record for one in found]})


def _earlier(store: Store, args: dict[str, Any]) -> Reply:
    found = store.attempts.earlier(args["what"], **_given(args, "about", "task"))
    return Reply(
        lines.listed(lines.remarks((), earlier=found), "nothing like it was tried"), {"ids": [one.id for one in found]}
    )


def _groups(store: Store, args: dict[str, Any]) -> Reply:
    given = _given(args, "of", "limit")
    found = store.entities.groups(args["type"], args["by"], args.get("where"), **given, **_params(args))
    return reading.groups(store, args["type"], found)


def _query(store: Store, args: dict[str, Any]) -> Reply:
    given = _given(args, "order", "after", "limit")
    return reading.page(store.entities.query(args["type"], args.get("where"), total=True, **given, **_params(args)))


def _params(args: Mapping[str, Any]) -> dict[str, Any]:
    return names(args.get("params", {}))


def _marks(store: Store, args: dict[str, Any]) -> Reply:
    found = store.entities.marks(args["entity"])
    return Reply(lines.listed([lines.mark_line(mark) for mark in found], "never marked"))


def _expected(store: Store, args: dict[str, Any]) -> Reply:
    found = store.entities.expected(args.get("type"))
    return Reply(lines.listed([lines.record(store, one) for one in found], "nothing is declared"))


def _history(store: Store, args: dict[str, Any]) -> Reply:
    given = _given(
        args, "under", "author", "run", "project", "after", "before", "newest_first", "limit", "budget"
    )  # fmt: skip
    found = store.history(args.get("ref"), **given)
    return _answer(found, next=found.next)


def _revisions(store: Store, args: dict[str, Any]) -> Reply:
    found = store.revisions(args["ref"], **_given(args, "before", "limit", "budget"))
    return _answer(found, next=found.next)


def _revision(store: Store, args: dict[str, Any]) -> Reply:
    value = store.revision(args["ref"], args["seq"])
    return Reply(inline(as_json(value), getattr(value, "origin", "agent")))


def _diff(store: Store, args: dict[str, Any]) -> Reply:
    return _answer(store.diff(args["ref"], args["before"], args.get("after"), **_given(args, "budget")))


def _log(store: Store, args: dict[str, Any]) -> Reply:
    limit = args.get("limit", 50)
    given = _given(args, "after", "until", "record", "project", "kinds", "newest_first")
    found = store.log.read(limit=limit, **given)
    shown = [
        f"{one.seq} {minute(one.at)} {one.kind} #{one.record}{f' by {one.author}' if one.author else ''}"
        for one in found
    ]
    return _more(shown, found, limit, found[-1].seq if found else None)


def _head(store: Store, args: dict[str, Any]) -> Reply:
    head = store.log.head()
    return Reply(f"{head.store}:{head.seq}:{head.chain}", {"store": head.store, "seq": head.seq, "chain": head.chain})


def _review(store: Store, args: dict[str, Any]) -> Reply:
    given = _given(args, "older_than", "section", "after", "limit", "budget")
    return _answer(store.review(args.get("task"), **given))


def _graph(store: Store, args: dict[str, Any]) -> Reply:
    found = store.graph(args["ref"], **_given(args, "depth", "limit", "after", "budget"))
    return _answer(found, after=found.after)


def _task_summary(store: Store, args: dict[str, Any]) -> Reply:
    return _answer(store.task_summary(args["task"], **_given(args, "budget")))


def _projects(store: Store, args: dict[str, Any]) -> Reply:
    found = store.projects.list()
    return Reply(
        lines.listed([f"#{one.id} {inline(one.name)}" for one in found]), {"projects": [one.name for one in found]}
    )


def _project_stats(store: Store, args: dict[str, Any]) -> Reply:
    return Reply(as_json(store.projects.stats()))


def _stats(store: Store, args: dict[str, Any]) -> Reply:
    return Reply(as_json(store.stats()))


def _verify(store: Store, args: dict[str, Any]) -> Reply:
    found = store.verify(**_given(args, "replay", "independent"))
    said = [f"sound: {found.events} events"] if found else [f"problem: {inline(one)}" for one in found.problems]
    return Reply("\n".join(said), {"sound": bool(found), "events": found.events})


def _news(store: Store, args: dict[str, Any]) -> Reply:
    return Reply(lines.listed(store.news()))


def as_json(value: Any) -> str:
    """A value without a text of its own, as JSON in a line."""

    def plain(part: Any) -> Any:
        if attrs.has(type(part)):
            return {
                one.name: getattr(part, one.name) for one in attrs.fields(type(part)) if not one.name.startswith("_")
            }
        return list(part) if isinstance(part, Iterable) else str(part)

    return lines.compact(json.loads(json.dumps(value, default=plain, ensure_ascii=False)))


_WHERE: Final[Mapping[str, Schema]] = {"type": text(), "where": text(), "params": {"type": "object"}}


def _reads(name: str, said: str, run: Any, arguments: Mapping[str, Schema] | None = None, **more: Any) -> Verb:
    return verb(name, said, run, arguments, read_only=True, **more)


LOOKING: Final[tuple[Verb, ...]] = (
    _reads("resume", "As the tool, of any project or as of an event", _resume,
           {"task": ref(), "since": whole(), "budget": _BUDGET}, past=True, listed=False),
    _reads("left", "As the tool, of any project or as of an event", _left,
           {"task": ref(), "type": text(), "limit": _LIMIT, "budget": _BUDGET}, past=True, listed=False),
    _reads("get", "As the tool, as of an event", _get, {"refs": strings()}, required=("refs",), past=True, listed=False),
    _reads("recall", "As the tool, with every filter; project * is all", _recall, {**_FILTERS, "budget": _BUDGET},
           required=("query",), everywhere=True, listed=False),
    _reads("find", "Search by words alone", _find, {**_FILTERS, "after": text()}, required=("query",), everywhere=True),
    _reads("read", "A long text of a record from a character on", reading.read,
           {"ref": ref(), "start": whole(), "field": text("body, text, result, work or why"), "budget": _BUDGET},
           required=("ref",)),
    _reads("notes.list", "Notes by kind, status, place, tag", _notes,
           {"kind": text(), "status": text(), "parent": ref(), "roots": flag(), "under": ref(), "about": ref(),
            "tag": text(), "limit": _LIMIT, "after": whole()}, past=True),
    _reads("graph", "A record with all beneath it", _graph,
           {"ref": ref(), "depth": whole(), "limit": _LIMIT, "after": whole(), "budget": _BUDGET}, required=("ref",), past=True),
    _reads("task_summary", "What a task and its parts came to", _task_summary,
           {"task": ref(), "budget": _BUDGET}, required=("task",), past=True),
    _reads("review", "What lies still, is open, doubtful, contradicted, there twice", _review,
           {"task": ref(), "older_than": number("days"), "section": text(), "after": text(), "limit": _LIMIT,
            "budget": _BUDGET}, past=True),
    _reads("history", "Who changed what, when", _history,
           {"ref": ref(), "under": ref(), "author": text(), "run": text(), "after": whole(), "before": whole(),
            "newest_first": flag(), "limit": _LIMIT, "budget": _BUDGET}, everywhere=True),
    _reads("revisions", "The changes of one record", _revisions,
           {"ref": ref(), "before": whole(), "limit": _LIMIT, "budget": _BUDGET}, required=("ref",)),
    _reads("revision", "A record as it was after an event", _revision, {"ref": ref(), "seq": whole()}, required=("ref", "seq")),
    _reads("diff", "What differs between two revisions", _diff,
           {"ref": ref(), "before": whole(), "after": whole(), "budget": _BUDGET}, required=("ref", "before")),
    _reads("log.read", "Events in order", _log,
           {"after": whole(), "until": whole(), "record": ref(), "kinds": strings(), "newest_first": flag(),
            "limit": _LIMIT}, everywhere=True),
    _reads("log.head", "The end of the log, to be noted elsewhere", _head),
    _reads("attempts.earlier", "Tries like one, without opening it", _earlier,
           {"what": text(), "about": ref(), "task": ref()}, required=("what",)),
    _reads("checkpoints", "Earlier checkpoints", _checkpoints, {"task": ref(), "limit": _LIMIT, "before": whole()}, past=True),
    _reads("checklists.items", "A checklist", _items,
           {"note": ref(), "done": flag(), "after": ref(), "limit": _LIMIT}, required=("note",), past=True),
    _reads("links.list", "Links from and to a record", _links,
           {"ref": ref(), "kind": text(), "limit": _LIMIT, "after": whole()}, required=("ref",), past=True),
    _reads("claims", "Who holds what", _claims, {"mine": flag()}),
    _reads("news", "What your task should hear", _news),
    _reads("entities.query", "As query, with named parameters, as of an event", _query,
           {**_WHERE, "order": text(), "limit": _LIMIT, "after": text()}, required=("type",), past=True, listed=False),
    _reads("entities.groups", "Counts by fields; of: numbers of a field", _groups,
           {**_WHERE, "by": text(), "of": text(), "limit": _LIMIT}, required=("type", "by"), past=True),
    _reads("entities.marks", "The marks of an entity in full", _marks, {"entity": ref()}, required=("entity",), past=True),
    _reads("entities.children", "Entities beneath an entity", _children,
           {"entity": ref(), "limit": _LIMIT, "after": whole()}, required=("entity",), past=True),
    _reads("entities.expected", "Which checks are declared", _expected, {"type": text()}, past=True),
    _reads("projects.list", "The projects of the store", _projects),
    _reads("projects.stats", "How many records a project has", _project_stats),
    _reads("stats", "The size of the store", _stats),
    _reads("verify", "Whether the file and its log are sound", _verify, {"replay": flag(), "independent": flag()}),
)  # fmt: skip
"""Further verbs that change nothing."""
