"""How planned changes reach the disk: each file whole, all of them or none, and the record of them first."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from attrs import frozen

from agentmem.adapters.install.register import Register
from agentmem.engine.files import directory_fsync, temporary_beside
from agentmem.errors import Conflict, InvalidInput, IoFailed

__all__ = ["Edit", "Plan", "applied", "bytes_of", "folders_missing"]

_LARGEST: Final = 64 * 1024 * 1024


@frozen
class Edit:
    """What becomes of one file.

    Attributes:
        path: The file itself, links followed.
        before: Its bytes, None where there is none.
        after: Its bytes then, None where it is removed.
        like: The file whose mode a new one gets; None for what the system gives new files.
    """

    path: Path
    before: bytes | None
    after: bytes | None
    like: Path | None = None


@frozen
class Plan:
    """What is to be done, a value: nothing of it has happened yet.

    Attributes:
        edits: The files.
        copies: New copies of files as they are now.
        unneeded: Copies that were put back or stand for what is there again.
        directories: Folders that were made for files that go: removed where they are empty.
        register: The record before and after.
        notes: What a person should know.
    """

    edits: tuple[Edit, ...]
    copies: tuple[Edit, ...]
    unneeded: tuple[Path, ...]
    directories: tuple[Path, ...]
    register: tuple[Register, Register]
    notes: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.edits) or self.register[0] != self.register[1]


def bytes_of(path: Path) -> bytes | None:
    """The bytes of a file of a client, None where there is none.

    Raises:
        InvalidInput: It is no regular file, or far too large for a configuration.
        IoFailed: The system can't read it.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InvalidInput(f"{path} is not a regular file")
        if status.st_size > _LARGEST:
            raise InvalidInput(f"{path} has more than {_LARGEST >> 20} MiB, which is no configuration")
        return path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise IoFailed(f"{path} can't be read", why=error.strerror or type(error).__name__) from error


def applied(plan: Plan) -> None:
    """Do what was planned. What fails midway is put back.

    The record is written first: after a crash each file is as it was or as it was to be, and the record knows both.

    Raises:
        Conflict: A file was changed since it was planned; nothing was written.
        IoFailed: A file can't be written; what was written before it was put back.
    """
    for edit in plan.edits:
        if bytes_of(edit.path) != edit.before:
            raise Conflict(f"{edit.path} was changed meanwhile", next="Nothing was written: do it again")
    before, after = plan.register
    if Register.load(after.path) != before:
        raise Conflict(f"{after.path} was changed meanwhile", next="Nothing was written: do it again")
    steps = [*plan.copies, Edit(after.path, before.bytes(), after.bytes()), *plan.edits]
    done: list[Edit] = []
    made: list[Path] = []
    for step in steps:
        try:
            if step.before != step.after:
                made += _folders_made(step.path.parent)
                _written(step.path, step.after, step.like)
                done.append(step)
        except BaseException as error:
            _put_back(done, made)
            if not isinstance(error, OSError):
                raise
            raise IoFailed(
                f"{step.path} can't be written",
                why=f"{error.strerror or type(error).__name__}; what was written before was put back",
                next="Correct that, or add by hand what agentmem mcp show prints",
            ) from error
    for path in plan.unneeded:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    for folder in sorted(set(plan.directories), key=lambda one: len(one.parts), reverse=True):
        with contextlib.suppress(OSError):
            folder.rmdir()


def folders_missing(folder: Path) -> tuple[Path, ...]:
    """Of a folder and those above it the ones that are not there, the outermost first."""
    return tuple(one for one in (folder, *folder.parents) if not one.exists())[::-1]


def _folders_made(folder: Path) -> list[Path]:
    """Make a folder and those above it; the ones that were made, also where the last of them could not be."""
    made: list[Path] = []
    try:
        for one in folders_missing(folder):
            one.mkdir()
            made.append(one)
    except OSError:
        for one in reversed(made):
            one.rmdir()
        raise
    return made


def _written(path: Path, data: bytes | None, like: Path | None = None) -> None:
    """Make a file hold these bytes, or be gone, at once: who reads it finds it whole. Its mode stays."""
    if data is None:
        path.unlink(missing_ok=True)
        return
    mode = _mode_of(path) if path.exists() or like is None else _mode_of(like)
    temporary = temporary_beside(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        # Private until it has the mode of a file that may hold secrets of other programs.
        descriptor = os.open(temporary, flags, 0o666 if mode is None else 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if mode is not None:
                os.chmod(temporary, mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    directory_fsync(path.parent)


def _mode_of(path: Path) -> int | None:
    try:
        return stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return None


def _put_back(done: list[Edit], made: list[Path]) -> None:
    for step in reversed(done):
        with contextlib.suppress(OSError):
            _written(step.path, step.before, step.like)
    for folder in reversed(made):
        with contextlib.suppress(OSError):
            folder.rmdir()
