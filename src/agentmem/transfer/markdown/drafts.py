"""Notes while they are being made: found in one order, completed in another, fixed at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from attrs import Factory, define, evolve

from agentmem import limits
from agentmem.transfer.markdown.files import Recency
from agentmem.transfer.markdown.status import Status
from agentmem.transfer.markdown.types import (
    Dated,
    NoteKind,
    PlannedEntity,
    PlannedItem,
    PlannedNote,
    ReportLine,
    SourceKey,
)
from agentmem.transfer.markdown.words import clean_heading, cut_bytes, cut_title, plain, split_bytes

__all__ = ["Draft", "Drafts", "Finding", "Mention"]

_KEY_CHARS: Final = 160


@define(kw_only=True)
class Draft:
    """A note in the making.

    `said` is the status its own source states, None where it follows from its boxes and from what is beneath it.
    `scope` is the tree in which the same title means the same thing, `whole` marks a task or goal of its own,
    `is_list` a goal that is a mere list of things to do.
    """

    source: SourceKey
    kind: NoteKind
    title: str
    body: str = ""
    said: Status | None = None
    status: str = ""
    parent: SourceKey | None = None
    tags: tuple[str, ...] = ()
    dated: Dated | None = None
    why: str = ""
    items: list[PlannedItem] = Factory(list)
    line: int = 1
    scope: str = ""
    whole: bool = False
    closed_unticked: int = 0
    is_list: bool = False

    def to_notes(self) -> Iterator[PlannedNote]:
        """The note, and a fact for each part of its body beyond the limit."""
        title, cut = cut_title(self.title)
        body = self.body
        if cut and title[:-1] not in body:
            body = f"{self.title}\n\n{body}".strip()
        if len(self.why.encode("utf-8")) > limits.WHY_BYTES:
            body = f"{body}\n\n{self.why}".strip() if self.why not in body else body
        parts = split_bytes(body, limits.BODY_BYTES)
        yield PlannedNote(
            source=self.source,
            kind=self.kind,
            title=title,
            body=parts[0],
            status=self.status,
            parent=self.parent,
            tags=self.tags[: limits.TAGS_PER_NOTE],
            dated=self.dated,
            why=cut_bytes(self.why, limits.WHY_BYTES),
            checklist=tuple(self.items),
            closed_unticked=self.closed_unticked,
            line=self.line,
        )
        for number, part in enumerate(parts[1:], 2):
            yield PlannedNote(
                source=evolve(self.source, headings=(*self.source.headings, f"part {number}")),
                kind="fact",
                title=cut_title(f"Part {number} of {title}")[0],
                body=part,
                status="active",
                parent=self.source,
                line=self.line,
            )


@define
class Finding:
    """A section that may become a summary or a checkpoint, once it is known whether its task is closed.

    Of a session of a journal `text` says where the work stands, `beware` what to look out for, `next` what to do.
    """

    text: str
    source: SourceKey
    task: SourceKey | None
    dated: Dated | None
    recency: Recency
    heading: str = ""
    beware: str = ""
    next: str = ""

    @property
    def says(self) -> bool:
        """Whether there is anything in it."""
        return bool(self.text or self.beware or self.next)


@define(kw_only=True)
class Mention:
    """A box of a journal: what was said on one day of a thing that a plan may name too."""

    names: frozenset[str]
    text: str
    state: Literal["done", "open", "dropped"]
    recency: Recency
    path: str
    work: SourceKey | None
    title: str


@define
class Drafts:
    """All that is being made of a folder."""

    notes: list[Draft] = Factory(list)
    entities: list[tuple[Recency, PlannedEntity, frozenset[str]]] = Factory(list)
    outcomes: list[Finding] = Factory(list)
    standings: list[Finding] = Factory(list)
    report: list[ReportLine] = Factory(list)
    mentions: list[Mention] = Factory(list)
    tasks: dict[str, Draft] = Factory(dict)
    outcome_said: dict[SourceKey, tuple[Status, str]] = Factory(dict)
    _used: dict[tuple[str, tuple[str, ...]], int] = Factory(dict)

    def key(self, path: str, headings: Iterable[str] = ()) -> SourceKey:
        """A key that no other record has: the ordinal counts records of the same path and headings."""
        cleaned = tuple(clean_heading(plain(heading))[:_KEY_CHARS] for heading in headings)
        ordinal = self._used.get((path, cleaned), 0)
        self._used[path, cleaned] = ordinal + 1
        return SourceKey(path, cleaned, ordinal)

    def add(self, draft: Draft) -> Draft:
        """The draft, now the last of the notes."""
        self.notes.append(draft)
        return draft

    def discard(self, draft: Draft) -> None:
        """Take out a draft that turned out to hold nothing; nothing may lie beneath it."""
        self.notes = [note for note in self.notes if note is not draft]

    def has_children(self, key: SourceKey) -> bool:
        """Whether any note lies directly beneath a note."""
        return any(note.parent == key for note in self.notes)
