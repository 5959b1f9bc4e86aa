"""Copies of records that were stated anew, taken back, merged or brought again: their exports can always be imported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem import CredentialFound, Result, Scope, Store

Another = Callable[..., Store]
SECRET = "password = hunter2hunter2XYZ"


@pytest.mark.parametrize("scope", [{}, {"project": "acme"}], ids=["log", "copy"])
@pytest.mark.parametrize("of", ["note", "entity", "item", "summary", "checks"])
def test_what_was_copied_in_and_redacted_travels_on(
    whole: Path, another: Another, tmp_path: Path, of: str, scope: dict[str, str]
) -> None:
    """A record that is stated anew says where it was copied from; the next store reads that."""
    other = another("b")
    other.import_(whole)
    with other.database.read() as connection:
        (record,) = connection.execute(f"SELECT min(id) FROM {of}").fetchone()
        (note,) = connection.execute("SELECT note FROM summary").fetchone()
    change = {
        "note": lambda: other.notes.update(record, title="Check example.net"),
        "entity": lambda: other.entities.put("host", "web", attrs={"os": "bsd"}),
        "item": lambda: other.checklists.edit(record, "another"),
        "summary": lambda: other.summarize(note, result="three are open"),
        "checks": lambda: other.entities.expect("host", ["dns"]),
    }
    change[of]()
    other.redact(record)
    other.export(tmp_path / "next.jsonl", **scope)
    third = another("c")
    third.import_(tmp_path / "next.jsonl")
    assert third.verify(replay=True).problems == ()


@pytest.mark.parametrize("scope", [{}, {"project": "acme"}], ids=["log", "copy"])
def test_an_import_that_was_taken_back_and_brought_again_travels_on(
    whole: Path, another: Another, tmp_path: Path, scope: dict[str, str]
) -> None:
    """All of its records are stated anew then."""
    other = another("b")
    done = other.import_(whole)
    assert done.request is not None
    other.undo(other.undo(request=done.request).events)
    made = other.export(tmp_path / "next.jsonl", **scope)
    third = another("c")
    third.import_(tmp_path / "next.jsonl")
    assert third.verify(replay=True).problems == ()
    with third.database.read() as connection:
        (notes,) = connection.execute("SELECT count(*) FROM note").fetchone()
    assert (notes, made.records > notes) == (4, True)


def test_an_import_that_was_taken_back_leaves_a_project_that_can_be_exported(
    whole: Path, another: Another, tmp_path: Path
) -> None:
    """The items of its notes are off their lists, and their notes gone: neither travels."""
    other = another("b")
    other.notes.add("fact", "mine")
    done = other.import_(whole)
    assert done.request is not None
    other.undo(request=done.request)
    made = other.export(tmp_path / "next.jsonl", project="acme")
    assert made.records == 1
    assert another("c").import_(tmp_path / "next.jsonl").created == {"note": 1}


def test_an_item_off_the_list_of_a_note_that_was_taken_back_stays_behind(
    store: Store, another: Another, tmp_path: Path
) -> None:
    """It hangs on nothing that travels."""
    goal = store.notes.add("goal", "one")
    store.checklists.add(goal, "first")
    store.checklists.remove(goal, 1)
    store.undo(goal.id)
    store.notes.add("fact", "stays")
    store.export(tmp_path / "copy.jsonl", project="acme")
    assert another("b").import_(tmp_path / "copy.jsonl").created == {"note": 1}


def test_a_project_whose_merge_was_undone_can_be_copied(store: Store, another: Another, tmp_path: Path) -> None:
    """What was part of another for a time is there with all it has, and all of it can be taken back."""
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.entities.expect("host", ["tls"])
    two = store.in_project("two")
    two.entities.put("host", "web", attrs={"port": 443})
    two.entities.mark("host", ["web"], {"tls": "pass"})
    two.entities.expect("host", ["dns"])
    store.projects.merge("two", collisions="merge", request_id="m")
    store.undo(request="m")
    for project, attrs in (("two", {"port": 443}), ("acme", {"os": "linux"})):
        store.export(tmp_path / f"{project}.jsonl", project=project)
        other = another(f"of-{project}")
        done = other.import_(tmp_path / f"{project}.jsonl")
        (web,) = other.entities.query("host")
        assert web.attrs == attrs
        assert done.created == {"entity": 1, "checks": 1}
        assert other.verify(replay=True).problems == ()
        assert other.import_(tmp_path / f"{project}.jsonl").events == 0


def test_credentials_in_a_stated_record_are_masked_value_by_value(
    store: Store, another: Another, tmp_path: Path
) -> None:
    """The JSON of attributes, marks, tags, scopes and names stays JSON, and nothing of the credential is kept."""
    first = store.entities.put("host", "web", attrs={"note": SECRET, "port": 443})
    store.entities.mark("host", ["web"], {"tls": Result("fail", value=[SECRET, 1], detail=SECRET)})
    note = store.notes.add("goal", "Look there", body=SECRET, scope=Scope("host", f"attrs.note = '{SECRET}'"))
    store.entities.put("host", "web", attrs={"more": SECRET})
    store.redact(first)
    second = store.entities.put("page", "one", attrs={"secret": "9abcdefghijk9", "note": SECRET})
    store.undo(store.undo(second.id).events)
    store.undo(store.undo(note.id).events)
    store.export(tmp_path / "copy.jsonl", project="acme")
    other = another("b", credentials="mask")
    done = other.import_(tmp_path / "copy.jsonl")
    assert "credential" in done.text
    (web,) = other.entities.query("host")
    assert web.attrs == {"note": "[masked: secret]", "more": "[masked: secret]", "port": 443}
    assert other.entities.marks(web)[0].value == ["[masked: secret]", 1]
    (page,) = other.entities.query("page")
    assert page.attrs == {"secret": "9abcdefghijk9", "note": "[masked: secret]"}
    (there,) = other.notes.list(limit=10)
    assert there.scope is not None
    assert "[masked" in (there.scope.where or "")
    assert other.verify(replay=True).problems == ()
    with other.database.read() as connection:
        assert connection.execute("SELECT count(*) FROM event WHERE instr(payload, 'hunter2')").get == 0
    with pytest.raises(CredentialFound):
        another("c", credentials="refuse").import_(tmp_path / "copy.jsonl")


def test_an_import_that_wrote_nothing_names_no_request(store: Store, another: Another, tmp_path: Path) -> None:
    """A request id in an answer is one that undo knows."""
    store.entities.put("host", "web", attrs={"os": "linux"})
    store.export(tmp_path / "copy.jsonl", project="acme")
    other = another("b")
    other.entities.put("host", "web", attrs={"os": "linux"})
    done = other.import_(tmp_path / "copy.jsonl", collisions="merge")
    assert (done.events, done.request) == (0, None)
    assert "undo" not in done.text
