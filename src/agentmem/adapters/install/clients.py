"""The clients that agentmem is installed into: which files, which shapes. A closed table."""

from __future__ import annotations

from enum import Enum
from typing import Final, Literal

from attrs import field, frozen

from agentmem.adapters.install.surroundings import Scope
from agentmem.errors import InvalidInput, shown

__all__ = ["CLIENTS", "NAME", "Client", "Entry", "Hooks", "client_named"]

NAME: Final = "agentmem"
"""What server and skill are called in every client."""


class Entry(Enum):
    """The shape of a server that is started as a process.

    Attributes:
        PLAIN: `command` and `args`.
        TYPED: The same with `type: stdio`.
        CUSTOM: The same with `source: custom`, as Zed has it.
        LIST: One list of command and arguments, as OpenCode has it.
        TABLE: A TOML table, as Codex has it.
    """

    PLAIN = "plain"
    TYPED = "typed"
    CUSTOM = "custom"
    LIST = "list"
    TABLE = "table"


@frozen
class Hooks:
    """Where and how a client keeps its hooks.

    Attributes:
        host: Its row in the table of hosts.
        user: The file for all projects.
        project: The file of one project.
        grouped: Whether an event has groups with a matcher, and each of them handlers; else it has handlers.
        typed: Whether a handler says `type: command`.
        per_second: Units of a timeout in a second.
        version: The number at the top of the file, if it has one.
        comments: Whether comments are allowed in the file.
    """

    host: str
    user: str
    project: str
    grouped: bool = True
    typed: bool = True
    per_second: Literal[1, 1000] = 1
    version: int | None = None
    comments: bool = False


@frozen
class Client:
    """One client.

    Attributes:
        name: Its name on the command line.
        title: Its name among people.
        key: Where the servers are in its file.
        entry: The shape of a server.
        user: Its file for all projects, the usual name first; one that is there is taken.
        project: The same of one project; none where it has no such file.
        comments: Whether comments are allowed in that file.
        skills: The folders of skills by scope.
        hooks: Its hooks, if they are known.
        notes: What a user has to know or do.
    """

    name: str
    title: str
    key: tuple[str, ...]
    entry: Entry
    user: tuple[str, ...]
    project: tuple[str, ...] = ()
    comments: bool = False
    skills: dict[Scope, str] = field(factory=dict)
    hooks: Hooks | None = None
    notes: tuple[str, ...] = ()

    def servers(self, scope: Scope) -> tuple[str, ...]:
        """The templates of its file of servers.

        Raises:
            InvalidInput: It has none of this scope.
        """
        found = self.user if scope == "user" else self.project
        if not found:
            raise InvalidInput(f"{self.title} has no configuration of a project", next="Give --scope user")
        return found


_ALL: Final = (
    Client(
        "claude-code", "Claude Code", ("mcpServers",), Entry.TYPED,
        ("{claude_json}/.claude.json",), ("{root}/.mcp.json",),
        skills={"user": "{claude}/skills", "project": "{root}/.claude/skills"},
        hooks=Hooks("claude-code", "{claude}/settings.json", "{root}/.claude/settings.json"),
        notes=("Claude Code reads its configuration when a session starts; a server of a project has to be allowed once.",),
    ),
    Client(
        "claude-desktop", "Claude Desktop", ("mcpServers",), Entry.PLAIN,
        ("{applications}/Claude/claude_desktop_config.json",),
        notes=("Quit Claude Desktop and start it again.",),
    ),
    Client(
        "cursor", "Cursor", ("mcpServers",), Entry.TYPED,
        ("{home}/.cursor/mcp.json",), ("{root}/.cursor/mcp.json",),
        skills={"user": "{home}/.cursor/skills", "project": "{root}/.cursor/skills"},
        hooks=Hooks("cursor", "{home}/.cursor/hooks.json", "{root}/.cursor/hooks.json",
                    grouped=False, typed=False, version=1),
        notes=("Start Cursor again, and see that the server is switched on in its settings.",),
    ),
    Client(
        "vscode", "VS Code", ("servers",), Entry.TYPED,
        ("{applications}/Code/User/mcp.json",), ("{root}/.vscode/mcp.json",), comments=True,
        skills={"user": "{copilot}/skills", "project": "{root}/.github/skills"},
        hooks=Hooks("vscode", "{copilot}/hooks/agentmem.json", "{root}/.github/hooks/agentmem.json",
                    grouped=False, version=1),
        notes=(
            "VS Code asks once whether it may start the server. Its hooks are a preview.",
            "VS Code also runs the hooks of Claude Code: install agentmem's hooks for one of the two.",
        ),
    ),
    Client(
        "codex", "Codex", ("mcp_servers",), Entry.TABLE,
        ("{codex}/config.toml",), ("{root}/.codex/config.toml",),
        skills={"user": "{home}/.agents/skills", "project": "{root}/.agents/skills"},
        hooks=Hooks("codex", "{codex}/hooks.json", "{root}/.codex/hooks.json"),
        notes=("Codex runs a new or changed hook only when you have trusted it: /hooks.",
               "Codex reads the configuration of a project only when you have trusted the project."),
    ),
    Client(
        "gemini", "Gemini CLI", ("mcpServers",), Entry.PLAIN,
        ("{home}/.gemini/settings.json",), ("{root}/.gemini/settings.json",), comments=True,
        skills={"user": "{home}/.gemini/skills", "project": "{root}/.gemini/skills"},
        hooks=Hooks("gemini", "{home}/.gemini/settings.json", "{root}/.gemini/settings.json",
                    per_second=1000, comments=True),
    ),
    Client(
        "windsurf", "Windsurf", ("mcpServers",), Entry.PLAIN,
        ("{home}/.codeium/windsurf/mcp_config.json",),
        skills={"user": "{home}/.codeium/windsurf/skills"},
        notes=("Refresh the servers in Windsurf's settings.",),
    ),
    Client(
        "zed", "Zed", ("context_servers",), Entry.CUSTOM,
        ("{zed}/settings.json",), ("{root}/.zed/settings.json",), comments=True,
        skills={"user": "{home}/.agents/skills", "project": "{root}/.agents/skills"},
        notes=("Zed starts the server of a project only when you have trusted the project.",),
    ),
    Client(
        "opencode", "OpenCode", ("mcp",), Entry.LIST,
        ("{xdg}/opencode/opencode.json", "{xdg}/opencode/opencode.jsonc"),
        ("{root}/opencode.json", "{root}/opencode.jsonc"), comments=True,
        skills={"user": "{xdg}/opencode/skills", "project": "{root}/.opencode/skills"},
    ),
)  # fmt: skip

CLIENTS: Final[dict[str, Client]] = {one.name: one for one in _ALL}
"""The clients by name."""


def client_named(name: str) -> Client:
    """The client of a name.

    Raises:
        InvalidInput: There is none.
    """
    if name not in CLIENTS:
        raise InvalidInput(
            f"There is no client {shown(name)}",
            next=f"It is one of {', '.join(CLIENTS)}; for another one paste what agentmem mcp show cursor prints",
        )
    return CLIENTS[name]
