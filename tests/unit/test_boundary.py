"""The boundary of the Python API: what is not acceptable is refused by a typed error, in one readable line."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentmem import (
    AgentMemError,
    Closed,
    Head,
    InvalidInput,
    LimitExceeded,
    NewNote,
    NotFound,
    RequestMismatch,
    Scope,
    Store,
)
from agentmem.errors import shown
from agentmem.records.projects import default_project
from agentmem.types import moment

Opened = Callable[..., Store]
Undone = Callable[[Store], contextlib.AbstractContextManager[None]]


def refused(store: Store, call: Callable[[Store], object], error: type[AgentMemError] = InvalidInput) -> AgentMemError:
    """The error of a call, which leaves the log as it was."""
    head = store.log.head()
    with pytest.raises(error) as raised:
        call(store)
    assert store.log.head() == head
    return raised.value


# Messages


class Speechless:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value",
    ["a\nb\x1b[2J\u202e\u3164\U000e0100", "x" * 200_000, 10**5000, deep(), Speechless(), b"\x1b" * 500, ["\n" * 99]],
    ids=shown,
)
def test_a_value_is_shown_in_one_short_line(value: object) -> None:
    """Whatever a value is, a message can name it: 80 printable characters at most, and it never fails."""
    told = shown(value)
    assert told.isprintable()
    assert told.isascii() or told.endswith("…")
    assert len(told) <= 80


def test_values_that_are_plain_are_shown_as_they_are() -> None:
    """Short ones of everyday keep their spelling, text of any script its letters."""
    told = [shown(each) for each in ("host", "主机", 5, True, None, 1.5)]
    assert told == ["'host'", "'主机'", "5", "True", "None", "1.5"]


@pytest.mark.parametrize(
    "call",
    [
        lambda s, v: s.get(v),
        lambda s, v: s.get(f"host:{v}"),
        lambda s, v: s.notes.add(v, "Title"),
        lambda s, v: s.notes.add("fact", "Title", pin=v),
        lambda s, v: s.notes.add("fact", "Title", links=[v]),
        lambda s, v: s.notes.add_many([NewNote("fact", "Title", parent=f"${v}")]),
        lambda s, v: s.resume(budget=v),
        lambda s, v: s.find("x", after=v),
        lambda s, v: s.entities.put("host", "a", attrs={v: 1}),
        lambda s, v: s.entities.query("host", f"{v} = 1"),
        lambda s, v: s.entities.query("host", "status = :a", **{"a": "b", v: 1}),
        lambda s, v: s.projects.get(v),
    ],
)
def test_messages_quote_callers_in_one_bounded_line(store: Store, call: Callable[[Store, str], object]) -> None:
    """Text that a message repeats can neither break its line, nor hide in it, nor flood it."""
    for value in ("a\nb\x1b\u202e\u2028", "\u3164 x\u200b" * 50_000):
        told = str(refused(store, lambda s, v=value: call(s, v), AgentMemError))
        assert told.isprintable()
        assert "\u3164" not in told
        assert len(told) < 5000


def test_hints_do_not_repeat_hidden_characters_of_stored_keys(store: Store) -> None:
    """A key may hold a zero-width character; the hint that names it shows where."""
    store.entities.put("host", "exam\u200bple.com")
    assert "exam\\u200bple.com" in refused(store, lambda s: s.get("host:example.com"), NotFound).next


# Names


@pytest.mark.parametrize("hidden", ["\u3164", "\u115f", "\uffa0", "\ufe0f", "\U000e0100", "\u034f", "\u180b", "\u200b"])
@pytest.mark.parametrize(
    "call",
    [
        lambda s, v: s.acting(author=v),
        lambda s, v: s.acting(run=v),
        lambda s, v: s.in_project(v),
        lambda s, v: s.notes.add("fact", "Title", tags=[v]),
        lambda s, v: s.entities.put("host", "a", status=v),
        lambda s, v: s.entities.put(v, "a"),
        lambda s, v: s.entities.expect("host", [v]),
        lambda s, v: s.entities.mark("host", [], {v: "pass"}),
        lambda s, v: s.notes.add("fact", "Title", request_id=v),
    ],
)
def test_names_hold_no_character_that_does_not_show(
    store: Store, hidden: str, call: Callable[[Store, str], object]
) -> None:
    """Two names that look the same are the same: fillers, joiners and variation selectors are refused."""
    refused(store, lambda s: call(s, f"ad{hidden}min"))


@pytest.mark.parametrize("name", ["café", "cafe\u0301", "हिन्दी", "ภาษาไทย", "主机", "עִבְרִית", "тест", "한국어"])
def test_names_are_of_any_script(store: Store, name: str) -> None:
    """Accents and vowel signs that stand as characters of their own belong to words."""
    store.notes.add("fact", "Title", tags=[name])
    store.entities.put(name, "a")
    assert store.acting(author=name).actor.author == name


def test_the_project_of_a_directory_is_a_name_too(store: Store, tmp_path: Path) -> None:
    """A directory's name with a filler gives a project that can be named."""
    folder = tmp_path / "wo\u3164rk"
    folder.mkdir()
    name = default_project(folder)
    assert store.in_project(name).project == name


