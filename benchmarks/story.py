"""A story: 200 endpoints, three sessions with kills between them, four subagents at once, over real servers and hooks.

    python -m benchmarks.story [--endpoints 200]

The agent is a script, and knows in each session only what the hooks print and the tools answer: no variable of this
program goes from one session to the next. The servers are processes on stdio, the hooks are processes with the JSON of
a host on stdin, and the kills are kills. At the end the log is read: every check of every endpoint was done exactly
once, no failed attempt was made again, every acknowledged write is there.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentmem import Store
from agentmem.context.tokens import count_tokens
from benchmarks.client import Server, environment

AREAS = ("accounts", "billing", "search", "admin")
CHECKS = ["authz", "csrf", "rate-limit"]
COMMANDS = {  # what the agent tries against each area, and why it does not work there
    "accounts": ("sqlmap -u https://api.example.com/accounts --batch", "403 from the WAF after the third request"),
    "billing": (
        "ffuf -u https://api.example.com/billing/FUZZ -w common.txt",
        "banned for an hour at 50 requests a second",
    ),
    "search": ("nuclei -u https://api.example.com/search -t cves", "every template times out behind the cache"),
    "admin": (
        "hydra -L users.txt -P top100.txt https-post-form://api.example.com/admin",
        "locked out after five tries",
    ),
}


@dataclass
class Told:
    """What the story comes to."""

    sessions: list[dict[str, Any]] = field(default_factory=list)
    resumes: list[dict[str, Any]] = field(default_factory=list)
    calls: int = 0
    written: int = 0
    read: int = 0
    hooks: int = 0
    hook_tokens: int = 0
    warned: int = 0
    repeated: int = 0
    news: int = 0

    def add(self, name: str, *servers: Server) -> None:
        """What the servers of a session were asked."""
        one = {
            "session": name, "calls": sum(server.calls for server in servers),
            "written": sum(server.written for server in servers), "read": sum(server.read for server in servers),
        }  # fmt: skip
        self.sessions.append(one)
        self.calls += one["calls"]
        self.written += one["written"]
        self.read += one["read"]
        self.news += sum(server.news for server in servers)


class World:
    """What there is to find: the same whoever looks, and known to no session beforehand."""

    def __init__(self, endpoints: int, path: Path, home: Path) -> None:
        self.path, self.home, self.told = path, home, Told()
        chosen = random.Random(7)
        verbs = ("GET", "POST", "PUT", "DELETE")
        self.endpoints = [
            {"key": f"{verbs[at % 4]} /{AREAS[at % len(AREAS)]}/{at:03}", "attrs": {"area": AREAS[at % len(AREAS)]}}
            for at in range(endpoints)
        ]
        self._results = {
            one["key"]: {check: chosen.choices(("pass", "fail", "na"), (8, 1, 1))[0] for check in CHECKS}
            for one in self.endpoints
        }
        self.acknowledged: Counter[str] = Counter()
        self._lock = threading.Lock()

    def server(self, *options: str) -> Server:
        """A server of its own for one session or subagent."""
        return Server(self.path, self.home, *options)

    def results(self, key: str) -> dict[str, str]:
        """What the checks of an endpoint come to."""
        return self._results[key]

    def hook(self, event: str, **given: Any) -> str:
        """What a hook prints, and the model therefore reads."""
        said = {"session_id": "story", "cwd": str(self.home), "hook_event_name": event, **given}
        names = {"session-start": "SessionStart", "subagent-start": "SubagentStart", "pre-tool": "PreToolUse",
                 "pre-compact": "PreCompact", "stop": "Stop"}  # fmt: skip
        said["hook_event_name"] = names[event]
        done = subprocess.run(
            [sys.executable, "-m", "agentmem", "hook", event, "--db", str(self.path), "--project", "recon", "--within", "60000"],
            input=json.dumps(said).encode(), capture_output=True, env=environment(self.home), check=True,
        )  # fmt: skip
        text = done.stdout.decode()
        if text.lstrip().startswith("{"):
            text = json.loads(text).get("hookSpecificOutput", {}).get("additionalContext", "")
        with self._lock:
            self.told.hooks += 1
            self.told.hook_tokens += count_tokens(text)
        return text

    def done(self, keys: list[str]) -> None:
        """The server acknowledged the marks of these."""
        with self._lock:
            self.acknowledged.update(keys)


def session_start(world: World, source: str) -> str:
    """What the model knows at the beginning of a session."""
    text = world.hook("session-start", source=source)
    world.told.resumes.append({"how": source, "tokens": count_tokens(text), "text": text})
    return text


def steps_left(text: str) -> dict[str, str]:
    """The steps of an answer that are named `Check <area>`: area to id."""
    return {area: found for found, area in re.findall(r"#(\d+)[^\n]*?\bCheck (\w+)", text) if area in AREAS}


def work(
    world: World, server: Server, step: str, area: str, most: int, *, by: str | None = None, leave: int = 0
) -> int:
    """Claim, try, check and mark until so many are done or nothing is free; `leave` of the last claim stay unmarked."""
    named: dict[str, Any] = {} if by is None else {"by": by}
    done = 0
    command, why = COMMANDS[area]
    if not world.hook("pre-tool", tool_name="Bash", tool_input={"command": command}).strip():
        answer = server.call("attempt", what=command, task=step, **named)
        identity = re.search(r"^#(\d+) open", answer, re.MULTILINE)
        assert identity is not None, answer
        # Somebody was there first, or is at it now: what was opened is closed, the command is not run.
        if any(f"[{status}] {command}" in answer for status in ("failed", "active")):
            server.call("attempt", id=identity[1], outcome="unclear", why="not run: another tries or tried it", **named)
            world.told.warned += 1
        else:
            server.call("attempt", id=identity[1], outcome="failed", why=why, **named)
            world.told.repeated += 1
    else:
        world.told.warned += 1
    while done < most:
        answer = server.call("claim", task=step, n=min(10, most - done), **named)
        keys = [line.removeprefix("endpoint:") for line in answer.splitlines() if line.startswith("endpoint:")]
        if not keys:
            break
        kept = keys[: len(keys) - leave] if done + len(keys) >= most else keys
        for results in {json.dumps(world.results(key), sort_keys=True) for key in kept}:
            same = [key for key in kept if json.dumps(world.results(key), sort_keys=True) == results]
            answer = server.call("mark", type="endpoint", keys=same, results=json.loads(results))
            assert "changed" in answer, answer
            world.done(same)
        done += len(keys)
    return done


def first(world: World) -> None:
    """It sets the work up and begins, and is killed while it holds claims."""
    session_start(world, "startup")
    server = world.server()
    server.call("resume")
    steps = [
        {"kind": "step", "title": f"Check {area}", "parent": "$1",
         "scope": {"type": "endpoint", "where": f"attrs.area = '{area}'", "checks": CHECKS}}
        for area in AREAS
    ]  # fmt: skip
    server.call(
        "note",
        notes=[
            {"kind": "goal", "title": "Recon of api.example.com", "body": "Every endpoint, three checks."},
            *steps,
            {
                "kind": "decision",
                "title": "At most 5 requests a second",
                "parent": "$1",
                "basis": "agreed with the owner",
            },
            {"kind": "question", "title": "Is the admin area in scope?", "parent": "$1"},
        ],
    )
    server.call("track", type="endpoint", rows=world.endpoints)
    step = steps_left(server.call("left"))
    work(world, server, step["accounts"], "accounts", len(world.endpoints) // 8, leave=4)
    world.hook("stop", last_assistant_message="Half of accounts is checked.")
    server.kill()
    world.told.add("first, killed while it held claims", server)


def second(world: World) -> None:
    """It comes back, loses its context to a compaction, goes on, and is killed too."""
    text = session_start(world, "startup")
    server = world.server()
    step = steps_left(text + server.call("left"))
    work(world, server, step["accounts"], "accounts", len(world.endpoints) // 16)
    world.hook("pre-compact", trigger="auto")
    text = session_start(world, "compact")
    step = steps_left(text + server.call("left"))
    work(world, server, step["accounts"], "accounts", len(world.endpoints))
    server.call("summarize", task=step["accounts"], work="All endpoints of accounts.", result="See the failed checks.")
    answered = server.call("recall", query="is the admin area in scope", kind="question")
    question = re.search(r"#(\d+) question", answered)
    assert question is not None, answered
    goal = re.findall(r"#(\d+)[^\n]*Recon of", text)[0]
    ruling = {"kind": "decision", "title": "The admin area is in scope, read requests only", "parent": goal}
    server.call("note", notes=[{**ruling, "links": {"answers": question[1]}}])
    server.kill()
    world.told.add("second, compacted, then killed", server)


def third(world: World) -> None:
    """It hands the rest to four subagents at once, each with a server that writes only beneath its step."""
    text = session_start(world, "startup")
    server = world.server()
    steps = steps_left(text + server.call("left"))
    goal = re.findall(r"#(\d+)[^\n]*Recon of", text)[0]
    areas = [area for area in AREAS if area in steps and area != "accounts"]
    workers = [(f"worker-{at + 1}", areas[at % len(areas)]) for at in range(4)]
    servers = {name: world.server("--under", steps[area], "--author", name) for name, area in workers}
    gate = threading.Barrier(len(workers) + 1)
    errors: list[BaseException] = []

    def subagent(name: str, area: str) -> None:
        try:
            step, mine = steps[area], servers[name]
            brief = world.hook(
                "subagent-start", agent_id=name, agent_type="worker", prompt=f"Do task #{step} to its end."
            )
            assert f"#{step}" in brief, brief
            answer = mine.call("resume", task=step)
            assert "At most 5 requests a second" in answer, answer
            gate.wait(60)  # both have their context now
            gate.wait(60)  # and the decision was made meanwhile
            work(world, mine, step, area, len(world.endpoints))
        except BaseException as error:  # noqa: BLE001  # told by the thread that waits
            errors.append(error)
            gate.abort()

    threads = [threading.Thread(target=subagent, args=worker) for worker in workers]
    for thread in threads:
        thread.start()
    gate.wait(120)
    server.call("note", notes=[{"kind": "decision", "title": "Stop at the first 429", "parent": goal}])
    gate.wait(120)
    for thread in threads:
        thread.join(600)
    if errors:
        raise errors[0]
    for area in areas:
        next(one for name, one in servers.items() if dict(workers)[name] == area).call(
            "summarize", task=steps[area], work=f"All endpoints of {area}.", result="See the failed checks."
        )
    left = server.call("left")
    server.call("summarize", task=goal, work="All areas.", result="Done.")
    world.told.resumes.append({"how": "left at the end", "tokens": count_tokens(left), "text": left})
    for one in (server, *servers.values()):
        one.close()
    world.told.add("third, with four subagents", server, *servers.values())


def checked(world: World) -> dict[str, Any]:
    """What the log says: nothing lost, nothing done twice."""
    with Store.open(world.path, project="recon", key=bytes(range(32))) as store:
        marked: Counter[tuple[int, str]] = Counter()
        after = 0
        while page := store.log.read(after=after, kinds=("entity.marked",), limit=1000):
            for event in page:
                marked.update((event.record, str(name)) for name in names_of(event.payload))
            after = page[-1].seq
        found = {entity.key: entity for entity in store.entities.query("endpoint", limit=1000)}
        wrong = [key for key, entity in found.items() if dict(entity.checks) != world.results(str(key))]
        lost = [key for key in world.acknowledged if set(found[key].checks) != set(CHECKS)]
        failed = [note.title for note in store.notes.list(kind="attempt", status="failed", limit=1000)]
        assert store.verify(replay=True)
        return {
            "endpoints": len(found), "checks": sum(marked.values()), "wrong": len(wrong), "lost": len(lost),
            "checked twice": sum(count > 1 for count in marked.values()),
            "failed attempts": len(failed), "made again": len(failed) - len(set(failed)), "events": store.log.head().seq,
        }  # fmt: skip


def names_of(payload: dict[str, Any] | None) -> list[str]:
    """The checks that an event marked."""
    marks = (payload or {}).get("marks", {})
    return [str(one["name"]) for one in marks] if isinstance(marks, list) else list(marks)


def tell(endpoints: int, folder: Path) -> tuple[Told, dict[str, Any]]:
    """The whole story, and what the log says of it."""
    world = World(endpoints, folder / "story.db", folder)
    Store.open(world.path, project="recon", key=bytes(range(32))).close()
    for session in (first, second, third):
        session(world)
    return world.told, checked(world)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.story", description=__doc__)
    parser.add_argument("--endpoints", type=int, default=200)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="agentmem-story-") as folder:
        told, log = tell(asked.endpoints, Path(folder))
    for one in told.sessions:
        print(f"{one['session']}: {one['calls']} calls, {one['written']} tokens written, {one['read']} read")
    print(f"in all: {told.calls} calls, {told.written} tokens written, {told.read} read")
    print(
        f"hooks: {told.hooks} processes, {told.hook_tokens} tokens printed; {told.warned} failed attempts not made again"
    )
    print(f"news heard by subagents: {told.news}")
    for one in told.resumes:
        print(f"\n--- {one['how']}: {one['tokens']} tokens\n{one['text']}")
    print("\n" + ", ".join(f"{name}: {value}" for name, value in log.items()))


if __name__ == "__main__":
    main()
