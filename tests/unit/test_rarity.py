"""Common words in a search: what they find is the same, what they cost is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentmem import NewNote, Store
from agentmem.records import rarity
from agentmem.records.base import Unit

MANY = rarity.COMMON + 500


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """Notes that all say "service", every third also "gateway", two of them "ledger"."""
    with Store.open(tmp_path / "a.db", project="p", encrypted=False, durability="normal") as opened:
        goals = [opened.notes.add("goal", f"Goal {number}") for number in range(2)]
        titles = [f"service {'gateway' if number % 3 == 0 else 'worker'} {number}" for number in range(MANY)]
        new = [NewNote("fact", title, parent=goals[number % 2]) for number, title in enumerate(titles)]
        opened.notes.add_many([*new, NewNote("fact", "ledger of the service"), NewNote("fact", "ledger alone")])
        yield opened


def test_a_count_holds_for_as_long_as_it_can(store: Store) -> None:
    """Remembered as rare is a word only for as long as it cannot have become common, as absent not at all."""
    with store.transaction() as tx:
        assert rarity.counts(Unit(store._binding, tx), ["ledger", "servic", "nowher"]) == {
            "ledger": 2, "servic": rarity.COMMON, "nowher": 0,
        }  # fmt: skip
        store.notes.add_many([NewNote("fact", "nowhere a ledger")])
        assert rarity.counts(Unit(store._binding, tx), ["nowher"]) == {"nowher": 1}
        store.notes.add_many([NewNote("fact", "ledger")] * rarity.COMMON)
        assert rarity.counts(Unit(store._binding, tx), ["ledger"]) == {"ledger": rarity.COMMON}


def test_a_word_that_was_nowhere_is_found_once_it_is_written(store: Store) -> None:
    """Nothing of a fruitless search is remembered."""
    assert store.find("quagga service").matched == "any"
    note = store.notes.add("fact", "The quagga service")
    found = store.find("quagga service")
    assert (found.matched, [hit.id for hit in found]) == ("all", [note.id])


def test_any_of_the_words_begins_with_the_rarer(store: Store) -> None:
    """Where a rarer word is there, a record with common ones only is no candidate; the common ones add to the score."""
    found = store.find("ledger service quagga", limit=50)
    assert found.matched == "any"
    assert [hit.title for hit in found] == ["ledger of the service", "ledger alone"]


def test_all_common_words_find_all_that_have_them(store: Store) -> None:
    """Pages of a search by common words add up to every record that has them all, each once, best first."""
    ids, scores, after = [], [], None
    while True:
        page = store.find("service gateway", limit=70, after=after)
        assert page.matched == "all"
        ids += [hit.id for hit in page]
        scores += [hit.score for hit in page]
        after = page.after
        if after is None:
            break
    assert len(ids) == len(set(ids)) == MANY // 3
    assert scores == sorted(scores, reverse=True)


def test_a_filter_sees_every_candidate(store: Store) -> None:
    """A filter that few pass is no cut: the one note it wants is found behind hundreds of better ones."""
    last = store.notes.add("fact", "a long title in which gateway and service stand far behind", tags=["wanted"])
    found = store.find("service gateway", tag="wanted")
    assert [hit.id for hit in found] == [last.id]
    assert found.after is None
    assert len(store.find("service", kind="goal")) == 0


def test_earlier_attempts_are_found_among_common_words(store: Store) -> None:
    """An attempt like this one is named whether its words are common or not."""
    made = store.attempts.open("restart the service gateway")
    store.attempts.close(made, "failed", why="it hangs")
    for what in ("restart service gateway", "restart the gateway"):
        assert [one.id for one in store.attempts.earlier(what)] == [made.id]
