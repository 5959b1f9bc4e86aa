"""The write-ahead log as it lies on disk, frame by frame, as SQLite itself would read it after a crash.

The format: https://www.sqlite.org/walformat.html. A header of 32 bytes, then frames of 24 bytes and one page. The frames
of the present round carry the salts of the header, and each a checksum over all before it: SQLite reads up to the last
commit before the first frame that fails, and passes over whatever lies behind.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from attrs import field, frozen

from agentmem.engine.files import beside, size_of
from agentmem.engine.keys import RawKey
from agentmem.engine.pages import PAGE_BYTES, PageMac, RawFile
from agentmem.errors import IoFailed

__all__ = ["Wal", "wal_read"]

_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_FRAME_BYTES: Final = _FRAME_HEADER_BYTES + PAGE_BYTES
_MAGIC: Final = (0x377F0682, 0x377F0683)
_MASK: Final = 0xFFFFFFFF
_TRIES: Final = 20


@frozen
class Wal:
    """What a write-ahead log holds.

    Attributes:
        bytes: Its size.
        pages: Of each page that a committed frame holds, where its newest image begins in the file.
        page_count: The pages of the database after the last commit; 0 where there was none.
        damaged: Pages whose committed image is not authentic under the key.
        unreachable: Commits behind a frame whose checksum fails: they were written, and SQLite does not see them.
        header_damaged: The log is not empty, and its header does not hold: SQLite takes all of it for empty.
    """

    bytes: int = 0
    pages: Mapping[int, int] = field(factory=dict)
    page_count: int = 0
    damaged: tuple[int, ...] = ()
    unreachable: int = 0
    header_damaged: bool = False


def wal_read(path: Path, raw: RawKey | None) -> Wal:
    """Read the write-ahead log of a database, whoever has it open.

    Args:
        path: The database.
        raw: Its key, None for a plain file.

    Raises:
        IoFailed: The system could not read it.
    """
    wal = beside(path, "-wal")
    found = Wal(bytes=size_of(wal))
    if found.bytes < _HEADER_BYTES:
        return found
    try:
        with RawFile(wal, wal=True) as file:
            for _ in range(_TRIES):
                header = file.read(_HEADER_BYTES, 0)
                found = _Reading(file, header).run(None if raw is None else PageMac(raw))
                # Begun anew by a writer meanwhile, its frames are of two rounds.
                if file.read(_HEADER_BYTES, 0) == header:
                    break
    except IoFailed:
        if wal.exists():
            raise
        return Wal()  # who had the file open last took it away
    return found


class _Reading:
    """One pass over the frames."""

    def __init__(self, file: RawFile, header: bytes) -> None:
        self._file = file
        self._header = header
        # The lowest bit of the magic number says in which order the checksum takes the bytes of a word.
        self._order = ">" if header[3:4] == b"\x83" else "<"

    def run(self, mac: PageMac | None) -> Wal:
        """Read all of it."""
        header, total = self._header, self._file.size()
        if len(header) < _HEADER_BYTES:
            return Wal(bytes=total)
        magic, _, page_bytes = struct.unpack(">III", header[:12])
        sums = self._summed(header[:24], (0, 0))
        if magic not in _MAGIC or page_bytes != PAGE_BYTES or struct.pack(">II", *sums) != header[24:32]:
            return Wal(bytes=total, header_damaged=any(header))
        pages: dict[int, int] = {}
        pending: dict[int, int] = {}
        count = behind = 0
        broken = False
        for at in range(_HEADER_BYTES, total - _FRAME_BYTES + 1, _FRAME_BYTES):
            frame = self._file.read(_FRAME_BYTES, at)
            if len(frame) < _FRAME_BYTES:
                break
            if frame[8:16] != header[16:24]:
                # Of an earlier round, as all that follow are; or changed, and then there are some of this round behind it.
                broken = True
                continue
            number, size = struct.unpack(">II", frame[:8])
            if not broken:
                sums = self._summed(frame[:8] + frame[_FRAME_HEADER_BYTES:], sums)
                broken = struct.pack(">II", *sums) != frame[16:24]
            if broken:
                behind += size > 0 and (mac is None or mac.authentic(frame[_FRAME_HEADER_BYTES:], number))
                continue
            pending[number] = at + _FRAME_HEADER_BYTES
            if size:
                pages.update(pending)
                pending.clear()
                count = size
        bad = () if mac is None else tuple(sorted(number for number in pages if not self._sound(mac, number, pages)))
        return Wal(total, pages, count, bad, behind)

    def _sound(self, mac: PageMac, number: int, pages: dict[int, int]) -> bool:
        return mac.authentic(self._file.read(PAGE_BYTES, pages[number]), number)

    def _summed(self, data: bytes, sums: tuple[int, int]) -> tuple[int, int]:
        one, two = sums
        words = iter(struct.unpack(f"{self._order}{len(data) // 4}I", data))
        for first in words:
            one = (one + first + two) & _MASK
            two = (two + next(words) + one) & _MASK
        return one, two
