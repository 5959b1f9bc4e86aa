"""Subjects kept apart: what a session about one entity sees, what it writes, and what it is refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import NotFound, Store
from agentmem.errors import OutOfReach
from agentmem.records import subjects


@pytest.fixture(autouse=True)
def _by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meaning narrows by the same conditions as words."""
    monkeypatch.setenv("AGENTMEM_EMBEDDER", "none")


@pytest.fixture
def goal(store: Store) -> int:
    """What both customers have in common."""
    for key in ("A", "B"):
        store.entities.put("customer", key)
        store.entities.put("order", f"of {key}", parent=f"customer:{key}")
    return store.notes.add("goal", "Help customers").id


@pytest.fixture
def a(store: Store, goal: int) -> Store:
    """What a session about A sees."""
    return store.sessions.start(about="customer:A", task=goal).store


@pytest.fixture
def b(store: Store, goal: int) -> Store:
    """What a session about B sees."""
    return store.sessions.start(about="customer:B", task=goal).store


# What is seen


def test_a_subject_sees_itself_what_is_beneath_it_and_what_is_about_nothing(store: Store, a: Store, goal: int) -> None:
    """Notes about it, about its orders, and about nobody; of another and of that one's orders none."""
    for about in ("customer:A", "order:of A", "customer:B", "order:of B", None):
        store.notes.add("fact", f"A parcel for {about}", about=about, parent=goal)
    seen = {"A parcel for customer:A", "A parcel for order:of A", "A parcel for None"}
    assert {note.title for note in a.notes.list(kind="fact")} == seen
    assert {hit.record.title for hit in a.recall("parcel")} == seen
    assert {a.notes.get(hit.id).title for hit in a.find("parcel")} == seen
    assert [one.key for one in a.entities.query("customer", total=True)] == ["A"]
    assert a.entities.query("customer", total=True).total == 1
    assert a.entities.groups("order", "type").groups[0].count == 1


def test_a_note_is_about_what_the_nearest_note_above_it_is_about(store: Store, a: Store, goal: int) -> None:
    """However deep; and what belongs to a note goes with it."""
    theirs = store.notes.add("step", "For B", about="customer:B", parent=goal)
    deep = store.notes.add("step", "Deeper", parent=store.notes.add("step", "Deep", parent=theirs))
    store.checklists.add(deep, "An item")
    store.checkpoint("Stuck", task=deep)
    written = store.summarize(deep, result="Sent")
    mine = store.notes.add("fact", "For A, though beneath B's", parent=deep, about="order:of A")
    assert a.notes.get(mine).title == "For A, though beneath B's"
    for ref in (theirs, deep, f"{deep.id}.1", written.id):
        with pytest.raises(OutOfReach, match="another subject"):
            a.get(ref)
    assert a.checkpoints() == ()
    assert [node.id for node in a.graph(goal).nodes] == [goal, mine.id]


def test_another_project_is_another_world(store: Store, a: Store) -> None:
    """Neither by name nor by id, nor by all projects at once, though it is about nobody."""
    other = store.in_project("other").notes.add("fact", "A parcel")
    for ask in (
        lambda: a.get(other), lambda: a.in_project("other"), lambda: a.find("parcel", project="*"),
        lambda: a.recall("parcel", project="other"), lambda: a.projects.get("other"),
    ):  # fmt: skip
        with pytest.raises(OutOfReach):
            ask()
    assert a.in_project(store.project).notes.list(kind="goal")


def test_the_store_of_a_session_is_in_the_project_of_the_session(store: Store, a: Store) -> None:
    """A worker with another project of its own wakes it, and what it writes goes where the session is."""
    session = store.in_project("elsewhere").sessions.get(a.actor.session or 0)
    assert session.store.project == store.project
    assert session.events() == ()


def test_counts_are_of_what_is_seen(store: Store, a: Store, goal: int) -> None:
    """`left` and `resume` count the steps, items, marks and failures that they could show."""
    store.entities.expect("customer", ["paid"])
    for key in ("A", "B", "B"):
        step = store.notes.add("step", f"Answer {key}", about=f"customer:{key}", parent=goal)
        store.checklists.add(step, "One", "Two")
        tried = store.attempts.open(f"Call {key}", task=step)
        store.attempts.close(tried, "failed", why="Nobody there")
    found = a.left(goal)
    assert (found.steps_total, found.items_total) == (1, 2)
    assert [step.title for step in found.steps] == ["Answer A"]
    whole = a.left(None)
    assert (whole.steps_total, whole.items_total, whole.marks_total) == (2, 2, 1)
    for task in (goal, None):
        text = a.resume(task, budget=3000).text
        assert "Call A" in text
        assert "Call B" not in text
        assert "Answer B" not in text
        assert "log.read" not in text
    assert store.left(None).marks_total == 2
    assert a.task_summary(goal).parts_total == 1


