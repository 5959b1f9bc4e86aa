"""Claims: leases on records, held by a run, whose secret nobody sees."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any

import pytest

from agentmem import Held, InvalidInput, NotFound, Store
from agentmem.limits import CLAIM_SECONDS_MAX

CLAIMS = tuple(
    f"{record}.claim.{verb}" for record in ("note", "entity", "item") for verb in ("taken", "taken_over", "released")
)


@pytest.fixture
def other(store: Store) -> Store:
    """Another run on the same file."""
    return store.acting(author="bob", run="r2")


@pytest.fixture
def hosts(store: Store) -> list[int]:
    """Four hosts."""
    return list(store.entities.put_many("host", keys=["a", "b", "c", "d"]).ids)


def held(store: Store) -> list[int]:
    return [claim.record for claim in store.claims(mine=True)]


# Taking


def test_a_claim_names_holder_and_expiry(store: Store, hosts: list[int], clock: Any) -> None:
    """The list of live claims says who holds what until when, and whether it is oneself."""
    done = store.claim(["host:a"], seconds=60)
    assert (done.ids, done.created) == ((hosts[0],), 1)
    (claim,) = store.claims()
    assert (claim.record, claim.holder, claim.run, claim.live, claim.mine) == (hosts[0], "ana", "r1", True, True)
    assert 0 < claim.expires_at - clock.now <= 60_000_000
    (theirs,) = store.acting(run="r2").claims()
    assert not theirs.mine
    assert store.acting(run="r2").claims(mine=True) == ()


def test_a_claim_locks_out_every_other_run(store: Store, other: Store) -> None:
    """Every change by another is refused with holder and expiry; reading, adding beneath and no-ops are not."""
    goal = store.notes.add("goal", "Mine")
    question = store.notes.add("question", "Mine?")
    attempt = store.attempts.open("Mine")
    host = store.entities.put("host", "a", attrs={"n": 1})
    store.entities.mark("host", ["a"], {"tls": "pass"})
    store.checklists.add(goal, "Mine")
    fact = other.notes.add("fact", "Theirs")
    store.claim([goal, question, attempt, host, f"{goal.id}.1"], seconds=60)
    head = store.log.head()
    for use in (
        lambda: other.notes.update(goal, title="Theirs"),
        lambda: other.notes.update_many([fact, goal], pin=True),
        lambda: other.notes.move(goal, first=True),
        lambda: other.confirm(goal),
        lambda: other.summarize(goal, result="Theirs"),
        lambda: other.attempts.close(attempt, "worked"),
        lambda: other.links.add(goal, "supports", fact),
        lambda: other.links.add(fact, "answers", question),
        lambda: other.entities.put("host", "a", attrs={"n": 2}),
        lambda: other.entities.rename("host:a", "b"),
        lambda: other.entities.mark("host", ["a"], {"tls": "fail"}),
        lambda: other.entities.unmark("host", ["a"], ["tls"]),
        lambda: other.checklists.add(goal, "Theirs"),
        lambda: other.checklists.done(goal, 1),
        lambda: other.checklists.edit(f"{goal.id}.1", "Theirs"),
        lambda: other.checklists.remove(goal, 1),
        lambda: other.claim([fact, goal]),
        lambda: other.release([goal]),
    ):
        with pytest.raises(Held, match=r"claimed by ana until 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"):
            use()
    assert store.log.head() == head
    assert other.entities.put("host", "a", attrs={"n": 1}).changed == ()
    assert other.notes.get(goal).title == "Mine"
    assert other.notes.add("fact", "Beneath", parent=goal).id
    assert other.links.add(fact, "supports", goal).changed


def test_a_label_opens_nothing(store: Store, opened: Callable[..., Store], hosts: list[int]) -> None:
    """Another process that calls itself the same author and run is another holder: the secret decides."""
    store.claim(["host:a"])
    same_words = opened(author="ana", run="r1")
    with pytest.raises(Held):
        same_words.entities.put("host", "a", status="up")
    assert not same_words.claims()[0].mine


def test_the_holder_keeps_working(store: Store, hosts: list[int]) -> None:
    """Also by another view of the same run, and by a process that was handed the token."""
    store.claim(["host:a"])
    store.in_project("other").in_project("acme").entities.put("host", "a", status="up")
    store.acting(author="somebody", task=None).entities.put("host", "a", status="down")


def test_a_token_hands_the_claims_on(store: Store, opened: Callable[..., Store], hosts: list[int]) -> None:
    """A second process of the run continues the claims of the first; a bad token is refused."""
    store.claim(["host:a"])
    second = opened(author="ana", run="r1")
    with pytest.raises(InvalidInput):
        second.adopt_claims("no token")
    second.adopt_claims(store.claim_token())
    second.entities.put("host", "a", status="up")
    assert held(second) == [hosts[0]]
    assert second.release().changed == 1


def test_claiming_is_all_or_none(store: Store, other: Store, hosts: list[int]) -> None:
    """One that somebody else holds undoes the taking of the rest; one that does not exist too."""
    store.claim(["host:c"])
    with pytest.raises(Held):
        other.claim(["host:a", "host:b", "host:c"])
    with pytest.raises(NotFound):
        other.claim(["host:a", "host:nowhere"])
    assert held(other) == []


def test_notes_entities_and_items_are_claimed(store: Store) -> None:
    """Only entities could be. Ours: notes and checklist items too, and nothing else."""
    step = store.notes.add("step", "Check")
    store.checklists.add(step, "TLS")
    store.entities.put("host", "a")
    assert store.claim([step, f"{step.id}.1", "host:a"]).created == 3
    for ref in (store.checkpoint("x"), store.summarize(step, result="x")):
        with pytest.raises(InvalidInput):
            store.claim([ref])


test_w4_notes_and_items_can_be_claimed = test_notes_entities_and_items_are_claimed


@pytest.mark.parametrize("seconds", [0, -1, CLAIM_SECONDS_MAX + 1, 1.5, "60", None, True])
def test_a_lease_has_a_bounded_length(store: Store, hosts: list[int], seconds: Any) -> None:
    """Whole seconds, from one to the limit."""
    with pytest.raises(InvalidInput):
        store.claim(["host:a"], seconds=seconds)
    store.claim(["host:a"], seconds=CLAIM_SECONDS_MAX)


def test_what_is_to_be_claimed_must_be_said(store: Store, hosts: list[int]) -> None:
    """Refs or a type, not both and not neither."""
    for given in ({}, {"refs": ["host:a"], "type": "host"}, {"type": "host", "n": 0}, {"type": "two words"}):
        with pytest.raises(InvalidInput):
            store.claim(**given)  # type: ignore[arg-type]


# Renewing, lapsing, releasing


def test_renewing_writes_no_event_and_keeps_the_holder(store: Store, hosts: list[int], clock: Any) -> None:
    """Only the expiry moves."""
    store.claim(["host:a"], seconds=60)
    (before,) = store.claims()
    head = store.log.head()
    clock.advance(seconds=30)
    done = store.claim(["host:a"], seconds=60)
    assert (done.created, done.changed) == (0, 1)
    assert store.log.head() == head
    (after,) = store.claims()
    assert after.expires_at > before.expires_at
    assert (after.holder, after.taken_at) == (before.holder, before.taken_at)


def test_w4_renewing_without_a_name_keeps_the_name(store: Store, hosts: list[int]) -> None:
    """Renewed by a caller without author, a claim lost its holder's name. Ours keeps it."""
    store.claim(["host:a"])
    store.acting(author=None).claim(["host:a"])
    assert store.claims()[0].holder == "ana"
    with pytest.raises(Held, match="claimed by ana"):
        store.acting(run="r2").entities.put("host", "a", status="up")


