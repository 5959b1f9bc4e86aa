"""Every byte of a store as it lies on disk, decrypted below SQL: the proof that a purged text is nowhere.

The page format is SQLCipher 4's: 4096 bytes, of which the last 80 are the IV (16) and the HMAC (64); the first 16 of the
file are the salt. A frame of the write-ahead log has a header of 24 bytes before its page; the log itself one of 32.
"""

from __future__ import annotations

import re
import shutil
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
from attrs import frozen
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

PAGE, TAIL, FRAME, LOG = 4096, 80, 24, 32


def page_of(data: bytes, key: bytes, *, first: bool) -> bytes:
    """One page decrypted, with zeros in place of what is not content."""
    begin = 16 if first else 0
    body, vector = data[begin : PAGE - TAIL], data[PAGE - TAIL : PAGE - TAIL + 16]
    decryptor = Cipher(algorithms.AES(key), modes.CBC(vector)).decryptor()
    return bytes(begin) + decryptor.update(body) + decryptor.finalize()


def pages(path: Path, key: bytes) -> Iterator[bytes]:
    """Every page of the file, free ones too, then every frame of the write-ahead log, stale ones too.

    The files are read by name: no connection to them may be open in this process.
    """
    data = path.read_bytes()
    for at in range(0, len(data), PAGE):
        yield page_of(data[at : at + PAGE], key, first=at == 0)
    wal = path.with_name(path.name + "-wal")
    frames = wal.read_bytes() if wal.exists() else b""
    for at in range(LOG, len(frames) - FRAME - PAGE + 1, FRAME + PAGE):
        number = int.from_bytes(frames[at : at + 4], "big")
        yield page_of(frames[at + FRAME : at + FRAME + PAGE], key, first=number == 1)


def image(path: Path, key: bytes) -> bytes:
    """All of them one after the other. A page that begins with zeros and holds nothing else is a free one."""
    return b"\n".join(pages(path, key))


def needles(text: str) -> list[bytes]:
    """What of a text would give it away: the whole, its words, and each word in the parts a prefix would leave of it.

    FTS5 stores a term as what it adds to the term before: `hunter2passwora` may be followed by `1 d`.
    """
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    found = {text, folded, *re.findall(r"\w{6,}", text), *re.findall(r"\w{6,}", folded)}
    return sorted({each.encode() for each in found if len(each) >= 4})


@contextmanager
def copied(path: Path, key: bytes, scratch: Path) -> Iterator[apsw.Connection]:
    """A connection to a copy of the file and its write-ahead log. The store must be closed in this process."""
    copy = scratch / "copied.db"
    for suffix in ("", "-wal"):
        beside = path.with_name(path.name + suffix)
        target = copy.with_name(copy.name + suffix)
        target.unlink(missing_ok=True)
        if beside.exists():
            shutil.copy(beside, target)
    copy.with_name(copy.name + "-shm").unlink(missing_ok=True)
    connection = apsw.Connection(str(copy))
    connection.execute("PRAGMA cipher = 'sqlcipher'").fetchall()
    connection.execute("PRAGMA legacy = 4").fetchall()
    connection.execute(f"PRAGMA key = \"x'{key.hex()}'\"").fetchall()
    try:
        yield connection
    finally:
        connection.close()


def vocabulary(connection: apsw.Connection) -> set[str]:
    """Every term of the full-text index, out of FTS5's own vocabulary."""
    connection.execute("CREATE VIRTUAL TABLE IF NOT EXISTS temp.terms USING fts5vocab('main', 'search', 'row')")
    return {term for (term,) in connection.execute("SELECT term FROM temp.terms")}


def leaf_terms(connection: apsw.Connection) -> Iterator[bytes]:
    """Every term in the leaves of the index, rebuilt from its prefix, whether or not a segment names the leaf.

    Format of a leaf (fts5_index.c): two 16-bit offsets; then terms, each a varint of shared prefix (but the first), a
    varint of length, and the rest; the page's footer has the offsets of the terms as varints of differences.
    """
    for identity, block in connection.execute("SELECT id, block FROM search_data"):
        if identity < 1 << 32 or len(block) < 4 or (identity >> 36) & 1:
            continue  # averages, structure, or a doclist index
        footer = int.from_bytes(block[2:4], "big")
        place, term, at = footer, b"", 0
        while place < len(block):
            step, place = varint(block, place)
            first = at == 0
            at += step
            shared, start = (0, at) if first else varint(block, at)
            length, start = varint(block, start)
            term = term[:shared] + block[start : start + length]
            yield term


def index_terms(connection: apsw.Connection) -> Iterator[bytes]:
    """The terms by which FTS5 finds a leaf."""
    for (term,) in connection.execute("SELECT term FROM search_idx"):
        yield bytes(term) if isinstance(term, bytes) else str(term).encode()


def varint(data: bytes, at: int) -> tuple[int, int]:
    """SQLite's variable-length integer."""
    value = 0
    for step in range(9):
        byte = data[at + step]
        value = (value << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, at + step + 1
    return value, at + 9


@frozen
class Search:
    """Where something of a text was found, by place, and how much was searched.

    Attributes:
        places: `pages`, the tables by name, `vocabulary`, `leaves`, `terms of leaves`.
        bytes: Of decrypted pages.
    """

    places: tuple[str, ...]
    bytes: int


def windows(text: str, size: int = 6) -> set[bytes]:
    """Every part of a text of so many bytes, as it is written and as the index spells it: also half a word is a trace.

    A row that is overwritten by a shorter one leaves its end, and FTS5 stores of a term what it adds to the one before.
    """
    folded = "".join(c for c in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(c))
    found = set()
    for spelled in (text.encode(), folded.encode()):
        for word in spelled.split():
            found |= {word[at : at + size] for at in range(max(len(word) - size, 0) + 1)}
    return {part for part in found if len(part) == size}


def search(path: Path, key: bytes, scratch: Path, *texts: str) -> Search:
    """Look for texts everywhere: decrypted pages and log, every table, the index by its vocabulary and by its leaves.

    The store must be closed in this process. Words shorter than six bytes are not looked for.
    """
    sought = set().union(*map(windows, texts))
    assert sought
    whole = image(path, key)
    assert b"CREATE TABLE event" in whole  # else it was not decrypted
    places = {"pages"} if any(part in whole for part in sought) else set()
    with copied(path, key, scratch) as connection:
        for place, values in _values(connection):
            if any(part in value for value in values for part in sought):
                places.add(place)
    return Search(tuple(sorted(places)), len(whole))


def _values(connection: apsw.Connection) -> Iterator[tuple[str, Iterable[bytes]]]:
    yield "vocabulary", [term.encode() for term in vocabulary(connection)]
    yield "leaves", list(leaf_terms(connection))
    yield "terms of leaves", list(index_terms(connection))
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    )
    # Tables of statistics are there only where ANALYZE ran.
    for (table,) in tables.fetchall():
        rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
        yield table, [each if isinstance(each, bytes) else str(each).encode() for row in rows for each in row]
