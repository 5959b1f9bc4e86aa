"""The files of a task folder that are not Markdown: `task.json` and JSON Lines."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.records.validate import NOT_TEXT
from agentmem.transfer.markdown.files import Source
from agentmem.transfer.markdown.status import Status, status_of_cell
from agentmem.transfer.markdown.types import Dated, ReportLine
from agentmem.transfer.markdown.words import is_placeholder, one_line, read_date

__all__ = ["Entries", "Task", "is_task_file", "priority_of", "read_entries", "read_task"]

_BRACKET: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')
_DONE_KEYS: Final = ("completedAt", "completed_at", "completed", "closedAt", "closed_at", "finished_at")
_MADE_KEYS: Final = ("createdAt", "created_at", "created", "date", "startedAt", "started_at")
_READ_KEYS: Final = frozenset({"title", "description"})
_LOOSE: Final = re.compile(
    r'"(title|name|status|parent|priority|createdAt|completedAt|description)"\s*:\s*(?:"((?:[^"\\\n]|\\.)*)"|([^\s",}\]]+))'
)
_PRIORITY: Final[dict[str, str]] = {
    **dict.fromkeys(("p0", "critical", "urgent", "blocker", "highest", "紧急"), "p0"),
    **dict.fromkeys(("p1", "high", "高"), "p1"),
    **dict.fromkeys(("p2", "medium", "normal", "中"), "p2"),
    **dict.fromkeys(("p3", "low", "lowest", "minor", "低"), "p3"),
}


@frozen(kw_only=True)
class Task:
    """What a `task.json` says.

    Args:
        path: Its path.
        folder: The folder of the task; its last name is how other tasks refer to it.
        title: Its title, the name of the folder where it has none.
        description: Its description, empty for a template's.
        status: What its status means, None where it has none that is known.
        said: The status as written.
        priority: `p0` to `p3`, or None.
        parent: How it names its parent, empty where it names none.
        children: How it names its children.
        names: Every name by which another task may refer to it.
        dated: When it was made.
        closed: When it was completed.
        notes: Its closing notes.
        rest: All its keys that hold something and that nothing else here tells, one a line.
        text: The whole file where it is not valid JSON, else empty.
    """

    path: str
    folder: str
    title: str
    description: str = ""
    status: Status | None = None
    said: str = ""
    priority: str | None = None
    parent: str = ""
    children: tuple[str, ...] = ()
    names: frozenset[str] = frozenset()
    dated: Dated | None = None
    closed: Dated | None = None
    notes: str = ""
    rest: str = ""
    text: str = ""

    @property
    def archived(self) -> bool:
        """Whether it lies in an archive."""
        return any(
            part.casefold() in ("archive", "archived", "归档", "done", "completed")
            for part in self.folder.split("/")[:-1]
        )


@frozen
class Entries:
    """The lines of a JSON Lines file as text."""

    text: str
    count: int


def is_task_file(source: Source) -> bool:
    """Whether a file describes the task of its folder."""
    return source.name.casefold() == "task.json"


def priority_of(text: str) -> str | None:
    """`p0` to `p3` for a word of priority, None for any other."""
    return _PRIORITY.get(text.strip().casefold())


def read_task(source: Source) -> tuple[Task, tuple[ReportLine, ...]]:
    """The task of a `task.json`; one that is no valid JSON is kept as text, title and status read from its lines."""
    values, problem = _load(source.text)
    if isinstance(values, dict):
        return _task(source, values, text=""), ()
    loose = {match[1]: match[2] if match[2] is not None else match[3] for match in _LOOSE.finditer(source.text)}
    loose = {key: value for key, value in loose.items() if value not in ("null", "true", "false")}
    told = problem or "holds no object"
    line = ReportLine(
        "broken",
        f"no valid JSON ({told}): kept as text, {', '.join(sorted(loose)) or 'nothing'} read from it",
        source.path,
    )
    return _task(source, loose, text=source.text.strip()), (line,)


def _load(text: str) -> tuple[Any, str]:
    """The value of a JSON text and an empty string, or None and what is wrong with it."""
    if _depth(text) > limits.JSON_DEPTH:
        return None, f"nested deeper than {limits.JSON_DEPTH}"
    try:
        return json.loads(text), ""
    except json.JSONDecodeError as error:
        return None, f"line {error.lineno}: {error.msg}"
    except (RecursionError, ValueError) as error:
        return None, type(error).__name__


def _depth(text: str) -> int:
    """How deep brackets nest outside strings."""
    depth = deepest = 0
    for match in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


def _task(source: Source, values: dict[str, Any], *, text: str) -> Task:
    folder = source.folder
    last = folder.rpartition("/")[2] or source.stem
    title = _word(values, "title") or _word(values, "name") or last
    said = _word(values, "status", "state")
    names = {last, _word(values, "id"), _word(values, "name")} - {""}
    description = _word(values, "description", "summary")
    return Task(
        path=source.path,
        folder=folder,
        title=title,
        description="" if is_placeholder(description) else description,
        status=status_of_cell(said.replace("_", " ")) if said else None,
        said=said,
        priority=priority_of(_word(values, "priority")),
        parent=_name(_word(values, "parent", "parent_task", "parentTask")),
        children=tuple(_names(values.get("children")) + _names(values.get("subtasks"))),
        names=frozenset(names),
        dated=_date(values, _MADE_KEYS) or source.dated,
        closed=_date(values, _DONE_KEYS),
        notes=_word(values, "notes"),
        rest=_rest(values, said) if not text else "",
        text=text,
    )


def _word(values: dict[str, Any], *keys: str) -> str:
    for key in keys:
        value = values.get(key)
        if isinstance(value, str) and value.strip():
            return NOT_TEXT.sub("\ufffd", value.strip())
        if isinstance(value, int | float) and not isinstance(value, bool):
            return str(value)
    return ""


def _name(text: str) -> str:
    """The last part of a path to a task folder."""
    return text.rstrip("/").rpartition("/")[2]


def _names(value: Any) -> list[str]:
    if not isinstance(value, list):
        return []
    names = [
        entry if isinstance(entry, str) else _word(entry, "name", "id") if isinstance(entry, dict) else ""
        for entry in value
    ]
    return [_name(name) for name in names if name]


def _date(values: dict[str, Any], keys: tuple[str, ...]) -> Dated | None:
    for key in keys:
        found = read_date(_word(values, key))
        if found:
            return found
    return None


def _rest(values: dict[str, Any], said: str) -> str:
    read = {*_READ_KEYS, "notes" if isinstance(values.get("notes"), str) else ""}
    if said and status_of_cell(said.replace("_", " ")):
        read.add(next(key for key in ("status", "state") if _word(values, key)))
    if priority_of(_word(values, "priority")):
        read.add("priority")
    read.add(next((key for key in _MADE_KEYS if read_date(_word(values, key))), ""))
    lines = []
    for key, value in values.items():
        if key in read or value is None or value in ("", [], {}):
            continue
        lines.append(f"{key}: {_flat(value)}")
    return "\n".join(lines)


def _flat(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return NOT_TEXT.sub("\ufffd", ", ".join(value))
    return NOT_TEXT.sub("\ufffd", value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def read_entries(source: Source) -> tuple[Entries, tuple[ReportLine, ...]]:
    """The entries of a JSON Lines file as lines `file — reason`; templates are left out, broken lines kept as text."""
    kept: list[str] = []
    templates: list[str] = []
    broken: list[int] = []
    for number, line in enumerate(source.text.split("\n"), 1):
        if not line.strip():
            continue
        entry, problem = _load(line)
        if problem:
            broken.append(number)
            kept.append(line.strip())
        elif (
            isinstance(entry, dict) and entry and all(key.startswith("_") or not value for key, value in entry.items())
        ):
            templates.append(one_line(line))
        else:
            kept.append(_entry(entry, line))
    report = []
    if broken:
        report.append(
            ReportLine(
                "broken",
                f"{len(broken)} lines are no valid JSON, the first is line {broken[0]}: kept as text",
                source.path,
                len(broken),
            )
        )
    if templates:
        report.append(
            ReportLine("placeholder", f"left out a template's line: {templates[0]}", source.path, len(templates))
        )
    return Entries("\n".join(kept), len(kept)), tuple(report)


def _entry(entry: Any, line: str) -> str:
    if not isinstance(entry, dict):
        return line.strip()
    if set(entry) <= {"file", "reason"} and all(isinstance(value, str) for value in entry.values()):
        return "- " + " — ".join(_flat(entry[key]) for key in ("file", "reason") if entry.get(key))
    return "- " + "; ".join(f"{key}: {_flat(value)}" for key, value in entry.items())
