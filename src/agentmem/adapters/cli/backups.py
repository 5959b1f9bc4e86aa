"""Commands on copies of the store: backup, restore, export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentmem.adapters.cli.keys import NewKey, new_key, new_key_options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.progress import Progress, working
from agentmem.adapters.cli.session import Session
from agentmem.adapters.cli.shown import head_text, number

if TYPE_CHECKING:
    from agentmem.store import Store
    from agentmem.upkeep.backup import Backup
    from agentmem.upkeep.restore import Restored


@command("backup", store="read", verbs=("backup",))
@click.argument("path")
@new_key_options
def backup(session: Session, store: Store, path: str, new_key_file: str | None, ask_new_key: bool) -> None:
    """Copy the store into the new file PATH while others go on writing.

    One snapshot of what is committed, encrypted, and checked before it gets its name. It appears whole or not at all.
    The key is not in it: without the key it is lost.

    Examples:
      agentmem backup work-2026-11-30.db
      agentmem backup handover.db --new-key-file handover.key
    """
    fresh = new_key(session, new_key_file, ask_new_key)
    with working(session.out, "copying"):
        done = store.backup(Path(path).expanduser(), key=fresh.key)
    _copied(session, done, fresh)


@command("restore", store=None, verbs=("restore",))
@click.argument("source")
@click.argument("target", required=False)
@new_key_options
def restore(session: Session, source: str, target: str | None, new_key_file: str | None, ask_new_key: bool) -> None:
    """Make a new store of a backup, or of any store.

    TARGET is the new file, by default that of --db. There must be nothing yet. SOURCE is only read; its key is looked
    for where that of every store is, or given by --key-file or --ask-key. The new store goes on where the source
    ended, with the same ids; claims are void.

    Examples:
      agentmem restore work-2026-11-30.db restored.db
      agentmem restore work-2026-11-30.db other.db --new-key-file other.key
    """
    from agentmem.store import Store

    key, fresh = session.key(new=False), new_key(session, new_key_file, ask_new_key)
    path = session.path if target is None else Path(target).expanduser()
    if target is None and not session.given.get("db"):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with working(session.out, "restoring"):
        done = Store.restore(Path(source).expanduser(), path, key=key, new_key=fresh.key)
    _copied(session, done, fresh)
    if fresh.key is None and session.given.get("key_file"):
        session.out.say(f"its key is in {session.given['key_file']}")


@command("export", verbs=("export",), past=True)
@click.argument("path")
@click.option("--under", metavar="REF", help="Only this note or entity, all beneath it, and what belongs to these.")
def export(session: Session, store: Store, path: str, under: str | None) -> None:
    """Write the store, or a part of it, as JSON Lines.

    Into the new file PATH goes the whole log, lossless: agentmem import makes the same store of it again. With
    --project NAME or --under REF the records of those, which agentmem import copies into any store. The file is NOT
    encrypted. An export of the whole log that was interrupted goes on when it is asked for again.

    Examples:
      agentmem export work.jsonl
      agentmem export acme.jsonl --project acme
      agentmem export task-12.jsonl --under 12 --json
    """
    out = session.out
    # A project that stands in the environment says where to work, not how much of it is to leave the file.
    project = store.project if under is None and "project" in session.typed else None
    with Progress(out, "exporting") as progress:
        done = store.export(Path(path).expanduser(), under=under, project=project, progress=progress)
    if out.json:
        out.value(done)
        return
    out.text(str(done.path) if out.quiet else done.text)
    if done.what == "log":
        out.say("it has all projects of the store; --project NAME or --under REF exports a part")


def _copied(session: Session, done: Backup | Restored, fresh: NewKey) -> None:
    """A copy that was made: its path on stdout, what to know of it as remarks."""
    out = session.out
    if out.json:
        out.value(done, key_path=fresh.path)
        return
    out.text(str(done.path))
    out.say(f"checked: {number(done.events, 'event')}, {number(done.bytes, 'byte')}, head {head_text(done.head)}")
    if fresh.path is not None:
        out.say(f"its key is in {fresh.path}")
    for notice in done.notices:
        out.say(notice)


COMMANDS = {made.name: made for made in (backup, restore, export)}
