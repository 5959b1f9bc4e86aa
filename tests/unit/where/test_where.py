"""Which entities a `where` chooses."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from agentmem.errors import WhereError
from agentmem.records.where import (
    ENTITY_FIELDS,
    parse,
)
from agentmem.records.where_ast import Kind
from agentmem.records.where_fields import Column, FieldMap


def fails(source, **params):
    with pytest.raises(WhereError) as caught:
        parse(source, ENTITY_FIELDS, params)
    return caught.value


# Types


def test_text_number_and_boolean_never_equal_each_other(typed):
    """True, 1 and '1' are three different values."""
    assert typed.ids("attrs.x = true") == [3]
    assert typed.ids("attrs.x = 1") == [5]
    assert typed.ids("attrs.x = '1'") == [7]
    assert typed.ids("attrs.x in (true, 1, '1')") == [3, 5, 7]


def test_an_order_comparison_considers_only_its_own_type(table):
    """Text '443' is not above 80, and true is not above 0."""
    for n, port in enumerate([443, "443", 80, True, None, [443], 443.5], start=1):
        table.put(n, {"port": port})
    assert table.ids("attrs.port > 80") == [1, 7]
    assert table.ids("attrs.port >= '0'") == [2]
    assert table.ids("attrs.port between 80 and 443") == [1, 3]
    assert table.ids("attrs.port between '4' and '5'") == [2]


def test_443_equals_443_0(table):
    """A number is its value, not its spelling."""
    table.put(1, {"port": 443})
    table.put(2, {"port": 443.0})
    assert (
        table.ids("attrs.port = 443")
        == table.ids("attrs.port = 443.0")
        == table.ids("attrs.port = :p", p=443.0)
        == [1, 2]
    )


def test_integers_beyond_2_53_compare_exactly(table):
    """Neighbouring integers up to 2^63-1 are told apart, from floats too."""
    for n, value in enumerate([2**53, 2**53 + 1, 2**63 - 1, 2**63 - 2, -(2**63 - 1), float(2**53)], start=1):
        table.put(n, {"n": value})
    assert table.ids(f"attrs.n = {2**53 + 1}") == [2]
    assert table.ids("attrs.n = 9007199254740992.0") == [1, 6]
    assert table.ids(f"attrs.n > {2**63 - 2}") == [3]
    assert table.ids("attrs.n = :n", n=-(2**63 - 1)) == [5]
    assert table.ids("attrs.n > 9.3e18") == []


@pytest.mark.parametrize(
    ("source", "place"),
    [
        ("status > 5", "5"),
        ("status = true", "true"),
        ("confidence = 'high'", "'high'"),
        ("id in (1, 'a')", "'a'"),
        ("id contains 5", "contains"),
        ("created_at contains '2026'", "contains"),
        ("created_at > 5", "5"),
        ("claimed = 'true'", "'true'"),
        ("claimed < true", "<"),
        ("claimed between false and true", "between"),
        ("attrs.x < true", "true"),
        ("attrs.x icontains 5", "5"),
        ("attrs.x startswith 5", "5"),
        ("attrs.x between 1 and 'a'", "'a'"),
        ("attrs.x between false and true", "false"),
        ("detail.x = 5", "5"),
        ("status = null", "null"),
        ("status in ('a', null)", "null"),
    ],
)
def test_a_wrong_type_is_an_error_that_shows_the_place(source, place):
    """A comparison that has no meaning is refused when it is parsed."""
    error = fails(source)
    assert error.position == source.rindex(place)
    assert f"⟨{place[0]}⟩{place[1:]}" in str(error)
    assert error.code == "invalid_where"


def test_closed_words_are_checked():
    """A result or an origin that does not exist is an error with the nearest that does."""
    assert "Did you mean 'pass'" in fails("check.authz = 'passed'").next
    assert "Did you mean 'agent'" in fails("origin in ('user', 'agnet')").next
    assert "na" in fails("check.authz != 'zzz'").next


# Two-valued logic


def test_only_negations_match_an_absent_field(table):
    """`=` and its like never hold where the field is absent, `!=` and `not` do."""
    table.put(1)
    for positive in (
        "attrs.x = 1",
        "attrs.x < 1",
        "attrs.x in (1)",
        "attrs.x contains 'a'",
        "attrs.x startswith ''",
        "attrs.x between 0 and 9",
        "confidence > 0",
        "confidence = 0",
        "check.a = 'pass'",
        "detail.a contains ''",
        "value.a = true",
        "attrs.x in ()",
    ):
        assert table.ids(positive) == []
        assert table.ids(f"not {positive}") == [1]
        assert table.ids(f"not ({positive} or id = 2)") == [1]
    assert table.ids("attrs.x != 1 and confidence != 0 and check.a != 'pass'") == [1]
    assert table.ids("attrs.x not in (1) and author not contains 'x' and confidence not between 0 and 1") == [1]


def test_null_is_absent_or_json_null(typed):
    """`is null` holds for an absent attribute and for JSON null, and for no other value."""
    assert typed.ids("attrs.x is null") == [1, 2]
    assert typed.ids("attrs.x is not null") == list(range(3, 13))
    assert typed.ids("not attrs.x is null") == list(range(3, 13))
    assert typed.ids("attrs.x is :n", n=None) == [1, 2]
    assert typed.ids("attrs.x is not :n", n=None) == list(range(3, 13))


def test_and_binds_closer_than_or_and_not_closer_still(table):
    """`not a or b and c` is `(not a) or (b and c)`."""
    for n in range(1, 5):
        table.put(n)
    assert table.ids("not id > 1 or id > 2 and id < 4") == [1, 3]
    assert table.ids("not (id > 1 or id > 2) and id < 4") == [1]
    assert table.ids("not not id = 2") == [2]
    assert table.ids("NOT id = 1 AND id In (1, 2) OR id Is Null") == [2]


# Text


def test_contains_is_a_substring_or_an_element(table):
    """`contains` looks into text and arrays, and into nothing else."""
    values = ["say tls", ["tls", 1, True], ["say tls"], {"tls": 1}, [["tls"]], "TLS", ["TLS"], 1, None]
    for n, value in enumerate(values, start=1):
        table.put(n, {"tags": value})
    assert table.ids("attrs.tags contains 'tls'") == [1, 2]
    assert table.ids("attrs.tags icontains 'tls'") == [1, 2, 6, 7]
    assert table.ids("attrs.tags contains 1") == [2]
    assert table.ids("attrs.tags contains true") == [2]
    assert table.ids("attrs.tags contains '1'") == []
    assert table.ids("attrs.tags contains ''") == [1, 6]


def test_icontains_folds_case_as_unicode_does(table):
    """Case does not count in any script."""
    for n, key in enumerate(["Straße", "STRASSE", "ПРИВЕТ", "100%_x", "ΣΊΣΥΦΟΣ"], start=1):
        table.put(n, key=key)
    assert table.ids("key icontains 'strasse'") == [1, 2]
    assert table.ids("key icontains 'привет'") == [3]
    assert table.ids("key icontains 'σίσυφος'") == [5]
    assert table.ids("key icontains '%'") == table.ids("key icontains '_'") == [4]
    assert table.ids("key contains 'привет'") == []


@pytest.mark.parametrize(
    "prefix", ["", "a", "a\ud7ff".encode("utf-16", "surrogatepass").decode("utf-16"), "a\U0010ffff", "\U0010ffff", "\0"]
)
def test_startswith_is_a_prefix_at_every_edge_of_unicode(table, prefix):
    """A prefix is matched exactly, also where the next code point is no character."""
    keys = [
        "",
        "a",
        "b",
        "A",
        "a\ud7ff",
        "a\ud7ffz",
        "a\ue000",
        "a\U0010ffff",
        "a\U0010ffffz",
        "\U0010ffff",
        "\0",
        "\0a",
    ]
    for n, key in enumerate(keys, start=1):
        table.put(n, key=key, attrs={"k": key})
    expected = [n for n, key in enumerate(keys, start=1) if key.startswith(prefix)]
    assert table.ids("key startswith :p", p=prefix) == expected
    assert table.ids("attrs.k startswith :p", p=prefix) == expected


def test_a_quote_inside_text_is_doubled_and_a_backslash_is_plain(table):
    """Paths and patterns mean what they show."""
    table.put(1, key="it's")
    table.put(2, key='say "x"')
    table.put(3, key="C:\\new")
    assert table.ids("key = 'it''s'") == table.ids('key = "it\'s"') == [1]
    assert table.ids('key = "say ""x"""') == [2]
    assert table.ids("key startswith 'C:\\n'") == [3]


