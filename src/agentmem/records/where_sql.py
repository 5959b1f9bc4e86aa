"""From a syntax tree to SQL.

Comparisons may come out null where a field is absent; `WHERE` takes null for false, `AND` and `OR` agree with that,
and a negation is `IS NOT TRUE`. So logic has two values, and a plain comparison stays one an index can serve.

JSON is compared by `json_type` first, since SQLite extracts true as 1 and orders every number before every text.
"""

from __future__ import annotations

from typing import Final, assert_never

from agentmem.records.sql import Binding, Sql
from agentmem.records.where_ast import And, Between, Compare, Field, In, IsNull, Kind, Literal, Node, Not, Op, Or
from agentmem.records.where_fields import FieldMap, Resolved
from agentmem.records.where_functions import SQL_FUNCTIONS

__all__ = ["SQL_FUNCTIONS", "Writer", "compile_node"]


_ORDER_OPS: Final = frozenset((Op.LT, Op.LE, Op.GT, Op.GE))
_GUARDS: Final = {Kind.TEXT: "= 'text'", Kind.NUMBER: "IN ('integer', 'real')"}


class Writer:
    """Collects bindings in the order in which their question marks are written.

    An f-string is evaluated from left to right: every method that binds is called where its text stands.
    """

    def __init__(self, fields: FieldMap, now: int) -> None:
        self.fields = fields
        self.now = now
        self.bindings: list[Binding] = []

    def bind(self, value: Binding) -> str:
        """A question mark for a value."""
        self.bindings.append(value)
        return "?"

    def field(self, field: Field) -> Resolved:
        """The column behind a field that parsed."""
        return self.fields.resolve(field.names, str(field), 0)

    def column(self, resolved: Resolved) -> str:
        """The field's expression; of a JSON field the JSON text it lies in."""
        self.bindings += resolved.bindings(self.now)
        return resolved.column.sql

    def json_type(self, resolved: Resolved) -> str:
        """The type of a JSON field's value; null where it is absent."""
        return f"json_type({self.column(resolved)}, {self.bind(resolved.path)})"

    def value(self, resolved: Resolved) -> str:
        """The field's value."""
        if resolved.kind is not Kind.JSON:
            return self.column(resolved)
        return f"json_extract({self.column(resolved)}, {self.bind(resolved.path)})"

    def literal(self, literal: Literal) -> str:
        """A question mark for a literal."""
        return self.bind(int(literal.value) if isinstance(literal.value, bool) else literal.value)

    def list(self, literals: list[Literal]) -> str:
        """A parenthesised list of question marks."""
        return "(" + ", ".join(map(self.literal, literals)) + ")"


def compile_node(node: Node, fields: FieldMap, now: int) -> Sql:
    """A condition for `WHERE` that is true exactly where the tree is.

    Args:
        node: A tree that was parsed over the same fields.
        fields: What the names stand for.
        now: The time in microseconds, for `claimed`.

    Returns:
        A parenthesised condition. It may be null instead of false: negate it with `IS NOT TRUE`.
    """
    writer = Writer(fields, now)
    return Sql(f"({_condition(writer, node)})", writer.bindings)


def _condition(writer: Writer, node: Node) -> str:
    match node:
        case And(nodes):
            text = " AND ".join(f"({_condition(writer, each)})" for each in nodes)
        case Or(nodes):
            text = " OR ".join(f"({_condition(writer, each)})" for each in nodes)
        case Not(IsNull(field)):
            text = f"{writer.value(writer.field(field))} IS NOT NULL"
        case Not(inner):
            text = f"({_condition(writer, inner)}) IS NOT TRUE"
        case IsNull(field):
            text = f"{writer.value(writer.field(field))} IS NULL"
        case In(field, values):
            text = _one_of(writer, writer.field(field), values)
        case Between(field, low, high):
            text = _between(writer, writer.field(field), low, high)
        case Compare(field, op, value):
            text = _compare(writer, writer.field(field), op, value)
        case _:
            assert_never(node)
    return text


