"""Claims: leases on records, held by a run. Operational state; taking and releasing are events, renewing is not."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Sequence
from typing import Any

import apsw

from agentmem import limits
from agentmem.errors import Held, InvalidInput
from agentmem.log.kinds import EventKind
from agentmem.records import subjects, validate
from agentmem.records.base import SECRET_BYTES, Binding, Source, Unit, View
from agentmem.records.refs import identify
from agentmem.records.standing import standing
from agentmem.types import Claim, Event, Ref, moment

_COLUMNS = "record, holder, run, secret, taken_at, expires_at"
_CLAIMABLE = ("note", "entity", "item")
_LEASED = (*_CLAIMABLE, "session")  # a session is held by who runs it, see `records.session_leases`


def guard(unit: Unit, record: int) -> None:
    """Refuse a change of a record that somebody else holds.

    Raises:
        Held: Names the holder and the expiry.
    """
    refuse(unit, record, run=unit.actor.run, now=unit.now)


def refuse(source: Source, record: int, *, run: str | None, now: int) -> None:
    """Refuse a record that another than this run holds.

    Raises:
        Held: Names the holder and the expiry.
    """
    row = lease(source, record)
    if row is None or row[5] <= now or _owns(source.binding, run, row):
        return
    labels = [f"{name} {label}" for name, label in (("author", row[1]), ("run", row[2])) if label]
    raise Held(
        f"#{record} is claimed by {row[1] or row[2] or 'another run'} until {moment(row[5]):%Y-%m-%d %H:%M:%S} UTC",
        why=f"Its holder: {', '.join(labels)}" if labels else "Its holder gave neither author nor run",
        next="Take another, wait until it lapses, or act under the holder's claim token",
    )


def guard_whole(unit: Unit, of: str, record: int) -> None:
    """Refuse a change of a record that somebody else holds, or whose note somebody does.

    Raises:
        Held: As `guard`.
    """
    for each in (record, *keepers(unit, of, record)):
        guard(unit, each)


def keepers(source: Source, of: str, record: int) -> list[int]:
    """The note by whose claim an item or a summary is held too; of an event its session."""
    if of == "message":
        return [session for (session,) in source.rows("SELECT session FROM message WHERE id = ?", (record,))]
    if of not in ("item", "summary"):
        return []
    return [note for (note,) in source.rows(f"SELECT note FROM {of} WHERE id = ?", (record,))]


def take(unit: Unit, records: Sequence[int], *, seconds: int) -> list[int]:
    """Claim all of the records or none; one that this run holds already is renewed.

    Returns:
        The records that were newly taken.

    Raises:
        Held: One is held by somebody else.
    """
    now, expires = unit.now, unit.now + seconds * 1_000_000
    hashed = _hash(unit.binding.leases.ensure(unit.actor.run))
    taken = []
    for record in records:
        row = lease(unit, record)
        if row is not None and row[5] > now:
            guard(unit, record)
            _reached(unit, record)
            unit.connection.execute("UPDATE lease SET expires_at = ? WHERE record = ?", (expires, record))
            continue
        verb = "taken" if row is None else "taken_over"
        _log(unit, verb, record, {"holder": unit.actor.author, "expires_at": expires})
        unit.connection.execute(
            f"INSERT OR REPLACE INTO lease ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)",
            (record, unit.actor.author, unit.actor.run, hashed, now, expires),
        )
        taken.append(record)
    return taken


def release(unit: Unit, records: Iterable[int]) -> list[int]:
    """Give back what this run holds of the records; one that nobody holds any more is passed over.

    Returns:
        The records that were released.

    Raises:
        Held: One is held by somebody else.
    """
    released = []
    for record in records:
        row = lease(unit, record)
        if row is None:
            continue
        guard(unit, record)
        _log(unit, "released", record, {"lapsed": row[5] <= unit.now})
        unit.connection.execute("DELETE FROM lease WHERE record = ?", (record,))
        released.append(record)
    return released


def claimable(source: Source, refs: Iterable[Ref]) -> list[int]:
    """The ids of records that can be claimed: notes, entities, checklist items."""
    found = []
    for ref in refs:
        record, kind = identify(source, ref)
        if kind not in _CLAIMABLE:
            raise InvalidInput(f"#{record} is of type {kind}", why="Claimed are notes, entities and checklist items")
        found.append(record)
    return found


def secret_of(token: object) -> bytes:
    """The secret that a claim token stands for."""
    try:
        secret = bytes.fromhex(token) if isinstance(token, str) else b""
    except ValueError:
        secret = b""
    if len(secret) != SECRET_BYTES:
        raise InvalidInput("This is no claim token", why="It is what claim_token() of another process gave")
    return secret


def seconds_of(value: object) -> int:
    """A lease's length, checked."""
    return validate.whole(value, "seconds", 1, limits.CLAIM_SECONDS_MAX)


