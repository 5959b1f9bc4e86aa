"""Stores full of notes, in two shapes.

`lifelike`: goals begun one after the other, twenty worked on at a time, steps in two levels, attempts that failed with
a reason, decisions, questions, facts, lessons, checklists, checkpoints and summaries; nine tenths of the goals that lie
behind are done.

`untouched`: every note beneath its goal, written in turn to all goals and left in its first status: thousands of open
steps and attempts, and each goal's notes spread over the whole file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentmem import NewNote, Store
from agentmem.engine.migrations import SCHEMA
from benchmarks.words import Words

KEY = b"benchmark key of 32 bytes, raw.."
PROJECT = "bench"
NOTE_WORDS = 60
TITLE_WORDS = 8
_BATCH = 2000
_LIVE = 20
_VERSION = 4


def opened(path: Path, **options: Any) -> Store:
    """The store at a path, made if it is not there."""
    return Store.open(path, project=PROJECT, key=KEY, author="bench", run="bench", **options)


def new_note(words: Words, kind: str, **options: Any) -> NewNote:
    """A note of `NOTE_WORDS` words, title included."""
    body = words.text(NOTE_WORDS - TITLE_WORDS)
    return NewNote(kind, words.title(TITLE_WORDS), body=body, **options)  # type: ignore[arg-type]


def corpus(directory: Path, shape: str, notes: int, goals: int) -> Path:
    """The path of a store with so many notes, made if it is not in the directory yet for this schema."""
    statements = "\n".join(statement for migration in SCHEMA for statement in migration.script)
    stamp = hashlib.sha256(f"{_VERSION} {statements}".encode()).hexdigest()[:10]
    path = directory / f"{shape}-{notes}-{goals}-{stamp}.db"
    if not path.exists():
        temporary = path.with_suffix(".part")
        for suffix in ("", "-wal", "-shm"):
            Path(f"{temporary}{suffix}").unlink(missing_ok=True)
        with opened(temporary, durability="normal") as store:
            _fill(store, shape, notes, goals)
        temporary.rename(path)
    return path


def _fill(store: Store, shape: str, notes: int, goals: int) -> None:
    words = Words(seed=notes * 7 + goals)
    made = _Untouched(store, words, goals) if shape == "untouched" else _Lifelike(store, words, notes, goals)
    written = 0
    while written < notes:
        with store.transaction():
            written += made.some(min(_BATCH, notes - written))


class _Untouched:
    """The goals first, then the other kinds beneath them in turn."""

    kinds = ("step", "attempt", "fact", "decision", "question", "lesson", "fact")

    def __init__(self, store: Store, words: Words, goals: int) -> None:
        self.store, self.words, self.wanted = store, words, goals
        self.goals: list[int] = []
        self.turn = 0

    def some(self, number: int) -> int:
        """Write so many notes."""
        if not self.goals:
            new = [new_note(self.words, "goal") for _ in range(min(number, self.wanted))]
            self.goals += self.store.notes.add_many(new).ids
            return len(new)
        new = [self._next() for _ in range(number)]
        self.store.notes.add_many(new)
        return number

    def _next(self) -> NewNote:
        self.turn += 1
        # One kind for a whole round of goals, so that each goal has all kinds.
        kind = self.kinds[self.turn // len(self.goals) % len(self.kinds)]
        return new_note(self.words, kind, parent=self.goals[self.turn % len(self.goals)])


class _Lifelike:
    """Per 500 notes of a goal: 12 steps with 4 steps each, and the rest beneath any of them."""

    def __init__(self, store: Store, words: Words, notes: int, goals: int) -> None:
        self.store, self.words, self.random = store, words, words.random
        self.per_goal = max(notes // goals, 2)
        self.left = goals
        self.live: list[dict[str, Any]] = []

    def some(self, number: int) -> int:
        """Write so many notes, and what comes with them."""
        for _ in range(number):
            self._one()
        return number

    def _one(self) -> None:
        if self.left and len(self.live) < _LIVE:
            self.left -= 1
            goal = self._add("goal", status="active" if self.random.random() < 0.3 else None)
            self.live.append({"goal": goal, "notes": 1, "steps": [], "open": []})
            return
        state = self.random.choice(self.live)
        state["notes"] += 1
        self._grow(state)
        if state["notes"] >= self.per_goal and self.left:
            self._finish(state)

    def _grow(self, state: dict[str, Any]) -> None:
        chance = self.random.random()
        if chance < 0.12 or not state["steps"]:
            self._step(state)
        elif chance < 0.32:
            self._attempt(state)
        else:
            kind = self.random.choices(("fact", "decision", "question", "lesson"), (60, 20, 12, 8))[0]
            options: dict[str, Any] = {}
            if kind == "question":
                options["status"] = "done" if self.random.random() < 0.8 else "open"
            if kind == "fact":
                options["confidence"] = round(self.random.random(), 2)
                options["basis"] = self.words.text(6)
            if kind == "decision" and self.random.random() < 0.05:
                options["pin"] = True
            self._add(kind, parent=self._place(state), **options)
        if self.random.random() < 0.02:
            self.store.checkpoint(self.words.text(40), task=state["goal"])

    def _place(self, state: dict[str, Any]) -> int:
        recent = state["steps"][-6:]
        return self.random.choice([*recent, state["goal"]]) if recent else state["goal"]

    def _step(self, state: dict[str, Any]) -> None:
        beneath = self.random.choice(state["steps"]) if state["steps"] and self.random.random() < 0.7 else state["goal"]
        tags = (f"p{self.random.randrange(4)}",) if self.random.random() < 0.3 else ()
        active = "active" if self.random.random() < 0.1 else None
        step = self._add("step", parent=beneath, tags=tags, status=active)
        if beneath == state["goal"]:
            state["steps"].append(step)
        state["open"].append(step)
        if self.random.random() < 0.3:
            self.store.checklists.add(step, *(self.words.title(6) for _ in range(self.random.randrange(2, 9))))
            self.store.checklists.done(step, 1)
        if len(state["open"]) > 10:
            done = state["open"].pop(self.random.randrange(8))
            self.store.summarize(done, work=self.words.text(20), result=self.words.text(20))

    def _attempt(self, state: dict[str, Any]) -> None:
        outcome = self.random.choices(("worked", "failed", "unclear", "active"), (45, 40, 10, 5))[0]
        why = {"why": self.words.text(15)} if outcome == "failed" else {}
        self._add("attempt", parent=self._place(state), status=outcome, **why)

    def _finish(self, state: dict[str, Any]) -> None:
        self.live.remove(state)
        if self.random.random() < 0.9:
            self.store.summarize(state["goal"], work=self.words.text(40), result=self.words.text(40))

    def _add(self, kind: str, **options: Any) -> int:
        note = new_note(self.words, kind, **options)
        return self.store.notes.add_many([note]).ids[0]


def goals_of(store: Store, number: int) -> list[int]:
    """Goals spread over the store, unfinished ones first."""
    with store.database.read() as connection:
        rows = connection.execute(
            "SELECT id FROM note WHERE kind = 'goal' ORDER BY status IN ('open', 'active') DESC, id"
        ).fetchall()
    return _spread([row[0] for row in rows], number)


def steps_of(store: Store, number: int) -> list[int]:
    """Steps spread over the store that have something beneath them, if there are such."""
    with store.database.read() as connection:
        rows = connection.execute(
            "SELECT id FROM note WHERE kind = 'step'"
            " ORDER BY EXISTS (SELECT 1 FROM note AS child WHERE child.parent = note.id) DESC, id"
        ).fetchall()
    found = [row[0] for row in rows]
    return _spread(found[: max(len(found) // 10, number)], number)


def _spread(found: list[int], number: int) -> list[int]:
    return found[:: max(len(found) // number, 1)][:number]


def batches(words: Words, notes: int, size: int) -> Iterator[list[NewNote]]:
    """Facts in lists of a size."""
    for start in range(0, notes, size):
        yield [new_note(words, "fact") for _ in range(min(size, notes - start))]
