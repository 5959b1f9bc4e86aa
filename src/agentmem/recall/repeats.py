"""Which of the records found say the same thing twice, so that an answer shows it once and names the others.

Two texts are the same if they are word for word the same, in the same order, but for a closed list of differences that
carry no fact (below). Everything not on the list tells them apart, whether a table knows it or not: another word,
another order, a number, a sign, the tense of a verb, an emoji. A repeat that is shown twice costs a line; a fact that
is hidden is lost. So the list is short, and where a difference on it could carry a fact after all, it does:

- white space; how lines are wrapped. Not where a line ends early, a list begins or the indentation changes.
- the marks that part a text, as long as they part it alike: at the same places, weaker and stronger ones in the same
  relation. A mark at the end; a comma before "and"; round brackets, dashes, colons for each other. A question mark counts.
- forms of a character: full width, typographic quotes and dashes, invisible ones; quotes around a single word.
- case, where one of the two sentences does not use it or begins with the word: not of identifiers, not US and us.
- a, an, the: not as a label (plan a), not before a quantity (a few).
- the number of a noun, and of the verb with it, in English: not of a name, not of what is counted by "a".
- contractions (doesn't, does not); "please" before a sentence; an "again" at the very end of a text without a negation.
- in Chinese: 请 before a sentence, particles of mood after it (啊 呀 哦), not those that ask or doubt (吗 吧 呢).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import Final, TypeVar

from agentmem._unicode import STOP_WORDS, listed
from agentmem.recall.wording import HAN, NAMING, QUANTITIES, Reading, plain, read

T = TypeVar("T")

COMPARED: Final = 4096
"""Characters up to which two texts are compared word by word. Longer ones are the same only if they are equal."""

_OTHERS: Final = 8  # A hit is compared with so many of the same letters and digits; what equals one is found anyway.

# Letters and digits that no difference on the list adds or takes away. Those of two texts that are the same are equal.
_SKELETON: Final = b"bcfjkqxzBCFJKQXZ0123456789"
_NO_SKELETON: Final = bytes(set(range(256)) - set(_SKELETON))
_NO_HAN_SKELETON: Final = f"[^{HAN}]|[请了啦啊呀哦嘛喔噢哇哟]"


def same(a: str, b: str) -> bool:
    """Whether two texts say the same thing in the same words, so that one may stand for both.

    Symmetric, and true of equal texts; not transitive. Two texts of which one is longer than `COMPARED` characters are
    the same only if they are equal. The text alone is judged: whether the records are of one kind is for the caller.
    """
    if a == b:
        return True
    if len(a) > COMPARED or len(b) > COMPARED or _skeleton(a) != _skeleton(b):
        return False
    return _agree(read(a), read(b))


def fold(
    hits: Sequence[T], text_of: Callable[[T], str], kind_of: Callable[[T], Hashable]
) -> list[tuple[T, tuple[T, ...]]]:
    """Folds a ranked list: each hit is kept, or named with the best hit before it that says the same.

    Args:
        hits: What was found, the best first.
        text_of: The whole text of a hit, title and body. A hit without text is always kept.
        kind_of: What two hits must have in common to be the same at all, as one value that can be a key: the type, the
            kind and the status, what it stands beneath and is about, of an entity its key.

    Returns:
        The hits that are kept, in their order, each with those it stands for. No hit is lost, none comes twice. The
        cost grows with the length of the texts; only texts of equal letters and digits are compared, up to `COMPARED`
        characters of text and a few of a kind.
    """
    kept: list[tuple[T, list[T]]] = []
    equal: dict[Hashable, int] = {}
    compared: dict[Hashable, list[tuple[int, _Lazy]]] = {}
    for hit in hits:
        text, kind = text_of(hit), kind_of(hit)
        blank = not text or text.isspace()
        place = None if blank else equal.get((kind, text))
        if place is None and not blank and len(text) <= COMPARED:
            others = compared.setdefault((kind, _skeleton(text)), [])
            mine = _Lazy(text)
            place = next((at for at, its in others if _agree(mine.reading, its.reading)), None)
            if place is None and len(others) < _OTHERS:
                others.append((len(kept), mine))
        if not blank:
            equal[kind, text] = len(kept) if place is None else place
        if place is None:
            kept.append((hit, []))
        else:
            kept[place][1].append(hit)
    return [(hit, tuple(repeats)) for hit, repeats in kept]


class _Lazy:
    """A text that is read when it is first compared: most are compared with none."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def reading(self) -> Reading:
        return read(self.text)


def _skeleton(text: str) -> tuple[bytes, str]:
    han = ""
    if not text.isascii():
        text = plain(text)
        han = re.sub(_NO_HAN_SKELETON, "", text)
    return text.encode("ascii", "ignore").translate(None, _NO_SKELETON).lower(), han


# Comparing

_AGREEMENT: Final = frozenset((("is", "are"), ("was", "were"), ("has", "have"), ("does", "do")))  # singular, plural
_NOT_PLURALS: Final = frozenset(
    listed(
        """news means goods customs windows sometimes besides seconds others https always lens bias chaos aws css dns
        tls ios nfs sms kubernetes postgres redis rails glasses odds physics series species its hers ours yours
        theirs gas alias atlas canvas corps tens devs teams ftps ldaps smtps imaps mqtts amqps nats pandas clothes works
        remains savings earnings spirits premises thanks regards contents arms"""
    )
)
_COUNTS: Final = QUANTITIES | {"ten", "billion", "trillion"}
_READ_APART: Final = STOP_WORDS | frozenset(
    listed("get put post patch head options trace connect delete it us who am pm")
)


