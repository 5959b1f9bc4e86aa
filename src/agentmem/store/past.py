"""The verbs on the past of records."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

import attrs

from agentmem import limits
from agentmem.records import subjects, validate
from agentmem.records.base import View
from agentmem.records.refs import identify
from agentmem.store.shared import Facade
from agentmem.types import Ref

if TYPE_CHECKING:
    from agentmem.context.history import Diff, History
    from agentmem.session_types import Record
    from agentmem.store.at import PastStore


class PastVerbs(Facade):
    """History, revisions, time travel."""

    def history(
        self,
        ref: Ref | None = None,
        *,
        deep: bool = True,
        under: Ref | None = None,
        author: str | None = None,
        run: str | None = None,
        session: Ref | None = None,
        project: str | None = None,
        after: int = 0,
        before: int | None = None,
        newest_first: bool = False,
        limit: int = limits.PAGE,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> History:
        """What happened: who changed what from what to what, and when. Also of what was purged, undone or removed.

        The filters narrow each other down. Continue with the answer's `next` as `after=`, newest first as `before=`.

        Args:
            ref: Of this record; the whole project if none is named.
            deep: Of a note, also its checklist, its summary and the checkpoints about it.
            under: Of this note or entity and everything beneath it as it stands now.
            author: By this author.
            run: In this run.
            session: Of this session: what was said in it, who ran it, and the memory that was written in it.
            project: Of this project instead of the view's, `"*"` for all; as records stood when the events were written.
            after: Only events after this one.
            before: Only events before this one.
            newest_first: In reverse.
            limit: At most so many.
            budget: Of the text, in tokens.

        Raises:
            NotFound: There never was such a record.
        """
        from agentmem.context.history import history
        from agentmem.past.history import asked

        for name, flag in (("deep", deep), ("newest_first", newest_first)):
            validate.flag(flag, name)
        named = None if project is None else validate.project(project, everywhere=True)
        if ref is None or under is not None:
            self._of_all("The past of several records may be of several subjects; that of one can be had")
        subjects.refuse_projects(self._binding, named)
        binding = self._binding if named in (None, "*") else attrs.evolve(self._binding, project=named)
        with binding.reading() as view:
            self._seen_always(view, ref, deep=deep)
            wanted = asked(
                view, ref=ref, deep=deep, under=under, author=author, run=run, session=session,
                everywhere=named == "*", after=after, before=before, newest_first=newest_first, limit=limit,
            )  # fmt: skip
            return history(view, binding.ledger.kinds, wanted, budget=budget, counter=self._shared.counter)

    def revisions(
        self, ref: Ref, *, before: int | None = None, limit: int = limits.PAGE, budget: int = limits.BUDGET_DEFAULT
    ) -> History:
        """The changes of one record of any type, newest first; the `seq` of each names the revision that it made.

        Args:
            ref: A note, entity (its attributes and marks are part of it), checklist item, summary, checkpoint,
                declaration of checks or project.
            before: Only those before this event: the `next` of the page before.
            limit: At most so many.
            budget: Of the text, in tokens.

        Raises:
            NotFound: There never was such a record.
        """
        from agentmem.context.history import history
        from agentmem.past.history import Asked, locate

        validate.page(limit)
        last = limits.INT_MAX if before is None else validate.cursor(before, "before")
        with self._binding.reading() as view:
            self._seen_always(view, ref)
            record, of = locate(view, ref)
            wanted = Asked(record=record, type=of, claims=False, before=last, newest_first=True, limit=limit)
            kinds, counter = self._binding.ledger.kinds, self._shared.counter
            return history(view, kinds, wanted, budget=budget, counter=counter, verb="revisions")

    def revision(self, ref: Ref, seq: int) -> Record:
        """A record as it was right after an event, its own or any other.

        Of a summary, `stale` is false: what lay beneath it then is not looked at; `at(seq)` does.

        Raises:
            NotFound: The record was not there at that moment, or what it was then has been purged.
        """
        from agentmem.past.history import locate
        from agentmem.past.revisions import at_event

        with self._binding.reading() as view:
            self._seen_always(view, ref)
            return at_event(view, *locate(view, ref), seq).value

    def diff(self, ref: Ref, before: int, after: int | None = None, *, budget: int = limits.BUDGET_DEFAULT) -> Diff:
        """What differs between two revisions of a record: field by field, attributes, marks and links by name.

        Args:
            ref: The record.
            before: One side: as it was right after this event.
            after: The other side; as it is now if None.
            budget: Of the text, in tokens; long texts are compared line by line in it.

        Raises:
            NotFound: The record was not there at one of the two moments, or what it was then has been purged.
        """
        from agentmem.context.history import diff
        from agentmem.past.history import locate
        from agentmem.past.revisions import at_event, difference

        then, now = validate.cursor(before, "before"), validate.optional_cursor(after, "after")
        with self._binding.reading() as view:
            self._seen_always(view, ref)
            record, of = locate(view, ref)
            one = at_event(view, record, of, then)
            other = at_event(view, record, of, view.seq if now is None else now)
            found = difference(one.state, other.state)
            return diff(found, record, of, one.seq, other.seq, budget=budget, counter=self._shared.counter)

    def at(self, seq: int | None = None, *, time: datetime.datetime | int | None = None) -> PastStore:
        """The store as it was right after an event: everything that reads, without search, writing nothing.

        It is folded in memory, in time that grows with the events up to it, and takes about as much memory as the records
        have text; close it when done. Of a log of more than `limits.AT_EVENTS` events only the view's project is folded.

        Args:
            seq: The last event that counts.
            time: Instead of it: the last event with an earlier or equal time. An aware datetime, or microseconds.

        Raises:
            NotFound: The log ends before it.
            InvalidInput: Neither or both were given, or a datetime without a time zone.
        """
        from agentmem.store.at import open_past

        self._of_all("The store as it was is of all subjects")
        return open_past(self._shared, self._binding, seq, time)

    def _seen_always(self, view: View, ref: Ref | None, *, deep: bool = False) -> None:
        """Refuse the past of what a view of a subject does not see, or did not see then.

        Raises:
            OutOfReach: It is so.
            NotFound: In such a view: the record is no more, and nobody knows whom it was about.
        """
        if self._binding.subject is not None and ref is not None:
            record, of = identify(view, ref)
            subjects.refuse_past(view, record, of, deep=deep and of == "note")
