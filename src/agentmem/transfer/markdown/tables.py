"""Tables and lists of like things: entities of the types asked for, tasks with a status, proposals with a verdict."""

from __future__ import annotations

import re
from typing import Final, TypeAlias

from attrs import frozen

from agentmem import limits
from agentmem.transfer.markdown.blocks import Block, Row
from agentmem.transfer.markdown.roles import is_excluded
from agentmem.transfer.markdown.status import Status, is_status_label, result_of_cell, status_of_cell
from agentmem.transfer.markdown.types import PlannedEntity, SourceKey
from agentmem.transfer.markdown.words import cut_bytes, is_placeholder, plain, slug
from agentmem.types import CheckResult

__all__ = [
    "EntityType",
    "FoundEntity",
    "TaskColumns",
    "entities_of_list",
    "entities_of_table",
    "entity_type",
    "task_columns",
    "verdict_column",
]

_SYNONYMS: Final[dict[str, str]] = {
    "host": "hostname,ip,ip address,address,server,machine,node,target,主机,服务器,目标",
    "endpoint": "route,path,url,api,uri,接口,端点,路由",
    "file": "filename,file name,path,module,文件,路径",
    "ticket": "issue,bug,工单,问题单",
    "service": "服务",
    "user": "username,account,用户,账号",
    "package": "包",
    "test": "test case,测试,用例",
    "finding": "vulnerability,vuln,发现,漏洞",
    "port": "端口",
    "domain": "subdomain,域名",
    "commit": "hash,sha,提交",
}
_TASK_HEADERS: Final = frozenset(
    [
        "task",
        "tasks",
        "subtask",
        "sub task",
        "sub-task",
        "step",
        "item",
        "todo",
        "to do",
        "milestone",
        "phase",
        "stage",
        "work item",
        "deliverable",
        "story",
        "action",
        "任务",
        "子任务",
        "子 task",
        "步骤",
        "阶段",
        "事项",
        "工作项",
        "里程碑",
        "待办",
        "待办事项",
    ]
)
_VERDICT_HEADERS: Final = frozenset(
    ["verdict", "disposition", "decision", "resolution", "处置", "结论", "决定", "决策", "处理", "采纳情况"]
)
_REJECTED: Final = re.compile(
    r"^\W*(?:rejected?|not (?:adopted|doing|taken|accepted)|declined|won'?t (?:do|fix)"
    r"|不采纳|未采纳|不做|拒绝|否决|驳回)",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"^-?\d{1,15}(?:\.\d{1,9})?$")
_LIST_KEY: Final = re.compile(
    r"^(?:`([^`]+)`|\*\*(.+?)\*\*|(\S+))\s*(?:[:：—–|-]\s*|\s+[-—–]\s+|\s+|$)(.*)$", re.DOTALL
)
_DASHES: Final = frozenset({"-", "—", "–"})
_METHODS: Final = frozenset({"method", "verb", "方法", "http method"})
_SCOPE_HEADERS: Final = frozenset({"scope", "in scope", "in scope?", "范围", "在范围内", "是否在范围内"})
_NOT_IN_SCOPE: Final = frozenset({"no", "n", "out", "none", "否", "外", "❌", "✗", "✘"})
_NEEDS: Final = "needs"
_EMPTY_CELLS: Final = frozenset({"", "-", "—", "–", "?", "/", "…", "..."})


@frozen
class EntityType:
    """A type asked for, with the words by which a column or heading names it."""

    name: str
    words: frozenset[str]

    def names(self, text: str) -> bool:
        """Whether a column header is a name of the type."""
        return _fold(text) in self.words

    def heads(self, heading: str) -> bool:
        """Whether a heading speaks of things of the type: `Live hosts`, `主机列表`."""
        folded = _fold(heading)
        parts = re.findall(r"[a-z][a-z-]*", folded)
        own = {self.name.casefold(), *_plurals(self.name.casefold())}
        return bool(own & set(parts)) or any(not word.isascii() and word in folded for word in self.words)


FoundEntity: TypeAlias = tuple[PlannedEntity, frozenset[str]]
"""An entity and the names of the columns in its table that are empty all the way down: checks, where others say so."""


