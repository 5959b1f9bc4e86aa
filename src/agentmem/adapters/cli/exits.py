"""The exit codes of the command line. They never change once released: scripts match on them."""

from __future__ import annotations

import enum

from agentmem import errors


class Exit(enum.IntEnum):
    """What the exit code of a command means."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    WRONG_KEY = 4
    KEY_MISSING = 5
    STORE_MISSING = 6
    CONFLICT = 7
    HELD = 8
    BUSY = 9
    DAMAGED = 10
    READ_ONLY = 11
    INTERRUPTED = 130
    PIPE = 141

    @property
    def meaning(self) -> str:
        """The code in words, for the help."""
        return _MEANINGS[self]


_MEANINGS = {
    Exit.OK: "done",
    Exit.FAILURE: "failed otherwise: disk full, no permission, a network file system, a newer file",
    Exit.USAGE: "wrong usage, or an argument that is not acceptable; nothing was written",
    Exit.NOT_FOUND: "no such record, item, project or input file",
    Exit.WRONG_KEY: "the key does not open the file",
    Exit.KEY_MISSING: "no key was found for the file",
    Exit.STORE_MISSING: "there is no file at the path",
    Exit.CONFLICT: "the current state forbids the change: a stale revision, a circle, a repeated request",
    Exit.HELD: "the record is claimed by another run",
    Exit.BUSY: "another process held the write lock for too long",
    Exit.DAMAGED: "the file is damaged or no store; verify, doctor or rekey found problems; salvage lost events",
    Exit.READ_ONLY: "a write was asked of a store that is open for reading",
    Exit.INTERRUPTED: "interrupted from the keyboard",
    Exit.PIPE: "the reader of the output went away",
}

# The first that fits counts: a class stands before its parents.
_OF_ERRORS: tuple[tuple[type[BaseException], Exit], ...] = (
    (errors.InvalidInput, Exit.USAGE),
    (errors.MissingExtra, Exit.USAGE),
    (errors.NotInPast, Exit.USAGE),
    (errors.NotFound, Exit.NOT_FOUND),
    (errors.WrongKey, Exit.WRONG_KEY),
    (errors.KeyMissing, Exit.KEY_MISSING),
    (errors.StoreMissing, Exit.STORE_MISSING),
    (errors.Held, Exit.HELD),
    (errors.Conflict, Exit.CONFLICT),
    (errors.StoreExists, Exit.CONFLICT),
    (errors.Busy, Exit.BUSY),
    (errors.Corrupt, Exit.DAMAGED),
    (errors.NotAStore, Exit.DAMAGED),
    (errors.ReadOnly, Exit.READ_ONLY),
    (errors.OutOfReach, Exit.READ_ONLY),
    (errors.AgentMemError, Exit.FAILURE),
    (FileNotFoundError, Exit.NOT_FOUND),
)


def exit_of(error: BaseException) -> Exit:
    """The exit code of an error."""
    return next((code for kind, code in _OF_ERRORS if isinstance(error, kind)), Exit.FAILURE)
