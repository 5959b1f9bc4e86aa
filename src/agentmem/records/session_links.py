"""From a note to what it rests on in the session that it was written in."""

from __future__ import annotations

import re
from typing import Final

from agentmem.records import subjects, vocabulary
from agentmem.records.base import Source
from agentmem.records.session_rows import lineage, load_event
from agentmem.session_types import SessionEvent

_NAMED: Final = re.compile(r"#?([1-9][0-9]{0,18})", re.ASCII)


def source_of(source: Source, record: int, of: str) -> SessionEvent | None:
    """The event that a record names as its source, else the last result of a tool before it in its session."""
    if of == "note":
        row = source.row("SELECT source FROM note WHERE id = ?", (record,))
        named = _NAMED.fullmatch(row[0]) if row is not None and row[0] else None
        if named and source.row("SELECT 1 FROM message WHERE id = ?", (int(named[1]),)) is not None:
            if subjects.hidden(source, [int(named[1])]):
                return None
            return load_event(source, int(named[1]))
    (session,) = source.one("SELECT session FROM event WHERE seq = ?", (record,))
    if session is None or subjects.hidden(source, [session]):
        return None
    marks = ", ".join("?" * len(vocabulary.RESULTS))
    for each, last in reversed(lineage(source, session)):
        sql = f"SELECT id FROM message WHERE session = ? AND id < ? AND id <= ? AND type IN ({marks}) ORDER BY id DESC LIMIT 1"
        row = source.row(sql, (each, record, last, *sorted(vocabulary.RESULTS)))
        if row is not None:
            return load_event(source, row[0])
    return None
