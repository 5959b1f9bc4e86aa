"""Every exception agentmem raises, each with a stable code and three parts: what, why, next.

A code never changes once released: programs match on it, people search for it. No message
contains a command that deletes or overwrites anything.
"""

from __future__ import annotations

import re
import reprlib
from typing import Final

__all__ = [
    "AgentMemError",
    "ApprovalNeeded",
    "Busy",
    "CipherMissing",
    "Closed",
    "Conflict",
    "Corrupt",
    "CredentialFound",
    "DiskFull",
    "EmbedderFailed",
    "Held",
    "InvalidInput",
    "IoFailed",
    "KeyChanged",
    "KeyMissing",
    "LimitExceeded",
    "MissingExtra",
    "ModelDamaged",
    "ModelMissing",
    "NetworkFileSystem",
    "NewerFile",
    "NotAStore",
    "NotFound",
    "NotInPast",
    "OutOfReach",
    "ReadOnly",
    "RequestMismatch",
    "StorageWarning",
    "StoreExists",
    "StoreMissing",
    "StoreReplaced",
    "ToolFailed",
    "ToolTimeout",
    "UndoBlocked",
    "WhereError",
    "WrongKey",
]

UNSEEN: Final = "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef"
"""Fillers, joiners and variation selectors, which Python takes for letters and accents. For use inside a character class."""

_UNSEEN: Final = re.compile(f"[{UNSEEN}]")
_SHOWN_CHARS: Final = 80
_PART_CHARS: Final = 2000


def shown(value: object) -> str:
    """A value of a caller as a message may name it: one short line, whatever it is. Never fails.

    Text stands in quotes; control, bidirectional and invisible characters are spelled as escapes.
    """
    try:
        if isinstance(value, str):
            text = repr(str.__getitem__(value, slice(_SHOWN_CHARS + 1)))
        elif isinstance(value, int) and value.bit_length() > _SHOWN_CHARS:
            text = f"a whole number of {value.bit_length()} bits"
        else:
            text = _BRIEF.repr(value)
        return _cut(_spelled(text), _SHOWN_CHARS)
    except Exception:  # noqa: BLE001  # a message about a bad value must not be lost to how the value describes itself
        return f"a value of type {_cut(_spelled(type.__getattribute__(type(value), '__name__')), _SHOWN_CHARS)}"


def _brief() -> reprlib.Repr:
    brief = reprlib.Repr()
    brief.maxlevel, brief.maxother = 3, _SHOWN_CHARS
    return brief


_BRIEF: Final = _brief()


def _spelled(text: str) -> str:
    r"""`text` with what does not show spelled as `\n`, `\x1b`, `\u202e`."""
    if not text.isprintable():
        text = "".join(each if each.isprintable() else _escape(each) for each in text)
    return text if text.isascii() else _UNSEEN.sub(lambda found: _escape(found[0]), text)


def _line(part: str) -> str:
    return _cut(_spelled(_cut(part, _PART_CHARS)), _PART_CHARS)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


class AgentMemError(Exception):
    """The base of every error of this package. Its parts are one line each, whatever they quote.

    Args:
        what: What happened, one sentence.
        why: The cause, if it is known and not plain from `what`.
        next: What to do now. Never a command that deletes.
    """

    code = "error"

    def __init__(self, what: str, *, why: str = "", next: str = "") -> None:
        self.what, self.why, self.next = map(_line, (what, why, next))
        super().__init__(self.what)

    def __str__(self) -> str:
        """The three parts as sentences of one line, the code first."""
        parts = [part if part[-1] in ".?!" else part + "." for part in (self.what, self.why, self.next) if part]
        return f"[{self.code}] " + " ".join(parts)

    def to_dict(self) -> dict[str, str]:
        """The parts by name, empty ones left out; `code` is always there."""
        parts = {"code": self.code, "what": self.what, "why": self.why, "next": self.next}
        return {name: part for name, part in parts.items() if part}


class InvalidInput(AgentMemError, ValueError):
    """An argument is not acceptable; nothing was written."""

    code = "invalid_input"


class WhereError(InvalidInput):
    """A `where` string does not parse, or names an unknown field or a wrong type.

    Args:
        what: What is wrong.
        source: The whole `where` string.
        position: Zero-based character offset of the place.
    """

    code = "invalid_where"

    def __init__(self, what: str, *, source: str, position: int, next: str = "") -> None:
        start = max(0, position - 40)
        excerpt = source[start : position + 40]
        super().__init__(
            what, why=f"At character {position + 1}, marked by ⟨⟩: " + _marked(excerpt, position - start), next=next
        )
        self.source = source
        self.position = position


def _marked(excerpt: str, position: int) -> str:
    return f"{excerpt[:position]}⟨{excerpt[position : position + 1]}⟩{excerpt[position + 1 :]}"


class CredentialFound(InvalidInput):
    """A text holds what looks like a credential, and the store refuses those; nothing was written."""

    code = "credential_found"


class LimitExceeded(InvalidInput):
    """An argument is larger than `agentmem.limits` allows; nothing was written."""

    code = "limit_exceeded"


