"""The file system beneath a store: how a file appears whole, what kind of file system it is on, who holds a lock.

Nothing here opens a database that may be in use: closing any descriptor of a file drops every POSIX lock this process
has on it, SQLite's too. Sizes come from `stat`.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from agentmem.errors import IoFailed, NetworkFileSystem, StorageWarning

__all__ = [
    "NETWORK_TYPES",
    "Identity",
    "beside",
    "directory_fsync",
    "file_fsync",
    "file_system_check",
    "file_system_of",
    "file_system_type",
    "identities",
    "identity_of",
    "io_failed",
    "lock_holders",
    "lock_pids",
    "private_file_make",
    "publish",
    "same_file",
    "size_of",
    "temporary_beside",
    "wal_readers",
]

NETWORK_TYPES: Final = frozenset(
    {
        *("nfs", "nfs3", "nfs4", "cifs", "smb", "smb2", "smb3", "smbfs", "9p", "afs", "ncpfs", "afpfs", "webdav"),
        *("ceph", "glusterfs", "lustre", "gpfs", "beegfs", "orangefs", "ocfs2", "gfs2"),
        *(
            "fuse.sshfs",
            "sshfs",
            "fuse.glusterfs",
            "fuse.ceph",
            "fuse.s3fs",
            "fuse.rclone",
            "fuse.davfs",
            "fuse.gcsfuse",
        ),
    }
)
"""File systems whose locks or shared memory do not hold between machines, by the kernel's name."""

_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.EXDEV, errno.EINVAL, errno.EACCES}
)
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


def size_of(path: Path) -> int:
    """The size of a file in bytes by `stat`, 0 where there is none."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


Identity: TypeAlias = tuple[int, int]
"""Which file it is, whatever its name: device and inode."""


def identity_of(path: Path) -> Identity | None:
    """Which file is at a path, None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def identities(path: Path) -> tuple[Identity | None, Identity | None, Identity | None]:
    """Which files are at the path of a database and beside it: itself, its WAL, the index of that."""
    return identity_of(path), identity_of(beside(path, "-wal")), identity_of(beside(path, "-shm"))


def same_file(path: Path, known: Identity | None) -> bool:
    """Whether the file at a path is the one known."""
    return identity_of(path) == known


def beside(path: Path, suffix: str) -> Path:
    """The file that SQLite keeps beside a database: `-wal`, `-shm`, `-journal`."""
    return path.with_name(path.name + suffix)


def private_file_make(path: Path) -> int:
    """Make a file that is not there yet, readable by this user alone from its first moment; return its descriptor."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0), 0o600)


def temporary_beside(path: Path) -> Path:
    """A name beside `path` that no other process and no other call uses: its own pid and 64 random bits are in it."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(8)}.tmp")


def file_fsync(path: Path) -> None:
    """Make the bytes of a file durable. Never for a database that is open in this process."""
    descriptor = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def directory_fsync(path: Path) -> None:
    """Make the names in a directory durable, where the system has a way to say so (Windows has none)."""
    if os.name != "posix":
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems answer "invalid argument" to a sync of a directory: they have nothing to sync there.
        if error.errno not in {errno.EINVAL, errno.EBADF, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def publish(temporary: Path, target: Path) -> bool:
    """Give a finished, synced file its name, whole and at once, unless the name is taken.

    Args:
        temporary: The finished file, in the same directory. It is gone afterwards.
        target: The name it is to have.

    Returns:
        Whether this call gave the name; False where `target` existed, which is then left as it is.
    """
    try:
        os.link(temporary, target)
    except FileExistsError:
        won = False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        won = _publish_locked(temporary, target)
    else:
        won = True
    temporary.unlink(missing_ok=True)
    directory_fsync(target.parent)
    return won


def _publish_locked(temporary: Path, target: Path) -> bool:
    """Rename under a lock file: for file systems without hard links, where a rename would replace the winner's file."""
    if os.name == "nt":
        try:
            os.rename(temporary, target)  # On Windows a rename never replaces.
        except FileExistsError:
            return False
        return True
    import fcntl

    lock = target.with_name(f".{target.name}.lock")
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        if target.exists():
            return False
        os.rename(temporary, target)
        # Only the winner takes the lock file away. Whoever waits on the old one, or makes a new one, finds the target.
        lock.unlink(missing_ok=True)
        return True
    finally:
        os.close(descriptor)


def file_system_type(mountinfo: str, path: str) -> str:
    r"""The type of the file system a path lies on, out of the text of `/proc/self/mountinfo`.

    The format is proc_pid_mountinfo(5): optional fields end with a lone `-`, spaces in a mount point are `\040`. Of
    equal mount points the later one covers the earlier.

    Args:
        mountinfo: The whole text.
        path: An absolute path without symbolic links.

    Returns:
        The kernel's name of the type (`ext4`, `nfs4`, `fuse.sshfs`), empty where no line fits.
    """
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        head, separator, tail = line.partition(" - ")
        fields = head.split(" ")
        if not separator or len(fields) < 5:
            continue
        point = fields[4]
        if "\\" in point:
            point = _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), point)
        prefix = point.rstrip("/") + "/"
        if (path + "/").startswith(prefix) and len(prefix) >= best:
            best, kind = len(prefix), tail.split(" ", 1)[0]
    return kind


