"""The MCP server: the tools as they are written by hand, and what hangs on them.

It serves both eras of the protocol, the handshake and that of 2026-07-28. Calls run on worker threads, never on the
loop, and a call that was begun is finished: a cancelled write is not half a write.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import anyio
import anyio.to_thread
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.helper_types import ReadResourceContents
from mcp.server.mcpserver import Context
from mcp.types import CallToolResult, InputRequiredResult, Resource, ResourceTemplate, TextContent, ToolAnnotations
from mcp.types import Tool as ListedTool
from pydantic import AnyUrl

from agentmem._version import __version__
from agentmem.adapters.mcp import completion, prompts, resources
from agentmem.adapters.mcp.notices import Notices
from agentmem.adapters.mcp.schemas import inlined
from agentmem.tools import Reply, Tool, Toolbox
from agentmem.tools.guide import INSTRUCTIONS

__all__ = ["DATA", "MemoryServer", "build"]

_T = TypeVar("_T")

DATA: Final = "agentmem/data"
"""The key of `_meta` in the result of a tool under which a program finds ids, counts and cursors."""

_THREADS: Final = 8
_TOOLS_TTL: Final = 3_600_000  # ms: the tools of a server do not change while it lives
_DESCRIPTION: Final = (
    "Durable working memory for agents: goals, attempts, findings and what is left, in one encrypted file."
)


class MemoryServer(MCPServer[Any]):
    """The tools, resources and prompts of one store.

    Attributes:
        toolbox: The tools.
        notices: Who is told of what changes.
    """

    def __init__(self, toolbox: Toolbox, *, instructions: str = INSTRUCTIONS) -> None:
        self.toolbox = toolbox
        self.notices = Notices(toolbox, self._registered)
        self._own = {tool.name for tool in toolbox.tools}
        self._threads = anyio.CapacityLimiter(_THREADS)
        listed = CacheHint(ttl_ms=_TOOLS_TTL, scope="public")
        super().__init__(
            "agentmem",
            title="agentmem",
            description=_DESCRIPTION,
            instructions=instructions,
            version=__version__,
            log_level="WARNING",
            subscriptions=self.notices.bus,
            cache_hints={
                "tools/list": listed,
                "prompts/list": listed,
                "resources/templates/list": listed,
                "resources/read": CacheHint(ttl_ms=0, scope="private"),
            },
        )
        # Telling of a failed call is the client's: the text of a call may hold anything, and is not for a log.
        logging.getLogger("mcp.server.mcpserver.server").setLevel(logging.CRITICAL)
        logging.getLogger("mcp.shared.jsonrpc_dispatcher").setLevel(logging.CRITICAL)
        self.notices.serve(self._lowlevel_server)
        prompts.register(self)
        completion.register(self)

    async def on_thread(self, function: Callable[..., _T], *args: Any) -> _T:
        """The result of a function that may wait for the file, run where it holds nobody up."""
        return await anyio.to_thread.run_sync(partial(function, *args), limiter=self._threads)

    async def list_tools(self) -> list[ListedTool]:
        """The tools of the box, then those that were registered otherwise, which refer to nothing either."""
        own = [_listed(tool) for tool in self.toolbox.tools]
        others = [
            tool.model_copy(
                update={
                    "input_schema": inlined(tool.input_schema),
                    "output_schema": None if tool.output_schema is None else inlined(tool.output_schema),
                }
            )
            for tool in await super().list_tools()
        ]
        return own + others

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """Call a tool; what is wrong with the call is the result, for the model to read."""
        if name not in self._own:
            return await super().call_tool(name, arguments, context)
        return _result(await self.on_thread(self.toolbox.call, name, arguments))

    async def list_resources(self) -> list[Resource]:
        """The way back into each project."""
        return [*await self.on_thread(resources.listed, self.toolbox), *await super().list_resources()]

    def _registered(self, uri: str) -> bool:
        """Whether a resource beside those of the store has this name."""
        return any(str(one.uri) == uri for one in self._resource_manager.list_resources())

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """How the resources of the store are named."""
        return [*resources.TEMPLATES, *await super().list_resource_templates()]

    async def read_resource(
        self, uri: AnyUrl | str, context: Context[Any, Any] | None = None
    ) -> Iterable[ReadResourceContents] | InputRequiredResult:
        """Read a resource of the store."""
        named = resources.parsed(str(uri))
        if named is None:
            return await super().read_resource(uri, context)
        text = await self.on_thread(resources.read, self.toolbox, named, str(uri))
        return [ReadResourceContents(content=text, mime_type=resources.MIME)]


def build(toolbox: Toolbox, *, instructions: str = INSTRUCTIONS) -> MemoryServer:
    """The MCP server of a box of tools. It opens no store and loads no model by itself."""
    return MemoryServer(toolbox, instructions=instructions)


def _listed(tool: Tool) -> ListedTool:
    schema: Mapping[str, Any] = tool.schema
    return ListedTool(
        name=tool.name, description=tool.description, input_schema=dict(schema), annotations=_hints(tool)
    )  # fmt: skip


def _hints(tool: Tool) -> ToolAnnotations:
    """What a host may know of a tool without calling it. Left out is what it would take for granted."""
    if tool.read_only:
        return ToolAnnotations(read_only_hint=True)
    return ToolAnnotations(destructive_hint=tool.destructive, idempotent_hint=True if tool.idempotent else None)


def _result(reply: Reply) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=reply.text)],
        is_error=reply.error is not None,
        _meta={DATA: dict(reply.data)} if reply.data else None,
    )
