"""The gate before every route: who may ask, how often and how much."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio

from agentmem.adapters.http.gate import Gate, own_hosts
from agentmem.adapters.http.limits import Limits
from agentmem.errors import InvalidInput

TOKEN = "0123456789abcdefghijklmnopqrstuv"
HOSTS = own_hosts("127.0.0.1", 8377)
JSON = (b"content-type", b"application/json")
ROUTES = (
    "/health",
    "/v1/tools",
    "/v1/tools/note",
    "/mcp",
    "/nothing",
    "/",
    "/.well-known/oauth-protected-resource/mcp",
)
METHODS = ("GET", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "PATCH", "TRACE", "CONNECT", "BREW")


class Behind:
    """What is behind the gate: it counts its requests and gives their bodies back."""

    def __init__(self) -> None:
        self.scopes: list[Any] = []

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.scopes.append(scope)
        if scope["type"] != "http":
            return
        body = (await receive())["body"]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})


@pytest.fixture
def behind() -> Behind:
    return Behind()


@pytest.fixture
def gate(behind: Behind) -> Gate:
    return Gate(behind, token=TOKEN, hosts=HOSTS)


def made(behind: Any, **limits: Any) -> Gate:
    return Gate(behind, token=TOKEN, hosts=HOSTS, limits=Limits(**limits))


@pytest.mark.parametrize("host", [b"127.0.0.1:8377", b"localhost:8377", b"LocalHost:8377"])
def test_what_names_the_server_and_has_the_token_comes_through(gate: Gate, ask: Any, host: bytes) -> None:
    """By the address or as localhost, with the port."""
    answer = ask(gate, host=host)
    assert answer.status == 200
    assert not answer.closed
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("path", ROUTES)
@pytest.mark.parametrize("method", METHODS)
def test_a_foreign_host_origin_or_no_token_gets_nowhere_by_any_route(
    gate: Gate, behind: Behind, ask: Any, method: str, path: str
) -> None:
    """Also where there is no route: 421, 403 and 401, checked in this order."""
    evil, foreign = b"evil.example:8377", (b"origin", b"http://evil.example")
    assert ask(gate, method, path, host=evil, token=None, more=[foreign]).status == 421
    assert ask(gate, method, path, host=evil).code == "wrong_host"
    assert ask(gate, method, path, token=None, more=[foreign]).status == 403
    assert ask(gate, method, path, more=[foreign]).code == "wrong_origin"
    refused = ask(gate, method, path, token=None)
    assert (refused.status, refused.code, refused.closed) == (401, "unauthorized", True)
    assert refused.headers["www-authenticate"].startswith("Bearer")
    assert not behind.scopes


@pytest.mark.parametrize(
    "host",
    [
        b"", b"127.0.0.1", b"localhost", b"127.0.0.1:8378", b"127.0.0.1:08377", b"127.0.0.1:8377.", b"localhost.:8377",
        b"127.0.0.1:8377@evil.example", b"evil.example#127.0.0.1:8377", b"127.0.0.1:8377, evil.example", b"[::1]:8377",
        b"0.0.0.0:8377", b"127.1:8377", b"2130706433:8377", b"127.0.0.2:8377", b"127.0.0.1.nip.io:8377", b"http://127.0.0.1:8377",
    ],
)  # fmt: skip
def test_a_host_that_is_nearly_right_is_wrong(gate: Gate, ask: Any, host: bytes) -> None:
    """DNS rebinding comes with the attacker's name, which is not compared by parts."""
    assert ask(gate, host=host).code == "wrong_host"


def test_no_host_or_two_are_wrong(gate: Gate, ask: Any) -> None:
    """Also twice the same."""
    assert ask(gate, host=None, version="1.0").code == "wrong_host"
    assert ask(gate, more=[(b"host", b"127.0.0.1:8377")]).code == "wrong_host"


@pytest.mark.parametrize(
    ("origins", "passes"),
    [
        ([b"http://127.0.0.1:8377"], True),
        ([b"http://localhost:8377"], True),
        ([b"null"], False),
        ([b""], False),
        ([b"https://127.0.0.1:8377"], False),
        ([b"http://127.0.0.1"], False),
        ([b"http://127.0.0.1:8377", b"http://127.0.0.1:8377"], False),
        ([b"http://127.0.0.1:8377/"], False),
        ([b"http://127.0.0.1:8377.evil.example"], False),
    ],
)
def test_an_origin_is_ours_or_absent(gate: Gate, ask: Any, origins: list[bytes], passes: bool) -> None:
    """Of a page in a file, in a frame, of another scheme or port: none."""
    assert (ask(gate, more=[(b"origin", one) for one in origins]).status == 200) is passes


