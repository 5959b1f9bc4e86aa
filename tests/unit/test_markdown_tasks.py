"""Folders of tasks: task.json, what lies beside it, and what a closed task leaves."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path

import pytest

from agentmem.transfer.markdown import Plan, PlannedNote, read_folder


def read(root: Path, files: dict[str, str]) -> Plan:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return read_folder(root)


def task(**keys) -> str:
    return json.dumps({"title": "Queue", "status": "in_progress", **keys}, ensure_ascii=False)


def find(plan: Plan, title: str) -> PlannedNote:
    return next(note for note in plan.notes if note.title == title)


PRD = """\
# Queue

## Goal

Every job runs once.

## Acceptance Criteria

- [x] survives a crash
- [ ] seen while it waits
- [ ] replayed by hand

## Open Questions

- Who is paged?

## Out of Scope

- Prices.
"""


def test_a_task_folder_is_one_goal_with_its_files_beneath(tmp_path):
    """The task is the goal; boxes are steps, the section "Goal" its text, other keys and files facts."""
    plan = read(
        tmp_path, {"q/task.json": task(priority="P1", createdAt="2026-10-12", branch="feat/q"), "q/prd.md": PRD}
    )
    goal = plan.notes[0]
    assert (goal.kind, goal.title, goal.status, goal.priority) == ("goal", "Queue", "active", "p1")
    assert goal.body == "Every job runs once."
    assert goal.dated == dt.date(2026, 10, 12)
    criteria = find(plan, "Acceptance Criteria")
    assert (criteria.kind, criteria.status, criteria.parent) == ("step", "active", goal.source)
    assert [item.text for item in criteria.checklist if not item.done] == ["seen while it waits", "replayed by hand"]
    assert find(plan, "Who is paged?").status == "open"
    assert "branch: feat/q" in find(plan, "Queue: task.json").body


@pytest.mark.parametrize(
    ("folder", "status", "closed"),
    [
        ("q", "completed", "done"),
        ("q", "已完成", "done"),
        ("q", "cancelled", "dropped"),
        ("archive/2026-10/q", "in_progress", "dropped"),
        ("archive/q", "completed", "done"),
    ],
)
def test_below_a_closed_task_nothing_is_left(tmp_path, folder, status, closed):
    """Unticked boxes and open questions of a closed task are not work left; they are counted on the task."""
    plan = read(tmp_path, {f"{folder}/task.json": task(status=status), f"{folder}/prd.md": PRD})
    goal = plan.notes[0]
    assert (goal.status, goal.closed_unticked) == (closed, 2)
    assert find(plan, "Acceptance Criteria").status == closed
    assert find(plan, "Who is paged?").status == "dropped"
    assert any("closed with 2 unticked" in line.text for line in plan.lines("made"))


def test_closing_a_task_changes_no_kind_and_no_identity(tmp_path):
    """What was a step stays one, so that a second import only changes values."""
    before = read(tmp_path / "a", {"q/task.json": task(), "q/prd.md": PRD})
    after = read(tmp_path / "b", {"q/task.json": task(status="completed"), "q/prd.md": PRD})
    assert [(note.kind, note.source) for note in before.notes] == [(note.kind, note.source) for note in after.notes]


@pytest.mark.parametrize(
    "files",
    [
        {"top/task.json": task(title="Top"), "low/task.json": task(title="Low", parent="top")},
        {"top/task.json": task(title="Top", children=["x/low"]), "low/task.json": task(title="Low")},
        {"top/task.json": task(title="Top"), "top/low/task.json": task(title="Low")},
        {"archive/2026-10/top/task.json": task(title="Top"), "low/task.json": task(title="Low", parent="top")},
    ],
)
def test_a_child_task_is_a_step_beneath_its_parent(tmp_path, files):
    """By the name of its parent, by its parent's list, or by the folder around it; it keeps its own status."""
    plan = read(tmp_path, files)
    low = find(plan, "Low")
    assert (low.kind, low.status, low.parent) == ("step", "active", find(plan, "Top").source)


def test_tasks_that_name_each_other_as_parents_are_goals(tmp_path):
    """A circle of parents is broken and reported."""
    plan = read(tmp_path, {"a/task.json": task(title="A", parent="b"), "b/task.json": task(title="B", parent="a")})
    assert sorted(note.kind for note in plan.notes if note.title in "AB") == ["goal", "step"]
    assert any("circle" in line.text for line in plan.report)


