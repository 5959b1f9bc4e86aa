"""The command `agentmem` itself: its help, its commands, and what becomes of an error."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from typing import Any, Final

import click

from agentmem._version import __version__
from agentmem.adapters.cli.exits import Exit, exit_of
from agentmem.adapters.cli.options import common_options
from agentmem.adapters.cli.output import (
    OutputClosed,
    colourless,
    complain,
    error_shown,
    parts_of,
)
from agentmem.adapters.cli.session import Session, closed_streams_opened
from agentmem.errors import AgentMemError

# Which module has a command: it is imported when one of its commands is called. In the order of the help.
_SECTIONS: Final[dict[str, dict[str, str]]] = {
    "Set up": {"init": "storage", "import": "importing", "key": "storage"},
    "Come back to the work": {
        "resume": "reading", "prime": "priming", "left": "reading", "recall": "searching", "find": "searching", "get": "reading",
        "list": "reading", "tree": "reading", "checkpoints": "reports", "review": "reading",
    },
    "Write down": {
        "add": "notes", "update": "notes", "move": "notes", "attempt": "work", "checklist": "work",
        "checkpoint": "reports", "summary": "reports", "confirm": "reports", "link": "notes", "unlink": "notes",
        "links": "notes",
    },
    "Many things of a kind": {
        "put": "entities", "mark": "entities", "unmark": "entities", "marks": "entities", "expect": "entities",
        "query": "queries", "groups": "queries", "children": "queries", "rename": "entities",
    },
    "Share the work": {"claim": "claims", "release": "claims", "claims": "claims"},
    "Conversations": {
        "session": "sessions", "approvals": "sessions", "approve": "sessions", "deny": "sessions",
        "vault": "vaults",
    },
    "The past": {
        "history": "history", "revisions": "history", "revision": "history", "diff": "history", "undo": "history",
        "log": "storage",
    },
    "End for good": {"forget": "ending", "redact": "ending"},
    "Connect to agents": {"serve": "serving", "mcp": "connecting"},
    "The store": {
        "projects": "projects", "stats": "storage", "backup": "backups", "restore": "backups", "export": "backups",
        "rekey": "keys", "index": "storage", "verify": "storage", "doctor": "repair", "salvage": "repair",
    },
}  # fmt: skip
_PLACES: Final = {name: place for section in _SECTIONS.values() for name, place in section.items()}


class Root(click.Group):
    """The group of all commands, which it finds by name when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, in the order of the help."""
        return list(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of a name, its module imported now."""
        place = _PLACES.get(cmd_name)
        if place is None:
            return None
        module = importlib.import_module(f"agentmem.adapters.cli.{place}")
        found: click.Command = module.COMMANDS[cmd_name]
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names; of an unknown one the nearest is named."""
        if args and args[0] not in _PLACES and not args[0].startswith("-"):
            import difflib

            near = difflib.get_close_matches(args[0], _PLACES, 1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"There is no command {args[0]!r}.{hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by what they are for."""
        for title, names in _SECTIONS.items():
            rows = [(name, made.get_short_help_str(90)) for name in names if (made := self.get_command(ctx, name))]
            with formatter.section(title):
                formatter.write_dl(rows)

    def main(self, args: Any = None, prog_name: str | None = None, *rest: Any, **extra: Any) -> Any:
        """Run, show an error as what it is, and exit with its code."""
        given = list(sys.argv[1:] if args is None else args)
        as_json = "--json" in (given[: given.index("--")] if "--" in given else given)
        extra["standalone_mode"] = False
        try:
            code = super().main(args, prog_name or "agentmem", *rest, **extra)
            if sys.stdout is not None:
                sys.stdout.flush()
        except (OutputClosed, BrokenPipeError):
            _stdout_to_nothing()
            sys.exit(Exit.PIPE)
        except click.ClickException as error:
            _usage_shown(error, json=as_json)
            sys.exit(Exit.USAGE)
        except (click.Abort, KeyboardInterrupt):
            error_shown({"code": "interrupted", "what": "Interrupted"}, json=as_json)
            sys.exit(Exit.INTERRUPTED)
        except UnicodeEncodeError:  # argv holds bytes that no locale made text of, and not in a path
            error_shown({"code": "usage", "what": "An argument is not text in UTF-8"}, json=as_json)
            sys.exit(Exit.USAGE)
        except (AgentMemError, OSError) as error:
            _stdout_left(error)
            error_shown(parts_of(error), json=as_json)
            sys.exit(exit_of(error))
        sys.exit(code if isinstance(code, int) else Exit.OK)


def _usage_shown(error: click.ClickException, *, json: bool) -> None:
    context = error.ctx if isinstance(error, click.UsageError) else None
    help_asked = f"{context.command_path} --help" if context is not None else "agentmem --help"
    what = error.format_message()
    if json:
        error_shown({"code": "usage", "what": what, "next": help_asked}, json=True)
    elif what.startswith("Usage:"):  # a group without a command: click's message is its help
        complain(what)
    else:
        complain(f"{context.get_usage()}\n" if context is not None else "")
        error_shown({"code": "usage", "what": what, "next": help_asked}, json=False)


def _stdout_left(error: BaseException) -> None:
    """Write out what stands in the buffer, or give it up where that is what failed."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        _stdout_to_nothing()


def _stdout_to_nothing() -> None:
    """Let the interpreter's last flush go nowhere instead of complaining."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        return  # a stream that is no file has no such flush


_HELP: Final = """Durable working memory for AI agents in one encrypted file.

What you set out to do, what you tried, what you found and what is left: the next session goes on from there.

\b
Examples:
  agentmem import docs/examples/recon && agentmem resume
  agentmem add goal "Check example.com"
  agentmem left --json

The words are those of the Python store: where an answer says get(15) or left(task=3), that is agentmem get 15 and
agentmem left 3. A record is named by its id, 15, an entity by type:key, a checklist item by note.number, 14.3.
"""

_CONVENTIONS: Final = """\b
JSON:
  --json gives one object a line: one line for an answer, one for each record of a list. Names are those of the
  Python values. A time is an integer, microseconds since 1970 UTC, beside it <name>_iso in ISO 8601.
  An error is {"error": {"code", "what", "why", "next"}} on stderr.

\b
Text: - as a text reads stdin; as a title, key or item, its lines. NO_COLOR is obeyed.

\b
Exit codes:
"""


def _epilog() -> str:
    return _CONVENTIONS + "\n".join(f"  {code.value:>3}  {code.meaning}" for code in Exit)


@click.group(
    cls=Root,
    name="agentmem",
    help=_HELP,
    epilog=_epilog(),
    invoke_without_command=True,
    params=[*common_options(leaf=False)],
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="agentmem")
@click.pass_context
def agentmem(context: click.Context) -> None:
    """The root command; its help is given above, where it can be composed."""
    context.ensure_object(Session)
    if colourless():
        context.color = False
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def run() -> int:
    """Run the command line as a process and return the exit code."""
    closed_streams_opened()
    warnings.showwarning = _warned
    try:
        agentmem.main()
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else Exit.FAILURE
    return Exit.OK


def _warned(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    complain(f"agentmem: warning: {message}")
