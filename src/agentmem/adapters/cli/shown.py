"""How commands show the values they share: what a write did, a record, a list of notes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from agentmem.adapters.cli.output import Output
from agentmem.adapters.cli.values import iso, plain

if TYPE_CHECKING:
    from agentmem.records.projects import KindSize
    from agentmem.session_types import Record
    from agentmem.types import Brief, Entity, Head, Note, Written, WrittenMany


def written(out: Output, done: Written) -> None:
    """What a write did to one record: its id on stdout, the rest as remarks."""
    if out.json:
        out.value(done)
        return
    out.text(str(done.id))
    if done.repeated:
        out.say("repeated: nothing was written again" + (", and its record was purged since" if done.gone else ""))
    elif not done.changed:
        out.say("nothing changed")
    elif done.changed != ("created",):
        out.say(f"changed: {', '.join(done.changed)}")
    remarks(out, done.notices, done.similar)


def remarks(out: Output, notices: Iterable[str], similar: Iterable[Brief] = ()) -> None:
    """What a write has to say beside its outcome."""
    for notice in notices:
        out.say(f"notice: {notice}")
    for other in similar:
        out.say(f"similar: {other.id} {other.kind} [{other.status}] {inline(other.title, other.origin)}")


def many(out: Output, done: WrittenMany, *, names: Sequence[str] | None = None) -> None:
    """What a write did to many records.

    Args:
        out: Where to write.
        done: What was done.
        names: What to print of it, one a line, instead of the counts.
    """
    if out.json:
        out.value(done, **({} if names is None else {"refs": list(names)}))
        return
    counts = [
        f"{count} {word}"
        for count, word in ((done.created, "created"), (done.changed, "changed"), (done.unchanged, "unchanged"))
        if count
    ]
    if names is None:
        out.text(", ".join(counts) or "nothing to do")
    elif names:
        out.text("\n".join(names))
        if done.changed or done.unchanged:
            out.say(", ".join(counts))
    if done.repeated:
        out.say("repeated: nothing was written again")
    remarks(out, done.notices)


def inline(text: str | None, origin: str = "agent") -> str:
    """A record's text within a line; untrusted text is quoted and marked."""
    from agentmem.context.lines import inline as in_line

    return in_line(text, origin)


def block(text: str, origin: str) -> str:
    """A record's text of many lines; untrusted text is quoted and marked."""
    from agentmem.context.escape import quoted_block
    from agentmem.types import UNTRUSTED

    return quoted_block(text, origin) if origin in UNTRUSTED else text


def when(microseconds: int | None) -> str:
    """A time to the second, UTC; empty for None."""
    written = None if microseconds is None else iso(microseconds)
    return "" if written is None else f"{written[:10]} {written[11:19]}"


def notes_table(out: Output, notes: Iterable[Note]) -> None:
    """Notes in columns."""
    out.table(
        ("id", "kind", "status", "title", "tags"),
        (
            (str(note.id), note.kind, note.status, inline(note.title, note.origin), ", ".join(note.tags))
            for note in notes
        ),
    )


def entities_table(out: Output, entities: Sequence[Entity]) -> None:
    """Entities in columns: their checks beside each other, attributes as JSON."""
    out.table(
        ("id", "key", "status", "checks", "attrs"),
        (
            (
                str(entity.id),
                inline(entity.key, entity.origin),
                entity.status,
                " ".join(f"{name}={result}" for name, result in entity.checks.items()),
                inline(compact(entity.attrs), entity.origin) if entity.attrs else "",
            )
            for entity in entities
        ),
    )


NOT_CLEANED: Final = "not cleaned yet (somebody is reading, or there is no room): a later write does it"
"""What is said of a purge whose free pages and write-ahead log are not rid of the text."""


def number(count: int, one: str) -> str:
    """`1 event`, `2,000 events`, `3 entities`."""
    if count == 1:
        return f"1 {one}"
    if one.endswith("s"):  # checks, a record that is named so
        return f"{count:,} {one}"
    return f"{count:,} {f'{one[:-1]}ies' if one.endswith(('ty', 'ry')) else f'{one}s'}"


def counts(numbers: Mapping[str, int], *, kinds: bool = False) -> str:
    """Numbers by name in a line, those of nothing left out; `kinds` that users named stay as these wrote them."""
    parts = (f"{count:,} {name}" if kinds else number(count, name) for name, count in numbers.items() if count)
    return ", ".join(parts) or "none"


def sizes(out: Output, found: Iterable[KindSize]) -> None:
    """Events and bytes by project and kind, in columns."""
    out.table(
        ("project", "kind", "events", "bytes"),
        ((str(one.project), one.kind, f"{one.events:,}", f"{one.bytes:,}") for one in found),
    )


def ids(numbers: Sequence[int], most: int = 50) -> str:
    """Numbers in a line, and how many it leaves out."""
    named = ", ".join(map(str, numbers[:most]))
    return named if len(numbers) <= most else f"{named} and {len(numbers) - most:,} more"


def head_text(head: Head) -> str:
    """The end of a log in the form that `--head` takes."""
    return f"{head.store}:{head.seq}:{head.chain}"


def compact(value: Any) -> str:
    """JSON in one line, as people read it."""
    return json.dumps(plain(value), ensure_ascii=False)


_LONG = ("body", "text", "work", "result", "why")
_TIMES = ("created_at", "updated_at", "confirmed_at", "dated", "done_at", "at", "archived_at", "due")


def record(out: Output, value: Record) -> None:
    """A record in full: a line for each field that has a value, long texts as blocks."""
    origin = getattr(value, "origin", "agent")
    lines, blocks = [], []
    for field in value.__attrs_attrs__:
        part = getattr(value, field.name)
        if part is None or part in ((), "") or (isinstance(part, Mapping) and not part):
            continue
        if field.name in _LONG and isinstance(part, str):
            blocks.append(f"{field.name}:\n{block(part, origin)}")
        else:
            lines.append(f"{field.name}: {_field(field.name, part, origin)}")
    out.text("\n".join([*lines, *blocks]))


def _field(name: str, part: Any, origin: str) -> str:
    if name in _TIMES and type(part) is int:
        return f"{when(part)} UTC"
    if type(part) is bool:
        return "yes" if part else "no"
    if isinstance(part, (tuple, list)):
        return ", ".join(inline(str(one)) for one in part)
    if isinstance(part, Mapping) or hasattr(part, "__attrs_attrs__"):
        return inline(compact(part), origin)
    if name in ("title", "key", "basis", "source"):
        return inline(str(part), origin)
    return inline(str(part))
