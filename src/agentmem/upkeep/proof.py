"""The key of a file that may be damaged: told from a wrong one by the pages that are not."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from attrs import frozen

from agentmem.engine.faults import wrong_key
from agentmem.engine.files import size_of
from agentmem.engine.keys import Key, RawKey, ResolvedKey, stretch
from agentmem.engine.lookup import KeyFinder
from agentmem.engine.pages import PAGE_BYTES, PLAIN_HEADER, PageMac, RawFile, encrypted_check, first_page, key_fits
from agentmem.errors import AgentMemError, NotAStore, StoreMissing

__all__ = ["Proven", "prove"]

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


def prove(path: Path, key: Key | None) -> Proven:
    """Find the key of a file, also where its first page is damaged but for the salt. Changes no byte.

    A plain file, as its first bytes tell, has none.

    Args:
        path: The file, without symbolic links.
        key: The key, looked for where `Store.open` does if None.

    Raises:
        InvalidInput, KeyMissing: There is no key to try.
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
        if page[:16] == PLAIN_HEADER and key is None:
            return Proven(None, None, first_page=True)
        encrypted_check(path, page)
        found = _tried(path, page, key)
        # A checkpoint of another process may be half done with the page: only the same bytes twice are a verdict.
        if isinstance(found, Proven) and (found.first_page or page == seen):
            return found
        if isinstance(found, AgentMemError) and page == seen:
            raise found
        seen = page


def _tried(path: Path, page: bytes, key: Key | None) -> Proven | AgentMemError:
    """The key that pages of the file prove, or why there is none."""
    finder = KeyFinder(path, key)
    named = finder.named()
    candidates, failed = ([named], wrong_key(path)) if named is not None else finder.searched(page[:16])
    tried = [(each, stretch(each.material, page[:16])) for each in candidates]
    for found, raw in tried:
        if key_fits(path, page, raw):
            return Proven(found, raw, first_page=True)
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
