"""No verb of the store tells a session about one subject what is about another, whatever it is asked."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from agentmem import AgentMemError, NewNote, Result, Store
from agentmem.errors import OutOfReach
from agentmem.store.sessions import Session

_MARK = "secretb"  # stands in everything that is B's
_NOTES: tuple[tuple[Any, dict[str, Any]], ...] = (
    ("decision", {}), ("decision", {"tags": ["scope"]}), ("decision", {"pin": True}), ("lesson", {}), ("fact", {}),
    ("question", {}), ("attempt", {"status": "failed", "why": "{}"}), ("attempt", {}), ("step", {"status": "active"}),
    ("step", {"tags": ["p0"]}), ("goal", {"status": "active", "pin": True}), ("goal", {"status": "done"}),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meaning narrows by the same conditions as words."""
    monkeypatch.setenv("AGENTMEM_EMBEDDER", "none")


@frozen
class World:
    """A store with two customers, and A's session in it."""

    store: Store
    goal: int
    a: int
    session: Session
    theirs: tuple[int, ...]

    @property
    def view(self) -> Store:
        """What the session sees."""
        return self.session.store


@pytest.fixture
def world(store: Store) -> World:
    """Everything that can be written about B, and a little about A and about nobody."""
    return made(store)


def made(store: Store) -> World:
    """The store with all that is in it."""
    counted = itertools.count()

    def secret() -> str:
        return f"{_MARK}{next(counted)} delivery"

    def token() -> str:
        return f"{_MARK}{next(counted)}"

    group = store.entities.put("group", token()).id
    goal = store.notes.add("goal", "Help customers with a delivery", status="active").id
    a = store.entities.put("customer", "A", parent=group).id
    store.entities.expect("customer", ["paid"])
    session = store.sessions.start(title="Case of A", about=a, task=goal, agent="support")
    mine = session.store
    mine.news()
    step = mine.notes.add(
        "step", "Answer A on the delivery", parent=goal, scope=store.scope("customer", checks=["paid"])
    )
    mine.notes.add("fact", "A waits for a delivery", parent=step)
    mine.attempts.open("Ask the carrier for the delivery", task=step)
    mine.checkpoint("A is answered next")
    session.extend([("user.message", "Where is my delivery?"), ("agent.message", "Let me look")])
    session.append("agent.tool_use", {"name": "carrier", "input": {}, "permission": "ask"})
    store.checklists.add(goal, "Say hello", "Say good bye", done=True)
    begun = store.log.head().seq
    b = store.acting(author=token(), run=token())
    _entities(b, secret, token)
    _notes(b, goal, secret, token)
    _session(b, goal, secret, token)
    other = b.in_project(token())
    other.notes.add("fact", secret())
    other.entities.put("customer", token())
    theirs = tuple(range(begun + 1, store.log.head().seq + 1))
    crossing: tuple[tuple[Any, str], ...] = (
        ("decision", "supersedes"),
        ("question", "relates_to"),
        ("step", "depends_on"),
    )
    for kind, other_kind in crossing:
        own = store.notes.add(kind, f"A shared {kind} on deliveries", parent=goal)
        for note in store.notes.list(kind=kind, about=f"customer:{_key(store)}", limit=2):
            store.links.add(*((note, other_kind, own) if other_kind == "supersedes" else (own, other_kind, note)))
    asked = store.notes.add("question", "When is the delivery?", parent=step)
    answer = b.notes.add("fact", secret(), about=f"customer:{_key(store)}")
    store.links.add(answer, "answers", asked)
    inside = store.notes.list(kind="step", about=f"customer:{_key(store)}", limit=1)[0]
    store.notes.add("step", "For A, beneath what is B's", parent=inside, about=a)
    b.claim([note.id for note in b.notes.list(about=f"customer:{_key(store)}", limit=5)])
    return World(store, goal, a, session, theirs)


def _key(store: Store) -> str:
    return next(one.key for one in store.entities.query("customer") if one.key and _MARK in one.key)