# Naming records


def test_item_refs_beyond_64_bits_name_nothing(store: Store) -> None:
    """A note or item number that no file can hold is not found."""
    goal = store.notes.add("goal", "Goal").id
    refused(store, lambda s: s.get(f"{'9' * 19}.1"), NotFound)
    refused(store, lambda s: s.checklists.done(goal, 2**70), NotFound)
    refused(store, lambda s: s.get(10**5000), NotFound)


@pytest.mark.parametrize("found", [True, 1.0, "1", None, 10**30])
def test_a_value_whose_id_is_no_id_names_nothing(store: Store, found: object) -> None:
    """True is not record 1, and neither is 1.0."""
    store.notes.add("goal", "Goal")

    class Named:
        id = found

    refused(store, lambda s: s.get(Named()), AgentMemError)


def read_back(store: Store, kind: str) -> tuple[Any, Callable[[Store, Any], object]]:
    """A new record as a value, and a use of it."""
    match kind:
        case "note":
            return store.notes.get(store.notes.add("fact", "Gone")), lambda s, v: s.notes.update(v, title="Other")
        case "entity":
            return store.entities.get(store.entities.put("host", "gone")), lambda s, v: s.entities.rename(v, "other")
        case "item":
            note = store.notes.list(kind="goal")[0]
            store.checklists.add(note, "Gone")
            return store.checklists.items(note)[-1], lambda s, v: s.checklists.edit(v, "Other")
        case "checkpoint":
            return store.get(store.checkpoint("Gone")), lambda s, v: s.get(v)
        case _:
            goal = store.notes.list(kind="goal")[0]
            store.summarize(goal, result="Gone")
            return store.get(store.summarize(goal, result="Gone, too").id), lambda s, v: s.get(v)


@pytest.mark.parametrize("kind", ["note", "entity", "item", "checkpoint", "summary"])
@pytest.mark.parametrize("after", ["nothing", "the same kind", "others"])
def test_values_read_in_a_transaction_that_was_rolled_back_are_refused(
    store: Store, undone: Undone, kind: str, after: str
) -> None:
    """Their ids may belong to other records by now: none of these is changed by mistake."""
    store.notes.add("goal", "Goal")
    with undone(store):
        value, use = read_back(store, kind)
    if after == "the same kind":
        goal = store.notes.list(kind="goal")[0]
        {
            "note": lambda: store.notes.add("fact", "Here"),
            "entity": lambda: store.entities.put("host", "here"),
            "item": lambda: store.checklists.add(goal, "Here"),
            "checkpoint": lambda: store.checkpoint("Here"),
            "summary": lambda: (store.summarize(goal, result="Here"), store.summarize(goal, result="Here, too")),
        }[kind]()
    elif after == "others":
        for number in range(5):
            store.notes.add("lesson", f"Lesson {number}")
    refused(store, lambda s: use(s, value), Closed)


@pytest.mark.parametrize("kind", ["note", "entity", "item", "checkpoint", "summary"])
def test_values_of_records_that_changed_since_still_name_them(store: Store, kind: str) -> None:
    """A value is of a moment, its record lives on; what other runs wrote does not make it invalid."""
    store.notes.add("goal", "Goal")
    value, use = read_back(store, kind)
    use(store, value)
    if kind in ("note", "entity", "item"):
        store.claim(value)
        store.release(value)
    assert store.get(value) is not None


# Places in lists, names of kinds, flags, times


@pytest.mark.parametrize("value", [-1, 2**63, 10**5000, True, 1.0, "1", [], math.nan], ids=shown)
@pytest.mark.parametrize(
    "call",
    [
        lambda s, v: s.notes.list(after=v),
        lambda s, v: s.links.list(1, after=v),
        lambda s, v: s.entities.children("host:a", after=v),
        lambda s, v: s.checkpoints(before=v),
        lambda s, v: s.log.read(after=v),
        lambda s, v: s.log.read(until=v),
        lambda s, v: s.log.read(session=v),
        lambda s, v: s.log.get(v),
        lambda s, v: s.watch(after=v, timeout=0),
        lambda s, v: s.graph(1, after=v),
        lambda s, v: s.resume(since=v),
        lambda s, v: s.find("x", after=v),
        lambda s, v: s.notes.update(1, title="Other", expected_revision=v),
    ],
)
def test_places_are_whole_numbers_of_64_bits(
    store: Store, value: object, call: Callable[[Store, object], object]
) -> None:
    """What continues a list is a place in it: no fraction, no truth value, nothing below zero."""
    store.entities.put("host", "a")
    refused(store, lambda s: call(s, value))


