"""The tools, resources and prompts that the protocol's conformance suite calls by fixed names.

They are mounted on our server for that suite alone, so that what is tested with them is its way through our gate, our
transport settings and our lists. What each must do is said by the suite's own scenarios.
"""

from __future__ import annotations

import base64
from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.prompts.base import UserMessage
from mcp.shared.exceptions import MCPError
from mcp.types import (
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    AudioContent,
    CallToolResult,
    CreateMessageRequest,
    ElicitRequest,
    EmbeddedResource,
    EmptyResult,
    ImageContent,
    InputRequiredResult,
    ListRootsRequest,
    SamplingMessage,
    SetLevelRequestParams,
    TextContent,
    TextResourceContents,
)
from pydantic import Field

# One red pixel, and a hundredth of a second of silence.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="
WAV = base64.b64encode(
    b"RIFF\x2c\x00\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00@\x1f\x00\x00@\x1f\x00\x00\x01\x00\x08\x00data\x08\x00\x00\x00"
    + b"\x80" * 8
).decode()


def mount(server: MCPServer[Any]) -> None:
    """Register everything."""
    _contents(server)
    _on_the_way(server)
    _asking(server)
    _inputs(server)
    _changes(server)
    _resources(server)
    _prompts(server)


def _resource(uri: str, text: str, mime: str = "text/plain") -> EmbeddedResource:
    return EmbeddedResource(type="resource", resource=TextResourceContents(uri=uri, mime_type=mime, text=text))


def _contents(server: MCPServer[Any]) -> None:
    @server.tool(structured_output=False)
    def test_simple_text() -> str:
        """A text."""
        return "This is a simple text response for testing."

    @server.tool(structured_output=False)
    def test_image_content() -> Any:
        """An image."""
        return ImageContent(type="image", data=PNG, mime_type="image/png")

    @server.tool(structured_output=False)
    def test_audio_content() -> Any:
        """A sound."""
        return AudioContent(type="audio", data=WAV, mime_type="audio/wav")

    @server.tool(structured_output=False)
    def test_embedded_resource() -> Any:
        """A resource."""
        return _resource("test://embedded-resource", "This is an embedded resource content.")

    @server.tool(structured_output=False)
    def test_multiple_content_types() -> Any:
        """A text, an image, a resource."""
        return [
            TextContent(type="text", text="Multiple content types test:"),
            ImageContent(type="image", data=PNG, mime_type="image/png"),
            _resource("test://mixed-content-resource", '{"test":"data","value":123}', "application/json"),
        ]

    @server.tool(structured_output=False)
    def test_error_handling() -> Any:
        """An error."""
        text = TextContent(type="text", text="This tool intentionally returns an error for testing")
        return CallToolResult(content=[text], is_error=True)


def _on_the_way(server: MCPServer[Any]) -> None:
    async def level(ctx: Any, params: SetLevelRequestParams) -> EmptyResult:
        return EmptyResult()

    server._lowlevel_server.add_request_handler("logging/setLevel", SetLevelRequestParams, level)

    async def logged(ctx: Context[Any, Any]) -> str:
        for said in ("Tool execution started", "Tool processing data", "Tool execution completed"):
            await ctx.session.send_log_message("info", said, related_request_id=ctx.request_id)
            await anyio.sleep(0.05)
        return "done"

    for name in ("test_tool_with_logging", "test_logging_tool"):
        server.add_tool(logged, name=name, description="Logs three times.", structured_output=False)

    @server.tool(structured_output=False)
    async def test_tool_with_progress(ctx: Context[Any, Any]) -> str:
        """Reports its progress three times."""
        for progress in (0, 50, 100):
            await ctx.report_progress(progress, 100)
            await anyio.sleep(0.05)
        return "done"

    @server.tool(structured_output=False)
    def test_missing_capability(ctx: Context[Any, Any]) -> str:
        """Needs a client that samples."""
        capabilities = ctx.client_capabilities
        if capabilities is None or capabilities.sampling is None:
            raise MCPError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                "The client does not sample",
                {"requiredCapabilities": {"sampling": {}}},
            )
        return "done"

    @server.tool(structured_output=False)
    def test_streaming_elicitation(ctx: Context[Any, Any]) -> Any:
        """Asks on the response itself, never by a request of its own."""
        if ctx.input_responses:
            return [TextContent(type="text", text="done")]
        return InputRequiredResult(input_requests={"answer": _form("Go on?", {"ok": {"type": "boolean"}})})


