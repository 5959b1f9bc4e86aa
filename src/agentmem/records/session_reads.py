"""What is read of sessions: their events, through forks; their state; who waits, who can go on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from agentmem import limits
from agentmem.engine.session_tables import AWAKE
from agentmem.errors import InvalidInput, NotFound
from agentmem.records import subjects, vocabulary
from agentmem.records.base import Source, View
from agentmem.records.session_rows import (
    FROM_MESSAGE,
    MESSAGE_COLUMNS,
    SESSION_COLUMNS,
    Segment,
    load_event,
    session_event,
    session_info,
)
from agentmem.records.sessions import call_hash
from agentmem.session_types import Piece, Ready, SessionEvent, SessionInfo, Waiting


def events(
    source: Source,
    segments: Sequence[Segment],
    *,
    after: int = 0,
    until: int = limits.INT_MAX,
    types: Iterable[str] = (),
    newest_first: bool = False,
    limit: int = limits.PAGE,
) -> list[SessionEvent]:
    """Events of a session and of what it goes on from, those with `after` < id <= `until`, in order."""
    found: list[SessionEvent] = []
    wanted = list(types)
    chosen = f"AND message.type IN ({', '.join('?' * len(wanted))})" if wanted else ""
    index = _INDEXES.get(wanted[0], "") if len(wanted) == 1 else ""
    order = "DESC" if newest_first else "ASC"
    for session, last in reversed(segments) if newest_first else segments:
        if len(found) >= limit or min(until, last) <= after:
            continue
        sql = f"""
        SELECT {MESSAGE_COLUMNS} {FROM_MESSAGE}
        WHERE message.session = ? AND message.id > ? AND message.id <= ? {chosen} {index}
        ORDER BY message.id {order} LIMIT ?
        """
        bound = [session, after, min(until, last), *wanted, limit - len(found)]
        found += [session_event(source, row) for row in source.rows(sql, bound)]
    return found


_INDEXES: Final = {each: f"AND message.type = '{each}'" for each in ("user.message", "x.summary")}
"""Types that have an index of their own, which is used where the type stands in the query itself."""


def latest(
    source: Source,
    segments: Sequence[Segment],
    *,
    types: Iterable[str],
    limit: int,
    chars: int,
    each: int = limits.INT_MAX,
    until: int = limits.INT_MAX,
) -> tuple[list[SessionEvent], bool]:
    """The latest events up to a place, in order, and whether these are all.

    Args:
        source: Where to read.
        segments: The session, and what it goes on from.
        types: Of these types.
        limit: At most so many.
        chars: Not many more once their texts have so many characters: a few may have hundreds of megabytes.
        each: What an event counts for at most, in characters.
        until: Up to and with this one.
    """
    found: list[SessionEvent] = []
    wanted, read = tuple(types), 0
    while len(found) < limit and read < chars:
        size = min(_PIECE, limit - len(found))
        page = events(source, segments, until=until, types=wanted, newest_first=True, limit=size)
        found += page
        if len(page) < size:
            return found[::-1], True
        until = page[-1].id - 1
        read += sum(min(len(event.text), each) for event in page)
    return found[::-1], False


_PIECE: Final = 100  # events read at once where it is not known how long they are


def counted(source: Source, segments: Sequence[Segment], until: int, types: Sequence[str], *, after: int = 0) -> int:
    """How many events of these types there are after a place, up to and with another."""
    marks = ", ".join("?" * len(types))
    sql = f"SELECT count(*) FROM message WHERE session = ? AND id > ? AND id <= ? AND type IN ({marks})"
    return sum(source.number(sql, (session, after, min(last, until), *types)) for session, last in segments)


def state(source: Source, segments: Sequence[Segment]) -> dict[str, SessionEvent]:
    """The newest event of each key, in the order of the keys."""
    found = newest(source, segments)
    return {key: load_event(source, found[key]) for key in sorted(found)}


def newest(source: Source, segments: Sequence[Segment]) -> dict[str, int]:
    """Which event is the newest of each key."""
    found: dict[str, int] = {}
    sql = """
    SELECT key, max(id) FROM message INDEXED BY message_key
    WHERE session = ? AND key IS NOT NULL AND id <= ? GROUP BY key
    """
    for session, last in segments:
        found |= dict(source.rows(sql, (session, last)))
    return found


def in_lineage(source: Source, segments: Sequence[Segment], event: int) -> SessionEvent:
    """An event of a session or of what it goes on from.

    Raises:
        NotFound: It is none of them.
    """
    row = source.row("SELECT session FROM message WHERE id = ?", (event,))
    if row is None or not any(row[0] == session and event <= last for session, last in segments):
        raise NotFound(f"#{event} is no event of session #{segments[-1][0]}")
    return load_event(source, event)


def piece(event: SessionEvent, offset: int, size: int) -> Piece:
    """A piece of an event's text."""
    if event.body is None:
        raise NotFound(f"#{event.id} was purged", why="Its text is gone for good")
    total = len(event.text)
    if offset > total:
        raise InvalidInput(f"offset is {offset}", why=f"The text of #{event.id} has {total} characters")
    end = min(offset + size, total)
    return Piece(event.id, event.text[offset:end], offset, total, end if end < total else None)


