"""How large a store is, by project, kind of event, table; and that it says what a purge left to do."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from agentmem import InvalidInput, NotFound, Row, Store
from agentmem.log.canonical import canonical


def test_the_numbers_are_those_of_what_was_written(store: Store) -> None:
    """Records by type, events, projects, the first and the last time, pages."""
    goal = store.notes.add("goal", "Goal")
    store.checklists.add(goal, "one", "two")
    store.entities.put_many("host", rows=[Row("a"), Row("b")])
    store.entities.mark("host", ["a"], {"tls": "pass"})
    store.in_project("other").notes.add("fact", "Elsewhere")
    stats = store.stats()
    assert stats.records == {
        "note": 2, "entity": 2, "mark": 1, "link": 0, "item": 2, "checkpoint": 0, "summary": 0, "session": 0,
        "message": 0,
    }  # fmt: skip
    events = store.log.read(limit=1000)
    assert stats.events == store.log.head().seq == 9
    assert stats.projects == 2
    assert (stats.first_at, stats.last_at) == (store.log.get(1).at, store.log.get(9).at)
    assert stats.first_at == events[0].at
    assert stats.page_bytes == 4096
    assert stats.pages > 20
    assert 0 <= stats.free_pages < stats.pages
    assert stats.file_bytes == store.path.stat().st_size
    assert not stats.purge_pending
    assert stats.log is None
    assert stats.tables is None


def test_bytes_of_the_log_are_told_by_project_and_kind(store: Store) -> None:
    """The bytes of the payloads as they are stored, and how many events; the largest first."""
    store.notes.add("fact", "数据库 is 3 bytes a letter", body="x" * 500)
    other = store.in_project("other")
    for number in range(3):
        other.notes.add("fact", f"Elsewhere {number}", similar=False)
    sizes = store.stats(log=True).log
    assert sizes is not None
    events = [event for name in ("acme", "other") for event in store.in_project(name).log.read(limit=100)]
    expected: dict[tuple[int, str], list[int]] = {}
    for event in events:
        expected.setdefault((event.project, event.kind), []).append(len(canonical(event.payload).encode()))
    assert {(size.project, size.kind): (size.events, size.bytes) for size in sizes} == {
        key: (len(found), sum(found)) for key, found in expected.items()
    }
    assert [size.bytes for size in sizes] == sorted((size.bytes for size in sizes), reverse=True)


def test_long_texts_are_counted_once(store: Store) -> None:
    """What many events share is stored once, and its bytes are told apart from those of the events."""
    text = "A long text. " * 2000
    for number in range(4):
        store.notes.add("fact", f"Fact {number}", body=text, similar=False)
    stats = store.stats(log=True)
    assert (stats.blobs, stats.blob_bytes) == (1, len(text))
    assert stats.log is not None
    assert sum(size.bytes for size in stats.log) < len(text)


def test_pages_are_told_by_table_and_index(store: Store) -> None:
    """Every page of the file is somebody's or free; indexes name their table; what the search keeps is told as that."""
    for number in range(200):
        store.notes.add("fact", f"Fact number {number}", body="word " * 50, similar=False)
    stats = store.stats(tables=True)
    assert stats.tables is not None
    by_name = {table.name: table for table in stats.tables}
    assert by_name["note_parent"].of == by_name["note"].of == "note"
    assert by_name["search_data"].of == "search"
    assert by_name["event"].bytes == by_name["event"].pages * stats.page_bytes > 200 * 250
    assert 0 <= by_name["event"].unused < by_name["event"].bytes
    assert sum(table.pages for table in stats.tables) + stats.free_pages == stats.pages
    assert [table.bytes for table in stats.tables] == sorted((table.bytes for table in stats.tables), reverse=True)


def test_the_oldest_event_is_the_first_also_in_an_empty_store(store: Store) -> None:
    """Nothing was written: no time, no event."""
    stats = store.stats(log=True, tables=True)
    assert (stats.events, stats.first_at, stats.last_at, stats.log) == (0, None, None, ())


def test_a_purge_that_waits_is_told(opened: Callable[..., Store]) -> None:
    """While a reader keeps the write-ahead log, what was purged may still be in it."""
    store, reader = opened(), opened()
    note = store.notes.add("fact", "To be gone")
    with reader.database.read():
        reader.notes.list()
        receipt = store.forget(note)
        assert receipt.wal_pending
        assert store.stats().purge_pending
    store.notes.add("fact", "Any write finishes it", similar=False)
    assert store.database.checkpoint(wait=5.0)


def test_a_purged_event_counts_without_its_bytes(store: Store) -> None:
    """The header stays, the payload is gone."""
    note = store.notes.add("fact", "To be gone", body="x" * 800)
    before = store.projects.stats(log=True)
    store.forget(note)
    after = store.projects.stats(log=True)
    assert before.bytes is not None
    assert after.bytes is not None
    assert after.events > before.events
    assert after.bytes < before.bytes - 800


def test_a_project_has_numbers_of_its_own(store: Store) -> None:
    """By kind and type, with marks, items, checkpoints, summaries, events, and bytes if asked for."""
    goal = store.notes.add("goal", "Goal")
    items = store.checklists.add(goal, "one", "two", "three")
    store.checklists.remove(goal, items.ids[0])
    store.entities.put_many("host", keys=["a", "b"])
    store.entities.mark("host", ["a", "b"], {"tls": "pass", "ssh": "fail"})
    store.checkpoint("Here")
    store.summarize(goal, result="Done")
    other = store.in_project("other")
    other.entities.put("host", "c")
    other.checklists.add(other.notes.add("step", "Step"), "box")
    stats = store.projects.stats(log=True)
    assert stats.notes == {"goal": 1}
    assert stats.entities == {"host": 2}
    assert (stats.marks, stats.items, stats.checkpoints, stats.summaries) == (4, 2, 1, 1)
    assert stats.log is not None
    assert stats.events == sum(size.events for size in stats.log)
    assert stats.bytes == sum(size.bytes for size in stats.log)
    assert {size.project for size in stats.log} == {stats.project.id}
    assert store.projects.stats().log is None
    assert other.projects.stats().items == 1
    assert stats.events + other.projects.stats().events == store.stats().events
    with pytest.raises(NotFound):
        store.in_project("nowhere").projects.stats()


def test_the_answers_turn_into_json(store: Store) -> None:
    """Every number by name."""
    store.notes.add("fact", "Fact")
    found = json.loads(json.dumps(store.stats(log=True, tables=True).to_dict()))
    assert found["path"] == str(store.path)
    assert found["log"][0].keys() == {"project", "kind", "events", "bytes"}
    assert found["tables"][0].keys() == {"name", "of", "pages", "bytes", "unused"}


def test_what_costs_more_is_asked_for_plainly(store: Store) -> None:
    """Anything but true and false is refused."""
    for wrong in ({"log": 1}, {"tables": "yes"}):
        with pytest.raises(InvalidInput):
            store.stats(**wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.projects.stats(log=1)  # type: ignore[arg-type]
