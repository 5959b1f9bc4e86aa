"""Commands as tools: what becomes of the arguments, and how a program's end is told."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem.errors import InvalidInput, ToolFailed
from agentmem.harness.commands import command
from agentmem.harness.toolset import Call, Tool

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="commands are tools on POSIX systems")

ARGUMENTS = [sys.executable, "-c", "import json, sys; print(json.dumps(sys.argv[1:]))"]
ENVIRONMENT = [sys.executable, "-c", "import json, os; print(json.dumps(dict(os.environ)))"]


def made(*argv: Any, **options: Any) -> Tool:
    return command("cmd", argv, description="Runs", **options)


def called(tool: Tool, /, **input: Any) -> str:
    return tool.run(Call(tool.name, tool.validated(input), 1, 2, "k", seconds=tool.seconds))


def seen(tool: Tool, /, **input: Any) -> Any:
    return json.loads(called(tool, **input))


def test_a_placeholder_is_one_argument_whatever_it_holds() -> None:
    """No shell, no splitting, no second replacement: blanks, quotes, `$(…)`, globs and braces stay as they are."""
    tool = made(*ARGUMENTS, "{a}", "--b={b}", "{{a}} {a} {} { x }")
    odd = "x y; $(rm *) `id` \"'\\ *\n{b} {{b}}"
    assert seen(tool, a=odd, b="-v") == [odd, "--b=-v", f"{{a}} {odd} {{}} {{ x }}"]


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50))
@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_any_text_arrives_unchanged(text: str) -> None:
    """Within a text and as bytes of UTF-8."""
    tool = made("printf", "%s", "<{a}>")
    kept = called(tool, a=text)
    assert kept == f"<{text}>"


@pytest.mark.parametrize("value", ["-rf", "--output=/etc/passwd", "-", "-5"])
def test_a_value_that_could_be_an_option_is_refused(value: str) -> None:
    """Where it begins an argument; the author may say that it is one."""
    with pytest.raises(InvalidInput, match="begins with '-'"):
        called(made(*ARGUMENTS, "{a}"), a=value)
    with pytest.raises(InvalidInput, match="begins with '-'"):
        called(made(*ARGUMENTS, "{b}{a}"), a=value, b="")
    assert seen(made(*ARGUMENTS, "{a}", options_allowed=["a"]), a=value) == [value]
    assert seen(made(*ARGUMENTS, "x={a}"), a=value) == [f"x={value}"]


def test_nul_is_refused() -> None:
    """An argument would end there, or the program not start."""
    with pytest.raises(InvalidInput, match="NUL"):
        called(made(*ARGUMENTS, "x{a}"), a="a\0b")


def test_values_that_are_no_text_are_json() -> None:
    """Numbers, true and lists are one argument too."""
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "array"}, "c": {"type": "boolean"}},
    }
    schema["required"] = ["a", "b", "c"]
    assert seen(made(*ARGUMENTS, "{a}", "{b}", "{c}", schema=schema), a=3, b=["x", 1], c=True) == [
        "3",
        '["x",1]',
        "true",
    ]


def test_a_group_without_its_field_is_left_out() -> None:
    """The option goes with its value; a default takes the place of what is missing."""
    tool = made(*ARGUMENTS, ["-n", "{count}"], "{file}")
    assert tool.schema["required"] == ["file"]
    assert seen(tool, file="x") == ["x"]
    assert seen(tool, file="x", count="3") == ["-n", "3", "x"]
    schema = {"type": "object", "properties": {"count": {"type": "integer", "default": 7}}}
    assert seen(made(*ARGUMENTS, "-n", "{count}", schema=schema)) == ["-n", "7"]


@pytest.mark.parametrize(
    ("argv", "options", "said"),
    [
        ((), {}, "It is a list"),
        (("{a}",), {}, "It is fixed"),
        (("",), {}, "It is fixed"),
        ((["x"],), {}, "It is fixed"),
        (("x", 3), {}, "no text|iterable"),
        (("x", "a\0"), {}, "NUL"),
        (("sh", "-c", "echo {a}"), {}, "A shell would run"),
        (("/bin/bash", "-ec", "echo '{a}'"), {}, "A shell would run"),
        (("env", "X=1", "sh", "-c", "{a}"), {}, "A shell would run"),
        (("x", "{b}"), {"schema": {"type": "object", "properties": {"bb": {}}}}, "does not know"),
        (("x", "{b}"), {"schema": {"type": "object", "properties": {"b": {}}}}, "may be missing"),
        (("x",), {"stdin": "a"}, "stdin of cmd"),
        (("x",), {"env": ["AGENTMEM_KEY"]}, "No variable of agentmem's"),
        (("x",), {"env": {"agentmem_key": "x"}}, "No variable of agentmem's"),
        (("x",), {"env": ["HOME"]}, "The harness gives it"),
        (("x",), {"env": "PATH"}, "names of variables"),
        (("x",), {"env": {"A=B": "c"}}, "names of variables"),
        (("x",), {"cwd": "/", "provision": lambda: "/"}, "both cwd and provision"),
        (("x",), {"memory_bytes": 0}, "memory_bytes"),
        (("x",), {"output_bytes": 1.5}, "output_bytes"),
    ],
)
def test_a_template_that_cannot_hold_is_refused_when_the_tool_is_made(argv: Any, options: Any, said: str) -> None:
    """Also a placeholder in a script for a shell, whatever quotes stand around it."""
    with pytest.raises((InvalidInput, TypeError), match=said):
        command("cmd", argv, description="Runs", **options)


def test_a_script_gets_fields_as_its_arguments() -> None:
    """The way to use a shell all the same."""
    tool = made("sh", "-c", 'printf "%s" "$1"', "sh", "{a}")
    assert called(tool, a="$(id); x") == "$(id); x"


def test_input_reaches_the_standard_input() -> None:
    """As JSON, or the text of one field; else it is empty."""
    assert seen(made("cat", ["{a}"], stdin="json")) == {}
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    assert called(made("cat", stdin="json", schema=schema), b=[1], a="ä") == '{"a":"ä","b":[1]}'
    assert called(made("cat", stdin="{a}"), a="text\0") == "5 bytes that are no text"
    assert called(made("cat")) == ""


def test_input_larger_than_a_pipe_is_fed_while_output_is_read() -> None:
    """Neither side waits for the other."""
    text = "x" * 3_000_000
    assert called(made("cat", stdin="{a}", output_bytes=4_000_000), a=text) == text


def test_a_program_that_does_not_read_its_input_ends_all_the_same() -> None:
    """What it leaves unread is its own affair."""
    assert called(made("true", stdin="{a}"), a="x" * 3_000_000) == ""


def test_how_it_failed_is_the_result() -> None:
    """The exit code or signal, the end of standard error, and what it said before."""
    failing = made("sh", "-c", "echo out; echo problem >&2; exit 3")
    assert called(failing) == "exit code 3\nstandard error:\nproblem\nstandard output:\nout\n"
    assert called(made("sh", "-c", "kill -9 $$")) == "ended by signal 9 (SIGKILL)"
    assert called(made("sh", "-c", "echo fine; echo warning >&2")) == "fine\n"
    assert called(made("sh", "-c", "echo warning >&2")) == "standard error:\nwarning"


def test_a_program_that_is_not_there_is_a_typed_failure() -> None:
    """As is a directory that is not, and an argument that no program can have."""
    with pytest.raises(ToolFailed, match="no program 'no-such-program'"):
        called(made("no-such-program"))
    with pytest.raises(ToolFailed, match="directory"):
        called(made("true", cwd="/no/such/directory"))
    with pytest.raises(ToolFailed, match="could not be started"):
        called(made("true", "{a}"), a="x" * 10_000_000)


def test_the_environment_is_minimal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of this process's but PATH and what is named; no variable of agentmem's ever."""
    monkeypatch.setenv("AGENTMEM_KEY", "hex:00")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    monkeypatch.setenv("NAMED", "yes")
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}::relative")
    found = seen(made(*ENVIRONMENT, env=["NAMED", "ABSENT"]))
    assert set(found) - {"PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE"} == {"PATH", "HOME", "TMPDIR", "LANG", "NAMED"}
    assert all(os.path.isabs(each) for each in found["PATH"].split(":"))
    assert seen(made(*ENVIRONMENT, env={"GIVEN": "v"}))["GIVEN"] == "v"


