"""Running tools in a session: the intent is in the log before, the outcome after, whatever happens in between.

A call is the event of the model that asks for it. `agentmem.tool_started` says that it was begun; its result that it ended.
After a crash a call that was begun and has no result is run again, with the same key, only if its tool is idempotent; else
its result says that nobody knows.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.errors import AgentMemError, ApprovalNeeded, Busy, Conflict, InvalidInput, NotFound
from agentmem.harness.toolset import Call, Tool, Toolset
from agentmem.log.canonical import canonical
from agentmem.records import claims, session_leases, sessions, vocabulary
from agentmem.records.base import Source, Unit
from agentmem.records.sessions import Entry
from agentmem.session_types import Appended, SessionEvent
from agentmem.store.inside import append, binding_of, masking
from agentmem.store.sessions import Session

if TYPE_CHECKING:
    from agentmem.harness.grants import Credential, Grants
    from agentmem.harness.vault import Vault

__all__ = ["Executor", "Outcome"]

UNKNOWN: Final = (
    "The outcome of this call is unknown: the process that ran it ended before the result was written. It may have taken"
    " effect, fully or in part, and was not run again. Check before you repeat it."
)
_GRACE_SECONDS: Final = 4.0  # for a tool to end by itself once it was told to
_BUSY_AGAIN: Final = 3  # times that a result is written again while another process writes for long
_RUN_HERE: Final = ("agent.tool_use", "agent.mcp_tool_use")
_RESULT_BYTES: Final = limits.SESSION_EVENT_BYTES - 16_384  # as JSON, beside what else an event has
_PIECES_CHARS: Final = 10_000_000  # of what a tool raised or gave that are looked at at all


@frozen
class Outcome:
    """What a call came to.

    Attributes:
        text: The result, for the model.
        error: Whether it is one.
        unknown: Whether nobody knows what took effect.
        seconds: How long it ran.
        cut: How many characters the tool gave in all, where not all are kept; 0 where they are.
        masked: Whether a secret was masked in it.
    """

    text: str
    error: bool = False
    unknown: bool = False
    seconds: float = 0.0
    cut: int = 0
    masked: bool = False


class Executor:
    """Runs the tools of sessions.

    Args:
        tools: The tools.
        vault: Where the credentials are that tools declare.
        grant_seconds: How long a grant of one is good for.
    """

    def __init__(
        self, tools: Toolset | Iterable[Tool] = (), *, vault: Vault | None = None, grant_seconds: int = 300
    ) -> None:
        self.tools = tools if isinstance(tools, Toolset) else Toolset(tools)
        self.grants: Grants | None = None
        if vault is not None:
            from agentmem.harness.grants import Grants as _Grants

            self.grants = _Grants(vault, seconds=grant_seconds)
        for tool in self.tools:
            if tool.credential is not None and vault is None:
                raise InvalidInput(
                    f"Tool {tool.name} declares the credential {tool.credential}, and there is no vault",
                    next="Give vault=",
                )

    def execute(self, session: Session, name: str, input: Mapping[str, Any]) -> str:
        """Run a tool by its name, as `Session.execute` does.

        Returns:
            The result; of a tool that raised, a text that says so.

        Raises:
            NotFound: No such tool; nothing was logged.
            InvalidInput: The input does not fit it; nothing was logged.
            ApprovalNeeded: The tool asks for approval; the request is in the log, and `run_call` runs it once it is given.
            Held: Another runs the session.
        """
        session = self._guarded(session)
        tool = self.tools.get(name)
        given = tool.validated(input)
        body: dict[str, Any] = {"name": tool.name, "input": given, "permission": tool.permission}
        body["evaluated_permission"] = tool.permission
        if tool.permission == "ask" and tool.expires is not None:
            body["expires_at"] = binding_of(session).ledger.clock() + tool.expires * 1_000_000
        made = append(session, [Entry("agent.tool_use", body)], held=False)
        if tool.permission == "ask":
            raise ApprovalNeeded(
                f"{name} waits for approval", event=made.id, next="Once it is confirmed, run it with Executor.run_call"
            )
        return self.run_call(session, made.id)

    def run_call(self, session: Session, event: int) -> str:
        """Run a call that is in the log and has no result yet: one that was allowed, or that a crash interrupted.

        Raises:
            ApprovalNeeded: Nobody has answered it yet.
            Conflict: It has its result.
            Held: Another runs the session.
        """
        session = self._guarded(session)
        call = session.event(event)
        lasting = int(self._seconds(call)) + 60
        with _Held(session, lasting):
            decided = self.decide(session, call)
            if decided is None:
                raise ApprovalNeeded(f"Call #{event} waits for approval", event=event, next="Confirm it, or wait")
            outcome = decided if isinstance(decided, Outcome) else self.run(session, call, threading.Event())
            if outcome is None or not self.finish(session, call, outcome):
                raise Conflict(f"Call #{event} has its result already")
            return outcome.text

    def _guarded(self, session: Session) -> Session:
        """The same session, through which no secret that was granted gets into the log: not by what a tool writes either."""
        return masking(session, self.masked_json)

    def _seconds(self, call: SessionEvent) -> float:
        name = (call.body or {}).get("name", "")
        return self.tools.get(name).seconds if name in self.tools else 1.0

    def decide(self, session: Session, call: SessionEvent) -> Outcome | bool | None:
        """What is to be done with a call that has no result.

        Returns:
            True to run it; an outcome that it has without being run; None where it waits for a person.
        """
        body = call.body
        if body is None:
            return Outcome("This call was purged before it ran; it was not run.", error=True)
        if body.get("broken") is not None:
            return Outcome(f"The input of {body['name']} is no JSON; nothing was run. Write it again.", error=True)
        if call.type not in _RUN_HERE:
            return _refused(call, None, binding_of(session).ledger.clock())
        with binding_of(session).reading() as view:
            begun = sessions.begun(view, call.id)
            answer = sessions.confirmation_of(view, call.id)
            now = view.now
        try:
            tool = self.tools.get(body["name"])
        except NotFound as error:
            return Outcome(told(error), error=True)
        if begun:
            return True if tool.idempotent else Outcome(UNKNOWN, error=True, unknown=True)
        permission = body.get("permission", body.get("evaluated_permission"))
        if permission == "deny":
            return Outcome("This call is not permitted. It was not run.", error=True)
        if permission == "ask":
            refused = _refused(call, answer, now)
            if answer is None and refused is None:
                return None
            if refused is not None:
                return refused
        elif tool.permission == "ask":  # nobody was asked: it was written when the tool was another, or by another
            return Outcome(f"{tool.name} needs a person's approval, and nobody was asked. Call it again.", error=True)
        return True

    def run(self, session: Session, call: SessionEvent, cancelled: threading.Event) -> Outcome | None:
        """Run a call to its end, and log before that it was begun. What the tool raises is an outcome.

        Returns:
            None where it is not to be run any more: it has a result by now, or was begun by another.

        Raises:
            Conflict: The session is not held any longer.
        """
        body = call.body or {}
        tool = self.tools.get(body["name"])
        try:
            given = tool.validated(body["input"])
        except InvalidInput as error:
            return Outcome(told(error), error=True)
        with binding_of(session).reading() as view:
            attempt = len(sessions.begun(view, call.id)) + 1
        key = f"{binding_of(session).ledger.store[:16]}-{call.id}"
        credential, refused = self._granted(tool, session, call)
        if refused is not None:
            return refused
        entries = [Entry("agentmem.tool_started", {"tool_use_id": call.id, "key": key, "attempt": attempt})]
        if credential is not None:
            entries.append(Entry("agentmem.grant", _grant(tool, call, credential)))
        try:
            memory = session.store
        except Conflict as error:  # its subject is gone: a session that no tool can act in has to come to an end too
            return Outcome(told(error), error=True)
        if not _begun(session, call, attempt, entries):
            return None
        asked = Call(
            tool=tool.name, input=given, session=session.id, event=call.id, key=key, attempt=attempt, credential=credential,
            seconds=tool.seconds, cancelled=cancelled, store=memory,
        )  # fmt: skip
        return self._shaped(_run(tool, asked), tool)

    def _granted(self, tool: Tool, session: Session, call: SessionEvent) -> tuple[Credential | None, Outcome | None]:
        if tool.credential is None or self.grants is None:
            return None, None
        try:
            credential = self.grants.grant(tool.credential, tool=tool.name, session=session.id, scope=tool.scope)
        except Exception as error:  # noqa: BLE001  # a vault is the caller's; whatever it raises is the outcome
            return None, Outcome(self.masked(f"No credential for {tool.name}: {told(error)}"), error=True)
        return credential, None

    def _shaped(self, outcome: Outcome, tool: Tool) -> Outcome:
        """The outcome as it may be logged: without secrets, no longer than the tool says."""
        # What a tool itself has cut may end, or begin, in the middle of a secret.
        text = self.masked(outcome.text, cut=True)
        masked = text != outcome.text
        total = len(text)
        kept = min(tool.output_chars, _fitting(text))
        if total > kept:
            text = f"{self.masked(text[:kept], cut=True)}\n[cut: {total} characters in all]"
        cut = total if total > kept else 0
        return Outcome(text, outcome.error, outcome.unknown, round(outcome.seconds, 3), cut, masked)

    def finish(self, session: Session, call: SessionEvent, outcome: Outcome) -> bool:
        """Log what a call came to.

        Returns:
            False where it has a result by now: a client gave it, or the tool itself.

        Raises:
            Held: Another runs the session.
            Conflict: It takes no events.
        """
        of, name = vocabulary.result_of(call.type)
        body: dict[str, Any] = {name: call.id, "content": _text(outcome.text), "is_error": outcome.error}
        if call.type in _RUN_HERE:
            known = {"unknown": outcome.unknown, "masked": outcome.masked, "cut": outcome.cut}
            body |= {"seconds": outcome.seconds, **{field: value for field, value in known.items() if value}}
        # What was done is worth more than a lease that lapsed unnoticed: it is kept unless another runs the session.
        for again in range(_BUSY_AGAIN + 1):
            try:
                append(session, [Entry(of, body)], held=claims_held(session))
            except Busy:
                if again == _BUSY_AGAIN:
                    raise
            except Conflict:
                if _open(session, call):
                    raise
                return False
            else:
                break
        return True

    def masked(self, text: str, *, cut: bool = False) -> str:
        """A text without the secrets that were granted so far; of one that was cut, without a piece of one at its ends."""
        return text if self.grants is None else self.grants.masker.mask(text, cut_start=cut, cut_end=cut)

    def masked_json(self, value: Any) -> Any:
        """A value of JSON without the secrets that were granted so far."""
        return value if self.grants is None else self.grants.masker.mask_json(value)


def _open(session: Session, call: SessionEvent) -> bool:
    """Whether a call is one of the session's own and has no result."""
    with binding_of(session).reading() as view:
        return _waits(view, session, call)


