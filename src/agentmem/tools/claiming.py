"""The tool `claim`: take the next few, so that nobody else does them too, and give them back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentmem import limits
from agentmem.context.lines import inline, minute
from agentmem.errors import Held, InvalidInput
from agentmem.store import Store
from agentmem.tools import lines
from agentmem.tools.callers import take_back
from agentmem.tools.tool import Reply
from agentmem.types import Entity, Item, Note, Scope, WrittenMany

__all__ = ["claim"]


def claim(store: Store, args: Mapping[str, Any]) -> Reply:
    """Take records: those named, the next of a type, or the next of what a task still lacks."""
    refs, n, seconds = args.get("refs"), args.get("n", 1), args.get("seconds", limits.CLAIM_SECONDS)
    if args.get("release"):
        return _released(store.release(refs))
    take_back(store)
    if refs is not None:
        if unfit := sorted({"task", "type", "where", "n"} & args.keys()):
            raise InvalidInput(f"refs and {unfit[0]} exclude each other", next="Leave one of them out")
        return _taken(store, store.claim(refs, seconds=seconds))
    if "task" in args:
        return _of_task(store, args["task"], n, seconds, args)
    if "type" not in args:
        raise InvalidInput("Nothing to claim", next='Give task, type, or refs: {"task": "14", "n": 5}')
    taken = store.claim(type=args["type"], where=args.get("where"), n=n, seconds=seconds)
    return _taken(store, taken)


def _of_task(store: Store, ref: str, n: int, seconds: int, args: Mapping[str, Any]) -> Reply:
    """The next of what is left in a task's scope; of a task without one, the next unfinished steps beneath, or itself."""
    task = store.get(ref)
    if not isinstance(task, Note):
        raise InvalidInput(f"{ref} is no task", next="Name a goal or a step")
    if task.scope is None:
        if "type" in args or "where" in args:
            raise InvalidInput(f"#{task.id} has no scope", next="Claim by type without task, or give the step a scope")
        return _next_steps(store, task, n, seconds)
    kind = args.get("type", task.scope.type)
    if kind != task.scope.type:
        raise InvalidInput(f"The scope of #{task.id} is {task.scope.type}, not {kind}", next="Leave type out")
    where = _unmarked(store, task.scope, args.get("where"))
    return _taken(store, store.claim(type=kind, where=where, n=n, seconds=seconds))


def _unmarked(store: Store, scope: Scope, further: str | None) -> str | None:
    """What the scope's entities lack: a check without a mark, or with one in error."""
    parts = [f"({part})" for part in (scope.where, further) if part]
    lacking = [_lacks(name) for name in scope.checks]
    if not scope.checks:
        for declared in store.entities.expected(scope.type):
            lacks = " or ".join(_lacks(name) for name in declared.names)
            lacking += [f"(({declared.where}) and ({lacks}))" if declared.where else f"({lacks})"] if lacks else []
    if lacking:
        parts.append(f"({' or '.join(lacking)})")
    return " and ".join(parts) or None


def _lacks(check: str) -> str:
    return f'check."{check}" is null or check."{check}" = \'error\''


def _next_steps(store: Store, task: Note, n: int, seconds: int) -> Reply:
    """The next unfinished steps beneath a task that wait for nothing and that nobody holds."""
    while True:
        held = {one.record for one in store.claims()}
        waiting = [
            step for step in store.left(task, limit=limits.PAGE).steps if step.id != task.id and not step.blocked_by
        ]
        free = [step.id for step in waiting if step.id not in held][:n] if waiting else [task.id]
        if not free:
            return _nothing(store)
        try:
            return _taken(store, store.claim(free, seconds=seconds))
        except Held:
            if free == [task.id]:
                raise
            # Somebody took one of them meanwhile: look again.


def _nothing(store: Store) -> Reply:
    others = [one for one in store.claims() if not one.mine]
    if not others:
        return Reply("nothing was free", {"refs": []})
    last = max(one.expires_at for one in others)
    return Reply(
        f"nothing was free: {len(others)} claimed by others, until {minute(last)} UTC at the latest", {"refs": []}
    )


def _taken(store: Store, taken: WrittenMany) -> Reply:
    if not taken.ids:
        return _nothing(store)
    records = [store.get(record) for record in taken.ids]
    refs = [
        record.ref if isinstance(record, (Entity, Item)) else str(taken.ids[at]) for at, record in enumerate(records)
    ]
    shown = [inline(ref, getattr(records[at], "origin", "agent")) for at, ref in enumerate(refs)]
    until = next((one.expires_at for one in store.claims(mine=True) if one.record == taken.ids[0]), None)
    said = f"yours until {minute(until)} UTC:" if until is not None else "yours:"
    return Reply(lines.joined([said, *shown]), {"refs": refs})


def _released(done: WrittenMany) -> Reply:
    return Reply(f"{done.changed} given back", {"ids": list(done.ids), "released": done.changed})
