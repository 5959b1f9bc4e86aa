"""The files of a folder as notes: those of a task, and those that belong to none."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Final

from attrs import Factory, define, evolve, frozen

from agentmem import limits
from agentmem.transfer.markdown.blocks import Block, Section, parse
from agentmem.transfer.markdown.drafts import Draft, Drafts
from agentmem.transfer.markdown.files import DATE_KEYS, Source
from agentmem.transfer.markdown.journal import Session, find_sessions, outline_journal
from agentmem.transfer.markdown.outline import Outline, Place, title_and_sections
from agentmem.transfer.markdown.roles import is_excluded, read_heading
from agentmem.transfer.markdown.status import Status, status_of_cell
from agentmem.transfer.markdown.tables import EntityType
from agentmem.transfer.markdown.tasks import Task, priority_of, read_entries
from agentmem.transfer.markdown.types import CLOSED, NoteKind, ReportLine, SourceKey
from agentmem.transfer.markdown.words import norm, plain, read_date, slug

__all__ = ["Folder", "doc_order"]

_PLAN_NAMES: Final = (
    *("plan", "task_plan", "task-plan", "implementation_plan", "implementation-plan", "project_plan", "roadmap"),
    *("progress", "status", "tasks", "implement", "milestones", "checklist", "todo", "todos", "backlog"),
    *("计划", "任务", "进度", "路线图", "待办"),
)
_GOVERNING: Final = ("readme", "scope", "rules", "roe", "rules-of-engagement", "范围", "规则")
_LISTS: Final = frozenset({"todo", "todos", "backlog", "checklist", "待办"})
_FIRST_DOCS: Final = ("prd", "readme", "spec", "requirements", "plan", "design", "implement", "tasks", "todo")
_STATUS_KEYS: Final = ("status", "state", "状态")
_PRIORITY_KEYS: Final = ("priority", "优先级")
_DATE_ONLY: Final = re.compile(r"^[\d\sT:./+Z-]+$")
_DATA: Final = (".json", ".jsonl", ".ndjson")
_TITLE_PREFIX: Final = re.compile(r"^(?:goal|plan|task|project|目标|计划|任务|项目)\s*[:：]\s*(?=\S)", re.IGNORECASE)


@frozen
class _Parsed:
    """One Markdown file, parsed, with the sessions of a journal."""

    source: Source
    root: Section
    lines: list[str]
    sessions: tuple[Session, ...]


@define
class Folder:
    """Reads files into drafts; `kinds` tells what each was taken for."""

    drafts: Drafts
    entities: tuple[EntityType, ...] = ()
    kinds: dict[str, str] = Factory(dict)

    def file(self, source: Source, place: Place) -> None:
        """One file that belongs to a task or a goal, or to nothing."""
        if source.name.endswith((".jsonl", ".ndjson")):
            self._entries(source, place)
        elif source.name.endswith(".json"):
            self.kinds[source.path] = "data"
            if source.text.strip():
                self.fact(source.path, (), source.name, source.text.strip(), place.text)
        else:
            self._doc(_parse(source), place)

    def fact(self, path: str, headings: tuple[str, ...], title: str, body: str, parent: SourceKey | None) -> Draft:
        """A fact that holds a text as it is."""
        key = self.drafts.key(path, headings)
        return self.drafts.add(Draft(source=key, kind="fact", title=plain(title), body=body, parent=parent))

    def outcome_of(self, goal: Draft, task: Task) -> None:
        """Close an open task whose own text says how it ended: a heading `Outcome: ABANDONED`."""
        said = self.drafts.outcome_said.get(goal.source)
        if said is None or (goal.said is not None and goal.said.value in CLOSED):
            return
        status, path = said
        goal.said = status
        told = f"{task.said or 'open'} by task.json, {status.value} by its outcome in {path}: taken as {status.value}"
        self.drafts.report.append(ReportLine("status", told, task.path))

    def _entries(self, source: Source, place: Place) -> None:
        self.kinds[source.path] = "entries"
        entries, report = read_entries(source)
        self.drafts.report.extend(report)
        if entries.count:
            title = f"{source.name}: {entries.count} {'entry' if entries.count == 1 else 'entries'}"
            self.fact(source.path, (), title, entries.text, place.text)

    def _outline(self, parsed: _Parsed, title: str) -> Outline:
        source = parsed.source
        outline = Outline(source, parsed.lines, self.drafts, self.entities, source.dated)
        outline.governs = source.stem.casefold() in (*_PLAN_NAMES, *_GOVERNING)
        outline.ours = not any(map(is_excluded, (title, re.sub(r"[-_]+", " ", source.stem))))
        sections = [norm(section.title) for section in parsed.root.walk()]
        names = ("context", "consequences", "背景", "后果", "影响")
        if sum(read_heading(section.title).role == "decision" for section in parsed.root.walk()) == 1 and any(
            name in sections for name in names
        ):
            outline.adr = title
        return outline

    def _doc(self, parsed: _Parsed, place: Place) -> None:
        """A file as one note for itself and notes for what is in it."""
        source = parsed.source
        plan = place.plan or (place.in_task and source.stem.casefold() in _PLAN_NAMES)
        place = evolve(place, plan=plan)
        self.kinds[source.path] = "journal" if parsed.sessions else "plan" if plan else "doc"
        title, sections, title_line = title_and_sections(parsed.root, source)
        outline = self._outline(parsed, title)
        if len(parsed.sessions) == 1 and parsed.sessions[0].whole:
            outline_journal(outline, parsed.sessions, place, front=_front_rest(source, title))
            return
        name = plain(title) if norm(title) == norm(source.stem) else f"{plain(title)} ({source.name})"
        holder = outline.note("fact", name, (), place.text, line=0, place=place)
        outline.take_title(title_line)
        inside = evolve(place, text=holder.source)
        if parsed.sessions:
            outline_journal(outline, parsed.sessions, inside)
        else:
            self._preamble(outline, parsed.root, title, inside)
            outline.sections(sections, (), inside)
        holder.body = _with_front(_front_rest(source, title), outline.text(0, len(parsed.lines)))
        if not any(char.isalnum() for char in source.text + source.front.raw):
            self.drafts.discard(holder)

    def _preamble(self, outline: Outline, root: Section, title: str, place: Place) -> None:
        """What stands before the first section of a file: its boxes are a step of the file's name."""
        blocks = _first_blocks(root, title)
        if any(block.boxes for block in blocks) and place.work is not None:
            step = outline.note("step", title, ("boxes",), place.work, line=0, place=place)
            outline.work(blocks, step, (), evolve(place, work=step.source))
            if not step.items:
                self.drafts.discard(step)
        outline.blocks(blocks, (), place, heading=title)

    def read_loose(self, sources: list[Source]) -> None:
        """Files that belong to no task.

        The general plan of a folder is a goal; every other file with work in it is a step beneath the nearest such
        goal, or a goal of its own; what is no work hangs on the nearest goal that is more than a list of things to do.
        """
        parsed = {source.path: _parse(source) for source in sources if not source.name.endswith(_DATA)}
        plans: dict[str, list[_Parsed]] = defaultdict(list)
        for one in parsed.values():
            if not one.sessions and self._is_plan(one):
                plans[one.source.folder].append(one)
        goals: dict[str, list[Draft]] = {}
        for folder in sorted(plans, key=lambda folder: (folder.count("/") + bool(folder), folder)):
            goals[folder] = []
            self._plans(plans[folder], goals)
        for source in sorted(sources, key=lambda source: (source.folder, doc_order(source))):
            if self.kinds.get(source.path) == "plan":
                continue
            main = _nearest(goals, source.folder, lists=False)
            work = main or _nearest(goals, source.folder, lists=True)
            place = Place(
                work=main.source if main else None,
                text=main.source if main else None,
                boxes=work.source if work else None,
                scope=main.scope if main else source.folder or ".",
            )
            if source.path in parsed:
                self._doc(parsed[source.path], place)
            else:
                self.file(source, place)

    def _is_plan(self, parsed: _Parsed) -> bool:
        stem = parsed.source.stem
        if stem.casefold() in _PLAN_NAMES or re.search(r"(?:^|[-_ ])(?:plan|todo|tasks|roadmap)$", stem, re.IGNORECASE):
            return True
        outline = Outline(parsed.source, parsed.lines, Drafts(), self.entities)
        probe = Place(work=None, text=None, in_task=True)
        return any(outline.is_step(section, probe) for section in parsed.root.walk())

    def _plans(self, found: list[_Parsed], goals: dict[str, list[Draft]]) -> None:
        """The plans of one folder, the general ones first: they are one goal together."""
        general = sorted((one for one in found if one.source.stem.casefold() in _PLAN_NAMES), key=_plan_order)
        first: Draft | None = None
        for one in general:
            first = self._plan(one, None, shared=first)
            if first not in goals[one.source.folder]:
                goals[one.source.folder].append(first)
        for one in found:
            if one not in general:
                above = _nearest(goals, one.source.folder, lists=False)
                draft = self._plan(one, above, shared=None)
                if above is None:
                    goals[one.source.folder].append(draft)

    def _plan(self, parsed: _Parsed, above: Draft | None, *, shared: Draft | None) -> Draft:
        """One plan: a goal, a step beneath a goal, or further steps of a goal that another file of the folder began."""
        source = parsed.source
        self.kinds[source.path] = "plan"
        title, sections, title_line = title_and_sections(parsed.root, source)
        outline = self._outline(parsed, title)
        scope = (above or shared).scope if above or shared else source.folder or "."  # type: ignore[union-attr]
        place = Place(work=None, text=None, plan=True, scope=scope)
        blocks = _first_blocks(parsed.root, title)
        if shared is None:
            kind: NoteKind = "step" if above else "goal"
            parent = above.source if above else None
            bare = _TITLE_PREFIX.sub("", plain(title))
            if bare != plain(title):
                bare = bare[:1].upper() + bare[1:]
            holder = outline.note(kind, bare, (), parent, line=0, place=place, said=_front_status(source))
            holder.whole = above is None
            holder.tags = _front_tags(source, holder.tags)
            holder.is_list = source.stem.casefold() in _LISTS
            outline.take_title(title_line)
            work = target = holder
        else:
            holder = outline.note("fact", f"{plain(title)} ({source.name})", (), shared.source, line=0, place=place)
            outline.take_title(title_line)
            work = target = shared
            if any(block.boxes for block in blocks):
                target = outline.note("step", title, ("boxes",), work.source, line=0, place=place)
        inside = evolve(place, work=work.source, text=holder.source, goal=work)
        outline.work(blocks, target, (), inside, todo=source.stem.casefold() in _LISTS)
        outline.blocks(blocks, (), inside, heading=title)
        outline.sections(sections, (), inside)
        front = _front_rest(source, title, work=shared is None)
        rest = _with_front(front, outline.text(0, len(parsed.lines)))
        holder.body = "\n\n".join(filter(None, (holder.body, rest)))
        return work


