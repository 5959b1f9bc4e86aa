"""The command import: a folder of logs becomes records."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.progress import Progress
from agentmem.adapters.cli.session import Session

if TYPE_CHECKING:
    from agentmem.store import Store


@command("import", store=None, verbs=("import_",))
@click.argument("path")
@click.option("--entities", multiple=True, metavar="TYPE",
              help="Tables and lists of this type of thing become entities, as host. Repeatable.")  # fmt: skip
@click.option("--foreign", is_flag=True, help="The files are others': what they say is shown quoted.")
@click.option(
    "--collisions",
    type=click.Choice(("refuse", "keep_both", "merge")),
    default="refuse",
    show_default=True,
    help="Of an exported part: of entities with the same type and key in both.",
)
@click.option("--dry-run", is_flag=True, help="Say what would come of it, and write nothing.")
@options.budget
def import_(
    session: Session,
    path: str,
    entities: tuple[str, ...],
    foreign: bool,
    collisions: Any,
    dry_run: bool,
    budget: int,
) -> None:
    """Read a folder of Markdown logs, or an export, into the store.

    PATH is a folder or a file; it is read all or nothing.
    A second import of the same folder changes what changed, and leaves alone what was worked on here since. Of what
    agentmem export wrote, a part comes in as a copy, with new ids; a whole log goes only into a store that is new or
    empty. The last line of the answer is the outcome; with --quiet that line alone.

    Examples:
      agentmem import docs/examples/recon && agentmem resume
      agentmem import notes/ --entities host --entities endpoint --dry-run
      agentmem import acme.jsonl --project copies --collisions merge
    """
    if not Path(path).expanduser().exists():
        raise FileNotFoundError(2, "No such file or directory", path)
    origin: Any = "import" if foreign else session.given.get("origin") or "agent"
    out = session.out
    with _target(session, dry_run) as store, Progress(out, "importing") as progress:
        done = store.import_(
            Path(path).expanduser(), origin=origin, entities=entities, collisions=collisions, dry_run=dry_run,
            budget=budget, progress=progress,
        )  # fmt: skip
    if out.json:
        out.value(done)
    else:
        out.text(done.text.splitlines()[-1] if out.quiet else done.text)


@contextmanager
def _target(session: Session, dry_run: bool) -> Iterator[Store]:
    """The store; for a dry run without one, one that is gone afterwards: a dry run makes neither file nor key."""
    if not dry_run or session.path.exists():
        with session.opened("write" if dry_run else "create") as store:
            yield store
        return
    import secrets

    from agentmem.store import Store

    with (
        tempfile.TemporaryDirectory(prefix="agentmem-") as directory,
        Store.open(
            Path(directory) / "dry-run.db", project=session.given.get("project"), key=secrets.token_bytes(32)
        ) as store,
    ):
        yield store


COMMANDS = {"import": import_}
