"""Merging projects: everything moves, nothing is lost, what both have is dealt with as was asked."""

from __future__ import annotations

import pytest

from agentmem import Conflict, Held, InvalidInput, LimitExceeded, NotFound, Scope, Store
from agentmem.limits import ATTRS_PER_ENTITY
from agentmem.types import Merged


@pytest.fixture
def other(store: Store) -> Store:
    """A project `old` with a bit of everything, beside `acme`, which has one entity in common with it."""
    store.entities.put("host", "a", attrs={"os": "linux", "port": 1})
    store.entities.mark("host", ["a"], {"tls": "pass", "dns": "fail"})
    store.entities.expect("host", ["tls"])
    old = store.in_project("old")
    goal = old.notes.add("goal", "Old goal", scope=Scope("host"))
    shared = old.entities.put("host", "a", attrs={"port": 2, "rack": 7})
    old.entities.put("host", "b", parent=shared)
    old.notes.add("fact", "About a", about=shared, parent=goal)
    old.entities.mark("host", ["a"], {"dns": "pass", "ssh": "na"}, detail="newer")
    old.entities.expect("host", ["ssh"])
    old.links.add("host:a", "runs_on", "host:b")
    old.checklists.add(goal, "one", "two")
    old.checkpoint("half way", task=goal)
    old.checkpoint("of the project", task=None)
    old.summarize(goal, work="w", result="r")
    return old


def test_a_collision_is_refused_unless_something_else_was_asked(store: Store, other: Store) -> None:
    """Nothing moves, and the entities are named."""
    head = store.log.head()
    with pytest.raises(Conflict, match="host:a"):
        store.projects.merge("old")
    assert store.log.head() == head


def test_merging_makes_one_of_two_entities(store: Store, other: Store) -> None:
    """It keeps its attributes, gets those it lacks, the newer mark of each check, the notes, children and links."""
    kept, gone = store.entities.get("host:a").id, other.entities.get("host:a").id
    done = store.projects.merge("old", collisions="merge")
    assert [(each.type, each.key, each.kept, each.other, each.outcome) for each in done.collisions] == [
        ("host", "a", kept, gone, "merged")
    ]
    host = store.entities.get("host:a")
    assert host.id == kept
    assert host.attrs == {"os": "linux", "port": 1, "rack": 7}
    assert host.checks == {"tls": "pass", "dns": "pass", "ssh": "na"}
    assert store.entities.get("host:b").parent == kept
    assert [link.dst for link in store.links.list("host:a")] == [store.entities.get("host:b").id]
    (fact,) = store.notes.list(kind="fact")
    assert fact.entity == kept
    with pytest.raises(NotFound, match="part of another"):
        store.get(gone)
    assert store.verify(replay=True).problems == ()


def test_everything_of_the_project_moves_and_the_project_is_no_more(store: Store, other: Store) -> None:
    """Notes, items, checkpoints, summaries, declarations keep their ids and are found here."""
    notes = {note.id for note in other.notes.list()}
    done = store.projects.merge("old", collisions="merge")
    assert notes <= set(done.ids)
    assert {note.id for note in store.notes.list()} == notes
    assert [one.name for one in store.projects.list()] == ["acme"]
    assert {point.text for point in store.checkpoints()} == {"half way", "of the project"}
    (declared,) = store.entities.expected("host")
    assert set(declared.names) == {"tls", "ssh"}
    goal = store.notes.list(kind="goal")[0]
    assert "Old goal" in store.resume(goal).text
    assert store.left(None).text
    assert "go on in this project" in done.notices[0]


def test_both_are_kept_where_that_was_asked(store: Store, other: Store) -> None:
    """The one that comes in gets a key of its own, and its notes stay with it."""
    done = store.projects.merge("old", collisions="keep_both")
    (met,) = done.collisions
    assert met.outcome == "kept as a (old)"
    assert store.entities.get("host:a (old)").attrs == {"port": 2, "rack": 7}
    assert store.entities.get("host:a").attrs == {"os": "linux", "port": 1}
    assert store.verify(replay=True).problems == ()


