"""What tests of the http tool share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentmem.harness import addresses


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Has names lead to given addresses, whatever the network says; gives the names that were asked for."""

    def lead(*found: str) -> list[str]:
        asked: list[str] = []

        def resolve(host: str, port: int, **_: Any) -> list[Any]:
            asked.append(host)
            return [(0, 0, 0, "", (each, port)) for each in found]

        monkeypatch.setattr(addresses.socket, "getaddrinfo", resolve)
        return asked

    return lead
