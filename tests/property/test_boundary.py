"""Whatever is passed to whatever verb: it works, or it is refused by a typed error and nothing is written."""

from __future__ import annotations

import datetime
import inspect
import math
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentmem import UNSET, AgentMemError, NewNote, Result, Row, Scope, Store
from agentmem.errors import UNSEEN

HIDDEN = re.compile(f"[{UNSEEN}]")


class Speechless:
    """A value that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


class Named:
    """A value that has an id."""

    def __init__(self, found: object) -> None:
        self.id = found


def _deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


DEEP = _deep()

# As calls, since a generator is spent by its first use.
ODD: list[Callable[[], Any]] = [
    *(
        (lambda value=value: value)  # type: ignore[misc]
        for value in (
            None, True, False, 0, 1, -1, 2**63 - 1, 2**63, -(2**63), 10**5000, 0.0, 1.5, -0.5, math.nan, math.inf,
            "", " ", "x", "#1", "1", "1.1", "9" * 19 + ".1", "9" * 5000, "$1", "host:a", "host:", ":", "*", "a\nb", "\0",
            "\ud800", "\x1b[31m", "\u202e", "\u3164", "a\U000e0100", "x" * 300_000, "é", "a=1", "all:1:1", "all:nan:1",
            f"all:1:{'9' * 30}", b"", b"x", [], [[]], [1], ["a", "a"], ["x" * 300_000], [None], {}, {"a": 1}, {1: "a"},
            {"a": 10**5000}, {"a": math.nan}, {10**5000: 1}, set(), {1, "a"}, frozenset({"a"}), (), ("uses", 1), DEEP,
            {"a": DEEP}, object(), Speechless(), [Speechless()], Named(True), Named(1.5), Named("1"), Named(10**30),
            Named(None), Named(Speechless()), UNSET, lambda *given: given, Store, NewNote, Scope("host"), Scope(5, DEEP, 5),  # type: ignore[arg-type]
            Scope("host", "attrs.a = " + "9" * 5000), NewNote(5, Speechless()), Row(5, attrs=5), Result(5),  # type: ignore[arg-type]
            datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
        )
    ),
    lambda: (each for each in ("a", "b")),
    lambda: iter([1]),
]  # fmt: skip

odd_values = st.one_of(
    st.sampled_from(ODD).map(lambda make: make()),
    st.text(max_size=20),
    st.integers(),
    st.floats(),
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=5),
)

# What each verb needs at least. `g` is a goal, `i` an item of it, `a` an attempt, `q` a question, `f` a folder of logs.
NEEDS: dict[str, Callable[[dict[str, Any]], tuple[Any, ...]]] = {
    "notes.add": lambda at: ("fact", "Noted"),
    "notes.add_many": lambda at: ([NewNote("fact", "Noted")],),
    "notes.update": lambda at: (at["g"],),
    "notes.update_many": lambda at: ([at["g"]],),
    "notes.move": lambda at: (at["a"],),
    "notes.get": lambda at: (at["g"],),
    "notes.list": lambda at: (),
    "links.add": lambda at: (at["g"], "relates_to", at["q"]),
    "links.remove": lambda at: (at["g"], "relates_to", at["q"]),
    "links.list": lambda at: (at["g"],),
    "attempts.open": lambda at: ("Tried",),
    "attempts.close": lambda at: (at["a"], "worked"),
    "attempts.earlier": lambda at: ("Tried",),
    "attempts.failed_like": lambda at: ("make all",),
    "entities.put": lambda at: ("host", "a"),
    "entities.put_many": lambda at: ("host",),
    "entities.rename": lambda at: ("host:b", "b"),
    "entities.mark": lambda at: ("host", ["a"], {"tls": "pass"}),
    "entities.unmark": lambda at: ("host", ["a"], ["tls"]),
    "entities.expect": lambda at: ("host", ["tls"]),
    "entities.expected": lambda at: (),
    "entities.get": lambda at: ("host:a",),
    "entities.marks": lambda at: ("host:a",),
    "entities.children": lambda at: ("host:a",),
    "entities.query": lambda at: ("host",),
    "entities.groups": lambda at: ("host", "status"),
    "checklists.add": lambda at: (at["g"],),
    "checklists.done": lambda at: (at["g"],),
    "checklists.undone": lambda at: (at["g"],),
    "checklists.edit": lambda at: (at["i"], "First"),
    "checklists.move": lambda at: (at["i"],),
    "checklists.remove": lambda at: (at["g"],),
    "checklists.items": lambda at: (at["g"],),
    "projects.list": lambda at: (),
    "projects.get": lambda at: (),
    "projects.rename": lambda at: ("acme",),
    "projects.stats": lambda at: (),
    "log.head": lambda at: (),
    "log.get": lambda at: (1,),
    "log.read": lambda at: (),
    "in_project": lambda at: ("acme",),
    "acting": lambda at: (),
    "beneath": lambda at: (at["g"],),
    "resume": lambda at: (),
    "left": lambda at: (),
    "task_summary": lambda at: (at["g"],),
    "graph": lambda at: (at["g"],),
    "get": lambda at: (at["g"],),
    "find": lambda at: ("noted",),
    "recall": lambda at: ("noted",),
    "news": lambda at: (),
    "scope": lambda at: ("host",),
    "checkpoint": lambda at: ("Here",),
    "checkpoints": lambda at: (),
    "summarize": lambda at: (at["g"],),
    "confirm": lambda at: (at["g"],),
    "claim": lambda at: ("host:a",),
    "release": lambda at: (),
    "claims": lambda at: (),
    "claim_token": lambda at: (),
    "adopt_claims": lambda at: ("00" * 16,),
    "import_": lambda at: (at["f"],),
    "verify": lambda at: (),
    "wait_for_index": lambda at: (),
    "stats": lambda at: (),
    "watch": lambda at: (),
    "projects.merge": lambda at: ("other",),
    "projects.delete": lambda at: ("nothing",),
    "history": lambda at: (),
    "revisions": lambda at: (at["g"],),
    "revision": lambda at: (at["g"], at["g"]),
    "diff": lambda at: (at["g"], at["g"]),
    "at": lambda at: (1,),
    "undo": lambda at: (at["g"],),
    "forget": lambda at: (at["x"],),
    "redact": lambda at: (at["g"],),
    "review": lambda at: (),
    "backup": lambda at: (at["new"],),
    "restore": lambda at: (at["f"], at["new"]),
    "salvage": lambda at: (at["f"], at["new"]),
    "doctor": lambda at: (at["f"],),
    "export": lambda at: (at["new"],),
    "rekey": lambda at: (b"k" * 32,),
    "sessions.start": lambda at: (),
    "sessions.get": lambda at: (at["s"],),
    "sessions.list": lambda at: (),
    "sessions.waiting": lambda at: (),
    "sessions.ready": lambda at: (),
    "sessions.confirm": lambda at: (at["c"], "allow"),
    "sessions.source": lambda at: (at["g"],),
    "sessions.import_": lambda at: ([{"id": "a", "type": "user.message", "content": [{"type": "text", "text": "x"}]}],),
    "session.append": lambda at: ("user.message", "Said"),
    "session.extend": lambda at: ([("user.message", "Said")],),
    "session.change": lambda at: (),
    "session.archive": lambda at: (),
    "session.forget": lambda at: (),
    "session.fork": lambda at: (),
    "session.events": lambda at: (),
    "session.event": lambda at: (at["c"],),
    "session.state": lambda at: (),
    "session.read": lambda at: (at["c"],),
    "session.watch": lambda at: (),
    "session.waiting": lambda at: (),
    "session.confirm": lambda at: (at["c"], "deny"),
    "session.window": lambda at: (),
    "session.compact": lambda at: (),
    "session.export": lambda at: (),
    "session.audit": lambda at: (),
    "session.execute": lambda at: ("nothing",),
    "session.hold": lambda at: (),
    "session.give_back": lambda at: (),
    "session.holder": lambda at: (),
}
# They end or hold the store, and take no value.
LEFT_OUT = {"open", "close", "transaction", "database", "project", "path", "actor", "limit"}
NAMESPACES = ("notes", "links", "attempts", "entities", "checklists", "projects", "sessions", "log")
# What a session has beside its verbs; `using` takes an object of a program's own.
OF_SESSION = {"id", "outside", "repeated", "provisional", "void", "info", "status", "store", "using"}


def public(value: object) -> set[str]:
    return {name for name in dir(value) if not name.startswith("_")}


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A store with a record of each type, and what names them; files that verbs make go to a folder of their own."""
    here = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("made"))
    yield from opened(tmp_path_factory)
    os.chdir(here)


