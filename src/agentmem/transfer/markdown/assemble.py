"""From drafts to the plan: order, entities that several files name, summaries, checkpoints, the report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from attrs import evolve

from agentmem import limits
from agentmem.transfer.markdown.drafts import Draft, Drafts, Finding
from agentmem.transfer.markdown.files import Recency, Source
from agentmem.transfer.markdown.types import (
    CLOSED,
    Plan,
    PlannedCheckpoint,
    PlannedEntity,
    PlannedNote,
    PlannedSummary,
    ReportLine,
    SourceKey,
)
from agentmem.transfer.markdown.words import cut_bytes, norm

__all__ = ["assemble"]

_BRIEF = 120
_NO_CHECKPOINT = frozenset({"index", "readme", "readme-zh", "license", "contributing"})


def assemble(root: Path, sources: Iterable[Source], drafts: Drafts, kinds: dict[str, str]) -> Plan:
    """The plan of settled drafts."""
    notes = _parents_first([note for draft in _without_repeats(drafts.notes) for note in draft.to_notes()])
    by_key = {draft.source: draft for draft in drafts.notes}
    plan = Plan(
        root=root,
        notes=tuple(notes),
        entities=_merge_entities(drafts.entities),
        summaries=_summaries(drafts, by_key),
        checkpoints=_checkpoints(drafts, by_key),
        files=tuple(source.to_file(kinds.get(source.path, "doc")) for source in sources),
    )
    return plan.with_report(*_made(plan), *_grouped(drafts.report))


def _without_repeats(notes: list[Draft]) -> list[Draft]:
    """The notes, of decisions and lessons that say word for word the same in one task only the first."""
    seen: set[tuple[str, SourceKey | None, str, str]] = set()
    kept = []
    for draft in notes:
        if draft.kind in ("decision", "lesson", "attempt") and not draft.body:
            name = (draft.kind, draft.parent, norm(draft.title), norm(draft.why))
            if name in seen:
                continue
            seen.add(name)
        kept.append(draft)
    return kept


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


def _merge_entities(found: list[tuple[Recency, PlannedEntity, frozenset[str]]]) -> tuple[PlannedEntity, ...]:
    """One entity for each type and key; where files differ, the newest wins, attribute by attribute.

    What it needs is what any of its tables asks: also by a column of which no cell is filled in yet, where another
    table of the type has results in a column of that name.
    """
    asked: dict[str, set[str]] = defaultdict(set)
    for _, entity, _ in found:
        asked[entity.type].update(entity.needs)
    merged: dict[tuple[str, str], PlannedEntity] = {}
    for _, one, empty in sorted(found, key=lambda one: one[0]):
        name = (one.type, one.key)
        before = merged.get(name)
        needs = {*one.needs, *(empty & asked[one.type]), *(before.needs if before else ())}
        entity = evolve(one, needs=tuple(sorted(needs)))
        if before is None:
            merged[name] = entity
            continue
        merged[name] = evolve(
            before,
            attrs={**before.attrs, **entity.attrs},
            checks={**before.checks, **entity.checks},
            status=entity.status or before.status,
            needs=entity.needs,
        )
    return tuple(sorted(merged.values(), key=lambda entity: (entity.type, entity.source, entity.key)))


def _summaries(drafts: Drafts, by_key: dict[SourceKey, Draft]) -> tuple[PlannedSummary, ...]:
    """The summaries of closed tasks: their own outcome, else what sessions say of the task they name."""
    found: dict[SourceKey, list[Finding]] = defaultdict(list)
    for finding in drafts.outcomes:
        task = by_key.get(finding.task) if finding.task else None
        if task is not None and task.kind in ("goal", "step") and task.status in CLOSED:
            found[task.source].append(finding)
    summaries = []
    for key, findings in found.items():
        own = [finding for finding in findings if finding.heading != "journal"]
        texts = dict.fromkeys(finding.text.strip() for finding in own or findings)
        result = cut_bytes("\n\n".join(texts), limits.SUMMARY_BYTES)
        summaries.append(PlannedSummary(key, by_key[key].title, result))
    return tuple(summaries)


def _checkpoints(drafts: Drafts, by_key: dict[SourceKey, Draft]) -> tuple[PlannedCheckpoint, ...]:
    """The newest standing of each open task and of each folder of journals; an empty one overtakes older ones."""
    newest: dict[tuple[SourceKey | None, str], Finding] = {}
    for finding in drafts.standings:
        folder, _, file = finding.source.path.rpartition("/")
        if file.rpartition(".")[0].casefold() in _NO_CHECKPOINT:
            continue
        if finding.heading != "journal" and finding.task is None:
            continue
        name = (finding.task, folder if finding.task is None else "")
        before = newest.get(name)
        if before is None or before.recency <= finding.recency:
            newest[name] = finding
    open_ones = [
        finding
        for finding in newest.values()
        if finding.says and (finding.task is None or by_key[finding.task].status not in CLOSED)
    ]
    return tuple(
        PlannedCheckpoint(
            text=_standing(finding, drafts.standings),
            task=finding.task,
            dated=finding.dated,
            source=finding.source,
        )
        for finding in sorted(open_ones, key=lambda finding: finding.recency)
    )


def _standing(finding: Finding, others: list[Finding]) -> str:
    """Where the work stands, then what to beware of, then what is next: a reader may cut the text at its end.

    A warning holds until a later session gives others: where this one gives none, the newest of its task comes in, else
    of its folder. Before a warning the standing is told in brief; all of it is in the note of the session.
    """
    beware = finding.beware
    if finding.heading == "journal" and not beware:
        warned = [one for one in others if one.beware and one.recency < finding.recency]
        of_task = [one for one in warned if finding.task is not None and one.task == finding.task]
        of_folder = [one for one in warned if _folder(one) == _folder(finding)]
        last = max(of_task or of_folder, key=lambda one: one.recency, default=None)
        if last is not None:
            label, _, text = last.beware.partition(":\n")
            day = f" ({last.dated.isoformat()[:10]})" if last.dated else ""
            beware = f"{label}{day}:\n{text}"
    stands = _brief(finding.text) if beware else finding.text
    return cut_bytes("\n\n".join(filter(None, (stands, beware, finding.next))), limits.CHECKPOINT_BYTES)


def _folder(finding: Finding) -> str:
    return finding.source.path.rpartition("/")[0]


def _brief(text: str) -> str:
    """The beginning of a text, up to a sentence, of about `_BRIEF` tokens."""
    used = 0.0
    for place, char in enumerate(text):
        used += 0.25 if char.isascii() else 1
        if used > _BRIEF:
            ends = [text.rfind(mark, 0, place) for mark in (". ", ".\n", "。", "\n\n")]
            end = max(ends) + 1 if max(ends) > place // 2 else place
            return text[:end].rstrip() + " …"
    return text


def _made(plan: Plan) -> list[ReportLine]:
    """What became what, in numbers."""
    counts: list[tuple[int, str]] = []
    for kind, count in sorted(Counter(file.kind for file in plan.files).items()):
        counts.append((count, f"{count} {'file' if count == 1 else 'files'} read as {kind}"))
    for name, count in sorted(Counter(f"{note.kind} {note.status}" for note in plan.notes).items()):
        counts.append((count, f"{count} × {name}"))
    boxes = Counter(item.done for _, item in plan.items)
    if boxes:
        counts.append((boxes.total(), f"{boxes[True]} ticked and {boxes[False]} unticked boxes"))
    for name, count in sorted(Counter(entity.type for entity in plan.entities).items()):
        counts.append((count, f"{count} × entity {name}"))
    for name, found in (("summary", plan.summaries), ("checkpoint", plan.checkpoints)):
        if found:
            counts.append((len(found), f"{len(found)} × {name}"))
    lines = [ReportLine("made", text, count=count) for count, text in counts]
    closed = [note for note in plan.notes if note.closed_unticked]
    lines.extend(
        ReportLine(
            "made",
            f"“{note.title[:80]}” is closed with {note.closed_unticked} unticked",
            note.source.path,
            note.closed_unticked,
        )
        for note in closed
    )
    return lines


def _grouped(report: list[ReportLine]) -> list[ReportLine]:
    """The report with templates' lines that say the same in many files as one line."""
    grouped: dict[str, list[ReportLine]] = defaultdict(list)
    kept = []
    for line in report:
        if line.kind == "placeholder":
            grouped[line.text].append(line)
        else:
            kept.append(line)
    for text, lines in grouped.items():
        count = sum(line.count for line in lines)
        where = lines[0].path if len(lines) == 1 else ""
        told = text if len(lines) == 1 else f"{text} ({count} times in {len(lines)} files)"
        kept.append(ReportLine("placeholder", told, where, count))
    return kept
