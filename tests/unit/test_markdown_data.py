"""Real folders of logs: the example in the documentation, and months of real ones where they are to be had."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmem import limits
from agentmem.transfer.markdown import CLOSED, Plan, PlannedNote, read_folder
from agentmem.transfer.markdown.files import read_text
from agentmem.transfer.markdown.labels import outcome_of_word
from agentmem.transfer.markdown.roles import read_heading
from agentmem.transfer.markdown.status import is_status_label, status_of_cell
from agentmem.types import STATUSES

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "docs" / "examples"
LOGS = ROOT.parent / "shared" / "data" / "logs" / "dev-journals"
FOLDERS = [
    pytest.param(EXAMPLES / "recon", id="examples-recon"),
    pytest.param(EXAMPLES / "software", id="examples-software"),
    pytest.param(LOGS, id="dev-journals", marks=pytest.mark.data),
]
LABELS = ("goal", "attempt", "outcome", "why", "结果", "原因")  # told by what a note is, its status and its why
PARTS = re.compile(r"[|:：—–()（）.,、；;。\[\]]|->|→| - ")


@pytest.fixture(params=FOLDERS)
def folder(request) -> Path:
    if not request.param.exists():
        pytest.skip(f"no folder {request.param.name}")
    return request.param


def letters(text: str) -> str:
    """Letters and digits, case folded: a goal's title begins with a capital though its heading went on from "Goal:"."""
    return "".join(char for char in text.casefold() if char.isalnum())


def kept(plan: Plan) -> str:
    """All text that a plan keeps, as letters and digits."""
    texts: list[str] = []
    for note in plan.notes:
        texts += [note.title, note.body, note.why, *note.source.headings, *(item.text for item in note.checklist)]
    for entity in plan.entities:
        texts += [
            entity.key,
            entity.status or "",
            *map(str, entity.attrs.values()),
            *entity.checks.values(),
            *entity.attrs,
        ]
    return letters("\n".join(texts))


def lost(plan: Plan) -> Iterator[str]:
    """The lines of Markdown files that are in no record: neither whole nor, split at its punctuation, part by part."""
    found = kept(plan)
    told = {note.dated.isoformat()[:10] for note in plan.notes if note.dated} | {note.status for note in plan.notes}
    for file in plan.files:
        if not file.path.endswith(".md"):
            continue
        lines = (read_text(plan.root / file.path) or "").split("\n")
        front = lines.index("---", 1) if lines[0] == "---" and "---" in lines[1:] else 0
        for number, line in enumerate(lines):
            if letters(line) in found or all(
                letters(part) in found or letters(part) in LABELS or outcome_of_word(part) in told
                for part in PARTS.split(line)
            ):
                continue
            if line.startswith("#") and read_heading(line.lstrip("# ")).role == "goal":
                continue  # the section became the body of its goal
            if re.match(r"^\s*\|", line) and any(map(is_status_label, line.split("|"))) and "-|-" in lines[number + 1]:
                continue  # the header of a table whose rows became steps
            key, _, value = line.partition(": ")
            if number < front and key in ("title", "name") and letters(value) in found:
                continue  # the title of the note
            if number < front and key in ("status", "updated", "date", "created"):
                status = status_of_cell(value)
                if value[:10] in told or (status and status.value in told):
                    continue  # the status or the day of the note
            yield f"{file.path}:{number + 1}: {line}"


def test_nothing_is_dropped(folder):
    """Every line of every Markdown file is in some record."""
    assert list(lost(read_folder(folder))) == []


def test_every_record_keeps_within_the_limits(folder):
    """Titles, bodies, whys, items, tags, statuses and parents are such that a store takes them."""
    plan = read_folder(folder)
    seen: dict[object, PlannedNote] = {}
    for note in plan.notes:
        assert note.title.strip()
        assert "\n" not in note.title
        assert len(note.title) <= limits.TITLE_CHARS
        assert len(note.body.encode()) <= limits.BODY_BYTES
        assert len(note.why.encode()) <= limits.WHY_BYTES
        assert len(note.tags) <= limits.TAGS_PER_NOTE
        assert note.status in STATUSES[note.kind]
        assert note.source not in seen
        assert note.parent is None or note.parent in seen
        assert note.kind != "goal" or note.parent is None
        seen[note.source] = note
    for _, item in plan.items:
        assert item.text.strip()
        assert len(item.text) <= limits.ITEM_CHARS
    for checkpoint in plan.checkpoints:
        assert len(checkpoint.text.encode()) <= limits.CHECKPOINT_BYTES


def test_nothing_below_a_closed_task_is_left(folder):
    """No step below a closed one is open, save tasks that have a status of their own."""
    plan = read_folder(folder)
    by_key = {note.source: note for note in plan.notes}
    for note in plan.notes:
        parent = by_key.get(note.parent) if note.parent else None
        if parent and parent.kind in ("goal", "step") and parent.status in CLOSED and note.kind == "step":
            assert note.status in CLOSED or note.source.path.endswith("task.json")


def test_reading_twice_gives_the_same_plan(folder):
    """Identity and content depend on the files alone."""
    first, second = read_folder(folder), read_folder(folder)
    assert [(note.source, note.digest) for note in first.notes] == [(note.source, note.digest) for note in second.notes]
    assert first.checkpoints == second.checkpoints


@pytest.mark.data
def test_months_of_real_logs_leave_what_is_open_and_nothing_else():
    """Ten open tasks and one that its own text calls abandoned, ten broken files, most boxes below closed tasks."""
    if not LOGS.exists():
        pytest.skip("no folder dev-journals")
    plan = read_folder(LOGS)
    tasks = [note for note in plan.notes if note.source.path.endswith("task.json") and note.kind in ("goal", "step")]
    assert len(tasks) == 133
    assert len([note for note in tasks if note.status not in CLOSED]) == 10
    assert len(plan.lines("broken")) == 10
    by_key = {note.source: note for note in plan.notes}
    left = sum(not item.done for source, item in plan.items if by_key[source].status not in CLOSED)
    closed = sum(note.closed_unticked for note in plan.notes)
    assert left + closed == sum(not item.done for _, item in plan.items)
    assert closed > 5 * left


def examples(name: str) -> Plan:
    if not (EXAMPLES / name).exists():
        pytest.skip(f"no example {name}")
    return read_folder(EXAMPLES / name)


def test_the_example_review_ends_where_its_journals_say():
    """Steps ticked in journals are done, one ticked step is open again, what was struck is a decision."""
    plan = examples("recon")
    states = {item.text: item.done for _, item in plan.items}
    assert states["Search: injection and information leaks"] is True
    assert states["TLS and header review of every web host"] is False
    assert "Password spraying against staff accounts" not in " ".join(states)
    failed = {note.title: note.why for note in plan.notes if note.kind == "attempt" and note.status == "failed"}
    assert (
        "The edge counts connections" in failed["The same scan, slower"]
        or "same block" in failed["The same scan, slower"]
    )
    assert [checkpoint.source.path for checkpoint in plan.checkpoints] == ["journal/2026-10-22.md"]
    assert len([note for note in plan.notes if note.kind == "goal"]) == 1
