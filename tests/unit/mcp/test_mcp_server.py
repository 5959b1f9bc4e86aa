"""The MCP server in memory, in both eras of the protocol: tools, resources, notices, prompts, completion."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest

mcp = pytest.importorskip("mcp")

from mcp import Client, MCPError  # noqa: E402
from mcp.types import PromptReference, ResourceTemplateReference  # noqa: E402

from agentmem import Store  # noqa: E402
from agentmem.adapters.mcp.schemas import inlined  # noqa: E402
from agentmem.adapters.mcp.server import DATA, build  # noqa: E402
from agentmem.context.tokens import count_tokens  # noqa: E402
from agentmem.tools import Toolbox  # noqa: E402
from agentmem.tools.guide import INSTRUCTIONS  # noqa: E402

ERAS = pytest.mark.parametrize("era", ["legacy", "2026-07-28"])


@pytest.fixture
def run(store: Store) -> Any:
    """Runs a coroutine function with a client of a server over the store, in an era."""

    def started(era: str, body: Callable[[Any], Coroutine[Any, Any, None]], **options: Any) -> None:
        async def main() -> None:
            server = build(Toolbox(store, **options))
            try:
                async with Client(server, mode=era) as client:  # type: ignore[arg-type]
                    with anyio.fail_after(30):
                        await body(client)
            finally:
                await anyio.to_thread.run_sync(server.notices.close)

        anyio.run(main)

    return started


@ERAS
def test_tools_are_listed_as_they_are_written(run: Any, era: str) -> None:
    """Closed schemas, no references, hints, and nothing that the SDK would generate."""

    async def body(client: Any) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert len(listed) == 14
        assert listed["resume"].annotations.read_only_hint
        assert listed["note"].annotations.destructive_hint is False
        assert listed["mark"].annotations.idempotent_hint
        seen = [
            {"name": tool.name, "description": tool.description, "inputSchema": tool.input_schema}
            for tool in listed.values()
        ]
        assert count_tokens(json.dumps({"tools": seen}, ensure_ascii=False, separators=(",", ":"))) <= 2000
        for tool in listed.values():
            assert tool.input_schema["additionalProperties"] is False
            assert tool.output_schema is None

    run(era, body)


@ERAS
def test_the_full_set_marks_what_cannot_be_taken_back(run: Any, era: str) -> None:
    """So that a host can ask the person."""

    async def body(client: Any) -> None:
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert listed["forget"].annotations.destructive_hint
        assert listed["notes_list"].annotations.read_only_hint

    run(era, body, full=True)


@ERAS
def test_a_call_answers_in_text_and_with_data_that_costs_a_model_nothing(run: Any, era: str) -> None:
    """Ids are for programs in `_meta`; an error is a result that the model reads."""

    async def body(client: Any) -> None:
        made = await client.call_tool("note", {"notes": [{"kind": "goal", "title": "Check"}]})
        assert made.content[0].text == "#2"
        assert made.meta[DATA] == {"ids": [2]}
        wrong = await client.call_tool("get", {"refs": ["99"]})
        assert wrong.is_error
        assert wrong.content[0].text.startswith("error not_found: ")
        assert (await client.call_tool("resume", {"nonsense": 1})).is_error
        assert (await client.call_tool("no_such_tool", {})).is_error

    run(era, body)


@ERAS
def test_resources_are_the_resume_of_projects_and_records(run: Any, store: Store, era: str) -> None:
    """By id, item and `type:key` in percent-encoding; what is not there is -32602 with its URI."""
    goal = store.notes.add("goal", "Check example.com")
    store.checklists.add(goal, "TLS")
    store.entities.put("endpoint", "GET /../x")
    store.in_project("other").notes.add("goal", "Elsewhere")

    async def body(client: Any) -> None:
        async def text(uri: str) -> str:
            return str((await client.read_resource(uri)).contents[0].text)

        assert [str(one.uri) for one in (await client.list_resources()).resources] == [
            "agentmem://resume/acme", "agentmem://resume/other",
        ]  # fmt: skip
        assert len((await client.list_resource_templates()).resource_templates) == 2
        assert "Check example.com" in await text("agentmem://resume/acme")
        assert "Elsewhere" in await text("agentmem://resume/other")
        assert "Check example.com" in await text(f"agentmem://record/{goal.id}")
        assert "TLS" in await text(f"agentmem://record/{goal.id}.1")
        assert "GET /../x" in await text("agentmem://record/endpoint%3AGET%20%2F..%2Fx")
        for uri in (
            "agentmem://record/999",
            "agentmem://resume/none",
            "agentmem://other/1",
            "agentmem://record/%ff",
            "file:///x",
        ):
            with pytest.raises(MCPError) as raised:
                await client.read_resource(uri)
            assert raised.value.error.code == -32602
            assert raised.value.error.data == {"uri": uri}

    run(era, body)


@pytest.mark.filterwarnings("ignore::mcp.shared.exceptions.MCPDeprecationWarning")
@pytest.mark.parametrize("before", [0, 600])
def test_subscribers_of_the_handshake_era_are_told_of_changes(store: Store, before: int) -> None:
    """Of a record and of its project, whoever wrote, also behind more than is read at once; no more after unsubscribing."""
    goal = store.notes.add("goal", "Check")
    heard: list[str] = []

    def write() -> None:
        with store.transaction():
            for number in range(before):
                store.notes.add("fact", f"Number {number}")
            store.notes.update(goal, append="x")

    async def main() -> None:
        arrived = anyio.Event()

        async def message(item: Any) -> None:
            params = getattr(item, "params", None)
            if type(item).__name__ == "ResourceUpdatedNotification":
                heard.append(str(params.uri))
                if f"agentmem://record/{goal.id}" in heard and "agentmem://resume/acme" in heard:
                    arrived.set()

        server = build(Toolbox(store))
        async with Client(server, mode="legacy", message_handler=message) as client:
            await client.session.subscribe_resource(f"agentmem://record/{goal.id}")
            await client.session.subscribe_resource("agentmem://resume/acme")
            with pytest.raises(MCPError):
                await client.session.subscribe_resource("file:///etc/passwd")
            with anyio.fail_after(30):
                while not arrived.is_set():  # the look that begins a watch may come after the first of these
                    await anyio.to_thread.run_sync(write)
                    with anyio.move_on_after(0.3):
                        await arrived.wait()
            await client.session.unsubscribe_resource("agentmem://resume/acme")
        await anyio.to_thread.run_sync(server.notices.close)

    anyio.run(main)
    assert {f"agentmem://record/{goal.id}", "agentmem://resume/acme"} <= set(heard)


def test_listeners_of_2026_are_told_of_changes(store: Store) -> None:
    """By a stream that says what it wants to hear."""
    store.entities.put("host", "a")

    async def main() -> None:
        server = build(Toolbox(store))
        async with Client(server, mode="2026-07-28") as client:
            uri = "agentmem://record/host%3Aa"
            with anyio.fail_after(30):
                async with client.listen(resource_subscriptions=[uri]) as events, anyio.create_task_group() as group:

                    async def write() -> None:
                        for number in range(100):
                            await anyio.to_thread.run_sync(
                                lambda at=number: store.entities.put("host", "a", attrs={"n": at})  # type: ignore[misc]
                            )
                            await anyio.sleep(0.1)

                    group.start_soon(write)
                    async for event in events:
                        assert str(event.uri) == uri
                        break
                    group.cancel_scope.cancel()
        await anyio.to_thread.run_sync(server.notices.close)

    anyio.run(main)


@ERAS
def test_prompts_bring_the_state_with_them(run: Any, store: Store, era: str) -> None:
    """To begin, to hand over, to brief a subagent, to read the guide."""
    goal = store.notes.add("goal", "Check example.com")
    step = store.notes.add("step", "Port scan", parent=goal)

    async def body(client: Any) -> None:
        async def text(name: str, **arguments: str) -> str:
            return str((await client.get_prompt(name, arguments)).messages[0].content.text)

        names = [prompt.name for prompt in (await client.list_prompts()).prompts]
        assert names == ["start", "hand_over", "brief_subagent", "guide"]
        assert "Check example.com" in await text("start")
        assert "Port scan" in await text("hand_over", task=str(goal.id))
        brief = await text("brief_subagent", task=str(step.id))
        assert f"Your task is #{step.id}" in brief
        assert "in goal [open] Check example.com" in brief
        assert "Working with your memory" in await text("guide")
        with pytest.raises(MCPError):
            await text("brief_subagent", task="999")

    run(era, body)


@ERAS
def test_completion_knows_tasks_projects_and_keys(run: Any, store: Store, era: str) -> None:
    """What begins like what was typed."""
    goal = store.notes.add("goal", "Check")
    store.entities.put_many("host", keys=["web-1", "web-2", "db-1"])

    async def body(client: Any) -> None:
        prompt = PromptReference(type="ref/prompt", name="start")
        template = ResourceTemplateReference(type="ref/resource", uri="agentmem://record/{id}")

        async def values(ref: Any, name: str, value: str) -> list[str]:
            return list((await client.complete(ref, {"name": name, "value": value})).completion.values)

        assert await values(prompt, "task", "") == [str(goal.id)]
        assert await values(prompt, "task", "99") == []
        assert await values(template, "project", "ac") == ["acme"]
        assert await values(template, "id", "host:web") == ["host:web-1", "host:web-2"]
        assert await values(template, "id", "ho") == ["host:"]
        assert await values(template, "id", "nothing:x") == []

    run(era, body)


def test_the_instructions_come_with_the_handshake(run: Any) -> None:
    """A host shows them to the model at connect."""

    async def body(client: Any) -> None:
        assert client.instructions == INSTRUCTIONS

    run("legacy", body)


def test_references_are_replaced_by_what_they_refer_to() -> None:
    """Also within each other; a circle is refused."""
    schema = {
        "type": "object", "properties": {"a": {"$ref": "#/$defs/A", "description": "x"}},
        "$defs": {"A": {"type": "array", "items": {"$ref": "#/$defs/B"}}, "B": {"type": "string"}},
    }  # fmt: skip
    assert inlined(schema) == {
        "type": "object", "properties": {"a": {"type": "array", "items": {"type": "string"}, "description": "x"}},
    }  # fmt: skip
    with pytest.raises(ValueError, match="within itself"):
        inlined({"$ref": "#/$defs/A", "$defs": {"A": {"items": {"$ref": "#/$defs/A"}}}})
