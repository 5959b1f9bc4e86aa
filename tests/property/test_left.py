"""`left` and `stale` against a plain reading of the whole tree."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import Event, Store
from agentmem.context.left import gather
from agentmem.context.reach import reach

TASKS = ("goal", "step")
OPEN = ("open", "active")
CLOSED = ("done", "failed", "dropped")
STATUSES = {
    "goal": (*OPEN, *CLOSED),
    "step": (*OPEN, *CLOSED),
    "fact": ("active", "dropped"),
    "attempt": ("active", "failed"),
}

# One note: its kind, its status, which earlier note it stands beneath, its ticked and unticked items, its tag.
notes = st.lists(
    st.tuples(
        st.sampled_from(("goal", "step", "step", "step", "fact", "attempt")),
        st.integers(0, 4),
        st.integers(0, 30),
        st.lists(st.booleans(), max_size=3),
        st.sampled_from(((), ("p0",), ("p1",), ("other",))),
    ),
    min_size=1,
    max_size=25,
)
# What happens afterwards: to which note, what.
changes = st.lists(
    st.tuples(st.integers(0, 30), st.sampled_from(("status", "move", "tick", "summarize")), st.integers(0, 30)),
    max_size=8,
)


class Tree:
    """The notes of a store as dicts, read row by row with nothing derived."""

    def __init__(self, store: Store) -> None:
        with store.database.read() as connection:
            rows = connection.execute("SELECT id, kind, status, parent, position, tags FROM note").fetchall()
            items = connection.execute("SELECT note, number FROM item WHERE done = 0 AND removed = 0").fetchall()
        self.notes = {row[0]: row for row in rows}
        self.items: dict[int, set[int]] = {}
        for note, number in items:
            self.items.setdefault(note, set()).add(number)

    def above(self, note: int) -> list[int]:
        found = []
        parent = self.notes[note][3]
        while parent is not None:
            found.append(parent)
            parent = self.notes[parent][3]
        return found

    def over(self, note: int) -> bool:
        return self.notes[note][1] in TASKS and self.notes[note][2] in CLOSED

    def shut(self, note: int) -> bool:
        return any(self.over(above) for above in self.above(note))

    def inside(self, note: int, task: int | None) -> bool:
        return task is None or note == task or task in self.above(note)

    def path(self, note: int) -> list[tuple[float, int]]:
        return [(self.notes[one][4], one) for one in [*reversed(self.above(note)), note]]

    def open_tasks(self, task: int | None) -> set[int]:
        return {
            note
            for note, row in self.notes.items()
            if row[1] in TASKS and row[2] in OPEN and not self.shut(note) and note != task and self.inside(note, task)
        }

    def open_items(self, task: int | None) -> set[tuple[int, int]]:
        return {
            (note, number)
            for note, numbers in self.items.items()
            for number in numbers
            if self.notes[note][2] not in CLOSED and not self.shut(note) and self.inside(note, task)
        }

    def closed_items(self, task: int | None) -> dict[int, int]:
        """Unticked items in or beneath what is closed, by the uppermost closed task."""
        found: dict[int, int] = {}
        for note, numbers in self.items.items():
            if self.inside(note, task) and (self.notes[note][2] in CLOSED or self.shut(note)):
                top = next((one for one in reversed(self.above(note)) if self.over(one)), note)
                found[top] = found.get(top, 0) + len(numbers)
        return found


def fresh() -> Iterator[Store]:
    with (
        tempfile.TemporaryDirectory() as directory,
        Store.open(Path(directory) / "a.db", project="p", encrypted=False, durability="normal") as store,
    ):
        yield store


def filled(store: Store, made: list[tuple[str, int, int, list[bool], tuple[str, ...]]]) -> list[int]:
    ids: list[int] = []
    for kind, status, place, items, tags in made:
        parent = ids[place % len(ids)] if ids and kind != "goal" and place % 5 else None
        allowed = STATUSES[kind]
        note = store.notes.add(
            kind, f"Note {len(ids)}", status=allowed[status % len(allowed)], parent=parent, tags=tags, similar=False
        )  # type: ignore[arg-type]
        ids.append(note.id)
        for done in items:
            store.checklists.add(note, "box", done=done)
    return ids


def changed(store: Store, ids: list[int], given: list[tuple[int, str, int]]) -> None:
    tree = Tree(store)
    for which, what, other in given:
        note, target = ids[which % len(ids)], ids[other % len(ids)]
        kind = tree.notes[note][1]
        if what == "status":
            store.notes.update(note, status=STATUSES[kind][other % len(STATUSES[kind])])  # type: ignore[arg-type]
        elif what == "move" and kind != "goal" and target != note and note not in Tree(store).above(target):
            store.notes.move(note, parent=target)
        elif what == "tick" and (numbers := Tree(store).items.get(note)):
            store.checklists.done(note, min(numbers))
        elif what == "summarize" and kind in TASKS:
            store.summarize(note, result=f"result {other}")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(notes, changes)
def test_what_is_left_is_what_a_plain_reading_finds(
    made: list[tuple[str, int, int, list[bool], tuple[str, ...]]], later: list[tuple[int, str, int]]
) -> None:
    """Steps, items, totals and what closed tasks hide, for the project, for goals and for steps at any depth."""
    for store in fresh():
        ids = filled(store, made)
        changed(store, ids, later)
        tree = Tree(store)
        with store._binding.reading() as view:
            for task in (None, *ids):
                found = gather(view, task, listed=100)
                assert {step.id for step in found.steps} == tree.open_tasks(task)
                assert found.steps_total == len(found.steps)
                assert {(item[0], item[1]) for item in found.items} == tree.open_items(task)
                assert found.items_total == len(found.items)
                assert {one[0]: one[3] for one in found.closed} == tree.closed_items(task)
                assert found.closed_total == sum(tree.closed_items(task).values())
                free = [
                    step
                    for step in found.steps
                    if not any(tree.notes[one][3] == step.id for one in tree.open_tasks(None))
                ]
                rank = [(step.status != "active", step.priority) for step in free]
                assert rank == sorted(rank)
                if task is not None and reach(view, task).nodes is not None:
                    assert [node.id for node in reach(view, task).nodes or ()] == sorted(
                        (note for note in tree.notes if tree.inside(note, task)), key=tree.path
                    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(notes, changes)
def test_a_summary_is_stale_if_something_beneath_is_younger(
    made: list[tuple[str, int, int, list[bool], tuple[str, ...]]], later: list[tuple[int, str, int]]
) -> None:
    """By the log: any event of a note beneath, of its items or of its summary, after the summary's own."""
    for store in fresh():
        ids = filled(store, made)
        tasks = [note for note in ids if Tree(store).notes[note][1] in TASKS]
        for note in tasks[:3]:
            store.summarize(note, result="first")
        changed(store, ids, later)
        tree = Tree(store)
        with store.database.read() as connection:
            summaries = connection.execute("SELECT note, revision FROM summary").fetchall()
            items = dict(connection.execute("SELECT id, note FROM item").fetchall())
            of = dict(connection.execute("SELECT id, note FROM summary").fetchall())
        events = store.log.read(limit=1000)
        last: dict[int, int] = {}
        for event in events:
            about = items.get(event.record) or of.get(event.record) or event.record
            touched = [about]
            if event.kind == "note.changed" and event.payload and "parent" in event.payload["set"]:
                touched.append(_parent_before(events, event.record, event.seq))
            for note in touched:
                last[note] = max(last.get(note, 0), event.seq)
        for note, revision in summaries:
            expected = any(last.get(one, 0) > revision for one in tree.notes if tree.inside(one, note))
            assert _stale(store, note) is expected


def _parent_before(events: Sequence[Event], record: int, seq: int) -> int:
    parent = 0
    for event in events:
        if event.record == record and event.seq < seq and event.payload:
            values = event.payload["set"] if event.kind == "note.changed" else event.payload
            parent = values.get("parent", parent) or 0 if "parent" in values or event.kind == "note.added" else parent
    return parent


def _stale(store: Store, note: int) -> bool:
    summary = store.task_summary(note).summary
    assert summary is not None
    return summary.stale
