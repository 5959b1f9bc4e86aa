"""A session as a file: lossless for agentmem, or in the public form of managed agents for others; and the way back.

Lossless, the first line says what session it was, each further one is an event with all that it says. Read back into another
session, events have new ids, and what refers to them is led there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from attrs import frozen

from agentmem import limits
from agentmem.errors import InvalidInput, shown
from agentmem.records import session_reads, vocabulary
from agentmem.records.base import View
from agentmem.records.session_rows import COMPACTED, Segment, lineage, load_session
from agentmem.records.sessions import Entry
from agentmem.session_types import SessionEvent
from agentmem.transfer import session_strict

__all__ = ["Incoming", "Reader", "exported", "incoming"]

FORMAT: Final = "agentmem session"


def exported(
    view: View, session: int, *, strict: bool, after: int, limit: int
) -> tuple[list[dict[str, Any]], int | None]:
    """A page of a session's lines, and after which event the next one begins; None at the end."""
    segments: list[Segment] = lineage(view, session)
    page = session_reads.events(view, segments, after=after, limit=limit)
    following = page[-1].id if len(page) == limit else None
    store = view.binding.ledger.store
    if strict:
        return list(session_strict.strict(store, page)), following
    lines = [] if after else [_head(view, store, session)]
    return [*lines, *map(_line, page)], following


def _head(view: View, store: str, session: int) -> dict[str, Any]:
    info = load_session(view, session)
    found: dict[str, Any] = {"format": FORMAT, "version": 1, "store": store, "session": session}
    for name in ("title", "agent", "metadata"):
        value = getattr(info, name)
        if value:
            found[name] = dict(value) if isinstance(value, Mapping) else value
    return found


def _line(event: SessionEvent) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": event.id,
        "type": event.type,
        "body": event.body,
        "at": event.at,
        "origin": event.origin,
    }
    for name in ("key", "author", "run", "dated"):
        value = getattr(event, name)
        if value is not None:
            found[name] = value
    return found


@frozen
class Incoming:
    """What a file says of its session, and the lines of its events."""

    head: Mapping[str, Any]
    events: Iterator[Mapping[str, Any]]


def incoming(lines: Iterable[Any]) -> Incoming:
    """A file as it is read, of either form: texts of JSON, or objects.

    Raises:
        InvalidInput: A line is no JSON, or no object.
    """
    if isinstance(lines, (str, bytes)) or not isinstance(lines, Iterable):
        raise InvalidInput(f"lines is {shown(lines)}", why="It is a list of lines: texts of JSON, or objects")
    found = (_object(line, number) for number, line in enumerate(lines, 1) if not isinstance(line, str) or line.strip())
    first = next(found, None)
    if first is None:
        raise InvalidInput("There is no event", why="The file is empty")
    if first.get("format") == FORMAT:
        if first.get("version") != 1:
            raise InvalidInput(
                f"The file has version {shown(first.get('version'))}", next="Read it with a later agentmem"
            )
        return Incoming(first, found)
    return Incoming({}, _chained(first, found))


def _chained(first: Mapping[str, Any], rest: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    yield first
    yield from rest


def _object(line: Any, number: int) -> Mapping[str, Any]:
    if isinstance(line, str):
        try:
            line = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidInput(f"Line {number} is no JSON", why=shown(line[:60])) from None
    if not isinstance(line, Mapping):
        raise InvalidInput(f"Line {number} is {shown(line)}", why="It is an object")
    return line


class Reader:
    """Makes entries of a file's lines, in pieces, and knows which event became which.

    Args:
        found: The file.
        origin: Where its text comes from, where it is not one's own.
    """

    def __init__(self, found: Incoming, origin: Any) -> None:
        self._found, self._origin = found, origin
        self._lossless = bool(found.head)
        self._ids: dict[str, int] = {}
        self._reading = session_strict.Reading()

    def pieces(self, size: int = limits.SESSION_EVENTS) -> Iterator[tuple[list[Entry], list[str]]]:
        """Entries, and the ids that they had; what refers to one of an earlier piece needs `became` of that."""
        entries: list[Entry] = []
        originals: list[str] = []
        for number, line in enumerate(self._found.events, 1):
            # What refers to one of the piece waits until that has its id.
            if len(entries) == size or not _named(line).isdisjoint(originals):
                yield entries, originals
                entries, originals = [], []
            entry, original = self._entry(line, number)
            entries.append(entry)
            originals.append(original)
        if entries:
            yield entries, originals

    def became(self, originals: Iterable[str], ids: Iterable[int]) -> None:
        """Note what a piece became."""
        self._ids.update((original, seq) for original, seq in zip(originals, ids, strict=True) if original)

    def _entry(self, line: Mapping[str, Any], number: int) -> tuple[Entry, str]:
        here = self._ids.get
        if not self._lossless:
            read = self._reading.read(line, here)
            return Entry(read.type, read.body, None, self._origin, read.at), read.original
        original = str(line.get("id"))
        if not isinstance(line.get("body"), Mapping):
            if line.get("body", 0) is None:  # it was purged there
                return Entry(
                    "x.purged", {"type": str(line.get("type"))[:256]}, None, self._origin, line.get("at")
                ), original
            raise InvalidInput(f"Event {number} has no body")
        body = dict(line["body"])
        for name in vocabulary.REFERENCES:
            if name in body:
                found = here(str(body[name]))
                if found is None:
                    raise InvalidInput(f"Event {number} refers to #{shown(body[name])}, which does not come before it")
                body[name] = found
        reason = body.get("stop_reason")
        if isinstance(reason, Mapping) and isinstance(reason.get("event_ids"), list):
            ids = [here(str(each)) for each in reason["event_ids"]]
            body["stop_reason"] = {**reason, "event_ids": [each for each in ids if each is not None]}
        if line.get("type") == COMPACTED:
            body = {}  # what stood for earlier events in a window names them by their former numbers
        dated = line.get("dated") if line.get("dated") is not None else line.get("at")
        given = self._origin if self._origin is not None else line.get("origin")
        return Entry(line.get("type", ""), body, line.get("key"), given, dated), original


def _named(line: Mapping[str, Any]) -> set[str]:
    """The ids that an event refers to, in either form."""
    inner = line.get("body")
    body = inner if isinstance(inner, Mapping) else line
    found = {str(body[name]) for name in vocabulary.REFERENCES if name in body}
    reason = body.get("stop_reason")
    if isinstance(reason, Mapping) and isinstance(reason.get("event_ids"), list):
        found |= {str(each) for each in reason["event_ids"]}
    return found
