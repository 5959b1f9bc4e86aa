"""The store: one open file, and every verb on it."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import apsw
import attrs

from agentmem import limits, text
from agentmem.context import tokens
from agentmem.context.tokens import Counter, count_tokens
from agentmem.engine.database import Database
from agentmem.engine.keys import Key
from agentmem.engine.migrations import SCHEMA
from agentmem.errors import InvalidInput, NotAStore, shown
from agentmem.log.ledger import Clock, Ledger, Transaction, system_clock
from agentmem.recall import reindex
from agentmem.records import claim_writes, claims, health, reports, scopes, validate
from agentmem.records import confirm as confirmations
from agentmem.records.attempts import Attempts
from agentmem.records.base import Binding, Leases, Unit, View
from agentmem.records.checklists import Checklists
from agentmem.records.credentials import POLICIES, Policy
from agentmem.records.entities import Entities
from agentmem.records.events import Log, kinds_of, watched
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.records.links import Links
from agentmem.records.load import load
from agentmem.records.notes import Notes
from agentmem.records.projects import Projects, default_project
from agentmem.records.refs import identify, note_id
from agentmem.types import (
    ORIGINS,
    UNSET,
    Actor,
    Checkpoint,
    Claim,
    Event,
    Head,
    Origin,
    Record,
    Ref,
    Scope,
    Status,
    Unset,
    Written,
    WrittenMany,
)

if TYPE_CHECKING:  # what only some calls need is imported there: most processes make few of them
    from agentmem.context.left import Left
    from agentmem.context.parts import Graph, TaskSummary
    from agentmem.context.resume import Resume
    from agentmem.recall.find import Found
    from agentmem.transfer.importer import Imported, Progress


class _Shared:
    """What all views of one open file share."""

    def __init__(self, database: Database, ledger: Ledger, counter: Counter) -> None:
        self.database = database
        self.ledger = ledger
        self.leases = Leases()
        self._counter = counter
        self._counter_sound = counter is count_tokens
        self.reindexing: threading.Thread | None = None
        # Up to which seq each run has had the news of its task.
        self.heard: dict[tuple[str | None, int], int] = {}
        self.lock = threading.Lock()

    @property
    def counter(self) -> Counter:
        """Tokens of a text; a caller's own is tried before its first use."""
        if not self._counter_sound:
            tokens.check(self._counter)
            self._counter_sound = True
        return self._counter


