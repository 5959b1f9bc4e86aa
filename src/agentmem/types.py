"""The values agentmem returns, and the closed sets of words it uses.

Every value is a frozen attrs class. Ids are integers: a record's id is the `seq` of the event that
created it. Times are integers, microseconds since 1970-01-01 UTC; `moment` makes a datetime of one.
"""

from __future__ import annotations

import datetime as _datetime
import enum
from collections.abc import Mapping
from typing import Any, Final, Literal, Protocol, TypeAlias, get_args, runtime_checkable

from attrs import field, frozen

from agentmem.errors import InvalidInput, shown

NoteKind: TypeAlias = Literal["goal", "step", "attempt", "fact", "decision", "question", "lesson"]
Status: TypeAlias = Literal["open", "active", "done", "failed", "dropped", "worked", "unclear"]
Outcome: TypeAlias = Literal["worked", "failed", "unclear"]
LinkKind: TypeAlias = Literal["depends_on", "supports", "contradicts", "answers", "supersedes", "relates_to", "uses"]
CheckResult: TypeAlias = Literal["pass", "fail", "na", "error"]
Origin: TypeAlias = Literal["user", "agent", "import", "tool", "web"]
RecordType: TypeAlias = Literal[
    "project", "note", "entity", "checks", "item", "checkpoint", "summary", "session", "message"
]

NOTE_KINDS: Final[tuple[str, ...]] = get_args(NoteKind)
LINK_KINDS: Final[tuple[str, ...]] = get_args(LinkKind)
CHECK_RESULTS: Final[tuple[str, ...]] = get_args(CheckResult)
OUTCOMES: Final[tuple[str, ...]] = get_args(Outcome)

# From the most trusted to the least.
ORIGINS: Final[tuple[str, ...]] = get_args(Origin)
UNTRUSTED: Final = frozenset({"import", "tool", "web"})

# The statuses a kind may have, its default first.
STATUSES: Final[Mapping[str, tuple[str, ...]]] = {
    "goal": ("open", "active", "done", "failed", "dropped"),
    "step": ("open", "active", "done", "failed", "dropped"),
    "attempt": ("active", "worked", "failed", "unclear"),
    "question": ("open", "done", "dropped"),
    "fact": ("active", "dropped"),
    "decision": ("active", "dropped"),
    "lesson": ("active", "dropped"),
}

TASK_KINDS: Final = ("goal", "step")
UNFINISHED: Final = ("open", "active")
CLOSED: Final = ("done", "failed", "dropped")  # what closes a goal or step
ALL_STATUSES: Final = tuple(sorted(get_args(Status)))


class Unset(enum.Enum):
    """The type of `UNSET`: leave the field as it is. `None` clears it."""

    UNSET = "UNSET"

    def __repr__(self) -> str:
        return "UNSET"


UNSET: Final = Unset.UNSET


@runtime_checkable
class HasId(Protocol):
    """Anything that stands for a record by having its id."""

    @property
    def id(self) -> int:
        """The record's id."""


# A record, its id, `"14.3"` for an item, or `"type:key"` for an entity.
Ref: TypeAlias = int | str | HasId
Json: TypeAlias = bool | int | float | str | list[Any] | dict[str, Any] | None


def moment(microseconds: int) -> _datetime.datetime:
    """The UTC datetime of a time as agentmem keeps it.

    Raises:
        InvalidInput: It is no whole number, or not within the years 1 to 9999.
    """
    try:
        if type(microseconds) is int:
            return _EPOCH + _datetime.timedelta(microseconds=microseconds)
    except OverflowError:
        pass
    raise InvalidInput(
        f"{shown(microseconds)} is no time", why="It is whole microseconds since 1970 UTC, within the years 1 to 9999"
    )


_EPOCH: Final = _datetime.datetime(1970, 1, 1, tzinfo=_datetime.UTC)


class Transit:
    """What became of the transaction, or savepoint, that a value was made in; shared by all that were made there."""

    __slots__ = ("_outer", "_state")

    def __init__(self, outer: Transit | None = None) -> None:
        self._outer = outer
        self._state: Literal["open", "committed", "rolled_back"] = "open"

    @property
    def state(self) -> Literal["open", "committed", "rolled_back"]:
        """What a savepoint kept is committed when the transaction around it is."""
        if self._state == "committed" and self._outer is not None:
            return self._outer.state
        return self._state

    def settle(self, *, committed: bool) -> None:
        """Say how it ended."""
        self._state = "committed" if committed else "rolled_back"


