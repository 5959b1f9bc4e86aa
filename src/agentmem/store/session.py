"""One session: a durable conversation in the same file as the memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

import attrs

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput
from agentmem.log.ledger import refuse_void
from agentmem.records import session_forks, session_leases, session_reads, sessions, validate, vocabulary
from agentmem.records.base import Binding, View
from agentmem.records.refs import session_id
from agentmem.records.session_rows import Segment, lineage, load_session
from agentmem.records.sessions import Entry
from agentmem.store.shared import Shared
from agentmem.types import UNSET, Claim, Origin, Ref, Transit, Unset, Written

if TYPE_CHECKING:
    from agentmem.context.audit import Audit
    from agentmem.context.window import Window
    from agentmem.session_types import Appended, Piece, SessionEvent, SessionInfo, Waiting
    from agentmem.store.opening import Store
    from agentmem.types import Receipt

__all__ = ["Executes", "Session", "within"]

_LASTING: Final = frozenset((*vocabulary.CALLS, *vocabulary.RESULTS, "agentmem.tool_started", "user.tool_confirmation"))


class Executes(Protocol):
    """What runs tools in a session; `agentmem.harness.Executor` is one."""

    def execute(self, session: Session, name: str, input: Mapping[str, Any]) -> str:
        """Run a tool, the intent logged before and the outcome after."""


def within(view: View, info: SessionInfo) -> Binding:
    """The view of a store that acts in a session: in its name and its project, for its task, with its subject."""
    binding = view.binding
    actor = binding.actor
    task = info.task if actor.task is None else actor.task
    subject = binding.subject if info.about is None else info.about
    (project,) = view.one("SELECT name FROM project WHERE id = ?", (info.project,))
    actor = attrs.evolve(actor, session=info.id, task=task)
    return attrs.evolve(binding, actor=actor, project=project, subject=subject)


class Session:
    """One durable conversation. It holds nothing but its id: every answer is read from the file.

    Attributes:
        id: Its id, taken wherever a record is named.
        outside: Of a fork, the calls of tools that ran after its place, as (event, tool): they are not undone by it.
    """

    __slots__ = ("_binding", "_shared", "_tools", "_transit", "id", "outside", "repeated")

    def __init__(self, shared: Shared, binding: Binding, session: int, made: Written | None = None) -> None:
        self._shared = shared
        self._binding = binding
        self._tools: Executes | None = None
        self._transit: Transit | None = None if made is None else made._transit
        self.id = session
        self.repeated = made is not None and made.repeated
        self.outside: tuple[tuple[int, str], ...] = ()

    def __repr__(self) -> str:
        return f"<Session #{self.id}>"

    @property
    def provisional(self) -> bool:
        """Whether it was begun in a transaction that is not committed yet."""
        return self._transit is not None and self._transit.state == "open"

    @property
    def void(self) -> bool:
        """Whether the transaction that it was begun in was rolled back."""
        return self._transit is not None and self._transit.state == "rolled_back"

    @property
    def info(self) -> SessionInfo:
        """What is known of it now."""
        with self._reading() as view:
            return load_session(view, self._found(view))

    @property
    def status(self) -> str:
        """`idle` (it waits for somebody), `running`, `rescheduling` or `terminated`."""
        return self.info.status

    @property
    def store(self) -> Store:
        """The store as this session sees it: what is written there names the session, what is read keeps to its subject.

        Raises:
            Conflict: Its subject is no more: then it sees nothing.
        """
        if self._binding.subject is not None:
            with self._reading() as view:
                sessions.refuse_apart(view, self.id)
        return self._store()

    def _store(self) -> Store:
        from agentmem.store.opening import Store

        return Store(self._shared, self._binding)

    # Writing

    def append(
        self,
        type: str,
        body: str | Mapping[str, Any] | None = None,
        *,
        key: str | None = None,
        origin: Origin | None = None,
        request_id: str | None = None,
    ) -> Appended:
        """Append one event.

        ```python
        session = store.sessions.start(title="Case 1")
        session.append("user.message", "Where is my order?")
        session.append("x.plan", {"text": "ask for the number", "step": 1}, key="plan")
        ```

        Args:
            type: One of the types of `docs/sessions.md`, or your own, `x.<name>`.
            body: Its fields. A text stands for the content of a message, and for the `text` of your own events.
            key: Of your own event: the newest one of each key is the state of the session.
            origin: Where the text came from; by default the view's, of a tool's result `tool`.
            request_id: Makes a retry safe: repeated, it returns the first outcome and appends nothing.

        Raises:
            InvalidInput: An unknown type or field, or a reference to no event of the session.
            LimitExceeded: More than `limits.SESSION_EVENT_BYTES`.
            Conflict: The session is archived or terminated; an answer to what is answered.
            Held: The event is one of whoever runs the session, and another runs it.
        """
        return self.extend([Entry(type, body, key, origin)], request_id=request_id)

    def extend(self, events: Iterable[Any], *, request_id: str | None = None) -> Appended:
        """Append several events, all or none: (type, body) each, or objects with `type`, `body`, `key`, `origin`.

        In a body `"tool_use_id": -1` names the first event of this call, -2 the second.
        """
        return self._append(sessions.entries_of(events), request_id=request_id)

    def _append(self, entries: Sequence[Entry], *, held: bool = False, request_id: str | None = None) -> Appended:
        # What was asked is looked at only to tell a repeat from another request.
        arguments = {} if request_id is None else {"session": self.id, "events": list(map(attrs.asdict, entries))}
        refuse_void(self)
        return self._binding.run(
            "sessions.append", arguments, request_id, lambda unit: sessions.append(unit, self.id, entries, held=held),
            # What a tool did cannot be asked for again after a power cut.
            durable=any(type(entry.type) is str and entry.type in _LASTING for entry in entries),
        )  # fmt: skip

    def change(
        self,
        *,
        title: str | None | Unset = UNSET,
        task: Ref | None | Unset = UNSET,
        agent: str | Mapping[str, Any] | None | Unset = UNSET,
        metadata: Mapping[str, str] | Unset = UNSET,
        archived: bool | Unset = UNSET,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Change title, task, agent or metadata; put it away or take it out again with `archived=`. Its subject stays."""
        arguments = {
            "session": self.id, "title": title, "task": task, "agent": agent, "metadata": metadata, "archived": archived,
            "expected_revision": expected_revision,
        }  # fmt: skip
        return self._binding.run(
            "sessions.change",
            arguments,
            request_id,
            lambda unit: sessions.change(
                unit, self._found(unit), title=title, task=task, agent=agent, metadata=metadata, archived=archived,
                expected=expected_revision,
            ),
        )  # fmt: skip

    def archive(self) -> Written:
        """Put it away: nothing can be appended, lists leave it out. `change(archived=False)` takes it out again.

        Raises:
            Held: Somebody runs it just now.
        """
        return self.change(archived=True)

    def forget(self, *, dry_run: bool = False, request_id: str | None = None) -> Receipt:
        """Purge it for good with all its events, as `Store.forget` does. Forks keep only what is their own."""
        return self._store().forget([self.id], dry_run=dry_run, request_id=request_id)

    def fork(self, at: int | None = None, *, title: str | None = None, request_id: str | None = None) -> Session:
        """Begin another session with the events up to and with one of them, by reference.

        What tools did after that place is done, and stays done: the `outside` of the fork names these calls. A call that had
        no result at the place gets one that says so; the fork never runs it.

        Args:
            at: The last event that it has, of this session or of one that this is a fork of; by default the last.
            title: Another title.
            request_id: Makes a retry safe.
        """
        made = self._binding.run(
            "sessions.fork", {"session": self.id, "at": at, "title": title}, request_id,
            lambda unit: session_forks.fork(unit, self._found(unit), at, title),
        )  # fmt: skip
        with self._reading() as view:
            info = load_session(view, made.id)
            binding = within(view, info)
        fork = Session(self._shared, binding, info.id, made)
        fork.outside = made.outside
        return fork

    # Reading

    def events(
        self,
        *,
        after: int = 0,
        until: int | None = None,
        types: Sequence[str] = (),
        newest_first: bool = False,
        limit: int = limits.PAGE,
    ) -> tuple[SessionEvent, ...]:
        """Its events in order, those of what it is a fork of included; continue with `after=` the last id.

        Args:
            after: Only later ones.
            until: Only up to this one; newest first, continue with `until=` the last id less one.
            types: Of these types.
            newest_first: In reverse.
            limit: At most so many.
        """
        validate.page(limit)
        validate.flag(newest_first, "newest_first")
        wanted = [vocabulary.known(each) for each in validate.batch(types, "types")]
        last = limits.INT_MAX if until is None else validate.cursor(until, "until")
        with self._reading() as view:
            return tuple(
                session_reads.events(
                    view, self._lineage(view), after=validate.cursor(after, "after"), until=last, types=wanted,
                    newest_first=newest_first, limit=limit,
                )
            )  # fmt: skip

    def event(self, event: int) -> SessionEvent:
        """One of its events.

        Raises:
            NotFound: It is no event of this session.
        """
        with self._reading() as view:
            return session_reads.in_lineage(view, self._lineage(view), validate.cursor(event, "event"))

    def state(self) -> dict[str, SessionEvent]:
        """The newest of your own events of each key, by key."""
        with self._reading() as view:
            return session_reads.state(view, self._lineage(view))

    def read(self, event: int, offset: int = 0, *, limit: int = limits.PIECE_CHARS) -> Piece:
        """A piece of the text of an event: large outputs of tools are stored once and read in pieces.

        Args:
            event: The event.
            offset: Where to begin, in characters.
            limit: At most so many characters.
        """
        place = validate.whole(offset, "offset", 0, limits.INT_MAX)
        size = validate.whole(limit, "limit", 1, limits.PIECE_CHARS_MAX)
        return session_reads.piece(self.event(event), place, size)

    def watch(
        self, *, after: int | None = None, types: Sequence[str] = (), timeout: float | None = None
    ) -> Iterator[SessionEvent]:
        """Its events as they are committed, by this process or another.

        Args:
            after: Begin after this one; by default with what comes.
            types: Of these types.
            timeout: End after so many seconds without one; None for never.
        """
        from agentmem.store.watching import watched

        wanted = tuple(vocabulary.known(each) for each in validate.batch(types, "types"))
        limit = None if timeout is None else validate.seconds(timeout, "timeout")
        begun = self.info.last if after is None else validate.cursor(after, "after")
        return watched(self, begun, wanted, limit)

    def waiting(self) -> tuple[Waiting, ...]:
        """Its calls of tools that wait for a person."""
        with self._reading() as view:
            return tuple(session_reads.waiting(view, session=self._found(view)))

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
        """Allow or deny a call that waits. It is bound to the exact input of the call, and runs when the session is woken.

        Args:
            event: The call.
            result: `allow` or `deny`.
            message: With `deny`: what the agent is told.
            by: Who says so, a label; by default the author of the view.
            input_hash: The hash of the input that was looked at, of `waiting()`; another one is refused.
            seconds: An allowance lapses after so many seconds if the call has not begun.
            request_id: Makes a retry safe.

        Raises:
            Conflict: It was answered already, has its result, has lapsed, or its input is another.
            OutOfReach: The view writes only beneath one note.
        """
        arguments = {
            "event": event, "result": result, "message": message, "by": by, "input_hash": input_hash, "seconds": seconds,
        }  # fmt: skip
        call = self.event(event)
        if call.session != self.id:
            raise Conflict(
                f"Call #{call.id} is one of session #{call.session}", why="A fork never runs what it began with",
                next=f"Confirm it in session #{call.session}",
            )  # fmt: skip
        return self._binding.run(
            "sessions.confirm", arguments, request_id,
            lambda unit: sessions.confirm(
                unit, event, result, message=message, by=by, input_hash=input_hash, seconds=seconds
            ),
        )  # fmt: skip

    def window(self, *, budget: int = limits.WINDOW_DEFAULT, pinned: Sequence[int] = ()) -> Window:
        """What the next call of a model needs, within a budget of tokens; see `docs/sessions.md`.

        Args:
            budget: In tokens, from `limits.WINDOW_MIN`.
            pinned: Events that are in every window, whole where they fit.
        """
        from agentmem.context.window import window

        query = self._asked()
        with self._reading() as view:
            return window(
                view, self._found(view), budget=budget, pinned=pinned, counter=self._shared.counter, asked=query,
                meaning=self._shared.meaning if query else None,
            )  # fmt: skip

    def compact(self, *, budget: int = limits.WINDOW_DEFAULT, pinned: Sequence[int] = ()) -> Window:
        """The same; where its beginning had to be made anew, that is kept in the log, so that it stays the same from now on."""
        from agentmem.context.window import COMPACTED, kept

        found = self.window(budget=budget, pinned=pinned)
        if not found.fresh:
            return found
        made = self._append([Entry(COMPACTED, kept(found))])
        return attrs.evolve(found, cut=made.id, fresh=False)

    def _asked(self) -> str:
        """The last message of a user, by which earlier parts are looked for; empty for none."""
        with self._reading() as view:
            found = session_reads.events(view, self._lineage(view), types=("user.message",), newest_first=True, limit=1)
        asked = found[0].text[: limits.QUERY_CHARS] if found else ""
        if asked:
            self._shared.meaning.prepare(asked)
        return asked

    def export(self, *, strict: bool = False) -> Iterator[dict[str, Any]]:
        """Its events as objects of JSON, one after another, those of what it is a fork of included.

        Args:
            strict: In the public form of managed agents, which others' clients parse: without our own types and fields. Else
                lossless, for `sessions.import_`, the session itself first.
        """
        from agentmem.transfer.session_files import exported

        validate.flag(strict, "strict")
        after: int | None = 0
        while after is not None:
            with self._reading() as view:
                lines, after = exported(view, self._found(view), strict=strict, after=after, limit=limits.PAGE_MAX)
            yield from lines

    def audit(self) -> Audit:
        """Who did what when, with the chain's proof; as text, as JSON, and as a file that verifies alone."""
        from agentmem.context.audit import audit

        with self._reading() as view:
            return audit(view, self._found(view))

    # Tools

    def using(self, tools: Executes) -> Session:
        """The same session with tools that `execute` runs."""
        other = Session(self._shared, self._binding, self.id)
        other._tools, other._transit = tools, self._transit
        other.repeated, other.outside = self.repeated, self.outside
        return other

    def _writing(self, masked: Callable[[Any], Any]) -> Session:
        """The same session, of all that is written through it only what a function makes of it."""
        other = self.using(self._tools) if self._tools is not None else Session(self._shared, self._binding, self.id)
        other._binding = attrs.evolve(self._binding, masked=masked)
        return other

    def execute(self, name: str, input: Mapping[str, Any] | None = None) -> str:
        """Run a tool: the intent is logged durably before, the outcome after. Needs `using(...)`.

        An exception of the tool is a result, not an exception here.

        Raises:
            NotFound: No such tool.
            InvalidInput: The input does not fit it, or the session has no tools.
            ApprovalNeeded: It waits for a person, and the request is in the log: once it is allowed, the next wake runs it,
                or `Executor.run_call`.
        """
        if self._tools is None:
            raise InvalidInput("This session has no tools", next="Get one with session.using(Executor(tools))")
        return self._tools.execute(self, name, {} if input is None else input)

    # Who runs it

    def hold(self, *, seconds: int = limits.SESSION_LEASE_SECONDS) -> None:
        """Take it for this view, or go on holding it: nobody else runs it meanwhile. A harness does this by itself.

        Raises:
            Held: Another runs it; names holder and expiry.
        """
        session_leases.hold(self._binding, self.id, seconds)

    def give_back(self) -> None:
        """End holding it."""
        session_leases.give_back(self._binding, self.id)

    def holder(self) -> Claim | None:
        """Who runs it now, None for nobody."""
        with self._reading() as view:
            return session_leases.holder(view, self._found(view), view.now)

    def _reading(self) -> Any:
        return self._binding.reading()

    def _found(self, source: Any) -> int:
        return session_id(source, self)

    def _lineage(self, view: View) -> list[Segment]:
        return lineage(view, self._found(view))
