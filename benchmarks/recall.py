"""`recall` by words and meaning: beside embedding its query alone, after opening, with filters; what embedding costs writes.

Each query is new, so that no vector of a query is remembered. It is embedded once by itself and once inside `recall`, in
turn, and `beyond` is the median of the differences. A part of the records is embedded by the shipped model, the others
get mixtures of their vectors, written as the background work would: embedding 100,000 notes takes many minutes, and the
time of a search does not depend on what a vector means.
"""

from __future__ import annotations

import json
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentmem import Store
from agentmem.recall import passages
from agentmem.recall.codes import quantise
from agentmem.recall.embedder import shipped
from agentmem.recall.vectors import Index
from benchmarks.corpus import KEY, NOTE_WORDS, batches, corpus, goals_of, new_note, opened
from benchmarks.measure import Figure, Times
from benchmarks.run import Setting
from benchmarks.search import COMMON, MIDDLE, MIX, RARE
from benchmarks.vectors import grown
from benchmarks.words import Words

BEYOND = 12  # ms that recall may take beside embedding the query
SAMPLE = 1500  # records of a store that are embedded; the others get mixtures
OTHERS = 5_000  # notes of a second project
FILTERS: dict[str, dict[str, Any]] = {
    "kind=decision": {"kind": "decision"},
    "kind=summary": {"kind": "summary"},
    "status=open": {"status": "open"},
    "tag=p1": {"tag": "p1"},
}
# As people ask, with words of the corpus by their ranks.
QUESTIONS = (
    ("what did we decide about {} and {}?", (MIDDLE, RARE)),
    ("why has the {} been {} after all", (COMMON, MIDDLE)),
    ("is there anything on {} that was not done yet", (RARE,)),
    ("how can we {} the {} if {} is not there?", (MIDDLE, RARE, COMMON)),
    ("which of the {} had no {}", (COMMON, RARE)),
    ("do they {} when it is {}", (COMMON, COMMON)),
)


def figures(setting: Setting) -> list[Figure]:
    """All of it; the sizes in turn."""
    sizes = (500, setting.notes) if setting.quick else (1_000, 10_000, setting.notes)
    found: list[Figure] = []
    for notes in sizes:
        found += _size(setting, notes)
    found += _filters(setting)
    found += _first(setting)
    found.append(_background(setting))
    return found + _writes(setting)


# Queries


class Queries:
    """Ever new queries of the stated mix."""

    def __init__(self, setting: Setting, notes: int) -> None:
        self.words = Words(seed=notes * 7 + setting.goals)
        self.random = self.words.random

    def mix(self, number: int) -> list[str]:
        """Words, in the mix of `benchmarks.search`."""
        kinds = self.random.choices([ranks for ranks, _ in MIX.values()], [part for _, part in MIX.values()], k=number)
        return [" ".join(self.words.of_rank(*rank) for rank in ranks) for ranks in kinds]

    def questions(self, number: int) -> list[str]:
        """Sentences around words of the corpus."""
        asked = [self.random.choice(QUESTIONS) for _ in range(number)]
        return [text.format(*(self.words.of_rank(*rank) for rank in ranks)) for text, ranks in asked]


class Beside:
    """Times of `recall` and of embedding the same query alone, one after the other, in changing order."""

    def __init__(self, store: Store, queries: Sequence[str], **options: Any) -> None:
        self.recall, self.embed = Times(), Times()
        self.hits = self.used = 0
        for number, query in enumerate(queries):
            calls: list[tuple[Times, Callable[[], Any]]] = [
                (self.embed, lambda query=query: shipped().embed_queries([query])),
                (self.recall, lambda query=query: self._ask(store, query, options)),
            ]
            for times, call in calls if number % 2 else reversed(calls):
                times.time(call)

    def _ask(self, store: Store, query: str, options: dict[str, Any]) -> None:
        found = store.recall(query, **options)
        self.hits += len(found)
        self.used += found.meaning == "used"

    def beyond(self, of: str = "wall") -> float:
        """The median of what `recall` takes more."""
        pairs = zip(getattr(self.recall, of), getattr(self.embed, of), strict=True)
        return statistics.median(whole - part for whole, part in pairs)

    @property
    def more(self) -> dict[str, float]:
        """What a row says beside that."""
        asked = len(self.recall.wall)
        return {
            "by cpu": round(self.beyond("cpu"), 2),
            "recall": round(self.recall.median, 2),
            "embedding": round(self.embed.median, 2),
            "times": round(self.recall.cpu_median / self.embed.cpu_median, 2),
            "p95": self.recall.spread["p95"],
            "n": asked,
            "hits": round(self.hits / asked, 1),
            "by meaning": round(self.used / asked, 2),
        }