def _agree(a: Reading, b: Reading) -> bool:
    if len(a.words) != len(b.words) or not a.words or not _parted_alike(a, b):
        return False
    for at, (one, other) in enumerate(zip(a.words, b.words, strict=True)):
        if one == other:
            continue
        if not (a.plain[at] and b.plain[at]):
            return False
        mine, theirs = one.lower(), other.lower()
        if mine == theirs:
            if not _case_is_free(a, b, at):
                return False
        elif not (a.english and b.english and _number_is_free(a, b, at)):
            return False
    return True


def _parted_alike(a: Reading, b: Reading) -> bool:
    """Whether marks stand at the same places and group the words alike."""
    if a.marks == b.marks:
        return True
    if [(at, turn) for at, _, turn in a.marks] != [(at, turn) for at, _, turn in b.marks]:
        return False
    before = 0
    for (at, mine, _), (_, theirs, _) in zip(a.marks, b.marks, strict=True):
        # "Bob: it is down" and "Bob, it is down"; 3: 4 and 3, 4.
        if mine != theirs and (at - before == 1 or a.words[at][0].isdigit()):
            return False
        before = at
    return _ranked(a.marks) == _ranked(b.marks)


def _ranked(marks: Iterable[tuple[int, int, int]]) -> list[int]:
    strengths = [strength for _, strength, _ in marks]
    order = sorted(set(strengths))
    return [order.index(strength) for strength in strengths]


def _case_is_free(a: Reading, b: Reading, at: int) -> bool:
    """Whether two words that differ in case are one word."""
    one, other = a.words[at], b.words[at]
    low = one.lower()
    if len(one) == 1:
        return False
    for upper, lower, name, word in ((a, b, one, other), (b, a, other, one)):
        # A sentence without capitals tells nothing, unless the other one, too, begins without: "use the Word file".
        free = _style(lower, at) == "lower" and not upper.words[upper.sentence(at)[0]].islower()
        if name.isupper() and not word.isupper():
            if _style(upper, at) == "upper":
                return low not in ("us", "it", "who")
            return word.islower() and free and low not in _READ_APART
        if name.istitle() and word.islower():
            return upper.first[at] or free or (_style(lower, at) == "sentence" and _style(upper, at) == "title")
    return False


def _style(reading: Reading, at: int) -> str:
    """How the sentence of a word uses case: all lower, but for the first word, all upper, a capital for each, or mixed."""
    start, end = reading.sentence(at)
    if start not in reading.styles:
        reading.styles[start] = _style_of(reading.words[start:end])
    return reading.styles[start]


def _style_of(words: Sequence[str]) -> str:
    cased = [word for word in words if len(word) > 1 and word.isalpha() and word.lower() != word.upper()]
    if all(map(str.islower, cased)) and len(words) > 1:
        return "lower"
    if all(map(str.isupper, cased)) and len(cased) > 2:
        return "upper"
    if all(map(str.islower, cased[1:])):
        return "sentence"
    telling = [word for word in cased[1:] if word.lower() not in STOP_WORDS]
    return "title" if len(telling) > 1 and not any(map(str.islower, telling)) else "mixed"


def _number_is_free(a: Reading, b: Reading, at: int) -> bool:
    """Whether two words are one in singular and plural, and nothing there counts or names."""
    change = _change(a, b, at)
    if not change:
        return False
    one, other = a.words[at], b.words[at]
    if one.lower() in ("is", "are", "was", "were"):
        return True
    beside = [*a.words[max(at - 1, 0) : at], *a.words[at + 1 : at + 2]]
    if any(word >= "\u3040" for word in beside):
        return False
    singular = b if change > 0 else a
    if "a" in singular.article[max(at - 2, 0) : at + 1] or "an" in singular.article[max(at - 2, 0) : at + 1]:
        return False
    if not (one.islower() or other.islower()):
        return a.first[at] and b.first[at] and _agreement(a, b, at, change)
    doubtful = (
        a.first[at]
        or b.first[at]
        or not NAMING.isdisjoint(map(str.lower, beside))
        or at in a.places
        or not all(a.plain[at + 1 : at + 2])
        or (not _known_noun(a, at) and not _known_noun(b, at) and _style(a, at) == _style(b, at) == "lower")
    )
    return not doubtful or _agreement(a, b, at, change)


def _known_noun(reading: Reading, at: int) -> bool:
    """Whether an article says that a word is no name, where case does not."""
    return any(reading.article[max(at - 2, 0) : at + 1])


def _change(a: Reading, b: Reading, at: int) -> int:
    """1 if the word of the first text is the one with the ending of a plural (or of a verb's singular), -1, or 0."""
    one, other = a.words[at].lower(), b.words[at].lower()
    if (one, other) in _AGREEMENT or _ends(one, other):
        return 1
    if (other, one) in _AGREEMENT or _ends(other, one):
        return -1
    return 0


def _ends(long: str, short: str) -> bool:
    if len(short) < 3 or not long.isascii() or long.endswith("ss") or long in _NOT_PLURALS or short in _COUNTS:
        return False
    return (
        long == short + "s"
        or (short[-1] == "y" and long == short[:-1] + "ies")
        or (long == short + "es" and short.endswith(("s", "x", "z", "ch", "sh")))
    )


def _agreement(a: Reading, b: Reading, at: int, change: int) -> bool:
    """Whether a neighbour changes the other way: tests fail, test fails."""
    near = (*range(max(at - 3, 0), at), *range(at + 1, min(at + 4, len(a.words))))
    return any(_change(a, b, other) == -change for other in near)
