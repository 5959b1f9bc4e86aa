"""How lists are ordered, paged and grouped."""

from __future__ import annotations

import json

import pytest

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, WhereError
from agentmem.records.where import (
    ENTITY_FIELDS,
    Sql,
    compile_cursor,
    compile_group,
    compile_order,
    make_cursor,
    parse,
)

# Order and cursor


def test_mixed_types_have_one_order(typed):
    """Null, then booleans, numbers, text, the rest; ties by id in the direction of the last field."""
    ascending = [1, 2, 4, 3, 12, 5, 6, 9, 7, 8, 10, 11]
    assert typed.pages("attrs.x", 100) == ascending
    assert typed.pages("-attrs.x", 100) == ascending[::-1]


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize(
    "order", ["", "id", "-id", "attrs.x", "-attrs.x", "-claimed, attrs.x, -key", "confidence, -id", "-confidence, key"]
)
def test_pages_neither_skip_nor_repeat(typed, order, size):
    """A list read page by page is the list."""
    typed.db.execute("UPDATE entity SET confidence = id % 3 WHERE id % 4")
    assert typed.pages(order, size) == typed.pages(order, 1000)
    assert sorted(typed.pages(order, size)) == list(range(1, 13))


def test_a_row_written_in_between_moves_no_other(table):
    """A cursor stands for a place in the order, not for a count of rows."""
    for n in (2, 4, 6):
        table.put(n)
    order = compile_order("key", ENTITY_FIELDS)
    after = make_cursor(order, "all", ["k4", 4])
    table.put(1)
    table.put(5)
    table.db.execute("DELETE FROM entity WHERE id = 4")
    more = compile_cursor(after, order, "all")
    rows = table.db.execute(f"SELECT e.id FROM entity AS e WHERE {more.text} ORDER BY e.key", more.bindings)
    assert [row[0] for row in rows] == [5, 6]


def test_a_cursor_serves_only_its_own_query():
    """A cursor of another query, or none at all, is refused."""
    order = compile_order("-updated_at", ENTITY_FIELDS)
    after = make_cursor(order, "status = 'new'", [5, 5])
    compile_cursor(after, order, "status = 'new'")
    for wrong in (
        lambda: compile_cursor(after, order, "status = 'done'"),
        lambda: compile_cursor(after, compile_order("updated_at", ENTITY_FIELDS), "status = 'new'"),
        lambda: compile_cursor(make_cursor(order, "q", [5]), order, "q"),
        lambda: compile_cursor(make_cursor(order, "q", [5, None]), order, "q"),
        lambda: compile_cursor(make_cursor(order, "q", [5, "5"]), order, "q"),
        lambda: compile_cursor(make_cursor(order, "q", [5, 2**63]), order, "q"),
        lambda: compile_cursor("", order, "q"),
        lambda: compile_cursor("é", order, "q"),
        lambda: compile_cursor("W10", order, "q"),
        lambda: compile_cursor(5, order, "q"),
        lambda: compile_cursor("W1tb" * 200_000, order, "q"),
    ):
        with pytest.raises(InvalidInput):
            wrong()


@pytest.mark.parametrize(
    ("order", "position"),
    [
        ("statsu", 0),
        ("key,, id", 4),
        ("key,", 4),
        (",key", 0),
        ("--key", 1),
        ("key desc", 4),
        ("key, -key", 6),
        ("'key'", 0),
        ("5", 0),
    ],
)
def test_a_bad_order_shows_its_place(order, position):
    """An order is a comma list of fields, each once."""
    with pytest.raises(WhereError) as caught:
        compile_order(order, ENTITY_FIELDS)
    assert caught.value.position == position


def test_an_order_names_its_tie_breaker():
    """The canonical order ends with the id, and parses to itself."""
    for source, canonical in {
        "": "id",
        "-updated_at": "-updated_at, -id",
        "key, -id, status": "key, -id",
        ' - attrs."a b" ,key': '-attrs."a b", key, id',
    }.items():
        order = compile_order(source, ENTITY_FIELDS)
        assert order.canonical == canonical
        assert compile_order(canonical, ENTITY_FIELDS) == order
    with pytest.raises(LimitExceeded):
        compile_order(", ".join(f"attrs.a{n}" for n in range(limits.ORDER_FIELDS + 1)), ENTITY_FIELDS)


# Group


def test_groups_keep_the_types_of_their_values(typed):
    """True, 1 and '1' are three groups, absent and null are one."""
    typed.put(20, {"x": 1.0})
    found = typed.groups("attrs.x")
    assert [(group.values, group.count) for group in found.groups[:2]] == [((None,), 2), ((1,), 2)]
    values = [group.values[0] for group in found.groups]
    assert json.dumps(values) == json.dumps([None, 1, False, True, 0, 1.5, "", "1", "true", ["a", 1, True], {"a": 1}])
    assert (found.total, found.rows, found.cut) == (11, 13, False)


