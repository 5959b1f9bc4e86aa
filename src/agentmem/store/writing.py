"""The verbs that write, beside those of the namespaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentmem import limits
from agentmem.records import confirm as confirmations
from agentmem.records import reports, scopes, validate
from agentmem.records.base import Unit
from agentmem.records.refs import note_id
from agentmem.store.shared import Facade
from agentmem.types import UNSET, Checkpoint, Ref, Scope, Status, Unset, Written


class WritingVerbs(Facade):
    """Checkpoints, summaries, confirmations."""

    def scope(self, type: str, *, where: str | None = None, checks: Sequence[str] = (), **parameters: Any) -> Scope:
        """What a task covers, for `scope=` of a goal or step.

        Args:
            type: The kind of entity.
            where: Only those that match; see `agentmem.records.where`.
            checks: What each needs; by default what is declared with `entities.expect`.
            parameters: The values of `:name` in `where`.
        """
        return scopes.make(type, where, checks, parameters)

    def checkpoint(self, text: str, *, task: Ref | None = None, request_id: str | None = None) -> Written:
        """Write where the work stands: doing, next, beware. For a task, by default the actor's, or the project."""
        return self._binding.run(
            "checkpoint", {"text": text, "task": task}, request_id, lambda unit: reports.checkpoint(unit, text, task)
        )

    def checkpoints(
        self, task: Ref | None | Unset = UNSET, *, limit: int = 20, before: int | None = None
    ) -> tuple[Checkpoint, ...]:
        """The checkpoints of the project and its tasks, newest first; continue with `before=` the last id.

        Args:
            task: Only those of a task; None for those of the project itself.
            limit: At most so many.
            before: Continue before the checkpoint of this id.
        """
        validate.page(limit)
        last = limits.INT_MAX if before is None else validate.cursor(before, "before")
        with self._binding.reading() as view:
            if isinstance(task, Unset):
                return reports.every_checkpoint(view, limit=limit, before=last)
            found = None if task is None else note_id(view, task)
            return reports.checkpoints(view, found, limit=limit, before=last)

    def summarize(
        self,
        task: Ref,
        *,
        work: str = "",
        result: str = "",
        status: Status | None = None,
        confidence: float | None = None,
        basis: str | None = None,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Write what a goal or step comes to and close it, in one transaction.

        Args:
            task: The goal or step.
            work: What was done.
            result: What came of it.
            status: `done` (for one that is open), `failed` or `dropped`.
            confidence: 0 to 1.
            basis: What it rests on.
            expected_revision: The revision of the task the caller has seen.
            request_id: Makes a retry safe.

        Returns:
            The summary's id. `notices` warn of what is open beneath and of closed parts without a summary. A second
            summary replaces the first, which stays in the log.
        """
        arguments = {
            "task": task, "work": work, "result": result, "status": status,
            "confidence": confidence, "basis": basis, "expected_revision": expected_revision,
        }  # fmt: skip

        def command(unit: Unit) -> Written:
            return reports.summarize(
                unit, task, work=work, result=result, status=status, confidence=confidence, basis=basis,
                expected=expected_revision,
            )  # fmt: skip

        return self._binding.run("summarize", arguments, request_id, command)

    def confirm(
        self,
        record: Ref,
        *,
        confidence: float | None | Unset = UNSET,
        basis: str | None | Unset = UNSET,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Say that a record still holds. A person's word (`origin="user"`) lifts an untrusted one out.

        Args:
            record: A note, an entity, an item or a summary.
            confidence: Of a note, a new one.
            basis: Of a note, a new one.
            expected_revision: The revision the caller has seen.
            request_id: Makes a retry safe.
        """
        arguments = {"record": record, "confidence": confidence, "basis": basis, "expected_revision": expected_revision}
        return self._binding.run(
            "confirm",
            arguments,
            request_id,
            lambda unit: confirmations.confirm(unit, record, confidence, basis, expected_revision),
        )
