"""One call of the command line: its global options, the store it opens, what it reads from stdin."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import click

from agentmem.adapters.cli.output import Output, is_terminal
from agentmem.errors import KeyMissing, StoreMissing
from agentmem.types import UNSET

if TYPE_CHECKING:
    from agentmem.engine.keys import Key
    from agentmem.recall.embedder import EmbedderChoice
    from agentmem.store import Store

Mode: TypeAlias = Literal["read", "write", "create"]
"""How a command opens the store: for reading; for writing what must exist; made where it is missing."""


class Session:
    """What every command needs.

    Attributes:
        given: The global options by name.
        typed: Those of them that stood on the command line, not in the environment.
    """

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}
        self.typed: set[str] = set()
        self._read = False

    @property
    def out(self) -> Output:
        """Where to write."""
        return Output(json=bool(self.given.get("json")), quiet=bool(self.given.get("quiet")))

    @property
    def path(self) -> Path:
        """The file of the store."""
        given = self.given.get("db")
        if given:
            return Path(given).expanduser()
        from platformdirs import user_data_path

        return user_data_path("agentmem", appauthor=False) / "agentmem.db"

    @property
    def task(self) -> str | None:
        """The task that `--task` names."""
        found = self.given.get("task")
        return str(found) if found else None

    @contextmanager
    def opened(self, mode: Mode, *, project: str | None = None) -> Iterator[Store]:
        """The store, in the name of who acts, closed at the end."""
        self.origin_checked()
        with self.open(mode, project=project) as store:
            if self.given.get("claim"):
                store.adopt_claims(self.given["claim"])
            yield store if self.task is None else store.acting(task=self.task)

    def open(self, mode: Mode, *, project: str | None = None, run: str | None = None, key: Key | None = None) -> Store:
        """The store as the options name it.

        Args:
            mode: What is to be done with it.
            project: Another project than that of the options.
            run: Another run.
            key: The key, if it was had before.
        """
        from agentmem.store import Store

        path, given = self.path, self.given
        if mode == "create" and not given.get("db"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        missing = not path.exists()
        try:
            store = Store.open(
                str(path),
                project=project or given.get("project"),
                key=self.key(new=missing and mode == "create") if key is None else key,
                author=given.get("author"),
                run=run or given.get("run"),
                origin=given.get("origin") or "agent",
                credentials=given.get("credentials") or "warn",
                create=mode == "create",
                read_only=mode == "read" or bool(given.get("read_only")),
                embedder=self.embedder(),
            )
        except StoreMissing as error:
            raise StoreMissing(
                error.what,
                next="agentmem init makes one, agentmem import reads a folder into a new one;"
                " --db or AGENTMEM_DB names another file",
            ) from error
        if missing and mode == "create":
            self.made(store)
        return store

    @contextmanager
    def past(self, store: Store, *, seq: int | None = None, time: int | None = None) -> Iterator[Store]:
        """The store as it was right after an event or at a time, which is said."""
        from agentmem.adapters.cli.progress import working
        from agentmem.adapters.cli.shown import when

        with working(self.out, "folding the log"):
            then = store.at(seq, time=time)
        with then:
            moment = then.moment
            self.out.say(f"as of event {moment.seq}, {when(moment.at)} UTC")
            yield then

    def embedder(self) -> EmbedderChoice:
        """The embedder that was named on the command line; else the library looks in the environment."""
        named = self.given.get("embedder") if "embedder" in self.typed else None
        if named in (None, ""):
            return UNSET
        if named == "none":
            return None
        if named != "shipped":
            return Path(named).expanduser()
        from agentmem.recall.embedder import shipped

        return shipped()

    def made(self, store: Store) -> None:
        """Say that a store was made, and what that means for its key."""
        self.out.say(f"made a new store: {store.path}")
        self.out.say(key_words(store))

    def origin_checked(self) -> None:
        """At a terminal a person may say `user`; elsewhere that must be meant."""
        if self.given.get("origin") == "user" and not self.given.get("yes") and not is_terminal(sys.stdin):
            raise click.UsageError(
                "--origin user is for what a person says. At a terminal it is taken as given; elsewhere add --yes."
            )

    def key(self, *, new: bool) -> Key | None:
        """The key that was given by file or prompt; None where the library is to look for it."""
        name, asked = self.given.get("key_file"), self.given.get("ask_key")
        if name and asked:
            raise click.UsageError("--key-file and --ask-key exclude each other.")
        if name:
            return key_of_file(Path(name).expanduser())
        if not asked:
            return None
        if not is_terminal(sys.stdin):
            raise click.UsageError("--ask-key needs a terminal. Elsewhere give --key-file, or set AGENTMEM_KEY_FILE.")
        return str(click.prompt("Passphrase", hide_input=True, err=True, confirmation_prompt=new))

    def stdin(self) -> str:
        """All of stdin as text; only one argument can be `-`."""
        if self._read:
            raise click.UsageError("Only one argument can be -, since there is one stdin.")
        self._read = True
        if sys.stdin is None:
            raise click.UsageError("There is no stdin to read for -.")
        try:
            # Bytes, so that the locale has no say in what is read.
            return sys.stdin.buffer.read().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise click.UsageError(f"stdin is not UTF-8 at byte {error.start + 1}.") from None

    def text(self, value: str) -> str:
        """An argument of any number of lines; `-` is stdin without its last line end."""
        return self.stdin().removesuffix("\n").removesuffix("\r") if value == "-" else value

    def lines(self, values: tuple[str, ...]) -> list[str]:
        """Arguments; a single `-` is the lines of stdin that are not blank."""
        if values == ("-",):
            return [line.strip() for line in self.stdin().splitlines() if line.strip()]
        return list(values)


def key_of_file(path: Path) -> bytes | str:
    """The key in a file, by the rules of `AGENTMEM_KEY_FILE`."""
    from agentmem.engine.keys import key_file_read

    found = key_file_read(path)
    if found is None:
        raise KeyMissing(f"--key-file names a file that is not there: {path}", next="Correct the path.")
    return found


def key_words(store: Store) -> str:
    """Where the key of an open store is, and what it is good for."""
    from agentmem.engine.keys import KeySource

    database = store.database
    match database.key_source:
        case KeySource.DEFAULT_FILE:
            made = "made just now" if database.key_made else "which was there already"
            return (
                f"its key is in {database.key_path} ({made}). Losing that file loses all that is written here:"
                " keep a copy elsewhere (agentmem key export).\n"
                "It guards copies of the database, not your account: who can read your files can read both."
            )
        case KeySource.STORE_FILE:
            return (
                f"its key is in {database.key_path}, and of this store alone. Losing that file loses all that is written"
                " here: keep a copy elsewhere (agentmem key export)."
            )
        case KeySource.ENVIRONMENT_FILE:
            return f"its key is in {database.key_path} (AGENTMEM_KEY_FILE). Losing it loses all that is written here."
        case KeySource.ENVIRONMENT:
            return "its key is AGENTMEM_KEY. Losing it loses all that is written here."
        case KeySource.KEYRING:
            return "its key is in the keyring of the operating system. Losing it loses all that is written here."
        case _:
            return "its key is the one you gave. Losing it loses all that is written here."


def closed_streams_opened() -> None:
    """Open what of stdin, stdout, stderr is closed on nothing: else the database would get one of their numbers."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free number is the one just found free.
            os.open(os.devnull, os.O_RDWR)
