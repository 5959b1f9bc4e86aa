"""Statuses, once all notes are known: what follows from newer files, from boxes, and from closed tasks above."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from attrs import evolve

from agentmem.transfer.markdown.checklists import names_of
from agentmem.transfer.markdown.drafts import Draft, Drafts
from agentmem.transfer.markdown.files import Recency
from agentmem.transfer.markdown.mentions import apply_mentions
from agentmem.transfer.markdown.status import Status
from agentmem.transfer.markdown.types import CLOSED, ReportLine, SourceKey
from agentmem.transfer.markdown.words import GENERIC

__all__ = ["settle"]

_DEFAULTS: Final = {
    "question": "open",
    "fact": "active",
    "decision": "active",
    "lesson": "active",
    "attempt": "unclear",
}
_OLDEST: Final[Recency] = ("", 0, "", 0)
Said = dict[tuple[str, str], dict[str, bool]]


def settle(drafts: Drafts, recency: Mapping[str, Recency]) -> None:
    """Give every draft its status.

    Args:
        drafts: In the order of the tree, parents first.
        recency: What orders the files by age, by path.
    """
    _newest_wins(drafts, recency)
    apply_mentions(drafts, recency)
    by_key = {draft.source: draft for draft in drafts.notes}
    children: dict[SourceKey, list[Draft]] = defaultdict(list)
    for draft in drafts.notes:
        if draft.parent is not None:
            children[draft.parent].append(draft)
    ordered = _depth_first(drafts.notes, children, by_key)
    for draft in reversed(ordered):
        _from_below(draft, children[draft.source])
    for draft in ordered:
        _from_above(draft, by_key.get(draft.parent) if draft.parent else None)
    _count_unticked(drafts, by_key)


def _depth_first(
    notes: list[Draft], children: dict[SourceKey, list[Draft]], by_key: dict[SourceKey, Draft]
) -> list[Draft]:
    """The drafts with every parent before its children; one whose parent is missing counts as a top."""
    ordered: list[Draft] = []
    stack = [draft for draft in reversed(notes) if draft.parent is None or draft.parent not in by_key]
    while stack:
        draft = stack.pop()
        ordered.append(draft)
        stack.extend(reversed(children[draft.source]))
    return ordered


def _from_below(draft: Draft, children: list[Draft]) -> None:
    if draft.kind not in ("goal", "step"):
        draft.status = draft.status or _DEFAULTS[draft.kind]
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
        draft.closed_unticked = counts.get(draft.source, 0)


def _newest_wins(drafts: Drafts, recency: Mapping[str, Recency]) -> None:
    """Where several files of one tree give the same thing a status, all of them take that of the newest."""
    said: Said = defaultdict(dict)
    for draft in drafts.notes:
        if draft.kind == "step" and draft.said and not draft.whole:
            for name in names_of(draft.title) - GENERIC:
                said[draft.scope, name][draft.source.path] = draft.said.value in CLOSED
        for item in draft.items:
            for name in names_of(item.text) - GENERIC:
                said[draft.scope, name][draft.source.path] = item.done
    newest = {
        name: max(files, key=lambda path: recency.get(path, _OLDEST))
        for name, files in said.items()
        if len(files) > 1 and len(set(files.values())) > 1
    }
    if newest:
        for draft in drafts.notes:
            _apply_newest(draft, drafts, said, newest)


def _apply_newest(draft: Draft, drafts: Drafts, said: Said, newest: dict[tuple[str, str], str]) -> None:
    for number, item in enumerate(draft.items):
        path, done = _newer(draft, item.text, said, newest)
        if path and item.done != done:
            draft.items[number] = evolve(item, done=done)
            drafts.report.append(_overruled(draft, item.text, path, done=done))
    if draft.kind != "step" or draft.whole or draft.items:
        return
    path, done = _newer(draft, draft.title, said, newest)
    if path and (draft.said is None or (draft.said.value in CLOSED) != done):
        draft.said = Status("done" if done else "open")
        drafts.report.append(_overruled(draft, draft.title, path, done=done))


def _newer(draft: Draft, text: str, said: Said, newest: dict[tuple[str, str], str]) -> tuple[str, bool]:
    """The newer file that names a thing, and whether it is done by that; an empty path where there is none."""
    for name in sorted(names_of(text) - GENERIC):
        path = newest.get((draft.scope, name))
        if path and path != draft.source.path:
            return path, said[draft.scope, name][path]
    return "", False


def _overruled(draft: Draft, name: str, path: str, *, done: bool) -> ReportLine:
    told = f"“{name[:80]}” is {'done' if done else 'not done'} by {path}, which is newer"
    return ReportLine("status", told, draft.source.path)
