"""Completion of what arguments of prompts and resource templates may be: tasks, projects, records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mcp.types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    PromptReference,
    ResourceTemplateReference,
)

from agentmem.errors import AgentMemError

if TYPE_CHECKING:
    from agentmem.adapters.mcp.server import MemoryServer

__all__ = ["register"]

_MOST: Final = 100  # as the protocol has it
_LOOKED_AT: Final = 1000


def register(server: MemoryServer) -> None:
    """Give a server its completions."""

    async def complete(
        ref: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> Completion | None:
        found = await server.on_thread(_values, server, argument.name, argument.value)
        if found is None:
            return None
        return Completion(
            values=found[:_MOST],
            total=len(found) if len(found) <= _MOST else None,  # it was not counted further
            has_more=len(found) > _MOST,
        )

    server.completion()(complete)  # type: ignore[no-untyped-call]  # of the SDK


def _values(server: MemoryServer, name: str, begun: str) -> list[str] | None:
    """What there is that begins so: ids of unfinished tasks, names of projects, entities by `type:key`."""
    try:
        store = server.toolbox.store
        match name:
            case "task":
                left = store.left(None, limit=_LOOKED_AT)
                every = [str(step.id) for step in left.steps]
            case "project":
                every = [one.name for one in store.projects.list() if one.name is not None]
            case "id":
                kind, sign, key = begun.partition(":")
                if not sign:
                    every = [f"{one}:" for one in store.projects.stats().entities]
                    every += [str(step.id) for step in store.left(None, limit=_LOOKED_AT).steps]
                else:
                    page = (
                        store.entities.query(kind, "key startswith :begun", limit=_MOST + 1, begun=key)
                        if key
                        else store.entities.query(kind, limit=_MOST + 1)
                    )
                    every = [entity.ref for entity in page]
            case _:
                return None
    except AgentMemError:
        return []
    return [one for one in every if one.startswith(begun)]