@pytest.mark.parametrize(
    "given",
    [
        b"", b"Bearer", b"Bearer ", TOKEN.encode(), b"Bearer " + TOKEN[:-1].encode(), b"Bearer " + TOKEN.encode() + b"x",
        b"Bearer  " + TOKEN.encode(), b"Basic " + TOKEN.encode(), b"Bearer " + TOKEN.upper().encode(), b"Bearer \xff\xfe",
        b"Bearer " + TOKEN.encode() + b", Bearer " + TOKEN.encode(),
    ],
)  # fmt: skip
def test_a_wrong_token_is_refused_and_not_repeated(gate: Gate, ask: Any, given: bytes) -> None:
    """Short, long, in another scheme, not ASCII; nothing of it is in the answer."""
    answer = ask(gate, token=None, more=[(b"authorization", given)])
    assert answer.code == "unauthorized"
    assert TOKEN.encode() not in answer.body


def test_a_token_counts_once_and_in_its_header_only(gate: Gate, ask: Any) -> None:
    """Not in the query, not in a cookie, not twice."""
    assert ask(gate, token=None, path=f"/health?token={TOKEN}&access_token={TOKEN}").code == "unauthorized"
    assert ask(gate, token=None, more=[(b"cookie", b"token=" + TOKEN.encode())]).code == "unauthorized"
    assert ask(gate, more=[(b"authorization", b"Bearer " + TOKEN.encode())]).code == "unauthorized"
    assert ask(gate, token=None, more=[(b"authorization", b"bearer " + TOKEN.encode())]).status == 200


def test_requests_beyond_the_rate_are_told_when_to_come_back(behind: Behind, ask: Any) -> None:
    """The bucket fills again with time; who has no token does not empty it."""
    now = 0.0
    gate = Gate(behind, token=TOKEN, hosts=HOSTS, limits=Limits(rate=0.5, burst=2), clock=lambda: now)
    for _ in range(5):
        assert ask(gate, token=None).status == 401
    assert [ask(gate).status for _ in range(3)] == [200, 200, 429]
    assert ask(gate).headers["retry-after"] == "2"
    now = 2.0
    assert [ask(gate).status for _ in range(2)] == [200, 429]


@pytest.mark.parametrize(
    "path",
    ["//mcp", "/mcp/../v1/tools", "/./mcp", "/%6dcp", "/v1/tools/%2e%2e", "/mcp%2f", "/mcp%00", "/v1\\tools", "*",
     "http://evil.example/health", "http://127.0.0.1:8377/health", "127.0.0.1:8377", "health", "/mcp;x=1", "/../..", "/."],
)  # fmt: skip
def test_a_path_that_can_be_read_in_two_ways_is_refused(gate: Gate, behind: Behind, ask: Any, path: str) -> None:
    """Absolute targets too, whatever host they name."""
    assert ask(gate, path=path).code == "bad_target"
    assert not behind.scopes


@pytest.mark.parametrize(
    "types",
    [
        [], [b"text/plain"], [b"application/x-www-form-urlencoded"], [b"multipart/form-data; boundary=x"],
        [b"application/json; charset=utf-16"], [b"application/jsonx"], [b"text/plain, application/json"],
        [b"application/json", b"text/plain"],
    ],
)  # fmt: skip
def test_what_a_web_page_can_send_without_asking_is_refused(gate: Gate, ask: Any, types: list[bytes]) -> None:
    """Only JSON is a body, declared once, and not compressed."""
    assert ask(gate, "POST", more=[(b"content-type", one) for one in types], parts=[b"{}"]).status == 415
    assert ask(gate, "POST", more=[JSON, (b"content-encoding", b"gzip")], parts=[b"{}"]).status == 415
    assert ask(gate, "DELETE", more=[(b"content-length", b"2")], parts=[b"{}"]).status == 415
    for fine in (b"application/json", b"Application/JSON; charset=UTF-8"):
        assert ask(gate, "POST", more=[(b"content-type", fine)], parts=[b"{}"]).status == 200


def test_a_body_is_counted_as_it_comes(behind: Behind, ask: Any) -> None:
    """Declared too large, in parts that are too large, or more than was declared: 413, and the app never sees it."""
    gate = made(behind, body_bytes=10)
    declared = ask(gate, "POST", more=[JSON, (b"content-length", b"11")], parts=[b"x" * 11])
    assert (declared.status, declared.closed) == (413, True)
    assert ask(gate, "POST", more=[JSON, (b"transfer-encoding", b"chunked")], parts=[b"x" * 6, b"x" * 5]).status == 413
    assert ask(gate, "POST", more=[JSON, (b"content-length", b"2")], parts=[b"x" * 6, b"x" * 5]).status == 413
    assert not behind.scopes
    assert ask(gate, "POST", more=[JSON], parts=[b"x" * 6, b"x" * 4]).body == b"x" * 10


