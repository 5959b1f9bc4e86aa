"""A view that writes only beneath one note: what it may, what it may not, and that nothing gets round it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from agentmem import NewNote, Note, NotFound, OutOfReach, Store
from agentmem.records.beneath import Reach
from agentmem.records.kinds import KINDS
from agentmem.store.sessions import Session
from agentmem.types import Event, Undone


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
    clock: Any


@pytest.fixture
def world(store: Store, clock: Any) -> World:
    """A new one for each test."""
    return made(store, clock)


def made(store: Store, clock: Any) -> World:
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
    return World(store, store.beneath(mine).acting(run="worker"), goal, mine, inner, other, question, decision, clock)


def _lapse(world: World) -> Iterator[int]:
    yield 1
    world.clock.advance(seconds=5)
    yield 60


_PARTS: dict[str, Callable[[World], Any]] = {
    "note": lambda w: w.worker.notes.add("fact", "x", parent=w.mine),
    "summary": lambda w: w.worker.summarize(w.inner, result="x", status="done"),
    "checkpoint": lambda w: w.worker.checkpoint("x", task=w.inner),
}


def _undo_last(world: World) -> Undone:
    return world.worker.undo(world.store.log.head().seq)


def _undone_and_back(world: World, what: str) -> Undone:
    _PARTS[what](world)
    _undo_last(world)
    return _undo_last(world)


def _ended_with_all(world: World) -> None:
    """A note goes with one that is older than itself, moved beneath it, and with one whose adding was undone."""
    old = world.worker.notes.add("step", "old", parent=world.mine)
    new = world.worker.notes.add("step", "new", parent=world.inner)
    world.worker.notes.move(old, parent=new)
    world.worker.notes.add("fact", "gone", parent=old)
    _undo_last(world)
    assert world.worker.forget(new, dry_run=True).changed == 3
    assert world.worker.forget(new).changed == 3


def _ended_parts(world: World) -> None:
    world.worker.summarize(world.mine, result="done")
    summary = world.store.log.head().seq
    world.worker.forget([f"{world.mine}.1", world.worker.checkpoint("x").id, summary])


def _redacted_parts(world: World) -> None:
    item = world.store.checklists.items(world.mine)[0].id
    world.worker.checklists.edit(item, "otherwise")
    for result in ("x", "y"):
        summary = world.worker.summarize(world.mine, result=result).id
    for each in (item, summary):
        assert world.worker.redact(each, dry_run=True).changed == world.worker.redact(each).changed == 1


def _together(world: World) -> None:
    with world.worker.transaction():
        world.worker.notes.add("fact", "one", parent=world.mine)
        world.worker.notes.add("fact", "two", parent=world.mine)


def _run(session: Session) -> None:
    session.hold()
    session.append("session.status_running")
    session.give_back()


def _session(world: World) -> int:
    found = world.worker.sessions.list(task=world.inner)
    return found[0].id if found else world.worker.sessions.start(task=world.inner).id


def _ended_quoted(world: World) -> None:
    fact = world.worker.notes.add("fact", "hunter2", parent=world.mine)
    world.worker.sessions.start(task=world.inner).compact()
    world.worker.forget(fact)


ALLOWED: dict[str, Callable[[World], Any]] = {
    "a note beneath it": lambda w: w.worker.notes.add("fact", "Found", parent=w.mine),
    "a note deeper": lambda w: w.worker.notes.add("step", "Deeper", parent=w.inner, scope=w.store.scope("host")),
    "several": lambda w: w.worker.notes.add_many(
        [NewNote("step", "A", parent=w.mine), NewNote("fact", "B", parent="$1")]
    ),
    "an attempt of its task": lambda w: w.worker.attempts.close(w.worker.attempts.open("Try"), "worked"),
    "its status": lambda w: w.worker.notes.update(w.mine, status="active"),
    "its body": lambda w: w.worker.notes.update(w.mine, append="more", tags=["p1"]),
    "its items": lambda w: (w.worker.checklists.done(w.mine, 1), w.worker.checklists.add(w.mine, "new")),
    "an item taken off": lambda w: (w.worker.checklists.remove(w.mine, 1), w.worker.undo(w.store.log.head().seq)),
    "its grounds": lambda w: w.worker.notes.update(w.mine, confidence=0.5, basis="the log"),
    "its summary": lambda w: w.worker.summarize(w.mine, result="done"),
    "a second summary": lambda w: [w.worker.summarize(w.mine, result=text) for text in ("done", "more")],
    "its checkpoint": lambda w: w.worker.checkpoint("here"),
    "a claim of it": lambda w: (w.worker.claim([w.mine, w.inner]), w.worker.claim(w.mine), w.worker.release()),
    "a claim of its item": lambda w: (w.worker.claim(f"{w.mine}.1"), w.worker.release()),
    "a claim that lapsed": lambda w: [
        w.worker.claim([w.inner, f"{w.mine}.1", "endpoint:a"], seconds=s) for s in _lapse(w)
    ],
    "a link from it": lambda w: w.worker.links.add(w.mine, "relates_to", w.other),
    "a link from a note of its own": lambda w: w.worker.links.add(w.inner, "supports", w.decision),
    "a link that is taken away": lambda w: (
        w.worker.links.add(w.inner, "uses", w.decision),
        w.worker.links.remove(w.inner, "uses", w.decision),
    ),
    "an answer to its own question": lambda w: w.worker.links.add(
        w.worker.notes.add("fact", "That", parent=w.mine),
        "answers",
        w.worker.notes.add("question", "What?", parent=w.mine),
    ),
    "a decision of its own overruled": lambda w: w.worker.links.add(
        w.worker.notes.add("decision", "B", parent=w.mine),
        "supersedes",
        w.worker.notes.add("decision", "A", parent=w.mine),
    ),
    "a confirmation of its own": lambda w: w.worker.confirm(w.inner),
    "a move within": lambda w: w.worker.notes.move(w.worker.notes.add("fact", "x", parent=w.mine), parent=w.inner),
    "order within": lambda w: w.worker.notes.move(w.worker.notes.add("fact", "x", parent=w.mine), before=w.inner),
    "a mark in scope": lambda w: w.worker.entities.mark("endpoint", ["a"], {"tls": "pass"}),
    "a mark taken back": lambda w: (
        w.worker.entities.mark("endpoint", ["a"], {"tls": "pass"}),
        w.worker.entities.unmark("endpoint", ["a"], ["tls"]),
    ),
    "an entity in scope": lambda w: w.worker.entities.put("endpoint", "new", attrs={"area": "api"}),
    "a change in scope": lambda w: w.worker.entities.put("endpoint", "a", status="up"),
    "a key in scope": lambda w: w.worker.entities.rename("endpoint:a", "z"),
    "a link in scope": lambda w: (
        w.worker.links.add("endpoint:a", "calls", "host:h"),
        w.worker.links.remove("endpoint:a", "calls", "host:h"),
    ),
    "an undo of an entity, and back": lambda w: (
        w.worker.entities.put("endpoint", "new", attrs={"area": "api"}),
        _undo_last(w),
        _undo_last(w),
    ),
    "a claim in scope": lambda w: (
        w.worker.claim(type="endpoint", where="attrs.area = 'api'", n=2),
        w.worker.release(),
    ),
    "an end of its own": lambda w: w.worker.forget(w.worker.notes.add("fact", "hunter2", parent=w.mine)),
    "an end of its own with what was moved, or taken back": _ended_with_all,
    "an end of its parts": _ended_parts,
    "a session of its task": lambda w: w.worker.sessions.start(task=w.mine).append("user.message", "hello"),
    "a session that is run": lambda w: _run(w.worker.sessions.start(task=w.inner)),
    "a session that goes on from one that is gone": lambda w: [
        w.worker.sessions.get(_session(w)).hold(seconds=seconds) for seconds in _lapse(w)
    ],
    "an end of what a session's window quotes": _ended_quoted,
    "a redaction of its own": lambda w: (w.worker.notes.update(w.inner, body="x"), w.worker.redact(w.inner)),
    "a redaction of its parts": _redacted_parts,
    "an undo of what was written, and back": lambda w: [_undone_and_back(w, what) for what in _PARTS],
    "an undo of its own": lambda w: w.worker.undo(w.worker.notes.update(w.inner, append="slip").revision),
    "a deeper limit": lambda w: w.worker.beneath(w.inner).notes.add("fact", "x", parent=w.inner),
    "a transaction": _together,
}


@pytest.mark.parametrize("name", ALLOWED)
def test_a_worker_does_its_work(world: World, name: str) -> None:
    """Beneath its note, on the entities of its scope, and what the note itself comes to."""
    ALLOWED[name](world)
    assert world.store.verify(replay=True)


def _past_export(world: World) -> None:
    with world.worker.at(world.store.log.head().seq) as past:
        past.export("x.jsonl")


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
    "its own source": lambda w: w.worker.notes.update(w.mine, source="x"),
    "its own confirmation": lambda w: w.worker.acting(origin="user").confirm(w.mine),
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
    "a decision overruled": lambda w: w.worker.links.add(w.inner, "supersedes", w.decision),
    "a new decision that overrules": lambda w: w.worker.notes.add(
        "decision", "No", parent=w.mine, links=[("supersedes", w.decision)]
    ),
    "a claim of others": lambda w: w.worker.claim([w.other]),
    "a claim of others given back": lambda w: (w.store.acting(run="worker").claim(w.goal), w.worker.release()),
    "a claim of another type": lambda w: w.worker.claim(type="host"),
    "a mark of another area": lambda w: w.worker.entities.mark("endpoint", ["admin"], {"tls": "pass"}),
    "marks, one of them outside": lambda w: w.worker.entities.mark("endpoint", ["a", "admin"], {"tls": "pass"}),
    "a mark of another type": lambda w: w.worker.entities.mark("host", ["h"], {"tls": "pass"}),
    "an entity of another type": lambda w: w.worker.entities.put("host", "new"),
    "an entity of another area": lambda w: w.worker.entities.put("endpoint", "new", attrs={"area": "admin"}),
    "an entity of none": lambda w: w.worker.entities.put("endpoint", "new"),
    "a key of others": lambda w: w.worker.entities.rename("host:h", "x"),
    "a declaration": lambda w: w.worker.entities.expect("endpoint", ["tls"]),
    "an entity of another project": lambda w: (
        w.store.in_project("other").entities.put("endpoint", "o", attrs={"area": "api"}),
        w.worker.in_project("other").entities.put("endpoint", "o", status="up"),
    ),
    "a mark in another project": lambda w: (
        w.store.in_project("other").entities.put("endpoint", "o", attrs={"area": "api"}),
        w.worker.in_project("other").entities.mark("endpoint", ["o"], {"tls": "pass"}),
    ),
    "a merge of another project": lambda w: (
        w.store.in_project("other").notes.add("goal", "x"),
        w.worker.projects.merge("other"),
    ),
    "to be merged away": lambda w: (
        w.store.in_project("other").notes.add("goal", "x"),
        w.worker.in_project("other").projects.merge("acme"),
    ),
    "another project": lambda w: w.worker.in_project("other").notes.add("goal", "x"),
    "a renamed project": lambda w: w.worker.projects.rename("x"),
    "the end of others": lambda w: w.worker.forget(w.other),
    "its own end": lambda w: w.worker.forget(w.mine),
    "the end of an entity": lambda w: w.worker.forget("endpoint:a"),
    "the end of entities": lambda w: w.worker.forget(type="endpoint"),
    "a redaction of an entity": lambda w: (
        w.worker.entities.put("endpoint", "a", attrs={"note": "x"}),
        w.worker.redact("endpoint:a", attr="note"),
    ),
    "the end of what others point at": lambda w: (
        w.store.links.add(w.other, "relates_to", w.inner),
        w.worker.forget(w.inner),
    ),
    "the end of a project": lambda w: w.worker.in_project("other").projects.delete("acme"),
    "a redaction above": lambda w: w.worker.redact(w.goal),
    "an undo of others": lambda w: w.worker.undo(w.store.notes.update(w.goal, append="x").revision),
    "an undo of what others ordered": lambda w: w.worker.undo(w.store.notes.update(w.mine, title="x").revision),
    "an undo of a run": lambda w: w.worker.undo(run="r1"),
    "an undo of a request": lambda w: (
        w.store.notes.update(w.goal, append="x", request_id="one"),
        w.worker.undo(request="one"),
    ),
    "a plan of an undo": lambda w: w.worker.undo(w.store.notes.update(w.goal, append="x").revision, dry_run=True),
    "a plan of an end": lambda w: w.worker.forget(w.other, dry_run=True),
    "a plan of a redaction": lambda w: w.worker.redact(w.goal, dry_run=True),
    "a confirmation": lambda w: w.worker.confirm(w.decision),
    "a wider limit": lambda w: w.worker.beneath(w.goal),
    "a neighbour's limit": lambda w: w.worker.beneath(w.other),
    "a limit in another project": lambda w: w.worker.beneath(w.store.in_project("other").notes.add("goal", "x")),
    "a part of an export": lambda w: w.worker.export("x.jsonl", under=w.mine),
    "an export of the past": _past_export,
    "a backup": lambda w: w.worker.backup("x.db"),
    "an export": lambda w: w.worker.export("x.jsonl"),
    "an import": lambda w: w.worker.import_("."),
    "a new key": lambda w: w.worker.rekey(bytes(32)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_worker_does_nothing_else(world: World, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by name, and leaves no event, nor anything else."""
    monkeypatch.chdir(tmp_path)
    before = world.store.log.head().seq
    with pytest.raises(OutOfReach) as raised:
        REFUSED[name](world)
    assert raised.value.why == f"This view writes only beneath #{world.mine}"
    assert raised.value.next
    written = world.store.log.read(after=before)
    assert not [event for event in written if event.run == "worker" and not may_come_before(world, name, event)]
    assert not list(tmp_path.glob("x*"))
    assert world.store.verify(replay=True)


