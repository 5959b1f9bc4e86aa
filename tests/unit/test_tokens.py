"""Promises of the default token counter and of the cut of a text."""

from __future__ import annotations

import inspect
import itertools
import json
import random
import string
import textwrap
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentmem.context.token_weights import BYTE_CLASSES, UNITS, WEIGHTS
from agentmem.context.tokens import count_tokens, cut

# A loaded machine is no failure.
untimed = settings(deadline=None)

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

texts = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from("abc xyzABC019 .,-/_()\"'\n\t #é中👩\u200d\u0301\ud800"),
    ),
    max_size=80,
)


def test_classes_are_a_partition_and_weights_a_square():
    """Each byte is in one class, and there is a weight for each class after each class."""
    assert sorted(b"".join(BYTE_CLASSES)) == list(range(256))
    rows = [bytes.fromhex(row) for row in WEIGHTS.split()]
    assert {len(row) for row in rows} == {len(rows)} == {len(BYTE_CLASSES)}


def test_nothing_costs_nothing():
    """The empty text has no tokens, any other at least one."""
    assert count_tokens("") == 0
    assert all(count_tokens(character) >= 1 for character in string.ascii_letters + "中é👩\ud800")


@given(texts, texts)
@untimed
def test_joined_texts_cost_no_more_than_apart(first, second):
    """The count is subadditive, so a budget may add up the costs of lines."""
    assert count_tokens(first + second) <= count_tokens(first) + count_tokens(second)


@given(texts, texts)
@untimed
def test_a_longer_text_costs_no_less(first, second):
    """The count is monotone: what is appended never lowers it."""
    assert count_tokens(first) <= count_tokens(first + second)


