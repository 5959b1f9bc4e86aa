"""The commands of sessions: begin one, append to it, change it, answer what it waits for."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from attrs import evolve, frozen

from agentmem import limits
from agentmem.errors import Conflict, InvalidInput, LimitExceeded, OutOfReach, shown
from agentmem.log.canonical import canonical, plain
from agentmem.records import claims, subjects, validate, vocabulary
from agentmem.records.base import Source, Unit
from agentmem.records.note_writes import expect
from agentmem.records.refs import entity_id, note_id, session_id
from agentmem.records.session_rows import Segment, lineage, load_event, load_session
from agentmem.session_types import Appended, SessionEvent, SessionInfo
from agentmem.types import ORIGINS, TASK_KINDS, UNSET, Origin, Ref, Unset, Written


@frozen
class Entry:
    """An event that is to be appended: its type, its body or the text of it, the key of an `x.` event, its origin.

    `dated` is when it was said elsewhere, of one that is taken over, in microseconds.
    """

    type: str
    body: Any = None
    key: str | None = None
    origin: Origin | None = None
    dated: int | None = None


def start(
    unit: Unit,
    *,
    title: str | None,
    task: Ref | None,
    agent: object,
    about: Ref | None,
    metadata: object,
    parent: Ref | None,
) -> Written:
    """Begin a session."""
    payload: dict[str, Any] = {
        "title": validate.optional_line(title, "title", limits.TITLE_CHARS),
        "task": None if task is None else note_id(unit, task, kinds=TASK_KINDS),
        "agent": agent_of(agent),
        "entity": None if about is None else entity_id(unit, about),
        "metadata": metadata_of(metadata) or None,
    }
    if parent is not None:
        above = load_session(unit, session_id(unit, parent))
        refuse_apart(unit, above.id)
        payload["parent"] = above.id
        if payload["task"] is None:
            payload["task"] = task_of(unit, above)
        payload["entity"] = _kept_apart(unit, above.about, payload["entity"])
    if unit.binding.subject is not None:
        payload["entity"] = _kept_apart(unit, unit.binding.subject, payload["entity"])
    project = unit.project
    known = {name: value for name, value in payload.items() if value is not None}
    event = unit.append("session.created", known, project=project, session=unit.tx.next)
    return Written(event.seq, event.seq, ("created",), transit=unit.transit)


def _kept_apart(unit: Unit, above: int | None, entity: int | None) -> int | None:
    """The subject of a session within another one: the same, or something beneath it."""
    if above is None or entity is None:
        return above if entity is None else entity
    if not subjects.within(unit, entity, above):
        raise OutOfReach(
            f"Entity #{entity} is another subject than #{above}",
            why="A session within one that is about a subject is about the same, or about what lies beneath it",
            next="Leave about= out, or begin the session without parent=",
        )
    return entity


def task_of(source: Source, info: SessionInfo) -> int | None:
    """The task of a session, None where its creation was taken back."""
    there = source.row("SELECT 1 FROM note WHERE id = ?", (info.task,))
    return None if there is None else info.task


def refuse_apart(source: Source, session: int) -> None:
    """Refuse to go on from a session whose subject is gone: by its number alone it would be kept apart from nothing.

    Raises:
        Conflict: It was purged, or its creation taken back.
    """
    sql = "SELECT entity FROM session WHERE id = ? AND entity IS NOT NULL AND entity NOT IN (SELECT id FROM entity)"
    row = source.row(sql, (session,))
    if row is not None:
        raise Conflict(
            f"Entity #{row[0]}, which session #{session} is about, is no more",
            why="What such a session may see can't be told any more, so it sees nothing",
            next="Read its events, or begin another session",
        )


def change(
    unit: Unit,
    session: int,
    *,
    title: str | None | Unset,
    task: Ref | None | Unset,
    agent: object,
    metadata: object,
    archived: bool | Unset,
    expected: int | None,
) -> Written:
    """Change what is known of a session; what it is about stays."""
    info = load_session(unit, session)
    expect(info.revision, expected, session)
    wanted: dict[str, Any] = {}
    if not isinstance(title, Unset):
        wanted["title"] = validate.optional_line(title, "title", limits.TITLE_CHARS)
    if not isinstance(task, Unset):
        wanted["task"] = None if task is None else note_id(unit, task, kinds=TASK_KINDS)
    if agent is not UNSET:
        wanted["agent"] = agent_of(agent)
    if metadata is not UNSET:
        wanted["metadata"] = metadata_of(metadata)
    if not isinstance(archived, Unset) and validate.flag(archived, "archived") != (info.archived_at is not None):
        if archived:
            claims.guard(unit, session)
        else:
            refuse_apart(unit, session)
        wanted["archived_at"] = unit.now if archived else None
    changes = {name: value for name, value in wanted.items() if canonical(value) != canonical(_now(info, name))}
    if not changes:
        return Written(session, info.revision, transit=unit.transit)
    changes |= unit.lowered(info.origin) if "title" in changes else {}
    event = unit.append("session.changed", {"set": changes}, record=session, project=info.project, session=session)
    return Written(session, event.seq, tuple(sorted(changes)), transit=unit.transit)


def _now(info: SessionInfo, name: str) -> Any:
    value = getattr(info, name)
    return dict(value) if isinstance(value, Mapping) else value


def append(unit: Unit, session: int, entries: Sequence[Entry], *, held: bool = False) -> Appended:
    """Append events to a session, all or none.

    Args:
        unit: The unit of work.
        session: The session.
        entries: What to append, in order. A reference in a body may name an earlier one of the call: -1 the first, -2
            the second.
        held: Whether the caller runs the session, so that it must hold it.

    Raises:
        Held: Another runs the session, and an event is not one that anybody may append at any time.
        Conflict: It is archived or has ended; an answer to what is answered already.
    """
    if not entries:
        raise InvalidInput("Nothing to append")
    if len(entries) > limits.SESSION_EVENTS:
        raise LimitExceeded(
            f"{len(entries)} events at once, {limits.SESSION_EVENTS} at most",
            next="Use several calls inside store.transaction()",
        )
    info = _standing(unit, session)
    if held or not all(vocabulary.client(vocabulary.known(entry.type)) for entry in entries):
        claims.guard(unit, session)
    if held and not claims.mine(unit, session):
        raise Conflict(
            f"Session #{session} is no longer held by this run",
            why="Its lease lapsed and was taken, or was given back",
            next="Wake the session again",
        )
    made: list[int] = []
    for entry in entries:
        made.append(_added(unit, info, entry, made))
    return Appended(made[0], made[-1], ("created",), transit=unit.transit, ids=tuple(made))


@frozen
class _Standing:
    """What an append must know of its session."""

    id: int
    project: int
    task: int | None
    forked_from: int | None


def _standing(unit: Unit, session: int) -> _Standing:
    """The session, which takes events.

    Raises:
        NotFound: It is no more.
        Conflict: It takes none.
    """
    sql = "SELECT id, project, task, forked_from, archived_at, status FROM session WHERE id = ?"
    row = unit.one(sql, (session,))
    if row[4] is not None:
        raise Conflict(f"Session #{session} is archived", next="Take it out of the archive with change(archived=False)")
    if row[5] == "terminated":
        raise Conflict(f"Session #{session} has ended", why="Its status is terminated", next="Fork it to go on")
    return _Standing(*row[:4])


def _added(unit: Unit, info: _Standing, entry: Entry, made: Sequence[int]) -> int:
    of = vocabulary.known(entry.type)
    body = vocabulary.checked(of, _resolved(_mapped(entry.body, of), made))
    # Each character takes six bytes of JSON at most: what is far from the limit need not be spelled for it.
    size = len(canonical(body).encode()) if _chars(body) * 6 > limits.SESSION_EVENT_BYTES else 0
    if size > limits.SESSION_EVENT_BYTES:
        raise LimitExceeded(
            f"An event has {size} bytes, {limits.SESSION_EVENT_BYTES} at most", next="Keep it in a file and write where"
        )
    payload: dict[str, Any] = {"type": of, "body": body}
    if entry.key is not None:
        if not vocabulary.key_allowed(of):
            raise InvalidInput(f"An event of type {of} has no key", why="Keys are of the caller's own events, x.<name>")
        payload["key"] = validate.label(entry.key, "key")
    if entry.dated is not None:
        payload["dated"] = validate.time(entry.dated, "dated")
    target = vocabulary.refers(of, body)
    if target is not None:
        payload["target"] = target
        _answers(unit, info, of, body, target)
    actor = evolve(unit.actor, origin=_origin(unit, of, entry.origin), session=info.id)
    if actor.task is None:
        actor = evolve(actor, task=info.task)
    return unit.acting(actor).append("message.added", payload, project=info.project, session=info.id).seq


def _chars(value: Any) -> int:
    """About how many characters a value of JSON has, rather more."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return sum(len(name) + 4 + _chars(part) for name, part in value.items())
    if isinstance(value, list):
        return sum(1 + _chars(part) for part in value)
    return 24


