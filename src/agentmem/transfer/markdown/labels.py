"""Labels inside the text of a record: "Decision:", "Why:", "Outcome:", and what an item says beside its title."""

from __future__ import annotations

import re
from typing import Final

from attrs import frozen

from agentmem.transfer.markdown.blocks import Item
from agentmem.transfer.markdown.status import is_status_word, status_of_cell
from agentmem.transfer.markdown.words import label_of, norm, plain

__all__ = [
    "ASKS_WHY",
    "Labels",
    "asks_nothing",
    "is_answered",
    "is_label_only",
    "is_reason_label",
    "outcome_of_word",
    "read_labels",
    "reason_in",
    "says_all",
    "split_inline",
    "untold",
]

ASKS_WHY: Final = re.compile(r"^(?:why (?:we |i )?|为什么要?|为何)\s*(?=\S)", re.IGNORECASE)
_ANSWERED: Final = re.compile(
    r"^\W*(?:resolved|answered|decided|settled|closed|done|已解决|已确认|已定|已决定|已回答|✅|☑|✔)", re.IGNORECASE
)
_ANSWER_INSIDE: Final = re.compile(
    r"[?？]\W{0,3}(?:→|->|=>)\s|\b(?:answer|resolution)\s*[:：]|\b(?:answered|resolved|decided)\b"
    r"|(?:答|回答|结论|已定|已确认|已回答|已解决)\s*[:：]",
    re.IGNORECASE,
)
_NO_QUESTION: Final = re.compile(
    r"^(?:none|no (?:open|further|remaining)\b|nothing\b|(?:当前|目前)?(?:暂)?(?:无|没有))", re.IGNORECASE
)
_DECISIONS: Final = frozenset({"decision", "chosen", "we decided", "决定", "决策", "结论", "选择"})
_REASONS: Final = frozenset(
    [
        "reason",
        "reasons",
        "why",
        "rationale",
        "because",
        "context",
        "cause",
        "root cause",
        "why it failed",
        "why failed",
        "原因",
        "理由",
        "依据",
        "背景",
        "为什么",
        "失败原因",
        "根因",
        "为何失败",
    ]
)
_OUTCOMES: Final = frozenset({"outcome", "result", "status", "结果", "状态", "结局"})
_LABELLED: Final = re.compile(
    r"^\s*(?:[-*+>]\s+)*(?:\*\*|__)?([^*_:：\n]{1,40}?)(?:\*\*|__)?\s*[:：]\s*(?:\*\*|__)?\s*(.*)$", re.DOTALL
)
_LIST_MARK: Final = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+")
_UNCLEAR: Final = re.compile(r"^\W*(?:unclear|unknown|inconclusive|mixed|不明|未知|不确定|不清楚)", re.IGNORECASE)
_WORKED: Final = re.compile(r"^\W*(?:worked|works|success|successful|succeeded|成功|有效|可行)", re.IGNORECASE)
_OUTCOME_WORD: Final = re.compile(rf"(?:{_UNCLEAR.pattern}|{_WORKED.pattern})\W*", re.IGNORECASE)


@frozen
class Labels:
    """What the labels of a text say; empty where it has no such label."""

    decided: str = ""
    why: str = ""
    outcome: str = ""


