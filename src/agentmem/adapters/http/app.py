"""What is behind the gate: the tools as plain requests, the state of the server, and MCP."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from agentmem import errors
from agentmem._version import __version__
from agentmem.adapters.http import refusal
from agentmem.adapters.http.calls import Calls
from agentmem.adapters.http.jsonbody import parsed
from agentmem.adapters.http.limits import Limits
from agentmem.adapters.http.refusal import Refusal, json_bytes
from agentmem.errors import AgentMemError
from agentmem.tools import Tool, Toolbox

if TYPE_CHECKING:
    from agentmem.adapters.mcp.server import MemoryServer

__all__ = ["MCP_PATH", "build_app", "status_of"]

MCP_PATH: Final = "/mcp"
_RETRY_SECONDS: Final = 1

# The first that fits counts: a class stands before its parents.
_STATUSES: Final[tuple[tuple[type[BaseException], HTTPStatus], ...]] = (
    (errors.Held, HTTPStatus.LOCKED),
    (errors.Conflict, HTTPStatus.CONFLICT),
    (errors.StoreExists, HTTPStatus.CONFLICT),
    (errors.InvalidInput, HTTPStatus.BAD_REQUEST),
    (errors.NotInPast, HTTPStatus.BAD_REQUEST),
    (errors.NotFound, HTTPStatus.NOT_FOUND),
    (errors.Busy, HTTPStatus.SERVICE_UNAVAILABLE),
    (PermissionError, HTTPStatus.FORBIDDEN),
)


def status_of(error: AgentMemError) -> HTTPStatus:
    """The status of the answer to a call that failed."""
    found = (status for kind, status in _STATUSES if isinstance(error, kind))
    return next(found, HTTPStatus.INTERNAL_SERVER_ERROR)


def build_app(toolbox: Toolbox, server: MemoryServer, calls: Calls, limits: Limits) -> Starlette:
    """The routes of a server, without the gate that belongs before them.

    Args:
        toolbox: The tools.
        server: The same tools as an MCP server.
        calls: Where plain requests call them.
        limits: What the server bears.
    """
    mcp = server.streamable_http_app(
        streamable_http_path=MCP_PATH,
        max_request_body_size=limits.body_bytes,
        session_idle_timeout=limits.session_idle_seconds,
        max_sessions=limits.sessions,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.router.lifespan_context(mcp):
            yield

    routes = _Routes(toolbox, calls)
    app = Starlette(
        routes=[
            Route("/health", _health, methods=["GET"]),
            Route("/v1/tools", routes.listed, methods=["GET"]),
            Route("/v1/tools/{name}", routes.called, methods=["POST"]),
            *mcp.routes,
        ],
        lifespan=lifespan,
        exception_handlers={HTTPException: _of_http, AgentMemError: _of_error, Exception: _of_fault},
    )
    app.router.redirect_slashes = False  # one path for one thing
    return app


class _Routes:
    """The tools of a box as plain requests."""

    def __init__(self, toolbox: Toolbox, calls: Calls) -> None:
        self._listed = json_bytes({"tools": [_described(tool) for tool in toolbox.tools]})
        self._calls = calls

    async def listed(self, _: Request) -> Response:
        """`GET /v1/tools`."""
        return _json(self._listed)

    async def called(self, request: Request) -> Response:
        """`POST /v1/tools/NAME` with an object of arguments."""
        arguments = parsed(await request.body())
        reply = await self._calls.call(request.path_params["name"], arguments)
        if isinstance(reply, Refusal):
            return _refused(reply)
        if reply.error is not None:
            return _failed(reply.error)
        return _json(json_bytes({"text": reply.text, "data": dict(reply.data)}))


def _described(tool: Tool) -> dict[str, Any]:
    hints = {"read_only": tool.read_only, "destructive": tool.destructive, "idempotent": tool.idempotent}
    return {"name": tool.name, "description": tool.description, "input_schema": dict(tool.schema), "hints": hints}


def _json(body: bytes, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(body, status, headers, media_type="application/json")


def _failed(error: AgentMemError) -> Response:
    status = status_of(error)
    retry = {"retry-after": str(_RETRY_SECONDS)} if status == HTTPStatus.SERVICE_UNAVAILABLE else None
    return _json(json_bytes({"error": error.to_dict()}), status, retry)


def _refused(refused: Refusal, allow: str | None = None) -> Response:
    """A refusal after which the connection is kept: the request was read to its end."""
    return _json(refused.body(), refused.status, {"allow": allow} if allow else None)


async def _health(_: Request) -> Response:
    return _json(json_bytes({"status": "ok", "version": __version__}))


async def _of_http(_: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException) and error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _refused(refusal.METHOD, (error.headers or {}).get("Allow"))
    return _refused(refusal.NO_ROUTE)


async def _of_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, AgentMemError)
    return _failed(error)


async def _of_fault(_: Request, _error: Exception) -> Response:
    return _refused(refusal.INTERNAL)
