"""Notices of change: whoever subscribed to a resource is told when it changes, whichever process changed it.

Clients of the handshake era subscribe by `resources/subscribe`, those of 2026-07-28 by a `subscriptions/listen` stream.
While anybody is subscribed a thread looks at the end of the log a few times a second; otherwise nothing runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from mcp.server.subscriptions import InMemorySubscriptionBus, ResourceUpdated, ServerEvent
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, EmptyResult, SubscribeRequestParams, UnsubscribeRequestParams

from agentmem.adapters.mcp.resources import parsed, record_uri, resume_uri
from agentmem.errors import AgentMemError
from agentmem.types import Entity, Event, Item

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

    from agentmem.tools import Toolbox

__all__ = ["Notices"]

_LOOKS_SECONDS: Final = 0.2
_URIS: Final = 256  # of one session
_EVENTS: Final = 500  # read at a look; of more that came at once the next look reads on


class _Bus(InMemorySubscriptionBus):
    """The listening streams of 2026-07-28, of which it is known whether there are any."""

    def __init__(self, changed: Callable[[int], None]) -> None:
        super().__init__()
        self._changed = changed

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        """Register a stream."""
        end = super().subscribe(listener)
        self._changed(1)
        ended = False

        def unsubscribe() -> None:
            nonlocal ended
            end()
            if not ended:
                ended = True
                self._changed(-1)

        return unsubscribe


class _Subscriber(NamedTuple):
    """One client of the handshake era: what reaches it, and what it wants to hear of."""

    session: Any
    uris: set[str]


class Notices:
    """Who is subscribed to what, and the thread that looks for changes.

    Args:
        toolbox: The tools of the store that is watched.
        serves: Whether the server has a resource of a name that is none of ours.

    Attributes:
        bus: The listening streams.
    """

    def __init__(self, toolbox: Toolbox, serves: Callable[[str], bool]) -> None:
        self._toolbox, self._serves = toolbox, serves
        self.bus = _Bus(self._listening)
        self._connections: dict[Any, _Subscriber] = {}
        self._streams = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._closed = False

    def serve(self, server: Server[Any]) -> None:
        """Answer subscriptions of the handshake era."""
        server.add_request_handler("resources/subscribe", SubscribeRequestParams, self._subscribe)
        server.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._unsubscribe)

    def close(self) -> None:
        """End the thread. Closing twice is fine."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(5.0)

    async def _subscribe(self, ctx: Any, params: SubscribeRequestParams) -> EmptyResult:
        uri = str(params.uri)
        if parsed(uri) is None and not self._serves(uri):
            raise MCPError(INVALID_PARAMS, "There is no such resource", {"uri": uri})
        # A session lives as long as its request; what lasts is the connection, which the SDK keeps to itself.
        connection = ctx.session._connection
        known = self._connections.get(connection)
        if known is None:
            known = self._connections[connection] = _Subscriber(ctx.session, set())
            connection.exit_stack.callback(self._connections.pop, connection, None)
        if len(known.uris) >= _URIS and uri not in known.uris:
            raise MCPError(INVALID_PARAMS, f"{_URIS} subscriptions at most", {"uri": uri})
        known.uris.add(uri)
        self._follow()
        return EmptyResult()

    async def _unsubscribe(self, ctx: Any, params: UnsubscribeRequestParams) -> EmptyResult:
        known = self._connections.get(ctx.session._connection)
        if known is not None:
            known.uris.discard(str(params.uri))
        return EmptyResult()

    def _listening(self, by: int) -> None:
        self._streams += by
        if self._streams:
            self._follow()

    def _wanted(self) -> bool:
        return not self._closed and (self._streams > 0 or any(one.uris for one in list(self._connections.values())))

    def _follow(self) -> None:
        """Have the thread run; called on the loop."""
        self._loop = asyncio.get_running_loop()
        if self._thread is None or not self._thread.is_alive():
            self._wake.clear()
            self._thread = threading.Thread(target=self._run, name="agentmem-notices", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        last: int | None = None
        while self._wanted():
            with contextlib.suppress(AgentMemError):  # busy, or the store can't be opened: the next look tries again
                last = self._looked(last)
            self._wake.wait(_LOOKS_SECONDS)

    def _looked(self, last: int | None) -> int:
        """Tell of what came after `last`, and return the end of the log."""
        store = self._toolbox.store
        head = store.log.head().seq
        if last is None or head == last:
            return head
        events = store.log.read(after=last, project="*", limit=_EVENTS)
        uris = dict.fromkeys(uri for event in events for uri in self._uris(event))
        loop = self._loop
        if uris and loop is not None and not loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._tell(list(uris)), loop)
        return events[-1].seq if len(events) == _EVENTS else head

    def _uris(self, event: Event) -> Iterable[str]:
        """What an event changed, by every name that a client may have for it."""
        store = self._toolbox.store
        yield record_uri(event.record)
        name = next((one.name for one in store.projects.list() if one.id == event.project), None)
        if name is not None:
            yield resume_uri(name)
        if event.type in ("entity", "item"):
            with contextlib.suppress(AgentMemError):  # purged since
                record = store.get(event.record)
                if isinstance(record, (Entity, Item)):
                    yield record_uri(record.ref)
                    yield record_uri(record.ref).replace("%3A", ":", 1)  # which is as good a spelling of `type:key`
                if isinstance(record, Item):
                    yield record_uri(record.note)

    async def _tell(self, uris: list[str]) -> None:
        for uri in uris:
            await self.bus.publish(ResourceUpdated(uri=uri))
        for connection, known in list(self._connections.items()):
            for uri in uris:
                if uri in known.uris:
                    try:
                        await known.session.send_resource_updated(uri)
                    except Exception:  # noqa: BLE001  # whatever its transport says: nobody listens there any more
                        self._connections.pop(connection, None)
                        break
