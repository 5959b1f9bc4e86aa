"""Tools by name, and what their schemas accept."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.errors import AgentMemError, Conflict, InvalidInput, LimitExceeded, NotFound
from agentmem.harness.toolset import Call, Tool, Toolset
from agentmem.log.canonical import canonical

TRANSFER = {
    "type": "object",
    "properties": {
        "amount": {"type": "integer", "minimum": 1, "maximum": 100},
        "to": {
            "type": "object",
            "properties": {"iban": {"type": "string"}, "name": {"type": "string"}},
            "required": ["iban"],
        },
        "tags": {"type": "array", "items": {"enum": ["rent", "food"]}, "maxItems": 2},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    },
    "required": ["amount"],
}


def made(schema: Any = TRANSFER, name: str = "transfer", **more: Any) -> Tool:
    return Tool(name, "Moves money", schema, lambda call: "", **more)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({}, "transfer needs amount"),
        ({"amount": "3"}, "transfer.amount is '3'"),
        ({"amount": True}, "transfer.amount is True"),
        ({"amount": 0}, "at least 1"),
        ({"amount": 101}, "at most 100"),
        ({"amount": 3.5}, "a whole number"),
        ({"amount": 3, "amout": 4}, "Did you mean amount?"),
        ({"amount": 3, "to": {"iban": "x", "nam": "y"}}, "transfer.to has no field 'nam'. Did you mean name?"),
        ({"amount": 3, "to": {"name": "y"}}, "transfer.to needs iban"),
        ({"amount": 3, "tags": ["food", "rents"]}, "transfer.tags[1] is 'rents'"),
        ({"amount": 3, "tags": ["food"] * 3}, "2 at most"),
        ({"amount": None}, "transfer.amount is None"),
        ({"amount": float("nan")}, "finite"),
        ({"amount": 3, "note": "\ud800"}, "surrogate"),
        ([], "It is an object"),
        ("{}", "It is an object"),
        (None, "It is an object"),
    ],
)
def test_an_input_that_does_not_fit_is_refused_with_its_place(given_: Any, said: str) -> None:
    """The message names the place, what is known there and the nearest name."""
    with pytest.raises(InvalidInput) as raised:
        made().validated(given_)
    assert said in str(raised.value)


def test_an_input_that_fits_is_a_copy() -> None:
    """What the tool gets shares nothing with what the model's message holds."""
    to = {"iban": "DE1"}
    found = made().validated({"amount": 3.0, "to": to, "note": None, "tags": ("food",)})
    assert found == {"amount": 3, "to": {"iban": "DE1"}, "note": None, "tags": ["food"]}
    assert type(found["amount"]) is int
    found["to"]["iban"] = "DE2"
    assert to == {"iban": "DE1"}


def test_a_null_for_what_is_optional_is_left_out() -> None:
    """Models write null for what they do not give; where null is a value it stays."""
    assert made().validated({"amount": 3, "to": None, "note": None}) == {"amount": 3, "note": None}


def test_unknown_fields_are_refused_unless_the_schema_allows() -> None:
    """`additionalProperties` opens an object, for all or for those of a schema; an object without fields is open."""
    closed = {"type": "object", "properties": {}}
    with pytest.raises(InvalidInput, match="It takes no fields"):
        made(closed).validated({"x": 1})
    assert made({**closed, "additionalProperties": True}).validated({"x": 1}) == {"x": 1}
    assert made({"type": "object"}).validated({"x": 1}) == {"x": 1}
    of_texts = made({**closed, "additionalProperties": {"type": "string"}})
    with pytest.raises(InvalidInput, match=r"transfer\.x is 1"):
        of_texts.validated({"x": 1})


def test_branches_and_references_count() -> None:
    """allOf, anyOf, oneOf and local references say which fields there are, closed as a whole."""
    schema = {
        "type": "object",
        "properties": {"shape": {"$ref": "#/$defs/shape"}},
        "$defs": {
            "shape": {
                "oneOf": [
                    {"type": "object", "properties": {"radius": {"type": "number"}}, "required": ["radius"]},
                    {"type": "object", "properties": {"side": {"type": "number"}}, "required": ["side"]},
                ]
            }
        },
        "allOf": [{"properties": {"colour": {"const": "red"}}}],
    }
    tool = made(schema)
    assert tool.validated({"shape": {"side": 2}, "colour": "red"}) == {"shape": {"side": 2}, "colour": "red"}
    for wrong in ({"shape": {"side": 2, "radius": 1}}, {"shape": {}}, {"colour": "blue"}, {"color": "red"}):
        with pytest.raises(InvalidInput):
            tool.validated(wrong)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {},
        [],
        None,
        {"type": "object", "properties": []},
        {"type": "object", "properties": {"x": 1}},
        {"type": "object", "properties": {"x": {"type": "text"}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/none"}}},
        {"type": "object", "properties": {"x": {"$ref": "https://example.com/schema"}}},
        {"type": "object", "required": "x"},
        {"type": "object", "properties": {"x": {"type": "integer", "minimum": "1"}}},
        {"type": "object", "x": float("inf")},
    ],
)
def test_what_is_no_schema_is_refused_when_the_tool_is_made(schema: Any) -> None:
    """A mistake shows where the tool is written, not where it is first called."""
    with pytest.raises(InvalidInput):
        made(schema)


