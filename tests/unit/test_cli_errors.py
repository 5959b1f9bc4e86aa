"""The command line when something is wrong: a code, what, why and next on stderr, and never a traceback."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import errors
from agentmem.adapters.cli.exits import Exit, exit_of
from agentmem.adapters.cli.root import agentmem
from agentmem.engine.keys import default_key_file

KEY = bytes(range(32))
HEX = f"hex:{KEY.hex()}"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "work.db"
    assert run(found, "add", "goal", "Check example.com").exit_code == 0
    return found


def run(path: Path, *arguments: str, key: str | None = HEX, stdin: str | bytes | None = None) -> Result:
    environment = {"AGENTMEM_KEY": key, "AGENTMEM_PROJECT": "acme", "AGENTMEM_DB": str(path)}
    return CliRunner(env=environment).invoke(agentmem, arguments, input=stdin)


def at_home(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No key but that of a home which is empty."""
    monkeypatch.setenv("HOME", str(directory / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory / "config"))
    for name in ("AGENTMEM_KEY", "AGENTMEM_KEY_FILE"):
        monkeypatch.delenv(name, raising=False)


HOMELESS = pytest.mark.skipif(sys.platform == "win32", reason="where the home is no variable says there")


# No errors, or errors that need more than a sentence.
NOT_PLAIN = ("StorageWarning", "WhereError", "UndoBlocked", "ApprovalNeeded")


def test_every_error_has_an_exit_code_that_is_not_zero() -> None:
    """Each exception of the package maps to a documented code, and each code has a meaning."""
    found = {name: getattr(errors, name) for name in errors.__all__ if name not in NOT_PLAIN}
    for kind in found.values():
        assert exit_of(kind("what")) is not Exit.OK
    assert exit_of(errors.WhereError("what", source="a", position=0)) is Exit.USAGE
    assert exit_of(errors.UndoBlocked("what", events=(4,))) is Exit.CONFLICT
    assert exit_of(errors.ApprovalNeeded("what", event=4)) is Exit.CONFLICT
    assert exit_of(errors.NotInPast("what")) is Exit.USAGE
    assert all(code.meaning for code in Exit)


