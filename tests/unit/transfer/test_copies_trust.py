"""Copies of others: what they bring is untrusted, and what no export can have written is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from forging import Lines, event, forged, header, payload, tables

from agentmem import Corrupt, InvalidInput, Store

Another = Callable[..., Store]


# Trust


def test_others_files_come_in_as_untrusted(store: Store, task: int, tmp_path: Path, another: Another) -> None:
    """Every record, mark and link; also what a person confirmed there, since it was not for this store."""
    person = store.acting(origin="user")
    fact = store.acting(origin="web").notes.add("fact", "from the web", parent=task)
    person.confirm(fact)
    person.notes.add("decision", "trust me", parent=task)
    store.export(tmp_path / "p.jsonl", project="acme")
    other = another("b")
    other.import_(tmp_path / "p.jsonl", origin="import")
    with other.database.read() as connection:
        for table in ("note", "entity", "mark", "link", "item", "summary", "checkpoint", "checks"):
            origins = {origin for (origin,) in connection.execute(f"SELECT DISTINCT origin FROM {table}")}
            assert origins <= {"import", "web"}, table
        confirmed = connection.execute("SELECT count(*) FROM note WHERE confirmed_at IS NOT NULL").get
    assert confirmed == 0
    own = another("c")
    own.import_(tmp_path / "p.jsonl")
    (kept,) = [note for note in own.notes.list(limit=100) if note.title == "from the web"]
    assert (kept.origin, kept.confirmed_by) == ("user", "ana")


def test_a_view_of_untrusted_text_imports_nothing_more_trusted(whole: Path, another: Another) -> None:
    """A server cannot have its text trusted by way of a file."""
    other = another("b").acting(origin="web")
    other.import_(whole)
    assert {note.origin for note in other.notes.list(limit=100)} == {"web"}


def test_names_that_an_untrusted_file_adds_make_a_declaration_untrusted(
    store: Store, tmp_path: Path, another: Another
) -> None:
    """Which checks are expected is text too, and says where it came from; that travels on."""
    store.entities.expect("host", ["tls", "evil"])
    store.export(tmp_path / "p.jsonl", project="acme")
    other = another("b")
    other.entities.expect("host", ["tls"])
    other.import_(tmp_path / "p.jsonl", origin="import", collisions="merge")
    with other.database.read() as connection:
        assert connection.execute("SELECT names, origin FROM checks").fetchall() == [('["tls","evil"]', "import")]
    for scope in ({}, {"project": "acme"}):
        other.export(tmp_path / f"{len(scope)}.jsonl", **scope)
        third = another(f"c{len(scope)}")
        third.import_(tmp_path / f"{len(scope)}.jsonl")
        with third.database.read() as connection:
            assert connection.execute("SELECT origin FROM checks").get == "import"
        assert third.verify(replay=True).problems == ()


# Hostile files


def drop(of: str) -> Callable[[Lines], None]:
    def change(lines: Lines) -> None:
        lines.remove(event(lines, of))

    return change


HOSTILE = {
    "beneath itself": lambda lines: event(lines, "note.changed").update(
        record=event(lines, "note.added", 1)["seq"], payload={"set": {"parent": event(lines, "note.added", 1)["seq"]}}
    ),
    "in a circle": lambda lines: event(lines, "note.added")["payload"].update(
        parent=event(lines, "note.added", 1)["seq"]
    ),
    "without its creation": drop("entity.added"),
    "item without its note": payload("item.added", note=1),
    "summary without its note": payload("summary.written", note=1),
    "a purge": header("item.changed", kind="item.forgotten", payload={}),
    "a claim": header("note.changed", kind="note.claim.taken", payload={"holder": "eve", "expires_at": 2**60}),
    "a project": header("note.added", kind="project.created", type="project", payload={"name": "x"}),
    "another type": payload("note.added", 1, parent=4),
    "title of two lines": payload("note.added", title="one\ntwo"),
    "nothing set": payload("note.changed", set={}),
    "a checkpoint moved nowhere": header("checkpoint.written", kind="checkpoint.changed", payload={"set": {}}),
    "taken back for good": lambda lines: lines.insert(
        -1,
        {
            **event(lines, "entity.added"),
            "seq": lines[-2]["seq"] + 1,
            "record": event(lines, "entity.added")["seq"],
            "kind": "entity.withdrawn",
            "payload": {},
        },
    ),
    "part of another for good": lambda lines: lines.insert(
        -1,
        {
            **event(lines, "entity.added"),
            "seq": lines[-2]["seq"] + 1,
            "record": event(lines, "entity.added")["seq"],
            "kind": "entity.merged",
            "payload": {"into": 1},
        },
    ),
    "position endless": payload("note.changed", set={"position": float("inf")}),
    "erased": lambda lines: (
        event(lines, "item.changed").update(erased=True, digest="0" * 64),
        event(lines, "item.changed").pop("payload"),
        event(lines, "item.changed").pop("salt"),
    ),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_no_export_can_have_written_is_refused(
    copy: Path, another: Another, change: Callable[[Lines], None]
) -> None:
    """A file that is consistent and false is refused with a typed error, and nothing of it is kept."""
    bad = forged(copy, copy.with_name("bad.jsonl"), change)
    other = another("b")
    other.notes.add("goal", "mine")
    before = tables(other)
    with pytest.raises(Corrupt):
        other.import_(bad)
    assert tables(other) == before


def test_a_damaged_first_line_of_a_copy_is_found(copy: Path, another: Another) -> None:
    """The chain of a copy begins with it: nobody can say of records that they are of another store or project."""
    text = copy.read_text("utf-8")
    for old, new in (('"project":"acme"', '"project":"else"'), ('"roots":[3]', '"roots":[4]')):
        assert old in text
        copy.with_name("bad.jsonl").write_text(text.replace(old, new, 1), "utf-8")
        with pytest.raises(Corrupt, match="chain"):
            another("b").import_(copy.with_name("bad.jsonl"))


def test_entities_is_not_for_exports(copy: Path, another: Another) -> None:
    """An argument that would be ignored is refused."""
    with pytest.raises(InvalidInput, match="entities="):
        another("b").import_(copy, entities=["host"])
