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
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, BinaryIO, Final

import anyio
from mcp.server.stdio import stdio_server
from mcp.types import INVALID_REQUEST, PARSE_ERROR, JSONRPCNotification, jsonrpc_message_adapter

from agentmem.adapters.mcp.server import MemoryServer

__all__ = ["LINE_BYTES", "run_stdio"]

LINE_BYTES: Final = 4 * 1024 * 1024
"""A line from the client is so long at most, in bytes of UTF-8."""

_PART: Final = 65536  # read or written at once, in bytes
_DEPTH: Final = 200  # of objects and lists within each other in one line
_EDGE: Final = 4096  # bytes at the beginning and the end of a line that can't be read: where its id is looked for
_AHEAD: Final = 256  # lines taken in while the client leaves answers unread; the rest waits with the client
_UNREAD_SECONDS: Final = 5.0  # after the last line, without a byte being read: then nobody reads any more
_LAST_SECONDS: Final = 1.0  # for the line that is being written when a signal comes
_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
_VALUE: Final = rb'\s*:\s*(-?[0-9]{1,18}|"[^"\\]{1,200}")\s*'
_ID: Final = re.compile(_VALUE + rb"[,}]")
_LAST_ID: Final = re.compile(rb',\s*"id"' + _VALUE + rb"\}\s*\Z")


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
    """The way out: whole lines, one at a time.

    They are written on a thread of its own, for which the process does not wait when it ends: a client may stop reading.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._turn = anyio.Lock()
        self._lines: queue.SimpleQueue[tuple[bytes, Callable[[], object]]] = queue.SimpleQueue()
        self._writing: anyio.Event | None = None
        self._ahead = 0
        self._moved = time.monotonic()
        self._unread = False
        threading.Thread(target=self._run, name="agentmem-stdout", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write a line. Where the client is gone it goes nowhere: its stdin will end too."""
        async with self._turn:
            if self._unread:
                return
            loop = asyncio.get_running_loop()
            self._writing = written = anyio.Event()
            self._lines.put((text.encode("utf-8", "surrogatepass"), lambda: loop.call_soon_threadsafe(self._written)))
            try:
                await written.wait()
            except asyncio.CancelledError:
                with anyio.move_on_after(_LAST_SECONDS, shield=True):
                    await written.wait()
                raise

    async def flush(self) -> None:
        """Nothing is held back."""

    async def room(self) -> None:
        """Wait with the next line while the client does not read what the last ones asked for."""
        self._ahead += 1
        while self._writing is not None and self._ahead > _AHEAD:
            await self._writing.wait()

    def end(self) -> None:
        """No line will come: give up on a client that does not read either."""
        left = self._moved + _UNREAD_SECONDS - time.monotonic()
        if self._writing is None or left > 0:
            asyncio.get_running_loop().call_later(max(left, 0.1), self.end)
        else:
            self._unread = True
            self._written()

    def _written(self) -> None:
        writing, self._writing = self._writing, None
        self._ahead = max(0, self._ahead - 1)
        if writing is not None:
            writing.set()

    def _run(self) -> None:
        while True:
            line, written = self._lines.get()
            rest = memoryview(line)
            self._moved = time.monotonic()
            with contextlib.suppress(OSError):
                while rest:
                    rest = rest[self._stream.write(rest[:_PART]) or 0 :]
                    self._moved = time.monotonic()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                written()

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
                await self._writer.room()
                yield line.decode("utf-8")
            else:
                await self._writer.refuse(*wrong)
        self._writer.end()

    def _run(self, loop: asyncio.AbstractEventLoop, waiting: asyncio.Queue[_Line | None]) -> None:
        """Read on, one line ahead of what is asked for."""
        line: _Line | None = _Line()
        # The loop is closed, or what was put is cancelled, when the server ends before its client does.
        with contextlib.suppress(RuntimeError, concurrent.futures.CancelledError):
            while line is not None:
                line = self._lines.next()
                asyncio.run_coroutine_threadsafe(waiting.put(line), loop).result()


class _Line(bytes):
    """A line; `cut` says that it was too long: then this is its beginning, and `ending` the last of it."""

    cut = False
    ending = b""


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
                beginning = beginning or bytes(self._waiting[:_EDGE])
                del self._waiting[:-_EDGE]
            searched = len(self._waiting)
            if self._ended or not self._more():
                return self._last(beginning)

    def _more(self) -> bool:
        try:
            part = self._stream.read(_PART)
        except OSError:
            part = b""
        self._ended = not part
        self._waiting += part or b""
        return not self._ended

    def _taken(self, end: int, beginning: bytes) -> _Line:
        line = _Line(beginning or bytes(self._waiting[:end]))
        line.cut = bool(beginning) or end > LINE_BYTES
        line.ending = bytes(self._waiting[max(0, end - _EDGE) : end])
        del self._waiting[: end + 1]
        return line

    def _last(self, beginning: bytes) -> _Line | None:
        if not self._waiting and not beginning:
            return None
        return self._taken(len(self._waiting), beginning)


def _wrong(line: _Line) -> tuple[int, str, Any] | None:
    """Why a line is no message: the code and words of the error, and the id it is about, if that can be told."""
    if line.cut:
        return INVALID_REQUEST, f"A line has {LINE_BYTES} bytes at most: send less at once", _id_of(line)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        return PARSE_ERROR, f"The line is not UTF-8 at byte {error.start + 1}", _id_of(line)
    if _depth(text) > _DEPTH:
        return INVALID_REQUEST, f"Objects and lists within each other are {_DEPTH} deep at most", _id_of(line)
    try:
        message = jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError:
        return _unread(line)
    if isinstance(message, JSONRPCNotification) and '"id"' in text and "id" in json.loads(text):
        # Taken for a notification, it would stay without the answer that is waited for.
        return INVALID_REQUEST, "The id of a request is a text or a whole number", None
    return None


def _unread(line: _Line) -> tuple[int, str, Any]:
    try:
        found = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return PARSE_ERROR, "The line is no JSON", _id_of(line)
    if isinstance(found, list):
        return INVALID_REQUEST, "Batches are not part of the protocol: send each message in a line of its own", None
    named = found.get("id") if isinstance(found, dict) else None
    known = isinstance(named, (int, str)) and not isinstance(named, bool)
    return INVALID_REQUEST, "The line is no JSON-RPC 2.0 message", named if known else None


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


def _id_of(line: _Line) -> Any:
    """The id of a request that can't be read as a whole: at the beginning or the end of its line, and of no object in it."""
    depth = 0
    for token in _TOKEN.finditer(line[:_EDGE]):
        if token[0] in (b"{", b"["):
            depth += 1
        elif token[0] in (b"}", b"]"):
            depth -= 1
        elif depth == 1 and token[0] == b'"id"' and (found := _ID.match(line, token.end())):
            return json.loads(found[1])
    last = _LAST_ID.search(line.ending)
    return None if last is None else json.loads(last[1])