def listed(
    view: View,
    *,
    task: int | None,
    about: int | None,
    parent: int | None,
    status: str | None,
    archived: bool | None,
    after: int,
    newest_first: bool,
    limit: int,
) -> list[SessionInfo]:
    """Sessions of the project."""
    conditions, bound = ["project = ?"], [view.project]
    for column, value in (("task", task), ("entity", about), ("parent", parent), ("status", status)):
        if value is not None:
            conditions.append(f"{column} = ?")
            bound.append(value)  # type: ignore[arg-type]
    if archived is not None:
        conditions.append(f"archived_at IS {'NOT ' if archived else ''}NULL")
    if after:
        conditions.append("id < ?" if newest_first else "id > ?")
        bound.append(after)
    sql = f"""
    SELECT {SESSION_COLUMNS} FROM session WHERE {" AND ".join(conditions)} {subjects.condition(view, "session.entity")}
    ORDER BY id {"DESC" if newest_first else "ASC"} LIMIT ?
    """
    return [session_info(row) for row in view.rows(sql, [*bound, limit])]


_WAITING: Final = """
SELECT message.id, session.title FROM message INDEXED BY message_asks
JOIN session ON session.id = message.session
WHERE message.project = ? AND message.asks = 1 AND session.archived_at IS NULL {seen}
"""


def waiting(view: View, *, session: int | None = None) -> list[Waiting]:
    """The calls that wait for a person, the oldest first; those that have lapsed are left out."""
    found = []
    bound: list[Any] = [view.project]
    sql = _WAITING.format(seen=subjects.condition(view, "session.entity"))
    if session is not None:
        sql += " AND message.session = ?"
        bound.append(session)
    for seq, title in view.rows(f"{sql} ORDER BY message.id", bound):
        call = load_event(view, seq)
        body = call.body or {}
        until = body.get("expires_at")
        if call.body is None or (until is not None and until <= view.now):
            continue
        wants: Any = "result" if call.type == "agent.custom_tool_use" else "confirmation"
        found.append(
            Waiting(
                seq, call.session, title, body["name"], body.get("input", {}), call_hash(call), call.at, until, wants
            )
        )
    return found


_READY: Final = f"""
SELECT session.id, session.title, session.status, session.asked, session.settled, session.due, session.updated_at,
       lease.expires_at, session.last
FROM session INDEXED BY session_awake LEFT JOIN lease ON lease.record = session.id
WHERE session.project = ? AND {AWAKE} {{seen}} ORDER BY session.updated_at, session.id
"""


def ready(view: View, limit: int) -> list[Ready]:
    """The sessions that can go on now and that nobody runs, those that wait longest first."""
    found: list[Ready] = []
    sql = _READY.format(seen=subjects.condition(view, "session.entity"))
    for seq, title, status, asked, settled, due, since, leased, _ in view.rows(sql, (view.project,)):
        if leased is not None and leased > view.now:
            continue
        why: Any
        if status == "rescheduling" and due is not None and due > view.now:
            continue
        if status in ("running", "rescheduling"):
            why = "broken" if status == "running" else "due"
        elif asked > settled:
            why = "answered" if settled else "new"
        elif due is not None and due <= view.now:
            why = "due"
        else:
            continue
        found.append(Ready(seq, title, why, since))
        if len(found) == limit:
            break
    return found


def timers(source: Source, session: int) -> list[tuple[int, int, str]]:
    """The timers of a session that have not fired, the earliest first: event, time in microseconds, note."""
    sql = f"""
    SELECT {MESSAGE_COLUMNS} {FROM_MESSAGE} WHERE message.session = ? AND message.type = 'agentmem.timer'
      AND NOT EXISTS (SELECT 1 FROM message AS fired WHERE fired.target = message.id)
    """
    found = [session_event(source, row) for row in source.rows(sql, (session,))]
    told = [(event.id, event.body["at"], event.body.get("note", "")) for event in found if event.body is not None]
    return sorted(told, key=lambda timer: timer[1])


_RAN: Final = ("agentmem.tool_started", *sorted(vocabulary.RESULTS))


def ran(source: Source, calls: Iterable[SessionEvent]) -> list[tuple[int, str]]:
    """Those of some calls that were begun or have a result, as (event, name of the tool)."""
    marks = ", ".join("?" * len(_RAN))
    sql = f"SELECT 1 FROM message WHERE target = ? AND type IN ({marks})"
    return [
        (call.id, (call.body or {}).get("name", "?")) for call in calls if source.row(sql, (call.id, *_RAN)) is not None
    ]


def outside_after(source: Source, segments: Sequence[Segment], at: int) -> list[tuple[int, str]]:
    """The calls of tools after an event that ran: what they did outside is done."""
    found: list[tuple[int, str]] = []
    after = at
    while page := events(source, segments, after=after, types=sorted(vocabulary.CALLS), limit=limits.PAGE_MAX):
        found += ran(source, page)
        after = page[-1].id
    return found
