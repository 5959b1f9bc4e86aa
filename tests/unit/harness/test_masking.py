"""What is masked: secrets, in every encoding that is promised, and nothing else."""

from __future__ import annotations

import base64
import html
import json
import pickle
import urllib.parse
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentmem.errors import InvalidInput
from agentmem.harness.masking import Masker

SECRET = "sk_live_51H8xWq+/=é 7"


def masker(*values: str) -> Masker:
    made = Masker()
    for number, value in enumerate(values):
        made.add(value, f"id{number}")
    return made


# Encodings: what is written, and how the reader gets the secret back from a piece of it


def wrapped(text: str, width: int, by: str = "\n") -> str:
    return by.join(text[at : at + width] for at in range(0, len(text), width))


def percent(text: str, *, upper: bool = True, whole: bool = False) -> str:
    digits = "%02X" if upper else "%02x"
    if whole:
        return "".join("%" + digits % byte for byte in text.encode())
    done = urllib.parse.quote(text, safe="")
    return done if upper else "".join(part.lower() if part[:1] == "%" else part for part in _percent_parts(done))


def _percent_parts(text: str) -> list[str]:
    parts, at = [], 0
    while at < len(text):
        size = 3 if text[at] == "%" else 1
        parts.append(text[at : at + size])
        at += size
    return parts


def unicode_escaped(text: str) -> str:
    units = text.encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


ENCODINGS: dict[str, Callable[[str], str]] = {
    "plain": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "base64 without padding": lambda text: base64.b64encode(text.encode()).decode().rstrip("="),
    "base64 url-safe": lambda text: base64.urlsafe_b64encode(text.encode()).decode(),
    "base64 after 1 byte": lambda text: base64.b64encode(b":" + text.encode() + b"xy").decode(),
    "base64 after 2 bytes": lambda text: base64.urlsafe_b64encode(b"u:" + text.encode() + b"x").decode(),
    "base64 of a header": lambda text: base64.b64encode(f"user:{text}\n".encode()).decode(),
    "base64 in a URL": lambda text: urllib.parse.quote(base64.b64encode(text.encode()).decode(), safe=""),
    "base64 in lines": lambda text: base64.encodebytes((text * 4).encode()).decode(),
    "base64 in JSON in lines": lambda text: json.dumps(wrapped(base64.b64encode(text.encode()).decode(), 8)),
    "percent": percent,
    "percent lower": lambda text: percent(text, upper=False),
    "percent whole": lambda text: percent(text, whole=True),
    "percent whole lower": lambda text: percent(text, whole=True, upper=False),
    "percent, blank as plus": urllib.parse.quote_plus,
    "percent twice": lambda text: percent(percent(text)),
    "percent, the usual ones kept": lambda text: urllib.parse.quote(text, safe="/:@!$&'()*,;=~"),
    "hex": lambda text: text.encode().hex(),
    "hex upper": lambda text: text.encode().hex().upper(),
    "hex with colons": lambda text: text.encode().hex(":"),
    "hex with blanks": lambda text: text.encode().hex(" "),
    "hex with \\x": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "hex with 0x": lambda text: ", ".join(f"0x{byte:02X}" for byte in text.encode()),
    "hex in lines": lambda text: wrapped(text.encode().hex(), 5),
    "JSON": json.dumps,
    "JSON, not ASCII": lambda text: json.dumps(text, ensure_ascii=False),
    "JSON in JSON": lambda text: json.dumps(json.dumps({"token": text})),
    "JSON, every character": unicode_escaped,
    "JSON with slashes": lambda text: json.dumps(text).replace("/", "\\/"),
    "repr": repr,
    "repr of bytes": lambda text: repr(text.encode()),
    "unicode_escape": lambda text: text.encode("unicode_escape").decode(),
    "HTML": html.escape,
    "HTML, numbers": lambda text: "".join(f"&#{ord(each)};" for each in text),
    "HTML, hex numbers": lambda text: "".join(f"&#x{ord(each):X};" for each in text),
    "lines": lambda text: wrapped(text, 5),
    "lines of Windows": lambda text: wrapped(text, 7, "\r\n"),
    "blanks": lambda text: wrapped(text, 1, " "),
    "percent in lines": lambda text: wrapped(percent(text, whole=True), 4),
    "JSON in lines": lambda text: wrapped(unicode_escaped(text), 4),
    "URL in JSON": lambda text: json.dumps("https://x/?k=" + percent(text)).replace("/", "\\/"),
    "JSON in a URL": lambda text: percent(json.dumps({"k": text})),
    "URL in HTML": lambda text: html.escape(f"https://x/?a=1&k={percent(text)}"),
}

