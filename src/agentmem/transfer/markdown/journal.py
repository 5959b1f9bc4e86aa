"""Journals: one note for each session or day, and where the newest says the work stands."""

from __future__ import annotations

import re
from typing import Final

from attrs import evolve, frozen

from agentmem import limits

from .blocks import Block, Section
from .checklists import flatten
from .drafts import Drafts, Finding
from .files import Source
from .outline import Outline, Place
from .records import is_record_role
from .roles import read_heading
from .status import Status, split_marker
from .types import Dated, SourceKey
from .words import cut_bytes, is_placeholder, label_of, norm, plain, read_date

__all__ = ["Session", "find_sessions", "is_journal_name", "outline_journal"]

_NAME: Final = re.compile(
    r"^(?:.*[-_ ])?(?:journal|diary|work-?log|dev-?log|session(?:s|-log)?|log|日志|日记|工作日志)(?:[-_ ]?\d+)?$",
    re.IGNORECASE,
)
_SESSION: Final = re.compile(
    r"^(?:session|iteration|run|day|entry|turn|会话|迭代|第\s*\d+\s*(?:次|天|轮|期))\b\s*#?\s*(\d*)|^\[?20\d\d[-/.年]\d{1,2}[-/.月]\d{1,2}",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"(\d+)")


@frozen
class Session:
    """One session of a journal.

    Args:
        title: Its heading.
        start: The line of the heading.
        body: The first line after it.
        end: The line after its last.
        parts: The sections within it, whatever their level, each without those within it.
        blocks: The blocks before the first of them.
        dated: The day it names.
        number: Its number, or its place in the file where it has none.
    """

    title: str
    start: int
    body: int
    end: int
    parts: tuple[Section, ...]
    blocks: tuple[Block, ...]
    dated: Dated | None
    number: int


def is_journal_name(stem: str) -> bool:
    """Whether a file is called a journal or log."""
    return bool(_NAME.match(stem))


def find_sessions(root: Section, lines: list[str]) -> tuple[Session, ...]:
    """The sessions of a journal: from one heading "Session 3" or "2026-01-31" to the next of the same level.

    Templates put headings of a higher level inside a session, so everything up to the next session belongs to it.
    """
    flat = list(root.walk())
    heads = [n for n, section in enumerate(flat) if section.level and _SESSION.match(plain(section.title))]
    if not heads:
        return ()
    level = min(flat[n].level for n in heads)
    heads = [n for n in heads if flat[n].level == level]
    sessions = []
    for place, head in enumerate(heads):
        after = heads[place + 1] if place + 1 < len(heads) else len(flat)
        section = flat[head]
        end = flat[after].start if after < len(flat) else len(lines)
        parts = tuple(evolve(part, sections=(), end=part.own_end) for part in flat[head + 1 : after])
        dated = read_date(section.title) or _date_below(lines[section.body : min(section.own_end, section.body + 12)])
        number = _NUMBER.search(section.title)
        told = int(number[1]) if number and not read_date(section.title) else place
        sessions.append(Session(section.title, section.start, section.body, end, parts, section.blocks, dated, told))
    return tuple(sessions)


def _date_below(lines: list[str]) -> Dated | None:
    for line in lines:
        label = label_of(line)
        if label and label[0].casefold() in ("date", "日期", "时间", "when"):
            return read_date(label[1])
    return None


def outline_journal(outline: Outline, sessions: tuple[Session, ...], place: Place) -> None:
    """A fact for each session with its decisions, attempts, lessons and questions; where the newest says what is next."""
    newest = max(sessions, key=_recency)
    for session in sessions:
        title = (
            session.title
            if read_date(session.title) or not session.dated
            else f"{session.title} ({session.dated.isoformat()[:10]})"
        )
        path = (split_marker(session.title)[0],)
        draft = outline.note("fact", title, path, place.text, line=session.start, place=place, dated=session.dated)
        inside = evolve(place, text=draft.source, work=place.work or draft.source)
        outline.blocks(session.blocks, path, inside, heading=session.title)
        for part in session.parts:
            role = read_heading(split_marker(part.title)[0]).role
            if is_record_role(role) and outline.worth(part):
                outline.section(part, path, inside)
            else:
                outline.blocks(part.blocks, (*path, part.title), inside, heading=part.title)
        _boxes(outline, session, path, place, left=session is newest)
        draft.body = outline.text(session.body, session.end)
        outline.take(session.start, session.end)
        _findings(outline.drafts, outline.source, session, draft.source, place, outline.lines)


def _recency(session: Session) -> tuple[str, int]:
    return session.dated.isoformat() if session.dated else "", session.number


def _boxes(outline: Outline, session: Session, path: tuple[str, ...], place: Place, *, left: bool) -> None:
    """The boxes of a session as one step: left where the session is the newest, else overtaken by later ones."""
    blocks = [block for blocks in (session.blocks, *(part.blocks for part in session.parts)) for block in blocks]
    found = [boxed for block in blocks if block.kind == "list" for boxed in flatten(block)]
    if not found or place.work is None:
        return
    title = f"Left at {plain(session.title)}"
    step = outline.note(
        "step", title, (*path, "boxes"), place.work, line=session.start, place=place, dated=session.dated
    )
    for boxed in found[: limits.ITEMS_PER_CHECKLIST]:
        step.items.append(boxed.item)
        for start, end in boxed.lines:
            outline.take(start, end)
    if not left and not all(boxed.item.done for boxed in found):
        step.said = Status("dropped")


def _findings(drafts: Drafts, source: Source, session: Session, key: SourceKey, place: Place, lines: list[str]) -> None:
    """What a session says is next, and what it came to."""
    told: dict[str, str] = {}
    for part in session.parts:
        role = read_heading(split_marker(part.title)[0]).role
        text = "\n".join(line for line in lines[part.body : part.own_end] if not is_placeholder(line)).strip()
        name = (
            "next" if role == "next" else "summary" if norm(part.title) in ("summary", "总结", "概要", "摘要") else ""
        )
        if name and text and not _says_nothing(text):
            told[name] = "\n".join(filter(None, (told.get(name, ""), text)))
    recency = (*_recency(session), *source.recency)
    if "next" in told:
        parts = (plain(session.title), told.get("summary", ""), f"Next:\n{told['next']}")
        text = cut_bytes("\n\n".join(filter(None, parts)), limits.CHECKPOINT_BYTES)
        drafts.standings.append(Finding(text, key, place.work, session.dated, recency, "journal"))
    task = next(
        (
            label[1]
            for line in lines[session.body : session.body + 12]
            if (label := label_of(line)) and norm(label[0]) in ("task", "任务")
        ),
        "",
    )
    if task and "summary" in told:
        drafts.outcomes.append(Finding(told["summary"], key, None, session.dated, recency, plain(task)))


def _says_nothing(text: str) -> bool:
    """Whether a part holds a status line and no more: `[OK] **Completed**`."""
    return bool(
        re.fullmatch(
            r"[\s*_\[\]()-]*(?:ok)?[\s*_\[\]()✅-]*(?:completed?|done|finished|已完成|完成)?[\s*_.。]*",
            text,
            re.IGNORECASE,
        )
    )
