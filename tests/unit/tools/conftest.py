"""A box of tools over a store of its own, and a way to call them that fails on an error that was not expected."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from agentmem import Store
from agentmem.tools import Reply, Toolbox


class Calls:
    """Calls tools by name: `calls.note(notes=[…])`."""

    def __init__(self, box: Toolbox) -> None:
        self.box = box

    def __getattr__(self, name: str) -> Callable[..., Reply]:
        def call(**arguments: Any) -> Reply:
            reply = self.box.call(name, arguments)
            assert reply.error is None, reply.text
            return reply

        return call

    def refused(self, tool: str, **arguments: Any) -> str:
        """The text of a call that is refused."""
        reply = self.box.call(tool, arguments)
        assert reply.error is not None, reply.text
        return reply.text


@pytest.fixture
def box(store: Store) -> Iterator[Toolbox]:
    """The tools of an empty store."""
    tools = Toolbox(store)
    yield tools
    tools.close()


@pytest.fixture
def calls(box: Toolbox) -> Calls:
    """Calls the tools of an empty store."""
    return Calls(box)


@pytest.fixture
def work(calls: Calls) -> dict[str, int]:
    """A goal with a decision and a step whose scope is three endpoints and two checks: their ids by name."""
    notes = [
        {"kind": "goal", "title": "Check example.com"},
        {"kind": "decision", "title": "Stay out of corp", "parent": "$1", "basis": "not in the contract"},
        {"kind": "step", "title": "Check the API", "parent": "$1", "scope": {"type": "endpoint", "checks": ["authz", "csrf"]}},
        {"kind": "step", "title": "Check the hosts", "parent": "$1", "items": ["TLS configuration", "Open ports"]},
    ]  # fmt: skip
    ids = calls.note(notes=notes).data["ids"]
    calls.track(type="endpoint", keys=["GET /users", "POST /login", "GET /x"])
    return dict(zip(("goal", "decision", "step", "hosts"), ids, strict=True))
