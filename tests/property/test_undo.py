"""Undo as a property: whatever a run wrote, once it is taken back the tables are as they were before it."""

from __future__ import annotations

import pytest
from commands import COMMANDS, Command, attempt, opened, tables
from hypothesis import HealthCheck, given, settings

from agentmem import UndoBlocked

PROPERTY = settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@PROPERTY
@given(before=COMMANDS, run=COMMANDS)
def test_undoing_a_run_gives_the_tables_of_before_it(before: list[Command], run: list[Command]) -> None:
    """Where nothing was written after it, a run can always be taken back; undone again, it is there again."""
    with opened() as store:
        one, two = store.acting(author="ana", run="one"), store.acting(author="bob", run="two")
        for command in before:
            attempt(one, command)
        earlier = tables(store)
        for number, command in enumerate(run):
            attempt(two, command, foreign=number % 5 == 4)
        if not any(event.run == "two" for event in store.log.read(project="*", limit=1000)):
            return
        later = tables(store)
        done = store.acting(run="three").undo(run="two")
        assert tables(store) == earlier
        assert store.verify(replay=True).problems == ()
        if not done.events:  # it took all back itself
            return
        again = store.acting(run="four").undo(done.events)
        assert set(again.undone) == set(done.events)
        assert tables(store) == later
        assert store.verify(replay=True).problems == ()


@PROPERTY
@given(before=COMMANDS, run=COMMANDS, after=COMMANDS)
def test_an_undo_amid_others_writing_is_whole_or_refused(
    before: list[Command], run: list[Command], after: list[Command]
) -> None:
    """Refused it leaves no trace and names events of others that came later; allowed it leaves a sound file."""
    with opened() as store:
        one, two = store.acting(author="ana", run="one"), store.acting(author="bob", run="two")
        for command in before:
            attempt(one, command)
        for command in run:
            attempt(two, command)
        for command in after:
            attempt(one, command)
        # Of the project of this name: one whose creation was taken back is another.
        mine = {event.seq for event in store.log.read(limit=1000) if event.run == "two"}
        if not mine:
            return
        head, now = store.log.head(), tables(store)
        planned = None
        try:
            planned = store.undo(run="two", dry_run=True)
        except UndoBlocked as error:
            assert not mine & set(error.events)
        assert (store.log.head(), tables(store)) == (head, now)
        if planned is None:
            with pytest.raises(UndoBlocked):
                store.undo(run="two")
            assert (store.log.head(), tables(store)) == (head, now)
            return
        done = store.undo(run="two")
        assert (done.undone, done.passed_over) == (planned.undone, planned.passed_over)
        assert {*done.undone, *done.passed_over} == mine
        assert store.verify(replay=True).problems == ()
