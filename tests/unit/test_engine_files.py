"""The file system beneath a store: network mounts, names that appear whole, who holds a lock."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.engine.database import Database, Migration
from agentmem.engine.files import NETWORK_TYPES, file_system_check, file_system_type, lock_holders, publish
from agentmem.errors import NetworkFileSystem, StorageWarning

SCHEMA = (Migration(1, "first", ("CREATE TABLE t (a INTEGER PRIMARY KEY) STRICT",)),)
MOUNTINFO = r"""22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 master:7 - ext4 /dev/vda rw,discard
35 27 0:30 / /mnt/nas rw,relatime shared:2 - nfs4 nas:/export rw,vers=4.2
36 27 0:31 / /mnt/old rw - nfs nas:/old rw
37 27 0:32 / /mnt/win rw,relatime - cifs //server/share rw
38 27 0:33 / /mnt/win3 rw,relatime - smb3 //server/share rw
39 27 0:34 / /mnt/c rw,noatime - 9p C:\134 rw,dirsync
40 27 0:35 / /home/u/remote rw,nosuid - fuse.sshfs u@host:/ rw,user_id=1000
41 27 0:36 / /mnt/with\040space rw - nfs4 nas:/s rw
42 35 0:37 / /mnt/nas/local rw - ext4 /dev/vdb rw
43 27 0:38 / /mnt/bucket rw - fuse.something bucket rw
44 27 0:39 / /mnt/covered rw - nfs4 nas:/c rw
45 27 0:40 / /mnt/covered rw - xfs /dev/vdc rw
46 27 0:41 / /mnt/plainfuse rw - fuseblk /dev/sda1 rw
a line that is no mount
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/home/u/store.db", "ext4"),
        ("/mnt/nas/store.db", "nfs4"),
        ("/mnt/old/a/b/store.db", "nfs"),
        ("/mnt/win/store.db", "cifs"),
        ("/mnt/win3/store.db", "smb3"),
        ("/mnt/c/Users/store.db", "9p"),
        ("/home/u/remote/store.db", "fuse.sshfs"),
        ("/mnt/with space/store.db", "nfs4"),
        ("/mnt/nas/local/store.db", "ext4"),
        ("/mnt/nasty/store.db", "ext4"),
        ("/mnt/bucket/store.db", "fuse.something"),
        ("/mnt/covered/store.db", "xfs"),
        ("/mnt/plainfuse/store.db", "fuseblk"),
        ("/mnt/nas", "nfs4"),
    ],
)
def test_the_longest_mount_point_decides(path: str, kind: str) -> None:
    """TRAPS 5: the type is that of the longest mount point, by whole names, the later of two equal ones."""
    assert file_system_type(MOUNTINFO, path) == kind


@given(st.text(max_size=300), st.text(max_size=40))
def test_no_text_breaks_the_parser(text: str, path: str) -> None:
    """Whatever the kernel writes, the parser answers with a string."""
    assert isinstance(file_system_type(text, "/" + path), str)


linux = pytest.mark.skipif(sys.platform != "linux", reason="mounts are listed in /proc on Linux alone")


def mount(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The kernel says that everything lies on one file system of a kind."""
    real = Path.read_text

    def read_text(self: Path, *args: Any, **kwargs: Any) -> str:
        if str(self) == "/proc/self/mountinfo":
            return f"27 1 254:0 / / rw,relatime - {kind} somewhere rw\n"
        return real(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", read_text)


@linux
@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "9p", "fuse.sshfs"])
def test_network_file_systems_are_refused_before_any_byte(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    """TRAPS 5: a store on a network file system is refused with its own error, and nothing is made there."""
    mount(monkeypatch, kind)
    with pytest.raises(NetworkFileSystem, match=kind):
        Database.open(tmp_path / "s.db", schema=SCHEMA, key=bytes(32))
    assert list(tmp_path.iterdir()) == []
    assert kind in NETWORK_TYPES


@linux
def test_unknown_fuse_warns_and_works(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TRAPS 5: another FUSE file system is used, with a warning."""
    mount(monkeypatch, "fuse.something")
    with pytest.warns(StorageWarning, match=r"fuse\.something"):
        Database.open(tmp_path / "s.db", schema=SCHEMA, key=bytes(32)).close()


def test_local_file_systems_pass_silently(tmp_path: Path) -> None:
    """The file system the tests run on is accepted without a warning."""
    file_system_check(tmp_path / "s.db")


LOCKS = """1: POSIX  ADVISORY  WRITE 4711 fe:00:131 120 120
1: -> POSIX  ADVISORY  WRITE 4712 fe:00:131 120 120
2: POSIX  ADVISORY  READ 4713 fe:00:131 123 123
3: POSIX  ADVISORY  WRITE 4714 fe:00:1310 120 120
4: POSIX  ADVISORY  WRITE 4715 fe:00:131 0 EOF
5: OFDLCK ADVISORY  WRITE -1 fe:00:131 120 120
6: FLOCK  ADVISORY  WRITE 4716 fe:00:999 0 EOF
7: POSIX  ADVISORY  WRITE 0 fe:00:131 120 120
"""


def test_lock_holders_are_read_by_inode_and_byte() -> None:
    """TRAPS 3: holders are those with a write lock over that byte of that inode; waiters and readers are not."""
    assert lock_holders(LOCKS, inode=131, offset=120) == (4711, 4715)
    assert lock_holders(LOCKS, inode=7, offset=120) == ()


def test_publish_never_replaces(tmp_path: Path) -> None:
    """TRAPS 1: the second of two finished files does not replace the first; both temporary names go."""
    target = tmp_path / "t"
    for content, won in (("first", True), ("second", False)):
        temporary = tmp_path / ".tmp"
        temporary.write_text(content)
        assert publish(temporary, target) is won
    assert target.read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


@pytest.mark.skipif(os.name != "posix", reason="the fallback is POSIX")
def test_publish_without_links_never_replaces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TRAPS 1: where the file system has no hard links, a lock file gives the same promise and goes when won."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "t"
    for content, won in (("first", True), ("second", False)):
        temporary = tmp_path / ".tmp"
        temporary.write_text(content)
        assert publish(temporary, target) is won
    assert target.read_text() == "first"
    assert {path.name for path in tmp_path.iterdir()} <= {"t", ".t.lock"}


def test_a_store_is_made_without_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """TRAPS 1: a store is made and opened where hard links are missing."""

    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "no links here")

    monkeypatch.setattr(os, "link", no_links)
    Database.open(tmp_path / "s.db", schema=SCHEMA, key=bytes(32)).close()
    assert [path.name for path in tmp_path.iterdir()] == ["s.db"]
