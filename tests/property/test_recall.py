"""What holds of every recall, whatever was written and whatever is asked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentmem import InvalidInput, NewNote, Store
from agentmem.context.tokens import count_tokens

WORDS = (
    "gateway", "timeout", "login", "is", "not", "the", "10.0.0.1", "10.0.0.2", "/etc/passwd", "42", "数据库", "连接", "café",
    "C++", "error", "parseHTML", "«", "\u202e", "\n", "#3", "ё", "cut:",
)  # fmt: skip
prose = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)
texts = prose | prose | st.text(max_size=60)
queries = prose | st.text(min_size=1, max_size=80)
notes = st.builds(
    dict,
    kind=st.sampled_from(["fact", "decision", "lesson", "question"]),
    title=prose | st.just("x" * 500),
    body=texts | st.integers(1, 400).map(lambda size: "gateway timeout " * size),
    origin=st.sampled_from(["agent", "web", "tool", "user"]),
    tags=st.lists(st.sampled_from(["p1", "zoo"]), unique=True, max_size=2),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    store = Store.open(
        tmp_path_factory.mktemp("recall") / "work.db", project="p", key=bytes(32), durability="normal", embedder=None
    )
    yield store
    store.close()


COUNT = iter(range(1_000_000))


def filled(base: Store, given: list[dict[str, Any]]) -> tuple[Store, dict[int, dict[str, Any]]]:
    """A project of its own with these notes; what the boundary refuses is left out."""
    store = base.in_project(f"p{next(COUNT)}")
    made = {}
    with store.transaction():
        for note in given:
            fields = dict(note)
            view = store.acting(origin=fields.pop("origin"))
            try:
                made[view.notes.add(fields.pop("kind"), fields.pop("title"), **fields, similar=False).id] = note
            except InvalidInput:
                continue
    return store, made


def asked(store: Store, query: str, **options: Any) -> Any:
    try:
        return store.recall(query, **options)
    except InvalidInput:
        assume(False)


relaxed = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)


@relaxed
@given(st.lists(notes, max_size=12), queries, st.integers(300, 1500), st.integers(1, 20))
def test_the_budget_holds_and_the_answer_is_sound(base, written, query, budget, limit):
    """The text fits, the hits are distinct records of the project in the order of their scores, and it all is JSON."""
    store, made = filled(base, written)
    answer = asked(store, query, budget=budget, limit=limit)
    assert count_tokens(answer.text) <= budget
    told = [record for hit in answer for record in (hit.id, *hit.repeats)]
    assert len(told) == len(set(told))
    assert set(told) <= set(made)
    assert len(answer) <= limit
    assert answer.more >= 0
    assert [hit.score for hit in answer] == sorted((hit.score for hit in answer), reverse=True)
    assert json.loads(json.dumps(answer.to_dict()))["query"] == query
    assert len([line for line in answer.text.splitlines() if line.startswith("#")]) <= len(answer)
    assert store.recall(query, budget=budget, limit=limit).text == answer.text


@relaxed
@given(st.lists(notes, min_size=1, max_size=10), queries)
def test_a_filter_shows_only_what_passes(base, written, query):
    """Of everything that is found without a filter, and nothing else."""
    store, made = filled(base, written)
    for narrowed, passes in (
        ({"kind": "fact"}, lambda note: note["kind"] == "fact"),
        ({"origin": "web"}, lambda note: note["origin"] == "web"),
        ({"tag": "zoo"}, lambda note: "zoo" in note["tags"]),
        ({"tag": "zoo", "kind": "fact"}, lambda note: "zoo" in note["tags"] and note["kind"] == "fact"),
    ):
        answer = asked(store, query, **narrowed)
        told = [record for hit in answer for record in (hit.id, *hit.repeats)]
        assert all(passes(made[record]) for record in told)


@relaxed
@given(st.lists(notes, min_size=1, max_size=10), st.integers(0, 9), st.data())
def test_a_note_is_found_by_its_own_title(base, written, place, data):
    """Whatever else there is, the whole title of a note finds it, or the note that says the same."""
    store, made = filled(base, written)
    assume(made)
    record = list(made)[place % len(made)]
    title = store.notes.get(record).title
    answer = asked(store, title, limit=50)
    assert record in [one for hit in answer for one in (hit.id, *hit.repeats)]


@relaxed
@given(st.lists(notes, min_size=2, max_size=8))
def test_repeats_share_kind_and_origin(base, written):
    """A hit names as repeats only records of its own kind and origin."""
    store, made = filled(base, [*written, *written])
    answer = asked(store, "gateway timeout login 42 error", limit=50)
    for hit in answer:
        for other in hit.repeats:
            assert (made[other]["kind"], made[other]["origin"]) == (made[hit.id]["kind"], made[hit.id]["origin"])


def test_the_notes_of_a_batch_are_found(base):
    """What is written in one batch is found like what is written one by one."""
    store = base.in_project("batch")
    made = store.notes.add_many([NewNote("fact", f"gateway {n}") for n in range(30)])
    assert {hit.id for hit in store.recall("gateway", limit=100)} == set(made.ids)
