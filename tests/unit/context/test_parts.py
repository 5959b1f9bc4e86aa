"""`task_summary` and `graph`."""

from __future__ import annotations

import pytest

from agentmem import NotFound, Store


def test_finished_work_folds_into_summaries(store: Store) -> None:
    """One call gives the summaries of everything beneath, within the budget, and names parts that lack one."""
    goal = store.notes.add("goal", "Goal")
    fact = store.notes.add("fact", "Between", parent=goal)
    one = store.notes.add("step", "One", parent=goal)
    two = store.notes.add("step", "Two", parent=fact)
    bare = store.notes.add("step", "Bare", parent=goal, status="done")
    store.summarize(one, work="did one", result="one is done")
    store.summarize(two, result="two is done")
    found = store.task_summary(goal)
    assert {part.id for part in found.parts} == {one.id, two.id, bare.id}
    assert found.without == (bare.id,)
    assert "one is done" in found.text
    assert "two is done" in found.text
    assert found.parts_total == 3


def test_a_summary_goes_stale_when_something_beneath_changes(store: Store) -> None:
    """New notes, changes, ticks and departures make it stale; claims and confirmations do not."""
    goal = store.notes.add("goal", "Goal")
    step = store.notes.add("step", "Step", parent=goal)
    inner = store.notes.add("fact", "Inner", parent=step)
    store.checklists.add(inner, "box")
    other = store.notes.add("goal", "Other")

    def stale() -> bool:
        summary = store.task_summary(step).summary
        assert summary is not None
        return summary.stale

    def fresh() -> None:
        store.summarize(step, result="fine", status="done")

    fresh()
    assert not stale()
    store.confirm(inner)
    store.acting(run="r").claim(inner)
    store.acting(run="r").release(inner)
    assert not stale()
    store.checklists.done(inner, 1)
    assert stale()
    fresh()
    assert not stale()
    store.notes.update(inner, body="changed")
    assert stale()
    fresh()
    store.notes.move(inner, parent=other)
    assert stale()
    fresh()
    store.notes.update(inner, body="elsewhere now")
    assert not stale()
    assert "(stale" not in store.task_summary(step).text


def test_the_budget_of_a_summary_holds(store: Store) -> None:
    """Also the head and the open items are inside it."""
    goal = store.notes.add("goal", "Goal")
    for number in range(60):
        step = store.notes.add("step", f"Step {number}", parent=goal)
        store.checklists.add(step, "unticked")
        store.summarize(step, work="w " * 500, result="r " * 500)
    store.summarize(goal, work="W " * 3000, result="R " * 3000)
    for budget in (300, 1000, 4000):
        assert store.task_summary(goal, budget=budget).tokens <= budget


def test_a_graph_is_depth_first_and_pages(store: Store) -> None:
    """Nodes come depth first in the order of siblings; a page continues after the last node."""
    goal = store.notes.add("goal", "Goal")
    a = store.notes.add("step", "a", parent=goal)
    b = store.notes.add("step", "b", parent=goal)
    inner = store.notes.add("fact", "a1", parent=a)
    store.notes.move(b, before=a)
    store.links.add(b, "depends_on", a)
    assert [node.id for node in store.graph(goal).nodes] == [goal.id, b.id, a.id, inner.id]
    assert [node.id for node in store.graph(goal, depth=1).nodes] == [goal.id, b.id, a.id]
    first = store.graph(goal, limit=2)
    assert [node.id for node in first.nodes] == [goal.id, b.id]
    assert [(link.src, link.dst) for link in first.links] == [(b.id, a.id)]
    assert first.after is not None
    second = store.graph(goal, limit=2, after=first.after)
    assert [node.id for node in second.nodes] == [a.id, inner.id]
    assert second.after is None
    with pytest.raises(NotFound):
        store.graph(a, after=b.id)
