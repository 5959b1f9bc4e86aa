"""What an index knows of a filter leaves nothing out that passes, and changes no answer."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import NewNote, Store
from agentmem.errors import InvalidInput
from agentmem.recall import filters
from agentmem.records import validate

TAGS = st.text("abcXYZ019é用户ßกıİ._-/@:+~", min_size=1, max_size=12)


def _label(tag: str) -> bool:
    try:
        return validate.label(tag, "tag") == tag
    except InvalidInput:
        return False


@pytest.fixture
def mixed(plain: Store) -> tuple[Store, dict[str, Any]]:
    """Two projects, the second a small part of the file, with records of each type in both."""
    named: dict[str, Any] = {}
    plain.notes.add_many([NewNote("fact", f"Filler {number}") for number in range(200)])
    for project in ("main", "small"):
        store = plain if project == "main" else plain.in_project("small")
        host = store.entities.put("host", "web-1")
        goal = store.notes.add("goal", "Goal", tags=["p1", "auth-flow"])
        step = store.notes.add("step", "Step", parent=goal, about=host, tags=["p1"])
        store.notes.add("decision", "Dropped", parent=step, status="dropped")
        store.notes.add("decision", "Taken", parent=step)
        store.checklists.add(step, "One", "Two")
        store.checkpoint("Here", task=step)
        store.checkpoint("Alone")
        store.summarize(step, work="Done", result="Well")
        named[project] = (goal, host)
    return plain, named


NARROWED: tuple[dict[str, Any], ...] = (
    {},
    {"kind": "decision"},
    {"kind": "decision", "status": "dropped"},
    {"kind": "summary"},
    {"kind": "item", "tag": "p1"},
    {"tag": "p1"},
    {"tag": "auth-flow"},
    {"tag": "auth"},
    {"status": "open"},
)


def _same(store: Store, **asked: Any) -> filters.Narrowed:
    with store._binding.reading() as view:
        records = [record for (record,) in view.rows("SELECT id FROM search_docsize")]
        to = filters.narrowed(view, **asked)
        known = filters.known(view, to)
        assert filters.passing_ids(view, records, known) == filters.passing_ids(view, records, to)
        assert filters.passing_ids(view, records, filters.scanned(view, to)) == filters.passing_ids(view, records, to)
        return known


@pytest.mark.parametrize("asked", NARROWED, ids=str)
@pytest.mark.parametrize("everywhere", [False, True])
def test_what_is_known_of_a_filter_changes_no_answer(mixed: Any, asked: dict[str, Any], everywhere: bool) -> None:
    """A search with the ids that an index knows passes the very records that it passes without."""
    store, named = mixed
    for project, (goal, host) in named.items():
        for more in ({}, {"under": goal}, {"about": host}):
            _same(store.in_project(project), **asked, **more, everywhere=everywhere)


def test_records_of_a_small_project_are_known(mixed: Any) -> None:
    """In a project that is a small part of the file a search looks at its records alone, of every type."""
    store, _ = mixed
    known = _same(store.in_project("small"))
    assert known.only is not None
    assert len(known.only) == 10
    assert _same(store).only is None


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(TAGS.filter(_label), min_size=1, max_size=4, unique=True), min_size=1, max_size=4))
def test_every_tag_is_known_by_the_index(plain: Store, lists: list[list[str]]) -> None:
    """Whatever letters a tag has and whatever tags stand beside it, the index leads to its note."""
    made = plain.notes.add_many([NewNote("fact", "Tagged", tags=tuple(tags)) for tags in lists]).ids
    for record, tags in zip(made, lists, strict=True):
        for tag in tags:
            known = _same(plain, tag=tag)
            assert known.only is None or record in known.only
