"""`store.sessions`: durable conversations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.records import session_reads, sessions, validate
from agentmem.records.base import Binding, View
from agentmem.records.refs import entity_id, identify, note_id, session_id
from agentmem.records.session_rows import load_event, load_session
from agentmem.store.session import Executes, Session, within
from agentmem.store.shared import Shared
from agentmem.types import Origin, Ref, Written

if TYPE_CHECKING:
    from agentmem.session_types import Appended, Ready, SessionEvent, SessionInfo, Waiting

__all__ = ["Executes", "Session", "Sessions"]


class Sessions:
    """`store.sessions`: durable conversations."""

    __slots__ = ("_binding", "_shared")

    def __init__(self, shared: Shared, binding: Binding) -> None:
        self._shared = shared
        self._binding = binding

    def start(
        self,
        *,
        title: str | None = None,
        task: Ref | None = None,
        agent: str | Mapping[str, Any] | None = None,
        about: Ref | None = None,
        metadata: Mapping[str, str] | None = None,
        parent: Ref | None = None,
        request_id: str | None = None,
    ) -> Session:
        """Begin a session.

        Args:
            title: One line for people.
            task: The goal or step that it works on: its `resume` is in every window.
            agent: Who converses: a name, or an object with at least a `name`, such as a version and a model.
            about: The entity that it is about. The session sees what is about that, about what lies beneath it, and what is
                about nothing in particular; nothing that is about another. It stays as it is for good.
            metadata: Labels of your own, 16 at most.
            parent: The session that it works for. It has the same subject, and the same task unless another is given.
            request_id: Makes a retry safe.

        Raises:
            NotFound: One of the records is not there.
            InvalidInput: A record of another type, or a field that is not acceptable.
            OutOfReach: It would be about another subject than its parent.
        """
        arguments = {
            "title": title, "task": task, "agent": agent, "about": about, "metadata": metadata, "parent": parent,
        }  # fmt: skip
        made = self._binding.run(
            "sessions.start",
            arguments,
            request_id,
            lambda unit: sessions.start(
                unit, title=title, task=task, agent=agent, about=about, metadata=metadata, parent=parent
            ),
        )
        return self._session(made)

    def get(self, ref: Ref) -> Session:
        """The session of this id.

        Raises:
            NotFound: There is none, or it was purged.
            InvalidInput: It is a record of another type.
        """
        with self._binding.reading() as view:
            found = session_id(view, ref)
            return self._at(view, load_session(view, found), None)

    def list(
        self,
        *,
        task: Ref | None = None,
        about: Ref | None = None,
        parent: Ref | None = None,
        status: str | None = None,
        archived: bool | None = False,
        after: int = 0,
        newest_first: bool = False,
        limit: int = limits.PAGE,
    ) -> tuple[SessionInfo, ...]:
        """Sessions of the project in the order they were begun; continue with `after=` the last id.

        Args:
            task: That work on this task.
            about: That are about this entity.
            parent: That work for this session.
            status: `idle`, `running`, `rescheduling` or `terminated`.
            archived: Those that were archived instead; None for both.
            after: Those after this one in the chosen order.
            newest_first: In reverse.
            limit: At most so many.
        """
        validate.page(limit)
        validate.flag(newest_first, "newest_first")
        if status is not None:
            validate.choice(status, "status", ("idle", "running", "rescheduling", "terminated"))
        with self._binding.reading() as view:
            return tuple(
                session_reads.listed(
                    view, task=None if task is None else note_id(view, task),
                    about=None if about is None else entity_id(view, about),
                    parent=None if parent is None else session_id(view, parent), status=status, archived=archived,
                    after=validate.cursor(after, "after"), newest_first=newest_first, limit=limit,
                )
            )  # fmt: skip

    def waiting(self) -> tuple[Waiting, ...]:
        """The calls of tools in this project that wait for a person, the oldest first."""
        with self._binding.reading() as view:
            return tuple(session_reads.waiting(view))

    def ready(self, *, limit: int = limits.PAGE) -> tuple[Ready, ...]:
        """The sessions that can go on now and that nobody runs: for the loop of a worker. Those waiting longest first.

        A session is ready when it was answered, when it never ran, when its time has come, and when whoever ran it is gone
        without having ended: its lease lapsed.
        """
        validate.page(limit)
        with self._binding.reading() as view:
            return tuple(session_reads.ready(view, limit))

    def confirm(
        self,
        event: int,
        result: Literal["allow", "deny"],
        *,
        message: str | None = None,
        by: str | None = None,
        input_hash: str | None = None,
        seconds: int | None = None,
        request_id: str | None = None,
    ) -> Appended:
        """Allow or deny a call that waits, whichever session it is in; see `Session.confirm`."""
        with self._binding.reading() as view:
            session = _event(view, event).session
        return self.get(session).confirm(
            event, result, message=message, by=by, input_hash=input_hash, seconds=seconds, request_id=request_id
        )

    def source(self, note: Ref) -> SessionEvent | None:
        """The event of a session that a note rests on: the one its `source` names, else the last result of a tool before it.

        Returns:
            None for a note that was not written in a session, or before any tool had answered in it.
        """
        from agentmem.records.session_links import source_of

        with self._binding.reading() as view:
            return source_of(view, *identify(view, note))

    def import_(
        self,
        lines: Iterable[str | Mapping[str, Any]],
        *,
        title: str | None = None,
        task: Ref | None = None,
        agent: str | Mapping[str, Any] | None = None,
        about: Ref | None = None,
        origin: Origin | None = None,
    ) -> Session:
        """Begin a session with the events of a file, all or nothing: what `Session.export` gave, of either form.

        Events get new ids, and what refers to them is led there; when they were said is in their `dated`. Of the public
        form a type that is unknown here is kept whole, as `x.foreign`.

        Args:
            lines: Texts of JSON, or objects.
            title: Another title than the file says.
            task: The goal or step that it works on.
            agent: Another agent than the file says.
            about: The entity that it is about.
            origin: Where the texts came from, of files of others `import`; by default as the file says.

        Raises:
            InvalidInput: A line is no event, or refers to none before it. Nothing is kept.
        """
        from agentmem.transfer.session_files import Reader, incoming

        found = incoming(lines)
        with self._shared.ledger.transaction():
            session = self.start(
                title=found.head.get("title") if title is None else title, task=task,
                agent=found.head.get("agent") if agent is None else agent, about=about, metadata=found.head.get("metadata"),
            )  # fmt: skip
            reader = Reader(found, origin)
            for entries, originals in reader.pieces():
                reader.became(originals, session.extend(entries).ids)
        return session

    def _session(self, made: Written) -> Session:
        with self._binding.reading() as view:
            return self._at(view, load_session(view, made.id), made)

    def _at(self, view: View, info: SessionInfo, made: Written | None) -> Session:
        return Session(self._shared, within(view, info), info.id, made)


def _event(view: View, event: int) -> SessionEvent:
    found, of = identify(view, event)
    if of != "message":
        raise InvalidInput(f"#{found} is no event of a session but a record of type {of}")
    return load_event(view, found)
