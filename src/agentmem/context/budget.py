"""Fitting an answer into a budget of tokens.

Every answer made of sections goes through `fit`. Its promises:

- the finished text, all of it, costs no more than the budget by the counter it was given;
- the line that says what was cut is paid first, and counts exactly: shown and omitted make the total;
- each section has a share; what it leaves goes to the next, and round again to the first; none starves another;
- an item too large is shortened, it neither ends its section nor hides what follows;
- a larger budget shows no fewer lines of any section (by a subadditive counter such as the default one).

The last holds because all that decides how many lines are shown (`_allot`, `_grants`) is monotone in the budget and
independent of how well the lines happened to pack. What is left over in the end only lengthens shortened lines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

from attrs import evolve, frozen

from agentmem import limits
from agentmem.context.tokens import Counter, count_tokens, cut
from agentmem.errors import InvalidInput, shown

__all__ = ["Fitted", "Line", "Section", "fit"]

LINE_TOKENS: Final = 60
"""What a line costs at most while others wait, if it does not say otherwise."""

STUB_TOKENS: Final = 12
"""Less than this of a line is not worth showing: an id and two words."""

HEAD: Final = "head"


@frozen
class Line:
    """One record of a section.

    Attributes:
        text: The full form; may have several lines of text. Untrusted parts are quoted already.
        short: A shorter form, if there is a better one than the beginning of `text`.
        ref: The call that fetches the whole, such as `get(12)`; shown where the line had to be cut.
        limit: Tokens the line takes at most while other lines wait. When all are served it may grow.
    """

    text: str
    short: str | None = None
    ref: str = ""
    limit: int = LINE_TOKENS


@frozen
class Section:
    """Lines under a title, in order of importance.

    Attributes:
        name: The word for it in the line of cuts; unique in an answer.
        title: The line above it; none if empty. It is shown with the section's first line only.
        share: Its part of the budget, relative to the other sections that have lines.
        lines: What there is to show, the most important first.
        total: How many there are in all, if that is more than `lines` (a bounded query).
        more: The one call that fetches the rest, such as `left(task=12)`.
    """

    name: str
    title: str
    share: float
    lines: Sequence[Line]
    total: int | None = None
    more: str = ""

    @property
    def count(self) -> int:
        """How many there are in all."""
        return max(self.total or 0, len(self.lines))


@frozen
class Fitted:
    """The text of an answer and what it holds.

    Attributes:
        text: The whole answer. Nothing may be added to it afterwards.
        tokens: Its cost by the counter, at most `budget`.
        budget: The budget it was fitted into.
        shown: Lines shown, by section.
        omitted: Lines not shown, by section; with `shown` it makes the section's total.
        shortened: Lines shown in part, by section.
    """

    text: str
    tokens: int
    budget: int
    shown: Mapping[str, int]
    omitted: Mapping[str, int]
    shortened: Mapping[str, int]


def fit(
    head: Sequence[Line],
    sections: Sequence[Section],
    *,
    budget: int = limits.BUDGET_DEFAULT,
    counter: Counter = count_tokens,
    head_share: float = 0.2,
    more: str = "",
) -> Fitted:
    """Lay out `head` and `sections` as one text of at most `budget` tokens.

    Args:
        head: Lines above all sections. They count as a section named `head` without a title.
        sections: The sections in order; empty ones leave no trace.
        budget: Tokens by `counter`, from `limits.BUDGET_MIN` to `limits.BUDGET_MAX`.
        counter: Tokens of a text. The promise holds for any; the packing is good for a subadditive, monotone one.
        head_share: The share of `head`.
        more: The call that fetches the whole answer, named where the budget has no room for one call per section.

    Raises:
        InvalidInput: The budget is out of range or too small for anything by this counter, or two sections have one name.
    """
    _check(sections, budget)
    boxes = [_Box(section, counter) for section in (Section(HEAD, "", head_share, head), *sections) if section.count]
    best = _whole(boxes, budget, counter) or _cut_to_fit(boxes, budget, counter, more)
    names = (HEAD, *(section.name for section in sections))
    none = dict.fromkeys(names, 0)
    return evolve(
        best,
        shown=MappingProxyType(none | dict(best.shown)),
        omitted=MappingProxyType(none | dict(best.omitted)),
        shortened=MappingProxyType(none | dict(best.shortened)),
    )


def _check(sections: Sequence[Section], budget: int) -> None:
    if type(budget) is not int or not limits.BUDGET_MIN <= budget <= limits.BUDGET_MAX:
        raise InvalidInput(
            f"budget={shown(budget)} is out of range",
            why=f"It is in tokens, from {limits.BUDGET_MIN} to {limits.BUDGET_MAX}",
            next=f"Leave it out for {limits.BUDGET_DEFAULT}, or give a whole number in that range",
        )
    names = [HEAD, *(section.name for section in sections)]
    if len(set(names)) < len(names):
        raise InvalidInput(f"Section names are not unique: {', '.join(names)}", next="Give each section its own name")


class _Box:
    """A section with the costs of its lines, each counted once and only if it is needed."""

    def __init__(self, section: Section, counter: Counter) -> None:
        self.section = section
        self.title = counter(section.title + "\n") if section.title else 0
        self._counter = counter
        self._needs: list[tuple[int, bool]] = []

    def need(self, index: int) -> int:
        """Tokens that line `index` asks for: its full cost, or less if that is above its limit."""
        return self._measured(index)[0]

    def is_full(self, index: int) -> bool:
        """Whether `need` is the cost of the full form."""
        return self._measured(index)[1]

    def _measured(self, index: int) -> tuple[int, bool]:
        while len(self._needs) <= index:
            self._needs.append(_measure(self.section.lines[len(self._needs)], self._counter))
        return self._needs[index]

    def demand(self, ceiling: float) -> int:
        """Tokens that all lines ask for with the title; counting stops above `ceiling`."""
        total = self.title
        for index in range(len(self.section.lines)):
            total += self.need(index)
            if total > ceiling:
                break
        return total


# A text of more characters than this for each token of its limit counts as too long without being counted: hundreds of
# texts of 256 KiB would take seconds to count.
_CHARS_PER_TOKEN: Final = 16


def _measure(line: Line, counter: Counter) -> tuple[int, bool]:
    limit = max(line.limit, STUB_TOKENS)
    window = limit * _CHARS_PER_TOKEN
    if len(line.text) <= window:
        cost = counter(line.text + "\n")
        if cost <= limit:
            return cost, True
    if line.short is not None and len(line.short) <= window:
        return min(counter(line.short + "\n"), limit), False
    return limit, False


def _whole(boxes: Sequence[_Box], budget: int, counter: Counter) -> Fitted | None:
    """Everything in full, if that fits."""
    left = budget
    for box in boxes:
        if box.section.count > len(box.section.lines):
            return None
        left -= box.demand(left)
        if left < 0:
            return None
    if not all(box.is_full(index) for box in boxes for index in range(len(box.section.lines))):
        return None
    fitted = _fitted([_Shown(box, [line.text for line in box.section.lines]) for box in boxes], "", budget, counter)
    return fitted if fitted.tokens <= budget else None


@frozen
class _Shown:
    """The lines of a section as they stand in the text."""

    box: _Box
    texts: Sequence[str]

    @property
    def omitted(self) -> int:
        return self.box.section.count - len(self.texts)

    @property
    def shortened(self) -> int:
        return sum(text != line.text for text, line in zip(self.texts, self.box.section.lines, strict=False))


def _fitted(shown: Sequence[_Shown], last: str, budget: int, counter: Counter) -> Fitted:
    parts: list[str] = []
    for part in shown:
        if part.texts and part.box.section.title:
            parts.append(part.box.section.title)
        parts.extend(part.texts)
    text = "\n".join([*parts, last] if last else parts)
    return Fitted(
        text=text,
        tokens=counter(text),
        budget=budget,
        shown={part.box.section.name: len(part.texts) for part in shown},
        omitted={part.box.section.name: part.omitted for part in shown},
        shortened={part.box.section.name: part.shortened for part in shown},
    )


# The line of cuts


_CutForm = Callable[[Sequence[_Shown], str], str]


def _cut_by_section(shown: Sequence[_Shown], more: str) -> str:
    """What was cut from each section, and the call that fetches it."""
    return _joined(
        f"{part.box.section.name} {part.omitted}{_call(part.box.section.more or more)}"
        for part in shown
        if part.omitted
    )


def _cut_by_name(shown: Sequence[_Shown], more: str) -> str:
    """What was cut from each section, one call for all."""
    entries = _joined(f"{part.box.section.name} {part.omitted}" for part in shown if part.omitted)
    return entries and entries + _call(more)


def _cut_in_all(shown: Sequence[_Shown], more: str) -> str:
    """How much was cut."""
    omitted = sum(part.omitted for part in shown)
    return f"cut: {omitted}{_call(more)}" if omitted else ""


def _last(form: _CutForm, more: str, shown: Sequence[_Shown]) -> str:
    return form(shown, more)


def _joined(entries: Iterable[str]) -> str:
    line = " · ".join(entries)
    return line and "cut: " + line


def _call(call: str) -> str:
    return f" ({call})" if call else ""


# The forms of that line, the best first, each with how many times its cost the budget must be for it to be used.
_CUT_FORMS: Final[tuple[tuple[_CutForm, int], ...]] = ((_cut_by_section, 3), (_cut_by_name, 2), (_cut_in_all, 2))


def _cut_to_fit(boxes: Sequence[_Box], budget: int, counter: Counter, more: str) -> Fitted:
    """The most that fits above a line of cuts; by a counter that is not subadditive, by trying ever less."""
    nothing = [_Shown(box, []) for box in boxes]
    ceiling = budget
    for form, factor in _CUT_FORMS:
        reserve = counter("\n" + form(nothing, more))
        if reserve * factor > budget:
            # Where the budget begins to suffice for this form, the room shrinks by the difference of the two forms:
            # it must not be larger below, or more budget would show less.
            ceiling = min(ceiling, reserve * (factor - 1))
            continue
        room = min(budget - reserve, ceiling)
        while room >= STUB_TOKENS:
            fitted = _laid_out(boxes, room, budget, counter, partial(_last, form, more))
            if fitted.tokens <= budget:
                return fitted
            room = room * 4 // 5
    for form, _ in _CUT_FORMS:
        fitted = _fitted(nothing, form(nothing, more), budget, counter)
        if fitted.tokens <= budget:
            return fitted
    text = cut(_cut_in_all(nothing, more), budget, counter)
    if not text:
        raise InvalidInput(
            f"Nothing fits into budget={budget}",
            why="By the store's counter= the mere line that says what was cut costs more",
            next="Give a larger budget, or open the store with another counter=",
        )
    return evolve(fitted, text=text, tokens=counter(text))


# The layout


def _laid_out(
    boxes: Sequence[_Box], room: int, budget: int, counter: Counter, last: Callable[[Sequence[_Shown]], str]
) -> Fitted:
    """The lines that `room` allows, then whatever the budget has left to lengthen those that were shortened."""
    allotments = _allot(boxes, room)
    shown = [
        _Shown(box, list(_texts(box, allotment, counter))) for box, allotment in zip(boxes, allotments, strict=True)
    ]
    fitted = _fitted(shown, last(shown), budget, counter)
    spare = budget - fitted.tokens
    if spare < STUB_TOKENS or not any(fitted.shortened.values()):
        return fitted
    longer = list(_lengthened(shown, spare, counter))
    refitted = _fitted(longer, last(longer), budget, counter)
    return refitted if refitted.tokens <= budget else fitted


def _allot(boxes: Sequence[_Box], room: int) -> list[float]:
    """Tokens for each section: its share, what those before it left, then what the last ones left.

    Each allotment is monotone in `room`: it is made of sums, products, minima and maxima with fixed demands only.
    """
    whole = sum(box.section.share for box in boxes) or 1.0
    carry = 0.0
    allotments: list[float] = []
    for box in boxes:
        offered = room * (box.section.share / whole) + carry
        taken = min(offered, box.demand(offered))
        allotments.append(taken)
        carry = offered - taken
    for index, box in enumerate(boxes):
        if carry <= 0:
            break
        more = min(box.demand(allotments[index] + carry) - allotments[index], carry)
        allotments[index] += more
        carry -= more
    return allotments


def _texts(box: _Box, allotment: float, counter: Counter) -> Iterator[str]:
    """The first lines of a section, each in the longest form its grant allows."""
    for line, grant in zip(box.section.lines, _grants(box, allotment - box.title), strict=False):
        text = _form(line, int(grant), counter)
        if text is None:
            return
        yield text


def _grants(box: _Box, room: float) -> Iterator[float]:
    """Tokens for each line that is shown: what it needs, but no more than half the room while another waits.

    The number of lines is monotone in `room`, since the most a line may take grows no faster than the room.
    """
    most = room if len(box.section.lines) == 1 else max(room / 2, STUB_TOKENS)
    for index in range(len(box.section.lines)):
        need = box.need(index)
        grant = min(need, most)
        if grant > room:
            if room >= min(need, STUB_TOKENS):
                yield room
            return
        yield grant
        room -= grant


def _form(line: Line, grant: int, counter: Counter) -> str | None:
    """The longest form of a line that costs at most `grant` with its newline, or None."""

    def cost(text: str) -> int:
        return counter(text + "\n")

    for text in (line.text, line.short):
        if text is not None and len(text) <= grant * _CHARS_PER_TOKEN and cost(text) <= grant:
            return text
    ref = f" {line.ref}" if line.ref and grant >= 2 * STUB_TOKENS else ""
    return cut(line.text, grant, cost, ending=lambda kept: _closing(kept) + "…" + ref) or None


def _closing(kept: str) -> str:
    """The mark that closes a quotation which the cut left open: what follows must not read as quoted."""
    return "»" if kept.rfind("«") > kept.rfind("»") else ""


def _lengthened(shown: Sequence[_Shown], spare: int, counter: Counter) -> Iterator[_Shown]:
    """The same lines, the shortened ones longer as far as `spare` goes, the first of them first."""
    for part in shown:
        texts = list(part.texts)
        for index, (text, line) in enumerate(zip(texts, part.box.section.lines, strict=False)):
            if text != line.text and spare >= STUB_TOKENS:
                cost = counter(text + "\n")
                longer = _form(line, cost + spare, counter)
                if longer is not None and (longer == line.text or len(longer) > len(text)):
                    texts[index] = longer
                    spare -= counter(longer + "\n") - cost
        yield _Shown(part.box, texts)
