"""Commands on a vault in a file: credentials of tools, by id. No command shows a value."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agentmem.adapters.cli import options
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.output import is_terminal
from agentmem.adapters.cli.session import Session


@options.group("vault")
def vault() -> None:
    """Credentials of tools in an encrypted file of its own, never that of the memory.

    Its key is looked for as that of a store, or given with --key-file or --ask-key.

    Examples:
      agentmem vault add secrets.vault prod-stripe < stripe.key
      agentmem vault list secrets.vault
    """


@command("add", store=None, group=vault)
@click.argument("file")
@click.argument("id")
@click.option("--note", metavar="LINE", help="A line for people. It is no secret.")
def add(session: Session, file: str, id: str, note: str | None) -> None:
    """Keep credential ID in FILE, or replace it; the file is made where it is missing.

    The value is asked for at a terminal, else read from stdin without its last line end. It is never an argument.

    Examples:
      agentmem vault add secrets.vault prod-stripe --note "of the shop" < stripe.key
    """
    from agentmem.harness.file_vault import FileVault

    if is_terminal(sys.stdin):
        value = str(click.prompt("Value", hide_input=True, err=True, confirmation_prompt=True))
    else:
        value = session.text("-")
    with FileVault.open(file, key=session.key(new=not Path(file).exists())) as opened:
        opened.add(id, value, note=note)
    session.out.say(f"kept {id} in {file}")


@command("list", store=None, group=vault)
@click.argument("file")
def listed(session: Session, file: str) -> None:
    """The ids of the credentials in FILE, with their notes.

    Examples:
      agentmem vault list secrets.vault --json
    """
    from agentmem.harness.file_vault import FileVault

    with FileVault.open(file, key=session.key(new=False), create=False, read_only=True) as opened:
        found = opened.notes()
    if session.out.json:
        session.out.values({"id": name, "note": note} for name, note in found.items())
    else:
        session.out.table(("id", "note"), ((name, note or "") for name, note in found.items()))


@command("remove", store=None, group=vault)
@click.argument("file")
@click.argument("id")
def remove(session: Session, file: str, id: str) -> None:
    """Take credential ID out of FILE; its bytes are overwritten. Revoke it where it was issued, too.

    Examples:
      agentmem vault remove secrets.vault prod-stripe
    """
    from agentmem.harness.file_vault import FileVault

    with FileVault.open(file, key=session.key(new=False), create=False) as opened:
        opened.remove(id)
    session.out.say(f"took {id} out of {file}")


COMMANDS = {"vault": vault}
