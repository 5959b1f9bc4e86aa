"""Importing a folder, importing it again, importing it changed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentmem import NotFound, Store

PLAN = """# Move the mail server

## Preparation
- [x] Inventory of mailboxes
- [ ] Lower the TTL of the MX record

## What failed
- **imapsync over the VPN**: stalls after 2 GB

## Decisions
- Keep the old server for 30 days, because of late bounces
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "mail"
    made.mkdir()
    (made / "plan.md").write_text(PLAN, "utf-8")
    return made


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "s.db", project="mail", key=b"k" * 32)


def test_what_became_what(store: Store, folder: Path) -> None:
    """Headings are the tree, boxes checklists, failures attempts, decisions decisions."""
    done = store.import_(folder)
    assert store.left().items[0].text == "Lower the TTL of the MX record"
    (attempt,) = store.notes.list(kind="attempt")
    assert (attempt.title, attempt.status, attempt.why) == ("imapsync over the VPN", "failed", "stalls after 2 GB")
    (decision,) = store.notes.list(kind="decision")
    assert "Keep the old server for 30 days" in (decision.title or "")
    assert decision.origin == "agent"
    assert done.failed == 1
    assert done.decided == 1
    assert done.text.splitlines()[-1].endswith("1 failed, 1 decided")


def test_a_changed_folder_updates(store: Store, folder: Path) -> None:
    """A tick in the file ticks the item, a new line is added, everything else keeps its id."""
    store.import_(folder)
    (decision,) = store.notes.list(kind="decision")
    before = {note.title: note.id for note in store.notes.list(limit=1000)}
    changed = PLAN.replace("- [ ] Lower", "- [x] Lower").replace(
        "## What failed", "- [ ] Tell the users\n\n## What failed"
    )
    (folder / "plan.md").write_text(changed, "utf-8")
    done = store.import_(folder)
    assert [item.text for item in store.left().items] == ["Tell the users"]
    assert {note.title: note.id for note in store.notes.list(limit=1000)} == before
    assert store.notes.get(decision).revision == decision.revision
    assert done.created == {"item": 1}
    assert store.verify(replay=True).problems == ()


def test_what_was_changed_here_is_left_alone(store: Store, folder: Path) -> None:
    """A record that somebody worked on since the import is not overwritten; the answer names it."""
    store.import_(folder)
    (decision,) = store.notes.list(kind="decision")
    store.notes.update(decision, title="Keep it for 60 days", body="legal asked")
    (folder / "plan.md").write_text(
        PLAN.replace("30 days, because of late bounces", "30 days: bounces come late"), "utf-8"
    )
    store.import_(folder)
    assert store.notes.get(decision).title == "Keep it for 60 days"


def test_an_item_ticked_here_stays_ticked(store: Store, folder: Path) -> None:
    """The file still says open; whoever ticked it here knew better."""
    store.import_(folder)
    item = store.left().items[0].ref
    store.checklists.done(item.partition(".")[0], item)
    (folder / "plan.md").write_text(PLAN.replace("Inventory of", "Inventory of all"), "utf-8")
    store.import_(folder)
    assert store.left().items_total == 0


def test_a_source_that_is_gone_drops_its_record(store: Store, folder: Path) -> None:
    """A decision that was taken out of the file is in force no longer; the log keeps it."""
    store.import_(folder)
    (folder / "plan.md").write_text(PLAN.partition("## Decisions")[0], "utf-8")
    done = store.import_(folder)
    assert store.notes.list(kind="decision", status="active") == ()
    assert done.dropped


HOSTS = """# Hosts

| Host | TLS | Headers |
|---|---|---|
| a.example | pass | |
| b.example | | fail |
"""
LATER = "# 2026-10-22\n\n| Host | it's | TLS |\n|---|---|---|\n| b.example | pass | |\n"


def left_of(store: Store) -> dict[str, tuple[int, int]]:
    return {check.check: (check.left, check.total) for check in store.left(type="host").expected}


def test_a_check_is_needed_by_the_rows_of_its_tables_only(store: Store, folder: Path) -> None:
    """A column of one journal leaves nothing to do on the rows of other tables; a second import adds nothing."""
    (folder / "hosts.md").write_text(HOSTS, "utf-8")
    (folder / "journal").mkdir()
    (folder / "journal" / "2026-10-22.md").write_text(LATER, "utf-8")
    store.import_(folder, entities=["host"])
    assert left_of(store) == {"headers": (1, 2), "tls": (1, 2), "it-s": (0, 1)}
    assert store.entities.get("host:b.example").attrs["needs"] == ["headers", "it-s", "tls"]
    before = store.log.head()
    assert store.import_(folder, entities=["host"]).changed == {}
    assert store.log.head() == before
    store.import_(folder / "journal", entities=["host"])
    assert left_of(store) == {"headers": (1, 2), "tls": (1, 2), "it-s": (0, 1)}


