"""The http tool: where requests go, what they carry, and what comes back."""

from __future__ import annotations

import datetime
import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import AgentMemError, Conflict, InvalidInput, ToolFailed, ToolTimeout
from agentmem.harness.grants import Credential
from agentmem.harness.http import http_tool
from agentmem.harness.toolset import Call, Tool
from agentmem.harness.vault import Secret

pytestmark = pytest.mark.timeout(120)

SECRET = "sk_live_51H8xWq"


def granted(value: str = SECRET, scope: dict[str, Any] | None = None) -> Credential:
    """A grant that nobody revealed yet and that lasts."""
    return Credential("stripe", Secret(value), scope=scope or {}, expires_at=2**62)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers by what the server was told to, and keeps what it was asked."""

    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        self.server.seen.append((self.command, self.path, list(self.headers.items()), self.rfile.read(length)))  # type: ignore[attr-defined]
        self.server.answers[self.path.partition("?")[0]](self)  # type: ignore[attr-defined]

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = answer  # noqa: N815

    def log_message(self, *_: Any) -> None: ...


def reply(body: bytes = b"", status: int = 200, **headers: str) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.send_response(status)
        for name, value in ({"Content_Length": str(len(body))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        if handler.command != "HEAD":
            handler.wfile.write(body)

    return answer


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None: ...


def serving(context: ssl.SSLContext | None = None) -> Any:
    server: Any = Server(("127.0.0.1", 0), Handler)
    server.seen, server.answers = [], {}
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    server.thread.start()
    return server


def ended(server: Any) -> None:
    server.shutdown()
    server.thread.join()
    server.server_close()


@pytest.fixture
def server() -> Iterator[Any]:
    server = serving()
    yield server
    ended(server)


def made(server: Any = None, **options: Any) -> Tool:
    hosts = ["api.example.com"] if server is None else [f"127.0.0.1:{server.server_port}"]
    return http_tool(**{"hosts": hosts, **options})


def called(tool: Tool, url: str, *, grant: Credential | None = None, seconds: float | None = None, **input: Any) -> str:
    given_ = tool.validated({"url": url, **input})
    return tool.run(Call(tool.name, given_, 1, 2, "key-2", credential=grant, seconds=seconds or tool.seconds))


def at(server: Any, path: str = "/") -> str:
    return f"http://127.0.0.1:{server.server_port}{path}"


def test_the_answer_is_status_headers_and_body(server: Any) -> None:
    """Only headers that say something to a model; others are not told."""
    server.answers["/a"] = reply("grüße".encode(), Content_Type="text/plain", X_Internal="no", ETag='"1"')
    assert called(made(server), at(server, "/a?b=ü c".replace(" ", "%20"))) == (
        'HTTP 200 OK\nContent-Type: text/plain\nETag: "1"\n\ngrüße'
    )
    assert server.seen[0][1] == "/a?b=%C3%BC%20c"
    server.answers["/b"] = reply(b"gone", 404)
    assert called(made(server), at(server, "/b")) == "HTTP 404 Not Found\n\ngone"


def test_bodies_are_sent(server: Any) -> None:
    """JSON, or text of a type that the model names; not both."""
    server.answers["/a"] = reply()
    tool = made(server, methods=["POST", "GET"])
    called(tool, at(server, "/a"), method="POST", json={"x": ["ü"]})
    called(tool, at(server, "/a"), method="POST", body="a,b", headers={"content-type": "text/csv"})
    (_, _, first, body), (_, _, second, text) = server.seen
    assert json.loads(body) == {"x": ["ü"]}
    assert dict(first)["Content-Type"] == "application/json"
    assert text == b"a,b"
    assert [value for name, value in second if name == "Content-Type"] == ["text/csv"]
    with pytest.raises(InvalidInput, match="both body and json"):
        called(tool, at(server, "/a"), body="", json=None)
    with pytest.raises(InvalidInput, match="2 bytes, 1 at most"):
        called(made(server, methods=["POST"], request_bytes=1), at(server, "/a"), body="xx")


def test_the_credential_is_attached_once_and_shown_to_nobody(server: Any) -> None:
    """The server gets it in the header; the schema, the description and the result know nothing of it."""
    server.answers["/a"] = reply(b"ok")
    tool = made(server, credential="stripe", header="X-Api-Key", scheme="Key ")
    grant = granted()
    said = called(tool, at(server, "/a"), grant=grant)
    with pytest.raises(Conflict, match="used already"):
        grant.reveal()
    assert ("X-Api-Key", f"Key {SECRET}") in server.seen[0][2]
    assert SECRET not in said + repr(tool) + json.dumps(tool.schema)
    with pytest.raises(ToolFailed, match="no credential"):
        called(tool, at(server, "/a"))


@pytest.mark.parametrize("value", [f"{SECRET}\r\nX-Evil: 1", f"{SECRET}\n", f"ä{SECRET}", f"{SECRET}\x7f"])
def test_a_credential_that_would_break_a_header_is_refused_without_being_told(server: Any, value: str) -> None:
    """No exception, no chained one and no frame of the traceback holds it."""
    with pytest.raises(ToolFailed) as raised:
        called(made(server, credential="stripe"), at(server, "/a"), grant=granted(value))
    assert server.seen == []
    assert knows(raised.value) == []


def test_a_request_that_fails_does_not_tell_the_credential() -> None:
    """Nobody listens: the error's traceback has no frame that knows it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    tool = http_tool(hosts=[f"127.0.0.1:{port}"], credential="stripe")
    with pytest.raises(ToolFailed) as raised:
        called(tool, f"http://127.0.0.1:{port}/", grant=granted())
    assert knows(raised.value) == []


