"""Links: typed between notes, free between entities, each said once."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from agentmem import Conflict, InvalidInput, NotFound, Store
from agentmem.types import LINK_KINDS


def notes(store: Store, number: int, kind: Any = "step") -> list[int]:
    return [store.notes.add(kind, f"Note {each}", similar=False).id for each in range(number)]


@pytest.mark.parametrize("kind", [kind for kind in LINK_KINDS if kind != "answers"])
def test_a_link_is_directed_and_said_once(store: Store, kind: Any) -> None:
    """It is listed at both ends, with who said it; saying it again changes nothing; unsaying works once."""
    a, b = notes(store, 2)
    done = store.links.add(a, kind, b)
    assert done.revision == store.notes.get(a).revision
    for end in (a, b):
        (link,) = store.links.list(end)
        assert (link.src, link.kind, link.dst, link.author, link.run) == (a, kind, b, "ana", "r1")
    head = store.log.head()
    assert store.links.add(a, kind, b).changed == ()
    assert store.log.head() == head
    assert store.links.remove(a, kind, b).changed == ("links",)
    assert store.links.remove(a, kind, b).changed == ()
    assert store.links.list(a) == ()
    assert store.verify(replay=True)


def test_w8_a_link_says_who_made_it_and_who_took_it_away(store: Store) -> None:
    """Links had no author. Ours name author and run, in the list and in the log, for both."""
    a, b = notes(store, 2)
    store.links.add(a, "supports", b)
    store.acting(author="bob", run="r2").links.remove(a, "supports", b)
    events = store.log.read(kinds=["note.linked", "note.unlinked"])
    assert [(event.author, event.run) for event in events] == [("ana", "r1"), ("bob", "r2")]


def test_unknown_kinds_ends_and_loops_are_refused(store: Store) -> None:
    """Between notes the kinds are closed; both ends exist, are of one type, and are two."""
    a, b = notes(store, 2)
    store.entities.put("host", "a")
    for use in (
        lambda: store.links.add(a, "sings", b),
        lambda: store.links.add(a, "supports", a),
        lambda: store.links.add(a, "supports", "host:a"),
        lambda: store.links.add("host:a", "runs on", "host:a"),
        lambda: store.links.add(store.checkpoint("x"), "supports", a),
    ):
        with pytest.raises(InvalidInput):
            use()
    for missing in (999, "host:b"):
        with pytest.raises(NotFound):
            store.links.add(a, "supports", missing)


@pytest.mark.parametrize("kind", ["depends_on", "supersedes"])
def test_some_kinds_must_not_go_in_a_circle(store: Store, kind: Any) -> None:
    """Neither directly nor by others; a chain may be long."""
    ids = notes(store, 5)
    for one, other in pairwise(ids):
        store.links.add(one, kind, other)
    for start in ids[:-1]:
        with pytest.raises(Conflict):
            store.links.add(ids[-1], kind, start)
    assert len(store.links.list(ids[-1])) == 1


def test_other_kinds_may(store: Store) -> None:
    """Two notes may support or contradict each other."""
    a, b = notes(store, 2)
    for kind in ("supports", "contradicts", "relates_to"):
        store.links.add(a, kind, b)
        store.links.add(b, kind, a)
    assert len(store.links.list(a)) == 6


def test_an_answer_closes_its_question(store: Store) -> None:
    """In the same transaction; an answered or dropped question stays as it is; only questions are answered."""
    question = store.notes.add("question", "Which port?")
    dropped = store.notes.add("question", "Which colour?", status="dropped")
    fact = store.notes.add("fact", "8443")
    store.links.add(fact, "answers", question)
    assert store.notes.get(question).status == "done"
    store.links.add(fact, "answers", dropped)
    assert store.notes.get(dropped).status == "dropped"
    kinds = [event.kind for event in store.log.read(after=fact.id)]
    assert kinds == ["note.linked", "note.changed", "note.linked"]
    with pytest.raises(InvalidInput, match="question"):
        store.links.add(question, "answers", fact)


def test_an_answer_to_a_question_that_somebody_else_holds_is_refused_whole(store: Store) -> None:
    """The link is not made either."""
    question = store.notes.add("question", "Which port?")
    fact = store.notes.add("fact", "8443")
    store.acting(run="r2").claim([question])
    with pytest.raises(Conflict):
        store.links.add(fact, "answers", question)
    assert store.links.list(fact) == ()


def test_links_may_cross_projects(store: Store) -> None:
    """A decision of one project may rest on a fact of another."""
    here = store.notes.add("decision", "So")
    there = store.in_project("other").notes.add("fact", "Elsewhere")
    store.links.add(here, "uses", there)
    assert store.links.list(there)[0].src == here.id


def test_entities_take_any_token_as_kind(store: Store) -> None:
    """Between entities the kinds are free; odd words are refused."""
    store.entities.put_many("host", keys=["a", "b"])
    store.links.add("host:a", "runs-on", "host:b")
    assert store.links.list("host:b", kind="runs-on")[0].kind == "runs-on"
    assert store.links.list("host:b", kind="other") == ()
    for kind in ("", "two words", "x" * 100, None):
        with pytest.raises(InvalidInput):
            store.links.add("host:a", kind, "host:b")  # type: ignore[arg-type]


def test_lists_of_links_page(store: Store) -> None:
    """Pages join without gap or repeat."""
    top, *others = notes(store, 8)
    for other in others:
        store.links.add(other, "supports", top)
    found, after = [], 0
    while page := store.links.list(top, limit=3, after=after):
        found += [link.src for link in page]
        after = page[-1].seq
    assert found == others


def test_r4_what_can_never_be_done_blocks_nothing(store: Store) -> None:
    """To depend on a fact, decision, lesson or failed attempt blocked a step for ever: these are never done.

    Ours counts facts, decisions and lessons as settled at once, an attempt that worked, and whatever was superseded.
    """
    step = store.notes.add("step", "Deploy")
    for kind in ("fact", "decision", "lesson"):
        store.links.add(step, "depends_on", store.notes.add(kind, f"A {kind}"))  # type: ignore[arg-type]
    assert store.left().steps[0].blocked_by == ()
    tried = store.attempts.open("First try")
    store.links.add(step, "depends_on", tried)
    assert store.left().steps[0].blocked_by == (tried.id,)
    store.attempts.close(tried, "failed", why="Refused")
    again = store.attempts.open("Second try")
    store.links.add(again, "supersedes", tried)
    assert store.left().steps[0].blocked_by == ()
    store.links.add(step, "depends_on", again)
    assert store.left().steps[0].blocked_by == (again.id,)
    store.attempts.close(again, "worked")
    assert store.left().steps[0].blocked_by == ()


@pytest.mark.parametrize("status", ["done", "dropped"])
def test_a_dependency_is_settled_by_its_status(store: Store, status: Any) -> None:
    """A step that is done or dropped blocks nothing any more, a failed one does."""
    before, step = notes(store, 2)
    store.links.add(step, "depends_on", before)
    store.notes.update(before, status="failed")
    assert store.left().steps[0].blocked_by == (before,)
    store.notes.update(before, status=status)
    assert store.left().steps[0].blocked_by == ()
