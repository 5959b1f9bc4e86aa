"""Exports as a property: whatever was written, the log comes back as it was, and a copy has the same shape."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from commands import COMMANDS, Command, attempt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, Corrupt, Store
from agentmem.log.canonical import canonical
from agentmem.transfer.jsonlines import Header, Writer
from agentmem.types import Head

KEY = bytes(range(32))
PROPERTY = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ENDINGS = st.lists(
    st.tuples(st.sampled_from(("undo", "redo", "redact", "redact_attr", "forget", "merge")), st.integers(0, 40)),
    max_size=4,
)
# Also merges that are undone, and what comes in by a copy and is taken back or brought again.
ANY_ENDINGS = st.lists(
    st.tuples(
        st.sampled_from(
            ("undo", "redo", "redact", "redact_attr", "forget", "merge", "unmerge", "copy", "uncopy", "recopy")
        ),
        st.integers(0, 40),
    ),
    max_size=6,
)
LOG_TABLES = (
    "event", "project", "note", "link", "entity", "mark", "checks", "item", "checkpoint", "summary", "copied", "blob",
    "search",
)  # fmt: skip


@contextmanager
def stores(number: int) -> Iterator[tuple[Path, list[Store]]]:
    """Empty stores in a directory of their own, each with a clock that goes on by itself."""
    with tempfile.TemporaryDirectory() as directory:
        opened = []
        try:
            for each in range(number):
                ticks = count(1_750_000_000_000_000 + each * 10**12)
                opened.append(
                    Store.open(
                        f"{directory}/{each}.db", project="acme", key=KEY, durability="normal",
                        clock=lambda ticks=ticks: next(ticks),
                    )
                )  # fmt: skip
            yield Path(directory), opened
        finally:
            for store in opened:
                store.close()


def rows(store: Store, sql: str, *values: Any) -> list[tuple[Any, ...]]:
    with store.database.read() as connection:
        return connection.execute(sql, values).fetchall()


def aside(store: Store, number: int, collisions: Any, request: str | None = None) -> None:
    """Write a little in another project, and merge that into the store's."""
    key = ("alpha", "beta")[number % 2]
    side = store.in_project("side")
    side.entities.put("host", key, attrs={"os": "side", "side": number})
    side.entities.mark("host", [key], {"tls": "error"})
    side.entities.expect("host", ["side"])
    side.notes.add("fact", "aside", about=f"host:{key}")
    store.projects.merge("side", collisions=collisions, request_id=request)


def copied_in(store: Store, directory: Path, number: int, how: str) -> None:
    """Copy the store's project into another of the store, and take that back, or that too."""
    path = directory / f"fill-{len(list(directory.iterdir()))}.jsonl"
    store.export(path, project="acme")
    done = store.in_project("elsewhere").import_(path, collisions=("merge", "keep_both")[number % 2])
    if how != "copy" and done.request is not None:
        undone = store.undo(request=done.request)
        if how == "recopy":
            store.undo(undone.events)


def fill(store: Store, commands: list[Command], endings: list[tuple[str, int]], directory: Path | None = None) -> None:
    """Write by random commands, then take back, redact and forget some of it."""
    views = [store.acting(author="ana", run="one"), store.acting(author="bob", run="two")]
    for number, command in enumerate(commands):
        attempt(views[number % 2], command, foreign=number % 7 == 6)
    for nth, (how, number) in enumerate(endings):
        last = store.log.head().seq
        if last == 0:
            return
        seq = number % last + 1
        with suppress(AgentMemError):
            match how:
                case "undo":
                    store.undo(seq)
                case "redo":
                    store.undo(store.undo(seq).events)
                case "redact":
                    store.redact(seq)
                case "redact_attr":
                    store.redact(seq, attr="port")
                case "merge":
                    aside(views[0], number, ("merge", "keep_both")[number % 2])
                case "unmerge":
                    aside(views[0], number, ("keep_both", "merge", "merge")[number % 3], f"merge-{nth}")
                    store.undo(request=f"merge-{nth}")
                case "copy" | "uncopy" | "recopy" if directory is not None:
                    copied_in(store, directory, number, how)
                case _:
                    store.forget(seq)
    for number, command in enumerate(commands[:3]):
        attempt(views[number % 2], command)


