"""Opening an attempt names the earlier ones that mean the same; meaning never keeps one from being opened."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from toy import Toy, embedded

import agentmem
from agentmem import Store
from agentmem.recall import meaning
from agentmem.types import Earlier

Opens = Callable[..., Store]
Undone = Callable[[Store], contextlib.AbstractContextManager[None]]

# Two attempts at one thing that have no word in common, by the senses that the embedder of the tests knows.
ONE, OTHER = "automobile outage", "car crash"


class Broken(Toy):
    """Works until it is told not to."""

    works = True

    def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        if not self.works:
            raise OSError("the accelerator is gone")
        return super().embed(texts)


def failed(store: Store, what: str, *, why: str = "403", **more: Any) -> int:
    """An attempt that failed."""
    tried = store.attempts.open(what, **more)
    store.attempts.close(tried, "failed", why=why)
    return tried.id


def named(earlier: Sequence[Earlier]) -> list[int]:
    """The ids, in their order."""
    return [one.id for one in earlier]


@pytest.mark.parametrize("wait", [False, True], ids=["just written", "embedded"])
def test_an_attempt_in_other_words_is_named(english: Store, wait: bool) -> None:
    """Tried before in other words: named, as shared in meaning, whether it has its vectors yet or not."""
    tries = [
        ("Kernel exploit for 5.4.0-42 (overlayfs)", "Operation not permitted: the package has the fix"),
        ("Restarted all three database servers at once", "The cluster lost its quorum"),
        ("Put a footrest under the desk", "The pain in the neck got worse"),
        ("Moved the mailboxes to the new host", "Stopped at 80 %: too many connections"),
    ]
    agains = (
        "Local privilege escalation through an overlay filesystem bug",
        "Reboot the whole Postgres cluster",
        "Support the feet to sit without neck pain",
        "Migrate e-mail accounts to another server",
    )
    old = [failed(english, what, why=why) for what, why in tries]
    if wait:
        embedded(english)
    for before, again in zip(old, agains, strict=True):
        found = english.attempts.earlier(again)
        assert named(found) == [before]
        assert "meaning" in found[0].same
        assert 0.25 <= found[0].nearness <= 0.5


def test_an_attempt_at_something_else_is_not_named(english: Store) -> None:
    """What is neither worded alike nor means the same is left out, as it is without meaning."""
    for what in ("Restart the build", "Kernel exploit (overlayfs)", "Cancel the internet contract by web form"):
        failed(english, what)
    assert english.attempts.earlier("Measure the humidity in the cellar") == ()


def test_without_an_embedder_words_decide(plain: Store) -> None:
    """The same attempt in other words is not known for it, in its own words it is."""
    old = failed(plain, ONE)
    assert plain.attempts.open(OTHER).earlier == ()
    assert named(plain.attempts.open("the outage of an automobile").earlier) == [old]


def test_words_and_meaning_do_not_add_up(meant: Store) -> None:
    """The larger of the two counts: the same words mean the same, and that is half of the nearness, not all."""
    failed(meant, ONE)
    (found,) = meant.attempts.earlier(ONE)
    assert (found.nearness, found.same) == (0.5, ("words",))


def test_what_else_is_shared_adds_to_meaning(meant: Store) -> None:
    """Entity and task count as they do beside words."""
    meant.entities.put("host", "a")
    step = meant.notes.add("step", "Look around")
    old = failed(meant, ONE, about="host:a", task=step)
    (found,) = meant.attempts.open(OTHER, about="host:a", task=step).earlier
    assert (found.id, found.nearness, found.same) == (old, 1.0, ("entity", "task", "meaning"))


def test_only_attempts_of_the_tasks_project_are_named(meant: Store) -> None:
    """Not what is no attempt, not those of another project, whatever project the view is of."""
    step = meant.notes.add("step", "Look around")
    old = failed(meant, ONE, task=step)
    meant.notes.add("fact", ONE)
    there = meant.in_project("other")
    assert there.attempts.open(OTHER).earlier == ()
    assert named(there.attempts.open("vehicle collapse", task=step).earlier) == [old]


def test_a_repeated_opening_names_them_too(meant: Store) -> None:
    """A retry gets what the first call got, and not itself or what came after it."""
    old = failed(meant, ONE)
    first = meant.attempts.open(OTHER, request_id="q1")
    meant.attempts.open("vehicle collapse")
    again = meant.attempts.open(OTHER, request_id="q1")
    assert again.repeated
    assert named(again.earlier) == named(first.earlier) == [old]


def test_few_are_named_by_meaning_alone(meant: Store) -> None:
    """Three at most, so that the attempts that share more have their place."""
    for number in range(6):
        failed(meant, f"{ONE} {number}")
    worded = meant.attempts.open("Measure the car crash")
    meant.attempts.close(worded, "worked")
    found = meant.attempts.earlier("vehicle collapse")
    assert len(found) == 3
    assert all(one.same == ("meaning",) for one in found)
    assert worded.id in named(meant.attempts.earlier("Measure a car crash"))


def test_within_a_transaction_own_attempts_are_named(meant: Store) -> None:
    """What was opened a moment ago in the same transaction is seen."""
    with meant.transaction():
        old = failed(meant, ONE)
        assert named(meant.attempts.open(OTHER).earlier) == [old]


def test_what_was_rolled_back_means_nothing(meant: Store, undone: Undone) -> None:
    """Its number is given again, to another text, which is not taken for what the first one meant."""
    failed(meant, "quarterly tides")
    with undone(meant):
        gone = meant.attempts.open(ONE)
        assert named(meant.attempts.earlier(OTHER)) == [gone.id]
        assert [hit.id for hit in meant.recall(OTHER)] == [gone.id]
    kept = meant.attempts.open("feed the kitten")
    assert kept.id == gone.id
    assert meant.attempts.earlier(OTHER) == ()
    assert [hit.id for hit in meant.recall("cat")] == [kept.id]
    assert not meant.recall(OTHER)


def test_a_forgotten_attempt_is_not_named(meant: Store) -> None:
    """Neither from its vectors nor from memory."""
    old, other = failed(meant, ONE), failed(meant, "vehicle failure")
    assert set(named(meant.attempts.earlier(OTHER))) == {old, other}
    embedded(meant)
    meant.forget(old)
    assert named(meant.attempts.earlier(OTHER)) == [other]


def test_many_attempts_are_compared_by_codes(meant: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first search of a process and the later ones name the same, also what was embedded since."""
    monkeypatch.setattr(meaning, "_FEW", 3)
    old = failed(meant, ONE)
    for number in range(20):
        failed(meant, f"subject {number} unlike {number * 7}")
    embedded(meant)
    answers = [named(meant.attempts.earlier(OTHER)) for _ in range(3)]
    assert answers == [[old]] * 3
    assert meant._shared.meaning.codes_bytes
    with meant.transaction():
        assert named(meant.attempts.earlier(OTHER)) == [old]
    second = failed(meant, "vehicle failure")
    embedded(meant)
    assert named(meant.attempts.earlier(OTHER)) == [second, old]


