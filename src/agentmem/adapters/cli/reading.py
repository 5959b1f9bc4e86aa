"""Commands that read back: resume, left, review, tree, get, list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentmem import limits
from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import inline, notes_table, record
from agentmem.types import ALL_STATUSES, NOTE_KINDS, UNSET, Entity

if TYPE_CHECKING:
    from agentmem.store import Store

_whole = click.option("--whole", is_flag=True, help="The whole project, whatever --task says.")


@command("resume", verbs=("resume",), past=True)
@click.argument("task", required=False)
@click.option(
    "--since", type=int, metavar="SEQ", help="Only what changed after this seq, the seq of an earlier answer."
)
@_whole
@options.budget
def resume(session: Session, store: Store, task: str | None, since: int | None, whole: bool, budget: int) -> None:
    """Everything needed to go on, within a budget.

    With TASK, or with the project. Call it first, and after every loss of context. It works without any checkpoint.

    Examples:
      agentmem resume
      agentmem resume 12 --budget 1000
      agentmem resume --since 480 --json
    """
    session.out.answer(store.resume(_task(session, task, whole), since=since, budget=budget))


@command("left", verbs=("left",), past=True)
@click.argument("task", required=False)
@click.option("--type", "of_type", metavar="TYPE", help="Only the coverage of this type of entity.")
@_whole
@options.limit()
@options.budget
def left(
    session: Session, store: Store, task: str | None, of_type: str | None, whole: bool, limit: int, budget: int
) -> None:
    """What is not done: computed, with a denominator.

    Of TASK, or of the project: scope minus marks, open steps and items.

    Examples:
      agentmem left
      agentmem left 12 --type endpoint
    """
    session.out.answer(store.left(_task(session, task, whole), type=of_type, limit=limit, budget=budget))


@command("review", verbs=("review",), past=True)
@click.argument("task", required=False)
@click.option(
    "--older-than",
    type=float,
    default=14,
    show_default=True,
    metavar="DAYS",
    help="How long something must have lain still.",
)
@click.option("--section", metavar="NAME", help="Only this section, as stalled or duplicates.")
@click.option("--after", metavar="CURSOR", help="With --section: continue, with what the page before named.")
@_whole
@options.limit(20)
@options.budget
def review(session: Session, store: Store, task: str | None, whole: bool, **given: Any) -> None:
    """What is worth a look: stalled, open, doubtful, contradicted, there twice.

    Of TASK, or of the project. It only proposes; nothing is changed.

    Examples:
      agentmem review
      agentmem review 12 --older-than 3
      agentmem review --section duplicates --json
    """
    session.out.answer(store.review(_task(session, task, whole), **given))


def _task(session: Session, task: str | None, whole: bool) -> str | None:
    if whole:
        if task is not None:
            raise click.UsageError("--whole and TASK exclude each other.")
        return None
    return task or session.task


@command("tree", verbs=("graph",), past=True)
@click.argument("ref", required=False)
@click.option("--depth", type=int, default=limits.TREE_LEVELS, show_default=True, help="Levels beneath.")
@options.limit()
@options.after("id")
def tree(session: Session, store: Store, ref: str | None, depth: int, limit: int, after: int) -> None:
    """A record with all that lies beneath it.

    REF is a note or an entity; the links from these come last. Without REF every tree of the project, one after
    another; --after is then the id of the last root.

    Examples:
      agentmem tree 12 --depth 2
      agentmem tree --json
    """
    out = session.out
    if ref is not None:
        graphs = [store.graph(ref, depth=depth, limit=limit, after=after, budget=limits.BUDGET_MAX)]
        more = None if graphs[0].after is None else f"more: agentmem tree {ref} --after {graphs[0].after}"
    else:
        roots = store.notes.list(parent=None, limit=limit, after=after)
        graphs = [store.graph(root, depth=depth, limit=limit, budget=limits.BUDGET_MAX) for root in roots]
        cut = [root.id for root, graph in zip(roots, graphs, strict=True) if graph.after is not None]
        more = f"cut short: {', '.join(f'agentmem tree {root}' for root in cut)}" if cut else None
        if len(roots) == limit:
            out.say(f"more: --after {roots[-1].id}")
    if out.json:
        out.values(graphs)
    elif graphs:
        out.text("\n".join(graph.text for graph in graphs))
    if more is not None:
        out.say(more)


@command("get", verbs=("get", "notes.get", "entities.get", "projects.get"), past=True)
@click.argument("refs", nargs=-1, required=True)
def get(session: Session, store: Store, refs: tuple[str, ...]) -> None:
    """Records in full, whatever their type.

    Examples:
      agentmem get 12
      agentmem get "endpoint:POST /login" 14.3 --json
    """
    out = session.out
    found = [store.get(ref) for ref in refs]
    if out.json:
        out.values(found)
        return
    for number, value in enumerate(found):
        if number:
            out.text("")
        record(out, value)
        if isinstance(value, Entity) and (marks := store.entities.marks(value)):
            lines = [f"  {mark.name}: {mark.result}" for mark in marks]
            details = [f" ({inline(mark.detail, mark.origin)})" if mark.detail else "" for mark in marks]
            out.text("\n".join(line + detail for line, detail in zip(["marks:", *lines], ["", *details], strict=True)))


@command("list", verbs=("notes.list",), past=True)
@click.option("--kind", type=click.Choice(NOTE_KINDS), help="Of this kind.")
@click.option("--status", type=click.Choice(ALL_STATUSES), help="In this status.")
@click.option("--parent", metavar="REF", help="The children of this note, in their order.")
@click.option("--roots", is_flag=True, help="Those without parent.")
@click.option("--under", metavar="REF", help="Anywhere beneath this note.")
@click.option("--about", metavar="REF", help="About this entity.")
@click.option("--tag", metavar="TAG", help="With this tag.")
@options.limit()
@options.after("id")
def list_(session: Session, store: Store, parent: str | None, roots: bool, limit: int, **filters: Any) -> None:
    """Notes in the order they were written.

    Examples:
      agentmem list --kind decision
      agentmem list --under 12 --status open --json
    """
    if parent is not None and roots:
        raise click.UsageError("--parent and --roots exclude each other.")
    place = None if roots else UNSET if parent is None else parent
    found = store.notes.list(parent=place, limit=limit, **filters)
    out = session.out
    if out.json:
        out.values(found)
    else:
        notes_table(out, found)
    if len(found) == limit:
        out.say(f"perhaps more: --after {found[-1].id}")


COMMANDS = {made.name: made for made in (resume, left, review, tree, get, list_)}
