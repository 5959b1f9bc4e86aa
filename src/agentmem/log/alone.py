"""A session's chain by itself: exported with all that it is made of, and verified without the store.

The file is JSON Lines. The first line says of which store and session it is; each further one is an event: `header`, the
thirteen fields that the chain is made over; `salt` and `payload` as they are stored, both null once the event was purged;
`digest` and `chain`, hex. Long texts stand once, in lines of their own before the first event that has them. To verify:

    chain = SHA-256("agentmem session 1" NUL store NUL session)
    digest = SHA-256(salt + payload)
    chain = SHA-256(chain + JSON of the header without blanks + digest)

for each event, with salt, digest and chain as bytes and texts as UTF-8. A text that a payload names by `$blob` has that
SHA-256. The last line says how many events there are.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

import apsw
from attrs import frozen

from agentmem.errors import InvalidInput, shown
from agentmem.log import blobs, chain

__all__ = ["Proof", "Row", "lines", "rows", "verify"]

_FORMAT: Final = "agentmem session audit"
_COLUMNS: Final = """
seq, at, project, kind, version, type, record, session, author, run, task, origin, request, payload, salt, digest, session_chain
"""
_HEADER: Final = 13


@frozen
class Proof:
    """What a verification came to.

    Attributes:
        store: The id of the store.
        session: The session.
        events: How many events were found sound.
        purged: How many of these have no payload any more.
        chain: The chain after them, hex.
        sound: Whether all are.
        problem: What is wrong with the first that is not; empty for nothing.
    """

    store: str
    session: int
    events: int
    purged: int
    chain: str
    sound: bool
    problem: str = ""


@frozen
class Row:
    """One event of a session, its payload whole; None once it was purged."""

    seq: int
    at: int
    kind: str
    type: str
    author: str | None
    run: str | None
    origin: str
    payload: dict[str, Any] | None


def rows(connection: apsw.Connection, session: int) -> Iterator[Row]:
    """The events of a session in order."""
    sql = "SELECT seq, at, kind, type, author, run, origin, payload FROM event WHERE session = ? ORDER BY seq"
    for row in connection.execute(sql, (session,)):
        payload = None if row[-1] is None else blobs.whole(connection, row[-1])
        fields: tuple[Any, ...] = (*row[:-1], payload)
        yield Row(*fields)


def lines(connection: apsw.Connection, store: str, session: int) -> Iterator[str]:
    """The lines of a file that verifies alone."""
    yield _line({"format": _FORMAT, "version": 1, "store": store, "session": session})
    told: set[bytes] = set()
    events, last = 0, chain.session_genesis(store, session).hex()
    for row in connection.execute(f"SELECT {_COLUMNS} FROM event WHERE session = ? ORDER BY seq", (session,)):
        payload, salt, digest, linked = row[_HEADER:]
        if payload is not None:
            for hashed in sorted(blobs.named(payload) - told):
                text = connection.execute("SELECT text FROM blob WHERE hash = ?", (hashed,)).fetchone()
                yield _line({"text": None if text is None else text[0], "hash": hashed.hex()})
                told.add(hashed)
        yield _line(
            {
                "header": list(row[:_HEADER]), "salt": None if salt is None else salt.hex(), "payload": payload,
                "digest": digest.hex(), "chain": linked.hex(),
            }
        )  # fmt: skip
        events, last = events + 1, linked.hex()
    yield _line({"end": events, "chain": last})


def _line(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def verify(given: Iterable[str]) -> Proof:
    """Compute the chain of an exported session anew, from the file alone.

    Args:
        given: The lines of the file.

    Raises:
        InvalidInput: It is no such file.
    """
    source = iter(given)
    first = _parsed(next(source, ""), 1)
    if first.get("format") != _FORMAT or first.get("version") != 1:
        raise InvalidInput("This is no audit of a session", why="Its first line does not say so")
    store, session = first.get("store"), first.get("session")
    if not isinstance(store, str) or type(session) is not int or not store.isprintable():
        raise InvalidInput("This is no audit of a session", why="Its first line lacks store or session")
    checked = _Checked(store, session)
    for number, line in enumerate(source, 2):
        if line.strip() and not checked.step(_parsed(line, number), number):
            break
    return checked.proof()


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except (TypeError, ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidInput(f"Line {number} is no line of an audit", why=f"It is {shown(line)}")
    return found


class _Checked:
    """A verification on its way."""

    def __init__(self, store: str, session: int) -> None:
        self.store, self.session = store, session
        self.chain = chain.session_genesis(store, session)
        self.events = self.purged = self.last = 0
        self.problem = ""
        self.ended = False
        self._texts: set[str] = set()

    def step(self, line: dict[str, Any], number: int) -> bool:
        """Check one line; whether it is sound."""
        try:
            if self.ended:
                self.problem = "there are lines after the last one"
            elif "end" in line:
                self._end(line)
            elif "hash" in line:
                self._text(line)
            else:
                self._event(line)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            self.problem = f"line {number} is not as it should be ({type(error).__name__})"
        return not self.problem

    def _text(self, line: dict[str, Any]) -> None:
        if hashlib.sha256(line["text"].encode()).hexdigest() != line["hash"]:
            self.problem = "a long text was changed"
        self._texts.add(line["hash"])

    def _end(self, line: dict[str, Any]) -> None:
        self.ended = True
        if line["end"] != self.events or line["chain"] != self.chain.hex():
            self.problem = f"the file has {self.events} events, it was made of {shown(line['end'])}"

    def _event(self, line: dict[str, Any]) -> None:
        header, payload = line["header"], line["payload"]
        seq, digest = header[0], bytes.fromhex(line["digest"])
        if header[7] != self.session or len(header) != _HEADER or not seq > self.last:
            self.problem = f"event {shown(seq)} does not belong here"
            return
        if payload is None:
            if line["salt"] is not None:
                self.problem = f"the payload of event {seq} was left out"
                return
            self.purged += 1
        elif chain.digest(bytes.fromhex(line["salt"]), payload) != digest:
            self.problem = f"the payload of event {seq} was changed"
            return
        elif {each.hex() for each in blobs.named(payload)} - self._texts:
            self.problem = f"a long text of event {seq} is missing"
            return
        self.chain = chain.link(self.chain, chain.header(*header), digest)
        if self.chain.hex() != line["chain"]:
            self.problem = f"the chain is broken at event {seq}: it, or one before it, was changed or left out"
            return
        self.last = seq
        self.events += 1

    def proof(self) -> Proof:
        """What it came to."""
        if not self.ended and not self.problem:
            self.problem = "the file ends too early"
        return Proof(
            self.store, self.session, self.events, self.purged, self.chain.hex(), not self.problem, self.problem
        )
