"""`review`: what is worth a look, proposed and never changed.

Each section is a list with a total and a place where it goes on. No section reads more than a bounded part of the
store; where that is not all of what it is about, it says so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import evolve, frozen

from agentmem.context import lines
from agentmem.context.answer import Answer, nonzero
from agentmem.context.budget import Line, Section, fit
from agentmem.context.lines import Lines, remembering
from agentmem.context.reach import WALKED, reach
from agentmem.context.review_alike import duplicates
from agentmem.context.review_checks import checks
from agentmem.context.review_parts import Ask, Finding, Part, place, seq_until
from agentmem.context.review_records import contradictions, held, unconfirmed, unsure, untrusted
from agentmem.context.review_tasks import attempts, questions, stale, stalled, unfinished, unsummarized
from agentmem.context.tokens import Counter
from agentmem.records.base import View

# In the order of the answer, each with its share of the budget.
_SECTIONS: Final[dict[str, tuple[Callable[[Ask], Part], float]]] = {
    "stalled": (stalled, 0.14),
    "attempts": (attempts, 0.08),
    "questions": (questions, 0.08),
    "contradictions": (contradictions, 0.1),
    "duplicates": (duplicates, 0.1),
    "claims": (held, 0.06),
    "unfinished": (unfinished, 0.08),
    "unsummarized": (unsummarized, 0.06),
    "stale": (stale, 0.06),
    "unsure": (unsure, 0.06),
    "unconfirmed": (unconfirmed, 0.06),
    "untrusted": (untrusted, 0.06),
    "checks": (checks, 0.06),
}
SECTIONS: Final = tuple(_SECTIONS)


@frozen
class Review(Answer):
    """What is worth a look.

    Attributes:
        task: The task asked about, None for the project.
        seq: The end of the log when this was read.
        before: What happened last before this time counts as old. Microseconds since 1970 UTC.
        parts: The sections that have findings, or of which a part was looked at only; in their order.
        text: All of it within the budget.
        tokens: Of the text, by the counter.
        omitted: How many findings of each section the budget left out of the text.
    """

    task: int | None
    seq: int
    before: int
    parts: tuple[Part, ...]
    text: str
    tokens: int
    omitted: dict[str, int]

    def __getitem__(self, name: str) -> tuple[Finding, ...]:
        """The findings of a section, none where it has none."""
        if name not in _SECTIONS:
            raise KeyError(name)
        return next((part.findings for part in self.parts if part.name == name), ())

    def __bool__(self) -> bool:
        """Whether anything is worth a look."""
        return any(part.total for part in self.parts)


def review(
    view: View,
    task: int | None,
    *,
    age: int,
    section: str | None,
    after: str | None,
    limit: int,
    budget: int,
    counter: Counter,
) -> Review:
    """The answer of `store.review`; `age` is in microseconds."""
    before, counter = view.now - age, remembering(counter)
    ask = Ask(view, reach(view, task), before, seq_until(view, before), limit)
    if section is not None:
        ask = evolve(ask, alone=True, place=() if after is None else place(section, after))
    found = [_SECTIONS[name][0](ask) for name in (SECTIONS if section is None else (section,))]
    parts = [part for part in found if part.total or part.findings or part.looked_at]
    head = [Line(_headline(ask, parts, section), limit=200)]
    if section is not None:
        head += [Line(f"it goes on: {_call(task, section, part.after)}") for part in parts if part.after]
    fitted = fit(
        head, [_section(part, task) for part in parts], budget=budget, counter=counter, more=_call(task, "…", None)
    )
    return Review(task, view.seq, before, tuple(parts), fitted.text, fitted.tokens, nonzero(fitted.omitted))


def _headline(ask: Ask, parts: list[Part], section: str | None) -> str:
    view, task = ask.view, ask.reach.task
    of = f"project {lines.inline(view.binding.project)}"
    if task is not None:
        title, origin = view.one("SELECT title, origin FROM note WHERE id = ?", (task,))
        of = f"#{task} {lines.inline(title, origin)}"
        if ask.reach.nodes is not None and len(ask.reach.nodes) == WALKED:
            of += f" and the first {WALKED} notes beneath"
    unknown = lines.unknown(view) if task is None else ""
    counts = ", ".join(
        f"{part.name} {part.counted}" + (f" of {part.looked_at}" if part.looked_at else "") for part in parts
    )
    nothing = "nothing" if section is None else f"no {section}"
    return f"to look at in {of}, nothing was changed: {counts or nothing}{unknown}"


def _section(part: Part, task: int | None) -> Section:
    title = f"{part.title} ({part.counted}{f' of {part.looked_at}' if part.looked_at else ''}):"
    listed = Lines(part.findings, Finding.line)
    return Section(part.name, title, _SECTIONS[part.name][1], listed, part.total, _call(task, part.name, None))


def _call(task: int | None, section: str, after: str | None) -> str:
    """The call that gives one section."""
    arguments = [str(task)] if task is not None else []
    arguments.append(f"section='{section}'")
    arguments += [f"after='{after}'"] if after is not None else []
    return f"review({', '.join(arguments)})"


__all__ = ["SECTIONS", "Finding", "Part", "Review", "review"]
