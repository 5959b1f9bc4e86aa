"""The past as a property: whatever was written, every moment of it can be had again as it was."""

from __future__ import annotations

import contextlib
from typing import Any

import attrs
import pytest
from commands import COMMANDS, NUMBER, ids, opened, perform, pick, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, Store
from agentmem.log.canonical import canonical
from agentmem.past import fields as named
from agentmem.past.folding import Scratch, events_of
from agentmem.past.history import Change
from agentmem.records.kinds import KINDS
from agentmem.types import Summary

QUICK = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
LONG = settings(QUICK, max_examples=1500)
PROFILES = pytest.mark.parametrize(
    "profile", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)], ids=["quick", "long"]
)
UNDOS = st.lists(st.tuples(NUMBER, NUMBER), max_size=4)
RECORDS = "SELECT seq FROM event WHERE seq = record ORDER BY seq"


def tables(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {table: sorted(rows(store, f"SELECT * FROM {table}"), key=repr) for table in KINDS.projections}


def values(store: Store) -> dict[int, Any]:
    """Every record that can be read, as its value; of a summary without its staleness, which is its tree's."""
    found = {}
    for record in ids(store, RECORDS):
        with contextlib.suppress(AgentMemError):
            value = store.get(record)
            found[record] = attrs.evolve(value, stale=False) if isinstance(value, Summary) else value
    return found


def work(store: Store, commands: Any, undos: Any) -> dict[int, tuple[Any, Any]]:
    """Run commands with undos among them; what was there after each, by the seq of the last event."""
    taken = dict(undos)
    moments = {}
    for number, command in enumerate(commands):
        with contextlib.suppress(AgentMemError):
            perform(store, command, foreign=number % 5 == 4)
        if number in taken and (events := ids(store, "SELECT seq FROM event")):
            with contextlib.suppress(AgentMemError):
                store.undo(pick(events, taken[number]))
        moments[store.log.head().seq] = (tables(store), values(store))
    return moments


@PROFILES
def test_every_moment_is_as_it_was(profile: settings) -> None:
    """A view of any moment has the tables of that moment, row for row, and each record its value of then."""

    @profile
    @given(COMMANDS, UNDOS)
    def check(commands: Any, undos: Any) -> None:
        with opened() as store:
            for seq, (expected, read) in work(store, commands, undos).items():
                with store.at(seq) as past:
                    assert tables(past) == expected
                    assert values(past) == read
                for record, value in read.items():
                    assert store.revision(record, seq) == value

    check()


@PROFILES
def test_changes_lead_from_nothing_to_the_present(profile: settings) -> None:
    """Each change begins where the one before it ended, and the last ends where the record is."""

    @profile
    @given(COMMANDS, UNDOS)
    def check(commands: Any, undos: Any) -> None:
        with opened() as store:
            work(store, commands, undos)
            for record in ids(store, RECORDS):
                led = leading(store.history(record, deep=False, limit=1000).changes)
                assert led == present(store, record)

    check()


def leading(changes: tuple[Change, ...]) -> dict[str, str]:
    """The fields at the end of changes, as canonical JSON; those that a creation does not tell are left out."""
    led: dict[str, str] = {}
    for change in changes:
        if change.kind.endswith(".withdrawn"):
            led = {}
        for field in change.fields:
            if field.name in ("origin", "position", "project"):
                continue
            assert field.known
            assert led.get(field.name, "null") == spelled(field.before), (change, field)
            led[field.name] = spelled(field.after)
    return {name: value for name, value in led.items() if value != "null"}


def spelled(value: Any) -> str:
    return "null" if value is False or value in ("", [], {}, None) else canonical(value)


def present(store: Store, record: int) -> dict[str, str]:
    with store._binding.reading() as view, Scratch(KINDS) as scratch:
        of = ""
        for event in events_of(view, KINDS, record):
            scratch.apply(event)
            of = event.type
        state = scratch.state(of, record)
    if state is None:
        return {}
    found = {name: spelled(value) for name, value in named.fields(state).items()}
    return {
        name: value for name, value in found.items() if value != "null" and name not in ("origin", "position", "project")
    }  # fmt: skip


@QUICK
@given(COMMANDS, UNDOS, st.integers(1, 7), st.booleans())
def test_pages_make_up_the_whole(commands: Any, undos: Any, size: int, newest_first: bool) -> None:
    """Pages of any size, in either direction, are the whole without a gap or a repeat; `left` counts what is missing."""
    with opened() as store:
        work(store, commands, undos)
        roots = ids(store, "SELECT id FROM note WHERE parent IS NULL")
        for asked in (
            {},
            {"run": "r"},
            *({"under": root} for root in roots[:2]),
            *({"ref": root} for root in roots[:2]),
        ):
            whole = store.history(limit=1000, newest_first=newest_first, **asked).changes  # type: ignore[arg-type]
            found: list[Change] = []
            bound: dict[str, int] = {}
            while True:
                page = store.history(limit=size, newest_first=newest_first, **asked, **bound)  # type: ignore[arg-type]
                found += page.changes
                assert page.left == len(whole) - len(found)
                if page.next is None:
                    break
                bound = {"before" if newest_first else "after": page.next}
            assert tuple(found) == whole
            seqs = [change.seq for change in whole]
            assert seqs == sorted(seqs, reverse=newest_first)


@QUICK
@given(COMMANDS, NUMBER)
def test_no_moment_remembers_what_was_purged(commands: Any, number: int) -> None:
    """After a purge no view of any moment, open or new, no history and no revision has the text, and all can be read."""
    with opened() as store:
        for command in commands[: number % 7]:
            with contextlib.suppress(AgentMemError):
                perform(store, command)
        goal = store.notes.add("goal", "hunter2")
        store.checklists.add(goal, "hunter2 too")
        fact = store.notes.add("fact", "about hunter2", parent=goal)
        store.checkpoint("hunter2 is the password", task=goal)
        for command in commands[number % 7 :]:
            with contextlib.suppress(AgentMemError):
                perform(store, command)
        head = store.log.head().seq
        views = [store.at(seq) for seq in {goal.id, fact.id, head}]
        assert "hunter2" in repr(tables(views[0]))
        receipt = store.forget([goal.id, fact.id])  # the fact may have been moved elsewhere
        assert {goal.id, fact.id} <= set(receipt.ids)
        views += [store.at(seq) for seq in {goal.id, fact.id, head, head + 1}]
        for view in views:
            assert "hunter2" not in repr(tables(view))
            assert "hunter2" not in view.resume().text + view.left().text + view.history().text
            with pytest.raises(AgentMemError):
                view.get(goal.id)
        assert "hunter2" not in repr(store.history(goal.id)) + repr(store.history(limit=1000))
        with pytest.raises(AgentMemError):
            store.revision(goal.id, goal.id)
