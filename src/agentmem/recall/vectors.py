"""The vectors of an open file: what the table holds, and the codes of all of them in memory.

The codes follow the file by the ids of rows, which only grow, and by the seq of events: the rows of a record that an
event changed are read again. What a purge takes away goes from memory as a whole, see `records.cleaning`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from agentmem.recall.filters import PROJECT, VECTOR_TABLES, named, several_projects
from agentmem.records.base import Source, View

if TYPE_CHECKING:
    from agentmem.recall.codes import Codes, Filter, Floats

_READ: Final = 20_000  # rows in one piece while the codes are read
_CHANGED: Final = 2000  # records that changed since: beyond, reading all anew costs no more
_BELONGING: Final = """
SELECT value FROM json_each(?1)
UNION SELECT id FROM item WHERE note IN (SELECT value FROM json_each(?1))
UNION SELECT id FROM summary WHERE note IN (SELECT value FROM json_each(?1))
"""


@frozen(eq=False)
class Near:
    """How near a record is in meaning: the cosine of its best window, and where that window lies in its text."""

    cosine: float
    begin: int
    finish: int


class Index:
    """The codes of all vectors of a file. Safe for threads."""

    def __init__(self, dim: int) -> None:
        from agentmem.recall.codes import Codes

        self.codes: Codes = Codes(dim)
        self._last = 0  # the last row read
        self._seq = 0  # the last event seen
        self._apart = False  # whether rows are told apart by project
        self._lock = threading.Lock()

    def follow(self, view: View) -> None:
        """Bring the codes up to what the reading sees. A reading of an earlier state changes nothing."""
        from agentmem.recall.codes import Codes

        with self._lock:
            now = view.seq
            changed = _changed(view, self._seq, now) if self._last and now > self._seq else []
            apart = several_projects(view)
            if changed is None or apart != self._apart:
                self.codes = Codes(self.codes.dim)
                self._last = 0
                self._apart = apart
            elif changed:
                self._read_again(view, changed)
            while self._read(view, "vector.id > ? ORDER BY vector.id LIMIT ?", (self._last, _READ)) == _READ:
                pass
            self._seq = max(self._seq, now)

    def _read_again(self, view: View, changed: Sequence[int]) -> None:
        records = [record for (record,) in view.rows(_BELONGING, (named(changed),))] if self._apart else changed
        self._read(
            view, "vector.record IN (SELECT value FROM json_each(?)) AND vector.id <= ?", (named(records), self._last),
            replacing=records,
        )  # fmt: skip

    def _read(self, view: View, where: str, values: Sequence[Any], *, replacing: Sequence[int] = ()) -> int:
        """Add the rows of the table that meet a condition, in place of those of the records `replacing`."""
        import numpy as np

        project, tables = (f"coalesce({PROJECT}, 0)", VECTOR_TABLES) if self._apart else ("0", "")
        # A code of another length is of another embedder under the same id, or damaged: verify tells of it.
        sql = f"""
        SELECT vector.id, vector.record, {project}, vector.code FROM vector {tables}
        WHERE octet_length(vector.code) = ? AND {where}
        """
        rows = view.rows(sql, (self.codes.dim, *values))
        if rows:
            ids, records, projects, codes = zip(*rows, strict=True)
            self.codes.add(
                np.array(ids, np.int64), np.array(records, np.int64), np.array(projects, np.int32),
                np.frombuffer(b"".join(codes), np.int8).reshape(len(rows), self.codes.dim),
                replacing=replacing,
            )  # fmt: skip
            self._last = max(self._last, *ids)
        elif replacing:
            self.codes.remove_records(replacing)
        return len(rows)

    def within(self, project: int | None) -> Filter | None:
        """The filter for the vectors of one project."""
        from agentmem.recall.codes import of_groups

        return None if project is None or not self._apart else of_groups([project])


def _changed(view: View, after: int, until: int) -> list[int] | None:
    """The records that events changed; None for more than it pays to read one by one."""
    sql = "SELECT DISTINCT record FROM event NOT INDEXED WHERE seq > ? AND seq <= ? LIMIT ?"
    rows = view.rows(sql, (after, until, _CHANGED + 1))
    return None if len(rows) > _CHANGED else [record for (record,) in rows]


def cosines(source: Source, query: Floats, *, ids: Iterable[int] = (), records: Iterable[int] = ()) -> dict[int, Near]:
    """The cosines of a query with records, each by its best window: of the rows `ids`, or of all rows of `records`."""
    import numpy as np

    from agentmem.recall.codes import rescore

    sql = """
    SELECT record, begin, finish, scale, code FROM vector
    WHERE {} IN (SELECT value FROM json_each(?)) AND octet_length(code) = ? AND scale < 1
    """
    rows = source.rows(sql.format("id"), (named(ids), len(query)))
    rows += source.rows(sql.format("record"), (named(records), len(query)))
    if not rows:
        return {}
    codes = np.frombuffer(b"".join([row[4] for row in rows]), np.int8).reshape(len(rows), len(query))
    found: dict[int, Near] = {}
    for row, cosine in zip(rows, rescore(query, codes, np.array([row[3] for row in rows], np.float32)), strict=True):
        best = found.get(row[0])
        if best is None or cosine > best.cosine:
            found[row[0]] = Near(float(cosine), row[1], row[2])
    return found