def _entities(b: Store, secret: Callable[[], str], token: Callable[[], str]) -> None:
    key = secret()
    attrs = {token(): secret()}
    b.entities.put("customer", key, attrs=attrs, status=token())
    b.entities.mark("customer", [key], {token(): Result("fail", value=secret(), detail=secret()), "paid": "error"})
    for of in ("customer", "order", token()):
        b.entities.put(of, secret(), parent=f"customer:{key}", attrs={token(): [secret()]})
    some = [one for of in ("customer", "order") for one in b.entities.query(of) if one.key and _MARK in one.key]
    b.links.add(some[0], token(), some[1])


def _notes(b: Store, goal: int, secret: Callable[[], str], token: Callable[[], str]) -> None:
    about = f"customer:{_key(b)}"
    for kind, given in _NOTES:
        for origin in ("agent", "web"):
            more: dict[str, Any] = {name: secret() if value == "{}" else value for name, value in given.items()}
            note = b.acting(origin=origin).notes.add(
                kind, secret(), body=secret(), basis=secret(), about=about, source=secret(),
                parent=None if kind == "goal" else goal, similar=False, **({"tags": [token()]} | more),
            )  # fmt: skip
            b.checklists.add(note, secret(), secret())
            if kind in ("goal", "step"):
                b.checkpoint(secret(), task=note)
                part = b.notes.add("step", secret(), parent=note, scope=b.scope(token(), where=f"key = '{secret()}'"))
                b.summarize(part, work=secret(), result=secret(), basis=secret())
                b.summarize(note, work=secret(), result=secret())
                if kind == "goal":
                    b.notes.update(note, status="active")
                b.notes.add("decision", secret(), parent=note, pin=True)
            b.notes.update(note, body=secret(), title=secret())
    gone = b.notes.add("fact", secret(), about=about)
    b.undo(gone.revision)


def _session(b: Store, goal: int, secret: Callable[[], str], token: Callable[[], str]) -> None:
    theirs = b.sessions.start(
        title=secret(), about=f"customer:{_key(b)}", task=goal, agent={"name": token(), "x": secret()},
        metadata={token(): secret()},
    )  # fmt: skip
    theirs.extend([
        ("user.message", secret()), ("agent.message", secret()),
        ("agent.tool_use", {"name": token(), "input": {token(): secret()}, "permission": "ask"}),
        ("agent.tool_use", {"name": token(), "input": {"a": secret()}}),
        ("agent.tool_result", {"tool_use_id": -4, "content": secret()}),
    ])  # fmt: skip
    theirs.append(f"x.{token()}", {"text": secret()}, key=token())
    theirs.store.checkpoint(secret())
    theirs.store.notes.add("fact", secret())
    theirs.fork()


def _said(answer: object, depth: int = 0) -> Iterator[str]:
    """Everything that an answer says, in every form that it has."""
    yield repr(answer)
    if isinstance(answer, Store | Session) or depth > 3:
        return
    if isinstance(answer, BaseException):
        yield from (str(answer), *(str(getattr(answer, part, "")) for part in ("what", "why", "next")))
    if hasattr(answer, "to_dict"):
        yield json.dumps(answer.to_dict(), default=repr)
    for part in ("text", "_repr_html_"):
        found = getattr(answer, part, None)
        yield str(found() if callable(found) else found)
    if isinstance(answer, tuple | list):
        for each in answer:
            yield from _said(each, depth + 1)
    if isinstance(answer, dict):
        yield from (str(part) for part in answer.items())


def _leaks(call: Callable[[], object]) -> tuple[str, bool]:
    """What a call tells of B, empty for nothing; and whether it was answered."""
    answered = True
    try:
        answer = call()
        if inspect.isgenerator(answer):
            answer = list(answer)
    except AgentMemError as error:
        answer, answered = error, False
    return next((said for said in _said(answer) if _MARK in said.lower()), ""), answered


_REFUSED = "refused"
_PLAIN = (
    "acting",
    "beneath",
    "in_project",
    "transaction",
    "close",
    "database",
    "path",
    "project",
    "actor",
    "limit",
    "open",
)
_NO_VIEW = ("restore", "salvage", "doctor")  # of files, not of a view

