"""Small readings of text: plain titles, first sentences, dates, template placeholders, reasons."""

from __future__ import annotations

import datetime as dt
import re
from functools import lru_cache
from typing import Final

from agentmem import limits
from agentmem.transfer.markdown.types import Dated

__all__ = [
    "GENERIC",
    "clean_heading",
    "cut_bytes",
    "cut_title",
    "first_sentence",
    "is_placeholder",
    "label_of",
    "lead",
    "norm",
    "one_line",
    "plain",
    "read_date",
    "slug",
    "split_bytes",
    "split_reason",
]

GENERIC: Final = frozenset(
    name.replace(" ", "")
    for line in (
        "acceptance criteria|requirements|definition of done|tasks|todo|checklist|steps|plan|implementation plan",
        "summary|validation|verification|testing|tests|documentation|docs|scope|next steps|must have|nice to have",
        "acceptance|done|next|deliverables|execution steps",
        "验收标准|验收|需求|任务|待办|测试|文档|执行清单|步骤|执行步骤|实施步骤|完成|下一步|交付物|必须包含|验证|检查点",
    )
    for name in line.split("|")
)
"""Headings, as `norm` gives them, that name a part of a task and not a thing."""
_LONG: Final = 4000
_LINK: Final = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*(?:\s+\"[^\"]*\")?\)")
_EMPHASIS: Final = re.compile(r"(\*\*|__|~~)(?=\S)(.+?)(?<=\S)\1")
_STAR: Final = re.compile(r"(?<![\w*])\*(?=[^\s*])([^*\n]+?)(?<=[^\s*])\*(?![\w*])")
_NUMBERING: Final = re.compile(
    r"^\s*(?:[A-Z]\d{1,2}[.:：)]\s+|[（(]?\d{1,3}(?:\.\d{1,3})*[)）.、]\s*|\d{1,3}(?:\.\d{1,3})+\s+|[一二三四五六七八九十]{1,3}[、.．]\s*|§\s*\d*\s*)"
)
_DATE: Final = re.compile(
    r"(?<!\d)(20\d\d)(?:-|/|\.|年)(\d{1,2})(?:-|/|\.|月)(\d{1,2})日?(?!\d)"
    r"(?:[T\s]+(\d{1,2}):(\d{2})(?::(\d{2})(?:\.\d+)?)?\s*(Z|UTC|[+-]\d{2}:?\d{2})?)?"
)
_PLACEHOLDER: Final = re.compile(
    r"^[\s>*+#-]*(?:\[(?:ok|x| |-)\]\s*)?[\s*_(\[（<{]*(?:"
    r"tbd|tba|todo|n/?a|none|nil|\.{2,}|…+|-+|_+|—+|fill\s+(?:me\s+)?in|placeholder"
    r"|to be (?:filled(?: in)?|defined|decided|written)"
    r"|add (?:details|summary|test results|description|notes|content|your .{1,30}|a .{1,30}|here)|your \w+(?: here)?"
    r"|see git log|none\s*[-–—:]\s*task complete|nothing(?: left| to do)?|no next steps?"
    r"|describe .{1,40}|brief .{1,20} description|what .{0,20}goes here"
    r"|待补充|待填写|待定|待补|暂无|无|未填写|填写.{0,10}"
    r")[\s*_)\]）>}.。!！]*$",
    re.IGNORECASE,
)
_ANGLE: Final = re.compile(r"^[\s>*+-]*(?:\[[ x]\]\s*)?`?<[a-z][a-z0-9 _./-]{0,40}>`?[.:]?$", re.IGNORECASE)
_SENTENCE: Final = re.compile(r"(?<=[.!?])\s+(?=[\w`*\"'([])|(?<=[。！？；])")
_ABBREVIATION: Final = re.compile(
    r"(?:\b(?:e\.g|i\.e|etc|vs|cf|approx|no|fig|al|st|dr|mr)|\b[A-Z]|\b\d+)\.$", re.IGNORECASE
)
_REASON: Final = re.compile(
    r"(?:\s+|(?<=[）)\u4e00-\u9fff]))(?:—|–)\s+|\s+--\s+|——|(?<=[^\s/\d]):\s+|：|\s+(?=because\b)|(?:，|,)?\s*(?=因为|由于|原因[是：:])|\s+-\s+",
    re.IGNORECASE,
)
_TRAILING_PAREN: Final = re.compile(r"^(?P<head>.{2,}?)\s*[（(](?P<reason>[^（()）]{2,})[)）][.。]?$", re.DOTALL)
_LABEL: Final = re.compile(r"^\s*(?:[-*+]\s+)?(?:\*\*|__)(.{1,60}?)(?:\*\*|__)\s*(?:[:：]|(?<=[:：])|$)\s*")
_ARROW: Final = re.compile(r"\s+(?:→|->|=>)\s+")
_ENCLOSED: Final = re.compile(r"`[^`]*`|\([^()]*\)|（[^（）]*）|“[^”]*”|\"[^\"]*\"")
_DANGLING: Final = re.compile(r"\b(?:for|of|to|in|with|on|by|from|like|e\.g\.?)\s*$", re.IGNORECASE)
_NO_REASON: Final = re.compile(
    r"^(?:e\.g|i\.e|see\b|such as|如|例如|比如|见|\S{1,24}$(?<![\u4e00-\u9fff]))", re.IGNORECASE
)


