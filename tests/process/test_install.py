"""The commands agentmem mcp as processes, in a home of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agentmem.adapters.install.clients import CLIENTS

ROOT = Path(__file__).parents[2]
KEY = f"hex:{bytes(range(32)).hex()}"
POSIX = pytest.mark.skipif(os.name != "posix", reason="terminals and shells of POSIX")


class Home:
    """A home, a project in it, and the command line there."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "ho me"
        self.root = self.home / "pro ject"
        (self.root / ".git").mkdir(parents=True)
        (self.root / "deep").mkdir()
        kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
        self.environment = {**kept, "PYTHONPATH": str(ROOT / "src"), "HOME": str(self.home), "PYTHONUTF8": "1"}

    def run(self, *arguments: str, code: int = 0, **environment: str) -> tuple[str, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "agentmem", "mcp", *arguments], input=b"", capture_output=True, timeout=120,
            check=False, cwd=self.root / "deep", env={**self.environment, **environment},
        )  # fmt: skip
        assert ran.returncode == code, ran.stderr.decode()
        return ran.stdout.decode(), ran.stderr.decode()

    def json(self, *arguments: str, **environment: str) -> Any:
        return [json.loads(line) for line in self.run(*arguments, "--json", **environment)[0].splitlines()]

    def files(self) -> list[str]:
        return sorted(str(one.relative_to(self.home)) for one in self.home.rglob("*") if one.is_file())

    def server(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.home / ".claude.json").read_text())["mcpServers"]["agentmem"]
        return found


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_is_installed_listed_and_uninstalled(home: Home, client: str) -> None:
    """The difference is shown, --yes writes it, list names the files, uninstall leaves none."""
    shown, said = home.run("install", client, "--yes")
    assert "+++ " in shown
    assert "agentmem" in shown
    assert "installed" in said
    (listed,) = home.json("list")
    assert (listed["client"], listed["scope"]) == (client, "user")
    assert {file["state"] for file in listed["files"]} == {"as installed"}
    assert all(Path(file["path"]).is_file() for file in listed["files"])
    assert home.run("install", client)[1].startswith("nothing to do")
    home.run("uninstall", client, "--yes")
    assert home.files() == []
    assert home.run("list")[1] == "nothing is installed\n"


@pytest.mark.parametrize("arguments", [["install", "claude-code"], ["install", "claude-code", "--json"]])
def test_without_yes_nothing_is_written_where_nobody_can_be_asked(home: Home, arguments: list[str]) -> None:
    """The difference is shown, the exit code is 2, and not a file is made; an uninstall the same."""
    shown, said = home.run(*arguments, code=2)
    assert "agentmem" in shown
    assert "--yes" in said
    assert home.files() == []
    home.run("install", "claude-code", "--yes")
    before = home.files()
    home.run("uninstall", "claude-code", code=2)
    assert home.files() == before


def test_a_dry_run_only_shows(home: Home) -> None:
    """--dry-run exits with 0 and writes nothing, also with --yes."""
    (shown,) = home.json("install", "cursor", "--dry-run", "--yes")
    assert not shown["written"]
    assert [file["what"] for file in shown["files"]] == ["create"] * 3
    assert home.files() == []


@POSIX
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1)])
def test_a_terminal_is_asked(home: Home, answer: str, code: int) -> None:
    """At a terminal the difference is shown, then a person says yes or no."""
    import pty

    leader, follower = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "agentmem", "mcp", "install", "cursor"],
        stdin=follower, stdout=follower, stderr=follower, cwd=home.root, env=home.environment,
    ) as process:  # fmt: skip
        os.close(follower)
        told = b""
        while b"Write this?" not in told:
            told += os.read(leader, 4096)
        os.write(leader, answer.encode())
        assert process.wait(timeout=60) == code
    os.close(leader)
    assert b"mcpServers" in told
    assert bool(home.files()) == (code == 0)


def test_a_project_is_the_repository_around_the_directory(home: Home) -> None:
    """--scope project writes at the root of the repository, and spells out the project's name."""
    home.run("install", "claude-code", "--scope", "project", "--yes")
    entry = json.loads((home.root / ".mcp.json").read_text())["mcpServers"]["agentmem"]
    name = entry["args"][entry["args"].index("--project") + 1]
    assert name.startswith(("pro-ject", "pro ject"))
    assert (home.root / ".claude" / "skills" / "agentmem" / "SKILL.md").is_file()
    assert home.run("uninstall", "claude-code", "--yes")[1].startswith("nothing to do")
    home.run("uninstall", "claude-code", "--scope", "project", "--yes")
    assert home.files() == []