def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("logs")
    (folder / "log.md").write_text("# Goal\n\n- [ ] First\n", "utf-8")
    path: Path = tmp_path_factory.mktemp("store") / "work.db"
    with Store.open(path, project="acme", run="r1", encrypted=False, durability="normal") as store:
        goal = store.notes.add("goal", "Goal").id
        item = store.checklists.add(goal, "First", "Second").ids[0]
        question = store.notes.add("question", "Why", parent=goal).id
        attempt = store.attempts.open("Tried", task=goal).id
        store.entities.put_many("host", keys=["a", "b"])
        store.checkpoint("Here")
        store.in_project("other").notes.add("fact", "Elsewhere")
        brief = store.notes.add("fact", "To be forgotten").id
        session = store.sessions.start(title="Talk")
        call = session.append("agent.tool_use", {"name": "a", "input": {}, "permission": "ask"}).id
        yield {
            "store": store, "g": goal, "i": item, "q": question, "a": attempt, "f": folder, "x": brief, "s": session.id,
            "c": call, "new": folder.parent / "made" / "new.db",
        }  # fmt: skip


def test_every_public_verb_is_tried(at: dict[str, Any]) -> None:
    """A verb that is added to the store, or to a namespace of it, is added to the table above."""
    store = at["store"]
    verbs = public(store) - LEFT_OUT - set(NAMESPACES)
    verbs |= {f"{space}.{verb}" for space in NAMESPACES for verb in public(getattr(store, space))}
    verbs |= {f"session.{verb}" for verb in public(store.sessions.get(at["s"])) - OF_SESSION}
    assert verbs == set(NEEDS)


