"""Notes with much the same title are named on writing, however many notes there are and however common the words."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmem import NewNote, Store
from agentmem.records import likeness

OLD = "Rotate the signing certificate of the staging gateway"
FILLING = 5200


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """The note, then thousands of others made of a few common words and one number each."""
    path: Path = tmp_path_factory.mktemp("large") / "a.db"
    with Store.open(path, project="p", encrypted=False, durability="normal") as store:
        store.notes.add("fact", OLD)
        store.notes.add("fact", "Check the deploy of the service again")
        words = ("check", "deploy", "service", "again", "gateway", "staging")
        with store.transaction():
            for number in range(FILLING):
                title = f"{words[number % 6]} {words[number // 6 % 6]} {words[number // 36 % 6]} item{number}"
                store.notes.add_many([NewNote("fact", title)])
        yield store


@pytest.mark.parametrize(
    "title",
    [
        OLD,
        OLD.lower(),
        OLD.replace("certificate ", ""),
        OLD.replace("signing ", ""),
        OLD.replace("Rotate", "Renew"),
        "Rotated signing certificates of staging gateways",
    ],
)
def test_a_title_with_one_word_less_or_another_is_found_among_thousands(large: Store, title: str) -> None:
    """Any word may be the one that differs, also the rarest, and also its form."""
    with large.transaction():
        found = large.notes.add("fact", title).similar
    assert OLD in [one.title for one in found]


def test_the_exact_title_comes_first(large: Store) -> None:
    """The likest is named first."""
    assert large.notes.add("fact", "Renew the passport of the courier").similar == ()
    assert large.notes.add("fact", "Renew the passport of the captain").similar != ()
    found = large.notes.add("fact", "Renew the passport of the courier").similar
    assert found[0].title == "Renew the passport of the courier"


def test_a_title_of_common_words_is_compared_with_the_latest(large: Store) -> None:
    """Where every word stands in hundreds of titles the answer is bounded, and the latest are in it."""
    large.notes.add("fact", "Deploy gateway staging service")
    found = large.notes.add("fact", "Deploy gateway staging service").similar
    assert found[0].title == "Deploy gateway staging service"
    assert len(found) <= likeness.SIMILAR


def test_nothing_alike_is_nothing(large: Store) -> None:
    """Neither unknown words, nor punctuation, nor one shared word name anything."""
    for title in ("zebra quagga okapi", "?!", "The courier"):
        assert OLD not in [one.title for one in large.notes.add("fact", title).similar]