@frozen
class TaskColumns:
    """Which columns of a table name a task and its status."""

    title: int
    status: int


def entity_type(name: str) -> EntityType:
    """The type with its plural and the usual words for it, English and Chinese."""
    folded = name.strip().casefold()
    words = {folded, *_SYNONYMS.get(folded, "").split(",")} - {""}
    return EntityType(name.strip(), frozenset(words | {plural for word in words for plural in _plurals(word)}))


def _plurals(word: str) -> tuple[str, ...]:
    if not word.isascii():
        return ()
    return (f"{word}s", f"{word}es", f"{word[:-1]}ies" if word.endswith("y") else f"{word}s")


def _fold(text: str) -> str:
    return plain(text).casefold().strip(" :：`#")


def entities_of_table(block: Block, type: EntityType, heading: str, source: SourceKey) -> tuple[FoundEntity, ...]:
    """The rows of a table as entities, but for rows that say that they are out of scope.

    The key is the column that names the type, else, beneath a heading that does, the first.
    """
    key_column = next((n for n, header in enumerate(block.header) if type.names(header)), None)
    if key_column is None:
        key_column = 0 if block.header and type.heads(heading) else None
    if key_column is None:
        return ()
    method = next((n for n, header in enumerate(block.header) if _fold(header) in _METHODS and n != key_column), None)
    checks, dash_is_na = _check_columns(block, key_column)
    needs = tuple(dict.fromkeys(filter(None, (slug(block.header[column]) for column in sorted(checks)))))
    columns = _Columns(key_column, method, checks, dash_is_na, needs)
    empty = frozenset(
        slug(header)
        for n, header in enumerate(block.header)
        if slug(header) and all(n >= len(row.cells) or not row.cells[n].strip() for row in block.rows)
    )
    found = (_entity_of_row(block, row, type, columns, source) for row in block.rows if _is_ours(block, row))
    return tuple((entity, empty) for entity in found if entity)


def _is_ours(block: Block, row: Row) -> bool:
    """Whether no cell of a column of scope or status says that the row is out of scope."""
    for header, cell in zip(block.header, row.cells, strict=False):
        scope = _fold(header) in _SCOPE_HEADERS
        if (scope and plain(cell).strip().casefold() in _NOT_IN_SCOPE) or (
            (scope or is_status_label(header)) and is_excluded(cell)
        ):
            return False
    return True


@frozen
class _Columns:
    """The columns of a table of entities: key, HTTP method, results; whether a dash there means `na`; their names."""

    key: int
    method: int | None
    checks: frozenset[int]
    dash_is_na: bool
    needs: tuple[str, ...]


def _check_columns(block: Block, key_column: int) -> tuple[frozenset[int], bool]:
    """The columns that hold results and nothing else, and whether a dash in them is an answer.

    Where some cells of these columns are empty and others hold a dash, the dash was written to say something.
    """
    found = set()
    cells_of = {n: [row.cells[n].strip() for row in block.rows if n < len(row.cells)] for n in range(len(block.header))}
    for column, header in enumerate(block.header):
        told = [cell for cell in cells_of[column] if not _is_empty(cell)]
        if column != key_column and not is_status_label(header) and told and all(map(result_of_cell, told)):
            found.add(column)
    cells = [cell for column in found for cell in cells_of[column]]
    return frozenset(found), "" in cells and any(cell in _DASHES for cell in cells)


def _is_empty(cell: str) -> bool:
    return cell.strip() in _EMPTY_CELLS or cell.strip().casefold() in ("todo", "tbd", "pending", "待测", "未测")