def test_kinds_of_events_are_a_list_of_kinds_there_are(store: Store) -> None:
    """One name instead of a list, and a name of no kind, would silently match nothing; the nearest is named."""
    for call in (lambda s, v: s.log.read(kinds=v), lambda s, v: s.watch(kinds=v, timeout=0)):
        refused(store, lambda s, call=call: call(s, "note.added"))
        refused(store, lambda s, call=call: call(s, 5))
        refused(store, lambda s, call=call: call(s, ["note.added"] * 20_000), LimitExceeded)
        assert "note.added" in refused(store, lambda s, call=call: call(s, ["note.add"])).next
    assert store.log.read(kinds=["note.added", "note.added"]) == ()


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.entities.unmark("host", ["a"], "ab"),
        lambda s: s.entities.expect("host", "ab"),
        lambda s: s.entities.expect("host", 5),
        lambda s: s.scope("host", checks="ab"),
        lambda s: s.scope("host", checks=5),
        lambda s: s.notes.add("goal", "Goal", scope=Scope("host", checks="ab")),  # type: ignore[arg-type]
        lambda s: s.import_(s.path.parent, entities="host"),
        lambda s: s.notes.add("fact", "Title", tags="ab"),
        lambda s: s.verify(head="x"),
        lambda s: s.verify(head=Head("a", "b", "c")),  # type: ignore[arg-type]
        lambda s: s.checklists.items(1, done="x"),
        lambda s: s.entities.mark([], ["a"], {"tls": "pass"}),
        lambda s: s.entities.expected([]),
        lambda s: s.projects.get([]),
        lambda s: s.import_(5),
        lambda s: s.import_(b"x"),
        lambda s: s.import_(""),
        lambda s: s.import_("a\0b"),
        lambda s: s.adopt_claims(5),
        lambda s: s.adopt_claims("00" * 15),
        lambda s: s.adopt_claims("00" * 17),
        lambda s: s.adopt_claims("x" * 32),
        lambda s: s.notes.add("fact", "Title", body=0),
        lambda s: s.notes.add("fact", "Title", tags=0),
        lambda s: s.notes.add("fact", "Title", pin=""),
        lambda s: s.notes.add("fact", "Title", links=0),
        lambda s: s.notes.add("fact", "Title", similar=1),
        lambda s: s.notes.add("fact", "Title", dated=2**62),
        lambda s: s.notes.move(1, first=1),
        lambda s: s.entities.query("host", total=1),
        lambda s: s.log.read(newest_first=1),
        lambda s: s.claims(mine=1),
        lambda s: s.verify(replay=1),
        lambda s: s.verify(independent=1),
        lambda s: s.import_(s.path.parent, dry_run=1),
        lambda s: s.import_(s.path.parent, progress=5),
    ],
)  # fmt: skip
def test_values_of_another_type_are_refused(store: Store, call: Callable[[Any], object]) -> None:
    """Nothing that merely counts as true, false, empty or a list is taken for it."""
    store.entities.put("host", "a")
    store.notes.add("goal", "Goal")
    refused(store, call)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, "x", True, 10**5000, []], ids=shown)
def test_times_to_wait_are_numbers_from_zero(store: Store, value: Any) -> None:
    """A wait for NaN seconds never ends, one of -1 never begins."""
    refused(store, lambda s: s.watch(timeout=value))
    refused(store, lambda s: s.wait_for_index(timeout=value))


@pytest.mark.parametrize(
    "options",
    [
        {"path": 5}, {"path": None}, {"path": b"work.db"}, {"path": ""}, {"path": "a\0b"}, {"busy_timeout": "x"},
        {"busy_timeout": math.nan}, {"busy_timeout": True}, {"durability": []}, {"counter": 5}, {"clock": 5},
        {"encrypted": "no"}, {"create": "no"}, {"read_only": 0}, {"project": []}, {"origin": []}, {"author": 5},
    ],
    ids=str,
)  # fmt: skip
def test_options_of_a_store_are_checked_before_its_file_is_touched(path: Path, options: dict[str, Any]) -> None:
    """A wrong option is refused, and no file comes to be."""
    with pytest.raises(InvalidInput):
        Store.open(**({"path": path, "project": "acme", "key": bytes(32)} | options))
    assert not path.exists()