def _resolved(body: Any, made: Sequence[int]) -> Any:
    """The body with places among the events of the call, -1 for the first of them, as their ids."""
    if not isinstance(body, Mapping):
        return body
    found = dict(body)
    for name in vocabulary.REFERENCES:
        if name in found:
            found[name] = _place(found[name], name, made)
    reason = found.get("stop_reason")
    if isinstance(reason, Mapping) and isinstance(reason.get("event_ids"), list):
        places = [_place(each, "stop_reason.event_ids", made) for each in reason["event_ids"]]
        found["stop_reason"] = {**reason, "event_ids": places}
    return found


def _place(place: Any, name: str, made: Sequence[int]) -> Any:
    if type(place) is not int or place >= 0:
        return place
    if -place > len(made):
        raise InvalidInput(f"{name} is {shown(place)}", why=f"{len(made)} events come before it in this call")
    return made[-place - 1]


def _mapped(body: object, of: str) -> object:
    """A text in place of a body."""
    if isinstance(body, str):
        return {"text": body} if of.startswith("x.") else {"content": body}
    return {} if body is None else body


def _origin(unit: Unit, of: str, given: Origin | None) -> Origin:
    """Where the text of an event came from: of a tool's result from the tool, never more trusted than who writes."""
    if given is not None:
        found: Any = validate.choice(given, "origin", ORIGINS)
        return found if found == "user" else validate.less_trusted(found, unit.actor.origin)
    if of in vocabulary.RESULTS and of.startswith("agent."):
        return validate.less_trusted("tool", unit.actor.origin)
    return unit.actor.origin


