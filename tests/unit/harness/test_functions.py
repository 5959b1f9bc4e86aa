"""Tools that are Python functions."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Optional, Required, TypedDict

import pytest
from attrs import frozen

from agentmem.errors import InvalidInput, ToolFailed
from agentmem.harness.functions import told, tool
from agentmem.harness.toolset import Call, Tool

if TYPE_CHECKING:
    from agentmem.harness.grants import Credential


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.Enum):
    LOW = 1.5
    HIGH = 2.5


@frozen
class Point:
    x: int
    y: float = 0.0


@dataclass
class Path:
    points: list[Point]
    names: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    size: Required[int]
    name: str


class Whole(TypedDict):
    size: int
    name: NotRequired[str]


@dataclass
class Circle:
    inner: Circle | None = None


def called(made: Tool, /, **input: Any) -> str:
    return made.run(Call(made.name, made.validated(input), 1, 2, "key-2"))


def test_schema_and_descriptions_come_from_the_signature_and_the_docstring() -> None:
    """A parameter's text is its annotation's, else what Args says of it; sections are not told."""

    @tool
    def pay(amount: Annotated[int, "In cents"], to: str, mode: Literal["now", "later"] = "now") -> str:
        """Pay somebody.

        Only once.

        Args:
            amount: Not this.
            to (str): Whom: a name,
                or a number.
            mode: When.

        Returns:
            A receipt.
        """
        return f"{amount} {to} {mode}"

    assert (pay.name, pay.description) == ("pay", "Pay somebody.\n\nOnly once.")
    assert pay.schema == {
        "type": "object",
        "properties": {
            "amount": {"type": "integer", "description": "In cents"},
            "to": {"type": "string", "description": "Whom: a name, or a number."},
            "mode": {"type": "string", "enum": ["now", "later"], "default": "now", "description": "When."},
        },
        "required": ["amount", "to"],
        "additionalProperties": False,
    }
    assert list(pay.schema["properties"]) == ["amount", "to", "mode"]
    assert called(pay, amount=3, to="Ana") == "3 Ana now"


@pytest.mark.parametrize(
    ("annotation", "given", "built"),
    [
        (str, "x", "x"),
        (int, 3.0, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (list[int], [1, 2], [1, 2]),
        (Sequence[Point], [{"x": 1}], [Point(1)]),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2, 3], (1, 2, 3)),
        (set[str], ["a"], {"a"}),
        (dict[str, Point], {"a": {"x": 1, "y": 2}}, {"a": Point(1, 2.0)}),
        (Colour, "red", Colour.RED),
        (Level, "LOW", Level.LOW),
        (Path, {"points": [{"x": 1}]}, Path([Point(1)])),
        (Options, {"size": 1}, {"size": 1}),
        (Whole, {"size": 1}, {"size": 1}),
        (Optional[int], None, None),  # noqa: UP045
        (int | Point, {"x": 3}, Point(3)),
        (Annotated[Point | None, "Where"], {"x": 3}, Point(3)),
        (Literal[1, "a", None], "a", "a"),
        (Any, {"a": [1]}, {"a": [1]}),
    ],
)
def test_values_come_as_the_annotations_say(annotation: Any, given: Any, built: Any) -> None:
    """The function gets what it is annotated with: points, enums, tuples, floats."""
    found: list[Any] = []

    def take(value: Any) -> None:
        found.append(value)

    take.__annotations__["value"] = annotation
    assert called(tool(take), value=given) == ""
    assert found == [built]
    assert type(found[0]) is type(built)


@pytest.mark.parametrize(
    ("annotation", "given"),
    [
        (int, "3"), (int, True), (float, "3"), (bool, 1), (str, 3), (list[int], [1, "2"]), (Colour, "green"),
        (tuple[int, str], [1]), (set[int], [1, 1]), (Point, {"x": 1, "z": 2}), (Point, {}), (Options, {"name": "a"}),
        (Whole, {"name": "a"}), (Literal[1], True), (int | None, "x"), (dict[str, int], {"a": "b"}),
    ],
)  # fmt: skip
def test_a_value_of_another_type_never_reaches_the_function(annotation: Any, given: Any) -> None:
    """What does not fit is refused with its place."""

    def take(value: Any) -> None:
        raise AssertionError

    take.__annotations__["value"] = annotation
    with pytest.raises(InvalidInput, match=r"take\.value|take needs"):
        tool(take).validated({"value": given})


@pytest.mark.parametrize(
    "annotation", [bytes, complex, dict[int, str], Circle, "nowhere", object.__init__, Literal[1.5]]
)
def test_what_json_cannot_say_is_refused_when_the_tool_is_made(annotation: Any) -> None:
    """The message names the parameter."""

    def take(value: Any) -> None: ...

    take.__annotations__["value"] = annotation
    with pytest.raises(InvalidInput, match=r"take\.value"):
        tool(take)


def test_arguments_without_names_are_refused() -> None:
    """A model is told of each parameter by its name."""
    with pytest.raises(InvalidInput, match="any arguments"):
        tool(lambda *values: "")
    with pytest.raises(InvalidInput, match="any arguments"):
        tool(lambda **values: "")


def test_a_parameter_before_the_slash_is_given_by_its_place() -> None:
    """Its name is what the model sees all the same."""

    def join(a: str, b: str = "b", /, c: str = "c") -> str:
        return a + b + c

    assert called(tool(join), a="1", c="3") == "1b3"


def test_the_call_is_injected_and_not_told() -> None:
    """A parameter annotated `Call` gets the call; the model sees no such field and can't give one."""

    @tool
    def key(text: str, call: Call) -> str:
        return f"{text} {call.key}"

    assert list(key.schema["properties"]) == ["text"]
    assert called(key, text="x") == "x key-2"
    with pytest.raises(InvalidInput):
        key.validated({"text": "x", "call": {}})


