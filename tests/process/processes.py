"""Python processes beside the one that tests: they run a script, say what they did and wait to be told to go on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import agentmem

SOURCE = str(Path(agentmem.__file__).parents[1])


class Child:
    """One such process.

    Args:
        script: What it runs. It says things as JSON, a line each.
        arguments: Its command line.
        env: Its environment; by default this one's, without keys.
    """

    def __init__(self, script: str, *arguments: object, env: Mapping[str, str] | None = None) -> None:
        if env is None:
            env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_KEY")}
            env["PYTHONPATH"] = SOURCE
        self.process = subprocess.Popen(
            [sys.executable, "-c", script, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )

    def said(self) -> list[Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        found: list[Any] = json.loads(line)
        return found

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, told: str | None = None) -> list[Any]:
        """Wait for its end, told so much more; what it said since, line by line."""
        out, err = self.process.communicate(input=told, timeout=600)
        assert self.process.returncode == 0, err
        return [json.loads(line) for line in out.splitlines()]
