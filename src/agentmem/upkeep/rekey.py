"""A new key for a store, and what its owner has to know about it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs

from agentmem.engine.keys import ENV_KEY, ENV_KEY_FILE, Key, KeySource, ResolvedKey
from agentmem.engine.rekey import NewKey
from agentmem.errors import AgentMemError
from agentmem.log.ledger import Ledger

__all__ = ["Rekeyed", "rekey"]


@attrs.frozen
class Rekeyed:
    """What `rekey` did.

    Attributes:
        changed: Whether the file has another key than before.
        source: Where the key is: `argument` (the caller keeps it), `key_file`, `keyring` or `store_file`.
        path: The key file, where it is in one.
        wal_pending: Pages under the former key are still in the write-ahead log.
        problems: What a check of chain and pages with the new key found; empty for a sound file.
        notices: What to know and to do, one sentence each.
    """

    changed: bool
    source: str
    path: Path | None
    wal_pending: bool
    problems: tuple[str, ...]
    notices: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """The answer as JSON."""
        return attrs.asdict(self) | {"path": None if self.path is None else str(self.path)}


def rekey(ledger: Ledger, key: Key | None, *, key_file: str | os.PathLike[str] | None, keyring: bool) -> Rekeyed:
    """Give the file another key and check it with that; see `Store.rekey`."""
    made = ledger.database.rekey(key, key_file=key_file, keyring=keyring)
    problems = _problems(ledger) if made.changed else ()
    return Rekeyed(
        made.changed, made.key.source.value, made.key.path, made.wal_pending, problems, tuple(_notices(made, problems))
    )


def _problems(ledger: Ledger) -> tuple[str, ...]:
    """What is wrong with chain and pages. Not an error: the key has been changed, and the caller must hear where it is."""
    try:
        ledger.check(None)
        with ledger.database.read(long=True) as connection:
            lines = [str(line) for (line,) in connection.execute("PRAGMA quick_check(20)").fetchall()]
    except AgentMemError as error:
        return (" ".join(part for part in (error.what, error.why) if part),)
    return tuple(f"page: {line}" for line in lines if line != "ok")


def _notices(made: NewKey, problems: tuple[str, ...]) -> list[str]:
    if not made.changed:
        return ["This was the key already: nothing was changed."]
    notices = [f"The new key is {_place(made.key)}. Losing it loses all that is written here."]
    former = "" if made.former is None or made.former.source is KeySource.ARGUMENT else f", {_place(made.former)},"
    notices.append(f"The former key{former} still opens backups and copies made before: keep it with them.")
    named = next((name for name in (ENV_KEY, ENV_KEY_FILE) if name in os.environ), None)
    if named is not None:
        notices.append(f"{named} is set and is asked before any other place: it no longer opens this store.")
    elif made.key.source is KeySource.KEY_FILE:
        notices.append(f"The key file is not looked for by itself: set {ENV_KEY_FILE} to it.")
    if made.wal_pending:
        notices.append(
            "Pages under the former key are still in the write-ahead log, since somebody reads or writes: they go with"
            " the next checkpoint that nobody is in the way of, or when the last process closes the store."
        )
    if problems:
        notices.append("The check with the new key found problems: keep the former key and the backups made with it.")
    return notices


def _place(key: ResolvedKey) -> str:
    match key.source:
        case KeySource.ARGUMENT:
            return "the one that was given"
        case KeySource.ENVIRONMENT:
            return f"in {ENV_KEY}"
        case KeySource.KEYRING:
            return "in the keyring of the operating system"
        case _:
            return f"in {key.path}"
