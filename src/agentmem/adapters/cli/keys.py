"""The command rekey, and how any command is given a new key: by a file or a prompt, never as an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import frozen

from agentmem.adapters.cli.exits import Exit
from agentmem.adapters.cli.options import command
from agentmem.adapters.cli.output import is_terminal
from agentmem.adapters.cli.progress import working
from agentmem.adapters.cli.session import Session, key_of_file

if TYPE_CHECKING:
    from agentmem.engine.keys import Key

_FILE = "The new key is in this file, or is made and put there if there is none. Keep it apart from the database."


def new_key_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options `--new-key-file` and `--ask-new-key`."""
    asked = click.option("--ask-new-key", is_flag=True, help="Ask for a new passphrase, at a terminal.")
    return click.option("--new-key-file", metavar="PATH", help=_FILE)(asked(function))


@frozen
class NewKey:
    """A key for a file that is to be made.

    Attributes:
        key: The key, None for that of the source.
        path: The file it is in, if it is in one.
    """

    key: Key | None = None
    path: Path | None = None


def new_key(session: Session, name: str | None, asked: bool) -> NewKey:
    """The new key that a file or a prompt gives.

    Raises:
        UsageError: Both were given, or there is no terminal to ask at.
    """
    if name is not None and asked:
        raise click.UsageError("--new-key-file and --ask-new-key exclude each other.")
    if name is not None:
        path = Path(name).expanduser().absolute()
        # Asked for when the rest has proven to be in order, so that a call that is refused makes no file.
        return NewKey(lambda: _of_file(session, path), path)
    return NewKey(asked_key() if asked else None)


def asked_key() -> str:
    """A new passphrase from the terminal, typed twice.

    Raises:
        UsageError: There is none.
    """
    if not is_terminal(sys.stdin):
        raise click.UsageError("--ask-new-key needs a terminal. Elsewhere give --new-key-file.")
    return str(click.prompt("New passphrase", hide_input=True, err=True, confirmation_prompt=True))


def _of_file(session: Session, path: Path) -> bytes | str:
    """The key in a file; one is made where there is none."""
    from agentmem.engine.keys import key_file_write, new_key

    if not path.parent.is_dir():
        raise FileNotFoundError(2, "No such directory", str(path.parent))
    if key_file_write(path, new_key()):
        session.out.say(f"made a new key: {path}")
    return key_of_file(path)


@command("rekey", store=None, verbs=("rekey",))
@new_key_options
@click.option("--keyring", is_flag=True, help="Put a new key into the keyring of the operating system.")
def rekey(session: Session, new_key_file: str | None, ask_new_key: bool, keyring: bool) -> None:
    """Encrypt the file anew with another key.

    Without an option a new key goes into a key file of this store in your configuration directory, where every
    agentmem of yours looks. A kill at any moment leaves the file with exactly one of the two keys. No key is taken
    away: the former one opens the backups made before. Others may have the store open meanwhile.

    Examples:
      agentmem rekey
      agentmem rekey --new-key-file work.key
    """
    if sum((new_key_file is not None, ask_new_key, keyring)) > 1:
        raise click.UsageError("--new-key-file, --ask-new-key and --keyring exclude each other.")
    out = session.out
    path = None if new_key_file is None else Path(new_key_file).expanduser().absolute()
    with session.opened("write") as store:
        given = asked_key() if ask_new_key else None if path is None or not path.exists() else key_of_file(path)
        made = path if given is None else None
        with working(out, "encrypting anew"):
            done = store.rekey(given, key_file=made, keyring=keyring)
    if out.json:
        out.value(done)
    else:
        place = done.path or path
        out.text(done.source if place is None else f"{done.source} {place}")
        for notice in done.notices:
            out.say(notice)
    for problem in done.problems:
        out.say(f"problem: {problem}")
    if done.problems:
        click.get_current_context().exit(Exit.DAMAGED)


COMMANDS = {"rekey": rekey}
