"""One HTTP exchange, bounded in time and size, to an address that was checked.

The value of a credential is in the frames of this module only, and nothing of it is raised from here: problems are
returned, so that no traceback leads through a frame that knows it.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
import time
from collections.abc import Mapping, Sequence

from attrs import frozen

from agentmem.errors import ToolFailed, ToolTimeout
from agentmem.harness.addresses import Address, Target
from agentmem.harness.toolset import LOOK_SECONDS

__all__ = ["Answer", "exchange"]


@frozen
class Answer:
    """A response: `headers` in the order they came, `body` its beginning, `whole` whether that is all of it."""

    status: int
    reason: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool

    def header(self, name: str) -> str | None:
        """The first header of a name, in any case."""
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class _Watch:
    """Ends a socket when the time is over or the call is cancelled: each read has a limit of its own, all of them need one."""

    def __init__(self, deadline: float, cancelled: threading.Event) -> None:
        self._deadline, self._cancelled = deadline, cancelled
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self.fired = False
        self._thread = threading.Thread(target=self._run, name="agentmem-http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(max(0.0, min(LOOK_SECONDS, self._deadline - time.monotonic()))):
            if self._cancelled.is_set() or time.monotonic() >= self._deadline:
                with self._lock:
                    self.fired = True
                    self._shut()
                return

    def watch(self, sock: socket.socket | None) -> None:
        """The socket that counts now. One that is closed must not: its descriptor may be another's by then."""
        with self._lock:
            self._socket = sock
            if self.fired:
                self._shut()

    def _shut(self) -> None:
        if self._socket is not None:
            try:
                # Not the method of a TLS socket, which is for the thread that reads it.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return

    def close(self) -> None:
        """No more watching."""
        self._over.set()
        self._thread.join()


class _Connection(http.client.HTTPConnection):
    """A connection by a given socket, whatever its host's name leads to by now."""

    def __init__(self, place: Target, sock: socket.socket, context: ssl.SSLContext | None, watch: _Watch) -> None:
        super().__init__(place.host, place.port)
        self._place, self._raw, self._context, self._watch = place, sock, context, watch

    def connect(self) -> None:
        """Put TLS around the socket, where it is due."""
        self.sock = self._raw
        if self._context is not None:
            wrapped = self._context.wrap_socket(
                self._raw, server_hostname=self._place.host, do_handshake_on_connect=False
            )
            self.sock = wrapped
            self._watch.watch(wrapped)  # the plain one is no more
            wrapped.do_handshake()


def exchange(
    place: Target,
    addresses: Sequence[Address],
    method: str,
    headers: Mapping[str, str],
    body: bytes | None,
    *,
    context: ssl.SSLContext,
    most: int,
    deadline: float,
    cancelled: threading.Event,
) -> Answer | ToolFailed:
    """Send a request and read the answer.

    Args:
        place: Where it goes.
        addresses: Addresses of the host, tried in order until one takes the connection.
        method: Its method.
        headers: Checked ones; the credential may be among them.
        body: What is sent.
        context: How TLS is done.
        most: The bytes of the body that are kept.
        deadline: By the monotonic clock.
        cancelled: Ends it when set.

    Returns:
        The answer, or what went wrong, to be raised where no frame knows a secret.
    """
    watch = _Watch(deadline, cancelled)
    connection: _Connection | None = None
    sock: socket.socket | None = None
    try:
        sock = _connected(place, addresses, watch, deadline)
        connection = _Connection(place, sock, context if place.scheme == "https" else None, watch)
        connection.putrequest(method, place.asked, skip_host=True, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        with contextlib.closing(connection.getresponse()) as response:
            kept = response.read(most + 1)
            whole = len(kept) <= most and not response.length
            answer = Answer(response.status, response.reason, tuple(response.getheaders()), kept[:most], whole)
        return _late(place, cancelled) if watch.fired else answer
    except (OSError, http.client.HTTPException, ValueError) as error:
        if watch.fired or isinstance(error, TimeoutError):
            return _late(place, cancelled)
        return ToolFailed(f"The request to {place.authority} failed", why=_why(error))
    finally:
        watch.close()
        for each in (connection, sock):
            if each is not None:
                each.close()


def _connected(place: Target, addresses: Sequence[Address], watch: _Watch, deadline: float) -> socket.socket:
    problem: OSError = OSError("no address")
    for address in addresses:
        sock = socket.socket(socket.AF_INET6 if address.version == 6 else socket.AF_INET, socket.SOCK_STREAM)
        try:
            # Its share of the time, so that one that drops packets leaves some for the next.
            left = max(0.001, deadline - time.monotonic())
            sock.settimeout(left if address is addresses[-1] else left / 2)
            watch.watch(sock)
            sock.connect((str(address), place.port))
            sock.settimeout(max(0.001, deadline - time.monotonic()))
        except OSError as error:
            watch.watch(None)
            sock.close()
            problem = error
        else:
            return sock
    raise problem


def _late(place: Target, cancelled: threading.Event) -> ToolFailed:
    if cancelled.is_set():
        return ToolFailed(f"The request to {place.authority} was stopped", why="The call was interrupted")
    return ToolTimeout(f"The request to {place.authority} did not end in time", next="Ask for less, or try again later")


def _why(error: Exception) -> str:
    """An error in words that hold nothing of what was sent."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"Its certificate is not good: {error.verify_message}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return type(error).__name__
