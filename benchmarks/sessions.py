"""Sessions: durable events against the same statements by hand, many sessions at once, waking a long one."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from agentmem import Store
from agentmem.harness import Harness
from benchmarks.corpus import opened
from benchmarks.measure import Figure, Times
from benchmarks.run import Setting
from benchmarks.words import Words
from benchmarks.writes import ByHand, removed

EVENT_WORDS = 60


def figures(setting: Setting) -> list[Figure]:
    """Rates, ratios, what many processes come to, and how waking grows with the length of a session."""
    found = []
    for name, directory in {"disk": setting.disk, "tmpfs": setting.memory}.items():
        if directory is not None:
            found += one_by_one(setting, name, directory)
    found += at_once(setting)
    return [*found, *waking(setting)]


def one_by_one(setting: Setting, place: str, directory: Path) -> list[Figure]:
    """Durable `session.append` and the same statements by hand, in turn, each into a file of its own."""
    rounds = setting.rounds(1000)
    words = Words(seed=5)
    texts = [words.text(EVENT_WORDS) for _ in range(rounds)]
    paths = [directory / f"session-{name}.db" for name in ("harvest", "library", "by-hand")]
    for path in paths:
        removed(path)
        with opened(path) as store:
            store.sessions.start(title="bench")
    statements = _harvested(paths[0], texts)
    store, hand = opened(paths[1]), ByHand(paths[2], "message_search_insert")
    session = store.sessions.get(2)
    times = {"library": Times(), "by hand": Times()}
    for number, (text, rows) in enumerate(zip(texts, statements, strict=True)):
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("library", lambda text=text: session.append("user.message", text)),
            ("by hand", lambda rows=rows: hand.write(rows)),
        ]
        for name, call in calls if number % 2 else reversed(calls):
            times[name].time(call)
    store.close()
    hand.connection.close()
    for path in paths:
        removed(path)
    library, by_hand = times["library"], times["by hand"]
    return [
        Figure("session", f"durable append of {EVENT_WORDS} words on {place}: by hand / library", by_hand.median / library.median,
               "×", 0.6, least=True, more={"by cpu": round(by_hand.cpu_median / library.cpu_median, 3),
                                           "library ms": round(library.median, 3), "by hand ms": round(by_hand.median, 3)}),
        Figure("session", f"durable events, one by one, on {place}", 1000 / library.median, "/s", 500, least=True),
    ]  # fmt: skip


def _harvested(path: Path, texts: list[str]) -> list[tuple[tuple[str, tuple[Any, ...]], ...]]:
    """The rows that the library makes of the texts: event, its row, its index row, and the change of the session."""
    with opened(path, durability="normal") as store:
        first = store.log.head().seq + 1
        session = store.sessions.get(2)
        with store.transaction():
            for text in texts:
                session.append("user.message", text)
        with store.database.read() as connection:
            tables = (("event", "seq"), ("message", "id"), ("search_content", "id"))
            rows = {
                table: connection.execute(f"SELECT * FROM {table} WHERE {key} >= ? ORDER BY {key}", (first,)).fetchall()
                for table, key in tables
            }
    names = {"event": "event", "message": "message", "search_content": "search (rowid, title, body, extra)"}
    inserts = {
        table: f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[table][0]))})" for table, name in names.items()
    }
    changed = "UPDATE session SET last = ?, updated_at = ?, asked = ? WHERE id = ?"
    return [
        (*((inserts[table], row) for table, row in zip(rows, each, strict=True)),
         (changed, (each[0][0], each[0][1], each[0][0], 2)))
        for each in zip(*rows.values(), strict=True)
    ]  # fmt: skip


WORKER = """
import sys
from agentmem import Store
path, first, count, turns = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
with Store.open(path, project="bench", key=bytes(range(32)), durability=sys.argv[5], busy_timeout=120) as store:
    mine = [store.sessions.get(first + at) for at in range(count)]
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(turns):
        for session in mine:
            session.append("user.message" if turn % 2 else "agent.message", f"turn {turn} of session {session.id}")
"""


def at_once(setting: Setting) -> list[Figure]:
    """200 sessions in 4 processes: events a second, and whether each has all of its own in order."""
    sessions, turns, processes = 200, setting.scaled(100), 4
    path = setting.disk / "at-once.db"
    removed(path)
    with Store.open(path, project="bench", key=bytes(range(32))) as store:
        with store.transaction():
            made = [store.sessions.start(title=f"s{at}").id for at in range(sessions)]
        assert made == list(range(made[0], made[0] + sessions))
        each = sessions // processes
        started = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, str(path), str(made[0] + at * each), str(each), str(turns), "full"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            )
            for at in range(processes)
        ]  # fmt: skip
        for process in started:
            assert process.stdout is not None
            assert process.stdout.readline().strip() == "ready"
        begun = time.perf_counter()
        for process in started:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        for process in started:
            assert process.wait(3600) == 0
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        seconds = time.perf_counter() - begun
        lost = wrong = 0
        for session in made:
            texts = [event.text for event in store.sessions.get(session).events(limit=1000)]
            lost += turns - len(texts)
            wrong += texts != [f"turn {turn} of session {session}" for turn in range(len(texts))]
        assert store.verify()
    removed(path)
    total = sessions * turns
    return [
        Figure("session", f"{total} durable events of {sessions} sessions in {processes} processes", total / seconds, "/s",
               more={"lost": lost, "out of order": wrong}),
    ]  # fmt: skip


def waking(setting: Setting) -> list[Figure]:
    """A wake of one turn in a session of so many events, the model answering at once."""
    found = {}
    for events in (1000, setting.scaled(100_000)):
        path = setting.disk / "waking.db"
        removed(path)
        words = Words(seed=3)
        with Store.open(path, project="bench", key=bytes(range(32)), durability="normal", embedder=None) as store:
            session = store.sessions.start(title="long")
            pool = [words.text(30) for _ in range(500)]
            at = 0
            while at < events:
                with store.transaction():
                    for _ in range(1000):
                        session.append("user.message" if at % 2 == 0 else "agent.message", pool[at % 500])
                        at += 1
            session.append("session.status_idle", {"stop_reason": {"type": "end_turn"}})
            harness = Harness(store, lambda request: "answered")
            session.append("user.message", "begin")
            harness.wake(session)
            times = Times()
            for number in range(setting.rounds(20)):
                session.append("user.message", f"question {number} about {pool[number % 500]}")
                times.time(partial(harness.wake, session))
            found[events] = times
        removed(path)
    short, long = found.values()
    counts = list(found)
    return [
        Figure("session", f"wake of one turn at {counts[1]} events", long.median, "ms", more=long.spread),
        Figure("session", f"the same against {counts[0]} events", long.median / short.median, "×",
               more={f"at {counts[0]} ms": round(short.median, 2)}),
    ]  # fmt: skip


__all__ = ["at_once", "figures", "one_by_one", "waking"]
