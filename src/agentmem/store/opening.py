"""Opening a store, and views of it: by project, by actor, within a transaction."""

from __future__ import annotations

import os
import secrets
import weakref
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import apsw
import attrs

from agentmem import limits, text
from agentmem.context.tokens import Counter, count_tokens
from agentmem.engine.database import Database
from agentmem.engine.keys import Key
from agentmem.engine.migrations import SCHEMA
from agentmem.errors import InvalidInput, NotAStore, shown
from agentmem.log.ledger import Clock, Ledger, Transaction, system_clock
from agentmem.recall import reindex
from agentmem.records import cleaning, subjects, validate
from agentmem.records.attempts import Attempts
from agentmem.records.base import Binding
from agentmem.records.beneath import refuse, within
from agentmem.records.checklists import Checklists
from agentmem.records.credentials import POLICIES, Policy
from agentmem.records.entities import Entities
from agentmem.records.events import Log
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.records.links import Links
from agentmem.records.notes import Notes
from agentmem.records.projects import default_project
from agentmem.records.refs import note_id, session_id
from agentmem.store.claiming import ClaimVerbs
from agentmem.store.ending import EndingVerbs
from agentmem.store.past import PastVerbs
from agentmem.store.projects import ProjectVerbs
from agentmem.store.reading import ReadingVerbs
from agentmem.store.shared import Shared
from agentmem.store.upkeep import UpkeepVerbs
from agentmem.store.writing import WritingVerbs
from agentmem.types import ORIGINS, UNSET, Actor, Origin, Ref, Unset

if TYPE_CHECKING:
    from agentmem.recall.embedder import EmbedderChoice
    from agentmem.store.sessions import Sessions


