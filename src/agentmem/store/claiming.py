"""The verbs of claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.records import claim_writes, claims, validate
from agentmem.records.base import Unit
from agentmem.store.shared import Facade
from agentmem.types import Claim, Ref, WrittenMany


class ClaimVerbs(Facade):
    """Leases on records."""

    def claim(
        self,
        refs: Iterable[Ref] | Ref | None = None,
        *,
        type: str | None = None,
        where: str | None = None,
        n: int = 1,
        seconds: int = limits.CLAIM_SECONDS,
        **parameters: Any,
    ) -> WrittenMany:
        """Take records for this run, all or none; or the next `n` entities that are free and match.

        A claim of one's own is renewed. The secret stays in this process: an agent that lost its context still holds it.

        Args:
            refs: Notes, entities, checklist items.
            type: Instead of refs: the type of the entities to take.
            where: Which of them.
            n: How many; fewer if fewer are free.
            seconds: How long; it lapses by itself.
            parameters: The values of `:name` in `where`.

        Raises:
            Held: One is held by another run; names holder and expiry.
            NotFound: One of them is not there.
            InvalidInput: A record of another type, or neither or both ways to name them.
        """
        lasting = claims.seconds_of(seconds)

        def command(unit: Unit) -> WrittenMany:
            if type is not None:
                if refs is not None:
                    raise InvalidInput("refs and type= exclude each other", next="Leave one of them out")
                return claim_writes.claim_next(unit, type, where, parameters, n, lasting)
            if refs is None:
                raise InvalidInput("Nothing to claim", next="Give refs, or type= and n=")
            return claim_writes.claim(unit, refs, lasting)

        return self._binding.run("claim", {}, None, command)

    def release(self, refs: Iterable[Ref] | Ref | None = None) -> WrittenMany:
        """Give claims back: of the records, or all of this run's. One that nobody holds is passed over."""
        return self._binding.run("release", {}, None, lambda unit: claim_writes.release(unit, refs))

    def claims(self, *, mine: bool = False) -> tuple[Claim, ...]:
        """The live claims of the store, or this run's own."""
        validate.flag(mine, "mine")
        with self._binding.reading() as view:
            found = claims.live(view)
            return tuple(claim for claim in found if claim.mine or not mine)

    def claim_token(self) -> str:
        """The secret of this run's claims, to hand to another process of the same run with `adopt_claims`."""
        return self._shared.leases.ensure(self._binding.actor.run).hex()

    def adopt_claims(self, token: str) -> None:
        """Continue the claims of another process of this run, by the token it gave."""
        self._shared.leases.adopt(self._binding.actor.run, claims.secret_of(token))