def knows(error: BaseException) -> list[str]:
    """The places of an error where the secret can be found, its tracebacks and what it was raised from with it."""
    found: list[str] = []
    each: BaseException | None = error
    while each is not None:
        if SECRET in f"{each}{each!r}{each.args}{vars(each)}":
            found.append(repr(each))
        step = each.__traceback__
        while step is not None:
            if step.tb_frame.f_code.co_filename != __file__ and any(
                SECRET in repr(value) for value in step.tb_frame.f_locals.values()
            ):
                found.append(f"{step.tb_frame.f_code.co_name}:{step.tb_lineno}")
            step = step.tb_next
        each = each.__cause__ or each.__context__
    return found


@pytest.mark.parametrize(
    "url",
    [
        "http://0x7f000001:{}/", "http://2130706433:{}/", "http://127.1:{}/", "http://0177.0.0.1:{}/", "http://localhost:{}/",
        "http://[::1]:{}/", "http://[::ffff:127.0.0.1]:{}/", "http://127.0.0.2:{}/", "http://0.0.0.0:{}/", "http://127.0.0.1./",
        "http://127.0.0.1:0{}/x@", "https://127.0.0.1:1{}/",
    ],
)  # fmt: skip
def test_other_spellings_of_a_listed_address_are_refused(server: Any, url: str) -> None:
    """An address is listed in one form, and asked for in it."""
    with pytest.raises(AgentMemError):
        called(made(server), url.format(server.server_port))
    assert server.seen == []


PATHS = ["/v1/charges", "/v1/refunds/"]


