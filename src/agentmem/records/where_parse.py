"""From the text of a `where` and its parameters to a syntax tree, every type checked."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Final

from agentmem import limits
from agentmem.errors import LimitExceeded, WhereError, shown
from agentmem.records.validate import nearest
from agentmem.records.where_ast import (
    Between,
    Compare,
    In,
    IsNull,
    Kind,
    Literal,
    Node,
    Op,
    all_of,
    any_of,
    negate,
    number,
    time_from_datetime,
    time_to_text,
)
from agentmem.records.where_fields import FieldMap, Resolved
from agentmem.records.where_lex import Token, TokenKind, tokens, unquoted

__all__ = ["parse_node"]

_KEYWORDS: Final = frozenset(
    ("and", "or", "not", "in", "between", "contains", "icontains", "startswith", "is", "null", "true", "false")
)
_SYMBOL_OPS: Final = {"=": Op.EQ, "<": Op.LT, "<=": Op.LE, ">": Op.GT, ">=": Op.GE}
_WORD_OPS: Final = {"contains": Op.CONTAINS, "icontains": Op.ICONTAINS, "startswith": Op.STARTSWITH}
_TEXT_OPS: Final = frozenset(_WORD_OPS.values())
_INSTEAD: Final = {
    "desc": "Put - before a field in order",
    "like": "Write contains, icontains or startswith",
    "ilike": "Write icontains",
    "exists": "Write `is not null` after the field",
}
_TIME: Final = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
    r"(?:[T ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?(?:Z|[+-][0-9]{2}:[0-9]{2})?)?"
)

_REMEDY: Final = {
    (Kind.TEXT, Kind.NUMBER): "Put the value in quotes",
    (Kind.TEXT, Kind.BOOLEAN): "Put the value in quotes",
    (Kind.NUMBER, Kind.TEXT): "Take off the quotes, or pass a number",
    (Kind.BOOLEAN, Kind.TEXT): "Write true or false, without quotes",
    (Kind.TIME, Kind.NUMBER): "Write ISO text: '2026-11-01T09:30'",
    (Kind.JSON, Kind.TIME): "JSON has no times: pass ISO text, as it is stored",
}


def parse_node(
    source: str, fields: FieldMap, params: Mapping[str, object], *, max_chars: int = limits.WHERE_CHARS
) -> Node:
    """Parse a `where`; the grammar is in `agentmem.records.where`.

    Args:
        source: The text.
        fields: What may be named in it.
        params: The values of its `:name` parameters, each used at least once.
        max_chars: The longest source taken.

    Raises:
        WhereError: The text is no `where` over these fields, or a parameter does not fit; it shows the place.
        LimitExceeded: It is too long, too deep, or has too many comparisons or values.
    """
    return _Parser(source, fields, params, max_chars).parse()


class _Parser:
    """Recursive descent over the tokens; only parentheses recurse, so the depth is the caller's own."""

    def __init__(self, source: str, fields: FieldMap, params: Mapping[str, object], max_chars: int) -> None:
        self.source = source
        self.fields = fields
        self.params = params
        self.tokens = tokens(source, max_chars=max_chars)
        self.at = 0
        self.unused = set(params)
        self.depth = 0
        self.terms = 0
        self.values = 0

    def parse(self) -> Node:
        if self.ended():
            raise self.error("This where is empty", next="Leave it out to take all")
        node = self.disjunction()
        if not self.ended():
            raise self.unexpected("`and`, `or` or the end")
        if self.unused:
            name = sorted(self.unused)[0]
            used = [token.text[1:] for token in self.tokens if token.kind is TokenKind.PARAMETER]
            near = nearest(name, used)
            hint = f"Did you mean :{near}?" if near else f"Write :{name} in the where, or leave it out"
            raise self.error(f"Nothing in this where uses the parameter {shown(name)}", next=hint)
        return node

    def disjunction(self) -> Node:
        nodes = [self.conjunction()]
        while self.take("or"):
            nodes.append(self.conjunction())
        return any_of(nodes)

    def conjunction(self) -> Node:
        nodes = [self.negation()]
        while self.take("and"):
            nodes.append(self.negation())
        return all_of(nodes)

    def negation(self) -> Node:
        negative = False
        while self.take("not"):
            negative = not negative
        node = self.primary()
        return negate(node) if negative else node

    def primary(self) -> Node:
        opening = self.token
        if not self.take("("):
            return self.comparison()
        self.depth += 1
        if self.depth > limits.WHERE_DEPTH:
            raise LimitExceeded(
                f"This where nests deeper than {limits.WHERE_DEPTH} parentheses",
                why=f"The one at character {opening.start + 1} is too many",
                next="Take off parentheses that change nothing",
            )
        node = self.disjunction()
        self.expect(")")
        self.depth -= 1
        return node

    def comparison(self) -> Node:
        start = self.token
        resolved = self.field()
        self.terms += 1
        if self.terms > limits.WHERE_TERMS:
            raise LimitExceeded(
                f"This where has more than {limits.WHERE_TERMS} comparisons",
                why=f"The one at character {start.start + 1} is too many",
                next="Write `in` for several values of one field",
            )
        if self.take("is"):
            return self.null_test(resolved)
        negative = self.take("not")
        operator = self.token
        if self.take("in"):
            node: Node = In(resolved.field, self.list(resolved, operator))
        elif self.take("between"):
            node = self.between(resolved, operator)
        elif operator.word in _WORD_OPS or (operator.text in (*_SYMBOL_OPS, "!=") and not negative):
            self.at += 1
            op = _WORD_OPS.get(operator.word) or _SYMBOL_OPS.get(operator.text, Op.EQ)
            negative = negative or operator.text == "!="
            node = Compare(resolved.field, op, self.operand(resolved, op, operator))
        elif resolved.kind is Kind.BOOLEAN and not negative:
            node = Compare(resolved.field, Op.EQ, Literal(Kind.BOOLEAN, True))
        else:
            raise self.unexpected("`in`, `between` or `contains`" if negative else f"a comparison after {start.text}")
        return negate(node) if negative else node

    def field(self) -> Resolved:
        token = self.token
        if token.kind is not TokenKind.PATH or token.word in _KEYWORDS:
            raise self.unexpected("a field")
        self.at += 1
        return self.fields.resolve(token.names, self.source, token.start)

    def null_test(self, resolved: Resolved) -> Node:
        negative = self.take("not")
        token = self.token
        if token.kind is TokenKind.PARAMETER:
            if self.parameter(token) is not None:
                raise self.error(f"{token.text} is not None", token, next="`is` tests for null only; compare with =")
            self.at += 1
        elif not self.take("null"):
            raise self.error(
                "`is` tests for null only", token, next="Write `is null`, `is not null`, or compare with ="
            )
        node = IsNull(resolved.field)
        return negate(node) if negative else node

    def between(self, resolved: Resolved, operator: Token) -> Node:
        low = self.operand(resolved, Op.GE, operator)
        if not self.take("and"):
            raise self.unexpected("`and` and the upper end of `between`")
        place = self.token
        high = self.operand(resolved, Op.LE, operator)
        if low.kind is not high.kind:
            raise self.error(f"The two ends of `between` differ: {low.kind.value} and {high.kind.value}", place)
        return Between(resolved.field, low, high)

    def list(self, resolved: Resolved, operator: Token) -> tuple[Literal, ...]:
        found: dict[Literal, None] = {}
        if self.token.kind is TokenKind.PARAMETER:
            token = self.token
            given = self.parameter(token)
            if not isinstance(given, (list, tuple)):
                raise self.error(
                    f"{token.text} is {type(given).__name__}, and `in` takes a list",
                    token,
                    next=f"Pass a list, or write in ({token.text})",
                )
            self.at += 1
            for each in given:
                found[self.checked(resolved, Op.EQ, operator, self.from_python(each, token), token)] = None
        else:
            self.expect("(")
            while not self.take(")"):
                found[self.operand(resolved, Op.EQ, operator)] = None
                if self.token.text != ")":
                    self.expect(",")
        self.values += len(found)
        if self.values > limits.WHERE_VALUES:
            raise LimitExceeded(
                f"The lists of this where have more than {limits.WHERE_VALUES} values",
                why=f"The one at character {operator.start + 1} is too long",
                next="Ask in several calls",
            )
        return tuple(found)

    def operand(self, resolved: Resolved, op: Op, operator: Token) -> Literal:
        token = self.token
        if token.kind is TokenKind.PARAMETER:
            literal = self.from_python(self.parameter(token), token)
        elif token.kind is TokenKind.TEXT:
            literal = Literal(Kind.TEXT, unquoted(token.text))
        elif token.kind is TokenKind.NUMBER:
            literal = self.from_digits(token)
        elif token.word in ("true", "false"):
            literal = Literal(Kind.BOOLEAN, token.word == "true")
        elif token.word == "null":
            raise self.error("Nothing compares with null", token, next="Write `is null` or `is not null`")
        elif token.kind is TokenKind.PATH and token.word not in _KEYWORDS:
            raise self.error("A field is compared with a value", token, next=f"Put text in quotes: '{token.text}'")
        elif token.text in _SYMBOL_OPS:
            raise self.error("This operator does not exist", operator, next="Equal is =, not equal is !=")
        else:
            raise self.unexpected("a value")
        self.at += 1
        return self.checked(resolved, op, operator, literal, token)

    def checked(self, resolved: Resolved, op: Op, operator: Token, literal: Literal, place: Token) -> Literal:
        """The literal as one of the field's type, if this comparison of the two has a meaning."""
        kind, field = resolved.kind, resolved.field
        if kind is Kind.TIME and literal.kind is Kind.TEXT and op not in _TEXT_OPS:
            literal = self.from_iso(str(literal.value), place)
        if not _takes_op(kind, op):
            article = "a field of any type" if kind is Kind.JSON else kind.value
            raise self.error(f"`{operator.text}` has no meaning for {field}, which is {article}", operator)
        if not _takes_value(kind, op, literal.kind):
            raise self.error(
                f"{_subject(resolved, operator, literal)} {literal.kind.value}",
                place,
                next=_REMEDY.get((kind, literal.kind), "Compare values of one type"),
            )
        choices = resolved.column.choices
        if choices and op is Op.EQ and literal.value not in choices:
            near = nearest(str(literal.value), list(choices))
            hint = f"Did you mean '{near}'?" if near else "It is one of " + ", ".join(choices)
            raise self.error(f"{field} is never {literal}", place, next=hint)
        return literal

    def parameter(self, token: Token) -> object:
        name = token.text[1:]
        if name not in self.params:
            near = nearest(name, list(self.params))
            hint = f"Did you mean :{near}?" if near else f"Pass {name}= beside the where"
            raise self.error(f"The parameter {token.text} has no value", token, next=hint)
        self.unused.discard(name)
        return self.params[name]

    def from_python(self, value: object, token: Token) -> Literal:
        if isinstance(value, bool):
            return Literal(Kind.BOOLEAN, value)
        if isinstance(value, str):
            # Of a subclass, a string enum say, only the characters: `str()` of it may give its name.
            text = str.__str__(value)
            try:
                text.encode()
            except UnicodeEncodeError:
                raise self.error(f"{token.text} holds half a surrogate pair", token) from None
            return Literal(Kind.TEXT, text)
        if isinstance(value, (int, float)):
            return self.number(int(value) if isinstance(value, int) else float(value), token)
        if isinstance(value, datetime):
            if value.utcoffset() is None:
                raise self.error(
                    f"{token.text} is a datetime without a time zone",
                    token,
                    next="Pass one with tzinfo, or ISO text in UTC",
                )
            return self.time(value, token)
        if isinstance(value, date):
            return self.time(datetime(value.year, value.month, value.day, tzinfo=UTC), token)
        if value is None:
            raise self.error(f"{token.text} is None, and nothing compares with null", token, next="Write `is null`")
        if isinstance(value, (list, tuple)):
            raise self.error(f"{token.text} is a list", token, next=f"Write `in {token.text}`")
        raise self.error(
            f"{token.text} is {type(value).__name__}",
            token,
            next="A parameter is str, int, float, bool, datetime, a list of these for `in`, or None for `is`",
        )

    def from_digits(self, token: Token) -> Literal:
        # Longer ones Python refuses to read as whole numbers; as broken ones they are not finite.
        whole = token.text.lstrip("-").isdigit() and len(token.text) <= limits.WHERE_CHARS
        return self.number(int(token.text) if whole else float(token.text), token)

    def number(self, value: int | float, place: Token) -> Literal:
        if isinstance(value, int) and abs(value) > limits.INT_MAX:
            raise self.error(
                "This whole number is beyond ±(2^63-1)", place, next="Write it as text, or with an exponent"
            )
        if not math.isfinite(value):
            raise self.error("This number is not finite", place)
        return number(value)

    def from_iso(self, text: str, place: Token) -> Literal:
        hint = "Write '2026-11-01', '2026-11-01T09:30' or '2026-11-01T09:30:00.5+02:00'; without an offset it is UTC"
        if not _TIME.fullmatch(text):
            raise self.error("This is not a date or time", place, next=hint)
        try:
            moment = datetime.fromisoformat(text)
        except ValueError as error:
            raise self.error(f"This is not a date or time: {error}", place, next=hint) from None
        return self.time(moment if moment.tzinfo else moment.replace(tzinfo=UTC), place)

    def time(self, moment: datetime, place: Token) -> Literal:
        microseconds = time_from_datetime(moment)
        try:
            time_to_text(microseconds)
        except OverflowError:
            raise self.error("This time, in UTC, is not within the years 1 to 9999", place) from None
        return Literal(Kind.TIME, microseconds)

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    def ended(self) -> bool:
        return self.token.kind is TokenKind.END

    def take(self, what: str) -> bool:
        """Go past the next token if it is this symbol or keyword."""
        found = self.token.word == what or (self.token.kind is TokenKind.SYMBOL and self.token.text == what)
        self.at += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise self.unexpected(f"`{symbol}`")

    def unexpected(self, wanted: str) -> WhereError:
        token = self.token
        found = "the end" if self.ended() else f"`{token.text}`"
        hint = _INSTEAD.get(token.word, "")
        if token.text.startswith("-"):
            hint = 'A name with a - in it stands in double quotes: attrs."content-type"'
        return self.error(f"Here stands {found} where {wanted} is wanted", next=hint)

    def error(self, what: str, place: Token | None = None, *, next: str = "") -> WhereError:
        return WhereError(what, source=self.source, position=(place or self.token).start, next=next)


def _takes_op(kind: Kind, op: Op) -> bool:
    if kind is Kind.BOOLEAN:
        return op is Op.EQ
    return kind in (Kind.TEXT, Kind.JSON) or op not in _TEXT_OPS


def _takes_value(kind: Kind, op: Op, value: Kind) -> bool:
    if kind is not Kind.JSON:
        return value is kind
    if op in (Op.EQ, Op.CONTAINS):
        return value is not Kind.TIME
    if op in _TEXT_OPS:
        return value is Kind.TEXT
    return value in (Kind.TEXT, Kind.NUMBER)


def _subject(resolved: Resolved, operator: Token, literal: Literal) -> str:
    if resolved.kind is not Kind.JSON or literal.kind is Kind.TIME:
        return f"{resolved.field} is {resolved.kind.value} and is never compared with"
    return f"`{operator.text}` has no meaning for"
