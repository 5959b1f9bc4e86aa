"""`request_id`: a call that is made again, because nobody heard the answer, is done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Conflict, InvalidInput, NewNote, RequestMismatch, Row, Store
from agentmem.limits import REQUEST_DAYS, REQUEST_ID_CHARS


@pytest.fixture
def goal(store: Store) -> int:
    """A goal with a question, an attempt and two items."""
    goal = store.notes.add("goal", "Move to the queue").id
    store.checklists.add(goal, "First", "Second")
    return goal


# Every write command, as (name, call): `s` is the store, `g` the goal, `r` the request id.
COMMANDS: list[tuple[str, Callable[[Store, int, str], Any]]] = [
    ("notes.add", lambda s, g, r: s.notes.add("fact", "Noted", parent=g, tags=["a"], request_id=r)),
    ("notes.add_many", lambda s, g, r: s.notes.add_many([NewNote("fact", "Noted", parent=g)], request_id=r)),
    ("notes.update", lambda s, g, r: s.notes.update(g, append="More", request_id=r)),
    ("notes.update_many", lambda s, g, r: s.notes.update_many([g], status="active", request_id=r)),
    ("notes.move", lambda s, g, r: s.notes.move(s.notes.list(kind="step")[0], parent=None, request_id=r)),
    ("links.add", lambda s, g, r: s.links.add(g, "uses", s.notes.list(kind="lesson")[0], request_id=r)),
    ("links.remove", lambda s, g, r: s.links.remove(g, "relates_to", s.notes.list(kind="lesson")[0], request_id=r)),
    ("attempts.open", lambda s, g, r: s.attempts.open("Try it", task=g, request_id=r)),
    ("attempts.close", lambda s, g, r: s.attempts.close(s.notes.list(kind="attempt")[0], "worked", request_id=r)),
    ("entities.put", lambda s, g, r: s.entities.put("host", "b", attrs={"a": 1.0}, request_id=r)),
    ("entities.put_many", lambda s, g, r: s.entities.put_many("host", rows=[Row("c")], keys=["d"], request_id=r)),
    ("entities.rename", lambda s, g, r: s.entities.rename(s.entities.query("host").entities[0], "z", request_id=r)),
    ("entities.mark", lambda s, g, r: s.entities.mark("host", ["a"], {"tls": "pass"}, request_id=r)),
    ("entities.unmark", lambda s, g, r: s.entities.unmark("host", ["a"], ["csrf"], request_id=r)),
    ("entities.expect", lambda s, g, r: s.entities.expect("host", ["tls"], where="status = :s", s="new", request_id=r)),
    ("checklists.add", lambda s, g, r: s.checklists.add(g, "Third", request_id=r)),
    ("checklists.done", lambda s, g, r: s.checklists.done(g, 1, request_id=r)),
    ("checklists.undone", lambda s, g, r: s.checklists.undone(g, 2, request_id=r)),
    ("checklists.edit", lambda s, g, r: s.checklists.edit(f"{g}.1", "Other", request_id=r)),
    ("checklists.move", lambda s, g, r: s.checklists.move(f"{g}.1", after=f"{g}.2", request_id=r)),
    ("checkpoint", lambda s, g, r: s.checkpoint("Here", task=g, request_id=r)),
    ("summarize", lambda s, g, r: s.summarize(g, result="Done", request_id=r)),
    ("confirm", lambda s, g, r: s.confirm(g, confidence=0.5, request_id=r)),
    ("projects.rename", lambda s, g, r: s.projects.rename("beta", request_id=r)),
]


@pytest.mark.parametrize("command", [call for _, call in COMMANDS], ids=[name for name, _ in COMMANDS])
def test_w9_a_repeat_returns_the_first_outcome_and_writes_nothing(
    store: Store, goal: int, command: Callable[[Store, int, str], Any]
) -> None:
    """A call that timed out may have been done, and a retry does it twice. Ours is done once, whatever the verb."""
    store.notes.add("step", "Step", parent=goal)
    lesson = store.notes.add("lesson", "Lesson")
    store.links.add(goal, "relates_to", lesson)
    store.attempts.open("Before", task=goal)
    store.entities.put("host", "a")
    store.entities.mark("host", ["a"], {"csrf": "pass"})
    first = command(store, goal, "q1")
    head = store.log.head()
    again = command(store, goal, "q1")
    assert store.log.head() == head
    assert again.repeated
    assert not first.repeated
    assert getattr(again, "id", None) == getattr(first, "id", None)
    assert getattr(again, "ids", None) == getattr(first, "ids", None)
    assert getattr(again, "created", None) == getattr(first, "created", None)
    assert again.changed == first.changed
    if hasattr(first, "revision"):
        assert again.revision == first.revision


def test_a_repeat_survives_the_process(store: Store, goal: int, opened: Callable[..., Store]) -> None:
    """What was asked is remembered in the file."""
    first = store.notes.add("fact", "Noted", parent=goal, request_id="q1")
    store.close()
    again = opened().notes.add("fact", "Noted", parent=goal, request_id="q1")
    assert (again.id, again.repeated) == (first.id, True)


def test_a_repeat_returns_the_record_as_it_is_now(store: Store, goal: int) -> None:
    """The revision is the present one, which a claim does not move, and can be expected."""
    note = store.notes.add("fact", "Noted", parent=goal, request_id="q1")
    changed = store.notes.update(note, append="More")
    store.claim([note])
    again = store.notes.add("fact", "Noted", parent=goal, request_id="q1")
    assert again.revision == changed.revision == store.notes.get(note).revision
    store.notes.update(note, append="Even more", expected_revision=again.revision)


def test_a_repeated_opening_names_the_earlier_attempts(store: Store, goal: int) -> None:
    """Whoever retries the opening of an attempt needs to hear of those before it as the first caller did."""
    old = store.attempts.open("Guess the port", task=goal)
    store.attempts.close(old, "failed", why="Refused")
    first = store.attempts.open("Guess the port again", task=goal, request_id="q1")
    again = store.attempts.open("Guess the port again", task=goal, request_id="q1")
    assert [each.id for each in first.earlier] == [old.id]
    assert again.repeated
    assert again.earlier == first.earlier


def test_a_no_op_is_remembered_too(store: Store, goal: int) -> None:
    """A request that changed nothing stays one that changed nothing, whatever was written since."""
    assert not store.notes.update(goal, status="open", request_id="q1").changed
    store.notes.update(goal, status="active")
    again = store.notes.update(goal, status="open", request_id="q1")
    assert again.repeated
    assert store.notes.get(goal).status == "active"


@pytest.mark.parametrize(
    "other",
    [
        lambda s, g: s.notes.add("fact", "Noted!", parent=g, request_id="q1"),
        lambda s, g: s.notes.add("lesson", "Noted", parent=g, request_id="q1"),
        lambda s, g: s.notes.add("fact", "Noted", request_id="q1"),
        lambda s, g: s.notes.add("fact", "Noted", parent=g, confidence=1, request_id="q1"),
        lambda s, g: s.notes.update(g, title="Noted", request_id="q1"),
        lambda s, g: s.checkpoint("Noted", task=g, request_id="q1"),
    ],
)
def test_the_same_id_with_other_arguments_is_refused(
    store: Store, goal: int, other: Callable[[Store, int], Any]
) -> None:
    """An id stands for one request: another verb or argument under it is an error and writes nothing."""
    store.notes.add("fact", "Noted", parent=goal, request_id="q1")
    head = store.log.head()
    with pytest.raises(RequestMismatch):
        other(store, goal)
    assert store.log.head() == head


def test_arguments_are_compared_exactly(store: Store) -> None:
    """True, 1 and 1.0 are three arguments."""
    store.entities.put("host", "a", attrs={"x": 1}, request_id="q1")
    for value in (True, 1.0, "1"):
        with pytest.raises(RequestMismatch):
            store.entities.put("host", "a", attrs={"x": value}, request_id="q1")
    assert store.entities.put("host", "a", attrs={"x": 1}, request_id="q1").repeated


def test_a_record_and_its_id_are_one_argument(store: Store, goal: int) -> None:
    """A retry may name by number what the first call gave as a value."""
    store.notes.add("fact", "Noted", parent=store.notes.get(goal), request_id="q1")
    assert store.notes.add("fact", "Noted", parent=goal, request_id="q1").repeated


def test_an_error_is_not_remembered(store: Store, goal: int) -> None:
    """After a refusal the same id may be used for the corrected request."""
    with pytest.raises(Conflict):
        store.notes.update(goal, title="New", expected_revision=1, request_id="q1")
    assert store.notes.update(goal, title="New", request_id="q1").changed == ("title",)


def test_a_request_of_a_transaction_that_was_rolled_back_is_forgotten(store: Store, goal: int, undone: Any) -> None:
    """It was never done, so doing it again does it."""
    with undone(store):
        store.notes.add("fact", "Noted", parent=goal, request_id="q1")
    assert not store.notes.add("fact", "Noted", parent=goal, request_id="q1").repeated


def test_requests_of_two_projects_are_two_requests(store: Store) -> None:
    """Ids need to be unique within a project only."""
    store.notes.add("goal", "Here", request_id="q1")
    assert not store.in_project("other").notes.add("goal", "There", request_id="q1").repeated


def test_the_file_keeps_no_text_of_a_request(store: Store) -> None:
    """What was asked is kept as a keyed hash: after a purge nobody can tell it by guessing."""
    store.notes.add("fact", "hunter2passwort", request_id="q1")
    with store.database.read() as connection:
        rows = connection.execute("SELECT * FROM request").fetchall()
    assert b"hunter2" not in repr(rows).encode()


def test_old_requests_are_forgotten(store: Store, clock: Any) -> None:
    """After so many days an id means nothing any more."""
    store.notes.add("fact", "Noted", request_id="q1")
    clock.advance(seconds=(REQUEST_DAYS + 1) * 86_400)
    store.notes.add("fact", "Other", request_id="q2")
    assert not store.notes.add("fact", "Noted", request_id="q1").repeated


@pytest.mark.parametrize("bad", ["", "a b", "x" * (REQUEST_ID_CHARS + 1), "a\nb", 7])
def test_a_request_id_is_a_label(store: Store, bad: Any) -> None:
    """One word of bounded length."""
    with pytest.raises(InvalidInput):
        store.notes.add("fact", "Noted", request_id=bad)


def test_arguments_nested_without_end_are_refused(store: Store) -> None:
    """They are one of our errors with a request id as without."""
    endless: dict[str, Any] = {}
    endless["again"] = endless
    with pytest.raises(InvalidInput):
        store.entities.put("host", "a", attrs=endless, request_id="q1")
    with pytest.raises(InvalidInput):
        store.entities.put("host", "a", attrs=endless)
