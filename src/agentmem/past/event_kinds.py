"""What the name of an event's kind says of it, whatever the type of its record."""

from __future__ import annotations

from typing import Final

from agentmem.types import Event

CREATIONS: Final = (".created", ".added", ".declared", ".written")
"""How the kinds end that make a record."""

REMOVALS: Final = (".withdrawn", ".merged")
"""How the kinds end after which a record has no row, while its text is in the log still."""

RESTATED: Final = ".restated"
"""How the kinds end that hold the whole state of a record."""

FORGOTTEN: Final = ".forgotten"
"""How the kinds end that are the last of a purged record."""


def is_claim(kind: str) -> bool:
    """Whether events of a kind change nothing of a record but who holds it."""
    return ".claim." in kind


def undoes(event: Event) -> int | None:
    """The seq of the event that this one takes back, None if it is no undo, or if that was erased."""
    return None if event.payload is None else event.payload.get("undoes")
