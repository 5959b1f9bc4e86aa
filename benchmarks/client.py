"""A bare MCP client on stdio: what an agent's host does, without a library in between that takes time of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from agentmem.context.tokens import count_tokens

SOURCE = str(Path(__file__).parents[1] / "src")
KEY = "hex:" + bytes(range(32)).hex()


def environment(home: Path) -> dict[str, str]:
    """What a host hands on, and where the package and the key are."""
    given = {name: os.environ[name] for name in ("PATH", "LANG", "SYSTEMROOT") if name in os.environ}
    return {**given, "HOME": str(home), "PYTHONPATH": SOURCE, "AGENTMEM_KEY": KEY, "AGENTMEM_EMBEDDER": "none"}


class Server:
    """A server process, spoken to line by line.

    Attributes:
        calls: How many tools were called.
        written: Tokens of what an agent wrote to call them.
        read: Tokens of what it read.
        news: Lines of news in it.
    """

    def __init__(self, path: Path, home: Path, *options: str, project: str = "recon", **variables: str) -> None:
        command = [sys.executable, "-m", "agentmem", "serve", "--db", str(path), "--project", project, *options]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment(home) | variables,
        )
        self.calls = self.written = self.read = self.news = 0
        self._id = 0
        self._turn = threading.Lock()
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.hello = self.ask("initialize", hello)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The result of a request."""
        assert self.process.stdout is not None
        with self._turn:
            self._id += 1
            self._send({"jsonrpc": "2.0", "id": self._id, "method": method, "params": params or {}})
            while True:
                line = self.process.stdout.readline()
                if not line:
                    raise EOFError("the server is gone")
                answer = json.loads(line)
                if answer.get("id") == self._id:
                    return answer["result"]

    def call(self, tool: str, **given: Any) -> str:
        """The text of a tool's answer."""
        result = self.ask("tools/call", {"name": tool, "arguments": given})
        text = str(result["content"][0]["text"])
        self.calls += 1
        self.written += count_tokens(f"{tool} {json.dumps(given, ensure_ascii=False)}")
        self.read += count_tokens(text)
        self.news += sum(line.startswith("news: ") for line in text.splitlines())
        return text

    def kill(self) -> None:
        """As a crash does it."""
        self.process.kill()
        self._gone()

    def close(self) -> None:
        """As a host does it."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._gone()

    def _gone(self) -> None:
        self.process.wait(60)
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
