"""What a server bears: sizes, times, rates and numbers at once."""

from __future__ import annotations

import math
from typing import Any, Final

from attrs import Attribute, field, frozen

from agentmem.errors import InvalidInput

__all__ = ["DEFAULTS", "Limits"]


def _above_zero(instance: Limits, attribute: Attribute[Any], value: float) -> None:
    if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
        raise InvalidInput(f"The limit {attribute.name} is not above 0")


def _limit(default: Any) -> Any:
    return field(default=default, validator=_above_zero)


@frozen(kw_only=True)
class Limits:
    """What a server bears of its clients.

    Attributes:
        head_bytes: Of a request line and its headers.
        head_lines: Headers of one request.
        head_seconds: From a connection, or the first byte of a further request, to the end of the headers.
        body_bytes: Of a request's body.
        body_seconds: From the end of the headers to the end of the body.
        answer_seconds: For the answer of a tool by `/v1/tools`; a call that was begun goes on after it.
        write_seconds: For a client to read on when it has stopped reading.
        idle_seconds: Between two requests of a connection.
        stop_seconds: For requests to finish when the server ends, in whole seconds.
        connections: At once.
        requests: At once, without the streams that MCP clients keep open.
        threads: Calls by `/v1/tools` that run at once.
        rate: Requests a second in the long run, of all clients together.
        burst: Requests at once before the rate holds.
        sessions: Of MCP clients of the handshake era, at once.
        session_idle_seconds: Until a session that asks nothing ends.
    """

    head_bytes: int = _limit(16 * 1024)
    head_lines: int = _limit(64)
    head_seconds: float = _limit(10.0)
    body_bytes: int = _limit(2 * 1024 * 1024)
    body_seconds: float = _limit(30.0)
    answer_seconds: float = _limit(60.0)
    write_seconds: float = _limit(30.0)
    idle_seconds: float = _limit(30.0)
    stop_seconds: int = _limit(10)
    connections: int = _limit(128)
    requests: int = _limit(128)
    threads: int = _limit(8)
    rate: float = _limit(100.0)
    burst: int = _limit(400)
    sessions: int = _limit(64)
    session_idle_seconds: float = _limit(1800.0)


DEFAULTS: Final = Limits()
