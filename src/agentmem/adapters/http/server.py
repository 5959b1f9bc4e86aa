"""The server: bound to a literal loopback address, run until a signal, ended so that requests finish."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

import anyio.to_thread
import uvicorn

from agentmem.adapters.http.app import MCP_PATH, build_app
from agentmem.adapters.http.calls import Calls
from agentmem.adapters.http.gate import Gate, own_hosts
from agentmem.adapters.http.limits import DEFAULTS, Limits
from agentmem.adapters.http.protocol import guarded
from agentmem.adapters.http.token import checked_token
from agentmem.errors import InvalidInput, IoFailed

if TYPE_CHECKING:
    from agentmem.adapters.mcp.server import MemoryServer
    from agentmem.tools import Toolbox

__all__ = ["HOST", "PORT", "HttpServer", "serve"]

HOST: Final = "127.0.0.1"
PORT: Final = 8377
_ADDRESSES: Final = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(
    toolbox: Toolbox,
    server: MemoryServer,
    *,
    host: str = HOST,
    port: int = PORT,
    token: str,
    limits: Limits = DEFAULTS,
) -> None:
    """Serve until SIGTERM or SIGINT. Requests that were begun finish; the toolbox is the caller's to close.

    Once it listens, one line of JSON on stderr says where.

    Args:
        toolbox: The tools.
        server: The same tools as an MCP server.
        host: `127.0.0.1` or `::1`.
        port: 0 is any free one.
        token: What each request has to bring: 32 printable ASCII characters or more.
        limits: What the server bears.

    Raises:
        InvalidInput: The address is not a literal loopback address, or the token is too short.
        IoFailed: The address can't be bound, as when the port is taken.
        AgentMemError: The store can't be opened, which is tried once the address is bound.
    """
    made = HttpServer(toolbox, server, host=host, port=port, token=token, limits=limits)
    try:
        toolbox.store  # noqa: B018  # who starts a server by hand is to see at once that it can't open its store
    except BaseException:
        made.close()
        raise
    made.run(_told)


class HttpServer:
    """A server that is bound, and serves once it runs. `serve` is the same in one call.

    Args:
        toolbox: The tools.
        server: The same tools as an MCP server. It serves once.
        host: `127.0.0.1` or `::1`.
        port: 0 is any free one.
        token: What each request has to bring.
        limits: What the server bears.

    Attributes:
        url: Where it is.

    Raises:
        InvalidInput: The address is not a literal loopback address, or the token is too short.
        IoFailed: The address can't be bound.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        server: MemoryServer,
        *,
        host: str = HOST,
        port: int = PORT,
        token: str,
        limits: Limits = DEFAULTS,
    ) -> None:
        checked_token(token)
        self._socket = _bound(host, port)
        port = self._socket.getsockname()[1]
        self.url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        self._limits = limits
        self._server = server
        self._calls = Calls(toolbox, limits)
        app: Any = build_app(toolbox, server, self._calls, limits)
        self._gate = Gate(app, token=token, hosts=own_hosts(host, port), limits=limits)
        self._running = _Uvicorn(self._config(), self._gate, self._end_notices)

    def run(self, listening: Callable[[str], None] | None = None) -> None:
        """Serve until `stop`, or a signal where this is the main thread. It runs once.

        Args:
            listening: Called with the URL once requests are taken.

        Raises:
            IoFailed: It could not start.
        """
        self._running.listening = (lambda: listening(self.url)) if listening is not None else None
        try:
            self._running.run(sockets=[self._socket])
        except SystemExit:  # uvicorn's way to say that the application did not start
            raise IoFailed("The server could not start", next="See what is on stderr") from None
        finally:
            self._socket.close()
            self._server.notices.close()
            self._calls.close(self._limits.stop_seconds)

    def stop(self) -> None:
        """Have it end. From any thread; `run` returns once requests are finished."""
        self._running.should_exit = True

    def close(self) -> None:
        """Give the address back without having run."""
        self._socket.close()
        self._calls.close(0)

    async def _end_notices(self) -> None:
        await anyio.to_thread.run_sync(self._server.notices.close)

    def _config(self) -> uvicorn.Config:
        """What leaves nothing to uvicorn's defaults, which are made for a server behind a proxy."""
        limits = self._limits
        return uvicorn.Config(
            self._gate,
            loop="asyncio",
            http=guarded(limits),
            ws="none",
            lifespan="on",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=limits.idle_seconds,  # type: ignore[arg-type]  # fractions are fine
            timeout_graceful_shutdown=limits.stop_seconds,
            h11_max_incomplete_event_size=limits.head_bytes,
        )


class _Uvicorn(uvicorn.Server):
    """uvicorn, which says when it listens, ends the streams before it waits, and returns after a signal.

    Its own handlers raise the signal again at the end: SIGTERM would end the process with the store still open. And
    they are looked up by the library of the event streams, which then cuts off answers that were begun.
    """

    def __init__(self, config: uvicorn.Config, gate: Gate, ending: Callable[[], Any]) -> None:
        super().__init__(config)
        self._gate, self._ending = gate, ending
        self.listening: Callable[[], None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and self.listening is not None:
            self.listening()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._gate.close()
        await self._ending()
        await super().shutdown(sockets)
        if self.force_exit:  # which leaves this out
            await self.lifespan.shutdown()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def end(number: int, _: object) -> None:
            # Who presses Ctrl-C again does not want to wait; a supervisor may well send SIGTERM twice.
            self.force_exit = self.force_exit or (self.should_exit and number == signal.SIGINT)
            self.should_exit = True

        before = {one: signal.signal(one, end) for one in _SIGNALS}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _told(url: str) -> None:
    sys.stderr.write(json.dumps({"listening": url, "mcp": url + MCP_PATH}) + "\n")
    sys.stderr.flush()


def _bound(host: str, port: int) -> socket.socket:
    """A socket at a loopback address. It does not listen yet."""
    family = _ADDRESSES.get(host)
    if family is None:
        raise InvalidInput(
            "A server is bound to 127.0.0.1 or ::1 only",
            why="A name may lead elsewhere, and at any other address other machines could reach the memory",
            next="Leave --host out, or give one of these two",
        )
    if not isinstance(port, int) or isinstance(port, bool) or not 0 <= port <= 65535:
        raise InvalidInput("A port is a whole number from 0 to 65535", next="0 is any free one")
    # By the number of the protocol asyncio knows whose small packets are not to be held back: 40 ms an answer.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        elif hasattr(socket, "SO_EXCLUSIVEADDRUSE"):  # else another program could take the address over
            made.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
    except OSError as error:
        made.close()
        taken = error.errno == errno.EADDRINUSE
        raise IoFailed(
            f"{host} port {port} can't be bound",
            why="Another program listens there" if taken else str(error.strerror),
            next="Give another --port; 0 is any free one",
        ) from error
    return made
