"""Exports as JSON Lines: one object a line, readable by people and by any program that reads JSON.

The first line says what the file is: a whole `log`, which is lossless, or a `copy` of some records. Then comes an event
a line, as the log has it: header, payload, salt, and the chain up to it; of an erased event its digest in place of
payload and salt. A long text stands once, on a line of its own, right before the first event that uses it; the payload
names it by its hash, as the log does (`agentmem.log.blobs`), and the line says so with `"texts": true`. The last line has
the counts and the end of the chain: a file without it was cut off.

A payload as its line has it, spelled as canonical JSON, is what the log stores, byte for byte. The chain of a log is that
of its store; a copy has a chain of its own, which begins with its first line.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, BinaryIO, Final, Literal, TypeAlias, get_args

from attrs import frozen

from agentmem import limits
from agentmem._version import __version__
from agentmem.errors import AgentMemError, Corrupt, InvalidInput, LimitExceeded, NewerFile, shown
from agentmem.log import blobs, chain
from agentmem.log.canonical import canonical
from agentmem.records import validate
from agentmem.types import ORIGINS, Head, RecordType

__all__ = ["Entry", "Header", "Reader", "What", "Writer", "damaged", "is_export"]

FORMAT: Final = 1
NAMES: Final = (
    "seq", "at", "project", "kind", "version", "type", "record", "session", "author", "run", "task", "origin", "request",
)  # fmt: skip
"""The fields of an event's header, in the order of the log."""

What: TypeAlias = Literal["log", "copy"]

# How a first line begins. Two of three are enough: a damaged export must not be taken for somebody's log of work.
_BEGIN: Final = (b'{"agentmem":"', b'"format":', b'"version":"')
_PIECE: Final = (b'{"seq":', b',"at":', b',"project":')
_BEGIN_BYTES: Final = 64
_HEADER_BYTES: Final = 64 * 1024
_RECORD_TYPES: Final = frozenset(get_args(RecordType))
_KINDS_OF_FILE: Final = get_args(What)
_STORE: Final = re.compile("[0-9a-f]{32}", re.ASCII)
_HASH: Final = re.compile("[0-9a-f]{64}", re.ASCII)
_SALT: Final = re.compile("(?:[0-9a-f]{2}){1,64}", re.ASCII)
_KIND: Final = re.compile("[a-z][a-z_.]{0,63}", re.ASCII)
# What JSON need not escape and a terminal or an editor would obey: C1 controls, bidirectional marks, odd line ends.
_UNSEEN: Final = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]")

_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


@frozen
class Header:
    """The first line of an export.

    Attributes:
        what: A whole `log`, or a `copy` of some records.
        store: The id of the store it was made of.
        head: The end of the store's log when the export was begun.
        epoch: How many purges the store had seen by then.
        project: Of a copy: the project it is of.
        roots: Of a copy: the records that were asked for; empty for all of a project.
    """

    what: What
    store: str
    head: Head
    epoch: int
    project: str | None = None
    roots: tuple[int, ...] = ()

    def line(self) -> str:
        """It as JSON."""
        fields: dict[str, Any] = {
            "agentmem": self.what, "format": FORMAT, "version": __version__, "store": self.store, "epoch": self.epoch,
            "head": {"seq": self.head.seq, "chain": self.head.chain},
        }  # fmt: skip
        if self.what == "copy":
            fields |= {"project": self.project, "roots": list(self.roots)}
        return _shown(_encode(fields))


@frozen
class Entry:
    """One event of an export, sound by its digest and the chain.

    Attributes:
        line: Where it stands, counted from 1.
        header: The fields of `NAMES`.
        stored: The payload as the log stores it; None once erased.
        payload: It as JSON, long texts by their hashes.
        salt: Of the digest; None once erased.
        digest: Of salt and payload.
        chain: Up to and with this event.
        texts: The long texts that are used here first, by hash.
    """

    line: int
    header: tuple[Any, ...]
    stored: str | None
    payload: dict[str, Any] | None
    salt: bytes | None
    digest: bytes
    chain: bytes
    texts: Mapping[bytes, str]


def damaged(line: int, why: str) -> Corrupt:
    """The error for a line that is not as it was written."""
    return Corrupt(
        f"Line {line} of the export is damaged", why=why, next="Take another copy of the file, or export again"
    )


def is_export(start: bytes) -> bool:
    """Whether a file that begins so is an export, be it a damaged one or a piece of one."""
    start = start[:_BEGIN_BYTES]
    return sum(part in start for part in _BEGIN) > 1 or all(part in start for part in _PIECE)


