"""Journals: one note for each session or day, the boxes they tick, and where the newest says the work stands."""

from __future__ import annotations

import re
from typing import Final, Literal

from attrs import evolve, frozen

from agentmem import limits
from agentmem.transfer.markdown.blocks import Block, Section
from agentmem.transfer.markdown.checklists import names_of
from agentmem.transfer.markdown.drafts import Draft, Finding, Mention
from agentmem.transfer.markdown.files import Recency, Source, is_journal_folder, recency
from agentmem.transfer.markdown.outline import Outline, Place
from agentmem.transfer.markdown.records import is_record_role
from agentmem.transfer.markdown.status import split_marker
from agentmem.transfer.markdown.types import Dated, SourceKey
from agentmem.transfer.markdown.words import is_placeholder, label_of, norm, plain, read_date

__all__ = ["Session", "find_sessions", "outline_journal"]

_NAME: Final = re.compile(
    r"^(?:.*[-_ ])?(?:journal|diary|work-?log|dev-?log|session(?:s|-log)?|log|日志|日记|工作日志)(?:[-_ ]?\d+)?$",
    re.IGNORECASE,
)
_DAY_NAME: Final = re.compile(r"^20\d\d[-_]?\d\d[-_]?\d\d(?:\D|$)")
_SESSION: Final = re.compile(
    r"^(?:session|iteration|run|day|entry|turn|会话|迭代|第\s*\d+\s*(?:次|天|轮|期))\b\s*#?\s*\d*"
    r"|^\[?20\d\d[-/.年]\d{1,2}[-/.月]\d{1,2}",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"(\d+)")
