"""What was just written is found by its meaning at once, what was changed or taken back is not; everything has a meaning."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
from toy import Gated, Toy, embedded, ids, vectors

from agentmem import NewNote, Store

Opens = Callable[..., Store]
Undone = Callable[[Store], AbstractContextManager[None]]


@pytest.fixture
def gated(opened: Opens) -> Any:
    """A store in whose background nothing is embedded before the test says so."""
    toy = Gated()
    store = opened(embedder=toy)
    yield store, toy
    toy.open.set()


def test_a_recall_right_after_a_write_finds_it_by_meaning(gated: Any) -> None:
    """Before anything was embedded in the background; the file holds no vector of it."""
    store, _ = gated
    store.notes.add("fact", "Something else")
    note = store.notes.add("fact", "The kitten sleeps")
    answer = store.recall("cats")
    assert ids(answer) == [note.id]
    assert (answer.meaning, answer.hits[0].why.words) == ("used", 0)
    assert vectors(store) == []


def test_what_waits_is_said_only_where_it_may_hide_something(gated: Any) -> None:
    """An answer that embedded all that waits by itself says nothing of it; one that could not says how many wait."""
    store, toy = gated
    store.notes.add("fact", "The kitten sleeps")
    assert store.recall("cats").because == ""
    store.notes.add_many([NewNote("fact", f"vehicle {n}") for n in range(100)])
    assert "wait to be embedded" in store.recall("cats").because
    toy.open.set()
    embedded(store)
    assert (store.recall("cats").pending, store.recall("cats").because) == (0, "")


def test_inside_a_transaction_what_it_wrote_is_found(meant: Store) -> None:
    """By meaning, beside what was there before; and what it changed has its new meaning."""
    old = meant.notes.add("fact", "A feline")
    changed = meant.notes.add("fact", "A kitten")
    embedded(meant)
    with meant.transaction():
        new = meant.notes.add("fact", "Two kittens")
        meant.notes.update(changed, title="An automobile")
        assert set(ids(meant.recall("cats"))) == {old.id, new.id}
        assert ids(meant.recall("cars")) == [changed.id]
    assert set(ids(meant.recall("cats"))) == {old.id, new.id}
    assert ids(embedded(meant).recall("cars")) == [changed.id]


def test_the_first_recall_may_be_inside_a_transaction(opened: Opens) -> None:
    """Vectors that are in the file are used there as well."""
    first = opened(embedder=Toy())
    note = first.notes.add("fact", "A feline")
    embedded(first).close()
    store = opened(embedder=Toy())
    with store.transaction():
        store.notes.add("fact", "Something else")
        assert ids(store.recall("cats")) == [note.id]


def test_after_a_rollback_nothing_of_it_is_found(meant: Store, undone: Undone) -> None:
    """Neither by words nor by meaning; what the transaction changed is found as it was."""
    note = meant.notes.add("fact", "A kitten")
    embedded(meant)
    with undone(meant):
        meant.notes.add("fact", "An automobile")
        meant.notes.update(note, title="A payment")
        assert len(meant.recall("cars")) == 1
        assert ids(meant.recall("cats")) == []
    assert meant.recall("cars").hits == meant.recall("automobile").hits == meant.recall("billing").hits == ()
    assert ids(meant.recall("cats")) == [note.id]


def test_a_number_that_is_given_again_has_the_meaning_of_its_new_text(gated: Any, undone: Undone) -> None:
    """After a rollback the next record may get the number of one that was never committed, and shares nothing with it."""
    store, _ = gated
    store.notes.add("fact", "Something")
    with undone(store):
        lost = store.notes.add("fact", "An automobile")
        assert ids(store.recall("cars")) == [lost.id]
    new = store.notes.add("fact", "A kitten")
    assert new.id == lost.id
    assert store.recall("cars").hits == ()
    assert ids(store.recall("cats")) == [new.id]


def test_a_nested_rollback_takes_back_its_part(meant: Store, undone: Undone) -> None:
    """What a savepoint took back is not found in the transaction around it."""
    with meant.transaction():
        kept = meant.notes.add("fact", "A kitten")
        with undone(meant):
            meant.notes.add("fact", "A feline")
            assert len(meant.recall("cats")) == 2
        again = meant.notes.add("fact", "An automobile")
        assert ids(meant.recall("cats")) == [kept.id]
        assert ids(meant.recall("cars")) == [again.id]
    assert ids(meant.recall("cats")) == [kept.id]


def test_after_a_change_the_old_meaning_is_gone_at_once(gated: Any) -> None:
    """The new text is found by its meaning and the old one is not, before and after the background embeds it."""
    store, toy = gated
    note = store.notes.add("fact", "A kitten")
    assert ids(store.recall("cats")) == [note.id]
    store.notes.update(note, title="An automobile")
    assert store.recall("cats").hits == ()
    assert ids(store.recall("cars")) == [note.id]
    toy.open.set()
    embedded(store)
    store.notes.update(note, title="A payment")
    assert store.recall("cars").hits == ()
    assert ids(store.recall("billing")) == [note.id]


def test_a_change_while_its_text_is_being_embedded_wins(gated: Any) -> None:
    """The worker writes no vector of a text that changed meanwhile."""
    store, toy = gated
    note = store.notes.add("fact", "A kitten")
    store._shared.meaning.work()
    assert toy.waits.wait(60)
    store.notes.update(note, title="An automobile")
    toy.open.set()
    embedded(store)
    assert store.recall("cats").hits == ()
    assert ids(store.recall("cars")) == [note.id]
    assert [record for record, _ in vectors(store)] == [note.id]


def test_undo_brings_the_old_meaning_back(meant: Store) -> None:
    """What an undo restores is found by its meaning as before."""
    note = meant.notes.add("fact", "A kitten")
    meant.notes.update(note, title="An automobile")
    embedded(meant)
    meant.undo(meant.log.head().seq)
    assert ids(meant.recall("cats")) == [note.id]
    assert meant.recall("cars").hits == ()


def test_every_record_has_a_meaning(meant: Store) -> None:
    """Notes by title, body, why and basis; entities by attributes and marks; items, checkpoints, summaries."""
    words = iter(["kitten", "automobile", "rapid", "outage", "invoice", "password"])
    asked = {"kitten": "cats", "automobile": "cars", "rapid": "fast", "outage": "crashes", "invoice": "billing",
             "password": "login"}  # fmt: skip

    def check(word: str, record: int) -> None:
        answer = meant.recall(asked[word], limit=1)
        assert ids(answer) == [record], word
        assert answer.hits[0].why.words == 0

    goal = meant.notes.add("goal", "Something", basis=next(words))
    tried = meant.attempts.open("Try")
    meant.attempts.close(tried, "failed", why=next(words))
    host = meant.entities.put("host", "h", attrs={"mood": next(words)})
    item = meant.checklists.add(goal, next(words)).ids[0]
    point = meant.checkpoint(next(words), task=goal)
    summary = meant.summarize(goal, work="", result=next(words))
    made = [goal.id, tried.id, host.id, item, point.id, summary.id]
    for _ in range(2):
        for word, record in zip(asked, made, strict=True):
            check(word, record)
        embedded(meant)


@pytest.mark.parametrize("result", ["pass", "fail", "na", "error"])
def test_marks_with_a_detail_have_a_meaning(meant: Store, result: str) -> None:
    """Whatever the result; after the mark changes its old detail is found no more."""
    host = meant.entities.put("host", "h")
    embedded(meant)
    meant.entities.mark("host", ["h"], {"tls": result}, detail="kitten")
    assert ids(meant.recall("cats")) == [host.id]
    assert ids(embedded(meant).recall("cats")) == [host.id]
    meant.entities.mark("host", ["h"], {"tls": result}, detail="automobile")
    assert meant.recall("cats").hits == ()
    assert ids(embedded(meant).recall("cars")) == [host.id]


def test_a_failed_check_is_found_without_a_detail_and_a_passed_one_is_not(plain: Store) -> None:
    """Failures are few and told; routine passes, of which there are thousands, are for queries."""
    bad = plain.entities.put("host", "bad")
    plain.entities.put("host", "good")
    plain.entities.mark("host", ["bad"], {"heartbleed": "fail"})
    plain.entities.mark("host", ["good"], {"heartbleed": "pass"})
    assert ids(plain.recall("heartbleed")) == [bad.id]


def test_a_note_that_is_appended_to_is_found_by_the_addition(meant: Store) -> None:
    """Each append is a change of the text."""
    note = meant.notes.add("fact", "Diary", body="A kitten")
    embedded(meant)
    meant.notes.update(note, append="An automobile automobile")
    assert ids(meant.recall("vehicle")) == [note.id]
    assert ids(embedded(meant).recall("vehicle")) == [note.id]


def test_what_moved_to_another_project_is_found_there(meant: Store) -> None:
    """After a merge of projects, also with the vectors in memory already, and no longer where it was."""
    other = meant.in_project("zoo")
    kept = other.notes.add("goal", "Zoo with a kitten")
    note = meant.notes.add("goal", "A kitten")
    belonging = {
        note.id, meant.checklists.add(note, "Feed the feline").ids[0], meant.checkpoint("Saw a kitten").id,
        meant.summarize(note, work="Fed the kitten", result="").id, meant.entities.put("cat", "feline").id,
    }  # fmt: skip
    embedded(meant)
    assert set(ids(meant.recall("cats"))) == belonging
    other.projects.merge("acme")
    for _ in range(2):
        assert meant.recall("cats").hits == ()
        assert set(ids(other.recall("cats", limit=20))) == {*belonging, kept.id}
        embedded(meant)


def test_two_processes_worth_of_stores_see_each_other(opened: Opens) -> None:
    """What another open store wrote, changed, embedded or purged is seen by the next recall."""
    one, two = opened(embedder=Toy()), opened(embedder=Toy())
    note = one.notes.add("fact", "A kitten")
    assert ids(two.recall("cats")) == [note.id]
    embedded(one)
    assert ids(two.recall("cats")) == [note.id]
    one.notes.update(note, title="An automobile")
    assert two.recall("cats").hits == ()
    embedded(two)
    assert ids(one.recall("cars")) == [note.id]
    one.forget(note)
    assert two.recall("cars").hits == ()


# Languages


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("今天天气很好，我们去公园散步", "数据库连接超时怎么办"), ("他昨天买了一辆新车", "服务器内存不足"),
        ("会议改到下午三点", "用户无法登录系统"), ("Кошка спит на диване", "Сервер не отвечает"),
    ],
)  # fmt: skip
def test_unrelated_sentences_in_other_scripts_are_no_hits(english: Store, written: str, asked: str) -> None:
    """The model reads English: what it cannot read it does not judge, and the answer says so."""
    english.notes.add("fact", written)
    for _ in range(2):
        answer = english.recall(asked)
        assert answer.hits == ()
        assert answer.meaning == "unknown"
        assert "Nothing relevant" in answer.text
        embedded(english)


def test_a_text_the_model_cannot_read_has_no_vector(english: Store) -> None:
    """An English question meets no Chinese note by chance; words find it all the same."""
    note = english.notes.add("fact", "用Redis做缓存，今天天气很好")
    embedded(english)
    assert vectors(english) == []
    assert english.recall("how do we go for a walk in the park").hits == ()
    assert ids(english.recall("redis")) == [note.id]
    assert english.recall("redis").hits[0].why.meaning is None


def test_english_is_found_by_meaning_without_a_common_word(english: Store) -> None:
    """The model in the package knows that signing in is logging in."""
    note = english.notes.add("fact", "Users cannot log in after the update")
    english.notes.add("fact", "The invoice was paid on Friday")
    answer = english.recall("authentication failures since the new release")
    assert ids(answer)[:1] == [note.id]
    assert ids(embedded(english).recall("authentication failures since the new release"))[:1] == [note.id]


def test_threads_that_recall_while_others_write_see_no_stale_meaning(meant: Store) -> None:
    """A record that flips between two texts is found by the one it has in that reading."""
    note = meant.notes.add("fact", "A kitten")
    errors: list[str] = []
    stop = threading.Event()

    def read() -> None:
        while not stop.is_set():
            for query in ("cats", "cars"):
                for hit in meant.recall(query):
                    if {"cats": "kitten", "cars": "automobile"}[query] not in hit.record.title:
                        errors.append(f"{query}: {hit.record.title}")

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(40):
            meant.notes.update(note, title=("An automobile", "A kitten")[number % 2])
            if number % 10 == 0:
                meant._shared.meaning.work()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []
