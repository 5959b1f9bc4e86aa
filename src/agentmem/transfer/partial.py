"""A file in the making: under a hidden name beside its own until it is whole and durable, so that work on it can go on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

from agentmem.engine.faults import no_directory
from agentmem.engine.files import identity_of, io_failed, private_file_make, publish
from agentmem.errors import AgentMemError, Busy, DiskFull, InvalidInput, IoFailed, StoreExists

__all__ = ["Partial"]

_TRIES: Final = 8


class Partial:
    """The beginning of a file, as a context manager. Where the block fails it is kept, to go on with.

    Args:
        target: The name the finished file is to have.
        resumable: Keep what was written; else nothing stays of a block that fails.

    Attributes:
        resumable: May be set to false when what was written is of no use any more.
        file: Open for reading and writing, in the mode 0600 and for this process alone.
    """

    file: BinaryIO

    def __init__(self, target: Path, *, resumable: bool) -> None:
        if not target.name:
            raise InvalidInput(f"{target} names no file", next="Give the path of a file that is to be made.")
        self.target = target
        self.resumable = resumable
        self.path = target.with_name(f".{target.name}.partial")

    def __enter__(self) -> Partial:
        if os.path.lexists(self.target):
            raise StoreExists(f"There is already something at {self.target}", next="Choose another name.")
        if not self.target.parent.is_dir():
            raise no_directory(self.target)
        try:
            self.file = self._opened()
        except AgentMemError:
            raise
        except OSError as error:
            raise self._typed(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None and not (self.resumable and self._begun()):
                self.path.unlink(missing_ok=True)  # while the lock is held: it is still this one
            self.file.close()
        except OSError as failed:
            if error is None:
                raise self._typed(failed) from failed
        if isinstance(error, OSError) and not isinstance(error, AgentMemError):
            raise self._typed(error) from error

    def _begun(self) -> bool:
        """Whether anything was written."""
        self.file.flush()
        return os.fstat(self.file.fileno()).st_size > 0

    def cut(self, length: int) -> None:
        """Keep only the first bytes, and write on after them."""
        self.file.seek(length)
        self.file.truncate()

    def publish(self) -> None:
        """Make the file durable and give it its name.

        Raises:
            StoreExists: Somebody else took the name meanwhile.
        """
        self.file.flush()
        os.fsync(self.file.fileno())
        if os.name == "nt":
            self.file.close()  # an open file has its name for good there
        if not publish(self.path, self.target):
            raise StoreExists(f"There is already something at {self.target}", next="Choose another name.")

    def _opened(self) -> BinaryIO:
        """The beginning that is there, if it is ours and nobody writes to it; else a new file."""
        for _ in range(_TRIES):
            try:
                descriptor = private_file_make(self.path)
            except FileExistsError:
                try:
                    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
                    descriptor = os.open(self.path, flags | getattr(os, "O_NONBLOCK", 0))
                except FileNotFoundError:
                    continue
            file = os.fdopen(descriptor, "r+b")
            try:
                if self._ours(file):
                    return file
            except BaseException:
                file.close()
                raise
            file.close()
        raise IoFailed(f"No file can be made at {self.path}", why="It comes and goes", next="Choose another name.")

    def _ours(self, file: BinaryIO) -> bool:
        """Lock the file, and make sure that it is at its path still and at no other."""
        if not _locked(file):
            raise Busy(
                f"Another export to {self.target} is going on", next="Wait for it to finish, or choose another name."
            )
        status = os.fstat(file.fileno())
        if identity_of(self.path) != (status.st_dev, status.st_ino):
            return False  # its maker finished it between our opening and our lock
        if status.st_nlink > 1:
            # A finished export, whose maker was killed before this second name of it was gone.
            self.path.unlink()
            return False
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            raise IoFailed(
                f"{self.path} is not a file of this user alone",
                next="Choose another name, or find out whose file it is.",
            )
        return True

    def _typed(self, error: OSError) -> AgentMemError:
        if error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
            return DiskFull(
                f"No space is left for an export in {self.target.parent}",
                next="Make room there, and export to the same name again: it goes on where it stopped.",
            )
        return io_failed(f"No export can be written to {self.target}", error)


def _locked(file: BinaryIO) -> bool:
    """Take the lock of a file, which goes with its descriptor; False where another process or thread has it."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(0)
            getattr(msvcrt, "locking")(file.fileno(), getattr(msvcrt, "LK_NBLCK"), 1)  # noqa: B009  (Windows alone)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES, errno.EDEADLK):
            return False
        raise
    return True