def _answers(unit: Unit, info: _Standing, of: str, body: Mapping[str, Any], target: int) -> None:
    """Check that what an event refers to is there, is of this session and waits for it."""
    row = unit.row("SELECT type, session, open, asks FROM message WHERE id = ?", (target,))
    wanted = vocabulary.answered_by(of)
    segments = lineage(unit, info.id) if info.forked_from is not None else [(info.id, limits.INT_MAX)]
    here = row is not None and any(row[1] == each and target <= last for each, last in segments)
    if row is None or not here or (wanted and row[0] not in wanted):
        what = f"an event of type {row[0]}" if row is not None and here else "no event of this session"
        raise InvalidInput(
            f"{of} refers to #{target}, which is {what}",
            why="Wanted here: " + (" or ".join(wanted) or "an event of it"),
        )
    if of in vocabulary.RESULTS and not (row[2] if row[1] == info.id else unanswered(unit, segments, target)):
        raise Conflict(f"Call #{target} has its result already")
    if of in _OF_ITS_RUN and row[1] != info.id:
        # Else a fork would allow, or begin, what the session that it began with asks.
        raise Conflict(f"Call #{target} is one of session #{row[1]}", why="A fork never runs what it began with")
    if of == "user.tool_confirmation" and (not row[2] or confirmation_of(unit, target) is not None):
        raise Conflict(f"Call #{target} waits for nobody", why="It was answered, or has its result")


_OF_ITS_RUN: Final = ("user.tool_confirmation", "agentmem.tool_started")
"""What says of a call whether it is run, and that it is."""


def unanswered(source: Source, segments: Sequence[Segment], call: int) -> bool:
    """Whether a call has no result in a session and what it goes on from."""
    until = dict(segments)
    answers = source.rows("SELECT id, session, type FROM message WHERE target = ?", (call,))
    return not any(of in vocabulary.RESULTS and seq <= until.get(where, 0) for seq, where, of in answers)


def confirm(
    unit: Unit,
    event: int,
    result: str,
    *,
    message: str | None,
    by: str | None,
    input_hash: str | None,
    seconds: int | None,
) -> Appended:
    """Allow or deny a call that waits for a person."""
    validate.choice(result, "result", ("allow", "deny"))
    call = load_event(unit, event)
    if call.type not in vocabulary.CALLS:
        raise InvalidInput(f"#{event} is no call of a tool", why=f"It is of type {call.type}")
    if call.body is None:
        raise Conflict(f"Call #{event} was purged", why="What it would do is not known any more")
    if not unit.number("SELECT asks FROM message WHERE id = ?", (event,)):
        raise Conflict(f"Call #{event} waits for nobody", why="It was answered, has its result, or never asked")
    until = call.body.get("expires_at")
    if until is not None and until <= unit.now:
        raise Conflict(
            f"The request for #{event} has lapsed", why="It counts as denied", next="Tell the agent to ask again"
        )
    exact = call_hash(call)
    if input_hash is not None and input_hash != exact:
        raise Conflict(f"The input of #{event} is not the one that was looked at", next="Look at it again")
    body: dict[str, Any] = {"tool_use_id": event, "result": result, "input_hash": exact}
    if message is not None:
        if result == "allow":
            raise InvalidInput("message= goes with deny", why="It tells the agent why not")
        body["deny_message"] = validate.written(message, "message", limits.WHY_BYTES)
    who = validate.optional_label(by, "by") or unit.actor.author
    if who is not None:
        body["by"] = who
    if seconds is not None:
        body["expires_at"] = unit.now + validate.whole(seconds, "seconds", 1, limits.WAIT_SECONDS_MAX) * 1_000_000
    return append(unit, call.session, [Entry("user.tool_confirmation", body)])