def _waits(source: Source, session: Session, call: SessionEvent) -> bool:
    sql = "SELECT open FROM message WHERE id = ? AND session = ? AND gone = 0"
    return bool(source.number(sql, (call.id, session.id)))


class _Changed(Exception):
    """A call is not any more what it was when it was looked at; nothing was written."""


def _begun(session: Session, call: SessionEvent, attempt: int, entries: list[Entry]) -> bool:
    """Log that a call is begun, unless it has a result by now or another began it: then nothing is to be run."""

    def command(unit: Unit) -> Appended:
        if not _waits(unit, session, call) or len(sessions.begun(unit, call.id)) + 1 != attempt:
            raise _Changed
        return sessions.append(unit, session.id, entries, held=True)

    try:
        binding_of(session).run("sessions.append", {}, None, command, durable=True)
    except _Changed:
        return False
    return True


def claims_held(session: Session) -> bool:
    """Whether the view of the session holds it just now."""
    with binding_of(session).reading() as view:
        row = claims.lease(view, session.id)
        return row is not None and row[5] > view.now and claims.claim_of(binding_of(session), row, view.now).mine


class _Held:
    """Holds a session for a call, unless the view does already."""

    def __init__(self, session: Session, seconds: int) -> None:
        self._session, self._seconds = session, seconds
        self._taken = False

    def __enter__(self) -> None:
        if not claims_held(self._session):
            taken = session_leases.hold(binding_of(self._session), self._session.id, self._seconds)
            self._taken = bool(taken.created)

    def __exit__(self, *_: object) -> None:
        if self._taken:
            self._session.give_back()


