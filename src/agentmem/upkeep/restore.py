"""A restore: a backup, or any store, becomes a new file that goes on from there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import apsw
import attrs
from attrs import frozen as frozen_value

from agentmem.engine.database import Database
from agentmem.engine.files import file_system_check
from agentmem.engine.keys import Key
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.pages import PLAIN_HEADER, first_page
from agentmem.engine.snapshot import free_check
from agentmem.errors import Corrupt, InvalidInput, shown
from agentmem.records.cleaning import epoch_raise
from agentmem.records.kinds import FUNCTIONS
from agentmem.types import Head
from agentmem.upkeep.copies import Inspection, key_notice, quiet, real_path
from agentmem.upkeep.trees import schema_differences

__all__ = ["Restored", "begin_anew", "restore"]


@attrs.frozen
class Restored:
    """A store that was restored and checked.

    Attributes:
        path: The new file.
        bytes: Its size.
        events: How many events its log has.
        head: The end of its log. Later events than this are not in it: compare with a head noted elsewhere.
        key_same: Whether it has the key of the source.
        claims_void: How many claims were in force in the source; none is any more.
        notices: What to know of it.
    """

    path: Path
    bytes: int
    events: int
    head: Head
    key_same: bool
    claims_void: int
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON."""
        return attrs.asdict(self) | {"path": str(self.path)}


def restore(
    source: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    key: Key | None,
    new_key: Key | None,
) -> Restored:
    """Make a new store of a backup or of any store; see `Store.restore`."""
    target = real_path(path)
    free_check(Path(path) if os.path.lexists(path) else target)
    file_system_check(target)
    for frozen in (True, False):
        found = _copied(source, target, key, new_key, frozen=frozen)
        if found is not None:
            break
    assert found is not None  # a source that is not taken for frozen is always copied
    return found


def _copied(
    source: str | os.PathLike[str], target: Path, key: Key | None, new_key: Key | None, *, frozen: bool
) -> Restored | None:
    """Copy and check.

    Args:
        source: What to copy.
        target: The new file.
        key: Of the source.
        new_key: Of the new file.
        frozen: Only if nobody has the source open: no file is made beside it then, and it may lie anywhere.

    Returns:
        None where somebody has, or began to write to it meanwhile.
    """
    real = real_path(source)
    before = quiet(real)
    if frozen and before is None:
        return None
    plain = real.is_file() and first_page(real)[:16] == PLAIN_HEADER
    if plain and key is not None:
        raise InvalidInput(f"A key was given, and {real} is not encrypted", next="Leave the key out.")
    amendment, inspection = _Amendment(), Inspection()
    try:
        with Database.open(
            source, schema=SCHEMA, functions=FUNCTIONS, key=key, create=False, read_only=True, encrypted=not plain,
            frozen=frozen,
        ) as database:  # fmt: skip
            database.snapshot_to(
                target,
                key=new_key,
                amend=amendment,
                inspect=_Unchanged(real, before, inspection) if frozen else inspection,
            )
            notices = [key_notice(database, own=new_key is not None)]
    except _ChangedMeanwhile:
        return None
    except Corrupt:
        if frozen and quiet(real) != before:
            return None
        raise
    if amendment.claims:
        notices.append(f"{amendment.claims} claims of the source are void here: take them again.")
    head = inspection.head
    size = os.stat(target).st_size
    return Restored(target, size, head.seq, head, new_key is None, amendment.claims, tuple(notices))


class _ChangedMeanwhile(Exception):
    """The source was taken for frozen, and was written to."""


@frozen_value
class _Unchanged:
    """Inspects a copy, provided that its source is as it was."""

    path: Path
    before: tuple[int, int] | None
    inspection: Inspection

    def __call__(self, connection: Any) -> None:
        if quiet(self.path) != self.before:
            raise _ChangedMeanwhile
        self.inspection(connection)


class _Amendment:
    """What a restored file has not: claims in force, and the caches that others keep of the source."""

    def __init__(self) -> None:
        self.claims = 0

    def __call__(self, connection: apsw.Connection) -> None:
        _schema_check(connection)
        self.claims = begin_anew(connection)


def _schema_check(connection: apsw.Connection) -> None:
    """Refuse a copy with a table, index, view or trigger that is not of ours: it would go on to act in the new store."""
    differing = schema_differences(connection)
    if differing:
        some = ", ".join(shown(name) for name in differing[:5])
        raise Corrupt(
            "The source does not have the schema of a store, and nothing was kept of it",
            why=f"These are missing, changed or not of agentmem: {some}{', …' if len(differing) > 5 else ''}",
            next="Run agentmem doctor on it; Store.salvage takes its log alone into a new file.",
        )


def begin_anew(connection: apsw.Connection) -> int:
    """Void all claims, whose holders do not know of this file, that of making vectors too; raise the epoch of caches.

    Args:
        connection: Inside a write transaction on the new file.

    Returns:
        How many claims there were.
    """
    connection.execute("DELETE FROM lease")
    claims = connection.changes()
    connection.execute("DELETE FROM meta WHERE name = 'embedding'")
    epoch_raise(connection)
    return claims
