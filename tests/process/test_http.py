"""A real server on a real port, and what comes over raw sockets: each attack is refused, and the server lives on."""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

from agentmem import Store
from agentmem.adapters.http.limits import Limits
from agentmem.adapters.http.server import HttpServer, serve
from agentmem.adapters.mcp.server import build
from agentmem.errors import InvalidInput, IoFailed, StoreMissing
from agentmem.tools import Toolbox

TOKEN = "0123456789abcdefghijklmnopqrstuv"
KEY = bytes(range(32))
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}  # fmt: skip


class Served:
    """A server on a thread, and raw connections to it."""

    def __init__(self, store: Store, **limits: Any) -> None:
        self.toolbox = Toolbox(store)
        self.server = HttpServer(self.toolbox, build(self.toolbox), port=0, token=TOKEN, limits=Limits(**limits))
        self.port = int(self.server.url.rpartition(":")[2])
        listening = threading.Event()
        self.thread = threading.Thread(target=self.server.run, args=(lambda _: listening.set(),))
        self.thread.start()
        assert listening.wait(30)

    def end(self) -> None:
        self.server.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def head(self, target: str = "/health", method: str = "GET", *more: str, version: str = "1.1") -> bytes:
        lines = [f"{method} {target} HTTP/{version}", f"Host: 127.0.0.1:{self.port}", f"Authorization: Bearer {TOKEN}"]
        return "\r\n".join([*lines, *more, "", ""]).encode()

    def raw(self, data: bytes) -> bytes:
        """Send bytes, and read until the server closes; the connection is closed by the server or after a request to."""
        with self.connect() as wire, contextlib.suppress(ConnectionResetError, BrokenPipeError):
            wire.sendall(data)
            return rest(wire)
        return b""

    def ask(self, target: str = "/health", method: str = "GET", *more: str) -> bytes:
        return self.raw(self.head(target, method, *more, "Connection: close"))

    def post(self, target: str, body: bytes, *more: str) -> bytes:
        kind, length = "Content-Type: application/json", f"Content-Length: {len(body)}"
        return self.raw(self.head(target, "POST", kind, length, *more, "Connection: close") + body)

    def lives(self) -> bool:
        return status(self.ask()) == 200


def rest(wire: socket.socket) -> bytes:
    """What comes until the other side closes."""
    found = bytearray()
    with contextlib.suppress(ConnectionResetError):
        while part := wire.recv(65536):
            found += part
    return bytes(found)


def status(answer: bytes) -> int:
    """The status of an answer, 0 where there is none."""
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


def code(answer: bytes) -> str:
    """The code in the error of an answer."""
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"])


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Starts servers over one store."""
    started: list[Served] = []
    with Store.open(tmp_path / "work.db", project="acme", key=KEY, durability="normal") as store:

        def begin(**limits: Any) -> Served:
            started.append(Served(store, **limits))
            return started[-1]

        yield begin
        for one in started:
            one.end()


@pytest.fixture
def served(start: Callable[..., Served]) -> Served:
    return start()


def test_a_request_is_answered_without_a_name_of_the_software(served: Served) -> None:
    """No Server and no Date header."""
    answer = served.ask()
    assert status(answer) == 200
    head = answer.partition(b"\r\n\r\n")[0].lower()
    assert b"server:" not in head
    assert b"date:" not in head
    assert b"uvicorn" not in head


def test_small_answers_are_not_held_back(served: Served) -> None:
    """An answer of two packets would else wait for the client's word on the first: 40 ms each."""
    with served.connect() as wire:
        wire.sendall(served.head())
        assert status(wire.recv(65536)) == 200
        (connection,) = served.server._running.server_state.connections
        inside = connection.transport.get_extra_info("socket")
        assert inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("target", ["/health", "/v1/tools", "/mcp", "/", "/.well-known/oauth-protected-resource/mcp"])
def test_a_foreign_host_or_origin_is_refused_by_every_route(served: Served, target: str) -> None:
    """As DNS rebinding sends it."""
    evil = served.head(target).replace(b"Host: 127.0.0.1", b"Host: evil.example")
    assert code(served.raw(evil)) == "wrong_host"
    assert code(served.ask(target, "GET", "Origin: http://evil.example")) == "wrong_origin"
    assert code(served.ask(target, "OPTIONS", "Origin: null", "Access-Control-Request-Method: POST")) == "wrong_origin"
    bare = served.head(target).replace(b"Authorization", b"X-Nothing")
    assert code(served.raw(bare)) == "unauthorized"
    assert served.lives()


