"""`left`: what is not done, computed."""

from __future__ import annotations

from agentmem import Row, Store


def test_scope_minus_marks_has_a_denominator(store: Store) -> None:
    """What is left of a step is its scope minus the marks, whatever words were used."""
    step = store.notes.add("step", "Check the API", scope=store.scope("endpoint", checks=["authz", "csrf"]))
    store.entities.put_many("endpoint", keys=["GET /a", "GET /b", "GET /c"])
    store.entities.mark("endpoint", ["GET /a"], {"authz": "pass", "csrf": "fail"})
    store.entities.mark("endpoint", ["GET /b"], {"authz": "na", "csrf": "error"})
    left = store.left(step)
    counts = {check.check: (check.left, check.total, check.failed) for check in left.scopes[0].checks}
    assert counts == {"authz": (1, 3, 0), "csrf": (2, 3, 1)}
    assert left.marks_total == 3
    assert [(one.key, one.checks) for one in left.scopes[0].missing] == [
        ("GET /b", ("csrf",)),
        ("GET /c", ("authz", "csrf")),
    ]
    assert "endpoint × csrf: 2 of 3 left, 1 failed" in left.text


def test_a_filtered_scope_covers_only_what_matches(store: Store) -> None:
    """A scope with `where` counts the entities that match now, added later or not."""
    scope = store.scope("host", where="attrs.area = :area", checks=["tls"], area="dmz")
    step = store.notes.add("step", "TLS of the DMZ", scope=scope)
    store.entities.put_many("host", rows=[Row("a", attrs={"area": "dmz"}), Row("b", attrs={"area": "lan"})])
    assert store.left(step).marks_total == 1
    store.entities.put("host", "c", attrs={"area": "dmz"})
    assert store.left(step).marks_total == 2
    store.entities.put("host", "a", attrs={"area": "lan"})
    assert [one.key for one in store.left(step).scopes[0].missing] == ["c"]


def test_a_scope_without_checks_takes_the_expected_ones(store: Store) -> None:
    """Declared checks of the type count where the scope names none; a filtered declaration counts where it matches."""
    store.entities.expect("host", ["tls"])
    store.entities.expect("host", ["login"], where="attrs.web = true")
    store.entities.put_many("host", rows=[Row("a", attrs={"web": True}), Row("b", attrs={"web": 1})])
    step = store.notes.add("step", "All hosts", scope=store.scope("host"))
    counts = {check.check: (check.left, check.total) for check in store.left(step).scopes[0].checks}
    assert counts == {"tls": (2, 2), "login": (1, 1)}
    assert store.left().marks_total == 3


def test_items_below_a_closed_task_are_not_left(store: Store) -> None:
    """Unticked boxes below a closed task are one line, not work."""
    goal = store.notes.add("goal", "Release")
    done = store.notes.add("step", "Old step", parent=goal)
    inner = store.notes.add("step", "Inner", parent=done)
    store.checklists.add(inner, "never ticked", "neither")
    store.checklists.add(goal, "still to do")
    assert store.left(goal).items_total == 3
    notice = store.notes.update(done, status="done").notices
    assert notice == (f"#{done.id} is closed with 1 open step and 2 open checklist items beneath it",)
    left = store.left(goal)
    assert left.items_total == 1
    assert left.steps_total == 0
    assert left.closed == ((done.id, "Old step", 2),)
    assert "closed with 2 unticked" in left.text
    store.notes.update(done, status="open")
    assert store.left(goal).items_total == 3


def test_a_move_takes_items_in_and_out(store: Store) -> None:
    """What counts follows the tree: moved beneath an open task, boxes are left again."""
    shut = store.notes.add("goal", "Over", status="done")
    alive = store.notes.add("goal", "Alive")
    step = store.notes.add("step", "Wanders", parent=shut)
    store.checklists.add(step, "box")
    assert store.left().items_total == 0
    store.notes.move(step, parent=alive)
    assert (store.left(alive).items_total, store.left(alive).steps_total) == (1, 1)
    store.notes.move(step, parent=shut)
    assert store.left(alive).items_total == 0


def test_the_next_step_comes_first(store: Store) -> None:
    """Active before open, by priority, as they stand; what waits for another comes last and says for what."""
    goal = store.notes.add("goal", "Ship")
    waits = store.notes.add("step", "Deploy", parent=goal, tags=["p0"])
    plain = store.notes.add("step", "Write", parent=goal)
    urgent = store.notes.add("step", "Fix", parent=goal, tags=["p1"])
    active = store.notes.add("step", "Test", parent=goal, status="active")
    store.links.add(waits, "depends_on", urgent)
    left = store.left(goal)
    assert [step.id for step in left.steps] == [active.id, urgent.id, plain.id, waits.id]
    assert left.steps[-1].blocked_by == (urgent.id,)
    assert f"blocked by #{urgent.id}" in left.text
    store.notes.update(urgent, status="dropped")
    assert store.left(goal).steps[0].id == active.id
    assert not any(step.blocked_by for step in store.left(goal).steps)


