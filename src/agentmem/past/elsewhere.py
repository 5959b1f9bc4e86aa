"""Where else a purged text stands: in other records, now or in an earlier revision of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any, Final

from agentmem.limits import BLOB_CHARS
from agentmem.log import blobs
from agentmem.log.canonical import canonical, plain
from agentmem.past.footprint import JSON_COLUMNS
from agentmem.records.base import Source
from agentmem.types import Event

_WITHIN: Final = 20  # how many texts are also looked for inside longer ones
_CHARS: Final = 8  # shorter texts are not looked for: they would be found in most records
_FOUND: Final = 100

# Fields of payloads that hold labels and closed words, not what a record says.
_NO_TEXT: Final = frozenset(
    ("kind", "status", "type", "origin", "author", "run", "confirmed_by", "done_by", "holder", "digest", "copied")
)


def texts_of(events: Iterable[Event]) -> set[str]:
    """The texts in the payloads of events, of `_CHARS` characters or more."""
    return {text for event in events for text in _texts(event.payload)}


def texts_in(state: Mapping[str, Any] | None) -> set[str]:
    """The same of the whole state of a record."""
    return set() if state is None else set(_texts(_spelled(state)))


def also_found(source: Source, records: Iterable[int], texts: Set[str]) -> tuple[int, ...]:
    """At most `_FOUND` other records that have one of the texts; of the longest also those with it inside another text.

    Reads the whole log: an earlier revision is nowhere else.
    """
    if not texts:
        return ()
    longest = sorted(texts, key=lambda text: (len(text), text))[-_WITHIN:]
    found = {*_within(source, longest)}
    if len(texts) > len(longest):
        found |= _equal(source, {_as_stored(text) for text in texts})
    return tuple(sorted(found.difference(records))[:_FOUND])


def _within(source: Source, texts: list[str]) -> Iterator[int]:
    condition = " OR ".join(["instr({column}, ?)"] * len(texts))
    sought = [_as_stored(text) for text in texts]
    in_blobs = f"SELECT hash FROM blob WHERE {condition.format(column='text')}"
    for (hashed,) in source.rows(in_blobs, texts):
        sought.append(hashed.hex())
    condition = " OR ".join(["instr(payload, ?)"] * len(sought))
    for (record,) in source.rows(f"SELECT DISTINCT record FROM event WHERE {condition}", sought):
        yield record


def _equal(source: Source, stored: Set[str]) -> set[int]:
    found: set[int] = set()
    for record, payload in source.connection.execute("SELECT record, payload FROM event WHERE payload IS NOT NULL"):
        if record not in found and not stored.isdisjoint(map(_as_stored, _texts(blobs.outline(payload)))):
            found.add(record)
    return found


def _as_stored(text: str) -> str:
    """A text as payloads have it: spelled as JSON, a long one by its hash."""
    return canonical(text)[1:-1] if len(text) < BLOB_CHARS else hashlib.sha256(text.encode()).hexdigest()


def _texts(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, str):
        if len(value) >= _CHARS and name not in _NO_TEXT:
            yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            if name not in _NO_TEXT:
                yield from _texts(_spelled(part) if key == "state" and isinstance(part, dict) else part, key)
    elif isinstance(value, list):
        for part in value:
            yield from _texts(part, name)


def _spelled(state: Mapping[str, Any]) -> dict[str, Any]:
    """A stated record with its columns of JSON as values, as other events have them."""
    found = dict(state)
    for name in ("attrs", *JSON_COLUMNS):
        if isinstance(found.get(name), str):
            found[name] = plain(found[name])
    marks = {}
    for name, (_, value, detail, *_labels) in found.get("marks", {}).items():
        marks[name] = {"value": None if value is None else plain(value), "detail": detail}
    return {**found, "marks": marks}
