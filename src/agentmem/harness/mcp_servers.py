"""The tools of an MCP server as tools of a session, through the extra `mcp`.

The connection lives on a loop of its own in one background thread. It is made when it is first needed and again after it
broke; `close()` ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, overload

from agentmem.errors import Closed, Conflict, InvalidInput, MissingExtra, ToolFailed, ToolTimeout, shown
from agentmem.harness.toolset import LOOK_SECONDS, Call, Permission, Tool
from agentmem.log.canonical import canonical
from agentmem.records.validate import did_you_mean

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

__all__ = ["McpTools", "mcp_tools"]

_T = TypeVar("_T")

_ODD: Final = re.compile(r"[^A-Za-z0-9_-]", re.ASCII)
_NAME_CHARS: Final = 64
_CLOSE_SECONDS: Final = 15.0
_PAGES: Final = 1000
_CONNECTION_CLOSED: Final = -32000  # codes of the SDK, which speaks them to nobody else
_REQUEST_TIMEOUT: Final = -32001
_TRANSPORTS: Final = ("anyio", "httpcore2", "httpx2")


def mcp_tools(
    server: Any,
    *,
    prefix: str = "",
    permission: Permission | Callable[[Any], Permission] = "allow",
    only: Iterable[str] | None = None,
    definitions: Iterable[Any] | None = None,
    trust_hints: bool = True,
    seconds: float = 60.0,
    parallel: bool = True,
    expires: int | None = None,
    output_chars: int = 200_000,
) -> McpTools:
    """The tools of an MCP server.

    A tool that the server says only reads, or is idempotent, is taken for idempotent: after a crash it is run again.
    These are hints of the server; where it is not trusted, `trust_hints=False` takes none.

    Args:
        server: `mcp.StdioServerParameters`, a URL, a server object of the SDK, or a function that gives a fresh transport.
        prefix: Stands before each name; what a name may not hold becomes `_`.
        permission: `allow` or `ask` for all, or a function of the server's description of a tool.
        only: The names, as the server has them, of those to take.
        definitions: The server's descriptions of its tools, from earlier: then nothing is connected before the first call.
        trust_hints: Whether its hints count.
        seconds: The time a call has, and each attempt to connect.
        parallel: Whether its tools may run beside others.
        expires: The seconds that a request for approval waits, None for ever.
        output_chars: The characters of a result that are kept.

    Raises:
        MissingExtra: The package `mcp` is not installed.
        ToolFailed: The server could not be reached.
        Conflict: Two of its tools come to one name.
    """
    link = _Link(server)
    try:
        found = link.listed(seconds) if definitions is None else list(definitions)
        wanted = None if only is None else set(only)
        tools: dict[str, Tool] = {}
        for each in found:
            if wanted is not None and each.name not in wanted:
                continue
            hints = each.annotations if trust_hints else None
            name = _name(prefix, each.name)
            if name in tools:
                raise Conflict(f"Two tools of the server come to the name {name}", next="Take one of them with only=")
            tools[name] = Tool(
                name=name,
                description=each.description or each.title or "",
                schema=each.input_schema,
                run=_Remote(link, each.name),
                idempotent=bool(hints and (hints.read_only_hint or hints.idempotent_hint)),
                permission=permission(each) if callable(permission) else permission,
                seconds=seconds,
                parallel=parallel,
                expires=expires,
                output_chars=output_chars,
            )
        if wanted is not None and (missing := wanted - {each.name for each in found}):
            names = [each.name for each in found]
            hint = did_you_mean(min(missing), names)
            raise InvalidInput(
                f"The server has no tool {shown(min(missing))}",
                next=f"{hint} It has {', '.join(names) or 'none'}".lstrip(),
            )
    except BaseException:
        link.close()
        raise
    return McpTools(tools.values(), tuple(found), link)


class McpTools(Sequence[Tool]):
    """The tools of one server, as a list that is closed at the end. Also a context manager.

    Attributes:
        definitions: The server's descriptions of its tools, to be given to `mcp_tools` another time.
    """

    def __init__(self, tools: Iterable[Tool], definitions: tuple[Any, ...], link: _Link) -> None:
        self._tools = list(tools)
        self.definitions = definitions
        self._link = link

    @overload
    def __getitem__(self, at: int) -> Tool: ...
    @overload
    def __getitem__(self, at: slice) -> list[Tool]: ...
    def __getitem__(self, at: int | slice) -> Tool | list[Tool]:
        return self._tools[at]

    def __len__(self) -> int:
        return len(self._tools)

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection and its thread, and the server's process where it has one. Closing twice is fine."""
        self._link.close()