# By verb: what it is asked, with `view`, `ref` (every record, and names), `world`.
_ASKED: dict[str, Any] = {
    "resume": [
        lambda view, _: view.resume(budget=20_000), lambda view, _: view.resume(None, budget=20_000),
        lambda view, _: view.resume(since=0, budget=20_000), lambda view, _: view.resume(None, since=0, budget=20_000),
        lambda view, ref: view.resume(ref, budget=20_000), lambda view, ref: view.resume(ref, since=1, budget=20_000),
    ],
    "left": [
        lambda view, _: view.left(budget=20_000), lambda view, _: view.left(None, budget=20_000),
        lambda view, _: view.left(None, type="customer", budget=20_000), lambda view, _: view.left(None, type="x"),
        lambda view, ref: view.left(ref, budget=20_000),
    ],
    "review": _REFUSED,
    "task_summary": [lambda view, ref: view.task_summary(ref, budget=20_000)],
    "graph": [lambda view, ref: view.graph(ref, budget=20_000)],
    "get": [lambda view, ref: view.get(ref)],
    "find": [
        lambda view, _: view.find("delivery", limit=100), lambda view, _: view.find(f"{_MARK}1", limit=100),
        lambda view, _: view.find("delivery", project="*", limit=100), lambda view, ref: view.find("delivery", under=ref),
        lambda view, ref: view.find("delivery", about=ref),
        *(lambda view, _, kind=kind: view.find("delivery", kind=kind, limit=100) for kind in
          ("fact", "goal", "attempt", "entity", "item", "checkpoint", "summary", "message")),
    ],
    "recall": [
        lambda view, _: view.recall("delivery", limit=100, budget=20_000), lambda view, _: view.recall("what do they wait for"),
        lambda view, _: view.recall("delivery", project="*", limit=100), lambda view, ref: view.recall("delivery", task=ref),
        lambda view, ref: view.recall("delivery", under=ref), lambda view, ref: view.recall("delivery", about=ref),
        *(lambda view, _, kind=kind: view.recall("delivery", kind=kind, limit=100) for kind in
          ("decision", "entity", "item", "checkpoint", "summary", "message")),
    ],
    "news": [lambda view, _: view.news()],
    "scope": [lambda view, _: view.scope("customer", where="key = 'A'")],
    "checkpoint": [lambda view, ref: view.checkpoint("x", task=ref)],
    "checkpoints": [
        lambda view, _: view.checkpoints(limit=500), lambda view, _: view.checkpoints(None),
        lambda view, ref: view.checkpoints(ref),
    ],
    "summarize": [lambda view, ref: view.summarize(ref, result="x")],
    "confirm": [lambda view, ref: view.confirm(ref)],
    "claim": [lambda view, ref: view.claim([ref]), lambda view, _: view.claim(type="customer", n=100)],
    "release": [lambda view, ref: view.release([ref]), lambda view, _: view.release()],
    "claims": [lambda view, _: view.claims()],
    "claim_token": [lambda view, _: view.claim_token()],
    "adopt_claims": [lambda view, _: view.adopt_claims(view.claim_token())],
    "history": [
        lambda view, _: view.history(budget=20_000), lambda view, _: view.history(project="*"),
        lambda view, _: view.history(session=1), lambda view, ref: view.history(ref, budget=20_000),
        lambda view, ref: view.history(ref, deep=False, budget=20_000), lambda view, ref: view.history(under=ref),
    ],
    "revisions": [lambda view, ref: view.revisions(ref, budget=20_000)],
    "revision": [lambda view, ref: view.revision(ref, view.log.head().seq)],
    "diff": [lambda view, ref: view.diff(ref, ref if isinstance(ref, int) else 1, budget=20_000)],
    "at": _REFUSED, "watch": _REFUSED, "export": _REFUSED, "import_": _REFUSED, "backup": _REFUSED, "verify": _REFUSED,
    "rekey": _REFUSED, "stats": _REFUSED, "undo": _REFUSED,
    "wait_for_index": [lambda view, _: view.wait_for_index(0)],
    "forget": [
        lambda view, ref: view.forget([ref], dry_run=True), lambda view, _: view.forget(type="customer", dry_run=True),
        lambda view, _: view.forget(project="acme", dry_run=True),
    ],
    "redact": [lambda view, ref: view.redact(ref, dry_run=True)],
    "notes.add": [
        lambda view, _: view.notes.add("fact", "delivery"), lambda view, ref: view.notes.add("fact", "delivery", about=ref),
        lambda view, ref: view.notes.add("fact", "x", parent=ref),
        lambda view, ref: view.notes.add("fact", "x", links=[("relates_to", ref)]),
    ],
    "notes.add_many": [lambda view, ref: view.notes.add_many([NewNote("fact", "x", parent=ref)])],
    "notes.update": [lambda view, ref: view.notes.update(ref, status="done"), lambda view, ref: view.notes.update(ref, pin=True)],
    "notes.update_many": [lambda view, ref: view.notes.update_many([ref], pin=True)],
    "notes.move": [lambda view, ref: view.notes.move(ref, first=True), lambda view, ref: view.notes.move(ref, parent=None)],
    "notes.get": [lambda view, ref: view.notes.get(ref)],
    "notes.list": [
        lambda view, _: view.notes.list(limit=500), lambda view, _: view.notes.list(parent=None, limit=500),
        lambda view, ref: view.notes.list(parent=ref, limit=500), lambda view, ref: view.notes.list(under=ref, limit=500),
        lambda view, ref: view.notes.list(about=ref),
        *(lambda view, _, kind=kind: view.notes.list(kind=kind) for kind in ("fact", "decision", "attempt", "step")),
    ],
    "links.add": [
        lambda view, ref: view.links.add(ref, "relates_to", 3), lambda view, ref: view.links.add(3, "relates_to", ref),
        lambda view, ref: view.links.add(ref, "x", "customer:A"),
    ],
    "links.remove": [lambda view, ref: view.links.remove(3, "uses", ref), lambda view, ref: view.links.remove(ref, "uses", 3)],
    "links.list": [lambda view, ref: view.links.list(ref)],
    "attempts.open": [
        lambda view, _: view.attempts.open("the delivery"), lambda view, ref: view.attempts.open("delivery", task=ref),
        lambda view, ref: view.attempts.open("delivery", about=ref),
    ],
    "attempts.close": [lambda view, ref: view.attempts.close(ref, "worked", why="x")],
    "attempts.earlier": [
        lambda view, _: view.attempts.earlier("delivery"), lambda view, ref: view.attempts.earlier("delivery", task=ref),
        lambda view, ref: view.attempts.earlier("delivery", about=ref), lambda view, _: view.attempts.earlier(f"{_MARK}30"),
    ],
    "attempts.failed_like": [lambda view, _: view.attempts.failed_like("delivery now", limit=50)],
    "entities.put": [
        lambda view, _: view.entities.put("customer", "new"), lambda view, ref: view.entities.put("order", "1", parent=ref),
    ],
    "entities.put_many": [lambda view, _: view.entities.put_many("customer", keys=["new", "A"])],
    "entities.rename": [lambda view, ref: view.entities.rename(ref, "other")],
    "entities.mark": [lambda view, ref: view.entities.mark("customer", [ref], {"paid": "pass"})],
    "entities.unmark": [lambda view, ref: view.entities.unmark("customer", [ref], ["paid"])],
    "entities.expect": [lambda view, _: view.entities.expect("customer", ["paid", "more"])],
    "entities.expected": [lambda view, _: view.entities.expected()],
    "entities.get": [lambda view, ref: view.entities.get(ref)],
    "entities.marks": [lambda view, ref: view.entities.marks(ref)],
    "entities.children": [lambda view, ref: view.entities.children(ref)],
    "entities.query": [
        lambda view, _: view.entities.query("customer", total=True), lambda view, _: view.entities.query("order"),
        lambda view, _: view.entities.query("customer", order="-key"),
        lambda view, _: view.entities.query("customer", "key startswith 'secretb' or key = 'A'"),
    ],
    "entities.groups": [
        lambda view, _: view.entities.groups("customer", "key"), lambda view, _: view.entities.groups("customer", "status"),
    ],
    "checklists.add": [lambda view, ref: view.checklists.add(ref, "x")],
    "checklists.done": [lambda view, ref: view.checklists.done(ref, 1), lambda view, ref: view.checklists.done(3, ref)],
    "checklists.undone": [lambda view, ref: view.checklists.undone(ref, 1)],
    "checklists.edit": [lambda view, ref: view.checklists.edit(ref, "x")],
    "checklists.move": [lambda view, ref: view.checklists.move(ref)],
    "checklists.remove": [lambda view, ref: view.checklists.remove(ref, 1)],
    "checklists.items": [lambda view, ref: view.checklists.items(ref)],
    "projects.list": _REFUSED, "projects.stats": _REFUSED, "projects.merge": _REFUSED, "projects.delete": _REFUSED,
    "projects.rename": _REFUSED,
    "projects.get": [lambda view, _: view.projects.get(), lambda view, _: view.projects.get("other")],
    "log.head": [lambda view, _: view.log.head()],
    "log.get": _REFUSED, "log.read": _REFUSED,
    "sessions.start": [lambda view, ref: view.sessions.start(about=ref), lambda view, ref: view.sessions.start(parent=ref),
                       lambda view, ref: view.sessions.start(task=ref), lambda view, _: view.sessions.start()],
    "sessions.get": [lambda view, ref: view.sessions.get(ref)],
    "sessions.import_": [
        lambda view, _: view.sessions.import_([{"type": "user.message", "content": [{"type": "text", "text": "x"}]}]),
        lambda view, ref: view.sessions.import_([], about=ref), lambda view, ref: view.sessions.import_([], task=ref),
    ],
    "sessions.list": [
        lambda view, _: view.sessions.list(archived=None), lambda view, _: view.sessions.list(newest_first=True),
        lambda view, ref: view.sessions.list(task=ref), lambda view, ref: view.sessions.list(about=ref),
        lambda view, ref: view.sessions.list(parent=ref),
    ],
    "sessions.waiting": [lambda view, _: view.sessions.waiting()],
    "sessions.ready": [lambda view, _: view.sessions.ready()],
    "sessions.confirm": [lambda view, ref: view.sessions.confirm(ref, "allow")],
    "sessions.source": [
        lambda view, ref: view.sessions.source(ref),
        lambda view, ref: view.sessions.source(view.notes.add("fact", "x", source=f"#{ref}")),
    ],
}  # fmt: skip

