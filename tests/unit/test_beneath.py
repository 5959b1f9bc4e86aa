"""A view that writes only beneath one note: what it may, what it may not, and that nothing gets round it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from agentmem import NewNote, Note, NotFound, OutOfReach, Store
from agentmem.records.beneath import Reach
from agentmem.records.kinds import KINDS


@attrs.frozen
class World:
    """A goal with the worker's step, a step beside it, and what hangs on them."""

    store: Store
    worker: Store
    goal: int
    mine: int
    inner: int
    other: int
    question: int
    decision: int


@pytest.fixture
def world(store: Store) -> World:
    """Three endpoints are in the scope of the worker's step; one is of another area; a host is of another type."""
    goal = store.notes.add("goal", "Check").id
    mine = store.notes.add(
        "step", "Mine", parent=goal, scope=store.scope("endpoint", where="attrs.area = 'api'", checks=["tls"])
    ).id
    inner = store.notes.add("step", "Inner", parent=mine).id
    other = store.notes.add("step", "Theirs", parent=goal).id
    question = store.notes.add("question", "Which?", parent=goal).id
    decision = store.notes.add("decision", "So", parent=goal).id
    store.notes.update(goal, append="said otherwise before")
    store.checklists.add(mine, "own item")
    store.checklists.add(other, "their item")
    store.entities.put_many("endpoint", keys=["a", "b", "c"], attrs={"area": "api"})
    store.entities.put("endpoint", "admin", attrs={"area": "admin"})
    store.entities.put("host", "h")
    return World(store, store.beneath(mine).acting(run="worker"), goal, mine, inner, other, question, decision)


ALLOWED: dict[str, Callable[[World], Any]] = {
    "a note beneath it": lambda w: w.worker.notes.add("fact", "Found", parent=w.mine),
    "a note deeper": lambda w: w.worker.notes.add("step", "Deeper", parent=w.inner, scope=w.store.scope("host")),
    "several": lambda w: w.worker.notes.add_many([NewNote("step", "A", parent=w.mine), NewNote("fact", "B", parent="$1")]),
    "an attempt of its task": lambda w: w.worker.attempts.close(w.worker.attempts.open("Try"), "worked"),
    "its status": lambda w: w.worker.notes.update(w.mine, status="active"),
    "its body": lambda w: w.worker.notes.update(w.mine, append="more", tags=["p1"]),
    "its items": lambda w: (w.worker.checklists.done(w.mine, 1), w.worker.checklists.add(w.mine, "new")),
    "its summary": lambda w: w.worker.summarize(w.mine, result="done"),
    "its checkpoint": lambda w: w.worker.checkpoint("here"),
    "a claim of it": lambda w: (w.worker.claim([w.mine, w.inner]), w.worker.release()),
    "a link from it": lambda w: w.worker.links.add(w.mine, "relates_to", w.other),
    "a link from a note of its own": lambda w: w.worker.links.add(w.inner, "supports", w.decision),
    "a move within": lambda w: w.worker.notes.move(w.worker.notes.add("fact", "x", parent=w.mine), parent=w.inner),
    "order within": lambda w: w.worker.notes.move(w.worker.notes.add("fact", "x", parent=w.mine), before=w.inner),
    "a mark in scope": lambda w: w.worker.entities.mark("endpoint", ["a"], {"tls": "pass"}),
    "a mark taken back": lambda w: w.worker.entities.unmark("endpoint", ["a"], ["tls"]),
    "an entity in scope": lambda w: w.worker.entities.put("endpoint", "new", attrs={"area": "api"}),
    "a change in scope": lambda w: w.worker.entities.put("endpoint", "a", status="up"),
    "a claim in scope": lambda w: w.worker.claim(type="endpoint", where="attrs.area = 'api'", n=2),
    "an end of its own": lambda w: w.worker.forget(w.worker.notes.add("fact", "hunter2", parent=w.mine)),
    "a redaction of its own": lambda w: w.worker.redact(w.inner),
    "an undo of its own": lambda w: w.worker.undo(w.worker.notes.update(w.inner, append="slip").revision),
    "a deeper limit": lambda w: w.worker.beneath(w.inner).notes.add("fact", "x", parent=w.inner),
    "a transaction": lambda w: _together(w),  # noqa: PLW0108  # defined below
}  # fmt: skip


def _together(world: World) -> None:
    with world.worker.transaction():
        world.worker.notes.add("fact", "one", parent=world.mine)
        world.worker.notes.add("fact", "two", parent=world.mine)