secrets = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z", "Cf", "Cn", "Co")), min_size=8, max_size=40
).filter(lambda text: len(set(text)) > 4)
around = st.text(st.sampled_from("ab 0Z\n.é{}"), max_size=12)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_each_encoding_is_found(encoding: str) -> None:
    """A secret with every awkward character, in the midst of a text."""
    written = ENCODINGS[encoding](SECRET)
    known = masker(SECRET)
    text = f"before {written} after"
    assert known.found(text)
    done = known.mask(text)
    assert done.startswith("before ")
    assert done.endswith(" after")
    assert "[masked: id0]" in done
    left = done.replace("[masked: id0]", "")
    # What is left beside a mask is what stood around the secret, and less than three characters of its encoding.
    assert len(left) <= len("before  after") + len(written) - len(ENCODINGS[encoding](SECRET[3:-3])) + 12


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(secret=secrets, before=around, after=around, other=secrets)
def test_what_is_left_does_not_hold_it(encoding: str, secret: str, before: str, after: str, other: str) -> None:
    """Whatever the secret and whatever stands around it: the mask is there, and the encoding is not."""
    assume(other not in secret and secret not in other)
    written = ENCODINGS[encoding](secret)
    done = masker(other, secret).mask(f"{before}{written}{after}")
    assert "[masked: id1]" in done
    assert written not in done
    assert secret not in done
    assert masker(secret).mask(done) == done


@pytest.mark.parametrize("encoding", ENCODINGS)
@given(text=st.text(max_size=60), other=secrets)
def test_a_text_without_it_stays(encoding: str, text: str, other: str) -> None:
    """A text in any encoding that does not hold the secret comes back as it was."""
    assume(other[:3] not in text)
    written = text if encoding == "base64 in lines" else ENCODINGS[encoding](text.encode("utf-8", "replace").decode())
    known = masker(other)
    assert not known.found(written)
    assert known.mask(written) == written
    assert known.mask(written, cut_start=True, cut_end=True) == written


@given(before=st.text(max_size=30), secret=secrets, after=st.text(max_size=30))
def test_nothing_beside_it_changes(before: str, secret: str, after: str) -> None:
    """What stands before and after a plain secret is the same afterwards, but for a backslash that may belong to it."""
    assume(not before.endswith("\\"))
    assume(secret not in before + secret[:-1] and secret not in secret[1:] + after)
    done = masker(secret).mask(before + secret + after)
    assume(done.count("[masked: id0]") == 1)
    assert done == f"{before}[masked: id0]{after}"


def test_two_that_overlap_are_masked_as_one() -> None:
    """Both are gone, also what each has alone."""
    known = masker("abcdefgh-1", "efgh-1-ijkl", "h-1-ijkl-mn")
    assert known.mask("<abcdefgh-1-ijkl-mn>") == "<[masked: id1]>"


def test_one_within_another_goes_with_it() -> None:
    """The name is that of the longer one, whichever was added first."""
    assert masker("inner-secret", "an inner-secret within").mask("(an inner-secret within)") == "([masked: id1])"
    assert masker("an inner-secret within", "inner-secret").mask("(an inner-secret within)") == "([masked: id0])"


def test_two_side_by_side_are_two() -> None:
    """Each has its mask."""
    assert masker("first-secret", "other-secret").mask("first-secretother-secret") == "[masked: id0][masked: id1]"


def test_one_that_repeats_itself_leaves_no_rest() -> None:
    """A text in which it begins again before it ends is masked to its end."""
    assert masker("abcabcabc").mask("xabcabcabcabcabx") == "x[masked: id0]abx"
    assert masker("aaaaaaaa").mask("b" + "a" * 1001 + "b") == "b[masked: id0]b"


