"""The plan of an import: what a folder of Markdown logs would become, before anything is written.

A plan is pure data. It names every record by its `SourceKey`, so that a second import finds the
records of the first, and carries a digest of every record's content, so that unchanged ones are left alone.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from attrs import evolve, field, frozen

from agentmem.types import CheckResult, NoteKind

__all__ = [
    "CLOSED",
    "Dated",
    "NoteKind",
    "Plan",
    "PlannedCheckpoint",
    "PlannedEntity",
    "PlannedItem",
    "PlannedNote",
    "PlannedSummary",
    "ReportKind",
    "ReportLine",
    "SourceFile",
    "SourceKey",
]

Dated = dt.datetime | dt.date
ReportKind = Literal["made", "broken", "skipped", "placeholder", "status", "cut", "hint"]

CLOSED: Final = frozenset({"done", "failed", "dropped"})
"""The statuses of a goal or a step that leave nothing to do."""


@frozen(order=True)
class SourceKey:
    """Where a record comes from, and by which it is known again.

    Args:
        path: The file, relative to the root of the import, with `/`.
        headings: The headings down to the record, status markers taken off, the title of a list item or a table
            row last where the record is one. Empty for the file itself.
        ordinal: Zero-based, among records of the same path and headings.
    """

    path: str
    headings: tuple[str, ...] = ()
    ordinal: int = 0

    def __str__(self) -> str:
        """One line for people: `plan.md › Phase 1 › Setup`."""
        line = " › ".join((self.path, *self.headings))
        return f"{line} ({self.ordinal + 1})" if self.ordinal else line

    def to_token(self) -> str:
        """The key as one canonical string; `from_token` reads it back."""
        return json.dumps([self.path, list(self.headings), self.ordinal], ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_token(cls, token: str) -> SourceKey:
        """The key that `to_token` wrote."""
        path, headings, ordinal = json.loads(token)
        return cls(path, tuple(headings), ordinal)


@frozen
class PlannedItem:
    """One box of a checklist.

    Args:
        text: What is to be done, at most `limits.ITEM_CHARS`.
        done: Whether the box was ticked.
        depth: How deep it was nested below other boxes, zero at the top.
    """

    text: str
    done: bool = False
    depth: int = 0


@frozen(kw_only=True)
class PlannedNote:
    """One note to be.

    Args:
        source: Its identity.
        kind: The kind of note. It never depends on whether a task is open, so a later import only changes values.
        title: At most `limits.TITLE_CHARS`; a cut one ends in `…` and is whole in the body.
        body: Markdown as it stood, at most `limits.BODY_BYTES`.
        status: One of the statuses of its kind.
        parent: The note above it, always earlier in `Plan.notes`; None at the top. A goal has none.
        tags: Labels, priority (`p0` to `p3`) among them.
        dated: When the source says it was written, None where it says nothing.
        why: The reason: why an attempt failed, why a thing is not done or was decided.
        checklist: Its boxes in order, nested ones flattened.
        closed_unticked: Of a closed task: how many boxes in and beneath it were never ticked.
        line: The one-based line in the file where it begins.
    """

    source: SourceKey
    kind: NoteKind
    title: str
    body: str = ""
    status: str = "open"
    parent: SourceKey | None = None
    tags: tuple[str, ...] = ()
    dated: Dated | None = None
    why: str = ""
    checklist: tuple[PlannedItem, ...] = ()
    closed_unticked: int = 0
    line: int = 1

    @property
    def priority(self) -> str | None:
        """`p0` to `p3`, or None."""
        return next((tag for tag in self.tags if tag in ("p0", "p1", "p2", "p3")), None)

    @property
    def digest(self) -> str:
        """The content as 32 hexadecimal digits: equal digests mean that nothing is to be written."""
        return _digest(
            self.kind,
            self.title,
            self.body,
            self.status,
            self.parent.to_token() if self.parent else None,
            sorted(self.tags),
            self.dated.isoformat() if self.dated else None,
            self.why,
            [[item.text, item.done, item.depth] for item in self.checklist],
            self.closed_unticked,
        )


@frozen(kw_only=True)
class PlannedEntity:
    """One thing of a kind, from a row or a list item.

    Args:
        source: Where it stood; the identity of an entity is its type and key.
        type: As asked for.
        key: At most `limits.KEY_CHARS`.
        attrs: The other columns by name; text, numbers where a cell is one.
        status: A token; None where no status column gives one.
        checks: Results by check, from columns that hold nothing but results.
        needs: The checks of the tables in which it stands, blank cells included, sorted: what it is to be checked for.
    """

    source: SourceKey
    type: str
    key: str
    attrs: dict[str, str | int | float] = field(factory=dict)
    status: str | None = None
    checks: dict[str, CheckResult] = field(factory=dict)
    needs: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The content as 32 hexadecimal digits."""
        return _digest(self.type, self.key, self.attrs, self.status, self.checks, self.needs)


