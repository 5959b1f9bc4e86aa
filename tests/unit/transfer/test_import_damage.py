"""Logs that were damaged, and logs that were made to harm: each is refused, and nothing of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forging import Lines, event, forged, header, lines_of, payload, tables, write

from agentmem import AgentMemError, Corrupt, LimitExceeded, NewerFile, Store

Another = Callable[..., Store]


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