def live(view: View, *, run: str | None = None) -> list[Claim]:
    """The claims that have not lapsed, of one run or of all."""
    sql = f"SELECT {_COLUMNS} FROM lease WHERE expires_at > ?"
    values: list[Any] = [view.now]
    if run is not None:
        sql += " AND run = ?"
        values.append(run)
    rows = view.rows(f"{sql} ORDER BY record", values)
    unseen = subjects.hidden(view, [row[0] for row in rows])
    return [claim_of(view.binding, row, view.now) for row in rows if row[0] not in unseen]


def claim_of(binding: Binding, row: Sequence[Any], now: int) -> Claim:
    """The value of a row of the table."""
    mine = _owns(binding, binding.actor.run, row)
    return Claim(row[0], row[1], row[2], row[4], row[5], row[5] > now, mine)


def lease(source: Source, record: int) -> Sequence[Any] | None:
    """The lease of one record, live or lapsed."""
    return source.row(f"SELECT {_COLUMNS} FROM lease WHERE record = ?", (record,))


def held(unit: Unit) -> list[int]:
    """The records that this run holds, by its secret, in the order of their ids."""
    sql = f"SELECT {_COLUMNS} FROM lease WHERE run IS ? ORDER BY record"
    rows = unit.rows(sql, (unit.actor.run,))
    unseen = subjects.hidden(unit, [row[0] for row in rows])
    return [row[0] for row in rows if row[0] not in unseen and _owns(unit.binding, unit.actor.run, row)]


def mine(unit: Unit, record: int) -> bool:
    """Whether this run holds a record, by its secret, and the claim has not lapsed."""
    row = lease(unit, record)
    return row is not None and row[5] > unit.now and _owns(unit.binding, unit.actor.run, row)


def _owns(binding: Binding, run: str | None, row: Sequence[Any]) -> bool:
    secret = binding.leases.get(run)
    return secret is not None and hmac.compare_digest(_hash(secret), row[3])


def _hash(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _log(unit: Unit, verb: str, record: int, payload: dict[str, Any]) -> None:
    (of,) = unit.one("SELECT type FROM event WHERE seq = ?", (record,))
    within = record if of == "session" else None
    project = standing(unit, of, record).project
    unit.append(f"{of}.claim.{verb}", payload, record=record, project=project, session=within)


def _reached(unit: Unit, record: int) -> None:
    """Refuse what the view may not write: renewing has no event, with which it would be seen."""
    if unit.tx.reach is not None:
        (of,) = unit.one("SELECT type FROM event WHERE seq = ?", (record,))
        unit.tx.reach.before(f"{of}.claim.taken", of, record, {})


def _apply_nothing(connection: apsw.Connection, event: Event) -> None:
    """A lease is operational state: its events are history and change no projection."""


EVENTS = tuple(
    EventKind(f"{kind}.claim.{verb}", kind, _apply_nothing)  # type: ignore[arg-type]
    for kind in _LEASED
    for verb in ("taken", "taken_over", "released")
)