def test_a_lapsed_claim_no_longer_locks_and_is_taken_over(
    store: Store, other: Store, hosts: list[int], clock: Any
) -> None:
    """After its time others write and claim; then the former holder is the one who is locked out."""
    store.claim(["host:a"], seconds=60)
    clock.advance(seconds=61)
    other.entities.put("host", "a", status="up")
    assert store.claims() == ()
    assert other.claim(["host:a"]).created == 1
    with pytest.raises(Held, match="claimed by bob"):
        store.entities.put("host", "a", status="down")
    with pytest.raises(Held):
        store.claim(["host:a"])
    kinds = [event.kind for event in store.log.read(record="host:a", kinds=CLAIMS)]
    assert kinds == ["entity.claim.taken", "entity.claim.taken_over"]


def test_w4_lapsed_claims_can_be_cleared(store: Store, other: Store, hosts: list[int], clock: Any) -> None:
    """A lapsed claim could only be cleared by claiming anew. Ours: anybody may release it; the log says it had."""
    store.claim(["host:a"], seconds=1)
    clock.advance(seconds=2)
    assert other.release(["host:a"]).changed == 1
    assert store.log.read(kinds=["entity.claim.released"])[0].payload == {"lapsed": True}


def test_release_gives_back_once(store: Store, other: Store, hosts: list[int]) -> None:
    """The second time nothing changes; of nothing nothing; all of the run's own without arguments."""
    store.claim(hosts[:3])
    other.claim([hosts[3]])
    assert store.release(["host:a"]).changed == 1
    assert store.release(["host:a"]).unchanged == 1
    assert store.release().ids == (hosts[1], hosts[2])
    assert store.release().ids == ()
    with pytest.raises(Held):
        store.release(["host:d"])
    assert held(other) == [hosts[3]]
    other.entities.put("host", "a", status="up")


