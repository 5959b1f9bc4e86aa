"""What a harness needs of a session beside its verbs; no part of the API.

`agentmem.harness` stands above the store and goes through here, so that the insides of a session can change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from agentmem.records.base import Binding, Leases
from agentmem.store.session import Session
from agentmem.store.sessions import Sessions
from agentmem.types import Ref

if TYPE_CHECKING:
    from agentmem.records.sessions import Entry
    from agentmem.session_types import Appended
    from agentmem.store.opening import Store

__all__ = ["append", "binding_of", "masking", "run_by"]


def binding_of(session: Session) -> Binding:
    """The view that a session acts by: its readings, its commands, its clock."""
    return session._binding


def append(session: Session, entries: Sequence[Entry], *, held: bool) -> Appended:
    """Append events of whoever runs the session.

    Args:
        session: The session.
        entries: The events.
        held: Whether they are refused where this run does not hold the session by now.

    Raises:
        Conflict: It is `held`, and this run holds the session no more.
    """
    return session._append(entries, held=held)


def masking(session: Session, masked: Callable[[Any], Any]) -> Session:
    """The same session, of all that is written through it only what a function of a value of JSON makes of it."""
    return session._writing(masked)


def run_by(store: Store, session: Ref, masked: Callable[[Any], Any]) -> Session:
    """A session with leases of its own, so that two that run in one process are told apart; masked as by `masking`.

    Raises:
        NotFound: There is no such session.
    """
    binding = attrs.evolve(store._binding, leases=Leases(), masked=masked)
    return Sessions(store._shared, binding).get(session)
