"""A whole log goes into an empty store, or on in one that holds its beginning; whatever else it is said to be is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from forging import filled, forged, payload, tables

from agentmem import Conflict, Corrupt, InvalidInput, NotFound, Store
from agentmem.log import blobs
from agentmem.records.kinds import KINDS
from agentmem.transfer.jsonlines import NAMES, Header, Reader, Writer
from agentmem.types import Head

Another = Callable[..., Store]


class StopError(Exception):
    """Raised from the callback of progress, to interrupt an import."""


# Into an empty store


def test_an_empty_store_becomes_the_exported_one(store: Store, log: Path, another: Another) -> None:
    """The same id, events, chain, tables and index; found, verified, and written on."""
    other = another("b")
    done = other.import_(log)
    assert tables(other) == tables(store)
    assert other.log.head() == store.log.head() == done.head
    assert done.projects == ("acme",)
    assert other.verify(replay=True).problems == ()
    assert other.find("ports").hits
    other.notes.add("fact", "written here")
    assert other.verify(replay=True, head=store.log.head()).problems == ()


def test_claims_and_remembered_requests_do_not_come_along(store: Store, tmp_path: Path, another: Another) -> None:
    """Nobody holds anything of what came in, and a request id may be used again; the answer says so."""
    goal = store.notes.add("goal", "one", request_id="q1")
    store.claim(goal)
    store.export(tmp_path / "log.jsonl")
    other = another("b")
    done = other.import_(tmp_path / "log.jsonl")
    assert other.claims() == ()
    assert other.notes.add("goal", "two", request_id="q1").repeated is False
    assert "claims and remembered requests" in done.notices[0]


def test_other_views_of_the_empty_file_go_on_as_the_new_store(
    opened: Callable[..., Store], another: Another, tmp_path: Path
) -> None:
    """Whoever had the file open before takes the id over, whether it had looked at it or not."""
    source = another("source")
    filled(source)
    source.export(tmp_path / "log.jsonl")
    looked, unlooked, importing = opened(), opened(), opened()
    assert looked.log.head().seq == 0
    assert looked.notes.list() == ()
    importing.import_(tmp_path / "log.jsonl")
    looked.notes.add("fact", "one")
    unlooked.notes.add("fact", "two")
    for store in (looked, unlooked, importing):
        assert store.log.head().store == source.log.head().store
        assert store.verify(replay=True, head=source.log.head()).problems == ()


def test_a_dry_run_proves_and_changes_nothing(log: Path, another: Another) -> None:
    """The store keeps its id and has no event."""
    other = another("b")
    before = other.log.head()
    done = other.import_(log, dry_run=True)
    assert (other.log.head(), done.added, done.dry_run) == (before, 0, True)
    assert done.text.splitlines()[-1] == "sound"
    other.notes.add("goal", "mine")
    assert other.verify(replay=True).problems == ()


def test_a_project_that_this_view_is_not_of_is_named(log: Path, another: Another) -> None:
    """So that nobody looks for the records in the wrong place."""
    done = another("b", project="elsewhere").import_(log)
    assert any("acme" in notice for notice in done.notices)


# Into one that is not empty


def test_a_store_with_events_of_its_own_is_refused(store: Store, log: Path, another: Another) -> None:
    """A whole log makes no second lineage in a store; nothing of it is kept."""
    other = another("b")
    other.notes.add("goal", "mine")
    before = tables(other)
    with pytest.raises(Conflict, match="empty store only"):
        other.import_(log)
    assert tables(other) == before


def test_beads_2276_464_nothing_vanishes_by_an_import(store: Store, log: Path, another: Another) -> None:
    """Issues vanish after a sync: here an older export adds nothing and takes nothing, a newer one adds what is new."""
    other = another("b")
    other.import_(log)
    late = store.notes.add("fact", "late")
    store.export(log.with_name("later.jsonl"))
    assert other.import_(log.with_name("later.jsonl")).added == 1
    assert other.notes.get(late.id).title == "late"
    before = tables(other)
    assert other.import_(log).added == 0
    assert tables(other) == before == tables(store)


def test_basic_memory_1214_a_second_import_adds_nothing(store: Store, log: Path, another: Another) -> None:
    """Observations silently duplicated: here not by a log into its copy, nor into the very store it came from."""
    other = another("b")
    other.import_(log)
    before = tables(other)
    assert (other.import_(log).added, store.import_(log).added) == (0, 0)
    assert tables(other) == before == tables(store)


def test_two_that_went_on_from_one_beginning_are_not_mixed(store: Store, log: Path, another: Another) -> None:
    """Refused whichever is the longer, and nothing is changed."""
    other = another("b")
    other.import_(log)
    other.notes.add("fact", "written there")
    store.notes.add("fact", "written here")
    for _ in range(3):
        before = tables(other)
        name = log.with_name(f"{store.log.head().seq}.jsonl")
        store.export(name)
        with pytest.raises(Conflict, match="other events"):
            other.import_(name)
        assert tables(other) == before
        store.notes.add("fact", "and more")


def test_inside_a_transaction_it_is_refused(log: Path, another: Another) -> None:
    """It is many transactions of its own."""
    other = another("b")
    with other.transaction(), pytest.raises(Conflict, match="inside a transaction"):
        other.import_(log)
    assert other.log.head().seq == 0


def test_an_interrupted_import_goes_on(store: Store, tmp_path: Path, another: Another) -> None:
    """What was written stays, and the same file brings the rest; the end is the same as without the interruption."""
    filled(store)
    with store.transaction():
        store.entities.put_many("page", keys=[f"p{number}" for number in range(5000)])
    store.export(tmp_path / "log.jsonl")
    events = store.log.head().seq
    other = another("b")

    def stop(done: int, total: int) -> None:
        if done > events:
            raise StopError

    with pytest.raises(StopError):
        other.import_(tmp_path / "log.jsonl", progress=stop)
    reached = other.log.head().seq
    assert 0 < reached < events
    done = other.import_(tmp_path / "log.jsonl")
    assert done.added == events - reached
    assert tables(other) == tables(store)
    assert other.verify(replay=True).problems == ()


def test_nobody_writes_into_a_half_imported_store(store: Store, tmp_path: Path, another: Another) -> None:
    """A write, a copy and logs are refused until the import has come to its end, and verify tells of it."""
    with store.transaction():
        store.entities.put_many("page", keys=[f"p{number}" for number in range(5000)])
    store.export(tmp_path / "log.jsonl")
    store.export(tmp_path / "copy.jsonl", project="acme")
    (tmp_path / "log.md").write_text("# A task\n\n- one\n", "utf-8")
    events = store.log.head().seq
    other = another("b")
    refused: list[int] = []

    def write_beside(done: int, total: int) -> None:
        if events < done < total:
            for write in (
                lambda: other.notes.add("fact", "mine"),
                lambda: other.import_(tmp_path / "copy.jsonl"),
                lambda: other.import_(tmp_path / "log.md"),
            ):
                with pytest.raises(Conflict, match=f"ends at event {events}"):
                    write()
            refused.append(done)
        if len(refused) == 2:
            raise StopError

    with pytest.raises(StopError):
        other.import_(tmp_path / "log.jsonl", progress=write_beside)
    assert other.log.head().seq < events
    (problem,) = other.verify(replay=True).problems
    assert str(events) in problem
    assert other.entities.query("page", limit=1)
    other.import_(tmp_path / "log.jsonl")
    assert other.verify(replay=True).problems == ()
    assert other.log.head() == store.log.head()
    assert other.notes.add("fact", "mine").id == events + 1


def test_an_earlier_export_does_not_end_the_import_of_a_later_one(
    store: Store, tmp_path: Path, another: Another
) -> None:
    """The store has a part of a log until it has the last event of the latest export that was begun."""
    store.notes.add("goal", "one")
    store.export(tmp_path / "first.jsonl")
    with store.transaction():
        store.entities.put_many("page", keys=[f"p{number}" for number in range(5000)])
    store.export(tmp_path / "second.jsonl")
    events = store.log.head().seq
    other = another("b")

    def stop(done: int, total: int) -> None:
        if done > events:
            raise StopError

    with pytest.raises(StopError):
        other.import_(tmp_path / "second.jsonl", progress=stop)
    other.import_(tmp_path / "first.jsonl")
    with pytest.raises(Conflict, match="Import the same export"):
        other.notes.add("fact", "mine")
    other.import_(tmp_path / "second.jsonl")
    assert other.notes.add("fact", "mine").id == events + 1


def test_the_answer_has_the_head_of_the_store_as_verify_takes_it(
    store: Store, log: Path, tmp_path: Path, another: Another
) -> None:
    """Also where the store has gone on since the export; an export says the head it has."""
    head = store.log.head()
    made = store.export(tmp_path / "again.jsonl")
    assert made.text.endswith(f"head {head.store}:{head.seq}:{head.chain}")
    other = another("b")
    assert other.import_(log).text.endswith(f"head {head.store}:{head.seq}:{head.chain}")
    other.notes.add("fact", "later")
    now = other.log.head()
    done = other.import_(log)
    assert (done.added, done.head) == (0, head)
    assert done.text.endswith(f"head {now.store}:{now.seq}:{now.chain}")


def test_a_log_is_not_screened_for_credentials_and_says_so(store: Store, tmp_path: Path, another: Another) -> None:
    """It comes in event for event, whatever the store refuses or masks otherwise."""
    store.notes.add("fact", "password = hunter2hunter2XYZ")
    store.export(tmp_path / "log.jsonl")
    done = another("b", credentials="refuse").import_(tmp_path / "log.jsonl")
    assert "credentials='refuse'" in done.notices[-1]
    assert not any("credentials=" in notice for notice in another("c").import_(tmp_path / "log.jsonl").notices)


# Arguments


def test_a_log_keeps_where_its_text_came_from(log: Path, another: Another) -> None:
    """It cannot come in as untrusted, nor through a view of untrusted text: its chain is what it is."""
    other = another("b")
    with pytest.raises(InvalidInput, match="can't come in as untrusted"):
        other.import_(log, origin="import")
    with pytest.raises(InvalidInput, match="can't come in as untrusted"):
        other.acting(origin="web").import_(log)
    with pytest.raises(InvalidInput, match="entities="):
        other.import_(log, entities=["host"])
    with pytest.raises(InvalidInput, match="collisions="):
        other.import_(log, collisions="merge")
    assert other.log.head().seq == 0


def test_the_file_of_an_open_store_is_not_opened(store: Store, another: Another) -> None:
    """Closing it would drop the locks SQLite holds on it, of this store and of any other of the process."""
    other = another("b")
    for each in (store, other):
        each.notes.add("goal", "mine")
        for suffix in ("", "-wal", "-shm"):
            with pytest.raises(InvalidInput, match="has open"):
                store.import_(f"{each.path}{suffix}")


def test_a_file_that_is_changed_while_it_is_read_is_noticed(log: Path) -> None:
    """The second reading takes no event that the first did not prove, however consistent the file is."""
    bad = forged(log, log.with_name("bad.jsonl"), payload("note.added", title="something else"))
    with log.open("rb") as file:
        proven = b"".join(entry.chain for entry in Reader(file))
    with log.open("rb") as file:
        assert sum(1 for _ in Reader(file, proven=proven)) == len(proven) // 32
    with bad.open("rb") as file:
        read = Reader(file, proven=proven)
        with pytest.raises(Corrupt, match="changed while"):
            list(read)
        assert read.events == 2


def test_a_folder_of_logs_is_read_as_before(store: Store, tmp_path: Path) -> None:
    """An import of Markdown is what it was; `collisions=` has no meaning there."""
    (tmp_path / "plan.md").write_text("# Move\n- [ ] Lower the TTL\n", "utf-8")
    with pytest.raises(InvalidInput, match="collisions="):
        store.import_(tmp_path / "plan.md", collisions="merge")
    assert store.import_(tmp_path / "plan.md").files == 1
    with pytest.raises(NotFound):
        store.import_(tmp_path / "nothing.jsonl")


# All kinds


FROZEN = sorted((Path(__file__).parents[2] / "data").glob("events_*.json"))


def test_every_kind_of_event_is_among_those_that_were_frozen() -> None:
    """So that the test below is about all of them."""
    events = [row for path in FROZEN for row in json.loads(path.read_text("utf-8"))["events"]]
    assert {row["kind"] for row in events} == set(KINDS.by_name)


@pytest.mark.parametrize("path", FROZEN, ids=[path.stem for path in FROZEN])
def test_every_event_ever_written_comes_in(path: Path, tmp_path: Path, another: Another) -> None:
    """The frozen events of each version are accepted as they are, and make the tables that were frozen with them."""
    frozen = json.loads(path.read_text("utf-8"))
    events = frozen["events"]
    head = Head(frozen["store"], events[-1]["seq"], events[-1]["chain"])
    with (tmp_path / "log.jsonl").open("wb") as file:
        writer = Writer(file.write)
        writer.header(Header("log", frozen["store"], head, 0))
        for row in events:
            for hashed in blobs.named(row["payload"] or "") - writer.texts:
                writer.text(hashed, frozen["blobs"][hashed.hex()])
            salt = None if row["salt"] is None else bytes.fromhex(row["salt"])
            writer.event(tuple(row[name] for name in NAMES), row["payload"], salt, bytes.fromhex(row["digest"]))
        writer.end()
    other = another("b")
    assert other.import_(tmp_path / "log.jsonl").head == head
    with other.database.read() as connection:
        for table, expected in frozen["tables"].items():
            found = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
            told = [[part.hex() if isinstance(part, bytes) else part for part in row] for row in found]
            assert sorted(told, key=repr) == sorted(expected, key=repr), table


def test_what_was_imported_from_markdown_comes_out_and_in(store: Store, tmp_path: Path, another: Another) -> None:
    """Records of folders of logs, two projects of them, one merged into the other: the same there, row for row."""
    examples = Path(__file__).parents[3] / "docs" / "examples"
    side = store.in_project("side")
    store.import_(examples / "recon", entities=["host", "endpoint"])
    side.import_(examples / "software")
    side.entities.put("host", "only here")
    store.projects.merge("side")
    store.export(tmp_path / "log.jsonl")
    other = another("b")
    other.import_(tmp_path / "log.jsonl")
    assert tables(other) == tables(store)
    store.export(tmp_path / "copy.jsonl", project="acme")
    third = another("c")
    third.import_(tmp_path / "copy.jsonl")
    mine, theirs = (re.sub(r"\d+", "", view.left().text).splitlines()[1:] for view in (third, store))
    assert mine == theirs
    assert third.verify(replay=True).problems == ()
