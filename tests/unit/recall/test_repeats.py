"""Two texts are shown as one only if nothing that could carry a fact differs between them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from agentmem.recall.repeats import COMPARED, fold, same

PAIRS: list[dict[str, Any]] = [
    json.loads(line) for line in (Path(__file__).parents[2] / "data" / "pairs.jsonl").read_text("utf-8").splitlines()
]
DIFFERENT = [pair for pair in PAIRS if not pair["same"]]
REPEATS = [pair for pair in PAIRS if pair["same"]]


def told(pair: dict[str, Any]) -> str:
    return f"{pair['lang']}-{pair['why']}"


def test_the_set_is_large_and_mixed() -> None:
    """The set has 200 pairs that differ and 120 repeats at least, in two languages, nearly half of them long."""
    assert len(DIFFERENT) >= 200
    assert len(REPEATS) >= 120
    assert sum(pair["lang"] == "zh" for pair in PAIRS) > len(PAIRS) / 3
    assert sum(min(len(pair["a"]), len(pair["b"])) >= 300 for pair in PAIRS) > 0.45 * len(PAIRS)
    assert len({(pair["a"], pair["b"]) for pair in PAIRS}) == len(PAIRS)


@pytest.mark.parametrize("pair", DIFFERENT, ids=told)
def test_no_two_facts_are_one(pair: dict[str, Any]) -> None:
    """A pair of texts that say two things is never one, either way round."""
    assert not same(pair["a"], pair["b"])
    assert not same(pair["b"], pair["a"])


def test_most_repeats_are_known() -> None:
    """Nine of ten repeats are known as such, in each language more than eight, the same either way round."""
    for lang, least in (("en", 0.88), ("zh", 0.88)):
        of_lang = [pair for pair in REPEATS if pair["lang"] == lang]
        known = [pair for pair in of_lang if same(pair["a"], pair["b"])]
        assert known == [pair for pair in of_lang if same(pair["b"], pair["a"])]
        assert len(known) >= least * len(of_lang)
    assert sum(same(pair["a"], pair["b"]) for pair in REPEATS) >= 0.9 * len(REPEATS)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Box a went down", "Box went down"),
        ("A failed, B passed", "Failed, B passed"),
        ("Run docker-compose up", "Run docker compose up"),
        ("Echo '$HOME' first", 'Echo "$HOME" first'),
        ('Payload is {"flag": "true"}', 'Payload is {"flag": true}'),
        ('Payload is {"n": "1"}', 'Payload is {"n": 1}'),
        ("The range is (1, 5)", "The range is [1, 5]"),
        ("Use {name} here", "Use (name) here"),
        ("Copy to src/.", "Copy to src/"),
        ("Run cd ..", "Run cd"),
        ("Run docker build .", "Run docker build"),
        ("Notify Microsoft Teams", "Notify Microsoft teams"),
        ("use the Word file", "use the word file"),
        ("ask peter about it", "ask peters about it"),
        ("请联系peter处理", "请联系peters处理"),
        ("Call `save!`", "Call `save`"),
        ("Restart the server", "Restarts the server"),
        ("If full, restart the box", "If full, restarts the box"),
        ("Do not log tokens", "Does not log tokens"),
        ("Delete item 5", "Delete items 5"),
        ("It is fast, not safe", "It is fast not, safe"),
        ("Alice said, Bob failed", "Alice, said Bob, failed"),
        ("№ 5", "No 5"),
        ("不 需要重启", "不需要重启"),
        ("Contact Müller", "Contact Muller"),
        ("Ask José", "Ask Jose"),
        ("它们可用", "他们可用"),
        ("abc\u202edef", "abcdef"),
        ("log in", "login"),
        ("stop\n- one\n  - two\n- three", "stop\n- one\n  - two\n  - three"),
    ],
)
def test_what_looks_like_a_variant_but_is_none(a: str, b: str) -> None:
    """Labels, code, names, commands and marks that change the sense are told apart."""
    assert not same(a, b)
    assert not same(b, a)


def test_beyond_the_bound_only_equal_texts_are_the_same() -> None:
    """Of a text that is too long to be compared nothing is guessed."""
    long = "The relay drops it. " * (COMPARED // 20 + 1)
    assert same(long, str(long))
    assert not same(long, long + ".")
    assert same(long[: COMPARED - 20], long[: COMPARED - 20] + "\n")
    assert fold([long, long + ".", str(long)], str, lambda hit: 0) == [(long, (long,)), (long + ".", ())]


def test_each_hit_is_kept_or_named_with_the_first_like_it() -> None:
    """The order stays, the best of the repeats stands for the others."""
    hits = ["The disk is full", "Use port 443", "The disk is full.", "Use port 444", "the disk is full", "Use port 443"]
    assert fold(hits, str, lambda hit: "fact") == [
        ("The disk is full", ("The disk is full.", "the disk is full")),
        ("Use port 443", ("Use port 443",)),
        ("Use port 444", ()),
    ]
    assert fold([], str, str) == []


def test_another_kind_or_status_is_never_a_repeat() -> None:
    """An attempt that failed is not the one that worked, a note no entity, an entity no other entity."""
    kinds = [
        ("attempt", "worked"),
        ("attempt", "failed"),
        ("fact", "active"),
        ("host", "10.0.0.1"),
        ("host", "10.0.0.2"),
    ]
    hits = [(kind, "Raise the limit") for kind in kinds for _ in range(2)]
    folded = fold(hits, lambda hit: hit[1], lambda hit: hit[0])
    assert folded == [((kind, "Raise the limit"), ((kind, "Raise the limit"),)) for kind in kinds]


@pytest.mark.parametrize("blank", ["", " \n"])
def test_hits_without_text_are_kept(blank: str) -> None:
    """Nothing is known of two records without text but that they are two."""
    assert fold([blank, blank], str, lambda hit: 0) == [(blank, ()), (blank, ())]


def test_a_hit_is_a_repeat_of_what_is_kept_not_of_another_repeat() -> None:
    """Likeness is no chain: what differs from the text that is shown is shown itself."""
    chain = ["ship it to the US region", "SHIP IT TO THE US REGION", "Ship it to the us region"]
    for kept, repeats in fold(chain, str, lambda hit: 0):
        assert all(same(kept, one) for one in repeats)


WORDS = st.sampled_from(
    re.findall(
        r"\S+",
        """The a an relay relays drops drop is are not no of to and or A US us API api it It's don't Bob bob's 10 v1.2 10ms
    10 ms 5% x.py --flag /a/b "q" 'q r' “s” (t) [u] {v} … - -- — : , . ; ! ? ?! == -> again please 登录 接口，返回 不 没有。
    403啊 请 啦 呢 吗？ 😀 é Ж ２０ Ａ \u200b ``` # * • 1. `c` it's""",
    )
)
TEXTS = st.lists(st.one_of(WORDS, st.text(max_size=6)), max_size=14).flatmap(
    lambda words: st.sampled_from([" ", "\n", ""]).map(lambda gap: gap.join(words))
)
PROSE = st.lists(
    st.sampled_from(
        re.findall(
            r"\S+", "the relay drops packets when disks fill and Bob restarts it on host alpha 使用 登录接口 v1.2"
        )
    ),
    min_size=1,
    max_size=12,
)
FACTS = st.sampled_from(
    re.findall(
        r"\S+",
        """0 7 42 443 10.0.0.1 2024-01-01 v2.0 no not never without only except may must all some none unless hardly --force
    /etc HEAD Bob US → ≥ ✅ 不 没 未 无 非 三 上 下""",
    )
)


@settings(max_examples=300, deadline=None)
@given(TEXTS, TEXTS)
def test_same_is_symmetric_and_reflexive(a: str, b: str) -> None:
    """Every text is the same as itself, and whatever is the same is so either way round."""
    assert same(a, a)
    assert same(a, b) == same(b, a)


@settings(max_examples=300, deadline=None)
@given(PROSE, FACTS, st.data())
def test_an_inserted_fact_always_distinguishes(words: list[str], fact: str, data: st.DataObject) -> None:
    """A number, a name, a negation more in one of two equal texts makes two of them, wherever it stands."""
    at = data.draw(st.integers(0, len(words)))
    assert not same(" ".join(words), " ".join([*words[:at], fact, *words[at:]]))


@settings(max_examples=300, deadline=None)
@given(PROSE, st.from_regex(r"[a-z]{3,9}", fullmatch=True), st.data())
def test_another_word_always_distinguishes(words: list[str], other: str, data: st.DataObject) -> None:
    """A word that no table knows tells texts apart as well as one that a table knows."""
    at = data.draw(st.integers(0, len(words) - 1))
    assume(other not in ("the", "and", "again", "please"))
    assume(not any(one in (other, f"{other}s", f"{other}es") or other in (f"{one}s", f"{one}es") for one in words))
    assert not same(" ".join(words), " ".join([*words[:at], other, *words[at + 1 :]]))


@settings(max_examples=300, deadline=None)
@given(PROSE, st.data())
def test_another_order_always_distinguishes(words: list[str], data: st.DataObject) -> None:
    """Who does what to whom is told by order: the same words in another order are another text."""
    other = data.draw(st.permutations(words))
    without = [[word for word in order if word != "the"] for order in (words, other)]
    assume("".join(without[0]) != "".join(without[1]))
    assert not same(" ".join(words), " ".join(other))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(TEXTS, st.booleans()), max_size=12))
def test_no_hit_is_lost_and_none_comes_twice(hits: list[tuple[str, bool]]) -> None:
    """Folding only groups: in order, within a kind, and only what is the same as what it stands beneath."""
    numbered = list(enumerate(hits))
    folded = fold(numbered, lambda hit: hit[1][0], lambda hit: hit[1][1])
    assert sorted(one for kept, repeats in folded for one in (kept, *repeats)) == numbered
    assert [kept for kept, _ in folded] == sorted(kept for kept, _ in folded)
    for kept, repeats in folded:
        for one in repeats:
            assert one[0] > kept[0]
            assert one[1][1] == kept[1][1]
            assert same(one[1][0], kept[1][0])


def test_a_hundred_long_hits_are_compared_a_few_times_each() -> None:
    """However alike a hundred texts are, each is read once and compared with a bounded number of others."""
    body = "the relay drops packets when disks fill; " * 90
    hits = [f"{body}{'hl'[number % 2] * (number + 1)}" for number in range(100)]
    assert max(map(len, hits)) <= COMPARED
    assert [kept for kept, _ in fold(hits, str, lambda hit: 0)] == hits
