"""Walking a folder of logs safely, and reading its files as text.

No link is followed, nothing outside the root is opened, and size, number and depth have caps: a folder of logs
may come from somebody else.
"""

from __future__ import annotations

import datetime as dt
import errno
import hashlib
import os
import re
import stat
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from attrs import field, frozen

from agentmem.errors import InvalidInput, NotFound
from agentmem.transfer.markdown.frontmatter import FrontMatter, cut_front_matter
from agentmem.transfer.markdown.types import Dated, ReportLine, SourceFile
from agentmem.transfer.markdown.words import read_date

__all__ = [
    "DATE_KEYS",
    "DEPTH_MAX",
    "FILES_MAX",
    "FILE_BYTES",
    "Found",
    "Recency",
    "Source",
    "find_files",
    "read_source",
    "read_text",
    "recency",
]

FILE_BYTES: Final = 4 * 1024 * 1024
FILES_MAX: Final = 20_000
DEPTH_MAX: Final = 32
_TEXT_SUFFIXES: Final = frozenset({".md", ".markdown", ".mdx", ".txt", ".json", ".jsonl", ".ndjson"})
_SKIPPED_FOLDERS: Final = frozenset({"node_modules", "__pycache__", "venv", "site-packages", "target", "dist"})
_NAMED_ONE_BY_ONE: Final = 20
_JOURNAL_FOLDER: Final = re.compile(
    r"(?:^|/)(?:journals?|logs?|diary|daily|sessions?|work-?logs?|日志|日记)$", re.IGNORECASE
)
Recency = tuple[str, int, str, int]
Encoding = Literal["utf-8", "utf-16", "gb18030"]


@frozen
class Found:
    """The files of a folder that may be read, in a fixed order, and what was left alone."""

    root: Path
    paths: tuple[str, ...]
    report: tuple[ReportLine, ...]


def recency(dated: Dated | None, mtime: dt.datetime, number: int, path: str, line: int) -> Recency:
    """A value that sorts statements by age; `number` orders those of one day."""
    when = f"1 {dated.isoformat()[:10]}" if dated else f"0 {mtime.isoformat()}"
    return when, number, path, line


def is_journal_folder(folder: str) -> bool:
    """Whether a folder is called one of journals or logs."""
    return bool(_JOURNAL_FOLDER.search(folder))


@frozen
class Source:
    """One file as text.

    Args:
        path: Relative to the root, with `/`.
        text: Without byte order mark and front matter; lines end in LF.
        front: Its front matter.
        mtime: When the file was last changed, UTC.
        digest: SHA-256 of its bytes, 32 hexadecimal digits.
        chars: Characters of the whole text.
        dated: The day its front matter, first lines or path name, None where they name none.
    """

    path: str
    text: str
    front: FrontMatter
    mtime: dt.datetime
    digest: str
    chars: int
    dated: Dated | None = field(default=None)

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def stem(self) -> str:
        """The name without its ending."""
        return self.name.rpartition(".")[0] or self.name

    @property
    def folder(self) -> str:
        """The folder it lies in, empty for the root."""
        return self.path.rpartition("/")[0]

    @property
    def recency(self) -> Recency:
        """What orders what files say by age: the date a file names; a file that names none is older than all that do.

        The time of the last change decides among those only: a copy or a checkout makes it mean nothing.
        """
        return recency(self.dated, self.mtime, 0, self.path, 0)

    def to_file(self, kind: str) -> SourceFile:
        """The line of it in a plan."""
        return SourceFile(self.path, self.digest, self.chars, kind)


def find_files(path: Path, *, files_max: int = FILES_MAX, depth_max: int = DEPTH_MAX) -> Found:
    """The files below `path`, or `path` itself where it is a file.

    Raises:
        NotFound: Nothing is there.
        InvalidInput: It is neither a file nor a folder.
    """
    try:
        root = path.resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise NotFound(f"There is no file or folder {path}", next="Name an existing file or folder of logs.") from error
    except (OSError, RuntimeError) as error:
        raise InvalidInput(f"{path} cannot be read", why=str(error)) from error
    if root.is_file():
        return Found(root.parent, (root.name,), ())
    if not root.is_dir():
        raise InvalidInput(f"{path} is neither a file nor a folder", next="Name a file or folder of logs.")
    paths: list[str] = []
    skipped: Counter[str] = Counter()
    lines: list[ReportLine] = []
    for kind, relative in _walk(root, "", 0, depth_max):
        if kind == "file" and len(paths) < files_max:
            paths.append(relative)
        elif kind == "file":
            skipped[f"files beyond the first {files_max}"] += 1
        elif kind in ("hidden", "folder", "other"):
            skipped[_SKIPPED_AS[kind]] += 1
        elif len(lines) < _NAMED_ONE_BY_ONE:
            lines.append(ReportLine("skipped", _SKIPPED_AS[kind], relative))
        else:
            skipped[f"{_SKIPPED_AS[kind]} (further ones)"] += 1
    lines.extend(ReportLine("skipped", f"{count} × {what}", count=count) for what, count in sorted(skipped.items()))
    return Found(root, tuple(paths), tuple(lines))


_SKIPPED_AS: Final = {
    "hidden": "hidden files and folders",
    "folder": "folders of dependencies or builds",
    "other": "files that are no text of logs",
    "link": "a link, not followed",
    "deep": "folders nested too deep",
    "special": "no regular file",
    "unreadable": "could not be listed",
}


