"""Commands drawn at random, as the properties of undo and purge perform them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any, TypeAlias

from hypothesis import strategies as st

from agentmem import AgentMemError, Held, NewNote, Scope, Store
from agentmem.types import STATUSES

Command: TypeAlias = tuple[int, int, int, str]
"""Which verb, two numbers that choose records and options, and the text."""

KEY = bytes(range(32))
WORDS = st.sampled_from(("alpha", "beta", "gamma", "报告", "delta one", "delta two"))
NUMBER = st.integers(0, 30)
COMMAND = st.tuples(st.integers(0, 25), NUMBER, NUMBER, WORDS)
COMMANDS = st.lists(COMMAND, max_size=14)


@contextmanager
def opened() -> Iterator[Store]:
    ticks = count(1_750_000_000_000_000)
    with tempfile.TemporaryDirectory() as directory:
        store = Store.open(f"{directory}/s.db", project="acme", key=KEY, durability="normal", clock=lambda: next(ticks))
        with store:
            yield store


def rows(store: Store, sql: str) -> list[tuple[Any, ...]]:
    with store.database.read() as connection:
        return connection.execute(sql).fetchall()


def ids(store: Store, sql: str) -> list[int]:
    return [row[0] for row in rows(store, sql)]


# Everything but which event came last, and items that are off their lists.
TABLES = (
    "SELECT id, name, created_at FROM project",
    "SELECT id, project, kind, title, body, status, tags, parent, root, position, pinned, confidence, basis, entity, why,"
    " scope, dated, source, origin, confirmed_at, confirmed_by, author, run, created_at, shut, open_items FROM note",
    "SELECT src, dst, kind, author, run, origin FROM link",
    "SELECT id, project, type, key, status, attrs, parent, confidence, origin, author, run, created_at FROM entity",
    "SELECT entity, name, result, value, detail, at, author, run, origin, project, type FROM mark",
    "SELECT id, project, type, filter, names, origin FROM checks",
    "SELECT id, note, number, text, done, done_by, done_at, position, origin FROM item WHERE removed = 0",
    "SELECT id, project, task, text, author, run, origin, at FROM checkpoint",
    "SELECT id, note, work, result, confidence, basis, author, run, origin, at FROM summary",
)


def tables(store: Store) -> list[list[tuple[Any, ...]]]:
    return [sorted(rows(store, sql), key=repr) for sql in TABLES]


def pick(found: list[int], number: int) -> int:
    return found[number % len(found)]


def perform(store: Store, command: Command, *, foreign: bool = False) -> None:
    """One of the verbs that write, on records that are there; nothing where there are none of the kind."""
    what, one, other, word = command
    notes, things = ids(store, "SELECT id FROM note"), ids(store, "SELECT id FROM entity")
    items = ids(store, "SELECT id FROM item WHERE removed = 0")
    view = store.acting(origin="web") if foreign else store
    match what:
        case 0 | 1:
            view.notes.add("goal", word)
        case 2 | 3 if notes:
            about = pick(things, other) if things and other % 2 else None
            view.notes.add("step", word, parent=pick(notes, one), body=word * 3, about=about, scope=Scope("host"))
        case 4:
            view.notes.add_many([NewNote("goal", word), NewNote("step", word, parent="$1"), NewNote("fact", word)])
        case 5 | 6 if notes:
            view.notes.update(pick(notes, one), title=word, tags=[word[:3]], pin=bool(other % 2))
        case 7 if notes:
            note = store.notes.get(pick(notes, one))
            view.notes.update(note, status=STATUSES[note.kind][other % len(STATUSES[note.kind])])
        case 8 if notes:
            view.notes.move(pick(notes, one), parent=pick(notes, other), first=bool(one % 2))
        case 9 if notes:
            view.notes.move(pick(notes, one), parent=None)
        case 10 if notes:
            view.links.add(pick(notes, one), ("depends_on", "supports")[other % 2], pick(notes, other))
        case 11 if notes:
            for link in store.links.list(pick(notes, one))[:1]:
                view.links.remove(link.src, link.kind, link.dst)
        case 12 | 13:
            view.entities.put("host", word, attrs={"port": one, "os": word if other % 2 else None})
        case 14 | 15 if things:
            view.entities.mark("host", [pick(things, one)], {("tls", "dns")[other % 2]: ("pass", "fail")[one % 2]})
        case 16 if things:
            view.entities.unmark("host", [pick(things, one)], ["tls"])
        case 17:
            view.entities.expect("host", ["tls", word.split()[0]] if one % 2 else [])
        case 18 | 19 if notes:
            view.checklists.add(pick(notes, one), word, word + "!", done=bool(other % 2))
        case 20 if items:
            item = store.get(pick(items, one))
            tick = view.checklists.undone if item.done else view.checklists.done
            tick(item.note, item)
        case 21 if items:
            item = store.get(pick(items, one))
            view.checklists.remove(item.note, item)
        case 22 if items:
            view.checklists.edit(pick(items, one), word)
        case 23 if notes:
            view.checkpoint(word, task=pick(notes, one))
        case 24 if notes:
            tasks = ids(store, "SELECT id FROM note WHERE kind IN ('goal', 'step')")
            if tasks:
                view.summarize(pick(tasks, one), work=word, result=word)
        case 25 if events := ids(store, "SELECT seq FROM event"):
            view.undo(events[-1 - one % min(len(events), 12)])


def attempt(store: Store, command: Command, *, foreign: bool = False) -> None:
    try:
        perform(store, command, foreign=foreign)
    except Held:
        raise
    except AgentMemError:
        return  # a circle, a goal beneath something, an undo that is blocked: refused as it should be
