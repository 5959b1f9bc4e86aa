"""`where`: one small grammar for choosing records, the same in Python, on the command line and in MCP.

```
where      = and-part { "or" and-part }
and-part   = not-part { "and" not-part }
not-part   = { "not" } ( "(" where ")" | comparison )
comparison = field ( "=" | "!=" | "<" | "<=" | ">" | ">=" ) value
           | field [ "not" ] ( "contains" | "icontains" | "startswith" ) value
           | field [ "not" ] "in" ( "(" [ value { "," value } ] ")" | :parameter )
           | field [ "not" ] "between" value "and" value
           | field "is" [ "not" ] ( "null" | :parameter )
           | field                                             -- a boolean one
field      = name { "." ( name | '"' any characters '"' ) }    -- attrs.tls.version, attrs."X-Frame-Options"
value      = number | text | true | false | :parameter
```

Keywords are of any case. A quote inside text is doubled (`'it''s'`); a backslash is a plain character.

**Logic has two values.** Each comparison is true or false, also where the field is absent, and `not` is the exact
complement. So `=`, `<`, `in`, `between`, `contains`, `startswith` never hold for an absent field; `!=` and every
`not …` do. `is null` holds for an absent field and for JSON null.

**Types never mix.** A field of a fixed type compared with another type is an error. In JSON (`attrs`, `value`) a
comparison considers only values of the literal's own type: `attrs.port > 80` is false where port is the text '443',
`attrs.tls = true` is false where tls is 1; 443 equals 443.0. Whole numbers compare exactly up to ±(2^63-1). Text
compares by code point.

`contains` is a piece of a text (case counts), or, if the JSON value is an array, one of its elements. `icontains`
is the same without case, by Unicode case folding. Arrays and objects equal nothing.

Times (`created_at`) compare with ISO text, UTC unless it has an offset; a date is its first instant, so a whole day
is `created_at >= '2026-11-01' and created_at < '2026-11-02'`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from attrs import field as attribute
from attrs import frozen

from agentmem import limits
from agentmem.errors import LimitExceeded
from agentmem.records.sql import Binding, Sql
from agentmem.records.where_ast import Node, canonical
from agentmem.records.where_fields import ENTITY_FIELDS, Column, Family, FieldMap
from agentmem.records.where_group import Group, Grouping, Groups, Numbers, compile_group
from agentmem.records.where_order import Order, compile_cursor, compile_order, make_cursor
from agentmem.records.where_parse import parse_node
from agentmem.records.where_sql import SQL_FUNCTIONS, compile_node

__all__ = [
    "ENTITY_FIELDS",
    "SQL_FUNCTIONS",
    "Binding",
    "Column",
    "Family",
    "FieldMap",
    "Group",
    "Grouping",
    "Groups",
    "Numbers",
    "Order",
    "Sql",
    "Where",
    "compile_cursor",
    "compile_group",
    "compile_order",
    "make_cursor",
    "parse",
    "parse_canonical",
]


@frozen
class Where:
    """A parsed `where`. Two are equal if their trees are.

    Args:
        node: The tree, with parameters resolved to literals.
        fields: What its names stand for.
        now: The time in microseconds that `claimed` is judged by.
    """

    node: Node
    fields: FieldMap = attribute(eq=False, repr=False)
    now: int = attribute(eq=False, repr=False)

    @property
    def canonical(self) -> str:
        """The text that parses to this very tree with no parameters: what the log keeps."""
        return canonical(self.node)

    @property
    def sql(self) -> Sql:
        """A parenthesised condition for `WHERE` and its bindings.

        It is true for exactly the rows chosen, and false or null for the rest: to negate it write
        `IS NOT TRUE` after it, never `NOT` before it.
        """
        return compile_node(self.node, self.fields, self.now)


def parse(source: str, fields: FieldMap, params: Mapping[str, object], *, now: int | None = None) -> Where:
    """Parse a `where`.

    Args:
        source: The text, at most `limits.WHERE_CHARS` characters.
        fields: What may be named in it.
        params: The value of each `:name`: str, int, float, bool, an aware datetime or a date for times, a list or
            tuple of these after `in`, None after `is`.
        now: The time in microseconds that `claimed` is judged by; by default the clock's.

    Raises:
        WhereError: The text is no `where` over these fields, or a parameter is missing, unused or of a wrong type.
            The error shows the place.
        LimitExceeded: It is too long, too deep, or has too many comparisons or values.
    """
    where = _parse(source, fields, params, limits.WHERE_CHARS, now)
    size = len(where.canonical)
    if size > limits.WHERE_RESOLVED_CHARS:
        raise LimitExceeded(
            f"With its parameters filled in this where has {size} characters",
            why=f"At most {limits.WHERE_RESOLVED_CHARS} are kept",
            next="Ask in several calls",
        )
    return where


def parse_canonical(source: str, fields: FieldMap, *, now: int | None = None) -> Where:
    """Parse the canonical text of a `Where`, which may be longer than what callers write.

    Raises:
        WhereError, LimitExceeded: As `parse`.
    """
    return _parse(source, fields, {}, limits.WHERE_RESOLVED_CHARS, now)


def _parse(source: str, fields: FieldMap, params: Mapping[str, object], max_chars: int, now: int | None) -> Where:
    node = parse_node(source, fields, params, max_chars=max_chars)
    return Where(node, fields, time.time_ns() // 1000 if now is None else now)
