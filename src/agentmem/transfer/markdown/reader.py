"""Reading a folder of Markdown logs as a plan of records."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from attrs import Factory, define, evolve

from agentmem import limits

from .blocks import Section, parse
from .drafts import Draft, Drafts, Finding
from .files import DEPTH_MAX, FILE_BYTES, FILES_MAX, Source, find_files, read_source
from .journal import find_sessions, is_journal_name, outline_journal
from .outline import Outline, Place, title_and_sections
from .settle import settle
from .status import Status, status_of_cell
from .tables import EntityType, entity_type
from .tasks import Task, is_task_file, priority_of, read_entries, read_task
from .types import (
    CLOSED,
    Plan,
    PlannedCheckpoint,
    PlannedEntity,
    PlannedNote,
    PlannedSummary,
    ReportLine,
    SourceKey,
)
from .words import cut_bytes, norm, plain, slug

__all__ = ["read_folder"]

_PLAN_NAMES: Final = (
    "plan", "task_plan", "task-plan", "implementation_plan", "implementation-plan", "todo", "todos", "tasks", "roadmap", "progress", "status",
    "implement", "checklist", "milestones", "backlog", "计划", "待办", "任务", "进度", "路线图",
)  # fmt: skip
_FIRST_DOCS: Final = ("prd", "readme", "spec", "requirements", "plan", "design", "implement", "tasks", "todo")
_NO_CHECKPOINT: Final = frozenset({"index", "readme", "readme-zh", "license", "contributing"})
_TASK_DEPTH: Final = 16


def read_folder(
    path: str | PathLike[str],
    *,
    entities: Sequence[str] = (),
    file_bytes: int = FILE_BYTES,
    files_max: int = FILES_MAX,
    depth_max: int = DEPTH_MAX,
) -> Plan:
    """Read a file or folder of logs as a plan; nothing is written, nothing outside the folder is opened.

    Args:
        path: A Markdown, text, JSON or JSON Lines file, or a folder of such files.
        entities: Types of things, `host` say, whose tables and lists become entities.
        file_bytes: Larger files are skipped and reported.
        files_max: Further files are skipped and reported.
        depth_max: Deeper folders are skipped and reported.

    Returns:
        The plan, with a report of what became what.

    Raises:
        NotFound: Nothing is at the path.
        InvalidInput: It is neither a file nor a folder.
    """
    found = find_files(Path(path), files_max=files_max, depth_max=depth_max)
    report = list(found.report)
    sources = []
    for name in found.paths:
        source, lines = read_source(found.root, name, file_bytes=file_bytes)
        report.extend(lines)
        if source is not None:
            sources.append(source)
    reader = _Reader([entity_type(name) for name in entities], Drafts(report=report))
    reader.read(sources)
    return reader.finish(found.root, sources)


@define
class _Reader:
    """The whole folder: tasks first, then everything that belongs to none."""

    types: list[EntityType]
    drafts: Drafts
    kinds: dict[str, str] = Factory(dict)
    tasks: dict[str, Task] = Factory(dict)
    goals: dict[str, Draft] = Factory(dict)

    def read(self, sources: list[Source]) -> None:
        for source in sources:
            if is_task_file(source):
                task, lines = read_task(source)
                self.tasks[task.folder] = task
                self.kinds[source.path] = "task"
                self.drafts.report.extend(lines)
        files: dict[str, list[Source]] = defaultdict(list)
        loose: list[Source] = []
        for source in sources:
            if source.path in self.kinds:
                continue
            folder = self._task_folder(source.folder)
            (loose if folder is None else files[folder]).append(source)
        for task, parent in self._in_order():
            self._task(task, parent, sorted(files[task.folder], key=_doc_order))
        self._loose(loose)
        recency: dict[str, tuple[object, ...]] = {source.path: source.recency for source in sources}
        for task in self.tasks.values():
            if task.closed is not None:
                recency[task.path] = (*_as_recency(task.closed), *recency[task.path][1:])
        settle(self.drafts, recency)

    def _task_folder(self, folder: str) -> str | None:
        while folder not in self.tasks:
            if not folder:
                return None
            folder = folder.rpartition("/")[0]
        return folder

    def _in_order(self) -> list[tuple[Task, Task | None]]:
        """The tasks, parents first; a parent is named by the task, or names it among its children."""
        names: dict[str, Task] = {}
        for task in self.tasks.values():
            for name in task.names:
                names.setdefault(name, task)
        above: dict[str, Task] = {}
        for task in self.tasks.values():
            for child in task.children:
                if child in names and names[child] is not task:
                    above.setdefault(names[child].folder, task)
        for task in self.tasks.values():
            if task.parent in names and names[task.parent] is not task:
                above[task.folder] = names[task.parent]
            elif task.parent:
                self.drafts.report.append(
                    ReportLine("hint", f"its parent {task.parent!r} is not in the folder", task.path)
                )
        ordered: list[tuple[Task, Task | None]] = []
        placed: set[str] = set()

        def place(task: Task, trail: tuple[str, ...]) -> None:
            if task.folder in placed:
                return
            parent = above.get(task.folder)
            if parent is not None and (parent.folder in trail or len(trail) > _TASK_DEPTH):
                self.drafts.report.append(
                    ReportLine("hint", "its chain of parents is a circle or too long: kept as a goal", task.path)
                )
                parent = None
            if parent is not None:
                place(parent, (*trail, task.folder))
            if task.folder not in placed:
                placed.add(task.folder)
                ordered.append((task, parent))

        for task in self.tasks.values():
            place(task, ())
        return ordered

    def _task(self, task: Task, parent: Task | None, files: list[Source]) -> None:
        above = self.goals[parent.folder] if parent else None
        goal = Draft(
            source=self.drafts.key(task.path),
            kind="step" if above else "goal",
            title=plain(task.title),
            body=task.text,
            parent=above.source if above else None,
            said=_task_status(task),
            tags=tuple(filter(None, (task.priority,))),
            dated=task.dated,
            scope=task.folder or ".",
            whole=True,
        )
        if goal.said and goal.said.tag:
            goal.tags = (*goal.tags, goal.said.tag)
        self.goals[task.folder] = self.drafts.add(goal)
        for source in files:
            place = Place(work=goal.source, text=goal.source, scope=goal.scope, goal=goal, in_task=True)
            self._file(source, place)
        goal.body = "\n\n".join(filter(None, (task.description, goal.body, task.notes)))
        if task.rest:
            self._plain_fact(
                SourceKey(task.path), ("other keys",), f"{task.title}: task.json", task.rest, goal.source, task
            )
        if _task_status(task) and _task_status(task) != task.status:
            told = f"archived with status {task.said or 'unknown'}: taken as {goal.said.value if goal.said else 'open'}"
            self.drafts.report.append(ReportLine("status", told, task.path))
        if goal.said and goal.said.value in CLOSED and task.notes and not task.notes.startswith("Migrated"):
            self.drafts.outcomes.append(Finding(task.notes, goal.source, goal.source, task.closed, ("~",), "notes"))

    def _plain_fact(
        self,
        source: SourceKey,
        headings: tuple[str, ...],
        title: str,
        body: str,
        parent: SourceKey | None,
        task: Task | None = None,
    ) -> Draft:
        return self.drafts.add(
            Draft(
                source=self.drafts.key(source.path, headings),
                kind="fact",
                title=plain(title),
                body=body,
                parent=parent,
                dated=task.dated if task else None,
            )
        )

    def _file(self, source: Source, place: Place) -> None:
        """One file that belongs to a task or a goal, or to nothing."""
        if source.name.endswith((".jsonl", ".ndjson")):
            self._entries(source, place)
        elif source.name.endswith(".json"):
            self.kinds[source.path] = "data"
            if source.text.strip():
                self._plain_fact(SourceKey(source.path), (), source.name, source.text.strip(), place.text)
        else:
            root, lines = parse(source.text)
            self._markdown(source, root, lines, place)

    def _entries(self, source: Source, place: Place) -> None:
        self.kinds[source.path] = "entries"
        entries, report = read_entries(source)
        self.drafts.report.extend(report)
        if entries.count:
            title = f"{source.name}: {entries.count} {'entry' if entries.count == 1 else 'entries'}"
            self._plain_fact(SourceKey(source.path), (), title, entries.text, place.text)

    def _markdown(self, source: Source, root: Section, lines: list[str], place: Place) -> None:
        sessions = find_sessions(root, lines) if _is_journal(source, root, lines) else ()
        self.kinds[source.path] = "journal" if sessions else "plan" if place.plan else "doc"
        outline = Outline(source, lines, self.drafts, tuple(self.types), source.dated)
        title, sections, preamble_end = title_and_sections(root, source)
        if place.in_task and source.stem.casefold() in _PLAN_NAMES:
            place = evolve(place, plan=True)
            self.kinds[source.path] = "plan"
        name = plain(title) if norm(title) == norm(source.stem) else f"{plain(title)} ({source.name})"
        holder = outline.note("fact", name, (), place.text, line=0, place=place)
        inside = evolve(place, text=holder.source)
        if sessions:
            outline_journal(outline, sessions, evolve(place, text=holder.source))
            holder.body = _with_front(source, outline.text(0, len(lines)))
            return
        self._preamble(outline, root, title, place, inside)
        outline.sections(sections, (), inside)
        self._finish(outline, holder, preamble_end, lines)

    def _preamble(self, outline: Outline, root: Section, title: str, place: Place, inside: Place) -> None:
        """What stands before the first section of a file: its boxes are a step of the file's name."""
        blocks = [*root.blocks, *(root.sections[0].blocks if root.sections and root.sections[0].title == title else ())]
        if any(block.boxes for block in blocks) and place.work is not None:
            step = outline.note("step", title, ("boxes",), place.work, line=0, place=place)
            outline.work(tuple(blocks), step, (), evolve(inside, work=step.source), todo=False)
            if not step.items:
                self.drafts.discard(step)
        outline.blocks(tuple(blocks), (), inside, heading=title)

    def _finish(self, outline: Outline, holder: Draft, preamble_end: int, lines: list[str]) -> None:
        """The text no section took stays with the file's own note; one that holds nothing at all is left out."""
        source = outline.source
        holder.body = _with_front(source, outline.text(0, len(lines)))
        if (
            not holder.body
            and not self.drafts.has_children(holder.source)
            and not any(char.isalnum() for char in source.text)
        ):
            self.drafts.discard(holder)

    def _loose(self, sources: list[Source]) -> None:
        """Files that belong to no task: the plans of a folder are its goals, everything else hangs on the only goal above it."""
        parsed: dict[str, tuple[Section, list[str]]] = {}
        plans: dict[str, list[Source]] = defaultdict(list)
        for source in sources:
            if source.name.endswith((".json", ".jsonl", ".ndjson")):
                continue
            root, lines = parse(source.text)
            parsed[source.path] = root, lines
            if not find_sessions(root, lines) or not _is_journal(source, root, lines):
                if self._is_plan(source, root):
                    plans[source.folder].append(source)
        goals: dict[str, list[Draft]] = defaultdict(list)
        for folder, found in sorted(plans.items()):
            goals[folder] = self._goals(found, parsed)
        for source in sorted(sources, key=lambda source: (source.folder, _doc_order(source))):
            if self.kinds.get(source.path) == "plan":
                continue
            goal = _nearest(goals, source.folder)
            key = goal.source if goal else None
            place = Place(work=key, text=key, scope=goal.scope if goal else source.folder)
            if source.path in parsed:
                self._markdown(source, *parsed[source.path], place)
            else:
                self._file(source, place)

    def _is_plan(self, source: Source, root: Section) -> bool:
        if source.stem.casefold() in _PLAN_NAMES or re.search(
            r"(?:^|[-_ ])(?:plan|todo|tasks|roadmap)$", source.stem, re.IGNORECASE
        ):
            return True
        outline = Outline(source, source.text.split("\n"), Drafts(), tuple(self.types))
        probe = Place(work=None, text=None, plan=False, in_task=True)
        return any(outline._own_work(section, probe) for section in root.walk())

    def _goals(self, found: list[Source], parsed: dict[str, tuple[Section, list[str]]]) -> list[Draft]:
        """The goals of one folder: its general plans are one, every other plan is one of its own."""
        general = sorted((source for source in found if source.stem.casefold() in _PLAN_NAMES), key=_plan_order)
        goals: list[Draft] = []
        for source in [*general, *(source for source in found if source not in general)]:
            self.kinds[source.path] = "plan"
            root, lines = parsed[source.path]
            outline = Outline(source, lines, self.drafts, tuple(self.types), source.dated)
            shared = goals[0] if goals and source in general else None
            goal = self._plan(outline, root, lines, shared)
            if shared is None:
                goals.append(goal)
        return goals

    def _plan(self, outline: Outline, root: Section, lines: list[str], shared: Draft | None) -> Draft:
        source = outline.source
        title, sections, preamble_end = title_and_sections(root, source)
        scope = source.folder or "."
        said = _front_status(source)
        place = Place(work=None, text=None, plan=True, scope=scope)
        if shared is None:
            holder = outline.note("goal", title, (), None, line=0, place=place, said=said)
            holder.whole = True
            holder.tags = _front_tags(source, holder.tags)
        else:
            holder = outline.note("fact", f"{plain(title)} ({source.name})", (), shared.source, line=0, place=place)
        work = shared or holder
        inside = evolve(place, work=work.source, text=work.source if shared is None else holder.source, goal=work)
        blocks = tuple(
            [*root.blocks, *(root.sections[0].blocks if root.sections and root.sections[0].title == title else ())]
        )
        target = work
        if shared is not None and any(block.boxes for block in blocks):
            target = outline.note("step", title, ("boxes",), work.source, line=0, place=place)
        todo = source.stem.casefold() in ("todo", "todos", "待办", "backlog")
        outline.work(blocks, target, (), inside, todo=todo)
        outline.blocks(blocks, (), inside, heading=title)
        outline.sections(sections, (), inside)
        rest = _with_front(source, outline.text(0, len(lines)))
        holder.body = "\n\n".join(filter(None, (holder.body, rest)))
        return work

    def finish(self, root: Path, sources: list[Source]) -> Plan:
        notes = [note for draft in self.drafts.notes for note in draft.to_notes()]
        notes = _parents_first(notes)
        entities = _merge_entities(self.drafts.entities)
        by_key = {draft.source: draft for draft in self.drafts.notes}
        summaries = _summaries(self.drafts, by_key)
        checkpoints = _checkpoints(self.drafts, by_key)
        files = tuple(source.to_file(self.kinds.get(source.path, "doc")) for source in sources)
        report = [*_made(notes, entities, summaries, checkpoints, self.kinds), *self.drafts.report]
        return Plan(
            root=root,
            notes=tuple(notes),
            entities=entities,
            summaries=summaries,
            checkpoints=checkpoints,
            report=tuple(report),
            files=files,
        )


