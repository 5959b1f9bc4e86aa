"""`review`: for any tree and any changes the indexes lead to what a look at each note does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import Store

DAY = 86_400.0


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_stalled_and_stale_are_what_a_walk_through_everything_finds(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    """For any tree and any changes: the indexes lead to what looking at each note beneath does."""

    class Clock:
        now = 1_790_000_000_000_000

        def __call__(self) -> int:
            return self.now

    clock = Clock()
    path = tmp_path_factory.mktemp("walk") / "a.db"
    with Store.open(path, project="p", encrypted=False, durability="normal", clock=clock) as store:
        made: list[int] = []
        kinds = st.sampled_from(["goal", "step", "step", "fact"])
        for _ in range(data.draw(st.integers(3, 14))):
            kind = data.draw(kinds) if made else "goal"
            parent = None if kind == "goal" else data.draw(st.sampled_from(made))
            made.append(store.notes.add(kind, f"{kind} {len(made)}", parent=parent, similar=False).id)  # type: ignore[arg-type]
        for note in data.draw(st.lists(st.sampled_from(made), max_size=5)):
            if store.notes.get(note).kind != "fact":
                store.summarize(note, result="So far", status=data.draw(st.sampled_from(["done", "dropped"])))
        clock.now += int(20 * DAY * 1e6)
        until = store.log.head().seq
        for note in data.draw(st.lists(st.sampled_from(made), max_size=4)):
            match data.draw(st.sampled_from(["note", "edit", "check", "status", "item", "move"])):
                case "note":
                    store.notes.add("fact", f"Later at {note}", parent=note, similar=False)
                case "edit":
                    store.notes.update(note, body=f"{clock.now} {note}")
                case "check":
                    store.checkpoint("Here", task=note)
                case "status" if store.notes.get(note).kind != "fact":
                    store.notes.update(note, status=data.draw(st.sampled_from(["open", "active", "done"])))
                case "item":
                    store.checklists.add(note, "box")
                case "move" if store.notes.get(note).parent is not None:
                    above = data.draw(st.sampled_from(made))
                    if above not in {one.id for one in store.notes.list(under=note, limit=1000)} | {note}:
                        store.notes.move(note, parent=above)
        found = store.review(limit=1000)
        assert {finding.ref for finding in found["stalled"]} == _stalled_by_walking(store, until)
        summed = [note for note in made if (summary := _summary(store, note)) is not None and summary.stale]
        assert sorted(finding.record or 0 for finding in found["stale"]) == sorted(summed)


def _summary(store: Store, note: int) -> Any:
    return store.task_summary(note).summary if store.notes.get(note).kind != "fact" else None


def _stalled_by_walking(store: Store, until: int) -> set[str]:
    """Unfinished tasks with no closed one above, nothing of the log after `until` at or beneath, no such one above."""
    notes = {note.id: note for note in store.notes.list(limit=1000)}
    fresh: set[int] = set()
    moved = {
        event.record
        for event in store.log.read(after=until, limit=1000)
        if event.payload and "parent" in str(event.payload)
    }
    for event in store.log.read(after=until, limit=1000):
        at = event.record
        if event.type == "item":
            at = store.get(event.record).note  # type: ignore[union-attr]
        elif event.type == "checkpoint":
            at = store.get(event.record).task  # type: ignore[union-attr, assignment]
        fresh.add(at)
        if (
            event.record in moved
            and event.kind == "note.changed"
            and event.payload
            and "parent" in event.payload["set"]
        ):
            fresh.add(_parent_before(store, event.record, event.seq))

    def above(note: int) -> list[int]:
        found = []
        while (parent := notes[note].parent) is not None:
            found.append(parent)
            note = parent
        return found

    alive = {one for note in fresh if note in notes for one in [note, *above(note)]}
    closed = ("done", "failed", "dropped")
    tasks = {
        note.id
        for note in notes.values()
        if note.kind in ("goal", "step")
        and note.status in ("open", "active")
        and not any(notes[one].kind in ("goal", "step") and notes[one].status in closed for one in above(note.id))
    }
    still = tasks - alive
    return {str(note) for note in still if not still.intersection(above(note))}


def _parent_before(store: Store, note: int, seq: int) -> int:
    """The parent of a note before an event moved it: that one changed too."""
    parent = 0
    for event in store.log.read(record=note, limit=1000):
        if event.seq >= seq:
            break
        if event.payload is not None:
            values = event.payload.get("set", event.payload)
            parent = values.get("parent", parent)
    return parent
