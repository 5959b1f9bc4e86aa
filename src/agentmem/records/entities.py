"""Entities: the many things of a kind that work goes over, with named checks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput
from agentmem.records import entity_rows, scopes, subjects, validate
from agentmem.records.base import Namespace, Unit, View
from agentmem.records.entity_writes import (
    Result,
    Row,
    accepted,
    declare,
    mark,
    put,
    rename,
    undeclared,
    unmark,
)
from agentmem.records.refs import entity_id, identify
from agentmem.records.sql import Binding, Sql, qualified
from agentmem.types import (
    UNSET,
    CheckResult,
    Entity,
    ExpectedChecks,
    Json,
    Mark,
    Ref,
    Unset,
    Written,
    WrittenMany,
)

if TYPE_CHECKING:
    from agentmem.records.where import Groups

__all__ = ["Entities", "Page", "Result", "Row"]


@frozen
class Page:
    """One page of entities.

    `after` continues the list, None at its end. `total` is the number of all that match, None where
    it was not asked for.
    """

    entities: tuple[Entity, ...]
    after: str | None
    total: int | None = None

    def __iter__(self) -> Iterator[Entity]:
        return iter(self.entities)

    def __len__(self) -> int:
        return len(self.entities)


class Entities(Namespace):
    """`store.entities`: put, mark, expect, query."""

    __slots__ = ()

    def put(
        self,
        type: str,
        key: str,
        *,
        attrs: Mapping[str, Json | None] | None = None,
        status: str | Unset = UNSET,
        parent: Ref | None | Unset = UNSET,
        confidence: float | None | Unset = UNSET,
        expected_revision: int | None = None,
        request_id: str | None = None,
    ) -> Written:
        """Add an entity, or change what is given of one that exists.

        Args:
            type: Its kind: `host`, `endpoint`, `file`.
            key: What names it within project and type, one line.
            attrs: Any JSON by name; merged with what is there, None removes a name.
            status: A free token; `new` at first.
            parent: The entity it belongs to.
            confidence: 0 to 1.
            expected_revision: The revision the caller has seen.
            request_id: Makes a retry safe.

        Raises:
            Conflict: A stale revision, or a circle of parents.
            Held: Somebody else claims it.
        """
        row = Row(key, attrs=attrs, status=status, parent=parent, confidence=confidence)
        arguments = {} if request_id is None else {"type": type, "row": row, "expected_revision": expected_revision}
        return self._binding.run(
            "entities.put", arguments, request_id, lambda unit: put(unit, type, row, expected_revision)
        )

    def put_many(
        self,
        type: str,
        *,
        keys: Iterable[str] = (),
        rows: Iterable[Row] = (),
        attrs: Mapping[str, Json | None] | None = None,
        status: str | Unset = UNSET,
        parent: Ref | None | Unset = UNSET,
        request_id: str | None = None,
    ) -> WrittenMany:
        """Add or change many entities of a type, all or none; `limits.BATCH` at most.

        Args:
            type: Their kind.
            keys: Those that have nothing of their own.
            rows: Those that do; what a row gives goes before the shared values.
            attrs: Shared by all.
            status: Shared by all.
            parent: Shared by all.
            request_id: Makes a retry safe.
        """
        given = [Row(key) for key in validate.batch(keys, "keys")] + validate.batch(rows, "rows")

        def command(unit: Unit) -> WrittenMany:
            ids, created, changed = [], 0, 0
            for row in given:
                done = put(unit, type, _shared(row, attrs, status, parent))
                ids.append(done.id)
                created += done.changed == ("created",)
                changed += bool(done.changed) and done.changed != ("created",)
            unchanged = len(ids) - created - changed
            return WrittenMany(tuple(ids), created, changed, unchanged, transit=unit.transit)

        arguments = {"type": type, "rows": given, "attrs": attrs, "status": status, "parent": parent}
        return self._binding.run("entities.put_many", arguments, request_id, command)

    def rename(
        self, entity: Ref, key: str, *, expected_revision: int | None = None, request_id: str | None = None
    ) -> Written:
        """Give an entity another key. Its id, marks and links stay.

        Raises:
            Conflict: Another entity of the type has the key.
        """
        arguments = {"entity": entity, "key": key, "expected_revision": expected_revision}
        return self._binding.run(
            "entities.rename", arguments, request_id, lambda unit: rename(unit, entity, key, expected_revision)
        )

    def mark(
        self,
        type: str,
        keys: Iterable[str | Ref],
        results: Mapping[str, CheckResult | Result],
        *,
        detail: str | None = None,
        request_id: str | None = None,
    ) -> WrittenMany:
        """Record results of checks on entities that exist, all or none.

        A name that no `expect` declares is accepted; a notice of the answer names the nearest declared one.

        Args:
            type: Their kind.
            keys: Keys, or ids of entities of that type.
            results: By check: `pass`, `fail`, `na`, `error`, or a `Result` with value and detail.
            detail: One line for all of them.
            request_id: Makes a retry safe.

        Raises:
            NotFound: An entity does not exist.
            Held: Somebody else claims one.
        """
        wanted, type = validate.batch(keys, "keys"), validate.token(type, "type")

        def command(unit: Unit) -> WrittenMany:
            marks = accepted(results, detail)
            ids = [_of_type(unit, type, key) for key in wanted]
            changed = sum(mark(unit, found, marks) for found in ids)
            notices = undeclared(unit, [type], marks)
            return WrittenMany(
                tuple(ids), changed=changed, unchanged=len(ids) - changed, notices=notices, transit=unit.transit
            )

        arguments = {"type": type, "keys": wanted, "results": results, "detail": detail}
        return self._binding.run("entities.mark", arguments, request_id, command)

    def unmark(
        self, type: str, keys: Iterable[str | Ref], names: Iterable[str], *, request_id: str | None = None
    ) -> WrittenMany:
        """Take marks back: the checks count as never run. What was marked stays in the log."""
        wanted, type = validate.batch(keys, "keys"), validate.token(type, "type")
        checks = validate.tokens(names, "check")

        def command(unit: Unit) -> WrittenMany:
            ids = [_of_type(unit, type, key) for key in wanted]
            changed = sum(unmark(unit, found, checks) for found in ids)
            return WrittenMany(tuple(ids), changed=changed, unchanged=len(ids) - changed, transit=unit.transit)

        arguments = {"type": type, "keys": wanted, "names": checks}
        return self._binding.run("entities.unmark", arguments, request_id, command)

    def expect(
        self,
        type: str,
        checks: Sequence[str],
        *,
        where: str | None = None,
        request_id: str | None = None,
        **parameters: Any,
    ) -> Written:
        """Declare which checks every entity of a type is expected to have marks of.

        Args:
            type: The kind of entity.
            checks: Their names; an empty list withdraws the declaration.
            where: Only for the entities that match it. Each `where` is a declaration of its own.
            request_id: Makes a retry safe.
            parameters: The values of `:name` in `where`.
        """

        def command(unit: Unit) -> Written:
            scope = scopes.make(type, where, checks, parameters)
            return declare(unit, scope.type, scope.checks, scope.where or "")

        arguments = {"type": type, "checks": checks, "where": where, "parameters": parameters}
        return self._binding.run("entities.expect", arguments, request_id, command)

    def expected(self, type: str | None = None) -> tuple[ExpectedChecks, ...]:
        """The declarations of a type, or of all, withdrawn ones left out."""
        with self._binding.reading() as view:
            return declarations(view, type)

    def get(self, entity: Ref) -> Entity:
        """An entity with its attributes and current results.

        Raises:
            NotFound: There is none, or it was purged.
        """
        with self._binding.reading() as view:
            return entity_rows.load(view, entity_id(view, entity))

    def marks(self, entity: Ref) -> tuple[Mark, ...]:
        """The current marks of an entity with values, details and times, by name of check."""
        with self._binding.reading() as view:
            found = entity_id(view, entity)
            sql = f"SELECT {entity_rows.MARK_COLUMNS} FROM mark WHERE entity = ? ORDER BY name"
            return tuple(entity_rows.mark(row) for row in view.rows(sql, (found,)))

    def children(self, entity: Ref, *, limit: int = limits.PAGE, after: int = 0) -> tuple[Entity, ...]:
        """The entities whose parent this one is, oldest first; continue with `after=` the last id."""
        validate.page(limit)
        validate.cursor(after, "after")
        with self._binding.reading() as view:
            sql = f"SELECT {entity_rows.COLUMNS} FROM entity WHERE parent = ? AND id > ? ORDER BY id LIMIT ?"
            return _entities(view, view.rows(sql, (entity_id(view, entity), after, limit)))

    def query(
        self,
        type: str,
        where: str | None = None,
        *,
        order: str = "",
        limit: int = limits.PAGE,
        after: str | None = None,
        total: bool = False,
        **parameters: Any,
    ) -> Page:
        """The entities of a type that match, one page.

        Args:
            type: The kind of entity.
            where: See `agentmem.records.where`; all if None.
            order: Fields to sort by, `-` before one for descending; by id if empty.
            limit: At most so many.
            after: The `after` of the page before.
            total: Also count all that match.
            parameters: The values of `:name` in `where`.

        Raises:
            WhereError: `where` or `order` does not parse; it shows the place.
            InvalidInput: `after` belongs to another query.
        """
        validate.page(limit)
        validate.flag(total, "total")
        with self._binding.reading() as view:
            return _query(view, validate.token(type, "type"), where, parameters, order, limit, after, total)

    def groups(
        self,
        type: str,
        by: str,
        where: str | None = None,
        *,
        of: str | None = None,
        limit: int = limits.PAGE,
        **parameters: Any,
    ) -> Groups:
        """Count the entities of a type that match by one or more fields, the largest group first.

        Args:
            type: The kind of entity.
            by: A comma list of fields.
            where: See `agentmem.records.where`; all if None.
            of: A numeric field whose minimum, maximum, sum and average are wanted.
            limit: At most so many groups; the answer has the number of all.
            parameters: The values of `:name` in `where`.
        """
        from agentmem.records.where import ENTITY_FIELDS, compile_group

        validate.page(limit)
        with self._binding.reading() as view:
            rows, _ = matching(view, validate.token(type, "type"), where, parameters)
            grouping = compile_group(by, ENTITY_FIELDS, of=of, limit=limit, now=view.now)
            sql = grouping.select(rows)
            return grouping.read(view.rows(sql.text, sql.bindings))


def matching(
    source: Unit | View, type: str, where: str | None, parameters: Mapping[str, Any] = {}, *, stored: bool = False
) -> tuple[Sql, str]:
    """`FROM … WHERE …` for the entities of a type that match, and the canonical text of `where`.

    `stored` says that `where` comes from the log, where it may be longer than what callers write.
    """
    seen = subjects.condition(source, "e.id")
    sql = f"FROM entity AS e WHERE e.project = ? AND e.type = ? AND e.key IS NOT NULL {seen}".rstrip()
    bound: list[Binding] = [source.known_project, type]
    if where is None:
        if parameters:
            raise InvalidInput("Parameters without a where=", why="Unknown: " + ", ".join(sorted(parameters)))
        return Sql(sql, bound), ""
    from agentmem.records.where import ENTITY_FIELDS, parse, parse_canonical

    parsed = (
        parse_canonical(where, ENTITY_FIELDS, now=source.now)
        if stored
        else parse(where, ENTITY_FIELDS, parameters, now=source.now)
    )
    condition = parsed.sql
    return Sql(f"{sql} AND {condition.text}", [*bound, *condition.bindings]), parsed.canonical


def _query(
    view: View,
    type: str,
    where: str | None,
    parameters: Mapping[str, Any],
    order: str,
    limit: int,
    after: str | None,
    total: bool,
) -> Page:
    from agentmem.records.where import ENTITY_FIELDS, compile_cursor, compile_order, make_cursor

    (rows, bound), canonical = matching(view, type, where, parameters)
    sorting = compile_order(order, ENTITY_FIELDS, now=view.now)
    named = f"{view.project} {type} {canonical}"
    columns = qualified(entity_rows.COLUMNS, "e")
    values = [*sorting.columns.bindings, *bound]
    sql = f"SELECT {columns}, {sorting.columns.text} {rows}"
    if after is not None:
        further = compile_cursor(after, sorting, named)
        sql += f" AND {further.text}"
        values += further.bindings
    found = view.rows(f"{sql} ORDER BY {sorting.sql} LIMIT ?", [*values, limit + 1])
    width = entity_rows.COLUMNS.count(",") + 1
    entities = _entities(view, [row[:width] for row in found[:limit]])
    cursor = make_cursor(sorting, named, found[limit - 1][width:]) if len(found) > limit else None
    return Page(entities, cursor, view.number(f"SELECT count(*) {rows}", bound) if total else None)


def _entities(view: View, rows: Sequence[tuple[Any, ...]]) -> tuple[Entity, ...]:
    marks = entity_rows.results(view, [row[0] for row in rows])
    return tuple(entity_rows.entity(row, marks[row[0]]) for row in rows)


def _shared(row: object, attrs: Mapping[str, Any] | None, status: Any, parent: Any) -> Row:
    """A row with the shared values where it gives none."""
    if not isinstance(row, Row):
        raise InvalidInput(f"{type(row).__name__} is no row", next="Give agentmem.Row values, or keys=")
    both = (attrs, row.attrs)
    odd = next((each for each in both if not isinstance(each, Mapping | None)), None)
    return Row(
        row.key,
        # Anything but names and values is left for `put` to refuse.
        attrs={**(attrs or {}), **(row.attrs or {})} if odd is None else odd,
        status=status if isinstance(row.status, Unset) else row.status,
        parent=parent if isinstance(row.parent, Unset) else row.parent,
        confidence=row.confidence,
    )


def _of_type(unit: Unit, type: str, key: str | Ref) -> int:
    """The id of an entity of a type by its key, or by what else names it."""
    if isinstance(key, str):
        row = unit.row(
            "SELECT id FROM entity WHERE project = ? AND type = ? AND key = ?", (unit.known_project, type, key.strip())
        )
        if row is not None:
            subjects.refuse_hidden(unit, row[0], "entity")
            return int(row[0])
        return identify(unit, f"{validate.token(type, 'type')}:{key}")[0]  # raises, naming the nearest key
    found = entity_id(unit, key)
    row = unit.row("SELECT type FROM entity WHERE id = ?", (found,))
    if row is not None and row[0] != type:
        raise InvalidInput(f"Entity #{found} is a {row[0]}, not a {type}")
    return found


def declarations(view: View, type: str | None) -> tuple[ExpectedChecks, ...]:
    """The declarations of a type, or of all, withdrawn ones left out."""
    sql = f"SELECT {entity_rows.CHECKS_COLUMNS} FROM checks WHERE project = ? AND names <> '[]'"
    values: list[Any] = [view.project]
    if type is not None:
        sql += " AND type = ?"
        values.append(validate.token(type, "type"))
    return tuple(entity_rows.expected(row) for row in view.rows(f"{sql} ORDER BY type, filter", values))