class Writer:
    """Spells an export line by line.

    Attributes:
        seq: The last event that was written; 0 for none.
        chain: The chain up to it.
        events: How many were written.
        erased: How many of them are erased.
        records: How many records were made by them.
        texts: The long texts that were written.
    """

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write
        self.seq = 0
        self.chain = b""
        self.events = self.erased = self.records = 0
        self.texts: set[bytes] = set()

    def header(self, header: Header) -> None:
        """The first line."""
        line = header.line().encode()
        self.chain = _beginning(header, line)
        self._write(line + b"\n")

    def goes_on(self, reader: Reader) -> None:
        """Continue after what was read of an earlier beginning."""
        self.seq, self.chain, self.texts = reader.seq, reader.chain, set(reader.texts)
        self.events, self.erased, self.records = reader.events, reader.erased, reader.records

    def text(self, hashed: bytes, text: str) -> None:
        """A long text, right before the first event that uses it."""
        self.texts.add(hashed)
        self._line(_encode({"text": hashed.hex(), "is": text}), "A long text")

    def event(self, header: tuple[Any, ...], stored: str | None, salt: bytes | None, digest: bytes) -> bytes:
        """An event.

        Returns:
            The chain up to it.
        """
        self.chain = chain.link(self.chain, chain.header(*header), digest)
        self.seq = header[0]
        self.events += 1
        self.records += header[6] == header[0]
        start = _encode(dict(zip(NAMES, header, strict=True)))[:-1]
        if stored is None or salt is None:
            self.erased += 1
            rest = f',"erased":true,"digest":"{digest.hex()}"'
        elif stored.startswith("@"):
            rest = f',"payload":{stored[1:]},"texts":true,"salt":"{salt.hex()}"'
        else:
            rest = f',"payload":{stored},"salt":"{salt.hex()}"'
        self._line(f'{start}{rest},"chain":"{self.chain.hex()}"}}', f"Event {self.seq}")
        return self.chain

    def end(self) -> None:
        """The last line."""
        self._line(_encode({"end": self._counts(), "chain": self.chain.hex()}), "The end")

    def _counts(self) -> dict[str, int]:
        return {
            "seq": self.seq, "events": self.events, "erased": self.erased, "records": self.records,
            "texts": len(self.texts),
        }  # fmt: skip

    def _line(self, line: str, what: str) -> None:
        written = _shown(line).encode()
        if len(written) >= limits.EXPORT_LINE_BYTES:
            raise LimitExceeded(
                f"{what} is longer than a line of an export may be, {limits.EXPORT_LINE_BYTES} bytes",
                next="Make a backup: it has no such limit",
            )
        self._write(written + b"\n")


def _shown(line: str) -> str:
    """The same JSON with what does not show spelled as escapes; such characters stand inside its texts only."""
    return line if line.isprintable() else _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", line)


def _beginning(header: Header, line: bytes) -> bytes:
    """The chain before the first event."""
    if header.what == "log":
        return chain.genesis(header.store)
    return hashlib.sha256(b"agentmem copy 1\x00" + line).digest()


