"""The verbs that read back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.records import scopes, subjects, validate
from agentmem.records.base import Binding, View
from agentmem.records.load import load
from agentmem.records.refs import identify, note_id
from agentmem.store.shared import Facade
from agentmem.types import UNSET, Origin, Ref, Unset

if TYPE_CHECKING:  # what only some calls need is imported there: most processes make few of them
    from datetime import datetime, timedelta

    from agentmem.context.left import Left
    from agentmem.context.parts import Graph, TaskSummary
    from agentmem.context.recalled import Recall
    from agentmem.context.resume import Resume
    from agentmem.context.review import Review
    from agentmem.recall.find import Found
    from agentmem.session_types import Record


class ReadingVerbs(Facade):
    """What a reader gets."""

    def resume(
        self, task: Ref | None | Unset = UNSET, *, since: int | None = None, budget: int = limits.BUDGET_DEFAULT
    ) -> Resume:
        """Everything needed to go on, within a budget of tokens: call it first, and after every loss of context.

        Args:
            task: A goal or step; by default the actor's task, or the project if there is none. None is the project.
            since: Only what changed after this seq, the `seq` of an earlier answer.
            budget: In tokens, from 300.
        """
        from agentmem.context.resume import resume

        with self._binding.reading() as view:
            found = self._chosen(view, task)
            after = validate.optional_cursor(since, "since")
            heard = self._news(view)
            answer = resume(view, found, after=after, budget=budget, counter=self._shared.counter, news=heard)
            self._hear(view)
            return answer

    def left(
        self,
        task: Ref | None | Unset = UNSET,
        *,
        type: str | None = None,
        limit: int = limits.PAGE,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Left:
        """What is not done: scope minus marks, open steps and items. Computed, with a denominator.

        Args:
            task: A goal or step; by default the actor's task, or the project if there is none. None is the project.
            type: Only the coverage of this type of entity.
            limit: At most so many entries in each list; the totals are of all.
            budget: Of the text, in tokens.

        Raises:
            NotFound: No entity, scope or declaration of the project is of the type; the nearest one is named.
        """
        from agentmem.context.left import left

        validate.page(limit)
        with self._binding.reading() as view:
            found = self._chosen(view, task)
            if type is not None:
                scopes.known_type(view, type, found)
            heard = self._news(view)
            answer = left(view, found, type=type, limit=limit, budget=budget, counter=self._shared.counter, news=heard)
            self._hear(view)
            return answer

    def _chosen(self, view: View, task: Ref | None | Unset) -> int | None:
        """The id of the task a reading is about, None for the project."""
        if isinstance(task, Unset):
            return self._binding.actor.task
        return None if task is None else note_id(view, task)

    def review(
        self,
        task: Ref | None | Unset = UNSET,
        *,
        older_than: timedelta | float = 14,
        section: str | None = None,
        after: str | None = None,
        limit: int = 20,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Review:
        """What is worth a look: what lies still, is open, doubtful, contradicted, twice there. Proposed, never changed.

        Args:
            task: A goal or step; by default the actor's task, or the project if there is none. None is the project.
            older_than: How long something must have lain still to be named, a `timedelta` or days.
            section: Only this section: `stalled`, `attempts`, `questions`, `contradictions`, `duplicates`, `claims`,
                `unfinished`, `unsummarized`, `stale`, `unsure`, `unconfirmed`, `untrusted`, `checks`.
            after: The `after` of this section in an answer before.
            limit: At most so many findings in each section; the totals are of all, exact up to 1,000.
            budget: Of the text, in tokens.

        Raises:
            InvalidInput: There is no such section, or `after` is no place in it.
        """
        from agentmem.context.review import SECTIONS, review

        self._of_all("A review is of all subjects")
        validate.page(limit)
        age = validate.duration(older_than, "older_than")
        if section is not None:
            validate.choice(section, "section", SECTIONS)
        elif after is not None:
            raise InvalidInput("after= is a place in one section", next="Give section= too")
        with self._binding.reading() as view:
            return review(
                view, self._chosen(view, task), age=age, section=section, after=after, limit=limit, budget=budget,
                counter=self._shared.counter,
            )  # fmt: skip

    def task_summary(self, task: Ref, *, budget: int = limits.BUDGET_DEFAULT) -> TaskSummary:
        """What a task and its parts come to: its summary, and those of everything beneath it."""
        from agentmem.context.parts import task_summary

        with self._binding.reading() as view:
            return task_summary(view, note_id(view, task), budget=budget, counter=self._shared.counter)

    def graph(
        self,
        ref: Ref,
        *,
        depth: int = limits.TREE_LEVELS,
        limit: int = limits.PAGE,
        after: int = 0,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Graph:
        """A note or entity with all beneath it, depth first, and the links from these.

        Args:
            ref: Where to start.
            depth: Levels beneath.
            limit: At most so many nodes.
            after: The `after` of the page before.
            budget: Of the text, in tokens.
        """
        from agentmem.context.parts import graph

        validate.page(limit)
        validate.cursor(after, "after")
        with self._binding.reading() as view:
            start, of = identify(view, ref)
            if of not in ("note", "entity"):
                raise InvalidInput(f"#{start} is of type {of}", why="A graph starts at a note or an entity")
            levels = validate.whole(depth, "depth", 0, limits.TREE_LEVELS)
            return graph(
                view, start, of, depth=levels, limit=limit, after=after, budget=budget, counter=self._shared.counter
            )

    def get(self, ref: Ref) -> Record:
        """A record in full, whatever its type.

        Raises:
            NotFound: There is none; a number that is an event's says whose; or it was purged.
        """
        with self._binding.reading() as view:
            return load(view, *identify(view, ref))

    def find(
        self,
        query: str,
        *,
        kind: str | None = None,
        status: str | None = None,
        under: Ref | None = None,
        about: Ref | None = None,
        tag: str | None = None,
        author: str | None = None,
        origin: Origin | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        project: str | None = None,
        limit: int = 10,
        after: str | None = None,
    ) -> Found:
        """Search by words: notes, entities with their marks, items, checkpoints, summaries. Nothing in the query is syntax.

        Args:
            query: All its words, else words that begin like them, else any; the answer says which.
            kind: A kind of note, or `entity`, `item`, `checkpoint`, `summary`.
            status: In this status.
            under: Beneath this note.
            about: About this entity.
            tag: With this tag.
            author: Written by this author.
            origin: Of this origin.
            since: Written or changed at this time or later: an aware datetime, or microseconds since 1970 UTC.
            until: Written at this time or earlier.
            project: Another project, `"*"` for all.
            limit: At most so many.
            after: The `after` of the page before.
        """
        from agentmem.recall import filters
        from agentmem.recall.find import find

        binding, everywhere = self._searched(project)
        with binding.reading() as view:
            to = filters.narrowed(
                view, kind=kind, status=status, under=under, about=about, tag=tag, author=author, origin=origin,
                since=since, until=until, everywhere=everywhere,
            )  # fmt: skip
            return find(view, query, to, limit=limit, after=after)

    def recall(
        self,
        query: str,
        *,
        kind: str | None = None,
        status: str | None = None,
        under: Ref | None = None,
        about: Ref | None = None,
        tag: str | None = None,
        author: str | None = None,
        origin: Origin | None = None,
        since: datetime | int | None = None,
        until: datetime | int | None = None,
        project: str | None = None,
        task: Ref | None | Unset = UNSET,
        limit: int = 8,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Recall:
        """What was written about something, in whatever words: by words and by meaning, the best first.

        Superseded records stand below what superseded them, contradicted ones are marked, and what says the same is shown
        once. What is not relevant is left out: an answer may be empty. Meaning is English as long as the model in the
        package is used; other languages are found by words. See `docs/recall.md` for the order.

        Args:
            query: A question, words, a name, a pasted line; nothing in it is syntax.
            kind: A kind of note, or `entity`, `item`, `checkpoint`, `summary`.
            status: In this status.
            under: Beneath this note.
            about: About this entity.
            tag: With this tag.
            author: Written by this author.
            origin: Of this origin.
            since: Written or changed at this time or later: an aware datetime, or microseconds since 1970 UTC.
            until: Written at this time or earlier.
            project: Another project, `"*"` for all.
            task: What belongs to this task is lifted a little; by default the actor's task. None for no task.
            limit: At most so many hits, 1 to 100.
            budget: Of the text, in tokens.

        Raises:
            InvalidInput: Nothing in the query can be searched for, or an argument is not acceptable.
            LimitExceeded: The query is too long.
        """
        from agentmem.context.recalled import answer
        from agentmem.recall import filters
        from agentmem.recall.recall import recall

        validate.whole(limit, "limit", 1, limits.PAGE)
        binding, everywhere = self._searched(project)
        validate.text(query, "query", 4 * limits.QUERY_CHARS)
        self._shared.meaning.prepare(query)
        with binding.reading() as view:
            to = filters.narrowed(
                view, kind=kind, status=status, under=under, about=about, tag=tag, author=author, origin=origin,
                since=since, until=until, everywhere=everywhere,
            )  # fmt: skip
            heard = self._news(view)
            found = recall(view, self._shared.meaning, query, to, task=self._chosen(view, task), limit=limit)
            result = answer(
                view, found, budget=budget, counter=self._shared.counter, limit=limit, news=heard, everywhere=everywhere
            )
            self._hear(view)
            return result

    def _searched(self, project: str | None) -> tuple[Binding, bool]:
        """The view whose project a search is about, and whether it is about all projects."""
        named = None if project is None else validate.project(project, everywhere=True)
        subjects.refuse_projects(self._binding, named)
        return self._binding if named in (None, "*") else attrs.evolve(self._binding, project=named), named == "*"

    def news(self) -> tuple[str, ...]:
        """What the actor's task should hear since its last call, two lines at most; none without a task."""
        with self._binding.reading() as view:
            found = self._news(view)
            self._hear(view)
            return found

    def _news(self, view: View) -> tuple[str, ...]:
        """The news since the last answer that was given; nothing is taken as heard yet."""
        actor = self._binding.actor
        if actor.task is None:
            return ()
        before = self._shared.heard.get((actor.run, actor.task))
        if before is None:
            return ()
        from agentmem.context.news import news

        return news(view, actor.task, before)

    def _hear(self, view: View) -> None:
        """Take the news as heard, once the answer with it is made; not inside a transaction, whose seqs may be taken back."""
        actor = self._binding.actor
        if actor.task is None or self._shared.database.in_write():
            return
        with self._shared.lock:
            self._shared.heard[actor.run, actor.task] = view.seq
