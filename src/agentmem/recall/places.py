"""The places of texts that answer a question: of many texts, some of them long, the few sentences that hold most of it.

A record is found as a whole, and a long one holds a little of everything. Here each candidate stands for the place where
most of the question stands closest together, and is weighed as if that place were all it says.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from attrs import frozen

from agentmem import limits, text
from agentmem.recall import filters, passages, words
from agentmem.recall.filters import Narrowed
from agentmem.records import validate
from agentmem.records.base import View
from agentmem.types import Origin

__all__ = ["Place", "places"]

_CANDIDATES: Final = 160
_CHARS: Final = 320  # of a place
_PIECE: Final = 16  # candidates read at once: each may have hundreds of thousands of characters
_TEXTS_CHARS: Final = 4_000_000  # of texts looked through, so that no answer waits long
_NEW_WORDS: Final = 2  # that a place must add: the same question, asked before, answers nothing
_LEAST: Final = 0.5  # of the best score


@frozen
class Place:
    """A place of a record's text.

    Attributes:
        id: The record.
        snippet: The place, as it was written, not escaped.
        score: How much of the question it holds: 1 for all of it once.
        origin: Where the text came from.
    """

    id: int
    snippet: str
    score: float
    origin: Origin


def places(view: View, question: str, to: Narrowed, *, limit: int) -> list[Place]:
    """The places that hold most of a question, the best first, of equals the latest; by words alone.

    Args:
        view: Where to look.
        question: What is asked.
        to: The records that count.
        limit: At most so many.

    Raises:
        InvalidInput: Nothing in the question can be searched for.
    """
    parsed = text.query(validate.text(question, "question", 4 * limits.QUERY_CHARS))
    to = filters.known(view, to)
    units = parsed.significant()
    candidates = words.candidates(view, units, to, _CANDIDATES)
    weighted = words.Weighted(view, parsed.units, to.project)
    asked = frozenset(text.stems(question))
    # A script of three bytes a character says more in each: as many tokens, else a line of them loses its end.
    chars = _CHARS * len(question) // len(question.encode())
    found: list[Place] = []
    for record, origin, line, rest in _texts(view, candidates, to):
        snippet = text.snippet(f"{line}\n{rest}" if line else rest, parsed, chars=chars)
        score = weighted.held("", text.analyse(snippet), "").score
        if score > 0:
            found.append(Place(record, snippet, round(score, 6), origin))
    found.sort(key=lambda one: (-one.score, -one.id))
    best = found[0].score if found else 0.0
    return _telling([one for one in found if one.score >= _LEAST * best], asked, limit)


def _texts(view: View, candidates: Sequence[int], to: Narrowed) -> Iterator[tuple[int, Origin, str, str]]:
    """Id, origin, line and other text of candidates, the best first, until they are too many to look through."""
    looked = 0
    for first in range(0, len(candidates), _PIECE):
        piece = candidates[first : first + _PIECE]
        origins = {match.id: match.origin for match in filters.passing(view, piece, to)}
        for record, line, rest in passages.texts(view.connection, piece):
            looked += len(rest)
            if record in origins:
                yield record, origins[record], line, rest
        if looked > _TEXTS_CHARS:
            return


def _telling(found: Iterable[Place], asked: frozenset[str], limit: int) -> list[Place]:
    """Those that say something that neither the question nor a better place says."""
    told, chosen = set(asked), []
    for one in found:
        stems = frozenset(text.stems(one.snippet))
        if len(stems - told) >= _NEW_WORDS:
            chosen.append(one)
            told |= stems
            if len(chosen) == limit:
                break
    return chosen