def test_a_declaration_that_was_withdrawn_stays_so(store: Store, folder: Path) -> None:
    """A person who wants a check no more is not overruled by the next import."""
    (folder / "hosts.md").write_text(HOSTS, "utf-8")
    store.import_(folder, entities=["host"])
    store.entities.expect("host", [], where="attrs.needs contains 'tls'")
    store.import_(folder, entities=["host"])
    assert left_of(store) == {"headers": (1, 2)}


def test_asking_for_entities_changes_no_note(store: Store, folder: Path) -> None:
    """With and without `entities=` the notes of a folder are the same."""
    (folder / "hosts.md").write_text(HOSTS, "utf-8")
    store.import_(folder, entities=["host"])
    before = store.log.head()
    assert store.import_(folder).changed == {}
    assert store.log.head() == before


def test_records_are_written_in_the_order_of_their_days(store: Store, folder: Path) -> None:
    """The newest has the highest id though its file comes first; steps of one file keep its order."""
    (folder / "journal.md").write_text(
        "# Journal\n\n## 2026-10-22\n\n### Decisions\n\n- late\n\n## 2026-10-05\n\n### Decisions\n\n- early\n", "utf-8"
    )
    plan = "# Move\n\n## Phase 1 (2026-10-20)\n\n- [ ] a\n\n## Phase 2 (2026-10-01)\n\n- [ ] b\n"
    (folder / "plan.md").write_text(plan, "utf-8")
    store.import_(folder)
    decisions = sorted(store.notes.list(kind="decision"), key=lambda note: note.id)
    assert [note.title for note in decisions] == ["early", "late"]
    steps = sorted(store.notes.list(kind="step"), key=lambda note: note.id)
    assert [(note.title or "")[:7] for note in steps] == ["Phase 1", "Phase 2"]


def test_foreign_files_are_untrusted(store: Store, folder: Path) -> None:
    """Others' files are quoted wherever they are shown and decide nothing."""
    store.import_(folder, origin="import")
    text = store.resume().text
    assert "decisions in force" not in text
    assert "«import: imapsync over the VPN»" in text


def test_a_dry_run_writes_nothing(store: Store, folder: Path) -> None:
    """It says what would happen."""
    done = store.import_(folder, dry_run=True)
    assert done.created["decision"] == 1
    assert store.log.head().seq == 0
    assert "nothing written" in done.text


def test_an_error_leaves_nothing(store: Store, folder: Path) -> None:
    """All or nothing: an interrupted import can be begun again."""

    class Interrupted(Exception):
        pass

    def progress(done: int, total: int) -> None:
        if done == total:
            raise Interrupted

    with pytest.raises(Interrupted):
        store.import_(folder, progress=progress)
    assert store.log.head().seq == 0


def test_a_missing_path_is_a_typed_error(store: Store, folder: Path) -> None:
    """Nothing at the path."""
    with pytest.raises(NotFound):
        store.import_(folder / "nowhere")


def test_two_folders_of_one_project_do_not_mix(store: Store, folder: Path, tmp_path: Path) -> None:
    """Importing another folder does not drop the records of the first."""
    store.import_(folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / "plan.md").write_text("# Other\n\n- [ ] thing\n", "utf-8")
    store.import_(other)
    assert store.left().items_total == 2
    assert store.import_(folder).created == {}


def test_an_archived_task_keeps_its_records(store: Store, tmp_path: Path) -> None:
    """Moved into an archive folder, a task is the same task, closed; nothing is made anew."""
    root = tmp_path / "tasks"
    task = root / "10-01-cache"
    task.mkdir(parents=True)
    (task / "task.json").write_text('{"title": "Add a cache", "status": "in_progress"}', "utf-8")
    (task / "prd.md").write_text("# Add a cache\n\n## Acceptance\n- [ ] hit rate measured\n", "utf-8")
    store.import_(root)
    assert store.left().items_total == 1
    before = {note.title: note.id for note in store.notes.list(limit=1000)}
    (root / "archive" / "2026-10").mkdir(parents=True)
    task.rename(root / "archive" / "2026-10" / "10-01-cache")
    done = store.import_(root)
    after = {note.title: note.id for note in store.notes.list(limit=1000)}
    assert after == before
    assert done.created == {}
    assert store.left().items_total == 0
    assert store.import_(root).changed == {}


def test_two_boxes_of_one_text_are_two(store: Store, folder: Path) -> None:
    """A text that stands twice in a checklist is ticked once when one box is."""
    (folder / "plan.md").write_text("# Rota\n\n- [ ] call\n- [ ] call\n", "utf-8")
    store.import_(folder)
    assert store.left().items_total == 2
    (folder / "plan.md").write_text("# Rota\n\n- [x] call\n- [ ] call\n", "utf-8")
    store.import_(folder)
    assert store.left().items_total == 1
