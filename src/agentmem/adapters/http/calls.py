"""Calls of tools on worker threads: so many at once, each with a time for its answer."""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from agentmem.adapters.http.limits import Limits
from agentmem.adapters.http.refusal import Refusal
from agentmem.errors import NotFound
from agentmem.tools import Reply, Toolbox

__all__ = ["Calls"]


class Calls:
    """The calls of one server by `/v1/tools`.

    They have a pool of their own: a limiter of anyio lets go of a thread that nobody waits for, and slow calls would
    pile up without bound.
    """

    def __init__(self, toolbox: Toolbox, limits: Limits) -> None:
        self._toolbox = toolbox
        self._seconds = limits.answer_seconds
        self._pool = ThreadPoolExecutor(limits.threads, thread_name_prefix="agentmem-http")
        self._pending: set[Future[Reply]] = set()

    async def call(self, name: str, arguments: Mapping[str, Any]) -> Reply | Refusal:
        """What a tool answers, or that the time for it is over."""
        call = self._pool.submit(self._run, name, arguments)
        self._pending.add(call)
        call.add_done_callback(self._pending.discard)
        answer = asyncio.wrap_future(call)
        try:
            await asyncio.wait([answer], timeout=self._seconds)
            return answer.result() if answer.done() else self._late(begun=not call.cancel())
        finally:
            answer.cancel()  # a call that goes on tells nobody

    def close(self, seconds: float) -> bool:
        """Begin no more calls, and wait for those that run. Whether all are finished."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not concurrent.futures.wait(list(self._pending), seconds).not_done

    def _run(self, name: str, arguments: Mapping[str, Any]) -> Reply:
        try:
            return self._toolbox.call(name, arguments)
        except NotFound as error:
            return Reply(str(error), error=error)

    def _late(self, *, begun: bool) -> Refusal:
        what = f"The answer took longer than {self._seconds:g} seconds"
        if not begun:
            return Refusal(504, "timed_out", what, why="The call was not begun: others took the time",
                           next="Repeat the call.")  # fmt: skip
        return Refusal(504, "timed_out", what, why="The call goes on, and what it writes will be there",
                       next="Look whether it is there before you repeat a write.")  # fmt: skip
