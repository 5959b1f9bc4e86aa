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


# The same in the bodies of events of sessions: names of tools and agents, ids of others.
_NO_TEXT_SPOKEN: Final = frozenset(
    ("name", "mcp_server_name", "provider_id", "session_thread_id", "agent_name", "credential_id", "tool", "key", "model",
     "input_hash", "outcome_id", "workflow_run_id", "workflow_run_phase_id", "stop_reason", "evaluated_permission")
)  # fmt: skip


def texts_of(events: Iterable[Event]) -> set[str]:
    """The texts in the payloads of events, of `_CHARS` characters or more."""
    return {text for event in events for text in _texts(_said(event))}


def _said(event: Event) -> Any:
    """The payload of an event, that of a session without the labels in it."""
    if event.kind != "message.added" or event.payload is None or event.payload["type"].startswith("x."):
        return event.payload
    body = {name: part for name, part in event.payload["body"].items() if name not in _NO_TEXT_SPOKEN}
    return {**event.payload, "body": body}


def texts_gone(
    events: Iterable[Event], now: Mapping[str, Any] | None, *, attr: str | None, check: str | None
) -> tuple[set[str], bool]:
    """What a redaction takes away: the texts that these events have and that the same field of the record has no more.

    Args:
        events: Those to be erased.
        now: The state of the record afterwards.
        attr: Only of this attribute.
        check: Only of this check.

    Returns:
        The texts, and whether another field of the record itself still holds one of them.
    """
    wanted = ("attrs", attr) if attr is not None else ("marks", check) if check is not None else ()
    kept = set() if now is None else set(_places(_spelled(now), ()))
    gone = set()
    for event in events:
        payload = event.payload or {}
        given = {**payload, **payload.get("set", {}), **_spelled(payload.get("state", {}))}
        for place, text in _places({name: given[name] for name in given if name not in ("set", "state")}, ()):
            if place[: len(wanted)] == wanted and (place, text) not in kept:
                gone.add(text)
    return gone, any(text in whole for text in gone for _, whole in kept)


def _places(value: Any, place: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """The texts in a payload or state, each with the names that lead to it."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield from _places(part, (*place, name))
    elif isinstance(value, list):
        for part in value:
            yield from _places(part, place)
    else:
        for text in _texts(value, place[-1] if place else ""):
            yield place, text


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
