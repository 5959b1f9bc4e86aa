"""`store.projects`, with the verbs that end a project."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmem.records import subjects, validate
from agentmem.records.projects import Projects
from agentmem.types import Merged, Receipt

if TYPE_CHECKING:
    from agentmem.past.merging import Policy


class ProjectVerbs(Projects):
    """`store.projects`: list, create, rename, merge, delete, numbers."""

    __slots__ = ()

    def merge(self, name: str, *, collisions: Policy = "refuse", request_id: str | None = None) -> Merged:
        """Move all of another project into the view's. Records keep their ids, each has an event that says so.

        Args:
            name: The project to move; it is no more afterwards.
            collisions: Of entities with the same type and key in both: `refuse` the merge, `keep_both` (the one that comes
                in gets another key), or `merge` them: attributes that the one here lacks, the newer mark of each check,
                notes and links of both.
            request_id: Makes a retry safe.

        Returns:
            What was moved, and each collision with what became of it.

        Raises:
            Conflict: There are collisions, and they were to be refused.
            Held: A record that would move is claimed by another run.
            NotFound: There is no such project.
        """
        from agentmem.past import merging

        subjects.refuse_whole(self._binding, "A project is more than one subject")
        validate.choice(collisions, "collisions", merging.POLICIES)
        arguments = {"into": self._binding.project, "name": name, "collisions": collisions}
        return self._binding.run(
            "projects.merge", arguments, request_id, lambda unit: merging.merge(unit, name, collisions)
        )

    def delete(self, name: str, *, dry_run: bool = False, request_id: str | None = None) -> Receipt:
        """Purge a project with all that is in it, for good; see `store.forget`.

        Args:
            name: The project, named even if it is the view's own.
            dry_run: Only say what would go.
            request_id: Makes a retry safe.

        Raises:
            Held: A record of it, or one that points into it, is claimed by another run.
            NotFound: There is no such project.
            Conflict: Inside a transaction.
        """
        subjects.refuse_whole(self._binding, "A project is more than one subject")
        validate.flag(dry_run, "dry_run")
        from agentmem.past import purge

        return purge.forget(
            self._binding,
            None,
            project=name,
            type=None,
            where=None,
            parameters={},
            dry_run=dry_run,
            request_id=request_id,
        )
