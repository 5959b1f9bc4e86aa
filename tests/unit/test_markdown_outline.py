"""What the sections of plans and documents become."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest

from agentmem import limits
from agentmem.transfer.markdown import Plan, PlannedNote, read_folder


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


def read(root: Path, files: dict[str, str], **options) -> Plan:
    return read_folder(write(root, files), **options)


def only(plan: Plan, kind: str) -> list[PlannedNote]:
    return [note for note in plan.notes if note.kind == kind]


def outline(plan: Plan) -> list[str]:
    depth = {None: -1}
    lines = []
    for note in plan.notes:
        depth[note.source] = depth[note.parent] + 1
        lines.append("  " * depth[note.source] + f"{note.kind} {note.status}: {note.title}")
    return lines


PLAN = """\
# Move to the new queue

Why: the old one loses jobs.

## Phase 1: Table ✅

- [x] Write the migration
- [x] Run it

## Phase 2: Worker

- [x] Loop
- [ ] Back-off
  - [ ] With jitter
- Not a box

### 2.1 Metrics (in progress)

- [ ] Lag

## Background

Only text.
"""


def test_a_plan_is_a_goal_with_its_headings_as_steps(tmp_path):
    """Headings become the tree, boxes the checklist of their heading, text that is no work facts."""
    plan = read(tmp_path, {"plan.md": PLAN})
    assert outline(plan) == [
        "goal active: Move to the new queue",
        "  step done: Phase 1: Table",
        "  step active: Phase 2: Worker",
        "    step active: 2.1 Metrics",
        "  fact active: Background",
    ]
    worker = next(note for note in plan.notes if note.title == "Phase 2: Worker")
    assert [(item.text, item.done, item.depth) for item in worker.checklist] == [
        ("Loop", True, 0),
        ("Back-off", False, 0),
        ("With jitter", False, 1),
    ]
    assert worker.body == "- Not a box"
    assert plan.notes[0].body == "Why: the old one loses jobs."


def test_a_box_beneath_a_plain_item_carries_its_text(tmp_path):
    """The box alone would not say what it belongs to."""
    plan = read(tmp_path, {"todo.md": "# T\n\n- API\n  - [ ] login\n  - [x] logout\n"})
    assert [(item.text, item.done) for item in plan.notes[0].checklist] == [
        ("API: login", False),
        ("API: logout", True),
    ]


def test_a_plan_without_any_box_or_number_has_its_headings_as_steps(tmp_path):
    """Where nothing marks the work, the headings of a plan are it, save those that speak of something else."""
    plan = read(tmp_path, {"plan.md": "# Plan\n\n## Set up\n\na\n\n## Write the parser\n\nb\n\n## Risks\n\nc\n"})
    assert outline(plan)[1:] == [
        "  step open: Set up",
        "  step open: Write the parser",
        "  fact active: Risks",
    ]


def test_a_numbered_step_needs_no_box(tmp_path):
    """In a plan a numbered heading is a step."""
    plan = read(tmp_path, {"plan.md": "# P\n\n## 1. First\n\na\n\n## 2. Second\n\nb\n\n## Rollback\n\nc\n"})
    assert [note.title for note in only(plan, "step")] == ["1. First", "2. Second"]


@pytest.mark.parametrize("header", ["| Task | Status | Owner |", "| 任务 | 状态 | Owner |"])
def test_a_table_of_tasks_with_a_status_is_steps(tmp_path, header):
    """Rows are steps with the status of their cell; the other cells are kept."""
    table = (
        f"# P\n\n## Work\n\n{header}\n|---|---|---|\n| Parser | done | kay |\n"
        f"| Printer | 🚧 | lin |\n| Docs | todo | |\n"
    )
    plan = read(tmp_path, {"plan.md": table})
    rows = [note for note in only(plan, "step") if note.title != "Work"]
    assert [(note.title, note.status) for note in rows] == [("Parser", "done"), ("Printer", "active"), ("Docs", "open")]
    assert "kay" in rows[0].body


RECORDS = """\
# Notes

## What failed

- **Half-open scan**: the edge drops everything after 200 packets
- `git rev-parse` → wrong in a submodule
- Guessing (locks the account)

## 不采纳

- **任务编号**：只能挡住同一个任务的重试

## Out of scope

- The other twenty platforms.
- Any caching. It is stateless by design.
- Do not touch the parser

## Key decisions

- **Poll every 2 seconds.** Nobody is awake to notice.
- YAML 解析：支持嵌套

## Open questions

- Who is paged?
- How long do we keep rows? Answered 2026-10-19: 30 days
- [x] May we import?

## 踩坑

- 连接池是事务模式

