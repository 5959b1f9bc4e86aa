"""The log: what it holds, how damage shows, what an erased event leaves, and what a rollback takes away."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import attrs
import pytest

from agentmem import Closed, Conflict, Corrupt, NewerFile, NotFound, Store
from agentmem.engine.migrations import OPERATIONAL, SCHEMA
from agentmem.log import chain, replay
from agentmem.log.kinds import EventKind, Kinds
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.types import Event

FROZEN = sorted((Path(__file__).parents[1] / "data").glob("events_*.json"))
COLUMNS = (
    "seq", "at", "project", "kind", "version", "type", "record", "session", "author", "run", "task", "origin",
    "request", "payload", "salt", "digest", "chain", "session_chain",
)  # fmt: skip


def some_work(store: Store) -> int:
    """A goal with a step that has items; returns the step."""
    goal = store.notes.add("goal", "Move to the queue")
    step = store.notes.add("step", "Write the consumer", parent=goal)
    store.checklists.add(step, "Read one message", "Acknowledge it")
    store.checklists.done(step, 1)
    return step.id


def raw(store: Store, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    """One statement on the file, behind the library's back."""
    with store.database.write() as connection:
        return connection.execute(sql, values).fetchall()


def folded(
    rows: list[list[Any]], kinds: Kinds = KINDS, blobs: dict[str, str] | None = None
) -> dict[str, list[list[Any]]]:
    """The tables that events make in an empty file."""
    source = apsw.Connection(":memory:")
    for table in ("event", "blob"):
        source.execute(next(each for each in SCHEMA[0].script if f"CREATE TABLE {table}" in each))
    for hashed, text in (blobs or {}).items():
        source.execute("INSERT INTO blob (hash, text, uses) VALUES (?, ?, 1)", (bytes.fromhex(hashed), text))
    marks = ", ".join("?" * len(COLUMNS))
    for row in rows:
        source.execute(f"INSERT INTO event ({', '.join(COLUMNS)}) VALUES ({marks})", row)
    target = replay.fold(source, kinds, FUNCTIONS)
    found = {
        table: [
            [part.hex() if isinstance(part, bytes) else part for part in row]
            for row in target.execute(f"SELECT * FROM {table} ORDER BY 1, 2, 3")
        ]
        for table in kinds.projections
    }
    source.close()
    target.close()
    return found


def as_row(kept: dict[str, Any]) -> list[Any]:
    """A frozen event as a row: what is hexadecimal there is bytes here."""
    blobs = ("salt", "digest", "chain", "session_chain")
    return [bytes.fromhex(kept[name]) if name in blobs and kept[name] else kept[name] for name in COLUMNS]


# What an event holds


def test_an_event_says_who_wrote_what_about_which_record(store: Store) -> None:
    """Kind, record, labels, task, origin and request stand in the header, only what changed in the payload."""
    goal = store.notes.add("goal", "Move to the queue")
    view = store.acting(author="bob", run="r2", task=goal, origin="tool")
    done = view.notes.update(goal, status="active", request_id="q1")
    event = store.log.get(done.revision)
    assert event is not None
    assert (event.kind, event.version, event.type, event.record) == ("note.changed", 1, "note", goal.id)
    assert (event.author, event.run, event.task, event.origin, event.request) == ("bob", "r2", goal.id, "tool", "q1")
    assert event.payload == {"set": {"status": "active"}}


def test_the_header_holds_no_text_of_a_record(store: Store) -> None:
    """What a purge leaves behind has no word of what was written."""
    note = store.notes.add(
        "fact", "hunter2passwort", body="hunter2passwort", tags=["hunter2passwort"], basis="hunter2passwort"
    )
    store.entities.put("host", "hunter2passwort", attrs={"hunter2passwort": "hunter2passwort"})
    store.checkpoint("hunter2passwort", task=note)
    for event in store.log.read(project="*"):
        header = chain.header(*attrs.astuple(event)[:13])
        assert b"hunter2" not in header