class NotFound(AgentMemError, LookupError):
    """No such record, item, project or file entry."""

    code = "not_found"


class Conflict(AgentMemError, RuntimeError):
    """The current state forbids the change: a stale revision, a cycle, a thing that exists already.

    Args:
        current: The record's current revision, where the conflict is one of revisions.
    """

    code = "conflict"

    def __init__(self, what: str, *, why: str = "", next: str = "", current: int | None = None) -> None:
        super().__init__(what, why=why, next=next)
        self.current = current


class UndoBlocked(Conflict):
    """An undo is refused: later events stand on what it would take back.

    Args:
        events: Their seqs, as far as events are what stands in the way.
    """

    code = "undo_blocked"

    def __init__(self, what: str, *, events: tuple[int, ...], why: str = "", next: str = "") -> None:
        super().__init__(what, why=why, next=next)
        self.events = events


class Held(Conflict):
    """The record is claimed by somebody else."""

    code = "held"


class ApprovalNeeded(Conflict):
    """A call of a tool waits for a person; the request is in the log.

    Args:
        event: The call.
    """

    code = "approval_needed"

    def __init__(self, what: str, *, event: int, why: str = "", next: str = "") -> None:
        super().__init__(what, why=why, next=next)
        self.event = event


class RequestMismatch(Conflict):
    """A `request_id` was used before with other arguments."""

    code = "request_mismatch"


class Closed(AgentMemError, RuntimeError):
    """The store was closed, or the value belongs to a transaction that was rolled back."""

    code = "closed"


class ReadOnly(AgentMemError, PermissionError):
    """A write was asked of a store that was opened for reading."""

    code = "read_only"


class OutOfReach(AgentMemError, PermissionError):
    """A view that writes only beneath one note was asked for something else; nothing was written."""

    code = "out_of_reach"


class NotInPast(AgentMemError, RuntimeError):
    """A view of the past has no such thing: search, claims, other projects than its own where it is a part, the file itself."""

    code = "not_in_past"


class StoreMissing(AgentMemError, FileNotFoundError):
    """There is no file at the path, and none was to be made."""

    code = "store_missing"


class StoreReplaced(Conflict):
    """There is another file at the path than the one that is open; nothing was written to either."""

    code = "store_replaced"


class StoreExists(AgentMemError, FileExistsError):
    """There is already a file at the path, and a new one was to be made."""

    code = "store_exists"


class NotAStore(AgentMemError, OSError):
    """The file is empty, is no SQLite database, or is a database of some other program."""

    code = "not_a_store"


class NewerFile(AgentMemError, OSError):
    """The file was written by a later version of agentmem; it was left alone."""

    code = "newer_file"


class Corrupt(AgentMemError, OSError):
    """A page, the chain or a projection is damaged."""

    code = "corrupt"


class WrongKey(AgentMemError, PermissionError):
    """The key does not open the file, or its first page is damaged. No byte was changed."""

    code = "wrong_key"


class KeyChanged(WrongKey):
    """Another process gave the file a new key while this one had it open."""

    code = "key_changed"


class KeyMissing(AgentMemError, PermissionError):
    """The file is encrypted and no key was found. No new key is ever made for an existing file."""

    code = "key_missing"


class CipherMissing(AgentMemError, ImportError):
    """The `apsw` that was imported has no SQLite3 Multiple Ciphers in it."""

    code = "cipher_missing"


class NetworkFileSystem(AgentMemError, OSError):
    """The file lies on a network file system, where SQLite's WAL is unsafe."""

    code = "network_file_system"


class Busy(AgentMemError, TimeoutError):
    """Another process or thread held the write lock for longer than the busy timeout."""

    code = "busy"


class MissingExtra(AgentMemError, ImportError):
    """An optional dependency is not installed."""

    code = "missing_extra"


class ModelMissing(AgentMemError, LookupError):
    """A file of an embedding model, or a package that runs it, is not there. Everything else works, by words."""

    code = "model_missing"


class ModelDamaged(AgentMemError, OSError):
    """A file of an embedding model is not what it should be, or the model does not run."""

    code = "model_damaged"


class EmbedderFailed(AgentMemError, RuntimeError):
    """An embedder of the caller's own raised an error, or gave what are no vectors. Recall goes by words meanwhile."""

    code = "embedder_failed"


class DiskFull(AgentMemError, OSError):
    """No space is left for a write; the transaction was rolled back."""

    code = "disk_full"


class IoFailed(AgentMemError, OSError):
    """The operating system could not read, write, lock or open a file of the store."""

    code = "io_failed"


class ToolFailed(AgentMemError, RuntimeError):
    """A tool of a session could not do what it was called for. What it did until then may stand."""

    code = "tool_failed"


class ToolTimeout(ToolFailed, TimeoutError):
    """A tool of a session did not end within its time. What it did until then may stand."""

    code = "tool_timeout"


class StorageWarning(UserWarning):
    """Something about the file or a transaction is worth a look: a doubtful file system, a lock held for long."""