# Requests


@pytest.mark.parametrize("tags", [{"a", 1}, frozenset({"a", None}), {"a": object()}])
def test_odd_arguments_of_a_request_are_refused_as_without_one(store: Store, tags: Any) -> None:
    """What can't be compared with a repeat is an error of ours."""
    refused(store, lambda s: s.notes.add("fact", "Title", tags=tags, request_id="r1"))


def test_generators_are_no_lists_of_tags_with_and_without_a_request(store: Store) -> None:
    """What can be read once only would tag the first note of several, or be spent by the comparison with a repeat."""
    for request in (None, "r1"):
        refused(store, lambda s, r=request: s.notes.add("fact", "Title", tags=(t for t in "ab"), request_id=r))
    notes = [store.notes.add("fact", f"Title {number}").id for number in (1, 2)]
    refused(store, lambda s: s.notes.update_many(notes, tags=iter(["a"])))


def test_a_repeat_by_another_origin_is_another_request(store: Store) -> None:
    """Text from elsewhere cannot pass for what a trusted caller wrote; another run of the same origin may retry."""
    first = store.notes.add("fact", "Title", request_id="r1")
    again = store.acting(author="ben", run="r2").notes.add("fact", "Title", request_id="r1")
    assert again.repeated
    assert again.id == first.id
    elsewhere = store.acting(origin="web")
    refused(store, lambda s: elsewhere.notes.add("fact", "Title", request_id="r1"), RequestMismatch)


# Counters and clocks


@pytest.mark.parametrize("answer", [-5, True, math.nan, math.inf, 0, None, "5", [], 10**5000], ids=shown)
def test_a_counter_that_counts_nothing_is_refused(opened: Opened, answer: object) -> None:
    """An answer that no budget can be kept by is an error before anything is answered by it."""
    store = opened(counter=lambda text: answer)
    store.notes.add("goal", "Goal")
    for call in (lambda s: s.resume(), lambda s: s.left(), lambda s: s.task_summary(2)):
        refused(store, call)


@pytest.mark.parametrize("counter", [len, lambda text: len(text) / 4, lambda text: len(text) // 4])
def test_a_counter_may_be_any_rule_of_thumb(opened: Opened, counter: Callable[[str], float]) -> None:
    """Whole or broken, and nothing for a letter or two."""
    store = opened(counter=counter)
    store.notes.add("goal", "Goal")
    assert "Goal" in store.resume(budget=1000).text


def test_an_answer_that_does_not_fit_at_all_is_an_error(opened: Opened) -> None:
    """By a counter so dear that not even the line of cuts fits, an empty answer would read as an empty memory."""
    store = opened(counter=lambda text: 1000 * len(text))
    store.notes.add("goal", "Goal")
    assert "budget" in refused(store, lambda s: s.resume(budget=300)).next


@pytest.mark.parametrize("answer", [1.5, None, "5", True, 10**5000, 2**60, -(2**60), math.nan], ids=shown)
def test_a_clock_that_tells_no_time_writes_nothing(opened: Opened, answer: object) -> None:
    """What a clock says stands in the log for ever, so it is checked before."""
    opened().notes.add("goal", "Goal")
    store = opened(clock=lambda: answer)
    for call in (lambda s: s.notes.add("fact", "Title"), lambda s: s.claim(2), lambda s: s.resume()):
        refused(store, call)


@pytest.mark.parametrize("value", [2**62, -(2**62), 10**5000, 1.5, "x", None, True, math.nan], ids=shown)
def test_a_time_that_is_none_is_refused(value: Any) -> None:
    """`moment` knows the years 1 to 9999, exactly to the microsecond."""
    with pytest.raises(InvalidInput):
        moment(value)
    assert moment(253_402_300_799_999_999).microsecond == 999_999
    assert moment(-62_135_596_800_000_000).year == 1


# What is left of a type


def test_a_type_that_nothing_is_of_is_not_found(store: Store) -> None:
    """ "Nothing is left" must not come from a misspelt type; the nearest one is named."""
    refused(store, lambda s: s.left(type=[]))
    refused(store, lambda s: s.left(type="no such"))
    refused(store, lambda s: s.left(type="host"), NotFound)
    store.entities.put("host", "a")
    assert "host" in refused(store, lambda s: s.left(type="hosts"), NotFound).next
    assert store.left(type="host").steps_total == 0
    store.entities.expect("service", ["tls"])
    goal = store.notes.add("goal", "Goal", scope=store.scope("endpoint"))
    for known in ("service", "endpoint"):
        store.left(type=known)
        store.in_project("other").left(goal, type=known)
        refused(store, lambda s, known=known: s.in_project("other").left(type=known), NotFound)
