"""Commands that search: recall, by words and by meaning; find, by words."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any, Final

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import inline
from agentmem.errors import AgentMemError, ReadOnly
from agentmem.types import ORIGINS, UNSET

if TYPE_CHECKING:
    from agentmem.store import Store

_EMBEDS_SECONDS: Final = 2.0  # before an answer: processes that are all short get everything embedded little by little


def _no_search_then(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        raise click.UsageError(
            "A past has no search: the index has the words of now. list, tree, query and history take --at."
        )


def _narrowed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that narrow a search."""
    made = (
        click.option("--kind", metavar="KIND", help="A kind of note, or entity, item, checkpoint, summary."),
        click.option("--status", metavar="STATUS", help="In this status."),
        click.option("--under", metavar="REF", help="Beneath this note."),
        click.option("--about", metavar="REF", help="About this entity."),
        click.option("--tag", metavar="TAG", help="With this tag."),
        click.option("--by", "author", metavar="LABEL", help="Written by this author."),
        click.option("--from", "origin", type=click.Choice(ORIGINS), help="Of this origin."),
        click.option("--since", metavar="TIME", help="Written or changed then or later: 2026-11-30, 2026-11-30T12:00."),
        click.option("--until", metavar="TIME", help="Written then or earlier."),
        click.option("--everywhere", is_flag=True, help="In all projects of the store."),
        click.option("--at", callback=_no_search_then, expose_value=False, hidden=True),
    )
    for option in reversed(made):
        function = option(function)
    return function


def _filters(since: str | None, until: str | None, everywhere: bool, **filters: Any) -> dict[str, Any]:
    """What the options that narrow a search are to the verbs of the store."""
    return filters | {
        "since": options.microseconds(since),
        "until": options.microseconds(until),
        "project": "*" if everywhere else None,
    }


@command("recall", store=None, verbs=("recall",))
@click.argument("query", nargs=-1, required=True)
@_narrowed
@click.option("--whole", is_flag=True, help="Lift nothing, whatever --task says.")
@options.limit(8)
@options.budget
def recall(session: Session, query: tuple[str, ...], whole: bool, limit: int, budget: int, **given: Any) -> None:
    """What was written about something, in whatever words, the best first.

    By words and by meaning. Nothing in QUERY is syntax. What is not relevant is left out: an answer may be empty.
    Before it, what waits to be embedded is, for two seconds at most; agentmem index does all of it.

    Examples:
      agentmem recall how do we log in
      agentmem recall "why is the queue slow" --kind lesson --since 2026-11-01 --json
    """
    out = session.out
    filters = _filters(**given)
    with ExitStack() as stack:
        store = _opened(session, stack)
        with suppress(AgentMemError):  # the answer is what was asked for; it says itself what it lacks
            store.wait_for_index(_EMBEDS_SECONDS)
        found = store.recall(" ".join(query), limit=limit, budget=budget, task=None if whole else UNSET, **filters)
    out.answer(found)


def _opened(session: Session, stack: ExitStack) -> Store:
    """The store, for writing vectors too; only for reading where it can't be written to."""
    try:
        return stack.enter_context(session.opened("write"))
    except ReadOnly:
        return stack.enter_context(session.opened("read"))


@command("find", verbs=("find",))
@click.argument("query", nargs=-1, required=True)
@_narrowed
@options.limit(10)
@options.after("cursor")
def find(session: Session, store: Store, query: tuple[str, ...], limit: int, after: str | None, **given: Any) -> None:
    """Search by words.

    Notes, entities, items, checkpoints and summaries. Nothing in QUERY is syntax. All its words count, else
    words that begin like them, else any of them.

    Examples:
      agentmem find sql injection login
      agentmem find "rm -rf" --kind attempt --json
    """
    out = session.out
    found = store.find(" ".join(query), limit=limit, after=after, **_filters(**given))
    if out.json:
        out.value(found)
        return
    if not found.hits:
        out.say("nothing found")
        return
    if found.matched != "all":
        out.say({"prefix": "matched by beginnings of words", "any": "matched by any of the words"}[found.matched])
    rows = (
        (str(hit.id), hit.kind, hit.status or "", inline(hit.title, hit.origin), inline(hit.snippet, hit.origin))
        for hit in found.hits
    )
    out.table(("id", "kind", "status", "title", "text"), rows)
    if found.after is not None:
        out.say(f"more: --after {found.after}")


COMMANDS = {made.name: made for made in (recall, find)}
