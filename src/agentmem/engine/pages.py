"""The pages of the file as they lie on disk, read without SQL and without harm.

The format is SQLCipher 4 (https://www.zetetic.net/sqlcipher/design/): pages of 4096 bytes; the first 16 bytes of the
file are the salt; each page ends with 16 bytes of IV and 64 of HMAC-SHA512 over content, IV and the page's number. A
page that is authentic under a key proves the key before SQLite sees either.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from enum import Enum
from pathlib import Path
from typing import Final

import apsw

from agentmem.engine.faults import empty_file, not_ours, rethrow, wrong_key
from agentmem.engine.files import size_of
from agentmem.engine.keys import RawKey, stretch
from agentmem.errors import NotAStore

__all__ = [
    "APPLICATION_ID",
    "PAGE_BYTES",
    "PLAIN_HEADER",
    "FirstPage",
    "encrypted_check",
    "first_page",
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


class FirstPage(Enum):
    """What a first page and a key say of each other."""

    SOUND = "sound"
    DAMAGED = "damaged"
    WRONG_KEY = "wrong_key"


def first_page(path: Path) -> bytes:
    """Page 1, which may be short: all that is there of it."""
    return page_read(path, 1)


def page_read(path: Path, number: int) -> bytes:
    """One page of the file as it lies on disk, empty behind the end.

    Read through SQLite's own file layer, below the cipher: an `open()` of ours, once closed, would drop the POSIX locks
    of every connection this process has to the file.
    """
    return _raw_read(path, PAGE_BYTES, (number - 1) * PAGE_BYTES, apsw.SQLITE_OPEN_MAIN_DB)


def page_authentic(page: bytes, number: int, raw: RawKey) -> bool:
    """Whether the HMAC of a page is right under a key.

    Args:
        page: 4096 bytes as on disk or in a frame of the WAL.
        number: The page's number, from 1.
        raw: Key and salt.
    """
    if len(page) != PAGE_BYTES:
        return False
    mac_salt = bytes(byte ^ 0x3A for byte in raw.salt)
    mac_key = hashlib.pbkdf2_hmac("sha512", raw.key, mac_salt, 2, 32)
    begin = 16 if number == 1 else 0
    signed = page[begin : PAGE_BYTES - 64] + number.to_bytes(4, "little")
    return hmac.compare_digest(hmac.digest(mac_key, signed, "sha512"), page[PAGE_BYTES - 64 :])


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
    if page_authentic(page, 1, raw):
        return True
    wal = path.with_name(path.name + "-wal")
    total = size_of(wal)
    if total < _WAL_HEADER_BYTES:
        return False
    header = _raw_read(wal, _WAL_HEADER_BYTES, 0, apsw.SQLITE_OPEN_WAL)
    step = _FRAME_HEADER_BYTES + PAGE_BYTES
    for at in range(_WAL_HEADER_BYTES, total - step + 1, step):
        frame = _raw_read(wal, _FRAME_HEADER_BYTES, at, apsw.SQLITE_OPEN_WAL)
        # Frames of an earlier round of the WAL carry other salts than its header.
        if frame[:4] != b"\0\0\0\1" or frame[8:16] != header[16:24]:
            continue
        if page_authentic(_raw_read(wal, PAGE_BYTES, at + _FRAME_HEADER_BYTES, apsw.SQLITE_OPEN_WAL), 1, raw):
            return True
    return False


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


def _raw_read(path: Path, count: int, at: int, kind: int) -> bytes:
    try:
        handle = apsw.VFSFile(_BASE_VFS, str(path), [apsw.SQLITE_OPEN_READONLY | kind, 0])
        try:
            return bytes(handle.xRead(count, at))
        finally:
            handle.xClose()
    except apsw.Error as error:
        rethrow(error, path)