# Of the session itself: what it is asked, beside what only writes to it.
_OF_SESSION: dict[str, Any] = {
    "info": lambda session, _: session.info, "status": lambda session, _: session.status,
    "id": None, "outside": None, "repeated": None, "provisional": None, "void": None, "store": None, "append": None,
    "extend": None, "archive": None, "forget": None, "compact": None, "using": None, "execute": None, "hold": None,
    "give_back": None, "confirm": None,
    "change": lambda session, ref: session.change(task=ref), "fork": lambda session, ref: session.fork(ref),
    "events": lambda session, _: session.events(), "event": lambda session, ref: session.event(ref),
    "state": lambda session, _: session.state(), "read": lambda session, ref: session.read(ref),
    "watch": lambda session, _: session.watch(after=0, timeout=0), "waiting": lambda session, _: session.waiting(),
    "window": lambda session, _: session.window(budget=20_000),
    "audit": lambda session, _: session.audit(),
    "export": lambda session, _: list(session.export()), "holder": lambda session, _: session.holder(),
}  # fmt: skip


def _public() -> set[str]:
    """Every public verb of a store and of its namespaces."""
    found = {name for name, _ in inspect.getmembers(Store) if not name.startswith("_")}
    return found - {*_PLAIN, *_NO_VIEW, "sessions"}


