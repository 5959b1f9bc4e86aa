"""The harness: it runs a session until that waits for somebody, and holds no state of its own.

`wake` reads the log, asks the model, appends what came back, runs the tools that it asked for, and again, until the model
has nothing more to do, a person has to answer, or a limit is reached. All that it knows is in the log: killed at any moment,
another process wakes the session and goes on. What was asked of a model but not answered is asked again; what tools did is
told by `agentmem.harness.executor`.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import frozen

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, NotFound
from agentmem.harness import settling
from agentmem.harness.executor import Executor, Outcome, told
from agentmem.harness.keeper import Keeper
from agentmem.harness.reading import read_event
from agentmem.harness.reply import Reply, Usage
from agentmem.harness.request import Model, ModelRequest, asked, threaded
from agentmem.harness.toolset import Tool, Toolset
from agentmem.records import sessions, validate
from agentmem.records.sessions import Entry
from agentmem.session_types import SessionEvent
from agentmem.store.inside import append, binding_of, run_by
from agentmem.store.sessions import Session
from agentmem.types import Ref

if TYPE_CHECKING:
    from agentmem.context.window import Window
    from agentmem.harness.agent_file import AgentFile
    from agentmem.harness.vault import Vault
    from agentmem.store.opening import Store

__all__ = ["Harness", "Woken"]

_INTERRUPTED: Final = "The user interrupted; this call was not run."
_REFUSED: Final = "The model refused to go on; this call was not run."
_RETRY_SECONDS_MAX: Final = 3600.0
_ERROR_CHARS: Final = 4000


@frozen
class Woken:
    """What a wake came to.

    Attributes:
        session: The session.
        status: Its status now: `idle` or `terminated`.
        stop_reason: Why it is idle: `end_turn`, `requires_action`, `budget_reached`, `retries_exhausted`, `refusal`.
        turns: How many times the model answered.
        usage: What it used, as its provider counts.
        waiting: The calls that wait for a person.
        text: What the agent said last.
        error: Why the model could not be asked, where that ended the wake.
    """

    session: int
    status: str
    stop_reason: str | None
    turns: int
    usage: Usage
    waiting: tuple[int, ...] = ()
    text: str = ""
    error: str | None = None


class Harness:
    """Runs sessions.

    Args:
        store: Where they are.
        model: What answers: a function of a `ModelRequest`, or a coroutine function.
        tools: What the model may call. `read_event`, by which it reads what a window has cut, is added.
        vault: Where the credentials are that tools declare.
        instructions: What the model is always told first.
        agent: Who converses, recorded in the session where that says nothing else: a name, or an object with one.
        budget: Tokens of a window.
        max_turns: Answers of the model in one wake.
        max_tokens: Tokens in one wake, as the provider counts them; None for no limit.
        retries: How often a request that failed is made again.
        retry_seconds: How long it waits before the first of these; twice as long before each further one.
        parallel: Tools that run at once.
        lease_seconds: How long the session stays held after its process died.
        pinned: A function of a session that says which events are in every window.
    """

    def __init__(
        self,
        store: Store,
        model: Model,
        tools: Toolset | Iterable[Tool] = (),
        *,
        vault: Vault | None = None,
        instructions: str = "",
        agent: str | Mapping[str, Any] | None = None,
        budget: int = limits.WINDOW_DEFAULT,
        max_turns: int = 50,
        max_tokens: int | None = None,
        retries: int = 4,
        retry_seconds: float = 1.0,
        parallel: int = 8,
        lease_seconds: int = limits.SESSION_LEASE_SECONDS,
        pinned: Callable[[Session], Sequence[int]] | None = None,
    ) -> None:
        self.store = store
        self.model = validate.callable_(model, "model")
        given = list(tools)
        if not any(isinstance(tool, Tool) and tool.name == "read_event" for tool in given):
            given.append(read_event())
        self.executor = Executor(given, vault=vault)
        self.instructions = validate.text(instructions, "instructions", limits.BODY_BYTES)
        self.agent = sessions.agent_of(agent)
        self.budget = validate.whole(budget, "budget", limits.WINDOW_MIN, limits.BUDGET_MAX)
        self.max_turns = validate.whole(max_turns, "max_turns", 1, 1_000_000)
        self.max_tokens = None if max_tokens is None else validate.whole(max_tokens, "max_tokens", 1, limits.INT_MAX)
        self.retries = validate.whole(retries, "retries", 0, 1000)
        self.retry_seconds = validate.number(retry_seconds, "retry_seconds", 0, 3600)
        self.parallel = validate.whole(parallel, "parallel", 1, 256)
        self.lease_seconds = validate.whole(lease_seconds, "lease_seconds", 3, limits.CLAIM_SECONDS_MAX)
        self.pinned = pinned

    @classmethod
    def from_file(
        cls, store: Store, path: Any, model: Model, tools: Toolset | Iterable[Tool] = (), *, vault: Vault | None = None
    ) -> Harness:
        """A harness as an agent file says; see `docs/harness.md`. The file's version is recorded in each session it runs.

        Raises:
            InvalidInput: The file is not as it should be, or names a tool that is not among `tools`.
            MissingExtra: It is YAML, and the extra `harness` is not installed.
        """
        from agentmem.harness.agent_file import AgentFile

        found: AgentFile = AgentFile.read(path)
        return cls(store, model, found.chosen(tools), vault=vault, agent=found.agent, **found.options)

    def wake(self, session: Ref) -> Woken:
        """Run a session until it waits for somebody. One that has nothing to do is left as it is.

        One that a limit or a failing model had ended in the middle of its turn goes on; `work` leaves such a one alone.

        Raises:
            Held: Another runs it; names holder and expiry.
            Conflict: It is archived, or its lease was lost on the way.
            NotFound: There is no such session.
        """
        return self._wake(session, None, again=True)

    async def wake_async(self, session: Ref) -> Woken:
        """The same on a worker thread, a coroutine function as model in the running loop.

        Cancelled, it interrupts the session's wake and waits for its end: nothing is written behind the caller's back.
        """
        loop = asyncio.get_running_loop()
        stop = threading.Event()
        # A thread of its own: the loop's own are few, and models need them, if only to find a host.
        work = asyncio.wrap_future(threaded(partial(self._wake, again=True), session, loop, stop))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            stop.set()
            while not work.done():
                with contextlib.suppress(asyncio.CancelledError):
                    await asyncio.wait([work])
            if not work.cancelled():
                work.exception()  # looked at: the caller has cancelled, and is told that
            raise

    def session(self, session: Ref) -> Session:
        """A session with the tools of this harness: `execute` runs them."""
        return self.store.sessions.get(session).using(self.executor)

    def work(self, *, limit: int = limits.PAGE, stop: threading.Event | None = None) -> list[Woken]:
        """Wake what is ready, once: the body of a worker's loop.

        What another took, archived or purged meanwhile is passed over.
        """
        found = []
        for ready in self.store.sessions.ready(limit=limit):
            if stop is not None and stop.is_set():
                break
            try:
                found.append(self._wake(ready.session, None))
            except (Conflict, NotFound):
                continue
        return found

    def _wake(
        self,
        session: Ref,
        loop: asyncio.AbstractEventLoop | None,
        stop: threading.Event | None = None,
        *,
        again: bool = False,
    ) -> Woken:
        # A secret of its own: two wakes in one process are two holders.
        found = run_by(self.store, session, self.executor.masked_json)
        info = found.info
        if info.archived_at is not None:
            raise Conflict(
                f"Session #{info.id} is archived", next="Take it out of the archive with change(archived=False)"
            )
        keeper = Keeper(found, self.lease_seconds, stop)
        run = _Run(self, found, keeper, loop, stop, again=again)
        if not run.wanted():
            return run.woken()
        with keeper:
            return run.run()


class _Run:
    """One wake of one session."""

    def __init__(
        self,
        harness: Harness,
        session: Session,
        keeper: Keeper,
        loop: asyncio.AbstractEventLoop | None,
        stop: threading.Event | None,
        *,
        again: bool,
    ) -> None:
        self.again = again
        self.harness, self.session, self.keeper, self.loop = harness, session, keeper, loop
        self.stop = stop
        self.executor = harness.executor
        self.turns = 0
        self.usage = Usage()

    def run(self) -> Woken:
        """Go on until the session waits."""
        info = self.session.info
        if not self.wanted():  # another ran it meanwhile
            return self.woken()
        if self.harness.agent is not None and info.agent is None:
            self.session.change(agent=self.harness.agent)
        self.keeper.since = settling.settled_before(self.session)
        self._append([Entry("session.status_running"), *settling.fired(self.session)])
        while True:
            woken = self._step()
            if woken is not None:
                return woken

    def _step(self) -> Woken | None:
        """Run what may be run, and ask the model once; None to go on."""
        with binding_of(self.session).reading() as view:
            seen = settling.asked(view, self.session.id)
        if self._stopped():
            return self._interrupted(seen)
        waiting = self._calls()
        if self._stopped():
            return None
        if waiting:
            return self._idle({"type": "requires_action", "event_ids": [call.id for call in waiting]}, seen, waiting)
        if not settling.to_say(self.session):
            return self._idle({"type": "end_turn"}, seen)
        if self.turns >= self.harness.max_turns or self._spent():
            return self._idle({"type": "budget_reached"}, seen)
        reply = self._ask()
        if self._stopped():
            return None
        if reply is None:
            return self._idle({"type": "retries_exhausted"}, seen)
        if reply.stop_reason == "refusal":
            self._close(_REFUSED)
            return self._idle({"type": "refusal"}, seen)
        return None

    def wanted(self) -> bool:
        """Whether there is anything to do."""
        return settling.wanted(self.session) or (self.again and settling.broken_off(self.session))

    def _stopped(self) -> bool:
        self.keeper.check()
        self.keeper.look()
        return self.keeper.interrupted.is_set() or self._ended()

    def _ended(self) -> bool:
        """Whether the program wants the wake to end; the session is not done with."""
        return (self.stop is not None and self.stop.is_set()) or (self.loop is not None and self.loop.is_closed())

    def _spent(self) -> bool:
        return self.harness.max_tokens is not None and self.usage.total >= self.harness.max_tokens

    # The model

    def _ask(self) -> Reply | None:
        """Ask the model and append what it said; None where it could not be asked."""
        window, begun = self._begin()
        definitions = tuple(self.executor.tools.definitions())
        request = ModelRequest(
            self.session.id, self.harness.instructions, window, definitions, self.turns + 1, self.keeper.interrupted
        )
        for attempt in range(self.harness.retries + 1):
            try:
                reply = asked(self.harness.model, request, self.loop)
                entries = self._said(reply, begun)
            except Exception as error:  # noqa: BLE001  # a model is the caller's; whatever it raises is tried again
                failed = error
            else:
                try:
                    self._append(entries)
                except InvalidInput as error:
                    # Another answer may mend what the log cannot hold; a full disk it does not.
                    failed = error
                else:
                    self.turns += 1
                    self.usage += reply.usage
                    return reply
            self._failed(failed, last=attempt == self.harness.retries)
            if self._stopped() or attempt == self.harness.retries:
                break
            self.keeper.interrupted.wait(min(self.harness.retry_seconds * 2 ** min(attempt, 32), _RETRY_SECONDS_MAX))
            if self._stopped():
                break
        self._append([Entry("span.model_request_end", _ended(begun, Usage(), None, failed=True))])
        return None

    def _begin(self) -> tuple[Window, int]:
        """The window, and the event that the model is asked with it: nothing was said that is not in it."""
        while True:
            pinned = () if self.harness.pinned is None else self.harness.pinned(self.session)
            window = self.session.compact(budget=self.harness.budget, pinned=pinned)
            begun = settling.begin(self.session, window.tokens, window.seq)
            if begun is not None:
                return window, begun

    def _failed(self, error: Exception, *, last: bool) -> None:
        # Cut, a secret is no longer recognised: it is masked before.
        message = self.executor.masked(self.executor.masked(told(error))[:_ERROR_CHARS], cut=True)
        status = {"type": "exhausted" if last else "retrying"}
        body = {"type": "model_request_failed_error", "message": _clean(message), "retry_status": status}
        self._append([Entry("session.error", {"error": body})])

    def _said(self, reply: Reply, begun: int) -> list[Entry]:
        """What a reply is in the log: the end of the request, thoughts, words, calls, in one piece."""
        masked = self.executor.masked_json
        entries = [Entry("span.model_request_end", _ended(begun, reply.usage, reply.model, failed=False))]
        if reply.thinking:
            entries.append(Entry("agent.thinking", {"content": [dict(block) for block in reply.thinking]}))
        if reply.content or not reply.calls:
            content = [masked(dict(block)) for block in reply.content]
            entries.append(Entry("agent.message", {"content": content, "stop_reason": reply.stop_reason}))
        now = binding_of(self.session).ledger.clock()
        for call in reply.calls:
            body: dict[str, Any] = {"name": _clean(call.name)[:256].strip() or "?", "input": masked(dict(call.input))}
            if call.provider_id is not None:
                body["provider_id"] = call.provider_id
            if call.broken is not None:
                body["broken"] = masked(call.broken)
            if call.name in self.executor.tools:
                tool = self.executor.tools.get(call.name)
                body["permission"] = body["evaluated_permission"] = tool.permission
                if tool.permission == "ask" and tool.expires is not None:
                    body["expires_at"] = now + tool.expires * 1_000_000
            entries.append(Entry("agent.tool_use", body))
        return entries

    # Tools

    def _calls(self) -> list[SessionEvent]:
        """Run every call that may be run; the calls that wait for a person."""
        while True:
            calls = self._open()
            waiting = self._passed(calls)
            # A tool may have asked for more in its own session, and a person may have decided.
            if len(waiting) == len(calls) or self._stopped():
                return waiting

    def _passed(self, calls: Sequence[SessionEvent]) -> list[SessionEvent]:
        waiting, together = [], []
        for call in calls:
            decided = self.executor.decide(self.session, call)
            if decided is None:
                waiting.append(call)
            elif isinstance(decided, Outcome):
                self.executor.finish(self.session, call, decided)
            elif self.executor.tools.get((call.body or {})["name"]).parallel:
                together.append(call)
            else:
                self._together(together)
                together = []
                self._one(call)
        self._together(together)
        return waiting

    def _open(self) -> list[SessionEvent]:
        with binding_of(self.session).reading() as view:
            return sessions.open_calls(view, self.session.id)

    def _one(self, call: SessionEvent) -> None:
        """Run a call and append its result; one that was not begun when the user interrupted is not."""
        if self._stopped():
            return
        # Once more: what ran before it may have taken long, and an approval may have lapsed.
        decided = self.executor.decide(self.session, call)
        if decided is True:
            decided = self.executor.run(self.session, call, self.keeper.apart())
        if isinstance(decided, Outcome):
            self.executor.finish(self.session, call, decided)

    def _together(self, calls: Sequence[SessionEvent]) -> None:
        """Run calls side by side; the first error of ours is raised when all have ended."""
        if len(calls) <= 1:
            for call in calls:
                self._one(call)
            return
        waiting = list(reversed(calls))
        lock = threading.Lock()
        errors: list[BaseException] = []

        def work() -> None:
            while not errors:
                with lock:
                    if not waiting:
                        break
                    call = waiting.pop()
                try:
                    self._one(call)
                except BaseException as error:  # noqa: BLE001  # told by the thread that waits
                    errors.append(error)
                    if not isinstance(error, Exception):  # the program is to end: what still runs is told to stop
                        self.keeper.interrupt()

        threads = []
        for _ in range(min(self.harness.parallel, len(calls)) - 1):
            thread = threading.Thread(target=work, name="agentmem-tools", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the machine has no thread left
                break
            threads.append(thread)
        work()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    # The end

    def _interrupted(self, seen: int) -> Woken | None:
        """Close what is open and end the turn; None where there is another to begin."""
        if self._ended():  # by the program, not by the user: another wake goes on
            self._append([Entry("session.status_rescheduled")])
            return self.woken()
        self._close(_INTERRUPTED)
        settled = settling.redirected(self.session, self.keeper.since)
        if settled is not None:
            self.keeper.go_on(settled)
            return None
        return self._idle({"type": "end_turn"}, seen)

    def _close(self, why: str) -> None:
        """Answer the calls that were not run."""
        for call in self._open():
            decided = self.executor.decide(self.session, call)
            outcome = decided if isinstance(decided, Outcome) else Outcome(why, error=True)
            self.executor.finish(self.session, call, outcome)

    def _idle(self, reason: dict[str, Any], seen: int, waiting: Sequence[SessionEvent] = ()) -> Woken | None:
        """Come to rest; None where something was asked meanwhile."""
        if not settling.rest(self.session, reason, seen, waiting):
            return None
        return self.woken(tuple(call.id for call in waiting))

    def woken(self, waiting: tuple[int, ...] = ()) -> Woken:
        """What the wake came to."""
        info = self.session.info
        reason = None if info.stop_reason is None else str(info.stop_reason["type"])
        if not waiting and reason == "requires_action" and info.stop_reason is not None:
            waiting = tuple(info.stop_reason["event_ids"])  # type: ignore[arg-type]
        said = self.session.events(types=("agent.message",), newest_first=True, limit=1)
        text = said[0].text if said else ""
        error = None
        if reason == "retries_exhausted":
            failed = self.session.events(types=("session.error",), newest_first=True, limit=1)
            error = failed[0].text if failed else None
        return Woken(self.session.id, info.status, reason, self.turns, self.usage, waiting, text, error)

    def _append(self, entries: Sequence[Entry]) -> Any:
        self.keeper.check()
        return append(self.session, entries, held=True)


def _ended(begun: int, usage: Usage, model: str | None, *, failed: bool) -> dict[str, Any]:
    body: dict[str, Any] = {"model_request_start_id": begun, "model_usage": attrs.asdict(usage), "is_error": failed}
    if model:
        body["model"] = _clean(model)[:256]
    return body


def _clean(text: str) -> str:
    """A text of elsewhere that is text: no NUL, no half of a surrogate pair."""
    return text.encode("utf-8", "replace").decode().replace("\0", "�")