def _walk(root: Path, relative: str, depth: int, depth_max: int) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(root / relative if relative else root) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        yield "unreadable", _safe(relative)
        return
    folders = []
    for entry in entries:
        below = f"{relative}/{entry.name}" if relative else entry.name
        if entry.is_symlink() or _is_junction(entry):
            yield "link", _safe(below)
        elif entry.name.startswith("."):
            yield "hidden", _safe(below)
        elif entry.is_dir(follow_symlinks=False):
            folders.append((entry.name, below))
        elif not entry.is_file(follow_symlinks=False):
            yield "special", _safe(below)
        elif os.path.splitext(entry.name)[1].lower() not in _TEXT_SUFFIXES:
            yield "other", _safe(below)
        else:
            yield "file", below
    for name, below in folders:
        if name in _SKIPPED_FOLDERS:
            yield "folder", _safe(below)
        elif depth + 1 >= depth_max:
            yield "deep", _safe(below)
        else:
            yield from _walk(root, below, depth + 1, depth_max)


def _is_junction(entry: os.DirEntry[str]) -> bool:
    attributes = getattr(entry.stat(follow_symlinks=False), "st_file_attributes", 0)
    return bool(attributes & getattr(stat, "FILE_ATTRIBUTE_REPARSE_POINT", 0))


def _safe(path: str) -> str:
    """The path as valid Unicode: bytes of a name that are none become a replacement character."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read_source(root: Path, path: str, *, file_bytes: int = FILE_BYTES) -> tuple[Source | None, tuple[ReportLine, ...]]:
    """One file as a source, or None with the reason why it cannot be one."""
    shown = _safe(path)
    try:
        raw, mtime = _read_bytes(root / path, file_bytes)
    except OSError as error:
        why = "a link, not followed" if error.errno == errno.ELOOP else f"cannot be read ({error.strerror})"
        return None, (ReportLine("skipped", why, shown),)
    if raw is None:
        return None, (ReportLine("skipped", f"larger than {file_bytes // 1024} KiB", shown),)
    decoded = _decode(raw)
    if decoded is None:
        return None, (
            ReportLine("skipped", "binary, or in an encoding that is neither UTF-8, UTF-16 nor GB18030", shown),
        )
    text, encoding = decoded
    report = () if encoding == "utf-8" else (ReportLine("hint", f"read as {encoding.upper()}", shown),)
    front, body = (
        cut_front_matter(text) if not shown.endswith((".json", ".jsonl", ".ndjson")) else (FrontMatter(), text)
    )
    source = Source(
        path=shown,
        text=body,
        front=front,
        mtime=mtime,
        digest=hashlib.sha256(raw).hexdigest()[:32],
        chars=len(text),
        dated=_date_of(shown, front, body),
    )
    return source, report


def read_text(path: Path, *, file_bytes: int = FILE_BYTES) -> str | None:
    """The whole text of a file, None where it cannot be read as one."""
    try:
        raw, _ = _read_bytes(path, file_bytes)
    except OSError:
        return None
    decoded = _decode(raw) if raw is not None else None
    return decoded[0] if decoded else None


def _read_bytes(path: Path, file_bytes: int) -> tuple[bytes | None, dt.datetime]:
    """The bytes of a regular file, None where it is too large; a link put in its place since the walk is refused."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        mtime = dt.datetime.fromtimestamp(status.st_mtime, dt.UTC)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "no regular file")
        raw = file.read(file_bytes + 1)
    return (raw if len(raw) <= file_bytes else None), mtime


def _decode(raw: bytes) -> tuple[str, Encoding] | None:
    tries: tuple[tuple[str, Encoding], ...] = (("utf-8-sig", "utf-8"), ("gb18030", "gb18030"))
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        tries = (("utf-16", "utf-16"),)
    elif b"\0" in raw:
        return None
    for codec, name in tries:
        try:
            text = raw.decode(codec)
        except UnicodeDecodeError:
            continue
        if "\0" not in text:
            return text.replace("\r\n", "\n").replace("\r", "\n"), name
    return None


_DATE_LINE: Final = re.compile(
    r"^[\s>*#_-]*(?:\*\*)?(?:(?:date|updated|last updated|created|日期|更新|时间).{0,6}?[:：]"
    r"|(?:as of|as at|截至|截止)\s*(?=20\d\d))",
    re.IGNORECASE,
)
_STARTED: Final = re.compile(r"^\W*started (?:on )?(?=20\d\d)", re.IGNORECASE)
DATE_KEYS: Final = ("updated", "last_updated", "modified", "date", "created", "createdat")
"""The keys of front matter that tell of when a text is, the first of them that there is."""
_PATH_DAY: Final = re.compile(r"(?<!\d)(20\d\d)[-_]?(\d\d)[-_]?(\d\d)(?!\d)")
_PATH_MONTH: Final = re.compile(r"(?:^|/)(20\d\d)-(\d\d)/(?:\2)-(\d\d)(?=\D)")


def _date_of(path: str, front: FrontMatter, text: str) -> Dated | None:
    for key in DATE_KEYS:
        value = front.get(key)
        found = read_date(value) if value else None
        if found:
            return found
    lines = text.split("\n", 20)[:20]
    told = [line for line in lines if line.startswith("#") or _DATE_LINE.match(line)]
    for line in (*told, *filter(_STARTED.match, lines)):
        found = read_date(line)
        if found:
            return found
    for pattern in (_PATH_MONTH, _PATH_DAY):
        for match in reversed(list(pattern.finditer(path))):
            try:
                return dt.date(int(match[1]), int(match[2]), int(match[3]))
            except ValueError:
                continue
    return None
