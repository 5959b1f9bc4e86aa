"""Watching a session grow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from agentmem import limits
from agentmem.records.events import polled

if TYPE_CHECKING:
    from agentmem.session_types import SessionEvent
    from agentmem.store.session import Session


def watched(session: Session, after: int, types: tuple[str, ...], timeout: float | None) -> Iterator[SessionEvent]:
    """The events of a session after a place as they are committed; see `Session.watch`."""

    def fresh(after: int) -> Sequence[SessionEvent]:
        return session.events(after=after, types=types, limit=limits.PAGE_MAX)

    return polled(session.store.database, fresh, after, lambda event: event.id, timeout)
