"""docs/clients.md says of each client what the table of clients says."""

from __future__ import annotations

from pathlib import Path

from machines import EACH

from agentmem.adapters.hooks.hosts import HOSTS
from agentmem.adapters.install.clients import CLIENTS, Client
from agentmem.adapters.install.surroundings import Scope

DOCUMENT = Path(__file__).parents[3] / "docs" / "clients.md"
BASES = {
    "{home}": "~", "{root}": ".", "{applications}": "<config>", "{xdg}": "~/.config", "{claude}": "~/.claude",
    "{claude_json}": "~", "{codex}": "~/.codex", "{copilot}": "~/.copilot", "{zed}": "<config>/zed",
}  # fmt: skip


def row(client: Client, scope: Scope) -> str:
    """One row of the table."""
    hooks = skill = "none"
    if client.hooks is not None:
        hooks = spelled(client.hooks.user if scope == "user" else client.hooks.project)
    if scope in client.skills:
        skill = spelled(f"{client.skills[scope]}/agentmem/SKILL.md")
    server = spelled(client.servers(scope)[0])
    name = f"{client.title}, `{client.name}`" if scope == "user" else ""
    return f"| {name} | {server}: `{'.'.join(client.key)}` | {hooks} | {skill} |".replace("|  |", "| |")


def spelled(template: str) -> str:
    base, brace, rest = template.partition("}")
    return f"`{BASES[base + brace]}{rest}`"


def test_the_table_of_clients_is_the_code_s() -> None:
    """Each client has a line for each of its scopes, with its files."""
    rows = [row(CLIENTS[name], scope) for name, scope in EACH]
    table = "\n".join(["| client | server | hooks | skill |", "|---|---|---|---|", *rows])
    assert table in DOCUMENT.read_text("utf-8"), table


def test_the_hooks_of_each_host_are_those_of_the_code() -> None:
    """Which events have a hook is said for each client that has some."""
    text = DOCUMENT.read_text("utf-8")
    for client in CLIENTS.values():
        if client.hooks is not None:
            events = [event.value for event, hook in HOSTS[client.hooks.host].items() if hook.installed]
            assert f"- {client.title}: {', '.join(events)}" in text, ", ".join(events)


def test_the_help_names_every_client() -> None:
    """Who asks for help need not look the clients up."""
    from agentmem.adapters.cli.connecting import mcp

    assert f"{', '.join(CLIENTS)}." in (mcp.help or "")
