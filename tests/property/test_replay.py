"""Whatever is written, in whatever order, the tables are what the log says, and what is left is what is left."""

from __future__ import annotations

import copy
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

import pytest
from attrs import define, field
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test

from agentmem import AgentMemError, Closed, Held, NewNote, RequestMismatch, Row, Scope, Store
from agentmem.types import LINK_KINDS, STATUSES

KEY = bytes(range(32))
INDEX = st.integers(0, 1 << 16)
KINDS = st.sampled_from(sorted(STATUSES))
WORDS = (
    "alpha", "Bravo", "naïve", "café", "10.0.0.1", "foo_bar", "parseHTML", "v1.2.3", "数据库", "CVE-2024-12345", "C++", "/etc/hosts",
)  # fmt: skip
TITLES = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)
BODIES = st.sampled_from(("", "one line", "two\nlines", "Ünïcode 数据", "\x01 odd"))
TAGS = st.lists(st.sampled_from(("p0", "p3", "api")), max_size=2, unique=True)
CONFIDENCES = st.sampled_from((None, 0.0, 0.25, 1, 1.0))
CHECKS = ("authz", "csrf", "tls")
RESULTS = st.sampled_from(("pass", "fail", "na", "error"))
VALUES = st.sampled_from((None, True, 1, 1.0, -0.0, "1", [1, {"a": None}]))
KEYS = ("one", "two", "three", "four")
TYPES = ("host", "page")
WHERES: dict[str | None, Callable[[Thing], bool]] = {
    None: lambda thing: True,
    "status = 'new'": lambda thing: thing.status == "new",
    "attrs.a = 1": lambda thing: type(thing.attrs.get("a")) in (int, float) and thing.attrs["a"] == 1,
}
TASKS = ("goal", "step")
OVER = ("done", "failed", "dropped")


@define
class Entry:
    """A checklist item as it should be."""

    number: int
    text: str
    done: bool = False
    removed: bool = False


@define
class Text:
    """A note as it should be."""

    kind: str
    title: str
    status: str
    body: str = ""
    tags: list[str] = field(factory=list)
    pinned: bool = False
    confidence: float | None = None
    parent: int | None = None
    entity: int | None = None
    why: str | None = None
    scope: Scope | None = None
    items: list[int] = field(factory=list)  # present ones in order
    touched: int = 0  # the seq of the last change of content at or beneath it


@define
class Thing:
    """An entity as it should be."""

    type: str
    key: str
    status: str = "new"
    attrs: dict[str, Any] = field(factory=dict)
    parent: int | None = None
    confidence: float | None = None
    marks: dict[str, tuple[str, Any]] = field(factory=dict)


@define
class Model:
    """Everything the project should hold."""

    notes: dict[int, Text] = field(factory=dict)
    order: dict[int | None, list[int]] = field(factory=dict)
    things: dict[int, Thing] = field(factory=dict)
    entries: dict[int, Entry] = field(factory=dict)
    owner: dict[int, int] = field(factory=dict)
    links: set[tuple[int, str, int]] = field(factory=set)
    declared: dict[tuple[str, str | None], tuple[str, ...]] = field(factory=dict)
    summaries: dict[int, tuple[int, str, str, int]] = field(factory=dict)  # id, work, result, seq by note
    checkpoints: dict[int, str] = field(factory=dict)
    leases: dict[int, tuple[str, int]] = field(factory=dict)
    requests: list[tuple[Callable[[], Any], Any]] = field(factory=list)
    name: str = "acme"

    def above(self, note: int | None) -> list[int]:
        """A note and all above it, the nearest first."""
        chain = []
        while note is not None:
            chain.append(note)
            note = self.notes[note].parent
        return chain

    def touch(self, note: int | None, seq: int) -> None:
        for each in self.above(note):
            self.notes[each].touched = max(self.notes[each].touched, seq)

    def shut(self, note: int) -> bool:
        """Whether a closed task stands above it."""
        higher = (self.notes[each] for each in self.above(note)[1:])
        return any(each.kind in TASKS and each.status in OVER for each in higher)

    def beneath(self, note: int) -> list[int]:
        return [each for each in self.notes if note in self.above(each)]

    def expected(self, scope: Scope) -> list[tuple[list[Thing], str]]:
        """Each check of a scope with the entities that need it."""
        inside = [one for one in self.things.values() if one.type == scope.type and WHERES[scope.where](one)]
        if scope.checks:
            return [(inside, name) for name in scope.checks]
        return [
            ([one for one in inside if WHERES[where](one)], name)
            for (type, where), names in self.declared.items()
            for name in names
            if type == scope.type
        ]

    def left(self, task: int | None) -> tuple[int, int, int]:
        """How many steps, items and marks are left, computed the long way."""
        inside = list(self.notes) if task is None else self.beneath(task)
        live = [(each, self.notes[each]) for each in inside if not self.shut(each)]
        unfinished = [(n, note) for n, note in live if note.kind in TASKS and note.status in ("open", "active")]
        steps = sum(1 for number, _ in unfinished if number != task)
        items = sum(
            not self.entries[item].done for _, note in live if note.status not in OVER for item in note.items
        )
        scopes = [note.scope for number, note in live if note.scope is not None
                  and (note.status in ("open", "active") or number == task)]  # fmt: skip
        needed = [each for scope in scopes for each in self.expected(scope)]
        if not needed and task is None:
            for (type, where), names in self.declared.items():
                needed += self.expected(Scope(type, where, names)) if names else []
        marks = sum(
            thing.marks.get(check, ("error", None))[0] == "error" for inside, check in needed for thing in inside
        )
        return steps, items, marks


