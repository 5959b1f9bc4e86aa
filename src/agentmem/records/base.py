"""What every command and every reading of records stands on.

A `Binding` is one view of an open file: whose project, who acts. A command runs in a `Unit` of work,
one write transaction; a reading in a `View`, one read transaction.
"""

from __future__ import annotations

import datetime
import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import apsw
from attrs import evolve, frozen

from agentmem import limits
from agentmem.engine.stays import Held
from agentmem.engine.transactions import ReadBlock
from agentmem.errors import Corrupt, NotFound, RequestMismatch, shown
from agentmem.log.canonical import canonical, plain, surrogate
from agentmem.log.ledger import Ledger, Transaction
from agentmem.records import cleaning, validate
from agentmem.records.credentials import Policy, screened
from agentmem.types import (
    Actor,
    Event,
    HasId,
    Merged,
    Opened,
    Origin,
    Receipt,
    Transit,
    Undone,
    Unset,
    Written,
    WrittenMany,
)

if TYPE_CHECKING:
    from agentmem.session_types import Appended, Forked

_Result = TypeVar("_Result", Written, WrittenMany, Opened, "Appended", "Forked", Undone, Receipt, Merged)
Row = tuple[Any, ...]

_NO_PROJECT = -1
SECRET_BYTES: Final = 16


class Leases:
    """The secrets under which this process holds claims, one for each run. One object for each open file."""

    def __init__(self) -> None:
        self._secrets: dict[str | None, bytes] = {}
        self._lock = threading.Lock()

    def get(self, run: str | None) -> bytes | None:
        """The secret of a run, None if it never claimed anything here."""
        return self._secrets.get(run)

    def ensure(self, run: str | None) -> bytes:
        """The secret of a run, made on first use."""
        with self._lock:
            return self._secrets.setdefault(run, secrets.token_bytes(SECRET_BYTES))

    def adopt(self, run: str | None, secret: bytes) -> None:
        """Continue claims that another process of the same run took: its secret was handed over."""
        with self._lock:
            self._secrets[run] = secret


@frozen
class Binding:
    """One view of an open file: project and actor. Cheap to make, shared by threads.

    With a `limit`, the id of a note, it writes only beneath that note. With a `subject`, the id of an entity, it sees
    nothing that is about another one. With `masked`, a function of a value of JSON, nothing is written but what that gives.
    """

    ledger: Ledger
    project: str
    actor: Actor
    leases: Leases
    credentials: Policy = "warn"
    limit: int | None = None
    subject: int | None = None
    masked: Callable[[Any], Any] | None = None

    def acting(self, **labels: Any) -> Binding:
        """The same view with another actor."""
        return evolve(self, actor=evolve(self.actor, **labels))

    def run(
        self,
        verb: str,
        arguments: Mapping[str, Any],
        request_id: str | None,
        command: Callable[[Unit], _Result],
        *,
        durable: bool = False,
    ) -> _Result:
        """Run a command in one transaction, once for each `request_id`.

        Args:
            verb: The public name of the command.
            arguments: What the caller gave, to tell a repeat from another request under the same id.
            request_id: The caller's id of this request, or None.
            command: Validates, appends, answers.
            durable: What it writes survives a power cut, also where the store was opened with less durability.

        Raises:
            RequestMismatch: The id was used before with another verb or other arguments.
        """
        with self.ledger.transaction(durable=durable) as tx:
            cleaning.obey(self.ledger, tx.connection)
            unit = Unit(self, tx)
            result = command(unit) if request_id is None else _once(unit, verb, arguments, request_id, command)
            result = _warned(result, unit.leaks) if unit.leaks else result
        if self.ledger.unclean is not None:
            cleaning.finish(self.ledger)
        if self.ledger.wrote is not None and (told := self.ledger.wrote()) is not None:
            told()
        return result

    def reading(self) -> Reading:
        """A read transaction as a context manager that gives a `View`."""
        return Reading(self)