class Reader:
    """Reads an export, and proves each line as it goes: `for entry in reader`.

    Attributes:
        header: The first line.
        line: The last line that was read, counted from 1.
        offset: Where the line after the last event begins, in bytes.
        seq: The last event; 0 for none.
        chain: The chain up to it.
        events: How many there were.
        erased: How many of them are erased.
        records: How many records were made by them.
        texts: The hashes of the long texts.
    """

    def __init__(self, file: BinaryIO, *, proven: bytes | None = None) -> None:
        """Read the first line.

        Args:
            file: Open for reading, at its beginning.
            proven: The chain after each event, one after the other, as an earlier reading of the file had it.

        Raises:
            Corrupt: It is no export, or its first line is damaged.
            NewerFile: A later version of agentmem wrote it.
        """
        self._file = file
        self._proven = proven
        self.line = 1
        first = file.readline(_HEADER_BYTES)
        self.header = _header(first)
        self.offset = len(first)
        self.seq = 0
        self.chain = _beginning(self.header, first.rstrip(b"\r\n"))
        self.events = self.erased = self.records = 0
        self.texts: set[bytes] = set()

    def __iter__(self) -> Iterator[Entry]:
        """Every event in order.

        Raises:
            Corrupt: A line is damaged, missing, there twice, or the end is.
            NewerFile: A line has what this version does not know.
            LimitExceeded: A line is too long.
        """
        waiting: dict[bytes, str] = {}
        while True:
            fields = self._next()
            if "seq" in fields:
                entry = self._event(fields, waiting)
                self.offset = self._file.tell()
                waiting = {}
                yield entry
            elif "text" in fields:
                hashed, text = self._text(fields)
                if hashed in waiting or hashed in self.texts:
                    raise damaged(self.line, "The text stands in the file already")
                waiting[hashed] = text
            elif "end" in fields:
                if waiting:
                    raise damaged(self.line, "A long text stands before it that nothing uses")
                self._end(fields)
                return
            else:
                raise damaged(self.line, "It is neither an event, a text nor the end")

    def _next(self) -> dict[str, Any]:
        raw = self._file.readline(limits.EXPORT_LINE_BYTES + 1)
        if not raw:
            raise Corrupt(
                f"The export ends after line {self.line}, without its last line",
                why="It was cut off, or its making was interrupted",
                next="Take another copy of the file, or export again",
            )
        self.line += 1
        if len(raw) > limits.EXPORT_LINE_BYTES:
            raise LimitExceeded(
                f"Line {self.line} of the export is too long", why=f"{limits.EXPORT_LINE_BYTES} bytes at most"
            )
        if not raw.endswith(b"\n"):
            raise Corrupt(
                f"The export ends in the middle of line {self.line}",
                why="It was cut off",
                next="Take another copy of the file, or export again",
            )
        return _object(raw, self.line)

    def _text(self, fields: dict[str, Any]) -> tuple[bytes, str]:
        name, text = fields["text"], fields.get("is")
        if len(fields) != 2 or not _matches(_HASH, name) or type(text) is not str:
            raise damaged(self.line, "It is no long text")
        hashed = bytes.fromhex(name)
        if hashlib.sha256(_utf8(text, self.line)).digest() != hashed:
            raise damaged(self.line, "The text is not the one of its hash")
        return hashed, text

    def _event(self, fields: dict[str, Any], waiting: Mapping[bytes, str]) -> Entry:
        header = self._fields(fields)
        seq = header[0]
        if seq <= self.seq:
            raise damaged(self.line, f"Event {seq} comes after event {self.seq}")
        if self.header.what == "log" and seq != self.seq + 1:
            raise damaged(self.line, f"It has event {seq}, where event {self.seq + 1} belongs")
        stored, payload, salt, digest = self._payload(fields)
        linked = chain.link(self.chain, chain.header(*header), digest)
        if linked.hex() != fields.get("chain"):
            raise damaged(self.line, f"Event {seq} does not match the chain: it, or a line before it, was changed")
        named = set() if stored is None else blobs.named(stored)
        if (named or waiting) and not (
            named >= waiting.keys() and all(each in self.texts for each in named - waiting.keys())
        ):
            raise damaged(self.line, f"A long text of event {seq} is missing, or stands there unused")
        self.seq, self.chain = seq, linked
        self.texts.update(waiting)
        self.events += 1
        self.erased += stored is None
        self.records += header[6] == seq
        place = 32 * self.events
        if self._proven is not None and self._proven[place - 32 : place] != linked:
            raise Corrupt("The file was changed while it was read", next="Import it again")
        if seq == self.header.head.seq and self.header.what == "log" and linked.hex() != self.header.head.chain:
            raise damaged(self.line, "The log differs from the head that the first line names")
        return Entry(self.line, header, stored, payload, salt, digest, linked, waiting)

    def _fields(self, fields: dict[str, Any]) -> tuple[Any, ...]:
        try:
            header = tuple([fields[name] for name in NAMES])
        except KeyError as error:
            raise damaged(self.line, f"It has no {error.args[0]}") from None
        seq, at, project, kind, version, of, record, session, author, run, task, origin, request = header
        numbers = (seq, project, version, record, *(each for each in (session, task) if each is not None))
        sound = (
            all(type(each) is int and 0 < each <= limits.INT_MAX for each in numbers)
            and type(at) is int
            and limits.TIME_LEAST <= at <= limits.TIME_MOST
            and record <= seq
            and _matches(_KIND, kind)
            and type(of) is str
            and of in _RECORD_TYPES
            and type(origin) is str
            and origin in ORIGINS
            and _is_label(author, limits.LABEL_CHARS)
            and _is_label(run, limits.LABEL_CHARS)
            and _is_label(request, limits.REQUEST_ID_CHARS)
        )
        if not sound:
            raise damaged(self.line, "A field of the event's header is not what it can be")
        return header

    def _payload(self, fields: dict[str, Any]) -> tuple[str | None, dict[str, Any] | None, bytes | None, bytes]:
        names = fields.keys() - _HEADER_NAMES
        if names == _ERASED_NAMES and fields["erased"] is True:
            if not _matches(_HASH, fields["digest"]):
                raise damaged(self.line, "The digest is none")
            return None, None, None, bytes.fromhex(fields["digest"])
        apart = "texts" in names
        if names != (_APART_NAMES if apart else _WHOLE_NAMES) or (apart and fields["texts"] is not True):
            raise damaged(self.line, f"It has other fields than an event has: {shown(sorted(names))}")
        payload, salt = fields["payload"], fields["salt"]
        if type(payload) is not dict or not _matches(_SALT, salt):
            raise damaged(self.line, "The payload is no object, or the salt is none")
        try:
            stored = ("@" if apart else "") + canonical(payload)
            if apart and not blobs.named(stored):
                raise damaged(self.line, "It names no long text")
        except (InvalidInput, TypeError, ValueError, RecursionError) as error:
            why = error.what if isinstance(error, AgentMemError) else "A long text is named in no way that is known"
            raise damaged(self.line, why) from None
        raw = bytes.fromhex(salt)
        return stored, payload, raw, chain.digest(raw, stored)

    def _end(self, fields: dict[str, Any]) -> None:
        counts = {
            "seq": self.seq, "events": self.events, "erased": self.erased, "records": self.records,
            "texts": len(self.texts),
        }  # fmt: skip
        if fields != {"end": counts, "chain": self.chain.hex()}:
            raise damaged(self.line, "The counts or the chain of the end are not those of the lines before")
        if self.header.what == "log" and self.seq < self.header.head.seq:
            raise damaged(self.line, f"The log ends at event {self.seq}, before the head that the first line names")
        if self._file.read(1):
            raise damaged(self.line + 1, "It stands after the end")


