"""`find`: search by words over everything that has text; nothing in a query is syntax."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import InvalidInput, Store
from agentmem.limits import QUERY_CHARS


def ids(found: Any) -> list[int]:
    return [hit.id for hit in found]


def test_everything_that_has_text_is_found(store: Store) -> None:
    """Titles, bodies, whys, bases, tags; keys, attributes; items, checkpoints, summaries."""
    host = store.entities.put("host", "zulu-key", attrs={"os": "zulu-attr"}, status="zulu-status")
    goal = store.notes.add("goal", "zulu-title", body="zulu-body", basis="zulu-basis", tags=["zulu-tag"])
    tried = store.attempts.open("Try", task=goal)
    store.attempts.close(tried, "failed", why="zulu-why")
    item = store.checklists.add(goal, "zulu-item").ids[0]
    point = store.checkpoint("zulu-checkpoint", task=goal)
    summary = store.summarize(goal, work="zulu-work", result="zulu-result")
    for word, found in {
        "title": goal.id, "body": goal.id, "basis": goal.id, "tag": goal.id, "why": tried.id, "key": host.id,
        "attr": host.id, "status": host.id, "item": item, "checkpoint": point.id,
        "work": summary.id, "result": summary.id,
    }.items():  # fmt: skip
        answer = store.find(f"zulu-{word}")
        assert (answer.matched, ids(answer)) == ("all", [found]), word
    assert len(store.find("zulu", limit=20)) == 6


def test_all_words_then_prefixes_then_any(store: Store) -> None:
    """The answer says which: a stricter match is never mixed with a looser one."""
    both = store.notes.add("fact", "The consumer reads messages")
    one = store.notes.add("fact", "The consumer stops")
    assert (store.find("consumer reads").matched, ids(store.find("consumer reads"))) == ("all", [both.id])
    assert (store.find("consu mess").matched, ids(store.find("consu mess"))) == ("prefix", [both.id])
    answer = store.find("consumer volcano")
    assert answer.matched == "any"
    assert set(ids(answer)) == {both.id, one.id}
    assert (store.find("volcano").matched, ids(store.find("volcano"))) == ("none", [])


@pytest.mark.parametrize(
    ("title", "queries"),
    [
        ("Fix /etc/nginx/nginx.conf:12", ["/etc/nginx/nginx.conf", "nginx.conf", "nginx"]),
        ("parseHTMLDocument fails", ["parseHTMLDocument", "html", "document", "PARSE"]),
        ("_private_symbol_ is used", ["_private_symbol_", "private_symbol", "symbol"]),
        ("rm -rf is refused", ["rm -rf"]),
        ("Rewrite it in C++", ["C++"]),
        ("Host 10.0.0.1 answers", ["10.0.0.1"]),
        ("CVE-2024-12345 applies", ["CVE-2024-12345", "cve-2024-12345"]),
        ("数据库连接失败", ["数据库", "连接", "失败"]),
        ("用Redis做缓存", ["redis", "缓存"]),
        ("Café naïve", ["cafe", "café", "naive"]),
        ("Миграция данных", ["миграция", "МИГРАЦИЯ"]),
        ("Migrations failed", ["migration", "migrate failing"]),
    ],
)
def test_names_paths_scripts_and_word_forms_are_found(store: Store, title: str, queries: list[str]) -> None:
    """Exact names literally, words in their forms, accents and case folded, any script."""
    store.notes.add("fact", "Something else entirely")
    note = store.notes.add("fact", title)
    for query in queries:
        assert ids(store.find(query))[:1] == [note.id], query


HOSTILE = [
    '"',
    "'",
    "*",
    "a AND",
    "NOT",
    "title:alpha",
    "(",
    "NEAR(a b)",
    "a OR",
    "-a",
    "^a",
    "a*b",
    "{a b}:c",
    '"a',
    "a + b",
]


@pytest.mark.parametrize("query", HOSTILE)
def test_nothing_in_a_query_is_syntax(store: Store, query: str) -> None:
    """Operators, quotes, column filters are words like others, or nothing to search by."""
    note = store.notes.add("fact", "alpha beta", body=query)
    try:
        found = store.find(query)
    except InvalidInput:
        assert not any(character.isalnum() for character in query)
    else:
        assert note.id in ids(found)
    title = store.notes.add("fact", "gamma")
    assert title.id not in ids(store.find("title:alpha"))


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(query=st.text(max_size=60))
def test_no_query_is_an_error_of_sqlite(store: Store, query: str) -> None:
    """Any text is searched for or refused by one of our errors."""
    with contextlib.suppress(InvalidInput):
        store.find(query)


@pytest.mark.parametrize("query", ["", "   ", "...", "x" * (QUERY_CHARS + 1), None, 7])
def test_a_query_without_words_is_refused(store: Store, query: Any) -> None:
    """It never means "show me anything"."""
    with pytest.raises(InvalidInput):
        store.find(query)


def test_the_index_follows_every_change(store: Store, undone: Any) -> None:
    """The old words are gone, the new ones are there; a rollback takes neither away nor leaves any."""
    note = store.notes.add("fact", "alpha", body="bravo")
    store.notes.update(note, title="charlie", body="")
    assert store.find("alpha").matched == store.find("bravo").matched == "none"
    assert ids(store.find("charlie")) == [note.id]
    with undone(store):
        store.notes.update(note, title="delta")
        assert ids(store.find("delta")) == [note.id]
    assert store.find("delta").matched == "none"
    assert ids(store.find("charlie")) == [note.id]
    assert store.verify().problems == ()


def test_filters_are_part_of_the_search(store: Store) -> None:
    """By kind, status, subtree, entity, tag, project: among all that the filter leaves, never cut before it."""
    store.entities.put("host", "a")
    goal = store.notes.add("goal", "alpha goal")
    for number in range(30):
        store.notes.add("fact", f"alpha {number}", similar=False)
    lesson = store.notes.add(
        "lesson", "alpha lesson in a much longer title than the facts have", parent=goal, tags=["p0"], about="host:a"
    )
    dropped = store.notes.add("decision", "alpha", status="dropped")
    item = store.checklists.add(lesson, "alpha item").ids[0]
    other = store.in_project("other").notes.add("fact", "alpha")
    assert ids(store.find("alpha", kind="lesson", limit=1)) == [lesson.id]
    assert ids(store.find("alpha", status="dropped")) == [dropped.id]
    assert set(ids(store.find("alpha", under=goal))) == {goal.id, lesson.id, item}
    assert set(ids(store.find("alpha", about="host:a"))) == {lesson.id, item}
    assert set(ids(store.find("alpha", tag="p0"))) == {lesson.id, item}
    assert ids(store.find("alpha", kind="item")) == [item]
    assert other.id not in ids(store.find("alpha", limit=100))
    assert other.id in ids(store.find("alpha", limit=100, project="*"))
    for bad in (
        {"kind": "task"},
        {"status": "two words"},
        {"under": "host:a"},
        {"about": goal},
        {"limit": 0},
        {"limit": 1001},
    ):
        with pytest.raises(InvalidInput):
            store.find("alpha", **bad)  # type: ignore[arg-type]


def test_a_status_is_of_what_has_one(store: Store) -> None:
    """Items are open or done; checkpoints and summaries have no status and match none."""
    goal = store.notes.add("goal", "alpha", status="active")
    ticked, open_item = store.checklists.add(goal, "alpha one", "alpha two").ids
    store.checklists.done(goal, 1)
    store.checkpoint("alpha", task=goal)
    assert ids(store.find("alpha", status="open")) == [open_item]
    assert ids(store.find("alpha", status="done")) == [ticked]


def test_pages_join_without_gap_or_repeat(store: Store) -> None:
    """The cursor continues where the page ended; a cursor of no search is refused."""
    for number in range(25):
        store.notes.add("fact", f"alpha {'beta ' * (number % 5)}{number}", similar=False)
    whole = ids(store.find("alpha", limit=100))
    assert len(whole) == 25
    found, after = [], None
    while True:
        page = store.find("alpha", limit=4, after=after)
        found += ids(page)
        after = page.after
        if after is None:
            break
    assert found == whole
    for bad in ("", "x", "all:1", "all:x:1", "all:1:x", "odd:1.0:1"):
        with pytest.raises(InvalidInput):
            store.find("alpha", after=bad)


def test_a_word_in_the_title_counts_most(store: Store) -> None:
    """Of two notes of like length the one that has it in its title comes first."""
    store.notes.add("fact", "Something", body="alpha")
    title = store.notes.add("fact", "alpha", body="Something")
    assert ids(store.find("alpha"))[0] == title.id
    assert store.find("alpha").hits[0].score >= store.find("alpha").hits[1].score


def test_a_hit_shows_the_place_and_the_origin(store: Store) -> None:
    """The snippet has the words that matched; what came from elsewhere says so."""
    body = "Nothing here. " * 50 + "The needle lies here. " + "Nothing there. " * 50
    store.acting(origin="web").notes.add("fact", "Haystack", body=body)
    (hit,) = store.find("needle")
    assert "needle" in hit.snippet
    assert len(hit.snippet) < 500
    assert hit.origin == "web"
