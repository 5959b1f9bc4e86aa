"""Every kind of event there is, every table that is a projection, every function that SQL calls."""

from __future__ import annotations

from typing import Final

from agentmem import text
from agentmem.engine.database import SqlFunction
from agentmem.log.kinds import Kinds
from agentmem.records import checklists, claims, entity_rows, links, note_rows, projects, reports, session_rows, whole
from agentmem.records.where_functions import SQL_FUNCTIONS

KINDS: Final = Kinds.of(
    (
        *projects.EVENTS,
        *note_rows.EVENTS,
        *links.EVENTS,
        *entity_rows.EVENTS,
        *checklists.EVENTS,
        *reports.EVENTS,
        *session_rows.EVENTS,
        *claims.EVENTS,
        *whole.EVENTS,
    ),
    (
        *projects.PROJECTIONS,
        *note_rows.PROJECTIONS,
        *links.PROJECTIONS,
        *entity_rows.PROJECTIONS,
        *checklists.PROJECTIONS,
        *reports.PROJECTIONS,
        *session_rows.PROJECTIONS,
        *whole.PROJECTIONS,
    ),
)

FUNCTIONS: Final = (
    SqlFunction("agentmem_analyse", text.analyse, 1),
    *(SqlFunction(name, call, 1) for name, call in SQL_FUNCTIONS.items()),
)
