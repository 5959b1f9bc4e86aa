"""What `recall` answers, within a budget of tokens: a line for each hit, with the place of its text that answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from attrs import frozen

from agentmem.context import lines
from agentmem.context.answer import Answer, nonzero
from agentmem.context.budget import Line, Section, fit
from agentmem.context.escape import prompt_inline
from agentmem.context.tokens import Counter
from agentmem.recall import recall as search
from agentmem.recall.meaning import State
from agentmem.recall.recall import RecalledHit
from agentmem.records.base import View

__all__ = ["Recall", "answer"]

_HIT_TOKENS: Final = 90


@frozen
class Recall(Answer):
    """What was recalled.

    Attributes:
        query: What was asked.
        text: All of it within the budget.
        hits: The best first, also those the text has no room for; empty where nothing is relevant.
        more: How many further records of those looked at are relevant: a larger `limit` shows them.
        meaning: Whether meaning took part: `used`, or why not: `off`, `missing`, `damaged`, `other`, `unknown`, `failed`.
        because: A sentence for where it did not take part, or not for all records.
        pending: How many records wait to be embedded, counted up to 1,001; by words these are found already.
        omitted: How many lines the budget left out.
        news: What the actor's task should hear.
    """

    query: str
    text: str
    hits: tuple[RecalledHit, ...]
    more: int
    meaning: State
    because: str
    pending: int
    omitted: Mapping[str, int]
    news: tuple[str, ...]

    def __iter__(self) -> Iterator[RecalledHit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)


def answer(
    view: View,
    found: search.Recalled,
    *,
    budget: int,
    counter: Counter,
    limit: int,
    news: tuple[str, ...],
    everywhere: bool = False,
) -> Recall:
    """The answer of `store.recall`."""
    head = [Line(line) for line in news]
    if not found.hits:
        head.append(Line(f"Nothing relevant{'' if everywhere else lines.unknown(view)}"))
    if found.because:  # which may repeat what an embedder of others says
        because = prompt_inline(found.because, inside=True)
        head.append(Line(f"By words only: {because}" if found.meaning != "used" else because))
    more = f"recall(…, limit={min(2 * limit, 100)})"
    section = Section(
        "hits", "", 0.9, [_line(hit) for hit in found.hits], total=len(found.hits) + found.more, more=more
    )
    fitted = fit(head, [section], budget=budget, counter=counter, head_share=0.1, more=more)
    return Recall(
        found.query, fitted.text, found.hits, found.more, found.meaning, found.because, found.pending,
        nonzero(fitted.omitted), news,
    )  # fmt: skip


def _line(hit: RecalledHit) -> Line:
    record = hit.record
    before = f"{record.kind} [{record.status}]" if record.status else record.kind
    after = "; ".join(_remarks(hit))
    title = record.title
    if record.type == "entity":
        before, title = f"[{record.status}]", f"{record.kind}:{record.title}"
    elif record.type in ("checkpoint", "summary"):
        before = ""
    elif record.type == "message":
        before, title = f"{record.kind} in", record.title.replace("session ", "session #")
    shown = hit.snippet if hit.snippet and hit.snippet not in title else None
    return lines.record(
        record.id, title, origin=record.origin, before=before, after=f"– {after}" if after else "", body=shown,
        limit=_HIT_TOKENS,
    )  # fmt: skip


def _remarks(hit: RecalledHit) -> list[str]:
    found = []
    if hit.superseded_by is not None:
        found.append(f"superseded by #{hit.superseded_by}")
    if hit.why.supersedes is not None:
        found.append(f"supersedes #{hit.why.supersedes}")
    if hit.contradicted_by:
        found.append(f"contradicted by {', '.join(f'#{other}' for other in hit.contradicted_by)}")
    if hit.repeats:
        found.append(f"the same in {', '.join(f'#{other}' for other in hit.repeats)}")
    if hit.why.beside is not None:
        found.append(f"beside #{hit.why.beside}")
    return found