@lru_cache(maxsize=1024)
def plain(text: str) -> str:
    """The text without emphasis, strike-through and link targets, on one line; a very long one only on one line.

    Unpaired marks make the search for their partner quadratic, so a text that no title can hold is left as it is.
    """
    if len(text) > _LONG:
        return one_line(text)
    for _ in range(3):
        text = _EMPHASIS.sub(r"\2", text)
    return one_line(_STAR.sub(r"\1", _LINK.sub(r"\1", text)))


def one_line(text: str) -> str:
    """The text with every run of white space as one space."""
    return " ".join(text.split())


def norm(text: str) -> str:
    """What is left of a title for comparing: letters and digits, case folded."""
    return "".join(char for char in plain(text).casefold() if char.isalnum())


def slug(text: str, size: int = limits.TOKEN_CHARS) -> str:
    """The text as a token: lower case letters, digits, `_` and `-`."""
    return re.sub(r"[^\w]+", "-", plain(text).casefold()).strip("-_")[:size].strip("-_")


def clean_heading(text: str) -> str:
    """A heading without the numbering before it."""
    bare = _NUMBERING.sub("", plain(text)).strip()
    return bare or plain(text)


def cut_title(text: str) -> tuple[str, bool]:
    """The text as a title on one line, and whether it had to be cut."""
    title = one_line(text)
    if len(title) <= limits.TITLE_CHARS:
        return title, False
    return title[: limits.TITLE_CHARS - 1].rstrip() + "…", True


def cut_bytes(text: str, size: int) -> str:
    """The text cut to `size` bytes of UTF-8 at a character, ending in `…` where it was cut."""
    raw = text.encode("utf-8")
    return text if len(raw) <= size else raw[: size - 3].decode("utf-8", "ignore") + "…"


def split_bytes(text: str, size: int) -> list[str]:
    """The text in parts of at most `size` bytes, cut at headings, else at lines, else at characters."""
    parts: list[str] = []
    current: list[str] = []
    used = 0
    for whole in text.split("\n"):
        line = whole
        cost = len(line.encode("utf-8")) + 1
        at_heading = line.startswith("#") and used > size // 2
        if current and (used + cost > size or at_heading):
            parts.append("\n".join(current))
            current, used = [], 0
        while cost > size:
            head = line.encode("utf-8")[:size].decode("utf-8", "ignore")
            parts.append(head)
            line = line[len(head) :]
            cost = len(line.encode("utf-8")) + 1
        current.append(line)
        used += cost
    return [*parts, "\n".join(current)]


