"""The example folders that ship with the project, imported and compared with what a person reads in them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentmem import Store

ROOT = Path(__file__).parents[2]
KEY = json.loads((ROOT / "tests" / "data" / "examples_key.json").read_text("utf-8"))
ENTITIES = {"recon": ("host", "endpoint"), "software": ("module",)}


@pytest.fixture(scope="module", params=["recon", "software"])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Store, Any]]:
    """One folder imported into a store of its own."""
    name = request.param
    path = tmp_path_factory.mktemp(name) / "s.db"
    with Store.open(path, project=name, key=b"k" * 32) as store:
        done = store.import_(ROOT / "docs" / "examples" / name, entities=ENTITIES[name])
        yield name, store, done


def titles(store: Store, kind: Any, status: Any = None) -> list[str]:
    return [note.title or "" for note in store.notes.list(kind=kind, status=status, limit=1000)]


def absent(wanted: list[str], found: list[str]) -> list[str]:
    """What of the wanted is a piece of none of the found."""
    return [text for text in wanted if not any(text in other for other in found)]


def test_left_is_exactly_what_a_person_reads(case: tuple[str, Store, Any]) -> None:
    """Every box that is truly open is left once, and nothing else is."""
    name, store, _ = case
    left = store.left(limit=1000)
    found = [item.text for item in left.items] + [step.title for step in left.steps]
    assert absent(KEY[name]["left"], found) == []
    finished = [text for text in KEY[name]["done"] if any(text in item.text for item in left.items)]
    assert finished == []
    boxes = [item.text for item in left.items if not any(text in item.text for text in KEY[name]["left"])]
    assert boxes == []


def test_failed_attempts_are_found_with_why(case: tuple[str, Store, Any]) -> None:
    """Each failed attempt of the folder is one, with its reason."""
    name, store, _ = case
    attempts = store.notes.list(kind="attempt", status="failed", limit=1000)
    for wanted in KEY[name]["failed_attempts"]:
        match = [one for one in attempts if wanted["title"] in (one.title or "")]
        assert match, f"no failed attempt {wanted['title']!r}"
        assert any(wanted["why"] in f"{one.title} {one.why} {one.body}" for one in match), wanted


def test_decisions_questions_and_lessons_are_found(case: tuple[str, Store, Any]) -> None:
    """Decisions in force, open questions and lessons are what they are."""
    name, store, _ = case
    key = KEY[name]
    wanted = [one if isinstance(one, str) else one["title"] for one in key["decisions"]]
    decisions = [f"{note.title} {note.body}" for note in store.notes.list(kind="decision", status="active", limit=1000)]
    assert absent(wanted, decisions) == []
    questions = [f"{note.title} {note.body}" for note in store.notes.list(kind="question", status="open", limit=1000)]
    assert absent(key["open_questions"], questions) == []
    lessons = [f"{note.title} {note.body}" for note in store.notes.list(kind="lesson", limit=1000)]
    assert absent(key["lessons"], lessons) == []


def test_entities_have_their_marks(case: tuple[str, Store, Any]) -> None:
    """Rows of the asked-for tables are entities; what has no result yet is left."""
    name, store, _ = case
    for type, keys in KEY[name]["entities"].items():
        if type in ENTITIES[name]:
            there = {entity.key for entity in store.entities.query(type, limit=1000)}
            assert set(keys) == there
    for type, wanted in KEY[name]["left_checks"].items():
        left = store.left(type=type, limit=1000)
        counts = Counter(check.lower() for checks in wanted.values() for check in checks)
        assert {check.check: check.left for check in left.expected if check.left} == counts
        assert all(check.where == f"attrs.needs contains '{check.check}'" for check in left.expected)
        for key, checks in wanted.items():
            checked = store.entities.get(f"{type}:{key}").checks
            marked = {name.lower() for name, result in checked.items() if result != "error"}
            assert not marked & {check.lower() for check in checks}, key
    for type, failed in KEY[name]["failed_checks"].items():
        for key, checks in failed.items():
            found = store.entities.get(f"{type}:{key}").checks
            assert all(found[check.lower()] == "fail" for check in checks), key


def test_nothing_out_of_scope_is_handed_out(case: tuple[str, Store, Any]) -> None:
    """No host that is not ours is an entity; what must not be touched is a decision tagged `scope`."""
    name, store, _ = case
    if name != "recon":
        return
    foreign = KEY[name]["entities"]["host_out_of_scope"]
    claimed = store.acting(run="worker").claim(type="host", where="check.tls is null", n=50)
    keys = {entity.key for entity in store.entities.query("host", limit=1000)}
    assert claimed
    assert not keys & set(foreign)
    rules = [note.title or "" for note in store.notes.list(kind="decision", tag="scope", limit=1000)]
    assert (
        absent([*foreign, "*.corp.kestrel.example", "No phishing", "Rule 4: No guessing", "written yes"], rules) == []
    )
    assert not any(title in ("Out of scope", "Rules of engagement") for title in rules)


def test_the_checkpoint_warns(case: tuple[str, Store, Any]) -> None:
    """Where it stands, then what to beware of, then what is next: a warning is not lost because it stands below."""
    name, store, _ = case
    text = store.resume().text
    wanted = {
        "recon": ("Where I stand", "Beware", "no upload, not even an empty file", "Next"),
        "software": ("软拒绝", "注意", "`EFFECTS=dry` 不能改", "下一步"),
    }[name]
    places = [text.index(part) for part in wanted]
    assert places == sorted(places)


def test_ids_tell_what_is_newer(case: tuple[str, Store, Any]) -> None:
    """Attempts and decisions of a later day have higher ids, whatever their file is called."""
    name, store, _ = case
    for kind in ("attempt", "decision"):
        dated = [(note.id, note.dated) for note in store.notes.list(kind=kind, limit=1000) if note.dated is not None]
        assert [day for _, day in sorted(dated)] == sorted(day for _, day in dated)
    attempts = sorted(store.notes.list(kind="attempt", status="failed", limit=1000), key=lambda note: -note.id)
    newest = {"recon": "Telling whether an account exists", "software": "在对比脚本里把两个 `action` 当作相等"}[name]
    assert (attempts[0].title or "").startswith(newest)
    decisions = sorted(store.notes.list(kind="decision", limit=1000), key=lambda note: -note.id)
    last = {"recon": "old.kestrel.example", "software": "effect_action()"}[name]
    assert any(last in (note.title or "") for note in decisions[:5])


def test_no_body_repeats_what_its_record_says(case: tuple[str, Store, Any]) -> None:
    """No front matter that was understood, no raw JSON in a goal, no outcome and reason a second time."""
    _, store, _ = case
    for note in store.notes.list(limit=1000):
        body = note.body or ""
        assert not body.startswith(("title:", "id: 1\ntitle:", "# Goal")), note.title
        if note.kind == "attempt":
            assert not re.search(r"(?:Outcome|Why|结果|原因)\s*[:：]", body), note.title
        if note.kind == "goal":
            assert '"title"' not in body


def test_the_resume_fits_and_says_where_the_work_stands(case: tuple[str, Store, Any]) -> None:
    """2,000 tokens hold the last checkpoint, something left, something failed, a decision."""
    _, store, done = case
    resumed = store.resume()
    assert resumed.tokens <= 2000
    for section in ("where it stands:", "left, the next first:", "failed, do not repeat:", "decisions in force:"):
        assert section in resumed.text
    assert done.text.splitlines()[-1].endswith(" decided")
    assert done.folder_tokens > 5 * resumed.tokens


def test_a_second_import_adds_nothing(case: tuple[str, Store, Any]) -> None:
    """Not one event, and everything is reported unchanged."""
    name, store, _ = case
    before = store.log.head()
    again = store.import_(ROOT / "docs" / "examples" / name, entities=ENTITIES[name])
    assert store.log.head() == before
    assert (again.created, again.changed, again.kept, again.dropped) == ({}, {}, (), ())
    assert store.verify(replay=True).problems == ()


def test_the_hostile_line_is_no_instruction(case: tuple[str, Store, Any]) -> None:
    """A line fetched from elsewhere is in no decision, and no line of the resume begins with it."""
    name, store, _ = case
    if name == "recon":
        injected = KEY[name]["injection"]
        needle = injected["text"] if isinstance(injected, dict) else injected[0]
        assert not any(needle[:30] in title for title in titles(store, "decision"))
