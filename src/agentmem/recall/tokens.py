"""What a tokenizer says of a text: the ids of its tokens, where it may be cut, whether the model understands it."""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from agentmem.errors import ModelDamaged, ModelMissing

if TYPE_CHECKING:
    from tokenizers import Encoding

__all__ = ["OVERLAP_TOKENS", "UNKNOWN_SHARE", "Tokens", "packages_missing"]

OVERLAP_TOKENS: Final = 32
UNKNOWN_SHARE: Final = 0.2
# A vocabulary that knows a script has parts of words of it or, where a letter is a syllable or a word, a thousand
# letters. That of English BERT has 488 Han characters and eight Cyrillic endings, which came with names.
_PARTS: Final = 100
_LETTERS: Final = 1000

_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_PARAGRAPH: Final = re.compile(r"\n\s*\n")
_SENTENCE: Final = frozenset(".!?…。！？；")
_MARKS: Final = ("##", "▁")  # of a token that goes on with a word, or begins one


class Tokens:
    """A tokenizer, without the truncation and the padding that its file asks for.

    Texts are given to it one by one: its batches start threads of their own, and after a fork it would print a warning.

    Args:
        content: The file `tokenizer.json`.

    Attributes:
        pad: The id that fills up shorter texts of a batch.
        around: How many special tokens stand around a text.

    Raises:
        ModelMissing: The package `tokenizers` is not installed.
        ModelDamaged: The content is no tokenizer.
    """

    def __init__(self, content: bytes) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise packages_missing(error) from error
        try:
            told = json.loads(content)
            self._tokenizer = Tokenizer.from_str(content.decode())
        except Exception as error:  # what the package raises has no other base
            raise ModelDamaged("The model's tokenizer.json does not load", why=str(error),
                               next="Get the model's files again, or a later version of tokenizers.") from error  # fmt: skip
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._told: dict[str, Any] = told
        self.pad = _pad_id(told, self._tokenizer.token_to_id)
        # What stands around a text: its special tokens before the first that is of the text, and after it.
        sample = self._encode("a", special=True)
        inner = [place for place, special in enumerate(sample.special_tokens_mask) if not special] or [len(sample.ids)]
        self._before, self._after = sample.ids[: inner[0]], sample.ids[inner[-1] + 1 :]
        self.around = len(self._before) + len(self._after)
        self._kinds: list[_Kind] = []

    def count(self, text: str) -> int:
        """How many tokens a text has, special ones aside."""
        return len(self._encode(text).ids)

    def ids(self, texts: Sequence[str], most: int) -> list[list[int]]:
        """The ids of each text with the special tokens around them, `most` at most, one at least."""
        room = max(0, most - self.around)
        return [
            [*self._before, *self._encode(text).ids[:room], *self._after][:most] or [self.pad] for text in texts
        ]  # fmt: skip

    def knows(self, texts: Sequence[str]) -> list[bool]:
        """Whether at most `UNKNOWN_SHARE` of each text's tokens with a letter or digit are unknown, and there are any."""
        if not self._kinds:
            self._kinds = self._classified()
        return [self._known(text) for text in texts]

    def _known(self, text: str) -> bool:
        encoded = self._encode(text)
        counts = Counter(map(self._kinds.__getitem__, encoded.ids))
        unknown = counts[_Kind.UNKNOWN]
        if counts[_Kind.LACKING]:
            # A picture that the vocabulary lacks says nothing of the words around it.
            places = zip(encoded.ids, encoded.offsets, strict=True)
            lacking = [text[start:end] for token, (start, end) in places if self._kinds[token] is _Kind.LACKING]
            unknown += sum(any(map(str.isalnum, each)) for each in lacking)
        return counts[_Kind.KNOWN] > 0 and unknown <= UNKNOWN_SHARE * (unknown + counts[_Kind.KNOWN])

    def windows(self, text: str, *, size: int, overlap: int) -> list[tuple[int, int]]:
        """The text in pieces of `size` tokens at most, as (start, end) in characters; see `OnnxEmbedder.windows`."""
        encoded = self._encode(text)
        offsets, words = encoded.offsets, encoded.word_ids
        found, first = [], 0
        while len(offsets) - first > size:
            end = _cut(text, offsets, words, first + size - size // 4, first + size)
            found.append((offsets[first][0] if first else 0, offsets[end - 1][1]))
            first = max(end - overlap, first + 1)
            while first < end and not _between(words, first):
                first += 1
        found.append((offsets[first][0] if first else 0, len(text)))
        return found

    def _encode(self, text: str, *, special: bool = False) -> Encoding:
        if not text.isascii():
            text = _SURROGATE.sub("\ufffd", text)  # one for one: offsets stay
        try:
            return self._tokenizer.encode(text, add_special_tokens=special)
        except Exception as error:  # as above
            raise ModelDamaged("The model's tokenizer cannot split a text", why=str(error),
                               next="Get the model's files again.") from error  # fmt: skip

    def _classified(self) -> list[_Kind]:
        """The kind of each id, from the vocabulary."""
        vocabulary: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        special = {token for token, added in self._tokenizer.get_added_tokens_decoder().items() if added.special}
        read = _spelled_bytes if self._of_bytes() else _bare
        kinds = [_Kind.NONE] * (max(vocabulary.values(), default=-1) + 1)
        others: list[tuple[int, set[str]]] = []
        letters: Counter[str] = Counter()
        parts: Counter[str] = Counter()
        for token, number in vocabulary.items():
            if number in special:
                continue
            bare = read(token)
            if bare.isascii():
                kinds[number] = _Kind.KNOWN if any(map(str.isalnum, bare)) else _Kind.NONE
                continue
            scripts = [script(each) for each in bare if each.isalpha()]
            others.append((number, set(scripts)))
            (parts if len(scripts) > 1 else letters).update(set(scripts))
            kinds[number] = _Kind.KNOWN if any(map(str.isalnum, bare)) else _Kind.NONE
        known = {"LATIN"} | {each for each in parts if parts[each] >= _PARTS}
        known |= {each for each in letters if letters[each] >= _LETTERS}
        for number, found in others:
            if not found <= known:
                kinds[number] = _Kind.UNKNOWN
        lacking = self._lacking()
        if lacking is not None and lacking < len(kinds):
            kinds[lacking] = _Kind.LACKING
        return kinds

    def _lacking(self) -> int | None:
        """The id that stands for what the vocabulary lacks."""
        model = self._told.get("model") or {}
        token = model.get("unk_token")
        if isinstance(token, str):
            found: int | None = self._tokenizer.token_to_id(token)
            return found
        return model.get("unk_id") if isinstance(model.get("unk_id"), int) else None

    def _of_bytes(self) -> bool:
        """Whether tokens are spelled in the alphabet of bytes that GPT-2 began."""
        return '"ByteLevel"' in json.dumps([self._told.get("pre_tokenizer"), self._told.get("decoder")])


class _Kind(IntEnum):
    """What a token says of how well its text is understood."""

    NONE = 0  # neither letter nor digit
    KNOWN = 1
    UNKNOWN = 2  # of a script that the vocabulary does not know
    LACKING = 3  # the one token for all that the vocabulary lacks


@cache
def script(letter: str) -> str:
    """The script of a letter, by its name; Han and kana, which are written together, are one."""
    name = unicodedata.name(letter, "").partition(" ")[0]
    return "CJK" if name in {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"} else name


def _bare(token: str) -> str:
    for mark in _MARKS:
        token = token.removeprefix(mark)
    return token


@cache
def _bytes_of() -> dict[str, int]:
    """Each letter of the byte alphabet and its byte: printable Latin-1 stands for itself, the rest follows from 256 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + place): byte for place, byte in enumerate(rest)}


def _spelled_bytes(token: str) -> str:
    known = _bytes_of()
    return bytes(known[each] for each in token if each in known).decode(errors="ignore")


def _pad_id(told: dict[str, Any], number: Any) -> int:
    padding = told.get("padding")
    if isinstance(padding, dict) and isinstance(padding.get("pad_id"), int):
        return int(padding["pad_id"])
    return next((found for name in ("[PAD]", "<pad>") if (found := number(name)) is not None), 0)


def _cut(text: str, offsets: Sequence[tuple[int, int]], words: Sequence[int | None], least: int, most: int) -> int:
    """Where a piece ends, `least` to `most`: after a paragraph, else a line or sentence, else a word; the last of its kind."""
    best, worth = most, 0
    for place in range(most, least, -1):
        if _between(words, place):
            end, begin = offsets[place - 1][1], offsets[place][0]
            gap = text[end:begin]
            if _PARAGRAPH.search(gap):
                return place
            found = (
                2 if "\n" in gap or (text[end - 1 : end] in _SENTENCE and (gap or not text[end - 1].isascii())) else 1
            )
            if found > worth:
                best, worth = place, found
    return best


def _between(words: Sequence[int | None], place: int) -> bool:
    """Whether the token at `place` begins a word."""
    return words[place] is None or words[place] != words[place - 1]


def packages_missing(error: ImportError) -> ModelMissing:
    """The error where NumPy, ONNX Runtime or tokenizers cannot be imported."""
    return ModelMissing("No text can be embedded: a package is missing", why=str(error),
                        next="Install numpy, onnxruntime and tokenizers. Until then recall goes by words.")  # fmt: skip
