"""What a `where` accepts, how it is refused, and how the log keeps it."""

from __future__ import annotations

import enum

import pytest

from agentmem import limits
from agentmem.errors import InvalidInput, LimitExceeded, WhereError
from agentmem.records.where import (
    ENTITY_FIELDS,
    parse,
    parse_canonical,
)


def fails(source, **params):
    with pytest.raises(WhereError) as caught:
        parse(source, ENTITY_FIELDS, params)
    return caught.value


# Parameters


def test_parameters_are_values(table):
    """A parameter is str, int, float, bool, a list for `in`, None for `is`; never text of the grammar."""

    class Colour(enum.StrEnum):
        RED = "red"

    table.put(1, {"a": 1, "b": True, "c": "red", "d": 0.5}, author="x")
    assert table.ids(
        "attrs.a = :a and attrs.b = :b and attrs.c = :c and attrs.d = :d", a=1, b=True, c=Colour.RED, d=0.5
    ) == [1]
    assert table.ids("attrs.c in :c", c=("blue", "red")) == table.ids("attrs.c in (:x, :y)", x="blue", y="red") == [1]
    assert table.ids("attrs.c in :c", c=[]) == []
    assert table.ids("attrs.c not in :c", c=[]) == [1]
    assert table.ids("author = :x and attrs.c != :x", x="x") == [1]


@pytest.mark.parametrize(
    ("source", "params", "position"),
    [
        ("status = :status", {}, 9),
        ("status = 'x'", {"extra": 1}, 12),
        ("status = :s", {"s": 5}, 9),
        ("status = :s", {"s": None}, 9),
        ("status = :s", {"s": ["a"]}, 9),
        ("status = :s", {"s": b"a"}, 9),
        ("status = :s", {"s": {"a": 1}}, 9),
        ("status = :s", {"s": "\ud800"}, 9),
        ("status in :s", {"s": "abc"}, 10),
        ("status in :s", {"s": None}, 10),
        ("status in :s", {"s": ["a", 1]}, 10),
        ("status in :s", {"s": [["a"]]}, 10),
        ("status is :s", {"s": 1}, 10),
        ("confidence = :c", {"c": float("nan")}, 13),
        ("confidence = :c", {"c": float("inf")}, 13),
        ("confidence = :c", {"c": True}, 13),
        ("id = :i", {"i": 2**63}, 5),
        ("id = :i", {"i": -(2**63)}, 5),
    ],
)
def test_a_parameter_that_does_not_fit_is_an_error_at_its_place(source, params, position):
    """Missing, unused, or of a wrong type: the error shows where."""
    assert fails(source, **params).position == position


def test_a_misspelt_parameter_gets_the_nearest_name():
    """The two halves of one misspelling are named together."""
    assert "Did you mean :area" in fails("attrs.x = :aera", area=1).next
    assert "Did you mean :area" in fails("attrs.x = :area", area=1, aera=2).next


# Syntax


@pytest.mark.parametrize(
    ("source", "position", "hint"),
    [
        ("", 0, "Leave it out"),
        ("   ", 3, "Leave it out"),
        ("status", 6, ""),
        ("status = done", 9, "'done'"),
        ("status == 'x'", 7, "Equal is ="),
        ("status <> 'x'", 7, "not equal is !="),
        ("status = 'x", 9, "Close it"),
        ("status = 'x' && id = 1", 13, "Write and"),
        ("!claimed", 0, "Write not"),
        ("attrs.a in [1]", 11, "( )"),
        ("(status = 'x'", 13, ""),
        ("status = 'x')", 12, ""),
        ("status = 'x' id = 1", 13, ""),
        ("status = 'x' and", 16, ""),
        ("and status = 'x'", 0, ""),
        ("not", 3, ""),
        ("5 < id", 0, ""),
        ("id = 5x", 5, ""),
        ("id = 1.", 5, ""),
        ("id = 99999999999999999999", 5, "as text"),
        ("id = 1e999", 5, ""),
        ("created_at > 2026-11-01", 13, "in quotes"),
        ("attrs. = 1", 5, "double quotes"),
        ("attrs.a.2fa = 1", 7, "double quotes"),
        ("attrs.content-type = 1", 13, "double quotes"),
        ("attrs.x like 'a'", 8, "contains"),
        ("attrs.x in (1 2)", 14, ""),
        ("attrs.x in (1,", 14, ""),
        ("attrs.x between 1 or 2", 18, ""),
        ("attrs.x not = 1", 12, ""),
        ("attrs.x is true", 11, "compare with ="),
        ("not attrs.x not", 15, ""),
        ("attrs.x = :", 10, "area="),
        ("attrs.x = \ud800", 10, ""),
        ('id = 1 and attrs."a\0b" = 1', 11, ""),
        ("claimed and not status", 22, ""),
    ],
)
def test_a_syntax_error_shows_its_place_and_what_to_write(source, position, hint):
    """Each way to get it wrong is told where, and the common ones how."""
    error = fails(source)
    assert error.position == position
    assert hint in error.next


