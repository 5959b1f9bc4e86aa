"""Commands on what happened: history, revisions, revision, diff, undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.progress import working
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import ids, record, remarks

if TYPE_CHECKING:
    from agentmem.store import Store
    from agentmem.types import Undone

_before = click.option("--before", type=int, metavar="SEQ", help="Only what happened before this event.")


@command("history", verbs=("history",), past=True)
@click.argument("ref", required=False)
@click.option("--shallow", is_flag=True, help="Of a note: without its checklist, summary and checkpoints.")
@click.option("--under", metavar="REF", help="Of this note or entity and everything beneath it.")
@click.option("--of-author", metavar="LABEL", help="Only what this author wrote.")
@click.option("--of-run", metavar="LABEL", help="Only what this run wrote.")
@click.option("--of-session", type=int, metavar="ID", help="Only what was written in this session.")
@click.option("--everywhere", is_flag=True, help="In all projects of the store.")
@click.option("--newest-first", is_flag=True, help="In reverse.")
@click.option("--after", type=int, default=0, metavar="SEQ", help="Only what happened after this event.")
@_before
@options.limit()
@options.budget
def history(
    session: Session,
    store: Store,
    ref: str | None,
    shallow: bool,
    under: str | None,
    of_author: str | None,
    of_run: str | None,
    of_session: int | None,
    everywhere: bool,
    newest_first: bool,
    after: int,
    before: int | None,
    limit: int,
    budget: int,
) -> None:
    """What happened: who changed what, from what to what, and when.

    Of REF, or of the project; also of what was taken back, removed or purged. Each line begins with the number of
    the event, which agentmem undo takes, and revision, diff and --at.

    Examples:
      agentmem history 12
      agentmem history --newest-first --limit 20
      agentmem history --under 12 --of-run r7 --json
    """
    found = store.history(
        ref, deep=not shallow, under=under, author=of_author, run=of_run, session=of_session,
        project="*" if everywhere else None, after=after, before=before, newest_first=newest_first, limit=limit,
        budget=budget,
    )  # fmt: skip
    session.out.answer(found)
    if found.next is not None:
        session.out.say(f"more: {'--before' if newest_first else '--after'} {found.next}")


@command("revisions", verbs=("revisions",))
@click.argument("ref")
@_before
@options.limit()
@options.budget
def revisions(session: Session, store: Store, ref: str, before: int | None, limit: int, budget: int) -> None:
    """The changes of one record, newest first.

    Each line begins with the number of the event: agentmem revision shows the record as it was right after it.

    Examples:
      agentmem revisions 12
      agentmem revisions "endpoint:POST /login" --limit 5
    """
    found = store.revisions(ref, before=before, limit=limit, budget=budget)
    session.out.answer(found)
    if found.next is not None:
        session.out.say(f"more: --before {found.next}")


@command("revision", verbs=("revision",))
@click.argument("ref")
@click.argument("seq", type=int)
def revision(session: Session, store: Store, ref: str, seq: int) -> None:
    """A record as it was right after an event.

    SEQ is the number of an event, of the record's own or any other.

    Examples:
      agentmem revision 12 40
      agentmem revision "endpoint:POST /login" 40 --json
    """
    found = store.revision(ref, seq)
    if session.out.json:
        session.out.value(found)
    else:
        record(session.out, found)


@command("diff", verbs=("diff",))
@click.argument("ref")
@click.option("--from", "before", type=int, required=True, metavar="SEQ", help="As it was right after this event.")
@click.option(
    "--to", "after", type=int, metavar="SEQ", help="As it was right after this one; as it is now if not given."
)
@options.budget
def diff(session: Session, store: Store, ref: str, before: int, after: int | None, budget: int) -> None:
    """What differs between two revisions of a record.

    Field by field, long texts line by line.

    Examples:
      agentmem diff 12 --from 40
      agentmem diff 12 --from 40 --to 57 --json
    """
    session.out.answer(store.diff(ref, before, after, budget=budget))


@command("undo", store="write", verbs=("undo",))
@click.argument("events", metavar="[SEQ]...", nargs=-1, type=int)
@click.option("--of-request", metavar="ID", help="All that was written under this request id.")
@click.option("--of-run", metavar="LABEL", help="All that this run wrote in the project.")
@click.option("--dry-run", is_flag=True, help="Say what would be taken back, and write nothing.")
@options.request_id
def undo(
    session: Session,
    store: Store,
    events: tuple[int, ...],
    of_request: str | None,
    of_run: str | None,
    dry_run: bool,
    request_id: str | None,
) -> None:
    """Take events back by new ones that set each field to what it was.

    An undo can be undone. It is refused where something later stands on what would go; the error names all
    of it: give these numbers as well to take them back together. Claims
    and purges are never undone. --run, as everywhere, says who takes back, not what.

    Examples:
      agentmem undo 57 58
      agentmem undo --of-run r7 --dry-run
    """
    if not events and of_request is None and of_run is None:
        raise click.UsageError("Name what to take back: the numbers of events, --of-request or --of-run.")
    if of_request is not None and of_run is not None:
        raise click.UsageError("--of-request and --of-run exclude each other.")
    with working(session.out, "taking back"):
        done = store.undo(events or None, request=of_request, run=of_run, dry_run=dry_run, request_id=request_id)
    _undone(session, done, dry_run=dry_run)


def _undone(session: Session, done: Undone, *, dry_run: bool) -> None:
    out = session.out
    if out.json:
        out.value(done, dry_run=dry_run)
        return
    if dry_run:
        lines = [f"{seq} would be taken back" for seq in done.undone]
    else:
        lines = [f"{seq} taken back by {by}" for seq, by in zip(done.undone, done.events, strict=True)]
    if lines:
        out.text("\n".join(lines))
    else:
        out.say("nothing to take back")
    if done.passed_over:
        out.say(f"passed over (claims, or what was purged or taken back already): {ids(done.passed_over)}")
    if done.repeated:
        out.say("repeated: nothing was written again")
    remarks(out, done.notices)


COMMANDS = {made.name: made for made in (history, revisions, revision, diff, undo)}
