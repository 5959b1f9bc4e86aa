"""What the file holds of vectors, and what it should hold: every text embedded anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from toy import Toy

from agentmem import Result, Store
from agentmem.recall import checked, passages
from agentmem.recall.codes import quantise
from agentmem.records import indexed

# Record, begin, finish, code.
Held: TypeAlias = list[tuple[int, int, int, bytes]]


class Forgetful(Toy):
    """A toy that keeps nothing of the texts it is given."""

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        return np.stack([self._vector(text) for text in texts])


def held(store: Store) -> Held:
    """The vectors in the file, by record and place."""
    with store.database.read() as connection:
        rows: list[Any] = connection.execute("SELECT record, begin, finish, code FROM vector").fetchall()
    return sorted(rows)


def wanted(store: Store, model: Toy) -> Held:
    """The vectors of every text that the full-text index has."""
    with store.database.read() as connection:
        records = [row[0] for row in indexed.piece(connection, 0, 1_000_000)]
        found = []
        for piece in passages.windows(model, passages.texts(connection, records)):
            code = quantise(checked.embedded(model, [piece.text]))[0][0].tobytes()
            found.append((piece.record, piece.begin, piece.finish, code))
    return sorted(found)


def meta(store: Store, name: str) -> str | None:
    """A row of `meta`."""
    with store.database.read() as connection:
        row: Any = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return None if row is None else str(row[0])


def raw(store: Store, sql: str, *values: Any) -> None:
    """One statement on the file, behind the library's back."""
    with store.database.write() as connection:
        connection.execute(sql, values)


def written(store: Store) -> dict[str, int]:
    """A record of each type that has text, some with long ones; their ids."""
    goal = store.notes.add("goal", "Move to the queue", body="What was planned for the queue. " * 120)
    fact = store.notes.add("fact", "The broker restarts at night", basis="Seen in its log", parent=goal)
    store.notes.add("fact", "Restarts take a minute", parent=goal)
    host = store.entities.put("host", "a.example.com", attrs={"os": "debian", "port": 443})
    store.entities.mark("host", [host], {"tls": Result("fail", detail="It offers an old cipher"), "dns": "pass"})
    item = store.checklists.add(goal, "Read one message", "Acknowledge it").ids[0]
    summary = store.summarize(goal, work="Read the manual", result="Half of it moved")
    point = store.checkpoint("In the middle of the move", task=goal)
    return {
        "goal": goal.id, "fact": fact.id, "host": host.id, "item": item, "summary": summary.id, "checkpoint": point.id,
    }  # fmt: skip
