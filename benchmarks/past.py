"""The past: a view of it and a replay, in time and memory by events; history and revisions of one record."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentmem import Row, Store
from agentmem.log import replay
from agentmem.records.kinds import FUNCTIONS, KINDS
from benchmarks.corpus import new_note, opened
from benchmarks.measure import Figure, series
from benchmarks.run import Setting
from benchmarks.words import Words

_BATCH = 5000  # events of one transaction


def figures(setting: Setting) -> list[Figure]:
    """`at` and the fold of a replay at a hundred thousand and at a million events; history at a hundred thousand."""
    found = []
    few = setting.scaled(100_000)
    paths = {events: _store(setting.directory, events) for events in (few, 10 * few)}
    for events, path in paths.items():
        for what in ("at", "fold", "verify"):
            runs = [_apart(path, what) for _ in range(3 if events == few else 1)]
            best = min(runs, key=lambda run: run["seconds"])
            more = {"peak MB": best["peak"], "µs each": round(best["seconds"] / events * 1e6, 1)}
            found.append(Figure("past", f"{_NAMES[what]}, {events} events", best["seconds"], "s", more=more))
    return found + _histories(setting, paths[few])


_NAMES = {
    "at": "at(the last event)",
    "fold": "a replay into memory, without the indexes of queries",
    "verify": "verify(replay=True)",
}


def _histories(setting: Setting, path: Path) -> list[Figure]:
    found = []
    with opened(path) as store:
        goal = store.notes.list(kind="goal", limit=1)[0]
        host = store.entities.query("host", limit=1).entities[0]
        note = store.notes.list(kind="fact", limit=1)[0]
        calls: dict[str, Callable[[], Any]] = {
            "history() of the project, newest first": lambda: store.history(newest_first=True),
            "history(run=…), newest first": lambda: store.history(run="bench", newest_first=True),
            "history(under=goal)": lambda: store.history(under=goal),
            "history(entity)": lambda: store.history(host),
            "revision(note, …)": lambda: store.revision(note, note.id),
            "diff(entity, …)": lambda: store.diff(host, host.id),
        }
        for name, call in calls.items():
            call()
            times = series([call] * setting.rounds(20))
            found.append(
                Figure("past", f"{name}, {store.log.head().seq} events", times.median, "ms", more=times.spread)
            )
    return found


def _apart(path: Path, what: str) -> dict[str, float]:
    """One measurement in a process of its own, so that its peak of memory is its own."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.past", what, str(path)],
        check=True, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    return json.loads(done.stdout)


def _measured(what: str, path: Path) -> dict[str, float]:
    with opened(path) as store:
        store.resume()
        kept: list[Any] = []
        before, begun = _memory("VmRSS"), time.perf_counter()
        if what == "at":
            kept.append(store.at(store.log.head().seq))
        elif what == "fold":
            with store.database.read(long=True) as connection:
                kept.append(replay.fold(connection, KINDS, FUNCTIONS, indexed=False))
        else:
            assert store.verify(replay=True)
        return {"seconds": time.perf_counter() - begun, "peak": round(_memory("VmHWM") - before)}


def _memory(name: str) -> float:
    """Megabytes by the name that Linux has for them; nothing elsewhere."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((int(line.split()[1]) / 1000 for line in lines if line.startswith(name + ":")), 0.0)


def _store(directory: Path, events: int) -> Path:
    """A store with so many events: notes of 60 words three tenths, entities two, marks three, items and ticks two."""
    path = directory / f"past-{events}.db"
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    words = Words(seed=events)
    with opened(path, durability="normal") as store:
        while (written := store.log.head().seq) < events:
            with store.transaction():
                _some(store, words, min(_BATCH, events - written), written)
    return path


def _some(store: Store, words: Words, number: int, written: int) -> None:
    tenth = max(number // 10, 1)
    goal = store.notes.add("goal", words.title(8)).id
    notes = list(store.notes.add_many([new_note(words, "fact", parent=goal) for _ in range(3 * tenth - 2)]).ids)
    step = store.notes.add("step", words.title(8), parent=goal)
    hosts = [f"host-{written + n}" for n in range(2 * tenth)]
    store.entities.put_many(
        "host", rows=[Row(key, attrs={"port": n % 9000, "os": "linux"}) for n, key in enumerate(hosts)]
    )
    store.entities.mark("host", hosts, {"tls": "pass"})
    store.entities.mark("host", hosts[:tenth], {"tls": "fail"}, detail=words.title(5))
    store.checklists.add(step, *(words.title(6) for _ in range(tenth)))
    for note in notes[:tenth]:
        store.notes.update(note, tags=["p1"])


if __name__ == "__main__":
    print(json.dumps(_measured(sys.argv[1], Path(sys.argv[2]))))
