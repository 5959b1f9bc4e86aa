"""The commands that search by meaning, have everything embedded, and tell how far that is."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agentmem.adapters.cli.exits import Exit

CAR = "The car needs an oil change"


@pytest.fixture(autouse=True)
def _no_embedder_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENTMEM_EMBEDDER", raising=False)


@pytest.fixture
def car(cli: Any, goal: str) -> str:
    """The id of a fact beneath the goal, written by the command line."""
    made: str = cli.out("add", "fact", CAR, "--parent", goal, "--author", "bob", "--tag", "garage")
    return made


def recalled(cli: Any, *arguments: str) -> list[str]:
    return [str(hit["record"]["id"]) for hit in cli.json("recall", *arguments)["hits"]]


def test_recall_finds_by_meaning(cli: Any, car: str) -> None:
    """No word of the query is in the fact; it was written by a process that embedded nothing."""
    assert car in cli.out("recall", "automobile", "maintenance").splitlines()[0]
    found = cli.json("recall", "automobile maintenance")
    assert (found["meaning"], found["hits"][0]["record"]["title"]) == ("used", CAR)
    assert found["hits"][0]["why"]["meaning"] > 0.3
    assert recalled(cli, "photosynthesis in plants") == []
    assert "Nothing relevant" in cli.out("recall", "photosynthesis in plants")


def test_recall_embeds_what_waits(cli: Any, car: str) -> None:
    """A process that ends after its answer leaves the vectors in the file for the next."""
    assert cli.json("stats")["vectors"] == 0
    cli.run("recall", "automobile")
    stats = cli.json("stats")
    assert (stats["waiting"], stats["embedded"]) == (0, 2)
    assert "2 vectors of 2 records, by all-MiniLM-L6-v2" in cli.out("stats")


@pytest.mark.parametrize(
    ("options", "there"),
    [
        (("--kind", "fact"), True), (("--kind", "lesson"), False), (("--status", "active"), True),
        (("--status", "dropped"), False), (("--tag", "garage"), True), (("--tag", "kitchen"), False),
        (("--by", "bob"), True), (("--by", "ada"), False), (("--from", "agent"), True), (("--from", "web"), False),
        (("--since", "2020-01-01"), True), (("--since", "2999-01-01T12:00"), False), (("--until", "2999-01-01"), True),
        (("--until", "2020-01-01"), False), (("--under", "GOAL"), True), (("--under", "OTHER"), False),
        (("--about", "host:a"), False), (("--everywhere", "--project", "other"), True), (("--project", "other"), False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", ["recall", "find"])
def test_both_searches_take_every_filter(
    cli: Any, goal: str, car: str, command: str, options: tuple[str, ...], there: bool
) -> None:
    """By themselves, with the words and the times of the command line."""
    cli.run("put", "host", "a")
    cli.run("add", "fact", "Elsewhere", "--project", "other")
    other = cli.out("add", "goal", "Another")
    given = [{"GOAL": goal, "OTHER": other}.get(each, each) for each in options]
    found = cli.json(command, "oil change", *given)
    ids = [str(hit["record"]["id"] if command == "recall" else hit["id"]) for hit in found["hits"]]
    assert (car in ids) is there


def test_recall_keeps_its_limits(cli: Any, goal: str) -> None:
    """So many hits, so many tokens; a task lifts what belongs to it unless told not to."""
    for number in range(12):
        cli.run("add", "fact", f"Observation {number} of the running motor", "--parent", goal)
    assert len(recalled(cli, "motor", "--limit", "3")) == 3
    short = cli.out("recall", "motor", "--limit", "12", "--budget", "300")
    assert 0 < len(short) < len(cli.out("recall", "motor", "--limit", "12", "--budget", "4000"))
    lifted = cli.json("recall", "motor", "--task", goal)["hits"]
    assert all(hit["why"]["in_task"] for hit in lifted)
    assert not any(hit["why"]["in_task"] for hit in cli.json("recall", "motor", "--task", goal, "--whole")["hits"])
    assert cli.error("recall", "motor", "--limit", "0", code=Exit.USAGE)["code"] == "invalid_input"
    assert cli.error("recall", "?!", code=Exit.USAGE)["code"] == "invalid_input"
    assert cli.error("recall", "motor", "--since", "yesterday", code=Exit.USAGE)["code"] == "invalid_input"
    assert "A past has no search" in cli.error("recall", "motor", "--at", "1", code=Exit.USAGE)["what"]


def test_what_is_recalled_is_harmless_for_a_terminal(cli: Any) -> None:
    """Control characters of a text are shown, not sent, and text from elsewhere is quoted."""
    cli.run("add", "fact", "The motor", "--body", "It is \x1b[31mred\x07 now", "--origin", "web")
    out = cli.out("recall", "motor red")
    assert "\x1b" not in out
    assert "\x07" not in out
    assert "web" in out


def test_recall_of_a_store_that_may_only_be_read(cli: Any, car: str, tmp_path: Path) -> None:
    """It answers by meaning, and the file stays as it is; so it does where nothing can be written beside it."""
    before = cli.path.read_bytes()
    found = cli.json("recall", "automobile maintenance", "--read-only")
    assert (found["meaning"], [hit["record"]["id"] for hit in found["hits"]]) == ("used", [int(car)])
    assert cli.path.read_bytes() == before
    assert cli.json("stats")["waiting"] == 2
    if os.geteuid():  # to root every directory is writable
        tmp_path.chmod(0o500)
        try:
            assert recalled(cli, "automobile maintenance") == [car]
        finally:
            tmp_path.chmod(0o700)


# The embedder


def test_an_embedder_is_chosen_by_option_or_environment(cli: Any, car: str, tmp_path: Path) -> None:
    """`none` goes by words; a folder without a model does too, and says why; the option goes before the environment."""
    assert cli.json("recall", "automobile", "--embedder", "none")["meaning"] == "off"
    assert "By words only" in cli.run("recall", "oil", AGENTMEM_EMBEDDER="none").stdout
    found = json.loads(cli.run("recall", "oil", "--json", AGENTMEM_EMBEDDER=str(tmp_path / "nowhere")).stdout)
    assert (found["meaning"], [hit["record"]["id"] for hit in found["hits"]]) == ("missing", [int(car)])
    shipped = cli.run("--embedder", "shipped", "recall", "automobile", "--json", AGENTMEM_EMBEDDER="none").stdout
    assert json.loads(shipped)["meaning"] == "used"


# index


def test_index_has_everything_embedded(cli: Any, car: str) -> None:
    """It waits for all of it, says how much that is, and a second time does nothing."""
    assert "2 vectors of 2 records" in cli.out("index")
    found = cli.json("index", "--timeout", "60")
    assert (found["whole"], found["embedded"], found["waiting"], found["embedding_failed"]) == (True, 2, 0, None)
    assert found["embedder"].startswith("all-MiniLM-L6-v2:")


def test_index_says_what_is_left_and_why(cli: Any, car: str, tmp_path: Path) -> None:
    """Without the time for it, or without a model, the exit code is 1, and the records are as they were."""
    told = cli.run("index", "--embedder", str(tmp_path / "nowhere"), code=Exit.FAILURE)
    assert "nowhere" in told.stderr
    assert not cli.json("index", "--read-only", code=Exit.FAILURE)["whole"]
    told = cli.run("index", "--timeout", "0", code=Exit.FAILURE)
    assert "not whole" in told.stderr
    assert "2 changed since" in told.stdout
    assert cli.json("index", "--embedder", "none")["whole"]
    cli.run("index", "--timeout", "-1", code=Exit.USAGE)
    assert cli.json("verify")["sound"]


def test_a_failing_embedder_is_told_in_stats(cli: Any, car: str, tmp_path: Path) -> None:
    """`index` tells why nothing is embedded; `stats` of another process knows how many wait."""
    found = cli.json("index", "--embedder", str(tmp_path / "nowhere"), code=Exit.FAILURE)
    assert "nowhere" in found["embedding_failed"]
    assert "0 vectors of 0 records, 2 changed since" in cli.out("stats")