def test_a_number_in_a_group_has_one_spelling(table):
    """443.0 is given as 443, and what is no 64-bit whole number as it is."""
    for n, value in enumerate([443.0, 0.5, 1e300, 2**63 - 1, -0.0], start=1):
        table.put(n, {"n": value})
    found = [repr(group.values[0]) for group in table.groups("attrs.n").groups]
    assert found == ["0", "0.5", "443", "9223372036854775807", "1e+300"]


def test_groups_are_bounded_and_say_so(table):
    """A cut answer says how many groups and rows there are."""
    for n in range(1, 8):
        table.put(n, {"n": n % 4, "claim": 0}, claimed_until=table.now + 1 if n == 1 else None)
    found = table.groups("attrs.n, claimed", limit=2)
    assert [(group.values, group.count) for group in found.groups] == [((2, False), 2), ((3, False), 2)]
    assert (found.total, found.rows, found.cut) == (5, 7, True)
    assert found.fields == ("attrs.n", "claimed")
    with pytest.raises(LimitExceeded):
        compile_group("status", ENTITY_FIELDS, limit=limits.GROUPS_MAX + 1)
    with pytest.raises(LimitExceeded):
        compile_group("type, key, status, author, run", ENTITY_FIELDS)


def test_a_numeric_field_is_summed_up_in_each_group(table):
    """Minimum, maximum, sum and average take numbers only, and whole sums are exact."""
    values = [2**63 - 1, 2**63 - 1, -5, "7", True, None]
    for n, value in enumerate(values, start=1):
        table.put(n, {"n": value})
    table.put(10, {"n": 0.5}, status="other")
    table.put(11, {"n": 1}, status="other")
    table.put(12, status="none")
    first, second, third = table.groups("status", of="attrs.n").groups
    assert (first.count, first.numbers.count) == (6, 3)
    assert (first.numbers.min, first.numbers.max, first.numbers.sum) == (-5, 2**63 - 1, 2 * (2**63 - 1) - 5)
    assert (second.numbers.min, second.numbers.max, second.numbers.sum, second.numbers.avg) == (0.5, 1, 1.5, 0.75)
    assert (third.count, third.numbers.count, third.numbers.min, third.numbers.sum, third.numbers.avg) == (
        1,
        0,
        None,
        0,
        None,
    )
    assert table.groups("type", of="id").groups[0].numbers.sum == 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11 + 12
    assert table.groups("type", of="confidence").groups[0].numbers.avg is None


def test_no_rows_make_no_groups(table):
    """An empty answer is not cut."""
    found = table.groups("status")
    assert (found.groups, found.total, found.rows, found.cut) == ((), 0, 0, False)


@pytest.mark.parametrize(
    ("source", "options"),
    [("", {}), ("zzz", {}), ("-key", {}), ("key", {"of": "status"}), ("key", {"of": "id, id"}), ("key", {"of": ""})],
)
def test_a_bad_group_is_an_error(source, options):
    """A group names known fields, and sums up a numeric one."""
    with pytest.raises(WhereError):
        compile_group(source, ENTITY_FIELDS, **options)
    with pytest.raises(InvalidInput):
        compile_group("key", ENTITY_FIELDS, limit=0)


# Plans


@pytest.mark.parametrize("order", ["key", "-key", "updated_at", "-updated_at"])
def test_pages_by_an_indexed_field_sort_nothing(table, order):
    """First and later pages of a check never marked come by index order, each mark from the narrow index."""
    where = parse("check.authz is null", ENTITY_FIELDS, {}).sql
    compiled = compile_order(order, ENTITY_FIELDS)
    value = "k1" if "key" in order else 1
    for more in (Sql("TRUE", []), compile_cursor(make_cursor(compiled, "q", [value, 1]), compiled, "q")):
        plan = table.plan(
            Sql(
                f"SELECT e.id, {compiled.columns.text} FROM entity AS e"
                f" WHERE e.project = ? AND e.type = ? AND {where.text} AND {more.text} ORDER BY {compiled.sql}",
                [1, "t", *where.bindings, *more.bindings],
            )
        )
        assert not any("TEMP B-TREE" in step for step in plan)
        assert any("SEARCH m USING COVERING INDEX mark_check (name=? AND entity=?)" in step for step in plan)
        index = next(step for step in plan if "SEARCH e USING" in step)
        seek = {"key": "key>?", "-key": "key<?", "updated_at": "updated_at>?", "-updated_at": "updated_at<?"}[order]
        assert more.bindings == [] or seek in index


def test_a_prefix_of_the_key_is_a_range_of_the_index(table):
    """`startswith` seeks."""
    where = parse("key startswith 'GET '", ENTITY_FIELDS, {}).sql
    plan = table.plan(
        Sql(f"SELECT e.id FROM entity AS e WHERE e.project = 1 AND e.type = 't' AND {where.text}", where.bindings)
    )
    assert any("key>? AND key<?" in step for step in plan)