class Source:
    """What can be asked by SQL: the unit of a command, or a reading."""

    __slots__ = ("_project", "binding", "connection")

    def __init__(self, binding: Binding, connection: apsw.Connection) -> None:
        self.binding = binding
        self.connection = connection
        self._project: int | None = None

    @property
    def known_project(self) -> int:
        """The id of the project, or one that no record has where the project does not exist yet."""
        if self._project is None:
            row = self.connection.execute(_PROJECT, (self.binding.project,)).fetchone()
            if row is None:
                return _NO_PROJECT
            self._project = row[0]
        return self._project

    def row(self, sql: str, values: Sequence[Any] = ()) -> Row | None:
        """The first row of a query."""
        try:
            return self.connection.execute(sql, values).fetchone()
        except UnicodeEncodeError as error:
            raise surrogate(error) from None

    def rows(self, sql: str, values: Sequence[Any] = ()) -> list[Row]:
        """All rows of a query."""
        try:
            return self.connection.execute(sql, values).fetchall()
        except UnicodeEncodeError as error:
            raise surrogate(error) from None

    def one(self, sql: str, values: Sequence[Any] = ()) -> Row:
        """The row of a query that has one in every sound file; of a record its id is the first value.

        Raises:
            NotFound: There is none: the record was purged, undone or merged since its id was had.
            Corrupt: There is none, and nothing says why.
        """
        found = self.row(sql, values)
        if found is not None:
            return found
        if values and type(values[0]) is int:
            from agentmem.records.refs import gone

            raise gone(self, values[0])
        raise Corrupt(
            "The file lacks what every store has",
            next="Run verify(replay=True), and restore the latest backup that verifies",
        )

    def number(self, sql: str, values: Sequence[Any] = ()) -> int:
        """The one number that a query answers with, 0 where it answers nothing."""
        found = self.row(sql, values)
        return 0 if found is None else found[0]


class Unit(Source):
    """One command at work: its transaction, project and actor."""

    __slots__ = ("actor", "leaks", "tx")

    def __init__(self, binding: Binding, tx: Transaction) -> None:
        super().__init__(binding, tx.connection)
        self.leaks: dict[str, None] = {}
        self.tx = tx
        self.actor = binding.actor
        # Here, where every way to write begins, so that none of them can forget it.
        if binding.limit is not None and tx.reach is None:
            from agentmem.records.beneath import Reach

            tx.reach = Reach(self, binding.limit)

    @property
    def project(self) -> int:
        """The id of the project, which is made if it does not exist yet."""
        found = self.known_project
        if found == _NO_PROJECT:
            found = self._project = self.tx.next
            self.tx.append("project.created", {"name": self.binding.project}, project=found, actor=self.actor)
        return found

    @property
    def seq(self) -> int:
        """The seq of the last event."""
        return self.tx.seq

    @property
    def now(self) -> int:
        """The time now, in microseconds."""
        return self.tx.now

    @property
    def transit(self) -> Transit:
        """What values made here share."""
        return self.tx.transit

    def append(
        self,
        kind: str,
        payload: dict[str, Any],
        *,
        record: int | None = None,
        project: int,
        session: int | None = None,
    ) -> Event:
        """Append an event and apply it; see `Transaction.append`. Credentials are warned of, masked or refused.

        Without a `session` it belongs to the one that the actor works in.
        """
        if self.binding.masked is not None:
            payload = self.binding.masked(payload)
        payload, leaks = screened(payload, self.binding.credentials)
        if leaks:
            self.leaks.update(dict.fromkeys(leaks))
        within = self.actor.session if session is None else session
        return self.tx.append(kind, payload, project=project, actor=self.actor, record=record, session=within)

    def lowered(self, origin: Origin) -> dict[str, Any]:
        """What text of this actor changes of a record's origin: `{"origin": …}` where it is less trusted, else nothing."""
        least = validate.less_trusted(origin, self.actor.origin)
        return {} if least == origin else {"origin": least}

    def acting(self, actor: Actor) -> Unit:
        """The same unit of work in another's name."""
        other = Unit(self.binding, self.tx)
        other.actor = actor
        other.leaks = self.leaks
        other._project = self._project
        return other


