"""Records and outcomes as lines for a model: compact, untrusted text quoted, nothing repeated that the caller said."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final

from agentmem.context.escape import prompt_block, prompt_inline, quoted_block
from agentmem.context.lines import day, inline, minute
from agentmem.context.tokens import count_tokens, cut
from agentmem.session_types import Record, SessionEvent, SessionInfo
from agentmem.store import Store
from agentmem.types import (
    UNTRUSTED,
    Brief,
    Checkpoint,
    Earlier,
    Entity,
    ExpectedChecks,
    Item,
    Link,
    Mark,
    Note,
    Project,
    Summary,
)

__all__ = [
    "BODY_TOKENS",
    "compact",
    "counted",
    "entity_line",
    "joined",
    "listed",
    "mark_line",
    "record",
    "remarks",
    "title_line",
    "trusted",
]

BODY_TOKENS: Final = 2500
"""Tokens of one long text of a record that `get` shows; `read` gives the rest."""

_HANGING: Final = 20  # children, links, notes about it: so many lines each
_ITEMS: Final = 100
_ATTRS_CHARS: Final = 400  # of the attributes of an entity in a list
# What begins a line of ours beside what is escaped everywhere: a text of an agent must not pass for it.
_OURS: Final = re.compile(
    r"(?:notice|similar|earlier|error(?: \w+)?|why|next|more|result|work|news|cut|bookmark|checkpoint|yours[^:]*|pinned):"
    r"|(?:->|<-)\s|\d+\.\d+ \[|yours until",
    re.IGNORECASE,
)


def compact(value: Any) -> str:
    """A value as JSON in a line, hidden characters shown."""
    return prompt_inline(json.dumps(value, ensure_ascii=False, separators=(",", ":")), inside=True)


def counted(counts: Iterable[tuple[int, str]]) -> str:
    """`3 created, 2 unchanged`; those of nothing left out."""
    return ", ".join(f"{number} {word}" for number, word in counts if number) or "nothing to do"


def joined(lines: Iterable[str]) -> str:
    """Lines as one text."""
    return "\n".join(line for line in lines if line)


def remarks(notices: Iterable[str], similar: Iterable[Brief] = (), earlier: Iterable[Earlier] = ()) -> list[str]:
    """What a write has to say beside its outcome."""
    found = [f"notice: {notice}" for notice in notices]
    found += [f"similar: #{one.id} {one.kind} [{one.status}] {inline(one.title, one.origin)}" for one in similar]
    for one in earlier:
        why = f" ({inline(one.why, one.origin)})" if one.why else ""
        found.append(f"earlier: #{one.id} [{one.status}] {inline(one.title, one.origin)}{why}")
    return found


def title_line(note: Note) -> str:
    """A note in one line."""
    tags = f" [{' '.join(note.tags)}]" if note.tags else ""
    return f"#{note.id} {note.kind} [{note.status}]{tags} {inline(note.title, note.origin)}"


def entity_line(entity: Entity) -> str:
    """An entity in one line: its key, status, checks, attributes."""
    checks = " ".join(f"{name}={result}" for name, result in entity.checks.items())
    parts = [inline(entity.key, entity.origin), f"[{entity.status}]", checks]
    if entity.attrs:
        attrs = compact(dict(entity.attrs))
        shown = attrs if len(attrs) <= _ATTRS_CHARS else f"{attrs[:_ATTRS_CHARS]}…"
        parts.append(_quoted(shown, entity.origin))
    return " ".join(part for part in parts if part)


def _quoted(line: str, origin: str) -> str:
    return inline(line, origin) if origin in UNTRUSTED else line


def record(store: Store, value: Record) -> str:
    """A record in full, with what hangs on it."""
    match value:
        case Note():
            return joined(_note(store, value))
        case Entity():
            return joined(_entity(store, value))
        case Item():
            done = f" done {day(value.done_at)}" if value.done_at is not None else ""
            by = f" by {value.done_by}" if value.done_by else ""
            return f"{value.ref} [{'x' if value.done else ' '}] {inline(value.text, value.origin)}{done}{by}"
        case Checkpoint():
            of = f" of #{value.task}" if value.task is not None else ""
            by = f" by {value.author}" if value.author else ""
            return joined(
                [f"#{value.id} checkpoint{of} {minute(value.at)}{by}", _block(value.id, value.text, value.origin)]
            )
        case Summary():
            return joined(_summary(value))
        case ExpectedChecks():
            where = f" where {inline(value.where, value.origin)}" if value.where else ""
            return f"#{value.id} checks expected of {value.type}{where}: {', '.join(value.names)}"
        case Project():
            return f"#{value.id} project {inline(value.name)}"
        case SessionInfo():
            return joined(_session(store, value))
        case SessionEvent():
            return joined(_event(value))


def _session(store: Store, session: SessionInfo) -> list[str]:
    """A session with its state and its latest events."""
    title = f" {inline(session.title, session.origin)}" if session.title else ""
    found = [f"#{session.id} session [{session.status}]{title}"]
    parts = [f"task #{session.task}"] if session.task is not None else []
    parts += [f"about #{session.about}"] if session.about is not None else []
    parts += [f"parent #{session.parent}"] if session.parent is not None else []
    parts += [f"forked from #{session.forked_from} at {session.forked_at}"] if session.forked_from is not None else []
    parts += [f"agent {inline(str(session.agent['name']), session.origin)}"] if session.agent else []
    parts += [f"archived {day(session.archived_at)}"] if session.archived_at is not None else []
    by = f" by {inline(session.author)}" if session.author else ""
    found.append("; ".join([*parts, f"begun {minute(session.created_at)}{by}, last event {session.last}"]))
    told = store.sessions.get(session.id)
    for key, event in told.state().items():
        found.append(f"{inline(key)}: {_said(event)}")
    latest = told.events(newest_first=True, limit=_HANGING + 1)
    if len(latest) > _HANGING:
        found.append(f"cut: earlier events before #{latest[_HANGING - 1].id}")
    return [*found, *(f"- #{event.id} {event.type}: {_said(event)}" for event in reversed(latest[:_HANGING]))]


def _said(event: SessionEvent) -> str:
    """The beginning of what an event says, in one line."""
    if event.body is None:
        return "(purged)"
    text = event.text or compact(event.body)
    return inline(text if len(text) <= _ATTRS_CHARS else f"{text[:_ATTRS_CHARS]}…", event.origin)


def _event(event: SessionEvent) -> list[str]:
    """An event of a session: what it is, and its text, or its body where it says nothing in words."""
    of = f" of #{event.target}" if event.target is not None else ""
    key = f" {inline(event.key)}" if event.key is not None else ""
    by = f" by {inline(event.author)}" if event.author else ""
    head = f"#{event.id} {event.type}{key}{of} in session #{event.session} {minute(event.at)}{by}"
    if event.body is None:
        return [head, "(purged)"]
    return [head, _block(event.id, event.text, event.origin) if event.text else _said(event)]


def _note(store: Store, note: Note) -> list[str]:
    found = [title_line(note), _about_note(store, note)]
    if note.body:
        found.append(_block(note.id, note.body, note.origin))
    if note.why:
        found.append(f"why: {inline(note.why, note.origin)}")
    summary = _summary_beneath(store, note)
    if summary is not None:
        found += _summary(summary)
    items = store.checklists.items(note, limit=_ITEMS + 1)
    found += [f"{item.ref} [{'x' if item.done else ' '}] {inline(item.text, item.origin)}" for item in items[:_ITEMS]]
    if len(items) > _ITEMS:
        found.append(
            f'cut: more items: more("checklists.items", {{"note": "{note.id}", "after": "{items[_ITEMS - 1].ref}"}})'
        )
    found += _children(store, note)
    found += _links(store, note)
    return found


def _about_note(store: Store, note: Note) -> str:
    parts = []
    if note.parent is not None:
        parts.append(f"parent #{note.parent}")
    if note.entity is not None:
        parts.append(f"about {_entity_name(store, note.entity)}")
    if note.pinned:
        parts.append("pinned")
    if note.scope is not None:
        checks = f" checks {', '.join(note.scope.checks)}" if note.scope.checks else ""
        where = f" where {inline(note.scope.where, note.origin)}" if note.scope.where else ""
        parts.append(f"scope {note.scope.type}{where}{checks}")
    if note.confidence is not None:
        parts.append(f"confidence {note.confidence:.2g}")
    if note.basis:
        parts.append(f"basis {inline(note.basis, note.origin)}")
    if note.source:
        parts.append(f"source {inline(note.source, note.origin)}")
    if note.dated is not None:
        parts.append(f"dated {day(note.dated)}")
    if note.confirmed_at is not None:
        parts.append(f"confirmed {day(note.confirmed_at)}")
    by = f" by {note.author}" if note.author else ""
    parts.append(f"written {minute(note.created_at)}{by}, revision {note.revision}")
    return "; ".join(parts)


def _entity_name(store: Store, entity: int) -> str:
    value = store.get(entity)
    return f"{value.type}:{inline(value.key, value.origin)}" if isinstance(value, Entity) else f"#{entity}"


def _block(found: int, text: str | None, origin: str, field: str = "") -> str:
    """A long text, its beginning if it is too long, and how to read the rest."""
    if not text:
        return ""
    kept = text if len(text) < BODY_TOKENS else cut(text, BODY_TOKENS, count_tokens, ending=_nothing)
    shown = quoted_block(kept, origin) if origin in UNTRUSTED else trusted(kept)
    if len(kept) == len(text):
        return shown
    rest = len(text) - len(kept)
    named = f', "field": "{field}"' if field else ""
    return f'{shown}\ncut: {rest} more characters: more("read", {{"ref": "{found}", "start": {len(kept)}{named}}})'


def _nothing(_: str) -> str:
    return ""


def trusted(text: str) -> str:
    """A text of many lines that an agent or a person wrote: each line begins nothing of ours."""
    return prompt_block(text, _OURS)


def _summary_beneath(store: Store, note: Note) -> Summary | None:
    return store.task_summary(note).summary if note.kind in ("goal", "step") else None


def _summary(summary: Summary) -> list[str]:
    stale = " (stale: something beneath changed later)" if summary.stale else ""
    found = [f"#{summary.id} summary of #{summary.note}{stale}"]
    if summary.result:
        found.append(f"result: {_block(summary.id, summary.result, summary.origin, 'result')}")
    if summary.work:
        found.append(f"work: {_block(summary.id, summary.work, summary.origin, 'work')}")
    return found


def _children(store: Store, note: Note) -> list[str]:
    below = store.notes.list(parent=note, limit=_HANGING + 1)
    found = [f"- {title_line(child)}" for child in below[:_HANGING]]
    if len(below) > _HANGING:
        after = below[_HANGING - 1].id
        found.append(f'cut: more beneath: more("notes.list", {{"parent": "{note.id}", "after": {after}}})')
    return found


def _links(store: Store, note: Note | Entity) -> list[str]:
    links = store.links.list(note, limit=_HANGING + 1)
    found = [_link(note.id, link) for link in links[:_HANGING]]
    if len(links) > _HANGING:
        found.append(f'cut: more links: more("links.list", {{"ref": "{note.id}", "after": {links[_HANGING - 1].seq}}})')
    return found


def _link(of: int, link: Link) -> str:
    return f"-> {link.kind} #{link.dst}" if link.src == of else f"<- {link.kind} from #{link.src}"


def _entity(store: Store, entity: Entity) -> list[str]:
    head = f"#{entity.id} {entity.type}:{inline(entity.key, entity.origin)} [{entity.status}]"
    parts = [] if entity.parent is None else [f"parent {_entity_name(store, entity.parent)}"]
    if entity.confidence is not None:
        parts.append(f"confidence {entity.confidence:.2g}")
    parts.append(f"changed {minute(entity.updated_at)}, revision {entity.revision}")
    found = [head, "; ".join(parts)]
    if entity.attrs:
        found.append(f"attrs {_quoted(compact(_shortened(dict(entity.attrs))), entity.origin)}")
    found += [mark_line(mark) for mark in store.entities.marks(entity)]
    about = store.notes.list(about=entity, limit=_HANGING + 1)
    found += [f"- {title_line(note)}" for note in about[:_HANGING]]
    if len(about) > _HANGING:
        after = about[_HANGING - 1].id
        found.append(f'cut: more about it: more("notes.list", {{"about": "{entity.id}", "after": {after}}})')
    below = store.entities.children(entity, limit=_HANGING + 1)
    found += [f"- {child.type}:{entity_line(child)}" for child in below[:_HANGING]]
    if len(below) > _HANGING:
        after = below[_HANGING - 1].id
        found.append(f'cut: more beneath: more("entities.children", {{"entity": "{entity.id}", "after": {after}}})')
    return [*found, *_links(store, entity)]


def _shortened(value: Any) -> Any:
    """A value of JSON whose long texts are cut: what is longer belongs into a note."""
    if isinstance(value, str):
        return value if len(value) <= 2 * _ATTRS_CHARS else f"{value[: 2 * _ATTRS_CHARS]}…"
    if isinstance(value, dict):
        return {name: _shortened(part) for name, part in value.items()}
    return [_shortened(part) for part in value] if isinstance(value, list) else value


def mark_line(mark: Mark) -> str:
    """A mark in one line."""
    value = f" = {_quoted(compact(mark.value), mark.origin)}" if mark.value is not None else ""
    detail = f" ({inline(mark.detail, mark.origin)})" if mark.detail else ""
    by = f" by {mark.author}" if mark.author else ""
    return f"{mark.name}: {mark.result}{value}{detail} {day(mark.at)}{by}"


def listed(lines: Sequence[str], nothing: str = "nothing") -> str:
    """Lines, or a word where there are none."""
    return "\n".join(lines) if lines else nothing