def _refused(call: SessionEvent, answer: SessionEvent | None, now: int) -> Outcome | None:
    """The outcome of a call that asked and may not run; None where it may, or nobody answered."""
    until = (call.body or {}).get("expires_at")
    if answer is None:
        lapsed = until is not None and until <= now
        return Outcome("Nobody approved this call in time; it was not run.", error=True) if lapsed else None
    body = answer.body
    if body is None:
        return Outcome("The answer to this request was purged; the call was not run.", error=True)
    who = f" by {body['by']}" if body.get("by") else ""
    if body["result"] == "deny":
        why = f": {body['deny_message']}" if body.get("deny_message") else ""
        return Outcome(f"This call was denied{who}{why}. It was not run.", error=True)
    if body.get("input_hash") not in (None, sessions.call_hash(call)):
        return Outcome("The approval is of another input; the call was not run.", error=True)
    if body.get("expires_at") is not None and body["expires_at"] <= now:
        return Outcome("The approval has lapsed; the call was not run.", error=True)
    return None


def _grant(tool: Tool, call: SessionEvent, credential: Credential) -> dict[str, Any]:
    return {
        "tool_use_id": call.id, "credential_id": credential.id, "tool": tool.name, "scope": dict(credential.scope),
        "expires_at": credential.expires_at,
    }  # fmt: skip


