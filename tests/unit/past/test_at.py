"""`store.at`: the store as it was."""

from __future__ import annotations

import contextlib
import datetime
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest

import agentmem
from agentmem import Closed, InvalidInput, NewNote, NotFound, NotInPast, ReadOnly, Result, Store, limits
from agentmem.log import replay
from agentmem.past.at import PastDatabase
from agentmem.records.kinds import FUNCTIONS, KINDS
from agentmem.store.at import PastStore

BEGIN = 1_750_000_000_000_000
UTC = datetime.UTC


def tables(store: Store) -> dict[str, list[tuple[Any, ...]]]:
    """Every projection as a reading of the store sees it."""
    with store.database.read() as connection:
        return {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr)
            for table in KINDS.projections
        }


def sample(store: Store) -> Iterator[int]:
    """Some of everything; after each write its seq."""

    def seq() -> int:
        return store.log.head().seq

    goal = store.notes.add("goal", "Check", scope=store.scope("host", checks=["tls"]))
    yield seq()
    step = store.notes.add("step", "Read the log", parent=goal, pin=True)
    yield seq()
    store.checklists.add(step, "one", "two")
    yield seq()
    store.entities.put_many("host", keys=["h1", "h2"], attrs={"os": "linux"})
    yield seq()
    store.entities.mark("host", ["h1"], {"tls": Result("pass", detail="ok")})
    yield seq()
    store.checklists.done(step, 1)
    yield seq()
    fact = store.notes.add("fact", "It is up", parent=step, about="host:h1", links=[("supports", goal)])
    yield seq()
    store.entities.put("host", "h1", attrs={"os": "bsd"})
    store.entities.expect("host", ["tls"])
    yield seq()
    store.checkpoint("half way", task=step)
    yield seq()
    store.notes.move(fact, parent=goal)
    store.checklists.remove(step, 2)
    yield seq()
    store.summarize(step, work="read", result="nothing")
    yield seq()
    store.entities.rename("host:h2", "h3")
    store.links.remove(fact, "supports", goal)
    yield seq()


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


# The life of a view


def test_closing_a_view_leaves_the_store_open(store: Store) -> None:
    """A view can be closed alone, twice, and is closed then."""
    note = store.notes.add("fact", "one")
    with store.at(note.id) as past:
        past.resume()
    past.close()
    with pytest.raises(Closed):
        past.resume()
    assert store.notes.get(note).title == "one"


def test_closing_the_store_closes_its_views(opened: Callable[..., Store]) -> None:
    """Also views of views, and those of another project."""
    store = opened()
    note = store.notes.add("fact", "one")
    past = store.at(note.id)
    views = [past, past.at(1), store.in_project("other").at(note.id), past.acting(run="r2")]
    store.close()
    for view in views:
        with pytest.raises(Closed):
            view.notes.list()
        with pytest.raises(Closed):
            view.at(1)


def test_a_view_that_nobody_holds_gives_its_memory_back(store: Store) -> None:
    """Dropped without a close, its connection goes with it."""
    note = store.notes.add("fact", "one")
    database = weakref.ref(store.at(note.id).database)
    gc.collect()
    assert database() is None
    assert not list(store.database.views)


def test_a_view_is_not_moved_by_later_writes(store: Store) -> None:
    """However much is written, and checkpointed, the view stays as it is."""
    goal = store.notes.add("goal", "Check")
    past = store.at(goal.id)
    before = tables(past)
    for number in range(200):
        store.notes.add("step", f"Step {number}", parent=goal)
    store.database.checkpoint()
    assert tables(past) == before


def test_a_view_opened_in_a_transaction_sees_what_is_committed(
    store: Store, undone: Callable[[Store], AbstractContextManager[None]]
) -> None:
    """What the open transaction wrote has no past yet; what was committed before has."""
    note = store.notes.add("fact", "one")
    with undone(store):
        later = store.notes.add("fact", "later")
        assert [found.id for found in store.at(note.id).notes.list()] == [note.id]
        with pytest.raises(NotFound, match="log ends"):
            store.at(later.id)


def test_threads_share_a_view(store: Store) -> None:
    """Many threads read one view at once, each the same."""
    *_, last = sample(store)
    past = store.at(last - 3)
    expected = past.resume().text
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(past.resume().text)) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 12


