"""The token that every request needs: from a file that others can't read, or from the environment. Never shown."""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from agentmem.engine.files import private_file_make, publish, temporary_beside
from agentmem.errors import InvalidInput, IoFailed

__all__ = ["ENV_TOKEN", "TOKEN_CHARS", "checked_token", "load_token"]

ENV_TOKEN: Final = "AGENTMEM_HTTP_TOKEN"  # noqa: S105  # the name of a variable
TOKEN_CHARS: Final = 32
"""A token has so many characters at least."""

_MOST: Final = 512
_PRINTABLE: Final = re.compile(rf"[!-~]{{{TOKEN_CHARS},{_MOST}}}")
_ADVICE: Final = "Give --token-file PATH: where there is no such file one is made, with a new token"


def load_token(*, file: str | os.PathLike[str] | None, environment: MutableMapping[str, str]) -> str:
    """The token of a server.

    Args:
        file: Where it is. Made where it is missing, readable by this user alone. It goes before the environment.
        environment: Where else it may be, as `AGENTMEM_HTTP_TOKEN`; it is taken out, so that no child process has it.

    Raises:
        InvalidInput: There is none, it is too short, or others can read the file.
        IoFailed: The file can't be read or made.
    """
    given = environment.pop(ENV_TOKEN, None)
    if file is not None:
        return _of_file(Path(file).expanduser())
    if given is None:
        raise InvalidInput(
            "There is no token for the server",
            why="Without one every program and every web page of this machine could ask it",
            next=f"{_ADVICE}. Or set {ENV_TOKEN}",
        )
    return checked_token(given, ENV_TOKEN)


def checked_token(token: str, place: str = "the token") -> str:
    """A token, if it can be one.

    Raises:
        InvalidInput: It is shorter than 32 characters, or has others than printable ASCII without spaces.
    """
    if not isinstance(token, str) or not _PRINTABLE.fullmatch(token):
        raise InvalidInput(
            f"What is in {place} is no token",
            why=f"A token has {TOKEN_CHARS} to {_MOST} printable ASCII characters, and no spaces",
            next=_ADVICE,
        )
    return token


def _of_file(path: Path) -> str:
    found = _read(path)
    if found is None:
        _make(path)
        found = _read(path)  # this process's, or that of another which was quicker
    if found is None:
        raise IoFailed(f"The token file {path} is gone again")
    return checked_token(found, f"the file {path}")


def _read(path: Path) -> str | None:
    # Without waiting for a writer, should it be a pipe.
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IoFailed(f"The token file {path} can't be read", why=str(error.strerror)) from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"The token file {path} is not a regular file")
        if os.name == "posix" and status.st_mode & 0o077:
            raise InvalidInput(
                f"The token file {path} is open to others: its mode is {status.st_mode & 0o777:04o}",
                next=f"Close it with chmod 600 {path}, and think about whether the token is still secret",
            )
        data = os.read(descriptor, _MOST + 3)
    finally:
        os.close(descriptor)
    return data.decode("latin-1").removesuffix("\n").removesuffix("\r")


def _make(path: Path) -> None:
    temporary = temporary_beside(path)
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = private_file_make(temporary)
        try:
            os.write(descriptor, secrets.token_urlsafe(TOKEN_CHARS).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        publish(temporary, path)
    except OSError as error:
        raise IoFailed(f"The token file {path} can't be made", why=str(error.strerror)) from error
