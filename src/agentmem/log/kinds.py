"""What the log knows of each kind of event: whose record it concerns, how it applies, how old versions are read.

The records register their kinds here; the log itself knows none of them. `apply` must be a pure
function of the event and the projections: no clock, randomness, settings, limits or validation. A
version, once released, is read for ever: `upcasts[n]` turns a payload of version n into one of n + 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import apsw
from attrs import frozen

from agentmem.errors import NewerFile, shown
from agentmem.types import Event, RecordType

_COPIED = "INSERT OR REPLACE INTO copied (store, seq, record) VALUES (?, ?, ?)"

Apply: TypeAlias = Callable[[apsw.Connection, Event], None]
Upcast: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


@frozen
class EventKind:
    """One kind of event. `creates` says that its seq becomes the id of a new record."""

    name: str
    type: RecordType
    apply: Apply
    creates: bool = False
    version: int = 1
    upcasts: Mapping[int, Upcast] = {}


@frozen
class Kinds:
    """All kinds of events, by name, and the names of the tables that are projections."""

    by_name: Mapping[str, EventKind]
    projections: tuple[str, ...]

    @classmethod
    def of(cls, kinds: Iterable[EventKind], projections: Iterable[str]) -> Kinds:
        """The registry of these kinds and projection tables."""
        return cls({kind.name: kind for kind in kinds}, tuple(projections))

    def get(self, name: str) -> EventKind:
        """The kind of this name.

        Raises:
            NewerFile: No such kind: a later version of agentmem wrote the event.
        """
        kind = self.by_name.get(name)
        if kind is None:
            raise NewerFile(
                f"The log has an event of kind {shown(name)}, unknown to this version", next="Upgrade agentmem"
            )
        return kind

    def apply(self, connection: apsw.Connection, event: Event) -> None:
        """Have an event change the projections; what came from another store is remembered by its place there."""
        self.get(event.kind).apply(connection, event)
        if event.payload is None:
            return
        if "copied" in event.payload:
            connection.execute(_COPIED, (*event.payload["copied"], event.record))
        for place in event.payload.get("copies", ()):  # of a record that others became part of
            connection.execute(_COPIED, (*place, event.record))

    def upcast(self, name: str, version: int, payload: dict[str, Any]) -> dict[str, Any]:
        """The payload as the current version of the kind spells it; stored bytes never change.

        Raises:
            NewerFile: The version is later than this agentmem knows.
        """
        kind = self.get(name)
        if version > kind.version:
            raise NewerFile(
                f"The log has {shown(name)} in version {version}, unknown to this version", next="Upgrade agentmem"
            )
        for step in range(version, kind.version):
            payload = kind.upcasts[step](payload)
        return payload