def _task_status(task: Task) -> Status | None:
    """The status of a task; one that lies in an archive is closed, dropped where it was never completed."""
    if task.archived and (task.status is None or task.status.value not in CLOSED):
        return Status("done" if task.closed else "dropped")
    return task.status


def _front_status(source: Source) -> Status | None:
    value = source.front.get("status", "state", "状态")
    return status_of_cell(value.replace("_", " ")) if value else None


def _front_tags(source: Source, tags: tuple[str, ...]) -> tuple[str, ...]:
    priority = priority_of(source.front.get("priority", "优先级"))
    named = (slug(tag, limits.TAG_CHARS) for tag in source.front.get_list("tags"))
    return tuple(dict.fromkeys(filter(None, (*tags, priority, *named))))


def _with_front(source: Source, text: str) -> str:
    return "\n\n".join(filter(None, (source.front.raw.strip(), text)))


def _is_journal(source: Source, root: Section, lines: list[str]) -> bool:
    sessions = find_sessions(root, lines)
    if is_journal_name(source.stem):
        return bool(sessions)
    headings = sum(1 for section in root.walk() if section.level == 2) or 1
    return len(sessions) >= 2 and 2 * len(sessions) >= min(headings, 2 * len(sessions))


def _doc_order(source: Source) -> tuple[int, int, str]:
    stem = source.stem.casefold()
    rank = _FIRST_DOCS.index(stem) if stem in _FIRST_DOCS else len(_FIRST_DOCS)
    return source.path.count("/"), rank + 50 * source.name.endswith(".jsonl"), source.path


