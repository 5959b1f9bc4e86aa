"""`store.revisions`, `store.revision`, `store.diff`: every record as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agentmem import InvalidInput, NotFound, Result, Store
from agentmem.context.tokens import count_tokens
from agentmem.past.fields import FieldChange
from agentmem.past.folding import Scratch
from agentmem.past.revisions import states
from agentmem.records.kinds import KINDS
from agentmem.types import Entity, Note


def seqs(store: Store, ref: Any) -> list[int]:
    """The revisions of a record, oldest first."""
    return [change.seq for change in reversed(store.revisions(ref).changes)]


def differing(store: Store, ref: Any, before: int, after: int | None = None) -> dict[str, tuple[Any, Any]]:
    """What differs between two revisions."""
    return {field.name: (field.before, field.after) for field in store.diff(ref, before, after).fields}


# Every type of record


def test_a_note_is_given_as_it_was(store: Store) -> None:
    """Each revision of a note is the value that was read at the time."""
    goal = store.notes.add("goal", "Check", scope=store.scope("host", checks=["tls"]), tags=["p1"], pin=True)
    read = [store.notes.get(goal)]
    for change in ({"title": "Check all"}, {"body": "one\ntwo", "tags": []}, {"status": "active", "pin": False}):
        store.notes.update(goal, **change)
        read.append(store.notes.get(goal))
    assert [store.revision(goal, seq) for seq in seqs(store, goal)] == read


def test_w6_every_revision_of_an_entity_is_there(store: Store) -> None:
    """Attributes and marks are part of a revision: what each was after any event can be read again."""
    read = []

    def note(seq: int) -> None:
        read.append((seq, store.entities.get("host:h1")))

    note(store.entities.put("host", "h1", attrs={"os": "linux", "n": 1}).revision)
    note(store.entities.put("host", "h1", attrs={"os": None, "n": 1.0, "up": True}, status="seen").revision)
    store.entities.mark("host", ["h1"], {"tls": Result("fail", value=[1, None], detail="old")})
    note(store.log.head().seq)
    store.entities.unmark("host", ["h1"], ["tls"])
    note(store.log.head().seq)
    assert [store.revision("host:h1", seq) for seq, _ in read] == [value for _, value in read]
    assert differing(store, "host:h1", read[0][0], read[2][0]) == {
        "status": ("new", "seen"), "attrs.os": ("linux", None), "attrs.n": (1, 1.0), "attrs.up": (None, True),
        "check.tls": (None, {"result": "fail", "value": [1, None], "detail": "old"}),
    }  # fmt: skip


def test_items_summaries_checkpoints_declarations_and_projects_have_revisions(store: Store) -> None:
    """Whatever has an id can be read as it was, a value of its own type."""
    step = store.notes.add("step", "Read")
    item = store.checklists.add(step, "one").ids[0]
    store.checklists.done(step, 1)
    summary = store.summarize(step, result="done").id
    store.summarize(step, result="done twice")
    checkpoint = store.checkpoint("here", task=step).id
    checks = store.entities.expect("host", ["tls"]).id
    store.entities.expect("host", ["tls", "ssh"])
    project = store.projects.get().id
    assert [store.revision(item, seq).done for seq in seqs(store, item)] == [False, True]  # type: ignore[union-attr]
    assert [store.revision(summary, seq).result for seq in seqs(store, summary)] == ["done", "done twice"]  # type: ignore[union-attr]
    assert store.revision(checkpoint, checkpoint) == store.get(checkpoint)
    assert [store.revision(checks, seq).names for seq in seqs(store, checks)] == [("tls",), ("tls", "ssh")]  # type: ignore[union-attr]
    store.projects.rename("acme2")
    assert [store.revision(project, seq).name for seq in seqs(store, project)] == ["acme", "acme2"]  # type: ignore[union-attr]


def test_a_removed_item_can_be_read_as_it_was(store: Store) -> None:
    """What was taken off a list is still there as it was before."""
    step = store.notes.add("step", "Read")
    item = store.checklists.add(step, "one").ids[0]
    store.checklists.remove(step, 1)
    assert store.revision(f"{step.id}.1", item).text == "one"  # type: ignore[union-attr]


def test_a_long_text_is_given_whole(store: Store) -> None:
    """A text that the log keeps apart from the event is part of each revision that had it."""
    note = store.notes.add("fact", "Long", body="x" * 50_000)
    changed = store.notes.update(note, body="y" * 50_000)
    before, after = store.revision(note, note.id), store.revision(note, changed.revision)
    assert isinstance(before, Note)
    assert isinstance(after, Note)
    assert (before.body, after.body) == ("x" * 50_000, "y" * 50_000)


# Any moment


def test_any_event_is_a_moment(store: Store) -> None:
    """The revision at an event of another record is what the record was just then."""
    note = store.notes.add("fact", "one")
    other = store.notes.add("fact", "other")
    store.notes.update(note, title="two")
    assert store.revision(note, other.id).title == "one"  # type: ignore[union-attr]


def test_before_its_creation_and_after_the_end_of_the_log_there_is_no_revision(store: Store) -> None:
    """Both are errors that say which."""
    store.notes.add("fact", "first")
    note = store.notes.add("fact", "one")
    with pytest.raises(NotFound, match="did not exist"):
        store.revision(note, note.id - 1)
    with pytest.raises(NotFound, match="log ends"):
        store.revision(note, note.id + 1)
    with pytest.raises(NotFound, match="did not exist"):
        store.diff(note, note.id - 1)


def test_claims_make_no_revision(store: Store) -> None:
    """Who held a record is in its history and in none of its revisions."""
    step = store.notes.add("step", "Read")
    store.claim(step)
    assert seqs(store, step) == [step.id]
    assert store.diff(step, step.id).after == step.id


def test_a_withdrawn_record_is_there_before_and_not_after(store: Store) -> None:
    """The undo of a creation ends the record; undoing the undo brings it back as it was."""
    note = store.notes.add("fact", "one", tags=["a"])
    was = store.notes.get(note)
    store.undo(note.id)
    gone = store.log.head().seq
    assert store.revision(note.id, note.id) == was
    with pytest.raises(NotFound, match="took it back"):
        store.revision(note.id, gone)
    store.undo(gone)
    again = store.revision(note.id, store.log.head().seq)
    assert isinstance(again, Note)
    assert (again.title, again.tags) == ("one", ("a",))


# What was purged


def test_a_purged_revision_says_so(store: Store) -> None:
    """No revision of a purged record can be read, and the error says that it was purged, not that it never was."""
    note = store.notes.add("fact", "hunter2")
    store.notes.update(note, title="hunter3")
    store.forget(note)
    for seq in (note.id, note.id + 1, store.log.head().seq):
        with pytest.raises(NotFound, match="was purged") as caught:
            store.revision(note.id, seq)
        assert caught.value.code == "not_found"
        assert "hunter" not in str(caught.value)
    with pytest.raises(NotFound, match="purged"):
        store.diff(note.id, note.id)


def test_after_a_redaction_what_is_left_can_be_read(store: Store) -> None:
    """The earlier revisions are purged; the one that a redaction states, and what follows, can be read and compared."""
    note = store.notes.add("fact", "hunter2")
    changed = store.notes.update(note, title="the password")
    store.redact(note)
    stated = store.log.head().seq
    later = store.notes.update(note, title="a password")
    for seq in (note.id, changed.revision):
        with pytest.raises(NotFound, match="purged"):
            store.revision(note, seq)
    assert store.revision(note, stated).title == "the password"  # type: ignore[union-attr]
    assert differing(store, note, stated, later.revision) == {"title": ("the password", "a password")}


# Pages


def test_revisions_come_newest_first_and_page(store: Store) -> None:
    """`before=` the `next` of a page continues it."""
    note = store.notes.add("fact", "0")
    for number in range(1, 6):
        store.notes.update(note, title=str(number))
    whole = [change.seq for change in store.revisions(note).changes]
    assert whole == sorted(whole, reverse=True)
    first = store.revisions(note, limit=4)
    assert first.left == 2
    second = store.revisions(note, limit=4, before=first.next)
    assert [change.seq for change in (*first.changes, *second.changes)] == whole
    assert f"revisions({note.id}, before={first.next})" in first.text


# What differs


def test_diff_is_by_default_with_the_present(store: Store) -> None:
    """Without a second event the record as it is now is compared."""
    note = store.notes.add("fact", "one")
    store.notes.update(note, title="two", tags=["a"])
    found = store.diff(note, note.id)
    assert found.fields == (FieldChange("title", "one", "two"), FieldChange("tags", [], ["a"]))
    assert (found.before, found.after) == (note.id, note.id + 1)
    assert "2 fields differ" in found.text
    same = store.diff(note, note.id, note.id)
    assert same.fields == ()
    assert "0 fields differ" in same.text


def test_diff_backwards_swaps_the_sides(store: Store) -> None:
    """From a later to an earlier event what was and what is change places."""
    note = store.notes.add("fact", "one")
    changed = store.notes.update(note, title="two")
    assert differing(store, note, changed.revision, note.id) == {"title": ("two", "one")}
    assert "1 field differs" in store.diff(note, changed.revision, note.id).text


def test_numbers_and_truth_values_are_told_apart(store: Store) -> None:
    """1, 1.0 and true are three values; a change from one to another is one."""
    host = store.entities.put("host", "h1", attrs={"a": 1, "b": True, "c": 0})
    store.entities.put("host", "h1", attrs={"a": 1.0, "b": 1, "c": False})
    found = differing(store, host, host.id)
    assert {name: (type(before), type(after)) for name, (before, after) in found.items()} == {
        "attrs.a": (int, float), "attrs.b": (bool, int), "attrs.c": (int, bool),
    }  # fmt: skip


def test_a_text_of_many_lines_is_compared_line_by_line(store: Store) -> None:
    """The text of a diff shows the lines that changed, each quoted where its text is not to be trusted."""
    note = store.acting(origin="web").notes.add("fact", "Log", body="\n".join(f"line {n}" for n in range(40)))
    store.notes.update(note, body="\n".join(f"line {n}" for n in range(40) if n != 20) + "\n» do it")
    text = store.diff(note, note.id).text
    assert "- «web: line 20»" in text
    assert "+ «web: › do it»" in text
    assert "line 5" not in text


@pytest.mark.parametrize("budget", [300, 2000])
def test_a_diff_keeps_to_its_budget(store: Store, budget: int) -> None:
    """However long the texts are."""
    note = store.notes.add("fact", "Log", body="\n".join(f"line {n} " + "word " * 30 for n in range(900)))
    store.notes.update(note, body="\n".join(f"other {n} " + "word " * 30 for n in range(900)))
    found = store.diff(note, note.id, budget=budget)
    assert count_tokens(found.text) == found.tokens <= budget


@pytest.mark.parametrize(("verb", "arguments"), [("revision", ("x",)), ("revision", (True,)), ("diff", (None,)),
                                                 ("diff", (1, "2"))])  # fmt: skip
def test_a_moment_is_the_number_of_an_event(store: Store, verb: str, arguments: tuple[Any, ...]) -> None:
    """Anything else is refused."""
    note = store.notes.add("fact", "one")
    with pytest.raises(InvalidInput):
        getattr(store, verb)(note, *arguments)


# States, for what undoes


def test_states_are_those_right_before_each_event(store: Store) -> None:
    """Row, marks and links as they were before an event; None before the record was."""
    one = store.notes.add("fact", "one")
    host = store.entities.put("host", "h1", attrs={"a": 1})
    store.entities.mark("host", ["h1"], {"tls": Result("pass", value=1)})
    put = store.entities.put("host", "h1", attrs={"a": 2})
    two = store.notes.add("fact", "two", links=[("supports", one)])
    update = store.notes.update(two, title="three")
    with store._binding.reading() as view:
        found = states(view, KINDS, host.id, [host.id, put.revision])
        assert found[host.id] is None
        before = found[put.revision]
        assert before is not None
        assert (before.row["attrs"], before.row["key"], before.known) == ('{"a":1}', "h1", True)
        assert {name: (mark["result"], mark["value"]) for name, mark in before.marks.items()} == {"tls": ("pass", "1")}
        (linked,) = states(view, KINDS, two.id, [update.revision]).values()
        assert linked is not None
        assert list(linked.links) == [("supports", one.id)]
        assert not {"root", "shut", "open_items", "touched"} & linked.row.keys()
        assert states(view, KINDS, two.id, [put.revision]) == {}
        assert states(view, KINDS, two.id, []) == {}


def test_states_of_one_record_after_another_do_not_mix(store: Store) -> None:
    """Folded in the same tables, no record sees another."""
    notes = [store.notes.add("fact", f"n{number}") for number in range(3)]
    changed = [store.notes.update(note, title="x").revision for note in notes]
    with store._binding.reading() as view, Scratch(KINDS) as scratch:
        for note, seq in zip(notes, changed, strict=True):
            (state,) = states(view, KINDS, note.id, [seq], scratch=scratch).values()
            assert state == states(view, KINDS, note.id, [seq])[seq]
            assert scratch.connection.execute("SELECT count(*) FROM note").get == 1


def test_a_state_that_rests_on_what_was_purged_is_not_known(store: Store) -> None:
    """After an erased event a state says that it is not known, until an event states the record anew."""
    note = store.notes.add("fact", "hunter2")
    changed = store.notes.update(note, title="two").revision
    store.redact(note)
    later = store.notes.update(note, title="three").revision
    with store._binding.reading() as view:
        found = states(view, KINDS, note.id, [changed, later])
    assert [state is not None and state.known for state in found.values()] == [False, True]


def test_reading_the_past_writes_nothing(opened: Callable[..., Store]) -> None:
    """History, revisions and diffs of a store opened for reading leave its log and its file alone."""
    with opened() as store:
        note = store.notes.add("fact", "one")
        store.notes.update(note, title="two")
        head = store.log.head()
    reader = opened(read_only=True)
    assert len(reader.history().changes) == 3
    assert isinstance(reader.revision(note.id, note.id), Note)
    assert reader.diff(note.id, note.id).fields
    assert reader.log.head() == head


def test_a_value_names_its_record(store: Store) -> None:
    """An entity that was read earlier names it, whatever it is now."""
    store.entities.put("host", "h1", attrs={"a": 1})
    read = store.entities.get("host:h1")
    store.entities.put("host", "h1", attrs={"a": 2})
    was = store.revision(read, read.revision)
    assert isinstance(was, Entity)
    assert was == read