class View(Source):
    """One reading: a connection inside a read transaction, and the time it began."""

    __slots__ = ("now",)

    def __init__(self, binding: Binding, connection: apsw.Connection) -> None:
        super().__init__(binding, connection)
        self.now = binding.ledger.clock()

    @property
    def project(self) -> int:
        """The id of the project, or one that no record has: reading makes none."""
        return self.known_project

    @property
    def seq(self) -> int:
        """The seq of the last event."""
        return self.number("SELECT coalesce(max(seq), 0) FROM event")


class Reading(Held):
    """The context manager of a `View`."""

    __slots__ = ("_binding", "_block", "_epoch")

    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self._binding = binding
        self._block: ReadBlock | None = None
        self._epoch: int | None = None

    def __enter__(self) -> View:
        block = self._block = self._binding.ledger.database.read()
        block.hold = self.hold
        connection = block.__enter__()
        try:
            self.stay = block.stay
            self._epoch = cleaning.obey(self._binding.ledger, connection)
            return View(self._binding, connection)
        except BaseException as error:
            block.__exit__(type(error), error, error.__traceback__)
            raise

    def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._block is not None:
            self._block.__exit__(kind, error, trace)
        if self._epoch is not None:
            cleaning.leave(self._binding.ledger, self._epoch)


_PROJECT = "SELECT id FROM project WHERE name = ?"


def _warned(result: _Result, leaks: Mapping[str, None]) -> _Result:
    notice = f"this looks like a credential: {', '.join(leaks)}; write where it is kept instead"
    return evolve(result, notices=(*result.notices, notice))


def _once(
    unit: Unit,
    verb: str,
    arguments: Mapping[str, Any],
    request_id: str,
    command: Callable[[Unit], _Result],
) -> _Result:
    """Run the command unless this request was seen; remember it in the same transaction, also a no-op."""
    validate.label(request_id, "request_id", limits.REQUEST_ID_CHARS)
    key = _fingerprint(unit, verb, arguments)
    row = unit.row(
        "SELECT arguments, result FROM request WHERE project = ? AND id = ?", (unit.known_project, request_id)
    )
    if row is None and verb in _END_PROJECTS:
        # Afterwards the project is not found by the name that the repeat is made under.
        sql = "SELECT arguments, result FROM request WHERE id = ? AND (arguments = ? OR arguments = x'')"
        row = unit.row(sql, (request_id, key))
    if row is not None:
        kept = plain(row[1])
        # What a purged record was asked with is forgotten; what is left to compare is the verb, and what still has a name.
        same = hmac.compare_digest(row[0], key) if row[0] else _still_same(unit, verb, arguments, kept)
        if not same:
            raise RequestMismatch(
                f"The request id {shown(request_id)} was used before for another request",
                next="Use a new id for a new request",
            )
        again: _Result = _again(unit, kept)
        return again
    unit.tx.under_request(request_id)
    try:
        result = command(unit)
    finally:
        unit.tx.under_request(None)
    if isinstance(result, Receipt):
        key = b""  # it may have been asked by a name that is purged now
    unit.connection.execute(
        "INSERT INTO request (project, id, arguments, result, at) VALUES (?, ?, ?, ?, ?)",
        (unit.project, request_id, key, canonical({**_remembered(result), "verb": verb}), unit.now),
    )
    oldest = unit.now - limits.REQUEST_DAYS * 86_400_000_000
    unit.connection.execute("DELETE FROM request WHERE at < ?", (oldest,))
    return result


_END_PROJECTS: Final = ("projects.rename", "projects.merge", "forget")


def _still_same(unit: Unit, verb: str, arguments: Mapping[str, Any], kept: Mapping[str, Any]) -> bool:
    """Whether a request may be the repeat of one whose arguments are forgotten: it names nothing that is still there."""
    if verb != kept["verb"]:
        return False
    ended = set(kept.get("ids", (kept.get("id"),)))
    if verb not in ("forget", "redact"):
        return True
    given = arguments.get("refs") or ([arguments["ref"]] if "ref" in arguments else [])
    if arguments.get("project") is not None:
        return unit.row(_PROJECT, (arguments["project"],)) is None
    from agentmem.records.refs import recorded

    for ref in given:
        try:
            found, _ = recorded(unit, ref)
        except NotFound:
            continue  # a name that is gone with its record
        if found not in ended:
            return False
    return True


