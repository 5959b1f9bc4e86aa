"""Status words, English and Chinese, and the places where one counts.

A word counts only in a status position: a cell of a status column, a marker at either end of a line or heading,
a `status:` key, front matter or task.json. "We are done with tests" is no status.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal

from attrs import frozen

from agentmem.engine.database import Database
from agentmem.records.cleaning import dropped_by
from agentmem.transfer.markdown.words import plain

__all__ = [
    "Status",
    "is_status_label",
    "is_status_word",
    "result_of_cell",
    "split_marker",
    "status_of_cell",
    "status_of_line",
]

Value = Literal["open", "active", "done", "failed", "dropped"]


@frozen
class Status:
    """A status of work, with the tag that says more (`blocked`, `deferred`) where there is one."""

    value: Value
    tag: str | None = None


_GROUPS: Final[tuple[tuple[Value, str | None, str], ...]] = (
    (
        "open",
        None,
        "todo|to do|to-do|pending|planned|planning|not started|not yet started|open|new|backlog|queued|upcoming|ready"
        "|unstarted|not done|incomplete|proposed|draft|waiting"
        "|未开始|待办|待做|待处理|待实现|待实施|待开发|待开始|待完成"
        "|计划中|规划中|未完成|未实现|待测试|待验证|待审核|草稿",
    ),
    ("open", "blocked", "blocked|stuck|on hold|on-hold|阻塞|受阻|卡住|被阻塞|已阻塞"),
    ("open", "deferred", "deferred|postponed|paused|parked|暂缓|推迟|延后|已推迟|暂停|搁置"),
    (
        "active",
        None,
        "in progress|in-progress|in_progress|inprogress|wip|doing|started|ongoing|active|working|in review|in-review"
        "|in_review|reviewing|testing|in testing|partially done|partial"
        "|进行中|开发中|处理中|实施中|测试中|审核中|实现中|正在进行|部分完成",
    ),
    (
        "done",
        None,
        "done|completed|complete|finished|closed|resolved|fixed|merged|shipped|released|deployed|implemented|landed"
        "|delivered|archived|solved|verified|已完成|完成|已实现|已解决|已修复|已合并|已发布|已上线|已关闭|已归档|已落地|已交付"
        "|已验证|已结束|已处理|全部完成",
    ),
    ("failed", None, "failed|fail|failure|did not work|didn't work|已失败|失败|未成功"),
    (
        "dropped",
        None,
        "dropped|cancelled|canceled|abandoned|wontfix|won't fix|won't do|wont do|obsolete|superseded|skipped|rejected"
        "|deprecated|discarded|withdrawn|not doing|declined"
        "|取消|已取消|放弃|已放弃|废弃|已废弃|不做|不采纳|未采纳|跳过|已跳过|作废|已作废|已否决|否决|不再需要",
    ),
)
_WORDS: Final = {word: (value, tag) for value, tag, words in _GROUPS for word in words.split("|")}
_LONGEST: Final = sorted(_WORDS, key=len, reverse=True)
_EMOJI: Final[dict[str, tuple[Value, str | None]]] = {
    "✅": ("done", None),
    "☑": ("done", None),
    "✔": ("done", None),
    "✓": ("done", None),
    "🟩": ("done", None),
    "🚧": ("active", None),
    "🔄": ("active", None),
    "🏗": ("active", None),
    "⏳": ("active", None),
    "🔜": ("open", None),
    "⬜": ("open", None),
    "☐": ("open", None),
    "🔲": ("open", None),
    "📋": ("open", None),
    "⏸": ("open", "deferred"),
    "🚫": ("dropped", None),
    "⛔": ("open", "blocked"),
    "❌": ("failed", None),
    "✗": ("failed", None),
    "✘": ("failed", None),
    "❎": ("failed", None),
}
_SIGNS: Final = "".join(_EMOJI)
_VARIATION: Final = "\ufe0f"
_LEAD_EMOJI: Final = re.compile(rf"^\s*([{_SIGNS}]){_VARIATION}?\s*")
_TAIL_EMOJI: Final = re.compile(rf"\s*([{_SIGNS}]){_VARIATION}?\s*$")
_TAIL_BRACKET: Final = re.compile(r"\s*[\[(（【]\s*([^\[\](（）)【】]{1,40}?)\s*[\])）】]\s*$")
_TAIL_DASH: Final = re.compile(r"\s+(?:—|–|-|--|:|：)\s*([^—–:：]{2,24})$")
_LEAD_BRACKET: Final = re.compile(r"^\s*[\[【]\s*([^\[\]【】]{1,24}?)\s*[\]】]\s*[:：-]?\s*")
_LEAD_CAPS: Final = re.compile(r"^\s*([A-Z][A-Z _-]{2,20}):\s+")
_LABEL: Final = re.compile(
    r"^\s*(?:[-*+>]\s+)*(?:\*\*|__)?\s*(status|state|current status|task status|状态|当前状态|任务状态|进度)\s*"
    r"(?:\*\*|__)?\s*[:：]\s*(?:\*\*|__)?\s*(.+)$",
    re.IGNORECASE,
)
_HEADERS: Final = frozenset(
    [
        "status",
        "state",
        "progress",
        "done",
        "done?",
        "completed",
        "complete",
        "result",
        "outcome",
        "状态",
        "进度",
        "进展",
        "完成情况",
        "完成",
        "是否完成",
        "当前状态",
    ]
)
_RESULTS: Final[dict[str, Literal["pass", "fail", "na", "error"]]] = {
    **dict.fromkeys(["pass", "passed", "ok", "✅", "✔", "✓", "☑", "通过", "已通过"], "pass"),
    **dict.fromkeys(["fail", "failed", "❌", "✗", "✘", "失败", "不通过", "未通过", "vulnerable"], "fail"),
    **dict.fromkeys(["n/a", "na", "not applicable", "不适用"], "na"),
    **dict.fromkeys(["error", "err", "错误", "出错"], "error"),
}
_BOUNDARY: Final = re.compile(r"[\s,.;:!?，。；：！？、()（）\[\]【】/—–-]|$")


def is_status_label(header: str) -> bool:
    """Whether a column of that name holds statuses."""
    return plain(header).casefold().strip(" :：") in _HEADERS


def is_status_word(text: str) -> bool:
    """Whether a text is a word or sign of a status, and nothing besides."""
    bare = plain(text).replace(_VARIATION, "").strip(" `.。").casefold()
    return bare in _WORDS or bare in _EMOJI


def status_of_cell(text: str) -> Status | None:
    """The status that a cell, or the value of a status key, says: by its sign, else by the words it begins with."""
    bare = plain(text).replace(_VARIATION, "").strip(" `")
    sign = _LEAD_EMOJI.match(bare)
    rest = bare[sign.end() :] if sign else bare
    word = _leading_word(rest.strip(" `[("))
    if word:
        return Status(*_WORDS[word])
    if sign:
        return Status(*_EMOJI[sign[1]])
    box = re.match(r"^\[([ xX✓✔~/-])\]", bare)
    if box:
        return Status("done" if box[1] in "xX✓✔" else "dropped" if box[1] == "-" else "open")
    tail = _TAIL_EMOJI.search(bare)
    return Status(*_EMOJI[tail[1]]) if tail else None


def status_of_line(line: str) -> Status | None:
    """The status in a line `Status: done`, `**状态**：已完成`; None for any other line."""
    match = _LABEL.match(line)
    return status_of_cell(match[2]) if match else None


def result_of_cell(text: str) -> Literal["pass", "fail", "na", "error"] | None:
    """The result of a check that a cell says with nothing but one word or sign."""
    return _RESULTS.get(plain(text).replace(_VARIATION, "").strip(" `.").casefold())


@lru_cache(maxsize=4096)
def split_marker(text: str) -> tuple[str, Status | None]:
    """A heading or line without its status marker, and the status that said: `Setup ✅ (已实现)` gives `Setup`, done.

    A marker stands at either end: a sign, a bracket that holds a status word, a word after a dash, a word in capitals
    before a colon, or the whole struck through.
    """
    line = text.strip().replace(_VARIATION, "")
    if re.fullmatch(r"~~.+~~", line):
        return plain(line), Status("dropped")
    for strip in (_strip_tail, _strip_lead):
        bare, status = strip(line)
        if status and bare:
            again, inner = strip(bare)
            return (again if inner and again else bare), status
    return text.strip(), None


def _strip_tail(line: str) -> tuple[str, Status | None]:
    sign = _TAIL_EMOJI.search(line)
    if sign:
        return line[: sign.start()].rstrip(" -—–:："), Status(*_EMOJI[sign[1]])
    for pattern in (_TAIL_BRACKET, _TAIL_DASH):
        match = pattern.search(line)
        if match:
            status = _exact(match[1])
            if status:
                return line[: match.start()].rstrip(), status
    return line, None


def _strip_lead(line: str) -> tuple[str, Status | None]:
    sign = _LEAD_EMOJI.match(line)
    if sign:
        return line[sign.end() :], Status(*_EMOJI[sign[1]])
    for pattern in (_LEAD_BRACKET, _LEAD_CAPS):
        match = pattern.match(line)
        if match:
            status = _exact(match[1])
            if status:
                return line[match.end() :], status
    return line, None


def _exact(text: str) -> Status | None:
    """A marker says a status if it is one, with no more beside it than a sign, a date or a few words after a mark."""
    bare = plain(text).strip(" `")
    sign = _LEAD_EMOJI.match(bare)
    if sign:
        bare = bare[sign.end() :]
    word = _leading_word(bare)
    if word is None:
        return Status(*_EMOJI[sign[1]]) if sign and not bare else None
    rest = bare[len(word) :].strip()
    if not rest or re.match(r"^[\d\s,.:：/年月日-]+$|^[,，;；:：—–|-]", rest):
        return Status(*_WORDS[word])
    return None


def _leading_word(text: str) -> str | None:
    folded = text.casefold().lstrip("*_ ")
    offset = 0
    for word in _LONGEST:
        if folded.startswith(word, offset):
            after = folded[len(word) : len(word) + 1]
            if _BOUNDARY.match(after) or (not word.isascii() and after.isascii()):
                return word
    return None


@dropped_by
def _forget_lines(database: Database) -> None:
    """Empties the memo of lines, whatever file they were imported into."""
    split_marker.cache_clear()
