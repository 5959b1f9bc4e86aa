"""What goes into the files of a client, and how it is put into their text and taken out again."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any, Final

from attrs import evolve, field, frozen

from agentmem.adapters.hooks.hosts import HOSTS
from agentmem.adapters.install import tomltext
from agentmem.adapters.install.clients import NAME, Client, Entry, Hooks
from agentmem.adapters.install.commands import Options, hook_command, is_hook, server_command
from agentmem.adapters.install.jsontext import JsonPath, append, at, parsed, put, remove
from agentmem.adapters.install.register import FileRecord
from agentmem.errors import Conflict

__all__ = ["Changed", "HookEntry", "changed", "hook_entries", "server_entry", "skill_text", "snippets", "undone"]

_HOOKS: Final = "hooks"
_ENTRY: Final = 3  # the length of the path to an entry in the list of an event
_SECONDS: Final = 10  # a host waits for a hook; a hook of ours ends by itself before


@frozen
class HookEntry:
    """One hook of a client: its event there, the command, and all that stands in the list of the event."""

    event: str
    command: str
    value: Any


@frozen
class Changed:
    """The text of a file after a change, and what of it is ours: as in `FileRecord`."""

    text: str
    server: JsonPath | None = None
    hooks: tuple[tuple[str, str], ...] = ()
    made: tuple[JsonPath, ...] = field(default=())


def server_entry(client: Client, options: Options) -> dict[str, Any]:
    """The entry of our server, in the shape of a client."""
    command, *args = server_command(options)
    match client.entry:
        case Entry.PLAIN | Entry.TABLE:
            return {"command": command, "args": args}
        case Entry.TYPED:
            return {"type": "stdio", "command": command, "args": args}
        case Entry.CUSTOM:
            return {"source": "custom", "command": command, "args": args, "env": {}}
        case Entry.LIST:
            return {"type": "local", "command": [command, *args], "enabled": True}


def hook_entries(hooks: Hooks, options: Options, platform: str) -> tuple[HookEntry, ...]:
    """The hooks of ours, in the shape of a client."""
    found = []
    for event, hook in HOSTS[hooks.host].items():
        if not hook.installed:
            continue
        command = hook_command(options, event, hooks.host, platform)
        kind = {"type": "command"} if hooks.typed else {}
        value: dict[str, Any] = {**kind, "command": command, "timeout": _SECONDS * hooks.per_second}
        if hooks.grouped:
            value = {"hooks": [value]}
        if hook.matcher is not None:
            value = {"matcher": hook.matcher, **value}
        found.append(HookEntry(hook.name, command, value))
    return tuple(found)


def skill_text() -> str:
    """The skill: one Markdown file."""
    return files("agentmem.adapters.install").joinpath("skill", "SKILL.md").read_text("utf-8")


def snippets(client: Client, options: Options, platform: str) -> tuple[str, str | None]:
    """What to add by hand: the server, and the hooks if the client has some."""
    entry = server_entry(client, options)
    if client.entry is Entry.TABLE:
        server = tomltext.table((*client.key, NAME), entry)
    else:
        server = json.dumps(_nested((*client.key, NAME), entry), ensure_ascii=False, indent=2) + "\n"
    if client.hooks is None or not options.hooks:
        return server, None
    events: dict[str, Any] = {}
    for one in hook_entries(client.hooks, options, platform):
        events.setdefault(one.event, []).append(one.value)
    top = {} if client.hooks.version is None else {"version": client.hooks.version}
    return server, json.dumps({**top, _HOOKS: events}, ensure_ascii=False, indent=2) + "\n"


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def changed(
    text: str,
    client: Client,
    options: Options,
    *,
    server: bool,
    hooks: tuple[HookEntry, ...] | None,
    old: FileRecord | None,
    comments: bool,
) -> Changed:
    """The text of a file with what is wanted in it.

    Args:
        text: The file, empty for a new one.
        client: The client.
        options: What is wanted.
        server: Whether the server belongs into this file.
        hooks: The hooks that belong into it; None where it holds no hooks.
        old: What was done to it before.
        comments: Whether comments are allowed in it.

    Raises:
        Conflict: There is something of our name that we did not write.
        InvalidInput: It is not of the form it should have.
    """
    if client.entry is Entry.TABLE and server:
        return _changed_table(text, client, options, old)
    now = Changed(text if text.strip(" \t\r\n\ufeff") else "{}\n", made=old.made if old else ())
    parsed(now.text, comments=comments)
    if server:
        now = _with_server(now, client, options, old, comments)
    if hooks is not None and client.hooks is not None:
        now = _with_hooks(now, client.hooks, hooks, old.hooks if old else (), comments)
    return now


def _changed_table(text: str, client: Client, options: Options, old: FileRecord | None) -> Changed:
    path, entry = (*client.key, NAME), server_entry(client, options)
    ours = old is not None and old.server is not None
    if not ours and tomltext.at(tomltext.parsed(text), path) == entry:
        return Changed(text)
    return Changed(tomltext.with_block(text, path, tomltext.block(path, entry), ours=ours), server=path)


def _with_server(now: Changed, client: Client, options: Options, old: FileRecord | None, comments: bool) -> Changed:
    value, entry = parsed(now.text, comments=comments).value, server_entry(client, options)
    path = _server_path(client, value)
    if path != (*client.key, NAME):
        del entry["enabled"]
    before = old.server if old else None
    text = now.text
    if before is not None and before != path and at(value, before) is not None:
        text = remove(text, before, comments=comments)
    there = at(value, path)
    if there == entry:
        return evolve(now, text=text, server=before)
    if there is not None and before is None:
        raise Conflict(f"There is a server {NAME} in it that agentmem did not write here")
    made = _missing(value, path[:-1]) if there is None else ()
    return evolve(now, text=put(text, path, entry, comments=comments), server=path, made=_united(now.made, made))


def _server_path(client: Client, value: Any) -> JsonPath:
    """Where the server belongs. OpenCode 2 takes the form of version 1 too, and has a further level in its own."""
    servers = at(value, client.key)
    if client.entry is Entry.LIST and isinstance(servers, dict) and "servers" in servers:
        return (*client.key, "servers", NAME)
    return (*client.key, NAME)


def _missing(value: Any, path: JsonPath) -> tuple[JsonPath, ...]:
    return tuple(path[: depth + 1] for depth in range(len(path)) if at(value, path[: depth + 1]) is None)


def _united(first: tuple[JsonPath, ...], more: tuple[JsonPath, ...]) -> tuple[JsonPath, ...]:
    return (*first, *(one for one in more if one not in first))


def _with_hooks(
    now: Changed, hooks: Hooks, wanted: tuple[HookEntry, ...], old: tuple[tuple[str, str], ...], comments: bool
) -> Changed:
    text, made, ours = now.text, now.made, []
    keep = {(one.event, one.command): one.value for one in wanted}
    stale = [one for one in old if not _is_there(text, one, keep.get(one), comments)]
    for event, command in stale:
        text = _without_hook(text, event, lambda found, command=command: found == command, comments)
    for one in wanted:
        key = (one.event, one.command)
        if _found(text, one.event, comments, lambda found, one=one: found == one.command):
            ours += [key] if key in old else []
            continue
        value = parsed(text, comments=comments).value
        if hooks.version is not None and "version" not in value:
            text = put(text, ("version",), hooks.version, comments=comments)
        missing = _missing(value, (_HOOKS, one.event))
        made = _united(made, missing)
        if missing:
            text = put(text, (_HOOKS, one.event), [one.value], comments=comments)
        else:
            text = append(text, (_HOOKS, one.event), one.value, comments=comments)
        ours.append(key)
    return evolve(now, text=_pruned(text, made, comments), hooks=tuple(ours), made=made)


def _is_there(text: str, key: tuple[str, str], value: Any, comments: bool) -> bool:
    """Whether a hook of before stands there as it is wanted now."""
    whole = parsed(text, comments=comments).value
    places = _found(text, key[0], comments, lambda command: command == key[1])
    return value is not None and any(len(place) == _ENTRY and at(whole, place) == value for place in places)


def _found(text: str, event: str, comments: bool, is_it: Any) -> list[JsonPath]:
    """Where the handlers of an event are whose command is meant: with all of their group where it holds nothing else."""
    listed = at(parsed(text, comments=comments).value, (_HOOKS, event))
    found: list[JsonPath] = []
    for index, one in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(one, dict):
            continue
        inner = one.get(_HOOKS)
        if not isinstance(inner, list):
            found += [(_HOOKS, event, index)] if is_it(one.get("command")) else []
            continue
        those = [at for at, handler in enumerate(inner) if isinstance(handler, dict) and is_it(handler.get("command"))]
        if those and len(those) == len(inner):
            found.append((_HOOKS, event, index))
        else:
            found += [(_HOOKS, event, index, _HOOKS, each) for each in those]
    return found


def _without_hook(text: str, event: str, is_it: Any, comments: bool) -> str:
    for path in reversed(_found(text, event, comments, is_it)):
        text = remove(text, path, comments=comments)
    return text


def _pruned(text: str, made: tuple[JsonPath, ...], comments: bool) -> str:
    """The text without what was made to hold our entries and now holds nothing."""
    for path in sorted(made, key=len, reverse=True):
        if at(parsed(text, comments=comments).value, path) in ({}, []):
            text = remove(text, path, comments=comments)
    return text


def undone(text: str, record: FileRecord) -> str | None:
    """The text without what is ours, however it was edited since; None where nothing is left of a file that we made.

    Raises:
        InvalidInput: It is not of the form it should have.
    """
    if record.kind == "toml":
        assert record.server is not None
        left = tomltext.without_block(text, tuple(map(str, record.server)))
        return None if record.before is None and not left.strip() else left
    comments, value = record.comments, parsed(text, comments=record.comments).value
    if record.server is not None and at(value, record.server) is not None:
        text = remove(text, record.server, comments=comments)
    for event in dict.fromkeys(event for event, _ in record.hooks):
        text = _without_hook(text, event, is_hook, comments)
    text = _pruned(text, record.made, comments)
    document = parsed(text, comments=comments)
    only_ours = document.masked.split() == text.replace("\ufeff", " ").split() and not document.value.keys() - {
        "version"
    }
    return None if record.before is None and only_ours else text
