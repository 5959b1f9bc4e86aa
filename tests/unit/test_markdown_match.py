"""Finding the records of an earlier import again."""

from __future__ import annotations

from pathlib import Path

from agentmem.transfer.markdown import Known, Match, Plan, SourceKey, match, read_folder


def read(root: Path, files: dict[str, str]) -> Plan:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return read_folder(root)


def again(before: Plan, after: Plan) -> tuple[Match, dict[int, str]]:
    known = [Known(id, note.source, note.kind, note.digest) for id, note in enumerate(before.notes, 1)]
    return match(after.notes, known), {id: note.title for id, note in enumerate(before.notes, 1)}


NOTES = "# N\n\n## What failed\n\n- alpha: one\n- beta: two\n- gamma: three\n"


def test_the_same_folder_matches_completely(tmp_path):
    """Every record is known, with its digest, and none is gone."""
    plan = read(tmp_path, {"notes.md": NOTES})
    found, _ = again(plan, read_folder(tmp_path))
    assert found.gone == ()
    assert all(found.known[note.source].digest == note.digest for note in plan.notes)


def test_an_item_put_in_the_middle_is_the_only_new_one(tmp_path):
    """The items after it keep their records."""
    before = read(tmp_path / "a", {"notes.md": NOTES})
    after = read(tmp_path / "b", {"notes.md": NOTES.replace("- beta", "- new: four\n- beta")})
    found, titles = again(before, after)
    assert [note.title for note in after.notes if note.source not in found.known] == ["new"]
    assert all(titles[found.known[note.source].id] == note.title for note in after.notes if note.source in found.known)


def test_items_of_the_same_name_keep_their_records_by_content(tmp_path):
    """Twice the same title: what stayed the same is the same record, whatever its place."""
    text = "# N\n\n## What failed\n\n- retry: {0}\n- retry: {1}\n"
    before = read(tmp_path / "a", {"notes.md": text.format("one", "two")})
    after = read(tmp_path / "b", {"notes.md": text.format("two", "changed")})
    found, _ = again(before, after)
    second = next(note for note in before.notes if note.why == "two")
    moved = next(note for note in after.notes if note.why == "two")
    assert found.known[moved.source].source == second.source


def test_a_task_that_was_archived_is_the_same_task(tmp_path):
    """Moving a folder into the archive makes no second record of anything in it."""
    files = {"task.json": '{"title": "Q", "status": "in_progress"}', "prd.md": "# Q\n\n## Tasks\n\n- [ ] a\n"}
    before = read(tmp_path / "a", {f"tasks/10-12-q/{name}": text for name, text in files.items()})
    after = read(tmp_path / "b", {f"tasks/archive/2026-10/10-12-q/{name}": text for name, text in files.items()})
    found, _ = again(before, after)
    assert found.gone == ()
    assert set(found.known) == {note.source for note in after.notes}


def test_what_left_the_folder_is_named(tmp_path):
    """A record whose text is gone is told, never guessed away."""
    before = read(tmp_path / "a", {"notes.md": NOTES})
    after = read(tmp_path / "b", {"notes.md": NOTES.replace("- beta: two\n", "")})
    found, titles = again(before, after)
    assert [titles[record.id] for record in found.gone] == ["beta"]


def test_a_key_survives_as_a_token():
    """The canonical string gives the same key back."""
    key = SourceKey("a/b.md", ("Phase 1", 'quote " and \\', "中文"), 2)
    assert SourceKey.from_token(key.to_token()) == key
    assert str(key) == 'a/b.md › Phase 1 › quote " and \\ › 中文 (3)'