_HEADER_NAMES: Final = frozenset((*NAMES, "chain"))
_ERASED_NAMES: Final = {"erased", "digest"}
_WHOLE_NAMES: Final = {"payload", "salt"}
_APART_NAMES: Final = {"payload", "texts", "salt"}


def _header(raw: bytes) -> Header:
    if not is_export(raw):
        raise Corrupt("The file is no export of agentmem", next="Give a file that store.export() made")
    if not raw.endswith(b"\n"):
        raise Corrupt("The export ends in its first line", why="It was cut off", next="Export again")
    fields = _object(raw, 1)
    form = fields.get("format")
    if type(form) is int and form > FORMAT:
        raise NewerFile(
            f"The export has format {shown(form)}, unknown to this version",
            why=f"agentmem {shown(fields.get('version'))} wrote it",
            next="Upgrade agentmem",
        )
    what, store, head = fields.get("agentmem"), fields.get("store"), fields.get("head")
    epoch, project, roots = fields.get("epoch"), fields.get("project"), fields.get("roots", [])
    sound = (
        form == FORMAT
        and type(form) is int
        and type(what) is str
        and what in _KINDS_OF_FILE
        and _matches(_STORE, store)
        and type(head) is dict
        and head.keys() == {"seq", "chain"}
        and _is_count(head["seq"])
        and _matches(_HASH, head["chain"])
        and _is_count(epoch)
        and (project is None or _is_label(project, limits.PROJECT_CHARS))
        and type(roots) is list
        and all(map(_is_count, roots))
    )
    if not sound or not isinstance(head, dict):
        raise damaged(1, "It does not say what the file is")
    known: Any = (what, store, Head(str(store), head["seq"], head["chain"]), epoch, project, tuple(roots))
    return Header(*known)


def _object(raw: bytes, line: int) -> dict[str, Any]:
    try:
        value = json.loads(raw.decode())
    except RecursionError:
        raise damaged(line, "It is nested too deep") from None
    except ValueError:
        raise damaged(line, "It is no JSON") from None
    if type(value) is not dict:
        raise damaged(line, "It is no JSON object")
    found: dict[str, Any] = value
    return found


def _utf8(text: str, line: int) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise damaged(line, "A text contains half of a surrogate pair") from None


def _matches(form: re.Pattern[str], value: object) -> bool:
    return type(value) is str and form.fullmatch(value) is not None


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= limits.INT_MAX


def _is_label(value: object, most: int) -> bool:
    return value is None or (type(value) is str and _fits(value, most))


@lru_cache(4096)
def _fits(value: str, most: int) -> bool:
    try:
        validate.label(value, "label", most)
    except InvalidInput:
        return False
    return True
