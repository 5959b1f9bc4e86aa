"""Connections before they are requests: how many at once, and how long one may take over its headers or over reading.

uvicorn has no such limits of its own: it counts connections only when a request is there, and waits for one for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable
from typing import Any, ClassVar, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from agentmem.adapters.http import refusal
from agentmem.adapters.http.limits import Limits
from agentmem.adapters.http.refusal import Refusal

__all__ = ["GuardedProtocol", "guarded"]

_LINGER_SECONDS: Final = 1.0


def guarded(limits: Limits) -> type[GuardedProtocol]:
    """The protocol of the connections of one server."""

    class Guarded(GuardedProtocol):
        bounds = limits
        lingering: ClassVar[set[GuardedProtocol]] = set()

    return Guarded


class GuardedProtocol(H11Protocol):
    """HTTP/1.1 on one connection, within limits."""

    bounds: ClassVar[Limits]
    lingering: ClassVar[set[GuardedProtocol]]
    """Those that were refused, and are read a moment longer so that the answer is not lost in a reset."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._head_timer: asyncio.TimerHandle | None = None
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin the time for the first headers, or turn away what is too many."""
        super().connection_made(transport)
        if len(self.connections) > self.bounds.connections:
            self._turn_away(refusal.TOO_MANY_CONNECTIONS)
        else:
            self._head_timer = self._later(self.bounds.head_seconds, self._head_late)

    def data_received(self, data: bytes) -> None:
        """Take what came; what a refused client still sends goes nowhere."""
        if self._refused:
            return
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop every clock."""
        self.lingering.discard(self)
        for timer in (self._head_timer, self._write_timer, self._linger_timer):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Begin the time for headers anew where some of the next request are there already."""
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        """Begin the time in which the client has to read on."""
        super().pause_writing()
        if self._write_timer is None:
            self._write_timer = self._later(self.bounds.write_seconds, self.transport.abort)

    def resume_writing(self) -> None:
        """It read."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request, in the form of every other refusal. Called where the error is being handled."""
        hint = getattr(sys.exc_info()[1], "error_status_hint", 400)
        self._turn_away(refusal.HEAD_TOO_LARGE if hint == refusal.HEAD_TOO_LARGE.status else refusal.BAD_REQUEST)

    def _later(self, seconds: float, then: Callable[[], object]) -> asyncio.TimerHandle:
        return self.loop.call_later(seconds, then)

    def _watch_head(self) -> None:
        """Have the clock run while headers are expected of which some are there, and only then."""
        if self._refused or self.transport.is_closing():
            return
        if self.conn.their_state is not h11.IDLE:
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None
        elif self._head_timer is None and self.conn.trailing_data[0]:
            self._head_timer = self._later(self.bounds.head_seconds, self._head_late)

    def _head_late(self) -> None:
        self._head_timer = None
        if self.transport.is_closing():
            return
        if self.conn.trailing_data[0]:
            self._turn_away(refusal.HEAD_TOO_SLOW)
        else:
            self.transport.close()  # it asked nothing, so nothing is answered

    def _turn_away(self, refused: Refusal) -> None:
        """Answer past the state of the connection, which is of no use any more, and close it."""
        self._refused = True
        self._unset_keepalive_if_required()
        self.connections.discard(self)
        cycle = self.cycle
        begun = cycle is not None and cycle.response_started and not cycle.response_complete
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.transport.is_closing():
            return
        if begun:  # an answer is on its way already, and can't become another one
            self.transport.close()
            return
        self.transport.write(refused.raw())
        if len(self.lingering) >= self.bounds.connections:
            self.transport.close()
            return
        self.lingering.add(self)
        self.flow.resume_reading()
        with contextlib.suppress(OSError):  # the client is gone already
            self.transport.write_eof()
        self._linger_timer = self._later(_LINGER_SECONDS, self.transport.abort)
