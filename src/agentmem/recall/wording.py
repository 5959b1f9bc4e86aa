"""Two texts word for word: what a text says with all that carries no fact left out, and whether two say the same.

The list of what carries no fact stands in `agentmem.recall.repeats`. What is not on it is kept and compared as it is
written, so nothing has to be known of it.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise
from typing import Final
from unicodedata import normalize

from agentmem._unicode import STOP_WORDS, listed

HAN: Final = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han and kana
_FORMS: Final = {
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(map(ord, "\u00a0\u2002\u2003\u2009\u202f\u3000"), " "),
    **dict.fromkeys(map(ord, "\u00ad\u200b\u2060\ufeff\ufe0f"), None),
    **dict.fromkeys(map(ord, "“”„‟«»「」『』"), '"'),
    **dict.fromkeys(map(ord, "‘’‚‛"), "'"),
    **dict.fromkeys(map(ord, "\u2010\u2011\u2012\u2013\u2212"), "-"),
    **dict.fromkeys(map(ord, "\u2014\u2015"), " - "),
    **dict.fromkeys(map(ord, "\u2028\u2029\x85\r\v\f"), "\n"),
    ord("、"): ",",
    ord("。"): ".",
    ord("…"): "...",
    ord("【"): "[",
    ord("】"): "]",
}
_NARROW_KANA: Final = "[\uff65-\uff9f]+"
_BOX: Final = r"\[ \]"
_UNIT_GAP: Final = (
    r"(?<=\d)[ \t]+(?=%|(?:ns|us|µs|ms|s|min|h|kB|KB|MB|GB|TB|KiB|MiB|GiB|TiB|kb|Mb|Gb|px|Hz|kHz|MHz|GHz)\b)"
)


def plain(text: str) -> str:
    """One character for each of its forms. No compatibility folding: 10² is not 102."""
    if text.isascii():
        return text.replace("\r\n", "\n")
    text = re.sub(_NARROW_KANA, lambda found: normalize("NFKC", found[0]), normalize("NFC", text.replace("\r\n", "\n")))
    return text.translate(_FORMS)


# Reading

_COMMA, _LABEL, STOP, _LINE = 1, 2, 3, 4  # How strongly a mark parts a text.
_MARKS: Final = {",": _COMMA} | dict.fromkeys(":()", _LABEL) | dict.fromkeys(".;!?", STOP)
_WRAPPED: Final = 6  # A line of fewer words than this was ended on purpose.
_PIECE: Final = r"""([\[({"'`]*)(.*?)([\])}"'`.,;:!?]*)"""
_BULLET: Final = r"[-*•][ \t]+"
_LITERALS: Final = frozenset(listed("true false null none nil yes no on off"))  # "true" is no true
_CONTRACTED: Final = r"[A-Za-z]+'[A-Za-z]+"

_ARTICLES: Final = frozenset(("a", "an", "the"))
QUANTITIES: Final = frozenset(
    listed(
        """few little lot lots number numbers one only same other others another more most less least best worst half
        majority minority former latter first last next second third couple dozen hundred thousand million bit"""
    )
)
# What a name or a label stands beside: node a, table users.
NAMING: Final = frozenset(
    listed(
        """account appendix application app bucket branch case channel class client cluster collection column command
        container database dataset directory domain endpoint env environment field figure file flag folder function
        group host image index instance key label level library list machine method mode model module name namespace
        network node option package page parameter part partition phase plan point policy pod port process profile
        project queue region registry replica repo repository role room schema scope script section selector server
        service set setting shard side site stage step stream string suite symbol table tag team tenant test topic type
        user value variable variant vault version view volume worker zone"""
    )
)
# What follows a label, not an article, beside the words that end in -s or -ed and the stop words.
_VERBS: Final = frozenset(
    listed(
        """can may might must shall still never always already beat became began bent blew bore bought broke brought built
        burnt came caught chose cost crept cut dealt drew drove fell felt flew forgot fought found froze gave got grew
        held hit hung hurt kept knew laid lay led left lent let lit lost made meant met paid put quit ran rang read rose
        said sank sat saw sent set shook shot shrank shut slept slid sold spent split spoke spread sprang stood stole
        stuck struck stung swam swept swung taught told took tore thought threw went woke won wore wound wrote"""
    )
)
# Words of other languages, in which "a" and "an" are no articles.
_FOREIGN: Final = frozenset(
    listed(
        """de la el en un una los las y con para por que der das und ein eine mit von zu nicht le les des et du est il
        elle di che em uma het een"""
    )
)
_OPENERS: Final = frozenset(
    listed("however therefore thus also finally currently meanwhile moreover additionally today furthermore")
)
_HAN_OPENERS: Final = frozenset(listed("目前 现在 当前 今天 另外 此外 同时 因此 所以 但是 然而 最后 最终 首先"))
_NOT: Final = frozenset(
    listed(
        """not no never nor neither none nothing nobody nowhere without unless except only hardly barely yes
        不 没 未 无 非 勿 莫 别 否 仅 只 除"""
    )
)
_JOINING: Final = ("and", "or", "but")
_MOOD: Final = frozenset("啊呀哦嘛喔噢哇哟")
_NOT_AGAIN: Final = frozenset(listed("and once try tried over now then yet"))
_SHORT_FOR: Final = {"re": "are", "ve": "have", "ll": "will", "m": "am"}
_IS_AFTER: Final = frozenset(listed("it that there here what where how"))
_UNCONTRACTED: Final = {"ca": "can", "wo": "will", "sha": "shall"}


class Reading:
    """A text as its words and the marks between them.

    Attributes:
        words: As written, articles and what else may be left out left out; anything that is no plain word unchanged.
        plain: Of each word, whether it is one: letters only.
        first: Of each word, whether a sentence begins with it.
        article: Of each word, the article that was left out before it, or nothing.
        marks: Where, before which word, a mark stands, how strongly it parts, how the indentation changes there.
        starts: Where a sentence begins, and the number of words.
        places: Where a mark stands.
        styles: What was found of how a sentence uses case, by its begin.
        english: Whether the rules of English apply: no letter of another Latin or other alphabet.
    """

    def __init__(self, *, english: bool) -> None:
        self.words: list[str] = []
        self.plain: list[bool] = []
        self.first: list[bool] = []
        self.article: list[str] = []
        self.marks: list[tuple[int, int, int]] = []
        self.starts: list[int] = []
        self.places: frozenset[int] = frozenset()
        self.styles: dict[int, str] = {}
        self.english = english
        self.pending = ""
        self.begins = True

    def part(self, strength: int, indented: int = 0) -> None:
        """A mark after the last word."""
        self.settle("")
        if strength >= _COMMA and self.words and self.words[-1] in _MOOD and len(self.words) > 1:
            self.drop()
        if strength >= STOP:
            self.begins = True
        at = len(self.words)
        while self.marks and self.marks[-1][0] >= at:
            _, before, turn = self.marks.pop()
            strength, indented = max(strength, before), indented or turn
        self.marks.append((at, strength, indented))

    def drop(self) -> None:
        """Takes the last word back."""
        for column in (self.words, self.plain, self.first, self.article):
            column.pop()

    def exact(self, token: str) -> None:
        """Something that is no plain word: compared as it is."""
        if self.pending:
            self.settle(token)
        self.append(token, plain=False)

    def append(self, word: str, *, plain: bool, article: str = "") -> None:
        """The next word."""
        self.words.append(word)
        self.plain.append(plain)
        self.first.append(self.begins)
        self.article.append(article)
        self.begins = False

    def word(self, word: str) -> None:
        """Something of letters only, which may be left out or come to two words."""
        low = word.lower()
        if self.english and low in _ARTICLES and not (word == "A" and not self.begins):
            self.settle(low)
            self.pending = low
            return
        if low == "please" and self.english and self.begins:
            return
        if low == "cannot":
            self.word(word[:3])
            self.word(word[3:])
            return
        article = self.settle(low)
        self.append(word, plain=True, article=article)

    def sentence(self, at: int) -> tuple[int, int]:
        """Where the sentence of a word begins and ends."""
        which = bisect_right(self.starts, at)
        return self.starts[which - 1], self.starts[which]

    def settle(self, following: str) -> str:
        """Leaves an article out and tells which, or keeps it as a word where it says something."""
        article, self.pending = self.pending, ""
        if not article:
            return ""
        before = self.words[-1].lower() if self.words and not self.begins else ""
        keep = not following or following in QUANTITIES or following in _ARTICLES
        if article == "a" and not keep:  # Box a went down. Only before a noun it is an article.
            keep = (
                before in NAMING
                or following in STOP_WORDS
                or following in _VERBS
                or not following.isalpha()
                or (following[-1] == "s" and following[-2:] != "ss")
                or following.endswith("ed")
            )
        if keep:
            self.append(article, plain=True)
        return "" if keep else article


def read(text: str) -> Reading:
    """Reads a text.

    Args:
        text: Any text. The cost grows with its length.
    """
    text = re.sub(_UNIT_GAP, "", re.sub(_BOX, "[_]", plain(text)))
    foreign = not text.isascii() and re.search(r"[^\W\d_\x00-\x7f]", re.sub(f"[{HAN}]+", "", text)) is not None
    reading = Reading(english=not foreign and _FOREIGN.isdisjoint(text.lower().split()))
    code = "```" in text or "\n+" in text
    depth, before, blank = -1, 0, False
    for line in text.split("\n"):
        bare = line.strip()
        if not bare:
            blank = True
            continue
        indented = len(line.expandtabs(4)) - len(line.expandtabs(4).lstrip())
        bullet = None if code else re.match(_BULLET, bare)
        if depth >= 0:
            turn = (indented > depth) - (indented < depth)
            han = bool(reading.words) and reading.words[-1] >= "\u3040"
            if blank or bullet or turn or han or len(reading.words) - before < _WRAPPED:
                reading.part(_LINE, turn)
        before = len(reading.words)
        for chunk in bare[bullet.end() if bullet else 0 :].split():
            _read_chunk(reading, chunk)
        depth, blank = indented, False
    _finish(reading)
    return reading


def _read_chunk(reading: Reading, chunk: str) -> None:
    if chunk.isalpha() and chunk.isascii():
        reading.word(chunk)
    elif chunk[-1] in ".,;:!" and chunk[:-1].isalpha() and chunk.isascii():
        reading.word(chunk[:-1])
        reading.part(_MARKS[chunk[-1]])
    elif chunk in (":", ".", "..") or chunk.startswith("```"):
        reading.exact(chunk)
    elif chunk.isascii() or not re.search(f"[{HAN}]", chunk):
        _read_piece(reading, chunk)
    else:
        for piece in re.findall(f"[{HAN}]|[^{HAN}]+", chunk):
            if len(piece) > 1 or piece < "\u3040":
                _read_piece(reading, piece)
            elif piece == "啦":
                reading.exact("了")
            elif piece != "请" or not reading.begins:
                reading.exact(piece)
        if chunk in _NOT:
            reading.part(_COMMA)


def _read_piece(reading: Reading, piece: str) -> None:
    if piece.strip("-") == "":
        if reading.words and reading.words[-1][-1].isdigit():
            reading.exact(piece)  # 10 - 5
        else:
            reading.part(_LABEL)
        return
    head, core, tail = _parted(piece)
    quote = next((mark for mark in head if mark in "\"'`" and mark in tail), "")
    if quote and core:
        inside, _, tail = tail.partition(quote)
        core += inside
        quoted = core.isidentifier() and core.lower() not in _LITERALS
        head = head.replace(quote, "" if quoted else quote)
        tail = tail if quoted else quote + tail
    known = core.isalpha() if core else bool(reading.words) and reading.words[-1] >= "\u3040"
    for mark in head:
        _read_mark(reading, mark, known=known)
    if core:
        _read_core(reading, core)
    for mark in tail:
        if mark == "'" and not head and core[-1:] in ("s", "S"):
            reading.exact("'s")
        else:
            _read_mark(reading, mark, known=known)


def _parted(piece: str) -> tuple[str, str, str]:
    """A piece as the marks before it, itself, the marks after it."""
    found = re.fullmatch(_PIECE, piece, re.DOTALL)
    head, core, tail = found.groups() if found else ("", piece, "")
    while tail and tail[0] in ")]}" and core.count("([{"[")]}".index(tail[0])]) > core.count(tail[0]):
        core, tail = core + tail[0], tail[1:]
    if head and core.count("]") > core.count("[") and head[-1] == "[":
        head, core = head[:-1], "[" + core
    if core and core[-1].isdigit() and tail[:1] in ("'", '"') and not head:
        core, tail = core + tail[0], tail[1:]  # 5' and 5"
    if core and (core[-1] in "/\\*~=<>&|@^_-:" or tail.startswith("::")):  # src/. and ../..
        marks = tail.lstrip(".:")
        core, tail = core + tail[: len(tail) - len(marks)], marks
    return head, core, tail


def _read_mark(reading: Reading, mark: str, *, known: bool) -> None:
    if mark in _MARKS:
        if mark == "?":
            reading.exact("?")
        reading.part(_MARKS[mark])
    elif mark in "\"'`" and known:  # Beside code they are not each other's like: '$A' and "$A".
        reading.exact('"')
    else:
        reading.exact(mark)


def _read_core(reading: Reading, core: str) -> None:
    if core.isalpha():
        reading.word(core)
    elif reading.english and re.fullmatch(_CONTRACTED, core):
        _read_contraction(reading, core)
    else:
        reading.exact(core)


def _read_contraction(reading: Reading, core: str) -> None:
    base, _, end = core.partition("'")
    low = end.lower()
    if low == "t" and base[-1:] in ("n", "N"):
        verb = _UNCONTRACTED.get(base[:-1].lower(), base[:-1].lower())
        reading.word(verb.upper() if core.isupper() else base[0] + verb[1:])
        reading.word("NOT" if core.isupper() else "not")
    elif low in _SHORT_FOR or (low == "s" and base.lower() in _IS_AFTER):
        full = _SHORT_FOR.get(low, "is")
        reading.word(base)
        reading.word(full.upper() if core.isupper() else full)
    elif low == "s":
        reading.word(base)
        reading.exact("'s")
    else:
        reading.exact(core)


def _finish(reading: Reading) -> None:
    """Leaves out the marks and the words that carry nothing where they stand."""
    reading.part(_COMMA)
    words = reading.words
    marks = [mark for mark in reading.marks if 0 < mark[0] < len(words)]
    starts = reading.starts = [0, *(at for at, strength, _ in marks if strength >= STOP), len(words)]
    denied = [_denied(words[start:end]) for start, end in pairwise(starts)]
    reading.marks = []
    for at, strength, indented in marks:
        which = bisect_right(starts, at) - 1
        if strength > _COMMA or denied[which] or not (words[at] in _JOINING or _opened(reading, starts[which], at)):
            reading.marks.append((at, strength, indented))
    reading.places = frozenset(at for at, _, _ in reading.marks)
    last = words[starts[-2] :]
    if (
        reading.english
        and len(last) > 2
        and last[-1] == "again"
        and last[-2].lower() not in _NOT_AGAIN
        and not denied[-1]
    ):
        reading.drop()
        starts[-1] -= 1


def _denied(words: Iterable[str]) -> bool:
    return not _NOT.isdisjoint(map(str.lower, words))


def _opened(reading: Reading, start: int, at: int) -> bool:
    """Whether a comma after the first words of a sentence may as well not be there."""
    words = reading.words[start : min(at, start + 13)]
    if len(words) == 1:
        return words[0].lower() in _OPENERS
    if len(words) == 2 and "".join(words) in _HAN_OPENERS:
        return True
    if words[0] == "在":
        return 4 <= len(words) <= 12 and words[-1] in ("里", "中", "时", "内")
    # In the lab, the planner is slow.
    return bool(reading.article[at]) and 2 <= len(words) <= 3 and words[0].lower() in ("in", "on", "at")