def test_what_is_superseded_for_one_is_in_force_for_the_other(store: Store, a: Store, b: Store, goal: int) -> None:
    """A decision about nobody that gave way to one about B still holds for A."""
    shared = store.notes.add("decision", "Refunds by voucher", parent=goal)
    b.notes.add("decision", "Refund in cash", parent=goal, links=[("supersedes", shared)])
    assert "Refunds by voucher" in a.resume(goal).text
    assert "Refunds by voucher" not in b.resume(goal).text
    assert a.links.list(shared) == ()
    assert len(b.links.list(shared)) == 1
    assert [hit.superseded_by for hit in a.recall("refunds voucher")] == [None]


def test_earlier_attempts_and_similar_notes_are_of_the_subject(a: Store, b: Store) -> None:
    """What was tried for B is no news to A, though it was the very same."""
    tried = b.attempts.open("Reset the password")
    b.attempts.close(tried, "failed", why="B has no password")
    b.notes.add("fact", "The password was reset twice")
    assert a.notes.add("fact", "The password was reset twice").similar == ()
    assert a.attempts.open("Reset the password").earlier == ()
    assert len(b.attempts.earlier("Reset the password")) == 1
    assert b.notes.add("fact", "The password was reset twice").similar


def test_a_hint_names_nothing_that_is_hidden(store: Store, a: Store) -> None:
    """A key that nearly is B's is as unknown as any other."""
    store.entities.put("customer", "Bartholomew")
    with pytest.raises(NotFound) as caught:
        a.get("customer:Bartholomeu")
    assert "Bartholomew" not in str(caught.value)
    store.entities.put("vessel", "Argo")
    with pytest.raises(NotFound) as caught:
        a.left(None, type="vesse")
    assert "vessel" not in str(caught.value)


def test_sessions_of_another_are_not_there(store: Store, a: Store, b: Store) -> None:
    """Not in lists, not among those that wait or can go on, not by id, and not as what a note rests on."""
    theirs = store.sessions.get(b.actor.session or 0)
    theirs.append("user.message", "I am B")
    call = theirs.append("agent.tool_use", {"name": "refund", "input": {}, "permission": "ask"})
    shared = store.sessions.start(title="Of nobody")
    assert {one.id for one in a.sessions.list()} == {a.actor.session, shared.id}
    assert a.sessions.waiting() == ()
    assert theirs.id not in {one.session for one in a.sessions.ready()}
    for ask in (lambda: a.sessions.get(theirs), lambda: a.get(call), lambda: a.sessions.confirm(call.id, "allow")):
        with pytest.raises(OutOfReach):
            ask()
    assert a.sessions.source(a.notes.add("fact", "It is said", source=f"#{call.id}")) is None
    assert len(store.sessions.waiting()) == 1


def test_a_checkpoint_on_what_is_shared_is_about_what_its_session_is_about(
    store: Store, a: Store, b: Store, goal: int
) -> None:
    """Where B's work stands is B's, though the task is about nobody; also once the session is purged."""
    b.checkpoint("B waits for a call")
    store.checkpoint("Two customers are waiting", task=goal)
    assert [one.text for one in a.checkpoints()] == ["Two customers are waiting"]
    assert len(b.checkpoints()) == 2
    assert "B waits" not in a.resume(goal).text
    assert not [hit for hit in a.recall("waits for a call") if "call" in hit.snippet]
    store.sessions.get(b.actor.session or 0).forget()
    assert [one.text for one in a.checkpoints()] == ["Two customers are waiting"]
    assert len(store.checkpoints()) == 2


def test_news_is_of_the_subject(store: Store, a: Store, goal: int) -> None:
    """A decision for B on the same task is not told to A."""
    a.news()
    other = store.acting(run="another")
    other.notes.add("decision", "B gets a refund", parent=goal, about="customer:B")
    assert a.news() == ()
    other.notes.add("decision", "All get a refund", parent=goal)
    assert [line for line in a.news() if "All get" in line]


# The past


def test_the_past_of_what_is_seen_can_be_had(a: Store, goal: int) -> None:
    """History, revisions, one revision and a diff of a note of its own."""
    note = a.notes.add("fact", "Sent", parent=goal)
    changed = a.notes.update(note, title="Sent twice")
    assert len(a.history(note).changes) == len(a.revisions(note).changes) == 2
    assert a.revision(note, note.revision).title == "Sent"  # type: ignore[union-attr]
    assert a.diff(note, note.revision, changed.revision).fields[0].after == "Sent twice"


