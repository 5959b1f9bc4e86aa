"""The past of records as an answer: `history`, `revisions`, `diff`."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Final

from attrs import frozen

from agentmem import limits
from agentmem.context import lines
from agentmem.context.answer import Answer
from agentmem.context.budget import Line, Section, fit
from agentmem.context.tokens import Counter
from agentmem.log.canonical import canonical
from agentmem.log.kinds import Kinds
from agentmem.past import history as past
from agentmem.past import revisions
from agentmem.past.fields import FieldChange
from agentmem.past.history import Asked, Change
from agentmem.records.base import View
from agentmem.types import Json, Origin, RecordType

_VALUE_CHARS: Final = 120  # of a value in a line
_FIELDS: Final = 12  # named in a line
_DIFF_LINES: Final = 2000  # of a text, up to which it is compared line by line
_NOTHING: Final = "nothing"
_OURS: Final = frozenset(("kind", "origin"))  # fields whose words are the library's own
_TRUSTED: Final[Origin] = "user"


@frozen
class History(Answer):
    """One page of what happened, in the order it was asked for.

    Attributes:
        changes: The changes.
        next: Where the next page begins: give it as `after=`, newest first as `before=`. None at the end. It stays true
            whatever is written meanwhile.
        left: How many changes follow the page, counted to `limits.COUNT_EXACT`.
        text: The page within the budget, one line a change.
        tokens: Of the text, by the counter.
        omitted: How many changes of the page the budget left out of the text.
    """

    changes: tuple[Change, ...]
    next: int | None
    left: int
    text: str
    tokens: int
    omitted: int


@frozen
class Diff(Answer):
    """What differs between two revisions of a record.

    Attributes:
        record: Its id.
        type: Its type.
        before: The event after which it was as the left side has it.
        after: The event after which it was as the right side has it.
        fields: The fields that differ, with both values whole.
        text: The same within the budget; long texts line by line.
        tokens: Of the text, by the counter.
    """

    record: int
    type: RecordType
    before: int
    after: int
    fields: tuple[FieldChange, ...]
    text: str
    tokens: int


def history(view: View, kinds: Kinds, asked: Asked, *, budget: int, counter: Counter, verb: str = "history") -> History:
    """The answer of `store.history` and `store.revisions`."""
    page = past.changes(view, kinds, asked)
    cursor = page.changes[-1].seq if page.left else None
    bound = "before" if asked.newest_first else "after"
    left = f"{limits.COUNT_EXACT}+" if page.left >= limits.COUNT_EXACT else str(page.left)
    further = f"; {left} more: {_call(verb, asked, f'{bound}={cursor}')}" if page.left else ""
    of = "".join(f" {part}" for part in _subject(asked))
    head = Line(f"{verb}{of}: {lines.counted(len(page.changes), 'change')}{further}", limit=120)
    known: set[int] = set()
    shown = []
    for change in page.changes:
        shown.append(_line(change, named=change.record not in known))
        known.add(change.record)
    changed = Section("changes", "", 1.0, shown, more=_call(verb, asked, "limit=…", f"{bound}=…"))
    fitted = fit([head], [changed], budget=budget, counter=counter)
    return History(page.changes, cursor, page.left, fitted.text, fitted.tokens, fitted.omitted["changes"])


def _subject(asked: Asked) -> Iterator[str]:
    if asked.record is not None:
        yield f"of #{asked.record} {asked.type}"
    elif asked.under is not None:
        yield f"beneath #{asked.under}"
    for name, value in (("session", asked.session), ("author", asked.author), ("run", asked.run)):
        if value is not None:
            yield f"{name} {lines.inline(str(value))}"


def _call(verb: str, asked: Asked, *bounds: str) -> str:
    """The call that goes on; labels in it are the caller's own."""
    parts = [] if asked.record is None else [str(asked.record)]
    named = (("under", asked.under), ("session", asked.session), ("author", asked.author), ("run", asked.run))
    parts += [f"{name}={lines.inline(repr(value))}" for name, value in named if value is not None]
    if asked.newest_first and verb == "history":
        parts.append("newest_first=True")
    return f"{verb}({', '.join([*parts, *bounds])})"