def test_a_credential_is_injected_and_not_told() -> None:
    """A parameter annotated `Credential` gets the grant, however the annotation is written."""

    def typed(credential: Credential) -> str:
        return str(credential)

    def optional(credential: Optional[Credential] = None) -> str:  # noqa: UP045
        return str(credential)

    for fn in (typed, optional):
        made = tool(fn, credential="prod")
        assert made.schema["properties"] == {}
        assert made.run(Call("typed", {}, 1, 2, "k", credential="the grant")) == "the grant"  # type: ignore[arg-type]
    assert called(tool(optional)) == "None"


def test_a_credential_that_nobody_takes_is_refused() -> None:
    """And so is one that is taken and not declared."""

    def take(credential: Credential) -> str:
        return str(credential)

    with pytest.raises(InvalidInput, match="takes none"):
        tool(lambda: "", credential="prod")
    with pytest.raises(InvalidInput, match="declares none"):
        tool(take)


def test_async_functions_run_to_their_end() -> None:
    """Also where the thread that calls has a loop that runs."""

    @tool
    async def wait(text: str) -> str:
        await asyncio.sleep(0)
        return text

    assert called(wait, text="a") == "a"

    async def inside() -> str:
        return called(wait, text="b")

    assert asyncio.run(inside()) == "b"


def test_an_async_function_is_stopped_when_the_call_is() -> None:
    """It is cancelled where it waits."""
    ended = threading.Event()
    call = Call("wait", {}, 1, 2, "k")

    @tool
    async def wait() -> str:
        call.cancelled.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return ""

    with pytest.raises(ToolFailed, match="stopped before its end"):
        wait.run(call)
    assert ended.is_set()


def test_what_a_function_raises_goes_on() -> None:
    """Whoever calls the tool makes a result of it."""

    @tool
    def fail() -> str:
        raise KeyError("x")

    @tool
    async def fail_later() -> str:
        raise KeyError("y")

    for made in (fail, fail_later):
        with pytest.raises(KeyError):
            called(made)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ("ä\n", "ä\n"),
        ("\ud800", "?"),
        (True, "true"),
        (3, "3"),
        (1.0, "1.0"),
        ([1, "a", None], '[1,"a",null]'),
        ({"b": 1, "a": (2,)}, '{"a":[2],"b":1}'),
        (Colour.RED, '"red"'),
        (Path([Point(1)]), '{"names":[],"points":[{"x":1,"y":0.0}]}'),
        ({"b", "a"}, '["a","b"]'),
    ],
)
def test_results_become_text(value: Any, text: str) -> None:
    """A text as it is, None as nothing, others as canonical JSON."""
    assert told(value) == text


def test_a_result_that_json_cannot_say_is_a_failure_of_the_tool() -> None:
    """It is typed, and shows nothing of the value."""
    deep: list[Any] = []
    deep.append(deep)
    for value in (object(), b"secret", float("nan"), {1: 2}, deep, 2**70):
        with pytest.raises(ToolFailed) as raised:
            told(value, "mine")
        assert "secret" not in str(raised.value)


def test_settings_reach_the_tool() -> None:
    """Each option of the decorator is one of the tool."""
    made = tool(lambda: "", name="n", description="d", idempotent=True, permission="ask", scope={"a": 1}, seconds=3.0,
                parallel=False, expires=9, output_chars=7)  # fmt: skip
    assert (made.name, made.description, made.idempotent, made.permission) == ("n", "d", True, "ask")
    assert (dict(made.scope), made.seconds, made.parallel, made.expires, made.output_chars) == (
        {"a": 1},
        3.0,
        False,
        9,
        7,
    )
