"""Commands that say where work stands and what it came to: checkpoint, summary, confirm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import block, when, written
from agentmem.types import CLOSED

if TYPE_CHECKING:
    from agentmem.store import Store


@command("checkpoint", store="create", verbs=("checkpoint",))
@click.argument("text")
@options.request_id
def checkpoint(session: Session, store: Store, text: str, request_id: str | None) -> None:
    """Write where the work stands: doing, next, beware.

    Of the task of --task, or of the project; - reads stdin.

    Examples:
      agentmem checkpoint --task 12 "Doing: login form. Next: session fixation. Beware: the WAF bans after 20 tries."
      agentmem checkpoint - < notes.txt
    """
    written(session.out, store.checkpoint(session.text(text), request_id=request_id))


@command("checkpoints", verbs=("checkpoints",), past=True)
@click.option("--before", type=int, metavar="ID", help="Continue with those before this one.")
@options.limit(20)
def checkpoints(session: Session, store: Store, before: int | None, limit: int) -> None:
    """The checkpoints, newest first.

    Of the task of --task, or of the project.

    Examples:
      agentmem checkpoints --task 12 --limit 3
    """
    out = session.out
    found = store.checkpoints(session.task, limit=limit, before=before)
    if out.json:
        out.values(found)
    else:
        for one in found:
            by = f" by {one.author}" if one.author else ""
            out.text(f"{one.id} {when(one.at)} UTC{by}\n{block(one.text or '', one.origin)}\n")
    if len(found) == limit:
        out.say(f"perhaps more: --before {found[-1].id}")


@options.group("summary")
def summary() -> None:
    """What a finished goal or step comes to.

    Write it, or read it with those of its parts.

    Examples:
      agentmem summary write 12 --work "TLS and ports" --result "TLS 1.0 on 443; nothing else open"
      agentmem summary read 12
    """


@command("write", store="write", verbs=("summarize",), group=summary)
@click.argument("task")
@click.option("--work", default="", metavar="TEXT", help="What was done; - reads stdin.")
@click.option("--result", default="", metavar="TEXT", help="What came of it; - reads stdin.")
@click.option("--status", type=click.Choice(CLOSED), help="done if nothing else is said.")
@click.option("--confidence", type=float, help="0 to 1.")
@click.option("--basis", metavar="LINE", help="What it rests on.")
@options.expected_revision
@options.request_id
def summary_write(session: Session, store: Store, task: str, work: str, result: str, **given: Any) -> None:
    """Write what TASK comes to and close it. A second summary replaces the first, which stays in the log.

    Examples:
      agentmem summary write 12 --work "TLS and ports" --result "TLS 1.0 on 443; nothing else open"
    """
    done = store.summarize(task, work=session.text(work), result=session.text(result), **given)
    written(session.out, done)


@command("read", verbs=("task_summary",), group=summary, past=True)
@click.argument("task")
@options.budget
def summary_read(session: Session, store: Store, task: str, budget: int) -> None:
    """What TASK and its parts come to, one answer however many notes lie beneath.

    Examples:
      agentmem summary read 12 --budget 1000
    """
    found = store.task_summary(task, budget=budget)
    session.out.answer(found)


@command("confirm", store="write", verbs=("confirm",))
@click.argument("ref")
@click.option("--confidence", type=float, help="Of a note: 0 to 1.")
@click.option("--basis", metavar="LINE", help="Of a note: what it rests on.")
@options.expected_revision
@options.request_id
def confirm(
    session: Session, store: Store, ref: str, expected_revision: int | None, request_id: str | None, **given: Any
) -> None:
    """Say that a record still holds: a note, entity, item or summary.

    A person's word, --origin user, lifts an untrusted one out.

    Examples:
      agentmem confirm 40 --confidence 0.9
      agentmem confirm 41 --origin user
    """
    changes = {name: value for name, value in given.items() if value is not None}
    done = store.confirm(ref, expected_revision=expected_revision, request_id=request_id, **changes)
    written(session.out, done)


COMMANDS = {made.name: made for made in (checkpoint, checkpoints, summary, confirm)}
