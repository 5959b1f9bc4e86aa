"""What a session has still to do, read from its log, and how it comes to rest: nothing that was said meanwhile is lost.

Somebody may speak, decide or interrupt at any moment, between any two writes of the harness. So the harness looks at the last
thing that was asked of the session before it decides that there is nothing to do, and the event by which it becomes idle is
appended only if nothing was asked since.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from agentmem import limits
from agentmem.context import window_events
from agentmem.records import session_reads, sessions, vocabulary
from agentmem.records.base import Source, Unit
from agentmem.records.session_rows import Segment, lineage
from agentmem.records.sessions import Entry
from agentmem.session_types import Appended, SessionEvent
from agentmem.store.inside import binding_of
from agentmem.store.session import Session

_TURNS: Final = tuple(of for of in window_events.SHOWN if of != "user.tool_confirmation")
_SAID: Final = ("user.message", "system.message", "agent.thread_message_received")
# What a model has to answer.
_HEARD: Final = frozenset((*vocabulary.RESULTS, *_SAID))


def asked(source: Source, session: int) -> int:
    """The last event by which somebody asked the session to go on."""
    return source.number("SELECT asked FROM session WHERE id = ?", (session,))


def wanted(session: Session) -> bool:
    """Whether anything was said, decided or begun that the session has not settled."""
    with binding_of(session).reading() as view:
        row = view.one("SELECT id, status, asked, settled, due FROM session WHERE id = ?", (session.id,))
        if row[1] == "terminated":
            return False
        if row[1] != "idle" or row[2] > row[3] or (row[4] is not None and row[4] <= view.now):
            return True
        return not row[3] and _newest(view, lineage(view, session.id), _TURNS) is not None


def broken_off(session: Session) -> bool:
    """Whether a limit or a failing model ended a turn in its middle, so that it is the model's turn still."""
    info = session.info
    reason = None if info.stop_reason is None else info.stop_reason["type"]
    return info.status == "idle" and reason in ("retries_exhausted", "budget_reached") and to_say(session)


def settled_before(session: Session) -> int:
    """The event that settled the session last: an interrupt after it counts."""
    with binding_of(session).reading() as view:
        found = _newest(view, [(session.id, limits.INT_MAX)], ("session.status_idle",))
        return 0 if found is None else found.id


def to_say(session: Session) -> bool:
    """Whether it is the model's turn: something was said to it, or a tool answered, that it has not been asked with."""
    with binding_of(session).reading() as view:
        segments = lineage(view, session.id)
        last = _newest(view, segments, _TURNS)
        if last is None or last.type in _HEARD:
            return last is not None
        if last.type == "user.interrupt":
            return False
        # A provider that pauses a long turn goes on when it is asked again.
        if last.type == "agent.message" and (last.body or {}).get("stop_reason") == "pause_turn":
            return True
        return _overheard(view, segments)


def _overheard(source: Source, segments: Sequence[Segment]) -> bool:
    """Whether something was said while the model wrote what it said last, so that it does not know of it."""
    ended = _newest(source, segments, ("span.model_request_end",))
    if ended is None or ended.body is None or ended.body.get("is_error"):
        return False
    later = session_reads.events(source, segments, after=ended.id, types=sorted(_HEARD), limit=1)
    if later:  # whoever answered that was asked otherwise, and with all
        return False
    begun = ended.body["model_request_start_id"]
    meanwhile = (*_SAID, "user.interrupt")
    last = _newest(source, segments, meanwhile, after=begun, until=ended.id)
    return last is not None and last.type in _SAID


def _unasked(source: Source, session: int) -> bool:
    """Whether a message came after the model was last asked with all that there was."""
    segments = lineage(source, session)
    begun = _newest(source, segments, ("span.model_request_start",))
    return _newest(source, segments, _SAID, after=0 if begun is None else begun.id) is not None


def _newest(
    source: Source, segments: Sequence[Segment], types: Sequence[str], *, after: int = 0, until: int = limits.INT_MAX
) -> SessionEvent | None:
    found = session_reads.events(source, segments, after=after, until=until, types=types, newest_first=True, limit=1)
    return found[0] if found else None


class _Moved(Exception):
    """Something was asked of the session in the meantime; nothing was written."""


def begin(session: Session, tokens: int, seq: int) -> int | None:
    """Log that the model is asked with a window, unless something was said that is not in it.

    Args:
        session: The session, which is held.
        tokens: Of the window.
        seq: What the window knows of: all up to this event.

    Returns:
        The event; None where something was said since, and the window is to be made anew.
    """

    def command(unit: Unit) -> Appended:
        if _newest(unit, [(session.id, limits.INT_MAX)], _SAID, after=seq) is not None:
            raise _Moved
        return sessions.append(
            unit, session.id, [Entry("span.model_request_start", {"tokens": tokens, "seq": seq})], held=True
        )

    try:
        return binding_of(session).run("sessions.append", {}, None, command).id
    except _Moved:
        return None


def rest(session: Session, reason: dict[str, Any], seen: int, waiting: Sequence[SessionEvent] = ()) -> bool:
    """Let the session wait, unless something was asked of it since.

    Args:
        session: The session, which is held.
        reason: Why it waits.
        seen: The last event that it was asked by, as it was when the reason was found.
        waiting: The calls that wait for a person.

    Returns:
        False where something was asked since: nothing was written, and the harness looks again.
    """

    def command(unit: Unit) -> Appended:
        if asked(unit, session.id) > seen:
            raise _Moved
        body: dict[str, Any] = {"stop_reason": reason}
        lapses = [call.body["expires_at"] for call in waiting if call.body and call.body.get("expires_at")]
        due = [*lapses, *(at for _, at, _ in session_reads.timers(unit, session.id))]
        if reason["type"] not in ("end_turn", "requires_action") and _unasked(unit, session.id):
            due.append(unit.now)  # what ended the wake was no answer to that
        if due:
            body["due"] = min(due)
        return sessions.append(unit, session.id, [Entry("session.status_idle", body)], held=True)

    try:
        binding_of(session).run("sessions.append", {}, None, command)
    except _Moved:
        return False
    return True


def redirected(session: Session, since: int) -> int | None:
    """End the turn that was interrupted and begin the next, where something was said after the interrupt.

    Returns:
        The interrupt that is settled by it; None where nothing was said since: then nothing was written.
    """

    def command(unit: Unit) -> Appended:
        own = [(session.id, limits.INT_MAX)]
        interrupt = _newest(unit, own, ("user.interrupt",), after=since)
        if interrupt is None or _newest(unit, own, _SAID, after=interrupt.id) is None:
            raise _Moved
        found.append(interrupt.id)
        entries = [Entry("session.status_idle", {"stop_reason": {"type": "end_turn"}}), Entry("session.status_running")]
        return sessions.append(unit, session.id, entries, held=True)

    found: list[int] = []
    try:
        binding_of(session).run("sessions.append", {}, None, command)
    except _Moved:
        return None
    return found[-1]


def fired(session: Session) -> list[Entry]:
    """What a session is told when the time has come that it set itself."""
    entries = []
    with binding_of(session).reading() as view:
        for timer, at, note in session_reads.timers(view, session.id):
            if at <= view.now:
                told = f"The time that was set by #{timer} has come" + (f": {note}" if note else ".")
                entries += [Entry("agentmem.timer_fired", {"timer_id": timer}), Entry("system.message", told)]
    return entries
