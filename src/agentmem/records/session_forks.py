"""Forking a session: a new one that goes on from an event of another, by reference."""

from __future__ import annotations

from typing import Any

from agentmem import limits
from agentmem.errors import LimitExceeded
from agentmem.log import chain
from agentmem.records import session_reads, validate, vocabulary
from agentmem.records.base import Source, Unit
from agentmem.records.session_rows import COMPACTED, Segment, lineage, load_event, load_session
from agentmem.records.sessions import UNKNOWN_IN_FORK, append, refuse_apart, task_of, unanswered, unknown_result
from agentmem.session_types import Forked, SessionEvent


def fork(unit: Unit, session: int, at: int | None, title: str | None) -> Forked:
    """Begin a session with the events of another up to and with one of them.

    The event after which it goes on is named in the log with the chain at that place, so that what it began with is
    proven too. A call that had no result there gets one that says so: it is never run again by the fork.
    """
    info = load_session(unit, session)
    refuse_apart(unit, session)
    segments = lineage(unit, session)
    if len(segments) >= limits.SESSION_LINEAGE:
        raise LimitExceeded(f"Session #{session} is a fork of {len(segments)} others", next="Begin a new session")
    last = info.last if at is None else validate.cursor(at, "at")
    place = _place(unit, segments, last)
    title = validate.optional_line(title, "title", limits.TITLE_CHARS)
    cut = [(each, min(until, last)) for each, until in segments if each <= last]
    payload: dict[str, Any] = {
        "forked_from": place, "forked_at": last, "title": info.title if title is None else title, "task": task_of(unit, info),
        "agent": None if info.agent is None else dict(info.agent), "entity": info.about,
        "metadata": dict(info.metadata) or None, "parent": info.parent, "compacted": _compacted(unit, cut),
        "chain": _chain_at(unit, place, last).hex(),
    }  # fmt: skip
    known = {name: value for name, value in payload.items() if value is not None}
    event = unit.append("session.created", known, project=info.project, session=unit.tx.next)
    lost = _open_at(unit, cut)
    outside = [*session_reads.ran(unit, lost), *session_reads.outside_after(unit, segments, last)]
    for first in range(0, len(lost), limits.SESSION_EVENTS):
        part = lost[first : first + limits.SESSION_EVENTS]
        append(unit, event.seq, [unknown_result(call, UNKNOWN_IN_FORK) for call in part])
    return Forked(event.seq, event.seq, ("created",), transit=unit.transit, outside=tuple(outside))


def _place(source: Source, segments: list[Segment], at: int) -> int:
    """The session that an event belongs to; of one that has none yet its creation may be named."""
    if at == segments[-1][0] or any(at == each for each, _ in segments):
        return at
    return session_reads.in_lineage(source, segments, at).session


def _compacted(source: Source, cut: list[Segment]) -> int | None:
    found = session_reads.events(source, cut, types=(COMPACTED,), newest_first=True, limit=1)
    return found[0].id if found and found[0].body is not None else None


def _chain_at(source: Source, session: int, at: int) -> bytes:
    row = source.row(
        "SELECT session_chain FROM event WHERE session = ? AND seq <= ? ORDER BY seq DESC LIMIT 1", (session, at)
    )
    return chain.session_genesis(source.binding.ledger.store, session) if row is None else row[0]


def _open_at(source: Source, cut: list[Segment]) -> list[SessionEvent]:
    """The calls that had no result at the place of the fork."""
    return [load_event(source, call) for call in _calls(source, cut) if unanswered(source, cut, call)]


def _calls(source: Source, cut: list[Segment]) -> list[int]:
    marks = ", ".join("?" * len(vocabulary.CALLS))
    found: list[int] = []
    for session, last in cut:
        sql = f"SELECT id FROM message WHERE session = ? AND id <= ? AND type IN ({marks}) ORDER BY id"
        found += [seq for (seq,) in source.rows(sql, (session, last, *sorted(vocabulary.CALLS)))]
    return found
