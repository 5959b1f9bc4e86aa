"""Boxes of a list as one flat checklist, with what stands around them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from attrs import frozen

from agentmem import limits
from agentmem.transfer.markdown.blocks import Block, Item
from agentmem.transfer.markdown.status import split_marker
from agentmem.transfer.markdown.types import PlannedItem
from agentmem.transfer.markdown.words import is_placeholder, norm, plain

__all__ = ["Boxed", "flatten", "flatten_plain", "is_marked", "names_of", "short_name"]

_CONTEXT_CHARS: Final = 200
_NAME_CHARS: Final = 4
_STROKES: Final = re.compile(r"~~")
_TRAILING_PAREN: Final = re.compile(r"\s*[（(][^（()）]*[)）]\s*$")


@frozen
class Boxed:
    """A box with the lines it takes out of the text; none where the text still holds more than the box says."""

    item: PlannedItem
    lines: tuple[tuple[int, int], ...]


def flatten(block: Block) -> Iterator[Boxed]:
    """The boxes of a list in order; those of templates and dropped ones are none.

    A box below plain items carries their text before its own.
    """
    for item in block.items:
        yield from _flatten(item, "", 0)


def _flatten(item: Item, context: str, depth: int) -> Iterator[Boxed]:
    nested = [inner for block in item.blocks for inner in block.items]
    boxed_below = any(inner.done is not None for top in nested for inner in top.walk())
    if item.dropped:
        return
    if item.done is None:
        if not boxed_below:
            return
        below = f"{context}{plain(item.text)}: " if len(item.text) < _CONTEXT_CHARS else context
        for inner in nested:
            yield from _flatten(inner, below, depth)
        return
    if is_placeholder(item.text):
        return
    text, whole = _text(item, context, boxed_below=boxed_below)
    own_end = item.end if whole and not boxed_below else min((block.start for block in item.blocks), default=item.end)
    lines = ((item.start, own_end),) if len(text) <= limits.ITEM_CHARS else ()
    if len(text) > limits.ITEM_CHARS:
        text = text[: limits.ITEM_CHARS - 1] + "…"
    yield Boxed(PlannedItem(text, item.done, depth), lines)
    for inner in nested:
        yield from _flatten(inner, "", depth + 1)


def _text(item: Item, context: str, *, boxed_below: bool) -> tuple[str, bool]:
    """The text of a box with plain items beneath it joined, and whether that is all it holds."""
    text = context + item.text
    if boxed_below:
        return text, False
    simple = all(block.kind == "list" and all(not inner.blocks for inner in block.items) for block in item.blocks)
    if not simple:
        return text, not item.blocks
    details = [inner.text for block in item.blocks for inner in block.items]
    joined = f"{text} ({'; '.join(details)})" if details else text
    return (joined, True) if len(joined) <= limits.ITEM_CHARS else (text, False)


def names_of(text: str, head: str = "") -> frozenset[str]:
    """The names under which an item is known in another file: whole, its first line, without brackets at its end."""
    bare = _TRAILING_PAREN.sub("", plain(_STROKES.sub("", text)))
    found = {norm(text), norm(head), norm(bare)}
    return frozenset(name for name in found if len(name) >= _NAME_CHARS)


def short_name(text: str) -> str:
    """What an item says before its first comma or dash, empty where that is nothing much."""
    name = norm(re.split(r",\s|，|\s[—–]\s", plain(text), maxsplit=1)[0])
    return name if len(name) >= 2 * _NAME_CHARS else ""


def is_marked(block: Block) -> bool:
    """Whether every item of a list begins or ends in a status marker, as a log's list of done things does."""
    return len(block.items) > 0 and all(item.done is None and split_marker(item.text)[1] for item in block.items)


def flatten_plain(block: Block, done: Callable[[Item], bool]) -> Iterator[Boxed]:
    """The items at the top of a list without boxes as boxes."""
    for item in block.items:
        if item.done is None and not is_placeholder(item.text) and len(item.text) <= limits.ITEM_CHARS:
            text, whole = _text(item, "", boxed_below=False)
            end = item.end if whole else min((inner.start for inner in item.blocks), default=item.end)
            yield Boxed(PlannedItem(text, done(item)), ((item.start, end),))
