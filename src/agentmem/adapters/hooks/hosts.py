"""The hosts whose hooks are known: which of their events is which of ours, and how each takes an answer.

A closed table, shared by the command that answers a hook and by the installer that writes the hooks into a host's
files. It imports nothing heavy: a hook has 150 ms from the start of its process.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


class HookEvent(StrEnum):
    """What happens in a host, in our words: also the word on the command line, `agentmem hook <event>`."""

    SESSION_START = "session-start"
    SUBAGENT_START = "subagent-start"
    PRE_TOOL = "pre-tool"
    PRE_COMPACT = "pre-compact"
    STOP = "stop"


class Shape(StrEnum):
    """How a host takes an answer on stdout.

    Attributes:
        TEXT: Plain text that the agent reads.
        SPECIFIC: JSON, `hookSpecificOutput.additionalContext`, that the agent reads.
        CONTEXT: JSON, `additional_context`, that the agent reads.
        MESSAGE: JSON, `systemMessage`, that the person sees and the agent does not.
        EMPTY: JSON without anything in it: the host reads no text here.
        SILENT: Nothing at all.
    """

    TEXT = "text"
    SPECIFIC = "specific"
    CONTEXT = "context"
    MESSAGE = "message"
    EMPTY = "empty"
    SILENT = "silent"


class HostHook(NamedTuple):
    """One hook of one host.

    Attributes:
        name: The host's name of the event, as its configuration and its JSON spell it.
        shape: How it takes an answer.
        matcher: The matcher to configure; None for hooks without one, or for all of them.
        installed: Whether an installer should write it. False where nothing we could say would reach the agent.
    """

    name: str
    shape: Shape
    matcher: str | None = None
    installed: bool = True

    @property
    def json(self) -> bool:
        """Whether stdout must be JSON."""
        return self.shape not in (Shape.TEXT, Shape.SILENT)


# The tools whose calls can repeat a failed attempt: commands and the web. Reading and editing files is not asked about,
# since a process for each of them costs more than it could save.
_CLAUDE_TOOLS: Final = "Bash|PowerShell|WebFetch|WebSearch|mcp__.*"
_CODEX_TOOLS: Final = "Bash|mcp__.*"

HOSTS: Final[dict[str, dict[HookEvent, HostHook]]] = {
    "claude-code": {
        HookEvent.SESSION_START: HostHook("SessionStart", Shape.SPECIFIC, "startup|resume|clear|compact"),
        HookEvent.SUBAGENT_START: HostHook("SubagentStart", Shape.SPECIFIC),
        HookEvent.PRE_TOOL: HostHook("PreToolUse", Shape.SPECIFIC, _CLAUDE_TOOLS),
        HookEvent.PRE_COMPACT: HostHook("PreCompact", Shape.SILENT),
        HookEvent.STOP: HostHook("Stop", Shape.SILENT),
    },
    "codex": {
        HookEvent.SESSION_START: HostHook("SessionStart", Shape.SPECIFIC, "startup|resume|clear|compact"),
        HookEvent.SUBAGENT_START: HostHook("SubagentStart", Shape.SPECIFIC),
        HookEvent.PRE_TOOL: HostHook("PreToolUse", Shape.SPECIFIC, _CODEX_TOOLS),
        HookEvent.PRE_COMPACT: HostHook("PreCompact", Shape.EMPTY),
        HookEvent.STOP: HostHook("Stop", Shape.EMPTY),
    },
    "gemini": {
        HookEvent.SESSION_START: HostHook("SessionStart", Shape.SPECIFIC),
        HookEvent.PRE_TOOL: HostHook("BeforeTool", Shape.MESSAGE, "run_shell_command|web_fetch", installed=False),
        HookEvent.PRE_COMPACT: HostHook("PreCompress", Shape.EMPTY),
        HookEvent.STOP: HostHook("AfterAgent", Shape.EMPTY),
    },
    "cursor": {
        HookEvent.SESSION_START: HostHook("sessionStart", Shape.CONTEXT),
        HookEvent.SUBAGENT_START: HostHook("subagentStart", Shape.EMPTY, installed=False),
        HookEvent.PRE_TOOL: HostHook("preToolUse", Shape.EMPTY, "Shell", installed=False),
        HookEvent.PRE_COMPACT: HostHook("preCompact", Shape.EMPTY),
        HookEvent.STOP: HostHook("stop", Shape.EMPTY),
    },
    "vscode": {
        HookEvent.SESSION_START: HostHook("SessionStart", Shape.SPECIFIC),
        HookEvent.SUBAGENT_START: HostHook("SubagentStart", Shape.SPECIFIC),
        HookEvent.PRE_TOOL: HostHook("PreToolUse", Shape.SPECIFIC),
        HookEvent.PRE_COMPACT: HostHook("PreCompact", Shape.EMPTY),
        HookEvent.STOP: HostHook("Stop", Shape.EMPTY),
    },
    "plain": {
        HookEvent.SESSION_START: HostHook("session-start", Shape.TEXT, installed=False),
        HookEvent.SUBAGENT_START: HostHook("subagent-start", Shape.TEXT, installed=False),
        HookEvent.PRE_TOOL: HostHook("pre-tool", Shape.TEXT, installed=False),
        HookEvent.PRE_COMPACT: HostHook("pre-compact", Shape.SILENT, installed=False),
        HookEvent.STOP: HostHook("stop", Shape.SILENT, installed=False),
    },
}
"""Host -> our event -> its hook. An event that a host does not have is not in its row."""
