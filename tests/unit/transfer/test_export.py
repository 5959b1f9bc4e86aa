"""What an export of the log is, and what becomes of one that is interrupted, meets a purge or finds its place taken."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forging import lines_of, tables

from agentmem import (
    Conflict,
    Corrupt,
    InvalidInput,
    IoFailed,
    LimitExceeded,
    NotFound,
    Store,
    StoreExists,
    StoreMissing,
    limits,
)
from agentmem.transfer.jsonlines import Writer

Another = Callable[..., Store]


class StopError(Exception):
    """Raised from the callback of progress, to interrupt an export between two pages."""


def filled(store: Store, notes: int = 3) -> int:
    """A goal with some facts beneath it; gives its id."""
    goal = store.notes.add("goal", "Check example.com")
    for number in range(notes):
        store.notes.add("fact", f"Fact {number}", parent=goal)
    return goal.id


def many(store: Store, events: int) -> None:
    """At least so many events, quickly."""
    with store.transaction():
        store.entities.put_many("host", keys=[f"h{number}" for number in range(events)])


def stop_after(events: int) -> Callable[[int, int], None]:
    def progress(done: int, total: int) -> None:
        if done >= events:
            raise StopError

    return progress


# The file


def test_the_file_is_one_object_a_line_between_a_first_and_a_last(store: Store, tmp_path: Path) -> None:
    """Every event is a line with all fields of its header and the payload as an object, in the order of the log."""
    filled(store)
    done = store.export(tmp_path / "log.jsonl")
    first, *events, last = lines_of(tmp_path / "log.jsonl")
    log = store.log.read(project="*")
    assert (first["agentmem"], first["format"], first["store"]) == ("log", 1, store.log.head().store)
    assert first["head"] == {"seq": store.log.head().seq, "chain": store.log.head().chain}
    assert [line["seq"] for line in events] == [event.seq for event in log]
    names = (
        "at", "project", "kind", "version", "type", "record", "session", "author", "run", "task", "origin", "request",
    )  # fmt: skip
    for line, event in zip(events, log, strict=True):
        assert [line[name] for name in names] == [getattr(event, name) for name in names]
        assert line["payload"] == event.payload
        assert line["chain"] == event.chain.hex()
    assert last["end"]["events"] == len(log) == done.events
    assert last["chain"] == store.log.head().chain == done.head.chain


def test_mem0_4460_supermemory_1036_everything_can_be_taken_out(store: Store, tmp_path: Path) -> None:
    """Users ask for export: every text ever written, current or not, is in the file in readable form."""
    goal = filled(store)
    store.notes.update(goal, title="Check example.org", body="第二版")
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.entities.mark("host", ["web"], {"tls": "pass"}, detail="TLS 1.3 only")
    store.checklists.add(goal, "Look at port 8443")
    store.checkpoint("halfway", task=goal)
    store.summarize(goal, work="ports", result="one is open")
    store.export(tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text("utf-8")
    for part in ("example.com", "example.org", "第二版", "linux", "TLS 1.3 only", "8443", "halfway", "one is open"):
        assert part in text


def test_the_file_is_for_its_owner_alone_and_says_that_it_is_plain(store: Store, tmp_path: Path) -> None:
    """The mode is 0600 from the beginning, nothing else is left, and the answer says that it is not encrypted."""
    filled(store)
    seen: list[int] = []

    def look(done: int, total: int) -> None:
        seen.append(stat.S_IMODE((tmp_path / "out" / ".log.jsonl.partial").stat().st_mode))

    (tmp_path / "out").mkdir()
    done = store.export(tmp_path / "out" / "log.jsonl", progress=look)
    assert seen
    assert {*seen, stat.S_IMODE(done.path.stat().st_mode)} == {0o600}
    assert os.listdir(tmp_path / "out") == ["log.jsonl"]
    assert "not encrypted" in done.notices[0]
    assert done.notices[0] in done.text
    assert json.loads(json.dumps(done.to_dict()))["bytes"] == done.path.stat().st_size


def test_a_long_text_stands_once(store: Store, tmp_path: Path) -> None:
    """However many events have it, right before the first of them."""
    for _ in range(3):
        store.notes.add("fact", "long", body="all of it " * 1000)
    store.export(tmp_path / "log.jsonl")
    lines = lines_of(tmp_path / "log.jsonl")
    (place,) = [number for number, line in enumerate(lines) if "is" in line]
    assert lines[place]["is"] == "all of it " * 1000
    assert lines[place + 1]["payload"]["body"] == {"$blob": lines[place]["text"]}
    assert lines[place + 1]["texts"] is True


def test_what_was_purged_has_its_digest_and_no_text(store: Store, tmp_path: Path) -> None:
    """Of an erased event the header and the digest are there, and nothing that tells its text."""
    goal = filled(store)
    secret = store.notes.add("fact", "xyzzy-secret", parent=goal)
    (event,) = store.log.read(record=secret)
    store.forget(secret)
    done = store.export(tmp_path / "log.jsonl")
    (line,) = [line for line in lines_of(tmp_path / "log.jsonl") if line.get("seq") == event.seq]
    assert (line["erased"], line["digest"]) == (True, event.digest.hex())
    assert "payload" not in line
    assert "salt" not in line
    assert "xyzzy" not in (tmp_path / "log.jsonl").read_text("utf-8")
    assert done.erased == 1


def test_no_character_of_the_file_is_obeyed_by_a_terminal(store: Store, tmp_path: Path) -> None:
    """Control and bidirectional characters of a body are spelled as escapes, and mean the same."""
    body = "\x1b]0;x\x07 \x9b31m \u202e \u2028 \u200b 数据 é"
    store.notes.add("fact", "odd", body=body)
    store.export(tmp_path / "log.jsonl")
    text = (tmp_path / "log.jsonl").read_text("utf-8")
    assert not set(text) & set("\x1b\x07\x9b\u202e\u2028\u200b")
    assert "数据 é" in text
    (line,) = [line for line in lines_of(tmp_path / "log.jsonl") if line.get("kind") == "note.added"]
    assert line["payload"]["body"] == body


def test_an_empty_store_can_be_exported(store: Store, tmp_path: Path, another: Another) -> None:
    """The file says that there is nothing, and an import of it changes nothing."""
    done = store.export(tmp_path / "log.jsonl")
    other = another("b")
    before = other.log.head()
    found = other.import_(tmp_path / "log.jsonl")
    assert (done.events, found.events, other.log.head()) == (0, 0, before)


def test_a_reader_and_a_view_of_the_past_can_export(
    store: Store, opened: Callable[..., Store], tmp_path: Path, another: Another
) -> None:
    """A store opened for reading exports all; a view of the past what there was then."""
    goal = filled(store)
    then = store.log.head()
    store.notes.update(goal, title="Later")
    assert opened(read_only=True).export(tmp_path / "all.jsonl").head == store.log.head()
    assert store.at(then.seq).export(tmp_path / "past.jsonl").head == then
    other = another("b")
    other.import_(tmp_path / "past.jsonl")
    assert other.notes.get(goal).title == "Check example.com"
    assert other.import_(tmp_path / "all.jsonl").added == 1
    assert other.notes.get(goal).title == "Later"


# Where it cannot be made


def test_an_existing_target_is_refused(store: Store, tmp_path: Path) -> None:
    """A file, a folder or a dangling link at the name is left as it is."""
    filled(store)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "folder", "link"):
        with pytest.raises(StoreExists):
            store.export(tmp_path / name)
    assert (tmp_path / "file").read_text() == "mine"
    assert not (tmp_path / "nowhere").exists()
    with pytest.raises(StoreMissing):
        store.export(tmp_path / "no" / "such" / "folder.jsonl")


def test_inside_a_transaction_it_is_refused(store: Store, tmp_path: Path) -> None:
    """An export holds what is committed."""
    filled(store)
    with store.transaction(), pytest.raises(Conflict, match="inside a transaction"):
        store.export(tmp_path / "log.jsonl")
    assert not (tmp_path / "log.jsonl").exists()


def test_what_to_export_is_named_in_one_way_and_is_there(store: Store, tmp_path: Path) -> None:
    """`under=` and `project=` exclude each other; a record or project that is not there is no empty file."""
    goal = filled(store)
    store.checklists.add(goal, "one")
    with pytest.raises(InvalidInput, match="exclude"):
        store.export(tmp_path / "a", under=goal, project="acme")
    with pytest.raises(NotFound, match="no project"):
        store.export(tmp_path / "a", project="nobody")
    with pytest.raises(NotFound):
        store.export(tmp_path / "a", under=999)
    with pytest.raises(InvalidInput, match="is of type item"):
        store.export(tmp_path / "a", under=f"{goal}.1")
    assert not (tmp_path / "a").exists()


def test_a_damaged_log_is_not_exported(store: Store, tmp_path: Path) -> None:
    """A payload, a header or a link of the chain that was changed in the file is found, and named, instead of exported."""
    goal = filled(store)
    changes = {
        f"UPDATE event SET payload = replace(payload, 'example', 'exemple') WHERE seq = {goal}": f"event {goal} does not",
        f"UPDATE event SET author = 'eve' WHERE seq = {goal}": f"broken at event {goal}",
        f"DELETE FROM event WHERE seq = {goal + 1}": f"Event {goal + 1} is missing",
    }
    for number, (change, message) in enumerate(changes.items()):
        kept = tables(store)["event"]
        with store.database.write() as connection:
            connection.execute(change)
        with pytest.raises(Corrupt, match=message):
            store.export(tmp_path / f"{number}.jsonl")
        assert not (tmp_path / f"{number}.jsonl").exists()
        with store.database.write() as connection:
            connection.execute("DELETE FROM event")
            connection.executemany(f"INSERT INTO event VALUES ({', '.join('?' * len(kept[0]))})", kept)
    store.export(tmp_path / "sound.jsonl")


def test_a_line_that_an_import_would_refuse_is_not_written() -> None:
    """A text longer than a line may be makes the export fail, and names the way that has no such limit."""
    written: list[bytes] = []
    with pytest.raises(LimitExceeded, match="longer than a line") as caught:
        Writer(written.append).text(b"h" * 32, "x" * limits.EXPORT_LINE_BYTES)
    assert "backup" in caught.value.next
    assert written == []


# Going on


def test_an_interrupted_export_goes_on_where_it_stopped(store: Store, tmp_path: Path) -> None:
    """The second call keeps what the first wrote, and the file is the one that an undisturbed export makes."""
    many(store, 2500)
    store.export(tmp_path / "whole.jsonl")
    with pytest.raises(StopError):
        store.export(tmp_path / "log.jsonl", progress=stop_after(1000))
    assert not (tmp_path / "log.jsonl").exists()
    partial = tmp_path / ".log.jsonl.partial"
    assert stat.S_IMODE(partial.stat().st_mode) == 0o600
    done = store.export(tmp_path / "log.jsonl")
    assert done.resumed == 1000
    assert (tmp_path / "log.jsonl").read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert not partial.exists()


def test_an_export_that_goes_on_has_what_was_written_meanwhile(store: Store, tmp_path: Path, another: Another) -> None:
    """It ends at the end of the log as it is now."""
    many(store, 1500)
    with pytest.raises(StopError):
        store.export(tmp_path / "log.jsonl", progress=stop_after(1000))
    goal = filled(store)
    done = store.export(tmp_path / "log.jsonl")
    assert (done.resumed, done.head) == (1000, store.log.head())
    other = another("b")
    other.import_(tmp_path / "log.jsonl")
    assert tables(other) == tables(store)
    assert other.notes.get(goal).title == "Check example.com"


def test_what_was_purged_since_an_interruption_is_in_no_finished_export(store: Store, tmp_path: Path) -> None:
    """The beginning that still has the text is not gone on with."""
    secret = store.notes.add("fact", "xyzzy-secret")
    many(store, 1500)
    with pytest.raises(StopError):
        store.export(tmp_path / "log.jsonl", progress=stop_after(1000))
    assert b"xyzzy" in (tmp_path / ".log.jsonl.partial").read_bytes()
    store.forget(secret)
    done = store.export(tmp_path / "log.jsonl")
    assert done.resumed == 0
    assert b"xyzzy" not in (tmp_path / "log.jsonl").read_bytes()


def test_a_purge_meanwhile_makes_it_begin_anew(store: Store, tmp_path: Path) -> None:
    """A text that was written into the file before its purge is not in it when it is finished."""
    secret = store.notes.add("fact", "xyzzy-secret")
    many(store, 2500)
    calls: list[int] = []

    def purge(done: int, total: int) -> None:
        calls.append(done)
        if len(calls) == 2:
            assert b"xyzzy" in (tmp_path / ".log.jsonl.partial").read_bytes()
            store.forget(secret)

    done = store.export(tmp_path / "log.jsonl", progress=purge)
    assert calls[:3] == [1000, 2000, 1000]
    assert b"xyzzy" not in (tmp_path / "log.jsonl").read_bytes()
    assert done.head == store.log.head()


def test_purges_without_end_make_it_fail(store: Store, tmp_path: Path) -> None:
    """Never a file with purged text that says it is complete: it fails, and says why."""
    notes = [store.notes.add("fact", f"xyzzy-{number}") for number in range(10)]
    many(store, 1500)
    with pytest.raises(Conflict, match="purged again and again"):
        store.export(tmp_path / "log.jsonl", progress=lambda done, total: store.forget(notes.pop()) and None)
    assert not (tmp_path / "log.jsonl").exists()


def test_it_holds_no_reading_between_its_pages(store: Store, tmp_path: Path) -> None:
    """The write-ahead log can be emptied while a long export goes on."""
    many(store, 2500)
    emptied: list[bool] = []

    def look(done: int, total: int) -> None:
        filled(store)
        emptied.append(store.database.checkpoint())

    store.export(tmp_path / "log.jsonl", progress=look)
    assert len(emptied) >= 3
    assert all(emptied)


def test_the_beginning_of_another_export_is_not_gone_on_with(store: Store, tmp_path: Path, another: Another) -> None:
    """What lies under the hidden name must be of this very log."""
    many(store, 1500)
    other = another("b")
    many(other, 1500)
    with pytest.raises(StopError):
        other.export(tmp_path / "log.jsonl", progress=stop_after(1000))
    done = store.export(tmp_path / "log.jsonl")
    assert done.resumed == 0
    assert lines_of(tmp_path / "log.jsonl")[0]["store"] == store.log.head().store


def test_a_finished_export_under_its_second_name_is_left_alone(store: Store, tmp_path: Path) -> None:
    """One whose maker was killed before the hidden name was gone: moved away, it is not written to by the next."""
    filled(store)
    store.export(tmp_path / "log.jsonl")
    os.link(tmp_path / "log.jsonl", tmp_path / ".log.jsonl.partial")
    shutil.move(tmp_path / "log.jsonl", tmp_path / "kept.jsonl")
    kept = (tmp_path / "kept.jsonl").read_bytes()
    filled(store)
    store.export(tmp_path / "log.jsonl")
    assert (tmp_path / "kept.jsonl").read_bytes() == kept
    assert (tmp_path / "log.jsonl").stat().st_ino != (tmp_path / "kept.jsonl").stat().st_ino


def test_somebody_elses_file_under_the_hidden_name_is_not_written_to(store: Store, tmp_path: Path) -> None:
    """Neither through a link nor where others could read what is written."""
    filled(store)
    victim = tmp_path / "victim"
    victim.write_text("mine")
    partial = tmp_path / ".log.jsonl.partial"
    partial.symlink_to(victim)
    with pytest.raises(IoFailed):
        store.export(tmp_path / "log.jsonl")
    partial.unlink()
    partial.write_text("{}")
    partial.chmod(0o644)
    with pytest.raises(IoFailed, match="this user alone"):
        store.export(tmp_path / "log.jsonl")
    assert victim.read_text() == "mine"


def test_who_takes_the_name_meanwhile_keeps_it(store: Store, tmp_path: Path) -> None:
    """A file that appears under the name while the export is made is not replaced."""
    filled(store)

    def take(done: int, total: int) -> None:
        (tmp_path / "log.jsonl").write_text("mine")

    with pytest.raises(StoreExists):
        store.export(tmp_path / "log.jsonl", progress=take)
    assert (tmp_path / "log.jsonl").read_text() == "mine"


@pytest.mark.parametrize("bad", [{"under": object()}, {"project": 5}, {"project": ""}, {"progress": 5}])
def test_arguments_are_checked(store: Store, tmp_path: Path, bad: dict[str, Any]) -> None:
    """What is no record, project or function is refused, and no file is made."""
    filled(store)
    with pytest.raises(InvalidInput):
        store.export(tmp_path / "log.jsonl", **bad)
    assert not (tmp_path / "log.jsonl").exists()


@pytest.mark.parametrize("scope", [{"project": "nowhere"}, {"under": 999}, {"under": "host:none"}])
def test_an_export_that_is_refused_leaves_no_file(store: Store, tmp_path: Path, scope: dict[str, Any]) -> None:
    """Neither under its name nor under that of a beginning."""
    target = tmp_path / "made" / "x.jsonl"
    target.parent.mkdir()
    with pytest.raises(NotFound):
        store.export(target, **scope)
    assert list(target.parent.iterdir()) == []


def test_a_path_that_names_no_file_is_refused(store: Store) -> None:
    """The root of the file system is a place, not a name."""
    with pytest.raises(InvalidInput):
        store.export("/")