def doc_order(source: Source) -> tuple[int, int, str]:
    """The order of files in a folder: what says the aim first, then by name, JSON Lines last."""
    stem = source.stem.casefold()
    rank = _FIRST_DOCS.index(stem) if stem in _FIRST_DOCS else len(_FIRST_DOCS)
    return source.path.count("/"), rank + 50 * source.name.endswith(_DATA), source.path


def _parse(source: Source) -> _Parsed:
    root, lines = parse(source.text)
    return _Parsed(source, root, lines, find_sessions(source, root, lines))


def _first_blocks(root: Section, title: str) -> tuple[Block, ...]:
    first = root.sections[0] if root.sections else None
    return (*root.blocks, *(first.blocks if first is not None and first.title == title else ()))


def _front_status(source: Source) -> Status | None:
    value = source.front.get(*_STATUS_KEYS)
    return status_of_cell(value.replace("_", " ")) if value else None


def _front_tags(source: Source, tags: tuple[str, ...]) -> tuple[str, ...]:
    priority = priority_of(source.front.get(*_PRIORITY_KEYS))
    named = (slug(tag, limits.TAG_CHARS) for tag in source.front.get_list("tags"))
    return tuple(dict.fromkeys(tag for tag in (*tags, priority, *named) if tag))


def _front_rest(source: Source, title: str, *, work: bool = False) -> str:
    """The lines of the front matter that the note does not tell; `work` says that it has a status, a priority, tags."""
    front = source.front
    known = [
        key
        for key in ("title", "name")
        if (said := front.get(key)) and plain(said).casefold() in plain(title).casefold()
    ]
    dated = next((key for key in DATE_KEYS if read_date(front.get(key))), None)
    if dated and _DATE_ONLY.match(front.get(dated)):
        known.append(dated)
    if work and _front_status(source):
        known += [next(key for key in _STATUS_KEYS if front.get(key))]
    if work and priority_of(front.get(*_PRIORITY_KEYS)):
        known += [next(key for key in _PRIORITY_KEYS if front.get(key))]
    if work and all(slug(tag) == tag.casefold() for tag in front.get_list("tags")):
        known.append("tags")
    return front.without(*known)


def _with_front(front: str, text: str) -> str:
    return "\n\n".join(filter(None, (front.strip(), text)))


def _plan_order(parsed: _Parsed) -> int:
    return _PLAN_NAMES.index(parsed.source.stem.casefold())


def _nearest(goals: dict[str, list[Draft]], folder: str, *, lists: bool) -> Draft | None:
    """The only goal of the nearest folder above that has goals; with several there, none is the one."""
    while True:
        found = [goal for goal in goals.get(folder, []) if lists or not goal.is_list]
        if found:
            return found[0] if len(found) == 1 else None
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
