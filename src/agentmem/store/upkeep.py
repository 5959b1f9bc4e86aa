"""The verbs on the file as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from agentmem import limits
from agentmem.recall import reindex
from agentmem.records import validate
from agentmem.records.events import kinds_of, watched
from agentmem.store.shared import Facade
from agentmem.types import Event, Head
from agentmem.upkeep import health

if TYPE_CHECKING:
    from agentmem.transfer.importer import Imported, Progress


class UpkeepVerbs(Facade):
    """From and to other forms, checks, sizes."""

    def import_(
        self,
        path: str | os.PathLike[str],
        *,
        origin: Literal["agent", "import"] = "agent",
        entities: Sequence[str] = (),
        dry_run: bool = False,
        budget: int = limits.BUDGET_DEFAULT,
        progress: Progress | None = None,
    ) -> Imported:
        """Read a file or folder of progress logs in Markdown, `task.json` and JSON Lines into the project.

        One transaction: all or nothing. A second import adds nothing; of a changed folder it updates what changed there
        and nobody changed here.

        Args:
            path: The file or folder. No link out of it is followed.
            origin: `agent` for one's own logs, `import` for others': their text is quoted wherever it is shown.
            entities: Types of things whose tables and lists become entities.
            dry_run: Roll back at the end: say what would happen.
            budget: Of the resume that the answer measures, in tokens.
            progress: Called with records done and records in all.

        Raises:
            NotFound: There is nothing at the path.
        """
        validate.choice(origin, "origin", ("agent", "import"))
        validate.flag(dry_run, "dry_run")
        types = validate.tokens(entities, "entity")
        if progress is not None:
            validate.callable_(progress, "progress")
        from agentmem.transfer import importer

        return importer.run(
            self._binding, path, origin=origin, entities=types, dry_run=dry_run, budget=budget,
            counter=self._shared.counter, progress=progress,
        )  # fmt: skip

    def verify(self, *, replay: bool = False, independent: bool = False, head: Head | None = None) -> health.Verified:
        """Check the file: the hash chain always, more when asked.

        Args:
            replay: Also fold the log into an empty file in memory and compare every projection, row for row.
            independent: Also have stock SQLCipher check the HMAC of every page of a snapshot.
            head: A head noted earlier; the log must still contain exactly it.

        Raises:
            Corrupt: The chain is broken; names the event.
        """
        validate.flag(replay, "replay")
        validate.flag(independent, "independent")
        if head is not None:
            health.accepted_head(head)
        return health.verify(self._shared.ledger, replayed=replay, independent=independent, head=head)

    def wait_for_index(self, timeout: float | None = None) -> bool:
        """Wait until the full-text index is whole again, after a change of the analyser had it rebuilt.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether it is.
        """
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        if self._shared.reindexing is not None:
            self._shared.reindexing.join(timeout)
        with self._shared.database.read() as connection:
            return not reindex.outdated(connection)

    def stats(self) -> health.Stats:
        """Sizes of file and log, and how many records of each type."""
        with self._binding.reading() as view:
            return health.stats(view)

    def watch(
        self, *, after: int | None = None, kinds: Sequence[str] = (), timeout: float | None = None
    ) -> Iterator[Event]:
        """Events of the project as they are committed, by this process or another.

        Args:
            after: Begin after this seq; at the present end of the log if None.
            kinds: Only these kinds of event.
            timeout: End after so many seconds without an event; never if None.
        """
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        of_kinds = kinds_of(self._binding, kinds)
        last = self._shared.ledger.head().seq if after is None else validate.cursor(after, "after")
        return watched(self._binding, last, of_kinds, timeout)
