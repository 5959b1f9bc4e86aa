"""`store.log`, and watching it grow."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from attrs import evolve

from agentmem import limits
from agentmem.engine.database import Database
from agentmem.records import subjects, validate
from agentmem.records.base import Binding, Namespace
from agentmem.records.refs import identify
from agentmem.types import Event, Head, Ref

_Entry = TypeVar("_Entry")

_POLL_SECONDS: Final = 0.05


class Log(Namespace):
    """`store.log`: the events behind everything."""

    __slots__ = ()

    def head(self) -> Head:
        """The end of the log: note it elsewhere, `verify(head=)` compares later."""
        return self._binding.ledger.head()

    def get(self, seq: int) -> Event | None:
        """One event, None if there is none."""
        subjects.refuse_whole(self._binding, "The log is of all subjects")
        return self._binding.ledger.get(validate.cursor(seq, "seq"))

    def read(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        record: Ref | None = None,
        session: int | None = None,
        project: str | None = None,
        kinds: Sequence[str] = (),
        newest_first: bool = False,
        limit: int = limits.PAGE,
    ) -> tuple[Event, ...]:
        """Events in order; continue with `after=` the last seq (newest first: with `until=` the last seq less one).

        Args:
            after: Only later ones.
            until: Only up to this one.
            record: Of this record.
            session: Of this session.
            project: Of this project instead of the view's; `"*"` for all.
            kinds: Of these kinds.
            newest_first: In reverse.
            limit: At most so many.
        """
        subjects.refuse_whole(self._binding, "The log is of all subjects")
        validate.page(limit)
        of_kinds = kinds_of(self._binding, kinds)
        validate.flag(newest_first, "newest_first")
        validate.cursor(after, "after")
        validate.optional_cursor(until, "until")
        validate.optional_cursor(session, "session")
        named = None if project is None else validate.project(project, everywhere=True)
        binding = self._binding if named in (None, "*") else evolve(self._binding, project=named)
        with binding.reading() as view:
            found = None if record is None else identify(view, record)[0]
            of = None if named == "*" or found is not None else view.project
            return tuple(
                self._binding.ledger.read(
                    after=after, until=until, record=found, session=session, project=of,
                    kinds=of_kinds, newest_first=newest_first, limit=limit,
                )
            )  # fmt: skip


def kinds_of(binding: Binding, kinds: Iterable[str]) -> tuple[str, ...]:
    """Kinds of events that a caller asks for, each one that there is."""
    known = sorted(binding.ledger.kinds.by_name)
    given = validate.batch(kinds, "kinds")
    return tuple(dict.fromkeys(validate.choice(kind, "kind of event", known) for kind in given))


def watched(binding: Binding, last: int, kinds: tuple[str, ...], timeout: float | None) -> Iterator[Event]:
    """Events of the project after `last` as they are committed, by this process or another; see `Store.watch`."""
    ledger = binding.ledger

    def fresh(after: int) -> Sequence[Event]:
        with binding.reading() as view:
            project = view.project
        return ledger.read(after=after, project=project, kinds=kinds, limit=limits.PAGE_MAX)

    return polled(ledger.database, fresh, last, lambda event: event.seq, timeout)


def polled(
    database: Database,
    fresh: Callable[[int], Sequence[_Entry]],
    after: int,
    number: Callable[[_Entry], int],
    timeout: float | None,
) -> Iterator[_Entry]:
    """What is new in a file, as it is committed.

    Args:
        database: The file.
        fresh: Reads what comes after a number: a page, of `limits.PAGE_MAX`.
        after: Where to begin.
        number: The number of an entry.
        timeout: End after so many seconds without one; None for never.
    """
    waited_from = time.monotonic()
    version: int | None = None
    while True:
        current = database.data_version()
        if current != version:
            version = current
            found = fresh(after)
            for entry in found:
                after = number(entry)
                yield entry
            if found:
                waited_from = time.monotonic()
                version = None if len(found) == limits.PAGE_MAX else version
                continue
        if timeout is not None and time.monotonic() - waited_from >= timeout:
            return
        time.sleep(_POLL_SECONDS)
