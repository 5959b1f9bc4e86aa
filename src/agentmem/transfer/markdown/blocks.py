"""Markdown as a tree of sections and blocks, each with the lines it came from.

Only the block structure is parsed: what a record keeps is the source's own lines, so nothing is rendered and
nothing is lost. Lines are zero-based, ends exclusive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, Literal

from attrs import evolve, field, frozen

from agentmem.transfer.markdown.words import one_line

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

__all__ = ["Block", "Item", "Row", "Section", "parse"]

_BOX: Final = re.compile(r"^\[([ xX✓✔√~/>\-])\](?:\s+|$)")
_STRUCK: Final = re.compile(r"^~~(.+?)~~\s*(?:[（(—–-]\s*(.*?)\s*[)）]?)?$")
_TICKED: Final = frozenset("xX✓✔√")
BlockKind = Literal["paragraph", "list", "table", "code", "other"]


@frozen
class Item:
    """One item of a list.

    Args:
        text: Its first paragraph on one line, without bullet and box.
        done: Whether its box is ticked, None where it has no box. A box begun, `[~]` or `[/]`, is not done.
        start: Its first line.
        end: The line after its last.
        blocks: What stands in it after the first paragraph.
        head: The first line of its text.
        cancelled: Whether its box is `[-]`.
    """

    text: str
    done: bool | None
    start: int
    end: int
    blocks: tuple[Block, ...] = ()
    head: str = ""
    cancelled: bool = False

    @property
    def dropped(self) -> bool:
        """Whether it is given up: its box is `[-]`, or its text is struck through."""
        return self.cancelled or bool(_STRUCK.match(self.text))

    @property
    def bare(self) -> str:
        """Its text without the strokes through it and what was said of them."""
        struck = _STRUCK.match(self.text)
        return struck[1] if struck else self.text

    @property
    def struck_why(self) -> str:
        """What is said in brackets after a text that is struck through."""
        struck = _STRUCK.match(self.text)
        return struck[2] or "" if struck else ""

    def walk(self) -> Iterator[Item]:
        """The item and every item nested in it."""
        yield self
        for block in self.blocks:
            for item in block.items:
                yield from item.walk()


@frozen
class Row:
    """One row of a table."""

    cells: tuple[str, ...]
    line: int


@frozen
class Block:
    """One block at the top of a section, or inside an item."""

    kind: BlockKind
    start: int
    end: int
    text: str = ""
    items: tuple[Item, ...] = ()
    header: tuple[str, ...] = ()
    rows: tuple[Row, ...] = ()

    @property
    def boxes(self) -> int:
        """How many items of it, nested ones too, have a box."""
        return sum(item.done is not None and not item.dropped for top in self.items for item in top.walk())


@frozen
class Section:
    """A heading with what stands beneath it; level 0 is what stands before the first heading.

    Args:
        level: 1 to 6, 0 for the root.
        title: The heading as written, on one line.
        start: The line of the heading.
        body: The first line after the heading.
        own_end: The line after its own blocks, where the first section within it begins.
        end: The line after everything in it.
        blocks: Its own blocks.
        sections: The sections within it.
    """

    level: int
    title: str
    start: int
    body: int
    own_end: int
    end: int
    blocks: tuple[Block, ...] = ()
    sections: tuple[Section, ...] = field(factory=tuple)

    def walk(self) -> Iterator[Section]:
        """The section and every section within it, in order."""
        yield self
        for section in self.sections:
            yield from section.walk()

    @property
    def boxes(self) -> int:
        """How many boxes stand in its own blocks."""
        return sum(block.boxes for block in self.blocks)


def parse(text: str) -> tuple[Section, list[str]]:
    """The text as a section of level 0, and its lines."""
    lines = text.split("\n")
    tokens = _parser().parse(text)
    flat = _flat_sections(tokens, lines)
    root, _ = _nest(flat, 0, len(lines))
    return root, lines


_PARSER: list[MarkdownIt] = []


def _parser() -> MarkdownIt:
    """One parser for block structure and tables, made on first use; inline text is never parsed."""
    if not _PARSER:
        from markdown_it import MarkdownIt

        parser = MarkdownIt("commonmark", {"maxNesting": 20}).enable("table")
        parser.core.ruler.enableOnly(["normalize", "block"])
        _PARSER.append(parser)
    return _PARSER[0]


def _flat_sections(tokens: list[Token], lines: list[str]) -> list[Section]:
    """Every heading at the top level with its own blocks, in order; the first is the text before any heading."""
    sections = [Section(0, "", 0, 0, len(lines), len(lines))]
    blocks: list[Block] = []
    position = 0
    while position < len(tokens):
        token = tokens[position]
        if token.type == "heading_open" and token.level == 0 and token.map:
            start, end = token.map
            sections[-1] = evolve(sections[-1], blocks=tuple(blocks), own_end=start)
            blocks = []
            title = one_line(tokens[position + 1].content)
            sections.append(Section(int(token.tag[1]), title, start, end, len(lines), len(lines)))
            position += 3
            continue
        block, position = _block(tokens, position, lines)
        if block:
            blocks.append(block)
    sections[-1] = evolve(sections[-1], blocks=tuple(blocks))
    return sections


def _nest(flat: list[Section], position: int, total: int) -> tuple[Section, int]:
    """The section at `position` with the deeper ones after it inside."""
    head = flat[position]
    position += 1
    inside: list[Section] = []
    while position < len(flat) and flat[position].level > head.level:
        child, position = _nest(flat, position, total)
        inside.append(child)
    end = flat[position].start if position < len(flat) else total
    return evolve(head, sections=tuple(inside), end=end), position


def _block(tokens: list[Token], position: int, lines: list[str]) -> tuple[Block | None, int]:
    """The block that opens at `position`, and the position after it."""
    token = tokens[position]
    close = _close(tokens, position)
    start, end = token.map or (0, 0)
    while end > start and not lines[end - 1].strip():
        end -= 1
    text = "\n".join(lines[start:end])
    if token.map is None:
        return None, close + 1
    if token.type in ("bullet_list_open", "ordered_list_open"):
        return Block("list", start, end, text, items=_items(tokens, position + 1, close, lines)), close + 1
    if token.type == "table_open":
        header, rows = _table(tokens, position + 1, close)
        return Block("table", start, end, text, header=header, rows=rows), close + 1
    if token.type == "paragraph_open":
        return Block("paragraph", start, end, text), close + 1
    if token.type in ("fence", "code_block"):
        return Block("code", start, end, text), close + 1
    return Block("other", start, end, text), close + 1


def _close(tokens: list[Token], position: int) -> int:
    """The position of the token that closes the one at `position`; itself where it does not open anything."""
    if tokens[position].nesting != 1:
        return position
    depth = 0
    for index in range(position, len(tokens)):
        depth += tokens[index].nesting
        if depth == 0:
            return index
    return len(tokens) - 1


def _items(tokens: list[Token], position: int, stop: int, lines: list[str]) -> tuple[Item, ...]:
    items = []
    while position < stop:
        close = _close(tokens, position)
        if tokens[position].type == "list_item_open":
            items.append(_item(tokens, position, close, lines))
        position = close + 1
    return tuple(items)


def _item(tokens: list[Token], position: int, close: int, lines: list[str]) -> Item:
    start, end = tokens[position].map or (0, 0)
    while end > start + 1 and not lines[end - 1].strip():
        end -= 1
    blocks: list[Block] = []
    first = head = ""
    inner = position + 1
    while inner < close:
        if not first and not blocks and tokens[inner].type == "paragraph_open":
            content = tokens[inner + 1].content
            first, head = one_line(content), one_line(content.split("\n", 1)[0])
            inner = _close(tokens, inner) + 1
            continue
        block, inner = _block(tokens, inner, lines)
        if block:
            blocks.append(block)
    box = _BOX.match(first)
    if not box:
        return Item(first, None, start, end, tuple(blocks), head)
    text, head = first[box.end() :].strip(), _BOX.sub("", head).strip()
    return Item(text, box[1] in _TICKED, start, end, tuple(blocks), head, cancelled=box[1] == "-")


def _table(tokens: list[Token], position: int, stop: int) -> tuple[tuple[str, ...], tuple[Row, ...]]:
    header: tuple[str, ...] = ()
    rows: list[Row] = []
    cells: list[str] = []
    line = 0
    for token in tokens[position:stop]:
        if token.type == "tr_open":
            cells, line = [], (token.map or (0, 0))[0]
        elif token.type == "inline":
            cells.append(one_line(token.content))
        elif token.type == "tr_close":
            if header or rows:
                rows.append(Row(tuple(cells), line))
            else:
                header = tuple(cells)
    return header, tuple(rows)