class Store(ReadingVerbs, WritingVerbs, ClaimVerbs, PastVerbs, EndingVerbs, UpkeepVerbs):
    """A working memory: one file, opened, with a project and an actor.

    Make one with `Store.open`. It is thread-safe, survives a fork (the child reopens), and many
    processes may have one file open. It works with and without `with`.
    """

    def __init__(self, shared: Shared, binding: Binding) -> None:
        self._shared = shared
        self._binding = binding
        self.notes = Notes(binding)
        self.links = Links(binding)
        self.attempts = Attempts(binding)
        self.entities = Entities(binding)
        self.checklists = Checklists(binding)
        self.projects = ProjectVerbs(binding)
        self.log = Log(binding)

    # Opening and closing

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        project: str | None = None,
        key: Key | None = None,
        author: str | None = None,
        run: str | None = None,
        origin: Origin = "agent",
        create: bool = True,
        read_only: bool = False,
        encrypted: bool = True,
        durability: Literal["full", "normal"] = "full",
        busy_timeout: float = 10.0,
        credentials: Policy = "warn",
        counter: Counter = count_tokens,
        clock: Clock = system_clock,
        embedder: EmbedderChoice = UNSET,
    ) -> Store:
        """Open a store; a new file is made where there is none.

        Args:
            path: The file.
            project: The namespace to work in; by default the one the current directory stands for, see `default_project`.
            key: 32 bytes, a passphrase, or a callable that gives one; see `docs/security.md` for where it is looked
                for otherwise.
            author: A label for who writes.
            run: A label for this run of an agent; claims are held by it.
            origin: Where the text that is written comes from.
            create: Make the file where it is missing.
            read_only: Take no write lock and change nothing.
            encrypted: False for a plain file, only if you mean it.
            durability: `full`: an acknowledged write survives power loss; `normal`: it survives a crash of the process.
            busy_timeout: Seconds to wait for other writers.
            credentials: What to do about text that looks like a credential: `warn` in the answer, `refuse`, or `mask`.
            counter: Tokens of a text; every budget is by it.
            clock: The time in microseconds since 1970 UTC.
            embedder: What finds records by their meaning: by default the model in the package, or what
                `AGENTMEM_EMBEDDER` names (`none`, or a folder); an `Embedder`; the folder of an ONNX model; None to go by
                words alone. Given another than the vectors were made by, all are made anew in the background.

        Raises:
            KeyMissing: The file exists and no key was found.
            WrongKey: The key does not open it.
            StoreMissing: There is no file and `create` is false, or no directory for it.
            NotAStore: Empty, not SQLite, or another program's.
            NewerFile: Written by a later version; left alone.
            NetworkFileSystem: SQLite's WAL is unsafe there.
            CipherMissing: Plain `apsw` shadows the build with encryption.
            Busy: Another process holds the file.
            ReadOnly: It cannot be written to, or not be read where it lies.
            StoreReplaced: This process still has the file open that was at the path before.
            InvalidInput: An option is not acceptable.
        """
        for name, option in (("create", create), ("read_only", read_only), ("encrypted", encrypted)):
            validate.flag(option, name)
        validate.callable_(counter, "counter")
        validate.callable_(clock, "clock")
        _embedder_check(embedder)
        actor = _actor(author, run, None, origin)
        policy: Any = validate.choice(credentials, "credentials", POLICIES)
        in_project = default_project() if project is None else validate.project(project)
        kept: Any = validate.choice(durability, "durability", ("full", "normal"))
        database = Database.open(
            validate.path(path),
            schema=SCHEMA,
            functions=FUNCTIONS,
            key=key,
            create=create,
            read_only=read_only,
            encrypted=encrypted,
            durability=kept,
            busy_timeout=validate.number(busy_timeout, "busy_timeout", 0, limits.BUSY_SECONDS_MAX),
            on_create=_identify,
        )
        try:
            with database.read() as connection:
                store = connection.execute("SELECT value FROM meta WHERE name = 'store'").fetchone()
                if store is None:
                    raise _no_store(connection, path)
                old_index = reindex.outdated(connection)
                unclean = connection.execute("SELECT value FROM meta WHERE name = 'purge'").fetchone()
        except BaseException:
            database.close()
            raise
        ledger = Ledger(database, KINDS, store[0], clock)
        shared = Shared(database, ledger, counter, embedder)
        ledger.wrote = weakref.WeakMethod(shared.wrote)
        ledger.alike = weakref.WeakMethod(shared.alike)
        if unclean is not None and not read_only:
            # A purge was killed, or somebody was in its way: what it left in the pages must not wait for the next write.
            ledger.unclean = unclean[0]
            cleaning.finish(ledger)
        if old_index and not read_only:
            shared.reindexing = reindex.in_background(database)
        return cls(shared, Binding(ledger, in_project, actor, shared.leases, policy))

    def close(self) -> None:
        """Close the file for all views of it. Closing twice is fine."""
        self._shared.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {shown(str(self.path))} project={shown(self.project)}>"

    @property
    def sessions(self) -> Sessions:
        """Durable conversations."""
        from agentmem.store.sessions import Sessions

        return Sessions(self._shared, self._binding)

    @property
    def path(self) -> Path:
        """The file."""
        return self._shared.database.path

    @property
    def project(self) -> str:
        """The name of the project of this view."""
        return self._binding.project

    @property
    def actor(self) -> Actor:
        """Who writes in this view."""
        return self._binding.actor

    @property
    def limit(self) -> int | None:
        """The note beneath which alone this view writes; None where it writes anywhere."""
        return self._binding.limit

    @property
    def database(self) -> Database:
        """The open file, for adapters that need its key's whereabouts."""
        return self._shared.database

    def in_project(self, name: str) -> Store:
        """The same open file, another project."""
        subjects.refuse_projects(self._binding, name)
        return Store(self._shared, attrs.evolve(self._binding, project=validate.project(name)))

    def acting(
        self,
        *,
        author: str | None | Unset = UNSET,
        run: str | None | Unset = UNSET,
        task: Ref | None | Unset = UNSET,
        origin: Origin | Unset = UNSET,
        session: Ref | None | Unset = UNSET,
    ) -> Store:
        """The same open file in another's name. With a `task`, attempts and checkpoints go to it, and answers bring its news.

        With a `session`, what is written names it; `sessions.get(…).store` is the same with its task and its subject.
        """
        now = self._binding.actor
        found = now.task
        if not isinstance(task, Unset):
            if task is None:
                found = None
            else:
                with self._binding.reading() as view:
                    found = note_id(view, task)
        actor = _actor(
            now.author if isinstance(author, Unset) else author,
            now.run if isinstance(run, Unset) else run,
            found,
            now.origin if isinstance(origin, Unset) else origin,
        )
        spoken = now.session
        if not isinstance(session, Unset):
            spoken = None
            if session is not None:
                with self._binding.reading() as view:
                    spoken = session_id(view, session)
        actor = attrs.evolve(actor, session=spoken)
        return Store(self._shared, attrs.evolve(self._binding, actor=actor))

    def beneath(self, note: Ref) -> Store:
        """The same open file for a worker on one task: it writes only beneath that note, and reads everything.

        It is at work on the task, as `acting(task=note)`, in the note's project; in another one it only reads. Of the note
        itself it may change status, body, tags, why, confidence and basis, tick and add items, write checkpoints and the
        summary. Entities are within reach as far as they match the scope of the note, or the nearest one above it; purges
        of them are not. Every event is checked before it is in the log. It is a fence for this view, not against a program
        that opens the file itself.

        Args:
            note: The task; within a view that is limited already, that note or something beneath it.

        Raises:
            OutOfReach: It is not beneath the note that this view is limited to. All that a limited view may not do
                raises this.
        """
        limit = self._binding.limit
        with self._binding.reading() as view:
            found = note_id(view, note)
            if limit is not None and found != limit and not within(view, found, limit):
                raise refuse(f"#{found} is not beneath #{limit}", limit)
            (project,) = view.one(
                "SELECT project.name FROM note JOIN project ON project.id = note.project WHERE note.id = ?", (found,)
            )
        actor = attrs.evolve(self._binding.actor, task=found)
        return Store(self._shared, attrs.evolve(self._binding, actor=actor, project=project, limit=found))

    def transaction(self) -> Transaction:
        """Group commands: all or none, one sync to disk. Nests by savepoints.

        ```python
        with store.transaction():
            goal = store.notes.add("goal", "Move to the queue")
            store.notes.add("step", "Write the consumer", parent=goal)
        ```
        """
        return self._shared.ledger.transaction()