def may_come_before(world: World, name: str, event: Event) -> bool:
    """What the attempt itself writes first, in reach."""
    first = {"an answer": "note.added", "a redaction of an entity": "entity.changed"}
    taken = name.startswith("a claim of others ") and event.kind == "note.claim.taken" and event.record == world.goal
    return taken or event.kind == first.get(name)


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


def test_a_claim_of_others_is_not_renewed(world: World) -> None:
    """Renewing has no event; it is refused all the same."""
    world.store.acting(run="worker").claim(world.goal, seconds=60)
    before = world.store.claims()
    with pytest.raises(OutOfReach):
        world.worker.claim(world.goal, seconds=600)
    assert world.store.claims() == before


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


NEVER = {
    *(kind for kind in KINDS.by_name if kind.startswith(("project.", "checks."))),
    *("entity.forgotten", "entity.merged", "checkpoint.changed"),
    *("session.changed", "session.restated", "session.forgotten"),
}


def test_every_kind_of_event_is_allowed_somewhere_or_never(tmp_path: Path, clock: Any) -> None:
    """A new kind has to be put on one side: what a worker does above, or what it never does."""
    seen: set[str] = set()
    for number, name in enumerate(ALLOWED):
        path = tmp_path / f"{number}.db"
        with Store.open(path, project="acme", key=bytes(32), durability="normal", clock=clock) as store:
            world = made(store, clock)
            before = store.log.head().seq
            ALLOWED[name](world)
            seen |= {event.kind for event in store.log.read(after=before, limit=1000)}
    assert seen | NEVER == set(KINDS.by_name)
    assert not seen & NEVER


