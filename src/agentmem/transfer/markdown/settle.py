"""Statuses, once all notes are known: what follows from boxes, from closed tasks above, and from newer files."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from attrs import evolve

from .drafts import Draft, Drafts
from .status import Status
from .types import CLOSED, ReportLine, SourceKey
from .words import norm

__all__ = ["settle"]

_GENERIC: Final = frozenset(
    map(
        norm,
        [
            "acceptance criteria",
            "requirements",
            "definition of done",
            "tasks",
            "todo",
            "checklist",
            "steps",
            "plan",
            "implementation plan",
            "summary",
            "validation",
            "verification",
            "testing",
            "tests",
            "documentation",
            "docs",
            "scope",
            "next steps",
            "must have",
            "nice to have",
            "验收标准",
            "验收",
            "需求",
            "任务",
            "待办",
            "测试",
            "文档",
            "执行清单",
        ],
    )
)
_NAME_CHARS: Final = 4
_ENTITYLIKE: Final = {
    "question": "open",
    "fact": "active",
    "decision": "active",
    "lesson": "active",
    "attempt": "unclear",
}


def settle(drafts: Drafts, recency: dict[str, tuple[object, ...]]) -> None:
    """Give every draft its status.

    Args:
        drafts: In the order of the tree, parents first.
        recency: What orders the files by age, by path.
    """
    _newest_wins(drafts, recency)
    by_key = {draft.source: draft for draft in drafts.notes}
    children: dict[SourceKey, list[Draft]] = defaultdict(list)
    for draft in drafts.notes:
        if draft.parent is not None:
            children[draft.parent].append(draft)
    for draft in reversed(drafts.notes):
        _from_below(draft, children[draft.source])
    for draft in drafts.notes:
        parent = by_key.get(draft.parent) if draft.parent else None
        _from_above(draft, parent)
    _count_unticked(drafts, by_key)


def _from_below(draft: Draft, children: list[Draft]) -> None:
    if draft.kind not in ("goal", "step"):
        draft.status = draft.status or _ENTITYLIKE[draft.kind]
        return
    if draft.said is not None:
        draft.status = draft.said.value
        return
    marks = [item.done for item in draft.items]
    below = [child.status for child in children if child.kind == "step"]
    closed = [*marks, *(status in CLOSED for status in below)]
    if closed and all(closed):
        draft.status = "done"
    elif any(closed) or "active" in below:
        draft.status = "active"
    else:
        draft.status = "open"


def _from_above(draft: Draft, parent: Draft | None) -> None:
    """Below a closed step or goal nothing is left, except a task that has a status of its own."""
    if parent is None or parent.kind not in ("goal", "step") or parent.status not in CLOSED or draft.whole:
        return
    if draft.kind == "step" and draft.status not in CLOSED:
        draft.status = "done" if parent.status == "done" else "dropped"
    elif draft.kind == "question" and draft.status == "open":
        draft.status = "dropped"


def _count_unticked(drafts: Drafts, by_key: dict[SourceKey, Draft]) -> None:
    """Count, on the topmost closed note, the boxes that were never ticked in and beneath it."""
    counts: dict[SourceKey, int] = defaultdict(int)
    for draft in drafts.notes:
        unticked = sum(not item.done for item in draft.items)
        if not unticked or draft.status not in CLOSED:
            continue
        top, above = draft, by_key.get(draft.parent) if draft.parent else None
        while above is not None and above.status in CLOSED and not top.whole:
            top, above = above, by_key.get(above.parent) if above.parent else None
        counts[top.source] += unticked
    for draft in drafts.notes:
        count = counts.get(draft.source, 0)
        if count:
            draft.closed_unticked = count
            line = f"Closed with {count} unticked."
            draft.body = f"{draft.body}\n\n{line}".strip()


def _newest_wins(drafts: Drafts, recency: dict[str, tuple[object, ...]]) -> None:
    """Where several files of one tree give the same thing a status, all of them take that of the newest."""
    said: dict[tuple[str, str], dict[str, bool]] = defaultdict(dict)
    for draft in drafts.notes:
        name = norm(draft.title)
        if draft.kind == "step" and draft.said and _names(name) and not draft.whole:
            said[draft.scope, name][draft.source.path] = draft.said.value in CLOSED
        for item in draft.items:
            if _names(norm(item.text)):
                said[draft.scope, norm(item.text)][draft.source.path] = item.done
    newest = {
        name: max(files, key=lambda path: (recency.get(path, ()), path))
        for name, files in said.items()
        if len(files) > 1 and len(set(files.values())) > 1
    }
    if not newest:
        return
    for draft in drafts.notes:
        _apply_newest(draft, drafts, said, newest)


def _apply_newest(
    draft: Draft, drafts: Drafts, said: dict[tuple[str, str], dict[str, bool]], newest: dict[tuple[str, str], str]
) -> None:
    for number, item in enumerate(draft.items):
        name = (draft.scope, norm(item.text))
        path = newest.get(name)
        if path and path != draft.source.path and item.done != said[name][path]:
            draft.items[number] = evolve(item, done=said[name][path])
            drafts.report.append(_overruled(draft, item.text, path, done=said[name][path]))
    name = (draft.scope, norm(draft.title))
    path = newest.get(name)
    if draft.kind == "step" and not draft.whole and path and path != draft.source.path and not draft.items:
        done = said[name][path]
        if draft.said is None or (draft.said.value in CLOSED) != done:
            draft.said = Status("done" if done else "open")
            drafts.report.append(_overruled(draft, draft.title, path, done=done))


def _overruled(draft: Draft, name: str, path: str, *, done: bool) -> ReportLine:
    return ReportLine(
        "status", f"“{name[:80]}” is {'done' if done else 'not done'} by {path}, which is newer", draft.source.path
    )


def _names(name: str) -> bool:
    return len(name) >= _NAME_CHARS and name not in _GENERIC
