"""Commands on notes and their links: add, update, move, link, unlink, links."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import many, written
from agentmem.errors import InvalidInput
from agentmem.types import ALL_STATUSES, LINK_KINDS, NOTE_KINDS, UNSET

if TYPE_CHECKING:
    from agentmem.store import Store

_CLEARABLE = ("confidence", "basis", "about", "why", "scope", "dated", "source", "tags", "body")


def _note_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that adding and changing share."""
    for option in reversed((
        click.option("--body", metavar="TEXT", help="Anything more; - reads stdin."),
        click.option("--status", type=click.Choice(ALL_STATUSES), help="One that the kind may have."),
        click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag; p0 to p3 is a priority. Repeatable."),
        click.option("--confidence", type=float, help="0 to 1."),
        click.option("--basis", metavar="LINE", help="What it rests on."),
        click.option("--about", metavar="REF", help="The entity it is about."),
        click.option("--why", metavar="TEXT", help="Of an attempt: why it ended as it did; - reads stdin."),
        click.option("--scope", metavar="TYPE", help="Of a task: the type of the entities it covers."),
        click.option("--where", metavar="WHERE", help="Of a scope: only the entities that match."),
        options.parameters,
        click.option("--check", "-c", "checks", multiple=True, metavar="NAME", help="Of a scope: a check. Repeatable."),
        click.option("--dated", metavar="TIME", help="When it was true or written elsewhere, ISO 8601."),
        click.option("--source", metavar="LINE", help="Where it came from."),
        options.request_id,
    )):  # fmt: skip
        function = option(function)
    return function


def _scope(
    store: Store, scope: str | None, where: str | None, checks: tuple[str, ...], parameters: tuple[str, ...]
) -> Any:
    if scope is None:
        if where is not None or checks or parameters:
            raise click.UsageError("--where, --check and --param belong to --scope TYPE.")
        return None
    return store.scope(scope, where=where, checks=checks, **options.pairs(parameters, "--param"))


@command("add", store="create", verbs=("notes.add", "notes.add_many", "scope"))
@click.argument("kind", type=click.Choice(NOTE_KINDS))
@click.argument("titles", nargs=-1, required=True)
@click.option("--parent", metavar="REF", help="The note it stands beneath. A goal has none.")
@click.option("--pin", is_flag=True, help="Show it first beneath its parent.")
@click.option("--link", "links", multiple=True, metavar="KIND=REF", help="A link from it, as answers=9. Repeatable.")
@_note_options
def add(
    session: Session,
    store: Store,
    kind: Any,
    titles: tuple[str, ...],
    body: str | None,
    why: str | None,
    scope: str | None,
    where: str | None,
    checks: tuple[str, ...],
    parameters: tuple[str, ...],
    links: tuple[str, ...],
    dated: str | None,
    request_id: str | None,
    **given: Any,
) -> None:
    """Write a note: a goal, step, fact, decision, and so on.

    Its id goes to stdout. With several TITLES several notes, all or none; - is the lines of stdin.

    KIND is goal, step, attempt, fact, decision, question or lesson. To try something use agentmem attempt open, which
    answers with earlier ones like it.

    Examples:
      agentmem add goal "Check example.com"
      agentmem add step "TLS" "Headers" --parent 2
      agentmem add step "Check the API" --parent 2 --scope endpoint -c authz -c csrf
      git diff --stat | agentmem add fact "What the branch changes" --parent 2 --body -
    """
    from agentmem.records.note_writes import NewNote

    shared: dict[str, Any] = {
        **given,
        "body": "" if body is None else session.text(body),
        "why": None if why is None else session.text(why),
        "scope": _scope(store, scope, where, checks, parameters),
        "links": tuple((name, value) for name, value in map(_link, links)),
        "dated": options.microseconds(dated),
    }
    names = session.lines(titles)
    if len(names) == 1:
        written(session.out, store.notes.add(kind, names[0], request_id=request_id, **shared))
        return
    done = store.notes.add_many([NewNote(kind, name, **shared) for name in names], request_id=request_id)
    many(session.out, done, names=[str(found) for found in done.ids])


def _link(given: str) -> tuple[str, str]:
    kind, sign, ref = given.partition("=")
    if not sign:
        raise InvalidInput(f"--link {given!r} is not KIND=REF", next=f"KIND is one of {', '.join(LINK_KINDS)}")
    return kind, ref


