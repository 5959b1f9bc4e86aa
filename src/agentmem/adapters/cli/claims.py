"""Commands on claims: claim, release, claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import click

from agentmem import limits
from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import ids, inline, many, number, remarks, when
from agentmem.types import Entity, Item

if TYPE_CHECKING:
    from agentmem.store import Store


@command("claim", store="write", verbs=("claim", "claim_token", "adopt_claims"))
@click.argument("refs", nargs=-1)
@click.option("--type", "of_type", metavar="TYPE", help="Instead of REFS: the next free entities of this type.")
@options.where
@options.parameters
@click.option(
    "--number", "-n", type=int, default=1, show_default=True, help="How many of them; fewer if fewer are free."
)
@click.option(
    "--seconds", type=int, default=limits.CLAIM_SECONDS, show_default=True, help="How long; it lapses by itself."
)
def claim(
    session: Session,
    store: Store,
    refs: tuple[str, ...],
    of_type: str | None,
    where: str | None,
    parameters: tuple[str, ...],
    number: int,
    seconds: int,
) -> None:
    """Take records for this run, all or none.

    One's own claims are renewed, those of others are refused.

    The first line on stdout is the token of the claims, the others name what was taken; with --quiet the token alone.
    Give the token to the commands that act under the claims: --claim TOKEN, or AGENTMEM_CLAIM.

    Examples:
      export AGENTMEM_CLAIM=$(agentmem claim 12 --run worker-1 --quiet)
      agentmem claim --type endpoint --where "check.authz is null" --number 5
    """
    values = options.pairs(parameters, "--param")
    if of_type is None:
        if not refs:
            raise click.UsageError("Nothing to claim: name records, or give --type.")
        if where is not None or values:
            raise click.UsageError("--where and --param belong to --type.")
        taken = store.claim(refs, seconds=seconds)
    else:
        taken = store.claim(refs or None, type=of_type, where=where, n=number, seconds=seconds, **values)
    out, token, names = session.out, store.claim_token(), [_name(store, found) for found in taken.ids]
    if out.json:
        held = [one for one in store.claims(mine=True) if one.record in set(taken.ids)]
        out.value(taken, token=token, refs=names, claims=held)
        return
    out.text(token)
    if names and not out.quiet:
        out.text("\n".join(names))
    if not names:
        out.say("nothing was free")


def _name(store: Store, record: int) -> str:
    found = store.get(record)
    return found.ref if isinstance(found, (Entity, Item)) else str(record)


@command("release", store="write", verbs=("release",))
@click.argument("refs", nargs=-1)
def release(session: Session, store: Store, refs: tuple[str, ...]) -> None:
    """Give claims back.

    Those of REFS, or all of the run of --run whose token is given by --claim. Without the token a claim of another
    process is not given back, whatever --run says. One that nobody holds is passed over.

    Examples:
      agentmem release --run worker-1 --claim 7f6c0a...
      agentmem release 12 --claim 7f6c0a...
    """
    done, out = store.release(refs or None), session.out
    kept = () if refs else tuple(one for one in store.claims() if one.run == store.actor.run and not one.mine)
    if kept:
        of = f"the run {inline(kept[0].run)}" if kept[0].run else "no run"
        notice = (
            f"{number(len(kept), 'claim')} of {of} not given back: {ids([one.record for one in kept])}."
            " That needs the token which agentmem claim printed: --claim TOKEN or AGENTMEM_CLAIM; else they lapse"
        )
        done = attrs.evolve(done, notices=(*done.notices, notice))
    if kept and not done.changed and not out.json:
        out.text("nothing given back")
        remarks(out, done.notices)
    else:
        many(out, done)


@command("claims", verbs=("claims",))
@click.option("--mine", is_flag=True, help="Only those that --claim and --run hold.")
def claims(session: Session, store: Store, mine: bool) -> None:
    """The live claims of the store.

    Examples:
      agentmem claims
      agentmem claims --mine --json
    """
    out = session.out
    found = store.claims(mine=mine)
    if out.json:
        out.values(found)
        return
    rows = (
        (str(one.record), one.holder or "", one.run or "", f"{when(one.expires_at)} UTC", "mine" if one.mine else "")
        for one in found
    )
    out.table(("record", "holder", "run", "until", ""), rows)


COMMANDS = {made.name: made for made in (claim, release, claims)}
