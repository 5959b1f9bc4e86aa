"""The values of sessions: a durable conversation, and the events it consists of. And what any record is, by its value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from attrs import field, frozen

from agentmem.types import (
    UNTRUSTED,
    Checkpoint,
    Entity,
    ExpectedChecks,
    Item,
    Json,
    Note,
    Origin,
    Project,
    Summary,
    Written,
)

SessionStatus: TypeAlias = Literal["idle", "running", "rescheduling", "terminated"]


@frozen
class SessionInfo:
    """One session as it stands.

    Attributes:
        id: Its id.
        project: The id of its project.
        title: Its title, None if it has none.
        task: The id of the goal or step that it works on.
        agent: Who converses, as it was given: at least a `name`.
        about: The id of the entity that it is about; what concerns others is out of its sight.
        metadata: Labels of the caller's.
        parent: The session that it works for.
        forked_from: The session whose events it begins with; `forked_at` is the last of these.
        status: `idle` (it waits for somebody), `running`, `rescheduling`, `terminated`.
        stop_reason: Why it is idle, such as `{"type": "end_turn"}`; None if it never ran.
        due: When it goes on by itself, in microseconds; None for not.
        archived_at: When it was put away, in microseconds.
        last: The last event of its own.
    """

    id: int
    project: int
    title: str | None
    task: int | None
    agent: Mapping[str, Json] | None
    about: int | None
    metadata: Mapping[str, Json]
    parent: int | None
    forked_from: int | None
    forked_at: int | None
    status: SessionStatus
    stop_reason: Mapping[str, Json] | None
    due: int | None
    archived_at: int | None
    last: int
    origin: Origin
    author: str | None
    run: str | None
    created_at: int
    updated_at: int
    revision: int


@frozen
class SessionEvent:
    """One event of a session; its id is its `seq` in the log.

    Attributes:
        id: Its id.
        session: The session that it was appended to; of a fork's earlier events the one that it began with.
        type: Its type, such as `user.message`; the caller's own are `x.<name>`.
        body: What it says, as `docs/sessions.md` lists it by type; None once it was purged.
        key: Of an `x.` event, what it is the state of.
        target: The event that it answers: the call of a result, what a confirmation is about.
        text: What it says in words, empty for nothing.
        at: When it was appended, microseconds since 1970 UTC.
        author: By whom.
        run: In which run.
        task: For which task.
        origin: Where its text came from.
        dated: When it was said elsewhere, of one that was taken over, in microseconds.
    """

    id: int
    session: int
    type: str
    body: dict[str, Any] | None
    key: str | None
    target: int | None
    text: str = field(repr=False)
    at: int
    author: str | None
    run: str | None
    task: int | None
    origin: Origin
    dated: int | None = None

    @property
    def untrusted(self) -> bool:
        """Whether its text came from elsewhere."""
        return self.origin in UNTRUSTED


@frozen
class Appended(Written):
    """What an append did: `id` is the first event of the call, `ids` are all of them, in order."""

    ids: tuple[int, ...] = ()


@frozen
class Piece:
    """A piece of the text of an event.

    Attributes:
        event: The event.
        text: The piece.
        offset: Where it begins, in characters.
        total: How many characters there are in all.
        next: Where the next piece begins; None at the end.
    """

    event: int
    text: str
    offset: int
    total: int
    next: int | None


@frozen
class Waiting:
    """A call of a tool that waits for a person.

    Attributes:
        event: The call.
        session: Its session; `title` is that one's.
        title: The title of the session.
        tool: The name of the tool.
        input: What it would be given, exactly.
        input_hash: SHA-256 of tool and input, hex: what a confirmation is bound to.
        asked_at: When it was asked for, in microseconds.
        expires_at: When it lapses and counts as denied, in microseconds; None for never.
        wants: `confirmation`: somebody allows or denies it; `result`: somebody gives its result.
    """

    event: int
    session: int
    title: str | None
    tool: str
    input: Mapping[str, Json]
    input_hash: str
    asked_at: int
    expires_at: int | None
    wants: Literal["confirmation", "result"] = "confirmation"


@frozen
class Ready:
    """A session that can go on, and why: `answered`, `new` (it never ran), `due`, `broken` (whoever ran it is gone)."""

    session: int
    title: str | None
    why: Literal["answered", "new", "due", "broken"]
    since: int


@frozen
class Forked(Written):
    """What a fork made: `id` is the new session.

    `outside` are the calls of tools that ran after the place of the fork, as (event, name of the tool): what they did
    outside cannot be undone, and the new session knows nothing of it.
    """

    outside: tuple[tuple[int, str], ...] = ()


Record: TypeAlias = Note | Entity | Item | Checkpoint | Summary | ExpectedChecks | Project | SessionInfo | SessionEvent
