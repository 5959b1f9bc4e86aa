"""An examination of a file from outside in, which goes on as far as the file lets it: also where it does not open."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import apsw

from agentmem.engine.connection import cipher_check
from agentmem.engine.database import Database
from agentmem.engine.faults import translated
from agentmem.engine.files import wal_readers
from agentmem.engine.keys import SALT_BYTES, Key
from agentmem.engine.migrations import SCHEMA
from agentmem.engine.pages import first_page
from agentmem.engine.scan import Scan, runs, scan, waiting
from agentmem.errors import AgentMemError, Corrupt, KeyMissing, NewerFile, NotAStore, ReadOnly, WrongKey, shown
from agentmem.log import replay
from agentmem.log.check import ChainCheck, check_some
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Head
from agentmem.upkeep import health
from agentmem.upkeep.copies import quiet, real_path, store_id
from agentmem.upkeep.diagnosis import Diagnosis, Finding, Severity, of_error
from agentmem.upkeep.proof import Proven, ends_early, prove
from agentmem.upkeep.surroundings import around, pids_told, place
from agentmem.upkeep.trees import Hit, hits, schema_differences

__all__ = ["Examination", "doctor"]

_SALVAGE: Final = "Restore a backup, or have Store.salvage read what is left into a new file."
_REPAIR: Final = "A repair makes it anew from the log, where that is whole."
_SALT: Final = (
    "A backup of this store that opens with the same key begins with the same 16 bytes: Store.salvage takes them from it"
    " with salt_from=."
)
_ORDER: Final = {Severity.FAULT: 0, Severity.WARNING: 1, Severity.NOTE: 2}


def doctor(path: str | os.PathLike[str], *, key: Key | None = None, repair: bool = False) -> Diagnosis:
    """Examine a file, also one that does not open; see `Store.doctor`."""
    cipher_check()
    real = real_path(path)
    examination = _examined(real, key)
    if not repair:
        return examination.diagnosis()
    from agentmem.upkeep.repair import mend

    repaired, refused = mend(examination)
    after = _examined(real, key)
    after.findings += refused
    return after.diagnosis(tuple(repaired))


def _examined(path: Path, key: Key | None) -> Examination:
    """One look at a file, and another with locks if it was taken for one that nobody has open, and somebody had."""
    before = quiet(path)
    examination = Examination(path, key, frozen=before is not None)
    examination.run()
    if before is not None and quiet(path) != before:
        examination = Examination(path, key, frozen=False)
        examination.run()
    return examination


class Examination:
    """One look at a file.

    Attributes:
        path: The file, without symbolic links.
        key: The key that was given.
        findings: What was found.
        examined: What was looked at to the end.
        proven: The key, once pages have proven it.
        scan: What the bytes of the file tell.
        hit: What the damaged pages belong to, where that can be told.
        structure: What SQLite says is wrong with trees and tables, without the full-text index.
        differing: What of the schema is not as it should be.
        index: What is wrong with the full-text index.
        vectors: What is wrong with the vectors.
        replayed: Where projections and texts differ from the log.
        short: Whether the file ends before the last page that its first page tells of.
        head: The end of the log, if its chain holds.
    """

    def __init__(self, path: Path, key: Key | None, *, frozen: bool) -> None:
        """Look at nothing yet; `frozen` says that nobody has the file open."""
        self.path, self.key, self.frozen = path, key, frozen
        self.findings: list[Finding] = []
        self.examined: list[str] = []
        self.proven: Proven | None = None
        self.scan: Scan | None = None
        self.hit: Hit | None = None
        self.structure: list[str] = []
        self.differing: list[str] = []
        self.index: list[str] = []
        self.vectors: list[str] = []
        self.replayed: list[str] = []
        self.head: Head | None = None
        self.short = False

    def run(self) -> None:
        """Look at everything, from outside in, until something bars the way."""
        barred = place(self.path)
        if barred is not None:
            self.findings.append(barred)
            self.examined.append("surroundings")
            return
        self._key()
        if self.proven is not None:
            self.scan = scan(self.path, self.proven.raw)
        self.findings += around(self.path, waiting=0 if self.scan is None else waiting(self.path, self.scan.wal))
        self.examined.append("surroundings")
        if self.proven is None or self.scan is None:
            return
        self.examined += ["key", "pages", "wal"]
        self.findings += self._wal(self.scan)
        self._inside(self.proven)
        self.findings += self._pages(self.scan, self.proven)

    def diagnosis(self, repaired: tuple[str, ...] = ()) -> Diagnosis:
        """What was found, faults first."""
        found = sorted(self.findings, key=lambda finding: _ORDER[finding.severity])
        return Diagnosis(self.path, tuple(found), tuple(self.examined), self.head, repaired)

    def add(self, code: str, severity: Severity, what: str, next: str, *, safe: bool = True) -> None:
        """One more finding."""
        self.findings.append(Finding(code, severity, what, safe, next))

    # From outside

    def _key(self) -> None:
        try:
            self.proven = prove(self.path, self.key)
        except WrongKey as error:
            self._unproven(error)
        except (KeyMissing, NotAStore) as error:
            self.findings.append(of_error(error, safe=isinstance(error, KeyMissing)))
        except AgentMemError as error:  # a key of no accepted form, a key file that others may read
            self.findings.append(of_error(error, safe=True))
        else:
            if self.proven.raw is None:
                self.add("not_encrypted", Severity.NOTE, "The file is not encrypted.", "")

    def _unproven(self, error: WrongKey) -> None:
        lost = not any(first_page(self.path)[:SALT_BYTES])
        if not lost:
            what = (
                "No page of the file is authentic under the key: it is the wrong one, or the file is no store of agentmem,"
                " or its first 16 bytes were changed, without which no key fits."
            )
            next = f"Check where the key comes from: `agentmem key where` says it. {_SALT}"
        else:
            what = (
                "The first 16 bytes of the file, the salt without which no key fits, are zeros: so whether the key is the"
                " right one, and what else is damaged, can't be told."
            )
            next = _SALT
        self.add(error.code, Severity.FAULT, what, next, safe=not lost)

    def _wal(self, found: Scan) -> Iterator[Finding]:
        wal = found.wal
        if wal.header_damaged:
            what = "The write-ahead log has a damaged header, so SQLite takes it for empty: what was in it is lost."
            yield Finding("wal_damaged", Severity.FAULT, what, safe=False, next=_SALVAGE)
        if wal.unreachable:
            what = (
                f"The write-ahead log holds {wal.unreachable} commits behind a frame that fails: SQLite passes over them."
                " A power cut does that to a store opened with durability='normal'; else the log was damaged."
            )
            yield Finding("wal_broken", Severity.FAULT, what, safe=False, next="Compare with a head noted elsewhere.")
        if wal.damaged:
            what = f"In the write-ahead log the images of pages {runs(wal.damaged)} are not authentic under the key."
            yield Finding("wal_damaged", Severity.FAULT, what, safe=False, next=_SALVAGE)

    def _pages(self, found: Scan, proven: Proven) -> Iterator[Finding]:
        if found.rest or self.short:
            what = (
                f"The file ends after {found.pages} pages, and its first page tells of more: it was cut."
                if self.short
                else f"The file ends {found.rest} bytes behind its last whole page: it was cut, or something was appended."
            )
            yield Finding("file_cut", Severity.FAULT, what, safe=False, next=_SALVAGE)
        if not proven.first_page:
            alone = found.damaged == (1,)
            what = "The first page is damaged, so the file does not open; the key is right, as other pages prove."
            yield Finding("first_page_damaged", Severity.FAULT, what, alone, _SALVAGE)
        if found.damaged:
            yield self._damaged(found)

    def _damaged(self, found: Scan) -> Finding:
        hit = self.hit
        blank = f", {found.blank} of them blank" if found.blank else ""
        what = f"{len(found.damaged)} of {found.pages} pages are not authentic{blank}: {runs(found.damaged)}."
        if hit is None or not hit.told:
            return Finding("page_damaged", Severity.FAULT, what, safe=found.damaged == (1,), next=_SALVAGE)
        if hit.names:
            what += f" They belong to {', '.join(hit.names)}."
        if not hit.names:
            what += " They hold nothing."
        if hit.derived:
            return Finding("page_damaged", Severity.FAULT, what, safe=True, next=_REPAIR)
        return Finding("page_damaged", Severity.FAULT, what, safe=False, next=_SALVAGE)

    # Inside

    def _inside(self, proven: Proven) -> None:
        with ExitStack() as stack:
            try:
                database = stack.enter_context(self._opened(proven))
            except NewerFile as error:
                self.findings.append(of_error(error, safe=True))
                return
            except ReadOnly as error:
                self.findings.append(of_error(error, safe=True))
                return
            except AgentMemError as error:
                if proven.first_page:
                    self.short = isinstance(error, Corrupt) and ends_early(self.path, proven.raw, self.scan)
                    self._unreadable("does not open", error)
                return
            self._part("schema", lambda: self._schema(database))
            if self.scan is not None and self.scan.lost:
                # After a page that fails SQLite finds fault with every other: its own check would say nothing.
                self.hit = hits(database, self.scan.lost)
            else:
                self._part("structure", lambda: self._structure(database))
            self._part("chain", lambda: self._chain(database))
            if self.head is not None:
                self._part("replay", lambda: self._replay(database))
            self._part("index", lambda: self._index(database))
            self._part("vectors", lambda: self._vectors(database))
            self._part("purge", lambda: self._purge(database))

    def _opened(self, proven: Proven) -> Database:
        return Database.open(
            self.path,
            schema=SCHEMA,
            functions=FUNCTIONS,
            key=None if proven.found is None else proven.found.material,
            create=False,
            read_only=True,
            encrypted=proven.found is not None,
            frozen=self.frozen,
        )

    def _part(self, name: str, look: Callable[[], None]) -> None:
        """Look at one thing; where a page bars the way that is a finding."""
        try:
            look()
        except AgentMemError as error:
            self._unreadable(f"could not be looked at for its {name}", error)
        except UnicodeDecodeError:
            # A page that the file ends in is read as if zeros followed, and no HMAC is asked of it.
            self._unreadable(f"could not be looked at for its {name}", Corrupt("A text is no text any more"))
        except apsw.Error as error:
            typed = translated(error, self.path)
            if typed is None and isinstance(error, apsw.SQLError) and self.differing:
                typed = Corrupt(str(error))  # what the statement asks for is among what is missing or not of ours
            if typed is None:
                raise
            self._unreadable(f"could not be looked at for its {name}", typed)
        else:
            self.examined.append(name)

    def _unreadable(self, what: str, error: AgentMemError) -> None:
        derived = self.hit is not None and self.hit.told and self.hit.derived
        next = _REPAIR if derived else _SALVAGE
        self.add("unreadable", Severity.FAULT, f"The file {what}: {error.why or error.what}.", next, safe=derived)

    def _structure(self, database: Database) -> None:
        with database.read(long=True) as connection:
            lines = health.pages_checked(connection)
        self.index += [line for line in lines if "fts5" in line.casefold()]
        broken = [line for line in lines if "fts5" not in line.casefold()]
        self.structure += broken
        for line in broken:
            # Pages that are all authentic and do not fit together are of several moments: a copy made in parts, a write
            # that never reached the disk. What else is missing then nothing tells.
            self.add("structure", Severity.FAULT, f"SQLite finds: {shown(line)}.", _REPAIR, safe=False)

    def _schema(self, database: Database) -> None:
        with database.read() as connection:
            self.differing = schema_differences(connection)
        if self.differing:
            self.structure += self.differing
            some = ", ".join(shown(name) for name in self.differing[:5])
            more = ", …" if len(self.differing) > 5 else ""
            what = f"Tables, indexes or triggers are not as this version makes them: {some}{more}."
            self.add("schema_differs", Severity.FAULT, what, _REPAIR)

    def _chain(self, database: Database) -> None:
        with database.read() as connection:
            check = ChainCheck(store_id(connection))
        more = True
        try:
            while more:
                with database.read() as connection:
                    more = check_some(check, connection)
        except AgentMemError as error:
            what = f"The log is whole up to event {check.seq} and no further. {error.why or error.what}."
            self.add("chain_broken", Severity.FAULT, what, _SALVAGE, safe=False)
        else:
            ended = self._ended(database)
            if ended:
                self.add("chain_broken", Severity.FAULT, f"{ended.capitalize()}.", _SALVAGE, safe=False)
            else:
                self.head = check.end()

    def _ended(self, database: Database) -> str:
        """Whether tables tell of later events; what of them can't be read tells nothing."""
        try:
            with database.read() as connection:
                return health.log_ended(connection)
        except Corrupt:
            if self.scan is None or not self.scan.lost:
                raise
            return ""

    def _replay(self, database: Database) -> None:
        with database.read(long=True) as connection:
            self.replayed = replay.differences(connection, KINDS, FUNCTIONS) + health.texts_counted(connection)
        if self.replayed:
            some = "; ".join(self.replayed[:3])
            what = f"Tables differ from what the log says: {some}{'; …' if len(self.replayed) > 3 else ''}."
            self.add("replay_differs", Severity.FAULT, what, _REPAIR)

    def _index(self, database: Database) -> None:
        with database.read() as connection:
            self.index += health.index_counted(connection)
        self.index += health.index_compared(database)
        if self.index:
            some = "; ".join(self.index[:3])
            what = f"The full-text index is not that of the records: {some}{'; …' if len(self.index) > 3 else ''}."
            self.add("index_differs", Severity.FAULT, what, _REPAIR)

    def _vectors(self, database: Database) -> None:
        with database.read() as connection:
            self.vectors = health.vectors_checked(connection)
        if self.vectors:
            some = "; ".join(self.vectors[:3])
            what = f"The vectors are not those of the records: {some}{'; …' if len(self.vectors) > 3 else ''}."
            next = "A repair lets go of them all; whoever opens the store with a model makes them anew."
            self.add("vectors_differ", Severity.FAULT, what, next)

    def _purge(self, database: Database) -> None:
        with database.read() as connection:
            row = connection.execute("SELECT value FROM meta WHERE name = 'purge'").fetchone()
        if row is not None:
            readers = wal_readers(self.path)
            who = f": {pids_told(readers)} is reading" if readers else ""
            what = (
                f"A purge is pending: what was purged may still be in the file or its write-ahead log{who}. Either somebody"
                " was reading, or the disk had no room; nothing is lost."
            )
            next = "End long readings, or make room on the disk: a later write finishes it."
            self.add("purge_pending", Severity.WARNING, what, next)