def _fingerprint(unit: Unit, verb: str, arguments: Mapping[str, Any]) -> bytes:
    """A keyed hash of verb, origin and arguments: what was asked can't be guessed from the table after a purge.

    Of the actor only the origin counts: text from elsewhere must not pass for a trusted request's repeat, while a retry
    may come from another run.
    """
    key = unit.one("SELECT value FROM meta WHERE name = 'request_key'")
    asked = canonical([verb, unit.actor.origin, {name: _asked(value) for name, value in arguments.items()}])
    return hmac.new(key[0].encode(), asked.encode(), hashlib.sha256).digest()


def _asked(value: Any, depth: int = 0) -> Any:
    """An argument as JSON: records as their ids, values as their fields."""
    if depth > limits.JSON_DEPTH:
        return value  # canonical JSON refuses it
    if isinstance(value, Unset):
        return {"unset": True}
    if isinstance(value, HasId):
        return value.id
    if isinstance(value, Mapping):
        names = ((key if type(key) is str else shown(key), part) for key, part in value.items())
        return {name: _asked(part, depth + 1) for name, part in names}
    if isinstance(value, (set, frozenset)):
        return sorted((_asked(part, depth + 1) for part in value), key=canonical)
    if isinstance(value, (list, tuple)):
        return [_asked(part, depth + 1) for part in value]
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if hasattr(value, "__attrs_attrs__"):
        return {field.name: _asked(getattr(value, field.name), depth + 1) for field in value.__attrs_attrs__}
    return value


def _remembered(result: Written | WrittenMany) -> dict[str, Any]:
    """What is kept of a result: ids and counts, no text of any record."""
    if isinstance(result, WrittenMany):
        counts = [result.created, result.changed, result.unchanged]
        kept: dict[str, Any] = {"ids": list(result.ids), "counts": counts, "as": type(result).__name__}
        if isinstance(result, Undone):
            kept |= {"undone": list(result.undone), "events": list(result.events)}
        return kept
    kept = {"id": result.id, "changed": list(result.changed), "as": type(result).__name__}
    if all_ids := getattr(result, "ids", ()):  # of an append to a session
        kept["all"] = list(all_ids)
    return kept


_ONE: Final = {kind.__name__: kind for kind in (Written, Opened)}
_MANY: Final = {kind.__name__: kind for kind in (WrittenMany, Undone, Receipt, Merged)}


def _again(unit: Unit, kept: dict[str, Any]) -> Any:
    """The first outcome, with the records as they are now."""
    if "ids" in kept:
        created, changed, unchanged = kept["counts"]
        many = _MANY[kept["as"]]
        found = many(tuple(kept["ids"]), created, changed, unchanged, repeated=True)
        if isinstance(found, Undone):
            return evolve(found, undone=tuple(kept["undone"]), events=tuple(kept["events"]))
        return found
    # Taking and releasing a record moves no revision.
    last = unit.one(
        "SELECT seq FROM event WHERE record = ? AND kind NOT LIKE '%.claim.%' ORDER BY seq DESC LIMIT 1", (kept["id"],)
    )
    (of,) = unit.one("SELECT type FROM event WHERE seq = ?", (kept["id"],))
    gone = unit.row(f"SELECT 1 FROM {of} WHERE id = ?", (kept["id"],)) is None
    one = _ONE.get(kept["as"])
    if one is None:
        from agentmem import session_types

        one = getattr(session_types, kept["as"])
    again = one(kept["id"], last[0], tuple(kept["changed"]), repeated=True, gone=gone)
    return evolve(again, ids=tuple(kept["all"])) if "all" in kept else again


class Namespace:
    """The verbs of one kind of record, bound to a view of an open file."""

    __slots__ = ("_binding",)

    def __init__(self, binding: Binding) -> None:
        self._binding = binding