def test_what_a_server_would_not_see_is_spelled_out(home: Home) -> None:
    """Options and variables become arguments with absolute paths; what was not given is not there."""
    home.run("install", "claude-code", "--yes")
    assert home.server() == {"type": "stdio", "command": sys.executable, "args": ["-P", "-m", "agentmem", "serve"]}
    key = home.home / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    home.run(
        "install", "claude-code", "--yes", "--under", "14", "--tools", "full", "--author", "ada", "--read-only",
        AGENTMEM_DB="work.db", AGENTMEM_PROJECT="acme", AGENTMEM_KEY_FILE=str(key),
    )  # fmt: skip
    assert home.server()["args"][4:] == [
        "--db", str(home.root / "deep" / "work.db"), "--project", "acme", "--key-file", str(key), "--author", "ada",
        "--under", "14", "--tools", "full", "--read-only",
    ]  # fmt: skip
    hooks = (home.home / ".claude" / "settings.json").read_text()
    assert f"--project acme --key-file '{key}' --author ada" in hooks


def test_a_key_is_never_written(home: Home) -> None:
    """A key in the environment alone: it is said that the server will not see it, and it stands in no file."""
    shown, said = home.run("install", "claude-code", "--yes", AGENTMEM_KEY=KEY)
    assert "AGENTMEM_KEY is set here and the server will not see it" in said
    written = "".join((home.home / name).read_text() for name in home.files())
    assert KEY.removeprefix("hex:") not in shown + said + written


def test_errors_are_told_as_errors(home: Home) -> None:
    """An unknown client, a scope it has not, a key file that is not there, a broken file: typed, nothing written."""
    for arguments, code, word in (
        (("install", "emacs"), 2, "no client"),
        (("install", "windsurf", "--scope", "project"), 2, "no configuration of a project"),
        (("install", "cursor", "--key-file", "nowhere"), 5, "not there"),
        (("install", "cursor", "--ask-key"), 2, "--key-file"),
    ):
        assert word in home.run(*arguments, "--yes", code=code)[1]
    broken = home.home / ".cursor" / "mcp.json"
    broken.parent.mkdir()
    broken.write_text("{")
    error = json.loads(home.run("install", "cursor", "--yes", "--json", code=2)[1].splitlines()[-1])["error"]
    assert error["code"] == "invalid_input"
    assert str(broken) in error["what"]
    assert home.files() == [".cursor/mcp.json"]


def test_show_prints_what_install_writes(home: Home) -> None:
    """What show prints, pasted into an empty file, is what install finds to be there."""
    (shown,) = home.json("show", "claude-code")
    for file in shown["files"]:
        path = Path(file["path"])
        path.parent.mkdir(exist_ok=True)
        path.write_text(file["text"])
    assert home.run("install", "claude-code", "--no-skill")[1].startswith("nothing to do")
    assert "[mcp_servers.agentmem]" in home.run("show", "codex", "--no-hooks")[0]


def test_the_server_that_was_written_answers(home: Home) -> None:
    """The entry starts a server in any directory with nothing but HOME and PATH, which knows its tools."""
    home.run("install", "claude-code", "--yes", "--no-hooks", "--project", "acme")
    entry = home.server()
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]  # fmt: skip
    process = subprocess.Popen(
        [entry["command"], *entry["args"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        cwd=home.home, env=home.environment, text=True,
    )  # fmt: skip
    with process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in asked:
            process.stdin.write(json.dumps(line) + "\n")
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.stdin.close()
        assert process.wait(timeout=60) == 0
    assert {"resume", "attempt", "note"} <= {tool["name"] for tool in answers[1]["result"]["tools"]}


@POSIX
@pytest.mark.parametrize("client", ["claude-code", "codex", "gemini", "cursor", "vscode"])
def test_the_hooks_that_were_written_run(home: Home, client: str) -> None:
    """Each command line, given to a shell with a host's JSON, ends with 0 and never breaks the host."""
    home.run("install", client, "--yes", "--project", "ac me")
    lines = [line for name in home.files() if name.endswith(".json")
             for line in commands(json.loads((home.home / name).read_text()))]  # fmt: skip
    assert lines
    for line in dict.fromkeys(lines):
        event = json.dumps({"hook_event_name": "Stop", "session_id": "s", "cwd": str(home.root)})
        ran = subprocess.run(["sh", "-c", line], input=event, capture_output=True, text=True, timeout=60,
                             check=False, cwd=home.root, env=home.environment)  # fmt: skip
        assert ran.returncode == 0, (line, ran.stderr)


def commands(value: Any) -> list[str]:
    """Every command line of a hook in a file."""
    if isinstance(value, dict):
        own = [value["command"]] if "agentmem hook" in str(value.get("command")) else []
        return own + [line for part in value.values() for line in commands(part)]
    return [line for part in value for line in commands(part)] if isinstance(value, list) else []