def bound(at: dict[str, Any], verb: str) -> Callable[..., Any]:
    """A verb of the store, of a namespace, or of a session that is begun for it."""
    space, _, name = verb.rpartition(".")
    found: Any = at["store"]
    if space == "session":
        found = found.sessions.get(at["s"])
        if name in ("archive", "change", "forget", "hold"):  # they would end it for the others
            found = found.fork()
    elif space:
        found = getattr(found, space)
    call: Callable[..., Any] = getattr(found, name)
    return call


def called(call: Callable[..., Any], verb: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
    answer = call(*arguments, **options)
    if verb in ("watch", "session.watch"):
        next(answer, None)
    elif verb == "session.export":
        list(answer)


@pytest.mark.parametrize("verb", NEEDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_value_is_taken_or_refused_by_a_typed_error(at: dict[str, Any], verb: str, data: st.DataObject) -> None:
    """No other exception comes out, its message is one readable line, and after it the log ends where it did."""
    store: Store = at["store"]
    arguments = list(NEEDS[verb](at))
    call = bound(at, verb)
    parameters = inspect.signature(call).parameters.values()
    named = [each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY]
    named += [each.name for each in parameters if each.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD][
        len(arguments) :
    ]
    more = any(each.kind is inspect.Parameter.VAR_POSITIONAL for each in parameters)
    places = [*range(len(arguments) + more), *named]
    options: dict[str, Any] = {"timeout": 0} if "timeout" in named else {}
    for place in data.draw(st.lists(st.sampled_from(places), min_size=1, max_size=2, unique=True)) if places else ():
        value = data.draw(odd_values, label=str(place))
        if isinstance(place, str):
            options[place] = value
        elif place < len(arguments):
            arguments[place] = value
        else:
            arguments.append(value)
    waits = options.get("timeout", 0)
    if waits is None or (isinstance(waits, int | float) and waits > 0):  # what would be waited for never comes
        options["timeout"] = 0
    head = store.log.head()
    try:
        called(call, verb, tuple(arguments), options)
    except AgentMemError as error:
        assert store.log.head() == head
        told = str(error)
        assert told.isprintable()
        assert not HIDDEN.search(told)
        assert len(told) < 5000


OPTIONS = ("project", "key", "author", "run", "origin", "create", "read_only", "encrypted", "durability", "busy_timeout",
           "credentials", "counter", "clock")  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(option=st.sampled_from(("path", *OPTIONS)), value=odd_values)
def test_any_option_opens_the_store_or_is_refused_by_a_typed_error(
    at: dict[str, Any], tmp_path: Path, option: str, value: Any
) -> None:
    """Opening, writing and reading with any value of any option works or raises an error of ours."""
    assume(not isinstance(value, type))  # what a class raises that is called with the wrong arguments is its own
    options = {"path": at["store"].path, "project": "acme", "encrypted": False} | {option: value}
    if option == "path" and isinstance(value, str) and value.strip():
        options["path"] = f"{tmp_path}/{value}"
    try:
        with Store.open(**options) as store:
            store.checkpoint("Here")
            store.resume()
    except AgentMemError as error:
        assert str(error).isprintable()
