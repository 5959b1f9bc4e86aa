"""From characters to words: folding to one form, the cores of a chunk of text, their parts, stems, stop words.

At the end, the marks by which two alike texts are told apart.

What it answers depends on the Unicode tables of the running Python and on the stemmer; both versions are part of
`agentmem.text.FINGERPRINT`.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from typing import Final, NamedTuple
from unicodedata import category, normalize

import Stemmer  # type: ignore[import-not-found]

TOKEN_CHARS: Final = 128  # A longer token is cut, in the index and in the query alike.

# Scripts written without spaces, and Hangul, whose words carry their particles: indexed as overlapping bigrams.
# Han, kana, bopomofo, Hangul and its jamo, Thai, Lao, Myanmar, Khmer. For use inside a character class.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3031-\u3035\u303b\u3040-\u30ff\u3100-\u312f"
    "\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\U0001aff0-\U0001b16f"
    "\U00020000-\U0003ffff"
)
_PICTURES: Final = "\u2600-\u27bf\U0001f000-\U0001faff"  # Emoji and dingbats. For use inside a character class.

# Accents of Latin, Greek and Cyrillic, points of Hebrew and Arabic with the tatweel, enclosing marks, variation
# selectors. Signs that make another letter (kana voicing, vowels of the scripts of India and of Thai) stay.
_FOLDED_MARKS: Final = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0640\u064b-\u065f\u0670\u06d6-\u06ed"
    "\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]+"
)


def listed(text: str) -> list[str]:
    """The words of a table written as text."""
    return text.split()


# Letters whose stroke or ligature has no decomposition, and the quotes and dashes that stand inside words.
_SPELLINGS: Final[dict[int, int | str | None]] = {
    ord(char): spelling
    for char, spelling in zip(
        "ØøŁłĐđĦħŦŧıƗɨÆæŒœÞþÐð\u2019\u02bc\u2010\u2212",
        listed("O o L l D d H h T t i I i AE ae OE oe TH th D d ' ' - -"),
        strict=True,
    )
}
_CLASSES_KEPT: Final = 16_384


def _is_picture(char: str) -> bool:
    return "\u2600" <= char <= "\u27bf" or "\U0001f000" <= char <= "\U0001faff"


class _Classes(dict[int, int | str | None]):
    """For `str.translate`: letters, marks, digits and pictures stay, format characters go, all else parts words."""

    def __missing__(self, code: int) -> int | str | None:
        char = chr(code)
        kind = category(char)
        if code < 128 or kind[0] in "LMN" or _is_picture(char):
            kept: int | str | None = code
        else:
            kept = None if kind == "Cf" else " "
        if len(self) > _CLASSES_KEPT:  # A text that holds all of Unicode must not leave a table of it behind.
            self.clear()
            self.update(_SPELLINGS)
        self[code] = kept
        return kept


_CLASSES: Final = _Classes(_SPELLINGS)


def fold(text: str) -> str:
    """One form for every way to write the same letters: compatible forms unified, accents and invisible signs gone.

    The case stays, for words are split by it. Punctuation and symbols outside ASCII become spaces, lone surrogates too.
    ASCII text comes back as it is.
    """
    if text.isascii():
        return text
    bare = _FOLDED_MARKS.sub("", normalize("NFKD", text))
    return normalize("NFC", bare).translate(_CLASSES)


def lower(text: str) -> str:
    """The case folded. Of folded text only, so that the result holds no accents."""
    return text.lower() if text.isascii() else text.casefold()


def attaches(char: str) -> bool:
    """Whether a text must not be cut before this character: it belongs to the one before it."""
    return category(char)[0] == "M" or char == "\u200d" or "\U0001f3fb" <= char <= "\U0001f3ff"


class _Grammar(NamedTuple):
    """The patterns of a core, of the parts of a compound, and of a run of a script without spaces."""

    core: re.Pattern[str]
    part: re.Pattern[str]
    run: re.Pattern[str]


def _grammar(letter: str, unspaced: str, pictures: str) -> _Grammar:
    word = rf"(?:{letter}|_)"
    core = rf"""
        [A-Za-z][A-Za-z0-9+.\-]{{0,20}}://[A-Za-z0-9\-._~:/?\#@!$&*+=%]+      # URL
        | [0-9]+(?:=+[0-9]+)+                                               # 1=1
        | (?: \*\. | (?: ~ | \.{{0,2}} )/{{1,2}}\.? | --? | \\\\? | [.\#$@] )?  # *.host ./path --flag .NET \#123 $HOME
          (?: _{{0,4}}{letter}{word}* | (?<=/)(?:\{{[\w.\-]{{1,64}}\}} | <[\w:.\-]{{1,64}}>) )
          (?: [./\\:@+\#~$%&?*\-]{{1,4}}{word}+ | /\{{[\w.\-]{{1,64}}\}} | /<[\w:.\-]{{1,64}}> )*
          (?: \+\+ | (?<=[A-Za-z])(?<![A-Za-z0-9_]{{2}})\# )?               # C++  C\#
        | {unspaced}+
        | {pictures}
    """
    part = rf"(?<![A-Za-z0-9])[A-Za-z](?:\+\+|\#)(?!\w)|{letter}+"
    return _Grammar(core=re.compile(core, re.VERBOSE), part=re.compile(part), run=re.compile(unspaced))


_NEVER: Final = "(?!)"
_ASCII: Final = _grammar("[A-Za-z0-9]", f"(?:{_NEVER})", _NEVER)


@cache
def _wide() -> _Grammar:
    """The grammar for all scripts. Its compilation takes some milliseconds, so it waits for the first such text.

    After folding, a character outside ASCII is a letter, a mark, a digit or a picture: a negated class is enough.
    """
    letter = rf"[^\x00-/:-@\[-`{{-\x7f{_UNSPACED}{_PICTURES}]"
    return _grammar(letter, f"[{_UNSPACED}]", f"[{_PICTURES}]")


_CAMEL: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z0-9]+|[A-Z0-9]+")
_CONTRACTED: Final = re.compile(r"(?<=[A-Za-z])'(?:(?:s|re|ve|ll|d|m)\b|(?=t\b))", re.IGNORECASE)
_URL_END: Final = ".:?!&*~-/=+%$@#"
VERSION_LETTER: Final = re.compile(r"(?<![A-Za-z0-9])[vV](?=[0-9]+\.[0-9])")
"""The v of v1.2.3, which is also known as 1.2.3."""


def cores(chunk: str) -> list[str]:
    """The words, compounds, runs and pictures of a chunk without white space, in order, their case kept."""
    folded = fold(chunk)
    if "'" in folded:  # user's is user, don't is dont.
        folded = _CONTRACTED.sub("", folded)
    found: list[str] = (_ASCII if folded.isascii() else _wide()).core.findall(folded)
    return found


def unspaced(core: str) -> bool:
    """Whether a core is a run of a script without spaces."""
    return core > "\x7f" and _wide().run.match(core) is not None


def split(core: str) -> tuple[str, list[str]]:
    """The whole of a word or compound as a token, and its parts; no parts where the whole is all there is."""
    whole = lower(core)
    if core.isalpha() and (whole == core or whole[1:] == core[1:] or core.isupper()):
        return whole[:TOKEN_CHARS], []
    if "://" in core:
        core = core.rstrip(_URL_END)
        whole = whole[: len(core)]
    part = (_ASCII if core.isascii() else _wide()).part
    pieces = part.findall(VERSION_LETTER.sub("", core))
    parts = pieces if whole == core else [lower(hump) for piece in pieces for hump in _camel(piece)]
    if len(whole) > TOKEN_CHARS:
        whole, parts = whole[:TOKEN_CHARS], [part[:TOKEN_CHARS] for part in parts]
    return whole, [] if parts == [whole] else parts


def _camel(piece: str) -> list[str]:
    """The words of an identifier written in camel case; letters that merely alternate (base64) stay together."""
    if piece[1:].islower() or piece.islower() or piece.isupper() or not piece.isascii():
        return [piece]
    if piece[0].isdigit() or (piece[-1] == "s" and piece[:-1].isupper()):  # 0xBEEF, IPs
        return [piece]
    humps = _CAMEL.findall(piece)
    return humps if 5 * len(humps) <= 2 * len(piece) else [piece]


STOP_WORDS: Final = frozenset(
    listed(
        """
        a about after again all also am an and any are as at be because been before being between both but by can cant
        could couldnt did didnt do does doesnt doing dont during each few for from further had has hasnt have havent
        having he her here hers him his how i if in into is isnt it its just me more most my no nor not of on once only
        or other our ours own same she should shouldnt so some such than that the their theirs them then there these
        they this those through to too us very was wasnt we were werent what when where which while who whom whose why
        will with wont would wouldnt you your yours
        的 了 是 在 和 与 及 或 就 都 而 着 被 把 给 让 向 从 到 对 于 为 以 我 你 他 她 它 这 那 有 吗 呢 吧 啊 呀 嘛
        """
    )
)
"""Words that are indexed, and looked for only where a query holds nothing else."""

UNSPACED_STOP: Final = (
    "(为什么|什么|怎么样|怎么|怎样|如何|是否|哪些|哪个|哪里|哪儿|请问|有没有|能不能|多少|[吗呢吧啊呀嘛]"
    "|(?<=..)[的了](?=..))"
)
"""A pattern: what a Chinese question is asked with; 的 and 了 only with two characters on each side: 目的 is a word."""

_local = threading.local()


def stem(word: str) -> str:
    """The English stem (Porter2) of a lower-case word; the word itself where English stemming says nothing."""
    if len(word) < 3 or not word.isalpha() or not word.isascii() or word in STOP_WORDS:
        return word
    try:
        stemmer = _local.stemmer
    except AttributeError:  # One for each thread: a stemmer has internal state. A lock could be held across a fork.
        stemmer = _local.stemmer = Stemmer.Stemmer("english", 0)
    stemmed: str = stemmer.stemWord(word)
    return stemmed


# What tells two things of two alike titles apart. Patterns stay text until they are used: few processes ever do.
NUMERALS: Final = dict(
    pair.split("=")
    for pair in listed("zero=0 two=2 three=3 four=4 five=5 six=6 seven=7 eight=8 nine=9 ten=10 eleven=11 twelve=12")
) | {
    word: word
    for word in listed(
        """
        first second third fourth fifth hundred thousand million monday tuesday wednesday thursday friday saturday
        sunday january february march april june july august september october november december
        """
    )
}
UNIT_GAP: Final = r"(?i)(?<=\d)\s+(?=(?:percent|[kmgt]i?b|[kmgt]|[mnµ]?s|secs?|mins?|hours?|h|days?|d|px|pt|em)\b)"
PLAIN: Final = r"[^\W\d_]+(?:-[^\W\d_]+)*"
HAN_NUMBER: Final = (
    "第[一二三四五六七八九十百千万零〇两]+|[二三四五六七八九十百千万两]+(?=[个台次条页章年月日天号步项点件位名层级])"
)
SIGN: Final = (
    r"(?<![-=])(?:[<>!=]=|[<>])(?![->])|[-=]>|<-|&&|\|\||[≤≥≠≈€£¥₹±←→]"
    "|[\u00b2\u00b3\u00b9\u2070-\u209c\u00bc-\u00be\u2150-\u218b\u2460-\u24ff]|[?？](?=\\s|$)"
)
"""Comparison, arrows, currency, questions, and what folding would take for plain digits: powers, fractions, ① ②."""
JOINED_NOT: Final = r"\b(wo|ca|could|should|would|was|were|had|did)(?:n't|nt|nnot)\b"
LIMIT: Final = (
    r"\b(?:only|except|unless|hardly|barely|nearly|almost|all|some|any|every|each|both|most|few|half"
    r"|must|may|might|can|could|shall|should|will|would|was|were|had|did)\b|[仅只吗吧]|必须|可以|应该|可能|曾经|正在|将要"
)
"""How much, how sure and when: quantifiers, modal verbs, the past of the auxiliaries, particles that ask or doubt."""
NEGATION: Final = (
    r"\b(?:not|no|never|none|nor|neither|nothing|nobody|cannot|without|unable|не|нет|без)\b|n't\b"
    r"|\b(?:ca|wo|do|does|did|is|are|was|were|has|have|had|could|should|would|must)nt\b|[不没未无非勿莫]"
)
EXACT: Final = r"[/~.\\]*/.*|-.*|\d[\d.,]*[A-Za-z]{1,3}"
"""A token whose case tells: a path, a flag, a number with its unit."""
NO_NEGATION: Final = "非常|不过|不仅|不但|不断|不管|不论|无论|是否|未来|除非|莫名|非洲"
OPPOSITES: Final = tuple(
    tuple(map(stem, pair.split("/")))
    for pair in listed(
        """
        enable/disable allow/deny allow/block allow/forbid accept/reject grant/revoke true/false on/off up/down
        open/closed open/close pass/fail success/failure succeed/fail before/after start/stop add/remove min/max
        minimum/maximum prod/staging production/staging prod/dev client/server public/private read/write left/right
        inbound/outbound request/response upload/download internal/external encrypt/decrypt first/last old/new high/low
        more/less increase/decrease all/some with/without always/never input/output source/target login/logout
        启用/禁用 开启/关闭 打开/关闭 成功/失败 允许/禁止 允许/拒绝 接受/拒绝 增加/减少 添加/删除 之前/之后 上传/下载
        公开/私有 输入/输出 请求/响应 登录/登出 升级/降级 加密/解密 内网/外网 最大/最小 上一/下一 上调/下调 上线/下线
        上午/下午 早上/晚上 昨天/今天 今天/明天 向上/向下 左边/右边 开机/关机 增长/减少 增加/降低 内部/外部 每个/某个 所有/部分
        全部/部分 生产/预发 生产/测试 前一/后一 读取/写入 接受/丢弃 健康/异常 通过/失败
        """
    )
)
NEGATING: Final = ("un", "dis", "non", "in", "im", "ir", "de")


def opposed(these: set[str], those: set[str]) -> bool:
    """Whether a word that only one text has is the opposite of one that only the other has."""
    for one, other in OPPOSITES:
        if (one in these and other in those) or (other in these and one in those):
            return True
    return any(
        prefix + word in others
        for words, others in ((these, those), (those, these))
        for word in words
        for prefix in NEGATING
    )


def _apart(joined: re.Match[str]) -> str:
    return {"wo": "will", "ca": "can"}.get(joined[1], joined[1]) + " not"


def marks(text: str) -> tuple[dict[str, list[str]], set[str], set[str]]:
    """What distinguishes a text.

    Returns:
        The marks that must be equal, by their shape; the words that the other text must know; the words this text
        knows, two and three neighbours joined among them (server-side is server side).
    """
    folded = lower(fold(text))
    hard: dict[str, list[str]] = {
        "negations": ["not"] * len(re.findall(NEGATION, re.sub(NO_NEGATION, "", folded))),
        "signs": re.findall(SIGN, text),
        "han": re.findall(HAN_NUMBER, folded),
        "limits": re.findall(LIMIT, re.sub(JOINED_NOT, _apart, folded)),
    }
    soft: set[str] = set()
    known: set[str] = set()
    before = last = ""
    shouted = text.isascii() and text.isupper()
    chunks = re.sub(UNIT_GAP, "", text.replace("%", "percent")).split()
    for core in (core for chunk in chunks for core in cores(chunk)):
        if unspaced(core):
            continue
        whole, parts = split(core)
        known |= {whole, last + whole, before + last + whole, "".join(parts)}
        before, last = last, whole
        name = NUMERALS.get(whole, VERSION_LETTER.sub("", whole).lstrip("#"))
        lone = len(whole) == 1 and whole not in "ai"  # plan b, node c
        if lone or whole in NUMERALS or any(map(str.isdigit, name)) or not re.fullmatch(PLAIN, whole):
            of_shape = hard.setdefault(re.sub(r"[^\W\d_]+", "a", re.sub(r"\d+", "0", name)), [])
            name = core if re.fullmatch(EXACT, core) else name
            if name not in of_shape:
                of_shape.append(name)
        elif parts or (core.isupper() and len(core) > 1 and not shouted):
            soft.add("".join(parts) or whole)
    return hard, soft, known