def _plan_order(source: Source) -> int:
    return _PLAN_NAMES.index(source.stem.casefold())


def _nearest(goals: dict[str, list[Draft]], folder: str) -> Draft | None:
    """The only goal of the nearest folder above that has goals; with several there, none is the one."""
    while True:
        found = goals.get(folder, [])
        if found:
            return found[0] if len(found) == 1 else None
        if not folder:
            return None
        folder = folder.rpartition("/")[0]


def _as_recency(day: object) -> tuple[object]:
    import datetime as dt

    if isinstance(day, dt.datetime):
        return (day,)
    if isinstance(day, dt.date):
        return (dt.datetime(day.year, day.month, day.day, 23, 59, 59, tzinfo=dt.UTC),)
    return (dt.datetime.min.replace(tzinfo=dt.UTC),)


def _parents_first(notes: list[PlannedNote]) -> list[PlannedNote]:
    """The notes with every parent before its children, otherwise in their order."""
    known = {note.source for note in notes}
    children: dict[SourceKey | None, list[PlannedNote]] = defaultdict(list)
    for note in notes:
        children[note.parent if note.parent in known else None].append(note)
    ordered: list[PlannedNote] = []
    stack = list(reversed(children[None]))
    while stack:
        note = stack.pop()
        ordered.append(note)
        stack.extend(reversed(children[note.source]))
    return ordered