def _asking(server: MCPServer[Any]) -> None:
    """Requests to the client of the handshake era."""

    @server.tool(structured_output=False)
    async def test_sampling(prompt: str, ctx: Context[Any, Any]) -> str:
        """Has the client ask its model."""
        message = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
        answer = await ctx.session.create_message([message], max_tokens=100, related_request_id=ctx.request_id)
        content = answer.content[0] if isinstance(answer.content, list) else answer.content
        return f"LLM response: {getattr(content, 'text', '')}"

    async def elicited(ctx: Context[Any, Any], message: str, schema: dict[str, Any]) -> Any:
        return await ctx.session.elicit_form(message, schema, related_request_id=ctx.request_id)

    @server.tool(structured_output=False)
    async def test_elicitation(message: str, ctx: Context[Any, Any]) -> str:
        """Asks the person."""
        fields = {
            "username": {"type": "string", "description": "User's response"},
            "email": {"type": "string", "description": "User's email address"},
        }
        answer = await elicited(
            ctx, message, {"type": "object", "properties": fields, "required": ["username", "email"]}
        )
        return f"User response: action={answer.action}, content={answer.content}"

    @server.tool(structured_output=False)
    async def test_elicitation_sep1034_defaults(ctx: Context[Any, Any]) -> str:
        """Asks with a default of each primitive type."""
        fields = {
            "name": {"type": "string", "default": "John Doe"},
            "age": {"type": "integer", "default": 30},
            "score": {"type": "number", "default": 95.5},
            "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
            "verified": {"type": "boolean", "default": True},
        }
        answer = await elicited(ctx, "Defaults", {"type": "object", "properties": fields})
        return f"Elicitation completed: action={answer.action}, content={answer.content}"

    @server.tool(structured_output=False)
    async def test_elicitation_sep1330_enums(ctx: Context[Any, Any]) -> str:
        """Asks with each form of a choice."""
        plain = ["option1", "option2", "option3"]
        titled = [
            {"const": f"value{at}", "title": f"{word} Option"}
            for at, word in enumerate(("First", "Second", "Third"), 1)
        ]
        several = [
            {"const": f"value{at}", "title": f"{word} Choice"}
            for at, word in enumerate(("First", "Second", "Third"), 1)
        ]
        names = ["Option One", "Option Two", "Option Three"]
        fields = {
            "untitledSingle": {"type": "string", "enum": plain},
            "titledSingle": {"type": "string", "oneOf": titled},
            "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
            "untitledMulti": {"type": "array", "items": {"type": "string", "enum": plain}},
            "titledMulti": {"type": "array", "items": {"anyOf": several}},
        }
        answer = await elicited(ctx, "Choices", {"type": "object", "properties": fields})
        return f"Elicitation completed: action={answer.action}, content={answer.content}"


def _form(message: str, properties: dict[str, Any]) -> Any:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest.model_validate(
        {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}
    )


