"""Failed attempts that a command would repeat: precision before recall."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentmem import InvalidInput, Store

CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[2] / "data" / "commands.jsonl").read_text("utf-8").splitlines()
    if line.strip()
]


def judged(store: Store) -> tuple[list[dict[str, Any]], list[dict[str, Any]], int]:
    """The pairs wrongly taken for one, those missed, and how many are one; each attempt among all others."""
    ids: dict[str, int] = {}
    for case in CASES:
        if case["attempt"] not in ids:
            opened = store.attempts.open(case["attempt"])
            store.attempts.close(opened, "failed", why=case["why"])
            ids[case["attempt"]] = opened.id
    wrong, missed = [], []
    for case in CASES:
        found = {one.id for one in store.attempts.failed_like(case["command"], limit=10)}
        is_one = ids[case["attempt"]] in found
        if is_one and not case["same"]:
            wrong.append(case)
        if not is_one and case["same"]:
            missed.append(case)
    return wrong, missed, sum(case["same"] for case in CASES)


def test_precision_and_recall_on_labelled_pairs(opened: Any) -> None:
    """Of more than 230 pairs, among all of them at once: hardly a wrong one, most of the right ones."""
    wrong, missed, same = judged(opened(embedder=None))
    right = same - len(missed)
    assert len(CASES) >= 230
    assert right / (right + len(wrong)) >= 0.95, wrong
    assert right / same >= 0.9, missed


@pytest.mark.parametrize(
    ("attempt", "command"),
    [
        ("nmap -sS 10.0.0.1", "nmap -sS 10.0.0.2"),
        ("curl https://a.example.com/x", "curl https://a.example.com/y"),
        ("pip install foo==1.2", "pip install foo==1.3"),
        ("make -C /srv/a all", "make -C /srv/b all"),
    ],
)
def test_what_tells_two_tries_apart_tells_them_apart(store: Store, attempt: str, command: str) -> None:
    """Another address, path or version is another try."""
    opened = store.attempts.open(attempt)
    store.attempts.close(opened, "failed", why="no")
    assert store.attempts.failed_like(attempt)[0].id == opened.id
    assert store.attempts.failed_like(command) == ()


def test_only_failed_attempts_of_the_project_count(store: Store) -> None:
    """Neither one that worked, nor one that is open, nor one of another project."""
    store.attempts.close(store.attempts.open("make kernel image"), "worked")
    store.attempts.open("make kernel modules")
    other = store.in_project("other")
    other.attempts.close(other.attempts.open("make kernel docs"), "failed", why="no")
    for command in ("make kernel image", "make kernel modules", "make kernel docs"):
        assert store.attempts.failed_like(command) == ()
    assert other.attempts.failed_like("make kernel docs")[0].why == "no"


@pytest.mark.parametrize(
    "command", ["", " ", "&&", "'; DROP TABLE note; --", "a" * 100_000, 'NEAR("x")', "\u202e", "{}[]()"]
)
def test_any_text_is_a_command(store: Store, command: str) -> None:
    """Nothing in it is syntax; of one without words nothing is found."""
    store.attempts.close(store.attempts.open("make kernel image"), "failed", why="no")
    assert store.attempts.failed_like(command) == ()


def test_what_is_no_text_is_refused(store: Store) -> None:
    """With a typed error."""
    for given in (None, 3, "\x00"):
        with pytest.raises(InvalidInput):
            store.attempts.failed_like(given)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.attempts.failed_like("make", limit=0)