def test_a_records_id_is_the_seq_of_the_event_that_made_it(store: Store) -> None:
    """Notes, entities, items, checkpoints and summaries share one number space, that of the log."""
    step = some_work(store)
    entity = store.entities.put("host", "a").id
    for found in (step, entity, store.checkpoint("here").id, store.summarize(step, result="Done").id):
        event = store.log.get(found)
        assert event is not None
        assert (event.seq, event.record) == (found, found)


def test_order_is_seq_and_at_is_the_raw_clock(store: Store, clock: Any) -> None:
    """A clock that goes back is written down as it is, and the order of the log stays that of the writes."""
    first = store.notes.add("fact", "Before")
    clock.now -= 10_000_000
    second = store.notes.add("fact", "After")
    events = store.log.read(after=first.id - 1)
    assert [event.seq for event in events] == [first.id, second.id]
    assert events[1].at < events[0].at
    assert store.verify(replay=True)


def test_the_log_reads_in_pages_both_ways(store: Store) -> None:
    """Pages join without gap or repeat, forwards and backwards, and new events do not shift them."""
    some_work(store)
    forwards, after = [], 0
    while page := store.log.read(after=after, limit=2):
        forwards += [event.seq for event in page]
        after = page[-1].seq
    until, backwards = forwards[-1], []
    while page := store.log.read(until=until, newest_first=True, limit=2):
        store.notes.add("fact", "Meanwhile")
        backwards += [event.seq for event in page]
        until = page[-1].seq - 1
    assert forwards == list(range(1, len(forwards) + 1)) == backwards[::-1]


def test_the_log_of_one_record_is_all_that_concerns_it(store: Store) -> None:
    """`record=` gives the creation and every change, and nothing else."""
    step = some_work(store)
    store.notes.update(step, status="active")
    store.claim([step])
    kinds = [event.kind for event in store.log.read(record=step)]
    assert kinds == ["note.added", "note.changed", "note.claim.taken"]
    assert store.log.read(kinds=["item.added"])[0].payload == {"note": step, "number": 1, "text": "Read one message"}


# Damage


@pytest.mark.parametrize(
    ("sql", "named"),
    [
        ("UPDATE event SET payload = replace(payload, 'Write', 'Wrote') WHERE seq = 3", "3"),
        ("UPDATE event SET payload = payload || ' ' WHERE seq = 3", "3"),
        ("UPDATE event SET salt = zeroblob(16) WHERE seq = 3", "3"),
        ("UPDATE event SET salt = NULL WHERE seq = 3", "3"),
        ("UPDATE event SET digest = zeroblob(32) WHERE seq = 3", "3"),
        ("UPDATE event SET payload = NULL, salt = NULL, digest = zeroblob(32) WHERE seq = 3", "3"),
        ("UPDATE event SET chain = zeroblob(32) WHERE seq = 3", "3"),
        ("UPDATE event SET at = at + 1 WHERE seq = 3", "3"),
        ("UPDATE event SET project = 2 WHERE seq = 3", "3"),
        ("UPDATE event SET kind = 'note.changed' WHERE seq = 3", "3"),
        ("UPDATE event SET version = 2 WHERE seq = 3", "3"),
        ("UPDATE event SET type = 'entity' WHERE seq = 3", "3"),
        ("UPDATE event SET record = 2 WHERE seq = 3", "3"),
        ("UPDATE event SET session = 1 WHERE seq = 3", "3"),
        ("UPDATE event SET author = 'eve' WHERE seq = 3", "3"),
        ("UPDATE event SET run = NULL WHERE seq = 3", "3"),
        ("UPDATE event SET task = 2 WHERE seq = 3", "3"),
        ("UPDATE event SET origin = 'user' WHERE seq = 3", "3"),
        ("UPDATE event SET request = 'q' WHERE seq = 3", "3"),
        ("DELETE FROM event WHERE seq = 3", "3"),
        ("UPDATE event SET seq = 99 WHERE seq = 6", "6"),
        ("UPDATE meta SET value = replace(hex(zeroblob(16)), '00', 'ab') WHERE name = 'store'", "1"),
    ],
)  # fmt: skip
def test_a_changed_byte_of_the_log_is_found_and_named(
    store: Store, opened: Callable[..., Store], sql: str, named: str
) -> None:
    """Payload, salt, digest, chain, any field of the header, a missing event: verify names where it begins."""
    some_work(store)
    assert store.verify()
    raw(store, sql)
    store.close()
    with pytest.raises(Corrupt, match=rf"\b{named}\b"):
        opened().verify()