def _of_namespaces(store: Store) -> set[str]:
    spaces = ("notes", "links", "attempts", "entities", "checklists", "projects", "log", "sessions")
    return {f"{space}.{name}" for space in spaces for name in dir(getattr(store, space)) if not name.startswith("_")}


def _refs(world: World) -> list[Any]:
    near = f"customer:{_key(world.store)}".replace(_MARK, "secretx")
    return [*range(world.store.log.head().seq + 2), "customer:A", near, "order:x", "x:y", f"{world.goal}.1"]


def test_every_public_verb_is_among_those_that_are_asked(world: World) -> None:
    """A new verb of the store has to be looked at: is it narrowed to the subject, or refused?"""
    assert _public() | _of_namespaces(world.store) == set(_ASKED)
    assert {name for name in dir(Session) if not name.startswith("_")} == set(_OF_SESSION)


@pytest.mark.parametrize("verb", [verb for verb, asked in _ASKED.items() if asked != _REFUSED])
def test_no_answer_about_one_subject_says_anything_about_another(
    world: World, verb: str, undone: Callable[[Store], contextlib.AbstractContextManager[None]]
) -> None:
    """Whatever is asked, by any record or name: the answer, the error, their JSON and their text name nothing of B's."""
    view, found = world.view, []
    answers = 0
    for asked in _ASKED[verb]:
        refs = _refs(world) if asked.__code__.co_varnames[1] == "ref" else [None]
        for ref in refs:
            inside = contextlib.nullcontext() if verb in ("wait_for_index", "forget", "redact") else undone(view)
            with inside:
                leak, answered = _leaks(partial(asked, view, ref))
            answers += answered
            if leak:
                found.append((ref, leak[:600]))
    assert not found
    assert answers