def test_each_call_has_a_directory_and_a_home_that_go_with_it() -> None:
    """What it left there goes too, also what it made unreadable; nobody else could look in."""
    script = "import os,json; os.mkdir('d'); open('d/f','w').close(); os.chmod('d', 0); os.symlink('/etc', 'link'); "
    script += "print(json.dumps([os.getcwd(), os.environ['HOME'], oct(os.stat('.').st_mode & 0o777)]))"
    tool = made(sys.executable, "-c", script)
    first, second = seen(tool), seen(tool)
    assert first[2] == "0o700"
    assert not set(first[:2]) & set(second[:2])
    assert not any(os.path.exists(each) for each in (*first[:2], *second[:2]))
    assert os.path.exists("/etc")


def test_a_directory_is_provisioned_once_and_only_when_needed(tmp_path: Path) -> None:
    """A provisioning that fails is tried again by the next call."""
    made_: list[int] = []

    def provision() -> Path:
        made_.append(1)
        if len(made_) == 1:
            raise OSError("no room")
        return tmp_path

    tool = made("pwd", provision=provision)
    assert made_ == []
    with pytest.raises(OSError, match="no room"):
        called(tool)
    assert [called(tool).strip() for _ in range(3)] == [str(tmp_path.resolve())] * 3
    assert made_ == [1, 1]


def test_a_program_named_by_a_path_is_found_from_its_directory(tmp_path: Path) -> None:
    """And runs there."""
    script = tmp_path / "run"
    script.write_text("#!/bin/sh\npwd\n")
    script.chmod(0o755)
    assert called(made("./run", cwd=tmp_path)).strip() == str(tmp_path.resolve())


def test_output_is_cut_at_its_end_and_says_so_before() -> None:
    """What masks secrets finds the cut at the end of the text; a letter cut in two is left out."""
    assert called(made("printf", "äöü", output_bytes=3)) == "standard output, first 3 of 6 bytes:\nä"
    long = called(made("sh", "-c", "i=0; while [ $i -lt 5000 ]; do echo line$i >&2; i=$((i+1)); done; exit 1"))
    assert long.startswith("exit code 1\nstandard error, last 8192 of ")
    assert long.split("\n")[2].startswith("line")
    assert long.endswith("line4999")


def test_settings_reach_the_tool() -> None:
    """Each that is the tool's own."""
    tool = made("true", idempotent=True, permission="ask", scope={"a": 1}, seconds=3.0, parallel=False, expires=9)
    assert (tool.idempotent, tool.permission, dict(tool.scope)) == (True, "ask", {"a": 1})
    assert (tool.seconds, tool.parallel, tool.expires) == (3.0, False, 9)
