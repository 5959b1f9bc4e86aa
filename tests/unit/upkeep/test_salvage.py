"""Salvage: the log of a damaged file, as far as its chain holds, becomes a new store."""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
from damage import KEY, LONG, behind, blank, contents, cut, filled, flip, names, trees

from agentmem import (
    Corrupt,
    Head,
    InvalidInput,
    KeyMissing,
    NotAStore,
    Store,
    StoreExists,
    StoreMissing,
    WrongKey,
)
from agentmem.engine.pages import PAGE_BYTES
from agentmem.log import chain
from agentmem.upkeep.salvage import Salvaged


@pytest.fixture
def target(path: Path) -> Path:
    """Where the new store goes."""
    return path.with_name("salvaged.db")


def salvaged(path: Path, target: Path, **options: Any) -> Salvaged:
    return Store.salvage(path, target, **({"key": KEY} | options))


def kept(path: Path) -> tuple[dict[str, Any], Head]:
    with Store.open(path, project="acme", key=KEY) as store:
        return contents(store), store.log.head()


def is_whole(target: Path, made: Salvaged, key: bytes | str = KEY) -> None:
    """The new store is sound by itself and in every view of it."""
    with Store.open(target, project="acme", key=key, create=False) as store:
        assert store.verify(replay=True, independent=True, head=made.head).problems == ()
        assert store.log.head() == made.head


# Damage that loses nothing


def first_page(path: Path) -> None:
    flip(path, 1)


