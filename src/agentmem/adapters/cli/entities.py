"""Commands that write entities: put, rename, mark, unmark, marks, expect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import compact, inline, many, remarks, when, written
from agentmem.errors import InvalidInput
from agentmem.types import UNSET

if TYPE_CHECKING:
    from agentmem.records.entity_writes import Row
    from agentmem.store import Store

_ROW_FIELDS = frozenset(("key", "attrs", "status", "parent", "confidence"))


@command("put", store="create", verbs=("entities.put", "entities.put_many"))
@click.argument("type_", metavar="TYPE")
@click.argument("keys", nargs=-1)
@click.option("--attr", "attrs", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="An attribute; null removes it.")
@click.option("--status", metavar="TOKEN", help="Any word; new at first.")
@click.option("--parent", metavar="REF", help="The entity they belong to.")
@click.option("--no-parent", is_flag=True, help="They belong to none.")
@click.option("--confidence", type=float, help="0 to 1; of one.")
@click.option(
    "--rows", metavar="FILE", help='JSON Lines of {"key", "attrs", "status", "parent", "confidence"}; - is stdin.'
)
@options.expected_revision
@options.request_id
def put(
    session: Session,
    store: Store,
    type_: str,
    keys: tuple[str, ...],
    attrs: tuple[str, ...],
    status: str | None,
    parent: str | None,
    no_parent: bool,
    confidence: float | None,
    rows: str | None,
    expected_revision: int | None,
    request_id: str | None,
) -> None:
    """Add entities, or change those that exist.

    Of TYPE, all or none; what is not given stays. - is the lines of stdin.

    Examples:
      agentmem put endpoint "GET /users" "POST /login" --attr area=api
      agentmem put host web-1 --attr port:=443 --status up
      nmap-to-jsonl scan.xml | agentmem put host --rows -
    """
    if parent is not None and no_parent:
        raise click.UsageError("--parent and --no-parent exclude each other.")
    shared: dict[str, Any] = {
        "attrs": options.pairs(attrs, "--attr") or None,
        "status": UNSET if status is None else status,
        "parent": None if no_parent else UNSET if parent is None else parent,
        "request_id": request_id,
    }
    names = session.lines(keys)
    if len(names) == 1 and rows is None:
        done = store.entities.put(
            type_,
            names[0],
            confidence=UNSET if confidence is None else confidence,
            expected_revision=expected_revision,
            **shared,
        )
        written(session.out, done)
        return
    if confidence is not None or expected_revision is not None:
        raise click.UsageError("--confidence and --expected-revision are for one entity; of many give them in --rows.")
    given = [] if rows is None else list(_rows(session, rows))
    if not names and not given:
        raise click.UsageError("Nothing to put: name keys, or give --rows.")
    many(session.out, store.entities.put_many(type_, keys=names, rows=given, **shared))


def _rows(session: Session, name: str) -> Iterator[Row]:
    from agentmem.records.entity_writes import Row

    try:
        text = session.stdin() if name == "-" else Path(name).read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{name} is not UTF-8 at byte {error.start + 1}") from None
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"Line {number} of --rows is no JSON", why=str(error)) from None
        if not isinstance(found, dict) or "key" not in found:
            raise InvalidInput(f'Line {number} of --rows is no object with a "key"')
        if unknown := sorted(set(found) - _ROW_FIELDS):
            raise InvalidInput(
                f"Line {number} of --rows has the unknown field {unknown[0]!r}",
                next=f"Known are {', '.join(sorted(_ROW_FIELDS))}; anything else belongs into attrs",
            )
        if not isinstance(found.get("attrs"), dict | None):
            raise InvalidInput(f"Line {number} of --rows has attrs that are no object")
        yield Row(found.pop("key"), **found)


@command("rename", store="write", verbs=("entities.rename",))
@click.argument("ref")
@click.argument("key")
@options.expected_revision
@options.request_id
def rename(session: Session, store: Store, ref: str, key: str, **given: Any) -> None:
    """Give the entity REF another KEY. Its id, marks and links stay.

    Examples:
      agentmem rename host:web-1 web-01
    """
    written(session.out, store.entities.rename(ref, key, **given))


_type = click.argument("type_", metavar="TYPE")
_keys = click.argument("keys", nargs=-1, required=True)


@command("mark", store="write", verbs=("entities.mark",))
@_type
@_keys
@click.option("--check", "-c", "checks", multiple=True, required=True, metavar="NAME=RESULT",
              help="RESULT is pass, fail, na or error. Repeatable.")  # fmt: skip
@click.option(
    "--value", "values", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="A value to go with the check NAME."
)
@click.option("--detail", metavar="LINE", help="One line for all of them.")
@options.request_id
def mark(
    session: Session,
    store: Store,
    type_: str,
    keys: tuple[str, ...],
    checks: tuple[str, ...],
    values: tuple[str, ...],
    detail: str | None,
    request_id: str | None,
) -> None:
    """Record results of checks on entities.

    On entities that exist, all or none. - is the lines of stdin.

    Examples:
      agentmem mark endpoint "POST /login" -c authz=pass -c csrf=na
      agentmem mark host web-1 web-2 -c tls=fail --value tls=1.0 --detail "testssl, port 443"
    """
    from agentmem.records.entity_writes import Result

    results: dict[str, Any] = options.results(checks)
    for name, value in options.pairs(values, "--value").items():
        if name not in results:
            raise InvalidInput(
                f"--value names the check {name}, which has no result", next=f"Add --check {name}=RESULT"
            )
        results[name] = Result(results[name], value=value)
    many(session.out, store.entities.mark(type_, session.lines(keys), results, detail=detail, request_id=request_id))


@command("unmark", store="write", verbs=("entities.unmark",))
@_type
@_keys
@click.option("--check", "-c", "checks", multiple=True, required=True, metavar="NAME", help="Repeatable.")
@options.request_id
def unmark(
    session: Session, store: Store, type_: str, keys: tuple[str, ...], checks: tuple[str, ...], request_id: str | None
) -> None:
    """Take marks back.

    The checks count as never run. What was marked stays in the log.

    Examples:
      agentmem unmark endpoint "POST /login" -c csrf
    """
    many(session.out, store.entities.unmark(type_, session.lines(keys), checks, request_id=request_id))


@command("marks", verbs=("entities.marks",), past=True)
@click.argument("ref")
def marks(session: Session, store: Store, ref: str) -> None:
    """The current marks of an entity, in full.

    Examples:
      agentmem marks "endpoint:POST /login" --json
    """
    out = session.out
    found = store.entities.marks(ref)
    if out.json:
        out.values(found)
        return
    rows = (
        (one.name, one.result, "" if one.value is None else inline(compact(one.value), one.origin),
         inline(one.detail, one.origin), f"{when(one.at)} UTC", one.author or "")
        for one in found
    )  # fmt: skip
    out.table(("check", "result", "value", "detail", "at", "by"), rows)


@command("expect", store="create", verbs=("entities.expect", "entities.expected"))
@click.argument("type_", metavar="[TYPE]", required=False)
@click.argument("checks", nargs=-1)
@options.where
@options.parameters
@click.option("--withdraw", is_flag=True, help="Take the declaration of this TYPE and WHERE back.")
@options.request_id
def expect(
    session: Session,
    store: Store,
    type_: str | None,
    checks: tuple[str, ...],
    where: str | None,
    parameters: tuple[str, ...],
    withdraw: bool,
    request_id: str | None,
) -> None:
    """Declare which checks a type of entity needs.

    Every entity of TYPE is expected to have marks of CHECKS. Without CHECKS: show what is declared.

    Examples:
      agentmem expect endpoint authz csrf idor
      agentmem expect host tls --where "attrs.port = 443"
      agentmem expect
    """
    out = session.out
    if type_ is not None and (checks or withdraw):
        if checks and withdraw:
            raise click.UsageError("--withdraw takes the whole declaration back: leave the checks out.")
        values = options.pairs(parameters, "--param")
        written(out, store.entities.expect(type_, checks, where=where, request_id=request_id, **values))
        return
    if withdraw or where is not None or parameters:
        raise click.UsageError("These options belong to a declaration: give TYPE and CHECKS.")
    found = store.entities.expected(type_)
    if out.json:
        out.values(found)
    else:
        out.table(("type", "checks", "where"), ((one.type, ", ".join(one.names), one.where or "") for one in found))
    if not found:
        remarks(out, ("nothing is declared",))


COMMANDS = {made.name: made for made in (put, rename, mark, unmark, marks, expect)}
