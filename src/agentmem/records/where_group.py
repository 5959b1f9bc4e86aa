"""`group`: how many rows there are of each combination of values, and what a numeric field comes to in them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import field as attribute
from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, WhereError, shown
from agentmem.records.sql import Sql
from agentmem.records.where_ast import Kind, number
from agentmem.records.where_fields import FieldMap, Resolved
from agentmem.records.where_lex import TokenKind, tokens
from agentmem.records.where_order import field_list, json_rank
from agentmem.records.where_sql import Writer
from agentmem.types import Json

__all__ = ["Group", "Grouping", "Groups", "Numbers", "compile_group"]

_BOOLEAN, _OTHER = 1, 4
_WHOLE: Final = "'integer'"
_REAL: Final = "'real'"
_NUMBERS: Final = f"{_WHOLE}, {_REAL}"


@frozen
class Numbers:
    """What the numeric field comes to in one group. `min`, `max` and `avg` are None where no row has a number.

    `sum` of whole numbers is exact, of any size; with others among them it is a float.
    """

    count: int
    min: int | float | None
    max: int | float | None
    sum: int | float
    avg: float | None


@frozen
class Group:
    """One combination of values, in the order of the fields, and how many rows have it."""

    values: tuple[Json, ...]
    count: int
    numbers: Numbers | None = None


@frozen
class Groups:
    """The groups, the largest first, ties in the order of their values.

    Args:
        fields: What was grouped by.
        groups: At most as many as were asked for.
        total: How many groups there are.
        rows: How many rows there are in all of them.
    """

    fields: tuple[str, ...]
    groups: tuple[Group, ...]
    total: int
    rows: int

    @property
    def cut(self) -> bool:
        """Whether there are more groups than are here."""
        return len(self.groups) < self.total


@frozen
class Grouping:
    """A parsed `group`: writes the query, and reads its rows."""

    keys: tuple[Resolved, ...]
    of: Resolved | None
    limit: int
    fields: FieldMap = attribute(eq=False, repr=False)
    now: int = attribute(eq=False, repr=False)

    def select(self, rows: Sql) -> Sql:
        """The query.

        Args:
            rows: `FROM … WHERE …`, whose rows are counted.
        """
        writer = Writer(self.fields, self.now)
        keys = [self._key(writer, key) for key in self.keys]
        names = [f"group_{at}" for at in range(sum(len(key) for key in keys))]
        columns = [
            f"{text} AS {name}" for text, name in zip((part for key in keys for part in key), names, strict=True)
        ]
        columns += ["count(*) AS group_count", "count(*) OVER ()", "sum(count(*)) OVER ()"]
        columns += [] if self.of is None else _aggregates(writer, self.of)
        listed = ", ".join(names)
        text = f"SELECT {', '.join(columns)} {rows.text} GROUP BY {listed} ORDER BY group_count DESC, {listed} LIMIT ?"
        return Sql(text, [*writer.bindings, *rows.bindings, self.limit])

    def read(self, rows: Iterable[Sequence[Any]]) -> Groups:
        """The groups of the query's rows."""
        groups, total, counted = [], 0, 0
        for row in rows:
            values, at = [], 0
            for key in self.keys:
                width = 2 if key.kind is Kind.JSON else 1
                values.append(_value(key, row[at : at + width]))
                at += width
            count, total, counted = row[at : at + 3]
            groups.append(Group(tuple(values), count, None if self.of is None else _numbers(row[at + 3 :])))
        return Groups(tuple(str(key.field) for key in self.keys), tuple(groups), total, counted)

    def _key(self, writer: Writer, key: Resolved) -> list[str]:
        rank = [json_rank(writer, key)] if key.kind is Kind.JSON else []
        return [*rank, writer.value(key)]


def compile_group(
    source: str, fields: FieldMap, *, of: str | None = None, limit: int = limits.GROUPS_MAX, now: int | None = None
) -> Grouping:
    """Parse a `group` such as `status, attrs.area`.

    Args:
        source: A comma list of fields. True, 1 and '1' are three groups, 443 and 443.0 one; absent and null are one.
        fields: What may be named in it.
        of: A numeric field whose minimum, maximum, sum and average are wanted; of JSON only the numbers count.
        limit: How many groups at most.
        now: The time in microseconds that `claimed` is judged by; by default the clock's.

    Raises:
        WhereError: It names no field, or `of` is no numeric one; it shows the place.
        LimitExceeded: More than `limits.GROUP_FIELDS` fields, or more than `limits.GROUPS_MAX` groups.
    """
    keys = [resolved for resolved, _ in field_list(source, fields, signed=False, most=limits.GROUP_FIELDS)]
    if not keys:
        raise WhereError("This group names no field", source=source, position=0, next="Write for instance status")
    if type(limit) is not int or limit < 1:
        raise InvalidInput(f"The number of groups is {shown(limit)}", next="Pass 1 or more")
    if limit > limits.GROUPS_MAX:
        raise LimitExceeded(f"{limit} groups in one answer", why=f"At most {limits.GROUPS_MAX} are given")
    number = None if of is None else _numeric(of, fields)
    return Grouping(tuple(keys), number, limit, fields, time.time_ns() // 1000 if now is None else now)


def _numeric(source: str, fields: FieldMap) -> Resolved:
    first, *rest = tokens(source)
    if first.kind is not TokenKind.PATH or len(rest) != 1:
        raise WhereError("`of` is one field", source=source, position=0)
    resolved = fields.resolve(first.names, source, first.start)
    if resolved.kind not in (Kind.NUMBER, Kind.JSON):
        raise WhereError(
            f"{resolved.field} is {resolved.kind.value}", source=source, position=0, next="Name a numeric field"
        )
    return resolved


def _aggregates(writer: Writer, of: Resolved) -> list[str]:
    def only(kinds: str, part: str = "") -> str:
        kind = writer.json_type(of) if of.kind is Kind.JSON else f"typeof({writer.value(of)})"
        return f"CASE WHEN {kind} IN ({kinds}) THEN {writer.value(of)}{part} END"

    # `sum` of integers fails beyond 64 bits: the upper and the lower halves are summed apart.
    return [
        f"count({only(_NUMBERS)})",
        f"min({only(_NUMBERS)})",
        f"max({only(_NUMBERS)})",
        f"sum({only(_WHOLE, ' >> 32')})",
        f"sum({only(_WHOLE, ' & 4294967295')})",
        f"sum({only(_REAL)})",
    ]


def _numbers(row: Sequence[Any]) -> Numbers:
    count, least, most, upper, lower, real = row
    whole = (upper or 0) * 2**32 + (lower or 0)
    total: int | float = whole if real is None else whole + real
    return Numbers(count, least, most, total, total / count if count else None)


def _value(key: Resolved, row: Sequence[Any]) -> Json:
    value: Json = row[-1]
    if key.kind is Kind.BOOLEAN:
        return bool(value)
    if key.kind is not Kind.JSON or value is None:
        return value
    if row[0] == _BOOLEAN:
        return bool(value)
    if isinstance(value, (int, float)):
        return number(value).value
    return json.loads(str(value)) if row[0] == _OTHER else value
