"""The key of a file that may be damaged: told from a wrong one by the pages that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import apsw
from attrs import frozen

from agentmem.engine.connection import cipher_set, close_quietly, connection_bare
from agentmem.engine.faults import rethrow, wrong_key
from agentmem.engine.files import size_of
from agentmem.engine.keys import SALT_BYTES, Key, RawKey, ResolvedKey, stretch
from agentmem.engine.lookup import KeyFinder
from agentmem.engine.pages import PAGE_BYTES, PLAIN_HEADER, PageMac, RawFile, encrypted_check, first_page, key_fits
from agentmem.engine.scan import Scan
from agentmem.errors import AgentMemError, InvalidInput, NotAStore, StoreMissing

__all__ = ["Proven", "ends_early", "prove", "salt_of"]

_LOOKED_AT: Final = 64  # pages, spread over the file


@frozen
class Proven:
    """A key that was found, and that pages of the file prove.

    Attributes:
        found: The key, and where it was; None for a plain file.
        raw: The same with the salt of the file; None for a plain file.
        first_page: Whether the first page is sound.
    """

    found: ResolvedKey | None
    raw: RawKey | None
    first_page: bool


def prove(path: Path, key: Key | None, *, salt: bytes | None = None) -> Proven:
    """Find the key of a file, also where its first page is damaged but for the salt. Changes no byte.

    A plain file, as its first bytes tell, has none.

    Args:
        path: The file, without symbolic links.
        key: The key, looked for where `Store.open` does if None.
        salt: The salt to take in place of the first 16 bytes of the file.

    Raises:
        InvalidInput, KeyMissing: There is no key to try; or the file is plain and a salt was given.
        WrongKey: No page is authentic under any key that was found.
        NotAStore: The file is empty, too short, no regular file, or plain and a key was given.
        StoreMissing: There is none.
    """
    if not path.exists():
        raise StoreMissing(f"There is no file at {path}", next="Correct the path.")
    if not path.is_file():
        raise NotAStore(f"{path} is not a regular file", next="Choose another path.")
    seen = b""
    while True:
        page = first_page(path)
        if page[:16] == PLAIN_HEADER:
            if salt is not None:
                raise InvalidInput(f"{path} is not encrypted, so it has no salt", next="Leave salt_from out.")
            if key is not None:
                raise NotAStore(f"{path} is not encrypted, and a key was given", next="Leave the key out.")
            return Proven(None, None, first_page=True)
        encrypted_check(path, page)
        found = _tried(path, page, key, page[:SALT_BYTES] if salt is None else salt)
        # A checkpoint of another process may be half done with the page: only the same bytes twice are a verdict.
        if isinstance(found, Proven) and (found.first_page or page == seen):
            return found
        if isinstance(found, AgentMemError) and page == seen:
            raise found
        seen = page


def salt_of(path: Path) -> bytes:
    """The salt of an encrypted file: its first 16 bytes.

    Raises:
        StoreMissing: There is no such file.
        InvalidInput: It is plain, too short, or its salt is gone too.
    """
    if not path.is_file():
        raise StoreMissing(f"There is no file at {path}", next="Correct the path.")
    salt = first_page(path)[:SALT_BYTES]
    if len(salt) < SALT_BYTES or salt == PLAIN_HEADER or not any(salt):
        raise InvalidInput(f"{path} does not begin with a salt", next="Name a backup that opens with the same key.")
    return salt


def ends_early(path: Path, raw: RawKey | None, found: Scan | None) -> bool:
    """Whether the file has fewer pages than its first page says, without a write-ahead log that would tell otherwise.

    SQLite then refuses even to read the header, except where it may read a schema that it can't trust.

    Args:
        path: A file with a sound first page.
        raw: Its key and salt, None for a plain one.
        found: What its bytes tell, where they were looked at.
    """
    if found is not None and found.wal.page_count:
        return False  # a checkpoint may be half done, and what the file lacks is in the log
    return _header_refused(path, raw, trusting=False) and not _header_refused(path, raw, trusting=True)


def _header_refused(path: Path, raw: RawKey | None, *, trusting: bool) -> bool:
    try:
        # Immutable: no file is made beside it, whoever has it open.
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        connection = connection_bare(f"{path.as_uri()}?immutable=1", flags)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_WRITABLE_SCHEMA, int(trusting))
            if raw is not None:
                cipher_set(connection, raw)
            # The one reading that needs no schema: what fails is the look at the first page.
            connection.execute("PRAGMA user_version").fetchall()
        finally:
            close_quietly(connection)
    except (apsw.CorruptError, apsw.NotADBError):
        return True
    except apsw.Error as error:
        rethrow(error, path)
    return False


def _tried(path: Path, page: bytes, key: Key | None, salt: bytes) -> Proven | AgentMemError:
    """The key that pages of the file prove, or why there is none."""
    finder = KeyFinder(path, key)
    named = finder.named()
    candidates, failed = ([named], wrong_key(path)) if named is not None else finder.searched(salt)
    tried = [(each, stretch(each.material, salt)) for each in candidates]
    for found, raw in tried:
        if key_fits(path, page, raw):
            return Proven(found, raw, first_page=page[:SALT_BYTES] == salt)
    for found, raw in tried:
        if _any_authentic(path, raw):
            return Proven(found, raw, first_page=False)
    return failed


def _any_authentic(path: Path, raw: RawKey) -> bool:
    """Whether some page of a file is authentic under a key; a few are looked at, all over the file."""
    pages = size_of(path) // PAGE_BYTES
    mac = PageMac(raw)
    step = max(1, pages // _LOOKED_AT)
    with RawFile(path) as file:
        numbers = range(2, pages + 1, step)
        return any(mac.authentic(file.read(PAGE_BYTES, (number - 1) * PAGE_BYTES), number) for number in numbers)
