"""A part of a store goes into any other as a copy: new ids, the same records, and nothing twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forging import Lines, event, forged, lines_of, tables

from agentmem import Conflict, CredentialFound, Held, NotFound, Result, Store

Another = Callable[..., Store]


# What comes


def test_all_that_hangs_on_a_record_comes_with_new_ids(store: Store, copy: Path, another: Another) -> None:
    """Tree, order, links inside, checklist, summary, checkpoint, entity and marks, in a store with records of its own."""
    other = another("b", project="mine", author="eve")
    other.notes.add("goal", "Here before")
    done = other.import_(copy)
    (root,) = done.roots
    step = other.notes.get(root)
    assert (step.title, step.body, step.status, step.parent) == ("Look at the ports", "long " * 1000, "done", None)
    assert (step.author, step.run, step.origin) == ("ana", "r1", "agent")
    second, first = other.notes.list(parent=root)
    assert [second.title, first.title] == ["8443 is open", "443 is open"]
    assert [(link.kind, link.dst) for link in other.links.list(second)] == [("supports", first.id)]
    assert other.entities.get(first.entity).ref == "host:web"
    (mark,) = other.entities.marks("host:web")
    assert (mark.result, mark.value, mark.detail, mark.author) == ("pass", [1.3], "only 1.3", "ana")
    assert mark.at == store.entities.marks("host:web")[0].at
    assert [(item.number, item.text, item.done) for item in other.checklists.items(root)] == [
        (1, "one", False), (2, "two", True),
    ]  # fmt: skip
    assert [each.text for each in other.checkpoints(root)] == ["halfway"]
    summary = other.get(root) and other.task_summary(root)
    assert "two are open" in summary.text
    assert done.created == {"note": 3, "entity": 1, "item": 2, "checkpoint": 1, "summary": 1}
    assert other.verify(replay=True).problems == ()


def test_only_what_was_asked_for_is_in_the_file(store: Store, copy: Path, task: int) -> None:
    """The goal above, entities that no note is about and expected checks stay at home; the header says it is a copy."""
    text = copy.read_text("utf-8")
    for absent in ("Check example.com", '"key":"db"', "checks.declared", "project.created"):
        assert absent not in text
    first = lines_of(copy)[0]
    assert (first["agentmem"], first["project"], first["roots"]) == ("copy", "acme", [task])


def test_references_to_what_is_not_in_the_file_are_dropped_and_counted(copy: Path, another: Another) -> None:
    """The parent of the step, and the link to its goal."""
    done = another("b").import_(copy)
    assert done.dropped == 2
    assert any("2 references" in notice for notice in done.notices)


def test_where_all_is_in_the_file_nothing_is_dropped(store: Store, tmp_path: Path, another: Another) -> None:
    """A tree that points at nothing outside itself has no reference to leave out."""
    goal = store.notes.add("goal", "one")
    store.notes.add("step", "two", parent=goal)
    store.export(tmp_path / "copy.jsonl", under=goal)
    assert another("b").import_(tmp_path / "copy.jsonl").dropped == 0


def test_a_project_comes_whole(store: Store, whole: Path, another: Another) -> None:
    """Entities with their parents, expected checks, everything; what is left is the same there."""
    other = another("b", project="mine")
    other.import_(whole)
    assert other.entities.get("host:db").parent == other.entities.get("host:web").id
    assert [checks.names for checks in other.entities.expected("host")] == [("tls",)]
    left = store.left()
    assert [check.left for check in other.left().expected] == [check.left for check in left.expected]


def test_an_entity_comes_with_those_beneath_it(store: Store, task: int, tmp_path: Path, another: Another) -> None:
    """Asked for an entity, its tree comes with it, and no notes about it."""
    store.export(tmp_path / "copy.jsonl", under="host:web")
    other = another("b")
    done = other.import_(tmp_path / "copy.jsonl")
    assert done.created == {"entity": 2}
    assert other.entities.get("host:db").parent == done.roots[0]


def test_times_of_the_original_are_kept_where_there_is_a_place_for_them(
    store: Store, copy: Path, another: Another, clock: Any
) -> None:
    """`dated` says when it was written there, unless it said something already; the log has its own time."""
    clock.advance(seconds=86_400)
    other = another("b")
    other.import_(copy)
    theirs = {note.title: note for note in store.notes.list(limit=100)}
    for note in other.notes.list(limit=100):
        assert note.dated == theirs[note.title].created_at < note.created_at
    dated = store.notes.add("fact", "dated", dated=5)
    store.export(copy.with_name("dated.jsonl"), under=dated)
    assert other.notes.get(other.import_(copy.with_name("dated.jsonl")).roots[0]).dated == 5


def test_the_history_comes_too(store: Store, tmp_path: Path, another: Another) -> None:
    """Earlier texts are there, and an undo in the original is an undo in the copy."""
    note = store.notes.add("fact", "first")
    changed = store.notes.update(note, title="second")
    store.undo(changed.revision)
    store.export(tmp_path / "copy.jsonl", under=note)
    other = another("b")
    (root,) = other.import_(tmp_path / "copy.jsonl").roots
    events = other.log.read(record=root)
    assert [each.kind for each in events] == ["note.added", "note.changed", "note.changed"]
    assert (events[2].payload or {})["undoes"] == events[1].seq
    assert other.notes.get(root).title == "first"
    other.undo(events[2].seq)
    assert other.notes.get(root).title == "second"


def test_what_was_taken_back_or_purged_does_not_travel(
    store: Store, task: int, tmp_path: Path, another: Another
) -> None:
    """An undone note, a purged one, earlier texts of a redacted one: not in the file, not in the copy."""
    undone = store.notes.add("fact", "xyzzy-undone", parent=task)
    store.undo(undone.id)
    store.forget(store.notes.add("fact", "xyzzy-purged", parent=task))
    redacted = store.notes.add("fact", "xyzzy-redacted", parent=task, pin=True, tags=["p1"])
    store.checklists.add(redacted, "xyzzy-item")
    store.links.add(redacted, "supports", task)
    store.notes.update(redacted, title="clean")
    store.checklists.edit(f"{redacted.id}.1", "clean item")
    store.redact(redacted)
    store.redact(f"{redacted.id}.1")
    store.export(tmp_path / "copy.jsonl", under=task)
    assert "xyzzy" not in (tmp_path / "copy.jsonl").read_text("utf-8")
    other = another("b")
    (root,) = other.import_(tmp_path / "copy.jsonl").roots
    (note,) = [note for note in other.notes.list(parent=root) if note.title == "clean"]
    assert (note.pinned, note.tags, note.author) == (True, ("p1",), "ana")
    assert [item.text for item in other.checklists.items(note)] == ["clean item"]
    assert [link.dst for link in other.links.list(note)] == [root]
    assert len(other.notes.list(parent=root)) == 3
    assert other.verify(replay=True).problems == ()


def test_a_redacted_attribute_and_mark_come_as_they_are_now(store: Store, tmp_path: Path, another: Another) -> None:
    """Of an entity whose creation was erased: its key, what is left of its attributes, its marks without their details."""
    store.entities.put("host", "web", attrs={"os": "linux", "password": "xyzzy"}, status="seen")
    store.entities.put("host", "db", parent="host:web")
    store.entities.mark("host", ["web"], {"tls": Result("fail", detail="xyzzy")})
    store.redact("host:web", attr="password")
    store.redact("host:web", check="tls")
    store.export(tmp_path / "copy.jsonl", under="host:web")
    assert "xyzzy" not in (tmp_path / "copy.jsonl").read_text("utf-8")
    other = another("b")
    other.import_(tmp_path / "copy.jsonl")
    web = other.entities.get("host:web")
    assert (web.attrs, web.status, web.checks) == ({"os": "linux"}, "seen", {"tls": "fail"})
    assert other.entities.get("host:db").parent == web.id


def test_an_order_so_fine_that_no_number_fits_is_kept(store: Store, tmp_path: Path, another: Another) -> None:
    """After many moves between the same two, in a store whose numbers are larger, siblings stand as they did."""
    goal = store.notes.add("goal", "order")
    low, high = store.notes.add("fact", "low", parent=goal), store.notes.add("fact", "high", parent=goal)
    movers = [store.notes.add("fact", f"m{number}", parent=goal) for number in range(2)]
    for number in range(60):
        store.notes.move(movers[number % 2], after=low)
    store.checklists.add(goal, "a", "b", "c")
    for number in range(60):
        store.checklists.move(f"{goal.id}.{3 if number % 2 else 2}", before=f"{goal.id}.1")
    store.export(tmp_path / "copy.jsonl", under=goal)
    other = another("b")
    with other.transaction():
        other.entities.put_many("page", keys=[f"p{number}" for number in range(3000)])
    (root,) = other.import_(tmp_path / "copy.jsonl").roots
    assert [note.title for note in other.notes.list(parent=root)] == [
        note.title for note in store.notes.list(parent=goal)
    ]
    assert [item.text for item in other.checklists.items(root)] == [item.text for item in store.checklists.items(goal)]
    assert high.id < movers[0].id


# Not twice


def test_basic_memory_1214_a_second_import_of_a_copy_adds_nothing(copy: Path, another: Another) -> None:
    """Observations silently duplicated: here the second import writes no event, and finds the same records."""
    other = another("b")
    done = other.import_(copy)
    before = tables(other)
    again = other.import_(copy)
    assert tables(other) == before
    assert (again.events, again.created, again.unchanged, again.roots) == (0, {}, 8, done.roots)


def test_a_later_export_brings_what_is_new_and_leaves_the_rest(
    store: Store, copy: Path, task: int, another: Another
) -> None:
    """What was changed here since stays as it is here; new records come beneath those of the first import."""
    other = another("b")
    (root,) = other.import_(copy).roots
    other.notes.update(root, title="Renamed here")
    other.checklists.add(root, "three, added here")
    store.notes.update(task, title="Renamed there")
    fresh = store.notes.add("fact", "new there", parent=task)
    store.checklists.add(task, "three, added there")
    store.links.add(fresh, "supports", task)
    store.export(copy.with_name("later.jsonl"), under=task)
    done = other.import_(copy.with_name("later.jsonl"))
    assert done.created == {"note": 1, "item": 1}
    assert other.notes.get(root).title == "Renamed here"
    assert other.notes.list(parent=root)[-1].title == "new there"
    assert [(item.number, item.text) for item in other.checklists.items(root)][2:] == [
        (3, "three, added here"), (4, "three, added there"),
    ]  # fmt: skip
    assert [link.dst for link in other.links.list(other.notes.list(parent=root)[-1])] == [root]
    assert other.verify(replay=True).problems == ()


def test_a_summary_written_here_since_is_kept(store: Store, tmp_path: Path, another: Another) -> None:
    """A task has one summary: what was summed up here is not replaced by what comes later from there."""
    goal = store.notes.add("goal", "one")
    store.export(tmp_path / "first.jsonl", under=goal)
    other = another("b")
    (root,) = other.import_(tmp_path / "first.jsonl").roots
    other.summarize(root, work="", result="here")
    store.summarize(goal, work="", result="there")
    store.export(tmp_path / "second.jsonl", under=goal)
    other.import_(tmp_path / "second.jsonl")
    assert "here" in other.task_summary(root).text
    assert "there" not in other.task_summary(root).text


def test_what_was_purged_here_comes_again_only_when_asked(copy: Path, another: Another) -> None:
    """Records that were forgotten or taken back here are new when the file is imported again."""
    other = another("b")
    done = other.import_(copy)
    other.forget(done.roots)
    again = other.import_(copy)
    assert again.created["note"] == 3
    other.undo(request=again.request)
    assert other.import_(copy).created["note"] == 3


def test_into_the_store_it_came_from_it_is_a_copy(store: Store, copy: Path, task: int) -> None:
    """A subtree can be had twice in one store: in another project, and no third time by accident."""
    other = store.in_project("other")
    (root,) = other.import_(copy).roots
    assert root != task
    assert other.notes.get(root).title == store.notes.get(task).title
    assert other.import_(copy).events == 0
    with pytest.raises(Conflict, match="into project 'other' already"):
        store.import_(copy)
    assert store.verify(replay=True).problems == ()


def test_a_copy_of_a_copy_remembers_the_store_it_came_from(copy: Path, another: Another, tmp_path: Path) -> None:
    """The source is the store the file was made in, not the first one."""
    other, third = another("b"), another("c")
    (root,) = other.import_(copy).roots
    other.export(tmp_path / "again.jsonl", under=root)
    (last,) = third.import_(tmp_path / "again.jsonl").roots
    (made,) = [each for each in third.log.read(record=last) if each.seq == last]
    assert (made.payload or {})["copied"] == [other.log.head().store, root]


# Taking back, trying


def test_an_import_is_taken_back_by_one_undo(copy: Path, another: Another) -> None:
    """All its events have one request id, which the answer names."""
    other = another("b")
    other.notes.add("goal", "Here before")
    done = other.import_(copy)
    assert done.request in done.text
    other.undo(request=done.request)
    assert [note.title for note in other.notes.list()] == ["Here before"]
    with pytest.raises(NotFound):
        other.entities.get("host:web")


def test_a_dry_run_writes_nothing_and_says_the_same(copy: Path, another: Another) -> None:
    """The counts are those of the import that follows."""
    other = another("b")
    other.notes.add("goal", "Here before")
    before = tables(other)
    tried = other.import_(copy, dry_run=True)
    assert tables(other) == before
    done = other.import_(copy)
    assert (tried.created, tried.events, tried.dropped) == (done.created, done.events, done.dropped)
    assert (tried.roots, tried.request) == ((), None)


def test_it_is_all_or_nothing(copy: Path, another: Another) -> None:
    """A store that refuses credentials, or an entity in other hands, leaves nothing behind."""
    other = another("b", author="eve", run="e1", credentials="refuse")
    other.entities.put("host", "web")
    other.acting(run="e2").claim("host:web")
    before = tables(other)
    with pytest.raises(Held):
        other.import_(copy, collisions="merge")
    assert tables(other) == before
    leaky = forged(copy, copy.with_name("leaky.jsonl"), _leak)
    with pytest.raises(CredentialFound):
        other.import_(leaky, collisions="keep_both")
    assert tables(other) == before


def _leak(lines: Lines) -> None:
    event(lines, "note.added", 1)["payload"]["body"] = "ghp_" + "a1" * 18


def test_inside_a_transaction_it_is_part_of_it(copy: Path, another: Another) -> None:
    """Rolled back with it, or kept with it."""
    other = another("b")
    with pytest.raises(ZeroDivisionError), other.transaction():
        other.import_(copy)
        assert 1 / 0
    assert other.notes.list() == ()
    with other.transaction():
        done = other.import_(copy)
    assert other.notes.get(done.roots[0]).title == "Look at the ports"


# What is there already


def test_an_entity_that_is_there_already_is_refused_by_default(whole: Path, another: Another) -> None:
    """The error names it and what can be said."""
    other = another("b")
    other.entities.put("host", "web")
    with pytest.raises(Conflict, match="host:web") as caught:
        other.import_(whole)
    assert "merge" in caught.value.next
    assert other.notes.list() == ()


def test_keep_both_gives_the_copy_another_key(whole: Path, another: Another) -> None:
    """Neither changes the other; notes and children follow the copy; the answer names it."""
    other = another("b")
    mine = other.entities.put("host", "web", attrs={"os": "bsd"})
    other.entities.put("host", "web (copy)")
    done = other.import_(whole, collisions="keep_both")
    (met,) = done.collisions
    assert (met.type, met.key, met.kept, met.outcome) == ("host", "web", mine.id, "kept as web (copy 2)")
    assert other.entities.get(met.other).key == "web (copy 2)"
    assert other.entities.get("host:web").attrs == {"os": "bsd"}
    assert other.entities.get("host:db").parent == met.other
    (fact,) = [note for note in other.notes.list(limit=100) if note.title == "443 is open"]
    assert fact.entity == met.other
    assert other.import_(whole, collisions="keep_both").events == 0


def test_merge_adds_what_the_one_there_lacks(store: Store, whole: Path, another: Another, clock: Any) -> None:
    """Attributes it has stay, those it lacks come; of two marks the newer counts; its status is its own."""
    store.entities.mark("host", ["web"], {"dns": "fail", "http": "pass"})
    store.entities.put("host", "web", attrs={"port": 443})
    whole.unlink()
    store.export(whole, project="acme")
    clock.advance(seconds=60)
    other = another("b", author="eve")
    mine = other.entities.put("host", "web", attrs={"os": "bsd"}, status="seen")
    other.entities.mark("host", ["web"], {"dns": "pass"})
    done = other.import_(whole, collisions="merge")
    web = other.entities.get("host:web")
    assert (web.id, web.attrs, web.status) == (mine.id, {"os": "bsd", "port": 443}, "seen")
    assert web.checks == {"dns": "pass", "http": "pass", "tls": "pass"}
    assert {mark.name: mark.author for mark in other.entities.marks(web)} == {"dns": "eve", "http": "ana", "tls": "ana"}
    assert other.entities.get("host:db").parent == mine.id
    assert [met.outcome for met in done.collisions] == ["merged"]
    assert other.import_(whole, collisions="merge").events == 0
    assert other.verify(replay=True).problems == ()


def test_links_of_a_merged_entity_come_too(store: Store, tmp_path: Path, another: Another) -> None:
    """From it and to it, each once."""
    for key in ("a", "b", "c"):
        store.entities.put("host", key)
    store.links.add("host:a", "calls", "host:b")
    store.links.add("host:c", "calls", "host:a")
    store.export(tmp_path / "p.jsonl", project="acme")
    other = another("b")
    for key in ("a", "b"):
        other.entities.put("host", key)
    other.links.add("host:a", "calls", "host:b")
    other.import_(tmp_path / "p.jsonl", collisions="merge")
    found = [(link.src, link.dst) for link in other.links.list("host:a")]
    ids = {key: other.entities.get(f"host:{key}").id for key in ("a", "b", "c")}
    assert sorted(found) == sorted([(ids["a"], ids["b"]), (ids["c"], ids["a"])])
    assert other.import_(tmp_path / "p.jsonl", collisions="merge").events == 0


@pytest.mark.parametrize(("collisions", "names"), [("keep_both", ("dns",)), ("merge", ("dns", "tls"))])
def test_expected_checks_of_one_type_are_one_declaration(
    whole: Path, another: Another, collisions: Any, names: tuple[str, ...]
) -> None:
    """Those that are here stay, and are added to only by a merge; equal ones are no collision."""
    other = another("b")
    other.entities.expect("host", ["dns"])
    with pytest.raises(Conflict, match="host"):
        other.import_(whole)
    other.import_(whole, collisions=collisions)
    assert [checks.names for checks in other.entities.expected("host")] == [names]
    same = another("c")
    same.entities.expect("host", ["tls"])
    assert same.import_(whole).collisions == ()
