"""The tools of an MCP server: taken over, called, and let go."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem.errors import Closed, Conflict, InvalidInput, MissingExtra, ToolFailed, ToolTimeout
from agentmem.harness.mcp_servers import McpTools, mcp_tools
from agentmem.harness.toolset import Call, Tool, Toolset

mcp = pytest.importorskip("mcp", reason="the extra mcp is not installed")

from mcp.server.mcpserver import MCPServer  # noqa: E402
from mcp.server.mcpserver.exceptions import ToolError  # noqa: E402
from mcp_types import (  # noqa: E402
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)

pytestmark = pytest.mark.timeout(120)

STDIO = """
import os, sys
from mcp.server.mcpserver import MCPServer

server = MCPServer("stdio")

@server.tool()
def env() -> str:
    "The variables of the process."
    return " ".join(sorted(os.environ))

@server.tool()
def pid() -> str:
    "The number of the process."
    return str(os.getpid())

@server.tool()
def end() -> str:
    "Ends the process."
    os._exit(3)

print("said to nobody", file=sys.stderr)
server.run("stdio")
"""


def serving() -> MCPServer:
    server = MCPServer("test")

    @server.tool(annotations=ToolAnnotations(read_only_hint=True))
    def add(a: int, b: int = 1) -> str:
        """Add two numbers."""
        return str(a + b)

    @server.tool(annotations=ToolAnnotations(idempotent_hint=True, destructive_hint=True))
    def put(text: str) -> dict[str, str]:
        """Put a text."""
        return {"put": text}

    @server.tool()
    def fail(why: str) -> str:
        """Fail."""
        raise ToolError(why)

    @server.tool(name="odd.name/x")
    def odd() -> list[Any]:
        """Give all kinds."""
        return [
            TextContent(type="text", text="one"),
            ImageContent(type="image", data="aGFsbG8=", mime_type="image/png"),
            AudioContent(type="audio", data="aGFsbG8=", mime_type="audio/wav"),
            ResourceLink(type="resource_link", uri="file:///a", name="a"),
            EmbeddedResource(type="resource", resource=TextResourceContents(uri="file:///b", text="two")),
        ]

    @server.tool()
    async def wait() -> str:
        """Wait for ever."""
        import anyio

        await anyio.sleep_forever()
        return ""

    return server


@pytest.fixture
def tools() -> Iterator[McpTools]:
    with mcp_tools(serving()) as found:
        yield found


@pytest.fixture(autouse=True)
def _no_thread_left() -> Iterator[None]:
    """Closing ends the background thread."""
    before = set(threading.enumerate())
    yield
    assert not [each for each in set(threading.enumerate()) - before if each.name == "agentmem-mcp"]


def called(
    tools: McpTools, name: str, /, seconds: float = 60.0, cancelled: threading.Event | None = None, **input: Any
) -> str:
    tool = Toolset(tools).get(name)
    call = Call(name, tool.validated(input), 1, 2, "k", seconds=seconds, cancelled=cancelled or threading.Event())
    return tool.run(call)


def test_its_tools_are_taken_over(tools: McpTools) -> None:
    """Name, description, schema, and what its hints say of a second run."""
    assert [each.name for each in tools] == ["add", "put", "fail", "odd_name_x", "wait"]
    add = tools[0]
    assert isinstance(add, Tool)
    assert add.description == "Add two numbers."
    assert add.schema["required"] == ["a"]
    assert [each.idempotent for each in tools] == [True, True, False, False, False]
    assert len(tools[:2]) == 2


def test_a_call_gives_text(tools: McpTools) -> None:
    """Blocks that are no text are named; a value without text is JSON."""
    assert called(tools, "add", a=3) == "4"
    assert called(tools, "put", text="ü").replace(" ", "").replace("\n", "") == '{"put":"ü"}'
    said = called(tools, "odd_name_x")
    assert said.split("\n") == [
        "one", "[image, image/png, 6 bytes]", "[audio, audio/wav, 6 bytes]", "[resource file:///a: a]",
        "[resource file:///b]", "two",
    ]  # fmt: skip


def test_an_error_of_the_tool_is_a_typed_failure(tools: McpTools) -> None:
    """With what the server said; the connection stands."""
    with pytest.raises(ToolFailed, match="no such thing"):
        called(tools, "fail", why="no such thing")
    assert called(tools, "add", a=1) == "2"


def test_a_wrong_input_does_not_reach_the_server(tools: McpTools) -> None:
    """Its schema is checked here."""
    with pytest.raises(InvalidInput, match=r"add\.a"):
        called(tools, "add", a="x")


def test_a_call_that_takes_too_long_or_is_cancelled_ends(tools: McpTools) -> None:
    """And others go on by the same connection."""
    with pytest.raises(ToolTimeout):
        called(tools, "wait", seconds=0.2)
    cancelled = threading.Event()
    threading.Timer(0.1, cancelled.set).start()
    with pytest.raises(ToolFailed, match="stopped"):
        called(tools, "wait", cancelled=cancelled)
    assert called(tools, "add", a=1) == "2"


def test_calls_run_beside_each_other(tools: McpTools) -> None:
    """From many threads, by one connection."""
    found: dict[int, str] = {}
    threads = [
        threading.Thread(target=lambda at=at: found.__setitem__(at, called(tools, "add", a=at))) for at in range(20)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == {at: str(at + 1) for at in range(20)}


def test_a_prefix_permissions_and_a_choice() -> None:
    """As the author says, for all or for each by the server's description of it."""
    with mcp_tools(serving(), prefix="test_", permission=lambda each: "ask" if each.name == "fail" else "allow",
                   only=["add", "fail"], trust_hints=False, seconds=7.0) as tools:  # fmt: skip
        assert [(each.name, each.permission, each.idempotent) for each in tools] == [
            ("test_add", "allow", False),
            ("test_fail", "ask", False),
        ]
        assert tools[0].seconds == 7.0
        assert called(tools, "test_add", a=1) == "2"
    with pytest.raises(InvalidInput, match="no tool 'nope'"):
        mcp_tools(serving(), only=["nope"])


