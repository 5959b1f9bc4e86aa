"""A new file made of a log: the events are copied byte for byte, everything else is replayed from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import apsw
from attrs import field, frozen

from agentmem.engine.connection import Opening
from agentmem.engine.files import file_fsync
from agentmem.engine.keys import RawKey
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.schema import create_file, remove_set
from agentmem.engine.snapshot import sound_check
from agentmem.errors import Corrupt, StoreExists
from agentmem.log import blobs
from agentmem.log.check import ROW, ChainCheck
from agentmem.log.ledger import decode
from agentmem.records import indexed
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Head
from agentmem.upkeep.copies import Inspection

__all__ = ["EVENT_COLUMNS", "Material", "build", "opening_of"]

EVENT_COLUMNS: Final = tuple(name.strip() for name in ROW.split(","))
_EVENT: Final = f"INSERT INTO event ({ROW}) VALUES ({', '.join('?' * len(EVENT_COLUMNS))})"
_BLOB: Final = "INSERT OR IGNORE INTO blob (hash, text, uses) VALUES (?, ?, 0)"

# A request that was remembered for events that are lost would be answered as done.
_FORGET: Final = """
DELETE FROM request
WHERE at > coalesce((SELECT at FROM event ORDER BY seq DESC LIMIT 1), at - 1)
AND id NOT IN (SELECT request FROM event WHERE request IS NOT NULL)
"""


@frozen
class Material:
    """What a file is made of.

    Attributes:
        store: The id of the store.
        meta: The other rows of `meta` that are kept.
        texts: The long texts that are kept once.
        events: The rows of `EVENT_COLUMNS`, in the order of the log, as far as they could be read.
        requests: The rows of remembered requests.
        leases: The rows of claims in force.
        noted: A head noted earlier, of this store: the log is taken as far as it agrees with it.
        cut: Whether later events may be missing: then nothing is remembered of requests that may have led to those.
    """

    store: str
    meta: dict[str, str]
    texts: Iterable[str]
    events: Iterable[tuple[Any, ...]]
    requests: Iterable[tuple[Any, ...]] = ()
    leases: Iterable[tuple[Any, ...]] = ()
    noted: Head | None = None
    cut: bool = False


@frozen
class _Filling:
    """Fills a new file, inside the transaction that makes it."""

    material: Material
    broken: list[Corrupt] = field(factory=list)

    def __call__(self, connection: apsw.Connection) -> None:
        material = self.material
        meta = material.meta | {"store": material.store}
        connection.executemany("INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)", meta.items())
        indexed.set_maker(connection)
        connection.executemany(_BLOB, ((hashlib.sha256(text.encode()).digest(), text) for text in material.texts))
        check = ChainCheck(material.store, material.noted)
        for row in material.events:
            try:
                check.step(row, connection)
            except Corrupt as error:
                self.broken.append(error)
                break
            connection.execute(_EVENT, row)
            KINDS.apply(connection, decode(connection, KINDS, row[:16]))
            for hashed in blobs.named(row[13]) if row[13] is not None else ():
                connection.execute("UPDATE blob SET uses = uses + 1 WHERE hash = ?", (hashed,))
        connection.execute("DELETE FROM blob WHERE uses = 0")
        connection.executemany("INSERT INTO request VALUES (?, ?, ?, ?, ?)", _of(material.requests, 5))
        if material.cut:
            connection.execute(_FORGET)
        connection.executemany("INSERT INTO lease VALUES (?, ?, ?, ?, ?, ?)", _of(material.leases, 6))


def _of(rows: Iterable[tuple[Any, ...]], width: int) -> Iterator[tuple[Any, ...]]:
    return (row for row in rows if len(row) == width)


def opening_of(path: Path, raw: RawKey | None) -> Opening:
    """How a file that is being made or mended is opened."""
    return Opening(
        path=path,
        key=raw,
        read_only=False,
        immutable=False,
        durability="full",
        busy_timeout=10.0,
        functions=FUNCTIONS,
        version=len(SCHEMA),
    )


def build(path: Path, raw: RawKey | None, material: Material) -> tuple[Head, Corrupt | None]:
    """Make a new, durable file of a log as far as its chain holds, and have it checked by stock SQLCipher.

    Args:
        path: The new file: a temporary name of the caller's, which is private until it is given its own.
        raw: Its key and salt, None for a plain file.
        material: What it is made of.

    Returns:
        The end of the log in it, and why it ends there; None where all of `material.events` is in it.

    Raises:
        Corrupt: The file came out unsound; it was not kept.
        StoreExists: There is something at `path`.
    """
    filling = _Filling(material)
    if not create_file(opening_of(path, raw), SCHEMA, filling):
        raise StoreExists(f"There is already something at {path}", next="Choose another name.")
    inspection = Inspection()
    try:
        sound_check(path, raw, inspection)
        file_fsync(path)
    except BaseException:
        remove_set(path)
        raise
    return inspection.head, filling.broken[0] if filling.broken else None
