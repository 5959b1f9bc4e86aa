"""Reading a folder of Markdown logs as a plan of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Final

from agentmem.errors import shown
from agentmem.records import validate
from agentmem.transfer.markdown.assemble import assemble
from agentmem.transfer.markdown.drafts import Draft, Drafts, Finding
from agentmem.transfer.markdown.files import DEPTH_MAX, FILE_BYTES, FILES_MAX, Recency, Source, find_files, read_source
from agentmem.transfer.markdown.folder import Folder, doc_order
from agentmem.transfer.markdown.outline import Place
from agentmem.transfer.markdown.settle import settle
from agentmem.transfer.markdown.status import Status
from agentmem.transfer.markdown.tables import entity_type
from agentmem.transfer.markdown.tasks import Task, is_task_file, read_task
from agentmem.transfer.markdown.types import CLOSED, Plan, ReportLine
from agentmem.transfer.markdown.words import norm, plain

__all__ = ["read_folder"]

_TASK_DEPTH: Final = 16
_NEWEST: Final[Recency] = ("2", 0, "", 0)


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
    found = find_files(Path(validate.path(path)), files_max=files_max, depth_max=depth_max)
    drafts = Drafts(report=list(found.report))
    sources = []
    for name in found.paths:
        source, lines = read_source(found.root, name, file_bytes=file_bytes)
        drafts.report.extend(lines)
        if source is not None:
            sources.append(source)
    folder = Folder(drafts, tuple(entity_type(name) for name in entities))
    tasks = _read_tasks(sources, folder)
    files: dict[str, list[Source]] = defaultdict(list)
    loose: list[Source] = []
    for source in sources:
        if source.path not in folder.kinds:
            owner = _owner(tasks, source.folder)
            (loose if owner is None else files[owner]).append(source)
    _write_tasks(tasks, files, folder)
    folder.read_loose(loose)
    recency = {source.path: source.recency for source in sources}
    settle(drafts, recency)
    return assemble(found.root, sources, drafts, folder.kinds)


def _read_tasks(sources: list[Source], folder: Folder) -> dict[str, Task]:
    tasks: dict[str, Task] = {}
    for source in sources:
        if is_task_file(source):
            task, lines = read_task(source)
            tasks[task.folder] = task
            folder.kinds[source.path] = "task"
            folder.drafts.report.extend(lines)
    return tasks


def _owner(tasks: dict[str, Task], folder: str) -> str | None:
    """The folder of the nearest task that a folder lies in."""
    while folder not in tasks:
        if not folder:
            return None
        folder = folder.rpartition("/")[0]
    return folder


def _write_tasks(tasks: dict[str, Task], files: dict[str, list[Source]], folder: Folder) -> None:
    """The drafts of the tasks, all of them before their files, since any file may name any task."""
    goals: dict[str, Draft] = {}
    ordered = _in_order(tasks, folder.drafts)
    for task, parent in ordered:
        goal = _goal(task, goals[parent.folder] if parent else None, folder.drafts)
        goals[task.folder] = folder.drafts.add(goal)
        for name in (*task.names, task.title):
            folder.drafts.tasks.setdefault(norm(name), goal)
    for task, _ in ordered:
        goal = goals[task.folder]
        if goal.said and goal.said.value in CLOSED and task.notes and not task.notes.startswith("Migrated"):
            finding = Finding(task.notes, goal.source, goal.source, task.closed, _NEWEST, "notes")
            folder.drafts.outcomes.append(finding)
        place = Place(work=goal.source, text=goal.source, scope=goal.scope, goal=goal, in_task=True)
        for source in sorted(files[task.folder], key=doc_order):
            folder.file(source, place)
        goal.body = "\n\n".join(filter(None, (task.description, goal.body, task.notes)))
        if task.rest or task.text:
            folder.fact(task.path, ("other keys",), f"{task.title}: task.json", task.rest or task.text, goal.source)
        folder.outcome_of(goal, task)


def _goal(task: Task, above: Draft | None, drafts: Drafts) -> Draft:
    said = _status(task)
    if said != task.status:
        told = f"archived with status {task.said or 'unknown'}: taken as {said.value if said else 'open'}"
        drafts.report.append(ReportLine("status", told, task.path))
    tags = (task.priority, said.tag if said else None)
    return Draft(
        source=drafts.key(task.path),
        kind="step" if above else "goal",
        title=plain(task.title),
        parent=above.source if above else None,
        said=said,
        tags=tuple(tag for tag in tags if tag),
        dated=task.dated,
        scope=task.folder or ".",
        whole=True,
    )


def _status(task: Task) -> Status | None:
    """The status of a task; one that lies in an archive is closed, dropped where it was never completed."""
    if task.archived and (task.status is None or task.status.value not in CLOSED):
        return Status("done" if task.closed else "dropped")
    return task.status


def _in_order(tasks: dict[str, Task], drafts: Drafts) -> list[tuple[Task, Task | None]]:
    """The tasks, parents first.

    A parent is the task around the folder, or names the task among its children, or is named by it.
    """
    above = _parents(tasks, drafts)
    ordered: list[tuple[Task, Task | None]] = []
    placed: set[str] = set()

    def place(task: Task, trail: tuple[str, ...]) -> None:
        parent = above.get(task.folder)
        if parent is not None and (parent.folder in trail or parent is task or len(trail) > _TASK_DEPTH):
            told = "its chain of parents is a circle or too long: kept as a goal"
            drafts.report.append(ReportLine("hint", told, task.path))
            parent = None
        if parent is not None and parent.folder not in placed:
            place(parent, (*trail, task.folder))
        if task.folder not in placed:
            placed.add(task.folder)
            ordered.append((task, parent))

    for task in tasks.values():
        if task.folder not in placed:
            place(task, (task.folder,))
    return ordered


def _parents(tasks: dict[str, Task], drafts: Drafts) -> dict[str, Task]:
    names: dict[str, Task] = {}
    for task in tasks.values():
        for name in task.names:
            names.setdefault(name, task)
    above: dict[str, Task] = {}
    for task in tasks.values():
        around = _owner(tasks, task.folder.rpartition("/")[0]) if task.folder else None
        if around is not None and around != task.folder:
            above[task.folder] = tasks[around]
    for task in tasks.values():
        for child in task.children:
            if child in names and names[child] is not task:
                above[names[child].folder] = task
    for task in tasks.values():
        named = names.get(task.parent)
        if named is not None and named is not task:
            above[task.folder] = named
        elif task.parent and task.folder not in above:
            drafts.report.append(ReportLine("hint", f"its parent {shown(task.parent)} is not in the folder", task.path))
    return above