@frozen
class Actor:
    """Who writes. `author` and `run` are labels, not rights; `task` and `session` are ids."""

    author: str | None = None
    run: str | None = None
    task: int | None = None
    origin: Origin = "agent"
    session: int | None = None


@frozen
class Event:
    """One entry of the log.

    `payload` is None once it was erased; `digest` and `chain` (32 bytes each, SHA-256) remain.
    """

    seq: int
    at: int
    project: int
    kind: str
    version: int
    type: RecordType
    record: int
    session: int | None
    author: str | None
    run: str | None
    task: int | None
    origin: Origin
    request: str | None
    payload: dict[str, Any] | None
    digest: bytes = field(repr=False)
    chain: bytes = field(repr=False)


@frozen
class Head:
    """The end of a log: note it elsewhere, and `verify(head=)` shows later that nothing before it changed."""

    store: str
    seq: int
    chain: str


@frozen
class Brief:
    """A record in one line: enough to name it and to fetch it."""

    id: int
    type: RecordType
    kind: str
    status: str | None
    title: str
    origin: Origin = "agent"


class InTransit:
    """What a write answers: its ids may go with the transaction it was made in."""

    __slots__ = ()

    _transit: Transit | None

    @property
    def provisional(self) -> bool:
        """Whether the ids may still be given to other records: the transaction is not committed."""
        return self._transit is not None and self._transit.state == "open"

    @property
    def void(self) -> bool:
        """Whether the transaction was rolled back: the ids mean nothing."""
        return self._transit is not None and self._transit.state == "rolled_back"


@frozen
class Written(InTransit):
    """What a write did to one record.

    `changed` names the fields that differ now; empty means that nothing did, and no event was
    written. `revision` is the record's current one. `repeated` says that a `request_id` was seen
    before and nothing was written again; `gone` that its record was purged, undone or merged since.
    """

    id: int
    revision: int
    changed: tuple[str, ...] = ()
    similar: tuple[Brief, ...] = ()
    notices: tuple[str, ...] = ()
    repeated: bool = False
    gone: bool = False
    _transit: Transit | None = field(default=None, eq=False, repr=False)


@frozen
class Opened(Written):
    """An attempt that was opened: `earlier` names the attempts like it, the nearest first."""

    earlier: tuple[Earlier, ...] = ()


@frozen
class Earlier:
    """An earlier attempt like this one. `nearness` is 0..1; `same`: `entity`, `task`, `words`, `meaning` (if above words)."""

    id: int
    title: str
    status: str
    why: str
    nearness: float
    same: tuple[str, ...]
    origin: Origin = "agent"


@frozen
class WrittenMany(InTransit):
    """What a write did to many records, in the order they were given.

    `ids` has one id each; the three counts add up to their number.
    """

    ids: tuple[int, ...]
    created: int = 0
    changed: int = 0
    unchanged: int = 0
    notices: tuple[str, ...] = ()
    repeated: bool = False
    _transit: Transit | None = field(default=None, eq=False, repr=False)


@frozen
class Undone(WrittenMany):
    """What an undo took back.

    `ids` are the records that it concerned. `undone` has the events taken back, the newest first, `events` those that
    did it, in their order; `passed_over` those of a run or request that no undo concerns: claims, purged records.
    """

    undone: tuple[int, ...] = ()
    events: tuple[int, ...] = ()
    passed_over: tuple[int, ...] = ()


@frozen
class Receipt(WrittenMany):
    """What a purge did, without any of the text.

    `ids` are the purged records, `types` counts them. `events` were erased; `digests` (SHA-256, hex, in the same order)
    stay in the log. `detached` are the records that pointed at one and were changed by events. `also_found_in` are
    records that hold one of the texts still, also in earlier revisions: the same text, for the 20 longest also a longer
    one that holds it; at most 100 records. `cleaned` says what was cleaned, `survives` what a purge cannot reach.
    `wal_pending` says that the pages could not be written anew, or the write-ahead log not be emptied, since somebody
    reads or writes or there is no room: a later write finishes it. `head` is the end of the log afterwards.
    """

    types: Mapping[str, int] = {}
    events: tuple[int, ...] = ()
    digests: tuple[str, ...] = ()
    detached: tuple[int, ...] = ()
    also_found_in: tuple[int, ...] = ()
    cleaned: tuple[str, ...] = ()
    survives: tuple[str, ...] = ()
    wal_pending: bool = False
    dry_run: bool = False
    head: Head | None = None


