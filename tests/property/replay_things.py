"""The commands on entities, marks, checklists and reports."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from replay_machine import Machine
from replay_model import (
    CHECKS,
    CONFIDENCES,
    INDEX,
    KEYS,
    OVER,
    RESULTS,
    TASKS,
    TITLES,
    TYPES,
    VALUES,
    WHERES,
    Entry,
    Thing,
    exact,
)

from agentmem import Result, Row


class Things(Machine):
    """Entities and marks, checklists, checkpoints and summaries."""

    # Entities

    def _find(self, type: str, key: str) -> int | None:
        for found, thing in self.model.things.items():
            if (thing.type, thing.key) == (type, key):
                return found
        return None

    def _put(self, found: int, type: str, key: str, given: dict[str, Any]) -> bool:
        """Set what is given in the model; says whether anything differs."""
        fresh = found not in self.model.things
        thing = self.model.things.setdefault(found, Thing(type, key))
        before = copy.deepcopy(thing)
        for name, value in given.get("attrs", {}).items():
            if value is None:
                thing.attrs.pop(name, None)
            else:
                thing.attrs[name] = value + 0.0 if isinstance(value, float) else value
        for name in ("status", "parent", "confidence"):
            if name in given:
                setattr(thing, name, given[name])
        names = ("status", "parent", "confidence")
        return (
            fresh
            or exact(before.attrs) != exact(thing.attrs)
            or any(getattr(before, name) != getattr(thing, name) for name in names)
        )

    @rule(type=st.sampled_from(TYPES), key=st.sampled_from(KEYS), value=VALUES,
          status=st.sampled_from((None, "new", "up")), parent=INDEX, confidence=CONFIDENCES,
          run=st.sampled_from(("one", "two")))  # fmt: skip
    def put(
        self, type: str, key: str, value: Any, status: str | None, parent: int, confidence: float | None, run: str
    ) -> None:
        found = self._find(type, key)
        given: dict[str, Any] = {"attrs": {"a": value}}
        if status is not None:
            given["status"] = status
        if self.model.things and parent % 3 == 0:
            given["parent"] = self.thing(parent)
        if confidence != 1:
            given["confidence"] = confidence
        view = self.one if run == "one" else self.two
        above = given.get("parent")
        while above is not None:
            if above == found:
                self.refuse(lambda: view.entities.put(type, key, **given))
                return
            above = self.model.things[above].parent
        before = copy.deepcopy(self.model.things)
        if found is not None:
            differs = self._put(found, type, key, given)
            self.model.things = before
        else:
            differs = True
        blocked = found is not None and differs and self.held(run, found)
        done = self.write(lambda: view.entities.put(type, key, **given), blocked=blocked)
        if done is not None:
            assert bool(done.changed) == differs
            self._put(done.id, type, key, given)

    @rule(type=st.sampled_from(TYPES), keys=st.lists(st.sampled_from(KEYS), max_size=4), value=VALUES)
    def put_many(self, type: str, keys: list[str], value: Any) -> None:
        rows = [Row(key, attrs={"b": value}) for key in keys]
        there = [found for found in (self._find(type, key) for key in keys) if found is not None]
        before = copy.deepcopy(self.model.things)
        differing = [found for found in there if self._put(found, type, "", {"attrs": {"b": value}})]
        self.model.things = before
        done = self.write(lambda: self.one.entities.put_many(type, rows=rows), blocked=self.held("one", *differing))
        if done is None:
            return
        for found, key in zip(done.ids, keys, strict=True):
            self._put(found, type, key, {"attrs": {"b": value}})

    @precondition(lambda self: self.model.things)
    @rule(index=INDEX, key=st.sampled_from((*KEYS, "five", "café 数据")))
    def rename(self, index: int, key: str) -> None:
        found = self.thing(index)
        thing = self.model.things[found]
        taken = self._find(thing.type, key)
        if taken is not None and taken != found:
            self.refuse(lambda: self.one.entities.rename(found, key))
            return
        blocked = thing.key != key and self.held("one", found)
        done = self.write(lambda: self.one.entities.rename(found, key), blocked=blocked)
        if done is not None:
            assert done.changed == (() if thing.key == key else ("key",))
            thing.key = key

    @precondition(lambda self: self.model.things)
    @rule(indexes=st.lists(INDEX, min_size=1, max_size=3), names=st.sets(st.sampled_from((*CHECKS, "odd")), min_size=1),
          result=RESULTS, value=VALUES)  # fmt: skip
    def mark(self, indexes: list[int], names: set[str], result: str, value: Any) -> None:
        type = self.model.things[self.thing(indexes[0])].type
        found = [each for each in map(self.thing, indexes) if self.model.things[each].type == type]
        wanted = (result, exact(value))
        fresh = [each for each in found if any(self.model.things[each].marks.get(name) != wanted for name in names)]
        given = {name: Result(result, value=value) for name in sorted(names)}
        done = self.write(lambda: self.one.entities.mark(type, found, given), blocked=self.held("one", *fresh))
        if done is not None:
            assert done.changed == len(set(fresh))
            for each in found:
                self.model.things[each].marks |= dict.fromkeys(names, wanted)

    @precondition(lambda self: self.model.things)
    @rule(index=INDEX, names=st.lists(st.sampled_from(CHECKS), min_size=1, max_size=2))
    def unmark(self, index: int, names: list[str]) -> None:
        found = self.thing(index)
        thing = self.model.things[found]
        there = [name for name in names if name in thing.marks]
        blocked = bool(there) and self.held("one", found)
        done = self.write(lambda: self.one.entities.unmark(thing.type, [found], names), blocked=blocked)
        if done is not None:
            assert done.changed == bool(there)
            for name in there:
                thing.marks.pop(name, None)

    @rule(
        type=st.sampled_from(TYPES),
        where=st.sampled_from(list(WHERES)),
        names=st.lists(st.sampled_from(CHECKS), unique=True),
    )
    def expect(self, type: str, where: str | None, names: list[str]) -> None:
        done = self.write(lambda: self.one.entities.expect(type, names, where=where))
        assert bool(done.changed) == (self.model.declared.get((type, where)) != tuple(names))
        self.model.declared[type, where] = tuple(names)

    # Checklists

    @rule(index=INDEX, texts=st.lists(TITLES, max_size=3), ticked=st.booleans())
    def add_items(self, index: int, texts: list[str], ticked: bool) -> None:
        found = self.note(index)
        done = self.write(lambda: self.one.checklists.add(found, *texts, done=ticked), blocked=self.held("one", found))
        if done is None:
            return
        numbers = [self.model.entries[each].number for each, note in self.model.owner.items() if note == found]
        for place, (item, text) in enumerate(zip(done.ids, texts, strict=True), 1):
            self.model.entries[item] = Entry(max(numbers, default=0) + place, text, ticked)
            self.model.owner[item] = found
            self.model.notes[found].items.append(item)
            self.model.touch(found, item)

    def _items(self, index: int, many: int = 1) -> tuple[int, list[int]]:
        having = [found for found, note in self.model.notes.items() if note.items]
        if not having:
            return 0, []
        note = having[index % len(having)]
        items = self.model.notes[note].items
        return note, [items[(index + step) % len(items)] for step in range(min(many, len(items)))]

    @rule(index=INDEX, ticked=st.booleans(), many=st.integers(1, 3))
    def tick(self, index: int, ticked: bool, many: int) -> None:
        note, items = self._items(index, many)
        if not items:
            return
        fresh = [item for item in items if self.model.entries[item].done != ticked]
        verb = self.one.checklists.done if ticked else self.one.checklists.undone
        numbers = [self.model.entries[item].number for item in items]
        blocked = bool(fresh) and self.held("one", note, *fresh)
        done = self.write(lambda: verb(note, *numbers), blocked=blocked)
        if done is not None:
            assert done.changed == len(fresh)
            for item in fresh:
                self.model.entries[item].done = ticked
                self.model.touch(note, self.head())

    @rule(index=INDEX, text=TITLES)
    def edit_item(self, index: int, text: str) -> None:
        note, items = self._items(index)
        if not items:
            return
        entry = self.model.entries[items[0]]
        blocked = entry.text != text and self.held("one", note, items[0])
        done = self.write(lambda: self.one.checklists.edit(f"{note}.{entry.number}", text), blocked=blocked)
        if done is not None:
            assert bool(done.changed) == (entry.text != text)
            if done.changed:
                self.model.touch(note, done.revision)
            entry.text = text

    @rule(index=INDEX, other=INDEX, how=st.sampled_from(("before", "after", "last")))
    def move_item(self, index: int, other: int, how: str) -> None:
        note, items = self._items(index)
        if not items:
            return
        present = self.model.notes[note].items
        beside = present[other % len(present)]
        if how != "last" and beside == items[0]:
            self.refuse(lambda: self.one.checklists.move(items[0], **{how: beside}))
            return
        places = [each for each in present if each != items[0]]
        places.insert(len(places) if how == "last" else places.index(beside) + (how == "after"), items[0])
        given = {} if how == "last" else {how: beside}
        blocked = places != present and self.held("one", note, items[0])
        done = self.write(lambda: self.one.checklists.move(items[0], **given), blocked=blocked)
        if done is not None:
            assert bool(done.changed) == (places != present)
            self.model.notes[note].items = places
            if done.changed:
                self.model.touch(note, done.revision)

    @rule(index=INDEX, many=st.integers(1, 2))
    def remove_items(self, index: int, many: int) -> None:
        note, items = self._items(index, many)
        if not items:
            return
        numbers = [self.model.entries[item].number for item in items]
        done = self.write(lambda: self.one.checklists.remove(note, *numbers), blocked=self.held("one", note, *items))
        if done is not None:
            for item in items:
                self.model.notes[note].items.remove(item)
                self.model.entries[item].removed = True
            self.model.touch(note, self.head())
            self.refuse(lambda: self.one.checklists.done(note, numbers[0]))

    # Reports

    @rule(index=INDEX, text=TITLES, whole=st.booleans())
    def checkpoint(self, index: int, text: str, whole: bool) -> None:
        task = None if whole else self.note(index)
        done = self.write(lambda: self.one.checkpoint(text, task=task))
        self.model.checkpoints[done.id] = text

    @rule(index=INDEX, work=st.sampled_from(("", "work 数据")), result=TITLES, status=st.sampled_from((None, *OVER)))
    def summarize(self, index: int, work: str, result: str, status: str | None) -> None:
        found = self.note(index)
        note = self.model.notes[found]
        if note.kind not in TASKS:
            self.refuse(lambda: self.one.summarize(found, work=work, result=result))
            return
        before = self.model.summaries.get(found)
        done = self.write(
            lambda: self.one.summarize(found, work=work, result=result, status=status), blocked=self.held("one", found)
        )
        if done is None:
            return
        closing = status or ("done" if note.status in ("open", "active") else note.status)
        stale = before is not None and note.touched > before[3]
        same = before is not None and before[1:3] == (work, result) and closing == note.status and not stale
        assert bool(done.changed) != same or stale
        note.status = closing
        if before is None or done.revision != before[3]:
            self.model.touch(note.parent, done.revision)
            if "status" in done.changed:
                self.model.touch(found, done.revision - 1)
        self.model.summaries[found] = (done.id, work, result, done.revision)
