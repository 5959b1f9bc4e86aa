"""Where the token of a server comes from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agentmem.adapters.http.token import checked_token, load_token
from agentmem.errors import InvalidInput, IoFailed

GOOD = "0123456789abcdefghijklmnopqrstuv"


def test_a_token_file_is_made_where_it_is_missing(tmp_path: Path) -> None:
    """With a new token, for this user alone; the next start finds the same."""
    path = tmp_path / "config" / "http.token"
    token = load_token(file=path, environment={})
    assert len(token) >= 43
    assert path.read_text() == token + "\n"
    if os.name == "posix":
        assert path.stat().st_mode & 0o777 == 0o600
    assert load_token(file=str(path), environment={}) == token
    assert [one.name for one in path.parent.iterdir()] == ["http.token"]
    assert load_token(file=tmp_path / "other", environment={}) != token


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    """What others may have read is no secret."""
    path = tmp_path / "token"
    path.write_text(GOOD)
    path.chmod(mode)
    with pytest.raises(InvalidInput, match="open to others"):
        load_token(file=path, environment={})


@pytest.mark.skipif(os.name != "posix", reason="pipes in the file system are of POSIX")
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    """A pipe, a directory."""
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(InvalidInput, match="regular"):
        load_token(file=tmp_path / "pipe", environment={})
    with pytest.raises((InvalidInput, IoFailed)):
        load_token(file=tmp_path, environment={})


def test_the_environment_is_emptied_of_the_token(tmp_path: Path) -> None:
    """Also where the file goes before it: no child process is to have it."""
    environment = {"AGENTMEM_HTTP_TOKEN": GOOD, "PATH": "/bin"}
    assert load_token(file=None, environment=environment) == GOOD
    assert environment == {"PATH": "/bin"}
    environment["AGENTMEM_HTTP_TOKEN"] = GOOD
    assert load_token(file=tmp_path / "token", environment=environment) != GOOD
    assert environment == {"PATH": "/bin"}


@pytest.mark.parametrize(
    "bad", ["", "short", GOOD[:-1], GOOD + " x", GOOD + "\n", GOOD + "é", "a" * 513, GOOD + "\x00"]
)
def test_what_is_no_token_is_refused_and_not_shown(tmp_path: Path, bad: str) -> None:
    """32 printable ASCII characters or more, from wherever it comes."""
    with pytest.raises(InvalidInput) as refused:
        load_token(file=None, environment={"AGENTMEM_HTTP_TOKEN": bad})
    assert not bad or bad not in str(refused.value)
    with pytest.raises(InvalidInput):
        checked_token(bad)
    path = tmp_path / "token"
    path.touch(0o600)
    path.write_bytes(bad.encode("latin-1") + b"\n")
    with pytest.raises(InvalidInput):
        load_token(file=path, environment={})


def test_without_a_token_there_is_no_server() -> None:
    """The error says how to get one."""
    with pytest.raises(InvalidInput, match="--token-file"):
        load_token(file=None, environment={})
