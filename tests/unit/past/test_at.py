"""`store.at`: the store as it was."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from views import sample, tables

from agentmem import InvalidInput, NotFound, NotInPast, ReadOnly, Store, limits
from agentmem.store.at import PastStore

BEGIN = 1_750_000_000_000_000
UTC = datetime.UTC


# What a view shows


def test_a_view_of_each_moment_has_the_tables_of_that_moment(store: Store) -> None:
    """Row for row what was in the tables right after the event, whatever came later."""
    then = {seq: tables(store) for seq in sample(store)}
    for seq, expected in then.items():
        with store.at(seq) as past:
            assert tables(past) == expected


def test_a_view_answers_as_the_store_did(store: Store, clock: Any) -> None:
    """`resume`, `left`, `graph`, queries and lists of then, computed now, are those that were read then."""

    def read(one: Store) -> list[Any]:
        goal = one.notes.list(kind="goal")[0]
        return [
            one.resume(goal).text, one.resume().text, one.left(task=goal).text, one.graph(goal).text,
            one.task_summary(goal).text, one.notes.list(), one.entities.query("host", where="check.tls is null"),
            one.checkpoints(), one.history(budget=5000).text, one.log.read(), one.log.head(), one.projects.list(),
            one.entities.expected(), one.get(goal.id), one.stats().records,
        ]  # fmt: skip

    then = {}
    for seq in sample(store):
        at = clock.now
        then[seq] = read(store)
        clock.now = at
    for seq, expected in then.items():
        with store.at(seq) as past:
            assert read(past) == expected


def test_the_time_of_a_view_is_that_of_its_event(store: Store, clock: Any) -> None:
    """Ages and staleness are told from then, not from now."""
    goal = store.notes.add("goal", "Check")
    store.checkpoint("half way", task=goal)
    seq, at = store.log.head().seq, clock.now
    clock.advance(seconds=90 * 86_400)
    assert store.at(seq).moment.at == at
    with store.at(seq)._binding.reading() as view:
        assert view.now == at


def test_nothing_is_claimed_in_the_past(store: Store) -> None:
    """Leases are of the present: a view shows none and its text none."""
    step = store.notes.add("step", "Read")
    store.claim(step)
    past = store.at(store.log.head().seq)
    assert store.claims()
    assert past.claims() == ()
    assert "claim" not in past.resume().text


def test_the_log_ends_at_the_moment(store: Store) -> None:
    """No later event is read, counted or named in a view."""
    note = store.notes.add("fact", "one")
    store.notes.update(note, title="two")
    later = store.notes.add("fact", "later")
    past = store.at(note.id)
    assert past.log.head().seq == note.id
    assert [event.seq for event in past.log.read(project="*")] == [1, note.id]
    assert past.log.get(later.id) is None
    assert [change.seq for change in past.history(note).changes] == [note.id]
    with pytest.raises(NotFound):
        past.get(later.id)
    with pytest.raises(NotFound):
        past.revision(note, later.id)


def test_the_first_and_the_last_event_and_none_are_moments(store: Store) -> None:
    """At 0 the store is empty; at the last event it is as it is."""
    seqs = list(sample(store))
    assert store.at(0).notes.list() == ()
    assert store.at(0).log.head().seq == 0
    assert "Check" not in store.at(0).resume().text
    assert tables(store.at(seqs[-1])) == tables(store)
    with pytest.raises(NotFound, match="log ends"):
        store.at(seqs[-1] + 1)


# By time


def test_a_time_means_the_last_event_until_then(store: Store, clock: Any) -> None:
    """The last event with an earlier or equal time, by microseconds or by an aware datetime of any zone."""
    first = store.notes.add("fact", "one")
    clock.advance(seconds=3600)
    second = store.notes.add("fact", "two")
    at = store.log.get(first.id).at  # type: ignore[union-attr]
    assert store.at(time=at).moment.seq == first.id
    assert store.at(time=at - 1).moment.seq == first.id - 1
    assert store.at(time=clock.now + 10**9).moment.seq == second.id
    east = datetime.timezone(datetime.timedelta(hours=9))
    moment = datetime.datetime.fromtimestamp(0, UTC) + datetime.timedelta(microseconds=at + 5)
    assert store.at(time=moment.astimezone(east)).moment.seq == first.id
    assert store.at(time=BEGIN - 1).moment.seq == 0


def test_order_is_that_of_the_log_where_clocks_went_back(store: Store, clock: Any) -> None:
    """An event that was written later under an earlier time is the last until that time."""
    store.notes.add("fact", "one")
    clock.advance(seconds=100)
    store.notes.add("fact", "two")
    clock.advance(seconds=-50)
    third = store.notes.add("fact", "three")
    at = store.log.get(third.id).at  # type: ignore[union-attr]
    past = store.at(time=at)
    assert past.moment.seq == third.id
    assert [note.title for note in past.notes.list()] == ["one", "two", "three"]


@pytest.mark.parametrize(
    "arguments",
    [
        ((), {}), ((1,), {"time": 1}), (("1",), {}), ((True,), {}), ((-1,), {}), ((1.0,), {}), ((), {"time": "now"}),
        ((), {"time": datetime.datetime(2025, 1, 1)}), ((), {"time": 10**30}),
    ],
)  # fmt: skip
def test_what_is_no_moment_is_refused(store: Store, arguments: tuple[tuple[Any, ...], dict[str, Any]]) -> None:
    """Neither or both forms, a wrong type, a time without a zone."""
    store.notes.add("fact", "one")
    with pytest.raises(InvalidInput):
        store.at(*arguments[0], **arguments[1])


# What a view does not do


WRITES: dict[str, Callable[[Store], object]] = {
    "notes.add": lambda store: store.notes.add("fact", "x"),
    "notes.update": lambda store: store.notes.update(2, title="x"),
    "notes.move": lambda store: store.notes.move(2, parent=None),
    "attempts.open": lambda store: store.attempts.open("x"),
    "entities.put": lambda store: store.entities.put("host", "h9"),
    "entities.mark": lambda store: store.entities.mark("host", ["h1"], {"tls": "fail"}),
    "entities.expect": lambda store: store.entities.expect("host", ["x"]),
    "checklists.add": lambda store: store.checklists.add(3, "x"),
    "links.add": lambda store: store.links.add(2, "uses", 3),
    "projects.rename": lambda store: store.projects.rename("x"),
    "checkpoint": lambda store: store.checkpoint("x"),
    "summarize": lambda store: store.summarize(2, result="x"),
    "confirm": lambda store: store.confirm(2),
    "claim": lambda store: store.claim(2),
    "release": lambda store: store.release(),
    "undo": lambda store: store.undo(2),
    "forget": lambda store: store.forget(2),
    "redact": lambda store: store.redact(2),
    "transaction": lambda store: store.transaction().__enter__(),
    "database.write": lambda store: store.database.write(),
}


@pytest.mark.parametrize("verb", WRITES)
def test_a_view_takes_no_write(store: Store, verb: str) -> None:
    """Every verb that writes is refused with `read_only`, and neither log nor tables change."""
    *_, last = sample(store)
    before, head = tables(store), store.log.head()
    with pytest.raises(ReadOnly) as caught:
        WRITES[verb](store.at(last))
    assert caught.value.code == "read_only"
    assert (tables(store), store.log.head()) == (before, head)


ELSEWHERE: dict[str, Callable[[Store, Path], object]] = {
    "find": lambda store, _: store.find("log"),
    "recall": lambda store, _: store.recall("log"),
    "attempts.earlier": lambda store, _: store.attempts.earlier("log"),
    "verify": lambda store, _: store.verify(replay=True),
    "backup": lambda store, path: store.backup(path / "copy.db"),
    "rekey": lambda store, _: store.rekey(b"k" * 32),
    "watch": lambda store, _: next(store.watch(timeout=0)),
    "wait_for_index": lambda store, _: store.wait_for_index(),
    "database.snapshot_to": lambda store, path: store.database.snapshot_to(path / "copy.db"),
    "database.checkpoint": lambda store, _: store.database.checkpoint(),
    "database.independent_check": lambda store, _: store.database.independent_check(),
    "database.data_version": lambda store, _: store.database.data_version(),
    "database.rekey": lambda store, _: store.database.rekey(b"k" * 32),
}


@pytest.mark.parametrize("verb", ELSEWHERE)
def test_what_only_the_present_has_is_refused_by_name(store: Store, tmp_path: Path, verb: str) -> None:
    """Search and what is of the file say that a view of the past has none, and never answer from the present."""
    *_, last = sample(store)
    with pytest.raises(NotInPast) as caught:
        ELSEWHERE[verb](store.at(last), tmp_path)
    assert caught.value.code == "not_in_past"
    assert not (tmp_path / "copy.db").exists()


def test_no_sql_reaches_the_words_of_now(store: Store) -> None:
    """A query of the index behind the verbs fails in a view; it does not answer with what was written later."""
    seq = store.notes.add("fact", "one").id
    store.notes.add("fact", "secret later")
    with store.at(seq).database.read() as connection, pytest.raises(apsw.SQLError):
        connection.execute("SELECT rowid FROM search WHERE search MATCH 'secret'").fetchall()


def test_a_view_touches_no_file(store: Store, path: Path) -> None:
    """What is folded stays in memory: no file appears or grows, and the connection could not write one."""
    *_, last = sample(store)

    def files() -> dict[str, int]:
        return {found.name: found.stat().st_size for found in path.parent.iterdir()}

    before = files()
    past = store.at(last)
    past.resume()
    assert files() == before
    with past.database.read() as connection:
        assert connection.execute("PRAGMA temp_store").get == 2
        assert connection.readonly("main")
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("UPDATE note SET title = 'x'")
        with pytest.raises(apsw.ReadOnlyError):
            connection.execute("UPDATE main.note SET title = 'x'")


# Whose view


def test_a_project_is_known_by_the_name_it_had_then(store: Store) -> None:
    """A view is of the same project, under its name of then."""
    note = store.notes.add("fact", "one")
    store.projects.rename("acme2")
    past = store.in_project("acme2").at(note.id)
    assert past.project == "acme"
    assert [found.id for found in past.notes.list()] == [note.id]


def test_another_projects_former_name_is_not_taken_for_ones_own(store: Store) -> None:
    """A name that now belongs to another project does not show that other's records as one's own."""
    note = store.notes.add("fact", "one")
    store.projects.rename("old")
    store.in_project("acme").notes.add("fact", "new")
    with pytest.raises(NotFound, match="did not exist"):
        store.in_project("acme").at(note.id)
    assert store.in_project("old").at(note.id).notes.list()[0].title == "one"


def test_values_of_the_present_name_records_of_the_past(store: Store) -> None:
    """A record as it is now names itself in a view, if it was there then."""
    note = store.notes.add("fact", "one")
    store.notes.update(note, title="two")
    item = store.checklists.add(note, "item").ids[0]
    past = store.at(note.id)
    assert past.notes.get(store.notes.get(note)).title == "one"
    assert [change.seq for change in past.history(store.notes.get(note)).changes] == [note.id]
    with pytest.raises(NotFound):
        past.get(store.get(item))


def test_a_view_has_every_project_and_actor(store: Store) -> None:
    """`in_project` and `acting` of a view are views of the same moment; a task that was not there yet is left out."""
    store.in_project("other").notes.add("fact", "there")
    goal = store.notes.add("goal", "Check")
    seq = goal.id
    store.notes.update(goal, title="Check all")
    past = store.at(seq)
    assert past.in_project("other").notes.list()[0].title == "there"
    assert isinstance(past.in_project("other"), PastStore)
    acting = past.acting(task=goal, run="r9")
    assert isinstance(acting, PastStore)
    assert acting.resume().text == past.resume(goal).text
    assert store.acting(task=goal).at(seq).actor.task == goal.id
    assert store.acting(task=goal).at(seq - 1).actor.task is None


def test_a_view_of_a_view_goes_further_back(store: Store) -> None:
    """From a view one can go to an earlier moment, and not beyond its own."""
    *_, middle, last = sample(store)
    past = store.at(middle)
    assert tables(past.at(3)) == tables(store.at(3))
    assert past.at(time=limits.TIME_MOST).moment == past.moment
    assert past.in_project("other").at(3).project == "other"
    with pytest.raises(NotFound, match="log ends"):
        past.at(last)


def test_above_the_limit_one_project_is_folded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a long log a view has its own project whole, and says so where another is asked for."""
    mine = [store.notes.add("fact", "mine")]
    other = store.in_project("other").notes.add("fact", "theirs")
    mine.append(store.notes.add("step", "mine too", parent=None))
    store.checklists.add(mine[1], "item")
    last = store.log.head().seq
    whole = store.at(last).resume().text
    monkeypatch.setattr(limits, "AT_EVENTS", 3)
    past = store.at(last)
    assert past.moment.partial
    assert past.resume().text == whole
    assert [note.id for note in past.notes.list()] == [note.id for note in mine]
    assert {project.name for project in past.projects.list()} == {"acme", "other"}
    assert past.in_project("acme").notes.list() == past.notes.list()
    with pytest.raises(NotFound):
        past.get(other.id)
    for ask in (
        lambda: past.in_project("other"),
        lambda: past.log.read(project="*"),
        lambda: past.at(4).in_project("x"),
    ):
        with pytest.raises(NotInPast, match="acme"):
            ask()
    with store.at(last).database.read() as connection:
        assert connection.execute("SELECT count(*) FROM note").get == 2
    assert store.in_project("other").at(last).notes.list()[0].id == other.id
    assert not store.at(3).moment.partial


@pytest.mark.parametrize("rest", [(), ("third",)])
def test_the_way_to_a_project_that_had_the_name_then_is_one(store: Store, rest: tuple[str, ...]) -> None:
    """Where another project had the name at the moment the error says how to read it, and that works."""
    then = store.notes.add("fact", "Of then").id
    name = store.project
    store.in_project("two").notes.add("fact", "Of two")
    store.in_project("two").projects.merge(name)
    for other in rest:
        store.in_project(other).notes.add("fact", "Of another")
    store.notes.add("fact", "Of now")
    with pytest.raises(NotFound) as met:
        store.at(then)
    way = re.search(rf"in_project\('(\w+)'\)\.at\({then}\)\.in_project\('(\w+)'\)", str(met.value))
    assert way is not None
    with store.in_project(way[1]).at(then) as past:
        assert [note.title for note in past.in_project(way[2]).notes.list()] == ["Of then"]


def test_a_date_as_text_is_refused_by_what_is_wanted(store: Store) -> None:
    """Text is no time: the error names datetime."""
    with pytest.raises(InvalidInput, match="datetime"):
        store.at(time="2026-11-30")  # type: ignore[arg-type]
