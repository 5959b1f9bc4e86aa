"""The pages of the file as they lie on disk, read without SQL and without harm.

The format is SQLCipher 4 (https://www.zetetic.net/sqlcipher/design/): pages of 4096 bytes; the first 16 bytes of the
file are the salt; each page ends with 16 bytes of IV and 64 of HMAC-SHA512 over content, IV and the page's number. A
page that is authentic under a key proves the key before SQLite sees either.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from typing import Final

import apsw

from agentmem.engine.faults import empty_file, not_ours, rethrow, wrong_key
from agentmem.engine.files import beside, size_of
from agentmem.engine.keys import RawKey, stretch
from agentmem.errors import NotAStore

__all__ = [
    "APPLICATION_ID",
    "PAGE_BYTES",
    "PLAIN_HEADER",
    "FirstPage",
    "PageMac",
    "RawFile",
    "encrypted_check",
    "first_page",
    "first_page_now",
    "first_page_state",
    "key_fits",
    "page_authentic",
    "page_read",
    "plain_check",
    "raw_key_of",
]

APPLICATION_ID: Final = 0x61676D65  # "agme": SQLite's own mark of whose file it is, a positive 32-bit integer
PLAIN_HEADER: Final = b"SQLite format 3\0"
PAGE_BYTES: Final = 4096

_WAL_HEADER_BYTES: Final = 32
_FRAME_HEADER_BYTES: Final = 24
_OTHER_PAGES: Final = 8
_BASE_VFS: Final = "win32" if os.name == "nt" else "unix"  # without the cipher on top: raw bytes


class RawFile:
    """A database or its WAL as it lies on disk, open for reading: `with RawFile(path) as file:`.

    Read through SQLite's own file layer, below the cipher: an `open()` of ours, once closed, would drop the POSIX locks
    of every connection this process has to the file.
    """

    __slots__ = ("_file", "_path")

    def __init__(self, path: Path, *, wal: bool = False) -> None:
        """Open it; `wal` says that it is a write-ahead log."""
        kind = apsw.SQLITE_OPEN_WAL if wal else apsw.SQLITE_OPEN_MAIN_DB
        self._path = path
        try:
            self._file = apsw.VFSFile(_BASE_VFS, str(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])
        except apsw.Error as error:
            rethrow(error, path)

    def __enter__(self) -> RawFile:
        """Return itself; leaving the block closes it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close it."""
        self._file.xClose()

    def read(self, count: int, at: int) -> bytes:
        """So many bytes from a place on, fewer at the end of the file.

        Raises:
            IoFailed: The system could not read them.
        """
        try:
            there = max(0, min(count, self._file.xFileSize() - at))
            # Asked for more than there is, apsw takes zeros at the end of the file for its end.
            return bytes(self._file.xRead(there, at)).ljust(there, b"\0") if there else b""
        except apsw.Error as error:
            rethrow(error, self._path)

    def size(self) -> int:
        """Bytes in all."""
        try:
            return self._file.xFileSize()
        except apsw.Error as error:
            rethrow(error, self._path)


class PageMac:
    """Tells whether pages are authentic under one key: by the HMAC at the end of each."""

    __slots__ = ("_key",)

    def __init__(self, raw: RawKey) -> None:
        """Derive the key of the HMAC, as SQLCipher 4 does: two rounds of PBKDF2 with a salt of its own."""
        mac_salt = bytes(byte ^ 0x3A for byte in raw.salt)
        self._key = hashlib.pbkdf2_hmac("sha512", raw.key, mac_salt, 2, 32)

    def authentic(self, page: bytes, number: int) -> bool:
        """Whether the HMAC of a page is right.

        Args:
            page: 4096 bytes as on disk or in a frame of the WAL.
            number: The page's number, from 1.
        """
        if len(page) != PAGE_BYTES:
            return False
        begin = 16 if number == 1 else 0
        signed = page[begin : PAGE_BYTES - 64] + number.to_bytes(4, "little")
        return hmac.compare_digest(hmac.digest(self._key, signed, "sha512"), page[PAGE_BYTES - 64 :])


class FirstPage(Enum):
    """What a first page and a key say of each other."""

    SOUND = "sound"
    DAMAGED = "damaged"
    WRONG_KEY = "wrong_key"


def first_page(path: Path) -> bytes:
    """Page 1, which may be short: all that is there of it."""
    return page_read(path, 1)


def page_read(path: Path, number: int) -> bytes:
    """One page of the file as it lies on disk, empty behind the end."""
    with RawFile(path) as file:
        return file.read(PAGE_BYTES, (number - 1) * PAGE_BYTES)


def page_authentic(page: bytes, number: int, raw: RawKey) -> bool:
    """Whether the HMAC of a page is right under a key.

    Args:
        page: 4096 bytes as on disk or in a frame of the WAL.
        number: The page's number, from 1.
        raw: Key and salt.
    """
    return PageMac(raw).authentic(page, number)


def raw_key_of(path: Path, material: bytes | str) -> RawKey:
    """The raw key and salt of an existing encrypted file, checked against its first page. Changes no byte.

    Raises:
        NotAStore: The file is empty, too short, or not encrypted.
        WrongKey: The page is not authentic under the key.
    """
    seen = b""
    while True:
        page = first_page(path)
        encrypted_check(path, page)
        raw = stretch(material, page[:16])
        if key_fits(path, page, raw):
            return raw
        # A checkpoint of another process may be half done with the page: only the same bytes twice are a verdict.
        if page == seen:
            raise wrong_key(path)
        seen = page


def key_fits(path: Path, page: bytes, raw: RawKey) -> bool:
    """Whether a key is that of the file: by its first page, or by a first page that still waits in the WAL.

    The WAL counts because a new key is written there first.
    """
    mac = PageMac(raw)
    return mac.authentic(page, 1) or any(mac.authentic(waiting, 1) for waiting, _ in _first_pages_waiting(path))


def first_page_now(path: Path) -> bytes:
    """Page 1 as the last commit left it: it may still wait in the WAL.

    The checksums of the frames are not computed, so after a power cut a commit may be taken for whole that SQLite will
    not take so. Which key is the right one is certain only once a connection has read with it.
    """
    now = first_page(path)
    for waiting, committed in _first_pages_waiting(path):
        if committed:
            now = waiting
    return now


def _first_pages_waiting(path: Path) -> Iterator[tuple[bytes, bool]]:
    """Each page 1 in the WAL, in order, and whether its transaction was committed.

    The format is https://www.sqlite.org/fileformat2.html#walformat: a header whose bytes 16 to 24 are salts, then frames,
    each with a header of page number, size of the database after a commit (0 in all other frames) and the same salts.
    """
    wal = beside(path, "-wal")
    if size_of(wal) < _WAL_HEADER_BYTES:
        return
    places: list[int] = []
    with RawFile(wal, wal=True) as file:
        salts = file.read(_WAL_HEADER_BYTES, 0)[16:24]
        at = _WAL_HEADER_BYTES
        # Frames of an earlier round of the WAL carry other salts, and all that come after them are of one too.
        while len(frame := file.read(_FRAME_HEADER_BYTES, at)) == _FRAME_HEADER_BYTES and frame[8:16] == salts:
            if frame[:4] == b"\0\0\0\1":
                places.append(at + _FRAME_HEADER_BYTES)
            if frame[4:8] != b"\0\0\0\0":
                yield from ((file.read(PAGE_BYTES, place), True) for place in places)
                places.clear()
            at += _FRAME_HEADER_BYTES + PAGE_BYTES
        yield from ((file.read(PAGE_BYTES, place), False) for place in places)


def first_page_state(path: Path, material: bytes | str) -> FirstPage:
    """Tell a wrong key from a damaged first page: a key that fits a later page is the right one.

    The salt must be intact for it: it is a part of the first page, and every page's HMAC depends on it.

    Args:
        path: An encrypted file.
        material: 32 bytes or a passphrase.
    """
    page = first_page(path)
    encrypted_check(path, page)
    raw = stretch(material, page[:16])
    if key_fits(path, page, raw):
        return FirstPage.SOUND
    later = (page_authentic(page_read(path, number), number, raw) for number in range(2, 2 + _OTHER_PAGES))
    return FirstPage.DAMAGED if any(later) else FirstPage.WRONG_KEY


def plain_check(path: Path) -> None:
    """Refuse a file that is no plain store of ours, by its first bytes, before any SQL could roll back its journal.

    Raises:
        NotAStore: The file is empty, encrypted, no SQLite database, or another program's.
    """
    page = first_page(path)
    _empty_check(path, page)
    if page[:16] != PLAIN_HEADER:
        raise NotAStore(
            f"{path} is encrypted, or no SQLite database",
            next="Open it without encrypted=False.",
        )
    if page[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise not_ours(path)


def _empty_check(path: Path, page: bytes) -> None:
    if not page:
        raise empty_file(path)


def encrypted_check(path: Path, page: bytes) -> None:
    """Refuse a file that can't be an encrypted store, by its first page, before any key is asked for.

    Raises:
        NotAStore: The file is empty, plain or too short.
    """
    _empty_check(path, page)
    if page[:16] == PLAIN_HEADER:
        raise NotAStore(f"{path} is not encrypted", next="If it is to be a plain store, open it with encrypted=False.")
    if len(page) < PAGE_BYTES:
        raise NotAStore(f"{path} is shorter than one page, so it is no store", next="Restore it from a backup.")