def _entity_of_row(
    block: Block, row: Row, type: EntityType, columns: _Columns, source: SourceKey
) -> PlannedEntity | None:
    cells = [*row.cells, *[""] * (len(block.header) - len(row.cells))]
    key = plain(cells[columns.key]).replace("`", "").strip()
    if is_placeholder(key):
        return None
    if columns.method is not None and not re.match(r"^[A-Z]{3,7} ", key):
        key = f"{plain(cells[columns.method]).upper()} {key}".strip()
    if len(key) > limits.KEY_CHARS:
        return None
    attrs: dict[str, str | int | float] = {}
    results: dict[str, CheckResult] = {}
    status: str | None = None
    for column, header in enumerate(block.header):
        cell = cells[column]
        dash = columns.dash_is_na and column in columns.checks and cell.strip() in _DASHES
        says = not _is_empty(cell) or dash or (is_status_label(header) and bool(slug(cell)))
        if column in (columns.key, columns.method) or not says:
            continue
        result = "na" if dash else result_of_cell(cell)
        if column in columns.checks and result:
            results[slug(header)] = result
        elif is_status_label(header) and status is None and slug(cell):
            status = _status_token(cell)
            if slug(cell) != status:
                attrs[_attr_name(header, attrs)] = cell
        else:
            attrs[_attr_name(header, attrs)] = _value(cell)
    return PlannedEntity(
        source=source, type=type.name, key=key, attrs=attrs, status=status, checks=results, needs=columns.needs
    )


def _status_token(cell: str) -> str:
    token = slug(cell)
    known = status_of_cell(cell)
    return token if len(token.split("-")) <= 3 or known is None else known.value


def _attr_name(header: str, taken: dict[str, str | int | float]) -> str:
    name = slug(header, limits.ATTR_NAME_CHARS - 4).replace("-", "_") or "column"
    if name == _NEEDS:  # the attribute that holds the checks of the row
        name = f"{name}_column"
    return name if name not in taken else f"{name}_{len(taken)}"


def _value(cell: str) -> str | int | float:
    bare = cell.strip()
    if _NUMBER.match(bare) and str(int(float(bare)) if "." not in bare else float(bare)) == bare:
        return float(bare) if "." in bare else int(bare)
    return cut_bytes(bare, 8 * 1024)


def entities_of_list(block: Block, type: EntityType, source: SourceKey) -> tuple[FoundEntity, ...]:
    """The items of a list as entities: `` `10.0.0.1` — web `` is a key and a note."""
    found = []
    for item in block.items:
        text = re.sub(rf"^(?:{re.escape(type.name)})\s*[:：]\s*", "", item.text, flags=re.IGNORECASE)
        match = _LIST_KEY.match(text)
        key = (match[1] or match[2] or match[3] or "").strip(" :：`*") if match else ""
        if match is None or is_placeholder(key) or len(key) > limits.KEY_CHARS:
            continue
        attrs: dict[str, str | int | float] = (
            {"note": cut_bytes(match[4].strip(), 8 * 1024)} if match[4].strip() else {}
        )
        status = "done" if item.done else None
        entity = PlannedEntity(source=source, type=type.name, key=key, attrs=attrs, status=status)
        found.append((entity, frozenset[str]()))
    return tuple(found)


def task_columns(block: Block) -> TaskColumns | None:
    """The columns of a table of tasks with a status, None for any other table."""
    status = next((n for n, header in enumerate(block.header) if is_status_label(header)), None)
    title = next((n for n, header in enumerate(block.header) if _fold(header) in _TASK_HEADERS), None)
    if status is None or title is None or status == title:
        return None
    return TaskColumns(title, status)


def verdict_column(block: Block) -> tuple[int, int] | None:
    """The columns of a table of proposals, what was proposed and the verdict on it, where some were rejected."""
    verdict = next((n for n, header in enumerate(block.header) if _fold(header) in _VERDICT_HEADERS), None)
    if verdict is None:
        return None
    others = [n for n in range(len(block.header)) if n != verdict]
    if not others or not any(is_rejected(row, verdict) for row in block.rows):
        return None
    widest = max(others, key=lambda n: sum(len(row.cells[n]) for row in block.rows if n < len(row.cells)))
    return widest, verdict


def is_rejected(row: Row, verdict: int) -> bool:
    """Whether the verdict of a row is that the thing is not done."""
    return verdict < len(row.cells) and bool(_REJECTED.match(plain(row.cells[verdict])))


def row_status(row: Row, columns: TaskColumns) -> Status | None:
    """The status that a row of a table of tasks gives."""
    return status_of_cell(row.cells[columns.status]) if columns.status < len(row.cells) else None
