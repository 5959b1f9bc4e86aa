"""From the sections of one file to notes: which headings are steps, facts, decisions, attempts, questions, lessons."""

from __future__ import annotations

import re
from typing import Final

from attrs import Factory, define, frozen

from agentmem import limits
from agentmem.transfer.markdown.blocks import Block, Section
from agentmem.transfer.markdown.checklists import Boxed, flatten, flatten_plain, is_marked
from agentmem.transfer.markdown.drafts import Draft, Drafts, Finding
from agentmem.transfer.markdown.files import Source
from agentmem.transfer.markdown.records import RecordMaker, is_record_role, is_undecided
from agentmem.transfer.markdown.roles import Heading, is_excluded, read_heading
from agentmem.transfer.markdown.status import Status, split_marker, status_of_cell, status_of_line
from agentmem.transfer.markdown.tables import (
    EntityType,
    FoundEntity,
    entities_of_list,
    entities_of_table,
    row_status,
    task_columns,
    verdict_column,
)
from agentmem.transfer.markdown.tasks import priority_of
from agentmem.transfer.markdown.types import CLOSED, Dated, NoteKind, ReportLine, SourceKey
from agentmem.transfer.markdown.words import GENERIC, clean_heading, is_placeholder, norm, plain, read_date

__all__ = ["Outline", "Place", "title_and_sections"]

_FACT_CHARS: Final = 6000
_STEP_LIKE: Final = re.compile(
    r"^\s*(?:"
    r"(?:phase|step|stage|milestone|part|task|sprint|week|day|iteration|fix|batch|wave|slice|pr)"
    r"(?:\s*[#-]?\s*\d{1,3}|\s+(?-i:[A-Z]))\b"
    r"|\d{1,2}(?:\.\d{1,2})*[.)、:]?\s+\S|[A-Z]?\d{1,2}[.:)]\s"
    r"|第\s*[\d一二三四五六七八九十]+\s*(?:步|阶段|部分|期)|(?:阶段|步骤|任务|里程碑)\s*[\d一二三四五六七八九十]+)",
    re.IGNORECASE,
)
_NO_STEP: Final = re.compile(
    r"^(?:why|how|what|when|who|overview|background|context|notes?|summary|tl;?dr|risks?|rollback|references?|links?"
    r"|resources|validation|verification|dependenc|constraint|assumption|requirement|acceptance|definition"
    r"|architecture|design|technical|problem|motivation|scope|introduction|about|success|metrics?|appendix|glossary"
    r"|timeline|budget|stack|tech|findings?|research|usage|files?|changes|status|current|history|log|errors?|issues?"
    r"|背景|概述|概要|说明|风险|回滚|参考|链接|架构|问题|原因|动机|约束|依赖|方案|设计|技术|需求|验收|范围|假设|附录|简介|现状"
    r"|变更|改动|结论|成功)",
    re.IGNORECASE,
)
_HEADING: Final = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_TODO_HEADING: Final = re.compile(
    r"^(?:to[- ]?dos?|todo list|tasks?|task list|action items|work items?|待办(?:事项)?|待做|任务(?:列表|清单)?)$",
    re.IGNORECASE,
)


@frozen(kw_only=True)
class Place:
    """Where what a file yields hangs.

    Args:
        work: The goal or step above its steps, questions and decisions; None at the top.
        text: The note above its facts.
        plan: Whether its headings are steps.
        scope: The tree in which the same title means the same thing.
        goal: The draft of the goal, to be given the text of a section "Goal"; None where it has text of its own.
        in_task: Whether it lies in the folder of a task.
        boxes: The goal that takes the boxes of a journal, where it has no other.
    """

    work: SourceKey | None
    text: SourceKey | None
    plan: bool = False
    scope: str = ""
    goal: Draft | None = None
    in_task: bool = False
    boxes: SourceKey | None = None


def title_and_sections(root: Section, source: Source) -> tuple[str, tuple[Section, ...], int | None]:
    """The title of a file, its sections, and the line of its title; a lone heading of level 1 is the title."""
    tops = root.sections
    if len(tops) == 1 and tops[0].level == 1 and not any(block.boxes for block in root.blocks):
        return tops[0].title, tops[0].sections, tops[0].start
    first = tops[0] if tops else None
    if first is not None and first.level == 1 and not root.blocks and all(section.level > 1 for section in tops[1:]):
        return first.title, (*first.sections, *tops[1:]), first.start
    name = source.front.get("title", "name") or re.sub(r"[-_]+", " ", source.stem).strip() or source.stem
    return name, tops, None


