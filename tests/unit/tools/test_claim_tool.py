"""The tool `claim`: the next of what is left, held by the process, taken back from servers that died."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

from agentmem import Store
from agentmem.tools import Toolbox
from agentmem.tools.callers import hold, server_run, take_back


def test_the_next_of_a_scope_are_those_that_lack_a_check(calls: Any, work: dict[str, int]) -> None:
    """Marked ones are done, claimed ones somebody else's; an error counts as not done."""
    task = str(work["step"])
    calls.mark(type="endpoint", keys=["GET /users"], results={"authz": "pass", "csrf": "na"})
    calls.mark(type="endpoint", keys=["POST /login"], results={"authz": "error", "csrf": "na"})
    assert calls.claim(task=task).data["refs"] == ["endpoint:POST /login"]
    assert calls.claim(task=task, n=5, by="w2").data["refs"] == ["endpoint:GET /x"]
    assert calls.claim(task=task, n=5).text.startswith("nothing was free")


def test_checks_that_the_type_declares_count_for_a_scope_without_its_own(calls: Any) -> None:
    """Also those declared for a part of the entities."""
    calls.track(type="host", rows=[{"key": "a", "attrs": {"port": 443}}, {"key": "b", "attrs": {"port": 80}}])
    calls.more(verb="entities.expect", args={"type": "host", "checks": ["tls"], "where": "attrs.port = 443"})
    (step,) = calls.note(notes=[{"kind": "step", "title": "Hosts", "scope": {"type": "host"}}]).data["ids"]
    assert calls.claim(task=str(step), n=5).data["refs"] == ["host:a"]


def test_of_a_task_without_scope_the_next_free_steps(calls: Any, work: dict[str, int]) -> None:
    """Steps that wait for others or are held are passed over; a leaf is taken itself."""
    goal, step, hosts = (str(work[name]) for name in ("goal", "step", "hosts"))
    calls.more(verb="links.add", args={"src": step, "kind": "depends_on", "dst": hosts})
    assert calls.claim(task=goal, n=5).data["refs"] == [hosts]
    assert calls.claim(task=goal, n=5).text.startswith("nothing was free")
    (leaf,) = calls.note(notes=[{"kind": "step", "title": "Alone"}]).data["ids"]
    assert calls.claim(task=str(leaf)).data["refs"] == [str(leaf)]


def test_what_was_claimed_is_given_back(calls: Any, store: Store, work: dict[str, int]) -> None:
    """All of the caller's, or those that are named."""
    calls.claim(type="endpoint", n=3)
    assert calls.claim(refs=["endpoint:GET /x"], release=True).text == "1 given back"
    assert calls.claim(release=True).text == "2 given back"
    assert store.claims() == ()


def test_claims_are_held_by_the_process_whatever_the_label(calls: Any, work: dict[str, int]) -> None:
    """Who shares the connection may go on with them; another process may not."""
    calls.claim(refs=["endpoint:GET /x"], by="w2")
    assert calls.mark(type="endpoint", keys=["GET /x"], results={"authz": "pass"}).text == "1 changed"


def test_another_process_is_kept_out(calls: Any, opened: Callable[..., Store], work: dict[str, int]) -> None:
    """The holder and the end of the lease are named."""
    calls.claim(refs=["endpoint:GET /x"])
    other = Toolbox(opened(run="r1"))
    reply = other.call("mark", {"type": "endpoint", "keys": ["GET /x"], "results": {"authz": "pass"}})
    assert reply.error is not None
    assert reply.text.startswith("error held")


def test_claims_of_a_dead_server_are_taken_back(opened: Callable[..., Store]) -> None:
    """A server that was killed holds nothing: the next one gives back what it had, in both callers' names."""
    child = subprocess.run(
        [sys.executable, "-c", "from agentmem.tools.callers import server_run; print(server_run())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    dead = Toolbox(opened(run=child.stdout.strip()))
    dead.call("track", {"type": "host", "keys": ["a", "b", "c"]})
    dead.call("claim", {"type": "host", "n": 1})
    dead.call("claim", {"type": "host", "n": 1, "by": "w2"})
    alive = opened(run=server_run())
    assert take_back(alive) == 2
    reply = Toolbox(alive).call("claim", {"type": "host", "n": 3})
    assert reply.data["refs"] == ["host:a", "host:b", "host:c"]


def test_claims_of_a_living_server_stay(opened: Callable[..., Store]) -> None:
    """As do those of runs that no server has."""
    living = opened(run=server_run())
    hold(living)
    living.entities.put_many("host", keys=["a", "b"])
    living.claim(["host:a"])
    other = opened(run="worker-1")
    other.claim(["host:b"])
    assert take_back(opened(run="somebody")) == 0
    assert len(opened().claims()) == 2
