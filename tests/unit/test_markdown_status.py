"""Status words count in a status position only."""

from __future__ import annotations

import pytest

from agentmem.transfer.markdown.roles import read_heading
from agentmem.transfer.markdown.status import result_of_cell, split_marker, status_of_cell, status_of_line


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("done", "done"),
        ("✅ 已完成 2026-04-17", "done"),
        ("Completed (all nine)", "done"),
        ("in progress", "active"),
        ("🚧", "active"),
        ("进行中", "active"),
        ("not started", "open"),
        ("未开始", "open"),
        ("blocked by the WAF", "open"),
        ("❌ failed", "failed"),
        ("已失败", "failed"),
        ("~~old~~ dropped", None),
        ("cancelled", "dropped"),
        ("取消", "dropped"),
        ("Tools", None),
        ("donee", None),
    ],
)
def test_a_cell_of_a_status_column_says_a_status_by_its_first_word_or_sign(text, value):
    """The value of a status column or key is read by its sign, else by the word it begins with."""
    found = status_of_cell(text)
    assert (found.value if found else None) == value


def test_blocked_and_deferred_are_open_with_a_tag():
    """What waits is open, and its tag says why it waits."""
    assert status_of_cell("blocked").tag == "blocked"
    assert status_of_cell("暂缓").tag == "deferred"
    assert status_of_cell("todo").tag is None


@pytest.mark.parametrize(
    ("heading", "bare", "value"),
    [
        ("Phase 1: Setup ✅ (已实现)", "Phase 1: Setup", "done"),
        ("Phase 2 (已完成)", "Phase 2", "done"),
        ("Phase 3 [WIP]", "Phase 3", "active"),
        ("Phase 4 — done", "Phase 4", "done"),
        ("🚧 Phase 5", "Phase 5", "active"),
        ("[DONE] Phase 6", "Phase 6", "done"),
        ("TODO: Phase 7", "Phase 7", "open"),
        ("~~Phase 8~~", "Phase 8", "dropped"),
        ("Phase 9 [已完成 2026-04-17]", "Phase 9", "done"),
        ("Step 2 — 文档 — 待做", "Step 2 — 文档", "open"),
    ],
)
def test_a_marker_at_either_end_of_a_heading_is_its_status(heading, bare, value):
    """A sign, a bracket, a word after a dash or in capitals before a colon, or strokes through the whole."""
    found, status = split_marker(heading)
    assert found == bare
    assert status.value == value


@pytest.mark.parametrize(
    "text",
    [
        "We are done with tests",
        "How completed orders are closed",
        "Retry failed jobs",
        "What is left (three of them)",
        "完成这些任务的办法",
        "Handle `status: done` in the parser (v2)",
    ],
)
def test_a_status_word_inside_a_sentence_is_no_status(text):
    """Words in running text say nothing."""
    assert split_marker(text) == (text, None)
    assert status_of_line(text) is None


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("Status: done", "done"),
        ("- **Status**: in progress", "active"),
        ("> **状态**：已完成，待发布", "done"),
        ("**状态：** 进行中", "active"),
    ],
)
def test_a_status_key_is_a_status_position(line, value):
    """A line that begins with the key status, in English or Chinese, says a status."""
    assert status_of_line(line).value == value


@pytest.mark.parametrize(
    ("cell", "result"), [("✅", "pass"), ("通过", "pass"), ("❌", "fail"), ("N/A", "na"), ("web", None)]
)
def test_a_cell_of_a_check_is_one_word_or_sign(cell, result):
    """Results are recognised whole; any other text is no result."""
    assert result_of_cell(cell) == result


@pytest.mark.parametrize(
    ("heading", "role"),
    [
        ("What failed", "failed"),
        ("已失败方案", "failed"),
        ("尝试过且失败的方案", "failed"),
        ("3. Failed approaches", "failed"),
        ("Rejected", "rejected"),
        ("Out of Scope (explicit)", "excluded"),
        ("不采纳", "rejected"),
        ("超出范围", "excluded"),
        ("Not ours to touch", "excluded"),
        ("勿动", "excluded"),
        ("Rules of engagement", "rule"),
        ("规则", "rule"),
        ("### 决定**不做**的".lstrip("# "), "rejected"),
        ("Non-goals, stated so they are not smuggled in", "rejected"),
        ("暂不做", "deferred"),
        ("Key Decisions", "decision"),
        ("设计决策（ADR-lite）", "decision"),
        ("八、一些决策说明", "decision"),
        ("Open questions", "question"),
        ("待确认", "question"),
        ("Lessons learned", "lesson"),
        ("踩坑记录", "lesson"),
        ("Watch out", "beware"),
        ("小心", "beware"),
        ("Where I stand", "standing"),
        ("目前状态", "standing"),
        ("Next Steps", "next"),
        ("下一步", "next"),
        ("已观察到的失败场景", None),
        ("It will fail immediately, and that failure is real", None),
        ("Why this matters", None),
        ("先做调研 / 决策", None),
        ("删除失败静默吞错", None),
    ],
)
def test_a_heading_says_its_role_only_as_a_whole(heading, role):
    """Numbering, brackets and signs do not matter; a word inside a longer heading does not count."""
    assert read_heading(heading).role == role


def test_a_heading_of_one_decision_names_its_topic():
    """`Decision 1: …` is one decision, not a section of decisions."""
    assert read_heading("Decision 1：commit 授权粒度").topic == "commit 授权粒度"
    assert read_heading("ADR-003: Use Postgres").topic == "Use Postgres"
