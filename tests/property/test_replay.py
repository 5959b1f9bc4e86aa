"""Whatever is written, in whatever order, the tables are what the log says, and what is left is what is left."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule, run_state_machine_as_test
from replay_model import BODIES, INDEX, TITLES, TYPES, Entry, Text
from replay_notes import Notes
from replay_things import Things

from agentmem import Held, NewNote, RequestMismatch


class Memory(Notes, Things):
    """Every command, in any order, in and out of transactions, by two runs."""

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


QUICK = settings(max_examples=150, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=2000, stateful_step_count=100)


@pytest.mark.parametrize("profile", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"])
def test_any_order_of_commands_leaves_the_tables_that_the_log_says(profile: settings) -> None:
    """Any commands, errors and rollbacks leave what a plain model says, and replaying the log gives it again."""
    run_state_machine_as_test(Memory, settings=profile)