def blank_first_page_but_for_the_salt(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(16)
        file.write(bytes(PAGE_BYTES - 16))


def all_inner_pages(path: Path) -> None:
    """Of the table of events, and the whole schema."""
    found = trees(path)
    flip(path, found["event"][0], *found["sqlite_schema"][1:])


def all_that_is_derived(path: Path) -> None:
    found = trees(path)
    kept = {"event", "blob", "meta", "request", "sqlite_schema"}
    blank(path, *(page for name, pages in found.items() if name not in kept for page in pages))


def only_the_log_is_left(path: Path) -> None:
    found = trees(path)
    kept = {"event", "blob", "meta", "request"}
    flip(path, *(page for name, pages in found.items() if name not in kept for page in pages))


def nothing(path: Path) -> None:
    assert path.exists()


@pytest.mark.parametrize(
    "damage",
    [
        nothing,
        first_page,
        blank_first_page_but_for_the_salt,
        all_inner_pages,
        all_that_is_derived,
        only_the_log_is_left,
    ],
)
def test_what_is_not_the_log_loses_nothing(path: Path, target: Path, damage: Callable[[Path], None]) -> None:
    """Events are read page by page: neither the first page nor any tree above them is needed."""
    head = filled(path)
    whole, _ = kept(path)
    damage(path)
    before = path.read_bytes()
    made = salvaged(path, target)
    assert (made.path, made.events, made.head, made.first_lost, made.later) == (target, head.seq, head, None, 0)
    is_whole(target, made)
    assert kept(target)[0] == whole
    assert path.read_bytes() == before
    assert names(path.parent) == {path.name, target.name}


def test_it_goes_on_where_the_damaged_one_ended(path: Path, target: Path) -> None:
    """The same store: its id, the next number, its remembered requests, its index; claims are void."""
    head = filled(path)
    first_page(path)
    salvaged(path, target)
    with Store.open(target, project="acme", key=KEY) as store:
        assert store.notes.add("goal", "Move to the queue", request_id="first").repeated
        assert store.claims() == ()
        assert len(store.find("fact", limit=5)) == 5
        assert store.notes.add("fact", "Later").id == head.seq + 1


# Damage to the log


def leaf(path: Path, part: float) -> int:
    """A page of events somewhere in the order of the log."""
    pages = trees(path)["event"][1:]
    return pages[int(len(pages) * part)]


@pytest.mark.parametrize("how", [flip, blank])
@pytest.mark.parametrize("part", [0.3, 0.6, 0.9])
def test_the_log_is_taken_up_to_the_first_gap(
    path: Path, target: Path, how: Callable[[Path, int], None], part: float
) -> None:
    """A changed or blank page of events: the new store ends before it, and is told what is missing and what there is."""
    head = filled(path)
    rows = kept(path)[0]["event"]
    how(path, leaf(path, part))
    made = salvaged(path, target, remainder=path.with_name("rest.jsonl"))
    assert 0 < made.events < head.seq
    assert made.first_lost == made.events + 1
    assert f"Event {made.first_lost} is missing" in made.why
    assert made.last_known == head.seq
    assert made.pages_damaged == 1
    assert made.later > 0
    is_whole(target, made)
    assert sorted(kept(target)[0]["event"]) == sorted(row for row in rows if row[0] <= made.events)
    lost = head.seq - made.events - made.later
    assert 0 < lost < 60  # what one page holds


def test_what_is_behind_the_gap_is_written_down(path: Path, target: Path) -> None:
    """Each event that can be read, as it was stored: it can be proven by digest and chain, and holds its long texts."""
    filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        there = {event.seq: event for event in store.log.read(limit=1000)}
    flip(path, leaf(path, 0.2))
    rest = path.with_name("rest.jsonl")
    made = salvaged(path, target, remainder=rest)
    assert made.remainder == rest
    lines = [json.loads(line) for line in rest.read_text("utf-8").splitlines()]
    assert len(lines) == made.later
    seqs = [line["seq"] for line in lines]
    assert seqs == sorted(seqs)
    assert seqs[0] > made.events + 1
    long = 0
    for line in lines:
        event = there[line["seq"]]
        assert (line["kind"], line["record"], line["at"]) == (event.kind, event.record, event.at)
        assert chain.digest(bytes.fromhex(line["salt"]), line["payload"]).hex() == line["digest"]
        assert line["chain"] == event.chain.hex()
        long += LONG in line["texts"].values()
    assert long > 0
    if os.name == "posix":
        assert stat.S_IMODE(rest.stat().st_mode) == 0o600


def test_without_its_first_event_there_is_no_log(path: Path, target: Path) -> None:
    """Nothing is made of it; what can be read is written down."""
    head = filled(path)
    flip(path, trees(path)["event"][1])
    rest = path.with_name("rest.jsonl")
    with pytest.raises(Corrupt, match=r"No log begins.* (\d+) later events"):
        salvaged(path, target, remainder=rest)
    assert 0 < len(rest.read_text("utf-8").splitlines()) < head.seq
    assert names(path.parent) == {path.name, rest.name}


def test_a_damaged_long_text_ends_the_log_there(path: Path, target: Path) -> None:
    """An event without its text is no event: the log ends before the first that has it."""
    head = filled(path)
    blank(path, *trees(path)["blob"])
    made = salvaged(path, target)
    assert made.first_lost is not None
    assert made.events < head.seq
    assert "long text" in made.why
    is_whole(target, made)


def test_requests_behind_the_gap_are_forgotten(path: Path, target: Path) -> None:
    """A retry of what was lost is done again; one of what is there is answered by what it did."""
    filled(path)
    flip(path, leaf(path, 0.5))
    made = salvaged(path, target)
    with Store.open(target, project="acme", key=KEY) as store:
        goal = store.notes.list(kind="goal")[0]
        last = store.log.get(made.events)
        assert last is not None
        assert last.request is not None
        number = int(last.request.removeprefix("fact-"))

        def again(number: int) -> bool:
            body = LONG if number % 100 == 7 else f"what was seen at the {number}th look " * (number % 30)
            return store.notes.add(
                "fact", f"Fact {number}", body=body, parent=goal, similar=False, request_id=f"fact-{number}"
            ).repeated

        assert again(number - 1)
        assert again(number)
        assert not again(number + 1)
        assert not again(399)
        assert store.verify(replay=True).problems == ()


@pytest.mark.parametrize("part", [0.3, 0.7])
@pytest.mark.parametrize("rest", [0, 1234])
def test_a_cut_file_gives_what_is_left_of_it(path: Path, target: Path, part: float, rest: int) -> None:
    """SQLite does not open it at all; the pages that are there are read."""
    head = filled(path)
    cut(path, int(path.stat().st_size * part) // PAGE_BYTES * PAGE_BYTES + rest)
    made = salvaged(path, target)
    assert 0 < made.events < head.seq
    assert made.last_known > made.events
    assert made.first_lost == made.events + 1
    assert sum("it was cut" in notice for notice in made.notices) == 1
    is_whole(target, made)


def test_a_changed_event_ends_the_log(path: Path, target: Path) -> None:
    """Pages that are authentic are not enough: the chain decides, and says where."""
    head = filled(path)
    behind(path, "UPDATE event SET author = 'eve' WHERE seq = 50")
    made = salvaged(path, target)
    assert made.events == 49
    assert "event 50" in made.why
    assert made.later == head.seq - 49
    is_whole(target, made)


def test_a_log_whose_end_is_lost_says_so(path: Path, target: Path) -> None:
    """What tables and indexes tell of later events is told, also where nothing of them can be read."""
    head = filled(path)
    behind(path, f"DELETE FROM event WHERE seq > {head.seq - 30}")
    made = salvaged(path, target)
    assert (made.events, made.first_lost, made.later) == (head.seq - 30, head.seq - 29, 0)
    assert made.last_known > made.events


def test_erased_events_are_kept_as_they_are(path: Path, target: Path) -> None:
    """What was purged stays purged, and the chain over it holds."""
    filled(path)
    with Store.open(path, project="acme", key=KEY) as store:
        store.forget(5)
        whole, head = contents(store), store.log.head()
    first_page(path)
    made = salvaged(path, target)
    assert made.head == head
    assert kept(target)[0] == whole


# The write-ahead log


def killed(path: Path) -> Head:
    """A store whose last events are in the write-ahead log alone."""
    filled(path, 50)
    store = Store.open(path, project="acme", key=KEY, durability="normal")
    for number in range(30):
        store.notes.add("fact", f"Only in the log {number}", similar=False)
    head = store.log.head()
    store.database._pool.discard()
    return head


def test_what_waits_in_the_write_ahead_log_is_read(path: Path, target: Path) -> None:
    """With the first page of the file damaged, and the one in the log the only sound one, or none."""
    head = killed(path)
    flip(path, 1)
    made = salvaged(path, target)
    assert made.head == head
    is_whole(target, made)


def test_a_damaged_write_ahead_log_is_read_up_to_the_damage(path: Path, target: Path) -> None:
    """As SQLite would, and it is told."""
    head = killed(path)
    wal = path.with_name(path.name + "-wal")
    frames = (wal.stat().st_size - 32) // 4120
    with wal.open("r+b") as file:
        file.seek(32 + 4120 * (frames // 2) + 300)
        file.write(b"\xff" * 8)
    made = salvaged(path, target)
    assert 50 < made.events < head.seq
    assert any("write-ahead log was damaged" in notice for notice in made.notices)
    is_whole(target, made)


def test_a_store_in_use_can_be_salvaged(path: Path, target: Path) -> None:
    """What was committed when it began; the open store goes on unharmed."""
    with Store.open(path, project="acme", key=KEY, durability="normal") as store:
        store.notes.add("goal", "Committed")
        head = store.log.head()
        with store.transaction():
            store.notes.add("goal", "Not yet")
            assert salvaged(path, target).head == head
        assert store.verify(replay=True).problems == ()


# Keys and heads


@pytest.mark.parametrize("key", ["a passphrase", KEY])
def test_the_new_store_has_the_key_of_the_old_one_or_another(path: Path, target: Path, key: bytes | str) -> None:
    """By passphrase or raw key, with the first page damaged."""
    filled(path, 30, key=key)
    first_page(path)
    is_whole(target, salvaged(path, target, key=key), key)
    other = target.with_name("other.db")
    made = salvaged(path, other, key=key, new_key="another one")
    is_whole(other, made, "another one")
    with pytest.raises(WrongKey):
        Store.open(other, project="acme", key=key)


def test_a_plain_store_is_salvaged_plain(path: Path, target: Path) -> None:
    """Without HMACs the decoding of pages, digests and chain tell what is sound."""
    head = filled(path, key=None)
    flip(path, trees(path, None)["note_parent"][-1], trees(path, None)["note"][-1])
    with pytest.raises(InvalidInput):
        Store.salvage(path, target, new_key=KEY)
    made = Store.salvage(path, target)
    assert made.head == head
    with Store.open(target, project="acme", encrypted=False) as store:
        assert store.verify(replay=True).problems == ()
    flip(path, trees(path, None)["event"][-1], at=2000)
    assert 0 < Store.salvage(path, target.with_name("again.db")).events < head.seq


def test_a_file_that_has_forgotten_which_store_it_is(path: Path, target: Path) -> None:
    """The chain begins with the id of the store: a head that was noted tells it, and nothing else does."""
    head = filled(path)
    blank(path, *trees(path)["meta"])
    with pytest.raises(Corrupt, match="identity"):
        salvaged(path, target)
    with pytest.raises(Corrupt, match="No log begins"):
        salvaged(path, target, head=attrs.evolve(head, store="ab" * 16))
    made = salvaged(path, target.with_name("right.db"), head=head)
    assert made.head == head
    is_whole(target.with_name("right.db"), made)
    assert not target.exists()


def test_a_head_that_was_noted_is_compared(path: Path, target: Path) -> None:
    """The log is taken only as far as it agrees; a head beyond its end is told; one of another store is refused."""
    head = filled(path)
    flip(path, leaf(path, 0.5))
    made = salvaged(path, target, head=head)
    assert made.first_lost == made.events + 1
    assert any("later than its end" in notice for notice in made.notices)
    with pytest.raises(InvalidInput, match="another store"):
        salvaged(path, target.with_name("b.db"), head=attrs.evolve(head, store="ab" * 16))
    with Store.open(target, project="acme", key=KEY) as store:
        event = store.log.get(20)
        assert event is not None
    forged = Head(head.store, 20, "00" * 32)
    assert salvaged(path, target.with_name("c.db"), head=forged).events == 19
    true = Head(head.store, 20, event.chain.hex())
    again = salvaged(path, target.with_name("d.db"), head=true)
    assert again.head == made.head
    assert any("is in it" in notice for notice in again.notices)


# Refusals


def test_nothing_is_ever_replaced(path: Path, target: Path) -> None:
    """Neither the new store, nor what is left over at its name, nor the remainder, nor the damaged file."""
    filled(path, 30)
    target.write_text("mine")
    rest = path.with_name("rest.jsonl")
    rest.write_text("mine too")
    side = path.with_name("fresh.db-wal")
    side.write_bytes(b"left")
    for to, remainder in (
        (target, None),
        (path, None),
        (path.with_name("fresh.db"), None),
        (path.with_name("b.db"), rest),
    ):
        with pytest.raises(StoreExists):
            salvaged(path, to, remainder=remainder)
    with pytest.raises(StoreMissing):
        salvaged(path, path.with_name("nowhere") / "c.db")
    assert (target.read_text(), rest.read_text(), side.read_bytes()) == ("mine", "mine too", b"left")
    assert names(path.parent) == {path.name, target.name, rest.name, side.name}


def test_what_can_not_be_a_store_is_refused(path: Path, target: Path) -> None:
    """A wrong or missing key, a changed salt, noise, an empty file: typed, and nothing is left behind."""
    filled(path, 30)
    with pytest.raises(WrongKey):
        salvaged(path, target, key=bytes(32))
    with pytest.raises(KeyMissing):
        Store.salvage(path, target)
    flip(path, 1, at=3)
    with pytest.raises(WrongKey):
        salvaged(path, target)
    path.write_bytes(os.urandom(50_000))
    with pytest.raises(WrongKey):
        salvaged(path, target)
    path.write_bytes(b"")
    with pytest.raises(NotAStore):
        salvaged(path, target)
    path.unlink()
    with pytest.raises(StoreMissing):
        salvaged(path, target)
    assert names(path.parent) == set()


@pytest.mark.parametrize("seed", range(6))
def test_whatever_is_damaged_a_prefix_comes_out(path: Path, target: Path, seed: int) -> None:
    """Random bytes of random pages: what is salvaged is a prefix of the log, whole by itself, and nothing made up."""
    import random

    head = filled(path, 150)
    rows = {row[0]: row for row in kept(path)[0]["event"]}
    chance = random.Random(seed)
    meta = trees(path)["meta"]
    pages = path.stat().st_size // PAGE_BYTES
    for _ in range(chance.randrange(1, 30)):
        page = chance.randrange(1, pages + 1)
        if page not in meta:
            flip(path, page, at=chance.randrange(16, PAGE_BYTES))
    if chance.random() < 0.3:
        cut(path, path.stat().st_size - chance.randrange(1, 60_000))
    shutil.copy(path, path.with_name("kept.db"))
    rest = path.with_name("rest.jsonl")
    try:
        made = salvaged(path, target, remainder=rest)
    except Corrupt as error:
        # The page with the id of the store was cut off, or the very first event was hit: then nothing rests on a start.
        assert "identity" in str(error) or "No log begins" in str(error)
        assert not target.exists()
        return
    is_whole(target, made)
    assert sorted(kept(target)[0]["event"]) == [rows[seq] for seq in range(1, made.events + 1)]
    for line in rest.read_text("utf-8").splitlines():
        told = json.loads(line)
        assert told["payload"] == rows[told["seq"]][13]
    assert made.events + made.later <= head.seq
    assert path.read_bytes() == path.with_name("kept.db").read_bytes()


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", "-journal"])
def test_a_remainder_at_the_name_of_the_new_store_is_refused(path: Path, target: Path, suffix: str) -> None:
    """Before anything is written: neither of them is left behind."""
    filled(path, 10)
    before = names(path.parent)
    with pytest.raises(InvalidInput, match="remainder"):
        salvaged(path, target, remainder=f"{target.parent}/./{target.name}{suffix}")
    assert names(path.parent) == before


@pytest.mark.parametrize("key", [KEY, None], ids=["encrypted", "plain"])
def test_a_file_cut_at_a_page_is_told(path: Path, target: Path, key: bytes | None) -> None:
    """All pages that are left are sound, so nothing else would tell that later events may be missing."""
    filled(path, 100, key=key)
    assert not any("cut" in each for each in salvaged(path, path.with_name("whole.db"), key=key).notices)
    cut(path, path.stat().st_size - PAGE_BYTES)
    assert any("cut" in notice for notice in salvaged(path, target, key=key).notices)
