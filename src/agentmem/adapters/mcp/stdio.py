"""MCP over stdin and stdout: nothing but protocol on the wire, every line bounded.

The SDK drops a line that it can't read, and the client waits for its answer for ever. Here such a line gets an error,
with its id where that can be told, and the server lives on.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import os
import re
import signal
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, BinaryIO, Final

import anyio
import anyio.to_thread
from mcp.server.stdio import stdio_server
from mcp.types import INVALID_REQUEST, PARSE_ERROR, jsonrpc_message_adapter

from agentmem.adapters.mcp.server import MemoryServer

__all__ = ["LINE_BYTES", "run_stdio"]

LINE_BYTES: Final = 4 * 1024 * 1024
"""A line from the client is so long at most, in bytes of UTF-8."""

_DEPTH: Final = 200  # of objects and lists within each other in one line
_BEGINNING: Final = 4096  # of a line that is too long: where its id is looked for
_ID: Final = re.compile(rb'"id"\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,200}")\s*[,}]')


def run_stdio(server: MemoryServer) -> None:
    """Serve until stdin ends, or SIGTERM or SIGINT comes. A call that was begun is finished."""
    with _wire() as (incoming, outgoing):
        anyio.run(_serve, server, incoming, outgoing)


@contextlib.contextmanager
def _wire() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """The wire on descriptors of its own, for which nothing else in this process, nor a child of it, has a name.

    Descriptor 0 reads nothing from here on, and 1 goes to stderr; so does `sys.stdout`, whose buffer would otherwise be
    written out onto the wire at exit. They stay so: what is printed on the way out is no protocol either.
    """
    sys.stdout.flush()
    incoming = os.fdopen(_duplicate(0), "rb", buffering=0)
    outgoing = os.fdopen(_duplicate(1), "wb", buffering=0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    yield incoming, outgoing


def _duplicate(descriptor: int) -> int:
    """A copy of a descriptor above the standard ones, which no child inherits."""
    if sys.platform == "win32":
        import msvcrt

        copy = os.dup(descriptor)
        msvcrt.setmode(copy, os.O_BINARY)
        return copy
    import fcntl

    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)


async def _serve(server: MemoryServer, incoming: BinaryIO, outgoing: BinaryIO) -> None:
    writer = _Writer(outgoing)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(_until_signal, group.cancel_scope)
            # The SDK asks of a stream what these have: lines in, write and flush out.
            async with stdio_server(_Reader(incoming, writer), writer) as (read, write):  # type: ignore[arg-type]
                low = server._lowlevel_server  # which its own run_stdio_async uses
                await low.run(read, write, low.create_initialization_options())
            group.cancel_scope.cancel()
    finally:
        server.notices.close()


async def _until_signal(scope: anyio.CancelScope) -> None:
    if sys.platform == "win32":
        return  # where the event loop has no signals: Ctrl-C ends the process
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async for _ in signals:
            scope.cancel()
            return


class _Writer:
    """The way out: whole lines, one at a time."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._turn = anyio.Lock()

    async def write(self, text: str) -> None:
        """Write a line. Where the client is gone it goes nowhere: its stdin will end too."""
        async with self._turn:
            await anyio.to_thread.run_sync(self._written, text.encode("utf-8", "surrogatepass"))

    async def flush(self) -> None:
        """Nothing is held back."""

    def _written(self, line: bytes) -> None:
        rest = memoryview(line)
        with contextlib.suppress(BrokenPipeError):
            while rest:
                rest = rest[self._stream.write(rest) or 0 :]

    async def refuse(self, code: int, message: str, found: Any) -> None:
        """Answer a line that is no message."""
        error = {"jsonrpc": "2.0", "id": found, "error": {"code": code, "message": message}}
        await self.write(json.dumps(error) + "\n")


