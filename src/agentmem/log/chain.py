"""The hash chain: what makes an accidental or partial edit of the log visible.

`digest = SHA-256(salt || payload)`, `chain = SHA-256(previous chain || header || digest)`, over stored
bytes. The first previous chain is a digest of the store's id. A purge removes payload and salt and
leaves header and digest, so that the chain still verifies. Whoever has the key can rewrite all of
it: note `log.head()` elsewhere to notice that.
"""

from __future__ import annotations

import hashlib
import json

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


def genesis(store: str) -> bytes:
    """The chain before the first event of a store (its id, 32 hex digits)."""
    return hashlib.sha256(b"agentmem log 1\x00" + store.encode()).digest()


def session_genesis(store: str, session: int) -> bytes:
    """The chain of one session before its first event."""
    return hashlib.sha256(b"agentmem session 1\x00" + f"{store}\x00{session}".encode()).digest()


def header(
    seq: int,
    at: int,
    project: int,
    kind: str,
    version: int,
    record_type: str,
    record: int,
    session: int | None,
    author: str | None,
    run: str | None,
    task: int | None,
    origin: str,
    request: str | None,
) -> bytes:
    """The header as a canonical JSON array of fixed order. It holds no text of a caller beyond labels."""
    fields = [seq, at, project, kind, version, record_type, record, session, author, run, task, origin, request]
    return _encode(fields).encode()


def digest(salt: bytes, payload: str) -> bytes:
    """The digest of a payload; the salt keeps a short secret from being guessed after its purge."""
    return hashlib.sha256(salt + payload.encode()).digest()


def link(previous: bytes, head: bytes, payload_digest: bytes) -> bytes:
    """The chain after an event."""
    return hashlib.sha256(previous + head + payload_digest).digest()
