"""A record of any type by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentmem.errors import InvalidInput
from agentmem.records import entity_rows, note_rows, reports, session_rows
from agentmem.records.base import Source
from agentmem.records.checklists import COLUMNS as ITEM_COLUMNS
from agentmem.records.checklists import item
from agentmem.records.projects import COLUMNS as PROJECT_COLUMNS
from agentmem.types import Checkpoint, Project

if TYPE_CHECKING:
    from agentmem.session_types import Record


def load(source: Source, found: int, of: str) -> Record:
    """The record of an id and a type.

    Raises:
        NotFound: It is no more.
        InvalidInput: The type has no value of its own.
    """
    match of:
        case "note":
            return note_rows.load(source, found)
        case "entity":
            return entity_rows.load(source, found)
        case "item":
            return item(source.one(f"SELECT {ITEM_COLUMNS} FROM item WHERE id = ?", (found,)))
        case "checkpoint":
            return Checkpoint(
                *source.one(f"SELECT {reports.CHECKPOINT_COLUMNS} FROM checkpoint WHERE id = ?", (found,))
            )
        case "summary":
            row = source.one(f"SELECT {reports.SUMMARY_COLUMNS} FROM summary WHERE id = ?", (found,))
            return reports.summary(source, row)
        case "checks":
            row = source.one(f"SELECT {entity_rows.CHECKS_COLUMNS} FROM checks WHERE id = ?", (found,))
            return entity_rows.expected(row)
        case "project":
            return Project(*source.one(f"SELECT {PROJECT_COLUMNS} FROM project WHERE id = ?", (found,)))
        case "session":
            return session_rows.load_session(source, found)
        case "message":
            return session_rows.load_event(source, found)
        case _:
            raise InvalidInput(f"#{found} is of type {of}, which has no value of its own")