def test_limits_hold():
    """Too long, too deep, too many comparisons, too many values: each is refused."""

    def depth(levels):
        return "(" * levels + "id = 1" + ")" * levels

    assert parse(depth(limits.WHERE_DEPTH), ENTITY_FIELDS, {}).canonical == "id = 1"
    for source in (
        depth(limits.WHERE_DEPTH + 1),
        "(" * 3000,
        " or ".join(["id = 1"] * (limits.WHERE_TERMS + 1)),
        "status = '" + "x" * limits.WHERE_CHARS + "'",
    ):
        with pytest.raises((LimitExceeded, WhereError)) as caught:
            parse(source, ENTITY_FIELDS, {})
        assert isinstance(caught.value, LimitExceeded)
    for params in (
        {"ids": list(range(limits.WHERE_VALUES + 1))},
        {"ids": [str(n) * 300 for n in range(900)]},
    ):
        with pytest.raises(LimitExceeded):
            parse("attrs.id in :ids", ENTITY_FIELDS, params)
    with pytest.raises(InvalidInput):
        parse(None, ENTITY_FIELDS, {})


def test_the_largest_accepted_where_runs(table):
    """What the limits let through, SQLite takes."""
    table.put(1, {"x": 5})
    terms = limits.WHERE_TERMS
    wide = " or ".join(["attrs.x=1"] * (terms - 1) + ["id=1"])
    deep = "not (id=2 or " * limits.WHERE_DEPTH + "id=1" + ")" * limits.WHERE_DEPTH
    assert table.ids(wide) == [1]
    assert table.ids(deep) == [1]
    assert table.ids("attrs.x in :v", v=list(range(limits.WHERE_VALUES))) == [1]


# Canonical text


@pytest.mark.parametrize(
    ("source", "canonical"),
    [
        ("((status='a'))", "status = 'a'"),
        ("NOT NOT claimed", "claimed = true"),
        ("not claimed", "claimed != true"),
        ("not status != 'a'", "status = 'a'"),
        ("(id=1 and id=2) and (id=3 or (id=4 or id=5))", "id = 1 and id = 2 and (id = 3 or id = 4 or id = 5)"),
        ("(id=1 and id=2) or id=3", "id = 1 and id = 2 or id = 3"),
        ("not (id < 1)", "not id < 1"),
        ("not (id=1 or id=2)", "not (id = 1 or id = 2)"),
        ("not id in (1,1,1.0,2)", "id not in (1, 2)"),
        ('not attrs.x contains "it\'s"', "attrs.x not contains 'it''s'"),
        ("not attrs.x between -0.0 and 1e3", "attrs.x not between 0 and 1000"),
        ('not attrs."é"."a""b" is null', 'attrs."é"."a""b" is not null'),
        ("check.a.b is null", 'check."a.b" is null'),
        ("created_at<'2026-11-01 01:00+01:00'", "created_at < '2026-11-01T00:00:00Z'"),
        ("created_at<'2026-11-01T00:00:00.5'", "created_at < '2026-11-01T00:00:00.500000Z'"),
        ("attrs.x = 1.50 or attrs.x = 9.3e18 or attrs.x=1E-7", "attrs.x = 1.5 or attrs.x = 9.3e+18 or attrs.x = 1e-07"),
    ],
)
def test_canonical_text_has_one_spelling(source, canonical):
    """Equal trees have equal texts, and the text parses to the tree."""
    where = parse(source, ENTITY_FIELDS, {})
    assert where.canonical == canonical
    assert parse(canonical, ENTITY_FIELDS, {}) == where


def test_canonical_text_holds_the_parameters():
    """What the log keeps needs no parameters, however long they were."""
    keys = [f"{n:0300d}" for n in range(150)]
    where = parse("key in :keys and attrs.a = :a", ENTITY_FIELDS, {"keys": keys, "a": "it's :b"})
    assert len(where.canonical) > limits.WHERE_CHARS
    assert parse_canonical(where.canonical, ENTITY_FIELDS) == where


def test_trees_with_literals_of_different_types_differ():
    """True, 1 and '1' make three trees, 443 and 443.0 one."""
    trees = [parse("attrs.x = :x", ENTITY_FIELDS, {"x": x}) for x in (True, 1, "1", 443, 443.0)]
    assert len({where.canonical for where in trees}) == 4
    assert trees[0] != trees[1] != trees[2]
    assert trees[3] == trees[4]