@given(texts)
@untimed
def test_the_count_is_the_sum_of_the_weights_of_pairs(text):
    """The fast form agrees with the definition, byte by byte."""
    rows = [bytes.fromhex(row) for row in WEIGHTS.split()]
    class_of = {byte: index for index, members in enumerate(BYTE_CLASSES) for byte in members}
    classes = [class_of[byte] for byte in text.encode("utf-8", "surrogatepass")]
    units = sum(rows[second][first] for first, second in itertools.pairwise(classes))
    units += max(rows[classes[0]]) if classes else 0
    assert count_tokens(text) == -(-units // UNITS)


# Counts of texts made here by the dearest vocabulary of scripts/calibrate_tokens.py, in most cases the newest Claude
# family. The texts are made by rule, so that they are the same everywhere.


def prose() -> str:
    return (
        "The service answered with an error after the second retry, so the cache was cleared and the test run again. "
        * 4
    )


def chinese() -> str:
    return (
        "今天我们修复了登录接口的一个错误，原因是缓存没有及时更新，导致用户看到旧的数据。下一步需要检查数据库的索引。"
        * 4
    )


def tool_json() -> str:
    rows = [
        {"id": n, "name": f"host-{n}", "ok": n % 2 == 0, "checks": {"authz": "pass", "csrf": None}} for n in range(12)
    ]
    return json.dumps(rows)


def code() -> str:
    return (
        textwrap.dedent(
            """
        def retry(call, attempts=3, pause=0.5):
            for attempt in range(attempts):
                try:
                    return call()
                except TimeoutError as error:
                    last_error = error
                    time.sleep(pause * 2**attempt)
            raise RuntimeError(f"gave up after {attempts} attempts") from last_error
        """
        )
        * 4
    )


def digests() -> str:
    return "\n".join(random.Random(n).randbytes(20).hex() for n in range(12))


def log_lines() -> str:
    return "\n".join(
        f"2026-01-{n:02} 14:{n:02}:07 ERROR [worker-{n}] /srv/app/jobs/sync.py:{n * 7} connection refused"
        for n in range(12)
    )


def pictures() -> str:
    return "🧪✅❌🚀👩‍💻🔒📦🐛 " * 12


DEAREST = {prose: 109, chinese: 225, tool_json: 517, code: 436, digests: 430, log_lines: 539, pictures: 301}


@pytest.mark.parametrize("make", DEAREST, ids=lambda make: make.__name__)
def test_the_dearest_known_count_is_bounded(make):
    """On text of each common kind the estimate is at least the dearest real count, and less than twice that."""
    assert DEAREST[make] <= count_tokens(make()) < DEAREST[make] * 2


@pytest.mark.data
@pytest.mark.skipif(not DATA.is_dir(), reason="the shared real data is absent")
def test_real_notes_cost_what_such_text_costs():
    """Real journals, English and Chinese, cost between 1.2 and 3.2 characters a token."""
    paths = sorted((DATA / "logs").rglob("*.md"))[::5]
    long = [text for text in (path.read_text("utf-8") for path in paths) if len(text) > 2000]
    assert long
    assert all(1.0 <= len(text) / count_tokens(text) <= 3.2 for text in long)


# cut


@given(texts, st.integers(0, 40))
@untimed
def test_a_cut_text_fits(text, limit):
    """What `cut` returns costs at most the limit, and is the text itself exactly where that fits."""
    kept = cut(text, limit)
    assert count_tokens(kept) <= limit
    assert (kept == text) == (count_tokens(text) <= limit)


@given(
    texts,
    st.integers(3, 40),
    st.sampled_from([len, lambda t: len(t.split()), lambda t: len(t.encode("utf-8", "ignore"))]),
)
@untimed
def test_any_counter_does(text, limit, counter):
    """Other counters hold too, and what is kept is a beginning of the text with an ellipsis."""
    kept = cut(text, limit, counter)
    assert counter(kept) <= limit
    assert kept == text or (kept.endswith("…") and text.startswith(kept[:-1])) or kept == ""


def test_the_cut_is_at_a_word():
    """A word is not cut in two where its border is near."""
    assert cut("alpha beta gamma delta", 12, len) == "alpha beta…"
    assert cut("one\ntwo three", 6, len) == "one…"


def test_the_cut_uses_the_limit():
    """As much is kept as fits, but for a word."""
    text = inspect.getsource(textwrap)
    for limit in (50, 300, 2000):
        assert count_tokens(cut(text, limit)) >= limit - 15


def test_a_text_without_words_is_cut_between_letters():
    """Where no border is near, the cut keeps all letters that fit."""
    assert cut("数据库索引需要重建", 5, len) == "数据库索…"


@given(
    st.lists(st.sampled_from(["e\u0301", "👩\u200d💻", "👍🏽", "🇩🇪", "क्\u200dष", "a"]), min_size=8), st.integers(2, 20)
)
@untimed
def test_no_letter_is_parted_from_its_marks(letters, limit):
    """What comes after the cut never begins with a mark, a joiner, a skin tone or the second half of a flag."""
    text = "".join(letters)
    kept = cut(text, limit, len).removesuffix("…")
    rest = text[len(kept) :]
    if rest and kept:
        assert unicodedata.category(rest[0]) not in ("Mn", "Mc", "Me")
        assert "\u200d" not in (rest[0], kept[-1])
        assert not "\U0001f3fb" <= rest[0] <= "\U0001f3ff"
        assert sum("\U0001f1e6" <= character <= "\U0001f1ff" for character in kept) % 2 == 0


def test_an_ending_is_paid_for():
    """The ending given counts towards the limit and may depend on what was kept."""
    kept = cut("«web: " + "word " * 50, 30, len, ending=lambda part: "»…" if "«" in part else "…")
    assert kept.endswith("»…")
    assert len(kept) <= 30


def test_a_giant_text_is_not_counted_whole():
    """Cutting a text of many megabytes counts but its beginning."""
    counted = 0

    def counter(text: str) -> int:
        nonlocal counted
        counted += len(text)
        return count_tokens(text)

    cut("word " * 1_000_000, 50, counter)
    assert counted < 20_000