def test_a_body_that_does_not_arrive_is_not_waited_for(behind: Behind, ask: Any) -> None:
    """408, and the app never sees it."""
    gate = made(behind, body_seconds=0.05)
    assert ask(gate, "POST", more=[JSON, (b"content-length", b"9")], parts=[b"x"], stalls=True).code == "body_too_slow"
    assert not behind.scopes


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")],
        [(b"content-length", b"2"), (b"content-length", b"2")],
        [(b"content-length", b"+2")],
        [(b"content-length", b"0x2")],
        [(b"content-length", b"9" * 40)],
        [(b"transfer-encoding", b"chunked"), (b"transfer-encoding", b"chunked")],
    ],
)
def test_a_length_given_in_two_ways_is_refused(gate: Gate, ask: Any, headers: list[tuple[bytes, bytes]]) -> None:
    """Or in one that is no plain number: two readers would differ over where the next request begins."""
    answer = ask(gate, "POST", more=[JSON, *headers], parts=[b"{}"])
    assert (answer.code, answer.closed) == ("ambiguous_length", True)


def test_headers_are_limited_also_where_they_come_at_once(behind: Behind, ask: Any) -> None:
    """Many small ones and one large one: 431."""
    gate = made(behind, head_bytes=1000, head_lines=20)
    assert ask(gate, more=[(b"x", b"y")] * 30).code == "head_too_large"
    assert ask(gate, more=[(b"x", b"y" * 1000)]).code == "head_too_large"
    assert ask(gate, path="/" + "a" * 1000).code == "head_too_large"
    assert ask(gate).status == 200


def test_a_failure_behind_the_gate_is_an_answer(ask: Any) -> None:
    """500 without its text, and the next request is served."""

    async def failing(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ValueError("a secret")

    answer = ask(made(failing))
    assert (answer.status, answer.code) == (500, "internal")
    assert b"secret" not in answer.body


def test_so_many_are_served_at_once(ask: Any) -> None:
    """Beyond that it is 503; a stream of an MCP client is not counted, and ends when the server does."""
    gate: Gate

    async def main() -> None:
        nonlocal gate
        reached, answers = anyio.Event(), []

        async def waiting(scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            reached.set()
            await anyio.sleep_forever()

        gate = made(waiting, requests=1)

        async def one(*more: tuple[bytes, bytes]) -> None:
            sent: list[Any] = []
            headers = [(b"host", b"127.0.0.1:8377"), (b"authorization", b"Bearer " + TOKEN.encode()), *more]

            async def receive() -> Any:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: Any) -> None:
                sent.append(message)

            answers.append(sent)
            scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": "/mcp", "headers": headers}
            await gate(scope, receive, send)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(one)
                await reached.wait()
                await one()
                assert answers[-1][0]["status"] == 503
                reached = anyio.Event()
                async with anyio.create_task_group() as streams:
                    streams.start_soon(one, (b"accept", b"text/event-stream"))
                    await reached.wait()
                    gate.close()
                assert answers[-1][-1] == {"type": "http.response.body", "body": b"", "more_body": False}
                group.cancel_scope.cancel()

    anyio.run(main)


def test_websockets_are_closed_and_the_lifespan_is_passed_on(gate: Gate, behind: Behind) -> None:
    """A websocket needs no token to be refused."""

    async def main() -> None:
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        await gate({"type": "websocket", "headers": []}, receive, send)
        assert sent == [{"type": "websocket.close", "code": 1008}]
        assert not behind.scopes
        await gate({"type": "lifespan"}, receive, send)
        assert [scope["type"] for scope in behind.scopes] == ["lifespan"]

    anyio.run(main)


def test_own_hosts_follow_the_address() -> None:
    """With the port, which is left out only where it is that of HTTP."""
    assert own_hosts("::1", 8377) == {b"[::1]:8377", b"localhost:8377"}
    assert own_hosts("127.0.0.1", 80) == {b"127.0.0.1:80", b"localhost:80", b"127.0.0.1", b"localhost"}


def test_limits_are_above_zero() -> None:
    """No limit can be switched off by mistake."""
    for wrong in (0, -1, float("inf"), float("nan")):
        with pytest.raises(InvalidInput):
            Limits(body_seconds=wrong)
