"""What an install or an uninstall would do, planned for all files before any is written."""

from __future__ import annotations

import difflib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from attrs import evolve, field, frozen

from agentmem.adapters.install.applying import Edit, Plan, bytes_of, folders_missing
from agentmem.adapters.install.clients import NAME, Client, Entry
from agentmem.adapters.install.commands import Options, server_command
from agentmem.adapters.install.entries import Changed, HookEntry, changed, hook_entries, skill_text, undone
from agentmem.adapters.install.register import FileRecord, Install, Register
from agentmem.adapters.install.surroundings import Scope, Surroundings
from agentmem.errors import Conflict, InvalidInput

__all__ = ["State", "difference", "planned_install", "planned_uninstall", "state"]

_COPY: Final = ".before-agentmem"

State: TypeAlias = Literal["as installed", "edited since", "gone"]
"""What became of a file since it was written."""

_T = TypeVar("_T")


@frozen
class _Target:
    """One file of a client, and what belongs into it."""

    path: Path
    server: bool = False
    hooks: tuple[HookEntry, ...] | None = None
    comments: bool = False
    table: bool = False


@frozen
class _Work:
    """What has been planned so far."""

    edits: tuple[Edit, ...] = ()
    copies: tuple[Edit, ...] = ()
    unneeded: tuple[Path, ...] = ()
    directories: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[FileRecord, ...] = field(default=())


def planned_install(
    client: Client, scope: Scope, around: Surroundings, options: Options, register: Register
) -> Plan:  # fmt: skip
    """Plan to install into a client, or to change what was installed.

    Raises:
        Conflict: There is something of our name that we did not write.
        InvalidInput: A file is not of the form it should have, or the client has none of this scope.
        IoFailed: A file can't be read.
    """
    root = str(around.root) if scope == "project" else ""
    old = register.find(client.name, scope, root)
    work = _Work()
    for target in _targets(client, scope, around, options):
        work = _with_target(work, target, client, options, old)
    skill = client.skills.get(scope)
    if skill is not None and options.skill:
        work = _with_skill(work, _real(around.path(skill) / NAME / "SKILL.md"), old, register)
    kept = {one.path for one in work.files}
    for record in old.files if old else ():
        if record.path not in kept:
            work = _undone(work, record, register, old)
    new = Install(client.name, scope, root, server_command(options), work.files)
    after = register.replaced(new.key, new if work.files else None)
    return _plan(work, register, after)


def planned_uninstall(client: Client, scope: Scope, around: Surroundings, register: Register) -> Plan:
    """Plan to take agentmem out of a client; a plan with nothing to do if it was not installed there.

    Raises:
        InvalidInput: A file that was edited since is not of the form it should have.
        IoFailed: A file can't be read.
    """
    root = str(around.root) if scope == "project" else ""
    old = register.find(client.name, scope, root)
    work = _Work()
    for record in old.files if old else ():
        work = _undone(work, record, register, old)
    return _plan(work, register, register.replaced((client.name, scope, root), None))


def difference(edit: Edit) -> str:
    """An edit as a unified diff."""
    before, after = (_lines(data) for data in (edit.before, edit.after))
    old, new = (os.devnull if data is None else str(edit.path) for data in (edit.before, edit.after))
    return "".join(
        line if line.endswith("\n") else f"{line}\n\\ No newline at end\n"
        for line in difflib.unified_diff(before, after, old, new)
    )


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "replace").replace("\r\n", "\n").splitlines(keepends=True)


def state(record: FileRecord) -> State:
    """What became of a file since it was written.

    Raises:
        IoFailed: It can't be read.
    """
    data = bytes_of(Path(record.path))
    if data is None:
        return "gone"
    return "as installed" if _digest(data) == record.left else "edited since"


def _targets(client: Client, scope: Scope, around: Surroundings, options: Options) -> tuple[_Target, ...]:
    paths = [around.path(template) for template in client.servers(scope)]
    path = _real(next((one for one in paths if one.exists()), paths[0]))
    server = _Target(path, server=True, comments=client.comments, table=client.entry is Entry.TABLE)
    if client.hooks is None:
        return (server,)
    wanted = hook_entries(client.hooks, options, around.platform) if options.hooks else ()
    place = _real(around.path(client.hooks.user if scope == "user" else client.hooks.project))
    if place == path:
        return (evolve(server, hooks=wanted),)
    return (server, _Target(place, hooks=wanted, comments=client.hooks.comments)) if wanted else (server,)


def _real(path: Path) -> Path:
    """The file itself: what a link leads to is changed, not the link."""
    try:
        return Path(os.path.realpath(path))
    except (OSError, ValueError):
        return path