class _Reader:
    """The way in: lines that are messages; all others are answered here.

    They are read on a thread of its own, for which the process does not wait when it ends: a read of stdin ends when the
    client wants it to.
    """

    def __init__(self, stream: BinaryIO, writer: _Writer) -> None:
        self._lines = _Lines(stream)
        self._writer = writer

    async def __aiter__(self) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[_Line | None] = asyncio.Queue(maxsize=1)
        threading.Thread(target=self._run, args=(loop, waiting), name="agentmem-stdin", daemon=True).start()
        while (line := await waiting.get()) is not None:
            if not line.strip() and not line.cut:
                continue
            wrong = _wrong(line)
            if wrong is None:
                yield line.decode("utf-8")
            else:
                await self._writer.refuse(*wrong)

    def _run(self, loop: asyncio.AbstractEventLoop, waiting: asyncio.Queue[_Line | None]) -> None:
        """Read on, one line ahead of what is asked for."""
        line: _Line | None = _Line()
        # The loop is closed, or what was put is cancelled, when the server ends before its client does.
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
            while line is not None:
                line = self._lines.next()
                asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()


class _Line(bytes):
    """A line; `cut` says that it was too long, and this is its beginning."""

    cut = False


class _Lines:
    """The lines of a stream, of which one that is too long is not kept."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._waiting = bytearray()
        self._ended = False

    def next(self) -> _Line | None:
        """The next line without its end, None after the last."""
        searched, beginning = 0, b""
        while True:
            end = self._waiting.find(b"\n", searched)
            if end >= 0:
                return self._taken(end, beginning)
            if len(self._waiting) > LINE_BYTES:
                beginning = beginning or bytes(self._waiting[:_BEGINNING])
                self._waiting.clear()
            searched = len(self._waiting)
            if self._ended or not self._more():
                return self._last(beginning)

    def _more(self) -> bool:
        try:
            part = self._stream.read(65536)
        except OSError:
            part = b""
        self._ended = not part
        self._waiting += part or b""
        return not self._ended

    def _taken(self, end: int, beginning: bytes) -> _Line:
        line = _Line(beginning or bytes(self._waiting[:end]))
        line.cut = bool(beginning) or end > LINE_BYTES
        del self._waiting[: end + 1]
        return line

    def _last(self, beginning: bytes) -> _Line | None:
        if not self._waiting and not beginning:
            return None
        return self._taken(len(self._waiting), beginning)


def _wrong(line: _Line) -> tuple[int, str, Any] | None:
    """Why a line is no message: the code and words of the error, and the id it is about, if that can be told."""
    if line.cut:
        return INVALID_REQUEST, f"A line has {LINE_BYTES} bytes at most: send less at once", _id_of(line[:_BEGINNING])
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return PARSE_ERROR, f"The line is not UTF-8 at byte {error.start + 1}", _id_of(line[:_BEGINNING])
    if _depth(text) > _DEPTH:
        return (
            INVALID_REQUEST,
            f"Objects and lists within each other are {_DEPTH} deep at most",
            _id_of(line[:_BEGINNING]),
        )
    try:
        jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return _unread(text)
    return None


def _unread(text: str) -> tuple[int, str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return PARSE_ERROR, "The line is no JSON", None
    if isinstance(found, list):
        return INVALID_REQUEST, "Batches are not part of the protocol: send each message in a line of its own", None
    named = found.get("id") if isinstance(found, dict) else None
    return INVALID_REQUEST, "The line is no JSON-RPC 2.0 message", named if isinstance(named, (int, str)) else None


def _depth(text: str) -> int:
    """How deep objects and lists lie in each other, counted from above: brackets in texts count too."""
    if text.count("{") + text.count("[") <= _DEPTH:
        return 0
    deepest = depth = 0
    inside = escaped = False
    for character in text:
        if inside:
            inside = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character == '"':
            inside = True
        elif character in "{[":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "}]":
            depth -= 1
    return deepest


def _id_of(beginning: bytes) -> Any:
    """The id of a request, read off the beginning of a line that can't be read as a whole."""
    found = _ID.search(beginning)
    return None if found is None else json.loads(found[1])