def test_names_that_lead_here_are_not_trusted(served: Served) -> None:
    """Of proxies: this server has none before it."""
    assert status(served.ask("/health", "GET", "X-Forwarded-Host: evil.example", "X-Forwarded-For: 10.0.0.1")) == 200
    evil = served.head().replace(b"Host: 127.0.0.1", b"X-Forwarded-Host: 127.0.0.1")
    assert status(served.raw(evil)) == 400


@pytest.mark.parametrize(
    ("data", "refused"),
    [
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nHost: evil.example\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\n\r\n", {400}),
        (b"GET /health HTTP/1.0\r\n\r\n", {421}),
        (b"GET http://evil.example/health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\n\r\n", {421}),
        (b"CONNECT evil.example:80 HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET //mcp HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET /mcp/../v1/tools HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET /mcp/%2e%2e/v1/tools HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET /health\r\n\r\n", {400}),
        (b"GET /health HTTP/9.9\r\nHost: 127.0.0.1:PORT\r\nAuthorization: Bearer TOKEN\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX : y\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX: a\x00b\r\n\r\n", {400}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n Authorization: Bearer TOKEN\r\n\r\n", {400, 421}),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100 + b"\r\n\r\n", {400}),
        (b"\r\n\r\n\r\n\r\n" + b"\x00" * 20_000, {400, 431}),
        (b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\n", {431}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n" + b"X: " + b"y" * 500_000, {431}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\n" + b"X: y\r\n" * 2_000 + b"\r\n", {431}),
        (b"GET /health HTTP/1.1\r\nHost: 127.0.0.1:PORT\r\nX: " + b"y" * 60_000 + b"\r\n\r\n", {431}),
    ],
)  # fmt: skip
def test_what_is_no_proper_request_is_refused(served: Served, data: bytes, refused: set[int]) -> None:
    """Two hosts, other forms of a target, other versions, header bombs, TLS: refused, closed, and answered in JSON."""
    data = data.replace(b"PORT", str(served.port).encode()).replace(b"TOKEN", TOKEN.encode())
    answer = served.raw(data)
    assert status(answer) in refused
    assert code(answer)
    assert b"connection: close" in answer.lower()
    assert served.lives()


@pytest.mark.parametrize(
    "framing",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Content-Length: 4, 5\r\n",
        b"Content-Length: +4\r\n",
        b"Transfer-Encoding: identity, chunked\r\n",
        b"Transfer-Encoding: xchunked\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
    ],
)
def test_a_request_cannot_be_smuggled_in_a_body(served: Served, framing: bytes) -> None:
    """Whatever its length is said to be: one refusal comes back, and the connection is closed."""
    hidden = served.head("/v1/tools")
    head = served.head("/v1/tools/resume", "POST", "Content-Type: application/json")[:-2] + framing + b"\r\n"
    answer = served.raw(head + b"0\r\n\r\n" + hidden)
    assert status(answer) in (400, 501)
    assert len(re.findall(rb"HTTP/1\.1 [0-9]{3} ", answer)) == 1
    assert b"input_schema" not in answer
    assert served.lives()


def test_requests_one_behind_the_other_are_each_checked(served: Served) -> None:
    """A pipeline is served in order; what is refused in it ends it."""
    good, bad = served.head(), served.head().replace(b"Bearer", b"Basic")
    answer = served.raw(good + good + bad + good)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] == [b"200", b"200", b"401"]
    assert served.lives()


def test_http_1_0_is_served_and_closed(served: Served) -> None:
    """With its Host and token, as by any other."""
    assert status(served.raw(served.head(version="1.0"))) == 200


@pytest.mark.parametrize(("trickle", "answered"), [(b"", 0), (b"GET /health HT", 408), (b"\r\n", 400)])
def test_headers_that_do_not_come_are_not_waited_for(
    start: Callable[..., Served], trickle: bytes, answered: int
) -> None:
    """Nothing, half a line, or an empty one: the connection ends, with an answer where something was said."""
    served = start(head_seconds=0.2)
    with served.connect() as wire:
        wire.sendall(trickle)
        answer = rest(wire)
    assert status(answer) == answered
    assert served.lives()


