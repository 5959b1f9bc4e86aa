"""The command `serve --http` as a process, and real clients of it: two of MCP in both eras, and plain HTTP."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agentmem import Store
from agentmem.adapters.http.server import HttpServer
from agentmem.adapters.mcp.server import build
from agentmem.tools import Toolbox

KEY = bytes(range(32))
TOKEN = "0123456789abcdefghijklmnopqrstuv"
ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


class Running:
    """A server process over one store."""

    def __init__(self, path: Path, *more: str, **environment: str) -> None:
        given = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
        source = str(Path(__file__).parents[2] / "src")
        given |= {"HOME": str(path), "PYTHONPATH": source, "AGENTMEM_KEY": "hex:" + KEY.hex(), **environment}
        self.file = path / "http.token"
        command = ["-m", "agentmem", "serve", "--http", "--db", str(path / "work.db"), "--project", "acme"]
        arguments = [*command, "--port", "0", *(more or ("--token-file", str(self.file)))]
        self.process = subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=given
        )
        assert self.process.stderr is not None
        self.said = b""
        for line in self.process.stderr:
            self.said += line
            if line.startswith(b"{"):
                break
        self.url = str(json.loads(line)["listening"]) if line.startswith(b"{") else ""

    @property
    def token(self) -> str:
        return self.file.read_text().strip() if self.file.exists() else TOKEN

    def ask(self, path: str, arguments: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        data = None if arguments is None else json.dumps(arguments).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def end(self, by: int = signal.SIGTERM) -> tuple[int, bytes]:
        """How it ended, and all that it said."""
        if self.process.poll() is None:
            self.process.send_signal(by)
        out, rest = self.process.communicate(timeout=60)
        assert out == b""
        return self.process.returncode, self.said + rest

    @contextlib.asynccontextmanager
    async def client(self, era: str) -> AsyncIterator[Any]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(self.url + "/mcp", http_client=http)
            async with Client(transport, mode=era) as client:  # type: ignore[arg-type]
                with anyio.fail_after(60):
                    yield client


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts server processes."""
    started: list[Running] = []

    def begin(*more: str, **environment: str) -> Running:
        started.append(Running(tmp_path, *more, **environment))
        return started[-1]

    yield begin
    for one in started:
        if one.process.returncode is None:
            one.end(signal.SIGKILL)


@pytest.fixture
def running(run: Callable[..., Running]) -> Running:
    return run()


@ERAS
def test_the_sdk_client_works_in_both_eras(running: Running, era: str) -> None:
    """Tools, resources and prompts, with the token in a header."""

    async def main() -> None:
        async with running.client(era) as client:
            assert len((await client.list_tools()).tools) == 14
            made = await client.call_tool("note", {"notes": [{"kind": "goal", "title": "检查 example.com"}]})
            assert made.content[0].text == "#2"
            assert (await client.call_tool("get", {"refs": ["99"]})).is_error
            assert "检查 example.com" in (await client.read_resource("agentmem://resume/acme")).contents[0].text
            assert "检查 example.com" in (await client.get_prompt("start", {})).messages[0].content.text

    anyio.run(main)
    assert running.end()[0] == 0


def test_a_client_of_another_make_works(running: Running) -> None:
    """fastmcp's."""
    fastmcp = pytest.importorskip("fastmcp")

    async def main() -> None:
        async with fastmcp.Client(running.url + "/mcp", auth=running.token) as client:
            assert len(await client.list_tools()) == 14
            made = await client.call_tool("note", {"notes": [{"kind": "fact", "title": "It works"}]})
            assert made.content[0].text == "#2"

    anyio.run(main)
    assert running.end()[0] == 0


def test_a_client_without_the_token_gets_nowhere(running: Running) -> None:
    """And the server goes on."""

    async def main() -> None:
        async with Client(running.url + "/mcp") as client:
            await client.list_tools()

    with pytest.raises(Exception):  # noqa: B017  # whatever the SDK makes of 401
        anyio.run(main)
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(running.url + "/health", timeout=60)
    assert refused.value.code == 401
    refused.value.close()
    assert running.ask("/health")["status"] == "ok"


