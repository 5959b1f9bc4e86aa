"""The server as a real process on stdio: both eras, hostile lines, prints, signals, kills, several at once."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

mcp = pytest.importorskip("mcp")

from mcp import Client, StdioServerParameters  # noqa: E402

from agentmem import Store  # noqa: E402

KEY = "hex:" + bytes(range(32)).hex()
INITIALIZE = {
    "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"},
}  # fmt: skip


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """What a host gives a server, and where the package is. PYTHONUNBUFFERED is not set, as it hides what is printed late."""
    given = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    source = str(Path(__file__).parents[2] / "src")
    return {**given, "HOME": str(tmp_path), "PYTHONPATH": source, "AGENTMEM_KEY": KEY}


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """The command of the server."""
    return ["-m", "agentmem", "serve", "--db", str(tmp_path / "work.db"), "--project", "acme"]


class Wire:
    """A server process and the raw lines to and from it."""

    def __init__(self, arguments: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        self.complaints = bytearray()
        self._drain = threading.Thread(target=self._drained, daemon=True)
        self._drain.start()
        self._ids = 0

    def _drained(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.complaints += line

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, params: Any = None) -> Any:
        self._ids += 1
        message = {"jsonrpc": "2.0", "id": self._ids, "method": method, "params": {} if params is None else params}
        self.send(json.dumps(message).encode())
        while (found := self.read()).get("id") != self._ids:
            pass
        return found

    def open(self) -> Wire:
        assert self.ask("initialize", INITIALIZE)["result"]["serverInfo"]["name"] == "agentmem"
        self.send(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}')
        return self

    def call(self, name: str, **given: Any) -> str:
        return str(self.ask("tools/call", {"name": name, "arguments": given})["result"]["content"][0]["text"])

    def end(self) -> int:
        """Close stdin, and read that nothing but messages came after."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        for line in self.process.stdout:
            json.loads(line)
        code = self.process.wait(30)
        self._drain.join(30)
        self.process.stdout.close()
        return code


@pytest.fixture
def wire(arguments: list[str], environment: dict[str, str]) -> Iterator[Callable[..., Wire]]:
    """Starts servers; those that still run are killed at the end."""
    started: list[Wire] = []

    def start(*more: str, **variables: str) -> Wire:
        started.append(Wire([*arguments, *more], environment | variables))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
            one.end()
        for stream in (one.process.stdin, one.process.stdout, one.process.stderr):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
def test_the_sdk_client_works_in_both_eras(arguments: list[str], environment: dict[str, str], era: str) -> None:
    """Tools, resources, prompts through a real process."""

    async def main() -> None:
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=environment)
        async with Client(parameters, mode=era) as client:
            with anyio.fail_after(60):
                assert len((await client.list_tools()).tools) == 14
                made = await client.call_tool("note", {"notes": [{"kind": "goal", "title": "检查 example.com"}]})
                assert made.content[0].text == "#2"
                assert "检查 example.com" in (await client.read_resource("agentmem://resume/acme")).contents[0].text
                assert "检查 example.com" in (await client.get_prompt("start", {})).messages[0].content.text

    anyio.run(main)


def test_a_client_of_another_make_works(arguments: list[str], environment: dict[str, str]) -> None:
    """fastmcp's."""
    fastmcp = pytest.importorskip("fastmcp")
    from fastmcp.client.transports import StdioTransport

    async def main() -> None:
        async with fastmcp.Client(StdioTransport(sys.executable, arguments, env=environment)) as client:
            assert len(await client.list_tools()) == 14
            made = await client.call_tool("note", {"notes": [{"kind": "fact", "title": "It works"}]})
            assert made.content[0].text == "#2"

    anyio.run(main)