@pytest.mark.parametrize("rounds", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_views_are_sound_beside_writers_and_purges(store: Store, rounds: int) -> None:
    """Views opened, read and closed by several threads, while others write and purge, end where they should."""
    for number in range(40):
        store.notes.add("fact", f"fact {number}")
    errors: list[BaseException] = []

    def write() -> None:
        for number in range(rounds * 6):
            goal = store.notes.add("goal", f"goal {number}")
            store.checklists.add(goal, "one", "two")
            store.entities.put("host", f"h{number % 7}", attrs={"a": number})

    def purge() -> None:
        for _ in range(rounds):
            store.forget(store.notes.list(limit=1)[0])

    def look() -> None:
        for number in range(rounds):
            seq = 1 + (number * 7919) % store.log.head().seq
            with store.at(seq) as past:
                assert past.log.head().seq == seq
                assert past.stats().records["note"] <= seq
                past.resume()
                past.history(limit=10)
                assert len(past.notes.list()) <= seq

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001  # told by the test, of whatever kind
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (write, purge, look, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert store.verify(replay=True).problems == ()


def test_one_thread_reads_within_its_reading(store: Store) -> None:
    """A reading inside a reading of the same thread shares it, as on the store."""
    *_, last = sample(store)
    past = store.at(last)
    with past._binding.reading():
        assert past.resume().text
        assert past.history().changes


def test_a_store_opened_for_reading_has_a_past(opened: Callable[..., Store]) -> None:
    """A view needs no right to write."""
    with opened() as store:
        seqs = list(sample(store))
        expected = tables(store.at(seqs[3]))
    assert tables(opened(read_only=True).at(seqs[3])) == expected


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_folds_its_own(store: Store, path: Path) -> None:
    """A child that inherited a view reads it, by a connection of its own; the parent reads on."""
    *_, last = sample(store)
    store.close()
    script = """
import os, sys
from agentmem import Store
store = Store.open(sys.argv[1], project="acme", key=bytes(range(32)))
past = store.at(int(sys.argv[2]))
before = past.resume().text
pid = os.fork()
if pid == 0:
    store.notes.add("fact", "written by the child")
    os._exit(0 if past.resume().text == before and store.at(int(sys.argv[2])).resume().text == before else 1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
assert past.resume().text == before
print(len(before))
"""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_KEY")}
    env["PYTHONPATH"] = str(Path(agentmem.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script, str(path), str(last - 2)],
        capture_output=True, text=True, env=env, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="this system has no timers that interrupt")
def test_an_interrupt_leaves_nothing_half_folded(store: Store) -> None:
    """Wherever a fold is interrupted, the store and later views are as they should be."""
    with store.transaction():
        goal = store.notes.add("goal", "Check")
        store.notes.add_many([NewNote("step", f"Step {number}", parent=goal) for number in range(300)])
    seq = store.log.head().seq
    expected = tables(store)
    kept: list[object] = []

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupted(call: Callable[[], object], seconds: float) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, seconds)
            kept.append(call())  # what is dropped would be closed here, where nobody hears of the interrupt
            signal.setitimer(signal.ITIMER_REAL, 0)
            for _ in range(2):  # where Python looks whether a signal came
                pass
        signal.setitimer(signal.ITIMER_REAL, 0)

    former = signal.signal(signal.SIGALRM, interrupt)
    try:
        for step in range(1, 40):
            interrupted(lambda: store.at(seq), step * 0.0004)
            past = store.at(seq)
            past.database.unfold()
            interrupted(past.notes.list, step * 0.0004)
            assert tables(past) == expected
            past.close()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert tables(store) == expected


# Purges and keys


def test_a_purge_reaches_a_view_that_is_open(store: Store) -> None:
    """What is purged in the present is gone from a view of before it, at once and from its memory."""
    note = store.notes.add("fact", "hunter2", body="the password")
    keep = store.notes.add("fact", "kept")
    past = store.at(keep.id)
    assert past.notes.get(note.id).title == "hunter2"
    store.forget(note)
    assert past.database._pool.idle == []
    assert [found.title for found in past.notes.list()] == ["kept"]
    assert "hunter2" not in past.resume().text + past.history().text + repr(past.log.read())
    with pytest.raises(NotFound, match="purged"):
        past.notes.get(note.id)


def test_a_purge_amid_a_reading_takes_the_fold_at_its_end(store: Store) -> None:
    """A reading that goes on keeps its one state to its end; then what was purged is gone from memory."""
    note = store.notes.add("fact", "hunter2")
    past = store.at(note.id)
    purged = threading.Thread(target=lambda: store.forget(note.id))
    with past._binding.reading() as view:
        purged.start()
        purged.join()
        assert view.row("SELECT title FROM note WHERE id = ?", (note.id,)) == ("hunter2",)
    assert past.database._pool.idle == []
    assert past.notes.list() == ()


def test_a_purge_by_another_opening_reaches_a_view(opened: Callable[..., Store]) -> None:
    """Also what somebody else purged; it is noticed by the epoch in the file, before anything is read."""
    here, there = opened(), opened()
    note = here.notes.add("fact", "hunter2")
    past = here.at(note.id)
    assert past.notes.list()[0].title == "hunter2"
    there.forget(note.id)
    assert past.notes.list() == ()
    assert "hunter2" not in repr(tables(past))


def test_what_a_redacted_record_was_then_reads_as_purged(store: Store) -> None:
    """A view of before a redaction has nothing of the record, and says so; one of after it has what stays."""
    note = store.notes.add("fact", "hunter2")
    edited = store.notes.update(note, title="the password")
    past = store.at(edited.revision)
    store.redact(note)
    now = store.at(store.log.head().seq)
    for view in (past, store.at(note.id)):
        assert "hunter2" not in repr(tables(view))
        assert view.notes.list() == ()
        with pytest.raises(NotFound, match="purged"):
            view.notes.get(note.id)
    assert now.notes.get(note.id).title == "the password"


def test_half_an_entity_is_not_shown_for_the_whole(store: Store) -> None:
    """Where one attribute was redacted, the moments whose events were erased with it read as purged, not as complete."""
    host = store.entities.put("host", "h1", attrs={"os": "linux"})
    store.entities.put("host", "h1", attrs={"password": "hunter2", "up": True})
    between = store.entities.mark("host", ["h1"], {"tls": "pass"})
    store.entities.put("host", "h1", attrs={"password": None})
    seq = store.log.head().seq - 1
    assert between.changed == 1
    store.redact(host, attr="password")
    past = store.at(seq)
    assert list(past.entities.query("host")) == []
    with pytest.raises(NotFound, match="purged"):
        past.entities.get(host.id)
    with pytest.raises(NotFound):
        past.entities.get("host:h1")
    assert store.at(host.id).entities.get("host:h1").attrs == {"os": "linux"}
    assert store.at(store.log.head().seq).entities.get("host:h1") == store.entities.get("host:h1")


def test_a_view_goes_on_under_a_new_key(opened: Callable[..., Store]) -> None:
    """After the file was given another key a view that is open reads on, and so does one that is opened."""
    store = opened()
    *_, last = sample(store)
    past = store.at(last - 2)
    expected = tables(past)
    store.rekey(bytes(range(1, 33)))
    assert tables(past) == expected
    assert tables(store.at(last - 2)) == expected


# Replay, which a view is


def test_a_fold_reads_no_whole_table_for_an_event(store: Store) -> None:
    """Each statement of a fold goes by a key or an index: else the time would grow with the square of the log."""
    list(sample(store))
    store.undo(store.log.head().seq)
    store.forget(2)
    scans: list[str] = []

    def told(trace: dict[str, Any]) -> None:
        if trace["stmt_status"].get("SQLITE_STMTSTATUS_FULLSCAN_STEP"):
            scans.append(trace["sql"])

    with store.database.read() as source:
        target = replay.empty(KINDS, FUNCTIONS)
        target.trace_v2(apsw.SQLITE_TRACE_PROFILE, told)
        from agentmem.log.ledger import events

        replay.apply_all(target, KINDS, events(source, KINDS))
        target.trace_v2(0)
        target.close()
    assert scans == []


def test_a_folded_database_has_the_indexes_of_the_file(store: Store) -> None:
    """Queries name the index they go by: a fold that serves them has every index of every projection."""
    sql = "SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL ORDER BY name"
    with store.database.read() as source:
        target = replay.fold(source, KINDS, FUNCTIONS)
        names = {name for (name, _) in target.execute(sql)}
        wanted = {
            row[0] for row in source.execute(sql.replace("name, sql", "name, tbl_name")) if row[1] in KINDS.projections
        }
        past = store.at(0)
        with past.database.read() as connection:
            found = {row[0] for row in connection.execute(sql.replace("sqlite_schema", "sqlite_temp_schema"))}
        target.close()
    assert names == wanted
    assert wanted <= found


def test_a_view_is_a_past_database(store: Store) -> None:
    """The moment can be asked for, and the view says in its representation what it is."""
    note = store.notes.add("fact", "one")
    past = store.at(note.id)
    assert isinstance(past.database, PastDatabase)
    assert (past.moment.seq, past.moment.name, past.moment.partial) == (note.id, "acme", False)
    assert f"seq={note.id}" in repr(past)