def _with_target(work: _Work, target: _Target, client: Client, options: Options, old: Install | None) -> _Work:
    """Plan the change of one file of entries."""
    data = bytes_of(target.path)
    record = old.file(target.path) if old and data is not None else None

    def change() -> Changed:
        return changed(
            _text(data), client, options,
            server=target.server, hooks=target.hooks, old=record, comments=target.comments,
        )  # fmt: skip

    now = _told(target.path, client.name, change)
    after = now.text.encode()
    if after == data:
        if record is None:
            return work
        # Also where somebody edited it since: what is ours is still there.
        return evolve(work, files=(*work.files, evolve(record, server=now.server, hooks=now.hooks)))
    copies = work.copies
    if record is not None and data is not None:
        record = evolve(record, exact=record.exact and _digest(data) in (record.left, record.before))
    else:
        copy = None if data is None else _free(target.path)
        if copy is not None:
            copies = (*copies, Edit(copy, None, data, like=target.path))
        record = FileRecord(
            str(target.path),
            "toml" if target.table else "json",
            None if data is None else _digest(data),
            "",
            copy=None if copy is None else str(copy),
            comments=target.comments,
            directories=tuple(map(str, folders_missing(target.path.parent))),
        )
    record = evolve(record, left=_digest(after), server=now.server, hooks=now.hooks, made=now.made)
    edits = (*work.edits, Edit(target.path, data, after))
    return evolve(work, edits=edits, copies=copies, files=(*work.files, record))


def _with_skill(work: _Work, path: Path, old: Install | None, register: Register) -> _Work:
    """Plan the skill, a file that is wholly ours."""
    data, after = bytes_of(path), skill_text().encode()
    record = old.file(path) if old else None
    shared = register.others(str(path), old)
    known = record or (shared[0] if shared else None)
    if data is None:
        new = FileRecord(
            str(path), "whole", None, _digest(after), directories=tuple(map(str, folders_missing(path.parent)))
        )
        return evolve(work, edits=(*work.edits, Edit(path, None, after)), files=(*work.files, new))
    if known is not None and _digest(data) == known.left:
        new = evolve(known, left=_digest(after))
        edits = work.edits if data == after else (*work.edits, Edit(path, data, after))
        return evolve(work, edits=edits, files=(*work.files, new))
    if known is not None:
        note = f"{path} was edited since it was installed, and is left as it is."
        return evolve(work, files=(*work.files, known), notes=(*work.notes, note))
    if data == after:
        return work
    raise Conflict(f"{path} is there and agentmem did not write it", next="Move it elsewhere, or give --no-skill")


def _undone(work: _Work, record: FileRecord, register: Register, old: Install | None) -> _Work:
    """Plan to take out of one file what is ours."""
    path = Path(record.path)
    data = bytes_of(path)
    if data is None or (record.kind == "whole" and register.others(record.path, old)):
        return work
    copy = Path(record.copy) if record.copy is not None else None
    kept = bytes_of(copy) if copy is not None else None
    whole = kept is not None and _digest(kept) == record.before
    unneeded = (copy,) if copy is not None and whole else ()
    folders = tuple(Path(one) for one in reversed(record.directories))
    found = _digest(data)
    if found == record.before:
        return evolve(work, unneeded=(*work.unneeded, *unneeded))
    if found == record.left and record.exact and (record.before is None or whole):
        return evolve(
            work, edits=(*work.edits, Edit(path, data, kept)), unneeded=(*work.unneeded, *unneeded),
            directories=(*work.directories, *folders),
        )  # fmt: skip
    if record.kind == "whole":
        return evolve(work, notes=(*work.notes, f"{path} was edited since it was installed, and stays."))
    left = _told(path, None, lambda: undone(_text(data), record))
    after = None if left is None else left.encode()
    notes = work.notes
    if copy is not None and kept is not None and after != kept:
        notes = (*notes, f"{path} was edited since: only what is agentmem's goes. The copy from before stays: {copy}")
    elif copy is not None:
        work = evolve(work, unneeded=(*work.unneeded, *unneeded))
    edits = work.edits if after == data else (*work.edits, Edit(path, data, after))
    return evolve(work, edits=edits, directories=(*work.directories, *(folders if after is None else ())), notes=notes)


def _plan(work: _Work, before: Register, after: Register) -> Plan:
    return Plan(work.edits, work.copies, work.unneeded, work.directories, (before, after), work.notes)


def _told(path: Path, client: str | None, change: Callable[[], _T]) -> _T:
    """Do what may find a file wanting, and say which file it was and what to do."""
    try:
        return change()
    except (Conflict, InvalidInput) as error:
        show = "" if client is None else f"; what to add by hand prints agentmem mcp show {client}"
        raise type(error)(
            f"{path}: {error.what}", why=error.why, next=f"Nothing was written to any file. Correct this one{show}"
        ) from None


def _text(data: bytes | None) -> str:
    try:
        return (data or b"").decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"It is not text in UTF-8 at byte {error.start + 1}") from None


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _free(path: Path) -> Path:
    """A name for a copy beside a file that nothing has yet: a copy is never written over."""
    copy, number = path.with_name(path.name + _COPY), 1
    while os.path.lexists(copy):
        number += 1
        copy = path.with_name(f"{path.name}{_COPY}.{number}")
    return copy