def test_a_changed_projection_is_found(store: Store) -> None:
    """A row that the log does not say is a problem of `verify(replay=True)`, and one that is missing too."""
    step = some_work(store)
    raw(store, "UPDATE note SET title = 'Other' WHERE id = ?", step)
    assert any(f"note {step} differs in title" in problem for problem in store.verify(replay=True).problems)
    raw(store, "DELETE FROM note WHERE id = ?", step)
    problems = store.verify(replay=True).problems
    assert any(f"note {step}" in problem for problem in problems)
    assert not any("Write" in problem or "Other" in problem for problem in problems)


def test_a_missing_index_row_is_found(store: Store) -> None:
    """A record that no search would find is a problem of `verify`."""
    step = some_work(store)
    raw(store, "DELETE FROM search WHERE rowid = ?", step)
    assert any(problem.startswith("index") for problem in store.verify().problems)


def test_a_log_cut_at_its_end_is_found_by_a_noted_head(store: Store) -> None:
    """The chain of a shorter log is whole; the head that was noted says what is gone."""
    some_work(store)
    head = store.log.head()
    raw(store, "DELETE FROM event WHERE seq = ?", head.seq)
    assert store.verify().events == head.seq - 1
    with pytest.raises(Corrupt, match=str(head.seq)):
        store.verify(head=head)


def test_a_log_that_was_written_anew_is_found_by_a_noted_head(store: Store) -> None:
    """Who has the key can make a chain that holds; it is not the one that was noted."""
    some_work(store)
    head = store.log.head()
    store.notes.add("fact", "Later")
    assert store.verify(head=head)
    with pytest.raises(Corrupt, match=str(head.seq)):
        store.verify(head=attrs.evolve(head, chain="00" * 32))


def test_a_head_of_another_store_is_refused(store: Store, tmp_path: Path) -> None:
    """Heads name their store: one of another file is a mistake and no damage."""
    with Store.open(tmp_path / "other.db", project="acme", key=bytes(32)) as other, pytest.raises(Conflict):
        store.verify(head=other.log.head())


def test_the_head_of_an_empty_log_is_its_beginning(store: Store) -> None:
    """Before the first event the head is seq 0, and verify compares it later all the same."""
    head = store.log.head()
    assert head.seq == 0
    some_work(store)
    assert store.verify(head=head)


# Sessions


def in_session(store: Store, session: int, title: str) -> Event:
    """An event of a session: there is no verb for it yet, and the chain is there from the first release."""
    payload = {"kind": "fact", "title": title, "status": "active"}
    with store.transaction() as tx:
        return tx.append("note.added", payload, project=store.projects.get().id, actor=store.actor, session=session)


def test_a_session_has_a_chain_of_its_own(store: Store) -> None:
    """Events of a session are linked to each other, whatever stands between them in the log."""
    some_work(store)
    events = []
    for title in ("One", "Two", "Three"):
        events.append(in_session(store, 7, title))
        in_session(store, 8, "Between")
    assert store.verify(replay=True)
    link = chain.session_genesis(store.log.head().store, 7)
    for event in events:
        link = chain.link(link, chain.header(*attrs.astuple(event)[:13]), event.digest)
        assert raw(store, "SELECT session_chain FROM event WHERE seq = ?", event.seq) == [(link,)]


def test_a_broken_session_chain_is_found_and_named(store: Store) -> None:
    """A session's chain is checked with the log's."""
    some_work(store)
    event = in_session(store, 7, "One")
    raw(store, "UPDATE event SET session_chain = zeroblob(32) WHERE seq = ?", event.seq)
    with pytest.raises(Corrupt, match=f"session 7 .* {event.seq}"):
        store.verify()


