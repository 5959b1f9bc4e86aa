"""The command projects: list, stats, rename, merge, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.ending import asking, dry_run_option, purged
from agentmem.adapters.cli.options import command, common_options
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import counts, inline, number, remarks, sizes, when, written

if TYPE_CHECKING:
    from agentmem.store import Store
    from agentmem.types import Receipt


@options.group("projects", invoke_without_command=True)
@click.pass_context
def projects(context: click.Context) -> None:
    """The projects of the store, oldest first.

    Examples:
      agentmem projects
      agentmem projects stats acme
    """
    if context.invoked_subcommand is None:
        session = context.ensure_object(Session)
        with session.opened("read") as store:
            _projects(session, store)


projects.params.extend(common_options(leaf=True))


def _projects(session: Session, store: Store) -> None:
    out = session.out
    found = store.projects.list()
    if out.json:
        out.values(found)
        return
    rows = (
        (str(one.id), one.name or "", f"{when(one.created_at)} UTC", "this one" if one.name == store.project else "")
        for one in found
    )
    out.table(("id", "name", "since", ""), rows)


@command("list", verbs=("projects.list",), group=projects)
def projects_list(session: Session, store: Store) -> None:
    """The projects of the store, oldest first.

    Examples:
      agentmem projects list --json
    """
    _projects(session, store)


@command("rename", store="write", verbs=("projects.rename",), group=projects)
@click.argument("name")
@options.request_id
def projects_rename(session: Session, store: Store, name: str, request_id: str | None) -> None:
    """Give the project another NAME. Its records keep their ids.

    The directory still stands for the old name: from then on give --project NAME, or set AGENTMEM_PROJECT.

    Examples:
      agentmem projects rename acme --project acme-1f2e3d4c
    """
    written(session.out, store.projects.rename(name, request_id=request_id))


@command("stats", verbs=("projects.stats",), group=projects)
@click.argument("name", required=False)
@click.option("--log", is_flag=True, help="Also events and bytes by kind. Reads the whole log of it.")
def projects_stats(session: Session, store: Store, name: str | None, log: bool) -> None:
    """What a project holds, in numbers: NAME, or the one of --project.

    Examples:
      agentmem projects stats
      agentmem projects stats acme --log --json
    """
    out = session.out
    found = (store if name is None else store.in_project(name)).projects.stats(log=log)
    if out.json:
        out.value(found)
        return
    rows = [
        ("project", f"{found.project.id} {found.project.name or ''}".rstrip()),
        ("notes", counts(found.notes)),
        ("entities", counts(found.entities, kinds=True)),
        ("others", counts({
            "mark": found.marks, "item": found.items, "checkpoint": found.checkpoints, "summary": found.summaries,
        })),
        ("events", f"{found.events:,}" + ("" if found.bytes is None else f", {number(found.bytes, 'byte')}")),
    ]  # fmt: skip
    out.text("\n".join(f"{title:<10} {value}".rstrip() for title, value in rows))
    if found.log is not None:
        sizes(out, found.log)


@command("merge", store="write", verbs=("projects.merge",), group=projects)
@click.argument("name")
@click.option(
    "--collisions", type=click.Choice(("refuse", "keep_both", "merge")), default="refuse", show_default=True,
    help="Of entities with the same type and key in both.",
)  # fmt: skip
@options.request_id
def projects_merge(session: Session, store: Store, name: str, collisions: Any, request_id: str | None) -> None:
    """Move all of the project NAME into the project of --project. Records keep their ids; NAME is no more afterwards.

    Of entities that are in both, keep_both gives the one that comes in another key; merge makes one of the two, with the
    attributes that the one here lacks and the newer mark of each check.

    Examples:
      agentmem projects merge acme-old --project acme
      agentmem projects merge acme-old --project acme --collisions merge --json
    """
    done = store.projects.merge(name, collisions=collisions, request_id=request_id)
    out = session.out
    if out.json:
        out.value(done)
        return
    out.text(f"{number(done.changed, 'record')} moved into {store.project}")
    for met in done.collisions:
        out.text(f"{met.type}:{inline(met.key)} was in both, {met.kept} and {met.other}: {inline(met.outcome)}")
    if done.repeated:
        out.say("repeated: nothing was written again")
    remarks(out, done.notices)


@asking
@command("delete", store=None, verbs=("projects.delete",), group=projects)
@click.argument("name")
@dry_run_option
@options.request_id
def projects_delete(session: Session, name: str, dry_run: bool, request_id: str | None) -> None:
    """Purge the project NAME with all that is in it, for good, as agentmem forget does.

    First it is shown what would go; then a terminal asks, elsewhere nothing is purged without --yes.

    Examples:
      agentmem projects delete acme-old --dry-run
    """

    def purge(store: Store, dry: bool) -> Receipt:
        return store.projects.delete(name, dry_run=dry, request_id=None if dry else request_id)

    purged(session, purge, dry_run=dry_run)


COMMANDS = {"projects": projects}