## Other

Text.
"""


def test_sections_of_records_give_one_record_for_each_item(tmp_path):
    """Failed attempts with why, what is not done with why, decisions, questions with their answer, lessons."""
    plan = read(tmp_path, {"notes.md": RECORDS})
    told = [(note.kind, note.status, note.title, note.why) for note in plan.notes if note.kind != "fact"]
    assert told == [
        ("attempt", "failed", "Half-open scan", "the edge drops everything after 200 packets"),
        ("attempt", "failed", "`git rev-parse`", "wrong in a submodule"),
        ("attempt", "failed", "Guessing", "locks the account"),
        ("decision", "active", "Not doing: 任务编号", "只能挡住同一个任务的重试"),
        ("decision", "active", "Out of scope: The other twenty platforms.", ""),
        ("decision", "active", "Out of scope: Any caching. It is stateless by design.", ""),
        ("decision", "active", "Do not touch the parser", ""),
        ("decision", "active", "Poll every 2 seconds.", "Nobody is awake to notice."),
        ("decision", "active", "YAML 解析：支持嵌套", ""),
        ("question", "open", "Who is paged?", ""),
        ("question", "done", "How long do we keep rows? Answered 2026-10-19: 30 days", ""),
        ("question", "done", "May we import?", ""),
        ("lesson", "active", "连接池是事务模式", ""),
    ]
    assert [note.title for note in only(plan, "fact")] == ["Notes", "Other"]


def test_a_failed_approach_told_in_a_section_has_its_drawbacks_as_the_reason(tmp_path):
    """A heading for each approach; the points marked against it say why it failed."""
    text = (
        "# D\n\n## 尝试过且失败的方案\n\n### ❌ 方案 A\n\n- ✅ 跨平台\n"
        "- ❌ Windows 不兼容\n\n### Plan B\n\n- Outcome: unclear\n- Why: ran out of time\n"
    )
    first, second = only(read(tmp_path, {"design.md": text}), "attempt")
    assert (first.title, first.status, first.why) == ("方案 A", "failed", "Windows 不兼容")
    assert (second.title, second.status, second.why) == ("Plan B", "unclear", "ran out of time")


def test_a_table_of_attempts_gives_its_outcome_and_reason(tmp_path):
    """Each row is an attempt; its outcome column may differ from the heading."""
    text = (
        "# D\n\n## What failed\n\n| Attempt | Outcome | Why |\n|---|---|---|\n"
        "| SVG | failed | 415 |\n| Slow calls | unclear | hung |\n"
    )
    told = [(note.title, note.status, note.why) for note in only(read(tmp_path, {"d.md": text}), "attempt")]
    assert told == [("SVG", "failed", "415"), ("Slow calls", "unclear", "hung")]


def test_an_architecture_decision_is_one_decision(tmp_path):
    """The labels of an ADR say what was decided and why; the text stays whole."""
    text = (
        "# F\n\n## Decision (ADR-lite)\n\n**Context**: two writers\n\n"
        "**Decision**: One writer thread.\n\n**Consequences**:\n- slower\n"
    )
    decision = only(read(tmp_path, {"prd.md": text}), "decision")[0]
    assert (decision.title, decision.why) == ("One writer thread.", "two writers")
    assert "- slower" in decision.body


def test_a_label_in_bold_speaks_for_the_list_after_it(tmp_path):
    """`**Out of scope**` is as good as a heading, `**Files**` below decisions is none of them."""
    text = (
        "# F\n\n## Scope\n\n**In scope**\n- a\n\n**Out of scope**\n- b\n\n"
        "## Decisions\n\n- c\n\n**Updated files**:\n- d.py\n"
    )
    plan = read(tmp_path, {"prd.md": text})
    assert [note.title for note in only(plan, "decision")] == ["Out of scope: b", "c"]
    assert any("d.py" in note.body for note in only(plan, "fact"))


def test_rejected_rows_of_a_review_are_decisions(tmp_path):
    """A table with verdicts yields what was rejected, with the reason after the verdict; the table stays."""
    text = (
        "# R\n\n## 评审\n\n| # | Issue | 处置 |\n|---|---|---|\n"
        "| 1 | 双轨风险 | ✅ 采纳 |\n| 2 | 缺少校验 | ❌ 不采纳 — 靠指引足够 |\n"
    )
    plan = read(tmp_path, {"review.md": text})
    assert [(note.title, note.why) for note in only(plan, "decision")] == [("Not doing: 缺少校验", "靠指引足够")]
    assert any("双轨风险" in note.body for note in only(plan, "fact"))


@pytest.mark.parametrize("text", ["TBD", "(Add details)", "- [ ] TBD", "- [ ] <path>", "-", "待补充", "…", "- [ ] …"])
def test_a_placeholder_of_a_template_is_no_work(tmp_path, text):
    """What a template left to be filled in makes no step, box, question or decision."""
    plan = read(
        tmp_path,
        {"plan.md": f"# P\n\n## Open questions\n\n{text}\n\n## Tasks\n\n{text}\n\n## Out of scope\n\n{text}\n"},
    )
    assert plan.items == ()
    assert {note.kind for note in plan.notes} == {"goal"}
    assert text in plan.notes[0].body


def test_a_struck_box_is_neither_done_nor_left(tmp_path):
    """It was given up: with a reason it is a decision, without one it stays text."""
    text = "# P\n\n- [ ] keep\n- [ ] ~~spray~~ (rule 4 forbids it)\n- [-] later\n"
    plan = read(tmp_path, {"plan.md": text})
    assert [item.text for _, item in plan.items] == ["keep"]
    assert [(note.title, note.why) for note in only(plan, "decision")] == [("Not doing: spray", "rule 4 forbids it")]
    assert "- [-] later" in plan.notes[0].body


def test_a_box_in_code_is_no_box(tmp_path):
    """Fenced text is text."""
    plan = read(tmp_path, {"notes.md": "# N\n\n```\n- [ ] not me\n```\n"})
    assert plan.items == ()
    assert "not me" in plan.notes[0].body


def test_a_long_title_is_cut_and_whole_in_the_body(tmp_path):
    """Titles have a limit, text is never lost to it."""
    heading = "word " * 200
    note = only(read(tmp_path, {"notes.md": f"# N\n\n## {heading}\n\ntext\n"}), "fact")[1]
    assert len(note.title) <= limits.TITLE_CHARS
    assert note.title.endswith("…")
    assert heading.strip() in note.body


def test_a_section_beyond_the_limit_of_a_body_is_split(tmp_path):
    """No body exceeds the limit, and every line is in one of the parts."""
    lines = [f"line {number} " + "x" * 90 for number in range(6000)]
    plan = read(tmp_path, {"notes.md": "# N\n\n## Big\n\n" + "\n".join(lines) + "\n"})
    bodies = [note.body for note in plan.notes]
    assert max(len(body.encode()) for body in bodies) <= limits.BODY_BYTES
    assert [line for body in bodies for line in body.split("\n") if line.startswith("line ")] == lines


def test_a_box_beyond_the_limit_of_an_item_is_cut_and_whole_in_the_body(tmp_path):
    """A box with a page of text is cut, and its lines stay in the body."""
    text = "very " * 400
    plan = read(tmp_path, {"plan.md": f"# P\n\n- [ ] {text}end\n"})
    ((_, item),) = plan.items
    assert len(item.text) <= limits.ITEM_CHARS
    assert "end" in plan.notes[0].body


def test_front_matter_gives_status_tags_and_date(tmp_path):
    """Keys of front matter count; its lines are kept in the body."""
    text = (
        "---\nstatus: completed\npriority: high\ntags: [api, auth]\nupdated: 2026-10-09\n"
        "owner: kay\n---\n# Goal: ship\n\n- [ ] a\n"
    )
    goal = read(tmp_path, {"plan.md": text}).notes[0]
    assert (goal.kind, goal.status, goal.title) == ("goal", "done", "Ship")
    assert goal.tags == ("p1", "api", "auth")
    assert goal.dated == dt.date(2026, 10, 9)
    assert goal.closed_unticked == 1
    assert "owner: kay" in goal.body


def test_front_matter_of_any_other_kind_is_text(tmp_path):
    """Anchors, block scalars and nested maps are not interpreted at all."""
    text = "---\nstatus: done\nnotes: |\n  free\nbase: &a {x: 1}\n---\n# P\n\n- [ ] a\n"
    goal = read(tmp_path, {"plan.md": text}).notes[0]
    assert goal.status == "open"
    assert "base: &a {x: 1}" in goal.body


def test_windows_line_ends_change_nothing(tmp_path):
    """CRLF and LF give the same plan."""
    unix = read(tmp_path / "a", {"plan.md": PLAN})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "plan.md").write_bytes(PLAN.replace("\n", "\r\n").encode())
    windows = read_folder(tmp_path / "b")
    assert [note.digest for note in unix.notes] == [note.digest for note in windows.notes]


def test_files_beneath_a_plan_hang_on_its_goal(tmp_path):
    """A finding with a box is a step of the plan above it, a report without work a fact, a list of its own a goal."""
    files = {
        "plan.md": "# Review\n\n- [ ] write the report\n",
        "findings/F-1.md": "---\nstatus: fixed\n---\n# F-1: read any order\n\n## Retest\n\n- [x] again\n",
        "reports/a.md": "# Agent A\n\nNothing found.\n",
    }
    assert outline(read(tmp_path, files)) == [
        "goal active: Review",
        "  step done: F-1: read any order",
        "    step done: Retest",
        "  fact active: Agent A (a.md)",
    ]


def test_a_digest_changes_with_the_content_and_with_nothing_else(tmp_path):
    """Reading twice gives the same plan; ticking one box changes one digest."""
    before = read(tmp_path / "a", {"plan.md": PLAN})
    again = read_folder(tmp_path / "a")
    assert [(note.source, note.digest) for note in before.notes] == [(note.source, note.digest) for note in again.notes]
    after = read(tmp_path / "b", {"plan.md": PLAN.replace("- [ ] Back-off", "- [x] Back-off")})
    changed = [old.title for old, new in zip(before.notes, after.notes, strict=True) if old.digest != new.digest]
    assert changed == ["Phase 2: Worker"]


def test_a_marker_in_a_heading_does_not_change_the_identity(tmp_path):
    """The record is known again when its heading gets a tick."""
    before = read(tmp_path / "a", {"plan.md": PLAN})
    after = read(tmp_path / "b", {"plan.md": PLAN.replace("## Phase 2: Worker", "## Phase 2: Worker ✅")})
    assert [note.source for note in before.notes] == [note.source for note in after.notes]


GOVERNING = """\
# Review

