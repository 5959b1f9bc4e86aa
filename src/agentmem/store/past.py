"""The verbs on the past and the end of records."""

from __future__ import annotations

from agentmem.store.shared import Facade


class PastVerbs(Facade):
    """History, undo, time travel, purge."""
