"""How rare a word is in the index, known cheaply: what a search may begin with, and what it had better not.

FTS5 reads the whole list of records of each word that it is asked for, and the commonest words stand in a fifth of all
records. So a word is counted up to `COMMON` only, and the count is remembered for as long as it cannot have reached
that: a record adds one at most.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from weakref import WeakKeyDictionary

from agentmem.engine.database import Database
from agentmem.records import cleaning
from agentmem.records.base import Unit, View
from agentmem.text import Unit as Asked

COMMON: Final = 1000
"""From so many records on a word is common."""

_WORDS: Final = 50_000
_COUNT: Final = f"SELECT count(*) FROM (SELECT 1 FROM search WHERE search MATCH ? LIMIT {COMMON})"

# For each open file: the count of a word, and the seq up to which it holds. Single operations of a dict are atomic.
_known: Final[WeakKeyDictionary[Database, dict[str, tuple[int, int]]]] = WeakKeyDictionary()


def token(asked: Asked) -> str | None:
    """The one token of the index that every record with this unit holds; None for a character found by prefix only."""
    if not asked.phrases:
        return None
    # Of a word the stem, which stands beside every form; of a compound the whole.
    return asked.phrases[0] if " " in asked.phrases[-1] else asked.phrases[-1]


def counts(source: Unit | View, tokens: Iterable[str]) -> dict[str, int]:
    """In how many records each token stands: exact for 0, at the last count for less than `COMMON`, `COMMON` for more."""
    known = _known.setdefault(source.binding.ledger.database, {})
    now = source.tx.seq if isinstance(source, Unit) else _last(source)
    found = {}
    for one in tokens:
        number, until = known.get(one, (0, -1))
        if until < now:
            row = source.row(_COUNT, (f'"{one}"',))
            number = row[0] if row else 0
            if number:  # that a word stands nowhere is true at this moment only
                if len(known) >= _WORDS:
                    known.clear()
                known[one] = (number, now + COMMON - number - 1 if number < COMMON else _FOR_EVER)
        found[one] = number
    return found


_FOR_EVER: Final = 2**63


def _last(source: View) -> int:
    row = source.row("SELECT coalesce(max(seq), 0) FROM event")
    return row[0] if row else 0


def rarest_first(counted: dict[str, int]) -> list[str]:
    """The tokens that stand in some records and are not common, the rarest first."""
    return sorted((one for one, number in counted.items() if 0 < number < COMMON), key=counted.__getitem__)


def split(source: Unit | View, units: Sequence[Asked]) -> tuple[list[Asked], list[Asked]]:
    """The units that are not common, those in no record left out, and the common ones; characters count as common."""
    tokens = [token(one) for one in units]
    counted = counts(source, [one for one in tokens if one is not None])
    pairs = list(zip(units, tokens, strict=True))
    rare = [asked for asked, one in pairs if one is not None and 0 < counted[one] < COMMON]
    common = [asked for asked, one in pairs if one is None or counted[one] >= COMMON]
    return rare, common


@cleaning.dropped_by
def forget_words(database: Database) -> None:
    """Empties the memo of this file, for use after a purge."""
    _known.pop(database, None)