def test_names_that_come_to_one_are_refused_and_long_ones_cut() -> None:
    """A long name keeps apart from others like it."""
    server = MCPServer("names")
    for name in ("a.b", "a/b", "x" * 70 + "1", "x" * 70 + "2"):
        server.add_tool(lambda: "", name=name, description="")
    with pytest.raises(Conflict, match="a_b"):
        mcp_tools(server)
    with mcp_tools(server, only=["x" * 70 + "1", "x" * 70 + "2"]) as tools:
        assert len({each.name for each in tools}) == 2
        assert all(len(each.name) == 64 for each in tools)


def test_what_is_closed_is_not_called() -> None:
    """Closing twice is fine."""
    tools = mcp_tools(serving())
    tools.close()
    tools.close()
    with pytest.raises(Closed):
        called(tools, "add", a=1)


def test_known_definitions_connect_nothing_before_the_first_call(tools: McpTools) -> None:
    """The server is reached when one of its tools is called."""
    before = set(threading.enumerate())
    with mcp_tools(serving(), definitions=tools.definitions) as later:
        assert set(threading.enumerate()) == before
        assert [each.name for each in later] == [each.name for each in tools]
        assert called(later, "add", a=1) == "2"


def test_a_process_is_started_with_a_small_environment_and_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """None of ours in it; what it writes to standard error is nobody's; a dead one is begun anew."""
    monkeypatch.setenv("AGENTMEM_KEY", "hex:00")
    script = tmp_path / "server.py"
    script.write_text(STDIO)
    with mcp_tools(mcp.StdioServerParameters(command=sys.executable, args=[str(script)])) as tools:
        assert "AGENTMEM" not in called(tools, "env")
        first = called(tools, "pid")
        with pytest.raises(ToolFailed):
            called(tools, "end")
        second = called(tools, "pid")
        assert first != second
    assert capfd.readouterr() == ("", "")
    if sys.platform == "linux":
        assert not Path(f"/proc/{second}").exists()


@pytest.mark.parametrize("command", ["no-such-server", sys.executable])
def test_a_server_that_cannot_be_reached_is_a_typed_failure(command: str) -> None:
    """A program that is not there, or one that ends at once."""
    args = ["-c", "pass"] if command == sys.executable else []
    with pytest.raises(ToolFailed):
        mcp_tools(mcp.StdioServerParameters(command=command, args=args), seconds=30.0)


def test_a_server_that_says_nothing_is_left_in_time() -> None:
    """Its process ends too."""
    with pytest.raises(ToolTimeout):
        mcp_tools(
            mcp.StdioServerParameters(command=sys.executable, args=["-c", "import sys; sys.stdin.read()"]), seconds=1.0
        )


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else needs the package."""
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MissingExtra) as raised:
        mcp_tools("http://127.0.0.1:1/")
    assert "'.[mcp]'" in raised.value.next