def test_listeners_of_2026_hear_of_changes_by_others(running: Running) -> None:
    """What a plain request writes reaches the stream of an MCP client, and the server ends with the stream open."""
    heard: list[str] = []

    async def main() -> None:
        running.ask("/v1/tools/note", {"notes": [{"kind": "goal", "title": "First"}]})
        async with running.client("2026-07-28") as client:
            changes = client.listen(resource_subscriptions=["agentmem://record/2"])
            async with changes as events, anyio.create_task_group() as group:

                async def change() -> None:
                    for number in range(100):  # the first look only finds where the log ends
                        arguments = {"refs": ["2"], "set": {"title": f"Title {number}"}}
                        await anyio.to_thread.run_sync(running.ask, "/v1/tools/update", arguments)
                        await anyio.sleep(0.1)

                group.start_soon(change)
                async for event in events:
                    heard.append(str(event.uri))
                    break
                group.cancel_scope.cancel()
                running.process.send_signal(signal.SIGTERM)
                with (
                    anyio.CancelScope(shield=True),
                    contextlib.suppress(Exception),
                ):  # whichever way the SDK tells of it
                    async for _ in events:
                        pass

    with contextlib.suppress(Exception):  # a client says good-bye to a server that is gone
        anyio.run(main)
    assert heard == ["agentmem://record/2"]
    code, said = running.end()
    assert code == 0
    assert b"Traceback" not in said


def test_several_clients_and_servers_work_on_one_file(run: Callable[..., Running]) -> None:
    """Two servers, MCP clients of both eras and plain threads: nothing is lost."""
    first, second = run(), run()
    failed: list[BaseException] = []

    def plain(server: Running, name: str) -> None:
        try:
            for number in range(10):
                server.ask("/v1/tools/note", {"notes": [{"kind": "fact", "title": f"{name} {number}"}]})
        except BaseException as error:  # noqa: BLE001
            failed.append(error)

    async def speak(server: Running, era: str) -> None:
        async with server.client(era) as client:
            for number in range(10):
                made = await client.call_tool("note", {"notes": [{"kind": "fact", "title": f"{era} {number}"}]})
                assert not made.is_error

    async def main() -> None:
        async with anyio.create_task_group() as group:
            for server in (first, second):
                for era in ("legacy", "2026-07-28"):
                    group.start_soon(speak, server, era)

    threads = [threading.Thread(target=plain, args=(server, f"plain {n}")) for n, server in enumerate((first, second))]
    for thread in threads:
        thread.start()
    anyio.run(main)
    for thread in threads:
        thread.join()
    assert not failed
    assert first.end()[0] == second.end()[0] == 0
    with Store.open(first.file.parent / "work.db", project="acme", key=KEY) as store:
        assert len(store.notes.list(kind="fact", limit=100)) == 60
        assert store.verify(replay=True)


@pytest.mark.skipif(os.name != "posix", reason="signals as they are sent here are of POSIX")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_the_token_was_never_said(running: Running, by: int) -> None:
    """With code 0, the store closed and the address alone on stderr; nothing on stdout."""
    running.ask("/v1/tools/note", {"notes": [{"kind": "goal", "title": "First"}]})
    token = running.token
    code, said = running.end(by)
    assert code == 0
    assert token.encode() not in said
    assert b"Traceback" not in said
    assert json.loads(said.splitlines()[-1])["mcp"] == running.url + "/mcp"
    assert not (running.file.parent / "work.db-wal").exists()


@pytest.mark.skipif(os.name != "posix", reason="signals as they are sent here are of POSIX")
@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_that_is_sent_again_does_no_harm(running: Running, by: int) -> None:
    """Nor do several of them."""
    running.ask("/health")
    for _ in range(5):
        running.process.send_signal(by)
    code, said = running.end(by)
    assert code in (0, -by, 130)  # the last may have come when nothing was there to take it
    assert b"Traceback" not in said


def test_the_token_may_come_by_the_environment(run: Callable[..., Running]) -> None:
    """As long as it is long enough."""
    served = run("--tools", "full", AGENTMEM_HTTP_TOKEN=TOKEN)
    names = [tool["name"] for tool in served.ask("/v1/tools")["tools"]]
    assert "forget" in names
    short = run("--tools", "full", AGENTMEM_HTTP_TOKEN=TOKEN[:-1])
    code, said = short.end()
    assert code == 2
    assert b"32" in said
    assert TOKEN[:-1].encode() not in said


