"""What backup and restore share: the check of a copy, and what is to be said of its key."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from attrs import field, frozen

from agentmem.engine.database import Database
from agentmem.engine.files import beside, io_failed
from agentmem.engine.keys import KeySource
from agentmem.errors import Corrupt
from agentmem.log.check import ChainCheck, check_all
from agentmem.types import Head
from agentmem.upkeep.health import log_ended

__all__ = ["Inspection", "key_notice", "quiet", "real_path", "store_id"]


@frozen
class Inspection:
    """Checks the log of a finished copy through another build of SQLite, and remembers its head."""

    _found: list[Head] = field(factory=list, init=False)

    def __call__(self, connection: Any) -> None:
        """Compute the chain of the copy anew.

        Args:
            connection: To the copy, of stock SQLCipher.

        Raises:
            Corrupt: The log is not whole.
        """
        head = check_all(ChainCheck(store_id(connection)), connection)
        ended = log_ended(connection)
        if ended:
            raise Corrupt("The log is not whole", why=ended, next="Run agentmem doctor on the file.")
        self._found.append(head)

    @property
    def head(self) -> Head:
        """The head of the copy that was looked at."""
        return self._found[-1]


def real_path(path: str | os.PathLike[str]) -> Path:
    """The path without symbolic links, of a file that may be missing.

    Raises:
        IoFailed: The system can't say whether there is one: a name that is too long, a directory that is closed to us.
    """
    real = Path(os.path.realpath(path))
    try:
        real.parent.stat()
        real.stat()
    except (FileNotFoundError, NotADirectoryError):
        return real
    except OSError as error:
        raise io_failed(f"{real} cannot be looked at", error) from error
    return real


def quiet(path: Path) -> tuple[int, int] | None:
    """Size and time of a database that nobody has open, None of others: who has it open keeps a WAL beside it."""
    if not path.is_file() or any(beside(path, suffix).exists() for suffix in ("-wal", "-journal")):
        return None
    status = path.stat()
    return status.st_size, status.st_mtime_ns


def store_id(connection: Any) -> str:
    """The id of a store, asked of any connection to it.

    Raises:
        Corrupt: It has none.
    """
    row = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
    if row is None:
        raise Corrupt("The file has no identity", next="Restore the latest backup that verifies")
    found: str = row[0]
    return found


def key_notice(database: Database, *, own: bool) -> str:
    """Where the key of a copy is, in a sentence for people: it is never in the copy.

    Args:
        database: What was copied.
        own: The copy was given a key of its own.
    """
    source = database.key_source
    if source is None:
        return "The store is not encrypted, and neither is the copy: anybody who can read it reads all of it."
    if own:
        return "The copy opens with the key that was given for it, not with the store's. Without it the copy is lost."
    return f"The key is not in the copy: it is {_place(source, database.key_path)}. Without it the copy is lost."


def _place(source: KeySource, path: Path | None) -> str:
    match source:
        case KeySource.DEFAULT_FILE:
            return f"the default key of this account, {path}, so keep a copy of that file somewhere else"
        case KeySource.STORE_FILE:
            return f"in the key file of this store, {path}, so keep a copy of that file somewhere else"
        case KeySource.ENVIRONMENT:
            return "the one in the environment variable AGENTMEM_KEY"
        case KeySource.KEYRING:
            return "in the keyring of this account, so keep it somewhere else too"
        case _ if path is not None:
            return f"in the key file {path}, so keep a copy of that file somewhere else"
        case _:
            return "the one the store was opened with"
