"""Long texts of payloads, stored once however many events have them.

A payload with a long text in it is stored as `@` and canonical JSON, in which `{"$blob": <SHA-256 of the text>}` stands
for each such text. No canonical JSON begins with `@`, so no payload can be mistaken for one of these. Digests and the
chain are over what is stored. A blob goes when the last event that has it is erased.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import apsw

from agentmem.errors import Corrupt
from agentmem.limits import BLOB_CHARS
from agentmem.log.canonical import canonical, plain

_MARK: Final = "@"
_NAME: Final = "$blob"

_KEEP: Final = """
INSERT INTO blob (hash, text, uses) VALUES (?, ?, 1) ON CONFLICT (hash) DO UPDATE SET uses = uses + 1
"""


def stored(connection: apsw.Connection, payload: dict[str, Any], text: str) -> str:
    """What is stored of a payload, its long texts put among the blobs.

    Args:
        connection: Inside the write transaction of the event.
        payload: The payload.
        text: Its canonical JSON.
    """
    if len(text) < BLOB_CHARS or _NAME in text:
        return text
    found: dict[str, bytes] = {}
    outlined = _outlined(payload, found)
    for long, hashed in found.items():
        connection.execute(_KEEP, (hashed, long))
    return _MARK + canonical(outlined) if found else text


def whole(connection: apsw.Connection, text: str) -> dict[str, Any]:
    """The payload of what is stored.

    Raises:
        Corrupt: A text is missing.
    """
    if not text.startswith(_MARK):
        payload: dict[str, Any] = plain(text)
        return payload
    filled: dict[str, Any] = _filled(connection, plain(text[1:]))
    return filled


def outline(text: str) -> dict[str, Any]:
    """The payload of what is stored, its long texts by their hashes."""
    found: dict[str, Any] = plain(text[1:] if text.startswith(_MARK) else text)
    return found


def release(connection: apsw.Connection, text: str) -> None:
    """Forget the uses that a stored payload makes of blobs, and those blobs that nothing uses any more."""
    for hashed in named(text):
        connection.execute("UPDATE blob SET uses = uses - 1 WHERE hash = ?", (hashed,))
        connection.execute("DELETE FROM blob WHERE hash = ? AND uses <= 0", (hashed,))


def named(text: str) -> set[bytes]:
    """The hashes of the blobs that a stored payload uses."""
    return _named(plain(text[1:])) if text.startswith(_MARK) else set()


def _outlined(value: Any, found: dict[str, bytes]) -> Any:
    if isinstance(value, str):
        if len(value) < BLOB_CHARS:
            return value
        hashed = found.setdefault(value, hashlib.sha256(value.encode()).digest())
        return {_NAME: hashed.hex()}
    if isinstance(value, dict):
        return {name: _outlined(part, found) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_outlined(part, found) for part in value]
    return value


def _filled(connection: apsw.Connection, value: Any) -> Any:
    if isinstance(value, dict):
        if value.keys() == {_NAME}:
            row = connection.execute("SELECT text FROM blob WHERE hash = ?", (bytes.fromhex(value[_NAME]),)).fetchone()
            if row is None:
                raise Corrupt("A long text of the log is missing", next="Restore the latest backup that verifies")
            return row[0]
        return {name: _filled(connection, part) for name, part in value.items()}
    if isinstance(value, list):
        return [_filled(connection, part) for part in value]
    return value


def _named(value: Any) -> set[bytes]:
    if isinstance(value, dict):
        if value.keys() == {_NAME}:
            return {bytes.fromhex(value[_NAME])}
        return set().union(*(_named(part) for part in value.values()))
    if isinstance(value, list):
        return set().union(*(_named(part) for part in value))
    return set()