def _size(setting: Setting, notes: int) -> list[Figure]:
    """Both kinds of queries over one store."""
    found = []
    queries = Queries(setting, notes)
    kinds = {"the mix of words": queries.mix, "questions": queries.questions}
    with opened(_vectored(setting, notes)) as store:
        store.recall(queries.mix(1)[0])
        for name, make in kinds.items():
            number = setting.scaled(200)
            first = Beside(store, make(number))
            again = Beside(store, make(2 * number))
            found.append(Figure("recall", f"{name}, {notes:,} notes, beyond embedding the query", again.beyond(), "ms",
                                BEYOND if notes == 100_000 else None,
                                more=again.more | {"first time": round(first.beyond(), 2)}))  # fmt: skip
    return found


def _filters(setting: Setting) -> list[Figure]:
    """The mix of words, narrowed: in the large store, and in one of two projects."""
    found = []
    queries = Queries(setting, setting.notes)
    number = setting.scaled(100)
    with opened(_vectored(setting, setting.notes)) as store:
        asked = FILTERS | {"under= a goal": {"under": goals_of(store, 1)[0]}}
        found += [_narrowed(store, name, queries, number, options) for name, options in asked.items()]
    with opened(_two_projects(setting)) as store:
        for name, project in {"the large of two projects": None, "the small one": "other", "both": "*"}.items():
            found.append(_narrowed(store, name, queries, number, {"project": project}))
    return found


def _narrowed(store: Store, name: str, queries: Queries, number: int, options: dict[str, Any]) -> Figure:
    Beside(store, queries.mix(number), **options)
    taken = Beside(store, queries.mix(number), **options)
    return Figure("recall", f"{name}, beyond embedding the query", taken.beyond(), "ms", more=taken.more)


# The first one

_CHILD = """
import json, sys, time
begun = time.perf_counter()
from benchmarks.corpus import opened
imported = time.perf_counter()
with opened(sys.argv[1]) as store:
    done = time.perf_counter()
    if sys.argv[3] == "loaded":
        from agentmem.recall.embedder import shipped
        shipped().embed(["ready"])
    loaded = time.perf_counter()
    store.recall(sys.argv[2])
    first = time.perf_counter()
    print(json.dumps([imported - begun, done - imported, loaded - done, first - loaded, first - done]), flush=True)
"""


def _first(setting: Setting) -> list[Figure]:
    """The first recall of a process, the file in the system's cache."""
    path = _vectored(setting, setting.notes)
    queries = Queries(setting, setting.notes)
    parts: dict[str, list[list[float]]] = {"whole": [], "loaded": []}
    answers, codes = Times(), Times()
    for query in queries.mix(setting.rounds(15)):
        for way, seen in parts.items():
            begun = time.perf_counter()
            with subprocess.Popen(
                [sys.executable, "-c", _CHILD, str(path), query, way], stdout=subprocess.PIPE, text=True
            ) as child:
                assert child.stdout is not None  # asked for
                line = child.stdout.readline()
                if way == "whole":
                    answers.wall.append((time.perf_counter() - begun) * 1e3)
            seen.append([1e3 * seconds for seconds in json.loads(line)])
        with opened(path, embedder=None) as store, store._binding.reading() as view:
            codes.time(lambda view=view: Index(shipped().dim).follow(view))

    def median(way: str, part: int) -> float:
        return round(statistics.median(one[part] for one in parts[way]), 1)

    n = len(answers.wall)
    return [
        Figure("recall", f"process start to the first answer, {setting.notes:,} notes", answers.median, "ms",
               more={"import": median("whole", 0), "open": median("whole", 1), "n": n}),
        Figure("recall", f"open to the first answer, {setting.notes:,} notes", median("whole", 4), "ms",
               more={"loading the model": median("loaded", 2), "then the answer": median("loaded", 3),
                     "reading the codes": round(codes.median, 1), "n": n}),
    ]  # fmt: skip


# Embedding in the background, and what a write has of it


def _background(setting: Setting) -> Figure:
    """Notes embedded by the worker, beside the embedder alone on the same texts."""
    number = setting.scaled(1000)
    path = setting.disk / "background.db"
    rates, alone, tokens = [], [], 0
    for round_ in range(setting.rounds(3)):
        _remove(path)
        words = Words(seed=31 + round_)
        with opened(path, embedder=None) as store:
            notes = [note for batch in batches(words, number, 500) for note in batch]
            store.notes.add_many(notes)
        texts = [f"{note.title}\n{note.body}" for note in notes]
        begun = time.perf_counter()
        shipped().embed(texts)
        alone.append(number / (time.perf_counter() - begun))
        with opened(path) as store:
            begun = time.perf_counter()
            store.wait_for_index()
            rates.append(number / (time.perf_counter() - begun))
        tokens = sum(len(shipped()._here.tokens.ids([text], 256)[0]) for text in texts)
    _remove(path)
    return Figure("recall", f"notes of {NOTE_WORDS} words embedded in the background", statistics.median(rates), "/s",
                  more={"the embedder alone": round(statistics.median(alone), 1),
                        "tokens of a note": round(tokens / number, 1), "n": number})  # fmt: skip