def call_hash(call: SessionEvent) -> str:
    """SHA-256 of what a call would do, exactly: the name of the tool and its input as canonical JSON; hex."""
    body = call.body or {}
    asked = canonical([body.get("name"), body.get("mcp_server_name"), body.get("input")])
    return hashlib.sha256(asked.encode()).hexdigest()


def agent_of(value: object) -> dict[str, Any] | None:
    """Who converses: a name, or an object with one."""
    if value is None:
        return None
    if isinstance(value, str):
        return {"name": validate.line(value, "agent", limits.LABEL_CHARS)}
    if not isinstance(value, Mapping) or not isinstance(value.get("name"), str):
        raise InvalidInput(f"agent is {shown(value)}", why="It is a name, or an object with at least a name")
    text = canonical(dict(value))
    if len(text.encode()) > limits.AGENT_BYTES:
        raise LimitExceeded(f"agent has {len(text.encode())} bytes, {limits.AGENT_BYTES} at most")
    validate.line(value["name"], "agent.name", limits.LABEL_CHARS)
    found: dict[str, Any] = plain(text)
    return found


def metadata_of(value: object) -> dict[str, str]:
    """Labels of the caller's: names and texts, as many and as long as the limits say."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(f"metadata is {shown(value)}", why="It is an object of names and texts")
    if len(value) > limits.METADATA_PAIRS:
        raise LimitExceeded(f"metadata has {len(value)} pairs, {limits.METADATA_PAIRS} at most")
    return {
        validate.line(name, "a name in metadata", limits.METADATA_NAME_CHARS): _label(name, text)
        for name, text in value.items()
    }


def _label(name: object, text: object) -> str:
    found = validate.text(text, f"metadata.{name}", 4 * limits.METADATA_VALUE_CHARS)
    if len(found) > limits.METADATA_VALUE_CHARS:
        raise LimitExceeded(f"metadata.{name} has {len(found)} characters, {limits.METADATA_VALUE_CHARS} at most")
    return found


def open_calls(source: Source, session: int) -> list[SessionEvent]:
    """The calls of a session that have no result yet, in order."""
    sql = "SELECT id FROM message INDEXED BY message_open WHERE session = ? AND open = 1 ORDER BY id"
    return [load_event(source, seq) for (seq,) in source.rows(sql, (session,))]


def confirmation_of(source: Source, call: int) -> SessionEvent | None:
    """What a person answered to a call, None for nothing yet."""
    sql = "SELECT id FROM message WHERE target = ? AND type = 'user.tool_confirmation' ORDER BY id DESC LIMIT 1"
    row = source.row(sql, (call,))
    return None if row is None else load_event(source, row[0])


def begun(source: Source, call: int) -> list[SessionEvent]:
    """The events that say that a call was begun, in order."""
    sql = "SELECT id FROM message WHERE target = ? AND type = 'agentmem.tool_started' ORDER BY id"
    return [load_event(source, seq) for (seq,) in source.rows(sql, (call,))]


def unknown_result(call: SessionEvent, text: str) -> Entry:
    """The result of a call that somebody else began, or never did: that nothing is known of it, in words."""
    of, name = vocabulary.result_of(call.type)
    return Entry(of, {name: call.id, "content": [{"type": "text", "text": text}], "is_error": True})


UNKNOWN_IN_FORK: Final = (
    "This call had no result where the conversation was forked. Whether it ran is not known here; it was not run again."
)


def entries_of(values: Iterable[Any]) -> list[Entry]:
    """What a caller gives as events: `Entry`, (type, body), or an object with type, body, key, origin."""
    found = []
    for value in validate.batch(values, "events"):
        if isinstance(value, Entry):
            found.append(value)
        elif isinstance(value, Mapping):
            unknown = value.keys() - {"type", "body", "key", "origin"}
            if unknown or "type" not in value:
                raise InvalidInput(f"An event has type, body, key, origin; this one {shown(sorted(map(str, value)))}")
            found.append(Entry(value["type"], value.get("body"), value.get("key"), value.get("origin")))
        elif isinstance(value, (tuple, list)) and len(value) == 2:
            found.append(Entry(value[0], value[1]))
        else:
            raise InvalidInput(
                f"{shown(value)} is no event", next='Give ("user.message", "text"), or an object with type and body'
            )
    return found
