"""What a purge says it did is what the log says; what may stop it; what it never does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decrypted import search
from written import SECRET, surround

from agentmem import (
    Closed,
    Conflict,
    Held,
    InvalidInput,
    NotFound,
    ReadOnly,
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


def family(store: Store) -> dict[str, int]:
    """A goal with all that may hang on it, about an entity, and others that point at both."""
    host = store.entities.put("host", "a.example.com", attrs={"os": "the one and only"}).id
    goal = store.notes.add("goal", "Ship the release", body="All of it at once", about=host).id
    step = store.notes.add("step", "Look into it well", parent=goal).id
    item = store.checklists.add(step, "Before anything else").ids[0]
    store.checkpoint("Halfway through with it", task=step)
    summary = store.summarize(step, result="All is well by now").id
    other = store.notes.add("fact", "Something else", about=host, links=[("supports", goal)]).id
    beside = store.entities.put("host", "b.example.com").id
    store.links.add(beside, "near", host)
    return {
        "host": host, "goal": goal, "step": step, "item": item, "summary": summary, "other": other, "beside": beside,
    }  # fmt: skip


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


# What stops a purge


def test_w3_claims_beneath_a_forgotten_record_hold(store: Store) -> None:
    """Forgetting an entity recursively checked the claim of the root only, and claimed children were deleted."""
    ids = family(store)
    child = store.entities.put("port", "443", parent=ids["host"]).id
    bob = store.acting(author="bob", run="r2")
    for record, forgotten in ((child, ids["host"]), (ids["item"], ids["goal"]), (ids["step"], ids["goal"])):
        bob.claim(record)
        head = store.log.head()
        for dry_run in (True, False):
            with pytest.raises(Held, match="bob"):
                store.forget(forgotten, dry_run=dry_run)
            with pytest.raises(Held, match="bob"):
                store.forget(project="acme", dry_run=dry_run)
        assert store.log.head() == head
        bob.release(record)
    bob.claim(ids["step"])
    assert ids["step"] in bob.forget(ids["goal"]).ids
    assert child in store.forget(ids["host"]).ids


def test_claims_of_what_points_at_a_forgotten_record_hold(store: Store) -> None:
    """It would be changed, and its holder does not expect that."""
    ids = family(store)
    bob = store.acting(author="bob", run="r2")
    bob.claim(ids["other"])
    for dry_run in (True, False):
        with pytest.raises(Held, match="bob"):
            store.forget(ids["host"], dry_run=dry_run)
    bob.release(ids["other"])
    store.claim(ids["beside"])
    assert store.forget(ids["host"]).detached == (ids["goal"], ids["other"], ids["beside"])


def test_a_claimed_record_is_not_redacted_by_another(store: Store) -> None:
    """Nor is a dry run of it."""
    note = store.notes.add("fact", "It is known")
    store.notes.update(note, title="It was known")
    store.acting(run="r2").claim(note)
    for dry_run in (True, False):
        with pytest.raises(Held):
            store.redact(note, dry_run=dry_run)


def test_w7_what_pointed_at_a_forgotten_record_changes_by_an_event(store: Store) -> None:
    """Forgetting an entity silently set a pointer of notes to null, without revision or journal."""
    ids = family(store)
    before = store.notes.get(ids["other"])
    store.acting(author="bob", run="r2").forget(ids["host"])
    after = store.notes.get(ids["other"])
    assert after.entity is None
    assert after.revision > before.revision
    (changed,) = store.log.read(record=ids["other"], after=before.revision)
    assert (changed.kind, changed.payload, changed.author) == ("note.changed", {"set": {"entity": None}}, "bob")
    (unlinked,) = store.log.read(record=ids["beside"], kinds=["entity.unlinked"])
    assert unlinked.payload == {"dst": ids["host"], "kind": "near"}
    assert store.entities.get(ids["beside"]).revision == unlinked.seq
    assert store.links.list(ids["beside"]) == ()


def test_d6_an_edited_text_ends_with_its_redaction_in_log_and_wal(
    path: Path, tmp_path: Path, opened: Callable[..., Store]
) -> None:
    """The WAL was emptied after purges only, and edits left secrets in it. Here an edit keeps its past on purpose."""
    store = opened()
    surround(store)
    note = store.notes.add("fact", f"It is {SECRET}")
    store.notes.update(note, title="It is known")
    assert store.database.wal_bytes() > 100_000
    store.redact(note)
    assert store.database.wal_bytes() < 20_000
    store.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()


def test_a_purge_inside_a_transaction_is_refused(store: Store) -> None:
    """It could not be finished there, and a rollback would bring back what was said to be gone."""
    note = store.notes.add("fact", f"It is {SECRET}")
    with store.transaction():
        store.notes.update(note, body="More")
        with pytest.raises(Conflict, match="transaction"):
            store.forget(note)
        with pytest.raises(Conflict, match="transaction"):
            store.redact(note)
        assert store.forget(note, dry_run=True).ids == (note.id,)
    assert store.notes.get(note).body == "More"


@pytest.mark.parametrize("origin", ["web", "tool", "import"])
def test_text_from_elsewhere_purges_nothing(store: Store, origin: str) -> None:
    """An injected instruction must not erase its traces."""
    note = store.notes.add("fact", "It is known")
    store.notes.update(note, body="More")
    foreign = store.acting(origin=origin)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=origin):
        foreign.forget(note)
    with pytest.raises(InvalidInput, match=origin):
        foreign.redact(note)
    assert store.notes.get(note).body == "More"


def test_a_store_opened_for_reading_purges_nothing(opened: Callable[..., Store]) -> None:
    """It says so; what a purge would do can be asked."""
    note = opened().notes.add("fact", "It is known").id
    reader = opened(read_only=True)
    with pytest.raises(ReadOnly):
        reader.forget(note)
    with pytest.raises(ReadOnly):
        reader.redact(note)
    assert reader.forget(note, dry_run=True).ids == (note,)
    assert reader.notes.get(note).title == "It is known"


def test_what_names_no_record_is_refused(store: Store) -> None:
    """Nothing, several ways at once, an event that made no record, a stranger's value, a condition without a type."""
    note = store.notes.add("fact", "It is known")
    changed = store.notes.update(note, body="More").revision
    for given in (0, -1, 10**30, changed, "host:a", f"{note.id}.1", note.id + 100):
        with pytest.raises(NotFound):
            store.forget(given)
        with pytest.raises(NotFound):
            store.redact(given)
    for given in (True, None, 1.5, "", object(), [None], [[note.id]], b"1", {"id": note.id}):
        with pytest.raises(InvalidInput):
            store.forget(given)  # type: ignore[arg-type]
    for options in (
        {},
        {"project": "acme", "type": "host"},
        {"type": ""},
        {"project": ""},
        {"dry_run": 1, "refs": note},
    ):
        with pytest.raises(InvalidInput):
            store.forget(**options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="type="):
        store.forget(note, where="key = 'a'")
    with pytest.raises(InvalidInput, match="type="):
        store.forget(note, nmae="a")
    with pytest.raises(NotFound):
        store.forget(project="nowhere")
    with pytest.raises(InvalidInput):
        store.forget(type="host", where="key = :missing")
    assert store.notes.get(note).title == "It is known"
    assert store.forget([]).ids == ()
    assert store.forget(type="nothing").ids == ()