class Store:
    """A working memory: one file, opened, with a project and an actor.

    Make one with `Store.open`. It is thread-safe, survives a fork (the child reopens), and many
    processes may have one file open. It works with and without `with`.
    """

    def __init__(self, shared: _Shared, binding: Binding) -> None:
        self._shared = shared
        self._binding = binding
        self.notes = Notes(binding)
        self.links = Links(binding)
        self.attempts = Attempts(binding)
        self.entities = Entities(binding)
        self.checklists = Checklists(binding)
        self.projects = Projects(binding)
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

        Raises:
            KeyMissing: The file exists and no key was found.
            WrongKey: The key does not open it.
            StoreMissing: There is no file and `create` is false, or no directory for it.
            NotAStore: Empty, not SQLite, or another program's.
            NewerFile: Written by a later version; left alone.
            NetworkFileSystem: SQLite's WAL is unsafe there.
            CipherMissing: Plain `apsw` shadows the build with encryption.
            Busy: Another process holds the file.
            InvalidInput: An option is not acceptable.
        """
        for name, option in (("create", create), ("read_only", read_only), ("encrypted", encrypted)):
            validate.flag(option, name)
        validate.callable_(counter, "counter")
        validate.callable_(clock, "clock")
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
                    raise NotAStore(f"{path} has no identity", next="Restore it from a backup")
                old_index = reindex.outdated(connection)
        except BaseException:
            database.close()
            raise
        ledger = Ledger(database, KINDS, store[0], clock)
        shared = _Shared(database, ledger, counter)
        if old_index and not read_only:
            shared.reindexing = reindex.in_background(database)
        return cls(shared, Binding(ledger, in_project, actor, shared.leases, policy))

    def close(self) -> None:
        """Close the file for all views of it. Closing twice is fine."""
        self._shared.database.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Store {shown(str(self.path))} project={shown(self.project)}>"

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
    def database(self) -> Database:
        """The open file, for adapters that need its key's whereabouts."""
        return self._shared.database

    def in_project(self, name: str) -> Store:
        """The same open file, another project."""
        return Store(self._shared, attrs.evolve(self._binding, project=validate.project(name)))

    def acting(
        self,
        *,
        author: str | None | Unset = UNSET,
        run: str | None | Unset = UNSET,
        task: Ref | None | Unset = UNSET,
        origin: Origin | Unset = UNSET,
    ) -> Store:
        """The same open file in another's name. With a `task`, attempts and checkpoints go to it, and answers bring its news."""
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
        return Store(self._shared, attrs.evolve(self._binding, actor=actor))

    def transaction(self) -> Transaction:
        """Group commands: all or none, one sync to disk. Nests by savepoints.

        ```python
        with store.transaction():
            goal = store.notes.add("goal", "Move to the queue")
            store.notes.add("step", "Write the consumer", parent=goal)
        ```
        """
        return self._shared.ledger.transaction()

    # Reading back

    def resume(
        self, task: Ref | None | Unset = UNSET, *, since: int | None = None, budget: int = limits.BUDGET_DEFAULT
    ) -> Resume:
        """Everything needed to go on, within a budget of tokens: call it first, and after every loss of context.

        Args:
            task: A goal or step; by default the actor's task, or the project if there is none. None is the project.
            since: Only what changed after this seq, the `seq` of an earlier answer.
            budget: In tokens, from 300.
        """
        from agentmem.context.resume import resume

        with self._binding.reading() as view:
            found = self._chosen(view, task)
            after = validate.optional_cursor(since, "since")
            heard = self._news(view)
            answer = resume(view, found, after=after, budget=budget, counter=self._shared.counter, news=heard)
            self._hear(view)
            return answer

    def left(
        self,
        task: Ref | None | Unset = UNSET,
        *,
        type: str | None = None,
        limit: int = limits.PAGE,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Left:
        """What is not done: scope minus marks, open steps and items. Computed, with a denominator.

        Args:
            task: A goal or step; by default the actor's task, or the project if there is none. None is the project.
            type: Only the coverage of this type of entity.
            limit: At most so many entries in each list; the totals are of all.
            budget: Of the text, in tokens.

        Raises:
            NotFound: No entity, scope or declaration of the project is of the type; the nearest one is named.
        """
        from agentmem.context.left import left

        validate.page(limit)
        with self._binding.reading() as view:
            found = self._chosen(view, task)
            if type is not None:
                scopes.known_type(view, type, found)
            heard = self._news(view)
            answer = left(view, found, type=type, limit=limit, budget=budget, counter=self._shared.counter, news=heard)
            self._hear(view)
            return answer

    def _chosen(self, view: View, task: Ref | None | Unset) -> int | None:
        """The id of the task a reading is about, None for the project."""
        if isinstance(task, Unset):
            return self._binding.actor.task
        return None if task is None else note_id(view, task)

    def task_summary(self, task: Ref, *, budget: int = limits.BUDGET_DEFAULT) -> TaskSummary:
        """What a task and its parts come to: its summary, and those of everything beneath it."""
        from agentmem.context.parts import task_summary

        with self._binding.reading() as view:
            return task_summary(view, note_id(view, task), budget=budget, counter=self._shared.counter)

    def graph(
        self,
        ref: Ref,
        *,
        depth: int = limits.TREE_LEVELS,
        limit: int = limits.PAGE,
        after: int = 0,
        budget: int = limits.BUDGET_DEFAULT,
    ) -> Graph:
        """A note or entity with all beneath it, depth first, and the links from these.

        Args:
            ref: Where to start.
            depth: Levels beneath.
            limit: At most so many nodes.
            after: The `after` of the page before.
            budget: Of the text, in tokens.
        """
        from agentmem.context.parts import graph

        validate.page(limit)
        validate.cursor(after, "after")
        with self._binding.reading() as view:
            start, of = identify(view, ref)
            if of not in ("note", "entity"):
                raise InvalidInput(f"#{start} is a {of}", why="A graph starts at a note or an entity")
            levels = validate.whole(depth, "depth", 0, limits.TREE_LEVELS)
            return graph(
                view, start, of, depth=levels, limit=limit, after=after, budget=budget, counter=self._shared.counter
            )

    def get(self, ref: Ref) -> Record:
        """A record in full, whatever its type.

        Raises:
            NotFound: There is none; a number that is an event's says whose; or it was purged.
        """
        with self._binding.reading() as view:
            return load(view, *identify(view, ref))

    def find(
        self,
        query: str,
        *,
        kind: str | None = None,
        status: str | None = None,
        under: Ref | None = None,
        about: Ref | None = None,
        tag: str | None = None,
        project: str | None = None,
        limit: int = 10,
        after: str | None = None,
    ) -> Found:
        """Search by words: notes, entities, items, checkpoints, summaries. Nothing in the query is syntax.

        Args:
            query: All its words, else words that begin like them, else any; the answer says which.
            kind: A kind of note, or `entity`, `item`, `checkpoint`, `summary`.
            status: In this status.
            under: Beneath this note.
            about: About this entity.
            tag: With this tag.
            project: Another project, `"*"` for all.
            limit: At most so many.
            after: The `after` of the page before.
        """
        from agentmem.recall.find import find

        named = None if project is None else validate.project(project, everywhere=True)
        binding = self._binding if named in (None, "*") else attrs.evolve(self._binding, project=named)
        with binding.reading() as view:
            return find(
                view, query, kind=kind, status=status, under=under, about=about, tag=tag,
                everywhere=named == "*", limit=limit, after=after,
            )  # fmt: skip

    def news(self) -> tuple[str, ...]:
        """What the actor's task should hear since its last call, two lines at most; none without a task."""
        with self._binding.reading() as view:
            found = self._news(view)
            self._hear(view)
            return found

    def _news(self, view: View) -> tuple[str, ...]:
        """The news since the last answer that was given; nothing is taken as heard yet."""
        actor = self._binding.actor
        if actor.task is None:
            return ()
        before = self._shared.heard.get((actor.run, actor.task))
        if before is None:
            return ()
        from agentmem.context.news import news

        return news(view, actor.task, before)

    def _hear(self, view: View) -> None:
        """Take the news as heard, once the answer with it is made; not inside a transaction, whose seqs may be taken back."""
        actor = self._binding.actor
        if actor.task is None or self._shared.database.in_write():
            return
        with self._shared.lock:
            self._shared.heard[actor.run, actor.task] = view.seq

    # Writing

    def scope(self, type: str, *, where: str | None = None, checks: Sequence[str] = (), **parameters: Any) -> Scope:
        """What a task covers, for `scope=` of a goal or step.

        Args:
            type: The kind of entity.
            where: Only those that match; see `agentmem.records.where`.
            checks: What each needs; by default what is declared with `entities.expect`.
            parameters: The values of `:name` in `where`.
        """
        return scopes.make(type, where, checks, parameters)

    def checkpoint(self, text: str, *, task: Ref | None = None, request_id: str | None = None) -> Written:
        """Write where the work stands: doing, next, beware. For a task, by default the actor's, or the project."""
        return self._binding.run(
            "checkpoint", {"text": text, "task": task}, request_id, lambda unit: reports.checkpoint(unit, text, task)
        )

    def checkpoints(
        self, task: Ref | None | Unset = UNSET, *, limit: int = 20, before: int | None = None
    ) -> tuple[Checkpoint, ...]:
        """The checkpoints of the project and its tasks, newest first; continue with `before=` the last id.

        Args:
            task: Only those of a task; None for those of the project itself.
            limit: At most so many.
            before: Continue before the checkpoint of this id.
        """
        validate.page(limit)
        last = limits.INT_MAX if before is None else validate.cursor(before, "before")
        with self._binding.reading() as view:
            if isinstance(task, Unset):
                return reports.every_checkpoint(view, limit=limit, before=last)
            found = None if task is None else note_id(view, task)
            return reports.checkpoints(view, found, limit=limit, before=last)

    def summarize(
        self,
        task: Ref,
        *,
        work: str = "",
        result: str = "",
        status: Status | None = None,
        confidence: float | None = None,
        basis: str | None = None,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Write what a goal or step comes to and close it, in one transaction.

        Args:
            task: The goal or step.
            work: What was done.
            result: What came of it.
            status: `done` (for one that is open), `failed` or `dropped`.
            confidence: 0 to 1.
            basis: What it rests on.
            expected_revision: The revision of the task the caller has seen.
            request_id: Makes a retry safe.

        Returns:
            The summary's id. `notices` warn of what is open beneath and of closed parts without a summary. A second
            summary replaces the first, which stays in the log.
        """
        arguments = {
            "task": task, "work": work, "result": result, "status": status,
            "confidence": confidence, "basis": basis, "expected_revision": expected_revision,
        }  # fmt: skip

        def command(unit: Unit) -> Written:
            return reports.summarize(
                unit, task, work=work, result=result, status=status, confidence=confidence, basis=basis,
                expected=expected_revision,
            )  # fmt: skip

        return self._binding.run("summarize", arguments, request_id, command)

    def confirm(
        self,
        record: Ref,
        *,
        confidence: float | None | Unset = UNSET,
        basis: str | None | Unset = UNSET,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Say that a record still holds. A person's word (`origin="user"`) lifts an untrusted one out.

        Args:
            record: A note, an entity, an item or a summary.
            confidence: Of a note, a new one.
            basis: Of a note, a new one.
            expected_revision: The revision the caller has seen.
            request_id: Makes a retry safe.
        """
        arguments = {"record": record, "confidence": confidence, "basis": basis, "expected_revision": expected_revision}
        return self._binding.run(
            "confirm",
            arguments,
            request_id,
            lambda unit: confirmations.confirm(unit, record, confidence, basis, expected_revision),
        )

    # Claims

    def claim(
        self,
        refs: Iterable[Ref] | Ref | None = None,
        *,
        type: str | None = None,
        where: str | None = None,
        n: int = 1,
        seconds: int = limits.CLAIM_SECONDS,
        **parameters: Any,
    ) -> WrittenMany:
        """Take records for this run, all or none; or the next `n` entities that are free and match.

        A claim of one's own is renewed. The secret stays in this process: an agent that lost its context still holds it.

        Args:
            refs: Notes, entities, checklist items.
            type: Instead of refs: the type of the entities to take.
            where: Which of them.
            n: How many; fewer if fewer are free.
            seconds: How long; it lapses by itself.
            parameters: The values of `:name` in `where`.

        Raises:
            Held: One is held by another run; names holder and expiry.
        """
        lasting = claims.seconds_of(seconds)

        def command(unit: Unit) -> WrittenMany:
            if type is not None:
                if refs is not None:
                    raise InvalidInput("refs and type= exclude each other", next="Leave one of them out")
                return claim_writes.claim_next(unit, type, where, parameters, n, lasting)
            if refs is None:
                raise InvalidInput("Nothing to claim", next="Give refs, or type= and n=")
            return claim_writes.claim(unit, refs, lasting)

        return self._binding.run("claim", {}, None, command)

    def release(self, refs: Iterable[Ref] | Ref | None = None) -> WrittenMany:
        """Give claims back: of the records, or all of this run's. One that nobody holds is passed over."""
        return self._binding.run("release", {}, None, lambda unit: claim_writes.release(unit, refs))

    def claims(self, *, mine: bool = False) -> tuple[Claim, ...]:
        """The live claims of the store, or this run's own."""
        validate.flag(mine, "mine")
        with self._binding.reading() as view:
            found = claims.live(view)
            return tuple(claim for claim in found if claim.mine or not mine)

    def claim_token(self) -> str:
        """The secret of this run's claims, to hand to another process of the same run with `adopt_claims`."""
        return self._shared.leases.ensure(self._binding.actor.run).hex()

    def adopt_claims(self, token: str) -> None:
        """Continue the claims of another process of this run, by the token it gave."""
        self._shared.leases.adopt(self._binding.actor.run, claims.secret_of(token))

    # From and to other forms

    def import_(
        self,
        path: str | os.PathLike[str],
        *,
        origin: Literal["agent", "import"] = "agent",
        entities: Sequence[str] = (),
        dry_run: bool = False,
        budget: int = limits.BUDGET_DEFAULT,
        progress: Progress | None = None,
    ) -> Imported:
        """Read a file or folder of progress logs in Markdown, `task.json` and JSON Lines into the project.

        One transaction: all or nothing. A second import adds nothing; of a changed folder it updates what changed there
        and nobody changed here.

        Args:
            path: The file or folder. No link out of it is followed.
            origin: `agent` for one's own logs, `import` for others': their text is quoted wherever it is shown.
            entities: Types of things whose tables and lists become entities.
            dry_run: Roll back at the end: say what would happen.
            budget: Of the resume that the answer measures, in tokens.
            progress: Called with records done and records in all.

        Raises:
            NotFound: There is nothing at the path.
        """
        validate.choice(origin, "origin", ("agent", "import"))
        validate.flag(dry_run, "dry_run")
        types = validate.tokens(entities, "entity")
        if progress is not None:
            validate.callable_(progress, "progress")
        from agentmem.transfer import importer

        return importer.run(
            self._binding, path, origin=origin, entities=types, dry_run=dry_run, budget=budget,
            counter=self._shared.counter, progress=progress,
        )  # fmt: skip

    # The file

    def verify(self, *, replay: bool = False, independent: bool = False, head: Head | None = None) -> health.Verified:
        """Check the file: the hash chain always, more when asked.

        Args:
            replay: Also fold the log into an empty file in memory and compare every projection, row for row.
            independent: Also have stock SQLCipher check the HMAC of every page of a snapshot.
            head: A head noted earlier; the log must still contain exactly it.

        Raises:
            Corrupt: The chain is broken; names the event.
        """
        validate.flag(replay, "replay")
        validate.flag(independent, "independent")
        if head is not None:
            health.accepted_head(head)
        return health.verify(self._shared.ledger, replayed=replay, independent=independent, head=head)

    def wait_for_index(self, timeout: float | None = None) -> bool:
        """Wait until the full-text index is whole again, after a change of the analyser had it rebuilt.

        Args:
            timeout: Seconds to wait at most.

        Returns:
            Whether it is.
        """
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        if self._shared.reindexing is not None:
            self._shared.reindexing.join(timeout)
        with self._shared.database.read() as connection:
            return not reindex.outdated(connection)

    def stats(self) -> health.Stats:
        """Sizes of file and log, and how many records of each type."""
        with self._binding.reading() as view:
            return health.stats(view)

    def watch(
        self, *, after: int | None = None, kinds: Sequence[str] = (), timeout: float | None = None
    ) -> Iterator[Event]:
        """Events of the project as they are committed, by this process or another.

        Args:
            after: Begin after this seq; at the present end of the log if None.
            kinds: Only these kinds of event.
            timeout: End after so many seconds without an event; never if None.
        """
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        of_kinds = kinds_of(self._binding, kinds)
        last = self._shared.ledger.head().seq if after is None else validate.cursor(after, "after")
        return watched(self._binding, last, of_kinds, timeout)


def _actor(author: str | None, run: str | None, task: int | None, origin: str) -> Actor:
    chosen: Any = validate.choice(origin, "origin", ORIGINS)
    return Actor(validate.optional_label(author, "author"), validate.optional_label(run, "run"), task, chosen)


def _identify(connection: apsw.Connection) -> None:
    """Give a new file its identity; part of the transaction that makes it."""
    values = (("store", secrets.token_hex(16)), ("request_key", secrets.token_hex(32)), ("analyser", text.FINGERPRINT))
    for name, value in values:
        connection.execute("INSERT INTO meta (name, value) VALUES (?, ?)", (name, value))