def test_schemas_that_lead_in_a_circle_end() -> None:
    """A foreign schema that refers to itself without end, or branches without end, is an error and takes no time."""
    for branch in ("allOf", "anyOf"):
        loop = {"type": "object", branch: [{"$ref": "#"}, {"$ref": "#"}]}
        with pytest.raises(LimitExceeded):
            made(loop).validated({"x": 1})
    tree = {"type": "object", "properties": {"child": {"$ref": "#"}}}
    assert made(tree).validated({"child": {"child": {}}}) == {"child": {"child": {}}}


def test_a_pattern_of_somebody_else_is_not_run() -> None:
    """An expression that would take for ever is a hint to the model only."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": "(a+)+$"}}}
    assert made(schema).validated({"x": "a" * 60 + "!"})["x"].endswith("!")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
FIELDS = st.dictionaries(st.sampled_from(["amount", "to", "tags", "note", "x"]), JSON, max_size=5)


@given(FIELDS | JSON)
@settings(max_examples=300)
def test_any_input_is_accepted_for_good_or_refused_with_a_typed_error(input: Any) -> None:
    """What is accepted is canonical JSON, and is accepted again unchanged."""
    try:
        found = made().validated(input)
    except AgentMemError:
        return
    assert canonical(made().validated(found)) == canonical(found)


@given(st.recursive(JSON, lambda inner: st.dictionaries(
    st.sampled_from(["type", "properties", "items", "anyOf", "allOf", "enum", "$ref", "required", "additionalProperties"]),
    inner | st.sampled_from(["object", "string", "#", "#/properties/x"]) | st.lists(inner, max_size=2), max_size=4,
), max_leaves=12), JSON)  # fmt: skip
@settings(max_examples=300)
def test_any_schema_is_refused_or_checks(schema: Any, input: Any) -> None:
    """A schema from elsewhere brings no error but typed ones, when it is taken or when it checks."""
    try:
        made({"type": "object", **(schema if isinstance(schema, dict) else {"properties": {"x": schema}})}).validated(
            {"x": input}
        )
    except AgentMemError:
        return


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": ""}, {"name": "a b"}, {"name": "a" * 65}, {"name": "zahlen.de"}, {"name": "zählen"}, {"name": 3},
        {"permission": "deny"}, {"seconds": 0}, {"seconds": float("inf")}, {"expires": 0}, {"idempotent": 1},
        {"output_chars": 0}, {"scope": []}, {"credential": "a b"},
    ],
)  # fmt: skip
def test_a_tool_that_is_written_wrong_is_refused(wrong: dict[str, Any]) -> None:
    """Each setting is checked when the tool is made."""
    with pytest.raises(InvalidInput):
        made(**wrong)


def test_tools_are_found_by_name_in_the_order_given() -> None:
    """The order of the definitions never changes, and their caller may change them."""
    tools = Toolset([made(name="b"), made(name="a")])
    assert tools.names() == ["b", "a"]
    assert [each.name for each in tools] == ["b", "a"]
    assert "a" in tools
    assert len(tools) == 2
    tools.definitions()[0]["input_schema"].clear()
    assert tools.definitions()[0] == {"name": "b", "description": "Moves money", "input_schema": TRANSFER}
    assert list(tools.definitions()[0]["input_schema"]["properties"]) == list(TRANSFER["properties"])


def test_a_name_that_is_not_there_is_told_the_nearest() -> None:
    """A model that misspells a tool can mend it."""
    with pytest.raises(NotFound, match="Did you mean transfer"):
        Toolset([made()]).get("transfr")
    with pytest.raises(NotFound, match="none in this session"):
        Toolset().get("x")


def test_two_tools_of_one_name_are_refused() -> None:
    """And so is what is no tool."""
    with pytest.raises(Conflict):
        Toolset([made(), made()])
    with pytest.raises(InvalidInput):
        Toolset([lambda: None])  # type: ignore[list-item]


def test_a_call_does_not_show_its_input() -> None:
    """What a model gave may be long or private; the repr of a call names the tool and the event."""
    call = Call("t", {"text": "private"}, 1, 2, "k")
    assert "private" not in repr(call)
    assert "event=2" in repr(call)
