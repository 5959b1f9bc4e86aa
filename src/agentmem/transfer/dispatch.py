"""What an import finds at its path: an export of a store, or logs in Markdown and other forms."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from agentmem.engine.files import io_failed
from agentmem.engine.forks import GATE
from agentmem.errors import InvalidInput
from agentmem.records.base import Binding
from agentmem.transfer.jsonlines import Reader, is_export

if TYPE_CHECKING:
    from agentmem.context.tokens import Counter
    from agentmem.past.merging import Policy
    from agentmem.transfer.copies import ImportedCopy
    from agentmem.transfer.importer import Imported
    from agentmem.transfer.restore_log import ImportedLog
    from agentmem.types import Origin

__all__ = ["Progress", "run"]

Progress: TypeAlias = Callable[[int, int], None]

_START_BYTES = 64


def run(
    binding: Binding,
    path: str | os.PathLike[str],
    *,
    origin: Origin,
    entities: Sequence[str],
    collisions: Policy,
    dry_run: bool,
    budget: int,
    counter: Counter,
    progress: Progress | None,
) -> Imported | ImportedCopy | ImportedLog:
    """Import what is at a path; see `Store.import_`."""
    file = _export_at(Path(path))
    if file is None:
        if collisions != "refuse":
            raise InvalidInput("collisions= is for exports", why=f"{os.fspath(path)} is none", next="Leave it out")
        from agentmem.transfer import importer

        return importer.run(
            binding, path, origin=origin, entities=entities, dry_run=dry_run, budget=budget, counter=counter,
            progress=progress,
        )  # fmt: skip
    with file:
        if entities:
            raise InvalidInput("entities= is for logs in Markdown", why="This is an export", next="Leave it out")
        what = Reader(file).header.what
        file.seek(0)
        given: dict[str, Any] = {"origin": origin, "dry_run": dry_run, "progress": progress}
        if what == "copy":
            from agentmem.transfer import copies

            return copies.run(binding, Path(path), file, collisions=collisions, **given)
        if collisions != "refuse":
            raise InvalidInput("collisions= is for copies", why="This is a whole log", next="Leave it out")
        from agentmem.transfer import restore_log

        return restore_log.run(binding, Path(path), file, **given)


def _export_at(path: Path) -> BinaryIO | None:
    """The export at a path, open for reading at its beginning; None where there is none."""
    try:
        status = os.stat(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        # Closing any descriptor of these would drop the locks that SQLite holds on them.
        if GATE.has((status.st_dev, status.st_ino)):
            raise InvalidInput(
                f"{path} is a file of a store that this process has open", next="Name an export, or a folder of logs"
            )
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
        file = os.fdopen(descriptor, "rb")
        try:
            if is_export(file.read(_START_BYTES)):
                file.seek(0)
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        return None
    except (FileNotFoundError, NotADirectoryError):
        return None  # the reader of folders says so
    except InvalidInput:
        raise
    except OSError as error:
        raise io_failed(f"{path} cannot be read", error) from error