def _sample(text: str, most: int) -> Any:
    message = {"role": "user", "content": {"type": "text", "text": text}}
    return CreateMessageRequest.model_validate(
        {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": most}}
    )


def _roots() -> Any:
    return ListRootsRequest.model_validate({"method": "roots/list", "params": {}})


def _answered(ctx: Context[Any, Any], key: str) -> Any:
    """What the client answered under a key, None where it did not, or not with what was asked."""
    return (ctx.input_responses or {}).get(key)


def _name(answer: Any, field: str = "name") -> str | None:
    content = getattr(answer, "content", None)
    found = content.get(field) if isinstance(content, dict) else None
    return None if found is None else str(found)


def _inputs(server: MCPServer[Any]) -> None:
    """What the era of 2026-07-28 has instead of requests to the client."""
    name = {"name": {"type": "string"}}

    @server.tool(structured_output=False)
    def test_input_required_result_elicitation(ctx: Context[Any, Any]) -> Any:
        """Asks for a name."""
        found = _name(_answered(ctx, "user_name"))
        if found is None:
            return InputRequiredResult(input_requests={"user_name": _form("What is your name?", name)})
        return [TextContent(type="text", text=f"Hello, {found}!")]

    @server.tool(structured_output=False)
    def test_input_required_result_sampling(ctx: Context[Any, Any]) -> Any:
        """Asks the model of the client."""
        found = _answered(ctx, "capital_question")
        if found is None:
            return InputRequiredResult(
                input_requests={"capital_question": _sample("What is the capital of France?", 100)}
            )
        return [TextContent(type="text", text=str(getattr(found.content, "text", found.content)))]

    @server.tool(structured_output=False)
    def test_input_required_result_list_roots(ctx: Context[Any, Any]) -> Any:
        """Asks for the roots."""
        found = _answered(ctx, "client_roots")
        if found is None:
            return InputRequiredResult(input_requests={"client_roots": _roots()})
        return [TextContent(type="text", text=", ".join(str(root.uri) for root in found.roots))]

    @server.tool(structured_output=False)
    def test_input_required_result_request_state(ctx: Context[Any, Any]) -> Any:
        """Asks, and remembers by the state that the client hands back."""
        if ctx.request_state == "asked" and _answered(ctx, "confirm") is not None:
            return [TextContent(type="text", text="state-ok")]
        asked = {"confirm": _form("Please confirm", {"ok": {"type": "boolean"}})}
        return InputRequiredResult(input_requests=asked, request_state="asked")

    @server.tool(structured_output=False)
    def test_input_required_result_tampered_state(ctx: Context[Any, Any]) -> Any:
        """Asks with a state that nobody else can make."""
        if ctx.request_state == "sealed":
            return [TextContent(type="text", text="state-ok")]
        asked = {"confirm": _form("Please confirm", {"ok": {"type": "boolean"}})}
        return InputRequiredResult(input_requests=asked, request_state="sealed")

    @server.tool(structured_output=False)
    def test_input_required_result_multiple_inputs(ctx: Context[Any, Any]) -> Any:
        """Asks three things at once."""
        asked = {
            "user_name": _form("What is your name?", name),
            "greeting": _sample("Generate a greeting", 50),
            "client_roots": _roots(),
        }
        if all(_answered(ctx, key) is not None for key in asked):
            return [TextContent(type="text", text=f"Hello, {_name(_answered(ctx, 'user_name'))}!")]
        return InputRequiredResult(input_requests=asked, request_state="all")

    @server.tool(structured_output=False)
    def test_input_required_result_multi_round(ctx: Context[Any, Any]) -> Any:
        """Asks one thing after another."""
        if ctx.request_state == "second" and (color := _name(_answered(ctx, "step2"), "color")):
            return [TextContent(type="text", text=f"You like {color}.")]
        if ctx.request_state == "first" and _answered(ctx, "step1") is not None:
            asked = {"step2": _form("Step 2: What is your favorite color?", {"color": {"type": "string"}})}
            return InputRequiredResult(input_requests=asked, request_state="second")
        asked = {"step1": _form("Step 1: What is your name?", name)}
        return InputRequiredResult(input_requests=asked, request_state="first")

    @server.tool(structured_output=False)
    def test_input_required_result_capabilities(ctx: Context[Any, Any]) -> Any:
        """Asks only what the client says it can answer."""
        if ctx.input_responses:
            return [TextContent(type="text", text="done")]
        able = ctx.client_capabilities
        asked: dict[str, Any] = {}
        if able is not None and able.elicitation is not None:
            asked["user_name"] = _form("What is your name?", name)
        if able is not None and able.sampling is not None:
            asked["greeting"] = _sample("Generate a greeting", 50)
        return InputRequiredResult(input_requests=asked) if asked else [TextContent(type="text", text="nothing to ask")]


def _changes(server: MCPServer[Any]) -> None:
    """What is told to listeners, and what is asked of headers, at 2026-07-28."""

    @server.tool(structured_output=False)
    async def test_trigger_tool_change(ctx: Context[Any, Any]) -> str:
        """Says that the tools changed."""
        await ctx.notify_tools_changed()
        return "done"

    @server.tool(structured_output=False)
    async def test_trigger_prompt_change(ctx: Context[Any, Any]) -> str:
        """Says that the prompts changed."""
        await ctx.notify_prompts_changed()
        return "done"

    @server.tool(structured_output=False)
    def test_custom_headers(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]) -> str:
        """Has an argument that a client repeats in a header."""
        return region


def _resources(server: MCPServer[Any]) -> None:
    @server.resource("test://static-text", mime_type="text/plain", description="A text.")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png", description="An image.")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://watched-resource", description="A text that is watched.")
    def watched() -> str:
        return "watched"

    @server.resource("test://template/{id}/data", mime_type="application/json", description="Made of its name.")
    def template(id: str) -> str:
        return f'{{"id":"{id}","templateTest":true,"data":"Data for ID: {id}"}}'


def _prompts(server: MCPServer[Any]) -> None:
    @server.prompt()
    def test_simple_prompt() -> str:
        """A text."""
        return "This is a simple prompt for testing."

    @server.prompt()
    def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
        """A text of its arguments."""
        return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"

    @server.prompt()
    def test_prompt_with_embedded_resource(resourceUri: str) -> list[UserMessage]:  # noqa: N803  # the suite's name
        """A resource and a text."""
        return [
            UserMessage(_resource(resourceUri, "Embedded resource content for testing.")),
            UserMessage("Please process the embedded resource above."),
        ]

    @server.prompt()
    def test_prompt_with_image() -> list[UserMessage]:
        """An image and a text."""
        image = ImageContent(type="image", data=PNG, mime_type="image/png")
        return [UserMessage(image), UserMessage("Please analyze the image above.")]

    @server.prompt()
    def test_input_required_result_prompt(ctx: Context[Any, Any]) -> Any:
        """Asks for what it is about."""
        found = _name(_answered(ctx, "user_context"), "context")
        if found is None:
            asked = {"user_context": _form("What context should the prompt use?", {"context": {"type": "string"}})}
            return InputRequiredResult(input_requests=asked)
        return f"In the context of {found}"
