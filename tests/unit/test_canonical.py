"""TRAPS 12: one spelling for each value, and no value that has none."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentmem.errors import InvalidInput, LimitExceeded
from agentmem.limits import INT_MAX, JSON_DEPTH
from agentmem.log.canonical import canonical, plain

TEXTS = st.text(st.characters(exclude_categories=("Cs",)))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-INT_MAX, INT_MAX)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


def same(one: object, other: object) -> bool:
    """Equality in which bool, integer and float are three things and -0.0 is 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@given(JSON)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    """Reading a canonical text gives the value again, types and all, and writing it again the same bytes."""
    text = canonical(value)
    assert same(plain(text), value)
    assert canonical(plain(text)) == text


@given(JSON, JSON)
def test_two_values_are_the_same_if_and_only_if_their_texts_are(one: object, other: object) -> None:
    """Equal bytes mean equal values and the reverse."""
    assert (canonical(one) == canonical(other)) == same(one, other)


@given(st.dictionaries(TEXTS, SCALARS))
def test_the_order_of_names_is_no_part_of_a_value(value: dict[str, object]) -> None:
    """An object written in another order has the same text."""
    assert canonical(dict(reversed(value.items()))) == canonical(value)


def test_true_one_and_one_point_nought_are_three_values() -> None:
    """What Python calls equal is told apart."""
    assert len({canonical(value) for value in (True, 1, 1.0, "1")}) == 4


def test_the_text_is_utf8_without_spaces_and_sorted() -> None:
    """Names are sorted, nothing is spaced out, letters stay letters."""
    assert (
        canonical({"b": [1, 2.5, None], "a": {"é": "数据", "A": True}})
        == '{"a":{"A":true,"é":"数据"},"b":[1,2.5,null]}'
    )


def test_minus_nought_is_nought() -> None:
    """-0.0 has the spelling of 0.0, also deep inside."""
    assert canonical([-0.0, {"a": -0.0}]) == '[0.0,{"a":0.0}]'


def test_tuples_are_lists() -> None:
    """A tuple is the list of its parts."""
    assert canonical((1, (2,))) == "[1,[2]]"


@pytest.mark.parametrize("number", [INT_MAX, -INT_MAX, 0])
def test_integers_of_64_bits_are_kept_exactly(number: int) -> None:
    """The largest integers come back to the last digit."""
    assert plain(canonical(number)) == number


@pytest.mark.parametrize("number", [INT_MAX + 1, -INT_MAX - 1, 10**30])
def test_larger_integers_are_refused(number: int) -> None:
    """An integer beyond ±(2^63 - 1) would become a float elsewhere and is an error here."""
    with pytest.raises(LimitExceeded):
        canonical({"deep": [number]})


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_refused(number: float) -> None:
    """NaN and infinities are no JSON."""
    with pytest.raises(InvalidInput):
        canonical([number])


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb", {"\udc00": 1}, ["\ud83d"]])
def test_half_a_surrogate_pair_is_refused(text: object) -> None:
    """A lone surrogate can't be written as UTF-8, as text or as a name."""
    with pytest.raises(InvalidInput, match="surrogate"):
        canonical(text)


@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {True: 1}, b"bytes", {1, 2}, object(), 1j])
def test_what_json_has_no_word_for_is_refused(value: object) -> None:
    """Other types, and names that are not text, are errors and are not turned into something like them."""
    with pytest.raises(InvalidInput):
        canonical(value)


def test_depth_is_bounded() -> None:
    """So many levels are kept and not one more; endless ones end in the same error."""
    value: object = 1
    for _ in range(JSON_DEPTH):
        value = [value]
    assert json.loads(canonical(value)) == value
    with pytest.raises(LimitExceeded):
        canonical([value])
    endless: list[object] = []
    endless.append(endless)
    with pytest.raises(LimitExceeded):
        canonical(endless)