def told(error: BaseException) -> str:
    """An error as a model is told it, whatever its description does."""
    if isinstance(error, AgentMemError):
        return str(error)
    try:
        text = str(error)[:_PIECES_CHARS]
    except Exception:  # noqa: BLE001  # what describes itself badly is an error still
        text = ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _run(tool: Tool, call: Call) -> Outcome:
    """Run a tool in a thread of its own, for as long as it may take."""
    found: list[tuple[str, bool]] = []
    over = threading.Event()

    def work() -> None:
        try:
            found.append((_text(tool.run(call)), False))
        except BaseException as error:  # noqa: BLE001  # an exception of a tool is its result, whichever it is
            found.append((_text(f"{tool.name} failed: {told(error)}"), True))
        finally:
            over.set()

    begun = time.monotonic()
    try:
        # A daemon: one that never ends must not keep the process from ending.
        threading.Thread(target=work, name=f"agentmem-tool-{tool.name}", daemon=True).start()
    except RuntimeError as error:  # the machine has no thread left
        return Outcome(f"{tool.name} was not run: {told(error)}", error=True)
    waited = _waited(over, call, begun + call.seconds)
    seconds = time.monotonic() - begun
    if found:
        return Outcome(*found[0], seconds=seconds)
    why = "was interrupted" if waited == "cancelled" else f"took longer than {call.seconds:g} s"
    text = f"{tool.name} {why} and was told to stop. What it did until then is not known; it may still be at work."
    return Outcome(text, error=True, unknown=not tool.idempotent, seconds=seconds)


def _waited(over: threading.Event, call: Call, until: float) -> str:
    """Wait for a tool; tell it to stop when its time is over."""
    step = 0.05
    while not over.wait(min(step, max(until - time.monotonic(), 0.0))):
        if call.cancelled.is_set():
            over.wait(_GRACE_SECONDS)
            return "cancelled"
        if time.monotonic() >= until:
            call.cancelled.set()
            over.wait(_GRACE_SECONDS)
            return "late"
    return "over"


def _fitting(text: str) -> int:
    """How many characters of a text an event can hold: as JSON some of them take many bytes."""
    size = _RESULT_BYTES // 6
    if len(text) <= size:
        return len(text)
    while size < len(text):
        more = min(2 * size, len(text))
        if len(canonical(text[:more]).encode()) > _RESULT_BYTES:
            break
        size = more
    return size


def _text(value: object) -> str:
    """What a tool gave, as text."""
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode().replace("\0", "�")
    return canonical(value) if value is not None else ""
