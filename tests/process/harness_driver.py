"""A process that runs one session to its end, and kills itself at the commit it is told to.

    python harness_driver.py <file> <session> <effects> <commit>

The model is scripted by what the log holds. What the tools do outside is written to the file of effects, a line each.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from agentmem import Store
from agentmem.harness import Harness, Reply, ToolCall, tool
from agentmem.harness.toolset import Call
from agentmem.records.base import Binding

PATH, SESSION, EFFECTS, COMMIT = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
commits: list[str] = []
command = Binding.run


def counted(self: Binding, *args: Any, **options: Any) -> Any:
    """A command as it is, and the end of the process right after the commit that was chosen."""
    result = command(self, *args, **options)
    commits.append(args[0])
    if len(commits) == COMMIT:
        os.kill(os.getpid(), signal.SIGKILL)
    return result


Binding.run = counted  # type: ignore[method-assign]


def done(what: str) -> None:
    """An effect outside, durable."""
    file = os.open(EFFECTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.write(file, f"{what}\n".encode())
    os.close(file)


@tool(idempotent=True, parallel=False)
def look(at: int, asked: Call) -> str:
    """Look something up."""
    done(f"look {at} {asked.key}")
    return f"saw {at}"


@tool(parallel=False)
def pay(amount: int, asked: Call) -> str:
    """Pay, once."""
    done(f"pay {amount} {asked.key}")
    return f"paid {amount}"


@tool(permission="ask", parallel=False)
def send(to: str, asked: Call) -> str:
    """Send, once, if a person allows it."""
    done(f"send {to} {asked.key}")
    return f"sent to {to}"


SCRIPT = (
    Reply.of("I look", ToolCall("look", {"at": 1})),
    Reply.of("", ToolCall("pay", {"amount": 5}), ToolCall("look", {"at": 2})),
    Reply.of("", ToolCall("send", {"to": "a"})),
    Reply.of("", ToolCall("send", {"to": "b"}), ToolCall("pay", {"amount": 7})),
    Reply.of("", ToolCall("send", {"to": "c"})),
)


def model(request: Any) -> Reply:
    """The next reply of the script, by the replies that are in the log."""
    said = store.sessions.get(request.session).events(types=("span.model_request_end",), limit=100)
    answered = sum(not event.body["is_error"] for event in said if event.body)
    return SCRIPT[answered] if answered < len(SCRIPT) else Reply.of("All done")


with Store.open(PATH, project="kills", key=bytes(range(32))) as store:
    harness = Harness(store, model, [look, pay, send], budget=4000, lease_seconds=3)
    while True:
        woken = harness.wake(SESSION)
        for call in woken.waiting:
            store.sessions.confirm(call, "allow", by="alice")
        if not woken.waiting:
            break
sys.stdout.write(f"{len(commits)} {woken.stop_reason} {woken.text}\n")