def _merge_entities(found: list[tuple[tuple[object, ...], PlannedEntity]]) -> tuple[PlannedEntity, ...]:
    """One entity for each type and key; where two files differ, the newest wins attribute by attribute."""
    merged: dict[tuple[str, str], PlannedEntity] = {}
    for _, entity in sorted(found, key=lambda pair: pair[0]):
        name = (entity.type, entity.key)
        before = merged.get(name)
        if before is not None:
            entity = evolve(
                entity,
                attrs={**before.attrs, **entity.attrs},
                checks={**before.checks, **entity.checks},
                status=entity.status or before.status,
            )
        merged[name] = entity
    return tuple(sorted(merged.values(), key=lambda entity: (entity.type, entity.source, entity.key)))


def _summaries(drafts: Drafts, by_key: dict[SourceKey, Draft]) -> tuple[PlannedSummary, ...]:
    """The summaries of closed tasks: their own outcome, else what a session says of the task of that name."""
    named = {norm(draft.title): draft for draft in drafts.notes if draft.whole}
    found: dict[SourceKey, list[Finding]] = defaultdict(list)
    for finding in drafts.outcomes:
        task = by_key.get(finding.task) if finding.task else named.get(norm(finding.heading))
        if task is not None and task.kind in ("goal", "step") and task.status in CLOSED:
            found[task.source].append(finding)
    summaries = []
    for key, findings in found.items():
        texts = list(dict.fromkeys(finding.text.strip() for finding in findings))
        work = by_key[key].title
        result = cut_bytes("\n\n".join(texts), limits.SUMMARY_BYTES)
        summaries.append(PlannedSummary(key, work, result))
    return tuple(summaries)


