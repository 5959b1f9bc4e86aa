"""Erasing: an event loses its payload and salt and keeps header and digest, so that the chain still verifies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import apsw

from agentmem.log import blobs

_STORED: Final = "SELECT payload, digest FROM event WHERE seq = ? AND payload IS NOT NULL"


def erase(connection: apsw.Connection, seqs: Iterable[int]) -> list[tuple[int, bytes]]:
    """Erase the payloads of events, and the long texts that no other event has.

    Args:
        connection: Inside a write transaction.
        seqs: Which; those erased already are passed over.

    Returns:
        The seq and the digest of each event that was erased.
    """
    erased = []
    for seq in seqs:
        row = connection.execute(_STORED, (seq,)).fetchone()
        if row is not None:
            blobs.release(connection, row[0])
            connection.execute("UPDATE event SET payload = NULL, salt = NULL WHERE seq = ?", (seq,))
            erased.append((seq, row[1]))
    return erased
