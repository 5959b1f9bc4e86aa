"""A record of any type by its id."""

from __future__ import annotations

from typing import Any

from agentmem.errors import Corrupt, InvalidInput
from agentmem.records import entity_rows, note_rows, reports
from agentmem.records.base import View
from agentmem.records.checklists import COLUMNS as ITEM_COLUMNS
from agentmem.records.checklists import item
from agentmem.types import Checkpoint, Project, Record


def load(view: View, found: int, of: str) -> Record:
    """The record of an id and a type."""
    match of:
        case "note":
            return note_rows.load(view, found)
        case "entity":
            return entity_rows.load(view, found)
        case "item":
            row = view.row(f"SELECT {ITEM_COLUMNS} FROM item WHERE id = ?", (found,))
            return item(_there(row, found))
        case "checkpoint":
            row = view.row(f"SELECT {reports.CHECKPOINT_COLUMNS} FROM checkpoint WHERE id = ?", (found,))
            return Checkpoint(*_there(row, found))
        case "summary":
            row = _there(view.row(f"SELECT {reports.SUMMARY_COLUMNS} FROM summary WHERE id = ?", (found,)), found)
            return reports.summary(row, reports.stale(view, row[1], row[9]))
        case "checks":
            row = view.row(f"SELECT {entity_rows.CHECKS_COLUMNS} FROM checks WHERE id = ?", (found,))
            return entity_rows.expected(_there(row, found))
        case "project":
            row = view.row("SELECT id, name, created_at, revision FROM project WHERE id = ?", (found,))
            return Project(*_there(row, found))
        case _:
            raise InvalidInput(f"#{found} is a {of}, which has no value of its own")


def _there(row: tuple[Any, ...] | None, found: int) -> tuple[Any, ...]:
    if row is None:
        raise Corrupt(f"#{found} is in the log but not in its table", next="Run verify(replay=True)")
    return row