## Not ours

- `pay.example.org`: signed nothing

## Rules

1. Days only
2. No guessing: not once
"""


@pytest.mark.parametrize(
    ("name", "rules"),
    [("README.md", ["Rule 1: Days only", "Rule 2: No guessing: not once"]), ("style.md", [])],
)
def test_the_scope_and_the_rules_of_the_work_are_decisions_of_their_own(tmp_path, name, rules):
    """Each is its own title, with its number, and tagged; the rules of any other file are text."""
    plan = read(tmp_path, {name: GOVERNING})
    told = [(note.title, note.tags, note.body) for note in only(plan, "decision")]
    titles = ["Out of scope: `pay.example.org`: signed nothing", *rules]
    assert told == [(title, ("scope",), "") for title in titles]
    assert rules or any("1. Days only" in note.body for note in only(plan, "fact"))


def test_the_rules_of_one_task_of_many_are_not_those_of_the_work(tmp_path):
    """What is out of scope of a task is a decision beneath it, without the tag."""
    plan = read(tmp_path, {"t/task.json": '{"title": "T"}', "t/prd.md": "# T\n\n## Out of scope\n\n- mails\n"})
    (decision,) = only(plan, "decision")
    assert (decision.title, decision.tags) == ("Out of scope: mails", ())


def test_front_matter_that_a_note_tells_is_not_in_its_body(tmp_path):
    """Title, status, tags and day go; a key that means nothing here stays."""
    front = "title: Mail\nstatus: active\ntags: [ops]\nupdated: 2026-03-01\nstarted: 2026-02-01\nowner: kay"
    plan = read(tmp_path, {"plan.md": f"---\n{front}\n---\n\n# Goal: mail\n\n- [ ] a\n"})
    goal = plan.notes[0]
    assert (goal.title, goal.status, goal.tags) == ("Mail", "active", ("ops",))
    assert goal.body == "started: 2026-02-01\nowner: kay"


def test_an_attempt_says_nothing_twice(tmp_path):
    """Outcome and reason leave the body; what else was told of it stays, and so does an outcome with more to it."""
    text = (
        "# D\n\n## What failed\n\n### One\n\n- Outcome: failed\n- Why: it hung\n  for an hour\n\n"
        "### Two\n\n- Tried: slowly\n- Outcome: failed after three days\n- Why: it hung\n"
    )
    one, two = only(read(tmp_path, {"d.md": text}), "attempt")
    assert (one.status, one.why, one.body) == ("failed", "it hung for an hour", "")
    assert (two.why, two.body) == ("it hung", "- Tried: slowly\n- Outcome: failed after three days")


def test_a_title_ends_with_a_sentence(tmp_path):
    """As many whole sentences as fit; one long sentence is not cut in the middle of a thought."""
    short, long = "It is slow.", f"It stays slow {'even then ' * 24}as well."
    plan = read(tmp_path, {"d.md": f"# D\n\n## Lessons\n\n- {short} {short} {long}\n- {long} {short}\n"})
    assert [note.title for note in only(plan, "lesson")] == [f"{short} {short}", long]
