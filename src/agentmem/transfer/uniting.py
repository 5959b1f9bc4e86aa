"""Records of a file that are in the project already: what is here gets what it lacks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentmem.log.canonical import plain
from agentmem.records import claims, entity_rows, entity_writes, validate
from agentmem.records.base import Source, Unit
from agentmem.transfer.renumber import Renumbering
from agentmem.types import RecordType

__all__ = ["unite"]


def unite(unit: Unit, file: Source, numbers: Renumbering, merging: Mapping[int, tuple[RecordType, int]]) -> int:
    """Give entities the attributes they lack and the marks that are newer, and expected checks the names they lack.

    Args:
        unit: Where to write.
        file: The records of the file as everything ends, under their own ids.
        numbers: What stands here for what of the file.
        merging: Records of the file, each with its type and the record here.

    Returns:
        How many events were written.
    """
    work = _Uniting(unit, file, numbers)
    for record, (of, here) in merging.items():
        claims.guard(unit, here)
        if of == "checks":
            work.checks(record, here)
        else:
            work.entity(record, here)
    for record, (of, here) in merging.items():
        if of == "entity":
            work.links(record, here)
    return work.events


class _Uniting:
    def __init__(self, unit: Unit, file: Source, numbers: Renumbering) -> None:
        self._unit = unit
        self._file = file
        self._numbers = numbers
        self.events = 0

    def _append(self, kind: str, payload: dict[str, Any], record: int) -> None:
        self._unit.append(kind, payload, record=record, project=self._unit.project)
        self.events += 1

    def entity(self, record: int, here: int) -> None:
        """Add the attributes that an entity lacks, and the marks that are newer."""
        mine, my_origin = self._unit.one("SELECT attrs, origin FROM entity WHERE id = ?", (here,))
        theirs, their_origin = self._file.one("SELECT attrs, origin FROM entity WHERE id = ?", (record,))
        if lacking := entity_writes.lacking(here, mine, theirs):
            changed: dict[str, Any] = {"attrs": lacking}
            least = validate.less_trusted(my_origin, self._numbers.origin(their_origin))
            if least != my_origin:
                changed["set"] = {"origin": least}
            self._append("entity.changed", changed, here)
        if marks := self._newer(record, here):
            self._append("entity.marked", {"marks": marks}, here)

    def _newer(self, record: int, here: int) -> dict[str, Any]:
        rows = self._unit.rows("SELECT name, at, result, value, detail FROM mark WHERE entity = ?", (here,))
        now = {row[0]: row[1:] for row in rows}
        sql = "SELECT name, at, result, value, detail, author, run, origin FROM mark WHERE entity = ? ORDER BY name"
        found: dict[str, Any] = {}
        for name, at, result, value, detail, author, run, origin in self._file.rows(sql, (record,)):
            there = now.get(name)
            if there is not None and (there[0] >= at or there[1:] == (result, value, detail)):
                continue
            least = self._numbers.origin(origin)
            found[name] = entity_rows.mark_again(result, value, detail, at, author, run, least)
        return found

    def checks(self, record: int, here: int) -> None:
        """Add the names that a declaration lacks."""
        mine, my_origin = self._unit.one("SELECT names, origin FROM checks WHERE id = ?", (here,))
        theirs, their_origin = self._file.one("SELECT names, origin FROM checks WHERE id = ?", (record,))
        both = list(dict.fromkeys((*plain(mine), *plain(theirs))))
        if both != plain(mine):
            changed: dict[str, Any] = {"names": list(validate.tokens(both, "check"))}
            least = validate.less_trusted(my_origin, self._numbers.origin(their_origin))
            if least != my_origin:
                changed["origin"] = least
            self._append("checks.changed", {"set": changed}, here)

    def links(self, record: int, here: int) -> None:
        """Add the links that lead from an entity; those that lead to it came with what they lead from."""
        sql = "SELECT dst, kind, author, run, origin FROM link WHERE src = ? ORDER BY seq"
        for dst, kind, author, run, origin in self._file.rows(sql, (record,)):
            target = self._numbers.to.get(dst)
            if target is None or target == here:
                continue
            there = "SELECT 1 FROM link WHERE src = ? AND dst = ? AND kind = ?"
            if self._unit.row(there, (here, target, kind)) is None:
                least = self._numbers.origin(origin)
                made = {"dst": target, "kind": kind, "author": author, "run": run, "origin": least}
                self._append("entity.linked", made, here)
