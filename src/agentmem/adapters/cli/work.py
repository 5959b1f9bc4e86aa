"""Commands of the work at hand: attempts and checklists."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import click

from agentmem import limits
from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.output import Output
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import inline, many, remarks, written
from agentmem.types import OUTCOMES, Earlier, Item, WrittenMany

if TYPE_CHECKING:
    from agentmem.store import Store


@options.group("attempt")
def attempt() -> None:
    """What is tried: open it before, close it after.

    An attempt is closed with an outcome and why. Opening one answers with earlier ones like it.

    Examples:
      agentmem attempt open "SQL injection in the login form" --about "endpoint:POST /login" --task 12
      agentmem attempt close 31 failed --why "403 from the WAF"
    """


@command("open", store="create", verbs=("attempts.open",), group=attempt)
@click.argument("what")
@click.option("--about", metavar="REF", help="The entity it is tried on.")
@click.option("--body", default="", metavar="TEXT", help="Anything more; - reads stdin.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag. Repeatable.")
@options.request_id
def attempt_open(session: Session, store: Store, what: str, body: str, **given: Any) -> None:
    """Say what is about to be tried, before trying it; --task names the task it belongs to.

    The first line on stdout is its id, the others name earlier attempts like it; with --quiet the id alone.

    Examples:
      agentmem attempt open "SQL injection in the login form" --about "endpoint:POST /login" --task 12
    """
    out = session.out
    opened = store.attempts.open(what, body=session.text(body), **given)
    if out.json:
        out.value(opened)
        return
    out.text(str(opened.id))
    if not out.quiet:
        _earlier(out, opened.earlier)
    remarks(out, opened.notices, opened.similar)


def _earlier(out: Output, found: tuple[Earlier, ...]) -> None:
    for one in found:
        why = f" ({inline(one.why, one.origin)})" if one.why else ""
        out.text(f"earlier: {one.id} [{one.status}] {inline(one.title, one.origin)}{why}")


@command("close", store="write", verbs=("attempts.close",), group=attempt)
@click.argument("ref")
@click.argument("outcome", type=click.Choice(OUTCOMES))
@click.option("--why", default="", metavar="TEXT", help="The reason; a failed one needs it. - reads stdin.")
@options.expected_revision
@options.request_id
def attempt_close(session: Session, store: Store, ref: str, outcome: Any, why: str, **given: Any) -> None:
    """Say how the attempt REF ended.

    Examples:
      agentmem attempt close 31 failed --why "' OR 1=1 is filtered: 403 from the WAF"
      agentmem attempt close 32 worked
    """
    written(session.out, store.attempts.close(ref, outcome, why=session.text(why), **given))


@command("earlier", verbs=("attempts.earlier",), group=attempt)
@click.argument("what")
@click.option("--about", metavar="REF", help="The entity it would be tried on.")
def attempt_earlier(session: Session, store: Store, what: str, about: str | None) -> None:
    """The attempts like WHAT, without opening it.

    Examples:
      agentmem attempt earlier "SQL injection at login" --json
    """
    out = session.out
    found = store.attempts.earlier(what, about=about, task=session.task)
    if out.json:
        out.values(found)
    elif found:
        _earlier(out, found)
    else:
        out.say("nothing like it was tried")


@options.group("checklist")
def checklist() -> None:
    """The ordered items of a note.

    Item 3 of note 14 is 14.3 for ever.

    Examples:
      agentmem checklist add 14 "TLS configuration" "Open ports"
      agentmem checklist done 14 1
      agentmem checklist show 14
    """


@command("add", store="write", verbs=("checklists.add",), group=checklist)
@click.argument("note")
@click.argument("texts", nargs=-1, required=True)
@click.option("--done", is_flag=True, help="Ticked already.")
@options.request_id
def checklist_add(
    session: Session, store: Store, note: str, texts: tuple[str, ...], done: bool, request_id: str | None
) -> None:
    """Add items at the end of the checklist of NOTE; their names go to stdout. - is the lines of stdin.

    Examples:
      agentmem checklist add 14 "TLS configuration" "Open ports"
    """
    made = store.checklists.add(note, *session.lines(texts), done=done, request_id=request_id)
    many(session.out, made, names=_names(store, made))


def _names(store: Store, made: WrittenMany) -> list[str]:
    found = (store.get(one) for one in made.ids)
    return [one.ref for one in found if isinstance(one, Item)]


_ITEM = re.compile(r"#?(\d+)\.\d+", re.ASCII)


def _items(note: str, items: tuple[str, ...]) -> tuple[str, list[int | str]]:
    """`14 1 3` and `14.1 14.3` alike: the note, and its items."""
    named = _ITEM.fullmatch(note)
    if named is not None:
        note, items = named[1], (note, *items)
    if not items:
        raise click.UsageError("Name items, as 1 and 3 of note 14: 14 1 3, or 14.1 14.3.")
    return note, [int(item) if item.isdigit() else item for item in items]


_note = click.argument("note")
_some_items = click.argument("items", nargs=-1)


@command("done", store="write", verbs=("checklists.done",), group=checklist)
@_note
@_some_items
@options.request_id
def checklist_done(session: Session, store: Store, note: str, items: tuple[str, ...], request_id: str | None) -> None:
    """Tick items of NOTE, by number or name.

    Examples:
      agentmem checklist done 14 1 3
      agentmem checklist done 14.1 14.3
    """
    of, which = _items(note, items)
    many(session.out, store.checklists.done(of, *which, request_id=request_id))


@command("undone", store="write", verbs=("checklists.undone",), group=checklist)
@_note
@_some_items
@options.request_id
def checklist_undone(session: Session, store: Store, note: str, items: tuple[str, ...], request_id: str | None) -> None:
    """Take ticks back.

    Examples:
      agentmem checklist undone 14 1
    """
    of, which = _items(note, items)
    many(session.out, store.checklists.undone(of, *which, request_id=request_id))


@command("edit", store="write", verbs=("checklists.edit",), group=checklist)
@click.argument("item")
@click.argument("text")
@options.expected_revision
@options.request_id
def checklist_edit(session: Session, store: Store, item: str, text: str, **given: Any) -> None:
    """Change the text of ITEM, named as 14.3.

    Examples:
      agentmem checklist edit 14.3 "Open ports, UDP too"
    """
    written(session.out, store.checklists.edit(item, session.text(text), **given))


@command("move", store="write", verbs=("checklists.move",), group=checklist)
@click.argument("item")
@click.option("--before", metavar="ITEM", help="Before this item.")
@click.option("--after", metavar="ITEM", help="After this item.")
@options.request_id
def checklist_move(session: Session, store: Store, item: str, **given: Any) -> None:
    """Place ITEM elsewhere in its list, at the end if nothing else is said. It keeps its number.

    Examples:
      agentmem checklist move 14.3 --before 14.1
    """
    written(session.out, store.checklists.move(item, **given))


@command("remove", store="write", verbs=("checklists.remove",), group=checklist)
@_note
@_some_items
@options.request_id
def checklist_remove(session: Session, store: Store, note: str, items: tuple[str, ...], request_id: str | None) -> None:
    """Take items off the list. Their numbers are never given again, their texts stay in the log.

    Examples:
      agentmem checklist remove 14 2
    """
    of, which = _items(note, items)
    many(session.out, store.checklists.remove(of, *which, request_id=request_id))


@command("show", verbs=("checklists.items",), group=checklist, past=True)
@_note
@click.option("--done/--open", "done", default=None, help="Only ticked ones, or only others.")
@click.option("--after", metavar="ITEM", help="Continue after this item.")
@options.limit(limits.PAGE_MAX)
def checklist_show(session: Session, store: Store, note: str, done: bool | None, after: str | None, limit: int) -> None:
    """The items of NOTE in order.

    Examples:
      agentmem checklist show 14 --open
    """
    out = session.out
    found = store.checklists.items(note, done=done, limit=limit, after=after)
    if out.json:
        out.values(found)
    else:
        for item in found:
            out.text(f"{item.ref} [{'x' if item.done else ' '}] {inline(item.text, item.origin)}")
    if len(found) == limit:
        out.say(f"perhaps more: --after {found[-1].ref}")


COMMANDS = {made.name: made for made in (attempt, checklist)}
