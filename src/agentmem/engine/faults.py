"""What SQLite, the cipher and the file itself say, in errors of ours."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final, NoReturn

import apsw

from agentmem.engine.files import beside, lock_holders
from agentmem.errors import (
    AgentMemError,
    Busy,
    Closed,
    Conflict,
    Corrupt,
    DiskFull,
    IoFailed,
    NewerFile,
    NotAStore,
    ReadOnly,
    StoreMissing,
    StoreReplaced,
    WrongKey,
)

__all__ = [
    "ANOTHER_TASK",
    "ANOTHER_THREAD",
    "INTERRUPTED",
    "OUT_OF_ORDER",
    "another_tasks",
    "busy",
    "closed",
    "empty_file",
    "entered_twice",
    "moved",
    "newer_file",
    "no_directory",
    "not_entered",
    "not_kept",
    "not_ours",
    "rethrow",
    "translated",
    "write_lock_holders",
    "wrong_key",
]

_WRITE_LOCK_BYTE: Final = 120  # WAL_WRITE_LOCK in the -shm file (https://www.sqlite.org/walformat.html)


def translated(error: BaseException, path: Path) -> AgentMemError | None:
    """An error of SQLite about the file in our own terms; None for what is about a statement or its values."""
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return busy(path)
        case apsw.NotADBError() | apsw.CorruptError():
            return Corrupt(
                f"{path} is damaged",
                why=_text(error),
                next="Run agentmem doctor to see how far, and restore a backup to another path.",
            )
        case apsw.ReadOnlyError():
            return ReadOnly(f"{path} cannot be written to", why=_text(error), next="Open it without read_only.")
        case apsw.FullError():
            return DiskFull(
                f"No space is left for a write to {path}", next="Make room on the disk; what was acknowledged is safe."
            )
        case apsw.IOError() | apsw.CantOpenError():
            return IoFailed(f"The system could not read, write or open a file of {path}", why=_text(error))
        case _:
            return None


def _text(error: BaseException) -> str:
    code = getattr(error, "extendedresult", None)
    name = apsw.mapping_extended_result_codes.get(code) if isinstance(code, int) else None
    return f"SQLite says: {error}" + (f" ({name})" if isinstance(name, str) else "")


def busy(path: Path) -> Busy:
    """The error for a write lock that did not come free in time, with who holds it where the system tells."""
    holders = write_lock_holders(path)
    named = " and ".join(str(pid) for pid in holders)
    who = "this process, through another opening of it" if os.getpid() in holders else "another process"
    return Busy(
        f"{path} is being written to by {who}" + (f" (pid {named})" if named else ""),
        why="It held the write lock for longer than the busy timeout",
        next="Try again, or open with a longer busy_timeout.",
    )


def write_lock_holders(path: Path) -> tuple[int, ...]:
    """The pids that hold the write lock of the file. Empty where the system does not tell (all but Linux)."""
    try:
        inode = beside(path, "-shm").stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return ()
    return lock_holders(locks, inode=inode, offset=_WRITE_LOCK_BYTE)


def rethrow(error: BaseException, path: Path) -> NoReturn:
    """Raise an error as ours where it is about the file, else as it is."""
    typed = translated(error, path)
    if typed is None:
        raise error
    raise typed from error


def wrong_key(path: Path) -> WrongKey:
    """The error for a first page that does not decrypt."""
    return WrongKey(
        f"{path} could not be opened: wrong key or damaged first page",
        next="Check where the key comes from: `agentmem key where` says it.",
    )


def not_ours(path: Path) -> NotAStore:
    """The error for a database whose `application_id` is not ours."""
    return NotAStore(
        f"{path} is a database of another program",
        why="It does not carry agentmem's application_id",
        next="Choose another path; the file was left as it is.",
    )


def empty_file(path: Path) -> NotAStore:
    """The error for a file of no bytes."""
    return NotAStore(
        f"{path} is empty",
        why="A store is never empty: the file was cut, or made by something else",
        next="Restore it from a backup, or choose another path.",
    )


def no_directory(path: Path) -> StoreMissing:
    """The error for a file whose directory is missing."""
    return StoreMissing(f"The directory {path.parent} does not exist", next="Make it first, or correct the path.")


def newer_file(path: Path, found: int, known: int) -> NewerFile:
    """The error for a file with more migrations than this program knows."""
    return NewerFile(
        f"{path} was written by a later version of agentmem",
        why=f"Its schema has number {found}, this version knows {known}; nothing was written",
        next="Upgrade agentmem, or open another file.",
    )


def closed(path: Path) -> Closed:
    """The error for a use after close."""
    return Closed(f"The store {path} is closed", next="Open it again.")


def moved(path: Path) -> StoreMissing | StoreReplaced:
    """The error for an open file that is not at its path any more."""
    if os.path.lexists(path):
        return StoreReplaced(
            f"There is another file at {path} than the one that is open",
            why="It was replaced while it was open; nothing that is written now would be found there",
            next="Close this store and open the path again.",
        )
    return StoreMissing(
        f"{path} was deleted or moved away while it was open",
        why="Nothing that is written now would be found there",
        next="Put it back, or close this store and open another path.",
    )


OUT_OF_ORDER: Final = "It was left while a block inside it was still open"
ANOTHER_TASK: Final = "It was left in another asyncio task than it was entered in"
ANOTHER_THREAD: Final = "It was left in another thread than it was entered in"
INTERRUPTED: Final = "An interrupt ended it, or the block around it"


def not_kept(why: str) -> Conflict:
    """The error for a transaction that was rolled back because of how its blocks were left."""
    return Conflict(
        "Nothing of this transaction was kept",
        why=why,
        next="Enter and leave a transaction in one thread and one task, the inner block before the outer.",
    )


def another_tasks() -> Conflict:
    """The error for a write of one asyncio task inside the transaction of another."""
    return Conflict(
        "Another asyncio task of this thread is inside a transaction",
        why="A transaction cannot be held across an await while other tasks write: theirs would become a part of it",
        next="Await nothing inside a transaction, or do one at a time with a lock.",
    )


def entered_twice() -> Conflict:
    """The error for entering a block inside itself."""
    return Conflict("This transaction was entered already", next="Make another one for the inner block.")


def not_entered() -> Conflict:
    """The error for leaving what was not entered, or has been left."""
    return Conflict("This transaction is not open", why="It was never entered, or has been left already")
