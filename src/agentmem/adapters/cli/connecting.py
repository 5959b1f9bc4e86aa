"""The group mcp: agentmem in the configuration of clients: install, uninstall, list, show."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from agentmem.adapters.cli.ending import asking
from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import command, group
from agentmem.adapters.cli.output import complain, is_terminal
from agentmem.adapters.cli.session import Session
from agentmem.errors import KeyMissing

if TYPE_CHECKING:
    from agentmem.adapters.install.applying import Plan
    from agentmem.adapters.install.clients import Client
    from agentmem.adapters.install.commands import Options
    from agentmem.adapters.install.surroundings import Scope, Surroundings

_KEY: Final = "AGENTMEM_KEY"
_KEY_FILE: Final = "AGENTMEM_KEY_FILE"

_client = click.argument("client")
_scope = click.option(
    "--scope", type=click.Choice(("user", "project")), default="user", show_default=True,
    help="For you everywhere, or for the project around the current directory.",
)  # fmt: skip
_dry_run = click.option("--dry-run", is_flag=True, help="Only show the difference.")
_under = click.option("--under", metavar="REF", help="The server writes only beneath this note: for a subagent.")
_tools = click.option(
    "--tools", "tools_", type=click.Choice(("core", "full")), default="core", show_default=True,
    help="full also lists, each as a tool of its own, what is rare and what can't be taken back.",
)  # fmt: skip
_no_hooks = click.option("--no-hooks", is_flag=True, help="Leave the hooks out.")


@group("mcp")
def mcp() -> None:
    """Put agentmem into the configuration of a client, and take it out again.

    The clients: claude-code, claude-desktop, cursor, vscode, codex, gemini, windsurf, zed, opencode.

    Examples:
      agentmem mcp install claude-code
      agentmem mcp list
    """


@asking
@command("install", store=None, group=mcp)
@_client
@_scope
@_no_hooks
@click.option("--no-skill", is_flag=True, help="Leave the skill out.")
@_under
@_tools
@_dry_run
def install(
    session: Session, client: str, scope: Scope, no_hooks: bool, no_skill: bool, under: str | None, tools_: str,
    dry_run: bool,
) -> None:  # fmt: skip
    """Install agentmem into a client: server, hooks where they are known, and a skill.

    First the difference of each file is shown; then a terminal asks, elsewhere nothing is written without --yes. Of a
    file that was there a copy is kept beside it, and agentmem mcp uninstall puts it back. All files are written, or
    none. A second install with other options is a change. What is given by --db, --project, --key-file and --author, or
    by their variables, is spelled out in the entry, since clients hand a server next to nothing of the environment.

    Examples:
      agentmem mcp install claude-code
      agentmem mcp install cursor --scope project --no-hooks --dry-run
      agentmem mcp install claude-desktop --project notes --yes
    """
    from agentmem.adapters.install.clients import client_named
    from agentmem.adapters.install.planning import planned_install
    from agentmem.adapters.install.register import Register, register_file
    from agentmem.adapters.install.surroundings import Surroundings

    known, around = client_named(client), Surroundings.here()
    options, notes = _options(session, known, scope, around, not no_hooks, not no_skill, under, tools_)
    plan = planned_install(known, scope, around, options, Register.load(register_file()))
    if known.hooks is None and not no_hooks:
        notes.append(f"No hooks of {known.title} are known: only server and skill are installed."
                     if known.skills.get(scope) else f"Of {known.title} only the server is installed.")  # fmt: skip
    if scope == "project":
        notes.append("The files name paths of this machine: they are of no use in a repository that others share.")
    _carried_out(session, plan, [*notes, *known.notes], "installed", dry_run=dry_run)


@asking
@command("uninstall", store=None, group=mcp)
@_client
@_scope
@_dry_run
def uninstall(session: Session, client: str, scope: Scope, dry_run: bool) -> None:
    """Take agentmem out of a client.

    A file that nobody edited since is put back byte for byte. Of one that was edited only what is agentmem's goes. What
    was made for it and holds nothing else goes too. First the difference is shown; then a terminal asks, elsewhere
    nothing is written without --yes.

    Examples:
      agentmem mcp uninstall claude-code --dry-run
      agentmem mcp uninstall cursor --scope project --yes
    """
    from agentmem.adapters.install.clients import client_named
    from agentmem.adapters.install.planning import planned_uninstall
    from agentmem.adapters.install.register import Register, register_file
    from agentmem.adapters.install.surroundings import Surroundings

    plan = planned_uninstall(client_named(client), scope, Surroundings.here(), Register.load(register_file()))
    _carried_out(session, plan, [], "uninstalled", dry_run=dry_run)


@command("list", store=None, group=mcp)
def listed(session: Session) -> None:
    """What is installed where, and whether its files were edited since.

    Examples:
      agentmem mcp list
      agentmem mcp list --json
    """
    from agentmem.adapters.install.planning import state
    from agentmem.adapters.install.register import Register, register_file

    installs = Register.load(register_file()).installs
    rows = [(one, file, state(file)) for one in installs for file in one.files]
    if session.out.json:
        for one in installs:
            paths = [{"path": file.path, "copy": file.copy, "state": became} for owner, file, became in rows
                     if owner is one]  # fmt: skip
            session.out.value(
                {"client": one.client, "scope": one.scope, "root": one.root, "command": one.command, "files": paths}
            )
    elif not rows:
        session.out.say("nothing is installed")
    else:
        session.out.table(
            ("client", "scope", "state", "file"),
            [(one.client, one.scope, became, file.path) for one, file, became in rows],
        )


@command("show", store=None, group=mcp)
@_client
@_scope
@_no_hooks
@_under
@_tools
def show(session: Session, client: str, scope: Scope, no_hooks: bool, under: str | None, tools_: str) -> None:
    """Print what to add to a client's files by hand, and write nothing.

    Examples:
      agentmem mcp show zed
      agentmem mcp show codex --project acme --no-hooks
    """
    from agentmem.adapters.install.clients import client_named
    from agentmem.adapters.install.entries import snippets
    from agentmem.adapters.install.surroundings import Surroundings

    known, around = client_named(client), Surroundings.here()
    options, notes = _options(session, known, scope, around, not no_hooks, True, under, tools_)
    server, hooks = snippets(known, options, around.platform)
    files = [str(around.path(known.servers(scope)[0]))]
    if hooks is not None and known.hooks is not None:
        files.append(str(around.path(known.hooks.user if scope == "user" else known.hooks.project)))
    if session.out.json:
        texts = [server, *([] if hooks is None else [hooks])]
        session.out.value({"client": known.name, "scope": scope,
                           "files": [{"path": path, "text": text} for path, text in zip(files, texts, strict=True)]})  # fmt: skip
    else:
        session.out.say(f"into {files[0]}:")
        session.out.text(server.rstrip("\n"))
        if hooks is not None:
            session.out.say(f"into {files[1]}:")
            session.out.text(hooks.rstrip("\n"))
    _said(session, notes)


def _options(
    session: Session, client: Client, scope: Scope, around: Surroundings, hooks: bool, skill: bool,
    under: str | None, tools: str,
) -> tuple[Options, list[str]]:  # fmt: skip
    """What server and hooks are to do, with all that they will not find in their environment; and what to know."""
    from agentmem.adapters.install.commands import Options

    given = session.given
    if given.get("ask_key"):
        raise click.UsageError("--ask-key can't be asked by a server. Give --key-file.")
    notes: list[str] = []
    if os.environ.get("PYTHONPATH"):
        notes.append("PYTHONPATH is set here and the server will not see it: it has to find agentmem without it.")
    found = Options(
        python=sys.executable,
        db=str(session.path.absolute()) if given.get("db") or os.environ.get("XDG_DATA_HOME") else None,
        project=_project(session, client, scope, around, notes),
        key_file=_key_file(session, notes),
        author=given.get("author"),
        credentials=given.get("credentials"),
        embedder=_embedder(given.get("embedder")),
        read_only=bool(given.get("read_only")),
        under=under,
        full=tools == "full",
        hooks=hooks,
        skill=skill,
    )
    return found, notes


def _embedder(named: str | None) -> str | None:
    """The embedder; a folder by its absolute path."""
    return named if named in (None, "", "none", "shipped") else str(Path(named).expanduser().absolute())


def _project(session: Session, client: Client, scope: Scope, around: Surroundings, notes: list[str]) -> str | None:
    """The project, spelled out where the client may start the server in a directory that stands for another one."""
    named = session.given.get("project")
    if named:
        return str(named)
    if scope == "project":
        from agentmem.records.projects import default_project

        return default_project(around.root)
    if not client.project:
        notes.append(
            f"{client.title} starts the server in no project's directory: it writes into the project {client.name}."
            " --project names another."
        )
        return client.name
    return None


def _key_file(session: Session, notes: list[str]) -> str | None:
    """The file with the key, spelled out where the server would not find it; a key is never written anywhere."""
    named = session.given.get("key_file") or (None if os.environ.get(_KEY) else os.environ.get(_KEY_FILE))
    if named:
        path = Path(named).expanduser().absolute()
        if not path.is_file():
            raise KeyMissing(f"The key file is not there: {path}", next="Correct the path.")
        return str(path)
    if os.environ.get(_KEY):
        notes.append(
            "AGENTMEM_KEY is set here and the server will not see it, nor is a key ever written into a configuration:"
            " put the key into a file that only you can read, and install again with --key-file."
        )
    elif os.environ.get("XDG_CONFIG_HOME"):
        from agentmem.engine.keys import default_key_file

        if default_key_file().is_file():
            return str(default_key_file())
    return None


def _carried_out(session: Session, plan: Plan, notes: list[str], word: str, *, dry_run: bool) -> None:
    """Show a plan, and do it once it is clear that this is meant.

    Raises:
        UsageError: Nobody can be asked, and nobody said yes.
    """
    from agentmem.adapters.install.applying import applied

    out = session.out
    if not plan:
        _shown(session, plan, written=False)
        out.say("nothing to do")
        _said(session, plan.notes)
        return
    agreed = bool(session.given.get("yes")) and not dry_run
    can_ask = not dry_run and is_terminal(sys.stdin) and is_terminal(sys.stderr)
    if not agreed and can_ask:
        complain("\n".join(_differences(plan)))
        _said(session, (*plan.notes, *notes))
        if not click.confirm("Write this?", err=True):
            out.say("nothing was written")
            click.get_current_context().exit(Exit.FAILURE)
    elif not agreed:
        _shown(session, plan, written=False)
        _said(session, (*plan.notes, *notes))
        if dry_run:
            return
        out.flush()
        raise click.UsageError("This was a dry run and nothing was written: where nobody can be asked it needs --yes.")
    applied(plan)
    if out.json or agreed:
        _shown(session, plan, written=True)
    out.say(word)
    if agreed:
        _said(session, (*plan.notes, *notes))
    for copy in plan.copies:
        out.say(f"a copy of what there was: {copy.path}")


def _shown(session: Session, plan: Plan, *, written: bool) -> None:
    from agentmem.adapters.install.planning import difference

    if session.out.json:
        edits = [
            {
                "path": str(edit.path),
                "what": "create" if edit.before is None else "remove" if edit.after is None else "change",
                "diff": difference(edit),
            }
            for edit in plan.edits
        ]
        copies = [str(copy.path) for copy in plan.copies]
        session.out.value({"written": written, "files": edits, "copies": copies, "notes": plan.notes})
    elif session.out.quiet:
        session.out.text("\n".join(str(edit.path) for edit in plan.edits))
    elif plan.edits:
        session.out.text("\n".join(_differences(plan)))


def _differences(plan: Plan) -> Iterator[str]:
    from agentmem.adapters.install.planning import difference

    for edit in plan.edits:
        yield difference(edit).rstrip("\n")


def _said(session: Session, notes: tuple[str, ...] | list[str]) -> None:
    for note in notes:
        session.out.say(note)


COMMANDS = {"mcp": mcp}