def test_headers_that_come_byte_by_byte_do_not_stop_the_clock(start: Callable[..., Served]) -> None:
    """The time counts from the first byte to the last; also for the second request of a connection."""
    served = start(head_seconds=0.5)
    for before in (b"", served.head()):
        with served.connect() as wire:
            wire.sendall(before)
            if before:
                assert status(wire.recv(65536)) == 200
            sent = 0
            for byte in served.head(*[f"/{'a' * 4000}"]):
                wire.sendall(bytes([byte]))
                sent += 1
                if select.select([wire], [], [], 0.01)[0]:
                    break
            assert code(rest(wire)) == "head_too_slow"
            assert sent < 4000
    assert served.lives()


def test_an_idle_connection_ends_and_a_long_stream_does_not(start: Callable[..., Served]) -> None:
    """Between requests there is a time; the stream of an MCP client has none."""
    served = start(head_seconds=0.3, idle_seconds=0.3, answer_seconds=0.3, body_seconds=0.3, write_seconds=0.3)
    body = json.dumps(INITIALIZE).encode()
    accept = "Accept: application/json, text/event-stream"
    opened = served.post("/mcp", body, accept)
    assert status(opened) == 200
    session = next(line for line in opened.decode().split("\r\n") if line.lower().startswith("mcp-session-id"))
    with served.connect() as stream, served.connect() as idle:
        stream.sendall(served.head("/mcp", "GET", accept, session, "MCP-Protocol-Version: 2025-11-25"))
        assert status(stream.recv(65536)) == 200
        idle.sendall(served.head())
        assert status(rest(idle)) == 200  # and then it is closed
        idle_again = served.raw(served.head())
        assert status(idle_again) == 200
        assert not select.select([stream], [], [], 0.6)[0]
        served.server.stop()
        assert b"0\r\n\r\n" in rest(stream)  # ended in good form


def test_a_body_that_does_not_come_is_not_waited_for(start: Callable[..., Served]) -> None:
    """Also where less comes than was declared."""
    served = start(body_seconds=0.2)
    head = served.head("/v1/tools/resume", "POST", "Content-Type: application/json", "Content-Length: 10")
    answer = served.raw(head + b"{}")
    assert (status(answer), code(answer)) == (408, "body_too_slow")
    chunked = served.head("/v1/tools/resume", "POST", "Content-Type: application/json", "Transfer-Encoding: chunked")
    assert code(served.raw(chunked + b"2\r\n{}\r\n")) == "body_too_slow"
    assert served.lives()


def test_a_body_that_is_too_large_is_refused_and_the_answer_arrives(served: Served) -> None:
    """Declared, in chunks without end, and in chunks that are no chunks; by each route that takes one."""
    big = b"x" * (3 * 1024 * 1024)
    for target in ("/v1/tools/note", "/mcp"):
        assert code(served.post(target, big)) == "body_too_large"
        head = served.head(target, "POST", "Content-Type: application/json", "Transfer-Encoding: chunked")
        chunks = (b"%x\r\n" % 65536 + b"x" * 65536 + b"\r\n") * 48
        assert code(served.raw(head + chunks)) == "body_too_large"
        assert status(served.raw(head + b"zz\r\nxx\r\n")) == 400
        assert status(served.raw(head + b"ffffffffffffffffffffff\r\nx")) == 400
    assert served.lives()


def test_more_is_sent_than_was_declared(served: Served) -> None:
    """The rest is another request, which it is not."""
    head = served.head("/v1/tools/resume", "POST", "Content-Type: application/json", "Content-Length: 2")
    answer = served.raw(head + b"{}" + b"x" * 20_000)
    assert [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]] in ([b"200", b"400"], [b"200", b"431"])
    assert served.lives()


def test_a_client_that_does_not_read_is_dropped(start: Callable[..., Served]) -> None:
    """With an answer larger than all buffers between: it does not hold a connection for ever."""
    served = start(write_seconds=0.3)
    with served.connect() as wire:
        wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        pipeline = served.head("/v1/tools") * 2_000  # their answers are some ten megabytes
        with contextlib.suppress(ConnectionError, TimeoutError):
            wire.sendall(pipeline)
        deadline = time.monotonic() + 30
        while served.server._running.server_state.connections and time.monotonic() < deadline:
            select.select([], [], [], 0.02)
        assert not served.server._running.server_state.connections
    assert served.lives()


def test_two_hundred_connections_at_once_do_not_end_it(start: Callable[..., Served]) -> None:
    """So many are taken as the limit says; the others are told so and closed, and then it is as before."""
    served = start(connections=50)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(served.connect()) for _ in range(200)]
        for wire in wires:
            with contextlib.suppress(ConnectionError):
                wire.sendall(served.head())
        answers = [wire.recv(65536) if select.select([wire], [], [], 30)[0] else b"" for wire in wires]
    statuses = [status(answer) for answer in answers]
    assert statuses.count(200) == 50
    assert statuses.count(503) == 150
    assert {code(answer) for answer in answers if status(answer) == 503} == {"too_many_connections"}
    deadline = time.monotonic() + 30
    while not served.lives() and time.monotonic() < deadline:
        pass
    assert served.lives()


def test_the_rate_holds_for_all_connections_together(start: Callable[..., Served]) -> None:
    """429 with the time to wait."""
    served = start(rate=0.01, burst=3)
    answers = [served.ask() for _ in range(4)]
    assert [status(answer) for answer in answers] == [200, 200, 200, 429]
    assert b"retry-after: 100" in answers[3].lower()


def test_sessions_are_so_many_at_once(start: Callable[..., Served]) -> None:
    """A client more is told so; the others go on."""
    served = start(sessions=2)
    body = json.dumps(INITIALIZE).encode()
    accept = "Accept: application/json, text/event-stream"
    assert [status(served.post("/mcp", body, accept)) for _ in range(3)] == [200, 200, 503]
    assert served.lives()


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"[" * 100_000, b'{"a":' * 50_000, b"\xff", b'{"jsonrpc": "2.0"}', b'{"jsonrpc": "2.0", "id": NaN}',
     b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "\\ud800"}}'],
)  # fmt: skip
@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28", "1999-01-01"])
def test_mcp_takes_no_harm_from_what_is_no_message(served: Served, body: bytes, version: str) -> None:
    """In either era, and of a version that there is not."""
    accept = "Accept: application/json, text/event-stream"
    answer = served.post("/mcp", body, accept, f"MCP-Protocol-Version: {version}")
    assert 400 <= status(answer) < 500
    assert served.lives()


@pytest.mark.parametrize(
    "host", ["localhost", "0.0.0.0", "::", "", "127.0.0.2", "10.0.0.1", "127.1", "example.com", "[::1]"]
)
def test_a_server_is_bound_to_a_literal_loopback_address_only(tmp_path: Path, host: str) -> None:
    """Names may lead elsewhere."""
    toolbox = Toolbox(lambda: Store.open(tmp_path / "work.db", key=KEY))
    with pytest.raises(InvalidInput, match="is bound to"):
        serve(toolbox, build(toolbox), host=host, port=0, token=TOKEN)


def test_a_server_that_cannot_open_its_store_does_not_begin(tmp_path: Path) -> None:
    """What is wrong with the store is raised, and the address is free again."""
    toolbox = Toolbox(lambda: Store.open(tmp_path / "missing" / "work.db", key=KEY, create=False))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for _ in range(2):
        with pytest.raises(StoreMissing):
            serve(toolbox, build(toolbox), port=port, token=TOKEN)


def test_a_port_that_is_taken_is_said_to_be(served: Served) -> None:
    """And ports that there are not; and a token that is none."""
    for port, kind in ((served.port, IoFailed), (65536, InvalidInput), (-1, InvalidInput)):
        with pytest.raises(kind):
            HttpServer(served.toolbox, build(served.toolbox), port=port, token=TOKEN)
    with pytest.raises(InvalidInput, match="no token"):
        HttpServer(served.toolbox, build(served.toolbox), port=0, token="short")


def test_it_is_there_by_ipv6_where_it_is_bound_to_that(tmp_path: Path) -> None:
    """And by that alone: under its own name, and not under that of the other address."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("This machine has no IPv6 loopback")
    toolbox = Toolbox(lambda: Store.open(tmp_path / "work.db", key=KEY))
    server = HttpServer(toolbox, build(toolbox), host="::1", port=0, token=TOKEN)
    port = int(server.url.rpartition(":")[2])
    assert server.url == f"http://[::1]:{port}"
    listening = threading.Event()
    thread = threading.Thread(target=server.run, args=(lambda _: listening.set(),))
    thread.start()
    assert listening.wait(30)
    answers = []
    for host in ("[::1]", "localhost", "127.0.0.1"):
        with socket.create_connection(("::1", port), timeout=30) as wire:
            wire.sendall(
                f"GET /health HTTP/1.0\r\nHost: {host}:{port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
            )
            answers.append(status(rest(wire)))
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
    server.stop()
    thread.join(60)
    assert answers == [200, 200, 421]
