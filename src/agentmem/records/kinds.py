"""Every kind of event there is, and every table that is a projection."""

from __future__ import annotations

from typing import Final

from agentmem.log.kinds import Kinds
from agentmem.records import checklists, claims, entity_rows, links, note_rows, projects, reports

KINDS: Final = Kinds.of(
    (
        *projects.EVENTS,
        *note_rows.EVENTS,
        *links.EVENTS,
        *entity_rows.EVENTS,
        *checklists.EVENTS,
        *reports.EVENTS,
        *claims.EVENTS,
    ),
    (
        *projects.PROJECTIONS,
        *note_rows.PROJECTIONS,
        *links.PROJECTIONS,
        *entity_rows.PROJECTIONS,
        *checklists.PROJECTIONS,
        *reports.PROJECTIONS,
    ),
)
