"""What is said to a request that is not served: a status, a stable code, and the parts of an error.

Nothing of what was sent is in it: whoever is refused learns only what they know.
"""

from __future__ import annotations

import http
import json
from collections.abc import Mapping
from typing import Any, Final

from attrs import evolve, field, frozen

__all__ = [
    "AMBIGUOUS",
    "BAD_REQUEST",
    "BAD_TARGET",
    "BODY_TOO_LARGE",
    "BODY_TOO_SLOW",
    "CONTENT_TYPE",
    "HEAD_TOO_LARGE",
    "HEAD_TOO_SLOW",
    "INTERNAL",
    "METHOD",
    "NO_ROUTE",
    "OVERLOADED",
    "RATE",
    "TOO_MANY_CONNECTIONS",
    "UNAUTHORIZED",
    "WRONG_HOST",
    "WRONG_ORIGIN",
    "Header",
    "Refusal",
    "json_bytes",
]

Header = tuple[bytes, bytes]


def json_bytes(value: Any) -> bytes:
    """A value as the server sends it."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


@frozen
class Refusal:
    """An answer that refuses.

    Attributes:
        status: The HTTP status.
        code: For programs. It never changes once released.
        what: What is wrong, one sentence.
        why: The reason for the rule, where it is not plain.
        next: What to do.
        headers: Sent besides those that every refusal has.
    """

    status: int
    code: str
    what: str
    why: str = ""
    next: str = ""
    headers: tuple[Header, ...] = field(default=())

    @property
    def error(self) -> Mapping[str, str]:
        """The parts by name, empty ones left out."""
        parts = {"code": self.code, "what": self.what, "why": self.why, "next": self.next}
        return {name: part for name, part in parts.items() if part}

    def body(self) -> bytes:
        """The error as JSON."""
        return json_bytes({"error": self.error})

    def all_headers(self) -> list[Header]:
        """The headers of an answer after which the connection is closed."""
        return [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(self.body())).encode()),
            (b"cache-control", b"no-store"),
            (b"x-content-type-options", b"nosniff"),
            (b"connection", b"close"),
            *self.headers,
        ]

    def raw(self) -> bytes:
        """The whole answer as it goes over the wire, for what is not yet a request."""
        phrase = http.HTTPStatus(self.status).phrase
        lines = [f"HTTP/1.1 {self.status} {phrase}".encode(), *(b": ".join(header) for header in self.all_headers())]
        return b"\r\n".join(lines) + b"\r\n\r\n" + self.body()

    def again_in(self, seconds: int) -> Refusal:
        """The same, saying when to come back."""
        return evolve(self, headers=(*self.headers, (b"retry-after", str(seconds).encode())))


BAD_REQUEST: Final = Refusal(400, "bad_request", "This is no HTTP/1.1 request that can be read")
HEAD_TOO_LARGE: Final = Refusal(431, "head_too_large", "The request line and headers are larger than this server takes")
HEAD_TOO_SLOW: Final = Refusal(408, "head_too_slow", "The request line and headers took too long to arrive")
BAD_TARGET: Final = Refusal(
    400,
    "bad_target",
    "The request target is not a plain path",
    why="A path that can be read in two ways can get past a check of it",
    next="Ask for the path as it is documented, without host, percent signs, empty or dotted parts.",
)
WRONG_HOST: Final = Refusal(
    421,
    "wrong_host",
    "The Host header does not name this server",
    why="A web page can make a browser send requests here under another name",
    next="Use the address that the server printed when it started.",
)
WRONG_ORIGIN: Final = Refusal(
    403,
    "wrong_origin",
    "The request comes from a web page of another origin",
    next="Call the server from a program that sends no Origin header.",
)
UNAUTHORIZED: Final = Refusal(
    401,
    "unauthorized",
    "The request has not the token of this server",
    next="Send the header Authorization: Bearer TOKEN, once. The token is in the file given to --token-file.",
    headers=((b"www-authenticate", b'Bearer realm="agentmem"'),),
)
RATE: Final = Refusal(
    429, "too_many_requests", "There were too many requests in a short time", next="Wait, then repeat."
)
OVERLOADED: Final = Refusal(
    503, "overloaded", "Too many requests are being served at once", next="Wait, then repeat.",
    headers=((b"retry-after", b"1"),),
)  # fmt: skip
TOO_MANY_CONNECTIONS: Final = Refusal(
    503, "too_many_connections", "Too many connections are open", next="Close those that are not used, then repeat.",
    headers=((b"retry-after", b"1"),),
)  # fmt: skip
AMBIGUOUS: Final = Refusal(
    400,
    "ambiguous_length",
    "The length of the body is given in two ways",
    why="Two readers of it may disagree where the next request begins",
    next="Send either one Content-Length or Transfer-Encoding: chunked.",
)
CONTENT_TYPE: Final = Refusal(
    415,
    "unsupported_media_type",
    "The body is not declared as JSON",
    why="A web page can send other types without asking first",
    next="Send Content-Type: application/json, and the body in UTF-8, not compressed.",
)
BODY_TOO_LARGE: Final = Refusal(
    413, "body_too_large", "The body is larger than this server takes", next="Send less at once."
)
BODY_TOO_SLOW: Final = Refusal(408, "body_too_slow", "The body took too long to arrive", next="Repeat the request.")
NO_ROUTE: Final = Refusal(
    404, "no_route", "There is nothing at this path", next="There are /mcp, /v1/tools, /v1/tools/NAME and /health."
)
METHOD: Final = Refusal(405, "method_not_allowed", "This path does not take this method")
INTERNAL: Final = Refusal(
    500, "internal", "The server failed at this request", next="See what it wrote on stderr; other requests go on."
)