@pytest.mark.parametrize("way", ["plain", "legacy", "2026-07-28"])
def test_a_request_that_was_begun_is_answered_before_the_end(tmp_path: Path, way: str) -> None:
    """By plain HTTP and by both eras of MCP: asked to stop, the server finishes what it has."""
    begun, go, listening = threading.Event(), threading.Event(), threading.Event()
    answers: list[str] = []

    def slow() -> Store:
        begun.set()
        assert go.wait(30)
        return Store.open(tmp_path / "work.db", project="acme", key=KEY)

    toolbox = Toolbox(slow)
    served = HttpServer(toolbox, build(toolbox), port=0, token=TOKEN)
    thread = threading.Thread(target=served.run, args=(lambda _: listening.set(),))
    thread.start()
    assert listening.wait(30)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}

    async def spoken() -> None:
        async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
            transport = streamable_http_client(served.url + "/mcp", http_client=http, terminate_on_close=False)
            async with Client(transport, mode=way) as client:  # type: ignore[arg-type]
                result = await client.call_tool("note", {"notes": [{"kind": "goal", "title": "Last"}]})
                answers.append(result.content[0].text)  # type: ignore[union-attr]

    def plain() -> None:
        body = json.dumps({"notes": [{"kind": "goal", "title": "Last"}]}).encode()
        request = urllib.request.Request(served.url + "/v1/tools/note", body, headers)
        with urllib.request.urlopen(request, timeout=60) as answer:
            answers.append(json.load(answer)["text"])

    def asked() -> None:
        with contextlib.suppress(Exception):  # what a client says after its answer may fail: the server is gone
            plain() if way == "plain" else anyio.run(spoken)

    asking = threading.Thread(target=asked)
    asking.start()
    assert begun.wait(30)
    served.stop()
    go.set()
    thread.join(60)
    asking.join(60)
    assert not thread.is_alive()
    assert answers == ["#2"]
    toolbox.close()


def test_attacks_leave_nothing_on_stderr(running: Running) -> None:
    """Neither what they sent nor a word for each of them: who can send can't fill a log."""
    port = int(running.url.rpartition(":")[2])
    good = f"Host: 127.0.0.1:{port}\r\nAuthorization: Bearer {running.token}\r\n".encode()
    posted = (
        good + b"Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\nConnection: close\r\n"
    )
    secret = b"a-word-of-the-attacker"
    bodies = (b"", b"{", b"[" * 50_000, b'{"x": "' + secret + b'"}', b'{"jsonrpc": "2.0", "id": 1, "method": "' + secret + b'"}',
              b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "note", "arguments": {"notes": "'
              + secret + b'"}}}', b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": "\\ud800"}')  # fmt: skip
    upgrade = (
        b"Upgrade: websocket\r\nConnection: upgrade\r\n"
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    attacks = [secret, b"GET / HTTP/1.1\r\n\r\n", b"GET /mcp HTTP/1.1\r\n" + good + upgrade]
    for target in (b"/mcp", b"/v1/tools/note", b"/v1/tools/" + secret):
        for version in (b"2025-11-25", b"2026-07-28", secret):
            for body in bodies:
                length = b"Content-Length: %d\r\nMCP-Protocol-Version: %s\r\n\r\n" % (len(body), version)
                attacks.append(b"POST " + target + b" HTTP/1.1\r\n" + posted + length + body)
    for attack in attacks:
        with socket.create_connection(("127.0.0.1", port), timeout=60) as wire, contextlib.suppress(ConnectionError):
            wire.sendall(attack)
            wire.shutdown(socket.SHUT_WR) if b"HTTP" not in attack else None
            answer = wire.recv(65536)
            assert not answer or not answer.startswith((b"HTTP/1.1 5", b"HTTP/1.1 101"))
    assert running.ask("/health")["status"] == "ok"
    code, said = running.end()
    assert code == 0
    assert said.count(b"\n") == 3, said  # the store was made, its key, the address
