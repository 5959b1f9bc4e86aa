"""Import of Markdown logs, the reading stage: a folder becomes a typed plan of records.

Nothing here touches a store. `read_folder` reads, `Plan` says what would be written, `match` finds the records of
an earlier import again.
"""

from __future__ import annotations

from agentmem.transfer.markdown.match import Known, Match, match
from agentmem.transfer.markdown.reader import read_folder
from agentmem.transfer.markdown.types import (
    CLOSED,
    Dated,
    NoteKind,
    Plan,
    PlannedCheckpoint,
    PlannedEntity,
    PlannedItem,
    PlannedNote,
    PlannedSummary,
    ReportKind,
    ReportLine,
    SourceFile,
    SourceKey,
)

__all__ = [
    "CLOSED",
    "Dated",
    "Known",
    "Match",
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
    "match",
    "read_folder",
]
