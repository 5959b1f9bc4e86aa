"""A harness for agents with no state of its own: sessions are run from the log, tools with credentials that stay outside.

It stands above the store. See `docs/harness.md`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agentmem.harness.agent_file import AgentFile as AgentFile
    from agentmem.harness.commands import command as command
    from agentmem.harness.executor import Executor as Executor
    from agentmem.harness.file_vault import FileVault as FileVault
    from agentmem.harness.formats import anthropic_messages as anthropic_messages
    from agentmem.harness.formats import from_anthropic as from_anthropic
    from agentmem.harness.formats import from_openai as from_openai
    from agentmem.harness.formats import openai_messages as openai_messages
    from agentmem.harness.formats import tools_for_anthropic as tools_for_anthropic
    from agentmem.harness.formats import tools_for_openai as tools_for_openai
    from agentmem.harness.functions import tool as tool
    from agentmem.harness.grants import Credential as Credential
    from agentmem.harness.grants import inherited as inherited
    from agentmem.harness.grants import inherited_handle as inherited_handle
    from agentmem.harness.harness import Harness as Harness
    from agentmem.harness.harness import Woken as Woken
    from agentmem.harness.http import http_tool as http_tool
    from agentmem.harness.mcp_servers import McpTools as McpTools
    from agentmem.harness.mcp_servers import mcp_tools as mcp_tools
    from agentmem.harness.reading import read_event as read_event
    from agentmem.harness.replaying import Recorded as Recorded
    from agentmem.harness.replaying import Replayed as Replayed
    from agentmem.harness.replaying import replay as replay
    from agentmem.harness.reply import Reply as Reply
    from agentmem.harness.reply import ToolCall as ToolCall
    from agentmem.harness.reply import Usage as Usage
    from agentmem.harness.request import Model as Model
    from agentmem.harness.request import ModelRequest as ModelRequest
    from agentmem.harness.responses import from_responses as from_responses
    from agentmem.harness.responses import openai_responses as openai_responses
    from agentmem.harness.responses import tools_for_responses as tools_for_responses
    from agentmem.harness.toolset import Call as Call
    from agentmem.harness.toolset import Tool as Tool
    from agentmem.harness.toolset import Toolset as Toolset
    from agentmem.harness.vault import ChainVault as ChainVault
    from agentmem.harness.vault import GrantRequest as GrantRequest
    from agentmem.harness.vault import KeyringVault as KeyringVault
    from agentmem.harness.vault import MintingVault as MintingVault
    from agentmem.harness.vault import Secret as Secret
    from agentmem.harness.vault import Vault as Vault

# Loaded on first use: a program that runs one tool needs few of them.
_MODULES: Final = {
    "agent_file": ("AgentFile",),
    "commands": ("command",),
    "executor": ("Executor",),
    "file_vault": ("FileVault",),
    "formats": (
        "anthropic_messages", "from_anthropic", "from_openai", "openai_messages", "tools_for_anthropic", "tools_for_openai",
    ),
    "functions": ("tool",),
    "grants": ("Credential", "inherited", "inherited_handle"),
    "harness": ("Harness", "Woken"),
    "http": ("http_tool",),
    "mcp_servers": ("McpTools", "mcp_tools"),
    "reading": ("read_event",),
    "replaying": ("Recorded", "Replayed", "replay"),
    "reply": ("Reply", "ToolCall", "Usage"),
    "request": ("Model", "ModelRequest"),
    "responses": ("from_responses", "openai_responses", "tools_for_responses"),
    "toolset": ("Call", "Tool", "Toolset"),
    "vault": ("ChainVault", "GrantRequest", "KeyringVault", "MintingVault", "Secret", "Vault"),
}  # fmt: skip
_PLACES: Final = {name: module for module, names in _MODULES.items() for name in names}

__all__ = list(_PLACES)


if not TYPE_CHECKING:  # a type checker is to notice a name that is none

    def __getattr__(name: str) -> Any:
        place = _PLACES.get(name)
        if place is None:
            raise AttributeError(f"module 'agentmem.harness' has no attribute {name!r}")
        from importlib import import_module

        found = getattr(import_module(f"agentmem.harness.{place}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