@pytest.mark.parametrize("name", ALLOWED)
def test_a_worker_does_its_work(world: World, name: str) -> None:
    """Beneath its note, on the entities of its scope, and what the note itself comes to."""
    ALLOWED[name](world)
    assert world.store.verify(replay=True)


REFUSED: dict[str, Callable[[World], Any]] = {
    "a note without parent": lambda w: w.worker.notes.add("fact", "x"),
    "a goal": lambda w: w.worker.notes.add("goal", "x"),
    "a note beside it": lambda w: w.worker.notes.add("fact", "x", parent=w.goal),
    "a note beneath a neighbour": lambda w: w.worker.notes.add("fact", "x", parent=w.other),
    "an attempt elsewhere": lambda w: w.worker.attempts.open("x", task=w.other),
    "a change above": lambda w: w.worker.notes.update(w.goal, status="done"),
    "a change beside": lambda w: w.worker.notes.update(w.other, append="x"),
    "several, one of them outside": lambda w: w.worker.notes.update_many([w.inner, w.other], status="done"),
    "its own title": lambda w: w.worker.notes.update(w.mine, title="Everything"),
    "its own scope": lambda w: w.worker.notes.update(w.mine, scope=w.store.scope("host")),
    "its own pin": lambda w: w.worker.notes.update(w.mine, pin=True),
    "its own entity": lambda w: w.worker.notes.update(w.mine, about="endpoint:a"),
    "to move itself": lambda w: w.worker.notes.move(w.mine, parent=w.other),
    "to move itself back": lambda w: w.worker.notes.move(w.mine, after=w.other),
    "to move out": lambda w: w.worker.notes.move(w.inner, parent=w.goal),
    "to move to the top": lambda w: w.worker.notes.move(w.inner, parent=None),
    "to move in": lambda w: w.worker.notes.move(w.other, parent=w.mine),
    "items of others": lambda w: w.worker.checklists.done(w.other, 1),
    "new items of others": lambda w: w.worker.checklists.add(w.other, "x"),
    "a summary of others": lambda w: w.worker.summarize(w.goal, result="x"),
    "a checkpoint of others": lambda w: w.worker.checkpoint("x", task=w.other),
    "a checkpoint of the project": lambda w: w.worker.acting(task=None).checkpoint("x"),
    "a link of others": lambda w: w.worker.links.add(w.other, "relates_to", w.mine),
    "an answer": lambda w: w.worker.links.add(w.worker.notes.add("fact", "x", parent=w.mine), "answers", w.question),
    "a claim of others": lambda w: w.worker.claim([w.other]),
    "a claim of another type": lambda w: w.worker.claim(type="host"),
    "a mark of another area": lambda w: w.worker.entities.mark("endpoint", ["admin"], {"tls": "pass"}),
    "marks, one of them outside": lambda w: w.worker.entities.mark("endpoint", ["a", "admin"], {"tls": "pass"}),
    "a mark of another type": lambda w: w.worker.entities.mark("host", ["h"], {"tls": "pass"}),
    "an entity of another type": lambda w: w.worker.entities.put("host", "new"),
    "an entity of another area": lambda w: w.worker.entities.put("endpoint", "new", attrs={"area": "admin"}),
    "an entity of none": lambda w: w.worker.entities.put("endpoint", "new"),
    "a key of others": lambda w: w.worker.entities.rename("host:h", "x"),
    "a declaration": lambda w: w.worker.entities.expect("endpoint", ["tls"]),
    "another project": lambda w: w.worker.in_project("other").notes.add("goal", "x"),
    "a renamed project": lambda w: w.worker.projects.rename("x"),
    "the end of others": lambda w: w.worker.forget(w.other),
    "its own end": lambda w: w.worker.forget(w.mine),
    "the end of an entity": lambda w: w.worker.forget("endpoint:a"),
    "the end of a project": lambda w: w.worker.in_project("other").projects.delete("acme"),
    "a redaction above": lambda w: w.worker.redact(w.goal),
    "an undo of others": lambda w: w.worker.undo(w.store.notes.update(w.goal, append="x").revision),
    "an undo of a run": lambda w: w.worker.undo(run="r1"),
    "a confirmation": lambda w: w.worker.confirm(w.decision),
    "a wider limit": lambda w: w.worker.beneath(w.goal),
    "a neighbour's limit": lambda w: w.worker.beneath(w.other),
    "a backup": lambda w: w.worker.backup("x.db"),
    "an export": lambda w: w.worker.export("x.jsonl"),
    "an import": lambda w: w.worker.import_("."),
    "a new key": lambda w: w.worker.rekey(bytes(32)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_worker_does_nothing_else(world: World, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by name, and leaves no event, nor anything else."""
    monkeypatch.chdir(tmp_path)
    allowed = {"an answer", "an undo of others"}  # which write something fitting first
    before = world.store.log.head()
    with pytest.raises(OutOfReach) as raised:
        REFUSED[name](world)
    assert raised.value.next
    assert name in allowed or world.store.log.head() == before
    assert not list(tmp_path.glob("x*"))
    assert world.store.verify(replay=True)


def test_it_reads_everything(world: World) -> None:
    """Whatever lies outside is there to be read."""
    assert world.worker.get(world.goal) == world.store.get(world.goal)
    assert world.worker.resume(None).text
    assert world.worker.recall("Theirs").hits
    assert world.worker.history().changes
    assert world.worker.at(world.store.log.head().seq).get(world.other)


def test_it_is_at_work_on_its_task(world: World) -> None:
    """Its resume is that of the task, and a name or a project changes nothing of the limit."""
    assert world.worker.resume().task == world.mine
    for view in (world.worker, world.worker.acting(author="x", task=None), world.worker.in_project("acme")):
        assert view.limit == world.mine
    assert world.store.limit is None


def test_no_scope_no_entity(world: World) -> None:
    """Beneath a step without a scope, and none above it, there is no entity to write; one above it counts."""
    with pytest.raises(OutOfReach, match="no scope"):
        world.store.beneath(world.other).entities.put("endpoint", "x")
    world.store.beneath(world.inner).entities.mark("endpoint", ["a"], {"tls": "pass"})


def test_a_scope_that_is_written_beneath_widens_nothing(world: World) -> None:
    """Neither one of a step of its own, nor a limit on that step."""
    own = world.worker.notes.add("step", "Wider", parent=world.mine, scope=world.store.scope("host"))
    with pytest.raises(OutOfReach):
        world.worker.entities.mark("host", ["h"], {"tls": "pass"})
    assert world.worker.beneath(own).limit == own.id


def test_a_refusal_in_a_transaction_takes_back_its_command_alone(world: World) -> None:
    """What came before it can still be kept."""
    with world.worker.transaction():
        kept = world.worker.notes.add("fact", "kept", parent=world.mine)
        with pytest.raises(OutOfReach):
            world.worker.notes.update_many([world.inner, world.other], status="done")
    assert isinstance(world.store.get(kept), Note)
    assert world.store.notes.get(world.inner).status == "open"


def test_a_limit_does_not_stick_to_the_file(world: World) -> None:
    """Another view of the same open file writes on, within the same transaction too."""
    with world.store.transaction():
        world.worker.notes.add("fact", "a", parent=world.mine)
        world.store.notes.update(world.goal, append="b")
    world.store.notes.add("goal", "c")


def test_a_repeated_request_is_no_way_round(world: World) -> None:
    """A request that somebody else made is not made again, nor for the worker."""
    done = world.store.notes.add("fact", "x", parent=world.goal, request_id="one")
    assert world.worker.notes.add("fact", "x", parent=world.goal, request_id="one").id == done.id
    with pytest.raises(OutOfReach):
        world.worker.notes.add("fact", "x", parent=world.goal, request_id="two")
    assert world.store.notes.add("fact", "y", parent=world.goal, request_id="two").changed


def test_the_note_has_to_be_there(store: Store) -> None:
    """Of none there is nothing beneath."""
    with pytest.raises(NotFound):
        store.beneath(99)


@pytest.mark.parametrize("kind", sorted(KINDS.by_name))
def test_every_kind_of_event_is_decided(world: World, kind: str) -> None:
    """No kind, new ones too, passes for a record outside."""
    of = KINDS.by_name[kind].type
    outside = {
        "note": world.other, "item": _id(world.store, "item"), "entity": world.store.entities.get("host:h").id,
        "checkpoint": world.store.checkpoint("x", task=world.other).id,
        "summary": world.store.summarize(world.other, result="x").id,
        "checks": world.store.entities.expect("host", ["tls"]).id, "project": 1,
    }  # fmt: skip
    reached: list[bool] = []

    def command(unit: Any) -> Any:
        with pytest.raises(OutOfReach):
            Reach(unit, world.mine).before(kind, of, outside.get(of, 1), {"set": {"title": "x"}})
        reached.append(True)
        return world.store.links.add(world.mine, "relates_to", world.other)

    world.store._binding.run("test", {}, None, command)
    assert reached


def _id(store: Store, of: str) -> int:
    (note,) = [one.id for one in store.notes.list(kind="step") if one.title == "Theirs"]
    assert of == "item"
    return store.checklists.items(note)[0].id
