"""Records as lines of an answer: `#id text (why) → basis`, untrusted text quoted and marked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, overload

from agentmem.context.budget import Line
from agentmem.context.escape import prompt_inline, quoted
from agentmem.context.tokens import Counter
from agentmem.records.base import View
from agentmem.types import UNTRUSTED, moment

# Characters of a text that are looked at at all: more cannot be shown, and escaping is not free.
_SHOWN_CHARS: Final = 4000


def inline(text: str | None, origin: str = "agent") -> str:
    """A record's text inside a line that begins with something of ours: escaped, and quoted where it is untrusted."""
    if not text:
        return ""
    part = text[:_SHOWN_CHARS]
    return quoted(part, origin) if origin in UNTRUSTED else prompt_inline(part, inside=True)


def record(
    found: int,
    title: str | None,
    *,
    origin: str = "agent",
    before: str = "",
    why: str | None = None,
    basis: str | None = None,
    after: str = "",
    body: str | None = None,
    limit: int = 60,
) -> Line:
    """One record as a line.

    Args:
        found: Its id.
        title: Its text.
        origin: Of the text, the reason and the basis.
        before: A word before the text, of ours.
        why: The reason, in brackets.
        basis: What it rests on, after an arrow.
        after: A remark of ours at the end.
        body: More of its text, shown where there is room.
        limit: Tokens of the line while others wait.
    """
    text = inline(title, origin)
    head = f"#{found} {before} {text}" if before else f"#{found} {text}"
    short = head
    if why:
        head += f" ({inline(why, origin)})"
    if basis:
        head += f" → {inline(basis, origin)}"
    if after:
        head += f" {after}"
        short += f" {after}"
    more = _beyond(body, title, basis, why) if body else ""
    if more:
        short = head
        head += f": {inline(more, origin)}"
    return Line(head, short if short != head else None, f"get({found})", limit)


def _beyond(body: str, title: str | None, basis: str | None, why: str | None) -> str:
    """What a body says beyond title, basis and reason, which imported records often repeat."""
    if why and why.strip() in body:
        return ""
    rest = body.strip().lstrip("*_ ")
    for told in (title, basis):
        if told and rest.startswith(told.rstrip("…")):
            rest = rest[len(told.rstrip("…")) :].lstrip("*_.:： \n")
    return rest


def unknown(view: View) -> str:
    """A remark where nothing was ever written in the project of this name: which projects the store has."""
    if view.binding.subject is not None:
        return ""
    if view.row("SELECT 1 FROM project WHERE id = ?", (view.project,)) is not None:
        return ""
    names = [
        inline(name) for (name,) in view.rows("SELECT name FROM project WHERE name IS NOT NULL ORDER BY id LIMIT 8")
    ]
    return f" (nothing was ever written in it; the store has {', '.join(names)})" if names else " (the store is empty)"


def day(at: int) -> str:
    """The UTC date of a time."""
    return f"{moment(at):%Y-%m-%d}"


def minute(at: int) -> str:
    """The UTC date and time of a time, to the minute."""
    return f"{moment(at):%Y-%m-%d %H:%M}"


def counted(number: int, one: str, many: str | None = None) -> str:
    """`1 step`, `2 steps`."""
    return f"{number} {one if number == 1 else many or one + 's'}"


class Lines(Sequence[Line]):
    """Lines that are made when they are looked at: of what is read for a section the budget shows a part."""

    __slots__ = ("_made", "_make", "_rows")

    def __init__(self, rows: Sequence[Any], make: Callable[[Any], Line]) -> None:
        self._rows = rows
        self._make = make
        self._made: list[Line] = []

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Line: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Line]: ...
    def __getitem__(self, index: int | slice) -> Line | Sequence[Line]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self._rows)))]
        place = index if index >= 0 else len(self._rows) + index
        if not 0 <= place < len(self._rows):
            raise IndexError(index)
        while len(self._made) <= place:
            self._made.append(self._make(self._rows[len(self._made)]))
        return self._made[place]


class _Costs(dict[str, int]):
    def __init__(self, counter: Counter) -> None:
        super().__init__()
        self._counter = counter

    def __missing__(self, text: str) -> int:
        cost = self[text] = self._counter(text)
        return cost


def remembering(counter: Counter) -> Counter:
    """The same counter for one answer: a line that is measured and then shown is counted once."""
    return _Costs(counter).__getitem__
