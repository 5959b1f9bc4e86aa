"""After a redaction the earlier texts of a record are nowhere, and what it says now stays, in tables, index and replay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from decrypted import search
from written import CHINESE, LONG_WORD, SECRET, WRITES, surround

from agentmem import InvalidInput, NotFound, Result, Scope, Store
from agentmem.types import HasId

KEY = bytes(range(32))
Write = Callable[[Store, str], Any]


def _cleared(field: str, instead: object = None) -> Write:
    def write(store: Store, text: str) -> object:
        kind = "step" if field == "scope" else "fact"
        value: Any = {"tags": [text[:40]], "scope": Scope("host", f"attrs.area = '{text}'")}.get(field, text)
        note = store.notes.add(kind, "What is known", **{field: value})  # type: ignore[arg-type]
        store.notes.update(note, **{field: instead})  # type: ignore[arg-type]
        return note

    return write


def _why(store: Store, text: str) -> object:
    tried = store.attempts.open("Log in as admin")
    store.attempts.close(tried, "failed", why=f"Only {text} is accepted")
    store.notes.update(tried, why="Another is accepted")
    return tried


def _summary(store: Store, text: str) -> object:
    goal = store.notes.add("goal", "Ship the release")
    written = store.summarize(goal, work=f"Rotated {text}", result=f"All but {text} is well", basis=f"Log of {text}")
    store.summarize(goal, work="Rotated", result="All is well", basis="The log")
    return written


def _status(store: Store, text: str) -> object:
    store.entities.put("host", "a.example.com", status=text[:40])
    return store.entities.put("host", "a.example.com", status="known")


def _declared(store: Store, text: str) -> object:
    store.entities.expect("host", ["tls", text[:40]])
    return store.entities.expect("host", ["tls"])


def _project(store: Store, text: str) -> object:
    begun = store.in_project(text)
    begun.notes.add("fact", "What is known")
    return begun.projects.rename("plain")


def _undone_redacted(store: Store, text: str) -> object:
    note = store.notes.add("fact", "What is known", body=f"It is {text}")
    store.notes.update(note, body="It is not said")
    store.undo(store.undo(store.notes.update(note, title="What was known").revision).events)
    return note


def _redacted_twice(store: Store, text: str) -> object:
    note = store.notes.add("fact", "What is known", body="Nothing")
    store.notes.update(note, body="Little")
    store.redact(note)
    store.notes.update(note, body=f"It is {text}")
    store.notes.update(note, body="All")
    return note


EARLIER: dict[str, Write] = {
    **{
        name: WRITES[name]
        for name in (
            "earlier title",
            "earlier body",
            "earlier text of an item",
            "changed attribute",
            "removed attribute",
            "replaced mark",
            "mark taken away",
            "renamed entity",
            "earlier body of 200 KB",
            "undone text",
            "undone note",
            "note that is there again",
        )
    },
    "earlier basis": _cleared("basis"),
    "earlier source": _cleared("source"),
    "earlier tag": _cleared("tags", ["plain"]),
    "earlier scope": _cleared("scope"),
    "earlier why": _why,
    "replaced summary": _summary,
    "earlier status of an entity": _status,
    "earlier expected checks": _declared,
    "earlier name of a project": _project,
    "text with undone changes after it": _undone_redacted,
    "text after a redaction": _redacted_twice,
}


@pytest.fixture
def proof(path: Path, tmp_path: Path, opened: Callable[..., Store], searched: list[int]) -> Callable[..., None]:
    """`proof(write, text, **options)` shows that a text is found, and after `redact` of what `write` gave is not."""

    def prove(write: Write, text: str, **options: Any) -> None:
        store = opened(author="ana", run="r1")
        surround(store)
        given = write(store, text)
        surround(store.in_project("other"))
        store.close()
        assert "pages" in search(path, KEY, tmp_path, text).places
        store = opened(author="ana", run="r1")
        ref: Any = given.id if isinstance(given, HasId) else given
        try:
            before = store.get(ref)
        except NotFound:
            before = None
        receipt = store.redact(ref, **options)
        assert receipt.ids == (ref,)
        assert not receipt.wal_pending
        if before is not None and not options:
            assert_same(before, store.get(ref))
        assert store.verify(replay=True).problems == ()
        store.close()
        after = search(path, KEY, tmp_path, text)
        assert after.places == ()
        searched.append(after.bytes)

    return prove


def assert_same(before: Any, after: Any) -> None:
    """All fields but the revision."""
    fields = [field.name for field in type(before).__attrs_attrs__ if field.name not in ("revision", "stale")]
    assert [getattr(before, name) for name in fields] == [getattr(after, name) for name in fields]


@pytest.mark.parametrize("text", [SECRET, CHINESE, LONG_WORD], ids=["a word", "Chinese", "a very long word"])
@pytest.mark.parametrize("write", EARLIER)
def test_an_earlier_text_is_nowhere(write: str, text: str, proof: Callable[..., None]) -> None:
    """Of every field of every record; what the record says now is what it said."""
    proof(EARLIER[write], text[:120] if write == "earlier name of a project" else text)


@pytest.mark.parametrize("write", ["attribute", "changed attribute", "removed attribute"])
def test_an_attribute_is_redacted_with_its_present_value(write: str, proof: Callable[..., None]) -> None:
    """The other attributes stay."""
    name = "login" if write == "attribute" else "password"
    proof(WRITES[write], SECRET, attr=name)


@pytest.mark.parametrize("write", ["value of a mark", "detail of a mark", "replaced mark", "mark taken away"])
def test_a_check_is_redacted_with_its_present_value_and_detail(write: str, proof: Callable[..., None]) -> None:
    """Its result stays."""
    proof(WRITES[write], SECRET, check="tls")


def test_what_stays_of_an_entity_after_a_redaction_of_a_part(store: Store) -> None:
    """The attribute goes, the others stay; value and detail of the check go, its result and the other checks stay."""
    host = store.entities.put("host", "a", attrs={"password": SECRET, "port": 443}).id
    store.entities.mark(
        "host", [host], {"tls": Result("fail", value=SECRET, detail=SECRET), "dns": Result("pass", value=1)}
    )
    store.redact(host, attr="password")
    assert store.entities.get(host).attrs == {"port": 443}
    store.redact("host:a", check="tls")
    marks = {mark.name: (mark.result, mark.value, mark.detail) for mark in store.entities.marks(host)}
    assert marks == {"tls": ("fail", None, None), "dns": ("pass", 1, None)}
    assert store.find(SECRET).hits == ()


def test_links_and_claims_outlive_a_redaction(store: Store) -> None:
    """They hold no text of the record."""
    goal, note = store.notes.add("goal", "Ship"), store.notes.add("fact", f"It is {SECRET}")
    store.links.add(note, "supports", goal)
    store.claim(note)
    store.notes.update(note, title="It is known")
    store.redact(note)
    assert [(link.src, link.kind, link.dst) for link in store.links.list(note)] == [(note.id, "supports", goal.id)]
    assert [claim.record for claim in store.claims(mine=True)] == [note.id]
    assert store.verify(replay=True).problems == ()


def test_a_record_without_earlier_text_is_left_alone(store: Store) -> None:
    """Never changed, or redacted before: no event is written."""
    note = store.notes.add("fact", "It is known")
    head = store.log.head()
    assert store.redact(note).ids == ()
    assert store.log.head() == head
    store.notes.update(note, title="It was known")
    assert store.redact(note).ids == (note.id,)
    head = store.log.head()
    assert store.redact(note).ids == ()
    assert store.log.head() == head


def test_an_attribute_that_never_was_leaves_no_event(store: Store) -> None:
    """Nothing was redacted, and the receipt says so."""
    host = store.entities.put("host", "a", attrs={"port": 443})
    head = store.log.head()
    assert store.redact(host, attr="password").ids == ()
    assert store.redact(host, check="tls").ids == ()
    assert store.log.head() == head


def test_an_attribute_of_something_else_is_refused(store: Store) -> None:
    """Attributes and checks are of entities, and one of the two is redacted at a time."""
    note, host = store.notes.add("fact", "It is known"), store.entities.put("host", "a")
    for options in ({"attr": "a"}, {"check": "tls"}):
        with pytest.raises(InvalidInput):
            store.redact(note, **options)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        store.redact(host, attr="a", check="tls")


def test_a_redacted_revision_is_not_readable(store: Store) -> None:
    """Its events keep header and digest and no payload."""
    note = store.notes.add("fact", f"It is {SECRET}")
    store.notes.update(note, title="It is known")
    receipt = store.redact(note)
    erased = [event for event in store.log.read(record=note) if event.payload is None]
    assert tuple(event.seq for event in erased) == receipt.events == (note.id, note.id + 1)
    assert tuple(event.digest.hex() for event in erased) == receipt.digests
    with pytest.raises(NotFound):
        store.revision(note, note.id)


def test_a_redaction_names_other_records_with_the_erased_text(store: Store) -> None:
    """Only with what was erased: a text that the record still has is no reason to look at others."""
    kept, gone = "a text that stays the same", f"{SECRET} is the password"
    note = store.notes.add("fact", gone, body=kept)
    also = store.notes.add("fact", "Another", body=f"I heard that {gone}, really")
    store.notes.add("fact", kept)
    store.notes.update(note, title="It is known")
    planned = store.redact(note, dry_run=True)
    assert planned.also_found_in == store.redact(note).also_found_in == (also.id,)


def test_a_redaction_after_a_claim_leaves_the_summary_above_fresh(store: Store) -> None:
    """TRAPS 17: it changes nothing of what was summed up, and neither do claims, by whichever event they end."""
    goal = store.notes.add("goal", "Goal")
    item = store.checklists.add(goal, "the first text").ids[0]
    store.checklists.edit(item, "the second text")
    summary = store.summarize(goal, result="r").id
    store.claim(item)
    store.release(item)
    store.redact(item)
    assert not store.get(summary).stale
    assert store.verify(replay=True).problems == ()
