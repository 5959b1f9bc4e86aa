"""The gate before everything else: who may ask, how often, and how much. A plain ASGI middleware.

It stands before every route, those that are not there included, so that no part of what is behind it needs a check of
its own. The checks go in one order: Host, Origin, token, rate, type, size. What is refused hears nothing of what it sent.
"""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from typing import Any, Final

import anyio

from agentmem.adapters.http import refusal
from agentmem.adapters.http.limits import DEFAULTS, Limits
from agentmem.adapters.http.rate import Bucket
from agentmem.adapters.http.refusal import Header, Refusal

__all__ = ["ASGIApp", "Gate", "Message", "Receive", "Scope", "Send", "own_hosts"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ASGIApp = Callable[[Scope, Receive, Send], Awaitable[None]]

_PATH: Final = re.compile(rb"(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._~-]+)+/?|/")
_JSON: Final = re.compile(rb"application/json(?:[ \t]*;[ \t]*charset=(?:utf-8|\"utf-8\"))?[ \t]*", re.IGNORECASE)
_DIGITS: Final = re.compile(rb"[0-9]{1,18}")
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 8 * 1024 * 1024
_SAFE: Final[tuple[Header, ...]] = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))

_logger = logging.getLogger(__name__)


def own_hosts(address: str, port: int) -> frozenset[bytes]:
    """What the Host header of a request to this server may say.

    Args:
        address: The loopback address that it is bound to.
        port: Its port.
    """
    names = [f"[{address}]" if ":" in address else address, "localhost"]
    named = [f"{name}:{port}" for name in names]
    return frozenset(name.encode() for name in (*named, *(names if port == 80 else ())))


class Gate:
    """Lets through what names this server, brings its token, and keeps to the limits.

    Args:
        app: What is behind.
        token: What each request has to bring.
        hosts: What its Host header may say; with `http://` before it, what its Origin may.
        limits: What the server bears.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Collection[bytes],
        limits: Limits = DEFAULTS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(hosts)
        self._origins = frozenset(b"http://" + host for host in hosts)
        self._limits = limits
        self._bucket = Bucket(limits.rate, limits.burst, clock)
        self._serving = 0
        self._streams: set[anyio.CancelScope] = set()
        self._closing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one scope of ASGI."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            await self._http(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    def close(self) -> None:
        """End the streams that clients keep open, which would not end by themselves. Called on the loop."""
        self._closing = True
        for stream in list(self._streams):
            stream.cancel()

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (refused := self._refused(scope)) is not None:
            await _refuse(refused, send, unread=receive if _is_coming(scope) else None)
            return
        body = await _body(receive, self._limits)
        if body is None:
            return  # the client is gone
        if isinstance(body, Refusal):
            await _refuse(body, send, unread=receive)
            return
        answer = _Answer(send)
        replay = _Replay(body, receive)
        try:
            if _is_stream(scope):
                await self._stream(scope, replay, answer)
            else:
                await self._served(scope, replay, answer)
        except Exception as error:  # noqa: BLE001  # one request that fails is not to be the end of others
            # The type alone: a message may quote a record.
            _logger.error("A request failed: %s", type(error).__name__)
            if not answer.started:
                await _refuse(refusal.INTERNAL, send)

    def _refused(self, scope: Scope) -> Refusal | None:
        """Why a request is refused by its head; None where it is not."""
        headers: list[Header] = list(scope["headers"])
        target = _target(scope)
        if len(headers) > self._limits.head_lines or _head_bytes(headers, target) > self._limits.head_bytes:
            return refusal.HEAD_TOO_LARGE
        if scope["http_version"] not in ("1.0", "1.1"):
            return refusal.BAD_REQUEST
        hosts = _all(headers, b"host")
        if len(hosts) != 1 or hosts[0].lower() not in self._hosts:
            return refusal.WRONG_HOST
        origins = _all(headers, b"origin")
        if origins and (len(origins) > 1 or origins[0].lower() not in self._origins):
            return refusal.WRONG_ORIGIN
        if not self._has_token(headers):
            return refusal.UNAUTHORIZED
        if wait := self._bucket.take():
            return refusal.RATE.again_in(wait)
        if not _PATH.fullmatch(target):
            return refusal.BAD_TARGET
        return _body_refused(scope, headers, self._limits)

    def _has_token(self, headers: list[Header]) -> bool:
        given = _all(headers, b"authorization")
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(b" ")
        return scheme.lower() == b"bearer" and hmac.compare_digest(token, self._token)

    async def _served(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        if self._serving >= self._limits.requests:
            await _refuse(refusal.OVERLOADED, answer)
            return
        self._serving += 1
        try:
            await self._app(scope, receive, answer)
        finally:
            self._serving -= 1

    async def _stream(self, scope: Scope, receive: Receive, answer: _Answer) -> None:
        with anyio.CancelScope() as cancelled:
            self._streams.add(cancelled)
            if self._closing:
                cancelled.cancel()
            try:
                await self._app(scope, receive, answer)
            finally:
                self._streams.discard(cancelled)
        if cancelled.cancelled_caught:
            await answer.end()


class _Answer:
    """The way of an answer, which is watched, and given the headers that all answers have."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.started = self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            known = {name.lower() for name, _ in headers}
            message = {**message, "headers": [*headers, *(header for header in _SAFE if header[0] not in known)]}
            self.started = True
        elif message["type"] == "http.response.body":
            self.complete = not message.get("more_body", False)
        await self._send(message)

    async def end(self) -> None:
        """End an answer that was cut off, in good form."""
        if not self.started:
            await _refuse(refusal.OVERLOADED, self)
        elif not self.complete:
            await self({"type": "http.response.body", "body": b"", "more_body": False})


