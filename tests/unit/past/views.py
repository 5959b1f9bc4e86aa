"""Views of the past for the tests of `store.at`: some of everything written, and the tables as a reading sees them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentmem import Result, Store
from agentmem.records.kinds import KINDS


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
