"""Writing notes: against the same statements by hand, one by one, and many in one transaction."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentmem.engine.connection import connect
from benchmarks.corpus import NOTE_WORDS, batches, corpus, new_note, opened
from benchmarks.measure import Figure, Times
from benchmarks.run import Setting
from benchmarks.words import Words


def figures(setting: Setting) -> list[Figure]:
    """Ratios on disk and on tmpfs, into a new file and into the large one; bulk rates."""
    found = []
    places = {"disk": setting.disk, "tmpfs": setting.memory}
    for name, directory in places.items():
        if directory is None:
            continue
        found += one_by_one(setting, name, directory, None)
        if not setting.quick:
            large = corpus(setting.directory, "lifelike", setting.notes, setting.goals)
            found += one_by_one(setting, name, directory, large)
    for name, directory in places.items():
        if directory is not None:
            found.append(bulk(setting, name, directory))
    return found


def one_by_one(setting: Setting, place: str, directory: Path, base: Path | None) -> list[Figure]:
    """Durable `notes.add` and the same statements by hand, in turn, each into a copy of the same file."""
    rounds = setting.rounds(1000)
    words = Words(seed=5)
    notes = [new_note(words, "fact") for _ in range(rounds)]
    paths = [directory / f"{name}.db" for name in ("harvest", "library", "by-hand")]
    for path in paths:
        removed(path)
    if base is None:
        with opened(paths[0]) as store:
            store.notes.add("goal", "The first note")
    else:
        shutil.copyfile(base, paths[0])
    for path in paths[1:]:
        shutil.copyfile(paths[0], path)
    statements = _harvested(paths[0], notes)
    store, hand = opened(paths[1]), ByHand(paths[2], "note_search_insert")
    times = {"library": Times(), "by hand": Times()}
    for number, (note, rows) in enumerate(zip(notes, statements, strict=True)):
        calls: list[tuple[str, Callable[[], Any]]] = [
            ("library", lambda note=note: store.notes.add(note.kind, note.title, body=note.body)),
            ("by hand", lambda rows=rows: hand.write(rows)),
        ]
        for name, call in calls if number % 2 else reversed(calls):
            times[name].time(call)
    same = _same(store, hand)
    store.close()
    hand.connection.close()
    for path in paths:
        removed(path)
    library, by_hand = times["library"], times["by hand"]
    into = "a new file" if base is None else f"{setting.notes} notes"
    return [
        Figure("write", f"notes.add of {NOTE_WORDS} words into {into} on {place}: by hand / library",
               by_hand.median / library.median, "×", 0.6, least=True,
               more={"by cpu": round(by_hand.cpu_median / library.cpu_median, 3), "library ms": round(library.median, 3),
                     "cpu": round(library.cpu_median, 3), "by hand ms": round(by_hand.median, 3), "same rows": same})
    ]  # fmt: skip


class ByHand:
    """The statements of one write with every value known, on a connection with the same pragmas.

    Args:
        path: The file.
        trigger: The trigger that keeps the index, which is done by hand as well.
    """

    def __init__(self, path: Path, trigger: str) -> None:
        store = opened(path)
        opening = store.database._pool.opening
        store.close()
        self.connection = connect(opening, "writer")
        self.connection.execute(f"DROP TRIGGER {trigger}")

    def write(self, rows: tuple[tuple[str, tuple[Any, ...]], ...]) -> None:
        """One durable transaction."""
        execute = self.connection.execute
        execute("BEGIN IMMEDIATE")
        for sql, values in rows:
            execute(sql, values)
        execute("COMMIT")


def _harvested(path: Path, notes: list[Any]) -> list[tuple[tuple[str, tuple[Any, ...]], ...]]:
    """The rows that the library makes of the notes: event, note, index row, each with its INSERT."""
    with opened(path, durability="normal") as store:
        first = store.log.head().seq + 1
        store.notes.add_many(notes)
        with store.database.read() as connection:
            columns = {}
            for table, key in (("event", "seq"), ("note", "id"), ("search_content", "id")):
                rows = connection.execute(f"SELECT * FROM {table} WHERE {key} >= ? ORDER BY {key}", (first,)).fetchall()
                columns[table] = rows
    inserts = {
        table: f"INSERT INTO {name} VALUES ({', '.join('?' * len(columns[table][0]))})"
        for table, name in (
            ("event", "event"),
            ("note", "note"),
            ("search_content", "search (rowid, title, body, extra)"),
        )
    }
    return [
        tuple((inserts[table], row) for table, row in zip(columns, rows, strict=True))
        for rows in zip(*columns.values(), strict=True)
    ]


def _same(store: Any, hand: ByHand) -> bool:
    """Whether both files hold the same number of rows in the three tables."""
    sql = "SELECT (SELECT count(*) FROM event), (SELECT count(*) FROM note), (SELECT count(*) FROM search_docsize)"
    with store.database.read() as connection:
        return bool(connection.execute(sql).fetchone() == hand.connection.execute(sql).fetchone())


def bulk(setting: Setting, place: str, directory: Path) -> Figure:
    """Notes in one transaction, `add_many` of a thousand each, their texts made before."""
    total = setting.scaled(20_000)
    made = list(batches(Words(seed=9), total, 1000))
    rates = []
    for _ in range(1 if setting.quick else 3):
        path = directory / "bulk.db"
        removed(path)
        with opened(path) as store:
            begun = time.perf_counter()
            with store.transaction():
                for notes in made:
                    store.notes.add_many(notes)
            rates.append(total / (time.perf_counter() - begun))
        removed(path)
    return Figure("write", f"{total} notes in one transaction on {place}", statistics.median(rates), "/s", 4000, least=True,
                  more={"stretch": 6000, "best": round(max(rates))})  # fmt: skip


def removed(path: Path) -> None:
    """Take a file away, with what SQLite keeps beside it."""
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


__all__ = ["ByHand", "bulk", "figures", "one_by_one", "removed"]