HOSTILE = {
    "no JSON": (b"{nonsense", None),
    "not UTF-8": (b'{"jsonrpc": "2.0", "id": 7, "method": "\xff"}', 7),
    "a batch": (b'[{"jsonrpc": "2.0", "id": 7, "method": "ping"}]', None),
    "no JSON-RPC": (b'{"id": 7, "method": "ping"}', 7),
    "a number": (b"7", None),
    "too deep": (b'{"jsonrpc": "2.0", "id": 7, "method": "x", "params": ' + b'{"a":' * 5000 + b"1" + b"}" * 5001, 7),
    "too long": (
        b'{"jsonrpc": "2.0", "id": "seven", "method": "x", "params": {"a": "' + b"a" * (5 << 20) + b'"}}',
        "seven",
    ),
    "too long, its id last": (b'{"a": "' + b"a" * (9 << 20) + b'", "id": 7}', 7),
    "too long, no id of its own": (b'{"a": {"id": 5, "b": "' + b"a" * (5 << 20) + b'", "id": 6}}', None),
    "cut short": (b'{"jsonrpc": "2.0", "params": {"id": 5}, "id": 7, "method": "ping"', 7),
    "an id in a text": (b'{"a": "\\"id\\": 5, ', None),
    "an id that is none": (b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}', None),
    "an id that is true": (b'{"jsonrpc": "2.0", "id": true, "method": "ping"}', None),
    "an id that is null": (b'{"jsonrpc": "2.0", "id": null, "method": "ping"}', None),
    "a lone surrogate": (b'{"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "\\ud800"}}', 7),
}


def test_a_hostile_line_gets_an_error_and_the_server_lives_on(wire: Callable[..., Wire]) -> None:
    """Each with its id where that can be told."""
    server = wire().open()
    for name, (line, found) in HOSTILE.items():
        server.send(line)
        answer = server.read()
        assert answer["id"] == found, name
        assert "error" in answer or answer["result"]["isError"], name
        assert "result" in server.ask("ping"), name
    server.send(b"")
    assert server.call("note", notes=[{"kind": "fact", "title": "Alive"}]).startswith("#")
    assert server.end() == 0


def test_hostile_lines_before_the_handshake_do_no_harm(wire: Callable[..., Wire]) -> None:
    """However many."""
    server = wire()
    for _ in range(50):
        server.send(b"{nonsense")
        assert server.read()["error"]["code"] == -32700
    server.open()
    assert server.end() == 0


def test_nothing_but_protocol_gets_on_the_wire(
    tmp_path: Path, arguments: list[str], environment: dict[str, str], wire: Callable[..., Wire]
) -> None:
    """What the process or a child of it prints goes to stderr, also what lies in a buffer until exit."""
    (tmp_path / "sitecustomize.py").write_text(
        "import atexit, os, subprocess, sys, threading\n"
        "def noise():\n"
        "    import agentmem.adapters.mcp.server as server\n"
        "    was = server.build\n"
        "    def build(*given, **named):\n"
        "        def later():\n"
        "            print('printed, not flushed')\n"
        "            os.write(1, b'written to descriptor 1\\n')\n"
        "            subprocess.run([sys.executable, '-S', '-c', 'print(\"printed by a child\")'])\n"
        "        threading.Timer(0.2, later).start()\n"
        "        atexit.register(print, 'printed at exit')\n"
        "        return was(*given, **named)\n"
        "    server.build = build\n"
        "if sys.argv[0] == '-m' and 'serve' in sys.orig_argv:\n"
        "    noise()\n"
    )
    server = wire(PYTHONPATH=f"{tmp_path}{os.pathsep}{environment['PYTHONPATH']}").open()
    for _ in range(30):
        server.call("left")
    while b"by a child" not in bytes(server.complaints):
        server.call("left")
    assert server.end() == 0
    for said in (b"printed, not flushed", b"written to descriptor 1", b"printed by a child", b"printed at exit"):
        assert said in bytes(server.complaints)


