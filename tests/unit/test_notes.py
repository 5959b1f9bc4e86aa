"""Notes: what they are, how they change, how they stand in the tree."""

from __future__ import annotations

from typing import Any

import pytest

from agentmem import UNSET, Conflict, Held, InvalidInput, LimitExceeded, NewNote, NotFound, Scope, Store
from agentmem.limits import BODY_BYTES, LINKS_PER_WRITE, TAG_CHARS, TAGS_PER_NOTE, TITLE_CHARS, TREE_LEVELS
from agentmem.types import STATUSES


def titles(store: Store, parent: Any = None) -> list[str | None]:
    """The children of a note in their order, or the notes without parent."""
    found = store.notes.list(parent=parent)
    return [note.title for note in found]


# Writing


def test_a_note_gets_the_defaults_of_its_kind(store: Store) -> None:
    """Without more than kind and title: the default status, no parent, nothing set."""
    note = store.notes.get(store.notes.add("goal", "Move to the queue"))
    assert (note.kind, note.title, note.status, note.body) == ("goal", "Move to the queue", "open", "")
    assert (note.tags, note.parent, note.pinned, note.confidence, note.basis, note.why) == (
        (),
        None,
        False,
        None,
        None,
        None,
    )
    assert (note.author, note.run, note.origin) == ("ana", "r1", "agent")
    assert note.created_at == note.updated_at
    assert note.revision == note.id


@pytest.mark.parametrize("kind", STATUSES)
def test_a_kind_takes_its_own_statuses_and_no_other(store: Store, kind: Any) -> None:
    """Every status of the kind is accepted, its first is the default, every other one is refused."""
    assert store.notes.get(store.notes.add(kind, "Any")).status == STATUSES[kind][0]
    for status in {status for allowed in STATUSES.values() for status in allowed}:
        if status in STATUSES[kind]:
            assert store.notes.get(store.notes.add(kind, "Any", status=status)).status == status  # type: ignore[arg-type]
        else:
            with pytest.raises(InvalidInput, match="Allowed are"):
                store.notes.add(kind, "Any", status=status)  # type: ignore[arg-type]


def test_any_transition_between_allowed_statuses_is_accepted(store: Store) -> None:
    """A done goal can be opened again."""
    goal = store.notes.add("goal", "Move", status="done")
    store.notes.update(goal, status="open")
    assert store.notes.get(goal).status == "open"


@pytest.mark.parametrize("kind", ["task", "", "Goal", None, ["goal"], 1])
def test_other_kinds_are_refused(store: Store, kind: Any) -> None:
    """The kinds are a closed set, and the error names them."""
    with pytest.raises(InvalidInput, match="goal, step, attempt"):
        store.notes.add(kind, "Any")


def test_a_title_is_one_trimmed_line_of_bounded_length(store: Store) -> None:
    """Trimmed, the limit is accepted and not one more."""
    note = store.notes.add("fact", "  " + "x" * TITLE_CHARS + "\n ")
    assert store.notes.get(note).title == "x" * TITLE_CHARS
    with pytest.raises(LimitExceeded):
        store.notes.add("fact", "x" * (TITLE_CHARS + 1))


@pytest.mark.parametrize("title", ["", " ", "a\nb", "a\x00", "a\u202eb", "a\u2028b", "a\x1bb", "\ud800", None, 7, b"a"])
def test_odd_titles_are_refused(store: Store, title: Any) -> None:
    """No empty ones, no control, bidirectional or line characters, no half characters, nothing but text."""
    with pytest.raises(InvalidInput):
        store.notes.add("fact", title)
    assert store.log.head().seq == 0


