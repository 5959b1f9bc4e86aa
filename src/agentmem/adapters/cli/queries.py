"""Commands that ask about entities: query, groups, children."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import compact, entities_table

if TYPE_CHECKING:
    from agentmem.store import Store

_type = click.argument("type_", metavar="TYPE")
_where = click.argument("where", required=False)


@command("query", verbs=("entities.query",), past=True)
@_type
@_where
@options.parameters
@click.option("--order", default="", metavar="FIELDS", help="Fields to sort by, - before one for descending.")
@click.option("--total", is_flag=True, help="Also count all that match.")
@options.limit()
@options.after("cursor")
def query(
    session: Session,
    store: Store,
    type_: str,
    where: str | None,
    parameters: tuple[str, ...],
    order: str,
    total: bool,
    limit: int,
    after: str | None,
) -> None:
    """The entities that match.

    Those of TYPE, one page. WHERE compares fields: status, key, attrs.NAME, check.NAME; with and, or, not, =,
    !=, <, <=, >, >=, in, between,
    contains, icontains, startswith, is null.

    Examples:
      agentmem query endpoint "check.authz is null and attrs.area = :area" --param area=api
      agentmem query host "attrs.port in (80, 443)" --order -attrs.port --total --json
    """
    out = session.out
    values = options.pairs(parameters, "--param")
    found = store.entities.query(type_, where, order=order, limit=limit, after=after, total=total, **values)
    if out.json:
        out.value(found)
        return
    entities_table(out, found.entities)
    if total:
        out.say(f"{found.total} in all")
    elif not found.entities:
        out.say("nothing matches")
    if found.after is not None:
        out.say(f"more: --after {found.after}")


@command("groups", verbs=("entities.groups",), past=True)
@_type
@click.argument("by")
@_where
@options.parameters
@click.option("--of", metavar="FIELD", help="A numeric field whose minimum, maximum, sum and average are wanted.")
@options.limit()
def groups(
    session: Session,
    store: Store,
    type_: str,
    by: str,
    where: str | None,
    parameters: tuple[str, ...],
    of: str | None,
    limit: int,
) -> None:
    """Count the entities that match by one or more fields.

    Those of TYPE, the largest group first; BY is a comma list.

    Examples:
      agentmem groups endpoint check.authz
      agentmem groups host attrs.os,status "attrs.port = 443" --of attrs.latency
    """
    out = session.out
    found = store.entities.groups(type_, by, where, of=of, limit=limit, **options.pairs(parameters, "--param"))
    if out.json:
        out.value(found)
        return
    names = [*found.fields, "count"] + (["min", "max", "sum", "avg"] if of is not None else [])
    rows = []
    for group in found.groups:
        row = [one if isinstance(one, str) else "-" if one is None else compact(one) for one in group.values]
        row.append(str(group.count))
        if of is not None:
            of_group = group.numbers
            numbers = (None,) * 4 if of_group is None else (of_group.min, of_group.max, of_group.sum, of_group.avg)
            row += ["-" if one is None else str(one) for one in numbers]
        rows.append(row)
    out.table(names, rows)
    if found.cut:
        out.say(f"{len(found.groups)} of {found.total} groups: --limit gives more")


@command("children", verbs=("entities.children",), past=True)
@click.argument("ref")
@options.limit()
@options.after("id")
def children(session: Session, store: Store, ref: str, limit: int, after: int) -> None:
    """The entities that belong to an entity.

    Examples:
      agentmem children host:web-1
    """
    out = session.out
    found = store.entities.children(ref, limit=limit, after=after)
    if out.json:
        out.values(found)
    else:
        entities_table(out, found)
    if len(found) == limit:
        out.say(f"perhaps more: --after {found[-1].id}")


COMMANDS = {made.name: made for made in (query, groups, children)}
