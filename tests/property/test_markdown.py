"""What holds for any Markdown: reading never fails, drops nothing, and fits the limits."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentmem import limits
from agentmem.transfer.markdown import Known, Plan, match, read_folder
from agentmem.types import STATUSES

WORDS = st.sampled_from(
    [
        "done",
        "todo",
        "已完成",
        "失败",
        "parser",
        "worker",
        "`code()`",
        "**bold**",
        "queue",
        "10.0.0.1",
        "because",
        "因为",
        "host",
        "retry",
        "方案",
        "Decision",
        "why",
    ]
)
NAMES = st.text(alphabet="abcdefgh字符", min_size=3, max_size=8)
HEADINGS = st.sampled_from(
    [
        "What failed",
        "Out of scope",
        "Not ours to touch",
        "Rules of engagement",
        "规则",
        "Beware",
        "注意",
        "Where I stand",
        "Key decisions",
        "Open questions",
        "已失败方案",
        "不采纳",
        "Lessons",
        "Next",
        "Goal",
        "Tasks",
        "Phase 1: Setup ✅",
        "2. Build (in progress)",
        "Background",
        "Session 3: x",
        "2026-01-31",
        "Acceptance Criteria",
        "Decision 1: order",
        "Outcome: done",
    ]
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    words = " ".join([draw(NAMES), *draw(st.lists(WORDS, max_size=4)), draw(NAMES)])
    form = draw(st.integers(0, 13))
    level = draw(st.integers(1, 4))
    indent = "  " * draw(st.integers(0, 3))
    return {
        0: f"{'#' * level} {draw(HEADINGS)}",
        1: f"{'#' * level} {words}",
        2: f"{indent}- [ ] {words}",
        3: f"{indent}- [x] {words}",
        4: f"{indent}- {words}: {draw(NAMES)} — {draw(NAMES)}",
        5: f"{indent}1. {words}",
        6: "",
        7: f"| {words} | {draw(NAMES)} |\n|---|---|\n| {draw(NAMES)} | done |\n",
        8: f"**{draw(HEADINGS)}**: {words}",
        9: "```\n" + words + "\n```",
        10: f"> {words}",
        11: f"- ~~{words}~~ ({draw(NAMES)})",
        12: f"{indent}- [-] {words}",
        13: words,
    }[form]


# Headings of which a part is told by where their text went and by a status: the goal's body, a step's status.
TOLD_BY_STATUS = ("Goal", "Outcome: done", "2. Build (in progress)")
FILES = st.dictionaries(
    st.sampled_from(
        ["plan.md", "notes.md", "journal.md", "a/todo.md", "a/2026-01-31.md", "t/prd.md", "t/implement.md"]
    ),
    st.lists(lines(), max_size=14).map("\n".join),
    min_size=1,
    max_size=4,
)
MARKS = re.compile(r"^\s*(?:[-*>]|\d+\.)\s*(?:\[.\])?")
TASKS = st.sampled_from(
    ["", '{"title": "T", "status": "completed"}', '{"title": "T", "status": "planning"}', "{broken"]
)
relaxed = settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow])


def read(files: dict[str, str], task: str) -> Plan:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {**files, **({"t/task.json": task} if task else {})}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return read_folder(folder)


def letters(text: str) -> str:
    return "".join(char for char in text if char.isalnum())


@relaxed
@example(files={"plan.md": "# What failed\n\n| aaa aaa | aab |\n|---|---|\n| aaa | done |\n"}, task="")
@given(files=FILES, task=TASKS)
def test_every_word_of_every_line_is_in_some_record(files, task):
    """Nothing is dropped: what fits no rule is text of a fact."""
    plan = read(files, task)
    kept = []
    for note in plan.notes:
        kept += [note.title, note.body, note.why, *note.source.headings, *(item.text for item in note.checklist)]
    found = letters("\n".join(kept))
    for name, text in files.items():
        for line in text.split("\n"):
            if line.startswith("#") and line.lstrip("# ") in TOLD_BY_STATUS:
                continue
            missing = [word for word in MARKS.sub("", line).split() if letters(word) and letters(word) not in found]
            assert not missing, (name, line, missing)


@relaxed
@given(files=FILES, task=TASKS)
def test_any_plan_is_one_that_a_store_takes(files, task):
    """Unique keys, parents first, no parent above a goal, statuses of the kind, text within limits."""
    plan = read(files, task)
    seen = set()
    for note in plan.notes:
        assert note.source not in seen
        assert note.parent is None or (note.parent in seen and note.kind != "goal")
        seen.add(note.source)
        assert note.status in STATUSES[note.kind]
        assert 0 < len(note.title) <= limits.TITLE_CHARS
        assert len(note.body.encode()) <= limits.BODY_BYTES
    assert all(0 < len(item.text) <= limits.ITEM_CHARS for _, item in plan.items)
    assert all(summary.of in seen for summary in plan.summaries)
    assert all(checkpoint.task is None or checkpoint.task in seen for checkpoint in plan.checkpoints)


@relaxed
@given(files=FILES, task=TASKS)
def test_importing_twice_finds_every_record_again(files, task):
    """The second plan matches the first completely."""
    first, second = read(files, task), read(files, task)
    found = match(second.notes, [Known(id, note.source, note.kind, note.digest) for id, note in enumerate(first.notes)])
    assert found.gone == ()
    assert all(found.known[note.source].digest == note.digest for note in second.notes)


@relaxed
@given(raw=st.binary(max_size=400), name=st.sampled_from(["a.md", "task.json", "x.jsonl", "journal.md"]))
def test_any_bytes_are_read_or_reported(raw, name):
    """Whatever a file holds, there is a plan; a file that is not in it is in the report."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / name).write_bytes(raw)
        plan = read_folder(folder)
    assert len(plan.files) + len(plan.lines("skipped")) == 1


@relaxed
@given(text=st.text(max_size=300))
def test_any_text_is_read(text):
    """No text makes reading fail, as a plan or as a note."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("plan.md", "notes.md", "journal.md"):
            (Path(folder) / name).write_text(text, encoding="utf-8", errors="replace", newline="")
        read_folder(folder, entities=["host"])
