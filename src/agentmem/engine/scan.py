"""Every page of a file held against its HMAC, below SQL: it works on a file that does not open."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import frozen

from agentmem.engine.files import beside, size_of
from agentmem.engine.keys import RawKey
from agentmem.engine.pages import PAGE_BYTES, PageMac, RawFile
from agentmem.engine.wal import Wal, wal_read
from agentmem.errors import IoFailed

__all__ = ["LOCK_PAGE", "Scan", "runs", "scan", "waiting"]

# The page that holds byte 2^30, where SQLite's locks are: never written, never read (sqlite.org/fileformat2.html).
LOCK_PAGE: Final = 2**30 // PAGE_BYTES + 1
_CHUNK_PAGES: Final = 256
_LOOKS: Final = 3


@frozen
class Scan:
    """What the bytes of a file tell by themselves.

    Attributes:
        pages: Whole pages in the file.
        damaged: The numbers of those that are not authentic or not there, and have no newer image in the write-ahead log.
        blank: How many of the damaged are nothing but zeros.
        rest: Bytes behind the last whole page.
        wal: The write-ahead log.
    """

    pages: int
    damaged: tuple[int, ...]
    blank: int
    rest: int
    wal: Wal

    @property
    def lost(self) -> tuple[int, ...]:
        """The pages that can't be read at all: neither here nor in the write-ahead log."""
        return tuple(sorted({*self.damaged, *self.wal.damaged}))


def scan(path: Path, raw: RawKey | None) -> Scan:
    """Check every page of an encrypted file and of its write-ahead log, whoever has it open.

    Args:
        path: The file.
        raw: Its key and salt; None for a plain file, whose pages have nothing to be checked by.

    Raises:
        IoFailed: The system could not read it.
    """
    size = size_of(path)
    if raw is None:
        return Scan(size // PAGE_BYTES, (), 0, size % PAGE_BYTES, wal_read(path, None))
    mac = PageMac(raw)
    with RawFile(path) as file:
        damaged = _failing(file, mac)
        wal = wal_read(path, raw)
        # SQLite takes what the file lacks for zeros, and asks no HMAC of it.
        damaged += [
            number for number in range(file.size() // PAGE_BYTES + 1, wal.page_count + 1) if number != LOCK_PAGE
        ]
        for _ in range(_LOOKS):
            # A checkpoint may be half done with a page, or has been done since it was looked at.
            pages = (number for number in damaged if number not in wal.pages)
            damaged = [number for number in pages if not mac.authentic(_page(file, number), number)]
            if damaged:
                wal = wal_read(path, raw)
        blank = sum(not any(_page(file, number)) for number in damaged)
    return Scan(size // PAGE_BYTES, tuple(damaged), blank, size % PAGE_BYTES, wal)


def waiting(path: Path, wal: Wal) -> int:
    """How many pages of the write-ahead log were not written back yet: the file has other bytes in their place."""
    log_path = beside(path, "-wal")
    if not wal.pages:
        return 0
    try:
        with RawFile(path) as file, RawFile(log_path, wal=True) as log:
            return sum(_page(file, number) != log.read(PAGE_BYTES, place) for number, place in wal.pages.items())
    except IoFailed:
        if log_path.exists():
            raise
        return 0


def _page(file: RawFile, number: int) -> bytes:
    return file.read(PAGE_BYTES, (number - 1) * PAGE_BYTES)


def _failing(file: RawFile, mac: PageMac) -> list[int]:
    found: list[int] = []
    number = 1
    while chunk := file.read(_CHUNK_PAGES * PAGE_BYTES, (number - 1) * PAGE_BYTES):
        for at in range(0, len(chunk) - PAGE_BYTES + 1, PAGE_BYTES):
            if number != LOCK_PAGE and not mac.authentic(chunk[at : at + PAGE_BYTES], number):
                found.append(number)
            number += 1
        if len(chunk) < _CHUNK_PAGES * PAGE_BYTES:
            break
    return found


def runs(numbers: tuple[int, ...], most: int = 8) -> str:
    """Page numbers for people: `3, 7-9, 12 and 40 more`."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in spans[:most])
    left = sum(last - first + 1 for first, last in spans[most:])
    return told + (f" and {left} more" if left else "")