def test_a_claim_in_a_transaction_that_was_rolled_back_was_never_taken(
    store: Store, other: Store, hosts: list[int], undone: Any
) -> None:
    """The lease goes with the event that took it."""
    with undone(store):
        store.claim(hosts)
    assert store.claims() == ()
    assert other.claim(hosts).created == 4


def test_a_claim_moves_no_revision(store: Store, hosts: list[int]) -> None:
    """Whoever has seen a record may still expect what was seen after somebody took and released it."""
    seen = store.entities.get("host:a").revision
    store.claim(["host:a"])
    store.release()
    assert store.entities.put("host", "a", status="up", expected_revision=seen).changed


# The next free one


def test_the_next_free_ones_are_claimed_in_one_call(store: Store, other: Store, hosts: list[int], clock: Any) -> None:
    """In order, matching, never one that is held; fewer where there are fewer, then none."""
    assert store.claim(type="host", n=2, seconds=60).ids == tuple(hosts[:2])
    assert other.claim(type="host", where="key != :k", k="c", n=5, seconds=60).ids == (hosts[3],)
    assert other.claim(type="host", n=5, seconds=60).ids == (hosts[2],)
    assert store.claim(type="host").ids == ()
    clock.advance(seconds=61)
    assert store.claim(type="host", n=1).ids == (hosts[0],)


test_w4_the_next_free_one_is_one_call = test_the_next_free_ones_are_claimed_in_one_call


# Many at once


def race(stores: list[Store], take: Callable[[Store], Any]) -> list[Any]:
    """Let all go at one moment; what each got, or the error."""
    gate = threading.Barrier(len(stores))
    got: list[Any] = [None] * len(stores)

    def run(place: int) -> None:
        gate.wait()
        try:
            got[place] = take(stores[place])
        except Held as error:
            got[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return got


def test_of_sixteen_threads_exactly_one_gets_the_claim(store: Store, hosts: list[int]) -> None:
    """The others are told who."""
    stores = [store.acting(author=f"a{number}", run=f"run-{number}") for number in range(16)]
    for host in hosts:
        got = race(stores, lambda each, host=host: each.claim([host]))  # type: ignore[misc]
        winners = [number for number, one in enumerate(got) if not isinstance(one, Held)]
        assert len(winners) == 1
        assert all(f"claimed by a{winners[0]} until" in str(one) for one in got if isinstance(one, Held))
    assert store.verify(replay=True)


def test_the_next_free_one_is_never_given_twice(store: Store) -> None:
    """Sixteen threads that take two each, again and again, share forty entities without overlap."""
    ids = store.entities.put_many("page", keys=[f"p{number}" for number in range(40)]).ids
    stores = [store.acting(run=f"run-{number}") for number in range(16)]
    taken: list[int] = []
    while got := [found for done in race(stores, lambda each: each.claim(type="page", n=2)) for found in done.ids]:
        taken += got
    assert sorted(taken) == list(ids)


# What is written


def test_the_log_and_the_file_never_hold_the_secret(store: Store, other: Store, hosts: list[int], clock: Any) -> None:
    """Events carry holder and expiry; the row a hash; no read gives it."""
    store.claim(["host:a"], seconds=60)
    store.release()
    store.claim(["host:a"], seconds=60)
    clock.advance(seconds=61)
    other.claim(["host:a"], seconds=60)
    secret = bytes.fromhex(store.claim_token())
    theirs = bytes.fromhex(other.claim_token())
    assert secret != theirs
    for event in store.log.read(kinds=CLAIMS):
        payload = event.payload
        assert payload is not None
        assert payload.keys() == ({"lapsed"} if event.kind.endswith("released") else {"holder", "expires_at"})
    with store.database.read() as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        everything = repr([connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables])
        (kept,) = connection.execute("SELECT secret FROM lease").fetchall()
    assert kept == (hashlib.sha256(theirs).digest(),)
    for each in (secret, theirs):
        assert each.hex() not in everything
        assert repr(each)[2:-1] not in everything
    assert secret.hex() not in repr(store.claims())


def test_claims_are_no_part_of_a_replay(store: Store, hosts: list[int]) -> None:
    """Leases are operational state: a replay makes none, and finds no difference."""
    store.claim(hosts)
    assert store.verify(replay=True).problems == ()


def test_a_refusal_names_author_and_run(store: Store) -> None:
    """Who is refused learns both labels of the holder: the run tells whose token is needed."""
    note = store.notes.add("goal", "Check").id
    store.acting(author="bob", run="r9").claim(note)
    with pytest.raises(Held, match=r"author bob, run r9"):
        store.notes.update(note, title="Other")
