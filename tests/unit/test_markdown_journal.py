"""Journals: sessions as notes, boxes as statements of a day, and where the newest says the work stands."""

from __future__ import annotations

import datetime as dt
import os
from pathlib import Path

from agentmem.transfer.markdown import Plan, PlannedNote, read_folder


def read(root: Path, files: dict[str, str]) -> Plan:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return read_folder(root)


def find(plan: Plan, title: str) -> PlannedNote:
    return next(note for note in plan.notes if note.title == title)


SESSIONS = """\
# Journal - kay

## Session 1: table

**Date**: 2026-03-05

### Summary

(Add summary)

### Main Changes

## Summary

Wrote the table.

## Key decisions

- Only one index

### Status

[OK] **Completed**

### Next Steps

- Write the worker

## Session 2: worker

**Date**: 2026-03-06

### What failed

- **LISTEN**: the pooler drops it

### Status

[OK] **Completed**

### Next Steps

- None - task complete
"""


def test_a_journal_is_one_dated_fact_for_each_session(tmp_path):
    """Sessions are facts and no steps, also where a template puts higher headings inside one."""
    plan = read(tmp_path, {"workspace/kay/journal-1.md": SESSIONS})
    sessions = [note for note in plan.notes if note.title.startswith("Session")]
    assert [(note.kind, note.title, note.dated) for note in sessions] == [
        ("fact", "Session 1: table (2026-03-05)", dt.date(2026, 3, 5)),
        ("fact", "Session 2: worker (2026-03-06)", dt.date(2026, 3, 6)),
    ]
    assert "Wrote the table." in sessions[0].body
    assert not [note for note in plan.notes if note.kind in ("goal", "step")]


def test_a_session_keeps_its_decisions_and_failed_attempts(tmp_path):
    """They are records of their own beneath the session, dated by it."""
    plan = read(tmp_path, {"journal-1.md": SESSIONS})
    decision = find(plan, "Only one index")
    assert (decision.kind, decision.dated) == ("decision", dt.date(2026, 3, 5))
    assert decision.parent == find(plan, "Session 1: table (2026-03-05)").source
    assert (find(plan, "LISTEN").kind, find(plan, "LISTEN").why) == ("attempt", "the pooler drops it")


def test_an_older_session_does_not_say_where_the_work_stands(tmp_path):
    """Where the newest session names no next step there is no checkpoint, whatever older ones named."""
    assert read(tmp_path, {"journal-1.md": SESSIONS}).checkpoints == ()


def test_the_newest_session_is_the_checkpoint(tmp_path):
    """By date over all files of the folder, with its summary and what is next."""
    newer = (
        "# J\n\n## Session 3: retry\n\n**Date**: 2026-03-07\n\n### Summary\n\nJitter works.\n\n### Next\n\n- Alert\n"
    )
    plan = read(tmp_path, {"kay/journal-1.md": newer, "kay/journal-2.md": SESSIONS})
    (checkpoint,) = plan.checkpoints
    assert (checkpoint.dated, checkpoint.task) == (dt.date(2026, 3, 7), None)
    assert checkpoint.text.startswith("Session 3: retry")
    assert "Jitter works." in checkpoint.text
    assert "Alert" in checkpoint.text


def test_a_session_that_names_its_task_speaks_of_that_task(tmp_path):
    """Its decisions, its checkpoint and its summary belong to the task."""
    journal = (
        "# J\n\n## Session 1: a\n\n**Date**: 2026-03-05\n**Task**: 03-05-queue\n\n"
        "### Decisions\n\n- Poll\n\n### Next\n\n- Alert\n"
    )
    plan = read(tmp_path, {"tasks/03-05-queue/task.json": '{"title": "Queue"}', "kay/journal.md": journal})
    goal = find(plan, "Queue")
    assert find(plan, "Poll").parent == goal.source
    assert [checkpoint.task for checkpoint in plan.checkpoints] == [goal.source]


PLAN = (
    "---\nupdated: 2026-10-05\n---\n# Review\n\n- [ ] Port survey\n"
    "- [x] TLS of every host\n- [ ] Uploads: avatars\n- [ ] Uploads: photos\n"
    "- [ ] Spray passwords\n"
)
DAYS = {
    "plan.md": PLAN,
    "journal/2026-10-06.md": (
        "# 2026-10-06: ports\n\n## Done\n\n- [x] Port survey\n\n## Next\n\n"
        "- [ ] Ask Mira (by phone)\n- [ ] Call Tomas\n"
    ),
    "journal/2026-10-07.md": (
        "# 2026-10-07\n\n- [x] Uploads: avatars\n- [x] Ask Mira\n- [ ] ~~Spray passwords~~ (rule 4)\n"
    ),
    "journal/2026-10-08.md": (
        "# 2026-10-08\n\n- [ ] TLS of every host\n  Opened again: one more host.\n- [~] Uploads: photos\n"
    ),
}