def _compare(writer: Writer, resolved: Resolved, op: Op, value: Literal) -> str:
    if resolved.kind is Kind.JSON:
        return _json_compare(writer, resolved, op, value)
    if op is Op.EQ or op in _ORDER_OPS:
        return f"{writer.value(resolved)} {op.value} {writer.literal(value)}"
    return _text_compare(writer, resolved, op, str(value.value))


def _text_compare(writer: Writer, resolved: Resolved, op: Op, text: str) -> str:
    if op is Op.CONTAINS:
        return f"instr({writer.value(resolved)}, {writer.bind(text)}) > 0"
    if op is Op.ICONTAINS:
        return f"instr(am_fold({writer.value(resolved)}), {writer.bind(text.casefold())}) > 0"
    after = _after_prefix(text)
    lower = f"{writer.value(resolved)} >= {writer.bind(text)}"
    return lower if after is None else f"{lower} AND {writer.value(resolved)} < {writer.bind(after)}"


def _after_prefix(prefix: str) -> str | None:
    """The least text above all that start so, or None: a range is exact in code point order, and an index serves it."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    last = ord(stem[-1]) + 1
    # The code points after U+D7FF are halves of surrogate pairs, and no characters.
    return stem[:-1] + chr(0xE000 if last == 0xD800 else last)


def _one_of(writer: Writer, resolved: Resolved, values: tuple[Literal, ...]) -> str:
    if not values:
        return "FALSE"
    if resolved.kind is not Kind.JSON:
        return f"{writer.value(resolved)} IN {writer.list(list(values))}"
    parts = []
    for kind, guard in _GUARDS.items():
        alike = [value for value in values if value.kind is kind]
        if alike:
            parts.append(f"{writer.json_type(resolved)} {guard} AND {writer.value(resolved)} IN {writer.list(alike)}")
    truths = [str(value) for value in values if value.kind is Kind.BOOLEAN]
    parts += [f"{writer.json_type(resolved)} = '{truth}'" for truth in truths]
    return " OR ".join(f"({part})" for part in parts)


def _between(writer: Writer, resolved: Resolved, low: Literal, high: Literal) -> str:
    guard = f"{writer.json_type(resolved)} {_GUARDS[low.kind]} AND " if resolved.kind is Kind.JSON else ""
    return f"{guard}{writer.value(resolved)} BETWEEN {writer.literal(low)} AND {writer.literal(high)}"


def _json_compare(writer: Writer, resolved: Resolved, op: Op, value: Literal) -> str:
    if op is Op.EQ and value.kind is Kind.BOOLEAN:
        return f"{writer.json_type(resolved)} = '{value}'"
    if op is Op.EQ or op in _ORDER_OPS:
        guard = f"{writer.json_type(resolved)} {_GUARDS[value.kind]}"
        return f"{guard} AND {writer.value(resolved)} {op.value} {writer.literal(value)}"
    if value.kind is not Kind.TEXT:
        return _member(writer, resolved, op, value)
    inside = f"{writer.json_type(resolved)} = 'text' AND {_text_compare(writer, resolved, op, str(value.value))}"
    return inside if op is Op.STARTSWITH else f"({inside}) OR {_member(writer, resolved, op, value)}"


def _member(writer: Writer, resolved: Resolved, op: Op, value: Literal) -> str:
    # `json_each` of an object gives its members: only an array has elements.
    array = f"{writer.json_type(resolved)} = 'array'"
    elements = f"json_each({writer.column(resolved)}, {writer.bind(resolved.path)}) AS j"
    if value.kind is Kind.BOOLEAN:
        same = f"j.type = '{value}'"
    elif op is Op.ICONTAINS:
        same = f"j.type = 'text' AND am_fold(j.atom) = {writer.bind(str(value.value).casefold())}"
    else:
        same = f"j.type {_GUARDS[value.kind]} AND j.atom = {writer.literal(value)}"
    return f"({array} AND EXISTS (SELECT 1 FROM {elements} WHERE {same}))"