def everything(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    return {table: rows(store, f"SELECT * FROM {table} ORDER BY 1, 2") for table in LOG_TABLES}


@PROPERTY
@given(commands=COMMANDS, endings=ENDINGS)
def test_a_log_comes_back_event_for_event_and_row_for_row(
    commands: list[Command], endings: list[tuple[str, int]]
) -> None:
    """Exported and imported into an empty store, every table is the same in every column, and so is the head."""
    with stores(2) as (directory, (store, other)):
        fill(store, commands, endings)
        store.export(directory / "log.jsonl")
        done = other.import_(directory / "log.jsonl")
        if done.events:
            assert everything(other) == everything(store)
            assert other.log.head() == store.log.head() == done.head
            assert other.verify(replay=True).problems == ()
            other.export(directory / "again.jsonl")
            lines = [(directory / name).read_text("utf-8").splitlines()[1:] for name in ("log.jsonl", "again.jsonl")]
            assert lines[0] == lines[1]


@PROPERTY
@given(commands=COMMANDS, endings=ANY_ENDINGS)
def test_every_export_can_be_imported(commands: list[Command], endings: list[tuple[str, int]]) -> None:
    """Whatever was taken back, brought again, purged, merged or copied: the log, and each project as a copy."""
    with stores(2) as (directory, (store, other)):
        fill(store, commands, endings, directory)
        projects = [name for (name,) in rows(store, "SELECT name FROM project WHERE name IS NOT NULL ORDER BY id")]
        store.export(directory / "log.jsonl")
        other.import_(directory / "log.jsonl")
        assert other.log.head().seq == store.log.head().seq
        assert other.verify(replay=True).problems == ()
        for number, name in enumerate(projects):
            made = store.export(directory / f"copy-{number}.jsonl", project=name)
            with stores(1) as (_, (empty,)):
                done = empty.import_(directory / f"copy-{number}.jsonl")
                assert sum(done.created.values()) == made.records
                assert empty.verify(replay=True).problems == ()
                if done.request is not None:  # what names a request can be asked for
                    assert rows(empty, "SELECT 1 FROM event WHERE request = ?", done.request)


def normal(store: Store, ids: dict[int, int], *, original: bool) -> dict[str, list[Any]]:
    """The records named by `ids` under these numbers, without what only the log of a store decides."""
    found: dict[str, list[Any]] = {}
    at = "coalesce(dated, created_at)" if original else "dated"
    sql = (
        "SELECT id, kind, title, coalesce(body, ''), status, tags, parent, pinned, confidence, basis, entity, why, scope,"
        f" source, origin, confirmed_at, confirmed_by, author, run, shut, open_items, {at} FROM note"
    )
    found["note"] = sorted(
        (ids[row[0]], *row[1:6], ids.get(row[6]), *row[7:10], ids.get(row[10]), *row[11:])
        for row in rows(store, sql)
        if row[0] in ids
    )  # fmt: skip
    order: dict[int | None, list[int]] = {}
    for record, parent in rows(store, "SELECT id, parent FROM note ORDER BY position, id"):
        if record in ids:
            order.setdefault(ids.get(parent), []).append(ids[record])
    found["order"] = sorted(order.items(), key=repr)
    sql = "SELECT src, dst, kind, author, run, origin FROM link"
    found["link"] = sorted(
        (ids[row[0]], ids[row[1]], *row[2:]) for row in rows(store, sql) if row[0] in ids and row[1] in ids
    )
    sql = "SELECT id, type, key, status, attrs, parent, confidence, origin, author, run FROM entity"
    found["entity"] = sorted(
        (ids[row[0]], *row[1:5], ids.get(row[5]), *row[6:]) for row in rows(store, sql) if row[0] in ids
    )
    sql = "SELECT entity, name, result, value, detail, at, author, run, origin FROM mark"
    found["mark"] = sorted((ids[row[0]], *row[1:]) for row in rows(store, sql) if row[0] in ids)
    sql = "SELECT id, note, number, text, done, done_by, origin, removed FROM item ORDER BY position, id"
    found["item"] = [(ids[row[0]], ids[row[1]], *row[2:]) for row in rows(store, sql) if row[0] in ids]
    found["item"].sort(key=lambda row: row[1])
    at = "coalesce(dated, at)" if original else "dated"
    sql = f"SELECT id, task, text, author, run, origin, {at} FROM checkpoint"
    found["checkpoint"] = sorted((ids[row[0]], ids.get(row[1]), *row[2:]) for row in rows(store, sql) if row[0] in ids)
    sql = "SELECT id, note, work, result, confidence, basis, origin FROM summary"
    found["summary"] = sorted((ids[row[0]], ids[row[1]], *row[2:]) for row in rows(store, sql) if row[0] in ids)
    sql = "SELECT id, type, filter, names, origin FROM checks"
    found["checks"] = sorted((ids[row[0]], *row[1:]) for row in rows(store, sql) if row[0] in ids)
    return found


def living(store: Store) -> dict[int, int]:
    """Every record that is there; of a purged item only the number is."""
    items = "item WHERE text IS NOT NULL AND note IN (SELECT id FROM note)"
    tables = ("note", "entity", items, "checkpoint", "summary", "checks")
    return {record: record for table in tables for (record,) in rows(store, f"SELECT id FROM {table}")}


@PROPERTY
@given(commands=COMMANDS, endings=ENDINGS, before=st.lists(st.integers(0, 3), max_size=3))
def test_a_copied_project_has_the_same_shape(
    commands: list[Command], endings: list[tuple[str, int]], before: list[int]
) -> None:
    """Texts, tree, order, links, marks, checklists, labels and origins are those of the original; only ids differ."""
    with stores(2) as (directory, (store, other)):
        fill(store, commands, endings)
        if not rows(store, "SELECT 1 FROM project WHERE name = 'acme'"):
            return
        for number in before:
            other.notes.add("goal", f"mine {number}")
        store.export(directory / "copy.jsonl", project="acme")
        done = other.import_(directory / "copy.jsonl")
        ids = living(store)
        copied = {record: seq for seq, record in rows(other, "SELECT seq, record FROM copied")}
        assert sorted(copied.values()) == sorted(ids)
        assert normal(other, copied, original=False) == normal(store, ids, original=True)
        assert sum(done.created.values()) == len(ids)
        assert other.verify(replay=True).problems == ()
        head = other.log.head()
        again = other.import_(directory / "copy.jsonl")
        assert (other.log.head(), again.events, again.unchanged) == (head, 0, len(ids))
        taken_back = rows(other, """SELECT 1 FROM event WHERE payload LIKE '%"undoes"%'""")
        if done.request is not None and not taken_back:
            other.undo(request=done.request)
            assert rows(other, "SELECT count(*) FROM note") == [(len(before),)]
            assert rows(other, "SELECT count(*) FROM entity") == [(0,)]
            assert sum(other.import_(directory / "copy.jsonl").created.values()) == len(ids)


@PROPERTY
@given(commands=COMMANDS, endings=ENDINGS, which=st.integers(0, 40))
def test_a_copied_subtree_has_the_same_shape(
    commands: list[Command], endings: list[tuple[str, int]], which: int
) -> None:
    """What lies beneath a note comes with all that hangs on it, also into the very store it came from."""
    with stores(1) as (directory, (store,)):
        fill(store, commands, endings)
        notes = rows(store, "SELECT id FROM note")
        if not notes:
            return
        (root,) = notes[which % len(notes)]
        made = store.export(directory / "copy.jsonl", under=root)
        before = living(store)
        other = store.in_project("other")
        done = other.import_(directory / "copy.jsonl")
        copied = {record: seq for seq, record in rows(other, "SELECT seq, record FROM copied")}
        assert len(copied) == made.records
        kept = {record: record for record in before if record in copied.values()}
        beneath = "WITH RECURSIVE b (id) AS (VALUES (?) UNION SELECT note.id FROM b JOIN note ON note.parent = b.id) "
        assert {each for (each,) in rows(store, beneath + "SELECT id FROM b", root)} <= kept.keys()
        mine, theirs = normal(other, copied, original=False), normal(store, kept, original=True)
        # Whether a closed task stands above it is not of the subtree.
        shut = {row[0]: row[-3] for row in mine["note"]}
        theirs["note"] = [(*row[:-3], shut[row[0]], *row[-2:]) for row in theirs["note"]]
        assert mine == theirs
        assert copied[done.roots[0]] == root
        assert store.verify(replay=True).problems == ()


@PROPERTY
@given(
    commands=COMMANDS, endings=ENDINGS, mine=COMMANDS, collisions=st.sampled_from(("keep_both", "merge")),
    origin=st.sampled_from(("agent", "import")),
)  # fmt: skip
def test_a_copy_into_a_store_with_records_of_its_own_is_sound(
    commands: list[Command], endings: list[tuple[str, int]], mine: list[Command], collisions: Any, origin: Any
) -> None:
    """Whatever is there already: the tables are those of the log, what was there keeps its text, twice adds nothing."""
    with stores(2) as (directory, (store, other)):
        fill(store, commands, endings)
        fill(other, mine, [])
        if not rows(store, "SELECT 1 FROM project WHERE name = 'acme'"):
            return
        texts = ("SELECT id, title, body, status FROM note", "SELECT id, type, key, status FROM entity")
        before = [rows(other, sql) for sql in texts]
        store.export(directory / "copy.jsonl", project="acme")
        done = other.import_(directory / "copy.jsonl", collisions=collisions, origin=origin)
        assert [set(was) - set(rows(other, sql)) for was, sql in zip(before, texts, strict=True)] == [set(), set()]
        assert other.verify(replay=True).problems == ()
        head = other.log.head()
        assert other.import_(directory / "copy.jsonl", collisions=collisions, origin=origin).events == 0
        assert other.log.head() == head
        if origin == "import":
            copied = "SELECT DISTINCT origin FROM note WHERE id IN (SELECT record FROM copied)"
            assert {origin for (origin,) in rows(other, copied)} <= {"import", "web"}
        assert done.created.get("note", 0) == len(rows(store, "SELECT id FROM note"))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")) | st.sampled_from(("\u2028", "\x7f\x9b", "\u202e", "\ufeff", "$blob", "\ud7ff")),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(payload=st.dictionaries(st.text(st.characters(codec="utf-8")), JSON, max_size=6))
def test_a_payload_comes_back_byte_for_byte(payload: dict[str, Any]) -> None:
    """The canonical bytes of a payload are the same after its way through a file, and no odd character stands in that."""
    stored = canonical(payload)
    file = io.BytesIO()
    writer = Writer(file.write)
    writer.header(Header("log", "0" * 32, Head("0" * 32, 1, "0" * 64), 0))
    head = (1, 5, 1, "note.added", 1, "note", 1, None, "ana", None, None, "agent", None)
    writer.event(head, stored, b"s" * 16, b"")
    lines = file.getvalue().decode().splitlines()
    assert len(lines) == 2
    assert canonical(json.loads(lines[1])["payload"]) == stored
    assert not set(lines[1]) & set("\x7f\x9b\u2028\u202e\ufeff")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """A log and a copy, with a long text, an erased event and a redacted one."""
    directory = tmp_path_factory.mktemp("sample")
    with Store.open(directory / "s.db", project="acme", key=KEY, durability="normal", author="ana") as store:
        goal = store.notes.add("goal", "Check example.com", body="long " * 2000)
        store.notes.add("fact", "Port 443 is open", parent=goal, body="long " * 2000)
        store.entities.put("host", "web", attrs={"os": "linux"})
        store.entities.mark("host", ["web"], {"tls": "pass"})
        store.checklists.add(goal, "one", "two")
        secret = store.notes.add("fact", "secret", parent=goal)
        store.notes.update(goal, title="Check example.org")
        store.forget(secret)
        store.redact(goal)
        store.export(directory / "log.jsonl")
        store.export(directory / "copy.jsonl", project="acme")
    return {name: (directory / f"{name}.jsonl").read_bytes() for name in ("log", "copy")}


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), what=st.sampled_from(("log", "copy")))
def test_any_changed_bit_is_found(sample: dict[str, bytes], place: float, bit: int, what: str) -> None:
    """A file of which one bit is another is refused with a typed error, and nothing of it is kept."""
    whole = bytearray(sample[what])
    whole[int(place * len(whole))] ^= 1 << bit
    with stores(1) as (directory, (store,)):
        store.notes.add("goal", "mine") if what == "copy" else None
        head = store.log.head()
        (directory / "bad.jsonl").write_bytes(whole)
        try:
            store.import_(directory / "bad.jsonl")
        except AgentMemError:
            assert store.log.head() == head
        else:
            # The version of the writer, how many purges there were: what is said of a log's first line for people only.
            assert what == "log"
            assert whole[:200].partition(b"\n")[0] != sample[what][:200].partition(b"\n")[0]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), what=st.sampled_from(("log", "copy")))
