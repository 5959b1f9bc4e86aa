"""What all views of one open file share, and what every group of verbs stands on."""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING

from agentmem.context import tokens
from agentmem.context.tokens import Counter, count_tokens
from agentmem.engine.database import Database
from agentmem.log.ledger import Ledger
from agentmem.records import subjects
from agentmem.records.base import Binding, Leases, View
from agentmem.records.beneath import refuse
from agentmem.types import UNSET, Unset

if TYPE_CHECKING:
    from agentmem.recall.embedder import EmbedderChoice
    from agentmem.recall.meaning import Meaning

_SETTLED_SECONDS = 5.0  # a process that has been writing for so long embeds what it wrote; a shorter one leaves it


class Shared:
    """What all views of one open file share."""

    def __init__(self, database: Database, ledger: Ledger, counter: Counter, embedder: EmbedderChoice = UNSET) -> None:
        self._embedder = embedder
        self._meaning: Meaning | None = None
        self._wrote_at: float | None = None
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
    def meaning(self) -> Meaning:
        """The meaning of texts; made, not loaded, on first use."""
        from agentmem.recall.meaning import Meaning

        with self.lock:
            if self._meaning is None:
                self._meaning = Meaning(self.database, _chosen(self._embedder))
            return self._meaning

    def wrote(self) -> None:
        """After each write: what was written is embedded in the background, once the process is no short one."""
        now = time.monotonic()
        if self._wrote_at is None:
            self._wrote_at = now
        elif now - self._wrote_at > _SETTLED_SECONDS:
            self._wrote_at = now
            self.meaning.work()

    def alike(self, view: View, what: str, project: int) -> dict[int, float]:
        """The attempts of a project like a text in meaning: cosines by id."""
        from agentmem.recall.alike import alike

        return alike(self.meaning, view, what, project)

    def embedding(self) -> tuple[str | None, int | None]:
        """Why nothing is embedded, and the bytes in memory of the codes of vectors; None for nothing wrong, none used."""
        meaning = self._meaning
        if meaning is None:
            return None, None
        return None if meaning.failed is None else str(meaning.failed), meaning.codes_bytes

    def close(self) -> None:
        """End what goes on in the background, then close the file."""
        # Inside a transaction the file refuses: the store goes on then, and what it knows of texts has to obey a purge.
        if self._meaning is not None and not self.database.in_write():
            self._meaning.close()
        self.database.close()

    @property
    def counter(self) -> Counter:
        """Tokens of a text; a caller's own is tried before its first use."""
        if not self._counter_sound:
            tokens.check(self._counter)
            self._counter_sound = True
        return self._counter


def _chosen(embedder: EmbedderChoice) -> EmbedderChoice:
    """The embedder of the environment where none was given."""
    named = os.environ.get("AGENTMEM_EMBEDDER", "")
    if not isinstance(embedder, Unset) or not named:
        return embedder
    if named == "shipped":
        from agentmem.recall.embedder import shipped

        return shipped()
    return None if named == "none" else named


class Facade:
    """One view of an open file, to which groups of verbs are added."""

    _shared: Shared
    _binding: Binding

    def _unlimited(self, what: str) -> None:
        """Refuse what concerns the whole file to a view that writes only beneath one note.

        Raises:
            OutOfReach: It is such a view.
        """
        if self._binding.limit is not None:
            raise refuse(what, self._binding.limit)

    def _of_all(self, what: str) -> None:
        """Refuse what cannot be narrowed to one subject to a view of one.

        Raises:
            OutOfReach: It is such a view.
        """
        subjects.refuse_whole(self._binding, what)
