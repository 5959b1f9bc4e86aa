"""What a host waits for its hooks, from the start of a process to its end, beside a process that does nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import corpus
from benchmarks.client import environment
from benchmarks.measure import Figure, Times

if TYPE_CHECKING:
    from benchmarks.run import Setting

_ROUNDS = 20
_FAILED = 5_000
_TARGET = 150.0


def figures(setting: Setting) -> list[Figure]:
    """Each event in turn, a bare interpreter beside each; the median of 20."""
    path = corpus.corpus(setting.directory, "lifelike", setting.notes, setting.goals)
    with corpus.opened(path, durability="normal") as store:
        step = corpus.steps_of(store, 1)[0]
        failed = store.notes.list(kind="attempt", status="failed", limit=1)
        command = str(failed[0].title) if failed else "make test"
    said: dict[str, dict[str, Any]] = {
        "session-start": {"hook_event_name": "SessionStart", "source": "compact"},
        "subagent-start": {"hook_event_name": "SubagentStart", "prompt": f"Do #{step}"},
        "pre-tool": {"hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": {"command": command}},
        "pre-tool, nothing like it": {
            "hook_event_name": "PreToolUse", "tool_name": "Bash",
            "tool_input": {"command": "curl -sS https://api.example.com/v2/users/42 | jq '.name' > /tmp/out.json"},
        },
        "pre-compact": {"hook_event_name": "PreCompact", "trigger": "auto"},
        "stop": {"hook_event_name": "Stop", "last_assistant_message": "The cache is warm now."},
    }  # fmt: skip
    times = {name: Times() for name in said}
    bare = Times()
    for _ in range(setting.rounds(_ROUNDS)):
        bare.time(lambda: subprocess.run([sys.executable, "-c", "pass"], check=True))
        for name, given in said.items():
            times[name].time(lambda name=name, given=given: _run(path, setting.disk, name, given))  # type: ignore[misc]
            if name in ("pre-compact", "stop"):  # which write only where something was written
                with corpus.opened(path, durability="normal") as store:
                    store.notes.update(step, append="x")
    found = [
        Figure("hooks", f"{name}, {setting.notes:,} notes", round(one.median, 1), "ms", _TARGET, more=one.spread)
        for name, one in times.items()
    ]
    return [*found, Figure("hooks", "bare Python beside it", round(bare.median, 1), "ms", more=bare.spread)]


def _run(path: Path, home: Path, name: str, given: dict[str, Any]) -> None:
    event = name.partition(",")[0]
    command = [
        sys.executable,
        "-m",
        "agentmem",
        "hook",
        event,
        "--db",
        str(path),
        "--project",
        corpus.PROJECT,
        "--within",
        "60000",
    ]
    variables = environment(home) | {"AGENTMEM_KEY": f"hex:{corpus.KEY.hex()}"}
    done = subprocess.run(command, input=json.dumps(given).encode(), capture_output=True, env=variables, check=True)
    assert not done.stderr, done.stderr
    assert done.stdout or event in ("pre-compact", "stop", "pre-tool"), name
