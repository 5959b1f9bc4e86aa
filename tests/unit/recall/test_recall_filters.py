"""What narrows a recall is part of the search: by words and by meaning, each alone, all together, in large stores."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from attrs import frozen
from toy import Toy, embedded, ids

from agentmem import InvalidInput, NewNote, NotFound, Store

Opens = Callable[..., Store]


@frozen
class Farm:
    """A store with one record for each thing that a filter tells apart; all are about cats, in various words."""

    store: Store
    ids: dict[str, int]


@pytest.fixture(params=["words", "meaning"])
def farm(request: pytest.FixtureRequest, opened: Opens, clock: Any) -> Farm:
    """By words all hold the word asked for; by meaning none of them does."""
    word = "kitten" if request.param == "words" else "feline"
    store = opened(embedder=None if request.param == "words" else Toy(), author="ana", run="r1")
    made: dict[str, int] = {}
    host = store.entities.put("host", "web-1", attrs={"likes": word}, status="live")
    made["entity"] = host.id
    made["goal"] = store.notes.add("goal", f"Goal {word}").id
    made["step"] = store.notes.add("step", f"Step {word}", parent=made["goal"], about=host).id
    made["deep"] = store.notes.add("step", f"Deep {word}", parent=made["step"]).id
    made["item"] = store.checklists.add(made["deep"], f"Item {word}").ids[0]
    made["ticked"] = store.checklists.add(made["deep"], f"Ticked {word}", done=True).ids[0]
    made["checkpoint"] = store.checkpoint(f"Checkpoint {word}", task=made["deep"]).id
    made["summary"] = store.summarize(made["deep"], work=f"Summary {word}", result="").id
    made["alone"] = store.checkpoint(f"Alone {word}").id
    made["about"] = store.notes.add("fact", f"About {word}", about=host).id
    made["tagged"] = store.notes.add("lesson", f"Tagged {word}", tags=["p1", "zoo"]).id
    made["bob"] = store.acting(author="bob").notes.add("decision", f"Bob {word}").id
    made["web"] = store.acting(origin="web").notes.add("fact", f"Web {word}").id
    made["dropped"] = store.notes.add("question", f"Dropped {word}", status="dropped").id
    made["attempt"] = store.attempts.open(f"Attempt {word}").id
    clock.advance(seconds=1000)
    made["late"] = store.notes.add("fact", f"Late {word}").id
    made["elsewhere"] = store.in_project("zoo").notes.add("fact", f"Elsewhere {word}").id
    return Farm(embedded(store), made)


def found(farm: Farm, **narrowed: Any) -> set[str]:
    query = "kitten" if farm.store._shared.meaning.wait(0) and farm.store.recall("feline").hits == () else "cats"
    answer = farm.store.recall(query, limit=50, task=None, **narrowed)
    names = {record: name for name, record in farm.ids.items()}
    return {names[record] for record in ids(answer)}


HERE = {
    "entity", "goal", "step", "deep", "item", "ticked", "checkpoint", "summary", "alone", "about", "tagged", "bob", "web",
    "dropped", "attempt", "late",
}  # fmt: skip


def test_without_a_filter_everything_of_the_project_is_found(farm: Farm) -> None:
    """Notes of every kind, entities, items, checkpoints, with a task and without, and summaries; nothing from elsewhere."""
    assert found(farm) == HERE


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("goal", {"goal"}), ("step", {"step", "deep"}), ("attempt", {"attempt"}), ("fact", {"about", "web", "late"}),
        ("decision", {"bob"}), ("question", {"dropped"}), ("lesson", {"tagged"}), ("entity", {"entity"}),
        ("item", {"item", "ticked"}), ("checkpoint", {"checkpoint", "alone"}), ("summary", {"summary"}),
    ],
)  # fmt: skip
def test_kind(farm: Farm, kind: str, expected: set[str]) -> None:
    """Only records of the kind."""
    assert found(farm, kind=kind) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("open", {"goal", "step", "item"}), ("done", {"deep", "ticked"}), ("dropped", {"dropped"}), ("live", {"entity"}),
        ("active", {"about", "tagged", "bob", "web", "attempt", "late"}), ("failed", set()),
    ],
)  # fmt: skip
def test_status(farm: Farm, status: str, expected: set[str]) -> None:
    """Only records in the status, an item being open or done."""
    assert found(farm, status=status) == expected


def test_under(farm: Farm) -> None:
    """A note with the whole tree beneath it and what belongs to these notes."""
    tree = {"deep", "item", "ticked", "checkpoint", "summary"}
    assert found(farm, under=farm.ids["goal"]) == {"goal", "step", *tree}
    assert found(farm, under=farm.ids["deep"]) == tree
    assert found(farm, under=farm.ids["late"]) == {"late"}


def test_about(farm: Farm) -> None:
    """The entity and the notes about it, by id or by name."""
    assert found(farm, about="host:web-1") == {"entity", "step", "about"}
    assert found(farm, about=farm.ids["entity"]) == {"entity", "step", "about"}


def test_tag_author_and_origin(farm: Farm) -> None:
    """Only records with the tag, by the author, of the origin."""
    assert found(farm, tag="zoo") == {"tagged"}
    assert found(farm, tag="none") == set()
    assert found(farm, author="bob") == {"bob"}
    assert found(farm, author="ana") == HERE - {"bob"}
    assert found(farm, origin="web") == {"web"}
    assert found(farm, origin="agent") == HERE - {"web"}


def test_since_and_until(farm: Farm, clock: Any) -> None:
    """Written or changed since a time, written until a time; as microseconds or as an aware datetime."""
    middle = clock.now - 500_000_000
    assert found(farm, since=middle) == {"late"}
    assert found(farm, until=middle) == HERE - {"late"}
    assert found(farm, since=datetime.fromtimestamp(middle / 1_000_000, UTC)) == {"late"}
    assert found(farm, since=middle, until=middle) == set()


def test_project(farm: Farm) -> None:
    """Another project by its name, all by `*`."""
    assert found(farm, project="zoo") == {"elsewhere"}
    assert found(farm, project="*") == HERE | {"elsewhere"}
    assert found(farm, project="acme") == HERE
    hit = farm.store.recall("kitten", project="zoo")
    assert all(one.project != 0 for one in hit)


def test_filters_narrow_together(farm: Farm) -> None:
    """Each further filter narrows what the others let pass."""
    goal, host = farm.ids["goal"], farm.ids["entity"]
    assert found(farm, under=goal, kind="step") == {"step", "deep"}
    assert found(farm, under=goal, kind="step", about=host) == {"step"}
    assert found(farm, under=goal, status="done", kind="item") == {"ticked"}
    assert found(farm, about=host, kind="entity", status="live", author="ana", origin="agent") == {"entity"}
    assert found(farm, kind="fact", origin="web", project="*") == {"web"}
    assert found(farm, kind="lesson", tag="p1", author="bob") == set()


@pytest.mark.parametrize(
    ("narrowed", "error"),
    [
        ({"kind": "facts"}, InvalidInput), ({"origin": "moon"}, InvalidInput), ({"status": "no status!"}, InvalidInput),
        ({"since": datetime(2025, 1, 1)}, InvalidInput), ({"since": "yesterday"}, InvalidInput),
        ({"under": 10**6}, NotFound), ({"about": "host:none"}, NotFound), ({"project": ""}, InvalidInput),
        ({"limit": 0}, InvalidInput), ({"limit": 101}, InvalidInput), ({"budget": 1}, InvalidInput), ({"task": 10**6}, NotFound),
    ],
)  # fmt: skip
def test_what_is_no_filter_is_refused(plain: Store, narrowed: dict[str, Any], error: type[Exception]) -> None:
    """An unknown kind, a naive time, a missing record or a number out of range is an error, not an empty answer."""
    plain.notes.add("fact", "A kitten")
    with pytest.raises(error):
        plain.recall("kitten", **narrowed)


def test_under_takes_notes_and_about_takes_entities(plain: Store) -> None:
    """The wrong type of record is named in the error."""
    note, host = plain.notes.add("fact", "A kitten"), plain.entities.put("host", "a")
    with pytest.raises(InvalidInput, match="entity"):
        plain.recall("kitten", under=host)
    with pytest.raises(InvalidInput, match="note"):
        plain.recall("kitten", about=note)


# Thousands of nearer records that do not pass

CROWD = 2500


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Thousands of facts that match best, and for each filter one record that matches badly and passes alone."""
    store = Store.open(
        tmp_path_factory.mktemp("crowd") / "work.db", project="acme", key=bytes(32), durability="normal", embedder=Toy(),
        author="ana",
    )  # fmt: skip
    store.notes.add_many([NewNote("fact", f"feline rapid vehicle {n % 7}") for n in range(CROWD)])
    poor = "feline vehicle among lions"
    goal = store.notes.add("goal", "Another thing")
    host = store.entities.put("host", "db-1")
    made = {
        "kind": store.notes.add("lesson", poor).id,
        "under": store.notes.add("step", poor + " beneath", parent=goal).id,
        "about": store.notes.add("decision", poor + " about", about=host).id,
        "tag": store.notes.add("fact", poor + " tagged", tags=["rare"]).id,
        "author": store.acting(author="bob").notes.add("fact", poor + " by bob").id,
        "origin": store.acting(origin="tool").notes.add("fact", poor + " by a tool").id,
        "status": store.notes.add("fact", poor + " dropped", status="dropped").id,
        "item": store.checklists.add(goal, poor + " item").ids[0],
        "project": store.in_project("zoo").notes.add("fact", poor + " elsewhere").id,
    }
    yield embedded(store), made, goal, host
    store.close()


@pytest.mark.parametrize("query", ["feline rapid vehicle", "cat fast automobile"], ids=["words", "meaning"])
@pytest.mark.parametrize("name", ["kind", "under", "about", "tag", "author", "origin", "status", "item", "project"])
def test_what_passes_is_found_behind_thousands_that_do_not(crowded: Any, query: str, name: str) -> None:
    """However many records match better, the one that passes the filter is found, by words and by meaning alone."""
    store, made, goal, host = crowded
    narrowed: dict[str, Any] = {
        "kind": {"kind": "lesson"}, "under": {"under": goal}, "about": {"about": host}, "tag": {"tag": "rare"},
        "author": {"author": "bob", "project": "acme"}, "origin": {"origin": "tool"}, "status": {"status": "dropped"},
        "item": {"kind": "item"}, "project": {"project": "zoo"},
    }[name]  # fmt: skip
    assert made[name] in ids(store.recall(query, **narrowed))
