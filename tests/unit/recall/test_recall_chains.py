"""The order of what was recalled: successors, what was dropped, contradictions, the task, near ties; and repeats."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
from toy import Toy, embedded, ids

from agentmem import NewNote, Store

Opens = Callable[..., Store]


def by_id(answer: Any) -> dict[int, Any]:
    return {hit.id: hit for hit in answer}


@pytest.fixture(params=["words", "meaning"])
def store(request: pytest.FixtureRequest, opened: Opens) -> Store:
    """With and without meaning the order is the same."""
    return opened(embedder=None if request.param == "words" else Toy(), author="ana", run="r1")


def test_what_was_superseded_stands_below_its_successor(store: Store) -> None:
    """Also where it matches better; it names what superseded it, in the text too."""
    old = store.notes.add("decision", "Queue: use kafka for the order messages")
    new = store.notes.add("decision", "Queue for orders: nats", links=[("supersedes", old)])
    answer = store.recall("queue kafka order messages")
    assert ids(answer) == [new.id, old.id]
    assert by_id(answer)[old.id].superseded_by == new.id
    assert f"superseded by #{new.id}" in answer.text


def test_what_was_superseded_stands_below_others_that_are_in_force(store: Store) -> None:
    """Not only below its successor: a record in force that matches nearly as well comes first."""
    old = store.notes.add("decision", "Use kafka for order messages")
    store.notes.add("decision", "Everything goes through NATS", links=[("supersedes", old)])
    store.notes.add_many([NewNote("fact", f"Something else {n}") for n in range(10)])
    kept = store.notes.add("decision", "Use nats for order messages in the shop")
    found = ids(store.recall("use kafka for order messages"))
    assert found.index(kept.id) < found.index(old.id)


def test_a_successor_that_matches_nothing_is_brought_in(store: Store) -> None:
    """Who asks in the words of the old decision gets the new one above it, and is told why."""
    old = store.notes.add("decision", "Use kafka for messages")
    new = store.notes.add("decision", "Everything goes through NATS JetStream", links=[("supersedes", old)])
    answer = store.recall("kafka messages")
    assert ids(answer) == [new.id, old.id]
    assert by_id(answer)[new.id].why.supersedes == old.id
    assert f"supersedes #{old.id}" in answer.text


def test_a_chain_brings_in_its_end_only(store: Store) -> None:
    """Of a whole chain that matches by its first record only that record and the last are shown."""
    names = ("kafka messages", "rabbit hutch", "nats server", "sqs cloud")
    chain = [store.notes.add("decision", name).id for name in names]
    for older, newer in itertools.pairwise(chain):
        store.links.add(newer, "supersedes", older)
    answer = store.recall("kafka messages")
    assert ids(answer) == [chain[3], chain[0]]


def test_a_successor_that_does_not_pass_is_named_all_the_same(store: Store) -> None:
    """A filter that leaves the successor out does not make its predecessor look in force."""
    old = store.notes.add("decision", "Use kafka for messages", tags=["old"])
    new = store.notes.add("decision", "Use nats for messages", links=[("supersedes", old)])
    answer = store.recall("use kafka for messages", tag="old")
    assert [(hit.id, hit.superseded_by) for hit in answer] == [(old.id, new.id)]


def test_a_successor_that_was_dropped_overrules_nothing(store: Store) -> None:
    """A dropped successor leaves what it superseded in force."""
    old = store.notes.add("decision", "Use kafka for messages")
    new = store.notes.add("decision", "Use nats for messages", links=[("supersedes", old)])
    store.notes.update(new, status="dropped")
    answer = store.recall("use kafka for messages")
    assert ids(answer)[0] == old.id
    assert by_id(answer)[old.id].superseded_by is None


def test_of_two_successors_the_latest_counts(store: Store) -> None:
    """Where two records supersede one, it names the later of them."""
    old = store.notes.add("decision", "Use kafka for messages")
    store.notes.add("decision", "Use nats for messages", links=[("supersedes", old)])
    second = store.notes.add("decision", "Use sqs for messages", links=[("supersedes", old)])
    assert by_id(store.recall("use kafka for messages"))[old.id].superseded_by == second.id


def test_what_was_dropped_stands_below(store: Store) -> None:
    """A dropped record that matches better stands below one in force."""
    dropped = store.notes.add("decision", "Use kafka for order messages", status="dropped")
    store.notes.add_many([NewNote("fact", f"Something else {n}") for n in range(10)])
    kept = store.notes.add("decision", "Use nats for order messages in the shop")
    assert ids(store.recall("use kafka for order messages"))[:2] == [kept.id, dropped.id]


def test_what_is_contradicted_says_by_what(store: Store) -> None:
    """The mark is on what is contradicted, not on what contradicts, and goes with a dropped contradiction."""
    claim = store.notes.add("fact", "The staging gateway allows POST")
    against = store.notes.add("fact", "The staging gateway refuses POST", links=[("contradicts", claim)])
    answer = store.recall("staging gateway POST")
    assert by_id(answer)[claim.id].contradicted_by == (against.id,)
    assert by_id(answer)[against.id].contradicted_by == ()
    assert f"contradicted by #{against.id}" in answer.text
    store.notes.update(against, status="dropped")
    assert by_id(store.recall("staging gateway POST"))[claim.id].contradicted_by == ()


def test_a_task_lifts_near_ties_only(store: Store) -> None:
    """Of equals the one beneath the task is first; a record that matches far better stays above it."""
    one, two = (store.notes.add("goal", f"Part {name}") for name in ("one", "two"))
    there = store.notes.add("fact", "Gateway timeout seen", parent=one)
    mine = store.notes.add("fact", "Gateway timeout noted", parent=two)
    best = store.notes.add("fact", "The payment provider has a gateway timeout")
    store.notes.add_many([NewNote("fact", f"Something else {n}") for n in range(10)])
    assert ids(store.recall("gateway timeout", task=two))[0] == mine.id
    assert by_id(store.recall("gateway timeout", task=two))[mine.id].why.in_task
    assert ids(store.recall("gateway timeout", task=one)).index(mine.id) > ids(
        store.recall("gateway timeout", task=one)
    ).index(there.id)
    assert ids(store.recall("gateway timeout payment provider", task=two))[0] == best.id
    assert ids(store.acting(task=two).recall("gateway timeout"))[0] == mine.id
    assert not any(hit.why.in_task for hit in store.acting(task=two).recall("gateway timeout", task=None))


def test_a_task_lifts_what_belongs_to_notes_beneath_it(store: Store) -> None:
    """Items, checkpoints, summaries and entities of a task belong to it as its notes do."""
    host = store.entities.put("host", "gateway-1")
    goal = store.notes.add("goal", "Part")
    step = store.notes.add("step", "Deeper", parent=goal, about=host)
    mine = {
        store.checklists.add(step, "Check gateway").ids[0], store.checkpoint("At gateway", task=step).id,
        store.summarize(step, work="Saw gateway", result="fine").id, host.id,
    }  # fmt: skip
    store.notes.add("fact", "Gateway elsewhere")
    answer = store.recall("gateway", task=goal)
    assert {hit.id for hit in answer if hit.why.in_task} == mine


def test_of_equals_the_fresher_is_first(store: Store, clock: Any) -> None:
    """Of two records that say the same about two hosts, the one written later is first; a better match still wins."""
    old = store.notes.add("fact", "Gateway alpha timeout")
    clock.advance(seconds=90 * 86_400)
    new = store.notes.add("fact", "Gateway bravo timeout")
    assert ids(store.recall("gateway timeout")) == [new.id, old.id]
    assert ids(store.recall("gateway alpha timeout"))[0] == old.id


def test_of_equals_the_surer_is_first(store: Store) -> None:
    """Of two records that match alike the one with more confidence is first."""
    sure = store.notes.add("fact", "Gateway alpha timeout", confidence=0.95)
    store.notes.add("fact", "Gateway bravo timeout", confidence=0.1)
    assert ids(store.recall("gateway timeout"))[0] == sure.id


def test_the_order_is_the_same_every_time(store: Store) -> None:
    """Many equal records come in one order, and a smaller limit shows the beginning of a larger one."""
    made = store.notes.add_many([NewNote("fact", f"Gateway timeout of tenant {n}") for n in range(60)])
    embedded(store)
    first = ids(store.recall("gateway timeout", limit=20))
    assert all(ids(store.recall("gateway timeout", limit=20)) == first for _ in range(3))
    assert ids(store.recall("gateway timeout", limit=5)) == first[:5]
    assert set(first) <= set(made.ids)


def test_more_counts_what_is_relevant_and_not_shown(store: Store) -> None:
    """What is shown, what it stands for and what is left over come to all that is relevant."""
    old = store.notes.add("decision", "Gateway timeout is 5 seconds")
    new = store.notes.add("decision", "Wait half as long", links=[("supersedes", old)])
    store.notes.add_many([NewNote("fact", f"Gateway timeout of tenant {n}") for n in range(5)])
    whole = store.recall("gateway timeout", limit=50)
    assert (len(whole), whole.more) == (7, 0)
    part = store.recall("gateway timeout", limit=3)
    assert new.id in ids(whole)
    assert (len(part), part.more) == (3, 4)


# Repeats


def test_a_repeat_is_shown_once_with_the_others_named(store: Store) -> None:
    """Three facts that say the same are one hit that names the two others, also in the text."""
    made = {
        store.notes.add("fact", title).id
        for title in ("The login form is slow.", "The login form is slow", "the login form is slow")
    }
    answer = store.recall("slow login form")
    assert len(answer) == 1
    assert {answer.hits[0].id, *answer.hits[0].repeats} == made
    assert all(f"#{other}" in answer.text for other in answer.hits[0].repeats)


@pytest.mark.parametrize(
    "other",
    [
        {"status": "dropped"}, {"kind": "lesson"}, {"about": "host:a"}, {"title": "The login form takes 3 seconds"},
        {"title": "The login form takes 2 minutes"}, {"body": "Not any more"}, {"why": "x", "kind": "attempt"},
    ],
)  # fmt: skip
def test_what_differs_in_anything_that_tells_is_no_repeat(store: Store, other: dict[str, Any]) -> None:
    """Status, kind, entity, a number, a unit or a body keep two records apart."""
    store.entities.put("host", "a")
    given = {"kind": "fact", "title": "The login form takes 2 seconds"}
    store.notes.add(**given)  # type: ignore[arg-type]
    store.notes.add(**(given | other))  # type: ignore[arg-type]
    answer = store.recall("login form takes seconds", limit=20)
    assert len(answer) == 2
    assert all(hit.repeats == () for hit in answer)


def test_two_projects_and_two_origins_are_kept_apart(store: Store) -> None:
    """What another project or somebody untrusted says in the same words is another hit."""
    for view in (store, store.in_project("other"), store.acting(origin="web")):
        view.notes.add("fact", "The login form is slow")
    answer = store.recall("slow login form", project="*")
    assert len(answer) == 3


def test_tasks_with_the_same_title_stay_two_beneath_two_goals(store: Store) -> None:
    """A step is one thing beneath one goal: the same words elsewhere are other work."""
    for name in ("One", "Two"):
        store.notes.add("step", "Write the login tests", parent=store.notes.add("goal", name))
    assert len(store.recall("write login tests", kind="step")) == 2


def test_a_superseded_text_is_no_repeat_of_one_in_force(store: Store) -> None:
    """The same words, once overruled and once in force, are two hits, the one in force above."""
    old = store.notes.add("decision", "Use kafka for messages")
    store.notes.add("decision", "Use nats", links=[("supersedes", old)])
    again = store.notes.add("decision", "Use kafka for messages")
    answer = store.recall("use kafka for messages")
    assert ids(answer).index(again.id) < ids(answer).index(old.id)
    assert all(hit.repeats == () for hit in answer)


@pytest.mark.parametrize("times", [6, 150])
def test_a_repeat_takes_no_place_of_the_limit(store: Store, times: int) -> None:
    """However often the best was written down, there is room for the others."""
    store.notes.add_many([NewNote("fact", "Gateway timeout")] * times)
    others = {store.notes.add("fact", f"Gateway timeout of tenant {n}").id for n in range(3)}
    answer = store.recall("gateway timeout", limit=4)
    assert len(answer) == 4
    assert others <= set(ids(answer))
    assert answer.more == 0 or times > 100  # of so many repeats not all were looked at