def read_labels(lines: list[str]) -> Labels:
    """The decision, the reason and the outcome that labels in a text give, each with the lines that go on from it."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines):
        match = _LABELLED.match(line)
        if not match:
            continue
        label = match[1].strip().casefold()
        name = "decided" if label in _DECISIONS else "why" if label in _REASONS else ""
        name = name or ("outcome" if label in _OUTCOMES else "")
        if name and name not in found:
            follows = _following(lines[number + 1 :], started=bool(match[2].strip()))
            found[name] = plain(" ".join([match[2].strip(), *follows]))
    return Labels(**found)


def _following(lines: list[str], *, started: bool) -> list[str]:
    """The lines that go on from a label: to the next blank line, label, heading, table or item."""
    found: list[str] = []
    for line in lines:
        in_list = _LIST_MARK.match(line)
        if not line.strip() and not found and not started:
            continue
        if not line.strip() or label_of(line) or _is_known(line) or line.startswith(("#", "|", "```")):
            break
        if in_list and (found or started):
            break
        found.append(line[in_list.end() :].strip() if in_list else line.strip())
    return found


def _is_known(line: str) -> bool:
    match = _LABELLED.match(line)
    return match is not None and match[1].strip().casefold() in _DECISIONS | _REASONS | _OUTCOMES


def outcome_of_word(text: str) -> str | None:
    """The outcome of an attempt that a word says: `worked`, `failed`, `unclear`; None for any other text."""
    bare = plain(text)
    if _UNCLEAR.match(bare):
        return "unclear"
    if _WORKED.match(bare):
        return "worked"
    status = status_of_cell(bare)
    if status is None:
        return None
    return "worked" if status.value == "done" else "failed" if status.value in ("failed", "dropped") else None


def untold(text: str, title: str, status: str, why: str) -> str:
    """The text of an attempt without the labels whose value its title, status or reason says already."""
    lines = text.split("\n")
    kept: list[str] = []
    number = 0
    while number < len(lines):
        match = _LABELLED.match(lines[number])
        after = number + 1
        if match:
            follows = _following(lines[after:], started=bool(match[2].strip()))
            for _ in follows:
                while not lines[after].strip():
                    after += 1
                after += 1
            label, value = match[1].strip().casefold(), plain(" ".join([match[2].strip(), *follows]))
            if _is_told(label, value, title, status, why):
                number = after
                continue
        kept += lines[number : number + 1]
        number += 1
    return "\n".join(kept).strip("\n") if any(char.isalnum() for line in kept for char in line) else ""


def _is_told(label: str, value: str, title: str, status: str, why: str) -> bool:
    if label in _OUTCOMES:
        return outcome_of_word(value) == status and (is_status_word(value) or bool(_OUTCOME_WORD.fullmatch(value)))
    # A label that is a word of its own, such as the name of a column, says something beside the reason after it.
    return bool(norm(value)) and norm(value) == norm(why if label in _REASONS else title)


def is_reason_label(text: str) -> bool:
    """Whether a label or column header stands before a reason."""
    return plain(text).strip(" :：").casefold() in _REASONS


def is_label_only(text: str) -> bool:
    """Whether a text is a bold label and nothing else."""
    label = label_of(text)
    return label is not None and not label[1]


def reason_in(text: str) -> str:
    """What a text `Why: …` gives as a reason, empty for any other."""
    match = _LABELLED.match(text)
    return plain(match[2]) if match and match[1].strip().casefold() in _REASONS else ""


def is_answered(item: Item) -> bool:
    """Whether an item of open questions says that it was answered."""
    inside = any(_ANSWERED.match(inner.text) or _ANSWER_INSIDE.search(inner.text) for inner in item.walk())
    return inside or bool(re.match(r"^[\W_]*[(（\[]?\s*(?:resolved|answered|已解决)", item.text, re.IGNORECASE))


def asks_nothing(text: str) -> bool:
    """Whether an item of open questions says that there is none."""
    return bool(_NO_QUESTION.match(text))


def says_all(whole: str, title: str, why: str) -> bool:
    """Whether a title and a reason together say all of an item."""
    left = whole
    for part in (title, why):
        left = left.replace(part, "", 1) if part else left
    return not any(char.isalnum() for char in left)


def split_inline(text: str) -> list[str]:
    """Things named in one sentence, `a (x), b (y)` or `a（x）、b（y）`; commas in brackets and code do not split."""
    parts, depth, code, start = [], 0, False, 0
    for index, char in enumerate(text):
        code = not code if char == "`" else code
        depth += (char in "(（[") - (char in ")）]")
        if not code and depth == 0 and (char in "、；;" or (char == "," and text[index + 1 : index + 2] == " ")):
            parts.append(text[start:index])
            start = index + 1
    return [part.strip(" 。.") for part in [*parts, text[start:]] if part.strip(" 。.")]
