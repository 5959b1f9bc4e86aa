"""The check of the log: the chain computed anew over all stored bytes, piece by piece."""

from __future__ import annotations

import hashlib
from typing import Any, Final

from agentmem.errors import Corrupt
from agentmem.limits import INT_MAX
from agentmem.log import blobs, chain
from agentmem.types import Head

__all__ = ["ROW", "ChainCheck", "check_all", "check_some"]

ROW: Final = """
seq, at, project, kind, version, type, record, session, author, run, task, origin, request, payload, digest, chain, salt,
session_chain
"""
"""The columns of one event, as `ChainCheck.step` takes them."""

_SOME: Final = f"SELECT {ROW} FROM event WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT ?"
_PIECE: Final = 2000

_RESTORE: Final = "Run agentmem doctor, or restore the latest backup that verifies"
_COMPARE: Final = "Compare with a backup of that time"


class ChainCheck:
    """One pass over a log from its beginning.

    Attributes:
        seq: The last event that was found sound.
        chain: The chain after it.
    """

    def __init__(self, store: str, noted: Head | None = None) -> None:
        """Begin before the first event.

        Args:
            store: The id of the store.
            noted: A head noted earlier, of the same store.
        """
        self.seq = 0
        self.chain = chain.genesis(store)
        self._store = store
        self._noted = noted
        self._sessions: dict[int, bytes] = {}
        self._texts: set[bytes] = set()
        self._compare()

    def step(self, row: tuple[Any, ...], connection: Any) -> None:
        """Check the next event.

        Args:
            row: Of `ROW`.
            connection: Where its long texts are read, in the same transaction; of any build of SQLite.

        Raises:
            Corrupt: It is not the next one, or it, one of its texts or an earlier event was changed.
        """
        seq, session, payload, digest = row[0], row[7], row[13], row[14]
        if seq != self.seq + 1:
            raise Corrupt(f"Event {self.seq + 1} is missing from the log", next=_RESTORE)
        if payload is not None and (row[16] is None or chain.digest(row[16], payload) != digest):
            raise Corrupt(f"The payload of event {seq} does not match its digest", next=_RESTORE)
        head = chain.header(*row[:13])
        linked = chain.link(self.chain, head, digest)
        if linked != row[15]:
            raise Corrupt(
                f"The chain is broken at event {seq}", why="Its header or an earlier event changed", next=_RESTORE
            )
        if session is not None:
            before = self._sessions.get(session) or chain.session_genesis(self._store, session)
            self._sessions[session] = chain.link(before, head, digest)
            if self._sessions[session] != row[17]:
                raise Corrupt(f"The chain of session {session} is broken at event {seq}", next=_RESTORE)
        if payload is not None:
            self._texts_check(seq, payload, connection)
        self.seq, self.chain = seq, linked
        self._compare()

    def end(self) -> Head:
        """The head of the log, once all of it was seen.

        Raises:
            Corrupt: It ends before the noted head.
        """
        if self._noted is not None and self._noted.seq > self.seq:
            raise Corrupt(
                f"The log ends at event {self.seq}, before the noted head {self._noted.seq}",
                why="Later events are gone, as after a restore of an older copy",
                next=_COMPARE,
            )
        return Head(self._store, self.seq, self.chain.hex())

    def _compare(self) -> None:
        noted = self._noted
        if noted is None or noted.seq != self.seq or noted.chain == self.chain.hex():
            return
        if noted.seq == 0:
            raise Corrupt("The noted head is not of the beginning of this log", next=_COMPARE)
        raise Corrupt(f"The log differs from the noted head at event {self.seq}", next=_COMPARE)

    def _texts_check(self, seq: int, payload: str, connection: Any) -> None:
        for hashed in blobs.named(payload) - self._texts:
            # As bytes: those of a damaged page may be no text at all.
            row = connection.execute("SELECT CAST(text AS BLOB) FROM blob WHERE hash = ?", (hashed,)).fetchone()
            if row is None or hashlib.sha256(row[0]).digest() != hashed:
                state = "is missing" if row is None else "was changed"
                raise Corrupt(f"A long text of event {seq} {state}", next=_RESTORE)
            self._texts.add(hashed)


def check_some(check: ChainCheck, connection: Any, until: int = INT_MAX) -> bool:
    """Check the next few thousand events, up to and with `until`.

    Returns:
        Whether there may be more.
    """
    begun = check.seq
    for row in connection.execute(_SOME, (begun, until, _PIECE)):
        check.step(row, connection)
    return check.seq - begun == _PIECE


def check_all(check: ChainCheck, connection: Any) -> Head:
    """Check a log in one read transaction of the caller's, or in a file that nobody writes to."""
    while check_some(check, connection):
        pass
    return check.end()
