"""A backup: one atomic snapshot of a store that others go on writing to, checked before it gets its name."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from agentmem.engine.keys import Key
from agentmem.errors import Conflict
from agentmem.log.ledger import Ledger
from agentmem.types import Head
from agentmem.upkeep.copies import Inspection, key_notice

__all__ = ["Backup", "backup"]


@attrs.frozen
class Backup:
    """A backup that was made and checked.

    Attributes:
        path: The file.
        bytes: Its size.
        events: How many events its log has.
        head: The end of its log, to be noted elsewhere.
        key_same: Whether it has the key of the store.
        notices: What to know of it, first of all where its key is.
    """

    path: Path
    bytes: int
    events: int
    head: Head
    key_same: bool
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return attrs.asdict(self) | {"path": str(self.path)}


def backup(ledger: Ledger, path: str | os.PathLike[str], *, key: Key | None) -> Backup:
    """Copy the committed state of a store; see `Store.backup`."""
    database = ledger.database
    if database.in_write():
        raise Conflict(
            "A backup cannot be taken inside a transaction",
            why="It holds what is committed, so nothing of the transaction, and would hold up all other writers meanwhile",
            next="Take it after the block.",
        )
    inspection = Inspection()
    target = database.snapshot_to(path, key=key, inspect=inspection)
    head = inspection.head
    notices = (key_notice(database, own=key is not None),)
    return Backup(target, os.stat(target).st_size, head.seq, head, key is None, notices)
