"""What journals say of the things that plans name: the newest statement wins, what no plan names is work of its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from attrs import evolve

from agentmem.transfer.markdown.checklists import names_of, short_name
from agentmem.transfer.markdown.drafts import Draft, Drafts, Mention
from agentmem.transfer.markdown.files import Recency, is_journal_folder
from agentmem.transfer.markdown.status import Status
from agentmem.transfer.markdown.types import CLOSED, PlannedItem, ReportLine, SourceKey
from agentmem.transfer.markdown.words import GENERIC, norm

__all__ = ["apply_mentions"]

_SCOPES_MAX = 2
Target = tuple[Draft, PlannedItem | None]


def apply_mentions(drafts: Drafts, recency: Mapping[str, Recency]) -> None:
    """Let the boxes of journals tick, open and drop the boxes and steps that they name, the oldest first.

    A box that nothing else names becomes a box of one step for each folder of journals and task.
    """
    strong, weak = _index(drafts)
    last: dict[tuple[int, int], Recency] = {}
    news: dict[tuple[int, int], tuple[Draft, PlannedItem | None, Mention]] = {}
    pool: dict[str, list[Mention]] = defaultdict(list)
    same: dict[str, str] = {}
    for mention in sorted(drafts.mentions, key=lambda mention: mention.recency):
        targets = _targets(mention, strong, weak, drafts)
        if not targets:
            name = next((same[name] for name in sorted(mention.names) if name in same), norm(mention.text))
            same.update(dict.fromkeys(mention.names, name))
            pool[name].append(mention)
        for draft, item in targets:
            place = (id(draft), id(item))
            if last.get(place, recency.get(draft.source.path, ("", 0, "", 0))) < mention.recency:
                last[place] = mention.recency
                news[place] = (draft, item, mention)
    for draft, item, mention in news.values():
        _apply(draft, item, mention, drafts)
    _pooled(pool, drafts)


def _index(drafts: Drafts) -> tuple[dict[str, list[Target]], dict[str, list[Target]]]:
    """The boxes and steps by name, and by the short name of their first words."""
    strong: dict[str, list[Target]] = defaultdict(list)
    weak: dict[str, list[Target]] = defaultdict(list)
    for draft in drafts.notes:
        if draft.kind == "step" and not draft.items:
            for name in names_of(draft.title) - GENERIC:
                strong[name].append((draft, None))
        for item in draft.items:
            for name in names_of(item.text) - GENERIC:
                strong[name].append((draft, item))
            if short := short_name(item.text):
                weak[short].append((draft, item))
    return strong, weak


def _targets(
    mention: Mention, strong: dict[str, list[Target]], weak: dict[str, list[Target]], drafts: Drafts
) -> list[Target]:
    """What a box names: in the task of its session where that has it, else anywhere, unless too many trees have it."""
    for index in (strong, weak):
        found: dict[tuple[int, int], Target] = {}
        for name in mention.names:
            found.update({(id(draft), id(item)): (draft, item) for draft, item in index.get(name, [])})
        if not found:
            continue
        scopes = {draft.scope for draft, _ in found.values()}
        own = next((draft.scope for draft in drafts.tasks.values() if draft.source == mention.work), None)
        if own in scopes:
            return [target for target in found.values() if target[0].scope == own]
        return list(found.values()) if len(scopes) <= _SCOPES_MAX else []
    return []


def _apply(draft: Draft, item: PlannedItem | None, mention: Mention, drafts: Drafts) -> None:
    if item is None:
        told = {"done": "done", "open": "open", "dropped": "dropped"}[mention.state]
        if draft.whole or (draft.said is not None and (draft.said.value in CLOSED) == (told in CLOSED)):
            return
        draft.said = Status("done" if told == "done" else "dropped" if told == "dropped" else "open")
        name = draft.title
    else:
        place = next(n for n, one in enumerate(draft.items) if one is item)
        if mention.state == "dropped":
            del draft.items[place]
            draft.body = f"{draft.body}\n- [-] {item.text} (dropped: {mention.path})".strip()
        elif item.done == (mention.state == "done"):
            return
        else:
            draft.items[place] = evolve(item, done=mention.state == "done")
        name = item.text
    told = {"done": "done", "open": "open again", "dropped": "dropped"}[mention.state]
    drafts.report.append(ReportLine("status", f"“{name[:80]}” is {told} by {mention.path}", draft.source.path))


def _pooled(pool: dict[str, list[Mention]], drafts: Drafts) -> None:
    """The boxes that only journals name, each in the state it was last seen in."""
    steps: dict[tuple[str, SourceKey | None], Draft] = {}
    for mentions in pool.values():
        first, latest = mentions[0], mentions[-1]
        if latest.state == "dropped":
            continue
        name = (first.title, first.work)
        if name not in steps:
            steps[name] = _step(first, drafts)
        steps[name].items.append(PlannedItem(first.text, latest.state == "done"))


def _step(first: Mention, drafts: Drafts) -> Draft:
    work = first.work
    if work is None:
        source = drafts.key(first.path, ("goal",))
        goal = Draft(source=source, kind="goal", title=f"Journal: {first.title}", scope=first.path, whole=True)
        work = drafts.add(goal).source
    source = drafts.key(first.path, ("boxes",))
    title = "Noted in the journal" if is_journal_folder(first.title) else f"Noted in the journal: {first.title}"
    return drafts.add(Draft(source=source, kind="step", title=title, parent=work, scope=first.path))
