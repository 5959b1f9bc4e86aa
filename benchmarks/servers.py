"""What a tool costs through a server process on stdio, and what listing the tools costs a model."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import corpus
from benchmarks.client import Server
from benchmarks.measure import Figure, Times

if TYPE_CHECKING:
    from benchmarks.run import Setting

_CALLS = 200


def figures(setting: Setting) -> list[Figure]:
    """Latency of each tool at 10,000 notes, the median of 200 calls; start of the process; tokens of the list."""
    notes = setting.scaled(10_000)
    with tempfile.TemporaryDirectory(dir=setting.disk) as folder:
        path = Path(folder) / "served.db"
        # Copied while nothing has it open: what is measured here changes it.
        shutil.copy(corpus.corpus(setting.directory, "lifelike", notes, max(notes // 100, 2)), path)
        goals = _prepared(path)
        start = _starts(path, Path(folder), setting.rounds(10))
        server = _server(path, Path(folder))
        try:
            found = _latencies(server, goals, setting.rounds(_CALLS), notes)
            listed = server.ask("tools/list")["tools"]
        finally:
            server.close()
    return [*start, *found, *_tokens(listed, server.hello["instructions"])]


def _server(path: Path, home: Path) -> Server:
    return Server(
        path, home, project=corpus.PROJECT, AGENTMEM_EMBEDDER="shipped", AGENTMEM_KEY=f"hex:{corpus.KEY.hex()}"
    )


def _prepared(path: Path) -> list[int]:
    """Give the store entities and vectors; the ids of some of its goals."""
    with corpus.opened(path, durability="normal") as store:
        store.entities.put_many("endpoint", keys=[f"GET /{number:05}" for number in range(2000)])
        store.entities.expect("endpoint", ["authz", "csrf"])
        store.wait_for_index()
        return corpus.goals_of(store, 20)


def _starts(path: Path, home: Path, rounds: int) -> list[Figure]:
    """From the start of the process to the answer of `initialize`, and on to that of `tools/list`."""
    bare, shook, listed = Times(), Times(), Times()
    for _ in range(rounds):
        bare.time(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        servers: list[Server] = []
        shook.time(lambda made=servers: made.append(_server(path, home)))  # type: ignore[misc]
        listed.time(lambda made=servers: made[0].ask("tools/list"))  # type: ignore[misc]
        servers[0].close()
    return [
        Figure(
            "servers",
            "process start to the answer of initialize",
            round(shook.median, 1),
            "ms",
            1000,
            more=shook.spread,
        ),
        Figure("servers", "tools/list after it", round(listed.median, 2), "ms", more=listed.spread),
        Figure("servers", "bare Python beside it", round(bare.median, 1), "ms", more=bare.spread),
    ]


def _latencies(server: Server, goals: list[int], rounds: int, notes: int) -> list[Figure]:
    """Each tool in turn; a call of ping beside them says what the wire alone takes."""
    counter = iter(range(10**9))
    goal = str(goals[len(goals) // 2])

    def closing() -> dict[str, Any]:
        opened = server.call("attempt", what=f"Try number {next(counter)}", task=goal)
        identity = next(line for line in opened.splitlines() if line.endswith(" open")).split()[0]
        return {"id": identity, "outcome": "failed", "why": "403 from the gateway"}

    calls: dict[str, Any] = {
        "resume": lambda: {"task": goal}, "left": lambda: {"task": goal},
        "recall": lambda: {"query": f"why is the queue slow {next(counter)}"},
        "get": lambda: {"refs": [goal]},
        "query": lambda: {"type": "endpoint", "where": "check.authz is null", "limit": 20},
        "attempt": closing,
        "note": lambda: {"notes": [{"kind": "fact", "title": f"The cache answers in {next(counter)} ms", "parent": goal}]},
        "update": lambda: {"refs": [goal], "set": {"append": f"line {next(counter)}"}},
        "track": lambda: {"type": "endpoint", "keys": [f"POST /{next(counter)}"]},
        "mark": lambda: {"type": "endpoint", "keys": [f"GET /{next(counter) % 2000:05}"], "results": {"authz": "pass"}},
        "claim": lambda: {"type": "endpoint", "where": "check.csrf is null", "n": 5},
        "summarize": lambda: {"task": goal, "result": f"As of {next(counter)}", "status": "done"},
        "checkpoint": lambda: {"text": f"At {next(counter)}", "task": goal},
        "more": lambda: {"verb": "notes.list", "args": {"under": goal, "limit": 20}},
    }  # fmt: skip
    found = []
    ping = Times()
    for _ in range(rounds):
        ping.time(lambda: server.ask("ping"))
    found.append(Figure("servers", "ping over stdio", round(ping.median, 2), "ms", more=ping.spread))
    for tool, arguments in calls.items():
        times = Times()
        server.call(tool, **arguments())  # the first loads what it needs
        for _ in range(rounds):
            given = arguments()
            times.time(lambda name=tool, args=given: server.call(name, **args))  # type: ignore[misc]
            if tool == "claim":
                server.call("claim", release=True)
        what = f"{tool} over stdio at {notes:,} notes"
        found.append(Figure("servers", what, round(times.median, 2), "ms", more=times.spread))
    return found


def _tokens(listed: list[dict[str, Any]], instructions: str) -> list[Figure]:
    """By the counter of the package."""
    from agentmem.context.tokens import count_tokens

    seen = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in listed]

    def tokens(value: Any) -> int:
        return count_tokens(json.dumps({"tools": value}, ensure_ascii=False, separators=(",", ":")))

    return [
        Figure("servers", "tools/list, what a model sees", tokens(seen), "tokens", 2000),
        Figure("servers", "tools/list, all of it, hints too", tokens(listed), "tokens"),
        Figure("servers", "instructions", count_tokens(instructions), "tokens", 600),
    ]