def _writes(setting: Setting) -> list[Figure]:
    """`notes.add` with an embedder and without, in turn; then while the background is at work."""
    number = setting.scaled(400)
    words = Words(seed=37)
    before = [new_note(words, "fact") for _ in range(setting.scaled(2000))]
    paths = [setting.disk / f"{name}.db" for name in ("without", "with")]
    _remove(*paths)
    with opened(paths[0], embedder=None) as without, opened(paths[1]) as embeds:
        stores = {"without": without, "with": embeds}
        for store in stores.values():
            store.notes.add_many(before)
        idle = {name: Times() for name in stores}
        for place, note in enumerate(_notes(words, number)):
            for name in stores if place % 2 else reversed(stores):
                idle[name].time(lambda name=name, note=note: stores[name].notes.add("fact", note.title, body=note.body))
                stores[name]._shared._wrote_at = None  # as in a process that began just now
        embeds._shared.meaning.work()
        busy = Times()
        for note in _notes(words, number):
            busy.time(lambda note=note: embeds.notes.add("fact", note.title, body=note.body))
        at_work = not embeds.wait_for_index(0)
    _remove(*paths)
    return [
        Figure("recall", "notes.add with an embedder / without", idle["with"].median / idle["without"].median, "×",
               more={"by cpu": round(idle["with"].cpu_median / idle["without"].cpu_median, 3),
                     "with ms": round(idle["with"].median, 3), "without ms": round(idle["without"].median, 3), "n": number}),
        Figure("recall", "notes.add while the background embeds / without", busy.median / idle["without"].median, "×",
               more={"by cpu": round(busy.cpu_median / idle["without"].cpu_median, 3), "ms": round(busy.median, 3),
                     "p95": busy.spread["p95"], "at work to the end": at_work, "n": number}),
    ]  # fmt: skip


def _notes(words: Words, number: int) -> Iterator[Any]:
    return (new_note(words, "fact") for _ in range(number))


# Stores with vectors


def _vectored(setting: Setting, notes: int) -> Path:
    """The path of a lifelike store with vectors of all its records."""
    base = corpus(setting.directory, "lifelike", notes, max(notes * setting.goals // setting.notes, 2))
    return _copied(setting, base, "", lambda _: None)


def _two_projects(setting: Setting) -> Path:
    """The large store with a second project in it, with vectors."""
    base = corpus(setting.directory, "lifelike", setting.notes, setting.goals)
    return _copied(setting, base, "-two", lambda path: _second(path, setting.scaled(OTHERS)))


def _second(path: Path, notes: int) -> None:
    """Add a project."""
    with Store.open(path, project="other", key=KEY, embedder=None, durability="normal") as store:
        for some in batches(Words(seed=41), notes, 1000):
            store.notes.add_many(some)


def _copied(setting: Setting, base: Path, name: str, change: Callable[[Path], None]) -> Path:
    stamp = shipped().id.rpartition(":")[2][:8]
    path = setting.directory / f"{base.stem}{name}-vectors-{stamp}.db"
    if not path.exists():
        temporary = path.with_suffix(".part")
        _remove(temporary)
        shutil.copyfile(base, temporary)
        change(temporary)
        _embed(temporary)
        temporary.rename(path)
    return path


def _embed(path: Path) -> None:
    """Give each record its vector: a part of them their own, the others mixtures of these."""
    with opened(path, embedder=None, durability="normal") as store:
        with store.database.read() as connection:
            records = [record for (record,) in connection.execute("SELECT id FROM search_docsize ORDER BY id")]
            texts = passages.texts(connection, records[:: max(len(records) // SAMPLE, 1)])
        own = {piece.record: piece.text for piece in passages.windows(shipped(), texts, most=1)}
        vectors = grown(shipped().embed(list(own.values())), len(records))
        order = [*own, *(record for record in records if record not in own)]
        codes, scales = quantise(vectors)
        row = {record: (float(scale), code.tobytes()) for record, scale, code in zip(order, scales, codes, strict=True)}
        with store.database.write() as connection:
            connection.execute("DELETE FROM vector")
            connection.executemany(
                "INSERT INTO vector (record, begin, finish, scale, code) VALUES (?, 0, 0, ?, ?)",
                ((record, *row[record]) for record in records),
            )
            connection.executemany(
                "INSERT OR REPLACE INTO meta (name, value) VALUES (?, ?)",
                [("embedder", shipped().id), ("embedded", str(store.log.head().seq))],
            )


def _remove(*paths: Path) -> None:
    for path in paths:
        for suffix in ("", "-wal", "-shm"):
            Path(f"{path}{suffix}").unlink(missing_ok=True)


__all__ = ["Beside", "Queries", "figures"]
