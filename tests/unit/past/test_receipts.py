"""What a purge says it did is what the log says; what may stop it; what it never does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from written import SECRET, family

from agentmem import (
    NotFound,
    RequestMismatch,
    Store,
)
from agentmem.records import likeness, rarity

KEY = bytes(range(32))


def rows(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table."""
    with store.database.read() as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in sorted(names)}


# Receipts


def test_a_receipt_is_what_the_log_says(store: Store) -> None:
    """Ids, types, erased events with the digests that the log keeps of them, the head afterwards."""
    ids = family(store)
    before = {event.seq: event for event in store.log.read(limit=1000)}
    receipt = store.forget(ids["goal"])
    after = {event.seq: event for event in store.log.read(limit=1000)}
    gone = {record for seq, event in after.items() for record in [event.record] if event.kind.endswith(".forgotten")}
    assert set(receipt.ids) == gone == {ids["goal"], ids["step"], ids["item"], ids["summary"], ids["item"] + 1}
    assert receipt.types == {"note": 2, "item": 1, "checkpoint": 1, "summary": 1}
    erased = [seq for seq, event in after.items() if event.payload is None]
    assert sorted(receipt.events) == erased == [seq for seq, event in before.items() if event.record in gone]
    assert receipt.digests == tuple(after[seq].digest.hex() for seq in receipt.events)
    assert [before[seq].digest for seq in receipt.events] == [after[seq].digest for seq in receipt.events]
    assert receipt.head == store.log.head()
    assert receipt.detached == (ids["other"],)
    assert (receipt.changed, receipt.dry_run, receipt.repeated, receipt.wal_pending) == (5, False, False, False)
    assert store.verify(head=receipt.head, replay=True).problems == ()


def test_headers_of_forgotten_events_stay(store: Store) -> None:
    """A purge does not forget that something was there (AutoGPT PR #12720): when, by whom, and that the chain holds."""
    head = store.log.head()
    note = store.notes.add("fact", f"It is {SECRET}", request_id="once")
    noted = store.log.head()
    before = store.log.get(note.id)
    store.acting(author="bob", run="r2").forget(note)
    after = store.log.get(note.id)
    assert before is not None
    assert after is not None
    same = ("seq", "at", "kind", "author", "run", "request", "digest", "chain", "record")
    assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]
    assert after.payload is None
    last = store.log.read(record=None, newest_first=True, limit=1)[0]
    assert (last.kind, last.record, last.author, last.run) == ("note.forgotten", note.id, "bob", "r2")
    assert store.verify(head=noted).problems == ()
    assert store.verify(head=head).problems == ()


def test_a_dry_run_says_the_same_and_changes_nothing(store: Store) -> None:
    """For a goal, an entity, a project, a query, and a redaction: every row of every table is as it was."""
    ids = family(store)
    store.notes.update(ids["other"], title="Something that was changed")
    store.entities.put("host", "a.example.com", attrs={"os": "another"})
    before, size = rows(store), store.database.wal_bytes()
    goal, host = store.forget(ids["goal"], dry_run=True), store.forget("host:a.example.com", dry_run=True)
    query = store.forget(type="host", where="key contains :part", part="example", dry_run=True)
    whole = store.forget(project="acme", dry_run=True)
    redaction, part = store.redact(ids["other"], dry_run=True), store.redact(ids["host"], attr="os", dry_run=True)
    assert rows(store) == before
    assert store.database.wal_bytes() == size
    assert all(receipt.dry_run and not receipt.cleaned for receipt in (goal, host, query, whole, redaction, part))
    same = ("ids", "types", "events", "digests", "detached", "also_found_in", "survives", "changed")
    done = store.redact(ids["other"])
    assert [getattr(redaction, name) for name in same] == [getattr(done, name) for name in same]
    done = store.redact(ids["host"], attr="os")
    assert [getattr(part, name) for name in same] == [getattr(done, name) for name in same]
    goal = store.forget(ids["goal"], dry_run=True)
    done = store.forget(ids["goal"])
    assert [getattr(goal, name) for name in same] == [getattr(done, name) for name in same]
    query = store.forget(type="host", where="key contains :part", part="example", dry_run=True)
    done = store.forget(type="host", where="key contains :part", part="example")
    assert [getattr(query, name) for name in same] == [getattr(done, name) for name in same]
    whole = store.forget(project="acme", dry_run=True)
    done = store.forget(project="acme")
    assert [getattr(whole, name) for name in same] == [getattr(done, name) for name in same]
    assert store.verify(replay=True).problems == ()