def _embedder_check(embedder: object) -> None:
    if embedder is None or isinstance(embedder, (Unset, str, os.PathLike)):
        return
    # By its class first: to read `id` or `dim` may load a model.
    there = all(hasattr(type(embedder), name) or hasattr(embedder, name) for name in ("id", "dim"))
    if not (there and callable(getattr(embedder, "embed", None))) or isinstance(embedder, type):
        raise InvalidInput(
            f"embedder is {shown(type(embedder).__name__)}",
            why="An embedder has embed(texts), id and dim",
            next="Give one, the folder of an ONNX model, or None",
        )


def _actor(author: str | None, run: str | None, task: int | None, origin: str) -> Actor:
    chosen: Any = validate.choice(origin, "origin", ORIGINS)
    return Actor(validate.optional_label(author, "author"), validate.optional_label(run, "run"), task, chosen)


def _no_store(connection: apsw.Connection, path: str | os.PathLike[str]) -> NotAStore:
    """Why a file of ours is no store."""
    if connection.execute("SELECT 1 FROM meta WHERE name = 'vault'").fetchone() is not None:
        return NotAStore(f"{path} is a vault of credentials", next="Open it with agentmem.harness.FileVault")
    return NotAStore(f"{path} has no identity", next="Restore it from a backup")


def _identify(connection: apsw.Connection) -> None:
    """Give a new file its identity; part of the transaction that makes it."""
    values = (("store", secrets.token_hex(16)), ("request_key", secrets.token_hex(32)), ("analyser", text.FINGERPRINT))
    for name, value in values:
        connection.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))
