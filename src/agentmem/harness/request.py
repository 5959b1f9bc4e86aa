"""What a model is asked with, and how the caller's function is called, whether it is a coroutine or not."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from attrs import field, frozen

from agentmem.errors import InvalidInput, shown
from agentmem.harness.reply import Reply

if TYPE_CHECKING:
    from agentmem.context.window import Window

__all__ = ["Model", "ModelRequest"]

_Result = TypeVar("_Result")
_LOOK_SECONDS: Final = 0.1
_GRACE_SECONDS: Final = 1.0  # for a model to end by itself once it was told to


@frozen
class ModelRequest:
    """What a model is asked with.

    Attributes:
        session: The session.
        instructions: Of the harness or the agent file; the same in each request.
        window: What the model needs to know, within the budget.
        tools: `name`, `description` and `input_schema` of each, in an order that stays.
        turn: The number of the request in this wake, from 1.
        cancelled: Set when the session was interrupted: a model that streams may stop. A coroutine is cancelled soon after.
    """

    session: int
    instructions: str
    window: Window
    tools: tuple[Mapping[str, Any], ...]
    turn: int
    cancelled: threading.Event = field(factory=threading.Event, repr=False, eq=False)

    def anthropic(self) -> dict[str, Any]:
        """`system`, `messages` and `tools` for the Messages API of Anthropic; add `model` and `max_tokens`."""
        from agentmem.harness.formats import anthropic_messages, tools_for_anthropic

        found = anthropic_messages(self.window.events, head=self._head(), tail=self.window.tail)
        return {**found, "tools": tools_for_anthropic(self.tools)} if self.tools else found

    def openai(self) -> dict[str, Any]:
        """`messages` and `tools` for chat completions as OpenAI has them; add `model`."""
        from agentmem.harness.formats import openai_messages, tools_for_openai

        found: dict[str, Any] = {
            "messages": openai_messages(self.window.events, head=self._head(), tail=self.window.tail)
        }
        return {**found, "tools": tools_for_openai(self.tools)} if self.tools else found

    def _head(self) -> str:
        return "\n\n".join(part for part in (self.instructions, self.window.head) if part)


Model: TypeAlias = Callable[[ModelRequest], Reply | str | Awaitable[Reply | str]]
"""What answers: a function or a coroutine function of the caller's. A text alone is a reply that calls nothing."""


def asked(model: Model, request: ModelRequest, loop: asyncio.AbstractEventLoop | None) -> Reply:
    """The reply of a model, called in this thread.

    Args:
        model: The caller's function.
        request: What it is asked with.
        loop: Where a coroutine runs; None for a loop of its own.
    """
    found = model(request)
    if inspect.isawaitable(found):
        work = _awaited(found, request.cancelled)
        found = asyncio.run(work) if loop is None else _elsewhere(work, loop)
    if isinstance(found, str):
        return Reply.of(found)
    if not isinstance(found, Reply):
        raise InvalidInput(
            f"The model gave {shown(found)}",
            why="A model gives a Reply, or a text",
            next="Convert its answer with from_anthropic or from_openai",
        )
    return found


def _elsewhere(work: Coroutine[Any, Any, Reply | str], loop: asyncio.AbstractEventLoop) -> Reply | str:
    """What a coroutine gives in a loop of another thread, which may end before the coroutine does."""
    try:
        found = asyncio.run_coroutine_threadsafe(work, loop)
    except RuntimeError:
        work.close()
        raise
    while True:
        try:
            return found.result(_LOOK_SECONDS)
        except NotYet:
            if found.done():
                return found.result()  # the model may have raised the same
            if loop.is_closed():
                raise RuntimeError("The event loop was closed while the model answered") from None


async def _awaited(found: Awaitable[Reply | str], cancelled: threading.Event) -> Reply | str:
    """What a model gives; one that goes on for long after it was to stop is cancelled."""
    work = asyncio.ensure_future(found)
    try:
        while not work.done():
            await asyncio.wait([work], timeout=_LOOK_SECONDS)
            if cancelled.is_set():
                await asyncio.wait([work], timeout=_GRACE_SECONDS)
                work.cancel()
                await asyncio.wait([work])
        if work.cancelled():
            raise RuntimeError("The model was cancelled")
        return work.result()
    finally:
        work.cancel()


def threaded(function: Callable[..., _Result], *given: Any) -> Future[_Result]:
    """What a function comes to that runs in a thread of its own, in the context of the caller."""
    ended: Future[_Result] = Future()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            found = context.run(function, *given)
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            ended.set_exception(error)
        else:
            ended.set_result(found)

    threading.Thread(target=work, name="agentmem-wake", daemon=True).start()
    return ended
