"""The verbs that take writing back, and those that end it for good."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import attrs

from agentmem.records import subjects, tree, validate
from agentmem.records.refs import identify
from agentmem.store.shared import Facade
from agentmem.types import HasId, Ref

if TYPE_CHECKING:
    from agentmem.types import Receipt, Undone


class EndingVerbs(Facade):
    """Undo, forget, redact."""

    def undo(
        self,
        events: int | Iterable[int] | None = None,
        *,
        request: str | None = None,
        run: str | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
    ) -> Undone:
        """Take events back by new ones that set each field to what it was. An undo can be undone.

        Args:
            events: The seqs of one or of several events.
            request: All events of the project that were written under this request id.
            run: Or all that this run wrote. Either may be given together with events.
            dry_run: Only say what it would do.
            request_id: Makes a retry safe.

        Returns:
            The events taken back and those that did it. Of a run or request are passed over: claims, what was purged, and
            what was taken back already.

        Raises:
            UndoBlocked: A field was changed since, or something stands on what would go; `events` of it names all that
                would have to be undone first, or together with it.
            InvalidInput: A kind of event that is never undone: a purge, a claim.
            NotFound: No such event, or the run or request wrote nothing.
            Conflict: An event that was named was taken back already.
            Held: One of the records is claimed by another run.
            LimitExceeded: The run or request wrote more than `limits.UNDO_EVENTS` events.
        """
        self._of_all("What is taken back may concern other subjects")
        validate.flag(dry_run, "dry_run")
        from agentmem.past import undo

        return undo.undo(self._binding, events, request=request, run=run, dry_run=dry_run, request_id=request_id)

    def forget(
        self,
        refs: Iterable[Ref] | Ref | None = None,
        *,
        project: str | None = None,
        type: str | None = None,
        where: str | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
        **parameters: Any,
    ) -> Receipt:
        """Purge records for good, each with all beneath it: subtree, checklist, summaries, checkpoints, marks, links.

        Afterwards the text is in no table, index, page or log of the file, nor in what other processes remember of it.
        Headers of events stay: that something was there, when, and by whom. What pointed at a record is changed by events.
        At the end all pages are written anew, in some seconds for each 100 MB of the file, while others wait to write: one
        call for many records costs little more than one for one.

        Args:
            refs: The records; also undone and removed ones.
            project: Instead: a whole project, by its name.
            type: Instead: the entities of a type that match `where`.
            where: Which of them; see `docs/where.md`.
            dry_run: Only say what would go. Worth doing first: nothing brings a purged text back.
            request_id: Makes a retry safe.
            parameters: The values of `:name` in `where`.

        Raises:
            Held: One of the records, or one that points at them, is claimed by another run.
            NotFound: There is none, or it was purged already.
            Conflict: Inside a transaction.
            InvalidInput: Not named in one way, or a project by its number; or the actor's origin is untrusted.
        """
        validate.flag(dry_run, "dry_run")
        from agentmem.past import purge

        named = _several(refs)
        self._apart(named)
        receipt = purge.forget(
            self._binding, named, project=project, type=type, where=where, parameters=parameters,
            dry_run=dry_run, request_id=request_id,
        )  # fmt: skip
        return self._told(receipt)

    def redact(
        self,
        ref: Ref,
        *,
        attr: str | None = None,
        check: str | None = None,
        dry_run: bool = False,
        request_id: str | None = None,
    ) -> Receipt:
        """Purge the earlier texts of a record and keep what it says now. To lose a secret, first edit it out.

        Args:
            ref: The record.
            attr: Of an entity: this attribute, its present value too.
            check: Of an entity: value and detail of this check, the present ones too; its result stays.
            dry_run: Only say which events would be erased.
            request_id: Makes a retry safe.

        Raises:
            Held: The record is claimed by another run.
            NotFound: There is none, or it was purged.
            Conflict: Inside a transaction.
            InvalidInput: `attr` or `check` of something that is no entity, or both; or the actor's origin is untrusted.
        """
        validate.flag(dry_run, "dry_run")
        from agentmem.past import purge

        if self._binding.subject is not None:
            with self._binding.reading() as view:
                identify(view, ref)
        return self._told(
            purge.redact(self._binding, ref, attr=attr, check=check, dry_run=dry_run, request_id=request_id)
        )

    def _apart(self, refs: list[Ref] | None) -> None:
        """Refuse that a view of a subject purges what it does not see, or an entity, by which others are kept apart.

        Raises:
            OutOfReach: It would.
        """
        if self._binding.subject is None:
            return
        if refs is None:
            self._of_all("Named are a project or entities of a type, not records")
        with self._binding.reading() as view:
            for ref in refs or ():
                record, of = identify(view, ref)
                if of == "entity":
                    self._of_all(f"Entity #{record} keeps subjects apart")
                if of == "note" and subjects.hidden(
                    view, {each for row in view.rows(_TOUCHED, (record,)) for each in row}
                ):
                    self._of_all(f"Something about another subject lies beneath #{record}, or points at it")

    def _told(self, receipt: Receipt) -> Receipt:
        """What a purge did, without the records that a view of a subject does not see."""
        if self._binding.subject is None:
            return receipt
        with self._binding.reading() as view:
            unseen = subjects.hidden(view, {*receipt.also_found_in, *receipt.detached})
        return attrs.evolve(
            receipt,
            also_found_in=tuple(each for each in receipt.also_found_in if each not in unseen),
            detached=tuple(each for each in receipt.detached if each not in unseen),
        )


# What a purge of a note ends or changes: all beneath it, checkpoints of these, what links to these, sessions that work on them.
_TOUCHED: Final = f"""
{tree.BENEATH}
SELECT beneath.id FROM beneath
UNION SELECT checkpoint.id FROM beneath JOIN checkpoint ON checkpoint.task = beneath.id
UNION SELECT link.src FROM beneath JOIN link ON link.dst = beneath.id
UNION SELECT session.id FROM beneath JOIN session ON session.task = beneath.id
"""


def _several(refs: Iterable[Ref] | Ref | None) -> list[Ref] | None:
    if refs is None:
        return None
    if isinstance(refs, (int, str, HasId)):
        return [refs]
    return validate.batch(refs, "refs")
