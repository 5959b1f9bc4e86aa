"""A machine with a home, a project and clients, made of a temporary folder."""

from __future__ import annotations

from pathlib import Path

from attrs import evolve

from agentmem.adapters.install.applying import Plan, applied
from agentmem.adapters.install.clients import CLIENTS, Client
from agentmem.adapters.install.commands import Options
from agentmem.adapters.install.planning import planned_install, planned_uninstall
from agentmem.adapters.install.register import Install, Register
from agentmem.adapters.install.surroundings import Scope, Surroundings

EACH: list[tuple[str, Scope]] = [
    (client.name, scope)
    for client in CLIENTS.values()
    for scope in (("user", "project") if client.project else ("user",))
]
"""Each client in each of its scopes."""


class Machine:
    """One of them."""

    def __init__(self, folder: Path, platform: str = "linux") -> None:
        self.folder = folder
        self.home = folder / "Zoë 家"
        self.root = self.home / "my project"
        self.root.mkdir(parents=True)
        self.around = Surroundings(self.home, self.root, platform)
        self.options = Options("/opt/py thon/bin/python")

    def register(self) -> Register:
        return Register.load(self.folder / "config" / "installs.json")

    def plan(self, client: str, scope: Scope = "user", **more: object) -> Plan:
        options = evolve(self.options, **more)  # type: ignore[arg-type]
        return planned_install(CLIENTS[client], scope, self.around, options, self.register())

    def install(self, client: str, scope: Scope = "user", **more: object) -> Plan:
        plan = self.plan(client, scope, **more)
        applied(plan)
        return plan

    def uninstall(self, client: str, scope: Scope = "user") -> Plan:
        plan = planned_uninstall(CLIENTS[client], scope, self.around, self.register())
        applied(plan)
        return plan

    def installed(self, client: str, scope: Scope = "user") -> Install:
        found = self.register().find(client, scope, str(self.root) if scope == "project" else "")
        assert found is not None
        return found

    def servers(self, client: str, scope: Scope = "user") -> Path:
        """The file of a client's servers."""
        return self.around.path(CLIENTS[client].servers(scope)[0])

    def hooks(self, client: str, scope: Scope = "user") -> Path:
        """The file of a client's hooks."""
        hooks = CLIENTS[client].hooks
        assert hooks is not None
        return self.around.path(hooks.user if scope == "user" else hooks.project)

    def put(self, path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
        return path

    def tree(self) -> dict[str, bytes | None]:
        """Every file and folder with its bytes."""
        found = sorted(self.folder.rglob("*"))
        return {str(one.relative_to(self.folder)): one.read_bytes() if one.is_file() else None for one in found}


def existing(client: Client) -> str:
    """A file of servers of a client as people have them, with other servers and settings."""
    if client.entry.value == "table":
        return TABLES
    inner = '{\n    "other": {"command": "npx", "args": ["-y", "other"]}\n  }'
    comment = "  // mine, ünïcode\n" if client.comments else ""
    return f'{{\n{comment}  "theme": "dark",\n  "{client.key[0]}": {inner},\n  "z": [1.50, 1e3, "\\u00e9"]\n}}'


TABLES = """model = "o9"

# mine
[mcp_servers.other]
command = "npx"
args = ["-y", "other"]

[mcp_servers.other.env]
A = "é"
"""