def test_a_long_encoded_text_keeps_the_rest() -> None:
    """Of a document that is one run of percent signs, base64 or escapes, only the secret's place changes."""
    text = f"The whole document is encoded, with {SECRET} in the midst of it, and goes on."
    begin, end = text.split(SECRET)
    known = masker(SECRET)
    done = known.mask(percent(text, whole=True))
    assert urllib.parse.unquote(done) == f"{begin}[masked: id0]{end}"
    assert json.loads(f'"{known.mask(unicode_escaped(text))}"') == f"{begin}[masked: id0]{end}"
    assert html.unescape(known.mask(ENCODINGS["HTML, numbers"](text))) == f"{begin}[masked: id0]{end}"
    assert bytes.fromhex(known.mask(text.encode().hex()).replace("[masked: id0]", "")).decode() == begin + end
    left, right = known.mask(base64.b64encode(text.encode()).decode()).split("[masked: id0]")
    assert base64.b64decode(left[: len(left) // 4 * 4]).decode().startswith(begin[:-3])
    assert right[-20:] == base64.b64encode(text.encode()).decode()[-20:]


def test_many_times_is_many_masks() -> None:
    """Each place of a secret is one of its own, in each encoding."""
    known = masker(SECRET)
    for encoding in ("plain", "percent", "JSON", "hex", "base64", "percent whole lower"):
        written = ENCODINGS[encoding](SECRET)
        assert known.mask(f"a {written} b {written} c").count("[masked: id0]") == 2, encoding


def test_a_text_that_is_no_unicode_is_masked_too() -> None:
    """Lone surrogates beside a secret stay as they are."""
    assert masker("hunter2-hunter2").mask("\ud800 hunter2-hunter2 \udfff") == "\ud800 [masked: id0] \udfff"


def test_a_long_one_is_found_like_a_short_one() -> None:
    """A key of many lines, as it is, in JSON, in base64, and cut."""
    key = (
        "-----BEGIN KEY-----\n"
        + wrapped("".join(f"{number:05}" for number in range(2000)), 64)
        + "\n-----END KEY-----\n"
    )
    known = masker(key)
    for written in (
        key,
        json.dumps({"key": key}),
        base64.encodebytes(key.encode()).decode(),
        key.replace("\n", "\r\n"),
    ):
        done = known.mask(f"before {written} after")
        assert "[masked: id0]" in done
        assert len(done) < 70
        assert len(known.mask(written[: len(written) // 2], cut_end=True)) < 40
        assert len(known.mask(written[len(written) // 2 :], cut_start=True)) < 40


def test_json_is_masked_in_names_and_texts() -> None:
    """Also in names that are alike afterwards, and in numbers that are the secret; all else is the same value."""
    known = masker("hunter2-hunter2", "1234567890")
    value = {
        "hunter2-hunter2": 1,
        "[masked: id0]": 2,
        "a": ["x hunter2-hunter2", {"b": 1234567890}],
        "c": [None, True, 1.5, 12345678901],
    }
    assert known.mask_json(value) == {
        "[masked: id0]": 1,
        "[masked: id0] (2)": 2,
        "a": ["x [masked: id0]", {"b": "[masked: id1]"}],
        "c": [None, True, 1.5, 12345678901],
    }


def test_a_short_one_is_masked_as_it_stands_only() -> None:
    """Fewer than eight bytes are masked plain; fewer than four are refused, since they stand in any text."""
    known = masker("pin77")
    assert known.mask("pin77 pin 77") == "[masked: id0] pin 77"
    assert known.mask(b"pin77".hex()) == b"pin77".hex()
    for value in ("", "abc", "a b c", " \n "):
        with pytest.raises(InvalidInput) as caught:
            masker(value)
        assert value not in str(caught.value) or not value.strip()


def test_one_that_was_added_twice_is_one() -> None:
    """It keeps its first name, and the later of two ends."""
    known = Masker()
    known.add("hunter2-hunter2", "a", until=10)
    known.add("hunter2-hunter2", "b", until=20)
    known.forget(15)
    assert known.mask("hunter2-hunter2") == "[masked: a]"
    known.forget(21)
    assert known.mask("hunter2-hunter2") == "hunter2-hunter2"


def test_a_static_one_is_never_forgotten() -> None:
    """Nor one that was once added for good."""
    known = Masker()
    known.add("hunter2-hunter2", "a", until=10)
    known.add("hunter2-hunter2", "a")
    known.add("hunter2-hunter2", "a", until=10)
    known.forget(2**62)
    assert known.found("hunter2-hunter2")


def test_a_masker_shows_nothing() -> None:
    """Neither its `repr` nor a pickle, nor what `vars` or a debugger prints of it."""
    known = masker("hunter2-hunter2")
    assert "hunter2" not in f"{known} {known!r} {known._secrets}"
    with pytest.raises(TypeError):
        pickle.dumps(known)
    with pytest.raises(TypeError):
        pickle.dumps(known._secrets)


# Texts that were cut


@pytest.mark.parametrize("encoding", [name for name in ENCODINGS if name not in ("base64 in lines",)])
def test_a_cut_leaves_no_piece_of_it(encoding: str) -> None:
    """Wherever a text was cut within a secret, fewer than six of its characters are left beside the cut."""
    written = ENCODINGS[encoding](SECRET * 2)
    known = masker(SECRET * 2)
    for at in range(len(written)):
        for done, piece in (
            (known.mask(f"some text {written[:at]}", cut_end=True), written[:at]),
            (known.mask(f"{written[at:]} some text", cut_start=True), written[at:]),
        ):
            assert "some text" in done
            left = done.replace("[masked: id0]", "").replace("some text", "").strip()
            per = len(written) / len(SECRET * 2)
            assert len(left) <= 11 * per + 12, (encoding, piece, done)


def test_only_the_end_that_was_cut_is_looked_at() -> None:
    """A piece in the middle, and one at an end that is whole, are ordinary text."""
    known = masker("correct horse battery")
    assert known.mask("correct hor", cut_start=True) == "correct hor"
    assert known.mask("correct hor and more", cut_end=True) == "correct hor and more"
    assert known.mask("so correct hor", cut_end=True) == "so [masked: id0]"
    assert known.mask("se battery pack", cut_start=True) == "[masked: id0] pack"
    assert known.mask("the corre", cut_end=True) == "the corre"


# Speed


def hostile(size: int) -> dict[str, str]:
    return {
        "prose": ("The quick brown fox jumps over the lazy dog; 100% of it.\n" * (size // 56)),
        "repeated prefix": "sk_live_51H8xWq+/=é" * (size // 19),
        "one letter": "a" * size,
        "letter and blank": "a " * (size // 2),
        "backslashes": "\\" * size,
        "percent signs": "%41%4" * (size // 5),
        "ampersands": "&" * size,
        "escapes": "\\u0041\\n" * (size // 8),
        "entities": "&#65;&amp;" * (size // 10),
        "hex": "0x41:" * (size // 5),
        "base64": base64.b64encode(b"sk_live_51H8xWq" * (size // 20)).decode(),
        "secrets": f"{SECRET} and " * (size // (len(SECRET) + 5)),
        "secrets in percent": f"{percent(SECRET)} and " * (size // (len(percent(SECRET)) + 5)),
        "wide": "价格和 " * (size // 4),
    }


@pytest.mark.parametrize("kind", hostile(100))
def test_no_text_makes_it_slow(kind: str, benchmark_ratio: Callable[[Callable[[Any], Any], Any, Any], float]) -> None:
    """Eight times the text takes about eight times the time, not sixty-four."""
    known = masker(
        SECRET, "aaaaaaaaaaaaaaaaaaaaaaaab", "correct horse battery", "0123456789abcdef" * 4, "%41%41%41\\u0041"
    )
    small, large = (hostile(size)[kind] for size in (60_000, 480_000))
    assert benchmark_ratio(lambda text: known.mask(text, cut_start=True, cut_end=True), small, large) < 24


@pytest.fixture
def benchmark_ratio() -> Callable[[Callable[[Any], Any], Any, Any], float]:
    import time

    def least(call: Callable[[Any], Any], given: Any) -> float:
        best = float("inf")
        for _ in range(3):
            begun = time.process_time()
            call(given)
            best = min(best, time.process_time() - begun)
        return best

    return lambda call, small, large: least(call, large) / max(least(call, small), 1e-4)
