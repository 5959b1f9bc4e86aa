"""What was installed where: `installs.json` in the user's configuration directory, so that it can be taken out again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, cast

import attrs
from attrs import frozen

from agentmem.adapters.install.jsontext import JsonPath
from agentmem.adapters.install.surroundings import Scope
from agentmem.errors import InvalidInput

__all__ = ["FileRecord", "Install", "Kind", "Register", "register_file"]

Kind: TypeAlias = Literal["json", "toml", "whole"]
"""What a file is to us: entries in JSON, a block in TOML, or all of it."""

_VERSION: Final = 1


@frozen
class FileRecord:
    """What was done to one file.

    Attributes:
        path: The file itself, links followed.
        kind: How it is changed.
        before: SHA-256 of what there was before agentmem, None where there was no file.
        left: SHA-256 of what was left there.
        copy: Where what there was before is kept.
        exact: Whether nothing but agentmem changed the file between the copy and `left`: then the copy may be put back.
        server: Where our server is in it.
        hooks: Event and command of each hook of ours.
        made: The objects and arrays that were made to hold them.
        comments: Whether comments are allowed in it.
        directories: The folders made for it, the outermost first.
    """

    path: str
    kind: Kind
    before: str | None
    left: str
    copy: str | None = None
    exact: bool = True
    server: JsonPath | None = None
    hooks: tuple[tuple[str, str], ...] = ()
    made: tuple[JsonPath, ...] = ()
    comments: bool = False
    directories: tuple[str, ...] = ()


@frozen
class Install:
    """One client that agentmem was installed into.

    Attributes:
        client: Its name.
        scope: Everywhere, or in one project.
        root: The folder of the project; empty for the user's scope.
        command: The command of the server.
        files: What was done to its files.
    """

    client: str
    scope: Scope
    root: str
    command: tuple[str, ...]
    files: tuple[FileRecord, ...]

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells it from others."""
        return self.client, self.scope, self.root

    def file(self, path: Path) -> FileRecord | None:
        """What was done to a file."""
        return next((one for one in self.files if one.path == str(path)), None)


@frozen
class Register:
    """All that was installed, a value.

    Attributes:
        path: The file it is kept in.
        installs: The clients.
    """

    path: Path
    installs: tuple[Install, ...] = ()

    @classmethod
    def load(cls, path: Path) -> Register:
        """The register in a file, an empty one where there is none.

        Raises:
            InvalidInput: It is not one that this version can read.
        """
        try:
            data = path.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return cls(path)
        try:
            value = json.loads(data)
            if value["version"] != _VERSION:
                raise ValueError(value["version"])
            return cls(path, tuple(_install(one) for one in value["installs"]))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise InvalidInput(
                f"{path} is no record of installs that this version can read",
                why="Without it nothing can be told of what was installed",
                next="Correct it by hand, or put a copy of it back",
            ) from None

    def bytes(self) -> bytes | None:
        """What the file is to hold; None where it is to be no file."""
        if not self.installs:
            return None
        value = {"version": _VERSION, "installs": [attrs.asdict(one) for one in self.installs]}
        return json.dumps(value, ensure_ascii=False, indent=2).encode() + b"\n"

    def find(self, client: str, scope: Scope, root: str) -> Install | None:
        """What was installed into a client."""
        return next((one for one in self.installs if one.key == (client, scope, root)), None)

    def others(self, path: str, install: Install | None) -> tuple[FileRecord, ...]:
        """What other installs did to a file."""
        key = install.key if install else None
        return tuple(file for one in self.installs if one.key != key for file in one.files if file.path == path)

    def replaced(self, key: tuple[str, str, str], new: Install | None) -> Register:
        """The register with one install set, or taken out. A file that is wholly ours is left the same in all of them."""
        kept = [one for one in self.installs if one.key != key]
        if new is None:
            return attrs.evolve(self, installs=tuple(kept))
        left = {file.path: file.left for file in new.files if file.kind == "whole"}
        kept = [
            attrs.evolve(one, files=tuple(attrs.evolve(f, left=left.get(f.path, f.left)) for f in one.files))
            for one in kept
        ]
        return attrs.evolve(self, installs=(*kept, new))


def register_file() -> Path:
    """Where the register of this user is."""
    from platformdirs import user_config_path

    return user_config_path("agentmem", appauthor=False) / "installs.json"


def _install(value: Mapping[str, Any]) -> Install:
    if value["scope"] not in ("user", "project"):
        raise ValueError(value["scope"])
    return Install(
        str(value["client"]),
        cast("Scope", value["scope"]),
        str(value["root"]),
        tuple(map(str, value["command"])),
        tuple(_file(one) for one in value["files"]),
    )


def _file(value: Mapping[str, Any]) -> FileRecord:
    if value["kind"] not in ("json", "toml", "whole"):
        raise ValueError(value["kind"])
    return FileRecord(
        path=str(value["path"]),
        kind=value["kind"],
        before=None if value["before"] is None else str(value["before"]),
        left=str(value["left"]),
        copy=None if value["copy"] is None else str(value["copy"]),
        exact=bool(value["exact"]),
        server=None if value["server"] is None else tuple(value["server"]),
        hooks=tuple((str(event), str(command)) for event, command in value["hooks"]),
        made=tuple(tuple(path) for path in value["made"]),
        comments=bool(value["comments"]),
        directories=tuple(map(str, value["directories"])),
    )