@pytest.mark.parametrize("verb", [verb for verb, asked in _ASKED.items() if asked == _REFUSED])
def test_what_cannot_be_narrowed_is_refused(world: World, verb: str, tmp_path: Path) -> None:
    """With the arguments that a plain view answers, and before anything was done."""
    given: dict[str, tuple[Any, ...]] = {
        "at": (world.store.log.head().seq,), "export": (tmp_path / "a",), "backup": (tmp_path / "b",), "rekey": (bytes(32),),
        "import_": (tmp_path,), "undo": (world.goal,), "projects.merge": ("x",), "projects.delete": ("x",),
        "projects.rename": ("x",), "log.get": (1,),
    }  # fmt: skip
    called: Any = world.view
    for part in verb.split("."):
        called = getattr(called, part)
    head = world.store.log.head()
    with pytest.raises(OutOfReach, match="about entity"):
        called(*given.get(verb, ()))
    assert world.store.log.head() == head
    assert {each.name for each in tmp_path.iterdir()} <= {"work.db", "work.db-wal", "work.db-shm"}


@pytest.mark.parametrize("verb", [verb for verb, asked in _OF_SESSION.items() if asked is not None])
def test_a_session_says_nothing_about_another_subject(
    world: World, verb: str, undone: Callable[[Store], contextlib.AbstractContextManager[None]]
) -> None:
    """Neither do its events, its state and its window."""
    asked = _OF_SESSION[verb]
    for ref in range(world.store.log.head().seq + 1):
        with undone(world.view):
            leak, _ = _leaks(partial(asked, world.session, ref))
        assert not leak


def test_a_plain_view_is_told_all_of_it(world: World) -> None:
    """What is about B can be found, so that the tests above look for what is there."""
    for verb, place in (
        ("resume", 1), ("resume", 3), ("left", 1), ("find", 0), ("recall", 0), ("checkpoints", 0), ("claims", 0),
        ("notes.list", 0), ("attempts.earlier", 0), ("entities.groups", 0), ("entities.query", 0),
        ("sessions.list", 0), ("sessions.waiting", 0), ("sessions.ready", 0),
    ):  # fmt: skip
        asked = partial(_ASKED[verb][place], world.store, None)
        assert _leaks(asked)[0], verb