@pytest.mark.parametrize("kind", sorted(KINDS.by_name))
def test_every_kind_of_event_is_decided(world: World, kind: str) -> None:
    """No kind, new ones too, passes for a record outside."""
    of = KINDS.by_name[kind].type
    outside = {
        "note": world.other, "item": _id(world.store, "item"), "entity": world.store.entities.get("host:h").id,
        "checkpoint": world.store.checkpoint("x", task=world.other).id,
        "summary": world.store.summarize(world.other, result="x").id,
        "checks": world.store.entities.expect("host", ["tls"]).id, "project": 1,
        "session": world.store.sessions.start(task=world.other).id,
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


def test_a_view_of_another_project_begins_in_that_of_the_note(world: World) -> None:
    """A worker is at work in its task's project, whatever the view it came from."""
    worker = world.store.in_project("other").beneath(world.mine)
    assert worker.project == "acme"
    worker.entities.mark("endpoint", ["a"], {"tls": "pass"})


def test_a_note_that_is_no_more_has_nothing_beneath_it(world: World) -> None:
    """Once the task is gone the worker writes nothing."""
    world.store.forget(world.mine)
    with pytest.raises(OutOfReach, match="no more"):
        world.worker.entities.mark("endpoint", ["a"], {"tls": "pass"})


def test_what_was_moved_away_is_out_of_reach(world: World) -> None:
    """What counts is where a note lies now."""
    world.store.notes.move(world.inner, parent=world.other)
    with pytest.raises(OutOfReach):
        world.worker.notes.update(world.inner, append="x")