def test_caller_text_is_never_sql(table):
    """Values and names reach SQLite as bindings alone."""
    table.put(1, {"a') OR 1=1 --": "x"})
    for hostile in ("' OR 1=1 --", "'; DROP TABLE entity; --", '") OR ("1"="1'):
        assert table.ids("key = :k or attrs.a contains :k or detail.d = :k", k=hostile) == []
        where = parse("key = :k", ENTITY_FIELDS, {"k": hostile})
        assert hostile not in where.sql.text
    assert table.ids("attrs.\"a') OR 1=1 --\" = 'x'") == [1]
    assert "OR 1=1" not in parse('check."a\') OR 1=1 --" is null', ENTITY_FIELDS, {}).sql.text


# Fields


@pytest.mark.parametrize(
    "name",
    [
        "a.b",
        'a"b',
        '"',
        '"a"',
        "\\",
        '\\"',
        "\\u0041",
        "a[0]",
        "[",
        "$",
        "#",
        "",
        " ",
        "a\nb",
        "'",
        "é",
        "日本",
        "😀",
    ],
)
def test_any_attribute_name_can_be_asked_for(table, name):
    """Quotes, dots, brackets, backslashes and nothing at all are names like any other."""
    table.put(1, {name: "v", "other": "w"}, {name: ("pass", {name: 1}, "d")})
    table.put(2, {"A": "v", "a": {"b": "v"}})
    quoted = '"' + name.replace('"', '""') + '"'
    assert table.ids(f"attrs.{quoted} = 'v'") == [1]
    assert table.ids(f"check.{quoted} = 'pass' and detail.{quoted} = 'd' and value.{quoted}.{quoted} = 1") == [1]
    assert table.pages(f"-attrs.{quoted}", 1) == [1, 2]


