"""Failed attempts that a command is about to repeat: by words alone, and rather none than a wrong one.

It is asked before every command that an agent runs, so a false alarm costs more than a miss. An attempt is named only if
it shares most of what the command says, weighed by how rare each word is among the store's records, and nothing that
tells two tries apart differs: hosts, addresses, ports, paths, versions, identifiers, values of options. 10.0.0.1 and
10.0.0.2 are two things.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

from attrs import frozen

from agentmem import limits, text
from agentmem._unicode import listed
from agentmem.errors import InvalidInput
from agentmem.records import rarity, validate
from agentmem.records.base import View
from agentmem.types import Earlier, Origin

__all__ = ["failed_like"]

_CANDIDATES: Final = 20
_RAREST: Final = 4
_ASKED: Final = 16  # words of a command that are looked up
_TEXT: Final = 2000  # characters of an attempt that are looked at
_COMMAND: Final = 2000
# Of the weight of the command's words so much is shared; or of those of the attempt's title, with what is run.
_SHARED: Final = 0.6
_TITLE: Final = 0.7
_WORDS_SHARED: Final = 2
_JOINED: Final = re.compile(r"\s*(?:&&|\|\||;|\||\n)\s*")
_TOKEN: Final = re.compile(r"(?:\"[^\"]*\"|'[^']*'|[^\s\"'])+")
# What stands before a command, and options that change nothing of what it does.
_BEFORE: Final = frozenset(("sudo", "env", "time", "nohup", "exec", "command", "$", "cd"))
_HARMLESS: Final = frozenset(("-q", "-v", "-vv", "-y", "--quiet", "--verbose", "--yes", "--no-color", "--color"))
# What stands in commands whatever they do.
_EMPTY: Final = frozenset(
    listed(
        """sudo env bash sh zsh cd https http www com org net io run running try tried trying using use test tests testing
        failed fails fail"""
    )
)

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://[^\s'\"<>`]+", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?:/\d{1,2})?\b")
_HOST: Final = re.compile(
    r"\b(?:[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.)+[a-z][a-z0-9-]*[a-z0-9](?::\d{1,5})?\b", re.IGNORECASE
)
_PATH: Final = re.compile(r"(?<![\w:/.])(?:~|\.{1,2})?/[\w.@%+~/-]+|\b[\w-]+(?:/[\w.-]+)+")
_NUMBER: Final = re.compile(r"(?<![\w.])v?\d+(?:\.\d+)*(?![\w.])")
_NAME: Final = re.compile(r"\b(?=\w*\d)(?=\w*[^\W\d])[\w-]{3,}\b|\b[^\W\d]+(?:_[^\W_]+)+\b")
_OPTION: Final = re.compile(r"(?<!\S)(--?[A-Za-z][\w-]*)(?:=|\s+)(?!-)(\"[^\"]*\"|'[^']*'|[^\s]+)")


def failed_like(view: View, command: str, limit: int) -> tuple[Earlier, ...]:
    """The failed attempts of the project that a command would repeat, the nearest first.

    Args:
        view: Where to look.
        command: What is about to be run, as it stands.
        limit: At most so many.
    """
    asked = validate.text(command, "command", 64 * limits.BODY_BYTES)[:_COMMAND].strip()
    number = validate.whole(limit, "limit", 1, limits.PAGE)
    parts = [part for part in _parts(asked) if part.words]
    if not parts:
        return ()
    rows = _candidates(view, asked)
    weights = _weights(view, frozenset[str]().union(*(part.words for part in parts)))
    marks = _marks(asked)
    found = []
    for row in rows:
        nearness = _nearness(parts, marks, weights, row[1], (row[2] or "")[:_TEXT])
        if nearness > 0:
            found.append(Earlier(row[0], row[1], "failed", row[3] or "", round(nearness, 3), ("words",), row[4]))
    found.sort(key=lambda one: (-one.nearness, -one.id))
    return tuple(found[:number])


def _candidates(view: View, command: str) -> list[tuple[int, str, str | None, str | None, Origin]]:
    """Failed attempts that hold one of the rarer words of a command."""
    try:
        units = text.query(command).significant()[:_ASKED]
    except InvalidInput:
        return []
    rare, common = rarity.split(view, units)
    counted = rarity.counts(view, [one for unit in rare if (one := rarity.token(unit)) is not None])
    rare.sort(key=lambda unit: counted.get(rarity.token(unit) or "", 0))
    # What is like the command has one of its rarest words; common ones would find too many to be looked at.
    chosen = rare[:_RAREST] or common[:_RAREST]
    if not chosen:
        return []
    sql = f"""
    SELECT note.id, note.title, note.body, note.why, note.origin
    FROM search CROSS JOIN note ON note.id = search.rowid
    WHERE search MATCH ? AND note.project = ? AND note.kind = 'attempt' AND note.status = 'failed' AND note.title IS NOT NULL
    ORDER BY search.rank LIMIT {_CANDIDATES}
    """
    found: list[tuple[int, str, str | None, str | None, Origin]] = []
    found += view.rows(sql, (text.any_of(chosen), view.project))
    return found


def _words(said: str) -> frozenset[str]:
    """The words of a text that say something, stemmed where they are English."""
    return frozenset(stem for stem in text.stems(said) if stem not in _EMPTY and (len(stem) > 1 or not stem.isascii()))


def _weights(view: View, words: Iterable[str]) -> Mapping[str, float]:
    """How much each word tells: the rarer the more."""
    wanted = list(words)
    counted = rarity.counts(view, [word.replace('"', "") for word in wanted])
    return {word: 1.0 / (1.0 + math.log1p(counted[word.replace('"', "")])) for word in wanted}


def _nearness(
    parts: Sequence[_Part], marks: Mapping[str, frozenset[str]], weights: Mapping[str, float], title: str, body: str
) -> float:
    """How much of a command an attempt has, 0 where they differ in what tells tries apart."""
    said = f"{title}\n{body}"
    lines = [_part(line.strip().strip("`$ ")) for line in said.split("\n") if line.strip()]
    for part in parts:
        for line in lines:
            if line is not None and line.program == part.program:
                if _same(part, line):
                    return 1.0
                if line is lines[0]:
                    return 0.0  # the attempt is a command, and another one
    theirs, named = _words(said), _words(title)
    told = max(_told(part, theirs, named, weights) for part in parts)
    return 0.0 if told and _differ(marks, _marks(said)) else told


def _told(part: _Part, theirs: frozenset[str], named: frozenset[str], weights: Mapping[str, float]) -> float:
    """How much of a part of a command is told by an attempt in words of its own."""
    both = part.words & theirs
    if len(both) < _WORDS_SHARED or part.stem not in theirs:
        return 0.0
    shared = _weight(both, weights) / _weight(part.words, weights)
    if shared >= _SHARED:
        return shared
    covered = len(named & part.words) / len(named) if named else 0.0
    return covered if covered >= _TITLE and len(named & part.words) > _WORDS_SHARED else 0.0


@frozen
class _Part:
    """One of the commands that a line runs: what is run, its words as they stand, options apart, and what they say."""

    program: str
    operands: frozenset[str]
    options: frozenset[str]
    words: frozenset[str]

    @property
    def stem(self) -> str:
        """What is run, as a word of a text."""
        return next(iter(text.stems(self.program)), self.program)


def _parts(command: str) -> list[_Part]:
    return [part for one in _JOINED.split(command) if (part := _part(one)) is not None]


def _part(said: str) -> _Part | None:
    tokens = [token.strip("'\"") for token in _TOKEN.findall(said)]
    while tokens and (tokens[0].lower() in _BEFORE or "=" in tokens[0].partition("/")[0]):
        del tokens[0]
    if len(tokens) > 2 and tokens[0].startswith("python") and tokens[1] == "-m":
        del tokens[:2]
    if not tokens:
        return None
    program = tokens[0].rpartition("/")[2].lower()
    rest = tokens[1:]
    options = frozenset(token for token in rest if token.startswith("-")) - _HARMLESS
    operands = frozenset(token for token in rest if not token.startswith("-"))
    return _Part(program, operands, options, _words(said))


def _same(one: _Part, other: _Part) -> bool:
    """Whether two commands are one, in whatever order: the same operands, and options that matter."""
    return one.operands == other.operands and one.options == other.options


def _weight(words: Iterable[str], weights: Mapping[str, float]) -> float:
    return sum(weights.get(word, 0.0) for word in words)


def _marks(said: str) -> Mapping[str, frozenset[str]]:
    """What tells two tries apart, by sort."""
    hosts, paths = set(), set()
    rest = said
    for url in _URL.findall(said):
        parts = urlsplit(url.rstrip(".,;:)"))
        hosts.add(parts.netloc.lower())
        paths |= {parts.path.rstrip("/")} - {""}
    rest = _URL.sub(" ", rest)
    addresses = frozenset(_ADDRESS.findall(rest)) | {host for host in hosts if _ADDRESS.fullmatch(host)}
    rest = _ADDRESS.sub(" ", rest)
    paths |= {path.rstrip("/.,;:") for path in _PATH.findall(rest)} - {""}
    rest = _PATH.sub(" ", rest)
    hosts |= {host.lower() for host in _HOST.findall(rest)}
    rest = _HOST.sub(" ", rest)
    options = {(name, value.strip("'\"")) for name, value in _OPTION.findall(said)}
    return {
        "address": addresses,
        "host": frozenset(hosts) - addresses,
        "path": frozenset(paths),
        "number": frozenset(_NUMBER.findall(rest)),
        "name": frozenset(name.lower() for name in _NAME.findall(rest)),
        "option": frozenset(f"{name} {value}" for name, value in options),
    }


def _differ(command: Mapping[str, frozenset[str]], attempt: Mapping[str, frozenset[str]]) -> bool:
    """Whether both name something of a sort, and the command something that the attempt does not."""
    for sort in ("address", "host", "path", "name"):
        if command[sort] and attempt[sort] and not _within(command[sort], attempt[sort]):
            return True
    if command["number"] and attempt["number"] and command["number"].isdisjoint(attempt["number"]):
        return True
    named = {option.partition(" ")[0] for option in attempt["option"]}
    return any(option.partition(" ")[0] in named and option not in attempt["option"] for option in command["option"])


def _within(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether each of one is one of the other, or ends like it: /api/users and /users, db.example.com and example.com."""
    return all(
        any(mine == theirs or mine.endswith(theirs) or theirs.endswith(mine) for theirs in other) for mine in one
    )