def _checkpoints(drafts: Drafts, by_key: dict[SourceKey, Draft]) -> tuple[PlannedCheckpoint, ...]:
    """The newest standing of each task that is not closed, and of each folder of journals."""
    newest: dict[tuple[SourceKey | None, str], Finding] = {}
    for finding in drafts.standings:
        task = by_key.get(finding.task) if finding.task else None
        stem = finding.source.path.rpartition("/")[2].rpartition(".")[0].casefold()
        if (
            (task is not None and task.status in CLOSED)
            or stem in _NO_CHECKPOINT
            or (task is None and finding.heading != "journal")
        ):
            continue
        name = (finding.task, finding.source.path.rpartition("/")[0] if finding.task is None else "")
        before = newest.get(name)
        if before is None or _order(before) <= _order(finding):
            newest[name] = finding
    found = sorted(newest.values(), key=_order)
    return tuple(
        PlannedCheckpoint(cut_bytes(finding.text, limits.CHECKPOINT_BYTES), finding.task, finding.dated, finding.source)
        for finding in found
    )


def _order(finding: Finding) -> tuple[str, str]:
    return finding.dated.isoformat() if finding.dated else "", str(finding.recency)


def _made(
    notes: list[PlannedNote],
    entities: tuple[PlannedEntity, ...],
    summaries: tuple[PlannedSummary, ...],
    checkpoints: tuple[PlannedCheckpoint, ...],
    kinds: dict[str, str],
) -> list[ReportLine]:
    files = Counter(kinds.values())
    lines = [ReportLine("made", f"{count} × {kind}", count=count) for kind, count in sorted(files.items())]
    made = Counter(f"{note.kind} {note.status}" for note in notes)
    lines.extend(ReportLine("made", f"{count} {name}", count=count) for name, count in sorted(made.items()))
    boxes = Counter(item.done for note in notes for item in note.checklist)
    lines.append(ReportLine("made", f"{boxes[True]} ticked and {boxes[False]} unticked boxes", count=boxes.total()))
    for name, count in sorted(Counter(entity.type for entity in entities).items()):
        lines.append(ReportLine("made", f"{count} entities of type {name}", count=count))
    for what, found in (("summaries", summaries), ("checkpoints", checkpoints)):
        if found:
            lines.append(ReportLine("made", f"{len(found)} {what}", count=len(found)))
    closed = [note for note in notes if note.closed_unticked]
    if closed:
        count = sum(note.closed_unticked for note in closed)
        lines.append(
            ReportLine(
                "made", f"{count} unticked boxes lie below {len(closed)} closed notes and are not left", count=count
            )
        )
    return lines