# Erased events


def test_an_erased_payload_leaves_a_chain_that_holds(store: Store) -> None:
    """Without payload and salt the log still verifies, and the event says no more than its header."""
    step = some_work(store)
    raw(store, "UPDATE event SET payload = NULL, salt = NULL WHERE record = ?", step)
    assert store.verify().events == store.log.head().seq
    event = store.log.get(step)
    assert event is not None
    assert event.payload is None


def test_an_erased_creation_leaves_a_stub(store: Store) -> None:
    """Replayed, it is a record without text that children, items and links still point at."""
    step = some_work(store)
    child = store.notes.add("fact", "Beneath", parent=step, links=[("supports", step)])
    raw(store, "UPDATE event SET payload = NULL, salt = NULL WHERE seq = ?", step)
    tables = folded(raw(store, f"SELECT {', '.join(COLUMNS)} FROM event ORDER BY seq"))  # type: ignore[arg-type]
    notes = {row[0]: row for row in tables["note"]}
    assert notes[step][3:5] == [None, None]
    assert step in notes[child.id]
    assert len(tables["item"]) == 2
    assert tables["link"][0][:3] == [child.id, step, "supports"]


def test_an_erased_change_moves_only_the_revision(store: Store) -> None:
    """Replayed, it sets no field; the record says that something happened to it."""
    note = store.notes.add("fact", "As it was")
    store.entities.put("host", "a", attrs={"port": 80})
    marked = store.entities.mark("host", ["a"], {"tls": "pass"}).ids[0]
    changed = store.notes.update(note, title="As it is", status="dropped")
    raw(store, "UPDATE event SET payload = NULL, salt = NULL WHERE kind IN ('note.changed', 'entity.marked')")
    tables = folded(raw(store, f"SELECT {', '.join(COLUMNS)} FROM event ORDER BY seq"))  # type: ignore[arg-type]
    (row,) = tables["note"]
    assert row[3] == "As it was"
    assert changed.revision in row
    assert tables["mark"] == []
    assert tables["entity"][0][0] == marked


# Versions


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.stem)
def test_the_log_of_an_earlier_release_gives_the_same_tables(frozen: Path) -> None:
    """Events as an earlier release wrote them are read for ever: chain, payloads and what they come to."""
    kept = json.loads(frozen.read_text("utf-8"))
    assert folded([as_row(event) for event in kept["events"]], blobs=kept["blobs"]) == kept["tables"]
    link = chain.genesis(kept["store"])
    for event in kept["events"]:
        row = as_row(event)
        if row[13] is not None:
            assert chain.digest(row[14], row[13]) == row[15]
        link = chain.link(link, chain.header(*row[:13]), row[15])
        assert link == row[16]


def test_every_version_of_every_kind_is_frozen() -> None:
    """There is a kept event for each kind and each version of it, so that none can be forgotten."""
    kept = [event for frozen in FROZEN for event in json.loads(frozen.read_text("utf-8"))["events"]]
    there = {(event["kind"], event["version"]) for event in kept}
    needed = {(kind.name, version) for kind in KINDS.by_name.values() for version in range(1, kind.version + 1)}
    assert needed - there == set()


@pytest.mark.parametrize("frozen", FROZEN, ids=lambda path: path.stem)
def test_any_event_may_be_erased(frozen: Path) -> None:
    """Whichever event of a log lost its payload, the rest of it still applies, and only marks and links are lost.

    But for an event that states a record anew: one is erased only together with a later one of the same record.
    """
    kept = json.loads(frozen.read_text("utf-8"))
    rows = [as_row(event) for event in kept["events"]]
    whole = folded(rows, blobs=kept["blobs"])
    for place, row in enumerate(rows):
        if row[3].endswith(".restated"):
            continue
        erased = [*row[:13], None, None, *row[15:]]
        tables = folded([*rows[:place], erased, *rows[place + 1 :]], blobs=kept["blobs"])
        for table in set(KINDS.projections) - {"mark", "link"}:
            assert [each[0] for each in tables[table]] == [each[0] for each in whole[table]], (row[3], table)