def _line(change: Change, *, named: bool) -> Line:
    """A change in one line; the record is named where the page has it for the first time."""
    if change.kind == "message.added":
        return _said(change)
    head = f"{change.seq} {lines.minute(change.at)} {change.kind} #{change.record}"
    if named and change.label:
        head += f" {lines.inline(change.label, change.trust)}"
    end = ""
    if change.erased:
        end += " [purged]"
    if change.undoes is not None:
        end += f" [takes back {change.undoes}]"
    if change.undone_by is not None:
        end += f" [taken back by {change.undone_by}]"
    end += _who(change)
    fields = () if change.kind == "message.forgotten" else change.fields  # its frame is no news
    told = "; ".join(_field(field, change.trust) for field in fields[:_FIELDS])
    if len(fields) > _FIELDS:
        told += f"; {len(fields) - _FIELDS} more"
    text = f"{head}: {told}{end}" if told else head + end
    return Line(text, head + end if told else None, f"diff({change.record}, …, {change.seq})")


def _who(change: Change) -> str:
    who = ", ".join(lines.inline(one) for one in (change.author, change.run) if one)
    return f" ({who})" if who else ""


def _said(change: Change) -> Line:
    """An event of a session in one line: its type, which session, what it answers, the beginning of what it says."""
    given = {field.name: field.after for field in change.fields}
    target = f" of #{given['target']}" if given.get("target") is not None else ""
    key = f" {lines.inline(str(given['key']))}" if given.get("key") is not None else ""
    within = f" in #{given['session']}" if "session" in given else ""
    of = lines.inline(str(given.get("type") or "an event"))
    head = f"{change.seq} {lines.minute(change.at)} {of}{key}{target}{within}"
    end = (" [purged]" if change.erased else "") + _who(change)
    text = given.get("text")
    told = f": {_shown(text, change.trust)}" if text else ""
    return Line(f"{head}{end}{told}", ref=f"get({change.seq})")


def _field(field: FieldChange, origin: Origin) -> str:
    name = lines.inline(field.name)
    # No text of a caller: nothing in it can be taken for more than it is.
    of = _TRUSTED if field.name in _OURS or field.name.startswith("links.") else origin
    after = _shown(field.after, of)
    if field.known and field.before is None:
        return f"{name} {after}"
    return f"{name} {_shown(field.before, of) if field.known else '?'} → {after}"


def _shown(value: Json, origin: Origin) -> str:
    if value is None or value in ("", [], {}):
        return _NOTHING
    if not isinstance(value, (str, list, dict)):
        return canonical(value)
    text = value if isinstance(value, str) else canonical(value)
    return lines.inline(text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…", origin)


def diff(
    found: revisions.Differing, record: int, of: RecordType, before: int, after: int, *, budget: int, counter: Counter
) -> Diff:
    """The answer of `store.diff`."""
    head = Line(f"#{record} {of}, event {before} → {after}: {_differing(len(found.fields))}")
    shown = [line for field in found.fields for line in _compared(field, found.trust)]
    fitted = fit(
        [head],
        [Section("fields", "", 1.0, shown, more=f"revision({record}, {after})")],
        budget=budget,
        counter=counter,
    )
    return Diff(record, of, before, after, found.fields, fitted.text, fitted.tokens)


def _differing(count: int) -> str:
    return "1 field differs" if count == 1 else f"{count} fields differ"


def _compared(field: FieldChange, origin: Origin) -> Iterator[Line]:
    """A field in one line, or a text of several line by line, as `diff -u` has it."""
    before, after = _text(field.before), _text(field.after)
    if before is None or after is None or not any("\n" in text or len(text) > _VALUE_CHARS for text in (before, after)):
        yield Line(_field(field, origin))
        return
    old, new = before.splitlines(), after.splitlines()
    name = lines.inline(field.name)
    if len(old) + len(new) > _DIFF_LINES:
        yield Line(f"{name}: {lines.counted(len(old), 'line')} → {lines.counted(len(new), 'line')}")
        return
    yield Line(f"{name}:")
    for line in list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]:
        sign, text = line[:1], line[1:]
        yield Line(line if sign == "@" else f"{sign} {lines.inline(text, origin)}".rstrip())


def _text(value: Json) -> str | None:
    """A value that is a text, or nothing, which compares as an empty one."""
    return "" if value is None else value if isinstance(value, str) else None
