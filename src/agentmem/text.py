"""Analysis of text for the full-text index and for queries: a leaf, with no state but a bounded memo of words.

One analysis serves both sides. A text is cut at white space into *chunks*, a chunk into *cores*: words, compounds
(identifiers, paths, hosts, flags, versions, addresses), runs of a script without spaces, pictures. Each core gives
index tokens, in this order:

- a word: the word, then its English stem where that differs (Porter2, by PyStemmer): `running run`;
- a compound: the whole, its parts side by side, then their stems: `/a/b.py:12 a b py 12`;
- a run of Han, kana, Hangul, Thai, Lao, Khmer or Myanmar letters: its overlapping bigrams, then its last character.
  Each other character begins a bigram, so a single character is found by prefix and is not indexed by itself.

A chunk gives the same tokens whatever stands beside it, so each chunk of a text finds that text. Stems need no marker:
a document with any form of a word holds the stem, one with the very form holds that too and therefore scores higher.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Final
from unicodedata import unidata_version

import Stemmer  # type: ignore[import-not-found]
from attrs import frozen

from agentmem._unicode import (
    STOP_WORDS,
    TOKEN_CHARS,
    UNSPACED_STOP,
    attaches,
    cores,
    marks,
    opposed,
    split,
    stem,
    unspaced,
)
from agentmem.errors import InvalidInput, LimitExceeded
from agentmem.limits import QUERY_CHARS

__all__ = [
    "FINGERPRINT",
    "FTS_TOKENIZE",
    "STOP_WORDS",
    "Query",
    "Unit",
    "analyse",
    "any_of",
    "distinguished",
    "forget_words",
    "likeness",
    "query",
    "snippet",
    "stems",
    "words",
]

_VERSION: Final = 1
FINGERPRINT: Final = f"{_VERSION}/unicode-{unidata_version}/stemmer-{Stemmer.version()}"
"""What the tokens of a text depend on. Where it differs from the one an index was made with, the index is rebuilt."""

FTS_TOKENIZE: Final = r"ascii tokenchars '!#$%&()*+,-./:;<=>?@[\]^_{|}~'"
"""The `tokenize=` argument of the FTS5 table, to be put in double quotes: only white space parts tokens. Needs
`detail=full`, for the parts of a compound are found as a phrase."""

_MEMO_CHUNKS: Final = 50_000
_MEMO_CHARS: Final = 40

_WORD_CHARS: Final = 24  # A snippet gives up so much at most to begin or end with a whole word.


def _core_tokens(core: str) -> list[str]:
    if unspaced(core):
        return [*[core[at : at + 2] for at in range(len(core) - 1)], core[-1]]
    whole, parts = split(core)
    tokens = [whole, *parts]
    for part in parts or (whole,):
        if part.isalpha() and (stemmed := stem(part)) not in tokens:
            tokens.append(stemmed)
    return tokens


class _Chunks(dict[str, str]):
    """The tokens of each chunk met lately. Single operations of a dict are atomic: threads share it without a lock."""

    def __missing__(self, chunk: str) -> str:
        word = chunk.lstrip("([{\"'`<").rstrip(".,;:!?)]}\"'`>")
        if word.isascii() and word.isalpha() and (word[1:].islower() or len(word) == 1):
            word = word.lower()[:TOKEN_CHARS]
            stemmed = stem(word)
            tokens = word if stemmed == word else f"{word} {stemmed}"
        else:
            tokens = " ".join([token for core in cores(chunk) for token in _core_tokens(core)])
        if len(chunk) <= _MEMO_CHARS:
            if len(self) >= _MEMO_CHUNKS:
                self.clear()
            self[chunk] = tokens
        return tokens


_chunks: Final = _Chunks()


def analyse(text: str) -> str:
    """The index tokens of a text, joined by spaces: what the triggers put into the full-text table.

    Total and deterministic: any string, whatever its length, gives an answer; no token holds white space, a quote, a
    control character or a lone surrogate. It is called as an SQL function, so a NULL gives no tokens.

    Args:
        text: Any text.
    """
    if not text:
        return ""
    return " ".join(filter(None, map(_chunks.__getitem__, text.split())))


def forget_words() -> None:
    """Empties the memo of analysed words of this process, for use after a purge."""
    _chunks.clear()


def _quoted(phrase: str, star: str = "") -> str:
    return f'"{phrase}"{star}'


@frozen
class Unit:
    """One thing a query asks for.

    A phrase is a string of index tokens joined by spaces, which stand side by side in a text that matches.

    Attributes:
        text: The thing as a token of the index: the word, the whole compound, the bigram or the character.
        phrases: What matches it, any of them, the exact form first, the widest last. Empty for a single character of a
            script without spaces: only `begins` finds that.
        begins: What matches it in the step of prefixes; the last token of each is the beginning of a word.
        wide: What matches it in the step of any: of a word the stem alone, for a text that holds the form holds the
            stem, and half the terms cost half the time; of a compound also its significant parts.
        stop: Whether it is a stop word.
    """

    text: str
    phrases: tuple[str, ...]
    begins: tuple[str, ...] = ()
    wide: tuple[str, ...] = ()
    stop: bool = False

    def exact(self) -> str:
        """The FTS5 expression for the thing itself or its stem."""
        return _either(map(_quoted, self.phrases)) if self.phrases else self.prefix()

    def prefix(self) -> str:
        """The FTS5 expression for words that begin like it, or for the thing itself where it is too short for that."""
        return _either([*map(_quoted, self.phrases), *(_quoted(phrase, " *") for phrase in self.begins)])

    def loose(self) -> str:
        """The FTS5 expression for any form of the thing or any significant part of it."""
        return _either(map(_quoted, self.wide)) if self.wide else self.prefix()


def _either(terms: Iterable[str]) -> str:
    joined = " OR ".join(terms)
    return f"({joined})"


@frozen
class Query:
    """A parsed query. Each method gives one FTS5 MATCH string, for one step of a search: from strict to loose.

    Every term stands in quotes, so nothing in the text of a query is FTS5 syntax.

    Attributes:
        units: What is asked for, in the order of the text, each thing once.
    """

    units: tuple[Unit, ...]

    def significant(self) -> tuple[Unit, ...]:
        """The units without the stop words, or all of them where there is nothing else."""
        return tuple(unit for unit in self.units if not unit.stop) or self.units

    def all(self) -> str:
        """Every significant unit, exactly or by its stem."""
        return " AND ".join(unit.exact() for unit in self.significant())

    def prefix(self) -> str:
        """Every significant unit, or a word that begins like it."""
        return " AND ".join(unit.prefix() for unit in self.significant())

    def any(self) -> str:
        """At least one significant unit, or a part of one."""
        return any_of(self.significant())


def any_of(units: Iterable[Unit]) -> str:
    """The FTS5 MATCH string for at least one of these units; for a caller that leaves out the commonest."""
    return " OR ".join(unit.loose() for unit in units)


def query(text: str) -> Query:
    """Parses what a caller looks for.

    Args:
        text: Words, a question, an identifier, a pasted line: at most `limits.QUERY_CHARS` characters, no syntax.

    Raises:
        LimitExceeded: The text is too long.
        InvalidInput: Nothing in the text can be searched for: it is blank or only punctuation.
    """
    if len(text) > QUERY_CHARS:
        raise LimitExceeded(
            f"The query has {len(text)} characters; at most {QUERY_CHARS} are allowed",
            next="Search for the words that matter in it",
        )
    units: dict[str, Unit] = {}
    for chunk in text.split():
        for core in cores(chunk):
            for unit in _core_units(core):
                units.setdefault(unit.text, unit)
    if not units:
        raise InvalidInput(
            "The query holds nothing to search for",
            why="It is blank, or only punctuation",
            next="Give a word, a number, a path or an identifier",
        )
    return Query(tuple(units.values()))


def _core_units(core: str) -> Iterator[Unit]:
    if unspaced(core):
        for place, run in enumerate(re.split(UNSPACED_STOP, core)):
            yield from _run_units(run, stop=place % 2 == 1)
        return
    whole, parts = split(core)
    yield _compound_unit(whole, parts) if parts else _word_unit(whole)


def _run_units(run: str, *, stop: bool) -> Iterator[Unit]:
    if len(run) == 1:
        yield Unit(text=run, phrases=(), begins=(run,), stop=stop or run in STOP_WORDS)
    for at in range(len(run) - 1):
        bigram = run[at : at + 2]
        yield Unit(text=bigram, phrases=(bigram,), wide=(bigram,), stop=stop)


def _word_unit(word: str) -> Unit:
    stemmed = stem(word)
    if word.isascii():
        begin = _common_prefix(word, stemmed)
    else:  # No stems for it: three quarters of a word of five letters or more reach its other endings.
        begin = word[: -(-len(word) * 3 // 4)] if len(word) >= 5 else word
    return Unit(
        text=word,
        phrases=(word,) if stemmed == word else (word, stemmed),
        begins=(begin,) if len(begin) >= 3 else (),
        wide=(stemmed,),
        stop=word in STOP_WORDS,
    )


def _common_prefix(word: str, stemmed: str) -> str:
    """What a word and its stem begin with alike (query, queri), or the word where that is too short to be of use."""
    same = next((at for at, (one, other) in enumerate(zip(word, stemmed, strict=False)) if one != other), len(stemmed))
    return word[:same] if same >= 3 else word


def _compound_unit(whole: str, parts: list[str]) -> Unit:
    phrases, begins = [whole], [whole]
    if len(parts) > 1 or (len(parts[0]) > 2 and parts[0] not in STOP_WORDS):  # -rf is not rf, C# is not C.
        phrases.append(" ".join(parts))
        begins += phrases[1:] if len(parts[-1]) > 2 else []
    telling = (stem(part) for part in parts if len(part) > 2 and part not in STOP_WORDS)
    return Unit(
        text=whole, phrases=tuple(phrases), begins=tuple(begins), wide=tuple(dict.fromkeys([*phrases, *telling]))
    )


def snippet(text: str, query: Query, *, chars: int = 200) -> str:
    """The place of a text where most of a query stands closest together, as it is written there.

    Args:
        text: The original text.
        query: What was looked for.
        chars: The most characters of the answer, the signs for what was cut included.

    Returns:
        The text without the white space around it if it fits, else a piece of it with … where it was cut. Cuts fall
        between words where a word ends nearby, otherwise, as in Chinese, between characters. Without any match it is
        the beginning.
    """
    text = text.strip()
    if len(text) <= chars:
        return text
    room = max(chars - 2, 1)
    units = query.significant()
    start, end = _densest(_hits(text, units), room, len(units))
    begin = max(0, min(start - (room - end + start) // 3, len(text) - room))
    begin = _after_word(text, begin, start) if begin else 0
    finish = begin + room
    finish = _before_word(text, finish, end) if finish < len(text) else len(text)
    return ("…" if begin else "") + text[begin:finish].strip() + ("…" if finish < len(text) else "")


def _densest(hits: Iterator[tuple[int, int, int]], room: int, wanted: int) -> tuple[int, int]:
    """The first span no longer than `room` that holds the most different units; the scan stops when it holds all."""
    window: deque[tuple[int, int, int]] = deque()
    counts: Counter[int] = Counter()
    most, best = 0, (0, 0)
    for hit in hits:
        window.append(hit)
        counts[hit[2]] += 1
        while len(window) > 1 and hit[1] - window[0][0] > room:
            left = window.popleft()[2]
            counts[left] -= 1
            if not counts[left]:
                del counts[left]
        if len(counts) > most:
            most, best = len(counts), (window[0][0], min(hit[1], window[0][0] + room))
            if most == wanted:
                break
    return best


def _hits(text: str, units: tuple[Unit, ...]) -> Iterator[tuple[int, int, int]]:
    """Where units stand in a text, in order: start, end, index of the unit."""
    exact: dict[str, int] = {}
    begins: list[tuple[str, int]] = []
    for index, unit in enumerate(units):
        for token in (unit.text, *unit.phrases, *unit.wide):
            exact.setdefault(token, index)
        begins.extend((begin, index) for begin in unit.begins)
    starts = tuple(begin for begin, _ in begins)
    known: dict[str, list[tuple[str, int]]] = {}
    for match in re.finditer(r"\S+", text):
        chunk = match[0]
        found = known.get(chunk)
        if found is None:
            tokens = dict.fromkeys(_chunks[chunk].split())
            found = [(token, exact[token]) for token in tokens if token in exact]
            for token in tokens:
                if token not in exact and token.startswith(starts):
                    found += [(begin, index) for begin, index in begins if token.startswith(begin)]
            known[chunk] = found
        if found and len(chunk) > _MEMO_CHARS:
            yield from _places(chunk, match.start(), found)
        else:
            yield from ((match.start(), match.end(), index) for _, index in found)


def _places(chunk: str, offset: int, found: list[tuple[str, int]]) -> list[tuple[int, int, int]]:
    """Where tokens stand inside a long chunk; at its start where they are spelled another way in it."""
    lowered = chunk.lower()
    places = []
    for token, index in found:
        at = list(_starts(token, lowered)) or [0]
        places += [(offset + start, offset + start + len(token), index) for start in at]
    return sorted(places)


def _starts(token: str, chunk: str) -> Iterator[int]:
    """Where a token begins. Without a pattern: compiled ones are remembered, and a purge must know of every memo."""
    at = chunk.find(token)
    while at >= 0:
        yield at
        at = chunk.find(token, at + len(token))


def _after_word(text: str, begin: int, limit: int) -> int:
    """The next place from `begin` on where a word begins, if one does soon and before `limit`."""
    for at in range(begin - 1, min(limit, begin + _WORD_CHARS)):
        if text[at].isspace():
            return at + 1
    while begin < limit and attaches(text[begin]):
        begin += 1
    return begin


def _before_word(text: str, finish: int, limit: int) -> int:
    """The last place up to `finish` where a word ends, if one does near and after `limit`."""
    for at in range(finish, max(limit, finish - _WORD_CHARS) - 1, -1):
        if text[at].isspace():
            return at
    while finish > limit and attaches(text[finish]):
        finish -= 1
    return finish


def words(text: str) -> tuple[str, ...]:
    """The distinct significant words of a text as index tokens, in order, stop words left out.

    A compound of letters counts as its parts, one with digits or without parts as a whole; a run of a script without
    spaces as its bigrams.
    """
    found: dict[str, None] = {}
    for core in _cores_of(text):
        if unspaced(core):
            found.update((unit.text, None) for unit in _core_units(core) if not unit.stop)
            continue
        whole, parts = split(core)
        named = parts if parts and not _has_digit(whole) and max(map(len, parts)) > 2 else [whole]
        found.update((word, None) for word in named if word not in STOP_WORDS)
    return tuple(found)


def stems(text: str) -> tuple[str, ...]:
    """The distinct stems of the significant words of a text, in order."""
    return tuple(dict.fromkeys(map(stem, words(text))))


def likeness(a: str, b: str) -> float:
    """How alike two titles are by their words: Dice's coefficient of their sets of stems.

    Returns:
        1.0 for the same significant words in any order and form, 0.0 for none in common or no words at all. It says
        nothing about which words differ: ask `distinguished` before two things are taken for one.
    """
    of_a, of_b = set(stems(a)), set(stems(b))
    if not of_a or not of_b:  # Nothing but stop words: those then are what there is.
        of_a, of_b = set(analyse(a).split()), set(analyse(b).split())
    both = len(of_a) + len(of_b)
    return 2 * len(of_a & of_b) / both if both else 0.0


def _has_digit(token: str) -> bool:
    return any(map(str.isdigit, token))


def _cores_of(text: str) -> Iterator[str]:
    for chunk in text.split():
        yield from cores(chunk)


def distinguished(a: str, b: str) -> bool:
    """Whether anything that makes two things of two alike texts differs: then neither may stand for the other.

    What distinguishes: numbers (with their percent sign or unit), dates, addresses, ports, versions, paths, flags,
    identifiers, compared in the order they come in among those of their shape; the case of paths, flags and units;
    comparison and currency signs, arrows, questions; pictures; negations, by their number; quantifiers, modal verbs, the
    past of auxiliaries; words in capitals; opposites (enabled and disabled, 成功 and 失败). Where in doubt the answer is
    True: two things shown apart cost a line, one hidden is lost. What other words and their order tell is not looked
    at: `agentmem.recall.repeats` does.
    """
    if a == b:
        return False
    hard_a, soft_a, known_a = marks(a)
    hard_b, soft_b, known_b = marks(b)
    if hard_a != hard_b or not soft_a <= known_b or not soft_b <= known_a:
        return True
    of_a, of_b = set(analyse(a).split()), set(analyse(b).split())
    return opposed(of_a - of_b, of_b - of_a)