def test_a_merge_can_be_undone(store: Store, other: Store) -> None:
    """All its events taken back, both projects are as they were."""
    before = (other.notes.list(), other.entities.query("host").entities, store.entities.query("host").entities)
    head = store.log.head().seq
    store.projects.merge("old", collisions="merge")
    events = [event.seq for event in store.log.read(after=head, project="*", limit=1000)]
    store.undo(events)
    again = store.in_project("old")

    def told(entities: object) -> list[tuple[object, ...]]:
        return [(one.id, one.key, one.attrs, one.checks, one.parent) for one in entities]  # type: ignore[attr-defined]

    assert [(note.id, note.title, note.entity) for note in again.notes.list()] == [
        (note.id, note.title, note.entity) for note in before[0]
    ]
    assert told(again.entities.query("host").entities) == told(before[1])
    assert told(store.entities.query("host").entities) == told(before[2])
    assert store.verify(replay=True).problems == ()


def test_a_claim_of_another_run_holds_a_merge_off(store: Store, other: Store) -> None:
    """What somebody works on does not move beneath their feet."""
    other.acting(run="elsewhere").claim("host:b")
    with pytest.raises(Held):
        store.projects.merge("old", collisions="merge")


def test_a_project_does_not_merge_with_itself_or_with_none(store: Store, other: Store) -> None:
    """Both are errors that change nothing."""
    with pytest.raises(Conflict):
        store.projects.merge("acme")
    with pytest.raises(NotFound):
        store.projects.merge("nowhere")


def test_a_repeated_request_merges_once(store: Store, other: Store) -> None:
    """The second answer names the same records."""
    first = store.projects.merge("old", collisions="merge", request_id="m1")
    again = store.projects.merge("old", collisions="merge", request_id="m1")
    assert isinstance(again, Merged)
    assert again.repeated
    assert again.ids == first.ids


def test_deleting_a_project_leaves_nothing_of_it(store: Store, other: Store) -> None:
    """Its records are purged; the other project is untouched."""
    planned = store.projects.delete("old", dry_run=True)
    done = store.projects.delete("old")
    assert set(done.ids) == set(planned.ids)
    assert [one.name for one in store.projects.list()] == ["acme"]
    assert store.find("Old goal", project="*").hits == ()
    assert store.entities.get("host:a").attrs == {"os": "linux", "port": 1}
    assert store.verify(replay=True).problems == ()


def test_entities_are_not_united_beyond_what_one_may_have(store: Store) -> None:
    """The merge is refused whole, and says how to have both."""
    store.entities.put("host", "a", attrs={f"n{number}": 1 for number in range(ATTRS_PER_ENTITY)})
    store.in_project("old").entities.put("host", "a", attrs={"other": 1})
    head = store.log.head()
    with pytest.raises(LimitExceeded, match="keep_both"):
        store.projects.merge("old", collisions="merge")
    assert store.log.head() == head


def test_text_from_elsewhere_does_nothing_to_a_whole_project(store: Store, other: Store) -> None:
    """A page on the web neither merges nor renames."""
    web = store.acting(origin="web")
    for call in (lambda: web.projects.merge("old", collisions="merge"), lambda: web.projects.rename("mine")):
        with pytest.raises(InvalidInput, match="web"):
            call()


def test_expected_checks_are_trusted_no_more_than_who_named_them(store: Store) -> None:
    """Names that come in from elsewhere, by a merge or by a declaration, lower the whole."""
    store.entities.expect("host", ["tls"])
    store.in_project("old").acting(origin="web").entities.expect("host", ["evil"])
    store.projects.merge("old")
    (declared,) = store.entities.expected("host")
    assert (declared.names, declared.origin) == (("tls", "evil"), "web")
    assert store.verify(replay=True).problems == ()


def test_an_entity_that_another_run_holds_is_not_united(store: Store, other: Store) -> None:
    """Neither the one that comes in nor the one that stays is changed beneath its holder."""
    store.acting(run="elsewhere").claim("host:a")
    with pytest.raises(Held):
        store.projects.merge("old", collisions="merge")
