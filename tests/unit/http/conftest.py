"""One request to an ASGI application, sent and received by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from attrs import field, frozen

TOKEN = "0123456789abcdefghijklmnopqrstuv"
HOST = b"127.0.0.1:8377"


@frozen
class Answer:
    """What came back; `closed` says that the connection is to be closed."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent: list[Any] = field(factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return str(self.json["error"]["code"])

    @property
    def closed(self) -> bool:
        return self.headers.get("connection") == "close"


def scope(method: str, path: str, headers: Iterable[tuple[bytes, bytes]], version: str = "1.1") -> dict[str, Any]:
    """The scope of a request as a server of ASGI makes it."""
    raw, _, query = path.encode().partition(b"?")
    return {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": version, "method": method, "scheme": "http",
        "path": raw.decode(), "raw_path": raw, "query_string": query, "root_path": "", "headers": list(headers),
        "server": ("127.0.0.1", 8377), "client": ("127.0.0.1", 50000), "state": {},
    }  # fmt: skip


Headers = Iterable[tuple[bytes, bytes]]


@pytest.fixture
def ask() -> Callable[..., Answer]:
    """Sends a request to an application; by default one that is in order."""

    def asked(
        app: Any,
        method: str = "GET",
        path: str = "/health",
        *,
        host: bytes | None = HOST,
        token: str | None = TOKEN,
        more: Headers = (),
        parts: Iterable[bytes] = (b"",),
        stalls: bool = False,
        version: str = "1.1",
    ) -> Answer:
        import anyio  # of the extra that the server needs

        headers = [(b"host", host)] if host is not None else []
        headers += [(b"authorization", b"Bearer " + token.encode())] if token is not None else []
        coming = list(parts)
        sent: list[Any] = []

        async def receive() -> Any:
            if not coming:
                await anyio.sleep_forever()
            part = coming.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(coming) or stalls}

        async def send(message: Any) -> None:
            sent.append(message)

        async def main() -> None:
            with anyio.fail_after(30):
                await app(scope(method, path, [*headers, *more], version), receive, send)

        anyio.run(main)
        start = sent[0]
        assert start["type"] == "http.response.start"
        body = b"".join(one.get("body", b"") for one in sent[1:])
        assert sent[-1].get("more_body", False) is False
        found = {name.decode(): value.decode() for name, value in start["headers"]}
        return Answer(start["status"], found, body, sent)

    return asked


@pytest.fixture
def post(ask: Callable[..., Answer]) -> Callable[..., Answer]:
    """Posts a body that is declared as JSON."""

    def posted(app: Any, path: str, body: Any, **named: Any) -> Answer:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(data)).encode())]
        return ask(app, "POST", path, more=headers, parts=[data], **named)

    return posted
