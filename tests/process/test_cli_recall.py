"""Recall as a process: short ones embed little by little, none says anything it was not asked, an interrupt ends them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from test_cli import POSIX, Process, in_terminal

from agentmem import NewNote, Store
from agentmem.adapters.cli.exits import Exit

SAID = "It was seen in the log that the pump runs hot when the valve is shut for long. "


@pytest.fixture
def cli(tmp_path: Path) -> Process:
    """The command line in a directory of its own."""
    return Process(tmp_path)


def written(cli: Process, number: int, sentences: int) -> None:
    """So many facts, none of them embedded."""
    with Store.open(cli.environment["AGENTMEM_DB"], project="acme", key=bytes(range(32)), embedder=None) as store:
        store.notes.add_many([NewNote("fact", f"Observation {one}", body=SAID * sentences) for one in range(number)])


def stats(cli: Process) -> dict[str, int]:
    found: dict[str, int] = json.loads(cli.run("stats", "--json")[0])
    return found


def test_short_processes_get_everything_embedded_little_by_little(cli: Process) -> None:
    """Each keeps what it did in its two seconds, the next goes on; the answer says what is not found by meaning yet."""
    written(cli, 3000, 3)
    done = [stats(cli)["embedded"]]
    for _ in range(2):
        out, err = cli.run("recall", "pump")
        assert err == ""
        assert "records wait to be embedded" in out
        done.append(stats(cli)["embedded"])
    assert 0 == done[0] < done[1] < done[2] < 3000


@POSIX
def test_index_shows_how_far_it_is_at_a_terminal(cli: Process) -> None:
    """A bar at a terminal, none elsewhere; at the end what there is."""
    written(cli, 40, 40)
    shown = in_terminal(cli, ["index"])
    assert "embedding" in shown
    assert "of 40 records" in shown
    assert cli.run("index")[1] == ""


@POSIX
def test_an_interrupt_of_index_keeps_what_was_done(cli: Process) -> None:
    """It ends with the code of an interrupt and no traceback; no claim is left, and the file is sound."""
    written(cli, 400, 40)
    process = subprocess.Popen(
        cli.command("index"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=cli.environment
    )
    while not stats(cli)["embedded"]:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED, err
    assert "Traceback" not in err
    assert 0 < stats(cli)["embedded"] < 400
    assert cli.run("verify")[0].startswith("sound")
