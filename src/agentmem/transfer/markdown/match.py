"""Finding the records of an earlier import again: unchanged, changed, moved, gone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from typing import Final

from attrs import frozen

from agentmem.transfer.markdown.types import PlannedNote, SourceKey

__all__ = ["Known", "Match", "match"]

_ARCHIVE: Final = re.compile(r"(?:^|(?<=/))(?:archived?|归档)/(?:\d{4}(?:-\d{2})?/)?", re.IGNORECASE)


@frozen
class Known:
    """A record of an earlier import.

    Args:
        id: The record.
        source: The key it was imported under.
        kind: Its kind of note; a record never changes its kind, so only one of the same kind can be it.
        digest: The digest of what was imported.
    """

    id: int
    source: SourceKey
    kind: str
    digest: str


@frozen
class Match:
    """The plan against what is known.

    Args:
        known: For each planned note that was imported before, the record; a note that is not in it is new.
        gone: Records whose text is in the folder no more.
    """

    known: dict[SourceKey, Known]
    gone: tuple[Known, ...]


def match(notes: Iterable[PlannedNote], known: Iterable[Known]) -> Match:
    """Pair planned notes with the records of earlier imports, each with one at most.

    Most certain first: the same key and content; the same path, headings and content at another place; the same key;
    the same path and headings in order; then the same once more with the folder of an archive left out of the path,
    for a task that was archived since.
    """
    planned = {note.source: note for note in notes}
    records = list(known)
    pairs: dict[SourceKey, Known] = {}
    steps: tuple[tuple[Callable[[PlannedNote], Hashable], Callable[[Known], Hashable]], ...] = (
        (
            lambda note: (note.kind, note.source, note.digest),
            lambda record: (record.kind, record.source, record.digest),
        ),
        (
            lambda note: (note.kind, note.source.path, note.source.headings, note.digest),
            lambda record: (record.kind, record.source.path, record.source.headings, record.digest),
        ),
        (lambda note: (note.kind, note.source), lambda record: (record.kind, record.source)),
        (
            lambda note: (note.kind, note.source.path, note.source.headings),
            lambda record: (record.kind, record.source.path, record.source.headings),
        ),
        (
            lambda note: (note.kind, _home(note.source.path), note.source.headings),
            lambda record: (record.kind, _home(record.source.path), record.source.headings),
        ),
    )
    for of_note, of_record in steps:
        taken = {record.id for record in pairs.values()}
        waiting: dict[Hashable, list[Known]] = defaultdict(list)
        for record in sorted(records, key=lambda record: record.source, reverse=True):
            if record.id not in taken:
                waiting[of_record(record)].append(record)
        for source, note in planned.items():
            if source not in pairs and (found := waiting.get(of_note(note))):
                pairs[source] = found.pop()
    taken = {record.id for record in pairs.values()}
    return Match(pairs, tuple(record for record in records if record.id not in taken))


def _home(path: str) -> str:
    """The path without the folder of an archive: `archive/2026-03/03-05-x/prd.md` is `03-05-x/prd.md`."""
    return _ARCHIVE.sub("", path)