def test_it_answers_tools_list_before_it_can_open_its_store(wire: Callable[..., Wire]) -> None:
    """A wrong key is the answer of each call, and changes nothing; the server lives."""
    first = wire().open()
    first.call("note", notes=[{"kind": "goal", "title": "Check"}])
    assert first.end() == 0
    other = wire(AGENTMEM_KEY="hex:" + "00" * 32).open()
    assert len(other.ask("tools/list")["result"]["tools"]) == 14
    assert other.call("resume").startswith("error wrong_key")
    assert other.call("note", notes=[{"kind": "goal", "title": "x"}]).startswith("error wrong_key")
    assert other.ask("resources/list")["result"]["resources"] == []
    assert other.end() == 0
    assert "Check" in wire().open().call("resume")


def test_what_a_client_sends_is_not_logged(wire: Callable[..., Wire]) -> None:
    """A prompt, a tool, a resource that is not there, wrong arguments: an answer, and no word of it on stderr."""
    server = wire().open()
    for method, params in (
        ("prompts/get", {"name": "SECRET"}),
        ("prompts/get", {"name": "brief_subagent", "arguments": {}}),
        ("prompts/get", {"name": "start", "arguments": {"SECRET": "x"}}),
        ("prompts/get", {"name": "start", "arguments": {"task": "SECRET"}}),
        ("tools/call", {"name": "SECRET", "arguments": {}}),
        ("resources/read", {"uri": "agentmem://record/SECRET"}),
    ):
        answer = server.ask(method, params)
        assert "error" in answer or answer["result"]["isError"], (method, params)
    assert server.end() == 0
    assert b"SECRET" not in bytes(server.complaints)
    assert b"Traceback" not in bytes(server.complaints)


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(wire: Callable[..., Wire], number: signal.Signals) -> None:
    """With code 0, and what was acknowledged is there."""
    server = wire().open()
    server.call("note", notes=[{"kind": "goal", "title": "Kept"}])
    server.process.send_signal(number)
    assert server.process.wait(30) == 0
    assert "Kept" in wire().open().call("resume")


def test_what_was_acknowledged_survives_a_kill(wire: Callable[..., Wire], tmp_path: Path) -> None:
    """However it dies; the next server finds a sound file."""
    server = wire().open()
    acknowledged = [server.call("note", notes=[{"kind": "fact", "title": f"Fact {number}"}]) for number in range(20)]
    many = [{"kind": "fact", "title": f"More {number}"} for number in range(200)]
    params = {"name": "note", "arguments": {"notes": many}}
    server.send(json.dumps({"jsonrpc": "2.0", "id": 1000, "method": "tools/call", "params": params}).encode())
    server.process.kill()
    server.process.wait(30)
    after = wire().open()
    for line in acknowledged:
        assert "Fact" in after.call("get", refs=[line.split()[0]])
    assert after.call("more", verb="verify", args={"replay": True}).startswith("sound")


def test_claims_of_a_killed_server_are_free_for_the_next(wire: Callable[..., Wire]) -> None:
    """Nobody waits for the lease of a dead process."""
    server = wire().open()
    server.call("track", type="host", keys=["a", "b", "c"])
    assert "host:a" in server.call("claim", type="host", n=2)
    server.process.kill()
    server.process.wait(30)
    assert "host:a" in wire().open().call("claim", type="host", n=3)


