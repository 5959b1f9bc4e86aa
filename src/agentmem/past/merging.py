"""Merging one project into another: every record keeps its id, each has an event of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from agentmem.errors import Conflict, shown
from agentmem.limits import KEY_CHARS
from agentmem.log.canonical import plain
from agentmem.records import claims, entity_rows, entity_writes, tree, validate
from agentmem.records.base import Unit
from agentmem.records.projects import project_named, refuse_untrusted
from agentmem.types import Collision, Merged, Origin

Policy: TypeAlias = Literal["refuse", "keep_both", "merge"]
POLICIES: Final = ("refuse", "keep_both", "merge")
_NAMED: Final = 5

_SAME: Final = """
SELECT other.id, own.id, other.type, other.key FROM entity AS other
JOIN entity AS own ON own.project = ?2 AND own.type = other.type AND own.key = other.key
WHERE other.project = ?1 AND other.key IS NOT NULL ORDER BY other.id
"""
_TAKEN: Final = "SELECT 1 FROM entity WHERE project IN (?, ?) AND type = ? AND key = ?"
_LEASED: Final = """
SELECT record FROM lease WHERE record IN (
    SELECT id FROM note WHERE project = ?1 UNION SELECT id FROM entity WHERE project = ?1
    UNION SELECT item.id FROM item JOIN note ON note.id = item.note WHERE note.project = ?1
    UNION SELECT id FROM session WHERE project = ?1
)
"""


def merge(unit: Unit, name: str, collisions: Policy) -> Merged:
    """The command behind `store.projects.merge`: all of the project `name` goes into the view's."""
    refuse_untrusted(unit, "merges no projects")
    source = project_named(unit, name)
    target = unit.project
    if source == target:
        raise Conflict(f"{shown(name)} is this very project")
    for (record,) in unit.rows(_LEASED, (source,)):
        claims.guard(unit, record)
    same = unit.rows(_SAME, (source, target))
    if same and collisions == "refuse":
        named = ", ".join(f"{kind}:{key}" for _, _, kind, key in same[:_NAMED])
        more = f" and {len(same) - _NAMED} more" if len(same) > _NAMED else ""
        raise Conflict(
            f"{len(same)} {'entity is' if len(same) == 1 else 'entities are'} in both projects: {named}{more}",
            next="Say collisions='merge' to make one of each two, or 'keep_both'",
        )
    moving = _Moving(unit, source, target, name)
    into = {other: own for other, own, _, _ in same} if collisions == "merge" else {}
    met = [moving.rename(*pair) for pair in same] if collisions == "keep_both" else []
    moving.declarations()
    moved = moving.entities(into) + moving.notes(into) + moving.checkpoints() + moving.sessions(into)
    if collisions == "merge":
        # What lies deepest first, so that an undo, from the newest on, finds the parent of each there again.
        deepest = sorted(same, key=lambda pair: -len(tree.ancestors(unit, pair[0], "entity")))
        met += [moving.unite(*pair) for pair in deepest]
    unit.append("project.merged", {"into": target}, record=source, project=target)
    notice = f"go on in this project: a write under {shown(name)} begins a new one"
    return Merged(tuple(moved), changed=len(moved), notices=(notice,), collisions=tuple(met), transit=unit.transit)


