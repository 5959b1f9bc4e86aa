"""The life of a view of the past: threads, forks, interrupts, purges, new keys, and the replay beneath it."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import apsw
import pytest
from views import sample, tables

import agentmem
from agentmem import Closed, NewNote, NotFound, Store
from agentmem.log import replay
from agentmem.past.at import PastDatabase
from agentmem.records.kinds import FUNCTIONS, KINDS

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
# An interrupt that falls into the callback of a weak reference is only reported: Python has nobody to raise it for.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
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