@frozen
class PlannedSummary:
    """What a finished task came to, as the log itself sums it up."""

    of: SourceKey
    work: str
    result: str

    @property
    def digest(self) -> str:
        """The content as 32 hexadecimal digits."""
        return _digest(self.work, self.result)


@frozen
class PlannedCheckpoint:
    """Where the work stands, by the newest journal or hand-over.

    Args:
        text: At most `limits.CHECKPOINT_BYTES`.
        task: The goal or step it speaks of, None for the whole project.
        dated: When it was written.
        source: The section it was read from.
    """

    text: str
    task: SourceKey | None
    dated: Dated | None
    source: SourceKey

    @property
    def digest(self) -> str:
        """The content as 32 hexadecimal digits."""
        return _digest(self.text, self.task.to_token() if self.task else None)


@frozen
class ReportLine:
    """One thing a person should know about the import.

    Args:
        kind: `made`: what became what; `broken`: read as text; `skipped`: not read; `placeholder`: a template's text,
            left out; `status`: sources disagreed; `cut`: too much of a kind, left in the text; `hint`: good to know.
        text: One sentence.
        path: The file it concerns, empty for the whole.
        count: How many things it stands for.
    """

    kind: ReportKind
    text: str
    path: str = ""
    count: int = 1

    def __str__(self) -> str:
        """`path: text`, or the text alone."""
        return f"{self.path}: {self.text}" if self.path else self.text


@frozen
class SourceFile:
    """One file that was read.

    Args:
        path: Relative to the root, with `/`.
        digest: SHA-256 of its bytes, 32 hexadecimal digits.
        chars: Characters of its text.
        kind: What it was taken for: `task`, `plan`, `journal`, `doc`, `entries`, `data`.
    """

    path: str
    digest: str
    chars: int
    kind: str


@frozen(kw_only=True)
class Plan:
    """Everything an import would write, parents before children, siblings in the order of the source.

    Args:
        root: The folder all paths are relative to.
        notes: The notes, each parent before its children.
        entities: One for each type and key; the newest file wins where several name it.
        summaries: Of notes in `notes`.
        checkpoints: The oldest first.
        report: What became what, and what did not.
        files: The files that were read.
    """

    root: Path
    notes: tuple[PlannedNote, ...] = ()
    entities: tuple[PlannedEntity, ...] = ()
    summaries: tuple[PlannedSummary, ...] = ()
    checkpoints: tuple[PlannedCheckpoint, ...] = ()
    report: tuple[ReportLine, ...] = ()
    files: tuple[SourceFile, ...] = ()

    @property
    def items(self) -> tuple[tuple[SourceKey, PlannedItem], ...]:
        """Every box with the note it belongs to."""
        return tuple((note.source, item) for note in self.notes for item in note.checklist)

    @property
    def chars(self) -> int:
        """Characters of all the files that were read."""
        return sum(file.chars for file in self.files)

    def raw_texts(self) -> Iterator[str]:
        """The text of each file, read again from disk one at a time, for counting its tokens.

        A file that has gone or changed its encoding since the plan was made counts as empty.
        """
        from .files import read_text

        for file in self.files:
            yield read_text(self.root / file.path) or ""

    def lines(self, kind: ReportKind) -> tuple[ReportLine, ...]:
        """The lines of the report of one kind."""
        return tuple(line for line in self.report if line.kind == kind)

    def with_report(self, *lines: ReportLine) -> Plan:
        """The plan with further lines of report."""
        return evolve(self, report=self.report + lines)


def _digest(*parts: object) -> str:
    text = json.dumps(parts, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]
