"""A store under test beside its model: how commands are run, and what holds after each."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from replay_model import TASKS, Model, exact

from agentmem import AgentMemError, Closed, Held, Store

KEY = bytes(range(32))


class Machine(RuleBasedStateMachine):
    """Every command, in any order, in and out of transactions, by two runs."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp()
        self.time = 1_750_000_000_000_000
        self.store = Store.open(
            f"{self.directory}/s.db", project="acme", key=KEY, durability="normal", clock=lambda: self.time
        )
        self.model = Model()
        self.open: list[tuple[Any, Model, list[Any]]] = []
        self.made: list[Any] = []  # the values made since the innermost transaction began
        self.counter = 0
        self.heard: list[int] = []

    def teardown(self) -> None:
        try:
            while self.open:
                self._end(commit=True)
            self._sound()
            self._everything_is_found()
        finally:
            for transaction, *_ in reversed(self.open):
                transaction.__exit__(KeyError, KeyError(), None)
            self.store.close()
            shutil.rmtree(self.directory)

    # Reading

    @property
    def one(self) -> Store:
        return self.store.in_project(self.model.name).acting(author="ana", run="one")

    @property
    def two(self) -> Store:
        return self.store.in_project(self.model.name).acting(author="bob", run="two", origin="web")

    def rows(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with self.store.database.read() as connection:
            return connection.execute(sql, values).fetchall()

    def note(self, index: int) -> int:
        return list(self.model.notes)[index % len(self.model.notes)]

    def thing(self, index: int) -> int:
        return list(self.model.things)[index % len(self.model.things)]

    def held(self, run: str, *records: int) -> bool:
        """Whether another run holds any of the records."""
        leases = (self.model.leases.get(record) for record in records)
        return any(lease is not None and lease[0] != run and lease[1] > self.time for lease in leases)

    # Writing

    def write(self, command: Callable[[], Any], *, blocked: bool = False, request: bool = False) -> Any:
        """Run a command; see that it leaves events if and only if it says so, and none where it is refused."""
        self.time += 1
        before = self.store.log.head()
        try:
            done = command()
        except Held:
            assert blocked
            assert self.store.log.head() == before
            return None
        self.made.append(done)
        fresh = self.store.log.read(after=before.seq, project="*", limit=1000)
        counted = len(getattr(done, "ids", (0,))) and (getattr(done, "created", 0) or done.changed)
        assert bool(fresh) == bool(counted), (done, [event.kind for event in fresh])
        if blocked:
            assert not fresh, "a record that somebody else holds was changed"
        for event in fresh:
            table = "entity" if event.type == "entity" else event.type
            row = self.rows(
                f"SELECT {'id' if table == 'checkpoint' else 'revision'} FROM {table} WHERE id = ?", event.record
            )
            assert len(row) == 1, f"{event.kind} concerns {event.record}, which is no {table}"
            last = self.rows("SELECT max(seq) FROM event WHERE record = ? AND kind NOT LIKE '%.claim.%'", event.record)
            assert row[0][0] == last[0][0]
        if hasattr(done, "revision"):
            last = self.rows("SELECT max(seq) FROM event WHERE record = ? AND kind NOT LIKE '%.claim.%'", done.id)
            assert done.revision == last[0][0]
            assert done.provisional == bool(self.open)
        return done

    def head(self) -> int:
        return self.store.log.head().seq

    # Transactions

    @precondition(lambda self: len(self.open) < 3)
    @rule()
    def begin(self) -> None:
        transaction = self.store.transaction()
        transaction.__enter__()
        self.open.append((transaction, copy.deepcopy(self.model), self.made))
        self.made = []

    @precondition(lambda self: self.open)
    @rule(commit=st.booleans())
    def end(self, commit: bool) -> None:
        self._end(commit=commit)

    def _end(self, *, commit: bool) -> None:
        transaction, before, outer = self.open.pop()
        if commit:
            transaction.__exit__(None, None, None)
            self.made = outer + self.made
            if not self.open:
                assert not any(getattr(value, "provisional", False) for value in self.made)
                self.made = []
            return
        error = KeyError("undo")
        transaction.__exit__(KeyError, error, None)
        for value in self.made:
            assert not value.provisional
            if hasattr(value, "id"):
                assert value.void
                with pytest.raises(Closed):
                    self.store.get(value)
        self.model, self.made = before, outer

    def refuse(self, command: Callable[[], Any]) -> None:
        """The command is refused with one of our errors and leaves no trace."""
        self.time += 1
        head, dump = self.store.log.head(), self._dump()
        with pytest.raises(AgentMemError):
            command()
        assert self.store.log.head() == head
        assert self._dump() == dump

    # What holds always

    def _dump(self) -> list[Any]:
        tables = (
            "project",
            "note",
            "link",
            "entity",
            "mark",
            "checks",
            "item",
            "checkpoint",
            "summary",
            "lease",
            "request",
        )
        return [self.rows(f"SELECT * FROM {table}") for table in tables]

    @invariant()
    def holds(self) -> None:
        self._sound()
        self._notes_are_as_written()
        self._items_are_as_written()
        self._entities_are_as_written()
        self._reports_are_as_written()
        self._what_is_left_is_left()
        if self.model.notes:
            self._found(list(self.model.notes)[-1])

    def _sound(self) -> None:
        """The chain holds, and the log folded anew gives the same tables."""
        found = self.store.verify(replay=True)
        assert found.problems == ()

    def _notes_are_as_written(self) -> None:
        columns = "kind, title, status, body, pinned, confidence, parent, entity, why, root, shut, open_items"
        stored = {row[0]: row[1:] for row in self.rows(f"SELECT id, {columns} FROM note")}
        assert stored.keys() == self.model.notes.keys()
        for found, note in self.model.notes.items():
            unticked = sum(not self.model.entries[item].done for item in note.items)
            assert stored[found] == (
                note.kind, note.title, note.status, note.body or None if found not in stored else stored[found][3],
                note.pinned, note.confidence, note.parent, note.entity, note.why,
                self.model.above(found)[-1], self.model.shut(found), unticked,
            )  # fmt: skip
            assert (stored[found][3] or "") == note.body
        for parent, children in self.model.order.items():
            ordered = self.rows("SELECT id FROM note WHERE parent IS ? ORDER BY position, id", parent)
            assert [found for (found,) in ordered] == children

    def _items_are_as_written(self) -> None:
        stored = {row[0]: row[1:] for row in self.rows("SELECT id, note, number, text, done, removed FROM item")}
        assert stored == {
            found: (self.model.owner[found], entry.number, entry.text, entry.done, entry.removed)
            for found, entry in self.model.entries.items()
        }
        for found, note in self.model.notes.items():
            ordered = self.rows("SELECT id FROM item WHERE note = ? AND removed = 0 ORDER BY position, id", found)
            assert [item for (item,) in ordered] == note.items

    def _entities_are_as_written(self) -> None:
        view = self.one
        stored = {
            row[0]: row[1:] for row in self.rows("SELECT id, type, key, status, parent, confidence, attrs FROM entity")
        }
        assert stored == {
            found: (thing.type, thing.key, thing.status, thing.parent, thing.confidence, exact(thing.attrs))
            for found, thing in self.model.things.items()
        }
        marks = self.rows("SELECT entity, name, result, value FROM mark")
        assert {(entity, name): (result, value or "null") for entity, name, result, value in marks} == {
            (found, name): mark for found, thing in self.model.things.items() for name, mark in thing.marks.items()
        }
        assert {(one.type, one.where): one.names for one in view.entities.expected()} == {
            declared: names for declared, names in self.model.declared.items() if names
        }
        assert set(self.rows("SELECT src, kind, dst FROM link")) == self.model.links

    def _reports_are_as_written(self) -> None:
        view = self.one
        for note, (found, work, result, seq) in self.model.summaries.items():
            kept = view.get(found)
            assert (kept.note, kept.work or "", kept.result or "", kept.revision) == (note, work, result, seq)
            assert kept.stale == (self.model.notes[note].touched > seq)
        assert dict(self.rows("SELECT id, text FROM checkpoint")) == self.model.checkpoints

    def _what_is_left_is_left(self) -> None:
        view = self.one
        self._left_is(view.left(), None)
        for task in [found for found, note in self.model.notes.items() if note.kind in TASKS][-3:]:
            self._left_is(view.left(task), task)

    def _left_is(self, answer: Any, task: int | None) -> None:
        assert (answer.steps_total, answer.items_total, answer.marks_total) == self.model.left(task)

    def _found(self, note: int) -> None:
        for word in self.model.notes[note].title.split():
            hits = self.one.find(word, limit=1000)
            assert note in [hit.id for hit in hits], f"{word!r} does not find #{note}"

    def _everything_is_found(self) -> None:
        for note in self.model.notes:
            self._found(note)