class _Remote:
    """What runs one tool."""

    def __init__(self, link: _Link, name: str) -> None:
        self._link, self._name = link, name

    def __call__(self, call: Call) -> str:
        result = self._link.called(self._name, call)
        text = _text(result)
        if result.is_error:
            raise ToolFailed(f"{call.tool} failed", why=text)
        return text


def _name(prefix: str, name: str) -> str:
    """A name that model APIs take; one that is too long ends in a digest of itself."""
    whole = prefix + _ODD.sub("_", name)
    if len(whole) <= _NAME_CHARS:
        return whole
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{whole[: _NAME_CHARS - 9]}_{digest}"


def _text(result: Any) -> str:
    """The blocks of a result as text, those that are none by what they are."""
    parts: list[str] = []
    for block in result.content:
        match block.type:
            case "text":
                parts.append(block.text)
            case "image" | "audio":
                parts.append(f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4} bytes]")
            case "resource_link":
                parts.append(f"[resource {block.uri}: {block.name}]")
            case "resource" if hasattr(block.resource, "text"):
                parts.append(f"[resource {block.resource.uri}]\n{block.resource.text}")
            case "resource":
                parts.append(f"[resource {block.resource.uri}, {len(block.resource.blob) * 3 // 4} bytes]")
            case other:
                parts.append(f"[{other}]")
    if not parts and result.structured_content is not None:
        return canonical(result.structured_content)
    return "\n".join(parts)