class Memory(RuleBasedStateMachine):
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
            row = self.rows(f"SELECT {'id' if table == 'checkpoint' else 'revision'} FROM {table} WHERE id = ?", event.record)
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

    # Notes

    @initialize()
    def begins(self) -> None:
        done = self.write(lambda: self.one.notes.add("goal", "alpha"))
        self._added(done.id, Text("goal", "alpha", "open"))

    def _added(self, found: int, text: Text) -> None:
        self.model.notes[found] = text
        self.model.order.setdefault(text.parent, []).append(found)
        self.model.touch(found, found)

    @rule(kind=KINDS, title=TITLES, body=BODIES, status=INDEX, parent=INDEX, tags=TAGS, pin=st.booleans(),
          confidence=CONFIDENCES, about=INDEX, link=INDEX, linked=st.sampled_from((None, "supports", "depends_on")))  # fmt: skip
    def add(self, kind: str, title: str, body: str, status: int, parent: int, tags: list[str], pin: bool,
            confidence: float | None, about: int, link: int, linked: str | None) -> None:  # fmt: skip
        text = Text(kind, title, STATUSES[kind][status % len(STATUSES[kind])], body, tags, pin, confidence)
        text.parent = None if kind == "goal" or parent % 7 == 0 else self.note(parent)
        text.entity = self.thing(about) if self.model.things and about % 3 == 0 else None
        links = () if linked is None else ((linked, self.note(link)),)
        done = self.write(
            lambda: self.one.notes.add(
                kind, title, body=body, status=text.status, parent=text.parent, tags=tags, pin=pin,
                confidence=confidence, about=text.entity, links=links,
            )
        )  # fmt: skip
        self._added(done.id, text)
        for name, target in links:
            self.model.links.add((done.id, name, target))
            self.model.touch(done.id, self.head())

    @rule(titles=st.lists(TITLES, min_size=1, max_size=3), parent=INDEX)
    def add_many(self, titles: list[str], parent: int) -> None:
        above = self.note(parent)
        new = [NewNote("step", titles[0], parent=above)] + [NewNote("fact", each, parent="$1") for each in titles[1:]]
        done = self.write(lambda: self.one.notes.add_many(new))
        self._added(done.ids[0], Text("step", titles[0], "open", parent=above))
        for found, title in zip(done.ids[1:], titles[1:], strict=True):
            self._added(found, Text("fact", title, "active", parent=done.ids[0]))

    @rule(index=INDEX, title=TITLES, body=BODIES, which=st.sets(st.sampled_from(("title", "body", "tags", "pin", "confidence"))),
          tags=TAGS, pin=st.booleans(), confidence=CONFIDENCES, run=st.sampled_from(("one", "two")))  # fmt: skip
    def update(self, index: int, title: str, body: str, which: set[str], tags: list[str], pin: bool,
               confidence: float | None, run: str) -> None:  # fmt: skip
        found = self.note(index)
        note = self.model.notes[found]
        everything = {"title": title, "body": body, "tags": tags, "pin": pin, "confidence": confidence}
        given = {name: everything[name] for name in which}
        view = self.one if run == "one" else self.two
        done = self.write(lambda: view.notes.update(found, **given), blocked=self.held(run, found))
        if done is None:
            return
        names = {"pin": "pinned"}
        changed = {names.get(name, name) for name, value in given.items() if getattr(note, names.get(name, name)) != value}
        assert set(done.changed) - {"origin"} == changed
        for name, value in given.items():
            setattr(note, names.get(name, name), value)
        if changed:
            self.model.touch(found, done.revision)

    @rule(index=INDEX, status=INDEX)
    def set_status(self, index: int, status: int) -> None:
        found = self.note(index)
        note = self.model.notes[found]
        wanted = STATUSES[note.kind][status % len(STATUSES[note.kind])]
        done = self.write(lambda: self.one.notes.update(found, status=wanted), blocked=self.held("one", found))
        if done is not None:
            assert done.changed == (() if note.status == wanted else ("status",))
            note.status = wanted
            if done.changed:
                self.model.touch(found, done.revision)

    @rule(indexes=st.lists(INDEX, max_size=3), status=st.sampled_from(("open", "dropped", "active")))
    def update_many(self, indexes: list[int], status: str) -> None:
        refs = [self.note(index) for index in indexes]
        refs = [ref for ref in refs if status in STATUSES[self.model.notes[ref].kind]]
        done = self.write(lambda: self.one.notes.update_many(refs, status=status), blocked=self.held("one", *refs))
        if done is not None:
            for ref in refs:
                if self.model.notes[ref].status != status:
                    self.model.notes[ref].status = status
                    self.model.touch(ref, self.head())

    @rule(index=INDEX, other=INDEX, how=st.sampled_from(("beneath", "before", "after", "first", "last", "root")))
    def move(self, index: int, other: int, how: str) -> None:
        found, beside = self.note(index), self.note(other)
        note = self.model.notes[found]
        parent, given = note.parent, {}  # type: tuple[int | None, dict[str, Any]]
        if how in ("before", "after"):
            parent, given = self.model.notes[beside].parent, {how: beside}
        elif how == "beneath":
            parent, given = beside, {"parent": beside}
        elif how == "root":
            parent, given = None, {"parent": None}
        elif how == "first":
            given = {"first": True}
        forbidden = (note.kind == "goal" and parent is not None) or (parent is not None and found in self.model.above(parent))
        if forbidden or (how in ("before", "after") and found == beside):
            self.refuse(lambda: self.one.notes.move(found, **given))
            return
        places = [each for each in self.model.order.get(parent, []) if each != found]
        place = {"before": lambda: places.index(beside), "after": lambda: places.index(beside) + 1, "first": lambda: 0}
        places.insert(place[how]() if how in place else len(places), found)
        done = self.write(lambda: self.one.notes.move(found, **given), blocked=self.held("one", found))
        if done is None:
            return
        old = note.parent
        assert bool(done.changed) == (parent != old or places != self.model.order[parent])
        if parent != old:
            self.model.touch(old, done.revision)
            self.model.order[old].remove(found)
            note.parent = parent
            self.model.touch(found, done.revision)
        self.model.order[parent] = places

    @rule(index=INDEX, type=st.sampled_from(TYPES), where=st.sampled_from(list(WHERES)),
          checks=st.lists(st.sampled_from(CHECKS), unique=True, max_size=2), clear=st.booleans())  # fmt: skip
    def set_scope(self, index: int, type: str, where: str | None, checks: list[str], clear: bool) -> None:
        found = self.note(index)
        note = self.model.notes[found]
        if note.kind not in TASKS:
            self.refuse(lambda: self.one.notes.update(found, scope=self.one.scope(type)))
            return
        scope = None if clear else self.one.scope(type, where=where, checks=checks)
        done = self.write(lambda: self.one.notes.update(found, scope=scope), blocked=self.held("one", found))
        if done is not None:
            note.scope = None if clear else Scope(type, where, tuple(checks))
            if done.changed:
                self.model.touch(found, done.revision)

    @rule(index=INDEX, confidence=CONFIDENCES, user=st.booleans())
    def confirm(self, index: int, confidence: float | None, user: bool) -> None:
        found = self.note(index)
        note = self.model.notes[found]
        view = self.one.acting(origin="user") if user else self.one
        given = {} if confidence is None else {"confidence": confidence}
        updated = self.rows("SELECT updated_at FROM note WHERE id = ?", found)
        done = self.write(lambda: view.confirm(found, **given), blocked=self.held("one", found))
        if done is None:
            return
        if confidence is not None and note.confidence != confidence:
            note.confidence = confidence
            self.model.touch(found, done.revision)
        else:
            assert self.rows("SELECT updated_at FROM note WHERE id = ?", found) == updated

    # Attempts

    @rule(title=TITLES, task=INDEX)
    def open_attempt(self, title: str, task: int) -> None:
        above = self.note(task)
        done = self.write(lambda: self.one.attempts.open(title, task=above))
        assert all(self.model.notes[each.id].kind == "attempt" for each in done.earlier)
        self._added(done.id, Text("attempt", title, "active", parent=above))

    @rule(index=INDEX, outcome=st.sampled_from(("worked", "failed", "unclear")), why=st.sampled_from(("", "it broke")))
    def close_attempt(self, index: int, outcome: str, why: str) -> None:
        attempts = [found for found, note in self.model.notes.items() if note.kind == "attempt"]
        if not attempts:
            return
        found = attempts[index % len(attempts)]
        note = self.model.notes[found]
        same = note.status == outcome and (not why or why == note.why)
        if (outcome == "failed" and not (why or note.why)) or (note.status != "active" and not same):
            self.refuse(lambda: self.one.attempts.close(found, outcome, why=why))
            return
        done = self.write(lambda: self.one.attempts.close(found, outcome, why=why), blocked=self.held("one", found))
        if done is not None:
            note.status, note.why = outcome, why or note.why
            if done.changed:
                self.model.touch(found, done.revision)

    # Links

    @rule(src=INDEX, dst=INDEX, kind=st.sampled_from(LINK_KINDS))
    def link(self, src: int, dst: int, kind: str) -> None:
        source, target = self.note(src), self.note(dst)
        note = self.model.notes[target]
        circle = kind in ("depends_on", "supersedes") and self._reaches(target, source, kind)
        known = (source, kind, target) in self.model.links
        if source == target or (kind == "answers" and note.kind != "question") or (circle and not known):
            self.refuse(lambda: self.one.links.add(source, kind, target))
            return
        closes = kind == "answers" and not known and note.status == "open"
        blocked = self.held("one", source) or (closes and self.held("one", target))
        done = self.write(lambda: self.one.links.add(source, kind, target), blocked=blocked)
        if done is None:
            return
        assert bool(done.changed) != known
        self.model.links.add((source, kind, target))
        if not known:
            self.model.touch(source, done.revision)
        if closes:
            note.status = "done"
            self.model.touch(target, self.head())

    def _reaches(self, start: int, goal: int, kind: str) -> bool:
        seen, todo = set(), [start]
        while todo:
            each = todo.pop()
            if each == goal:
                return True
            if each not in seen:
                seen.add(each)
                todo += [dst for src, name, dst in self.model.links if src == each and name == kind]
        return False

    @rule(index=INDEX)
    def unlink(self, index: int) -> None:
        links = sorted(self.model.links)
        if not links:
            return
        source, kind, target = links[index % len(links)]
        done = self.write(lambda: self.one.links.remove(source, kind, target), blocked=self.held("one", source))
        if done is not None:
            assert done.changed
            self.model.links.discard((source, kind, target))
            if source in self.model.notes:
                self.model.touch(source, done.revision)
            assert not self.write(lambda: self.one.links.remove(source, kind, target)).changed

    @precondition(lambda self: len(self.model.things) > 1)
    @rule(src=INDEX, dst=INDEX, kind=st.sampled_from(("runs-on", "near")))
    def link_things(self, src: int, dst: int, kind: str) -> None:
        source, target = self.thing(src), self.thing(dst)
        if source == target:
            return
        done = self.write(lambda: self.one.links.add(source, kind, target), blocked=self.held("one", source))
        if done is not None:
            assert bool(done.changed) == ((source, kind, target) not in self.model.links)
            self.model.links.add((source, kind, target))

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
        return fresh or exact(before.attrs) != exact(thing.attrs) or (before.status, before.parent, before.confidence) != (
            thing.status, thing.parent, thing.confidence
        )  # fmt: skip

    @rule(type=st.sampled_from(TYPES), key=st.sampled_from(KEYS), value=VALUES, status=st.sampled_from((None, "new", "up")),
          parent=INDEX, confidence=CONFIDENCES, run=st.sampled_from(("one", "two")))  # fmt: skip
    def put(self, type: str, key: str, value: Any, status: str | None, parent: int, confidence: float | None, run: str) -> None:
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
        from agentmem import Result

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

    @rule(type=st.sampled_from(TYPES), where=st.sampled_from(list(WHERES)), names=st.lists(st.sampled_from(CHECKS), unique=True))
    def expect(self, type: str, where: str | None, names: list[str]) -> None:
        done = self.write(lambda: self.one.entities.expect(type, names, where=where))
        assert bool(done.changed) == (self.model.declared.get((type, where)) != tuple(names))
        self.model.declared[type, where] = tuple(names)

    # Checklists

    @rule(index=INDEX, texts=st.lists(TITLES, max_size=3), ticked=st.booleans())
    def add_items(self, index: int, texts: list[str], ticked: bool) -> None:
        found = self.note(index)
        done = self.write(
            lambda: self.one.checklists.add(found, *texts, done=ticked), blocked=self.held("one", found)
        )
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

    # Claims

    @rule(index=INDEX, run=st.sampled_from(("one", "two")), seconds=st.sampled_from((1, 100)), thing=st.booleans())
    def claim(self, index: int, run: str, seconds: int, thing: bool) -> None:
        found = self.thing(index) if thing and self.model.things else self.note(index)
        view = self.one if run == "one" else self.two
        before = self.model.leases.get(found)
        lapsed = before is None or before[1] <= self.time + 1
        blocked = self.held(run, found) and not lapsed
        self.time += 1
        head = self.head()
        try:
            done = view.claim([found], seconds=seconds)
        except Held:
            assert blocked
            assert self.head() == head
            return
        assert not blocked
        assert (self.head() - head, done.created) == ((1, 1) if lapsed else (0, 0))
        self.model.leases[found] = (run, self.time + seconds * 1_000_000)

    @rule(type=st.sampled_from(TYPES), n=st.integers(1, 3), run=st.sampled_from(("one", "two")))
    def claim_next(self, type: str, n: int, run: str) -> None:
        self.time += 1
        free = [
            found for found in sorted(self.model.things) if self.model.things[found].type == type
            and (found not in self.model.leases or self.model.leases[found][1] <= self.time)
        ]  # fmt: skip
        done = (self.one if run == "one" else self.two).claim(type=type, n=n, seconds=50)
        assert list(done.ids) == free[:n]
        for found in done.ids:
            self.model.leases[found] = (run, self.time + 50_000_000)

    @rule(run=st.sampled_from(("one", "two")))
    def release(self, run: str) -> None:
        mine = sorted(found for found, (holder, _) in self.model.leases.items() if holder == run)
        done = (self.one if run == "one" else self.two).release()
        assert list(done.ids) == mine
        for found in mine:
            del self.model.leases[found]

    @rule(seconds=st.sampled_from((1, 60)))
    def wait(self, seconds: int) -> None:
        self.time += seconds * 1_000_000

    # Projects, requests, errors

    @rule(name=st.sampled_from(("acme", "beta", "数据")))
    def rename_project(self, name: str) -> None:
        done = self.write(lambda: self.one.projects.rename(name))
        assert bool(done.changed) == (name != self.model.name)
        self.model.name = name

    @rule(index=INDEX, title=TITLES, body=BODIES, pick=st.integers(0, 2))
    def request(self, index: int, title: str, body: str, pick: int) -> None:
        """A repeat writes nothing and says so; another request under the same id is refused."""
        self.counter += 1
        rid, found = f"req-{self.counter}", self.note(index)
        if self.held("one", found):
            return
        if pick == 0:
            def command() -> Any:
                return self.one.notes.add("fact", title, parent=found, body=body, request_id=rid)
        elif pick == 1:
            def command() -> Any:
                return self.one.notes.update(found, body=body, request_id=rid)
        else:
            def command() -> Any:
                return self.one.checklists.add(found, title, request_id=rid)
        done = self.write(command)
        if pick == 0:
            self._added(done.id, Text("fact", title, "active", body, parent=found))
        elif pick == 1:
            self.model.notes[found].body = body
            if done.changed:
                self.model.touch(found, done.revision)
        else:
            numbers = [self.model.entries[each].number for each, note in self.model.owner.items() if note == found]
            self.model.entries[done.ids[0]] = Entry(max(numbers, default=0) + 1, title)
            self.model.owner[done.ids[0]] = found
            self.model.notes[found].items.append(done.ids[0])
            self.model.touch(found, done.ids[0])
        self.model.requests.append((command, done))
        head = self.store.log.head()
        with pytest.raises(RequestMismatch):
            self.one.notes.add("fact", "another", request_id=rid)
        assert self.store.log.head() == head

    @precondition(lambda self: self.model.requests)
    @rule(index=INDEX)
    def repeat(self, index: int) -> None:
        command, first = self.model.requests[index % len(self.model.requests)]
        head = self.store.log.head()
        again = command()
        assert again.repeated
        assert getattr(again, "id", None) == getattr(first, "id", None)
        assert getattr(again, "ids", None) == getattr(first, "ids", None)
        assert self.store.log.head() == head

    def refuse(self, command: Callable[[], Any]) -> None:
        """The command is refused with one of our errors and leaves no trace."""
        self.time += 1
        head, dump = self.store.log.head(), self._dump()
        with pytest.raises(AgentMemError):
            command()
        assert self.store.log.head() == head
        assert self._dump() == dump

    @rule(index=INDEX, which=st.integers(0, 9))
    def mistake(self, index: int, which: int) -> None:
        found, view = self.note(index), self.one
        wrong: list[Callable[[], Any]] = [
            lambda: view.notes.add("fact", "x\ny"),
            lambda: view.notes.add("goal", "beneath", parent=found),
            lambda: view.notes.add_many([NewNote("step", "kept?", parent=found), NewNote("fact", "")]),
            lambda: view.notes.update(found, title="x", status="worked-out"),
            lambda: view.notes.add("fact", "linked", links=[("supports", found), ("supports", 10**12)]),
            lambda: view.entities.put_many("host", keys=["fresh", "\u202e"]),
            lambda: view.entities.mark("host", ["nowhere"], {"authz": "pass"}),
            lambda: view.checklists.add(found, "good", ""),
            lambda: view.checkpoint(" "),
            lambda: view.notes.update(found, title="stale", expected_revision=0),
        ]
        self.refuse(wrong[which])

    # What holds always

    def _dump(self) -> list[Any]:
        tables = ("project", "note", "link", "entity", "mark", "checks", "item", "checkpoint", "summary", "lease", "request")
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
        stored = {row[0]: row[1:] for row in self.rows("SELECT id, type, key, status, parent, confidence, attrs FROM entity")}
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


def exact(value: Any) -> str:
    """A spelling in which `True`, `1` and `1.0` differ; written here anew, not taken from the library."""
    if isinstance(value, dict):
        return "{" + ",".join(f'"{name}":{exact(value[name])}' for name in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(exact, value)) + "]"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, float):
        return repr(value + 0.0)  # no -0.0
    return {"None": "null", "True": "true", "False": "false"}.get(repr(value), repr(value))


QUICK = settings(max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=600, stateful_step_count=100)


@pytest.mark.parametrize("profile", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
def test_any_order_of_commands_leaves_the_tables_that_the_log_says(profile: settings) -> None:
    """Any commands, errors and rollbacks leave what a plain model says, and replaying the log gives it again."""
    run_state_machine_as_test(Memory, settings=profile)
