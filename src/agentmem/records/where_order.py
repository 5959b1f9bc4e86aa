"""`order`: by which fields a list is sorted; and the cursor that continues a sorted list.

`order` is a comma list of fields, `-` before one for descending. Ties go by id, in the direction of the last field.
Values of different JSON types have one total order: absent and null, false, true, numbers, text, then arrays and
objects by their JSON text. A cursor holds the last row's values, not a row number: pages neither skip nor repeat a row
that stays as it is, whatever is written in between.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import time
from collections.abc import Sequence
from typing import Final

from attrs import field as attribute
from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, WhereError
from agentmem.records.sql import Binding, Sql
from agentmem.records.where_ast import Field, Kind
from agentmem.records.where_fields import FieldMap, Resolved
from agentmem.records.where_lex import Token, TokenKind, tokens
from agentmem.records.where_sql import Writer

__all__ = ["Key", "Order", "compile_cursor", "compile_order", "field_list", "json_rank", "make_cursor"]

_RANKS: Final = "WHEN 'true' THEN 1 WHEN 'false' THEN 1 WHEN 'integer' THEN 2 WHEN 'real' THEN 2 WHEN 'text' THEN 3"


@frozen
class Key:
    """One expression that rows are sorted by; a JSON field has two, its type's rank and its value."""

    resolved: Resolved
    rank: bool
    descending: bool

    @property
    def nullable(self) -> bool:
        """Whether it can be null; a rank cannot."""
        return not self.rank and self.resolved.column.nullable

    def write(self, writer: Writer) -> str:
        """The expression."""
        return json_rank(writer, self.resolved) if self.rank else writer.value(self.resolved)

    def holds(self, value: object) -> bool:
        """Whether a value read from a cursor can be one of this expression."""
        if value is None:
            return self.nullable
        if (type(value) is int and abs(value) > limits.INT_MAX) or (type(value) is float and not math.isfinite(value)):
            return False
        if self.rank or self.resolved.kind in (Kind.BOOLEAN, Kind.TIME):
            return type(value) is int
        if self.resolved.kind is Kind.NUMBER:
            return type(value) in (int, float)
        return type(value) is str or (self.resolved.kind is Kind.JSON and type(value) in (int, float))


@frozen
class Order:
    """A total order of rows.

    Args:
        canonical: Its text, the closing id included.
        keys: The expressions, the most significant first; the last one is the id.
        columns: Expressions to add to the `SELECT` list; their values make the cursor.
        sql: What follows `ORDER BY`; it refers to `columns` and binds nothing.
    """

    canonical: str
    keys: tuple[Key, ...]
    columns: Sql
    sql: str
    fields: FieldMap = attribute(eq=False, repr=False)
    now: int = attribute(eq=False, repr=False)


def compile_order(source: str, fields: FieldMap, *, now: int | None = None) -> Order:
    """Parse an `order` such as `-updated_at, attrs.port`; an empty one is by id.

    Raises:
        WhereError: It names no field, or one twice; it shows the place.
        LimitExceeded: More than `limits.ORDER_FIELDS` fields.
    """
    found = field_list(source, fields, signed=True, most=limits.ORDER_FIELDS)
    names = [resolved.field.names for resolved, _ in found]
    # Nothing that stands after the id can make a difference.
    found = found[: names.index(("id",)) + 1] if ("id",) in names else [*found, _id(fields, found)]
    keys = tuple(
        Key(resolved, rank, descending)
        for resolved, descending in found
        for rank in ((True, False) if resolved.kind is Kind.JSON else (False,))
    )
    now = time.time_ns() // 1000 if now is None else now
    writer = Writer(fields, now)
    columns = ", ".join(f"{key.write(writer)} AS order_{at}" for at, key in enumerate(keys))
    terms = ", ".join(f"order_{at}{' DESC' if key.descending else ''}" for at, key in enumerate(keys))
    canonical = ", ".join(f"{'-' if descending else ''}{resolved.field}" for resolved, descending in found)
    return Order(canonical, keys, Sql(columns, writer.bindings), terms, fields, now)


