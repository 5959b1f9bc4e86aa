"""What a command writes: data to stdout, words to stderr, every text made harmless for a terminal."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

from agentmem.adapters.cli.values import dumped, plain
from agentmem.context.escape import display_width, one_line, terminal
from agentmem.errors import AgentMemError


class OutputClosed(Exception):
    """The reader of stdout went away, as `head` does when it has enough."""


class Output:
    """The two streams of a command.

    Args:
        json: Data as JSON, one object or one a line.
        quiet: Nothing on stderr but errors, and of an answer only its essence.
    """

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.json = json
        self.quiet = quiet

    def value(self, value: Any, **more: Any) -> None:
        """A value as one line of JSON, with further names."""
        self._dump({**plain(value), **plain(more)} if more else plain(value))

    def answer(self, value: Any) -> None:
        """A value that has a text: that text, or the value as JSON."""
        if self.json:
            self.value(value)
        else:
            self.text(value.text)

    def values(self, values: Iterable[Any]) -> None:
        """Values as JSON, one a line."""
        for value in values:
            self._dump(plain(value))

    def _dump(self, value: Any) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._write(dumped(value, ascii_only=not _is_unicode(encoding)))

    def text(self, text: str) -> None:
        """Lines of data."""
        self._write(terminal(text))

    def table(self, names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows in columns: folded to the width of a terminal; elsewhere whole, one line each."""
        cells = [[terminal(one_line(cell)) for cell in row] for row in rows]
        if not cells:
            return
        if is_terminal(sys.stdout):
            self._write(_folded(names, cells))
        else:
            self._write("\n".join(_aligned([list(names), *cells])))

    def flush(self) -> None:
        """Hand over what was written so far."""
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except BrokenPipeError:
            raise OutputClosed from None

    def say(self, text: str) -> None:
        """A remark on stderr, unless it is to be quiet; what was answered before it stands before it."""
        if not self.quiet:
            self.flush()
            complain(text)

    def _write(self, text: str) -> None:
        if sys.stdout is None:
            return
        try:
            sys.stdout.write(_encodable(f"{text}\n", sys.stdout))
        except BrokenPipeError:
            raise OutputClosed from None


def complain(text: str) -> None:
    """Text to stderr, whatever is left of it."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(_encodable(f"{terminal(text)}\n", sys.stderr))
        sys.stderr.flush()
    except OSError:
        return  # nobody can be told that nobody can be told


def error_shown(parts: dict[str, Any], *, json: bool) -> None:
    """An error on stderr: what, why and next with its code, or one line of JSON."""
    if json:
        complain(dumped({"error": plain(parts)}, ascii_only=True))
        return
    lines = [f"agentmem: {parts['what'].rstrip('.')} [{parts['code']}]"]
    lines += [f"  {name}: {parts[name]}" for name in ("why", "next") if parts.get(name)]
    complain("\n".join(lines))


def parts_of(error: AgentMemError | OSError) -> dict[str, Any]:
    """An error by its parts."""
    if isinstance(error, AgentMemError):
        # What a program goes on with: the revision that a conflict met, the place in a `where`, what bars an undo.
        more = {name: getattr(error, name, None) for name in ("current", "position", "events")}
        return {**error.to_dict(), **{name: value for name, value in more.items() if value is not None}}
    what = error.strerror or type(error).__name__
    return {"code": "os_error", "what": f"{error.filename}: {what}" if error.filename else what}


def is_terminal(stream: TextIO | None) -> bool:
    """Whether a stream is a terminal."""
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def colourless() -> bool:
    """Whether no colour and no bold is wanted, see no-color.org."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _is_unicode(encoding: str) -> bool:
    return encoding.lower().replace("_", "-").startswith(("utf", "cp65001"))


def _encodable(text: str, stream: TextIO) -> str:
    """What a stream cannot encode is spelled out, since a traceback would be worse."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(display_width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  ".join(cell + " " * (width - display_width(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _folded(names: Sequence[str], cells: list[list[str]]) -> str:
    import io

    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    plainly = colourless()
    drawn = io.StringIO()
    console = Console(
        file=drawn,
        width=shutil.get_terminal_size().columns,
        force_terminal=not plainly,
        no_color=plainly,
        color_system=None if plainly else "standard",
        markup=False,
        emoji=False,
        highlight=False,
    )
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="" if plainly else "bold")
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines())
