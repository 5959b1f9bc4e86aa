"""The command import: a folder of logs becomes records."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.output import is_terminal
from agentmem.adapters.cli.session import Session

if TYPE_CHECKING:
    from agentmem.store import Store

_SHOWN_AFTER = 0.5  # seconds: what is done sooner needs no bar


@command("import", store=None, verbs=("import_",))
@click.argument("path")
@click.option("--entities", multiple=True, metavar="TYPE",
              help="Tables and lists of this type of thing become entities, as host. Repeatable.")  # fmt: skip
@click.option("--foreign", is_flag=True, help="The files are others': what they say is shown quoted.")
@click.option("--dry-run", is_flag=True, help="Say what would come of it, and write nothing.")
@options.budget
def import_(session: Session, path: str, entities: tuple[str, ...], foreign: bool, dry_run: bool, budget: int) -> None:
    """Read a folder of Markdown logs into the store.

    PATH is a folder or a file; it is read all or nothing.
    A second import of the same folder changes what changed, and leaves alone what was worked on here since. The last
    line of the answer is the outcome; with --quiet that line alone.

    Examples:
      agentmem import docs/examples/recon && agentmem resume
      agentmem import notes/ --entities host --entities endpoint --dry-run
    """
    if not Path(path).expanduser().exists():
        raise FileNotFoundError(2, "No such file or directory", path)
    origin: Any = "import" if foreign else session.given.get("origin") or "agent"
    out = session.out
    with _target(session, dry_run) as store, Progress(shown=is_terminal(sys.stderr) and not out.quiet) as progress:
        done = store.import_(
            Path(path).expanduser(), origin=origin, entities=entities, dry_run=dry_run, budget=budget, progress=progress
        )
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


class Progress:
    """A bar on stderr that appears when the work lasts. Called with what is done and how much there is.

    Args:
        shown: Whether there is anybody to see it.
    """

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._begun = time.monotonic()
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        """Note how far it is."""
        if not self._shown or (self._bar is None and time.monotonic() - self._begun < _SHOWN_AFTER):
            return
        if self._bar is None:
            self._bar, self._task = _bar(total)
        self._bar.update(self._task, completed=done, total=total)


def _bar(total: int) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    bar = Progress(
        TextColumn("importing"), BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True
    )
    bar.start()
    return bar, bar.add_task("importing", total=total)


COMMANDS = {"import": import_}
