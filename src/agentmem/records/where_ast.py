"""The syntax tree of a `where`, and its canonical text.

A tree holds no parameter and no SQL: every value is a typed literal. Two trees are equal exactly if their canonical
texts are, so the text can stand in the log for the tree.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Final, TypeAlias, assert_never

from attrs import frozen

from agentmem import limits

__all__ = [
    "And",
    "Between",
    "Compare",
    "Field",
    "In",
    "IsNull",
    "Kind",
    "Literal",
    "Node",
    "Not",
    "Op",
    "Or",
    "all_of",
    "any_of",
    "canonical",
    "negate",
    "number",
    "time_from_datetime",
    "time_to_text",
]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
# Not `str.isidentifier`: what counts as a letter differs between Python versions, and this text is kept for years.
_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(Enum):
    """What a field or a literal is. A literal is never `JSON`: that is a field whose values may be of any type."""

    TEXT = "text"
    NUMBER = "a number"
    BOOLEAN = "a boolean"
    TIME = "a time"
    JSON = "JSON"


class Op(Enum):
    """The comparisons with one value; `!=` and `not contains` are their complements."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="
    CONTAINS = "contains"
    ICONTAINS = "icontains"
    STARTSWITH = "startswith"


@frozen
class Literal:
    """One value with its type, so that true, 1 and '1' are three things.

    Args:
        kind: `TEXT`, `NUMBER`, `BOOLEAN` or `TIME`.
        value: A time is in microseconds UTC. A whole number within ±(2^63-1) is an int.
    """

    kind: Kind
    value: str | int | float | bool

    def __str__(self) -> str:
        """The literal as it is written in a `where`."""
        if self.kind is Kind.BOOLEAN:
            return "true" if self.value else "false"
        if self.kind is Kind.NUMBER:
            return repr(self.value)
        text = time_to_text(int(self.value)) if self.kind is Kind.TIME else str(self.value)
        return "'" + text.replace("'", "''") + "'"


@frozen
class Field:
    """A field by its names: `("status",)`, `("attrs", "tls", "version")`, `("check", "authz")`."""

    names: tuple[str, ...]

    def __str__(self) -> str:
        """The field as it is written in a `where`."""
        head, *rest = self.names
        return ".".join([head, *map(_name_text, rest)])


@frozen
class Compare:
    """True where the field is there and compares so with the value."""

    field: Field
    op: Op
    value: Literal


@frozen
class Between:
    """True where the field is there and lies between the two values, both included."""

    field: Field
    low: Literal
    high: Literal


@frozen
class In:
    """True where the field equals one of the values; never, if there are none."""

    field: Field
    values: tuple[Literal, ...]


@frozen
class IsNull:
    """True where the field is absent or null."""

    field: Field


@frozen
class Not:
    """The complement. `node` is never itself a `Not`."""

    node: Compare | Between | In | IsNull | And | Or


@frozen
class And:
    """True where every one is; two or more, none of them an `And`."""

    nodes: tuple[Node, ...]


@frozen
class Or:
    """True where any one is; two or more, none of them an `Or`."""

    nodes: tuple[Node, ...]


Node: TypeAlias = Compare | Between | In | IsNull | Not | And | Or


def negate(node: Node) -> Node:
    """The complement of a node; two negations cancel, which two-valued logic allows."""
    return node.node if isinstance(node, Not) else Not(node)


def all_of(nodes: list[Node]) -> Node:
    """The conjunction of one or more nodes, flattened."""
    flat = [inner for node in nodes for inner in (node.nodes if isinstance(node, And) else (node,))]
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def any_of(nodes: list[Node]) -> Node:
    """The disjunction of one or more nodes, flattened."""
    flat = [inner for node in nodes for inner in (node.nodes if isinstance(node, Or) else (node,))]
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def number(value: int | float) -> Literal:
    """A number literal; 443.0 becomes 443 and -0.0 becomes 0, which changes no comparison.

    Args:
        value: Finite, an int within ±(2^63-1); the caller has checked.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) <= limits.INT_MAX:
        value = int(value)
    return Literal(Kind.NUMBER, value)


def time_from_datetime(moment: datetime) -> int:
    """An aware datetime in microseconds since 1970 UTC."""
    return (moment - _EPOCH) // _MICROSECOND


def time_to_text(microseconds: int) -> str:
    """A time in ISO 8601, UTC, with as many fractional digits as it needs.

    Raises:
        OverflowError: The time is before year 1 or after year 9999.
    """
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat().removesuffix("+00:00") + "Z"


def canonical(node: Node) -> str:
    """The text that parses to exactly this tree, with the fewest parentheses."""
    match node:
        case Or(nodes):
            text = " or ".join(canonical(each) for each in nodes)
        case And(nodes):
            text = " and ".join(f"({canonical(each)})" if isinstance(each, Or) else canonical(each) for each in nodes)
        case Not(inner):
            text = _negated(inner)
        case Compare(field, op, value):
            text = f"{field} {op.value} {value}"
        case Between(field, low, high):
            text = f"{field} between {low} and {high}"
        case In(field, values):
            text = f"{field} in ({', '.join(map(str, values))})"
        case IsNull(field):
            text = f"{field} is null"
        case _:
            assert_never(node)
    return text


def _negated(node: Compare | Between | In | IsNull | And | Or) -> str:
    match node:
        case Compare(field, Op.EQ, value):
            text = f"{field} != {value}"
        case Compare(field, (Op.CONTAINS | Op.ICONTAINS | Op.STARTSWITH) as op, value):
            text = f"{field} not {op.value} {value}"
        case Between(field, low, high):
            text = f"{field} not between {low} and {high}"
        case In(field, values):
            text = f"{field} not in ({', '.join(map(str, values))})"
        case IsNull(field):
            text = f"{field} is not null"
        case And() | Or():
            text = f"not ({canonical(node)})"
        case Compare():
            text = f"not {canonical(node)}"
        case _:
            assert_never(node)
    return text


def _name_text(name: str) -> str:
    return name if _PLAIN_NAME.fullmatch(name) else '"' + name.replace('"', '""') + '"'