@command("update", store="write", verbs=("notes.update", "notes.update_many"))
@click.argument("refs", nargs=-1, required=True)
@click.option("--title", metavar="LINE", help="The title.")
@click.option("--append", metavar="TEXT", help="Adds to the body after a newline; - reads stdin.")
@click.option("--pin/--unpin", default=None, help="Show it first beneath its parent, or no more.")
@click.option("--clear", multiple=True, type=click.Choice(_CLEARABLE), help="Empty this field. Repeatable.")
@options.expected_revision
@_note_options
def update(
    session: Session,
    store: Store,
    refs: tuple[str, ...],
    clear: tuple[str, ...],
    where: str | None,
    checks: tuple[str, ...],
    parameters: tuple[str, ...],
    expected_revision: int | None,
    request_id: str | None,
    **given: Any,
) -> None:
    """Change notes.

    What is not given stays; a change of nothing leaves no event.
    Tags that are given replace those that are there. Of several notes at once status, tags and pin can be changed.

    Examples:
      agentmem update 12 --status done
      agentmem update 12 --append "Also on port 8443" --clear basis
      agentmem update 12 13 14 --tag p1
    """
    changes = {name: value for name, value in given.items() if value not in (None, ())}
    for name in ("body", "append", "why"):
        if name in changes:
            changes[name] = session.text(changes[name])
    if "dated" in changes:
        changes["dated"] = options.microseconds(changes["dated"])
    scope = _scope(store, changes.pop("scope", None), where, checks, parameters)
    if scope is not None:
        changes["scope"] = scope
    for name in clear:
        if name in changes:
            raise click.UsageError(f"--{name} and --clear {name} exclude each other.")
        changes[name] = {"tags": (), "body": ""}.get(name)
    if not changes:
        raise click.UsageError("Nothing to change: give an option such as --status.")
    if len(refs) == 1:
        done = store.notes.update(refs[0], expected_revision=expected_revision, request_id=request_id, **changes)
        written(session.out, done)
        return
    alone = sorted(set(changes) - {"status", "tags", "pin"})
    if alone or expected_revision is not None:
        raise click.UsageError(
            f"Of several notes only status, tags and pin can be changed, not {', '.join(alone) or 'by revision'}."
        )
    many(session.out, store.notes.update_many(refs, request_id=request_id, **changes))


@command("move", store="write", verbs=("notes.move",))
@click.argument("note")
@click.option("--parent", metavar="REF", help="Beneath this note.")
@click.option("--root", is_flag=True, help="Beneath no note.")
@click.option("--before", metavar="REF", help="Directly before this sibling.")
@click.option("--after", metavar="REF", help="Directly after this sibling.")
@click.option("--first", is_flag=True, help="Before all siblings; otherwise it goes after all of them.")
@options.expected_revision
@options.request_id
def move(session: Session, store: Store, note: str, parent: str | None, root: bool, **given: Any) -> None:
    """Place a note elsewhere, with all beneath it.

    Examples:
      agentmem move 14 --parent 3
      agentmem move 14 --before 12
    """
    if parent is not None and root:
        raise click.UsageError("--parent and --root exclude each other.")
    place = None if root else UNSET if parent is None else parent
    written(session.out, store.notes.move(note, parent=place, **given))


@command("link", store="write", verbs=("links.add",))
@click.argument("src")
@click.argument("kind")
@click.argument("dst")
@options.request_id
def link(session: Session, store: Store, src: str, kind: str, dst: str, request_id: str | None) -> None:
    """Link two notes or two entities.

    Between notes KIND is depends_on, supports, contradicts, answers, supersedes, relates_to or uses; between entities
    any word. answers closes the question.

    Examples:
      agentmem link 14 depends_on 12
      agentmem link 20 answers 9
    """
    written(session.out, store.links.add(src, kind, dst, request_id=request_id))


@command("unlink", store="write", verbs=("links.remove",))
@click.argument("src")
@click.argument("kind")
@click.argument("dst")
@options.request_id
def unlink(session: Session, store: Store, src: str, kind: str, dst: str, request_id: str | None) -> None:
    """Take a link away.

    Examples:
      agentmem unlink 14 depends_on 12
    """
    written(session.out, store.links.remove(src, kind, dst, request_id=request_id))


@command("links", verbs=("links.list",), past=True)
@click.argument("ref")
@click.option("--kind", metavar="KIND", help="Links of this kind only.")
@options.limit()
@options.after("id")
def links(session: Session, store: Store, ref: str, kind: str | None, limit: int, after: int) -> None:
    """The links from and to a note or an entity.

    Examples:
      agentmem links 14
      agentmem links "host:web-1" --json
    """
    out = session.out
    found = store.links.list(ref, kind=kind, limit=limit, after=after)
    if out.json:
        out.values(found)
    else:
        out.table(("from", "kind", "to"), ((str(one.src), one.kind, str(one.dst)) for one in found))
    if len(found) == limit:
        out.say(f"perhaps more: --after {found[-1].seq}")


COMMANDS = {made.name: made for made in (add, update, move, link, unlink, links)}
