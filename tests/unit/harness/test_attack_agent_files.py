"""Agent files that are hostile, or only wrong: each is a typed error that names the place, at once."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentmem import Store
from agentmem.errors import AgentMemError, InvalidInput, StoreMissing
from agentmem.harness.agent_file import AgentFile
from agentmem.harness.functions import tool
from agentmem.harness.harness import Harness

pytest.importorskip("yaml")

BOMB = "      a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"      a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 9)
)


@tool
def look() -> str:
    """Look."""
    return "seen"


def written(tmp_path: Path, text: str | bytes, name: str = "agent.yaml") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "3", "name", "null", "name: a\nname: b\n", "name:", "name: [a]", "name: {a: b}", "name: 3", "name: ''",
        "name: a\nnmae: b", "? [1, 2]\n: 3", "? {a: b}\n: 3", "1: 2", "null: 3", "name: a\n<<: {name: b}",
        "name: &a b\nversion: *a", f"name: a\ntools:\n  - name: look\n    scope:\n{BOMB}",
        "name: a\ntools:\n  - name: look\n    scope: &s\n      s: *s\n",
        "name: !!python/object/apply:os.system [echo]", "name: !!python/name:os.system", "name: !unknown a",
        "name: !!timestamp soon", "name: !!bool soon", "name: !!int ''", "name: !!int x", "name: !!float x",
        "name: !!binary '*'", "name: !!set [a]", "name: 2026-99-99", "name: a\n--- \nname: b", "name: 'a", "name: \"\\ud800\"",
        "\tname: a", "%YAML 9.9\n---\nname: a", "name: a\x00b", "name: a\x1bb", "[" * 5000, "{a: " * 5000, "- " * 5000,
        "name: a\nversion: [1]", "name: a\nversion: {a: 1}", "name: a\nversion: true", "name: a\nmodel: !!binary aGk=",
        "name: a\nbudget: .nan", "name: a\nbudget: .inf", "name: a\nbudget: many", "name: a\nbudget: true",
        "name: a\nbudget: -1", f"name: a\nbudget: {'9' * 4000}", f"name: a\nbudget: {'9' * 6000}", "name: a\nmax_turns: 0",
        "name: a\nmax_turns: 1.5", "name: a\nmax_tokens: x", "name: a\nretries: -1", "name: a\nparallel: 100000",
        "name: a\ninstructions: 3", "name: a\ninstructions: [x]", "name: a\ndescription: {a: b}",
        "name: a\ntools: look", "name: a\ntools: {look: 1}", "name: a\ntools: [3]", "name: a\ntools: [null]",
        "name: a\ntools: [[look]]", "name: a\ntools: [look, look]", "name: a\ntools: [lock]", "name: a\ntools: [{}]",
        "name: a\ntools: [{name: look, run: 3}]", "name: a\ntools: [{name: [look]}]",
        "name: a\ntools: [{name: look, permission: deny}]", "name: a\ntools: [{name: look, permission: [ask]}]",
        "name: a\ntools: [{name: look, seconds: .nan}]", "name: a\ntools: [{name: look, seconds: .inf}]",
        "name: a\ntools: [{name: look, seconds: true}]", "name: a\ntools: [{name: look, expires: 1.5}]",
        "name: a\ntools: [{name: look, parallel: 3}]", "name: a\ntools: [{name: look, credential_id: 3}]",
        "name: a\ntools: [{name: look, credential_id: prod}]", "name: a\ntools: [{name: look, scope: 3}]",
        "name: a\ntools: [{name: look, scope: {a: .nan}}]", "name: a\ntools: [{name: look, scope: {a: 2026-01-01}}]",
        "name: a\ntools: [{name: look, scope: {1: a}}]", "name: a\ntools: [{name: look, scope: {a: !!binary aGk=}}]",
        "name: a\ntools: [{name: look, scope: {a: 1, a: 2}}]", "name: a\ntools: [{name: look, scope: {a: !!set {b}}}]",
        f"name: a\ntools: [{{name: look, scope: {{a: {'[' * 100}{']' * 100}}}}}]",
    ],
)  # fmt: skip
def test_a_yaml_file_that_is_not_as_it_should_be(store: Store, tmp_path: Path, text: str) -> None:
    """No error but ours, and no file that a few lines blow up."""
    with pytest.raises(AgentMemError):
        Harness.from_file(store, written(tmp_path, text), lambda request: "", [look])


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", "NaN", "null", '{"name": "a"', '{"name": "a", "name": "b"}', '{"name": "a", "budget": NaN}',
        '{"name": "a", "budget": Infinity}', '{"name": "a", "budget": 1e999}', '{"name": "a", "version": NaN, "x": 1}',
        '{"name": "\\ud800"}', '{"name": "a\\u0000"}', "[" * 100_000, '{"a":' * 100_000,
        '{"name": "a", "budget": ' + "9" * 9000 + "}",
        '{"name": "a", "tools": [{"name": "look", "scope": {"a": NaN}}]}',
    ],
)  # fmt: skip
def test_a_json_file_that_is_not_as_it_should_be(store: Store, tmp_path: Path, text: str) -> None:
    """The same of JSON."""
    with pytest.raises(AgentMemError):
        Harness.from_file(store, written(tmp_path, text, "agent.json"), lambda request: "", [look])


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    """A directory, a pipe that nobody writes to, bytes that are no text, too many of them, a name that is none."""
    with pytest.raises(InvalidInput):
        AgentFile.read(tmp_path)
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.yaml")
        with pytest.raises(InvalidInput):
            AgentFile.read(tmp_path / "pipe.yaml")
    with pytest.raises(InvalidInput):
        AgentFile.read(written(tmp_path, b"\xff\xfename: a"))
    with pytest.raises(InvalidInput, match="more than"):
        AgentFile.read(written(tmp_path, "#" * 2_000_000))
    with pytest.raises(StoreMissing):
        AgentFile.read(tmp_path / "missing.yaml")
    long: Any = ["x" * 5000, "a\0b", 3, None, ""]
    for name in long:
        with pytest.raises(AgentMemError):
            AgentFile.read(name)


def test_an_agent_file_says_the_same_in_both_forms(store: Store, tmp_path: Path) -> None:
    """Of numbers and dates that stand for a version too."""
    told = {"name": "a", "version": 3, "tools": ["look", {"name": "look2", "permission": "ask", "expires": 60}]}
    yaml = "name: a\nversion: 3\ntools:\n  - look\n  - name: look2\n    permission: ask\n    expires: 60\n"
    one = AgentFile.read(written(tmp_path, json.dumps(told), "agent.json"))
    other = AgentFile.read(written(tmp_path, yaml))
    assert one.tools == other.tools
    assert {**one.agent, "digest": ""} == {**other.agent, "digest": ""} == {"name": "a", "version": "3", "digest": ""}
    assert AgentFile.read(written(tmp_path, "name: a\nversion: 2026-01-01\n")).agent["version"] == "2026-01-01"