def test_what_was_about_another_once_has_no_past(store: Store, a: Store, goal: int) -> None:
    """A note that was B's, or stood beneath a note of B's, is A's now: what it was is not told."""
    changed = store.notes.add("fact", "A word of B", about="customer:B", parent=goal)
    store.notes.update(changed, title="A word of A", about="customer:A")
    above = store.notes.add("step", "For B", about="customer:B", parent=goal)
    moved = store.notes.add("step", "Another word of B", parent=above)
    beneath = store.notes.add("fact", "And one more", parent=moved)
    store.notes.move(moved, parent=goal)
    for note in (changed, moved, beneath):
        assert a.notes.get(note)
        for ask in (a.history, a.revisions, lambda ref: a.revision(ref, ref.id), lambda ref: a.diff(ref, ref.id)):
            with pytest.raises(OutOfReach, match="once"):
                ask(note)


def test_what_was_undone_is_not_told(store: Store, a: Store) -> None:
    """Of a record that is no more nobody knows whom it was about."""
    gone = store.notes.add("fact", "A word of B", about="customer:B")
    store.undo(gone.revision)
    for ask in (a.history, a.revisions, lambda ref: a.revision(ref, ref.id), a.get, a.forget):
        with pytest.raises(NotFound):
            ask(gone)


def test_the_history_of_a_shared_note_leaves_out_whose_checkpoints_are_others(a: Store, b: Store, goal: int) -> None:
    """It says so, and how it can be had."""
    b.checkpoint("B waits")
    with pytest.raises(OutOfReach, match="deep=False"):
        a.history(goal)
    assert a.history(goal, deep=False).changes


# What is written


def test_what_is_written_is_about_the_subject(a: Store, b: Store, goal: int) -> None:
    """Notes, attempts and those of many at once; beneath a note that has a subject they go with it."""
    about = a.entities.get("customer:A").id
    note, tried = a.notes.add("fact", "Sent", parent=goal), a.attempts.open("Call")
    assert a.notes.get(note).entity == a.notes.get(tried).entity == about
    assert a.notes.get(a.notes.add("fact", "Further", parent=note)).entity is None
    order = a.notes.add("fact", "Of the order", about="order:of A")
    assert a.notes.get(order).entity == a.entities.get("order:of A").id
    assert b.notes.list(kind="fact") == ()


@pytest.mark.parametrize(
    "write",
    [
        lambda view, theirs, _: view.notes.add("fact", "x", about=theirs),
        lambda view, theirs, _: view.attempts.open("x", about=theirs),
        lambda view, _, note: view.notes.add("fact", "x", parent=note),
        lambda view, _, note: view.notes.update(note, title="x"),
        lambda view, _, note: view.checklists.add(note, "x"),
        lambda view, _, note: view.summarize(note, result="x"),
        lambda view, _, note: view.checkpoint("x", task=note),
        lambda view, theirs, _: view.entities.put("customer", "B", status="gone"),
        lambda view, theirs, _: view.entities.put_many("customer", keys=["A", "B"], status="gone"),
        lambda view, theirs, _: view.entities.put("order", "of B", attrs={"a": 1}),
        lambda view, theirs, _: view.entities.put("order", "new", parent=theirs),
        lambda view, theirs, _: view.entities.mark("customer", ["A", "B"], {"paid": "pass"}),
        lambda view, theirs, _: view.entities.mark("customer", [theirs], {"paid": "pass"}),
        lambda view, theirs, _: view.entities.unmark("customer", ["B"], ["paid"]),
        lambda view, theirs, _: view.entities.rename("customer:B", "C"),
        lambda view, theirs, _: view.links.add("customer:A", "knows", theirs),
        lambda view, theirs, note: view.claim([note]),
        lambda view, theirs, _: view.claim([theirs]),
        lambda view, theirs, _: view.release([theirs]),
        lambda view, theirs, _: view.sessions.start(about=theirs),
        lambda view, theirs, note: view.acting(task=note),
        lambda view, theirs, note: view.beneath(note),
        lambda view, theirs, note: view.forget([note]),
        lambda view, theirs, note: view.redact(note),
    ],
)
def test_nothing_of_another_is_changed(
    store: Store, a: Store, goal: int, write: Callable[[Store, int, int], object]
) -> None:
    """Neither by name nor by id, nor together with what is one's own; and no event is left."""
    theirs = store.entities.mark("customer", ["B"], {"paid": "fail"}).ids[0]
    note = store.notes.add("step", "For B", about="customer:B", parent=goal).id
    head = store.log.head()
    with pytest.raises(OutOfReach):
        write(a, theirs, note)
    assert store.log.head() == head