def test_a_dotted_path_goes_into_objects(table):
    """`attrs.tls.version` is the member of a member; a name with a dot is quoted."""
    table.put(1, {"tls": {"version": 1.2}})
    table.put(2, {"tls.version": 1.2})
    table.put(3, {"tls": "version"})
    table.put(4, {"tls": [{"version": 1.2}]})
    assert table.ids("attrs.tls.version = 1.2") == [1]
    assert table.ids('attrs."tls.version" = 1.2') == [2]


def test_keywords_are_names_after_a_dot(table):
    """`attrs.in` is an attribute, not an operator."""
    table.put(1, {"in": 1, "null": {"not": True}})
    assert table.ids("attrs.in in (1) and attrs.null.not = true") == [1]


def test_checks_are_fields(table):
    """`check.NAME` is the result, null where never marked; `value` and `detail` belong to the same mark."""
    table.put(1)
    table.put(2, checks={"authz": ("fail", {"cvss": 9.8}, "no check of the owner")})
    table.put(3, checks={"authz": "pass", "tls.version": "na", "name with space": "error"})
    assert table.ids("check.authz is null") == [1]
    assert table.ids("check.authz in ('fail', 'error') and value.authz.cvss > 9 and detail.authz contains 'owner'") == [
        2
    ]
    assert table.ids("check.tls.version = 'na'") == table.ids("check.\"tls.version\" = 'na'") == [3]
    assert table.ids("check.\"name with space\" = 'error'") == [3]
    assert table.ids("value.authz is null") == [1, 3]


def test_claimed_is_judged_at_a_given_time(table):
    """A claim is live until its expiry and not at it."""
    table.put(1)
    table.put(2, claimed_until=table.now + 1)
    table.put(3, claimed_until=table.now)
    assert table.ids("claimed") == table.ids("claimed = true") == [2]
    assert table.ids("not claimed") == table.ids("claimed = false") == table.ids("claimed != true") == [1, 3]
    assert table.ids("claimed is null") == []
    assert table.ids("claimed in (true, false)") == [1, 2, 3]


def test_times_are_iso_text_in_utc(table):
    """A date is its first instant; an offset is honoured; a datetime needs its zone."""
    midnight = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp()) * 1_000_000
    table.put(1, created_at=midnight - 1)
    table.put(2, created_at=midnight)
    table.put(3, created_at=midnight + 3_600_000_000)
    for source in (
        "'2026-11-01'",
        "'2026-11-01T00:00'",
        "'2026-11-01 00:00:00.000000Z'",
        "'2026-11-01T02:00:00+02:00'",
    ):
        assert table.ids(f"created_at >= {source}") == [2, 3]
    assert table.ids("created_at between '2026-10-31T23:59:59.999999' and '2026-11-01'") == [1, 2]
    assert table.ids("created_at in :days", days=[date(2026, 11, 1)]) == [2]
    assert table.ids("created_at < :t", t=datetime(2026, 11, 1, 1, tzinfo=timezone(timedelta(hours=1)))) == [1]
    assert "time zone" in str(fails("created_at < :t", t=datetime(2026, 11, 1)))
    assert fails("attrs.x < :t", t=datetime(2026, 11, 1, tzinfo=UTC)).position == 10


@pytest.mark.parametrize(
    "text",
    [
        "yesterday",
        "2026-13-01",
        "2026-02-30",
        "2026-11-01T25:00",
        "20261101",
        "2026-W01-1",
        "",
        "0001-01-01T00:00+01:00",
    ],
)
def test_a_bad_date_is_an_error_that_shows_the_place(text):
    """What is no ISO date or time is refused."""
    assert fails(f"created_at > '{text}'").position == 13


def test_an_unknown_field_gets_the_nearest_name():
    """An error for a field that does not exist helps to find the one meant."""
    assert "Did you mean status" in fails("statsu = 'x'").next
    assert "Did you mean status" in fails("Status = 'x'").next
    assert "Did you mean attrs.area" in fails("attr.area = 'x'").next
    assert "attrs.area" in fails("area = 'x'").next
    assert "check.NAME" in fails("zzz = 'x'").next
    assert fails("id = 1 and status.x = 'y'").position == 11
    assert "attrs.NAME" in fails("attrs = 1").next


def test_a_map_of_other_fields_serves_as_well(table):
    """A JSON column without a name below it, such as tags, is a field too."""
    fields = FieldMap({"id": Column(Kind.NUMBER, "e.id", nullable=False), "tags": Column(Kind.JSON, "e.attrs")}, {})
    table.put(1, attrs=["p0", "web"])
    table.put(2, attrs=["p1"])
    text, bindings = parse("tags contains 'p0'", fields, {}).sql
    assert table.db.execute(f"SELECT id FROM entity AS e WHERE {text}", bindings).fetchall() == [(1,)]
    with pytest.raises(WhereError, match="The fields are id, tags"):
        parse("zzz = 1", fields, {})
