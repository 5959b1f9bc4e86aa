"""How commands are declared: the options that all have, the forms of arguments, the decorator."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from agentmem import limits
from agentmem.adapters.cli.session import Mode, Session
from agentmem.errors import InvalidInput

if TYPE_CHECKING:
    from agentmem.types import Head

EXAMPLES = "Examples:"
_GIVEN = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)


class Command(click.Command):
    """A command, and the verbs of the store that it stands for."""

    verbs: tuple[str, ...] = ()


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Note a global option in the session; one after the command goes before one in front of it."""
    name = parameter.name or ""
    source = context.get_parameter_source(name)
    if source in _GIVEN:
        session = context.ensure_object(Session)
        session.given[name.removeprefix("common_")] = value
        if source is ParameterSource.COMMANDLINE:
            session.typed.add(name.removeprefix("common_"))
    return value


def _common(
    name: str, help: str, *, leaf: bool, shown: bool = False, env: str | None = None, short: str = "", **attrs: Any
) -> click.Option:
    declared = [f"--{name}", f"common_{name.replace('-', '_')}"] + ([short] if short else [])
    return click.Option(
        declared,
        help=help,
        expose_value=False,
        is_eager=True,
        callback=_keep,
        hidden=leaf and not shown,
        envvar=None if leaf else env,
        show_envvar=True,
        **attrs,
    )


def common_options(*, leaf: bool) -> list[click.Option]:
    """The global options: shown in full on `agentmem --help`, taken by every command."""
    text: dict[str, Any] = {"leaf": leaf}
    flag: dict[str, Any] = {"leaf": leaf, "is_flag": True}
    origins = click.Choice(("agent", "tool", "web", "import", "user"))
    return [
        _common("db", "The file; by default agentmem.db in your data directory.", env="AGENTMEM_DB",
                metavar="PATH", **text),
        _common("project", "The namespace in it; by default the one the current directory stands for.",
                env="AGENTMEM_PROJECT", metavar="NAME", **text),
        _common("author", "A label for who writes.", env="AGENTMEM_AUTHOR", metavar="LABEL", **text),
        _common("run", "A label for this run of an agent; claims are held by it.", env="AGENTMEM_RUN",
                metavar="LABEL", **text),
        _common("task", "The goal or step that is worked on.", env="AGENTMEM_TASK", metavar="REF", **text),
        _common("origin", "Where what is written comes from; agent by default. tool, web and import are shown quoted."
                " user, a person, is taken at a terminal, elsewhere with --yes.", type=origins, **text),
        _common("claim", "Act under the claims of this token, which agentmem claim printed.", env="AGENTMEM_CLAIM",
                metavar="TOKEN", **text),
        _common("credentials", "What becomes of text that looks like a credential: warn by default, refuse, or mask.",
                type=click.Choice(("warn", "refuse", "mask")), env="AGENTMEM_CREDENTIALS", **text),
        _common("embedder", "What finds records by their meaning: none, shipped for the model in the package, or the folder"
                " of an ONNX model.", env="AGENTMEM_EMBEDDER", metavar="NAME|FOLDER", **text),
        _common("key-file", "Take the key from this file. A key is never an argument.", metavar="PATH", **text),
        _common("ask-key", "Ask for the passphrase, at a terminal.", **flag),
        _common("read-only", "Take no write lock and change nothing.", **flag),
        _common("yes", "Yes to what would be asked.", **flag),
        _common("json", "The answer as JSON on stdout, an error as JSON on stderr.", shown=True, **flag),
        _common("quiet", "No remarks on stderr; of an answer its essence only.", shown=True, short="-q", **flag),
    ]  # fmt: skip


def command(
    name: str,
    *,
    store: Mode | None = "read",
    verbs: Sequence[str] = (),
    group: click.Group | None = None,
    past: bool = False,
) -> Callable[[Callable[..., None]], Command]:
    """Make a command of a function.

    Args:
        name: Its name.
        store: How to open the store, which the function then gets after the session; None for a session alone.
        verbs: The verbs of the Python store that it stands for, as `notes.add`.
        group: The group it belongs to; the root if None.
        past: Whether it also reads the store as it was, with `--at`.
    """

    def decorate(function: Callable[..., None]) -> Command:
        @functools.wraps(function)
        def run(**values: Any) -> None:
            session = click.get_current_context().ensure_object(Session)
            if store is None:
                function(session, **values)
                return
            at = values.pop("at") if past else None
            with session.opened(store) as opened:
                if at is None:
                    function(session, opened, **values)
                    return
                with session.past(opened, **moment(at)) as then:
                    function(session, then, **values)

        made = click.command(name, cls=Command, help=help_of(function), epilog=_EPILOG)(run)
        if past:
            made.params.append(_at())
        made.params.extend(common_options(leaf=True))
        made.verbs = (*verbs, "at") if past else tuple(verbs)
        if group is not None:
            group.add_command(made)
        return made

    return decorate


