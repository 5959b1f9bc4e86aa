"""Records that were copied from another store are known again, whatever becomes of them here."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem import Store


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    """An export of a goal about a host, from the project `acme`."""
    host = store.entities.put("host", "a", attrs={"port": 1})
    store.notes.add("goal", "One", about=host)
    target = tmp_path / "copy.jsonl"
    store.export(target, project="acme")
    return target


@pytest.fixture
def copy(tmp_path: Path) -> Store:
    """Another store, empty."""
    return Store.open(tmp_path / "other.db", project="here", key=bytes(32), durability="normal", run="r2")


def test_a_redacted_copy_is_known_again(exported: Path, copy: Store) -> None:
    """A second import adds nothing to what was changed and redacted meanwhile."""
    with copy:
        copy.import_(exported)
        (goal,) = copy.notes.list(kind="goal")
        copy.notes.update(goal, title="Two")
        copy.redact(goal)
        assert copy.import_(exported).created == {}
        assert [note.title for note in copy.notes.list()] == ["Two"]
        assert copy.verify(replay=True).problems == ()


def test_a_copy_that_was_undone_and_is_back_is_known_again(exported: Path, copy: Store) -> None:
    """The undo of the undo brings the memory of where it came from back."""
    with copy:
        copy.import_(exported)
        (goal,) = copy.notes.list(kind="goal")
        copy.undo(copy.undo(goal.id).events)
        assert copy.import_(exported).created == {}
        assert copy.verify(replay=True).problems == ()


def test_a_copy_that_became_part_of_another_record_is_known_again(exported: Path, copy: Store) -> None:
    """Also after the record that it is part of was redacted."""
    with copy:
        there = copy.in_project("there")
        there.import_(exported)
        kept = copy.entities.put("host", "a", attrs={"rack": 7})
        copy.projects.merge("there", collisions="merge")
        copy.redact(kept, attr="rack")
        assert copy.import_(exported).created == {}
        assert copy.entities.get("host:a").attrs == {"port": 1}
        assert copy.verify(replay=True).problems == ()
