"""Threads of one process that purge, write, search and look back at once, on one store and on a second one of the same file."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agentmem import NotFound, Store
from agentmem.records import likeness, rarity

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "past"))

from decrypted import search
from written import SECRET

KEY = bytes(range(32))


@pytest.mark.parametrize("rounds", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_threads_that_purge_beside_readers_and_writers(
    path: Path, tmp_path: Path, opened: Callable[..., Store], rounds: int
) -> None:
    """Nobody fails, nothing of what was purged is found, in no memo either, and what stays is whole."""
    one, other = opened(busy_timeout=60), opened(busy_timeout=60)
    failures: list[BaseException] = []

    def purge(store: Store, name: str) -> None:
        for number in range(rounds):
            note = store.notes.add(
                "fact", f"{SECRET} {name} {number}", body=f"{SECRET} " * number, similar=number % 2 == 0
            )
            if number % 3 == 0:
                store.notes.update(note, title=f"{SECRET} {name} {number} again")
                store.redact(note)
            assert note.id in store.forget(note).ids

    def write(store: Store, name: str) -> None:
        for number in range(rounds * 2):
            store.notes.add("fact", f"Kept {name} {number}", similar=number % 2 == 0)

    def read(store: Store, name: str) -> None:
        for _ in range(rounds * 2):
            store.find(f"{SECRET} {name}")
            store.resume()
            for hit in store.find("kept again", limit=5).hits:
                try:
                    store.get(hit.id)
                except NotFound:
                    continue

    def look_back(store: Store, name: str) -> None:
        for _ in range(rounds // 4):
            with store.at(store.log.head().seq) as past:
                past.notes.list(kind="fact")

    def guarded(work: Callable[[Store, str], None], store: Store, name: str) -> None:
        try:
            work(store, name)
        except BaseException as error:
            failures.append(error)
            raise

    work = [purge, write, read, look_back, purge, read]
    threads = [
        threading.Thread(target=guarded, args=(each, (one, other)[number % 2], f"t{number}"))
        for number, each in enumerate(work)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    for store in (one, other):
        assert store.find(SECRET).hits == ()
        assert not any(SECRET in memo.get(store.database, {}) for memo in (likeness._seen, rarity._known))
        assert len(store.find("kept t1", limit=1000).hits) == rounds * 2
    assert one.verify(replay=True).problems == ()
    other.close()
    assert not one.forget(one.notes.add("fact", SECRET)).wal_pending
    one.close()
    assert search(path, KEY, tmp_path, SECRET).places == ()