@define
class Outline:
    """Makes the notes of one file; every line is taken at most once, what nothing takes stays in a body.

    `governs` says that the rules of the file are those of the work: it is a README or a plan; `ours` that what it names
    is not out of scope as a whole. `day` is when the text at
    hand was written, where a journal says so: no date in it tells that a record is newer.
    """

    source: Source
    lines: list[str]
    drafts: Drafts
    entities: tuple[EntityType, ...] = ()
    dated: Dated | None = None
    adr: str = ""
    governs: bool = False
    ours: bool = True
    day: Dated | None = None
    gone: set[int] = Factory(set)

    @property
    def offset(self) -> int:
        """How many lines of the file stand before the parsed text."""
        return self.source.front.lines

    def take(self, start: int, end: int) -> None:
        """Mark lines as kept by a record of their own."""
        self.gone.update(range(start, end))

    def heading(self, section: Section) -> Heading:
        """What the heading of a section says, its status marker aside."""
        return self.read(split_marker(section.title)[0])

    def read(self, text: str) -> Heading:
        """What a heading or label says; "Rules" speaks of the work only in a file that governs it."""
        heading = read_heading(text)
        return Heading(None) if heading.role == "rule" and not self.governs else heading

    def take_title(self, line: int | None) -> None:
        """Mark the heading that became the title of the file's note."""
        if line is not None:
            self.take(line, line + 1)

    def text(self, start: int, end: int) -> str:
        """The lines that nothing took, empty where only rules are left."""
        kept: list[str] = []
        for number in range(start, min(end, len(self.lines))):
            line = self.lines[number].rstrip()
            if number not in self.gone and (line or (kept and kept[-1])):
                kept.append(line)
        text = "\n".join(kept).strip("\n")
        bare = [line for line in kept if line and not re.match(r"^(?:-{3,}|\*{3,}|_{3,})\s*$|^=+\s*$", line)]
        return text if bare else ""

    def section_text(self, section: Section) -> str:
        """The text of a section that nothing took, after its heading where the status marker of that says a date."""
        bare = split_marker(section.title)[0]
        marker = section.title.replace(bare, "", 1)
        heading = plain(section.title) if any(char.isdigit() for char in marker) else ""
        return "\n\n".join(filter(None, (heading, self.text(section.body, section.end))))

    def note(
        self,
        kind: NoteKind,
        title: str,
        headings: tuple[str, ...],
        parent: SourceKey | None,
        *,
        line: int,
        place: Place,
        said: Status | None = None,
        dated: Dated | None = None,
    ) -> Draft:
        """A new draft with a key of its own."""
        return self.drafts.add(
            Draft(
                source=self.drafts.key(self.source.path, headings),
                kind=kind,
                title=plain(title) or self.source.name,
                parent=parent,
                said=said,
                tags=tuple(filter(None, (said.tag if said else None, priority_of(clean_heading(title))))),
                dated=dated or self._told_day(title) or self.dated,
                line=line + self.offset + 1,
                scope=place.scope,
            )
        )

    def _told_day(self, title: str) -> Dated | None:
        """The day that a title names, unless it lies ahead: a thing due then was not written then."""
        told = read_date(title)
        ahead = told is not None and self.day is not None and told.isoformat()[:10] > self.day.isoformat()[:10]
        return None if ahead else told

    def sections(self, sections: tuple[Section, ...], headings: tuple[str, ...], place: Place) -> None:
        """The notes of the sections of a file."""
        steps = place.plan and not any(self.is_step(inner, place) for top in sections for inner in top.walk())
        for section in sections:
            self.section(section, headings, place, steps=steps)

    def section(self, section: Section, headings: tuple[str, ...], place: Place, *, steps: bool = False) -> None:
        """The note of a section, by its heading and what is in it; its lines are taken."""
        heading = self.heading(section)
        path = (*headings, split_marker(section.title)[0])
        if is_record_role(heading.role) and not is_undecided(heading.role, section) and self.worth(section):
            RecordMaker(self, place).section(section, heading, path)
        elif self.is_step(section, place, steps=steps):
            self._step(section, path, place, steps=steps)
        elif not self.worth(section):
            return
        elif heading.role == "goal" and place.goal is not None and not place.goal.body:
            self.inner(section, path, place)
            place.goal.body = self.text(section.body, section.end)
        else:
            self._fact(section, heading, path, place)
        self.take(section.start, section.end)

    def worth(self, section: Section) -> bool:
        """Whether a section holds anything but headings and what a template left."""
        lines = (line for line in self.lines[section.body : section.end] if not _HEADING.match(line))
        return any(line.strip() and not is_placeholder(line) for line in lines)

    def _fact(self, section: Section, heading: Heading, path: tuple[str, ...], place: Place) -> None:
        draft = self.note("fact", section.title, path, place.text, line=section.start, place=place)
        self.inner(
            section,
            path,
            Place(work=place.work, text=draft.source, plan=place.plan, scope=place.scope, in_task=place.in_task),
        )
        draft.body = self.text(section.body, section.end)
        if not draft.body and not heading.outcome and not self.drafts.has_children(draft.source):
            self.drafts.discard(draft)
        if heading.outcome and place.work is not None:
            said = status_of_cell(heading.outcome)
            if said is not None and said.value in CLOSED:
                self.drafts.outcome_said[place.work] = (said, self.source.path)
        if heading.role in ("outcome", "standing", "next") and draft.body:
            finding = Finding(draft.body, draft.source, place.work, draft.dated, self.source.recency, section.title)
            (self.drafts.outcomes if heading.role == "outcome" else self.drafts.standings).append(finding)

    def inner(self, section: Section, path: tuple[str, ...], place: Place) -> None:
        """Take out of a section what becomes records of its own, at any depth."""
        self.blocks(section.blocks, path, place, heading=section.title)
        long = section.end - section.start > 1 and len(self.text(section.body, section.end)) > _FACT_CHARS
        for child in section.sections:
            role = self.heading(child).role
            if is_record_role(role) or self.is_step(child, place) or (long and self.worth(child)):
                self.section(child, path, place)
            else:
                self.inner(child, (*path, split_marker(child.title)[0]), place)

    def blocks(self, blocks: tuple[Block, ...], path: tuple[str, ...], place: Place, *, heading: str) -> None:
        """Take entities, labelled records and rejected proposals out of blocks."""
        records = RecordMaker(self, place)
        ours = self.ours and not any(map(is_excluded, (heading, *path)))
        label = ""
        for index, block in enumerate(blocks):
            if block.kind == "paragraph":
                label = block.text if block.text.rstrip(" *_").endswith((":", "：")) else ""
                if block.start not in self.gone:
                    records.labelled(block, blocks[index + 1 :], path)
                continue
            if block.kind in ("table", "list") and ours and not is_excluded(label):
                self._entities(block, path, heading)
            if block.kind == "table" and verdict_column(block):
                records.verdicts(block, path)

    def _entities(self, block: Block, path: tuple[str, ...], heading: str) -> None:
        """The entities of a table or list; its text stays where it is, whatever types are asked for."""
        for kind in self.entities:
            source = SourceKey(self.source.path, tuple(clean_heading(plain(part)) for part in path))
            found: tuple[FoundEntity, ...] = ()
            if block.kind == "table":
                found = entities_of_table(block, kind, heading, source)
            elif kind.heads(heading):
                found = entities_of_list(block, kind, source)
            if found:
                self.drafts.entities.extend((self.source.recency, *one) for one in found)
                return

    def is_step(self, section: Section, place: Place, *, steps: bool = False) -> bool:
        """Whether a section is work of its own: by its boxes, its table of tasks, or in a plan by its heading."""
        role = self.heading(section).role
        if is_record_role(role) and not is_undecided(role, section):
            return False
        own = self.has_work(section, place)
        if own or not place.plan or not self.worth_heading(section):
            return own
        title, marker = split_marker(section.title)
        if marker or _STEP_LIKE.match(plain(title)):
            return not _NO_STEP.match(clean_heading(title))
        if role is not None or _NO_STEP.match(clean_heading(title)):
            return False
        return steps or any(self.is_step(child, place) for child in section.sections)

    def has_work(self, section: Section, place: Place) -> bool:
        """Whether the own blocks of a section hold boxes, a table of tasks, or in a plan a list of things to do."""
        if any(boxed for block in section.blocks if block.kind == "list" for boxed in flatten(block)):
            return not any(kind.heads(section.title) for kind in self.entities)
        if any(task_columns(block) for block in section.blocks if block.kind == "table") and (
            place.plan or place.in_task
        ):
            return True
        if not place.plan:
            return False
        todo = _is_todo(section)
        lists = [block for block in section.blocks if block.kind == "list"]
        return any(is_marked(block) or (todo and any(flatten_plain(block, lambda item: False))) for block in lists)

    def worth_heading(self, section: Section) -> bool:
        """Whether a heading names anything."""
        return not is_placeholder(section.title)

    def _step(self, section: Section, path: tuple[str, ...], place: Place, *, steps: bool) -> None:
        title, marker = split_marker(section.title)
        if len(path) > 1 and norm(title) in GENERIC:
            title = f"{path[-2]}: {title}"
        draft = self.note("step", title, path, place.work, line=section.start, place=place, said=marker)
        beneath = Place(work=draft.source, text=draft.source, plan=place.plan, scope=place.scope, in_task=place.in_task)
        self.work(section.blocks, draft, path, beneath, todo=_is_todo(section))
        self.blocks(section.blocks, path, beneath, heading=section.title)
        for child in section.sections:
            child_path = (*path, split_marker(child.title)[0])
            role = self.heading(child).role
            if is_record_role(role) or self.is_step(child, beneath):
                self.section(child, path, beneath)
            else:
                self.inner(child, child_path, beneath)
        draft.body = self.section_text(section)

    def work(
        self, blocks: tuple[Block, ...], draft: Draft, path: tuple[str, ...], place: Place, *, todo: bool = False
    ) -> None:
        """Give a step or goal its boxes, the steps of its tables, and the status its text states."""
        for block in blocks:
            if block.kind == "list":
                RecordMaker(self, place).struck(block, path)
            if block.kind == "list" and block.boxes:
                self._add_boxes(draft, list(flatten(block)))
            elif block.kind == "list" and place.plan and is_marked(block):
                self._marked(block, draft, path, place)
            elif block.kind == "list" and todo and place.plan:
                self._add_boxes(draft, list(flatten_plain(block, lambda item: False)))
            elif block.kind == "table" and task_columns(block):
                self._rows(block, path, place)
            elif block.kind in ("paragraph", "list", "other") and draft.said is None:
                draft.said = next(filter(None, map(status_of_line, block.text.split("\n"))), None)

    def _add_boxes(self, draft: Draft, found: list[Boxed]) -> None:
        room = limits.ITEMS_PER_CHECKLIST - len(draft.items)
        for boxed in found[:room]:
            draft.items.append(boxed.item)
            for start, end in boxed.lines:
                self.take(start, end)
        if len(found) > room:
            told = f"{len(found) - room} boxes beyond {limits.ITEMS_PER_CHECKLIST} of one list stay in the text"
            self.drafts.report.append(ReportLine("cut", told, self.source.path))

    def _marked(self, block: Block, draft: Draft, path: tuple[str, ...], place: Place) -> None:
        """A list whose items all carry a marker: boxes where it tells done from open, steps where it tells more."""
        values = {status.value for item in block.items if (status := split_marker(item.text)[1])}
        if values <= {"done", "open"}:
            marked = flatten_plain(block, lambda item: (split_marker(item.text)[1] or Status("open")).value == "done")
            self._add_boxes(draft, list(marked))
            return
        for item in block.items:
            title, status = split_marker(item.text)
            step = self.note("step", title, (*path, title), place.work, line=item.start, place=place, said=status)
            step.body = "\n".join(self.lines[item.start + 1 : item.end])
            self.take(item.start, item.end)

    def _rows(self, block: Block, path: tuple[str, ...], place: Place) -> None:
        columns = task_columns(block)
        if columns is None:
            return
        for row in block.rows:
            title = row.cells[columns.title] if columns.title < len(row.cells) else ""
            if is_placeholder(title) or norm(title) in self.drafts.tasks:
                continue
            said = row_status(row, columns)
            step = self.note(
                "step", split_marker(title)[0], (*path, title), place.work, line=row.line, place=place, said=said
            )
            cells = zip(block.header, row.cells, strict=False)
            step.body = "\n".join(
                f"{header}: {cell}" for n, (header, cell) in enumerate(cells) if n != columns.title and cell
            )
            self.take(row.line, row.line + 1)
        if all(row.line in self.gone for row in block.rows):
            self.take(block.start, block.start + 2)


def _is_todo(section: Section) -> bool:
    return bool(_TODO_HEADING.match(clean_heading(split_marker(section.title)[0])))
