"""The commands on notes, attempts and links."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from replay_machine import Machine
from replay_model import BODIES, CHECKS, CONFIDENCES, INDEX, KINDS, TAGS, TASKS, TITLES, TYPES, WHERES, Text

from agentmem import NewNote, Scope
from agentmem.types import LINK_KINDS, STATUSES


class Notes(Machine):
    """Notes, attempts and links."""

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
          confidence=CONFIDENCES, about=INDEX, link=INDEX,
          linked=st.sampled_from((None, "supports", "depends_on")))  # fmt: skip
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

    @rule(index=INDEX, title=TITLES, body=BODIES,
          which=st.sets(st.sampled_from(("title", "body", "tags", "pin", "confidence"))),
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
        changed = {
            names.get(name, name) for name, value in given.items() if getattr(note, names.get(name, name)) != value
        }
        assert set(done.changed) - {"origin", "confirmed_at", "confirmed_by"} == changed
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
        forbidden = (note.kind == "goal" and parent is not None) or (
            parent is not None and found in self.model.above(parent)
        )
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