class _Moving:
    """One merge at work: what moves from one project to the other."""

    def __init__(self, unit: Unit, source: int, target: int, name: str) -> None:
        self._unit = unit
        self._source = source
        self._target = target
        self._name = name

    def _append(self, kind: str, payload: Mapping[str, Any], record: int, *, session: int | None = None) -> None:
        # Not screened for credentials: nothing in it is new.
        unit = self._unit
        within = unit.actor.session if session is None else session
        unit.tx.append(kind, dict(payload), record=record, project=self._target, actor=unit.actor, session=within)

    def rename(self, other: int, own: int, kind: str, key: str) -> Collision:
        """Give the entity that comes in another key, so that both stay."""
        number, fresh = 1, ""
        while not fresh or self._unit.row(_TAKEN, (self._source, self._target, kind, fresh)) is not None:
            ending = f" ({self._name})" if number == 1 else f" ({self._name} {number})"
            fresh, number = key[: KEY_CHARS - len(ending)] + ending, number + 1
        self._append("entity.changed", {"set": {"key": fresh}}, other)
        return Collision(kind, key, own, other, f"kept as {fresh}")

    def declarations(self) -> None:
        """Move the expected checks; of one that both have the names are united."""
        unit = self._unit
        sql = "SELECT id, type, filter, names, origin FROM checks WHERE project = ? ORDER BY id"
        for record, kind, condition, names, origin in unit.rows(sql, (self._source,)):
            sql = "SELECT id, names, origin FROM checks WHERE project = ? AND type = ? AND filter = ?"
            there = unit.row(sql, (self._target, kind, condition))
            if there is None:
                self._append("checks.changed", {"set": {"project": self._target}}, record)
                continue
            both = list(dict.fromkeys((*plain(there[1]), *plain(names))))
            if both != plain(there[1]):
                least: Origin = validate.less_trusted(there[2], origin)
                lowered = {} if least == there[2] else {"origin": least}
                self._append("checks.changed", {"set": {"names": both, **lowered}}, there[0])
            self._append("checks.merged", {"into": there[0]}, record)

    def entities(self, into: Mapping[int, int]) -> list[int]:
        """Move the entities, but those that become one with another."""
        rows = self._unit.rows("SELECT id, parent FROM entity WHERE project = ? ORDER BY id", (self._source,))
        moved = []
        for record, parent in rows:
            if record in into:
                continue
            changes = {"project": self._target}
            if parent in into:
                changes["parent"] = into[parent]
            self._append("entity.changed", {"set": changes}, record)
            moved.append(record)
        return moved

    def notes(self, into: Mapping[int, int]) -> list[int]:
        """Move the notes; those about an entity that became another's are about that one now."""
        rows = self._unit.rows("SELECT id, entity FROM note WHERE project = ? ORDER BY id", (self._source,))
        for record, entity in rows:
            changes = {"project": self._target}
            if entity in into:
                changes["entity"] = into[entity]
            self._append("note.changed", {"set": changes}, record)
        return [record for record, _ in rows]

    def checkpoints(self) -> list[int]:
        """Move the checkpoints."""
        rows = self._unit.rows("SELECT id FROM checkpoint WHERE project = ? ORDER BY id", (self._source,))
        for (record,) in rows:
            self._append("checkpoint.changed", {"set": {"project": self._target}}, record)
        return [record for (record,) in rows]

    def sessions(self, into: Mapping[int, int]) -> list[int]:
        """Move the sessions with their events; those about an entity that became another's are about that one now."""
        rows = self._unit.rows("SELECT id, entity FROM session WHERE project = ? ORDER BY id", (self._source,))
        for record, entity in rows:
            changes = {"project": self._target}
            if entity in into:
                changes["entity"] = into[entity]
            self._append("session.changed", {"set": changes}, record, session=record)
        return [record for record, _ in rows]

    def unite(self, other: int, own: int, kind: str, key: str) -> Collision:
        """Make one of two entities: what the one that stays lacks of attributes, the newer mark of each check, all links."""
        unit = self._unit
        claims.guard(unit, own)
        mine, my_origin = unit.one("SELECT attrs, origin FROM entity WHERE id = ?", (own,))
        theirs, their_origin = unit.one("SELECT attrs, origin FROM entity WHERE id = ?", (other,))
        if lacking := entity_writes.lacking(own, mine, theirs):
            least: Origin = validate.less_trusted(my_origin, their_origin)
            changed: dict[str, Any] = {"attrs": lacking}
            if least != my_origin:
                changed["set"] = {"origin": least}
            self._append("entity.changed", changed, own)
        if marks := self._newer_marks(other, own):
            self._append("entity.marked", {"marks": marks}, own)
        self._links(other, own)
        unit.connection.execute("DELETE FROM lease WHERE record = ?", (other,))
        self._append("entity.merged", {"into": own}, other)
        return Collision(kind, key, own, other, "merged")

    def _newer_marks(self, other: int, own: int) -> dict[str, Any]:
        sql = """
        SELECT theirs.name, theirs.result, theirs.value, theirs.detail, theirs.at, theirs.author, theirs.run, theirs.origin
        FROM mark AS theirs LEFT JOIN mark AS mine ON mine.entity = ? AND mine.name = theirs.name
        WHERE theirs.entity = ? AND (mine.at IS NULL OR mine.at < theirs.at)
        """
        return {name: entity_rows.mark_again(*mark) for name, *mark in self._unit.rows(sql, (own, other))}

    def _links(self, other: int, own: int) -> None:
        rows = self._unit.rows(
            "SELECT src, dst, kind, author, run, origin FROM link WHERE src = ?1 OR dst = ?1", (other,)
        )
        for src, dst, kind, author, run, origin in rows:
            claims.guard(self._unit, src)
            self._append("entity.unlinked", {"dst": dst, "kind": kind}, src)
            ends = (own if src == other else src, own if dst == other else dst)
            there = self._unit.row("SELECT 1 FROM link WHERE src = ? AND dst = ? AND kind = ?", (*ends, kind))
            if there is None and ends[0] != ends[1]:
                made = {"dst": ends[1], "kind": kind, "author": author, "run": run, "origin": origin}
                self._append("entity.linked", made, ends[0])
