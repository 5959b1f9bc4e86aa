"""The commands behind `store.claim` and `store.release`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from agentmem import limits
from agentmem.records import claims, validate
from agentmem.records.base import Unit
from agentmem.records.entities import matching
from agentmem.types import HasId, Ref, WrittenMany


def claim(unit: Unit, refs: Iterable[Ref] | Ref, seconds: int) -> WrittenMany:
    """Take records for this run, all or none; a claim of one's own is renewed."""
    wanted = claims.claimable(unit, _several(refs))
    new = claims.take(unit, wanted, seconds=seconds)
    return WrittenMany(tuple(wanted), created=len(new), changed=len(wanted) - len(new), transit=unit.transit)


def claim_next(
    unit: Unit, type: str, where: str | None, parameters: Mapping[str, Any], n: int, seconds: int
) -> WrittenMany:
    """Take the next n entities of a type that match and that nobody holds, in one step; fewer if there are fewer."""
    wanted = validate.whole(n, "n", 1, limits.BATCH)
    (rows, bound), _ = matching(unit, validate.token(type, "type"), where, parameters)
    free = "AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.record = e.id AND lease.expires_at > ?)"
    sql = f"SELECT e.id {rows} {free} ORDER BY e.id LIMIT ?"
    found = [record for (record,) in unit.rows(sql, [*bound, unit.now, wanted])]
    claims.take(unit, found, seconds=seconds)
    return WrittenMany(tuple(found), created=len(found), transit=unit.transit)


def release(unit: Unit, refs: Iterable[Ref] | Ref | None) -> WrittenMany:
    """Give claims back: of the records, or all that this run holds. One that nobody holds is passed over."""
    wanted = claims.held(unit) if refs is None else claims.claimable(unit, _several(refs))
    released = claims.release(unit, wanted)
    return WrittenMany(
        tuple(wanted), changed=len(released), unchanged=len(wanted) - len(released), transit=unit.transit
    )


def _several(refs: Iterable[Ref] | Ref) -> list[Ref]:
    if isinstance(refs, (int, str, HasId)):
        return [refs]
    return validate.batch(refs, "refs")
