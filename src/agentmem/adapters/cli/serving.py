"""The command serve: the store as a server, for MCP clients by stdio, for these and other programs by HTTP."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from importlib.util import find_spec
from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.errors import AgentMemError, MissingExtra

if TYPE_CHECKING:
    from agentmem.engine.keys import Key
    from agentmem.store import Store
    from agentmem.tools import Toolbox


@command("serve", store=None)
@click.option(
    "--http", is_flag=True, help="By HTTP on a loopback address instead of by stdio: MCP at /mcp, and /v1/tools."
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="127.0.0.1 or ::1.")
@click.option("--port", type=int, default=8377, show_default=True, help="0 is any free one, which is printed.")
@click.option("--token-file", metavar="PATH", help="Where the token is that every request needs; made where it is missing."
              " Or AGENTMEM_HTTP_TOKEN.")  # fmt: skip
@click.option("--tools", "tools_", type=click.Choice(("core", "full")), default="core", show_default=True,
              help="full also lists, each as a tool of its own, what is rare and what can't be taken back.")  # fmt: skip
@click.option("--under", metavar="REF", help="Write only beneath this note, read everything: for a subagent.")
def serve(
    session: Session, http: bool, host: str, port: int, token_file: str | None, tools_: str, under: str | None
) -> None:
    """Serve the store to agents: MCP by stdio, or by HTTP.

    The store is made where it is missing, unless --read-only is given. It ends with its stdin, or on SIGTERM.

    Examples:
      agentmem serve
      agentmem serve --project acme --under 14
      agentmem serve --http --token-file ~/.config/agentmem/http.token
    """
    if find_spec("mcp") is None:
        raise MissingExtra("The package mcp is not installed", next="Install the extra: pip install '.[cli,mcp]'")
    if not http and (token_file is not None or "ask_key" in session.given):
        raise click.UsageError("--token-file belongs to --http; --ask-key can't be asked where stdin is the protocol.")
    session.origin_checked()
    from agentmem.tools import Toolbox

    key = session.key(new=False) if http else None  # a passphrase is asked for before anything listens
    toolbox = Toolbox(lambda: _open(session, under, key), full=tools_ == "full")
    if http:
        _by_http(toolbox, host, port, token_file)
    else:
        _by_stdio(toolbox)


def _open(session: Session, under: str | None, key: Key | None) -> Store:
    """The store as the options say, in the name of this server."""
    from agentmem.tools.callers import server_run, take_back

    run = session.given.get("run") or server_run()
    opened = session.open("read" if session.given.get("read_only") else "create", run=run, key=key)
    try:
        if session.task is not None:
            opened = opened.acting(task=session.task)
        if under is not None:
            opened = opened.beneath(under)
        if not session.given.get("read_only"):
            with suppress(AgentMemError):  # what is held by a dead server lapses, if not now then later
                take_back(opened)
    except BaseException:
        opened.close()
        raise
    return opened


def _by_stdio(toolbox: Toolbox) -> None:
    from agentmem.adapters.mcp.server import build
    from agentmem.adapters.mcp.stdio import run_stdio

    _opened_meanwhile(toolbox)
    try:
        run_stdio(build(toolbox))
    finally:
        toolbox.close()


def _by_http(toolbox: Toolbox, host: str, port: int, token_file: str | None) -> None:
    from agentmem.adapters.http.server import serve as serve_http
    from agentmem.adapters.http.token import load_token
    from agentmem.adapters.mcp.server import build

    token = load_token(file=token_file, environment=os.environ)
    try:
        serve_http(toolbox, build(toolbox), host=host, port=port, token=token)
    finally:
        toolbox.close()


def _opened_meanwhile(toolbox: Toolbox) -> None:
    """Open the store while the client still shakes hands. What is wrong is said on stderr now, and in each answer."""

    def attempt() -> None:
        try:
            toolbox.store  # noqa: B018
        except AgentMemError as error:
            click.echo(f"agentmem: {error}", err=True)

    threading.Thread(target=attempt, name="agentmem-open", daemon=True).start()


COMMANDS = {made.name: made for made in (serve,)}