def test_of_several_one_that_is_wrong_stops_all(store: Store) -> None:
    """All or none."""
    one, other = store.notes.add("fact", "One"), store.notes.add("fact", "Other")
    with pytest.raises(NotFound):
        store.forget([one, 999])
    store.forget(other)
    with pytest.raises(NotFound, match="purged"):
        store.forget([one, other])
    assert store.notes.get(one).title == "One"
    assert store.forget([one, one.id, f"#{one.id}", store.notes.get(one)]).ids == (one.id,)


def test_a_value_of_a_rolled_back_transaction_purges_nothing(
    store: Store, undone: Callable[[Store], Any], opened: Callable[..., Store], tmp_path: Path
) -> None:
    """Its id may be another record's by now; the same of a value that another store gave."""
    kept = []
    with undone(store):
        written = store.notes.add("fact", "Never written")
        kept = [written, store.notes.get(written)]
    record = store.notes.add("fact", "Another that has the id")
    assert record.id == written.id
    with Store.open(tmp_path / "other.db", project="acme", key=KEY) as other:
        other.notes.add("goal", "First")
        kept.append(other.notes.get(other.notes.add("fact", "In another store").id - 1))
    for value in kept:
        with pytest.raises(Closed):
            store.forget(value)
        with pytest.raises(Closed):
            store.redact(value)
    assert store.notes.get(record).title == "Another that has the id"


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
