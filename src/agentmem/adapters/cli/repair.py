"""Commands for a file that is not as it should be: doctor, salvage."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.keys import new_key, new_key_options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.progress import working
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import head_text, number

if TYPE_CHECKING:
    from agentmem.upkeep.salvage import Salvaged


@command("doctor", store=None, verbs=("doctor",))
@click.option("--repair", is_flag=True, help="Make anew what is derived from the log. Nothing changes the log itself.")
def doctor(session: Session, repair: bool) -> None:
    """Examine the file, also one that does not open.

    What is wrong, whether the data is safe, what to do. It looks at the place, the key, every page, the log, tables and
    index. Others may have the file open, but for --repair nobody. Where pages are damaged a repair makes a new file of
    the log, under the same name, and keeps the old one as NAME.damaged. If something is wrong the exit code is 10.

    Examples:
      agentmem doctor
      agentmem doctor --repair --json
    """
    from agentmem.store import Store

    out, key = session.out, session.key(new=False)
    with working(out, "examining"):
        found = Store.doctor(session.path, key=key, repair=repair)
    if out.json:
        out.value(found, sound=found.sound, safe=found.safe)
    elif not out.quiet:
        out.text(found.text)
    else:
        out.text("\n".join(finding.code for finding in found.findings) or "sound")
    if not found.sound:
        click.get_current_context().exit(Exit.DAMAGED)


@command("salvage", store=None, verbs=("salvage",))
@click.argument("source")
@click.argument("target")
@click.option(
    "--remainder", metavar="PATH", help="Also write the later events that can be read, as JSON, NOT encrypted."
)
@click.option(
    "--salt-from", metavar="PATH", help="A backup with the same key, where the first 16 bytes of SOURCE are damaged."
)
@click.option("--head", metavar="STORE:SEQ:CHAIN", help="A head noted earlier: the log is taken as far as it agrees.")
@new_key_options
def salvage(
    session: Session,
    source: str,
    target: str,
    remainder: str | None,
    salt_from: str | None,
    head: str | None,
    new_key_file: str | None,
    ask_new_key: bool,
) -> None:
    """Make a new store of what can be read of a damaged one.

    Its log, as far as it is whole, goes into the new file TARGET. SOURCE is only read. If events are missing the new
    store is sound all the same, and the exit code is 10. First try agentmem doctor: often a repair is enough.

    Examples:
      agentmem salvage work.db salvaged.db
      agentmem salvage work.db rest.db --remainder later.jsonl
    """
    from agentmem.store import Store

    out, noted = session.out, options.head(head)
    key, fresh = session.key(new=False), new_key(session, new_key_file, ask_new_key)
    with working(out, "salvaging"):
        done = Store.salvage(
            Path(source).expanduser(), Path(target).expanduser(), key=key, new_key=fresh.key, head=noted,
            remainder=None if remainder is None else Path(remainder).expanduser(),
            salt_from=None if salt_from is None else Path(salt_from).expanduser(),
        )  # fmt: skip
    if out.json:
        out.value(done)
    else:
        out.text(str(done.path) if out.quiet else "\n".join(_lines(done)))
        for notice in done.notices:
            out.say(notice)
    if fresh.path is not None:
        out.say(f"its key is in {fresh.path}")
    if done.first_lost is not None:
        click.get_current_context().exit(Exit.DAMAGED)


def _lines(done: Salvaged) -> Iterator[str]:
    yield str(done.path)
    yield f"whole: {number(done.events, 'event')}, head {head_text(done.head)}"
    if done.first_lost is not None:
        yield f"lost: from event {done.first_lost} on; the last that anything tells of is {done.last_known}"
        yield f"why: {done.why}"
        kept = "" if done.remainder is None else f", and are in {done.remainder}"
        yield f"later: {number(done.later, 'event')} can be read{kept}"


COMMANDS = {made.name: made for made in (doctor, salvage)}
