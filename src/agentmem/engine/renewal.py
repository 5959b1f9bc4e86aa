"""After another process gave the file a new key: go on with that, where it can be found."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

import apsw

from agentmem.engine.connection import Opening, close_quietly, connect
from agentmem.engine.faults import rethrow
from agentmem.engine.lookup import open_found
from agentmem.engine.sessions import Turn
from agentmem.errors import KeyChanged, KeyMissing, WrongKey

if TYPE_CHECKING:
    from agentmem.engine.pool import Pool

__all__ = ["UNDECIPHERED", "renew_key", "renewing"]

UNDECIPHERED: Final = (apsw.NotADBError, apsw.CorruptError, WrongKey)
"""What a connection with a former key meets."""

T = TypeVar("T")


def renewing(pool: Pool, action: Callable[[], T]) -> T:
    """Run an action of a reader; as long as it meets another key, ask for the key again and run it once more."""
    while True:
        opening = pool.opening
        try:
            return action()
        except UNDECIPHERED as error:
            if pool.inside() is not None:
                renew_key(pool, opening, error)
            else:
                with Turn(pool, opening.busy_timeout):
                    renew_key(pool, opening, error)


def renew_key(pool: Pool, used: Opening, cause: Exception) -> None:
    """After a page did not decrypt: go on with the new key where there is one, else say what is wrong.

    Only for who has the place in `writing_places`.

    Args:
        pool: The connections.
        used: What was open when it happened: another thread may have renewed the key since.
        cause: What SQLite said.

    Raises:
        KeyChanged: The file opens with no key that is found.
        Corrupt: It opens with the same key as before, so the page is damaged.
    """
    if pool.opening is not used:
        return
    if not pool.finders:
        rethrow(cause, used.path)
    try:
        fresh, found, finder = open_found(used, pool.finders, _proven)
    except (WrongKey, KeyMissing):
        raise KeyChanged(
            f"{used.path} no longer opens with its key",
            why="Another process gave it a new key, or its first page was damaged",
            next="Open it again with the new key.",
        ) from cause
    if fresh.key == used.key:
        rethrow(cause, used.path)
    pool.finders = (finder,)
    pool.key_replace(fresh, found)


def _proven(opening: Opening) -> Opening:
    """An opening whose key a connection has read with."""
    close_quietly(connect(opening, "watcher"))
    return opening
