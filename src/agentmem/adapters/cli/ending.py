"""Commands that end records for good: forget, redact. What both ask before they do."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import Command, command
from agentmem.adapters.cli.output import complain, is_terminal
from agentmem.adapters.cli.progress import working
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import NOT_CLEANED, counts, head_text, ids, inline, number, remarks

if TYPE_CHECKING:
    from agentmem.store import Store
    from agentmem.types import Receipt

Purge: TypeAlias = "Callable[[Store, bool], Receipt]"
"""Purges, or with True only says what would go."""

_NAMED: Final = 20  # records whose titles are shown before they go


def asking(made: Command) -> Command:
    """Show `--yes` in the help of a command that asks."""
    for option in made.params:
        if isinstance(option, click.Option) and "--yes" in option.opts:
            option.hidden = False
    return made


dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would go.")


@asking
@command("forget", store=None, verbs=("forget",))
@click.argument("refs", nargs=-1)
@click.option(
    "--type", "of_type", metavar="TYPE", help="Instead of REFS: the entities of this type, or with --where some."
)
@options.where
@options.parameters
@click.option("--whole-project", metavar="NAME", help="Instead of REFS: this project with all that is in it.")
@dry_run_option
@options.request_id
def forget(
    session: Session,
    refs: tuple[str, ...],
    of_type: str | None,
    where: str | None,
    parameters: tuple[str, ...],
    whole_project: str | None,
    dry_run: bool,
    request_id: str | None,
) -> None:
    """Purge records for good, with all beneath them.

    That is the subtree, checklists, summaries, checkpoints, marks and links of each. Nothing brings a purged text back.
    First it is shown what would go; then a terminal asks, elsewhere nothing is purged without --yes. The receipt says
    what was cleaned, what a purge cannot reach, and where else the same text stands. To take a change back instead,
    see agentmem undo.

    Examples:
      agentmem forget 12 14.3 --dry-run
      agentmem forget --type host --where "attrs.env = 'test'" --dry-run
      agentmem forget 40 --yes --json
    """
    if sum((bool(refs), of_type is not None, whole_project is not None)) != 1:
        raise click.UsageError("Name what to purge in one way: records, --type or --whole-project.")
    named = session.lines(refs) or None
    if refs and named is None:
        raise click.UsageError("stdin names no record.")
    values = options.pairs(parameters, "--param")

    def purge(store: Store, dry: bool) -> Receipt:
        return store.forget(
            named, project=whole_project, type=of_type, where=where, dry_run=dry,
            request_id=None if dry else request_id, **values,
        )  # fmt: skip

    purged(session, purge, dry_run=dry_run)


@asking
@command("redact", store=None, verbs=("redact",))
@click.argument("ref")
@click.option("--attr", metavar="NAME", help="Of an entity: this attribute, its present value too.")
@click.option("--check", metavar="NAME", help="Of an entity: value and detail of this check; its result stays.")
@dry_run_option
@options.request_id
def redact(
    session: Session, ref: str, attr: str | None, check: str | None, dry_run: bool, request_id: str | None
) -> None:
    """Purge the earlier texts of a record, and keep what it says now.

    To lose a secret, first edit it out with agentmem update. Nothing brings a purged text back: first it is shown what
    would go; then a terminal asks, elsewhere nothing is purged without --yes.

    Examples:
      agentmem redact 12 --dry-run
      agentmem redact "endpoint:POST /login" --attr token --yes
    """

    def purge(store: Store, dry: bool) -> Receipt:
        return store.redact(ref, attr=attr, check=check, dry_run=dry, request_id=None if dry else request_id)

    purged(session, purge, dry_run=dry_run, word="redacted")


def purged(session: Session, purge: Purge, *, dry_run: bool, word: str = "purged") -> None:
    """Purge once it is clear that this is meant; else show what would go.

    Args:
        session: The call.
        purge: What to do.
        dry_run: Only show it.
        word: What is done to the records.

    Raises:
        UsageError: Nobody can be asked, and nobody said yes.
    """
    out = session.out
    with session.opened("read" if dry_run else "write") as store:
        if dry_run:
            _shown(session, store, _planned(session, store, purge), word)
            return
        if not session.given.get("yes"):
            _agreed(session, store, purge, word)
        with working(out, "purging"):
            receipt = purge(store, False)
    if out.json:
        out.value(receipt)
    elif receipt.ids:
        out.text("\n".join(map(str, receipt.ids) if out.quiet else _lines(receipt, word)))
    else:
        out.say("nothing to purge")
    if receipt.repeated:
        out.say("repeated: nothing was purged again")
    remarks(out, receipt.notices)


def _agreed(session: Session, store: Store, purge: Purge, word: str) -> None:
    """Show what would go and ask.

    What others write meanwhile may come to lie beneath what is named, so it is looked again: only what was seen goes.
    """
    planned = _planned(session, store, purge)
    if not planned.ids:
        return
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        _shown(session, store, planned, word)
        session.out.flush()
        raise click.UsageError("This was a dry run and nothing was purged: where nobody can be asked it needs --yes.")
    while True:
        complain("\n".join(_lines(planned, word, store)))
        if not click.confirm("For good?", err=True):
            session.out.say("nothing was purged")
            click.get_current_context().exit(Exit.FAILURE)
        again = _planned(session, store, purge)
        if (again.ids, again.detached) == (planned.ids, planned.detached):
            return
        complain("Others wrote meanwhile, and now it is this:")
        planned = again


def _planned(session: Session, store: Store, purge: Purge) -> Receipt:
    with working(session.out, "looking"):
        return purge(store, True)


def _shown(session: Session, store: Store, planned: Receipt, word: str) -> None:
    out = session.out
    if out.json:
        out.value(planned)
    elif not planned.ids:
        out.say("nothing to purge")
    else:
        out.text("\n".join(map(str, planned.ids) if out.quiet else _lines(planned, word, store)))


def _lines(receipt: Receipt, word: str, store: Store | None = None) -> Iterator[str]:
    """A receipt for people; of a plan with the titles of what would go, of a purge without any text of it."""
    would = "would be " if receipt.dry_run else ""
    yield f"{would}{word}: {counts(receipt.types)}" + (
        "" if store is not None and word == "purged" else f": {ids(receipt.ids)}"
    )
    if store is not None and word == "purged":
        yield from _titles(store, receipt.ids)
    yield f"{would}erased: {number(len(receipt.events), 'event')}: {ids(sorted(receipt.events))}"
    if receipt.detached:
        yield f"{would}changed, since they point at it: {ids(receipt.detached)}"
    if receipt.also_found_in:
        yield f"the same text stands also in: {ids(receipt.also_found_in)}"
    if receipt.cleaned:
        yield f"cleaned: {', '.join(receipt.cleaned)}"
    if receipt.wal_pending:
        yield f"pending: free pages and write-ahead log: {NOT_CLEANED}"
    if receipt.survives:
        yield f"survives: {'; '.join(receipt.survives)}"
    if receipt.head is not None and not receipt.dry_run:
        yield f"head: {head_text(receipt.head)}"


def _titles(store: Store, records: tuple[int, ...]) -> Iterator[str]:
    """What the records are called, also one that was taken back."""
    for record in records[:_NAMED]:
        (change,) = store.revisions(record, limit=1).changes
        yield f"  {record} {change.type} {inline(change.label, change.trust) if change.label else ''}".rstrip()
    if len(records) > _NAMED:
        yield f"  and {len(records) - _NAMED:,} more: {ids(records[_NAMED:])}"


COMMANDS = {made.name: made for made in (forget, redact)}
