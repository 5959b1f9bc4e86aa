"""The routes behind the gate: tools as plain requests, in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest

pytest.importorskip("mcp")

from agentmem import Store, errors
from agentmem._version import __version__
from agentmem.adapters.http.app import build_app, status_of
from agentmem.adapters.http.calls import Calls
from agentmem.adapters.http.gate import Gate, own_hosts
from agentmem.adapters.http.limits import Limits
from agentmem.adapters.http.refusal import Refusal
from agentmem.adapters.mcp.server import build
from agentmem.tools import Toolbox

TOKEN = "0123456789abcdefghijklmnopqrstuv"


def served(store: Any, **options: Any) -> tuple[Any, Calls]:
    limits = Limits(**options)
    toolbox = Toolbox(store)
    calls = Calls(toolbox, limits)
    app: Any = build_app(toolbox, build(toolbox), calls, limits)
    return Gate(app, token=TOKEN, hosts=own_hosts("127.0.0.1", 8377), limits=limits), calls


@pytest.fixture
def app(store: Store) -> Any:
    return served(store)[0]


def test_the_state_of_the_server_is_told(app: Any, ask: Any) -> None:
    """To who has the token."""
    assert ask(app).json == {"status": "ok", "version": __version__}
    assert ask(app, token=None).status == 401


def test_tools_are_listed_with_schemas_and_hints(app: Any, ask: Any) -> None:
    """As MCP lists them."""
    tools = {tool["name"]: tool for tool in ask(app, path="/v1/tools").json["tools"]}
    assert len(tools) == 14
    assert tools["resume"]["hints"] == {"read_only": True, "destructive": False, "idempotent": True}
    assert tools["note"]["input_schema"]["additionalProperties"] is False
    assert tools["note"]["description"]


def test_a_tool_is_called_by_its_name(app: Any, post: Any) -> None:
    """The answer has the text for a model and the data for a program."""
    made = post(app, "/v1/tools/note", {"notes": [{"kind": "goal", "title": "检查 example.com"}]})
    assert (made.status, made.json) == (200, {"text": "#2", "data": {"ids": [2]}})
    assert "检查 example.com" in post(app, "/v1/tools/resume", {}).json["text"]


def test_what_goes_wrong_is_a_status_and_an_error(app: Any, post: Any, ask: Any) -> None:
    """With code, what and next, and the connection is kept."""
    missing = post(app, "/v1/tools/get", {"refs": ["99"]})
    assert (missing.status, missing.code, missing.closed) == (404, "not_found", False)
    assert post(app, "/v1/tools/get", {"nonsense": 1}).status == 400
    unknown = post(app, "/v1/tools/nothing", {})
    assert (unknown.status, unknown.code) == (404, "not_found")
    assert "There are resume" in unknown.json["error"]["next"]
    assert post(app, "/v1/tools/forget", {"refs": ["2"]}).status == 404  # not listed, so not there
    for method, path in (("PUT", "/v1/tools"), ("DELETE", "/health"), ("GET", "/v1/tools/note"), ("BREW", "/health")):
        assert ask(app, method, path).code == "method_not_allowed"
    for path in (
        "/",
        "/v1",
        "/v2/tools",
        "/mcp/",
        "/v1/tools/",
        "/v1/tools/a/b",
        "/.well-known/oauth-protected-resource",
    ):
        assert ask(app, path=path).code == "no_route"


@pytest.mark.parametrize(
    "body",
    [
        b"", b"{", b"[]", b"null", b'"{}"', b"1", b"{}{}", b"{} x", b"\xff\xfe", b"\xef\xbb\xbf{}", b'{"a": "\xff"}',
        '{"a": 1}'.encode("utf-16"), b'{"task": "1", "task": "2"}', b'{"a": {"b": 1, "b": 2}}', b'{"a": NaN}',
        b'{"a": Infinity}', b'{"a": -Infinity}', b'{"a": 1e999}', b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\\ud800"}',
        b'{"\\udfff": 1}', b'{"a": ' + b"[" * 70 + b"]" * 70 + b"}", b"[" * 200_000, b'{"a":' * 100_000, b"{'a': 1}",
        b'{"a": 01}', b'{"a": "\n"}', b'{"a": 1,}',
    ],
)  # fmt: skip
def test_a_body_that_is_not_strictly_an_object_is_refused(app: Any, post: Any, body: bytes) -> None:
    """Names twice, NaN, too deep, half a pair, not UTF-8, no object, more than one."""
    answer = post(app, "/v1/tools/resume", body)
    assert (answer.status, answer.code) == (400, "invalid_input")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (errors.InvalidInput("x"), 400),
        (errors.LimitExceeded("x"), 400),
        (errors.NotFound("x"), 404),
        (errors.Conflict("x"), 409),
        (errors.RequestMismatch("x"), 409),
        (errors.Held("x"), 423),
        (errors.ReadOnly("x"), 403),
        (errors.WrongKey("x"), 403),
        (errors.KeyMissing("x"), 403),
        (errors.Busy("x"), 503),
        (errors.DiskFull("x"), 500),
        (errors.Corrupt("x"), 500),
        (errors.Closed("x"), 500),
    ],
)
def test_each_kind_of_error_has_its_status(error: errors.AgentMemError, status: int) -> None:
    """Programs may go by it."""
    assert status_of(error) == status


def test_a_store_that_cannot_be_opened_is_the_answer(post: Any) -> None:
    """Of each call, and a busy one says when to come back."""

    def busy() -> Store:
        raise errors.Busy("Somebody writes")

    answer = post(served(busy)[0], "/v1/tools/resume", {})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "busy", "1")


def test_an_answer_that_takes_too_long_is_given_up_and_the_call_goes_on(
    opened: Callable[..., Store], post: Any
) -> None:
    """504 says that it does; what it writes is there."""
    go = threading.Event()

    def slow() -> Store:
        assert go.wait(30)
        return opened()

    app, calls = served(slow, answer_seconds=0.05)
    answer = post(app, "/v1/tools/note", {"notes": [{"kind": "goal", "title": "Late"}]})
    assert (answer.status, answer.code) == (504, "timed_out")
    assert "goes on" in answer.json["error"]["why"]
    go.set()
    assert calls.close(30)
    assert opened().get(2).title == "Late"  # type: ignore[union-attr]


def test_a_call_that_found_no_thread_in_time_is_not_begun(opened: Callable[..., Store]) -> None:
    """And the answer says so, that it may be repeated."""
    go = threading.Event()

    def slow() -> Store:
        assert go.wait(30)
        return opened()

    calls = Calls(Toolbox(slow), Limits(answer_seconds=0.05, threads=1))

    async def main() -> None:
        first = await calls.call("resume", {})
        second = await calls.call("note", {"notes": [{"kind": "goal", "title": "Never"}]})
        assert isinstance(first, Refusal)
        assert isinstance(second, Refusal)
        assert "goes on" in first.why
        assert "not begun" in second.why

    anyio.run(main)
    go.set()
    assert calls.close(30)
    assert opened().log.head().seq == 0
