"""The tools that read: resume, left, recall, get, query."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from agentmem import limits
from agentmem.context.escape import quoted_block
from agentmem.context.lines import inline
from agentmem.context.tokens import count_tokens, cut
from agentmem.errors import AgentMemError, InvalidInput, LimitExceeded, shown
from agentmem.records.entities import Page
from agentmem.records.where import Groups
from agentmem.store import Store
from agentmem.tools import lines
from agentmem.tools.callers import Callers
from agentmem.tools.tool import Reply
from agentmem.types import UNTRUSTED, Note

__all__ = ["get", "left", "query", "recall", "resume"]

_REFS: Final = 20  # records of one `get`
_GET_TOKENS: Final = 6000  # of one `get` in all
_TEXTS: Final = ("body", "text", "result", "work", "why")
_FREE: Final = ("attrs", "key", "value", "detail")  # fields of a where whose values are anybody's text
_PAGE: Final = 100  # entities of a page
_VIEWS: Final = ("work", "results")


def resume(store: Store, callers: Callers, args: Mapping[str, Any]) -> Reply:
    """Everything needed to go on; who came back to a task is at work on it from then on."""
    by, budget = args.get("by"), args.get("budget", limits.BUDGET_DEFAULT)
    task = _task(callers, args)
    if "view" in args and args["view"] not in _VIEWS:
        raise InvalidInput(f"view is {shown(args['view'])}", next=f"It is one of {', '.join(_VIEWS)}")
    if args.get("view") == "results":
        if task is None:
            raise InvalidInput(
                "view results needs task", next="Name a goal or step; recall with kind summary finds more"
            )
        return Reply(store.task_summary(task, budget=budget).text)
    # At work on it from here on, so that news of it are counted from this very answer.
    view = store if task is None else store.acting(task=task)
    found = view.resume(task, since=args.get("since"), budget=budget)
    if found.task is None:
        callers.left(by)
    else:
        callers.took(by, found.task)
    return Reply(found.text, {"seq": found.seq, "task": found.task, "omitted": found.omitted})


def _task(callers: Callers, args: Mapping[str, Any]) -> str | int | None:
    """The task that is named; else that of the server, or the project: not what this caller happens to be at."""
    named: str | None = args.get("task")
    return callers.task if named is None else named


def left(store: Store, callers: Callers, args: Mapping[str, Any]) -> Reply:
    """What is not done."""
    found = store.left(_task(callers, args), type=args.get("type"), limit=args.get("limit", limits.PAGE))
    return Reply(found.text, {"steps": found.steps_total, "items": found.items_total, "omitted": found.omitted})


def recall(store: Store, args: Mapping[str, Any]) -> Reply:
    """What was written about something."""
    given = {name: args[name] for name in ("kind", "under", "about", "limit") if name in args}
    found = store.recall(args["query"], **given)
    return Reply(found.text, {"ids": [hit.id for hit in found.hits], "more": found.more, "meaning": found.meaning})


def get(store: Store, args: Mapping[str, Any]) -> Reply:
    """Records in full with what hangs on them; of one that is not there, the error stands in its place."""
    refs = args["refs"]
    if len(refs) > _REFS:
        raise LimitExceeded(f"{len(refs)} records at once, {_REFS} at most", next="Ask for the others in another call")
    shown: list[str] = []
    spent, failed = 0, None
    for at, ref in enumerate(refs):
        try:
            text = lines.record(store, store.get(ref))
        except AgentMemError as error:
            failed, text = error, f"error {error}"
        spent += count_tokens(text)
        if shown and spent > _GET_TOKENS:
            shown.append(f"cut: {len(refs) - at} more: get them in another call")
            break
        shown.append(text)
    if failed is not None and len(refs) == 1:
        raise failed
    return Reply("\n\n".join(shown))


def query(store: Store, args: Mapping[str, Any]) -> Reply:
    """Entities that match, or how many there are of each."""
    limit = min(args.get("limit", 50), _PAGE)
    if "group" in args:
        return groups(
            store, args["type"], store.entities.groups(args["type"], args["group"], args.get("where"), limit=limit)
        )
    found = store.entities.query(
        args["type"], args.get("where"), order=args.get("order", ""), limit=limit, after=args.get("after"), total=True
    )
    return page(found)


def page(found: Page) -> Reply:
    """A page of entities as lines, the total first, the cursor last."""
    shown = [f"{len(found.entities)} of {found.total}" if found.after or found.total else "0"]
    shown += [lines.entity_line(entity) for entity in found.entities]
    if found.after is not None:
        shown.append(f"more: after {found.after}")
    keys = [entity.key for entity in found.entities]
    return Reply("\n".join(shown), {"total": found.total, "after": found.after, "keys": keys})


def groups(store: Store, kind: str, found: Groups) -> Reply:
    """Counts by value, the largest first. Values are quoted as soon as one entity of the type is of others."""
    foreign = store.entities.query(kind, "origin in ('web', 'tool', 'import')", limit=1).entities
    origin = foreign[0].origin if foreign and any(name.partition(".")[0] in _FREE for name in found.fields) else "agent"
    shown = []
    for group in found.groups:
        values = [
            value if isinstance(value, str) else "-" if value is None else lines.compact(value)
            for value in group.values
        ]
        line = f"{' '.join(inline(value, origin) for value in values)}: {group.count}"
        if group.numbers is not None:
            of = group.numbers
            line += f" (min {of.min}, max {of.max}, sum {of.sum}, avg {of.avg})"
        shown.append(line)
    if found.cut:
        shown.append(f"cut: {found.total - len(found.groups)} more groups: a larger limit")
    data = [{"values": list(group.values), "count": group.count} for group in found.groups]
    return Reply(lines.listed(shown, "nothing matches"), {"groups": data, "total": found.total})


def read(store: Store, args: Mapping[str, Any]) -> Reply:
    """A long text of a record from some character on."""
    record = store.get(args["ref"])
    names = (args["field"],) if "field" in args else _TEXTS
    if names[0] not in _TEXTS:
        raise InvalidInput(f"field is {shown(names[0])}", next=f"It is one of {', '.join(_TEXTS)}")
    texts = [getattr(record, name, None) for name in names]
    whole = next((text for text in texts if text), "") or ""
    start = max(0, args.get("start", 0))
    part = cut(whole[start:], args.get("budget", lines.BODY_TOKENS), count_tokens)
    origin = getattr(record, "origin", "agent")
    text_shown = quoted_block(part, origin) if origin in UNTRUSTED and part else lines.trusted(part)
    end = start + len(part)
    rest = len(whole) - end
    if rest > 0:
        text_shown += f"\ncut: {rest} more characters: start {end}"
    title = record.title if isinstance(record, Note) else None
    return Reply(text_shown or "nothing", {"start": start, "end": end, "of": len(whole), "title": title})