def file_system_check(path: Path) -> None:
    """Refuse a path on a network file system, warn about an unknown FUSE one. Touches no byte of the file.

    Args:
        path: The file, absolute and without symbolic links. It need not exist.

    Raises:
        NetworkFileSystem: WAL needs shared memory and exact locks, which such a file system does not give.
    """
    kind = file_system_of(path)
    if kind in NETWORK_TYPES:
        raise NetworkFileSystem(
            f"{path} lies on a network file system ({kind})",
            why="SQLite's write-ahead log needs shared memory and exact locks, which it does not give",
            next="Keep the store on a local disk.",
        )
    if kind == "fuse" or kind.startswith(("fuse.", "macfuse", "osxfuse")):
        warnings.warn(
            f"{path} lies on a FUSE file system ({kind}): its locks may not hold; keep the store on a local disk",
            StorageWarning,
            stacklevel=2,
        )


def file_system_of(path: Path) -> str:
    """The type of the file system a path lies on, by the system's own name; empty where it does not tell."""
    if sys.platform == "win32":
        return _windows_drive(path)
    if sys.platform == "darwin":
        return _darwin_type(path)
    try:
        # Kernel bytes may be any bytes in a mount point; surrogateescape is how Python spells paths too.
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    return file_system_type(text, str(path))


def _windows_drive(path: Path) -> str:
    """`smb` for a network path or a drive that stands for one (GetDriveTypeW returns DRIVE_REMOTE, 4)."""
    if str(path).startswith("\\\\"):
        return "smb"
    import ctypes

    kernel = getattr(ctypes, "windll").kernel32  # noqa: B009  (the name exists on Windows alone)
    return "smb" if kernel.GetDriveTypeW(path.anchor) == 4 else ""


def _darwin_type(path: Path) -> str:
    """`f_fstypename` of the mount with the longest prefix, from `mount(8)`'s own source, getfsstat(2)."""
    import ctypes

    # struct statfs of 64-bit inodes: f_fstypename at 72 (16 bytes), f_mntonname at 88 (1024 bytes), 2168 bytes in all.
    size, type_at, point_at = 2168, 72, 88
    library = ctypes.CDLL(None, use_errno=True)
    getfsstat = getattr(library, "getfsstat$INODE64", None) or library.getfsstat
    count = getfsstat(None, 0, 2)
    if count <= 0:
        return ""
    buffer = ctypes.create_string_buffer(size * (count + 8))
    count = getfsstat(buffer, len(buffer), 2)
    best, kind = -1, ""
    for index in range(max(count, 0)):
        entry = buffer.raw[index * size : (index + 1) * size]
        point = entry[point_at : point_at + 1024].split(b"\0", 1)[0].decode(errors="surrogateescape")
        prefix = point.rstrip("/") + "/"
        if (str(path) + "/").startswith(prefix) and len(prefix) >= best:
            best, kind = len(prefix), entry[type_at : type_at + 16].split(b"\0", 1)[0].decode(errors="replace")
    return kind


def lock_holders(locks: str, *, inode: int, offset: int) -> tuple[int, ...]:
    """The pids that hold a write lock on one byte of a file, out of the text of `/proc/locks` (proc_locks(5)).

    Args:
        locks: The whole text.
        inode: The file's inode.
        offset: The byte, counted from 0.
    """
    pids: list[int] = []
    for line in locks.splitlines():
        fields = line.split()
        # A waiter's line has "->" after its number: it holds nothing.
        if len(fields) != 8 or fields[3] != "WRITE" or not _covers(fields, inode, offset):
            continue
        pid = int(fields[4])
        if pid > 0 and pid not in pids:
            pids.append(pid)
    return tuple(pids)


def lock_pids(identity: Identity) -> set[int] | None:
    """The pids that hold any lock on a file; None where the system does not tell (all but Linux).

    A pid of another container is given as 0 or -1: somebody, but not this process.
    """
    try:
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return None
    lines = [line.split() for line in locks.splitlines()]
    return {int(fields[4]) for fields in lines if len(fields) == 8 and fields[5].rpartition(":")[2] == str(identity[1])}


# WAL_READ_LOCK(0) to (4) in the -shm file (https://www.sqlite.org/walformat.html).
_READ_LOCK_BYTES: Final = range(123, 128)


def wal_readers(path: Path) -> tuple[int, ...]:
    """The pids that are inside a read transaction on a database in WAL mode, as their locks tell.

    Empty where the system does not tell (all but Linux). A pid of another container is given as 0 or -1.
    """
    try:
        inode = beside(path, "-shm").stat().st_ino
        locks = Path("/proc/locks").read_text(encoding="ascii")
    except OSError:
        return ()
    lines = [line.split() for line in locks.splitlines()]
    held = (line for line in lines if len(line) == 8 and any(_covers(line, inode, byte) for byte in _READ_LOCK_BYTES))
    return tuple(dict.fromkeys(int(line[4]) for line in held))


def _covers(fields: Iterable[str], inode: int, offset: int) -> bool:
    *_, place, first, last = fields
    if place.rpartition(":")[2] != str(inode):
        return False
    return int(first) <= offset and (last == "EOF" or offset <= int(last))


def io_failed(what: str, error: OSError) -> IoFailed:
    """The typed form of an error of the operating system about a file of a store."""
    return IoFailed(what, why=error.strerror or type(error).__name__)
