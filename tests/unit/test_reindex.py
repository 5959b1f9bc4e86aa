"""The index after the analyser changed (TRAPS 20)."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem import Store
from agentmem.recall import reindex

KEY = b"k" * 32


def made_by_another(path: Path, notes: int) -> None:
    """A store whose index another analyser made: it split nothing."""
    with Store.open(path, project="p", key=KEY) as store:
        goal = store.notes.add("goal", "Goal")
        for number in range(notes):
            store.notes.add("fact", f"Observation{number} of the running process", parent=goal)
        store.checklists.add(goal, "tick the box")
        store.checkpoint("standing at the crossroads")
        with store.database.write() as connection:
            connection.execute("UPDATE search SET title = 'nothing', body = '', extra = ''")
            connection.execute("UPDATE meta SET value = 'older' WHERE name = 'analyser'")


def test_opening_schedules_a_rebuild(tmp_path: Path) -> None:
    """A store whose index another analyser made is made anew beside other work, and says so until it is done."""
    path = tmp_path / "s.db"
    made_by_another(path, 20)
    with Store.open(path, project="p", key=KEY, read_only=True) as reader:
        assert "index: made by another analyser" in reader.verify().problems
        assert not reader.find("running").hits
    with Store.open(path, project="p", key=KEY) as store:
        store.wait_for_index()
        assert store.verify().problems == ()
        assert len(store.find("run observation7")) == 1
        assert store.find("crossroads").hits[0].type == "checkpoint"
        assert store.find("tick").hits[0].type == "item"


def test_a_stopped_rebuild_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is durable: what was done is not done again."""
    path = tmp_path / "s.db"
    made_by_another(path, 25)
    monkeypatch.setattr(reindex, "_ROWS", 10)
    monkeypatch.setattr(reindex, "in_background", lambda database: None)

    class Once:
        """Stops after the first piece."""

        def __init__(self) -> None:
            self.asked = 0

        def is_set(self) -> bool:
            self.asked += 1
            return self.asked > 1

    with Store.open(path, project="p", key=KEY) as store:
        assert reindex.rebuild(store.database, stop=Once()) == 10  # type: ignore[arg-type]
    with Store.open(path, project="p", key=KEY) as store:
        assert reindex.rebuild(store.database) == 18
        assert store.verify(replay=True).problems == ()
