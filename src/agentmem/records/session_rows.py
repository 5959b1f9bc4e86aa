"""Sessions and their events as tables: how the log applies to them, and how rows become values."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import apsw

from agentmem import limits
from agentmem.engine.session_tables import LONG_CHARS, SEARCHED_CHARS
from agentmem.log import blobs
from agentmem.log.canonical import canonical, plain
from agentmem.log.kinds import EventKind
from agentmem.records.base import Row, Source
from agentmem.records.session_words import CALLS, RESULTS
from agentmem.types import Event

if TYPE_CHECKING:
    from agentmem.session_types import SessionEvent, SessionInfo

SESSION_COLUMNS: Final = """
id, project, title, task, agent, entity, metadata, parent, forked_from, forked_at, status, stop, due, archived_at, last, origin,
author, run, created_at, updated_at, revision
"""
MESSAGE_COLUMNS: Final = """
message.id, message.session, message.type, event.version, event.payload, message.key, message.target, event.at, event.author,
event.run, event.task, event.origin
"""
FROM_MESSAGE: Final = "FROM message CROSS JOIN event ON event.seq = message.id"

# What an event of the type makes of its session's status.
_STATUS: Final = {
    "session.status_idle": "idle",
    "session.status_running": "running",
    "session.status_rescheduled": "rescheduling",
    "session.status_terminated": "terminated",
}
COMPACTED: Final = "agent.thread_context_compacted"
_CONFIRMS: Final = "user.tool_confirmation"
# What asks the session to go on.
_ASKING: Final = frozenset(
    (
        *("user.message", "user.tool_confirmation", "user.interrupt", "user.tool_result", "user.custom_tool_result"),
        *("system.message", "agent.thread_message_received"),
    )
)
FRAME: Final = ("type", "target", "permission")
"""What stays of a purged event: what it was, not what it said."""
TIMER: Final = "agentmem.timer"


def unsettled(type: str) -> bool:
    """Whether an event of the type can be purged by itself: how a session stands, and until when, does not hang on it."""
    return type not in _STATUS and type != TIMER


def _apply_created(connection: apsw.Connection, event: Event) -> None:
    payload: dict[str, Any] = {} if event.payload is None else event.payload
    get = payload.get
    connection.execute(
        """
        INSERT INTO session (id, project, title, task, agent, entity, metadata, parent, forked_from, forked_at, status, stop,
                             due, archived_at, settled, asked, last, compacted, origin, author, run, created_at, updated_at,
                             revision)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'idle', NULL, NULL, NULL, 0, 0, ?, ?, ?, ?, ?, ?, ?, ?)
        """,
        (
            event.seq, event.project, get("title"), get("task"), _json(get("agent")), get("entity"),
            canonical(get("metadata", {})), get("parent"), get("forked_from"), get("forked_at"), event.seq,
            get("compacted"), event.origin, event.author, event.run, event.at, event.at, event.seq,
        ),
    )  # fmt: skip


def _json(value: Any) -> str | None:
    return None if value is None else canonical(value)


_SET: Final = ("title", "task", "agent", "entity", "metadata", "parent", "archived_at", "project", "origin")


def _apply_changed(connection: apsw.Connection, event: Event) -> None:
    values: dict[str, Any] = {} if event.payload is None else event.payload["set"]
    names = [name for name in _SET if name in values]
    bound = [_json(values[name]) if name in ("agent", "metadata") else values[name] for name in names]
    settings = ", ".join([*(f"{name} = ?" for name in names), "updated_at = ?", "revision = ?"])
    connection.execute(f"UPDATE session SET {settings} WHERE id = ?", [*bound, event.at, event.seq, event.record])
    if "project" in values:
        connection.execute("UPDATE message SET project = ? WHERE session = ?", (values["project"], event.record))


_INSERT: Final = """
INSERT INTO message (id, session, project, type, key, target, text, long, open, asks, gone, origin)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, 0, ?, ?)
"""
_REACHED: Final = """
UPDATE session SET last = max(last, ?), updated_at = max(updated_at, ?), asked = max(asked, ?) WHERE id = ?
"""
# What says something of another event.
_BOUND: Final = frozenset((*CALLS, *RESULTS, _CONFIRMS))


def _apply_added(connection: apsw.Connection, event: Event) -> None:
    payload, session = event.payload, event.session
    if payload is None:
        connection.execute(_INSERT, (event.seq, session, event.project, "", None, None, None, None, 1, event.origin))
        connection.execute(_REACHED, (event.seq, event.at, 0, session))
        return
    of, body = payload["type"], payload["body"]
    text, long = _searched(of, body)
    frame = (event.seq, session, event.project, of, payload.get("key"), payload.get("target"))
    connection.execute(_INSERT, (*frame, text, long, 0, event.origin))
    asked = event.seq if of in _ASKING else 0
    connection.execute(_REACHED, (event.seq, event.at, asked, session))
    if of in _BOUND:
        asks = body.get("permission", body.get("evaluated_permission"))
        _settle(connection, event.seq, session, {**payload, "permission": asks})
    elif of in _STATUS:
        connection.execute(
            "UPDATE session SET status = ?, stop = ?, due = ?, settled = ? WHERE id = ?",
            (_STATUS[of], _json(body.get("stop_reason")), body.get("due"), event.seq, session),
        )
    elif of == TIMER:
        sql = "UPDATE session SET due = min(coalesce(due, ?1), ?1) WHERE id = ?2 AND status = 'idle'"
        connection.execute(sql, (body["at"], session))
    elif of == COMPACTED:
        connection.execute("UPDATE session SET compacted = ? WHERE id = ?", (event.seq, session))


def _searched(of: str, body: dict[str, Any]) -> tuple[str | None, bytes | None]:
    """What of an event is searched: its text, or an empty one and the hash of a long text that the log holds once."""
    from agentmem.records import vocabulary  # its types are many, and few processes have events to apply

    said = vocabulary.said(of, body) if vocabulary.textual(of) else ""
    if len(said) < LONG_CHARS:
        return said or None, None
    content = body.get("content")
    alone = isinstance(content, list) and len(content) == 1 and content[0].get("text") == said
    # A payload in which this stands is kept as it is, see `agentmem.log.blobs`.
    if alone and "$blob" not in canonical(body):
        return "", hashlib.sha256(said.encode()).digest()
    return said[:SEARCHED_CHARS], None


def _settle(connection: apsw.Connection, seq: int, session: int | None, frame: dict[str, Any]) -> None:
    """What an event means for others, whenever that is learned: it calls, it answers a call, it asks for a reply."""
    of, target = frame["type"], frame.get("target")
    if of in CALLS:
        asks = frame.get("permission") == "ask" or of == "agent.custom_tool_use"
        # Of a purged call the answers are there before. Those of a fork answer none of what it began with.
        sql = "SELECT type FROM message WHERE target = ? AND session = ?"
        answers = {answer for (answer,) in connection.execute(sql, (seq, session))}
        closed = bool(answers & RESULTS)
        asks = asks and not closed and _CONFIRMS not in answers
        connection.execute("UPDATE message SET open = ?, asks = ? WHERE id = ?", (not closed, asks, seq))
    elif of in RESULTS:
        # Not of another session: a fork answers no call of the one that it began with.
        sql = "UPDATE message SET open = 0, asks = 0 WHERE id = ? AND session = ?"
        connection.execute(sql, (target, session))
    elif of == _CONFIRMS:
        connection.execute("UPDATE message SET asks = 0 WHERE id = ? AND session = ?", (target, session))


def _apply_forgotten(connection: apsw.Connection, event: Event) -> None:
    """The frame of an event stays, its text goes."""
    frame = event.payload
    if frame is None:
        return
    connection.execute(
        "UPDATE message SET type = ?, key = NULL, target = ?, text = NULL, long = NULL, gone = 1 WHERE id = ?",
        (frame["type"], frame.get("target"), event.record),
    )
    connection.execute("DELETE FROM copied WHERE record = ?", (event.record,))
    _settle(connection, event.record, event.session, frame)
    if frame["type"] == COMPACTED:
        # An earlier head does not come back: a replay can't tell which of them was in force when.
        sql = "UPDATE session SET compacted = NULL WHERE (id = ? AND compacted <= ?) OR compacted = ?"
        connection.execute(sql, (event.session, event.record, event.record))
    if frame["type"] in _ASKING:
        connection.execute("UPDATE session SET asked = max(asked, ?) WHERE id = ?", (event.record, event.session))


def _apply_session_forgotten(connection: apsw.Connection, event: Event) -> None:
    """All of a session goes at once. Forks stay, and have a head made anew where theirs was one of its events."""
    sql = "UPDATE session SET compacted = NULL WHERE compacted IN (SELECT id FROM message WHERE session = ?)"
    connection.execute(sql, (event.record,))
    own = "record = ?1 OR record IN (SELECT id FROM message WHERE session = ?1)"
    connection.execute(f"DELETE FROM copied WHERE {own}", (event.record,))
    connection.execute("DELETE FROM message WHERE session = ?", (event.record,))
    connection.execute("DELETE FROM session WHERE id = ?", (event.record,))


EVENTS: Final = (
    EventKind("session.created", "session", _apply_created, creates=True),
    EventKind("session.changed", "session", _apply_changed),
    EventKind("session.forgotten", "session", _apply_session_forgotten),
    EventKind("message.added", "message", _apply_added, creates=True),
    EventKind("message.forgotten", "message", _apply_forgotten),
)
PROJECTIONS: Final = ("session", "message")


def session_info(row: Row) -> SessionInfo:
    """The value of a row of `SESSION_COLUMNS`."""
    from agentmem.session_types import SessionInfo

    fields = list(row)
    for place, missing in ((4, None), (6, {}), (11, None)):
        fields[place] = missing if fields[place] is None else plain(fields[place])
    return SessionInfo(*fields)


def session_event(source: Source, row: Row) -> SessionEvent:
    """The value of a row of `MESSAGE_COLUMNS`."""
    from agentmem.records import vocabulary
    from agentmem.session_types import SessionEvent

    seq, session, of, version, stored, key, target, at, author, run, task, origin = row
    kinds = source.binding.ledger.kinds
    whole = None if stored is None else kinds.upcast("message.added", version, blobs.whole(source.connection, stored))
    body = None if whole is None else whole["body"]
    text = "" if body is None else vocabulary.said(of, body)
    dated = None if whole is None else whole.get("dated")
    return SessionEvent(seq, session, of, body, key, target, text, at, author, run, task, origin, dated)


def load_session(source: Source, session: int) -> SessionInfo:
    """The session of this id."""
    return session_info(source.one(f"SELECT {SESSION_COLUMNS} FROM session WHERE id = ?", (session,)))


def load_event(source: Source, seq: int) -> SessionEvent:
    """The event of a session of this seq."""
    return session_event(source, source.one(f"SELECT {MESSAGE_COLUMNS} {FROM_MESSAGE} WHERE message.id = ?", (seq,)))


Segment: TypeAlias = tuple[int, int]
"""A session, and the last of its events that counts."""


def frame(source: Source, event: int) -> dict[str, Any]:
    """What stays of an event of a session that is to be purged, as `message.forgotten` has it."""
    of, target = source.one("SELECT type, target FROM message WHERE id = ?", (event,))
    permission = None
    if of in CALLS:
        permission = (load_event(source, event).body or {}).get("permission")
    known = {"type": of, "target": target, "permission": permission}
    return {name: known[name] for name in FRAME if known[name] is not None}


def lineage(source: Source, session: int) -> list[Segment]:
    """The sessions that one goes on from, the first of them first, itself last; each with the last event that counts."""
    found = [(session, limits.INT_MAX)]
    at = session
    while len(found) < limits.SESSION_LINEAGE:
        row = source.row("SELECT forked_from, forked_at FROM session WHERE id = ?", (at,))
        if row is None or row[0] is None:
            break
        at = row[0]
        found.append((at, row[1]))
    found.reverse()
    return found