_SUMMARY: Final = frozenset({"summary", "总结", "概要", "摘要"})
_TASK_LABELS: Final = frozenset({"task", "任务"})
_NOTHING: Final = re.compile(
    r"[\s*_\[\]()-]*(?:ok)?[\s*_\[\]()✅-]*(?:completed?|done|finished|已完成|完成)?[\s*_.。]*", re.IGNORECASE
)


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
        whole: Whether the file is this one session.
    """

    title: str
    start: int
    body: int
    end: int
    parts: tuple[Section, ...]
    blocks: tuple[Block, ...]
    dated: Dated | None
    number: int
    whole: bool = False


def find_sessions(source: Source, root: Section, lines: list[str]) -> tuple[Session, ...]:
    """The sessions of a journal, empty where the file is none.

    A journal is called one, or lies in a folder of journals, or has several headings "Session 3" or "2026-01-31".
    A file for one day is one session. Templates put headings of a higher level inside a session, so everything up
    to the next session of the same level belongs to it.
    """
    flat = list(root.walk())
    heads = [n for n, section in enumerate(flat) if section.level and _SESSION.match(plain(section.title))]
    top = root.sections[0] if root.sections and root.sections[0].level == 1 else None
    dated = bool(_DAY_NAME.match(source.stem)) or (top is not None and bool(_SESSION.match(plain(top.title))))
    within = [n for n in heads if flat[n] is not top]
    named = bool(_NAME.match(source.stem)) or is_journal_folder(source.folder)
    if not (named and within) and (dated or (named and not source.name.casefold().startswith("index"))):
        return (_whole(source, flat, lines, top),)
    if not named and len(within) < 2:
        return ()
    level = min(flat[n].level for n in within)
    heads = [n for n in within if flat[n].level == level]
    sessions = []
    for place, head in enumerate(heads):
        after = heads[place + 1] if place + 1 < len(heads) else len(flat)
        section = flat[head]
        end = flat[after].start if after < len(flat) else len(lines)
        parts = tuple(evolve(part, sections=(), end=part.own_end) for part in flat[head + 1 : after])
        day = read_date(section.title) or _date_below(lines[section.body : min(section.own_end, section.body + 12)])
        number = _NUMBER.search(section.title)
        told = int(number[1][:9]) if number and not _DAY_NAME.match(plain(section.title).lstrip("[")) else place
        sessions.append(Session(section.title, section.start, section.body, end, parts, section.blocks, day, told))
    return tuple(sessions)


def _whole(source: Source, flat: list[Section], lines: list[str], top: Section | None) -> Session:
    title = top.title if top is not None else source.front.get("title") or source.stem
    parts = tuple(evolve(part, sections=(), end=part.own_end) for part in flat if part.level and part is not top)
    blocks = (*flat[0].blocks, *(top.blocks if top is not None else ()))
    dated = source.dated or read_date(title)
    start = top.start if top is not None else 0
    return Session(title, start, top.body if top else 0, len(lines), parts, blocks, dated, 0, whole=True)


def _date_below(lines: list[str]) -> Dated | None:
    for line in lines:
        label = label_of(line)
        if label and norm(label[0]) in ("date", "日期", "时间", "when"):
            return read_date(label[1])
    return None


def outline_journal(outline: Outline, sessions: tuple[Session, ...], place: Place, *, front: str = "") -> None:
    """A fact for each session, beneath it or its task the decisions, attempts, lessons and questions it tells of."""
    for session in sessions:
        task = _task_of(session, outline)
        title = session.title
        if session.dated and not read_date(title):
            title = f"{title} ({session.dated.isoformat()[:10]})"
        path = () if session.whole else (split_marker(session.title)[0],)
        draft = outline.note("fact", title, path, place.text, line=session.start, place=place, dated=session.dated)
        work = task.source if task else place.work or draft.source
        inside = evolve(place, text=draft.source, work=work, plan=False, in_task=False)
        outline.dated = outline.day = session.dated
        _mentions(outline, session, place, task)
        outline.blocks(session.blocks, path, inside, heading=session.title)
        for number, part in enumerate(session.parts):
            if part.start in outline.gone:
                continue
            whole = _with_deeper(session.parts, number)
            if is_record_role(outline.heading(part).role) and not part.boxes and outline.worth(whole):
                outline.section(whole, path, inside)
            else:
                outline.blocks(part.blocks, (*path, part.title), inside, heading=part.title)
        outline.take(session.start, session.body)
        text = outline.text(0 if session.whole else session.body, session.end)
        draft.body = "\n\n".join(filter(None, (front.strip(), text)))
        outline.take(session.start, session.end)
        _findings(outline, session, draft, task.source if task else place.work)


def _with_deeper(parts: tuple[Section, ...], number: int) -> Section:
    """A part with the deeper parts after it inside, one level of them, as the section it is."""
    part = parts[number]
    after = number + 1
    while after < len(parts) and parts[after].level > part.level:
        after += 1
    inside = parts[number + 1 : after]
    return evolve(part, sections=inside, end=inside[-1].end) if inside else part


def _task_of(session: Session, outline: Outline) -> Draft | None:
    """The task that a line `**Task**: name` of a session names, where the import has it."""
    for line in outline.lines[session.body : min(session.end, session.body + 12)]:
        label = label_of(line)
        if label and norm(label[0]) in _TASK_LABELS:
            name = label[1].strip(" `").rstrip("/").rpartition("/")[2]
            return outline.drafts.tasks.get(norm(name)) or outline.drafts.tasks.get(norm(label[1]))
    return None


def _mentions(outline: Outline, session: Session, place: Place, task: Draft | None) -> None:
    """Every box of a session, as a statement of that day about the thing it names."""
    blocks = [block for blocks in (session.blocks, *(part.blocks for part in session.parts)) for block in blocks]
    for block in blocks:
        for item in (inner for top in block.items for inner in top.walk()):
            if item.done is None or is_placeholder(item.text):
                continue
            state: Literal["done", "open", "dropped"] = "done" if item.done else "open"
            if item.dropped:
                state = "dropped"
            outline.drafts.mentions.append(
                Mention(
                    names=names_of(item.text, item.head),
                    text=item.bare[: limits.ITEM_CHARS],
                    state=state,
                    recency=_recency(outline, session, item.start),
                    path=outline.source.path,
                    work=task.source if task else place.work or place.boxes,
                    title=outline.source.folder.rpartition("/")[2] or outline.source.stem,
                )
            )


def _findings(outline: Outline, session: Session, draft: Draft, task: SourceKey | None) -> None:
    """What a session says of where it stands, of dangers, of what is next; one that says nothing overtakes older ones."""
    told: dict[str, list[str]] = {"standing": [], "beware": [], "next": [], "summary": []}
    for number, part in enumerate(session.parts):
        role = outline.heading(part).role
        name = "summary" if norm(part.title) in _SUMMARY else role if role in told else ""
        end = _with_deeper(session.parts, number).end if name == "beware" else part.own_end
        kept = (line for line in outline.lines[part.body : end] if not is_placeholder(line))
        text = "\n".join(kept).strip()
        if name and text and not _NOTHING.fullmatch(text):
            told[name].append(text if name == "summary" else f"{plain(part.title)}:\n{text}")
    stands = "\n\n".join(told["standing"] or told["summary"])
    if any(told.values()):
        stands = "\n\n".join(filter(None, (plain(session.title), stands)))
    when = _recency(outline, session, session.start)
    outline.drafts.standings.append(
        Finding(
            stands,
            draft.source,
            task,
            session.dated,
            when,
            "journal",
            beware="\n\n".join(told["beware"]),
            next="\n\n".join(told["next"]),
        )
    )
    if told["summary"] and task is not None:
        summary = "\n\n".join(told["summary"])
        outline.drafts.outcomes.append(Finding(summary, draft.source, task, session.dated, when, "journal"))


def _recency(outline: Outline, session: Session, line: int) -> Recency:
    """Of one day, a later session is newer, and a journal newer than any other file."""
    return recency(session.dated, outline.source.mtime, session.number + 1, outline.source.path, line)
