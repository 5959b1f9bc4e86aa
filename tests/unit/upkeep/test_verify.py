"""Verify: the chain in pieces, long texts, and every row of the full-text index."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from damage import LONG, behind, filled

from agentmem import Corrupt, Store
from agentmem.log import check
from agentmem.log.check import ChainCheck, check_some


def raw(store: Store, sql: str, *values: Any) -> None:
    """One statement on the file, behind the library's back."""
    with store.database.write() as connection:
        connection.execute(sql, values)


@pytest.fixture
def written(opened: Callable[..., Store], path: Path) -> Store:
    """A store with a few of everything."""
    filled(path, 120)
    return opened()


def test_a_sound_store_has_no_problems(written: Store) -> None:
    """With all that can be asked for, and the head is that of what was checked."""
    found = written.verify(replay=True, independent=True)
    assert found.problems == ()
    assert (found.events, found.head) == (written.log.head().seq, written.log.head())


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("DELETE FROM search WHERE rowid = 5", "#5 is missing"),
        ("UPDATE search SET title = 'other' WHERE rowid = 7", "#7 has other words"),
        ("UPDATE search SET extra = 'other' WHERE rowid = 7", "#7 has other words"),
        (
            "INSERT INTO search (rowid, title, body, extra) VALUES (99999, 'stray', '', '')",
            "#99999 has a row and no text",
        ),
        ("UPDATE search_content SET c0 = 'other' WHERE id = 9", "fts5"),
    ],
)
def test_every_row_of_the_index_is_compared(written: Store, sql: str, told: str) -> None:
    """A missing, a changed, a stray row is named by its record, and a row that its own index does not know is found."""
    raw(written, sql)
    assert any(told.casefold() in problem.casefold() for problem in written.verify().problems)


def test_equal_counts_do_not_hide_a_difference(written: Store) -> None:
    """One row too few and one too many."""
    raw(written, "DELETE FROM search WHERE rowid = 5")
    raw(written, "INSERT INTO search (rowid, title, body, extra) VALUES (99999, 'stray', '', '')")
    assert len(written.verify().problems) == 2


@pytest.mark.parametrize("sql", ["UPDATE blob SET text = text || '.'", "DELETE FROM blob"])
def test_a_long_text_that_was_changed_or_lost_is_found(written: Store, sql: str) -> None:
    """A digest is over the name of a text that is kept once: the text is held against that name."""
    raw(written, sql)
    with pytest.raises(Corrupt, match="long text of event"):
        written.verify()


@pytest.mark.parametrize(
    ("sql", "told"),
    [
        ("UPDATE blob SET uses = uses - 1", "is counted"),
        ("INSERT INTO blob VALUES (zeroblob(32), 'left over', 1)", "0 events use"),
    ],
)
def test_uses_of_long_texts_are_counted_anew(written: Store, sql: str, told: str) -> None:
    """One that is counted too low would go with another's purge; one that nothing uses should have gone."""
    raw(written, sql)
    assert any(told in problem for problem in written.verify(replay=True).problems)


def test_tables_that_know_of_more_than_the_log_are_a_problem(written: Store) -> None:
    """A chain that lost its end is whole by itself; what later events left in the tables tells."""
    last = written.notes.add("fact", "The last").id
    raw(written, "DELETE FROM event WHERE seq = ?", last)
    assert any(f"the tables tell of event {last}" in problem for problem in written.verify().problems)


# In pieces


def test_the_log_is_read_in_short_transactions(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two pieces the write-ahead log can be emptied, and what is written meanwhile is not looked at."""
    monkeypatch.setattr(check, "_PIECE", 10)
    database, ledger = written.database, written._shared.ledger
    cut: list[bool] = []
    begun = written.log.head()
    read = database.read

    def reading(**options: Any) -> Any:
        if len(cut) < 5:
            written.notes.add("fact", f"Meanwhile {len(cut)}", similar=False)
            cut.append(database.checkpoint())
        return read(**options)

    monkeypatch.setattr(database, "read", reading)
    found = ledger.check()
    assert cut == [True] * 5
    assert found.seq <= begun.seq + 5
    assert found.seq < written.log.head().seq + 1
    assert written.verify(head=found)


def test_a_purge_between_two_pieces_breaks_nothing(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Payloads and texts go, headers and digests stay: the chain holds before, during and after."""
    monkeypatch.setattr(check, "_PIECE", 10)
    store_id = written.log.head().store
    progress = ChainCheck(store_id)
    more = True
    while more:
        with written.database.read() as connection:
            more = check_some(progress, connection)
        if progress.seq in (10, 30, 60):
            written.forget(progress.seq - 2)  # read already
            written.forget(progress.seq + 15)  # still to be read
    assert progress.end() == written.log.head()
    assert written.verify(replay=True).problems == ()


def test_each_piece_goes_on_where_the_last_one_ended(written: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """However small the pieces, the head is the same, and a broken event is found at every place of one."""
    head = written.log.head()
    for size in (1, 2, 7, 10_000):
        monkeypatch.setattr(check, "_PIECE", size)
        assert written.verify().head == head
    for seq in (1, 7, 8, head.seq):
        raw(written, "UPDATE event SET at = at + 1 WHERE seq = ?", seq)
        for size in (1, 7, 10_000):
            monkeypatch.setattr(check, "_PIECE", size)
            with pytest.raises(Corrupt, match=f"broken at event {seq}\\b"):
                written.verify()
        raw(written, "UPDATE event SET at = at - 1 WHERE seq = ?", seq)
    assert written.verify().problems == ()


def test_what_was_changed_behind_a_closed_store_is_found_on_opening(path: Path, opened: Callable[..., Store]) -> None:
    """Also in a long text: nothing rests on what this process remembers."""
    filled(path, 60)
    behind(path, "UPDATE blob SET text = replace(text, 'once', 'twice')")
    with pytest.raises(Corrupt, match="was changed"):
        opened().verify()
    assert "once" in LONG
