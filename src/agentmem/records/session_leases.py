"""Who runs a session: a lease that one holder has at a time, like a claim. Its secret is that of the binding."""

from __future__ import annotations

from agentmem.records import claims
from agentmem.records.base import Binding, Source, Unit
from agentmem.types import Claim, WrittenMany


def hold(binding: Binding, session: int, seconds: int) -> WrittenMany:
    """Take a session, or go on holding it.

    Raises:
        Held: Another holds it; names holder and expiry.
    """

    def command(unit: Unit) -> WrittenMany:
        taken = claims.take(unit, [session], seconds=claims.seconds_of(seconds))
        return WrittenMany((session,), created=len(taken), unchanged=1 - len(taken), transit=unit.transit)

    return binding.run("sessions.hold", {}, None, command)


def give_back(binding: Binding, session: int) -> None:
    """Give a session back; one that is held by nobody, or by another by now, is left as it is."""

    def command(unit: Unit) -> WrittenMany:
        if claims.mine(unit, session):
            claims.release(unit, [session])
        return WrittenMany((session,), unchanged=1, transit=unit.transit)

    binding.run("sessions.give_back", {}, None, command)


def holder(source: Source, session: int, now: int) -> Claim | None:
    """Who holds a session now, None for nobody."""
    row = claims.lease(source, session)
    return None if row is None or row[5] <= now else claims.claim_of(source.binding, row, now)