def kinds_with(kind: EventKind) -> Kinds:
    return Kinds({**KINDS.by_name, kind.name: kind}, KINDS.projections)


def test_an_upcaster_reads_old_payloads_and_changes_no_stored_byte(store: Store) -> None:
    """A kind in version 3 reads what version 1 wrote, step by step, and the file stays as it is."""
    store.checkpoint("Here")
    now = KINDS.get("checkpoint.written")
    later = attrs.evolve(
        now,
        version=3,
        upcasts={
            1: lambda payload: {"words": payload["text"]},
            2: lambda payload: {"text": payload["words"].upper()},
        },
    )
    columns = ", ".join(COLUMNS)
    before = raw(store, f"SELECT {columns} FROM event ORDER BY seq")
    tables = folded([list(row) for row in before], kinds_with(later))
    assert "HERE" in tables["checkpoint"][0]
    assert raw(store, f"SELECT {columns} FROM event ORDER BY seq") == before


def test_a_kind_or_version_of_a_later_release_is_refused(store: Store) -> None:
    """What this release can't read it does not guess at."""
    some_work(store)
    with pytest.raises(NewerFile, match="unknown to this version"):
        KINDS.get("note.sung")
    raw(store, "UPDATE event SET version = 2 WHERE seq = 2")
    with pytest.raises(NewerFile, match="version 2"):
        store.log.get(2)


# Ids


def test_a_number_that_is_no_record_says_whose_event_it_is(store: Store) -> None:
    """`get(n)` of a change names the record that it changed."""
    goal = store.notes.add("goal", "Move")
    done = store.notes.update(goal, status="active")
    with pytest.raises(NotFound, match=rf"Event {done.revision} \(note\.changed\) changed record #{goal.id}"):
        store.get(done.revision)
    with pytest.raises(NotFound, match="no record #999"):
        store.get(999)


def test_values_are_provisional_until_the_commit(store: Store) -> None:
    """Inside a transaction an id may still be given to another record, and its value says so."""
    with store.transaction():
        note = store.notes.add("fact", "Perhaps")
        many = store.entities.put_many("host", keys=["a"])
        assert note.provisional
        assert many.provisional
    assert not note.provisional
    assert not note.void
    assert not many.provisional
    assert not store.notes.add("fact", "At once").provisional


def test_a_value_of_a_transaction_that_was_rolled_back_is_void(store: Store, undone: Any) -> None:
    """Its id belongs to another record by now: every verb refuses the value."""
    with undone(store):
        lost = store.notes.add("goal", "Lost")
    kept = store.notes.add("goal", "Kept")
    assert lost.void
    assert not lost.provisional
    assert kept.id == lost.id
    for use in (
        lambda: store.get(lost),
        lambda: store.notes.update(lost, title="Mine"),
        lambda: store.notes.add("step", "Beneath", parent=lost),
        lambda: store.claim([lost]),
        lambda: store.left(lost),
    ):
        with pytest.raises(Closed, match="never written"):
            use()
    assert store.notes.get(kept).title == "Kept"


def test_a_value_of_a_savepoint_that_was_rolled_back_is_void(store: Store, undone: Any) -> None:
    """Also where the transaction around it is committed and its id is another record's."""
    with store.transaction():
        with undone(store):
            lost = store.notes.add("goal", "Lost")
        kept = store.notes.add("goal", "Kept")
        assert lost.void
        assert kept.provisional
    assert kept.id == lost.id
    assert lost.void
    assert not kept.void
    with pytest.raises(Closed):
        store.get(lost)
    assert store.verify(replay=True)


def test_every_table_is_the_log_a_projection_or_operational(store: Store) -> None:
    """What a replay does not make is listed in one place; a table in neither list would be lost by a copy of the log."""
    with store.database.read() as connection:
        tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    kept = {"event", *KINDS.projections, *OPERATIONAL}
    assert {name for name in tables if not name.startswith(("search", "sqlite_"))} == kept