def test_boxes_of_a_daily_journal_tick_open_and_drop_those_of_the_plan(tmp_path):
    """The newest statement about a thing wins, and the report names each that was overruled."""
    plan = read(tmp_path, DAYS)
    goal = plan.notes[0]
    assert [(item.text, item.done) for item in goal.checklist] == [
        ("Port survey", True),
        ("TLS of every host", False),
        ("Uploads: avatars", True),
        ("Uploads: photos", False),
    ]
    assert "Spray passwords" in goal.body
    assert sorted(line.text.split("”")[1].split(" by ")[0].strip() for line in plan.lines("status")) == [
        "is done",
        "is done",
        "is dropped",
        "is open again",
    ]


def test_boxes_that_only_journals_name_are_one_step(tmp_path):
    """They are work too, each in the state it was last seen in, beneath the goal of the folder."""
    plan = read(tmp_path, DAYS)
    noted = find(plan, "Noted in the journal")
    assert (noted.kind, noted.status, noted.parent) == ("step", "active", plan.notes[0].source)
    assert [(item.text, item.done) for item in noted.checklist] == [
        ("Ask Mira (by phone)", True),
        ("Call Tomas", False),
    ]


def test_a_day_is_a_fact_and_no_goal(tmp_path):
    """A file for one day is one session, with boxes or without."""
    plan = read(tmp_path, DAYS)
    assert [note.kind for note in plan.notes if note.title.startswith("2026")] == ["fact"] * 3


def test_an_undated_plan_is_older_than_a_dated_journal(tmp_path):
    """The time of a file's last change is that of a copy; it does not overrule a date that was written down."""
    files = {"plan.md": "# P\n\n- [ ] Port survey\n", "journal/2026-10-06.md": "# 2026-10-06\n\n- [x] Port survey\n"}
    read(tmp_path, files)
    os.utime(tmp_path / "plan.md", (4_000_000_000, 4_000_000_000))
    assert read_folder(tmp_path).notes[0].status == "done"


def test_the_newer_of_two_plans_of_a_folder_is_right(tmp_path):
    """Two general plans are one goal, and the later dated one says what is done."""
    files = {
        "plan.md": "---\ndate: 2026-10-01\n---\n# P\n\n## Work\n\n- [ ] Write the parser\n- [ ] Ship\n",
        "progress.md": "---\ndate: 2026-10-09\n---\n# Progress\n\n## Log\n\n- [x] Write the parser\n",
    }
    plan = read(tmp_path, files)
    assert [note.title for note in plan.notes if note.kind == "goal"] == ["P"]
    assert [(item.text, item.done) for item in find(plan, "Work").checklist] == [
        ("Write the parser", True),
        ("Ship", False),
    ]


def test_a_journal_with_boxes_and_no_plan_makes_a_goal(tmp_path):
    """What is left in it is not lost for want of a plan."""
    plan = read(
        tmp_path,
        {
            "journal.md": (
                "# J\n\n## 2026-10-06\n\n- [ ] Port survey\n\n## 2026-10-07\n\n- [x] Port survey\n- [ ] TLS\n"
            )
        },
    )
    noted = next(note for note in plan.notes if note.checklist)
    assert [(item.text, item.done) for item in noted.checklist] == [("Port survey", True), ("TLS", False)]
    assert find(plan, "Journal: journal").source == noted.parent


def day(number: int, *sections: str) -> tuple[str, str]:
    return f"journal/2026-03-0{number}.md", "\n\n".join((f"# 2026-03-0{number}: work", *sections))


def test_a_checkpoint_says_where_then_beware_then_next(tmp_path):
    """Whatever their order in the journal; a standing that is long is told in brief, so that no cut takes the warning."""
    long = "All of it is done but this. " * 60
    files = dict([day(1, f"## Next\n\n- [ ] go on\n\n## Beware\n\n- It deletes\n\n## Where I stand\n\n{long}")])
    (checkpoint,) = read(tmp_path, files).checkpoints
    places = [checkpoint.text.index(part) for part in ("Where I stand:", "Beware:\n- It deletes", "Next:\n- [ ] go on")]
    assert places == sorted(places)
    assert places[1] < 700


def test_a_warning_holds_until_a_later_session_gives_others(tmp_path):
    """A session that warns of nothing does not take back the warning of the one before; the day of it is told."""
    first = day(1, "## Beware\n\n- old", "## Next\n\n- a")
    second = day(2, "## 注意\n\n- 真扣款", "## Next\n\n- b")
    third = day(3, "## Next\n\n- c")
    (checkpoint,) = read(tmp_path, dict([first, second, third])).checkpoints
    assert "注意 (2026-03-02):\n- 真扣款" in checkpoint.text
    assert "old" not in checkpoint.text
    assert checkpoint.text.endswith("- c")


def test_a_day_that_lies_ahead_is_not_the_day_of_a_record(tmp_path):
    """What is due in November was written on the day of the journal."""
    plan = read(tmp_path, dict([day(1, "## Open questions\n\n- Who renews it? (ends 2026-11-03)")]))
    assert find(plan, "Who renews it? (ends 2026-11-03)").dated == dt.date(2026, 3, 1)
