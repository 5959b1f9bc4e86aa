"""The verbs on the file as a whole."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from agentmem import limits
from agentmem.errors import Conflict
from agentmem.recall import reindex
from agentmem.records import validate
from agentmem.records.events import kinds_of, watched
from agentmem.store.shared import Facade
from agentmem.types import Event, Head
from agentmem.upkeep import health

if TYPE_CHECKING:
    from agentmem.engine.keys import Key
    from agentmem.past.merging import Policy
    from agentmem.transfer.copies import ImportedCopy
    from agentmem.transfer.dispatch import Progress
    from agentmem.transfer.export import Exported
    from agentmem.transfer.importer import Imported
    from agentmem.transfer.restore_log import ImportedLog
    from agentmem.types import Ref
    from agentmem.upkeep.backup import Backup
    from agentmem.upkeep.diagnosis import Diagnosis
    from agentmem.upkeep.rekey import Rekeyed
    from agentmem.upkeep.restore import Restored
    from agentmem.upkeep.salvage import Salvaged
    from agentmem.upkeep.sizes import Stats


class UpkeepVerbs(Facade):
    """From and to other forms, checks, sizes."""

    def import_(
        self,
        path: str | os.PathLike[str],
        *,
        origin: Literal["agent", "import"] = "agent",
        entities: Sequence[str] = (),
        collisions: Policy = "refuse",
        dry_run: bool = False,
        budget: int = limits.BUDGET_DEFAULT,
        progress: Progress | None = None,
    ) -> Imported | ImportedCopy | ImportedLog:
        """Read logs in Markdown, `task.json` and JSON Lines into the project, or an export of a store.

        Logs are one transaction, all or nothing. A second import adds nothing; of a changed folder it updates what changed
        there and nobody changed here.

        An export of a project or of what lies beneath a record comes in as a copy, also in one transaction: with new ids,
        in the project of this view, with who wrote what and where it came from. A second import adds only what the file
        has more; what was copied before is left as it is. References to records that the file does not have are left out
        and counted.

        An export of a whole log goes into an empty store, which becomes the exported one: same id, same events, same
        chain. It is proven first, then written in many transactions; one that was interrupted goes on when it is
        imported again. Claims and remembered requests do not come along.

        Args:
            path: The file or folder. No link out of a folder is followed.
            origin: `agent` for one's own, `import` for others': their text is quoted wherever it is shown.
            entities: Of Markdown: types of things whose tables and lists become entities.
            collisions: Of a copy: what to do about an entity whose type and key are in the project already, and about
                expected checks that differ: `refuse`; `keep_both`, the copy under another key; or `merge`, which adds to
                the one here the attributes it lacks and the marks that are newer.
            dry_run: Write nothing: say what would happen. Of a whole log: only prove it.
            budget: Of Markdown: of the resume that the answer measures, in tokens.
            progress: Called with what is done and how much there is.

        Raises:
            NotFound: There is nothing at the path.
            Corrupt: An export is damaged; names the line. Nothing of it was kept.
            NewerFile: A later version wrote the export.
            Conflict: An entity is there already; or a whole log does not fit what the store holds.
            Held: An entity that would be changed is claimed by somebody else.
        """
        self._unlimited("An import writes wherever it has to")
        self._of_all("An import is of whatever it finds")
        validate.choice(origin, "origin", ("agent", "import"))
        validate.choice(collisions, "collisions", ("refuse", "keep_both", "merge"))
        validate.flag(dry_run, "dry_run")
        types = validate.tokens(entities, "entity")
        if progress is not None:
            validate.callable_(progress, "progress")
        from agentmem.transfer import dispatch

        return dispatch.run(
            self._binding, validate.path(path), origin=origin, entities=types, collisions=collisions, dry_run=dry_run,
            budget=budget, counter=self._shared.counter, progress=progress,
        )  # fmt: skip

    def export(
        self,
        path: str | os.PathLike[str],
        *,
        under: Ref | None = None,
        project: str | None = None,
        progress: Progress | None = None,
    ) -> Exported:
        """Write the log into a new file as JSON Lines, an event a line, while others go on writing.

        By default all of it, lossless: `import_` makes the same store of it again. With `under` or `project`, the events
        of those records, which `import_` copies into any store. The file is plain text that anybody who can read it can
        read; it is readable by its owner alone, durable, and appears whole or not at all.

        An export of the whole log that was interrupted leaves a hidden file `.<name>.partial` beside its name, and goes on
        with it when it is asked for again. One that meets a purge begins anew: what was purged is in no finished export.
        A view of the past exports what there was then.

        Args:
            path: The new file.
            under: A note or an entity: it, all beneath it, and what belongs to these: checklists, summaries, checkpoints,
                marks, links; also the entities that these notes are about.
            project: All of a project, by its name.
            progress: Called with events done and events in all.

        Raises:
            StoreExists: There is something at the path.
            NotFound: There is no such record or project.
            Corrupt: The log is damaged; names the event.
            Conflict: Inside a transaction; or one purge came after another.
            Busy: Another export to this path is going on.
            DiskFull, IoFailed: The file could not be written.
        """
        self._unlimited("An export gives all of it away")
        self._of_all("An export gives all of it away")
        named = None if project is None else validate.project(project)
        if progress is not None:
            validate.callable_(progress, "progress")
        from agentmem.transfer import export

        return export.export(self._binding, validate.path(path), under=under, project=named, progress=progress)

    def verify(self, *, replay: bool = False, independent: bool = False, head: Head | None = None) -> health.Verified:
        """Check the file: hash chain, structure of its pages, every row of the full-text index; more when asked.

        Args:
            replay: Also fold the log into an empty file in memory and compare every projection, row for row.
            independent: Also have stock SQLCipher check the HMAC of every page of a snapshot.
            head: A head noted earlier; the log must still contain exactly it.

        Raises:
            Corrupt: The chain is broken; names the event.
        """
        self._of_all("What is verified is all of it")
        validate.flag(replay, "replay")
        validate.flag(independent, "independent")
        if head is not None:
            health.accepted_head(head)
        return health.verify(self._shared.ledger, replayed=replay, independent=independent, head=head)

    def backup(self, path: str | os.PathLike[str], *, key: Key | None = None) -> Backup:
        """Copy the store into a new file while others go on writing: one snapshot of what is committed.

        The copy is checked before it gets its name: every page and the structure by stock SQLCipher, another build, and
        the hash chain. It is durable, readable by its owner alone, and appears whole or not at all.

        Args:
            path: The new file.
            key: A key for the copy, 32 bytes or a passphrase; the store's own if None.

        Raises:
            StoreExists: There is something at `path`, or a left-over of another database beside it.
            StoreMissing: There is no such directory.
            Corrupt: The store is damaged; nothing was kept.
            Conflict: A transaction of this thread is open: what it wrote would not be in the copy.
            DiskFull: There is no room for it.
            InvalidInput: The key has no accepted form, or the store is not encrypted.
        """
        self._unlimited("A backup is a copy of all of it")
        self._of_all("A backup is a copy of all of it")
        from agentmem.upkeep.backup import backup

        return backup(self._shared.ledger, validate.path(path), key=key)

    @classmethod
    def restore(
        cls,
        source: str | os.PathLike[str],
        path: str | os.PathLike[str],
        *,
        key: Key | None = None,
        new_key: Key | None = None,
    ) -> Restored:
        """Make a new store of a backup, or of any store, and check it as `backup` does. The source is only read.

        The new file goes on where the source ended: the same log, ids and remembered requests. Claims are void.

        Args:
            source: The backup. It may lie on read-only media, and may be in use.
            path: The new file, never one that exists.
            key: The key of the source; looked for where `open` does if None.
            new_key: A key for the new file; the source's own if None.

        Raises:
            StoreExists: There is something at `path`, or a left-over of another database beside it, which is named.
            StoreMissing: There is no source, or no directory for the new file.
            KeyMissing, WrongKey: No key, or not the source's.
            Corrupt: The source is damaged, or its schema is not that of a store; nothing was kept.
            InvalidInput: A key for a plain source.
            NotAStore, NewerFile: The source is something else, or a later version's.
            NetworkFileSystem: The new file would lie where its locks can't be trusted.
            DiskFull: There is no room for it.
        """
        from agentmem.upkeep.restore import restore

        return restore(validate.path(source), validate.path(path), key=key, new_key=new_key)

    def rekey(
        self, key: Key | None = None, *, key_file: str | os.PathLike[str] | None = None, keyring: bool = False
    ) -> Rekeyed:
        """Encrypt the file anew with another key, and check it with that.

        A kill at any moment leaves it with exactly one of the two keys. The new one is stored durably before the first page
        changes, and no key is ever removed: the former one opens the backups made before. Other processes that have the
        store open go on if they find the new key by themselves, else they get `KeyChanged`. Without any argument a new raw
        key goes into a key file of this store in the user's configuration directory, where every opening looks.

        Args:
            key: 32 bytes, a passphrase, or a callable that gives one; you keep it.
            key_file: Put a new raw key there. There must be nothing yet.
            keyring: Put a new raw key into the operating system's keyring.

        Raises:
            InvalidInput: A plain store, more than one of the arguments, or no acceptable key.
            ReadOnly: The store was opened for reading.
            Conflict: Inside a transaction; or there is something at `key_file`.
            DiskFull: Less is free than the size of the file. Nothing was changed.
            MissingExtra: The package `keyring` is not installed.
        """
        self._unlimited("A new key is for the whole file")
        self._of_all("A new key is for the whole file")
        validate.flag(keyring, "keyring")
        from agentmem.upkeep import rekey

        given = None if key_file is None else validate.path(key_file, "key_file")
        return rekey.rekey(self._shared.ledger, key, key_file=given, keyring=keyring)

    @classmethod
    def salvage(
        cls,
        path: str | os.PathLike[str],
        to: str | os.PathLike[str],
        *,
        key: Key | None = None,
        new_key: Key | None = None,
        remainder: str | os.PathLike[str] | None = None,
        head: Head | None = None,
        salt_from: str | os.PathLike[str] | None = None,
    ) -> Salvaged:
        """Make a new store of what can be read of a damaged one: its log, as far as the chain holds, replayed.

        The damaged file is only read. It may lack its first page or inner pages, be cut, or have blank or changed pages:
        each event that lies on a sound page is found. The new store is the same store, with its id, ids of records and
        remembered requests; claims are void.

        Args:
            path: The damaged file. Its first 16 bytes, the salt, must be sound, or `salt_from` given.
            to: The new file, never one that exists.
            key: The key of the damaged file; looked for where `open` does if None.
            new_key: A key for the new file; the damaged one's if None.
            remainder: A new file for the later events that can be read, one JSON object a line, **not encrypted**,
                readable by its owner alone; `seq` to `session_chain` as they were stored, `texts` the long texts in them.
            head: A head that was noted earlier: says which store it is where the file has forgotten, and the log is taken
                only as far as it agrees with it.
            salt_from: A backup of the store that opens with the same key, where the first 16 bytes of the damaged file are
                lost: they are the same in both. Nothing else of it is read.

        Raises:
            InvalidInput: `remainder` and `to` are one file; or `salt_from` has no salt.
            StoreExists: There is something at `to` or `remainder`, or a left-over of another database beside `to`.
            StoreMissing: There is no such directory.
            KeyMissing, WrongKey: No key, or no page of the file is authentic under it.
            NotAStore: The file is empty, too short, or something else.
            Corrupt: The file has forgotten which store it is, and no head tells; or its very first event is lost, and
                only the remainder was written, if asked for.
            NewerFile: A later version of agentmem wrote it.
            DiskFull: There is no room; it takes that of the damaged file twice.
        """
        if head is not None:
            health.accepted_head(head)
        from agentmem.upkeep.salvage import salvage

        rest = None if remainder is None else validate.path(remainder, "remainder")
        salt = None if salt_from is None else validate.path(salt_from, "salt_from")
        return salvage(
            validate.path(path), validate.path(to, "to"), key=key, new_key=new_key, remainder=rest, head=head,
            salt_from=salt,
        )  # fmt: skip

    @classmethod
    def doctor(cls, path: str | os.PathLike[str], *, key: Key | None = None, repair: bool = False) -> Diagnosis:
        """Examine a file from outside in, also one that does not open: what is wrong, whether the data is safe, what to do.

        It looks at the place and its file system, left-overs of killed processes, who uses the file and how much waits in
        the write-ahead log; whether the key is the right one, by whatever pages are sound; every page and every frame of
        the log against its HMAC, and what damaged ones belong to; structure and schema; the chain; tables and full-text
        index against the log; a purge that is pending. Others may have the file open.

        Args:
            path: The file.
            key: Its key; looked for where `open` does if None.
            repair: Make anew what is derived, from the log, and take away what killed processes left. Refused where the
                log itself is not whole: nothing ever changes the log. Where pages are damaged a new file is made of it,
                which takes the old one's name; the old one is kept as `<name>.damaged`, where no later purge reaches it.
                Nobody may have it open then.

        Returns:
            What was found; after a repair what was done, and what is left.
        """
        validate.flag(repair, "repair")
        from agentmem.upkeep.doctor import doctor

        return doctor(validate.path(path), key=key, repair=repair)

    def wait_for_index(self, timeout: float | None = None, *, progress: Progress | None = None) -> bool:
        """Wait until everything committed by now is found by words and by meaning.

        The full-text index is made anew in the background after a change of the analyser. Vectors are made in the
        background for what was written; here that is begun, and waited for whoever does it. What is newer than the call is
        not waited for. A store that was opened for reading only looks.

        Args:
            timeout: Seconds to wait at most; what was done until then stays done.
            progress: Called with events whose texts are embedded and events in all.

        Returns:
            Whether it is so. Not where the model is missing or fails, which `stats` and `recall` explain, or where the
            vectors are of another embedder. Without an embedder words alone count.

        Raises:
            Conflict: Inside a transaction, where nobody else can write.
        """
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        if progress is not None:
            validate.callable_(progress, "progress")
        shared = self._shared
        if shared.database.in_write():
            raise Conflict(
                "The index can't be waited for inside a transaction",
                why="It is made by others, who can't write before the transaction is over",
                next="Wait after the block.",
            )
        begun = time.monotonic()
        if shared.reindexing is not None:
            shared.reindexing.join(timeout)
        left = None if timeout is None else max(0.0, begun + timeout - time.monotonic())
        embedded = shared.meaning.wait(left, progress)
        with shared.database.read() as connection:
            return embedded and not reindex.outdated(connection)

    def stats(self, *, log: bool = False, tables: bool = False) -> Stats:
        """Sizes of the file and its write-ahead log, the first and last event, records of each type, how many have vectors.

        Args:
            log: Also events and bytes by project and kind. Reads the whole log.
            tables: Also bytes by table and index. Reads every page of the file.
        """
        from agentmem.recall import embedding
        from agentmem.upkeep.sizes import stats

        self._of_all("These numbers are of all subjects")
        validate.flag(log, "log")
        validate.flag(tables, "tables")
        failed, codes_bytes = self._shared.embedding()
        with self._binding.reading() as view:
            waiting = embedding.pending(view.connection)
            return stats(
                view, log=log, tables=tables, waiting=waiting, embedding_failed=failed, codes_bytes=codes_bytes
            )

    def watch(
        self, *, after: int | None = None, kinds: Sequence[str] = (), timeout: float | None = None
    ) -> Iterator[Event]:
        """Events of the project as they are committed, by this process or another.

        Args:
            after: Begin after this seq; at the present end of the log if None.
            kinds: Only these kinds of event.
            timeout: End after so many seconds without an event; never if None.
        """
        self._of_all("The log is of all subjects; a session can be watched")
        if timeout is not None:
            validate.seconds(timeout, "timeout")
        of_kinds = kinds_of(self._binding, kinds)
        last = self._shared.ledger.head().seq if after is None else validate.cursor(after, "after")
        return watched(self._binding, last, of_kinds, timeout)
