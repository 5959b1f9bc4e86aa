"""What lies around a file: the place, left-overs of killed processes, who holds locks, room on the disk."""

from __future__ import annotations

import os
import re
import shutil
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from agentmem.engine.faults import write_lock_holders
from agentmem.engine.files import (
    NETWORK_TYPES,
    beside,
    file_system_of,
    identity_of,
    lock_pids,
    size_of,
    wal_readers,
)
from agentmem.engine.growth import LARGE_BYTES
from agentmem.errors import shown
from agentmem.upkeep.diagnosis import Finding, Severity

__all__ = ["around", "leftovers", "pids_told", "place", "take_away"]

_IDLE_SECONDS: Final = 600
_ROOM_BYTES: Final = 64 * 1024 * 1024
_TEMPORARY: Final = r"\.{1,2}%s\.([0-9]+)-[0-9a-f]{16}\.tmp(?:\.[0-9]+-[0-9a-f]{16}\.tmp)?(?:-wal|-shm|-journal)?"


def place(path: Path) -> Finding | None:
    """Why there can't be a store at a path; None where there may be one."""
    if not path.parent.is_dir():
        return _fault("no_directory", "There is no such directory.", "Correct the path.", safe=True)
    wal = " Its write-ahead log is still there." if path.name and size_of(beside(path, "-wal")) else ""
    if not os.path.lexists(path):
        # Where nothing ever was nothing is lost; a write-ahead log tells of a store whose file is gone.
        next = "Correct the path, or restore a backup to it."
        return _fault("no_file", f"There is no file at the path.{wal}", next, safe=not wal)
    if not path.is_file():
        return _fault("not_a_file", "What is there is not a regular file.", "Choose another path.", safe=True)
    if size_of(path) == 0:
        return _fault(
            "empty_file",
            f"The file is empty, which a store never is: it was cut, or made by something else.{wal}",
            "Restore a backup to another path.",
            safe=False,
        )
    return None


def _fault(code: str, what: str, next: str, *, safe: bool) -> Finding:
    return Finding(code, Severity.FAULT, what, safe, next)


def around(path: Path, *, waiting: int) -> Iterator[Finding]:
    """What there is to say of where a file lies and who uses it.

    Args:
        path: The file.
        waiting: Pages in the write-ahead log that were not written back.
    """
    yield from _file_system(path)
    yield from _room(path)
    yield from _left(path)
    yield from _users(path)
    yield from _waiting(path, waiting)


def _file_system(path: Path) -> Iterator[Finding]:
    kind = file_system_of(path)
    if kind in NETWORK_TYPES:
        yield Finding(
            "network_file_system",
            Severity.FAULT,
            f"The file lies on a network file system ({kind}), which has no exact locks and no shared memory.",
            safe=True,
            next="Close every use of it and restore it to a local disk: Store.restore reads it from there.",
        )
    elif kind == "fuse" or kind.startswith(("fuse.", "macfuse", "osxfuse")):
        yield Finding(
            "fuse_file_system",
            Severity.WARNING,
            f"The file lies on a FUSE file system ({kind}): its locks may not hold.",
            safe=True,
            next="Keep the store on a local disk.",
        )


def _room(path: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(path.parent).free
    needed = max(size_of(path), _ROOM_BYTES)
    if free < needed:
        yield Finding(
            "disk_low",
            Severity.WARNING,
            f"{free // 2**20} MiB are free where the file lies, less than it needs for a backup or a new key.",
            safe=True,
            next="Make room on the disk.",
        )
    mode = path.stat().st_mode
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        yield Finding(
            "file_open",
            Severity.NOTE,
            f"Others may open the file: its mode is {stat.S_IMODE(mode):04o}.",
            safe=True,
            next=f"Close it with chmod 600 {shown(str(path))}.",
        )


def _left(path: Path) -> Iterator[Finding]:
    found = list(leftovers(path))
    if found:
        size = sum(size_of(each) for each in found)
        yield Finding(
            "leftover_files",
            Severity.WARNING,
            f"Processes that ended in the middle of their work left {len(found)} files here, {size // 1024} KiB:"
            f" {', '.join(shown(each.name) for each in found[:3])}{', …' if len(found) > 3 else ''}.",
            safe=True,
            next="A repair takes them away; no store needs them.",
        )


def leftovers(path: Path) -> Iterator[Path]:
    """Temporary files of ours beside a path, whose process is gone and that nobody holds or wrote to for ten minutes.

    The process may have been one of another container, whose number tells nothing here: hence the ten minutes.
    """
    pattern = re.compile(_TEMPORARY % re.escape(path.name))
    for each in sorted(path.parent.iterdir()):
        match = pattern.fullmatch(each.name)
        if match is None or each.is_symlink() or not each.is_file() or _alive(int(match[1])):
            continue
        identity = identity_of(each)
        if identity is None or lock_pids(identity):
            continue
        if time.time() - each.stat().st_mtime >= _IDLE_SECONDS:
            yield each


def take_away(path: Path) -> list[str]:
    """Take away what `leftovers` finds.

    Returns:
        What was done, one sentence each.
    """
    done = []
    for each in leftovers(path):
        each.unlink(missing_ok=True)
        done.append(f"took away {shown(each.name)}, left by a process that is gone")
    return done


def _alive(pid: int) -> bool:
    """Whether a process of this number is there, whoever's it is."""
    if os.name == "nt":
        import ctypes

        kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  (the name exists on Windows alone)
        handle = kernel.OpenProcess(0x1000, False, pid)  # PROCESS_QUERY_LIMITED_INFORMATION
        if handle:
            kernel.CloseHandle(handle)
        return bool(handle)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def pids_told(pids: tuple[int, ...] | set[int]) -> str:
    """Process numbers for people; those of another container have none here."""
    known = sorted(pid for pid in pids if pid > 0)
    told = [f"pid {pid}" + (" (this process)" if pid == os.getpid() else "") for pid in known]
    if any(pid <= 0 for pid in pids):
        told.append("a process of another container")
    return ", ".join(told)


def _users(path: Path) -> Iterator[Finding]:
    shared = identity_of(beside(path, "-shm"))
    pids = None if shared is None else lock_pids(shared)
    if not pids:
        return
    parts = [f"The file is in use by {pids_told(pids)}."]
    if writers := write_lock_holders(path):
        parts.append(f"Its write lock is held by {pids_told(writers)}.")
    if readers := wal_readers(path):
        parts.append(f"Read by {pids_told(readers)} just now.")
    yield Finding("in_use", Severity.NOTE, " ".join(parts), safe=True, next="")


def _waiting(path: Path, waiting: int) -> Iterator[Finding]:
    size = size_of(beside(path, "-wal"))
    if size <= LARGE_BYTES and not waiting:
        return
    # In WAL mode only a checkpoint writes to the file itself.
    seconds = max(0, round(time.time() - path.stat().st_mtime))
    readers = wal_readers(path)
    large = size > LARGE_BYTES
    why = f" {pids_told(readers)} is reading, which keeps it." if readers and large else ""
    yield Finding(
        "wal_large" if large else "wal_waiting",
        Severity.WARNING if large else Severity.NOTE,
        f"The write-ahead log is {size // 1024} KiB; {waiting} pages of it wait to be written back, the last time was"
        f" {seconds} s ago.{why}",
        safe=True,
        next="End long readings, then write anything or close the store: the log is cut." if large else "",
    )
