"""The audit of a session: who did what when, with the chain's proof, and a file that verifies alone.

Every event that belongs to a session is in a chain of its own: that of the conversation, of who ran it, and of the memory
that was written in it. An exported audit has all that the chain is made of, so that anybody can compute it anew without the
store, see `agentmem.log.alone`. What was purged shows by its digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from attrs import field, frozen

from agentmem.context import lines
from agentmem.context.answer import Answer
from agentmem.context.tokens import cut
from agentmem.log import alone
from agentmem.records import vocabulary
from agentmem.records.base import View
from agentmem.records.session_rows import load_session
from agentmem.types import moment

__all__ = ["Audit", "AuditEntry", "audit"]

_TEXT_TOKENS: Final = 80


@frozen
class AuditEntry:
    """One event of a session.

    Attributes:
        seq: Its place in the log.
        at: When, microseconds since 1970 UTC.
        kind: What kind of event: `message.added` for the conversation itself.
        type: Of the conversation the type of the event, else the type of the record.
        who: Author and run, as far as they are known.
        said: What happened, in one line; not escaped.
        purged: Whether its payload was erased.
        origin: Where its text came from.
    """

    seq: int
    at: int
    kind: str
    type: str
    who: str
    said: str
    purged: bool
    origin: str


@frozen
class Audit(Answer):
    """Who did what when in a session.

    Attributes:
        session: The session.
        title: Its title.
        store: The id of the store.
        events: How many events it has.
        chain: The end of its chain, hex: note it elsewhere to notice that the session was changed.
        sound: Whether the chain, computed anew, is what is stored.
        problem: What is wrong, empty for nothing.
        entries: The events.
        text: As text, one line each.
    """

    session: int
    title: str | None
    store: str
    events: int
    chain: str
    sound: bool
    problem: str
    entries: tuple[AuditEntry, ...]
    text: str
    _lines: tuple[str, ...] = field(repr=False, default=())

    def export(self) -> Iterator[str]:
        """The lines of a file that verifies alone: `agentmem session verify FILE`, or `agentmem.log.alone.verify`."""
        return iter(self._lines)

    def to_dict(self) -> dict[str, Any]:
        """The audit as JSON, without the lines of the file."""
        import attrs

        found = attrs.asdict(self)
        del found["_lines"]
        return found


def audit(view: View, session: int) -> Audit:
    """The audit of a session."""
    info = load_session(view, session)
    store = view.binding.ledger.store
    exported = tuple(alone.lines(view.connection, store, session))
    proof = alone.verify(exported)
    entries = tuple(_entry(row) for row in alone.rows(view.connection, session))
    head = f"session #{session} {lines.inline(info.title, info.origin)}".rstrip()
    told = "sound" if proof.sound else f"BROKEN: {proof.problem}"
    text = "\n".join(
        [f"{head}: {lines.counted(len(entries), 'event')}, chain {proof.chain}, {told}", *map(_line, entries)]
    )
    return Audit(
        session, info.title, store, len(entries), proof.chain, proof.sound, proof.problem, entries, text, exported
    )


def _entry(row: alone.Row) -> AuditEntry:
    who = " ".join(part for part in (row.author, f"({row.run})" if row.run else None) if part)
    payload = row.payload
    of, said = row.type, ""
    if payload is not None:
        of, said = (payload["type"], _said(payload)) if row.kind == "message.added" else (row.type, _changed(payload))
    return AuditEntry(row.seq, row.at, row.kind, of, who, said, payload is None, row.origin)


def _said(payload: dict[str, Any]) -> str:
    of, body = payload["type"], payload["body"]
    about = f"of #{payload['target']} " if "target" in payload else ""
    text = vocabulary.said(of, body)
    if of == "user.tool_confirmation":
        text = " ".join(
            filter(None, (body["result"], "by " + body["by"] if body.get("by") else "", body.get("deny_message")))
        )
    elif not text:
        text = json.dumps(body, ensure_ascii=False) if body else ""
    key = f"{payload['key']}: " if "key" in payload else ""
    return f"{about}{key}{text}"


def _changed(payload: dict[str, Any]) -> str:
    return json.dumps(payload.get("set", payload), ensure_ascii=False)


def _line(entry: AuditEntry) -> str:
    what = "(purged)" if entry.purged else lines.inline(cut(entry.said, _TEXT_TOKENS), entry.origin)
    name = entry.type if entry.kind == "message.added" else entry.kind
    who = f" {lines.inline(entry.who)}" if entry.who else ""
    return f"#{entry.seq} {moment(entry.at):%Y-%m-%d %H:%M:%S}{who} {name} {what}".rstrip()
