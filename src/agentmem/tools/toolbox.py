"""The tools of one store, called by name."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

from agentmem.errors import AgentMemError, Closed, IoFailed, NotFound, shown
from agentmem.records.validate import nearest
from agentmem.store import Store
from agentmem.tools import claiming, reading, writing
from agentmem.tools.arguments import Schema, checked
from agentmem.tools.callers import Callers, hold
from agentmem.tools.changing import ENDING
from agentmem.tools.more import FURTHER, more, run
from agentmem.tools.specs import CORE
from agentmem.tools.tool import Reply, Tool
from agentmem.tools.verbs import Run, Verb

__all__ = ["Toolbox"]

_TEXT_CHARS: Final = 40_000

_RUNS: Final[Mapping[str, Run]] = {
    "recall": reading.recall,
    "get": reading.get,
    "query": reading.query,
    "attempt": writing.attempt,
    "note": writing.note,
    "update": writing.update,
    "track": writing.track,
    "mark": writing.mark,
    "claim": claiming.claim,
    "summarize": writing.summarize,
    "checkpoint": writing.checkpoint,
    "more": more,
}


class Toolbox:
    """The tools of one store. Thread-safe; it holds, for each caller, the task that it resumed last.

    Args:
        store: The store; or what opens it, called once, when it is first needed. What that raises is the answer of the
            call that needed it, and the next call tries again.
        full: Also list as tools what is otherwise reached through `more`, and what can't be taken back.
    """

    def __init__(self, store: Store | Callable[[], Store], *, full: bool = False) -> None:
        self._opener = store
        self._opened: tuple[Store, Callers] | None = None
        self._closed = False
        self._lock = threading.Lock()
        further = [one for one in (*FURTHER.values(), *ENDING) if one.listed is not None] if full else []
        self._verbs: Mapping[str, Verb] = {one.tool.name: one for one in further}
        self._core = {tool.name: tool for tool in CORE}
        self._tools = (*CORE, *(one.tool for one in further))

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools that are listed, in the order in which they are best shown."""
        return self._tools

    def call(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        """Call a tool. What is wrong with the call or the store is the reply's `error`; it is not raised.

        Raises:
            NotFound: No tool of this name is listed.
        """
        verb, tool = self._verbs.get(name), self._core.get(name)
        if verb is None and tool is None:
            near = nearest(name, [one.name for one in self._tools])
            hint = f"Did you mean {near}? " if near else ""
            listed = ", ".join(one.name for one in self._tools)
            raise NotFound(f"There is no tool {shown(name)}", next=f"{hint}There are {listed}")
        try:
            store, callers = self._ready()
            if verb is not None:
                return _bounded(run(store, verb, arguments), arguments)
            assert tool is not None
            reply = _called(store, callers, tool, checked(name, _with_by(tool.schema), arguments))
            return _bounded(reply, arguments)
        except AgentMemError as error:
            return _failed(error)
        except (OSError, MemoryError, RecursionError) as error:
            return _failed(IoFailed(f"{type(error).__name__}: {shown(str(error))}"))

    @property
    def store(self) -> Store:
        """The store, opened now if it was not.

        Raises:
            AgentMemError: It can't be opened.
        """
        return self._ready()[0]

    def _ready(self) -> tuple[Store, Callers]:
        with self._lock:
            if self._opened is None:
                if self._closed:
                    raise Closed("The tools are closed")
                store = self._opener if isinstance(self._opener, Store) else self._opener()
                hold(store)
                self._opened = (store, Callers(store))
            return self._opened

    def close(self) -> None:
        """Close the store, if it was opened. Closing twice is fine; what was claimed is taken back by whoever comes next."""
        with self._lock:
            self._closed = True
            if self._opened is not None:
                self._opened[0].close()
                self._opened = None


def _with_by(schema: Schema) -> Schema:
    """A schema that takes `by` too: every tool does, though not each lists it."""
    return {**schema, "properties": {**schema["properties"], "by": {"type": "string"}}}


def _called(store: Store, callers: Callers, tool: Tool, args: dict[str, Any]) -> Reply:
    view = callers.view(args.get("by"))
    match tool.name:
        case "resume":
            return reading.resume(view, callers, args)
        case "left":
            return reading.left(view, callers, args)
    reply = _RUNS[tool.name](view, args)
    if tool.name == "recall" or not (news := view.news()):  # which brings them itself
        return reply
    return Reply("\n".join((*news, reply.text)), reply.data)


def _bounded(reply: Reply, arguments: Mapping[str, Any]) -> Reply:
    """A reply that no context is flooded by, unless the caller gave a budget of its own."""
    given = arguments.get("args", arguments)
    if len(reply.text) <= _TEXT_CHARS or (isinstance(given, Mapping) and "budget" in given):
        return reply
    kept = reply.text[:_TEXT_CHARS]
    whole = kept.rpartition("\n")[0] or kept
    left = len(reply.text) - len(whole)
    return Reply(f"{whole}\ncut: {left} more characters: ask for less at once, with a smaller limit", reply.data)


def _failed(error: AgentMemError) -> Reply:
    parts = [f"error {error.code}: {error.what}"]
    parts += [f"{name}: {part}" for name, part in (("why", error.why), ("next", error.next)) if part]
    return Reply("\n".join(parts), {"error": error.to_dict()}, error)
