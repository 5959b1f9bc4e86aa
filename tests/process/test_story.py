"""The story of the benchmarks in a short form: sessions, kills, subagents, hooks; nothing lost, nothing done twice."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("mcp")

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.story import tell


def test_three_sessions_with_kills_and_four_subagents(tmp_path: Path) -> None:
    """Every check of every endpoint is done once, no failed attempt is made again, and the log is sound."""
    told, log = tell(40, tmp_path)
    assert (log["endpoints"], log["checks"], log["checked twice"], log["wrong"], log["lost"]) == (40, 120, 0, 0, 0)
    assert (log["failed attempts"], log["made again"]) == (4, 0)
    assert told.news >= 4
    assert all(one["tokens"] <= 1600 for one in told.resumes)