def test_others_with_the_same_text_are_named(store: Store) -> None:
    """Now or in an earlier revision, in another field, within a longer text, in a body that is stored once."""
    text = f"The password is {SECRET}, said 'so'\nand \"more\""
    note = store.notes.add("fact", "A secret", body=text)
    same = store.notes.add("fact", "Another", body=text)
    within = store.notes.add("fact", "Another", body=f"I heard: {text}, really")
    earlier = store.notes.add("fact", "Another", body=text)
    store.notes.update(earlier, body="Nothing")
    item = store.checklists.add(same, "Something else").ids[0]
    host = store.entities.put("host", "a", attrs={"heard": text})
    long = store.notes.add("fact", "Another", body="Much before. " * 500 + text)
    longer = store.notes.add("fact", "Another", body=text * 200)
    store.notes.add("fact", "Another", body=f"The password is not {SECRET}")
    expected = (same.id, within.id, earlier.id, host.id, long.id, longer.id)
    assert store.forget(note, dry_run=True).also_found_in == expected
    assert item not in expected
    assert store.forget(note).also_found_in == expected
    # Of those that go together none is another.
    assert store.forget(expected[:-1]).also_found_in == (longer.id,)


def test_others_are_named_for_each_of_many_texts(store: Store) -> None:
    """Also where more texts go than are looked for within others."""
    goal = store.notes.add("goal", "Many of them")
    texts = [f"Number {number} of those that are many" for number in range(100)]
    for text in texts:
        store.notes.add("fact", text, parent=goal, similar=False)
    others = [store.checkpoint(text).id for text in (texts[3], texts[77])]
    assert store.forget(goal).also_found_in == tuple(others)


def test_a_repeated_request_purges_once(store: Store) -> None:
    """It answers with the first outcome, by whatever run it is repeated, and writes nothing."""
    note, other = store.notes.add("fact", f"It is {SECRET}"), store.notes.add("fact", "Another")
    first = store.forget(note, request_id="purge")
    head = store.log.head()
    again = store.acting(run="r9").forget(note, request_id="purge")
    assert (again.ids, again.repeated, again.changed) == (first.ids, True, first.changed)
    assert store.log.head() == head == again.head
    store.notes.update(other, title="Yet another")
    redacted = store.redact(other, request_id="redact")
    assert store.redact(other, request_id="redact").ids == redacted.ids
    with pytest.raises(NotFound):
        store.forget(note)


def test_a_request_of_a_purged_record_says_gone(store: Store) -> None:
    """A retry of the write gets its id and that it is gone, whatever it asks: what it asked for is forgotten."""
    note = store.notes.add("fact", f"It is {SECRET}", request_id="once")
    kept = store.notes.add("fact", "Another", request_id="twice")
    store.forget(note)
    again = store.notes.add("fact", f"It is {SECRET}", request_id="once")
    assert (again.id, again.gone, again.repeated) == (note.id, True, True)
    assert store.notes.add("fact", "Another", request_id="twice").id == kept.id
    with pytest.raises(RequestMismatch):
        store.notes.add("fact", "Yet another", request_id="twice")
    with store.database.read() as connection:
        hashes = dict(connection.execute("SELECT id, length(arguments) FROM request"))
    assert hashes == {"once": 0, "twice": 32}


def test_a_request_to_purge_is_remembered_without_what_it_named(store: Store) -> None:
    """The name of an entity in it is a text that went."""
    store.entities.put("host", SECRET)
    store.forget(f"host:{SECRET}", request_id="purge")
    with store.database.read() as connection:
        assert connection.execute("SELECT arguments FROM request").fetchall() == [(b"",)]


# What goes and what stays


def test_an_item_is_forgotten_by_its_number(store: Store) -> None:
    """`14.3`; the others keep theirs, and the number is not given again."""
    goal = store.notes.add("goal", "Ship").id
    items = store.checklists.add(goal, "One", "Two", "Three").ids
    assert store.forget(f"{goal}.3").ids == (items[2],)
    assert [item.ref for item in store.checklists.items(goal)] == [f"{goal}.1", f"{goal}.2"]
    assert [item.ref for item in store.left(task=goal).items] == [f"{goal}.1", f"{goal}.2"]
    for ref in (f"{goal}.3", items[2]):
        with pytest.raises(NotFound, match="purged"):
            store.forget(ref)
        with pytest.raises(NotFound):
            store.get(ref)
    with pytest.raises(NotFound):
        store.checklists.done(goal, 3)
    assert store.get(store.checklists.add(goal, "Four").ids[0]).ref == f"{goal}.4"
    assert store.verify(replay=True).problems == ()
    receipt = store.forget(goal)
    assert items[2] not in receipt.ids
    assert receipt.types == {"note": 1, "item": 3}
    with store.database.read() as connection:
        assert connection.execute("SELECT count(*) FROM item").get == 0
    assert store.verify(replay=True).problems == ()


