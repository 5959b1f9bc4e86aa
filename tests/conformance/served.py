"""Our HTTP server as the suites need it: with fixtures if asked, and with the token added to what they send.

    python served.py PATH [fixtures]

The suite knows no headers of its own, so the token is added in front of the gate; everything behind it is what users run.
"""

from __future__ import annotations

import sys
from typing import Any

from agentmem import Store
from agentmem.adapters.http import server as http
from agentmem.adapters.http.gate import Gate
from agentmem.adapters.mcp.server import build
from agentmem.tools import Toolbox

TOKEN = "conformance-token-of-more-than-32-characters"


class WithToken(Gate):
    """Adds the token, unless the request has one."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request."""
        if scope["type"] == "http" and not any(name == b"authorization" for name, _ in scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], (b"authorization", f"Bearer {TOKEN}".encode())]}
        await super().__call__(scope, receive, send)


def told(url: str) -> None:
    """Say where it listens."""
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


def main(path: str, *fixtures: str) -> None:
    """Serve until it is ended."""
    toolbox = Toolbox(Store.open(path, project="acme", key=bytes(range(32)), embedder=None))
    server = build(toolbox)
    if fixtures:
        from fixtures import mount

        mount(server)
    http.Gate = WithToken  # type: ignore[attr-defined]
    http.HttpServer(toolbox, server, host="127.0.0.1", port=0, token=TOKEN).run(told)


if __name__ == "__main__":
    main(*sys.argv[1:])