def test_the_model_is_not_asked_where_nothing_was_tried(opened: Opens) -> None:
    """The first attempt of a project does not wait for a model to load, however much else is there."""
    toy = Toy()
    store = opened(embedder=toy)
    for number in range(5):
        store.notes.add("fact", f"{ONE} {number}")
    store.in_project("other").attempts.open(OTHER)
    store.attempts.open(OTHER)
    assert toy.seen == []
    store.attempts.open("vehicle collapse")
    assert "vehicle collapse" in toy.seen


def test_an_attempt_is_opened_where_the_model_is_missing(opened: Opens, tmp_path: Path) -> None:
    """Words decide then, and nothing is raised."""
    store = opened(embedder=tmp_path / "nothing here")
    old = failed(store, "SQL injection in the login form")
    assert named(store.attempts.open("Login form: SQL injection").earlier) == [old]


def test_an_attempt_is_opened_where_the_embedder_fails(opened: Opens) -> None:
    """Also where it did work before: for what has vectors, for what has none, and for the title itself."""
    broken = Broken()
    store = opened(embedder=broken)
    old = failed(store, ONE)
    embedded(store)
    assert named(store.attempts.earlier(OTHER)) == [old]
    store.attempts.open("unseen before")
    broken.works = False
    # The title is remembered, the attempt without vectors can't be read.
    assert named(store.attempts.open(OTHER).earlier) == [old]
    assert store.attempts.open("vehicle collapse").earlier == ()
    assert named(store.attempts.open("an outage of the automobile").earlier) == [old]


def test_a_title_that_the_model_does_not_know_goes_by_words(english: Store) -> None:
    """Chinese attempts are like each other by their words, never by a meaning the model can't know."""
    old = failed(english, "登录接口的 SQL 注入")
    failed(english, "打印机重新安装驱动程序")
    assert named(english.attempts.open("测试登录接口 SQL 注入").earlier) == [old]
    assert english.attempts.open("天气很好").earlier == ()


def test_refused_arguments_are_refused_as_before(meant: Store) -> None:
    """A task or entity that is not there, a title of two lines: nothing is written."""
    failed(meant, ONE)
    head = meant.log.head()
    for options in ({"task": 999}, {"task": "host:none"}, {"about": "host:none"}):
        with pytest.raises(LookupError):
            meant.attempts.open(OTHER, **options)
    with pytest.raises(ValueError, match="line"):
        meant.attempts.open("two\nlines")
    assert meant.log.head() == head


def test_threads_open_attempts_side_by_side(meant: Store) -> None:
    """Each gets the one of before, and no two are in each other's way."""
    old = failed(meant, ONE)
    found: list[list[int]] = []

    def attempt(number: int) -> None:
        found.append(named(meant.attempts.open(OTHER, body=str(number)).earlier))

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert all(old in one for one in found)


FORKED = """
import os, sys
from agentmem import Store
store = Store.open(sys.argv[1], key=bytes(range(32)), project="acme")
old = store.attempts.open("Restarted all three database servers at once").id
def again():
    return [one.id for one in store.attempts.open("Reboot the whole Postgres cluster").earlier]
assert again() == [old]
child = os.fork()
if child == 0:
    os._exit(0 if old in again() else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
assert len(again()) == 3
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_forked_child_names_them_as_its_parent_does(path: Path) -> None:
    """The threads of the parent's model are not in the child, which loads its own."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("AGENTMEM_")}
    env["PYTHONPATH"] = str(Path(agentmem.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", FORKED, str(path)], env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