@pytest.mark.parametrize(
    ("path", "good"),
    [
        ("/v1/charges", True), ("/v1/charges/ch_1", True), ("/v1/charges?limit=3", True), ("/v1/charges/a%2Fb", True),
        ("/v1/refunds/x", True), ("/v1/chargesx", False), ("/v1", False), ("/", False), ("", False), ("/V1/charges", False),
        ("/v1/charges/../customers", False), ("/v1/charges/%2e%2e/customers", False), ("/v1/charges/..%2fcustomers", False),
        ("/v1/charges/%252e%252e/customers", False), ("/v1/charges/..;/customers", False), ("/v1/charges/..%5ccustomers", False),
        ("/v1/charges/./x", False), ("//v1/charges", False), ("/v1//charges", False), ("/%76%31/charges", False),
        ("/v1/customers?/v1/charges", False), ("/v1/customers#/v1/charges", False), ("/v1/charges;x/../../y", False),
        ("/v1/charges/%25252525252e%25252525252e/x", False),
    ],
)  # fmt: skip
def test_the_paths_of_the_scope_bind(server: Any, path: str, good: bool) -> None:
    """Those and what is beneath them, by every way to spell a step up."""
    server.answers = dict.fromkeys(["/v1/charges", "/v1/charges/ch_1", "/v1/charges/a%2Fb", "/v1/refunds/x"], reply())
    tool = made(server, credential="stripe", scope={"paths": PATHS})
    if good:
        assert called(tool, at(server, path), grant=granted()).startswith("HTTP 200")
    else:
        grant = granted()
        with pytest.raises(InvalidInput):
            called(tool, at(server, path), grant=grant)
        assert grant.reveal() == SECRET
        assert server.seen == []


def test_the_scope_of_the_grant_binds_too(server: Any) -> None:
    """It may be closer than the tool's."""
    server.answers["/a"] = server.answers["/b"] = reply()
    tool = made(server, credential="stripe", methods=["GET", "POST"])
    grant = granted(scope={"paths": ["/a"], "methods": ["GET"]})
    called(tool, at(server, "/a"), grant=grant)
    for wrong in ({"url": at(server, "/b")}, {"url": at(server, "/a"), "method": "POST"}):
        with pytest.raises(InvalidInput):
            called(tool, grant=granted(scope=dict(grant.scope)), **wrong)
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    "headers",
    [
        {"Accept": "a\r\nX-Evil: 1"}, {"Accept": "a\n"}, {"Accept": "ä"}, {"Accept": " a"}, {"Accept\r\nX: 1": "a"},
        {"Host": "evil.example"}, {"Authorization": "x"}, {"Cookie": "x"}, {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"}, {"X-HTTP-Method-Override": "DELETE"}, {"X-Forwarded-Host": "x"},
        {"accept": "a", "Accept": "b"},
    ],
)  # fmt: skip
def test_headers_of_the_model_are_of_a_closed_set(server: Any, headers: dict[str, str]) -> None:
    """None that frames the request, names its receiver, carries a secret, or breaks out of its line."""
    with pytest.raises(InvalidInput):
        called(made(server), at(server), headers=headers)
    assert server.seen == []


def test_fixed_headers_and_the_key_are_sent(server: Any) -> None:
    """They take the place of the model's; with the key the tool is idempotent."""
    server.answers["/a"] = reply()
    tool = made(
        server, methods=["POST"], headers={"accept": "fixed/type", "Stripe-Version": "1"}, key_header="Idempotency-Key"
    )
    called(tool, at(server, "/a"), headers={"Accept": "other/type"})
    sent = server.seen[0][2]
    assert [value for name, value in sent if name.lower() == "accept"] == ["fixed/type"]
    assert {("Stripe-Version", "1"), ("Idempotency-Key", "key-2"), ("Host", at(server, "")[7:])} <= set(sent)
    assert tool.idempotent
    assert made(server).idempotent
    assert not made(server, methods=["GET", "POST"]).idempotent


def test_a_redirect_stays_at_its_host_and_in_its_scope(server: Any) -> None:
    """It is followed with the credential there, and is the result elsewhere: the other host gets nothing."""
    other = serving()
    try:
        other.answers["/x"] = reply(b"stolen")
        server.answers |= {
            "/v1/a": reply(b"", 302, Location="/v1/b"),
            "/v1/b": reply(b"there"),
            "/v1/out": reply(b"", 302, Location=f"http://127.0.0.1:{other.server_port}/x"),
            "/v1/rel": reply(b"", 302, Location=f"//127.0.0.1:{other.server_port}/x"),
            "/v1/up": reply(b"", 302, Location="../v2/admin"),
            "/v1/dots": reply(b"", 302, Location="/v1/%2e%2e/v2/admin"),
            "/v1/tls": reply(b"", 302, Location=f"https://127.0.0.1:{server.server_port}/v1/b"),
            "/v1/file": reply(b"", 302, Location="file:///etc/passwd"),
            "/v1/loop": reply(b"", 302, Location="/v1/loop"),
        }
        hosts = [f"127.0.0.1:{each.server_port}" for each in (server, other)]
        tool = http_tool(hosts=hosts, credential="stripe", scope={"paths": ["/v1"]}, methods=["GET", "POST"])
        open_ = http_tool(hosts=hosts, credential="stripe")
        assert called(tool, at(server, "/v1/a"), grant=granted()).endswith("there")
        assert [("Authorization", f"Bearer {SECRET}") in seen[2] for seen in server.seen] == [True, True]
        for path in ("out", "rel", "up", "dots", "tls", "file", "loop"):
            assert called(tool, at(server, f"/v1/{path}"), grant=granted()).startswith("HTTP 302 Found\nLocation: ")
        for path in ("out", "rel"):
            assert called(open_, at(server, f"/v1/{path}"), grant=granted()).startswith("HTTP 302")
        assert called(tool, at(server, "/v1/a"), grant=granted(), method="POST").startswith("HTTP 302")
        assert other.seen == []
        assert not any(seen[1].startswith("/v2") for seen in server.seen)
        assert len([seen for seen in server.seen if seen[1] == "/v1/loop"]) == 5
    finally:
        ended(other)


def test_a_long_answer_is_cut_at_its_end(server: Any) -> None:
    """And says so before; what has no length is bounded too."""

    def endless(handler: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        try:
            while True:
                handler.wfile.write(b"x" * 65536)
        except OSError:
            handler.close_connection = True

    def broken_off(handler: Any) -> None:
        reply(b"ab", Content_Length="5")(handler)
        handler.close_connection = True

    server.answers |= {"/long": reply(b"a" * 5000), "/endless": endless, "/short": broken_off}
    tool = made(server, response_bytes=1000)
    assert called(tool, at(server, "/long")) == f"HTTP 200 OK\n[the first 1000 bytes of the body]\n\n{'a' * 1000}"
    assert called(tool, at(server, "/endless")).endswith("x" * 1000)
    assert "[the first 2 bytes of the body]" in called(tool, at(server, "/short"))


def test_what_is_no_text_is_named(server: Any) -> None:
    """Binary and compressed bodies are counted, not shown; other charsets are read."""
    server.answers |= {
        "/png": reply(b"\x89PNG\0\0", Content_Type="image/png"),
        "/zip": reply(b"\x1f\x8b", Content_Encoding="gzip"),
        "/latin": reply(b"\xe4", Content_Type="text/plain; charset=ISO-8859-1"),
        "/odd": reply(b"a\xff", Content_Type="text/plain; charset=rot13"),
        "/head": reply(b"abc"),
    }
    tool = made(server, methods=["GET", "HEAD"])
    assert called(tool, at(server, "/png")).endswith("[6 bytes that are no text]")
    assert called(tool, at(server, "/zip")).endswith("[2 bytes, 'gzip']")
    assert called(tool, at(server, "/latin")).endswith("ä")
    assert called(tool, at(server, "/odd")).endswith("a\ufffd")
    assert called(tool, at(server, "/head"), method="HEAD") == "HTTP 200 OK"


@pytest.mark.parametrize("part", ["nothing", "status", "header", "body"])
def test_a_slow_server_is_left_in_time(part: str) -> None:
    """One that sends a byte now and then, wherever it does: the time is that of the call, not of a byte."""
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            sock, _ = listening.accept()
            with sock:
                sock.recv(9999)
                head = {"status": b"HTTP/1.1", "header": b"HTTP/1.1 200 OK\r\nX: ", "body": b"HTTP/1.1 200 OK\r\n\r\n"}
                try:
                    sock.sendall(head.get(part, b""))
                    while not over.wait(0.02):
                        if part != "nothing":
                            sock.sendall(b"x")
                except OSError:
                    return

        thread = threading.Thread(target=drip)
        thread.start()
        port = listening.getsockname()[1]
        begun = time.monotonic()
        with pytest.raises(ToolTimeout):
            called(http_tool(hosts=[f"127.0.0.1:{port}"]), f"http://127.0.0.1:{port}/", seconds=0.3)
        assert time.monotonic() - begun < 30
        over.set()
        thread.join()


def test_a_call_that_is_cancelled_ends(server: Any) -> None:
    """Where it waits for the answer."""
    over, call = threading.Event(), Call("http", {"url": at(server, "/wait")}, 1, 2, "k")

    def wait(handler: Any) -> None:
        call.cancelled.set()
        over.wait(60)
        reply()(handler)

    server.answers["/wait"] = wait
    with pytest.raises(ToolFailed, match="was stopped"):
        made(server).run(call)
    over.set()


OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("said", [b"", b"nonsense\r\n\r\n", OK + b"A: b\r\n" * 500, OK + b"A: " + b"x" * 99_999])
def test_a_server_that_does_not_speak_http_is_a_typed_failure(said: bytes) -> None:
    """Whatever it sends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def speak() -> None:
            sock, _ = listening.accept()
            with sock:
                sock.recv(9999)
                try:
                    sock.sendall(said)
                except OSError:
                    return

        thread = threading.Thread(target=speak)
        thread.start()
        port = listening.getsockname()[1]
        with pytest.raises(ToolFailed):
            called(http_tool(hosts=[f"127.0.0.1:{port}"]), f"http://127.0.0.1:{port}/")
        thread.join()


def test_proxies_of_the_environment_are_not_used(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would see the credential."""
    server.answers["/a"] = reply(b"direct")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert called(made(server), at(server, "/a")).endswith("direct")


def certificate(directory: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Contexts of a server that shows a certificate of a name, and of a client that trusts just it."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made_ = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - datetime.timedelta(1)).not_valid_after(now + datetime.timedelta(1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    pem = directory / "both.pem"
    pem.write_bytes(
        made_.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    shown = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    shown.load_cert_chain(pem)
    return shown, ssl.create_default_context(cafile=str(pem))


def test_a_connection_goes_to_the_address_that_was_checked(resolver: Callable[..., list[str]], tmp_path: Path) -> None:
    """The name is resolved once: by the second look it could lead elsewhere. The certificate is that of the name."""
    shown, trusting = certificate(tmp_path, "api.example.com")
    server = serving(shown)
    server.answers["/a"] = reply(b"private")
    try:
        asked = resolver("127.0.0.1")
        options: dict[str, Any] = {"hosts": [f"api.example.com:{server.server_port}"], "networks": ["127.0.0.0/8"]}
        url = f"https://api.example.com:{server.server_port}/a"
        grant = granted()
        assert called(http_tool(**options, tls=trusting, credential="c"), url, grant=grant).endswith("private")
        assert asked == ["api.example.com"]
        assert ("Host", f"api.example.com:{server.server_port}") in server.seen[0][2]
        with pytest.raises(ToolFailed, match="certificate is not good") as raised:
            called(http_tool(**options, credential="c"), url, grant=granted())
        assert knows(raised.value) == []
        other = http_tool(hosts=[f"other.example.com:{server.server_port}"], networks=["127.0.0.0/8"], tls=trusting)
        with pytest.raises(ToolFailed, match="certificate is not good"):
            called(other, f"https://other.example.com:{server.server_port}/a")
        assert len(server.seen) == 1
    finally:
        ended(server)


def test_a_server_that_does_not_finish_its_handshake_is_left_in_time() -> None:
    """The watch holds where TLS begins, too."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(ToolTimeout):
            called(http_tool(hosts=[f"127.0.0.1:{port}"]), f"https://127.0.0.1:{port}/", seconds=0.3)