class _Replay:
    """A body that has been read, then whatever else the client does."""

    def __init__(self, body: bytes, receive: Receive) -> None:
        self._body: bytes | None = body
        self._receive = receive

    async def __call__(self) -> Message:
        if self._body is None:
            return await self._receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


def _all(headers: list[Header], name: bytes) -> list[bytes]:
    return [value for one, value in headers if one.lower() == name]


def _target(scope: Scope) -> bytes:
    """The path as it was sent, before anything in it was decoded."""
    raw = scope.get("raw_path")
    return raw if isinstance(raw, bytes) else str(scope["path"]).encode()


def _head_bytes(headers: list[Header], target: bytes) -> int:
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def _is_stream(scope: Scope) -> bool:
    """Whether a request asks for a stream that stays open: those of either era of MCP do."""
    headers: list[Header] = scope["headers"]
    if scope["method"] == "GET":
        return any(b"text/event-stream" in value for value in _all(headers, b"accept"))
    return b"subscriptions/listen" in _all(headers, b"mcp-method")


def _has_body(headers: list[Header]) -> bool:
    lengths = _all(headers, b"content-length")
    return bool(_all(headers, b"transfer-encoding")) or any(length.strip(b"0") for length in lengths)


def _is_coming(scope: Scope) -> bool:
    """Whether the client sends a body without being told to go on first."""
    headers: list[Header] = scope["headers"]
    return _has_body(headers) and not _all(headers, b"expect")


def _body_refused(scope: Scope, headers: list[Header], limits: Limits) -> Refusal | None:
    """Why a body is refused before it is read."""
    lengths, codings = _all(headers, b"content-length"), _all(headers, b"transfer-encoding")
    if (
        len(lengths) + len(codings) > 1
        or any(not _DIGITS.fullmatch(length) for length in lengths)
        or (codings and scope["http_version"] == "1.0")
    ):
        return refusal.AMBIGUOUS
    if scope["method"] == "POST" or _has_body(headers):
        types = _all(headers, b"content-type")
        if len(types) != 1 or not _JSON.fullmatch(types[0]) or _all(headers, b"content-encoding"):
            return refusal.CONTENT_TYPE
    if lengths and int(lengths[0]) > limits.body_bytes:
        return refusal.BODY_TOO_LARGE
    return None


async def _body(receive: Receive, limits: Limits) -> bytes | Refusal | None:
    """The whole body, why it is refused, or None where the client went away. What was declared is not believed."""
    parts, size = [], 0
    with anyio.move_on_after(limits.body_seconds):
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return None
            part = message.get("body", b"")
            size += len(part)
            if size > limits.body_bytes:
                return refusal.BODY_TOO_LARGE
            parts.append(part)
            if not message.get("more_body", False):
                return b"".join(parts)
    return refusal.BODY_TOO_SLOW


async def _refuse(refused: Refusal, send: Send, *, unread: Receive | None = None) -> None:
    """Answer with a refusal.

    What the client still sends is read for a moment: closed with bytes unread, the connection would be reset, and the
    answer lost with it.

    Args:
        refused: The refusal.
        send: Where it goes.
        unread: Where the rest of the request comes from, if there may be any.
    """
    await send({"type": "http.response.start", "status": refused.status, "headers": refused.all_headers()})
    await send({"type": "http.response.body", "body": refused.body(), "more_body": True})
    if unread is not None:
        with anyio.move_on_after(_LINGER_SECONDS):
            await _drain(unread)
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _drain(receive: Receive) -> None:
    left = _LINGER_BYTES
    while left > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))