def test_a_body_is_text_of_bounded_bytes(store: Store) -> None:
    """Kept verbatim up to the limit, in bytes of UTF-8; no NUL."""
    body = "é" * (BODY_BYTES // 2)
    assert store.notes.get(store.notes.add("fact", "Long", body=body)).body == body
    for bad in (body + "x", "a\x00b", "\ud800"):
        with pytest.raises(InvalidInput):
            store.notes.add("fact", "Bad", body=bad)


def test_tags_are_labels_without_repeats(store: Store) -> None:
    """Letters of any script; the order is kept; as many as the limit says and of bounded length."""
    note = store.notes.add("fact", "Tagged", tags=["p0", "größe", "数据", "p0"])
    assert store.notes.get(note).tags == ("p0", "größe", "数据")
    store.notes.add("fact", "Many", tags=[f"t{number}" for number in range(TAGS_PER_NOTE)])
    for bad in (
        [f"t{number}" for number in range(TAGS_PER_NOTE + 1)],
        ["a b"],
        [""],
        ["x" * (TAG_CHARS + 1)],
        "p0",
        [1],
    ):
        with pytest.raises(InvalidInput):
            store.notes.add("fact", "Bad", tags=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("confidence", [-0.1, 1.1, "1", True, float("nan")])
def test_confidence_is_a_number_from_nought_to_one(store: Store, confidence: Any) -> None:
    """Nothing else counts as one."""
    with pytest.raises(InvalidInput):
        store.notes.add("fact", "Sure", confidence=confidence)


def test_a_failed_link_takes_the_note_with_it(store: Store) -> None:
    """A note whose links can't all be written is not written."""
    goal = store.notes.add("goal", "Move")
    head = store.log.head()
    for links in ([("supports", goal), ("supports", 999)], [("sings", goal)], [("supports",)], ["supports"], 7):
        with pytest.raises((InvalidInput, NotFound)):
            store.notes.add("fact", "Linked", links=links)  # type: ignore[arg-type]
        with pytest.raises((InvalidInput, NotFound)):
            store.notes.add_many([NewNote("fact", "Linked", links=links)])  # type: ignore[arg-type]
    with pytest.raises(LimitExceeded):
        store.notes.add("fact", "Linked", links=[("supports", goal)] * (LINKS_PER_WRITE + 1))
    assert store.log.head() == head


def test_the_revision_of_a_new_note_is_its_own(store: Store) -> None:
    """Also where its links closed a question: the revision that is returned can be expected."""
    question = store.notes.add("question", "Which port?")
    answer = store.notes.add("fact", "8443", links=[("answers", question)])
    assert answer.revision == store.notes.get(answer).revision
    store.notes.update(answer, append="Seen it", expected_revision=answer.revision)
    assert store.notes.get(question).status == "done"


def test_similar_notes_of_the_project_are_named(store: Store) -> None:
    """Case does not matter, other projects do, nothing is merged, and what is unlike is not named."""
    first = store.notes.add("fact", "The login form filters quotes")
    store.in_project("other").notes.add("fact", "The login form filters quotes")
    again = store.notes.add("fact", "the LOGIN form filters quotes")
    assert [brief.id for brief in again.similar] == [first.id]
    assert store.notes.add("fact", "Port 8443 answers").similar == ()
    assert store.notes.add("fact", "The login form filters quotes", similar=False).similar == ()


def test_add_many_refers_to_its_own(store: Store) -> None:
    """`$1` is the first note of the call, as parent and as a link's target; nothing is written if one is bad."""
    made = store.notes.add_many(
        [
            NewNote("goal", "Move"),
            NewNote("step", "Consumer", parent="$1"),
            NewNote("fact", "It works", parent="$2", links=[("supports", "$1")]),
        ]
    )
    assert made.created == 3
    assert [store.notes.get(found).parent for found in made.ids] == [None, made.ids[0], made.ids[1]]
    assert store.links.list(made.ids[2])[0].dst == made.ids[0]
    head = store.log.head()
    for bad in ("$0", "$2", "$9", "$x", "$"):
        with pytest.raises((InvalidInput, NotFound)):
            store.notes.add_many([NewNote("goal", "Kept?"), NewNote("step", "Bad", parent=bad)])
    for odd in (["goal"], "goal", 7, None):
        with pytest.raises(InvalidInput):
            store.notes.add_many(odd)  # type: ignore[arg-type]
    assert store.log.head() == head


# Changing


def test_a_change_of_nothing_leaves_no_event(store: Store) -> None:
    """Every field set to what it is: no event, no revision, and the answer names no field."""
    host = store.entities.put("host", "a")
    scope = store.scope("host", checks=["tls"])
    step = store.notes.add(
        "step", "Check", body="All", tags=["p1"], pin=True, confidence=1, basis="Seen", about=host, scope=scope
    )
    head = store.log.head()
    done = store.notes.update(
        step, title=" Check ", body="All", status="open", tags=["p1", "p1"], pin=True, confidence=1.0, basis="Seen",
        about="host:a", scope=scope, dated=None, source=None,
    )  # fmt: skip
    assert done.changed == ()
    assert done.revision == step.revision
    assert store.notes.update(step).changed == ()
    assert store.notes.update_many([step], pin=True).unchanged == 1
    assert store.log.head() == head


def test_an_update_names_what_differs_and_keeps_the_rest(store: Store) -> None:
    """Fields that are not given stay; the event holds what changed and nothing else."""
    note = store.notes.add("fact", "Port", body="8443", tags=["p1"])
    done = store.notes.update(note, title="The port", tags=["p1"], confidence=0.5)
    assert done.changed == ("confidence", "title")
    assert store.notes.get(note).body == "8443"
    event = store.log.get(done.revision)
    assert event is not None
    assert event.payload == {"set": {"title": "The port", "confidence": 0.5}}


def test_w5_anything_that_can_be_set_can_be_unset(store: Store) -> None:
    """Parent, entity, confidence, basis could be set and never cleared. Ours: None clears, UNSET leaves."""
    host = store.entities.put("host", "a")
    parent = store.notes.add("goal", "Above")
    note = store.notes.add(
        "step", "All", parent=parent, about=host, confidence=0.5, basis="Seen", dated=5, source="a.md", tags=["p1"],
        pin=True, body="Text", scope=store.scope("host"),
    )  # fmt: skip
    store.notes.update(note, confidence=UNSET, basis=UNSET)
    assert store.notes.get(note).confidence == 0.5
    store.notes.update(
        note, about=None, confidence=None, basis=None, dated=None, source=None, tags=[], pin=False, body="", scope=None
    )
    store.notes.move(note, parent=None)
    now = store.notes.get(note)
    assert (now.entity, now.confidence, now.basis, now.dated, now.source, now.scope) == (None,) * 6
    assert (now.tags, now.pinned, now.body, now.parent) == ((), False, "", None)
    attempt = store.attempts.open("Try")
    store.attempts.close(attempt, "failed", why="Refused")
    store.notes.update(attempt, why=None, status="worked")
    assert store.notes.get(attempt).why is None
    assert store.verify(replay=True)


def test_append_extends_the_body_within_the_limit(store: Store) -> None:
    """A newline between; too much, nothing, or together with body= leaves it as it was."""
    note = store.notes.add("fact", "Log", body="One")
    store.notes.update(note, append="Two")
    assert store.notes.get(note).body == "One\nTwo"
    for bad in ({"append": "x" * BODY_BYTES}, {"append": " "}, {"append": "a", "body": "b"}):
        with pytest.raises(InvalidInput):
            store.notes.update(note, **bad)  # type: ignore[arg-type]
    assert store.notes.get(note).body == "One\nTwo"


def test_a_stale_revision_conflicts(store: Store) -> None:
    """Whoever decided on an older state is told the present revision, and nothing is lost."""
    note = store.notes.add("fact", "Port", body="80")
    seen = store.notes.get(note)
    store.notes.update(note, body="443")
    for change in (
        lambda: store.notes.update(note, body="8080", expected_revision=seen.revision),
        lambda: store.notes.move(note, first=True, expected_revision=seen.revision),
        lambda: store.confirm(note, expected_revision=seen.revision),
    ):
        with pytest.raises(Conflict) as raised:
            change()
        assert raised.value.current == store.notes.get(note).revision
    assert store.notes.get(note).body == "443"


def test_wrong_fields_for_a_kind_are_refused(store: Store) -> None:
    """`why` belongs to attempts, `scope` to tasks."""
    fact = store.notes.add("fact", "Port")
    for bad in ({"why": "Because"}, {"scope": Scope("host")}):
        with pytest.raises(InvalidInput):
            store.notes.update(fact, **bad)  # type: ignore[arg-type]
        with pytest.raises(InvalidInput):
            store.notes.add("decision", "So", **bad)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.notes.add("step", "All", scope={"type": "host"})  # type: ignore[arg-type]


def test_update_many_is_all_or_none(store: Store) -> None:
    """One note that can't take the status undoes the change of the others."""
    steps = [store.notes.add("step", title) for title in ("One", "Two")]
    fact = store.notes.add("fact", "Not a step")
    with pytest.raises(InvalidInput):
        store.notes.update_many([*steps, fact], status="done")
    assert {store.notes.get(step).status for step in steps} == {"open"}
    done = store.notes.update_many([*steps, steps[0]], status="done")
    assert (done.changed, done.unchanged) == (2, 1)


def test_r7_closing_a_task_warns_of_what_is_open_beneath(store: Store) -> None:
    """A goal could be closed over open steps without a word. Ours says how many steps and items are left."""
    goal = store.notes.add("goal", "Move")
    step = store.notes.add("step", "Consumer", parent=goal)
    store.notes.add("step", "Producer", parent=step)
    store.checklists.add(step, "Test it")
    assert store.notes.update(goal, status="done").notices == (
        f"#{goal.id} is closed with 2 open steps and 1 open checklist item beneath it",
    )
    assert store.summarize(goal, result="Moved").notices[0].startswith(f"#{goal.id} is closed with 2 open steps")
    store.notes.update_many(list(store.notes.list(kind="step")), status="dropped")
    store.checklists.done(step, 1)
    store.notes.update(goal, status="open")
    assert store.notes.update(goal, status="done").notices == ()


# Origin


def test_the_origin_of_a_note_is_the_least_trusted_of_its_text(store: Store) -> None:
    """Any change of text by a less trusted hand lowers it, none by a more trusted one raises it."""
    note = store.acting(origin="user").notes.add("fact", "Port")
    store.notes.update(note, append="By the agent")
    assert store.notes.get(note).origin == "agent"
    store.acting(origin="web").notes.update(note, status="dropped", pin=True)
    assert store.notes.get(note).origin == "agent"
    store.acting(origin="tool").notes.update(note, append="By a tool")
    assert store.notes.get(note).origin == "tool"
    store.acting(origin="user").notes.update(note, title="Mine", body="All new")
    assert store.notes.get(note).origin == "tool"


def test_only_a_persons_word_lifts_a_note_out(store: Store) -> None:
    """`confirm` by a user raises the origin; by an agent it does not, and a tool or page can confirm nothing."""
    note = store.acting(origin="web").notes.add("decision", "Scan all")
    store.confirm(note)
    assert store.notes.get(note).untrusted
    for origin in ("tool", "web", "import"):
        with pytest.raises(InvalidInput):
            store.acting(origin=origin).confirm(note)
    store.acting(origin="user", author="pat").confirm(note)
    now = store.notes.get(note)
    assert (now.origin, now.untrusted, now.confirmed_by) == ("user", False, "pat")


def test_a_basis_given_with_a_confirmation_is_text_of_its_giver(store: Store) -> None:
    """An agent that confirms a person's note with a basis of its own does not speak as that person."""
    note = store.acting(origin="user").notes.add("fact", "Port")
    store.confirm(note, basis="The agent says so")
    assert store.notes.get(note).origin == "agent"


def test_a_confirmation_is_no_edit(store: Store, clock: Any) -> None:
    """It sets who and when, also where it lifts a note out, and leaves the time of the last change alone."""
    note = store.acting(origin="web").notes.add("fact", "Port", confidence=0.5)
    written = store.notes.get(note)
    clock.advance(seconds=60)
    done = store.acting(origin="user", author="pat").confirm(note, confidence=0.5)
    now = store.notes.get(note)
    assert done.changed == ("confirmed_at", "confirmed_by", "origin")
    assert now.updated_at == written.updated_at
    assert now.confirmed_at is not None
    assert now.confirmed_at > written.created_at
    assert store.confirm(note, confidence=0.9).changed == ("confidence", "confirmed_at", "confirmed_by")
    assert store.notes.get(note).updated_at > written.updated_at


# The tree


def test_a_child_takes_its_parents_project_and_a_goal_stays_on_top(store: Store) -> None:
    """Whatever project the view is of; a goal beneath anything is refused."""
    goal = store.notes.add("goal", "Move")
    child = store.in_project("other").notes.add("step", "Beneath", parent=goal)
    assert store.notes.get(child).project == store.notes.get(goal).project
    with pytest.raises(InvalidInput, match="goal has no parent"):
        store.notes.add("goal", "Beneath", parent=goal)
    with pytest.raises(InvalidInput, match="goal has no parent"):
        store.notes.move(store.notes.add("goal", "Other"), parent=goal)


def test_a_note_cannot_come_beneath_itself(store: Store) -> None:
    """Neither directly nor by others, and the tree stays as it was."""
    top = store.notes.add("step", "Top")
    middle = store.notes.add("step", "Middle", parent=top)
    bottom = store.notes.add("step", "Bottom", parent=middle)
    for target in (top, middle, bottom):
        with pytest.raises(Conflict):
            store.notes.move(top, parent=target)
    assert [store.notes.get(note).parent for note in (top, middle, bottom)] == [None, top.id, middle.id]


def test_the_tree_has_a_depth_limit_that_moves_respect(store: Store) -> None:
    """So many levels and not one more, counted with what hangs beneath the note that moves."""
    chain = [store.notes.add("step", "Level 1")]
    for level in range(2, TREE_LEVELS + 1):
        chain.append(store.notes.add("step", f"Level {level}", parent=chain[-1]))
    with pytest.raises(LimitExceeded):
        store.notes.add("step", "Too deep", parent=chain[-1])
    pair = store.notes.add("step", "Upper")
    store.notes.add("fact", "Lower", parent=pair)
    with pytest.raises(LimitExceeded):
        store.notes.move(pair, parent=chain[-2])
    store.notes.move(pair, parent=chain[-3])
    store.notes.move(chain[1], parent=None)
    store.notes.move(chain[1], parent=chain[0])
    assert store.verify(replay=True)


def test_a_note_stays_in_its_project(store: Store) -> None:
    """Neither beneath a note of another project, nor beside one, nor about an entity of one."""
    there = store.in_project("other")
    elsewhere = there.notes.add("step", "Elsewhere")
    host = there.entities.put("host", "a")
    here = store.notes.add("step", "Here")
    for use in (
        lambda: store.notes.move(here, parent=elsewhere),
        lambda: store.notes.move(here, before=elsewhere),
        lambda: store.notes.move(here, after=elsewhere),
        lambda: store.notes.move(here, parent=None, after=elsewhere),
        lambda: store.notes.update(here, about=host),
        lambda: store.notes.add("fact", "About", about=host),
        lambda: store.notes.add("fact", "About", parent=here, about=host),
    ):
        with pytest.raises(InvalidInput, match="project"):
            use()


def test_notes_keep_the_order_they_are_put_in(store: Store) -> None:
    """Before, after, first, last; a place that is already held changes nothing."""
    top = store.notes.add("goal", "Top")
    a, b, c = (store.notes.add("step", name, parent=top) for name in "abc")
    store.notes.move(c, before=a)
    assert titles(store, top) == ["c", "a", "b"]
    store.notes.move(c, after=a)
    assert titles(store, top) == ["a", "c", "b"]
    store.notes.move(b, first=True)
    assert titles(store, top) == ["b", "a", "c"]
    store.notes.move(b)
    assert titles(store, top) == ["a", "c", "b"]
    head = store.log.head()
    for done in (
        store.notes.move(b), store.notes.move(a, first=True), store.notes.move(c, before=b),
        store.notes.move(c, after=a), store.notes.move(a, parent=top, before=c),
    ):  # fmt: skip
        assert done.changed == ()
    assert store.log.head() == head
    store.notes.add("step", "d", parent=top)
    assert titles(store, top) == ["a", "c", "b", "d"]
    store.notes.update(b, pin=True)
    assert titles(store, top) == ["b", "a", "c", "d"]


def test_there_is_always_room_between_two_notes(store: Store) -> None:
    """Ninety notes put between the same two: where numbers run out the siblings are spaced anew, in the log too."""
    top = store.notes.add("goal", "Top")
    first, last = (store.notes.add("step", name, parent=top) for name in ("first", "last"))
    names = []
    for number in range(90):
        note = store.notes.add("step", f"n{number}", parent=top)
        store.notes.move(note, before=last)
        store.notes.move(note, after=first)
        names.insert(0, f"n{number}")
    assert titles(store, top) == ["first", *names, "last"]
    assert store.verify(replay=True)


def test_contradicting_places_are_refused(store: Store) -> None:
    """Two places at once, a place beside itself, a sibling that is not there."""
    top, other = store.notes.add("goal", "Top"), store.notes.add("goal", "Other")
    a, b = (store.notes.add("step", name, parent=top) for name in "ab")
    for use in (
        lambda: store.notes.move(a, before=b, after=b),
        lambda: store.notes.move(a, before=b, first=True),
        lambda: store.notes.move(a, before=a),
        lambda: store.notes.move(a, parent=other, before=b),
    ):
        with pytest.raises(InvalidInput):
            use()


def test_lists_filter_and_page(store: Store) -> None:
    """By kind, status, parent, subtree, entity and tag; pages join without gap or repeat."""
    host = store.entities.put("host", "a")
    goal = store.notes.add("goal", "Top")
    step = store.notes.add("step", "Step", parent=goal, tags=["p0"])
    facts = [
        store.notes.add("fact", f"Fact {number}", parent=step, about=host if number % 2 else None)
        for number in range(7)
    ]
    store.notes.update(facts[0], status="dropped")
    ids = [fact.id for fact in facts]

    def found(**given: Any) -> list[int]:
        return [note.id for note in store.notes.list(**given)]

    assert found(kind="fact") == ids
    assert found(kind="fact", status="dropped") == ids[:1]
    assert found(tag="p0") == [step.id]
    assert found(about=host) == ids[1::2]
    assert found(under=goal) == [step.id, *ids]
    assert found(parent=step) == ids
    assert found(parent=None) == [goal.id]
    for given in ({"kind": "fact"}, {"parent": step}):
        pages, after = [], 0
        while page := found(limit=3, after=after, **given):
            pages += page
            after = page[-1]
        assert pages == ids
    assert store.in_project("other").notes.list() == ()


def test_a_refusal_names_the_next_step(store: Store) -> None:
    """An error says what, why and what to do now."""
    store.claim([store.notes.add("fact", "Mine")])
    with pytest.raises(Held) as raised:
        store.acting(run="r2").notes.update(2, title="Yours")
    assert raised.value.what
    assert raised.value.next
    assert raised.value.to_dict()["code"] == "held"
