"""What a purge leaves to be cleaned, where the file is in no state for it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from agentmem import Store
from agentmem.records import cleaning

pytestmark = pytest.mark.skipif(os.name != "posix", reason="an open file cannot be moved away there")


def pending(store: Store) -> bool:
    with store.database.read() as connection:
        return connection.execute("SELECT 1 FROM meta WHERE name = 'purge'").fetchone() is not None


def test_a_file_that_was_moved_leaves_the_cleaning_pending(store: Store, opened: Callable[..., Store]) -> None:
    """What was committed before is not reported as failed; once the file is back it is finished."""
    store.notes.add("fact", "One")
    ledger = store._shared.ledger
    with store.database.write() as connection:
        cleaning.begin(ledger, connection, 1)
    away = store.path.with_name("away.db")
    os.rename(store.path, away)
    assert not cleaning.finish(ledger, wait=0.01)
    os.rename(away, store.path)
    assert pending(store)
    assert cleaning.finish(ledger, wait=1.0)
    assert not pending(store)