def test_links_in_a_circle_are_followed_once(store: Store) -> None:
    """Notes that point at each other, beneath the forgotten one and elsewhere."""
    goal = store.notes.add("goal", "Ship").id
    step = store.notes.add("step", "Look", parent=goal).id
    fact = store.notes.add("fact", "Known").id
    for src, dst in ((goal, step), (step, goal), (step, fact), (fact, step), (fact, goal), (goal, fact)):
        store.links.add(src, "relates_to", dst)
    hosts = [store.entities.put("host", name).id for name in "abc"]
    for src, dst in zip(hosts, [*hosts[1:], hosts[0]], strict=True):
        store.links.add(src, "near", dst)
    receipt = store.forget([goal, hosts[0]])
    assert set(receipt.ids) == {goal, step, hosts[0]}
    assert set(receipt.detached) == {fact, hosts[2]}
    assert store.links.list(fact) == ()
    assert [(link.src, link.dst) for link in store.links.list(hosts[1])] == [(hosts[1], hosts[2])]
    assert store.verify(replay=True).problems == ()


def test_a_view_of_a_forgotten_project_begins_a_new_one(store: Store) -> None:
    """A write under the old name makes a project of its own id; what was there is not."""
    before = store.notes.add("goal", "Ship").id
    old = store.projects.get().id
    store.in_project("other").notes.add("fact", "Elsewhere")
    store.forget(project="acme")
    assert store.notes.list() == ()
    assert [project.name for project in store.projects.list()] == ["other"]
    with pytest.raises(NotFound):
        store.notes.get(before)
    fresh = store.notes.add("goal", "Begin")
    assert store.projects.get().id not in (old, before)
    assert [note.id for note in store.notes.list()] == [fresh.id]
    assert store.find("begin ship").hits[0].id == fresh.id
    assert store.verify(replay=True).problems == ()


def test_a_project_is_forgotten_after_parts_of_it_were(store: Store) -> None:
    """Also parts that were undone, forgotten, or both before."""
    ids = family(store)
    undone = store.notes.add("fact", f"It is {SECRET}").id
    store.undo(undone)
    store.forget(undone)
    other = store.notes.add("fact", "Another").id
    store.undo(other)
    store.forget(ids["goal"])
    receipt = store.forget(project="acme")
    assert undone not in receipt.ids
    assert other in receipt.ids
    assert store.verify(replay=True).problems == ()


def test_a_record_that_moved_away_stays(store: Store) -> None:
    """What was beneath a forgotten note once and is elsewhere now is not its part."""
    goal, other = store.notes.add("goal", "Ship").id, store.notes.add("goal", "Another").id
    step = store.notes.add("step", "Look", parent=goal).id
    store.notes.move(step, parent=other)
    assert store.forget(goal).ids == (goal,)
    assert store.notes.get(step).parent == other
    assert store.verify(replay=True).problems == ()


def test_a_summary_above_is_stale_after_a_purge(store: Store) -> None:
    """Something it may rest on is gone, and a replay knows that too."""
    goal = store.notes.add("goal", "Ship").id
    step = store.notes.add("step", "Look", parent=goal).id
    fact = store.notes.add("fact", "Known", parent=step).id
    store.summarize(goal, result="All is well")
    store.forget(fact)
    assert "stale" in store.task_summary(goal).text
    assert store.verify(replay=True).problems == ()


# Searching (mem0#3695, mem0#3245: deleted memories stayed searchable, and in the graph)