@frozen
class Collision:
    """An entity that was in both of two projects: which stays, which came in, and what became of it."""

    type: str
    key: str
    kept: int
    other: int
    outcome: str


@frozen
class Merged(WrittenMany):
    """What a merge of projects moved (`ids`), and the entities that were in both."""

    collisions: tuple[Collision, ...] = ()


@frozen
class Project:
    """A namespace in a store."""

    id: int
    name: str | None
    created_at: int
    revision: int


@frozen
class Scope:
    """What a step covers: the entities of a type, those that match `where`, and the checks each needs.

    No `checks` means the expected checks declared for the type.
    """

    type: str
    where: str | None = None
    checks: tuple[str, ...] = ()


@frozen
class Note:
    """A goal, step, attempt, fact, decision, question or lesson.

    `title` and `body` are None after a purge. `why` belongs to attempts, `scope` to tasks.
    `origin` is the least trusted of its whole text.
    """

    id: int
    project: int
    kind: NoteKind
    title: str | None
    body: str
    status: Status
    tags: tuple[str, ...]
    parent: int | None
    pinned: bool
    confidence: float | None
    basis: str | None
    entity: int | None
    why: str | None
    scope: Scope | None
    dated: int | None
    source: str | None
    origin: Origin
    confirmed_at: int | None
    confirmed_by: str | None
    author: str | None
    run: str | None
    created_at: int
    updated_at: int
    revision: int

    @property
    def untrusted(self) -> bool:
        """Whether its text came from elsewhere and nobody confirmed it."""
        return self.origin in UNTRUSTED


@frozen
class Link:
    """A typed, directed edge between two notes or two entities."""

    src: int
    dst: int
    kind: str
    seq: int
    author: str | None
    run: str | None
    origin: Origin


@frozen
class Mark:
    """The current result of one check on one entity."""

    entity: int
    name: str
    result: CheckResult
    value: Json
    detail: str | None
    at: int
    seq: int
    author: str | None
    run: str | None
    origin: Origin


@frozen
class Entity:
    """One of many things of a kind. `checks` has the current result by name; a name that is absent was never marked."""

    id: int
    project: int
    type: str
    key: str | None
    status: str
    attrs: Mapping[str, Json]
    checks: Mapping[str, CheckResult]
    parent: int | None
    confidence: float | None
    origin: Origin
    author: str | None
    run: str | None
    created_at: int
    updated_at: int
    revision: int

    @property
    def ref(self) -> str:
        """`type:key`, taken wherever an id is."""
        return f"{self.type}:{self.key}"


@frozen
class Item:
    """One entry of a note's checklist. `number` counts within the note and is never given again."""

    id: int
    note: int
    number: int
    text: str | None
    done: bool
    done_by: str | None
    done_at: int | None
    origin: Origin
    revision: int

    @property
    def ref(self) -> str:
        """`note.number`, taken wherever an item is."""
        return f"{self.note}.{self.number}"


@frozen
class Checkpoint:
    """Where the work stood, written before the context goes. `id` is also its place in the log.

    `dated` is when it was written elsewhere, of an imported one.
    """

    id: int
    project: int
    task: int | None
    text: str | None
    dated: int | None
    author: str | None
    run: str | None
    origin: Origin
    at: int


@frozen
class Summary:
    """What a finished task comes to. `stale` means that something beneath it changed later."""

    id: int
    note: int
    work: str | None
    result: str | None
    confidence: float | None
    basis: str | None
    author: str | None
    origin: Origin
    at: int
    revision: int
    stale: bool


@frozen
class ExpectedChecks:
    """Checks that every entity of a type (matching `where`, if given) is expected to have marks of."""

    id: int
    project: int
    type: str
    where: str | None
    names: tuple[str, ...]
    origin: Origin
    revision: int


@frozen
class Claim:
    """A lease on a record. `mine` says that this process (or the given token) holds it."""

    record: int
    holder: str | None
    run: str | None
    taken_at: int
    expires_at: int
    live: bool
    mine: bool
