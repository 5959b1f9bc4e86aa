"""A whole log goes into an empty store, or on in one that holds its beginning; whatever else it is said to be is refused."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forging import Lines, event, forged, lines_of, tables, write

from agentmem import AgentMemError, Conflict, Corrupt, InvalidInput, LimitExceeded, NewerFile, NotFound, Scope, Store
from agentmem.log import blobs
from agentmem.records.kinds import KINDS
from agentmem.transfer.jsonlines import NAMES, Header, Reader, Writer
from agentmem.types import Head

Another = Callable[..., Store]


class StopError(Exception):
    """Raised from the callback of progress, to interrupt an import."""


def filled(store: Store) -> int:
    """One record of each type; gives the goal."""
    goal = store.notes.add("goal", "Check example.com", scope=Scope("host"))
    step = store.notes.add("step", "Look at the ports", parent=goal, body="long " * 1000)
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.entities.put("host", "db", parent="host:web")
    store.entities.mark("host", ["web"], {"tls": "pass"})
    store.entities.expect("host", ["tls"])
    store.notes.add("fact", "443 is open", parent=step, about="host:web", links=[("supports", goal)])
    store.checklists.add(step, "one", "two")
    store.checklists.done(step, 1)
    store.checkpoint("halfway", task=step)
    store.summarize(step, work="ports", result="one")
    store.notes.move(step, parent=goal, first=True)
    return goal.id


@pytest.fixture
def log(store: Store, tmp_path: Path) -> Path:
    """An export of a store with one record of each type."""
    filled(store)
    store.export(tmp_path / "log.jsonl")
    return tmp_path / "log.jsonl"


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


def test_whoever_writes_into_a_half_imported_store_is_not_overwritten(
    store: Store, tmp_path: Path, another: Another
) -> None:
    """The import says that the store holds something else, and leaves that alone."""
    with store.transaction():
        store.entities.put_many("page", keys=[f"p{number}" for number in range(5000)])
    store.export(tmp_path / "log.jsonl")
    events = store.log.head().seq
    other = another("b")
    written: list[int] = []

    def write_beside(done: int, total: int) -> None:
        if done > events and not written:
            written.append(other.notes.add("fact", "mine").id)

    with pytest.raises(Conflict, match="other events"):
        other.import_(tmp_path / "log.jsonl", progress=write_beside)
    assert other.notes.get(written[0]).title == "mine"
    assert other.verify(replay=True).problems == ()


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


# Damage


def change_line(path: Path, number: int, old: str, new: str) -> None:
    lines = path.read_text("utf-8").split("\n")
    assert old in lines[number - 1]
    lines[number - 1] = lines[number - 1].replace(old, new, 1)
    path.write_text("\n".join(lines), "utf-8")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"seq":3', '"seq":4'),
        ('"at":1', '"at":2'),
        ('"author":"ana"', '"author":"eve"'),
        ('"payload":{', '"payload":{"x":1,'),
        ('"salt":"', '"salt":"0'),
        ('"chain":"', '"chain":"0'),
        ("{", "["),
        ('"kind":', '"knid":'),
        ('"origin":"agent"', '"origin":"root"'),
        ('"record":3', '"record":9'),
        ('"author":"ana"', '"author":5'),
        ('"author":"ana"', '"author":"a b"'),
        ('"seq":3', '"seq":3.0'),
        ('"seq":3', '"seq":true'),
        ('"version":1', '"version":0'),
        ('"session":null', '"session":1'),
    ],
)
def test_a_damaged_line_is_named_and_nothing_is_kept(log: Path, another: Another, old: str, new: str) -> None:
    """Whatever is changed in a line, the error is typed and has its number, and the store stays empty."""
    assert '"seq":3' in log.read_text("utf-8").split("\n")[5 - 1]  # after the long text of the note
    change_line(log, 5, old, new)
    other = another("b")
    with pytest.raises(Corrupt, match="Line 5 of the export is damaged"):
        other.import_(log)
    assert other.log.head().seq == 0
    other.notes.add("goal", "mine")


def test_lines_that_are_missing_twice_or_elsewhere_are_found(log: Path, another: Another) -> None:
    """A gap, a repeat, an exchange, a line after the end, an empty one."""
    lines = log.read_text("utf-8").splitlines(keepends=True)
    other = another("b")
    cases = {
        "gap": [*lines[:6], *lines[7:]],
        "repeat": [*lines[:6], lines[5], *lines[6:]],
        "exchange": [*lines[:6], lines[7], lines[6], *lines[8:]],
        "after": [*lines, lines[-1]],
        "empty": [*lines[:6], "\n", *lines[6:]],
        "no text": [*lines[:3], *lines[4:]],
        "text twice": [*lines[:4], lines[3], *lines[4:]],
        "text alone": [*lines[:-1], lines[3], lines[-1]],
        "no end": lines[:-1],
        "half": [*lines[:-1], lines[-1][:20]],
        "first alone": lines[:1],
    }
    for name, case in cases.items():
        path = log.with_name(f"{name}.jsonl")
        path.write_text("".join(case), "utf-8")
        with pytest.raises(Corrupt):
            other.import_(path)
    assert other.log.head().seq == 0


def test_a_file_that_went_through_another_systems_line_ends_is_the_same(
    store: Store, log: Path, another: Another
) -> None:
    """Lines that end in carriage return and newline are read as they are."""
    log.write_bytes(log.read_bytes().replace(b"\n", b"\r\n"))
    other = another("b")
    other.import_(log)
    assert tables(other) == tables(store)


def test_a_later_format_is_left_alone(log: Path, another: Another) -> None:
    """What a later version wrote is not guessed at."""
    change_line(log, 1, '"format":1', '"format":2')
    with pytest.raises(NewerFile, match="format 2"):
        another("b").import_(log)


# Hostile files: consistent in themselves, as whoever can compute a chain can make them


def payload(of: str, nth: int = 0, /, **changes: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        event(lines, of, nth)["payload"] |= changes

    return change


def header(of: str, nth: int = 0, /, **changes: Any) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        event(lines, of, nth).update(changes)

    return change


def without(kind: str, name: str) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        del event(lines, kind)["payload"][name]

    return change


def nested(lines: Lines) -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    event(lines, "entity.added")["payload"]["attrs"] = {"deep": value}


HOSTILE = {
    "title of two lines": payload("note.added", title="one\ntwo"),
    "title with a bidirectional mark": payload("note.added", title="one \u202etwo"),
    "title too long": payload("note.added", title="x" * 501),
    "title no text": payload("note.added", title=5),
    "no title": without("note.added", "title"),
    "no kind": without("note.added", "kind"),
    "unknown kind of note": payload("note.added", kind="wish"),
    "status of another kind": payload("note.added", status="worked"),
    "tags no list": payload("note.added", tags="a"),
    "tag with a space": payload("note.added", tags=["a b"]),
    "pinned a number": payload("note.added", 1, pinned=1),
    "confidence of two": payload("note.added", confidence=2),
    "scope that does not parse": payload("note.added", scope={"type": "host", "where": "status ==== 'x'"}),
    "scope without type": payload("note.added", scope={}),
    "parent that is not there": payload("note.added", 1, parent=900),
    "parent that comes later": payload("note.added", 1, parent=7),
    "parent that is an entity": payload("note.added", 2, parent=4),
    "note beneath itself": payload("note.changed", 0, set={"parent": 3}),
    "goal beneath its step": lambda lines: event(lines, "note.changed").update(
        record=2, payload={"set": {"parent": 3}}
    ),
    "about a note": payload("note.added", 2, entity=2),
    "link to nothing": payload("note.linked", dst=900),
    "link of no kind": payload("note.linked", kind="eats"),
    "status cleared": payload("note.changed", set={"status": None}),
    "key there already": payload("entity.added", 1, key="web"),
    "key of two lines": payload("entity.added", key="a\nb"),
    "attrs nested too deep": nested,
    "attrs a list": payload("entity.added", attrs=[]),
    "attr with a NUL": payload("entity.added", attrs={"a": "b\0c"}),
    "mark of no result": payload("entity.marked", marks={"tls": {"result": "maybe"}}),
    "mark without result": payload("entity.marked", marks={"tls": {}}),
    "mark of an odd name": payload("entity.marked", marks={"t ls": {"result": "pass"}}),
    "marks a list": payload("entity.marked", marks=[]),
    "checks no names": payload("checks.declared", names="tls"),
    "item of nothing": payload("item.added", note=900),
    "item number there already": payload("item.added", 1, number=1),
    "item number a text": payload("item.added", 1, number="2"),
    "summary of an entity": payload("summary.written", note=4),
    "checkpoint no text": payload("checkpoint.written", text=None),
    "project of two lines": payload("project.created", name="a\nb"),
    "another project": header("note.added", project=5),
    "of another type": header("note.added", type="entity"),
    "creation of another": header("note.added", 1, record=2),
    "change that makes a record": lambda lines: event(lines, "item.changed").update(
        record=event(lines, "item.changed")["seq"]
    ),
    "change of another type": header("item.changed", record=2),
    "undoes nothing": payload("note.changed", undoes=-1),
    "copied from nowhere": payload("note.added", copied=[1, 2]),
    "long text no hash": lambda lines: event(lines, "note.added", 1)["payload"].update(body={"$blob": 5}),
    "long text unknown": lambda lines: event(lines, "note.added", 1)["payload"].update(body={"$blob": "0" * 64}),
    "not a number": lambda lines: event(lines, "note.added")["payload"].update(confidence=float("inf")),
    "beyond 64 bits": lambda lines: event(lines, "note.added")["payload"].update(dated=2**63),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_store_can_have_written_is_refused(
    log: Path, another: Another, change: Callable[[Lines], None]
) -> None:
    """A file that is consistent and false is refused with a typed error, and nothing of it is kept."""
    bad = forged(log, log.with_name("bad.jsonl"), change)
    other = another("b")
    with pytest.raises(Corrupt, match="Line "):
        other.import_(bad)
    assert other.log.head().seq == 0
    other.notes.add("goal", "mine")
    assert other.verify(replay=True).problems == ()


def test_the_forger_makes_files_that_are_sound_but_for_the_change(log: Path, another: Another) -> None:
    """Without a change his file is accepted; so it is the change that is refused."""
    change = payload("note.added", title="Check example.org")
    other = another("b")
    other.import_(forged(log, log.with_name("changed.jsonl"), change))
    assert other.notes.get(2).title == "Check example.org"
    assert other.verify(replay=True).problems == ()


@pytest.mark.parametrize(
    "change",
    [
        header("note.added", kind="note.dreamt"),
        header("note.added", version=9),
        payload("note.added", mood="fine"),
        payload("note.changed", set={"mood": "fine"}),
    ],
)
def test_what_only_a_later_version_knows_is_left_alone(
    log: Path, another: Another, change: Callable[[Lines], None]
) -> None:
    """An unknown kind, version or field is not guessed at."""
    other = another("b")
    with pytest.raises(NewerFile):
        other.import_(forged(log, log.with_name("newer.jsonl"), change))
    assert other.log.head().seq == 0


def test_the_head_of_the_first_line_is_compared(store: Store, log: Path, another: Another) -> None:
    """A log that ends before the head it was begun with, or differs there, is refused."""
    for head in ({"seq": 4, "chain": "0" * 64}, {"seq": 900, "chain": "0" * 64}):
        lines = lines_of(log)
        lines[0]["head"] = head
        with pytest.raises(Corrupt):
            another("b").import_(write(log.with_name("head.jsonl"), lines, sealed=False))


def test_lines_without_end_and_nesting_without_end_are_refused(log: Path, another: Another) -> None:
    """Neither memory nor the stack is at the mercy of a file."""
    other = another("b")
    start = log.read_bytes().partition(b"\n")[0] + b"\n"
    endless = log.with_name("endless.jsonl")
    with endless.open("wb") as file:
        file.write(start)
        file.truncate(200 * 1024 * 1024)
    with pytest.raises(LimitExceeded, match="Line 2"):
        other.import_(endless)
    deep = log.with_name("deep.jsonl")
    deep.write_bytes(start + b'{"seq":1,"payload":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n")
    with pytest.raises(Corrupt, match=r"nested too deep|no JSON"):
        other.import_(deep)
    assert other.log.head().seq == 0


def test_a_first_line_that_says_something_else_is_refused(log: Path, another: Another) -> None:
    """Of no store, of no kind, with a head that is none."""
    other = another("b")
    for name, value in {
        "agentmem": "dump", "store": "x", "epoch": -1, "head": {"seq": 1}, "format": "1", "roots": "all",
    }.items():  # fmt: skip
        lines = lines_of(log)
        lines[0][name] = value
        with pytest.raises(AgentMemError) as caught:
            other.import_(write(log.with_name("first.jsonl"), lines, sealed=False))
        assert isinstance(caught.value, Corrupt)
    assert other.log.head().seq == 0


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
            assert sorted(map(list, found), key=repr) == sorted(expected, key=repr), table


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
