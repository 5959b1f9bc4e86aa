"""The tools that are listed by default: few, terse, since their texts stand in every context.

What a model sees of them, name, description and schema, costs less than 2,000 tokens in all by the counter of this
package. `by` names the caller where several share one connection: a label, no right. It is listed where it tells most,
and taken by every tool.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from agentmem.tools.arguments import Schema, array, flag, ref, strings, text, whole
from agentmem.tools.shapes import closed
from agentmem.tools.tool import Tool

__all__ = ["CORE"]

_MAP: Final[Schema] = {"type": "object"}
_BY: Final[Mapping[str, Schema]] = {"by": text()}


def _reads(name: str, said: str, arguments: Mapping[str, Schema], *required: str) -> Tool:
    return Tool(name, said, closed(arguments, required), read_only=True, idempotent=True)


def _writes(name: str, said: str, arguments: Mapping[str, Schema], *required: str, idempotent: bool = False) -> Tool:
    return Tool(name, said, closed(arguments, required), idempotent=idempotent)


CORE: Final = (
    _reads(
        "resume",
        "Where the work stands: call first and after compaction. view results: of finished parts",
        {"task": ref(), "view": text(), "since": whole(), "budget": whole(), **_BY},
    ),
    _reads("left", "What is not done, computed", {"task": ref(), "type": text(), "limit": whole()}),
    _reads(
        "recall",
        "Search all by words and meaning",
        {"query": text(), "kind": text(), "under": ref(), "about": ref(), "limit": whole()},
        "query",
    ),
    _reads("get", "Records in full, what hangs on them", {"refs": strings()}, "refs"),
    _reads(
        "query",
        "Filter entities: where check.authz is null and attrs.port = 443; group counts",
        {"type": text(), "where": text(), "group": text(), "order": text(), "limit": whole(), "after": text()},
        "type",
    ),
    _writes(
        "attempt",
        "Before a try: what; answers with earlier tries. After: id, outcome worked|failed|unclear, why",
        {"what": text(), "about": ref(), "task": ref(), "id": ref(), "outcome": text(), "why": text(), **_BY},
    ),
    _writes(
        "note",
        "[{kind: goal|step|fact|decision|question|lesson, title, body, parent, about, basis, confidence, tags,"
        " items: checklist, links {answers: 9}, scope {type, where, checks}, origin tool|web}]; parent $1: first of the call",
        {"notes": array(_MAP), **_BY},
        "notes",
    ),
    _writes(
        "update",
        "Change notes, tick items. set {status, title, append, items, …}",
        {"refs": strings(), "set": _MAP},
        "refs",
        "set",
    ),
    _writes(
        "track",
        "Add or change entities: keys or rows [{key, status, attrs}]; checks: expected of the type",
        {"type": text(), "keys": strings(), "attrs": _MAP, "rows": array(_MAP), "status": text(), "checks": strings()},
        "type",
        idempotent=True,
    ),
    _writes(
        "mark",
        "Results of checks {name: pass|fail|na|error}",
        {"type": text(), "keys": strings(), "results": _MAP, "detail": text()},
        "type",
        "keys",
        "results",
        idempotent=True,
    ),
    _writes(
        "claim",
        "Take the next n free of a task or type, or refs, for yourself. release: give back",
        {"task": ref(), "type": text(), "where": text(), "n": whole(), "refs": strings(), "release": flag(), **_BY},
    ),
    _writes(
        "summarize",
        "Close a task: work, result, status done|failed|dropped",
        {"task": ref(), "work": text(), "result": text(), "status": text()},
        "task",
        "result",
        idempotent=True,
    ),
    _writes("checkpoint", "Where you stand: doing, next, beware", {"text": text(), "task": ref()}, "text"),
    Tool(
        "more",
        "Further verbs: history, undo, graph, review …; without verb lists them",
        closed({"verb": text(), "args": _MAP}),
    ),
)
"""The listed tools, in the order in which they are best shown."""
