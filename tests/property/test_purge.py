"""Purge as a property: after any commands, what only purged records said is in no page, nor are their vectors, and the log
replays to the tables."""

from __future__ import annotations

import hashlib
import sys
import tempfile
from itertools import count
from pathlib import Path

from commands import NUMBER, Command, attempt, ids, pick, rows
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentmem import AgentMemError, Store
from agentmem.types import Receipt

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "recall"))
sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "past"))

from decrypted import image, search
from vector_rows import Forgetful, held, wanted

KEY = bytes(range(32))
WRITES = 25  # of the verbs of `commands`; those above take away
STEP = st.tuples(st.one_of(st.integers(0, 24), st.integers(0, 24), st.integers(25, 29)), NUMBER, NUMBER)
STEPS = st.lists(STEP, max_size=25)


def marker(number: int) -> str:
    """A word that no other text has a part of."""
    digest = hashlib.sha256(str(number).encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz"[byte % 20] for byte in digest[:12])


def said(store: Store, words: list[str]) -> dict[str, set[int]]:
    """By word the records whose events hold it."""
    found: dict[str, set[int]] = {word: set() for word in words}
    events = rows(store, "SELECT record, payload FROM event WHERE payload IS NOT NULL")
    for record, payload in events:
        for word in words:
            if word in payload:
                found[word].add(record)
    return found


def shown(store: Store) -> str:
    """All that the tables say now."""
    tables = ("project", "note", "entity", "mark", "checks", "item", "checkpoint", "summary", "link")
    return repr([rows(store, f"SELECT * FROM {table}") for table in tables])


def take_away(store: Store, what: int, one: int, other: int) -> Receipt | None:
    """Undo an event, or purge a record that is or was there."""
    records = ids(store, "SELECT seq FROM event WHERE seq = record AND type <> 'project'")
    events = ids(store, "SELECT seq FROM event")
    if not records:
        return None
    try:
        match what:
            case 25:
                store.undo(pick(events, one))
            case 26:
                return store.forget(
                    [pick(records, one), pick(records, other)] if other % 3 == 0 else pick(records, one)
                )
            case 27 | 28:
                return store.redact(pick(records, one))
            case 29:
                things = ids(store, "SELECT id FROM entity")
                if things:
                    return store.redact(pick(things, one), **({"attr": "os"} if other % 2 else {"check": "tls"}))
    except AgentMemError:
        return None  # purged before, or something stands on it: refused as it should be
    return None


def purged(store: Store, receipt: Receipt, words: list[str], before: dict[str, set[int]]) -> set[str]:
    """The words that must be gone: those that only these records said; of a redacted one, that it does not say now."""
    now = "" if "forgotten" in rows(store, "SELECT kind FROM event ORDER BY seq DESC LIMIT 1")[0][0] else shown(store)
    return {word for word in words if before[word] and before[word] <= set(receipt.ids) and word not in now}


def examined(steps: list[tuple[int, int, int]], path: Path, scratch: Path) -> None:
    ticks = count(1_750_000_000_000_000)

    def opened() -> Store:
        return Store.open(
            path, project="acme", key=KEY, durability="normal", clock=lambda: next(ticks), embedder=Forgetful()
        )

    codes: set[bytes] = set()
    words: list[str] = []
    gone: set[str] = set()
    with opened() as store:
        for number, (what, one, other) in enumerate(steps):
            if what < WRITES:
                words.append(marker(number))
                command: Command = (what, one, other, words[-1])
                attempt(store, command, foreign=number % 7 == 6)
                continue
            before = said(store, words)
            assert store.wait_for_index()
            vectors = held(store)
            receipt = take_away(store, what, one, other)
            if receipt is not None and receipt.ids:
                gone |= purged(store, receipt, words, before)
                codes |= {code for record, _, _, code in vectors if record in receipt.ids}
                assert not receipt.wal_pending
                assert store.verify(replay=True).problems == ()
        now = shown(store)
        for note, title in rows(store, "SELECT id, title FROM note"):
            assert note in [hit.id for hit in store.find(title, limit=100).hits]
        assert store.wait_for_index()
        assert held(store) == wanted(store, Forgetful())
        codes -= {code for *_, code in held(store)}
    living = {word for word in words if word in now}
    assert not gone & living
    if gone:
        assert search(path, KEY, scratch, *gone).places == ()
    whole = image(path, KEY) if codes else b""
    assert not [code for code in codes for at in range(0, len(code), 40) if code[at : at + 16] in whole]
    if living:
        assert "pages" in search(path, KEY, scratch, *living).places


PROPERTY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(PROPERTY, max_examples=120)
@given(steps=STEPS)
def test_what_only_purged_records_said_is_nowhere(steps: list[tuple[int, int, int]]) -> None:
    """And each record that stays is found by its words, each purge leaves a log that replays to the tables."""
    with tempfile.TemporaryDirectory() as directory:
        examined(steps, Path(directory) / "s.db", Path(directory))
