"""The commands that go into the files of clients: the server, the hooks.

A client starts them with little of an environment, somewhere: what they need is spelled out in them. A key never is.
"""

from __future__ import annotations

import shlex
from typing import Final

from attrs import frozen

from agentmem.adapters.hooks.hosts import HookEvent
from agentmem.errors import InvalidInput, shown

__all__ = ["Options", "hook_command", "is_hook", "server_command"]

_UNQUOTED: Final = frozenset("@%+=:,./-_") | frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_UNSAFE_IN_WINDOWS: Final = frozenset('"$`%!&|<>^\n\r')


@frozen
class Options:
    """What a server and its hooks are to do.

    Attributes:
        python: This Python, by its absolute path.
        db: The file, None for the one in the user's data directory.
        project: The project, None for the one that the directory stands for.
        key_file: The file with the key, None for where the library looks.
        author: A label for who writes.
        credentials: What becomes of text that looks like a credential.
        embedder: What finds records by meaning.
        read_only: Whether nothing is to be written.
        under: The note beneath which alone the server may write.
        full: Whether every tool is listed.
        hooks: Whether hooks are wanted.
        skill: Whether the skill is wanted.
    """

    python: str
    db: str | None = None
    project: str | None = None
    key_file: str | None = None
    author: str | None = None
    credentials: str | None = None
    embedder: str | None = None
    read_only: bool = False
    under: str | None = None
    full: bool = False
    hooks: bool = True
    skill: bool = True


def server_command(options: Options) -> tuple[str, ...]:
    """The command of the server and its arguments."""
    given = [*_shared(options), ("--credentials", options.credentials), ("--embedder", options.embedder)]
    given += [("--under", options.under), ("--tools", "full" if options.full else None)]
    command = [*_agentmem(options), "serve", *_flat(given)]
    return tuple(_text(part) for part in [*command, *(["--read-only"] if options.read_only else [])])


def hook_command(options: Options, event: HookEvent, host: str, platform: str) -> str:
    """The command line of a hook, quoted for the shell that clients use on the platform.

    Raises:
        InvalidInput: No quoting would be understood by all the shells of the platform.
    """
    command = [*_agentmem(options), "hook", event.value, "--host", host, *_flat(_shared(options))]
    parts = [_text(part) for part in command]
    if platform != "win32":
        return shlex.join(parts)
    return " ".join(map(_windows, parts))


def is_hook(command: object) -> bool:
    """Whether a command line is one of a hook of ours."""
    return isinstance(command, str) and "-m agentmem hook " in command


def _agentmem(options: Options) -> list[str]:
    # -P: what lies in the directory that a client works in must not be imported instead of a package.
    return [options.python, "-P", "-m", "agentmem"]


def _shared(options: Options) -> list[tuple[str, str | None]]:
    return [
        ("--db", options.db),
        ("--project", options.project),
        ("--key-file", options.key_file),
        ("--author", options.author),
    ]


def _flat(given: list[tuple[str, str | None]]) -> list[str]:
    return [part for name, value in given if value is not None for part in (name, value)]


def _text(part: str) -> str:
    """A part of a command, once it is text that a file can hold."""
    try:
        part.encode()
    except UnicodeEncodeError:
        raise InvalidInput(f"{shown(part)} is not text in UTF-8, as which it would have to stand in a file") from None
    if "\x00" in part:
        raise InvalidInput(f"{shown(part)} holds a zero byte")
    return part


def _windows(part: str) -> str:
    r"""Quoted so that cmd and Git Bash, one of which a client uses, read the same: `\` is no separator to the latter."""
    if _UNSAFE_IN_WINDOWS & set(part):
        raise InvalidInput(
            f"{shown(part)} can't be quoted for every shell of Windows",
            next="Give --no-hooks, or another path or name",
        )
    part = part.replace("\\", "/")
    return part if part and _UNQUOTED.issuperset(part) else f'"{part}"'