def first_sentence(text: str, size: int = 160) -> str:
    """The first sentence of a text, plain and on one line, cut at a word near `size` characters."""
    line = plain(text)
    end = _sentence_end(line)
    sentence = line[:end].strip() if end else line
    if len(sentence) <= size:
        return sentence
    cut = sentence[:size]
    space = cut.rfind(" ")
    return (cut[:space] if space > size // 2 else cut).rstrip(" ,;:，、；：") + "…"


def lead(text: str, size: int = 200) -> str:
    """The whole sentences at the start of a text that fit `size` characters, plain and on one line.

    A first sentence that is longer is taken whole up to twice the size, and cut at a word near the size beyond that.
    """
    line = plain(text)
    end = 0
    while (step := _sentence_end(line[end:])) and end + step <= size:
        end += step + (len(line) - end - step - len(line[end + step :].lstrip()))
    if len(line) <= size:
        return line
    if end:
        return line[:end].strip()
    first = _sentence_end(line) or len(line)
    return line[:first].strip() if first <= 2 * size else first_sentence(line, size)


def _sentence_end(line: str) -> int:
    """Where the first sentence of a line ends, zero where the line is one sentence."""
    for match in _SENTENCE.finditer(line):
        if not _ABBREVIATION.search(line[max(0, match.start() - 12) : match.start()].rstrip()):
            return match.start()
    return 0


def is_placeholder(text: str) -> bool:
    """Whether a text is what a template left to be filled in: `TBD`, `(Add details)`, `-`, `<path>`, nothing."""
    line = text.strip()
    return not line or (len(line) < 80 and bool(_PLACEHOLDER.match(line) or _ANGLE.match(line)))


def label_of(text: str) -> tuple[str, str] | None:
    """A bold label at the start and what follows it, or None: `**Decision**: use X` gives both."""
    match = _LABEL.match(text)
    return (match[1].strip(" :："), text[match.end() :].strip()) if match else None


def split_reason(text: str, *, arrows: bool = False) -> tuple[str, str]:
    """An item as what it names and the reason given for it; the reason is empty where none is given.

    An arrow leads to a reason only where the text tells of an attempt and its result.
    """
    line = plain(text)
    if len(line) > _LONG:
        return line, ""
    if arrows:
        line = _ARROW.sub(" — ", line, count=1)
    masked = _ENCLOSED.sub(lambda match: "\x01" * len(match[0]), line)
    sentence = _sentence_end(masked)
    for match in _REASON.finditer(masked):
        if match.start() < 2 or (match[0].strip() in (":", "：") and _DANGLING.search(masked[: match.start()])):
            continue
        if sentence and match.start() > sentence:
            break
        if masked[match.end() :].strip():
            return line[: match.start()].strip(), line[match.end() :].strip()
    if sentence and masked[sentence:].strip():
        return line[:sentence].strip(), line[sentence:].strip()
    paren = _TRAILING_PAREN.match(line)
    if paren and not _NO_REASON.match(paren["reason"]):
        return paren["head"].strip(), paren["reason"].strip()
    return line, ""


def read_date(text: str) -> Dated | None:
    """The first date in a text: a day, or a time in UTC where the text gives one; without a zone it counts as UTC."""
    for match in _DATE.finditer(text):
        try:
            day = dt.date(int(match[1]), int(match[2]), int(match[3]))
            if match[4] is None:
                return day
            return _moment(day, match)
        except ValueError:
            continue
    return None


def _moment(day: dt.date, match: re.Match[str]) -> dt.datetime:
    moment = dt.datetime(day.year, day.month, day.day, int(match[4]), int(match[5]), int(match[6] or 0), tzinfo=dt.UTC)
    zone = match[7]
    if zone and zone[0] in "+-":
        sign = 1 if zone[0] == "+" else -1
        digits = zone[1:].replace(":", "")
        moment -= sign * dt.timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return moment