def test_r4_a_dependency_on_a_fact_or_decision_does_not_block(store: Store) -> None:
    """PentaCore R4: there a step that depends on a fact, decision, lesson or failed attempt waits for ever."""
    goal = store.notes.add("goal", "Ship")
    for kind in ("fact", "decision", "lesson"):
        step = store.notes.add("step", f"After the {kind}", parent=goal)
        store.links.add(step, "depends_on", store.notes.add(kind, f"The {kind}", parent=goal))
    attempt = store.attempts.open("Try it", task=goal)
    step = store.notes.add("step", "After the attempt", parent=goal)
    store.links.add(step, "depends_on", attempt)
    assert [one.title for one in store.left(goal).steps if one.blocked_by] == ["After the attempt"]
    store.attempts.close(attempt, "worked")
    assert not any(one.blocked_by for one in store.left(goal).steps)


def test_a_superseded_step_blocks_nothing(store: Store) -> None:
    """`depends_on` is satisfied when a living note supersedes the target."""
    goal = store.notes.add("goal", "Ship")
    old, new = store.notes.add("step", "Old way", parent=goal), store.notes.add("step", "New way", parent=goal)
    step = store.notes.add("step", "After", parent=goal, links=[("depends_on", old)])
    assert store.left(goal).steps[-1].id == step.id
    store.links.add(new, "supersedes", old)
    assert not any(one.blocked_by for one in store.left(goal).steps)


def test_steps_anywhere_beneath_are_found(store: Store) -> None:
    """A step below a fact or an attempt counts as one below a goal does."""
    goal = store.notes.add("goal", "Ship")
    fact = store.notes.add("fact", "Something", parent=goal)
    step = store.notes.add("step", "Hidden", parent=fact)
    assert [one.id for one in store.left(goal).steps] == [step.id]


def test_nothing_left_is_said_and_false(store: Store) -> None:
    """An answer without anything left is false and says so."""
    goal = store.notes.add("goal", "Ship", status="done")
    left = store.left(goal)
    assert not left
    assert "nothing" in left.text
    assert not store.in_project("elsewhere").left()


def test_totals_are_of_all_beyond_the_limit(store: Store) -> None:
    """Lists are cut at `limit`, totals are not, and the text says what was cut and how to get it."""
    goal = store.notes.add("goal", "Many")
    step = store.notes.add("step", "Boxes", parent=goal)
    store.checklists.add(step, *(f"box {number}" for number in range(300)))
    left = store.left(goal, limit=5, budget=300)
    assert (len(left.items), left.items_total) == (5, 300)
    assert left.tokens <= 300
    assert f"left(task={goal.id})" in left.text


def test_a_scope_closed_with_marks_missing_is_said(store: Store) -> None:
    """Closing a step whose scope is not covered warns, and stays visible as not counted."""
    goal = store.notes.add("goal", "Goal")
    step = store.notes.add("step", "Check all", parent=goal, scope=store.scope("host", checks=["tls"]))
    store.entities.put_many("host", keys=["a", "b", "c"])
    store.entities.mark("host", ["a"], {"tls": "pass"})
    done = store.summarize(step, result="all done")
    assert done.notices == (f"#{step.id} is closed with 2 marks of its scope missing beneath it",)
    left = store.left(goal)
    assert left.marks_total == 0
    assert f"#{step.id} Check all: closed with 2 marks of its scope missing" in left.text
    assert "2 marks of its scope missing" in store.resume(goal).text
    store.entities.mark("host", ["b", "c"], {"tls": "na"})
    assert "missing" not in store.left(goal).text


def test_readings_follow_the_actors_task(store: Store) -> None:
    """Whoever acts on a task reads of it unless another, or the project, is asked for."""
    one, other = store.notes.add("goal", "One"), store.notes.add("goal", "Other")
    worker = store.acting(task=one)
    assert worker.left().task == one.id
    assert worker.resume().task == one.id
    assert worker.left(other).task == other.id
    assert worker.resume(None).task is None


def test_an_unknown_project_is_no_empty_one(store: Store) -> None:
    """The answer says that nothing was ever written there, and which projects there are."""
    store.notes.add("goal", "Goal")
    elsewhere = store.in_project("acmee")
    assert "the store has acme" in elsewhere.left().text
    assert "the store has acme" in elsewhere.resume().text
    assert "the store has" not in store.left().text