def test_the_next_entities_to_claim_are_one_s_own(store: Store, a: Store) -> None:
    """By type nothing of another is taken; and claims of others are not listed, nor given back."""
    mine = a.claim(type="order", n=10)
    assert mine.ids == (a.entities.get("order:of A").id,)
    theirs = store.claim(["order:of B"]).ids[0]  # by the same run
    assert [one.record for one in a.claims()] == list(mine.ids)
    assert a.release().ids == mine.ids
    assert [one.record for one in store.claims()] == [theirs]


def test_a_new_entity_lies_beneath_the_subject(a: Store, b: Store) -> None:
    """Else its maker would not see it, or everybody did."""
    made = a.entities.put("address", "Main Street 1")
    assert a.entities.get(made).parent == a.entities.get("customer:A").id
    assert a.entities.mark("address", ["Main Street 1"], {"valid": "pass"}).changed == 1
    with pytest.raises(OutOfReach):
        b.entities.get(made)


def test_what_is_about_the_subject_stays_so(store: Store, a: Store, goal: int) -> None:
    """Through its view nothing becomes about nobody, by which every other would see it; a plain view can do that."""
    note = a.notes.add("step", "Of A", parent=goal)
    part = a.notes.add("fact", "Further", parent=note)
    order = a.entities.get("order:of A").id
    for change in (
        lambda: a.notes.update(note, about=None), lambda: a.notes.move(part, parent=goal),
        lambda: a.notes.move(part, parent=None), lambda: a.entities.put("order", "of A", parent=None),
    ):  # fmt: skip
        with pytest.raises(OutOfReach):
            change()
    assert a.notes.update(note, about=order).changed == ("entity",)
    assert store.notes.update(note, about=None).changed == ("entity",)


def test_a_purge_through_a_view_ends_nothing_of_another(store: Store, a: Store, b: Store, goal: int) -> None:
    """Own notes and sessions can be purged; not what others' lies beneath or points at, and not an entity."""
    note = a.notes.add("fact", "Of A", parent=goal)
    shared = store.notes.add("decision", "Of nobody")
    assert a.forget([note]).changed == 1
    b.notes.add("fact", "On it", links=[("supports", shared)])
    for refs in ([shared], [goal], ["customer:A"], ["order:of A"]):
        with pytest.raises(OutOfReach):
            a.forget(refs)
    for more in ({"type": "order"}, {"project": "acme"}):
        with pytest.raises(OutOfReach):
            a.forget(**more)  # type: ignore[arg-type]


def test_a_session_whose_task_became_another_s_tells_nothing_of_it(store: Store, a: Store, goal: int) -> None:
    """Its resume is refused, its window goes without the task, and nothing is written there."""
    store.notes.update(goal, about="customer:B", title="Help B alone")
    session = store.sessions.get(a.actor.session or 0)
    session.append("user.message", "Hello")
    assert "Help B alone" not in session.window().text
    for ask in (a.resume, a.left, lambda: a.checkpoint("x"), lambda: a.attempts.open("x")):
        with pytest.raises(OutOfReach):
            ask()
    assert a.news() == ()


# Always


@settings(max_examples=40, deadline=None)
@given(
    tree=st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([None, None, None, "A", "B", "order A", "order B"])), max_size=25
    )
)
def test_by_sql_and_by_record_the_same_is_seen(
    tmp_path_factory: pytest.TempPathFactory, tree: list[tuple[int, str | None]]
) -> None:
    """In any tree of notes: lists, the search's list and each record agree with the rule, told in three lines."""
    path = tmp_path_factory.mktemp("tree") / "work.db"
    with Store.open(path, project="p", key=bytes(32), durability="normal", embedder=None) as store:
        ids = {key: store.entities.put("customer", key).id for key in ("A", "B")}
        ids |= {f"order {key}": store.entities.put("order", key, parent=ids[key]).id for key in ("A", "B")}
        notes: list[int] = []
        about: dict[int, str | None] = {}
        for place, entity in tree:
            above = notes[place % (len(notes) + 1)] if place % (len(notes) + 1) < len(notes) else None
            note = store.notes.add("fact", "A parcel", parent=above, about=ids.get(entity or ""), similar=False).id
            about[note] = entity or (None if above is None else about[above])
            notes.append(note)
        view = store.sessions.start(about=ids["A"]).store
        wanted = {note for note in notes if about[note] in (None, "A", "order A")}
        assert {note.id for note in view.notes.list(limit=100)} == wanted
        with view._binding.reading() as read:
            assert set(notes) - subjects.hidden(read, notes) == wanted
            assert {record for record in subjects.among(read, 1000) or () if record in about} >= wanted
        if wanted:
            hits = view.find("parcel", limit=100).hits
            assert {hit.id for hit in hits} == wanted
