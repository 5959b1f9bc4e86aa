"""Which fields a `where`, an `order` or a `group` may name, and the SQL behind each.

A `FieldMap` is written once for each kind of record. Its SQL is constant text; names and values of callers reach
SQLite only as bindings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from typing import Final

from attrs import frozen

from agentmem.errors import WhereError
from agentmem.records.sql import Binding
from agentmem.records.validate import nearest
from agentmem.records.where_ast import Field, Kind
from agentmem.types import CHECK_RESULTS, ORIGINS

__all__ = [
    "ENTITY_FIELDS",
    "Bind",
    "Column",
    "Family",
    "FieldMap",
    "Resolved",
]


class Bind(Enum):
    """What a question mark in the SQL of a field stands for."""

    NAME = "name"
    NOW = "now"


@frozen
class Column:
    """One field.

    Args:
        kind: Its type. A `JSON` column holds JSON text.
        sql: An expression over the caller's tables, with one question mark for each of `binds`.
        nullable: Whether it can be null. A false `False` loses rows from pages.
        binds: What the question marks stand for.
        choices: The closed set of its values, if there is one.
    """

    kind: Kind
    sql: str
    nullable: bool = True
    binds: tuple[Bind, ...] = ()
    choices: tuple[str, ...] = ()


@frozen
class Family:
    """All fields `head.NAME`.

    Args:
        column: The expression that they share.
        named: Whether the first name is bound into it (`Bind.NAME`).
        nested: Whether the (other) names are a path into its JSON. If not, names with dots are one name.
    """

    column: Column
    named: bool
    nested: bool


@frozen
class Resolved:
    """A field with the column behind it.

    Args:
        field: Its names as canonical text spells them.
        column: Where its value comes from.
        name: What `Bind.NAME` stands for.
        path: The JSON path of its value; empty where the column is not JSON.
    """

    field: Field
    column: Column
    name: str = ""
    path: str = ""

    @property
    def kind(self) -> Kind:
        """The type of its values."""
        return self.column.kind

    def bindings(self, now: int) -> list[Binding]:
        """What the question marks of `column.sql` stand for."""
        return [now if bind is Bind.NOW else self.name for bind in self.column.binds]


@frozen
class FieldMap:
    """The fields of one kind of record.

    Args:
        columns: Fields of one name; `id` is among them, an integer that is unique and never null.
        families: Fields with names below a head.
        attributes: The family that holds a caller's own names, for hints.
    """

    columns: Mapping[str, Column]
    families: Mapping[str, Family]
    attributes: str = ""

    def resolve(self, names: tuple[str, ...], source: str, position: int) -> Resolved:
        """Find the column behind a field.

        Raises:
            WhereError: There is no such field; the nearest one is named.
        """
        head, *rest = names
        if any("\0" in name for name in rest):
            # SQLite takes a NUL in a JSON path for the end of the name, and would find another one.
            raise WhereError("A name has no NUL in it", source=source, position=position)
        family = self.families.get(head)
        if family is not None and rest:
            return _member(family, head, rest)
        if family is not None:
            what, hint = f"`{head}` is not a field by itself", f"Write {head}.NAME"
        elif head in self.columns and rest:
            what, hint = f"`{head}` is one value with nothing below it", f"Write {head}"
        elif head in self.columns:
            column = self.columns[head]
            return Resolved(Field(names), column, path="$" if column.kind is Kind.JSON else "")
        else:
            what, hint = f"There is no field `{head}`", self._hint(head, rest)
        raise WhereError(what, source=source, position=position, next=hint)

    def _hint(self, head: str, rest: list[str]) -> str:
        near = nearest(head, [*self.families] if rest else [*self.columns, *self.families])
        if near:
            return (
                f"Did you mean {near}.{'.'.join(rest) or 'NAME'}?" if near in self.families else f"Did you mean {near}?"
            )
        known = ", ".join([*self.columns, *(f"{family}.NAME" for family in self.families)])
        below = ".".join([self.attributes, head, *rest])
        return (
            f"Write {below} for an attribute; the fields are {known}" if self.attributes else f"The fields are {known}"
        )


def _member(family: Family, head: str, rest: list[str]) -> Resolved:
    # A check may be called `tls.version`: dots that cannot lead anywhere belong to the name.
    below = rest if family.nested else [".".join(rest)]
    name, steps = (below[0], below[1:]) if family.named else ("", below)
    path = "".join(["$", *(f".{json.dumps(step)}" for step in steps)]) if family.nested else ""
    return Resolved(Field((head, *below)), family.column, name=name, path=path)


def _of_mark(column: str, kind: Kind, choices: tuple[str, ...] = ()) -> Column:
    # Of the two ways to a result, the index is the narrower: all of it stays in the cache where the table would not.
    way = " INDEXED BY mark_check" if column == "result" else ""
    sql = f"(SELECT m.{column} FROM mark AS m{way} WHERE m.entity = e.id AND m.name = ?)"
    return Column(kind, sql, binds=(Bind.NAME,), choices=choices)


_CLAIMED: Final = "EXISTS (SELECT 1 FROM lease AS l WHERE l.record = e.id AND l.expires_at > ?)"

ENTITY_FIELDS: Final = FieldMap(
    columns={
        "id": Column(Kind.NUMBER, "e.id", nullable=False),
        "type": Column(Kind.TEXT, "e.type", nullable=False),
        "key": Column(Kind.TEXT, "e.key", nullable=False),
        "status": Column(Kind.TEXT, "e.status", nullable=False),
        "confidence": Column(Kind.NUMBER, "e.confidence"),
        "parent": Column(Kind.NUMBER, "e.parent"),
        "author": Column(Kind.TEXT, "e.author"),
        "run": Column(Kind.TEXT, "e.run"),
        "origin": Column(Kind.TEXT, "e.origin", nullable=False, choices=ORIGINS),
        "created_at": Column(Kind.TIME, "e.created_at", nullable=False),
        "updated_at": Column(Kind.TIME, "e.updated_at", nullable=False),
        "claimed": Column(Kind.BOOLEAN, _CLAIMED, nullable=False, binds=(Bind.NOW,)),
    },
    families={
        "attrs": Family(Column(Kind.JSON, "e.attrs"), named=False, nested=True),
        "check": Family(_of_mark("result", Kind.TEXT, CHECK_RESULTS), named=True, nested=False),
        "value": Family(_of_mark("value", Kind.JSON), named=True, nested=True),
        "detail": Family(_of_mark("detail", Kind.TEXT), named=True, nested=False),
    },
    attributes="attrs",
)
"""The fields of an entity, over `entity AS e`, `mark` and `lease`.

Lists of entities leave out the stubs of purged ones (`e.key IS NULL`), so a key counts as never null.
"""