def test_any_cut_is_found(sample: dict[str, bytes], place: float, what: str) -> None:
    """A file that ends early is refused wherever it ends, and nothing of it is kept."""
    with stores(1) as (directory, (store,)):
        start = sample[what].index(b"\n")
        cut = start + int(place * (len(sample[what]) - start))
        (directory / "cut.jsonl").write_bytes(sample[what][:cut])
        with pytest.raises(Corrupt, match=r"ends|no last line"):
            store.import_(directory / "cut.jsonl")
        assert store.log.head().seq == 0


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1, exclude_max=True), junk=st.binary(max_size=30))
def test_an_export_goes_on_from_any_beginning(sample: dict[str, bytes], place: float, junk: bytes) -> None:
    """Whatever an interrupted export left behind, the next one is whole and the same."""
    with stores(1) as (directory, (store,)):
        (directory / "first.jsonl").write_bytes(sample["log"])
        store.import_(directory / "first.jsonl")
        store.export(directory / "whole.jsonl")
        whole = (directory / "whole.jsonl").read_bytes()
        partial = directory / ".out.jsonl.partial"
        partial.write_bytes(whole[: int(place * len(whole))] + junk)
        partial.chmod(0o600)
        made = store.export(directory / "out.jsonl")
        assert (directory / "out.jsonl").read_bytes() == whole
        assert not partial.exists()
        assert 0 <= made.resumed <= made.events