def _at() -> click.Option:
    return click.Option(
        ["--at"],
        metavar="SEQ|TIME",
        help="As it was right after this event, or at this time, UTC: 480, 2026-11-30, 2026-11-30T12:00.",
    )


def group(name: str, **attrs: Any) -> Callable[[Callable[..., Any]], click.Group]:
    """Make a group of commands of a function, whose docstring is its help."""

    def decorate(function: Callable[..., Any]) -> click.Group:
        return click.Group(name, callback=function, help=help_of(function), **attrs)

    return decorate


def help_of(function: Callable[..., Any]) -> str:
    """The docstring of a function as help: click is to keep the lines of the examples apart."""
    return inspect.cleandoc(function.__doc__ or "").replace(EXAMPLES, f"\b\n{EXAMPLES}")


_EPILOG = "Also takes --db, --project, --author, --run, --task, --origin, --claim, --key-file: see agentmem --help."

budget = click.option(
    "--budget",
    type=int,
    default=limits.BUDGET_DEFAULT,
    show_default=True,
    help=f"Tokens of the answer, from {limits.BUDGET_MIN}.",
)
request_id = click.option("--request-id", metavar="ID", help="Makes a retry safe: repeated, it writes nothing again.")
expected_revision = click.option(
    "--expected-revision", type=int, metavar="N", help="The revision you have seen; another one is a conflict."
)
where = click.option("--where", metavar="WHERE", help='Only those that match, e.g. "check.authz is null".')
parameters = click.option(
    "--param", "parameters", multiple=True, metavar="NAME=TEXT|NAME:=JSON", help="The value of :NAME in WHERE."
)


def limit(default: int = limits.PAGE) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--limit`."""
    return click.option("--limit", "-n", type=int, default=default, show_default=True, help="At most so many.")


def after(kind: Literal["id", "cursor"]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option `--after`, which continues a list."""
    if kind == "id":
        return click.option("--after", type=int, default=0, help="Continue after this id.")
    return click.option("--after", metavar="CURSOR", help="Continue: what the page before named.")


def pairs(given: Iterable[str], name: str) -> dict[str, Any]:
    """`name=text` and `name:=JSON` as values by name.

    Raises:
        InvalidInput: One has neither form, or its JSON does not parse.
    """
    found: dict[str, Any] = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign or not key.strip(":"):
            raise InvalidInput(f"{name} {pair[:80]!r} is not NAME=TEXT or NAME:=JSON")
        if not key.endswith(":"):
            found[key] = value
            continue
        try:
            found[key[:-1]] = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise InvalidInput(
                f"{name} {key[:-1]!r} has no JSON after :=", why=str(error), next="Write NAME=TEXT for text"
            ) from None
    return found


def results(given: Iterable[str]) -> dict[str, str]:
    """`check=result` as results by check."""
    found = {}
    for pair in given:
        key, sign, value = pair.partition("=")
        if not sign:
            raise InvalidInput(f"--check {pair[:80]!r} is not NAME=RESULT", next="RESULT is pass, fail, na or error")
        found[key] = value
    return found


def head(given: str | None) -> Head | None:
    """A head of a log as `agentmem log --head` prints it.

    Raises:
        BadParameter: It is none.
    """
    if given is None:
        return None
    from agentmem.types import Head

    store, _, rest = given.partition(":")
    seq, _, chain = rest.partition(":")
    if not (seq.isascii() and seq.isdigit() and chain):
        raise click.BadParameter("A head is STORE:SEQ:CHAIN, as agentmem log --head prints it.", param_hint="--head")
    return Head(store, int(seq), chain)


def moment(given: str) -> dict[str, int | None]:
    """A moment of the past: digits are the seq of an event, else it is a time.

    Raises:
        InvalidInput: It is neither.
    """
    if given.isascii() and given.isdigit():
        return {"seq": int(given)}
    return {"time": microseconds(given)}


def microseconds(given: str | None) -> int | None:
    """A time that was written as ISO 8601 or as microseconds since 1970.

    Raises:
        InvalidInput: It is neither.
    """
    if given is None:
        return None
    if given.lstrip("-").isdigit():
        return int(given)
    import datetime

    try:
        moment = datetime.datetime.fromisoformat(given)
    except ValueError:
        raise InvalidInput(
            f"{given!r} is no time", next="Write 2026-11-30, 2026-11-30T12:00:00Z, or microseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=datetime.UTC)
    return round(moment.timestamp() * 1_000_000)