def test_several_servers_work_on_one_file_at_once(wire: Callable[..., Wire]) -> None:
    """Four processes write at the same time: nothing is lost, nobody is locked out, no entity is claimed twice."""
    first = wire().open()
    first.call("track", type="host", keys=[f"h{number:03}" for number in range(80)])
    servers = [first, *(wire().open() for _ in range(3))]
    claimed: list[str] = []

    def work(server: Wire) -> None:
        while "host:" in (taken := server.call("claim", type="host", where="check.tls is null", n=5)):
            hosts = [line for line in taken.splitlines() if line.startswith("host:")]
            claimed.extend(hosts)
            server.call(
                "mark", type="host", keys=[host.removeprefix("host:") for host in hosts], results={"tls": "pass"}
            )

    threads = [threading.Thread(target=work, args=(server,)) for server in servers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(claimed) == [f"host:h{number:03}" for number in range(80)]
    assert first.call("query", type="host", where="check.tls = 'pass'", limit=1).startswith("1 of 80")


def test_a_server_for_a_subagent_writes_only_beneath_its_task(wire: Callable[..., Wire]) -> None:
    """It sees the rest, and its resume is that of the task."""
    main = wire().open()
    goal, step, other = main.call(
        "note",
        notes=[
            {"kind": "goal", "title": "Check"},
            {"kind": "step", "title": "Mine", "parent": "$1"},
            {"kind": "step", "title": "Theirs", "parent": "$1"},
        ],
    ).split()
    worker = wire("--under", step).open()
    assert worker.call("resume").startswith(f"{step} step [open] Mine")
    assert "Theirs" in worker.call("get", refs=[other])
    assert worker.call("note", notes=[{"kind": "fact", "title": "Found", "parent": step}]).startswith("#")
    for refused in (
        worker.call("note", notes=[{"kind": "fact", "title": "x", "parent": other}]),
        worker.call("note", notes=[{"kind": "goal", "title": "x"}]),
        worker.call("update", refs=[goal], set={"status": "done"}),
        worker.call("track", type="host", keys=["a"]),
        worker.call("more", verb="notes.add", args={"kind": "goal", "title": "x", "project": "other"}),
    ):
        assert refused.startswith("error out_of_reach"), refused
    assert worker.call("summarize", task=step, result="done").startswith("#")


def test_the_process_loads_no_model_before_it_is_needed(wire: Callable[..., Wire]) -> None:
    """Neither to list its tools nor to resume."""
    server = wire().open()
    server.ask("tools/list")
    server.call("resume")
    maps = Path(f"/proc/{server.process.pid}/maps")
    if not maps.exists():
        pytest.skip("no /proc here")
    assert "onnxruntime" not in maps.read_text()
    server.call("note", notes=[{"kind": "fact", "title": "The gateway drops idle connections"}])
    server.call("recall", query="why are connections lost")
    assert "onnxruntime" in maps.read_text()


def test_store_and_server_agree(wire: Callable[..., Wire], tmp_path: Path) -> None:
    """What an agent wrote by the server, the library reads."""
    server = wire("--author", "main").open()
    server.call("note", notes=[{"kind": "goal", "title": "Check"}])
    assert server.end() == 0
    with Store.open(tmp_path / "work.db", project="acme", key=bytes(range(32))) as store:
        (goal,) = store.notes.list()
        assert (goal.title, goal.author) == ("Check", "main")


def _filled(server: Wire) -> int:
    """How many requests a server takes of a client that reads no answer."""
    line = b'{"jsonrpc": "2.0", "id": %d, "method": "tools/list", "params": {}}\n'
    assert server.process.stdin is not None
    stdin = server.process.stdin.fileno()
    os.set_blocking(stdin, False)
    for sent in range(20_000):
        rest = line % (1000 + sent)
        while rest:
            if not select.select([], [stdin], [], 3)[1]:
                return sent
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(stdin, rest) :]
    return 20_000


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_client_that_stops_reading_is_not_read_from_for_ever(wire: Callable[..., Wire]) -> None:
    """Its requests wait with it, not in the memory of the server; once it reads on, it gets every answer."""
    server = wire().open()
    sent = _filled(server)
    assert sent < 5_000
    assert [server.read()["id"] for _ in range(sent)] == [1000 + number for number in range(sent)]


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_a_client_that_does_not_read_cannot_keep_it_from_ending(wire: Callable[..., Wire]) -> None:
    """A signal ends it with code 0 although an answer is half written."""
    server = wire().open()
    _filled(server)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX")
def test_the_end_of_stdin_ends_it_although_nobody_reads(wire: Callable[..., Wire]) -> None:
    """With the last answers half written."""
    server = wire().open()
    assert server.process.stdin is not None
    for number in range(50):  # more than a pipe holds of answers, fewer than are taken in
        server.send(b'{"jsonrpc": "2.0", "id": %d, "method": "tools/list", "params": {}}' % number)
    server.process.stdin.close()
    assert server.process.wait(60) == 0