def make_cursor(order: Order, query: str, values: Sequence[Binding]) -> str:
    """The cursor that continues after a row.

    Args:
        order: The order of the list.
        query: What else decides which rows the list has: project, type and canonical where, say.
        values: The row's values of `order.columns`.
    """
    parts = [_fingerprint(order, query), *values]
    text = json.dumps(parts, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def compile_cursor(after: str, order: Order, query: str) -> Sql:
    """A condition for `WHERE` that holds for the rows strictly after a cursor's.

    Args:
        after: The cursor.
        order: The order of the list, the same as when the cursor was made.
        query: The same as when it was made.

    Raises:
        InvalidInput: This is no cursor, or one of another query or order.
    """
    values = _read(after, order, query)
    writer = Writer(order.fields, order.now)
    directions = {key.descending for key in order.keys}
    if len(directions) == 1 and not any(key.nullable for key in order.keys):
        # A row value is one range of an index.
        left = ", ".join(key.write(writer) for key in order.keys)
        right = ", ".join(map(writer.bind, values))
        text = f"(({left}) {'<' if order.keys[0].descending else '>'} ({right}))"
    else:
        text = f"({_bound(writer, order.keys[0], values[0])}{_after(writer, order.keys, values)})"
    return Sql(text, writer.bindings)


def _bound(writer: Writer, key: Key, value: Binding) -> str:
    # Says no more than what follows it, but in a form that an index can start from.
    if value is None or (key.descending and key.nullable):
        return ""
    return f"{key.write(writer)} {'<=' if key.descending else '>='} {writer.bind(value)} AND "


def _after(writer: Writer, keys: Sequence[Key], values: Sequence[Binding]) -> str:
    beyond = _beyond(writer, keys[0], values[0])
    if len(keys) == 1:
        return beyond
    equal = f"{keys[0].write(writer)} IS {writer.bind(values[0])}"
    return f"({beyond} OR ({equal} AND {_after(writer, keys[1:], values[1:])}))"


def _beyond(writer: Writer, key: Key, value: Binding) -> str:
    if value is None:
        return "FALSE" if key.descending else f"{key.write(writer)} IS NOT NULL"
    text = f"{key.write(writer)} {'<' if key.descending else '>'} {writer.bind(value)}"
    return f"({text} OR {key.write(writer)} IS NULL)" if key.descending and key.nullable else text


def _read(after: str, order: Order, query: str) -> list[Binding]:
    try:
        text = base64.b64decode(after + "=" * (-len(after) % 4), altchars=b"-_", validate=True)
        parts = json.loads(text)
        ours = isinstance(parts, list) and parts[:1] == [_fingerprint(order, query)]
        values = parts[1:] if ours else []
    except (TypeError, ValueError, RecursionError):
        raise InvalidInput("This is no cursor", next="Pass `after` as the last page gave it") from None
    fits = len(values) == len(order.keys) and all(
        key.holds(value) for key, value in zip(order.keys, values, strict=True)
    )
    if not fits:
        raise InvalidInput(
            "This cursor belongs to another query",
            why="Its where, order or project was not this one",
            next="Pass the same arguments as for the page before, or start again without `after`",
        )
    return values


def _fingerprint(order: Order, query: str) -> str:
    return hashlib.blake2b(json.dumps([order.canonical, query]).encode(), digest_size=6).hexdigest()


def json_rank(writer: Writer, resolved: Resolved) -> str:
    """The place of a JSON value's type in the order: null 0, boolean 1, number 2, text 3, array or object 4."""
    kind = writer.json_type(resolved)
    return f"CASE ifnull({kind}, 'null') {_RANKS} WHEN 'null' THEN 0 ELSE 4 END"


def field_list(source: str, fields: FieldMap, *, signed: bool, most: int) -> list[tuple[Resolved, bool]]:
    """Parse a comma list of fields, each with whether a `-` stands before it.

    Raises:
        WhereError: It is no such list, names an unknown field, or one twice.
        LimitExceeded: It has more than `most` fields.
    """
    words = tokens(source)
    found: list[tuple[Resolved, bool]] = []
    at = 0
    while words[at].kind is not TokenKind.END:
        negative = signed and words[at].text == "-"
        at += negative
        token, after = words[at], words[min(at + 1, len(words) - 1)]
        if token.kind is not TokenKind.PATH:
            raise _unexpected(source, token, "a field")
        resolved = fields.resolve(token.names, source, token.start)
        if any(resolved.field == other.field for other, _ in found):
            raise WhereError(f"{resolved.field} stands here twice", source=source, position=token.start)
        found.append((resolved, negative))
        if after.text != "," and after.kind is not TokenKind.END:
            raise _unexpected(source, after, "a comma")
        at += 2 if after.text == "," else 1
        if after.text == "," and words[at].kind is TokenKind.END:
            raise _unexpected(source, words[at], "a field")
    if len(found) > most:
        raise LimitExceeded(f"{len(found)} fields to order or group by", why=f"At most {most} are taken")
    return found


def _unexpected(source: str, token: Token, wanted: str) -> WhereError:
    found = f"`{token.text}`" if token.kind is not TokenKind.END else "the end"
    hint = "Descending is a - before the field" if token.word in ("desc", "asc") else ""
    return WhereError(f"Here stands {found} where {wanted} is wanted", source=source, position=token.start, next=hint)


def _id(fields: FieldMap, found: list[tuple[Resolved, bool]]) -> tuple[Resolved, bool]:
    return Resolved(Field(("id",)), fields.columns["id"]), found[-1][1] if found else False