def test_codes_never_change() -> None:
    """Scripts match on the numbers."""
    assert {code.name: int(code) for code in Exit} == {
        "OK": 0, "FAILURE": 1, "USAGE": 2, "NOT_FOUND": 3, "WRONG_KEY": 4, "KEY_MISSING": 5, "STORE_MISSING": 6,
        "CONFLICT": 7, "HELD": 8, "BUSY": 9, "DAMAGED": 10, "READ_ONLY": 11, "INTERRUPTED": 130, "PIPE": 141,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (("get", "99"), Exit.NOT_FOUND, "[not_found]"),
        (("get", "host:web"), Exit.NOT_FOUND, "[not_found]"),
        (("import", "no/such/folder"), Exit.NOT_FOUND, "no/such/folder"),
        (("query", "host", "attrs.port ="), Exit.USAGE, "[invalid_where]"),
        (("update", "2", "--confidence", "7"), Exit.USAGE, "[invalid_input]"),
        (("add", "plan", "x"), Exit.USAGE, "[usage]"),
        (("lft",), Exit.USAGE, "Did you mean left?"),
        (("left", "--bogus"), Exit.USAGE, "agentmem left --help"),
        (("resume", "--budget", "5"), Exit.USAGE, "[invalid_input]"),
        (("attempt",), Exit.USAGE, "Usage: agentmem attempt"),
        (("mark", "host", "a", "-c", "tls"), Exit.USAGE, "NAME=RESULT"),
        (("put", "host", "a", "--attr", "x:={"), Exit.USAGE, "JSON"),
        (("add", "fact", "x", "--dated", "soon"), Exit.USAGE, "2026-11-30"),
        (("claim",), Exit.USAGE, "--type"),
        (("update", "2"), Exit.USAGE, "Nothing to change"),
        (("update", "2", "--status", "done", "--read-only"), Exit.READ_ONLY, "[read_only]"),
        (("verify", "--head", "x"), Exit.USAGE, "STORE:SEQ:CHAIN"),
        (("release", "2", "--claim", "zz"), Exit.USAGE, "[invalid_input]"),
        (("resume", "--ask-key"), Exit.USAGE, "--key-file"),
        (("key", "export"), Exit.USAGE, "--yes"),
        (("undo",), Exit.USAGE, "--of-run"),
        (("undo", "--of-request", "q", "--of-run", "r7"), Exit.USAGE, "exclude each other"),
        (("undo", "--run", "r7"), Exit.USAGE, "--of-run"),
        (("undo", "99"), Exit.NOT_FOUND, "[not_found]"),
        (("forget",), Exit.USAGE, "--whole-project"),
        (("forget", "--project", "acme", "--yes"), Exit.USAGE, "--whole-project"),
        (("forget", "99", "--yes"), Exit.NOT_FOUND, "[not_found]"),
        (("forget", "2", "--type", "host"), Exit.USAGE, "one way"),
        (("redact", "2", "--attr", "token"), Exit.USAGE, "[invalid_input]"),
        (("diff", "2"), Exit.USAGE, "--from"),
        (("revision", "2", "1"), Exit.NOT_FOUND, "[not_found]"),
        (("resume", "--at", "99"), Exit.NOT_FOUND, "The log ends"),
        (("resume", "--at", "soon"), Exit.USAGE, "2026-11-30"),
        (("add", "fact", "x", "--at", "2"), Exit.USAGE, "--at"),
        (("rekey", "--keyring", "--new-key-file", "k"), Exit.USAGE, "exclude each other"),
        (("rekey", "--ask-new-key"), Exit.USAGE, "--new-key-file"),
        (("rekey", "--read-only"), Exit.READ_ONLY, "[read_only]"),
        (("backup", "no/such/place.db"), Exit.STORE_MISSING, "[store_missing]"),
        (("restore", "no-such.db", "new.db"), Exit.STORE_MISSING, "[store_missing]"),
        (("salvage", "no-such.db", "new.db"), Exit.STORE_MISSING, "[store_missing]"),
        (("export", "no/such/place.jsonl"), Exit.STORE_MISSING, "[store_missing]"),
        (("export", "x.jsonl", "--project", "none"), Exit.NOT_FOUND, "[not_found]"),
        (("projects", "merge", "none"), Exit.NOT_FOUND, "[not_found]"),
        (("projects", "delete", "none"), Exit.NOT_FOUND, "[not_found]"),
        (("review", "--after", "x"), Exit.USAGE, "section"),
    ],
)
def test_an_error_has_its_code_and_says_what_to_do(
    path: Path, arguments: tuple[str, ...], code: Exit, named: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is the documented one, stdout stays empty, stderr names the error."""
    monkeypatch.chdir(path.parent)
    result = run(path, *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert named in result.stderr


def test_an_error_is_json_where_json_was_asked_for(path: Path) -> None:
    """With --json stderr has one object with code, what and next, also of a usage error."""
    for arguments, code in ((("get", "99"), "not_found"), (("left", "--bogus"), "usage"), (("lft",), "usage")):
        result = run(path, *arguments, "--json")
        assert result.stdout == ""
        assert json.loads(result.stderr)["error"]["code"] == code


@HOMELESS
def test_a_wrong_key_is_told_from_a_missing_one(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another key is code 4 on every command and changes no byte; no key at all is code 5."""
    before = path.read_bytes()
    for arguments in (("left",), ("add", "goal", "x"), ("verify",), ("key", "export", "--yes")):
        result = run(path, *arguments, key=f"hex:{'00' * 32}")
        assert (result.exit_code, result.stdout) == (Exit.WRONG_KEY, "")
    at_home(tmp_path, monkeypatch)
    assert run(path, "left", key=None).exit_code == Exit.KEY_MISSING
    assert path.read_bytes() == before


def test_reading_makes_no_store(tmp_path: Path) -> None:
    """A command that reads says that there is no store, and how to make one."""
    for arguments in (("left",), ("resume",), ("find", "x"), ("update", "1", "--status", "done"), ("log", "--head")):
        result = run(tmp_path / "none.db", *arguments)
        assert result.exit_code == Exit.STORE_MISSING
        assert "agentmem init" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_store_is_left_alone(tmp_path: Path) -> None:
    """A database of another program is refused with code 10 or 4 and keeps its bytes."""
    other = tmp_path / "other.db"
    other.write_bytes(b"something else entirely" * 500)
    assert run(other, "add", "goal", "x").exit_code in (Exit.DAMAGED, Exit.WRONG_KEY)
    assert other.read_bytes() == b"something else entirely" * 500


def test_a_key_file_is_taken_from_its_path(tmp_path: Path) -> None:
    """--key-file goes before the environment; a file that others can read, or that is not there, is refused."""
    name = tmp_path / "work.key"
    name.write_text("a passphrase of words\n", "utf-8")
    name.chmod(0o600)
    store = tmp_path / "own.db"
    assert run(store, "init", "--key-file", str(name)).exit_code == 0
    assert run(store, "left", "--key-file", str(name)).exit_code == 0
    assert run(store, "left").exit_code == Exit.WRONG_KEY
    assert run(store, "left", "--key-file", str(tmp_path / "none")).exit_code == Exit.KEY_MISSING
    if os.name == "posix":
        name.chmod(0o644)
        assert "chmod 600" in run(store, "left", "--key-file", str(name)).stderr


def test_the_key_is_where_it_says(path: Path) -> None:
    """`key where` names the place and never the key; `key export --yes` prints it and warns."""
    shown = run(path, "key", "where")
    assert shown.stdout == "environment\n"
    assert KEY.hex() not in shown.output
    exported = run(path, "key", "export", "--yes")
    assert exported.stdout == f"{HEX}\n"
    assert "warning" in exported.stderr


@HOMELESS
def test_init_says_where_the_key_is_and_what_it_guards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first `init` makes a key file, names it, and says that losing it loses all."""
    at_home(tmp_path, monkeypatch)
    made = run(tmp_path / "new.db", "init", key=None)
    assert made.stdout == f"{tmp_path / 'new.db'}\n"
    assert str(default_key_file()) in made.stderr
    assert "loses all" in made.stderr
    assert "not your account" in made.stderr
    again = run(tmp_path / "new.db", "init", key=None)
    assert (again.exit_code, "already" in again.stderr) == (0, True)
    found = json.loads(run(tmp_path / "new.db", "init", "--json", key=None).stdout)
    assert (found["made"], found["key"]["source"]) == (False, "default_file")


def test_a_new_store_is_never_made_silently(tmp_path: Path) -> None:
    """A write that makes a store says so, for a mistyped path would otherwise look empty."""
    assert "made a new store" in run(tmp_path / "typo.db", "add", "goal", "x").stderr


def test_stdin_that_is_not_text_is_refused(path: Path) -> None:
    """Bytes that are no UTF-8 are a usage error which names the place, and two `-` are one too many."""
    result = run(path, "add", "fact", "x", "--body", "-", stdin=b"ab\xff")
    assert (result.exit_code, "byte 3" in result.stderr) == (Exit.USAGE, True)
    assert run(path, "add", "fact", "-", "--body", "-", stdin="x").exit_code == Exit.USAGE


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(st.text(st.characters(exclude_characters="\0"), max_size=20), min_size=1, max_size=3))
def test_no_argument_makes_a_traceback(path: Path, words: list[str]) -> None:
    """Whatever stands on the command line, it ends with a documented code, and no control character is printed."""
    for command in (
        "get",
        "find",
        "add",
        "query",
        "left",
        "history",
        "revisions",
        "undo",
        "forget",
        "redact",
        "review",
    ):
        result = run(path, command, *words)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert result.exit_code in list(Exit)
        assert not set(result.output) & {"\x1b", "\x9b", "\x07", "\u202e"}
