"""What `where`, `order` and `group` always do, told by a second evaluator that knows no SQL."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import cmp_to_key

import apsw
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.errors import InvalidInput, WhereError
from agentmem.records.where import (
    ENTITY_FIELDS,
    SQL_FUNCTIONS,
    Sql,
    Where,
    compile_cursor,
    compile_group,
    compile_order,
    make_cursor,
    parse,
)
from agentmem.records.where_ast import (
    And,
    Between,
    Compare,
    Field,
    In,
    IsNull,
    Kind,
    Literal,
    Not,
    Op,
    Or,
    all_of,
    any_of,
    negate,
    number,
)

NOW = 1_800_000_000_000_000
COLUMNS = (
    "id",
    "type",
    "key",
    "status",
    "confidence",
    "parent",
    "attrs",
    "author",
    "origin",
    "created_at",
    "updated_at",
)

# Values that are easily taken for one another, and those around which they turn.
NUMBERS = [0, 1, -1, 80, 443, 0.5, 443.5, 1e-7, 1e300, 9.3e18]
NUMBERS += [2**53, 2**53 + 1, float(2**53), 2**63 - 1, 1 - 2**63]
TEXTS = ["", "0", "1", "443", "true", "null", "a", "A", "ab", "it's", 'a"b', "Straße", "STRASSE", "ß", "é", "日本"]
TEXTS += ["😀", "a\nb", "%", "\\"]
NAMES = ["a", "b", "a.b", 'q"q', "", "é", "in", "X-Y"]
TIMES = [0, 1, NOW, 1_793_491_200_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999]

numbers = st.sampled_from(NUMBERS)
texts = st.sampled_from(TEXTS)
scalars = st.one_of(st.none(), st.booleans(), numbers, texts)
values = st.one_of(scalars, st.lists(scalars, max_size=3), st.dictionaries(st.sampled_from(NAMES), scalars, max_size=2))
names = st.sampled_from(NAMES)
marks = st.fixed_dictionaries(
    {
        "result": st.sampled_from(["pass", "fail", "na", "error"]),
        "value": st.none() | values,
        "detail": st.none() | texts,
    }
)
entities = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["host", "page"]),
        "key": texts,
        "status": st.sampled_from(["new", "done", ""]),
        "confidence": st.none() | st.sampled_from([0.0, 0.5, 1.0]),
        "parent": st.none() | st.sampled_from([1, 2, 2**53 + 1]),
        "author": st.none() | texts,
        "origin": st.sampled_from(["user", "agent", "web"]),
        "created_at": st.sampled_from(TIMES),
        "updated_at": st.sampled_from(TIMES),
        "attrs": st.dictionaries(names, values, max_size=4),
        "marks": st.dictionaries(names, marks, max_size=3),
        "expires_at": st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1]),
    }
)
worlds = st.lists(entities, min_size=1, max_size=8).map(lambda rows: dict(enumerate(rows, start=1)))

KINDS = dict.fromkeys(("type", "key", "status", "author", "origin", "check", "detail"), Kind.TEXT)
KINDS |= dict.fromkeys(("id", "confidence", "parent"), Kind.NUMBER)
KINDS |= dict.fromkeys(("created_at", "updated_at"), Kind.TIME)
KINDS |= dict.fromkeys(("attrs", "value"), Kind.JSON) | {"claimed": Kind.BOOLEAN}
CHOICES = {"origin": ["user", "agent", "import", "tool", "web"], "check": ["pass", "fail", "na", "error"]}
ORDERED = (Op.LT, Op.LE, Op.GT, Op.GE)
TEXTUAL = (Op.CONTAINS, Op.ICONTAINS, Op.STARTSWITH)


@st.composite
def fields(draw):
    head = draw(st.sampled_from([*KINDS, "attrs", "attrs", "check", "value"]))
    below = {"attrs": (1, 2), "check": (1, 1), "detail": (1, 1), "value": (1, 2)}.get(head, (0, 0))
    return Field((head, *draw(st.lists(names, min_size=below[0], max_size=below[1]))))


def literals(kind, head=""):
    if head in CHOICES:
        return st.sampled_from(CHOICES[head]).map(lambda value: Literal(Kind.TEXT, value))
    return {
        Kind.TEXT: texts.map(lambda value: Literal(Kind.TEXT, value)),
        Kind.NUMBER: numbers.map(number),
        Kind.BOOLEAN: st.booleans().map(lambda value: Literal(Kind.BOOLEAN, value)),
        Kind.TIME: st.sampled_from(TIMES).map(lambda value: Literal(Kind.TIME, value)),
    }[kind]


@st.composite
def atoms(draw):
    field = draw(fields())
    head = field.names[0]
    kind = KINDS[head]
    kinds = [Kind.TEXT, Kind.NUMBER, Kind.BOOLEAN] if kind is Kind.JSON else [kind]
    literal = st.sampled_from(kinds).flatmap(lambda one: literals(one, head))
    shape = draw(st.sampled_from(["null", "in", "between", "equal", "order", "text"]))
    if shape == "null":
        return IsNull(field)
    if shape == "in":
        return In(field, tuple(dict.fromkeys(draw(st.lists(literal, max_size=4)))))
    orderable = [one for one in kinds if one is not Kind.BOOLEAN]
    if shape in ("between", "order") and orderable:
        one = draw(st.sampled_from(orderable))
        if shape == "between":
            return Between(field, draw(literals(one)), draw(literals(one)))
        return Compare(field, draw(st.sampled_from(ORDERED)), draw(literals(one)))
    if shape == "text" and Kind.TEXT in kinds:
        op = draw(st.sampled_from(TEXTUAL))
        any_kind = kind is Kind.JSON and op is Op.CONTAINS
        return Compare(field, op, draw(literal if any_kind else literals(Kind.TEXT)))
    return Compare(field, Op.EQ, draw(literal))


nodes = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        inner.map(negate),
        st.lists(inner, min_size=2, max_size=3).map(all_of),
        st.lists(inner, min_size=2, max_size=3).map(any_of),
    ),
    max_leaves=8,
)


# The second evaluator


def kind_of(value):
    if value is None:
        return None
    if isinstance(value, bool):
        return Kind.BOOLEAN
    if isinstance(value, (int, float)):
        return Kind.NUMBER
    return Kind.TEXT if isinstance(value, str) else Kind.JSON


def lookup(n, entity, field):
    head, *rest = field.names
    if head == "id":
        return n
    if head == "claimed":
        return entity["expires_at"] is not None and entity["expires_at"] > NOW
    if head == "attrs":
        return walk(entity["attrs"], rest)
    if head in ("check", "value", "detail"):
        mark = entity["marks"].get(rest[0])
        return mark and walk(mark["result" if head == "check" else head], rest[1:])
    return entity[head]


def walk(value, steps):
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def same(value, literal):
    kind = Kind.NUMBER if literal.kind is Kind.TIME else literal.kind
    return kind_of(value) is kind and value == literal.value


def ordered(value, op, literal):
    kind = Kind.NUMBER if literal.kind is Kind.TIME else literal.kind
    if kind_of(value) is not kind:
        return False
    other = literal.value
    return {Op.LT: value < other, Op.LE: value <= other, Op.GT: value > other, Op.GE: value >= other}[op]


def textual(value, op, literal):
    wanted = literal.value
    if op is Op.STARTSWITH:
        return isinstance(value, str) and value.startswith(wanted)
    if isinstance(value, list):
        if op is Op.CONTAINS:
            return any(same(each, literal) for each in value)
        return any(isinstance(each, str) and each.casefold() == wanted.casefold() for each in value)
    if not isinstance(value, str) or not isinstance(wanted, str):
        return False
    return wanted in value if op is Op.CONTAINS else wanted.casefold() in value.casefold()


def holds(node, n, entity):
    match node:
        case And(parts):
            return all(holds(part, n, entity) for part in parts)
        case Or(parts):
            return any(holds(part, n, entity) for part in parts)
        case Not(inner):
            return not holds(inner, n, entity)
        case IsNull(field):
            return lookup(n, entity, field) is None
        case In(field, options):
            return any(same(lookup(n, entity, field), option) for option in options)
        case Between(field, low, high):
            value = lookup(n, entity, field)
            return ordered(value, Op.GE, low) and ordered(value, Op.LE, high)
        case Compare(field, Op.EQ, literal):
            return same(lookup(n, entity, field), literal)
        case Compare(field, op, literal) if op in ORDERED:
            return ordered(lookup(n, entity, field), op, literal)
        case Compare(field, op, literal):
            return textual(lookup(n, entity, field), op, literal)
    raise AssertionError(node)


def compact(value):
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def rank(value):
    """Where a value stands in the one order of all types."""
    place = [None, Kind.BOOLEAN, Kind.NUMBER, Kind.TEXT, Kind.JSON].index(kind_of(value))
    return place, (0 if value is None else compact(value) if place == 4 else value)


# The database


@pytest.fixture(scope="module")
def db():
    connection = apsw.Connection(":memory:")
    for name, function in SQL_FUNCTIONS.items():
        connection.create_scalar_function(name, function, 1, deterministic=True)
    connection.execute(
        "CREATE TABLE entity (id INTEGER PRIMARY KEY, type TEXT, key TEXT, status TEXT, confidence REAL,"
        " parent INTEGER, attrs TEXT, author TEXT, origin TEXT, created_at INTEGER, updated_at INTEGER) STRICT"
    )
    connection.execute(
        "CREATE TABLE mark (entity INTEGER, name TEXT, result TEXT, value TEXT, detail TEXT,"
        " PRIMARY KEY (entity, name)) STRICT, WITHOUT ROWID"
    )
    connection.execute("CREATE INDEX mark_check ON mark (name, entity, result)")
    connection.execute("CREATE TABLE lease (record INTEGER PRIMARY KEY, expires_at INTEGER) STRICT")
    return connection


def fill(db, world):
    for table in ("entity", "mark", "lease"):
        db.execute(f"DELETE FROM {table}")
    question_marks = ", ".join("?" * len(COLUMNS))
    for n, entity in world.items():
        row = entity | {"id": n, "attrs": compact(entity["attrs"])}
        db.execute(
            f"INSERT INTO entity ({', '.join(COLUMNS)}) VALUES ({question_marks})", [row[name] for name in COLUMNS]
        )
        for name, mark in entity["marks"].items():
            value = None if mark["value"] is None else compact(mark["value"])
            db.execute("INSERT INTO mark VALUES (?, ?, ?, ?, ?)", (n, name, mark["result"], value, mark["detail"]))
        if entity["expires_at"] is not None:
            db.execute("INSERT INTO lease VALUES (?, ?)", (n, entity["expires_at"]))


def chosen(db, where):
    text, bindings = where.sql
    return [row[0] for row in db.execute(f"SELECT e.id FROM entity AS e WHERE {text} ORDER BY e.id", bindings)]


# The promises


@given(world=worlds, node=nodes)
@settings(max_examples=400, deadline=None)
def test_sql_agrees_with_a_second_evaluator(db, world, node):
    """A where chooses exactly the entities for which it is true, and its negation exactly the others."""
    fill(db, world)
    expected = [n for n, entity in world.items() if holds(node, n, entity)]
    assert chosen(db, Where(node, ENTITY_FIELDS, NOW)) == expected
    assert chosen(db, Where(negate(node), ENTITY_FIELDS, NOW)) == [n for n in world if n not in expected]


@given(node=nodes)
@settings(max_examples=400, deadline=None)
def test_canonical_text_parses_to_the_same_tree(node):
    """The text kept for a tree gives back that tree, and itself."""
    text = Where(node, ENTITY_FIELDS, NOW).canonical
    again = parse(text, ENTITY_FIELDS, {})
    assert again.node == node
    assert again.canonical == text


@given(
    value=st.one_of(
        st.text(), st.booleans(), st.integers(1 - 2**63, 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False)
    )
)
@settings(max_examples=300, deadline=None)
def test_any_value_is_found_by_itself(db, value):
    """What is stored in an attribute equals itself as a parameter and as canonical text."""
    db.execute("DELETE FROM entity")
    db.execute("INSERT INTO entity (id, attrs) VALUES (1, ?)", (compact({"x": value}),))
    where = parse("attrs.x = :x", ENTITY_FIELDS, {"x": value})
    assert chosen(db, where) == [1]
    assert chosen(db, parse(where.canonical, ENTITY_FIELDS, {})) == [1]


@given(name=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20))
@settings(max_examples=300, deadline=None)
def test_any_attribute_is_found_by_its_name(db, name):
    """No character in a name leads elsewhere."""
    db.execute("DELETE FROM entity")
    db.execute("INSERT INTO entity (id, attrs) VALUES (1, ?), (2, '{}')", (compact({name: {name: 1}}),))
    quoted = '"' + name.replace('"', '""') + '"'
    assert chosen(db, parse(f"attrs.{quoted}.{quoted} = 1", ENTITY_FIELDS, {})) == [1]


@given(
    world=worlds,
    terms=st.lists(st.tuples(fields(), st.booleans()), max_size=3, unique_by=lambda term: term[0]),
    size=st.integers(1, 4),
)
@settings(max_examples=300, deadline=None)
def test_pages_add_up_to_the_whole_order(db, world, terms, size):
    """Read by cursor, a list has every row once, in the order of a second comparison."""
    fill(db, world)
    order = compile_order(", ".join(f"{'-' if down else ''}{field}" for field, down in terms), ENTITY_FIELDS, now=NOW)

    def compare(one, other):
        for field, down in [*terms, (Field(("id",)), bool(terms) and terms[-1][1])]:
            left, right = (rank(lookup(n, world[n], field)) for n in (one, other))
            if left != right:
                return (1 if left > right else -1) * (-1 if down else 1)
        return 0

    found, more = [], Sql("TRUE", [])
    while rows := db.execute(
        f"SELECT e.id, {order.columns.text} FROM entity AS e WHERE {more.text} ORDER BY {order.sql} LIMIT ?",
        [*order.columns.bindings, *more.bindings, size],
    ).fetchall():
        found += [row[0] for row in rows]
        more = compile_cursor(make_cursor(order, "q", rows[-1][1:]), order, "q")
    assert found == sorted(world, key=cmp_to_key(compare))


@given(world=worlds, by=st.lists(fields(), min_size=1, max_size=2, unique=True), of=fields())
@settings(max_examples=300, deadline=None)
def test_groups_count_every_row_once(db, world, by, of):
    """Groups are the combinations of typed values, and their numbers those of a second count."""
    fill(db, world)
    numeric = KINDS[of.names[0]] in (Kind.NUMBER, Kind.JSON)
    grouping = compile_group(", ".join(map(str, by)), ENTITY_FIELDS, of=str(of) if numeric else None, now=NOW)
    found = grouping.read(db.execute(*grouping.select(Sql("FROM entity AS e", []))))

    def group_of(n):
        return tuple(rank(lookup(n, world[n], field)) for field in by)

    counts = Counter(map(group_of, world))
    assert {tuple(map(rank, group.values)): group.count for group in found.groups} == counts
    assert (found.total, found.rows, found.cut) == (len(counts), len(world), False)
    assert [group.count for group in found.groups] == sorted(counts.values(), reverse=True)
    for group in found.groups if numeric else ():
        rows = [n for n in world if group_of(n) == tuple(map(rank, group.values))]
        inside = [value for n in rows if kind_of(value := lookup(n, world[n], of)) is Kind.NUMBER]
        assert group.numbers.count == len(inside)
        assert (group.numbers.min, group.numbers.max) == (min(inside, default=None), max(inside, default=None))
        if all(isinstance(value, int) for value in inside):
            assert group.numbers.sum == sum(inside)
        else:
            close = 1e-9 * math.fsum(map(abs, inside))
            assert group.numbers.sum == pytest.approx(math.fsum(inside), abs=close)
            assert group.numbers.avg == pytest.approx(math.fsum(inside) / len(inside), abs=close)


WORDS = """and or not in between contains is null true false ( ) , = != < <= - id status attrs.a attrs."x y" check.a
claimed 'text' "text" 1 -2.5 1e6 :p :q ' " . : attrs. desc '2026-11-01' created_at"""
soup = st.lists(st.sampled_from(WORDS.split()), max_size=12).map(" ".join)


@given(
    source=soup | st.text(max_size=60),
    params=st.dictionaries(st.sampled_from("pq"), st.one_of(scalars, values), max_size=2),
)
@settings(max_examples=600, deadline=None)
def test_any_text_is_run_or_refused_with_its_place(db, source, params):
    """Whatever a caller writes either runs or is refused by a typed error."""
    where, place = None, 0
    try:
        where = parse(source, ENTITY_FIELDS, params, now=NOW)
    except WhereError as error:
        place = error.position
    assert 0 <= place <= len(source)
    if where is not None:
        chosen(db, where)
        assert parse(where.canonical, ENTITY_FIELDS, {}) == where


@given(after=st.text(max_size=40), order=soup)
@settings(max_examples=300, deadline=None)
def test_any_other_cursor_is_refused(after, order):
    """A cursor that was not made for the list, and an order that is none, are typed errors."""
    with pytest.raises(InvalidInput):
        compile_cursor(after, compile_order(order, ENTITY_FIELDS), "q")
