"""Whatever a limited view is asked to do, nothing outside its note changes."""

from __future__ import annotations

from typing import Any, TypeAlias

from commands import COMMAND, COMMANDS, NUMBER, WORDS, Command, attempt, ids, opened, pick, rows
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, NotFound, Store

MORE = st.tuples(st.integers(100, 108), NUMBER, NUMBER, WORDS)
"""What the common commands have not: claims, purges, links that rule, confirmations, an undo of anything, merges."""
DURING = st.lists(COMMAND | MORE, max_size=16)
SCOPES = st.sampled_from((None, "", "attrs.os is null", "attrs.port < 15", "key startswith 'd'"))
State: TypeAlias = dict[str, list[tuple[Any, ...]]]

OF_NOTES = {
    # What is written beneath touches what is above: `touched`, and `revision` of nothing.
    "note": "SELECT id, project, kind, title, body, status, tags, parent, position, pinned, confidence, basis, entity, why,"
    " scope, source, origin, confirmed_at, author, shut, open_items, revision FROM note",
    "item": "SELECT note, id, text, done, position, removed, revision FROM item",
    "checkpoint": "SELECT coalesce(task, -1), id, text FROM checkpoint",
    "summary": "SELECT note, id, work, result, revision FROM summary",
    "link": "SELECT src, dst, kind FROM link",
    "ruling": "SELECT dst, src, kind FROM link WHERE kind IN ('answers', 'supersedes')",
    "lease": "SELECT record, run, expires_at FROM lease WHERE record IN (SELECT id FROM note)",
}
OF_ENTITIES = {
    "entity": "SELECT id, project, type, key, status, attrs, parent, revision FROM entity",
    "mark": "SELECT entity, name, result, seq FROM mark",
    "link": "SELECT src, dst, kind FROM link",
    "lease": "SELECT record, run, expires_at FROM lease WHERE record IN (SELECT id FROM entity)",
}
OF_ALL = {
    "checks": "SELECT id, names, revision FROM checks",
    "project": "SELECT id, name, revision FROM project",
    "own": "SELECT id, title, parent, position, scope, kind, pinned, entity, source FROM note WHERE id = {limit}",
}


def subtree(store: Store, limit: int) -> set[int]:
    parents = dict(rows(store, "SELECT id, parent FROM note"))

    def chain(note: int) -> list[int]:
        above = [note]
        while (parent := parents.get(above[-1])) is not None:
            above.append(parent)
        return above

    return {note for note in parents if limit in chain(note)}


def covered(store: Store, limit: int) -> set[int]:
    """The entities of the nearest scope, found anew."""
    note = store.notes.get(limit)
    while note.scope is None and note.parent is not None:
        note = store.notes.get(note.parent)
    if note.scope is None:
        return set()
    return {each.id for each in store.entities.query(note.scope.type, note.scope.where, limit=200)}


def state(store: Store, limit: int) -> tuple[State, State, State]:
    def of(asked: dict[str, str]) -> State:
        return {table: sorted(rows(store, sql.format(limit=limit)), key=repr) for table, sql in asked.items()}

    return of(OF_NOTES), of(OF_ENTITIES), of(OF_ALL)


def without(found: State, inside: set[int]) -> State:
    return {table: [row for row in of if row[0] not in inside] for table, of in found.items()}


def more(store: Store, command: Command) -> None:
    what, one, other, word = command
    notes, things = ids(store, "SELECT id FROM note"), ids(store, "SELECT id FROM entity")
    note, goal = pick(notes, one), pick(notes, other)
    match what:
        case 100:
            store.links.add(note, ("answers", "supersedes", "uses")[(one + other) % 3], goal)
        case 101:
            store.claim([note, goal] if one % 2 else pick(things or notes, other))
        case 102:
            store.claim(type="host", where="attrs.os is null" if one % 2 else None, n=2)
        case 103:
            store.release()
        case 104:
            store.acting(origin="user").confirm(pick(notes + things, one))
        case 105:
            store.redact(pick(notes + things, one))
        case 106:
            store.forget(pick(notes + things, one))
        case 107:
            store.undo(1 + (one * 31 + other) % store.log.head().seq)
        case 108 if one % 4:
            store.in_project("other").entities.put("host", word, status="up")
        case 108:
            store.projects.merge("other", collisions="merge")


def asked(store: Store, command: Command) -> None:
    if command[0] < 100:
        attempt(store, command)
        return
    try:
        more(store, command)
    except AgentMemError:
        return


@settings(deadline=None, max_examples=150)
@given(before=COMMANDS, scope=SCOPES, during=DURING)
def test_nothing_outside_the_note_changes(before: list[Command], scope: str | None, during: list[Command]) -> None:
    """Random commands of every kind, on records inside and outside, with a scope or with none."""
    with opened() as store:
        goal = store.notes.add("goal", "Above")
        step = store.notes.add("step", "The task", parent=goal)
        store.notes.add("step", "Beside", parent=goal)
        store.notes.add("step", "Within", parent=store.notes.add("step", "Part", parent=step))
        store.in_project("other").entities.put("host", "alpha")
        for command in before:
            attempt(store, command)
        if not rows(store, f"SELECT 1 FROM note WHERE id = {step.id}"):
            return  # they took it back
        if scope is not None:
            store.notes.update(step, scope=store.scope("host", where=scope or None))
        store.acting(run="w").claim(goal)
        worker = store.beneath(step).acting(run="w")
        for command in during:
            inside = subtree(store, step.id)
            within, then = covered(store, step.id), state(store, step.id)
            there = set(ids(store, "SELECT id FROM entity"))
            asked(worker, command)
            # What is new lies inside, what lay outside is as it was, and nothing came out.
            assert not (inside - subtree(store, step.id)).intersection(ids(store, "SELECT id FROM note")), command
            inside |= subtree(store, step.id)
            fresh = set(ids(store, "SELECT id FROM entity")) - there
            assert fresh <= covered(store, step.id)
            now = state(store, step.id)
            assert without(now[0], inside | within | fresh) == without(then[0], inside | within | fresh), command
            assert without(now[1], inside | within | fresh) == without(then[1], inside | within | fresh), command
            assert now[2] == then[2], command
        assert store.verify(replay=True)


def test_a_task_that_is_gone_leaves_nothing_to_write() -> None:
    """Taken back while the worker is at work, it is no way to anything else."""
    with opened() as store:
        step = store.notes.add("step", "The task")
        worker = store.beneath(step)
        store.undo(step.id)
        before = store.log.head()
        for what in range(26):
            attempt(worker, (what, 1, 1, "alpha"))
        assert store.log.head() == before
        try:
            worker.notes.add("fact", "x", parent=step)
        except NotFound:
            return
        raise AssertionError("written beneath what is gone")