class _Link:
    """The connection to a server: a thread with a loop, and on it one task that holds the client open."""

    def __init__(self, server: Any) -> None:
        _sdk()
        self._server = server
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        # Only the loop's thread touches these.
        self._client: Any = None
        self._holder: asyncio.Task[None] | None = None
        self._ending: asyncio.Event | None = None
        self._connecting: asyncio.Lock | None = None

    def listed(self, seconds: float) -> list[Any]:
        """The server's descriptions of its tools.

        Raises:
            ToolFailed: It can't be reached, or gives none.
        """

        async def listing() -> list[Any]:
            client = await self._connected()
            found: list[Any] = []
            cursor: str | None = None
            for _ in range(_PAGES):
                page = await client.list_tools(cursor=cursor)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None:
                    break
            return found

        return self._done(listing(), seconds, threading.Event(), "The list of the server's tools")

    def called(self, name: str, call: Call) -> Any:
        """The result of a tool."""

        async def calling() -> Any:
            client = await self._connected()
            try:
                return await client.call_tool(name, call.input, read_timeout_seconds=call.seconds)
            except Exception as error:
                if _broken(error):
                    self._drop()  # the next call connects anew
                raise

        return self._done(calling(), call.seconds, call.cancelled, call.tool)

    def close(self) -> None:
        """End everything."""
        with self._lock:
            self._closed = True
            loop, thread, self._loop, self._thread = self._loop, self._thread, None, None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(self._drop)
        loop.call_soon_threadsafe(self._stop)
        thread.join(_CLOSE_SECONDS)

    def _stop(self) -> None:
        import asyncio

        async def stopping() -> None:
            if self._holder is not None:
                await asyncio.wait({self._holder}, timeout=_CLOSE_SECONDS)
            loop.stop()

        loop = asyncio.get_running_loop()
        self._stopping = loop.create_task(stopping())

    def _done(self, work: Coroutine[Any, Any, _T], seconds: float, cancelled: threading.Event, what: str) -> _T:
        """Have the loop do something, for as long as it may take."""
        import asyncio

        try:
            future: Future[_T] = asyncio.run_coroutine_threadsafe(work, self._running())
        except BaseException:
            work.close()
            raise
        deadline = time.monotonic() + seconds
        problem: ToolFailed | None = None
        while problem is None:
            try:
                return future.result(LOOK_SECONDS)
            except TimeoutError as error:
                if future.done():
                    problem = _shaped(what, error)
                elif cancelled.is_set():
                    problem = ToolFailed(f"{what} was stopped", why="The call was interrupted, or its time was over")
                elif time.monotonic() >= deadline:
                    problem = ToolTimeout(f"{what} did not end in {seconds:g} s")
            except Exception as error:  # noqa: BLE001  # whatever the SDK raises is the server's failure
                problem = _shaped(what, error)
        future.cancel()
        raise problem

    def _running(self) -> asyncio.AbstractEventLoop:
        import asyncio

        with self._lock:
            if self._closed:
                raise Closed("The tools of the server are closed", next="Get them again with mcp_tools")
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=_run, args=(self._loop,), name="agentmem-mcp", daemon=True)
                self._thread.start()
            return self._loop

    async def _connected(self) -> Any:
        import asyncio

        if self._connecting is None:
            self._connecting = asyncio.Lock()
        async with self._connecting:
            if self._client is None:
                if self._holder is not None:  # the broken one must be gone before another begins
                    await asyncio.wait({self._holder}, timeout=_CLOSE_SECONDS)
                ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                self._ending = asyncio.Event()
                self._holder = asyncio.create_task(self._hold(ready, self._ending))
                try:
                    self._client = await ready
                except asyncio.CancelledError:
                    self._ending.set()
                    self._holder.cancel()
                    raise
            return self._client

    async def _hold(self, ready: asyncio.Future[Any], ending: asyncio.Event) -> None:
        """Hold the client open; it has to be opened and closed in one task."""
        try:
            with _transport(self._server) as transport:
                async with _sdk().Client(transport) as client:
                    ready.set_result(client)
                    await ending.wait()
        except BaseException as error:
            if not ready.done():
                ready.set_exception(error if isinstance(error, Exception) else ToolFailed("The connection was stopped"))
            elif not isinstance(error, Exception):
                raise
        finally:
            if self._ending is ending:
                self._client = None

    def _drop(self) -> None:
        """Let the connection go."""
        self._client = None
        if self._ending is not None:
            self._ending.set()


def _sdk() -> Any:
    try:
        import mcp
    except ImportError:
        raise MissingExtra(
            "The package mcp is not installed", next="Install the extra with pip install '.[mcp]'"
        ) from None
    return mcp


@contextlib.contextmanager
def _transport(server: Any) -> Iterator[Any]:
    """What the client connects by. A process's standard error goes nowhere: this library writes to nobody's terminal."""
    import os

    mcp = _sdk()
    if isinstance(server, mcp.StdioServerParameters):
        from mcp.client.stdio import stdio_client

        with open(os.devnull, "w", encoding="utf-8") as nowhere:
            yield stdio_client(server, errlog=nowhere)
    elif callable(server):
        yield server()
    else:
        yield server


def _run(loop: asyncio.AbstractEventLoop) -> None:
    import asyncio

    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        asyncio.set_event_loop(None)
        loop.close()


def _broken(error: Exception) -> bool:
    """Whether an error says that the connection is no more; others are answers, or a call's own."""
    if type(error).__name__ == "MCPError":
        return getattr(error, "code", None) == _CONNECTION_CLOSED
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in _TRANSPORTS


def _shaped(what: str, error: BaseException) -> ToolFailed:
    if isinstance(error, ToolFailed):
        return error
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError) or getattr(error, "code", None) == _REQUEST_TIMEOUT:
        return ToolTimeout(f"{what} did not end in time")
    return ToolFailed(f"{what} failed", why=f"{type(error).__name__}: {error}")
