"""What all views of one open file share, and what every group of verbs stands on."""

from __future__ import annotations

import threading

from agentmem.context import tokens
from agentmem.context.tokens import Counter, count_tokens
from agentmem.engine.database import Database
from agentmem.log.ledger import Ledger
from agentmem.records.base import Binding, Leases


class Shared:
    """What all views of one open file share."""

    def __init__(self, database: Database, ledger: Ledger, counter: Counter) -> None:
        self.database = database
        self.ledger = ledger
        self.leases = Leases()
        self._counter = counter
        self._counter_sound = counter is count_tokens
        self.reindexing: threading.Thread | None = None
        # Up to which seq each run has had the news of its task.
        self.heard: dict[tuple[str | None, int], int] = {}
        self.lock = threading.Lock()

    @property
    def counter(self) -> Counter:
        """Tokens of a text; a caller's own is tried before its first use."""
        if not self._counter_sound:
            tokens.check(self._counter)
            self._counter_sound = True
        return self._counter


class Facade:
    """One view of an open file, to which groups of verbs are added."""

    _shared: Shared
    _binding: Binding
