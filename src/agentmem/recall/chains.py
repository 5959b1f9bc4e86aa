"""What other records say of one that was found: that it was superseded, and by what in the end; that it is contradicted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from agentmem import limits
from agentmem.recall.filters import named
from agentmem.records import subjects
from agentmem.records.base import View

# Links of notes that are themselves in force. Two notes that supersede each other, in a ring, leave none in force.
_STEP: Final = """
SELECT link.dst, link.src FROM link JOIN note ON note.id = link.src
WHERE link.kind = ? AND note.status <> 'dropped' AND note.title IS NOT NULL
AND link.dst IN (SELECT value FROM json_each(?)) {seen}
ORDER BY link.seq
"""


def successors(view: View, records: Iterable[int]) -> dict[int, int]:
    """What superseded each of these records in the end, along the whole chain; of several the latest.

    A record that is superseded only by what it superseded itself has no successor.
    """
    starts = list(records)
    later: dict[int, int] = {}
    asked = starts
    for _ in range(limits.TREE_LEVELS * 4):
        found: dict[int, int] = dict(_linked(view, "supersedes", asked))
        later.update(found)
        asked = list(found.values())
        asked = [one for one in dict.fromkeys(asked) if one not in later]
        if not asked:
            break
    ends: dict[int, int] = {}
    for start in starts:
        end, seen = start, {start}
        while end in later:
            end = later[end]
            if end in seen:
                end = start
                break
            seen.add(end)
        if end != start:
            ends[start] = end
    return ends


def contradicted(view: View, records: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """Which records contradict each of these, those left out that were dropped."""
    found: dict[int, list[int]] = {}
    for record, other in _linked(view, "contradicts", records):
        found.setdefault(record, []).append(other)
    return {record: tuple(others) for record, others in found.items()}


def _linked(view: View, kind: str, records: Iterable[int]) -> list[tuple[int, int]]:
    """Links of a kind to these records, as (record, the note that says so)."""
    return view.rows(_STEP.format(seen=subjects.of_notes(view)), (kind, named(records)))