def test_a_forgotten_record_is_found_by_no_verb(store: Store) -> None:
    """Not by words, prefixes, likeness, about, links, graph, or in any report."""
    ids = family(store)
    told = f"It is {SECRET} and nothing else"
    note = store.notes.add(
        "attempt", told, parent=ids["goal"], about=ids["host"], links=[("supports", ids["other"])]
    ).id
    assert store.find(SECRET).hits[0].id == note
    assert store.notes.add("attempt", told, parent=ids["goal"]).similar[0].id == note
    again = store.notes.list(kind="attempt")[-1].id
    store.forget([note, again])
    assert store.find(SECRET).hits == ()
    assert store.find(SECRET[:6]).hits == ()
    assert all(hit.id != note for hit in store.find(told).hits)
    assert all(brief.id != note for brief in store.notes.add("fact", told).similar)
    fresh = store.notes.list(kind="fact")[-1].id
    assert store.links.list(ids["other"])[0].dst == ids["goal"]
    for text in (store.resume().text, store.left().text, store.graph(ids["other"]).text):
        assert SECRET not in text or f"#{fresh}" in text
    store.forget(fresh)
    for text in (store.resume().text, store.left().text, store.graph(ids["other"]).text):
        assert SECRET not in text
    with pytest.raises(NotFound, match="purged"):
        store.get(note)


def test_a_past_opened_before_a_purge_does_not_know_the_text_after(store: Store) -> None:
    """A view of an earlier moment is a cache of the file, too."""
    note = store.notes.add("fact", f"It is {SECRET}").id
    seq = store.notes.add("fact", "Another").id
    with store.at(seq) as past:
        assert past.notes.get(note).title == f"It is {SECRET}"
        store.forget(note)
        with pytest.raises(NotFound):
            past.notes.get(note)
        assert SECRET not in past.resume().text


def test_memos_of_words_are_emptied(opened: Callable[..., Store]) -> None:
    """Of this process at once: words that were counted, titles that were compared."""
    store = opened()
    note = store.notes.add("fact", f"It is {SECRET} here")
    store.find(f"{SECRET} other")
    store.notes.add("fact", f"It is {SECRET} there")
    remembered = (likeness._seen, rarity._known)
    assert any(SECRET in words for memo in remembered for words in memo.values())
    store.forget([note, note.id + 1])
    assert not any(SECRET in words for memo in remembered for words in memo.values())


def test_the_same_text_in_another_field_of_the_record_is_told(store: Store) -> None:
    """A secret that stands in two places of one record is not gone by the redaction of one; others that have it are named."""
    host = store.entities.put("host", "h1", attrs={"pw": "hunter-tango-9981"})
    store.entities.mark("host", ["h1"], {"login": "pass"}, detail="hunter-tango-9981")
    other = store.notes.add("fact", "log in with hunter-tango-9981")
    for dry_run in (True, False):
        receipt = store.redact(host, attr="pw", dry_run=dry_run)
        assert receipt.also_found_in == (host.id, other.id)
    assert store.redact(host, check="login").also_found_in == (other.id,)


def test_the_body_that_still_has_an_earlier_title_is_told(store: Store) -> None:
    """Though that text is no earlier one of the body."""
    note = store.notes.add("fact", "hunter-tango-9981", body="hunter-tango-9981")
    store.notes.update(note, title="A title")
    assert store.redact(note).also_found_in == (note.id,)


def test_what_a_record_keeps_is_not_looked_for_elsewhere(store: Store) -> None:
    """Another record of the same title is no finding where the title was not what changed."""
    store.notes.add("fact", "The same title here")
    note = store.notes.add("fact", "The same title here", body="an earlier body")
    store.notes.update(note, body="another body")
    assert store.redact(note).also_found_in == ()


def test_a_request_id_of_a_purge_stands_for_no_other_purge(store: Store) -> None:
    """Another record, another verb: a mismatch, and nothing is purged. The same again: repeated."""
    first, second = store.notes.add("fact", "One to go"), store.notes.add("fact", "One to stay")
    host = store.entities.put("host", "a")
    store.forget(first, request_id="q")
    for call in (
        lambda: store.forget(second, request_id="q"),
        lambda: store.redact(second, request_id="q"),
        lambda: store.forget("host:a", request_id="q"),
        lambda: store.notes.add("fact", "x", request_id="q"),
    ):
        with pytest.raises(RequestMismatch):
            call()
    assert store.forget(first, request_id="q").repeated
    store.forget("host:a", request_id="h")
    assert store.forget("host:a", request_id="h").ids == (host.id,)


def test_the_deletion_of_one_s_own_project_can_be_repeated(store: Store) -> None:
    """Though it is not found by its name any more."""
    store.notes.add("fact", "One")
    done = store.projects.delete("acme", request_id="q")
    assert store.projects.delete("acme", request_id="q").ids == done.ids
