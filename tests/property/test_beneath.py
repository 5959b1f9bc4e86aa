"""Whatever a limited view is asked to do, nothing outside its note changes."""

from __future__ import annotations

from typing import Any

from commands import COMMANDS, Command, attempt, ids, opened, rows
from hypothesis import given, settings

from agentmem import Store
from agentmem.records.beneath import within

OUTSIDE = {
    "note": "SELECT id, title, body, status, parent, position, scope, why, revision FROM note",
    "item": "SELECT note, id, text, done, removed, revision FROM item",
    "checkpoint": "SELECT coalesce(task, -1), id, text FROM checkpoint",
    "summary": "SELECT note, id, work, result, revision FROM summary",
    "link": "SELECT src, dst, kind FROM link",
    "entity": "SELECT -1, id, key, status, attrs, revision FROM entity",
    "mark": "SELECT -1, entity, name, result, seq FROM mark",
    "checks": "SELECT -1, id, names, revision FROM checks",
    "project": "SELECT -1, id, name, revision FROM project",
    "lease": "SELECT record, holder, run FROM lease",
}


def outside(store: Store, limit: int) -> dict[str, list[tuple[Any, ...]]]:
    """What belongs neither to the note nor to what lies beneath it; the note as to what it is and where it stands."""
    found = {}
    with store._binding.reading() as view:
        reached = {limit, *(note for note in ids(store, "SELECT id FROM note") if within(view, note, limit))}
    for table, sql in OUTSIDE.items():
        found[table] = [row for row in rows(store, sql) if row[0] not in reached]
    found["own"] = rows(
        store, f"SELECT title, parent, position, scope, kind, pinned, entity FROM note WHERE id = {limit}"
    )
    return found


@settings(deadline=None, max_examples=60)
@given(before=COMMANDS, during=COMMANDS)
def test_nothing_outside_the_note_changes(before: list[Command], during: list[Command]) -> None:
    """Random commands of every kind, on records inside and outside."""
    with opened() as store:
        goal = store.notes.add("goal", "Above")
        step = store.notes.add("step", "The task", parent=goal)
        store.notes.add("step", "Beside", parent=goal)
        for command in before:
            attempt(store, command)
        if not rows(store, f"SELECT 1 FROM note WHERE id = {step.id} AND scope IS NULL AND parent = {goal.id}"):
            return  # the commands gave it a scope or another place: entities, or nothing above it, are other tests' matter
        if rows(store, f"SELECT 1 FROM note WHERE id = {goal.id} AND scope IS NOT NULL"):
            return
        worker = store.beneath(step)
        expected = outside(store, step.id)
        for command in during:
            attempt(worker, command)
            assert outside(store, step.id) == expected, command
        assert store.verify(replay=True)