def test_broken_json_is_kept_as_text_and_reported(tmp_path):
    """Title and status are read from its lines; the whole text is a fact beneath the goal, not the goal's text."""
    text = '{\n  "title": "Queue",\n  "status": "completed",\n  "completedAt": 2026-01-18,\n}\n'
    plan = read(tmp_path, {"q/task.json": text, "q/prd.md": PRD})
    goal = plan.notes[0]
    assert (goal.title, goal.status, goal.closed_unticked) == ("Queue", "done", 2)
    assert goal.body == "Every job runs once."
    raw = find(plan, "Queue: task.json")
    assert (raw.kind, raw.parent, raw.body) == ("fact", goal.source, text.strip())
    assert [line.path for line in plan.lines("broken")] == ["q/task.json"]


def test_json_that_is_no_object_or_too_deep_is_kept_as_text(tmp_path):
    """Whatever stands in task.json, the folder is read."""
    plan = read(tmp_path, {"a/task.json": "[1, 2]", "b/task.json": "[" * 100_000})
    assert len(plan.lines("broken")) == 2
    assert {note.title for note in plan.notes} == {"a", "b", "a: task.json", "b: task.json"}
    assert find(plan, "a: task.json").body == "[1, 2]"


def test_lone_surrogates_in_json_do_not_reach_a_record(tmp_path):
    """Text that no database takes is replaced."""
    plan = read(tmp_path, {"q/task.json": '{"title": "a\\ud800b", "note": "c\\u0000d"}'})
    for note in plan.notes:
        assert not any("\ud800" <= char <= "\udfff" or char == "\0" for char in note.title + note.body)


def test_json_lines_are_one_compact_fact_without_templates(tmp_path):
    """Entries are lines `file — reason`, broken lines are kept and reported, a template's line is only reported."""
    lines = (
        '{"file": "a.py", "reason": "core"}\n{"_example": "Fill with <path>"}\nnot json\n{"todo": "later", "n": 1}\n'
    )
    plan = read(tmp_path, {"q/task.json": task(), "q/check.jsonl": lines, "q/empty.jsonl": '{"_example": "x"}\n'})
    facts = [note for note in plan.notes if "jsonl" in note.title]
    assert [note.title for note in facts] == ["check.jsonl: 3 entries"]
    assert facts[0].body == "- a.py — core\nnot json\n- todo: later; n: 1"
    assert [line.path for line in plan.lines("broken")] == ["q/check.jsonl"]
    assert sum(line.count for line in plan.lines("placeholder")) == 2


def test_an_outcome_in_the_text_closes_a_task_that_its_json_left_open(tmp_path):
    """`Outcome: ABANDONED` is a status, and the report says that the two disagree."""
    plan = read(
        tmp_path, {"q/task.json": task(), "q/prd.md": PRD + "\n## Outcome: ABANDONED\n\nThe premise was wrong.\n"}
    )
    assert (plan.notes[0].status, plan.notes[0].closed_unticked) == ("dropped", 2)
    assert [summary.result for summary in plan.summaries] == ["The premise was wrong."]
    assert any("abandoned" in line.text.casefold() or "dropped" in line.text for line in plan.lines("status"))


def test_closing_notes_are_the_summary_of_a_task(tmp_path):
    """What task.json says at the end is what the task came to."""
    plan = read(tmp_path, {"q/task.json": task(status="completed", notes="Shipped in beta.8.")})
    assert [(summary.of, summary.result) for summary in plan.summaries] == [
        (plan.notes[0].source, "Shipped in beta.8.")
    ]


def test_a_table_that_names_tasks_of_the_folder_makes_no_second_ones(tmp_path):
    """A hand-over that lists the sub-tasks refers to them."""
    table = "# H\n\n## Tasks\n\n| Task | Status |\n|---|---|\n| `low` | planning |\n| other | done |\n"
    plan = read(tmp_path, {"q/task.json": task(), "q/HANDOFF.md": table, "q/low/task.json": task(title="Low")})
    assert [note.title for note in plan.notes if note.kind == "step"] == ["Low", "Tasks", "other"]


def test_steps_of_the_same_generic_name_say_where_they_belong(tmp_path):
    """A second "Acceptance Criteria" inside a section carries the name of that section."""
    text = "# P\n\n## Acceptance Criteria\n\n- [ ] a\n\n## Fix 4\n\ntext\n\n### Acceptance Criteria\n\n- [ ] b\n"
    plan = read(tmp_path, {"q/task.json": task(), "q/prd.md": text})
    assert [note.title for note in plan.notes if note.kind == "step"] == [
        "Acceptance Criteria",
        "Fix 4: Acceptance Criteria",
    ]
